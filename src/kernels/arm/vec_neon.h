/* The words of lanes/vec.h in NEON: four registers each. */
#ifndef TRI_KERNELS_VEC_NEON_H
#define TRI_KERNELS_VEC_NEON_H
#if defined(__ARM_NEON)

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    float32x4_t a, b, c, d;
} v16;
typedef struct {
    int32x4_t a, b, c, d;
} w16;

#define TRI_V16_1(op) ((v16){ op(x.a), op(x.b), op(x.c), op(x.d) })
#define TRI_V16(op)   ((v16){ op(x.a, y.a), op(x.b, y.b), op(x.c, y.c), op(x.d, y.d) })
#define TRI_W16(op)   ((w16){ op(x.a, y.a), op(x.b, y.b), op(x.c, y.c), op(x.d, y.d) })

static inline v16 v16_set(float x)
{
    float32x4_t q = vdupq_n_f32(x);
    return (v16){ q, q, q, q };
}
static inline v16 v16_load(const float *p)
{
    return (v16){ vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12) };
}
static inline void v16_store(float *p, v16 x)
{
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
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
    return TRI_V16(vaddq_f32);
}
static inline v16 v16_sub(v16 x, v16 y)
{
    return TRI_V16(vsubq_f32);
}
static inline v16 v16_mul(v16 x, v16 y)
{
    return TRI_V16(vmulq_f32);
}
static inline v16 v16_div(v16 x, v16 y)
{
    return TRI_V16(vdivq_f32);
}
static inline v16 v16_fma(v16 x, v16 y, v16 z)
{
    return (v16){ vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
                  vfmaq_f32(z.d, x.d, y.d) };
}
static inline v16 v16_min(v16 x, v16 y)
{
    return TRI_V16(vminq_f32);
}
static inline v16 v16_max(v16 x, v16 y)
{
    return TRI_V16(vmaxq_f32);
}
static inline v16 v16_abs(v16 x)
{
    return TRI_V16_1(vabsq_f32);
}
static inline v16 v16_less(v16 a, v16 b, v16 x, v16 y)
{
    return (
        v16){ vbslq_f32(vcltq_f32(a.a, b.a), x.a, y.a), vbslq_f32(vcltq_f32(a.b, b.b), x.b, y.b),
              vbslq_f32(vcltq_f32(a.c, b.c), x.c, y.c), vbslq_f32(vcltq_f32(a.d, b.d), x.d, y.d) };
}
static inline float v16_sum(v16 x)
{
    float32x4_t q = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    float32x2_t h = vadd_f32(vget_low_f32(q), vget_high_f32(q));
    return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}
static inline void v16_sums8(float *p, const v16 s[8])
{
    for (int i = 0; i < 8; i += 4) {
        float32x4_t q[4];
        for (int k = 0; k < 4; k++)
            q[k] = vaddq_f32(vaddq_f32(s[i + k].a, s[i + k].c), vaddq_f32(s[i + k].b, s[i + k].d));
        float32x4_t x = vaddq_f32(vcombine_f32(vget_low_f32(q[0]), vget_low_f32(q[1])),
                                  vcombine_f32(vget_high_f32(q[0]), vget_high_f32(q[1])));
        float32x4_t y = vaddq_f32(vcombine_f32(vget_low_f32(q[2]), vget_low_f32(q[3])),
                                  vcombine_f32(vget_high_f32(q[2]), vget_high_f32(q[3])));
        vst1q_f32(p + i, vpaddq_f32(x, y));
    }
}
static inline float v16_top(v16 x)
{
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.a, x.c), vmaxq_f32(x.b, x.d)));
}
static inline float32x4_t v4_bf16(uint16x4_t h)
{
    return vreinterpretq_f32_u32(vshll_n_u16(h, 16));
}
static inline v16 v16_bf16(const void *p)
{
    uint16x8_t l = vreinterpretq_u16_u8(vld1q_u8(p));
    uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)p + 16));
    return (v16){ v4_bf16(vget_low_u16(l)), v4_bf16(vget_high_u16(l)), v4_bf16(vget_low_u16(h)),
                  v4_bf16(vget_high_u16(h)) };
}
static inline v16 v16_f16(const void *p)
{
    float16x8_t l = vreinterpretq_f16_u8(vld1q_u8(p));
    float16x8_t h = vreinterpretq_f16_u8(vld1q_u8((const uint8_t *)p + 16));
    return (v16){ vcvt_f32_f16(vget_low_f16(l)), vcvt_f32_f16(vget_high_f16(l)),
                  vcvt_f32_f16(vget_low_f16(h)), vcvt_f32_f16(vget_high_f16(h)) };
}
static inline v16 v16_of_bytes(int8x16_t q)
{
    int16x8_t l = vmovl_s8(vget_low_s8(q)), h = vmovl_s8(vget_high_s8(q));
    return (v16){ vcvtq_f32_s32(vmovl_s16(vget_low_s16(l))),
                  vcvtq_f32_s32(vmovl_s16(vget_high_s16(l))),
                  vcvtq_f32_s32(vmovl_s16(vget_low_s16(h))),
                  vcvtq_f32_s32(vmovl_s16(vget_high_s16(h))) };
}
static inline v16 v16_i8(const void *p)
{
    return v16_of_bytes(vld1q_s8(p));
}
static inline v16 v16_nibbles(const void *p, const int8_t *table)
{
    uint8x8_t b = vld1_u8(p);
    uint8x8x2_t n = vzip_u8(vand_u8(b, vdup_n_u8(15)), vshr_n_u8(b, 4));
    return v16_of_bytes(vqtbl1q_s8(vld1q_s8(table), vcombine_u8(n.val[0], n.val[1])));
}
static inline void w16_store_i8(int8_t *p, w16 x, int paired)
{
    static const uint8_t order[16] = { 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15 };
    int16x8_t l = vcombine_s16(vmovn_s32(x.a), vmovn_s32(x.b));
    int16x8_t h = vcombine_s16(vmovn_s32(x.c), vmovn_s32(x.d));
    int8x16_t q = vcombine_s8(vmovn_s16(l), vmovn_s16(h));
    vst1q_s8(p, paired ? vqtbl1q_s8(q, vld1q_u8(order)) : q);
}
static inline void w16_store_i16(int16_t *p, w16 x)
{
    vst1q_s16(p, vcombine_s16(vmovn_s32(x.a), vmovn_s32(x.b)));
    vst1q_s16(p + 8, vcombine_s16(vmovn_s32(x.c), vmovn_s32(x.d)));
}
static inline w16 w16_u8(const void *p)
{
    uint8x16_t b = vld1q_u8(p);
    uint16x8_t l = vmovl_u8(vget_low_u8(b)), h = vmovl_u8(vget_high_u8(b));
    return (w16){ vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(l))),
                  vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(l))),
                  vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(h))),
                  vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(h))) };
}
static inline w16 w16_set(int32_t x)
{
    int32x4_t q = vdupq_n_s32(x);
    return (w16){ q, q, q, q };
}
static inline w16 w16_near(v16 x)
{
    return (w16){ vcvtnq_s32_f32(x.a), vcvtnq_s32_f32(x.b), vcvtnq_s32_f32(x.c),
                  vcvtnq_s32_f32(x.d) };
}
static inline v16 v16_of(w16 x)
{
    return TRI_V16_1(vcvtq_f32_s32);
}
static inline w16 w16_add(w16 x, w16 y)
{
    return TRI_W16(vaddq_s32);
}
static inline w16 w16_sub(w16 x, w16 y)
{
    return TRI_W16(vsubq_s32);
}
static inline w16 w16_and(w16 x, w16 y)
{
    return TRI_W16(vandq_s32);
}
static inline w16 w16_load(const int32_t *p)
{
    return (w16){ vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12) };
}
static inline void w16_store(int32_t *p, w16 x)
{
    vst1q_s32(p, x.a);
    vst1q_s32(p + 4, x.b);
    vst1q_s32(p + 8, x.c);
    vst1q_s32(p + 12, x.d);
}
#define w16_left(x, n)                                                                             \
    ((w16){ vshlq_n_s32((x).a, n), vshlq_n_s32((x).b, n), vshlq_n_s32((x).c, n),                   \
            vshlq_n_s32((x).d, n) })
#define w16_right(x, n)                                                                            \
    ((w16){ vshrq_n_s32((x).a, n), vshrq_n_s32((x).b, n), vshrq_n_s32((x).c, n),                   \
            vshrq_n_s32((x).d, n) })
static inline v16 v16_bits(w16 x)
{
    return TRI_V16_1(vreinterpretq_f32_s32);
}
static inline w16 w16_bits(v16 x)
{
    return (w16){ vreinterpretq_s32_f32(x.a), vreinterpretq_s32_f32(x.b),
                  vreinterpretq_s32_f32(x.c), vreinterpretq_s32_f32(x.d) };
}

#undef TRI_V16_1
#undef TRI_V16
#undef TRI_W16
#endif
#endif
