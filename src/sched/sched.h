/*
 * Continuous batching: one thread owns the engine and steps it for all running jobs; jobs come from
 * a bounded queue by priority and age. Floor 5. It knows token ids, never text or sockets, and
 * never waits for whoever reads its tokens: a job whose reader is behind is left out of steps.
 *
 * Memory: a slot has the KDA part of a state and address space for a whole context. A job is
 * admitted when the room for its longest possible end (prompt and max_tokens) is to be had from
 * `room_bytes`; so it can always finish, and nothing is ever stopped for memory. One that must wait
 * for a slot or for room may send another back to the queue: a job that ranks after it (a higher
 * priority number; or a later one, or one whose reader is behind, when the first has waited for
 * TRI_SCHED_PATIENCE_S). The state of a job that makes room is a checkpoint; it goes on from there
 * with the same bits.
 *
 * Slots keep their state after a job as long as nobody else needs them, and checkpoints (states at
 * one token boundary) are taken where later prompts are likely to branch, in two tiers: RAM and
 * files of a folder. How much of a prompt is already computed is decided in one function (hit.c),
 * for slots and both tiers alike: all state kinds of a tri_state are at the same boundary, so a hit
 * can never be half a hit. Files are read and written by a second thread; steps go on meanwhile.
 *
 * Every call but open and close may come from any thread.
 */
#ifndef TRI_SCHED_SCHED_H
#define TRI_SCHED_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/mem.h"
#include "base/status.h"
#include "engine/engine.h"
#include "model/model.h"

enum {
    TRI_SCHED_MAX_SLOTS = 256,
    TRI_SCHED_MAX_QUEUE = 65536,
    TRI_SCHED_MAX_BORDERS = 8,         /* of one job */
    TRI_SCHED_RING_EVENTS = 1024,      /* told and not yet read, per job; then it pauses */
    TRI_SCHED_MAX_CHECKPOINTS = 16384, /* of both tiers */
    TRI_SCHED_MAX_FILES = 15360,       /* of these, in files */
    TRI_SCHED_MAX_WRITES = 8,          /* files waiting to be written; more are left out */
    TRI_SCHED_PATIENCE_S = 2,
    TRI_SCHED_LONG_STEP_S = 1 /* a step that has lasted longer may be given up in the middle */
};

struct tri_sched;
struct tri_job;

struct tri_sched_options {
    int64_t slots;          /* jobs that run together; 0: 4 */
    int64_t context_tokens; /* of each; prompt and answer together */
    int64_t queue;          /* jobs that wait; 0: 256 */
    uint64_t cache_bytes;   /* most for checkpoints in RAM; 0: none are kept */
    uint64_t room_bytes;    /* most for tokens of all slots; 0: a whole context for each */
    const char *folder;     /* of checkpoints that outlive the process; NULL: none */
    uint64_t folder_bytes;  /* most of it; 0: TRI_SCHED_FOLDER_BYTES */
    double along_s;         /* a long prompt: time to rebuild between checkpoints; 0: 30 */
};

#define TRI_SCHED_FOLDER_BYTES ((uint64_t)32 << 30)

/*
 * `engine` (growing, with room for `slots` sequences; its chunk at least `slots` +
 * TRI_MODEL_TILE_TOKENS), `model` and `budget` must outlive it. TRI_BUSY when another process has
 * the folder.
 */
TRI_MUST_CHECK enum tri_status tri_sched_open(struct tri_sched **out, struct tri_engine *engine,
                                              struct tri_model *model, struct tri_budget *budget,
                                              const struct tri_sched_options *options,
                                              struct tri_error *err);
/*
 * Ends every job (TRI_JOB_CANCELLED), then its thread. Jobs must still be released, in any order
 * with this: they can be read until then, and the last of them frees what they share. Engine, model
 * and budget are no longer needed when this returns.
 */
void tri_sched_close(struct tri_sched *sched);

int64_t tri_sched_context_tokens(const struct tri_sched *sched);

/* --- jobs ------------------------------------------------------------------------------------ */

struct tri_job_request {
    const int32_t *tokens; /* copied */
    int64_t n_tokens;
    struct tri_generate how; /* copied with its arrays */
    int64_t priority;        /* lower is sooner; equal: first come, first served */
    struct tri_salt salt;    /* states are shared only between equal salts */
    /* Ascending positions at which a later prompt may branch off: a checkpoint is taken at each
     * (rounded down to the chunk grid). Those up to head_tokens end what many prompts share. */
    int64_t borders[TRI_SCHED_MAX_BORDERS], head_tokens;
    size_t n_borders;
    bool profile; /* measure: tri_job_profile */
    /* Score the prompt (engine.h), with score_top ids beside each token, and ranks: tri_job_scores.
     * None of it is then taken from kept states. */
    bool score;
    int64_t score_top;
    /* Called when the job is freed, after its last use of how.constraint; NULL: nobody is told. A
     * submit that fails does not call it. Any thread, maybe with the scheduler's lock held. */
    void (*drop_constraint)(void *arg);
    /* News after a read that found none; never after the end event has been read or the job has
     * been released. From the scheduler's thread with its lock held: post it, do nothing else. */
    void (*wake)(void *arg);
    void *arg;
};

/*
 * Queues a job. TRI_BUSY when the queue is full, TRI_LIMIT when the prompt leaves no room in the
 * context, TRI_CANCELLED when the scheduler is closing.
 */
TRI_MUST_CHECK enum tri_status tri_job_submit(struct tri_job **out, struct tri_sched *sched,
                                              const struct tri_job_request *request,
                                              struct tri_error *err);

enum tri_job_end {
    TRI_JOB_RUNS,
    TRI_JOB_STOP,
    TRI_JOB_LENGTH,
    TRI_JOB_CONTEXT,
    TRI_JOB_ERROR,
    TRI_JOB_CANCELLED
};

/* One token, or the end, which comes exactly once and last (with its token, if it has one). */
struct tri_job_event {
    int32_t token; /* -1: none */
    enum tri_job_end end;
    struct tri_logprob chosen, top[TRI_ENGINE_MAX_TOP_LOGPROBS];
    int64_t n_top;
};

/* What is known of a job; times in seconds of CLOCK_MONOTONIC, 0 when it has not happened. */
struct tri_job_facts {
    int64_t prompt_tokens, cached_tokens, computed_tokens;
    double submitted_s, admitted_s, first_token_s, ended_s;
};

/*
 * With request.profile: the steps that this job took part in. Steps are shared with whatever ran
 * beside it: times and the store's counters are of whole steps; rows and chosen experts its own.
 */
struct tri_job_profile {
    struct tri_profile time;
    uint64_t rows, rows_of_steps;
    uint64_t expert_hits, expert_misses, read_bytes, wait_ns;
    int64_t layers, experts;
    const uint32_t
        *chosen; /* [layers][experts], how often; NULL: none. Until the job is released */
};
/* Complete once the job's end has been read. */
void tri_job_profile(struct tri_job *job, struct tri_job_profile *out);

/* Complete once the job's first event has been read, unless that is a failure; valid until the
 * job is released. NULL: not asked for. */
const struct tri_scores *tri_job_scores(const struct tri_job *job);

/* Takes the next event. False: none now; `wake` will tell. */
bool tri_job_read(struct tri_job *job, struct tri_job_event *out);
void tri_job_facts(struct tri_job *job, struct tri_job_facts *out);
/* Asks the job to end: after the layer that is computed now when the step is a long one and for
 * nobody else, else after the step. Its end event still comes. */
void tri_job_cancel(struct tri_job *job);
/* Why a job ended by error; valid until it is released. TRI_LIMIT: what it asked for allows
 * nothing. */
const struct tri_error *tri_job_error(const struct tri_job *job);
/* The caller is done with the job: cancels it if it still runs. NULL is fine. */
void tri_job_release(struct tri_job *job);

/* Where a hit was found. */
enum tri_tier { TRI_TIER_SLOT, TRI_TIER_RAM, TRI_TIER_DISK, TRI_TIERS };

/* --- numbers --------------------------------------------------------------------------------- */

/* Rows of a step, counted in vLLM's buckets; the last is for more. */
#define TRI_SCHED_STEP_BOUNDS                                                                      \
    {                                                                                              \
        1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384                             \
    }
enum { TRI_SCHED_STEP_BUCKETS = 13 };

struct tri_sched_stats {
    int64_t running, waiting, slots, context_tokens;
    int64_t held_tokens; /* in all slots, running or kept */
    uint64_t submitted, finished, rejected, failed;
    uint64_t query_tokens, hit_tokens; /* prompts admitted, and what of them was already computed */
    uint64_t hit_tokens_of[TRI_TIERS];
    uint64_t sampled_tokens, preempted;
    uint64_t step_tokens[TRI_SCHED_STEP_BUCKETS + 1];
    double last_step_s;                   /* CLOCK_MONOTONIC; 0: none yet */
    uint64_t room_bytes, room_used_bytes; /* for tokens of the slots */
    struct {
        int64_t checkpoints;
        uint64_t bytes, taken, evicted;
    } ram, disk;
    uint64_t disk_written_bytes, disk_read_bytes;
    uint64_t disk_failures; /* files that could not be written */
    uint64_t disk_left_out; /* not written: too many were waiting */
    uint64_t disk_damaged;  /* files removed because they could not be believed */
    struct tri_engine_counters engine;
    struct tri_experts_stats experts;
};
void tri_sched_read_stats(struct tri_sched *sched, struct tri_sched_stats *out);

#endif
