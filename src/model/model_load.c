/*
 * Weights from the checkpoint to RAM. What is wanted is first written down as a list of jobs, which
 * then run in parallel; the few tensors that are not used as stored (A_log, AttnRes weights, kv_b)
 * are folded as their job's last act.
 */
#include "model/model_priv.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum job_kind {
    JOB_MATRIX, /* a rectangle in the trunk format */
    JOB_SMALL,  /* a matrix kept as stored: small, or too sensitive to quantise */
    JOB_VECTOR, /* float32 */
    JOB_EXP,    /* float32, exponentiated: A_log */
    JOB_FOLD,   /* norm weight times projection weight: name and `second` */
    JOB_KV_B    /* split into w_uk (transposed per head) and w_uv */
};

struct job {
    enum job_kind kind;
    char name[160], second[160];
    struct tri_rect rect; /* vectors: row0 and rows */
    struct tri_matrix *matrix;
    float *vector;
    struct tri__mla *mla; /* JOB_KV_B */
};

/* A block of vectors: few large allocations instead of thousands of small ones. */
struct block {
    struct block *next;
    uint64_t bytes, used;
    char *data;
};

struct tri__loader {
    struct tri_model *m;
    enum tri_trunk trunk;
    struct job *jobs;
    int64_t n_jobs, cap_jobs;
    struct block *blocks;
    enum tri_status status; /* of building the list */
    struct tri_error *err;

    const struct tri_progress *progress;
    uint64_t total_bytes;
    _Atomic uint64_t done_bytes;
    atomic_int failed; /* first failed job's status; its thread wrote *err */
};

enum { BLOCK_BYTES = 1 << 20 };

static float *take_vector(struct tri__loader *l, int64_t count)
{
    uint64_t bytes = ((uint64_t)count * sizeof(float) + 63) & ~(uint64_t)63;
    struct block *b = l->blocks;
    if (!b || b->bytes - b->used < bytes) {
        void *p = NULL;
        uint64_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        b = tri_calloc(1, sizeof *b);
        if (!b)
            l->status = tri_fail(l->err, TRI_NOMEM, "no memory for weights");
        else
            l->status = tri_budget_alloc(l->m->budget, TRI_MEM_TRUNK, size, &p, l->err);
        if (l->status) {
            tri_free(b);
            return NULL;
        }
        *b = (struct block){ .next = l->blocks, .bytes = size, .data = p };
        l->blocks = b;
    }
    float *v = (float *)(void *)(b->data + b->used);
    b->used += bytes;
    return v;
}

/* The next job, or a dummy once something failed: callers fill it either way. */
static struct job *new_job(struct tri__loader *l, enum job_kind kind)
{
    if (!l->status && l->n_jobs == l->cap_jobs) {
        int64_t cap = l->cap_jobs ? l->cap_jobs * 2 : 256;
        struct job *jobs = tri_realloc(l->jobs, (size_t)cap * sizeof *jobs);
        if (!jobs) {
            l->status = tri_fail(l->err, TRI_NOMEM, "no memory for the list of weights");
        } else {
            l->jobs = jobs;
            l->cap_jobs = cap;
        }
    }
    if (l->status)
        return NULL;
    struct job *j = &l->jobs[l->n_jobs++];
    *j = (struct job){ .kind = kind };
    return j;
}

static void want_matrix(struct tri__loader *l, enum job_kind kind, struct tri_matrix *m,
                        const char *prefix, const char *name, struct tri_rect rect)
{
    struct job *j = new_job(l, kind);
    if (!j)
        return;
    snprintf(j->name, sizeof j->name, "%s%s.weight", prefix, name);
    j->rect = rect;
    j->matrix = m;
}

/* `name` is complete here: not every vector ends in .weight. */
static float *want_vector(struct tri__loader *l, enum job_kind kind, const char *prefix,
                          const char *name, struct tri_range range)
{
    float *v = l->status ? NULL : take_vector(l, range.count);
    struct job *j = new_job(l, kind);
    if (!j)
        return v;
    snprintf(j->name, sizeof j->name, "%s%s", prefix, name);
    j->rect = (struct tri_rect){ range.first, range.count, 0, 1 };
    j->vector = v;
    return v;
}

static float *want_fold(struct tri__loader *l, const char *prefix, const char *name)
{
    char norm[64];
    snprintf(norm, sizeof norm, "%s_norm.weight", name);
    float *v = want_vector(l, JOB_FOLD, prefix, norm, (struct tri_range){ 0, l->m->spec.hidden });
    if (!l->status)
        snprintf(l->jobs[l->n_jobs - 1].second, sizeof l->jobs[0].second, "%s%s_proj.weight",
                 prefix, name);
    return v;
}

static struct tri_rect rows_of(struct tri_range r, int64_t unit, int64_t cols)
{
    return (struct tri_rect){ r.first * unit, r.count * unit, 0, cols };
}

static struct tri_rect cols_of(int64_t rows, struct tri_range r, int64_t unit)
{
    return (struct tri_rect){ 0, rows, r.first * unit, r.count * unit };
}

static void want_glu(struct tri__loader *l, struct tri__glu *g, const char *prefix,
                     struct tri_range inter)
{
    int64_t hidden = l->m->spec.hidden;
    want_matrix(l, JOB_MATRIX, &g->gate, prefix, "gate_proj", rows_of(inter, 1, hidden));
    want_matrix(l, JOB_MATRIX, &g->up, prefix, "up_proj", rows_of(inter, 1, hidden));
    want_matrix(l, JOB_MATRIX, &g->down, prefix, "down_proj", cols_of(hidden, inter, 1));
}

static void want_kda(struct tri__loader *l, struct tri__kda *w, const char *p)
{
    const struct tri_spec *s = &l->m->spec;
    struct tri_range heads = l->m->slice.kda_heads;
    int64_t dim = s->kda_dim, hidden = s->hidden, width = heads.count * dim;
    struct tri_range channels = { heads.first * dim, width };
    static const char *const conv[3] = { "q_conv1d", "k_conv1d", "v_conv1d" };

    want_matrix(l, JOB_MATRIX, &w->q, p, "q_proj", rows_of(heads, dim, hidden));
    want_matrix(l, JOB_MATRIX, &w->k, p, "k_proj", rows_of(heads, dim, hidden));
    want_matrix(l, JOB_MATRIX, &w->v, p, "v_proj", rows_of(heads, dim, hidden));
    want_matrix(l, JOB_SMALL, &w->f_a, p, "f_a_proj", (struct tri_rect){ 0, dim, 0, hidden });
    want_matrix(l, JOB_SMALL, &w->f_b, p, "f_b_proj", rows_of(heads, dim, dim));
    want_matrix(l, JOB_SMALL, &w->b, p, "b_proj", rows_of(heads, 1, hidden));
    if (s->kda_full_gate) {
        want_matrix(l, JOB_MATRIX, &w->g, p, "g_proj", rows_of(heads, dim, hidden));
    } else {
        want_matrix(l, JOB_SMALL, &w->g_a, p, "g_a_proj", (struct tri_rect){ 0, dim, 0, hidden });
        want_matrix(l, JOB_SMALL, &w->g_b, p, "g_b_proj", rows_of(heads, dim, dim));
    }
    want_matrix(l, JOB_MATRIX, &w->o, p, "o_proj", cols_of(hidden, heads, dim));
    w->a = want_vector(l, JOB_EXP, p, "A_log", heads);
    w->dt_bias = want_vector(l, JOB_VECTOR, p, "dt_bias", channels);
    w->o_norm = want_vector(l, JOB_VECTOR, p, "o_norm.weight", (struct tri_range){ 0, dim });
    /* [3][P][taps] in one piece: three vector jobs into its thirds. */
    w->conv = l->status ? NULL : take_vector(l, 3 * width * s->conv_taps);
    for (int i = 0; i < 3; i++) {
        struct job *j = new_job(l, JOB_VECTOR);
        if (!j)
            return;
        snprintf(j->name, sizeof j->name, "%s%s.weight", p, conv[i]);
        j->rect = (struct tri_rect){ channels.first * s->conv_taps, width * s->conv_taps, 0, 1 };
        j->vector = w->conv + i * width * s->conv_taps;
    }
}

static void want_mla(struct tri__loader *l, struct tri__mla *w, const char *p)
{
    const struct tri_spec *s = &l->m->spec;
    struct tri_range heads = l->m->slice.mla_heads;
    int64_t hidden = s->hidden, qk = s->nope + s->rope;
    if (s->q_rank) {
        want_matrix(l, JOB_MATRIX, &w->q_a, p, "q_a_proj",
                    (struct tri_rect){ 0, s->q_rank, 0, hidden });
        w->q_norm = want_vector(l, JOB_VECTOR, p, "q_a_layernorm.weight",
                                (struct tri_range){ 0, s->q_rank });
        want_matrix(l, JOB_MATRIX, &w->q_b, p, "q_b_proj", rows_of(heads, qk, s->q_rank));
    } else {
        want_matrix(l, JOB_MATRIX, &w->q_b, p, "q_proj", rows_of(heads, qk, hidden));
    }
    want_matrix(l, JOB_MATRIX, &w->kv_a, p, "kv_a_proj_with_mqa",
                (struct tri_rect){ 0, s->kv_rank + s->rope, 0, hidden });
    w->kv_norm =
        want_vector(l, JOB_VECTOR, p, "kv_a_layernorm.weight", (struct tri_range){ 0, s->kv_rank });
    struct job *j = new_job(l, JOB_KV_B);
    if (j) {
        snprintf(j->name, sizeof j->name, "%skv_b_proj.weight", p);
        j->rect = rows_of(heads, s->nope + s->v_dim, s->kv_rank);
        j->mla = w;
    }
    if (s->mla_gate)
        want_matrix(l, JOB_MATRIX, &w->g, p, "g_proj", rows_of(heads, s->v_dim, hidden));
    want_matrix(l, JOB_MATRIX, &w->o, p, "o_proj", cols_of(hidden, heads, s->v_dim));
}

static void want_moe(struct tri__loader *l, struct tri__moe *w, const char *p)
{
    const struct tri_spec *s = &l->m->spec;
    char shared[128];
    want_matrix(l, JOB_SMALL, &w->router, p, "gate",
                (struct tri_rect){ 0, s->experts, 0, s->hidden });
    w->bias = want_vector(l, JOB_VECTOR, p, "gate.e_score_correction_bias",
                          (struct tri_range){ 0, s->experts });
    if (s->latent) {
        want_matrix(l, JOB_MATRIX, &w->down, p, "routed_expert_down_proj",
                    (struct tri_rect){ 0, s->latent, 0, s->hidden });
        want_matrix(l, JOB_MATRIX, &w->up, p, "routed_expert_up_proj",
                    (struct tri_rect){ 0, s->hidden, 0, s->latent });
    }
    if (s->latent && s->latent_norm)
        w->norm = want_vector(l, JOB_VECTOR, p, "routed_expert_norm.weight",
                              (struct tri_range){ 0, s->latent });
    if (s->shared_experts) {
        snprintf(shared, sizeof shared, "%sshared_experts.", p);
        want_glu(l, &w->shared, shared, l->m->slice.shared_inter);
    }
}

static void want_layer(struct tri__loader *l, int64_t index)
{
    const struct tri_spec *s = &l->m->spec;
    struct tri__layer *w = &l->m->layer[index];
    struct tri_range whole = { 0, s->hidden };
    char p[64], attn[96], ffn[96];
    snprintf(p, sizeof p, "model.layers.%lld.", (long long)index);
    snprintf(attn, sizeof attn, "%sself_attn.", p);
    snprintf(ffn, sizeof ffn, "%s%s", p,
             s->layer[index].ffn == TRI_FFN_DENSE ? "mlp." : "block_sparse_moe.");
    w->input_norm = want_vector(l, JOB_VECTOR, p, "input_layernorm.weight", whole);
    w->post_norm = want_vector(l, JOB_VECTOR, p, "post_attention_layernorm.weight", whole);
    if (s->attn_res_block) {
        w->attn_mix = want_fold(l, p, "self_attention_res");
        w->ffn_mix = want_fold(l, p, "mlp_res");
    }
    if (s->layer[index].attn == TRI_ATTN_KDA)
        want_kda(l, &w->kda, attn);
    else
        want_mla(l, &w->mla, attn);
    if (s->layer[index].ffn == TRI_FFN_DENSE)
        want_glu(l, &w->dense, ffn, l->m->slice.dense_inter);
    else
        want_moe(l, &w->moe, ffn);
}

static void want_all(struct tri__loader *l)
{
    struct tri_model *m = l->m;
    const struct tri_spec *s = &m->spec;
    struct tri_rect rows = rows_of(m->slice.vocab, 1, s->hidden);
    want_matrix(l, JOB_SMALL, &m->embed, "model.", "embed_tokens", rows);
    for (int64_t i = 0; i < s->layers && !l->status; i++)
        want_layer(l, i);
    m->final_norm =
        want_vector(l, JOB_VECTOR, "model.", "norm.weight", (struct tri_range){ 0, s->hidden });
    if (s->attn_res_block)
        m->out_mix = want_fold(l, "model.", "output_attn_res");
    if (s->tied_embeddings)
        want_matrix(l, JOB_MATRIX, &m->head, "model.", "embed_tokens", rows);
    else
        want_matrix(l, JOB_MATRIX, &m->head, "", "lm_head", rows);
}

/* The dtype a matrix gets in RAM. F16 on disk becomes float32: its range is not bf16's. */
static enum tri_dtype ram_dtype(const struct tri__loader *l, const struct job *j)
{
    const struct tri_tensor *t = tri_checkpoint_find(l->m->ckpt, j->name);
    enum tri_dtype disk = t && t->dtype == TRI_DT_BF16 ? TRI_DT_BF16 : TRI_DT_F32;
    if (l->trunk == TRI_TRUNK_F32)
        return TRI_DT_F32;
    if (j->kind == JOB_SMALL || l->trunk == TRI_TRUNK_DISK)
        return disk;
    if (l->trunk == TRI_TRUNK_BF16)
        return TRI_DT_BF16;
    return l->trunk == TRI_TRUNK_INT8 ? TRI_DT_I8G64 : TRI_DT_I4G32;
}

/*
 * kv_b [H][nope + v][rank] becomes w_uk [H][rank][nope], so that the absorbed query is a plain
 * matrix product, and w_uv [H][v][rank].
 */
static enum tri_status split_kv_b(struct tri_model *m, const struct job *j, enum tri_dtype dtype,
                                  const struct tri_matrix *kv_b, struct tri_error *err)
{
    const struct tri_spec *s = &m->spec;
    int64_t heads = m->slice.mla_heads.count, rank = s->kv_rank;
    struct tri_matrix *out[2] = { &j->mla->w_uk, &j->mla->w_uv };
    int64_t rows[2] = { heads * rank, heads * s->v_dim }, cols[2] = { s->nope, rank };
    const float *w = kv_b->data;
    float *row = tri_malloc((size_t)(s->nope > rank ? s->nope : rank) * sizeof *row);
    enum tri_status st = row ? TRI_OK : tri_fail(err, TRI_NOMEM, "no memory to load %s", j->name);
    for (int k = 0; k < 2 && !st; k++) {
        void *p = NULL;
        st = tri_budget_alloc(m->budget, TRI_MEM_TRUNK, tri_matrix_bytes(dtype, rows[k], cols[k]),
                              &p, err);
        if (st)
            break;
        char *data = p, *scales = data + (size_t)rows[k] * tri_row_data_bytes(dtype, cols[k]);
        size_t scale_bytes = tri_row_scale_bytes(dtype, cols[k]);
        *out[k] = (struct tri_matrix){ dtype, rows[k], cols[k], data, scale_bytes ? scales : NULL };
        for (int64_t r = 0; r < rows[k]; r++) {
            int64_t h = k ? r / s->v_dim : r / rank;
            const float *head = w + h * (s->nope + s->v_dim) * rank;
            for (int64_t c = 0; c < cols[k]; c++)
                row[c] = k ? head[(s->nope + r % s->v_dim) * rank + c] : head[c * rank + r % rank];
            tri_row_encode(data + (size_t)r * tri_row_data_bytes(dtype, cols[k]),
                           scales + (size_t)r * scale_bytes, dtype, row, cols[k]);
        }
    }
    tri_free(row);
    return st;
}

static enum tri_status run_kv_b(struct tri__loader *l, const struct job *j, struct tri_error *err)
{
    struct tri_model *m = l->m;
    struct tri_matrix kv_b = { 0 };
    enum tri_status st = tri_load_matrix(m->ckpt, j->name, j->rect, TRI_DT_F32, m->budget,
                                         TRI_MEM_SCRATCH, &kv_b, err);
    if (!st)
        st = split_kv_b(m, j, ram_dtype(l, j), &kv_b, err);
    tri_matrix_free(m->budget, TRI_MEM_SCRATCH, &kv_b);
    return st;
}

static enum tri_status run_fold(const struct tri_model *m, const struct job *j,
                                struct tri_error *err)
{
    float *w = tri_malloc((size_t)j->rect.rows * sizeof *w);
    if (!w)
        return tri_fail(err, TRI_NOMEM, "no memory to load %s", j->second);
    enum tri_status st = tri_load_vector(m->ckpt, j->name, 0, j->rect.rows, j->vector, err);
    if (!st)
        st = tri_load_vector(m->ckpt, j->second, 0, j->rect.rows, w, err);
    for (int64_t i = 0; i < j->rect.rows && !st; i++)
        j->vector[i] *= w[i];
    tri_free(w);
    return st;
}

static enum tri_status run_job(struct tri__loader *l, const struct job *j, struct tri_error *err)
{
    const struct tri_model *m = l->m;
    enum tri_status st;
    switch (j->kind) {
    case JOB_MATRIX:
    case JOB_SMALL:
        return tri_load_matrix(m->ckpt, j->name, j->rect, ram_dtype(l, j), m->budget, TRI_MEM_TRUNK,
                               j->matrix, err);
    case JOB_KV_B:
        return run_kv_b(l, j, err);
    case JOB_FOLD:
        return run_fold(m, j, err);
    case JOB_VECTOR:
    case JOB_EXP:
        break;
    }
    st = tri_load_vector(m->ckpt, j->name, j->rect.row0, j->rect.rows, j->vector, err);
    for (int64_t i = 0; i < j->rect.rows && !st && j->kind == JOB_EXP; i++)
        j->vector[i] = expf(j->vector[i]);
    return st;
}

static void run_jobs(void *arg, int64_t begin, int64_t end, int thread)
{
    struct tri__loader *l = arg;
    for (int64_t i = begin; i < end && !atomic_load(&l->failed); i++) {
        const struct tri_tensor *t = tri_checkpoint_find(l->m->ckpt, l->jobs[i].name);
        struct tri_error err = { 0 };
        enum tri_status st = run_job(l, &l->jobs[i], &err);
        uint64_t done = atomic_fetch_add(&l->done_bytes, t ? t->bytes : 0);
        /* Only the caller's thread reports, so that ticks never come from two at once. */
        if (!st && thread == 0 && tri_tick(l->progress, "trunk", done, l->total_bytes))
            st = tri_fail(&err, TRI_CANCELLED, "loading was stopped");
        int none = TRI_OK;
        if (st && atomic_compare_exchange_strong(&l->failed, &none, st) && l->err)
            *l->err = err;
    }
}

enum tri_status tri__model_load(struct tri_model *m, const struct tri_model_options *options,
                                struct tri_error *err)
{
    struct tri__loader *l = tri_calloc(1, sizeof *l);
    if (!l)
        return tri_fail(err, TRI_NOMEM, "no memory for weights");
    m->loader = l;
    l->m = m;
    l->trunk = options->trunk;
    l->progress = &options->progress;
    l->err = err;
    want_all(l);
    if (l->status)
        return l->status;
    for (int64_t i = 0; i < l->n_jobs; i++) {
        const struct tri_tensor *t = tri_checkpoint_find(m->ckpt, l->jobs[i].name);
        l->total_bytes += t ? t->bytes : 0;
    }
    tri_pool_for(m->pool, l->n_jobs, 1, run_jobs, l);
    return (enum tri_status)l->failed;
}

void tri__model_unload(struct tri_model *m)
{
    struct tri__loader *l = m->loader;
    if (!l)
        return;
    for (int64_t i = 0; i < l->n_jobs; i++) {
        struct job *j = &l->jobs[i];
        if (j->matrix)
            tri_matrix_free(m->budget, TRI_MEM_TRUNK, j->matrix);
        if (j->mla) {
            tri_matrix_free(m->budget, TRI_MEM_TRUNK, &j->mla->w_uk);
            tri_matrix_free(m->budget, TRI_MEM_TRUNK, &j->mla->w_uv);
        }
    }
    for (struct block *b = l->blocks, *next; b; b = next) {
        next = b->next;
        tri_budget_free(m->budget, TRI_MEM_TRUNK, b->data, b->bytes);
        tri_free(b);
    }
    tri_free(l->jobs);
    tri_free(l);
    m->loader = NULL;
}
