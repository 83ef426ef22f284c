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
        out->worst = HUGE_VAL;
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

static void kda_call(const struct tri_kernels *k, bool chunk, const struct tri_kda_args *a,
                     const int64_t *heads)
{
    (chunk ? k->kda_chunk : k->kda_step)(a, heads[0], heads[1]);
}

/* Tokens [t, t + n) of a call. */
static struct tri_kda_args kda_tokens(const struct tri_kda_args *a, int64_t t, int64_t n)
{
    struct tri_kda_args part = *a;
    int64_t at = t * a->heads * a->dim;
    part.q += at;
    part.k += at;
    part.v += at;
    part.z += at;
    part.b += t * a->heads;
    part.o += at;
    part.tokens = n;
    return part;
}

/*
 * got: what a BF16 state holds, widened. Where it is want rounded (no farther off than half the
 * distance between its neighbours) it becomes want; what is left is the error before rounding.
 */
static void unround(float *got, const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int e = 0;
        frexpf(want[i], &e); /* |want| in [2^(e-1), 2^e): steps of 2^(e-8) */
        float half = ldexpf(1, e - 9), off = got[i] - want[i];
        got[i] = fabsf(off) <= half ? want[i] : want[i] + off - copysignf(half, off);
    }
}

/*
 * A BF16 state. What it must be comes from the reference on float32, begun from the same values and
 * rounded here: so the reference's own BF16 form can be tested as well. kda_step is held against it
 * token by token, each from the state that was really found, as one rounding that goes the other
 * way changes all that follows; that many tokens are the same bits is checked beside it.
 */
static void run_half_state(struct outcome *out, const struct tri_kernels *fast, bool chunk,
                           struct tri_kda_args a, const int64_t *range)
{
    int64_t values = a.heads * a.dim * a.dim, outputs = a.heads * a.dim;
    int64_t step = chunk ? a.tokens : 1, n = a.tokens * outputs;
    struct array arrays[6];
    uint16_t *half = array_new(&arrays[0], (size_t)values * 2);
    uint16_t *whole = array_new(&arrays[1], (size_t)values * 2);
    float *got = array_floats(&arrays[2], values, NULL, 0);
    float *want = array_floats(&arrays[3], values, NULL, 0);
    float *o_want = array_floats(&arrays[4], n, NULL, 0);
    float *o_whole = array_floats(&arrays[5], n, NULL, 0), *o = a.o;
    tri_row_encode(half, NULL, TRI_DT_BF16, a.state, values);
    memcpy(whole, half, (size_t)values * 2);
    memcpy(o_want, o, (size_t)n * sizeof *o); /* heads that are not asked for keep what they had */
    memcpy(o_whole, o, (size_t)n * sizeof *o);
    for (int64_t t = 0; t < a.tokens; t += step) {
        struct tri_kda_args part = kda_tokens(&a, t, step);
        tri_row_decode(want, TRI_DT_BF16, half, NULL, values);
        part.state = half;
        part.state_dtype = TRI_DT_BF16;
        kda_call(fast, chunk, &part, range);
        tri_row_decode(got, TRI_DT_BF16, half, NULL, values);
        part.state = want;
        part.state_dtype = TRI_DT_F32;
        part.o = o_want + t * outputs;
        kda_call(tri_kernels_ref(), chunk, &part, range);
        unround(got, want, values);
        compare_values(out, got, want, values, 2);
    }
    compare_values(out, o, o_want, n, 2);
    a.o = o_whole;
    a.state = whole;
    a.state_dtype = TRI_DT_BF16;
    kda_call(fast, chunk, &a, range);
    if (memcmp(whole, half, (size_t)values * 2) || memcmp(o_whole, o, (size_t)n * sizeof *o))
        out->worst = HUGE_VAL;
    for (int i = 0; i < 6; i++)
        out->worst = array_free(&arrays[i]) ? out->worst : HUGE_VAL;
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
    int64_t range[2] = { random_in(r, 0, heads - 1) };
    range[1] = random_in(r, range[0], heads);
    bool half = random_bits(r) % 2;
    snprintf(out.shape, sizeof out.shape,
             "%s state, heads %lld..%lld of %lld, width %lld, %lld tokens", half ? "bf16" : "f32",
             (long long)range[0], (long long)range[1], (long long)heads, (long long)dim,
             (long long)tokens);
    a.o = y;
    a.state = y + n;
    if (half) {
        run_half_state(&out, fast, chunk, a, range);
        memcpy(y, z, (size_t)n * sizeof *y);
    } else {
        kda_call(fast, chunk, &a, range);
        a.o = z;
        a.state = z + n;
        kda_call(tri_kernels_ref(), chunk, &a, range);
    }
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
