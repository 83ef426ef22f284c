/*
 * OpenAI's responses as the chat request that the renderer reads. Items in a row that one reply was
 * cut into (reasoning, message, calls) become one assistant message again.
 */
#include "api/convert_priv.h"

#include <stdio.h>
#include <string.h>

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
        const char *type = tri__conv_type(part);
        ok = json_is_string(text) && (!strcmp(type, "input_text") || !strcmp(type, "output_text") ||
                                      !strcmp(type, "text") || !strcmp(type, "reasoning_text"));
        char param[64];
        if (ok) {
            tri_buf_add(&all, json_string_value(text), json_string_length(text));
        } else {
            snprintf(param, sizeof param, "input[%zu].content[%zu]", number, i);
            tri__fault_bad(fault, param, "only text parts are supported");
        }
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
    tri__conv_comma(out, any);
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

/* Its content, or, from clients that send back only that, what we put into encrypted_content. */
static bool take_reasoning(struct turn *t, const json_t *item, size_t number,
                           struct tri__fault *fault)
{
    const json_t *content = json_object_get(item, "content");
    const char *sealed = json_string_value(json_object_get(item, "encrypted_content"));
    size_t mark = strlen(TRI__API_SEALED);
    t->open = true;
    if (json_array_size(content) > 0)
        return put_parts(&t->reasoning, content, number, fault);
    if (sealed && !strncmp(sealed, TRI__API_SEALED, mark))
        tri_json_quote(&t->reasoning, sealed + mark, strlen(sealed + mark));
    return true;
}

static bool is_hosted_call(const char *type)
{
    static const char *const hosted[] = { "web_search_call",       "file_search_call",
                                          "code_interpreter_call", "image_generation_call",
                                          "local_shell_call",      "local_shell_call_output" };
    for (size_t i = 0; i < sizeof hosted / sizeof hosted[0]; i++)
        if (!strcmp(type, hosted[i]))
            return true;
    return false;
}

/* A custom call's free text becomes the one argument `input`. */
static void put_arguments(struct tri_buf *out, const json_t *arguments, const json_t *input)
{
    struct tri_buf text;
    if (json_is_string(arguments)) {
        tri__conv_member(out, "arguments", arguments);
        return;
    }
    tri_buf_init(&text, TRI_CHAT_MAX_BYTES);
    tri_buf_puts(&text, "{\"input\":");
    tri__conv_text(&text, input);
    tri_buf_puts(&text, "}");
    tri_buf_puts(out, ",\"arguments\":");
    tri_json_quote(out, text.data ? text.data : "", text.len_bytes);
    tri_buf_fini(&text);
}

static bool take_call(struct turn *t, const json_t *item, size_t number, struct tri__fault *fault)
{
    const json_t *arguments = json_object_get(item, "arguments");
    const json_t *input = json_object_get(item, "input");
    if (!json_is_string(json_object_get(item, "name")) ||
        (!json_is_string(arguments) && !json_is_string(input)))
        return bad_item(number, "a call has a name and arguments (or input)", fault);
    if (t->calls.len_bytes)
        tri_buf_putc(&t->calls, ',');
    tri_buf_puts(&t->calls, "{\"type\":\"function\"");
    tri__conv_member(&t->calls, "id", json_object_get(item, "call_id"));
    tri_buf_puts(&t->calls, ",\"function\":{\"name\":");
    tri__conv_text(&t->calls, json_object_get(item, "name"));
    put_arguments(&t->calls, arguments, input);
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
    tri__conv_comma(out, any);
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
    tri__conv_comma(out, any);
    tri_buf_puts(out, "{\"role\":\"tool\"");
    tri__conv_member(out, "tool_call_id", json_object_get(item, "call_id"));
    tri_buf_puts(out, ",\"content\":");
    if (!put_parts(out, json_object_get(item, "output"), number, fault))
        return false;
    tri_buf_puts(out, "}");
    return true;
}

static bool take_item(struct turn *t, const json_t *item, size_t number, struct tri_buf *out,
                      bool *any, struct tri__fault *fault)
{
    const char *type = tri__conv_type(item);
    if (!strcmp(type, "function_call") || !strcmp(type, "custom_tool_call"))
        return take_call(t, item, number, fault);
    if (!strcmp(type, "function_call_output") || !strcmp(type, "custom_tool_call_output"))
        return take_output(t, item, number, out, any, fault);
    if (!strcmp(type, "reasoning")) {
        turn_close(t, out, any);
        return take_reasoning(t, item, number, fault);
    }
    if (is_hosted_call(type))
        return true; /* nothing of it was ever shown to the model */
    if (!*type || !strcmp(type, "message"))
        return take_message(t, item, number, out, any, fault);
    return bad_item(number, "this kind of item is not supported", fault);
}

static bool put_input(struct tri_buf *out, const json_t *input, bool any, struct tri__fault *fault)
{
    struct turn t;
    bool ok = true;
    if (json_is_string(input)) {
        tri__conv_comma(out, &any);
        tri_buf_puts(out, "{\"role\":\"user\"");
        tri__conv_member(out, "content", input);
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
    tri_buf_puts(out, "{\"messages\":[");
    if (json_is_string(instructions)) {
        tri__conv_comma(out, &any);
        tri_buf_puts(out, "{\"role\":\"system\"");
        tri__conv_member(out, "content", instructions);
        tri_buf_puts(out, "}");
    }
    if (!put_input(out, json_object_get(body, "input"), any, fault))
        return false;
    tri_buf_puts(out, "]");
    tri__conv_format(out, format);
    return tri__conv_tools(out, json_object_get(body, "tools"), "parameters", fault) &&
           tri__conv_closed(out, fault);
}
