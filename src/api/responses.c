/*
 * /v1/responses: OpenAI's newer dialect, stateless. Every event has its own type and sequence
 * number, and the last ones nest the whole response, as strict clients want it.
 */
#include "api/api_priv.h"

#include <stdio.h>
#include <string.h>

enum { ITEM_NONE, ITEM_MESSAGE, ITEM_REASONING, ITEM_CALL };

static void event(struct tri__exchange *x, const char *name)
{
    tri_buf_printf(&x->out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%lld", name,
                   name, (long long)x->sequence_number++);
}

static void end_event(struct tri__exchange *x)
{
    tri_buf_puts(&x->out, "}\n\n");
}

static void item_id(char out[64], const struct tri__choice *c, int64_t number)
{
    static const char *const prefixes[] = { "", "msg_", "rs_", "fc_" };
    snprintf(out, 64, "%s%016llx%04llx", prefixes[c->block_kind], (unsigned long long)c->call_salt,
             (unsigned long long)number);
}

/* --- items ----------------------------------------------------------------------------------- */

static void put_text_part(struct tri_buf *out, const char *text, size_t n)
{
    tri_buf_puts(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":");
    tri_json_quote(out, text, n);
    tri_buf_puts(out, "}");
}

/* Clients that keep no reasoning content ask for this and send it back (Codex). */
static bool wants_sealed(const struct tri__exchange *x)
{
    const json_t *include = json_object_get(x->body, "include");
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *what = json_string_value(json_array_get(include, i));
        if (what && !strcmp(what, "reasoning.encrypted_content"))
            return true;
    }
    return false;
}

static void put_sealed(struct tri_buf *out, const char *text, size_t n)
{
    struct tri_buf sealed;
    tri_buf_init(&sealed, TRI_TURN_MAX_BYTES);
    tri_buf_puts(&sealed, TRI__API_SEALED);
    tri_buf_add(&sealed, text, n);
    tri_buf_puts(out, ",\"encrypted_content\":");
    tri_json_quote(out, sealed.data, sealed.len_bytes);
    tri_buf_fini(&sealed);
}

/* The open item with its text so far. */
static void put_item(struct tri_buf *out, const struct tri__choice *c, const char *status)
{
    char id[64], call_id[40];
    const char *text = c->item.data ? c->item.data : "";
    size_t n = c->item.len_bytes;
    item_id(id, c, c->block);
    if (c->block_kind == ITEM_MESSAGE) {
        tri_buf_printf(out,
                       "{\"id\":\"%s\",\"type\":\"message\",\"status\":\"%s\","
                       "\"role\":\"assistant\",\"content\":[",
                       id, status);
        if (n || strcmp(status, "in_progress") != 0)
            put_text_part(out, text, n);
        tri_buf_puts(out, "]}");
    } else if (c->block_kind == ITEM_REASONING) {
        tri_buf_printf(out,
                       "{\"id\":\"%s\",\"type\":\"reasoning\",\"status\":\"%s\",\"summary\":[],"
                       "\"content\":[",
                       id, status);
        if (n) {
            tri_buf_puts(out, "{\"type\":\"reasoning_text\",\"text\":");
            tri_json_quote(out, text, n);
            tri_buf_puts(out, "}");
        }
        tri_buf_puts(out, "]");
        if (strcmp(status, "in_progress") != 0 && wants_sealed(c->x))
            put_sealed(out, text, n);
        tri_buf_puts(out, "}");
    } else {
        size_t name = strlen(text) < n ? strlen(text) : n;
        tri__call_id(call_id, c, c->block_call);
        tri_buf_printf(out,
                       "{\"id\":\"%s\",\"type\":\"function_call\",\"status\":\"%s\","
                       "\"call_id\":\"%s\",\"name\":",
                       id, status, call_id);
        tri_json_quote(out, text, name);
        tri_buf_puts(out, ",\"arguments\":");
        tri_json_quote(out, text + (name < n ? name + 1 : n), name < n ? n - name - 1 : 0);
        tri_buf_puts(out, "}");
    }
}

static void put_place(struct tri__choice *c, bool content)
{
    char id[64];
    item_id(id, c, c->block);
    tri_buf_printf(&c->x->out, ",\"item_id\":\"%s\",\"output_index\":%lld", id,
                   (long long)c->block);
    if (content)
        tri_buf_puts(&c->x->out, ",\"content_index\":0");
}

static void say_done(struct tri__choice *c)
{
    struct tri__exchange *x = c->x;
    const char *text = c->item.data ? c->item.data : "";
    size_t n = c->item.len_bytes, name = strlen(text) < n ? strlen(text) : n;
    if (c->block_kind == ITEM_MESSAGE) {
        event(x, "response.output_text.done");
        put_place(c, true);
        tri_buf_puts(&x->out, ",\"logprobs\":[],\"text\":");
        tri_json_quote(&x->out, text, n);
        end_event(x);
        event(x, "response.content_part.done");
        put_place(c, true);
        tri_buf_puts(&x->out, ",\"part\":");
        put_text_part(&x->out, text, n);
        end_event(x);
    } else if (c->block_kind == ITEM_REASONING) {
        event(x, "response.reasoning_text.done");
        put_place(c, true);
        tri_buf_puts(&x->out, ",\"text\":");
        tri_json_quote(&x->out, text, n);
        end_event(x);
    } else {
        event(x, "response.function_call_arguments.done");
        put_place(c, false);
        tri_buf_puts(&x->out, ",\"name\":");
        tri_json_quote(&x->out, text, name);
        tri_buf_puts(&x->out, ",\"arguments\":");
        tri_json_quote(&x->out, text + (name < n ? name + 1 : n), name < n ? n - name - 1 : 0);
        end_event(x);
    }
}

static void close_item(struct tri__choice *c, const char *status)
{
    struct tri__exchange *x = c->x;
    if (c->block_kind == ITEM_NONE)
        return;
    if (x->p.stream)
        say_done(c);
    if (c->items.len_bytes)
        tri_buf_putc(&c->items, ',');
    put_item(&c->items, c, status);
    if (x->p.stream) {
        event(x, "response.output_item.done");
        tri_buf_printf(&x->out, ",\"output_index\":%lld,\"item\":", (long long)c->block);
        put_item(&x->out, c, status);
        end_event(x);
    }
    c->block_kind = ITEM_NONE;
    tri_buf_clear(&c->item);
}

static void open_item(struct tri__choice *c, int kind)
{
    struct tri__exchange *x = c->x;
    close_item(c, "completed");
    c->block = c->blocks++;
    c->block_kind = kind;
    if (!x->p.stream || kind == ITEM_CALL)
        return;
    event(x, "response.output_item.added");
    tri_buf_printf(&x->out, ",\"output_index\":%lld,\"item\":", (long long)c->block);
    put_item(&x->out, c, "in_progress");
    end_event(x);
    if (kind != ITEM_MESSAGE)
        return;
    event(x, "response.content_part.added");
    put_place(c, true);
    tri_buf_puts(&x->out, ",\"part\":");
    put_text_part(&x->out, "", 0);
    end_event(x);
}

/* --- the response ---------------------------------------------------------------------------- */

static void put_usage(struct tri_buf *out, const struct tri__exchange *x)
{
    int64_t completion = 0, reasoning = 0;
    tri__exchange_total(x, &completion, &reasoning);
    tri_buf_printf(out,
                   "{\"input_tokens\":%lld,\"input_tokens_details\":{\"cached_tokens\":%lld},"
                   "\"output_tokens\":%lld,\"output_tokens_details\":{\"reasoning_tokens\":%lld},"
                   "\"total_tokens\":%lld}",
                   (long long)x->prompt_tokens, (long long)tri__exchange_cached(x),
                   (long long)completion, (long long)reasoning,
                   (long long)(x->prompt_tokens + completion));
}

/* A member of the request as it came, or a default. */
static void echo(struct tri_buf *out, const struct tri__exchange *x, const char *name,
                 const char *otherwise)
{
    const json_t *v = json_object_get(x->body, name);
    tri_buf_printf(out, ",\"%s\":", name);
    if (v)
        tri__put_json(out, v);
    else
        tri_buf_puts(out, otherwise);
}

static void put_response(struct tri_buf *out, const struct tri__exchange *x, const char *status)
{
    const struct tri__choice *c = x->n_choices ? &x->choice[0] : NULL;
    bool going = !strcmp(status, "in_progress");
    tri_buf_printf(out,
                   "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\","
                   "\"background\":false,\"error\":null,\"incomplete_details\":%s,\"model\":",
                   x->id, (long long)x->created, status,
                   !strcmp(status, "incomplete") ? "{\"reason\":\"max_output_tokens\"}" : "null");
    tri__put_quoted(out, x->p.model);
    echo(out, x, "instructions", "null");
    echo(out, x, "max_output_tokens", "null");
    echo(out, x, "metadata", "{}");
    echo(out, x, "parallel_tool_calls", "true");
    echo(out, x, "reasoning", "{\"effort\":null,\"summary\":null}");
    echo(out, x, "text", "{\"format\":{\"type\":\"text\"}}");
    echo(out, x, "tool_choice", "\"auto\"");
    echo(out, x, "tools", "[]");
    echo(out, x, "truncation", "\"disabled\"");
    echo(out, x, "user", "null");
    tri_buf_printf(out,
                   ",\"max_tool_calls\":null,\"top_logprobs\":0,\"temperature\":%.9g,\"top_p\":%."
                   "9g,\"store\":false,"
                   "\"previous_response_id\":null,\"service_tier\":\"default\",\"output\":[",
                   x->p.sampling.temperature, x->p.sampling.top_p);
    if (c && c->items.len_bytes)
        tri_buf_add(out, c->items.data, c->items.len_bytes);
    tri_buf_puts(out, "],\"usage\":");
    if (going)
        tri_buf_puts(out, "null");
    else
        put_usage(out, x);
    tri_buf_puts(out, "}");
}

static void put_response_event(struct tri__exchange *x, const char *name, const char *status)
{
    event(x, name);
    tri_buf_puts(&x->out, ",\"response\":");
    put_response(&x->out, x, status);
    end_event(x);
}

static const char *status_of(const struct tri__exchange *x)
{
    return !strcmp(x->choice[0].finish, "length") ? "incomplete" : "completed";
}

/* --- format ---------------------------------------------------------------------------------- */

static void begin(struct tri__exchange *x)
{
    put_response_event(x, "response.created", "in_progress");
    put_response_event(x, "response.in_progress", "in_progress");
}

static void text(struct tri__choice *c, enum tri_event_kind kind, const char *bytes, size_t n)
{
    struct tri__exchange *x = c->x;
    bool thinks = kind == TRI_EVENT_REASONING;
    int want = thinks ? ITEM_REASONING : ITEM_MESSAGE;
    if (c->block_kind != want)
        open_item(c, want);
    tri_buf_add(&c->item, bytes, n);
    event(x, thinks ? "response.reasoning_text.delta" : "response.output_text.delta");
    put_place(c, true);
    tri_buf_puts(&x->out, thinks ? ",\"delta\":" : ",\"logprobs\":[],\"delta\":");
    tri_json_quote(&x->out, bytes, n);
    end_event(x);
}

/* The open item of a call holds its name, a NUL, and its arguments. */
static void call(struct tri__choice *c, const struct tri_event *e)
{
    struct tri__exchange *x = c->x;
    if (e->kind == TRI_EVENT_CALL_BEGIN) {
        open_item(c, ITEM_CALL);
        c->block_call = e->call;
        tri_buf_add(&c->item, e->text, e->bytes);
        tri_buf_putc(&c->item, 0);
        event(x, "response.output_item.added");
        tri_buf_printf(&x->out, ",\"output_index\":%lld,\"item\":", (long long)c->block);
        put_item(&x->out, c, "in_progress");
        end_event(x);
    } else if (e->kind == TRI_EVENT_CALL_ARGUMENTS) {
        tri_buf_add(&c->item, e->text, e->bytes);
        event(x, "response.function_call_arguments.delta");
        put_place(c, false);
        tri_buf_puts(&x->out, ",\"delta\":");
        tri_json_quote(&x->out, e->text, e->bytes);
        end_event(x);
    } else {
        close_item(c, "completed");
    }
}

static void choice_end(struct tri__choice *c)
{
    close_item(c, !strcmp(c->finish, "length") ? "incomplete" : "completed");
}

static void end(struct tri__exchange *x)
{
    const char *status = status_of(x);
    put_response_event(
        x, !strcmp(status, "incomplete") ? "response.incomplete" : "response.completed", status);
}

static void error(struct tri__exchange *x, const struct tri__fault *fault)
{
    event(x, "response.failed");
    tri_buf_printf(&x->out,
                   ",\"response\":{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,"
                   "\"status\":\"failed\",\"output\":[],\"error\":{\"code\":\"server_error\","
                   "\"message\":",
                   x->id, (long long)x->created);
    tri__put_quoted(&x->out, fault->message);
    tri_buf_puts(&x->out, "}}");
    end_event(x);
}

/* Codex does not count comments as life. */
static void keepalive(struct tri__exchange *x)
{
    put_response_event(x, "response.in_progress", "in_progress");
}

/* Builds the items that a stream would have built as it went. */
static void gather(struct tri__choice *c)
{
    const struct tri_turn *t = &c->turn;
    if (t->reasoning_bytes) {
        open_item(c, ITEM_REASONING);
        tri_buf_add(&c->item, t->reasoning, t->reasoning_bytes);
    }
    if (c->content.len_bytes || t->call_count == 0) {
        open_item(c, ITEM_MESSAGE);
        tri_buf_add(&c->item, c->content.data, c->content.len_bytes);
    }
    for (size_t i = 0; c->found < 0 && i < t->call_count; i++) {
        open_item(c, ITEM_CALL);
        c->block_call = i;
        tri_buf_add(&c->item, t->calls[i].name, t->calls[i].name_bytes);
        tri_buf_putc(&c->item, 0);
        tri_buf_add(&c->item, t->calls[i].arguments, t->calls[i].arguments_bytes);
    }
    choice_end(c);
}

static void whole(struct tri__exchange *x, struct tri_buf *out)
{
    gather(&x->choice[0]);
    put_response(out, x, status_of(x));
}

static const struct tri__format format = { .begin = begin,
                                           .text = text,
                                           .call = call,
                                           .choice_end = choice_end,
                                           .end = end,
                                           .error = error,
                                           .keepalive = keepalive,
                                           .whole = whole };

const struct tri__endpoint tri__responses = {
    "resp_", &format, TRI__RESPONSES, tri__exchange_turn, tri__responses_to_chat, false
};
