/*
 * Weights to the trunk format while they are loaded: decoded and encoded by fmt, in pieces that a
 * stack holds, whatever the width of a row.
 */
#include "kernels/kernels_priv.h"

enum { PIECE = 4096 }; /* values; whole groups of every format */

void tri__ref_encode(const struct tri_encode_args *a, int64_t row0, int64_t row1)
{
    size_t from = tri_row_data_bytes(a->from_dtype, a->cols);
    size_t data = tri_row_data_bytes(a->to, a->cols), scale = tri_row_scale_bytes(a->to, a->cols);
    for (int64_t r = row0; r < row1; r++) {
        const char *x = (const char *)a->from + (size_t)r * from;
        char *out = (char *)a->data + (size_t)r * data;
        char *scales = scale ? (char *)a->scales + (size_t)r * scale : NULL;
        float line[PIECE];
        for (int64_t c = 0; c < a->cols; c += PIECE) {
            int64_t n = a->cols - c < PIECE ? a->cols - c : PIECE;
            tri_row_decode(line, a->from_dtype, x + tri_row_data_bytes(a->from_dtype, c), NULL, n);
            tri_row_encode(out + tri_row_data_bytes(a->to, c),
                           scale ? scales + tri_row_scale_bytes(a->to, c) : NULL, a->to, line, n);
        }
    }
}
