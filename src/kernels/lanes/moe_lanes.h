/* Activations, gates, sums and the router. */
#ifndef TRI_KERNELS_MOE_LANES_H
#define TRI_KERNELS_MOE_LANES_H

#include "kernels/lanes/math_lanes.h"

#if defined(TRI_LANES)

static inline v16 lanes_glu(const struct tri_glu_args *a, v16 g, v16 u)
{
    v16 bounded = g;
    if (a->situ && a->linear_beta > 0) {
        v16 beta = v16_set(a->linear_beta);
        u = v16_mul(beta, lanes_tanh(v16_div(u, beta)));
    }
    if (a->situ)
        bounded = v16_mul(v16_set(a->beta), lanes_tanh(v16_div(g, v16_set(a->beta))));
    return v16_mul(v16_mul(bounded, lanes_sigmoid(g)), u);
}

void TRI_LANES(glu)(const struct tri_glu_args *a, int64_t i0, int64_t i1)
{
    int64_t i = i0;
    for (; i + 16 <= i1; i += 16)
        v16_store(a->y + i, lanes_glu(a, v16_load(a->gate + i), v16_load(a->up + i)));
    if (i < i1)
        v16_store_part(a->y + i,
                       lanes_glu(a, v16_part(a->gate + i, i1 - i), v16_part(a->up + i, i1 - i)),
                       i1 - i);
}

void TRI_LANES(gate)(const struct tri_gate_args *a, int64_t i0, int64_t i1)
{
    int64_t i = i0;
    for (; i + 16 <= i1; i += 16)
        v16_store(a->y + i, v16_mul(v16_load(a->y + i), lanes_sigmoid(v16_load(a->g + i))));
    if (i < i1)
        v16_store_part(
            a->y + i,
            v16_mul(v16_part(a->y + i, i1 - i), lanes_sigmoid(v16_part(a->g + i, i1 - i))), i1 - i);
}

void TRI_LANES(add)(const struct tri_add_args *a, int64_t i0, int64_t i1)
{
    int64_t i = i0;
    for (; i + 16 <= i1; i += 16)
        v16_store(a->y + i, v16_add(v16_load(a->y + i), v16_load(a->x + i)));
    for (; i < i1; i++)
        a->y[i] += a->x[i];
}

void TRI_LANES(combine)(const struct tri_combine_args *a, int64_t t0, int64_t t1)
{
    for (int64_t t = t0; t < t1; t++) {
        const int32_t *place = a->place + t * a->topk;
        const float *weight = a->weights + t * a->topk;
        for (int64_t c = 0; c < a->width; c += 16) {
            int64_t left = a->width - c;
            v16 sum = v16_set(0);
            for (int64_t i = 0; i < a->topk; i++) {
                const float *y = a->y + place[i] * a->width + c;
                if (place[i] >= 0)
                    sum = v16_fma(v16_set(weight[i]), left < 16 ? v16_part(y, left) : v16_load(y),
                                  sum);
            }
            if (left < 16)
                v16_store_part(a->sum + t * a->width + c, sum, left);
            else
                v16_store(a->sum + t * a->width + c, sum);
        }
    }
}

#endif
#endif
