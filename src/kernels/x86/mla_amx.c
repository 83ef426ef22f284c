/*
 * MLA attention on AMX tiles (K3 spec 3.4, absorbed form), in the order of lanes/mla_lanes.h: up to
 * 64 queries, a query being one head of one token, take a block of 64 rows of the cache together.
 * Both products, queries with rows and shares with latents, are products of bf16 parts
 * (bf16_parts.h): three of a query or a share with the one that a value of a bf16 or fp8 cache is,
 * or with three of a float32 cache, less those products that are 2^-24 of the first. A query's sums
 * are made by the same additions whoever is computed beside it.
 *
 * Rows are turned for each block and group of queries. With few columns and three parts that costs
 * more than it brings: a narrow float32 cache is left to AVX-512.
 * Tile registers: 0 to 3 sums, 4 and 5 queries or shares, 6 and 7 rows.
 */
#if defined(__x86_64__)
#if !(defined(__AMX_BF16__) || defined(__AMXBF16__)) || !defined(__AVX512VBMI__)
#error "compile with -mamx-tile -mamx-bf16 -mavx512vbmi (cmake/Kernels.cmake)"
#endif

#include <string.h>
#define TRI_LANES(op) tri__amxbf16_##op
#include "kernels/lanes/mla_softmax.h"
#include "kernels/x86/bf16_parts.h"
#include "kernels/x86/tile_config.h"

enum {
    TILE = 16, /* queries, rows or columns of a tile */
    STEP = 32, /* what two tiles have in common */
    QUERIES = 64,
    WIDTH = 640, /* most values of a row of the cache */
    LEAST_RANK_F32 = 256
};

/* A step of a tile in parts: of queries and shares [16][32] bf16, of rows [16 pairs][16][2]. */
typedef __m512i tile_step[PARTS][TILE];

struct query {
    const float *ql, *q_pe;
    float *ol;
    int64_t seen; /* rows it may look at */
    struct mla_running softmax;
};

/* 0.9 MB, of which one part of three is used where the cache is not float32. */
struct work {
    const struct tri_mla_args *a;
    int n, tiles, row_parts;
    int64_t steps; /* of a row */
    struct query query[QUERIES];
    tile_step q[QUERIES / TILE][WIDTH / STEP];
    tile_step k[MLA_ROWS / TILE][WIDTH / STEP]; /* products with queries: over columns */
    tile_step v[WIDTH / TILE][MLA_ROWS / STEP]; /* products with shares: over rows */
    tile_step share[QUERIES / TILE][MLA_ROWS / STEP];
    _Alignas(64) float score[QUERIES][MLA_ROWS];
    _Alignas(64) float ol[QUERIES][WIDTH];
};

/* Tiles of queries have n rows. */
static void configure(int n)
{
    struct tile_config c = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        c.rows[i] = (uint8_t)(i >= 6 ? TILE : n);
        c.row_bytes[i] = 64;
    }
    _tile_loadconfig(&c);
}

/* What is added to c, whose rows are `stride` floats apart. Tiles of x are x_tile steps apart,
 * those of y y_tile. */
struct product {
    float *c;
    size_t stride;
    const tile_step *x, *y;
    int64_t x_tile, y_tile, steps;
    int y_parts;
};

/* One or two tiles of x (a constant) by two of y. */
TRI_INLINE void multiply(const struct product *p, int tiles)
{
    size_t bytes = p->stride * sizeof *p->c;
    float *second = p->c + TILE * p->stride;
    _tile_loadd(0, p->c, bytes);
    _tile_loadd(1, p->c + TILE, bytes);
    if (tiles > 1) {
        _tile_loadd(2, second, bytes);
        _tile_loadd(3, second + TILE, bytes);
    }
    for (int64_t k = 0; k < p->steps; k++) {
        for (int yp = 0; yp < p->y_parts; yp++) {
            _tile_loadd(6, p->y[k][yp], 64);
            _tile_loadd(7, p->y[p->y_tile + k][yp], 64);
            for (int xp = 0; xp + yp < PARTS; xp++) {
                _tile_loadd(4, p->x[k][xp], 64);
                _tile_dpbf16ps(0, 4, 6);
                _tile_dpbf16ps(1, 4, 7);
                if (tiles > 1) {
                    _tile_loadd(5, p->x[p->x_tile + k][xp], 64);
                    _tile_dpbf16ps(2, 5, 6);
                    _tile_dpbf16ps(3, 5, 7);
                }
            }
        }
    }
    _tile_stored(0, p->c, bytes);
    _tile_stored(1, p->c + TILE, bytes);
    if (tiles > 1) {
        _tile_stored(2, second, bytes);
        _tile_stored(3, second + TILE, bytes);
    }
}

static void multiply_tiles(const struct product *p, int tiles)
{
    if (tiles > 1)
        multiply(p, 2);
    else
        multiply(p, 1);
}

/* Columns c .. c + 16 of a query beside a row of the cache, 0 behind its end. */
TRI_INLINE __m512 query_at(const struct work *w, const struct query *q, int64_t c)
{
    if (c < w->a->rank)
        return _mm512_loadu_ps(q->ql + c);
    return c < w->a->rank + w->a->rope ? _mm512_loadu_ps(q->q_pe + c - w->a->rank)
                                       : _mm512_setzero_ps();
}

/* Of 32 columns the pairs are j and 16 + j: so neither queries nor rows need shuffles. */
static void split_query(struct work *w, int i)
{
    for (int64_t s = 0; s < w->steps; s++) {
        __m512 left = query_at(w, &w->query[i], s * STEP);
        __m512 right = query_at(w, &w->query[i], s * STEP + TILE);
        for (int p = 0; p < PARTS; p++) {
            w->q[i / TILE][s][p][i % TILE] = pair_of(left, right);
            left = below(left);
            right = below(right);
        }
    }
}

TRI_INLINE __m512 row_at(enum tri_dtype dtype, const char *row, int64_t c)
{
    if (dtype == TRI_DT_BF16)
        return v16_bf16(row + c * 2);
    return dtype == TRI_DT_E4M3 ? mla_e4m3(row + c) : _mm512_loadu_ps(row + c * 4);
}

/* All steps of a tile of rows, for both products. */
TRI_INLINE void turn(struct work *w, enum tri_dtype dtype, const char *const row[TILE],
                     int64_t tile)
{
    int64_t width = w->a->rank + w->a->rope, half = tile % 2 * (TILE / 2);
    for (int64_t s = 0; s < w->steps; s++) {
        bool whole = (s + 1) * STEP <= width;
        __m512 left[TILE], right[TILE];
        __m512i pair[TILE];
        for (int p = 0; p < (dtype == TRI_DT_F32 ? PARTS : 1); p++) {
#pragma GCC unroll 16
            for (int r = 0; r < TILE; r++) {
                if (p) {
                    left[r] = below(left[r]);
                    right[r] = below(right[r]);
                } else {
                    left[r] = row_at(dtype, row[r], s * STEP);
                    right[r] = whole ? row_at(dtype, row[r], s * STEP + TILE) : _mm512_setzero_ps();
                }
                pair[r] = pair_of(left[r], right[r]);
                if (r % 2) {
                    w->v[2 * s][tile / 2][p][half + r / 2] = pair_of(left[r - 1], left[r]);
                    w->v[2 * s + 1][tile / 2][p][half + r / 2] = pair_of(right[r - 1], right[r]);
                }
            }
            transpose(pair);
#pragma GCC unroll 16
            for (int r = 0; r < TILE; r++)
                w->k[tile][s][p][r] = pair[r];
        }
    }
}

/* Rows from .. from + n, and zeros up to a whole block. */
static void turn_rows(struct work *w, int64_t from, int64_t n)
{
    static const char zeros[WIDTH * sizeof(float)];
    enum tri_dtype dtype = w->a->cache_dtype;
    size_t bytes = tri_row_data_bytes(dtype, w->a->rank + w->a->rope);
    const char *rows = (const char *)w->a->cache + (size_t)from * bytes, *row[TILE];
    for (int64_t t = 0; t < MLA_ROWS / TILE; t++) {
        for (int64_t r = 0; r < TILE; r++)
            row[r] = t * TILE + r < n ? rows + (size_t)(t * TILE + r) * bytes : zeros;
        if (dtype == TRI_DT_BF16)
            turn(w, TRI_DT_BF16, row, t);
        else if (dtype == TRI_DT_E4M3)
            turn(w, TRI_DT_E4M3, row, t);
        else
            turn(w, TRI_DT_F32, row, t);
    }
}

/* Scores of query i to shares; its sums so far to the same scale. */
static void soften(struct work *w, int i, int64_t rows)
{
    float keep = mla_soften(&w->query[i].softmax, w->score[i], rows, w->a->scale);
    for (int64_t c = 0; c < w->a->rank && keep != 1; c += TILE)
        _mm512_store_ps(w->ol[i] + c,
                        _mm512_mul_ps(_mm512_load_ps(w->ol[i] + c), _mm512_set1_ps(keep)));
    for (int s = 0; s < MLA_ROWS / STEP; s++) {
        __m512i part[PARTS];
        const float *p = w->score[i] + s * STEP;
        split32(part, _mm512_load_ps(p), _mm512_load_ps(p + TILE));
        for (int k = 0; k < PARTS; k++)
            w->share[i / TILE][s][k][i % TILE] = part[k];
    }
}

/* Products of one or two tiles of queries with the block. */
static void score(struct work *w, int q)
{
    struct product p = { .stride = MLA_ROWS,
                         .x = w->q[q],
                         .x_tile = WIDTH / STEP,
                         .y_tile = WIDTH / STEP,
                         .steps = w->steps,
                         .y_parts = w->row_parts };
    memset(w->score[q * TILE], 0, 2 * TILE * sizeof w->score[0]);
    for (int t = 0; t < MLA_ROWS / TILE; t += 2) {
        p.c = w->score[q * TILE] + t * TILE;
        p.y = w->k[t];
        multiply_tiles(&p, w->tiles - q);
    }
}

/* Adds the latents of the block, by the shares of one or two tiles of queries. */
static void add(struct work *w, int q)
{
    struct product p = { .stride = WIDTH,
                         .x = w->share[q],
                         .x_tile = MLA_ROWS / STEP,
                         .y_tile = MLA_ROWS / STEP,
                         .steps = MLA_ROWS / STEP,
                         .y_parts = w->row_parts };
    for (int64_t c = 0; c < w->a->rank; c += 2 * TILE) {
        p.c = w->ol[q * TILE] + c;
        p.y = w->v[c / TILE];
        multiply_tiles(&p, w->tiles - q);
    }
}

/* Queries first .. first + n of those of heads h0 on; a head's tokens follow each other. */
static void begin(struct work *w, int64_t h0, int64_t first, int n)
{
    const struct tri_mla_args *a = w->a;
    w->n = n;
    w->tiles = (n + TILE - 1) / TILE;
    if (n % TILE) /* queries that are not there */
        memset(w->q[w->tiles - 1], 0, (size_t)w->steps * sizeof w->q[0][0]);
    memset(w->share[w->tiles - 1], 0, sizeof w->share[0]);
    for (int i = 0; i < n; i++) {
        int64_t t = (first + i) % a->tokens, at = t * a->heads + h0 + (first + i) / a->tokens;
        w->query[i] = (struct query){ .ql = a->ql + at * a->rank,
                                      .q_pe = a->q + at * (a->nope + a->rope) + a->nope,
                                      .ol = a->ol + at * a->rank,
                                      .seen = a->past + t + 1,
                                      .softmax = { .best = -INFINITY } };
        split_query(w, i);
    }
    memset(w->ol, 0, (size_t)(w->tiles * TILE) * sizeof w->ol[0]);
    configure(n < TILE ? n : TILE);
}

static void group(struct work *w)
{
    int64_t most = 0;
    for (int i = 0; i < w->n; i++)
        most = w->query[i].seen > most ? w->query[i].seen : most;
    for (int64_t from = 0; from < most; from += MLA_ROWS) {
        int64_t n = most - from < MLA_ROWS ? most - from : MLA_ROWS;
        turn_rows(w, from, n);
        for (int q = 0; q < w->tiles; q += 2)
            score(w, q);
        for (int i = 0; i < w->n; i++)
            soften(w, i, w->query[i].seen - from < n ? w->query[i].seen - from : n);
        for (int q = 0; q < w->tiles; q += 2)
            add(w, q);
    }
    for (int i = 0; i < w->n; i++) {
        __m512 inverse = _mm512_set1_ps((float)(1 / w->query[i].softmax.sum));
        for (int64_t c = 0; c < w->a->rank; c += TILE)
            _mm512_storeu_ps(w->query[i].ol + c,
                             _mm512_mul_ps(_mm512_load_ps(w->ol[i] + c), inverse));
    }
}

void TRI_LANES(mla)(const struct tri_mla_args *a, int64_t h0, int64_t h1)
{
    int64_t width = a->rank + a->rope;
    bool narrow = a->cache_dtype == TRI_DT_F32 && a->rank < LEAST_RANK_F32;
    if (narrow || a->rank % TILE || a->rope % TILE || width > WIDTH) {
        tri__avx512_mla(a, h0, h1);
        return;
    }
    struct work w;
    w.a = a;
    w.row_parts = a->cache_dtype == TRI_DT_F32 ? PARTS : 1;
    w.steps = (width + STEP - 1) / STEP;
    int64_t queries = (h1 - h0) * a->tokens;
    for (int64_t i = 0; i < queries; i += QUERIES) {
        begin(&w, h0, i, queries - i < QUERIES ? (int)(queries - i) : QUERIES);
        group(&w);
    }
    _tile_release();
}
#endif
