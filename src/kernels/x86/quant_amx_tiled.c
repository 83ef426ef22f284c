/*
 * int8 activations of some tens of tokens times weights in tiles (fmt.h) on AMX: sixteen tokens at
 * a time meet a tile of rows from its first column to its last, so that sums stay in registers and
 * weights are read as one stream. Same sums in the same order as quant_vnni.c, same bits.
 */
#if defined(__x86_64__)
#if !(defined(__AMX_INT8__) || defined(__AMXINT8__)) || !defined(__AVX512VBMI__)
#error "compile with -mamx-tile -mamx-int8 -mavx512vbmi (cmake/Kernels.cmake)"
#endif

#include <string.h>
#include "kernels/x86/quant_amx.h"
#include "kernels/x86/quant_vnni.h"

enum {
    WINDOWS = TILED_TOKENS / TOKENS,
    MOST_GROUPS = 256, /* of a row */
    VNNI_TOKENS = 6,   /* so many, and fewer, are faster there */
    AMX_AHEAD = 4 << 10,
    GROUP_REGISTERS = GROUP / 4
};

/* What windows of tokens share. */
struct walk {
    const struct tri_qmatmul_args *a;
    enum tri_dtype dtype;
    int64_t tokens; /* in windows */
    int64_t groups, row_bytes, scale_bytes;
    const uint8_t *end; /* of the weights that this thread reads */
    __m512i table;
    float (*scales)[MOST_GROUPS][TOKENS]; /* [window] */
    __m512i (*out)[FLIGHT][TOKENS];       /* [2]; beyond the tokens 0 */
};

/* Four groups' weights, signed, and a look ahead. In place if they are bytes. */
TRI_INLINE const __m512i *take(const struct walk *l, const uint8_t *w, int64_t g, int n,
                               __m512i room[FLIGHT * GROUP_REGISTERS])
{
    bool bytes = l->dtype == TRI_DT_I8G64;
    int64_t step = bytes ? GROUP * ROWS : GROUP * ROWS / 2;
    const uint8_t *from = w + g * step;
    const uint8_t *ahead = from + AMX_AHEAD < l->end ? from + AMX_AHEAD : w;
    for (int i = 0; i < n * step; i += 64)
        _mm_prefetch((const void *)(ahead + i), _MM_HINT_T0);
    if (bytes)
        return (const __m512i *)(const void *)from;
    for (int i = 0; i < n * GROUP_REGISTERS / 2; i++) {
        __m512i v = _mm512_loadu_si512(from + 64 * i);
        room[2 * i] = _mm512_permutexvar_epi8(v, l->table);
        room[2 * i + 1] = _mm512_permutexvar_epi8(_mm512_srli_epi16(v, 4), l->table);
    }
    return room;
}

TRI_INLINE __m512 weight_scale(const struct walk *l, const uint8_t *scales, int64_t g)
{
    return l->dtype == TRI_DT_I8G64 ? tile_scale(scales + g / 2 * ROWS * 2)
                                    : tile_e8m0(scales + g * ROWS);
}

TRI_INLINE void add_flight(__m512 sum[TOKENS], const struct walk *l, const uint8_t *scales,
                           const float x_scales[][TOKENS], __m512i out[FLIGHT][TOKENS], int64_t g)
{
    for (int k = 0; k < FLIGHT; k++)
        add_products(sum, out[k], weight_scale(l, scales, g + k), x_scales[g + k]);
}

/* The tile at w times sixteen tokens or fewer; four groups are multiplied while the four before are
 * added. */
TRI_INLINE void meet(__m512 sum[TOKENS], const struct walk *l, const uint8_t *w,
                     const uint8_t *scales, const int8_t *q, const float x_scales[][TOKENS])
{
    __m512i room[2][FLIGHT * GROUP_REGISTERS];
    int64_t g = 0, whole = l->groups / FLIGHT * FLIGHT, stride = l->a->x.q_stride;
    int turn = 0;
#pragma GCC unroll 16
    for (int i = 0; i < TOKENS; i++)
        sum[i] = _mm512_setzero_ps();
    for (; g < whole; g += FLIGHT, turn ^= 1) {
        four_groups(l->out[turn], q + g * GROUP, stride, take(l, w, g, FLIGHT, room[turn]));
        if (g > 0)
            add_flight(sum, l, scales, x_scales, l->out[turn ^ 1], g - FLIGHT);
    }
    if (whole)
        add_flight(sum, l, scales, x_scales, l->out[turn ^ 1], whole - FLIGHT);
    for (; g < l->groups; g++) {
        const __m512i *group = take(l, w, g, 1, room[0]);
        PRODUCTS(0, 4, 6, q + g * GROUP, stride, group);
        _tile_stored(0, l->out[0][0], 64);
        add_products(sum, l->out[0][0], weight_scale(l, scales, g), x_scales[g]);
    }
}

/* Where window i begins: the last one may begin within the one before. */
TRI_INLINE int64_t window_at(int64_t tokens, int64_t i)
{
    int64_t t = i * TOKENS;
    return tokens > TOKENS && t + TOKENS > tokens ? tokens - TOKENS : t;
}

/* The tile at `row` for all windows; of its rows `rows` are stored. */
TRI_INLINE void meet_windows(const struct walk *l, int64_t row, __mmask16 rows)
{
    const struct tri_qmatmul_args *a = l->a;
    const uint8_t *w = (const uint8_t *)a->w->data + row * l->row_bytes;
    const uint8_t *scales = (const uint8_t *)a->w->scales + row * l->scale_bytes;
    for (int64_t i = 0; i * TOKENS < l->tokens; i++) {
        int64_t t = window_at(l->tokens, i);
        float *y = a->y + t * a->y_stride + row;
        __m512 sum[TOKENS];
        meet(sum, l, w, scales, a->x.q + t * a->x.q_stride, (const float(*)[TOKENS])l->scales[i]);
#pragma GCC unroll 16
        for (int k = 0; k < TOKENS; k++)
            if (k < l->tokens)
                _mm512_mask_storeu_ps(y + k * a->y_stride, rows, sum[k]);
    }
}

/* Whole windows, and one more for a rest that is worth it; fewer tokens go to VNNI. */
TRI_INLINE void tiled(const struct tri_qmatmul_args *a, enum tri_dtype dtype, int64_t row0,
                      int64_t row1, tri_qmatmul_fn vnni)
{
    float scales[WINDOWS][MOST_GROUPS][TOKENS];
    __m512i out[2][FLIGHT][TOKENS];
    int64_t x_groups = a->x.q_stride / GROUP, rest = a->tokens % TOKENS;
    struct walk l = { .a = a,
                      .dtype = dtype,
                      .tokens = rest > VNNI_TOKENS ? a->tokens : a->tokens - rest,
                      .groups = a->w->cols / GROUP,
                      .row_bytes = (int64_t)tri_row_data_bytes(dtype, a->w->cols),
                      .scale_bytes = (int64_t)tri_row_scale_bytes(dtype, a->w->cols),
                      .table = nibble_table(dtype, true),
                      .scales = scales,
                      .out = out };
    struct tri_qmatmul_args last = *a;
    int n = l.tokens < TOKENS ? (int)l.tokens : TOKENS;
    l.end = (const uint8_t *)a->w->data + row1 * l.row_bytes;
    last.tokens = a->tokens - l.tokens;
    last.x.q += l.tokens * a->x.q_stride;
    last.x.scale += l.tokens * x_groups;
    last.x.start += l.tokens * x_groups;
    last.y += l.tokens * a->y_stride;
    memset(out, 0, sizeof out);
    configure(n);
    for (int64_t i = 0; i * TOKENS < l.tokens; i++)
        turn_scales(scales[i], a->x.scale + window_at(l.tokens, i) * x_groups, x_groups, l.groups,
                    n);
    for (int64_t row = row0 / ROWS * ROWS; row < row1; row += ROWS) {
        meet_windows(&l, row, rows_within(row, row0, row1));
        if (last.tokens)
            vnni(&last, row > row0 ? row : row0, row + ROWS < row1 ? row + ROWS : row1);
    }
    _tile_release();
}

bool tri__amx_tiled_takes(const struct tri_qmatmul_args *a)
{
    return a->w->tiled && a->tokens < TILED_TOKENS && a->w->cols <= MOST_GROUPS * GROUP;
}

void tri__amx_tiled_i8g64(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    tiled(a, TRI_DT_I8G64, row0, row1, tri__vnni_tiled_i8g64);
}

void tri__amx_tiled_mxfp4(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    tiled(a, TRI_DT_MXFP4, row0, row1, tri__vnni_tiled_mxfp4);
}
#endif
