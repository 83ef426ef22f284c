/*
 * The engine for kernels and containers without io_uring: a few threads that pread. A started slot
 * goes into a ring of work; a finished one into a ring of results.
 */
#include "os/aio_priv.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include "base/mem.h"

enum { MOST_THREADS = 64 };

struct threads {
    struct tri_aio *aio;
    pthread_t id[MOST_THREADS];
    int n;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t work_came, result_came;
    int work[TRI_AIO_MAX_DEPTH], work_head, work_n;
    struct tri__aio_attempt result[TRI_AIO_MAX_DEPTH];
    int result_n;
    bool stop;
};

int64_t tri__aio_pread(int fd, void *dst, uint64_t bytes, uint64_t offset_bytes)
{
    ssize_t got = pread(fd, dst, (size_t)bytes, (off_t)offset_bytes);
    return got < 0 ? -(int64_t)errno : (int64_t)got;
}

static void *serve(void *arg)
{
    struct threads *t = arg;
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        if (t->work_n == 0) {
            pthread_cond_wait(&t->work_came, &t->lock);
            continue;
        }
        int slot = t->work[t->work_head];
        t->work_head = (t->work_head + 1) % TRI_AIO_MAX_DEPTH;
        t->work_n--;
        pthread_mutex_unlock(&t->lock);
        const struct tri__aio_slot *s = &t->aio->slot[slot];
        struct tri__aio_attempt a = { slot, tri__aio_pread(s->read.fd, (char *)s->read.dst + s->got,
                                                           s->read.bytes - s->got,
                                                           s->read.offset_bytes + s->got) };
        pthread_mutex_lock(&t->lock);
        t->result[t->result_n++] = a;
        pthread_cond_signal(&t->result_came);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static enum tri_status threads_start(void *self, int slot, struct tri_error *err)
{
    struct threads *t = self;
    (void)err;
    pthread_mutex_lock(&t->lock);
    t->work[(t->work_head + t->work_n++) % TRI_AIO_MAX_DEPTH] = slot;
    pthread_cond_signal(&t->work_came);
    pthread_mutex_unlock(&t->lock);
    return TRI_OK;
}

static enum tri_status threads_reap(void *self, struct tri__aio_attempt *out, int most,
                                    int timeout_ms, int *n, struct tri_error *err)
{
    struct threads *t = self;
    struct timespec until;
    (void)err;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    *n = 0;
    pthread_mutex_lock(&t->lock);
    int rc = 0;
    while (t->result_n == 0 && timeout_ms != 0 && rc != ETIMEDOUT)
        rc = timeout_ms < 0 ? pthread_cond_wait(&t->result_came, &t->lock)
                            : pthread_cond_timedwait(&t->result_came, &t->lock, &until);
    while (*n < most && t->result_n)
        out[(*n)++] = t->result[--t->result_n];
    pthread_mutex_unlock(&t->lock);
    return TRI_OK;
}

static bool threads_close(void *self, bool owing)
{
    struct threads *t = self;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->work_came);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->n; i++)
        (void)(owing ? pthread_detach(t->id[i]) : pthread_join(t->id[i], NULL));
    if (owing) /* a thread that waits in pread comes back to all of this, or never */
        return false;
    pthread_cond_destroy(&t->work_came);
    pthread_cond_destroy(&t->result_came);
    pthread_mutex_destroy(&t->lock);
    tri_free(t);
    return true;
}

enum tri_status tri__aio_threads(struct tri_aio *aio, struct tri_error *err)
{
    static const struct tri__aio_ops ops = { "threads", threads_start, threads_reap, NULL,
                                             threads_close };
    struct threads *t = tri_calloc(1, sizeof *t);
    if (!t)
        return tri_fail(err, TRI_NOMEM, "no memory for reading threads");
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    t->aio = aio;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work_came, NULL);
    pthread_cond_init(&t->result_came, &clock);
    pthread_condattr_destroy(&clock);
    int want = aio->depth < MOST_THREADS ? aio->depth : MOST_THREADS, rc = 0;
    for (; t->n < want; t->n++) {
        rc = pthread_create(&t->id[t->n], NULL, serve, t);
        if (rc)
            break;
    }
    if (t->n == 0) {
        (void)threads_close(t, false);
        return tri_fail_errno(err, TRI_IO, rc, "cannot start a reading thread");
    }
    aio->ops = &ops;
    aio->self = t;
    return TRI_OK;
}
