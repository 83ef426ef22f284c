/* Opens what a server needs, lowest first; see serve_open.h. */
#include "cli/serve_open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/model_path.h"
#include "os/descriptors.h"
#include "text/text.h"

/* Memory left for other things when slots are sized to what fits. */
static const uint64_t slack_bytes = 16 << 20;
/* And for the ids that states in the cache folder are for. */
static const uint64_t index_bytes = 32 << 20;
/* Prompt rows of a step that others wait for too (docs/findings/071-serve-load.md). */
static const int64_t shared_rows = 128;
/* Beside one for each connection; see connections_that_fit. */
static const int64_t spare_descriptors = 64;

/* For structured output: the vocabulary's tries (K3: 12 MB), compiled grammars and their masks. */
static uint64_t grammar_bytes(const struct tri_serve_options *o)
{
    uint64_t ram = o->flags.ram_bytes, most = 48 << 20; /* ram 0: what the machine has */
    return ram && ram / 64 < most ? ram / 64 : most;
}

bool tri_serve_is_loopback(const char *address)
{
    return !address || !strcmp(address, "localhost") || !strcmp(address, "::1") ||
           !strncmp(address, "127.", 4);
}

/* The folder's own name, unless --name gave another. */
static void find_name(struct tri_served *s, const char *folder, const char *given)
{
    char copy[TRI_MODEL_PATH_MAX_BYTES];
    snprintf(copy, sizeof copy, "%s", given ? given : folder);
    size_t n = strlen(copy);
    while (!given && n > 1 && copy[n - 1] == '/')
        copy[--n] = 0;
    const char *slash = given ? NULL : strrchr(copy, '/');
    tri_printable(s->name, sizeof s->name, slash ? slash + 1 : copy,
                  strlen(slash ? slash + 1 : copy));
}

static int by_id(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Beside ordinary tokens, markup and the ids that end a message may be sampled. */
static int64_t find_ids(const struct tri_served *s, int32_t specials[8],
                        struct tri_api_options *api)
{
    struct tri_chat_ids chat;
    int32_t ranks = tri_tokenizer_ranks(s->tok), all[8] = { 0 };
    int64_t n = 0, kept = 0;
    int32_t eos = tri_token_named(s->tok, "[EOS]");
    if (tri_chat_ids_find(&chat, s->tok, NULL) == TRI_OK) {
        all[n++] = chat.open;
        all[n++] = chat.close;
        all[n++] = chat.sep;
        all[n++] = chat.end_of_msg;
        api->stop_ids[api->n_stop_ids++] = chat.end_of_msg;
    }
    if (eos < 0 && tri_model_spec(s->opened.model)->eos_id < tri_tokenizer_tokens(s->tok))
        eos = (int32_t)tri_model_spec(s->opened.model)->eos_id;
    if (eos >= 0) {
        all[n++] = eos;
        api->stop_ids[api->n_stop_ids++] = eos;
    }
    qsort(all, (size_t)n, sizeof *all, by_id);
    for (int64_t i = 0; i < n; i++)
        if (all[i] >= ranks && (kept == 0 || all[i] != specials[kept - 1]))
            specials[kept++] = all[i];
    return kept;
}

/* What the budget leaves for tokens when every slot has its fixed part. */
static uint64_t room_bytes(const struct tri_served *s, const struct tri_serve_options *o)
{
    const struct tri_spec *spec = tri_model_spec(s->opened.model);
    struct tri_budget_report now;
    struct tri_state_bytes cost;
    tri_budget_read(s->opened.budget, &now);
    tri_state_cost(spec, tri_model_slice(s->opened.model), tri_model_state_form(s->opened.model),
                   &cost);
    uint64_t fixed =
        (cost.kda_bytes + (uint64_t)spec->vocab * sizeof(uint32_t)) * (uint64_t)o->parallel +
        slack_bytes + grammar_bytes(o) + o->cache_bytes +
        (o->cache_folder ? cost.kda_bytes + index_bytes : 0);
    uint64_t left = now.ceiling_bytes - now.used_bytes;
    return left < fixed ? 0 : left - fixed;
}

/*
 * The context: as asked if one request of it fits (others then wait for room), else what fits for
 * all slots together. Each slot's list of ids is taken for the whole context in any case.
 */
static enum tri_status open_sched(struct tri_served *s, const struct tri_serve_options *o,
                                  struct tri_error *err)
{
    const struct tri_spec *spec = tri_model_spec(s->opened.model);
    int64_t most = spec->context_tokens, asked = o->context_tokens;
    uint64_t room = room_bytes(s, o), slots = (uint64_t)o->parallel;
    struct tri_state_bytes cost;
    const struct tri_slice *slice = tri_model_slice(s->opened.model);
    struct tri_state_form form = tri_model_state_form(s->opened.model);
    tri_state_cost(spec, slice, form, &cost);
    uint64_t pages = slots * tri_state_rounding_bytes(spec, slice, form, asked ? asked : most);
    uint64_t ids = slots * sizeof(int32_t), row = cost.mla_bytes_per_token;
    uint64_t spare = room > pages ? room - pages : 0;
    int64_t one = (int64_t)(spare / (row + ids)), all = (int64_t)(spare / (slots * row + ids));
    if (asked > most)
        return tri_fail(err, TRI_LIMIT, "--context %lld: this model's context is %lld tokens",
                        (long long)asked, (long long)most);
    if (one < (asked ? asked : 1))
        return tri_fail(
            err, TRI_BUDGET,
            "a request of %lld tokens does not fit into the memory that is left beside "
            "%lld slots; %lld tokens would (--context), or fewer slots (--parallel), or "
            "a smaller --cache-ram, or give more with --ram",
            (long long)(asked ? asked : 1), (long long)o->parallel, (long long)one);
    all = all < 1 ? 1 : all;
    s->context_tokens = asked ? asked : all < most ? all : most;
    const struct tri_sched_options sched = { .slots = o->parallel,
                                             .context_tokens = s->context_tokens,
                                             .queue = o->queue,
                                             .cache_bytes = o->cache_bytes,
                                             .room_bytes = room - ids * (uint64_t)s->context_tokens,
                                             .folder = o->cache_folder,
                                             .folder_bytes = o->cache_folder_bytes };
    return tri_sched_open(&s->sched, s->engine, s->opened.model, s->opened.budget, &sched, err);
}

/* Experts in RAM cost the same in small steps; those on a drive are read once a step, so that a
 * prompt wants large ones, and who waits beside it is served better by having it done. */
static bool small_steps_are_cheap(const struct tri_served *s)
{
    struct tri_experts_stats experts;
    tri_model_expert_stats(s->opened.model, &experts);
    return tri_model_spec(s->opened.model)->moe_layers == 0 || experts.all_resident;
}

static enum tri_status open_engine(struct tri_served *s, const struct tri_serve_options *o,
                                   struct tri_api_options *api, struct tri_error *err)
{
    int32_t specials[8];
    struct tri_engine_options engine = { .max_sequences = o->parallel,
                                         .plain_ids = tri_tokenizer_ranks(s->tok),
                                         .specials = specials,
                                         .short_first = true,
                                         .growing = true,
                                         .scores = true,
                                         .shared_rows =
                                             small_steps_are_cheap(s) ? shared_rows : 0 };
    if (tri_tokenizer_ranks(s->tok) > tri_model_spec(s->opened.model)->vocab)
        return tri_fail(err, TRI_FORMAT, "%s: tokenizer and model do not belong together",
                        s->opened.folder);
    engine.n_specials = find_ids(s, specials, api);
    return tri_engine_open(&s->engine, s->opened.model, &engine, s->opened.budget, err);
}

/*
 * One descriptor a connection, and some for the server itself, for files of kept states and for
 * those who are told that there are too many. What is more than this process may have is not
 * promised: who comes too late gets the answer of --max-connections.
 */
static int64_t connections_that_fit(const struct tri_serve_options *o)
{
    int64_t asked = o->limits.connections, others = tri_descriptors_open() + spare_descriptors;
    int64_t fit = tri_descriptors_raise(others + asked) - others;
    if (fit >= asked)
        return asked;
    fit = fit < 1 ? 1 : fit;
    fprintf(stderr,
            "note: %lld connections at once instead of %lld: this process may open no more files "
            "(ulimit -n)\n",
            (long long)fit, (long long)asked);
    return fit;
}

static void log_line(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "%s\n", text);
}

static enum tri_status open_front(struct tri_served *s, const struct tri_serve_options *o,
                                  struct tri_api_options *api, struct tri_error *err)
{
    api->tok = s->tok;
    api->model = s->opened.model;
    api->sched = s->sched;
    api->budget = s->opened.budget;
    api->model_name = s->name;
    api->key_file = o->key_file;
    api->limits = o->api_limits;
    api->strict_params = o->strict_params;
    api->map_medium = o->map_medium;
    api->open_metrics = o->open_metrics;
    api->check_host = tri_serve_is_loopback(o->address) || o->n_hosts > 0;
    api->hosts = o->hosts;
    api->n_hosts = o->n_hosts;
    api->origins = o->origins;
    api->n_origins = o->n_origins;
    if (o->log_requests)
        api->log = (struct tri_notes){ log_line, NULL };
    enum tri_status st = tri_api_open(&s->api, api, err);
    if (st != TRI_OK)
        return st;
    struct tri_http_limits limits = o->limits;
    limits.connections = connections_that_fit(o);
    const struct tri_http_options http = { .address = o->address,
                                           .port = (int)o->port,
                                           .limits = limits,
                                           .tls_cert = o->tls_cert,
                                           .tls_key = o->tls_key,
                                           .admit = tri_api_admit,
                                           .handle = tri_api_handle,
                                           .answered = tri_api_answered,
                                           .refused = tri_api_refused,
                                           .arg = s->api };
    st = tri_http_open(&s->http, &http, err);
    return st == TRI_OK ? tri_api_attach(s->api, s->http, err) : st;
}

/* Where memory lacks, what a server keeps beside the model is worth a word. */
static enum tri_status open_model(struct tri_served *s, const struct tri_serve_options *o,
                                  const struct tri_model_flags *flags, struct tri_error *err)
{
    struct tri_error why = { 0 };
    enum tri_status st = tri_flags_open(&s->opened, flags, &why);
    if (st == TRI_BUDGET)
        return tri_fail(err, st,
                        "%s; or keep less for requests: --parallel %lld and --cache-ram %lldM now",
                        why.text, (long long)o->parallel, (long long)(o->cache_bytes >> 20));
    return st == TRI_OK ? st : tri_fail(err, st, "%s", why.text);
}

enum tri_status tri_serve_open(struct tri_served *out, const struct tri_serve_options *options,
                               struct tri_error *err)
{
    char folder[TRI_MODEL_PATH_MAX_BYTES];
    struct tri_model_flags flags = options->flags;
    struct tri_api_options api = { 0 };
    *out = (struct tri_served){ 0 };
    enum tri_status st = tri_model_path(folder, flags.model, err);
    flags.model = folder;
    /* Experts take what is left: room for all slots and kept states must not be theirs. */
    flags.options.context_tokens = options->context_tokens;
    flags.options.sequences = options->parallel;
    flags.options.keep_bytes = options->cache_bytes + 2 * slack_bytes + grammar_bytes(options);
    if (st == TRI_OK)
        st = tri_tokenizer_open(&out->tok, folder, err);
    if (st == TRI_OK)
        st = open_model(out, options, &flags, err);
    if (st == TRI_OK) {
        find_name(out, folder, options->name);
        st = open_engine(out, options, &api, err);
    }
    if (st == TRI_OK)
        st = open_sched(out, options, err);
    if (st == TRI_OK)
        st = open_front(out, options, &api, err);
    if (st != TRI_OK)
        tri_serve_close(out);
    return st;
}

void tri_serve_close(struct tri_served *served)
{
    tri_api_close(served->api); /* first: its exchanges hold requests and jobs */
    tri_http_close(served->http);
    tri_sched_close(served->sched);
    tri_engine_close(served->engine);
    tri_tokenizer_close(served->tok);
    tri_flags_close(&served->opened);
    *served = (struct tri_served){ 0 };
}
