/*
 * JSON Schema into the network: which keywords there are, references, choices between schemas, and
 * enumerated values. A keyword that asserts something and is not known here is refused by name and
 * path; words that assert nothing (title, default, examples, ...) are passed over, as the standard
 * says. What a keyword means is JSON Schema 2020-12 (and draft 7 where the two agree).
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "base/mem.h"
#include "grammar/grammar_priv.h"

/* ---- where we are ---- */

size_t tri__path_down(struct tri__build *b, const char *format, ...)
{
    char text[160], safe[200];
    size_t was = b->path.len_bytes;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tri_buf_puts(&b->path, "/");
    tri_buf_puts(&b->path, tri_printable(safe, sizeof safe, text, strlen(text)));
    return was;
}

void tri__path_up(struct tri__build *b, size_t was)
{
    b->path.len_bytes = was;
    if (b->path.data)
        b->path.data[was] = 0;
}

uint32_t tri__refuse(struct tri__build *b, const char *keyword, const char *why)
{
    return tri__build_fail(b, TRI_UNSUPPORTED, "%s: keyword '%s' at #%.200s: %s", b->root_name,
                           keyword, b->path.len_bytes ? b->path.data : "", why);
}

/* ---- keywords ---- */

/* For which types a keyword says something; 0: for a schema as a whole. */
static const struct {
    const char *name;
    unsigned types;
    bool known;
} keywords[] = {
    { "type", 0, true },
    { "enum", 0, true },
    { "const", 0, true },
    { "anyOf", 0, true },
    { "oneOf", 0, true },
    { "allOf", 0, true },
    { "$ref", 0, true },
    { "properties", TRI__OBJECT, true },
    { "required", TRI__OBJECT, true },
    { "additionalProperties", TRI__OBJECT, true },
    { "items", TRI__ARRAY, true },
    { "prefixItems", TRI__ARRAY, true },
    { "minItems", TRI__ARRAY, true },
    { "maxItems", TRI__ARRAY, true },
    { "uniqueItems", TRI__ARRAY, true },
    { "minLength", TRI__STRING, true },
    { "maxLength", TRI__STRING, true },
    { "pattern", TRI__STRING, true },
    { "format", TRI__STRING, true },
    { "minimum", TRI__INTEGER | TRI__NUMBER, true },
    { "maximum", TRI__INTEGER | TRI__NUMBER, true },
    { "exclusiveMinimum", TRI__INTEGER | TRI__NUMBER, true },
    { "exclusiveMaximum", TRI__INTEGER | TRI__NUMBER, true },
    { "not", 0, false },
    { "if", 0, false },
    { "then", 0, false },
    { "else", 0, false },
    { "$dynamicRef", 0, false },
    { "$recursiveRef", 0, false },
    { "dependentRequired", 0, false },
    { "dependentSchemas", 0, false },
    { "dependencies", 0, false },
    { "patternProperties", 0, false },
    { "propertyNames", 0, false },
    { "minProperties", 0, false },
    { "maxProperties", 0, false },
    { "unevaluatedProperties", 0, false },
    { "unevaluatedItems", 0, false },
    { "additionalItems", 0, false },
    { "contains", 0, false },
    { "minContains", 0, false },
    { "maxContains", 0, false },
    { "multipleOf", 0, false },
};
enum { KEYWORDS = sizeof keywords / sizeof keywords[0] };

static bool has(const json_t *schema, const char *keyword)
{
    return json_object_get(schema, keyword) != NULL;
}

static bool check_keywords(struct tri__build *b, const json_t *schema)
{
    for (int i = 0; i < KEYWORDS; i++)
        if (!keywords[i].known && has(schema, keywords[i].name))
            return tri__refuse(b, keywords[i].name, "is not supported") != 0;
    return true;
}

/* Beside `keyword` only type (if `type_too`) and words without force may stand. */
static bool check_alone(struct tri__build *b, const json_t *schema, const char *keyword,
                        bool type_too)
{
    for (int i = 0; i < KEYWORDS; i++) {
        const char *name = keywords[i].name;
        if (!has(schema, name) || !strcmp(name, keyword) || (type_too && !strcmp(name, "type")))
            continue;
        char why[80];
        snprintf(why, sizeof why, "is not supported beside '%s'", keyword);
        return tri__refuse(b, name, why) != 0;
    }
    return true;
}

/* ---- types ---- */

static unsigned type_named(const char *name)
{
    static const struct {
        const char *name;
        unsigned types;
    } types[] = { { "null", TRI__NULL },       { "boolean", TRI__BOOLEAN },
                  { "integer", TRI__INTEGER }, { "number", TRI__INTEGER | TRI__NUMBER },
                  { "string", TRI__STRING },   { "array", TRI__ARRAY },
                  { "object", TRI__OBJECT } };
    for (size_t i = 0; name && i < sizeof types / sizeof types[0]; i++)
        if (!strcmp(types[i].name, name))
            return types[i].types;
    return 0;
}

unsigned tri__types_made(struct tri__build *b, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    unsigned types = type_named(json_string_value(type));
    if (json_is_array(type)) {
        for (size_t i = 0; i < json_array_size(type); i++) {
            unsigned one = type_named(json_string_value(json_array_get(type, i)));
            if (!one)
                return tri__refuse(b, "type", "names no type of JSON");
            types |= one;
        }
    }
    if (type && !types)
        return tri__refuse(b, "type", "names no type of JSON");
    /* Without a type: those that its keywords are about. */
    for (int i = 0; i < KEYWORDS && !type; i++)
        if (has(schema, keywords[i].name))
            types |= keywords[i].types;
    return types ? types : TRI__ANY_TYPE;
}

/* ---- numbers ---- */

bool tri__read_count(struct tri__build *b, const json_t *schema, const char *keyword, uint32_t *out)
{
    const json_t *v = json_object_get(schema, keyword);
    if (!v)
        return true;
    double x = json_number_value(v);
    if (!json_is_number(v) || x < 0 || floor(x) < x)
        return tri__refuse(b, keyword, "must be a whole number from 0") != 0;
    if (x > TRI_GRAMMAR_MAX_REPEAT) {
        tri__build_fail(b, TRI_LIMIT, "%s: keyword '%s' at #%.200s: at most %d", b->root_name,
                        keyword, b->path.len_bytes ? b->path.data : "", TRI_GRAMMAR_MAX_REPEAT);
        return false;
    }
    *out = (uint32_t)x;
    return true;
}

/* One bound; `open` is what the keyword itself means. */
struct bound {
    bool given, open;
    int64_t at;
};

static bool read_bound(struct tri__build *b, const json_t *schema, const char *keyword,
                       bool integers, struct bound *out)
{
    const json_t *v = json_object_get(schema, keyword);
    bool low = strstr(keyword, "inimum") != NULL;
    double x = json_number_value(v);
    if (!v || json_is_boolean(v))
        return true; /* draft 4's true is seen by the caller */
    if (!json_is_number(v) || !(fabs(x) <= 9e18))
        return tri__refuse(b, keyword, "must be a number of at most 9e18") != 0;
    bool whole = json_is_integer(v) || !(floor(x) < x);
    if (!whole && !integers)
        return tri__refuse(b, keyword, "must be a whole number here") != 0;
    out->at =
        json_is_integer(v) ? (int64_t)json_integer_value(v) : (int64_t)(low ? ceil(x) : floor(x));
    out->open = whole && !strncmp(keyword, "exclusive", 9);
    out->given = true;
    return true;
}

/* The stricter of a bound and its exclusive sister. */
static bool read_side(struct tri__build *b, const json_t *schema, const char *const names[2],
                      bool integers, struct bound *out)
{
    struct bound plain = { 0 }, open = { 0 };
    if (!read_bound(b, schema, names[0], integers, &plain) ||
        !read_bound(b, schema, names[1], integers, &open))
        return false;
    if (json_is_true(json_object_get(schema, names[1])))
        plain.open = true;
    bool low = names[0][1] == 'i' && names[0][2] == 'n';
    bool tighter = !plain.given || (low ? open.at >= plain.at : open.at <= plain.at);
    *out = open.given && tighter ? open : plain;
    return true;
}

static uint32_t put_numbers(struct tri__build *b, const json_t *schema, unsigned types,
                            uint32_t next)
{
    static const char *const mins[] = { "minimum", "exclusiveMinimum" };
    static const char *const maxs[] = { "maximum", "exclusiveMaximum" };
    struct bound min = { 0 }, max = { 0 };
    bool integers = !(types & TRI__NUMBER);
    if (!read_side(b, schema, mins, integers, &min) || !read_side(b, schema, maxs, integers, &max))
        return TRI__NOWHERE;
    const struct tri__bounds bounds = { min.given, max.given, min.open, max.open, min.at, max.at };
    return integers ? tri__put_integer(b, &bounds, next) : tri__put_number(b, &bounds, next);
}

/* ---- values that are listed ---- */

static void write_value(struct tri_buf *out, const json_t *v)
{
    const char *key = NULL, *comma = "";
    json_t *item = NULL;
    size_t i = 0;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        tri_buf_putc(out, '{');
        json_object_foreach((json_t *)(uintptr_t)v, key, item)
        {
            tri_buf_puts(out, comma);
            tri_json_quote(out, key, strlen(key));
            tri_buf_putc(out, ':');
            write_value(out, item);
            comma = ",";
        }
        tri_buf_putc(out, '}');
        return;
    case JSON_ARRAY:
        tri_buf_putc(out, '[');
        json_array_foreach(v, i, item)
        {
            tri_buf_puts(out, i ? "," : "");
            write_value(out, item);
        }
        tri_buf_putc(out, ']');
        return;
    case JSON_STRING:
        tri_json_quote(out, json_string_value(v), json_string_length(v));
        return;
    case JSON_INTEGER:
        tri_buf_printf(out, "%lld", (long long)json_integer_value(v));
        return;
    case JSON_REAL:
        tri_json_put_real(out, json_real_value(v));
        return;
    default:
        tri_buf_puts(out, json_is_true(v) ? "true" : json_is_false(v) ? "false" : "null");
    }
}

unsigned tri__type_of(const json_t *v)
{
    static const unsigned types[] = {
        [JSON_OBJECT] = TRI__OBJECT,   [JSON_ARRAY] = TRI__ARRAY, [JSON_STRING] = TRI__STRING,
        [JSON_INTEGER] = TRI__INTEGER, [JSON_REAL] = TRI__NUMBER, [JSON_TRUE] = TRI__BOOLEAN,
        [JSON_FALSE] = TRI__BOOLEAN,   [JSON_NULL] = TRI__NULL
    };
    bool whole = json_is_real(v) && !(floor(json_real_value(v)) < json_real_value(v));
    return whole ? TRI__INTEGER : types[json_typeof(v)];
}

static uint32_t put_listed(struct tri__build *b, const json_t *list, const struct tri__value_of *v,
                           uint32_t next)
{
    size_t n = json_array_size(list), kept = 0, at = 0;
    struct tri__literal *literal = tri_calloc(n + 1, sizeof *literal);
    size_t *ends = tri_calloc(n + 1, sizeof *ends);
    uint32_t start = TRI__NOWHERE;
    tri_buf_clear(&b->text);
    for (size_t i = 0; literal && ends && i < n; i++) {
        const json_t *item = json_array_get(list, i);
        if (!(tri__type_of(item) & v->types))
            continue;
        if (json_is_string(item) && v->raw)
            tri_buf_add(&b->text, json_string_value(item), json_string_length(item));
        else
            write_value(&b->text, item);
        ends[kept++] = b->text.len_bytes;
    }
    if (!literal || !ends || b->text.failed)
        tri__build_fail(b, TRI_NOMEM, "no memory for a grammar");
    for (size_t i = 0; i < kept && !b->failed; i++) {
        literal[i] =
            (struct tri__literal){ b->text.data ? b->text.data + at : "", ends[i] - at, next };
        at = ends[i];
    }
    if (!b->failed)
        start = tri__put_literals(b, literal, kept);
    tri_free(literal);
    tri_free(ends);
    return start;
}

static uint32_t put_enum(struct tri__build *b, const struct tri__value_of *v, uint32_t next)
{
    const json_t *list = json_object_get(v->schema, "enum");
    const json_t *one = json_object_get(v->schema, "const");
    struct tri__value_of narrowed = *v;
    if (has(v->schema, "type"))
        narrowed.types &= tri__types_made(b, v->schema);
    if (!check_alone(b, v->schema, one ? "const" : "enum", true))
        return TRI__NOWHERE;
    if (one) {
        json_t *wrapped = json_pack("[O]", one);
        uint32_t start = put_listed(b, wrapped, &narrowed, next);
        json_decref(wrapped);
        return start;
    }
    if (!json_is_array(list))
        return tri__refuse(b, "enum", "must be a list");
    if (json_array_size(list) > TRI_GRAMMAR_MAX_ENUM)
        return tri__build_fail(b, TRI_LIMIT, "%s: keyword 'enum' at #%.200s: at most %d values",
                               b->root_name, b->path.len_bytes ? b->path.data : "",
                               TRI_GRAMMAR_MAX_ENUM);
    return put_listed(b, list, &narrowed, next);
}

/* ---- references ---- */

/* One step of a JSON pointer (RFC 6901, in a URI fragment). */
static bool next_token(const char **at, char *out, size_t room)
{
    size_t n = 0;
    for (const char *p = *at;; p++) {
        unsigned hex = 0;
        char c = *p;
        if (c == 0 || c == '/' || n + 1 >= room) {
            out[n] = 0;
            *at = p;
            return c == 0 || c == '/';
        }
        if (c == '%' && sscanf(p + 1, "%2x", &hex) == 1 && p[1] && p[2]) {
            c = (char)hex;
            p += 2;
        } else if (c == '~' && (p[1] == '0' || p[1] == '1')) {
            c = *++p == '0' ? '~' : '/';
        }
        out[n++] = c;
    }
}

const json_t *tri__resolve(const json_t *root, const json_t *reference)
{
    const json_t *now = root;
    const char *ref = json_string_value(reference);
    char token[512];
    if (!ref || *ref++ != '#')
        return NULL;
    while (now && *ref) {
        if (*ref++ != '/' || !next_token(&ref, token, sizeof token))
            return NULL;
        unsigned i = 0;
        if (json_is_array(now))
            now = sscanf(token, "%u", &i) == 1 ? json_array_get(now, i) : NULL;
        else
            now = json_object_get(now, token);
    }
    return now;
}

static const struct tri__rule *find_rule(const struct tri__build *b, const struct tri__value_of *v)
{
    for (uint32_t i = 0; i < b->n_rules; i++)
        if (b->rule[i].schema == v->schema && b->rule[i].types == v->types &&
            b->rule[i].raw == v->raw)
            return &b->rule[i];
    return NULL;
}

/* A rule for the value, made if there is none; its start is known before its inside. */
static uint32_t rule_start(struct tri__build *b, const struct tri__value_of *v)
{
    const struct tri__rule *known = find_rule(b, v);
    if (!tri__build_work(b, b->n_rules) || known)
        return known ? known->start : TRI__NOWHERE;
    if (b->n_rules == b->cap_rules) {
        uint32_t cap = b->cap_rules ? b->cap_rules * 2 : 16;
        struct tri__rule *more = tri_realloc(b->rule, cap * sizeof *more);
        if (!more)
            return tri__build_fail(b, TRI_NOMEM, "no memory for a grammar");
        b->rule = more;
        b->cap_rules = cap;
    }
    uint32_t hole = tri__put_hole(b);
    b->rule[b->n_rules++] = (struct tri__rule){ v->schema, v->types, v->raw, hole };
    tri__fill_hole(b, hole, tri__put_value(b, v, b->end));
    return hole;
}

static uint32_t put_ref(struct tri__build *b, const struct tri__value_of *v, uint32_t next)
{
    struct tri__value_of target = *v;
    if (!check_alone(b, v->schema, "$ref", false))
        return TRI__NOWHERE;
    target.schema = tri__resolve(b->root, json_object_get(v->schema, "$ref"));
    if (!target.schema)
        return tri__refuse(b, "$ref", "must lead to a schema within this one (#/...)");
    return tri__put_call(b, rule_start(b, &target), next);
}

/* ---- choices ---- */

static uint32_t put_union(struct tri__build *b, const struct tri__value_of *v, const char *keyword,
                          uint32_t next)
{
    const json_t *list = json_object_get(v->schema, keyword);
    struct tri__value_of each = *v;
    uint32_t start = TRI__NOWHERE;
    if (has(v->schema, "type"))
        each.types &= tri__types_made(b, v->schema);
    if (!check_alone(b, v->schema, keyword, true))
        return TRI__NOWHERE;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return tri__refuse(b, keyword, "must be a list of schemas");
    if (!strcmp(keyword, "allOf") && json_array_size(list) > 1)
        return tri__refuse(b, keyword, "of more than one schema is not supported");
    for (size_t i = json_array_size(list); i-- > 0 && !b->failed;) {
        size_t was = tri__path_down(b, "%s/%zu", keyword, i);
        each.schema = json_array_get(list, i);
        start = tri__put_fork(b, tri__put_value(b, &each, next), start);
        tri__path_up(b, was);
    }
    if (!strcmp(keyword, "oneOf"))
        tri__check_one_of(b, list); /* after its schemas: they are well-formed */
    return start;
}

/* ---- a value ---- */

static uint32_t put_typed(struct tri__build *b, const json_t *schema, unsigned types, bool raw,
                          uint32_t next)
{
    uint32_t start = TRI__NOWHERE;
    if (types & TRI__NULL)
        start = tri__put_fork(b, tri__put_text(b, "null", 4, next), start);
    if (types & TRI__BOOLEAN) {
        start = tri__put_fork(b, tri__put_text(b, "false", 5, next), start);
        start = tri__put_fork(b, tri__put_text(b, "true", 4, next), start);
    }
    if (types & (TRI__INTEGER | TRI__NUMBER))
        start = tri__put_fork(b, put_numbers(b, schema, types, next), start);
    if (types & TRI__STRING)
        start = tri__put_fork(b, tri__put_string(b, schema, raw, next), start);
    if (types & TRI__ARRAY)
        start = tri__put_fork(b, tri__put_array(b, schema, next), start);
    if (types & TRI__OBJECT)
        start = tri__put_fork(b, tri__put_object(b, schema, next), start);
    return start;
}

uint32_t tri__put_any_value(struct tri__build *b, unsigned types, bool raw, uint32_t next)
{
    if (types != TRI__ANY_TYPE || raw)
        return put_typed(b, NULL, types, raw, next);
    if (b->any_value == TRI__NOWHERE) {
        b->any_value = tri__put_hole(b);
        tri__fill_hole(b, b->any_value, put_typed(b, NULL, TRI__ANY_TYPE, false, b->end));
    }
    return tri__put_call(b, b->any_value, next);
}

static uint32_t put_schema(struct tri__build *b, const struct tri__value_of *v, uint32_t next)
{
    static const char *const unions[] = { "anyOf", "oneOf", "allOf" };
    if (json_is_true(v->schema))
        return tri__put_any_value(b, v->types, v->raw, next);
    if (!json_is_object(v->schema))
        return tri__build_fail(b, TRI_UNSUPPORTED, "%s: at #%.200s: a schema must be an object",
                               b->root_name, b->path.len_bytes ? b->path.data : "");
    if (!check_keywords(b, v->schema))
        return TRI__NOWHERE;
    if (has(v->schema, "$ref"))
        return put_ref(b, v, next);
    for (int i = 0; i < 3; i++)
        if (has(v->schema, unions[i]))
            return put_union(b, v, unions[i], next);
    if (has(v->schema, "enum") || has(v->schema, "const"))
        return put_enum(b, v, next);
    unsigned types = v->types & tri__types_made(b, v->schema);
    return b->failed ? TRI__NOWHERE : put_typed(b, v->schema, types, v->raw, next);
}

/* Each level of schemas is one of the C stack, hence the limit; $ref leads to a level too. */
uint32_t tri__put_value(struct tri__build *b, const struct tri__value_of *v, uint32_t next)
{
    if (b->failed || v->types == 0 || next == TRI__NOWHERE || json_is_false(v->schema))
        return TRI__NOWHERE;
    if (b->depth >= TRI_GRAMMAR_MAX_SCHEMA_DEPTH)
        return tri__build_fail(b, TRI_LIMIT, "%s: schemas within each other more than %d deep",
                               b->root_name, TRI_GRAMMAR_MAX_SCHEMA_DEPTH);
    b->depth++;
    uint32_t start = put_schema(b, v, next);
    b->depth--;
    return start;
}
