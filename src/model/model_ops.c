/* Kernels spread over the pool: each loop is cut so that a piece is worth handing to a thread. */
#include "model/model_priv.h"

#include <string.h>

/* Multiplications that make a piece worth its hand-over (a few microseconds). */
enum { PIECE_WORK = 1 << 14 };

static int64_t grain_of(int64_t work_per_item)
{
    return work_per_item >= PIECE_WORK ? 1 : PIECE_WORK / (work_per_item > 0 ? work_per_item : 1);
}

struct loop {
    const struct tri_kernels *kernels;
    const void *args;
};

#define POOL_LOOP(op, struct_args)                                                                 \
    static void op##_piece(void *arg, int64_t begin, int64_t end, int thread)                      \
    {                                                                                              \
        (void)thread;                                                                              \
        const struct loop *l = arg;                                                                \
        l->kernels->op((const struct struct_args *)l->args, begin, end);                           \
    }

POOL_LOOP(rmsnorm, tri_rmsnorm_args)
POOL_LOOP(mix, tri_mix_args)
POOL_LOOP(add, tri_add_args)
POOL_LOOP(router, tri_router_args)
POOL_LOOP(combine, tri_combine_args)

void tri__rmsnorm(const struct tri_model *m, const struct tri_rmsnorm_args *args, int64_t tokens)
{
    struct loop l = { m->kernels, args };
    tri_pool_for(m->pool, tokens, grain_of(args->width), rmsnorm_piece, &l);
}

void tri__mix(const struct tri_model *m, const struct tri_mix_args *args, int64_t tokens)
{
    struct loop l = { m->kernels, args };
    tri_pool_for(m->pool, tokens, grain_of(args->width * args->n), mix_piece, &l);
}

void tri__add(const struct tri_model *m, const float *x, float *y, int64_t values)
{
    struct tri_add_args args = { x, y };
    struct loop l = { m->kernels, &args };
    tri_pool_for(m->pool, values, PIECE_WORK, add_piece, &l);
}

void tri__router(const struct tri_model *m, const struct tri_router_args *args, int64_t tokens)
{
    struct loop l = { m->kernels, args };
    tri_pool_for(m->pool, tokens, grain_of(args->n_experts * args->topk), router_piece, &l);
}

void tri__combine(const struct tri_model *m, const struct tri_combine_args *args, int64_t tokens)
{
    struct loop l = { m->kernels, args };
    tri_pool_for(m->pool, tokens, grain_of(args->width * args->topk), combine_piece, &l);
}

void tri__glu_rows(const struct tri_model *m, const float *gate, const float *up, float *y,
                   int64_t values)
{
    struct tri_glu_args args = { .gate = gate,
                                 .up = up,
                                 .y = y,
                                 .situ = m->spec.situ,
                                 .beta = m->spec.situ_beta,
                                 .linear_beta = m->spec.situ_linear_beta };
    m->kernels->glu(&args, 0, values);
}

/* Arrays of a gated MLP: gate (then its activation) and up, [T][inter], and the former as input. */
void tri__take_glu(const struct tri_model *m, struct tri__arena *arena, int64_t tokens,
                   int64_t inter, struct tri__glu_rows *out)
{
    out->gate = tri__take(arena, tokens * inter);
    out->up = tri__take(arena, tokens * inter);
    tri__take_input(m, arena, tokens, inter, &out->in);
}

void tri__glu_product(const struct tri_model *m, struct tri__product *job, struct tri__input *in,
                      const struct tri__glu *w, const struct tri__glu_rows *rows)
{
    tri__product_of(m, job, in, &w->gate, rows->gate, w->gate.rows);
    job->up = &w->up;
    job->y_up = rows->up;
}

void tri__sum_over_ranks(const struct tri_model *m, float *rows, int64_t values)
{
    (void)rows;
    (void)values;
    TRI_ASSERT(m->slice.place.tp_size == 1 && m->slice.place.ep_size == 1);
}
