/*
 * What the int8 products on AMX tiles share. Tile registers: 0 to 3 sums of four groups in flight,
 * 4 and 5 activations, 6 and 7 weights.
 */
#ifndef TRI_KERNELS_QUANT_AMX_H
#define TRI_KERNELS_QUANT_AMX_H
#if defined(__AVX512VBMI__)

#include "kernels/x86/quant_tile.h"
#include "kernels/x86/tile_config.h"

enum {
    TOKENS = 16,
    FLIGHT = 4 /* groups multiplied before the first is added */
};

/* Tiles for `tokens` tokens. */
TRI_INLINE void configure(int64_t tokens)
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

/* Scales of n tokens, x_groups apart, [group][16 tokens]; those beyond n are 0. */
TRI_INLINE void turn_scales(float (*out)[TOKENS], const float *scale, int64_t x_groups,
                            int64_t groups, int n)
{
    for (int64_t g = 0; g < groups; g += TOKENS) {
        int64_t left = groups - g < TOKENS ? groups - g : TOKENS;
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

/* Scales a group's products by its weights' scales and its tokens', and adds them. */
TRI_INLINE void add_products(__m512 sum[TOKENS], const __m512i out[TOKENS], __m512 weight,
                             const float scales[TOKENS])
{
#pragma GCC unroll 16
    for (int i = 0; i < TOKENS; i++)
        sum[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(out[i]),
                                 _mm512_mul_ps(weight, _mm512_set1_ps(scales[i])), sum[i]);
}

#endif
#endif
