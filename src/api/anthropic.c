/* /v1/messages and count_tokens: Anthropic's dialect. */
#include "api/api_priv.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK_NONE, BLOCK_TEXT, BLOCK_THINKING, BLOCK_TOOL };

static void event(struct tri__exchange *x, const char *name)
{
    tri_buf_printf(&x->out, "event: %s\ndata: {\"type\":\"%s\"", name, name);
}

static void end_event(struct tri__exchange *x)
{
    tri_buf_puts(&x->out, "}\n\n");
}

static void put_input_usage(struct tri_buf *out, const struct tri__exchange *x, int64_t output)
{
    int64_t cached = tri__exchange_cached(x);
    tri_buf_printf(out,
                   "{\"input_tokens\":%lld,\"cache_creation_input_tokens\":0,"
                   "\"cache_read_input_tokens\":%lld,\"output_tokens\":%lld}",
                   (long long)(x->prompt_tokens - cached), (long long)cached, (long long)output);
}

static void put_head(struct tri_buf *out, const struct tri__exchange *x)
{
    tri_buf_printf(out,
                   "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", x->id);
    tri__put_quoted(out, x->p.model);
}

static const char *stop_reason(const struct tri__choice *c)
{
    if (c->found >= 0)
        return "stop_sequence";
    return !strcmp(c->finish, "tool_calls") ? "tool_use"
           : !strcmp(c->finish, "length")   ? "max_tokens"
                                            : "end_turn";
}

static void put_stop(struct tri_buf *out, const struct tri__choice *c)
{
    tri_buf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(c));
    if (c->found >= 0)
        tri__put_quoted(out, c->x->p.stop[c->found]);
    else
        tri_buf_puts(out, "null");
}

/* --- stream ---------------------------------------------------------------------------------- */

static void begin(struct tri__exchange *x)
{
    event(x, "message_start");
    tri_buf_puts(&x->out, ",\"message\":");
    put_head(&x->out, x);
    tri_buf_puts(&x->out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    put_input_usage(&x->out, x, 0);
    tri_buf_puts(&x->out, "}");
    end_event(x);
}

static void close_block(struct tri__choice *c)
{
    struct tri__exchange *x = c->x;
    if (c->block_kind == BLOCK_NONE)
        return;
    if (c->block_kind == BLOCK_THINKING) {
        event(x, "content_block_delta");
        tri_buf_printf(&x->out,
                       ",\"index\":%lld,\"delta\":{\"type\":\"signature_delta\","
                       "\"signature\":\"trireme\"}",
                       (long long)c->block);
        end_event(x);
    }
    event(x, "content_block_stop");
    tri_buf_printf(&x->out, ",\"index\":%lld", (long long)c->block);
    end_event(x);
    c->block_kind = BLOCK_NONE;
}

/* Begins a block unless one of this kind is open; its content is what the caller writes. */
static void open_block(struct tri__choice *c, int kind)
{
    close_block(c);
    c->block = c->blocks++;
    c->block_kind = kind;
    event(c->x, "content_block_start");
    tri_buf_printf(&c->x->out, ",\"index\":%lld,\"content_block\":", (long long)c->block);
}

static void text(struct tri__choice *c, enum tri_event_kind kind, const char *bytes, size_t n)
{
    struct tri__exchange *x = c->x;
    bool thinks = kind == TRI_EVENT_REASONING;
    int want = thinks ? BLOCK_THINKING : BLOCK_TEXT;
    if (c->block_kind != want) {
        open_block(c, want);
        tri_buf_puts(&x->out, thinks
                                  ? "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}"
                                  : "{\"type\":\"text\",\"text\":\"\"}");
        end_event(x);
    }
    event(x, "content_block_delta");
    tri_buf_printf(&x->out,
                   ",\"index\":%lld,\"delta\":{\"type\":\"%s\",\"%s\":", (long long)c->block,
                   thinks ? "thinking_delta" : "text_delta", thinks ? "thinking" : "text");
    tri_json_quote(&x->out, bytes, n);
    tri_buf_puts(&x->out, "}");
    end_event(x);
}

static void call(struct tri__choice *c, const struct tri_event *e)
{
    struct tri__exchange *x = c->x;
    char id[40];
    if (e->kind == TRI_EVENT_CALL_BEGIN) {
        open_block(c, BLOCK_TOOL);
        tri__call_id(id, c, e->call);
        tri_buf_printf(&x->out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", id);
        tri_json_quote(&x->out, e->text, e->bytes);
        tri_buf_puts(&x->out, ",\"input\":{}}");
        end_event(x);
    } else if (e->kind == TRI_EVENT_CALL_ARGUMENTS) {
        event(x, "content_block_delta");
        tri_buf_printf(&x->out,
                       ",\"index\":%lld,\"delta\":{\"type\":\"input_json_delta\","
                       "\"partial_json\":",
                       (long long)c->block);
        tri_json_quote(&x->out, e->text, e->bytes);
        tri_buf_puts(&x->out, "}");
        end_event(x);
    } else {
        close_block(c);
    }
}

static void choice_end(struct tri__choice *c)
{
    struct tri__exchange *x = c->x;
    close_block(c);
    event(x, "message_delta");
    tri_buf_puts(&x->out, ",\"delta\":{");
    put_stop(&x->out, c);
    tri_buf_puts(&x->out, "},\"usage\":");
    put_input_usage(&x->out, x, c->completion_tokens);
    end_event(x);
}

static void end(struct tri__exchange *x)
{
    event(x, "message_stop");
    end_event(x);
}

static void error(struct tri__exchange *x, const struct tri__fault *fault)
{
    tri_buf_puts(&x->out, "event: error\ndata: ");
    tri__fault_json(&x->out, fault, true, x->request);
    tri_buf_puts(&x->out, "\n\n");
}

static void keepalive(struct tri__exchange *x)
{
    event(x, "ping");
    end_event(x);
}

/* --- whole ----------------------------------------------------------------------------------- */

static void put_blocks(struct tri_buf *out, const struct tri__choice *c)
{
    const struct tri_turn *t = &c->turn;
    const char *comma = "";
    char id[40];
    if (t->reasoning_bytes) {
        tri_buf_puts(out, "{\"type\":\"thinking\",\"thinking\":");
        tri_json_quote(out, t->reasoning, t->reasoning_bytes);
        tri_buf_puts(out, ",\"signature\":\"trireme\"}");
        comma = ",";
    }
    if (c->content.len_bytes) {
        tri_buf_printf(out, "%s{\"type\":\"text\",\"text\":", comma);
        tri_json_quote(out, c->content.data, c->content.len_bytes);
        tri_buf_puts(out, "}");
        comma = ",";
    }
    for (size_t i = 0; c->found < 0 && i < t->call_count; i++) {
        tri__call_id(id, c, i);
        tri_buf_printf(out, "%s{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", comma, id);
        tri_json_quote(out, t->calls[i].name, t->calls[i].name_bytes);
        tri_buf_puts(out, ",\"input\":");
        tri_buf_add(out, t->calls[i].arguments, t->calls[i].arguments_bytes);
        tri_buf_puts(out, "}");
        comma = ",";
    }
}

static void whole(struct tri__exchange *x, struct tri_buf *out)
{
    struct tri__choice *c = &x->choice[0];
    put_head(out, x);
    tri_buf_puts(out, ",\"content\":[");
    put_blocks(out, c);
    tri_buf_puts(out, "],");
    put_stop(out, c);
    tri_buf_puts(out, ",\"usage\":");
    put_input_usage(out, x, c->completion_tokens);
    tri_buf_puts(out, "}");
}

static const struct tri__format format = { .begin = begin,
                                           .text = text,
                                           .call = call,
                                           .choice_end = choice_end,
                                           .end = end,
                                           .error = error,
                                           .keepalive = keepalive,
                                           .whole = whole,
                                           .anthropic = true };

/* --- requests -------------------------------------------------------------------------------- */

const struct tri__endpoint tri__messages = {
    "msg_", &format, TRI__MESSAGES, tri__exchange_turn, tri__messages_to_chat, false
};

static bool count(struct tri__exchange *x, struct tri__fault *fault)
{
    json_object_set_new(x->body, "max_tokens", json_integer(1)); /* not asked for here */
    if (!tri__exchange_turn(x, fault))
        return false;
    tri_buf_printf(&x->out, "{\"input_tokens\":%zu}\n", x->ids.count_tokens);
    return true;
}

const struct tri__endpoint tri__count_tokens = {
    "msg_", &format, TRI__MESSAGES, count, tri__messages_to_chat, true
};
