/* RMSNorm and the Attention Residuals mix (K3 spec 3.1, 3.2). */
#include "kernels/kernels_priv.h"

#include <math.h>

/* 1 / sqrt(mean(x^2) + eps), summed in float64. */
static float inverse_rms(const float *x, int64_t width, float eps)
{
    double sum = 0;
    for (int64_t c = 0; c < width; c++)
        sum += (double)x[c] * (double)x[c];
    return (float)(1 / sqrt(sum / (double)width + (double)eps));
}

void tri__ref_rmsnorm(const struct tri_rmsnorm_args *a, int64_t t0, int64_t t1)
{
    for (int64_t t = t0; t < t1; t++) {
        const float *x = a->x + t * a->x_stride;
        float *y = a->y + t * a->y_stride;
        float inv = inverse_rms(x, a->width, a->eps);
        for (int64_t c = 0; c < a->width; c++)
            y[c] = x[c] * inv * a->w[c];
    }
}

static double mix_score(const float *v, const struct tri_mix_args *a)
{
    double dot = 0;
    for (int64_t c = 0; c < a->width; c++)
        dot += (double)v[c] * (double)a->w[c];
    return dot * (double)inverse_rms(v, a->width, a->eps);
}

/*
 * Softmax over the sources' scores, in one pass: the running result is rescaled whenever a larger
 * score comes, so that no array of scores is needed and n has no limit.
 */
static void mix_row(const struct tri_mix_args *a, int64_t t)
{
    float *y = a->y + t * a->width;
    double best = -HUGE_VAL, sum = 0;
    for (int64_t i = 0; i < a->n; i++) {
        const float *v = a->source[i] + t * a->width;
        double score = mix_score(v, a);
        double keep = score > best ? exp(best - score) : 1;
        double p = score > best ? 1 : exp(score - best);
        if (score > best)
            best = score;
        sum = sum * keep + p;
        for (int64_t c = 0; c < a->width; c++)
            y[c] = (float)((i ? (double)y[c] * keep : 0) + p * (double)v[c]);
    }
    for (int64_t c = 0; c < a->width; c++)
        y[c] = (float)((double)y[c] / sum);
}

void tri__ref_mix(const struct tri_mix_args *a, int64_t t0, int64_t t1)
{
    for (int64_t t = t0; t < t1; t++)
        mix_row(a, t);
}

void tri__ref_gated_norm(const struct tri_gated_norm_args *a, int64_t h0, int64_t h1)
{
    for (int64_t t = 0; t < a->tokens; t++) {
        for (int64_t h = h0; h < h1; h++) {
            int64_t at = (t * a->heads + h) * a->dim;
            float inv = inverse_rms(a->o + at, a->dim, a->eps);
            for (int64_t c = 0; c < a->dim; c++)
                a->y[at + c] = a->o[at + c] * inv * a->w[c] * tri__ref_sigmoid(a->g[at + c]);
        }
    }
}
