/*
 * The llama line and its look-alikes: grouped-query attention, with or without experts.
 * Field names and defaults are those of the families' public config classes; totals are tested
 * against the published parameter counts of real checkpoints.
 */
#include "arch/arch_build.h"

#include <string.h>

struct gqa {
    int64_t heads, kv_heads, head_dim, inter, window;
    int64_t experts, topk, moe_inter, shared_inter, sparse_step;
    bool bias_qkv, bias_o, bias_mlp, head_norms, tied;
    const json_t *layer_types, *dense_only;
    int64_t window_from; /* first layer with the window */
};

static void read_gqa(struct gqa *g, struct tri_arch *arch, struct tri__arch_cfg *cfg,
                     const char *family)
{
    bool qwen2 = !strncmp(family, "qwen2", 5), qwen3 = !strncmp(family, "qwen3", 5);
    arch->layers = (int32_t)tri__arch_int(cfg, "num_hidden_layers", 1, TRI_ARCH_MAX_LAYERS, -1);
    arch->hidden = (int32_t)tri__arch_int(cfg, "hidden_size", 1, 1 << 20, -1);
    arch->vocab = (int32_t)tri__arch_int(cfg, "vocab_size", 1, 1 << 24, -1);
    arch->context_tokens = (int32_t)tri__arch_int(cfg, "max_position_embeddings", 1, 1 << 30, -1);
    g->heads = tri__arch_int(cfg, "num_attention_heads", 1, 1 << 14, -1);
    g->kv_heads = tri__arch_int(cfg, "num_key_value_heads", 1, g->heads, g->heads);
    g->head_dim = tri__arch_int(cfg, "head_dim", 1, 1 << 12, arch->hidden / g->heads);
    g->inter = tri__arch_int(cfg, "intermediate_size", 1, 1 << 20, -1);
    g->tied = tri__arch_bool(cfg, "tie_word_embeddings", false);
    bool bias = tri__arch_bool(cfg, "attention_bias", false);
    g->bias_qkv = bias || qwen2;
    g->bias_o = bias;
    g->bias_mlp = tri__arch_bool(cfg, "mlp_bias", false);
    g->head_norms = qwen3;
    g->layer_types = tri__arch_get(cfg, "layer_types");
    g->window = tri__arch_int(cfg, "sliding_window", 1, 1 << 30, 0);
    bool gated = tri__arch_has(cfg, "use_sliding_window");
    if (gated && !tri__arch_bool(cfg, "use_sliding_window", false))
        g->window = 0;
    g->window_from = qwen2 || qwen3 ? tri__arch_int(cfg, "max_window_layers", 0, 1 << 20, 28) : 0;
}

static void read_experts(struct gqa *g, struct tri_arch *arch, struct tri__arch_cfg *cfg,
                         const char *family)
{
    bool mixtral = !strcmp(family, "mixtral");
    g->experts = tri__arch_int(cfg, mixtral ? "num_local_experts" : "num_experts", 2, 65536, -1);
    g->topk = tri__arch_int(cfg, "num_experts_per_tok", 1, g->experts, -1);
    g->moe_inter = mixtral ? g->inter : tri__arch_int(cfg, "moe_intermediate_size", 1, 1 << 20, -1);
    g->shared_inter = tri__arch_int(cfg, "shared_expert_intermediate_size", 1, 1 << 20, 0);
    g->sparse_step = tri__arch_int(cfg, "decoder_sparse_step", 1, 1024, 1);
    g->dense_only = tri__arch_get(cfg, "mlp_only_layers");
    arch->experts = (int32_t)g->experts;
    arch->topk = (int32_t)g->topk;
    arch->moe_inter = (int32_t)g->moe_inter;
    arch->expert_width = arch->hidden;
}

static bool sparse_layer(const struct gqa *g, int layer)
{
    size_t i;
    json_t *value;
    json_array_foreach((json_t *)(uintptr_t)g->dense_only, i,
                       value) if (json_integer_value(value) == layer) return false;
    return g->experts && (layer + 1) % g->sparse_step == 0;
}

/* The window of one layer, or -1 when layer_types names something that is not attention here. */
static int64_t window_of(const struct gqa *g, int layer)
{
    if (!g->layer_types)
        return g->window && layer >= g->window_from ? g->window : 0;
    const char *type = json_string_value(json_array_get(g->layer_types, (size_t)layer));
    if (type && !strcmp(type, "full_attention"))
        return 0;
    if (type && !strcmp(type, "sliding_attention") && g->window)
        return g->window;
    return -1;
}

static void add_attention(struct tri__arch_builder *b, const struct gqa *g)
{
    int64_t hidden = b->arch->hidden, q = g->heads * g->head_dim, kv = g->kv_heads * g->head_dim;
    struct tri__arch_linear l = { .line = TRI_LINE_ATTENTION,
                                  .cut = TRI_CUT_HEADS,
                                  .units = (uint32_t)g->heads,
                                  .out = q,
                                  .in = hidden,
                                  .stored_quantised = true };
    tri__arch_linear(b, l); /* q */
    l.out = hidden;
    l.in = q;
    tri__arch_linear(b, l); /* o */
    l.cut = TRI_CUT_KV_HEADS;
    l.units = (uint32_t)g->kv_heads;
    l.out = kv;
    l.in = hidden;
    tri__arch_linear(b, l); /* k */
    tri__arch_linear(b, l); /* v */
    if (g->bias_qkv) {
        tri__arch_vector(b, TRI_LINE_ATTENTION, TRI_CUT_HEADS, (uint32_t)g->heads, q);
        tri__arch_vector(b, TRI_LINE_ATTENTION, TRI_CUT_KV_HEADS, (uint32_t)g->kv_heads, 2 * kv);
    }
    if (g->bias_o)
        tri__arch_vector(b, TRI_LINE_ATTENTION, TRI_CUT_NEVER, 1, hidden);
    if (g->head_norms)
        tri__arch_vector(b, TRI_LINE_NORMS, TRI_CUT_NEVER, 1, 2 * g->head_dim);
    tri__arch_vector(b, TRI_LINE_NORMS, TRI_CUT_NEVER, 1, 2 * hidden);
}

static void add_ffn(struct tri__arch_builder *b, const struct gqa *g, int layer)
{
    struct tri_arch *a = b->arch;
    a->moe[layer] = sparse_layer(g, layer);
    if (!a->moe[layer]) {
        tri__arch_mlp(b, TRI_LINE_DENSE, a->hidden, g->inter, 1, 1);
        if (g->bias_mlp)
            tri__arch_vector(b, TRI_LINE_DENSE, TRI_CUT_NEVER, 1, 2 * g->inter + a->hidden);
        return;
    }
    tri__arch_mlp(b, TRI_LINE_EXPERTS, a->hidden, g->moe_inter, (uint32_t)g->experts,
                  (uint32_t)g->topk);
    tri__arch_vector(b, TRI_LINE_ROUTER, TRI_CUT_NEVER, 1, g->experts * a->hidden);
    if (g->shared_inter) {
        tri__arch_mlp(b, TRI_LINE_SHARED, a->hidden, g->shared_inter, 1, 1);
        tri__arch_vector(b, TRI_LINE_ROUTER, TRI_CUT_NEVER, 1, a->hidden);
    }
}

enum tri_status tri__arch_dense_family(struct tri_arch *arch, struct tri__arch_cfg *cfg,
                                       const char *family)
{
    struct gqa g = { 0 };
    struct tri__arch_builder b = { .arch = arch, .vector_number = TRI_NUM_BF16, .err = cfg->err };
    read_gqa(&g, arch, cfg, family);
    if (!strcmp(family, "mixtral") || strstr(family, "_moe"))
        read_experts(&g, arch, cfg, family);
    tri__arch_store_read(&b.store, cfg);
    if (cfg->status)
        return cfg->status;
    struct tri_arch_class base = { .family = TRI_FAMILY_GQA,
                                   .heads = (int32_t)g.heads,
                                   .kv_heads = (int32_t)g.kv_heads,
                                   .head_dim = (int32_t)g.head_dim,
                                   .v_dim = (int32_t)g.head_dim };
    for (int layer = 0; layer < arch->layers && !b.status; layer++) {
        int64_t window = window_of(&g, layer);
        if (window < 0)
            return tri_fail(cfg->err, TRI_UNSUPPORTED,
                            "%s: layer_types[%d] is neither full_attention nor sliding_attention "
                            "with a sliding_window",
                            cfg->source, layer);
        base.window_tokens = (int32_t)window;
        arch->class_of[layer] = (uint8_t)tri__arch_class(&b, &base);
        b.layer = layer;
        add_attention(&b, &g);
        add_ffn(&b, &g, layer);
    }
    tri__arch_ends(&b, g.tied);
    return b.status;
}
