/* The words of lanes/vec.h in AVX2 and FMA: two registers each. */
#ifndef TRI_KERNELS_VEC_AVX2_H
#define TRI_KERNELS_VEC_AVX2_H
#if defined(__AVX2__) && !defined(__AVX512F__)

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    __m256 a, b;
} v16;
typedef struct {
    __m256i a, b;
} w16;

#define TRI_V16(op) ((v16){ op(x.a, y.a), op(x.b, y.b) })
#define TRI_W16(op) ((w16){ op(x.a, y.a), op(x.b, y.b) })

static inline v16 v16_set(float x)
{
    return (v16){ _mm256_set1_ps(x), _mm256_set1_ps(x) };
}
static inline v16 v16_load(const float *p)
{
    return (v16){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) };
}
static inline void v16_store(float *p, v16 x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
static inline v16 v16_part(const float *p, int64_t n)
{
    float t[16] = { 0 };
    memcpy(t, p, (size_t)n * sizeof *p);
    return v16_load(t);
}
static inline void v16_store_part(float *p, v16 x, int64_t n)
{
    float t[16];
    v16_store(t, x);
    memcpy(p, t, (size_t)n * sizeof *p);
}
static inline v16 v16_add(v16 x, v16 y)
{
    return TRI_V16(_mm256_add_ps);
}
static inline v16 v16_sub(v16 x, v16 y)
{
    return TRI_V16(_mm256_sub_ps);
}
static inline v16 v16_mul(v16 x, v16 y)
{
    return TRI_V16(_mm256_mul_ps);
}
static inline v16 v16_div(v16 x, v16 y)
{
    return TRI_V16(_mm256_div_ps);
}
static inline v16 v16_fma(v16 x, v16 y, v16 z)
{
    return (v16){ _mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b) };
}
static inline v16 v16_min(v16 x, v16 y)
{
    return TRI_V16(_mm256_min_ps);
}
static inline v16 v16_max(v16 x, v16 y)
{
    return TRI_V16(_mm256_max_ps);
}
static inline v16 v16_abs(v16 y)
{
    v16 x = v16_set(-0.0f);
    return TRI_V16(_mm256_andnot_ps);
}
static inline v16 v16_less(v16 a, v16 b, v16 x, v16 y)
{
    return (v16){ _mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(a.a, b.a, _CMP_LT_OQ)),
                  _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(a.b, b.b, _CMP_LT_OQ)) };
}
static inline float v16_sum(v16 x)
{
    __m256 h = _mm256_add_ps(x.a, x.b);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}
static inline void v16_sums8(float *p, const v16 s[8])
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256 t[4], u[2];
    for (int i = 0; i < 4; i++) { /* halves, then quarters of two */
        __m256 x = _mm256_add_ps(s[2 * i].a, s[2 * i].b);
        __m256 y = _mm256_add_ps(s[2 * i + 1].a, s[2 * i + 1].b);
        t[i] =
            _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
    }
    for (int i = 0; i < 2; i++)
        u[i] = _mm256_add_ps(_mm256_shuffle_ps(t[2 * i], t[2 * i + 1], 0x44),
                             _mm256_shuffle_ps(t[2 * i], t[2 * i + 1], 0xee));
    __m256 v =
        _mm256_add_ps(_mm256_shuffle_ps(u[0], u[1], 0x88), _mm256_shuffle_ps(u[0], u[1], 0xdd));
    _mm256_storeu_ps(p, _mm256_permutevar8x32_ps(v, order));
}
static inline float v16_top(v16 x)
{
    __m256 h = _mm256_max_ps(x.a, x.b);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}
static inline __m256 v8_bf16(const void *p)
{
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}
static inline v16 v16_bf16(const void *p)
{
    return (v16){ v8_bf16(p), v8_bf16((const char *)p + 16) };
}
static inline v16 v16_f16(const void *p)
{
    return (v16){ _mm256_cvtph_ps(_mm_loadu_si128(p)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const void *)((const char *)p + 16))) };
}
static inline v16 v16_of_bytes(__m128i q)
{
    return (v16){ _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)),
                  _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(q, 8))) };
}
static inline v16 v16_i8(const void *p)
{
    return v16_of_bytes(_mm_loadu_si128(p));
}
static inline v16 v16_nibbles(const void *p, const int8_t *table)
{
    const __m128i low = _mm_set1_epi8(15);
    __m128i b = _mm_loadl_epi64(p);
    __m128i n = _mm_unpacklo_epi8(_mm_and_si128(b, low), _mm_and_si128(_mm_srli_epi16(b, 4), low));
    return v16_of_bytes(_mm_shuffle_epi8(_mm_loadu_si128((const void *)table), n));
}
static inline void w16_store_i8(int8_t *p, w16 x, int paired)
{
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    __m128i l = _mm_packs_epi32(_mm256_castsi256_si128(x.a), _mm256_extracti128_si256(x.a, 1));
    __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(x.b), _mm256_extracti128_si256(x.b, 1));
    __m128i q = _mm_packs_epi16(l, h);
    _mm_storeu_si128((void *)p, paired ? _mm_shuffle_epi8(q, order) : q);
}
static inline void w16_store_i16(int16_t *p, w16 x)
{
    __m256i q = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
    _mm256_storeu_si256((void *)p, q);
}
static inline w16 w16_u8(const void *p)
{
    __m128i b = _mm_loadu_si128(p);
    return (w16){ _mm256_cvtepu8_epi32(b), _mm256_cvtepu8_epi32(_mm_srli_si128(b, 8)) };
}
static inline w16 w16_set(int32_t x)
{
    return (w16){ _mm256_set1_epi32(x), _mm256_set1_epi32(x) };
}
static inline w16 w16_near(v16 x)
{
    return (w16){ _mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b) };
}
static inline v16 v16_of(w16 x)
{
    return (v16){ _mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b) };
}
static inline w16 w16_add(w16 x, w16 y)
{
    return TRI_W16(_mm256_add_epi32);
}
static inline w16 w16_sub(w16 x, w16 y)
{
    return TRI_W16(_mm256_sub_epi32);
}
static inline w16 w16_and(w16 x, w16 y)
{
    return TRI_W16(_mm256_and_si256);
}
static inline w16 w16_load(const int32_t *p)
{
    return (w16){ _mm256_loadu_si256((const void *)p), _mm256_loadu_si256((const void *)(p + 8)) };
}
static inline void w16_store(int32_t *p, w16 x)
{
    _mm256_storeu_si256((void *)p, x.a);
    _mm256_storeu_si256((void *)(p + 8), x.b);
}
#define w16_left(x, n)  ((w16){ _mm256_slli_epi32((x).a, n), _mm256_slli_epi32((x).b, n) })
#define w16_right(x, n) ((w16){ _mm256_srai_epi32((x).a, n), _mm256_srai_epi32((x).b, n) })
static inline v16 v16_bits(w16 x)
{
    return (v16){ _mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b) };
}
static inline w16 w16_bits(v16 x)
{
    return (w16){ _mm256_castps_si256(x.a), _mm256_castps_si256(x.b) };
}

#undef TRI_V16
#undef TRI_W16
#endif
#endif
