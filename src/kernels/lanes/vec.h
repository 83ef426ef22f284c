/*
 * Sixteen lanes of float32 or int32, in the same words for every instruction set: the kernels of
 * lanes/ are written once in them and compiled once per level (x86/lanes_avx2.c and so on). Sixteen
 * because the reference sums in sixteen lanes. Here: the words, and the choice by target.
 *
 *   v16 floats, w16 ints    v16_load, v16_store     any alignment
 *   v16_part(p, n)          n < 16 values, the other lanes 0; v16_store_part
 *   v16_bf16, v16_f16, v16_i8(p)                    16 stored values, exact
 *   v16_nibbles(p, table)   16 nibbles of 8 bytes, low first, through an int8 table, exact
 *   v16_fma(a, b, c)        a * b + c, one rounding
 *   v16_sum, v16_top        of all lanes, halves folded: lane j with j + 8, then 4, 2, 1
 *   v16_sums8(p, v[8])      v16_sum of each of eight, the same bits
 *   w16_u8(p)               16 unsigned bytes
 *   w16_near(v)             nearest int, ties to even; |v| < 2^31
 *   w16_store_i8(p, w, paired)   as bytes, in the order of tri_qrows
 *   w16_store_i16(p, w)     ints within int16 as such
 *   v16_less(a, b, x, y)    a < b ? x : y
 */
#ifndef TRI_KERNELS_VEC_H
#define TRI_KERNELS_VEC_H

#include "kernels/kernels.h"

#if defined(__AVX512F__)
#include "kernels/x86/vec_avx512.h"
#elif defined(__AVX2__)
#include "kernels/x86/vec_avx2.h"
#elif defined(__ARM_NEON)
#include "kernels/arm/vec_neon.h"
#endif

#endif
