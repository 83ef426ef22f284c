/*
 * oneOf: exactly one of its schemas holds. A grammar says "one of them", so it is taken where no
 * value that one of them makes can also be a value of another; what cannot be told apart by what is
 * looked at here (types, listed values, ranges of numbers, members that an object must or must not
 * have) is refused. What a schema makes is narrower than what it holds for: see
 * tri__additional and tri__types_made.
 */
#include <stdio.h>
#include <string.h>
#include "grammar/grammar_priv.h"

enum { MAX_LEVELS = 24 }; /* of schemas within each other, references and choices */

struct pair {
    struct tri__build *b;
    unsigned level;
};

static bool may_hold(struct pair *p, const json_t *made, const json_t *held);

/* ---- listed values ---- */

static bool is_listed(const json_t *schema)
{
    return json_object_get(schema, "const") || json_object_get(schema, "enum");
}

static size_t listed(const json_t *schema)
{
    return json_object_get(schema, "const") ? 1 : json_array_size(json_object_get(schema, "enum"));
}

static const json_t *value_at(const json_t *schema, size_t i)
{
    const json_t *one = json_object_get(schema, "const");
    return one ? one : json_array_get(json_object_get(schema, "enum"), i);
}

/* 1 and 1.0 are the same value. */
static bool is_equal(const json_t *x, const json_t *y)
{
    double a = json_number_value(x), b = json_number_value(y);
    if (json_is_number(x) && json_is_number(y))
        return !(a < b) && !(a > b);
    bool nested = json_is_object(x) || json_is_array(x);
    return json_equal(x, y) || (nested && json_typeof(x) == json_typeof(y)); /* may hold 1.0 */
}

/* Types of values that the schema holds for. */
static unsigned types_held(struct tri__build *b, const json_t *schema)
{
    unsigned types = 0;
    if (json_object_get(schema, "type"))
        return tri__types_made(b, schema);
    for (size_t i = 0; i < listed(schema); i++)
        types |= tri__type_of(value_at(schema, i));
    return is_listed(schema) ? types : TRI__ANY_TYPE;
}

static bool value_may_hold(struct pair *p, const json_t *value, const json_t *schema)
{
    if (!tri__build_work(p->b, 1 + listed(schema)))
        return true;
    if (!(tri__type_of(value) & types_held(p->b, schema)))
        return false;
    for (size_t i = 0; i < listed(schema); i++)
        if (is_equal(value, value_at(schema, i)))
            return true;
    return !is_listed(schema);
}

static bool listed_may_hold(struct pair *p, const json_t *list, const json_t *other)
{
    for (size_t i = 0; i < listed(list); i++)
        if (value_may_hold(p, value_at(list, i), other))
            return true;
    return false;
}

/* ---- numbers ---- */

/* Is every number of `a` below every number of `b`? */
static bool is_below(const json_t *a, const json_t *b)
{
    const json_t *most = json_object_get(a, "maximum"), *least = json_object_get(b, "minimum");
    const json_t *under = json_object_get(a, "exclusiveMaximum");
    const json_t *over = json_object_get(b, "exclusiveMinimum");
    const json_t *top = json_is_number(most) ? most : json_is_number(under) ? under : NULL;
    const json_t *bottom = json_is_number(least) ? least : json_is_number(over) ? over : NULL;
    if (!top || !bottom)
        return false;
    double x = json_number_value(top), y = json_number_value(bottom);
    bool open = (top == under) || (bottom == over);
    return x < y || (open && !(x > y));
}

/* ---- objects ---- */

static bool member_may_hold(struct pair *p, const json_t *made, const json_t *held,
                            const char *name)
{
    const json_t *of_made = json_object_get(json_object_get(made, "properties"), name);
    const json_t *of_held = json_object_get(json_object_get(held, "properties"), name);
    if (of_made && of_held)
        return may_hold(p, of_made, of_held);
    return of_held || !json_is_false(json_object_get(held, "additionalProperties"));
}

static bool object_may_hold(struct pair *p, const json_t *made, const json_t *held)
{
    const json_t *must_made = json_object_get(made, "required");
    const json_t *must_held = json_object_get(held, "required");
    const json_t *properties = json_object_get(made, "properties");
    if (!tri__build_work(p->b, json_array_size(must_made) + json_array_size(must_held)))
        return true;
    for (size_t i = 0; i < json_array_size(must_held) && !tri__additional(made); i++) {
        const char *name = json_string_value(json_array_get(must_held, i));
        if (name && !json_object_get(properties, name))
            return false; /* never there, and must be */
    }
    for (size_t i = 0; i < json_array_size(must_made); i++) {
        const char *name = json_string_value(json_array_get(must_made, i));
        if (name && !member_may_hold(p, made, held, name))
            return false; /* always there, and may not be, or not like that */
    }
    return true;
}

/* ---- schemas ---- */

static const json_t *choices(const json_t *schema)
{
    static const char *const names[] = { "anyOf", "oneOf", "allOf" };
    for (size_t i = 0; i < 3; i++)
        if (json_object_get(schema, names[i]))
            return json_object_get(schema, names[i]);
    return NULL;
}

static bool typed_may_hold(struct pair *p, const json_t *made, const json_t *held)
{
    unsigned types = tri__types_made(p->b, made) & types_held(p->b, held);
    if (is_listed(made))
        return listed_may_hold(p, made, held);
    if (is_listed(held))
        return listed_may_hold(p, held, made);
    if (types & ~(unsigned)(TRI__OBJECT | TRI__INTEGER | TRI__NUMBER))
        return true;
    if (types & TRI__OBJECT && object_may_hold(p, made, held))
        return true;
    return types & (TRI__INTEGER | TRI__NUMBER) && !is_below(made, held) && !is_below(held, made);
}

static bool schemas_may_hold(struct pair *p, const json_t *made, const json_t *held)
{
    const json_t *ref = json_object_get(made, "$ref"), *held_ref = json_object_get(held, "$ref");
    const json_t *some = choices(made), *held_some = choices(held);
    if (ref || held_ref)
        return may_hold(p, ref ? tri__resolve(p->b->root, ref) : made,
                        held_ref ? tri__resolve(p->b->root, held_ref) : held);
    if (!some && !held_some)
        return typed_may_hold(p, made, held);
    if (json_object_get(made, "type") && !(tri__types_made(p->b, made) & types_held(p->b, held)))
        return false;
    const json_t *list = some ? some : held_some;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        if (some ? may_hold(p, one, held) : may_hold(p, made, one))
            return true;
    }
    return false;
}

/* May a value that `made` makes be one that `held` holds for? True when in doubt. */
static bool may_hold(struct pair *p, const json_t *made, const json_t *held)
{
    if (json_is_false(made) || json_is_false(held))
        return false;
    if (!json_is_object(made) || !json_is_object(held) || p->level >= MAX_LEVELS ||
        !tri__build_work(p->b, 1))
        return true;
    p->level++;
    bool may = schemas_may_hold(p, made, held);
    p->level--;
    return may;
}

void tri__check_one_of(struct tri__build *b, const json_t *list)
{
    struct pair p = { .b = b };
    char why[120];
    for (size_t i = 0; i < json_array_size(list) && !b->failed && !b->loose; i++)
        for (size_t k = 0; k < json_array_size(list) && !b->failed; k++) {
            if (k == i || !may_hold(&p, json_array_get(list, i), json_array_get(list, k)))
                continue;
            snprintf(why, sizeof why,
                     "of schemas %zu and %zu both may hold for a value: say anyOf if that is meant",
                     i < k ? i : k, i < k ? k : i);
            tri__refuse(b, "oneOf", why);
            return;
        }
}
