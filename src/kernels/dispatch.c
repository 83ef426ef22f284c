/* Fills the kernel table: the reference first, then (later) each level the CPU and OS support. */
#include "kernels/kernels.h"

#include "kernels/kernels_priv.h"

static const struct tri_kernels reference = {
    .matmul = { [TRI_DT_F32] = tri__ref_matmul,
                [TRI_DT_BF16] = tri__ref_matmul,
                [TRI_DT_F16] = tri__ref_matmul,
                [TRI_DT_I8G64] = tri__ref_matmul,
                [TRI_DT_I4G32] = tri__ref_matmul,
                [TRI_DT_MXFP4] = tri__ref_matmul },
    .rmsnorm = tri__ref_rmsnorm,
    .mix = tri__ref_mix,
    .conv = tri__ref_conv,
    .kda_step = tri__ref_kda_step,
    .kda_chunk = tri__ref_kda_chunk,
    .gated_norm = tri__ref_gated_norm,
    .mla = tri__ref_mla,
    .glu = tri__ref_glu,
    .gate = tri__ref_gate,
    .router = tri__ref_router,
};

const struct tri_kernels *tri_kernels_ref(void)
{
    return &reference;
}

const struct tri_kernels *tri_kernels_best(void)
{
    return &reference;
}

const struct tri_kernel_name *tri_kernels_list(int index)
{
    static const struct tri_kernel_name names[] = { { "matmul", "ref" },
#define TRI_KERNEL_NAME(op) { #op, "ref" },
                                                    TRI_KERNEL_MAP(TRI_KERNEL_NAME)
#undef TRI_KERNEL_NAME
    };
    return index >= 0 && index < (int)(sizeof names / sizeof names[0]) ? &names[index] : NULL;
}
