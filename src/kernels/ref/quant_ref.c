/*
 * int8 activations and their products with grouped weights: the order of every rounding is part of
 * the contract (kernels.h), so that variants can be compared bit for bit.
 */
#include "kernels/kernels_priv.h"

#include <math.h>
#include <string.h>

enum { GROUP = TRI_Q_GROUP };

/* Where column c lies in its row: nibble order within each 8 columns when paired. */
static int64_t place(int64_t c, bool paired)
{
    return paired ? (c & ~(int64_t)7) + (c % 2) * 4 + c % 8 / 2 : c;
}

static void quantise_group(const float *x, int64_t n, bool paired, int8_t *q, float *scale,
                           int32_t *start)
{
    float amax = 0;
    bool finite = true;
    for (int64_t i = 0; i < n; i++) {
        finite = finite && isfinite(x[i]);
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    }
    memset(q, 0, GROUP);
    *start = 0;
    *scale = finite ? 0 : NAN;
    if (!finite || amax < TRI_Q_LEAST)
        return;
    *scale = amax / 127.0f;
    float inverse = 127.0f / amax;
    for (int64_t i = 0; i < n; i++) {
        int value = (int)rintf(x[i] * inverse);
        q[place(i, paired)] = (int8_t)value;
        *start -= value * (paired ? TRI_Q_BIAS_PAIRED : TRI_Q_BIAS);
    }
}

void tri__ref_quantise(const struct tri_quantise_args *a, int64_t t0, int64_t t1)
{
    int64_t stride = a->out.q_stride, groups = stride / GROUP;
    for (int64_t t = t0; t < t1; t++) {
        for (int64_t g = 0; g < groups; g++) {
            int64_t left = a->cols - g * GROUP;
            left = left < 0 ? 0 : left < GROUP ? left : GROUP;
            quantise_group(a->x + t * a->x_stride + g * GROUP, left, a->out.paired,
                           a->out.q + t * stride + g * GROUP, a->out.scale + t * groups + g,
                           a->out.start + t * groups + g);
        }
    }
}

/* One group of one weight row: integers (MXFP4 doubled) and the scale that belongs to them. */
static float weight_group(const struct tri_matrix *w, int64_t row, int64_t g, int64_t n, int *out)
{
    static const int8_t e2m1[8] = { 0, 1, 2, 3, 4, 6, 8, 12 };
    const uint8_t *data = w->data, *scales = w->scales;
    data += (size_t)row * tri_row_data_bytes(w->dtype, w->cols);
    scales += (size_t)row * tri_row_scale_bytes(w->dtype, w->cols);
    for (int64_t i = 0; i < n; i++) {
        int64_t c = g * GROUP + i;
        int nibble = (data[c / 2] >> (c % 2 * 4)) & 15;
        if (w->dtype == TRI_DT_I8G64)
            out[i] = (int8_t)data[c];
        else if (w->dtype == TRI_DT_I4G32)
            out[i] = nibble - 8;
        else
            out[i] = nibble & 8 ? -e2m1[nibble & 7] : e2m1[nibble];
    }
    if (w->dtype == TRI_DT_MXFP4) {
        uint8_t e = scales[g];
        return e == 255 ? NAN : e < 2 ? 0 : tri_e8m0_decode((uint8_t)(e - 1));
    }
    uint16_t bits;
    memcpy(&bits, scales + (w->dtype == TRI_DT_I8G64 ? g / 2 : g) * 2, sizeof bits);
    return tri_bf16_decode(bits);
}

static float q_dot(const struct tri_qmatmul_args *a, int64_t row, int64_t t)
{
    int64_t cols = a->w->cols, groups = a->x.q_stride / GROUP;
    float y = 0;
    for (int64_t g = 0; g * GROUP < cols; g++) {
        int64_t n = cols - g * GROUP < GROUP ? cols - g * GROUP : GROUP;
        const int8_t *q = a->x.q + t * a->x.q_stride + g * GROUP;
        int w[GROUP], dot = 0;
        float scale = weight_group(a->w, row, g, n, w);
        for (int64_t i = 0; i < n; i++)
            dot += w[i] * q[place(i, a->x.paired)];
        y = fmaf((float)dot, scale * a->x.scale[t * groups + g], y);
    }
    return y;
}

void tri__ref_qmatmul(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    for (int64_t row = row0; row < row1; row++)
        for (int64_t t = 0; t < a->tokens; t++)
            a->y[t * a->y_stride + row] = q_dot(a, row, t);
}
