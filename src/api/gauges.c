/*
 * What /metrics tells: vLLM's names, so that ready dashboards work, and our own for what vLLM has
 * no word for (experts, states, memory accounts). Names and buckets: docs.vllm.ai, design/metrics.
 */
#include "api/api_priv.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double ttft_s[] = { .001, .005, .01, .02, .04, .06, .08, .1,  .25, .5,   .75,  1,
                                 2.5,  5,    7.5, 10,  20,  40,  80,  160, 640, 2560, 5120, 10240 };
static const double itl_s[] = { .01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80 };
static const double e2e_s[] = { .3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680 };
static const double token_counts[] = { 1,     2,      5,      10,     20,     50,    100,
                                       200,   500,    1000,   2000,   5000,   10000, 20000,
                                       50000, 100000, 200000, 500000, 1000000 };

#define HISTOGRAMS(X)                                                                              \
    X(TTFT, "vllm:time_to_first_token_seconds", "Time to first token.", ttft_s)                    \
    X(ITL, "vllm:inter_token_latency_seconds", "Time between two tokens.", itl_s)                  \
    X(TPOT, "vllm:time_per_output_token_seconds", "Time between two tokens (older name).", itl_s)  \
    X(REQUEST_TPOT, "vllm:request_time_per_output_token_seconds",                                  \
      "Mean time per token of a request.", itl_s)                                                  \
    X(E2E, "vllm:e2e_request_latency_seconds", "Time of a request, all in all.", e2e_s)            \
    X(QUEUE, "vllm:request_queue_time_seconds", "Time spent waiting for a slot.", e2e_s)           \
    X(PREFILL, "vllm:request_prefill_time_seconds", "Time from slot to first token.", e2e_s)       \
    X(DECODE, "vllm:request_decode_time_seconds", "Time from first token to last.", e2e_s)         \
    X(PROMPT, "vllm:request_prompt_tokens", "Prompt tokens of a request.", token_counts)           \
    X(GENERATION, "vllm:request_generation_tokens", "Tokens made for a request.", token_counts)    \
    X(HTTP, "http_request_duration_seconds", "Time of an HTTP request.", e2e_s)

#define COUNTERS(X)                                                                                \
    X(SUCCESS_STOP, "vllm:request_success_total", "Requests by how they ended.",                   \
      ",finished_reason=\"stop\"")                                                                 \
    X(SUCCESS_LENGTH, "vllm:request_success_total", "", ",finished_reason=\"length\"")             \
    X(SUCCESS_ABORT, "vllm:request_success_total", "", ",finished_reason=\"abort\"")               \
    X(SUCCESS_ERROR, "vllm:request_success_total", "", ",finished_reason=\"error\"")               \
    X(PROMPT_TOKENS, "vllm:prompt_tokens_total", "Prompt tokens of admitted requests.", "")        \
    X(GENERATION_TOKENS, "vllm:generation_tokens_total", "Tokens sampled.", "")                    \
    X(CACHE_QUERIES, "vllm:prefix_cache_queries_total", "Prompt tokens looked up.", "")            \
    X(CACHE_HITS, "vllm:prefix_cache_hits_total", "Of these, tokens already computed.", "")        \
    X(PREEMPTIONS, "vllm:num_preemptions_total", "Preempted requests.", "")                        \
    X(CORRUPTED, "vllm:corrupted_requests_total", "Requests ended by NaN or Inf in logits.", "")   \
    X(REJECTED_QUEUE, "vllm:admission_rejections_total", "Requests refused.",                      \
      ",reason=\"queue_full\"")                                                                    \
    X(REJECTED_LENGTH, "vllm:admission_rejections_total", "",                                      \
      ",reason=\"context_length_exceeded\"")                                                       \
    X(REJECTED_DRAIN, "vllm:admission_rejections_total", "", ",reason=\"draining\"")               \
    X(REJECTED_OTHER, "vllm:admission_rejections_total", "", ",reason=\"other\"")                  \
    X(HTTP_2XX, "http_requests_total", "HTTP answers by class.", ",status=\"2xx\"")                \
    X(HTTP_3XX, "http_requests_total", "", ",status=\"3xx\"")                                      \
    X(HTTP_4XX, "http_requests_total", "", ",status=\"4xx\"")                                      \
    X(HTTP_5XX, "http_requests_total", "", ",status=\"5xx\"")                                      \
    X(CHECKPOINTS_TAKEN, "trireme_checkpoints_taken_total", "States kept for reuse.", "")          \
    X(CHECKPOINTS_EVICTED, "trireme_checkpoints_evicted_total", "States dropped for room.", "")    \
    X(STEPS, "trireme_steps_total", "Forward passes.", "")                                         \
    X(EXPERT_HITS, "trireme_expert_cache_hits_total", "Experts found in RAM.", "")                 \
    X(EXPERT_MISSES, "trireme_expert_cache_misses_total", "Experts read from a drive.", "")        \
    X(EXPERT_BYTES, "trireme_disk_read_bytes_total", "Bytes of experts read from drives.", "")

#define GAUGES(X)                                                                                  \
    X(RUNNING, "vllm:num_requests_running", "Requests being computed.", "")                        \
    X(WAITING, "vllm:num_requests_waiting", "Requests waiting for a slot.", "")                    \
    X(CACHE_USE, "vllm:kv_cache_usage_perc", "Share of all slots' tokens in use, 0 to 1.", "")     \
    X(CHECKPOINTS, "trireme_checkpoints", "States kept for reuse now.", "")                        \
    X(CHECKPOINT_BYTES, "trireme_checkpoint_bytes", "Their memory.", "")                           \
    X(CONNECTIONS, "trireme_http_connections", "Open connections.", "")                            \
    X(MEMORY_CEILING, "trireme_memory_ceiling_bytes", "The memory budget.", "")                    \
    X(RSS, "process_resident_memory_bytes", "Resident memory.", NULL)                              \
    X(FDS, "process_open_fds", "Open file descriptors.", NULL)                                     \
    X(START, "process_start_time_seconds", "Start, in seconds of the epoch.", NULL)

/* What the HTTP room tells; after them come the limits of the api. */
static const char *const http_limits[] = { "body_bytes",  "bodies_bytes",        "line_bytes",
                                           "head_bytes",  "head_fields",         "head_time",
                                           "body_rate",   "write_stall",         "output_bytes",
                                           "connections", "connections_per_peer" };

enum {
    N_HTTP_LIMITS = sizeof http_limits / sizeof http_limits[0],
    LIMIT_QUEUE = N_HTTP_LIMITS + TRI_API_LIMITS, /* the scheduler's */
    N_LIMITS
};

static const char *limit_name(size_t i)
{
    if (i < N_HTTP_LIMITS)
        return http_limits[i];
    return i == LIMIT_QUEUE ? "queue" : tri_api_limit_name((enum tri_api_limit)(i - N_HTTP_LIMITS));
}

enum histogram {
#define H(name, a, b, c) HISTOGRAM_##name,
    HISTOGRAMS(H)
#undef H
        N_HISTOGRAMS
};
enum counter {
#define C(name, a, b, c) COUNTER_##name,
    COUNTERS(C)
#undef C
        N_COUNTERS
};
enum gauge {
#define G(name, a, b, c) GAUGE_##name,
    GAUGES(G)
#undef G
        N_GAUGES
};

struct tri__gauges {
    struct tri_metrics *metrics;
    struct tri_metric *histogram[N_HISTOGRAMS], *counter[N_COUNTERS], *gauge[N_GAUGES];
    struct tri_metric *account[TRI_MEM_ACCOUNTS], *limit[N_LIMITS];
    char base[TRI_API_MAX_MODEL_NAME_BYTES * 2 + 64];
};

static struct tri_metric *add(struct tri__gauges *g, struct tri_metric_spec spec, const char *more)
{
    char labels[TRI_METRIC_MAX_LABEL_BYTES];
    int n = snprintf(labels, sizeof labels, "%s%s", g->base, more ? more : "");
    spec.labels = more && n > 0 && (size_t)n < sizeof labels ? labels : NULL;
    return tri_metrics_add(g->metrics, &spec);
}

static void add_all(struct tri__gauges *g)
{
#define H(key, metric_name, text, bounds)                                                          \
    g->histogram[HISTOGRAM_##key] =                                                                \
        add(g,                                                                                     \
            (struct tri_metric_spec){ .kind = TRI_METRIC_HISTOGRAM,                                \
                                      .name = metric_name,                                         \
                                      .help = text,                                                \
                                      .buckets = bounds,                                           \
                                      .n_buckets = sizeof bounds / sizeof bounds[0] },             \
            "");
    HISTOGRAMS(H)
#undef H
#define C(key, metric_name, text, more)                                                            \
    g->counter[COUNTER_##key] = add(                                                               \
        g,                                                                                         \
        (struct tri_metric_spec){ .kind = TRI_METRIC_COUNTER, .name = metric_name, .help = text }, \
        more);
    COUNTERS(C)
#undef C
#define G(key, metric_name, text, more)                                                            \
    g->gauge[GAUGE_##key] = add(                                                                   \
        g,                                                                                         \
        (struct tri_metric_spec){ .kind = TRI_METRIC_GAUGE, .name = metric_name, .help = text },   \
        more);
    GAUGES(G)
#undef G
    for (size_t i = 0; i < N_LIMITS; i++) {
        char more[64];
        snprintf(more, sizeof more, ",limit=\"%s\"", limit_name(i));
        g->limit[i] = add(g,
                          (struct tri_metric_spec){ .kind = TRI_METRIC_COUNTER,
                                                    .name = "trireme_limit_hits_total",
                                                    .help = "Limits hit, by name." },
                          more);
    }
    for (int i = 0; i < TRI_MEM_ACCOUNTS; i++) {
        char more[64];
        snprintf(more, sizeof more, ",account=\"%s\"", tri_account_name((enum tri_account)i));
        g->account[i] = add(g,
                            (struct tri_metric_spec){ .kind = TRI_METRIC_GAUGE,
                                                      .name = "trireme_memory_bytes",
                                                      .help = "Memory in use, by account." },
                            more);
    }
}

enum tri_status tri__gauges_open(struct tri__gauges **out, const struct tri_api *api,
                                 struct tri_error *err)
{
    struct tri__gauges *g = tri_calloc(1, sizeof *g);
    struct tri_buf name;
    if (!g)
        return tri_fail(err, TRI_NOMEM, "no memory for metrics");
    enum tri_status st = tri_metrics_open(&g->metrics, err);
    if (st != TRI_OK) {
        tri_free(g);
        return st;
    }
    tri_buf_init(&name, sizeof g->base - 32);
    if (tri_metrics_escape(&name, api->options.model_name) != TRI_OK)
        tri_buf_clear(&name);
    snprintf(g->base, sizeof g->base, "engine=\"0\",model_name=\"%s\"", name.data ? name.data : "");
    tri_buf_fini(&name);
    add_all(g);
    tri_metric_set(g->gauge[GAUGE_START], (double)time(NULL));
    *out = g;
    return TRI_OK;
}

void tri__gauges_close(struct tri__gauges *g)
{
    if (!g)
        return;
    tri_metrics_close(g->metrics);
    tri_free(g);
}

/* --- what happens ---------------------------------------------------------------------------- */

void tri__gauges_first_token(struct tri__gauges *g, double s)
{
    tri_metric_observe(g->histogram[HISTOGRAM_TTFT], s);
}

void tri__gauges_token(struct tri__gauges *g, double s)
{
    tri_metric_observe(g->histogram[HISTOGRAM_ITL], s);
    tri_metric_observe(g->histogram[HISTOGRAM_TPOT], s);
}

void tri__gauges_request(struct tri__gauges *g, const struct tri__choice *c, const char *reason,
                         double s)
{
    struct tri_job_facts f = { 0 };
    enum counter which = !strcmp(reason, "stop")     ? COUNTER_SUCCESS_STOP
                         : !strcmp(reason, "length") ? COUNTER_SUCCESS_LENGTH
                         : !strcmp(reason, "abort")  ? COUNTER_SUCCESS_ABORT
                                                     : COUNTER_SUCCESS_ERROR;
    tri_metric_add(g->counter[which], 1);
    if (which == COUNTER_SUCCESS_ABORT || which == COUNTER_SUCCESS_ERROR || !c->job)
        return;
    tri_job_facts(c->job, &f);
    tri_metric_observe(g->histogram[HISTOGRAM_E2E], s);
    tri_metric_observe(g->histogram[HISTOGRAM_QUEUE], f.admitted_s - f.submitted_s);
    tri_metric_observe(g->histogram[HISTOGRAM_PREFILL], f.first_token_s - f.admitted_s);
    tri_metric_observe(g->histogram[HISTOGRAM_PROMPT], (double)f.prompt_tokens);
    tri_metric_observe(g->histogram[HISTOGRAM_GENERATION], (double)c->completion_tokens);
    if (c->completion_tokens < 2)
        return;
    double decode = c->last_token_s - f.first_token_s;
    tri_metric_observe(g->histogram[HISTOGRAM_DECODE], decode);
    tri_metric_observe(g->histogram[HISTOGRAM_REQUEST_TPOT],
                       decode / (double)(c->completion_tokens - 1));
}

void tri__gauges_rejected(struct tri__gauges *g, const char *reason)
{
    enum counter which = !strcmp(reason, "queue_full")                ? COUNTER_REJECTED_QUEUE
                         : !strcmp(reason, "context_length_exceeded") ? COUNTER_REJECTED_LENGTH
                         : !strcmp(reason, "draining")                ? COUNTER_REJECTED_DRAIN
                                                                      : COUNTER_REJECTED_OTHER;
    tri_metric_add(g->counter[which], 1);
    if (which == COUNTER_REJECTED_QUEUE)
        tri__gauges_limit(g, "queue");
}

void tri__gauges_http(struct tri__gauges *g, int status, double s)
{
    int class = status / 100;
    if (class >= 2 && class <= 5)
        tri_metric_add(g->counter[COUNTER_HTTP_2XX + (class - 2)], 1);
    tri_metric_observe(g->histogram[HISTOGRAM_HTTP], s);
}

void tri__gauges_limit(struct tri__gauges *g, const char *limit)
{
    for (size_t i = 0; i < N_LIMITS; i++)
        if (!strcmp(limit, limit_name(i)))
            tri_metric_add(g->limit[i], 1);
}

/* --- what is ---------------------------------------------------------------------------------- */

static double open_fds(void)
{
    double n = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (!dir)
        return 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 3; /* ".", "..", and the folder itself */
}

static double resident_bytes(void)
{
    unsigned long size = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f)
        return 0;
    if (fscanf(f, "%lu %lu", &size, &pages) != 2)
        pages = 0;
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void set_counters(struct tri__gauges *g, const struct tri_sched_stats *s)
{
    const struct {
        enum counter which;
        uint64_t value;
    } all[] = { { COUNTER_PROMPT_TOKENS, s->query_tokens },
                { COUNTER_GENERATION_TOKENS, s->sampled_tokens },
                { COUNTER_CACHE_QUERIES, s->query_tokens },
                { COUNTER_CACHE_HITS, s->hit_tokens },
                { COUNTER_CORRUPTED, s->engine.numeric_failures },
                { COUNTER_CHECKPOINTS_TAKEN, s->checkpoints_taken },
                { COUNTER_CHECKPOINTS_EVICTED, s->checkpoints_evicted },
                { COUNTER_STEPS, s->engine.steps },
                { COUNTER_EXPERT_HITS, s->experts.reuse_hits + s->experts.prefetch_hits },
                { COUNTER_EXPERT_MISSES, s->experts.misses },
                { COUNTER_EXPERT_BYTES, s->experts.read_bytes } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tri_metric_set(g->counter[all[i].which], (double)all[i].value);
}

void tri__gauges_write(struct tri__gauges *g, struct tri_api *api, struct tri_buf *out)
{
    struct tri_sched_stats s;
    struct tri_budget_report memory;
    tri_sched_read_stats(api->options.sched, &s);
    tri_budget_read(api->options.budget, &memory);
    set_counters(g, &s);
    double all = (double)s.slots * (double)s.context_tokens;
    tri_metric_set(g->gauge[GAUGE_RUNNING], (double)s.running);
    tri_metric_set(g->gauge[GAUGE_WAITING], (double)s.waiting);
    tri_metric_set(g->gauge[GAUGE_CACHE_USE], all > 0 ? (double)s.held_tokens / all : 0);
    tri_metric_set(g->gauge[GAUGE_CHECKPOINTS], (double)s.checkpoints);
    tri_metric_set(g->gauge[GAUGE_CHECKPOINT_BYTES], (double)s.checkpoint_bytes);
    tri_metric_set(g->gauge[GAUGE_CONNECTIONS], (double)tri_http_connections(api->http));
    tri_metric_set(g->gauge[GAUGE_MEMORY_CEILING], (double)memory.ceiling_bytes);
    tri_metric_set(g->gauge[GAUGE_RSS], resident_bytes());
    tri_metric_set(g->gauge[GAUGE_FDS], open_fds());
    for (int i = 0; i < TRI_MEM_ACCOUNTS; i++)
        tri_metric_set(g->account[i], (double)memory.account_used_bytes[i]);
    tri_metrics_write(g->metrics, out);
}
