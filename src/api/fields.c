/*
 * Fields that are accepted without effect must still be what they claim to be, and fields of
 * another dialect that would change the answer are refused rather than overlooked.
 */
#include "api/api_priv.h"

#include <stdio.h>
#include <string.h>

enum kind { TEXT, OBJECT, BOOL, LIST };

static bool is_kind(const json_t *v, enum kind kind)
{
    return kind == TEXT     ? json_is_string(v)
           : kind == OBJECT ? json_is_object(v)
           : kind == LIST   ? json_is_array(v)
                            : json_is_boolean(v);
}

static bool check_kinds(const json_t *body, struct tri__fault *fault)
{
    static const struct {
        const char *name;
        enum kind kind;
    } accepted[] = { { "user", TEXT },
                     { "metadata", OBJECT },
                     { "store", BOOL },
                     { "service_tier", TEXT },
                     { "safety_identifier", TEXT },
                     { "prompt_cache_key", TEXT },
                     { "session_id", TEXT },
                     { "include", LIST },
                     { "truncation", TEXT },
                     { "verbosity", TEXT },
                     { "chat_template_kwargs", OBJECT },
                     { "output_config", OBJECT },
                     { "skip_special_tokens", BOOL },
                     { "reasoning", OBJECT },
                     { "text", OBJECT } };
    static const char *const names[] = { "a text", "an object", "true or false", "a list" };
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        const json_t *v = json_object_get(body, accepted[i].name);
        if (v && !json_is_null(v) && !is_kind(v, accepted[i].kind))
            return tri__fault_bad(fault, accepted[i].name, "%s must be %s", accepted[i].name,
                                  names[accepted[i].kind]);
    }
    return true;
}

static bool is_on(const json_t *v)
{
    return v && (json_is_true(v) || (json_is_integer(v) && json_integer_value(v) != 0) ||
                 json_array_size(v) > 0 || json_object_size(v) > 0);
}

/* Messages and responses answer with one text, without log probabilities. */
static bool check_foreign(const json_t *body, struct tri__fault *fault)
{
    static const char *const foreign[] = { "logprobs", "top_logprobs", "echo",
                                           "best_of",  "logit_bias",   "response_format" };
    const json_t *n = json_object_get(body, "n");
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (is_on(json_object_get(body, foreign[i])))
            return tri__fault_bad(fault, foreign[i], "%s is not supported on this path",
                                  foreign[i]);
    return !n || (json_is_integer(n) && json_integer_value(n) == 1) || json_is_null(n) ||
           tri__fault_bad(fault, "n", "only one answer is given on this path");
}

static bool check_responses(const json_t *body, struct tri__fault *fault)
{
    const json_t *include = json_object_get(body, "include");
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *what = json_string_value(json_array_get(include, i));
        if (what && strstr(what, "logprobs"))
            return tri__fault_bad(fault, "include", "log probabilities are not told on this path");
    }
    return !is_on(json_object_get(body, "prompt")) ||
           tri__fault_bad(fault, "prompt", "prompt templates are not stored here");
}

/* --- tools ----------------------------------------------------------------------------------- */

static const char *tool_name(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

/* OpenAI's form, each name once: what a call means must be certain. */
static bool check_tools(const json_t *tools, const char *where, struct tri__fault *fault)
{
    char param[96];
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const char *type = json_string_value(json_object_get(tool, "type"));
        const char *name = tool_name(tool);
        snprintf(param, sizeof param, "%s[%zu]", where, i);
        if (!type || strcmp(type, "function") != 0 || !name || !*name)
            return tri__fault_bad(fault, param,
                                  "a tool has the type function and a named function");
        for (size_t k = 0; k < i; k++)
            if (!strcmp(name, tool_name(json_array_get(tools, k))))
                return tri__fault_bad(fault, param, "another tool has this name");
    }
    return true;
}

/* Tools that come in the middle of a chat: in a system message that holds nothing else. */
static bool check_late_tools(const json_t *messages, struct tri__fault *fault)
{
    char where[64];
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i), *tools = json_object_get(m, "tools");
        const json_t *content = json_object_get(m, "content");
        const char *role = json_string_value(json_object_get(m, "role"));
        if (json_array_size(tools) == 0)
            continue;
        snprintf(where, sizeof where, "messages[%zu].tools", i);
        if (!role || strcmp(role, "system") != 0 || json_string_length(content) > 0 ||
            json_array_size(content) > 0)
            return tri__fault_bad(fault, where,
                                  "tools belong into a system message without content");
        if (!check_tools(tools, where, fault))
            return false;
    }
    return true;
}

bool tri__fields_check(const json_t *body, enum tri__dialect dialect, struct tri__fault *fault)
{
    bool one_text = dialect == TRI__MESSAGES || dialect == TRI__RESPONSES;
    return check_kinds(body, fault) && (!one_text || check_foreign(body, fault)) &&
           (dialect != TRI__RESPONSES || check_responses(body, fault)) &&
           (dialect != TRI__CHAT || (check_tools(json_object_get(body, "tools"), "tools", fault) &&
                                     check_late_tools(json_object_get(body, "messages"), fault)));
}
