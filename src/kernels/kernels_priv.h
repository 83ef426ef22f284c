/* Shared inside the room: the reference functions, one file per family in ref/, and the variants of
 * variants.def. */
#ifndef TRI_KERNELS_PRIV_H
#define TRI_KERNELS_PRIV_H

#include "kernels/kernels.h"

void tri__ref_matmul(const struct tri_matmul_args *a, int64_t row0, int64_t row1);
void tri__ref_quantise(const struct tri_quantise_args *a, int64_t t0, int64_t t1);
void tri__ref_qmatmul(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1);
void tri__ref_rmsnorm(const struct tri_rmsnorm_args *a, int64_t t0, int64_t t1);
void tri__ref_mix(const struct tri_mix_args *a, int64_t t0, int64_t t1);
void tri__ref_conv(const struct tri_conv_args *a, int64_t c0, int64_t c1);
void tri__ref_kda_step(const struct tri_kda_args *a, int64_t h0, int64_t h1);
void tri__ref_kda_chunk(const struct tri_kda_args *a, int64_t h0, int64_t h1);
void tri__ref_gated_norm(const struct tri_gated_norm_args *a, int64_t h0, int64_t h1);
void tri__ref_mla(const struct tri_mla_args *a, int64_t h0, int64_t h1);
void tri__ref_glu(const struct tri_glu_args *a, int64_t i0, int64_t i1);
void tri__ref_gate(const struct tri_gate_args *a, int64_t i0, int64_t i1);
void tri__ref_add(const struct tri_add_args *a, int64_t i0, int64_t i1);
void tri__ref_combine(const struct tri_combine_args *a, int64_t t0, int64_t t1);
void tri__ref_router(const struct tri_router_args *a, int64_t t0, int64_t t1);
void tri__ref_encode(const struct tri_encode_args *a, int64_t row0, int64_t row1);

float tri__ref_sigmoid(float x);

/* The args struct of each operation under a name that the variant list can build. */
#define TRI_KERNEL_ARGS(op, args) typedef struct args tri__args_##op;
TRI_KERNEL_MAP(TRI_KERNEL_ARGS)
#undef TRI_KERNEL_ARGS

#define TRI_VARIANT(op, level, units)                                                              \
    void tri__##level##_##op(const tri__args_##op *a, int64_t begin, int64_t end);
#include "kernels/variants.def"
#undef TRI_VARIANT

#endif
