/*
 * state: the MLA cache and the KDA state in each of their formats: bytes, values, and files that do
 * not mix them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/mem.h"
#include "state/state.h"
#include "small_state.h"

enum { RANK = 48, ROPE = 16, ROW = RANK + ROPE, ROOM = 10 };

static void shape(struct tri_spec *spec, struct tri_slice *slice)
{
    *spec = (struct tri_spec){ .layers = 1,
                               .context_tokens = 100,
                               .heads = 1,
                               .kv_rank = RANK,
                               .rope = ROPE,
                               .conv_taps = 2,
                               .mla_layers = 1,
                               .vocab = 4,
                               .inter = 4 };
    spec->layer[0].attn = TRI_ATTN_MLA;
    tri_slice_whole(slice, spec);
}

static struct tri_state_form form_of(enum tri_dtype cache)
{
    return (struct tri_state_form){ .cache = cache, .kda = TRI_DT_F32 };
}

static void formats(void **state)
{
    /* Bytes of a value by the formats' own definitions; 1.0625 and -3 are exact in all but e4m3,
     * which keeps 1.0625 as the even one of its neighbours 1 and 1.125. */
    static const struct {
        enum tri_dtype dtype;
        uint64_t bytes;
        float kept;
    } want[] = { { TRI_DT_F32, 4, 1.0625f }, { TRI_DT_BF16, 2, 1.0625f }, { TRI_DT_E4M3, 1, 1 } };
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct tri_spec spec;
        struct tri_slice slice;
        struct tri_state_bytes cost;
        struct tri_budget *budget = NULL;
        struct tri_state *s = NULL;
        float rows[2 * ROW], back[ROW];
        shape(&spec, &slice);
        for (int c = 0; c < 2 * ROW; c++)
            rows[c] = c < ROW ? 1.0625f : -3;
        tri_state_cost(&spec, &slice, form_of(want[i].dtype), &cost);
        assert_int_equal(cost.mla_bytes_per_token, ROW * want[i].bytes);
        assert_int_equal(tri_budget_open(&budget, 1 << 20, NULL), TRI_OK);
        assert_int_equal(
            tri_state_open(&s, &spec, &slice, form_of(want[i].dtype), ROOM, budget, NULL), TRI_OK);
        tri_state_put_mla(s, 0, 3, rows, 2);
        const char *cache = tri_state_mla(s, 0);
        for (int r = 0; r < 2; r++) {
            tri_row_decode(back, want[i].dtype, cache + (3 + r) * ROW * (int)want[i].bytes, NULL,
                           ROW);
            for (int c = 0; c < ROW; c++)
                assert_true(back[c] == (r ? -3 : want[i].kept));
        }
        tri_state_close(s);
        tri_budget_close(budget);
    }
}

static void files_do_not_mix(void **state)
{
    (void)state;
    struct tri_spec spec;
    struct tri_slice slice;
    struct tri_budget *budget = NULL;
    struct tri_state *a = NULL, *b = NULL;
    char path[] = "/tmp/trireme-cache-XXXXXX";
    int fd = mkstemp(path);
    int32_t ids[2] = { 1, 2 }, *got = NULL;
    int64_t n = 0;
    float rows[2 * ROW] = { 1 };
    assert_true(fd >= 0);
    close(fd);
    shape(&spec, &slice);
    assert_int_equal(tri_budget_open(&budget, 1 << 20, NULL), TRI_OK);
    assert_int_equal(tri_state_open(&a, &spec, &slice, form_of(TRI_DT_BF16), ROOM, budget, NULL),
                     TRI_OK);
    assert_int_equal(tri_state_open(&b, &spec, &slice, form_of(TRI_DT_E4M3), ROOM, budget, NULL),
                     TRI_OK);
    tri_state_put_mla(a, 0, 0, rows, 2);
    tri_state_advance(a, 2);
    assert_int_equal(tri_state_save(a, path, 7, ids, 2, NULL), TRI_OK);
    assert_int_equal(tri_state_load(b, path, 7, &got, &n, NULL), TRI_FORMAT);
    assert_int_equal(tri_state_load(a, path, 7, &got, &n, NULL), TRI_OK);
    assert_int_equal(n, 2);
    tri_free(got);
    unlink(path);
    tri_state_close(a);
    tri_state_close(b);
    tri_budget_close(budget);
}

/* Bytes by hand: S [2 heads][8][8], tails 3 * 3 * 16 floats. */
enum { S_VALUES = 2 * 8 * 8, TAIL_BYTES = 3 * 3 * 16 * 4 };

static void half_kda_state(void **state)
{
    struct small *m = *state;
    const struct tri_state_form form = { .cache = TRI_DT_F32, .kda = TRI_DT_BF16 };
    struct tri_state_bytes cost;
    struct tri_state *a = NULL, *b = NULL;
    float want[S_VALUES];
    uint16_t kept[S_VALUES];
    char *path = m->folder;
    int32_t ids[3] = { 1, 2, 3 }, *got = NULL;
    int64_t n = 0;
    tri_state_cost(&m->spec, &m->slice, form, &cost);
    assert_int_equal(cost.kda_bytes, S_VALUES * 2 + TAIL_BYTES);
    assert_int_equal(tri_state_open(&a, &m->spec, &m->slice, form, 10, m->budget, NULL), TRI_OK);
    assert_int_equal(tri_state_open(&b, &m->spec, &m->slice, form, 10, m->budget, NULL), TRI_OK);

    /* The same made-up past as in float32, rounded; tails as they are. */
    small_fill(a, 3, 5);
    small_fill(m->state, 3, 5);
    memcpy(want, tri_state_kda(m->state, 0), sizeof want);
    tri_row_encode(kept, NULL, TRI_DT_BF16, want, S_VALUES);
    assert_memory_equal(tri_state_kda(a, 0), kept, sizeof kept);
    assert_memory_equal(tri_state_conv(a, 0), tri_state_conv(m->state, 0), TAIL_BYTES);

    assert_int_equal(tri_state_save(a, path, 7, ids, 3, NULL), TRI_OK);
    assert_int_equal(tri_state_load(b, path, 7, &got, &n, NULL), TRI_OK);
    assert_int_equal(n, 3);
    tri_free(got);
    assert_memory_equal(tri_state_kda(b, 0), kept, sizeof kept);
    assert_memory_equal(tri_state_conv(b, 0), tri_state_conv(a, 0), TAIL_BYTES);
    assert_memory_equal(tri_state_mla(b, 1), tri_state_mla(a, 1), 3 * SMALL_ROW * 4);
    tri_state_clear(b);
    assert_int_equal(tri_state_copy(b, a, NULL), TRI_OK);
    assert_memory_equal(tri_state_kda(b, 0), kept, sizeof kept);
    tri_state_close(a);
    tri_state_close(b);
}

static void kda_files_do_not_mix(void **state)
{
    struct small *m = *state;
    const struct tri_state_form form = { .cache = TRI_DT_F32, .kda = TRI_DT_BF16 };
    struct tri_state *half = NULL;
    struct tri_error err = { 0 };
    int32_t ids[3] = { 1, 2, 3 }, *got = NULL;
    int64_t n = 0;
    assert_int_equal(tri_state_open(&half, &m->spec, &m->slice, form, 10, m->budget, NULL), TRI_OK);
    small_fill(half, 3, 5);
    small_fill(m->state, 3, 5);
    assert_int_equal(tri_state_save(half, m->folder, 7, ids, 3, NULL), TRI_OK);
    assert_int_equal(tri_state_load(m->state, m->folder, 7, &got, &n, &err), TRI_FORMAT);
    assert_non_null(strstr(err.text, "--kda-state"));
    assert_int_equal(tri_state_tokens(m->state), 0);
    small_fill(m->state, 3, 5);
    assert_int_equal(tri_state_save(m->state, m->folder, 7, ids, 3, NULL), TRI_OK);
    assert_int_equal(tri_state_load(half, m->folder, 7, &got, &n, NULL), TRI_FORMAT);
    tri_state_close(half);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats), cmocka_unit_test(files_do_not_mix),
        cmocka_unit_test_setup_teardown(half_kda_state, small_up, small_down),
        cmocka_unit_test_setup_teardown(kda_files_do_not_mix, small_up, small_down)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
