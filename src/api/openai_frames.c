/* What chat/completions and completions write in the same way: usage, errors, keepalives. */
#include "api/api_priv.h"

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
    tri__fault_json(&x->out, fault, false);
    tri_buf_puts(&x->out, "\n\n");
}

void tri__openai_keepalive(struct tri__exchange *x)
{
    tri_buf_puts(&x->out, ": keepalive\n\n");
}
