/* What the aarch64 products of int8 activations share: rows, scales and the tables of nibbles. */
#ifndef TRI_KERNELS_QUANT_ARM_H
#define TRI_KERNELS_QUANT_ARM_H
#if defined(__aarch64__)

#include <arm_neon.h>
#include <string.h>
#include "kernels/kernels_priv.h"

enum { ROWS = TRI_QTILE_ROWS, GROUP = TRI_Q_GROUP };

#define TRI_INLINE static inline __attribute__((always_inline))

struct row {
    const uint8_t *data, *scales;
};

static inline struct row row_of(const struct tri_matrix *w, int64_t row)
{
    size_t at = (size_t)row;
    struct row r = { w->data, w->scales };
    r.data += at * tri_row_data_bytes(w->dtype, w->cols);
    r.scales += at * tri_row_scale_bytes(w->dtype, w->cols);
    return r;
}

/* Values of the nibbles; those of MXFP4 are doubled, and scale_of halves. */
static inline int8x16_t nibble_table(enum tri_dtype dtype)
{
    static const int8_t tables[2][16] = {
        { -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7 },
        { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 }
    };
    return vld1q_s8(tables[dtype == TRI_DT_MXFP4]);
}

/* The weights' scale of group g of 32 columns. */
static inline float scale_of(const uint8_t *scales, enum tri_dtype dtype, int64_t g)
{
    uint32_t bits;
    float value;
    if (dtype == TRI_DT_MXFP4) {
        uint32_t e = scales[g];
        bits = e == 255 ? 0x7fc00000u : (e ? e - 1 : 0) << 23;
    } else {
        uint16_t half;
        memcpy(&half, scales + 2 * (dtype == TRI_DT_I8G64 ? g / 2 : g), sizeof half);
        bits = (uint32_t)half << 16;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
#endif
