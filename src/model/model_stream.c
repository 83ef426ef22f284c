/*
 * Streaming of units that have no memory of their own. A thread brings the next one while the step
 * computes with the current one; the order is the order of a step, round and round.
 */
#include "model/model_trunk.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>
#include "experts/experts.h"

/* Threads that read one unit together: enough to keep a drive busy. A closing stream gives the
 * drive a second from one piece to the next, as a closing queue of experts does. */
enum { READERS = 4, CLOSE_WAIT_MS = 1000 };

struct tri__stream {
    struct tri__trunk *t;
    struct tri_pool *pool;
    pthread_t thread;
    pthread_mutex_t lock; /* guards all below, and the windows' unit and ready */
    pthread_cond_t changed;
    bool stop, reading;
    int32_t holding; /* unit the step computes with: its window is not to be touched; -1: none */
    int32_t wanted;  /* unit to bring next; -1: none */
    enum tri_status failed;
    struct tri_error err;
};

static struct tri__window *window_of(struct tri__trunk *t, int32_t unit)
{
    for (int i = 0; i < t->windows; i++)
        if (t->window[i].unit == unit)
            return &t->window[i];
    return NULL;
}

/* A window that the step does not compute with. */
static struct tri__window *idle_window(struct tri__trunk *t, int32_t holding)
{
    for (int i = 0; i < t->windows; i++)
        if (holding < 0 || t->window[i].unit != holding)
            return &t->window[i];
    return NULL;
}

static int32_t next_streamed(const struct tri__trunk *t, int32_t unit)
{
    int64_t n = t->n_units - 1; /* the embedding table is never streamed */
    int32_t u = unit;
    do
        u = (int32_t)((u + 1) % n);
    while (t->unit[u].block && u != unit);
    return u;
}

/*
 * Waits for `changed`. False: it did not come, nor any piece of a unit, in `silence_ms`, so that a
 * unit may take its time, but not the drive.
 */
static bool await(struct tri__stream *s, int silence_ms)
{
    for (;;) {
        uint64_t before = atomic_load(&s->t->pieces_done);
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += silence_ms / 1000;
        until.tv_nsec += (long)(silence_ms % 1000) * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        if (pthread_cond_timedwait(&s->changed, &s->lock, &until) != ETIMEDOUT)
            return true;
        if (atomic_load(&s->t->pieces_done) == before)
            return false;
    }
}

static void *bring_units(void *arg)
{
    struct tri__stream *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        struct tri__window *w = s->wanted >= 0 ? idle_window(s->t, s->holding) : NULL;
        if (!w || s->failed) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        int32_t unit = s->wanted;
        s->wanted = -1;
        w->unit = unit;
        w->ready = false;
        s->reading = true;
        pthread_mutex_unlock(&s->lock);
        struct tri_error err = { 0 };
        enum tri_status st = tri__trunk_load_unit(s->t, unit, w->memory, s->pool, &err);
        pthread_mutex_lock(&s->lock);
        w->ready = st == TRI_OK;
        s->reading = false;
        if (st) {
            w->unit = -1;
            s->failed = st;
            s->err = err;
        }
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

bool tri__trunk_has(const struct tri_model *m, int64_t index)
{
    return !m->trunk->stream || m->trunk->unit[index].block;
}

static enum tri_status tell_silence(const struct tri__trunk *t, int32_t unit, struct tri_error *err)
{
    const struct tri__job *j = &t->jobs[t->unit[unit].first_job];
    const struct tri_tensor *tensor = tri_checkpoint_find(t->m->ckpt, j->name);
    const char *file = t->packed ? t->pack.folder : tri_checkpoint_file(t->m->ckpt, tensor->shard);
    return tri_fail(err, TRI_TIMEOUT,
                    "%s: no read of the trunk finished in %.1f s, unit %d of %d is waited for; is "
                    "the drive well? --io-timeout gives it longer",
                    file, t->timeout_ms / 1e3, (int)unit + 1, (int)t->n_units);
}

enum tri_status tri__trunk_need(struct tri_model *m, int64_t index, struct tri_error *err)
{
    struct tri__trunk *t = m->trunk;
    struct tri__stream *s = t->stream;
    int32_t unit = (int32_t)index;
    if (!s || t->unit[unit].block)
        return TRI_OK;
    enum tri_status st = TRI_OK;
    pthread_mutex_lock(&s->lock);
    s->holding = -1;
    struct tri__window *w = window_of(t, unit);
    while (!(w && w->ready) && !s->failed && !st) {
        if (!w)
            s->wanted = unit;
        pthread_cond_broadcast(&s->changed);
        if (!await(s, t->timeout_ms))
            st = tell_silence(t, unit, err);
        w = window_of(t, unit);
    }
    if (s->failed) {
        st = tri_fail(err, s->failed, "%s", s->err.text);
        s->failed = TRI_OK; /* the next step tries again */
        s->err = (struct tri_error){ 0 };
    } else if (!st) {
        int32_t next = next_streamed(t, unit);
        s->holding = unit;
        if (t->windows > 1 && !window_of(t, next))
            s->wanted = next;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

enum tri_status tri__stream_open(struct tri__trunk *t, struct tri_error *err)
{
    struct tri__stream *s = tri_calloc(1, sizeof *s);
    if (!s)
        return tri_fail(err, TRI_NOMEM, "no memory to stream the trunk");
    *s = (struct tri__stream){ .t = t, .holding = -1, .wanted = -1 };
    enum tri_status st = tri_pool_open(&s->pool, READERS, err);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, &clock);
    pthread_condattr_destroy(&clock);
    int rc = st ? 0 : pthread_create(&s->thread, NULL, bring_units, s);
    if (rc)
        st = tri_fail_errno(err, TRI_IO, rc, "cannot start the thread that streams the trunk");
    if (st) {
        tri_pool_close(s->pool);
        pthread_mutex_destroy(&s->lock);
        pthread_cond_destroy(&s->changed);
        tri_free(s);
        return st;
    }
    t->stream = s;
    return TRI_OK;
}

bool tri__stream_close(struct tri__trunk *t)
{
    struct tri__stream *s = t->stream;
    if (!s)
        return true;
    bool idle = true;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->changed);
    while (s->reading && idle)
        idle = await(s, CLOSE_WAIT_MS);
    pthread_mutex_unlock(&s->lock);
    if (!idle) { /* it comes back to all of this, or never */
        pthread_detach(s->thread);
        return false;
    }
    pthread_join(s->thread, NULL);
    tri_pool_close(s->pool);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    tri_free(s);
    t->stream = NULL;
    return true;
}
