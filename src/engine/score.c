/*
 * Scoring a prompt: the log probability of each of its tokens after those before it. Logits come
 * from the model a few rows at a time and are reduced at once; nothing as large as a prompt's
 * logits is ever held.
 */
#include "engine/engine_priv.h"

static int32_t rank_of(const float *row, int64_t vocab, int32_t id)
{
    int32_t likelier = 0;
    for (int64_t i = 0; i < vocab; i++)
        likelier += row[i] > row[id];
    return 1 + likelier;
}

/* Row i of the prompt scores token i + 1; the last row is for the first sampled token. */
static void take_rows(void *arg, int64_t first, int64_t n, const float *rows)
{
    struct tri_sequence *s = arg;
    struct tri_scores *to = s->how.scores;
    int64_t vocab = s->engine->vocab;
    (void)first; /* they come in order */
    for (int64_t i = 0; i < n && !s->score_failed; i++) {
        const float *row = rows + i * vocab;
        int64_t token = to->n_done + 1;
        if (!tri__engine_finite(row, vocab)) {
            s->score_failed = true;
            return;
        }
        tri__engine_logprobs(row, vocab, s->tokens[token], &to->chosen[token],
                             to->top + token * to->n_top, to->n_top);
        if (to->rank)
            to->rank[token] = rank_of(row, vocab, s->tokens[token]);
        to->n_done++;
    }
}

void tri__engine_score_begin(struct tri_sequence *s, int64_t n_prompt)
{
    struct tri_scores *to = s->how.scores;
    int64_t seen = tri_state_tokens(s->state);
    s->score_failed = false;
    if (!to || to->n_done >= n_prompt - 1)
        return;
    if (seen > to->n_done) {
        tri_state_clear(s->state);
        seen = 0;
    }
    to->n_done = seen;
}

const struct tri_shown_rows *tri__engine_score_rows(struct tri_sequence *s, int64_t rows)
{
    const struct tri_scores *to = s->how.scores;
    int64_t left = to ? s->first_output - 1 - to->n_done : 0;
    if (left <= 0)
        return NULL;
    s->shown = (struct tri_shown_rows){
        .n_tokens = rows < left ? rows : left, .rows = s->engine->shown, .show = take_rows, .arg = s
    };
    return &s->shown;
}
