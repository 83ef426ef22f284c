/*
 * The step loop: picks who takes part in one forward pass and with how many rows, runs it, and
 * turns logits into tokens and ends. Decoding sequences come first, so that a long prompt never
 * stops a running answer; what is left of the chunk goes to prompts, oldest first.
 */
#include "engine/engine_priv.h"

#include "base/clock.h"

static int64_t pending(const struct tri_sequence *s)
{
    return s->n_tokens - tri_state_tokens(s->state);
}

/* Decoding: the one token that was sampled last is all that is missing. */
static bool decodes(const struct tri_sequence *s)
{
    return s->n_tokens > s->first_output && pending(s) == 1;
}

static bool before(const struct tri_sequence *a, const struct tri_sequence *b)
{
    const struct tri_engine *e = a->engine;
    if (decodes(a) != decodes(b))
        return decodes(a);
    if (e->short_first && e->counters.steps % 2 == 0 && pending(a) != pending(b))
        return pending(a) < pending(b);
    return a->age < b->age;
}

/* Active sequences into e->order, those served first in front. Few: insertion will do. */
static int64_t line_up(struct tri_engine *e)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->max_sequences; i++) {
        struct tri_sequence *s = e->slots[i];
        if (!s || !s->active || s->paused)
            continue;
        int64_t at = n++;
        for (; at > 0 && before(s, e->order[at - 1]); at--)
            e->order[at] = e->order[at - 1];
        e->order[at] = s;
    }
    return n;
}

/* The last multiple of `unit` that `room` rows from `at` on can reach; 0 rows if none. */
static int64_t rows_to(int64_t at, int64_t room, int64_t unit)
{
    int64_t end = (at + room) / unit * unit;
    return end > at ? end - at : 0;
}

/* How many of its pending tokens a sequence computes now, given `room` rows. */
static int64_t share(const struct tri_sequence *s, int64_t room)
{
    int64_t want = pending(s), at = tri_state_tokens(s->state);
    if (at < s->halt && at + want > s->halt)
        want = s->halt - at;
    if (want <= room)
        return want;
    int64_t rows = rows_to(at, room, TRI_ENGINE_GRID_TOKENS);
    if (rows == 0 && room >= TRI_MODEL_TILE_TOKENS)
        rows = rows_to(at, room, TRI_MODEL_TILE_TOKENS);
    return rows;
}

/* Rows of one step. */
struct shares {
    int64_t n, decode_tokens, prefill_tokens; /* n: how many of e->order take part */
};

/* Who takes part, moved to the front of e->order, with how many rows. */
static struct shares plan(struct tri_engine *e, int64_t n_active)
{
    struct shares to = { 0 };
    int64_t left = e->chunk_tokens, prompts = tri__pace_rows(&e->pace, e->pace.level);
    if (n_active > 1 && e->shared_rows < prompts)
        prompts = e->shared_rows;
    for (int64_t i = 0; i < n_active && left > 0; i++) {
        struct tri_sequence *s = e->order[i];
        int64_t room = decodes(s) || left < prompts ? left : prompts, rows = share(s, room);
        if (room == 0 || (rows == 0 && to.prefill_tokens))
            continue;
        rows = rows ? rows : room;
        e->order[to.n] = s;
        s->in_step = true;
        bool last = rows == pending(s) && !s->how.prompt_only;
        e->runs[to.n] = (struct tri_run){
            .state = s->state,
            .tokens = s->tokens + tri_state_tokens(s->state),
            .n_tokens = rows,
            .first_logits = last ? rows - 1 : rows,
            .logits = last ? e->logits + to.n * e->vocab : NULL,
            .shown = tri__engine_score_rows(s, rows),
        };
        *(decodes(s) ? &to.decode_tokens : &to.prefill_tokens) += rows;
        prompts -= decodes(s) ? 0 : rows;
        left -= rows;
        to.n++;
    }
    return to;
}

static void account(struct tri_engine *e, const struct shares *to, uint64_t ns)
{
    double decode = (double)to->decode_tokens, all = decode + (double)to->prefill_tokens;
    uint64_t decode_ns = (uint64_t)((double)ns * decode / all);
    e->counters.steps++;
    e->counters.decode_tokens += (uint64_t)to->decode_tokens;
    e->counters.prefill_tokens += (uint64_t)to->prefill_tokens;
    e->counters.decode_ns += decode_ns;
    e->counters.prefill_ns += ns - decode_ns;
}

static void end_with_error(struct tri_sequence *s, struct tri_step_event *event)
{
    s->active = false;
    event->end = TRI_END_ERROR;
    event->error = &s->error;
}

static bool is_stop(const struct tri_sequence *s, int32_t id)
{
    for (int64_t i = 0; i < s->how.n_stop_ids; i++)
        if (s->stop_ids[i] == id)
            return true;
    return false;
}

static enum tri_end end_of(const struct tri_sequence *s, int32_t id)
{
    if (is_stop(s, id))
        return TRI_END_STOP;
    if (s->how.max_tokens > 0 && s->n_tokens - s->first_output >= s->how.max_tokens)
        return TRI_END_LENGTH;
    return s->n_tokens == s->max_tokens ? TRI_END_CONTEXT : TRI_END_NONE;
}

/* Is there an id that the constraint allows and that is no stop id? */
static bool may_go_on(const struct tri_sequence *s, const uint64_t *allowed, size_t words)
{
    for (size_t w = 0; w < words; w++) {
        uint64_t bits = allowed[w];
        for (int64_t i = 0; bits && i < s->how.n_stop_ids; i++)
            if ((size_t)s->stop_ids[i] / 64 == w)
                bits &= ~(1ull << s->stop_ids[i] % 64);
        if (bits)
            return true;
    }
    return false;
}

/* What the constraint, if there is one, says about the next token. False: it failed. */
static bool ask_constraint(struct tri_sequence *s, struct tri__engine_pick *pick)
{
    const struct tri_constraint *c = s->how.constraint;
    if (!c)
        return true;
    pick->allowed = c->allowed(c->arg, &pick->allowed_words, &s->error);
    if (!pick->allowed) {
        tri_fail(&s->error, TRI_LIMIT, "the grammar allows nothing more");
        return false;
    }
    if (pick->n_banned && !may_go_on(s, pick->allowed, pick->allowed_words))
        pick->n_banned = 0;
    return true;
}

/* The next token of a sequence from its logits, told in `event`. */
static void choose(struct tri_sequence *s, const float *logits, struct tri_step_event *event)
{
    struct tri_engine *e = s->engine;
    int64_t made = s->n_tokens - s->first_output;
    struct tri__engine_pick pick = {
        .logits = logits,
        .how = &s->how.sampling,
        .marks = s->marks,
        .bias = s->bias,
        .n_bias = s->how.n_bias,
        .banned = s->stop_ids,
        .n_banned = made < s->how.min_tokens ? s->how.n_stop_ids : 0,
        .position = (uint64_t)s->n_tokens,
    };
    int32_t id = -1;
    s->error = (struct tri_error){ 0 };
    if (!ask_constraint(s, &pick) ||
        tri__engine_sample(&e->sampler, &pick, &id, &s->error) != TRI_OK) {
        end_with_error(s, event);
        return;
    }
    if (s->how.logprobs) {
        tri__engine_logprobs(logits, e->vocab, id, &event->chosen, s->top, s->how.top_logprobs);
        event->top = s->top;
        event->n_top = s->how.top_logprobs;
    }
    s->tokens[s->n_tokens++] = id;
    s->marks[id] += 2;
    event->token = id;
    event->end = end_of(s, id);
    if (s->how.constraint) {
        s->how.constraint->take(s->how.constraint->arg, id);
        if (event->end == TRI_END_NONE && s->how.constraint->done(s->how.constraint->arg))
            event->end = TRI_END_STOP;
    }
    s->active = event->end == TRI_END_NONE;
}

/* One sequence after a forward pass. */
static void settle(struct tri_engine *e, int64_t i, int64_t first_row)
{
    struct tri_sequence *s = e->order[i];
    const struct tri_run *run = &e->runs[i];
    struct tri_step_event *event = &e->events[i];
    *event = (struct tri_step_event){
        .sequence = s, .token = -1, .first_row = first_row, .n_rows = run->n_tokens
    };
    if (s->score_failed || (run->logits && !tri__engine_finite(run->logits, e->vocab))) {
        int64_t token = s->score_failed ? s->how.scores->n_done : s->n_tokens - 1;
        s->error = (struct tri_error){ 0 };
        tri_fail(&s->error, TRI_NUMERIC, "the logits after token %lld hold NaN or Inf",
                 (long long)token);
        e->counters.numeric_failures++;
        tri_state_clear(s->state);
        end_with_error(s, event);
        return;
    }
    if (run->logits) {
        choose(s, run->logits, event);
    } else if (s->how.prompt_only && pending(s) == 0) {
        event->end = TRI_END_LENGTH;
        s->active = false;
    }
}

enum tri_status tri_engine_step(struct tri_engine *engine, const struct tri_step_event **events,
                                int64_t *n_events, struct tri_error *err)
{
    struct tri_engine *e = engine;
    struct shares to = plan(e, line_up(e));
    *n_events = 0;
    if (to.n == 0)
        return TRI_OK;
    uint64_t begin = tri_clock_ns();
    struct tri_error failure = { 0 };
    enum tri_status st = tri_model_forward(e->model, e->runs, to.n, e->taps, &failure);
    uint64_t end = tri_clock_ns();
    for (int64_t i = 0; i < to.n; i++)
        e->order[i]->in_step = false;
    account(e, &to, end - begin);
    if (st == TRI_OK && to.decode_tokens == 0)
        tri__pace_took(&e->pace, to.prefill_tokens, end - begin);
    if (st != TRI_OK && st != TRI_NUMERIC) {
        for (int64_t i = 0; i < to.n; i++)
            e->order[i]->active = false;
        if (err && err->status == TRI_OK)
            *err = failure;
        return st;
    }
    for (int64_t i = 0, row = 0; i < to.n; i++) {
        settle(e, i, row);
        row += e->runs[i].n_tokens;
    }
    e->counters.sample_ns += tri_clock_ns() - end;
    *events = e->events;
    *n_events = to.n;
    return TRI_OK;
}
