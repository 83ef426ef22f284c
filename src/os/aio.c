/* The queue that all engines share: slots, retrying short reads, and what counts as done. */
#include "os/aio.h"

#include <errno.h>
#include "base/mem.h"
#include "os/aio_priv.h"

/* 4096 suits every drive's logical block. */
enum { BLOCK_BYTES = 4096, CLOSE_WAIT_MS = 1000 };

enum tri_status tri__aio_new(struct tri_aio **out, int depth, struct tri_error *err)
{
    if (depth < 1 || depth > TRI_AIO_MAX_DEPTH)
        return tri_fail(err, TRI_ARG, "a queue of %d reads: 1 to %d are possible", depth,
                        TRI_AIO_MAX_DEPTH);
    struct tri_aio *aio = tri_calloc(1, sizeof *aio);
    if (!aio)
        return tri_fail(err, TRI_NOMEM, "no memory for a read queue");
    aio->depth = depth;
    *out = aio;
    return TRI_OK;
}

enum tri_status tri_aio_open(struct tri_aio **out, enum tri_aio_engine engine, int depth,
                             struct tri_error *err)
{
    struct tri_aio *aio = NULL;
    enum tri_status st = tri__aio_new(&aio, depth, err);
    if (st)
        return st;
    if (engine == TRI_AIO_AUTO) {
        st = tri__aio_uring(aio, NULL);
        if (st)
            st = tri__aio_threads(aio, err);
    } else if (engine == TRI_AIO_URING) {
        st = tri__aio_uring(aio, err);
    } else {
        st = tri__aio_threads(aio, err);
    }
    if (st)
        tri_free(aio);
    else
        *out = aio;
    return st;
}

bool tri_aio_close(struct tri_aio *aio)
{
    if (!aio)
        return true;
    struct tri_aio_done done[16];
    int n = 1;
    while (aio->in_flight && n > 0)
        if (tri_aio_wait(aio, done, 16, CLOSE_WAIT_MS, &n, NULL))
            break;
    bool released = aio->ops->close(aio->self, aio->in_flight > 0);
    if (released)
        tri_free(aio);
    return released;
}

const char *tri_aio_name(const struct tri_aio *aio)
{
    return aio->ops->name;
}

int tri_aio_depth(const struct tri_aio *aio)
{
    return aio->depth;
}

int tri_aio_in_flight(const struct tri_aio *aio)
{
    return aio->in_flight;
}

void tri_aio_register(struct tri_aio *aio, void *base, uint64_t bytes, uint64_t unit_bytes)
{
    if (aio->ops->reg)
        aio->ops->reg(aio->self, base, bytes, unit_bytes);
}

enum tri_status tri_aio_submit(struct tri_aio *aio, const struct tri_aio_read *read,
                               struct tri_error *err)
{
    if (aio->in_flight == aio->depth)
        return tri_fail(err, TRI_BUSY, "%d reads are in flight already", aio->depth);
    int i = 0;
    while (aio->slot[i].busy)
        i++;
    aio->slot[i] = (struct tri__aio_slot){ .read = *read, .last_end = UINT64_MAX, .busy = true };
    enum tri_status st = aio->ops->start(aio->self, i, err);
    if (st)
        aio->slot[i].busy = false;
    else
        aio->in_flight++;
    return st;
}

/* A read that is all in blocks may be a direct one and must go on at a block. */
static uint64_t resume_unit(const struct tri_aio_read *r)
{
    return r->offset_bytes % BLOCK_BYTES || r->bytes % BLOCK_BYTES ? 1 : BLOCK_BYTES;
}

/* True when the attempt ended the read; else another attempt was started. */
static bool finish_attempt(struct tri_aio *aio, const struct tri__aio_attempt *a,
                           struct tri_aio_done *done)
{
    struct tri__aio_slot *s = &aio->slot[a->slot];
    bool again = a->result == -EINTR || a->result == -EAGAIN;
    *done = (struct tri_aio_done){ .tag = s->read.tag };
    if (a->result < 0 && !again) {
        done->sys_errno = (int)-a->result;
    } else if (!again) {
        uint64_t have = s->got + (uint64_t)a->result;
        done->bytes = have;
        /* Two attempts that end at the same byte: the file ends there. */
        again = have < s->read.need_bytes && have != s->last_end;
        if (have < s->read.need_bytes && !again) {
            done->sys_errno = EIO;
            done->short_file = true;
        }
        s->got = have / resume_unit(&s->read) * resume_unit(&s->read);
        s->last_end = have;
    }
    if (again && aio->ops->start(aio->self, a->slot, NULL) == TRI_OK)
        return false;
    if (again)
        done->sys_errno = EIO;
    s->busy = false;
    aio->in_flight--;
    return true;
}

enum tri_status tri_aio_wait(struct tri_aio *aio, struct tri_aio_done *done, int most,
                             int timeout_ms, int *n, struct tri_error *err)
{
    struct tri__aio_attempt attempt[32];
    *n = 0;
    while (*n == 0 && aio->in_flight) {
        int got = 0, room = most < 32 ? most : 32;
        enum tri_status st = aio->ops->reap(aio->self, attempt, room, timeout_ms, &got, err);
        if (st)
            return st;
        if (got == 0 && timeout_ms == 0)
            return TRI_OK;
        if (got == 0)
            return tri_fail(err, TRI_TIMEOUT, "no read finished in %.1f s, %d are in flight",
                            timeout_ms / 1e3, aio->in_flight);
        for (int i = 0; i < got; i++)
            if (finish_attempt(aio, &attempt[i], &done[*n]))
                ++*n;
    }
    return TRI_OK;
}
