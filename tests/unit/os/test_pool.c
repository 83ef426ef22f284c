/* os/pool: every item is done exactly once, whatever the threads, grains and loop sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "os/pool.h"

enum { ITEMS = 1000 };
static unsigned char seen[ITEMS]; /* each written by the one worker that has the item */

static void count(void *arg, int64_t begin, int64_t end, int thread)
{
    assert_true(thread >= 0 && thread < *(int *)arg);
    for (int64_t i = begin; i < end; i++)
        seen[i]++;
}

static void every_item_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        struct tri_pool *pool = NULL;
        assert_int_equal(tri_pool_open(&pool, threads, NULL), TRI_OK);
        for (int round = 0; round < 400; round++) {
            int64_t items = (round * 37) % ITEMS, grain = 1 + round % 17;
            memset(seen, 0, sizeof seen);
            tri_pool_for(pool, items, grain, count, &threads);
            for (int64_t i = 0; i < ITEMS; i++)
                assert_int_equal(seen[i], i < items);
            if (round % 100 == 0) /* let the workers fall asleep, then be woken */
                nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
        }
        tri_pool_close(pool);
    }
}

static void limits(void **state)
{
    (void)state;
    struct tri_pool *pool = NULL;
    assert_int_equal(tri_pool_open(&pool, TRI_POOL_MAX_THREADS + 1, NULL), TRI_ARG);
    assert_int_equal(tri_pool_open(&pool, -1, NULL), TRI_ARG);
    assert_null(pool);
    assert_int_equal(tri_pool_open(&pool, 0, NULL), TRI_OK);
    assert_int_equal(tri_pool_threads(pool), tri_cpu_count());
    tri_pool_close(pool);
    tri_pool_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_item_once),
                                        cmocka_unit_test(limits) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
