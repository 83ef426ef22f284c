/*
 * All kernels of lanes/ under the names of one level. The including file defines TRI_LANES(op), the
 * function's name, and is compiled for its level (cmake/Kernels.cmake).
 */
#ifndef TRI_KERNELS_LANES_H
#define TRI_KERNELS_LANES_H

#include "kernels/kernels_priv.h"
#include "kernels/lanes/encode_lanes.h"
#include "kernels/lanes/kda_lanes.h"
#include "kernels/lanes/matmul_lanes.h"
#include "kernels/lanes/mla_lanes.h"
#include "kernels/lanes/moe_lanes.h"
#include "kernels/lanes/norm_lanes.h"
#include "kernels/lanes/quantise_lanes.h"

#if defined(TRI_LANES)
TRI_LANES_MATMUL(matmul_f32, TRI_DT_F32)
TRI_LANES_MATMUL(matmul_bf16, TRI_DT_BF16)
TRI_LANES_MATMUL(matmul_f16, TRI_DT_F16)
TRI_LANES_MATMUL(matmul_i8g64, TRI_DT_I8G64)
TRI_LANES_MATMUL(matmul_i4g32, TRI_DT_I4G32)
TRI_LANES_MATMUL(matmul_mxfp4, TRI_DT_MXFP4)
#endif

#endif
