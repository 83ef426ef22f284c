/*
 * Growing states: address space for the whole context, memory for what was admitted. The paging
 * that serving engines do with block tables is left to the processor here: rows of a layer stay one
 * array for the kernels, and memory comes and goes at its end in pages (docs/decisions/007).
 */
#include "state/state.h"

#include <unistd.h>
#include "state/state_priv.h"

/* A long context is worth large pages: they then are the unit, so that what is counted is what is
 * resident. */
enum { LARGE_UNIT_BYTES = 2 << 20, LARGE_FROM_BYTES = 64 << 20 };

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static uint64_t unit_of(uint64_t whole_layer_bytes)
{
    return whole_layer_bytes >= LARGE_FROM_BYTES ? LARGE_UNIT_BYTES
                                                 : (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t tri_state_rounding_bytes(const struct tri_spec *spec, const struct tri_slice *slice,
                                  struct tri_state_form form, int64_t max_tokens)
{
    struct tri_state_bytes cost;
    tri_state_cost(spec, slice, form, &cost);
    uint64_t layers = (uint64_t)(spec->mla_layers ? spec->mla_layers : 1);
    return layers * unit_of(cost.mla_bytes_per_token / layers * (uint64_t)max_tokens);
}

/* Memory of one layer for `tokens`. */
static uint64_t layer_room(const struct tri_state *s, int64_t tokens)
{
    return round_up((uint64_t)tokens * s->mla_row_bytes, s->unit_bytes);
}

enum tri_status tri_state_open_growing(struct tri_state **out, const struct tri_spec *spec,
                                       const struct tri_slice *slice, struct tri_state_form form,
                                       int64_t max_tokens, struct tri_budget *budget,
                                       struct tri_error *err)
{
    struct tri_state *s = NULL;
    enum tri_status st = tri__state_new(&s, spec, slice, form, max_tokens, budget, err);
    if (st)
        return st;
    s->growing = true;
    s->unit_bytes = unit_of((uint64_t)max_tokens * s->mla_row_bytes);
    s->layer_bytes = layer_room(s, max_tokens);
    s->cache_bytes = s->layer_bytes * (uint64_t)s->mla_layers;
    s->cache = s->cache_bytes ? tri_map(s->cache_bytes) : NULL;
    if (s->cache_bytes && !s->cache) {
        tri_state_close(s);
        return tri_fail(err, TRI_NOMEM, "no address space for a context of %lld tokens",
                        (long long)max_tokens);
    }
    *out = s;
    return TRI_OK;
}

uint64_t tri_state_room_bytes(const struct tri_state *state, int64_t tokens)
{
    TRI_ASSERT(state->growing);
    tokens = tokens < state->max_tokens ? tokens : state->max_tokens;
    return layer_room(state, tokens) * (uint64_t)state->mla_layers;
}

static void shrink(struct tri_state *s, uint64_t to)
{
    for (int64_t l = 0; l < s->mla_layers; l++)
        tri_map_drop(tri__state_rows(s, l), to, s->room_bytes);
    tri_budget_give(s->budget, TRI_MEM_MLA, (s->room_bytes - to) * (uint64_t)s->mla_layers);
    s->room_bytes = to;
}

static enum tri_status grow(struct tri_state *s, uint64_t to, struct tri_error *err)
{
    uint64_t from = s->room_bytes, more = (to - from) * (uint64_t)s->mla_layers;
    enum tri_status st = tri_budget_take(s->budget, TRI_MEM_MLA, more, err);
    if (st)
        return st;
    for (int64_t l = 0; l < s->mla_layers && !st; l++)
        st = tri_map_commit(tri__state_rows(s, l), from, to, err);
    s->room_bytes = to;
    if (st)
        shrink(s, from);
    return st;
}

enum tri_status tri_state_make_room(struct tri_state *state, int64_t tokens, struct tri_error *err)
{
    struct tri_state *s = state;
    TRI_ASSERT(s->growing && tokens >= s->tokens);
    if (tokens > s->max_tokens)
        return tri_fail(err, TRI_LIMIT, "room for %lld tokens in a context of %lld",
                        (long long)tokens, (long long)s->max_tokens);
    uint64_t to = layer_room(s, tokens);
    enum tri_status st = TRI_OK;
    if (to > s->room_bytes)
        st = grow(s, to, err);
    else if (to < s->room_bytes)
        shrink(s, to);
    if (st == TRI_OK)
        s->room_tokens = tokens;
    return st;
}
