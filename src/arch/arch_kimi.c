/*
 * kimi_k3 and kimi_linear: the numbers come from spec, which reads their configs for the engine
 * too; here they are laid out as ledger items. A test holds the sums against spec's tensor list.
 * Shapes: K3 spec section 2.2; which parts split and which replicate: section 9.3.
 */
#include "arch/arch_build.h"

#include <stdio.h>

#include "base/mem.h"
#include "spec/spec.h"

static void add_kda(struct tri__arch_builder *b, const struct tri_spec *s)
{
    int64_t wide = s->kda_heads * s->kda_dim, hidden = s->hidden, dim = s->kda_dim;
    uint32_t heads = (uint32_t)s->kda_heads;
    struct tri__arch_linear l = { .line = TRI_LINE_LINEAR,
                                  .cut = TRI_CUT_HEADS,
                                  .units = heads,
                                  .copies = s->kda_full_gate ? 5 : 4, /* q k v o (g) */
                                  .out = wide,
                                  .in = hidden,
                                  .may_quantise = true };
    tri__arch_linear(b, l);
    l.kept = true;
    l.copies = s->kda_full_gate ? 1 : 2; /* f_b (g_b) */
    l.in = dim;
    tri__arch_linear(b, l);
    l.copies = 1;
    l.out = s->kda_heads; /* b_proj */
    l.in = hidden;
    tri__arch_linear(b, l);
    l.cut = TRI_CUT_NEVER; /* f_a (g_a) */
    l.copies = s->kda_full_gate ? 1 : 2;
    l.units = 1;
    l.out = dim;
    tri__arch_linear(b, l);
    b->vector_number = TRI_NUM_F32;
    tri__arch_vector(b, TRI_LINE_LINEAR_SMALL, TRI_CUT_HEADS, heads, wide); /* dt_bias */
    tri__arch_vector(b, TRI_LINE_LINEAR_SMALL, TRI_CUT_HEADS, heads, 3 * s->conv_taps * wide);
    tri__arch_vector(b, TRI_LINE_LINEAR_SMALL, TRI_CUT_NEVER, 1, dim);              /* o_norm */
    tri__arch_vector(b, TRI_LINE_LINEAR_SMALL, TRI_CUT_HEADS, heads, s->kda_heads); /* A_log */
    b->vector_number = TRI_NUM_BF16;
}

static void add_mla(struct tri__arch_builder *b, const struct tri_spec *s)
{
    int64_t hidden = s->hidden, q = s->heads * (s->nope + s->rope);
    struct tri__arch_linear heads = { .line = TRI_LINE_MLA,
                                      .cut = TRI_CUT_HEADS,
                                      .units = (uint32_t)s->heads,
                                      .may_quantise = true };
    struct tri__arch_linear whole = {
        .line = TRI_LINE_MLA, .cut = TRI_CUT_NEVER, .units = 1, .in = hidden, .may_quantise = true
    };
    if (s->q_rank) {
        whole.out = s->q_rank;
        tri__arch_linear(b, whole);
        tri__arch_vector(b, TRI_LINE_MLA, TRI_CUT_NEVER, 1, s->q_rank);
    }
    whole.out = s->kv_rank + s->rope;
    tri__arch_linear(b, whole);
    tri__arch_vector(b, TRI_LINE_MLA, TRI_CUT_NEVER, 1, s->kv_rank);
    heads.out = q;
    heads.in = s->q_rank ? s->q_rank : hidden;
    tri__arch_linear(b, heads);
    heads.in = s->kv_rank; /* kv_b: keys, which Trireme holds transposed, and values */
    heads.out = s->heads * s->nope;
    heads.cols = s->nope;
    tri__arch_linear(b, heads);
    heads.cols = 0;
    heads.out = s->heads * s->v_dim;
    tri__arch_linear(b, heads);
    heads.out = s->heads * s->v_dim;
    heads.in = hidden;
    heads.copies = s->mla_gate ? 2 : 1; /* o (g) */
    tri__arch_linear(b, heads);
}

static void add_ffn(struct tri__arch_builder *b, const struct tri_spec *s, bool moe)
{
    if (!moe) {
        tri__arch_mlp(b, TRI_LINE_DENSE, s->hidden, s->inter, 1, 1);
        return;
    }
    int64_t width = tri_spec_expert_width(s);
    tri__arch_mlp(b, TRI_LINE_EXPERTS, width, s->moe_inter, (uint32_t)s->experts,
                  (uint32_t)s->topk);
    if (s->shared_experts)
        tri__arch_mlp(b, TRI_LINE_SHARED, s->hidden, s->moe_inter * s->shared_experts, 1, 1);
    b->vector_held = TRI_HELD_STORED;
    tri__arch_vector(b, TRI_LINE_ROUTER, TRI_CUT_NEVER, 1, s->experts * s->hidden);
    b->vector_held = TRI_HELD_VECTOR;
    b->vector_number = TRI_NUM_F32;
    tri__arch_vector(b, TRI_LINE_ROUTER, TRI_CUT_NEVER, 1, s->experts);
    b->vector_number = TRI_NUM_BF16;
    if (s->latent) {
        struct tri__arch_linear l = { .line = TRI_LINE_LATENT,
                                      .cut = TRI_CUT_NEVER,
                                      .units = 1,
                                      .copies = 2,
                                      .out = s->latent,
                                      .in = s->hidden,
                                      .may_quantise = true };
        tri__arch_linear(b, l);
        if (s->latent_norm)
            tri__arch_vector(b, TRI_LINE_LATENT, TRI_CUT_NEVER, 1, s->latent);
    }
}

/* AttnRes: norms and projections, which an engine may fold into one vector a mix. */
static void add_mixes(struct tri__arch_builder *b, int64_t values)
{
    b->vector_held = TRI_HELD_FOLDED;
    tri__arch_vector(b, TRI_LINE_NORMS, TRI_CUT_NEVER, 1, values);
    b->vector_held = TRI_HELD_VECTOR;
}

static void fill(struct tri__arch_builder *b, const struct tri_spec *s)
{
    struct tri_arch *a = b->arch;
    struct tri_arch_class kda = { .family = TRI_FAMILY_KDA,
                                  .heads = (int32_t)s->kda_heads,
                                  .kv_heads = (int32_t)s->kda_heads,
                                  .head_dim = (int32_t)s->kda_dim,
                                  .v_dim = (int32_t)s->kda_dim,
                                  .conv_taps = (int32_t)s->conv_taps };
    struct tri_arch_class mla = { .family = TRI_FAMILY_MLA,
                                  .heads = (int32_t)s->heads,
                                  .kv_heads = 1,
                                  .head_dim = (int32_t)(s->nope + s->rope),
                                  .v_dim = (int32_t)s->v_dim,
                                  .kv_rank = (int32_t)s->kv_rank,
                                  .rope = (int32_t)s->rope };
    for (int layer = 0; layer < a->layers && !b->status; layer++) {
        bool linear = s->layer[layer].attn == TRI_ATTN_KDA;
        b->layer = layer;
        a->class_of[layer] = (uint8_t)tri__arch_class(b, linear ? &kda : &mla);
        if (linear)
            add_kda(b, s);
        else
            add_mla(b, s);
        a->moe[layer] = s->layer[layer].ffn == TRI_FFN_MOE;
        add_ffn(b, s, a->moe[layer]);
        tri__arch_vector(b, TRI_LINE_NORMS, TRI_CUT_NEVER, 1, 2 * s->hidden);
        if (s->attn_res_block)
            add_mixes(b, 4 * s->hidden);
    }
    tri__arch_ends(b, s->tied_embeddings);
    if (s->attn_res_block)
        add_mixes(b, 2 * s->hidden);
}

/*
 * What the checkpoint holds beyond the text model's working parts: the vision tower as one
 * replicated item, and the zero tail of A_log (stored in 128 entries for 96 heads), which nobody
 * loads. Both from spec's own sums.
 */
static void add_rest(struct tri__arch_builder *b, const struct tri_spec *s)
{
    struct tri_spec_totals totals;
    tri_spec_sum(s, &totals);
    uint64_t kda = 0;
    for (int i = 0; i < b->arch->item_count; i++)
        if (b->arch->items[i].line == TRI_LINE_LINEAR ||
            b->arch->items[i].line == TRI_LINE_LINEAR_SMALL)
            kda += b->arch->items[i].params;
    uint64_t stored = totals.part[TRI_PART_KDA].parameters;
    if (!b->status && stored > kda)
        b->status = tri__arch_item(b->arch,
                                   (struct tri__arch_add){ .line = TRI_LINE_LINEAR_SMALL,
                                                           .number = TRI_NUM_F32,
                                                           .unloaded = true,
                                                           .layer = -1,
                                                           .params = stored - kda },
                                   b->err);
    uint64_t params =
        totals.part[TRI_PART_VISION].parameters + totals.part[TRI_PART_PROJECTOR].parameters;
    b->arch->has_vision = params > 0;
    b->layer = -1;
    if (params)
        tri__arch_vector(b, TRI_LINE_VISION, TRI_CUT_NEVER, 1, (int64_t)params);
}

enum tri_status tri__arch_kimi_of(struct tri_arch *arch, const struct tri_spec *s,
                                  struct tri_error *err)
{
    struct tri__arch_builder b = { .arch = arch, .vector_number = TRI_NUM_BF16, .err = err };
    snprintf(arch->family, sizeof arch->family, "%s", s->model_type);
    arch->layers = (int32_t)s->layers;
    arch->hidden = (int32_t)s->hidden;
    arch->vocab = (int32_t)s->vocab;
    arch->context_tokens = (int32_t)s->context_tokens;
    arch->experts = (int32_t)s->experts;
    arch->topk = (int32_t)s->topk;
    arch->expert_width = (int32_t)tri_spec_expert_width(s);
    arch->moe_inter = (int32_t)s->moe_inter;
    if (s->attn_res_block)
        arch->bank_vectors = (int32_t)((s->layers + s->attn_res_block - 1) / s->attn_res_block);
    enum tri_number experts = s->experts_packed ? TRI_NUM_MXFP4 : TRI_NUM_BF16;
    b.store = (struct tri__arch_store){ TRI_NUM_BF16, experts, tri_number_bits64(TRI_NUM_BF16),
                                        tri_number_bits64(experts), 0 };
    fill(&b, s);
    add_rest(&b, s);
    return b.status;
}

enum tri_status tri__arch_kimi(struct tri_arch *arch, const char *source, const char *json,
                               size_t bytes, const struct tri_notes *notes, struct tri_error *err)
{
    struct tri_spec *s = tri_calloc(1, sizeof *s);
    if (!s)
        return tri_fail(err, TRI_NOMEM, "%s: no memory", source);
    enum tri_status status = tri_spec_parse(s, source, json, bytes, notes, err);
    if (!status)
        status = tri__arch_kimi_of(arch, s, err);
    tri_free(s);
    return status;
}
