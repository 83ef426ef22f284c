/*
 * The read test: all threads read one large block, each its own pieces. What decode must do with
 * its weights at the very least.
 */
#include "limits/limits_priv.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include "base/clock.h"

enum { PIECE_BYTES = 1 << 20 };

struct tri_read_test {
    struct tri_pool *pool;
    struct tri_budget *budget;
    char *data;
    uint64_t bytes;
    uint64_t (*read)(const void *, size_t);
    atomic_uint_fast64_t sink; /* keeps the loads alive */
};

uint64_t tri__read_plain(const void *data, size_t bytes)
{
    const uint64_t *v = data;
    uint64_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
    for (size_t i = 0; i < bytes / 8; i += 8) {
        a ^= v[i];
        b ^= v[i + 1];
        c ^= v[i + 2];
        d ^= v[i + 3];
        e ^= v[i + 4];
        f ^= v[i + 5];
        g ^= v[i + 6];
        h ^= v[i + 7];
    }
    return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h;
}

static void fill_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    struct tri_read_test *t = arg;
    (void)thread; /* written, not only zeroed: an untouched page is one page for all */
    memset(t->data + begin * PIECE_BYTES, 0x5a, (size_t)(end - begin) * PIECE_BYTES);
}

enum tri_status tri_read_test_open(struct tri_read_test **out, uint64_t bytes,
                                   struct tri_pool *pool, struct tri_budget *budget,
                                   struct tri_error *err)
{
    void *data = NULL;
    bytes = bytes / PIECE_BYTES * PIECE_BYTES;
    if (bytes == 0)
        return tri_fail(err, TRI_ARG, "a read test needs 1 MiB at least");
    struct tri_read_test *t = tri_calloc(1, sizeof *t);
    if (!t)
        return tri_fail(err, TRI_NOMEM, "no memory for the read test");
    enum tri_status st = tri_budget_alloc(budget, TRI_MEM_OTHER, bytes, &data, err);
    if (st) {
        tri_free(t);
        return st;
    }
    t->pool = pool;
    t->budget = budget;
    t->data = data;
    t->bytes = bytes;
    t->read = tri__read_wide() ? tri__read_wide() : tri__read_plain;
    uintptr_t page = ((uintptr_t)data + 4095) & ~(uintptr_t)4095;
    /* Large pages if they can be had: a weight reader may have them too. No harm when refused. */
    (void)madvise((void *)page, bytes - (page - (uintptr_t)data), MADV_HUGEPAGE);
    tri_pool_for(pool, (int64_t)(bytes / PIECE_BYTES), 1, fill_pieces, t);
    *out = t;
    return TRI_OK;
}

void tri_read_test_close(struct tri_read_test *test)
{
    if (!test)
        return;
    tri_budget_free(test->budget, TRI_MEM_OTHER, test->data, test->bytes);
    tri_free(test);
}

static void read_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    struct tri_read_test *t = arg;
    (void)thread;
    uint64_t x = t->read(t->data + begin * PIECE_BYTES, (size_t)(end - begin) * PIECE_BYTES);
    atomic_fetch_xor_explicit(&t->sink, x, memory_order_relaxed);
}

double tri_read_test_run(struct tri_read_test *test)
{
    double begin = tri_clock_s();
    tri_pool_for(test->pool, (int64_t)(test->bytes / PIECE_BYTES), 4, read_pieces, test);
    return (double)test->bytes / (tri_clock_s() - begin);
}
