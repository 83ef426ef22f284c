/*
 * Messages of a conversation as elements (spec 6.4): roles, content parts, thinking, tool calls and
 * tool results. Where Python's rules show (what counts as absent, which key wins), the reference's
 * encoding_k3.py is followed to the letter; unlike it, unknown roles and wrong types are refused.
 */
#include "text/chat_priv.h"

#include <stdlib.h>
#include <string.h>
#include "base/mem.h"

/* Python's `if value:` for a string. */
static bool has_text(const struct tri__json *v)
{
    return v && v->type == TRI__JSON_STRING && v->bytes;
}

/* ---- content ---- */

static void content_part(struct tri__chat *c, const struct tri__json *part, size_t i, bool in_user)
{
    const struct tri__json *type = tri__json_get(part, "type");
    if (!type || type->type != TRI__JSON_STRING) {
        tri__chat_refuse(c, ".content[%zu]: must be an object with a type", i);
        return;
    }
    if (tri__json_is(type, "image") || tri__json_is(type, "image_url")) {
        tri__chat_image(c, in_user);
        return;
    }
    const struct tri__json *text = tri__json_get(part, "text");
    if (text && text->type == TRI__JSON_STRING) {
        tri__chat_text(c, text->text, text->bytes);
        return;
    }
    char safe[64];
    tri__chat_refuse(c,
                     ".content[%zu]: a part of type '%s' without a text; known types are text, "
                     "image and image_url",
                     i, tri_printable(safe, sizeof safe, type->text, type->bytes));
}

static void content(struct tri__chat *c, const struct tri__json *message, bool in_user)
{
    const struct tri__json *v = tri__json_get(message, "content");
    if (!v || v->type == TRI__JSON_NULL)
        return;
    if (v->type == TRI__JSON_STRING) {
        tri__chat_text(c, v->text, v->bytes);
        return;
    }
    if (v->type != TRI__JSON_ARRAY) {
        tri__chat_refuse(c, ".content: must be a string, null or a list of parts");
        return;
    }
    size_t i = 0;
    for (const struct tri__json *part = v->child; part; part = part->next, i++)
        content_part(c, part, i, in_user);
}

static void open_message(struct tri__chat *c, const struct tri__json *message, const char *role)
{
    tri__prompt_open(c->prompt, "message");
    tri__prompt_attr(c->prompt, " role", role, strlen(role));
    const struct tri__json *name = tri__chat_member(c, message, "name", TRI__JSON_STRING);
    if (has_text(name))
        tri__prompt_attr(c->prompt, " name", name->text, name->bytes);
    tri__prompt_sep(c->prompt);
}

static void element(struct tri__chat *c, const char *tag)
{
    tri__prompt_open(c->prompt, tag);
    tri__prompt_sep(c->prompt);
}

/* ---- tool calls ---- */

/* The object that holds a call's name and arguments: `function`, or the call itself. */
static const struct tri__json *function_of(const struct tri__json *call)
{
    const struct tri__json *function = tri__json_get(call, "function");
    return function ? function : call;
}

static void open_numbered(struct tri__chat *c, const char *name, size_t bytes, size_t index)
{
    tri_buf_printf(&c->buf, "%zu", index);
    struct tri_segment number = tri__prompt_keep_buf(c->prompt, &c->buf);
    tri__prompt_attr(c->prompt, " tool", name, bytes);
    tri__prompt_attr(c->prompt, " index", number.text, number.bytes);
    tri__prompt_sep(c->prompt);
}

static void argument(struct tri__chat *c, const struct tri__json *value)
{
    static const char *const types[] = { "null",   "boolean", "boolean", "number",
                                         "number", "string",  "array",   "object" };
    struct tri_prompt *p = c->prompt;
    const char *type = types[value->type];
    tri__prompt_open(p, "argument");
    tri__prompt_attr(p, " key", value->key, value->key_bytes);
    tri__prompt_attr(p, " type", type, strlen(type));
    tri__prompt_sep(p);
    if (value->type == TRI__JSON_STRING) {
        tri__chat_text(c, value->text, value->bytes);
    } else {
        tri__json_write(&c->buf, value, TRI__JSON_SPACED);
        struct tri_segment kept = tri__prompt_keep_buf(p, &c->buf);
        tri__chat_text(c, kept.text, kept.bytes);
    }
    tri__prompt_shut(p, "argument");
}

/* Arguments as text: JSON of an object is taken apart, what is no JSON goes out as it is. */
static void arguments_text(struct tri__chat *c, const struct tri__json *text)
{
    struct tri_prompt *p = c->prompt;
    if (tri__text_is_blank(text->text, text->bytes))
        return;
    struct tri__json *parsed = NULL;
    struct tri_error why = { 0 };
    enum tri_status st =
        tri__json_read(&parsed, &p->arena, text->text, text->bytes, TRI__JSON_PYTHON, &why);
    if (st == TRI_FORMAT) {
        tri__prompt_open(p, "json");
        tri__prompt_attr(p, " type", "object", 6);
        tri__prompt_sep(p);
        tri__chat_text(c, text->text, text->bytes);
        tri__prompt_shut(p, "json");
    } else if (st) {
        p->failed = tri_fail(p->err, st, "%s.arguments: %s", c->where, why.text);
    } else if (parsed->type != TRI__JSON_OBJECT) {
        tri__chat_refuse(c, ".arguments: must be a JSON object, not another value");
    } else {
        for (const struct tri__json *v = parsed->child; v; v = v->next)
            argument(c, v);
    }
}

static void call(struct tri__chat *c, const struct tri__json *node, size_t index)
{
    struct tri_prompt *p = c->prompt;
    const struct tri__json *function = function_of(node);
    const struct tri__json *name = tri__json_get(function, "name");
    if (!name || name->type != TRI__JSON_STRING) {
        tri__chat_refuse(c, ": must be an object with a function and its name (a string)");
        return;
    }
    tri__prompt_open(p, "call");
    open_numbered(c, name->text, name->bytes, index);
    const struct tri__json *args = tri__json_get(function, "arguments");
    if (args && args->type == TRI__JSON_STRING)
        arguments_text(c, args);
    else if (args && args->type == TRI__JSON_OBJECT)
        for (const struct tri__json *v = args->child; v; v = v->next)
            argument(c, v);
    else if (args && args->type != TRI__JSON_NULL)
        tri__chat_refuse(c, ".arguments: must be an object, or its JSON as a string");
    tri__prompt_shut(p, "call");
}

/* ---- roles ---- */

static void thinking(struct tri__chat *c, const struct tri__json *message)
{
    const struct tri__json *text =
        tri__chat_member(c, message, "reasoning_content", TRI__JSON_STRING);
    if (!has_text(text))
        text = tri__chat_member(c, message, "reasoning", TRI__JSON_STRING);
    element(c, "think");
    if (text && !tri__text_is_blank(text->text, text->bytes))
        tri__chat_text(c, text->text, text->bytes);
    tri__prompt_shut(c->prompt, "think");
}

static void assistant(struct tri__chat *c, const struct tri__json *message, size_t at)
{
    const struct tri__json *calls = tri__chat_member(c, message, "tool_calls", TRI__JSON_ARRAY);
    c->calls = calls;
    c->results = 0;
    open_message(c, message, "assistant");
    if (c->settings.thinking)
        thinking(c, message);
    element(c, "response");
    content(c, message, false);
    tri__prompt_shut(c->prompt, "response");
    if (calls && calls->count > TRI_CHAT_MAX_TOOLS && !c->prompt->failed)
        c->prompt->failed =
            tri_fail(c->prompt->err, TRI_LIMIT, "%s.tool_calls: %zu calls, at most %d are read",
                     c->where, calls->count, TRI_CHAT_MAX_TOOLS);
    if (calls && calls->count) {
        size_t i = 0;
        element(c, "tools");
        for (const struct tri__json *v = calls->child; v && !c->prompt->failed; v = v->next, i++) {
            tri__chat_at(c, "messages[%zu].tool_calls[%zu]", at, i);
            call(c, v, i + 1);
        }
        tri__prompt_shut(c->prompt, "tools");
    }
    tri__prompt_end_message(c->prompt);
}

static void user_or_system(struct tri__chat *c, const struct tri__json *message, size_t at)
{
    bool is_user = tri__json_is(tri__json_get(message, "role"), "user");
    const struct tri__json *tools =
        is_user ? NULL : tri__chat_member(c, message, "tools", TRI__JSON_ARRAY);
    if (tools && tools->count) {
        tri__chat_at(c, "messages[%zu].tools", at);
        tri__chat_declare(c, tools,
                          "## New Tools Available\n"
                          "The system dynamically extends the toolset via lazy-loading.\n"
                          "You have access to all existing and extended tools.\n"
                          "Here are the specs for the extended tools.\n\n");
        return;
    }
    open_message(c, message, is_user ? "user" : "system");
    content(c, message, is_user);
    tri__prompt_end_message(c->prompt);
}

/* ---- tool results ---- */

/* One result of a run of them, and the call it answers (0: none). */
struct result {
    const struct tri__json *message;
    size_t at, position;
};

/* Python's str() of an id: a string, or a whole number; NULL for anything else. */
static const struct tri__json *id_of(const struct tri__json *v)
{
    return v && (v->type == TRI__JSON_STRING || v->type == TRI__JSON_INT) ? v : NULL;
}

/* The 1-based position of the last assistant's call that a result answers; the first of equals. */
static size_t answered(const struct tri__chat *c, const struct tri__json *message)
{
    const struct tri__json *id = tri__json_get(message, "tool_call_id");
    id = id_of(id ? id : tri__json_get(message, "id"));
    if (!id || !c->calls)
        return 0;
    size_t position = 1;
    for (const struct tri__json *v = c->calls->child; v; v = v->next, position++) {
        const struct tri__json *other = id_of(tri__json_get(v, "id"));
        if (other && other->bytes == id->bytes && !memcmp(other->text, id->text, id->bytes))
            return position;
    }
    return 0;
}

static const struct tri__json *call_name(const struct tri__chat *c, size_t position)
{
    const struct tri__json *v = c->calls && position <= c->calls->count ? c->calls->child : NULL;
    while (v && --position)
        v = v->next;
    return v ? tri__json_get(function_of(v), "name") : NULL;
}

static void result(struct tri__chat *c, const struct result *r, bool all_matched)
{
    tri__chat_at(c, "messages[%zu]", r->at);
    size_t index = ++c->results;
    const struct tri__json *name = tri__json_get(r->message, "tool");
    if (!name)
        name = tri__json_get(r->message, "name");
    if (all_matched)
        name = call_name(c, r->position);
    else if (!name || name->type == TRI__JSON_NULL)
        name = call_name(c, index);
    if (!name || name->type != TRI__JSON_STRING) {
        tri__chat_refuse(c, ": a tool result needs the name of its tool: in tool or name, or from "
                            "a call of the assistant before it that has the same id or place");
        return;
    }
    tri__prompt_open(c->prompt, "message");
    tri__prompt_attr(c->prompt, " role", "tool", 4);
    open_numbered(c, name->text, name->bytes, index);
    content(c, r->message, false);
    tri__prompt_end_message(c->prompt);
}

static int by_position(const void *a, const void *b)
{
    const struct result *x = a, *y = b;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

static bool is_result(const struct tri__json *message)
{
    return tri__json_is(tri__json_get(message, "role"), "tool");
}

/*
 * Renders the run of tool results that starts at `first`. If every one answers a call of the last
 * assistant, they go in the order of the calls and take the calls' names; else as they came.
 * Returns how many there are.
 */
static size_t results(struct tri__chat *c, const struct tri__json *first, size_t at)
{
    size_t count = 0;
    bool all_matched = true;
    for (const struct tri__json *m = first; m && is_result(m); m = m->next)
        count++;
    struct result *run = tri_calloc(count, sizeof *run);
    if (!run) {
        c->prompt->failed = tri_fail(c->prompt->err, TRI_NOMEM, "%s: no memory", c->where);
        return count;
    }
    const struct tri__json *m = first;
    for (size_t i = 0; i < count; i++, m = m->next) {
        run[i] = (struct result){ m, at + i, answered(c, m) };
        all_matched = all_matched && run[i].position;
    }
    if (all_matched)
        qsort(run, count, sizeof *run, by_position);
    for (size_t i = 0; i < count; i++)
        result(c, &run[i], all_matched);
    tri_free(run);
    return count;
}

void tri__chat_messages(struct tri__chat *c, const struct tri__json *messages)
{
    if (messages->count > TRI_CHAT_MAX_MESSAGES && !c->prompt->failed)
        c->prompt->failed =
            tri_fail(c->prompt->err, TRI_LIMIT, "%s: messages: %zu of them, at most %d are read",
                     c->name, messages->count, TRI_CHAT_MAX_MESSAGES);
    size_t at = 0;
    for (const struct tri__json *m = messages->child; m && !c->prompt->failed; m = m->next, at++) {
        tri__chat_at(c, "messages[%zu]", at);
        const struct tri__json *role = tri__json_get(m, "role");
        if (is_result(m)) {
            size_t count = results(c, m, at);
            at += count - 1;
            for (; count > 1; count--)
                m = m->next;
        } else if (tri__json_is(role, "assistant")) {
            assistant(c, m, at);
        } else if (tri__json_is(role, "user") || tri__json_is(role, "system") ||
                   tri__json_is(role, "developer")) { /* OpenAI's newer word for system */
            user_or_system(c, m, at);
        } else {
            tri__chat_refuse(c, ".role: must be system, user, assistant or tool");
        }
    }
}
