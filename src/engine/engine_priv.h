/* Inside the engine: the sampler's parts, and the structs that sequence.c and step.c share. */
#ifndef TRI_ENGINE_ENGINE_PRIV_H
#define TRI_ENGINE_ENGINE_PRIV_H

#include "engine/engine.h"

/*
 * Candidates are numbered 0..n-1 in id order: the plain ids, then the specials. A key orders them
 * by weight, then lower candidate first, and is unique: float bits of the weight (>= 0, so they
 * sort as integers) above the inverted number.
 */
struct tri__engine_sampler {
    int64_t plain_ids, n_specials, n; /* n = plain_ids + n_specials */
    int32_t *specials;                /* [n_specials] */
    double *logits;                   /* [n], adjusted */
    uint64_t *keys, *work;            /* [n] each */
};

/* What a sequence brings to the choice of one token. */
struct tri__engine_pick {
    const float *logits; /* [vocab] */
    const struct tri_sampling *how;
    const uint32_t *marks; /* [vocab]: times in the output << 1 | in the prompt */
    const struct tri_logit_bias *bias;
    int64_t n_bias;
    const int32_t *banned; /* for this token only (stop ids before min_tokens) */
    int64_t n_banned;
    uint64_t position;       /* of the new token in its sequence */
    const uint64_t *allowed; /* bits by id, or NULL: all */
    size_t allowed_words;
};

int32_t tri__engine_candidate_id(const struct tri__engine_sampler *s, int64_t candidate);
/* The candidate of an id, -1 when it may not be sampled. */
int64_t tri__engine_id_candidate(const struct tri__engine_sampler *s, int64_t id);

/* Picks a token. TRI_LIMIT when every id is banned. Logits must be finite. */
enum tri_status tri__engine_sample(struct tri__engine_sampler *s,
                                   const struct tri__engine_pick *pick, int32_t *out_id,
                                   struct tri_error *err);

/* Uniform in [0, 1) with 53 bits, of seed and position alone. */
double tri__engine_uniform(uint64_t seed, uint64_t position);

static inline uint64_t tri__engine_key(float weight, int64_t candidate)
{
    union {
        float f;
        uint32_t u;
    } bits = { .f = weight };
    return (uint64_t)bits.u << 32 | (uint32_t) ~(uint32_t)candidate;
}

static inline float tri__engine_key_weight(uint64_t key)
{
    union {
        uint32_t u;
        float f;
    } bits = { .u = (uint32_t)(key >> 32) };
    return bits.f;
}

static inline int64_t tri__engine_key_candidate(uint64_t key)
{
    return (int64_t)(uint32_t) ~(uint32_t)key;
}

/*
 * The lowest key of the smallest set of the highest keys that measures at least `target`: their
 * number (by_mass false) or the sum of their weights. At least one key; all when none suffices.
 * Linear in n (a radix selection). `work` [n] is overwritten.
 */
uint64_t tri__engine_threshold(const uint64_t *keys, int64_t n, bool by_mass, double target,
                               uint64_t *work);

/* No NaN and no Inf among them. */
bool tri__engine_finite(const float *row, int64_t n);
/* Log softmax at `id`, and the n_top likeliest, into top. */
void tri__engine_logprobs(const float *logits, int64_t vocab, int32_t id,
                          struct tri_logprob *chosen, struct tri_logprob *top, int64_t n_top);

/* score.c */
/* What has been computed without being scored must come again; called when a generation starts. */
void tri__engine_score_begin(struct tri_sequence *s, int64_t n_prompt);
/* Of the next `rows` tokens to compute, those whose logits score a token of the prompt; NULL: none.
 */
const struct tri_shown_rows *tri__engine_score_rows(struct tri_sequence *s, int64_t rows);

/* pace.c: rows of a step of prompts. No clock in it: steps tell how long they took. */
enum { TRI__PACE_LEVELS = 16 };
struct tri__pace {
    uint64_t target_ns; /* 0: always most_rows */
    int64_t most_rows;
    uint64_t steps;
    int level;                       /* the present size: most_rows >> level, in whole grids */
    double row_ns[TRI__PACE_LEVELS]; /* of each size; 0: not seen yet */
};
int64_t tri__pace_rows(const struct tri__pace *p, int level);
/* After a step of `rows` rows of prompts and nothing else; one much below the size tells nothing.
 */
void tri__pace_took(struct tri__pace *p, int64_t rows, uint64_t ns);

struct tri_engine {
    const struct tri_taps *taps; /* the caller's, or NULL */
    struct tri_model *model;
    struct tri_budget *budget;
    int64_t vocab, chunk_tokens, shared_rows, max_sequences;
    struct tri__engine_sampler sampler;
    float *logits;                 /* [max_sequences][vocab] */
    float *shown;                  /* [TRI_MODEL_TILE_TOKENS][vocab], or NULL: nothing is scored */
    struct tri_sequence **slots;   /* [max_sequences], NULL where free */
    struct tri_sequence **order;   /* [max_sequences]: those in this step, decode rows first */
    struct tri_run *runs;          /* [max_sequences] */
    struct tri_step_event *events; /* [max_sequences] */
    bool short_first, growing;
    uint64_t starts; /* counts tri_sequence_start: age of a request */
    struct tri_engine_counters counters;
    struct tri__pace pace;
};

struct tri_sequence {
    struct tri_engine *engine;
    struct tri_state *state;
    int64_t max_tokens, n_tokens;
    int32_t *tokens;              /* [max_tokens] */
    uint32_t *marks;              /* [vocab], see tri__engine_pick */
    bool active, paused, in_step; /* in_step: while a step runs in which it takes part */
    int64_t halt;                 /* see tri_sequence_halt */
    uint64_t age;
    int64_t first_output;    /* n_tokens when generation started */
    struct tri_generate how; /* its pointers lead to the arrays below */
    int32_t stop_ids[TRI_ENGINE_MAX_STOP_IDS];
    struct tri_logit_bias bias[TRI_ENGINE_MAX_BIAS];
    struct tri_logprob top[TRI_ENGINE_MAX_TOP_LOGPROBS];
    struct tri_shown_rows shown; /* of this step */
    bool score_failed;           /* a row held NaN or Inf */
    struct tri_error error;
};

#endif
