/*
 * Inside of the model room: the weights of each layer kind as this rank holds them, the scratch of
 * one step, and the parts of the forward pass that live in their own files.
 */
#ifndef TRI_MODEL_PRIV_H
#define TRI_MODEL_PRIV_H

#include "experts/experts.h"
#include "kernels/kernels.h"
#include "layout/layout.h"
#include "model/model.h"
#include "os/pool.h"
#include "weights/weights.h"

/* H, P are this rank's heads and heads * dim. Matrices are [out][in]. */
struct tri__kda {
    struct tri_matrix q, k, v;     /* [P][D] */
    struct tri_matrix f_a, f_b, b; /* [dim][D], [P][dim], [H][D] */
    struct tri_matrix g, g_a, g_b; /* [P][D], or [dim][D] and [P][dim] */
    struct tri_matrix o;           /* [D][P] */
    float *conv;                   /* [3][taps][P]: q, k, v */
    float *a, *dt_bias, *o_norm;   /* [H] exp(A_log), [P], [dim] */
};

struct tri__mla {
    struct tri_matrix q_a,
        q_b; /* [q_rank][D], [H*(nope+rope)][q_rank]; without q_rank only q_b, of D */
    struct tri_matrix kv_a;       /* [rank+rope][D] */
    struct tri_matrix w_uk, w_uv; /* [H*rank][nope] (transposed per head), [H*v][rank] */
    struct tri_matrix g, o;       /* [H*v][D], [D][H*v] */
    float *q_norm, *kv_norm;      /* [q_rank], [rank] */
};

struct tri__glu {
    struct tri_matrix gate, up, down; /* [inter][D], [inter][D], [D][inter] */
};

struct tri__moe {
    struct tri_matrix router;   /* [E][D] */
    float *bias;                /* [E] */
    struct tri_matrix down, up; /* [W][D], [D][W]; unused without a latent */
    float *norm;                /* [W] or NULL */
    struct tri__glu shared;
};

struct tri__layer {
    struct tri__kda kda; /* one of the two is filled */
    struct tri__mla mla;
    struct tri__glu dense; /* one of the two is filled */
    struct tri__moe moe;
    float *input_norm, *post_norm; /* [D] */
    float *attn_mix, *ffn_mix;     /* [D] norm weight * projection weight; NULL without AttnRes */
    int64_t state_index;           /* among this rank's layers of the same kind */
};

/* Floats handed out one after another from one block; reset for every phase of a layer. */
struct tri__arena {
    float *base;        /* NULL while only measuring */
    int64_t used, most; /* floats */
};
float *tri__take(struct tri__arena *arena, int64_t floats);

/* Rows that several matrices read; see model_products.c below. */
struct tri__input {
    const float *x;
    int64_t stride, cols, tokens;
    struct tri_qrows plain, paired;
    bool has_plain, has_paired;
};

struct tri_model {
    struct tri_spec spec;
    struct tri_slice slice;
    struct tri_kernels kernel_table; /* what this CPU runs best */
    const struct tri_kernels *kernels;
    struct tri_budget *budget;
    struct tri_pool *pool;
    struct tri_checkpoint *ckpt;
    struct tri_experts *experts;   /* NULL without MoE layers */
    struct tri__trunk *trunk;      /* owns every matrix and vector below */
    struct tri__layer *layer;      /* [spec.layers] */
    struct tri_matrix embed, head; /* embed.data NULL: rows are read from disk */
    float *final_norm, *out_mix;
    uint64_t fingerprint, whole_fingerprint; /* whole: whatever --layers says */

    enum tri_act act;
    struct tri_state_form form; /* of the states */
    int64_t chunk_tokens;
    int64_t lookahead;  /* experts of the next layer read ahead; 0: none */
    float cache_regret; /* 0: exact routing */
    void *scratch;
    uint64_t scratch_bytes;
    uint64_t counted_bytes; /* on account other: what is in plain memory */
    /* Rows of the step, [T][D]; bank [blocks][T][D]. */
    float *prefix, *h, *x, *out, *bank;
    struct tri__input head_in; /* the rows that lm_head reads */
    const float **sources;     /* [blocks + 1] for the mix */
    struct tri__arena arena;
    int32_t *ids; /* four integer tables of [T * topk], see model_moe.c */

    struct tri_profile *profile; /* NULL: not asked for */
    enum tri_time timing;        /* what the step does since timing_since_ns (0: no step) */
    uint64_t timing_since_ns;
};

/* One step: its runs and where each run's rows begin. */
struct tri__step {
    struct tri_model *m;
    const struct tri_run *runs;
    int64_t n_runs;
    const struct tri_taps *taps;
    int64_t tokens;
};

/* model_trunk.c: checks every pack, writes one; the model needs its shape and checkpoint only. */
TRI_MUST_CHECK enum tri_status tri__trunk_check_packs(struct tri_model *m, const char *folder,
                                                      const struct tri_progress *progress,
                                                      struct tri_packs_report *report,
                                                      struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri__trunk_pack(struct tri_model *m, const char *folder,
                                               const struct tri_model_options *options,
                                               struct tri_pack_report *report,
                                               struct tri_error *err);
/* `keep_bytes` of the budget stay free for sequences and experts. */
TRI_MUST_CHECK enum tri_status tri__trunk_open(struct tri_model *m, const char *folder,
                                               const struct tri_model_options *options,
                                               uint64_t keep_bytes, struct tri_error *err);
/* False: a drive still owes a read, and a thread that uses the model waits for it: nothing that
 * weights are read with may be freed. */
bool tri__trunk_close(struct tri_model *m);
/*
 * model_stream.c: brings unit `index` (a layer; spec.layers is the head) to RAM if it is not there.
 * Its matrices may be used until the next call.
 */
TRI_MUST_CHECK enum tri_status tri__trunk_need(struct tri_model *m, int64_t index,
                                               struct tri_error *err);

/* model_embed.c: a row of an embedding table that is on disk, as float32. One caller at a time. */
TRI_MUST_CHECK enum tri_status tri__rows_read(const struct tri_model *m, int64_t id, float *out,
                                              struct tri_error *err);

/* Whether a unit's matrices are in RAM whatever the step does. */
bool tri__trunk_has(const struct tri_model *m, int64_t index);

/* model_route.c. Both work on decoding steps only: for many tokens at once there is nothing to
 * gain. */
enum { TRI__AHEAD_TOKENS = 4, TRI__MAX_SWAPS = 2 };
struct tri__ahead {
    float *x, *logits; /* [T][D], [T][E] */
    struct tri__input in;
};
void tri__take_ahead(const struct tri_model *m, struct tri__arena *arena, struct tri__ahead *a);
/* Tells the store what the next MoE layer's router makes of this layer's x. */
void tri__look_ahead(struct tri_model *m, int64_t layer, const float *x, int64_t tokens,
                     struct tri__ahead *a);
/* After the router: at most TRI__MAX_SWAPS experts that are not in RAM make room for the next best
 * ones that are, if their gates are at most cache_regret smaller. Changes results. */
struct tri__routing {
    const float *logits;
    float *biased, *weights; /* as the router left them */
    int32_t *chosen;
};
void tri__lean_to_cache(const struct tri_model *m, int64_t layer, int64_t tokens,
                        const struct tri__routing *r);

/* model_profile.c: from here on the step's time belongs to `part`. Calling thread only. */
void tri__time(struct tri_model *m, enum tri_time part);
void tri__time_end(struct tri_model *m);
/* Of the time since the last tri__time, `ns` belonged to `part`. */
void tri__time_was(struct tri_model *m, enum tri_time part, uint64_t ns);

/*
 * model_products.c: products. An input is rows that several matrices read: float32, and quantised
 * on first use for those that take int8 activations. tri__take_input takes room for that from the
 * arena; tri__set_input points it at rows [tokens][cols], `stride` floats apart.
 */
void tri__take_input(const struct tri_model *m, struct tri__arena *arena, int64_t tokens,
                     int64_t cols, struct tri__input *in);
void tri__set_input(struct tri__input *in, const float *x, int64_t stride, int64_t tokens);

/* The quantised form that `dtype` takes, made on first use; q is NULL for exact products. */
struct tri_qrows tri__quantised(const struct tri_model *m, struct tri__input *in,
                                enum tri_dtype dtype);

/* y = W x, or with `up`: y = act(W x, up x), where y_up holds up x on the way. */
struct tri__product {
    const struct tri_matrix *w, *up;
    const float *x;
    int64_t x_stride;
    struct tri_qrows q; /* q.q NULL: exact */
    float *y, *y_up;
    int64_t y_stride, tokens;
};
void tri__product_of(const struct tri_model *m, struct tri__product *job, struct tri__input *in,
                     const struct tri_matrix *w, float *y, int64_t y_stride);
void tri__product_tokens(struct tri__product *job, int64_t first, int64_t tokens); /* only these */
/* Rows [row0, row1) on the calling thread. */
void tri__product_rows(const struct tri_model *m, const struct tri__product *job, int64_t row0,
                       int64_t row1);
/* All rows of all jobs, in one loop over the pool; jobs may not depend on each other. */
void tri__multiply(const struct tri_model *m, const struct tri__product *jobs, int64_t n);
/* The plain case: one matrix, y [T][w.rows]. */
void tri__linear(const struct tri_model *m, struct tri__input *in, const struct tri_matrix *w,
                 float *y);

/* model_ops.c: kernels spread over the pool. */
void tri__rmsnorm(const struct tri_model *m, const struct tri_rmsnorm_args *args, int64_t tokens);
void tri__mix(const struct tri_model *m, const struct tri_mix_args *args, int64_t tokens);
void tri__add(const struct tri_model *m, const float *x, float *y, int64_t values); /* y += x */
void tri__router(const struct tri_model *m, const struct tri_router_args *args, int64_t tokens);
void tri__combine(const struct tri_model *m, const struct tri_combine_args *args, int64_t tokens);
void tri__glu_rows(const struct tri_model *m, const float *gate, const float *up, float *y,
                   int64_t values);

/* A gated MLP in two loops: first the job of gate and up, then down over rows.gate. */
struct tri__glu_rows {
    float *gate, *up; /* [T][inter]; gate holds the activation after the job */
    struct tri__input in;
};
void tri__take_glu(const struct tri_model *m, struct tri__arena *arena, int64_t tokens,
                   int64_t inter, struct tri__glu_rows *out);
void tri__glu_product(const struct tri_model *m, struct tri__product *job, struct tri__input *in,
                      const struct tri__glu *w, const struct tri__glu_rows *rows);

/* Sums a partial result over the tensor ranks. One rank alone: nothing to do. */
void tri__sum_over_ranks(const struct tri_model *m, float *rows, int64_t values);

/* The sub-layers: normalised rows x [T][D] in, y [T][D] out, summed over ranks. */
void tri__kda_forward(struct tri__step *s, int64_t layer, const float *x, float *y);
void tri__mla_forward(struct tri__step *s, int64_t layer, const float *x, float *y);
TRI_MUST_CHECK enum tri_status tri__moe_forward(struct tri__step *s, int64_t layer, const float *x,
                                                float *y, struct tri_error *err);

/* Floats of arena each needs for `tokens` rows (the same code that hands them out). */
int64_t tri__kda_scratch(const struct tri_model *m, int64_t tokens);
int64_t tri__mla_scratch(const struct tri_model *m, int64_t tokens);
int64_t tri__moe_scratch(const struct tri_model *m, int64_t tokens);
int64_t tri__dense_scratch(const struct tri_model *m, int64_t tokens);

#endif
