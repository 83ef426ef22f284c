/* What an engine is: one attempt at a read at a time; aio.c does the retrying and counting. */
#ifndef TRI_OS_AIO_PRIV_H
#define TRI_OS_AIO_PRIV_H

#include "os/aio.h"

/* One slot of the queue. An attempt reads [offset + got, ...) of what is asked. */
struct tri__aio_slot {
    struct tri_aio_read read;
    uint64_t got;      /* bytes in place that the next attempt goes on from */
    uint64_t last_end; /* where the last attempt ended; UINT64_MAX before the first */
    bool busy;
};

struct tri__aio_attempt {
    int slot;
    int64_t result; /* bytes, or -errno */
};

struct tri__aio_ops {
    const char *name;
    /* Starts the next attempt of a slot. */
    enum tri_status (*start)(void *self, int slot, struct tri_error *err);
    /* Takes finished attempts; waits up to timeout_ms (-1: for ever) for the first. */
    enum tri_status (*reap)(void *self, struct tri__aio_attempt *out, int most, int timeout_ms,
                            int *n, struct tri_error *err);
    void (*reg)(void *self, void *base, uint64_t bytes, uint64_t unit_bytes); /* may be NULL */
    /* `owing`: some attempts never came. Whether buffers are free now; if not, all that the engine
     * and its queue consist of stays for whoever waits for the drive. */
    bool (*close)(void *self, bool owing);
};

struct tri_aio {
    const struct tri__aio_ops *ops;
    void *self;
    int depth, in_flight;
    struct tri__aio_slot slot[TRI_AIO_MAX_DEPTH];
};

/* pread as an attempt: bytes, or -errno. */
int64_t tri__aio_pread(int fd, void *dst, uint64_t bytes, uint64_t offset_bytes);

/* A queue without an engine yet. */
enum tri_status tri__aio_new(struct tri_aio **out, int depth, struct tri_error *err);

enum tri_status tri__aio_uring(struct tri_aio *aio, struct tri_error *err);
enum tri_status tri__aio_threads(struct tri_aio *aio, struct tri_error *err);

#endif
