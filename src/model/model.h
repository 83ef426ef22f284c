/*
 * The K3 forward pass: token ids and states in, logits out. Floor 4. Source: K3 spec section 3.
 *
 * A model is opened once and is immutable afterwards but for its scratch: one forward call at a
 * time per model (the engine's step loop owns it). Activations are float32 throughout.
 *
 * Numerics: each row's result does not depend on which other rows are computed beside it, nor on
 * the number of threads. Prefill in chunks differs from one token at a time only by the rounding
 * of the chunked KDA form (relative 1e-6). Cut at multiples of TRI_MODEL_TILE_TOKENS from where it
 * began, prefill has the same bits however it is cut.
 */
#ifndef TRI_MODEL_MODEL_H
#define TRI_MODEL_MODEL_H

#include "base/mem.h"
#include "experts/experts.h"
#include "fmt/fmt.h"
#include "spec/spec.h"
#include "state/state.h"
#include "weights/weights.h"

struct tri_model;

enum {
    TRI_MODEL_CHUNK_TOKENS = 512, /* unless asked */
    TRI_MODEL_MAX_CHUNK_TOKENS = 65536,
    TRI_MODEL_KEEP_TOKENS = 8192,
    TRI_MODEL_TILE_TOKENS = 16 /* of the chunked KDA form (kernels.h) */
};

/*
 * AUTO: as on disk if that fits, else int8, else int4, else streamed. DISK keeps what the file
 * holds: lossless. STREAM keeps as little of the trunk in RAM as possible, as stored (for tests).
 */
enum tri_trunk {
    TRI_TRUNK_AUTO,
    TRI_TRUNK_DISK,
    TRI_TRUNK_F32,
    TRI_TRUNK_BF16,
    TRI_TRUNK_INT8,
    TRI_TRUNK_INT4,
    TRI_TRUNK_STREAM
};

/*
 * Activations in products with grouped weights (int8 and int4 trunk, MXFP4 experts). INT8:
 * quantised by groups of 32 columns, integer dot products; the router and what is stored as plain
 * floats stay exact. It costs less than anything else that is rounded (docs/findings/051). EXACT:
 * float32 against exact weights.
 */
enum tri_act { TRI_ACT_INT8, TRI_ACT_EXACT };

struct tri_model_options {
    enum tri_trunk trunk;
    enum tri_act act;
    enum tri_dtype cache;     /* MLA cache of the sequences: F32 (0), BF16 or E4M3 */
    enum tri_dtype kda_state; /* their KDA states: F32 (0) or BF16 (state.h) */
    int threads;              /* 0 = all CPUs allowed to this process */
    /* Where threads are bound (os/numa.h), read while opening; NULL: they are free. A refusal is
     * a note. */
    const struct tri_numa_plan *numa;
    int64_t layers;       /* run only the first N; 0 = all */
    int64_t chunk_tokens; /* most rows of one forward call; 0 = 512 */
    /* Room kept for sequences when experts would otherwise take all memory, in tokens of one
     * sequence; 0: the smaller of the model's context and TRI_MODEL_KEEP_TOKENS. */
    int64_t context_tokens;
    int64_t sequences;     /* room is kept for so many (but one of up to 8192 tokens); 0: one */
    uint64_t keep_bytes;   /* and for other things of the caller's, such as kept states */
    uint64_t expert_bytes; /* most for resident experts; 0: what is left of the budget */
    enum tri_expert_policy expert_policy;
    enum tri_expert_io expert_io;
    enum tri_aio_engine engine;    /* how drives are read */
    int queue_depth;               /* reads in flight; 0: TRI_EXPERTS_DEPTH */
    int io_timeout_ms;             /* of a silent drive; 0: TRI_EXPERTS_TIMEOUT_MS */
    struct tri_folders shard_dirs; /* further folders with shards of this model */
    /* Experts of the next MoE layer that are read ahead while a drive would idle; 0: none. No
     * result depends on it. */
    int64_t lookahead;
    /* These two change results, and a note says so. experts_per_token: fewer than the model's own;
     * 0: its own. cache_regret in [0, 1): up to two experts a layer that are not in RAM are
     * replaced by ones that are, if their gate is smaller by at most this share. */
    int64_t experts_per_token;
    float cache_regret;
    bool keep_nothing; /* no statistics of experts in MODEL/.trireme for later runs */
    struct tri_notes notes;
    struct tri_progress progress; /* ticks in bytes while loading */
};

/*
 * Opens MODEL (a folder with config.json and shards) and brings its weights to RAM from `budget`,
 * which must outlive the model. Fails without having kept anything; what does not fit is
 * TRI_BUDGET with the account table.
 */
TRI_MUST_CHECK enum tri_status tri_model_open(struct tri_model **out, const char *folder,
                                              const struct tri_model_options *options,
                                              struct tri_budget *budget, struct tri_error *err);
void tri_model_close(struct tri_model *model);

struct tri_pack_report {
    char folder[4000];
    uint64_t bytes;      /* of all files with weights */
    uint64_t kept_bytes; /* of those, found there and equal to their checksums */
};

/*
 * Writes the trunk in options->trunk (DISK, F32, BF16, INT8 or INT4) to
 * MODEL/trireme-pack-<format>, from which tri_model_open then reads it at the speed of the drive.
 * Needs memory for one unit. Resumable: what is there whole is kept; the index comes last. TRI_BUSY
 * when another process packs.
 */
TRI_MUST_CHECK enum tri_status
tri_model_pack(const char *folder, const struct tri_model_options *options,
               struct tri_budget *budget, struct tri_pack_report *report, struct tri_error *err);

struct tri_packs_report {
    int64_t packs, records, faults;             /* records: pieces with a checksum that were read */
    uint64_t bytes;                             /* of these */
    void (*fault)(void *arg, const char *text); /* names the file and the bytes, or the index */
    void *arg;
};

/*
 * Checks every pack of MODEL: that its index is of these shards (their headers), of this version
 * and finished, each file's size, each record's checksum. Counts are added to. What is wrong with a
 * pack is a fault and no failure. Memory: 32 MiB a thread.
 */
TRI_MUST_CHECK enum tri_status tri_model_check_packs(const char *folder,
                                                     const struct tri_model_options *options,
                                                     struct tri_budget *budget,
                                                     struct tri_packs_report *report,
                                                     struct tri_error *err);

const struct tri_spec *tri_model_spec(const struct tri_model *model);
const struct tri_slice *tri_model_slice(const struct tri_model *model);
int64_t tri_model_chunk_tokens(const struct tri_model *model);
/* How the trunk is held: never AUTO; STREAM when a part of it is read from disk every step. */
enum tri_trunk tri_model_trunk(const struct tri_model *model);
/* Names the weights and shapes (config and shard headers hashed): states of other models differ. */
uint64_t tri_model_fingerprint(const struct tri_model *model);
/* Names in addition how it computes: formats of trunk, cache and KDA state, activations. States
 * made with one may not be continued with another where answers are to be the same. Kernels are not
 * part of it.
 */
uint64_t tri_model_state_fingerprint(const struct tri_model *model);

/* What a step is busy with. Every nanosecond of a step belongs to exactly one part. */
#define TRI_TIME_MAP(X)                                                                            \
    X(EMBED, "embedding")                                                                          \
    X(MIX, "AttnRes mix and norms")                                                                \
    X(KDA, "KDA attention")                                                                        \
    X(MLA, "MLA attention")                                                                        \
    X(DENSE, "dense MLP")                                                                          \
    X(ROUTER, "router")                                                                            \
    X(LATENT, "latent down and up")                                                                \
    X(WAIT, "waiting for experts")                                                                 \
    X(TRUNK_WAIT, "waiting for the trunk")                                                         \
    X(EXPERTS, "routed experts")                                                                   \
    X(SHARED, "shared experts")                                                                    \
    X(HEAD, "lm_head")                                                                             \
    X(OTHER, "other")

enum tri_time {
#define TRI_TIME_ENUM(name, text) TRI_TIME_##name,
    TRI_TIME_MAP(TRI_TIME_ENUM)
#undef TRI_TIME_ENUM
        TRI_TIMES
};

const char *tri_time_name(enum tri_time part);

struct tri_profile {
    uint64_t ns[TRI_TIMES]; /* wall time on the calling thread, added up over steps */
    uint64_t steps;
};

/* From now on steps add to *profile (the caller's, zeroed by it); NULL: measure nothing. */
void tri_model_profile(struct tri_model *model, struct tri_profile *profile);

/* Counters of the expert store; all zero for a model without routed experts. */
void tri_model_expert_stats(const struct tri_model *model, struct tri_experts_stats *out);

struct tri_state_form tri_model_state_form(const struct tri_model *model);

/* An empty sequence for this model; growing: tri_state_open_growing. */
TRI_MUST_CHECK enum tri_status tri_model_state(struct tri_model *model, int64_t max_tokens,
                                               struct tri_state **out, struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri_model_growing_state(struct tri_model *model, int64_t max_tokens,
                                                       struct tri_state **out,
                                                       struct tri_error *err);

/*
 * Logits of many tokens of a run without a buffer for all of them: lm_head is passed over once for
 * every TRI_MODEL_TILE_TOKENS rows, and each piece is shown before the next overwrites it.
 */
struct tri_shown_rows {
    int64_t n_tokens; /* of the run's tokens the first so many, in order */
    float *rows;      /* [TRI_MODEL_TILE_TOKENS][vocab], overwritten */
    /* Rows of the run's tokens [first, first + n), on the calling thread; may hold NaN or Inf. */
    void (*show)(void *arg, int64_t first, int64_t n, const float *rows);
    void *arg;
};

/* One sequence's share of a step: `n_tokens` (>= 1) new ids after what its state holds. */
struct tri_run {
    struct tri_state *state;
    const int32_t *tokens;
    int64_t n_tokens;
    int64_t first_logits; /* logits are wanted for tokens [first_logits, n_tokens) */
    float *logits;        /* [n_tokens - first_logits][vocab], written; NULL: none wanted */
    const struct tri_shown_rows *shown; /* NULL: none */
};

/* What a caller may watch; each may be NULL. Rows are those of the whole step, in run order. */
struct tri_taps {
    void (*residual)(void *arg, int64_t layer, const float *rows, int64_t n_rows, int64_t hidden);
    void (*routes)(void *arg, int64_t layer, const int32_t *experts, const float *weights,
                   int64_t n_rows, int64_t topk);
    /* After each layer; non-zero stops the step with TRI_CANCELLED: a chunk of a streamed model can
     * take minutes. */
    int (*layer)(void *arg, int64_t layer, int64_t layers);
    void *arg;
};

/*
 * One step over all runs. The sum of n_tokens may not exceed chunk_tokens; ids must be below
 * vocab; each state needs room (TRI_LIMIT otherwise, before anything is changed). On failure
 * after that the states of these runs are cleared: they could hold half a step. NaN or Inf in
 * asked-for logits is TRI_NUMERIC naming the first such run; the step is complete nevertheless
 * (all logits written, all states advanced), so that the other runs can go on.
 */
TRI_MUST_CHECK enum tri_status tri_model_forward(struct tri_model *model,
                                                 const struct tri_run *runs, int64_t n_runs,
                                                 const struct tri_taps *taps,
                                                 struct tri_error *err);

#endif
