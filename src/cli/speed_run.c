/*
 * Measuring: each row is repeated on states brought back to the same depth, a pass of the read test
 * between two repetitions, so that speed and limit are of the same minute. The first repetition is
 * not counted; it warms up and counts which experts are used, and of a long prompt it takes only
 * the first steps.
 */
#include "cli/speed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "os/pool.h"
#include "spec/spec.h"

struct run {
    const struct speed_args *a;
    struct speed_report *report;
    struct tri_opened *o;
    struct tri_pool *pool;          /* of the limits; sleeps while the model works */
    struct tri_budget *read_budget; /* beside --ram: the model may have taken all of that */
    struct tri_read_test *read;
    struct speed_drive drive;
    struct tri_state *base;   /* holds the depth of the current rows */
    struct tri_state **state; /* [most batch] */
    struct tri_run *runs;
    int32_t *tokens; /* of one step */
    float *logits;   /* [most batch][vocab] */
    uint64_t random;
    int64_t most_batch, capacity;
    double rep_s[SPEED_MAX_REPS];

    uint8_t *seen; /* [experts] of one layer and step */
    double distinct, steps;
};

enum { WARM_STEPS = 8 }; /* most of a prompt in the repetition that is not counted */

static int32_t random_token(struct run *r)
{
    r->random = r->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int32_t)((r->random >> 33) % (uint64_t)tri_model_spec(r->o->model)->vocab);
}

static void count_routes(void *arg, int64_t layer, const int32_t *experts, const float *weights,
                         int64_t n_rows, int64_t topk)
{
    struct run *r = arg;
    (void)layer;
    (void)weights;
    memset(r->seen, 0, (size_t)tri_model_spec(r->o->model)->experts);
    for (int64_t i = 0; i < n_rows * topk; i++) {
        r->distinct += !r->seen[experts[i]];
        r->seen[experts[i]] = 1;
    }
}

static enum tri_status forward(struct run *r, int64_t runs, bool count, struct tri_error *err)
{
    struct tri_taps taps = { .routes = count_routes, .arg = r };
    r->steps++;
    return tri_model_forward(r->o->model, r->runs, runs, count ? &taps : NULL, err);
}

/* Random tokens into one state, chunk by chunk; logits of the last one if asked for. */
static enum tri_status prefill(struct run *r, struct tri_state *state, int64_t n, bool logits,
                               bool count, struct tri_error *err)
{
    int64_t chunk = tri_model_chunk_tokens(r->o->model);
    enum tri_status st = TRI_OK;
    for (int64_t at = 0; at < n && !st; at += chunk) {
        int64_t k = n - at < chunk ? n - at : chunk;
        for (int64_t i = 0; i < k; i++)
            r->tokens[i] = random_token(r);
        bool last = logits && at + k == n;
        r->runs[0] = (struct tri_run){ state, r->tokens, k, k - 1, last ? r->logits : NULL, NULL };
        st = forward(r, 1, count, err);
    }
    return st;
}

static enum tri_status decode(struct run *r, const struct speed_row *row, bool count,
                              struct tri_error *err)
{
    enum tri_status st = TRI_OK;
    int64_t vocab = tri_model_spec(r->o->model)->vocab;
    for (int64_t step = 0; step < row->tokens && !st; step++) {
        for (int64_t i = 0; i < row->batch; i++) {
            r->tokens[i] = random_token(r);
            r->runs[i] =
                (struct tri_run){ r->state[i], r->tokens + i, 1, 0, r->logits + i * vocab, NULL };
        }
        st = forward(r, row->batch, count, err);
    }
    return st;
}

static enum tri_status to_depth(struct run *r, int64_t states, struct tri_error *err)
{
    enum tri_status st = TRI_OK;
    for (int64_t i = 0; i < states && !st; i++)
        st = tri_state_copy(r->state[i], r->base, err);
    return st;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One more pass of the read test; the best of a row and of all is kept. */
static void read_once(struct run *r, struct speed_row *row)
{
    if (!r->read)
        return;
    double rate = tri_read_test_run(r->read);
    r->report->reads++;
    if (rate > row->read_bytes_per_s)
        row->read_bytes_per_s = rate;
    if (rate > r->report->read_bytes_per_s)
        r->report->read_bytes_per_s = rate;
}

/* Bytes and operations of one repetition, with the experts that the first one used. */
static void add_cost(struct run *r, struct speed_row *row)
{
    const struct speed_cost *c = &r->report->cost;
    int64_t chunk = tri_model_chunk_tokens(r->o->model);
    double tokens = (double)(row->decode ? row->batch : row->tokens < chunk ? row->tokens : chunk);
    row->distinct = r->distinct / r->steps;
    row->expected_distinct = c->moe_layers * tri_distinct_experts(c->experts, c->topk, tokens);
    for (int64_t at = 0; at < row->tokens; at += row->decode ? 1 : chunk) {
        int64_t k = row->tokens - at < chunk ? row->tokens - at : chunk;
        struct speed_step s = { .tokens = (double)(row->decode ? row->batch : k),
                                .sequences = (double)(row->decode ? row->batch : 1),
                                .depth = (double)(row->depth + at),
                                .logits =
                                    (double)(row->decode ? row->batch : at + k == row->tokens),
                                .distinct = row->distinct };
        row->bytes += speed_step_bytes(c, &s);
        row->ops += speed_step_ops(c, &s);
    }
}

static int64_t warm_tokens(const struct run *r, const struct speed_row *row)
{
    int64_t most = WARM_STEPS * tri_model_chunk_tokens(r->o->model);
    return row->tokens < most ? row->tokens : most;
}

static enum tri_status repeat(struct run *r, struct speed_row *row, struct tri_error *err)
{
    int64_t states = row->decode ? row->batch : 1;
    r->distinct = r->steps = 0;
    for (int64_t rep = -1; rep < row->reps; rep++) {
        enum tri_status st = to_depth(r, states, err);
        read_once(r, row);
        if (!st)
            st = speed_drive_pass(&r->drive, row, err);
        if (st)
            return st;
        speed_drive_begin(&r->drive);
        tri_model_profile(r->o->model, rep < 0 ? NULL : &row->profile);
        double begin = tri_clock_s();
        if (row->decode)
            st = decode(r, row, rep < 0, err);
        else
            st = prefill(r, r->state[0], rep < 0 ? warm_tokens(r, row) : row->tokens, true, rep < 0,
                         err);
        double spent = tri_clock_s() - begin;
        tri_model_profile(r->o->model, NULL);
        if (st)
            return st;
        if (rep >= 0)
            speed_drive_end(&r->drive, row);
        if (rep < 0)
            add_cost(r, row);
        else
            r->rep_s[rep] = spent;
    }
    for (int64_t i = row->reps + 1; i < SPEED_LEAST_READS; i++)
        read_once(r, row);
    qsort(r->rep_s, (size_t)row->reps, sizeof r->rep_s[0], by_size);
    row->median_s = (r->rep_s[(row->reps - 1) / 2] + r->rep_s[row->reps / 2]) / 2;
    row->least_s = r->rep_s[0];
    row->most_s = r->rep_s[row->reps - 1];
    return TRI_OK;
}

static enum tri_status measure_row(struct run *r, struct speed_row row, struct tri_error *err)
{
    if (r->report->rows == SPEED_MAX_ROWS)
        return tri_fail(err, TRI_LIMIT, "more than %d rows asked for", SPEED_MAX_ROWS);
    row.reps = r->a->reps;
    if (isatty(STDERR_FILENO) && !r->a->flags.quiet)
        fprintf(stderr, "\r\033[Kmeasuring %s %lld, batch %lld, depth %lld",
                row.decode ? "decode" : "prefill", (long long)row.tokens, (long long)row.batch,
                (long long)row.depth);
    struct speed_row *kept = &r->report->row[r->report->rows++];
    *kept = row;
    enum tri_status st = repeat(r, kept, err);
    if (isatty(STDERR_FILENO) && !r->a->flags.quiet)
        fprintf(stderr, "\r\033[K");
    return st;
}

static enum tri_status measure_depth(struct run *r, int64_t depth, struct tri_error *err)
{
    const struct speed_args *a = r->a;
    tri_state_clear(r->base);
    enum tri_status st = TRI_OK;
    if (depth && a->fill)
        st = tri_state_fill(r->base, depth, 1, err);
    else if (depth)
        st = prefill(r, r->base, depth, false, false, err);
    for (int i = 0; i < a->prefill.n && !st; i++)
        st = measure_row(
            r, (struct speed_row){ .tokens = a->prefill.v[i], .batch = 1, .depth = depth }, err);
    for (int i = 0; i < a->batch.n && a->decode_tokens && !st; i++)
        st = measure_row(r,
                         (struct speed_row){ .decode = true,
                                             .tokens = a->decode_tokens,
                                             .batch = a->batch.v[i],
                                             .depth = depth },
                         err);
    return st;
}

static int64_t most_of(const struct speed_list *l, int64_t least)
{
    for (int i = 0; i < l->n; i++)
        least = l->v[i] > least ? l->v[i] : least;
    return least;
}

int64_t speed_most_batch(const struct speed_args *a)
{
    return a->decode_tokens ? most_of(&a->batch, 1) : 1;
}

int64_t speed_capacity(const struct speed_args *a)
{
    return most_of(&a->depth, 0) + most_of(&a->prefill, a->decode_tokens);
}

static enum tri_status open_states(struct run *r, struct tri_error *err)
{
    enum tri_status st = tri_model_state(r->o->model, r->capacity, &r->base, err);
    for (int64_t i = 0; i < r->most_batch && !st; i++)
        st = tri_model_state(r->o->model, r->capacity, &r->state[i], err);
    return st;
}

static enum tri_status open_read(struct run *r, struct tri_error *err)
{
    enum tri_status st =
        tri_read_test_open(&r->read, r->a->read_bytes, r->pool, r->read_budget, NULL);
    if (st)
        tri_fail(err, st,
                 "no memory for a read test of %.0f MiB beside the model; a smaller --read, or "
                 "--no-limits",
                 (double)r->a->read_bytes / 1048576);
    return st;
}

static enum tri_status open_run(struct run *r, struct tri_error *err)
{
    const struct speed_args *a = r->a;
    const struct tri_spec *spec = tri_model_spec(r->o->model);
    int64_t chunk = tri_model_chunk_tokens(r->o->model);
    r->most_batch = speed_most_batch(a);
    r->capacity = speed_capacity(a);
    TRI_ASSERT(r->most_batch <= chunk); /* cmd_speed.c */
    r->state = tri_calloc((size_t)r->most_batch, sizeof *r->state);
    r->runs = tri_calloc((size_t)r->most_batch, sizeof *r->runs);
    r->tokens = tri_calloc((size_t)chunk, sizeof *r->tokens);
    r->logits = tri_calloc((size_t)(r->most_batch * spec->vocab), sizeof *r->logits);
    r->seen = tri_calloc((size_t)spec->experts + 1, 1);
    if (!r->state || !r->runs || !r->tokens || !r->logits || !r->seen)
        return tri_fail(err, TRI_NOMEM, "no memory for %lld sequences", (long long)r->most_batch);
    enum tri_status st = open_states(r, err);
    if (!st)
        st = speed_cost_of(&r->report->cost, r->o, err);
    if (!st)
        st = tri_pool_open(&r->pool, a->flags.options.threads, err);
    if (!st) /* refused: a note was made for the model's threads */
        r->report->bound = tri_numa_bind(&r->o->numa, r->pool, NULL) == TRI_OK && r->o->numa.bind;
    if (!st && !a->no_limits)
        st = tri_budget_open(&r->read_budget, a->read_bytes, err);
    if (!st && !a->no_limits)
        st = open_read(r, err);
    if (!st)
        st = speed_drive_open(&r->drive, r->o, a, err);
    if (st)
        return st;
    r->report->threads = tri_pool_threads(r->pool);
    if (!a->no_limits)
        r->report->peaks = tri_peaks_measure(r->pool, r->report->peak);
    return TRI_OK;
}

enum tri_status speed_run(struct speed_report *report, const struct speed_args *a,
                          struct tri_opened *o, struct tri_error *err)
{
    struct run *r = tri_calloc(1, sizeof *r);
    if (!r)
        return tri_fail(err, TRI_NOMEM, "no memory to measure");
    r->a = a;
    r->report = report;
    r->o = o;
    enum tri_status st = open_run(r, err);
    for (int i = 0; i < a->depth.n && !st; i++)
        st = measure_depth(r, a->depth.v[i], err);
    for (int64_t i = 0; r->state && i < r->most_batch; i++)
        tri_state_close(r->state[i]);
    tri_state_close(r->base);
    tri_read_test_close(r->read);
    speed_drive_close(&r->drive);
    tri_budget_close(r->read_budget);
    tri_pool_close(r->pool);
    tri_free(r->state);
    tri_free(r->runs);
    tri_free(r->tokens);
    tri_free(r->logits);
    tri_free(r->seen);
    tri_free(r);
    return st;
}
