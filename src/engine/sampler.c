/*
 * Chooses one token from one row of logits, in the order that engine.h documents. Works on three
 * scratch arrays taken at opening; every pass is linear in the vocabulary.
 */
#include "engine/engine_priv.h"

#include <math.h>

struct tri_sampling tri_sampling_default(void)
{
    return (struct tri_sampling){ .temperature = 1, .top_p = 1, .repetition_penalty = 1 };
}

int32_t tri__engine_candidate_id(const struct tri__engine_sampler *s, int64_t candidate)
{
    return candidate < s->plain_ids ? (int32_t)candidate : s->specials[candidate - s->plain_ids];
}

int64_t tri__engine_id_candidate(const struct tri__engine_sampler *s, int64_t id)
{
    if (id < 0)
        return -1;
    if (id < s->plain_ids)
        return id;
    int64_t low = 0, high = s->n_specials;
    while (low < high) {
        int64_t mid = (low + high) / 2;
        if (s->specials[mid] < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low < s->n_specials && s->specials[low] == id ? s->plain_ids + low : -1;
}

/* SplitMix64's output function: a bijection of 64 bits that mixes well. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double tri__engine_uniform(uint64_t seed, uint64_t position)
{
    const uint64_t golden = 0x9e3779b97f4a7c15u;
    /* The seed is mixed first: else seed + golden would be the same stream, one token ahead. */
    uint64_t bits = mix(mix(seed + golden) + (position + 1) * golden);
    return (double)(bits >> 11) * 0x1p-53;
}

static bool is_allowed(const struct tri__engine_pick *pick, int64_t id)
{
    size_t word = (size_t)id / 64;
    return word < pick->allowed_words && (pick->allowed[word] >> id % 64 & 1);
}

/* Leaves out what the constraint does not allow. */
static void constrain(struct tri__engine_sampler *s, const struct tri__engine_pick *pick)
{
    for (int64_t c = 0; pick->allowed && c < s->n; c++)
        if (!is_allowed(pick, tri__engine_candidate_id(s, c)))
            s->logits[c] = (double)-INFINITY;
}

static void add_bias(struct tri__engine_sampler *s, const struct tri__engine_pick *pick)
{
    for (int64_t i = 0; i < pick->n_bias; i++) {
        int64_t c = tri__engine_id_candidate(s, pick->bias[i].id);
        if (c >= 0)
            s->logits[c] += (double)pick->bias[i].bias;
    }
    for (int64_t i = 0; i < pick->n_banned; i++) {
        int64_t c = tri__engine_id_candidate(s, pick->banned[i]);
        if (c >= 0)
            s->logits[c] = (double)-INFINITY;
    }
}

static void penalise(struct tri__engine_sampler *s, const struct tri__engine_pick *pick)
{
    const struct tri_sampling *how = pick->how;
    if (how->repetition_penalty == 1 && how->presence_penalty == 0 && how->frequency_penalty == 0)
        return;
    for (int64_t c = 0; c < s->n; c++) {
        uint32_t mark = pick->marks[tri__engine_candidate_id(s, c)];
        if (!mark)
            continue;
        double l = s->logits[c];
        l = l > 0 ? l / how->repetition_penalty : l * how->repetition_penalty;
        uint32_t count = mark >> 1;
        if (count)
            l -= how->frequency_penalty * count + how->presence_penalty;
        s->logits[c] = l;
    }
}

/* Adjusted logits of every candidate; returns the candidate with the largest (lowest on ties). */
static int64_t adjust(struct tri__engine_sampler *s, const struct tri__engine_pick *pick)
{
    for (int64_t i = 0; i < s->plain_ids; i++)
        s->logits[i] = (double)pick->logits[i];
    for (int64_t i = 0; i < s->n_specials; i++)
        s->logits[s->plain_ids + i] = (double)pick->logits[s->specials[i]];
    constrain(s, pick);
    add_bias(s, pick);
    penalise(s, pick);
    int64_t best = 0;
    for (int64_t c = 1; c < s->n; c++)
        if (s->logits[c] > s->logits[best])
            best = c;
    return best;
}

/* Softmax weights relative to the largest (1), as keys in candidate order; min-p applied. */
static int64_t weigh(struct tri__engine_sampler *s, const struct tri_sampling *how, double max)
{
    const double nothing = -104; /* exp of less is 0 as a float */
    int64_t n = 0;
    for (int64_t c = 0; c < s->n; c++) {
        double x = (s->logits[c] - max) / how->temperature;
        if (!(x > nothing))
            continue;
        double w = exp(x);
        if (w >= how->min_p && (float)w > 0)
            s->keys[n++] = tri__engine_key((float)w, c);
    }
    return n;
}

static double mass_of(const uint64_t *keys, int64_t n)
{
    double mass = 0;
    for (int64_t i = 0; i < n; i++)
        mass += (double)tri__engine_key_weight(keys[i]);
    return mass;
}

/* Drops every key below the threshold; the order stays. */
static int64_t cut(uint64_t *keys, int64_t n, uint64_t threshold)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (keys[i] >= threshold)
            keys[kept++] = keys[i];
    return kept;
}

static int64_t filter(struct tri__engine_sampler *s, const struct tri_sampling *how, int64_t n)
{
    if (how->top_k > 0 && how->top_k < n)
        n = cut(s->keys, n, tri__engine_threshold(s->keys, n, false, (double)how->top_k, s->work));
    if (how->top_p < 1)
        n = cut(s->keys, n,
                tri__engine_threshold(s->keys, n, true, how->top_p * mass_of(s->keys, n), s->work));
    return n;
}

static int64_t draw(const uint64_t *keys, int64_t n, double uniform)
{
    double target = uniform * mass_of(keys, n), sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)tri__engine_key_weight(keys[i]);
        if (sum > target)
            return tri__engine_key_candidate(keys[i]);
    }
    return tri__engine_key_candidate(keys[n - 1]);
}

enum tri_status tri__engine_sample(struct tri__engine_sampler *s,
                                   const struct tri__engine_pick *pick, int32_t *out_id,
                                   struct tri_error *err)
{
    int64_t best = adjust(s, pick);
    double max = s->logits[best];
    if (isinf(max))
        return tri_fail(err, TRI_LIMIT,
                        "no token may be sampled: logit bias bans every id that may come");
    if (pick->how->temperature > 0) {
        int64_t n = filter(s, pick->how, weigh(s, pick->how, max));
        best = draw(s->keys, n, tri__engine_uniform(pick->how->seed, pick->position));
    }
    *out_id = tri__engine_candidate_id(s, best);
    return TRI_OK;
}
