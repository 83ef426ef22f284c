/* What `serve` has open: model, vocabulary, engine, scheduler, api, server. */
#ifndef TRI_CLI_SERVE_OPEN_H
#define TRI_CLI_SERVE_OPEN_H

#include "api/api.h"
#include "cli/model_flags.h"

struct tri_serve_options {
    struct tri_model_flags flags;
    const char *address, *cache_folder, *key_file, *tls_cert, *tls_key, *name;
    int64_t port, parallel, queue, context_tokens, drain_s;
    uint64_t cache_bytes, cache_folder_bytes;
    struct tri_http_limits limits;
    struct tri_api_limits api_limits;
    const char *hosts[TRI_API_MAX_ORIGINS], *origins[TRI_API_MAX_ORIGINS];
    size_t n_hosts, n_origins;
    bool strict_params, map_medium, allow_open, open_metrics, log_requests;
};

struct tri_served {
    struct tri_opened opened;
    struct tri_tokenizer *tok;
    struct tri_engine *engine;
    struct tri_sched *sched;
    struct tri_api *api;
    struct tri_http *http;
    int64_t context_tokens;
    char name[TRI_API_MAX_MODEL_NAME_BYTES];
};

/* Opens all of it; on failure nothing stays open. */
TRI_MUST_CHECK enum tri_status tri_serve_open(struct tri_served *out,
                                              const struct tri_serve_options *options,
                                              struct tri_error *err);
void tri_serve_close(struct tri_served *served);
/* True for 127.0.0.0/8, ::1 and localhost. */
bool tri_serve_is_loopback(const char *address);

#endif
