/* Shared inside the room: the reference functions, one file per family in ref/. */
#ifndef TRI_KERNELS_PRIV_H
#define TRI_KERNELS_PRIV_H

#include "kernels/kernels.h"

void tri__ref_matmul(const struct tri_matmul_args *a, int64_t row0, int64_t row1);
void tri__ref_rmsnorm(const struct tri_rmsnorm_args *a, int64_t t0, int64_t t1);
void tri__ref_mix(const struct tri_mix_args *a, int64_t t0, int64_t t1);
void tri__ref_conv(const struct tri_conv_args *a, int64_t c0, int64_t c1);
void tri__ref_kda_step(const struct tri_kda_args *a, int64_t h0, int64_t h1);
void tri__ref_kda_chunk(const struct tri_kda_args *a, int64_t h0, int64_t h1);
void tri__ref_gated_norm(const struct tri_gated_norm_args *a, int64_t t0, int64_t t1);
void tri__ref_mla(const struct tri_mla_args *a, int64_t i0, int64_t i1);
void tri__ref_glu(const struct tri_glu_args *a, int64_t i0, int64_t i1);
void tri__ref_gate(const struct tri_gate_args *a, int64_t i0, int64_t i1);
void tri__ref_router(const struct tri_router_args *a, int64_t t0, int64_t t1);

float tri__ref_sigmoid(float x);

#endif
