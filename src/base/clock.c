/* The monotonic clock. See clock.h. */
#include "base/clock.h"

#include <time.h>

uint64_t tri_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double tri_clock_s(void)
{
    return (double)tri_clock_ns() * 1e-9;
}
