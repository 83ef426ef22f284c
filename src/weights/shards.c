/*
 * The files of a checkpoint: which they are (index, lone file, or a complete numbered set), opened
 * and their headers parsed in parallel, and that index and headers tell the same story.
 */
#include "weights/weights_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"
#include "os/pool.h"

#define INDEX_NAME "model.safetensors.index.json"
#define LONE_NAME  "model.safetensors"

enum { PATH_BYTES = TRI__WEIGHTS_PATH_BYTES };

enum tri_status tri__weights_pread(int fd, const char *path, uint64_t offset, void *dst,
                                   uint64_t bytes, struct tri_error *err)
{
    char *at = dst;
    while (bytes) {
        /* Linux moves at most 2^31 - 4096 bytes a call. */
        size_t want = bytes < (1u << 30) ? (size_t)bytes : 1u << 30;
        ssize_t got = pread(fd, at, want, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return tri_fail_errno(err, TRI_IO, errno, "%s: reading at byte %llu", path,
                                  (unsigned long long)offset);
        if (got == 0)
            return tri_fail(err, TRI_IO, "%s: ends at byte %llu, before what its header promises",
                            path, (unsigned long long)offset);
        at += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return TRI_OK;
}

static enum tri_status join(char out[PATH_BYTES], const char *folder, const char *name,
                            struct tri_error *err)
{
    if (snprintf(out, PATH_BYTES, "%s/%s", folder, name) >= PATH_BYTES)
        return tri_fail(err, TRI_ARG, "a path in the model's folder is longer than %d bytes",
                        PATH_BYTES);
    return TRI_OK;
}

static enum tri_status add_shard(struct tri_checkpoint *c, const char *name, struct tri_error *err)
{
    char path[PATH_BYTES];
    enum tri_status st = tri__weights_locate(c, name, path, err);
    if (st)
        return st;
    struct tri__weights_shard *shard = &c->shards[c->shard_count];
    shard->fd = shard->direct_fd = -1;
    shard->path = tri_strdup(path);
    if (!shard->path)
        return tri_fail(err, TRI_NOMEM, "%s: no memory to open it", path);
    c->shard_count++;
    return TRI_OK;
}

static enum tri_status open_regular(struct tri__weights_shard *shard, struct tri_error *err)
{
    struct stat sb;
    /* Non-blocking so that a FIFO cannot hang us; regular files do not care. */
    shard->fd = open(shard->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (shard->fd < 0 || fstat(shard->fd, &sb))
        return tri_fail_errno(err, TRI_IO, errno, "%s", shard->path);
    if (!S_ISREG(sb.st_mode))
        return tri_fail(err, TRI_IO, "%s: not a regular file", shard->path);
    shard->file_bytes = (uint64_t)sb.st_size;
    return TRI_OK;
}

static enum tri_status read_header(struct tri__weights_shard *shard, int32_t number,
                                   struct tri_error *err)
{
    unsigned char length[8];
    uint64_t n = 0;
    enum tri_status st = open_regular(shard, err);
    if (st)
        return st;
    if (shard->file_bytes < sizeof length)
        return tri_fail(err, TRI_FORMAT, "%s: %llu bytes long, too short for a safetensors file",
                        shard->path, (unsigned long long)shard->file_bytes);
    st = tri__weights_pread(shard->fd, shard->path, 0, length, sizeof length, err);
    if (st)
        return st;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | length[i];
    if (n > TRI_WEIGHTS_MAX_HEADER_BYTES)
        return tri_fail(err, TRI_FORMAT,
                        "%s: not a safetensors file: its header would have %llu bytes, at most %d",
                        shard->path, (unsigned long long)n, TRI_WEIGHTS_MAX_HEADER_BYTES);
    if (n > shard->file_bytes - sizeof length)
        return tri_fail(err, TRI_FORMAT, "%s: truncated inside its header (%llu of %llu bytes)",
                        shard->path, (unsigned long long)(shard->file_bytes - sizeof length),
                        (unsigned long long)n);
    char *text = tri_malloc((size_t)n + 1);
    if (!text)
        return tri_fail(err, TRI_NOMEM, "%s: no memory for its header", shard->path);
    st = tri__weights_pread(shard->fd, shard->path, sizeof length, text, n, err);
    if (!st)
        st = tri__weights_parse_header(&shard->header, shard->path, number, text, (size_t)n,
                                       shard->file_bytes, err);
    tri_free(text);
    return st;
}

struct reading {
    struct tri_checkpoint *c;
    struct tri_error *errors; /* one a shard, so that the lowest failing shard is told */
};

static void read_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    struct reading *r = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        if (read_header(&r->c->shards[i], (int32_t)i, &r->errors[i]) == TRI_OK)
            r->errors[i].status = TRI_OK;
}

static enum tri_status read_headers(struct tri_checkpoint *c, int threads, struct tri_error *err)
{
    struct tri_pool *pool = NULL;
    struct reading r = { c, tri_calloc(c->shard_count, sizeof *r.errors) };
    if (!r.errors)
        return tri_fail(err, TRI_NOMEM, "%s: no memory to open %zu files", c->folder,
                        c->shard_count);
    int want = threads > 0 ? threads : tri_cpu_count();
    if ((size_t)want > c->shard_count)
        want = (int)c->shard_count;
    enum tri_status st = tri_pool_open(&pool, want, err);
    if (!st)
        tri_pool_for(pool, (int64_t)c->shard_count, 1, read_piece, &r);
    tri_pool_close(pool);
    for (size_t i = 0; i < c->shard_count && !st; i++)
        if (r.errors[i].status) {
            st = r.errors[i].status;
            if (err && !err->status)
                *err = r.errors[i];
        }
    tri_free(r.errors);
    return st;
}

static const char *shard_path(void *arg, int32_t shard)
{
    const struct tri_checkpoint *c = arg;
    return c->shards[shard].path;
}

static enum tri_status build_table(struct tri_checkpoint *c, struct tri_error *err)
{
    size_t total = 0, at = 0;
    for (size_t i = 0; i < c->shard_count; i++)
        total += c->shards[i].header.count;
    if (total == 0)
        return tri_fail(err, TRI_FORMAT, "%s: holds no tensor", c->shards[0].path);
    struct tri_tensor *all = tri_calloc(total, sizeof *all);
    if (!all)
        return tri_fail(err, TRI_NOMEM, "%s: no memory for %zu tensors", c->folder, total);
    for (size_t i = 0; i < c->shard_count; i++) {
        struct tri__weights_header *h = &c->shards[i].header;
        memcpy(all + at, h->tensors, h->count * sizeof *all);
        at += h->count;
        c->payload_bytes += h->payload_bytes;
        tri_free(h->tensors);
        h->tensors = NULL;
    }
    return tri__weights_table_init(&c->table, all, total, shard_path, c, err);
}

/* Each entry of the index lies in the file it names, and no file holds more than the index says. */
static enum tri_status match_index(const struct tri_checkpoint *c,
                                   const struct tri__weights_index *index, struct tri_error *err)
{
    char shown[TRI__WEIGHTS_SHOWN_BYTES];
    uint8_t *seen = tri_calloc(c->table.count, 1);
    if (!seen)
        return tri_fail(err, TRI_NOMEM, "%s: no memory to check the index", c->folder);
    enum tri_status st = TRI_OK;
    for (size_t i = 0; i < index->count && !st; i++) {
        const struct tri__weights_placed *p = &index->placed[i];
        const struct tri_tensor *t =
            tri__weights_table_find(&c->table, tri__weights_bare(p->tensor));
        if (!t || t->shard != p->file)
            st = tri_fail(err, TRI_FORMAT, "%s: tensor %s is missing; " INDEX_NAME " puts it here",
                          c->shards[p->file].path, tri__weights_shown(shown, p->tensor));
        else
            seen[t - c->table.tensors] = 1;
    }
    for (size_t i = 0; i < c->table.count && !st; i++)
        if (!seen[i])
            st = tri_fail(err, TRI_FORMAT, "%s: tensor %s is not in " INDEX_NAME,
                          c->shards[c->table.tensors[i].shard].path,
                          tri__weights_shown(shown, c->table.tensors[i].name));
    tri_free(seen);
    return st;
}

static enum tri_status load_index(struct tri__weights_index *index, const char *path,
                                  struct tri_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    enum tri_status st = tri_spec_read_text(&text, &bytes, path, TRI_WEIGHTS_MAX_INDEX_BYTES, err);
    if (!st)
        st = tri__weights_parse_index(index, path, text, bytes, err);
    tri_free(text);
    return st;
}

/* Takes `word` and, after it, one to eight digits off the front of *at. */
static bool take_number(const char **at, const char *word, unsigned *number)
{
    size_t skip = strlen(word), digits = 0;
    if (strncmp(*at, word, skip) != 0)
        return false;
    const char *text = *at + skip;
    for (*number = 0; text[digits] >= '0' && text[digits] <= '9' && digits < 8; digits++)
        *number = *number * 10 + (unsigned)(text[digits] - '0');
    *at = text + digits;
    return digits > 0;
}

/* "model-00003-of-000096.safetensors": number and count; both of any digit width. */
static bool numbered_name(const char *name, unsigned *number, unsigned *count)
{
    return take_number(&name, "model-", number) && take_number(&name, "-of-", count) &&
           strcmp(name, ".safetensors") == 0;
}

static int is_numbered(const struct dirent *entry)
{
    unsigned number = 0, count = 0;
    return numbered_name(entry->d_name, &number, &count);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names of all numbered files in all folders, sorted, each once. The caller frees them. */
static enum tri_status list_numbered(const struct tri_checkpoint *c, char **names, int *count,
                                     struct tri_error *err)
{
    enum tri_status st = TRI_OK;
    int n = 0, kept = 0;
    for (int f = 0; f < c->folder_count && !st; f++) {
        struct dirent **list = NULL;
        int found = scandir(c->folders[f].path, &list, is_numbered, NULL);
        if (found < 0)
            st = tri_fail_errno(err, TRI_IO, errno, "%s", c->folders[f].path);
        for (int i = 0; i < found; i++) {
            names[n] = n < TRI_WEIGHTS_MAX_SHARDS ? tri_strdup(list[i]->d_name) : NULL;
            n += names[n] != NULL;
            tri_free(list[i]);
        }
        tri_free(list);
    }
    qsort(names, (size_t)n, sizeof *names, by_text);
    for (int i = 0; i < n; i++) {
        if (kept && !strcmp(names[kept - 1], names[i]))
            tri_free(names[i]);
        else
            names[kept++] = names[i];
    }
    *count = kept;
    return st;
}

/* No index and no lone file: a complete set 1..N of one N is as good as an index. */
static enum tri_status add_numbered(struct tri_checkpoint *c, char *const *names, int n,
                                    const struct tri_notes *notes, struct tri_error *err)
{
    if (n == 0)
        return tri_fail(err, TRI_IO,
                        "%s: no weights here: neither " INDEX_NAME " nor " LONE_NAME
                        " nor model-*-of-*.safetensors",
                        c->folder);
    for (int i = 0; i < n; i++) {
        unsigned number = 0, count = 0;
        if (!numbered_name(names[i], &number, &count) || number != (unsigned)i + 1 ||
            count != (unsigned)n)
            return tri_fail(err, TRI_FORMAT,
                            "%s: no " INDEX_NAME ", and %s is not file %d of a complete set of %d",
                            c->folder, names[i], i + 1, n);
        enum tri_status st = add_shard(c, names[i], err);
        if (st)
            return st;
    }
    tri_note(notes, "%s: no " INDEX_NAME "; all %d numbered files are used", c->folder, n);
    return TRI_OK;
}

static enum tri_status find_numbered(struct tri_checkpoint *c, const struct tri_notes *notes,
                                     struct tri_error *err)
{
    int n = 0;
    char **names = tri_calloc(TRI_WEIGHTS_MAX_SHARDS + 1, sizeof *names);
    if (!names)
        return tri_fail(err, TRI_NOMEM, "%s: no memory to open it", c->folder);
    enum tri_status st = list_numbered(c, names, &n, err);
    if (!st)
        st = add_numbered(c, names, n, notes, err);
    for (int i = 0; i < n; i++)
        tri_free(names[i]);
    tri_free(names);
    return st;
}

/* Fills c->shards; *index is filled when there is one. */
static enum tri_status find_shards(struct tri_checkpoint *c, struct tri__weights_index *index,
                                   const struct tri_notes *notes, struct tri_error *err)
{
    char path[PATH_BYTES];
    enum tri_status st = join(path, c->folder, INDEX_NAME, err);
    if (st)
        return st;
    if (access(path, F_OK) == 0) {
        st = load_index(index, path, err);
        for (size_t i = 0; i < index->file_count && !st; i++)
            st = add_shard(c, index->files[i], err);
        return st;
    }
    st = join(path, c->folder, LONE_NAME, err);
    if (st)
        return st;
    return access(path, F_OK) == 0 ? add_shard(c, LONE_NAME, err) : find_numbered(c, notes, err);
}

static enum tri_status open_in(struct tri_checkpoint *c, struct tri__weights_index *index,
                               int threads, const struct tri_notes *notes, struct tri_error *err)
{
    enum tri_status st = find_shards(c, index, notes, err);
    if (!st)
        st = tri__weights_folders_used(c, err);
    if (!st)
        st = read_headers(c, threads, err);
    if (!st)
        st = build_table(c, err);
    if (!st && index->count)
        st = match_index(c, index, err);
    c->index_total_bytes = index->total_bytes;
    if (!st && index->total_bytes && index->total_bytes != c->payload_bytes)
        tri_note(notes, "%s: " INDEX_NAME " says %llu bytes, the files hold %llu", c->folder,
                 (unsigned long long)index->total_bytes, (unsigned long long)c->payload_bytes);
    return st;
}

enum tri_status tri__weights_open_files(struct tri_checkpoint **out, const char *folder,
                                        const struct tri_folders *more, int threads,
                                        const struct tri_notes *notes, struct tri_error *err)
{
    struct tri__weights_index index = { 0 };
    struct tri_checkpoint *c = tri_calloc(1, sizeof *c);
    enum tri_status st = TRI_OK;
    if (c) {
        c->shards = tri_calloc(TRI_WEIGHTS_MAX_SHARDS, sizeof c->shards[0]);
    }
    if (!c || !c->shards)
        st = tri_fail(err, TRI_NOMEM, "%s: no memory to open it", folder);
    if (!st)
        st = tri__weights_folders_init(c, folder, more, notes, err);
    if (!st)
        c->folder = c->folders[0].path;
    if (!st)
        st = open_in(c, &index, threads, notes, err);
    tri__weights_index_fini(&index);
    tri_mem_trim(); /* headers and index of a large model leave hundreds of MiB behind */
    if (st)
        tri_checkpoint_close(c);
    else
        *out = c;
    return st;
}
