/* Opens a model to talk with; see talk.h. */
#include "cli/talk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/clock.h"
#include "cli/model_path.h"
#include "cli/terminal.h"

/* Ids that may end an answer: the end of a message, and [EOS], which counts as a deviation. */
static void find_stop_ids(struct tri_talk *t)
{
    int32_t eos = t->speaks_chat ? t->chat.eos : tri_token_named(t->tok, "[EOS]");
    if (eos < 0 && tri_model_spec(t->opened.model)->eos_id < tri_tokenizer_tokens(t->tok))
        eos = (int32_t)tri_model_spec(t->opened.model)->eos_id;
    if (t->speaks_chat)
        t->stop_ids[t->n_stop_ids++] = t->chat.end_of_msg;
    if (eos >= 0 && (t->n_stop_ids == 0 || eos != t->stop_ids[0]))
        t->stop_ids[t->n_stop_ids++] = eos;
}

static int by_id(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Beside ordinary tokens only markup and stop ids may be sampled: sorted, each once. */
static int64_t find_specials(const struct tri_talk *t, int32_t out[8])
{
    int64_t n = 0, kept = 0;
    int32_t ranks = tri_tokenizer_ranks(t->tok);
    int32_t all[8] = { 0 };
    if (t->speaks_chat) {
        all[n++] = t->chat.open;
        all[n++] = t->chat.close;
        all[n++] = t->chat.sep;
    }
    for (int64_t i = 0; i < t->n_stop_ids; i++)
        all[n++] = t->stop_ids[i];
    qsort(all, (size_t)n, sizeof *all, by_id);
    for (int64_t i = 0; i < n; i++)
        if (all[i] >= ranks && (kept == 0 || all[i] != out[kept - 1]))
            out[kept++] = all[i];
    return kept;
}

/* The vocabulary first: its faults should not wait for a long load. */
static enum tri_status open_tokenizer(struct tri_talk *t, const char *folder, struct tri_error *err)
{
    char config[TRI_MODEL_PATH_MAX_BYTES + 16];
    snprintf(config, sizeof config, "%s/config.json", folder);
    if (access(config, R_OK) != 0)
        return tri_fail_errno(err, TRI_IO, errno, "no model in %s: config.json", folder);
    enum tri_status st = tri_tokenizer_open(&t->tok, folder, err);
    if (st == TRI_OK)
        t->speaks_chat = tri_chat_ids_find(&t->chat, t->tok, NULL) == TRI_OK;
    return st;
}

static enum tri_status open_model(struct tri_talk *t, const struct tri_model_flags *flags,
                                  const char *folder, int64_t context_tokens, struct tri_error *err)
{
    struct tri_model_flags resolved = *flags;
    resolved.model = folder;
    resolved.options.context_tokens = context_tokens;
    enum tri_status st = tri_flags_open(&t->opened, &resolved, err);
    if (st != TRI_OK)
        return st;
    int64_t vocab = tri_model_spec(t->opened.model)->vocab;
    if (tri_tokenizer_ranks(t->tok) > vocab)
        return tri_fail(err, TRI_FORMAT,
                        "%s: the tokenizer has %d tokens, but the model's vocabulary is %lld: "
                        "these files do not belong together",
                        folder, (int)tri_tokenizer_ranks(t->tok), (long long)vocab);
    find_stop_ids(t);
    tri_model_profile(t->opened.model, &t->profile);
    return TRI_OK;
}

static enum tri_status open_trace(struct tri_talk *t, const char *path, struct tri_error *err)
{
    if (!path)
        return TRI_OK;
    enum tri_status st = tri_routes_open(&t->routes, tri_model_spec(t->opened.model),
                                         tri_model_chunk_tokens(t->opened.model), err);
    return st ? st : tri_routes_trace(&t->routes, path, err);
}

static void on_routes(void *arg, int64_t layer, const int32_t *experts, const float *weights,
                      int64_t n_rows, int64_t topk)
{
    struct tri_talk *t = arg;
    tri_routes_tap(&t->routes, layer, experts, weights, n_rows, topk);
}

/* A step of a streamed model can take minutes: Ctrl-C is heard after every layer, and a person who
 * watches sees how far it is. */
static int on_layer(void *arg, int64_t layer, int64_t layers)
{
    struct tri_talk *t = arg;
    double now = tri_clock_s();
    if (layer == 0)
        t->layer_began_s = now;
    if (layer + 1 == layers && t->layer_drawn_s > 0) {
        fputs("\r\033[K", stderr);
        t->layer_drawn_s = 0;
    } else if (now - t->layer_began_s > 2 && now - t->layer_drawn_s > 0.5 &&
               tri_is_terminal(stderr)) {
        fprintf(stderr, "\r\033[Klayer %lld of %lld", (long long)layer + 1, (long long)layers);
        t->layer_drawn_s = now;
    }
    /* A short step ends by itself, and its state is kept; stopping one loses that. */
    return tri_interrupted() && now - t->layer_began_s > 1;
}

static enum tri_status open_engine(struct tri_talk *t, struct tri_error *err)
{
    int32_t specials[8];
    struct tri_engine_options o = { .max_sequences = 1,
                                    .plain_ids = tri_tokenizer_ranks(t->tok),
                                    .specials = specials };
    o.n_specials = find_specials(t, specials);
    t->taps = (struct tri_taps){ .routes = t->routes.file ? on_routes : NULL,
                                 .layer = on_layer,
                                 .arg = t };
    o.taps = &t->taps;
    return tri_engine_open(&t->engine, t->opened.model, &o, t->opened.budget, err);
}

/* Tokens whose state fits into what the budget has left. */
static int64_t fitting_tokens(const struct tri_talk *t)
{
    const uint64_t slack = 1 << 20; /* rounding of each block, and small things */
    const struct tri_spec *spec = tri_model_spec(t->opened.model);
    struct tri_budget_report now;
    struct tri_state_bytes cost;
    tri_budget_read(t->opened.budget, &now);
    tri_state_cost(spec, tri_model_slice(t->opened.model), tri_model_state_form(t->opened.model),
                   &cost);
    uint64_t fixed = cost.kda_bytes + (uint64_t)spec->vocab * sizeof(uint32_t) + slack;
    uint64_t left = now.ceiling_bytes - now.used_bytes;
    if (left < fixed)
        return 0;
    return (int64_t)((left - fixed) / (cost.mla_bytes_per_token + sizeof(int32_t)));
}

static enum tri_status open_sequence(struct tri_talk *t, int64_t asked, struct tri_error *err)
{
    int64_t most = tri_model_spec(t->opened.model)->context_tokens, fits = fitting_tokens(t);
    if (asked > most)
        return tri_fail(err, TRI_LIMIT, "--context %lld: this model's context is %lld tokens",
                        (long long)asked, (long long)most);
    if (fits < (asked ? asked : 1))
        return tri_fail(err, TRI_BUDGET,
                        "a context of %lld tokens does not fit into the memory that is left; %lld "
                        "would (--context), or give more with --ram, or a smaller --trunk",
                        (long long)(asked ? asked : 1), (long long)fits);
    t->context_tokens = asked ? asked : fits < most ? fits : most;
    return tri_sequence_open(&t->sequence, t->engine, t->context_tokens, err);
}

enum tri_status tri_talk_open(struct tri_talk *out, const struct tri_model_flags *flags,
                              int64_t context_tokens, const char *trace_path, struct tri_error *err)
{
    char folder[TRI_MODEL_PATH_MAX_BYTES];
    *out = (struct tri_talk){ 0 };
    enum tri_status st = tri_model_path(folder, flags->model, err);
    if (st == TRI_OK)
        st = open_tokenizer(out, folder, err);
    if (st == TRI_OK)
        st = open_model(out, flags, folder, context_tokens, err);
    if (st == TRI_OK)
        st = open_trace(out, trace_path, err);
    if (st == TRI_OK)
        st = open_engine(out, err);
    if (st == TRI_OK)
        st = open_sequence(out, context_tokens, err);
    if (st != TRI_OK)
        tri_talk_close(out, NULL);
    return st;
}

enum tri_status tri_talk_close(struct tri_talk *talk, struct tri_error *err)
{
    tri_sequence_close(talk->sequence);
    tri_engine_close(talk->engine);
    tri_tokenizer_close(talk->tok);
    tri_flags_close(&talk->opened);
    enum tri_status st = tri_routes_close(&talk->routes, err);
    *talk = (struct tri_talk){ 0 };
    return st;
}
