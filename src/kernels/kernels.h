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
 * the lanes pairwise; a row's result does not depend on T or on the range it is computed in (true
 * of every variant). Norms, softmax sums and the chunked KDA form sum in float64. No fused
 * multiply-add. Variants fuse, and sum in float32 lanes; their tolerances are in variants.def.
 */
#ifndef TRI_KERNELS_KERNELS_H
#define TRI_KERNELS_KERNELS_H

#include <stdbool.h>
#include "fmt/fmt.h"
#include "os/cpu.h"

enum {
    TRI_KDA_TILE = 16,     /* tokens of one chunked tile: e^(16 * 5) still fits float32 */
    TRI_KDA_MAX_DIM = 256, /* head width: chunks and BF16 states have room for it on the stack */
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
 * the last taps-1 inputs; w [taps][channels], oldest tap first; y [T][y_stride].
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
 *
 * A BF16 state needs dim <= TRI_KDA_MAX_DIM. It is widened exactly, computed with in float32 (o
 * comes from the state before it is rounded), and rounded to the nearest, ties to even: by kda_step
 * after every token, by kda_chunk once, at the end of the call.
 */
struct tri_kda_args {
    const float *q, *k, *v, *z, *b;
    const float *a;       /* [H] exp(A_log) */
    const float *dt_bias; /* [H][K] */
    void *state;
    enum tri_dtype state_dtype; /* F32 or BF16 */
    float *o;
    int64_t tokens, heads, dim;
    bool bounded;     /* g = bound * sigmoid(a * z), else g = -a * softplus(z) */
    float gate_bound; /* -5 */
};

/* y[t][h] = rmsnorm(o[t][h]; w, eps) * sigmoid(g[t][h]) (spec 3.3 step 8). Heads [h0, h1). */
struct tri_gated_norm_args {
    const float *o, *g, *w;
    float *y; /* may be o */
    int64_t tokens, heads, dim;
    float eps;
};

/*
 * MLA over the compressed cache of one sequence (spec 3.4, absorbed form), heads [h0, h1), all T
 * tokens. Token t sees cache rows 0 .. past + t.
 * ql [T][H][R] queries in latent space; q [T][H][nope + rope]; cache [past + T][R + rope].
 * ol [T][H][R] written: softmax-weighted sum of latents.
 */
struct tri_mla_args {
    const float *ql, *q;
    const void *cache;
    enum tri_dtype cache_dtype; /* F32, BF16 or E4M3 */
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

/*
 * Rows of activations as int8, quantised once and shared by every matrix that reads them. Group g
 * of a row is columns [32g, 32g + 32): value = q * scale[g], q the nearest integer (ties to even)
 * to x * (127 / amax), scale = amax / 127. A group with NaN or Inf has scale NaN and q 0; one whose
 * amax is below TRI_Q_LEAST (where 127 / amax could overflow) has scale 0 and q 0.
 *   q      [T][q_stride] int8; columns beyond `cols` are 0 up to q_stride, a multiple of 64
 *   scale  [T][q_stride / 32] f32
 *   start  [T][q_stride / 32] int32: -bias times the sum of the group's q, which is what an integer
 *          dot product with weights made unsigned by adding `bias` starts from
 * `paired`: within each 8 columns the order is 0 2 4 6 1 3 5 7, as nibbles lie in their bytes, and
 * the bias is 12, else 128. The formats of two to a byte (I4G32, MXFP4) need it set, I8G64 not.
 */
enum { TRI_Q_BIAS = 128, TRI_Q_BIAS_PAIRED = 12 };

struct tri_qrows {
    int8_t *q;
    float *scale;
    int32_t *start;
    int64_t q_stride;
    bool paired;
};

static inline int64_t tri_q_stride(int64_t cols)
{
    return (cols + 63) & ~(int64_t)63;
}

/* Quantises tokens [t0, t1) of x. EXACT: every variant gives the same bits. */
struct tri_quantise_args {
    const float *x;
    int64_t x_stride, cols;
    struct tri_qrows out;
};

/*
 * y[t][r] as tri_matmul_args, with the activations of `x` (whose columns are w->cols). Rows
 * [row0, row1). EXACT: for each group in order, the integer dot product is added by
 * fma(dot, weight scale * activation scale, sum); thus no result depends on variant, T or range.
 * MXFP4: values doubled, scale halved; scale bytes 0 and 1 count as 0. Tiled weights (fmt.h) only
 * where tri_kernels_tiles() says so.
 */
struct tri_qmatmul_args {
    const struct tri_matrix *w;
    struct tri_qrows x;
    float *y;
    int64_t y_stride, tokens;
};
enum { TRI_QTILE_ROWS = TRI_TILE_ROWS, TRI_Q_GROUP = 32 };
#define TRI_Q_LEAST 0x1p-100f

/* y += x, values [i0, i1). */
struct tri_add_args {
    const float *x;
    float *y;
};

/*
 * sum[t] = the token's experts added up in router order: weight * y[place], fused multiply-adds
 * from 0. place [T][A] names rows of y; a negative one (another rank's) is left out. Tokens [t0,
 * t1).
 */
struct tri_combine_args {
    const float *y; /* [rows][width] */
    const int32_t *place;
    const float *weights; /* [T][A] */
    float *sum;           /* [T][width] */
    int64_t topk, width;
};

/*
 * Rows of a plain format (as they lie in a file: packed, at any byte) to the trunk format `to`, bit
 * for bit tri_row_decode and tri_row_encode (fmt.h). Rows [row0, row1).
 */
struct tri_encode_args {
    const void *from;
    enum tri_dtype from_dtype, to;
    int64_t cols;
    void *data, *scales; /* packed rows; scales NULL for plain formats */
};

/* Operation and its args struct. Each is void (*)(const struct args *, int64_t begin, end). */
#define TRI_KERNEL_MAP(X)                                                                          \
    X(matmul_f32, tri_matmul_args)                                                                 \
    X(matmul_bf16, tri_matmul_args)                                                                \
    X(matmul_f16, tri_matmul_args)                                                                 \
    X(matmul_i8g64, tri_matmul_args)                                                               \
    X(matmul_i4g32, tri_matmul_args)                                                               \
    X(matmul_mxfp4, tri_matmul_args)                                                               \
    X(quantise, tri_quantise_args)                                                                 \
    X(qmatmul_i8g64, tri_qmatmul_args)                                                             \
    X(qmatmul_i4g32, tri_qmatmul_args)                                                             \
    X(qmatmul_mxfp4, tri_qmatmul_args)                                                             \
    X(rmsnorm, tri_rmsnorm_args)                                                                   \
    X(mix, tri_mix_args)                                                                           \
    X(conv, tri_conv_args)                                                                         \
    X(kda_step, tri_kda_args)                                                                      \
    X(kda_chunk, tri_kda_args)                                                                     \
    X(gated_norm, tri_gated_norm_args)                                                             \
    X(mla, tri_mla_args)                                                                           \
    X(glu, tri_glu_args)                                                                           \
    X(gate, tri_gate_args)                                                                         \
    X(router, tri_router_args)                                                                     \
    X(add, tri_add_args)                                                                           \
    X(combine, tri_combine_args)                                                                   \
    X(encode, tri_encode_args)

/* kda_step: token by token, any T. kda_chunk: tiles of TRI_KDA_TILE; needs bounded, a bound of -5
 * or nearer to 0, and dim <= TRI_KDA_MAX_DIM. */
struct tri_kernels {
#define TRI_KERNEL_FIELD(op, args) void (*op)(const struct args *, int64_t begin, int64_t end);
    TRI_KERNEL_MAP(TRI_KERNEL_FIELD)
#undef TRI_KERNEL_FIELD
};

typedef void (*tri_matmul_fn)(const struct tri_matmul_args *, int64_t row0, int64_t row1);
typedef void (*tri_qmatmul_fn)(const struct tri_qmatmul_args *, int64_t row0, int64_t row1);

/* The kernel for a weight format; NULL where there is none (plain formats have no qmatmul). */
tri_matmul_fn tri_kernels_matmul(const struct tri_kernels *k, enum tri_dtype dtype);
tri_qmatmul_fn tri_kernels_qmatmul(const struct tri_kernels *k, enum tri_dtype dtype);
/* Whether that qmatmul takes tiled weights too, and is faster with them. */
bool tri_kernels_tiles(const struct tri_kernels *k, enum tri_dtype dtype);

/* The scalar reference: always complete, the truth that variants are tested against. */
const struct tri_kernels *tri_kernels_ref(void);
/* The best variant of each operation among the levels `isas` (os/cpu.h, tri_cpu_isas). */
void tri_kernels_fill(struct tri_kernels *out, unsigned isas);

/* For `trireme info`: the variant of each operation that runs on this machine. NULL past the end.
 */
struct tri_kernel_name {
    const char *operation, *variant;
};
const struct tri_kernel_name *tri_kernels_list(int index);

/* For tests and benches: every compiled variant with its level. NULL past the end. */
struct tri_kernel_variant {
    struct tri_kernel_name name;
    int isa;                                  /* enum tri_isa */
    int tolerance;                            /* as in variants.def */
    void (*put)(struct tri_kernels *kernels); /* puts it into a table */
};
const struct tri_kernel_variant *tri_kernels_variant(int index);

#endif
