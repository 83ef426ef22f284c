/*
 * The inner loops, as a table of functions: the scalar reference first, faster variants in its
 * place where the CPU has them. A kernel takes a range of independent items and an args struct; it
 * does not allocate, start threads or read globals. Threading is the caller's: disjoint ranges may
 * run at the same time.
 *
 * Floor 2. Letters: T tokens (rows), D model width, H heads, K key width, V value width, R latent
 * rank, E experts, A active experts. All activations are float32, row-major.
 *
 * Numerics of the reference: dot products sum 16 lanes (column c in lane c mod 16, in order), then
 * the lanes pairwise; a row's result does not depend on T or on the range it is computed in. Norms,
 * softmax sums and the chunked KDA form sum in float64. No fused multiply-add.
 */
#ifndef TRI_KERNELS_KERNELS_H
#define TRI_KERNELS_KERNELS_H

#include <stdbool.h>
#include "fmt/fmt.h"

enum {
    TRI_KDA_TILE = 16,     /* tokens of one chunked tile: e^(16 * 5) still fits float32 */
    TRI_KDA_MAX_DIM = 256, /* head width the chunked form has room for on the stack */
    TRI_CONV_MAX_TAPS = 64
};

/* y[t][r] = sum over c of w[r][c] * x[t][c], for rows [row0, row1) of w and all T tokens. */
struct tri_matmul_args {
    const struct tri_matrix *w;
    const float *x;
    int64_t x_stride; /* floats from one token to the next */
    float *y;
    int64_t y_stride;
    int64_t tokens;
};

/* y[t] = x[t] / sqrt(mean(x[t]^2) + eps) * w; y may be x. Tokens [t0, t1). Spec 3.1. */
struct tri_rmsnorm_args {
    const float *x, *w;
    float *y;
    int64_t width, x_stride, y_stride;
    float eps;
};

/* AttnRes MIX (spec 3.2) of `n` source rows per token; y may be none of them. Tokens [t0, t1). */
struct tri_mix_args {
    const float *const *source; /* [n], each [T][width] */
    int64_t n;
    const float *w; /* norm weight * projection weight, folded */
    float *y;       /* [T][width] */
    int64_t width;
    float eps;
};

/*
 * Depthwise causal convolution and SiLU (spec 3.3 step 2) of one sequence, channels [c0, c1).
 * x [T][x_stride] projections; tail [taps-1][channels], oldest first, read and then left holding
 * the last taps-1 inputs; w [channels][taps], oldest tap first; y [T][y_stride].
 */
struct tri_conv_args {
    const float *x;
    float *tail;
    const float *w;
    float *y;
    int64_t tokens, channels, taps, x_stride, y_stride;
};

/*
 * KDA of one sequence, heads [h0, h1) (spec 3.3 steps 4 to 7).
 * q, k [T][H][K] and v [T][H][V] after convolution (q, k not yet normalised); z [T][H][K] the
 * gate's projection without dt_bias; b [T][H] before its sigmoid. state [H][K][V], updated.
 * o [T][H][V] written, before o_norm. K = V = dim.
 */
struct tri_kda_args {
    const float *q, *k, *v, *z, *b;
    const float *a;       /* [H] exp(A_log) */
    const float *dt_bias; /* [H][K] */
    float *state;
    float *o;
    int64_t tokens, heads, dim;
    bool bounded;     /* g = bound * sigmoid(a * z), else g = -a * softplus(z) */
    float gate_bound; /* -5 */
};

/* y[t][h] = rmsnorm(o[t][h]; w, eps) * sigmoid(g[t][h]) (spec 3.3 step 8). Tokens [t0, t1). */
struct tri_gated_norm_args {
    const float *o, *g, *w;
    float *y; /* may be o */
    int64_t heads, dim;
    float eps;
};

/*
 * MLA over the compressed cache of one sequence (spec 3.4, absorbed form). Items [i0, i1) are
 * (token, head) pairs, i = t * H + h. Token t sees cache rows 0 .. past + t.
 * ql [T][H][R] queries in latent space; q [T][H][nope + rope]; cache [past + T][R + rope].
 * ol [T][H][R] written: softmax-weighted sum of latents.
 */
struct tri_mla_args {
    const float *ql, *q, *cache;
    float *ol;
    int64_t tokens, past, heads, nope, rope, rank;
    float scale; /* (nope + rope)^-1/2 */
};

/* y = act(gate) * up (spec 3.7), values [i0, i1). linear_beta 0: up is not bounded.
 * situ false: SiLU(gate) * up. y may be gate or up. */
struct tri_glu_args {
    const float *gate, *up;
    float *y;
    bool situ;
    float beta, linear_beta;
};

/*
 * Router (spec 3.5): logits [T][E] -> the A experts with the largest sigmoid + bias, best first,
 * ties to the lower index; weights from the unbiased scores. Tokens [t0, t1). `scratch` [T][E].
 */
struct tri_router_args {
    const float *logits, *bias;
    float *scratch;
    int32_t *experts; /* [T][A] */
    float *weights;   /* [T][A] */
    int64_t n_experts, topk, groups, topk_groups;
    bool renormalize;
    float scale;
};

/* y *= sigmoid(g), values [i0, i1). */
struct tri_gate_args {
    const float *g;
    float *y;
};

#define TRI_KERNEL_MAP(X)                                                                          \
    X(rmsnorm)                                                                                     \
    X(mix)                                                                                         \
    X(conv)                                                                                        \
    X(kda_step)                                                                                    \
    X(kda_chunk)                                                                                   \
    X(gated_norm)                                                                                  \
    X(mla)                                                                                         \
    X(glu)                                                                                         \
    X(gate)                                                                                        \
    X(router)

struct tri_kernels {
    void (*matmul[TRI_DTYPES])(const struct tri_matmul_args *, int64_t row0, int64_t row1);
    void (*rmsnorm)(const struct tri_rmsnorm_args *, int64_t t0, int64_t t1);
    void (*mix)(const struct tri_mix_args *, int64_t t0, int64_t t1);
    void (*conv)(const struct tri_conv_args *, int64_t c0, int64_t c1);
    /* Token by token; any T. */
    void (*kda_step)(const struct tri_kda_args *, int64_t h0, int64_t h1);
    /* Tiles of TRI_KDA_TILE; needs bounded and dim <= TRI_KDA_MAX_DIM. Relative 1e-6 of step. */
    void (*kda_chunk)(const struct tri_kda_args *, int64_t h0, int64_t h1);
    void (*gated_norm)(const struct tri_gated_norm_args *, int64_t t0, int64_t t1);
    void (*mla)(const struct tri_mla_args *, int64_t i0, int64_t i1);
    void (*glu)(const struct tri_glu_args *, int64_t i0, int64_t i1);
    void (*gate)(const struct tri_gate_args *, int64_t i0, int64_t i1);
    void (*router)(const struct tri_router_args *, int64_t t0, int64_t t1);
};

/* The scalar reference: always complete, the truth that variants are tested against. */
const struct tri_kernels *tri_kernels_ref(void);
/* What runs on this machine. */
const struct tri_kernels *tri_kernels_best(void);

/* For `trireme info`: name of the variant of each operation in tri_kernels_best(). NULL past the
 * end. */
struct tri_kernel_name {
    const char *operation, *variant;
};
const struct tri_kernel_name *tri_kernels_list(int index);

#endif
