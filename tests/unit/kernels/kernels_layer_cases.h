/*
 * Cases of the operations between the matrices. Included by kernels_cases.h. Magnitudes: errors of
 * norms, gates and activations are relative to each value (or a floor below which only the absolute
 * error counts), those of attention to the largest value that is added up.
 */
#ifndef TRI_TESTS_KERNELS_LAYER_CASES_H
#define TRI_TESTS_KERNELS_LAYER_CASES_H

/* |want| with a floor: what an elementwise error is measured against. */
static double *value_sizes(const float *want, int64_t n, double floor)
{
    double *size = malloc((size_t)n * sizeof *size);
    for (int64_t i = 0; i < n && size; i++)
        size[i] = fabs((double)want[i]) > floor ? fabs((double)want[i]) : floor;
    return size;
}

static void compare_values(struct outcome *out, const float *got, const float *want, int64_t n,
                           double floor)
{
    double *size = value_sizes(want, n, floor);
    outcome_add(out, got, want, size, 0, n);
    free(size);
}

/* Ends a case: compares two result arrays, frees everything, checks guards. */
static void finish_case(struct outcome *out, struct array *got, struct array *want, double floor,
                        struct array *inputs, int n)
{
    compare_values(out, (const float *)(const void *)got->base,
                   (const float *)(const void *)want->base, (int64_t)(got->bytes / 4), floor);
    bool whole = array_free(got);
    whole = array_free(want) && whole;
    for (int i = 0; i < n; i++)
        whole = array_free(&inputs[i]) && whole;
    if (!whole)
        out->worst = INFINITY;
}

static struct outcome run_rmsnorm(const struct kernel_case *c, const struct tri_kernels *fast,
                                  struct random *r)
{
    (void)c;
    int64_t width = random_in(r, 1, 300), tokens = random_in(r, 1, 5);
    struct outcome out = { 0 };
    struct array in[2], got, want;
    const float *x = array_floats(&in[0], tokens * width, r, 3);
    const float *w = array_floats(&in[1], width, r, 1);
    float *y = array_floats(&got, tokens * width, NULL, 0);
    float *z = array_floats(&want, tokens * width, NULL, 0);
    struct tri_rmsnorm_args a = { x, w, y, width, width, width, 1e-5f };
    snprintf(out.shape, sizeof out.shape, "[%lld][%lld]", (long long)tokens, (long long)width);
    fast->rmsnorm(&a, 0, tokens);
    a.y = z;
    tri_kernels_ref()->rmsnorm(&a, 0, tokens);
    finish_case(&out, &got, &want, 1e-30, in, 2);
    return out;
}

static struct outcome run_mix(const struct kernel_case *c, const struct tri_kernels *fast,
                              struct random *r)
{
    (void)c;
    int64_t width = random_in(r, 1, 300), tokens = random_in(r, 1, 5), n = random_in(r, 1, 9);
    struct outcome out = { 0 };
    struct array in[10], got, want;
    const float *source[9];
    for (int i = 0; i < n; i++)
        source[i] = array_floats(&in[i], tokens * width, r, 3);
    const float *w = array_floats(&in[n], width, r, 0.2f);
    float *y = array_floats(&got, tokens * width, NULL, 0);
    float *z = array_floats(&want, tokens * width, NULL, 0);
    struct tri_mix_args a = { source, n, w, y, width, 1e-5f };
    snprintf(out.shape, sizeof out.shape, "%lld of [%lld][%lld]", (long long)n, (long long)tokens,
             (long long)width);
    fast->mix(&a, 0, tokens);
    a.y = z;
    tri_kernels_ref()->mix(&a, 0, tokens);
    finish_case(&out, &got, &want, 3, in, (int)n + 1);
    return out;
}

static struct outcome run_conv(const struct kernel_case *c, const struct tri_kernels *fast,
                               struct random *r)
{
    (void)c;
    int64_t channels = random_in(r, 1, 300), tokens = random_tokens(r), taps = random_in(r, 1, 5);
    int64_t c0 = random_in(r, 0, channels - 1), c1 = random_in(r, c0, channels);
    int64_t n = tokens * channels, past = (taps - 1) * channels;
    struct outcome out = { 0 };
    struct array in[2], got, want;
    const float *x = array_floats(&in[0], n, r, 1),
                *w = array_floats(&in[1], channels * taps, r, 1);
    /* The tail lies behind the results, so that both are compared. */
    float *y = array_floats(&got, n + past, NULL, 0), *z = array_floats(&want, n + past, r, 1);
    memcpy(y, z, (size_t)(n + past) * sizeof *y);
    struct tri_conv_args a = { x, y + n, w, y, tokens, channels, taps, channels, channels };
    snprintf(out.shape, sizeof out.shape, "channels %lld..%lld of %lld, %lld taps, %lld tokens",
             (long long)c0, (long long)c1, (long long)channels, (long long)taps, (long long)tokens);
    fast->conv(&a, c0, c1);
    a.y = z;
    a.tail = z + n;
    tri_kernels_ref()->conv(&a, c0, c1);
    finish_case(&out, &got, &want, 2, in, 2);
    return out;
}

static struct outcome run_kda(const struct kernel_case *c, const struct tri_kernels *fast,
                              struct random *r)
{
    static const int64_t dims[] = { 16, 32, 48, 64, 128, 24 };
    bool chunk = !strcmp(c->op, "kda_chunk");
    int64_t heads = random_in(r, 1, 3), dim = dims[random_bits(r) % 6], tokens = random_tokens(r);
    int64_t n = tokens * heads * dim, state = heads * dim * dim;
    struct outcome out = { 0 };
    struct array in[7], got, want;
    struct tri_kda_args a = { .q = array_floats(&in[0], n, r, 1),
                              .k = array_floats(&in[1], n, r, 1),
                              .v = array_floats(&in[2], n, r, 1),
                              .z = array_floats(&in[3], n, r, random_bits(r) % 2 ? 1 : 12),
                              .b = array_floats(&in[4], tokens * heads, r, 2),
                              .a = array_floats(&in[5], heads, r, 1),
                              .dt_bias = array_floats(&in[6], heads * dim, r, 1),
                              .tokens = tokens,
                              .heads = heads,
                              .dim = dim,
                              .bounded = true,
                              .gate_bound = -5 };
    float *y = array_floats(&got, n + state, NULL, 0), *z = array_floats(&want, n + state, r, 1);
    memcpy(y, z, (size_t)(n + state) * sizeof *y);
    int64_t h0 = random_in(r, 0, heads - 1), h1 = random_in(r, h0, heads);
    snprintf(out.shape, sizeof out.shape, "heads %lld..%lld of %lld, width %lld, %lld tokens",
             (long long)h0, (long long)h1, (long long)heads, (long long)dim, (long long)tokens);
    a.o = y;
    a.state = y + n;
    (chunk ? fast->kda_chunk : fast->kda_step)(&a, h0, h1);
    a.o = z;
    a.state = z + n;
    (chunk ? tri_kernels_ref()->kda_chunk : tri_kernels_ref()->kda_step)(&a, h0, h1);
    finish_case(&out, &got, &want, 2, in, 7);
    return out;
}

static struct outcome run_gated_norm(const struct kernel_case *c, const struct tri_kernels *fast,
                                     struct random *r)
{
    (void)c;
    int64_t heads = random_in(r, 1, 4), dim = random_in(r, 1, 8) * 16, tokens = random_in(r, 1, 4);
    int64_t n = tokens * heads * dim, h0 = random_in(r, 0, heads - 1);
    int64_t h1 = random_in(r, h0, heads);
    struct outcome out = { 0 };
    struct array in[3], got, want;
    dim -= random_bits(r) % 4 ? 0 : 3;
    struct tri_gated_norm_args a = { .o = array_floats(&in[0], n, r, 2),
                                     .g = array_floats(&in[1], n, r, 4),
                                     .w = array_floats(&in[2], dim, r, 1),
                                     .tokens = tokens,
                                     .heads = heads,
                                     .dim = dim,
                                     .eps = 1e-5f };
    a.y = array_floats(&got, n, NULL, 0);
    fast->gated_norm(&a, h0, h1);
    a.y = array_floats(&want, n, NULL, 0);
    tri_kernels_ref()->gated_norm(&a, h0, h1);
    snprintf(out.shape, sizeof out.shape, "[%lld][%lld][%lld]", (long long)tokens, (long long)heads,
             (long long)dim);
    finish_case(&out, &got, &want, 1e-30, in, 3);
    return out;
}

static struct outcome run_mla(const struct kernel_case *c, const struct tri_kernels *fast,
                              struct random *r)
{
    (void)c;
    static const enum tri_dtype dtypes[] = { TRI_DT_F32, TRI_DT_BF16, TRI_DT_E4M3 };
    int64_t heads = random_in(r, 1, 11), rank = random_in(r, 1, 6) * 16, tokens = random_tokens(r);
    int64_t rope = random_in(r, 0, 2) * 16, nope = random_in(r, 1, 20), past = random_in(r, 0, 200);
    int64_t row = rank + rope, rows = past + tokens, h0 = random_in(r, 0, heads - 1);
    int64_t h1 = random_in(r, h0, heads);
    rank -= random_bits(r) % 8 ? 0 : 3;
    row = rank + rope;
    struct outcome out = { 0 };
    struct array in[4], got, want;
    struct tri_mla_args a = { .ql = array_floats(&in[0], tokens * heads * rank, r, 1),
                              .q = array_floats(&in[1], tokens * heads * (nope + rope), r, 1),
                              .cache_dtype = dtypes[random_bits(r) % 3],
                              .tokens = tokens,
                              .past = past,
                              .heads = heads,
                              .nope = nope,
                              .rope = rope,
                              .rank = rank,
                              .scale = 0.2f };
    const float *cache = array_floats(&in[2], rows * row, r, 1);
    size_t bytes = tri_row_data_bytes(a.cache_dtype, row);
    char *stored = array_new(&in[3], bytes * (size_t)rows);
    for (int64_t i = 0; i < rows * row && a.cache_dtype == TRI_DT_E4M3; i++)
        stored[i] = (char)tri_e4m3_encode(cache[i]);
    for (int64_t i = 0; i < rows && a.cache_dtype != TRI_DT_E4M3; i++)
        tri_row_encode(stored + (size_t)i * bytes, NULL, a.cache_dtype, cache + i * row, row);
    a.cache = stored;
    a.ol = array_floats(&got, tokens * heads * rank, NULL, 0);
    fast->mla(&a, h0, h1);
    a.ol = array_floats(&want, tokens * heads * rank, NULL, 0);
    tri_kernels_ref()->mla(&a, h0, h1);
    snprintf(out.shape, sizeof out.shape, "%s, %lld heads, rank %lld, rope %lld, %lld + %lld rows",
             tri_dtype_name(a.cache_dtype), (long long)heads, (long long)rank, (long long)rope,
             (long long)past, (long long)tokens);
    finish_case(&out, &got, &want, 1, in, 4);
    return out;
}

static struct outcome run_glu(const struct kernel_case *c, const struct tri_kernels *fast,
                              struct random *r)
{
    (void)c;
    int64_t n = random_in(r, 1, 300), i0 = random_in(r, 0, n - 1), i1 = random_in(r, i0, n);
    struct outcome out = { 0 };
    struct array in[2], got, want;
    struct tri_glu_args a = { .gate = array_floats(&in[0], n, r, 6),
                              .up = array_floats(&in[1], n, r, 20),
                              .situ = random_bits(r) % 4 != 0,
                              .beta = 4,
                              .linear_beta = random_bits(r) % 2 ? 25 : 0 };
    a.y = array_floats(&got, n, NULL, 0);
    fast->glu(&a, i0, i1);
    a.y = array_floats(&want, n, NULL, 0);
    tri_kernels_ref()->glu(&a, i0, i1);
    snprintf(out.shape, sizeof out.shape, "%lld..%lld of %lld", (long long)i0, (long long)i1,
             (long long)n);
    finish_case(&out, &got, &want, 1e-30, in, 2);
    return out;
}

/* gate and add: y in place. */
static struct outcome run_in_place(const struct kernel_case *c, const struct tri_kernels *fast,
                                   struct random *r)
{
    int64_t n = random_in(r, 1, 300), i0 = random_in(r, 0, n - 1), i1 = random_in(r, i0, n);
    struct outcome out = { 0 };
    struct array in[1], got, want;
    const float *x = array_floats(&in[0], n, r, 5);
    float *y = array_floats(&got, n, NULL, 0), *z = array_floats(&want, n, r, 1);
    memcpy(y, z, (size_t)n * sizeof *y);
    if (!strcmp(c->op, "gate")) {
        fast->gate(&(struct tri_gate_args){ x, y }, i0, i1);
        tri_kernels_ref()->gate(&(struct tri_gate_args){ x, z }, i0, i1);
    } else {
        fast->add(&(struct tri_add_args){ x, y }, i0, i1);
        tri_kernels_ref()->add(&(struct tri_add_args){ x, z }, i0, i1);
    }
    snprintf(out.shape, sizeof out.shape, "%lld..%lld of %lld", (long long)i0, (long long)i1,
             (long long)n);
    finish_case(&out, &got, &want, 1e-30, in, 1);
    return out;
}

static struct outcome run_combine(const struct kernel_case *c, const struct tri_kernels *fast,
                                  struct random *r)
{
    (void)c;
    int64_t width = random_in(r, 1, 100), tokens = random_in(r, 1, 5), topk = random_in(r, 1, 6);
    int64_t pairs = tokens * topk;
    struct outcome out = { 0 };
    struct array in[3], got, want;
    const float *y = array_floats(&in[0], pairs * width, r, 1);
    const float *weights = array_floats(&in[1], pairs, r, 1);
    int32_t *place = array_new(&in[2], (size_t)pairs * sizeof *place);
    for (int64_t i = 0; i < pairs; i++)
        place[i] = (int32_t)random_in(r, -1, pairs - 1);
    struct tri_combine_args a = { y, place, weights, NULL, topk, width };
    a.sum = array_floats(&got, tokens * width, NULL, 0);
    fast->combine(&a, 0, tokens);
    a.sum = array_floats(&want, tokens * width, NULL, 0);
    tri_kernels_ref()->combine(&a, 0, tokens);
    snprintf(out.shape, sizeof out.shape, "[%lld][%lld][%lld]", (long long)tokens, (long long)topk,
             (long long)width);
    finish_case(&out, &got, &want, 1e-30, in, 3);
    return out;
}

#define LAYER_CASES                                                                                \
    { "rmsnorm", run_rmsnorm, NULL, TRI_DT_F32 }, { "mix", run_mix, NULL, TRI_DT_F32 },            \
        { "conv", run_conv, NULL, TRI_DT_F32 }, { "kda_step", run_kda, NULL, TRI_DT_F32 },         \
        { "kda_chunk", run_kda, NULL, TRI_DT_F32 },                                                \
        { "gated_norm", run_gated_norm, NULL, TRI_DT_F32 }, { "mla", run_mla, NULL, TRI_DT_F32 },  \
        { "glu", run_glu, NULL, TRI_DT_F32 }, { "gate", run_in_place, NULL, TRI_DT_F32 },          \
        { "add", run_in_place, NULL, TRI_DT_F32 }, { "combine", run_combine, NULL, TRI_DT_F32 },

#endif
