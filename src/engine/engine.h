/*
 * The engine: several sequences over one model, stepped together, and the sampler. Floor 5. It
 * speaks token ids only; text, chat format and stop strings belong to its callers (the matcher for
 * stop strings at the end of this door works on plain bytes and knows no sequence).
 *
 * One thread at a time calls into an engine and its sequences. After opening, no call on the token
 * path allocates. A sequence's output depends on its own tokens, options and seed, never on its
 * neighbours in a step.
 */
#ifndef TRI_ENGINE_ENGINE_H
#define TRI_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include "base/mem.h"
#include "base/status.h"
#include "model/model.h"

enum {
    TRI_ENGINE_MAX_SEQUENCES = 1024,
    TRI_ENGINE_MAX_BIAS = 1024,      /* logit_bias entries of one sequence */
    TRI_ENGINE_MAX_STOP_IDS = 128,   /* stop ids of one sequence */
    TRI_ENGINE_MAX_TOP_LOGPROBS = 32 /* alternatives told beside a sampled token */
};

/* Long enough for whole experts to be read for a step, short enough to wait for. */
static const uint64_t TRI_ENGINE_STEP_TARGET_NS = UINT64_C(2000000000);

struct tri_engine;
struct tri_sequence;

struct tri_engine_options {
    int64_t max_sequences; /* open at once; 0 = 1 */
    /*
     * What may be sampled: ids below `plain_ids` (0 = the model's vocabulary) and the listed
     * specials (markup and stop ids), sorted, all >= plain_ids. Every other id is never sampled,
     * whatever its logit or bias. The list is copied.
     */
    int64_t plain_ids;
    const int32_t *specials;
    int64_t n_specials;
    const struct tri_taps *taps; /* what to watch of every step (model.h), or NULL; not copied */
    /*
     * Prompts that wait: false, the oldest start first; true, the one with the least left to
     * compute first, but the oldest in every other step, so that a long prompt neither holds up
     * short ones nor starves.
     */
    bool short_first;
    bool scores;  /* prompts may be scored: struct tri_scores. Takes a few rows of logits */
    bool growing; /* sequences open without room for tokens: tri_sequence_make_room */
    /* Most prompt rows of a step that serves more than one sequence; 0: the chunk. Small where a
     * row costs the same in small steps (all experts in RAM), as everybody waits for the step. */
    int64_t shared_rows;
    /*
     * A step of prompts gets fewer rows than the chunk (a half, a quarter, ..., whole grids) while
     * it takes longer than this and rows do not become more than an eighth dearer by it; more
     * again when it takes less than half. 0: TRI_ENGINE_STEP_TARGET_NS; UINT64_MAX: never fewer.
     * Ignored for BF16 states, whose rounding would show it.
     */
    uint64_t step_target_ns;
};

/* `model` and `budget` must outlive the engine. Logits and sampler scratch: account scratch. */
TRI_MUST_CHECK enum tri_status tri_engine_open(struct tri_engine **out, struct tri_model *model,
                                               const struct tri_engine_options *options,
                                               struct tri_budget *budget, struct tri_error *err);
void tri_engine_close(struct tri_engine *engine); /* its sequences must be closed */

/* --- sampling ------------------------------------------------------------------------------- */

struct tri_logit_bias {
    int32_t id;
    float bias; /* -100..100 is added to the logit; -INFINITY bans the id */
};

/*
 * How one token is chosen from its logits, in this order (vLLM's):
 *   1. ids that may not be sampled, or that a constraint excludes, are left out; logit bias is
 *      added
 *   2. repetition penalty over prompt and output: l > 0 ? l / r : l * r
 *   3. frequency: l -= f * times in the output; presence: l -= p if in the output at all
 *   4. temperature 0: the largest logit. Else l /= temperature, softmax
 *   5. min-p: below min_p * the largest probability is dropped
 *   6. top-k: the k likeliest stay
 *   7. top-p: of these, renormalised, the smallest set of the likeliest with mass >= top_p
 *   8. one uniform draw over what is left
 * Equal probabilities: the lower id counts as likelier. At least one id always stays. Softmax and
 * sums are in double. The draw is SplitMix64 (Steele, Lea, Flood 2014) of the seed and of the
 * position of the new token in its sequence, and of nothing else: a continued or restored
 * sequence draws as if it had never stopped.
 */
struct tri_sampling {
    double temperature;        /* 0..100; 0 = greedy */
    double top_p;              /* 0..1; 1 = off */
    double min_p;              /* 0..1; 0 = off */
    int64_t top_k;             /* <= 0 = off */
    double repetition_penalty; /* 0.01..100; 1 = off */
    double presence_penalty;   /* -100..100; 0 = off */
    double frequency_penalty;  /* -100..100; 0 = off */
    uint64_t seed;
};

/* Temperature 1 and every filter off, seed 0. */
struct tri_sampling tri_sampling_default(void);

/* --- sequences ------------------------------------------------------------------------------ */

/* Takes a state for `max_tokens` (prompt and output together) from the budget. */
TRI_MUST_CHECK enum tri_status tri_sequence_open(struct tri_sequence **out,
                                                 struct tri_engine *engine, int64_t max_tokens,
                                                 struct tri_error *err);
void tri_sequence_close(struct tri_sequence *sequence);

/*
 * Makes `tokens` the content of an idle sequence. When they begin with all that its state has
 * seen and go on, only the rest will be computed (*reused_tokens, may be NULL, counts what is
 * kept); otherwise the state starts again from nothing, as a recurrent state cannot go back. Too
 * long for the sequence: TRI_LIMIT with both numbers, nothing changed. An id outside the
 * vocabulary: TRI_ARG.
 */
TRI_MUST_CHECK enum tri_status tri_sequence_prompt(struct tri_sequence *sequence,
                                                   const int32_t *tokens, int64_t n_tokens,
                                                   int64_t *reused_tokens, struct tri_error *err);

/*
 * What bounds a sequence's tokens beyond its own options: a grammar. Called on the thread that
 * steps, once a sampled token each. It stands where the sampled tokens have led it, so a
 * generation that is stopped and started again goes on with the same one.
 */
struct tri_constraint {
    /*
     * Ids that may come next: bit i % 64 of word i / 64, *words of them, ids beyond them may not.
     * NULL: a failure, told in *err.
     */
    const uint64_t *(*allowed)(void *arg, size_t *words, struct tri_error *err);
    void (*take)(void *arg, int32_t id); /* the sampled one, which was allowed */
    /* True: nothing may follow the last token. */
    bool (*done)(void *arg);
    void *arg;
};

struct tri_logprob {
    int32_t id;
    float logprob; /* natural log, of the model's own distribution before any step above */
};

/*
 * How likely a prompt's own tokens were, each after those before it. Filled by steps, for tokens
 * 1..n_prompt-1; the caller's memory, which must outlive the generation. A scored prompt is
 * computed whole: what its state had seen without being scored is computed again. A prompt's
 * logits are never held together; lm_head is passed over once for every TRI_MODEL_TILE_TOKENS.
 */
struct tri_scores {
    struct tri_logprob *chosen; /* [n_prompt]; [0] is not written */
    struct tri_logprob *top;    /* [n_prompt][n_top], likeliest first; [0] is not written */
    int32_t *rank;  /* [n_prompt], 1 + how many ids were likelier; [0] is not written. Or NULL */
    int64_t n_top;  /* 0..TRI_ENGINE_MAX_TOP_LOGPROBS */
    int64_t n_done; /* tokens that were scored, [1] first */
};

struct tri_generate {
    struct tri_sampling sampling;
    int64_t max_tokens; /* most new tokens; 0 = until the context is full */
    /* Stop ids are not sampled before this many, unless a constraint leaves nothing else. */
    int64_t min_tokens;
    const int32_t *stop_ids; /* copied; the stop id is the last token told */
    int64_t n_stop_ids;
    const struct tri_logit_bias *bias; /* copied */
    int64_t n_bias;
    const struct tri_constraint *constraint; /* NULL: none. Not copied */
    bool logprobs;                           /* tell the log probability of each sampled token */
    int64_t top_logprobs;                    /* and of this many likeliest tokens beside it */
    struct tri_scores *scores;               /* NULL: the prompt is not scored */
    bool prompt_only; /* TRI_END_LENGTH, with no token, as soon as the prompt is computed */
};

/*
 * Starts generating after what the idle sequence holds (at least one token, and room for one
 * more: TRI_LIMIT otherwise). Tokens come from tri_engine_step. Everything held now counts as
 * prompt for the penalties.
 */
TRI_MUST_CHECK enum tri_status tri_sequence_start(struct tri_sequence *sequence,
                                                  const struct tri_generate *how,
                                                  struct tri_error *err);
/* Ends generation, if any; what was sampled stays and can be continued. */
void tri_sequence_stop(struct tri_sequence *sequence);

/* Everything held, sampled tokens included; valid until the next call on the sequence. */
const int32_t *tri_sequence_tokens(const struct tri_sequence *sequence, int64_t *n_tokens);
/* How many of them the state has seen: what is missing will be computed by the next steps. */
int64_t tri_sequence_computed(const struct tri_sequence *sequence);
bool tri_sequence_active(const struct tri_sequence *sequence);

/* The state on disk (tri_state_save) with the tokens it has seen. Idle sequences only. */
TRI_MUST_CHECK enum tri_status tri_sequence_save(const struct tri_sequence *sequence,
                                                 const char *path, struct tri_error *err);
/* Replaces what the sequence holds; on failure it is empty. */
TRI_MUST_CHECK enum tri_status tri_sequence_load(struct tri_sequence *sequence, const char *path,
                                                 struct tri_error *err);

/* --- for a scheduler ------------------------------------------------------------------------- */

/* Forgets what the idle sequence holds. */
void tri_sequence_clear(struct tri_sequence *sequence);
/* A paused sequence stays active but takes part in no step. */
void tri_sequence_pause(struct tri_sequence *sequence, bool paused);
/*
 * No step computes prompt tokens across `position`: a step ends there, so that the state can be
 * copied at this boundary, and the next step goes on. 0: nowhere.
 */
void tri_sequence_halt(struct tri_sequence *sequence, int64_t position);
/* Copies the state (between steps; also of an active sequence) into `dst`: tri_state_copy. */
TRI_MUST_CHECK enum tri_status tri_sequence_snapshot(const struct tri_sequence *sequence,
                                                     struct tri_state *dst, struct tri_error *err);
/* Room for tokens of a growing sequence, and what it takes: tri_state_make_room. */
TRI_MUST_CHECK enum tri_status tri_sequence_make_room(struct tri_sequence *sequence, int64_t tokens,
                                                      struct tri_error *err);
uint64_t tri_sequence_room_bytes(const struct tri_sequence *sequence, int64_t tokens);
/* The state itself, for reading or filling it from another thread: the sequence must be idle or
 * paused meanwhile. After filling it: adopt. */
struct tri_state *tri_sequence_state(struct tri_sequence *sequence);
void tri_sequence_adopt(struct tri_sequence *sequence, const int32_t *tokens, int64_t n_tokens);
/*
 * Starts a generation again that was stopped, perhaps on another sequence: as tri_sequence_start,
 * but of what is held only the first `n_prompt` tokens are prompt; the rest counts as its output.
 */
TRI_MUST_CHECK enum tri_status tri_sequence_resume(struct tri_sequence *sequence,
                                                   const struct tri_generate *how, int64_t n_prompt,
                                                   struct tri_error *err);
/* Makes an idle sequence hold such a copy; `tokens` led to it. On failure it is empty. */
TRI_MUST_CHECK enum tri_status tri_sequence_restore(struct tri_sequence *sequence,
                                                    const struct tri_state *src,
                                                    const int32_t *tokens, int64_t n_tokens,
                                                    struct tri_error *err);

/* --- stepping ------------------------------------------------------------------------------- */

enum tri_end {
    TRI_END_NONE,    /* goes on */
    TRI_END_STOP,    /* a stop id, which is the event's token, or the constraint is done */
    TRI_END_LENGTH,  /* max_tokens reached */
    TRI_END_CONTEXT, /* the sequence is full */
    TRI_END_ERROR    /* its logits were not numbers, or nothing could be sampled */
};

/* What a step did for one sequence. */
struct tri_step_event {
    struct tri_sequence *sequence;
    int32_t token; /* -1: this step only computed more of the prompt, or it failed */
    enum tri_end end;
    struct tri_logprob chosen;     /* when asked for */
    const struct tri_logprob *top; /* [n_top], likeliest first */
    int64_t n_top;
    const struct tri_error *error; /* with TRI_END_ERROR; valid until the next step */
    int64_t first_row, n_rows;     /* its rows in the step, as taps count them */
};

/*
 * One forward pass: a row for every decoding sequence first, then prompt tokens, oldest start
 * first, up to the model's chunk_tokens rows together (shared_rows of prompts, if there are
 * others). *events (valid until the next step) tells each sequence that took part; *n_events 0
 * means that no sequence is active. A prompt that needs more than one step is cut at multiples of
 * TRI_ENGINE_GRID_TOKENS of its own positions where possible, else of TRI_MODEL_TILE_TOKENS: so
 * resumed and batched prefills have the bits of others. One that could reach neither waits for the
 * next step; a chunk that has no room for a tile beside the decoding sequences gives up that
 * promise (schedulers keep it larger).
 *
 * A failure returned here is the model's (I/O, memory; TRI_CANCELLED when a tap stopped the step):
 * every sequence that took part has ended and must recompute. NaN or Inf ends only the sequences
 * whose logits hold it.
 */
enum { TRI_ENGINE_GRID_TOKENS = 64 };
TRI_MUST_CHECK enum tri_status tri_engine_step(struct tri_engine *engine,
                                               const struct tri_step_event **events,
                                               int64_t *n_events, struct tri_error *err);

/* Within a step (that is, from taps): does the sequence take part in it? */
bool tri_sequence_in_step(const struct tri_sequence *sequence);

/* From the next step on, watch with these taps instead (not copied); NULL: with none. */
void tri_engine_watch(struct tri_engine *engine, const struct tri_taps *taps);

/* Counted since opening. Times are of the forward passes, split by rows when a step did both. */
struct tri_engine_counters {
    uint64_t steps, prefill_tokens, decode_tokens;
    uint64_t prefill_ns, decode_ns, sample_ns;
    uint64_t numeric_failures; /* sequences ended by NaN or Inf */
};
void tri_engine_count(const struct tri_engine *engine, struct tri_engine_counters *out);

/* --- stop strings --------------------------------------------------------------------------- */

/*
 * Finds the first occurrence of any of a few strings in a stream of bytes, however it is cut into
 * pieces, and holds back what may still become one: no byte of a stop string is ever let out.
 */
enum { TRI_STOP_MAX_STRINGS = 16, TRI_STOP_MAX_BYTES = 256 };

struct tri_stop;

/* `strings` NUL-terminated, none empty; over the limits: TRI_LIMIT. n 0 lets everything pass. */
TRI_MUST_CHECK enum tri_status tri_stop_open(struct tri_stop **out, const char *const *strings,
                                             int64_t n, struct tri_error *err);
void tri_stop_close(struct tri_stop *stop);
void tri_stop_reset(struct tri_stop *stop);

/*
 * Feeds bytes; what is certain goes to `emit` (at most twice per call). Returns the index of the
 * string that was found, with everything before it emitted, or -1. After a match the rest is
 * swallowed until reset. With several matches ending at the same byte the longest counts.
 */
typedef void (*tri_stop_emit)(void *arg, const char *bytes, size_t n);
int64_t tri_stop_feed(struct tri_stop *stop, const char *bytes, size_t n, tri_stop_emit emit,
                      void *arg);
/* The stream ended without a match: lets out what was held back. */
void tri_stop_flush(struct tri_stop *stop, tri_stop_emit emit, void *arg);

#endif
