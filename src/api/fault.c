/* Refusals: one record, two ways to write it (OpenAI's and Anthropic's), and small JSON writers. */
#include "api/api_priv.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include "base/json.h"

TRI_PRINTF(2, 0)
static void fill(struct tri__fault *f, const char *format, va_list args)
{
    char raw[TRI__API_MESSAGE_BYTES];
    vsnprintf(raw, sizeof raw, format, args);
    size_t bytes = tri_utf8_valid(raw, strlen(raw)); /* cut or foreign text may end in half a one */
    tri_printable(f->message, sizeof f->message, raw, bytes);
}

bool tri__fault_bad(struct tri__fault *fault, const char *param, const char *format, ...)
{
    if (fault->status)
        return false;
    va_list args;
    va_start(args, format);
    fill(fault, format, args);
    va_end(args);
    fault->status = 400;
    fault->type = "invalid_request_error";
    if (param)
        tri_printable(fault->param, sizeof fault->param, param, strlen(param));
    return false;
}

bool tri__fault_is(struct tri__fault *fault, int status, const char *code, const char *format, ...)
{
    static const struct {
        int status;
        const char *type;
    } types[] = { { 400, "invalid_request_error" }, { 401, "authentication_error" },
                  { 403, "permission_error" },      { 404, "not_found_error" },
                  { 405, "invalid_request_error" }, { 413, "request_too_large" },
                  { 415, "invalid_request_error" }, { 429, "rate_limit_error" },
                  { 503, "overloaded_error" } };
    if (fault->status)
        return false;
    va_list args;
    va_start(args, format);
    fill(fault, format, args);
    va_end(args);
    fault->status = status;
    fault->code = code;
    fault->type = "api_error";
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].status == status)
            fault->type = types[i].type;
    return false;
}

/* "request: messages[3].content: ..." has the parameter in front. */
bool tri__fault_from(struct tri__fault *fault, const struct tri_error *err)
{
    const char *text = err->text[0] ? err->text : tri_status_text(err->status);
    char param[96] = "";
    if (!strncmp(text, "request: ", 9))
        text += 9;
    size_t n = strcspn(text, " :,");
    if (n < sizeof param && (!strncmp(text, "messages", 8) || !strncmp(text, "tools", 5) ||
                             !strncmp(text, "response_format", 15)))
        snprintf(param, sizeof param, "%.*s", (int)n, text);
    switch (err->status) {
    case TRI_BUSY:
        return tri__fault_is(fault, 429, "queue_full", "%s", text);
    case TRI_CANCELLED:
        return tri__fault_is(fault, 503, "closing", "%s", text);
    case TRI_NOMEM:
    case TRI_BUDGET:
        return tri__fault_is(fault, 503, "no_memory", "no memory for this request now");
    case TRI_FORMAT:
    case TRI_ARG:
    case TRI_LIMIT:
    case TRI_UNSUPPORTED:
        return tri__fault_bad(fault, param[0] ? param : NULL, "%s", text);
    default:
        return tri__fault_is(fault, 500, "internal", "the server failed");
    }
}

void tri__request_id(char out[40], const struct tri_http_request *request)
{
    snprintf(out, 40, "req_%016llx", (unsigned long long)(request ? tri_http_serial(request) : 0));
}

/* Anthropic's errors have no `param`: a message that does not say it gets it in front. */
static void put_named(struct tri_buf *out, const struct tri__fault *fault)
{
    char text[sizeof fault->param + sizeof fault->message + 2];
    bool said = !fault->param[0] || strstr(fault->message, fault->param);
    snprintf(text, sizeof text, "%s%s%s", said ? "" : fault->param, said ? "" : ": ",
             fault->message);
    tri__put_quoted(out, text);
}

void tri__fault_json(struct tri_buf *out, const struct tri__fault *fault, bool anthropic,
                     const struct tri_http_request *request)
{
    char id[40];
    if (anthropic) {
        tri_buf_puts(out, "{\"type\":\"error\",\"error\":{\"type\":");
        tri__put_quoted(out, fault->type);
        tri_buf_puts(out, ",\"message\":");
        put_named(out, fault);
        tri__request_id(id, request);
        tri_buf_printf(out, "},\"request_id\":\"%s\"}", id);
        return;
    }
    tri_buf_puts(out, "{\"error\":{\"message\":");
    tri__put_quoted(out, fault->message);
    tri_buf_puts(out, ",\"type\":");
    tri__put_quoted(out, fault->type);
    tri_buf_puts(out, ",\"param\":");
    if (fault->param[0])
        tri__put_quoted(out, fault->param);
    else
        tri_buf_puts(out, "null");
    tri_buf_puts(out, ",\"code\":");
    if (fault->code)
        tri__put_quoted(out, fault->code);
    else
        tri_buf_puts(out, "null");
    if (fault->n_ctx)
        tri_buf_printf(out, ",\"n_prompt_tokens\":%lld,\"n_ctx\":%lld",
                       (long long)fault->n_prompt_tokens, (long long)fault->n_ctx);
    tri_buf_puts(out, "}}");
}

void tri__fault_reply(struct tri_http_request *request, const struct tri__fault *fault,
                      bool anthropic)
{
    struct tri_buf out;
    tri_buf_init(&out, 4096);
    tri__fault_json(&out, fault, anthropic, request);
    tri_buf_putc(&out, '\n');
    if (fault->status == 429 || fault->status == 503)
        tri_http_add_field(request, "Retry-After", "2");
    if (fault->status == 401)
        tri_http_add_field(request, "WWW-Authenticate", "Bearer");
    tri_http_reply(request, fault->status, "application/json", out.data, out.len_bytes);
    tri_buf_fini(&out);
}

void tri__put_quoted(struct tri_buf *out, const char *text)
{
    tri_json_quote(out, text, strlen(text));
}

void tri__put_json(struct tri_buf *out, const json_t *value)
{
    const char *key = NULL;
    json_t *item = NULL;
    size_t i = 0;
    switch (json_typeof(value)) {
    case JSON_OBJECT: {
        const char *comma = "{";
        json_object_foreach((json_t *)(uintptr_t)value, key, item)
        {
            tri_buf_puts(out, comma);
            tri__put_quoted(out, key);
            tri_buf_putc(out, ':');
            tri__put_json(out, item);
            comma = ",";
        }
        tri_buf_puts(out, *comma == '{' ? "{}" : "}");
        return;
    }
    case JSON_ARRAY:
        tri_buf_putc(out, '[');
        json_array_foreach(value, i, item)
        {
            if (i)
                tri_buf_putc(out, ',');
            tri__put_json(out, item);
        }
        tri_buf_putc(out, ']');
        return;
    case JSON_STRING:
        tri_json_quote(out, json_string_value(value), json_string_length(value));
        return;
    case JSON_INTEGER:
        tri_buf_printf(out, "%lld", (long long)json_integer_value(value));
        return;
    case JSON_REAL:
        tri_json_put_real(out, json_real_value(value));
        return;
    default:
        tri_buf_puts(out, json_is_true(value) ? "true" : json_is_false(value) ? "false" : "null");
    }
}

void tri__random_hex(char *out, size_t digits)
{
    unsigned char bytes[32];
    TRI_ASSERT(digits <= 2 * sizeof bytes);
    ssize_t got = getrandom(bytes, sizeof bytes, 0);
    TRI_ASSERT(got == (ssize_t)sizeof bytes); /* never short up to 256 bytes */
    for (size_t i = 0; i < digits; i++)
        out[i] = "0123456789abcdef"[i % 2 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4];
    out[digits] = 0;
}
