/* Inside of a state, shared by state.c and state_file.c. */
#ifndef TRI_STATE_PRIV_H
#define TRI_STATE_PRIV_H

#include <stdbool.h>
#include "state/state.h"

/*
 * Two blocks of memory. fixed: for each KDA layer S [heads][dim][dim] in form.kda, padded to
 * four bytes, then the convolution tails [3][taps-1][heads*dim]. cache: for each MLA layer,
 * layer_bytes apart, rows of mla_row_bytes, of which the first `tokens` are filled and the first
 * room_tokens have memory. In a growing state the cache is mapped address space (state_room.c),
 * otherwise plain memory.
 */
struct tri_state {
    struct tri_budget *budget;
    int64_t kda_layers, mla_layers;
    int64_t s_floats, conv_floats; /* per KDA layer */
    int64_t mla_row;               /* values per token and MLA layer */
    struct tri_state_form form;
    uint64_t s_bytes; /* of a KDA layer's S, whole floats */
    uint64_t mla_row_bytes;
    int64_t max_tokens, room_tokens, tokens;
    char *fixed, *cache;
    uint64_t fixed_bytes, cache_bytes, layer_bytes;
    bool growing;
    uint64_t unit_bytes, room_bytes; /* growing: memory per layer, in these units */
};

/* A state whose shape is known and nothing else. */
enum tri_status tri__state_new(struct tri_state **out, const struct tri_spec *spec,
                               const struct tri_slice *slice, struct tri_state_form form,
                               int64_t max_tokens, struct tri_budget *budget,
                               struct tri_error *err);

/* The whole of `fixed`. */
uint64_t tri__state_fixed_bytes(const struct tri_state *state);

/* Rows of one MLA layer. */
char *tri__state_rows(const struct tri_state *state, int64_t mla_index);

#endif
