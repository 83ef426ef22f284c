/*
 * Beside the router: what the next MoE layer will probably want (so that drives need not idle),
 * and, only when asked for, a choice that leans towards experts in RAM. The first changes no
 * result, the second does.
 */
#include <math.h>
#include <string.h>
#include "model/model_priv.h"

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* --- lookahead ------------------------------------------------------------------------------ */

void tri__take_ahead(const struct tri_model *m, struct tri__arena *arena, struct tri__ahead *a)
{
    int64_t rows = m->lookahead ? TRI__AHEAD_TOKENS : 0;
    a->x = tri__take(arena, rows * m->spec.hidden);
    a->logits = tri__take(arena, rows * m->spec.experts);
    tri__take_input(m, arena, rows, m->spec.hidden, &a->in);
}

/* The next layer with routed experts whose router is in RAM, or -1. */
static int64_t layer_ahead(const struct tri_model *m, int64_t layer)
{
    for (int64_t l = layer + 1; l < m->spec.layers; l++)
        if (m->spec.layer[l].ffn == TRI_FFN_MOE)
            return tri__trunk_has(m, l) ? l : -1;
    return -1;
}

/* Adds the `n` best of a row to the list, each expert once. */
static int64_t add_best(float *logits, const float *bias, int64_t experts, int64_t n, int32_t *ids,
                        int64_t count)
{
    for (int64_t e = 0; e < experts; e++)
        logits[e] = sigmoid(logits[e]) + bias[e];
    for (; n > 0 && count < TRI_EXPERTS_MAX_AHEAD; n--) {
        int32_t best = 0;
        for (int64_t e = 1; e < experts; e++)
            best = logits[e] > logits[best] ? (int32_t)e : best;
        logits[best] = -INFINITY;
        bool known = false;
        for (int64_t i = 0; i < count; i++)
            known |= ids[i] == best;
        if (!known)
            ids[count++] = best;
    }
    return count;
}

void tri__look_ahead(struct tri_model *m, int64_t layer, const float *x, int64_t tokens,
                     struct tri__ahead *a)
{
    int64_t next = m->lookahead && tokens <= TRI__AHEAD_TOKENS ? layer_ahead(m, layer) : -1;
    int64_t hidden = m->spec.hidden, count = 0;
    int32_t ids[TRI_EXPERTS_MAX_AHEAD];
    if (next < 0)
        return;
    const float *here = m->layer[layer].post_norm, *there = m->layer[next].post_norm;
    for (int64_t i = 0; i < tokens * hidden; i++) {
        float from = here[i % hidden];
        a->x[i] = fabsf(from) > 1e-6F ? x[i] * (there[i % hidden] / from) : x[i];
    }
    tri__set_input(&a->in, a->x, hidden, tokens);
    tri__linear(m, &a->in, &m->layer[next].moe.router, a->logits);
    for (int64_t t = 0; t < tokens; t++)
        count = add_best(a->logits + t * m->spec.experts, m->layer[next].moe.bias, m->spec.experts,
                         m->lookahead, ids, count);
    tri_experts_expect(m->experts, next, ids, count);
}

/* --- cache-aware routing -------------------------------------------------------------------- */

/* The chosen expert with the smallest gate that is not in RAM, or -1. */
static int64_t weakest_miss(const struct tri_model *m, int64_t layer, const int32_t *chosen,
                            const float *logits)
{
    int64_t worst = -1;
    for (int64_t i = 0; i < m->spec.topk; i++)
        if (!tri_experts_resident(m->experts, layer, chosen[i]) &&
            (worst < 0 || logits[chosen[i]] < logits[chosen[worst]]))
            worst = i;
    return worst;
}

/* The best expert in RAM that was not chosen, or -1. `biased` is -Inf for those that were. */
static int64_t best_resident(const struct tri_model *m, int64_t layer, const float *biased)
{
    int64_t best = -1;
    for (int64_t e = 0; e < m->spec.experts; e++)
        if (biased[e] > -INFINITY && (best < 0 || biased[e] > biased[best]) &&
            tri_experts_resident(m->experts, layer, (int32_t)e))
            best = e;
    return best;
}

static void weigh(const struct tri_model *m, const int32_t *chosen, const float *logits,
                  float *weights)
{
    float sum = 0;
    for (int64_t i = 0; i < m->spec.topk; i++)
        sum += weights[i] = sigmoid(logits[chosen[i]]);
    for (int64_t i = 0; i < m->spec.topk; i++)
        weights[i] *= (m->spec.renormalize ? 1 / (sum + 1e-20F) : 1) * m->spec.routed_scale;
}

void tri__lean_to_cache(const struct tri_model *m, int64_t layer, int64_t tokens,
                        const struct tri__routing *r)
{
    if (m->cache_regret <= 0 || tokens > TRI__AHEAD_TOKENS)
        return;
    for (int64_t t = 0; t < tokens; t++) {
        const float *logits = r->logits + t * m->spec.experts;
        float *biased = r->biased + t * m->spec.experts, *weights = r->weights + t * m->spec.topk;
        int32_t *chosen = r->chosen + t * m->spec.topk;
        for (int swap = 0; swap < TRI__MAX_SWAPS; swap++) {
            int64_t out = weakest_miss(m, layer, chosen, logits);
            int64_t in = out < 0 ? -1 : best_resident(m, layer, biased);
            if (in < 0 ||
                sigmoid(logits[in]) < (1 - m->cache_regret) * sigmoid(logits[chosen[out]]))
                break;
            chosen[out] = (int32_t)in;
            biased[in] = -INFINITY;
        }
        weigh(m, chosen, logits, weights);
    }
}
