/*
 * A bench result beside the plan: what share of each figure was reached, whether the result agrees
 * with itself, and the likeliest cause of the gap. Reads vLLM's --save-result file and AIPerf's
 * profile_export_aiperf.json (planner notes 4.3).
 */
#include "plan/report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CHECK_MAX_BYTES = 64 << 20, CHECK_MAX_CAUSES = 6 };

struct result {
    const char *tool;
    double ttft_ms, tpot_ms, itl_ms, tokens_per_s, requests_per_s; /* 0 unknown */
    double input_tokens, output_tokens, concurrency, failed;
};

/* AIPerf: { "metric": { "unit": ..., "avg": ... } }. */
static double average(const json_t *root, const char *metric)
{
    const json_t *m = json_object_get(root, metric);
    double value = tri__num(m, "avg", 0);
    const char *unit = tri__str(m, "unit", "");
    return !strcmp(unit, "s") || !strcmp(unit, "sec") ? value * 1000
           : !strcmp(unit, "us")                      ? value / 1000
           : !strcmp(unit, "ns")                      ? value / 1e6
                                                      : value;
}

static bool read_aiperf(struct result *r, const json_t *root)
{
    if (!json_is_object(json_object_get(root, "time_to_first_token")) &&
        !json_is_object(json_object_get(root, "request_latency")))
        return false;
    r->tool = "AIPerf";
    r->ttft_ms = average(root, "time_to_first_token");
    r->tpot_ms = average(root, "inter_token_latency"); /* (latency - TTFT) / (tokens - 1) */
    r->itl_ms = average(root, "inter_chunk_latency");
    r->tokens_per_s = tri__num(json_object_get(root, "output_token_throughput"), "avg", 0);
    r->requests_per_s = tri__num(json_object_get(root, "request_throughput"), "avg", 0);
    r->input_tokens = tri__num(json_object_get(root, "input_sequence_length"), "avg", 0);
    r->output_tokens = tri__num(json_object_get(root, "output_sequence_length"), "avg", 0);
    const json_t *config = json_object_get(root, "input_config");
    const json_t *loadgen = json_object_get(config, "loadgen");
    r->concurrency = tri__num(loadgen, "concurrency", 0);
    r->failed = tri__num(json_object_get(root, "error_request_count"), "avg", 0);
    return true;
}

static bool read_vllm(struct result *r, const json_t *root)
{
    if (!json_object_get(root, "mean_ttft_ms") || !json_object_get(root, "output_throughput"))
        return false;
    double completed = tri__num(root, "completed", 0);
    r->tool = "vLLM bench";
    r->ttft_ms = tri__num(root, "mean_ttft_ms", 0);
    r->tpot_ms = tri__num(root, "mean_tpot_ms", 0);
    r->itl_ms = tri__num(root, "mean_itl_ms", 0);
    r->tokens_per_s = tri__num(root, "output_throughput", 0);
    r->requests_per_s = tri__num(root, "request_throughput", 0);
    r->concurrency = tri__num(root, "max_concurrency", 0);
    r->failed = tri__num(root, "failed", 0);
    if (completed > 0) {
        r->input_tokens = tri__num(root, "total_input_tokens", 0) / completed;
        r->output_tokens = tri__num(root, "total_output_tokens", 0) / completed;
    }
    return true;
}

/* ---- causes --------------------------------------------------------------------------------- */

struct causes {
    char text[CHECK_MAX_CAUSES][240];
    int count;
};

static void say(struct causes *c, const char *format, ...) TRI_PRINTF(2, 3);
static void say(struct causes *c, const char *format, ...)
{
    va_list args;
    if (c->count == CHECK_MAX_CAUSES)
        return;
    va_start(args, format);
    vsnprintf(c->text[c->count++], sizeof c->text[0], format, args);
    va_end(args);
}

static bool differs(double a, double b, double share)
{
    return a > 0 && b > 0 && fabs(a / b - 1) > share;
}

/* Before anything is blamed: was the same load asked, and does the file agree with itself? */
static void check_load(const struct tri_plan *p, const struct result *r, struct causes *c)
{
    const struct tri_plan_options *o = &p->options;
    if (differs(r->input_tokens, (double)o->input_tokens, 0.15) ||
        differs(r->output_tokens, (double)o->output_tokens, 0.15))
        say(c,
            "another load: %.0f tokens in and %.0f out were measured, %lld and %lld planned; plan "
            "again with --input %.0f --output %.0f",
            r->input_tokens, r->output_tokens, (long long)o->input_tokens,
            (long long)o->output_tokens, r->input_tokens, r->output_tokens);
    if (differs(r->concurrency, (double)o->concurrency, 0.01))
        say(c,
            "another load: %.0f at once were measured, %lld planned; plan again with "
            "--concurrency %.0f",
            r->concurrency, (long long)o->concurrency, r->concurrency);
    if (r->failed > 0)
        say(c, "%.0f requests failed: the figures leave them out", r->failed);
    double latency_s = (r->ttft_ms + r->tpot_ms * (r->output_tokens - 1)) / 1000;
    double little = r->requests_per_s * latency_s;
    if (r->concurrency > 0 && little > 0 && little < r->concurrency * 0.85)
        say(c,
            "Little's law: rate x latency is %.1f of %.0f clients: the client or a warm-up held "
            "requests back, not the engine",
            little, r->concurrency);
    if (r->itl_ms > r->tpot_ms * 1.5 && r->tpot_ms > 0)
        say(c,
            "gaps between chunks (%.1f ms) are %.1f times TPOT: chunks carry several tokens "
            "(speculation or streaming intervals); judge TPOT",
            r->itl_ms, r->itl_ms / r->tpot_ms);
}

static void blame(const struct tri_plan *p, const struct result *r, struct causes *c)
{
    const struct tri_speed *s = &p->best.speed;
    double decode = r->tpot_ms > 0 ? s->tpot_ms / r->tpot_ms : 1;
    double prompt = r->ttft_ms > 0 ? s->ttft_ms / r->ttft_ms : 1;
    double edge = 1 / (1 + s->band);
    if (decode < edge) {
        double extra_us = (r->tpot_ms * p->acceptance - s->step_ms) * 1000 / p->arch->layers;
        if (s->step.link > s->step.total * 0.25)
            say(c,
                "decode reaches %.0f %% and links take %.0f %% of a planned step: look at the "
                "paths first (trireme doctor): P2P off, a pair across sockets, NCCL on sockets",
                decode * 100, s->step.link / s->step.total * 100);
        say(c,
            "decode: a step takes %.0f us a layer more than planned: graphs not captured "
            "(eager), young kernels for this card, or speculation accepted less",
            extra_us);
    }
    if (prompt < edge && decode >= edge)
        say(c, "prompts: decode is as planned, the first token is not: a start burst, a smaller "
               "prefill chunk, a cold prefix cache, or time before the engine (tokenizer, proxy)");
    else if (prompt < edge)
        say(c,
            "prompts: %.0f %% of plan as well: bandwidth or clocks of the cards, or the links, "
            "rather than one kernel",
            prompt * 100);
    if (decode > 1 + s->band)
        say(c,
            "decode is faster than planned by more than the band: fewer tokens, a shared prefix, "
            "or synthetic acceptance; check what was counted");
}

static void row(struct tri_buf *out, const char *name, double planned, double measured, bool time)
{
    if (measured <= 0 || planned <= 0)
        return;
    double share = time ? planned / measured : measured / planned;
    tri_buf_printf(out, "  %-12s %10.4g planned %10.4g measured   %4.0f %% of plan ", name, planned,
                   measured, share * 100);
    for (int i = 0; i < (int)lround(share * 20) && i < 40; i++)
        tri_buf_putc(out, '=');
    tri_buf_putc(out, '\n');
}

static void render(const struct tri_plan *p, const struct result *r, struct tri_buf *out)
{
    const struct tri_speed *s = &p->best.speed;
    struct causes causes = { .count = 0 };
    tri_buf_printf(out, "%s on %s, %s result beside the plan (band %.0f %%)\n", p->arch->name,
                   p->fleet.text, r->tool, s->band * 100);
    row(out, "TTFT ms", s->ttft_ms, r->ttft_ms, true);
    row(out, "TPOT ms", s->tpot_ms, r->tpot_ms, true);
    row(out, "tokens/s", s->tokens_per_s, r->tokens_per_s, false);
    check_load(p, r, &causes);
    bool same_load = causes.count == 0 || strncmp(causes.text[0], "another", 7) != 0;
    if (same_load)
        blame(p, r, &causes);
    tri_buf_puts(out,
                 causes.count ? "Likeliest first:\n" : "Within the band: nothing to look for.\n");
    for (int i = 0; i < causes.count; i++)
        tri_buf_printf(out, "  %d. %s\n", i + 1, causes.text[i]);
}

enum tri_status tri_plan_check(const struct tri_plan *plan, const char *path, struct tri_buf *out,
                               struct tri_error *err)
{
    json_t *root = NULL;
    struct result r = { 0 };
    enum tri_status status = tri_json_load(&root, path, CHECK_MAX_BYTES, err);
    if (status)
        return status;
    if (!read_vllm(&r, root) && !read_aiperf(&r, root))
        status = tri_fail(err, TRI_FORMAT,
                          "%s: neither vLLM's bench result (mean_ttft_ms, output_throughput) nor "
                          "AIPerf's (time_to_first_token)",
                          path);
    else if (plan->best.grade < TRI_GRADE_GENERATES)
        status = tri_fail(err, TRI_ARG,
                          "the plan says %s %s: there is no speed to hold the result against",
                          plan->arch->name, tri_grade_name(plan->best.grade));
    else
        render(plan, &r, out);
    json_decref(root);
    return status ? status : out->failed;
}
