/*
 * Tiles of int8 weights for the AVX-512 products: sixteen rows, four columns of all of them in one
 * register, transposed on the way from memory. VNNI takes weights made unsigned by a bias, AMX
 * takes them signed: `flip` and the nibble table say which.
 */
#ifndef TRI_KERNELS_QUANT_TILE_H
#define TRI_KERNELS_QUANT_TILE_H
#if defined(__AVX512VBMI__)

#include <immintrin.h>
#include "kernels/kernels_priv.h"

enum {
    ROWS = TRI_QTILE_ROWS,
    GROUP = TRI_Q_GROUP,
    COLS = 1024,         /* packed at once: 16 KiB of tile stay in the first cache */
    FEW_COLS = COLS / 2, /* of formats with a scale for each 32: 16 scales a row */
    AHEAD = 1024         /* bytes of prefetch along a row */
};

#define TRI_INLINE static inline __attribute__((always_inline))

/*
 * w      [columns / 4][16 rows][4 columns] signed, or unsigned: + 128, or + 12 for nibbles
 * scale  [scale group][16 rows] f32
 */
struct tile {
    __m512i w[COLS / 4];
    __m512 scale[16];
};

struct rows {
    const uint8_t *data[ROWS], *scales[ROWS];
    size_t data_bytes, scale_bytes; /* of one row */
};

TRI_INLINE void point(struct rows *p, const struct tri_matrix *w, int64_t row, int64_t row1)
{
    p->data_bytes = tri_row_data_bytes(w->dtype, w->cols);
    p->scale_bytes = tri_row_scale_bytes(w->dtype, w->cols);
    for (int r = 0; r < ROWS; r++) {
        size_t at = (size_t)(row + r < row1 ? row + r : row1 - 1);
        p->data[r] = (const uint8_t *)w->data + at * p->data_bytes;
        p->scales[r] = (const uint8_t *)w->scales + at * p->scale_bytes;
    }
}

/*
 * Asks for what row r will read AHEAD bytes later: sixteen streams are more than the hardware
 * follows. Behind the row's end that is row r of the next tile. Into the second cache: the first
 * holds this tile twice already. Past the matrix nothing is harmed.
 */
TRI_INLINE void ahead(const struct rows *p, int r, size_t at)
{
    size_t distance = p->data_bytes < AHEAD ? p->data_bytes : AHEAD;
    at += distance;
    if (at >= p->data_bytes)
        at += (ROWS - 1) * p->data_bytes;
    _mm_prefetch((const void *)(p->data[r] + at), _MM_HINT_T1);
}

TRI_INLINE void scales_ahead(const struct rows *p)
{
    const uint8_t *next = p->scales[0] + ROWS * p->scale_bytes;
    for (size_t at = 0; at < ROWS * p->scale_bytes && at < 2048; at += 64)
        _mm_prefetch((const void *)(next + at), _MM_HINT_T0);
}

/* Lanes of the tile at `row` that are rows from row0 to row1. */
TRI_INLINE __mmask16 rows_within(int64_t row, int64_t row0, int64_t row1)
{
    uint32_t end = row1 - row < ROWS ? (1u << (row1 - row)) - 1 : 0xffff;
    return (__mmask16)(row0 > row ? end & ~((1u << (row0 - row)) - 1) : end);
}

/* Sixteen rows' scales of a group of tiled weights: bf16, or e8m0 as pack_e8m0 reads them. */
TRI_INLINE __m512 tile_scale(const uint8_t *scales)
{
    __m256i v = _mm256_loadu_si256((const void *)scales);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

TRI_INLINE __m512 tile_e8m0(const uint8_t *scales)
{
    __m128i e = _mm_loadu_si128((const void *)scales);
    __mmask16 nan = _mm_cmpeq_epi8_mask(e, _mm_set1_epi8(-1));
    __m512i v = _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_subs_epu8(e, _mm_set1_epi8(1))), 23);
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(v, nan, _mm512_set1_epi32(0x7fc00000)));
}

/* Sixteen registers of sixteen 4-byte units: unit j of register i becomes unit i of register j. */
TRI_INLINE void transpose(__m512i v[ROWS])
{
    __m512i t[ROWS], u[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; i += 4) {
        u[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        u[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        u[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    /* u[4q + k] now holds, in its 128-bit lane L, unit 4L + k of registers 4q .. 4q + 3. */
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m512i a = _mm512_shuffle_i32x4(u[k], u[4 + k], 0x88);
        __m512i b = _mm512_shuffle_i32x4(u[k], u[4 + k], 0xdd);
        __m512i c = _mm512_shuffle_i32x4(u[8 + k], u[12 + k], 0x88);
        __m512i d = _mm512_shuffle_i32x4(u[8 + k], u[12 + k], 0xdd);
        v[k] = _mm512_shuffle_i32x4(a, c, 0x88);
        v[8 + k] = _mm512_shuffle_i32x4(a, c, 0xdd);
        v[4 + k] = _mm512_shuffle_i32x4(b, d, 0x88);
        v[12 + k] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
}

TRI_INLINE __mmask64 first_bytes(int64_t n)
{
    return n >= 64 ? ~(__mmask64)0 : n > 0 ? ((__mmask64)1 << n) - 1 : 0;
}

/* Columns [c, c + n) of int8; flip 0x80 adds 128. */
TRI_INLINE void pack_bytes(struct tile *tile, const struct rows *p, int64_t c, int64_t n, int flip)
{
    for (int64_t at = 0; at < n; at += 64) {
        __mmask64 mask = first_bytes(n - at);
        __m512i v[ROWS];
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) {
            v[r] = _mm512_maskz_loadu_epi8(mask, p->data[r] + c + at);
            ahead(p, r, (size_t)(c + at));
        }
        transpose(v);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++)
            tile->w[at / 4 + r] = _mm512_xor_si512(v[r], _mm512_set1_epi8((char)flip));
    }
}

/* Columns [c, c + n) of nibbles, through a table; c is even. */
TRI_INLINE void pack_nibbles(struct tile *tile, const struct rows *p, int64_t c, int64_t n,
                             __m512i table)
{
    int64_t bytes = (n + 1) / 2;
    for (int64_t at = 0; at < bytes; at += 64) {
        __mmask64 mask = first_bytes(bytes - at);
        __m512i v[ROWS];
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) {
            v[r] = _mm512_maskz_loadu_epi8(mask, p->data[r] + c / 2 + at);
            ahead(p, r, (size_t)(c / 2 + at));
        }
        transpose(v);
        /* The permutation looks at six bits of each byte; the table repeats itself every four. */
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) {
            tile->w[at / 2 + 2 * r] = _mm512_permutexvar_epi8(v[r], table);
            tile->w[at / 2 + 2 * r + 1] =
                _mm512_permutexvar_epi8(_mm512_srli_epi16(v[r], 4), table);
        }
    }
}

/* Scale groups [g, g + n), n <= 16, of bf16. */
static void pack_scales(__m512 scale[ROWS], const struct rows *p, int64_t g, int64_t n)
{
    __mmask16 mask = (__mmask16)((1u << n) - 1);
    __m512i v[ROWS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        v[r] = _mm512_slli_epi32(
            _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p->scales[r] + 2 * g)), 16);
    transpose(v);
    for (int i = 0; i < ROWS; i++)
        scale[i] = _mm512_castsi512_ps(v[i]);
}

/* The same of e8m0, halved, because the values are doubled; 0 and 1 give 0, 255 NaN. */
static void pack_e8m0(__m512 scale[ROWS], const struct rows *p, int64_t g, int64_t n)
{
    __mmask16 mask = (__mmask16)((1u << n) - 1);
    const __m128i one = _mm_set1_epi8(1);
    __m512i v[ROWS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
        __m128i e = _mm_maskz_loadu_epi8(mask, p->scales[r] + g);
        __mmask16 nan = _mm_cmpeq_epi8_mask(e, _mm_set1_epi8(-1));
        v[r] = _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_subs_epu8(e, one)), 23);
        v[r] = _mm512_mask_mov_epi32(v[r], nan, _mm512_set1_epi32(0x7fc00000));
    }
    transpose(v);
    for (int i = 0; i < ROWS; i++)
        scale[i] = _mm512_castsi512_ps(v[i]);
}

/* What a nibble stands for, signed or with 12 added; MXFP4 doubled. Sixteen bytes, four times. */
TRI_INLINE __m512i nibble_table(enum tri_dtype dtype, bool is_signed)
{
    static const int8_t tables[2][2][16] = {
        { { 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19 },
          { 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0 } },
        { { -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7 },
          { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 } }
    };
    const int8_t *table = tables[is_signed][dtype == TRI_DT_MXFP4];
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table));
}

/* Columns [c, c + n) of any format with its scales; returns the shift from groups of activations to
 * groups of weights. */
TRI_INLINE int pack_columns(struct tile *tile, const struct rows *p, enum tri_dtype dtype,
                            int64_t c, int64_t n, bool is_signed)
{
    int64_t groups = (n + GROUP - 1) / GROUP;
    if (dtype == TRI_DT_I8G64) {
        pack_bytes(tile, p, c, n, is_signed ? 0 : 0x80);
        pack_scales(tile->scale, p, c / TRI_I8_GROUP, (groups + 1) / 2);
        return 1;
    }
    pack_nibbles(tile, p, c, n, nibble_table(dtype, is_signed));
    if (dtype == TRI_DT_MXFP4)
        pack_e8m0(tile->scale, p, c / TRI_MX_GROUP, groups);
    else
        pack_scales(tile->scale, p, c / TRI_I4_GROUP, groups);
    return 0;
}

#endif
#endif
