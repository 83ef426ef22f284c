/* The kernels of lanes/ for AVX-512. */
#if defined(__x86_64__)
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) ||                   \
    !defined(__AVX512VL__)
#error "compile with -mavx512f -mavx512bw -mavx512dq -mavx512vl (cmake/Kernels.cmake)"
#endif
#define TRI_LANES(op) tri__avx512_##op
#include "kernels/lanes/lanes.h"
#endif
