/*
 * int8 activations times grouped weights on AMX tiles, for many tokens: one instruction multiplies
 * 16 tokens by 16 rows over a group's 32 columns. The group's integers are then scaled and added in
 * the order that all variants keep, which costs more than the products; few tokens go to VNNI.
 * Tile registers: 0 to 3 sums of four groups in flight, 4 and 5 activations, 6 and 7 weights.
 */
#if defined(__x86_64__)
/* clang 14 spells it without the underscore. */
#if !(defined(__AMX_INT8__) || defined(__AMXINT8__)) || !defined(__AVX512VBMI__)
#error "compile with -mamx-tile -mamx-int8 -mavx512vbmi (cmake/Kernels.cmake)"
#endif

#include <string.h>
#include "kernels/x86/quant_blocks.h"
#include "kernels/x86/tile_config.h"

enum {
    TOKENS = 16,
    FLIGHT = 4,      /* groups multiplied before the first is added */
    LEAST_TOKENS = 8 /* fewer: VNNI is faster */
};

/* Tiles for `tokens` tokens. */
static void configure(int64_t tokens)
{
    struct tile_config c = { .palette = 1 };
    for (int i = 0; i < 6; i++) {
        c.rows[i] = (uint8_t)tokens;
        c.row_bytes[i] = i < 4 ? 64 : GROUP;
    }
    for (int i = 6; i < 8; i++) {
        c.rows[i] = GROUP / 4;
        c.row_bytes[i] = 64;
    }
    _tile_loadconfig(&c);
}

/* One group's products to a sum register; numbers of tiles must be constants. */
#define PRODUCTS(sums, x, w, q, stride, weights)                                                   \
    do {                                                                                           \
        _tile_loadd(x, q, (size_t)(stride));                                                       \
        _tile_loadd(w, weights, 64);                                                               \
        _tile_zero(sums);                                                                          \
        _tile_dpbssd(sums, x, w);                                                                  \
    } while (0)

/* Products of four groups; their stores last, or each would wait for its own product. */
TRI_INLINE void four_groups(__m512i out[FLIGHT][TOKENS], const int8_t *q, int64_t stride,
                            const __m512i *w)
{
    PRODUCTS(0, 4, 6, q, stride, w);
    PRODUCTS(1, 5, 7, q + GROUP, stride, w + GROUP / 4);
    PRODUCTS(2, 4, 6, q + 2 * GROUP, stride, w + 2 * GROUP / 4);
    PRODUCTS(3, 5, 7, q + 3 * GROUP, stride, w + 3 * GROUP / 4);
    _tile_stored(0, out[0], 64);
    _tile_stored(1, out[1], 64);
    _tile_stored(2, out[2], 64);
    _tile_stored(3, out[3], 64);
}

/* Scales of tokens [t, t + n), [group][16 tokens]; those beyond n are 0. */
static void turn_scales(float (*out)[TOKENS], const struct block *b, int64_t t, int n)
{
    int64_t x_groups = b->x->q_stride / GROUP;
    const float *scale = b->x->scale + (b->t + t) * x_groups + b->c / GROUP;
    for (int64_t g = 0; g < b->groups; g += TOKENS) {
        int64_t left = b->groups - g < TOKENS ? b->groups - g : TOKENS;
        __mmask16 mask = (__mmask16)((1u << left) - 1);
        __m512i v[TOKENS];
#pragma GCC unroll 16
        for (int i = 0; i < TOKENS; i++)
            v[i] = i < n ? _mm512_maskz_loadu_epi32(mask, scale + i * x_groups + g)
                         : _mm512_setzero_si512();
        transpose(v);
#pragma GCC unroll 16
        for (int i = 0; i < TOKENS; i++)
            _mm512_storeu_si512(out[g + i], v[i]);
    }
}

/* Scales and adds the products of groups [g, g + n). */
TRI_INLINE void add_up(__m512 sum[TOKENS], const __m512i out[FLIGHT][TOKENS], const struct block *b,
                       const float scales[][TOKENS], int64_t g, int n)
{
    for (int k = 0; k < n; k++, g++) {
        __m512 weight = b->scale[g >> b->scale_shift];
#pragma GCC unroll 16
        for (int i = 0; i < TOKENS; i++)
            sum[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(out[k][i]),
                                     _mm512_mul_ps(weight, _mm512_set1_ps(scales[g][i])), sum[i]);
    }
}

/*
 * Adds the block to tokens [t, t + n), n <= 16, for which the tiles are configured. Four groups are
 * multiplied while the four before are added: what a tile has just stored is slow to load. All
 * sixteen sums are made, so that they stay in registers; those beyond n are 0 and not stored.
 */
TRI_INLINE void multiply(const struct block *b, int64_t t, int n)
{
    int64_t stride = b->x->q_stride;
    const int8_t *q = b->x->q + (b->t + t) * stride + b->c;
    float(*scales)[TOKENS] = (float(*)[TOKENS])(b->turned + t * (COLS / GROUP));
    __m512i out[2][FLIGHT][TOKENS];
    __m512 sum[TOKENS];
    int64_t g = 0, whole = b->groups / FLIGHT * FLIGHT;
    int turn = 0;
    if (b->fresh)
        turn_scales(scales, b, t, n);
    if (n < TOKENS)
        memset(out, 0, sizeof out);
#pragma GCC unroll 16
    for (int i = 0; i < TOKENS; i++)
        sum[i] = b->c && i < n ? _mm512_load_ps(b->sum[t + i]) : _mm512_setzero_ps();
    for (; g < whole; g += FLIGHT, turn ^= 1) {
        four_groups(out[turn], q + g * GROUP, stride, b->w + g * (GROUP / 4));
        if (g > 0)
            add_up(sum, out[turn ^ 1], b, scales, g - FLIGHT, FLIGHT);
    }
    if (whole)
        add_up(sum, out[turn ^ 1], b, scales, whole - FLIGHT, FLIGHT);
    for (; g < b->groups; g++) {
        PRODUCTS(0, 4, 6, q + g * GROUP, stride, b->w + g * (GROUP / 4));
        _tile_stored(0, out[0][0], 64);
        add_up(sum, out[0], b, scales, g, 1);
    }
#pragma GCC unroll 16
    for (int i = 0; i < TOKENS; i++)
        if (i < n)
            _mm512_store_ps(b->sum[t + i], sum[i]);
}

/* The same for a number of tokens that is no constant. */
static __attribute__((noinline)) void multiply_rest(const struct block *b, int64_t t, int n)
{
    multiply(b, t, n);
}

static void multiply_block(const struct block *b)
{
    int64_t full = b->tokens / TOKENS * TOKENS;
    if (full)
        configure(TOKENS);
    for (int64_t t = 0; t < full; t += TOKENS)
        multiply(b, t, TOKENS);
    if (full < b->tokens) {
        configure(b->tokens - full);
        multiply_rest(b, full, (int)(b->tokens - full));
    }
}

static void qmatmul(const struct tri_qmatmul_args *a, enum tri_dtype dtype, int64_t row0,
                    int64_t row1)
{
    struct many m = { a, dtype, true, multiply_block, row0 };
    multiply_many(&m, row1);
    _tile_release();
}

void tri__amx_qmatmul_i8g64(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    if (a->tokens < LEAST_TOKENS)
        tri__vnni_qmatmul_i8g64(a, row0, row1);
    else
        qmatmul(a, TRI_DT_I8G64, row0, row1);
}

void tri__amx_qmatmul_i4g32(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    if (a->tokens < LEAST_TOKENS)
        tri__vnni_qmatmul_i4g32(a, row0, row1);
    else
        qmatmul(a, TRI_DT_I4G32, row0, row1);
}

void tri__amx_qmatmul_mxfp4(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    if (a->tokens < LEAST_TOKENS)
        tri__vnni_qmatmul_mxfp4(a, row0, row1);
    else
        qmatmul(a, TRI_DT_MXFP4, row0, row1);
}
#endif
