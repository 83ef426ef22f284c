/*
 * The list of tensors that a checkpoint must hold, and its sums. Names and shapes: K3 spec 2.2;
 * what varies between members of the family: 1.2. Nothing is stored: the list is generated.
 */
#include "spec/spec.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef int (*each_fn)(void *arg, const struct tri_tensor_spec *tensor);

/* One walk over the list; `stop` holds the first non-zero return of `each`. */
struct walk {
    const struct tri_spec *s;
    each_fn each;
    void *arg;
    int64_t experts; /* how many experts of a layer are visited */
    char prefix[64];
    int stop;
    struct tri_tensor_spec t; /* layer, expert and part are set as the walk goes */
};

enum { BF16 = 2, F32 = 4 };

/* Gives out one tensor of `rank` dimensions whose values take value_bytes each. */
static void put(struct walk *w, const char *name, int value_bytes, int rank, int64_t a, int64_t b)
{
    struct tri_tensor_spec *t = &w->t;
    if (w->stop)
        return;
    snprintf(t->name, sizeof t->name, "%s%s", w->prefix, name);
    t->rank = rank;
    t->shape[0] = a;
    t->shape[1] = b;
    t->shape[2] = t->shape[3] = 1;
    t->dtype = value_bytes == BF16 ? "BF16" : "F32";
    t->parameters = (uint64_t)a * (uint64_t)(rank > 1 ? b : 1);
    t->bytes = t->parameters * (uint64_t)value_bytes;
    w->stop = w->each(w->arg, t);
}

static void linear(struct walk *w, const char *name, int64_t out, int64_t in)
{
    put(w, name, BF16, 2, out, in);
}

static void vector(struct walk *w, const char *name, int value_bytes, int64_t n)
{
    put(w, name, value_bytes, 1, n, 1);
}

/* Tensors of more than two dimensions: [a][b][c] or [a][b][c][d], d 0 for rank 3. */
static void block(struct walk *w, const char *name, int value_bytes, const int64_t shape[4])
{
    struct tri_tensor_spec *t = &w->t;
    if (w->stop)
        return;
    snprintf(t->name, sizeof t->name, "%s%s", w->prefix, name);
    t->rank = shape[3] ? 4 : 3;
    t->parameters = 1;
    for (int i = 0; i < 4; i++) {
        t->shape[i] = shape[i] ? shape[i] : 1;
        t->parameters *= (uint64_t)t->shape[i];
    }
    t->dtype = value_bytes == BF16 ? "BF16" : "F32";
    t->bytes = t->parameters * (uint64_t)value_bytes;
    w->stop = w->each(w->arg, t);
}

static void set_prefix(struct walk *w, const char *format, ...) TRI_PRINTF(2, 3);
static void set_prefix(struct walk *w, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(w->prefix, sizeof w->prefix, format, ap);
    va_end(ap);
}

static void walk_norms(struct walk *w)
{
    int64_t h = w->s->hidden;
    w->t.part = TRI_PART_NORMS;
    vector(w, "input_layernorm.weight", BF16, h);
    vector(w, "post_attention_layernorm.weight", BF16, h);
    if (!w->s->attn_res_block)
        return;
    vector(w, "self_attention_res_norm.weight", BF16, h);
    linear(w, "self_attention_res_proj.weight", 1, h);
    vector(w, "mlp_res_norm.weight", BF16, h);
    linear(w, "mlp_res_proj.weight", 1, h);
}

static void walk_kda(struct walk *w)
{
    const struct tri_spec *s = w->s;
    int64_t h = s->hidden, p = s->kda_heads * s->kda_dim;
    const int64_t conv[4] = { p, 1, s->conv_taps, 0 };
    w->t.part = TRI_PART_KDA;
    linear(w, "self_attn.q_proj.weight", p, h);
    linear(w, "self_attn.k_proj.weight", p, h);
    linear(w, "self_attn.v_proj.weight", p, h);
    block(w, "self_attn.q_conv1d.weight", F32, conv);
    block(w, "self_attn.k_conv1d.weight", F32, conv);
    block(w, "self_attn.v_conv1d.weight", F32, conv);
    linear(w, "self_attn.f_a_proj.weight", s->kda_dim, h);
    linear(w, "self_attn.f_b_proj.weight", p, s->kda_dim);
    linear(w, "self_attn.b_proj.weight", s->kda_heads, h);
    if (s->kda_full_gate) {
        linear(w, "self_attn.g_proj.weight", p, h);
    } else {
        linear(w, "self_attn.g_a_proj.weight", s->kda_dim, h);
        linear(w, "self_attn.g_b_proj.weight", p, s->kda_dim);
    }
    /* One value a head, padded with zeros to the head dimension in the release (2.2). */
    vector(w, "self_attn.A_log", F32, s->kda_heads > s->kda_dim ? s->kda_heads : s->kda_dim);
    vector(w, "self_attn.dt_bias", F32, p);
    vector(w, "self_attn.o_norm.weight", F32, s->kda_dim);
    linear(w, "self_attn.o_proj.weight", h, p);
}

static void walk_mla(struct walk *w)
{
    const struct tri_spec *s = w->s;
    int64_t h = s->hidden, query = s->heads * (s->nope + s->rope);
    w->t.part = TRI_PART_MLA;
    if (s->q_rank) {
        linear(w, "self_attn.q_a_proj.weight", s->q_rank, h);
        vector(w, "self_attn.q_a_layernorm.weight", BF16, s->q_rank);
        linear(w, "self_attn.q_b_proj.weight", query, s->q_rank);
    } else {
        linear(w, "self_attn.q_proj.weight", query, h);
    }
    linear(w, "self_attn.kv_a_proj_with_mqa.weight", s->kv_rank + s->rope, h);
    vector(w, "self_attn.kv_a_layernorm.weight", BF16, s->kv_rank);
    linear(w, "self_attn.kv_b_proj.weight", s->heads * (s->nope + s->v_dim), s->kv_rank);
    if (s->mla_gate)
        linear(w, "self_attn.g_proj.weight", s->heads * s->v_dim, h);
    linear(w, "self_attn.o_proj.weight", h, s->heads * s->v_dim);
}

/* One matrix [out][in] of a routed expert: packed nibbles and scales, or plain. */
static void expert_matrix(struct walk *w, const char *which, int64_t out, int64_t in)
{
    struct tri_tensor_spec *t = &w->t;
    char name[32];
    if (!w->s->experts_packed) {
        snprintf(name, sizeof name, "%s.weight", which);
        linear(w, name, out, in);
        return;
    }
    for (int part = 0; part < 2 && !w->stop; part++) {
        snprintf(t->name, sizeof t->name, "%s%s.weight_%s", w->prefix, which,
                 part ? "scale" : "packed");
        t->rank = 2;
        t->shape[0] = out;
        t->shape[1] = part ? in / 32 : in / 2;
        t->shape[2] = t->shape[3] = 1;
        t->dtype = "U8";
        t->bytes = (uint64_t)out * (uint64_t)t->shape[1];
        t->parameters = part ? 0 : t->bytes * 2;
        w->stop = w->each(w->arg, t);
    }
}

static void walk_experts(struct walk *w, int64_t layer)
{
    int64_t width = tri_spec_expert_width(w->s), inter = w->s->moe_inter;
    w->t.part = TRI_PART_EXPERTS;
    for (int64_t e = 0; e < w->experts && !w->stop; e++) {
        w->t.expert = (int32_t)e;
        set_prefix(w, "model.layers.%d.block_sparse_moe.experts.%d.", (int)layer, (int)e);
        expert_matrix(w, "w1", inter, width);
        expert_matrix(w, "w2", width, inter);
        expert_matrix(w, "w3", inter, width);
    }
    w->t.expert = -1;
}

static void walk_moe(struct walk *w, int64_t layer)
{
    const struct tri_spec *s = w->s;
    int64_t h = s->hidden, shared = s->moe_inter * s->shared_experts;
    set_prefix(w, "model.layers.%d.block_sparse_moe.", (int)layer);
    w->t.part = TRI_PART_ROUTER;
    linear(w, "gate.weight", s->experts, h);
    vector(w, "gate.e_score_correction_bias", F32, s->experts);
    w->t.part = TRI_PART_LATENT;
    if (s->latent) {
        linear(w, "routed_expert_down_proj.weight", s->latent, h);
        if (s->latent_norm)
            vector(w, "routed_expert_norm.weight", BF16, s->latent);
        linear(w, "routed_expert_up_proj.weight", h, s->latent);
    }
    w->t.part = TRI_PART_SHARED;
    if (shared) {
        linear(w, "shared_experts.gate_proj.weight", shared, h);
        linear(w, "shared_experts.up_proj.weight", shared, h);
        linear(w, "shared_experts.down_proj.weight", h, shared);
    }
    walk_experts(w, layer);
}

static void walk_layer(struct walk *w, int64_t layer)
{
    const struct tri_spec *s = w->s;
    w->t.layer = (int32_t)layer;
    set_prefix(w, "model.layers.%d.", (int)layer);
    walk_norms(w);
    if (s->layer[layer].attn == TRI_ATTN_KDA)
        walk_kda(w);
    else
        walk_mla(w);
    if (s->layer[layer].ffn == TRI_FFN_MOE) {
        walk_moe(w, layer);
        return;
    }
    w->t.part = TRI_PART_DENSE;
    linear(w, "mlp.gate_proj.weight", s->inter, s->hidden);
    linear(w, "mlp.up_proj.weight", s->inter, s->hidden);
    linear(w, "mlp.down_proj.weight", s->hidden, s->inter);
}

static void walk_ends(struct walk *w)
{
    const struct tri_spec *s = w->s;
    w->t.layer = -1;
    set_prefix(w, "model.");
    w->t.part = TRI_PART_EMBED;
    linear(w, "embed_tokens.weight", s->vocab, s->hidden);
    w->t.part = TRI_PART_FINAL;
    vector(w, "norm.weight", BF16, s->hidden);
    if (s->attn_res_block) {
        vector(w, "output_attn_res_norm.weight", BF16, s->hidden);
        linear(w, "output_attn_res_proj.weight", 1, s->hidden);
    }
    set_prefix(w, "%s", "");
    w->t.part = TRI_PART_HEAD;
    if (!s->tied_embeddings)
        linear(w, "lm_head.weight", s->vocab, s->hidden);
}

static void walk_vision(struct walk *w)
{
    const struct tri_vision_spec *v = &w->s->vision;
    const int64_t patch[4] = { v->hidden, 3, v->patch, v->patch };
    const int64_t pos[4] = { v->pos_rows, v->pos_cols, v->hidden, 0 };
    w->t.part = TRI_PART_PROJECTOR;
    set_prefix(w, "mm_projector.");
    linear(w, "proj.0.weight", v->merged, v->merged);
    linear(w, "proj.2.weight", v->text_hidden, v->merged);
    vector(w, "post_norm.weight", BF16, v->text_hidden);
    w->t.part = TRI_PART_VISION;
    set_prefix(w, "vision_tower.");
    block(w, "patch_embed.proj.weight", BF16, patch);
    block(w, "patch_embed.pos_emb.weight", BF16, pos);
    for (int64_t b = 0; b < v->layers && !w->stop; b++) {
        set_prefix(w, "vision_tower.encoder.blocks.%d.", (int)b);
        linear(w, "wqkv.weight", 3 * v->qkv, v->hidden);
        linear(w, "wo.weight", v->hidden, v->qkv);
        linear(w, "mlp.fc0.weight", v->inter, v->hidden);
        linear(w, "mlp.fc1.weight", v->hidden, v->inter);
        vector(w, "norm0.weight", BF16, v->hidden);
        vector(w, "norm1.weight", BF16, v->hidden);
    }
    set_prefix(w, "vision_tower.encoder.");
    vector(w, "final_layernorm.weight", BF16, v->hidden);
}

static int walk_all(const struct tri_spec *spec, int64_t experts, each_fn each, void *arg)
{
    struct walk w = { .s = spec, .each = each, .arg = arg, .experts = experts };
    w.t.expert = -1;
    for (int64_t i = 0; i < spec->layers && !w.stop; i++)
        walk_layer(&w, i);
    walk_ends(&w);
    if (spec->has_vision)
        walk_vision(&w);
    return w.stop;
}

int tri_spec_tensors(const struct tri_spec *spec, each_fn each, void *arg)
{
    return walk_all(spec, spec->experts, each, arg);
}

const char *tri_part_name(enum tri_part part)
{
    static const char *const name[] = {
#define TRI_PART_TEXT(id, text) text,
        TRI_PART_MAP(TRI_PART_TEXT)
#undef TRI_PART_TEXT
    };
    TRI_ASSERT((unsigned)part < TRI_PARTS);
    return name[part];
}

struct summing {
    struct tri_spec_totals *out;
    uint64_t experts;
};

/* The walk visits expert 0 of each layer only; it stands for all of them. */
static int add(void *arg, const struct tri_tensor_spec *t)
{
    struct summing *sum = arg;
    uint64_t times = t->part == TRI_PART_EXPERTS ? sum->experts : 1;
    sum->out->part[t->part].parameters += t->parameters * times;
    sum->out->part[t->part].bytes += t->bytes * times;
    sum->out->tensors += times;
    return 0;
}

void tri_spec_sum(const struct tri_spec *spec, struct tri_spec_totals *out)
{
    struct summing sum = { out, (uint64_t)spec->experts };
    memset(out, 0, sizeof *out);
    walk_all(spec, spec->experts > 0 ? 1 : 0, add, &sum);
    for (int i = 0; i < TRI_PARTS; i++) {
        out->parameters += out->part[i].parameters;
        out->bytes += out->part[i].bytes;
    }
    const struct tri_part_total *routed = &out->part[TRI_PART_EXPERTS];
    uint64_t idle = 0; /* routed experts that one token does not use */
    if (spec->moe_layers) {
        uint64_t count = (uint64_t)(spec->moe_layers * spec->experts);
        out->expert_bytes = routed->bytes / count;
        idle = routed->parameters / count * (count - (uint64_t)(spec->moe_layers * spec->topk));
    }
    out->active_parameters = out->parameters - idle - out->part[TRI_PART_VISION].parameters -
                             out->part[TRI_PART_PROJECTOR].parameters;
    if (!spec->tied_embeddings)
        out->active_parameters -= out->part[TRI_PART_EMBED].parameters;
}
