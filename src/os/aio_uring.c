/*
 * The io_uring engine: one ring. Where the caller says that buffers lie, each is pinned at the
 * first read to it and stays so. Pinning takes the pages, and a cache of many gigabytes all at once
 * would be seconds of the opening.
 */
#include "os/aio_priv.h"

#include <errno.h>
#include <liburing.h>
#include <sys/uio.h>
#include "base/mem.h"

/* The kernel takes at most 1 GiB per registered buffer and 2^14 of them. */
enum { MOST_BUFFERS = 1 << 14 };
static const uint64_t BUFFER_BYTES = (uint64_t)1 << 30;

enum pinning { UNTRIED, PINNED, REFUSED };

struct uring {
    struct tri_aio *aio;
    struct io_uring ring;
    char *base;                        /* registered region; NULL when there is none */
    uint64_t region_bytes, step_bytes; /* step: bytes per registered buffer */
    uint8_t *pinned;                   /* [buffer] enum pinning */
};

/* Index of the registered buffer that holds [p, p + bytes), or -1. */
static int buffer_of(struct uring *u, const char *p, uint64_t bytes)
{
    if (!u->base || p < u->base || (uint64_t)(p - u->base) + bytes > u->region_bytes)
        return -1;
    uint64_t at = (uint64_t)(p - u->base), i = at / u->step_bytes, begin = i * u->step_bytes;
    if (at + bytes > begin + u->step_bytes)
        return -1;
    if (u->pinned[i] == UNTRIED) {
        uint64_t left = u->region_bytes - begin;
        struct iovec buffer = { u->base + begin, left < u->step_bytes ? left : u->step_bytes };
        /* Refused where the memlock limit is small: its reads then pin their pages one by one. */
        int n = io_uring_register_buffers_update_tag(&u->ring, (unsigned)i, &buffer, NULL, 1);
        u->pinned[i] = n == 1 ? PINNED : REFUSED;
    }
    return u->pinned[i] == PINNED ? (int)i : -1;
}

static enum tri_status uring_start(void *self, int slot, struct tri_error *err)
{
    struct uring *u = self;
    const struct tri__aio_slot *s = &u->aio->slot[slot];
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    if (!sqe)
        return tri_fail(err, TRI_BUSY, "io_uring: the submission ring is full");
    char *dst = (char *)s->read.dst + s->got;
    uint64_t bytes = s->read.bytes - s->got, offset = s->read.offset_bytes + s->got;
    /* One request carries at most 2 GiB less a page; the retry in aio.c does the rest. */
    unsigned len = bytes > 0x7ffff000u ? 0x7ffff000u : (unsigned)bytes;
    int buffer = buffer_of(u, dst, len);
    if (buffer >= 0)
        io_uring_prep_read_fixed(sqe, s->read.fd, dst, len, offset, buffer);
    else
        io_uring_prep_read(sqe, s->read.fd, dst, len, offset);
    io_uring_sqe_set_data64(sqe, (uint64_t)slot);
    int rc = io_uring_submit(&u->ring);
    return rc < 0 ? tri_fail_errno(err, TRI_IO, -rc, "io_uring_submit") : TRI_OK;
}

static enum tri_status uring_reap(void *self, struct tri__aio_attempt *out, int most,
                                  int timeout_ms, int *n, struct tri_error *err)
{
    struct uring *u = self;
    struct io_uring_cqe *cqe = NULL;
    struct __kernel_timespec wait = { timeout_ms / 1000, (long long)(timeout_ms % 1000) * 1000000 };
    *n = 0;
    int rc = io_uring_peek_cqe(&u->ring, &cqe);
    if (rc == -EAGAIN && timeout_ms != 0) {
        do
            rc = timeout_ms < 0 ? io_uring_wait_cqe(&u->ring, &cqe)
                                : io_uring_wait_cqe_timeout(&u->ring, &cqe, &wait);
        while (rc == -EINTR);
    }
    if (rc == -EAGAIN || rc == -ETIME)
        return TRI_OK;
    if (rc < 0)
        return tri_fail_errno(err, TRI_IO, -rc, "io_uring_wait");
    do {
        out[(*n)++] =
            (struct tri__aio_attempt){ (int)io_uring_cqe_get_data64(cqe), (int64_t)cqe->res };
        io_uring_cqe_seen(&u->ring, cqe);
    } while (*n < most && io_uring_peek_cqe(&u->ring, &cqe) == 0);
    return TRI_OK;
}

static void uring_register(void *self, void *base, uint64_t bytes, uint64_t unit_bytes)
{
    struct uring *u = self;
    if (u->base || unit_bytes == 0 || bytes == 0)
        return;
    uint64_t units = (bytes + unit_bytes - 1) / unit_bytes;
    uint64_t step = (units + MOST_BUFFERS - 1) / MOST_BUFFERS * unit_bytes;
    uint64_t n = (bytes + step - 1) / step;
    if (step > BUFFER_BYTES)
        return;
    uint8_t *pinned = tri_calloc((size_t)n, sizeof *pinned);
    /* Linux before 5.19 has no empty tables. */
    if (!pinned || io_uring_register_buffers_sparse(&u->ring, (unsigned)n)) {
        tri_free(pinned);
        return;
    }
    u->pinned = pinned;
    u->base = base;
    u->region_bytes = bytes;
    u->step_bytes = step;
}

static bool uring_close(void *self, bool owing)
{
    struct uring *u = self;
    io_uring_queue_exit(&u->ring);
    tri_free(u->pinned);
    tri_free(u);
    return !owing; /* the kernel has given up its requests, not what a drive is doing */
}

enum tri_status tri__aio_uring(struct tri_aio *aio, struct tri_error *err)
{
    static const struct tri__aio_ops ops = { "io_uring", uring_start, uring_reap, uring_register,
                                             uring_close };
    struct uring *u = tri_calloc(1, sizeof *u);
    if (!u)
        return tri_fail(err, TRI_NOMEM, "no memory for io_uring");
    u->aio = aio;
    int rc = io_uring_queue_init((unsigned)aio->depth, &u->ring, 0);
    if (rc < 0) {
        tri_free(u);
        return tri_fail_errno(err, TRI_UNSUPPORTED, -rc,
                              "io_uring is not available here (containers often forbid it); use "
                              "--io threads");
    }
    aio->ops = &ops;
    aio->self = u;
    return TRI_OK;
}
