/* Opening and closing a model: config, checkpoint, memory, experts, scratch. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>
#include "base/hash.h"
#include "model/model_priv.h"
#include "model/model_trunk.h"
#include "os/numa.h"

enum {
    PROCESS_BYTES = 16 << 20, /* code and stacks */
    WORD_BYTES = 200,         /* of a vocabulary in RAM, each */
    EXPERT_TABLE_BYTES = 48   /* a record of the store, and its share of slots */
};

/* Rows of the step and tables of the router, all from one block of account scratch. */
static enum tri_status open_scratch(struct tri_model *m, struct tri_error *err)
{
    const struct tri_spec *s = &m->spec;
    int64_t tokens = m->chunk_tokens, row = tokens * s->hidden;
    int64_t blocks =
        s->attn_res_block ? (s->layers + s->attn_res_block - 1) / s->attn_res_block : 0;
    int64_t needs[] = { tri__kda_scratch(m, tokens), tri__mla_scratch(m, tokens),
                        s->moe_layers ? tri__moe_scratch(m, tokens) : 0,
                        s->dense_layers ? tri__dense_scratch(m, tokens) : 0 };
    int64_t arena = 0;
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        arena = needs[i] > arena ? needs[i] : arena;
    int64_t ids = 2 * tokens * s->topk + 2 * s->experts + 1;

    struct tri__arena all = { 0 };
    for (int pass = 0; pass < 2; pass++) { /* measure, then hand out */
        all.used = 0;
        m->arena.base = tri__take(&all, arena);
        m->prefix = tri__take(&all, row);
        m->h = tri__take(&all, row);
        m->x = tri__take(&all, row);
        m->out = tri__take(&all, row);
        tri__take_input(m, &all, tokens, s->hidden, &m->head_in);
        m->bank = tri__take(&all, blocks * row);
        m->ids = (int32_t *)tri__take(&all, ids);
        /* Pointers are two floats wide. */
        m->sources = (const float **)(void *)tri__take(&all, 2 * (blocks + 1));
        if (pass)
            break;
        m->scratch_bytes = (uint64_t)all.most * sizeof(float);
        enum tri_status st =
            tri_budget_alloc(m->budget, TRI_MEM_SCRATCH, m->scratch_bytes, &m->scratch, err);
        if (st)
            return st;
        all.base = m->scratch;
    }
    return TRI_OK;
}

static enum tri_status open_layers(struct tri_model *m, struct tri_error *err)
{
    m->layer = tri_calloc((size_t)m->spec.layers, sizeof *m->layer);
    if (!m->layer)
        return tri_fail(err, TRI_NOMEM, "no memory for %lld layers", (long long)m->spec.layers);
    int64_t count[2] = { 0, 0 };
    for (int64_t l = 0; l < m->spec.layers; l++)
        m->layer[l].state_index = count[m->spec.layer[l].attn]++;
    return TRI_OK;
}

/* `--layers N`: the first N layers, then output mix, norm and head. */
static enum tri_status cut_layers(struct tri_spec *s, int64_t layers, struct tri_error *err)
{
    if (layers == 0)
        return TRI_OK;
    if (layers < 0 || layers > s->layers)
        return tri_fail(err, TRI_ARG, "%lld layers asked for, the model has %lld",
                        (long long)layers, (long long)s->layers);
    s->layers = layers;
    s->kda_layers = s->mla_layers = s->dense_layers = s->moe_layers = 0;
    for (int64_t l = 0; l < layers; l++) {
        s->kda_layers += s->layer[l].attn == TRI_ATTN_KDA;
        s->mla_layers += s->layer[l].attn == TRI_ATTN_MLA;
        s->dense_layers += s->layer[l].ffn == TRI_FFN_DENSE;
        s->moe_layers += s->layer[l].ffn == TRI_FFN_MOE;
    }
    return TRI_OK;
}

/* What changes results is never silent. */
static enum tri_status take_lossy(struct tri_model *m, const struct tri_model_options *o,
                                  struct tri_error *err)
{
    struct tri_spec *s = &m->spec;
    if (o->experts_per_token < 0 || o->experts_per_token > s->topk)
        return tri_fail(err, TRI_ARG, "%lld experts per token: 1 to %lld are possible here",
                        (long long)o->experts_per_token, (long long)s->topk);
    if (o->experts_per_token && o->experts_per_token < s->topk) {
        tri_note(&o->notes, "lossy: %lld instead of %lld experts per token",
                 (long long)o->experts_per_token, (long long)s->topk);
        s->topk = o->experts_per_token;
    }
    if (o->cache_regret > 0)
        tri_note(&o->notes, "lossy: experts in RAM are preferred within %.0f %% of a gate",
                 (double)o->cache_regret * 100);
    m->cache_regret = s->moe_layers ? o->cache_regret : 0;
    m->lookahead = s->moe_layers ? o->lookahead : 0;
    return TRI_OK;
}

/*
 * Names this model's weights without reading them all: its shape, the layers in use, and the first
 * bytes of a few tensors of each file's contents.
 */
static enum tri_status take_fingerprint(struct tri_model *m, struct tri_error *err)
{
    uint64_t sum = tri_hash64(m->spec.layers, &m->spec, sizeof m->spec);
    static const char *const probes[] = { "model.embed_tokens.weight", "model.norm.weight",
                                          "model.layers.0.input_layernorm.weight",
                                          "model.layers.0.self_attn.o_proj.weight" };
    for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++) {
        const struct tri_tensor *t = tri_checkpoint_find(m->ckpt, probes[i]);
        char bytes[4096];
        uint64_t n = t ? t->bytes : 0;
        n = n < sizeof bytes ? n : sizeof bytes;
        enum tri_status st = t ? tri_checkpoint_read(m->ckpt, t, 0, bytes, n, err) : TRI_OK;
        if (st)
            return st;
        sum = tri_hash64(sum, bytes, n);
    }
    m->whole_fingerprint = sum;
    return TRI_OK;
}

/* Below 1 GiB a ceiling is for tests and toys: it is about the model alone. */
static bool budget_is_small(const struct tri_model *m)
{
    struct tri_budget_report now;
    tri_budget_read(m->budget, &now);
    return now.ceiling_bytes >> 30 == 0;
}

/* Tables of tensors and experts, and what any process needs, so that the ceiling holds for all. */
static enum tri_status count_tables(struct tri_model *m, struct tri_error *err)
{
    uint64_t process = PROCESS_BYTES + (uint64_t)m->spec.vocab * WORD_BYTES;
    uint64_t bytes = tri_checkpoint_memory_bytes(m->ckpt) + (budget_is_small(m) ? 0 : process) +
                     (uint64_t)(m->spec.moe_layers * m->spec.experts) * EXPERT_TABLE_BYTES;
    enum tri_status st = tri_budget_count(m->budget, TRI_MEM_OTHER, bytes, err);
    m->counted_bytes = st ? 0 : bytes;
    return st;
}

/* Room kept for the sequences that are still to be opened: one of the whole context, and others
 * that share what room there is (state.h), so that short ones of them fit beside it. */
static uint64_t sequence_bytes(const struct tri_model *m, const struct tri_model_options *options)
{
    struct tri_state_bytes cost;
    int64_t most = m->spec.context_tokens, tokens = options->context_tokens;
    int64_t few = most < TRI_MODEL_KEEP_TOKENS ? most : TRI_MODEL_KEEP_TOKENS;
    int64_t others = options->sequences ? options->sequences - 1 : 0;
    tokens = tokens ? tokens : few;
    tri_state_cost(&m->spec, &m->slice, m->form, &cost);
    /* Beside its state a sequence has its tokens, its sampler's counts and its logits. */
    uint64_t one = cost.kda_bytes + 8 * (uint64_t)tokens + (uint64_t)m->spec.vocab * 16;
    if (budget_is_small(m))
        one = cost.kda_bytes;
    int64_t rows = tokens + others * (tokens < few ? tokens : few);
    return one * (uint64_t)(1 + others) + cost.mla_bytes_per_token * (uint64_t)rows +
           options->keep_bytes;
}

/* The trunk must leave this for experts: one token's choice of one layer. */
static enum tri_status least_expert_bytes(const struct tri_model *m, uint64_t *bytes,
                                          struct tri_error *err)
{
    struct tri_expert_extent x;
    int64_t layer = 0;
    *bytes = 0;
    if (m->spec.moe_layers == 0)
        return TRI_OK;
    while (m->spec.layer[layer].ffn != TRI_FFN_MOE)
        layer++;
    enum tri_status st = tri_checkpoint_expert(m->ckpt, layer, m->slice.experts.first, &x, err);
    uint64_t slots = (uint64_t)m->spec.topk;
    slots = slots < TRI_EXPERTS_MIN_SLOTS ? TRI_EXPERTS_MIN_SLOTS : slots;
    if (!st)
        *bytes = slots * (x.record_bytes + TRI_EXPERTS_SLOT_SLACK_BYTES);
    return st;
}

static uint64_t expert_room(const struct tri_model *m, const struct tri_model_options *options)
{
    struct tri_budget_report now;
    tri_budget_read(m->budget, &now);
    uint64_t left = now.ceiling_bytes - now.used_bytes, keep = sequence_bytes(m, options);
    uint64_t room = left > keep ? left - keep : 1;
    return options->expert_bytes && options->expert_bytes < room ? options->expert_bytes : room;
}

static enum tri_status open_experts(struct tri_model *m, const char *folder,
                                    const struct tri_model_options *options, struct tri_error *err)
{
    struct tri_experts_options o = { .layers = m->spec.layers,
                                     .first_expert = m->slice.experts.first,
                                     .experts = m->slice.experts.count,
                                     .policy = options->expert_policy,
                                     .io = options->expert_io,
                                     .engine = options->engine,
                                     .depth = options->queue_depth,
                                     .timeout_ms = options->io_timeout_ms,
                                     .tile = m->act == TRI_ACT_INT8 &&
                                             tri_kernels_tiles(m->kernels, TRI_DT_MXFP4),
                                     .keep_folder = options->keep_nothing ? NULL : folder,
                                     .notes = options->notes,
                                     .progress = options->progress };
    if (m->spec.moe_layers == 0)
        return TRI_OK;
    o.most_bytes = expert_room(m, options);
    return tri_experts_open(&m->experts, m->ckpt, &m->spec, &o, m->budget, err);
}

static void bind_threads(struct tri_pool *pool, const struct tri_model_options *options)
{
    struct tri_error refused = { 0 };
    if (tri_numa_bind(options->numa, pool, &refused))
        tri_note(&options->notes, "threads are not bound to NUMA nodes: %s", refused.text);
}

static enum tri_status check_state_form(const struct tri_model *m, const char *config,
                                        struct tri_error *err)
{
    if (m->form.kda == TRI_DT_F32 || m->spec.kda_dim <= TRI_KDA_MAX_DIM)
        return TRI_OK;
    return tri_fail(err, TRI_LIMIT,
                    "%s: KDA heads are %lld wide, a bf16 state takes %d at most; use --kda-state "
                    "f32",
                    config, (long long)m->spec.kda_dim, TRI_KDA_MAX_DIM);
}

static enum tri_status choose_kernels(struct tri_model *m, struct tri_error *err)
{
    unsigned isas = 0;
    enum tri_status st = tri_cpu_isas(&isas, err);
    tri_kernels_fill(&m->kernel_table, isas);
    m->kernels = &m->kernel_table;
    return st;
}

/* What a model is, before any weight: config, checkpoint, threads, this rank's slice. */
static enum tri_status open_shape(struct tri_model *m, const char *folder,
                                  const struct tri_model_options *options, struct tri_error *err)
{
    char config[4096];
    if (snprintf(config, sizeof config, "%s/config.json", folder) >= (int)sizeof config)
        return tri_fail(err, TRI_ARG, "the model's path is too long");
    enum tri_status st = tri_spec_load(&m->spec, config, &options->notes, err);
    if (!st)
        st = choose_kernels(m, err);
    if (!st)
        st = tri_pool_open(&m->pool, options->threads, err);
    if (!st)
        bind_threads(m->pool, options);
    if (!st)
        st = tri_checkpoint_open_spread(&m->ckpt, folder, &options->shard_dirs, &m->spec,
                                        tri_pool_threads(m->pool), &options->notes, err);
    if (!st) {
        tri_checkpoint_convert_with(m->ckpt, m->kernels);
        st = take_fingerprint(m, err);
    }
    if (!st)
        st = cut_layers(&m->spec, options->layers, err);
    if (!st)
        st = take_lossy(m, options, err);
    if (!st)
        st = check_state_form(m, config, err);
    if (st)
        return st;
    m->fingerprint = tri_hash64(m->whole_fingerprint, &m->spec.layers, sizeof m->spec.layers);
    if (options->experts_per_token)
        m->fingerprint = tri_hash64(m->fingerprint, &m->spec.topk, sizeof m->spec.topk);
    tri_slice_whole(&m->slice, &m->spec);
    return open_layers(m, err);
}

static enum tri_status open_parts(struct tri_model *m, const char *folder,
                                  const struct tri_model_options *options, struct tri_error *err)
{
    uint64_t least = 0;
    enum tri_status st = open_shape(m, folder, options, err);
    if (!st)
        st = count_tables(m, err);
    if (!st)
        st = open_scratch(m, err);
    if (!st)
        st = least_expert_bytes(m, &least, err);
    if (!st)
        st = tri__trunk_open(m, folder, options, sequence_bytes(m, options) + least, err);
    if (!st)
        st = open_experts(m, folder, options, err);
    return st;
}

/* A model of which nothing is loaded; to be closed however it went. */
static enum tri_status open_bare(struct tri_model **out, const char *folder,
                                 const struct tri_model_options *options, struct tri_budget *budget,
                                 struct tri_error *err)
{
    struct tri_model *m = *out = tri_calloc(1, sizeof *m);
    if (!m)
        return tri_fail(err, TRI_NOMEM, "no memory for the model");
    m->budget = budget;
    return open_shape(m, folder, options, err);
}

enum tri_status tri_model_pack(const char *folder, const struct tri_model_options *options,
                               struct tri_budget *budget, struct tri_pack_report *report,
                               struct tri_error *err)
{
    struct tri_model *m = NULL;
    enum tri_status st = open_bare(&m, folder, options, budget, err);
    if (!st)
        st = tri__trunk_pack(m, folder, options, report, err);
    tri_model_close(m);
    return st;
}

enum tri_status tri_model_check_packs(const char *folder, const struct tri_model_options *options,
                                      struct tri_budget *budget, struct tri_packs_report *report,
                                      struct tri_error *err)
{
    bool any = false;
    for (int f = TRI_TRUNK_DISK; f < TRI_TRUNK_STREAM; f++)
        any |= tri__pack_exists(folder, (enum tri_trunk)f);
    if (!any)
        return TRI_OK;
    struct tri_model *m = NULL;
    enum tri_status st = open_bare(&m, folder, options, budget, err);
    if (!st)
        st = tri__trunk_check_packs(m, folder, &options->progress, report, err);
    tri_model_close(m);
    return st;
}

enum tri_status tri_model_open(struct tri_model **out, const char *folder,
                               const struct tri_model_options *options, struct tri_budget *budget,
                               struct tri_error *err)
{
    if (options->chunk_tokens < 0 || options->chunk_tokens > TRI_MODEL_MAX_CHUNK_TOKENS)
        return tri_fail(err, TRI_ARG, "chunks of %lld tokens: 1 to %d are possible",
                        (long long)options->chunk_tokens, TRI_MODEL_MAX_CHUNK_TOKENS);
    if (options->cache != TRI_DT_F32 && options->cache != TRI_DT_BF16 &&
        options->cache != TRI_DT_E4M3)
        return tri_fail(err, TRI_ARG, "an MLA cache in %s: f32, bf16 or fp8 are possible",
                        tri_dtype_name(options->cache));
    if (options->kda_state != TRI_DT_F32 && options->kda_state != TRI_DT_BF16)
        return tri_fail(err, TRI_ARG, "a KDA state in %s: f32 or bf16 are possible",
                        tri_dtype_name(options->kda_state));
    struct tri_model *m = tri_calloc(1, sizeof *m);
    if (!m)
        return tri_fail(err, TRI_NOMEM, "no memory for the model");
    m->budget = budget;
    m->act = options->act;
    m->form = (struct tri_state_form){ options->cache, options->kda_state };
    m->chunk_tokens = options->chunk_tokens ? options->chunk_tokens : TRI_MODEL_CHUNK_TOKENS;
    enum tri_status st = open_parts(m, folder, options, err);
    if (st)
        tri_model_close(m);
    else
        *out = m;
    return st;
}

void tri_model_close(struct tri_model *model)
{
    if (!model)
        return;
    tri_experts_close(model->experts);
    bool idle = tri__trunk_close(model);
    tri_budget_uncount(model->budget, TRI_MEM_OTHER, model->counted_bytes);
    tri_budget_free(model->budget, TRI_MEM_SCRATCH, model->scratch, model->scratch_bytes);
    if (!idle) /* a thread waits for a drive that does not answer, with the rest in its hands */
        return;
    tri_checkpoint_close(model->ckpt);
    tri_pool_close(model->pool);
    tri_free(model->layer);
    tri_free(model);
}

const struct tri_spec *tri_model_spec(const struct tri_model *model)
{
    return &model->spec;
}

const struct tri_slice *tri_model_slice(const struct tri_model *model)
{
    return &model->slice;
}

int64_t tri_model_chunk_tokens(const struct tri_model *model)
{
    return model->chunk_tokens;
}

uint64_t tri_model_fingerprint(const struct tri_model *model)
{
    return model->fingerprint;
}

uint64_t tri_model_state_fingerprint(const struct tri_model *model)
{
    const int64_t how[] = { tri_model_trunk(model), model->act, model->form.cache, model->form.kda,
                            TRI_MODEL_TILE_TOKENS };
    return tri_hash64(model->fingerprint, how, sizeof how);
}

void tri_model_expert_stats(const struct tri_model *model, struct tri_experts_stats *out)
{
    *out = (struct tri_experts_stats){ .engine = "none" };
    if (model->experts)
        tri_experts_read_stats(model->experts, out);
}

enum tri_status tri_model_state(struct tri_model *model, int64_t max_tokens, struct tri_state **out,
                                struct tri_error *err)
{
    return tri_state_open(out, &model->spec, &model->slice, model->form, max_tokens, model->budget,
                          err);
}

enum tri_status tri_model_growing_state(struct tri_model *model, int64_t max_tokens,
                                        struct tri_state **out, struct tri_error *err)
{
    return tri_state_open_growing(out, &model->spec, &model->slice, model->form, max_tokens,
                                  model->budget, err);
}

struct tri_state_form tri_model_state_form(const struct tri_model *model)
{
    return model->form;
}
