/* Families: published parameter counts, spec's own tensor list, and refusals of bad configs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "arch/arch.h"
#include "shared.h"
#include "spec/spec.h"

static struct tri_arch *open_arch(const char *name)
{
    struct tri_arch *arch = NULL;
    struct tri_error err = { 0 };
    if (tri_arch_open(&arch, name, false, NULL, &err))
        fail_msg("%s: %s", name, err.text);
    return arch;
}

/* Totals that the publishers print for these checkpoints (safetensors metadata). */
static void test_published_counts(void **state)
{
    static const struct {
        const char *name;
        uint64_t params;
    } known[] = {
        { "llama-3.1-8b", 8030261248 },      { "llama-3.1-70b", 70553706496 },
        { "llama-3.1-405b", 405853388800 },  { "mistral-7b", 7241732096 },
        { "mixtral-8x7b", 46702792704 },     { "mixtral-8x22b", 140630071296 },
        { "qwen2.5-7b", 7615616512 },        { "qwen2.5-14b", 14770033664 },
        { "qwen2.5-32b", 32763876352 },      { "qwen2.5-72b", 72706203648 },
        { "qwen3-4b", 4022468096 },          { "qwen3-8b", 8190735360 },
        { "qwen3-14b", 14768307200 },        { "qwen3-32b", 32762123264 },
        { "qwen3-30b-a3b", 30532122624 },    { "qwen3-235b-a22b", 235093634560 },
        { "deepseek-v2-lite", 15706484224 }, { "deepseek-v2", 235741434880 },
        { "deepseek-v3", 684489845504 },     { "kimi-k2", 1026408232448 },
        { "kimi-linear-48b", 49122681728 },  { "kimi-k3", 2779931837184 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct tri_arch *arch = open_arch(known[i].name);
        double off = (double)arch->params / (double)known[i].params - 1;
        if (off > 1e-7 || off < -1e-7)
            fail_msg("%s: %llu parameters, published %llu", known[i].name,
                     (unsigned long long)arch->params, (unsigned long long)known[i].params);
        tri_arch_close(arch);
    }
}

/* K3 spec 2 and 9.2: bytes of the release, active parameters, layer kinds. */
static void test_k3(void **state)
{
    (void)state;
    struct tri_arch *arch = open_arch("kimi-k3");
    assert_int_equal(arch->bytes, 1560860324864);
    assert_int_equal(arch->params, 2779931837184);
    assert_int_equal(arch->active_params, 104189614848);
    assert_int_equal(arch->class_count, 2);
    assert_int_equal(arch->bank_vectors, 8);
    for (int i = 0; i < arch->class_count; i++)
        assert_int_equal(arch->classes[i].layers,
                         arch->classes[i].family == TRI_FAMILY_KDA ? 69 : 24);
    assert_int_equal(arch->classes[arch->class_of[92]].family, TRI_FAMILY_MLA);
    uint64_t unloaded = 0;
    for (int i = 0; i < arch->item_count; i++)
        if (arch->items[i].unloaded)
            unloaded += arch->items[i].params;
    assert_int_equal(unloaded, 69 * 32); /* the zero tail of A_log, spec 2.2 */
    tri_arch_close(arch);
}

static void check_against_spec(const char *config)
{
    struct tri_spec *spec = calloc(1, sizeof *spec);
    struct tri_spec_totals totals;
    struct tri_error err = { 0 };
    assert_non_null(spec);
    if (tri_spec_load(spec, config, NULL, &err))
        fail_msg("%s", err.text);
    tri_spec_sum(spec, &totals);
    struct tri_arch *arch = open_arch(config);
    assert_int_equal(arch->params, totals.parameters);
    assert_int_equal(arch->bytes, totals.bytes);
    assert_int_equal(arch->active_params, totals.active_parameters);
    tri_arch_close(arch);
    free(spec);
}

/* The ledger items and the engine's tensor list are two derivations of one checkpoint. */
static void test_ledger_sums_to_the_checkpoint(void **state)
{
    char path[4096];
    static const char *const configs[] = { "k3/config.json", "k3/mini_config.json",
                                           "k3/tiny/config.json", "golden/a/config.json",
                                           "golden/b/config.json" };
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", TRI_TEST_SHARED, configs[i]);
        if (access(path, R_OK)) {
            printf("SKIP: %s is absent\n", path);
            skip();
        }
        check_against_spec(path);
    }
}

static void expect_refusal(const char *json, const char *word, bool lenient)
{
    struct tri_arch *arch = NULL;
    struct tri_error err = { 0 };
    enum tri_status status =
        tri_arch_parse(&arch, "x.json", json, strlen(json), lenient, NULL, &err);
    assert_int_not_equal(status, TRI_OK);
    assert_null(arch);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not name %s", err.text, word);
}

#define SMALL                                                                                      \
    "\"num_hidden_layers\":2,\"hidden_size\":64,\"num_attention_heads\":4,"                        \
    "\"vocab_size\":100,\"max_position_embeddings\":512"

static void test_refusals(void **state)
{
    (void)state;
    expect_refusal("{\"model_type\":\"gpt2\"}", "gpt2", false);
    expect_refusal("{}", "model_type", false);
    expect_refusal("[1]", "not a JSON object", false);
    expect_refusal("{\"model_type\":\"llama\"", "JSON", false);
    expect_refusal("{\"model_type\":\"llama\"," SMALL "}", "intermediate_size", false);
    expect_refusal("{\"model_type\":\"llama\",\"intermediate_size\":0," SMALL "}",
                   "intermediate_size", false);
    expect_refusal("{\"model_type\":\"llama\",\"intermediate_size\":128,\"attn_gizmo\":1," SMALL
                   "}",
                   "attn_gizmo", false);
    expect_refusal("{\"model_type\":\"llama\",\"intermediate_size\":128,"
                   "\"quantization_config\":{\"quant_method\":\"magic\"}," SMALL "}",
                   "magic", false);
    expect_refusal("{\"model_type\":\"qwen3\",\"intermediate_size\":128,"
                   "\"layer_types\":[\"full_attention\",\"mamba\"]," SMALL "}",
                   "layer_types[1]", false);
    expect_refusal("{\"model_type\":\"mixtral\",\"intermediate_size\":128," SMALL "}",
                   "num_local_experts", false);
}

static void test_limits(void **state)
{
    char json[512];
    (void)state;
    for (int over = 0; over <= 1; over++) {
        struct tri_arch *arch = NULL;
        struct tri_error err = { 0 };
        snprintf(json, sizeof json,
                 "{\"model_type\":\"llama\",\"num_hidden_layers\":%d,\"hidden_size\":64,"
                 "\"num_attention_heads\":4,\"vocab_size\":100,\"intermediate_size\":128,"
                 "\"max_position_embeddings\":512}",
                 TRI_ARCH_MAX_LAYERS + over);
        enum tri_status status =
            tri_arch_parse(&arch, "x.json", json, strlen(json), false, NULL, &err);
        assert_int_equal(status, over ? TRI_FORMAT : TRI_OK);
        tri_arch_close(arch);
    }
}

static void test_lenient_goes_on(void **state)
{
    const char *json = "{\"model_type\":\"llama\",\"intermediate_size\":128,\"gizmo\":1," SMALL "}";
    struct tri_arch *arch = NULL;
    (void)state;
    assert_int_equal(tri_arch_parse(&arch, "x.json", json, strlen(json), true, NULL, NULL), TRI_OK);
    tri_arch_close(arch);
}

static void test_quantised_configs(void **state)
{
    static const struct {
        const char *quant;
        double bits; /* of a linear value */
    } cases[] = {
        { "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128}", 4 + 20.0 / 128 },
        { "{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":128}", 8 + 24.0 / 128 },
        { "{\"quant_method\":\"fp8\"}", 8 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char json[512];
        snprintf(json, sizeof json,
                 "{\"model_type\":\"llama\",\"intermediate_size\":128,"
                 "\"quantization_config\":%s," SMALL "}",
                 cases[i].quant);
        struct tri_arch *arch = NULL;
        struct tri_error err = { 0 };
        if (tri_arch_parse(&arch, "x.json", json, strlen(json), false, NULL, &err))
            fail_msg("%s", err.text);
        uint64_t linear = 2ull * (4 * 64 * 64 + 3 * 64 * 128);
        uint64_t rest = 2 * 100 * 64 + 2 * 2 * 64 + 64; /* ends and norms, bf16 */
        double expect = (double)linear * cases[i].bits / 8 + 2.0 * (double)rest;
        assert_true((double)arch->bytes > expect - 40 && (double)arch->bytes < expect + 40);
        tri_arch_close(arch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_counts),
        cmocka_unit_test(test_k3),
        cmocka_unit_test(test_ledger_sums_to_the_checkpoint),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_lenient_goes_on),
        cmocka_unit_test(test_quantised_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
