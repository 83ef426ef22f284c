/*
 * The MLA sub-layer (K3 spec 3.4), absorbed form over the compressed cache, on this rank's heads,
 * in three loops: the projections of x, then each head from its query to its gated output, then the
 * output projection.
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
    struct tri__input in, q_in, o_in;
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
    tri__take_input(m, arena, tokens, spec->hidden, &s->in);
    tri__take_input(m, arena, tokens, spec->q_rank ? spec->q_rank : spec->hidden, &s->q_in);
    tri__take_input(m, arena, tokens, heads * spec->v_dim, &s->o_in);
}

int64_t tri__mla_scratch(const struct tri_model *m, int64_t tokens)
{
    struct tri__arena measure = { 0 };
    struct scratch s;
    take_scratch(m, &measure, tokens, &s);
    return measure.most;
}

/* What depends on x alone, then the norms of the two latents. */
static void project(struct tri_model *m, const struct tri__mla *w, struct scratch *s,
                    int64_t tokens)
{
    const struct tri_spec *spec = &m->spec;
    int64_t width = spec->kv_rank + spec->rope, n = 0;
    struct tri__product jobs[3];
    if (spec->q_rank)
        tri__product_of(m, &jobs[n++], &s->in, &w->q_a, s->q_a, spec->q_rank);
    tri__product_of(m, &jobs[n++], &s->in, &w->kv_a, s->kv, width);
    if (spec->mla_gate)
        tri__product_of(m, &jobs[n++], &s->in, &w->g, s->g, w->g.rows);
    tri__multiply(m, jobs, n);
    struct tri_rmsnorm_args kv = { s->kv, w->kv_norm, s->kv,           spec->kv_rank,
                                   width, width,      spec->latent_eps };
    tri__rmsnorm(m, &kv, tokens);
    if (spec->q_rank) {
        struct tri_rmsnorm_args q = { s->q_a,       w->q_norm,    s->q_a,          spec->q_rank,
                                      spec->q_rank, spec->q_rank, spec->latent_eps };
        tri__rmsnorm(m, &q, tokens);
    }
}

/* Latents of the step's tokens to the end of each run's cache. */
static void fill_caches(struct tri__step *step, const struct tri__layer *layer,
                        const struct scratch *s)
{
    const struct tri_spec *spec = &step->m->spec;
    int64_t width = spec->kv_rank + spec->rope, row = 0;
    for (int64_t i = 0; i < step->n_runs; i++) {
        const struct tri_run *run = &step->runs[i];
        tri_state_put_mla(run->state, layer->state_index, tri_state_tokens(run->state),
                          s->kv + row * width, run->n_tokens);
        row += run->n_tokens;
    }
}

/* The second loop: items are heads, each for all tokens of all runs. */
struct heads_loop {
    struct tri__step *step;
    const struct tri__layer *layer;
    const struct scratch *s;
    struct tri__product q; /* q_b */
};

/* A matrix that is one block of rows per head: head h reads x_head columns from h * x_head on. */
static void per_head(const struct tri_model *m, struct tri_matmul_args a, int64_t x_head,
                     int64_t h0, int64_t h1)
{
    int64_t rows = a.w->rows / m->slice.mla_heads.count;
    a.x += h0 * x_head;
    for (int64_t h = h0; h < h1; h++, a.x += x_head)
        tri_kernels_matmul(m->kernels, a.w->dtype)(&a, h * rows, (h + 1) * rows);
}

static void attend(const struct heads_loop *l, const struct tri_run *run, int64_t row, int64_t h0,
                   int64_t h1)
{
    const struct tri_model *m = l->step->m;
    const struct tri_spec *spec = &m->spec;
    int64_t heads = m->slice.mla_heads.count, qk = spec->nope + spec->rope;
    struct tri_mla_args args = { .ql = l->s->ql + row * heads * spec->kv_rank,
                                 .q = l->s->q + row * heads * qk,
                                 .cache = tri_state_mla(run->state, l->layer->state_index),
                                 .cache_dtype = tri_state_form(run->state).cache,
                                 .ol = l->s->ol + row * heads * spec->kv_rank,
                                 .tokens = run->n_tokens,
                                 .past = tri_state_tokens(run->state),
                                 .heads = heads,
                                 .nope = spec->nope,
                                 .rope = spec->rope,
                                 .rank = spec->kv_rank,
                                 .scale = (float)(1 / sqrt((double)qk)) };
    m->kernels->mla(&args, h0, h1);
}

static void heads_piece(void *arg, int64_t h0, int64_t h1, int thread)
{
    (void)thread;
    const struct heads_loop *l = arg;
    const struct tri__step *step = l->step;
    const struct tri_model *m = step->m;
    const struct tri_matrix *uk = &l->layer->mla.w_uk, *uv = &l->layer->mla.w_uv;
    const struct scratch *s = l->s;
    int64_t heads = m->slice.mla_heads.count, qk = m->spec.nope + m->spec.rope;
    int64_t v = m->spec.v_dim, rank = m->spec.kv_rank, tokens = step->tokens;
    tri__product_rows(m, &l->q, h0 * qk, h1 * qk);
    per_head(m, (struct tri_matmul_args){ uk, s->q, heads * qk, s->ql, uk->rows, tokens }, qk, h0,
             h1);
    for (int64_t i = 0, row = 0; i < step->n_runs; row += step->runs[i++].n_tokens)
        attend(l, &step->runs[i], row, h0, h1);
    per_head(m, (struct tri_matmul_args){ uv, s->ol, heads * rank, s->o, uv->rows, tokens }, rank,
             h0, h1);
    for (int64_t t = 0; t < tokens && m->spec.mla_gate; t++) {
        struct tri_gate_args gate = { s->g + t * heads * v, s->o + t * heads * v };
        m->kernels->gate(&gate, h0 * v, h1 * v);
    }
}

/* Heads of a piece while decoding: eight walk the cache together (kernels, mla), and a thread gets
 * several pieces where it has more, so that one that was held up does not hold up the others. */
static int64_t decode_grain(int64_t heads, int64_t threads)
{
    enum { TOGETHER = 8, PIECES = 4 };
    int64_t share = heads / threads > 1 ? heads / threads : 1;
    int64_t grain = (share / PIECES + TOGETHER - 1) / TOGETHER * TOGETHER;
    return grain > 0 && grain < share ? grain : share;
}

void tri__mla_forward(struct tri__step *step, int64_t index, const float *x, float *y)
{
    struct tri_model *m = step->m;
    const struct tri__layer *layer = &m->layer[index];
    const struct tri__mla *w = &layer->mla;
    const struct tri_spec *spec = &m->spec;
    int64_t tokens = step->tokens, heads = m->slice.mla_heads.count;
    struct scratch s;
    m->arena.used = 0;
    take_scratch(m, &m->arena, tokens, &s);

    tri__set_input(&s.in, x, spec->hidden, tokens);
    project(m, w, &s, tokens);
    fill_caches(step, layer, &s);

    struct heads_loop l = { .step = step, .layer = layer, .s = &s };
    tri__set_input(&s.q_in, spec->q_rank ? s.q_a : x, w->q_b.cols, tokens);
    tri__product_of(m, &l.q, &s.q_in, &w->q_b, s.q, w->q_b.rows);
    /* One token: a thread's heads together, so that the cache is read once for all of them. */
    int64_t grain = tokens == step->n_runs ? decode_grain(heads, tri_pool_threads(m->pool)) : 1;
    tri_pool_for(m->pool, heads, grain, heads_piece, &l);

    tri__set_input(&s.o_in, s.o, w->o.cols, tokens);
    tri__linear(m, &s.o_in, &w->o, y);
    tri__sum_over_ranks(m, y, tokens * spec->hidden);
}
