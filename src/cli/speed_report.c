/* The results of `trireme speed`, for a person and for a program. */
#include "cli/speed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/json.h"
#include "spec/spec.h"

static const char *trunk_name(const struct tri_opened *o)
{
    switch (tri_model_trunk(o->model)) {
    case TRI_TRUNK_F32:
        return "f32";
    case TRI_TRUNK_BF16:
        return "bf16";
    case TRI_TRUNK_INT8:
        return "int8";
    case TRI_TRUNK_INT4:
        return "int4";
    case TRI_TRUNK_STREAM:
        return "streamed";
    case TRI_TRUNK_AUTO:
    case TRI_TRUNK_DISK:
        break;
    }
    return "as on disk";
}

static const char *act_name(const struct speed_args *a)
{
    return a->flags.options.act == TRI_ACT_INT8 ? "int8" : "exact";
}

static double rate_of(const struct speed_row *r, double seconds)
{
    return speed_row_tokens(r) / seconds;
}

static double share(const struct speed_report *report, const struct speed_row *r, bool *by_reading)
{
    return 100 * speed_limit_s(report, r, by_reading) / r->median_s;
}

static void print_limits(const struct speed_report *r)
{
    if (r->reads)
        printf("limits   read %.1f GB/s, the best of %d passes by %d threads between the rows\n",
               r->read_bytes_per_s * 1e-9, r->reads, r->threads);
    for (int i = 0; i < r->peaks; i++)
        printf("         %-4s %8.1f G operations/s  %s\n", tri_peak_kind_name(r->peak[i].kind),
               r->peak[i].ops_per_s * 1e-9, r->peak[i].loop);
}

static void print_cost(const struct speed_report *r)
{
    const struct speed_cost *c = &r->cost;
    struct speed_step one = { 1, 1, 0, 1, c->moe_layers * c->topk };
    printf("a token  %.2f MB = trunk %.2f + %.0f experts %.2f + state %.2f; %.1f M operations\n",
           speed_step_bytes(c, &one) * 1e-6, c->trunk_bytes * 1e-6, one.distinct,
           one.distinct * c->expert_bytes * 1e-6, (c->state_bytes + c->mla_bytes) * 1e-6,
           speed_step_ops(c, &one) * 1e-6);
}

static void print_rows(const struct speed_report *report)
{
    printf("\n%-13s%6s%8s%11s  %-21s%9s%8s%8s%9s  %s\n", "what", "batch", "depth", "tokens/s",
           "(least to most)", "step ms", "experts", "GB/s", "G op/s", "share of the limit");
    for (int i = 0; i < report->rows; i++) {
        const struct speed_row *r = &report->row[i];
        bool by_reading = false;
        double steps = (double)r->profile.steps / (double)r->reps, percent;
        char spread[40], what[24];
        snprintf(what, sizeof what, "%s %" PRId64, r->decode ? "decode" : "prefill", r->tokens);
        snprintf(spread, sizeof spread, "(%.2f to %.2f)", rate_of(r, r->most_s),
                 rate_of(r, r->least_s));
        printf("%-13s%6" PRId64 "%8" PRId64 "%11.2f  %-21s%9.3f%8.1f%8.2f%9.1f", what, r->batch,
               r->depth, rate_of(r, r->median_s), spread, r->median_s / steps * 1e3, r->distinct,
               r->bytes / r->median_s * 1e-9, r->ops / r->median_s * 1e-9);
        percent = share(report, r, &by_reading);
        if (report->reads)
            printf("  %.1f %% of %s", percent, by_reading ? "reading" : "int8 arithmetic");
        printf("\n");
    }
}

/* Per repetition: what came from drives, how fast while any read was in flight, and how well
 * reading and computing overlapped. */
static void print_store(const struct speed_report *report)
{
    bool any = false;
    for (int i = 0; i < report->rows; i++) {
        const struct speed_row *r = &report->row[i];
        const struct tri_experts_stats *s = &r->store;
        double reps = (double)r->reps, spent = 0;
        if (s->read_bytes == 0)
            continue;
        for (int k = 0; k < TRI_TIMES; k++)
            spent += (double)r->profile.ns[k] * 1e-9 / reps;
        double rate = (double)s->read_bytes / ((double)s->reading_ns * 1e-9);
        double wait = (double)s->wait_ns * 1e-9 / reps, compute = spent - wait;
        if (!any)
            printf("\nexperts from drives, per repetition\n%-13s%9s%9s%9s%10s%9s%9s%9s%9s%9s\n", "",
                   "hits %", "ahead %", "GB", "GB/s", "drive", "time s", "waited", "compute",
                   "reading");
        any = true;
        printf("%-7s %-5" PRId64 "%9.1f%9.1f%9.2f%10.2f%9.2f%9.2f%9.2f%9.2f%9.2f\n",
               r->decode ? "decode" : "prefill", r->tokens,
               100 * (double)s->reuse_hits / (double)s->wanted,
               100 * (double)s->prefetch_hits / (double)s->wanted,
               (double)s->read_bytes * 1e-9 / reps, rate * 1e-9, r->drive_bytes_per_s * 1e-9, spent,
               wait, compute, (double)s->reading_ns * 1e-9 / reps);
        if (r->drive_bytes_per_s > 0) {
            double disk = (double)s->read_bytes / reps / r->drive_bytes_per_s;
            printf("             reads at %.0f %% of the drive; time is %.2f of max(drive %.2f s, "
                   "compute %.2f s)\n",
                   100 * rate / r->drive_bytes_per_s, spent / (disk > compute ? disk : compute),
                   disk, compute);
        }
    }
}

static void print_parts(const struct speed_report *report)
{
    printf("\ntime by part, %% of a step\n%-24s", "");
    for (int i = 0; i < report->rows; i++) {
        const struct speed_row *r = &report->row[i];
        char name[32];
        snprintf(name, sizeof name, "%c%" PRId64 "/%" PRId64 "/%" PRId64, r->decode ? 'd' : 'p',
                 r->tokens, r->batch, r->depth);
        printf("%14s", name);
    }
    for (int part = 0; part < TRI_TIMES; part++) {
        printf("\n%-24s", tri_time_name((enum tri_time)part));
        for (int i = 0; i < report->rows; i++) {
            const struct speed_row *r = &report->row[i];
            double all = 0;
            for (int k = 0; k < TRI_TIMES; k++)
                all += (double)r->profile.ns[k];
            printf("%14.1f", all > 0 ? 100 * (double)r->profile.ns[part] / all : 0);
        }
    }
    printf("\n");
}

void speed_print(const struct speed_report *report, const struct speed_args *a,
                 const struct tri_opened *o)
{
    printf(
        "model    %s, trunk %s, activations %s, cache %s, KDA state %s, %d threads, chunk %" PRId64
        ", loaded in %.1f s\n",
        o->folder, trunk_name(o), act_name(a), tri_dtype_name(tri_model_state_form(o->model).cache),
        tri_dtype_name(tri_model_state_form(o->model).kda), report->threads,
        tri_model_chunk_tokens(o->model), o->load_s);
    if (o->numa.interleave)
        printf("numa     %s\n", o->numa.why);
    print_limits(report);
    print_cost(report);
    print_rows(report);
    print_store(report);
    print_parts(report);
}

static json_t *store_json(const struct speed_row *r)
{
    const struct tri_experts_stats *s = &r->store;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "wanted", (json_int_t)s->wanted,
                     "reuse_hits", (json_int_t)s->reuse_hits, "prefetch_hits",
                     (json_int_t)s->prefetch_hits, "wasted_prefetches",
                     (json_int_t)s->wasted_prefetches, "read_bytes", (json_int_t)s->read_bytes,
                     "wait_s", (double)s->wait_ns * 1e-9, "reading_s", (double)s->reading_ns * 1e-9,
                     "drive_bytes_per_s", r->drive_bytes_per_s);
}

static json_t *row_json(const struct speed_report *report, const struct speed_row *r)
{
    bool by_reading = false;
    double percent = share(report, r, &by_reading);
    json_t *parts = json_object();
    for (int i = 0; i < TRI_TIMES; i++)
        json_object_set_new(parts, tri_time_name((enum tri_time)i),
                            json_real((double)r->profile.ns[i] * 1e-9 / (double)r->reps));
    json_t *row = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "what",
        r->decode ? "decode" : "prefill", "tokens", (json_int_t)r->tokens, "batch",
        (json_int_t)r->batch, "depth", (json_int_t)r->depth, "repetitions", (json_int_t)r->reps,
        "tokens_per_s", rate_of(r, r->median_s), "tokens_per_s_least", rate_of(r, r->most_s),
        "tokens_per_s_most", rate_of(r, r->least_s), "bytes", r->bytes, "operations", r->ops,
        "distinct_experts", r->distinct, "expected_distinct_experts", r->expected_distinct,
        "seconds_by_part", parts);
    if (report->reads) {
        json_object_set_new(row, "read_bytes_per_s", json_real(r->read_bytes_per_s));
        json_object_set_new(row, "limit_percent", json_real(percent));
        json_object_set_new(row, "limited_by", json_string(by_reading ? "reading" : "arithmetic"));
    }
    if (r->store.read_bytes)
        json_object_set_new(row, "experts", store_json(r));
    return row;
}

static json_t *cost_json(const struct speed_cost *c)
{
    struct speed_step one = { 1, 1, 0, 1, c->moe_layers * c->topk };
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "bytes_per_token",
                     speed_step_bytes(c, &one), "operations_per_token", speed_step_ops(c, &one),
                     "trunk_bytes", c->trunk_bytes, "expert_bytes", c->expert_bytes,
                     "experts_per_token", one.distinct, "state_bytes", c->state_bytes,
                     "mla_bytes_per_cached_token", c->mla_bytes);
}

void speed_print_json(const struct speed_report *report, const struct speed_args *a,
                      const struct tri_opened *o)
{
    json_t *rows = json_array(), *peaks = json_array();
    for (int i = 0; i < report->rows; i++)
        json_array_append_new(rows, row_json(report, &report->row[i]));
    for (int i = 0; i < report->peaks; i++)
        json_array_append_new(peaks, json_pack("{s:s, s:s, s:f}", "kind",
                                               tri_peak_kind_name(report->peak[i].kind), "loop",
                                               report->peak[i].loop, "operations_per_s",
                                               report->peak[i].ops_per_s));
    json_t *all =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:f, s:f, s:o, s:o, s:o, s:{s:s, s:b, s:b}}",
                  "model", o->folder, "trunk", trunk_name(o), "activations", act_name(a), "cache",
                  tri_dtype_name(tri_model_state_form(o->model).cache), "kda_state",
                  tri_dtype_name(tri_model_state_form(o->model).kda), "threads", report->threads,
                  "chunk", (json_int_t)tri_model_chunk_tokens(o->model), "load_s", o->load_s,
                  "read_bytes_per_s", report->read_bytes_per_s, "peaks", peaks, "cost",
                  cost_json(&report->cost), "rows", rows, "numa", "why", o->numa.why, "interleaved",
                  o->numa.interleave, "threads_bound", report->bound);
    json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    printf("\n");
    json_decref(all);
}
