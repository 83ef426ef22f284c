/*
 * Requests of other dialects as the chat request that the renderer reads: Anthropic's messages and
 * OpenAI's responses. Only structure is turned; texts and tool inputs pass as they are.
 */
#include "api/api_priv.h"

#include <stdio.h>
#include <string.h>

static const char *type_of(const json_t *block)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    return type ? type : "";
}

/* A string's text, quoted; anything else as an empty one. */
static void put_text(struct tri_buf *out, const json_t *text)
{
    tri_json_quote(out, json_is_string(text) ? json_string_value(text) : "",
                   json_is_string(text) ? json_string_length(text) : 0);
}

/* Appends `,"name":` and the text. */
static void put_member(struct tri_buf *out, const char *name, const json_t *text)
{
    tri_buf_printf(out, ",\"%s\":", name);
    put_text(out, text);
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

static void put_comma(struct tri_buf *out, bool *any)
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
        if (strcmp(type_of(b), "text") != 0 || !json_is_string(text)) {
            char param[96];
            snprintf(param, sizeof param, "%s[%zu]", where, i);
            return tri__fault_bad(fault, param, "only text blocks are supported here");
        }
        if (is_billing(text))
            continue;
        put_comma(out, &any);
        tri_buf_puts(out, "{\"type\":\"text\"");
        put_member(out, "text", text);
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
        if (strcmp(type_of(b), "tool_use") != 0)
            continue;
        tri_buf_puts(out, any ? "," : ",\"tool_calls\":[");
        any = true;
        tri_buf_puts(out, "{\"type\":\"function\"");
        put_member(out, "id", json_object_get(b, "id"));
        tri_buf_puts(out, ",\"function\":{\"name\":");
        put_text(out, json_object_get(b, "name"));
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
        if (!strcmp(type_of(b), type) && json_is_string(text))
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
            known |= !strcmp(type_of(json_array_get(m->content, i)), fine[k]);
        if (!known)
            return bad_block(m, i, "an assistant's blocks are text, thinking or tool_use");
    }
    put_comma(m->out, m->any);
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
    put_comma(m->out, m->any);
    tri_buf_puts(m->out, "{\"role\":\"tool\"");
    put_member(m->out, "tool_call_id", json_object_get(block, "tool_use_id"));
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
        if (!strcmp(type_of(b), "tool_result")) {
            if (!put_result(m, i, b))
                return false;
        } else if (!strcmp(type_of(b), "text")) {
            any_text = true;
        } else {
            return bad_block(m, i, "only text and tool_result blocks are supported");
        }
    }
    if (!any_text)
        return true;
    bool any = false;
    put_comma(m->out, m->any);
    tri_buf_puts(m->out, "{\"role\":\"user\",\"content\":[");
    for (size_t i = 0; i < json_array_size(m->content); i++) {
        const json_t *b = json_array_get(m->content, i);
        if (strcmp(type_of(b), "text") != 0)
            continue;
        put_comma(m->out, &any);
        tri_buf_puts(m->out, "{\"type\":\"text\"");
        put_member(m->out, "text", json_object_get(b, "text"));
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
    put_comma(m->out, m->any);
    tri_buf_printf(m->out, "{\"role\":\"%s\"", role);
    put_member(m->out, "content", m->content);
    tri_buf_puts(m->out, "}");
    return true;
}

/* {name, description, <schema>} as {"type":"function","function":{..., "parameters"}}. */
static bool put_tools(struct tri_buf *out, const json_t *tools, const char *schema,
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
        const char *type = type_of(t);
        if (!json_is_string(name) ||
            (*type && strcmp(type, "function") && strcmp(type, "custom"))) {
            char param[32];
            snprintf(param, sizeof param, "tools[%zu]", i);
            return tri__fault_bad(fault, param,
                                  "only tools with a name and a schema are supported");
        }
        put_comma(out, &any);
        tri_buf_puts(out, "{\"type\":\"function\",\"function\":{\"name\":");
        tri__put_json(out, name);
        if (json_is_string(text))
            put_member(out, "description", text);
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

static bool closed(struct tri_buf *out, struct tri__fault *fault)
{
    return tri_buf_puts(out, "}") == TRI_OK ||
           tri__fault_is(fault, 413, "request_too_large", "the request is too large");
}

bool tri__messages_to_chat(struct tri_buf *out, const json_t *body, struct tri__fault *fault)
{
    const json_t *system = json_object_get(body, "system");
    const json_t *messages = json_object_get(body, "messages");
    bool any = false;
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return tri__fault_bad(fault, "messages", "messages must be a list that is not empty");
    tri_buf_puts(out, "{\"messages\":[");
    if (system && !json_is_null(system)) {
        put_comma(out, &any);
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
    return put_tools(out, json_object_get(body, "tools"), "input_schema", fault) &&
           closed(out, fault);
}

/* --- responses ------------------------------------------------------------------------------- */

static bool bad_item(size_t number, const char *text, struct tri__fault *fault)
{
    char param[32];
    snprintf(param, sizeof param, "input[%zu]", number);
    return tri__fault_bad(fault, param, "%s", text);
}

/* A text, or parts of input_text, output_text or text. */
static bool put_parts(struct tri_buf *out, const json_t *content, size_t number,
                      struct tri__fault *fault)
{
    if (json_is_string(content)) {
        tri__put_json(out, content);
        return true;
    }
    if (!json_is_array(content))
        return bad_item(number, "content must be a text or a list of parts", fault);
    struct tri_buf all;
    bool ok = true;
    tri_buf_init(&all, TRI_CHAT_MAX_BYTES);
    for (size_t i = 0; i < json_array_size(content) && ok; i++) {
        const json_t *part = json_array_get(content, i), *text = json_object_get(part, "text");
        const char *type = type_of(part);
        ok = json_is_string(text) && (!strcmp(type, "input_text") || !strcmp(type, "output_text") ||
                                      !strcmp(type, "text") || !strcmp(type, "reasoning_text"));
        if (ok)
            tri_buf_add(&all, json_string_value(text), json_string_length(text));
        else
            bad_item(number, "only text parts are supported", fault);
    }
    tri_json_quote(out, all.data ? all.data : "", all.len_bytes);
    tri_buf_fini(&all);
    return ok;
}

/* reasoning, message and function_call items in a row are one assistant message. */
struct turn {
    struct tri_buf reasoning, content, calls;
    bool open;
};

static void turn_init(struct turn *t)
{
    t->open = false;
    tri_buf_init(&t->reasoning, TRI_CHAT_MAX_BYTES);
    tri_buf_init(&t->content, TRI_CHAT_MAX_BYTES);
    tri_buf_init(&t->calls, TRI_CHAT_MAX_BYTES);
}

static void turn_fini(struct turn *t)
{
    tri_buf_fini(&t->reasoning);
    tri_buf_fini(&t->content);
    tri_buf_fini(&t->calls);
}

static void turn_close(struct turn *t, struct tri_buf *out, bool *any)
{
    if (!t->open)
        return;
    put_comma(out, any);
    tri_buf_puts(out, "{\"role\":\"assistant\",\"reasoning_content\":");
    tri_buf_puts(out, t->reasoning.len_bytes ? t->reasoning.data : "\"\"");
    tri_buf_puts(out, ",\"content\":");
    tri_buf_puts(out, t->content.len_bytes ? t->content.data : "\"\"");
    if (t->calls.len_bytes) {
        tri_buf_puts(out, ",\"tool_calls\":[");
        tri_buf_add(out, t->calls.data, t->calls.len_bytes);
        tri_buf_puts(out, "]");
    }
    tri_buf_puts(out, "}");
    turn_fini(t);
    turn_init(t);
}

static bool take_call(struct turn *t, const json_t *item, size_t number, struct tri__fault *fault)
{
    const json_t *arguments = json_object_get(item, "arguments");
    if (!json_is_string(json_object_get(item, "name")) || !json_is_string(arguments))
        return bad_item(number, "a function_call has a name and arguments", fault);
    if (t->calls.len_bytes)
        tri_buf_putc(&t->calls, ',');
    tri_buf_puts(&t->calls, "{\"type\":\"function\"");
    put_member(&t->calls, "id", json_object_get(item, "call_id"));
    tri_buf_puts(&t->calls, ",\"function\":{\"name\":");
    put_text(&t->calls, json_object_get(item, "name"));
    put_member(&t->calls, "arguments", arguments);
    tri_buf_puts(&t->calls, "}}");
    t->open = true;
    return true;
}

static bool take_message(struct turn *t, const json_t *item, size_t number, struct tri_buf *out,
                         bool *any, struct tri__fault *fault)
{
    const char *role = json_string_value(json_object_get(item, "role"));
    const json_t *content = json_object_get(item, "content");
    if (role && !strcmp(role, "assistant")) {
        if (t->content.len_bytes)
            turn_close(t, out, any);
        t->open = true;
        return put_parts(&t->content, content, number, fault);
    }
    bool system = role && (!strcmp(role, "system") || !strcmp(role, "developer"));
    if (!system && (!role || strcmp(role, "user") != 0))
        return bad_item(number, "role must be user, assistant, system or developer", fault);
    turn_close(t, out, any);
    put_comma(out, any);
    tri_buf_printf(out, "{\"role\":\"%s\",\"content\":", system ? "system" : "user");
    if (!put_parts(out, content, number, fault))
        return false;
    tri_buf_puts(out, "}");
    return true;
}

static bool take_output(struct turn *t, const json_t *item, size_t number, struct tri_buf *out,
                        bool *any, struct tri__fault *fault)
{
    turn_close(t, out, any);
    put_comma(out, any);
    tri_buf_puts(out, "{\"role\":\"tool\"");
    put_member(out, "tool_call_id", json_object_get(item, "call_id"));
    tri_buf_puts(out, ",\"content\":");
    if (!put_parts(out, json_object_get(item, "output"), number, fault))
        return false;
    tri_buf_puts(out, "}");
    return true;
}

static bool take_item(struct turn *t, const json_t *item, size_t number, struct tri_buf *out,
                      bool *any, struct tri__fault *fault)
{
    const char *type = type_of(item);
    if (!strcmp(type, "function_call"))
        return take_call(t, item, number, fault);
    if (!strcmp(type, "function_call_output"))
        return take_output(t, item, number, out, any, fault);
    if (!strcmp(type, "reasoning")) {
        const json_t *content = json_object_get(item, "content");
        turn_close(t, out, any);
        t->open = true;
        return !json_is_array(content) || put_parts(&t->reasoning, content, number, fault);
    }
    if (!*type || !strcmp(type, "message"))
        return take_message(t, item, number, out, any, fault);
    return bad_item(number, "this kind of item is not supported", fault);
}

static bool put_input(struct tri_buf *out, const json_t *input, bool any, struct tri__fault *fault)
{
    struct turn t;
    bool ok = true;
    if (json_is_string(input)) {
        put_comma(out, &any);
        tri_buf_puts(out, "{\"role\":\"user\"");
        put_member(out, "content", input);
        tri_buf_puts(out, "}");
        return true;
    }
    if (!json_is_array(input))
        return tri__fault_bad(fault, "input", "input must be a text or a list of items");
    turn_init(&t);
    for (size_t i = 0; i < json_array_size(input) && ok; i++)
        ok = take_item(&t, json_array_get(input, i), i, out, &any, fault);
    turn_close(&t, out, &any);
    turn_fini(&t);
    return ok;
}

bool tri__responses_to_chat(struct tri_buf *out, const json_t *body, struct tri__fault *fault)
{
    const json_t *instructions = json_object_get(body, "instructions");
    const json_t *previous = json_object_get(body, "previous_response_id");
    const json_t *format = json_object_get(json_object_get(body, "text"), "format");
    bool any = false;
    if (previous && !json_is_null(previous))
        return tri__fault_bad(fault, "previous_response_id",
                              "responses are not stored here: send the whole input");
    if (format && strcmp(type_of(format), "text") != 0)
        return tri__fault_bad(fault, "text.format", "only text can be promised by this server yet");
    tri_buf_puts(out, "{\"messages\":[");
    if (json_is_string(instructions)) {
        put_comma(out, &any);
        tri_buf_puts(out, "{\"role\":\"system\"");
        put_member(out, "content", instructions);
        tri_buf_puts(out, "}");
    }
    if (!put_input(out, json_object_get(body, "input"), any, fault))
        return false;
    tri_buf_puts(out, "]");
    return put_tools(out, json_object_get(body, "tools"), "parameters", fault) &&
           closed(out, fault);
}
