/* Activations to int8 by groups of 32, bit for bit as the reference does it. */
#ifndef TRI_KERNELS_QUANTISE_LANES_H
#define TRI_KERNELS_QUANTISE_LANES_H

#include <math.h>
#include <string.h>
#include "kernels/lanes/vec.h"

#if defined(TRI_LANES)

/* The first and second half of a group; what is not a number counts as infinite. */
static inline void quantise_group(v16 a, v16 b, bool paired, int8_t *q, float *scale,
                                  int32_t *start)
{
    v16 inf = v16_set(INFINITY), abs_a = v16_abs(a), abs_b = v16_abs(b);
    float amax =
        v16_top(v16_max(v16_less(abs_a, inf, abs_a, inf), v16_less(abs_b, inf, abs_b, inf)));
    if (!(amax >= TRI_Q_LEAST) || amax == INFINITY) {
        memset(q, 0, TRI_Q_GROUP);
        *scale = amax == INFINITY ? NAN : 0;
        *start = 0;
        return;
    }
    v16 inverse = v16_set(127.0f / amax);
    w16 qa = w16_near(v16_mul(a, inverse)), qb = w16_near(v16_mul(b, inverse));
    w16_store_i8(q, qa, paired);
    w16_store_i8(q + 16, qb, paired);
    *scale = amax / 127.0f;
    /* At most 32 * 127: exact in float. */
    int32_t sum = (int32_t)v16_sum(v16_of(w16_add(qa, qb)));
    *start = -sum * (paired ? TRI_Q_BIAS_PAIRED : TRI_Q_BIAS);
}

static inline v16 quantise_load(const float *x, int64_t left)
{
    return left >= 16 ? v16_load(x) : left > 0 ? v16_part(x, left) : v16_set(0);
}

void TRI_LANES(quantise)(const struct tri_quantise_args *a, int64_t t0, int64_t t1)
{
    int64_t stride = a->out.q_stride, groups = stride / TRI_Q_GROUP;
    for (int64_t t = t0; t < t1; t++) {
        const float *x = a->x + t * a->x_stride;
        int8_t *q = a->out.q + t * stride;
        for (int64_t g = 0; g < groups; g++) {
            int64_t c = g * TRI_Q_GROUP;
            quantise_group(quantise_load(x + c, a->cols - c),
                           quantise_load(x + c + 16, a->cols - c - 16), a->out.paired, q + c,
                           a->out.scale + t * groups + g, a->out.start + t * groups + g);
        }
    }
}

#endif
#endif
