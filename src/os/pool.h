/*
 * A pool of threads for data-parallel loops: a token has hundreds of joins, so workers spin for a
 * moment before they sleep. One caller at a time per pool; the caller works too.
 */
#ifndef TRI_OS_POOL_H
#define TRI_OS_POOL_H

#include <stddef.h>
#include "base/status.h"

struct tri_pool;

/* The work of one loop: items [begin, end), on worker `thread` (0 = the caller). */
typedef void (*tri_pool_fn)(void *arg, int64_t begin, int64_t end, int thread);

/* `threads` >= 1, at most TRI_POOL_MAX_THREADS; 0 = the CPUs this process may run on. */
enum { TRI_POOL_MAX_THREADS = 1024 };
TRI_MUST_CHECK enum tri_status tri_pool_open(struct tri_pool **out, int threads,
                                             struct tri_error *err);
void tri_pool_close(struct tri_pool *pool);
int tri_pool_threads(const struct tri_pool *pool);

/* Lets worker `thread` (from 1) run on these CPUs alone: bit n % 64 of word n / 64, `bytes` of them
 * in all. TRI_IO when the system refuses; the worker then runs where it could before. */
TRI_MUST_CHECK enum tri_status tri_pool_bind(struct tri_pool *pool, int thread,
                                             const uint64_t *cpus, size_t bytes,
                                             struct tri_error *err);

/*
 * Runs fn over [0, items) in pieces of `grain` (>= 1) items, handed out as workers come free, and
 * returns when all are done. Which thread gets which piece is not fixed: results may not depend
 * on it. Small loops (one piece) run on the caller alone.
 */
void tri_pool_for(struct tri_pool *pool, int64_t items, int64_t grain, tri_pool_fn fn, void *arg);

/* CPUs this process may run on (affinity mask), at least 1. */
int tri_cpu_count(void);

#endif
