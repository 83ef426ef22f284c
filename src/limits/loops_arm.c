/*
 * Inner loops for AArch64, as in loops_x86.c. Run under an emulator only so far: their numbers mean
 * nothing there.
 */
#include "limits/limits_priv.h"

#if defined(__aarch64__)
#include <sys/auxv.h>

#define TWELVE(op, tail)                                                                           \
    op "0" tail op "1" tail op "2" tail op "3" tail op "4" tail op "5" tail op "6" tail op         \
       "7" tail op "8" tail op "9" tail op "10" tail op "11" tail
#define LOOP(extension, op, tail)                                                                  \
    __asm__ volatile(extension "movi v12.16b, #0\n\tmovi v13.16b, #0\n\t1:\n\t" TWELVE(            \
                         op, tail) "subs %0, %0, #1\n\tb.ne 1b"                                    \
                     : "+r"(turns)                                                                 \
                     :                                                                             \
                     : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10",    \
                       "v11", "v12", "v13")

static void f32_neon(int64_t turns)
{
    LOOP("", "fmla v", ".4s, v12.4s, v13.4s\n\t");
}

static void int8_dot(int64_t turns)
{
    LOOP(".arch armv8.2-a+dotprod\n\t", "sdot v", ".4s, v12.16b, v13.16b\n\t");
}

static void int8_mm(int64_t turns)
{
    LOOP(".arch armv8.6-a+i8mm\n\t", "smmla v", ".4s, v12.16b, v13.16b\n\t");
}

static void bf16_mm(int64_t turns)
{
    LOOP(".arch armv8.6-a+bf16\n\t", "bfmmla v", ".4s, v12.8h, v13.8h\n\t");
}

static bool has_neon(void)
{
    return true;
}

static bool has_dot(void)
{
    return getauxval(AT_HWCAP) & (1ul << 20); /* HWCAP_ASIMDDP */
}

static bool has_i8mm(void)
{
    return getauxval(AT_HWCAP2) & (1ul << 13); /* HWCAP2_I8MM */
}

static bool has_bf16(void)
{
    return getauxval(AT_HWCAP2) & (1ul << 14); /* HWCAP2_BF16 */
}

const struct tri__peak_loop tri__peak_loops_arm[] = {
    { TRI_PEAK_INT8, "i8mm smmla", 12 * 32 * 2, has_i8mm, int8_mm },
    { TRI_PEAK_INT8, "dotprod sdot", 12 * 16 * 2, has_dot, int8_dot },
    { TRI_PEAK_BF16, "bfmmla", 12 * 16 * 2, has_bf16, bf16_mm },
    { TRI_PEAK_F32, "NEON fmla", 12 * 4 * 2, has_neon, f32_neon },
    { 0 },
};
#else
const struct tri__peak_loop tri__peak_loops_arm[] = { { 0 } };
#endif
