/*
 * The KDA sub-layer (K3 spec 3.3), on this rank's heads, in three loops: the projections of x, then
 * each head on its own from forget gate to output gate, then the output projection.
 */
#include "model/model_priv.h"

#include <string.h>

/* Arrays of one call, [T][...]; P = heads * dim of this rank. */
struct scratch {
    float *u[3];       /* q, k, v before the convolution, [T][P] */
    float *c[3];       /* after it */
    float *low, *glow; /* [T][dim] between the low-rank pairs */
    float *z, *g;      /* [T][P] forget gate's projection, output gate's */
    float *b;          /* [T][H] */
    float *o;          /* [T][P] */
    struct tri__input in, low_in, glow_in, o_in;
};

static void take_scratch(const struct tri_model *m, struct tri__arena *arena, int64_t tokens,
                         struct scratch *s)
{
    int64_t heads = m->slice.kda_heads.count, dim = m->spec.kda_dim, width = heads * dim;
    for (int i = 0; i < 3; i++) {
        s->u[i] = tri__take(arena, tokens * width);
        s->c[i] = tri__take(arena, tokens * width);
    }
    s->low = tri__take(arena, tokens * dim);
    s->glow = tri__take(arena, m->spec.kda_full_gate ? 0 : tokens * dim);
    s->z = tri__take(arena, tokens * width);
    s->g = tri__take(arena, tokens * width);
    s->b = tri__take(arena, tokens * heads);
    s->o = tri__take(arena, tokens * width);
    tri__take_input(m, arena, tokens, m->spec.hidden, &s->in);
    tri__take_input(m, arena, tokens, dim, &s->low_in);
    tri__take_input(m, arena, tokens, dim, &s->glow_in);
    tri__take_input(m, arena, tokens, width, &s->o_in);
}

int64_t tri__kda_scratch(const struct tri_model *m, int64_t tokens)
{
    struct tri__arena measure = { 0 };
    struct scratch s;
    take_scratch(m, &measure, tokens, &s);
    return measure.most;
}

/* The second loop: items are heads, each for all tokens of all runs. */
struct heads_loop {
    struct tri__step *step;
    const struct tri__layer *layer;
    const struct scratch *s;
    struct tri__product z, g; /* low rank to head width; g.w NULL with a full-rank gate */
};

static void convolve(const struct heads_loop *l, const struct tri_run *run, int64_t row, int64_t h)
{
    const struct tri_model *m = l->step->m;
    int64_t dim = m->spec.kda_dim, width = m->slice.kda_heads.count * dim;
    int64_t taps = m->spec.conv_taps;
    float *tail = tri_state_conv(run->state, l->layer->state_index);
    for (int i = 0; i < 3; i++) {
        struct tri_conv_args args = { .x = l->s->u[i] + row * width,
                                      .tail = tail + i * (taps - 1) * width,
                                      .w = l->layer->kda.conv + i * width * taps,
                                      .y = l->s->c[i] + row * width,
                                      .tokens = run->n_tokens,
                                      .channels = width,
                                      .taps = taps,
                                      .x_stride = width,
                                      .y_stride = width };
        m->kernels->conv(&args, h * dim, (h + 1) * dim);
    }
}

static void recur(const struct heads_loop *l, const struct tri_run *run, int64_t row, int64_t h)
{
    const struct tri_model *m = l->step->m;
    const struct tri_spec *spec = &m->spec;
    int64_t heads = m->slice.kda_heads.count, at = row * heads * spec->kda_dim;
    struct tri_kda_args args = { .q = l->s->c[0] + at,
                                 .k = l->s->c[1] + at,
                                 .v = l->s->c[2] + at,
                                 .z = l->s->z + at,
                                 .b = l->s->b + row * heads,
                                 .a = l->layer->kda.a,
                                 .dt_bias = l->layer->kda.dt_bias,
                                 .state = tri_state_kda(run->state, l->layer->state_index),
                                 .state_dtype = tri_state_form(run->state).kda,
                                 .o = l->s->o + at,
                                 .tokens = run->n_tokens,
                                 .heads = heads,
                                 .dim = spec->kda_dim,
                                 .bounded = spec->kda_bounded_gate,
                                 .gate_bound = spec->kda_gate_bound };
    /* Only the bounded gate keeps e^-G of a tile in range; one token gains nothing from a tile. A
     * last tile of one token is a step too: it may as well be a run of its own, and must then have
     * the same bits. */
    if (spec->kda_bounded_gate && spec->kda_gate_bound >= -5 && spec->kda_dim <= TRI_KDA_MAX_DIM) {
        int64_t tiled = run->n_tokens - (run->n_tokens % TRI_KDA_TILE == 1);
        args.tokens = tiled;
        if (tiled)
            m->kernels->kda_chunk(&args, h, h + 1);
        at = tiled * heads * spec->kda_dim;
        args.q += at;
        args.k += at;
        args.v += at;
        args.z += at;
        args.b += tiled * heads;
        args.o += at;
        args.tokens = run->n_tokens - tiled;
    }
    if (args.tokens)
        m->kernels->kda_step(&args, h, h + 1);
}

static void heads_piece(void *arg, int64_t h0, int64_t h1, int thread)
{
    (void)thread;
    const struct heads_loop *l = arg;
    const struct tri__step *step = l->step;
    const struct tri_model *m = step->m;
    int64_t dim = m->spec.kda_dim;
    struct tri_gated_norm_args norm = { .o = l->s->o,
                                        .g = l->s->g,
                                        .w = l->layer->kda.o_norm,
                                        .y = l->s->o,
                                        .tokens = step->tokens,
                                        .heads = m->slice.kda_heads.count,
                                        .dim = dim,
                                        .eps = m->spec.rms_eps };
    for (int64_t h = h0; h < h1; h++) {
        tri__product_rows(m, &l->z, h * dim, (h + 1) * dim);
        for (int64_t i = 0, row = 0; i < step->n_runs; row += step->runs[i++].n_tokens) {
            convolve(l, &step->runs[i], row, h);
            recur(l, &step->runs[i], row, h);
        }
        if (l->g.w)
            tri__product_rows(m, &l->g, h * dim, (h + 1) * dim);
        m->kernels->gated_norm(&norm, h, h + 1);
    }
}

static void project(struct tri_model *m, const struct tri__kda *w, struct scratch *s)
{
    struct tri__product jobs[7];
    int64_t width = w->q.rows, n = 0;
    tri__product_of(m, &jobs[n++], &s->in, &w->q, s->u[0], width);
    tri__product_of(m, &jobs[n++], &s->in, &w->k, s->u[1], width);
    tri__product_of(m, &jobs[n++], &s->in, &w->v, s->u[2], width);
    if (m->spec.kda_full_gate)
        tri__product_of(m, &jobs[n++], &s->in, &w->g, s->g, width);
    else
        tri__product_of(m, &jobs[n++], &s->in, &w->g_a, s->glow, m->spec.kda_dim);
    tri__product_of(m, &jobs[n++], &s->in, &w->f_a, s->low, m->spec.kda_dim);
    tri__product_of(m, &jobs[n++], &s->in, &w->b, s->b, w->b.rows);
    tri__multiply(m, jobs, n);
}

void tri__kda_forward(struct tri__step *step, int64_t index, const float *x, float *y)
{
    struct tri_model *m = step->m;
    const struct tri__layer *layer = &m->layer[index];
    const struct tri__kda *w = &layer->kda;
    int64_t tokens = step->tokens, dim = m->spec.kda_dim;
    struct scratch s;
    m->arena.used = 0;
    take_scratch(m, &m->arena, tokens, &s);

    tri__set_input(&s.in, x, m->spec.hidden, tokens);
    project(m, w, &s);

    struct heads_loop l = { .step = step, .layer = layer, .s = &s };
    tri__set_input(&s.low_in, s.low, dim, tokens);
    tri__product_of(m, &l.z, &s.low_in, &w->f_b, s.z, w->f_b.rows);
    if (!m->spec.kda_full_gate) {
        tri__set_input(&s.glow_in, s.glow, dim, tokens);
        tri__product_of(m, &l.g, &s.glow_in, &w->g_b, s.g, w->g_b.rows);
    }
    tri_pool_for(m->pool, m->slice.kda_heads.count, 1, heads_piece, &l);

    tri__set_input(&s.o_in, s.o, w->o.cols, tokens);
    tri__linear(m, &s.o_in, &w->o, y);
    tri__sum_over_ranks(m, y, tokens * m->spec.hidden);
}
