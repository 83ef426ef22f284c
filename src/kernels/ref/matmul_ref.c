/*
 * y = W x for every storage format, through float32: a block of a row is decoded once and used for
 * several tokens. The sum order is part of the contract (kernels.h): column c is added to lane
 * c mod 16, lanes are then added pairwise.
 */
#include "kernels/kernels_priv.h"

#include <string.h>

enum {
    LANES = 16,
    BLOCK = 256, /* columns decoded at once; a multiple of LANES and of every format's group */
    TOKENS = 8   /* tokens that share one decoded block */
};

static void add_products(float *lane, const float *w, const float *x, int64_t n)
{
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += w[c + j] * x[c + j];
    for (int j = 0; c + j < n; j++)
        lane[j] += w[c + j] * x[c + j];
}

static float sum_lanes(float *lane)
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

/* One row against tokens [t0, t1), at most TOKENS of them. */
static void row_times_tokens(const struct tri_matmul_args *a, int64_t row, int64_t t0, int64_t t1)
{
    const struct tri_matrix *w = a->w;
    const char *data = w->data;
    const char *scales = w->scales;
    data += (size_t)row * tri_row_data_bytes(w->dtype, w->cols);
    if (scales)
        scales += (size_t)row * tri_row_scale_bytes(w->dtype, w->cols);
    float lane[TOKENS][LANES];
    float block[BLOCK];
    memset(lane, 0, sizeof lane);
    for (int64_t c = 0; c < w->cols; c += BLOCK) {
        int64_t n = w->cols - c < BLOCK ? w->cols - c : BLOCK;
        tri_row_decode(block, w->dtype, data + tri_row_data_bytes(w->dtype, c),
                       scales ? scales + tri_row_scale_bytes(w->dtype, c) : NULL, n);
        for (int64_t t = t0; t < t1; t++)
            add_products(lane[t - t0], block, a->x + t * a->x_stride + c, n);
    }
    for (int64_t t = t0; t < t1; t++)
        a->y[t * a->y_stride + row] = sum_lanes(lane[t - t0]);
}

void tri__ref_matmul(const struct tri_matmul_args *a, int64_t row0, int64_t row1)
{
    for (int64_t row = row0; row < row1; row++)
        for (int64_t t = 0; t < a->tokens; t += TOKENS)
            row_times_tokens(a, row, t, t + TOKENS < a->tokens ? t + TOKENS : a->tokens);
}
