/*
 * The LatentMoE sub-layer (K3 spec 3.5). Tokens are grouped by expert, each expert is computed once
 * for all its tokens, and each token then adds its experts in router order, so that the result does
 * not depend on grouping, timing or neighbours.
 */
#include "model/model_priv.h"

#include <string.h>

/* Experts asked of the store at once. */
enum { LEASE_MOST = 64, GATHER_VALUES = 1 << 15 /* that make a piece worth its hand-over */ };

/* W: expert width (latent, or hidden without one); F: expert inner width; N = T * topk pairs. */
struct scratch {
    float *logits, *biased; /* [T][E] */
    float *weights;         /* [N] */
    float *z;               /* [T][W] what experts see */
    float *y;               /* [N][W] what they give, grouped by expert */
    float *sum;             /* [T][W] */
    float *routed;          /* [T][D] */
    struct tri__input in, z_in, sum_in;
    struct tri__input rows;             /* [N][W] of z, grouped by expert */
    struct tri__glu_rows inner, shared; /* [N][F]; [T][shared inner] */
    struct tri__ahead ahead;
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
    s->y = tri__take(arena, pairs * width);
    s->sum = tri__take(arena, tokens * width);
    s->routed = tri__take(arena, tokens * spec->hidden);
    tri__take_input(m, arena, tokens, spec->hidden, &s->in);
    tri__take_input(m, arena, tokens, width, &s->z_in);
    tri__take_input(m, arena, tokens, width, &s->sum_in);
    tri__take_input(m, arena, pairs, width, &s->rows);
    s->rows.x = tri__take(arena, pairs * width);
    tri__take_glu(m, arena, pairs, spec->moe_inter, &s->inner);
    tri__take_glu(m, arena, tokens, m->slice.shared_inter.count, &s->shared);
    tri__take_ahead(m, arena, &s->ahead);
}

int64_t tri__moe_scratch(const struct tri_model *m, int64_t tokens)
{
    struct tri__arena measure = { 0 };
    struct scratch s;
    take_scratch(m, &measure, tokens, &s);
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

/* Copies what the experts see, once per pair, to the pair's place. Items are pairs. */
struct gather_loop {
    const struct tri_model *m;
    const struct scratch *s;
    const struct groups *g;
};

static void gather_q(const struct tri_qrows *from, int64_t row, const struct tri_qrows *to,
                     int64_t place)
{
    int64_t groups = from->q_stride / TRI_Q_GROUP;
    memcpy(to->q + place * to->q_stride, from->q + row * from->q_stride, (size_t)from->q_stride);
    memcpy(to->scale + place * groups, from->scale + row * groups,
           (size_t)groups * sizeof *to->scale);
    memcpy(to->start + place * groups, from->start + row * groups,
           (size_t)groups * sizeof *to->start);
}

static void gather_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct gather_loop *l = arg;
    const struct tri__input *from = &l->s->z_in, *to = &l->s->rows;
    float *rows = (float *)(uintptr_t)to->x; /* ours, from the arena */
    for (int64_t i = begin; i < end; i++) {
        int64_t place = l->g->place[i], row = i / l->m->spec.topk;
        if (place < 0)
            continue;
        if (from->has_paired)
            gather_q(&from->paired, row, &to->paired, place);
        else
            memcpy(rows + place * to->cols, from->x + row * from->stride,
                   (size_t)to->cols * sizeof *rows);
    }
}

static void gather(struct tri_model *m, struct scratch *s, const struct groups *g,
                   enum tri_dtype dtype)
{
    struct gather_loop l = { m, s, g };
    int64_t pairs = g->first[g->n];
    tri__set_input(&s->rows, s->rows.x, s->rows.cols, pairs);
    tri__quantised(m, &s->z_in, dtype);
    s->rows.has_paired = s->z_in.has_paired;
    tri_pool_for(m->pool, s->z_in.tokens * m->spec.topk, 1 + GATHER_VALUES / s->rows.cols,
                 gather_piece, &l);
}

/* Jobs of one round: gate and up of each expert, later down of each. */
struct round {
    struct tri_expert_view view[LEASE_MOST];
    int32_t which[LEASE_MOST]; /* group of each view */
    int64_t n;
    struct tri__product job[LEASE_MOST + 1];
};

static void up_jobs(struct tri_model *m, struct scratch *s, const struct groups *g, struct round *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        int64_t row = g->first[r->which[i]];
        tri__product_of(m, &r->job[i], &s->rows, &r->view[i].w1, s->inner.gate, m->spec.moe_inter);
        r->job[i].up = &r->view[i].w3;
        r->job[i].y_up = s->inner.up;
        tri__product_tokens(&r->job[i], row, g->first[r->which[i] + 1] - row);
    }
}

static void down_jobs(struct tri_model *m, struct scratch *s, const struct groups *g,
                      struct round *r)
{
    /* All rows from the first to the last of the round's, so that one pass quantises them. */
    int64_t first = INT64_MAX, last = 0, inter = m->spec.moe_inter, width = s->rows.cols;
    for (int64_t i = 0; i < r->n; i++) {
        first = g->first[r->which[i]] < first ? g->first[r->which[i]] : first;
        last = g->first[r->which[i] + 1] > last ? g->first[r->which[i] + 1] : last;
    }
    if (r->n > 0)
        tri__set_input(&s->inner.in, s->inner.gate + first * inter, inter, last - first);
    for (int64_t i = 0; i < r->n; i++) {
        int64_t row = g->first[r->which[i]];
        tri__product_of(m, &r->job[i], &s->inner.in, &r->view[i].w2, s->y + first * width, width);
        tri__product_tokens(&r->job[i], row - first, g->first[r->which[i] + 1] - row);
    }
}

/*
 * Experts are computed as the store hands them out; each writes rows of its own. `extra`, or NULL,
 * is a job that runs beside the first round's down projections.
 */
static enum tri_status run_experts(struct tri_model *m, int64_t layer, struct scratch *s,
                                   const struct groups *g, const struct tri__product *extra,
                                   struct tri_error *err)
{
    struct round r;
    bool first = true;
    uint64_t waited = tri_experts_wait_ns(m->experts);
    enum tri_status st = tri_experts_begin(m->experts, layer, g->expert, g->n, err);
    if (!st)
        tri__look_ahead(m, layer, s->in.x, s->in.tokens, &s->ahead);
    do {
        if (!st)
            st = tri_experts_next(m->experts, LEASE_MOST, r.which, r.view, &r.n, err);
        if (st)
            return st;
        if (first && r.n > 0)
            gather(m, s, g, r.view[0].w1.dtype);
        first = false;
        up_jobs(m, s, g, &r);
        tri__multiply(m, r.job, r.n);
        down_jobs(m, s, g, &r);
        int64_t n = r.n;
        if (extra)
            r.job[n++] = *extra;
        extra = NULL;
        tri__multiply(m, r.job, n);
    } while (r.n > 0);
    tri__time_was(m, TRI_TIME_WAIT, tri_experts_wait_ns(m->experts) - waited);
    return TRI_OK;
}

/* The first loop: everything that reads x. */
static void project(struct tri_model *m, const struct tri__moe *w, struct scratch *s)
{
    struct tri__product jobs[3];
    int64_t n = 0;
    tri__product_of(m, &jobs[n++], &s->in, &w->router, s->logits, m->spec.experts);
    if (m->spec.latent)
        tri__product_of(m, &jobs[n++], &s->in, &w->down, s->z, w->down.rows);
    if (m->spec.shared_experts)
        tri__glu_product(m, &jobs[n++], &s->in, &w->shared, &s->shared);
    tri__multiply(m, jobs, n);
}

static void route(struct tri__step *step, int64_t layer, const struct scratch *s, int32_t *chosen)
{
    struct tri_model *m = step->m;
    const struct tri_spec *spec = &m->spec;
    struct tri_router_args args = { .logits = s->logits,
                                    .bias = m->layer[layer].moe.bias,
                                    .scratch = s->biased,
                                    .experts = chosen,
                                    .weights = s->weights,
                                    .n_experts = spec->experts,
                                    .topk = spec->topk,
                                    .groups = spec->expert_groups,
                                    .topk_groups = spec->topk_groups,
                                    .renormalize = spec->renormalize,
                                    .scale = spec->routed_scale };
    tri__router(m, &args, step->tokens);
    const struct tri__routing routing = { s->logits, s->biased, s->weights, chosen };
    tri__lean_to_cache(m, layer, step->tokens, &routing);
    if (step->taps && step->taps->routes)
        step->taps->routes(step->taps->arg, layer, chosen, s->weights, step->tokens, spec->topk);
}

/* y = up(norm(sum)), or the sum itself without a latent; then the shared experts' y on top. */
static void finish(struct tri_model *m, const struct tri__moe *w, struct scratch *s, float *y,
                   int64_t tokens)
{
    const struct tri_spec *spec = &m->spec;
    int64_t width = tri_spec_expert_width(spec);
    const float *routed = s->sum;
    if (w->norm) {
        struct tri_rmsnorm_args norm = {
            s->sum, w->norm, s->sum, width, width, width, spec->rms_eps
        };
        tri__rmsnorm(m, &norm, tokens);
    }
    if (spec->latent) {
        tri__set_input(&s->sum_in, s->sum, width, tokens);
        tri__linear(m, &s->sum_in, &w->up, s->routed);
        routed = s->routed;
    }
    if (spec->shared_experts) {
        tri__sum_over_ranks(m, y, tokens * spec->hidden);
        tri__add(m, routed, y, tokens * spec->hidden);
    } else {
        memcpy(y, routed, (size_t)(tokens * spec->hidden) * sizeof *y);
    }
}

/* In five loops for one token: projections of x; gate and up of the experts; their down, with the
 * shared experts' beside it; the latent's up. */
enum tri_status tri__moe_forward(struct tri__step *step, int64_t layer, const float *x, float *y,
                                 struct tri_error *err)
{
    struct tri_model *m = step->m;
    const struct tri_spec *spec = &m->spec;
    const struct tri__moe *w = &m->layer[layer].moe;
    int64_t tokens = step->tokens, width = tri_spec_expert_width(spec), pairs = tokens * spec->topk;
    int64_t most = m->chunk_tokens * spec->topk;
    struct groups g = { m->ids, m->ids + most, m->ids + 2 * most, m->ids + 2 * most + spec->experts,
                        0 };
    struct scratch s;
    struct tri__product shared;
    m->arena.used = 0;
    take_scratch(m, &m->arena, tokens, &s);

    tri__time(m, TRI_TIME_SHARED);
    tri__set_input(&s.in, x, spec->hidden, tokens);
    project(m, w, &s);
    if (spec->shared_experts) {
        tri__set_input(&s.shared.in, s.shared.gate, s.shared.in.cols, tokens);
        tri__product_of(m, &shared, &s.shared.in, &w->shared.down, y, spec->hidden);
    }
    tri__time(m, TRI_TIME_ROUTER);
    route(step, layer, &s, g.chosen);
    group_pairs(m, &g, pairs);

    tri__time(m, TRI_TIME_EXPERTS);
    tri__set_input(&s.z_in, spec->latent ? s.z : x, width, tokens);
    enum tri_status st = run_experts(m, layer, &s, &g, spec->shared_experts ? &shared : NULL, err);
    if (st)
        return st;
    struct tri_combine_args sum = { s.y, g.place, s.weights, s.sum, spec->topk, width };
    tri__combine(m, &sum, tokens);
    tri__sum_over_ranks(m, s.sum, tokens * width);
    tri__time(m, TRI_TIME_LATENT);
    finish(m, w, &s, y, tokens);
    return TRI_OK;
}
