/*
 * Typed reading of config keys. A value of the wrong kind or outside its limits is refused in one
 * line that names the key, shows the value and says what is allowed. JSON null means absent, as in
 * the official config class.
 */
#include "spec/spec_priv.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"

enum { SHOWN_VALUE_BYTES = 48 };

const json_t *tri__spec_get(const struct tri__spec_reader *r, const char *key)
{
    const json_t *value = json_object_get(r->object, key);
    return json_is_null(value) ? NULL : value;
}

/* The value as JSON text, shortened; the kind of a list or an object. */
static void show_value(const json_t *value, char *out, size_t out_bytes)
{
    if (!value || json_is_null(value)) {
        snprintf(out, out_bytes, "%s", value ? "null" : "absent");
        return;
    }
    if (json_is_array(value) || json_is_object(value)) {
        snprintf(out, out_bytes, "%s", json_is_array(value) ? "a list" : "an object");
        return;
    }
    char text[256];
    size_t bytes = json_dumpb(value, text, sizeof text, JSON_ENCODE_ANY);
    tri_printable(out, out_bytes, text, bytes < sizeof text ? bytes : sizeof text);
}

void tri__spec_refuse(struct tri__spec_reader *r, enum tri_status status, const char *key,
                      const char *format, ...)
{
    char value[SHOWN_VALUE_BYTES], allowed[256];
    va_list ap;
    if (r->st)
        return;
    va_start(ap, format);
    vsnprintf(allowed, sizeof allowed, format, ap);
    va_end(ap);
    show_value(json_object_get(r->object, key), value, sizeof value);
    r->st =
        tri_fail(r->err, status, "%s: %s%s is %s; %s", r->file, r->section, key, value, allowed);
}

void tri__spec_ints(struct tri__spec_reader *r, void *base, const struct tri__spec_int_key *keys,
                    size_t count)
{
    for (size_t i = 0; i < count && !r->st; i++) {
        const struct tri__spec_int_key *k = &keys[i];
        int64_t *field = (int64_t *)(void *)((char *)base + k->offset);
        const json_t *value = tri__spec_get(r, k->key);
        if (!value && k->absent != TRI__SPEC_REQUIRED) {
            *field = k->absent;
            continue;
        }
        if (!json_is_integer(value) || json_integer_value(value) < k->lo ||
            json_integer_value(value) > k->hi)
            tri__spec_refuse(r, TRI_FORMAT, k->key, "it must be a whole number from %lld to %lld",
                             (long long)k->lo, (long long)k->hi);
        *field = json_integer_value(value);
    }
}

bool tri__spec_bool(struct tri__spec_reader *r, const char *key, bool absent)
{
    const json_t *value = tri__spec_get(r, key);
    if (!value)
        return absent;
    if (!json_is_boolean(value))
        tri__spec_refuse(r, TRI_FORMAT, key, "it must be true or false");
    return json_is_true(value);
}

double tri__spec_number(struct tri__spec_reader *r, const char *key, double lo, double hi,
                        double absent)
{
    const json_t *value = tri__spec_get(r, key);
    if (!value)
        return absent;
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= lo && number <= hi))
        tri__spec_refuse(r, TRI_FORMAT, key, "it must be a number from %g to %g", lo, hi);
    return number;
}

const char *tri__spec_text(struct tri__spec_reader *r, const char *key, const char *absent)
{
    const json_t *value = tri__spec_get(r, key);
    if (!value)
        return absent;
    if (!json_is_string(value))
        tri__spec_refuse(r, TRI_FORMAT, key, "it must be a string");
    return json_is_string(value) ? json_string_value(value) : absent;
}
