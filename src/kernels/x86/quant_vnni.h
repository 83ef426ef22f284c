/* Products of one token, and of some with tiled weights, which quant_vnni.c and quant_amx.c hand
 * over. */
#ifndef TRI_KERNELS_QUANT_VNNI_H
#define TRI_KERNELS_QUANT_VNNI_H

#include "kernels/kernels.h"

void tri__vnni_one_i8g64(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1);
void tri__vnni_one_i4g32(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1);
void tri__vnni_one_mxfp4(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1);

/* So many need blocks of activations (quant_blocks.h); fewer meet tiled weights as they are. */
enum { TILED_TOKENS = 64 };

void tri__vnni_tiled_i8g64(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1);
void tri__vnni_tiled_mxfp4(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1);

/* On AMX: rows of up to 8192 columns. */
bool tri__amx_tiled_takes(const struct tri_qmatmul_args *a);
void tri__amx_tiled_i8g64(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1);
void tri__amx_tiled_mxfp4(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1);

#endif
