/* What a drive gives at best: random direct reads of one size, a queue of them in flight. */
#include "limits/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"

enum { BLOCK = 4096, TIMEOUT_MS = 60000 };

struct tri_drive_test {
    struct tri_aio *aio;
    struct tri_budget *budget;
    int fd[TRI_DRIVE_TEST_FILES], files;
    uint64_t blocks[TRI_DRIVE_TEST_FILES]; /* where a read may begin in each */
    uint64_t read_bytes, random;
    void *memory;
    char *buffers; /* in it, at a block's start: direct reads want that */
    uint64_t buffers_bytes;
};

static uint64_t next_random(struct tri_drive_test *t)
{
    t->random = t->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return t->random >> 20;
}

static enum tri_status open_file(struct tri_drive_test *t, const char *path, struct tri_error *err)
{
    struct stat sb;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd < 0 || fstat(fd, &sb)) {
        if (fd >= 0)
            close(fd);
        return tri_fail_errno(err, TRI_IO, errno, "%s: direct reads", path);
    }
    t->fd[t->files] = fd;
    t->blocks[t->files] = 0;
    if ((uint64_t)sb.st_size > t->read_bytes)
        t->blocks[t->files] = ((uint64_t)sb.st_size - t->read_bytes) / BLOCK;
    t->files++;
    if (t->blocks[t->files - 1] == 0)
        return tri_fail(err, TRI_ARG, "%s is too small to measure its drive", path);
    return TRI_OK;
}

enum tri_status tri_drive_test_open(struct tri_drive_test **out,
                                    const struct tri_drive_test_options *o,
                                    struct tri_budget *budget, struct tri_error *err)
{
    TRI_ASSERT(o->files >= 1 && o->files <= TRI_DRIVE_TEST_FILES && o->depth >= 1);
    struct tri_drive_test *t = tri_calloc(1, sizeof *t);
    if (!t)
        return tri_fail(err, TRI_NOMEM, "no memory to measure drives");
    t->budget = budget;
    t->read_bytes = (o->read_bytes + BLOCK - 1) / BLOCK * BLOCK;
    t->buffers_bytes = t->read_bytes * (uint64_t)o->depth;
    void *p = NULL;
    enum tri_status st = tri_budget_alloc(budget, TRI_MEM_OTHER, t->buffers_bytes + BLOCK, &p, err);
    t->memory = p;
    t->buffers = (char *)p + (BLOCK - (uintptr_t)p % BLOCK) % BLOCK;
    for (int i = 0; i < o->files && !st; i++)
        st = open_file(t, o->file[i], err);
    if (!st)
        st = tri_aio_open(&t->aio, o->engine, o->depth, err);
    if (st) {
        tri_drive_test_close(t);
        return st;
    }
    tri_aio_register(t->aio, t->buffers, t->buffers_bytes, t->read_bytes);
    memset(t->buffers, 1, t->buffers_bytes); /* the system's clearing of pages is not the drive's */
    *out = t;
    return TRI_OK;
}

void tri_drive_test_close(struct tri_drive_test *t)
{
    if (!t)
        return;
    bool whole = tri_aio_close(t->aio);
    for (int i = 0; i < t->files; i++)
        close(t->fd[i]);
    uint64_t bytes = t->memory ? t->buffers_bytes + BLOCK : 0;
    if (whole)
        tri_budget_free(t->budget, TRI_MEM_OTHER, t->memory, bytes);
    else /* a drive may still write there */
        tri_budget_uncount(t->budget, TRI_MEM_OTHER, bytes);
    tri_free(t);
}

static enum tri_status start(struct tri_drive_test *t, uint64_t buffer, struct tri_error *err)
{
    int file = (int)(next_random(t) % (uint64_t)t->files);
    struct tri_aio_read read = { .fd = t->fd[file],
                                 .dst = t->buffers + buffer * t->read_bytes,
                                 .offset_bytes = next_random(t) % t->blocks[file] * BLOCK,
                                 .bytes = t->read_bytes,
                                 .need_bytes = t->read_bytes,
                                 .tag = buffer };
    return tri_aio_submit(t->aio, &read, err);
}

enum tri_status tri_drive_test_run(struct tri_drive_test *t, int64_t reads, double *bytes_per_s,
                                   struct tri_error *err)
{
    enum tri_status st = TRI_OK;
    int64_t begun = 0, ended = 0;
    double begin = tri_clock_s();
    for (; begun < reads && begun < tri_aio_depth(t->aio) && !st; begun++)
        st = start(t, (uint64_t)begun, err);
    while (ended < reads && !st) {
        struct tri_aio_done done[32];
        int n = 0;
        st = tri_aio_wait(t->aio, done, 32, TIMEOUT_MS, &n, err);
        for (int i = 0; i < n && !st; i++, ended++) {
            if (done[i].sys_errno)
                st = tri_fail_errno(err, TRI_IO, done[i].sys_errno, "measuring a drive");
            else if (begun < reads)
                st = start(t, done[i].tag, err);
            begun += begun < reads;
        }
    }
    *bytes_per_s = (double)reads * (double)t->read_bytes / (tri_clock_s() - begin);
    return st;
}
