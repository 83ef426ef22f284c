/*
 * The expert store: routed experts as matrices, from all of them in RAM down to a few slots that
 * are refilled from the drive while a token is computed. Floor 3. Records are kept as published
 * (MXFP4 packed and scales, K3 spec 2.3), at most with their bytes in the order of tiles: nothing
 * is re-encoded, and the result of a step does not depend on the number of slots, the engine or the
 * timing.
 *
 * Threads: rounds by one thread (the forward pass), one at a time; views may be read by any.
 */
#ifndef TRI_EXPERTS_EXPERTS_H
#define TRI_EXPERTS_EXPERTS_H

#include "base/mem.h"
#include "os/aio.h"
#include "weights/weights.h"

struct tri_experts;

/*
 * Which resident expert makes room for a newcomer. CYCLE (the default): the chance of a use at the
 * layer's next turn, learnt while running from how long ago and how often each was used, turned
 * into an expected time to the next use that counts how far away the expert's layer is in the layer
 * cycle; the furthest goes, which may be the newcomer itself right after its use (peers 3.4).
 */
enum tri_expert_policy { TRI_EXPERTS_CYCLE, TRI_EXPERTS_LRU, TRI_EXPERTS_LFU };

enum tri_expert_io { TRI_EXPERTS_IO_AUTO, TRI_EXPERTS_IO_DIRECT, TRI_EXPERTS_IO_BUFFERED };

enum {
    TRI_EXPERTS_MIN_SLOTS = 2,
    TRI_EXPERTS_SLOT_SLACK_BYTES = 8192, /* most that alignment adds to a record in one piece */
    TRI_EXPERTS_DEPTH = 16,              /* reads in flight on each drive unless said */
    TRI_EXPERTS_MAX_DRIVES = TRI_WEIGHTS_MAX_FOLDERS + 1,
    TRI_EXPERTS_MAX_AHEAD = 64,    /* experts expected at once */
    TRI_EXPERTS_TIMEOUT_MS = 30000 /* a drive silent for so long ends the request */
};

struct tri_experts_options {
    int64_t first_layer, layers; /* the MoE layers among these are held */
    int64_t first_expert, experts;
    uint64_t most_bytes; /* of RAM for slots; 0: all that the budget has left */
    enum tri_expert_policy policy;
    enum tri_expert_io io; /* AUTO: direct for records of 256 KiB or more that do not all fit */
    enum tri_aio_engine engine;
    int depth;      /* of each drive; 0: TRI_EXPERTS_DEPTH */
    int timeout_ms; /* 0: TRI_EXPERTS_TIMEOUT_MS */
    bool tile; /* MXFP4 in tiles (fmt.h), when all experts are resident and their shape divides */
    /* Statistics are kept in <keep_folder>/.trireme across runs; NULL: nowhere. Only CYCLE uses
     * them, and only when not all experts are resident. */
    const char *keep_folder;
    struct tri_notes notes;
    struct tri_aio *aio; /* tests: a queue of their own, taken over; NULL: opened by engine */
    struct tri_progress progress;
};

/* w1 gate [inter][width], w3 up [inter][width], w2 down [width][inter]; data may be unaligned. */
struct tri_expert_view {
    struct tri_matrix w1, w2, w3;
};

/*
 * Opens the store over a checkpoint, which must outlive it, with slots on account experts. If every
 * expert fits they are all read now, else they come when they are needed. TRI_BUDGET when not even
 * TRI_EXPERTS_MIN_SLOTS fit.
 */
TRI_MUST_CHECK enum tri_status tri_experts_open(struct tri_experts **out,
                                                const struct tri_checkpoint *ckpt,
                                                const struct tri_spec *spec,
                                                const struct tri_experts_options *options,
                                                struct tri_budget *budget, struct tri_error *err);
void tri_experts_close(struct tri_experts *store);

/*
 * A round: one layer's step with the experts it needs. begin names them (n distinct ids, which must
 * stay in place until the round ends) and starts reading what is not in RAM. next hands out up to
 * `most` of them that can be computed with, resident ones first and then as they arrive: which[i]
 * is an index into ids. What a call handed out is leased until the next call, which releases it;
 * *n is 0 when all have been handed out and the round is over. A caller may not count on any order:
 * sums over experts must be made in an order of its own.
 *
 * A read error names layer, expert, file and offset, and ends the round with nothing leased; the
 * store stays usable.
 */
TRI_MUST_CHECK enum tri_status tri_experts_begin(struct tri_experts *store, int64_t layer,
                                                 const int32_t *ids, int64_t n,
                                                 struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri_experts_next(struct tri_experts *store, int64_t most,
                                                int32_t *which, struct tri_expert_view *views,
                                                int64_t *n, struct tri_error *err);

/*
 * Advice: the next round will probably be for `layer` and want these (at most
 * TRI_EXPERTS_MAX_AHEAD; copied). Once every miss of the present round has been asked for and a
 * drive would idle, they are read ahead. Call it before or within a round; no result depends on it.
 */
void tri_experts_expect(struct tri_experts *store, int64_t layer, const int32_t *ids, int64_t n);
/* Whether a round would find this expert in RAM. */
bool tri_experts_resident(const struct tri_experts *store, int64_t layer, int32_t expert);

/* One drive: the shards on one device. busy_ns: at least one read was in flight. */
struct tri_drive_stats {
    const char *file; /* a shard on it */
    uint64_t reads, read_bytes, busy_ns;
};

/*
 * Counters since opening, loading left out. wanted = reuse_hits + prefetch_hits + misses. A reuse
 * hit is an expert that was in RAM from an earlier use; one that a prefetch brought, or was
 * bringing, counts apart, whatever it saved. A prefetch is wasted when its expert is evicted
 * unused.
 */
struct tri_experts_stats {
    uint64_t slots, slot_bytes, records;    /* records: experts in the range */
    uint64_t record_bytes;                  /* of one expert on disk */
    const char *engine;                     /* "io_uring", "threads" */
    bool direct, all_resident, heats_found; /* heats_found: of an earlier run */
    uint64_t steps; /* forward passes: tokens of decoding, chunks of prompts */
    uint64_t rounds, wanted, reuse_hits, prefetch_hits, misses;
    uint64_t prefetches, wasted_prefetches, evictions;
    uint64_t read_bytes; /* what the drives delivered, alignment and wasted prefetches included */
    uint64_t wait_ns;    /* the forward pass stood still for a drive */
    uint64_t reading_ns; /* at least one read was in flight */
    int drives;
    struct tri_drive_stats drive[TRI_EXPERTS_MAX_DRIVES];
};
void tri_experts_read_stats(const struct tri_experts *store, struct tri_experts_stats *out);
uint64_t tri_experts_wait_ns(const struct tri_experts *store); /* stats.wait_ns alone */

/*
 * Routing traces: ids [tokens][rows][topk], rows being the MoE layers in order. replay plays one
 * against a policy with so many slots (experts), belady against the future itself: the bound. Hits
 * are counted from token `from_token` on, so that a cold start can be left out.
 */
struct tri_expert_trace {
    int64_t tokens, rows, topk, experts;
    const int32_t *ids;
};

struct tri_replay {
    uint64_t wanted, hits;
};

TRI_MUST_CHECK enum tri_status tri_experts_replay(const struct tri_expert_trace *trace,
                                                  int64_t slots, enum tri_expert_policy policy,
                                                  int64_t from_token, struct tri_replay *out,
                                                  struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri_experts_belady(const struct tri_expert_trace *trace,
                                                  int64_t slots, int64_t from_token,
                                                  struct tri_replay *out, struct tri_error *err);

#endif
