/*
 * What the trunk consists of, written down as jobs before anything is read: so its size is known
 * for every format before memory is taken, and units can be loaded in any order, more than once.
 */
#include "model/model_trunk.h"

#include <stdio.h>
#include <string.h>
#include "os/direct.h"

enum { BLOCK_BYTES = 1 << 20 };

static float *take_vector(struct tri__trunk *t, int64_t count)
{
    uint64_t bytes = ((uint64_t)count * sizeof(float) + 63) & ~(uint64_t)63;
    struct tri__block *b = t->blocks;
    if (!b || b->bytes - b->used < bytes) {
        void *p = NULL;
        uint64_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        b = tri_calloc(1, sizeof *b);
        if (!b)
            t->status = tri_fail(t->err, TRI_NOMEM, "no memory for weights");
        else
            t->status = tri_budget_alloc(t->m->budget, TRI_MEM_TRUNK, size, &p, t->err);
        if (t->status) {
            tri_free(b);
            return NULL;
        }
        *b = (struct tri__block){ .next = t->blocks, .bytes = size, .data = p };
        t->blocks = b;
    }
    float *v = (float *)(void *)(b->data + b->used);
    b->used += bytes;
    return v;
}

/* The next job, or NULL once something failed. */
static struct tri__job *new_job(struct tri__trunk *t, enum tri__job_kind kind)
{
    if (!t->status && t->n_jobs == t->cap_jobs) {
        int64_t cap = t->cap_jobs ? t->cap_jobs * 2 : 256;
        struct tri__job *jobs = tri_realloc(t->jobs, (size_t)cap * sizeof *jobs);
        if (!jobs) {
            t->status = tri_fail(t->err, TRI_NOMEM, "no memory for the list of weights");
        } else {
            t->jobs = jobs;
            t->cap_jobs = cap;
        }
    }
    if (t->status)
        return NULL;
    struct tri__job *j = &t->jobs[t->n_jobs++];
    int matrix = kind == TRI__JOB_ROWS || kind == TRI__JOB_KV_B;
    *j = (struct tri__job){ .kind = kind, .unit = matrix ? t->unit_now : -1 };
    return j;
}

static void want_rows(struct tri__trunk *t, struct tri_matrix *m, bool small, const char *prefix,
                      const char *name, struct tri_rect rect)
{
    int64_t step = TRI__JOB_BYTES / (2 * (rect.cols > 0 ? rect.cols : 1));
    step = step < TRI_TILE_ROWS ? TRI_TILE_ROWS : step / TRI_TILE_ROWS * TRI_TILE_ROWS;
    m->rows = rect.rows;
    m->cols = rect.cols;
    for (int64_t row = 0; row < rect.rows; row += step) {
        struct tri__job *j = new_job(t, TRI__JOB_ROWS);
        if (!j)
            return;
        snprintf(j->name, sizeof j->name, "%s%s.weight", prefix, name);
        j->rect = rect;
        j->rect.row0 += row;
        j->rect.rows = rect.rows - row < step ? rect.rows - row : step;
        j->at2 = (uint64_t)row; /* first row within the matrix */
        j->small = small;
        j->matrix = m;
    }
}

static void want_matrix(struct tri__trunk *t, struct tri_matrix *m, const char *prefix,
                        const char *name, struct tri_rect rect)
{
    want_rows(t, m, false, prefix, name, rect);
}

static void want_small(struct tri__trunk *t, struct tri_matrix *m, const char *prefix,
                       const char *name, struct tri_rect rect)
{
    want_rows(t, m, true, prefix, name, rect);
}

/* `name` is complete here: not every vector ends in .weight. */
static float *want_vector(struct tri__trunk *t, enum tri__job_kind kind, const char *prefix,
                          const char *name, struct tri_range range)
{
    float *v = t->status ? NULL : take_vector(t, range.count);
    struct tri__job *j = new_job(t, kind);
    if (!j)
        return v;
    snprintf(j->name, sizeof j->name, "%s%s", prefix, name);
    j->rect = (struct tri_rect){ range.first, range.count, 0, 1 };
    j->vector = v;
    return v;
}

static float *want_fold(struct tri__trunk *t, const char *prefix, const char *name)
{
    char norm[64];
    struct tri_range whole = { 0, t->m->spec.hidden };
    snprintf(norm, sizeof norm, "%s_norm.weight", name);
    float *v = want_vector(t, TRI__JOB_FOLD, prefix, norm, whole);
    if (!t->status)
        snprintf(t->jobs[t->n_jobs - 1].second, sizeof t->jobs[0].second, "%s%s_proj.weight",
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

static struct tri_rect whole(int64_t rows, int64_t cols)
{
    return (struct tri_rect){ 0, rows, 0, cols };
}

static void want_glu(struct tri__trunk *t, struct tri__glu *g, const char *prefix,
                     struct tri_range inter)
{
    int64_t hidden = t->m->spec.hidden;
    want_matrix(t, &g->gate, prefix, "gate_proj", rows_of(inter, 1, hidden));
    want_matrix(t, &g->up, prefix, "up_proj", rows_of(inter, 1, hidden));
    want_matrix(t, &g->down, prefix, "down_proj", cols_of(hidden, inter, 1));
}

/* [3][taps][P] in one piece: three jobs into its thirds. */
static void want_conv(struct tri__trunk *t, struct tri__kda *w, const char *p,
                      struct tri_range channels)
{
    static const char *const names[3] = { "q_conv1d", "k_conv1d", "v_conv1d" };
    int64_t taps = t->m->spec.conv_taps;
    w->conv = t->status ? NULL : take_vector(t, 3 * channels.count * taps);
    for (int i = 0; i < 3; i++) {
        struct tri__job *j = new_job(t, TRI__JOB_CONV);
        if (!j)
            return;
        snprintf(j->name, sizeof j->name, "%s%s.weight", p, names[i]);
        j->rect = (struct tri_rect){ channels.first * taps, channels.count * taps, 0, 1 };
        j->vector = w->conv + i * channels.count * taps;
    }
}

static void want_kda(struct tri__trunk *t, struct tri__kda *w, const char *p)
{
    const struct tri_spec *s = &t->m->spec;
    struct tri_range heads = t->m->slice.kda_heads;
    int64_t dim = s->kda_dim, hidden = s->hidden;
    struct tri_range channels = { heads.first * dim, heads.count * dim };

    want_matrix(t, &w->q, p, "q_proj", rows_of(heads, dim, hidden));
    want_matrix(t, &w->k, p, "k_proj", rows_of(heads, dim, hidden));
    want_matrix(t, &w->v, p, "v_proj", rows_of(heads, dim, hidden));
    want_small(t, &w->f_a, p, "f_a_proj", whole(dim, hidden));
    want_small(t, &w->f_b, p, "f_b_proj", rows_of(heads, dim, dim));
    want_small(t, &w->b, p, "b_proj", rows_of(heads, 1, hidden));
    if (s->kda_full_gate) {
        want_matrix(t, &w->g, p, "g_proj", rows_of(heads, dim, hidden));
    } else {
        want_small(t, &w->g_a, p, "g_a_proj", whole(dim, hidden));
        want_small(t, &w->g_b, p, "g_b_proj", rows_of(heads, dim, dim));
    }
    want_matrix(t, &w->o, p, "o_proj", cols_of(hidden, heads, dim));
    w->a = want_vector(t, TRI__JOB_EXP, p, "A_log", heads);
    w->dt_bias = want_vector(t, TRI__JOB_VECTOR, p, "dt_bias", channels);
    w->o_norm = want_vector(t, TRI__JOB_VECTOR, p, "o_norm.weight", (struct tri_range){ 0, dim });
    want_conv(t, w, p, channels);
}

static void want_kv_b(struct tri__trunk *t, struct tri__mla *w, const char *p)
{
    const struct tri_spec *s = &t->m->spec;
    struct tri_range heads = t->m->slice.mla_heads;
    struct tri__job *j = new_job(t, TRI__JOB_KV_B);
    w->w_uk.rows = heads.count * s->kv_rank;
    w->w_uk.cols = s->nope;
    w->w_uv.rows = heads.count * s->v_dim;
    w->w_uv.cols = s->kv_rank;
    if (!j)
        return;
    snprintf(j->name, sizeof j->name, "%skv_b_proj.weight", p);
    j->rect = rows_of(heads, s->nope + s->v_dim, s->kv_rank);
    j->matrix = &w->w_uk;
    j->matrix2 = &w->w_uv;
}

static void want_mla(struct tri__trunk *t, struct tri__mla *w, const char *p)
{
    const struct tri_spec *s = &t->m->spec;
    struct tri_range heads = t->m->slice.mla_heads;
    int64_t hidden = s->hidden, qk = s->nope + s->rope;
    if (s->q_rank) {
        want_matrix(t, &w->q_a, p, "q_a_proj", whole(s->q_rank, hidden));
        want_matrix(t, &w->q_b, p, "q_b_proj", rows_of(heads, qk, s->q_rank));
        w->q_norm = want_vector(t, TRI__JOB_VECTOR, p, "q_a_layernorm.weight",
                                (struct tri_range){ 0, s->q_rank });
    } else {
        want_matrix(t, &w->q_b, p, "q_proj", rows_of(heads, qk, hidden));
    }
    want_matrix(t, &w->kv_a, p, "kv_a_proj_with_mqa", whole(s->kv_rank + s->rope, hidden));
    w->kv_norm = want_vector(t, TRI__JOB_VECTOR, p, "kv_a_layernorm.weight",
                             (struct tri_range){ 0, s->kv_rank });
    want_kv_b(t, w, p);
    if (s->mla_gate)
        want_matrix(t, &w->g, p, "g_proj", rows_of(heads, s->v_dim, hidden));
    want_matrix(t, &w->o, p, "o_proj", cols_of(hidden, heads, s->v_dim));
}

static void want_moe(struct tri__trunk *t, struct tri__moe *w, const char *p)
{
    const struct tri_spec *s = &t->m->spec;
    char shared[128];
    want_small(t, &w->router, p, "gate", whole(s->experts, s->hidden));
    w->bias = want_vector(t, TRI__JOB_VECTOR, p, "gate.e_score_correction_bias",
                          (struct tri_range){ 0, s->experts });
    if (s->latent) {
        want_matrix(t, &w->down, p, "routed_expert_down_proj", whole(s->latent, s->hidden));
        want_matrix(t, &w->up, p, "routed_expert_up_proj", whole(s->hidden, s->latent));
    }
    if (s->latent && s->latent_norm)
        w->norm = want_vector(t, TRI__JOB_VECTOR, p, "routed_expert_norm.weight",
                              (struct tri_range){ 0, s->latent });
    if (s->shared_experts) {
        snprintf(shared, sizeof shared, "%sshared_experts.", p);
        want_glu(t, &w->shared, shared, t->m->slice.shared_inter);
    }
}

static void want_layer(struct tri__trunk *t, int64_t index)
{
    const struct tri_spec *s = &t->m->spec;
    struct tri__layer *w = &t->m->layer[index];
    struct tri_range hidden = { 0, s->hidden };
    char p[64], attn[96], ffn[96];
    snprintf(p, sizeof p, "model.layers.%lld.", (long long)index);
    snprintf(attn, sizeof attn, "%sself_attn.", p);
    snprintf(ffn, sizeof ffn, "%s%s", p,
             s->layer[index].ffn == TRI_FFN_DENSE ? "mlp." : "block_sparse_moe.");
    w->input_norm = want_vector(t, TRI__JOB_VECTOR, p, "input_layernorm.weight", hidden);
    w->post_norm = want_vector(t, TRI__JOB_VECTOR, p, "post_attention_layernorm.weight", hidden);
    if (s->attn_res_block) {
        w->attn_mix = want_fold(t, p, "self_attention_res");
        w->ffn_mix = want_fold(t, p, "mlp_res");
    }
    if (s->layer[index].attn == TRI_ATTN_KDA)
        want_kda(t, &w->kda, attn);
    else
        want_mla(t, &w->mla, attn);
    if (s->layer[index].ffn == TRI_FFN_DENSE)
        want_glu(t, &w->dense, ffn, t->m->slice.dense_inter);
    else
        want_moe(t, &w->moe, ffn);
}

void tri__trunk_list(struct tri__trunk *t)
{
    struct tri_model *m = t->m;
    const struct tri_spec *s = &m->spec;
    struct tri_range hidden = { 0, s->hidden };
    struct tri_rect rows = rows_of(m->slice.vocab, 1, s->hidden);
    m->final_norm = want_vector(t, TRI__JOB_VECTOR, "model.", "norm.weight", hidden);
    if (s->attn_res_block)
        m->out_mix = want_fold(t, "model.", "output_attn_res");
    for (int64_t i = 0; i < t->n_units && !t->status; i++) {
        t->unit_now = (int32_t)i;
        t->unit[i].first_job = t->n_jobs;
        if (i < s->layers)
            want_layer(t, i);
        else if (i == s->layers)
            want_matrix(t, &m->head, s->tied_embeddings ? "model." : "",
                        s->tied_embeddings ? "embed_tokens" : "lm_head", rows);
        else
            want_small(t, &m->embed, "model.", "embed_tokens", rows);
        t->unit[i].jobs = t->n_jobs - t->unit[i].first_job;
    }
}

/* The format a matrix gets in RAM. F16 on disk becomes float32: its range is not bf16's. */
enum tri_dtype tri__job_dtype(const struct tri__trunk *t, const struct tri__job *j)
{
    const struct tri_tensor *tensor = tri_checkpoint_find(t->m->ckpt, j->name);
    enum tri_dtype disk = tensor && tensor->dtype == TRI_DT_BF16 ? TRI_DT_BF16 : TRI_DT_F32;
    if (t->format == TRI_TRUNK_F32)
        return TRI_DT_F32;
    if (j->small || t->format == TRI_TRUNK_DISK)
        return disk;
    if (t->format == TRI_TRUNK_BF16)
        return TRI_DT_BF16;
    return t->format == TRI_TRUNK_INT8 ? TRI_DT_I8G64 : TRI_DT_I4G32;
}

/* Bytes of a matrix, rounded so that the next one begins on a cache line. */
static uint64_t placed_bytes(const struct tri_matrix *m)
{
    return (tri_matrix_bytes(m->dtype, m->rows, m->cols) + 63) & ~(uint64_t)63;
}

/* Where a matrix can begin at or after `at`: see in_place. */
static uint64_t place_for(const struct tri__trunk *t, const struct tri__job *j,
                          const struct tri_tensor *tensor, uint64_t at)
{
    if (!t->in_place || !tensor || j->kind != TRI__JOB_ROWS || tensor->dtype != j->matrix->dtype)
        return at;
    uint64_t begins = tensor->offset_bytes + (uint64_t)j->rect.row0 *
                                                 tri_row_data_bytes(tensor->dtype, 1) *
                                                 (uint64_t)tensor->shape[tensor->rank - 1];
    if (begins % sizeof(float))
        return at;
    return at + (begins - at) % TRI_DIRECT_BLOCK_BYTES;
}

void tri__trunk_place(struct tri__trunk *t)
{
    for (int64_t u = 0; u < t->n_units; u++) {
        struct tri__unit *unit = &t->unit[u];
        struct tri_matrix *last = NULL;
        uint64_t at = 0;
        unit->bytes = unit->disk_bytes = 0;
        for (int64_t i = unit->first_job; i < unit->first_job + unit->jobs; i++) {
            struct tri__job *j = &t->jobs[i];
            const struct tri_tensor *tensor = tri_checkpoint_find(t->m->ckpt, j->name);
            if (j->unit < 0)
                continue;
            if (tensor)
                unit->disk_bytes +=
                    (uint64_t)(j->rect.rows * j->rect.cols) * tri_row_data_bytes(tensor->dtype, 1);
            j->matrix->dtype = tri__job_dtype(t, j);
            if (j->matrix != last) { /* the first job of a matrix; its others share the place */
                at = place_for(t, j, tensor, unit->bytes);
                unit->bytes = (at + placed_bytes(j->matrix) + 63) & ~(uint64_t)63;
                last = j->matrix;
            }
            j->at = at;
            if (j->kind == TRI__JOB_KV_B) {
                j->matrix2->dtype = j->matrix->dtype;
                j->at2 = unit->bytes;
                unit->bytes += placed_bytes(j->matrix2);
            }
        }
    }
}
