/*
 * The values of made-up tensors. Word i of a tensor is splitmix64 of key + i, so that any range can
 * be made by any thread. Normal values come from 4096 quantiles: enough to look like weights, and a
 * table read costs less than the disk does.
 *
 * Gains: with normalised inputs every linear layer's output has a spread near its gain, so that
 * nothing grows with depth; query, gate and router are made larger so that softmax, SiTU and
 * routing are decided by their inputs, as in a trained model.
 */
#include "synth/synth_priv.h"

#include <math.h>
#include <string.h>
#include "base/hash.h"
#include "fmt/fmt.h"

/* Root mean square of a random e2m1 code times a scale that is halved, kept, kept or doubled. */
static const double CODE_RMS = 3.657; /* sqrt(8.5625 * 1.5625) */

static uint64_t word(uint64_t key, uint64_t i)
{
    uint64_t z = key + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* x with P(N < x) = p, by Newton steps on erfc from the middle outwards. */
static double quantile(double p, double near)
{
    double x = near;
    for (int i = 0; i < 60; i++) {
        double step =
            (0.5 * erfc(-x / sqrt(2)) - p) / (exp(-x * x / 2) / sqrt(2 * 3.14159265358979));
        x -= step;
        if (fabs(step) < 1e-13)
            break;
    }
    return x;
}

void tri__synth_quantiles(float out[TRI__SYNTH_QUANTILES])
{
    double x = 0;
    for (int i = TRI__SYNTH_QUANTILES / 2; i < TRI__SYNTH_QUANTILES; i++) {
        x = quantile((i + 0.5) / TRI__SYNTH_QUANTILES, x);
        out[i] = (float)x;
        out[TRI__SYNTH_QUANTILES - 1 - i] = (float)-x;
    }
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* Normal values that are not weights of a linear layer: mean and spread as they are. */
static const struct {
    const char *end;
    float mean, spread;
} plain[] = {
    { "norm.weight", 1, 0.2f },      { "norm0.weight", 1, 0.2f },
    { "norm1.weight", 1, 0.2f },     { "conv1d.weight", 0, 0.6f },
    { "dt_bias", -1.5f, 1 },         { "e_score_correction_bias", 0, 0.1f },
    { "embed_tokens.weight", 0, 1 },
};

/* Linear layers: spread = gain / sqrt(inputs); 1 when not listed. */
static const struct {
    const char *part;
    double gain;
} gains[] = {
    { "_res_proj.", 2 },  { ".gate_proj.", 2 }, { ".up_proj.", 2 },
    { ".w1.", 2 },        { ".w3.", 2 },        { "self_attn.q_b_proj", 2 },
    { "kv_b_proj", 1.5 }, { "moe.gate.", 2 },   { "lm_head", 3 },
};

static double gain_of(const char *name)
{
    for (size_t i = 0; i < sizeof gains / sizeof gains[0]; i++)
        if (strstr(name, gains[i].part))
            return gains[i].gain;
    return 1;
}

static double inputs_of(const struct tri_tensor_spec *t)
{
    double n = 1;
    for (int i = 1; i < t->rank; i++)
        n *= (double)t->shape[i];
    return n;
}

void tri__synth_rule(struct tri__synth_rule *rule, const struct tri_spec *spec,
                     const struct tri_tensor_spec *t, uint64_t seed, const float *quantiles)
{
    double gain = gain_of(t->name), inputs = inputs_of(t);
    *rule = (struct tri__synth_rule){ .kind = TRI__SYNTH_NORMAL,
                                      .bf16 = !strcmp(t->dtype, "BF16"),
                                      .key = tri_hash64(seed, t->name, strlen(t->name)),
                                      .spread = (float)(gain / sqrt(inputs)),
                                      .quantiles = quantiles };
    if (ends_with(t->name, "weight_packed")) {
        rule->kind = TRI__SYNTH_BYTES;
    } else if (ends_with(t->name, "weight_scale")) {
        rule->kind = TRI__SYNTH_SCALES;
        double scale = gain / (CODE_RMS * sqrt(inputs * TRI_MX_GROUP));
        rule->base = (uint8_t)(127 + lrint(log2(scale)));
    } else if (ends_with(t->name, "A_log")) {
        rule->kind = TRI__SYNTH_UNIFORM;
        rule->spread = 1;
        rule->live = spec->kda_heads; /* the rest is padding, exactly 0 (K3 spec 2.2) */
    } else {
        for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
            if (!ends_with(t->name, plain[i].end))
                continue;
            rule->mean = plain[i].mean;
            rule->spread = plain[i].spread;
        }
    }
}

static void fill_normal_bf16(const struct tri__synth_rule *r, uint64_t from, uint16_t out[4])
{
    uint64_t w = word(r->key, from / 8);
    for (int i = 0; i < 4; i++, w >>= 16)
        out[i] = tri_bf16_encode(r->mean + r->spread * r->quantiles[(w & 0xffff) >> 4]);
}

static void fill_floats(const struct tri__synth_rule *r, uint64_t from, float out[2])
{
    uint64_t w = word(r->key, from / 8);
    int64_t value = (int64_t)(from / 4);
    for (int i = 0; i < 2; i++, w >>= 32) {
        if (r->kind == TRI__SYNTH_NORMAL)
            out[i] = r->mean + r->spread * r->quantiles[(w & 0xffffffff) >> 20];
        else
            out[i] = value + i < r->live
                         ? r->spread * ((float)((w & 0xffffffff) >> 8) * 0x1p-23f - 1)
                         : 0;
    }
}

static void fill_word(const struct tri__synth_rule *r, uint64_t from, void *dst)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t w;
    if (r->kind == TRI__SYNTH_BYTES) {
        w = word(r->key, from / 8);
        memcpy(dst, &w, 8);
    } else if (r->kind == TRI__SYNTH_SCALES) { /* base - 1 plus two fair coins, in each byte */
        w = word(r->key, from / 8);
        w = (uint64_t)(r->base - 1) * ones + (w & ones) + ((w >> 1) & ones);
        memcpy(dst, &w, 8);
    } else if (r->bf16) {
        uint16_t v[4];
        fill_normal_bf16(r, from, v);
        memcpy(dst, v, 8);
    } else {
        float v[2];
        fill_floats(r, from, v);
        memcpy(dst, v, 8);
    }
}

/* The common case, where making the table of the possible BF16 values first pays. */
static void fill_big_bf16(const struct tri__synth_rule *r, uint64_t from, uint64_t *dst,
                          uint64_t words)
{
    uint16_t table[TRI__SYNTH_QUANTILES];
    for (int i = 0; i < TRI__SYNTH_QUANTILES; i++)
        table[i] = tri_bf16_encode(r->mean + r->spread * r->quantiles[i]);
    for (uint64_t i = 0; i < words; i++) {
        uint64_t w = word(r->key, from / 8 + i);
        uint64_t v = table[(w >> 4) & 0xfff] | (uint64_t)table[(w >> 20) & 0xfff] << 16 |
                     (uint64_t)table[(w >> 36) & 0xfff] << 32 |
                     (uint64_t)table[(w >> 52) & 0xfff] << 48;
        memcpy(dst + i, &v, 8);
    }
}

void tri__synth_fill(const struct tri__synth_rule *rule, uint64_t from, void *dst, uint64_t bytes)
{
    char *out = dst;
    uint64_t at = 0;
    TRI_ASSERT(from % 8 == 0);
    if (rule->kind == TRI__SYNTH_NORMAL && rule->bf16 && bytes >= 8 * TRI__SYNTH_QUANTILES) {
        fill_big_bf16(rule, from, dst, bytes / 8);
        at = bytes / 8 * 8;
    }
    for (; at + 8 <= bytes; at += 8)
        fill_word(rule, from + at, out + at);
    if (at < bytes) {
        char last[8];
        fill_word(rule, from + at, last);
        memcpy(out + at, last, bytes - at);
    }
}
