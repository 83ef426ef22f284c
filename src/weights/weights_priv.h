/* Inside weights: the header and index parsers, the name table, and the open shards. */
#ifndef TRI_WEIGHTS_WEIGHTS_PRIV_H
#define TRI_WEIGHTS_WEIGHTS_PRIV_H

#include "weights/weights.h"

/* The parsed header of one shard. Names are as stored; they point into `names`. */
struct tri__weights_header {
    struct tri_tensor *tensors; /* offset_bytes counts from the start of the file */
    size_t count;
    char *names;
    uint64_t payload_bytes;
};

/*
 * Parses a safetensors header: `text` is the JSON of the file, `file_bytes` the whole file's size.
 * Rules: serving.md 4.4. `shard` is put into each tensor.
 */
TRI_MUST_CHECK enum tri_status tri__weights_parse_header(struct tri__weights_header *out,
                                                         const char *file, int32_t shard,
                                                         const char *text, size_t text_bytes,
                                                         uint64_t file_bytes,
                                                         struct tri_error *err);
void tri__weights_header_fini(struct tri__weights_header *header);

/* An index: each tensor's file. Names point into the tree, which lives as long as the index. */
struct tri__weights_index {
    void *tree;         /* json_t */
    const char **files; /* sorted, each once */
    size_t file_count;
    struct tri__weights_placed {
        const char *tensor; /* as stored, perhaps with the prefix */
        int32_t file;
    } * placed;
    size_t count;
    uint64_t total_bytes; /* metadata.total_size; 0 when absent */
};

TRI_MUST_CHECK enum tri_status tri__weights_parse_index(struct tri__weights_index *out,
                                                        const char *name, const char *text,
                                                        size_t text_bytes, struct tri_error *err);
void tri__weights_index_fini(struct tri__weights_index *index);

/* Names to tensors. The table owns neither names nor files. */
struct tri__weights_table {
    struct tri_tensor *tensors;
    size_t count;
    uint32_t *slots; /* tensor number + 1, 0 empty; a power of two of them */
    size_t slot_mask;
};

/*
 * Takes `tensors` (tri_malloc'ed, `count` of them) over, cuts "language_model." off their names and
 * hashes them. Refuses a name that is there twice, and names with and without the prefix together.
 * `where(arg, tensor)` names the file for errors.
 */
TRI_MUST_CHECK enum tri_status tri__weights_table_init(struct tri__weights_table *table,
                                                       struct tri_tensor *tensors, size_t count,
                                                       const char *(*where)(void *, int32_t shard),
                                                       void *arg, struct tri_error *err);
void tri__weights_table_fini(struct tri__weights_table *table);
const struct tri_tensor *tri__weights_table_find(const struct tri__weights_table *table,
                                                 const char *name);
/* `name` without "language_model." */
const char *tri__weights_bare(const char *name);

struct tri__weights_shard {
    char *path;
    int fd, direct_fd; /* the latter -1 until wanted */
    uint64_t file_bytes;
    struct tri__weights_header header; /* its tensors move to the table when all are read */
};

struct tri__weights_folder {
    char *path;
    uint64_t device, inode;
    uint64_t bytes; /* of the shards taken from it */
    bool has_shards;
};

struct tri_checkpoint {
    const struct tri_kernels *kernels; /* that convert */
    enum tri_reading reading;
    char *folder; /* folders[0]: config, index, and what is told to people */
    struct tri__weights_folder folders[TRI_WEIGHTS_MAX_FOLDERS + 1];
    int folder_count;
    struct tri__weights_shard *shards;
    size_t shard_count;
    struct tri__weights_table table;
    uint64_t payload_bytes, index_total_bytes; /* the latter 0 without an index */
    bool experts_packed;
};

/* folders.c: the folders, each once; the path of a shard; an extra folder without any is an error.
 */
enum { TRI__WEIGHTS_PATH_BYTES = 4096 };
TRI_MUST_CHECK enum tri_status tri__weights_folders_init(struct tri_checkpoint *c,
                                                         const char *folder,
                                                         const struct tri_folders *more,
                                                         const struct tri_notes *notes,
                                                         struct tri_error *err);
void tri__weights_folders_fini(struct tri_checkpoint *c);
TRI_MUST_CHECK enum tri_status tri__weights_locate(struct tri_checkpoint *c, const char *name,
                                                   char path[TRI__WEIGHTS_PATH_BYTES],
                                                   struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri__weights_folders_used(const struct tri_checkpoint *c,
                                                         struct tri_error *err);

/* Opens and checks files, without a spec. */
TRI_MUST_CHECK enum tri_status tri__weights_open_files(struct tri_checkpoint **out,
                                                       const char *folder,
                                                       const struct tri_folders *more, int threads,
                                                       const struct tri_notes *notes,
                                                       struct tri_error *err);

/* pread until done; EINTR and short reads are continued. TRI_IO at the end of the file. */
TRI_MUST_CHECK enum tri_status tri__weights_pread(int fd, const char *path, uint64_t offset,
                                                  void *dst, uint64_t bytes, struct tri_error *err);

/* Whether a large piece of a tensor is read past the page cache; see enum tri_reading. */
bool tri__weights_past_cache(const struct tri_checkpoint *ckpt, const struct tri_tensor *tensor,
                             uint64_t from, uint64_t bytes);

/* A piece of a tensor to be read. */
struct tri__weights_piece {
    const struct tri_tensor *tensor;
    uint64_t from, bytes;
    bool direct;
};
TRI_MUST_CHECK enum tri_status tri__weights_read(const struct tri_checkpoint *ckpt,
                                                 const struct tri__weights_piece *piece, void *dst,
                                                 struct tri_error *err);
/* The same to somewhere in `room`, which begins at a block and has two blocks more than the piece:
 * whole blocks are read, so that nothing is copied. *at: where the first byte lies. */
TRI_MUST_CHECK enum tri_status tri__weights_read_blocks(const struct tri_checkpoint *ckpt,
                                                        const struct tri__weights_piece *piece,
                                                        char *room, char **at,
                                                        struct tri_error *err);

/* One difference between the expected list and the table. */
enum tri__weights_difference {
    TRI__WEIGHTS_MISSING,
    TRI__WEIGHTS_MISMATCHED,
    TRI__WEIGHTS_EXTRA,
    TRI__WEIGHTS_DTYPE /* differs but is readable */
};

struct tri__weights_sink {
    /* expected is NULL for extra, found is NULL for missing. Non-zero stops the comparison. */
    int (*differ)(void *arg, enum tri__weights_difference kind,
                  const struct tri_tensor_spec *expected, const struct tri_tensor *found,
                  const char *why);
    void *arg;
};

/* rank < 0 in the table's tensors: only names are known. `packed` gets the experts' form. */
TRI_MUST_CHECK enum tri_status tri__weights_compare(const struct tri__weights_table *table,
                                                    const struct tri_spec *spec, bool *packed,
                                                    const struct tri__weights_sink *sink,
                                                    struct tri_error *err);

/* For messages: the name, printable and shortened. */
enum { TRI__WEIGHTS_SHOWN_BYTES = 136 };
const char *tri__weights_shown(char out[TRI__WEIGHTS_SHOWN_BYTES], const char *name);

#endif
