/*
 * trireme serve: the API server. Options, the promises about who may reach it, signals, and the
 * end.
 */
#include "cli/cli.h"

#include <argp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "cli/serve_open.h"
#include "cli/usage.h"

enum {
    KEY_HOST = 0x300,
    KEY_PORT,
    KEY_PARALLEL,
    KEY_QUEUE,
    KEY_CONTEXT,
    KEY_CACHE,
    KEY_CACHE_DIR,
    KEY_CACHE_DIR_SIZE,
    KEY_NAME,
    KEY_KEYS,
    KEY_OPEN,
    KEY_ALLOW_HOST,
    KEY_CORS,
    KEY_CERT,
    KEY_CERT_KEY,
    KEY_STRICT,
    KEY_MEDIUM,
    KEY_DRAIN,
    KEY_LOG,
    KEY_BODY,
    KEY_CONNECTIONS,
    KEY_PER_PEER,
    KEY_OUTPUT,
    KEY_HEAD_TIME,
    KEY_IDLE,
    KEY_STALL,
    KEY_BODIES,
    KEY_LIMIT,
    KEY_METRICS
};

static const struct argp_option options[] = {
    { 0, 0, 0, 0, "Where and for whom:", 1 },
    { "host", KEY_HOST, "ADDRESS", 0, "Listen here (default 127.0.0.1)", 1 },
    { "port", KEY_PORT, "N", 0, "Port (default 8000; 0: any free one, told on stdout)", 1 },
    { "api-keys", KEY_KEYS, "FILE", 0, "Ask for one of these keys, one a line; SIGHUP reads again",
      1 },
    { "open-metrics", KEY_METRICS, 0, 0, "Give /metrics without a key", 1 },
    { "allow-anyone", KEY_OPEN, 0, 0, "Listen beyond this machine without a key", 1 },
    { "allow-host", KEY_ALLOW_HOST, "HOST[:PORT]", 0, "Serve this Host too; repeatable", 1 },
    { "cors", KEY_CORS, "ORIGIN", 0, "Let pages of this origin ask; repeatable", 1 },
    { "tls-cert", KEY_CERT, "FILE", 0, "Serve https with this certificate chain (PEM)", 1 },
    { "tls-key", KEY_CERT_KEY, "FILE", 0, "Its private key (PEM)", 1 },
    { 0, 0, 0, 0, "Work:", 2 },
    { "parallel", KEY_PARALLEL, "N", 0, "Requests computed together (default 4)", 2 },
    { "queue", KEY_QUEUE, "N", 0, "Requests that may wait; more get 429 (default 256)", 2 },
    { "context", KEY_CONTEXT, "N", 0, "Tokens of each request (default: what fits)", 2 },
    { "cache-ram", KEY_CACHE, "SIZE", 0, "Most memory for kept states (default 256M)", 2 },
    { "cache-dir", KEY_CACHE_DIR, "DIR", 0,
      "Keep states in files there too; a later start finds them (default: none)", 2 },
    { "cache-dir-size", KEY_CACHE_DIR_SIZE, "SIZE", 0, "Most of it on disk (default 32G)", 2 },
    { "name", KEY_NAME, "NAME", 0, "The model's name (default: its folder's)", 2 },
    { "strict-params", KEY_STRICT, 0, 0, "Refuse unknown fields and other model names", 2 },
    { "map-medium", KEY_MEDIUM, 0, 0, "Take reasoning effort medium as high (default: 400)", 2 },
    { "drain-timeout", KEY_DRAIN, "S", 0, "At SIGTERM, let requests run so long (default 60)", 2 },
    { "log-requests", KEY_LOG, 0, 0, "A line on stderr for each request", 2 },
    { 0, 0, 0, 0, "Limits:", 3 },
    { "max-body", KEY_BODY, "SIZE", 0, "Of a request (default 64M)", 3 },
    { "max-bodies", KEY_BODIES, "SIZE", 0, "Of all requests being received (default 256M)", 3 },
    { "max-connections", KEY_CONNECTIONS, "N", 0, "Open together (default 4096)", 3 },
    { "max-per-address", KEY_PER_PEER, "N", 0,
      "Of one address (default 256, loopback exempt unless this is given)", 3 },
    { "max-output", KEY_OUTPUT, "SIZE", 0, "Held for a slow reader (default 1M)", 3 },
    { "head-timeout", KEY_HEAD_TIME, "S", 0, "To send a request's head (default 10)", 3 },
    { "idle-timeout", KEY_IDLE, "S", 0, "Between two requests (default 65)", 3 },
    { "stall-timeout", KEY_STALL, "S", 0, "Without a reader (default 60)", 3 },
    { "limit", KEY_LIMIT, "NAME=N", 0, "Set one of the limits below; repeatable", 3 },
    { "quiet", 'q', 0, 0, "No progress, no start line", 4 },
    { 0 }
};

static int64_t whole(const struct argp_state *state, const char *option, const char *arg,
                     int64_t least, int64_t most)
{
    int64_t n = 0;
    if (!tri_parse_int(arg, least, most, &n))
        argp_error(state, "--%s %s: %lld to %lld", option, arg, (long long)least, (long long)most);
    return n;
}

static uint64_t size_of(const struct argp_state *state, const char *option, const char *arg)
{
    uint64_t n = 0;
    if (!tri_parse_size(arg, &n))
        argp_error(state, "--%s %s: write a size such as 64M or 2G", option, arg);
    return n;
}

static void add_name(const struct argp_state *state, const char *arg, const char **list, size_t *n)
{
    if (*n == TRI_API_MAX_ORIGINS)
        argp_error(state, "at most %d of them", TRI_API_MAX_ORIGINS);
    list[(*n)++] = arg;
}

/* Limits that have no flag of their own. */
static bool set_head_limit(struct tri_http_limits *l, const char *name, size_t bytes, int64_t n)
{
    const struct {
        const char *name;
        int64_t *at, most;
    } all[] = { { "line_bytes", &l->line_bytes, TRI_HTTP_MAX_LINE_BYTES },
                { "head_bytes", &l->head_bytes, TRI_HTTP_MAX_HEAD_BYTES },
                { "head_fields", &l->head_fields, TRI_HTTP_MAX_FIELDS },
                { "body_bytes_per_s", &l->body_bytes_s, INT32_MAX } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strlen(all[i].name) != bytes || memcmp(all[i].name, name, bytes) != 0)
            continue;
        if (n < 1 || n > all[i].most)
            return false;
        *all[i].at = n;
        return true;
    }
    return false;
}

static void set_limit(const struct argp_state *state, struct tri_serve_options *o, const char *arg)
{
    const char *equals = strchr(arg, '=');
    size_t name = equals ? (size_t)(equals - arg) : 0;
    int64_t n = 0;
    if (!equals || !tri_parse_int(equals + 1, 0, INT64_MAX, &n) ||
        (!set_head_limit(&o->limits, arg, name, n) &&
         !tri_api_limit_set(&o->api_limits, arg, name, n)))
        argp_error(state, "--limit %s: NAME=N, with a name and a range of --help", arg);
}

static error_t parse_limit(int key, char *arg, struct argp_state *state)
{
    struct tri_serve_options *o = state->input;
    struct tri_http_limits *l = &o->limits;
    switch (key) {
    case KEY_LIMIT:
        set_limit(state, o, arg);
        return 0;
    case KEY_BODIES:
        l->bodies_bytes = (int64_t)size_of(state, "max-bodies", arg);
        return 0;
    case KEY_BODY:
        l->body_bytes = (int64_t)size_of(state, "max-body", arg);
        return 0;
    case KEY_CONNECTIONS:
        l->connections = whole(state, "max-connections", arg, 1, 1 << 20);
        return 0;
    case KEY_PER_PEER:
        l->connections_per_peer = whole(state, "max-per-address", arg, 1, 1 << 20);
        l->loopback_too = true;
        return 0;
    case KEY_OUTPUT:
        l->output_bytes = (int64_t)size_of(state, "max-output", arg);
        return 0;
    case KEY_HEAD_TIME:
        l->head_s = (double)whole(state, "head-timeout", arg, 1, 86400);
        return 0;
    case KEY_IDLE:
        l->idle_s = (double)whole(state, "idle-timeout", arg, 1, 86400);
        return 0;
    case KEY_STALL:
        l->stall_s = (double)whole(state, "stall-timeout", arg, 1, 86400);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_work(int key, char *arg, struct argp_state *state)
{
    struct tri_serve_options *o = state->input;
    switch (key) {
    case KEY_PARALLEL:
        o->parallel = whole(state, "parallel", arg, 1, TRI_SCHED_MAX_SLOTS);
        return 0;
    case KEY_QUEUE:
        o->queue = whole(state, "queue", arg, 1, TRI_SCHED_MAX_QUEUE);
        return 0;
    case KEY_CONTEXT:
        o->context_tokens = whole(state, "context", arg, 1, INT32_MAX);
        return 0;
    case KEY_CACHE:
        o->cache_bytes = strcmp(arg, "0") ? size_of(state, "cache-ram", arg) : 0;
        return 0;
    case KEY_CACHE_DIR:
        o->cache_folder = arg;
        return 0;
    case KEY_CACHE_DIR_SIZE:
        o->cache_folder_bytes = size_of(state, "cache-dir-size", arg);
        return 0;
    case KEY_NAME:
        if (!*arg)
            argp_error(state, "--name: a name, please");
        o->name = arg;
        return 0;
    case KEY_STRICT:
        o->strict_params = true;
        return 0;
    case KEY_MEDIUM:
        o->map_medium = true;
        return 0;
    case KEY_DRAIN:
        o->drain_s = whole(state, "drain-timeout", arg, 0, 86400);
        return 0;
    case KEY_LOG:
        o->log_requests = true;
        return 0;
    default:
        return parse_limit(key, arg, state);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct tri_serve_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->flags;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num)
            argp_error(state, "one model, please");
        o->flags.model = arg;
        return 0;
    case KEY_HOST:
        o->address = arg;
        return 0;
    case KEY_PORT:
        o->port = whole(state, "port", arg, 0, 65535);
        return 0;
    case KEY_KEYS:
        o->key_file = arg;
        return 0;
    case KEY_OPEN:
        o->allow_open = true;
        return 0;
    case KEY_METRICS:
        o->open_metrics = true;
        return 0;
    case KEY_ALLOW_HOST:
        add_name(state, arg, o->hosts, &o->n_hosts);
        return 0;
    case KEY_CORS:
        add_name(state, arg, o->origins, &o->n_origins);
        return 0;
    case KEY_CERT:
        o->tls_cert = arg;
        return 0;
    case KEY_CERT_KEY:
        o->tls_key = arg;
        return 0;
    case 'q':
        o->flags.quiet = true;
        return 0;
    default:
        return parse_work(key, arg, state);
    }
}

static const struct argp_child children[] = { { &tri_model_flags_argp, 0, "The model:", 10 },
                                              { 0 } };
static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "[MODEL]",
    .doc = "Serves a model over HTTP: OpenAI's and Anthropic's APIs.\v"
           "Limits that --limit sets, with their defaults (and most):\n"
           "  line_bytes 8192, head_bytes 32768, head_fields 100, body_bytes_per_s 1024,\n"
           "  json_depth 128, json_values 4194304, messages 100000, tools 1024,\n"
           "  tools_bytes 8388608, stop 16, stop_bytes 256, stop_token_ids 100, n 8,\n"
           "  top_logprobs 20, logit_bias 1024, echo_tokens 32768, schema_bytes 1048576,\n"
           "  preparing_bytes 268435456\n"
           "\n"
           "Examples:\n"
           "  trireme serve                          the nano model on http://127.0.0.1:8000\n"
           "  trireme serve ./k3 --parallel 2 --context 32768\n"
           "  trireme serve --host 0.0.0.0 --api-keys keys.txt\n"
           "  curl http://127.0.0.1:8000/v1/chat/completions -d "
           "'{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}'\n",
    .children = children
};

/* --- signals --------------------------------------------------------------------------------- */

struct watch {
    struct tri_served *served;
    double drain_s, drain_until_s; /* 0: not draining */
};

/* The first asks to finish what runs, the second does not wait. */
static void on_term(void *arg)
{
    struct watch *w = arg;
    if (w->drain_until_s > 0) {
        tri_http_stop(w->served->http);
        return;
    }
    w->drain_until_s = tri_clock_s() + w->drain_s;
    tri_api_drain(w->served->api);
    tri_http_drain(w->served->http);
}

static void on_second(void *arg)
{
    struct watch *w = arg;
    if (w->drain_until_s > 0 && tri_clock_s() > w->drain_until_s)
        tri_http_stop(w->served->http);
}

static void on_hup(void *arg)
{
    struct watch *w = arg;
    struct tri_error err = { 0 };
    if (tri_api_reload_keys(w->served->api, &err) != TRI_OK)
        fprintf(stderr, "trireme: the old keys stay: %s\n", err.text);
}

/* While the server closes: states are being written, and who asks again does not want to wait. What
 * is half-written is removed by the next start. */
static void leave_now(int signal)
{
    (void)signal;
    _exit(TRI_EXIT_OK);
}

/* libevent puts these back when its loop has gone. */
static enum tri_status watch_signals(struct watch *w, struct tri_error *err)
{
    struct tri_http *http = w->served->http;
    signal(SIGTERM, leave_now);
    signal(SIGINT, leave_now);
    if (tri_http_signal(http, SIGTERM, on_term, w) != TRI_OK ||
        tri_http_signal(http, SIGINT, on_term, w) != TRI_OK ||
        tri_http_signal(http, SIGHUP, on_hup, w) != TRI_OK ||
        tri_http_every(http, 1, on_second, w) != TRI_OK)
        return tri_fail(err, TRI_NOMEM, "no memory for signals");
    return TRI_OK;
}

/* --- running --------------------------------------------------------------------------------- */

static enum tri_status check_reach(const struct tri_serve_options *o, struct tri_error *err)
{
    if (tri_serve_is_loopback(o->address) || o->key_file || o->allow_open)
        return TRI_OK;
    return tri_fail(
        err, TRI_ARG,
        "--host %s would let others in: give --api-keys FILE, or --allow-anyone if that "
        "is what you want",
        o->address);
}

static void say_start(const struct tri_served *s, const struct tri_serve_options *o)
{
    printf("%s is served at %s://%s:%d (%lld x %lld tokens)\n", s->name,
           o->tls_cert ? "https" : "http", o->address ? o->address : "127.0.0.1",
           tri_http_port(s->http), (long long)o->parallel, (long long)s->context_tokens);
    fflush(stdout);
}

int tri_cmd_serve(int argc, char **argv)
{
    struct tri_serve_options o = { .port = 8000,
                                   .parallel = 4,
                                   .queue = 256,
                                   .cache_bytes = 256 << 20,
                                   .drain_s = 60,
                                   .limits = tri_http_limits_default(),
                                   .api_limits = tri_api_limits_default() };
    struct tri_served served = { 0 };
    struct tri_error err = { 0 };
    tri_cli_parse(&argp, argc, argv, TRI_EXIT_USAGE, &o);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN); /* before and after it means something */
    enum tri_status st = check_reach(&o, &err);
    if (st == TRI_OK)
        st = tri_serve_open(&served, &o, &err);
    struct watch watch = { .served = &served, .drain_s = (double)o.drain_s };
    if (st == TRI_OK)
        st = watch_signals(&watch, &err);
    if (st == TRI_OK) {
        if (!o.flags.quiet || o.port == 0)
            say_start(&served, &o);
        st = tri_http_run(served.http, &err);
    }
    tri_serve_close(&served);
    return st == TRI_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
