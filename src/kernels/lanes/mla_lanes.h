/*
 * Multi-head latent attention over the compressed cache (K3 spec 3.4, absorbed form). A query is
 * one head of one token; all read the same rows. Up to eight form a walk, which multiplies a row by
 * all of them while it is in a register; up to eight walks go side by side, so that a block of rows
 * comes from memory once for 64 queries. Each query's sums run in the same order whoever goes with
 * it. Rows come in blocks of 64 with a running softmax.
 */
#ifndef TRI_KERNELS_MLA_LANES_H
#define TRI_KERNELS_MLA_LANES_H

#include <string.h>
#include "kernels/lanes/mla_softmax.h"

#if defined(TRI_LANES)

enum {
    MLA_QUERIES = 8, /* of a walk */
    MLA_WALKS = 8,
    MLA_TOGETHER = 8, /* rows whose sums are folded together */
    MLA_WIDTH = 1024, /* most values of a row; the reference takes wider ones */
#if defined(__AVX512F__)
    MLA_SUMS = 16, /* that stay in registers */
#else
    MLA_SUMS = 8,
#endif
};

struct mla_walk {
    int queries;
    const float *ql[MLA_QUERIES], *q_pe[MLA_QUERIES];
    float *ol[MLA_QUERIES];
    int64_t seen[MLA_QUERIES]; /* rows each may look at */
    int64_t most;              /* of seen */
    struct mla_running softmax[MLA_QUERIES];
    float p[MLA_QUERIES][MLA_ROWS]; /* products with the rows of a block, then shares */
};

/* Rows from .. from + n of the cache in float32: [n][rank + rope]. */
struct mla_block {
    const struct tri_mla_args *a;
    const float *rows;
    int64_t from, n;
};

/* Decodes n rows from `first` of the cache on. */
static void mla_decode(const struct tri_mla_args *a, float *out, int64_t first, int64_t n)
{
    int64_t width = a->rank + a->rope;
    const char *rows =
        (const char *)a->cache + (size_t)first * tri_row_data_bytes(a->cache_dtype, width);
    if (a->cache_dtype == TRI_DT_BF16)
        for (int64_t i = 0; i < n * width; i += 16)
            v16_store(out + i, v16_bf16(rows + i * 2));
    else
        for (int64_t i = 0; i < n * width; i += 16)
            v16_store(out + i, mla_e4m3(rows + i));
}

/* Adds products of n columns to the sums of eight rows for q queries (a constant). */
static inline __attribute__((always_inline)) void mla_multiply(v16 sum[][MLA_TOGETHER],
                                                               const float *const *row, int64_t at,
                                                               const float *const *x, int64_t n,
                                                               int q)
{
    for (int64_t c = 0; c < n; c += 16) {
        v16 in[MLA_SUMS / MLA_TOGETHER];
        for (int i = 0; i < q; i++)
            in[i] = v16_load(x[i] + c);
        for (int r = 0; r < MLA_TOGETHER; r++) {
            v16 values = v16_load(row[r] + at + c);
            for (int i = 0; i < q; i++)
                sum[i][r] = v16_fma(in[i], values, sum[i][r]);
        }
    }
}

/* Products of queries i .. i + q (a constant) with eight rows from r on; those behind the block's
 * last are made from that one and not looked at. */
static inline __attribute__((always_inline)) void
mla_score(struct mla_walk *w, const struct mla_block *b, int64_t r, int i, int q)
{
    const struct tri_mla_args *a = b->a;
    const float *row[MLA_TOGETHER];
    v16 sum[MLA_SUMS / MLA_TOGETHER][MLA_TOGETHER];
    for (int k = 0; k < MLA_TOGETHER; k++) {
        row[k] = b->rows + (r + k < b->n ? r + k : b->n - 1) * (a->rank + a->rope);
        for (int j = 0; j < q; j++)
            sum[j][k] = v16_set(0);
    }
    mla_multiply(sum, row, 0, w->ql + i, a->rank, q);
    mla_multiply(sum, row, a->rank, w->q_pe + i, a->rope, q);
    for (int j = 0; j < q; j++)
        v16_sums8(w->p[i + j] + r, sum[j]);
}

static void mla_score_all(struct mla_walk *w, const struct mla_block *b, int64_t r)
{
    enum { PAIR = MLA_SUMS / MLA_TOGETHER };
    int i = 0;
    for (; i + PAIR <= w->queries; i += PAIR)
        mla_score(w, b, r, i, PAIR);
    for (; i < w->queries; i++)
        mla_score(w, b, r, i, 1);
}

/* Adds the block's latents, columns c .. c + 16 v, to the sums of q queries (q and v constants). */
static inline __attribute__((always_inline)) void mla_add(const struct mla_walk *w,
                                                          const struct mla_block *b,
                                                          const float *keep, int64_t c, int q,
                                                          int v)
{
    int64_t width = b->a->rank + b->a->rope;
    v16 sum[MLA_SUMS];
    for (int i = 0; i < q; i++)
        for (int k = 0; k < v; k++)
            sum[i * v + k] = v16_mul(v16_load(w->ol[i] + c + 16 * k), v16_set(keep[i]));
    for (int64_t r = 0; r < b->n; r++) {
        const float *latent = b->rows + r * width + c;
        for (int i = 0; i < q; i++) {
            v16 share = v16_set(w->p[i][r]);
            for (int k = 0; k < v; k++)
                sum[i * v + k] = v16_fma(share, v16_load(latent + 16 * k), sum[i * v + k]);
        }
    }
    for (int i = 0; i < q; i++)
        for (int k = 0; k < v; k++)
            v16_store(w->ol[i] + c + 16 * k, sum[i * v + k]);
}

static inline __attribute__((always_inline)) void mla_advance(struct mla_walk *w,
                                                              const struct mla_block *b, int q)
{
    const int v = MLA_SUMS / q < 8 ? MLA_SUMS / q : 8;
    float keep[MLA_QUERIES];
    for (int i = 0; i < q; i++) {
        int64_t mine = w->seen[i] - b->from;
        keep[i] = mla_soften(&w->softmax[i], w->p[i], mine < b->n ? mine : b->n, b->a->scale);
    }
    int64_t c = 0;
    for (; c + 16 * v <= b->a->rank; c += 16 * v)
        mla_add(w, b, keep, c, q, v);
    for (; c < b->a->rank; c += 16)
        mla_add(w, b, keep, c, q, 1);
}

static void mla_advance_all(struct mla_walk *w, const struct mla_block *b)
{
    switch (w->queries) {
    case 8:
        mla_advance(w, b, 8);
        break;
    case 4:
        mla_advance(w, b, 4);
        break;
    case 2:
        mla_advance(w, b, 2);
        break;
    default:
        mla_advance(w, b, 1);
    }
}

/* Queries first .. first + n of those of heads h0 on; a head's tokens follow each other. */
static void mla_begin(struct mla_walk *w, const struct tri_mla_args *a, int64_t h0, int64_t first,
                      int n)
{
    w->queries = n;
    w->most = 0;
    for (int i = 0; i < n; i++) {
        int64_t t = (first + i) % a->tokens, at = t * a->heads + h0 + (first + i) / a->tokens;
        w->ql[i] = a->ql + at * a->rank;
        w->q_pe[i] = a->q + at * (a->nope + a->rope) + a->nope;
        w->ol[i] = a->ol + at * a->rank;
        w->seen[i] = a->past + t + 1;
        w->most = w->seen[i] > w->most ? w->seen[i] : w->most;
        w->softmax[i] = (struct mla_running){ .best = -INFINITY };
        memset(w->ol[i], 0, (size_t)a->rank * sizeof *w->ol[i]);
    }
}

static void mla_end(const struct mla_walk *w, int64_t rank)
{
    for (int i = 0; i < w->queries; i++) {
        v16 inverse = v16_set((float)(1 / w->softmax[i].sum));
        for (int64_t c = 0; c < rank; c += 16)
            v16_store(w->ol[i] + c, v16_mul(v16_load(w->ol[i] + c), inverse));
    }
}

/* Asks for n rows from `first` on: a drop of work for every line keeps memory busy beside the sums,
 * which the hardware's own prefetch does not. */
static inline void mla_ask(const struct tri_mla_args *a, int64_t first, int64_t n)
{
    size_t bytes = tri_row_data_bytes(a->cache_dtype, a->rank + a->rope);
    const char *rows = (const char *)a->cache + (size_t)first * bytes;
    for (size_t at = 0; at < (size_t)n * bytes; at += 64)
        __builtin_prefetch(rows + at, 0, 2);
}

static void mla_side_by_side(const struct tri_mla_args *a, struct mla_walk *w, int walks)
{
    _Alignas(64) float scratch[MLA_ROWS * MLA_WIDTH];
    int64_t most = 0, width = a->rank + a->rope;
    for (int i = 0; i < walks; i++)
        most = w[i].most > most ? w[i].most : most;
    for (int64_t from = 0; from < most; from += MLA_ROWS) {
        struct mla_block b = { a, scratch, from, most - from < MLA_ROWS ? most - from : MLA_ROWS };
        if (a->cache_dtype == TRI_DT_F32)
            b.rows = (const float *)a->cache + from * width;
        for (int64_t r = 0; r < b.n; r += MLA_TOGETHER) {
            if (from + r + MLA_ROWS + MLA_TOGETHER <= most)
                mla_ask(a, from + r + MLA_ROWS, MLA_TOGETHER);
            if (b.rows == scratch) /* a few, that are used while they are near */
                mla_decode(a, scratch + r * width, from + r,
                           b.n - r < MLA_TOGETHER ? b.n - r : MLA_TOGETHER);
            for (int i = 0; i < walks; i++)
                if (w[i].most > from)
                    mla_score_all(w + i, &b, r);
        }
        for (int i = 0; i < walks; i++)
            if (w[i].most > from)
                mla_advance_all(w + i, &b);
    }
    for (int i = 0; i < walks; i++)
        mla_end(w + i, a->rank);
}

void TRI_LANES(mla)(const struct tri_mla_args *a, int64_t h0, int64_t h1)
{
    if (a->rank % 16 || a->rope % 16 || a->rank + a->rope > MLA_WIDTH) {
        tri__ref_mla(a, h0, h1);
        return;
    }
    struct mla_walk w[MLA_WALKS];
    int64_t queries = (h1 - h0) * a->tokens;
    for (int64_t i = 0; i < queries;) {
        int walks = 0;
        while (walks < MLA_WALKS && i < queries) {
            int n = MLA_QUERIES;
            while (n > queries - i)
                n /= 2;
            mla_begin(&w[walks++], a, h0, i, n);
            i += n;
        }
        mla_side_by_side(a, w, walks);
    }
}

#endif
#endif
