/*
 * trireme replay: a routing trace (`trireme logits --routes`, `trireme run --trace`) against cache
 * policies and sizes, with the bound that no policy can pass.
 */
#include "cli/cli.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "cli/model_flags.h"
#include "cli/usage.h"
#include "experts/experts.h"

enum { KEY_SIZES = 0x300, KEY_EXPERTS, KEY_SKIP, KEY_JSON };
enum { MAX_SIZES = 32, MAX_TRACE_BYTES = 1 << 30, MAX_LINE_BYTES = 16 << 20 };

struct replay_args {
    const char *path;
    double size[MAX_SIZES]; /* per cent of all experts */
    int sizes;
    int64_t experts, skip; /* 0: the largest id + 1; -1: a third of the trace */
    bool json;
};

static const struct argp_option options[] = {
    { "sizes", KEY_SIZES, "P,P,..", 0,
      "Cache sizes in per cent of all experts (default 0.5,1,2,5,10,20)", 0 },
    { "experts", KEY_EXPERTS, "N", 0, "Experts of a layer (default: the largest in the trace + 1)",
      0 },
    { "skip", KEY_SKIP, "N", 0, "Tokens that are played but not counted (default: a third)", 0 },
    { "json", KEY_JSON, 0, 0, "One JSON object instead of a table", 0 },
    { 0 }
};

static void parse_sizes(struct argp_state *state, struct replay_args *a, const char *text)
{
    a->sizes = 0;
    char *end = NULL;
    do {
        double v = strtod(text, &end);
        if (end == text || !(v > 0) || v > 100 || a->sizes == MAX_SIZES || (*end && *end != ','))
            argp_error(state, "--sizes: up to %d numbers above 0 and up to 100, apart by commas",
                       MAX_SIZES);
        a->size[a->sizes++] = v;
        text = end + 1;
    } while (*end);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct replay_args *a = state->input;
    switch (key) {
    case KEY_SIZES:
        parse_sizes(state, a, arg);
        return 0;
    case KEY_EXPERTS:
        if (!tri_parse_int(arg, 1, TRI_SPEC_MAX_EXPERTS, &a->experts))
            argp_error(state, "--experts %s: 1 to %d", arg, TRI_SPEC_MAX_EXPERTS);
        return 0;
    case KEY_SKIP:
        if (!tri_parse_int(arg, 0, INT32_MAX, &a->skip))
            argp_error(state, "--skip %s: a number of tokens", arg);
        return 0;
    case KEY_JSON:
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->path)
            argp_error(state, "one trace at a time; '%s' is too many", arg);
        a->path = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->path)
            argp_error(state, "which trace? A file of lines with \"routes\"");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp replay_argp = {
    options,
    parse,
    "TRACE",
    "Plays a routing trace against expert cache policies and sizes. TRACE has one JSON object per "
    "token with \"routes\":[{\"layer\",\"experts\"}].\v"
    "Example:\n  trireme logits MODEL --tokens-file ids.json --routes > trace\n"
    "  trireme replay trace --sizes 1,5,20",
    NULL,
    NULL,
    NULL
};

/* A trace being read: ids grow token by token; every token must have the same layers and top-k. */
struct reading {
    const char *path;
    int32_t *ids;
    int64_t cap;
    struct tri_expert_trace trace;
};

/* A token has a layer's expert once: a trace with one twice would count hits that nobody has. */
static enum tri_status add_row(struct reading *r, const json_t *list, int32_t *ids, size_t line,
                               struct tri_error *err)
{
    unsigned char seen[TRI_SPEC_MAX_EXPERTS / 8 + 1] = { 0 };
    for (int64_t i = 0; i < r->trace.topk; i++) {
        const json_t *id = json_array_get(list, (size_t)i);
        json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
        if (v < 0 || v >= TRI_SPEC_MAX_EXPERTS)
            return tri_fail(err, TRI_FORMAT, "%s: line %zu: an expert is no id", r->path, line);
        if (seen[v / 8] & 1 << v % 8)
            return tri_fail(err, TRI_FORMAT, "%s: line %zu: a layer has expert %lld twice", r->path,
                            line, (long long)v);
        seen[v / 8] |= (unsigned char)(1 << v % 8);
        ids[i] = (int32_t)v;
        if (v >= r->trace.experts)
            r->trace.experts = v + 1;
    }
    return TRI_OK;
}

static enum tri_status add_token(struct reading *r, const json_t *routes, size_t line,
                                 struct tri_error *err)
{
    struct tri_expert_trace *t = &r->trace;
    const json_t *first = json_object_get(json_array_get(routes, 0), "experts");
    if (!json_is_array(routes) || json_array_size(first) == 0)
        return tri_fail(err, TRI_FORMAT, "%s: line %zu: no \"routes\" with experts", r->path, line);
    if (t->tokens == 0) {
        t->rows = (int64_t)json_array_size(routes);
        t->topk = (int64_t)json_array_size(first);
    }
    int64_t uses = t->rows * t->topk, at = t->tokens * uses;
    if (!r->ids || at + uses > r->cap) {
        r->cap = (at + uses) * 2;
        int32_t *more = tri_realloc(r->ids, (size_t)r->cap * sizeof *more);
        if (!more)
            return tri_fail(err, TRI_NOMEM, "%s: no memory for the trace", r->path);
        r->ids = more;
    }
    for (int64_t row = 0; row < t->rows; row++) {
        const json_t *list = json_object_get(json_array_get(routes, (size_t)row), "experts");
        if (json_array_size(routes) != (size_t)t->rows || json_array_size(list) != (size_t)t->topk)
            return tri_fail(err, TRI_FORMAT,
                            "%s: line %zu: not the %lld layers of %lld experts of the first line",
                            r->path, line, (long long)t->rows, (long long)t->topk);
        enum tri_status st = add_row(r, list, r->ids + at + row * t->topk, line, err);
        if (st)
            return st;
    }
    t->tokens++;
    return TRI_OK;
}

static enum tri_status read_trace(struct reading *r, struct tri_error *err)
{
    char *text = NULL, *rest;
    size_t bytes = 0, line = 0;
    enum tri_status st = tri_read_file(&text, &bytes, r->path, MAX_TRACE_BYTES, err);
    rest = text;
    while (!st && rest && *rest) {
        char *begin = strsep(&rest, "\n");
        json_t *json = NULL;
        line++;
        if (begin[strspn(begin, " \t\r")] == 0)
            continue;
        st = tri_json_parse(&json, r->path, begin, strlen(begin), MAX_LINE_BYTES, err);
        if (!st)
            st = add_token(r, json_object_get(json, "routes"), line, err);
        json_decref(json);
    }
    tri_free(text);
    if (!st && r->trace.tokens == 0)
        st = tri_fail(err, TRI_FORMAT, "%s: no tokens in the trace", r->path);
    r->trace.ids = r->ids;
    return st;
}

static double percent(const struct tri_replay *r)
{
    return r->wanted ? 100.0 * (double)r->hits / (double)r->wanted : 0;
}

static enum tri_status play_size(const struct replay_args *a, const struct tri_expert_trace *t,
                                 double size, bool last, struct tri_error *err)
{
    static const enum tri_expert_policy policies[] = { TRI_EXPERTS_LRU, TRI_EXPERTS_LFU,
                                                       TRI_EXPERTS_CYCLE };
    int64_t records = t->rows * t->experts, slots = (int64_t)((double)records * size / 100);
    struct tri_replay r[4] = { { 0 } };
    enum tri_status st = TRI_OK;
    slots = slots < 1 ? 1 : slots;
    for (int i = 0; i < 3 && !st; i++)
        st = tri_experts_replay(t, slots, policies[i], a->skip, &r[i], err);
    if (!st)
        st = tri_experts_belady(t, slots, a->skip, &r[3], err);
    if (st)
        return st;
    if (a->json)
        printf("{\"percent\":%g,\"slots\":%" PRId64
               ",\"lru\":%.4f,\"lfu\":%.4f,\"cycle\":%.4f,\"belady\":%.4f}%s",
               size, slots, percent(&r[0]) / 100, percent(&r[1]) / 100, percent(&r[2]) / 100,
               percent(&r[3]) / 100, last ? "" : ",");
    else
        printf("%7.1f %% %8" PRId64 " %9.1f %9.1f %9.1f %9.1f\n", size, slots, percent(&r[0]),
               percent(&r[1]), percent(&r[2]), percent(&r[3]));
    return TRI_OK;
}

static enum tri_status play(struct replay_args *a, struct tri_expert_trace *t,
                            struct tri_error *err)
{
    enum tri_status st = TRI_OK;
    int64_t per_token = t->rows * t->topk;
    if (a->experts && a->experts < t->experts)
        return tri_fail(err, TRI_ARG, "--experts %" PRId64 ": the trace names expert %" PRId64,
                        a->experts, t->experts - 1);
    t->experts = a->experts ? a->experts : t->experts;
    a->skip = a->skip < 0 ? t->tokens / 3 : a->skip;
    if (a->skip >= t->tokens)
        return tri_fail(err, TRI_ARG, "--skip %" PRId64 " leaves nothing of %" PRId64 " tokens",
                        a->skip, t->tokens);
    double share = 100.0 * (double)per_token / (double)(t->rows * t->experts);
    if (a->json)
        printf("{\"tokens\":%" PRId64 ",\"layers\":%" PRId64 ",\"experts\":%" PRId64
               ",\"topk\":%" PRId64 ",\"skip\":%" PRId64 ",\"sizes\":[",
               t->tokens, t->rows, t->experts, t->topk, a->skip);
    else
        printf("%" PRId64 " tokens, %" PRId64 " layers of %" PRId64 " experts, top %" PRId64
               "; one token wants %.1f %% of them. Hits in %% from token %" PRId64 " on:\n"
               "    cache    slots       lru       lfu     cycle    belady\n",
               t->tokens, t->rows, t->experts, t->topk, share, a->skip);
    for (int i = 0; i < a->sizes && !st; i++)
        st = play_size(a, t, a->size[i], i + 1 == a->sizes, err);
    if (a->json && !st)
        printf("]}\n");
    return st;
}

int tri_cmd_replay(int argc, char **argv)
{
    struct replay_args a = { .size = { 0.5, 1, 2, 5, 10, 20 }, .sizes = 6, .skip = -1 };
    struct tri_error err = { 0 };
    tri_cli_parse(&replay_argp, argc, argv, TRI_EXIT_USAGE, &a);
    struct reading r = { .path = a.path };
    enum tri_status st = read_trace(&r, &err);
    if (!st)
        st = play(&a, &r.trace, &err);
    tri_free(r.ids);
    return st ? tri_cli_fail(&err) : TRI_EXIT_OK;
}
