/*
 * Checkpoints in RAM: copies of states with the tokens that led to them, in a bounded store.
 * Evicted is what was not used for longest, per byte it occupies: a long state is dear to rebuild,
 * so its size counts for it and against it alike, and age decides.
 */
#include "sched/sched_priv.h"

#include <string.h>

static void drop(struct tri_sched *s, struct tri__sched_checkpoint *c)
{
    tri_state_close(c->state);
    tri_free(c->tokens);
    s->stats.checkpoint_bytes -= c->bytes;
    s->stats.checkpoints--;
    *c = (struct tri__sched_checkpoint){ 0 };
}

struct tri__sched_checkpoint *tri__store_find(struct tri_sched *s, const struct tri_job *job,
                                              int64_t longer_than)
{
    struct tri__sched_checkpoint *best = NULL;
    int64_t length = longer_than;
    for (size_t i = 0; i < TRI_SCHED_MAX_CHECKPOINTS; i++) {
        struct tri__sched_checkpoint *c = &s->checkpoint[i];
        if (!c->state || c->salt != job->request.salt || c->n_tokens <= length ||
            c->n_tokens >= job->request.n_tokens)
            continue;
        if (memcmp(c->tokens, job->tokens, (size_t)c->n_tokens * sizeof *c->tokens) != 0)
            continue;
        best = c;
        length = c->n_tokens;
    }
    return best;
}

static struct tri__sched_checkpoint *oldest(struct tri_sched *s)
{
    struct tri__sched_checkpoint *old = NULL;
    for (size_t i = 0; i < TRI_SCHED_MAX_CHECKPOINTS; i++)
        if (s->checkpoint[i].state && (!old || s->checkpoint[i].used < old->used))
            old = &s->checkpoint[i];
    return old;
}

/* A free place after making room for `bytes`; NULL when they can never fit. */
static struct tri__sched_checkpoint *make_room(struct tri_sched *s, uint64_t bytes)
{
    if (bytes > s->options.cache_bytes)
        return NULL;
    while (s->stats.checkpoint_bytes + bytes > s->options.cache_bytes ||
           s->stats.checkpoints == TRI_SCHED_MAX_CHECKPOINTS) {
        drop(s, oldest(s));
        s->stats.checkpoints_evicted++;
    }
    for (size_t i = 0; i < TRI_SCHED_MAX_CHECKPOINTS; i++)
        if (!s->checkpoint[i].state)
            return &s->checkpoint[i];
    return NULL;
}

static bool have(struct tri_sched *s, const int32_t *tokens, int64_t n, uint64_t salt)
{
    for (size_t i = 0; i < TRI_SCHED_MAX_CHECKPOINTS; i++) {
        struct tri__sched_checkpoint *c = &s->checkpoint[i];
        if (c->state && c->salt == salt && c->n_tokens == n &&
            !memcmp(c->tokens, tokens, (size_t)n * sizeof *tokens)) {
            c->used = ++s->clock;
            return true;
        }
    }
    return false;
}

void tri__store_take(struct tri_sched *s, const struct tri_sequence *sequence, uint64_t salt)
{
    int64_t all = 0, n = tri_sequence_computed(sequence);
    const int32_t *tokens = tri_sequence_tokens(sequence, &all);
    struct tri_state_bytes cost;
    if (n < 1 || s->options.cache_bytes == 0 || have(s, tokens, n, salt))
        return;
    tri_state_cost(tri_model_spec(s->model), tri_model_slice(s->model),
                   tri_model_cache_dtype(s->model), &cost);
    uint64_t bytes = cost.kda_bytes + (uint64_t)n * (cost.mla_bytes_per_token + sizeof *tokens);
    struct tri__sched_checkpoint *c = make_room(s, bytes);
    int32_t *copy = c ? tri_calloc((size_t)n, sizeof *copy) : NULL;
    struct tri_state *state = NULL;
    if (!copy || tri_model_state(s->model, n, &state, NULL) != TRI_OK ||
        tri_sequence_snapshot(sequence, state, NULL) != TRI_OK) {
        tri_state_close(state); /* no room in the budget: no checkpoint, nothing worse */
        tri_free(copy);
        return;
    }
    memcpy(copy, tokens, (size_t)n * sizeof *copy);
    *c = (struct tri__sched_checkpoint){ state, copy, n, bytes, salt, ++s->clock };
    s->stats.checkpoints++;
    s->stats.checkpoints_taken++;
    s->stats.checkpoint_bytes += bytes;
}

void tri__store_close(struct tri_sched *s)
{
    for (size_t i = 0; i < TRI_SCHED_MAX_CHECKPOINTS; i++)
        if (s->checkpoint[i].state)
            drop(s, &s->checkpoint[i]);
}
