/*
 * Opening and closing an engine: everything the token path will use is taken here.
 */
#include "engine/engine_priv.h"

static enum tri_status check_options(const struct tri_engine_options *o, int64_t vocab,
                                     struct tri_error *err)
{
    if (o->max_sequences < 0 || o->max_sequences > TRI_ENGINE_MAX_SEQUENCES)
        return tri_fail(err, TRI_LIMIT, "%lld sequences, at most %d", (long long)o->max_sequences,
                        TRI_ENGINE_MAX_SEQUENCES);
    if (o->plain_ids < 0 || o->plain_ids > vocab)
        return tri_fail(err, TRI_ARG, "%lld ordinary tokens, but the model's vocabulary is %lld",
                        (long long)o->plain_ids, (long long)vocab);
    if (o->shared_rows < 0)
        return tri_fail(err, TRI_ARG, "%lld rows of a step", (long long)o->shared_rows);
    int64_t plain = o->plain_ids ? o->plain_ids : vocab, last = plain - 1;
    for (int64_t i = 0; i < o->n_specials; i++) {
        if (o->specials[i] <= last || o->specials[i] >= vocab)
            return tri_fail(err, TRI_ARG,
                            "special id %d is out of order or outside the vocabulary of %lld",
                            (int)o->specials[i], (long long)vocab);
        last = o->specials[i];
    }
    return TRI_OK;
}

static enum tri_status take(struct tri_engine *e, uint64_t count, uint64_t size, void *out,
                            struct tri_error *err)
{
    void *memory = NULL;
    enum tri_status st = tri_budget_alloc(e->budget, TRI_MEM_SCRATCH, count * size, &memory, err);
    if (st == TRI_OK)
        *(void **)out = memory;
    return st;
}

static enum tri_status take_all(struct tri_engine *e, bool scores, struct tri_error *err)
{
    struct tri__engine_sampler *s = &e->sampler;
    uint64_t n = (uint64_t)s->n, rows = (uint64_t)e->max_sequences;
    enum tri_status st = take(e, (uint64_t)s->n_specials, sizeof *s->specials, &s->specials, err);
    if (st == TRI_OK)
        st = take(e, n, sizeof *s->logits, &s->logits, err);
    if (st == TRI_OK)
        st = take(e, n, sizeof *s->keys, &s->keys, err);
    if (st == TRI_OK)
        st = take(e, n, sizeof *s->work, &s->work, err);
    if (st == TRI_OK)
        st = take(e, rows * (uint64_t)e->vocab, sizeof *e->logits, &e->logits, err);
    if (st == TRI_OK && scores)
        st = take(e, TRI_MODEL_TILE_TOKENS * (uint64_t)e->vocab, sizeof *e->shown, &e->shown, err);
    if (st == TRI_OK)
        st = take(e, rows, sizeof(void *), &e->slots, err);
    if (st == TRI_OK)
        st = take(e, rows, sizeof(void *), &e->order, err);
    if (st == TRI_OK)
        st = take(e, rows, sizeof *e->runs, &e->runs, err);
    if (st == TRI_OK)
        st = take(e, rows, sizeof *e->events, &e->events, err);
    return st;
}

enum tri_status tri_engine_open(struct tri_engine **out, struct tri_model *model,
                                const struct tri_engine_options *options, struct tri_budget *budget,
                                struct tri_error *err)
{
    static const struct tri_engine_options defaults;
    const struct tri_engine_options *o = options ? options : &defaults;
    int64_t vocab = tri_model_spec(model)->vocab;
    enum tri_status st = check_options(o, vocab, err);
    if (st != TRI_OK)
        return st;
    struct tri_engine *e = tri_calloc(1, sizeof *e);
    if (!e)
        return tri_fail(err, TRI_NOMEM, "no memory for the engine");
    e->model = model;
    e->budget = budget;
    e->vocab = vocab;
    e->chunk_tokens = tri_model_chunk_tokens(model);
    e->max_sequences = o->max_sequences ? o->max_sequences : 1;
    e->sampler.plain_ids = o->plain_ids ? o->plain_ids : vocab;
    e->taps = o->taps;
    e->sampler.n_specials = o->n_specials;
    e->short_first = o->short_first;
    e->growing = o->growing;
    e->shared_rows = o->shared_rows ? o->shared_rows : e->chunk_tokens;
    e->pace = (struct tri__pace){ .most_rows = e->chunk_tokens };
    /* A BF16 state is rounded where a step ends: there results must not depend on a clock. */
    if (tri_model_state_form(model).kda == TRI_DT_F32)
        e->pace.target_ns = o->step_target_ns ? o->step_target_ns : TRI_ENGINE_STEP_TARGET_NS;
    e->sampler.n = e->sampler.plain_ids + o->n_specials;
    st = take_all(e, o->scores, err);
    if (st != TRI_OK) {
        tri_engine_close(e);
        return st;
    }
    for (int64_t i = 0; i < o->n_specials; i++)
        e->sampler.specials[i] = o->specials[i];
    *out = e;
    return TRI_OK;
}

void tri_engine_watch(struct tri_engine *engine, const struct tri_taps *taps)
{
    engine->taps = taps;
}

void tri_engine_close(struct tri_engine *engine)
{
    if (!engine)
        return;
    struct tri_engine *e = engine;
    struct tri__engine_sampler *s = &e->sampler;
    uint64_t n = (uint64_t)s->n, rows = (uint64_t)e->max_sequences;
    for (int64_t i = 0; e->slots && i < e->max_sequences; i++)
        TRI_ASSERT(!e->slots[i]);
    struct {
        void *memory;
        uint64_t bytes;
    } const taken[] = {
        { s->specials, (uint64_t)s->n_specials * sizeof *s->specials },
        { s->logits, n * sizeof *s->logits },
        { s->keys, n * sizeof *s->keys },
        { s->work, n * sizeof *s->work },
        { e->logits, rows * (uint64_t)e->vocab * sizeof *e->logits },
        { e->shown, TRI_MODEL_TILE_TOKENS * (uint64_t)e->vocab * sizeof *e->shown },
        { e->slots, rows * sizeof(void *) },
        { e->order, rows * sizeof(void *) },
        { e->runs, rows * sizeof *e->runs },
        { e->events, rows * sizeof *e->events },
    };
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        tri_budget_free(e->budget, TRI_MEM_SCRATCH, taken[i].memory, taken[i].bytes);
    tri_free(e);
}

void tri_engine_count(const struct tri_engine *engine, struct tri_engine_counters *out)
{
    *out = engine->counters;
}
