/*
 * int8 activations times grouped weights with the Armv8.6 matrix product (SMMLA): one instruction
 * multiplies two tokens by two rows over eight columns, twice what a dot product does. Sums lie as
 * it leaves them, [token][row] of two by two, from the first column to the last: same bits as
 * quant_dotprod.c, which keeps single tokens, of which SMMLA would waste half.
 */
#if defined(__aarch64__)
#if !defined(__ARM_FEATURE_MATMUL_INT8)
#error "compile with -march=armv8.2-a+dotprod+i8mm (cmake/Kernels.cmake)"
#endif

#include "kernels/arm/quant_arm.h"

enum {
    STEP = 8,   /* columns of one product */
    COLS = 512, /* packed at once: 8 KiB of tile */
    TOKENS = 4, /* multiplied at once, with eight rows: eight int and eight float sums */
    HALF = ROWS / 2
};

/* w [columns / 8][16 rows][8 columns] signed (MXFP4 doubled); scale [group of 32][16 rows]. */
struct tile {
    int8_t w[COLS / STEP][ROWS][STEP];
    float scale[COLS / GROUP][ROWS];
};

struct block {
    const struct tri_qmatmul_args *a;
    const struct tile *tile;
    int64_t row, rows, c, groups;
};

static void pack_bytes(struct tile *tile, int r, const uint8_t *row, int64_t n)
{
    for (int64_t c = 0; c < n; c += STEP) {
        memset(tile->w[c / STEP][r], 0, STEP);
        memcpy(tile->w[c / STEP][r], row + c, (size_t)(n - c < STEP ? n - c : STEP));
    }
}

/* Four bytes hold eight columns: the four low nibbles come first, as in paired activations. */
static void pack_nibbles(struct tile *tile, int r, const uint8_t *row, int64_t bytes,
                         int8x16_t table)
{
    for (int64_t at = 0; at < bytes; at += 16) {
        uint8_t raw[16] = { 0 };
        memcpy(raw, row + at, (size_t)(bytes - at < 16 ? bytes - at : 16));
        uint8x16_t b = vld1q_u8(raw);
        int32x4_t low = vreinterpretq_s32_s8(vqtbl1q_s8(table, vandq_u8(b, vdupq_n_u8(15))));
        int32x4_t high = vreinterpretq_s32_s8(vqtbl1q_s8(table, vshrq_n_u8(b, 4)));
        int8x16_t first = vreinterpretq_s8_s32(vzip1q_s32(low, high));
        int8x16_t second = vreinterpretq_s8_s32(vzip2q_s32(low, high));
        vst1_s8(tile->w[at / 4][r], vget_low_s8(first));
        vst1_s8(tile->w[at / 4 + 1][r], vget_high_s8(first));
        vst1_s8(tile->w[at / 4 + 2][r], vget_low_s8(second));
        vst1_s8(tile->w[at / 4 + 3][r], vget_high_s8(second));
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

/* Sums of two tokens by two rows, [pair of tokens][pair of rows]. */
struct sums {
    float32x4_t of[TOKENS / 2][HALF / 2];
};

/* `rows` of y from the sums, or to them; what is beyond the tokens or rows that exist is 0. */
TRI_INLINE void move_sums(struct sums *s, float *y, int64_t y_stride, int n, int64_t rows, bool out)
{
    float line[TOKENS][HALF] = { { 0 } };
    for (int i = 0; i < n && !out; i++)
        memcpy(line[i], y + i * y_stride, (size_t)rows * sizeof *y);
    for (int p = 0; p < TOKENS / 2; p++) {
        for (int k = 0; k < HALF / 2; k++) {
            float *a = line[2 * p] + 2 * k, *b = line[2 * p + 1] + 2 * k;
            if (out) {
                vst1_f32(a, vget_low_f32(s->of[p][k]));
                vst1_f32(b, vget_high_f32(s->of[p][k]));
            } else {
                s->of[p][k] = vcombine_f32(vld1_f32(a), vld1_f32(b));
            }
        }
    }
    for (int i = 0; i < n && out; i++)
        memcpy(y + i * y_stride, line[i], (size_t)rows * sizeof *y);
}

/* The four tokens of a product. A token that is not there stands for the last, and is not kept. */
struct inputs {
    const int8_t *q[TOKENS];
    const float *scale[TOKENS];
};

TRI_INLINE void add_group(struct sums *s, const struct inputs *in, const struct tile *tile,
                          int64_t g, int half)
{
    int32x4_t dot[TOKENS / 2][HALF / 2];
    for (int p = 0; p < TOKENS / 2; p++)
        for (int k = 0; k < HALF / 2; k++)
            dot[p][k] = vdupq_n_s32(0);
    for (int c = 0; c < GROUP / STEP; c++) {
        const int8_t *w = tile->w[g * (GROUP / STEP) + c][half * HALF];
        int64_t at = g * GROUP + c * STEP;
        for (int p = 0; p < TOKENS / 2; p++) {
            int8x16_t x = vcombine_s8(vld1_s8(in->q[2 * p] + at), vld1_s8(in->q[2 * p + 1] + at));
            for (int k = 0; k < HALF / 2; k++)
                dot[p][k] = vmmlaq_s32(dot[p][k], x, vld1q_s8(w + 2 * STEP * k));
        }
    }
    for (int p = 0; p < TOKENS / 2; p++) {
        float32x4_t scale =
            vcombine_f32(vdup_n_f32(in->scale[2 * p][g]), vdup_n_f32(in->scale[2 * p + 1][g]));
        for (int k = 0; k < HALF / 2; k++) {
            float32x2_t weight = vld1_f32(tile->scale[g] + half * HALF + 2 * k);
            s->of[p][k] = vfmaq_f32(s->of[p][k], vcvtq_f32_s32(dot[p][k]),
                                    vmulq_f32(vcombine_f32(weight, weight), scale));
        }
    }
}

/* Adds the block to tokens [t, t + n), n <= TOKENS, for eight of the rows. */
static void multiply(const struct block *b, int64_t t, int n, int half)
{
    const struct tri_qrows *x = &b->a->x;
    int64_t groups = x->q_stride / GROUP, rows = b->rows - half * HALF;
    float *y = b->a->y + t * b->a->y_stride + b->row + half * HALF;
    struct inputs in;
    struct sums s;
    for (int i = 0; i < TOKENS; i++) {
        int64_t token = t + (i < n ? i : n - 1);
        in.q[i] = x->q + token * x->q_stride + b->c;
        in.scale[i] = x->scale + token * groups + b->c / GROUP;
    }
    rows = rows < HALF ? rows : HALF;
    move_sums(&s, y, b->a->y_stride, b->c ? n : 0, rows, false);
    for (int64_t g = 0; g < b->groups; g++)
        add_group(&s, &in, b->tile, g, half);
    move_sums(&s, y, b->a->y_stride, n, rows, true);
}

static void qmatmul(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    struct tile tile;
    memset(&tile, 0, sizeof tile);
    for (int64_t row = row0; row < row1; row += ROWS) {
        for (int64_t c = 0; c < a->w->cols; c += COLS) {
            int64_t n = a->w->cols - c < COLS ? a->w->cols - c : COLS;
            struct block b = { a,   &tile,
                               row, row1 - row < ROWS ? row1 - row : ROWS,
                               c,   (n + GROUP - 1) / GROUP };
            pack(&tile, &b, n);
            for (int half = 0; half < 2 && half * HALF < b.rows; half++)
                for (int64_t t = 0; t < a->tokens; t += TOKENS)
                    multiply(&b, t, (int)(a->tokens - t < TOKENS ? a->tokens - t : TOKENS), half);
        }
    }
}

void tri__i8mm_qmatmul_i8g64(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    if (a->tokens == 1)
        tri__dotprod_qmatmul_i8g64(a, row0, row1);
    else
        qmatmul(a, row0, row1);
}

void tri__i8mm_qmatmul_i4g32(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    if (a->tokens == 1)
        tri__dotprod_qmatmul_i4g32(a, row0, row1);
    else
        qmatmul(a, row0, row1);
}

void tri__i8mm_qmatmul_mxfp4(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    if (a->tokens == 1)
        tri__dotprod_qmatmul_mxfp4(a, row0, row1);
    else
        qmatmul(a, row0, row1);
}
#endif
