/*
 * The exact products on AMX tiles. A float32 activation is the sum of three bf16 values (8 bits
 * each, by truncation); BF16 and MXFP4 weights are bf16 values as they are. Products of bf16 are
 * exact, and tiles add them up in float32: the same accuracy as float32 FMA, at several times its
 * speed (docs/findings/054).
 *
 * Tokens are rows of a tile, 32 columns at a time, and rows of weights the columns of the other: a
 * result is made by the same additions in the same order however many tokens and rows there are.
 * Values below 2^-102 in magnitude lose bits (tiles take denormals for 0); infinities become NaN.
 * Tile registers: 0 to 3 sums, 4 weights, 5 to 7 activations.
 */
#if defined(__x86_64__)
/* clang 14 spells it without the underscore. */
#if !(defined(__AMX_BF16__) || defined(__AMXBF16__)) || !defined(__AVX512VBMI__)
#error "compile with -mamx-tile -mamx-bf16 -mavx512vbmi (cmake/Kernels.cmake)"
#endif

#include <string.h>
#include "kernels/x86/bf16_parts.h"
#include "kernels/x86/tile_config.h"

enum {
    TOKENS = 16,     /* of a tile */
    STEP = 32,       /* columns of a tile */
    BLOCK_TILES = 8, /* tiles of tokens split at once; with them weights are turned once */
    BLOCK_STEPS = 8, /* steps of columns split at once: 192 KiB stay in the second cache */
    BLOCK_TOKENS = BLOCK_TILES * TOKENS,
    BLOCK_COLS = BLOCK_STEPS * STEP,
    FEW_TILES = 4, /* of rows, multiplied side by side by few tokens */
};

static void configure(int64_t tokens)
{
    struct tile_config c = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        c.rows[i] = (uint8_t)(i == 4 ? STEP / 2 : tokens);
        c.row_bytes[i] = 64;
    }
    _tile_loadconfig(&c);
}

/* Activations of a block: for a token and a step 32 bf16, the leading part first. */
struct inputs {
    __m512i part[BLOCK_TILES][BLOCK_STEPS][PARTS][TOKENS];
};

/* Weights of sixteen rows: for a step sixteen pairs of columns, each [16 rows][2 columns] bf16. */
struct weights {
    __m512i of[BLOCK_STEPS][ROWS];
};

static __mmask16 first_floats(int64_t n)
{
    return n >= 16 ? 0xffff : n > 0 ? (__mmask16)((1u << n) - 1) : 0;
}

static void split(struct inputs *in, const struct tri_matmul_args *a, int64_t t0, int64_t tokens,
                  int64_t c0, int64_t cols)
{
    for (int64_t t = 0; t < tokens; t++) {
        const float *x = a->x + (t0 + t) * a->x_stride + c0;
        for (int64_t c = 0; c < cols; c += STEP) {
            __m512i(*part)[TOKENS] = in->part[t / TOKENS][c / STEP];
            __m512 low = _mm512_maskz_loadu_ps(first_floats(cols - c), x + c);
            __m512 high = _mm512_maskz_loadu_ps(first_floats(cols - c - 16), x + c + 16);
            __m512i of[PARTS];
            split32(of, low, high);
            for (int p = 0; p < PARTS; p++)
                part[p][t % TOKENS] = of[p];
        }
    }
}

/* Scale g of each of sixteen rows. */
TRI_INLINE __m512 scales_of(const struct rows *p, int64_t g)
{
    uint32_t bits[ROWS];
    for (int r = 0; r < ROWS; r++) {
        uint32_t e = p->scales[r][g];
        bits[r] = e == 0 ? 0x00400000u : e == 255 ? 0x7fc00000u : e << 23;
    }
    return _mm512_loadu_ps(bits);
}

/* 32 columns of BF16 rows, of which n are there: two columns are one unit already. */
TRI_INLINE void turn_bf16(__m512i of[ROWS], const struct rows *p, int64_t c, int64_t n)
{
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
        of[r] = _mm512_maskz_loadu_epi8(first_bytes(2 * n), p->data[r] + 2 * c);
        ahead(p, r, (size_t)(2 * c));
    }
    transpose(of);
}

/* 128 columns (four steps) of MXFP4 rows. */
TRI_INLINE void turn_mxfp4(__m512i of[][ROWS], const struct rows *p, int64_t c, int64_t n)
{
    const __m512 table =
        _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    __m512i v[ROWS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
        v[r] = _mm512_maskz_loadu_epi8(first_bytes((n + 1) / 2), p->data[r] + c / 2);
        ahead(p, r, (size_t)(c / 2));
    }
    transpose(v);
    for (int64_t step = 0; step * STEP < n; step++) {
        __m512 scale = scales_of(p, c / STEP + step);
        for (int j = 0; j < ROWS; j++) { /* pair j of the step is byte j % 4 of a unit */
            __m512i low = _mm512_srlv_epi32(v[4 * step + j / 4], _mm512_set1_epi32(j % 4 * 8));
            __m512i high = _mm512_srli_epi32(low, 4);
            of[step][j] = pair_of(_mm512_mul_ps(_mm512_permutexvar_ps(low, table), scale),
                                  _mm512_mul_ps(_mm512_permutexvar_ps(high, table), scale));
        }
    }
}

/* Columns [c, c + n) of sixteen rows. */
TRI_INLINE void turn(struct weights *w, const struct rows *p, enum tri_dtype dtype, int64_t c,
                     int64_t n)
{
    for (int64_t i = 0; i < n && dtype == TRI_DT_BF16; i += STEP)
        turn_bf16(w->of[i / STEP], p, c + i, n - i);
    for (int64_t i = 0; i < n && dtype == TRI_DT_MXFP4; i += 4 * STEP)
        turn_mxfp4(w->of + i / STEP, p, c + i, n - i < 4 * STEP ? n - i : 4 * STEP);
}

/* Where the sums of a tile come from and go to: y itself, or its copy for rows that are not all
 * there. */
struct sums {
    float copy[4][TOKENS][ROWS];
    float *at[4];
    size_t stride; /* bytes */
};

struct block {
    const struct tri_matmul_args *a;
    int64_t row, rows, c, steps;
};

TRI_INLINE void begin_sums(struct sums *s, const struct block *b, int64_t t, int64_t n, int tiles)
{
    bool whole = b->rows == ROWS;
    s->stride = whole ? (size_t)b->a->y_stride * sizeof(float) : sizeof s->copy[0][0];
    for (int i = 0; i < tiles; i++) {
        float *y = b->a->y + (t + i * TOKENS) * b->a->y_stride + b->row;
        s->at[i] = whole ? y : s->copy[i][0];
        for (int64_t j = 0; j < n && !whole && b->c; j++)
            memcpy(s->copy[i][j], y + j * b->a->y_stride, (size_t)b->rows * sizeof *y);
    }
}

TRI_INLINE void end_sums(const struct sums *s, const struct block *b, int64_t t, int64_t n,
                         int tiles)
{
    for (int i = 0; i < tiles && b->rows < ROWS; i++)
        for (int64_t j = 0; j < n; j++)
            memcpy(b->a->y + (t + i * TOKENS + j) * b->a->y_stride + b->row, s->copy[i][j],
                   (size_t)b->rows * sizeof(float));
}

/* Adds one part of a tile's activations; numbers of tiles must be constants. */
#define ADD_PART(sums, x, from, p)                                                                 \
    do {                                                                                           \
        _tile_loadd(x, (from)[p], 64);                                                             \
        _tile_dpbf16ps(sums, x, 4);                                                                \
    } while (0)
#define ADD_TILE(sums, x, y, from)                                                                 \
    do {                                                                                           \
        ADD_PART(sums, x, from, 0);                                                                \
        ADD_PART(sums, y, from, 1);                                                                \
        ADD_PART(sums, x, from, 2);                                                                \
    } while (0)
#define BEGIN_TILE(sums, i)                                                                        \
    do {                                                                                           \
        if (b->c)                                                                                  \
            _tile_loadd(sums, s.at[i], s.stride);                                                  \
        else                                                                                       \
            _tile_zero(sums);                                                                      \
    } while (0)

/* Adds the block's columns to four whole tiles of tokens. */
TRI_INLINE void add_four(const struct block *b, const struct inputs *in, const struct weights *w,
                         int64_t t0, int64_t tile)
{
    struct sums s;
    begin_sums(&s, b, t0 + tile * TOKENS, TOKENS, 4);
    BEGIN_TILE(0, 0);
    BEGIN_TILE(1, 1);
    BEGIN_TILE(2, 2);
    BEGIN_TILE(3, 3);
    for (int64_t k = 0; k < b->steps; k++) {
        _tile_loadd(4, w->of[k], 64);
        ADD_TILE(0, 6, 7, in->part[tile][k]);
        ADD_TILE(1, 7, 6, in->part[tile + 1][k]);
        ADD_TILE(2, 6, 7, in->part[tile + 2][k]);
        ADD_TILE(3, 7, 6, in->part[tile + 3][k]);
    }
    _tile_stored(0, s.at[0], s.stride);
    _tile_stored(1, s.at[1], s.stride);
    _tile_stored(2, s.at[2], s.stride);
    _tile_stored(3, s.at[3], s.stride);
    end_sums(&s, b, t0 + tile * TOKENS, TOKENS, 4);
}

/* The same for one tile of n tokens, for which the tiles are configured. */
TRI_INLINE void add_one(const struct block *b, const struct inputs *in, const struct weights *w,
                        int64_t t0, int64_t tile, int64_t n)
{
    struct sums s;
    begin_sums(&s, b, t0 + tile * TOKENS, n, 1);
    BEGIN_TILE(0, 0);
    for (int64_t k = 0; k < b->steps; k++) {
        _tile_loadd(4, w->of[k], 64);
        ADD_TILE(0, 6, 7, in->part[tile][k]);
    }
    _tile_stored(0, s.at[0], s.stride);
    end_sums(&s, b, t0 + tile * TOKENS, n, 1);
}

/* All of a block's tokens. */
TRI_INLINE void add_block(const struct block *b, const struct inputs *in, const struct weights *w,
                          int64_t t0, int64_t tokens)
{
    int64_t full = tokens / TOKENS, rest = tokens % TOKENS, tile = 0;
    if (full)
        configure(TOKENS);
    for (; tile + 4 <= full; tile += 4)
        add_four(b, in, w, t0, tile);
    for (; tile < full; tile++)
        add_one(b, in, w, t0, tile, TOKENS);
    if (!rest)
        return;
    configure(rest);
    add_one(b, in, w, t0, full, rest);
}

/* One step of a tile of rows: all parts of the activations, which lie in tiles 5 to 7. */
#define ADD_ROWS(sums, i)                                                                          \
    do {                                                                                           \
        _tile_loadd(4, w[i].of[k], 64);                                                            \
        _tile_dpbf16ps(sums, 5, 4);                                                                \
        _tile_dpbf16ps(sums, 6, 4);                                                                \
        _tile_dpbf16ps(sums, 7, 4);                                                                \
    } while (0)

/* Few tokens: a product waits for the one before on the same sums, so four tiles of rows take
 * turns. The same additions in the same order. */
TRI_INLINE void add_few(float sums[FEW_TILES][TOKENS][ROWS], const struct inputs *in,
                        const struct weights *w, int64_t steps)
{
    _tile_loadd(0, sums[0], 64);
    _tile_loadd(1, sums[1], 64);
    _tile_loadd(2, sums[2], 64);
    _tile_loadd(3, sums[3], 64);
    for (int64_t k = 0; k < steps; k++) {
        _tile_loadd(5, in->part[0][k][0], 64);
        _tile_loadd(6, in->part[0][k][1], 64);
        _tile_loadd(7, in->part[0][k][2], 64);
        ADD_ROWS(0, 0);
        ADD_ROWS(1, 1);
        ADD_ROWS(2, 2);
        ADD_ROWS(3, 3);
    }
    _tile_stored(0, sums[0], 64);
    _tile_stored(1, sums[1], 64);
    _tile_stored(2, sums[2], 64);
    _tile_stored(3, sums[3], 64);
}

/* At most sixteen tokens; weights are read once, so all columns of a few rows come first. */
TRI_INLINE void matmul_few(const struct tri_matmul_args *a, enum tri_dtype dtype, int64_t row0,
                           int64_t row1)
{
    float sums[FEW_TILES][TOKENS][ROWS];
    struct weights w[FEW_TILES];
    struct rows p[FEW_TILES];
    struct inputs in;
    configure(a->tokens);
    for (int64_t row = row0; row < row1; row += FEW_TILES * ROWS) {
        memset(sums, 0, sizeof sums);
        for (int i = 0; i < FEW_TILES; i++)
            point(&p[i], a->w, row + i * ROWS, row1);
        for (int64_t c = 0; c < a->w->cols; c += BLOCK_COLS) {
            int64_t n = a->w->cols - c < BLOCK_COLS ? a->w->cols - c : BLOCK_COLS;
            split(&in, a, 0, a->tokens, c, n);
            for (int i = 0; i < FEW_TILES; i++)
                turn(&w[i], &p[i], dtype, c, n);
            add_few(sums, &in, w, (n + STEP - 1) / STEP);
        }
        for (int i = 0; i < FEW_TILES; i++)
            for (int64_t t = 0; t < a->tokens; t++)
                _mm512_mask_storeu_ps(a->y + t * a->y_stride + row + i * ROWS,
                                      first_floats(row1 - row - i * ROWS),
                                      _mm512_loadu_ps(sums[i][t]));
    }
    _tile_release();
}

TRI_INLINE void matmul(const struct tri_matmul_args *a, enum tri_dtype dtype, int64_t row0,
                       int64_t row1)
{
    struct inputs in;
    struct weights w;
    struct rows p;
    if (a->tokens <= TOKENS) {
        matmul_few(a, dtype, row0, row1);
        return;
    }
    for (int64_t t = 0; t < a->tokens; t += BLOCK_TOKENS) {
        int64_t tokens = a->tokens - t < BLOCK_TOKENS ? a->tokens - t : BLOCK_TOKENS;
        for (int64_t c = 0; c < a->w->cols; c += BLOCK_COLS) {
            int64_t n = a->w->cols - c < BLOCK_COLS ? a->w->cols - c : BLOCK_COLS;
            split(&in, a, t, tokens, c, n);
            for (int64_t row = row0; row < row1; row += ROWS) {
                struct block b = { a, row, row1 - row < ROWS ? row1 - row : ROWS, c,
                                   (n + STEP - 1) / STEP };
                point(&p, a->w, row, row1);
                turn(&w, &p, dtype, c, n);
                add_block(&b, &in, &w, t, tokens);
            }
        }
    }
    _tile_release();
}

/* --- one token, BF16: rows as they lie ------------------------------------------------------ */

/* With one token the operands change places: rows of weights are a tile's rows, read from where
 * they lie, and the token's 32 columns are the sixteen pairs of the other. Same products, same
 * sums. */
enum {
    ONE_TILES = 4,    /* of rows, side by side */
    ONE_STEPS = 256,  /* of a pass */
    ONE_AHEAD = 1024, /* bytes of prefetch along a row */
    ONE_COLS = ONE_STEPS * STEP
};

struct one {
    __m512i part[ONE_STEPS][PARTS];
    int64_t c, cols;
};

static void configure_one(int64_t rows)
{
    struct tile_config c = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        c.rows[i] = (uint8_t)(i > ONE_TILES ? STEP / 2 : rows);
        c.row_bytes[i] = i == ONE_TILES ? 64 : 4;
    }
    _tile_loadconfig(&c);
}

static void split_one(struct one *in, const float *x)
{
    for (int64_t c = 0; c < in->cols; c += STEP) {
        split32(in->part[c / STEP], _mm512_loadu_ps(x + c), _mm512_loadu_ps(x + c + 16));
    }
}

/* Sixteen rows at w meet a step; asks for what the same rows hold `next` bytes later. */
#define ADD_STEP(sums, w)                                                                          \
    do {                                                                                           \
        _tile_loadd(4, w, stride);                                                                 \
        for (int r = 0; r < ROWS; r++)                                                             \
            _mm_prefetch((w) + (size_t)r * stride + next, _MM_HINT_T0);                            \
        _tile_dpbf16ps(sums, 4, 5);                                                                \
        _tile_dpbf16ps(sums, 4, 6);                                                                \
        _tile_dpbf16ps(sums, 4, 7);                                                                \
    } while (0)
#define LOAD_STEP(k)                                                                               \
    do {                                                                                           \
        _tile_loadd(5, &in->part[k][0], 4);                                                        \
        _tile_loadd(6, &in->part[k][1], 4);                                                        \
        _tile_loadd(7, &in->part[k][2], 4);                                                        \
    } while (0)

/* Adds a pass to four tiles of rows from `w` on. */
static void one_four(const struct one *in, const char *w, size_t stride, float *y)
{
    size_t tile = ROWS * stride, ahead_bytes = stride < ONE_AHEAD ? stride : ONE_AHEAD;
    _tile_loadd(0, y, 4);
    _tile_loadd(1, y + ROWS, 4);
    _tile_loadd(2, y + 2 * ROWS, 4);
    _tile_loadd(3, y + 3 * ROWS, 4);
    for (int64_t k = 0; k * STEP < in->cols; k++, w += 64) {
        size_t at = (size_t)(in->c + k * STEP) * 2 + ahead_bytes;
        size_t next = ahead_bytes + (at >= stride ? (ONE_TILES * ROWS - 1) * stride : 0);
        LOAD_STEP(k);
        ADD_STEP(0, w);
        ADD_STEP(1, w + tile);
        ADD_STEP(2, w + 2 * tile);
        ADD_STEP(3, w + 3 * tile);
    }
    _tile_stored(0, y, 4);
    _tile_stored(1, y + ROWS, 4);
    _tile_stored(2, y + 2 * ROWS, 4);
    _tile_stored(3, y + 3 * ROWS, 4);
}

/* The same for one tile of rows, for which the tiles are configured. */
static void one_tile(const struct one *in, const char *w, size_t stride, float *y)
{
    const size_t next = 0;
    _tile_loadd(0, y, 4);
    for (int64_t k = 0; k * STEP < in->cols; k++, w += 64) {
        LOAD_STEP(k);
        ADD_STEP(0, w);
    }
    _tile_stored(0, y, 4);
}

static void matvec(const struct tri_matmul_args *a, int64_t row0, int64_t row1)
{
    size_t stride = tri_row_data_bytes(TRI_DT_BF16, a->w->cols);
    struct one in;
    memset(a->y + row0, 0, (size_t)(row1 - row0) * sizeof *a->y);
    for (in.c = 0; in.c < a->w->cols; in.c += ONE_COLS) {
        const char *w = (const char *)a->w->data + 2 * in.c;
        int64_t row = row0;
        in.cols = a->w->cols - in.c < ONE_COLS ? a->w->cols - in.c : ONE_COLS;
        split_one(&in, a->x + in.c);
        configure_one(ROWS);
        for (; row + ONE_TILES * ROWS <= row1; row += ONE_TILES * ROWS)
            one_four(&in, w + (size_t)row * stride, stride, a->y + row);
        for (; row + ROWS <= row1; row += ROWS)
            one_tile(&in, w + (size_t)row * stride, stride, a->y + row);
        if (row < row1) {
            configure_one(row1 - row);
            one_tile(&in, w + (size_t)row * stride, stride, a->y + row);
        }
    }
    _tile_release();
}

void tri__amxbf16_matmul_bf16(const struct tri_matmul_args *a, int64_t row0, int64_t row1)
{
    if (a->tokens == 1 && a->w->cols % STEP == 0)
        matvec(a, row0, row1);
    else
        matmul(a, TRI_DT_BF16, row0, row1);
}

void tri__amxbf16_matmul_mxfp4(const struct tri_matmul_args *a, int64_t row0, int64_t row1)
{
    matmul(a, TRI_DT_MXFP4, row0, row1);
}
#endif
