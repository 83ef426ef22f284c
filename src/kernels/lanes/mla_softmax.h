/* What both forms of MLA attention in lanes share: the softmax of a block and the values of an fp8
 * cache. */
#ifndef TRI_KERNELS_MLA_SOFTMAX_H
#define TRI_KERNELS_MLA_SOFTMAX_H

#include <math.h>
#include "kernels/lanes/math_lanes.h"

#if defined(TRI_LANES)

enum { MLA_ROWS = 64 }; /* of a block */

/* The running softmax of one query. */
struct mla_running {
    float best; /* largest score so far, at first -INFINITY */
    double sum; /* of exponentials, relative to best */
};

/* Turns p, a query's products with the rows of a block of which it may see n, into shares relative
 * to the largest score so far; returns what earlier sums are to be multiplied by. */
static inline float mla_soften(struct mla_running *q, float p[MLA_ROWS], int64_t n, float scale)
{
    v16 s[MLA_ROWS / 16], sum = v16_set(0), none = v16_set(-INFINITY), high = v16_set(q->best);
    for (int64_t r = n > 0 ? n : 0; r < MLA_ROWS; r++)
        p[r] = -INFINITY;
    for (int k = 0; k < MLA_ROWS / 16; k++) {
        s[k] = v16_mul(v16_load(p + 16 * k), v16_set(scale));
        high = v16_max(high, s[k]);
    }
    float top = v16_top(high);
    float keep = top > q->best ? expf(q->best - top) : 1;
    for (int k = 0; k < MLA_ROWS / 16; k++) {
        v16 e = lanes_exp(v16_sub(s[k], v16_set(top)));
        e = v16_less(none, s[k], e,
                     v16_less(s[k], v16_set(INFINITY), v16_set(0), s[k])); /* NaN stays */
        v16_store(p + 16 * k, e);
        sum = v16_add(sum, e);
    }
    q->sum = q->sum * (double)keep + (double)v16_sum(sum);
    q->best = top;
    return keep;
}

/* Sixteen e4m3 values: the bits moved to float32's places, whose exponent counts from 120 more. */
static inline v16 mla_e4m3(const char *row)
{
    w16 b = w16_u8(row);
    w16 bits =
        w16_add(w16_left(w16_and(b, w16_set(0x7f)), 20), w16_left(w16_and(b, w16_set(0x80)), 24));
    return v16_mul(v16_bits(bits), v16_set(0x1p120f));
}

#endif
#endif
