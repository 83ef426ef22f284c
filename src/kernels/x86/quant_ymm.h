/*
 * int8 activations times grouped weights in 256-bit registers, as quant_vnni.c does it in 512:
 * sixteen rows in a tile whose registers hold four columns of eight rows. AVX2 has no unsigned
 * times signed product wide enough for both, so there each product is |weight| times the activation
 * with the weight's sign; AVX-VNNI has one, and takes weights made unsigned by a bias.
 */
#ifndef TRI_KERNELS_QUANT_YMM_H
#define TRI_KERNELS_QUANT_YMM_H
#if defined(__AVX2__)

#include <immintrin.h>
#include <string.h>
#include "kernels/kernels_priv.h"

#if defined(__AVXVNNI__)
enum { BIASED = 1 }; /* weights are unsigned: + 128, or + 12 for nibbles */
#else
enum { BIASED = 0 };
#endif

enum {
    ROWS = TRI_QTILE_ROWS,
    GROUP = TRI_Q_GROUP,
    COLS = 512,  /* packed at once: 8 KiB of tile */
    TOKENS = 4,  /* in registers: their int and float sums */
    AHEAD = 1024 /* bytes of prefetch along a row */
};

#define TRI_INLINE static inline __attribute__((always_inline))

/* w [columns / 4][16 rows][4 columns] (MXFP4 doubled); scale [group of 32][16 rows]. */
struct tile {
    __m256i w[COLS / 4][2];
    float scale[COLS / GROUP][ROWS];
};

struct rows {
    const uint8_t *data[ROWS], *scales[ROWS];
    size_t data_bytes, scale_bytes; /* of one row */
};

static void point(struct rows *p, const struct tri_matrix *w, int64_t row, int64_t row1)
{
    p->data_bytes = tri_row_data_bytes(w->dtype, w->cols);
    p->scale_bytes = tri_row_scale_bytes(w->dtype, w->cols);
    for (int r = 0; r < ROWS; r++) {
        size_t at = (size_t)(row + r < row1 ? row + r : row1 - 1);
        p->data[r] = (const uint8_t *)w->data + at * p->data_bytes;
        p->scales[r] = (const uint8_t *)w->scales + at * p->scale_bytes;
    }
}

/* Eight registers of eight 4-byte units: unit j of register i becomes unit i of register j. */
TRI_INLINE void transpose(__m256i v[8])
{
    __m256i t[8], u[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        v[k] = _mm256_permute2x128_si256(u[k], u[4 + k], 0x20);
        v[4 + k] = _mm256_permute2x128_si256(u[k], u[4 + k], 0x31);
    }
}

/* 32 bytes of eight rows from `at` on, of which `n` exist; asks for what comes later. */
TRI_INLINE void load_rows(__m256i v[8], const struct rows *p, int half, size_t at, int64_t n)
{
    size_t next = at + (p->data_bytes < AHEAD ? p->data_bytes : AHEAD);
    next += next >= p->data_bytes ? (ROWS - 1) * p->data_bytes : 0;
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++) {
        const uint8_t *row = p->data[half * 8 + r];
        _mm_prefetch((const void *)(row + next), _MM_HINT_T0);
        if (n >= 32) {
            v[r] = _mm256_loadu_si256((const void *)(row + at));
        } else {
            uint8_t rest[32] = { 0 };
            memcpy(rest, row + at, (size_t)n);
            v[r] = _mm256_loadu_si256((const void *)rest);
        }
    }
}

/* Bytes of 0x80 where weights are made unsigned by adding 128, else 0. */
TRI_INLINE __m256i flip(void)
{
    return _mm256_set1_epi8(BIASED ? (char)0x80 : 0);
}

static void pack_bytes(struct tile *tile, const struct rows *p, int64_t c, int64_t n)
{
    for (int64_t at = 0; at < n; at += 32) {
        for (int half = 0; half < 2; half++) {
            __m256i v[8];
            load_rows(v, p, half, (size_t)(c + at), n - at);
            transpose(v);
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++)
                tile->w[at / 4 + j][half] = _mm256_xor_si256(v[j], flip());
        }
    }
}

/* Values of the nibbles, MXFP4 doubled; biased: + 12. */
TRI_INLINE __m256i nibble_table(enum tri_dtype dtype, bool biased)
{
    static const int8_t tables[2][16] = {
        { -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7 },
        { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 }
    };
    __m128i table = _mm_loadu_si128((const void *)tables[dtype == TRI_DT_MXFP4]);
    return _mm256_broadcastsi128_si256(
        _mm_add_epi8(table, _mm_set1_epi8(biased ? TRI_Q_BIAS_PAIRED : 0)));
}

static void pack_nibbles(struct tile *tile, const struct rows *p, int64_t c, int64_t n,
                         __m256i table)
{
    const __m256i low = _mm256_set1_epi8(15);
    int64_t bytes = (n + 1) / 2;
    for (int64_t at = 0; at < bytes; at += 32) {
        for (int half = 0; half < 2; half++) {
            __m256i v[8];
            load_rows(v, p, half, (size_t)(c / 2 + at), bytes - at);
            transpose(v);
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) {
                __m256i high = _mm256_and_si256(_mm256_srli_epi16(v[j], 4), low);
                tile->w[at / 2 + 2 * j][half] =
                    _mm256_shuffle_epi8(table, _mm256_and_si256(v[j], low));
                tile->w[at / 2 + 2 * j + 1][half] = _mm256_shuffle_epi8(table, high);
            }
        }
    }
}

/* Scales of groups [g, g + n) of 32 columns. */
TRI_INLINE void pack_scales(struct tile *tile, const struct rows *p, enum tri_dtype dtype,
                            int64_t g, int64_t n)
{
    for (int r = 0; r < ROWS; r++) {
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits;
            if (dtype == TRI_DT_MXFP4) {
                uint32_t e = p->scales[r][g + i];
                bits = e == 255 ? 0x7fc00000u : (e ? e - 1 : 0) << 23;
            } else {
                uint16_t half;
                int64_t at = dtype == TRI_DT_I8G64 ? (g + i) / 2 : g + i;
                memcpy(&half, p->scales[r] + 2 * at, sizeof half);
                bits = (uint32_t)half << 16;
            }
            memcpy(&tile->scale[i][r], &bits, sizeof bits);
        }
    }
}

TRI_INLINE __m256i four(const int8_t *q)
{
    int32_t v;
    memcpy(&v, q, sizeof v);
    return _mm256_set1_epi32(v);
}

/* Adds four products a lane: to 16-bit halves, not yet added together, if `small` (nibbles). */
TRI_INLINE __m256i add_products(__m256i dot, __m256i w, __m256i size, __m256i x, bool small)
{
#if defined(__AVXVNNI__)
    (void)size;
    (void)small;
    return _mm256_dpbusd_avx_epi32(dot, w, x);
#else
    __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(x, w));
    return small ? _mm256_add_epi16(dot, pairs)
                 : _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}

/* One packed block of columns [c, c + 32 groups) of a tile. */
struct block {
    const struct tri_qmatmul_args *a;
    const struct tile *tile;
    int64_t row, rows, c, groups;
};

/* y of one token's eight rows, and back; rows that are not there are left alone. */
TRI_INLINE __m256 fetch(const float *y, int64_t rows)
{
    float t[8] = { 0 };
    if (rows >= 8)
        return _mm256_loadu_ps(y);
    memcpy(t, y, (size_t)(rows > 0 ? rows : 0) * sizeof *y);
    return _mm256_loadu_ps(t);
}
TRI_INLINE void put(float *y, __m256 v, int64_t rows)
{
    float t[8];
    if (rows >= 8) {
        _mm256_storeu_ps(y, v);
        return;
    }
    _mm256_storeu_ps(t, v);
    memcpy(y, t, (size_t)(rows > 0 ? rows : 0) * sizeof *y);
}

/* Adds the block to `n` tokens (a constant) from t on, for eight of the rows. */
TRI_INLINE void multiply(const struct block *b, int64_t t, int half, int n, bool small)
{
    const struct tri_qrows *x = &b->a->x;
    int64_t stride = x->q_stride, x_groups = stride / GROUP, rows = b->rows - half * 8;
    const int8_t *q = x->q + t * stride + b->c;
    const float *scale = x->scale + t * x_groups + b->c / GROUP;
    /* NOLINTNEXTLINE(clang-analyzer-deadcode.DeadStores): unread unless BIASED */
    const int32_t *start = x->start + t * x_groups + b->c / GROUP;
    float *y = b->a->y + t * b->a->y_stride + b->row + half * 8;
    __m256 sum[TOKENS];
    for (int i = 0; i < n; i++)
        sum[i] = b->c ? fetch(y + i * b->a->y_stride, rows) : _mm256_setzero_ps();
    for (int64_t g = 0; g < b->groups; g++) {
        __m256i dot[TOKENS];
        for (int i = 0; i < n; i++)
            dot[i] = _mm256_set1_epi32(BIASED ? start[i * x_groups + g] : 0);
#pragma GCC unroll 8
        for (int k = 0; k < GROUP / 4; k++) {
            __m256i w = b->tile->w[g * (GROUP / 4) + k][half], size = _mm256_abs_epi8(w);
            for (int i = 0; i < n; i++) {
                __m256i in = four(q + i * stride + g * GROUP + k * 4);
                dot[i] = add_products(dot[i], w, size, in, small);
            }
        }
        __m256 weight = _mm256_loadu_ps(b->tile->scale[g] + half * 8);
        for (int i = 0; i < n; i++) {
            __m256i whole =
                small && !BIASED ? _mm256_madd_epi16(dot[i], _mm256_set1_epi16(1)) : dot[i];
            sum[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole),
                                     _mm256_mul_ps(weight, _mm256_set1_ps(scale[i * x_groups + g])),
                                     sum[i]);
        }
    }
    for (int i = 0; i < n; i++)
        put(y + i * b->a->y_stride, sum[i], rows);
}

TRI_INLINE void multiply_all(const struct block *b, bool small)
{
    for (int half = 0; half < 2 && half * 8 < b->rows; half++) {
        int64_t t = 0;
        for (; t + TOKENS <= b->a->tokens; t += TOKENS)
            multiply(b, t, half, TOKENS, small);
        for (; t < b->a->tokens; t++)
            multiply(b, t, half, 1, small);
    }
}

TRI_INLINE void qmatmul(const struct tri_qmatmul_args *a, enum tri_dtype dtype, int64_t row0,
                        int64_t row1)
{
    __m256i table = nibble_table(dtype, BIASED);
    struct tile tile;
    struct rows p;
    for (int64_t row = row0; row < row1; row += ROWS) {
        point(&p, a->w, row, row1);
        for (int64_t c = 0; c < a->w->cols; c += COLS) {
            int64_t n = a->w->cols - c < COLS ? a->w->cols - c : COLS;
            struct block b = { .a = a,
                               .tile = &tile,
                               .row = row,
                               .rows = row1 - row < ROWS ? row1 - row : ROWS,
                               .c = c,
                               .groups = (n + GROUP - 1) / GROUP };
            if (dtype == TRI_DT_I8G64)
                pack_bytes(&tile, &p, c, n);
            else
                pack_nibbles(&tile, &p, c, n, table);
            pack_scales(&tile, &p, dtype, c / GROUP, b.groups);
            multiply_all(&b, dtype != TRI_DT_I8G64);
        }
    }
}

#endif
#endif
