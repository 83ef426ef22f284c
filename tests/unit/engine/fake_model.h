/*
 * A stand-in for model and state in the engine's tests, linked instead of the real ones: a state
 * is the list of the tokens it saw, and logits are a fixed function of that whole list. So any
 * mistake in what the engine feeds (order, cuts, a token twice or never) changes every later token.
 */
#ifndef TRI_TESTS_FAKE_MODEL_H
#define TRI_TESTS_FAKE_MODEL_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "model/model.h"

enum { FAKE_VOCAB = 97, FAKE_ROOM = 4096 };

struct tri_state {
    int64_t n, max;
    int32_t seen[FAKE_ROOM];
};

struct tri_model {
    struct tri_spec spec;
    int64_t chunk_tokens;
    int64_t poison;       /* NaN logits right after this token id; -1: never */
    enum tri_status fail; /* returned by the next forward */
    int64_t calls, rows_last, runs_last, rows[256]; /* rows[i]: of the i-th call */
};

const struct tri_spec *tri_model_spec(const struct tri_model *model)
{
    return &model->spec;
}

int64_t tri_model_chunk_tokens(const struct tri_model *model)
{
    return model->chunk_tokens;
}

uint64_t tri_model_fingerprint(const struct tri_model *model)
{
    (void)model;
    return 7;
}

enum tri_status tri_model_state(struct tri_model *model, int64_t max_tokens, struct tri_state **out,
                                struct tri_error *err)
{
    (void)model;
    (void)err;
    struct tri_state *s = tri_calloc(1, sizeof *s);
    s->max = max_tokens;
    *out = s;
    return TRI_OK;
}

void tri_state_close(struct tri_state *state)
{
    tri_free(state);
}

int64_t tri_state_tokens(const struct tri_state *state)
{
    return state->n;
}

int64_t tri_state_max_tokens(const struct tri_state *state)
{
    return state->max;
}

void tri_state_clear(struct tri_state *state)
{
    state->n = 0;
}

static struct tri_state fake_file; /* one file is enough */

enum tri_status tri_state_save(const struct tri_state *state, const char *path,
                               uint64_t fingerprint, const int32_t *tokens, int64_t n_tokens,
                               struct tri_error *err)
{
    (void)path;
    (void)fingerprint;
    (void)tokens;
    (void)err;
    TRI_ASSERT(n_tokens == state->n);
    fake_file = *state;
    return TRI_OK;
}

enum tri_status tri_state_load(struct tri_state *state, const char *path, uint64_t fingerprint,
                               int32_t **tokens, int64_t *n_tokens, struct tri_error *err)
{
    (void)path;
    (void)fingerprint;
    (void)err;
    int64_t max = state->max;
    *state = fake_file;
    state->max = max;
    *tokens = tri_calloc((size_t)state->n + 1, sizeof **tokens);
    memcpy(*tokens, state->seen, (size_t)state->n * sizeof **tokens);
    *n_tokens = state->n;
    return TRI_OK;
}

/* Logits after a list of tokens. */
static void fake_logits(const int32_t *seen, int64_t n, float *logits)
{
    uint64_t h = 1469598103934665603u;
    for (int64_t i = 0; i < n; i++)
        h = (h ^ (uint64_t)(seen[i] + 1)) * 1099511628211u;
    for (int i = 0; i < FAKE_VOCAB; i++) {
        uint64_t z = (h ^ (uint64_t)i * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
        logits[i] = (float)(z >> 40) / 4194304.0f; /* 0..4 */
    }
}

enum tri_status tri_model_forward(struct tri_model *model, const struct tri_run *runs,
                                  int64_t n_runs, const struct tri_taps *taps,
                                  struct tri_error *err)
{
    (void)taps;
    enum tri_status st = model->fail;
    model->fail = TRI_OK;
    int64_t rows = 0;
    for (int64_t i = 0; i < n_runs && st == TRI_OK; i++) {
        struct tri_state *s = runs[i].state;
        TRI_ASSERT(runs[i].n_tokens >= 1 && s->n + runs[i].n_tokens <= s->max);
        rows += runs[i].n_tokens;
        for (int64_t t = 0; t < runs[i].n_tokens; t++) {
            s->seen[s->n++] = runs[i].tokens[t];
            if (t >= runs[i].first_logits)
                fake_logits(s->seen, s->n,
                            runs[i].logits + (t - runs[i].first_logits) * FAKE_VOCAB);
        }
    }
    TRI_ASSERT(rows <= model->chunk_tokens);
    for (int64_t i = 0; i < n_runs && st != TRI_IO; i++) {
        if (!runs[i].logits || runs[i].tokens[runs[i].n_tokens - 1] != model->poison)
            continue;
        runs[i].logits[5] = NAN;
        st = tri_fail(err, TRI_NUMERIC, "NaN in run %d", (int)i);
    }
    if (st == TRI_IO)
        for (int64_t i = 0; i < n_runs; i++)
            tri_state_clear(runs[i].state);
    model->rows[model->calls++ % 256] = rows;
    model->rows_last = rows;
    model->runs_last = n_runs;
    return st == TRI_IO ? tri_fail(err, st, "shard 3 cannot be read") : st;
}

static struct tri_model fake_model(int64_t chunk_tokens)
{
    struct tri_model m = { .chunk_tokens = chunk_tokens, .poison = -1 };
    m.spec.vocab = FAKE_VOCAB;
    return m;
}

#endif
