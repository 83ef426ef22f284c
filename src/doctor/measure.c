/*
 * Memory and drive rates, as the engine will use them: all processors reading at once, and direct
 * reads at queue depth through os/aio. Small and short on purpose; never run without being asked.
 */
#include "doctor/measure.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/mem.h"
#include "doctor/doctor_priv.h"
#include "os/aio.h"
#include "os/env.h"

enum {
    MEMORY_BYTES = 256 << 20, /* of one thread: larger than its share of any cache */
    MEMORY_PASSES = 3,
    SLICE_BYTES = 8 << 20, /* timed alone: a slice in which the thread was stopped is an outlier */
    MAX_SLICES = MEMORY_PASSES * (MEMORY_BYTES / SLICE_BYTES),
    FILE_BYTES = 256 << 20,
    STREAM_BYTES = 1 << 20,
    RANDOM_BYTES = 4096,
    RANDOM_READS = 4096,
    STREAM_DEPTH = 8,
    RANDOM_DEPTH = 16,
    MAX_THREADS = 1024
};

struct reader {
    pthread_t thread;
    pthread_barrier_t *start;
    int cpu;
    size_t bytes;
    double rate[MAX_SLICES]; /* GB/s */
    size_t rates;
    uint64_t sum; /* kept, so that the reads are not removed */
    bool failed;
};

/* Eight running sums: enough loads in flight for one core's share of the bandwidth. */
static uint64_t sum_words(const uint64_t *p, size_t words)
{
    uint64_t s[8] = { 0 };
    for (size_t i = 0; i + 8 <= words; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] += p[i + (size_t)k];
    return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

static void *read_memory(void *arg)
{
    struct reader *r = arg;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)r->cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set); /* a hint; a refusal only blurs */
    uint64_t *buffer = tri_malloc(r->bytes);
    r->failed = !buffer;
    if (buffer)
        memset(buffer, 1, r->bytes); /* touched here: first touch places it on this node */
    for (int pass = 0; pass < MEMORY_PASSES; pass++) {
        pthread_barrier_wait(r->start);
        for (size_t at = 0; buffer && at + SLICE_BYTES <= r->bytes; at += SLICE_BYTES) {
            double begin = tri_clock_s();
            r->sum += sum_words(buffer + at / sizeof *buffer, SLICE_BYTES / sizeof *buffer);
            r->rate[r->rates++] = SLICE_BYTES / (tri_clock_s() - begin) / 1e9;
        }
    }
    tri_free(buffer);
    return NULL;
}

static int by_rate(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The threads' median slices together: all read at the same time, pass by pass. */
static double total_rate(struct reader *r, unsigned n)
{
    double sum = 0;
    for (unsigned i = 0; i < n; i++) {
        qsort(r[i].rate, r[i].rates, sizeof r[i].rate[0], by_rate);
        sum += r[i].rates ? r[i].rate[r[i].rates / 2] : 0;
    }
    return sum;
}

enum tri_status tri__doctor_measure_memory(uint64_t available_bytes, double *gbs, unsigned *threads,
                                           struct tri_error *err)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set))
        return tri_fail_errno(err, TRI_IO, errno, "processors of this process");
    unsigned n = (unsigned)CPU_COUNT(&set), made = 0;
    n = n < MAX_THREADS ? n : MAX_THREADS;
    size_t bytes = MEMORY_BYTES;
    while (bytes > SLICE_BYTES && (uint64_t)bytes * n > available_bytes / 2)
        bytes /= 2;
    struct reader *r = tri_calloc(n, sizeof *r);
    pthread_barrier_t start;
    if (!r || pthread_barrier_init(&start, NULL, n)) {
        tri_free(r);
        return tri_fail(err, TRI_NOMEM, "no memory for %u threads", n);
    }
    for (int cpu = 0; cpu < CPU_SETSIZE && made < n; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &set))
            continue;
        r[made] = (struct reader){ .start = &start, .cpu = cpu, .bytes = bytes };
        /* a thread that cannot start would leave the others at the barrier: start none after it */
        TRI_ASSERT(!pthread_create(&r[made].thread, NULL, read_memory, &r[made]));
        made++;
    }
    bool failed = false;
    for (unsigned i = 0; i < made; i++) {
        pthread_join(r[i].thread, NULL);
        failed |= r[i].failed;
    }
    if (!failed) {
        *gbs = total_rate(r, made);
        *threads = made;
    }
    pthread_barrier_destroy(&start);
    tri_free(r);
    return failed ? tri_fail(err, TRI_NOMEM, "no memory to read") : TRI_OK;
}

/* Reads `count` blocks at queue depth; `random` spreads them. Seconds used, 0 on failure. */
static double read_blocks(int fd, char *buffer, size_t block, size_t count, bool random,
                          struct tri_error *err)
{
    struct tri_aio *aio = NULL;
    int depth = random ? RANDOM_DEPTH : STREAM_DEPTH;
    if (tri_aio_open(&aio, TRI_AIO_AUTO, depth, err))
        return 0;
    size_t sent = 0, done = 0, blocks = FILE_BYTES / block;
    uint64_t state = 88172645463325252ull;
    double begin = tri_clock_s();
    struct tri_aio_done list[RANDOM_DEPTH];
    int slot[RANDOM_DEPTH], free_slots = depth;
    for (int i = 0; i < depth; i++)
        slot[i] = i;
    while (done < count) {
        while (sent < count && free_slots) {
            state ^= state << 13; /* xorshift64: any spread will do */
            state ^= state >> 7;
            state ^= state << 17;
            int at = slot[--free_slots];
            struct tri_aio_read r = { .fd = fd,
                                      .dst = buffer + (size_t)at * STREAM_BYTES,
                                      .offset_bytes =
                                          (random ? state % blocks : sent % blocks) * block,
                                      .bytes = block,
                                      .need_bytes = block,
                                      .tag = (uint64_t)at };
            if (tri_aio_submit(aio, &r, err))
                goto out;
            sent++;
        }
        int n = 0;
        if (tri_aio_wait(aio, list, depth, 5000, &n, err))
            goto out;
        for (int i = 0; i < n; i++) {
            if (list[i].sys_errno) {
                tri_fail_errno(err, TRI_IO, list[i].sys_errno, "test file");
                goto out;
            }
            slot[free_slots++] = (int)list[i].tag;
        }
        done += (size_t)n;
    }
out:
    if (!tri_aio_close(aio))
        return -1; /* a drive may still write to the buffer */
    return done == count ? tri_clock_s() - begin : 0;
}

static enum tri_status write_file(int fd, const char *block, struct tri_error *err)
{
    /* A short write has no reason; the next one, of what is left, has. */
    for (size_t at = 0; at < FILE_BYTES;) {
        ssize_t n = pwrite(fd, block, STREAM_BYTES - at % STREAM_BYTES, (off_t)at);
        if (n <= 0)
            return tri_fail_errno(err, TRI_IO, n ? errno : ENOSPC, "test file of 256 MiB");
        at += (size_t)n;
    }
    if (fsync(fd))
        return tri_fail_errno(err, TRI_IO, errno, "test file");
    return TRI_OK;
}

enum tri_status tri__doctor_measure_drive(const char *dir, double *gbs, double *iops_4k,
                                          struct tri_error *err)
{
    char path[4096];
    const char *tmp = dir ? dir : tri_env("TMPDIR");
    snprintf(path, sizeof path, "%s/trireme-doctor-XXXXXX", tmp && *tmp ? tmp : ".");
    int fd = mkstemp(path);
    if (fd < 0)
        return tri_fail_errno(err, TRI_IO, errno, "%s", path);
    enum tri_status status = TRI_OK;
    int direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (direct < 0)
        status = tri_fail_errno(err, TRI_UNSUPPORTED, errno, "direct reads in %s", tmp ? tmp : ".");
    unlink(path); /* before it grows: who is killed from here on leaves nothing */
    char *raw = tri_malloc((STREAM_DEPTH > RANDOM_DEPTH ? STREAM_DEPTH : RANDOM_DEPTH) *
                               (size_t)STREAM_BYTES +
                           RANDOM_BYTES);
    char *buffer = raw ? raw + (RANDOM_BYTES - (uintptr_t)raw % RANDOM_BYTES) % RANDOM_BYTES : NULL;
    if (status == TRI_OK && !raw)
        status = tri_fail(err, TRI_NOMEM, "no memory for the drive test");
    if (status == TRI_OK) {
        memset(buffer, 0x5a, STREAM_BYTES);
        status = write_file(fd, buffer, err);
    }
    if (status == TRI_OK) {
        double stream =
            read_blocks(direct, buffer, STREAM_BYTES, FILE_BYTES / STREAM_BYTES, false, err);
        double random = read_blocks(direct, buffer, RANDOM_BYTES, RANDOM_READS, true, err);
        *gbs = stream > 0 ? FILE_BYTES / stream / 1e9 : 0;
        *iops_4k = random > 0 ? RANDOM_READS / random : 0;
        status = stream > 0 && random > 0 ? TRI_OK : err && err->status ? err->status : TRI_IO;
        raw = stream < 0 || random < 0 ? NULL : raw;
    }
    if (direct >= 0)
        close(direct);
    close(fd);
    tri_free(raw);
    return status;
}

int tri__doctor_uring_allowed(void)
{
    struct tri_aio *aio = NULL;
    bool allowed = tri_aio_open(&aio, TRI_AIO_URING, 1, NULL) == TRI_OK;
    (void)tri_aio_close(aio);
    return allowed;
}
