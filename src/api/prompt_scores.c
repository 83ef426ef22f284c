/*
 * Log probabilities of a prompt's own tokens: who asks for them (completions' echo with logprobs;
 * vLLM's prompt_logprobs, also on chats), how many there may be, and vLLM's way of writing them.
 */
#include "api/api_priv.h"

static bool echoes(const struct tri__params *p)
{
    return p->echo && p->logprobs;
}

/* Echo tells them with each choice's text, prompt_logprobs once for a prompt. */
bool tri__scores_wanted(const struct tri__choice *c, int64_t *top)
{
    const struct tri__params *p = &c->x->p;
    int64_t echoed = echoes(p) ? p->top_logprobs : 0;
    bool first = c->index % p->n == 0;
    *top = p->score_prompt && p->prompt_logprobs > echoed ? p->prompt_logprobs : echoed;
    return echoes(p) || (p->score_prompt && first);
}

/* They cost memory, and a pass over lm_head for every few tokens. */
bool tri__scores_check(const struct tri__exchange *x, struct tri__fault *fault)
{
    int64_t times = echoes(&x->p) ? x->p.n : x->p.score_prompt;
    return tri__limits_field(x->api, TRI_API_LIMIT_echo_tokens,
                             (int64_t)x->ids.count_tokens * times,
                             x->prompt ? "messages" : "prompt", fault);
}

static void put_one(struct tri_buf *out, const struct tri_api *api, const struct tri_logprob *p,
                    int64_t rank)
{
    tri_buf_printf(out, "\"%d\":{\"logprob\":%.6f,\"rank\":%lld,\"decoded_token\":", (int)p->id,
                   (double)p->logprob, (long long)rank);
    tri__put_token_text(out, api, p->id);
    tri_buf_puts(out, "}");
}

/* An object for each token: the token itself, then the likeliest. The first token has none. */
void tri__scores_put(struct tri_buf *out, const struct tri__choice *c)
{
    const struct tri__exchange *x = c->x;
    size_t n = 0;
    if (!x->p.score_prompt)
        return;
    (void)tri__choice_prompt(c, &n);
    const struct tri_scores *s = tri_job_scores(x->choice[c->index - c->index % x->p.n].job);
    tri_buf_puts(out, ",\"prompt_logprobs\":[null");
    for (size_t i = 1; i < n; i++) {
        const struct tri_logprob *top = s->top + (int64_t)i * s->n_top;
        tri_buf_puts(out, ",{");
        put_one(out, x->api, &s->chosen[i], s->rank[i]);
        for (int64_t k = 0; k < x->p.prompt_logprobs; k++) {
            if (top[k].id == s->chosen[i].id)
                continue;
            tri_buf_puts(out, ",");
            put_one(out, x->api, &top[k], k + 1);
        }
        tri_buf_puts(out, "}");
    }
    tri_buf_puts(out, "]");
}
