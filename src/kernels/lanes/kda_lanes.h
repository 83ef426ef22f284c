/*
 * Kimi Delta Attention (K3 spec 3.3) in sixteen lanes along the value axis. The chunked form keeps
 * the sum G of a tile's log decays as fixed point, 24 bits below the binary point of log2: sums are
 * exact there, so that e^G and e^-G are right to float32 however large G grows (at most
 * 16 * 5 * log2 e = 115.4, inside 7 bits). Head widths that are no multiple of 16, and gates
 * without a bound, go to the reference.
 */
#ifndef TRI_KERNELS_KDA_LANES_H
#define TRI_KERNELS_KDA_LANES_H

#include <math.h>
#include <string.h>
#include "kernels/lanes/norm_lanes.h"

#if defined(TRI_LANES)

enum {
    KDA_STRIP = 4 /* registers of value columns whose sums are kept at once */
};

static inline float lanes_l2(const float *x, int64_t n)
{
    return (float)(1 / sqrt((double)lanes_squares(x, n) + 1e-6));
}

/* The log decay of channels [c, c + 16) of head h. */
static inline v16 lanes_log_decay(const struct tri_kda_args *a, int64_t t, int64_t h, int64_t c)
{
    v16 z = v16_add(v16_load(a->z + (t * a->heads + h) * a->dim + c),
                    v16_load(a->dt_bias + h * a->dim + c));
    return v16_mul(v16_set(a->gate_bound), lanes_sigmoid(v16_mul(v16_set(a->a[h]), z)));
}

static inline float lanes_beta(const struct tri_kda_args *a, int64_t t, int64_t h)
{
    return (float)(1 / (1 + exp(-(double)a->b[t * a->heads + h])));
}

/* Per key channel of one token: decay, scaled k and q; and the product of the latter two. */
struct kda_token {
    float decay[TRI_KDA_MAX_DIM], k[TRI_KDA_MAX_DIM], q[TRI_KDA_MAX_DIM];
    float kq, beta;
};

static void kda_prepare(struct kda_token *s, const struct tri_kda_args *a, int64_t t, int64_t h)
{
    int64_t n = a->dim, at = (t * a->heads + h) * n;
    v16 qs = v16_set((float)((double)lanes_l2(a->q + at, n) / sqrt((double)n)));
    v16 ks = v16_set(lanes_l2(a->k + at, n)), kq = v16_set(0);
    for (int64_t c = 0; c < n; c += 16) {
        v16 k = v16_mul(v16_load(a->k + at + c), ks), q = v16_mul(v16_load(a->q + at + c), qs);
        v16_store(s->decay + c, lanes_exp(lanes_log_decay(a, t, h, c)));
        v16_store(s->k + c, k);
        v16_store(s->q + c, q);
        kq = v16_fma(k, q, kq);
    }
    s->kq = v16_sum(kq);
    s->beta = lanes_beta(a, t, h);
}

/* Sixteen values of a state from the i-th on; `half`: it is BF16. */
static inline v16 kda_load(const void *state, int64_t i, bool half)
{
    return half ? v16_bf16((const uint16_t *)state + i) : v16_load((const float *)state + i);
}

static inline void kda_store(void *state, int64_t i, v16 x, bool half)
{
    if (half) { /* to the nearest, ties to even */
        w16 w = w16_bits(x), odd = w16_and(w16_right(w, 16), w16_set(1));
        w = w16_add(w, w16_add(odd, w16_set(0x7fff)));
        w16_store_i16((int16_t *)state + i, w16_right(w, 16));
    } else {
        v16_store((float *)state + i, x);
    }
}

/*
 * `w` registers of value columns from j on. First S^T k and S^T q of the decayed state, then the
 * correction u; the output after the update is S^T q + (k . q) u, and the update itself is the
 * second and last pass.
 */
static inline __attribute__((always_inline)) void kda_strip(const struct tri_kda_args *a,
                                                            const struct kda_token *s,
                                                            int64_t first, int64_t at, int64_t j,
                                                            int w, bool half)
{
    int64_t n = a->dim;
    void *state = a->state;
    v16 sk[KDA_STRIP], sq[KDA_STRIP];
    for (int i = 0; i < w; i++)
        sk[i] = sq[i] = v16_set(0);
    for (int64_t c = 0; c < n; c++) {
        v16 k = v16_set(s->k[c] * s->decay[c]), q = v16_set(s->q[c] * s->decay[c]);
        for (int i = 0; i < w; i++) {
            v16 row = kda_load(state, first + c * n + j + i * 16, half);
            sk[i] = v16_fma(row, k, sk[i]);
            sq[i] = v16_fma(row, q, sq[i]);
        }
    }
    for (int i = 0; i < w; i++) {
        v16 v = v16_load(a->v + at + j + i * 16);
        sk[i] = v16_mul(v16_set(s->beta), v16_sub(v, sk[i]));
        v16_store(a->o + at + j + i * 16, v16_fma(v16_set(s->kq), sk[i], sq[i]));
    }
    for (int64_t c = 0; c < n; c++) {
        v16 k = v16_set(s->k[c]), decay = v16_set(s->decay[c]);
        for (int i = 0; i < w; i++) {
            int64_t row = first + c * n + j + i * 16;
            v16 old = v16_mul(decay, kda_load(state, row, half));
            kda_store(state, row, v16_fma(k, sk[i], old), half);
        }
    }
}

/* One token of head h. */
static inline __attribute__((always_inline)) void kda_token_step(const struct tri_kda_args *a,
                                                                 const struct kda_token *s,
                                                                 int64_t t, int64_t h, bool half)
{
    int64_t at = (t * a->heads + h) * a->dim, first = h * a->dim * a->dim, j = 0;
    for (; j + 16 * KDA_STRIP <= a->dim; j += 16 * KDA_STRIP)
        kda_strip(a, s, first, at, j, KDA_STRIP, half);
    for (; j < a->dim; j += 16)
        kda_strip(a, s, first, at, j, 1, half);
}

void TRI_LANES(kda_step)(const struct tri_kda_args *a, int64_t h0, int64_t h1)
{
    struct kda_token s;
    if (a->dim % 16 || a->dim > TRI_KDA_MAX_DIM || !a->bounded) {
        tri__ref_kda_step(a, h0, h1);
        return;
    }
    for (int64_t h = h0; h < h1; h++) {
        for (int64_t t = 0; t < a->tokens; t++) {
            kda_prepare(&s, a, t, h);
            if (a->state_dtype == TRI_DT_BF16)
                kda_token_step(a, &s, t, h, true);
            else
                kda_token_step(a, &s, t, h, false);
        }
    }
}

/* 2^(f / 2^24): Taylor's series about the middle of [0, 1), 7 terms: 5e-9. */
static inline v16 kda_exp2(w16 f)
{
    v16 part = v16_of(w16_and(f, w16_set(0xffffff)));
    v16 t = v16_mul(v16_fma(part, v16_set(0x1p-24f), v16_set(-0.5f)), v16_set(0.693147180559945f));
    v16 p = v16_set(1 / 5040.0f);
    p = v16_fma(p, t, v16_set(1 / 720.0f));
    p = v16_fma(p, t, v16_set(1 / 120.0f));
    p = v16_fma(p, t, v16_set(1 / 24.0f));
    p = v16_fma(p, t, v16_set(1 / 6.0f));
    p = v16_fma(p, t, v16_set(0.5f));
    p = v16_fma(p, t, v16_set(1));
    p = v16_fma(p, t, v16_set(1));
    p = v16_mul(p, v16_set(1.41421356237309505f));
    return v16_mul(p, v16_bits(w16_left(w16_add(w16_right(f, 24), w16_set(127)), 23)));
}

/* One tile of one head: see struct tile of the reference. in: q^ e^G, then k^ e^G. */
struct kda_tile {
    int64_t tokens;
    float in[2 * TRI_KDA_TILE][TRI_KDA_MAX_DIM];
    float out[TRI_KDA_TILE][TRI_KDA_MAX_DIM];      /* k^ e^-G; later times the whole decay */
    float seen[2 * TRI_KDA_TILE][TRI_KDA_MAX_DIM]; /* in through the state: of q, of k */
    float p[TRI_KDA_TILE][TRI_KDA_MAX_DIM];
    float decay[TRI_KDA_MAX_DIM], beta[TRI_KDA_TILE];
    int32_t total[TRI_KDA_MAX_DIM]; /* G, fixed point of log2 */
};

static void kda_fill(struct kda_tile *s, const struct tri_kda_args *a, int64_t t0, int64_t h)
{
    int64_t n = a->dim;
    memset(s->total, 0, sizeof s->total);
    for (int64_t i = 0; i < s->tokens; i++) {
        int64_t at = ((t0 + i) * a->heads + h) * n;
        v16 qs = v16_set((float)((double)lanes_l2(a->q + at, n) / sqrt((double)n)));
        v16 ks = v16_set(lanes_l2(a->k + at, n));
        s->beta[i] = lanes_beta(a, t0 + i, h);
        for (int64_t c = 0; c < n; c += 16) {
            v16 g = lanes_log_decay(a, t0 + i, h, c);
            w16 total = w16_add(w16_load(s->total + c),
                                w16_near(v16_mul(g, v16_set(1.44269504088896341f * 0x1p24f))));
            v16 decay = kda_exp2(total), k = v16_mul(v16_load(a->k + at + c), ks);
            w16_store(s->total + c, total);
            v16_store(s->in[i] + c, v16_mul(v16_mul(v16_load(a->q + at + c), qs), decay));
            v16_store(s->in[TRI_KDA_TILE + i] + c, v16_mul(k, decay));
            v16_store(s->out[i] + c, v16_mul(k, kda_exp2(w16_sub(w16_set(0), total))));
            if (i == s->tokens - 1)
                v16_store(s->decay + c, decay);
        }
    }
}

/* seen[i] = in[i] through the state, four rows of `in` at a time. */
static void kda_through(struct kda_tile *s, const float *state, int64_t n, int64_t first)
{
    for (int64_t i = first; i < first + s->tokens; i += 4) {
        for (int64_t j = 0; j < n; j += 16) {
            v16 sum[4] = { v16_set(0), v16_set(0), v16_set(0), v16_set(0) };
            for (int64_t c = 0; c < n; c++) {
                v16 row = v16_load(state + c * n + j);
                for (int r = 0; r < 4; r++)
                    sum[r] = v16_fma(row, v16_set(s->in[i + r][c]), sum[r]);
            }
            for (int r = 0; r < 4; r++)
                v16_store(s->seen[i + r] + j, sum[r]);
        }
    }
}

static inline float kda_dot(const float *x, const float *y, int64_t n)
{
    v16 sum = v16_set(0);
    for (int64_t c = 0; c < n; c += 16)
        sum = v16_fma(v16_load(x + c), v16_load(y + c), sum);
    return v16_sum(sum);
}

/* P from the first token to the last, then the outputs. */
static void kda_solve(struct kda_tile *s, const struct tri_kda_args *a, int64_t t0, int64_t h)
{
    int64_t n = a->dim;
    for (int64_t i = 0; i < s->tokens; i++) {
        int64_t at = ((t0 + i) * a->heads + h) * n;
        float with_k[TRI_KDA_TILE], with_q[TRI_KDA_TILE];
        for (int64_t j = 0; j <= i; j++) {
            with_k[j] = j < i ? kda_dot(s->in[TRI_KDA_TILE + i], s->out[j], n) : 0;
            with_q[j] = kda_dot(s->in[i], s->out[j], n);
        }
        for (int64_t c = 0; c < n; c += 16) {
            v16 p = v16_load(s->seen[TRI_KDA_TILE + i] + c), o = v16_load(s->seen[i] + c);
            for (int64_t j = 0; j < i; j++) {
                v16 earlier = v16_load(s->p[j] + c);
                p = v16_fma(v16_set(with_k[j]), earlier, p);
                o = v16_fma(v16_set(with_q[j]), earlier, o);
            }
            p = v16_mul(v16_set(s->beta[i]), v16_sub(v16_load(a->v + at + c), p));
            v16_store(s->p[i] + c, p);
            v16_store(a->o + at + c, v16_fma(v16_set(with_q[i]), p, o));
        }
    }
}

static void kda_update(struct kda_tile *s, float *state, int64_t n)
{
    for (int64_t i = 0; i < s->tokens; i++)
        for (int64_t c = 0; c < n; c += 16)
            v16_store(s->out[i] + c, v16_mul(v16_load(s->out[i] + c), v16_load(s->decay + c)));
    for (int64_t c = 0; c < n; c += 4) {
        for (int64_t j = 0; j < n; j += 16) {
            v16 row[4];
            for (int r = 0; r < 4; r++)
                row[r] = v16_mul(v16_load(state + (c + r) * n + j), v16_set(s->decay[c + r]));
            for (int64_t i = 0; i < s->tokens; i++) {
                v16 p = v16_load(s->p[i] + j);
                for (int r = 0; r < 4; r++)
                    row[r] = v16_fma(v16_set(s->out[i][c + r]), p, row[r]);
            }
            for (int r = 0; r < 4; r++)
                v16_store(state + (c + r) * n + j, row[r]);
        }
    }
}

void TRI_LANES(kda_chunk)(const struct tri_kda_args *a, int64_t h0, int64_t h1)
{
    struct kda_tile s;
    float wide[TRI_KDA_MAX_DIM * TRI_KDA_MAX_DIM]; /* a BF16 state of one head during the call */
    int64_t values = a->dim * a->dim;
    bool half = a->state_dtype == TRI_DT_BF16;
    if (a->dim % 16 || !a->bounded) {
        tri__ref_kda_chunk(a, h0, h1);
        return;
    }
    /* A short tile's rows up to the next four are computed too, and not used. */
    memset(s.in, 0, sizeof s.in);
    for (int64_t h = h0; h < h1; h++) {
        float *state = half ? wide : (float *)a->state + h * values;
        for (int64_t i = 0; half && i < values; i += 16)
            v16_store(wide + i, kda_load(a->state, h * values + i, true));
        for (int64_t t = 0; t < a->tokens; t += TRI_KDA_TILE) {
            s.tokens = a->tokens - t < TRI_KDA_TILE ? a->tokens - t : TRI_KDA_TILE;
            kda_fill(&s, a, t, h);
            kda_through(&s, state, a->dim, 0);
            kda_through(&s, state, a->dim, TRI_KDA_TILE);
            kda_solve(&s, a, t, h);
            kda_update(&s, state, a->dim);
        }
        for (int64_t i = 0; half && i < values; i += 16)
            kda_store(a->state, h * values + i, v16_load(wide + i), true);
    }
}

/* Input of time `t` counted from the oldest in the tail. */
static inline const float *conv_input(const struct tri_conv_args *a, int64_t t, int64_t c)
{
    int64_t past = a->taps - 1;
    return t < past ? a->tail + t * a->channels + c : a->x + (t - past) * a->x_stride + c;
}

/* Channels [c0, c0 + n), n a multiple of 16. */
static void conv_block(const struct tri_conv_args *a, int64_t c0, int64_t n)
{
    int64_t past = a->taps - 1;
    for (int64_t t = 0; t < a->tokens; t++) {
        for (int64_t c = c0; c < c0 + n; c += 16) {
            v16 sum = v16_set(0);
            for (int64_t j = 0; j < a->taps; j++)
                sum = v16_fma(v16_load(a->w + j * a->channels + c),
                              v16_load(conv_input(a, t + j, c)), sum);
            v16_store(a->y + t * a->y_stride + c, v16_mul(sum, lanes_sigmoid(sum)));
        }
    }
    for (int64_t j = 0; j < past; j++) /* upwards: what is read lies beyond what is written */
        memmove(a->tail + j * a->channels + c0, conv_input(a, a->tokens + j, c0),
                (size_t)n * sizeof *a->tail);
}

void TRI_LANES(conv)(const struct tri_conv_args *a, int64_t c0, int64_t c1)
{
    int64_t whole = c0 + (c1 - c0) / 16 * 16;
    conv_block(a, c0, whole - c0);
    if (whole < c1)
        tri__ref_conv(a, whole, c1);
}

#endif
#endif
