/*
 * int8 activations times grouped weights with AVX-512 VNNI (and VBMI for the nibbles). Sixteen rows
 * are brought into a tile in which one register holds four columns of all of them, so that a sum
 * stays in one lane from its first column to its last: the same kernel serves one token and many,
 * and gives the same bits. Weights are transposed on the way from memory (64 shuffles for 1 KiB,
 * docs/findings/050) and never stored in another layout.
 */
#if defined(__x86_64__)
#if !defined(__AVX512VNNI__) || !defined(__AVX512VBMI__)
#error "compile with -mavx512vnni -mavx512vbmi (cmake/Kernels.cmake)"
#endif

#include "kernels/x86/quant_vnni.h"
#include "kernels/x86/quant_blocks.h"

enum { TOKENS = 8 }; /* in registers: their int and float sums, and one of weights */

TRI_INLINE int32_t get32(const int8_t *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

/* Adds the block to `n` tokens (a constant) from t on. */
TRI_INLINE void multiply(const struct block *b, int64_t t, int n)
{
    int64_t stride = b->x->q_stride, x_groups = stride / GROUP;
    const int8_t *q = b->x->q + (b->t + t) * stride + b->c;
    const float *scale = b->x->scale + (b->t + t) * x_groups + b->c / GROUP;
    const int32_t *start = b->x->start + (b->t + t) * x_groups + b->c / GROUP;
    __m512 sum[TOKENS];
    for (int i = 0; i < n; i++)
        sum[i] = b->c ? _mm512_load_ps(b->sum[t + i]) : _mm512_setzero_ps();
    for (int64_t g = 0; g < b->groups; g++) {
        const __m512i *w = b->w + g * (GROUP / 4);
        __m512i dot[TOKENS];
        for (int i = 0; i < n; i++)
            dot[i] = _mm512_set1_epi32(start[i * x_groups + g]);
#pragma GCC unroll 8
        for (int k = 0; k < GROUP / 4; k++)
            for (int i = 0; i < n; i++)
                dot[i] = _mm512_dpbusd_epi32(
                    dot[i], w[k], _mm512_set1_epi32(get32(q + i * stride + g * GROUP + k * 4)));
        __m512 weight = b->scale[g >> b->scale_shift];
        for (int i = 0; i < n; i++)
            sum[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i]),
                                     _mm512_mul_ps(weight, _mm512_set1_ps(scale[i * x_groups + g])),
                                     sum[i]);
    }
    for (int i = 0; i < n; i++)
        _mm512_store_ps(b->sum[t + i], sum[i]);
}

static void multiply_block(const struct block *b)
{
    int64_t t = 0, tokens = b->tokens;
    for (; t + TOKENS <= tokens; t += TOKENS)
        multiply(b, t, TOKENS);
    if (t + 4 <= tokens) {
        multiply(b, t, 4);
        t += 4;
    }
    if (t + 2 <= tokens) {
        multiply(b, t, 2);
        t += 2;
    }
    if (t < tokens)
        multiply(b, t, 1);
}

static void qmatmul(const struct tri_qmatmul_args *a, enum tri_dtype dtype, int64_t row0,
                    int64_t row1)
{
    struct many m = { a, dtype, false, multiply_block, row0 };
    multiply_many(&m, row1);
}

void tri__vnni_qmatmul_i8g64(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    if (a->w->tiled && a->tokens < TILED_TOKENS)
        tri__vnni_tiled_i8g64(a, row0, row1);
    else if (a->tokens == 1)
        tri__vnni_one_i8g64(a, row0, row1);
    else
        qmatmul(a, TRI_DT_I8G64, row0, row1);
}

void tri__vnni_qmatmul_i4g32(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    if (a->tokens == 1)
        tri__vnni_one_i4g32(a, row0, row1);
    else
        qmatmul(a, TRI_DT_I4G32, row0, row1);
}

void tri__vnni_qmatmul_mxfp4(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    if (a->w->tiled && a->tokens < TILED_TOKENS)
        tri__vnni_tiled_mxfp4(a, row0, row1);
    else if (a->tokens == 1)
        tri__vnni_one_mxfp4(a, row0, row1);
    else
        qmatmul(a, TRI_DT_MXFP4, row0, row1);
}
#endif
