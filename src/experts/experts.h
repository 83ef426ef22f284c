/*
 * The expert store: routed experts as matrices, leased while a layer computes with them. Floor 3.
 * A lease keeps an expert's bytes in place; what is not leased may be replaced. Records are kept
 * exactly as published (MXFP4 packed and scales, K3 spec 2.3): nothing is re-encoded.
 *
 * Threads: rounds by one thread (the forward pass), one at a time; views may be read by any.
 */
#ifndef TRI_EXPERTS_EXPERTS_H
#define TRI_EXPERTS_EXPERTS_H

#include "base/mem.h"
#include "os/pool.h"
#include "weights/weights.h"

struct tri_experts;

struct tri_experts_options {
    int64_t first_layer, layers; /* the MoE layers among these are held */
    int64_t first_expert, experts;
    struct tri_progress progress;
};

/* w1 gate [inter][width], w3 up [inter][width], w2 down [width][inter]. */
struct tri_expert_view {
    struct tri_matrix w1, w2, w3;
};

/*
 * Opens the store over a checkpoint, which must outlive it. All experts of the range are brought to
 * RAM (account experts), reads spread over the pool. TRI_BUDGET when they do not fit.
 */
TRI_MUST_CHECK enum tri_status
tri_experts_open(struct tri_experts **out, const struct tri_checkpoint *ckpt,
                 const struct tri_spec *spec, const struct tri_experts_options *options,
                 struct tri_pool *pool, struct tri_budget *budget, struct tri_error *err);
void tri_experts_close(struct tri_experts *store); /* not within a round */

/* Bytes that the experts of these options take in RAM. */
TRI_MUST_CHECK enum tri_status tri_experts_cost(const struct tri_checkpoint *ckpt,
                                                const struct tri_spec *spec,
                                                const struct tri_experts_options *options,
                                                uint64_t *bytes, struct tri_error *err);

/*
 * A round: one layer's step with the experts it needs. begin names them (n distinct ids, which must
 * stay in place until the round ends) and starts reading what is not in RAM. next hands out up to
 * `most` of them that can be computed with, resident ones first and then as they arrive: which[i]
 * is an index into ids. What a call handed out is leased until the next call, which releases it;
 * *n is 0 when all have been handed out and the round is over. A caller may not count on any order:
 * sums over experts must be made in an order of its own.
 *
 * A read error names layer, expert, file and offset, and ends the round with nothing leased.
 */
TRI_MUST_CHECK enum tri_status tri_experts_begin(struct tri_experts *store, int64_t layer,
                                                 const int32_t *ids, int64_t n,
                                                 struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri_experts_next(struct tri_experts *store, int64_t most,
                                                int32_t *which, struct tri_expert_view *views,
                                                int64_t *n, struct tri_error *err);

#endif
