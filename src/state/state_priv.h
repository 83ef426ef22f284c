/* Inside of a state, shared by state.c and state_file.c. */
#ifndef TRI_STATE_PRIV_H
#define TRI_STATE_PRIV_H

#include "state/state.h"

/*
 * Two blocks of memory. fixed: for each KDA layer S [heads][dim][dim], then the convolution tails
 * [3][taps-1][heads*dim]. cache: for each MLA layer [max_tokens] rows of mla_row_bytes, of which
 * the first `tokens` are filled.
 */
struct tri_state {
    struct tri_budget *budget;
    int64_t kda_layers, mla_layers;
    int64_t s_floats, conv_floats; /* per KDA layer */
    int64_t mla_row;               /* values per token and MLA layer */
    enum tri_dtype cache_dtype;
    uint64_t mla_row_bytes;
    int64_t max_tokens, tokens;
    float *fixed;
    char *cache;
    uint64_t fixed_bytes, cache_bytes;
};

/* Rows of one MLA layer. */
char *tri__state_rows(const struct tri_state *state, int64_t mla_index);

#endif
