/*
 * A checkpoint on disk: its shards' headers parsed strictly, its tensors found by name, its bytes
 * read by pread (never by faulting a mapping), and matrices brought to RAM in the trunk format
 * asked for. Floor 2.
 *
 * Rules a header must keep: serving.md 4.4. Layouts understood: sharded with an index (either digit
 * width), a lone model.safetensors, names with or without "language_model.", experts packed
 * (weight_packed + weight_scale) or plain, an expert's six tensors contiguous, scattered, or in two
 * files. Names, shapes and files are checked before anything is allocated from them.
 *
 * Threads: a checkpoint is immutable once open; reading is safe from any thread.
 */
#ifndef TRI_WEIGHTS_WEIGHTS_H
#define TRI_WEIGHTS_WEIGHTS_H

#include "base/mem.h"
#include "fmt/fmt.h"
#include "kernels/kernels.h"
#include "spec/spec.h"

struct tri_checkpoint;

/* Limits of what is read from files. */
enum {
    TRI_WEIGHTS_MAX_HEADER_BYTES = 100 * 1000 * 1000, /* the safetensors format's own */
    TRI_WEIGHTS_MAX_INDEX_BYTES = 512 << 20,          /* K3's has 59.8 MB */
    TRI_WEIGHTS_MAX_SHARDS = 4096,
    TRI_WEIGHTS_MAX_FOLDERS = 16 /* beside the model's own */
};

/* Further folders with shards of the same model, usually one a drive. Names are the caller's. */
struct tri_folders {
    const char *name[TRI_WEIGHTS_MAX_FOLDERS];
    int n;
};

struct tri_tensor {
    const char *name;      /* without prefix; lives as long as the checkpoint */
    enum tri_dtype dtype;  /* TRI_DTYPES: legal in the format, but nothing here computes with it */
    int32_t rank;          /* up to 16; a rank over 4 matches nothing that is expected */
    int64_t shape[4];      /* dimensions beyond the rank are 1 */
    int32_t shard;         /* index into the checkpoint's files */
    uint64_t offset_bytes; /* from the start of that file */
    uint64_t bytes;
};

/*
 * Opens the folder and checks it against `spec`: every tensor present with the expected shape; a
 * dtype that differs but can be read (F32, F16, BF16 trunk; plain experts) is a note. Extra tensors
 * are a note. Shapes agree when they do after dimensions of 1 are dropped ([1,D] and [D],
 * [C,1,K] and [C,K]); dt_bias may be [H,D] or flat, A_log may have any length from the number of
 * heads up. Experts are packed or plain as the first one on disk is. An index whose total_size is
 * wrong, and a set model-*-of-*.safetensors without an index, are notes. Fails naming file and
 * tensor. `threads` parse headers in parallel (0 = all CPUs).
 * Vision tensors, if absent, are a note: text-only re-uploads exist.
 */
TRI_MUST_CHECK enum tri_status tri_checkpoint_open(struct tri_checkpoint **out, const char *folder,
                                                   const struct tri_spec *spec, int threads,
                                                   const struct tri_notes *notes,
                                                   struct tri_error *err);
/*
 * The same with shards spread over `more` folders (NULL: none): each is looked for in all of them.
 * One that is in several with the same size is read from the drive with the least to read so far;
 * with different sizes it is TRI_FORMAT. A folder given twice is counted once, one without any
 * shard of this model is TRI_ARG.
 */
TRI_MUST_CHECK enum tri_status
tri_checkpoint_open_spread(struct tri_checkpoint **out, const char *folder,
                           const struct tri_folders *more, const struct tri_spec *spec, int threads,
                           const struct tri_notes *notes, struct tri_error *err);
void tri_checkpoint_close(struct tri_checkpoint *ckpt);

/* How weights are read, where the file system can read past the page cache. */
enum tri_reading {
    TRI_READ_CACHED, /* through it (as opened) */
    TRI_READ_ONCE,   /* past it, but for what lies in it already: matrices that come to RAM */
    TRI_READ_DIRECT  /* past it always: what is read every step and is larger than memory */
};
/* Both from now on, before any other thread reads. `kernels`, which must outlive the checkpoint,
 * convert matrices; as opened: the reference. */
void tri_checkpoint_read_as(struct tri_checkpoint *ckpt, enum tri_reading how);
void tri_checkpoint_convert_with(struct tri_checkpoint *ckpt, const struct tri_kernels *kernels);

const char *tri_checkpoint_file(const struct tri_checkpoint *ckpt, int32_t shard);
uint64_t tri_checkpoint_memory_bytes(const struct tri_checkpoint *ckpt); /* the table of tensors */
uint64_t tri_checkpoint_bytes(const struct tri_checkpoint *ckpt);        /* payload of all shards */
bool tri_checkpoint_packed(const struct tri_checkpoint *ckpt); /* routed experts are MXFP4 */

/* NULL when absent. `name` without prefix. */
const struct tri_tensor *tri_checkpoint_find(const struct tri_checkpoint *ckpt, const char *name);

/* Reads bytes [from, from + bytes) of a tensor. A short file is TRI_IO naming file and tensor. */
TRI_MUST_CHECK enum tri_status tri_checkpoint_read(const struct tri_checkpoint *ckpt,
                                                   const struct tri_tensor *tensor, uint64_t from,
                                                   void *dst, uint64_t bytes,
                                                   struct tri_error *err);

/* A rectangle of a matrix: what one rank holds. Whole: {0, rows, 0, cols}. */
struct tri_rect {
    int64_t row0, rows, col0, cols;
};

/* Bytes that tri_load_matrix will take for this rectangle in this format. */
uint64_t tri_matrix_bytes(enum tri_dtype dtype, int64_t rows, int64_t cols);

/*
 * Reads a 2-D (or [C,1,K], seen as [C][K]) tensor's rectangle and converts it to `dtype` (F32,
 * BF16, I8G64, I4G32) in memory taken from `budget` on `account`. BF16 asked of an F32 tensor
 * rounds; F32 of BF16 is exact. The matrix is freed with tri_matrix_free(budget, account, m).
 */
TRI_MUST_CHECK enum tri_status tri_load_matrix(const struct tri_checkpoint *ckpt, const char *name,
                                               struct tri_rect rect, enum tri_dtype dtype,
                                               struct tri_budget *budget, enum tri_account account,
                                               struct tri_matrix *out, struct tri_error *err);
void tri_matrix_free(struct tri_budget *budget, enum tri_account account, struct tri_matrix *m);

/* The matrix of this shape and format that lies in `memory` of tri_matrix_bytes(). */
struct tri_matrix tri_matrix_in(void *memory, enum tri_dtype dtype, int64_t rows, int64_t cols);

/*
 * Room to read to before rows are converted. It begins at a block of the drive and is lent by a
 * thread that loads many matrices. Huge pages pay: a request of small ones has a piece a page, and
 * two such fill the queue of a virtual drive (061).
 */
enum { TRI_LOAD_ROOM_BYTES = 1 << 20 };

struct tri_rows {
    const char *name;
    struct tri_rect rect;
    enum tri_dtype dtype;
    void *data, *scales; /* rows packed; their scales, NULL for plain formats */
    void *room;          /* of TRI_LOAD_ROOM_BYTES; NULL: memory is taken for this call */
};
/* The same as tri_load_matrix into memory of the caller's. A failure leaves it undefined. */
TRI_MUST_CHECK enum tri_status tri_load_rows(const struct tri_checkpoint *ckpt,
                                             const struct tri_rows *rows, struct tri_error *err);

/* Reads `count` values from `first` of a vector-like tensor as float32 into caller memory. */
TRI_MUST_CHECK enum tri_status tri_load_vector(const struct tri_checkpoint *ckpt, const char *name,
                                               int64_t first, int64_t count, float *out,
                                               struct tri_error *err);

/*
 * Where one routed expert lies. Packed: parts are w1p, w1s, w2p, w2s, w3p, w3s (w1 gate, w3 up,
 * w2 down) and `record` is their sum; contiguous is true when they lie back to back in that order
 * in one file, so that one read of record_bytes at parts[0] brings the whole expert. Plain experts
 * (BF16/F16/F32 weight): parts w1, w2, w3, in [0], [2], [4]; the others have 0 bytes.
 */
struct tri_extent {
    int32_t shard;
    uint64_t offset_bytes, bytes;
};

struct tri_expert_extent {
    struct tri_extent part[6];
    uint64_t record_bytes;
    bool contiguous;
    enum tri_dtype dtype; /* MXFP4, or the plain dtype on disk */
};

TRI_MUST_CHECK enum tri_status tri_checkpoint_expert(const struct tri_checkpoint *ckpt,
                                                     int64_t layer, int64_t expert,
                                                     struct tri_expert_extent *out,
                                                     struct tri_error *err);

/* Raw bytes of a file, for the expert store: pread until done; names the file on failure. */
TRI_MUST_CHECK enum tri_status tri_checkpoint_read_at(const struct tri_checkpoint *ckpt,
                                                      int32_t shard, uint64_t offset_bytes,
                                                      void *dst, uint64_t bytes,
                                                      struct tri_error *err);

/* For `trireme info`: names of expected tensors that are missing, extra ones, mismatched ones. */
struct tri_check_report {
    uint64_t missing, extra, mismatched;
    bool experts_packed; /* the form found on disk, which the comparison was made with */
    void (*line)(void *arg, const char *kind, const char *tensor, const char *why);
    void *arg;
};

/*
 * Compares names only (index) or names, shapes and dtypes (headers) with the spec, without reading
 * weights and without failing at the first difference. `index_path` may be a .gz.
 */
TRI_MUST_CHECK enum tri_status tri_check_index(const char *index_path, const struct tri_spec *spec,
                                               struct tri_check_report *report, uint64_t *tensors,
                                               uint64_t *bytes, struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri_check_folder(const char *folder, const struct tri_spec *spec,
                                                struct tri_check_report *report, uint64_t *tensors,
                                                uint64_t *bytes, struct tri_error *err);

#endif
