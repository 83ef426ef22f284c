/* RMSNorm, the Attention Residuals mix and the gated norm, sums in float32 lanes. */
#ifndef TRI_KERNELS_NORM_LANES_H
#define TRI_KERNELS_NORM_LANES_H

#include <math.h>
#include "kernels/lanes/math_lanes.h"

#if defined(TRI_LANES)

enum { LANES_SOURCES = 64 }; /* of a mix; more go to the reference */

/* Four sums side by side hide the latency of the adder. */
static inline float lanes_squares(const float *x, int64_t n)
{
    v16 s[4] = { v16_set(0), v16_set(0), v16_set(0), v16_set(0) };
    int64_t c = 0;
    for (; c + 64 <= n; c += 64) {
        for (int i = 0; i < 4; i++) {
            v16 v = v16_load(x + c + i * 16);
            s[i] = v16_fma(v, v, s[i]);
        }
    }
    for (int i = 0; c < n; c += 16, i++) {
        v16 v = n - c < 16 ? v16_part(x + c, n - c) : v16_load(x + c);
        s[i] = v16_fma(v, v, s[i]);
    }
    return v16_sum(v16_add(v16_add(s[0], s[1]), v16_add(s[2], s[3])));
}

static inline float lanes_inverse_rms(float squares, int64_t width, float eps)
{
    return (float)(1 / sqrt((double)squares / (double)width + (double)eps));
}

void TRI_LANES(rmsnorm)(const struct tri_rmsnorm_args *a, int64_t t0, int64_t t1)
{
    for (int64_t t = t0; t < t1; t++) {
        const float *x = a->x + t * a->x_stride;
        float *y = a->y + t * a->y_stride;
        v16 inv = v16_set(lanes_inverse_rms(lanes_squares(x, a->width), a->width, a->eps));
        int64_t c = 0, rest = a->width % 16;
        for (; c + 16 <= a->width; c += 16)
            v16_store(y + c, v16_mul(v16_mul(v16_load(x + c), inv), v16_load(a->w + c)));
        if (rest)
            v16_store_part(y + c,
                           v16_mul(v16_mul(v16_part(x + c, rest), inv), v16_part(a->w + c, rest)),
                           rest);
    }
}

/* Dot with w over root mean square, one pass over the source. */
static inline double lanes_score(const float *v, const struct tri_mix_args *a)
{
    v16 dot[2] = { v16_set(0), v16_set(0) }, squares[2] = { v16_set(0), v16_set(0) };
    int64_t c = 0;
    for (int i = 0; c < a->width; c += 16, i ^= 1) {
        int64_t left = a->width - c;
        v16 x = left < 16 ? v16_part(v + c, left) : v16_load(v + c);
        v16 w = left < 16 ? v16_part(a->w + c, left) : v16_load(a->w + c);
        dot[i] = v16_fma(x, w, dot[i]);
        squares[i] = v16_fma(x, x, squares[i]);
    }
    float ss = v16_sum(v16_add(squares[0], squares[1]));
    return (double)v16_sum(v16_add(dot[0], dot[1])) *
           (double)lanes_inverse_rms(ss, a->width, a->eps);
}

static void lanes_mix_row(const struct tri_mix_args *a, int64_t t)
{
    double score[LANES_SOURCES], best = -HUGE_VAL, sum = 0;
    float share[LANES_SOURCES], *y = a->y + t * a->width;
    for (int64_t i = 0; i < a->n; i++) {
        score[i] = lanes_score(a->source[i] + t * a->width, a);
        best = score[i] > best ? score[i] : best;
    }
    for (int64_t i = 0; i < a->n; i++)
        sum += score[i] = exp(score[i] - best);
    for (int64_t i = 0; i < a->n; i++)
        share[i] = (float)(score[i] / sum);
    for (int64_t c = 0; c < a->width; c += 16) {
        int64_t left = a->width - c;
        v16 mixed = v16_set(0);
        for (int64_t i = 0; i < a->n; i++) {
            const float *v = a->source[i] + t * a->width + c;
            mixed = v16_fma(left < 16 ? v16_part(v, left) : v16_load(v), v16_set(share[i]), mixed);
        }
        if (left < 16)
            v16_store_part(y + c, mixed, left);
        else
            v16_store(y + c, mixed);
    }
}

void TRI_LANES(mix)(const struct tri_mix_args *a, int64_t t0, int64_t t1)
{
    if (a->n > LANES_SOURCES) {
        tri__ref_mix(a, t0, t1);
        return;
    }
    for (int64_t t = t0; t < t1; t++)
        lanes_mix_row(a, t);
}

void TRI_LANES(gated_norm)(const struct tri_gated_norm_args *a, int64_t h0, int64_t h1)
{
    if (a->dim % 16) {
        tri__ref_gated_norm(a, h0, h1);
        return;
    }
    for (int64_t t = 0; t < a->tokens; t++) {
        for (int64_t h = h0; h < h1; h++) {
            int64_t at = (t * a->heads + h) * a->dim;
            v16 inv = v16_set(lanes_inverse_rms(lanes_squares(a->o + at, a->dim), a->dim, a->eps));
            for (int64_t c = 0; c < a->dim; c += 16) {
                v16 o = v16_mul(v16_mul(v16_load(a->o + at + c), inv), v16_load(a->w + c));
                v16_store(a->y + at + c, v16_mul(o, lanes_sigmoid(v16_load(a->g + at + c))));
            }
        }
    }
}

#endif
#endif
