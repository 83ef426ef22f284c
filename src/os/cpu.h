/*
 * Which instruction sets this machine's CPU and operating system support, as levels that kernels
 * are written for. A level is a set of features: it is there only when all of them are.
 */
#ifndef TRI_OS_CPU_H
#define TRI_OS_CPU_H

#include "base/status.h"

/*   level     name in TRIREME_ISA   what it stands for (each level needs those of its kind above)
 */
#define TRI_ISA_MAP(X)                                                                             \
    X(REF, "ref")         /* plain C: the scalar reference */                                      \
    X(BASE, "base")       /* what every CPU of the kind has: NEON on aarch64, nothing on x86-64 */ \
    X(AVX2, "avx2")       /* AVX2, FMA, F16C */                                                    \
    X(AVXVNNI, "avxvnni") /* AVX-VNNI: 256-bit byte products of CPUs without AVX-512 */            \
    X(AVX512, "avx512")   /* AVX-512 F, BW, DQ, VL */                                              \
    X(VNNI, "vnni")       /* AVX-512 VNNI and VBMI */                                              \
    X(AMX, "amx")         /* AMX tiles with int8, and the system's leave to use them */            \
    X(AMXBF16, "amxbf16") /* and bf16 tiles */                                                     \
    X(DOTPROD, "dotprod") /* Armv8.2 dot product */                                                \
    X(I8MM, "i8mm")       /* and Armv8.6 int8 matrix product */

enum tri_isa {
#define TRI_ISA_ENUM(name, text) TRI_ISA_##name,
    TRI_ISA_MAP(TRI_ISA_ENUM)
#undef TRI_ISA_ENUM
        TRI_ISAS
};

/*
 * The levels this process may use, bit (1 << isa) each; REF and BASE always. The environment
 * variable TRIREME_ISA caps them: levels after the named one are left out. An unknown name is
 * TRI_ARG (and *isas is REF and BASE alone).
 */
TRI_MUST_CHECK enum tri_status tri_cpu_isas(unsigned *isas, struct tri_error *err);

#endif
