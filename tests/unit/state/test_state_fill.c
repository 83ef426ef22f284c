/* A made-up past: same seed same numbers, all finite and used, refused one token past the room. */
#include "state/state.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { HEADS = 2, DIM = 8, TAPS = 4, RANK = 12, ROPE = 4, ROOM = 10 };
enum { S_FLOATS = HEADS * DIM * DIM, TAIL_FLOATS = 3 * (TAPS - 1) * HEADS * DIM };

struct pair {
    struct tri_spec spec;
    struct tri_slice slice;
    struct tri_budget *budget;
    struct tri_state *a, *b;
};

static int open_pair(void **state)
{
    static struct pair p;
    struct tri_error err = { 0 };
    p = (struct pair){ .spec = { .layers = 2,
                                 .context_tokens = 100,
                                 .heads = 2,
                                 .kv_rank = RANK,
                                 .rope = ROPE,
                                 .kda_heads = HEADS,
                                 .kda_dim = DIM,
                                 .conv_taps = TAPS,
                                 .kda_layers = 1,
                                 .mla_layers = 1,
                                 .vocab = 4,
                                 .inter = 4 } };
    p.spec.layer[0].attn = TRI_ATTN_KDA;
    p.spec.layer[1].attn = TRI_ATTN_MLA;
    tri_slice_whole(&p.slice, &p.spec);
    *state = &p;
    return tri_budget_open(&p.budget, 1 << 20, &err) ||
           tri_state_open(&p.a, &p.spec, &p.slice, (struct tri_state_form){ 0 }, ROOM, p.budget,
                          &err) ||
           tri_state_open(&p.b, &p.spec, &p.slice, (struct tri_state_form){ 0 }, ROOM + 3, p.budget,
                          &err);
}

static int close_pair(void **state)
{
    struct pair *p = *state;
    tri_state_close(p->a);
    tri_state_close(p->b);
    tri_budget_close(p->budget);
    return 0;
}

static void check_values(const float *v, int64_t n, float most)
{
    int different = 0;
    for (int64_t i = 0; i < n; i++) {
        assert_true(isfinite(v[i]) && fabsf(v[i]) <= most && v[i] != 0);
        different += i > 0 && v[i] != v[i - 1];
    }
    assert_true(different == n - 1);
}

static void test_same_seed_same_past(void **state)
{
    struct pair *p = *state;
    assert_int_equal(tri_state_fill(p->a, 7, 5, NULL), TRI_OK);
    assert_int_equal(tri_state_tokens(p->a), 7);
    check_values(tri_state_kda(p->a, 0), S_FLOATS, 0.1f);
    check_values(tri_state_conv(p->a, 0), TAIL_FLOATS, 0.1f);
    check_values(tri_state_mla(p->a, 0), 7 * (RANK + ROPE), 1.7f);
    /* Another room, the same past. */
    assert_int_equal(tri_state_fill(p->b, 7, 5, NULL), TRI_OK);
    assert_memory_equal(tri_state_mla(p->a, 0), tri_state_mla(p->b, 0), 7 * (RANK + ROPE) * 4);
    assert_memory_equal(tri_state_kda(p->a, 0), tri_state_kda(p->b, 0), S_FLOATS * 4);
    assert_int_equal(tri_state_fill(p->b, 7, 6, NULL), TRI_OK);
    assert_memory_not_equal(tri_state_mla(p->a, 0), tri_state_mla(p->b, 0), 4);
}

static void test_limit(void **state)
{
    struct pair *p = *state;
    struct tri_error err = { 0 };
    assert_int_equal(tri_state_fill(p->a, ROOM, 1, NULL), TRI_OK);
    assert_int_equal(tri_state_fill(p->a, ROOM + 1, 1, &err), TRI_LIMIT);
    assert_non_null(strstr(err.text, "11 tokens"));
    assert_int_equal(tri_state_tokens(p->a), ROOM);
    assert_int_equal(tri_state_fill(p->a, -1, 1, NULL), TRI_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_seed_same_past),
        cmocka_unit_test(test_limit),
    };
    return cmocka_run_group_tests(tests, open_pair, close_pair);
}
