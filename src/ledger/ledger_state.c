/*
 * The state ledger: what a sequence keeps on a rank. MLA latents are whole on every TP rank (only
 * DCP divides them); KV heads divide until there are more ranks than heads; KDA state and its
 * convolution tail divide by heads and do not grow with length. K3 spec 9.1, 9.3.
 */
#include "ledger/ledger_priv.h"

#include <string.h>

static uint64_t latent_bytes(const struct tri_ledger_ask *ask, const struct tri_arch_class *c)
{
    uint64_t values = (uint64_t)(c->kv_rank + c->rope);
    switch (ask->cache) {
    case TRI_CACHE_FP8:
        return values;
    case TRI_CACHE_FP8_DS_MLA: /* fp8 latent, one f32 scale per 128 of it, bf16 extra dims */
        return (uint64_t)c->kv_rank + (uint64_t)c->kv_rank / 128 * 4 + (uint64_t)c->rope * 2;
    case TRI_CACHE_F32:
        return values * 4;
    case TRI_CACHE_BF16:
        break;
    }
    return values * 2;
}

static uint64_t kv_bytes(const struct tri_ledger_ask *ask, const struct tri_arch_class *c)
{
    int64_t tp = ask->layout->tp;
    uint64_t heads = (uint64_t)((c->kv_heads + tp - 1) / tp);
    uint64_t value = ask->cache == TRI_CACHE_F32 ? 4 : ask->cache == TRI_CACHE_BF16 ? 2 : 1;
    return heads * (uint64_t)(c->head_dim + c->v_dim) * value;
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

uint64_t tri__ledger_kda_bytes(const struct tri_ledger_ask *ask)
{
    return ask->trireme && ask->kda_bf16 ? 2 : 4;
}

static void add_kda(const struct tri_ledger_ask *ask, const struct tri_arch_class *c,
                    struct tri_rank_state *out)
{
    uint64_t wide =
        divide_up((uint64_t)c->heads, (uint64_t)ask->layout->tp) * (uint64_t)c->head_dim;
    uint64_t tail = ask->trireme ? 4 : 2; /* bytes of a value */
    out->kda_bytes += wide * (uint64_t)c->v_dim * tri__ledger_kda_bytes(ask);
    out->conv_bytes += 3 * wide * (uint64_t)(c->conv_taps - 1 + ask->draft_tokens) * tail;
}

void tri_ledger_state(const struct tri_ledger_ask *ask, int stage, struct tri_rank_state *out)
{
    const struct tri_arch *a = ask->arch;
    const struct tri_layout *l = ask->layout;
    memset(out, 0, sizeof *out);
    for (int layer = 0; layer < a->layers; layer++) {
        const struct tri_arch_class *c = &a->classes[a->class_of[layer]];
        if (tri__ledger_stage_of(l, layer) != stage)
            continue;
        if (c->family == TRI_FAMILY_MLA) {
            out->mla_bytes_per_token += latent_bytes(ask, c);
        } else if (c->family == TRI_FAMILY_KDA) {
            add_kda(ask, c, out);
        } else if (c->window_tokens) {
            out->window_bytes_per_token += kv_bytes(ask, c);
            if ((uint64_t)c->window_tokens > out->window_tokens)
                out->window_tokens = (uint64_t)c->window_tokens;
        } else {
            out->kv_bytes_per_token += kv_bytes(ask, c);
        }
    }
    out->mla_bytes_per_token = divide_up(out->mla_bytes_per_token, (uint64_t)l->cp);
    out->kv_bytes_per_token = divide_up(out->kv_bytes_per_token, (uint64_t)l->cp);
    out->bytes_per_token = out->mla_bytes_per_token + out->kv_bytes_per_token;
}

uint64_t tri_state_cache_bytes(const struct tri_rank_state *s, uint64_t tokens)
{
    uint64_t windowed = tokens < s->window_tokens ? tokens : s->window_tokens;
    return s->bytes_per_token * tokens + s->window_bytes_per_token * windowed;
}

uint64_t tri_state_bytes(const struct tri_rank_state *s, uint64_t tokens)
{
    return tri_state_cache_bytes(s, tokens) + s->kda_bytes + s->conv_bytes;
}
