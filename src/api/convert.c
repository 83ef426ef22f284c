/*
 * Anthropic's messages as the chat request that the renderer reads, and what that has in common
 * with OpenAI's responses (from_responses.c). Only structure is turned; texts and tool inputs pass
 * as they are.
 */
#include "api/convert_priv.h"

#include <stdio.h>
#include <string.h>

const char *tri__conv_type(const json_t *block)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    return type ? type : "";
}

/* A string's text, quoted; anything else as an empty one. */
void tri__conv_text(struct tri_buf *out, const json_t *text)
{
    tri_json_quote(out, json_is_string(text) ? json_string_value(text) : "",
                   json_is_string(text) ? json_string_length(text) : 0);
}

/* Appends `,"name":` and the text. */
void tri__conv_member(struct tri_buf *out, const char *name, const json_t *text)
{
    tri_buf_printf(out, ",\"%s\":", name);
    tri__conv_text(out, text);
}

/* The value as JSON text inside a JSON string: how arguments of a call are written. */
static void put_as_string(struct tri_buf *out, const json_t *value)
{
    struct tri_buf text;
    tri_buf_init(&text, TRI_CHAT_MAX_BYTES);
    tri__put_json(&text, value);
    tri_json_quote(out, text.data ? text.data : "", text.len_bytes);
    if (text.failed != TRI_OK)
        out->failed = text.failed;
    tri_buf_fini(&text);
}

void tri__conv_comma(struct tri_buf *out, bool *any)
{
    if (*any)
        tri_buf_putc(out, ',');
    *any = true;
}

/* --- Anthropic ------------------------------------------------------------------------------- */

/* Claude Code's first system block changes with every request and would defeat the prefix cache. */
static bool is_billing(const json_t *text)
{
    static const char mark[] = "x-anthropic-billing-header:";
    return json_is_string(text) && !strncmp(json_string_value(text), mark, sizeof mark - 1);
}

/* A string, or text blocks joined as parts. `where` names it in faults. */
static bool put_text_blocks(struct tri_buf *out, const json_t *content, const char *where,
                            struct tri__fault *fault)
{
    if (json_is_string(content)) {
        tri_json_quote(out, json_string_value(content), json_string_length(content));
        return true;
    }
    if (!json_is_array(content))
        return tri__fault_bad(fault, where, "%s must be a text or a list of blocks", where);
    bool any = false;
    tri_buf_puts(out, "[");
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *b = json_array_get(content, i), *text = json_object_get(b, "text");
        if (strcmp(tri__conv_type(b), "text") != 0 || !json_is_string(text)) {
            char param[96];
            snprintf(param, sizeof param, "%s[%zu]", where, i);
            return tri__fault_bad(fault, param, "only text blocks are supported here");
        }
        if (is_billing(text))
            continue;
        tri__conv_comma(out, &any);
        tri_buf_puts(out, "{\"type\":\"text\"");
        tri__conv_member(out, "text", text);
        tri_buf_puts(out, "}");
    }
    tri_buf_puts(out, "]");
    return true;
}

struct message { /* one of Anthropic's, being turned */
    struct tri_buf *out;
    const json_t *content;
    size_t number;
    bool *any; /* a message was written before */
    struct tri__fault *fault;
};

static bool bad_block(const struct message *m, size_t block, const char *text)
{
    char param[96];
    snprintf(param, sizeof param, "messages[%zu].content[%zu]", m->number, block);
    return tri__fault_bad(m->fault, param, "%s", text);
}

static void put_calls(struct tri_buf *out, const json_t *content)
{
    bool any = false;
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *b = json_array_get(content, i);
        if (strcmp(tri__conv_type(b), "tool_use") != 0)
            continue;
        tri_buf_puts(out, any ? "," : ",\"tool_calls\":[");
        any = true;
        tri_buf_puts(out, "{\"type\":\"function\"");
        tri__conv_member(out, "id", json_object_get(b, "id"));
        tri_buf_puts(out, ",\"function\":{\"name\":");
        tri__conv_text(out, json_object_get(b, "name"));
        tri_buf_puts(out, ",\"arguments\":");
        const json_t *input = json_object_get(b, "input");
        if (input)
            put_as_string(out, input);
        else
            tri_buf_puts(out, "\"\"");
        tri_buf_puts(out, "}}");
    }
    if (any)
        tri_buf_puts(out, "]");
}

/* Joins the texts of all blocks of one type, from their member of that name. */
static void put_joined(struct tri_buf *out, const json_t *content, const char *type,
                       const char *member)
{
    struct tri_buf all;
    tri_buf_init(&all, TRI_CHAT_MAX_BYTES);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *b = json_array_get(content, i), *text = json_object_get(b, member);
        if (!strcmp(tri__conv_type(b), type) && json_is_string(text))
            tri_buf_add(&all, json_string_value(text), json_string_length(text));
    }
    tri_json_quote(out, all.data ? all.data : "", all.len_bytes);
    tri_buf_fini(&all);
}

static bool put_assistant(const struct message *m)
{
    static const char *const fine[] = { "text", "thinking", "redacted_thinking", "tool_use" };
    for (size_t i = 0; i < json_array_size(m->content); i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof fine / sizeof fine[0]; k++)
            known |= !strcmp(tri__conv_type(json_array_get(m->content, i)), fine[k]);
        if (!known)
            return bad_block(m, i, "an assistant's blocks are text, thinking or tool_use");
    }
    tri__conv_comma(m->out, m->any);
    tri_buf_puts(m->out, "{\"role\":\"assistant\",\"reasoning_content\":");
    put_joined(m->out, m->content, "thinking", "thinking");
    tri_buf_puts(m->out, ",\"content\":");
    put_joined(m->out, m->content, "text", "text");
    put_calls(m->out, m->content);
    tri_buf_puts(m->out, "}");
    return true;
}

static bool put_result(const struct message *m, size_t i, const json_t *block)
{
    char where[96];
    const json_t *content = json_object_get(block, "content");
    snprintf(where, sizeof where, "messages[%zu].content[%zu].content", m->number, i);
    tri__conv_comma(m->out, m->any);
    tri_buf_puts(m->out, "{\"role\":\"tool\"");
    tri__conv_member(m->out, "tool_call_id", json_object_get(block, "tool_use_id"));
    tri_buf_puts(m->out, ",\"content\":");
    if (!content || json_is_null(content))
        tri_buf_puts(m->out, "\"\"");
    else if (!put_text_blocks(m->out, content, where, m->fault))
        return false;
    tri_buf_puts(m->out, "}");
    return true;
}

/* Tool results become messages of their own, before the texts. */
static bool put_user(const struct message *m)
{
    bool any_text = false;
    for (size_t i = 0; i < json_array_size(m->content); i++) {
        const json_t *b = json_array_get(m->content, i);
        if (!strcmp(tri__conv_type(b), "tool_result")) {
            if (!put_result(m, i, b))
                return false;
        } else if (!strcmp(tri__conv_type(b), "text")) {
            any_text = true;
        } else {
            return bad_block(m, i, "only text and tool_result blocks are supported");
        }
    }
    if (!any_text)
        return true;
    bool any = false;
    tri__conv_comma(m->out, m->any);
    tri_buf_puts(m->out, "{\"role\":\"user\",\"content\":[");
    for (size_t i = 0; i < json_array_size(m->content); i++) {
        const json_t *b = json_array_get(m->content, i);
        if (strcmp(tri__conv_type(b), "text") != 0)
            continue;
        tri__conv_comma(m->out, &any);
        tri_buf_puts(m->out, "{\"type\":\"text\"");
        tri__conv_member(m->out, "text", json_object_get(b, "text"));
        tri_buf_puts(m->out, "}");
    }
    tri_buf_puts(m->out, "]}");
    return true;
}

static bool put_message(const struct message *m, const char *role)
{
    bool user = role && !strcmp(role, "user"), assistant = role && !strcmp(role, "assistant");
    char param[64];
    if (!user && !assistant) {
        snprintf(param, sizeof param, "messages[%zu].role", m->number);
        return tri__fault_bad(m->fault, param, "role must be user or assistant");
    }
    if (json_is_array(m->content))
        return user ? put_user(m) : put_assistant(m);
    snprintf(param, sizeof param, "messages[%zu].content", m->number);
    if (!json_is_string(m->content))
        return tri__fault_bad(m->fault, param, "content must be a text or a list of blocks");
    tri__conv_comma(m->out, m->any);
    tri_buf_printf(m->out, "{\"role\":\"%s\"", role);
    tri__conv_member(m->out, "content", m->content);
    tri_buf_puts(m->out, "}");
    return true;
}

/* Tools that the maker of the API would run itself: there is nobody here to run them, and a model
 * that is not told of them does not call them. */
static bool is_hosted(const char *type)
{
    static const char *const hosted[] = {
        "web_search",       "web_fetch",        "file_search", "code_execution",
        "code_interpreter", "image_generation", "mcp",         "local_shell"
    };
    for (size_t i = 0; i < sizeof hosted / sizeof hosted[0]; i++)
        if (!strncmp(type, hosted[i], strlen(hosted[i]))) /* names end in dates */
            return true;
    return false;
}

/* A function, or in Anthropic's dialect a custom tool (no type: the same). */
static bool is_callable(const json_t *tool, const char *schema)
{
    const char *type = tri__conv_type(tool);
    return json_is_string(json_object_get(tool, "name")) &&
           (!*type || !strcmp(type, "function") ||
            (!strcmp(type, "custom") && !strcmp(schema, "input_schema")));
}

bool tri__conv_tools(struct tri_buf *out, const json_t *tools, const char *schema,
                     struct tri__fault *fault)
{
    if (!tools || json_is_null(tools))
        return true;
    if (!json_is_array(tools) || json_array_size(tools) > TRI_CHAT_MAX_TOOLS)
        return tri__fault_bad(fault, "tools", "tools must be a list of at most %d",
                              TRI_CHAT_MAX_TOOLS);
    bool any = false;
    tri_buf_puts(out, ",\"tools\":[");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *t = json_array_get(tools, i), *name = json_object_get(t, "name");
        const json_t *text = json_object_get(t, "description"), *in = json_object_get(t, schema);
        if (is_hosted(tri__conv_type(t)))
            continue;
        if (!is_callable(t, schema)) {
            char param[32];
            snprintf(param, sizeof param, "tools[%zu]", i);
            return tri__fault_bad(fault, param,
                                  "only tools with a name and a schema are supported");
        }
        tri__conv_comma(out, &any);
        tri_buf_puts(out, "{\"type\":\"function\",\"function\":{\"name\":");
        tri__put_json(out, name);
        if (json_is_string(text))
            tri__conv_member(out, "description", text);
        tri_buf_puts(out, ",\"parameters\":");
        if (json_is_object(in))
            tri__put_json(out, in);
        else
            tri_buf_puts(out, "{}");
        tri_buf_puts(out, "}}");
    }
    tri_buf_puts(out, "]");
    return true;
}

void tri__conv_format(struct tri_buf *out, const json_t *format)
{
    const json_t *schema = json_object_get(format, "schema");
    const char *type = tri__conv_type(format);
    if (!strcmp(type, "json_object"))
        tri_buf_puts(out, ",\"response_format\":{\"type\":\"json_object\"}");
    if (strcmp(type, "json_schema") != 0 || !json_is_object(schema))
        return;
    tri_buf_puts(out,
                 ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":");
    tri__put_json(out, schema);
    tri_buf_puts(out, "}}");
}

bool tri__conv_closed(struct tri_buf *out, struct tri__fault *fault)
{
    return tri_buf_puts(out, "}") == TRI_OK ||
           tri__fault_is(fault, 413, "request_too_large", "the request is too large");
}

bool tri__messages_to_chat(struct tri_buf *out, const json_t *body, struct tri__fault *fault)
{
    const json_t *system = json_object_get(body, "system");
    const json_t *messages = json_object_get(body, "messages");
    const json_t *format = json_object_get(json_object_get(body, "output_config"), "format");
    bool any = false;
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return tri__fault_bad(fault, "messages", "messages must be a list that is not empty");
    tri_buf_puts(out, "{\"messages\":[");
    if (system && !json_is_null(system)) {
        tri__conv_comma(out, &any);
        tri_buf_puts(out, "{\"role\":\"system\",\"content\":");
        if (!put_text_blocks(out, system, "system", fault))
            return false;
        tri_buf_puts(out, "}");
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        const struct message message = { out, json_object_get(m, "content"), i, &any, fault };
        if (!put_message(&message, json_string_value(json_object_get(m, "role"))))
            return false;
    }
    tri_buf_puts(out, "]");
    tri__conv_format(out, format ? format : json_object_get(body, "output_format"));
    return tri__conv_tools(out, json_object_get(body, "tools"), "input_schema", fault) &&
           tri__conv_closed(out, fault);
}
