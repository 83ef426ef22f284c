/* A made-up past, for measuring at lengths that would take too long to prefill. */
#include "state/state.h"

#include <string.h>
#include "state/state_priv.h"

/* About uniform in [-spread, spread) from a counter: the same for the same seed. */
static float made_up(uint64_t seed, uint64_t i, float spread)
{
    uint64_t z = seed + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return spread * ((float)(z >> 40) * 0x1p-23f - 1);
}

enum tri_status tri_state_fill(struct tri_state *state, int64_t tokens, uint64_t seed,
                               struct tri_error *err)
{
    if (tokens < 0 || tokens > state->room_tokens)
        return tri_fail(err, TRI_LIMIT, "a past of %lld tokens does not fit in %lld",
                        (long long)tokens, (long long)state->room_tokens);
    uint64_t n = 0;
    for (int64_t l = 0; l < state->kda_layers; l++) {
        char *s = tri_state_kda(state, l);
        float *tails = tri_state_conv(state, l);
        uint64_t value = tri_row_data_bytes(state->form.kda, 1);
        for (int64_t i = 0; i < state->s_floats; i++) {
            float v = made_up(seed, n++, 0.1f);
            tri_row_encode(s + (uint64_t)i * value, NULL, state->form.kda, &v, 1);
        }
        for (int64_t i = 0; i < state->conv_floats; i++)
            tails[i] = made_up(seed, n++, 0.1f);
    }
    for (int64_t l = 0; l < state->mla_layers; l++) {
        for (int64_t t = 0; t < tokens; t++) {
            char *row = tri__state_rows(state, l) + (uint64_t)t * state->mla_row_bytes;
            uint64_t value = tri_row_data_bytes(state->form.cache, 1);
            for (int64_t i = 0; i < state->mla_row; i++) {
                float v = made_up(seed, n++, 1.7f); /* spread of a normalised latent: 1 */
                tri_row_encode(row + (uint64_t)i * value, NULL, state->form.cache, &v, 1);
            }
        }
    }
    state->tokens = tokens;
    return TRI_OK;
}
