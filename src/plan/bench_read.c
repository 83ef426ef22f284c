/*
 * Readers of result files: vLLM's --save-result (SGLang's bench_serving writes the same keys),
 * AIPerf's profile_export_aiperf.json (planner notes 4.3), trireme speed --json, and the serve
 * bench that docs/planner.md describes. A figure that no bench can measure is refused.
 */
#include "plan/bench_priv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST 1e9 /* of anything here: ms, tokens, requests, tokens/s */

/* Figures of one object; the first absurd one sticks. */
struct reader {
    const char *path;
    struct tri_error *err;
    enum tri_status status;
};

static double number(struct reader *r, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value) || r->status)
        return 0;
    double x = json_number_value(value);
    if (json_is_number(value) && x >= 0 && x <= MOST && (x <= 0 || x >= 1e-6))
        return x;
    r->status = json_is_number(value)
                    ? tri_fail(r->err, TRI_FORMAT, "%s: %s is %.3g: no bench measures that",
                               r->path, key, x)
                    : tri_fail(r->err, TRI_FORMAT, "%s: %s is not a number", r->path, key);
    return 0;
}

/* AIPerf: { "metric": { "unit": ..., "avg": ... } }. */
static double average_ms(struct reader *r, const json_t *root, const char *metric)
{
    const json_t *m = json_object_get(root, metric);
    const char *unit = tri__str(m, "unit", "");
    double value = number(r, m, "avg");
    return !strcmp(unit, "s") || !strcmp(unit, "sec") ? value * 1000
           : !strcmp(unit, "us")                      ? value / 1000
           : !strcmp(unit, "ns")                      ? value / 1e6
                                                      : value;
}

static bool read_aiperf(struct tri__bench *b, struct reader *r, const json_t *root)
{
    if (!json_is_object(json_object_get(root, "time_to_first_token")) &&
        !json_is_object(json_object_get(root, "request_latency")))
        return false;
    b->tool = "AIPerf";
    b->ttft_ms = average_ms(r, root, "time_to_first_token");
    b->tpot_ms = average_ms(r, root, "inter_token_latency"); /* (latency - TTFT) / (tokens - 1) */
    b->itl_ms = average_ms(r, root, "inter_chunk_latency");
    b->tokens_per_s = number(r, json_object_get(root, "output_token_throughput"), "avg");
    b->requests_per_s = number(r, json_object_get(root, "request_throughput"), "avg");
    b->input_tokens = number(r, json_object_get(root, "input_sequence_length"), "avg");
    b->output_tokens = number(r, json_object_get(root, "output_sequence_length"), "avg");
    const json_t *config = json_object_get(root, "input_config");
    b->concurrency = number(r, json_object_get(config, "loadgen"), "concurrency");
    b->failed = number(r, json_object_get(root, "error_request_count"), "avg");
    return true;
}

static bool read_vllm(struct tri__bench *b, struct reader *r, const json_t *root)
{
    if (!json_object_get(root, "mean_ttft_ms") || !json_object_get(root, "output_throughput"))
        return false;
    double completed = number(r, root, "completed");
    b->tool = "vLLM or SGLang bench";
    b->ttft_ms = number(r, root, "mean_ttft_ms");
    b->tpot_ms = number(r, root, "mean_tpot_ms");
    b->itl_ms = number(r, root, "mean_itl_ms");
    b->tokens_per_s = number(r, root, "output_throughput");
    b->requests_per_s = number(r, root, "request_throughput");
    b->concurrency = number(r, root, "max_concurrency");
    b->failed = number(r, root, "failed");
    if (completed >= 1) {
        b->input_tokens = number(r, root, "total_input_tokens") / completed;
        b->output_tokens = number(r, root, "total_output_tokens") / completed;
    }
    return true;
}

/* docs/planner.md, "Result files". */
static bool read_serve(struct tri__bench *b, struct reader *r, const json_t *root)
{
    const json_t *ttft = json_object_get(root, "ttft_ms");
    if (!json_is_object(ttft) || !json_object_get(root, "output_tokens_per_s"))
        return false;
    b->tool = "serve bench";
    b->ttft_ms = number(r, ttft, "mean");
    b->tpot_ms = number(r, json_object_get(root, "tpot_ms"), "mean");
    b->itl_ms = number(r, json_object_get(root, "itl_ms"), "mean");
    b->tokens_per_s = number(r, root, "output_tokens_per_s");
    b->requests_per_s = number(r, root, "requests_per_s");
    b->input_tokens = number(r, root, "input_tokens");
    b->output_tokens = number(r, root, "output_tokens");
    b->concurrency = number(r, root, "concurrency");
    b->failed = number(r, root, "failed");
    b->acceptance = number(r, root, "acceptance");
    return true;
}

static bool read_speed(struct tri__bench *b, struct reader *r, const json_t *root)
{
    const json_t *rows = json_object_get(root, "rows");
    if (!json_is_array(rows) || !json_object_get(root, "cost"))
        return false;
    b->tool = "trireme speed";
    for (size_t i = 0; i < json_array_size(rows) && b->rows < TRI__BENCH_MAX_ROWS; i++) {
        const json_t *j = json_array_get(rows, i);
        struct tri__bench_row row = { .decode = !strcmp(tri__str(j, "what", ""), "decode"),
                                      .tokens = number(r, j, "tokens"),
                                      .batch = fmax(1, number(r, j, "batch")),
                                      .depth = number(r, j, "depth"),
                                      .tokens_per_s = number(r, j, "tokens_per_s") };
        if (row.tokens_per_s > 0 && (row.decode || row.tokens >= 1))
            b->row[b->rows++] = row;
    }
    double read = json_number_value(json_object_get(root, "read_bytes_per_s"));
    b->read_gbs = read > 0 && read < 1e15 ? read / 1e9 : 0;
    double trunk = json_number_value(json_object_get(json_object_get(root, "cost"), "trunk_bytes"));
    b->trunk_bytes = trunk > 0 && trunk < 1e15 ? trunk : 0;
    snprintf(b->trunk, sizeof b->trunk, "%.23s", tri__str(root, "trunk", ""));
    return true;
}

enum tri_status tri__bench_read(struct tri__bench *out, const char *path, struct tri_error *err)
{
    json_t *root = NULL;
    struct reader r = { path, err, TRI_OK };
    enum tri_status status = tri_json_load(&root, path, TRI__BENCH_MAX_BYTES, err);
    if (status)
        return status;
    memset(out, 0, sizeof *out);
    bool known = read_vllm(out, &r, root) || read_aiperf(out, &r, root) ||
                 read_speed(out, &r, root) || read_serve(out, &r, root);
    json_decref(root);
    if (r.status)
        return r.status;
    if (!known)
        return tri_fail(err, TRI_FORMAT,
                        "%s: no result known here: vLLM's or SGLang's bench (mean_ttft_ms, "
                        "output_throughput), AIPerf (time_to_first_token), trireme speed --json "
                        "(rows, cost), a serve bench (ttft_ms, output_tokens_per_s)",
                        path);
    if (!out->rows && out->ttft_ms <= 0 && out->tpot_ms <= 0 && out->tokens_per_s <= 0)
        return tri_fail(err, TRI_FORMAT, "%s: no figure in it to hold beside the plan", path);
    return TRI_OK;
}
