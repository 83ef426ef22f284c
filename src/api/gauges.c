/* What /metrics tells: the registry, what is counted as it happens, and what is read when asked. */
#include "api/api_priv.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "api/gauges_list.h"
#include "base/clock.h"

/* What the HTTP room tells; after them come the limits of the api. */
static const char *const http_limits[] = { "body_bytes",  "bodies_bytes",         "line_bytes",
                                           "head_bytes",  "head_fields",          "head_time",
                                           "body_rate",   "write_stall",          "output_bytes",
                                           "connections", "connections_per_peer", "descriptors" };

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

/* HTTP answers by class: 2xx to 5xx. */
enum { N_CLASSES = 4 };

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
    struct tri_metric *http[TRI__API_HANDLERS][N_CLASSES];
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
}

/* One name, one metric for each value of some labels. */
static struct tri_metric *add_one(struct tri__gauges *g, enum tri_metric_kind kind,
                                  const char *name, const char *help, const char *more)
{
    const struct tri_metric_spec spec = { .kind = kind, .name = name, .help = help };
    return add(g, spec, more);
}

static void add_families(struct tri__gauges *g)
{
    char more[160];
    for (size_t i = 0; i < N_LIMITS; i++) {
        snprintf(more, sizeof more, ",limit=\"%s\"", limit_name(i));
        g->limit[i] = add_one(g, TRI_METRIC_COUNTER, "trireme_limit_hits_total",
                              "Limits hit, by name.", more);
    }
    for (int i = 0; i < TRI_MEM_ACCOUNTS; i++) {
        snprintf(more, sizeof more, ",account=\"%s\"", tri_account_name((enum tri_account)i));
        g->account[i] = add_one(g, TRI_METRIC_GAUGE, "trireme_memory_bytes",
                                "Memory in use, by account.", more);
    }
    for (size_t i = 0; i < TRI__API_HANDLERS; i++)
        for (int class = 0; class < N_CLASSES; class ++) {
            const char *method = "-";
            const char *handler = tri__handler_name(i, &method);
            snprintf(more, sizeof more, ",handler=\"%s\",method=\"%s\",status=\"%dxx\"", handler,
                     method, class + 2);
            g->http[i][class] = add_one(g, TRI_METRIC_COUNTER, "http_requests_total",
                                        "HTTP answers, by path and class.", more);
        }
}

/* Constants, told as labels of a 1. */
static void add_infos(struct tri__gauges *g, const struct tri_api *api)
{
    char more[160];
    struct tri_sched_stats s;
    tri_sched_read_stats(api->options.sched, &s);
    long long blocks = (long long)(s.slots * s.context_tokens / TRI_ENGINE_GRID_TOKENS);
    snprintf(more, sizeof more,
             ",block_size=\"%d\",num_gpu_blocks=\"%lld\",enable_prefix_caching=\"True\"",
             TRI_ENGINE_GRID_TOKENS, blocks);
    tri_metric_set(add_one(g, TRI_METRIC_GAUGE, "vllm:cache_config_info",
                           "How states are kept: the grid of reuse, and slots in its units.", more),
                   1);
    tri_metric_set(add_one(g, TRI_METRIC_GAUGE, "trireme_build_info", "This program.",
                           ",version=\"" TRI_VERSION "\""),
                   1);
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
    add_families(g);
    add_infos(g, api);
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
    tri_metric_observe(g->histogram[HISTOGRAM_INFERENCE], s - (f.admitted_s - f.submitted_s));
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

void tri__gauges_http(struct tri__gauges *g, size_t handler, int status, double s)
{
    int class = status / 100 - 2;
    TRI_ASSERT(handler < TRI__API_HANDLERS);
    if (class >= 0 && class < N_CLASSES)
        tri_metric_add(g->http[handler][class], 1);
    tri_metric_observe(g->histogram[HISTOGRAM_HTTP], s);
}

void tri__gauges_asked(struct tri__gauges *g, const struct tri__params *p)
{
    tri_metric_observe(g->histogram[HISTOGRAM_PARAM_N], (double)p->n);
    if (p->max_tokens_given)
        tri_metric_observe(g->histogram[HISTOGRAM_PARAM_MAX], (double)p->max_tokens);
}

void tri__gauges_longest(struct tri__gauges *g, int64_t tokens)
{
    tri_metric_observe(g->histogram[HISTOGRAM_LONGEST], (double)tokens);
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
    const struct tri_engine_counters *e = &s->engine;
    const struct tri_experts_stats *x = &s->experts;
    const struct {
        enum counter which;
        double value;
    } all[] = { { COUNTER_PROMPT_TOKENS, (double)s->query_tokens },
                { COUNTER_GENERATION_TOKENS, (double)s->sampled_tokens },
                { COUNTER_CACHE_QUERIES, (double)s->query_tokens },
                { COUNTER_CACHE_HITS, (double)s->hit_tokens },
                { COUNTER_CORRUPTED, (double)e->numeric_failures },
                { COUNTER_CHECKPOINTS_TAKEN, (double)s->ram.taken },
                { COUNTER_CHECKPOINTS_EVICTED, (double)s->ram.evicted },
                { COUNTER_PREEMPTIONS, (double)s->preempted },
                { COUNTER_HIT_SLOT, (double)s->hit_tokens_of[TRI_TIER_SLOT] },
                { COUNTER_HIT_RAM, (double)s->hit_tokens_of[TRI_TIER_RAM] },
                { COUNTER_HIT_DISK, (double)s->hit_tokens_of[TRI_TIER_DISK] },
                { COUNTER_FILES_WRITTEN, (double)s->disk.taken },
                { COUNTER_FILES_EVICTED, (double)s->disk.evicted },
                { COUNTER_FILES_FAILED, (double)s->disk_failures },
                { COUNTER_FILES_LEFT_OUT, (double)s->disk_left_out },
                { COUNTER_FILES_DAMAGED, (double)s->disk_damaged },
                { COUNTER_FILE_BYTES_WRITTEN, (double)s->disk_written_bytes },
                { COUNTER_FILE_BYTES_READ, (double)s->disk_read_bytes },
                { COUNTER_STEPS, (double)e->steps },
                { COUNTER_PREFILLED, (double)e->prefill_tokens },
                { COUNTER_DECODED, (double)e->decode_tokens },
                { COUNTER_PREFILL_S, (double)e->prefill_ns * 1e-9 },
                { COUNTER_DECODE_S, (double)e->decode_ns * 1e-9 },
                { COUNTER_SAMPLE_S, (double)e->sample_ns * 1e-9 },
                { COUNTER_EXPERT_HITS, (double)(x->reuse_hits + x->prefetch_hits) },
                { COUNTER_EXPERT_MISSES, (double)x->misses },
                { COUNTER_EXPERT_BYTES, (double)x->read_bytes },
                { COUNTER_EXPERT_EVICTIONS, (double)x->evictions },
                { COUNTER_EXPERT_WASTED, (double)x->wasted_prefetches },
                { COUNTER_EXPERT_WAIT_S, (double)x->wait_ns * 1e-9 },
                { COUNTER_EXPERT_READ_S, (double)x->reading_ns * 1e-9 } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tri_metric_set(g->counter[all[i].which], all[i].value);
    tri_metric_set_buckets(g->histogram[HISTOGRAM_STEP_TOKENS], s->step_tokens,
                           (double)(e->prefill_tokens + e->decode_tokens));
}

/* Reading bodies, and what their answers must look like. */
static void set_prepared(struct tri__gauges *g, struct tri_api *api)
{
    struct tri_grammar_cache_stats forms;
    tri_grammar_cache_read_stats(api->grammars, &forms);
    tri_metric_set(g->counter[COUNTER_APART], (double)tri__preparer_done(api->preparer));
    tri_metric_set(g->counter[COUNTER_GRAMMARS], (double)forms.added);
    tri_metric_set(g->counter[COUNTER_GRAMMAR_HITS], (double)forms.hits);
    tri_metric_set(g->gauge[GAUGE_GRAMMARS_KEPT], (double)forms.kept);
    tri_metric_set(g->gauge[GAUGE_PREPARING], (double)tri__preparer_waiting(api->preparer));
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
    tri_metric_set(g->gauge[GAUGE_CACHE_USE_OLD], all > 0 ? (double)s.held_tokens / all : 0);
    tri_metric_set(g->gauge[GAUGE_STEP_AGE], s.running ? tri_clock_s() - s.last_step_s : 0);
    set_prepared(g, api);
    tri_metric_set(g->gauge[GAUGE_EXPERT_SLOTS], (double)s.experts.slots);
    tri_metric_set(g->gauge[GAUGE_EXPERT_RECORDS], (double)s.experts.records);
    tri_metric_set(g->gauge[GAUGE_CHECKPOINTS], (double)s.ram.checkpoints);
    tri_metric_set(g->gauge[GAUGE_CHECKPOINT_BYTES], (double)s.ram.bytes);
    tri_metric_set(g->gauge[GAUGE_FILES], (double)s.disk.checkpoints);
    tri_metric_set(g->gauge[GAUGE_FILE_BYTES], (double)s.disk.bytes);
    tri_metric_set(g->gauge[GAUGE_ROOM], (double)s.room_bytes);
    tri_metric_set(g->gauge[GAUGE_ROOM_USED], (double)s.room_used_bytes);
    tri_metric_set(g->gauge[GAUGE_CONNECTIONS], (double)tri_http_connections(api->http));
    tri_metric_set(g->gauge[GAUGE_MEMORY_CEILING], (double)memory.ceiling_bytes);
    tri_metric_set(g->gauge[GAUGE_RSS], resident_bytes());
    tri_metric_set(g->gauge[GAUGE_FDS], open_fds());
    for (int i = 0; i < TRI_MEM_ACCOUNTS; i++)
        tri_metric_set(g->account[i], (double)memory.account_used_bytes[i]);
    tri_metrics_write(g->metrics, out);
}
