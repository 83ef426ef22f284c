/*
 * int8 activations times grouped weights on AMX tiles, for many tokens: one instruction multiplies
 * 16 tokens by 16 rows over a group's 32 columns. The group's integers are then scaled and added in
 * the order that all variants keep, which costs more than the products; few tokens go to VNNI. A
 * rest of fewer than sixteen tokens is done with some of those before it: sixteen sums stay in
 * registers, a number that is no constant of them does not.
 */
#if defined(__x86_64__)
/* clang 14 spells it without the underscore. */
#if !(defined(__AMX_INT8__) || defined(__AMXINT8__)) || !defined(__AVX512VBMI__)
#error "compile with -mamx-tile -mamx-int8 -mavx512vbmi (cmake/Kernels.cmake)"
#endif

#include <string.h>
#include "kernels/x86/quant_amx.h"
#include "kernels/x86/quant_blocks.h"
#include "kernels/x86/quant_vnni.h"
#include "kernels/x86/tile_config.h"

/* Fewer are faster on VNNI. */
enum { LEAST_TOKENS = TOKENS, LEAST_TILED_TOKENS = 10 };

static bool few(const struct tri_qmatmul_args *a)
{
    return a->tokens < (tri__amx_tiled_takes(a) ? LEAST_TILED_TOKENS : LEAST_TOKENS);
}

/* Scales and adds the products of groups [g, g + n). */
TRI_INLINE void add_up(__m512 sum[TOKENS], const __m512i out[FLIGHT][TOKENS], const struct block *b,
                       const float scales[][TOKENS], int64_t g, int n)
{
    for (int k = 0; k < n; k++, g++)
        add_products(sum, out[k], b->scale[g >> b->scale_shift], scales[g]);
}

/*
 * Adds the block to sixteen tokens from t on; of those only from `first` on are stored. Four groups
 * are multiplied while the four before are added: what a tile has just stored is slow to load.
 */
TRI_INLINE void multiply(const struct block *b, int64_t t, int first, float (*scales)[TOKENS])
{
    int64_t stride = b->x->q_stride, x_groups = stride / GROUP;
    const int8_t *q = b->x->q + (b->t + t) * stride + b->c;
    __m512i out[2][FLIGHT][TOKENS];
    __m512 sum[TOKENS];
    int64_t g = 0, whole = b->groups / FLIGHT * FLIGHT;
    int turn = 0;
    if (b->fresh)
        turn_scales(scales, b->x->scale + (b->t + t) * x_groups + b->c / GROUP, x_groups, b->groups,
                    TOKENS);
#pragma GCC unroll 16
    for (int i = 0; i < TOKENS; i++)
        sum[i] = b->c ? _mm512_load_ps(b->sum[t + i]) : _mm512_setzero_ps();
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
        if (i >= first)
            _mm512_store_ps(b->sum[t + i], sum[i]);
}

/* The last sixteen tokens, some of which were done before. */
static __attribute__((noinline)) void multiply_rest(const struct block *b, int rest)
{
    float(*scales)[TOKENS] = (float(*)[TOKENS])(b->turned + (b->tokens - rest) * (COLS / GROUP));
    multiply(b, b->tokens - TOKENS, TOKENS - rest, scales);
}

/* Sixteen tokens or more. */
static void multiply_block(const struct block *b)
{
    int64_t full = b->tokens / TOKENS * TOKENS;
    for (int64_t t = 0; t < full; t += TOKENS)
        multiply(b, t, 0, (float(*)[TOKENS])(b->turned + t * (COLS / GROUP)));
    if (full < b->tokens)
        multiply_rest(b, (int)(b->tokens - full));
}

static void qmatmul(const struct tri_qmatmul_args *a, enum tri_dtype dtype, int64_t row0,
                    int64_t row1)
{
    struct many m = { a, dtype, true, multiply_block, row0 };
    configure(TOKENS);
    multiply_many(&m, row1);
    _tile_release();
}

void tri__amx_qmatmul_i8g64(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    if (few(a))
        tri__vnni_qmatmul_i8g64(a, row0, row1);
    else if (tri__amx_tiled_takes(a))
        tri__amx_tiled_i8g64(a, row0, row1);
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
    if (few(a))
        tri__vnni_qmatmul_mxfp4(a, row0, row1);
    else if (tri__amx_tiled_takes(a))
        tri__amx_tiled_mxfp4(a, row0, row1);
    else
        qmatmul(a, TRI_DT_MXFP4, row0, row1);
}
#endif
