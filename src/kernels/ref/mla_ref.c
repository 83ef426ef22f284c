/*
 * Multi-head latent attention over the compressed cache, absorbed form (K3 spec 3.4). The cache is
 * walked in blocks with a running softmax, so that neither scores of a whole context are kept nor
 * a million small terms are added to one large float.
 */
#include "kernels/kernels_priv.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 64 };

static double dot(const float *x, const float *y, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += (double)x[c] * (double)y[c];
    return sum;
}

static void attend(const struct tri_mla_args *a, int64_t t, int64_t h)
{
    int64_t row = a->rank + a->rope, seen = a->past + t + 1;
    const float *ql = a->ql + (t * a->heads + h) * a->rank;
    const float *q_pe = a->q + (t * a->heads + h) * (a->nope + a->rope) + a->nope;
    float *ol = a->ol + (t * a->heads + h) * a->rank;
    double best = -INFINITY, sum = 0;
    memset(ol, 0, (size_t)a->rank * sizeof *ol);
    for (int64_t from = 0; from < seen; from += BLOCK) {
        int64_t n = seen - from < BLOCK ? seen - from : BLOCK;
        double score[BLOCK], top = best;
        for (int64_t i = 0; i < n; i++) {
            const float *c = a->cache + (from + i) * row;
            score[i] = (dot(ql, c, a->rank) + dot(q_pe, c + a->rank, a->rope)) * (double)a->scale;
            top = score[i] > top ? score[i] : top;
        }
        float keep = (float)exp(best - top);
        sum *= (double)keep;
        for (int64_t c = 0; c < a->rank; c++)
            ol[c] *= keep;
        for (int64_t i = 0; i < n; i++) {
            const float *c = a->cache + (from + i) * row;
            double p = exp(score[i] - top);
            sum += p;
            for (int64_t j = 0; j < a->rank; j++)
                ol[j] += (float)p * c[j];
        }
        best = top;
    }
    for (int64_t c = 0; c < a->rank; c++)
        ol[c] = (float)((double)ol[c] / sum);
}

void tri__ref_mla(const struct tri_mla_args *a, int64_t h0, int64_t h1)
{
    for (int64_t t = 0; t < a->tokens; t++)
        for (int64_t h = h0; h < h1; h++)
            attend(a, t, h);
}
