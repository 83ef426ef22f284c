/*
 * int8 activations of one token times grouped weights in 256-bit registers: each row is read as it
 * lies, and only the sums of its groups are transposed. Same sums in the same order as quant_ymm.h,
 * same bits. Why rows, and why four at a time: quant_vnni_one.c.
 */
#ifndef TRI_KERNELS_QUANT_YMM_ONE_H
#define TRI_KERNELS_QUANT_YMM_ONE_H
#if defined(__AVX2__)

#include "kernels/x86/quant_ymm.h"

enum {
    LANES = 8,                  /* groups in one register of sums, and rows added at once */
    BLOCK_COLS = LANES * GROUP, /* 256 */
    MOST_BLOCKS = 32,           /* of a pass over a row: their sums take 16 KiB */
    MOST_COLS = MOST_BLOCKS * BLOCK_COLS,
    STREAMS = 4,           /* rows read side by side */
    SHORT_ROW = 512,       /* bytes; streams of shorter rows lie in tiles of their own */
    SPAN_AHEAD = 32 << 10, /* bytes of short rows read between two of a stream: prefetched whole */
    ROW_AHEAD = 4 << 10    /* bytes of prefetch along a long row */
};

/* How a pass reads: format, its activations, columns [c, c + cols), how far ahead to prefetch.
 * Nibbles meet theirs as two registers: of the low nibbles of 32 bytes, and of the high ones. */
struct pass {
    __m256i q[MOST_COLS / 32];
    int64_t c, cols, blocks, ahead;
    enum tri_dtype dtype;
    __m256i table;
};

static void load_inputs(struct pass *p, const struct tri_qmatmul_args *a)
{
    const __m256i halves = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    int64_t padded = p->blocks * BLOCK_COLS;
    for (int64_t at = 0; at < padded; at += 32)
        p->q[at / 32] = at < p->cols ? _mm256_loadu_si256((const void *)(a->x.q + p->c + at))
                                     : _mm256_setzero_si256();
    for (int64_t i = 0; i < padded / 32 && p->dtype != TRI_DT_I8G64; i += 2) {
        __m256i first = _mm256_permutevar8x32_epi32(p->q[i], halves);
        __m256i second = _mm256_permutevar8x32_epi32(p->q[i + 1], halves);
        p->q[i] = _mm256_permute2x128_si256(first, second, 0x20);
        p->q[i + 1] = _mm256_permute2x128_si256(first, second, 0x31);
    }
}

/* Products of 32 bytes added in fours. */
TRI_INLINE __m256i dot_bytes(__m256i w, __m256i x)
{
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), _mm256_xor_si256(w, flip()), x);
#else
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#endif
}

/* The same of 64 biased nibbles, those of two columns together: at most 4 * 24 * 127 in 16 bits. */
TRI_INLINE __m256i dot_nibbles(__m256i low, __m256i high, const __m256i *x)
{
#if defined(__AVXVNNI__)
    __m256i dot = _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), low, x[0]);
    return _mm256_dpbusd_avx_epi32(dot, high, x[1]);
#else
    __m256i pairs =
        _mm256_add_epi16(_mm256_maddubs_epi16(low, x[0]), _mm256_maddubs_epi16(high, x[1]));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#endif
}

/* Within each half register, the sum of all four lanes of a, b, c and d, in that order. */
TRI_INLINE __m256i fold_four(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    return _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}

/* 32 bytes, of which n are there. */
TRI_INLINE __m256i load_bytes(const uint8_t *w, int64_t n)
{
    uint8_t rest[32] = { 0 };
    if (n >= 32)
        return _mm256_loadu_si256((const void *)w);
    memcpy(rest, w, (size_t)(n > 0 ? n : 0));
    return _mm256_loadu_si256((const void *)rest);
}

/* Eight sums of 32 bytes each; n columns are there. Group g comes to lane g. */
TRI_INLINE __m256i block_of_bytes(const uint8_t *w, const __m256i *q, int64_t n, int64_t ahead)
{
    __m256i d[8];
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        if (j % 2 == 0)
            _mm_prefetch((const void *)(w + ahead + 32 * j), _MM_HINT_T0);
        d[j] = dot_bytes(load_bytes(w + 32 * j, n - 32 * j), q[j]);
    }
    __m256i low = fold_four(d[0], d[1], d[2], d[3]), high = fold_four(d[4], d[5], d[6], d[7]);
    return _mm256_add_epi32(_mm256_blend_epi32(low, high, 0xf0),
                            _mm256_permute2x128_si256(low, high, 0x21));
}

/* The same of nibbles, through a table. Group g comes to lane g / 2 of half g % 2. */
TRI_INLINE __m256i block_of_nibbles(const uint8_t *w, const __m256i *q, int64_t n, int64_t ahead,
                                    __m256i table)
{
    const __m256i low = _mm256_set1_epi8(15);
    __m256i d[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        if (j % 2 == 0)
            _mm_prefetch((const void *)(w + ahead + 32 * j), _MM_HINT_T0);
        __m256i v = load_bytes(w + 32 * j, (n + 1) / 2 - 32 * j);
        __m256i high = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
        d[j] = dot_nibbles(_mm256_shuffle_epi8(table, _mm256_and_si256(v, low)),
                           _mm256_shuffle_epi8(table, high), q + 2 * j);
    }
    return fold_four(d[0], d[1], d[2], d[3]);
}

TRI_INLINE __m256i block_of(const uint8_t *w, const __m256i *q, int64_t n, const struct pass *p)
{
    return p->dtype == TRI_DT_I8G64 ? block_of_bytes(w, q, n, p->ahead)
                                    : block_of_nibbles(w, q, n, p->ahead, p->table);
}

/* The sums of four rows, block by block, each from w[s] to of[s]. */
TRI_INLINE void sum_rows(__m256i *of[STREAMS], const uint8_t *w[STREAMS], const struct pass *p)
{
    int64_t left = p->cols, step = p->dtype == TRI_DT_I8G64 ? BLOCK_COLS : BLOCK_COLS / 2;
    const __m256i *q = p->q;
    for (int64_t b = 0; left > 0; left -= BLOCK_COLS, b++) {
        if (left >= BLOCK_COLS)
            for (int s = 0; s < STREAMS; s++)
                of[s][b] = block_of(w[s] + b * step, q, BLOCK_COLS, p);
        else
            for (int s = 0; s < STREAMS; s++)
                of[s][b] = block_of(w[s] + b * step, q, left, p);
        q += BLOCK_COLS / 32;
    }
}

TRI_INLINE __m128i load_scales(const uint8_t *p, int64_t bytes)
{
    uint8_t rest[16] = { 0 };
    if (bytes == 16)
        return _mm_loadu_si128((const void *)p);
    if (bytes == 8)
        return _mm_loadl_epi64((const void *)p);
    memcpy(rest, p, (size_t)bytes);
    return _mm_loadu_si128((const void *)rest);
}

/* Scales of `n` groups of scales from byte `at` on, [group][row of eight]. */
TRI_INLINE void turn_scales(__m256i v[LANES], const uint8_t *const rows[], enum tri_dtype dtype,
                            int64_t at, int64_t n)
{
    const __m256i one = _mm256_set1_epi32(1), last = _mm256_set1_epi32(255);
    bool e8m0 = dtype == TRI_DT_MXFP4;
    int64_t bytes = e8m0 ? n : 2 * n;
#pragma GCC unroll 8
    for (int r = 0; r < LANES; r++) {
        __m128i raw = load_scales(rows[r] + at, bytes);
        if (!e8m0) {
            v[r] = _mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16);
            continue;
        }
        __m256i e = _mm256_cvtepu8_epi32(raw);
        __m256i bits = _mm256_slli_epi32(_mm256_sub_epi32(_mm256_max_epi32(e, one), one), 23);
        v[r] = _mm256_blendv_epi8(bits, _mm256_set1_epi32(0x7fc00000), _mm256_cmpeq_epi32(e, last));
    }
    transpose(v);
}

/* Adds `groups` groups to eight rows: their sums (a block of each row), scales, and what belongs to
 * the activations. */
TRI_INLINE __m256 add_block(__m256 sum, __m256i v[LANES], const __m256i *scale,
                            const float *x_scale, const int32_t *start, int64_t groups, bool bytes)
{
    transpose(v);
#pragma GCC unroll 8
    for (int g = 0; g < LANES; g++) {
        if (g >= groups)
            break;
        __m256i dot = v[bytes ? g : (g & 1) << 2 | g >> 1];
        if (BIASED || !bytes)
            dot = _mm256_add_epi32(dot, _mm256_set1_epi32(start[g]));
        __m256 weight = _mm256_castsi256_ps(scale[bytes ? g / 2 : g]);
        sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot),
                              _mm256_mul_ps(weight, _mm256_set1_ps(x_scale[g])), sum);
    }
    return sum;
}

/* Adds a pass's columns, summed in `of` [8][blocks], to eight rows. */
TRI_INLINE __m256 add_rows(__m256 sum, const __m256i *of, const struct tri_qmatmul_args *a,
                           const uint8_t *const scales[], const struct pass *p)
{
    bool bytes = p->dtype == TRI_DT_I8G64;
    int64_t groups = (p->cols + GROUP - 1) / GROUP, g0 = p->c / GROUP;
    int64_t scale_bytes = p->dtype == TRI_DT_I4G32 ? 2 : 1; /* per 32 columns */
    for (int64_t g = 0; g < groups; g += LANES) {
        int64_t n = groups - g < LANES ? groups - g : LANES;
        const float *x_scale = a->x.scale + g0 + g;
        const int32_t *start = a->x.start + g0 + g;
        __m256i v[LANES], scale[LANES];
#pragma GCC unroll 8
        for (int r = 0; r < LANES; r++)
            v[r] = of[r * p->blocks + g / LANES];
        if (n == LANES) {
            turn_scales(scale, scales, p->dtype, (g0 + g) * scale_bytes, bytes ? LANES / 2 : LANES);
            sum = add_block(sum, v, scale, x_scale, start, LANES, bytes);
        } else {
            turn_scales(scale, scales, p->dtype, (g0 + g) * scale_bytes, bytes ? (n + 1) / 2 : n);
            sum = add_block(sum, v, scale, x_scale, start, n, bytes);
        }
    }
    return sum;
}

/* Rows [row, row1) of the pass, sixteen or four times sixteen at most. Long rows: stream s is rows
 * 4s to 4s + 3 of the tile. Short ones: tile s. */
TRI_INLINE void span(const struct tri_qmatmul_args *a, const struct pass *p, int64_t row,
                     int64_t row1, int tiles)
{
    __m256i of[ROWS * MOST_BLOCKS], *to[STREAMS];
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
    for (int i = 0; i < 2 * tiles && row + LANES * i < row1; i++) {
        float *y = a->y + row + LANES * i;
        int64_t left = row1 - row - LANES * i;
        __m256 sum = p->c ? fetch(y, left) : _mm256_setzero_ps();
        sum = add_rows(sum, of + LANES * i * p->blocks, a, rows[i / 2].scales + LANES * (i % 2), p);
        put(y, sum, left);
    }
}

/* Where to prefetch while `span_rows` rows are read and `left` more follow: the same place a span
 * ahead if rows are short; nothing behind the last row, which is another thread's. */
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
    struct pass p = { .dtype = dtype, .table = nibble_table(dtype, true) };
    int64_t row_bytes = (int64_t)tri_row_data_bytes(dtype, a->w->cols);
    for (int64_t c = 0; c < a->w->cols; c += MOST_COLS) {
        int64_t row = row0;
        p.c = c;
        p.cols = a->w->cols - c < MOST_COLS ? a->w->cols - c : MOST_COLS;
        p.blocks = (p.cols + BLOCK_COLS - 1) / BLOCK_COLS;
        load_inputs(&p, a);
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

/* One token row by row, more in tiles. */
TRI_INLINE void products(const struct tri_qmatmul_args *a, enum tri_dtype dtype, int64_t row0,
                         int64_t row1)
{
    if (a->tokens == 1)
        qmatvec(a, dtype, row0, row1);
    else
        qmatmul(a, dtype, row0, row1);
}

#endif
#endif
