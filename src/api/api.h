/*
 * The endpoints: OpenAI (chat/completions, completions, responses, models), Anthropic (messages,
 * count_tokens), tokenize, health, metrics, version. Floor 6. What each field does:
 * docs/serving.md.
 *
 * Runs on the HTTP loop's thread. Token ids come from the scheduler's thread through its jobs, are
 * parsed and written here; a client that does not read stops its own job and nothing else.
 */
#ifndef TRI_API_API_H
#define TRI_API_API_H

#include <stdbool.h>
#include <stdint.h>
#include "base/mem.h"
#include "base/status.h"
#include "http/http.h"
#include "model/model.h"
#include "sched/sched.h"
#include "text/text.h"

/*
 * Limits of one request (serving.md 4.2): name, default, least and most that --limit takes, what it
 * counts. Beyond one of them: 400 that names the field (preparing_bytes: 503), and one more in
 * trireme_limit_hits_total{limit="<name>"}.
 */
#define TRI_API_LIMIT_TABLE(X)                                                                     \
    X(json_depth, 128, 1, 128, "levels of JSON")                                                   \
    X(json_values, 4 << 20, 1, 1 << 28, "JSON values")                                             \
    X(messages, TRI_CHAT_MAX_MESSAGES, 1, TRI_CHAT_MAX_MESSAGES, "messages")                       \
    X(tools, TRI_CHAT_MAX_TOOLS, 0, TRI_CHAT_MAX_TOOLS, "tools")                                   \
    X(tools_bytes, 8 << 20, 0, TRI_CHAT_MAX_BYTES, "bytes of tools")                               \
    X(stop, TRI_STOP_MAX_STRINGS, 0, TRI_STOP_MAX_STRINGS, "stop strings")                         \
    X(stop_bytes, TRI_STOP_MAX_BYTES, 1, TRI_STOP_MAX_BYTES, "bytes in one")                       \
    X(stop_token_ids, 100, 0, 120, "stop ids")                                                     \
    X(n, TRI_API_MAX_CHOICES, 1, TRI_API_MAX_CHOICES, "choices")                                   \
    X(top_logprobs, TRI_API_MAX_TOP_LOGPROBS, 0, TRI_API_MAX_TOP_LOGPROBS, "alternatives")         \
    X(logit_bias, TRI_ENGINE_MAX_BIAS, 0, TRI_ENGINE_MAX_BIAS, "biases")                           \
    X(echo_tokens, 32768, 1, 1 << 20, "prompt tokens with log probabilities")                      \
    X(schema_bytes, 1 << 20, 0, TRI_CHAT_MAX_BYTES, "bytes of schema")                             \
    X(preparing_bytes, 256 << 20, 1 << 16, INT64_MAX, "bytes of long bodies being read")

enum tri_api_limit {
#define TRI_LIMIT_NAME(name, usual, least, most, help) TRI_API_LIMIT_##name,
    TRI_API_LIMIT_TABLE(TRI_LIMIT_NAME)
#undef TRI_LIMIT_NAME
        TRI_API_LIMITS
};

enum {
    TRI_API_MAX_CHOICES = 8,       /* n */
    TRI_API_MAX_TOP_LOGPROBS = 20, /* chat; completions: 5 */
    TRI_API_MAX_KEYS = 1024,       /* in a key file */
    TRI_API_MAX_KEY_BYTES = 256,   /* of one key */
    TRI_API_MAX_ORIGINS = 64,      /* allowed origins or hosts */
    TRI_API_MAX_MODEL_NAME_BYTES = 128,
    TRI_API_MAX_PROMPTS = 64 /* of one /v1/completions request */
};

struct tri_api;

struct tri_api_limits {
    int64_t most[TRI_API_LIMITS];
};
struct tri_api_limits tri_api_limits_default(void);
/* False: there is no such limit, or it cannot be that. */
bool tri_api_limit_set(struct tri_api_limits *limits, const char *name, size_t name_bytes,
                       int64_t value);
const char *tri_api_limit_name(enum tri_api_limit limit);

struct tri_api_options {
    const struct tri_tokenizer *tok;
    struct tri_model *model;
    struct tri_sched *sched;
    struct tri_budget *budget;
    const char *model_name; /* what /v1/models tells */
    const char *key_file;   /* NULL: no key is asked for */
    bool strict_params;     /* unknown fields and other model names are refused */
    bool map_medium;        /* reasoning_effort "medium" means high; otherwise 400 */
    bool open_metrics;      /* /metrics needs no key */
    bool check_host;        /* Host must be a loopback name or one of `hosts` */
    const char *const *hosts;
    size_t n_hosts;
    const char *const *origins; /* CORS; none: off */
    size_t n_origins;
    struct tri_api_limits limits;
    int64_t stop_ids[4]; /* ids that end a message */
    size_t n_stop_ids;
    struct tri_notes log; /* one line a request; never prompts or keys */
};

/* Makes the api; `http` is given by tri_api_attach before its loop runs. */
TRI_MUST_CHECK enum tri_status
tri_api_open(struct tri_api **out, const struct tri_api_options *options, struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri_api_attach(struct tri_api *api, struct tri_http *http,
                                              struct tri_error *err);
/* Cancels what runs. Before tri_http_close and tri_sched_close, the loop not running. */
void tri_api_close(struct tri_api *api);

/* For tri_http_options; `arg` is the api. `admit` decides by the head alone: Host, Origin, key,
 * path, method, and whether the server is closing. */
bool tri_api_admit(void *arg, struct tri_http_request *request);
void tri_api_handle(void *arg, struct tri_http_request *request);
void tri_api_answered(void *arg, const struct tri_http_request *request, int status, double s);
void tri_api_refused(void *arg, const char *limit);

/* Reads the key file again; on failure the old keys stay. All wait meanwhile, so no pipe is read.
 */
TRI_MUST_CHECK enum tri_status tri_api_reload_keys(struct tri_api *api, struct tri_error *err);
/* New work is refused with 503 from now on. */
void tri_api_drain(struct tri_api *api);

#endif
