/*
 * int8 activations of up to eight tokens times int8 weights in tiles (fmt.h) with AVX-512 VNNI. A
 * register of the tile is four columns of sixteen rows, so that nothing is transposed and the
 * weights are read as one stream, once for all tokens. Same sums in the same order as
 * quant_vnni.c, same bits.
 */
#if defined(__x86_64__)
#if !defined(__AVX512VNNI__) || !defined(__AVX512VBMI__)
#error "compile with -mavx512vnni -mavx512vbmi (cmake/Kernels.cmake)"
#endif

#include "kernels/x86/quant_tile.h"
#include "kernels/x86/quant_vnni.h"

enum {
    STEP_COLS = TRI_I8_GROUP,
    STEP_BYTES = STEP_COLS * ROWS, /* of a tile */
    TILED_AHEAD = 4 << 10          /* bytes of prefetch along the stream */
};

/* What a tile meets: its bytes, where the thread's rows end, and the activations. */
struct walk {
    const struct tri_qmatmul_args *a;
    const uint8_t *w, *scales, *end;
};

TRI_INLINE __m512i four(const int8_t *q)
{
    int32_t v;
    __builtin_memcpy(&v, q, sizeof v);
    return _mm512_set1_epi32(v);
}

/* Adds 32 columns, groups 2 * step + half of the activations, to n tokens (a constant). */
TRI_INLINE void add_group(__m512 *sum, const struct walk *l, int64_t step, int half, int n)
{
    const struct tri_qrows *x = &l->a->x;
    const uint8_t *w = l->w + step * STEP_BYTES + half * (STEP_BYTES / 2);
    int64_t groups = x->q_stride / GROUP, g = 2 * step + half;
    const int8_t *q = x->q + g * GROUP;
    __m512i dot[TILED_TOKENS];
    for (int t = 0; t < n; t++)
        dot[t] = _mm512_set1_epi32(x->start[t * groups + g]);
#pragma GCC unroll 8
    for (int k = 0; k < GROUP / 4; k++) {
        __m512i v = _mm512_xor_si512(_mm512_loadu_si512(w + 64 * k), _mm512_set1_epi8((char)0x80));
        for (int t = 0; t < n; t++)
            dot[t] = _mm512_dpbusd_epi32(dot[t], v, four(q + t * x->q_stride + 4 * k));
    }
    __m512 weight = tile_scale(l->scales + step * ROWS * 2);
    for (int t = 0; t < n; t++)
        sum[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t]),
                                 _mm512_mul_ps(weight, _mm512_set1_ps(x->scale[t * groups + g])),
                                 sum[t]);
}

/* The tile at `row` times n tokens (a constant); rows from row0 to row1 are stored. */
TRI_INLINE void tile(const struct walk *l, int64_t row, int64_t row0, int64_t row1, int n)
{
    __m512 sum[TILED_TOKENS];
    __mmask16 rows = rows_within(row, row0, row1);
    for (int t = 0; t < n; t++)
        sum[t] = _mm512_setzero_ps();
    for (int64_t s = 0; s < l->a->w->cols / STEP_COLS; s++) {
        const uint8_t *ahead = l->w + s * STEP_BYTES + TILED_AHEAD;
        ahead = ahead < l->end ? ahead : l->w; /* behind it is another thread's */
#pragma GCC unroll 16
        for (int i = 0; i < STEP_BYTES / 64; i++)
            _mm_prefetch((const void *)(ahead + 64 * i), _MM_HINT_T0);
        add_group(sum, l, s, 0, n);
        add_group(sum, l, s, 1, n);
    }
    for (int t = 0; t < n; t++)
        _mm512_mask_storeu_ps(l->a->y + t * l->a->y_stride + row, rows, sum[t]);
}

TRI_INLINE void tiles(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1, int n)
{
    int64_t cols = a->w->cols;
    const uint8_t *data = a->w->data, *scales = a->w->scales;
    for (int64_t row = row0 / ROWS * ROWS; row < row1; row += ROWS) {
        struct walk l = { a, data + row * cols, scales + row * cols / 32, data + row1 * cols };
        tile(&l, row, row0, row1, n);
    }
}

void tri__vnni_tiled(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    switch (a->tokens) {
    case 1:
        tiles(a, row0, row1, 1);
        break;
    case 2:
        tiles(a, row0, row1, 2);
        break;
    case 3:
        tiles(a, row0, row1, 3);
        break;
    case 4:
        tiles(a, row0, row1, 4);
        break;
    case 5:
        tiles(a, row0, row1, 5);
        break;
    case 6:
        tiles(a, row0, row1, 6);
        break;
    case 7:
        tiles(a, row0, row1, 7);
        break;
    default:
        tiles(a, row0, row1, TILED_TOKENS);
    }
}
#endif
