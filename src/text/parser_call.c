/*
 * Tool calls of a reply: argument elements become one JSON object, sent as it grows. Strings go out
 * as they come; other values are short, wait for their end and are checked: what is not JSON is
 * passed on as a string. A json element is the whole arguments in one raw text.
 */
#include "text/parser_priv.h"

#include <stdlib.h>
#include <string.h>
#include "base/mem.h"

/* Adds to the call's arguments and sends it. */
static void put(struct tri_parser *p, const char *text, size_t bytes)
{
    if (!bytes)
        return;
    if (tri_buf_add(&p->call.arguments, text, bytes))
        tri__parser_fail(p, p->call.arguments.failed);
    else
        tri__parser_emit(p, TRI_EVENT_CALL_ARGUMENTS, text, bytes);
}

/* Sends what was put together in `scratch`. */
static void put_scratch(struct tri_parser *p)
{
    if (p->scratch.failed)
        tri__parser_fail(p, p->scratch.failed);
    else if (p->scratch.len_bytes)
        put(p, p->scratch.data, p->scratch.len_bytes);
    tri_buf_clear(&p->scratch);
}

/* ---- calls ---- */

static bool is_declared(const struct tri_parser *p)
{
    const struct tri_buf *name = &p->call.name;
    for (size_t i = 0; i < p->options.name_count; i++)
        if (strlen(p->names[i]) == name->len_bytes &&
            !memcmp(p->names[i], name->data, name->len_bytes))
            return true;
    return !p->names;
}

void tri__call_begin(struct tri_parser *p, const struct tri_buf *tag, bool live)
{
    struct tri__call_state *call = &p->call;
    call->live = false;
    call->raw = false;
    call->count = 0;
    tri_buf_clear(&call->name);
    tri_buf_clear(&call->arguments);
    if (!live)
        return;
    if (!tri__tag_attr(tag, "tool", &call->name) || !call->name.len_bytes) {
        tri__parser_count(p, TRI_DEVIATION_BAD_ATTRIBUTE);
        return;
    }
    if (p->call_count == TRI_TURN_MAX_CALLS) {
        tri__parser_count(p, TRI_DEVIATION_TOO_MANY_CALLS);
        return;
    }
    if (!is_declared(p)) {
        tri__parser_count(p, TRI_DEVIATION_UNKNOWN_TOOL);
        if (p->options.strict_names)
            return;
    }
    call->live = true;
    tri__parser_emit(p, TRI_EVENT_CALL_BEGIN, call->name.data, call->name.len_bytes);
}

/* Order by key, as its text in quotes (equal keys have equal text), then by place. */
static int by_key(const void *a, const void *b, void *text)
{
    const struct tri__argument *x = a, *y = b;
    const char *data = text;
    if (x->key_bytes != y->key_bytes)
        return x->key_bytes < y->key_bytes ? -1 : 1;
    int order = memcmp(data + x->key_at, data + y->key_at, x->key_bytes);
    return order ? order : x->key_at < y->key_at ? -1 : 1;
}

static int by_place(const void *a, const void *b)
{
    const struct tri__argument *x = a, *y = b;
    return x->key_at < y->key_at ? -1 : 1;
}

/* Leaves each key once in the list, at its first place with its last value. */
static size_t drop_duplicates(struct tri_parser *p)
{
    struct tri__call_state *call = &p->call;
    const char *data = call->arguments.data;
    size_t kept = 1;
    TRI_ASSERT(call->list && call->count);
    qsort_r(call->list, call->count, sizeof *call->list, by_key, call->arguments.data);
    for (size_t i = 1; i < call->count; i++) {
        struct tri__argument *last = &call->list[kept - 1], *now = &call->list[i];
        if (last->key_bytes == now->key_bytes &&
            !memcmp(data + last->key_at, data + now->key_at, now->key_bytes)) {
            last->value_at = now->value_at;
            last->value_bytes = now->value_bytes;
            tri__parser_count(p, TRI_DEVIATION_DUPLICATE_KEY);
        } else {
            call->list[kept++] = *now;
        }
    }
    size_t dropped = call->count - kept;
    call->count = kept;
    return dropped;
}

/*
 * The stream has sent every argument, and readers of JSON let the last of equal keys win. The whole
 * arguments are written anew so that nobody has to know that.
 */
static void clean_arguments(struct tri_parser *p)
{
    struct tri__call_state *call = &p->call;
    const char *data = call->arguments.data;
    if (call->count < 2 || !drop_duplicates(p))
        return;
    qsort(call->list, call->count, sizeof *call->list, by_place);
    for (size_t i = 0; i < call->count; i++) {
        const struct tri__argument *arg = &call->list[i];
        tri_buf_putc(&p->scratch, i ? ',' : '{');
        tri_buf_add(&p->scratch, data + arg->key_at, arg->key_bytes);
        tri_buf_putc(&p->scratch, ':');
        tri_buf_add(&p->scratch, data + arg->value_at, arg->value_bytes);
    }
    tri_buf_putc(&p->scratch, '}');
    struct tri_buf swap = call->arguments;
    call->arguments = p->scratch;
    p->scratch = swap;
    tri_buf_clear(&p->scratch);
    if (call->arguments.failed)
        tri__parser_fail(p, call->arguments.failed);
}

/* A copy among the strings of complete calls. */
static const char *keep(struct tri_parser *p, const struct tri_buf *text)
{
    char *copy = tri__arena_alloc(&p->arena, text->len_bytes + 1);
    if (!copy) {
        tri__parser_fail(p, p->arena.failed);
        return "";
    }
    memcpy(copy, text->data, text->len_bytes);
    copy[text->len_bytes] = 0;
    return copy;
}

void tri__call_end(struct tri_parser *p)
{
    struct tri__call_state *call = &p->call;
    if (!call->live)
        return;
    if (!call->arguments.len_bytes)
        put(p, "{}", 2);
    else if (!call->raw)
        put(p, "}", 1);
    if (p->failed)
        return;
    clean_arguments(p);
    if (p->call_count == p->call_cap) {
        size_t cap = p->call_cap ? p->call_cap * 2 : 8;
        struct tri_call *more = tri_realloc(p->calls, cap * sizeof *more);
        if (!more) {
            tri__parser_fail(p, TRI_NOMEM);
            return;
        }
        p->calls = more;
        p->call_cap = cap;
    }
    p->calls[p->call_count] = (struct tri_call){ keep(p, &call->name), keep(p, &call->arguments),
                                                 call->name.len_bytes, call->arguments.len_bytes };
    tri__parser_emit(p, TRI_EVENT_CALL_END, "", 0);
    p->call_count++;
    call->live = false;
}

void tri__call_fini(struct tri_parser *p)
{
    tri_buf_fini(&p->call.name);
    tri_buf_fini(&p->call.arguments);
    tri_free(p->call.list);
    tri_free(p->calls);
}

/* ---- values ---- */

/* The element's `type` attribute decides; none or "string" is a string. */
static enum tri__value kind_of_value(struct tri_parser *p, const struct tri_buf *tag)
{
    tri_buf_clear(&p->type);
    if (!tri__tag_attr(tag, "type", &p->type))
        tri__parser_count(p, TRI_DEVIATION_BAD_ATTRIBUTE);
    return !p->type.len_bytes || !strcmp(p->type.data, "string") ? TRI__VALUE_STRING
                                                                 : TRI__VALUE_HELD;
}

/* Files an argument whose `"key"` stands in scratch, and sends what comes before its value. */
static void begin_argument(struct tri_parser *p)
{
    struct tri__call_state *call = &p->call;
    if (call->count == call->cap) {
        size_t cap = call->cap ? call->cap * 2 : 8;
        struct tri__argument *more = tri_realloc(call->list, cap * sizeof *more);
        if (!more) {
            tri__parser_fail(p, TRI_NOMEM);
            return;
        }
        call->list = more;
        call->cap = cap;
    }
    put(p, call->count ? "," : "{", 1);
    size_t key_at = call->arguments.len_bytes, key_bytes = p->scratch.len_bytes;
    tri_buf_puts(&p->scratch, p->value == TRI__VALUE_STRING ? ":\"" : ":");
    put_scratch(p);
    call->list[call->count++] = (struct tri__argument){ .key_at = key_at,
                                                        .key_bytes = key_bytes,
                                                        .value_at = key_at + key_bytes + 1 };
}

void tri__value_begin(struct tri_parser *p, const struct tri_buf *tag)
{
    struct tri__call_state *call = &p->call;
    p->value = TRI__VALUE_DROPPED;
    tri_buf_clear(&p->held);
    if (!call->live)
        return;
    if (call->raw || (tri__tag_is(tag, "json") && call->count)) {
        tri__parser_count(p, TRI_DEVIATION_STRAY_TEXT); /* arguments beside a json element */
        return;
    }
    if (tri__tag_is(tag, "json")) {
        p->value = TRI__VALUE_RAW;
        call->raw = true;
        return;
    }
    tri_buf_clear(&p->scratch);
    if (!tri__tag_attr(tag, "key", &p->scratch)) {
        tri__parser_count(p, TRI_DEVIATION_BAD_ATTRIBUTE);
        return;
    }
    tri_buf_clear(&p->key);
    tri_json_quote(&p->key, p->scratch.data ? p->scratch.data : "", p->scratch.len_bytes);
    tri_buf_clear(&p->scratch);
    tri_buf_add(&p->scratch, p->key.data, p->key.len_bytes);
    p->value = kind_of_value(p, tag);
    begin_argument(p);
}

void tri__value_text(struct tri_parser *p, const char *text, size_t bytes)
{
    switch (p->value) {
    case TRI__VALUE_DROPPED:
        return;
    case TRI__VALUE_STRING:
        tri__json_escape(&p->scratch, text, bytes);
        put_scratch(p);
        return;
    case TRI__VALUE_RAW:
        put(p, text, bytes);
        return;
    case TRI__VALUE_HELD:
        if (tri_buf_add(&p->held, text, bytes))
            tri__parser_fail(p, p->held.failed);
        return;
    }
}

/* Is the text one JSON value of this type? A type that the format does not know fits any value. */
static bool fits(const struct tri__json *value, const char *type)
{
    static const struct {
        const char *name;
        enum tri__json_type a, b;
    } types[] = { { "number", TRI__JSON_INT, TRI__JSON_FLOAT },
                  { "boolean", TRI__JSON_TRUE, TRI__JSON_FALSE },
                  { "null", TRI__JSON_NULL, TRI__JSON_NULL },
                  { "object", TRI__JSON_OBJECT, TRI__JSON_OBJECT },
                  { "array", TRI__JSON_ARRAY, TRI__JSON_ARRAY } };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (!strcmp(type, types[i].name))
            return value->type == types[i].a || value->type == types[i].b;
    return true;
}

/* Reads `text` as strict JSON; whether it is, and of the type, is told in *is_json and *is_type. */
static void check_json(struct tri_parser *p, const struct tri_buf *text, const char *type,
                       bool *is_json, bool *is_type)
{
    struct tri__arena arena = { .max_bytes = TRI_CHAT_MAX_MEMORY_BYTES };
    struct tri__json *value = NULL;
    enum tri_status st = tri__json_read(&value, &arena, text->data ? text->data : "",
                                        text->len_bytes, TRI__JSON_STRICT, NULL);
    if (st == TRI_NOMEM)
        tri__parser_fail(p, st);
    *is_json = !st;
    *is_type = !st && fits(value, type);
    tri__arena_fini(&arena);
}

static void end_held(struct tri_parser *p)
{
    bool is_json = false, is_type = false;
    check_json(p, &p->held, p->type.data, &is_json, &is_type);
    if (!is_type)
        tri__parser_count(p, TRI_DEVIATION_BAD_VALUE);
    if (is_json)
        put(p, p->held.data, p->held.len_bytes);
    else if (tri_json_quote(&p->scratch, p->held.data ? p->held.data : "", p->held.len_bytes))
        tri__parser_fail(p, p->scratch.failed);
    put_scratch(p);
}

void tri__value_end(struct tri_parser *p)
{
    struct tri__call_state *call = &p->call;
    bool is_json = false, is_object = false;
    switch (p->value) {
    case TRI__VALUE_DROPPED:
        return;
    case TRI__VALUE_STRING:
        put(p, "\"", 1);
        break;
    case TRI__VALUE_HELD:
        end_held(p);
        break;
    case TRI__VALUE_RAW:
        check_json(p, &call->arguments, "object", &is_json, &is_object);
        if (!is_object)
            tri__parser_count(p, TRI_DEVIATION_BAD_VALUE);
        break;
    }
    if (p->value != TRI__VALUE_RAW && call->count) {
        struct tri__argument *arg = &call->list[call->count - 1];
        arg->value_bytes = call->arguments.len_bytes - arg->value_at;
    }
    p->value = TRI__VALUE_DROPPED;
}
