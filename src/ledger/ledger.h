/*
 * What a model costs on one rank of a layout, in exact integers: weights held, state kept for each
 * sequence, operations and bytes moved per token, messages between ranks, and the workspace beside
 * them. No time in here (plan) and no guesses except where a line says "assumed".
 * Floor 2: arch + layout.
 *
 * Sources: K3 spec 9.1 to 9.3 (state, weights, AMD's figures), planner notes 1.2, 1.3, 2.1
 * (replicated parts, paging, draft columns, workspace). Pure functions; any thread.
 */
#ifndef TRI_LEDGER_LEDGER_H
#define TRI_LEDGER_LEDGER_H

#include "arch/arch.h"
#include "layout/layout.h"

/* ---- who is asked --------------------------------------------------------------------------- */

enum tri_cache_number { TRI_CACHE_BF16, TRI_CACHE_FP8, TRI_CACHE_FP8_DS_MLA, TRI_CACHE_F32 };

struct tri_ledger_ask {
    const struct tri_arch *arch;
    const struct tri_layout *layout;
    bool shard_all;     /* an engine that also divides what others replicate */
    bool vision, draft; /* hold the vision tower, the checkpoint's MTP layers */
    int experts_number; /* enum tri_number, or -1: as published */
    int dense_number;   /* of the other quantisable linears; -1: as published */
    bool trireme;       /* as Trireme's engine holds weights: groups of scales, f32 vectors, ... */
    bool stored_f32;    /* trireme: the checkpoint's matrices are f32, not bf16 */
    enum tri_cache_number cache;
    bool kda_bf16;    /* trireme: KDA states in bf16 (--kda-state), else f32; tails stay f32 */
    int draft_tokens; /* columns a speculative step adds to the KDA convolution tails */
};

/* ---- weights -------------------------------------------------------------------------------- */

struct tri_rank_weights {
    uint64_t split_bytes[TRI_LINES], replicated_bytes[TRI_LINES];
    uint64_t total_bytes, split_total_bytes, replicated_total_bytes;
    uint64_t padding_bytes; /* of total: vocabulary rows, heads or experts that do not divide */
};

/*
 * Refuses (TRI_ARG, with what would divide) when heads, key/value heads or an expert's inner width
 * cannot be cut `tp` ways. Vocabulary rows and whole experts are padded instead.
 */
TRI_MUST_CHECK enum tri_status tri_ledger_check(const struct tri_ledger_ask *ask,
                                                struct tri_error *err);

/* The fullest rank of pipeline stage `stage` (0-based). */
void tri_ledger_weights(const struct tri_ledger_ask *ask, int stage, struct tri_rank_weights *out);

/*
 * Everything but the routed experts as Trireme holds it on one rank, in RAM, and what of it a step
 * reads (without the embedding table, of which a step reads a row). ask->layout must be one rank;
 * ask->trireme is taken as set. Matrices are padded to cache lines in RAM, which is not counted.
 */
struct tri_trunk_bytes {
    uint64_t held_bytes, read_bytes;
};
void tri_ledger_trunk(const struct tri_ledger_ask *ask, struct tri_trunk_bytes *out);

/* ---- state ---------------------------------------------------------------------------------- */

struct tri_rank_state {
    uint64_t bytes_per_token; /* without windows: MLA latents and whole-context KV */
    uint64_t mla_bytes_per_token, kv_bytes_per_token;
    uint64_t window_bytes_per_token; /* of layers with a window: counts up to window_tokens */
    uint64_t window_tokens;
    uint64_t kda_bytes, conv_bytes; /* fixed for each sequence */
};

void tri_ledger_state(const struct tri_ledger_ask *ask, int stage, struct tri_rank_state *out);

/* Bytes one sequence of `tokens` keeps on the rank: latents and KV, window, KDA, convolution. */
uint64_t tri_state_bytes(const struct tri_rank_state *state, uint64_t tokens);
/* Only what grows with tokens. */
uint64_t tri_state_cache_bytes(const struct tri_rank_state *state, uint64_t tokens);

/* ---- operations and bytes read, of one stage's fullest rank -------------------------------- */

struct tri_rank_work {
    double dense_flops, expert_flops;   /* per token, 2 per multiply-add */
    double head_flops;                  /* lm_head: once for each sampled token */
    double dense_bytes, head_bytes;     /* read once a step, whatever the batch */
    double expert_bytes_each;           /* one distinct expert's share, summed over MoE layers */
    double expert_slots;                /* experts a rank holds per layer, in whole experts */
    double attn_flops_per_pair;         /* prefill: per (query, earlier token) pair */
    double attn_decode_flops_per_token; /* decode: per cached token of a sequence */
    double kda_flops_per_token;
    double kda_state_bytes; /* read and written for each sequence and step */
    int32_t layers, moe_layers;
};

void tri_ledger_work(const struct tri_ledger_ask *ask, int stage, struct tri_rank_work *out);

/* Distinct experts a batch of `tokens` touches when each picks topk of `experts` at random. */
double tri_distinct_experts(double experts, double topk, double tokens);

/* ---- communication, per step of `tokens` tokens, one stage --------------------------------- */

struct tri_rank_traffic {
    int32_t reduce_messages;   /* all-reduces over tp */
    double reduce_bytes;       /* payload of all of them together */
    int32_t exchange_messages; /* EP dispatch + combine, all-to-all over tp * dp */
    double exchange_bytes;     /* a rank sends, all of them together */
    int32_t send_messages;     /* to the next stage */
    double send_bytes;         /* hidden plus the AttnRes bank */
    int32_t context_messages;  /* DCP: queries and partial results, each MLA or KV layer */
    double context_bytes;
};

void tri_ledger_traffic(const struct tri_ledger_ask *ask, int stage, double tokens,
                        struct tri_rank_traffic *out);

/* ---- workspace ------------------------------------------------------------------------------ */

struct tri_workspace_ask {
    int64_t chunk_tokens, max_sequences;
    uint64_t graph_bytes, runtime_bytes, collective_bytes; /* assumed, by engine */
    double fragmentation;                                  /* share of the activations */
};

struct tri_rank_workspace {
    uint64_t attnres_bytes;    /* bank of one prefill chunk: chunk x bank x hidden x 2 */
    uint64_t moe_bytes;        /* permuted inputs and outputs of the routed experts */
    uint64_t activation_bytes; /* hidden, projections, logits */
    uint64_t graph_bytes, runtime_bytes, collective_bytes, fragmentation_bytes;
    uint64_t total_bytes; /* all of them */
};

void tri_ledger_workspace(const struct tri_ledger_ask *ask, const struct tri_workspace_ask *work,
                          struct tri_rank_workspace *out);

#endif
