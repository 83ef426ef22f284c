/*
 * JSON as Python's json module reads and prints it. The reference passes tool arguments through
 * json.loads and json.dumps, so what a prompt holds is Python's idea of the value: numbers printed
 * anew, \u escapes decoded, the last of equal keys. base/json.h cannot say these things.
 */
#include "text/text_priv.h"

#include <stdlib.h>
#include <string.h>
#include "base/mem.h"

struct reader {
    struct tri__arena *arena;
    const char *start, *at, *end;
    enum tri__json_dialect dialect;
    unsigned depth;
    struct tri_error *err;
};

/* ---- reading ---- */

static enum tri_status bad(struct reader *r, const char *what)
{
    size_t line = 1;
    const char *from = r->start;
    for (const char *p = r->start; p < r->at; p++)
        if (*p == '\n') {
            line++;
            from = p + 1;
        }
    return tri_fail(r->err, TRI_FORMAT, "line %zu, column %zu: %s", line,
                    (size_t)(r->at - from) + 1, what);
}

static enum tri_status no_memory(struct reader *r)
{
    if (r->arena->failed == TRI_LIMIT)
        return tri_fail(r->err, TRI_LIMIT, "the JSON needs more than %zu MiB",
                        r->arena->max_bytes >> 20);
    return tri_fail(r->err, TRI_NOMEM, "no memory for the JSON");
}

static void skip_blanks(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static bool take(struct reader *r, const char *word)
{
    size_t bytes = strlen(word);
    if ((size_t)(r->end - r->at) < bytes || memcmp(r->at, word, bytes) != 0)
        return false;
    r->at += bytes;
    return true;
}

/* Four hex digits; -1 if they are not there. */
static int32_t hex4(const struct reader *r)
{
    int32_t value = 0;
    if (r->end - r->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = r->at[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* Also encodes lone surrogates, as three bytes that tri_utf8_valid refuses. */
static size_t put_utf8(char *out, int32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t bytes = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = bytes - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF00 >> bytes & 0xFF) | c);
    return bytes;
}

/* After `\u`: one escape, or two that make a surrogate pair. Returns the bytes written, 0: bad. */
static size_t unicode_escape(struct reader *r, char *out)
{
    int32_t c = hex4(r);
    if (c < 0)
        return 0;
    r->at += 4;
    if (c >= 0xD800 && c < 0xDC00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
        r->at += 2;
        int32_t low = hex4(r);
        if (low >= 0xDC00 && low < 0xE000) {
            r->at += 4;
            c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
        } else {
            r->at -= 2;
        }
    }
    return put_utf8(out, c);
}

/* One escape after its backslash. Returns the bytes written, 0 if there is no such escape. */
static size_t escape(struct reader *r, char *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (r->at == r->end)
        return 0;
    char c = *r->at++;
    if (c == 'u')
        return unicode_escape(r, out);
    const char *found = c ? strchr(from, c) : NULL;
    if (!found)
        return 0;
    *out = to[found - from];
    return 1;
}

/* A string after its opening quote; decoded text is never longer than its source. */
static enum tri_status read_string(struct reader *r, const char **text, size_t *bytes)
{
    const char *close = r->at;
    while (close < r->end && *close != '"')
        close += *close == '\\' && close + 1 < r->end ? 2 : 1;
    char *out = tri__arena_alloc(r->arena, (size_t)(close - r->at) + 1);
    if (!out)
        return no_memory(r);
    size_t count = 0;
    for (;;) {
        const char *run = r->at;
        while (r->at < r->end && *r->at != '"' && *r->at != '\\' && (unsigned char)*r->at >= 0x20)
            r->at++;
        memcpy(out + count, run, (size_t)(r->at - run));
        count += (size_t)(r->at - run);
        if (r->at == r->end)
            return bad(r, "the string does not end");
        if (*r->at == '"')
            break;
        if (*r->at != '\\')
            return bad(r, "a control character in a string must be escaped");
        r->at++;
        size_t put = escape(r, out + count);
        if (!put)
            return bad(r, "no such escape in a string");
        count += put;
    }
    r->at++;
    *text = out;
    *bytes = count;
    return TRI_OK;
}

static void skip_digits(struct reader *r)
{
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
}

static enum tri_status read_number(struct reader *r, struct tri__json *v)
{
    const char *from = r->at, *digits = from + (*from == '-');
    r->at = digits;
    if (r->at < r->end && *r->at == '0')
        r->at++;
    else
        skip_digits(r);
    if (r->at == digits)
        return bad(r, "a value is missing here");
    size_t int_digits = (size_t)(r->at - digits);
    const char *whole = r->at;
    v->type = TRI__JSON_INT;
    if (r->end - r->at >= 2 && r->at[0] == '.' && r->at[1] >= '0' && r->at[1] <= '9') {
        r->at++;
        skip_digits(r);
    }
    const char *e = r->at;
    if (e < r->end && (*e == 'e' || *e == 'E')) {
        r->at += e + 1 < r->end && (e[1] == '+' || e[1] == '-') ? 2 : 1;
        const char *exponent = r->at;
        skip_digits(r);
        if (r->at == exponent)
            r->at = e; /* what follows is no number, and will be refused as such */
    }
    if (r->at != whole)
        v->type = TRI__JSON_FLOAT;
    else if (int_digits > TRI_CHAT_MAX_INT_DIGITS)
        return tri_fail(r->err, TRI_LIMIT, "an integer of %zu digits, at most %d are read",
                        int_digits, TRI_CHAT_MAX_INT_DIGITS);
    v->text = from;
    v->bytes = (size_t)(r->at - from);
    return TRI_OK;
}

static enum tri_status read_value(struct reader *r, struct tri__json *v);

/* Puts a new child at *tail and reads it; in an object, its key first. */
static enum tri_status read_child(struct reader *r, struct tri__json *parent,
                                  struct tri__json **tail)
{
    struct tri__json *child = tri__arena_alloc(r->arena, sizeof *child);
    if (!child)
        return no_memory(r);
    *child = (struct tri__json){ 0 };
    if (parent->type == TRI__JSON_OBJECT) {
        if (!take(r, "\""))
            return bad(r, "a key in double quotes is missing here");
        enum tri_status st = read_string(r, &child->key, &child->key_bytes);
        if (st)
            return st;
        skip_blanks(r);
        if (!take(r, ":"))
            return bad(r, "a colon is missing here");
        skip_blanks(r);
    }
    enum tri_status st = read_value(r, child);
    if (st)
        return st;
    *tail = child;
    parent->count++;
    skip_blanks(r);
    return TRI_OK;
}

static int by_key(const struct tri__json *a, const struct tri__json *b)
{
    size_t least = a->key_bytes < b->key_bytes ? a->key_bytes : b->key_bytes;
    int order = least ? memcmp(a->key, b->key, least) : 0;
    return order ? order : (a->key_bytes > b->key_bytes) - (a->key_bytes < b->key_bytes);
}

/* For qsort of pointers: by key, equal keys in source order (the arena gives no order). */
struct keyed {
    struct tri__json *member;
    size_t place;
};

static int by_key_and_place(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    int order = by_key(x->member, y->member);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

/* The members of an object, sorted; freed with tri_free. NULL: no memory. */
static struct keyed *sorted_members(const struct tri__json *object)
{
    struct keyed *list = tri_calloc(object->count, sizeof *list);
    size_t i = 0;
    for (struct tri__json *m = object->child; list && m; m = m->next, i++)
        list[i] = (struct keyed){ m, i };
    if (list && object->count > 1)
        qsort(list, object->count, sizeof *list, by_key_and_place);
    return list;
}

/* Of members with the same key the first keeps its place and takes the last one's value. */
static enum tri_status drop_duplicates(struct reader *r, struct tri__json *object)
{
    struct keyed *list = object->count > 1 ? sorted_members(object) : NULL;
    if (object->count > 1 && !list)
        return no_memory(r);
    size_t dropped = 0;
    for (size_t i = 0, j; list && i < object->count; i = j) {
        for (j = i + 1; j < object->count && !by_key(list[i].member, list[j].member); j++) {
            struct tri__json *next = list[i].member->next, *later = list[j].member;
            list[i].member->type = later->type;
            list[i].member->text = later->text;
            list[i].member->bytes = later->bytes;
            list[i].member->count = later->count;
            list[i].member->child = later->child;
            list[i].member->next = next;
            later->key = NULL;
            dropped++;
        }
    }
    tri_free(list);
    for (struct tri__json **m = &object->child; dropped && *m;)
        if ((*m)->key)
            m = &(*m)->next;
        else
            *m = (*m)->next;
    object->count -= dropped;
    return TRI_OK;
}

/* The inside of an array or object, after its opening bracket, up to and with `close`. */
static enum tri_status read_children(struct reader *r, struct tri__json *v, const char *close)
{
    if (++r->depth > TRI_CHAT_MAX_DEPTH)
        return tri_fail(r->err, TRI_LIMIT, "JSON nested deeper than %d levels", TRI_CHAT_MAX_DEPTH);
    struct tri__json **tail = &v->child;
    skip_blanks(r);
    bool done = take(r, close);
    while (!done) {
        enum tri_status st = read_child(r, v, tail);
        if (st)
            return st;
        tail = &(*tail)->next;
        done = take(r, close);
        if (!done && !take(r, ","))
            return bad(r, "a comma or the closing bracket is missing here");
        if (!done)
            skip_blanks(r);
    }
    r->depth--;
    return v->type == TRI__JSON_OBJECT ? drop_duplicates(r, v) : TRI_OK;
}

static enum tri_status read_value(struct reader *r, struct tri__json *v)
{
    if (take(r, "\"")) {
        v->type = TRI__JSON_STRING;
        return read_string(r, &v->text, &v->bytes);
    }
    if (take(r, "[")) {
        v->type = TRI__JSON_ARRAY;
        return read_children(r, v, "]");
    }
    if (take(r, "{")) {
        v->type = TRI__JSON_OBJECT;
        return read_children(r, v, "}");
    }
    static const struct {
        const char *word;
        enum tri__json_type type;
    } words[] = { { "null", TRI__JSON_NULL },      { "true", TRI__JSON_TRUE },
                  { "false", TRI__JSON_FALSE },    { "NaN", TRI__JSON_FLOAT },
                  { "Infinity", TRI__JSON_FLOAT }, { "-Infinity", TRI__JSON_FLOAT } };
    size_t count = r->dialect == TRI__JSON_PYTHON ? 6 : 3;
    for (size_t i = 0; i < count; i++)
        if (take(r, words[i].word)) {
            v->type = words[i].type;
            v->text = words[i].word;
            v->bytes = strlen(words[i].word);
            return TRI_OK;
        }
    if (r->at < r->end && (*r->at == '-' || (*r->at >= '0' && *r->at <= '9')))
        return read_number(r, v);
    return bad(r, "a value is missing here");
}

enum tri_status tri__json_read(struct tri__json **out, struct tri__arena *arena, const char *text,
                               size_t bytes, enum tri__json_dialect dialect, struct tri_error *err)
{
    struct reader r = { arena, text, text, text + bytes, dialect, 0, err };
    size_t valid = tri_utf8_valid(text, bytes);
    if (valid < bytes)
        return tri_fail(err, TRI_FORMAT, "not valid UTF-8 at byte %zu", valid);
    struct tri__json *v = tri__arena_alloc(arena, sizeof *v);
    if (!v)
        return no_memory(&r);
    *v = (struct tri__json){ 0 };
    skip_blanks(&r);
    enum tri_status st = read_value(&r, v);
    skip_blanks(&r);
    if (!st && r.at < r.end)
        st = bad(&r, "nothing may follow the value");
    if (!st)
        *out = v;
    return st;
}

const struct tri__json *tri__json_get(const struct tri__json *object, const char *key)
{
    size_t bytes = strlen(key);
    if (!object || object->type != TRI__JSON_OBJECT)
        return NULL;
    for (const struct tri__json *m = object->child; m; m = m->next)
        if (m->key_bytes == bytes && !memcmp(m->key, key, bytes))
            return m;
    return NULL;
}

bool tri__json_is(const struct tri__json *value, const char *text)
{
    return value && value->type == TRI__JSON_STRING && value->bytes == strlen(text) &&
           !memcmp(value->text, text, value->bytes);
}

/* ---- printing ---- */

enum tri_status tri__json_escape(struct tri_buf *out, const char *text, size_t bytes)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    size_t done = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        tri_buf_add(out, text + done, i - done);
        done = i + 1;
        const char *found = c ? strchr(from, c) : NULL;
        if (found)
            tri_buf_printf(out, "\\%c", to[found - from]);
        else
            tri_buf_printf(out, "\\u%04x", (unsigned)c);
    }
    return tri_buf_add(out, text + done, bytes - done);
}

enum tri_status tri_json_quote(struct tri_buf *out, const char *text, size_t bytes)
{
    tri_buf_putc(out, '"');
    tri__json_escape(out, text, bytes);
    return tri_buf_putc(out, '"');
}

static enum tri_status write_member(struct tri_buf *out, const struct tri__json *m,
                                    enum tri__json_style style)
{
    tri_json_quote(out, m->key, m->key_bytes);
    tri_buf_puts(out, style == TRI__JSON_SORTED ? ":" : ": ");
    return tri__json_write(out, m, style);
}

static enum tri_status write_sorted(struct tri_buf *out, const struct tri__json *object)
{
    struct keyed *list = sorted_members(object);
    if (!list)
        return out->failed = TRI_NOMEM;
    for (size_t i = 0; i < object->count; i++) {
        if (i)
            tri_buf_putc(out, ',');
        write_member(out, list[i].member, TRI__JSON_SORTED);
    }
    tri_free(list);
    return out->failed;
}

static enum tri_status write_children(struct tri_buf *out, const struct tri__json *value,
                                      enum tri__json_style style)
{
    if (value->type == TRI__JSON_OBJECT && style == TRI__JSON_SORTED)
        return write_sorted(out, value);
    for (const struct tri__json *child = value->child; child; child = child->next) {
        if (child != value->child)
            tri_buf_puts(out, style == TRI__JSON_SORTED ? "," : ", ");
        if (value->type == TRI__JSON_OBJECT)
            write_member(out, child, style);
        else
            tri__json_write(out, child, style);
    }
    return out->failed;
}

enum tri_status tri__json_write(struct tri_buf *out, const struct tri__json *value,
                                enum tri__json_style style)
{
    switch (value->type) {
    case TRI__JSON_NULL:
        return tri_buf_puts(out, "null");
    case TRI__JSON_TRUE:
        return tri_buf_puts(out, "true");
    case TRI__JSON_FALSE:
        return tri_buf_puts(out, "false");
    case TRI__JSON_INT:
    case TRI__JSON_FLOAT:
        return tri__json_put_number(out, value);
    case TRI__JSON_STRING:
        return tri_json_quote(out, value->text, value->bytes);
    case TRI__JSON_ARRAY:
    case TRI__JSON_OBJECT:
        break;
    }
    bool object = value->type == TRI__JSON_OBJECT;
    tri_buf_putc(out, object ? '{' : '[');
    write_children(out, value, style);
    return tri_buf_putc(out, object ? '}' : ']');
}
