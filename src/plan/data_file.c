/* The compiled-in data files and small helpers to read them. */
#include "plan/plan_priv.h"

#include <ctype.h>
#include <string.h>

extern const unsigned char tri__data_devices[], tri__data_engines[], tri__data_measured[];
extern const size_t tri__data_devices_bytes, tri__data_engines_bytes, tri__data_measured_bytes;

enum tri_status tri__plan_data(json_t **out, const char *name, struct tri_error *err)
{
    const struct {
        const char *name;
        const unsigned char *text;
        size_t bytes;
    } files[] = {
        { "devices", tri__data_devices, tri__data_devices_bytes },
        { "engines", tri__data_engines, tri__data_engines_bytes },
        { "measured", tri__data_measured, tri__data_measured_bytes },
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (!strcmp(files[i].name, name))
            return tri_json_parse(out, name, (const char *)files[i].text, files[i].bytes,
                                  TRI_ARCH_MAX_CONFIG_BYTES, err);
    return tri_fail(err, TRI_ARG, "no data file %s", name);
}

double tri__num(const json_t *object, const char *key, double fallback)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : fallback;
}

const char *tri__str(const json_t *object, const char *key, const char *fallback)
{
    const json_t *value = json_object_get(object, key);
    return json_is_string(value) ? json_string_value(value) : fallback;
}

void tri__plain(char *out, size_t out_bytes, const char *text)
{
    size_t n = 0;
    for (; *text && n + 1 < out_bytes; text++)
        if (isalnum((unsigned char)*text))
            out[n++] = (char)tolower((unsigned char)*text);
    out[n] = 0;
}
