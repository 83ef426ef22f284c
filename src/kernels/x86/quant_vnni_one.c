/*
 * int8 activations of one token times grouped weights with AVX-512 VNNI. Decode reads every weight
 * once, so nothing is gained from transposing them first, as quant_vnni.c does: here each row is
 * read as it lies, one stream for the prefetcher, and only the sums of its groups are transposed,
 * a sixteenth to a thirty-second of the bytes. Same sums in the same order, same bits.
 */
#if defined(__x86_64__)
#if !defined(__AVX512VNNI__) || !defined(__AVX512VBMI__)
#error "compile with -mavx512vnni -mavx512vbmi (cmake/Kernels.cmake)"
#endif

#include <string.h>
#include "kernels/x86/quant_tile.h"
#include "kernels/x86/quant_vnni.h"

enum {
    BLOCK = 16,                 /* groups in one register of sums, one to a lane */
    BLOCK_COLS = BLOCK * GROUP, /* 512 */
    MOST_BLOCKS = 16,           /* of a pass over a row: their sums take 16 KiB */
    MOST_COLS = MOST_BLOCKS * BLOCK_COLS,
    STREAMS = 4,           /* rows read side by side */
    SHORT_ROW = 512,       /* bytes; streams of shorter rows lie in tiles of their own */
    SPAN_AHEAD = 32 << 10, /* bytes of short rows read between two of a stream: prefetched whole */
    ROW_AHEAD = 4 << 10    /* bytes of prefetch along a long row */
};

/* The activations of a pass. Nibbles meet theirs as two halves: those of the low nibbles of 64
 * bytes, and those of the high ones. */
struct inputs {
    __m512i q[MOST_COLS / 64];
    int64_t cols;
};

static void split_pairs(struct inputs *in)
{
    const __m512i even =
        _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    for (int64_t i = 0; i * 64 < in->cols; i += 2) {
        __m512i a = in->q[i], b = in->q[i + 1];
        in->q[i] = _mm512_permutex2var_epi32(a, even, b);
        in->q[i + 1] = _mm512_permutex2var_epi32(a, odd, b);
    }
}

static void load_inputs(struct inputs *in, const struct tri_qmatmul_args *a, int64_t c, int64_t n,
                        bool paired)
{
    int64_t padded = (n + BLOCK_COLS - 1) / BLOCK_COLS * BLOCK_COLS;
    in->cols = n;
    for (int64_t at = 0; at < padded; at += 64)
        in->q[at / 64] = at < n ? _mm512_loadu_si512(a->x.q + c + at) : _mm512_setzero_si512();
    if (paired)
        split_pairs(in);
}

/* Sums of neighbouring lanes of a in the even lanes, of b in the odd ones. */
TRI_INLINE __m512i fold1(__m512i a, __m512i b)
{
    __m512i mixed = _mm512_mask_blend_epi32(0x5555, a, b);
    return _mm512_add_epi32(_mm512_mask_blend_epi32(0xaaaa, a, b),
                            _mm512_shuffle_epi32(mixed, _MM_PERM_CDAB));
}

/* The same of pairs of lanes, and of 128-bit lanes. */
TRI_INLINE __m512i fold2(__m512i a, __m512i b)
{
    __m512i mixed = _mm512_mask_blend_epi32(0x3333, a, b);
    return _mm512_add_epi32(_mm512_mask_blend_epi32(0xcccc, a, b),
                            _mm512_shuffle_epi32(mixed, _MM_PERM_BADC));
}

TRI_INLINE __m512i fold4(__m512i a, __m512i b)
{
    __m512i mixed = _mm512_mask_blend_epi32(0x0f0f, a, b);
    return _mm512_add_epi32(_mm512_mask_blend_epi32(0xf0f0, a, b),
                            _mm512_shuffle_i64x2(mixed, mixed, 0xb1));
}

/* Sixteen sums of 32 bytes each of a row; `n` columns are there. Group g comes to lane
 * lane_of_bytes(g). */
TRI_INLINE __m512i block_of_bytes(const uint8_t *w, const __m512i *q, int64_t n, int64_t ahead)
{
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    __m512i d[8];
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        __m512i v = _mm512_maskz_loadu_epi8(first_bytes(n - 64 * j), w + 64 * j);
        _mm_prefetch((const void *)(w + ahead + 64 * j), _MM_HINT_T0);
        d[j] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_xor_si512(v, flip), q[j]);
    }
    __m512i low = fold2(fold1(d[0], d[1]), fold1(d[2], d[3]));
    __m512i high = fold2(fold1(d[4], d[5]), fold1(d[6], d[7]));
    return fold4(low, high);
}

TRI_INLINE int lane_of_bytes(int g)
{
    return ((g & 1) << 3) | ((g >> 3) << 2) | ((g >> 1) & 3);
}

/* The same of nibbles, through a table; group g comes to lane lane_of_nibbles(g). */
TRI_INLINE __m512i block_of_nibbles(const uint8_t *w, const __m512i *q, int64_t n, int64_t ahead,
                                    __m512i table)
{
    __m512i d[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m512i v = _mm512_maskz_loadu_epi8(first_bytes((n + 1) / 2 - 64 * j), w + 64 * j);
        _mm_prefetch((const void *)(w + ahead + 64 * j), _MM_HINT_T0);
        __m512i low = _mm512_permutexvar_epi8(v, table);
        __m512i high = _mm512_permutexvar_epi8(_mm512_srli_epi16(v, 4), table);
        d[j] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low, q[2 * j]);
        d[j] = _mm512_dpbusd_epi32(d[j], high, q[2 * j + 1]);
    }
    return fold2(fold1(d[0], d[1]), fold1(d[2], d[3]));
}

TRI_INLINE int lane_of_nibbles(int g)
{
    return ((g & 3) << 2) | (g >> 2);
}

/* How a pass reads: the format, its activations, the columns, how far ahead to prefetch. */
struct pass {
    const struct inputs *in;
    int64_t c, blocks, ahead;
    enum tri_dtype dtype;
    __m512i table;
};

TRI_INLINE __m512i block_of(const uint8_t *w, const __m512i *q, int64_t n, const struct pass *p)
{
    return p->dtype == TRI_DT_I8G64 ? block_of_bytes(w, q, n, p->ahead)
                                    : block_of_nibbles(w, q, n, p->ahead, p->table);
}

/* The sums of four rows, block by block, each from w[s] to of[s]. */
TRI_INLINE void sum_rows(__m512i *of[STREAMS], const uint8_t *w[STREAMS], const struct pass *p)
{
    int64_t left = p->in->cols, step = p->dtype == TRI_DT_I8G64 ? BLOCK_COLS : BLOCK_COLS / 2;
    const __m512i *q = p->in->q;
    for (int64_t b = 0; left > 0; left -= BLOCK_COLS, b++) {
        if (left >= BLOCK_COLS)
            for (int s = 0; s < STREAMS; s++)
                of[s][b] = block_of(w[s] + b * step, q, BLOCK_COLS, p);
        else
            for (int s = 0; s < STREAMS; s++)
                of[s][b] = block_of(w[s] + b * step, q, left, p);
        q += BLOCK_COLS / 64;
    }
}

/* Sixteen e8m0 bytes of each of four rows: four rows' bytes of a group in one unit. */
TRI_INLINE __m512i four_rows(const struct rows *p, int r, int64_t g, __mmask16 there)
{
    const __m512i order = _mm512_set_epi8(
        63, 47, 31, 15, 62, 46, 30, 14, 61, 45, 29, 13, 60, 44, 28, 12, 59, 43, 27, 11, 58, 42, 26,
        10, 57, 41, 25, 9, 56, 40, 24, 8, 55, 39, 23, 7, 54, 38, 22, 6, 53, 37, 21, 5, 52, 36, 20,
        4, 51, 35, 19, 3, 50, 34, 18, 2, 49, 33, 17, 1, 48, 32, 16, 0);
    __m512i v = _mm512_castsi128_si512(_mm_maskz_loadu_epi8(there, p->scales[r] + g));
    v = _mm512_inserti32x4(v, _mm_maskz_loadu_epi8(there, p->scales[r + 1] + g), 1);
    v = _mm512_inserti32x4(v, _mm_maskz_loadu_epi8(there, p->scales[r + 2] + g), 2);
    v = _mm512_inserti32x4(v, _mm_maskz_loadu_epi8(there, p->scales[r + 3] + g), 3);
    return _mm512_permutexvar_epi8(order, v);
}

/* pack_e8m0 without NaN, in half the shuffles; false if there is one. */
TRI_INLINE bool finite_e8m0(__m512 scale[ROWS], const struct rows *p, int64_t g, int64_t n)
{
    const __m512i one = _mm512_set1_epi8(1);
    __mmask16 there = (__mmask16)((1u << n) - 1);
    __m512i v[4], u[4];
    __mmask64 nan = 0;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        v[i] = four_rows(p, 4 * i, g, there);
        nan |= _mm512_cmpeq_epi8_mask(v[i], _mm512_set1_epi8(-1));
        v[i] = _mm512_subs_epu8(v[i], one);
    }
    __m512i low0 = _mm512_unpacklo_epi32(v[0], v[1]), low1 = _mm512_unpacklo_epi32(v[2], v[3]);
    __m512i high0 = _mm512_unpackhi_epi32(v[0], v[1]), high1 = _mm512_unpackhi_epi32(v[2], v[3]);
    u[0] = _mm512_unpacklo_epi64(low0, low1);
    u[1] = _mm512_unpackhi_epi64(low0, low1);
    u[2] = _mm512_unpacklo_epi64(high0, high1);
    u[3] = _mm512_unpackhi_epi64(high0, high1);
    __m128i of[ROWS]; /* of group g, its sixteen rows: lane g / 4 of u[g % 4] */
    memcpy(of, u, sizeof of);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++)
        scale[i] = _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu8_epi32(of[(i & 3) << 2 | i >> 2]), 23));
    return nan == 0;
}

/* Scales of the block of groups from g on, [group of scales][row]. */
TRI_INLINE void block_scales(__m512 scale[ROWS], const struct rows *p, enum tri_dtype dtype,
                             int64_t g, int64_t groups)
{
    if (dtype == TRI_DT_I8G64)
        pack_scales(scale, p, g / 2, (groups + 1) / 2);
    else if (dtype == TRI_DT_MXFP4 && !finite_e8m0(scale, p, g, groups))
        pack_e8m0(scale, p, g, groups);
    else if (dtype == TRI_DT_I4G32)
        pack_scales(scale, p, g, groups);
}

/* Adds `groups` groups to sixteen rows: their sums (a block of each row), scales, and what belongs
 * to the activations. */
TRI_INLINE __m512 add_block(__m512 sum, __m512i v[ROWS], const __m512 *scale, const float *x_scale,
                            const int32_t *start, int64_t groups, bool bytes)
{
    transpose(v);
#pragma GCC unroll 16
    for (int g = 0; g < BLOCK; g++) {
        if (g >= groups)
            break;
        __m512i dot = _mm512_add_epi32(v[bytes ? lane_of_bytes(g) : lane_of_nibbles(g)],
                                       _mm512_set1_epi32(start[g]));
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot),
                              _mm512_mul_ps(scale[bytes ? g / 2 : g], _mm512_set1_ps(x_scale[g])),
                              sum);
    }
    return sum;
}

/* Adds a pass's columns, summed in `of` [16][blocks], to sixteen rows. */
TRI_INLINE __m512 add_tile(__m512 sum, const __m512i *of, const struct tri_qmatmul_args *a,
                           const struct rows *rows, const struct pass *p)
{
    bool bytes = p->dtype == TRI_DT_I8G64;
    int64_t groups = (p->in->cols + GROUP - 1) / GROUP, g0 = p->c / GROUP;
    for (int64_t g = 0; g < groups; g += BLOCK) {
        __m512i v[ROWS];
        __m512 scale[ROWS];
        const float *x_scale = a->x.scale + g0 + g;
        const int32_t *start = a->x.start + g0 + g;
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++)
            v[r] = of[r * p->blocks + g / BLOCK];
        block_scales(scale, rows, p->dtype, g0 + g, groups - g < BLOCK ? groups - g : BLOCK);
        sum = groups - g >= BLOCK ? add_block(sum, v, scale, x_scale, start, BLOCK, bytes)
                                  : add_block(sum, v, scale, x_scale, start, groups - g, bytes);
    }
    return sum;
}

/*
 * Rows [row, row1) of the pass, sixteen or four times sixteen at most. Four streams are read side
 * by side: the memory gives a third more than to one if they lie in pages of their own
 * (docs/findings/053). Long rows: stream s is rows 4s to 4s + 3 of the tile. Short ones: tile s.
 */
TRI_INLINE void span(const struct tri_qmatmul_args *a, const struct pass *p, int64_t row,
                     int64_t row1, int tiles)
{
    __m512i of[ROWS * MOST_BLOCKS], *to[STREAMS];
    struct rows rows[STREAMS];
    int64_t at = p->dtype == TRI_DT_I8G64 ? p->c : p->c / 2;
    for (int i = 0; i < tiles; i++)
        point(&rows[i], a->w, row + ROWS * i, row1);
    for (int r = 0; r < ROWS * tiles / STREAMS; r++) {
        const uint8_t *w[STREAMS];
        for (int s = 0; s < STREAMS; s++) {
            int tile_row = tiles == 1 ? STREAMS * s + r : r;
            w[s] = rows[tiles == 1 ? 0 : s].data[tile_row] + at;
            to[s] = of + ((tiles == 1 ? 0 : ROWS * s) + tile_row) * p->blocks;
        }
        sum_rows(to, w, p);
    }
    for (int i = 0; i < tiles; i++) {
        int64_t left = row1 - row - ROWS * i;
        __mmask16 mask = left < ROWS ? (__mmask16)((1u << left) - 1) : 0xffff;
        float *y = a->y + row + ROWS * i;
        __m512 sum = p->c ? _mm512_maskz_loadu_ps(mask, y) : _mm512_setzero_ps();
        scales_ahead(&rows[i]);
        sum = add_tile(sum, of + ROWS * i * p->blocks, a, &rows[i], p);
        _mm512_mask_storeu_ps(y, mask, sum);
    }
}

/* Where to prefetch while `span_rows` rows are read and `left` more follow: the same place a span
 * or more ahead if rows are short; nothing behind the last row, which is another thread's. */
static int64_t ahead_of(int64_t row_bytes, int64_t span_rows, int64_t left)
{
    int64_t span_bytes = row_bytes * span_rows;
    if (span_bytes > SPAN_AHEAD)
        return ROW_AHEAD;
    return left >= span_rows ? span_bytes : 0;
}

TRI_INLINE void qmatvec(const struct tri_qmatmul_args *a, enum tri_dtype dtype, int64_t row0,
                        int64_t row1)
{
    struct inputs in;
    int64_t row_bytes = (int64_t)tri_row_data_bytes(dtype, a->w->cols);
    for (int64_t c = 0; c < a->w->cols; c += MOST_COLS) {
        int64_t n = a->w->cols - c < MOST_COLS ? a->w->cols - c : MOST_COLS;
        struct pass p = { .in = &in,
                          .c = c,
                          .blocks = (n + BLOCK_COLS - 1) / BLOCK_COLS,
                          .dtype = dtype,
                          .table = nibble_table(dtype, false) };
        load_inputs(&in, a, c, n, dtype != TRI_DT_I8G64);
        int64_t row = row0;
        for (; row_bytes <= SHORT_ROW && row + STREAMS * ROWS <= row1; row += STREAMS * ROWS) {
            p.ahead = ahead_of(row_bytes, STREAMS * ROWS, row1 - row - STREAMS * ROWS);
            span(a, &p, row, row1, STREAMS);
        }
        for (; row < row1; row += ROWS) {
            p.ahead = ahead_of(row_bytes, ROWS, row1 - row - ROWS);
            span(a, &p, row, row1, 1);
        }
    }
}

void tri__vnni_one_i8g64(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    qmatvec(a, TRI_DT_I8G64, row0, row1);
}

void tri__vnni_one_i4g32(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    qmatvec(a, TRI_DT_I4G32, row0, row1);
}

void tri__vnni_one_mxfp4(const struct tri_qmatmul_args *a, int64_t row0, int64_t row1)
{
    qmatvec(a, TRI_DT_MXFP4, row0, row1);
}
#endif
