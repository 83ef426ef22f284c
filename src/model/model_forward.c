/*
 * The skeleton of a step (K3 spec 3.0): embedding, the layers with their Attention Residuals, the
 * head. The residual stream `prefix` and the bank of block starts belong to the step alone.
 */
#include "model/model.h"

#include <math.h>
#include <string.h>
#include "model/model_priv.h"

static enum tri_status check_runs(const struct tri_model *m, const struct tri_run *runs,
                                  int64_t n_runs, int64_t *tokens, struct tri_error *err)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n_runs; i++) {
        const struct tri_run *r = &runs[i];
        int64_t room = tri_state_room_tokens(r->state) - tri_state_tokens(r->state);
        if (r->n_tokens < 1 || (r->shown && r->shown->n_tokens > r->n_tokens) ||
            (r->logits && (r->first_logits < 0 || r->first_logits > r->n_tokens)))
            return tri_fail(err, TRI_ARG, "run %lld: bad token or logit counts", (long long)i);
        if (r->n_tokens > room)
            return tri_fail(err, TRI_LIMIT,
                            "context full: %lld tokens held, %lld more do not fit in %lld",
                            (long long)tri_state_tokens(r->state), (long long)r->n_tokens,
                            (long long)tri_state_room_tokens(r->state));
        for (int64_t t = 0; t < r->n_tokens; t++)
            if (r->tokens[t] < 0 || r->tokens[t] >= m->spec.vocab)
                return tri_fail(err, TRI_ARG,
                                "token id %d at position %lld: the model has ids 0 to %lld",
                                r->tokens[t], (long long)(tri_state_tokens(r->state) + t),
                                (long long)m->spec.vocab - 1);
        sum += r->n_tokens;
    }
    if (sum > m->chunk_tokens || n_runs < 1)
        return tri_fail(err, TRI_ARG, "a step of %lld tokens: 1 to %lld are possible",
                        (long long)sum, (long long)m->chunk_tokens);
    *tokens = sum;
    return TRI_OK;
}

/* One row of the embedding table; from disk when the trunk is streamed. */
static enum tri_status embed_row(const struct tri_model *m, int64_t id, float *out,
                                 struct tri_error *err)
{
    const struct tri_matrix *e = &m->embed;
    const struct tri_range *ours = &m->slice.vocab;
    int64_t row = id - ours->first;
    if (row < 0 || row >= ours->count) { /* another rank's */
        memset(out, 0, (size_t)m->spec.hidden * sizeof *out);
        return TRI_OK;
    }
    if (!e->data)
        return tri__rows_read(m, id, out, err);
    const char *data = e->data;
    tri_row_decode(out, e->dtype, data + (size_t)row * tri_row_data_bytes(e->dtype, e->cols), NULL,
                   e->cols);
    return TRI_OK;
}

static enum tri_status embed(struct tri__step *s, struct tri_error *err)
{
    struct tri_model *m = s->m;
    int64_t row = 0;
    for (int64_t i = 0; i < s->n_runs; i++) {
        for (int64_t t = 0; t < s->runs[i].n_tokens; t++, row++) {
            enum tri_status st =
                embed_row(m, s->runs[i].tokens[t], m->prefix + row * m->spec.hidden, err);
            if (st)
                return st;
        }
    }
    tri__sum_over_ranks(m, m->prefix, s->tokens * m->spec.hidden);
    return TRI_OK;
}

/* h = MIX(bank + prefix), or the prefix itself while the bank is empty (K3 spec 3.2). */
static void mix(struct tri__step *s, int64_t banked, const float *w)
{
    struct tri_model *m = s->m;
    int64_t width = m->spec.hidden;
    if (banked == 0) {
        memcpy(m->h, m->prefix, (size_t)(s->tokens * width) * sizeof *m->h);
        return;
    }
    for (int64_t i = 0; i < banked; i++)
        m->sources[i] = m->bank + i * m->chunk_tokens * width;
    m->sources[banked] = m->prefix;
    struct tri_mix_args args = { m->sources, banked + 1, w, m->h, width, m->spec.rms_eps };
    tri__mix(m, &args, s->tokens);
}

static void normalise(struct tri__step *s, const float *w)
{
    struct tri_model *m = s->m;
    struct tri_rmsnorm_args args = {
        m->h, w, m->x, m->spec.hidden, m->spec.hidden, m->spec.hidden, m->spec.rms_eps
    };
    tri__rmsnorm(m, &args, s->tokens);
}

static void add_to_prefix(struct tri__step *s, bool fresh)
{
    struct tri_model *m = s->m;
    int64_t n = s->tokens * m->spec.hidden;
    if (fresh) {
        memcpy(m->prefix, m->out, (size_t)n * sizeof *m->out);
        return;
    }
    tri__add(m, m->out, m->prefix, n);
}

struct dense_scratch {
    struct tri__input in;
    struct tri__glu_rows inner;
};

static void take_dense(const struct tri_model *m, struct tri__arena *arena, int64_t tokens,
                       struct dense_scratch *s)
{
    tri__take_input(m, arena, tokens, m->spec.hidden, &s->in);
    tri__take_glu(m, arena, tokens, m->slice.dense_inter.count, &s->inner);
}

int64_t tri__dense_scratch(const struct tri_model *m, int64_t tokens)
{
    struct tri__arena measure = { 0 };
    struct dense_scratch s;
    take_dense(m, &measure, tokens, &s);
    return measure.most;
}

/* out = down(act(gate x, up x)) (K3 spec 3.6). */
static void dense(struct tri_model *m, const struct tri__glu *w, int64_t tokens)
{
    struct dense_scratch s;
    struct tri__product job;
    m->arena.used = 0;
    take_dense(m, &m->arena, tokens, &s);
    tri__set_input(&s.in, m->x, m->spec.hidden, tokens);
    tri__glu_product(m, &job, &s.in, w, &s.inner);
    tri__multiply(m, &job, 1);
    tri__set_input(&s.inner.in, s.inner.gate, w->gate.rows, tokens);
    tri__linear(m, &s.inner.in, &w->down, m->out);
    tri__sum_over_ranks(m, m->out, tokens * m->spec.hidden);
}

static enum tri_status run_layer(struct tri__step *s, int64_t index, int64_t *banked,
                                 struct tri_error *err)
{
    struct tri_model *m = s->m;
    const struct tri__layer *layer = &m->layer[index];
    int64_t block = m->spec.attn_res_block, width = m->spec.hidden;
    bool opens = block > 0 && index % block == 0;

    tri__time(m, TRI_TIME_TRUNK_WAIT);
    enum tri_status st = tri__trunk_need(m, index, err);
    if (st)
        return st;
    tri__time(m, TRI_TIME_MIX);
    mix(s, *banked, layer->attn_mix);
    if (opens) /* the raw prefix is banked, not the mixed h, and the running sum starts anew */
        memcpy(m->bank + (*banked)++ * m->chunk_tokens * width, m->prefix,
               (size_t)(s->tokens * width) * sizeof *m->bank);
    normalise(s, layer->input_norm);
    tri__time(m, m->spec.layer[index].attn == TRI_ATTN_KDA ? TRI_TIME_KDA : TRI_TIME_MLA);
    if (m->spec.layer[index].attn == TRI_ATTN_KDA)
        tri__kda_forward(s, index, m->x, m->out);
    else
        tri__mla_forward(s, index, m->x, m->out);
    tri__time(m, TRI_TIME_MIX);
    add_to_prefix(s, opens);

    mix(s, *banked, layer->ffn_mix);
    normalise(s, layer->post_norm);
    if (m->spec.layer[index].ffn == TRI_FFN_DENSE) {
        tri__time(m, TRI_TIME_DENSE);
        dense(m, &layer->dense, s->tokens);
    } else {
        st = tri__moe_forward(s, index, m->x, m->out, err);
        if (st)
            return st;
    }
    tri__time(m, TRI_TIME_MIX);
    add_to_prefix(s, false);
    if (s->taps && s->taps->residual)
        s->taps->residual(s->taps->arg, index, m->prefix, s->tokens, width);
    return TRI_OK;
}

/* NaN or Inf anywhere in a row would let a sampler pick nonsense for ever (spec pitfall 18). */
static enum tri_status check_finite(const float *v, int64_t n, int64_t run, struct tri_error *err)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return tri_fail(err, TRI_NUMERIC, "logits of sequence %lld hold NaN or Inf",
                            (long long)run);
    return TRI_OK;
}

/* One pass over lm_head for all sequences: items are tiles of its rows, a few at a time. */
enum { HEAD_TILES = 8 };

struct head_loop {
    struct tri__step *s;
    struct tri__product job; /* all rows of the step, y not set */
};

/* Rows of the step whose logits lie side by side: one product. */
struct wanted {
    int64_t first, n;
    float *logits;
};

/* The wanted rows of runs from *i on, as far as they are one block. */
static struct wanted next_wanted(const struct head_loop *l, int64_t *i, int64_t *row)
{
    struct wanted w = { 0, 0, NULL };
    for (; *i < l->s->n_runs; *row += l->s->runs[(*i)++].n_tokens) {
        const struct tri_run *r = &l->s->runs[*i];
        int64_t first = *row + r->first_logits, n = r->n_tokens - r->first_logits;
        if (!r->logits || n == 0)
            continue;
        if (w.n && (first != w.first + w.n || r->logits != w.logits + w.n * l->job.w->rows))
            return w;
        w = w.n ? (struct wanted){ w.first, w.n + n, w.logits }
                : (struct wanted){ first, n, r->logits };
    }
    return w;
}

static void head_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct head_loop *l = arg;
    int64_t vocab = l->job.w->rows, i = 0, row = 0;
    int64_t row1 = end * TRI_QTILE_ROWS < vocab ? end * TRI_QTILE_ROWS : vocab;
    for (struct wanted w = next_wanted(l, &i, &row); w.n; w = next_wanted(l, &i, &row)) {
        struct tri__product job = l->job;
        tri__product_tokens(&job, w.first, w.n);
        job.y = w.logits;
        tri__product_rows(l->s->m, &job, begin * TRI_QTILE_ROWS, row1);
    }
}

/* One piece of the rows that are shown. */
struct shown_loop {
    struct tri_model *m;
    struct tri__product job;
};

static void shown_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct shown_loop *l = arg;
    int64_t vocab = l->job.w->rows;
    int64_t row1 = end * TRI_QTILE_ROWS < vocab ? end * TRI_QTILE_ROWS : vocab;
    tri__product_rows(l->m, &l->job, begin * TRI_QTILE_ROWS, row1);
}

static void show_rows(struct tri_model *m, const struct tri__product *all, int64_t first,
                      const struct tri_shown_rows *shown)
{
    int64_t tiles = (m->head.rows + TRI_QTILE_ROWS - 1) / TRI_QTILE_ROWS;
    for (int64_t at = 0; at < shown->n_tokens; at += TRI_MODEL_TILE_TOKENS) {
        int64_t left = shown->n_tokens - at;
        int64_t n = left < TRI_MODEL_TILE_TOKENS ? left : TRI_MODEL_TILE_TOKENS;
        struct shown_loop l = { m, *all };
        tri__product_tokens(&l.job, first + at, n);
        l.job.y = shown->rows;
        tri_pool_for(m->pool, tiles, HEAD_TILES, shown_piece, &l);
        shown->show(shown->arg, at, n, shown->rows);
    }
}

static int64_t rows_wanted(const struct tri__step *s)
{
    int64_t wanted = 0;
    for (int64_t i = 0; i < s->n_runs; i++) {
        const struct tri_run *r = &s->runs[i];
        wanted += r->logits ? r->n_tokens - r->first_logits : 0;
        wanted += r->shown ? r->shown->n_tokens : 0;
    }
    return wanted;
}

static enum tri_status head(struct tri__step *s, int64_t banked, struct tri_error *err)
{
    struct tri_model *m = s->m;
    int64_t vocab = m->spec.vocab, first = 0;
    enum tri_status st = TRI_OK;
    if (rows_wanted(s) == 0)
        return TRI_OK;
    tri__time(m, TRI_TIME_TRUNK_WAIT);
    st = tri__trunk_need(m, m->spec.layers, err);
    if (st)
        return st;
    tri__time(m, TRI_TIME_MIX);
    mix(s, banked, m->out_mix);
    normalise(s, m->final_norm);
    tri__time(m, TRI_TIME_HEAD);
    struct head_loop l = { .s = s };
    tri__set_input(&m->head_in, m->x, m->spec.hidden, s->tokens);
    tri__product_of(m, &l.job, &m->head_in, &m->head, m->x, vocab);
    tri_pool_for(m->pool, (m->head.rows + TRI_QTILE_ROWS - 1) / TRI_QTILE_ROWS, HEAD_TILES,
                 head_piece, &l);
    for (int64_t i = 0; i < s->n_runs; first += s->runs[i++].n_tokens)
        if (s->runs[i].shown)
            show_rows(m, &l.job, first, s->runs[i].shown);
    for (int64_t i = 0; i < s->n_runs; i++) {
        const struct tri_run *r = &s->runs[i];
        int64_t n = r->logits ? r->n_tokens - r->first_logits : 0;
        enum tri_status bad = check_finite(r->logits, n * vocab, i, err);
        st = st ? st : bad;
    }
    return st;
}

enum tri_status tri_model_forward(struct tri_model *model, const struct tri_run *runs,
                                  int64_t n_runs, const struct tri_taps *taps,
                                  struct tri_error *err)
{
    struct tri__step s = { .m = model, .runs = runs, .n_runs = n_runs, .taps = taps };
    int64_t banked = 0;
    enum tri_status st = check_runs(model, runs, n_runs, &s.tokens, err);
    if (st)
        return st;
    tri__time(model, TRI_TIME_EMBED);
    st = embed(&s, err);
    for (int64_t l = 0; l < model->spec.layers && !st; l++) {
        st = run_layer(&s, l, &banked, err);
        if (!st && taps && taps->layer && taps->layer(taps->arg, l, model->spec.layers))
            st = tri_fail(err, TRI_CANCELLED, "stopped after layer %lld", (long long)l);
    }
    if (!st)
        st = head(&s, banked, err);
    tri__time_end(model);
    for (int64_t i = 0; i < n_runs; i++) {
        if (st && st != TRI_NUMERIC) /* a step that ended in NaN is no half step */
            tri_state_clear(runs[i].state);
        else
            tri_state_advance(runs[i].state, runs[i].n_tokens);
    }
    return st;
}
