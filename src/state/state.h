/*
 * The memory of one sequence: KDA states, convolution tails and the compressed MLA cache, all at
 * one token boundary. Floor 3. Layout in memory and on disk: K3 spec 3.3, 3.4 and 9.1.
 *
 * A state belongs to one sequence and is used by one thread at a time. Everything it will ever
 * need is taken from the budget when it is opened (accounts mla and kda): the token path
 * allocates nothing.
 */
#ifndef TRI_STATE_STATE_H
#define TRI_STATE_STATE_H

#include "base/mem.h"
#include "fmt/fmt.h"
#include "layout/layout.h"
#include "spec/spec.h"

struct tri_state;

struct tri_state_bytes {
    uint64_t kda_bytes;           /* fixed, per sequence */
    uint64_t mla_bytes_per_token; /* per token of capacity */
};

/* `cache` is how the MLA cache is kept: F32, BF16 (rounded to nearest) or E4M3 (scale 1, saturating
 * at 448, as serving engines keep it: K3 spec 4). The KDA part is float32. */
void tri_state_cost(const struct tri_spec *spec, const struct tri_slice *slice,
                    enum tri_dtype cache, struct tri_state_bytes *out);

/* An empty sequence with room for `max_tokens` (>= 1) tokens. `spec` and `slice` are copied from.
 */
TRI_MUST_CHECK enum tri_status tri_state_open(struct tri_state **out, const struct tri_spec *spec,
                                              const struct tri_slice *slice, enum tri_dtype cache,
                                              int64_t max_tokens, struct tri_budget *budget,
                                              struct tri_error *err);
void tri_state_close(struct tri_state *state);

int64_t tri_state_tokens(const struct tri_state *state);     /* held so far */
int64_t tri_state_max_tokens(const struct tri_state *state); /* capacity */
void tri_state_clear(struct tri_state *state);               /* back to an empty sequence */

/* Makes `dst` (same model, enough room) the same sequence as `src`. TRI_LIMIT if it is too small.
 */
TRI_MUST_CHECK enum tri_status tri_state_copy(struct tri_state *dst, const struct tri_state *src,
                                              struct tri_error *err);

/* Only for measuring and tests: a state of `tokens` tokens that nobody ever said, random numbers of
 * plausible size, the same for the same seed. TRI_LIMIT if they do not fit. */
TRI_MUST_CHECK enum tri_status tri_state_fill(struct tri_state *state, int64_t tokens,
                                              uint64_t seed, struct tri_error *err);

/*
 * Writes the state to a file (temporary file, fsync, rename; mode 0600) and reads it back. The
 * token ids that led to the state travel with it, so that a conversation can be continued;
 * `fingerprint` names the model and must match. A damaged, cut or foreign file is TRI_FORMAT
 * and leaves `state` cleared. *tokens is freed with tri_free.
 */
TRI_MUST_CHECK enum tri_status tri_state_save(const struct tri_state *state, const char *path,
                                              uint64_t fingerprint, const int32_t *tokens,
                                              int64_t n_tokens, struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri_state_load(struct tri_state *state, const char *path,
                                              uint64_t fingerprint, int32_t **tokens,
                                              int64_t *n_tokens, struct tri_error *err);

/* For the forward pass only. Local layer l of kind KDA: S [heads][key][value] f32. */
float *tri_state_kda(struct tri_state *state, int64_t kda_index);
/* Convolution tails of q, k, v: [3][taps - 1][heads * dim] f32, oldest first. */
float *tri_state_conv(struct tri_state *state, int64_t kda_index);
/* MLA cache [max_tokens][kv_rank + rope] in the cache's format: normalised latent, then k_pe. */
void *tri_state_mla(struct tri_state *state, int64_t mla_index);
enum tri_dtype tri_state_cache_dtype(const struct tri_state *state);
/* Encodes n float32 rows into the cache from `token` on. */
void tri_state_put_mla(struct tri_state *state, int64_t mla_index, int64_t token, const float *rows,
                       int64_t n);
/* Declares `n` more tokens held, after every layer has written them. */
void tri_state_advance(struct tri_state *state, int64_t n);

#endif
