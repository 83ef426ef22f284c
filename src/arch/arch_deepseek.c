/*
 * DeepSeek V2 / V3 and Kimi K2: latent attention (MLA) in every layer, dense layers first, then
 * experts with shared ones, and MTP layers that only speculation loads.
 */
#include "arch/arch_build.h"

#include <string.h>

struct deepseek {
    int64_t heads, q_rank, kv_rank, nope, rope, v_dim, inter;
    int64_t experts, topk, moe_inter, shared, dense_first, freq, mtp;
    bool tied, router_bias;
};

static void read_fields(struct deepseek *d, struct tri_arch *arch, struct tri__arch_cfg *cfg)
{
    arch->layers = (int32_t)tri__arch_int(cfg, "num_hidden_layers", 1, TRI_ARCH_MAX_LAYERS, -1);
    arch->hidden = (int32_t)tri__arch_int(cfg, "hidden_size", 1, 1 << 20, -1);
    arch->vocab = (int32_t)tri__arch_int(cfg, "vocab_size", 1, 1 << 24, -1);
    arch->context_tokens = (int32_t)tri__arch_int(cfg, "max_position_embeddings", 1, 1 << 30, -1);
    d->heads = tri__arch_int(cfg, "num_attention_heads", 1, 1 << 14, -1);
    tri__arch_get(cfg, "num_key_value_heads"); /* equals heads: the latent is what is kept */
    tri__arch_get(cfg, "head_dim");
    tri__arch_get(cfg, "attention_bias");
    d->q_rank = tri__arch_int(cfg, "q_lora_rank", 1, 1 << 20, 0);
    d->kv_rank = tri__arch_int(cfg, "kv_lora_rank", 1, 1 << 20, -1);
    d->nope = tri__arch_int(cfg, "qk_nope_head_dim", 1, 1 << 12, -1);
    d->rope = tri__arch_int(cfg, "qk_rope_head_dim", 1, 1 << 12, -1);
    tri__arch_get(cfg, "qk_head_dim");
    d->v_dim = tri__arch_int(cfg, "v_head_dim", 1, 1 << 12, -1);
    d->inter = tri__arch_int(cfg, "intermediate_size", 1, 1 << 20, -1);
    d->experts = tri__arch_int(cfg, "n_routed_experts", 2, 65536, -1);
    d->topk = tri__arch_int(cfg, "num_experts_per_tok", 1, d->experts, -1);
    d->moe_inter = tri__arch_int(cfg, "moe_intermediate_size", 1, 1 << 20, -1);
    d->shared = tri__arch_int(cfg, "n_shared_experts", 0, 64, 0);
    d->dense_first = tri__arch_int(cfg, "first_k_dense_replace", 0, TRI_ARCH_MAX_LAYERS, 0);
    d->freq = tri__arch_int(cfg, "moe_layer_freq", 1, TRI_ARCH_MAX_LAYERS, 1);
    d->mtp = tri__arch_int(cfg, "num_nextn_predict_layers", 0, 8, 0);
    d->tied = tri__arch_bool(cfg, "tie_word_embeddings", false);
    d->router_bias = !strcmp(tri__arch_text(cfg, "topk_method", ""), "noaux_tc");
    arch->experts = (int32_t)d->experts;
    arch->topk = (int32_t)d->topk;
    arch->moe_inter = (int32_t)d->moe_inter;
    arch->expert_width = arch->hidden;
}

static void add_attention(struct tri__arch_builder *b, const struct deepseek *d,
                          enum tri_arch_line line)
{
    int64_t hidden = b->arch->hidden, q = d->heads * (d->nope + d->rope);
    struct tri__arch_linear heads = {
        .line = line, .cut = TRI_CUT_HEADS, .units = (uint32_t)d->heads, .stored_quantised = true
    };
    struct tri__arch_linear whole = {
        .line = line, .cut = TRI_CUT_NEVER, .units = 1, .stored_quantised = true
    };
    if (d->q_rank) {
        whole.out = d->q_rank;
        whole.in = hidden;
        tri__arch_linear(b, whole); /* q_a */
        tri__arch_vector(b, line, TRI_CUT_NEVER, 1, d->q_rank);
    }
    heads.out = q;
    heads.in = d->q_rank ? d->q_rank : hidden;
    tri__arch_linear(b, heads); /* q_b, or q */
    whole.out = d->kv_rank + d->rope;
    whole.in = hidden;
    tri__arch_linear(b, whole); /* kv_a */
    tri__arch_vector(b, line, TRI_CUT_NEVER, 1, d->kv_rank);
    heads.out = d->heads * (d->nope + d->v_dim);
    heads.in = d->kv_rank;
    tri__arch_linear(b, heads); /* kv_b */
    heads.out = hidden;
    heads.in = d->heads * d->v_dim;
    tri__arch_linear(b, heads); /* o */
}

static void add_moe(struct tri__arch_builder *b, const struct deepseek *d, bool draft)
{
    int64_t hidden = b->arch->hidden;
    tri__arch_mlp(b, draft ? TRI_LINE_DRAFT : TRI_LINE_EXPERTS, hidden,
                  d->moe_inter * (draft ? d->experts : 1), draft ? 1 : (uint32_t)d->experts,
                  draft ? 1 : (uint32_t)d->topk);
    tri__arch_vector(b, draft ? TRI_LINE_DRAFT : TRI_LINE_ROUTER, TRI_CUT_NEVER, 1,
                     d->experts * hidden);
    if (d->router_bias) {
        b->vector_number = TRI_NUM_F32; /* e_score_correction_bias */
        tri__arch_vector(b, draft ? TRI_LINE_DRAFT : TRI_LINE_ROUTER, TRI_CUT_NEVER, 1, d->experts);
        b->vector_number = TRI_NUM_BF16;
    }
    if (d->shared)
        tri__arch_mlp(b, draft ? TRI_LINE_DRAFT : TRI_LINE_SHARED, hidden, d->moe_inter * d->shared,
                      1, 1);
}

/* One MTP layer: two norms, the joining projection, a whole MoE layer, its own copy of the ends. */
static void add_mtp(struct tri__arch_builder *b, const struct deepseek *d)
{
    int64_t hidden = b->arch->hidden, vocab = b->arch->vocab;
    b->layer = -1;
    add_attention(b, d, TRI_LINE_DRAFT);
    add_moe(b, d, true);
    struct tri__arch_linear l = {
        .line = TRI_LINE_DRAFT, .cut = TRI_CUT_NEVER, .units = 1, .out = hidden, .in = 2 * hidden
    };
    tri__arch_linear(b, l);
    l.cut = TRI_CUT_VOCAB;
    l.units = (uint32_t)vocab;
    l.copies = 2;
    l.out = vocab;
    l.in = hidden;
    tri__arch_linear(b, l);
    tri__arch_vector(b, TRI_LINE_DRAFT, TRI_CUT_NEVER, 1, 5 * hidden);
}

enum tri_status tri__arch_deepseek(struct tri_arch *arch, struct tri__arch_cfg *cfg)
{
    struct deepseek d = { 0 };
    struct tri__arch_builder b = { .arch = arch, .vector_number = TRI_NUM_BF16, .err = cfg->err };
    read_fields(&d, arch, cfg);
    tri__arch_store_read(&b.store, cfg);
    if (cfg->status)
        return cfg->status;
    struct tri_arch_class mla = { .family = TRI_FAMILY_MLA,
                                  .heads = (int32_t)d.heads,
                                  .kv_heads = 1,
                                  .head_dim = (int32_t)(d.nope + d.rope),
                                  .v_dim = (int32_t)d.v_dim,
                                  .kv_rank = (int32_t)d.kv_rank,
                                  .rope = (int32_t)d.rope };
    for (int layer = 0; layer < arch->layers && !b.status; layer++) {
        arch->class_of[layer] = (uint8_t)tri__arch_class(&b, &mla);
        b.layer = layer;
        add_attention(&b, &d, TRI_LINE_MLA);
        tri__arch_vector(&b, TRI_LINE_NORMS, TRI_CUT_NEVER, 1, 2 * arch->hidden);
        arch->moe[layer] = layer >= d.dense_first && layer % d.freq == 0;
        if (arch->moe[layer])
            add_moe(&b, &d, false);
        else
            tri__arch_mlp(&b, TRI_LINE_DENSE, arch->hidden, d.inter, 1, 1);
    }
    for (int64_t i = 0; i < d.mtp; i++)
        add_mtp(&b, &d);
    tri__arch_ends(&b, d.tied);
    return b.status;
}
