/*
 * int8 activations of some tens of tokens times weights in tiles (fmt.h) with AVX-512 VNNI. A
 * register of the tile is four bytes of sixteen rows, so that nothing is transposed and the weights
 * are read as one stream, once for all tokens: up to eight meet a tile at a time, the next eight
 * find it in the cache. Same sums in the same order as quant_vnni.c, same bits.
 */
#if defined(__x86_64__)
#if !defined(__AVX512VNNI__) || !defined(__AVX512VBMI__)
#error "compile with -mavx512vnni -mavx512vbmi (cmake/Kernels.cmake)"
#endif

#include "kernels/x86/quant_tile.h"
#include "kernels/x86/quant_vnni.h"

enum {
    AT_ONCE = 8,          /* tokens: their int and float sums stay in registers */
    TILED_AHEAD = 4 << 10 /* bytes of prefetch along the stream */
};

/* What a tile meets: its bytes, where the thread's rows end, and the activations from token t on.
 */
struct walk {
    const struct tri_qmatmul_args *a;
    int64_t t;
    const uint8_t *w, *scales, *end;
    __m512i table; /* of nibbles */
};

TRI_INLINE __m512i four(const int8_t *q)
{
    int32_t v;
    __builtin_memcpy(&v, q, sizeof v);
    return _mm512_set1_epi32(v);
}

TRI_INLINE void prefetch(const struct walk *l, const uint8_t *w, int bytes)
{
    const uint8_t *ahead = w + TILED_AHEAD < l->end ? w + TILED_AHEAD : l->w;
#pragma GCC unroll 8
    for (int i = 0; i < bytes; i += 64)
        _mm_prefetch((const void *)(ahead + i), _MM_HINT_T0);
}

/* Adds the 32 columns of group g to n tokens (a constant). */
TRI_INLINE void add_group(__m512 *sum, const struct walk *l, enum tri_dtype dtype, int64_t g, int n)
{
    const struct tri_qrows *x = &l->a->x;
    bool bytes = dtype == TRI_DT_I8G64;
    int step = bytes ? GROUP * ROWS : GROUP * ROWS / 2;
    int64_t groups = x->q_stride / GROUP, at = l->t * groups + g;
    const uint8_t *w = l->w + g * step;
    const int8_t *q = x->q + at * GROUP;
    __m512i dot[AT_ONCE];
    prefetch(l, w, step);
    for (int t = 0; t < n; t++)
        dot[t] = _mm512_set1_epi32(x->start[t * groups + at]);
#pragma GCC unroll 8
    for (int k = 0; k < step / 64; k++) {
        __m512i v = _mm512_loadu_si512(w + 64 * k);
        if (bytes) {
            v = _mm512_xor_si512(v, _mm512_set1_epi8((char)0x80));
            for (int t = 0; t < n; t++)
                dot[t] = _mm512_dpbusd_epi32(dot[t], v, four(q + t * x->q_stride + 4 * k));
        } else {
            __m512i low = _mm512_permutexvar_epi8(v, l->table);
            __m512i high = _mm512_permutexvar_epi8(_mm512_srli_epi16(v, 4), l->table);
            for (int t = 0; t < n; t++) {
                const int8_t *qt = q + t * x->q_stride + 8 * k;
                dot[t] = _mm512_dpbusd_epi32(dot[t], low, four(qt));
                dot[t] = _mm512_dpbusd_epi32(dot[t], high, four(qt + 4));
            }
        }
    }
    __m512 weight =
        bytes ? tile_scale(l->scales + g / 2 * ROWS * 2) : tile_e8m0(l->scales + g * ROWS);
    for (int t = 0; t < n; t++)
        sum[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t]),
                                 _mm512_mul_ps(weight, _mm512_set1_ps(x->scale[t * groups + at])),
                                 sum[t]);
}

/* The tile at `row` times n tokens (a constant); of its rows those of the mask are stored. */
TRI_INLINE void tile(const struct walk *l, enum tri_dtype dtype, int64_t row, __mmask16 rows, int n)
{
    float *y = l->a->y + l->t * l->a->y_stride + row;
    __m512 sum[AT_ONCE];
    for (int t = 0; t < n; t++)
        sum[t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < l->a->w->cols / GROUP; g++)
        add_group(sum, l, dtype, g, n);
    for (int t = 0; t < n; t++)
        _mm512_mask_storeu_ps(y + t * l->a->y_stride, rows, sum[t]);
}

TRI_INLINE void some_tokens(const struct walk *l, enum tri_dtype dtype, int64_t row, __mmask16 rows,
                            int64_t n)
{
    switch (n) {
    case 1:
        tile(l, dtype, row, rows, 1);
        break;
    case 2:
        tile(l, dtype, row, rows, 2);
        break;
    case 3:
        tile(l, dtype, row, rows, 3);
        break;
    case 4:
        tile(l, dtype, row, rows, 4);
        break;
    case 5:
        tile(l, dtype, row, rows, 5);
        break;
    case 6:
        tile(l, dtype, row, rows, 6);
        break;
    case 7:
        tile(l, dtype, row, rows, 7);
        break;
    default:
        tile(l, dtype, row, rows, AT_ONCE);
    }
}

TRI_INLINE void tiles(const struct tri_qmatmul_args *a, enum tri_dtype dtype, int64_t row0,
                      int64_t row1)
{
    int64_t row_bytes = (int64_t)tri_row_data_bytes(dtype, a->w->cols);
    int64_t scale_bytes = (int64_t)tri_row_scale_bytes(dtype, a->w->cols);
    const uint8_t *data = a->w->data, *scales = a->w->scales;
    struct walk l = { .a = a, .end = data + row1 * row_bytes, .table = nibble_table(dtype, false) };
    for (int64_t row = row0 / ROWS * ROWS; row < row1; row += ROWS) {
        l.w = data + row * row_bytes;
        l.scales = scales + row * scale_bytes;
        for (l.t = 0; l.t < a->tokens; l.t += AT_ONCE)
            some_tokens(&l, dtype, row, rows_within(row, row0, row1),
                        a->tokens - l.t < AT_ONCE ? a->tokens - l.t : AT_ONCE);
    }
}

void tri__vnni_tiled_i8g64(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    tiles(a, TRI_DT_I8G64, row0, row1);
}

void tri__vnni_tiled_mxfp4(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    tiles(a, TRI_DT_MXFP4, row0, row1);
}
#endif
