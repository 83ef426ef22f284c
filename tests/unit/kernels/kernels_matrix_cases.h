/* Cases of the matrix products and of quantisation. Included by kernels_cases.h. */
#ifndef TRI_TESTS_KERNELS_MATRIX_CASES_H
#define TRI_TESTS_KERNELS_MATRIX_CASES_H

/* Sum of |w| |x| for every result: what a product's rounding errors are relative to. */
static double *product_sizes(const struct tri_matrix *w, const float *x, int64_t x_stride,
                             int64_t tokens)
{
    double *size = malloc((size_t)(tokens * w->rows) * sizeof *size);
    float *line = malloc((size_t)w->cols * sizeof *line);
    for (int64_t r = 0; r < w->rows && size && line; r++) {
        const char *data = w->data, *scales = w->scales;
        tri_row_decode(line, w->dtype, data + (size_t)r * tri_row_data_bytes(w->dtype, w->cols),
                       scales ? scales + (size_t)r * tri_row_scale_bytes(w->dtype, w->cols) : NULL,
                       w->cols);
        for (int64_t t = 0; t < tokens; t++) {
            double sum = 1e-30;
            for (int64_t c = 0; c < w->cols; c++)
                sum += fabs((double)line[c] * (double)x[t * x_stride + c]);
            size[t * w->rows + r] = sum;
        }
    }
    free(line);
    return size;
}

static int64_t random_tokens(struct random *r)
{
    static const int64_t some[] = { 1, 1, 2, 3, 4, 5, 8, 9, 13, 17, 35, 70 };
    return some[random_bits(r) % (sizeof some / sizeof some[0])];
}

static int64_t random_cols(struct random *r, enum tri_dtype dtype)
{
    int64_t cols = random_in(r, 1, 700);
    return dtype == TRI_DT_MXFP4 ? (cols + 31) & ~(int64_t)31 : cols;
}

/* As many as any variant takes at once, now and then. */
enum { MANY_TOKENS = 128 };

/* One of the tokens, alone and in a part of the rows, has the same bits. */
static bool same_alone(struct tri_matmul_args *a, tri_matmul_fn fn, int64_t row0, int64_t row1,
                       struct random *r)
{
    float one[512] = { 0 };
    int64_t t = random_in(r, 0, a->tokens - 1), first = random_in(r, row0, row1);
    const float *many = a->y + t * a->y_stride;
    a->x += t * a->x_stride;
    a->y = one;
    a->tokens = 1;
    fn(a, first, row1);
    return !memcmp(one + first, many + first, (size_t)(row1 - first) * sizeof *one);
}

static struct outcome run_matmul(const struct kernel_case *c, const struct tri_kernels *fast,
                                 struct random *r)
{
    int64_t rows = random_in(r, 1, 50), tokens = random_tokens(r), cols = random_cols(r, c->dtype);
    tokens += random_bits(r) % 8 == 0 ? MANY_TOKENS : 0;
    rows += random_bits(r) % 4 == 0 ? 64 : 0;
    cols = random_bits(r) % 2 ? (cols + 31) & ~(int64_t)31 : cols;
    int64_t row0 = random_in(r, 0, rows - 1), row1 = random_in(r, row0, rows);
    int64_t x_stride = cols + random_in(r, 0, 3), y_stride = rows + random_in(r, 0, 3);
    struct outcome out = { 0 };
    struct matrix_case m;
    struct array ax, ag, aw;
    matrix_new(&m, c->dtype, rows, cols, r);
    const float *x = array_floats(&ax, (tokens - 1) * x_stride + cols, r, 1);
    float *got = array_floats(&ag, (tokens - 1) * y_stride + rows, NULL, 0);
    float *want = array_floats(&aw, (tokens - 1) * y_stride + rows, NULL, 0);
    struct tri_matmul_args a = { &m.w, x, x_stride, got, y_stride, tokens };
    snprintf(out.shape, sizeof out.shape, "[%lld..%lld of %lld][%lld], %lld tokens",
             (long long)row0, (long long)row1, (long long)rows, (long long)cols, (long long)tokens);
    tri_kernels_matmul(fast, c->dtype)(&a, row0, row1);
    bool same = same_alone(&a, tri_kernels_matmul(fast, c->dtype), row0, row1, r);
    a.y = want;
    a.tokens = tokens;
    a.x = x;
    tri_kernels_matmul(tri_kernels_ref(), c->dtype)(&a, row0, row1);
    double *size = product_sizes(&m.w, x, x_stride, tokens);
    for (int64_t t = 0; t < tokens; t++)
        outcome_add(&out, got + t * y_stride, want + t * y_stride, size + t * rows, 0, rows);
    free(size);
    bool whole = array_free(&ax) && same;
    whole = array_free(&ag) && whole;
    whole = array_free(&aw) && whole;
    if (!matrix_free(&m) || !whole)
        out.worst = HUGE_VAL;
    return out;
}

/* What products of few tokens take from a row at once, and those of many of the tokens: now and
 * then in a test there is more. */
enum { WIDE_COLS = 8192, BLOCK_OF_TOKENS = 512 };

struct q_arrays {
    struct array q, scale, start;
    struct tri_qrows rows;
};
static void q_new(struct q_arrays *a, int64_t cols, int64_t tokens, bool paired)
{
    int64_t stride = tri_q_stride(cols), groups = tokens * (stride / TRI_Q_GROUP);
    a->rows = (struct tri_qrows){ .q_stride = stride, .paired = paired };
    a->rows.q = array_new(&a->q, (size_t)(tokens * stride));
    a->rows.scale = array_new(&a->scale, (size_t)groups * 4);
    a->rows.start = array_new(&a->start, (size_t)groups * 4);
}
static bool q_free(struct q_arrays *a)
{
    bool whole = array_free(&a->q);
    whole = array_free(&a->scale) && whole;
    return array_free(&a->start) && whole;
}

/* Also zeros, tiny groups and a NaN now and then. */
static struct outcome run_quantise(const struct kernel_case *c, const struct tri_kernels *fast,
                                   struct random *r)
{
    (void)c;
    int64_t cols = random_in(r, 1, 700), tokens = random_tokens(r);
    struct outcome out = { 0 };
    struct array ax;
    struct q_arrays got, want;
    float *x = array_floats(&ax, tokens * cols, r, 3);
    if (random_bits(r) % 4 == 0)
        x[random_in(r, 0, tokens * cols - 1)] = random_bits(r) % 2 ? NAN : -INFINITY;
    if (random_bits(r) % 4 == 0)
        for (int64_t i = 0; i < tokens * cols / 2; i++)
            x[i] *= random_bits(r) % 2 ? 0 : 1e-38f;
    bool paired = random_bits(r) % 2;
    q_new(&got, cols, tokens, paired);
    q_new(&want, cols, tokens, paired);
    fast->quantise(&(struct tri_quantise_args){ x, cols, cols, got.rows }, 0, tokens);
    tri_kernels_ref()->quantise(&(struct tri_quantise_args){ x, cols, cols, want.rows }, 0, tokens);
    snprintf(out.shape, sizeof out.shape, "[%lld][%lld]%s", (long long)tokens, (long long)cols,
             paired ? " paired" : "");
    if (memcmp(got.rows.q, want.rows.q, got.q.bytes) ||
        memcmp(got.rows.start, want.rows.start, got.start.bytes))
        out.worst = 1e9;
    outcome_add(&out, got.rows.scale, want.rows.scale, NULL, 1e-30, (int64_t)(got.scale.bytes / 4));
    bool whole = q_free(&got);
    whole = q_free(&want) && whole;
    if (!array_free(&ax) || !whole)
        out.worst = HUGE_VAL;
    return out;
}

static void matrix_tile(struct matrix_case *m)
{
    void *room = malloc(tri_tile_room_bytes(m->w.dtype, m->w.cols));
    size_t data = tri_row_data_bytes(m->w.dtype, m->w.cols) * TRI_TILE_ROWS;
    size_t scales = tri_row_scale_bytes(m->w.dtype, m->w.cols) * TRI_TILE_ROWS;
    for (int64_t i = 0; room && i < m->w.rows / TRI_TILE_ROWS; i++)
        tri_tile_rows(m->w.dtype, m->data.base + (size_t)i * data,
                      m->scales.base + (size_t)i * scales, m->w.cols, room);
    m->w.tiled = true;
    free(room);
}

static struct outcome run_qmatmul(const struct kernel_case *c, const struct tri_kernels *fast,
                                  struct random *r)
{
    int64_t rows = random_in(r, 1, 70), tokens = random_tokens(r), cols = random_cols(r, c->dtype);
    bool tiles = tri_kernels_tiles(fast, c->dtype);
    if (tiles && random_bits(r) % 2) {
        rows = (rows + TRI_TILE_ROWS - 1) / TRI_TILE_ROWS * TRI_TILE_ROWS;
        cols = (cols + TRI_I8_GROUP - 1) / TRI_I8_GROUP * TRI_I8_GROUP;
        cols += c->dtype == TRI_DT_MXFP4 && random_bits(r) % 2 ? TRI_MX_GROUP : 0;
    }
    int64_t row0 = random_in(r, 0, rows - 1);
    cols += (tokens == 1 || tokens == 9) && random_bits(r) % 4 == 0 ? WIDE_COLS : 0;
    tokens += random_bits(r) % 16 == 0 ? BLOCK_OF_TOKENS : 0;
    int64_t row1 = random_in(r, row0, rows), y_stride = rows + random_in(r, 0, 3);
    struct outcome out = { 0 };
    struct matrix_case m;
    struct q_arrays x;
    struct array af, ag, aw;
    matrix_new(&m, c->dtype, rows, cols, r);
    const float *f = array_floats(&af, tokens * cols, r, 1);
    q_new(&x, cols, tokens, c->dtype != TRI_DT_I8G64);
    tri_kernels_ref()->quantise(&(struct tri_quantise_args){ f, cols, cols, x.rows }, 0, tokens);
    if (random_bits(r) % 8 == 0) /* the ends of e8m0, or some odd bf16 */
        for (size_t i = 0; i < m.scales.bytes; i += 1 + random_bits(r) % 9)
            m.scales.base[i] = (char)random_bits(r);
    float *got = array_floats(&ag, (tokens - 1) * y_stride + rows, NULL, 0);
    float *want = array_floats(&aw, (tokens - 1) * y_stride + rows, NULL, 0);
    struct tri_qmatmul_args a = { &m.w, x.rows, want, y_stride, tokens };
    snprintf(out.shape, sizeof out.shape, "[%lld..%lld of %lld][%lld], %lld tokens",
             (long long)row0, (long long)row1, (long long)rows, (long long)cols, (long long)tokens);
    tri_kernels_qmatmul(tri_kernels_ref(), c->dtype)(&a, row0, row1);
    a.y = got;
    if (tiles && tri_tile_fits(c->dtype, rows, cols) && random_bits(r) % 3)
        matrix_tile(&m);
    tri_kernels_qmatmul(fast, c->dtype)(&a, row0, row1);
    outcome_add(&out, got, want, NULL, 1e-30, (tokens - 1) * y_stride + rows);
    bool whole = array_free(&af);
    whole = array_free(&ag) && whole;
    whole = array_free(&aw) && whole;
    whole = q_free(&x) && whole;
    if (!matrix_free(&m) || !whole)
        out.worst = HUGE_VAL;
    return out;
}

/* A row of any bits or of any size; now and then one value is no number, or a group vanishes. */
static void random_row(float *line, int64_t cols, struct random *r)
{
    float size = ldexpf(1, (int)random_in(r, -140, 120));
    for (int64_t i = 0; i < cols; i++) {
        uint32_t bits = random_bits(r);
        line[i] = random_float(r) * size;
        if (size < 0x1p-80f && bits % 2)
            memcpy(&line[i], &bits, sizeof bits);
    }
    if (random_bits(r) % 4 == 0)
        line[random_in(r, 0, cols - 1)] = random_bits(r) % 2 ? NAN : -INFINITY;
    for (int64_t i = random_in(r, 0, cols); i < cols; i += 1 + random_bits(r) % 90)
        line[i] = 0;
}

static struct outcome run_encode(const struct kernel_case *c, const struct tri_kernels *fast,
                                 struct random *r)
{
    static const enum tri_dtype froms[] = { TRI_DT_BF16, TRI_DT_BF16, TRI_DT_F32, TRI_DT_F16 };
    static const enum tri_dtype tos[] = { TRI_DT_I8G64, TRI_DT_I4G32, TRI_DT_I8G64,
                                          TRI_DT_I4G32, TRI_DT_BF16,  TRI_DT_F32 };
    (void)c;
    enum tri_dtype from = froms[random_bits(r) % 4], to = tos[random_bits(r) % 6];
    int64_t cols = random_in(r, 1, 700), rows = random_in(r, 1, 5), row0 = random_in(r, 0, rows);
    cols += random_bits(r) % 8 == 0 ? WIDE_COLS : 0;
    size_t in = tri_row_data_bytes(from, cols), odd = random_bits(r) % 4;
    struct outcome out = { 0 };
    struct array ax, data[2], scales[2];
    char *x = array_new(&ax, odd + in * (size_t)rows);
    float *line = malloc((size_t)cols * sizeof *line);
    for (int64_t i = 0; i < rows && line; i++) {
        random_row(line, cols, r);
        tri_row_encode(x + odd + (size_t)i * in, NULL, from, line, cols);
    }
    free(line);
    snprintf(out.shape, sizeof out.shape, "[%lld..%lld][%lld] %s to %s", (long long)row0,
             (long long)rows, (long long)cols, tri_dtype_name(from), tri_dtype_name(to));
    for (int i = 0; i < 2; i++) {
        const struct tri_kernels *k = i ? tri_kernels_ref() : fast;
        struct tri_encode_args a = { .from = x + odd, .from_dtype = from, .to = to, .cols = cols };
        a.data = array_new(&data[i], tri_row_data_bytes(to, cols) * (size_t)rows);
        a.scales = array_new(&scales[i], tri_row_scale_bytes(to, cols) * (size_t)rows);
        k->encode(&a, row0, rows);
    }
    if (memcmp(data[0].base, data[1].base, data[0].bytes) ||
        memcmp(scales[0].base, scales[1].base, scales[0].bytes))
        out.worst = 1e9;
    bool whole = array_free(&ax);
    for (int i = 0; i < 2; i++) {
        whole = array_free(&data[i]) && whole;
        whole = array_free(&scales[i]) && whole;
    }
    if (!whole)
        out.worst = HUGE_VAL;
    return out;
}

/* Weights of several MB, so that one token measures the stream from memory. */
enum { BENCH_ROWS = 4096, BENCH_COLS = 1024 };

static void bench_weights(struct matrix_case *m, enum tri_dtype dtype)
{
    static struct matrix_case kept[TRI_DTYPES];
    struct random r = { 5 };
    if (!kept[dtype].data.base)
        matrix_new(&kept[dtype], dtype, BENCH_ROWS, BENCH_COLS, &r);
    *m = kept[dtype];
}

static void bench_matmul(const struct kernel_case *c, const struct tri_kernels *k, int64_t tokens,
                         double *bytes, double *products)
{
    static float x[512 * BENCH_COLS], y[512 * BENCH_ROWS];
    struct matrix_case m;
    bench_weights(&m, c->dtype);
    struct tri_matmul_args a = { &m.w, x, BENCH_COLS, y, BENCH_ROWS, tokens };
    tri_kernels_matmul(k, c->dtype)(&a, 0, BENCH_ROWS);
    *bytes = (double)(m.data.bytes + m.scales.bytes);
    *products = (double)tokens * BENCH_ROWS * BENCH_COLS;
}

static void bench_qmatmul(const struct kernel_case *c, const struct tri_kernels *k, int64_t tokens,
                          double *bytes, double *products)
{
    static struct q_arrays x;
    static float y[512 * BENCH_ROWS];
    struct matrix_case m;
    bench_weights(&m, c->dtype);
    if (!x.rows.q)
        q_new(&x, BENCH_COLS, 512, false);
    x.rows.paired = c->dtype != TRI_DT_I8G64;
    struct tri_qmatmul_args a = { &m.w, x.rows, y, BENCH_ROWS, tokens };
    tri_kernels_qmatmul(k, c->dtype)(&a, 0, BENCH_ROWS);
    *bytes = (double)(m.data.bytes + m.scales.bytes);
    *products = (double)tokens * BENCH_ROWS * BENCH_COLS;
}

static void bench_quantise(const struct kernel_case *c, const struct tri_kernels *k, int64_t tokens,
                           double *bytes, double *products)
{
    (void)c;
    static struct q_arrays x;
    static float f[512 * BENCH_COLS];
    if (!x.rows.q)
        q_new(&x, BENCH_COLS, 512, false);
    for (int i = 0; i < 512 && f[1] == 0; i++)
        f[i] = (float)(i * 7 % 61);
    k->quantise(&(struct tri_quantise_args){ f, BENCH_COLS, BENCH_COLS, x.rows }, 0, tokens);
    *bytes = (double)tokens * BENCH_COLS * 4;
    *products = (double)tokens * BENCH_COLS;
}

/* bf16 rows of K3's width, in and out of the second-level cache: int8 at 1 and 64, int4 at 4 and
 * 512 "tokens". */
static void bench_encode(const struct kernel_case *c, const struct tri_kernels *k, int64_t tokens,
                         double *bytes, double *products)
{
    enum { COLS = 7168, ROWS = 2048 };
    static uint16_t x[ROWS * COLS];
    static char data[ROWS * COLS], scales[ROWS * COLS / 16];
    (void)c;
    for (int i = 0; i < ROWS * COLS && x[1] == 0; i++)
        x[i] = tri_bf16_encode((float)(i * 7919 % 6133 - 3000));
    int64_t rows = tokens < 64 ? 64 : ROWS;
    bool i8 = tokens == 1 || tokens == 64;
    struct tri_encode_args a = { .from = x,
                                 .from_dtype = TRI_DT_BF16,
                                 .to = i8 ? TRI_DT_I8G64 : TRI_DT_I4G32,
                                 .cols = COLS,
                                 .data = data,
                                 .scales = scales };
    k->encode(&a, 0, rows);
    *bytes = (double)rows * COLS * 2;
    *products = (double)rows * COLS;
}

#endif
