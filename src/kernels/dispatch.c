/*
 * Chooses kernels: the reference first, then every variant whose level is there, in the order of
 * variants.def, so that the last one stays. Nothing is remembered: callers hold the table.
 */
#include "kernels/kernels.h"

#include <string.h>
#include "kernels/kernels_priv.h"

static const struct tri_kernels reference = {
    .matmul_f32 = tri__ref_matmul,
    .matmul_bf16 = tri__ref_matmul,
    .matmul_f16 = tri__ref_matmul,
    .matmul_i8g64 = tri__ref_matmul,
    .matmul_i4g32 = tri__ref_matmul,
    .matmul_mxfp4 = tri__ref_matmul,
    .quantise = tri__ref_quantise,
    .qmatmul_i8g64 = tri__ref_qmatmul,
    .qmatmul_i4g32 = tri__ref_qmatmul,
    .qmatmul_mxfp4 = tri__ref_qmatmul,
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
    .add = tri__ref_add,
    .combine = tri__ref_combine,
    .encode = tri__ref_encode,
};

/* Levels by the names that variants.def uses. */
enum {
    level_base = TRI_ISA_BASE,
    level_avx2 = TRI_ISA_AVX2,
    level_avxvnni = TRI_ISA_AVXVNNI,
    level_avx512 = TRI_ISA_AVX512,
    level_vnni = TRI_ISA_VNNI,
    level_amx = TRI_ISA_AMX,
    level_amxbf16 = TRI_ISA_AMXBF16,
    level_dotprod = TRI_ISA_DOTPROD,
    level_i8mm = TRI_ISA_I8MM
};

#define TRI_VARIANT(op, level, units)                                                              \
    static void put_##level##_##op(struct tri_kernels *k)                                          \
    {                                                                                              \
        k->op = tri__##level##_##op;                                                               \
    }
#include "kernels/variants.def"
#undef TRI_VARIANT

static const struct tri_kernel_variant variants[] = {
#define TRI_VARIANT(op, level, units)                                                              \
    { .name = { #op, #level },                                                                     \
      .isa = level_##level,                                                                        \
      .tolerance = (units),                                                                        \
      .put = put_##level##_##op },
#include "kernels/variants.def"
#undef TRI_VARIANT
};

enum { N_VARIANTS = sizeof variants / sizeof variants[0] };

const struct tri_kernels *tri_kernels_ref(void)
{
    return &reference;
}

void tri_kernels_fill(struct tri_kernels *out, unsigned isas)
{
    *out = reference;
    for (int i = 0; i < N_VARIANTS; i++)
        if (isas >> variants[i].isa & 1)
            variants[i].put(out);
}

const struct tri_kernel_variant *tri_kernels_variant(int index)
{
    return index >= 0 && index < N_VARIANTS ? &variants[index] : NULL;
}

const struct tri_kernel_name *tri_kernels_list(int index)
{
    static const struct tri_kernel_name names[] = {
#define TRI_KERNEL_NAME(op, args) { #op, "ref" },
        TRI_KERNEL_MAP(TRI_KERNEL_NAME)
#undef TRI_KERNEL_NAME
    };
    unsigned isas = 0;
    if (index < 0 || index >= (int)(sizeof names / sizeof names[0]))
        return NULL;
    if (tri_cpu_isas(&isas, NULL)) /* a misspelt cap: the run itself reports it */
        return &names[index];
    for (int i = N_VARIANTS - 1; i >= 0; i--)
        if (isas >> variants[i].isa & 1 &&
            !strcmp(variants[i].name.operation, names[index].operation))
            return &variants[i].name;
    return &names[index];
}

tri_matmul_fn tri_kernels_matmul(const struct tri_kernels *k, enum tri_dtype dtype)
{
    switch (dtype) {
    case TRI_DT_F32:
        return k->matmul_f32;
    case TRI_DT_BF16:
        return k->matmul_bf16;
    case TRI_DT_F16:
        return k->matmul_f16;
    case TRI_DT_I8G64:
        return k->matmul_i8g64;
    case TRI_DT_I4G32:
        return k->matmul_i4g32;
    case TRI_DT_MXFP4:
        return k->matmul_mxfp4;
    default:
        return NULL;
    }
}

tri_qmatmul_fn tri_kernels_qmatmul(const struct tri_kernels *k, enum tri_dtype dtype)
{
    switch (dtype) {
    case TRI_DT_I8G64:
        return k->qmatmul_i8g64;
    case TRI_DT_I4G32:
        return k->qmatmul_i4g32;
    case TRI_DT_MXFP4:
        return k->qmatmul_mxfp4;
    default:
        return NULL;
    }
}

bool tri_kernels_tiles(const struct tri_kernels *k, enum tri_dtype dtype)
{
#if defined(__x86_64__)
    if (dtype == TRI_DT_I8G64)
        return k->qmatmul_i8g64 == tri__vnni_qmatmul_i8g64 ||
               k->qmatmul_i8g64 == tri__amx_qmatmul_i8g64;
    if (dtype == TRI_DT_MXFP4)
        return k->qmatmul_mxfp4 == tri__vnni_qmatmul_mxfp4 ||
               k->qmatmul_mxfp4 == tri__amx_qmatmul_mxfp4;
#endif
    (void)k;
    (void)dtype;
    return false;
}
