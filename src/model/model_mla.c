/* The MLA sub-layer (K3 spec 3.4), absorbed form over the compressed cache, on this rank's heads.
 */
#include "model/model_priv.h"

#include <math.h>
#include <string.h>

struct scratch {
    float *q_a; /* [T][q_rank] */
    float *q;   /* [T][H][nope + rope] */
    float *kv;  /* [T][rank + rope] */
    float *ql;  /* [T][H][rank] queries in latent space */
    float *ol;  /* [T][H][rank] attended latents */
    float *o;   /* [T][H][v] */
    float *g;   /* [T][H][v] */
};

static void take_scratch(const struct tri_model *m, struct tri__arena *arena, int64_t tokens,
                         struct scratch *s)
{
    const struct tri_spec *spec = &m->spec;
    int64_t heads = m->slice.mla_heads.count;
    s->q_a = tri__take(arena, tokens * spec->q_rank);
    s->q = tri__take(arena, tokens * heads * (spec->nope + spec->rope));
    s->kv = tri__take(arena, tokens * (spec->kv_rank + spec->rope));
    s->ql = tri__take(arena, tokens * heads * spec->kv_rank);
    s->ol = tri__take(arena, tokens * heads * spec->kv_rank);
    s->o = tri__take(arena, tokens * heads * spec->v_dim);
    s->g = tri__take(arena, tokens * heads * spec->v_dim);
}

int64_t tri__mla_scratch(const struct tri_model *m, int64_t tokens)
{
    struct tri__arena measure = { 0 };
    struct scratch s;
    take_scratch(m, &measure, tokens, &s);
    return measure.most;
}

/* A matrix that is one block per head: block h maps x + h * x_width to y rows of the same block. */
struct heads_loop {
    const struct tri_kernels *kernels;
    const struct tri_matrix *w; /* [H * rows][x_width] */
    const float *x;
    float *y;
    int64_t heads, x_head, x_stride, tokens;
};

static void heads_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct heads_loop *l = arg;
    int64_t rows = l->w->rows / l->heads;
    for (int64_t h = begin; h < end; h++) {
        struct tri_matmul_args args = { l->w, l->x + h * l->x_head, l->x_stride,
                                        l->y, l->w->rows,           l->tokens };
        tri_kernels_matmul(l->kernels, l->w->dtype)(&args, h * rows, (h + 1) * rows);
    }
}

static void queries(struct tri_model *m, const struct tri__mla *w, const float *x,
                    const struct scratch *s, int64_t tokens)
{
    const struct tri_spec *spec = &m->spec;
    int64_t heads = m->slice.mla_heads.count, width = spec->nope + spec->rope;
    if (spec->q_rank) {
        tri__linear(m, &w->q_a, x, s->q_a, tokens);
        struct tri_rmsnorm_args norm = { s->q_a,       w->q_norm,    s->q_a,          spec->q_rank,
                                         spec->q_rank, spec->q_rank, spec->latent_eps };
        tri__rmsnorm(m, &norm, tokens);
        tri__linear(m, &w->q_b, s->q_a, s->q, tokens);
    } else {
        tri__linear(m, &w->q_b, x, s->q, tokens);
    }
    struct heads_loop l = {
        m->kernels, &w->w_uk, s->q, s->ql, heads, width, heads * width, tokens
    };
    tri_pool_for(m->pool, heads, 1, heads_piece, &l);
}

/* Latents of the step's tokens, normalised, to the end of each run's cache. */
static void fill_caches(struct tri__step *step, const struct tri__layer *layer, const float *x,
                        const struct scratch *s)
{
    struct tri_model *m = step->m;
    int64_t width = m->spec.kv_rank + m->spec.rope;
    tri__linear(m, &layer->mla.kv_a, x, s->kv, step->tokens);
    struct tri_rmsnorm_args norm = { s->kv, layer->mla.kv_norm, s->kv, m->spec.kv_rank, width,
                                     width, m->spec.latent_eps };
    tri__rmsnorm(m, &norm, step->tokens);
    int64_t row = 0;
    for (int64_t i = 0; i < step->n_runs; i++) {
        const struct tri_run *run = &step->runs[i];
        float *cache = tri_state_mla(run->state, layer->state_index);
        memcpy(cache + tri_state_tokens(run->state) * width, s->kv + row * width,
               (size_t)(run->n_tokens * width) * sizeof *cache);
        row += run->n_tokens;
    }
}

struct attend_loop {
    const struct tri_kernels *kernels;
    struct tri_mla_args args;
};

static void attend_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct attend_loop *l = arg;
    l->kernels->mla(&l->args, begin, end);
}

static void attend(struct tri__step *step, const struct tri__layer *layer, const struct scratch *s)
{
    struct tri_model *m = step->m;
    const struct tri_spec *spec = &m->spec;
    int64_t heads = m->slice.mla_heads.count, row = 0;
    for (int64_t i = 0; i < step->n_runs; i++) {
        const struct tri_run *run = &step->runs[i];
        struct attend_loop l = { m->kernels,
                                 { .ql = s->ql + row * heads * spec->kv_rank,
                                   .q = s->q + row * heads * (spec->nope + spec->rope),
                                   .cache = tri_state_mla(run->state, layer->state_index),
                                   .ol = s->ol + row * heads * spec->kv_rank,
                                   .tokens = run->n_tokens,
                                   .past = tri_state_tokens(run->state),
                                   .heads = heads,
                                   .nope = spec->nope,
                                   .rope = spec->rope,
                                   .rank = spec->kv_rank,
                                   .scale =
                                       (float)(1 / sqrt((double)(spec->nope + spec->rope))) } };
        tri_pool_for(m->pool, run->n_tokens * heads, 1, attend_piece, &l);
        row += run->n_tokens;
    }
}

void tri__mla_forward(struct tri__step *step, int64_t index, const float *x, float *y)
{
    struct tri_model *m = step->m;
    const struct tri__layer *layer = &m->layer[index];
    const struct tri__mla *w = &layer->mla;
    int64_t tokens = step->tokens, heads = m->slice.mla_heads.count;
    struct scratch s;
    m->arena.used = 0;
    take_scratch(m, &m->arena, tokens, &s);

    queries(m, w, x, &s, tokens);
    fill_caches(step, layer, x, &s);
    attend(step, layer, &s);
    struct heads_loop l = {
        m->kernels, &w->w_uv, s.ol, s.o, heads, m->spec.kv_rank, heads * m->spec.kv_rank, tokens
    };
    tri_pool_for(m->pool, heads, 1, heads_piece, &l);
    if (m->spec.mla_gate) {
        tri__linear(m, &w->g, x, s.g, tokens);
        tri__gate_rows(m, s.g, s.o, tokens * heads * m->spec.v_dim);
    }
    tri__linear(m, &w->o, s.o, y, tokens);
    tri__sum_over_ranks(m, y, tokens * m->spec.hidden);
}
