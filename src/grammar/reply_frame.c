/*
 * The frame around what was asked for (spec 6.1, 6.7): from the channel that the prompt opened to
 * the end of the message, with markers as ids. Thinking is free text. A constrained answer and
 * calls exclude each other; calls that must come stand behind an empty answer, as the model's own
 * format has it.
 */
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "grammar/grammar_priv.h"

uint32_t tri__put_open(struct tri__build *b, const char *tag, uint32_t next)
{
    uint32_t sep = tri__put_marker(b, b->vocab->chat.sep, next);
    return tri__put_marker(b, b->vocab->chat.open, tri__put_text(b, tag, strlen(tag), sep));
}

uint32_t tri__put_close(struct tri__build *b, const char *tag, uint32_t next)
{
    uint32_t sep = tri__put_marker(b, b->vocab->chat.sep, next);
    return tri__put_marker(b, b->vocab->chat.close, tri__put_text(b, tag, strlen(tag), sep));
}

/* ---- the answer ---- */

static uint32_t put_choice(struct tri__build *b, const json_t *list, uint32_t next)
{
    size_t n = json_array_size(list);
    struct tri__literal *literal = tri_calloc(n + 1, sizeof *literal);
    uint32_t start = TRI__NOWHERE;
    if (!literal)
        return tri__build_fail(b, TRI_NOMEM, "no memory for a grammar");
    if (!json_is_array(list) || n == 0 || n > TRI_GRAMMAR_MAX_ENUM)
        tri__build_fail(b, n > TRI_GRAMMAR_MAX_ENUM ? TRI_LIMIT : TRI_UNSUPPORTED,
                        "%s: must be a list of 1 to %d strings", b->root_name,
                        TRI_GRAMMAR_MAX_ENUM);
    for (size_t i = 0; i < n && !b->failed; i++) {
        const json_t *text = json_array_get(list, i);
        if (!json_is_string(text))
            tri__build_fail(b, TRI_UNSUPPORTED, "%s: [%zu] is no string", b->root_name, i);
        else
            literal[i] =
                (struct tri__literal){ json_string_value(text), json_string_length(text), next };
    }
    if (!b->failed)
        start = tri__put_literals(b, literal, n);
    tri_free(literal);
    return start;
}

static uint32_t put_answer(struct tri__build *b, const struct tri_grammar_request *r, uint32_t next)
{
    struct tri__value_of v = { r->schema, TRI__ANY_TYPE, false };
    struct tri__pattern p = { .coding = TRI__RAW_TEXT, .whole = true };
    b->root = r->schema;
    b->root_name = r->schema_name ? r->schema_name : "schema";
    switch (r->kind) {
    case TRI_GRAMMAR_TEXT:
        return tri__put_free(b, next);
    case TRI_GRAMMAR_JSON:
        return tri__put_object(b, NULL, next);
    case TRI_GRAMMAR_SCHEMA:
        return tri__put_value(b, &v, next);
    case TRI_GRAMMAR_CHOICE:
        return put_choice(b, r->schema, next);
    case TRI_GRAMMAR_REGEX:
        p.text = json_string_value(r->schema);
        p.bytes = json_string_length(r->schema);
        return p.text ? tri__put_pattern(b, &p, next)
                      : tri__build_fail(b, TRI_UNSUPPORTED, "%s: must be a string", b->root_name);
    }
    return TRI__NOWHERE;
}

/* ---- calls ---- */

/* Arguments of one tool; when its schema is beyond us and it is not strict, any arguments. */
static uint32_t put_tool_arguments(struct tri__build *b, const json_t *function, uint32_t next)
{
    struct tri_error why = { 0 }, *err = b->err;
    uint32_t nodes = b->net->n_nodes, rules = b->n_rules;
    bool strict = json_is_true(json_object_get(function, "strict"));
    b->err = &why;
    b->loose = !strict;
    b->root = json_object_get(function, "parameters");
    if (!b->root)
        b->root = json_object_get(function, "input_schema"); /* Anthropic's word */
    uint32_t start = tri__put_arguments(b, b->root, next);
    b->err = err;
    b->loose = false;
    if (b->failed == TRI_UNSUPPORTED && !strict) {
        b->failed = TRI_OK;
        b->net->n_nodes = nodes;
        b->n_rules = rules;
        b->any_value = b->any_value < nodes ? b->any_value : TRI__NOWHERE;
        return tri__put_any_arguments(b, next);
    }
    if (b->failed)
        tri_fail(err, b->failed, "%s", why.text);
    return start;
}

/* `NAME" index="N"`, sep, arguments and the close of the call, to the END of a rule. */
static bool put_tool(struct tri__build *b, const json_t *tool, size_t i, struct tri__literal *out)
{
    const json_t *function = json_object_get(tool, "function");
    const json_t *name = json_object_get(function ? function : tool, "name");
    char root_name[64];
    if (!json_is_string(name) || json_string_length(name) == 0)
        return false;
    snprintf(root_name, sizeof root_name, "tools[%zu].function.parameters", i);
    b->root_name = root_name;
    uint32_t close = tri__put_close(b, "call", b->end);
    uint32_t arguments = put_tool_arguments(b, function ? function : tool, close);
    uint32_t quote = tri__put_byte(b, '"', '"', tri__put_marker(b, b->vocab->chat.sep, arguments));
    uint32_t digits = tri__put_loop(b, tri__put_byte(b, '0', '9', b->end), 0, 2, quote);
    uint32_t rest = tri__put_text(b, "\" index=\"", 9, tri__put_byte(b, '1', '9', digits));
    b->root_name = "tools";
    tri_buf_clear(&b->text);
    tri__write_coded(&b->text, json_string_value(name), json_string_length(name), TRI__ATTRIBUTE);
    char *copy = tri_strndup(b->text.data, b->text.len_bytes);
    if (!copy)
        tri__build_fail(b, TRI_NOMEM, "no memory for a grammar");
    *out = (struct tri__literal){ copy, copy ? b->text.len_bytes : 0, rest };
    return copy != NULL;
}

static bool is_meant(const json_t *tool, const char *only)
{
    const json_t *function = json_object_get(tool, "function");
    const char *name = json_string_value(json_object_get(function ? function : tool, "name"));
    return !only || (name && !strcmp(only, name));
}

/* The tools element, after which `next` comes. */
static uint32_t put_calls(struct tri__build *b, const struct tri_grammar_request *r, uint32_t next)
{
    size_t n = json_array_size(r->tools), kept = 0;
    struct tri__literal *list = tri_calloc(n + 1, sizeof *list);
    if (!list)
        return tri__build_fail(b, TRI_NOMEM, "no memory for a grammar");
    for (size_t i = 0; i < n && !b->failed; i++) {
        const json_t *tool = json_array_get(r->tools, i);
        kept += is_meant(tool, r->only_tool) && put_tool(b, tool, i, &list[kept]);
    }
    uint32_t names = b->failed ? TRI__NOWHERE : tri__put_literals(b, list, kept);
    for (size_t i = 0; i < kept; i++)
        tri_free((char *)(uintptr_t)list[i].text);
    tri_free(list);
    uint32_t call =
        tri__put_marker(b, b->vocab->chat.open, tri__put_text(b, "call tool=\"", 11, names));
    uint32_t close = tri__put_close(b, "tools", next);
    uint32_t most = r->one_call ? 1 : TRI_GRAMMAR_MAX_CALLS;
    return tri__put_open(b, "tools", tri__put_loop(b, call, 1, most, close));
}

/* ---- all of it ---- */

static uint32_t put_response(struct tri__build *b, const struct tri_grammar_request *r,
                             uint32_t done)
{
    uint32_t calls = r->calls == TRI_GRAMMAR_NO_CALLS ? TRI__NOWHERE : put_calls(b, r, done);
    if (r->calls == TRI_GRAMMAR_MUST_CALL)
        return tri__put_close(b, "response", calls);
    if (r->kind == TRI_GRAMMAR_TEXT)
        return put_answer(b, r, tri__put_close(b, "response", tri__put_fork(b, calls, done)));
    uint32_t answer = put_answer(b, r, tri__put_close(b, "response", done));
    return tri__put_fork(b, answer, calls ? tri__put_close(b, "response", calls) : TRI__NOWHERE);
}

uint32_t tri__put_reply(struct tri__build *b, const struct tri_grammar_request *r)
{
    uint32_t done = TRI__NOWHERE;
    if (r->start == TRI_CHANNEL_NONE) {
        for (size_t i = 0; i < r->n_end_ids; i++)
            done = tri__put_fork(b, tri__put_marker(b, r->end_ids[i], b->end), done);
        return put_answer(b, r, done);
    }
    done = tri__put_close(b, "message", tri__put_marker(b, b->vocab->chat.end_of_msg, b->end));
    uint32_t response = put_response(b, r, done);
    if (r->start == TRI_CHANNEL_RESPONSE || b->failed)
        return response;
    uint32_t opened = tri__put_open(b, "response", response);
    return tri__put_free(b, tri__put_close(b, "think", opened));
}
