/* The words of lanes/vec.h in AVX-512: one register each. */
#ifndef TRI_KERNELS_VEC_AVX512_H
#define TRI_KERNELS_VEC_AVX512_H
#if defined(__AVX512F__)

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef __m512 v16;
typedef __m512i w16;

static inline v16 v16_set(float x)
{
    return _mm512_set1_ps(x);
}
static inline v16 v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void v16_store(float *p, v16 a)
{
    _mm512_storeu_ps(p, a);
}
static inline __mmask16 v16_mask(int64_t n)
{
    return (__mmask16)((1u << n) - 1);
}
static inline v16 v16_part(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(v16_mask(n), p);
}
static inline void v16_store_part(float *p, v16 a, int64_t n)
{
    _mm512_mask_storeu_ps(p, v16_mask(n), a);
}
static inline v16 v16_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}
static inline v16 v16_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}
static inline v16 v16_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}
static inline v16 v16_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}
static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline v16 v16_min(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}
static inline v16 v16_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}
static inline v16 v16_abs(v16 a)
{
    return _mm512_abs_ps(a);
}
static inline v16 v16_less(v16 a, v16 b, v16 x, v16 y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
static inline float v16_sum(v16 a)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}
static inline void v16_sums8(float *p, const v16 s[8])
{
    const w16 order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    v16 t[4], u[2];
    for (int i = 0; i < 4; i++) /* halves of two */
        t[i] = _mm512_add_ps(_mm512_shuffle_f32x4(s[2 * i], s[2 * i + 1], 0x44),
                             _mm512_shuffle_f32x4(s[2 * i], s[2 * i + 1], 0xee));
    for (int i = 0; i < 2; i++) /* quarters of four */
        u[i] = _mm512_add_ps(_mm512_shuffle_f32x4(t[2 * i], t[2 * i + 1], 0x88),
                             _mm512_shuffle_f32x4(t[2 * i], t[2 * i + 1], 0xdd));
    v16 v = _mm512_add_ps(_mm512_shuffle_ps(u[0], u[1], 0x44), _mm512_shuffle_ps(u[0], u[1], 0xee));
    v = _mm512_add_ps(v, _mm512_permute_ps(v, 0xb1));
    _mm256_storeu_ps(p, _mm512_castps512_ps256(_mm512_permutexvar_ps(order, v)));
}
static inline float v16_top(v16 a)
{
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}
static inline v16 v16_bf16(const void *p)
{
    __m256i h = _mm256_loadu_si256(p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
static inline v16 v16_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
static inline v16 v16_i8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}
/* Lanes 0..7 take the low 4 bytes, 8..15 the high 4, each shifted to its nibble: a permutation
 * looks at no more than 4 bits of its index. */
static inline v16 v16_nibbles(const void *p, const int8_t *table)
{
    const w16 shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    int32_t low, high;
    memcpy(&low, p, sizeof low);
    memcpy(&high, (const char *)p + 4, sizeof high);
    w16 bytes = _mm512_mask_set1_epi32(_mm512_set1_epi32(low), 0xff00, high);
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(bytes, shift), v16_i8(table));
}
static inline void w16_store_i8(int8_t *p, w16 a, int paired)
{
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    __m128i q = _mm512_cvtepi32_epi8(a);
    _mm_storeu_si128((void *)p, paired ? _mm_shuffle_epi8(q, order) : q);
}
static inline void w16_store_i16(int16_t *p, w16 a)
{
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(a));
}
static inline w16 w16_u8(const void *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(p));
}
static inline w16 w16_set(int32_t x)
{
    return _mm512_set1_epi32(x);
}
static inline w16 w16_near(v16 a)
{
    return _mm512_cvtps_epi32(a);
}
static inline v16 v16_of(w16 a)
{
    return _mm512_cvtepi32_ps(a);
}
static inline w16 w16_add(w16 a, w16 b)
{
    return _mm512_add_epi32(a, b);
}
static inline w16 w16_sub(w16 a, w16 b)
{
    return _mm512_sub_epi32(a, b);
}
static inline w16 w16_and(w16 a, w16 b)
{
    return _mm512_and_si512(a, b);
}
static inline w16 w16_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}
static inline void w16_store(int32_t *p, w16 a)
{
    _mm512_storeu_si512(p, a);
}
#define w16_left(a, n)  _mm512_slli_epi32(a, n)
#define w16_right(a, n) _mm512_srai_epi32(a, n)
static inline v16 v16_bits(w16 a)
{
    return _mm512_castsi512_ps(a);
}
static inline w16 w16_bits(v16 a)
{
    return _mm512_castps_si512(a);
}

#endif
#endif
