/*
 * The LatentMoE sub-layer (K3 spec 3.5). Tokens are grouped by expert, each expert is computed once
 * for all its tokens, and each token then adds its experts in router order, so that the result does
 * not depend on grouping, timing or neighbours.
 */
#include "model/model_priv.h"

#include <string.h>

/* Experts asked of the store at once. */
enum { LEASE_MOST = 64 };

/* W: expert width (latent, or hidden without one); F: expert inner width; N = T * topk pairs. */
struct scratch {
    float *logits, *biased;      /* [T][E] */
    float *weights;              /* [N] */
    float *z;                    /* [T][W] what experts see */
    float *rows, *gate, *up, *y; /* [N][W], [N][F], [N][F], [N][W], grouped by expert */
    float *sum;                  /* [T][W] */
    float *routed;               /* [T][D] */
};

static void take_scratch(const struct tri_model *m, struct tri__arena *arena, int64_t tokens,
                         struct scratch *s)
{
    const struct tri_spec *spec = &m->spec;
    int64_t width = tri_spec_expert_width(spec), pairs = tokens * spec->topk;
    s->logits = tri__take(arena, tokens * spec->experts);
    s->biased = tri__take(arena, tokens * spec->experts);
    s->weights = tri__take(arena, pairs);
    s->z = tri__take(arena, spec->latent ? tokens * width : 0);
    s->rows = tri__take(arena, pairs * width);
    s->gate = tri__take(arena, pairs * spec->moe_inter);
    s->up = tri__take(arena, pairs * spec->moe_inter);
    s->y = tri__take(arena, pairs * width);
    s->sum = tri__take(arena, tokens * width);
    s->routed = tri__take(arena, tokens * spec->hidden);
}

int64_t tri__moe_scratch(const struct tri_model *m, int64_t tokens)
{
    struct tri__arena measure = { 0 };
    struct scratch s;
    take_scratch(m, &measure, tokens, &s);
    tri__take(&measure, tokens * m->slice.shared_inter.count); /* tri__glu_mlp */
    tri__take(&measure, tokens * m->slice.shared_inter.count);
    return measure.most;
}

/* The pairs (token, choice) sorted by expert: a counting sort, stable in token order. */
struct groups {
    int32_t *chosen; /* [N] expert of pair (t, a), as the router gave it */
    int32_t *place;  /* [N] row of the pair in the grouped arrays; -1: another rank's expert */
    int32_t *expert; /* [groups] distinct experts of ours, ascending */
    int32_t *first;  /* [groups + 1] first row of each group */
    int64_t n;
};

static void group_pairs(const struct tri_model *m, struct groups *g, int64_t pairs)
{
    const struct tri_range *ours = &m->slice.experts;
    int32_t rows = 0;
    g->n = 0;
    int32_t *count = g->first; /* borrowed until the groups are known: [E + 1] */
    memset(count, 0, (size_t)(ours->count + 1) * sizeof *count);
    for (int64_t i = 0; i < pairs; i++) {
        int64_t e = g->chosen[i] - ours->first;
        if (e >= 0 && e < ours->count)
            count[e]++;
    }
    for (int64_t e = 0; e < ours->count; e++) {
        int32_t n = count[e];
        count[e] = rows;
        rows += n;
    }
    for (int64_t i = 0; i < pairs; i++) {
        int64_t e = g->chosen[i] - ours->first;
        g->place[i] = e >= 0 && e < ours->count ? count[e]++ : -1;
    }
    /* count[e] is now the end of e's rows: compact the non-empty ones. */
    int32_t begin = 0;
    for (int64_t e = 0; e < ours->count; e++) {
        int32_t end = count[e];
        if (end > begin) {
            g->expert[g->n] = (int32_t)(ours->first + e);
            g->first[g->n++] = begin;
        }
        begin = end;
    }
    g->first[g->n] = begin;
}

struct expert_loop {
    struct tri_model *m;
    const struct scratch *s;
    const struct groups *g;
    const struct tri_expert_view *views;
    const int32_t *which; /* group of each view */
};

/* One expert on all its rows: y = w2 act(w1 z, w3 z). */
static void expert_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct expert_loop *l = arg;
    const struct tri_kernels *k = l->m->kernels;
    for (int64_t i = begin; i < end; i++) {
        const struct tri_expert_view *v = &l->views[i];
        int64_t row = l->g->first[l->which[i]], n = l->g->first[l->which[i] + 1] - row;
        int64_t width = v->w1.cols, inter = v->w1.rows;
        float *gate = l->s->gate + row * inter, *up = l->s->up + row * inter;
        struct tri_matmul_args a = { &v->w1, l->s->rows + row * width, width, gate, inter, n };
        tri_kernels_matmul(k, v->w1.dtype)(&a, 0, inter);
        a.w = &v->w3;
        a.y = up;
        tri_kernels_matmul(k, v->w3.dtype)(&a, 0, inter);
        tri__glu_rows(l->m, gate, up, gate, n * inter);
        a = (struct tri_matmul_args){ &v->w2, gate, inter, l->s->y + row * width, width, n };
        tri_kernels_matmul(k, v->w2.dtype)(&a, 0, width);
    }
}

/* Experts are computed as the store hands them out; each writes rows of its own. */
static enum tri_status run_experts(struct tri_model *m, int64_t layer, const struct scratch *s,
                                   const struct groups *g, struct tri_error *err)
{
    struct tri_expert_view views[LEASE_MOST];
    int32_t which[LEASE_MOST];
    int64_t n = 0;
    enum tri_status st = tri_experts_begin(m->experts, layer, g->expert, g->n, err);
    do {
        if (!st)
            st = tri_experts_next(m->experts, LEASE_MOST, which, views, &n, err);
        struct expert_loop l = { m, s, g, views, which };
        if (!st)
            tri_pool_for(m->pool, n, 1, expert_piece, &l);
    } while (!st && n > 0);
    return st;
}

static void route(struct tri__step *step, int64_t layer, const float *x, const struct scratch *s,
                  int32_t *chosen)
{
    struct tri_model *m = step->m;
    const struct tri_spec *spec = &m->spec;
    const struct tri__moe *w = &m->layer[layer].moe;
    tri__linear(m, &w->router, x, s->logits, step->tokens);
    struct tri_router_args args = { .logits = s->logits,
                                    .bias = w->bias,
                                    .scratch = s->biased,
                                    .experts = chosen,
                                    .weights = s->weights,
                                    .n_experts = spec->experts,
                                    .topk = spec->topk,
                                    .groups = spec->expert_groups,
                                    .topk_groups = spec->topk_groups,
                                    .renormalize = spec->renormalize,
                                    .scale = spec->routed_scale };
    m->kernels->router(&args, 0, step->tokens);
    if (step->taps && step->taps->routes)
        step->taps->routes(step->taps->arg, layer, chosen, s->weights, step->tokens, spec->topk);
}

/* sum[t] = sum over the token's choices, best first, of weight * y. */
static void combine(const struct tri_model *m, const struct scratch *s, const struct groups *g,
                    int64_t tokens)
{
    int64_t width = tri_spec_expert_width(&m->spec), topk = m->spec.topk;
    memset(s->sum, 0, (size_t)(tokens * width) * sizeof *s->sum);
    for (int64_t i = 0; i < tokens * topk; i++) {
        float *sum = s->sum + i / topk * width;
        const float *y = s->y + (int64_t)g->place[i] * width;
        for (int64_t c = 0; c < width && g->place[i] >= 0; c++)
            sum[c] += s->weights[i] * y[c];
    }
}

enum tri_status tri__moe_forward(struct tri__step *step, int64_t layer, const float *x, float *y,
                                 struct tri_error *err)
{
    struct tri_model *m = step->m;
    const struct tri_spec *spec = &m->spec;
    const struct tri__moe *w = &m->layer[layer].moe;
    int64_t tokens = step->tokens, width = tri_spec_expert_width(spec);
    int64_t most = m->chunk_tokens * spec->topk;
    struct groups g = { m->ids, m->ids + most, m->ids + 2 * most, m->ids + 2 * most + spec->experts,
                        0 };
    struct scratch s;
    m->arena.used = 0;
    take_scratch(m, &m->arena, tokens, &s);

    tri__time(m, TRI_TIME_ROUTER);
    route(step, layer, x, &s, g.chosen);
    group_pairs(m, &g, tokens * spec->topk);
    const float *z = x;
    if (spec->latent) {
        tri__time(m, TRI_TIME_LATENT);
        tri__linear(m, &w->down, x, s.z, tokens);
        z = s.z;
    }
    tri__time(m, TRI_TIME_EXPERTS);
    for (int64_t i = 0; i < tokens * spec->topk; i++)
        if (g.place[i] >= 0)
            memcpy(s.rows + g.place[i] * width, z + i / spec->topk * width,
                   (size_t)width * sizeof *z);
    enum tri_status st = run_experts(m, layer, &s, &g, err);
    if (st)
        return st;
    combine(m, &s, &g, tokens);
    tri__sum_over_ranks(m, s.sum, tokens * width);
    tri__time(m, TRI_TIME_LATENT);
    if (w->norm) {
        struct tri_rmsnorm_args norm = {
            s.sum, w->norm, s.sum, width, width, width, spec->rms_eps
        };
        tri__rmsnorm(m, &norm, tokens);
    }
    const float *routed = s.sum;
    if (spec->latent) {
        tri__linear(m, &w->up, s.sum, s.routed, tokens);
        routed = s.routed;
    }
    tri__time(m, TRI_TIME_SHARED);
    if (spec->shared_experts) {
        tri__glu_mlp(m, &w->shared, x, y, tokens);
        tri__sum_over_ranks(m, y, tokens * spec->hidden);
        for (int64_t i = 0; i < tokens * spec->hidden; i++)
            y[i] += routed[i];
    } else {
        memcpy(y, routed, (size_t)(tokens * spec->hidden) * sizeof *y);
    }
    return TRI_OK;
}
