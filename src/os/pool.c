/*
 * The thread pool. A loop is published as one atomic word: its number, how many pieces it has, and
 * the next piece nobody took. Workers claim pieces by compare-and-swap on that word, so that a
 * worker that wakes late can neither take a piece of a newer loop by mistake nor be waited for:
 * the caller waits for pieces, not for workers. A busy neighbour costs a piece, not a stall.
 */
#include "os/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>
#include "base/mem.h"

/* How long a worker looks for a new loop before it sleeps: about 20 us, several times the gap
 * between two matrices of a token, far below what an idle server would notice. */
enum { SPINS = 2000 };

struct tri_pool {
    int threads;
    pthread_t *ids;
    pthread_mutex_t lock; /* guards sleeping: `sleepers`, `stop` and the wait on `wake` */
    pthread_cond_t wake;
    int sleepers;
    int stop;

    /* The current loop. Written before `word` is stored (release); read only after a piece of it
     * was claimed (acquire), which keeps the loop alive until that piece is finished. */
    tri_pool_fn fn;
    void *arg;
    int64_t items, grain;
    _Atomic uint64_t word;        /* loop number << 40 | next piece << 20 | pieces */
    atomic_int_fast64_t finished; /* pieces; the caller waits until it equals `pieces` */
};

enum { PIECE_BITS = 20, MAX_PIECES = (1 << PIECE_BITS) - 1 };

static uint64_t loop_of(uint64_t word)
{
    return word >> (2 * PIECE_BITS);
}

struct worker {
    struct tri_pool *pool;
    int index;
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* Takes and does pieces of loop number `loop` until none is left. */
static void take_pieces(struct tri_pool *pool, uint64_t loop, int thread)
{
    uint64_t word = atomic_load_explicit(&pool->word, memory_order_acquire);
    for (;;) {
        int64_t piece = (int64_t)(word >> PIECE_BITS) & MAX_PIECES;
        if (loop_of(word) != loop || piece >= (int64_t)(word & MAX_PIECES))
            return;
        if (!atomic_compare_exchange_weak_explicit(&pool->word, &word,
                                                   word + ((uint64_t)1 << PIECE_BITS),
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        int64_t begin = piece * pool->grain, end = begin + pool->grain;
        pool->fn(pool->arg, begin, end < pool->items ? end : pool->items, thread);
        /* Release: what the piece wrote is seen by the caller that counts it finished. */
        atomic_fetch_add_explicit(&pool->finished, 1, memory_order_release);
        word = atomic_load_explicit(&pool->word, memory_order_acquire);
    }
}

/* Waits for a loop other than `seen`; returns its number, or `seen` when the pool is closing. */
static uint64_t await_loop(struct tri_pool *pool, uint64_t seen)
{
    for (int i = 0; i < SPINS; i++) {
        uint64_t now = loop_of(atomic_load_explicit(&pool->word, memory_order_acquire));
        if (now != seen)
            return now;
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    pool->sleepers++;
    while (loop_of(atomic_load_explicit(&pool->word, memory_order_acquire)) == seen && !pool->stop)
        pthread_cond_wait(&pool->wake, &pool->lock);
    pool->sleepers--;
    pthread_mutex_unlock(&pool->lock);
    return loop_of(atomic_load_explicit(&pool->word, memory_order_acquire));
}

static void *worker_main(void *arg)
{
    struct worker w = *(struct worker *)arg;
    tri_free(arg);
    uint64_t seen = 0;
    for (;;) {
        uint64_t now = await_loop(w.pool, seen);
        if (now == seen)
            return NULL;
        seen = now;
        take_pieces(w.pool, now, w.index);
    }
}

int tri_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

static enum tri_status start_worker(struct tri_pool *pool, int index, struct tri_error *err)
{
    struct worker *w = tri_malloc(sizeof *w);
    if (!w)
        return tri_fail(err, TRI_NOMEM, "no memory for worker thread %d", index);
    *w = (struct worker){ pool, index };
    int rc = pthread_create(&pool->ids[index - 1], NULL, worker_main, w);
    if (rc == 0)
        return TRI_OK;
    tri_free(w);
    return tri_fail_errno(err, TRI_IO, rc, "cannot start worker thread %d of %d", index,
                          pool->threads);
}

enum tri_status tri_pool_open(struct tri_pool **out, int threads, struct tri_error *err)
{
    if (threads == 0)
        threads = tri_cpu_count();
    if (threads < 1 || threads > TRI_POOL_MAX_THREADS)
        return tri_fail(err, TRI_ARG, "%d threads: 1 to %d are possible", threads,
                        TRI_POOL_MAX_THREADS);
    struct tri_pool *pool = tri_calloc(1, sizeof *pool);
    pthread_t *ids = tri_calloc((size_t)threads, sizeof *ids);
    if (!pool || !ids) {
        tri_free(pool);
        tri_free(ids);
        return tri_fail(err, TRI_NOMEM, "no memory for %d threads", threads);
    }
    pool->ids = ids;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    for (pool->threads = 1; pool->threads < threads; pool->threads++) {
        enum tri_status st = start_worker(pool, pool->threads, err);
        if (st) {
            tri_pool_close(pool);
            return st;
        }
    }
    *out = pool;
    return TRI_OK;
}

void tri_pool_close(struct tri_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = 1;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 1; i < pool->threads; i++)
        pthread_join(pool->ids[i - 1], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    tri_free(pool->ids);
    tri_free(pool);
}

int tri_pool_threads(const struct tri_pool *pool)
{
    return pool->threads;
}

enum tri_status tri_pool_bind(struct tri_pool *pool, int thread, const uint64_t *cpus, size_t bytes,
                              struct tri_error *err)
{
    union { /* room for more CPUs than a cpu_set_t has */
        cpu_set_t set;
        unsigned char byte[8192 / 8];
    } to = { .byte = { 0 } };
    TRI_ASSERT(thread >= 1 && thread < pool->threads && bytes <= sizeof to);
    for (size_t i = 0; i < bytes * 8; i++)
        if (cpus[i / 64] >> (i % 64) & 1)
            CPU_SET_S(i, sizeof to, &to.set);
    int rc = pthread_setaffinity_np(pool->ids[thread - 1], sizeof to, &to.set);
    if (rc == 0)
        return TRI_OK;
    return tri_fail_errno(err, TRI_IO, rc, "worker thread %d cannot be bound to CPUs", thread);
}

void tri_pool_for(struct tri_pool *pool, int64_t items, int64_t grain, tri_pool_fn fn, void *arg)
{
    TRI_ASSERT(grain >= 1);
    if (items <= 0)
        return;
    if (pool->threads == 1 || items <= grain) {
        fn(arg, 0, items, 0);
        return;
    }
    while ((items + grain - 1) / grain > MAX_PIECES)
        grain *= 2;
    uint64_t pieces = (uint64_t)((items + grain - 1) / grain);
    uint64_t loop = loop_of(atomic_load_explicit(&pool->word, memory_order_relaxed)) + 1;
    pool->fn = fn;
    pool->arg = arg;
    pool->items = items;
    pool->grain = grain;
    atomic_store_explicit(&pool->finished, 0, memory_order_relaxed);
    loop &= ((uint64_t)1 << (64 - 2 * PIECE_BITS)) - 1;
    /* Release: the loop's fields above are seen by a worker that claims a piece of it. */
    atomic_store_explicit(&pool->word, loop << (2 * PIECE_BITS) | pieces, memory_order_release);
    pthread_mutex_lock(&pool->lock);
    if (pool->sleepers)
        pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    take_pieces(pool, loop, 0);
    /* Whoever holds the last piece may have been descheduled: yield after a while instead of
     * burning the CPU it needs. */
    for (int i = 0; (uint64_t)atomic_load_explicit(&pool->finished, memory_order_acquire) != pieces;
         i++) {
        if (i < SPINS)
            relax();
        else
            sched_yield();
    }
}
