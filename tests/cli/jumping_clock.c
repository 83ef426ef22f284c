/*
 * For tests of what happens when somebody sets the clock: the time of day is another one in every
 * call, up to two days before or after. Loaded with LD_PRELOAD; time that only passes is left
 * alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/time.h>
#include <time.h>

static long jump_s(void)
{
    static atomic_ulong calls;
    unsigned long n = atomic_fetch_add(&calls, 1) * 2654435761u;
    return (long)(n / 64 % 345600) - 172800;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    int (*real)(clockid_t, struct timespec *) =
        (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(clock, out);
    if (rc == 0 && clock == CLOCK_REALTIME)
        out->tv_sec += jump_s();
    return rc;
}

time_t time(time_t *out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out)
        *out = t.tv_sec;
    return t.tv_sec;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec t;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    out->tv_sec = t.tv_sec;
    out->tv_usec = t.tv_nsec / 1000;
    return 0;
}
