/* Who may ask, for what: Host and Origin, keys, the table of paths, and the small endpoints. */
#include "api/api_priv.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static bool text_is(struct tri_http_text t, const char *want)
{
    return t.at && t.bytes == strlen(want) && !memcmp(t.at, want, t.bytes);
}

static void reply_text(struct tri_http_request *q, const char *type, const struct tri_buf *out)
{
    tri_http_reply(q, 200, type, out->data, out->len_bytes);
}

/* --- small endpoints ------------------------------------------------------------------------- */

static void serve_health(struct tri_api *api, struct tri_http_request *q)
{
    static const char fine[] = "{\"status\":\"ok\"}\n";
    struct tri__fault fault = { 0 };
    if (!api->draining) {
        tri_http_reply(q, 200, "application/json", fine, sizeof fine - 1);
        return;
    }
    tri__fault_is(&fault, 503, "draining", "the server is closing");
    tri__fault_reply(q, &fault, false);
}

static void serve_version(struct tri_api *api, struct tri_http_request *q)
{
    static const char text[] = "{\"version\":\"" TRI_VERSION "\"}\n";
    (void)api;
    tri_http_reply(q, 200, "application/json", text, sizeof text - 1);
}

static void put_model(struct tri_buf *out, const struct tri_api *api)
{
    tri_buf_puts(out, "{\"id\":");
    tri__put_quoted(out, api->options.model_name);
    tri_buf_printf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"trireme\",",
                   (long long)api->created);
    tri_buf_printf(out, "\"max_model_len\":%lld}",
                   (long long)tri_sched_context_tokens(api->options.sched));
}

static void serve_models(struct tri_api *api, struct tri_http_request *q)
{
    struct tri_buf out;
    tri_buf_init(&out, 4096);
    tri_buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    put_model(&out, api);
    tri_buf_puts(&out, "]}\n");
    reply_text(q, "application/json", &out);
    tri_buf_fini(&out);
}

static void serve_one_model(struct tri_api *api, struct tri_http_request *q)
{
    struct tri_http_text path = tri_http_head(q)->path;
    static const char prefix[] = "/v1/models/";
    struct tri_http_text name = { path.at + sizeof prefix - 1, path.bytes - (sizeof prefix - 1) };
    struct tri__fault fault = { 0 };
    struct tri_buf out;
    if (!text_is(name, api->options.model_name)) {
        tri__fault_is(&fault, 404, "model_not_found", "this server has only the model %s",
                      api->options.model_name);
        tri__fault_reply(q, &fault, false);
        return;
    }
    tri_buf_init(&out, 4096);
    put_model(&out, api);
    tri_buf_puts(&out, "\n");
    reply_text(q, "application/json", &out);
    tri_buf_fini(&out);
}

static void serve_metrics(struct tri_api *api, struct tri_http_request *q)
{
    struct tri_buf out;
    tri_buf_init(&out, 1 << 20);
    tri__gauges_write(api->gauges, api, &out);
    reply_text(q, "text/plain; version=0.0.4; charset=utf-8", &out);
    tri_buf_fini(&out);
}

/* --- routes ---------------------------------------------------------------------------------- */

struct route {
    const char *path;
    bool open; /* without a key */
    void (*get)(struct tri_api *api, struct tri_http_request *q);
    const struct tri__endpoint *post; /* one of the two */
};

static const struct route routes[] = {
    { "/health", true, serve_health, NULL },
    { "/v1/health", true, serve_health, NULL },
    { "/ping", true, serve_health, NULL },
    { "/version", true, serve_version, NULL },
    { "/metrics", false, serve_metrics, NULL },
    { "/v1/models", false, serve_models, NULL },
    { "/v1/chat/completions", false, NULL, &tri__chat },
    { "/v1/completions", false, NULL, &tri__completions },
    { "/v1/messages", false, NULL, &tri__messages },
    { "/v1/messages/count_tokens", false, NULL, &tri__count_tokens },
    { "/v1/responses", false, NULL, &tri__responses },
    { "/tokenize", false, NULL, &tri__tokenize },
    { "/detokenize", false, NULL, &tri__detokenize },
};
static const struct route one_model = { "/v1/models/NAME", false, serve_one_model, NULL };

static bool is_get(const struct tri_http_head *h)
{
    return text_is(h->method, "GET") || text_is(h->method, "HEAD");
}

/* The route, or NULL with the fault: no such path, or another method. */
static const struct route *find_route(const struct tri_http_head *h, struct tri__fault *fault,
                                      const char **allow)
{
    static const char models[] = "/v1/models/";
    if (h->path.bytes > sizeof models - 1 && !memcmp(h->path.at, models, sizeof models - 1)) {
        if (is_get(h))
            return &one_model;
        *allow = "GET";
    }
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (!text_is(h->path, routes[i].path))
            continue;
        if (routes[i].post ? text_is(h->method, "POST") : is_get(h))
            return &routes[i];
        *allow = routes[i].post ? "POST" : "GET";
    }
    if (*allow)
        tri__fault_is(fault, 405, "method_not_allowed", "this path is for %s", *allow);
    else
        tri__fault_is(fault, 404, "not_found", "no such path here");
    return NULL;
}

/* After the routes: one model, the page, anything else. */
enum { N_ROUTES = sizeof routes / sizeof routes[0], HANDLER_PAGE = N_ROUTES + 1, HANDLER_NONE };
static_assert(HANDLER_NONE + 1 == TRI__API_HANDLERS, "api_priv.h counts the handlers");

const char *tri__handler_name(size_t handler, const char **method)
{
    const struct route *r = handler < N_ROUTES ? &routes[handler] : &one_model;
    *method = r->post ? "POST" : handler == HANDLER_NONE ? "-" : "GET";
    return handler == HANDLER_PAGE ? "page" : handler == HANDLER_NONE ? "none" : r->path;
}

static size_t handler_of(const struct tri_http_head *h)
{
    struct tri__fault fault = { 0 };
    const char *allow = NULL;
    if (h && tri__page_has(h))
        return HANDLER_PAGE;
    const struct route *r = h ? find_route(h, &fault, &allow) : NULL;
    return !r ? HANDLER_NONE : r == &one_model ? N_ROUTES : (size_t)(r - routes);
}

/* --- who may ask ----------------------------------------------------------------------------- */

static bool is_loopback_name(struct tri_http_text host)
{
    static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t n = strlen(names[i]);
        if (host.bytes >= n && !strncasecmp(host.at, names[i], n) &&
            (host.bytes == n || host.at[n] == ':'))
            return true;
    }
    return false;
}

static bool in_list(struct tri_http_text text, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text.bytes == strlen(list[i]) && !strncasecmp(text.at, list[i], text.bytes))
            return true;
    return false;
}

/* A page elsewhere whose name was made to point here (DNS rebinding) sends its own name as Host. */
static bool check_host(const struct tri_api *api, const struct tri_http_head *h,
                       struct tri__fault *fault)
{
    const struct tri_api_options *o = &api->options;
    struct tri_http_text host = tri_http_head_field(h, "Host");
    if (!o->check_host || !host.at || is_loopback_name(host) || in_list(host, o->hosts, o->n_hosts))
        return true;
    return tri__fault_is(fault, 403, "host_not_allowed",
                         "this Host is not served here (--allow-host names one)");
}

/* Requests of pages: only of this server's own, or of origins that were allowed. */
static bool check_origin(const struct tri_api *api, struct tri_http_request *q,
                         const struct tri_http_head *h, struct tri__fault *fault)
{
    const struct tri_api_options *o = &api->options;
    struct tri_http_text origin = tri_http_head_field(h, "Origin");
    struct tri_http_text host = tri_http_head_field(h, "Host");
    if (!origin.at)
        return true;
    size_t scheme = origin.bytes > 8 && !strncasecmp(origin.at, "https://", 8)  ? 8
                    : origin.bytes > 7 && !strncasecmp(origin.at, "http://", 7) ? 7
                                                                                : 0;
    if (scheme && host.at && origin.bytes - scheme == host.bytes &&
        !strncasecmp(origin.at + scheme, host.at, host.bytes))
        return true;
    if (in_list(origin, o->origins, o->n_origins) && origin.bytes < 512) {
        char text[513];
        snprintf(text, sizeof text, "%.*s", (int)origin.bytes, origin.at);
        tri_http_add_field(q, "Access-Control-Allow-Origin", text);
        tri_http_add_field(q, "Vary", "Origin");
        return true;
    }
    return tri__fault_is(fault, 403, "origin_not_allowed",
                         "pages of this origin may not ask here (--cors allows one)");
}

static bool check_key(const struct tri_api *api, const struct tri_http_head *h,
                      struct tri__fault *fault)
{
    struct tri_http_text key = tri_http_head_field(h, "Authorization");
    if (!api->keys)
        return true;
    if (key.at && key.bytes > 7 && !strncasecmp(key.at, "Bearer ", 7)) {
        key.at += 7;
        key.bytes -= 7;
    } else {
        key = tri_http_head_field(h, "x-api-key");
    }
    if (key.at && tri__keys_have(api->keys, key))
        return true;
    return tri__fault_is(fault, 401, "invalid_api_key",
                         key.at ? "this API key is not known" : "an API key is needed");
}

static void preflight(struct tri_http_request *q)
{
    tri_http_add_field(q, "Access-Control-Allow-Methods", "GET, POST");
    tri_http_add_field(q, "Access-Control-Allow-Headers",
                       "authorization, content-type, x-api-key, anthropic-version");
    tri_http_add_field(q, "Access-Control-Max-Age", "600");
    tri_http_reply(q, 204, NULL, NULL, 0);
}

/* --- dispatch -------------------------------------------------------------------------------- */

static bool check_type(const struct tri_http_head *h, struct tri__fault *fault)
{
    struct tri_http_text type = tri_http_head_field(h, "Content-Type");
    return !type.at || type.bytes < 10 || strncasecmp(type.at, "multipart/", 10) != 0 ||
           tri__fault_is(fault, 415, "unsupported_media_type", "the body must be JSON");
}

/* A profile slows everybody's steps a little and tells of others' load: not for strangers. */
static bool check_profile(const struct tri_api *api, const struct tri_http_request *q,
                          const struct route *route, struct tri__fault *fault)
{
    if (!tri__profile_asked(tri_http_head(q)))
        return true;
    if (route->post != &tri__chat && route->post != &tri__completions)
        return tri__fault_bad(fault, "profile",
                              "profiles are given on /v1/chat/completions and /v1/completions");
    return api->keys || tri_http_peer_is_loopback(q) ||
           tri__fault_is(fault, 403, "profile_not_allowed",
                         "a profile is for this machine or for a server with keys");
}

/* All that can be said by the head alone. */
static bool may_come(struct tri_api *api, struct tri_http_request *q, const struct route **route,
                     struct tri__fault *fault, const char **allow)
{
    const struct tri_http_head *h = tri_http_head(q);
    if (!check_host(api, h, fault) || !check_origin(api, q, h, fault))
        return false;
    *route = find_route(h, fault, allow);
    bool open =
        *route && ((*route)->open || ((*route)->get == serve_metrics && api->options.open_metrics));
    if (!open) {
        struct tri__fault key_fault = { 0 };
        if (!check_key(api, h, &key_fault)) { /* before anything about paths is told */
            *fault = key_fault;
            return false;
        }
    }
    if (!*route)
        return false;
    if (!(*route)->post)
        return true;
    if (!check_type(h, fault) || !check_profile(api, q, *route, fault))
        return false;
    if (!api->draining || (*route)->post->answers)
        return true;
    tri__gauges_rejected(api->gauges, "draining");
    return tri__fault_is(fault, 503, "draining", "the server is closing");
}

static bool is_preflight(const struct tri_api *api, const struct tri_http_head *h)
{
    return api->options.n_origins && text_is(h->method, "OPTIONS") &&
           tri_http_head_field(h, "Origin").at;
}

bool tri_api_admit(void *arg, struct tri_http_request *request)
{
    struct tri_api *api = arg;
    const struct tri_http_head *h = tri_http_head(request);
    struct tri__fault fault = { 0 };
    const struct route *route = NULL;
    const char *allow = NULL;
    bool page = tri__page_has(h);
    char id[40];
    tri__request_id(id, request);
    tri_http_add_field(request, "x-request-id", id); /* OpenAI's name, then Anthropic's */
    tri_http_add_field(request, "request-id", id);
    if (page || is_preflight(api, h)) { /* the page is open: it asks for the key itself */
        if (!check_host(api, h, &fault) || !check_origin(api, request, h, &fault)) {
            tri__fault_reply(request, &fault, false);
            return false;
        }
        return true;
    }
    if (may_come(api, request, &route, &fault, &allow))
        return true;
    if (allow && fault.status == 405)
        tri_http_add_field(request, "Allow", allow);
    tri__fault_reply(request, &fault, route && route->post && route->post->format->anthropic);
    return false;
}

void tri_api_handle(void *arg, struct tri_http_request *request)
{
    struct tri_api *api = arg;
    const struct tri_http_head *h = tri_http_head(request);
    struct tri__fault fault = { 0 };
    const char *allow = NULL;
    if (is_preflight(api, h)) {
        preflight(request);
        return;
    }
    if (tri__serve_page(request))
        return;
    const struct route *route = find_route(h, &fault, &allow);
    if (!route)
        tri__fault_reply(request, &fault, false); /* admitted, so this does not happen */
    else if (route->get)
        route->get(api, request);
    else
        tri__serve(api, request, route->post);
}

/* --- opening --------------------------------------------------------------------------------- */

enum tri_status tri_api_open(struct tri_api **out, const struct tri_api_options *options,
                             struct tri_error *err)
{
    struct tri_api *api = tri_calloc(1, sizeof *api);
    if (!api)
        return tri_fail(err, TRI_NOMEM, "no memory for the api");
    api->options = *options;
    api->created = (int64_t)time(NULL);
    api->speaks_chat = tri_chat_ids_find(&api->chat, options->tok, NULL) == TRI_OK;
    api->turns = tri__turns_open();
    enum tri_status st = api->turns ? tri__gauges_open(&api->gauges, api, err)
                                    : tri_fail(err, TRI_NOMEM, "no memory for the api");
    if (st == TRI_OK)
        st = tri_grammar_vocab_open(&api->vocab, options->tok, options->budget, err);
    if (st == TRI_OK)
        st = tri_grammar_cache_open(&api->grammars, err);
    if (st == TRI_OK)
        st = tri__preparer_open(&api->preparer, api, err);
    if (st == TRI_OK && options->key_file)
        st = tri__keys_load(&api->keys, options->key_file, false, err);
    if (st == TRI_OK)
        *out = api;
    else
        tri_api_close(api);
    return st;
}

static void on_tick(void *arg)
{
    struct tri_api *api = arg;
    tri__preparer_tick(api->preparer);
    tri__exchange_tick(api);
}

enum tri_status tri_api_attach(struct tri_api *api, struct tri_http *http, struct tri_error *err)
{
    api->http = http;
    enum tri_status st = tri_http_every(http, 0.25, on_tick, api);
    return st == TRI_OK ? st : tri_fail(err, st, "no memory for the api's clock");
}

void tri_api_close(struct tri_api *api)
{
    if (!api)
        return;
    tri__preparer_close(api->preparer);
    while (api->first) {
        struct tri__exchange *x = api->first;
        const struct tri_http_watch none = { 0 };
        if (x->request)
            tri_http_watch(x->request, &none);
        tri__exchange_free(x);
    }
    tri__keys_free(api->keys);
    tri__turns_close(api->turns);
    tri_grammar_cache_close(api->grammars);
    tri_grammar_vocab_close(api->vocab);
    tri__gauges_close(api->gauges);
    tri_free(api);
}

enum tri_status tri_api_reload_keys(struct tri_api *api, struct tri_error *err)
{
    struct tri__keys *fresh = NULL;
    if (!api->options.key_file)
        return TRI_OK;
    enum tri_status st = tri__keys_load(&fresh, api->options.key_file, true, err);
    if (st != TRI_OK)
        return st;
    tri__keys_free(api->keys);
    api->keys = fresh;
    return TRI_OK;
}

void tri_api_drain(struct tri_api *api)
{
    api->draining = true;
}

void tri_api_refused(void *arg, const char *limit)
{
    struct tri_api *api = arg;
    tri__gauges_limit(api->gauges, limit);
}

void tri_api_answered(void *arg, const struct tri_http_request *request, int status, double s)
{
    struct tri_api *api = arg;
    const struct tri_http_head *h = tri_http_head(request);
    char path[80] = "-", method[24] = "-", id[40];
    tri__gauges_http(api->gauges, handler_of(h), status, s);
    if (h) {
        tri_printable(path, sizeof path, h->path.at, h->path.bytes);
        tri_printable(method, sizeof method, h->method.at, h->method.bytes);
    }
    tri__request_id(id, request);
    tri_note(&api->options.log, "%s %s %s %s %d %.3fs", h ? id : "-", tri_http_peer(request),
             method, path, status, s);
}
