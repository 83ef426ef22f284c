/* Instruction sets, asked of the CPU and the kernel. See cpu.h. */
#include "os/cpu.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

/* Tile levels. Tile data is 8 KiB of state per thread: Linux (5.16 on) hands it out only when
 * asked. */
static unsigned amx_levels(void)
{
    enum { BF16 = 22, TILE = 24, INT8 = 25 };
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !((d >> TILE) & 1) || !((d >> INT8) & 1) ||
        syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) != 0)
        return 0;
    return 1u << TRI_ISA_AMX | (d >> BF16 & 1) << TRI_ISA_AMXBF16;
}

/* clang 14 knows no builtin for it. */
static int has_f16c(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) && ((c >> 29) & 1);
}

/* The byte products of VNNI in 256-bit registers, without AVX-512. */
static int has_avxvnni(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && ((a >> 4) & 1);
}

/* The builtins also check that the operating system saves the wide registers (XCR0). */
static unsigned detect(void)
{
    unsigned isas = 0;
    __builtin_cpu_init();
    if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()))
        return isas;
    isas |= 1u << TRI_ISA_AVX2;
    if (has_avxvnni())
        isas |= 1u << TRI_ISA_AVXVNNI;
    if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")))
        return isas;
    isas |= 1u << TRI_ISA_AVX512;
    if (!(__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi")))
        return isas;
    isas |= 1u << TRI_ISA_VNNI;
    return isas | amx_levels();
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

static unsigned detect(void)
{
    /* HWCAP_ASIMDDP and HWCAP2_I8MM of the kernel's hwcap.h */
    enum { HAS_DOTPROD = 1 << 20, HAS2_I8MM = 1 << 13 };
    unsigned isas = 0;
    if (!(getauxval(AT_HWCAP) & HAS_DOTPROD))
        return isas;
    isas |= 1u << TRI_ISA_DOTPROD;
    if (getauxval(AT_HWCAP2) & HAS2_I8MM)
        isas |= 1u << TRI_ISA_I8MM;
    return isas;
}
#else
static unsigned detect(void)
{
    return 0;
}
#endif

static const char *const names[] = {
#define TRI_ISA_TEXT(name, text) text,
    TRI_ISA_MAP(TRI_ISA_TEXT)
#undef TRI_ISA_TEXT
};

enum tri_status tri_cpu_isas(unsigned *isas, struct tri_error *err)
{
    const char *cap = getenv("TRIREME_ISA");
    *isas = 1u << TRI_ISA_REF | 1u << TRI_ISA_BASE;
    if (!cap || !*cap) {
        *isas |= detect();
        return TRI_OK;
    }
    for (int i = 0; i < TRI_ISAS; i++) {
        if (strcmp(cap, names[i]))
            continue;
        *isas |= detect();
        *isas &= (1u << (i + 1)) - 1;
        return TRI_OK;
    }
    return tri_fail(err, TRI_ARG,
                    "TRIREME_ISA=%.20s: one of ref, base, avx2, avxvnni, avx512, vnni, amx, "
                    "amxbf16, dotprod, i8mm",
                    cap);
}
