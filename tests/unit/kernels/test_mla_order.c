/*
 * kernels: attention of a query gives the same bits whoever is computed beside it: alone, as one of
 * a token's heads, as one of a prompt's tokens. So greedy text does not depend on chunks, batches
 * or threads. For every level that this CPU has and every form of the cache.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fmt/fmt.h"
#include "kernels/kernels.h"
#include "os/cpu.h"

enum { HEADS = 4, TOKENS = 19, PAST = 90, NOPE = 8, ROPE = 16, ROWS = PAST + TOKENS, MOST = 1056 };

static float noise(void)
{
    return (float)rand() / (float)RAND_MAX * 2 - 1;
}

struct case_of {
    int64_t rank;
    enum tri_dtype cache;
};

struct arrays {
    float *ql, *q, *want, *got;
    char *cache;
};

static void make(struct arrays *x, const struct case_of *c)
{
    int64_t width = c->rank + ROPE, queries = (int64_t)TOKENS * HEADS;
    size_t row_bytes = tri_row_data_bytes(c->cache, width);
    float row[MOST];
    x->ql = malloc((size_t)(queries * c->rank) * sizeof *x->ql);
    x->q = malloc((size_t)(queries * (NOPE + ROPE)) * sizeof *x->q);
    x->want = malloc((size_t)(queries * c->rank) * sizeof *x->want);
    x->got = malloc((size_t)(queries * c->rank) * sizeof *x->got);
    x->cache = malloc(row_bytes * ROWS);
    assert_true(x->ql && x->q && x->want && x->got && x->cache && width <= MOST);
    for (int64_t i = 0; i < queries * c->rank; i++)
        x->ql[i] = noise();
    for (int64_t i = 0; i < queries * (NOPE + ROPE); i++)
        x->q[i] = noise();
    for (int64_t r = 0; r < ROWS; r++) {
        for (int64_t i = 0; i < width; i++)
            row[i] = noise();
        char *to = x->cache + (size_t)r * row_bytes;
        for (int64_t i = 0; i < width && c->cache == TRI_DT_E4M3; i++)
            to[i] = (char)tri_e4m3_encode(row[i]);
        if (c->cache != TRI_DT_E4M3)
            tri_row_encode(to, NULL, c->cache, row, width);
    }
}

static void drop(struct arrays *x)
{
    free(x->ql);
    free(x->q);
    free(x->want);
    free(x->got);
    free(x->cache);
}

/* Tokens t0 .. t0 + n, heads h0 .. h1, into out. */
static void attend(const struct tri_kernels *k, const struct arrays *x, const struct case_of *c,
                   float *out, int64_t t0, int64_t n, int64_t h0, int64_t h1)
{
    struct tri_mla_args a = { .ql = x->ql + t0 * HEADS * c->rank,
                              .q = x->q + t0 * HEADS * (NOPE + ROPE),
                              .cache = x->cache,
                              .cache_dtype = c->cache,
                              .ol = out + t0 * HEADS * c->rank,
                              .tokens = n,
                              .past = PAST + t0,
                              .heads = HEADS,
                              .nope = NOPE,
                              .rope = ROPE,
                              .rank = c->rank,
                              .scale = 0.3f };
    k->mla(&a, h0, h1);
}

static void all_ways(const struct tri_kernels *k, const struct case_of *c)
{
    struct arrays x;
    size_t bytes = (size_t)(TOKENS * HEADS * c->rank) * sizeof *x.got;
    make(&x, c);
    for (int64_t t = 0; t < TOKENS; t++)
        for (int64_t h = 0; h < HEADS; h++)
            attend(k, &x, c, x.want, t, 1, h, h + 1);
    static const int64_t steps[][2] = { { TOKENS, 1 }, { TOKENS, HEADS }, { 1, HEADS }, { 7, 2 } };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        memset(x.got, 0xff, bytes);
        for (int64_t t = 0; t < TOKENS; t += steps[i][0])
            for (int64_t h = 0; h < HEADS; h += steps[i][1])
                attend(k, &x, c, x.got, t, t + steps[i][0] < TOKENS ? steps[i][0] : TOKENS - t, h,
                       h + steps[i][1] < HEADS ? h + steps[i][1] : HEADS);
        assert_memory_equal(x.got, x.want, bytes);
    }
    drop(&x);
}

static void same_bits(void **state)
{
    (void)state;
    static const enum tri_dtype caches[] = { TRI_DT_F32, TRI_DT_BF16, TRI_DT_E4M3 };
    static const int64_t ranks[] = { 16, 80, 512, 1024, 24 }; /* 1024: a row too wide */
    unsigned isas = 0;
    assert_int_equal(tri_cpu_isas(&isas, NULL), TRI_OK);
    const struct tri_kernel_variant *v;
    for (int n = -1; n < 0 || (v = tri_kernels_variant(n)) != NULL; n++) {
        struct tri_kernels k = *tri_kernels_ref();
        if (n >= 0 && (strcmp(v->name.operation, "mla") != 0 || !(isas >> v->isa & 1)))
            continue;
        if (n >= 0)
            v->put(&k);
        for (size_t i = 0; i < 3 * sizeof ranks / sizeof ranks[0]; i++)
            all_ways(&k, &(struct case_of){ ranks[i / 3], caches[i % 3] });
    }
}

int main(void)
{
    srand(5);
    const struct CMUnitTest tests[] = { cmocka_unit_test(same_bits) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
