/* /v1/chat/completions: OpenAI's chat, whole and streamed. */
#include "api/api_priv.h"

#include <stdio.h>
#include <string.h>
#include "base/clock.h"

static void open_chunk(struct tri__exchange *x)
{
    tri_buf_printf(&x->out,
                   "data: {\"id\":\"%s\",\"object\":\"chat.completion.chunk\",\"created\":%lld,"
                   "\"model\":",
                   x->id, (long long)x->created);
    tri__put_quoted(&x->out, x->p.model);
    tri_buf_puts(&x->out, ",\"system_fingerprint\":\"trireme-" TRI_VERSION "\"");
}

static void close_chunk(struct tri__exchange *x)
{
    if (x->p.continuous_usage) {
        tri_buf_puts(&x->out, ",\"usage\":");
        tri__openai_usage(&x->out, x);
    } else if (x->p.include_usage) {
        tri_buf_puts(&x->out, ",\"usage\":null");
    }
    tri_buf_puts(&x->out, "}\n\n");
}

/* A choice up to its delta; the caller writes the delta's inside, then ends the choice. */
static void open_choice(struct tri__choice *c)
{
    tri_buf_printf(&c->x->out, ",\"choices\":[{\"index\":%lld,\"delta\":{", (long long)c->index);
}

static void open_delta(struct tri__choice *c)
{
    open_chunk(c->x);
    open_choice(c);
}

static void close_delta(struct tri__choice *c, const char *finish)
{
    struct tri_buf *out = &c->x->out;
    tri_buf_puts(out, "}");
    if (c->x->p.logprobs && c->logprobs.len_bytes) {
        tri_buf_puts(out, ",\"logprobs\":{\"content\":[");
        tri_buf_add(out, c->logprobs.data, c->logprobs.len_bytes);
        tri_buf_puts(out, "]}");
        tri_buf_clear(&c->logprobs);
    }
    tri__openai_token_ids(out, c);
    tri_buf_puts(out, ",\"finish_reason\":");
    if (finish)
        tri__put_quoted(out, finish);
    else
        tri_buf_puts(out, "null");
    if (finish && c->found >= 0) {
        tri_buf_puts(out, ",\"stop_reason\":");
        tri__put_quoted(out, c->x->p.stop[c->found]);
    }
    tri_buf_puts(out, "}]");
    if (c->index == 0 && (finish || (c->x->p.timings_per_token && c->completion_tokens)))
        tri__openai_timings(out, c);
    if (finish)
        tri__profile_put(out, c);
    close_chunk(c->x);
}

static void begin(struct tri__exchange *x)
{
    for (int64_t i = 0; i < x->n_choices; i++) {
        open_chunk(x);
        if (i == 0)
            tri__openai_prompt_ids(&x->out, &x->choice[0]);
        open_choice(&x->choice[i]);
        tri_buf_puts(&x->out, "\"role\":\"assistant\",\"content\":\"\"");
        close_delta(&x->choice[i], NULL);
    }
}

/* llama.cpp's return_progress: how much of the prompt is computed. */
static void progress(struct tri__exchange *x, const struct tri_job_facts *f)
{
    open_chunk(x);
    tri_buf_printf(&x->out,
                   ",\"prompt_progress\":{\"total\":%lld,\"cache\":%lld,\"processed\":%lld,"
                   "\"time_ms\":%.0f}",
                   (long long)f->prompt_tokens, (long long)f->cached_tokens,
                   (long long)f->computed_tokens, 1e3 * (tri_clock_s() - f->admitted_s));
    open_choice(&x->choice[0]);
    close_delta(&x->choice[0], NULL);
}

static void text(struct tri__choice *c, enum tri_event_kind kind, const char *bytes, size_t n)
{
    struct tri_buf *out = &c->x->out;
    open_delta(c);
    if (kind == TRI_EVENT_REASONING) {
        tri_buf_puts(out, "\"reasoning_content\":");
        tri_json_quote(out, bytes, n);
        tri_buf_puts(out, ",\"reasoning\":");
    } else {
        tri_buf_puts(out, "\"content\":");
    }
    tri_json_quote(out, bytes, n);
    close_delta(c, NULL);
}

static void call(struct tri__choice *c, const struct tri_event *event)
{
    struct tri_buf *out = &c->x->out;
    char id[40];
    if (event->kind == TRI_EVENT_CALL_END)
        return;
    open_delta(c);
    tri_buf_printf(out, "\"tool_calls\":[{\"index\":%zu,", event->call);
    if (event->kind == TRI_EVENT_CALL_BEGIN) {
        tri__call_id(id, c, event->call);
        tri_buf_printf(out, "\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", id);
        tri_json_quote(out, event->text, event->bytes);
        tri_buf_puts(out, ",\"arguments\":\"\"}}]");
    } else {
        tri_buf_puts(out, "\"function\":{\"arguments\":");
        tri_json_quote(out, event->text, event->bytes);
        tri_buf_puts(out, "}}]");
    }
    close_delta(c, NULL);
}

static void choice_end(struct tri__choice *c)
{
    open_delta(c);
    close_delta(c, c->finish);
}

static void end(struct tri__exchange *x)
{
    if (x->p.include_usage) {
        open_chunk(x);
        tri__openai_usage_chunk(x);
    }
    tri_buf_puts(&x->out, "data: [DONE]\n\n");
}

static void put_calls(struct tri_buf *out, const struct tri__choice *c)
{
    char id[40];
    for (size_t i = 0; i < c->turn.call_count; i++) {
        tri__call_id(id, c, i);
        tri_buf_printf(out, "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":",
                       i ? "," : "", id);
        tri_json_quote(out, c->turn.calls[i].name, c->turn.calls[i].name_bytes);
        tri_buf_puts(out, ",\"arguments\":");
        tri_json_quote(out, c->turn.calls[i].arguments, c->turn.calls[i].arguments_bytes);
        tri_buf_puts(out, "}}");
    }
}

static void put_message(struct tri_buf *out, const struct tri__choice *c)
{
    const struct tri_turn *t = &c->turn;
    bool calls = t->call_count > 0 && c->found < 0;
    tri_buf_puts(out, "{\"role\":\"assistant\",\"content\":");
    if (calls && c->content.len_bytes == 0)
        tri_buf_puts(out, "null");
    else
        tri_json_quote(out, c->content.data ? c->content.data : "", c->content.len_bytes);
    tri_buf_puts(out, ",\"refusal\":null");
    if (t->reasoning_bytes) {
        tri_buf_puts(out, ",\"reasoning_content\":");
        tri_json_quote(out, t->reasoning, t->reasoning_bytes);
        tri_buf_puts(out, ",\"reasoning\":");
        tri_json_quote(out, t->reasoning, t->reasoning_bytes);
    }
    if (calls) {
        tri_buf_puts(out, ",\"tool_calls\":[");
        put_calls(out, c);
        tri_buf_puts(out, "]");
    }
    tri_buf_puts(out, "}");
}

static void put_choice(struct tri_buf *out, struct tri__choice *c)
{
    tri_buf_printf(out, "%s{\"index\":%lld,\"message\":", c->index ? "," : "", (long long)c->index);
    put_message(out, c);
    if (c->x->p.logprobs) {
        tri_buf_puts(out, ",\"logprobs\":{\"content\":[");
        tri_buf_add(out, c->logprobs.data, c->logprobs.len_bytes);
        tri_buf_puts(out, "],\"refusal\":null}");
    } else {
        tri_buf_puts(out, ",\"logprobs\":null");
    }
    tri__openai_token_ids(out, c);
    tri_buf_puts(out, ",\"finish_reason\":");
    tri__put_quoted(out, c->finish);
    tri_buf_puts(out, ",\"stop_reason\":");
    if (c->found >= 0)
        tri__put_quoted(out, c->x->p.stop[c->found]);
    else
        tri_buf_puts(out, "null");
    tri_buf_puts(out, "}");
}

static void whole(struct tri__exchange *x, struct tri_buf *out)
{
    tri_buf_printf(out, "{\"id\":\"%s\",\"object\":\"chat.completion\",\"created\":%lld,\"model\":",
                   x->id, (long long)x->created);
    tri__put_quoted(out, x->p.model);
    tri_buf_puts(out, ",\"system_fingerprint\":\"trireme-" TRI_VERSION
                      "\",\"service_tier\":null,\"choices\":[");
    for (int64_t i = 0; i < x->n_choices; i++)
        put_choice(out, &x->choice[i]);
    tri_buf_puts(out, "],\"usage\":");
    tri__openai_usage(out, x);
    tri__scores_put(out, &x->choice[0]);
    tri__openai_prompt_ids(out, &x->choice[0]);
    tri__openai_timings(out, &x->choice[0]);
    tri__profile_put(out, &x->choice[0]);
    tri_buf_puts(out, "}");
}

static const struct tri__format format = { .begin = begin,
                                           .text = text,
                                           .call = call,
                                           .logprob = tri__chat_logprob,
                                           .choice_end = choice_end,
                                           .end = end,
                                           .error = tri__openai_error,
                                           .keepalive = tri__openai_keepalive,
                                           .progress = progress,
                                           .whole = whole };

/* Parts that are no text are refused by name until the model can see. */
static bool check_parts(const json_t *body, struct tri__fault *fault)
{
    const json_t *messages = json_object_get(body, "messages");
    if (json_is_array(messages) && json_array_size(messages) == 0)
        return tri__fault_bad(fault, "messages", "messages must be a list that is not empty");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *parts = json_object_get(json_array_get(messages, i), "content");
        for (size_t j = 0; j < json_array_size(parts); j++) {
            const char *type = json_string_value(json_object_get(json_array_get(parts, j), "type"));
            char param[96];
            if (!type || !strcmp(type, "text"))
                continue;
            snprintf(param, sizeof param, "messages[%zu].content[%zu]", i, j);
            return tri__fault_bad(fault, param, "only text parts are supported");
        }
    }
    return true;
}

static bool prepare(struct tri__exchange *x, struct tri__fault *fault)
{
    return tri__params_read(&x->p, x->api, TRI__CHAT, x->body, fault) &&
           check_parts(x->body, fault) &&
           tri__exchange_render(x, x->text.data, x->text.len_bytes, fault) &&
           tri__scores_check(x, fault);
}

const struct tri__endpoint tri__chat = { "chatcmpl-", &format, TRI__CHAT, prepare, NULL, false };
