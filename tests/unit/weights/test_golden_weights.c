/*
 * weights over checkpoints that others wrote: the vendor's tiny model (F32, one file, no prefix)
 * and the golden models (BF16, sharded, prefixed). Expected values: K3 spec, appendix A, and bytes
 * read with Python's struct at the offsets of the headers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "shared.h"
#include "weights/weights.h"

struct opened {
    struct tri_spec spec;
    struct tri_checkpoint *ckpt;
    char notes[2048];
};

static void keep_note(void *arg, const char *text)
{
    char *all = arg;
    size_t used = strlen(all);
    snprintf(all + used, 2048 - used, "%s\n", text);
}

static void open_model(struct opened *o, const char *name)
{
    char path[4096];
    struct tri_error err = { 0 };
    o->notes[0] = 0;
    const struct tri_notes notes = { keep_note, o->notes };
    snprintf(path, sizeof path, "%s/%s", TRI_TEST_SHARED, name);
    if (tri_spec_load(&o->spec, path, &notes, &err))
        fail_msg("%s", err.text);
    if (tri_checkpoint_open(&o->ckpt, path, &o->spec, 2, &notes, &err))
        fail_msg("%s", err.text);
}

static void vendors_tiny_model(void **state)
{
    (void)state;
    struct opened o;
    struct tri_error err = { 0 };
    open_model(&o, "k3/tiny");
    assert_false(o.spec.experts_packed); /* the config does not say so, the file does */
    assert_non_null(strstr(o.notes, "F32 on disk"));
    assert_null(strstr(o.notes, "not part"));
    float v[3];
    assert_int_equal(tri_load_vector(o.ckpt, "model.embed_tokens.weight", 0, 3, v, &err), TRI_OK);
    const float want[3] = { -0.0749135986f, 0.0552085564f, 0.1033820957f };
    assert_memory_equal(v, want, sizeof want);
    struct tri_expert_extent x;
    assert_int_equal(tri_checkpoint_expert(o.ckpt, 2, 0, &x, &err), TRI_OK);
    assert_int_equal(x.dtype, TRI_DT_MXFP4);
    uint8_t bytes[8];
    const uint8_t packed[8] = { 209, 159, 241, 50, 247, 189, 237, 185 };
    const uint8_t scales[8] = { 124, 126, 126, 128, 127, 130, 127, 129 };
    for (int i = 0; i < 2; i++) {
        const struct tri_extent *p = &x.part[i];
        assert_int_equal(tri_checkpoint_read_at(o.ckpt, p->shard, p->offset_bytes, bytes, 8, &err),
                         TRI_OK);
        assert_memory_equal(bytes, i ? scales : packed, 8);
    }
    assert_int_not_equal(tri_checkpoint_expert(o.ckpt, 2, 8, &x, &err), TRI_OK);
    assert_non_null(strstr(err.text, "experts.8.w1"));
    tri_checkpoint_close(o.ckpt);
}

static void golden_a_matrices(void **state)
{
    (void)state;
    struct opened o;
    struct tri_error err = { 0 };
    struct tri_budget *budget = NULL;
    struct tri_matrix m, part;
    open_model(&o, "golden/a");
    assert_non_null(strstr(o.notes, "o_norm.weight is BF16 on disk, F32 as published"));
    assert_ptr_equal(strchr(o.notes, '\n'), o.notes + strlen(o.notes) - 1);
    assert_int_equal(tri_budget_open(&budget, 1 << 20, &err), TRI_OK);
    const struct tri_rect whole = { 0, 320, 0, 128 }, corner = { 319, 1, 100, 4 };
    assert_int_equal(tri_load_matrix(o.ckpt, "lm_head.weight", whole, TRI_DT_F32, budget,
                                     TRI_MEM_TRUNK, &m, &err),
                     TRI_OK);
    assert_int_equal(tri_load_matrix(o.ckpt, "lm_head.weight", corner, TRI_DT_BF16, budget,
                                     TRI_MEM_TRUNK, &part, &err),
                     TRI_OK);
    const float *f = (const float *)m.data + 319 * 128 + 100;
    const uint16_t *b = part.data;
    for (int i = 0; i < 4; i++)
        assert_true(tri_bf16_decode(b[i]) == f[i]);
    assert_true(f[0] == 0.306640625f && f[3] == 0.435546875f);
    tri_matrix_free(budget, TRI_MEM_TRUNK, &m);
    tri_matrix_free(budget, TRI_MEM_TRUNK, &part);
    tri_budget_close(budget);
    tri_checkpoint_close(o.ckpt);
}

static void every_expert_is_one_record(void **state)
{
    (void)state;
    static const char *const name[] = { "golden/a", "golden/b", "golden/c" };
    for (int g = 0; g < 3; g++) {
        struct opened o;
        struct tri_error err = { 0 };
        struct tri_spec_totals totals;
        open_model(&o, name[g]);
        tri_spec_sum(&o.spec, &totals);
        /* they keep o_norm in BF16: two bytes less for each of its values */
        uint64_t o_norm = (uint64_t)(o.spec.kda_layers * o.spec.kda_dim);
        assert_int_equal(totals.bytes - 2 * o_norm, tri_checkpoint_bytes(o.ckpt));
        int scattered = 0;
        for (int64_t l = 0; l < o.spec.layers; l++)
            for (int64_t e = 0; e < o.spec.experts && o.spec.layer[l].ffn == TRI_FFN_MOE; e++) {
                struct tri_expert_extent x;
                assert_int_equal(tri_checkpoint_expert(o.ckpt, l, e, &x, &err), TRI_OK);
                assert_int_equal(x.record_bytes, totals.expert_bytes);
                scattered += !x.contiguous;
            }
        /* files are cut by tensor count: at most one expert is cut at each file's end */
        assert_in_range(scattered, 0, 4);
        tri_checkpoint_close(o.ckpt);
    }
}

/* Golden a's second file begins between the packed half and the scales of layer 3, expert 0. */
static void an_expert_cut_between_two_files(void **state)
{
    (void)state;
    struct opened o;
    struct tri_expert_extent x;
    open_model(&o, "golden/a");
    assert_int_equal(tri_checkpoint_expert(o.ckpt, 3, 0, &x, NULL), TRI_OK);
    assert_false(x.contiguous);
    assert_int_equal(x.part[0].shard, 0);
    for (int i = 1; i < 6; i++)
        assert_int_equal(x.part[i].shard, 1);
    assert_int_equal(x.part[1].offset_bytes, 8 + 42320);
    assert_int_equal(tri_checkpoint_expert(o.ckpt, 3, 1, &x, NULL), TRI_OK);
    assert_true(x.contiguous);
    tri_checkpoint_close(o.ckpt);
}

int main(void)
{
    shared_or_skip("k3/tiny/model.safetensors");
    shared_or_skip("golden/c/config.json");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vendors_tiny_model),
        cmocka_unit_test(golden_a_matrices),
        cmocka_unit_test(every_expert_is_one_record),
        cmocka_unit_test(an_expert_cut_between_two_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
