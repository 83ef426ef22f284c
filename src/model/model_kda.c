/* The KDA sub-layer (K3 spec 3.3), on this rank's heads. */
#include "model/model_priv.h"

#include <string.h>

/* Arrays of one call, [T][...]; P = heads * dim of this rank. */
struct scratch {
    float *u[3];  /* q, k, v before the convolution, [T][P] */
    float *c[3];  /* after it */
    float *low;   /* [T][dim] between the low-rank pairs */
    float *z, *g; /* [T][P] forget gate's projection, output gate's */
    float *b;     /* [T][H] */
    float *o;     /* [T][P] */
};

static void take_scratch(const struct tri_model *m, struct tri__arena *arena, int64_t tokens,
                         struct scratch *s)
{
    int64_t heads = m->slice.kda_heads.count, width = heads * m->spec.kda_dim;
    for (int i = 0; i < 3; i++) {
        s->u[i] = tri__take(arena, tokens * width);
        s->c[i] = tri__take(arena, tokens * width);
    }
    s->low = tri__take(arena, tokens * m->spec.kda_dim);
    s->z = tri__take(arena, tokens * width);
    s->g = tri__take(arena, tokens * width);
    s->b = tri__take(arena, tokens * heads);
    s->o = tri__take(arena, tokens * width);
}

int64_t tri__kda_scratch(const struct tri_model *m, int64_t tokens)
{
    struct tri__arena measure = { 0 };
    struct scratch s;
    take_scratch(m, &measure, tokens, &s);
    return measure.most;
}

struct conv_loop {
    const struct tri_kernels *kernels;
    struct tri_conv_args args[3];
    int64_t channels;
};

/* Items are channels of q, then of k, then of v. */
static void conv_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct conv_loop *l = arg;
    for (int i = 0; i < 3; i++) {
        int64_t c0 = begin - i * l->channels, c1 = end - i * l->channels;
        c0 = c0 > 0 ? c0 : 0;
        c1 = c1 < l->channels ? c1 : l->channels;
        if (c0 < c1)
            l->kernels->conv(&l->args[i], c0, c1);
    }
}

static void convolve(struct tri_model *m, const struct tri__layer *layer, const struct scratch *s,
                     const struct tri_run *run, int64_t row)
{
    int64_t width = m->slice.kda_heads.count * m->spec.kda_dim, taps = m->spec.conv_taps;
    float *tail = tri_state_conv(run->state, layer->state_index);
    struct conv_loop l = { .kernels = m->kernels, .channels = width };
    for (int i = 0; i < 3; i++)
        l.args[i] = (struct tri_conv_args){ .x = s->u[i] + row * width,
                                            .tail = tail + i * (taps - 1) * width,
                                            .w = layer->kda.conv + i * width * taps,
                                            .y = s->c[i] + row * width,
                                            .tokens = run->n_tokens,
                                            .channels = width,
                                            .taps = taps,
                                            .x_stride = width,
                                            .y_stride = width };
    tri_pool_for(m->pool, 3 * width, 1 + 2048 / run->n_tokens, conv_piece, &l);
}

struct kda_loop {
    void (*kernel)(const struct tri_kda_args *, int64_t, int64_t);
    struct tri_kda_args args;
};

static void kda_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct kda_loop *l = arg;
    l->kernel(&l->args, begin, end);
}

static void recur(struct tri_model *m, const struct tri__layer *layer, const struct scratch *s,
                  const struct tri_run *run, int64_t row)
{
    const struct tri_spec *spec = &m->spec;
    int64_t heads = m->slice.kda_heads.count, at = row * heads * spec->kda_dim;
    struct kda_loop l = { .args = { .q = s->c[0] + at,
                                    .k = s->c[1] + at,
                                    .v = s->c[2] + at,
                                    .z = s->z + at,
                                    .b = s->b + row * heads,
                                    .a = layer->kda.a,
                                    .dt_bias = layer->kda.dt_bias,
                                    .state = tri_state_kda(run->state, layer->state_index),
                                    .o = s->o + at,
                                    .tokens = run->n_tokens,
                                    .heads = heads,
                                    .dim = spec->kda_dim,
                                    .bounded = spec->kda_bounded_gate,
                                    .gate_bound = spec->kda_gate_bound } };
    /* Only the bounded gate keeps e^-G of a tile in range; one token gains nothing from a tile. */
    int chunked = run->n_tokens > 1 && spec->kda_bounded_gate && spec->kda_gate_bound >= -5 &&
                  spec->kda_dim <= TRI_KDA_MAX_DIM;
    l.kernel = chunked ? m->kernels->kda_chunk : m->kernels->kda_step;
    tri_pool_for(m->pool, heads, 1, kda_piece, &l);
}

struct norm_loop {
    const struct tri_kernels *kernels;
    struct tri_gated_norm_args args;
};

static void norm_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct norm_loop *l = arg;
    l->kernels->gated_norm(&l->args, begin, end);
}

void tri__kda_forward(struct tri__step *step, int64_t index, const float *x, float *y)
{
    struct tri_model *m = step->m;
    const struct tri__layer *layer = &m->layer[index];
    const struct tri__kda *w = &layer->kda;
    int64_t tokens = step->tokens;
    struct scratch s;
    m->arena.used = 0;
    take_scratch(m, &m->arena, tokens, &s);

    tri__linear(m, &w->q, x, s.u[0], tokens);
    tri__linear(m, &w->k, x, s.u[1], tokens);
    tri__linear(m, &w->v, x, s.u[2], tokens);
    tri__linear(m, &w->f_a, x, s.low, tokens);
    tri__linear(m, &w->f_b, s.low, s.z, tokens);
    tri__linear(m, &w->b, x, s.b, tokens);
    if (m->spec.kda_full_gate) {
        tri__linear(m, &w->g, x, s.g, tokens);
    } else {
        tri__linear(m, &w->g_a, x, s.low, tokens);
        tri__linear(m, &w->g_b, s.low, s.g, tokens);
    }
    int64_t row = 0;
    for (int64_t i = 0; i < step->n_runs; i++) {
        convolve(m, layer, &s, &step->runs[i], row);
        recur(m, layer, &s, &step->runs[i], row);
        row += step->runs[i].n_tokens;
    }
    struct norm_loop l = { m->kernels,
                           { .o = s.o,
                             .g = s.g,
                             .w = w->o_norm,
                             .y = s.o,
                             .heads = m->slice.kda_heads.count,
                             .dim = m->spec.kda_dim,
                             .eps = m->spec.rms_eps } };
    tri_pool_for(m->pool, tokens, 1, norm_piece, &l);
    tri__linear(m, &w->o, s.o, y, tokens);
    tri__sum_over_ranks(m, y, tokens * m->spec.hidden);
}
