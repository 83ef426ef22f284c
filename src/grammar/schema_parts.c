/* JSON Schema's strings, arrays and objects, and a tool's parameters as argument elements. */
#include <string.h>
#include "base/mem.h"
#include "grammar/grammar_priv.h"

enum { MAX_KEY_BYTES = 1024 };

/*
 * Between JSON tokens: nothing, a blank, or a line break and an indent. That is compact JSON, what
 * Python prints, and indented JSON; never an endless run of blanks.
 */
uint32_t tri__put_space(struct tri__build *b, uint32_t next)
{
    const struct tri__range blanks[] = { { ' ', ' ', b->end }, { '\t', '\t', b->end } };
    uint32_t indent = tri__put_loop(b, tri__put_set(b, blanks, 2), 0, TRI_GRAMMAR_MAX_INDENT, next);
    const struct tri__range either[] = { { ' ', ' ', next }, { '\n', '\n', indent } };
    return tri__put_fork(b, tri__put_set(b, either, 2), next);
}

/* ---- strings ---- */

uint32_t tri__put_string(struct tri__build *b, const json_t *schema, bool raw, uint32_t next)
{
    const json_t *pattern = json_object_get(schema, "pattern");
    const json_t *format = json_object_get(schema, "format");
    enum tri__coding coding = raw ? TRI__RAW_TEXT : TRI__JSON_STRING;
    uint32_t min = 0, max = TRI__MANY;
    uint32_t end = raw ? next : tri__put_byte(b, '"', '"', next), start = TRI__NOWHERE;
    if (!tri__read_count(b, schema, "minLength", &min) ||
        !tri__read_count(b, schema, "maxLength", &max))
        return TRI__NOWHERE;
    if (!pattern && !format) {
        start = tri__put_any_string(b, coding, min, max, end);
        return raw ? start : tri__put_byte(b, '"', '"', start);
    }
    struct tri__pattern p = { .whole = !pattern, .coding = coding };
    p.text = pattern ? json_string_value(pattern)
                     : tri__format_pattern(json_is_string(format) ? json_string_value(format) : "");
    if (pattern && format)
        return tri__refuse(b, "format", "is not supported beside 'pattern'");
    if (!p.text)
        return pattern ? tri__refuse(b, "pattern", "must be a string")
                       : tri__refuse(b, "format", "has an unknown name");
    p.bytes = pattern ? json_string_length(pattern) : strlen(p.text);
    start = tri__put_pattern(b, &p, end);
    if (p.min < min)
        return tri__refuse(b, "minLength", "is more than the pattern beside it promises");
    if (p.max > max)
        return tri__refuse(b, "maxLength", "is less than the pattern beside it allows");
    return raw ? start : tri__put_byte(b, '"', '"', start);
}

/* ---- arrays ---- */

struct array {
    const json_t *prefix;
    uint32_t item; /* a rule for those after the prefix; NOWHERE: there are none */
    uint32_t min, max, n;
};

static bool read_array(struct tri__build *b, const json_t *schema, struct array *a)
{
    const json_t *items = json_object_get(schema, "items");
    const json_t *unique = json_object_get(schema, "uniqueItems");
    *a = (struct array){ .max = TRI__MANY, .prefix = json_object_get(schema, "prefixItems") };
    if (!tri__read_count(b, schema, "minItems", &a->min) ||
        !tri__read_count(b, schema, "maxItems", &a->max))
        return false;
    if (json_is_true(unique) && a->max > 1)
        return tri__refuse(b, "uniqueItems", "is not supported") != 0;
    if (json_is_array(items))
        return tri__refuse(b, "items", "as a list is not supported: use prefixItems") != 0;
    if (a->prefix && !json_is_array(a->prefix))
        return tri__refuse(b, "prefixItems", "must be a list of schemas") != 0;
    a->n = (uint32_t)json_array_size(a->prefix);
    if (a->n && !items)
        return true; /* nothing after the prefix */
    size_t was = tri__path_down(b, "items");
    const struct tri__value_of v = { items, TRI__ANY_TYPE, false };
    a->item =
        items ? tri__put_value(b, &v, b->end) : tri__put_any_value(b, TRI__ANY_TYPE, false, b->end);
    tri__path_up(b, was);
    return !b->failed;
}

/* What may follow the prefix's n items, or the `[` when there is no prefix. */
static uint32_t array_rest(struct tri__build *b, const struct array *a, uint32_t close)
{
    uint32_t min = a->min > a->n ? a->min - a->n : 0;
    uint32_t max = a->max == TRI__MANY ? TRI__MANY : a->max > a->n ? a->max - a->n : 0;
    uint32_t first = a->n == 0 && max > 0;
    if (first && max != TRI__MANY)
        max--;
    uint32_t more =
        tri__put_byte(b, ',', ',', tri__put_space(b, tri__put_call(b, a->item, b->end)));
    uint32_t rest = tri__put_loop(b, more, first && min ? min - 1 : min, max, close);
    if (!first)
        return rest;
    uint32_t some = tri__put_call(b, a->item, rest);
    return some;
}

static uint32_t array_prefix(struct tri__build *b, const struct array *a, uint32_t rest,
                             uint32_t next)
{
    uint32_t close = tri__put_byte(b, ']', ']', next), tail = rest;
    if (a->max < a->n)
        tail = TRI__NOWHERE;
    for (uint32_t i = a->n; i-- > 0 && !b->failed;) {
        const struct tri__value_of v = { json_array_get(a->prefix, i), TRI__ANY_TYPE, false };
        size_t was = tri__path_down(b, "prefixItems/%u", i);
        if (i >= a->max)
            tail = TRI__NOWHERE;
        uint32_t item = tri__put_value(b, &v, tail);
        tri__path_up(b, was);
        if (i > 0)
            item = tri__put_byte(b, ',', ',', tri__put_space(b, item));
        uint32_t stop = i < a->min ? TRI__NOWHERE : i ? tri__put_space(b, close) : close;
        tail = tri__put_fork(b, item, stop);
    }
    return tail;
}

uint32_t tri__put_array(struct tri__build *b, const json_t *schema, uint32_t next)
{
    struct array a;
    if (next == TRI__NOWHERE || !read_array(b, schema, &a))
        return TRI__NOWHERE;
    uint32_t close = tri__put_byte(b, ']', ']', next);
    uint32_t start = array_rest(b, &a, tri__put_space(b, close));
    if (a.n)
        start = array_prefix(b, &a, start, next);
    else if (a.min == 0)
        start = tri__put_fork(b, start, close);
    return tri__put_byte(b, '[', '[', tri__put_space(b, start));
}

/* ---- objects ---- */

const json_t *tri__additional(const json_t *schema)
{
    const json_t *more = json_object_get(schema, "additionalProperties");
    if (more)
        return json_is_false(more) ? NULL : more;
    return json_object_get(schema, "properties") ? NULL : json_true();
}

struct members {
    const json_t *additional; /* NULL: none */
    const char **name;
    const json_t **schema;
    bool *must;
    size_t n;
};

static void members_fini(struct members *m)
{
    tri_free(m->name);
    tri_free(m->schema);
    tri_free(m->must);
}

static bool read_required(struct tri__build *b, const json_t *schema, struct members *m)
{
    const json_t *required = json_object_get(schema, "required");
    if (required && !json_is_array(required))
        return tri__refuse(b, "required", "must be a list of names") != 0;
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        bool found = false;
        if (!tri__build_work(b, m->n))
            return false;
        for (size_t k = 0; k < m->n && name && !found; k++) {
            found = !strcmp(m->name[k], name);
            m->must[k] |= found;
        }
        if (!name || (!found && !m->additional))
            return tri__refuse(b, "required", "names what 'properties' does not have") != 0;
        if (found)
            continue;
        m->name[m->n] = name;
        m->schema[m->n] = m->additional;
        m->must[m->n++] = true;
    }
    return true;
}

static bool read_members(struct tri__build *b, const json_t *schema, struct members *m)
{
    const json_t *properties = json_object_get(schema, "properties");
    size_t n = json_object_size(properties) + json_array_size(json_object_get(schema, "required"));
    const char *key = NULL;
    json_t *value = NULL;
    *m = (struct members){ .additional = tri__additional(schema) };
    if (properties && !json_is_object(properties))
        return tri__refuse(b, "properties", "must be an object") != 0;
    m->name = tri_calloc(n + 1, sizeof *m->name);
    m->schema = tri_calloc(n + 1, sizeof *m->schema);
    m->must = tri_calloc(n + 1, sizeof *m->must);
    if (!m->name || !m->schema || !m->must) {
        tri__build_fail(b, TRI_NOMEM, "no memory for a grammar");
        return false;
    }
    json_object_foreach((json_t *)(uintptr_t)properties, key, value)
    {
        if (strlen(key) > MAX_KEY_BYTES)
            return tri__refuse(b, "properties", "has a name of over 1024 bytes") != 0;
        m->name[m->n] = key;
        m->schema[m->n++] = value;
    }
    return read_required(b, schema, m);
}

/* `"key": value` of a property, after which `next` comes. */
static uint32_t put_member(struct tri__build *b, const struct members *m, size_t i, uint32_t next)
{
    const struct tri__value_of v = { m->schema[i], TRI__ANY_TYPE, false };
    size_t was = tri__path_down(b, "properties/%s", m->name[i]);
    uint32_t value = tri__put_value(b, &v, next);
    tri__path_up(b, was);
    if (value == TRI__NOWHERE)
        return TRI__NOWHERE;
    value = tri__put_space(b, value);
    tri_buf_clear(&b->text);
    tri_buf_putc(&b->text, '"');
    tri__write_coded(&b->text, m->name[i], strlen(m->name[i]), TRI__JSON_STRING);
    tri_buf_puts(&b->text, "\":");
    return tri__put_text(b, b->text.data, b->text.len_bytes, value);
}

/* The same of a property that is not declared, as a rule. */
static uint32_t put_extra(struct tri__build *b, const struct members *m)
{
    const struct tri__value_of v = { m->additional, TRI__ANY_TYPE, false };
    if (!m->additional)
        return TRI__NOWHERE;
    size_t was = tri__path_down(b, "additionalProperties");
    uint32_t value = tri__put_space(b, tri__put_value(b, &v, b->end));
    tri__path_up(b, was);
    uint32_t colon = tri__put_text(b, "\":", 2, value);
    uint32_t key = m->n ? tri__put_other_than(b, m->name, m->n, TRI__JSON_STRING, colon)
                        : tri__put_any_string(b, TRI__JSON_STRING, 0, TRI__MANY, colon);
    return tri__put_byte(b, '"', '"', key);
}

static uint32_t put_members(struct tri__build *b, const struct members *m, uint32_t next)
{
    uint32_t brace = tri__put_byte(b, '}', '}', next), extra = put_extra(b, m);
    /* `any`: what may come after a member; `none`: what may come as the first */
    uint32_t more = extra ? tri__put_byte(b, ',', ',', tri__put_space(b, extra)) : TRI__NOWHERE;
    uint32_t any = tri__put_loop(b, more, 0, TRI__MANY, tri__put_space(b, brace));
    uint32_t none = tri__put_fork(b, tri__put_call(b, extra, any), brace);
    for (size_t i = m->n; i-- > 0 && !b->failed;) {
        uint32_t member = put_member(b, m, i, any);
        uint32_t after = tri__put_byte(b, ',', ',', tri__put_space(b, member));
        any = m->must[i] ? after : tri__put_fork(b, after, any);
        none = m->must[i] ? member : tri__put_fork(b, member, none);
    }
    return tri__put_byte(b, '{', '{', tri__put_space(b, none));
}

uint32_t tri__put_object(struct tri__build *b, const json_t *schema, uint32_t next)
{
    struct members m;
    uint32_t start = TRI__NOWHERE;
    if (next != TRI__NOWHERE && read_members(b, schema, &m))
        start = put_members(b, &m, next);
    if (next != TRI__NOWHERE)
        members_fini(&m);
    return start;
}

/* ---- arguments ---- */

/* `type="T"`, sep, the value in that type, the element's close; alternatives for each type. */
static uint32_t put_typed_argument(struct tri__build *b, const json_t *schema, uint32_t next)
{
    static const struct {
        const char *text;
        unsigned types;
    } types[] = { { "string\"", TRI__STRING },   { "number\"", TRI__INTEGER | TRI__NUMBER },
                  { "boolean\"", TRI__BOOLEAN }, { "null\"", TRI__NULL },
                  { "object\"", TRI__OBJECT },   { "array\"", TRI__ARRAY } };
    struct tri__literal list[6];
    size_t n = 0;
    uint32_t close = tri__put_close(b, "argument", next);
    for (size_t i = 0; i < 6 && !b->failed; i++) {
        const struct tri__value_of v = { schema, types[i].types, true };
        uint32_t value = tri__put_value(b, &v, close);
        if (value)
            list[n++] = (struct tri__literal){ types[i].text, strlen(types[i].text),
                                               tri__put_marker(b, b->vocab->chat.sep, value) };
    }
    uint32_t start = tri__put_literals(b, list, n);
    return tri__put_text(b, "\" type=\"", 8, start);
}

static uint32_t open_argument(struct tri__build *b, uint32_t key)
{
    uint32_t start = tri__put_text(b, "argument key=\"", 14, key);
    return tri__put_marker(b, b->vocab->chat.open, start);
}

static uint32_t put_argument(struct tri__build *b, const struct members *m, size_t i, uint32_t next)
{
    size_t was = tri__path_down(b, "properties/%s", m->name[i]);
    uint32_t value = put_typed_argument(b, m->schema[i], next);
    tri__path_up(b, was);
    tri_buf_clear(&b->text);
    tri__write_coded(&b->text, m->name[i], strlen(m->name[i]), TRI__ATTRIBUTE);
    return open_argument(
        b, tri__put_text(b, b->text.data ? b->text.data : "", b->text.len_bytes, value));
}

static uint32_t put_extra_argument(struct tri__build *b, const struct members *m)
{
    if (!m->additional)
        return TRI__NOWHERE;
    size_t was = tri__path_down(b, "additionalProperties");
    uint32_t value = put_typed_argument(b, m->additional, b->end);
    tri__path_up(b, was);
    return open_argument(b, tri__put_other_than(b, m->name, m->n, TRI__ATTRIBUTE, value));
}

static uint32_t arguments_in_order(struct tri__build *b, const struct members *m, uint32_t next)
{
    uint32_t start = tri__put_loop(b, put_extra_argument(b, m), 0, TRI__MANY, next);
    for (size_t i = m->n; i-- > 0 && !b->failed;) {
        uint32_t one = put_argument(b, m, i, start);
        start = m->must[i] ? one : tri__put_fork(b, one, start);
    }
    return start;
}

static uint32_t arguments_in_any_order(struct tri__build *b, const struct members *m, uint32_t next)
{
    uint32_t way[TRI_GRAMMAR_MAX_ANY_ORDER];
    struct tri__pick pick = { .n = (uint32_t)m->n, .next = next };
    pick.extra = put_extra_argument(b, m);
    for (size_t i = 0; i < m->n && !b->failed; i++) {
        way[i] = put_argument(b, m, i, b->end);
        pick.must |= (uint64_t)m->must[i] << i;
    }
    return b->failed ? TRI__NOWHERE : tri__put_pick(b, &pick, way);
}

static uint32_t put_parameters(struct tri__build *b, const json_t *schema, uint32_t next)
{
    struct members m;
    uint32_t start = TRI__NOWHERE;
    if (read_members(b, schema, &m))
        start = m.n <= TRI_GRAMMAR_MAX_ANY_ORDER ? arguments_in_any_order(b, &m, next)
                                                 : arguments_in_order(b, &m, next);
    members_fini(&m);
    return start;
}

uint32_t tri__put_any_arguments(struct tri__build *b, uint32_t next)
{
    return put_parameters(b, NULL, next);
}

uint32_t tri__put_arguments(struct tri__build *b, const json_t *schema, uint32_t next)
{
    static const char *const others[] = { "$ref",
                                          "anyOf",
                                          "oneOf",
                                          "allOf",
                                          "enum",
                                          "const",
                                          "not",
                                          "patternProperties",
                                          "propertyNames",
                                          "minProperties",
                                          "maxProperties",
                                          "if",
                                          "dependentRequired",
                                          "dependentSchemas",
                                          "unevaluatedProperties" };
    const json_t *type = json_object_get(schema, "type");
    if (!schema || json_is_null(schema))
        return next; /* OpenAI: no parameters */
    if (!json_is_object(schema))
        return tri__build_fail(b, TRI_UNSUPPORTED, "%s: must be an object", b->root_name);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (json_object_get(schema, others[i]))
            return tri__refuse(b, others[i], "is not supported for a tool's parameters as a whole");
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "object") != 0))
        return tri__refuse(b, "type", "must be object for a tool's parameters");
    return put_parameters(b, schema, next);
}
