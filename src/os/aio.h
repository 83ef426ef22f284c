/*
 * Reading from drives at queue depth: many reads in flight, finished in any order. Engines behind
 * one door: io_uring, threads that pread, and a simulated drive for tests.
 *
 * A read is retried inside until its bytes are there: a short read goes on where it stopped, EINTR
 * and EAGAIN are not seen. The end of the file before `need_bytes` is an error (EIO with
 * `short_file` set), never zeros.
 *
 * Threads: one owner per queue. Buffers belong to the caller and must live until the read is done.
 */
#ifndef TRI_OS_AIO_H
#define TRI_OS_AIO_H

#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"

struct tri_aio;

enum tri_aio_engine { TRI_AIO_AUTO, TRI_AIO_URING, TRI_AIO_THREADS };
enum { TRI_AIO_MAX_DEPTH = 256 };

struct tri_aio_read {
    int fd;
    void *dst;
    uint64_t offset_bytes;
    uint64_t bytes;      /* asked; with O_DIRECT a multiple of the block size */
    uint64_t need_bytes; /* enough: the rest may lie beyond the end of the file */
    uint64_t tag;        /* the caller's name for it */
};

struct tri_aio_done {
    uint64_t tag;
    int sys_errno; /* 0: need_bytes are in place */
    bool short_file;
    uint64_t bytes; /* read in all */
};

/*
 * Opens a queue for up to `depth` reads in flight. AUTO takes io_uring if the kernel and the
 * container allow it, else threads; asking for URING where it is not allowed is TRI_UNSUPPORTED.
 */
TRI_MUST_CHECK enum tri_status tri_aio_open(struct tri_aio **out, enum tri_aio_engine engine,
                                            int depth, struct tri_error *err);
/*
 * Waits for what is in flight, at most a second from one arrival to the next, then closes. False: a
 * drive still owes a read and may write to its buffer at any time, so that no buffer may be freed;
 * threads that wait for it are left behind.
 */
bool tri_aio_close(struct tri_aio *aio);

const char *tri_aio_name(const struct tri_aio *aio); /* "io_uring", "threads", "simulated" */
int tri_aio_depth(const struct tri_aio *aio);
int tri_aio_in_flight(const struct tri_aio *aio);

/* Tells the engine where buffers will lie, in units of which a read stays inside one; a hint that
 * io_uring uses to pin a unit's pages once, at its first read. Failing to is not an error. */
void tri_aio_register(struct tri_aio *aio, void *base, uint64_t bytes, uint64_t unit_bytes);

/* Starts a read. TRI_BUSY when `depth` are in flight. */
TRI_MUST_CHECK enum tri_status tri_aio_submit(struct tri_aio *aio, const struct tri_aio_read *read,
                                              struct tri_error *err);

/*
 * Collects up to `most` finished reads; waits for at least one if `timeout_ms` is not 0 and any is
 * in flight. TRI_TIMEOUT when none came in that time: its buffers are still the drive's.
 */
TRI_MUST_CHECK enum tri_status tri_aio_wait(struct tri_aio *aio, struct tri_aio_done *done,
                                            int most, int timeout_ms, int *n,
                                            struct tri_error *err);

/*
 * A drive that misbehaves on purpose, for tests. Reads really happen; read number n (from 0, in
 * order of submission) fails or is delayed as asked.
 */
struct tri_aio_sim {
    uint64_t fail_at; /* this read gets `fail_errno`; UINT64_MAX: none */
    int fail_errno;
    uint64_t stall_at;   /* this read never finishes; UINT64_MAX: none */
    uint64_t shuffle;    /* seed: completions come in a random order; 0: in order */
    uint64_t most_bytes; /* each attempt returns at most this much (short reads); 0: no limit */
};
TRI_MUST_CHECK enum tri_status tri_aio_open_sim(struct tri_aio **out, int depth,
                                                const struct tri_aio_sim *plan,
                                                struct tri_error *err);

#endif
