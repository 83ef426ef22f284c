/*
 * A state as a file. Little-endian, in this order, each section followed by its sum:
 *
 *   header 88 bytes, ids n_tokens * int32 | fixed part | per MLA layer tokens rows of the cache
 *
 * A sum is tri_hash64 chained over everything before it, so that the last one covers the file. The
 * first lets a cache read which tokens a file is for without reading all of it. Nothing of the file
 * is believed before its size fits its header, its header fits the model, and its sums its bytes.
 */
#include "state/state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/hash.h"
#include "state/state_priv.h"

struct header {
    char magic[8];
    uint64_t fingerprint;
    int64_t tokens, kda_layers, s_floats, conv_floats, mla_layers, mla_row;
    uint64_t fixed_bytes, cache_dtype, kda_dtype;
};
_Static_assert(sizeof(struct header) == 88, "state file header");

static const char MAGIC[8] = "TRISTAT3"; /* the last byte is the version of the format */
struct file {
    int fd;
    const char *path;
    uint64_t sum;
    struct tri_error *err;
};

static enum tri_status put(struct file *f, const void *data, size_t bytes)
{
    const char *p = data;
    f->sum = tri_hash64(f->sum, data, bytes);
    while (bytes) {
        ssize_t n = write(f->fd, p, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return tri_fail_errno(f->err, TRI_IO, n ? errno : ENOSPC, "cannot write %s", f->path);
        p += n;
        bytes -= (size_t)n;
    }
    return TRI_OK;
}

static enum tri_status get(struct file *f, void *data, size_t bytes)
{
    char *p = data;
    size_t left = bytes;
    while (left) {
        ssize_t n = read(f->fd, p, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tri_fail_errno(f->err, TRI_IO, errno, "cannot read %s", f->path);
        if (n == 0)
            return tri_fail(f->err, TRI_FORMAT, "%s: the file ends early", f->path);
        p += n;
        left -= (size_t)n;
    }
    f->sum = tri_hash64(f->sum, data, bytes);
    return TRI_OK;
}

static void fill_header(struct header *h, const struct tri_state *s, uint64_t fingerprint)
{
    *h = (struct header){ .fingerprint = fingerprint,
                          .tokens = s->tokens,
                          .kda_layers = s->kda_layers,
                          .s_floats = s->s_floats,
                          .conv_floats = s->conv_floats,
                          .mla_layers = s->mla_layers,
                          .mla_row = s->mla_row,
                          .fixed_bytes = s->fixed_bytes,
                          .cache_dtype = s->form.cache,
                          .kda_dtype = s->form.kda };
    memcpy(h->magic, MAGIC, sizeof h->magic);
}

/* The sum of what went before; part of the chain itself. */
static enum tri_status put_sum(struct file *f)
{
    uint64_t sum = f->sum;
    return put(f, &sum, sizeof sum);
}

static enum tri_status get_sum(struct file *f)
{
    uint64_t sum = f->sum, stored = 0;
    enum tri_status st = get(f, &stored, sizeof stored);
    if (!st && stored != sum)
        st = tri_fail(f->err, TRI_FORMAT, "%s: damaged (its checksum does not fit)", f->path);
    return st;
}

static enum tri_status put_state(struct file *f, const struct tri_state *s, uint64_t fingerprint,
                                 const int32_t *tokens)
{
    struct header h;
    fill_header(&h, s, fingerprint);
    enum tri_status st = put(f, &h, sizeof h);
    if (!st)
        st = put(f, tokens, (size_t)s->tokens * sizeof *tokens);
    if (!st)
        st = put_sum(f);
    if (!st)
        st = put(f, s->fixed, s->fixed_bytes);
    if (!st)
        st = put_sum(f);
    for (int64_t l = 0; l < s->mla_layers && !st; l++) {
        st = put(f, tri__state_rows(s, l), (uint64_t)s->tokens * s->mla_row_bytes);
        if (!st)
            st = put_sum(f);
    }
    return st;
}

uint64_t tri_state_file_bytes(const struct tri_state *state)
{
    const struct tri_state *s = state;
    uint64_t sums = 2 + (uint64_t)s->mla_layers;
    return sizeof(struct header) + (uint64_t)s->tokens * sizeof(int32_t) + s->fixed_bytes +
           (uint64_t)(s->mla_layers * s->tokens) * s->mla_row_bytes + sums * sizeof(uint64_t);
}

/* The folder of a renamed file: without this a crash may undo the rename. */
static enum tri_status sync_folder(const char *path, struct tri_error *err)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) && errno != EINVAL)) {
        int sys_errno = errno;
        if (fd >= 0)
            close(fd);
        return tri_fail_errno(err, TRI_IO, sys_errno, "cannot write the folder %s", folder);
    }
    close(fd);
    return TRI_OK;
}

enum tri_status tri_state_save(const struct tri_state *state, const char *path,
                               uint64_t fingerprint, const int32_t *tokens, int64_t n_tokens,
                               struct tri_error *err)
{
    char temp[4096];
    if (n_tokens != state->tokens)
        return tri_fail(err, TRI_ARG, "%s: %" PRId64 " ids for a state of %" PRId64 " tokens", path,
                        n_tokens, state->tokens);
    if (snprintf(temp, sizeof temp, "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof temp)
        return tri_fail(err, TRI_ARG, "the path of the state file is too long");
    struct file f = { .path = path, .err = err };
    f.fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f.fd < 0)
        return tri_fail_errno(err, TRI_IO, errno, "cannot create %s", temp);
    enum tri_status st = put_state(&f, state, fingerprint, tokens);
    if (!st && fsync(f.fd))
        st = tri_fail_errno(err, TRI_IO, errno, "cannot write %s", path);
    if (close(f.fd) && !st)
        st = tri_fail_errno(err, TRI_IO, errno, "cannot write %s", path);
    if (!st && rename(temp, path))
        st = tri_fail_errno(err, TRI_IO, errno, "cannot rename %s to %s", temp, path);
    if (st)
        unlink(temp);
    return st ? st : sync_folder(path, err);
}

/* The header must be ours, of this model, and fit the file's size. */
static enum tri_status check_header(const struct file *f, const struct header *h,
                                    const struct tri_state *s, uint64_t fingerprint)
{
    struct header want;
    struct stat sb;
    fill_header(&want, s, fingerprint);
    if (memcmp(h->magic, MAGIC, sizeof h->magic - 1))
        return tri_fail(f->err, TRI_FORMAT, "%s: not a saved state", f->path);
    if (memcmp(h->magic, MAGIC, sizeof h->magic))
        return tri_fail(f->err, TRI_FORMAT, "%s: saved by another version of this program",
                        f->path);
    if (h->fingerprint != fingerprint)
        return tri_fail(f->err, TRI_FORMAT, "%s: saved by another model", f->path);
    if (h->cache_dtype != want.cache_dtype || h->kda_dtype != want.kda_dtype)
        return tri_fail(
            f->err, TRI_FORMAT,
            "%s: saved in other number formats; use the --cache and --kda-state of then", f->path);
    want.tokens = h->tokens;
    if (memcmp(h, &want, sizeof want) || h->tokens < 0 || h->tokens > INT32_MAX)
        return tri_fail(f->err, TRI_FORMAT, "%s: its shapes are not this model's", f->path);
    struct tri_state shape = *s;
    shape.tokens = h->tokens;
    uint64_t bytes = tri_state_file_bytes(&shape);
    if (fstat(f->fd, &sb) || !S_ISREG(sb.st_mode) || (uint64_t)sb.st_size != bytes)
        return tri_fail(f->err, TRI_FORMAT, "%s: %lld bytes where %" PRIu64 " are expected",
                        f->path, (long long)sb.st_size, bytes);
    return TRI_OK;
}

/* Header and ids, checked: what both a whole reading and a peek begin with. */
static enum tri_status get_head(struct file *f, const struct tri_state *s, uint64_t fingerprint,
                                int32_t **tokens, int64_t *n_tokens)
{
    struct header h;
    enum tri_status st = get(f, &h, sizeof h);
    if (!st)
        st = check_header(f, &h, s, fingerprint);
    if (st)
        return st;
    int32_t *ids = tri_calloc((size_t)h.tokens + 1, sizeof *ids);
    if (!ids)
        return tri_fail(f->err, TRI_NOMEM, "%s: no memory for its ids", f->path);
    st = get(f, ids, (size_t)h.tokens * sizeof *ids);
    if (!st)
        st = get_sum(f);
    if (st) {
        tri_free(ids);
        return st;
    }
    *tokens = ids;
    *n_tokens = h.tokens;
    return TRI_OK;
}

static enum tri_status get_body(struct file *f, struct tri_state *s, int64_t n_tokens)
{
    if (n_tokens > s->room_tokens)
        return tri_fail(f->err, TRI_LIMIT,
                        "%s: holds %" PRId64 " tokens, the context here is %" PRId64
                        "; open with a larger --context",
                        f->path, n_tokens, s->room_tokens);
    enum tri_status st = get(f, s->fixed, s->fixed_bytes);
    if (!st)
        st = get_sum(f);
    for (int64_t l = 0; l < s->mla_layers && !st; l++) {
        st = get(f, tri__state_rows(s, l), (uint64_t)n_tokens * s->mla_row_bytes);
        if (!st)
            st = get_sum(f);
    }
    return st;
}

static enum tri_status open_file(struct file *f)
{
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0)
        return tri_fail_errno(f->err, TRI_IO, errno, "%s", f->path);
    return TRI_OK;
}

enum tri_status tri_state_load(struct tri_state *state, const char *path, uint64_t fingerprint,
                               int32_t **tokens, int64_t *n_tokens, struct tri_error *err)
{
    struct file f = { .path = path, .err = err };
    enum tri_status st = open_file(&f);
    if (st)
        return st;
    int32_t *ids = NULL;
    int64_t n = 0;
    st = get_head(&f, state, fingerprint, &ids, &n);
    if (!st)
        st = get_body(&f, state, n);
    close(f.fd);
    if (st) {
        tri_state_clear(state);
        tri_free(ids);
        return st;
    }
    state->tokens = n;
    *tokens = ids;
    *n_tokens = n;
    return TRI_OK;
}

enum tri_status tri_state_peek(const struct tri_state *shape, const char *path,
                               uint64_t fingerprint, int32_t **tokens, int64_t *n_tokens,
                               struct tri_error *err)
{
    struct file f = { .path = path, .err = err };
    enum tri_status st = open_file(&f);
    if (st)
        return st;
    st = get_head(&f, shape, fingerprint, tokens, n_tokens);
    close(f.fd);
    return st;
}
