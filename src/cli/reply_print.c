/* How an answer is reported after it was made: the last line, --stats, --json. See reply.h. */
#include <inttypes.h>
#include <string.h>
#include "base/json.h"
#include "cli/human.h"
#include "cli/reply.h"
#include "cli/store_stats.h"
#include "cli/terminal.h"

static double rate(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

/* What was computed for the prompt, and what was decoded one by one after the first token. */
static int64_t read_tokens(const struct tri_reply *r)
{
    return r->prompt_tokens - r->reused_tokens;
}

static int64_t written_tokens(const struct tri_reply *r)
{
    return (int64_t)r->sampled.count_tokens;
}

static double decode_rate(const struct tri_reply *r)
{
    return written_tokens(r) > 1 ? rate((double)written_tokens(r) - 1, r->decode_s) : 0;
}

void tri_reply_line(FILE *out, const struct tri_reply *r, bool terminal)
{
    tri_dim(out, true, terminal);
    fprintf(out, "read %" PRId64 " tokens", read_tokens(r));
    if (r->reused_tokens)
        fprintf(out, " (%" PRId64 " kept)", r->reused_tokens);
    fprintf(out, " in %.2f s, %.1f/s; wrote %" PRId64 " in %.2f s, %.1f/s", r->prefill_s,
            rate((double)read_tokens(r), r->prefill_s), written_tokens(r), r->decode_s,
            decode_rate(r));
    if (r->context_full)
        fprintf(out, "; the context is full");
    else if (!strcmp(r->finish, "length"))
        fprintf(out, "; cut at --max-tokens");
    else if (!strcmp(r->finish, "interrupted"))
        fprintf(out, "; interrupted");
    if (strcmp(r->finish, "stop") != 0 && r->channel == TRI_CHANNEL_THINK)
        fprintf(out, " while thinking");
    tri_dim(out, false, terminal);
    fputc('\n', out);
    fflush(out);
}

static void print_memory(FILE *out, const struct tri_budget *budget)
{
    struct tri_budget_report now;
    char used[32], peak[32];
    tri_budget_read(budget, &now);
    fprintf(out, "%-22s %12s %12s\n", "memory", "now", "at most");
    for (int i = 0; i < TRI_MEM_ACCOUNTS; i++)
        if (now.account_peak_bytes[i])
            fprintf(out, "  %-20s %12s %12s\n", tri_account_name((enum tri_account)i),
                    tri_human_bytes(used, now.account_used_bytes[i]),
                    tri_human_bytes(peak, now.account_peak_bytes[i]));
    char ceiling[32];
    fprintf(out, "  %-20s %12s %12s of %s\n", "all", tri_human_bytes(used, now.used_bytes),
            tri_human_bytes(peak, now.peak_bytes), tri_human_bytes(ceiling, now.ceiling_bytes));
}

void tri_reply_stats(FILE *out, const struct tri_reply *r, const struct tri_talk *talk,
                     uint64_t seed)
{
    struct tri_engine_counters c;
    tri_engine_count(talk->engine, &c);
    fprintf(out, "%-22s %12.3f s\n", "load", talk->opened.load_s);
    if (r) {
        fprintf(out, "%-22s %12.3f s\n", "time to first token", r->first_token_s);
        fprintf(out, "%-22s %12" PRId64 " tokens, %.1f/s\n", "prefill", read_tokens(r),
                rate((double)read_tokens(r), r->prefill_s));
        fprintf(out, "%-22s %12" PRId64 " tokens, %.1f/s\n", "decode", written_tokens(r),
                decode_rate(r));
    }
    fprintf(out, "%-22s %12" PRIu64 ", sampling %.3f s\n", "forward passes", c.steps,
            (double)c.sample_ns * 1e-9);
    fprintf(out, "%-22s %12" PRId64 " tokens\n", "context", talk->context_tokens);
    fprintf(out, "%-22s %12" PRIu64 "\n", "seed", seed);
    struct tri_experts_stats experts;
    tri_model_expert_stats(talk->opened.model, &experts);
    tri_profile_print(out, &talk->profile);
    tri_store_print(out, &experts, c.prefill_tokens + c.decode_tokens);
    print_memory(out, talk->opened.budget);
    fflush(out);
}

static json_t *calls_json(const struct tri_turn *turn)
{
    json_t *list = json_array();
    for (size_t i = 0; i < turn->call_count; i++) {
        const struct tri_call *c = &turn->calls[i];
        json_t *one = json_object();
        json_object_set_new(one, "name", json_stringn(c->name, c->name_bytes));
        json_object_set_new(one, "arguments", json_stringn(c->arguments, c->arguments_bytes));
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *deviations_json(const struct tri_turn *turn)
{
    json_t *all = json_object();
    for (int i = 0; i < TRI_DEVIATIONS; i++)
        if (turn->deviations[i])
            json_object_set_new(all, tri_deviation_name((enum tri_deviation)i),
                                json_integer(turn->deviations[i]));
    return all;
}

static json_t *tokens_json(const struct tri_ids *ids)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ids->count_tokens; i++)
        json_array_append_new(list, json_integer(ids->data[i]));
    return list;
}

static json_t *usage_json(const struct tri_reply *r)
{
    json_t *usage = json_object();
    json_object_set_new(usage, "prompt_tokens", json_integer(r->prompt_tokens));
    json_object_set_new(usage, "cached_tokens", json_integer(r->reused_tokens));
    json_object_set_new(usage, "completion_tokens", json_integer(written_tokens(r)));
    json_object_set_new(usage, "reasoning_tokens", json_integer(r->reasoning_tokens));
    return usage;
}

static json_t *timings_json(const struct tri_reply *r, const struct tri_talk *talk)
{
    json_t *t = json_object();
    json_object_set_new(t, "load_s", json_real(talk->opened.load_s));
    json_object_set_new(t, "first_token_s", json_real(r->first_token_s));
    json_object_set_new(t, "prefill_s", json_real(r->prefill_s));
    json_object_set_new(t, "prefill_tokens_per_s",
                        json_real(rate((double)read_tokens(r), r->prefill_s)));
    json_object_set_new(t, "decode_s", json_real(r->decode_s));
    json_object_set_new(t, "decode_tokens_per_s", json_real(decode_rate(r)));
    return t;
}

static json_t *memory_json(const struct tri_budget *budget)
{
    struct tri_budget_report now;
    json_t *all = json_object(), *accounts = json_object();
    tri_budget_read(budget, &now);
    json_object_set_new(all, "ceiling_bytes", json_integer((json_int_t)now.ceiling_bytes));
    json_object_set_new(all, "peak_bytes", json_integer((json_int_t)now.peak_bytes));
    for (int i = 0; i < TRI_MEM_ACCOUNTS; i++)
        json_object_set_new(accounts, tri_account_name((enum tri_account)i),
                            json_integer((json_int_t)now.account_peak_bytes[i]));
    json_object_set_new(all, "accounts", accounts);
    return all;
}

enum tri_status tri_reply_json(FILE *out, const struct tri_reply *r, const struct tri_talk *talk,
                               const struct tri_run_options *options, struct tri_error *err)
{
    json_t *all = json_object();
    json_object_set_new(all, "text", json_stringn(r->turn.content, r->turn.content_bytes));
    json_object_set_new(all, "reasoning",
                        r->turn.reasoning ? json_stringn(r->turn.reasoning, r->turn.reasoning_bytes)
                                          : json_string(""));
    json_object_set_new(all, "tool_calls", calls_json(&r->turn));
    json_object_set_new(all, "finish", json_string(r->finish));
    if (r->stop_string)
        json_object_set_new(all, "stop_string", json_string(r->stop_string));
    if (r->context_full)
        json_object_set_new(all, "note", json_string("the context is full"));
    json_object_set_new(all, "deviations", deviations_json(&r->turn));
    json_object_set_new(all, "tokens", tokens_json(&r->sampled));
    json_object_set_new(all, "seed", json_integer((json_int_t)options->sampling.seed));
    json_object_set_new(all, "usage", usage_json(r));
    json_object_set_new(all, "timings", timings_json(r, talk));
    json_object_set_new(all, "memory", memory_json(talk->opened.budget));
    struct tri_engine_counters c;
    struct tri_experts_stats experts;
    tri_engine_count(talk->engine, &c);
    tri_model_expert_stats(talk->opened.model, &experts);
    json_object_set_new(all, "experts",
                        tri_store_json(&experts, c.prefill_tokens + c.decode_tokens));
    json_object_set_new(all, "time", tri_profile_json(&talk->profile));
    int failed = json_dumpf(all, out, JSON_COMPACT);
    json_decref(all);
    if (failed)
        return tri_fail(err, TRI_IO, "cannot write the JSON object");
    fputc('\n', out);
    return TRI_OK;
}
