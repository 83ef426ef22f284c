/* Threads that live for one call and take pieces from a shared counter. See parallel.h. */
#include "os/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

struct crew {
    void (*piece)(void *arg, size_t i);
    void *arg;
    size_t count;
    atomic_size_t next;
};

int tri_cpu_count(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > 0 ? n : 1;
}

static void *take_pieces(void *arg)
{
    struct crew *crew = arg;
    for (;;) {
        size_t i = atomic_fetch_add_explicit(&crew->next, 1, memory_order_relaxed);
        if (i >= crew->count)
            return NULL;
        crew->piece(crew->arg, i);
    }
}

void tri_parallel(int threads, size_t count, void (*piece)(void *arg, size_t i), void *arg)
{
    pthread_t helper[TRI_PARALLEL_MAX_THREADS];
    struct crew crew = { .piece = piece, .arg = arg, .count = count };
    int want = threads > 0 ? threads : tri_cpu_count(), started = 0;
    if ((size_t)want > count)
        want = (int)count;
    if (want > TRI_PARALLEL_MAX_THREADS)
        want = TRI_PARALLEL_MAX_THREADS;
    while (started < want - 1 && pthread_create(&helper[started], NULL, take_pieces, &crew) == 0)
        started++;
    take_pieces(&crew);
    for (int i = 0; i < started; i++)
        pthread_join(helper[i], NULL);
}
