/* What the tests of sequences and steps share: an engine over the stand-in model, its calls with
 * what they must return, and what greedy must give. */
#ifndef TRI_TESTS_ENGINE_RIG_H
#define TRI_TESTS_ENGINE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/engine_priv.h"
#include "unit/engine/fake_model.h"

struct rig {
    struct tri_model model;
    struct tri_budget *budget;
    struct tri_engine *engine;
};

static inline void rig_open(struct rig *rig, int64_t chunk, struct tri_engine_options o)
{
    rig->model = fake_model(chunk);
    assert_int_equal(tri_budget_open(&rig->budget, 64 << 20, NULL), TRI_OK);
    assert_int_equal(tri_engine_open(&rig->engine, &rig->model, &o, rig->budget, NULL), TRI_OK);
}

static inline void rig_up(struct rig *rig, int64_t chunk, int64_t sequences)
{
    rig_open(rig, chunk, (struct tri_engine_options){ .max_sequences = sequences, .scores = true });
}

static inline void rig_down(struct rig *rig)
{
    tri_engine_close(rig->engine);
    struct tri_budget_report now;
    tri_budget_read(rig->budget, &now);
    assert_int_equal(now.used_bytes, 0);
    tri_budget_close(rig->budget);
}

static inline struct tri_generate greedy(int64_t max_tokens)
{
    struct tri_generate how = { .sampling = tri_sampling_default(), .max_tokens = max_tokens };
    how.sampling.temperature = 0;
    return how;
}

static inline struct tri_sequence *sequence(struct rig *rig, int64_t max_tokens)
{
    struct tri_sequence *s = NULL;
    assert_int_equal(tri_sequence_open(&s, rig->engine, max_tokens, NULL), TRI_OK);
    return s;
}

/* A prompt of n tokens that differs by `salt`. */
static inline void prompt(struct tri_sequence *s, int64_t n, int salt)
{
    int32_t tokens[FAKE_ROOM];
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (int32_t)((i * 31 + salt * 7 + 3) % 90);
    assert_int_equal(tri_sequence_prompt(s, tokens, n, NULL, NULL), TRI_OK);
}

static inline void start(struct tri_sequence *s, struct tri_generate how)
{
    assert_int_equal(tri_sequence_start(s, &how, NULL), TRI_OK);
}

/* One step; returns how many events there are. */
static inline int64_t step(struct rig *rig, const struct tri_step_event **events)
{
    int64_t n = 0;
    assert_int_equal(tri_engine_step(rig->engine, events, &n, NULL), TRI_OK);
    return n;
}

/* Steps until nobody is active; returns the last end told for `s`. */
static inline enum tri_end run(struct rig *rig, const struct tri_sequence *s)
{
    enum tri_end end = TRI_END_NONE;
    for (;;) {
        const struct tri_step_event *events = NULL;
        int64_t n = step(rig, &events);
        if (n == 0)
            return end;
        for (int64_t i = 0; i < n; i++)
            if (events[i].sequence == s && events[i].end != TRI_END_NONE)
                end = events[i].end;
    }
}

/* What greedy must give after a prompt, computed from the fake's function alone. */
static inline void assert_greedy(const struct tri_sequence *s, int64_t n_prompt)
{
    int64_t n = 0;
    const int32_t *tokens = tri_sequence_tokens(s, &n);
    assert_true(n > n_prompt);
    for (int64_t at = n_prompt; at < n; at++) {
        float logits[FAKE_VOCAB];
        fake_logits(tokens, at, logits);
        int best = 0;
        for (int i = 1; i < FAKE_VOCAB; i++)
            if (logits[i] > logits[best])
                best = i;
        assert_int_equal(tokens[at], best);
    }
}

#endif
