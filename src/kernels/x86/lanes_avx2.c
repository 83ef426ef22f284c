/* The kernels of lanes/ for AVX2, FMA and F16C. */
#if defined(__x86_64__)
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "compile with -mavx2 -mfma -mf16c (cmake/Kernels.cmake)"
#endif
#define TRI_LANES(op) tri__avx2_##op
#include "kernels/lanes/lanes.h"
#endif
