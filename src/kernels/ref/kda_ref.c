/*
 * Kimi Delta Attention (K3 spec 3.3): the short convolution, the recurrence token by token, and the
 * chunked form that prefill uses. Per head the state is S [K][V], row k decayed by its own gate.
 */
#include "kernels/kernels_priv.h"

#include <math.h>
#include <string.h>

/* FLA's l2norm: eps is added to the sum of squares, not to the mean (spec 3.3 step 4). */
static const double L2_EPS = 1e-6;

void tri__ref_conv(const struct tri_conv_args *a, int64_t c0, int64_t c1)
{
    int64_t past = a->taps - 1;
    for (int64_t c = c0; c < c1; c++) {
        float window[TRI_CONV_MAX_TAPS]; /* the last `taps` inputs, oldest first */
        for (int64_t j = 0; j < past; j++)
            window[j] = a->tail[j * a->channels + c];
        for (int64_t t = 0; t < a->tokens; t++) {
            window[past] = a->x[t * a->x_stride + c];
            float sum = 0;
            for (int64_t j = 0; j < a->taps; j++)
                sum += a->w[j * a->channels + c] * window[j];
            a->y[t * a->y_stride + c] = sum * tri__ref_sigmoid(sum);
            memmove(window, window + 1, (size_t)past * sizeof window[0]);
        }
        for (int64_t j = 0; j < past; j++)
            a->tail[j * a->channels + c] = window[j];
    }
}

static double inverse_l2(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return 1 / sqrt(sum + L2_EPS);
}

/* The log of the decay of one key channel, always <= 0 (spec 3.3 step 5). */
static double log_decay(const struct tri_kda_args *a, int64_t t, int64_t h, int64_t i)
{
    double z = (double)(a->z[(t * a->heads + h) * a->dim + i] + a->dt_bias[h * a->dim + i]);
    double scale = (double)a->a[h];
    if (a->bounded)
        return (double)a->gate_bound / (1 + exp(-scale * z));
    return -scale * (z > 30 ? z : log1p(exp(z))); /* beyond 30, softplus(z) is z in float64 */
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* The state of head h in float32: the array itself, or `wide`, filled from what is stored. */
static float *open_state(const struct tri_kda_args *a, int64_t h, float *wide)
{
    int64_t n = a->dim * a->dim;
    if (a->state_dtype == TRI_DT_F32)
        return (float *)a->state + h * n;
    tri_row_decode(wide, TRI_DT_BF16, (const uint16_t *)a->state + h * n, NULL, n);
    return wide;
}

static void close_state(const struct tri_kda_args *a, int64_t h, const float *state)
{
    int64_t n = a->dim * a->dim;
    if (a->state_dtype != TRI_DT_F32)
        tri_row_encode((uint16_t *)a->state + h * n, NULL, TRI_DT_BF16, state, n);
}

static void step_head(const struct tri_kda_args *a, int64_t t, int64_t h, float *state)
{
    int64_t n = a->dim, at = (t * a->heads + h) * n;
    const float *q = a->q + at, *k = a->k + at, *v = a->v + at;
    float *o = a->o + at;
    float q_scale = (float)(inverse_l2(q, n) / sqrt((double)n)), k_scale = (float)inverse_l2(k, n);
    float beta = (float)sigmoid((double)a->b[t * a->heads + h]);

    /* o holds S^T k while the state decays, then the correction, then the output. */
    memset(o, 0, (size_t)n * sizeof *o);
    for (int64_t i = 0; i < n; i++) {
        float *row = state + i * n, ki = k[i] * k_scale;
        float decay = (float)exp(log_decay(a, t, h, i));
        for (int64_t j = 0; j < n; j++) {
            row[j] *= decay;
            o[j] += ki * row[j];
        }
    }
    for (int64_t j = 0; j < n; j++)
        o[j] = beta * (v[j] - o[j]);
    for (int64_t i = 0; i < n; i++) {
        float *row = state + i * n, ki = k[i] * k_scale;
        for (int64_t j = 0; j < n; j++)
            row[j] += ki * o[j];
    }
    memset(o, 0, (size_t)n * sizeof *o);
    for (int64_t i = 0; i < n; i++) {
        const float *row = state + i * n;
        float qi = q[i] * q_scale;
        for (int64_t j = 0; j < n; j++)
            o[j] += qi * row[j];
    }
}

void tri__ref_kda_step(const struct tri_kda_args *a, int64_t h0, int64_t h1)
{
    float wide[TRI_KDA_MAX_DIM * TRI_KDA_MAX_DIM];
    for (int64_t h = h0; h < h1; h++) {
        for (int64_t t = 0; t < a->tokens; t++) {
            float *state = open_state(a, h, wide);
            step_head(a, t, h, state);
            close_state(a, h, state);
        }
    }
}

/* One tile's quantities of one head, in float64: exact enough that factored decays do not matter.
 */
struct tile {
    int64_t tokens;
    float *state;                                /* of the head, float32 */
    double q_in[TRI_KDA_TILE][TRI_KDA_MAX_DIM];  /* q^ * e^G: against the state the tile found */
    double k_in[TRI_KDA_TILE][TRI_KDA_MAX_DIM];  /* k^ * e^G */
    double k_out[TRI_KDA_TILE][TRI_KDA_MAX_DIM]; /* k^ * e^-G: what later tokens see of this one */
    double total[TRI_KDA_MAX_DIM];               /* G after the last token */
    double beta[TRI_KDA_TILE];
    double p[TRI_KDA_TILE][TRI_KDA_MAX_DIM]; /* rows of P: beta_i u_i */
};

static void fill_tile(struct tile *tile, const struct tri_kda_args *a, int64_t t0, int64_t h)
{
    int64_t n = a->dim;
    memset(tile->total, 0, sizeof tile->total);
    for (int64_t i = 0; i < tile->tokens; i++) {
        int64_t at = ((t0 + i) * a->heads + h) * n;
        double q_scale = inverse_l2(a->q + at, n) / sqrt((double)n);
        double k_scale = inverse_l2(a->k + at, n);
        tile->beta[i] = sigmoid((double)a->b[(t0 + i) * a->heads + h]);
        for (int64_t c = 0; c < n; c++) {
            tile->total[c] += log_decay(a, t0 + i, h, c);
            double decay = exp(tile->total[c]);
            tile->q_in[i][c] = (double)a->q[at + c] * q_scale * decay;
            tile->k_in[i][c] = (double)a->k[at + c] * k_scale * decay;
            tile->k_out[i][c] = (double)a->k[at + c] * k_scale / decay;
        }
    }
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += x[c] * y[c];
    return sum;
}

/* out[j] = sum over c of x[c] * S[c][j] */
static void through_state(double *out, const double *x, const float *state, int64_t n)
{
    memset(out, 0, (size_t)n * sizeof *out);
    for (int64_t c = 0; c < n; c++)
        for (int64_t j = 0; j < n; j++)
            out[j] += x[c] * (double)state[c * n + j];
}

/* Solves (I + A) P = diag(beta) (V - (K e^G) S0) from the first token to the last (spec 3.3). */
static void solve_tile(struct tile *tile, const struct tri_kda_args *a, int64_t t0, int64_t h)
{
    int64_t n = a->dim;
    const float *state = tile->state;
    for (int64_t i = 0; i < tile->tokens; i++) {
        const float *v = a->v + ((t0 + i) * a->heads + h) * n;
        double *p = tile->p[i];
        through_state(p, tile->k_in[i], state, n);
        for (int64_t j = 0; j < i; j++) {
            double seen = dot(tile->k_in[i], tile->k_out[j], n);
            for (int64_t c = 0; c < n; c++)
                p[c] += seen * tile->p[j][c];
        }
        for (int64_t c = 0; c < n; c++)
            p[c] = tile->beta[i] * ((double)v[c] - p[c]);
    }
}

static void tile_outputs(const struct tile *tile, const struct tri_kda_args *a, int64_t t0,
                         int64_t h)
{
    int64_t n = a->dim;
    const float *state = tile->state;
    double out[TRI_KDA_MAX_DIM];
    for (int64_t i = 0; i < tile->tokens; i++) {
        float *o = a->o + ((t0 + i) * a->heads + h) * n;
        through_state(out, tile->q_in[i], state, n);
        for (int64_t j = 0; j <= i; j++) {
            double seen = dot(tile->q_in[i], tile->k_out[j], n);
            for (int64_t c = 0; c < n; c++)
                out[c] += seen * tile->p[j][c];
        }
        for (int64_t c = 0; c < n; c++)
            o[c] = (float)out[c];
    }
}

static void tile_state(const struct tile *tile, int64_t n)
{
    for (int64_t c = 0; c < n; c++) {
        float *row = tile->state + c * n;
        double decay = exp(tile->total[c]), next[TRI_KDA_MAX_DIM];
        for (int64_t j = 0; j < n; j++)
            next[j] = decay * (double)row[j];
        for (int64_t i = 0; i < tile->tokens; i++) {
            double k = tile->k_out[i][c] * decay;
            for (int64_t j = 0; j < n; j++)
                next[j] += k * tile->p[i][j];
        }
        for (int64_t j = 0; j < n; j++)
            row[j] = (float)next[j];
    }
}

void tri__ref_kda_chunk(const struct tri_kda_args *a, int64_t h0, int64_t h1)
{
    struct tile tile;
    float wide[TRI_KDA_MAX_DIM * TRI_KDA_MAX_DIM];
    for (int64_t h = h0; h < h1; h++) {
        tile.state = open_state(a, h, wide);
        for (int64_t t = 0; t < a->tokens; t += TRI_KDA_TILE) {
            tile.tokens = a->tokens - t < TRI_KDA_TILE ? a->tokens - t : TRI_KDA_TILE;
            fill_tile(&tile, a, t, h);
            solve_tile(&tile, a, t, h);
            tile_outputs(&tile, a, t, h);
            tile_state(&tile, a->dim);
        }
        close_state(a, h, tile.state);
    }
}
