/* The limits of requests: their table, and the checks that need nothing but the body's text. */
#include "api/api_priv.h"

#include <string.h>

static const struct {
    const char *name;
    int64_t usual, least, most;
    const char *help;
} table[TRI_API_LIMITS] = {
#define TRI_ROW(name, usual, least, most, help) { #name, usual, least, most, help },
    TRI_API_LIMIT_TABLE(TRI_ROW)
#undef TRI_ROW
};

struct tri_api_limits tri_api_limits_default(void)
{
    struct tri_api_limits limits;
    for (int i = 0; i < TRI_API_LIMITS; i++)
        limits.most[i] = table[i].usual;
    return limits;
}

bool tri_api_limit_set(struct tri_api_limits *limits, const char *name, size_t name_bytes,
                       int64_t value)
{
    for (int i = 0; i < TRI_API_LIMITS; i++) {
        if (strlen(table[i].name) != name_bytes || memcmp(table[i].name, name, name_bytes) != 0)
            continue;
        if (value < table[i].least || value > table[i].most)
            return false;
        limits->most[i] = value;
        return true;
    }
    return false;
}

const char *tri_api_limit_name(enum tri_api_limit limit)
{
    return table[limit].name;
}

bool tri__limits_check(const struct tri_api *api, enum tri_api_limit limit, int64_t value)
{
    if (value <= api->options.limits.most[limit])
        return true;
    tri__gauges_limit(api->gauges, table[limit].name);
    return false;
}

bool tri__limits_field(const struct tri_api *api, enum tri_api_limit limit, int64_t value,
                       const char *param, struct tri__fault *fault)
{
    return tri__limits_check(api, limit, value) ||
           tri__fault_bad(fault, param, "%s: %lld %s, at most %lld are taken", param,
                          (long long)value, table[limit].help,
                          (long long)api->options.limits.most[limit]);
}

/*
 * Depth and number of values before any parser allocates: an upper bound, as the text may be no
 * JSON at all. 64 MiB of "[1,1,1" would otherwise become gigabytes of small objects.
 */
bool tri__limits_check_json(const struct tri_api *api, const char *text, size_t bytes,
                            struct tri__fault *fault)
{
    int64_t depth = 0, deepest = 0, values = 1;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
            continue;
        }
        in_string = c == '"';
        values += c == ',' || c == '{' || c == '[' || c == ':';
        if (c == '{' || c == '[')
            deepest = ++depth > deepest ? depth : deepest;
        else if (c == '}' || c == ']')
            depth--;
    }
    if (!tri__limits_check(api, TRI_API_LIMIT_json_depth, deepest))
        return tri__fault_bad(fault, NULL, "body: JSON nested deeper than %lld levels",
                              (long long)api->options.limits.most[TRI_API_LIMIT_json_depth]);
    if (!tri__limits_check(api, TRI_API_LIMIT_json_values, values))
        return tri__fault_bad(fault, NULL, "body: JSON of more than %lld values",
                              (long long)api->options.limits.most[TRI_API_LIMIT_json_values]);
    return true;
}

/* --- fields ---------------------------------------------------------------------------------- */

/* A list's or an object's members, or a number itself; 0 for anything else (judged later). */
static int64_t amount(const json_t *value)
{
    if (json_is_array(value))
        return (int64_t)json_array_size(value);
    if (json_is_object(value))
        return (int64_t)json_object_size(value);
    return json_is_integer(value) ? json_integer_value(value) : 0;
}

static bool check_stops(const struct tri_api *api, const json_t *stop, const char *name,
                        struct tri__fault *fault)
{
    if (json_is_string(stop))
        return tri__limits_field(api, TRI_API_LIMIT_stop_bytes, (int64_t)json_string_length(stop),
                                 name, fault);
    for (size_t i = 0; i < json_array_size(stop); i++)
        if (!tri__limits_field(api, TRI_API_LIMIT_stop_bytes,
                               (int64_t)json_string_length(json_array_get(stop, i)), name, fault))
            return false;
    return true;
}

static int64_t json_bytes(const json_t *value)
{
    return value ? (int64_t)json_dumpb(value, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) : 0;
}

static bool check_schemas(const struct tri_api *api, const json_t *body, struct tri__fault *fault)
{
    const json_t *chat = json_object_get(body, "response_format");
    const json_t *responses = json_object_get(json_object_get(body, "text"), "format");
    return tri__limits_field(api, TRI_API_LIMIT_tools_bytes,
                             json_bytes(json_object_get(body, "tools")), "tools", fault) &&
           tri__limits_field(api, TRI_API_LIMIT_schema_bytes, json_bytes(chat), "response_format",
                             fault) &&
           tri__limits_field(api, TRI_API_LIMIT_schema_bytes, json_bytes(responses), "text.format",
                             fault);
}

bool tri__limits_check_body(const struct tri_api *api, const json_t *body, struct tri__fault *fault)
{
    static const struct {
        const char *field;
        enum tri_api_limit limit;
    } counted[] = { { "messages", TRI_API_LIMIT_messages },
                    { "input", TRI_API_LIMIT_messages },
                    { "tools", TRI_API_LIMIT_tools },
                    { "stop", TRI_API_LIMIT_stop },
                    { "stop_sequences", TRI_API_LIMIT_stop },
                    { "stop_token_ids", TRI_API_LIMIT_stop_token_ids },
                    { "n", TRI_API_LIMIT_n },
                    { "best_of", TRI_API_LIMIT_n },
                    { "top_logprobs", TRI_API_LIMIT_top_logprobs },
                    { "logit_bias", TRI_API_LIMIT_logit_bias } };
    for (size_t i = 0; i < sizeof counted / sizeof counted[0]; i++)
        if (!tri__limits_field(api, counted[i].limit,
                               amount(json_object_get(body, counted[i].field)), counted[i].field,
                               fault))
            return false;
    return check_stops(api, json_object_get(body, "stop"), "stop", fault) &&
           check_stops(api, json_object_get(body, "stop_sequences"), "stop_sequences", fault) &&
           check_schemas(api, body, fault);
}
