/*
 * bf16 and float32 weights to int8 and int4 groups, the same bits as fmt: a quotient of floats and
 * its nearest integer are one value each, whatever computes them, and clamping before or after
 * rounding to whole limits is the same. Whole groups of 64 columns here, the rest by the reference.
 */
#ifndef TRI_KERNELS_ENCODE_LANES_H
#define TRI_KERNELS_ENCODE_LANES_H

#include <math.h>
#include <string.h>
#include "kernels/lanes/vec.h"

#if defined(TRI_LANES)

enum { ENCODE_STEP = 64 }; /* one int8 group, two int4 groups */

static inline v16 encode_load(const char *x, bool bf16, int64_t i)
{
    return bf16 ? v16_bf16(x + 2 * i) : v16_load((const float *)(const void *)(x + 4 * i));
}

/* The group's scale as bf16 bits, for its largest magnitude; NaN when not all are finite. */
static inline uint16_t encode_scale(const v16 *x, int n, float most)
{
    v16 inf = v16_set(INFINITY), top = v16_set(0);
    for (int i = 0; i < n; i++) {
        v16 size = v16_abs(x[i]);
        top = v16_max(top, v16_less(size, inf, size, inf));
    }
    float amax = v16_top(top);
    return tri_bf16_encode((amax < INFINITY ? amax : NAN) / most);
}

/* n * 16 values as bytes; all 0 for a scale that is zero or NaN. */
static inline void encode_bytes(int8_t *q, const v16 *x, int n, float scale, const float range[2])
{
    v16 lo = v16_set(range[0]), hi = v16_set(range[1]), by = v16_set(scale);
    if (!(scale > 0)) {
        memset(q, 0, (size_t)n * 16);
        return;
    }
    for (int i = 0; i < n; i++)
        w16_store_i8(q + 16 * i, w16_near(v16_min(v16_max(v16_div(x[i], by), lo), hi)), false);
}

/* 32 bytes of -8..7 to nibbles plus 8, low first, eight at a time within a word. */
static inline void encode_nibbles(uint8_t *out, const int8_t *q)
{
    for (int i = 0; i < 4; i++) {
        uint64_t v;
        memcpy(&v, q + 8 * i, sizeof v);
        v = (v ^ UINT64_C(0x0808080808080808)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
        v = (v | v >> 4) & UINT64_C(0x00ff00ff00ff00ff);
        v = (v | v >> 8) & UINT64_C(0x0000ffff0000ffff);
        v |= v >> 16;
        memcpy(out + 4 * i, &v, 4);
    }
}

static inline void encode_step_i8(const v16 *x, int8_t *q, uint16_t *scale)
{
    static const float range[2] = { -127, 127 };
    scale[0] = encode_scale(x, 4, 127);
    encode_bytes(q, x, 4, tri_bf16_decode(scale[0]), range);
}

static inline void encode_step_i4(const v16 *x, uint8_t *q, uint16_t *scale)
{
    static const float range[2] = { -8, 7 };
    int8_t whole[2 * TRI_I4_GROUP];
    for (int g = 0; g < 2; g++) {
        scale[g] = encode_scale(x + 2 * g, 2, 7);
        encode_bytes(whole + 32 * g, x + 2 * g, 2, tri_bf16_decode(scale[g]), range);
        encode_nibbles(q + 16 * g, whole + 32 * g);
    }
}

/* The first `cols` values of a row, whole steps. */
static inline void encode_row(const char *from, bool bf16, int64_t cols, bool i8, char *data,
                              char *scales)
{
    for (int64_t c = 0; c < cols; c += ENCODE_STEP) {
        v16 x[4];
        uint16_t scale[2];
        for (int i = 0; i < 4; i++)
            x[i] = encode_load(from, bf16, c + 16 * i);
        if (i8)
            encode_step_i8(x, (int8_t *)data + c, scale);
        else
            encode_step_i4(x, (uint8_t *)data + c / 2, scale);
        memcpy(scales + (i8 ? c / 64 * 2 : c / 32 * 2), scale, i8 ? 2 : 4);
    }
}

void TRI_LANES(encode)(const struct tri_encode_args *a, int64_t row0, int64_t row1)
{
    bool i8 = a->to == TRI_DT_I8G64, bf16 = a->from_dtype == TRI_DT_BF16;
    if ((!i8 && a->to != TRI_DT_I4G32) || (!bf16 && a->from_dtype != TRI_DT_F32)) {
        tri__ref_encode(a, row0, row1);
        return;
    }
    size_t from = tri_row_data_bytes(a->from_dtype, a->cols);
    size_t data = tri_row_data_bytes(a->to, a->cols), scale = tri_row_scale_bytes(a->to, a->cols);
    int64_t whole = a->cols / ENCODE_STEP * ENCODE_STEP;
    for (int64_t r = row0; r < row1; r++) {
        const char *x = (const char *)a->from + (size_t)r * from;
        char *q = (char *)a->data + (size_t)r * data, *s = (char *)a->scales + (size_t)r * scale;
        if (bf16 && i8)
            encode_row(x, true, whole, true, q, s);
        else if (bf16)
            encode_row(x, true, whole, false, q, s);
        else
            encode_row(x, false, whole, i8, q, s);
        struct tri_encode_args rest = { x + tri_row_data_bytes(a->from_dtype, whole),
                                        a->from_dtype,
                                        a->to,
                                        a->cols - whole,
                                        q + tri_row_data_bytes(a->to, whole),
                                        s + tri_row_scale_bytes(a->to, whole) };
        tri__ref_encode(&rest, 0, 1);
    }
}

#endif
#endif
