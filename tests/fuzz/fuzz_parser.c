/*
 * Any ids as a reply. The first byte chooses the start and the options; the rest is markup text
 * (bytes that are not UTF-8 are taken as one token each). It must never fail, what streams must be
 * what the whole reply says unless that was put right afterwards, and arguments must be JSON.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "text/text.h"

static struct tri_tokenizer *tok;

/* What a client would put together from the events. */
struct client {
    struct tri_buf reasoning, content, arguments;
    size_t begun, ended;
    bool open;
};

static void on_event(void *arg, const struct tri_event *e)
{
    struct client *c = arg;
    TRI_ASSERT(tri_utf8_valid(e->text, e->bytes) == e->bytes);
    switch (e->kind) {
    case TRI_EVENT_REASONING:
        tri_buf_add(&c->reasoning, e->text, e->bytes);
        return;
    case TRI_EVENT_CONTENT:
        tri_buf_add(&c->content, e->text, e->bytes);
        return;
    case TRI_EVENT_CALL_BEGIN:
        TRI_ASSERT(!c->open && e->call == c->begun && e->bytes);
        c->open = true;
        c->begun++;
        tri_buf_clear(&c->arguments);
        return;
    case TRI_EVENT_CALL_ARGUMENTS:
        TRI_ASSERT(c->open && e->call + 1 == c->begun && e->bytes);
        tri_buf_add(&c->arguments, e->text, e->bytes);
        return;
    case TRI_EVENT_CALL_END:
        TRI_ASSERT(c->open && e->call + 1 == c->begun && c->arguments.len_bytes);
        c->open = false;
        c->ended++;
        return;
    }
}

static bool same(const struct tri_buf *a, const char *text, size_t bytes)
{
    return a->len_bytes == bytes && (!bytes || !memcmp(a->data, text, bytes));
}

static void check_turn(const struct client *c, const struct tri_turn *turn)
{
    const uint32_t *d = turn->deviations;
    TRI_ASSERT(c->ended == turn->call_count && c->begun <= c->ended + 1);
    TRI_ASSERT(c->open == (d[TRI_DEVIATION_CUT_CALL] > 0));
    if (!d[TRI_DEVIATION_ANSWER_IN_THINK] && !d[TRI_DEVIATION_THINK_IN_RESPONSE]) {
        TRI_ASSERT(same(&c->reasoning, turn->reasoning, turn->reasoning_bytes));
        TRI_ASSERT(same(&c->content, turn->content, turn->content_bytes));
    }
    for (size_t i = 0; i < turn->call_count; i++) {
        const struct tri_call *call = &turn->calls[i];
        json_t *json = NULL;
        TRI_ASSERT(tri_utf8_valid(call->arguments, call->arguments_bytes) == call->arguments_bytes);
        /* A json element may hold anything; it is counted when it is no object. */
        if (!d[TRI_DEVIATION_BAD_VALUE] && strlen(call->arguments) == call->arguments_bytes) {
            json = json_loadb(call->arguments, call->arguments_bytes, JSON_ALLOW_NUL, NULL);
            /* jansson refuses what we let pass: lone surrogates, huge numbers, deep nesting. */
            TRI_ASSERT(!json || json_is_object(json));
        }
        json_decref(json);
    }
}

static void parse(const struct tri_ids *ids, uint8_t choice)
{
    static const char *const names[] = { "f", "get_weather" };
    struct client client = { 0 };
    struct tri_parser_options o = { .start = (enum tri_channel)(choice % 3),
                                    .tools = !(choice & 4),
                                    .names = choice & 8 ? names : NULL,
                                    .name_count = choice & 8 ? 2 : 0,
                                    .strict_names = choice & 16,
                                    .event = on_event,
                                    .arg = &client };
    struct tri_parser *p = NULL;
    struct tri_turn turn;
    struct tri_buf json;
    struct tri_buf *const bufs[] = { &client.reasoning, &client.content, &client.arguments, &json };
    for (size_t i = 0; i < 4; i++)
        tri_buf_init(bufs[i], 1 << 28);
    TRI_ASSERT(!tri_parser_open(&p, tok, &o, NULL));
    for (size_t i = 0; i < ids->count_tokens; i++)
        TRI_ASSERT(!tri_parser_push(p, ids->data[i], NULL));
    TRI_ASSERT(!tri_parser_finish(p, choice & 32, &turn, NULL));
    check_turn(&client, &turn);
    /* A reply is a message that the renderer takes. */
    struct tri_prompt *prompt = NULL;
    tri_buf_puts(&json, "{\"messages\":[");
    tri_turn_message(&json, &turn, "c");
    tri_buf_puts(&json, "]}");
    (void)!tri_chat_render(&prompt, "turn", json.data, json.len_bytes, NULL, NULL);
    tri_prompt_close(prompt);
    tri_parser_close(p);
    for (size_t i = 0; i < 4; i++)
        tri_buf_fini(bufs[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (!tok)
        TRI_ASSERT(!tri_tokenizer_open(&tok, TRI_TEST_SOURCE "/tests/data/text/small", NULL));
    struct tri_ids ids = { 0 };
    const char *text = (const char *)data + 1;
    if (bytes < 1)
        return 0;
    for (size_t at = 0; at < bytes - 1;) {
        size_t good = tri_utf8_valid(text + at, bytes - 1 - at);
        TRI_ASSERT(!tri_encode(tok, text + at, good, TRI_MARKUP, &ids, NULL));
        at += good;
        if (at < bytes - 1) /* ranks 0..255 of the fixture are the bytes */
            TRI_ASSERT(!tri_ids_add(&ids, (unsigned char)text[at++]));
    }
    parse(&ids, data[0]);
    tri_ids_fini(&ids);
    return 0;
}
