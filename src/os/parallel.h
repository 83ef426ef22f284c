/*
 * Independent pieces of cold work spread over threads that live for one call: reading headers,
 * converting weights at start. (The token path has its own pool.) Floor 1.
 */
#ifndef TRI_OS_PARALLEL_H
#define TRI_OS_PARALLEL_H

#include <stddef.h>

enum { TRI_PARALLEL_MAX_THREADS = 256 };

/* CPUs this process may run on (affinity mask), at least 1. */
int tri_cpu_count(void);

/*
 * Calls piece(arg, i) once for every i below count, on up to `threads` threads (0: one per CPU),
 * the caller's among them, and returns when all are done. A thread that cannot be started is
 * simply not there. What happened to a piece belongs in the caller's own record for it.
 */
void tri_parallel(int threads, size_t count, void (*piece)(void *arg, size_t i), void *arg);

#endif
