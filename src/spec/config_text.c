/*
 * text_config into a tri_spec. The keys, their defaults and the rules between them are K3 spec 1.2;
 * limits are those of spec.h. Nothing here trusts a number before it is compared with a limit, so
 * that no later product of sizes can overflow.
 */
#include "spec/spec_priv.h"

#include <stdio.h>
#include <string.h>

#define FIELD(name) offsetof(struct tri_spec, name)
#define COUNT(keys) (sizeof(keys) / sizeof(keys)[0])

enum { W = TRI_SPEC_MAX_WIDTH, E = TRI_SPEC_MAX_EXPERTS };

/* Every size key of text_config with the default of the official class (1.2). */
static const struct tri__spec_int_key text_keys[] = {
    { "vocab_size", FIELD(vocab), 1, TRI_SPEC_MAX_VOCAB, 163840 },
    { "hidden_size", FIELD(hidden), 1, W, 4096 },
    { "num_hidden_layers", FIELD(layers), 1, TRI_SPEC_MAX_LAYERS, 32 },
    { "intermediate_size", FIELD(inter), 1, W, 11008 },
    { "num_attention_heads", FIELD(heads), 1, W, 32 },
    { "max_position_embeddings", FIELD(context_tokens), 1, INT64_C(1) << 40, 4096 },
    { "q_lora_rank", FIELD(q_rank), 1, W, 0 },
    { "kv_lora_rank", FIELD(kv_rank), 1, W, 0 },
    { "qk_nope_head_dim", FIELD(nope), 1, W, 0 },
    { "qk_rope_head_dim", FIELD(rope), 1, W, 0 },
    { "v_head_dim", FIELD(v_dim), 1, W, 0 },
    { "attn_res_block_size", FIELD(attn_res_block), 0, TRI_SPEC_MAX_LAYERS, 0 },
    { "num_experts", FIELD(experts), 0, E, 0 },
    { "num_experts_per_token", FIELD(topk), 1, TRI_SPEC_MAX_TOPK, 0 },
    { "num_shared_experts", FIELD(shared_experts), 0, E, 0 },
    { "moe_intermediate_size", FIELD(moe_inter), 1, W, 0 },
    { "routed_expert_hidden_size", FIELD(latent), 1, W, 0 },
    { "num_expert_group", FIELD(expert_groups), 1, E, 1 },
    { "topk_group", FIELD(topk_groups), 1, E, 1 },
};

static const struct tri__spec_int_key kda_keys[] = {
    { "num_heads", FIELD(kda_heads), 1, W, TRI__SPEC_REQUIRED },
    { "head_dim", FIELD(kda_dim), 1, W, TRI__SPEC_REQUIRED },
    { "short_conv_kernel_size", FIELD(conv_taps), 1, TRI_SPEC_MAX_CONV, TRI__SPEC_REQUIRED },
};

/* The keys whose absence would surprise: a config without them is rarely meant. */
static void note_defaults(const struct tri__spec_reader *r)
{
    static const char *const loud[] = { "vocab_size", "hidden_size", "num_hidden_layers",
                                        "num_attention_heads", "rms_norm_eps" };
    for (size_t i = 0; i < COUNT(loud); i++)
        if (!tri__spec_get(r, loud[i]))
            tri_note(r->notes, "%s: no %s%s; the default of the official class is used", r->file,
                     r->section, loud[i]);
}

/* a * b within `limit`; both are already between 1 and 2^24. */
static void check_product(struct tri__spec_reader *r, const char *key, int64_t a, int64_t b,
                          const char *what)
{
    long long product = a * b;
    if (product > TRI_SPEC_MAX_WIDTH)
        tri__spec_refuse(r, TRI_FORMAT, key, "%s would be %lld, at most %d", what, product,
                         TRI_SPEC_MAX_WIDTH);
}

static void read_activation(struct tri__spec_reader *r, struct tri_spec *s)
{
    const char *act = tri__spec_text(r, "hidden_act", "silu");
    s->situ = strcmp(act, "situ") == 0;
    if (!s->situ && strcmp(act, "silu") != 0)
        tri__spec_refuse(r, TRI_UNSUPPORTED, "hidden_act", "supported: \"situ\", \"silu\"");
    double beta = tri__spec_number(r, "activation_situ_beta", 0, 1e6, 1);
    s->situ_beta = beta > 0 ? (float)beta : 1.0f;
    s->situ_linear_beta = (float)tri__spec_number(r, "activation_situ_linear_beta", 0, 1e6, 0);
}

/* Features of the architecture that exist in configs but not in this program. */
static void refuse_unsupported(struct tri__spec_reader *r, const struct tri_spec *s)
{
    const json_t *kv = tri__spec_get(r, "num_key_value_heads");
    if (kv && (!json_is_integer(kv) || json_integer_value(kv) != s->heads))
        tri__spec_refuse(r, TRI_FORMAT, "num_key_value_heads",
                         "it must equal num_attention_heads (%lld)", (long long)s->heads);
    if (strcmp(tri__spec_text(r, "moe_router_activation_func", "sigmoid"), "sigmoid") != 0)
        tri__spec_refuse(r, TRI_UNSUPPORTED, "moe_router_activation_func",
                         "supported: \"sigmoid\"");
    if (strcmp(tri__spec_text(r, "topk_method", "noaux_tc"), "noaux_tc") != 0)
        tri__spec_refuse(r, TRI_UNSUPPORTED, "topk_method", "supported: \"noaux_tc\"");
    if (s->mla_layers && !tri__spec_bool(r, "mla_use_nope", false))
        tri__spec_refuse(r, TRI_UNSUPPORTED, "mla_use_nope",
                         "only true is supported: rotary MLA is not in this program");
    struct {
        int64_t layers;
    } nextn;
    static const struct tri__spec_int_key key = { "num_nextn_predict_layers", 0, 0,
                                                  TRI_SPEC_MAX_LAYERS, 0 };
    tri__spec_ints(r, &nextn, &key, 1);
    if (!r->st && nextn.layers > 0)
        tri_note(r->notes, "%s: %lld next-token-prediction layers are not run", r->file,
                 (long long)nextn.layers);
}

/* Marks the 1-based layer numbers of a list; returns how many. */
static int64_t read_layer_list(struct tri__spec_reader *r, const char *key, int64_t layers,
                               uint8_t *listed, bool required)
{
    const json_t *list = tri__spec_get(r, key), *item = NULL;
    if (!list && !required)
        return 0;
    if (!json_is_array(list)) {
        tri__spec_refuse(r, TRI_FORMAT, key, "it must be a list of layer numbers");
        return 0;
    }
    size_t i = 0;
    json_array_foreach((json_t *)(uintptr_t)list, i, item)
    {
        int64_t n = json_integer_value(item);
        if (!json_is_integer(item) || n < 1 || n > layers)
            tri__spec_refuse(r, TRI_FORMAT, key, "entry %zu must be a layer number from 1 to %lld",
                             i, (long long)layers);
        else if (listed[n - 1])
            tri__spec_refuse(r, TRI_FORMAT, key,
                             "layer %lld is listed twice in kda_layers and full_attn_layers",
                             (long long)n);
        else
            listed[n - 1] = 1;
        if (r->st)
            return 0;
    }
    return (int64_t)json_array_size(list);
}

/* linear_attn_config: which layers are KDA, and their shape. Without it every layer is MLA. */
static void read_linear_attn(struct tri__spec_reader *text, struct tri_spec *s)
{
    const json_t *object = tri__spec_get(text, "linear_attn_config");
    for (int64_t i = 0; i < s->layers; i++)
        s->layer[i].attn = TRI_ATTN_MLA;
    s->mla_layers = s->layers;
    if (!object)
        return;
    if (!json_is_object(object)) {
        tri__spec_refuse(text, TRI_FORMAT, "linear_attn_config", "it must be an object");
        return;
    }
    char section[64];
    snprintf(section, sizeof section, "%slinear_attn_config.", text->section);
    struct tri__spec_reader sub = *text, *r = &sub;
    r->section = section;
    r->object = object;
    uint8_t listed[TRI_SPEC_MAX_LAYERS] = { 0 };
    s->kda_layers = read_layer_list(r, "kda_layers", s->layers, listed, true);
    for (int64_t i = 0; i < s->layers && !r->st; i++)
        if (listed[i])
            s->layer[i].attn = TRI_ATTN_KDA;
    int64_t full = read_layer_list(r, "full_attn_layers", s->layers, listed, false);
    s->mla_layers = s->layers - s->kda_layers;
    if (!r->st && full < s->mla_layers)
        tri_note(r->notes, "%s: %lld layers are in neither layer list; they are MLA", r->file,
                 (long long)(s->mla_layers - full));
    if (s->kda_layers)
        tri__spec_ints(r, s, kda_keys, COUNT(kda_keys));
    if (s->kda_layers && !r->st)
        check_product(r, "num_heads", s->kda_heads, s->kda_dim, "num_heads x head_dim");
    s->kda_full_gate = tri__spec_bool(r, "use_full_rank_gate", false);
    s->kda_bounded_gate = tri__spec_get(r, "gate_lower_bound") != NULL;
    s->kda_gate_bound = (float)tri__spec_number(r, "gate_lower_bound", -1000, -1e-3, 0);
    text->st = r->st;
}

static void check_mla(struct tri__spec_reader *r, const struct tri_spec *s)
{
    const struct {
        const char *key;
        int64_t value;
    } need[] = { { "kv_lora_rank", s->kv_rank },
                 { "qk_nope_head_dim", s->nope },
                 { "qk_rope_head_dim", s->rope },
                 { "v_head_dim", s->v_dim } };
    for (size_t i = 0; i < COUNT(need) && s->mla_layers; i++)
        if (need[i].value == 0)
            tri__spec_refuse(r, TRI_FORMAT, need[i].key, "MLA layers need it (%lld of them here)",
                             (long long)s->mla_layers);
    if (r->st || !s->mla_layers)
        return;
    check_product(r, "num_attention_heads", s->heads, s->nope + s->rope, "heads x query width");
    check_product(r, "num_attention_heads", s->heads, s->nope + s->v_dim,
                  "heads x key/value width");
    check_product(r, "kv_lora_rank", s->kv_rank + s->rope, 1, "the latent row");
}

/* Which layers are MoE: L >= first_k_dense_replace and L mod moe_layer_freq = 0. */
static void place_moe(struct tri__spec_reader *r, struct tri_spec *s)
{
    struct {
        int64_t first, every;
    } moe = { 0, 1 };
    static const struct tri__spec_int_key keys[] = {
        { "first_k_dense_replace", 0, 0, TRI_SPEC_MAX_LAYERS, 0 },
        { "moe_layer_freq", sizeof(int64_t), 1, TRI_SPEC_MAX_LAYERS, 1 },
    };
    tri__spec_ints(r, &moe, keys, COUNT(keys));
    for (int64_t i = 0; i < s->layers && !r->st; i++) {
        bool is_moe = s->experts > 0 && i >= moe.first && i % moe.every == 0;
        s->layer[i].ffn = is_moe ? TRI_FFN_MOE : TRI_FFN_DENSE;
        s->moe_layers += is_moe;
        s->dense_layers += !is_moe;
    }
}

static void check_groups(struct tri__spec_reader *r, struct tri_spec *s)
{
    if (!tri__spec_bool(r, "use_grouped_topk", true))
        s->expert_groups = s->topk_groups = 1;
    long long reach = s->experts / s->expert_groups * s->topk_groups;
    if (s->experts % s->expert_groups)
        tri__spec_refuse(r, TRI_FORMAT, "num_expert_group", "it must divide num_experts (%lld)",
                         (long long)s->experts);
    else if (s->topk_groups > s->expert_groups)
        tri__spec_refuse(r, TRI_FORMAT, "topk_group", "it must be at most num_expert_group (%lld)",
                         (long long)s->expert_groups);
    else if (s->expert_groups > 1 && s->experts / s->expert_groups < 2)
        tri__spec_refuse(r, TRI_FORMAT, "num_expert_group",
                         "a group is ranked by its two best experts and needs two at least");
    else if (s->topk > reach)
        tri__spec_refuse(r, TRI_FORMAT, "num_experts_per_token",
                         "at most the experts of topk_group groups (%lld)", reach);
}

/* MXFP4 shares a scale among 32 inputs of a row: both input widths of an expert must divide. */
static void check_packing(struct tri__spec_reader *r, const struct tri_spec *s)
{
    const char *key = s->latent ? "routed_expert_hidden_size" : "hidden_size";
    if (tri_spec_expert_width(s) % 32)
        tri__spec_refuse(r, TRI_FORMAT, key, "MXFP4 experts need a multiple of 32");
    if (s->moe_inter % 32)
        tri__spec_refuse(r, TRI_FORMAT, "moe_intermediate_size",
                         "MXFP4 experts need a multiple of 32");
}

static void read_moe(struct tri__spec_reader *r, struct tri_spec *s)
{
    place_moe(r, s);
    s->latent_norm = tri__spec_bool(r, "latent_moe_use_norm", false) && s->latent;
    s->renormalize = tri__spec_bool(r, "moe_renormalize", true);
    s->routed_scale = (float)tri__spec_number(r, "routed_scaling_factor", 1e-6, 1e6, 1);
    if (r->st || !s->moe_layers)
        return;
    if (!s->topk)
        tri__spec_refuse(r, TRI_FORMAT, "num_experts_per_token", "a model with experts needs it");
    if (!s->moe_inter)
        tri__spec_refuse(r, TRI_FORMAT, "moe_intermediate_size", "a model with experts needs it");
    if (s->topk > s->experts)
        tri__spec_refuse(r, TRI_FORMAT, "num_experts_per_token", "at most num_experts (%lld)",
                         (long long)s->experts);
    if (!r->st)
        check_product(r, "num_shared_experts", s->shared_experts, s->moe_inter,
                      "the shared experts' width");
    check_groups(r, s);
    if (s->experts_packed)
        check_packing(r, s);
    int64_t each = 3 * tri_spec_expert_width(s) * s->moe_inter; /* <= 3 * 2^40 */
    if (s->moe_layers * s->experts > TRI_SPEC_MAX_TENSORS / 6)
        tri__spec_refuse(r, TRI_LIMIT, "num_experts", "with %lld MoE layers at most %lld",
                         (long long)s->moe_layers,
                         (long long)(TRI_SPEC_MAX_TENSORS / 6 / s->moe_layers));
    else if (each > (INT64_C(1) << (TRI_SPEC_MAX_PARAMETER_BITS - 1)) / s->moe_layers / s->experts)
        tri__spec_refuse(r, TRI_LIMIT, "num_experts", "all experts would pass 2^%d parameters",
                         TRI_SPEC_MAX_PARAMETER_BITS - 1);
}

void tri__spec_read_text_config(struct tri__spec_reader *r, struct tri_spec *s)
{
    note_defaults(r);
    tri__spec_ints(r, s, text_keys, COUNT(text_keys));
    s->rms_eps = (float)tri__spec_number(r, "rms_norm_eps", 1e-12, 0.1, 1e-6);
    s->latent_eps = 1e-6f;
    s->mla_gate = tri__spec_bool(r, "mla_use_output_gate", false);
    if (r->st)
        return;
    read_activation(r, s);
    read_linear_attn(r, s);
    if (r->st)
        return;
    refuse_unsupported(r, s);
    check_mla(r, s);
    read_moe(r, s);
}
