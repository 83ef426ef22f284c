/*
 * Inner loops for x86-64 in assembly: compilers then need no option per instruction set, and no
 * optimiser can remove them. Ten or twelve independent accumulators hide the latency of two
 * multiply-add ports (4 to 5 cycles); four AMX tiles that of one tile unit.
 */
#include "limits/limits_priv.h"

#if defined(__x86_64__)
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TWELVE(op)                                                                                 \
    op "0\n\t" op "1\n\t" op "2\n\t" op "3\n\t" op "4\n\t" op "5\n\t" op "6\n\t" op "7\n\t" op     \
       "8\n\t" op "9\n\t" op "10\n\t" op "11\n\t"
/* Operands are zeros: a denormal left in a register would slow the float loops down. */
#define CLEAR "vpxor %%xmm12, %%xmm12, %%xmm12\n\tvpxor %%xmm13, %%xmm13, %%xmm13\n\t"
/* One loop: twelve times `op` on registers 0 to 11, then the count. */
#define LOOP(zero, op)                                                                             \
    __asm__ volatile(CLEAR TWELVE(zero) "1:\n\t" TWELVE(op) "dec %0\n\tjnz 1b\n\tvzeroupper"       \
                     : "+r"(turns)                                                                 \
                     :                                                                             \
                     : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",       \
                       "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13")

#define ZERO_YMM "vxorps %%ymm12, %%ymm12, %%ymm"
#define ZERO_ZMM "vpxorq %%zmm12, %%zmm12, %%zmm"

static void f32_avx2(int64_t turns)
{
    LOOP(ZERO_YMM, "vfmadd231ps %%ymm12, %%ymm12, %%ymm");
}

static void f32_avx512(int64_t turns)
{
    LOOP(ZERO_ZMM, "vfmadd231ps %%zmm12, %%zmm12, %%zmm");
}

static void int8_avx2(int64_t turns)
{
    /* Without VNNI three instructions make a dot of four bytes; counted as the one they replace. */
    __asm__ volatile(
        "1:\n\t"
        "vpmaddubsw %%ymm12, %%ymm13, %%ymm0\n\tvpmaddubsw %%ymm12, %%ymm13, %%ymm1\n\t"
        "vpmaddubsw %%ymm12, %%ymm13, %%ymm2\n\tvpmaddubsw %%ymm12, %%ymm13, %%ymm3\n\t"
        "vpmaddwd %%ymm0, %%ymm12, %%ymm0\n\tvpmaddwd %%ymm1, %%ymm12, %%ymm1\n\t"
        "vpmaddwd %%ymm2, %%ymm12, %%ymm2\n\tvpmaddwd %%ymm3, %%ymm12, %%ymm3\n\t"
        "vpaddd %%ymm0, %%ymm4, %%ymm4\n\tvpaddd %%ymm1, %%ymm5, %%ymm5\n\t"
        "vpaddd %%ymm2, %%ymm6, %%ymm6\n\tvpaddd %%ymm3, %%ymm7, %%ymm7\n\t"
        "dec %0\n\tjnz 1b\n\tvzeroupper"
        : "+r"(turns)
        :
        : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm12", "xmm13");
}

static void int8_avxvnni(int64_t turns)
{
    LOOP(ZERO_YMM, "%{vex%} vpdpbusd %%ymm12, %%ymm13, %%ymm");
}

static void int8_vnni(int64_t turns)
{
    LOOP(ZERO_ZMM, "vpdpbusd %%zmm12, %%zmm13, %%zmm");
}

static void bf16_avx512(int64_t turns)
{
    LOOP(ZERO_ZMM, "vdpbf16ps %%zmm12, %%zmm12, %%zmm");
}

/* Palette 1, all eight tiles of 16 rows of 64 bytes. */
static void load_tiles(void)
{
    struct {
        uint8_t palette, start, zero[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    __asm__ volatile("ldtilecfg %0\n\t"
                     "tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"
                     "tilezero %%tmm4\n\ttilezero %%tmm5\n\ttilezero %%tmm6\n\ttilezero %%tmm7"
                     :
                     : "m"(config));
}

#define TILE_LOOP(op)                                                                              \
    __asm__ volatile("1:\n\t" op " %%tmm6, %%tmm4, %%tmm0\n\t" op " %%tmm7, %%tmm4, %%tmm1\n\t" op \
                     " %%tmm6, %%tmm5, %%tmm2\n\t" op " %%tmm7, %%tmm5, %%tmm3\n\t"                \
                     "dec %0\n\tjnz 1b\n\ttilerelease"                                             \
                     : "+r"(turns)                                                                 \
                     :                                                                             \
                     : "cc")

static void int8_amx(int64_t turns)
{
    load_tiles();
    TILE_LOOP("tdpbssd");
}

static void bf16_amx(int64_t turns)
{
    load_tiles();
    TILE_LOOP("tdpbf16ps");
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f");
}

static bool has_vnni(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}

static void cpuid7(unsigned leaf, unsigned out[4])
{
    __asm__ volatile("cpuid"
                     : "=a"(out[0]), "=b"(out[1]), "=c"(out[2]), "=d"(out[3])
                     : "a"(7), "c"(leaf));
}

static bool has_avxvnni(void)
{
    unsigned r[4];
    if (!has_avx2())
        return false;
    cpuid7(1, r);
    return r[0] & (1u << 4);
}

static bool has_bf16(void)
{
    unsigned r[4];
    if (!has_avx512())
        return false;
    cpuid7(1, r);
    return r[0] & (1u << 5);
}

/* The CPU has tiles (leaf 7, edx 24, and bit `feature`) and the system lends us their state. */
static bool has_amx(unsigned feature)
{
    unsigned r[4];
    if (!has_avx512())
        return false;
    cpuid7(0, r);
    if (!(r[3] & (1u << 24)) || !(r[3] & (1u << feature)))
        return false;
    return syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */) == 0;
}

static bool has_amx_int8(void)
{
    return has_amx(25);
}

static bool has_amx_bf16(void)
{
    return has_amx(22);
}

const struct tri__peak_loop tri__peak_loops_x86[] = {
    { TRI_PEAK_INT8, "AMX tdpbssd", 4 * 16.0 * 16 * 64 * 2, has_amx_int8, int8_amx },
    { TRI_PEAK_INT8, "AVX-512 VNNI vpdpbusd", 12 * 64 * 2, has_vnni, int8_vnni },
    { TRI_PEAK_INT8, "AVX-VNNI vpdpbusd", 12 * 32 * 2, has_avxvnni, int8_avxvnni },
    { TRI_PEAK_INT8, "AVX2 vpmaddubsw + vpmaddwd + vpaddd", 4 * 32 * 2, has_avx2, int8_avx2 },
    { TRI_PEAK_BF16, "AMX tdpbf16ps", 4 * 16.0 * 16 * 32 * 2, has_amx_bf16, bf16_amx },
    { TRI_PEAK_BF16, "AVX-512 vdpbf16ps", 12 * 32 * 2, has_bf16, bf16_avx512 },
    { TRI_PEAK_F32, "AVX-512 vfmadd231ps", 12 * 16 * 2, has_avx512, f32_avx512 },
    { TRI_PEAK_F32, "AVX2 vfmadd231ps", 12 * 8 * 2, has_avx2, f32_avx2 },
    { 0 },
};

#define READ_FOUR(mov, width, reg)                                                                 \
    "1:\n\t" mov " (%0), %%" reg "0\n\t" mov " " #width "(%0), %%" reg "1\n\t" mov " 2*" #width    \
    "(%0), %%" reg "2\n\t" mov " 3*" #width "(%0), %%" reg "3\n\t"                                 \
    "add $4*" #width ", %0\n\tcmp %1, %0\n\tjb 1b\n\tvmovq %%xmm0, %2\n\tvzeroupper"

static uint64_t read_avx2(const void *data, size_t bytes)
{
    const char *p = data, *end = p + bytes;
    uint64_t x;
    __asm__ volatile(READ_FOUR("vmovups", 32, "ymm")
                     : "+r"(p), "+r"(end), "=r"(x)
                     :
                     : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3");
    return x;
}

static uint64_t read_avx512(const void *data, size_t bytes)
{
    const char *p = data, *end = p + bytes;
    uint64_t x;
    __asm__ volatile(READ_FOUR("vmovups", 64, "zmm")
                     : "+r"(p), "+r"(end), "=r"(x)
                     :
                     : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3");
    return x;
}

uint64_t (*tri__read_wide(void))(const void *, size_t)
{
    if (has_avx512())
        return read_avx512;
    return has_avx2() ? read_avx2 : NULL;
}
#else
const struct tri__peak_loop tri__peak_loops_x86[] = { { 0 } };

uint64_t (*tri__read_wide(void))(const void *, size_t)
{
    return NULL;
}
#endif
