/* Rows of a prompt step by what steps took: no clock, the times are made up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/engine_priv.h"

/* A step takes fixed + rows * each. */
static int64_t paced(struct tri__pace *p, int64_t steps, uint64_t fixed, uint64_t each)
{
    for (int64_t i = 0; i < steps; i++) {
        int64_t rows = tri__pace_rows(p, p->level);
        tri__pace_took(p, rows, fixed + (uint64_t)rows * each);
    }
    return tri__pace_rows(p, p->level);
}

static void steps_get_shorter_where_that_is_free(void **state)
{
    (void)state;
    struct tri__pace p = { .target_ns = 1000, .most_rows = 512 };
    assert_int_equal(paced(&p, 20, 0, 1), 512); /* 512: short enough */
    assert_int_equal(paced(&p, 20, 0, 5), 128); /* 640 at 128 */
    assert_int_equal(paced(&p, 20, 0, 90), 64); /* never below the grid */
    assert_int_equal(paced(&p, 20, 0, 1), 512); /* and back */
    /* Rows are dearer in small steps: not below where that costs more than an eighth. */
    p = (struct tri__pace){ .target_ns = 1000, .most_rows = 512 };
    assert_int_equal(paced(&p, 20, 5000, 1), 512);
    p = (struct tri__pace){ .target_ns = 1000, .most_rows = 512 };
    assert_int_equal(paced(&p, 20, 100, 10), 128); /* 64 would be 11.6 a row, 512 is 10.2 */
    /* What ends a prompt says nothing, what began off the grid does; no target, no change. */
    p = (struct tri__pace){ .target_ns = 1000, .most_rows = 512 };
    tri__pace_took(&p, 448, 100000);
    assert_int_equal(p.level, 0);
    tri__pace_took(&p, 449, 100000);
    assert_int_equal(p.level, 1);
    p = (struct tri__pace){ .most_rows = 512 };
    assert_int_equal(paced(&p, 20, 0, 90000), 512);
    /* Small and odd chunks. */
    p = (struct tri__pace){ .target_ns = 1, .most_rows = 100 };
    assert_int_equal(paced(&p, 20, 0, 5), 100);
    p = (struct tri__pace){ .target_ns = 1, .most_rows = 200 };
    assert_int_equal(paced(&p, 20, 0, 5), 64);
    p = (struct tri__pace){ .target_ns = 1, .most_rows = 65536 };
    assert_int_equal(paced(&p, 40, 0, 5), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_get_shorter_where_that_is_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
