/*
 * What any model costs to hold and to run, families beyond K3 included: a model as a list of
 * matrices grouped by layer, each with the rule by which an engine may cut it. Numbers only: no
 * names of tensors, no weights. The engine never includes this; the ledgers and the planner do.
 * Floor 1. kimi_k3 and kimi_linear come from tri_spec; every other family is read here.
 *
 * A tri_arch is immutable after opening and may be shared by any threads.
 */
#ifndef TRI_ARCH_ARCH_H
#define TRI_ARCH_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"

enum {
    TRI_ARCH_MAX_LAYERS = 1024,
    TRI_ARCH_MAX_CLASSES = 8,             /* different kinds of attention in one model */
    TRI_ARCH_MAX_CONFIG_BYTES = 16 << 20, /* of a config.json */
    TRI_ARCH_MAX_NAME = 64
};

/* The lines of the weight ledger, in the order they are shown. */
#define TRI_LINE_MAP(X)                                                                            \
    X(EXPERTS, "routed experts")                                                                   \
    X(LINEAR, "KDA projections")                                                                   \
    X(LINEAR_SMALL, "KDA conv, decay, norm")                                                       \
    X(MLA, "MLA projections")                                                                      \
    X(ATTENTION, "attention projections")                                                          \
    X(SHARED, "shared experts")                                                                    \
    X(DENSE, "dense MLP")                                                                          \
    X(LATENT, "latent down/up/norm")                                                               \
    X(ROUTER, "routers")                                                                           \
    X(EMBED, "embedding")                                                                          \
    X(HEAD, "lm_head")                                                                             \
    X(NORMS, "norms and AttnRes")                                                                  \
    X(VISION, "vision tower")                                                                      \
    X(DRAFT, "draft model")

enum tri_arch_line {
#define TRI_LINE_ENUM(name, text) TRI_LINE_##name,
    TRI_LINE_MAP(TRI_LINE_ENUM)
#undef TRI_LINE_ENUM
        TRI_LINES
};

const char *tri_arch_line_name(enum tri_arch_line line);

/* How a matrix may be divided among the ranks of one stage. */
enum tri_cut {
    TRI_CUT_NEVER,    /* every engine we know replicates it: norms, routers, q_a, latent down/up */
    TRI_CUT_HEADS,    /* by attention heads */
    TRI_CUT_KV_HEADS, /* by key/value heads; replicated once ranks outnumber them */
    TRI_CUT_INNER,    /* by the inner width of an MLP */
    TRI_CUT_EXPERTS,  /* whole experts (EP) or the inner width of each (TP) */
    TRI_CUT_VOCAB     /* by vocabulary rows, padded when they do not divide */
};

/*
 * Number formats of weights. Bits per value come in 64ths so that group scales are exact: MXFP4
 * 4.25 (one byte per 32), NVFP4 and INT4 4.5 (16 bits per 32, or a byte per 16).
 */
#define TRI_NUMBER_MAP(X)                                                                          \
    X(F32, "f32", 32 * 64)                                                                         \
    X(BF16, "bf16", 16 * 64)                                                                       \
    X(FP8, "fp8", 8 * 64)                                                                          \
    X(INT8, "int8", 8 * 64)                                                                        \
    X(INT4, "int4", 288)                                                                           \
    X(MXFP4, "mxfp4", 272)                                                                         \
    X(NVFP4, "nvfp4", 288)

enum tri_number {
#define TRI_NUMBER_ENUM(name, text, bits) TRI_NUM_##name,
    TRI_NUMBER_MAP(TRI_NUMBER_ENUM)
#undef TRI_NUMBER_ENUM
        TRI_NUMBERS
};

const char *tri_number_name(enum tri_number number);
uint32_t tri_number_bits64(enum tri_number number);
/* TRI_ARG names the formats there are. */
TRI_MUST_CHECK enum tri_status tri_number_parse(enum tri_number *out, const char *name,
                                                struct tri_error *err);

/*
 * How Trireme's engine keeps an item in RAM, whatever the checkpoint stores (model_jobs.c): in the
 * trunk's format; as stored, too small or too sensitive to quantise; as f32; or as half as many
 * f32, because two vectors are multiplied into one.
 */
enum tri_held { TRI_HELD_MATRIX, TRI_HELD_STORED, TRI_HELD_VECTOR, TRI_HELD_FOLDED };

/* A matrix, or several of one kind: `units` heads, experts or rows, of which a token uses `used`.
 */
struct tri_arch_item {
    uint8_t line;   /* enum tri_arch_line */
    uint8_t cut;    /* enum tri_cut */
    uint8_t number; /* enum tri_number: as published */
    bool quantised; /* follows a precision asked for; norms, routers and ends do not */
    bool scale;     /* block scales of the item before it: gone when that is re-encoded */
    bool unloaded;  /* in the checkpoint, held by no rank: the zero tail of A_log */
    uint8_t held;   /* enum tri_held */
    uint32_t cols;  /* values in a row, which groups of scales divide; 0 unknown */
    int16_t layer;  /* -1: embedding, head, final norm, vision */
    uint16_t bits64;
    uint32_t units, used;
    uint64_t params;
};

/* bits64 * params / 512, rounded up: exact for every published format. */
uint64_t tri_item_bytes(const struct tri_arch_item *item, uint32_t bits64);

enum tri_attn_family { TRI_FAMILY_GQA, TRI_FAMILY_MLA, TRI_FAMILY_KDA };

/* One kind of attention and what it keeps for each sequence. */
struct tri_arch_class {
    uint8_t family; /* enum tri_attn_family */
    int32_t heads, kv_heads, head_dim, v_dim;
    int32_t kv_rank, rope; /* MLA: latent and extra key values cached for each token */
    int32_t conv_taps;     /* KDA: short convolution over q, k and v */
    int32_t window_tokens; /* sliding window; 0 = the whole context */
    int32_t layers;        /* how many layers are of this class */
};

struct tri_arch {
    char name[TRI_ARCH_MAX_NAME];   /* what the person asked for */
    char family[TRI_ARCH_MAX_NAME]; /* model_type of the config */
    int32_t layers, hidden, vocab, context_tokens;
    int32_t experts, topk, expert_width, moe_inter; /* 0 experts: a dense model */
    int32_t bank_vectors;                           /* AttnRes: hidden vectors kept in flight */
    bool has_vision;
    bool tied; /* the head is the embedding table again */
    struct tri_arch_class classes[TRI_ARCH_MAX_CLASSES];
    int32_t class_count;
    uint8_t class_of[TRI_ARCH_MAX_LAYERS];
    bool moe[TRI_ARCH_MAX_LAYERS];
    struct tri_arch_item *items;
    int32_t item_count, item_cap;
    uint64_t params, bytes; /* everything, vision included, as published */
    uint64_t active_params; /* per token: with lm_head, without the embedding table and vision */
    uint64_t draft_params;  /* MTP layers in the checkpoint, loaded only for speculation */
};

/*
 * `name` is a preset (tri_arch_preset), a config.json, or a folder that holds one. Refuses what
 * it does not know: a family (TRI_UNSUPPORTED, with the list), a field of the config that is
 * neither used nor known to cost nothing (`lenient` turns that into a note), a missing number.
 * *out is closed with tri_arch_close.
 */
TRI_MUST_CHECK enum tri_status tri_arch_open(struct tri_arch **out, const char *name, bool lenient,
                                             const struct tri_notes *notes, struct tri_error *err);
/* The same from config text; `source` is told in errors. */
TRI_MUST_CHECK enum tri_status tri_arch_parse(struct tri_arch **out, const char *source,
                                              const char *json, size_t bytes, bool lenient,
                                              const struct tri_notes *notes, struct tri_error *err);
/* The same from a spec that is open already (kimi_k3, kimi_linear). */
struct tri_spec;
TRI_MUST_CHECK enum tri_status tri_arch_of_spec(struct tri_arch **out, const struct tri_spec *spec,
                                                const char *name, struct tri_error *err);
void tri_arch_close(struct tri_arch *arch);

/* The i-th preset's name, NULL past the end. */
const char *tri_arch_preset(int i);

#endif
