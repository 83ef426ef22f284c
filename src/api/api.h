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

struct tri_api_options {
    const struct tri_tokenizer *tok;
    struct tri_model *model;
    struct tri_sched *sched;
    struct tri_budget *budget;
    const char *model_name; /* what /v1/models tells */
    const char *key_file;   /* NULL: no key is asked for */
    bool strict_params;     /* unknown fields and other model names are refused */
    bool map_medium;        /* reasoning_effort "medium" means high; otherwise 400 */
    bool check_host;        /* Host must be a loopback name or one of `hosts` */
    const char *const *hosts;
    size_t n_hosts;
    const char *const *origins; /* CORS; none: off */
    size_t n_origins;
    double load_s;
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

/* For tri_http_options; `arg` is the api. */
void tri_api_handle(void *arg, struct tri_http_request *request);
void tri_api_answered(void *arg, const struct tri_http_request *request, int status, double s);
void tri_api_refused(void *arg, const char *limit);

/* Reads the key file again; on failure the old keys stay. */
TRI_MUST_CHECK enum tri_status tri_api_reload_keys(struct tri_api *api, struct tri_error *err);
/* New work is refused with 503 from now on. */
void tri_api_drain(struct tri_api *api);

#endif
