/* int8 activations times grouped weights with AVX2 (quant_ymm.h, quant_ymm_one.h). */
#if defined(__x86_64__)
#if !defined(__AVX2__) || !defined(__FMA__)
#error "compile with -mavx2 -mfma (cmake/Kernels.cmake)"
#endif

#include "kernels/x86/quant_ymm_one.h"

void tri__avx2_qmatmul_i8g64(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    products(a, TRI_DT_I8G64, row0, row1);
}

void tri__avx2_qmatmul_i4g32(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    products(a, TRI_DT_I4G32, row0, row1);
}

void tri__avx2_qmatmul_mxfp4(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    products(a, TRI_DT_MXFP4, row0, row1);
}
#endif
