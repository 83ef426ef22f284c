/*
 * What a request promises about the form of its answer (response_format, text.format,
 * output_config.format, structured_outputs, tools and tool_choice), as a grammar. Equal promises
 * share one compiled grammar. Compiling runs where bodies are prepared, never on the engine's
 * thread, and within the grammar room's limits.
 */
#include "api/api_priv.h"

#include <stdio.h>
#include <string.h>
#include "base/json.h"

enum { MAX_KEY_BYTES = 2 * TRI_GRAMMAR_MAX_SCHEMA_BYTES };

/* ---- a grammar as the engine's constraint ---- */

struct constraint {
    struct tri_constraint c;
    struct tri_matcher *matcher;
};

static const uint64_t *allowed(void *arg, size_t *words, struct tri_error *err)
{
    struct constraint *k = arg;
    *words = tri_matcher_words(k->matcher);
    return tri_matcher_allowed(k->matcher, err);
}

static void take(void *arg, int32_t id)
{
    struct constraint *k = arg;
    bool taken = tri_matcher_take(k->matcher, id);
    (void)taken; /* it was allowed; if the two disagree the next mask says so */
}

static bool done(void *arg)
{
    struct constraint *k = arg;
    return tri_matcher_done(k->matcher);
}

const struct tri_constraint *tri__constraint_open(struct tri_grammar *grammar,
                                                  struct tri_error *err)
{
    struct constraint *k = tri_calloc(1, sizeof *k);
    if (!k) {
        tri_fail(err, TRI_NOMEM, "no memory for a grammar");
        return NULL;
    }
    if (tri_matcher_open(&k->matcher, grammar, err) != TRI_OK) {
        tri_free(k);
        return NULL;
    }
    k->c = (struct tri_constraint){ allowed, take, done, k };
    return &k->c;
}

void tri__constraint_drop(void *arg)
{
    struct constraint *k = arg;
    tri_matcher_close(k->matcher);
    tri_free(k);
}

/* ---- what is asked for ---- */

struct asked {
    struct tri_grammar_request r;
    json_t *wrapped; /* a new reference, or NULL */
    bool lenient;    /* a schema beyond the subset means JSON alone: "strict": false */
};

static bool take_schema(struct asked *a, const json_t *schema, const char *name,
                        struct tri__fault *fault)
{
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return tri__fault_bad(fault, name, "%s must be a schema (an object)", name);
    a->r.kind = TRI_GRAMMAR_SCHEMA;
    a->r.schema = schema;
    a->r.schema_name = name;
    return true;
}

/* {"type": "text" | "json_object" | "json_schema", ...}; `at` names it. */
static bool take_format(struct asked *a, const json_t *format, const char *at,
                        struct tri__fault *fault)
{
    const char *type = json_string_value(json_object_get(format, "type"));
    const json_t *outer = json_object_get(format, "json_schema");
    if (!format || json_is_null(format))
        return true;
    if (json_is_string(format))
        type = json_string_value(format);
    if (type && !strcmp(type, "text"))
        return true;
    if (type && !strcmp(type, "json_object")) {
        a->r.kind = TRI_GRAMMAR_JSON;
        return true;
    }
    if (!type || strcmp(type, "json_schema") != 0)
        return tri__fault_bad(fault, at, "%s.type must be text, json_object or json_schema", at);
    if (!outer) /* responses and messages: the format holds the schema itself */
        outer = format;
    a->lenient = json_is_false(json_object_get(outer, "strict"));
    const json_t *schema = json_object_get(outer, "schema");
    if (!schema)
        schema = json_object_get(outer, "json_schema");
    if (!schema && outer != format)
        schema = outer; /* K3's encoder takes it too */
    if (!strcmp(at, "response_format"))
        return take_schema(a, schema, "response_format.json_schema.schema", fault);
    return take_schema(
        a, schema,
        !strcmp(at, "text.format") ? "text.format.schema" : "output_config.format.schema", fault);
}

static bool take_value(struct asked *a, const json_t *v, const char *form, const char *name,
                       struct tri__fault *fault)
{
    if (!strcmp(form, "json")) {
        if (json_is_string(v)) {
            struct tri_error err = { 0 };
            size_t bytes = json_string_length(v);
            if (tri_json_parse(&a->wrapped, name, json_string_value(v), bytes, bytes, &err) !=
                TRI_OK)
                return err.status == TRI_NOMEM
                           ? tri__fault_from(fault, &err)
                           : tri__fault_bad(fault, name, "%s holds no valid JSON", name);
            v = a->wrapped;
        }
        return take_schema(a, v, name, fault);
    }
    bool choice = !strcmp(form, "choice");
    if (choice ? !json_is_array(v) : !json_is_string(v))
        return tri__fault_bad(fault, name, "%s must be a %s", name, choice ? "list" : "string");
    a->r.kind = choice ? TRI_GRAMMAR_CHOICE : TRI_GRAMMAR_REGEX;
    a->r.schema = v;
    a->r.schema_name = name;
    return true;
}

/* vLLM's: structured_outputs {json, regex, choice, json_object}, and the older guided_*. */
static bool take_extras(struct asked *a, const json_t *body, struct tri__fault *fault)
{
    static const struct {
        const char *form, *name, *older;
    } forms[] = { { "json", "structured_outputs.json", "guided_json" },
                  { "regex", "structured_outputs.regex", "guided_regex" },
                  { "choice", "structured_outputs.choice", "guided_choice" } };
    const json_t *extras = json_object_get(body, "structured_outputs");
    if (extras && !json_is_null(extras) && !json_is_object(extras))
        return tri__fault_bad(fault, "structured_outputs", "structured_outputs must be an object");
    for (size_t i = 0; i < 3; i++) {
        const json_t *v = json_object_get(extras, forms[i].form);
        const json_t *older = json_object_get(body, forms[i].older);
        const char *name = v && !json_is_null(v) ? forms[i].name : forms[i].older;
        if (!v || json_is_null(v))
            v = older;
        if (!v || json_is_null(v))
            continue;
        if (a->r.kind != TRI_GRAMMAR_TEXT)
            return tri__fault_bad(fault, name, "the answer's form is given twice");
        if (!take_value(a, v, forms[i].form, name, fault))
            return false;
    }
    if (json_is_true(json_object_get(extras, "json_object")))
        a->r.kind = TRI_GRAMMAR_JSON;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)extras, key, value)
    {
        bool known = !strcmp(key, "json") || !strcmp(key, "regex") || !strcmp(key, "choice") ||
                     !strcmp(key, "json_object");
        if (!known && !json_is_null(value) && !json_is_false(value))
            return tri__fault_bad(fault, "structured_outputs", "%.40s is not supported here", key);
    }
    return true;
}

static bool take_answer(struct asked *a, const json_t *body, enum tri__dialect dialect,
                        struct tri__fault *fault)
{
    const json_t *text = json_object_get(json_object_get(body, "text"), "format");
    const json_t *output = json_object_get(json_object_get(body, "output_config"), "format");
    if (!output)
        output = json_object_get(body, "output_format");
    if (dialect == TRI__RESPONSES)
        return take_format(a, text, "text.format", fault) && take_extras(a, body, fault);
    if (dialect == TRI__MESSAGES)
        return take_format(a, output, "output_config.format", fault) && take_extras(a, body, fault);
    return take_format(a, json_object_get(body, "response_format"), "response_format", fault) &&
           take_extras(a, body, fault);
}

/* ---- tools ---- */

static const json_t *function_of(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return function ? function : tool;
}

/* Declared in `tools`, and by system messages as the conversation goes. New references. */
static json_t *all_tools(const json_t *body)
{
    json_t *all = json_array();
    const json_t *messages = json_object_get(body, "messages");
    const json_t *lists = json_object_get(body, "tools");
    for (size_t m = 0; all && m <= json_array_size(messages); m++) {
        for (size_t i = 0; i < json_array_size(lists); i++) {
            json_t *tool = json_array_get(lists, i);
            if (json_is_string(json_object_get(function_of(tool), "name")))
                json_array_append(all, tool);
        }
        const json_t *message = json_array_get(messages, m);
        const char *role = json_string_value(json_object_get(message, "role"));
        lists = role && !strcmp(role, "system") ? json_object_get(message, "tools") : NULL;
    }
    return all;
}

static bool has_tool(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!strcmp(
                json_string_value(json_object_get(function_of(json_array_get(tools, i)), "name")),
                name))
            return true;
    return false;
}

static bool take_calls(struct asked *a, const struct tri__exchange *x, const json_t *tools,
                       struct tri__fault *fault)
{
    const struct tri__params *p = &x->p;
    if (json_array_size(tools) == 0)
        return true;
    if (p->only_tool && !has_tool(tools, p->only_tool))
        return tri__fault_bad(fault, "tool_choice",
                              "tool_choice names a tool that is not declared");
    a->r.tools = tools;
    a->r.only_tool = p->only_tool;
    a->r.one_call = p->one_call;
    a->r.calls = p->chat.tool_choice == TRI_TOOLS_NONE       ? TRI_GRAMMAR_NO_CALLS
                 : p->chat.tool_choice == TRI_TOOLS_REQUIRED ? TRI_GRAMMAR_MUST_CALL
                                                             : TRI_GRAMMAR_MAY_CALL;
    return true;
}

/* ---- compiling ---- */

/* All that the grammar depends on. */
static void write_key(struct tri_buf *key, const struct asked *a)
{
    const struct tri_grammar_request *r = &a->r;
    tri_buf_printf(key, "%d %d %d %d %d %s\n", (int)r->start, (int)r->kind, (int)r->calls,
                   r->one_call, a->lenient, r->only_tool ? r->only_tool : "");
    if (r->schema)
        tri__put_json(key, r->schema);
    for (size_t i = 0; r->calls != TRI_GRAMMAR_NO_CALLS && i < json_array_size(r->tools); i++) {
        tri_buf_putc(key, '\n');
        tri__put_json(key, json_array_get(r->tools, i));
    }
}

static bool refuse(struct tri__fault *fault, const struct tri_error *err)
{
    char param[sizeof fault->param];
    size_t n = strcspn(err->text, ":");
    if (err->status != TRI_UNSUPPORTED && err->status != TRI_LIMIT)
        return tri__fault_from(fault, err);
    snprintf(param, sizeof param, "%.*s", (int)(n < sizeof param ? n : sizeof param - 1),
             err->text);
    return tri__fault_bad(fault, param, "%s", err->text);
}

/* A grammar that was never asked for, or not lately. Those that are kept make room for it. */
static enum tri_status compile_new(struct tri_api *api, struct asked *a, struct tri_grammar **out,
                                   struct tri_error *err)
{
    enum tri_status st = tri_grammar_compile(out, api->vocab, &a->r, err);
    if (st == TRI_UNSUPPORTED && a->lenient && a->r.kind == TRI_GRAMMAR_SCHEMA) {
        a->r.kind = TRI_GRAMMAR_JSON;
        *err = (struct tri_error){ 0 };
        st = tri_grammar_compile(out, api->vocab, &a->r, err);
    }
    if (st == TRI_BUDGET) {
        tri_grammar_cache_clear(api->grammars);
        *err = (struct tri_error){ 0 };
        st = tri_grammar_compile(out, api->vocab, &a->r, err);
    }
    return st;
}

static bool compile(struct tri__exchange *x, struct asked *a, struct tri__fault *fault)
{
    struct tri_api *api = x->api;
    struct tri_error err = { 0 };
    struct tri_buf key;
    tri_buf_init(&key, MAX_KEY_BYTES);
    write_key(&key, a);
    if (key.failed || key.len_bytes > TRI_GRAMMAR_MAX_SCHEMA_BYTES) {
        tri_buf_fini(&key);
        return tri__fault_bad(fault, a->r.schema_name ? a->r.schema_name : "tools",
                              "the schemas of a request have at most %d bytes",
                              TRI_GRAMMAR_MAX_SCHEMA_BYTES);
    }
    enum tri_status st = TRI_OK;
    x->grammar = tri_grammar_cache_find(api->grammars, key.data, key.len_bytes);
    if (!x->grammar) {
        st = compile_new(api, a, &x->grammar, &err);
        if (st == TRI_OK)
            tri_grammar_cache_add(api->grammars, key.data, key.len_bytes, x->grammar);
    }
    tri_buf_fini(&key);
    if (st == TRI_LIMIT && a->r.most_work)
        return false; /* whatever limit it was: told by the one who has the time */
    return x->grammar || refuse(fault, &err);
}

bool tri__structured_prepare(struct tri__exchange *x, uint64_t most_work, struct tri__fault *fault)
{
    struct asked a = {
        .r = { .end_ids = x->p.end_ids, .n_end_ids = x->p.n_end_ids, .most_work = most_work }
    };
    json_t *tools = x->prompt ? all_tools(x->body) : NULL;
    a.r.start = x->prompt ? tri_prompt_start(x->prompt) : TRI_CHANNEL_NONE;
    bool ok =
        take_answer(&a, x->body, x->endpoint->dialect, fault) && take_calls(&a, x, tools, fault);
    if (ok && (a.r.kind != TRI_GRAMMAR_TEXT || a.r.tools))
        ok = compile(x, &a, fault);
    json_decref(tools);
    json_decref(a.wrapped);
    return ok;
}
