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

#include <stdbool.h>
#include "base/mem.h"
#include "fmt/fmt.h"
#include "layout/layout.h"
#include "spec/spec.h"

struct tri_state;

struct tri_state_bytes {
    uint64_t kda_bytes;           /* fixed, per sequence */
    uint64_t mla_bytes_per_token; /* per token of capacity */
};

/*
 * Number formats of a sequence. cache: of the MLA cache, F32, BF16 (rounded to nearest) or E4M3
 * (scale 1, saturating at 448, as serving engines keep it: K3 spec 4). kda: of the KDA states, F32
 * or BF16; convolution tails are float32 in any case. A BF16 state is rounded when a call of a
 * kernel ends (kernels.h, tri_kda_args), so that results depend on how a prompt was cut into steps.
 */
struct tri_state_form {
    enum tri_dtype cache, kda;
};

void tri_state_cost(const struct tri_spec *spec, const struct tri_slice *slice,
                    struct tri_state_form form, struct tri_state_bytes *out);

/* An empty sequence with room for `max_tokens` (>= 1) tokens. `spec` and `slice` are copied from.
 */
TRI_MUST_CHECK enum tri_status tri_state_open(struct tri_state **out, const struct tri_spec *spec,
                                              const struct tri_slice *slice,
                                              struct tri_state_form form, int64_t max_tokens,
                                              struct tri_budget *budget, struct tri_error *err);
void tri_state_close(struct tri_state *state);

/*
 * The same, but only the KDA part is taken now: address space for `max_tokens`, memory for none.
 * Room for tokens is made and given back in pages by tri_state_make_room, so that many short
 * sequences fit where one long one would.
 */
TRI_MUST_CHECK enum tri_status
tri_state_open_growing(struct tri_state **out, const struct tri_spec *spec,
                       const struct tri_slice *slice, struct tri_state_form form,
                       int64_t max_tokens, struct tri_budget *budget, struct tri_error *err);
/* Room for exactly `tokens` (at least what is held) from now on: more is taken from the budget,
 * less is given back. On failure (TRI_BUDGET, TRI_NOMEM, TRI_LIMIT) nothing has changed. */
TRI_MUST_CHECK enum tri_status tri_state_make_room(struct tri_state *state, int64_t tokens,
                                                   struct tri_error *err);
/* What room may take beyond its tokens, as it comes in pages. */
uint64_t tri_state_rounding_bytes(const struct tri_spec *spec, const struct tri_slice *slice,
                                  struct tri_state_form form, int64_t max_tokens);
/* Memory that room for `tokens` takes in a growing state. */
uint64_t tri_state_room_bytes(const struct tri_state *state, int64_t tokens);

int64_t tri_state_tokens(const struct tri_state *state);      /* held so far */
int64_t tri_state_max_tokens(const struct tri_state *state);  /* capacity */
int64_t tri_state_room_tokens(const struct tri_state *state); /* of it, with memory */
void tri_state_clear(struct tri_state *state);                /* back to an empty sequence */

/* Makes `dst` (same model, enough room) the same sequence as `src`. TRI_LIMIT if it is too small.
 */
TRI_MUST_CHECK enum tri_status tri_state_copy(struct tri_state *dst, const struct tri_state *src,
                                              struct tri_error *err);

/* Only for measuring and tests: a state of `tokens` tokens that nobody ever said, random numbers of
 * plausible size, the same for the same seed. TRI_LIMIT if they do not fit. */
TRI_MUST_CHECK enum tri_status tri_state_fill(struct tri_state *state, int64_t tokens,
                                              uint64_t seed, struct tri_error *err);

/*
 * Writes the state to a file (temporary file, fsync, rename, fsync of the folder; mode 0600) and
 * reads it back. The token ids that led to the state travel with it, so that a conversation can be
 * continued; `fingerprint` names the model and must match. A damaged, cut or foreign file is
 * TRI_FORMAT, one that holds too many tokens TRI_LIMIT; `state` is then cleared. *tokens is freed
 * with tri_free. Layout: state_file.c.
 */
TRI_MUST_CHECK enum tri_status tri_state_save(const struct tri_state *state, const char *path,
                                              uint64_t fingerprint, const int32_t *tokens,
                                              int64_t n_tokens, struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri_state_load(struct tri_state *state, const char *path,
                                              uint64_t fingerprint, int32_t **tokens,
                                              int64_t *n_tokens, struct tri_error *err);
/* Only which tokens a file is for; its size and the sum of this part are checked. `shape`: any
 * state of the model. */
TRI_MUST_CHECK enum tri_status tri_state_peek(const struct tri_state *shape, const char *path,
                                              uint64_t fingerprint, int32_t **tokens,
                                              int64_t *n_tokens, struct tri_error *err);
/* Size of the file that holds this state. */
uint64_t tri_state_file_bytes(const struct tri_state *state);

/* --- the prefix tree ------------------------------------------------------------------------ */

/* Who may share a state: equal salts only. All zero is a salt too. */
struct tri_salt {
    uint64_t a, b;
};

/*
 * Values kept for token sequences under salts (state: prefix_tree.c). A handle stays valid until
 * its value is removed. Memory: account other. One thread at a time.
 */
struct tri_prefixes;
struct tri_prefix;

TRI_MUST_CHECK enum tri_status tri_prefixes_open(struct tri_prefixes **out,
                                                 struct tri_budget *budget, struct tri_error *err);
void tri_prefixes_close(struct tri_prefixes *tree);
/* Keeps `value` (not NULL) for exactly these tokens (n >= 1), which must not have one. On failure
 * the tree is as before. */
TRI_MUST_CHECK enum tri_status tri_prefixes_put(struct tri_prefixes *tree,
                                                const struct tri_salt *salt, const int32_t *tokens,
                                                int64_t n, void *value, struct tri_prefix **out,
                                                struct tri_error *err);
void tri_prefix_remove(struct tri_prefixes *tree, struct tri_prefix *prefix);
/* What is kept for exactly these tokens, or NULL. */
struct tri_prefix *tri_prefixes_find(struct tri_prefixes *tree, const struct tri_salt *salt,
                                     const int32_t *tokens, int64_t n);
/* The longest beginning of these tokens that has a value which `fits` (NULL: any does), or NULL. */
typedef bool (*tri_prefix_fits)(void *arg, void *value);
struct tri_prefix *tri_prefixes_longest(struct tri_prefixes *tree, const struct tri_salt *salt,
                                        const int32_t *tokens, int64_t n, tri_prefix_fits fits,
                                        void *arg);
void *tri_prefix_value(const struct tri_prefix *prefix);
/* True when all that goes on from here goes on the same way: no other continuation branches off. */
bool tri_prefix_is_covered(const struct tri_prefix *prefix);
void tri_prefix_tokens(const struct tri_prefix *prefix, int32_t *out); /* [n], as put */

/* --- a folder of states ---------------------------------------------------------------------- */

/* Why a state was kept; part of its file's name. */
enum tri_keep {
    TRI_KEEP_HEAD = 'h',   /* the end of what many prompts share: system prompt and tools */
    TRI_KEEP_BORDER = 'b', /* a border between messages */
    TRI_KEEP_REPLY = 'r',  /* the end of an answer */
    TRI_KEEP_ALONG = 'a',  /* on the way through a long prompt */
    TRI_KEEP_OUT = 'o'     /* a request that had to make room */
};

struct tri_kept {
    struct tri_salt salt;
    enum tri_keep why;
    const int32_t *tokens;
    int64_t n_tokens;
};

/*
 * States as files of one folder (0700, files 0600), which one process at a time may use: a lock
 * file is held as long as the folder is open. Names say salt, tokens (hashed) and why; nothing else
 * in the folder is touched. The order of use is kept in the files' modification times. Nothing here
 * counts or evicts: that is the caller's. One thread at a time.
 */
struct tri_state_folder;

/* Makes the folder if need be. TRI_BUSY: another process has it; TRI_ARG: others may read it.
 * `shape`, any state of the model, is only looked at, and must live as long. */
TRI_MUST_CHECK enum tri_status tri_state_folder_open(struct tri_state_folder **out,
                                                     const char *path,
                                                     const struct tri_state *shape,
                                                     uint64_t fingerprint, struct tri_error *err);
void tri_state_folder_close(struct tri_state_folder *folder);

/*
 * Tells every usable state, least recently used first; `found` returning false removes it. Files
 * that are damaged, of another model or another version, and what an interrupted writer left, are
 * removed and counted.
 */
struct tri_state_found {
    struct tri_kept kept; /* its tokens are valid during the call */
    uint64_t file_bytes;
};
TRI_MUST_CHECK enum tri_status
tri_state_folder_scan(struct tri_state_folder *folder,
                      bool (*found)(void *arg, const struct tri_state_found *found), void *arg,
                      uint64_t *removed, struct tri_error *err);
/* Writes a state (all its tokens are kept->tokens). A drive that would be more than 95 % full then
 * is refused with TRI_LIMIT. */
TRI_MUST_CHECK enum tri_status tri_state_folder_save(struct tri_state_folder *folder,
                                                     const struct tri_kept *kept,
                                                     const struct tri_state *state,
                                                     struct tri_error *err);
/* Reads it back and makes it the most recently used. Any failure: the file is removed, `state` is
 * empty. */
TRI_MUST_CHECK enum tri_status tri_state_folder_load(struct tri_state_folder *folder,
                                                     const struct tri_kept *kept,
                                                     struct tri_state *state,
                                                     struct tri_error *err);
void tri_state_folder_touch(struct tri_state_folder *folder, const struct tri_kept *kept);
void tri_state_folder_remove(struct tri_state_folder *folder, const struct tri_kept *kept);

/* --- for the forward pass only ---------------------------------------------------------------- */

/* Local layer l of kind KDA: S [heads][key][value] in the form's format. */
void *tri_state_kda(struct tri_state *state, int64_t kda_index);
/* Convolution tails of q, k, v: [3][taps - 1][heads * dim] f32, oldest first. */
float *tri_state_conv(struct tri_state *state, int64_t kda_index);
/* MLA cache [max_tokens][kv_rank + rope] in the cache's format: normalised latent, then k_pe. */
void *tri_state_mla(struct tri_state *state, int64_t mla_index);
struct tri_state_form tri_state_form(const struct tri_state *state);
/* Encodes n float32 rows into the cache from `token` on. */
void tri_state_put_mla(struct tri_state *state, int64_t mla_index, int64_t token, const float *rows,
                       int64_t n);
/* Declares `n` more tokens held, after every layer has written them. */
void tri_state_advance(struct tri_state *state, int64_t n);

#endif
