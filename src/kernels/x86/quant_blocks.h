/*
 * The loops around the tiles of quant_tile.h, for many tokens. A block of columns is taken through
 * several tiles of rows before the next, so that its activations stay in the second cache: with
 * rows outermost, every sixteen rows read all activations anew from the third
 * (docs/findings/053). Sums lie side by side until they are complete: rows of y are a
 * long stride apart, often in the same few cache sets.
 */
#ifndef TRI_KERNELS_QUANT_BLOCKS_H
#define TRI_KERNELS_QUANT_BLOCKS_H
#if defined(__AVX512VBMI__)

#include "kernels/x86/quant_tile.h"

enum {
    BLOCK_TOKENS = 512,
    BLOCK_TILES = 8,
    MANY_TOKENS = 64 /* fewer fit in the cache in any order: then rows are read to their end */
};

/* A piece of a tile of weights and the tokens it meets. */
struct block {
    const struct tri_qrows *x;
    const __m512i *w; /* as in struct tile: [columns / 4], signed or not */
    const __m512 *scale;
    float (*sum)[ROWS]; /* [tokens][rows]: what the columns before gave; none if c is 0 */
    int64_t t, tokens;  /* rows of x */
    int64_t c, groups;  /* first column, groups of activations */
    int scale_shift;    /* groups of activations to groups of weights: 1 for I8G64, else 0 */
    bool fresh;         /* the first tile of these tokens and columns: `turned` is not made */
    float *turned;      /* [BLOCK_TOKENS * COLS / GROUP], for the variant's use */
};

typedef void (*block_fn)(const struct block *b);

struct many {
    const struct tri_qmatmul_args *a;
    enum tri_dtype dtype;
    bool is_signed;
    block_fn multiply;
    int64_t row0; /* the first row asked for, which need not begin a tile of tiled weights */
};

/* Copies complete sums of the tile at `row` to y, as far as its rows are from row0 to row1. */
static void put_sums(const struct tri_qmatmul_args *a, const float (*sum)[ROWS], int64_t t,
                     int64_t tokens, int64_t row, int64_t row0, int64_t row1)
{
    __mmask16 rows = rows_within(row, row0, row1);
    for (int64_t i = 0; i < tokens; i++)
        _mm512_mask_storeu_ps(a->y + (t + i) * a->y_stride + row, rows, _mm512_load_ps(sum[i]));
}

/* Columns [c, c + n) of the tile at `row`, for tiled weights: int8 in place if it may be signed. */
TRI_INLINE void take_bytes(struct block *b, struct tile *room, const struct tri_matrix *w,
                           int64_t row, int64_t c, int64_t n, bool is_signed)
{
    const uint8_t *data = (const uint8_t *)w->data + row * w->cols + c * ROWS;
    const uint8_t *scales = (const uint8_t *)w->scales + (row * w->cols + c * ROWS) / 32;
    for (int64_t g = 0; g < n / TRI_I8_GROUP; g++)
        room->scale[g] = tile_scale(scales + g * ROWS * 2);
    b->scale_shift = 1;
    b->w = (const __m512i *)(const void *)data;
    if (is_signed)
        return;
    for (int64_t i = 0; i < n / 4; i++)
        room->w[i] =
            _mm512_xor_si512(_mm512_loadu_si512(data + 64 * i), _mm512_set1_epi8((char)0x80));
    b->w = room->w;
}

/* The same of MXFP4. */
TRI_INLINE void take_nibbles(struct tile *room, const struct tri_matrix *w, int64_t row, int64_t c,
                             int64_t n, bool is_signed)
{
    const __m512i table = nibble_table(TRI_DT_MXFP4, is_signed);
    const uint8_t *data = (const uint8_t *)w->data + (row * w->cols + c * ROWS) / 2;
    const uint8_t *scales = (const uint8_t *)w->scales + (row * w->cols + c * ROWS) / TRI_MX_GROUP;
    for (int64_t g = 0; g < n / TRI_MX_GROUP; g++)
        room->scale[g] = tile_e8m0(scales + g * ROWS);
    for (int64_t i = 0; i < n / 8; i++) {
        __m512i v = _mm512_loadu_si512(data + 64 * i);
        room->w[2 * i] = _mm512_permutexvar_epi8(v, table);
        room->w[2 * i + 1] = _mm512_permutexvar_epi8(_mm512_srli_epi16(v, 4), table);
    }
}

/* Tokens [t, t + tokens) times rows [row, row1), which are `tiles` tiles at most. */
TRI_INLINE void multiply_rows(const struct many *m, int64_t t, int64_t tokens, int64_t row,
                              int64_t row1)
{
    _Alignas(64) float sum[BLOCK_TILES][BLOCK_TOKENS][ROWS];
    _Alignas(64) float turned[BLOCK_TOKENS * COLS / GROUP];
    struct tile tile;
    struct rows p;
    int64_t most = m->dtype == TRI_DT_I8G64 ? COLS : FEW_COLS, cols = m->a->w->cols;
    for (int64_t c = 0; c < cols; c += most) {
        int64_t n = cols - c < most ? cols - c : most;
        for (int64_t r = row, i = 0; r < row1; r += ROWS, i++) {
            struct block b = { .x = &m->a->x,
                               .w = tile.w,
                               .scale = tile.scale,
                               .sum = sum[i],
                               .t = t,
                               .tokens = tokens,
                               .c = c,
                               .groups = (n + GROUP - 1) / GROUP,
                               .fresh = r == row,
                               .turned = turned };
            if (m->a->w->tiled && m->dtype == TRI_DT_I8G64) {
                take_bytes(&b, &tile, m->a->w, r, c, n, m->is_signed);
            } else if (m->a->w->tiled) {
                take_nibbles(&tile, m->a->w, r, c, n, m->is_signed);
            } else {
                point(&p, m->a->w, r, row1);
                b.scale_shift = pack_columns(&tile, &p, m->dtype, c, n, m->is_signed);
            }
            m->multiply(&b);
        }
    }
    for (int64_t r = row, i = 0; r < row1; r += ROWS, i++)
        put_sums(m->a, (const float(*)[ROWS])sum[i], t, tokens, r, m->row0, row1);
}

/* All tokens times rows [m->row0, row1). */
TRI_INLINE void multiply_many(const struct many *m, int64_t row1)
{
    int64_t row0 = m->a->w->tiled ? m->row0 / ROWS * ROWS : m->row0;
    int64_t tokens = m->a->tokens, step = (tokens >= MANY_TOKENS ? BLOCK_TILES : 1) * ROWS, n;
    for (int64_t t = 0; t < tokens; t += n) {
        int64_t left = tokens - t;
        n = left <= BLOCK_TOKENS ? left : BLOCK_TOKENS;
        if (left > n && left < n + MANY_TOKENS)
            n /= 2; /* so that the last block is not a small one */
        for (int64_t row = row0; row < row1; row += step)
            multiply_rows(m, t, n, row, row1 - row < step ? row1 : row + step);
    }
}

#endif
#endif
