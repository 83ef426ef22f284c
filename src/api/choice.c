/*
 * One choice of a request: the way of every token from id to text: output parser (or detokenizer),
 * then stop strings over the answer alone. What its dialect makes of it, and the request around it,
 * is in answering.c.
 */
#include "api/api_priv.h"

#include <stdio.h>
#include <string.h>

static void emit_content(void *arg, const char *bytes, size_t n)
{
    struct tri__choice *c = arg;
    if (n == 0)
        return;
    tri_buf_add(&c->content, bytes, n);
    if (c->x->p.stream && c->x->request)
        c->x->format->text(c, TRI_EVENT_CONTENT, bytes, n);
}

static void on_parsed(void *arg, const struct tri_event *event)
{
    struct tri__choice *c = arg;
    struct tri__exchange *x = c->x;
    if (c->found >= 0)
        return;
    if (event->kind == TRI_EVENT_CONTENT) {
        c->found = tri_stop_feed(c->stop, event->text, event->bytes, emit_content, c);
        return;
    }
    if (!x->p.stream || !x->request)
        return;
    if (event->kind == TRI_EVENT_REASONING)
        x->format->text(c, event->kind, event->text, event->bytes);
    else
        x->format->call(c, event);
}

bool tri__choice_take(struct tri__choice *c, int32_t id, struct tri_error *err)
{
    c->completion_tokens++;
    if (tri_ids_add(&c->sampled, id) != TRI_OK)
        return tri_fail(err, TRI_NOMEM, "no memory") == TRI_OK;
    if (c->parser && !tri_parser_ended(c->parser)) {
        c->reasoning_tokens += tri_parser_channel(c->parser) == TRI_CHANNEL_THINK;
        return tri_parser_push(c->parser, id, err) == TRI_OK;
    }
    /* Plain text; also what comes after a chat's end with ignore_eos, so that each token shows. */
    tri_buf_clear(&c->piece);
    if (tri_detok_push(&c->detok, id, &c->piece, err) != TRI_OK)
        return false;
    if (c->piece.len_bytes)
        c->found = tri_stop_feed(c->stop, c->piece.data, c->piece.len_bytes, emit_content, c);
    return true;
}

void tri__put_token_text(struct tri_buf *out, const struct tri_api *api, int32_t id)
{
    size_t bytes = 0;
    const char *text = tri_token_bytes(api->options.tok, id, &bytes);
    struct tri_utf8_hold hold = { 0 };
    struct tri_buf valid;
    tri_buf_init(&valid, 4 * TRI_TOKEN_MAX_BYTES);
    tri_utf8_push(&hold, text ? text : "", text ? bytes : 0, &valid);
    tri_utf8_finish(&hold, &valid);
    tri_json_quote(out, valid.data ? valid.data : "", valid.len_bytes);
    tri_buf_fini(&valid);
}

static void put_token(struct tri_buf *out, const struct tri__choice *c, int32_t id, float logprob)
{
    size_t bytes = 0;
    const char *text = tri_token_bytes(c->x->api->options.tok, id, &bytes);
    tri_buf_puts(out, "{\"token\":");
    tri__put_token_text(out, c->x->api, id);
    tri_buf_printf(out, ",\"logprob\":%.6f,\"bytes\":[", (double)logprob);
    for (size_t i = 0; text && i < bytes; i++)
        tri_buf_printf(out, i ? ",%d" : "%d", (unsigned char)text[i]);
    tri_buf_puts(out, "]");
}

void tri__chat_logprob(struct tri__choice *c, const struct tri_job_event *e)
{
    struct tri_buf *out = &c->logprobs;
    if (out->len_bytes)
        tri_buf_putc(out, ',');
    put_token(out, c, e->chosen.id, e->chosen.logprob);
    tri_buf_puts(out, ",\"top_logprobs\":[");
    for (int64_t i = 0; i < e->n_top; i++) {
        if (i)
            tri_buf_putc(out, ',');
        put_token(out, c, e->top[i].id, e->top[i].logprob);
        tri_buf_putc(out, '}');
    }
    tri_buf_puts(out, "]}");
}

void tri__choice_finish_text(struct tri__choice *c, enum tri_job_end end)
{
    bool cut = end != TRI_JOB_STOP || c->found >= 0;
    c->finish = cut && c->found < 0 ? "length" : "stop";
    if (c->parser) {
        if (tri_parser_finish(c->parser, cut, &c->turn, NULL) == TRI_OK && c->found < 0)
            c->finish = tri_finish_name(c->turn.finish);
    }
    tri_buf_clear(&c->piece);
    tri_detok_finish(&c->detok, &c->piece);
    if (c->piece.len_bytes && c->found < 0)
        c->found = tri_stop_feed(c->stop, c->piece.data, c->piece.len_bytes, emit_content, c);
    if (c->found < 0)
        tri_stop_flush(c->stop, emit_content, c);
}

bool tri__choice_is_whole(const struct tri__choice *c)
{
    return !(c->content.failed || c->logprobs.failed || c->piece.failed || c->item.failed ||
             c->items.failed || c->offsets.failed);
}

bool tri__choice_open(struct tri__exchange *x, struct tri__choice *c, struct tri_error *err)
{
    c->x = x;
    c->found = -1;
    tri_buf_init(&c->content, TRI_TURN_MAX_BYTES);
    tri_buf_init(&c->logprobs, TRI__API_MAX_OUT_BYTES);
    tri_buf_init(&c->piece, TRI_TURN_MAX_BYTES);
    tri_buf_init(&c->item, TRI_TURN_MAX_BYTES);
    tri_buf_init(&c->items, TRI__API_MAX_OUT_BYTES);
    tri_buf_init(&c->offsets, TRI__API_MAX_OUT_BYTES);
    char hex[17];
    tri__random_hex(hex, 16);
    if (sscanf(hex, "%16lx", &c->call_salt) != 1)
        c->call_salt = (uint64_t)x->created;
    if (tri_stop_open(&c->stop, x->p.stop, (int64_t)x->p.n_stop, err) != TRI_OK)
        return false;
    tri_detok_init(&c->detok, x->api->options.tok, true);
    if (!x->prompt)
        return true;
    struct tri_parser_options o = { .start = tri_prompt_start(x->prompt),
                                    .event = on_parsed,
                                    .arg = c };
    o.names = tri_prompt_tools(x->prompt, &o.name_count);
    o.tools = o.name_count > 0 && x->p.chat.tool_choice != TRI_TOOLS_NONE;
    return tri_parser_open(&c->parser, x->api->options.tok, &o, err) == TRI_OK;
}

void tri__choice_fini(struct tri__choice *c)
{
    tri_job_release(c->job);
    tri_parser_close(c->parser);
    tri_stop_close(c->stop);
    tri_buf_fini(&c->content);
    tri_buf_fini(&c->logprobs);
    tri_buf_fini(&c->piece);
    tri_buf_fini(&c->item);
    tri_buf_fini(&c->items);
    tri_buf_fini(&c->offsets);
    tri_ids_fini(&c->sampled);
}
