/*
 * A stand-in for model and state in the engine's tests, linked instead of the real ones: a state
 * is the list of the tokens it saw, and logits are a fixed function of that whole list. So any
 * mistake in what the engine feeds (order, cuts, a token twice or never) changes every later token.
 */
#ifndef TRI_TESTS_FAKE_MODEL_H
#define TRI_TESTS_FAKE_MODEL_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "model/model.h"

enum { FAKE_VOCAB = 97, FAKE_ROOM = 4096, FAKE_LAYERS = 40 };

struct tri_state {
    int64_t n, max, room;
    int32_t seen[FAKE_ROOM];
};

struct tri_model {
    struct tri_spec spec;
    int64_t chunk_tokens;
    int64_t poison;                         /* NaN logits right after this token id; -1: never */
    enum tri_status fail;                   /* returned by the next forward */
    _Atomic int slow_us;                    /* a step takes at least so long */
    _Atomic int slow_layer_us, layers_done; /* so long each of FAKE_LAYERS; 0: no layers */
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

struct tri_state_form tri_model_state_form(const struct tri_model *model)
{
    (void)model;
    return (struct tri_state_form){ 0 };
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
    s->max = s->room = max_tokens;
    *out = s;
    return TRI_OK;
}

enum tri_status tri_model_growing_state(struct tri_model *model, int64_t max_tokens,
                                        struct tri_state **out, struct tri_error *err)
{
    enum tri_status st = tri_model_state(model, max_tokens, out, err);
    (*out)->room = 0;
    return st;
}

/* Room is counted as 10 bytes a token, as tri_state_cost of the scheduler's tests has it. */
enum tri_status tri_state_make_room(struct tri_state *state, int64_t tokens, struct tri_error *err)
{
    TRI_ASSERT(tokens >= state->n);
    if (tokens > state->max)
        return tri_fail(err, TRI_LIMIT, "too much room");
    state->room = tokens;
    return TRI_OK;
}

uint64_t tri_state_room_bytes(const struct tri_state *state, int64_t tokens)
{
    return 10 * (uint64_t)(tokens < state->max ? tokens : state->max);
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

enum tri_status tri_state_copy(struct tri_state *dst, const struct tri_state *src,
                               struct tri_error *err)
{
    if (src->n > dst->room)
        return tri_fail(err, TRI_LIMIT, "too small");
    memcpy(dst->seen, src->seen, (size_t)src->n * sizeof *src->seen);
    dst->n = src->n;
    return TRI_OK;
}

/* While this is true, saving does not come back. */
static _Atomic bool fake_drive_stands;

/* Files: fingerprint, count, ids. What is not that is refused. */
uint64_t tri_state_file_bytes(const struct tri_state *state)
{
    return 16 + 4 * (uint64_t)state->n;
}

enum tri_status tri_state_save(const struct tri_state *state, const char *path,
                               uint64_t fingerprint, const int32_t *tokens, int64_t n_tokens,
                               struct tri_error *err)
{
    while (fake_drive_stands)
        usleep(1000);
    FILE *f = fopen(path, "wb");
    TRI_ASSERT(n_tokens == state->n && memcmp(tokens, state->seen, (size_t)n_tokens * 4) == 0);
    if (!f)
        return tri_fail(err, TRI_IO, "cannot write");
    bool ok = fwrite(&fingerprint, 8, 1, f) == 1 && fwrite(&n_tokens, 8, 1, f) == 1 &&
              (n_tokens == 0 || fwrite(tokens, (size_t)n_tokens * 4, 1, f) == 1);
    return fclose(f) == 0 && ok ? TRI_OK : TRI_IO;
}

enum tri_status tri_state_peek(const struct tri_state *shape, const char *path,
                               uint64_t fingerprint, int32_t **tokens, int64_t *n_tokens,
                               struct tri_error *err)
{
    uint64_t print = 0;
    int64_t n = 0;
    FILE *f = fopen(path, "rb");
    (void)shape;
    if (!f)
        return tri_fail(err, TRI_IO, "cannot read");
    int32_t *ids = tri_calloc(FAKE_ROOM, sizeof *ids);
    bool ok = fread(&print, 8, 1, f) == 1 && fread(&n, 8, 1, f) == 1 && print == fingerprint &&
              n >= 0 && n <= FAKE_ROOM && fread(ids, 4, FAKE_ROOM, f) == (size_t)n;
    fclose(f);
    if (!ok) {
        tri_free(ids);
        return tri_fail(err, TRI_FORMAT, "damaged");
    }
    *tokens = ids;
    *n_tokens = n;
    return TRI_OK;
}

enum tri_status tri_state_load(struct tri_state *state, const char *path, uint64_t fingerprint,
                               int32_t **tokens, int64_t *n_tokens, struct tri_error *err)
{
    enum tri_status st = tri_state_peek(state, path, fingerprint, tokens, n_tokens, err);
    state->n = 0;
    if (st != TRI_OK)
        return st;
    TRI_ASSERT(*n_tokens <= state->room);
    state->n = *n_tokens;
    memcpy(state->seen, *tokens, (size_t)state->n * sizeof **tokens);
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

/* Layers of slow_layer_us each; non-zero: the tap stopped the step. */
static int fake_layers(struct tri_model *model, const struct tri_taps *taps)
{
    for (int64_t l = 0; model->slow_layer_us && l < FAKE_LAYERS; l++) {
        usleep((useconds_t)model->slow_layer_us);
        model->layers_done++;
        if (taps && taps->layer && taps->layer(taps->arg, l, FAKE_LAYERS))
            return 1;
    }
    return 0;
}

/* Some rows of a run as the real model shows them. `s` has seen everything before the run. */
static void fake_show(const struct tri_model *model, const struct tri_state *s,
                      const struct tri_run *run)
{
    const struct tri_shown_rows *to = run->shown;
    static _Thread_local struct tri_state seen;
    memcpy(seen.seen, s->seen, sizeof seen.seen);
    seen.n = s->n;
    for (int64_t at = 0, n = 0; at < to->n_tokens; at += n) {
        for (n = 0; n < TRI_MODEL_TILE_TOKENS && at + n < to->n_tokens; n++) {
            float *row = to->rows + n * FAKE_VOCAB;
            seen.seen[seen.n++] = run->tokens[at + n];
            fake_logits(seen.seen, seen.n, row);
            if (run->tokens[at + n] == model->poison)
                row[5] = NAN;
        }
        to->show(to->arg, at, n, to->rows);
    }
}

enum tri_status tri_model_forward(struct tri_model *model, const struct tri_run *runs,
                                  int64_t n_runs, const struct tri_taps *taps,
                                  struct tri_error *err)
{
    enum tri_status st = model->fail;
    model->fail = TRI_OK;
    usleep((useconds_t)model->slow_us);
    if (fake_layers(model, taps)) {
        for (int64_t i = 0; i < n_runs; i++)
            tri_state_clear(runs[i].state);
        return tri_fail(err, TRI_CANCELLED, "stopped");
    }
    int64_t rows = 0;
    for (int64_t i = 0; i < n_runs && st == TRI_OK; i++) {
        struct tri_state *s = runs[i].state;
        TRI_ASSERT(runs[i].n_tokens >= 1 && s->n + runs[i].n_tokens <= s->room);
        rows += runs[i].n_tokens;
        if (runs[i].shown)
            fake_show(model, s, &runs[i]);
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
