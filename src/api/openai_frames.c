/* What chat/completions and completions write in the same way: usage, errors, keepalives. */
#include "api/api_priv.h"

#include "base/clock.h"

void tri__openai_usage(struct tri_buf *out, const struct tri__exchange *x)
{
    int64_t completion = 0, reasoning = 0;
    tri__exchange_total(x, &completion, &reasoning);
    tri_buf_printf(out,
                   "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
                   "\"prompt_tokens_details\":{\"cached_tokens\":%lld},"
                   "\"completion_tokens_details\":{\"reasoning_tokens\":%lld}}",
                   (long long)x->prompt_tokens, (long long)completion,
                   (long long)(x->prompt_tokens + completion), (long long)tri__exchange_cached(x),
                   (long long)reasoning);
}

/* After the chunk's head: no choices, the usage, and its end. */
void tri__openai_usage_chunk(struct tri__exchange *x)
{
    tri_buf_puts(&x->out, ",\"choices\":[],\"usage\":");
    tri__openai_usage(&x->out, x);
    tri_buf_puts(&x->out, "}\n\n");
}

void tri__openai_error(struct tri__exchange *x, const struct tri__fault *fault)
{
    tri_buf_puts(&x->out, "data: ");
    tri__fault_json(&x->out, fault, false, x->request);
    tri_buf_puts(&x->out, "\n\n");
}

void tri__openai_keepalive(struct tri__exchange *x)
{
    tri_buf_puts(&x->out, ": keepalive\n\n");
}

static void put_ids(struct tri_buf *out, const char *name, const int32_t *ids, size_t n)
{
    tri_buf_printf(out, ",\"%s\":[", name);
    for (size_t i = 0; i < n; i++)
        tri_buf_printf(out, i ? ",%d" : "%d", (int)ids[i]);
    tri_buf_puts(out, "]");
}

void tri__openai_token_ids(struct tri_buf *out, struct tri__choice *c)
{
    if (!c->x->p.return_token_ids)
        return;
    put_ids(out, "token_ids", c->sampled.data + c->told_ids, c->sampled.count_tokens - c->told_ids);
    c->told_ids = c->sampled.count_tokens;
}

void tri__openai_prompt_ids(struct tri_buf *out, const struct tri__choice *c)
{
    size_t n = 0;
    const int32_t *ids = tri__choice_prompt(c, &n);
    if (c->x->p.return_token_ids)
        put_ids(out, "prompt_token_ids", ids, n);
}

void tri__openai_timings(struct tri_buf *out, const struct tri__choice *c)
{
    struct tri_job_facts f;
    tri_job_facts(c->job, &f);
    double end = f.ended_s > 0 ? f.ended_s : tri_clock_s();
    double prompt = f.first_token_s > 0 ? f.first_token_s - f.admitted_s : 0;
    tri_buf_printf(out,
                   ",\"timings\":{\"cache_n\":%lld,\"prompt_n\":%lld,\"prompt_ms\":%.3f,"
                   "\"predicted_n\":%lld,\"predicted_ms\":%.3f}",
                   (long long)f.cached_tokens, (long long)(f.prompt_tokens - f.cached_tokens),
                   1e3 * prompt, (long long)c->completion_tokens,
                   f.first_token_s > 0 ? 1e3 * (end - f.first_token_s) : 0);
}
