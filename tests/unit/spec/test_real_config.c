/*
 * spec over the published K3 config: the byte and parameter table of K3 spec 2.4 must come out to
 * the last byte, and the layer kinds as section 0 says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "shared.h"
#include "spec/spec.h"

static void load(struct tri_spec *spec, const char *file)
{
    char path[4096];
    struct tri_error err = { 0 };
    snprintf(path, sizeof path, "%s/%s", TRI_TEST_SHARED, file);
    if (tri_spec_load(spec, path, NULL, &err))
        fail_msg("%s", err.text);
}

static void table_of_parts(void **state)
{
    (void)state;
    static const struct tri_part_total want[TRI_PARTS] = {
        { 2722740830208, 1446456066048 },
        { 30618088704, 61258257408 },
        { 12155092992, 24310185984 },
        { 5572706304, 11145412608 },
        { 4727310336, 9454620672 },
        { 1174405120, 2348810240 },
        { 1174405120, 2348810240 },
        { 726663168, 1453326336 },
        { 590955008, 1182074880 },
        { 401214464, 802428928 },
        { 46144512, 92289024 },
        { 3999744, 7999488 },
        { 21504, 43008 },
    };
    struct tri_spec spec;
    struct tri_spec_totals t;
    load(&spec, "k3/config.json");
    tri_spec_sum(&spec, &t);
    for (int i = 0; i < TRI_PARTS; i++) {
        assert_true(t.part[i].parameters == want[i].parameters);
        assert_true(t.part[i].bytes == want[i].bytes);
    }
    assert_true(t.tensors == 497220);
    assert_true(t.bytes == 1560860324864);
    assert_true(t.parameters == 2779931837184);
    assert_true(t.active_parameters == 104189614848);
    assert_true(t.expert_bytes == 17547264);
}

static void shape_of_k3(void **state)
{
    (void)state;
    struct tri_spec s;
    load(&s, "k3/config.json");
    assert_int_equal(s.layers, 93);
    assert_int_equal(s.kda_layers, 69);
    assert_int_equal(s.mla_layers, 24);
    assert_int_equal(s.dense_layers, 1);
    for (int i = 0; i < 93; i++) {
        assert_int_equal(s.layer[i].attn, i % 4 == 3 || i == 92 ? TRI_ATTN_MLA : TRI_ATTN_KDA);
        assert_int_equal(s.layer[i].ffn, i ? TRI_FFN_MOE : TRI_FFN_DENSE);
    }
    assert_true(s.situ && s.situ_beta == 4 && s.situ_linear_beta == 25);
    assert_true(s.rms_eps == 1e-5f && s.latent_eps == 1e-6f && s.kda_gate_bound == -5);
    assert_true(s.mla_gate && s.kda_full_gate && s.kda_bounded_gate && s.latent_norm);
    assert_true(s.experts_packed && s.has_vision && !s.tied_embeddings && s.renormalize);
    assert_int_equal(s.eos_id, 163586);
    assert_int_equal(s.pad_id, 163839);
    assert_int_equal(s.attn_res_block, 12);
    assert_int_equal(s.context_tokens, 1048576);
}

struct count {
    uint64_t tensors, bytes, parameters;
};

static int count_each(void *arg, const struct tri_tensor_spec *t)
{
    struct count *c = arg;
    c->tensors++;
    c->bytes += t->bytes;
    c->parameters += t->parameters;
    return 0;
}

/* The sums take a short cut over experts; the list itself must agree with them. */
static void list_and_sums_agree(void **state)
{
    (void)state;
    static const char *const file[] = { "k3/config.json", "k3/mini_config.json",
                                        "k3/tiny/config.json", "golden/c/config.json" };
    for (int i = 0; i < 4; i++) {
        struct tri_spec spec;
        struct tri_spec_totals t;
        struct count c = { 0 };
        load(&spec, file[i]);
        tri_spec_sum(&spec, &t);
        assert_int_equal(tri_spec_tensors(&spec, count_each, &c), 0);
        assert_true(c.tensors == t.tensors && c.bytes == t.bytes && c.parameters == t.parameters);
    }
}

int main(void)
{
    shared_or_skip("k3/config.json");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_of_parts),
        cmocka_unit_test(shape_of_k3),
        cmocka_unit_test(list_and_sums_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
