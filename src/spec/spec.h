/*
 * What a model is: config.json read, checked against named limits, and turned into shapes, layer
 * kinds and the list of every tensor the checkpoint must hold. Runs nothing, reads no weights.
 * Floor 1. Source of every name, default and formula: K3 spec sections 1, 2, 9.2.
 *
 * Everything that is a number of the model comes from config.json; nothing branches on its size.
 * A tri_spec is immutable after loading and may be shared by any threads.
 */
#ifndef TRI_SPEC_SPEC_H
#define TRI_SPEC_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"

/* Limits of a config: above any plausible model, below what could overflow or exhaust us. */
enum {
    TRI_SPEC_MAX_LAYERS = 1024,
    TRI_SPEC_MAX_WIDTH = 1 << 20, /* hidden, inner sizes, heads * head_dim, vocabulary rows << 4 */
    TRI_SPEC_MAX_VOCAB = 1 << 24,
    TRI_SPEC_MAX_EXPERTS = 65536,
    TRI_SPEC_MAX_TOPK = 1024,
    TRI_SPEC_MAX_CONV = 64,
    TRI_SPEC_MAX_TENSORS = 1 << 24,   /* of the whole checkpoint; K3 has 497,220 */
    TRI_SPEC_MAX_PARAMETER_BITS = 56, /* fewer than 2^56 parameters; K3 has 2^41.3 */
    TRI_SPEC_MAX_CONFIG_BYTES = 16 << 20
};

enum tri_attn_kind { TRI_ATTN_KDA, TRI_ATTN_MLA };
enum tri_ffn_kind { TRI_FFN_DENSE, TRI_FFN_MOE };

struct tri_layer_spec {
    uint8_t attn; /* enum tri_attn_kind */
    uint8_t ffn;  /* enum tri_ffn_kind */
};

/* The vision tower and projector: only what the shapes of their tensors need. */
struct tri_vision_spec {
    int64_t layers, hidden, inter, qkv, patch, pos_rows, pos_cols;
    int64_t merged, text_hidden; /* projector: merged -> merged -> text_hidden */
};

struct tri_spec {
    char model_type[64];                  /* outer type: "kimi_k3" or "kimi_linear" */
    int64_t vocab, hidden, layers, inter; /* inter: dense FFN width */
    int64_t context_tokens;               /* max_position_embeddings */
    struct tri_layer_spec layer[TRI_SPEC_MAX_LAYERS];
    int64_t kda_layers, mla_layers, dense_layers, moe_layers; /* counts */

    /* MLA */
    int64_t heads, q_rank, kv_rank, nope, rope, v_dim; /* q_rank 0: one q_proj (q_lora null) */
    bool mla_gate;
    float latent_eps; /* 1e-6 always: spec 3.4 */

    /* KDA: P = kda_heads * kda_dim */
    int64_t kda_heads, kda_dim, conv_taps;
    bool kda_full_gate;    /* g_proj; else g_a_proj, g_b_proj of rank kda_dim */
    bool kda_bounded_gate; /* gate_lower_bound given; else the softplus gate of Kimi-Linear */
    float kda_gate_bound;  /* -5 */

    /* AttnRes; 0 = plain residuals */
    int64_t attn_res_block;

    /* MoE */
    int64_t experts, topk, shared_experts, moe_inter;
    int64_t latent; /* routed_expert_hidden_size; 0 = experts see the full hidden */
    bool latent_norm, renormalize;
    float routed_scale;
    int64_t expert_groups, topk_groups;
    bool experts_packed; /* config says MXFP4; what is on disk decides (weights) */

    float rms_eps;
    bool situ;              /* else SiLU-GLU */
    float situ_beta;        /* 1.0 when absent or 0 */
    float situ_linear_beta; /* 0 = "up" not bounded */
    bool tied_embeddings;
    bool has_vision; /* vision_config present: its tensors are expected, not run */
    struct tri_vision_spec vision;
    int64_t bos_id, eos_id, pad_id; /* -1 when absent */
};

/*
 * Reads MODEL/config.json, or a config file itself (.gz too). Notes tell what was ignored or
 * defaulted. Refusals are one line naming key, value and what is allowed: TRI_FORMAT for a value
 * that makes no sense, TRI_UNSUPPORTED for a feature that this program does not have.
 */
TRI_MUST_CHECK enum tri_status tri_spec_load(struct tri_spec *out, const char *config_path,
                                             const struct tri_notes *notes, struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri_spec_parse(struct tri_spec *out, const char *name,
                                              const char *json, size_t json_bytes,
                                              const struct tri_notes *notes, struct tri_error *err);

/*
 * A whole text file, gzipped or not, of at most max_bytes (after unpacking); *out ends in NUL and
 * is freed with tri_free. Here because indexes and configs are kept as .gz.
 */
TRI_MUST_CHECK enum tri_status tri_spec_read_text(char **out, size_t *out_bytes, const char *path,
                                                  size_t max_bytes, struct tri_error *err);

/* Width of an expert's input and output: the latent, or the hidden when there is none. */
static inline int64_t tri_spec_expert_width(const struct tri_spec *s)
{
    return s->latent ? s->latent : s->hidden;
}

/* Parts, in the order of K3 spec 2.4's table. */
#define TRI_PART_MAP(X)                                                                            \
    X(EXPERTS, "routed experts")                                                                   \
    X(KDA, "KDA attention")                                                                        \
    X(SHARED, "shared experts")                                                                    \
    X(MLA, "MLA attention")                                                                        \
    X(LATENT, "latent down/up/norm")                                                               \
    X(EMBED, "embed_tokens")                                                                       \
    X(HEAD, "lm_head")                                                                             \
    X(DENSE, "dense MLP")                                                                          \
    X(ROUTER, "routers")                                                                           \
    X(VISION, "vision tower")                                                                      \
    X(PROJECTOR, "projector")                                                                      \
    X(NORMS, "layer norms and res proj")                                                           \
    X(FINAL, "final norm and output AttnRes")

enum tri_part {
#define TRI_PART_ENUM(name, text) TRI_PART_##name,
    TRI_PART_MAP(TRI_PART_ENUM)
#undef TRI_PART_ENUM
        TRI_PARTS
};

const char *tri_part_name(enum tri_part part);

/* One expected tensor. `name` has no "language_model." prefix (vision names never have one). */
struct tri_tensor_spec {
    char name[160];
    enum tri_part part;
    int32_t layer, expert; /* -1 when it belongs to none */
    int32_t rank;          /* number of dimensions, 1..4 */
    int64_t shape[4];      /* as stored, outermost first */
    const char *dtype;     /* "BF16", "F32", "U8": as published */
    uint64_t parameters;   /* values it stands for: a packed U8 counts 2 per byte, a scale 0 */
    uint64_t bytes;
};

/*
 * Calls `each` for every tensor of the checkpoint: layers in order (as the published shards hold
 * them), then the model's ends, projector, vision tower; stops at the first non-zero return and
 * gives it back. 497,220 calls for K3: keep it cheap.
 */
int tri_spec_tensors(const struct tri_spec *spec,
                     int (*each)(void *arg, const struct tri_tensor_spec *tensor), void *arg);

struct tri_part_total {
    uint64_t parameters, bytes;
};

/* Sums of the expected tensors. Active: per token, with lm_head, without the embedding table. */
struct tri_spec_totals {
    struct tri_part_total part[TRI_PARTS];
    uint64_t tensors, parameters, bytes, active_parameters;
    uint64_t expert_bytes; /* one routed expert, six tensors */
};

void tri_spec_sum(const struct tri_spec *spec, struct tri_spec_totals *out);

#endif
