/*
 * A float32 as the sum of three bf16 values, by truncation: 8 bits each, 24 in all, so exact but
 * for values below 2^-102 in magnitude (tiles take denormals for 0) and infinities, which become
 * NaN. Products of bf16 values are exact in float32, which is what AMX tiles add up.
 */
#ifndef TRI_KERNELS_BF16_PARTS_H
#define TRI_KERNELS_BF16_PARTS_H
#if defined(__AVX512VBMI__)

#include "kernels/x86/quant_tile.h"

enum { PARTS = 3 };

/* The upper halves of 16 + 16 floats: bf16 by truncation. */
TRI_INLINE __m512i upper(__m512 a, __m512 b)
{
    const __m512i odd =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(_mm512_castps_si512(a), odd, _mm512_castps_si512(b));
}

/* What truncation to bf16 leaves of x: exact. */
TRI_INLINE __m512 below(__m512 x)
{
    const __m512i top = _mm512_set1_epi32((int)0xffff0000u);
    return _mm512_sub_ps(x, _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), top)));
}

/* Sixteen pairs of bf16, by truncation. */
TRI_INLINE __m512i pair_of(__m512 first, __m512 second)
{
    const __m512i top = _mm512_set1_epi32((int)0xffff0000u);
    __m512i a = _mm512_castps_si512(first), b = _mm512_castps_si512(second);
    return _mm512_or_si512(_mm512_srli_epi32(a, 16), _mm512_and_si512(b, top));
}

/* 32 floats as parts, the leading one first. */
TRI_INLINE void split32(__m512i part[PARTS], __m512 low, __m512 high)
{
#pragma GCC unroll 3
    for (int p = 0; p < PARTS; p++) {
        part[p] = upper(low, high);
        low = below(low);
        high = below(high);
    }
}

#endif
#endif
