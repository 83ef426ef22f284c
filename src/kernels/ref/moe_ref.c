/* Activations, gates and the router (K3 spec 3.5, 3.7). */
#include "kernels/kernels_priv.h"

#include <math.h>

float tri__ref_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

void tri__ref_glu(const struct tri_glu_args *a, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        float g = a->gate[i], u = a->up[i];
        if (a->situ && a->linear_beta > 0)
            u = a->linear_beta * tanhf(u / a->linear_beta);
        float bounded = a->situ ? a->beta * tanhf(g / a->beta) : g;
        a->y[i] = bounded * tri__ref_sigmoid(g) * u;
    }
}

void tri__ref_gate(const struct tri_gate_args *a, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++)
        a->y[i] *= tri__ref_sigmoid(a->g[i]);
}

/* Index of the largest value, the lowest index on ties. NaN never wins. */
static int64_t largest(const float *v, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (v[i] > v[best] || v[best] != v[best])
            best = i;
    return best;
}

/*
 * DeepSeek-style groups (not used by K3, which has one): keep the groups with the largest sum of
 * their two best biased scores, and rule the other experts out.
 */
static void drop_groups(const struct tri_router_args *a, float *biased)
{
    int64_t size = a->n_experts / a->groups;
    for (int64_t drop = a->groups - a->topk_groups; drop > 0; drop--) {
        int64_t worst = -1;
        float worst_sum = 0;
        for (int64_t g = 0; g < a->groups; g++) {
            float one = -INFINITY, two = -INFINITY;
            for (int64_t e = g * size; e < (g + 1) * size; e++) {
                if (biased[e] > one) {
                    two = one;
                    one = biased[e];
                } else if (biased[e] > two) {
                    two = biased[e];
                }
            }
            if (one == -INFINITY)
                continue; /* dropped before */
            float sum = size > 1 ? one + two : one;
            if (worst < 0 || sum <= worst_sum) {
                worst = g;
                worst_sum = sum;
            }
        }
        for (int64_t e = worst * size; worst >= 0 && e < (worst + 1) * size; e++)
            biased[e] = -INFINITY;
    }
}

static void route(const struct tri_router_args *a, int64_t t)
{
    const float *logits = a->logits + t * a->n_experts;
    float *biased = a->scratch + t * a->n_experts;
    int32_t *experts = a->experts + t * a->topk;
    float *weights = a->weights + t * a->topk;
    for (int64_t e = 0; e < a->n_experts; e++)
        biased[e] = tri__ref_sigmoid(logits[e]) + a->bias[e];
    if (a->groups > 1)
        drop_groups(a, biased);
    float sum = 0;
    for (int64_t i = 0; i < a->topk; i++) {
        int64_t e = largest(biased, a->n_experts);
        biased[e] = -INFINITY;
        experts[i] = (int32_t)e;
        weights[i] = tri__ref_sigmoid(logits[e]);
        sum += weights[i];
    }
    for (int64_t i = 0; i < a->topk; i++) {
        if (a->renormalize)
            weights[i] /= sum + 1e-20f;
        weights[i] *= a->scale;
    }
}

void tri__ref_router(const struct tri_router_args *a, int64_t t0, int64_t t1)
{
    for (int64_t t = t0; t < t1; t++)
        route(a, t);
}

void tri__ref_add(const struct tri_add_args *a, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++)
        a->y[i] += a->x[i];
}

void tri__ref_combine(const struct tri_combine_args *a, int64_t t0, int64_t t1)
{
    for (int64_t t = t0; t < t1; t++) {
        float *sum = a->sum + t * a->width;
        for (int64_t c = 0; c < a->width; c++)
            sum[c] = 0;
        for (int64_t i = t * a->topk; i < (t + 1) * a->topk; i++) {
            const float *y = a->y + a->place[i] * a->width;
            for (int64_t c = 0; c < a->width && a->place[i] >= 0; c++)
                sum[c] = fmaf(a->weights[i], y[c], sum[c]);
        }
    }
}
