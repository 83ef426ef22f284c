/*
 * Rows of an embedding table that stays on disk, as it does when the trunk is streamed: one read a
 * row, through a queue, so that a drive that never answers ends the step and not the process.
 */
#include "model/model_trunk.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define TABLE "model.embed_tokens.weight"

struct tri__rows {
    const struct tri_tensor *tensor;
    const char *file;
    struct tri_aio *aio; /* of one read */
    int fd, timeout_ms;
    uint64_t row_bytes;
    char *row; /* the drive's while a read is in flight, which it may be after a failure */
};

/* Waits for what is in flight. */
static enum tri_status await_row(struct tri__rows *r, struct tri_error *err)
{
    struct tri_aio_done done = { 0 };
    int n = 0;
    struct tri_error inner = { 0 };
    enum tri_status st = tri_aio_wait(r->aio, &done, 1, r->timeout_ms, &n, &inner);
    unsigned long long id = done.tag;
    if (st == TRI_TIMEOUT)
        return tri_fail(err, st,
                        "%s: no read of the trunk finished in %.1f s, a row of " TABLE
                        " is waited for; is the drive well? --io-timeout gives it longer",
                        r->file, r->timeout_ms / 1e3);
    if (st)
        return tri_fail(err, st, "%s", inner.text);
    if (n && done.short_file)
        return tri_fail(err, TRI_IO, "%s: ends before row %llu of " TABLE, r->file, id);
    if (n && done.sys_errno)
        return tri_fail_errno(err, TRI_IO, done.sys_errno, "%s: row %llu of " TABLE, r->file, id);
    return TRI_OK;
}

enum tri_status tri__rows_read(const struct tri_model *m, int64_t id, float *out,
                               struct tri_error *err)
{
    struct tri__rows *r = m->trunk->rows;
    struct tri_error given_up = { 0 };
    /* The buffer is the drive's until a read that was given up is here, however it went. */
    if (tri_aio_in_flight(r->aio) && await_row(r, &given_up) == TRI_TIMEOUT)
        return tri_fail(err, TRI_TIMEOUT, "%s", given_up.text);
    const struct tri_aio_read read = { .fd = r->fd,
                                       .dst = r->row,
                                       .offset_bytes =
                                           r->tensor->offset_bytes + (uint64_t)id * r->row_bytes,
                                       .bytes = r->row_bytes,
                                       .need_bytes = r->row_bytes,
                                       .tag = (uint64_t)id };
    enum tri_status st = tri_aio_submit(r->aio, &read, err);
    if (!st)
        st = await_row(r, err);
    if (!st)
        tri_row_decode(out, r->tensor->dtype, r->row, NULL, r->tensor->shape[1]);
    return st;
}

enum tri_status tri__rows_open(struct tri__rows **out, const struct tri_model *m,
                               enum tri_aio_engine engine, int timeout_ms, struct tri_error *err)
{
    struct tri__rows *r = tri_calloc(1, sizeof *r);
    if (!r)
        return tri_fail(err, TRI_NOMEM, "no memory to read rows of " TABLE);
    r->fd = -1;
    r->timeout_ms = timeout_ms;
    r->tensor = tri_checkpoint_find(m->ckpt, TABLE);
    r->file = tri_checkpoint_file(m->ckpt, r->tensor->shard);
    r->row_bytes = tri_row_data_bytes(r->tensor->dtype, r->tensor->shape[1]);
    r->row = tri_malloc(r->row_bytes);
    enum tri_status st =
        r->row ? TRI_OK : tri_fail(err, TRI_NOMEM, "no memory to read rows of " TABLE);
    if (!st)
        r->fd = open(r->file, O_RDONLY | O_CLOEXEC);
    if (!st && r->fd < 0)
        st = tri_fail_errno(err, TRI_IO, errno, "%s", r->file);
    if (!st) {
        (void)posix_fadvise(r->fd, 0, 0, POSIX_FADV_RANDOM);
        st = tri_aio_open(&r->aio, engine, 1, err);
    }
    if (st)
        tri__rows_close(r);
    else
        *out = r;
    return st;
}

void tri__rows_close(struct tri__rows *r)
{
    if (!r)
        return;
    if (tri_aio_close(r->aio)) /* else the drive may still write there */
        tri_free(r->row);
    if (r->fd >= 0)
        close(r->fd);
    tri_free(r);
}
