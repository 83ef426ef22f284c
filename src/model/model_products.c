/*
 * Matrix products as lists of jobs that share one parallel loop: a token at a time, a join costs as
 * much as a small matrix, so everything that reads the same rows runs between two joins. Rows are
 * quantised once, for all matrices that take int8 activations.
 */
#include "model/model_priv.h"

#include <string.h>

enum {
    ROUNDS = 5,               /* of pieces, each half of what is left: the last evens out threads */
    QUANTISE_VALUES = 1 << 14 /* values that make a piece worth its hand-over */
};

float *tri__take(struct tri__arena *arena, int64_t floats)
{
    float *p = arena->base ? arena->base + arena->used : NULL;
    arena->used += (floats + 15) & ~(int64_t)15; /* each array starts on a cache line */
    if (arena->used > arena->most)
        arena->most = arena->used;
    return p;
}

static void take_qrows(struct tri__arena *arena, int64_t tokens, int64_t cols, bool paired,
                       struct tri_qrows *out)
{
    int64_t stride = tri_q_stride(cols), groups = tokens * (stride / TRI_Q_GROUP);
    out->q_stride = stride;
    out->paired = paired;
    out->q = (int8_t *)tri__take(arena, tokens * stride / 4);
    out->scale = tri__take(arena, groups);
    out->start = (int32_t *)tri__take(arena, groups);
}

void tri__take_input(const struct tri_model *m, struct tri__arena *arena, int64_t tokens,
                     int64_t cols, struct tri__input *in)
{
    *in = (struct tri__input){ .cols = cols };
    if (m->act != TRI_ACT_INT8)
        return;
    take_qrows(arena, tokens, cols, false, &in->plain);
    take_qrows(arena, tokens, cols, true, &in->paired);
}

void tri__set_input(struct tri__input *in, const float *x, int64_t stride, int64_t tokens)
{
    in->x = x;
    in->stride = stride;
    in->tokens = tokens;
    in->has_plain = in->has_paired = false;
}

struct quantise_loop {
    const struct tri_kernels *kernels;
    struct tri_quantise_args args;
};

static void quantise_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct quantise_loop *l = arg;
    l->kernels->quantise(&l->args, begin, end);
}

struct tri_qrows tri__quantised(const struct tri_model *m, struct tri__input *in,
                                enum tri_dtype dtype)
{
    struct tri_qrows none = { 0 };
    if (m->act != TRI_ACT_INT8 || !tri_kernels_qmatmul(m->kernels, dtype))
        return none;
    bool paired = dtype != TRI_DT_I8G64;
    struct tri_qrows *q = paired ? &in->paired : &in->plain;
    bool *has = paired ? &in->has_paired : &in->has_plain;
    if (!*has) {
        struct quantise_loop l = { m->kernels, { in->x, in->stride, in->cols, *q } };
        tri_pool_for(m->pool, in->tokens, 1 + QUANTISE_VALUES / in->cols, quantise_piece, &l);
        *has = true;
    }
    return *q;
}

void tri__product_of(const struct tri_model *m, struct tri__product *job, struct tri__input *in,
                     const struct tri_matrix *w, float *y, int64_t y_stride)
{
    *job = (struct tri__product){ .w = w,
                                  .x = in->x,
                                  .x_stride = in->stride,
                                  .q = tri__quantised(m, in, w->dtype),
                                  .y = y,
                                  .y_stride = y_stride,
                                  .tokens = in->tokens };
}

void tri__product_tokens(struct tri__product *job, int64_t first, int64_t tokens)
{
    int64_t groups = job->q.q_stride / TRI_Q_GROUP;
    job->x += first * job->x_stride;
    if (job->q.q) {
        job->q.q += first * job->q.q_stride;
        job->q.scale += first * groups;
        job->q.start += first * groups;
    }
    job->y += first * job->y_stride;
    if (job->up)
        job->y_up += first * job->y_stride;
    job->tokens = tokens;
}

static void multiply(const struct tri_model *m, const struct tri__product *j,
                     const struct tri_matrix *w, float *y, int64_t row0, int64_t row1)
{
    if (j->q.q) {
        struct tri_qmatmul_args a = { w, j->q, y, j->y_stride, j->tokens };
        tri_kernels_qmatmul(m->kernels, w->dtype)(&a, row0, row1);
    } else {
        TRI_ASSERT(!w->tiled);
        struct tri_matmul_args a = { w, j->x, j->x_stride, y, j->y_stride, j->tokens };
        tri_kernels_matmul(m->kernels, w->dtype)(&a, row0, row1);
    }
}

void tri__product_rows(const struct tri_model *m, const struct tri__product *j, int64_t row0,
                       int64_t row1)
{
    multiply(m, j, j->w, j->y, row0, row1);
    if (!j->up)
        return;
    multiply(m, j, j->up, j->y_up, row0, row1);
    for (int64_t t = 0; t < j->tokens; t++) {
        float *gate = j->y + t * j->y_stride + row0;
        tri__glu_rows(m, gate, j->y_up + t * j->y_stride + row0, gate, row1 - row0);
    }
}

struct jobs_loop {
    const struct tri_model *m;
    const struct tri__product *jobs;
    int64_t n, units, threads;
};

static int64_t units_of(const struct tri__product *j)
{
    return (j->w->rows + TRI_QTILE_ROWS - 1) / TRI_QTILE_ROWS;
}

/* Units [begin, end): tiles of rows, of the first job, then of the second, and so on. */
static void jobs_units(const struct jobs_loop *l, int64_t begin, int64_t end)
{
    int64_t first = 0; /* unit where job i begins */
    for (int64_t i = 0; i < l->n && first < end; i++) {
        const struct tri__product *j = &l->jobs[i];
        int64_t units = units_of(j);
        int64_t u0 = begin > first ? begin - first : 0;
        int64_t u1 = end - first < units ? end - first : units;
        int64_t row1 = u1 * TRI_QTILE_ROWS < j->w->rows ? u1 * TRI_QTILE_ROWS : j->w->rows;
        if (u0 < u1)
            tri__product_rows(l->m, j, u0 * TRI_QTILE_ROWS, row1);
        first += units;
    }
}

/*
 * Piece p is one thread's share of round p / threads. A round is half of what is left and the last
 * one all of it: long pieces first, because reading speeds up along a piece, short ones last,
 * because the loop ends with the last.
 */
static int64_t piece_begin(const struct jobs_loop *l, int64_t piece)
{
    int64_t round = piece / l->threads, left = l->units >> round;
    int64_t share = round < ROUNDS - 1 ? left - (left >> 1) : left;
    if (round >= ROUNDS)
        return l->units;
    return l->units - left + share * (piece % l->threads) / l->threads;
}

static void jobs_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct jobs_loop *l = arg;
    for (int64_t p = begin; p < end; p++)
        jobs_units(l, piece_begin(l, p), piece_begin(l, p + 1));
}

void tri__multiply(const struct tri_model *m, const struct tri__product *jobs, int64_t n)
{
    struct jobs_loop l = { m, jobs, n, 0, tri_pool_threads(m->pool) };
    for (int64_t i = 0; i < n; i++)
        l.units += units_of(&jobs[i]);
    tri_pool_for(m->pool, ROUNDS * l.threads, 1, jobs_piece, &l);
}

void tri__linear(const struct tri_model *m, struct tri__input *in, const struct tri_matrix *w,
                 float *y)
{
    struct tri__product job;
    tri__product_of(m, &job, in, w, y, w->rows);
    tri__multiply(m, &job, 1);
}
