/*
 * Multi-head latent attention over the compressed cache (K3 spec 3.4, absorbed form). Up to eight
 * queries walk the cache together, so that a row is read once for all of them: the heads of one
 * token while decoding, successive tokens of one head while prefilling. Each query's sums run in
 * the same order whoever walks with it. Rows come in blocks of 64 with a running softmax.
 */
#ifndef TRI_KERNELS_MLA_LANES_H
#define TRI_KERNELS_MLA_LANES_H

#include <math.h>
#include <string.h>
#include "kernels/lanes/math_lanes.h"

#if defined(TRI_LANES)

enum { MLA_QUERIES = 8, MLA_ROWS = 64 };

struct mla_walk {
    const struct tri_mla_args *a;
    const float *ql[MLA_QUERIES], *q_pe[MLA_QUERIES];
    float *ol[MLA_QUERIES];
    int64_t seen[MLA_QUERIES]; /* rows each may look at */
    float best[MLA_QUERIES];
    double sum[MLA_QUERIES];
    float p[MLA_QUERIES][MLA_ROWS]; /* scores, then their exponentials */
};

static inline __attribute__((always_inline)) v16 mla_cache(enum tri_dtype dtype, const char *row,
                                                           int64_t c)
{
    if (dtype == TRI_DT_F32)
        return v16_load((const float *)(const void *)(row + c * 4));
    if (dtype == TRI_DT_BF16)
        return v16_bf16(row + c * 2);
    /* e4m3: the bits moved to float32's places, whose exponent counts from 120 more. */
    w16 b = w16_u8(row + c);
    w16 bits =
        w16_add(w16_left(w16_and(b, w16_set(0x7f)), 20), w16_left(w16_and(b, w16_set(0x80)), 24));
    return v16_mul(v16_bits(bits), v16_set(0x1p120f));
}

/* Scores of rows from .. from + n for q queries (a constant), two rows at a time. */
static inline __attribute__((always_inline)) void
mla_scores(struct mla_walk *w, enum tri_dtype dtype, int64_t from, int64_t n, int q)
{
    const struct tri_mla_args *a = w->a;
    size_t bytes = tri_row_data_bytes(dtype, a->rank + a->rope);
    for (int64_t r = 0; r < n; r += 2) {
        const char *row[2] = { (const char *)a->cache + (size_t)(from + r) * bytes };
        row[1] = r + 1 < n ? row[0] + bytes : row[0];
        v16 sum[2][MLA_QUERIES];
        for (int i = 0; i < q; i++)
            sum[0][i] = sum[1][i] = v16_set(0);
        for (int64_t c = 0; c < a->rank; c += 16) {
            v16 c0 = mla_cache(dtype, row[0], c), c1 = mla_cache(dtype, row[1], c);
            for (int i = 0; i < q; i++) {
                v16 x = v16_load(w->ql[i] + c);
                sum[0][i] = v16_fma(x, c0, sum[0][i]);
                sum[1][i] = v16_fma(x, c1, sum[1][i]);
            }
        }
        for (int64_t c = 0; c < a->rope; c += 16) {
            v16 c0 = mla_cache(dtype, row[0], a->rank + c);
            v16 c1 = mla_cache(dtype, row[1], a->rank + c);
            for (int i = 0; i < q; i++) {
                v16 x = v16_load(w->q_pe[i] + c);
                sum[0][i] = v16_fma(x, c0, sum[0][i]);
                sum[1][i] = v16_fma(x, c1, sum[1][i]);
            }
        }
        for (int i = 0; i < q; i++) {
            w->p[i][r] = v16_sum(sum[0][i]) * a->scale;
            w->p[i][r + 1] = v16_sum(sum[1][i]) * a->scale;
        }
    }
}

/* Turns query i's scores into shares; returns what its earlier sums are to be multiplied by. */
static inline float mla_soften(struct mla_walk *w, int i, int64_t n)
{
    float *p = w->p[i], top = w->best[i];
    for (int64_t r = n > 0 ? n : 0; r < MLA_ROWS; r++)
        p[r] = -INFINITY;
    v16 high = v16_set(top);
    for (int r = 0; r < MLA_ROWS; r += 16)
        high = v16_max(high, v16_load(p + r));
    top = v16_top(high);
    float keep = top > w->best[i] ? expf(w->best[i] - top) : 1;
    v16 sum = v16_set(0), none = v16_set(-INFINITY);
    for (int r = 0; r < MLA_ROWS; r += 16) {
        v16 s = v16_load(p + r);
        v16 e = lanes_exp(v16_sub(s, v16_set(top)));
        e = v16_less(none, s, e, v16_less(s, v16_set(INFINITY), v16_set(0), s)); /* NaN stays */
        v16_store(p + r, e);
        sum = v16_add(sum, e);
    }
    w->sum[i] = w->sum[i] * (double)keep + (double)v16_sum(sum);
    w->best[i] = top;
    return keep;
}

static inline __attribute__((always_inline)) void
mla_block(struct mla_walk *w, enum tri_dtype dtype, int64_t from, int64_t n, int q)
{
    const struct tri_mla_args *a = w->a;
    size_t bytes = tri_row_data_bytes(dtype, a->rank + a->rope);
    const char *rows = (const char *)a->cache + (size_t)from * bytes;
    v16 keep[MLA_QUERIES];
    mla_scores(w, dtype, from, n, q);
    for (int i = 0; i < q; i++) {
        int64_t mine = w->seen[i] - from;
        keep[i] = v16_set(mla_soften(w, i, mine < n ? mine : n));
    }
    for (int64_t c = 0; c < a->rank; c += 16) {
        v16 sum[MLA_QUERIES];
        for (int i = 0; i < q; i++)
            sum[i] = v16_mul(v16_load(w->ol[i] + c), keep[i]);
        for (int64_t r = 0; r < n; r++) {
            v16 latent = mla_cache(dtype, rows + (size_t)r * bytes, c);
            for (int i = 0; i < q; i++)
                sum[i] = v16_fma(v16_set(w->p[i][r]), latent, sum[i]);
        }
        for (int i = 0; i < q; i++)
            v16_store(w->ol[i] + c, sum[i]);
    }
}

static inline __attribute__((always_inline)) void mla_walk_all(struct mla_walk *w,
                                                               enum tri_dtype dtype, int q)
{
    int64_t rank = w->a->rank, most = 0;
    for (int i = 0; i < q; i++) {
        most = w->seen[i] > most ? w->seen[i] : most;
        w->best[i] = -INFINITY;
        w->sum[i] = 0;
        memset(w->ol[i], 0, (size_t)rank * sizeof *w->ol[i]);
    }
    for (int64_t from = 0; from < most; from += MLA_ROWS)
        mla_block(w, dtype, from, most - from < MLA_ROWS ? most - from : MLA_ROWS, q);
    for (int i = 0; i < q; i++) {
        v16 inverse = v16_set((float)(1 / w->sum[i]));
        for (int64_t c = 0; c < rank; c += 16)
            v16_store(w->ol[i] + c, v16_mul(v16_load(w->ol[i] + c), inverse));
    }
}

static void mla_walk_f32(struct mla_walk *w, int q)
{
    if (q == MLA_QUERIES)
        mla_walk_all(w, TRI_DT_F32, MLA_QUERIES);
    else
        mla_walk_all(w, TRI_DT_F32, 1);
}
static void mla_walk_bf16(struct mla_walk *w, int q)
{
    if (q == MLA_QUERIES)
        mla_walk_all(w, TRI_DT_BF16, MLA_QUERIES);
    else
        mla_walk_all(w, TRI_DT_BF16, 1);
}
static void mla_walk_e4m3(struct mla_walk *w, int q)
{
    if (q == MLA_QUERIES)
        mla_walk_all(w, TRI_DT_E4M3, MLA_QUERIES);
    else
        mla_walk_all(w, TRI_DT_E4M3, 1);
}

/* Query i of a walk is (token, head). */
static void mla_query(struct mla_walk *w, int i, int64_t t, int64_t h)
{
    const struct tri_mla_args *a = w->a;
    w->ql[i] = a->ql + (t * a->heads + h) * a->rank;
    w->q_pe[i] = a->q + (t * a->heads + h) * (a->nope + a->rope) + a->nope;
    w->ol[i] = a->ol + (t * a->heads + h) * a->rank;
    w->seen[i] = a->past + t + 1;
}

void TRI_LANES(mla)(const struct tri_mla_args *a, int64_t h0, int64_t h1)
{
    struct mla_walk w = { .a = a };
    void (*walk)(struct mla_walk *, int) = a->cache_dtype == TRI_DT_F32    ? mla_walk_f32
                                           : a->cache_dtype == TRI_DT_BF16 ? mla_walk_bf16
                                                                           : mla_walk_e4m3;
    if (a->rank % 16 || a->rope % 16) {
        tri__ref_mla(a, h0, h1);
        return;
    }
    /* Pairs in walking order: heads innermost for one token, tokens innermost for more. */
    int64_t heads = h1 - h0, pairs = heads * a->tokens;
    for (int64_t i = 0; i < pairs;) {
        int64_t left = a->tokens == 1 ? pairs - i : a->tokens - i % a->tokens;
        int n = left >= MLA_QUERIES ? MLA_QUERIES : 1;
        for (int k = 0; k < n; k++)
            mla_query(&w, k, (i + k) % a->tokens, h0 + (i + k) / a->tokens);
        walk(&w, n);
        i += n;
    }
}

#endif
#endif
