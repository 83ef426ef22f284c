/*
 * Log probabilities of the model's own distribution, as clients ask for them: before bias,
 * penalties, temperature and filters.
 */
#include "engine/engine_priv.h"

#include <math.h>

/* Keeps top[0..n) as the likeliest so far, likeliest first; equal logits: the earlier id stays. */
static void offer(struct tri_logprob *top, int64_t *held, int64_t n, int32_t id, float logit)
{
    int64_t at = *held;
    if (at == n) {
        if (!(logit > top[n - 1].logprob))
            return;
        at--;
    } else {
        ++*held;
    }
    while (at > 0 && logit > top[at - 1].logprob) {
        top[at] = top[at - 1];
        at--;
    }
    top[at] = (struct tri_logprob){ .id = id, .logprob = logit };
}

bool tri__engine_finite(const float *row, int64_t n)
{
    /* x * 0 is 0 for numbers and NaN for NaN and Inf. */
    float sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += row[i] * 0.0f;
    return sum == 0;
}

void tri__engine_logprobs(const float *logits, int64_t vocab, int32_t id,
                          struct tri_logprob *chosen, struct tri_logprob *top, int64_t n_top)
{
    float max = logits[0];
    for (int64_t i = 1; i < vocab; i++)
        max = logits[i] > max ? logits[i] : max;
    double sum = 0;
    for (int64_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - (double)max);
    double log_sum = (double)max + log(sum);
    int64_t held = 0;
    for (int64_t i = 0; n_top && i < vocab; i++)
        offer(top, &held, n_top, (int32_t)i, logits[i]);
    for (int64_t i = 0; i < held; i++)
        top[i].logprob = (float)((double)top[i].logprob - log_sum);
    *chosen = (struct tri_logprob){ .id = id, .logprob = (float)((double)logits[id] - log_sum) };
}
