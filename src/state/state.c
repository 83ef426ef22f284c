/* One sequence's memory: sizes, opening, copying, and where each layer's part lies. */
#include "state/state.h"

#include <string.h>
#include "state/state_priv.h"

static void shape_of(struct tri_state *s, const struct tri_spec *spec,
                     const struct tri_slice *slice, struct tri_state_form form)
{
    enum tri_dtype cache = form.cache;
    TRI_ASSERT(cache == TRI_DT_F32 || cache == TRI_DT_BF16 || cache == TRI_DT_E4M3);
    TRI_ASSERT(form.kda == TRI_DT_F32 || form.kda == TRI_DT_BF16);
    int64_t width = slice->kda_heads.count * spec->kda_dim;
    for (int64_t l = slice->layers.first; l < slice->layers.first + slice->layers.count; l++) {
        if (spec->layer[l].attn == TRI_ATTN_KDA)
            s->kda_layers++;
        else
            s->mla_layers++;
    }
    s->s_floats = width * spec->kda_dim;
    s->s_bytes = (tri_row_data_bytes(form.kda, s->s_floats) + 3) & ~UINT64_C(3);
    s->conv_floats = 3 * (spec->conv_taps - 1) * width;
    s->mla_row = spec->kv_rank + spec->rope;
    s->form = form;
    s->mla_row_bytes = tri_row_data_bytes(cache, s->mla_row);
}

void tri_state_cost(const struct tri_spec *spec, const struct tri_slice *slice,
                    struct tri_state_form form, struct tri_state_bytes *out)
{
    struct tri_state s = { 0 };
    shape_of(&s, spec, slice, form);
    out->kda_bytes = tri__state_fixed_bytes(&s);
    out->mla_bytes_per_token = (uint64_t)s.mla_layers * s.mla_row_bytes;
}

enum tri_status tri__state_new(struct tri_state **out, const struct tri_spec *spec,
                               const struct tri_slice *slice, struct tri_state_form form,
                               int64_t max_tokens, struct tri_budget *budget, struct tri_error *err)
{
    if (max_tokens < 1 || max_tokens > spec->context_tokens)
        return tri_fail(err, TRI_LIMIT, "a context of %lld tokens: the model takes 1 to %lld",
                        (long long)max_tokens, (long long)spec->context_tokens);
    struct tri_state *s = tri_calloc(1, sizeof *s);
    if (!s)
        return tri_fail(err, TRI_NOMEM, "no memory for a sequence");
    shape_of(s, spec, slice, form);
    s->budget = budget;
    s->max_tokens = max_tokens;
    s->fixed_bytes = tri__state_fixed_bytes(s);
    void *p = NULL;
    enum tri_status st = tri_budget_alloc(budget, TRI_MEM_KDA, s->fixed_bytes, &p, err);
    s->fixed = p;
    if (st)
        tri_free(s);
    else
        *out = s;
    return st;
}

enum tri_status tri_state_open(struct tri_state **out, const struct tri_spec *spec,
                               const struct tri_slice *slice, struct tri_state_form form,
                               int64_t max_tokens, struct tri_budget *budget, struct tri_error *err)
{
    struct tri_state *s = NULL;
    enum tri_status st = tri__state_new(&s, spec, slice, form, max_tokens, budget, err);
    if (st)
        return st;
    s->room_tokens = max_tokens;
    s->layer_bytes = (uint64_t)max_tokens * s->mla_row_bytes;
    s->cache_bytes = (uint64_t)s->mla_layers * s->layer_bytes;
    void *p = NULL;
    st = tri_budget_alloc(budget, TRI_MEM_MLA, s->cache_bytes, &p, err);
    s->cache = p;
    if (st)
        tri_state_close(s);
    else
        *out = s;
    return st;
}

void tri_state_close(struct tri_state *state)
{
    if (!state)
        return;
    tri_budget_free(state->budget, TRI_MEM_KDA, state->fixed, state->fixed_bytes);
    if (state->growing) {
        tri_unmap(state->cache, state->cache_bytes);
        tri_budget_give(state->budget, TRI_MEM_MLA,
                        state->room_bytes * (uint64_t)state->mla_layers);
    } else {
        tri_budget_free(state->budget, TRI_MEM_MLA, state->cache, state->cache_bytes);
    }
    tri_free(state);
}

int64_t tri_state_tokens(const struct tri_state *state)
{
    return state->tokens;
}

int64_t tri_state_max_tokens(const struct tri_state *state)
{
    return state->max_tokens;
}

int64_t tri_state_room_tokens(const struct tri_state *state)
{
    return state->room_tokens;
}

void tri_state_clear(struct tri_state *state)
{
    /* Cache rows beyond `tokens` are never read, so only the fixed part must be zero. */
    memset(state->fixed, 0, state->fixed_bytes);
    state->tokens = 0;
}

enum tri_status tri_state_copy(struct tri_state *dst, const struct tri_state *src,
                               struct tri_error *err)
{
    TRI_ASSERT(dst->fixed_bytes == src->fixed_bytes && dst->mla_row == src->mla_row &&
               dst->mla_layers == src->mla_layers && dst->form.cache == src->form.cache &&
               dst->form.kda == src->form.kda);
    if (src->tokens > dst->room_tokens)
        return tri_fail(err, TRI_LIMIT, "a sequence of %lld tokens does not fit in one of %lld",
                        (long long)src->tokens, (long long)dst->room_tokens);
    memcpy(dst->fixed, src->fixed, src->fixed_bytes);
    for (int64_t l = 0; l < src->mla_layers; l++)
        memcpy(tri_state_mla(dst, l), tri__state_rows(src, l),
               (uint64_t)src->tokens * src->mla_row_bytes);
    dst->tokens = src->tokens;
    return TRI_OK;
}

/* Bytes of one KDA layer in `fixed`. */
static uint64_t fixed_layer_bytes(const struct tri_state *s)
{
    return s->s_bytes + (uint64_t)s->conv_floats * sizeof(float);
}

uint64_t tri__state_fixed_bytes(const struct tri_state *state)
{
    return (uint64_t)state->kda_layers * fixed_layer_bytes(state);
}

void *tri_state_kda(struct tri_state *state, int64_t kda_index)
{
    TRI_ASSERT(kda_index >= 0 && kda_index < state->kda_layers);
    return state->fixed + (uint64_t)kda_index * fixed_layer_bytes(state);
}

float *tri_state_conv(struct tri_state *state, int64_t kda_index)
{
    void *tails = (char *)tri_state_kda(state, kda_index) + state->s_bytes;
    return tails;
}

char *tri__state_rows(const struct tri_state *state, int64_t mla_index)
{
    TRI_ASSERT(mla_index >= 0 && mla_index < state->mla_layers);
    return state->cache + (uint64_t)mla_index * state->layer_bytes;
}

void *tri_state_mla(struct tri_state *state, int64_t mla_index)
{
    return tri__state_rows(state, mla_index);
}

struct tri_state_form tri_state_form(const struct tri_state *state)
{
    return state->form;
}

void tri_state_put_mla(struct tri_state *state, int64_t mla_index, int64_t token, const float *rows,
                       int64_t n)
{
    char *out = tri__state_rows(state, mla_index) + (uint64_t)token * state->mla_row_bytes;
    TRI_ASSERT(token >= 0 && n >= 0 && token + n <= state->room_tokens);
    for (int64_t i = 0; i < n; i++, out += state->mla_row_bytes)
        tri_row_encode(out, NULL, state->form.cache, rows + i * state->mla_row, state->mla_row);
}

void tri_state_advance(struct tri_state *state, int64_t n)
{
    TRI_ASSERT(n >= 0 && state->tokens + n <= state->room_tokens);
    state->tokens += n;
}
