/*
 * The chat renderer: reads a request and writes the prompt as the reference's encoding_k3.py does.
 * This file holds the order of a prompt (spec 6.2), the notes around the conversation (6.3) and the
 * request's own settings; chat_message.c writes the messages.
 */
#include "text/chat_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"

/* ---- what both files use to look at the request ---- */

void tri__chat_at(struct tri__chat *c, const char *format, ...)
{
    char path[128];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof path, format, args);
    va_end(args);
    snprintf(c->where, sizeof c->where, "%s: %s", c->name, path);
}

void tri__chat_refuse(struct tri__chat *c, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    bool at_top = text[0] == '.' && !strcmp(c->where, c->name);
    if (!c->prompt->failed)
        c->prompt->failed = tri_fail(c->prompt->err, TRI_FORMAT, at_top ? "%s: %s" : "%s%s",
                                     c->where, text + at_top);
}

const struct tri__json *tri__chat_member(struct tri__chat *c, const struct tri__json *object,
                                         const char *key, enum tri__json_type type)
{
    static const char *const names[] = {
        [TRI__JSON_STRING] = "a string",
        [TRI__JSON_ARRAY] = "a list",
        [TRI__JSON_OBJECT] = "an object",
        [TRI__JSON_TRUE] = "true or false",
    };
    const struct tri__json *v = tri__json_get(object, key);
    if (!v || v->type == TRI__JSON_NULL)
        return NULL;
    if (v->type == type || (type == TRI__JSON_TRUE && v->type == TRI__JSON_FALSE))
        return v;
    tri__chat_refuse(c, ".%s: must be %s", key, names[type]);
    return NULL;
}

/* ---- notes: system messages that the reference writes itself ---- */

static void open_note(struct tri_prompt *p, const char *type)
{
    tri__prompt_open(p, "message");
    tri__prompt_attr(p, " role", "system", 6);
    tri__prompt_attr(p, " type", type, strlen(type));
    tri__prompt_sep(p);
}

static void note(struct tri_prompt *p, const char *type, const char *body)
{
    open_note(p, type);
    tri__prompt_puts(p, body);
    tri__prompt_end_message(p);
}

/* Remembers the names for the output parser. */
static void keep_names(struct tri__chat *c, const struct tri__json *tools)
{
    struct tri_prompt *p = c->prompt;
    size_t need = p->tool_count + tools->count;
    const char **names = tri_realloc(p->tools, (need + 1) * sizeof *names);
    if (!names) {
        p->failed = tri_fail(p->err, TRI_NOMEM, "%s: no memory for the tools", c->where);
        return;
    }
    p->tools = names;
    for (const struct tri__json *tool = tools->child; tool; tool = tool->next) {
        const struct tri__json *inner = tri__json_get(tool, "function");
        const struct tri__json *name = tri__json_get(inner ? inner : tool, "name");
        char *copy = name && name->type == TRI__JSON_STRING
                         ? tri__prompt_keep(p, name->text, name->bytes)
                         : NULL;
        if (copy)
            p->tools[p->tool_count++] = copy;
    }
}

void tri__chat_declare(struct tri__chat *c, const struct tri__json *tools, const char *head)
{
    size_t i = 0;
    for (const struct tri__json *tool = tools->child; tool; tool = tool->next, i++)
        if (tool->type != TRI__JSON_OBJECT)
            tri__chat_refuse(c, "[%zu]: must be an object", i);
    if (tools->count > TRI_CHAT_MAX_TOOLS && !c->prompt->failed)
        c->prompt->failed =
            tri_fail(c->prompt->err, TRI_LIMIT, "%s: %zu tools, at most %d are read", c->where,
                     tools->count, TRI_CHAT_MAX_TOOLS);
    if (c->prompt->failed)
        return;
    keep_names(c, tools);
    open_note(c->prompt, "tool-declare");
    tri_buf_puts(&c->buf, head);
    tri_buf_puts(&c->buf, "```json\n");
    tri__json_write(&c->buf, tools, TRI__JSON_SORTED);
    tri_buf_puts(&c->buf, "\n```");
    tri__prompt_text_buf(c->prompt, &c->buf);
    tri__prompt_end_message(c->prompt);
}

static void effort_note(struct tri__chat *c)
{
    static const char *const names[] = { NULL, "low", "high", "max" };
    open_note(c->prompt, "thinking-effort");
    tri_buf_printf(&c->buf,
                   "`thinking_effort` guides on how much to think in your thinking channel (not "
                   "including the response channel), supported values include `low`, `medium`, "
                   "`high`, and `max`.\nNow the system is invoked with `thinking_effort=%s`.",
                   names[c->settings.effort]);
    tri__prompt_text_buf(c->prompt, &c->buf);
    tri__prompt_end_message(c->prompt);
}

static void tool_choice_note(struct tri__chat *c)
{
    if (c->settings.tool_choice == TRI_TOOLS_REQUIRED)
        note(c->prompt, "tool-choice",
             "The system is invoked with `tool_choice=required`.\n"
             "You MUST call tools in the next message.");
    if (c->settings.tool_choice == TRI_TOOLS_NONE)
        note(c->prompt, "tool-choice",
             "The system is invoked with `tool_choice=none`.\n"
             "You MUST NOT call any tools in the next message.");
}

/* The schema stands in json_schema.schema, in json_schema.json_schema, or is json_schema itself. */
static const struct tri__json *find_schema(struct tri__chat *c, const struct tri__json *format)
{
    const struct tri__json *outer = tri__chat_member(c, format, "json_schema", TRI__JSON_OBJECT);
    const struct tri__json *schema = tri__json_get(outer, "schema");
    if (!schema)
        schema = tri__json_get(outer, "json_schema");
    if (!schema)
        schema = outer;
    if (!schema || schema->type != TRI__JSON_OBJECT) {
        tri__chat_refuse(c, ".json_schema: must hold a schema (an object)");
        return NULL;
    }
    return schema;
}

#define RAW_JSON                                                                                   \
    "Your response must be raw JSON data without markdown code blocks (```json) or any "           \
    "additional formatting."

static void response_format_note(struct tri__chat *c, const struct tri__json *format)
{
    if (!format || format->type == TRI__JSON_NULL)
        return;
    const struct tri__json *type = format;
    if (format->type == TRI__JSON_OBJECT)
        type = tri__json_get(format, "type");
    if (tri__json_is(type, "text"))
        return;
    if (tri__json_is(type, "json_object")) {
        note(c->prompt, "response-format",
             "The system is invoked with `response_format=json_object`.\n" RAW_JSON);
        return;
    }
    if (!tri__json_is(type, "json_schema")) {
        tri__chat_refuse(c, ".type: must be \"text\", \"json_object\" or \"json_schema\"");
        return;
    }
    const struct tri__json *schema = find_schema(c, format);
    if (!schema)
        return;
    open_note(c->prompt, "response-format");
    tri_buf_puts(&c->buf, "The system is invoked with `response_format=json_schema`.\n" RAW_JSON
                          "\nThe JSON data must match the following schema:\n```json\n");
    tri__json_write(&c->buf, schema, TRI__JSON_SORTED);
    tri_buf_puts(&c->buf, "\n```");
    tri__prompt_text_buf(c->prompt, &c->buf);
    tri__prompt_end_message(c->prompt);
}

/* ---- settings of the request itself ---- */

enum tri_status tri_effort_parse(enum tri_effort *out, const char *text, struct tri_error *err)
{
    static const char *const names[] = { "low", "high", "max" };
    for (int i = 0; i < 3; i++)
        if (!strcmp(text, names[i])) {
            *out = (enum tri_effort)(TRI_EFFORT_LOW + i);
            return TRI_OK;
        }
    char safe[64];
    return tri_fail(
        err, TRI_FORMAT, "'%s' is no thinking effort: Kimi K3 accepts low, high and max%s",
        tri_printable(safe, sizeof safe, text, strlen(text)),
        strcmp(text, "medium") ? "" : " (its prompt names medium, its encoder refuses)");
}

static void read_effort(struct tri__chat *c, const struct tri__json *root)
{
    const struct tri__json *v = tri__chat_member(c, root, "thinking_effort", TRI__JSON_STRING);
    if (!v)
        return;
    struct tri_error why = { 0 };
    char *text = tri__prompt_keep(c->prompt, v->text, v->bytes);
    if (text && tri_effort_parse(&c->settings.effort, text, &why))
        tri__chat_refuse(c, ".thinking_effort: %s", why.text);
}

static void read_settings(struct tri__chat *c, const struct tri__json *root)
{
    const struct tri__json *v = tri__chat_member(c, root, "thinking", TRI__JSON_TRUE);
    if (v)
        c->settings.thinking = v->type == TRI__JSON_TRUE;
    v = tri__chat_member(c, root, "add_generation_prompt", TRI__JSON_TRUE);
    if (v)
        c->settings.add_generation_prompt = v->type == TRI__JSON_TRUE;
    read_effort(c, root);
    v = tri__chat_member(c, root, "tool_choice", TRI__JSON_STRING);
    if (tri__json_is(v, "required"))
        c->settings.tool_choice = TRI_TOOLS_REQUIRED;
    else if (tri__json_is(v, "none"))
        c->settings.tool_choice = TRI_TOOLS_NONE;
    else if (v && !tri__json_is(v, "auto"))
        tri__chat_refuse(c, ".tool_choice: must be \"auto\", \"none\" or \"required\"");
}

/* ---- the whole ---- */

static void render_request(struct tri__chat *c, const struct tri__json *root)
{
    struct tri_prompt *p = c->prompt;
    snprintf(c->where, sizeof c->where, "%s", c->name);
    if (root->type != TRI__JSON_OBJECT) {
        tri__chat_refuse(c, ": must be a JSON object");
        return;
    }
    if (!c->given_settings)
        read_settings(c, root);
    tri__chat_images_read(c, root);
    const struct tri__json *tools = tri__chat_member(c, root, "tools", TRI__JSON_ARRAY);
    const struct tri__json *messages = tri__chat_member(c, root, "messages", TRI__JSON_ARRAY);
    if (!messages)
        tri__chat_refuse(c, ".messages: is missing");
    if (p->failed)
        return;
    tri__chat_at(c, "tools");
    if (tools && tools->count)
        tri__chat_declare(c, tools,
                          "# Tools\nHere are the available tools, described in JSONSchema.\n\n");
    if (c->settings.thinking && c->settings.effort != TRI_EFFORT_NONE)
        effort_note(c);
    tri__chat_messages(c, messages);
    tool_choice_note(c);
    tri__chat_at(c, "response_format");
    response_format_note(c, tri__json_get(root, "response_format"));
    if (c->settings.add_generation_prompt) {
        tri__prompt_open(p, "message");
        tri__prompt_attr(p, " role", "assistant", 9);
        tri__prompt_sep(p);
        tri__prompt_open(p, c->settings.thinking ? "think" : "response");
        tri__prompt_sep(p);
        p->start = c->settings.thinking ? TRI_CHANNEL_THINK : TRI_CHANNEL_RESPONSE;
    }
    tri__chat_images_end(c);
}

enum tri_status tri_chat_render(struct tri_prompt **out, const char *name, const char *json,
                                size_t bytes, const struct tri_chat_settings *settings,
                                struct tri_error *err)
{
    if (bytes > TRI_CHAT_MAX_BYTES)
        return tri_fail(err, TRI_LIMIT, "%s: %zu bytes, at most %d are read", name, bytes,
                        TRI_CHAT_MAX_BYTES);
    struct tri_prompt *p = tri_calloc(1, sizeof *p);
    if (!p)
        return tri_fail(err, TRI_NOMEM, "%s: no memory", name);
    struct tri__chat c = { .prompt = p,
                           .name = name,
                           .settings = settings ? *settings : TRI_CHAT_SETTINGS,
                           .given_settings = settings != NULL };
    struct tri_error why = { 0 };
    p->arena.max_bytes = TRI_CHAT_MAX_MEMORY_BYTES;
    p->err = &why;
    p->where = c.where;
    tri_buf_init(&c.buf, TRI_CHAT_MAX_MEMORY_BYTES);
    struct tri__json *root = NULL;
    enum tri_status st = tri__json_read(&root, &p->arena, json, bytes, TRI__JSON_PYTHON, &why);
    if (st) {
        st = tri_fail(err, st, "%s: not valid JSON: %s", name, why.text);
    } else {
        render_request(&c, root);
        st = p->failed ? tri_fail(err, p->failed, "%s", why.text) : TRI_OK;
    }
    tri_buf_fini(&c.buf);
    tri_free(c.images.list);
    p->err = NULL;
    p->where = NULL;
    if (st)
        tri_prompt_close(p);
    else
        *out = p;
    return st;
}
