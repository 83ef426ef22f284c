/*
 * One sequence: its tokens, its state, and the options of the generation that runs on it. The
 * state lags behind the tokens; steps make up for it. A sampled token is appended at once but
 * computed only by the next step, so that a chat's next turn continues it without recomputing.
 */
#include "engine/engine_priv.h"

#include <math.h>
#include <string.h>

static uint64_t token_bytes(const struct tri_sequence *s)
{
    return (uint64_t)s->max_tokens * sizeof *s->tokens;
}

static uint64_t mark_bytes(const struct tri_engine *e)
{
    return (uint64_t)e->vocab * sizeof(uint32_t);
}

static int64_t free_slot(const struct tri_engine *e)
{
    for (int64_t i = 0; i < e->max_sequences; i++)
        if (!e->slots[i])
            return i;
    return -1;
}

enum tri_status tri_sequence_open(struct tri_sequence **out, struct tri_engine *engine,
                                  int64_t max_tokens, struct tri_error *err)
{
    int64_t slot = free_slot(engine);
    if (slot < 0)
        return tri_fail(err, TRI_BUSY, "all %lld sequences are in use",
                        (long long)engine->max_sequences);
    if (max_tokens < 1)
        return tri_fail(err, TRI_ARG, "a sequence for %lld tokens", (long long)max_tokens);
    struct tri_sequence *s = tri_calloc(1, sizeof *s);
    if (!s)
        return tri_fail(err, TRI_NOMEM, "no memory for a sequence");
    s->engine = engine;
    s->max_tokens = max_tokens;
    void *memory = NULL;
    enum tri_status st =
        tri_budget_alloc(engine->budget, TRI_MEM_OTHER, token_bytes(s), &memory, err);
    s->tokens = memory;
    memory = NULL;
    if (st == TRI_OK)
        st = tri_budget_alloc(engine->budget, TRI_MEM_OTHER, mark_bytes(engine), &memory, err);
    s->marks = memory;
    if (st == TRI_OK)
        st = engine->growing ? tri_model_growing_state(engine->model, max_tokens, &s->state, err)
                             : tri_model_state(engine->model, max_tokens, &s->state, err);
    if (st != TRI_OK) {
        tri_sequence_close(s);
        return st;
    }
    engine->slots[slot] = s;
    *out = s;
    return TRI_OK;
}

void tri_sequence_close(struct tri_sequence *sequence)
{
    if (!sequence)
        return;
    struct tri_engine *e = sequence->engine;
    for (int64_t i = 0; i < e->max_sequences; i++)
        if (e->slots[i] == sequence)
            e->slots[i] = NULL;
    tri_state_close(sequence->state);
    tri_budget_free(e->budget, TRI_MEM_OTHER, sequence->tokens, token_bytes(sequence));
    tri_budget_free(e->budget, TRI_MEM_OTHER, sequence->marks, mark_bytes(e));
    tri_free(sequence);
}

enum tri_status tri_sequence_prompt(struct tri_sequence *sequence, const int32_t *tokens,
                                    int64_t n_tokens, int64_t *reused_tokens, struct tri_error *err)
{
    struct tri_sequence *s = sequence;
    TRI_ASSERT(!s->active);
    if (n_tokens > s->max_tokens)
        return tri_fail(err, TRI_LIMIT, "%lld tokens do not fit into a context of %lld",
                        (long long)n_tokens, (long long)s->max_tokens);
    for (int64_t i = 0; i < n_tokens; i++)
        if (tokens[i] < 0 || tokens[i] >= s->engine->vocab)
            return tri_fail(err, TRI_ARG,
                            "token %d at position %lld is outside the vocabulary"
                            " of %lld",
                            (int)tokens[i], (long long)i, (long long)s->engine->vocab);
    /* All that was computed must come again, and one token more: its logits are what counts. */
    int64_t held = tri_state_tokens(s->state);
    if (held >= n_tokens || memcmp(s->tokens, tokens, (size_t)held * sizeof *tokens) != 0) {
        tri_state_clear(s->state);
        held = 0;
    }
    if (n_tokens)
        memmove(s->tokens, tokens, (size_t)n_tokens * sizeof *tokens);
    s->n_tokens = n_tokens;
    if (reused_tokens)
        *reused_tokens = held;
    return TRI_OK;
}

/* `ok` false is the first fault found; the text names the option as people know it. */
struct rule {
    bool ok;
    const char *text;
};

static enum tri_status check_sampling(const struct tri_sampling *how, struct tri_error *err)
{
    const struct rule rules[] = {
        { how->temperature >= 0 && how->temperature <= 100, "temperature must be 0 to 100" },
        { how->top_p >= 0 && how->top_p <= 1, "top-p must be 0 to 1" },
        { how->min_p >= 0 && how->min_p <= 1, "min-p must be 0 to 1" },
        { how->repetition_penalty >= 0.01 && how->repetition_penalty <= 100,
          "repetition penalty must be 0.01 to 100" },
        { fabs(how->presence_penalty) <= 100, "presence penalty must be -100 to 100" },
        { fabs(how->frequency_penalty) <= 100, "frequency penalty must be -100 to 100" },
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (!rules[i].ok)
            return tri_fail(err, TRI_ARG, "%s", rules[i].text);
    return TRI_OK;
}

static enum tri_status check_lists(const struct tri_generate *how, int64_t vocab,
                                   struct tri_error *err)
{
    if (how->n_stop_ids > TRI_ENGINE_MAX_STOP_IDS)
        return tri_fail(err, TRI_LIMIT, "%lld stop ids, at most %d", (long long)how->n_stop_ids,
                        TRI_ENGINE_MAX_STOP_IDS);
    if (how->n_bias > TRI_ENGINE_MAX_BIAS)
        return tri_fail(err, TRI_LIMIT, "%lld logit biases, at most %d", (long long)how->n_bias,
                        TRI_ENGINE_MAX_BIAS);
    if (how->top_logprobs < 0 || how->top_logprobs > TRI_ENGINE_MAX_TOP_LOGPROBS ||
        how->top_logprobs > vocab)
        return tri_fail(err, TRI_LIMIT, "%lld top log probabilities, at most %d",
                        (long long)how->top_logprobs, TRI_ENGINE_MAX_TOP_LOGPROBS);
    if (how->scores &&
        (how->scores->n_top < 0 || how->scores->n_top > TRI_ENGINE_MAX_TOP_LOGPROBS ||
         how->scores->n_top > vocab))
        return tri_fail(err, TRI_LIMIT,
                        "%lld likeliest tokens beside each of the prompt's, at most %d",
                        (long long)how->scores->n_top, TRI_ENGINE_MAX_TOP_LOGPROBS);
    for (int64_t i = 0; i < how->n_bias; i++) {
        float b = how->bias[i].bias;
        if (how->bias[i].id < 0 || how->bias[i].id >= vocab)
            return tri_fail(err, TRI_ARG, "logit bias for id %d, but the vocabulary is %lld",
                            (int)how->bias[i].id, (long long)vocab);
        if (!(fabsf(b) <= 100) && b != -INFINITY)
            return tri_fail(err, TRI_ARG, "logit bias of id %d must be -100 to 100, or -inf",
                            (int)how->bias[i].id);
    }
    return TRI_OK;
}

/* Which tokens are prompt, and how often others are in the output. */
static void mark_tokens(struct tri_sequence *s, int64_t n_prompt)
{
    memset(s->marks, 0, (size_t)mark_bytes(s->engine));
    for (int64_t i = 0; i < n_prompt; i++)
        s->marks[s->tokens[i]] = 1;
    for (int64_t i = n_prompt; i < s->n_tokens; i++)
        s->marks[s->tokens[i]] += 2;
}

enum tri_status tri_sequence_start(struct tri_sequence *sequence, const struct tri_generate *how,
                                   struct tri_error *err)
{
    return tri_sequence_resume(sequence, how, sequence->n_tokens, err);
}

enum tri_status tri_sequence_resume(struct tri_sequence *sequence, const struct tri_generate *how,
                                    int64_t n_prompt, struct tri_error *err)
{
    struct tri_sequence *s = sequence;
    TRI_ASSERT(!s->active);
    enum tri_status st = check_sampling(&how->sampling, err);
    if (st == TRI_OK)
        st = check_lists(how, s->engine->vocab, err);
    if (st != TRI_OK)
        return st;
    if (s->n_tokens == 0)
        return tri_fail(err, TRI_ARG, "nothing to continue: the prompt has no tokens");
    if (s->n_tokens >= s->max_tokens)
        return tri_fail(err, TRI_LIMIT,
                        "the prompt's %lld tokens leave no room in a context of %lld",
                        (long long)s->n_tokens, (long long)s->max_tokens);
    if (how->scores && !s->engine->shown)
        return tri_fail(err, TRI_ARG, "this engine was not opened for scoring prompts");
    s->how = *how;
    for (int64_t i = 0; i < how->n_stop_ids; i++)
        s->stop_ids[i] = how->stop_ids[i];
    for (int64_t i = 0; i < how->n_bias; i++)
        s->bias[i] = how->bias[i];
    s->how.stop_ids = s->stop_ids;
    s->how.bias = s->bias;
    mark_tokens(s, n_prompt);
    /* As after a load: a state that has seen every token cannot give the last one's logits. */
    if (tri_state_tokens(s->state) == s->n_tokens)
        tri_state_clear(s->state);
    s->first_output = n_prompt;
    tri__engine_score_begin(s, n_prompt);
    s->age = s->engine->starts++;
    s->active = true;
    return TRI_OK;
}

void tri_sequence_stop(struct tri_sequence *sequence)
{
    sequence->active = false;
}

const int32_t *tri_sequence_tokens(const struct tri_sequence *sequence, int64_t *n_tokens)
{
    *n_tokens = sequence->n_tokens;
    return sequence->tokens;
}

int64_t tri_sequence_computed(const struct tri_sequence *sequence)
{
    return tri_state_tokens(sequence->state);
}

bool tri_sequence_in_step(const struct tri_sequence *sequence)
{
    return sequence->in_step;
}

bool tri_sequence_active(const struct tri_sequence *sequence)
{
    return sequence->active;
}

enum tri_status tri_sequence_save(const struct tri_sequence *sequence, const char *path,
                                  struct tri_error *err)
{
    TRI_ASSERT(!sequence->active);
    return tri_state_save(sequence->state, path, tri_model_fingerprint(sequence->engine->model),
                          sequence->tokens, tri_state_tokens(sequence->state), err);
}

enum tri_status tri_sequence_load(struct tri_sequence *sequence, const char *path,
                                  struct tri_error *err)
{
    struct tri_sequence *s = sequence;
    TRI_ASSERT(!s->active);
    int32_t *tokens = NULL;
    int64_t n = 0;
    s->n_tokens = 0;
    enum tri_status st =
        tri_state_load(s->state, path, tri_model_fingerprint(s->engine->model), &tokens, &n, err);
    if (st != TRI_OK)
        return st;
    for (int64_t i = 0; i < n && st == TRI_OK; i++)
        if (tokens[i] < 0 || tokens[i] >= s->engine->vocab)
            st = TRI_FORMAT;
    if (st != TRI_OK || n != tri_state_tokens(s->state) || n > s->max_tokens) {
        tri_state_clear(s->state);
        st = tri_fail(err, TRI_FORMAT, "%s: the tokens do not belong to the saved state", path);
    } else {
        memcpy(s->tokens, tokens, (size_t)n * sizeof *tokens);
        s->n_tokens = n;
    }
    tri_free(tokens);
    return st;
}
