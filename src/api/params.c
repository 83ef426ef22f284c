/*
 * Request fields: each is honoured within its range, accepted without effect, or refused by name
 * (serving.md 1.2). Unknown fields are ignored unless --strict-params.
 */
#include "api/api_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* --- readers: false only when the field is there and wrong ----------------------------------- */

static bool is_given(const json_t *body, const char *name, const json_t **value)
{
    *value = json_object_get(body, name);
    return *value && !json_is_null(*value);
}

static bool read_number(const json_t *body, const char *name, const double range[2], double *out,
                        struct tri__fault *fault)
{
    const json_t *v;
    if (!is_given(body, name, &v))
        return true;
    double x = json_number_value(v);
    if (!json_is_number(v) || !(x >= range[0] && x <= range[1]))
        return tri__fault_bad(fault, name, "%s must be a number from %g to %g", name, range[0],
                              range[1]);
    *out = x;
    return true;
}

static bool read_int(const json_t *body, const char *name, const int64_t range[2], int64_t *out,
                     struct tri__fault *fault)
{
    const json_t *v;
    if (!is_given(body, name, &v))
        return true;
    int64_t x = json_integer_value(v);
    if (!json_is_integer(v) || x < range[0] || x > range[1])
        return tri__fault_bad(fault, name, "%s must be a whole number from %lld to %lld", name,
                              (long long)range[0], (long long)range[1]);
    *out = x;
    return true;
}

static bool read_bool(const json_t *body, const char *name, bool *out, struct tri__fault *fault)
{
    const json_t *v;
    if (!is_given(body, name, &v))
        return true;
    if (!json_is_boolean(v))
        return tri__fault_bad(fault, name, "%s must be true or false", name);
    *out = json_is_true(v);
    return true;
}

#define RANGE(a, b)                                                                                \
    (const double[2])                                                                              \
    {                                                                                              \
        a, b                                                                                       \
    }
#define INTS(a, b)                                                                                 \
    (const int64_t[2])                                                                             \
    {                                                                                              \
        a, b                                                                                       \
    }

/* --- what is refused, and what is known ------------------------------------------------------ */

static const char *const refused[] = {
    "kv_transfer_params", "lora",      "lora_request",  "audio",        "prediction",
    "web_search_options", "functions", "function_call", "grammar",      "guided_grammar",
    "prompt_embeds",      "images",    "image_prompts", "suffix",       "use_beam_search",
    "mcp_servers",        "container", "background",    "conversation", "prompt_template"
};

static const char *const known[] = { "messages",
                                     "model",
                                     "max_tokens",
                                     "max_completion_tokens",
                                     "max_output_tokens",
                                     "temperature",
                                     "top_p",
                                     "top_k",
                                     "min_p",
                                     "presence_penalty",
                                     "frequency_penalty",
                                     "repetition_penalty",
                                     "logit_bias",
                                     "seed",
                                     "stop",
                                     "stop_sequences",
                                     "stop_token_ids",
                                     "ignore_eos",
                                     "min_tokens",
                                     "n",
                                     "best_of",
                                     "logprobs",
                                     "top_logprobs",
                                     "prompt_logprobs",
                                     "echo",
                                     "stream",
                                     "stream_options",
                                     "tools",
                                     "tool_choice",
                                     "parallel_tool_calls",
                                     "response_format",
                                     "reasoning_effort",
                                     "thinking",
                                     "chat_template_kwargs",
                                     "user",
                                     "metadata",
                                     "store",
                                     "service_tier",
                                     "safety_identifier",
                                     "prompt_cache_key",
                                     "cache_salt",
                                     "session_id",
                                     "priority",
                                     "return_token_ids",
                                     "return_progress",
                                     "timings_per_token",
                                     "prompt",
                                     "guided_json",
                                     "guided_regex",
                                     "guided_choice",
                                     "structured_outputs",
                                     "output_format",
                                     "system",
                                     "input",
                                     "instructions",
                                     "reasoning",
                                     "text",
                                     "include",
                                     "truncation",
                                     "previous_response_id",
                                     "output_config",
                                     "context_management",
                                     "prompt_cache_retention",
                                     "verbosity",
                                     "modalities",
                                     "max_tool_calls",
                                     "betas",
                                     "inference_geo",
                                     "skip_special_tokens",
                                     "client_metadata" };

static bool check_names(const json_t *body, bool strict, struct tri__fault *fault)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const json_t *v;
        if (is_given(body, refused[i], &v) && !json_is_false(v))
            return tri__fault_bad(fault, refused[i], "%s is not supported", refused[i]);
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)body, key, value)
    {
        bool found = !strict;
        for (size_t i = 0; i < sizeof known / sizeof known[0] && !found; i++)
            found = !strcmp(known[i], key);
        for (size_t i = 0; i < sizeof refused / sizeof refused[0] && !found; i++)
            found = !strcmp(refused[i], key); /* null: as if absent */
        if (!found)
            return tri__fault_bad(fault, key, "unknown field");
    }
    const json_t *m;
    if (is_given(body, "modalities", &m) &&
        (json_array_size(m) != 1 || !json_is_string(json_array_get(m, 0)) ||
         strcmp(json_string_value(json_array_get(m, 0)), "text") != 0))
        return tri__fault_bad(fault, "modalities", "only [\"text\"] is supported");
    return true;
}

/* --- sampling -------------------------------------------------------------------------------- */

static bool read_seed(struct tri__params *p, const json_t *body, struct tri__fault *fault)
{
    int64_t seed = 0;
    const json_t *v;
    if (!is_given(body, "seed", &v)) {
        ssize_t got = getrandom(&p->sampling.seed, sizeof p->sampling.seed, 0);
        TRI_ASSERT(got == (ssize_t)sizeof p->sampling.seed);
        return true;
    }
    if (!read_int(body, "seed", INTS(INT64_MIN, INT64_MAX), &seed, fault))
        return false;
    p->sampling.seed = (uint64_t)seed;
    return true;
}

static bool read_sampling(struct tri__params *p, const json_t *body, struct tri__fault *fault)
{
    struct tri_sampling *s = &p->sampling;
    *s = tri_sampling_default();
    s->top_p = 0.95;
    if (!read_number(body, "temperature", RANGE(0, 2), &s->temperature, fault) ||
        !read_number(body, "top_p", RANGE(0, 1), &s->top_p, fault) ||
        !read_number(body, "min_p", RANGE(0, 1), &s->min_p, fault) ||
        !read_int(body, "top_k", INTS(-1, INT32_MAX), &s->top_k, fault) ||
        !read_number(body, "presence_penalty", RANGE(-2, 2), &s->presence_penalty, fault) ||
        !read_number(body, "frequency_penalty", RANGE(-2, 2), &s->frequency_penalty, fault) ||
        !read_number(body, "repetition_penalty", RANGE(0.01, 100), &s->repetition_penalty, fault))
        return false;
    if (!(s->top_p > 0))
        return tri__fault_bad(fault, "top_p", "top_p must be above 0");
    return read_seed(p, body, fault);
}

static bool read_bias(struct tri__params *p, const struct tri_api *api, const json_t *body,
                      struct tri__fault *fault)
{
    const json_t *v;
    const char *key;
    json_t *bias;
    if (!is_given(body, "logit_bias", &v))
        return true;
    if (!json_is_object(v) || json_object_size(v) > TRI_ENGINE_MAX_BIAS)
        return tri__fault_bad(fault, "logit_bias", "logit_bias must be an object of at most %d ids",
                              TRI_ENGINE_MAX_BIAS);
    p->bias = tri_calloc(json_object_size(v) + 1, sizeof *p->bias);
    if (!p->bias)
        return tri__fault_is(fault, 503, "no_memory", "no memory");
    json_object_foreach((json_t *)(uintptr_t)v, key, bias)
    {
        char *end = NULL;
        errno = 0;
        long long id = strtoll(key, &end, 10);
        double x = json_number_value(bias);
        if (!*key || *end || errno || id < 0 || id >= tri_tokenizer_ranks(api->options.tok))
            return tri__fault_bad(fault, "logit_bias", "a key is not the id of an ordinary token");
        if (!json_is_number(bias) || !(x >= -100 && x <= 100))
            return tri__fault_bad(fault, "logit_bias", "a bias must be a number from -100 to 100");
        p->bias[p->n_bias++] =
            (struct tri_logit_bias){ (int32_t)id, x <= -100 ? (float)-INFINITY : (float)x };
    }
    return true;
}

/* --- ends ------------------------------------------------------------------------------------ */

static bool add_stop(struct tri__params *p, const json_t *v, const char *name,
                     struct tri__fault *fault)
{
    size_t bytes = json_string_length(v);
    if (!json_is_string(v) || bytes == 0 || bytes > TRI_STOP_MAX_BYTES ||
        strlen(json_string_value(v)) != bytes)
        return tri__fault_bad(fault, name, "a stop string has 1 to %d bytes and no NUL",
                              TRI_STOP_MAX_BYTES);
    if (p->n_stop == TRI_STOP_MAX_STRINGS)
        return tri__fault_bad(fault, name, "at most %d stop strings", TRI_STOP_MAX_STRINGS);
    p->stop[p->n_stop++] = json_string_value(v);
    return true;
}

static bool read_stops(struct tri__params *p, const json_t *body, const char *name,
                       struct tri__fault *fault)
{
    const json_t *v;
    if (!is_given(body, name, &v))
        return true;
    if (json_is_string(v))
        return add_stop(p, v, name, fault);
    if (!json_is_array(v))
        return tri__fault_bad(fault, name, "%s must be a string or a list of strings", name);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!add_stop(p, json_array_get(v, i), name, fault))
            return false;
    return true;
}

static bool read_stop_ids(struct tri__params *p, const struct tri_api *api, const json_t *body,
                          struct tri__fault *fault)
{
    const json_t *v;
    for (size_t i = 0; i < api->options.n_stop_ids; i++)
        p->end_ids[p->n_end_ids++] = (int32_t)api->options.stop_ids[i];
    if (!p->ignore_eos)
        for (size_t i = 0; i < api->options.n_stop_ids; i++)
            p->stop_ids[p->n_stop_ids++] = (int32_t)api->options.stop_ids[i];
    if (!is_given(body, "stop_token_ids", &v))
        return true;
    if (!json_is_array(v) || json_array_size(v) > (size_t)(TRI_ENGINE_MAX_STOP_IDS - p->n_stop_ids))
        return tri__fault_bad(fault, "stop_token_ids",
                              "stop_token_ids must be a list of at most %d",
                              (int)(TRI_ENGINE_MAX_STOP_IDS - p->n_stop_ids));
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *id = json_array_get(v, i);
        json_int_t x = json_integer_value(id);
        if (!json_is_integer(id) || x < 0 || x >= tri_tokenizer_tokens(api->options.tok))
            return tri__fault_bad(fault, "stop_token_ids", "stop_token_ids holds what is no id");
        p->stop_ids[p->n_stop_ids++] = (int32_t)x;
    }
    return true;
}

static bool read_length(struct tri__params *p, const json_t *body, enum tri__dialect dialect,
                        struct tri__fault *fault)
{
    static const char *const names[] = { "max_tokens", "max_completion_tokens",
                                         "max_output_tokens" };
    /* Nothing but the prompt's own log probabilities may be wanted. */
    bool echo = dialect == TRI__COMPLETIONS && json_is_true(json_object_get(body, "echo"));
    int64_t least = echo ? 0 : 1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *v;
        if (is_given(body, names[i], &v))
            p->max_tokens_given = true;
        if (!read_int(body, names[i], INTS(least, INT32_MAX), &p->max_tokens, fault))
            return false;
    }
    if (dialect == TRI__MESSAGES && !p->max_tokens_given)
        return tri__fault_bad(fault, "max_tokens", "max_tokens is required");
    if (dialect == TRI__COMPLETIONS && !p->max_tokens_given)
        p->max_tokens = 16; /* OpenAI's default here */
    p->prompt_only = p->max_tokens_given && p->max_tokens == 0;
    if (p->prompt_only)
        p->max_tokens = 1; /* as far as room for it goes */
    return read_int(body, "min_tokens", INTS(0, INT32_MAX), &p->min_tokens, fault);
}

/* --- thinking -------------------------------------------------------------------------------- */

static bool set_effort(struct tri__params *p, const struct tri_api *api, const char *param,
                       const char *text, struct tri__fault *fault)
{
    static const struct {
        const char *name;
        enum tri_effort effort;
    } efforts[] = { { "none", TRI_EFFORT_NONE },  { "minimal", TRI_EFFORT_LOW },
                    { "low", TRI_EFFORT_LOW },    { "high", TRI_EFFORT_HIGH },
                    { "xhigh", TRI_EFFORT_MAX },  { "max", TRI_EFFORT_MAX },
                    { "medium", TRI_EFFORT_HIGH } };
    for (size_t i = 0; i < sizeof efforts / sizeof efforts[0]; i++) {
        if (strcmp(text, efforts[i].name) != 0)
            continue;
        if (!strcmp(text, "medium") && !api->options.map_medium)
            break;
        p->chat.thinking = efforts[i].effort != TRI_EFFORT_NONE;
        p->chat.effort = efforts[i].effort;
        return true;
    }
    return tri__fault_bad(fault, param,
                          "%s: this model takes none, low, high or max (medium: start the server "
                          "with --map-medium)",
                          param);
}

static bool read_effort(struct tri__params *p, const struct tri_api *api, const json_t *in,
                        const char *name, const char *param, struct tri__fault *fault)
{
    const json_t *v;
    if (!is_given(in, name, &v))
        return true;
    if (!json_is_string(v))
        return tri__fault_bad(fault, param, "%s must be a string", param);
    return set_effort(p, api, param, json_string_value(v), fault);
}

static void turn_thinking(struct tri__params *p, bool on)
{
    p->chat.thinking = on;
    p->chat.effort = !on                                 ? TRI_EFFORT_NONE
                     : p->chat.effort == TRI_EFFORT_NONE ? TRI_EFFORT_MAX
                                                         : p->chat.effort;
}

static bool read_thinking_object(struct tri__params *p, const struct tri_api *api,
                                 const json_t *body, struct tri__fault *fault)
{
    const json_t *v;
    if (!is_given(body, "thinking", &v))
        return true;
    if (json_is_boolean(v)) {
        turn_thinking(p, json_is_true(v));
        return true;
    }
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!type || (strcmp(type, "enabled") && strcmp(type, "disabled") && strcmp(type, "adaptive")))
        return tri__fault_bad(fault, "thinking.type",
                              "thinking.type must be enabled, disabled or "
                              "adaptive");
    turn_thinking(p, strcmp(type, "disabled") != 0);
    int64_t budget = 0; /* Anthropic's, in tokens: the nearest of the efforts this model has */
    if (!read_int(v, "budget_tokens", INTS(1, INT32_MAX), &budget, fault))
        return false;
    if (budget && p->chat.thinking)
        p->chat.effort = budget <= 4096    ? TRI_EFFORT_LOW
                         : budget <= 16384 ? TRI_EFFORT_HIGH
                                           : TRI_EFFORT_MAX;
    return read_effort(p, api, v, "effort", "thinking.effort", fault);
}

static bool read_thinking(struct tri__params *p, const struct tri_api *api,
                          enum tri__dialect dialect, const json_t *body, struct tri__fault *fault)
{
    p->chat = TRI_CHAT_SETTINGS;
    p->chat.effort = TRI_EFFORT_MAX;
    if (dialect == TRI__MESSAGES) /* Anthropic's: only when asked for */
        turn_thinking(p, false);
    const json_t *kwargs = json_object_get(body, "chat_template_kwargs");
    bool on = p->chat.thinking;
    if (!read_effort(p, api, body, "reasoning_effort", "reasoning_effort", fault) ||
        !read_effort(p, api, json_object_get(body, "reasoning"), "effort", "reasoning.effort",
                     fault) ||
        !read_effort(p, api, json_object_get(body, "output_config"), "effort",
                     "output_config.effort", fault) ||
        !read_effort(p, api, kwargs, "thinking_effort", "chat_template_kwargs.thinking_effort",
                     fault))
        return false;
    on = p->chat.thinking;
    if (!read_bool(kwargs, "thinking", &on, fault) ||
        !read_bool(kwargs, "enable_thinking", &on, fault))
        return false;
    if (on != p->chat.thinking)
        turn_thinking(p, on);
    return read_thinking_object(p, api, body, fault);
}

/* --- tools ----------------------------------------------------------------------------------- */

/* The name in a tool_choice that is an object, and Anthropic's switch beside it. */
static bool read_named_choice(struct tri__params *p, const json_t *v, const char **text,
                              struct tri__fault *fault)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    const json_t *function = json_object_get(v, "function");
    bool one = false;
    if (!read_bool(v, "disable_parallel_tool_use", &one, fault))
        return false;
    p->one_call |= one;
    *text = type;
    if (!type || (strcmp(type, "function") && strcmp(type, "tool")))
        return true;
    p->only_tool = json_string_value(json_object_get(function ? function : v, "name"));
    *text = "required";
    return p->only_tool || tri__fault_bad(fault, "tool_choice", "tool_choice has no name");
}

static bool read_tool_choice(struct tri__params *p, const json_t *body, struct tri__fault *fault)
{
    const json_t *v, *tools = json_object_get(body, "tools");
    bool parallel = true;
    p->tools = json_array_size(tools) > 0;
    if (!read_bool(body, "parallel_tool_calls", &parallel, fault))
        return false;
    p->one_call = !parallel;
    if (!is_given(body, "tool_choice", &v))
        return true;
    const char *text = json_string_value(v);
    if (json_is_object(v) && !read_named_choice(p, v, &text, fault))
        return false;
    if (text && !strcmp(text, "auto"))
        p->chat.tool_choice = TRI_TOOLS_AUTO;
    else if (text && !strcmp(text, "none"))
        p->chat.tool_choice = TRI_TOOLS_NONE;
    else if (text && (!strcmp(text, "required") || !strcmp(text, "any")))
        p->chat.tool_choice = TRI_TOOLS_REQUIRED;
    else
        return tri__fault_bad(fault, "tool_choice",
                              "tool_choice must be none, auto, required or a tool's name");
    if (p->chat.tool_choice == TRI_TOOLS_REQUIRED && !p->tools)
        return tri__fault_bad(fault, "tool_choice", "tool_choice required needs tools");
    return true;
}

/* --- all of it ------------------------------------------------------------------------------- */

static bool read_stream(struct tri__params *p, const json_t *body, struct tri__fault *fault)
{
    const json_t *o;
    if (!read_bool(body, "stream", &p->stream, fault))
        return false;
    if (!is_given(body, "stream_options", &o))
        return true;
    if (!json_is_object(o) || !p->stream)
        return tri__fault_bad(fault, "stream_options", "stream_options goes with stream: true");
    return read_bool(o, "include_usage", &p->include_usage, fault) &&
           read_bool(o, "continuous_usage_stats", &p->continuous_usage, fault);
}

static bool read_logprobs(struct tri__params *p, enum tri__dialect dialect, const json_t *body,
                          struct tri__fault *fault)
{
    if (dialect == TRI__COMPLETIONS) {
        int64_t n = -1;
        if (!read_int(body, "logprobs", INTS(0, 5), &n, fault))
            return false;
        p->logprobs = n >= 0;
        p->top_logprobs = n > 0 ? n : 0;
        return true;
    }
    if (dialect != TRI__CHAT)
        return true;
    if (!read_bool(body, "logprobs", &p->logprobs, fault) ||
        !read_int(body, "top_logprobs", INTS(0, TRI_API_MAX_TOP_LOGPROBS), &p->top_logprobs, fault))
        return false;
    if (p->top_logprobs && !p->logprobs)
        return tri__fault_bad(fault, "top_logprobs", "top_logprobs goes with logprobs: true");
    return true;
}

/* vLLM's: of the prompt's own tokens, each with this many of the likeliest. */
static bool read_prompt_logprobs(struct tri__params *p, enum tri__dialect dialect,
                                 const json_t *body, struct tri__fault *fault)
{
    static const char name[] = "prompt_logprobs";
    const json_t *v;
    if (!is_given(body, name, &v) || json_is_false(v))
        return true;
    if (dialect != TRI__COMPLETIONS && dialect != TRI__CHAT)
        return tri__fault_bad(fault, name, "%s is not supported on this path", name);
    if (p->stream) /* there is no place for them in a stream, as vLLM has it */
        return tri__fault_bad(fault, name, "%s does not go with stream: true", name);
    p->score_prompt = true;
    return read_int(body, name, INTS(0, TRI_API_MAX_TOP_LOGPROBS), &p->prompt_logprobs, fault);
}

static bool read_n(struct tri__params *p, enum tri__dialect dialect, const json_t *body,
                   struct tri__fault *fault)
{
    int64_t best = 0;
    p->n = 1;
    if (dialect == TRI__MESSAGES || dialect == TRI__RESPONSES)
        return true; /* no such field there */
    if (!read_int(body, "n", INTS(1, TRI_API_MAX_CHOICES), &p->n, fault) ||
        !read_int(body, "best_of", INTS(1, TRI_API_MAX_CHOICES), &best, fault))
        return false;
    return !best || best == p->n || tri__fault_bad(fault, "best_of", "best_of must equal n");
}

static bool read_model(struct tri__params *p, const struct tri_api *api, const json_t *body,
                       struct tri__fault *fault)
{
    const json_t *v;
    snprintf(p->model, sizeof p->model, "%s", api->options.model_name);
    if (!is_given(body, "model", &v))
        return true;
    if (!json_is_string(v) || json_string_length(v) >= sizeof p->model)
        return tri__fault_bad(fault, "model", "model must be a name of at most %zu bytes",
                              sizeof p->model - 1);
    if (api->options.strict_params && strcmp(json_string_value(v), api->options.model_name) != 0)
        return tri__fault_is(fault, 404, "model_not_found", "this server has only the model %s",
                             api->options.model_name);
    snprintf(p->model, sizeof p->model, "%s", json_string_value(v));
    return true;
}

static bool read_salt(struct tri__params *p, const json_t *body, struct tri__fault *fault)
{
    const json_t *v;
    if (!is_given(body, "cache_salt", &v))
        return true;
    if (!json_is_string(v))
        return tri__fault_bad(fault, "cache_salt", "cache_salt must be a string");
    tri__salt_add(&p->salt, json_string_value(v), json_string_length(v));
    return true;
}

bool tri__params_read(struct tri__params *p, const struct tri_api *api, enum tri__dialect dialect,
                      const json_t *body, struct tri__fault *fault)
{
    return check_names(body, api->options.strict_params, fault) &&
           tri__fields_check(body, dialect, fault) && read_model(p, api, body, fault) &&
           read_sampling(p, body, fault) && read_bias(p, api, body, fault) &&
           read_length(p, body, dialect, fault) && read_stops(p, body, "stop", fault) &&
           read_stops(p, body, "stop_sequences", fault) &&
           read_bool(body, "ignore_eos", &p->ignore_eos, fault) &&
           read_stop_ids(p, api, body, fault) && read_n(p, dialect, body, fault) &&
           read_stream(p, body, fault) && read_logprobs(p, dialect, body, fault) &&
           read_prompt_logprobs(p, dialect, body, fault) &&
           read_bool(body, "echo", &p->echo, fault) &&
           read_bool(body, "return_token_ids", &p->return_token_ids, fault) &&
           read_bool(body, "return_progress", &p->return_progress, fault) &&
           read_bool(body, "timings_per_token", &p->timings_per_token, fault) &&
           read_int(body, "priority", INTS(-1000000, 1000000), &p->priority, fault) &&
           read_thinking(p, api, dialect, body, fault) && read_tool_choice(p, body, fault) &&
           read_salt(p, body, fault);
}

void tri__params_fini(struct tri__params *p)
{
    tri_free(p->bias);
    p->bias = NULL;
}
