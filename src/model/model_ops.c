/* Kernels spread over the pool: each loop is cut so that a piece is worth handing to a thread. */
#include "model/model_priv.h"

#include <string.h>

/* Multiplications that make a piece worth its hand-over (a few microseconds). */
enum { PIECE_WORK = 1 << 14 };

static int64_t grain_of(int64_t work_per_item)
{
    return work_per_item >= PIECE_WORK ? 1 : PIECE_WORK / (work_per_item > 0 ? work_per_item : 1);
}

float *tri__take(struct tri__arena *arena, int64_t floats)
{
    float *p = arena->base ? arena->base + arena->used : NULL;
    arena->used += (floats + 15) & ~(int64_t)15; /* each array starts on a cache line */
    if (arena->used > arena->most)
        arena->most = arena->used;
    return p;
}

struct matmul_loop {
    const struct tri_kernels *kernels;
    struct tri_matmul_args args;
};

static void matmul_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct matmul_loop *l = arg;
    tri_kernels_matmul(l->kernels, l->args.w->dtype)(&l->args, begin, end);
}

void tri__matmul(const struct tri_model *m, const struct tri_matrix *w, const float *x,
                 int64_t x_stride, float *y, int64_t y_stride, int64_t tokens)
{
    struct matmul_loop l = { m->kernels, { w, x, x_stride, y, y_stride, tokens } };
    tri_pool_for(m->pool, w->rows, grain_of(w->cols * tokens), matmul_piece, &l);
}

void tri__linear(const struct tri_model *m, const struct tri_matrix *w, const float *x, float *y,
                 int64_t tokens)
{
    tri__matmul(m, w, x, w->cols, y, w->rows, tokens);
}

struct norm_loop {
    const struct tri_kernels *kernels;
    const struct tri_rmsnorm_args *args;
};

static void norm_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct norm_loop *l = arg;
    l->kernels->rmsnorm(l->args, begin, end);
}

void tri__rmsnorm(const struct tri_model *m, const struct tri_rmsnorm_args *args, int64_t tokens)
{
    struct norm_loop l = { m->kernels, args };
    tri_pool_for(m->pool, tokens, grain_of(args->width), norm_piece, &l);
}

struct mix_loop {
    const struct tri_kernels *kernels;
    const struct tri_mix_args *args;
};

static void mix_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct mix_loop *l = arg;
    l->kernels->mix(l->args, begin, end);
}

void tri__mix(const struct tri_model *m, const struct tri_mix_args *args, int64_t tokens)
{
    struct mix_loop l = { m->kernels, args };
    tri_pool_for(m->pool, tokens, grain_of(args->width * args->n), mix_piece, &l);
}

struct glu_loop {
    const struct tri_kernels *kernels;
    struct tri_glu_args args;
};

static void glu_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct glu_loop *l = arg;
    l->kernels->glu(&l->args, begin, end);
}

static struct tri_glu_args glu_args(const struct tri_model *m, const float *gate, const float *up,
                                    float *y)
{
    return (struct tri_glu_args){ .gate = gate,
                                  .up = up,
                                  .y = y,
                                  .situ = m->spec.situ,
                                  .beta = m->spec.situ_beta,
                                  .linear_beta = m->spec.situ_linear_beta };
}

void tri__glu_rows(const struct tri_model *m, const float *gate, const float *up, float *y,
                   int64_t values)
{
    struct tri_glu_args args = glu_args(m, gate, up, y);
    m->kernels->glu(&args, 0, values);
}

void tri__glu_mlp(struct tri_model *m, const struct tri__glu *w, const float *x, float *y,
                  int64_t tokens)
{
    int64_t values = tokens * w->gate.rows;
    float *gate = tri__take(&m->arena, values), *up = tri__take(&m->arena, values);
    tri__linear(m, &w->gate, x, gate, tokens);
    tri__linear(m, &w->up, x, up, tokens);
    struct glu_loop l = { m->kernels, glu_args(m, gate, up, gate) };
    tri_pool_for(m->pool, values, grain_of(16), glu_piece, &l); /* 16: a tanh costs that much */
    tri__linear(m, &w->down, gate, y, tokens);
}

struct gate_loop {
    const struct tri_kernels *kernels;
    struct tri_gate_args args;
};

static void gate_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct gate_loop *l = arg;
    l->kernels->gate(&l->args, begin, end);
}

void tri__gate_rows(const struct tri_model *m, const float *g, float *y, int64_t values)
{
    struct gate_loop l = { m->kernels, { g, y } };
    tri_pool_for(m->pool, values, grain_of(16), gate_piece, &l);
}

void tri__sum_over_ranks(const struct tri_model *m, float *rows, int64_t values)
{
    (void)rows;
    (void)values;
    TRI_ASSERT(m->slice.place.tp_size == 1 && m->slice.place.ep_size == 1);
}
