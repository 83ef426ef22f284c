/*
 * spec: defaults of the official class, rules between keys, every limit at its edge and one past,
 * and the tensors that variants of the family do and do not have. (Refusals seen from outside:
 * tests/cli/test_damaged.py.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "spec/spec.h"

/* A small bare kimi_linear config: 4 layers, layer 3 (0-based) MLA, layer 0 dense. */
static const char base_text[] =
    "{'model_type':'kimi_linear','vocab_size':96,'hidden_size':64,'num_hidden_layers':4,"
    "'intermediate_size':96,'num_attention_heads':2,'kv_lora_rank':32,'qk_nope_head_dim':16,"
    "'qk_rope_head_dim':8,'v_head_dim':16,'mla_use_nope':true,'rms_norm_eps':1e-5,"
    "'first_k_dense_replace':1,'num_experts':4,'num_experts_per_token':2,"
    "'moe_intermediate_size':32,'linear_attn_config':{'kda_layers':[1,2,3],'num_heads':2,"
    "'head_dim':16,'short_conv_kernel_size':4,'full_attn_layers':[4]}}";

static json_t *parse_quoted(const char *text)
{
    char json[2048];
    size_t n = strlen(text);
    assert_true(n < sizeof json);
    for (size_t i = 0; i <= n; i++)
        json[i] = text[i] == '\'' ? '"' : text[i];
    json_error_t why;
    json_t *j = json_loads(json, JSON_DECODE_ANY, &why);
    if (!j)
        fail_msg("%s in %s", why.text, json);
    return j;
}

/* The base with changes: pairs of key ("linear.head_dim" goes inward) and value ('' absent). */
static enum tri_status parse(struct tri_spec *spec, struct tri_error *err, int pairs,
                             const char *const (*change)[2])
{
    json_t *base = parse_quoted(base_text);
    for (int i = 0; i < pairs; i++) {
        bool inner = strncmp(change[i][0], "linear.", 7) == 0;
        json_t *at = inner ? json_object_get(base, "linear_attn_config") : base;
        const char *key = change[i][0] + (inner ? 7 : 0);
        if (*change[i][1])
            json_object_set_new(at, key, parse_quoted(change[i][1]));
        else
            json_object_del(at, key);
    }
    char *text = json_dumps(base, 0);
    enum tri_status st = tri_spec_parse(spec, "config.json", text, strlen(text), NULL, err);
    free(text);
    json_decref(base);
    return st;
}

#define ACCEPTED(spec, ...)                                                                        \
    do {                                                                                           \
        const char *const change[][2] = { __VA_ARGS__ };                                           \
        struct tri_error err = { 0 };                                                              \
        if (parse(spec, &err, (int)(sizeof change / sizeof change[0]), change))                    \
            fail_msg("%s", err.text);                                                              \
    } while (0)

#define REFUSED(status, word, ...)                                                                 \
    do {                                                                                           \
        const char *const change[][2] = { __VA_ARGS__ };                                           \
        struct tri_error err = { 0 };                                                              \
        struct tri_spec spec;                                                                      \
        assert_int_equal(parse(&spec, &err, (int)(sizeof change / sizeof change[0]), change),      \
                         status);                                                                  \
        if (!strstr(err.text, word) || strchr(err.text, '\n'))                                     \
            fail_msg("'%s' is not in '%s'", word, err.text);                                       \
    } while (0)

static void defaults_of_the_official_class(void **state)
{
    (void)state;
    static const char least[] = "{\"model_type\":\"kimi_linear\",\"mla_use_nope\":true,"
                                "\"kv_lora_rank\":8,\"qk_nope_head_dim\":8,"
                                "\"qk_rope_head_dim\":8,\"v_head_dim\":8}";
    struct tri_spec s;
    struct tri_error err = { 0 };
    if (tri_spec_parse(&s, "c", least, sizeof least - 1, NULL, &err))
        fail_msg("%s", err.text);
    assert_int_equal(s.vocab, 163840);
    assert_int_equal(s.hidden, 4096);
    assert_int_equal(s.layers, 32);
    assert_int_equal(s.heads, 32);
    assert_int_equal(s.inter, 11008);
    assert_int_equal(s.context_tokens, 4096);
    assert_int_equal(s.mla_layers, 32); /* no linear_attn_config: all MLA */
    assert_int_equal(s.dense_layers, 32);
    assert_int_equal(s.q_rank + s.attn_res_block + s.latent + s.experts + s.shared_experts, 0);
    assert_true(s.rms_eps == 1e-6f && s.routed_scale == 1 && s.renormalize && !s.latent_norm);
    assert_true(!s.situ && s.situ_beta == 1 && s.situ_linear_beta == 0 && !s.mla_gate);
    assert_true(s.bos_id == -1 && s.eos_id == -1 && s.pad_id == -1);
    assert_true(!s.has_vision && !s.tied_embeddings && !s.experts_packed);
}

static void layers_and_lists(void **state)
{
    (void)state;
    struct tri_spec s;
    ACCEPTED(&s, { "linear.full_attn_layers", "" });
    assert_true(s.kda_layers == 3 && s.layer[3].attn == TRI_ATTN_MLA);
    ACCEPTED(&s, { "linear.full_attn_layers", "[]" }, { "linear.kda_layers", "[1,2,3,4]" });
    assert_true(s.kda_layers == 4 && s.mla_layers == 0);
    ACCEPTED(&s, { "linear.full_attn_layers", "[]" }, { "linear.kda_layers", "[2]" });
    assert_true(s.layer[0].attn == TRI_ATTN_MLA && s.layer[1].attn == TRI_ATTN_KDA);
    ACCEPTED(&s, { "linear_attn_config", "null" });
    assert_int_equal(s.mla_layers, 4);
    ACCEPTED(&s, { "moe_layer_freq", "2" }, { "first_k_dense_replace", "2" });
    const uint8_t want[4] = { TRI_FFN_DENSE, TRI_FFN_DENSE, TRI_FFN_MOE, TRI_FFN_DENSE };
    for (int i = 0; i < 4; i++)
        assert_int_equal(s.layer[i].ffn, want[i]);
    ACCEPTED(&s, { "first_k_dense_replace", "9" });
    assert_int_equal(s.moe_layers, 0);
    /* MLA sizes are not asked of a model without MLA, nor KDA sizes of one without KDA */
    ACCEPTED(&s, { "linear.kda_layers", "[1,2,3,4]" }, { "linear.full_attn_layers", "[]" },
             { "kv_lora_rank", "" }, { "mla_use_nope", "false" });
    ACCEPTED(&s, { "linear.kda_layers", "[]" }, { "linear.full_attn_layers", "[]" },
             { "linear.head_dim", "" });
}

static void gates_and_ids(void **state)
{
    (void)state;
    struct tri_spec s;
    ACCEPTED(&s, { "linear.gate_lower_bound", "null" });
    assert_false(s.kda_bounded_gate);
    ACCEPTED(&s, { "linear.gate_lower_bound", "-5.0" }, { "activation_situ_beta", "0" },
             { "hidden_act", "'situ'" });
    assert_true(s.kda_bounded_gate && s.kda_gate_bound == -5 && s.situ && s.situ_beta == 1);
    ACCEPTED(&s, { "eos_token_id", "[7,9]" }, { "bos_token_id", "null" });
    assert_true(s.eos_id == 7 && s.bos_id == -1);
    ACCEPTED(&s, { "latent_moe_use_norm", "true" });
    assert_false(s.latent_norm); /* nothing to normalise without a latent */
    ACCEPTED(&s, { "use_grouped_topk", "false" }, { "num_expert_group", "3" });
    assert_true(s.expert_groups == 1 && s.topk_groups == 1);
    ACCEPTED(&s, { "num_expert_group", "2" }, { "topk_group", "1" });
    assert_true(s.expert_groups == 2);
    REFUSED(TRI_FORMAT, "num_experts_per_token", { "num_expert_group", "2" }, { "topk_group", "1" },
            { "num_experts_per_token", "3" });
}

static void limits_at_the_edge_and_one_past(void **state)
{
    (void)state;
    struct tri_spec s;
    ACCEPTED(&s, { "num_hidden_layers", "1024" });
    REFUSED(TRI_FORMAT, "num_hidden_layers is 1025", { "num_hidden_layers", "1025" });
    ACCEPTED(&s, { "hidden_size", "1048576" });
    REFUSED(TRI_FORMAT, "hidden_size is 1048577", { "hidden_size", "1048577" });
    ACCEPTED(&s, { "vocab_size", "16777216" });
    REFUSED(TRI_FORMAT, "vocab_size is 16777217", { "vocab_size", "16777217" });
    ACCEPTED(&s, { "num_experts", "65536" }, { "num_experts_per_token", "1024" });
    REFUSED(TRI_FORMAT, "num_experts is 65537", { "num_experts", "65537" });
    REFUSED(TRI_FORMAT, "num_experts_per_token is 1025", { "num_experts", "65536" },
            { "num_experts_per_token", "1025" });
    ACCEPTED(&s, { "linear.short_conv_kernel_size", "64" });
    REFUSED(TRI_FORMAT, "short_conv_kernel_size is 65", { "linear.short_conv_kernel_size", "65" });
    ACCEPTED(&s, { "linear.num_heads", "65536" });
    REFUSED(TRI_FORMAT, "num_heads x head_dim would be 1048592, at most 1048576",
            { "linear.num_heads", "65537" });
    ACCEPTED(&s, { "num_shared_experts", "32768" });
    REFUSED(TRI_FORMAT, "num_shared_experts", { "num_shared_experts", "32769" });
    /* 2^24 / 6 tensors over 43 MoE layers are 65027 experts each */
    ACCEPTED(&s, { "num_hidden_layers", "44" }, { "num_experts", "65027" });
    REFUSED(TRI_LIMIT, "at most 65027", { "num_hidden_layers", "44" }, { "num_experts", "65028" });
    REFUSED(TRI_LIMIT, "2^55", { "num_experts", "65536" }, { "hidden_size", "1048576" },
            { "moe_intermediate_size", "1048576" });
}

static void config_bytes_limit(void **state)
{
    (void)state;
    size_t bytes = TRI_SPEC_MAX_CONFIG_BYTES + 1;
    char *text = malloc(bytes);
    memset(text, ' ', bytes);
    for (size_t i = 0; i < sizeof base_text - 1; i++)
        text[i] = base_text[i] == '\'' ? '"' : base_text[i];
    struct tri_spec s;
    assert_int_equal(tri_spec_parse(&s, "c", text, bytes - 1, NULL, NULL), TRI_OK);
    assert_int_equal(tri_spec_parse(&s, "c", text, bytes, NULL, NULL), TRI_LIMIT);
    free(text);
}

struct lookup {
    const char *name;
    struct tri_tensor_spec found;
};

static int look(void *arg, const struct tri_tensor_spec *t)
{
    struct lookup *l = arg;
    if (strcmp(t->name, l->name) != 0)
        return 0;
    l->found = *t;
    return 7;
}

/* Shape as "a b c", or "" when the model has no such tensor. */
static const char *shape(const struct tri_spec *s, const char *name)
{
    static char text[64];
    struct lookup l = { .name = name };
    int got = tri_spec_tensors(s, look, &l);
    assert_true(got == 0 || got == 7); /* the walk stops at the first non-zero return */
    text[0] = 0;
    for (int i = 0; got && i < l.found.rank; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), i ? " %d" : "%d",
                 (int)l.found.shape[i]);
    return text;
}

static void tensors_of_variants(void **state)
{
    (void)state;
    struct tri_spec s;
    ACCEPTED(&s, { "q_lora_rank", "24" }, { "mla_use_output_gate", "true" },
             { "routed_expert_hidden_size", "32" }, { "latent_moe_use_norm", "true" },
             { "attn_res_block_size", "2" }, { "linear.use_full_rank_gate", "true" },
             { "num_shared_experts", "2" });
    assert_string_equal(shape(&s, "model.layers.3.self_attn.q_b_proj.weight"), "48 24");
    assert_string_equal(shape(&s, "model.layers.3.self_attn.g_proj.weight"), "32 64");
    assert_string_equal(shape(&s, "model.layers.3.self_attn.kv_a_proj_with_mqa.weight"), "40 64");
    assert_string_equal(shape(&s, "model.layers.0.self_attn.q_conv1d.weight"), "32 1 4");
    assert_string_equal(shape(&s, "model.layers.0.self_attn.A_log"), "16");
    assert_string_equal(shape(&s, "model.layers.0.mlp_res_proj.weight"), "1 64");
    assert_string_equal(
        shape(&s, "model.layers.1.block_sparse_moe.shared_experts.down_proj.weight"), "64 64");
    assert_string_equal(shape(&s, "model.layers.1.block_sparse_moe.experts.3.w2.weight"), "32 32");
    assert_string_equal(shape(&s, "model.layers.1.block_sparse_moe.experts.4.w2.weight"), "");
    assert_string_equal(shape(&s, "model.output_attn_res_norm.weight"), "64");
    assert_string_equal(shape(&s, "lm_head.weight"), "96 64");
    ACCEPTED(&s, { "linear.num_heads", "40" }, { "tie_word_embeddings", "true" },
             { "quantization_config",
               "{'quant_method':'compressed-tensors','format':'mxfp4-pack-quantized'}" });
    assert_string_equal(shape(&s, "model.layers.0.self_attn.A_log"), "40");
    assert_string_equal(shape(&s, "model.layers.0.self_attn.g_proj.weight"), "");
    assert_string_equal(shape(&s, "model.layers.0.self_attn.g_a_proj.weight"), "16 64");
    assert_string_equal(shape(&s, "model.layers.0.self_attn.g_b_proj.weight"), "640 16");
    assert_string_equal(shape(&s, "model.layers.3.self_attn.q_proj.weight"), "48 64");
    assert_string_equal(shape(&s, "model.layers.3.self_attn.g_proj.weight"), "");
    assert_string_equal(shape(&s, "model.layers.1.block_sparse_moe.experts.3.w1.weight"), "");
    assert_string_equal(shape(&s, "model.layers.1.block_sparse_moe.experts.3.w1.weight_packed"),
                        "32 32");
    assert_string_equal(shape(&s, "model.layers.1.block_sparse_moe.experts.3.w2.weight_scale"),
                        "64 1");
    assert_string_equal(shape(&s, "model.layers.1.block_sparse_moe.routed_expert_norm.weight"), "");
    assert_string_equal(shape(&s, "model.output_attn_res_norm.weight"), "");
    assert_string_equal(shape(&s, "lm_head.weight"), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_of_the_official_class),
        cmocka_unit_test(layers_and_lists),
        cmocka_unit_test(gates_and_ids),
        cmocka_unit_test(limits_at_the_edge_and_one_past),
        cmocka_unit_test(config_bytes_limit),
        cmocka_unit_test(tensors_of_variants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
