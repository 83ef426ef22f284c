/*
 * Multi-head latent attention over the compressed cache, absorbed form (K3 spec 3.4). The cache is
 * walked in blocks with a running softmax, so that neither scores of a whole context are kept nor
 * a million small terms are added to one large float.
 */
#include "kernels/kernels_priv.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 64, PIECE = 256 };

/* Values [c, c + n) of cache row r. */
static void cache_row(float *out, const struct tri_mla_args *a, int64_t r, int64_t c, int64_t n)
{
    const char *cache = a->cache;
    size_t row = tri_row_data_bytes(a->cache_dtype, a->rank + a->rope);
    tri_row_decode(out, a->cache_dtype,
                   cache + (size_t)r * row + tri_row_data_bytes(a->cache_dtype, c), NULL, n);
}

/* x times values [c, c + n) of cache row r. */
static double dot(const struct tri_mla_args *a, const float *x, int64_t r, int64_t c, int64_t n)
{
    double sum = 0;
    float row[PIECE];
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t some = n - at < PIECE ? n - at : PIECE;
        cache_row(row, a, r, c + at, some);
        for (int64_t i = 0; i < some; i++)
            sum += (double)x[at + i] * (double)row[i];
    }
    return sum;
}

static void add_latent(const struct tri_mla_args *a, float p, int64_t r, float *ol)
{
    float row[PIECE];
    for (int64_t at = 0; at < a->rank; at += PIECE) {
        int64_t some = a->rank - at < PIECE ? a->rank - at : PIECE;
        cache_row(row, a, r, at, some);
        for (int64_t i = 0; i < some; i++)
            ol[at + i] += p * row[i];
    }
}

static void attend(const struct tri_mla_args *a, int64_t t, int64_t h)
{
    int64_t seen = a->past + t + 1;
    const float *ql = a->ql + (t * a->heads + h) * a->rank;
    const float *q_pe = a->q + (t * a->heads + h) * (a->nope + a->rope) + a->nope;
    float *ol = a->ol + (t * a->heads + h) * a->rank;
    double best = -HUGE_VAL, sum = 0;
    memset(ol, 0, (size_t)a->rank * sizeof *ol);
    for (int64_t from = 0; from < seen; from += BLOCK) {
        int64_t n = seen - from < BLOCK ? seen - from : BLOCK;
        double score[BLOCK], top = best;
        for (int64_t i = 0; i < n; i++) {
            score[i] =
                (dot(a, ql, from + i, 0, a->rank) + dot(a, q_pe, from + i, a->rank, a->rope)) *
                (double)a->scale;
            top = score[i] > top ? score[i] : top;
        }
        float keep = (float)exp(best - top);
        sum *= (double)keep;
        for (int64_t c = 0; c < a->rank; c++)
            ol[c] *= keep;
        for (int64_t i = 0; i < n; i++) {
            double p = exp(score[i] - top);
            sum += p;
            add_latent(a, (float)p, from + i, ol);
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
