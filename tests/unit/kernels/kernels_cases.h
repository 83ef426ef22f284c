/*
 * Random cases for each kernel operation, shared by the test and its --bench. Every array lies at
 * the end of its own pages, followed by bytes that must not be read (asan) or written (checked).
 */
#ifndef TRI_TESTS_KERNELS_CASES_H
#define TRI_TESTS_KERNELS_CASES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "kernels/kernels.h"

struct random {
    uint64_t state;
};

static inline uint32_t random_bits(struct random *r)
{
    r->state = r->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(r->state >> 33) ^ (uint32_t)(r->state >> 11);
}
static inline int64_t random_in(struct random *r, int64_t least, int64_t most)
{
    return least + (int64_t)(random_bits(r) % (uint64_t)(most - least + 1));
}
/* About normal, deviation 1. */
static inline float random_float(struct random *r)
{
    float sum = 0;
    for (int i = 0; i < 6; i++)
        sum += (float)(random_bits(r) >> 8) * 0x1p-24f;
    return (sum - 3) * 1.4142f;
}

/* An array with a guard behind it that array_free() verifies. */
enum { GUARD_BYTES = 192, GUARD = 0xa5 };

struct array {
    char *base;
    size_t bytes;
};
static inline void *array_new(struct array *a, size_t bytes)
{
    a->bytes = bytes;
    a->base = aligned_alloc(64, (bytes + GUARD_BYTES + 63) & ~(size_t)63);
    if (!a->base)
        abort();
    memset(a->base, 0, bytes);
    memset(a->base + bytes, GUARD, GUARD_BYTES);
    return a->base;
}
static inline bool array_free(struct array *a)
{
    bool whole = true;
    for (int i = 0; i < GUARD_BYTES; i++)
        whole = whole && (unsigned char)a->base[a->bytes + (size_t)i] == GUARD;
    free(a->base);
    a->base = NULL;
    return whole;
}
static inline float *array_floats(struct array *a, int64_t n, struct random *r, float size)
{
    float *v = array_new(a, (size_t)n * sizeof *v);
    for (int64_t i = 0; i < n && r; i++)
        v[i] = random_float(r) * size;
    return v;
}

struct outcome {
    double worst; /* units of 2^-24 of the magnitude; HUGE_VAL for a broken guard */
    int64_t index;
    double got, want;
    char shape[96];
};

/* Compares n values; size[i] (or 1) is the magnitude that value i's error is measured against. */
static inline void outcome_add(struct outcome *o, const float *got, const float *want,
                               const double *size, double one_size, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double scale = size ? size[i] : one_size;
        double units = fabs((double)got[i] - (double)want[i]) / (scale * 0x1p-24);
        if (!memcmp(&got[i], &want[i], sizeof *got) || (isnan(got[i]) && isnan(want[i])))
            continue;
        if (got[i] == want[i])
            continue; /* zeros of both signs */
        if (!(units <= o->worst)) {
            o->worst = units;
            o->index = i;
            o->got = (double)got[i];
            o->want = (double)want[i];
        }
    }
}

struct kernel_case {
    const char *op;
    struct outcome (*run)(const struct kernel_case *c, const struct tri_kernels *fast,
                          struct random *r);
    /* Bench: prepares arguments of a realistic size, runs once, tells bytes and multiplications. */
    void (*bench)(const struct kernel_case *c, const struct tri_kernels *k, int64_t tokens,
                  double *bytes, double *products);
    enum tri_dtype dtype; /* matrix operations */
};

/* A random matrix of any format, data and scales in arrays of their own. */
struct matrix_case {
    struct array data, scales;
    struct tri_matrix w;
};
static inline void matrix_new(struct matrix_case *m, enum tri_dtype dtype, int64_t rows,
                              int64_t cols, struct random *r)
{
    size_t row_bytes = tri_row_data_bytes(dtype, cols), scale = tri_row_scale_bytes(dtype, cols);
    char *data = array_new(&m->data, row_bytes * (size_t)rows);
    char *scales = array_new(&m->scales, scale * (size_t)rows);
    float *line = malloc((size_t)cols * sizeof *line);
    for (int64_t row = 0; row < rows && line; row++) {
        for (int64_t c = 0; c < cols; c++)
            line[c] = random_float(r);
        tri_row_encode(data + (size_t)row * row_bytes, scales + (size_t)row * scale, dtype, line,
                       cols);
    }
    free(line);
    m->w = (struct tri_matrix){ dtype, rows, cols, data, scale ? scales : NULL, false };
}
static inline bool matrix_free(struct matrix_case *m)
{
    bool whole = array_free(&m->data);
    return array_free(&m->scales) && whole;
}

#include "kernels_matrix_cases.h"
#include "kernels_layer_cases.h"

static const struct kernel_case cases[] = {
    { "matmul_f32", run_matmul, bench_matmul, TRI_DT_F32 },
    { "matmul_bf16", run_matmul, bench_matmul, TRI_DT_BF16 },
    { "matmul_f16", run_matmul, bench_matmul, TRI_DT_F16 },
    { "matmul_i8g64", run_matmul, bench_matmul, TRI_DT_I8G64 },
    { "matmul_i4g32", run_matmul, bench_matmul, TRI_DT_I4G32 },
    { "matmul_mxfp4", run_matmul, bench_matmul, TRI_DT_MXFP4 },
    { "quantise", run_quantise, bench_quantise, TRI_DT_F32 },
    { "encode", run_encode, bench_encode, TRI_DT_BF16 },
    { "qmatmul_i8g64", run_qmatmul, bench_qmatmul, TRI_DT_I8G64 },
    { "qmatmul_i4g32", run_qmatmul, bench_qmatmul, TRI_DT_I4G32 },
    { "qmatmul_mxfp4", run_qmatmul, bench_qmatmul, TRI_DT_MXFP4 },
    LAYER_CASES
};

static inline const struct kernel_case *find_case(const char *op)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (!strcmp(cases[i].op, op))
            return &cases[i];
    return NULL;
}

/* Best of several runs of each variant: GB/s of weights and 10^9 multiplications a second. */
static inline int bench_cases(unsigned isas, const char *only)
{
    static const int64_t tokens[] = { 1, 4, 64, 512 };
    const struct tri_kernel_variant *v;
    printf("%-14s %-8s %6s %10s %10s %12s\n", "operation", "variant", "tokens", "GB/s", "Gmul/s",
           "us");
    for (int i = 0; (v = tri_kernels_variant(i)) != NULL; i++) {
        const struct kernel_case *c = find_case(v->name.operation);
        struct tri_kernels k = *tri_kernels_ref();
        if (!(isas >> v->isa & 1) || !c || !c->bench || !strstr(v->name.operation, only))
            continue;
        v->put(&k);
        for (size_t j = 0; j < sizeof tokens / sizeof tokens[0]; j++) {
            double bytes = 0, products = 0, best = 1e9;
            for (int run = 0; run < 9; run++) {
                double begin = tri_clock_s();
                c->bench(c, &k, tokens[j], &bytes, &products);
                double spent = tri_clock_s() - begin;
                best = spent < best ? spent : best;
            }
            printf("%-14s %-8s %6lld %10.2f %10.2f %12.1f\n", v->name.operation, v->name.variant,
                   (long long)tokens[j], bytes / best * 1e-9, products / best * 1e-9, best * 1e6);
        }
    }
    return 0;
}

#endif
