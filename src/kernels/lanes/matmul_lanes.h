/*
 * y = W x with exact weights and float32 activations, on vec.h. Column c is added to lane c mod 16,
 * as in the reference, but fused. Four rows at a time, so that each piece of x is loaded once for
 * four; up to four tokens straight from the stored weights, more through a block of decoded ones.
 * Both add in the same order: a result does not depend on the number of tokens.
 */
#ifndef TRI_KERNELS_MATMUL_LANES_H
#define TRI_KERNELS_MATMUL_LANES_H

#include <string.h>
#include "kernels/lanes/vec.h"

#if defined(TRI_LANES)

enum {
    LANES_ROWS = 4,
    LANES_TOKENS = 4, /* register block: 4 x 4 sums */
    LANES_COLS = 256, /* decoded at once */
    LANES_CHUNK = 64  /* tokens whose sums are kept while a block of columns is added */
};

#define TRI_INLINE static inline __attribute__((always_inline))

/* Rows row .. row + 3 of a matrix; at its lower edge the last row stands in for those beyond. */
struct lanes_rows {
    const char *data[LANES_ROWS];
    const char *scales[LANES_ROWS];
};

TRI_INLINE void lanes_point(struct lanes_rows *p, const struct tri_matrix *w, int64_t row,
                            int64_t row1)
{
    for (int r = 0; r < LANES_ROWS; r++) {
        size_t at = (size_t)(row + r < row1 ? row + r : row1 - 1);
        const char *data = w->data, *scales = w->scales;
        p->data[r] = data + at * tri_row_data_bytes(w->dtype, w->cols);
        p->scales[r] = scales ? scales + at * tri_row_scale_bytes(w->dtype, w->cols) : NULL;
    }
}

TRI_INLINE float lanes_bf16(const char *scales, int64_t i)
{
    uint16_t bits;
    memcpy(&bits, scales + i * 2, sizeof bits);
    uint32_t wide = (uint32_t)bits << 16;
    float v;
    memcpy(&v, &wide, sizeof v);
    return v;
}

/* Half of an e8m0 scale, for values kept doubled (kernels.h). */
TRI_INLINE float lanes_e8m0_half(uint8_t e)
{
    uint32_t bits = e == 0 ? 0x00400000u : e == 255 ? 0x7fc00000u : (uint32_t)e << 23;
    float v;
    memcpy(&v, &bits, sizeof v);
    return 0.5f * v;
}

/* Columns [c, c + 16) of one row; c is a multiple of 16, all 16 exist. */
TRI_INLINE v16 lanes_weights(enum tri_dtype dtype, const char *data, const char *scales, int64_t c)
{
    static const int8_t int4[16] = { -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7 };
    static const int8_t e2m1x2[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
    switch (dtype) {
    case TRI_DT_F32:
        return v16_load((const float *)(const void *)(data + c * 4));
    case TRI_DT_BF16:
        return v16_bf16(data + c * 2);
    case TRI_DT_F16:
        return v16_f16(data + c * 2);
    case TRI_DT_I8G64:
        return v16_mul(v16_i8(data + c), v16_set(lanes_bf16(scales, c / TRI_I8_GROUP)));
    case TRI_DT_I4G32:
        return v16_mul(v16_nibbles(data + c / 2, int4),
                       v16_set(lanes_bf16(scales, c / TRI_I4_GROUP)));
    default: /* MXFP4: values doubled, exact halves */
        return v16_mul(v16_nibbles(data + c / 2, e2m1x2),
                       v16_set(lanes_e8m0_half((uint8_t)scales[c / TRI_MX_GROUP])));
    }
}

/* The last, incomplete 16 columns, zero beyond. */
static v16 lanes_rest(enum tri_dtype dtype, const char *data, const char *scales, int64_t c,
                      int64_t n)
{
    float out[16] = { 0 };
    tri_row_decode(out, dtype, data + tri_row_data_bytes(dtype, c),
                   scales ? scales + c / (dtype == TRI_DT_I8G64 ? TRI_I8_GROUP : TRI_I4_GROUP) *
                                         (dtype == TRI_DT_MXFP4 ? 1 : 2)
                          : NULL,
                   n);
    return v16_load(out);
}

/* n tokens (a constant) straight from the stored rows. */
TRI_INLINE void lanes_few(const struct tri_matmul_args *a, enum tri_dtype dtype, int64_t row,
                          int64_t row1, int n)
{
    struct lanes_rows p;
    v16 sum[LANES_ROWS][LANES_TOKENS];
    int64_t cols = a->w->cols, whole = cols & ~(int64_t)15, c;
    lanes_point(&p, a->w, row, row1);
    for (int r = 0; r < LANES_ROWS; r++)
        for (int t = 0; t < n; t++)
            sum[r][t] = v16_set(0);
    for (c = 0; c < whole; c += 16) {
        v16 x[LANES_TOKENS];
        for (int t = 0; t < n; t++)
            x[t] = v16_load(a->x + t * a->x_stride + c);
        for (int r = 0; r < LANES_ROWS; r++) {
            v16 w = lanes_weights(dtype, p.data[r], p.scales[r], c);
            for (int t = 0; t < n; t++)
                sum[r][t] = v16_fma(w, x[t], sum[r][t]);
        }
    }
    for (int r = 0; r < LANES_ROWS && c < cols; r++) {
        v16 w = lanes_rest(dtype, p.data[r], p.scales[r], c, cols - c);
        for (int t = 0; t < n; t++)
            sum[r][t] = v16_fma(w, v16_part(a->x + t * a->x_stride + c, cols - c), sum[r][t]);
    }
    for (int r = 0; r < LANES_ROWS && row + r < row1; r++)
        for (int t = 0; t < n; t++)
            a->y[t * a->y_stride + row + r] = v16_sum(sum[r][t]);
}

/* Decodes columns [c, c + n) of four rows, zero up to a multiple of 16. */
TRI_INLINE void lanes_decode(float out[LANES_ROWS][LANES_COLS], const struct lanes_rows *p,
                             enum tri_dtype dtype, int64_t c, int64_t n)
{
    for (int r = 0; r < LANES_ROWS; r++) {
        int64_t i = 0;
        for (; i + 16 <= n; i += 16)
            v16_store(out[r] + i, lanes_weights(dtype, p->data[r], p->scales[r], c + i));
        if (i < n)
            v16_store(out[r] + i, lanes_rest(dtype, p->data[r], p->scales[r], c + i, n - i));
    }
}

/* Adds a decoded block to the sums of `n` tokens (a constant) at x. */
TRI_INLINE void lanes_add(float sums[][LANES_ROWS][16], float w[LANES_ROWS][LANES_COLS],
                          const float *x, int64_t x_stride, int64_t cols, int n)
{
    v16 sum[LANES_ROWS][LANES_TOKENS];
    int64_t c = 0;
    for (int r = 0; r < LANES_ROWS; r++)
        for (int t = 0; t < n; t++)
            sum[r][t] = v16_load(sums[t][r]);
    for (; c + 16 <= cols; c += 16) {
        v16 in[LANES_TOKENS];
        for (int t = 0; t < n; t++)
            in[t] = v16_load(x + t * x_stride + c);
        for (int r = 0; r < LANES_ROWS; r++) {
            v16 weights = v16_load(w[r] + c);
            for (int t = 0; t < n; t++)
                sum[r][t] = v16_fma(weights, in[t], sum[r][t]);
        }
    }
    for (int r = 0; r < LANES_ROWS; r++) {
        for (int t = 0; t < n; t++) {
            if (c < cols)
                sum[r][t] = v16_fma(v16_load(w[r] + c), v16_part(x + t * x_stride + c, cols - c),
                                    sum[r][t]);
            v16_store(sums[t][r], sum[r][t]);
        }
    }
}

/* Up to LANES_CHUNK tokens through decoded blocks. */
TRI_INLINE void lanes_many(const struct tri_matmul_args *a, enum tri_dtype dtype, int64_t row,
                           int64_t row1)
{
    struct lanes_rows p;
    float sums[LANES_CHUNK][LANES_ROWS][16], w[LANES_ROWS][LANES_COLS];
    memset(sums, 0, (size_t)a->tokens * sizeof sums[0]);
    lanes_point(&p, a->w, row, row1);
    for (int64_t c = 0; c < a->w->cols; c += LANES_COLS) {
        int64_t cols = a->w->cols - c < LANES_COLS ? a->w->cols - c : LANES_COLS, t = 0;
        lanes_decode(w, &p, dtype, c, cols);
        for (; t + LANES_TOKENS <= a->tokens; t += LANES_TOKENS)
            lanes_add(sums + t, w, a->x + t * a->x_stride + c, a->x_stride, cols, LANES_TOKENS);
        for (; t < a->tokens; t++)
            lanes_add(sums + t, w, a->x + t * a->x_stride + c, a->x_stride, cols, 1);
    }
    for (int64_t t = 0; t < a->tokens; t++)
        for (int r = 0; r < LANES_ROWS && row + r < row1; r++)
            a->y[t * a->y_stride + row + r] = v16_sum(v16_load(sums[t][r]));
}

TRI_INLINE void lanes_matmul(const struct tri_matmul_args *all, enum tri_dtype dtype, int64_t row0,
                             int64_t row1)
{
    for (int64_t t = 0; t < all->tokens; t += LANES_CHUNK) {
        struct tri_matmul_args a = *all;
        a.tokens = all->tokens - t < LANES_CHUNK ? all->tokens - t : LANES_CHUNK;
        a.x += t * a.x_stride;
        a.y += t * a.y_stride;
        for (int64_t row = row0; row < row1; row += LANES_ROWS) {
            if (a.tokens == 1)
                lanes_few(&a, dtype, row, row1, 1);
            else if (a.tokens == 2)
                lanes_few(&a, dtype, row, row1, 2);
            else if (a.tokens == 4)
                lanes_few(&a, dtype, row, row1, 4);
            else
                lanes_many(&a, dtype, row, row1);
        }
    }
}

#define TRI_LANES_MATMUL(op, dtype)                                                                \
    void TRI_LANES(op)(const struct tri_matmul_args *a, int64_t row0, int64_t row1)                \
    {                                                                                              \
        lanes_matmul(a, dtype, row0, row1);                                                        \
    }

#endif
#endif
