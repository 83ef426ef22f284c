/*
 * int8 activations times grouped weights with the Armv8.2 dot product, as x86/quant_vnni.c does it:
 * sixteen rows in a tile whose registers hold four columns of four rows.
 */
#if defined(__aarch64__)
#if !defined(__ARM_FEATURE_DOTPROD)
#error "compile with -march=armv8.2-a+dotprod (cmake/Kernels.cmake)"
#endif

#include "kernels/arm/quant_arm.h"

enum {
    QUADS = ROWS / 4,
    COLS = 512, /* packed at once */
    TOKENS = 2  /* in registers: four int and four float sums each */
};

/* w [columns / 4][16 rows][4 columns] signed (MXFP4 doubled); scale [group of 32][16 rows]. */
struct tile {
    int8_t w[COLS / 4][ROWS][4];
    float scale[COLS / GROUP][ROWS];
};

static void pack_bytes(struct tile *tile, int r, const uint8_t *row, int64_t n)
{
    for (int64_t c = 0; c < n; c += 4) {
        memset(tile->w[c / 4][r], 0, 4);
        memcpy(tile->w[c / 4][r], row + c, (size_t)(n - c < 4 ? n - c : 4));
    }
}

static void pack_nibbles(struct tile *tile, int r, const uint8_t *row, int64_t bytes,
                         int8x16_t table)
{
    for (int64_t at = 0; at < bytes; at += 16) {
        uint8_t raw[16] = { 0 };
        int8_t low[16], high[16];
        memcpy(raw, row + at, (size_t)(bytes - at < 16 ? bytes - at : 16));
        uint8x16_t b = vld1q_u8(raw);
        vst1q_s8(low, vqtbl1q_s8(table, vandq_u8(b, vdupq_n_u8(15))));
        vst1q_s8(high, vqtbl1q_s8(table, vshrq_n_u8(b, 4)));
        for (int j = 0; j < 4; j++) {
            memcpy(tile->w[at / 2 + 2 * j][r], low + 4 * j, 4);
            memcpy(tile->w[at / 2 + 2 * j + 1][r], high + 4 * j, 4);
        }
    }
}

struct block {
    const struct tri_qmatmul_args *a;
    const struct tile *tile;
    int64_t row, rows, c, groups;
};

/* Adds the block to `n` tokens (a constant) from t on. */
TRI_INLINE void multiply(const struct block *b, int64_t t, int n)
{
    const struct tri_qrows *x = &b->a->x;
    int64_t stride = x->q_stride, x_groups = stride / GROUP;
    const int8_t *q = x->q + t * stride + b->c;
    const float *scale = x->scale + t * x_groups + b->c / GROUP;
    float *y = b->a->y + t * b->a->y_stride + b->row, keep[TOKENS][ROWS] = { { 0 } };
    float32x4_t sum[TOKENS][QUADS];
    for (int i = 0; i < n; i++) {
        if (b->c)
            memcpy(keep[i], y + i * b->a->y_stride, (size_t)b->rows * sizeof *y);
        for (int k = 0; k < QUADS; k++)
            sum[i][k] = vld1q_f32(keep[i] + 4 * k);
    }
    for (int64_t g = 0; g < b->groups; g++) {
        int32x4_t dot[TOKENS][QUADS];
        for (int i = 0; i < n; i++)
            for (int k = 0; k < QUADS; k++)
                dot[i][k] = vdupq_n_s32(0);
        for (int c = 0; c < GROUP / 4; c++) {
            for (int i = 0; i < n; i++) {
                int32_t four;
                memcpy(&four, q + i * stride + g * GROUP + c * 4, sizeof four);
                int8x16_t in = vreinterpretq_s8_s32(vdupq_n_s32(four));
                for (int k = 0; k < QUADS; k++)
                    dot[i][k] =
                        vdotq_s32(dot[i][k], vld1q_s8(b->tile->w[g * (GROUP / 4) + c][4 * k]), in);
            }
        }
        for (int i = 0; i < n; i++)
            for (int k = 0; k < QUADS; k++)
                sum[i][k] = vfmaq_f32(
                    sum[i][k], vcvtq_f32_s32(dot[i][k]),
                    vmulq_n_f32(vld1q_f32(b->tile->scale[g] + 4 * k), scale[i * x_groups + g]));
    }
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < QUADS; k++)
            vst1q_f32(keep[i] + 4 * k, sum[i][k]);
        memcpy(y + i * b->a->y_stride, keep[i], (size_t)b->rows * sizeof *y);
    }
}

static void pack(struct tile *tile, const struct block *b, int64_t n)
{
    const struct tri_matrix *w = b->a->w;
    int8x16_t table = nibble_table(w->dtype);
    for (int r = 0; r < ROWS; r++) {
        struct row row = row_of(w, b->row + (r < b->rows ? r : b->rows - 1));
        if (w->dtype == TRI_DT_I8G64)
            pack_bytes(tile, r, row.data + b->c, n);
        else
            pack_nibbles(tile, r, row.data + b->c / 2, (n + 1) / 2, table);
        for (int64_t g = 0; g < b->groups; g++)
            tile->scale[g][r] = scale_of(row.scales, w->dtype, b->c / GROUP + g);
    }
}

static void qmatmul(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    struct tile tile;
    memset(&tile, 0, sizeof tile);
    for (int64_t row = row0; row < row1; row += ROWS) {
        for (int64_t c = 0; c < a->w->cols; c += COLS) {
            int64_t n = a->w->cols - c < COLS ? a->w->cols - c : COLS, t = 0;
            struct block b = { a,   &tile,
                               row, row1 - row < ROWS ? row1 - row : ROWS,
                               c,   (n + GROUP - 1) / GROUP };
            pack(&tile, &b, n);
            for (; t + TOKENS <= a->tokens; t += TOKENS)
                multiply(&b, t, TOKENS);
            for (; t < a->tokens; t++)
                multiply(&b, t, 1);
        }
    }
}

void tri__dotprod_qmatmul_i8g64(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    qmatmul(a, row0, row1);
}

void tri__dotprod_qmatmul_i4g32(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    qmatmul(a, row0, row1);
}

void tri__dotprod_qmatmul_mxfp4(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    qmatmul(a, row0, row1);
}
#endif
