/*
 * trireme logits: raw logits of given token ids, for comparing engines. One JSON line per position
 * on stdout; raw float32 files on request.
 */
#include "cli/cli.h"

#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/json.h"
#include "cli/model_flags.h"
#include "cli/out_file.h"
#include "cli/route_trace.h"
#include "cli/usage.h"

enum { KEY_TOKENS = 0x200, KEY_TOKENS_FILE, KEY_OUT, KEY_RESIDUAL, KEY_ROUTES };
enum { TOP = 5, MAX_TOKENS_FILE_BYTES = 64 << 20 };

struct logits_args {
    struct tri_model_flags flags;
    const char *tokens, *tokens_file, *out, *residual;
    bool routes;
};

struct ids {
    int32_t *id;
    int64_t n, cap;
};

static const struct argp_option options[] = {
    { "tokens", KEY_TOKENS, "IDS", 0, "Token ids apart by commas or blanks", 0 },
    { "tokens-file", KEY_TOKENS_FILE, "FILE", 0,
      "File of ids: apart by commas or blanks, a JSON array, or an object with \"tokens\"", 0 },
    { "out", KEY_OUT, "FILE", 0, "Write logits as raw float32 [tokens][vocab]", 0 },
    { "residual", KEY_RESIDUAL, "FILE", 0,
      "Write the residual stream after each layer as raw float32 [tokens][layers][hidden]", 0 },
    { "routes", KEY_ROUTES, 0, 0, "Add the routed experts and their weights to each line", 0 },
    { 0 }
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct logits_args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->flags;
        return 0;
    case KEY_TOKENS:
        a->tokens = arg;
        return 0;
    case KEY_TOKENS_FILE:
        a->tokens_file = arg;
        return 0;
    case KEY_OUT:
        a->out = arg;
        return 0;
    case KEY_RESIDUAL:
        a->residual = arg;
        return 0;
    case KEY_ROUTES:
        a->routes = true;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0)
            argp_error(state, "one model folder, then options; '%s' is too many", arg);
        a->flags.model = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->tokens == !a->tokens_file)
            argp_error(state, "give the ids by one of --tokens and --tokens-file");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &tri_model_flags_argp, 0, "Model:", 10 }, { 0 } };
static const struct argp logits_argp = {
    options,
    parse,
    "[MODEL]",
    "Prints one JSON line per position: {\"pos\",\"token\",\"argmax\",\"margin\",\"top\"}.\v"
    "Examples:\n  trireme logits model/ --tokens 5,7,9\n"
    "  trireme logits model/ --tokens-file ids.json --out logits.f32 --chunk 64",
    children,
    NULL,
    NULL
};

static enum tri_status add_id(struct ids *ids, long long id, const char *name,
                              struct tri_error *err)
{
    if (id < 0 || id > INT32_MAX)
        return tri_fail(err, TRI_FORMAT, "%s: %lld is no token id", name, id);
    if (ids->n == ids->cap) {
        ids->cap = ids->cap ? ids->cap * 2 : 64;
        int32_t *more = tri_realloc(ids->id, (size_t)ids->cap * sizeof *more);
        if (!more)
            return tri_fail(err, TRI_NOMEM, "%s: no memory for its ids", name);
        ids->id = more;
    }
    ids->id[ids->n++] = (int32_t)id;
    return TRI_OK;
}

static enum tri_status ids_of_words(struct ids *ids, const char *name, const char *text,
                                    struct tri_error *err)
{
    for (;;) {
        text += strspn(text, " \t\r\n,");
        if (!*text)
            return TRI_OK;
        char *end = NULL;
        errno = 0;
        long long id = strtoll(text, &end, 10);
        if (end == text || errno || (*end && !strchr(" \t\r\n,", *end))) {
            char safe[40];
            return tri_fail(err, TRI_FORMAT, "%s: '%s' is no token id", name,
                            tri_printable(safe, sizeof safe, text, strnlen(text, 20)));
        }
        enum tri_status st = add_id(ids, id, name, err);
        if (st)
            return st;
        text = end;
    }
}

static enum tri_status ids_of_json(struct ids *ids, const char *name, const char *text,
                                   size_t bytes, struct tri_error *err)
{
    json_t *json = NULL;
    enum tri_status st = tri_json_parse(&json, name, text, bytes, MAX_TOKENS_FILE_BYTES, err);
    if (st)
        return st;
    json_t *list = json_is_object(json) ? json_object_get(json, "tokens") : json, *item;
    size_t i;
    if (!json_is_array(list))
        st = tri_fail(err, TRI_FORMAT, "%s: a JSON array of ids, or an object with \"tokens\"",
                      name);
    json_array_foreach(list, i, item)
    {
        if (!st && !json_is_integer(item))
            st = tri_fail(err, TRI_FORMAT, "%s: item %zu of the ids is no integer", name, i);
        if (!st)
            st = add_id(ids, json_integer_value(item), name, err);
    }
    json_decref(json);
    return st;
}

static enum tri_status read_ids(struct ids *ids, const struct logits_args *a, struct tri_error *err)
{
    const char *name = a->tokens ? "--tokens" : a->tokens_file;
    char *text = NULL;
    size_t bytes = 0;
    enum tri_status st = TRI_OK;
    if (a->tokens)
        st = ids_of_words(ids, name, a->tokens, err);
    else
        st = tri_read_file(&text, &bytes, name, MAX_TOKENS_FILE_BYTES, err);
    if (text) {
        size_t blank = strspn(text, " \t\r\n");
        if (text[blank] == '[' || text[blank] == '{')
            st = ids_of_json(ids, name, text, bytes, err);
        else if (strlen(text) != bytes)
            st = tri_fail(err, TRI_FORMAT, "%s: holds a NUL byte; ids are text", name);
        else
            st = ids_of_words(ids, name, text, err);
        tri_free(text);
    }
    if (!st && ids->n == 0)
        st = tri_fail(err, TRI_FORMAT, "%s: no token ids", name);
    return st;
}

/* Everything one invocation holds; NULL parts were not asked for. */
struct work {
    struct tri_opened opened;
    struct tri_state *state;
    struct ids ids;
    float *logits; /* [chunk][vocab] */
    float *stream; /* residual stream of a chunk: [chunk][layers][hidden] */
    struct tri_routes routes;
    struct tri_out_file out, residual;
};

static void keep_residual(void *arg, int64_t layer, const float *rows, int64_t n_rows,
                          int64_t hidden)
{
    struct work *w = arg;
    int64_t layers = tri_model_spec(w->opened.model)->layers;
    for (int64_t i = 0; i < n_rows; i++)
        memcpy(w->stream + (i * layers + layer) * hidden, rows + i * hidden,
               (size_t)hidden * sizeof *rows);
}

static void keep_routes(void *arg, int64_t layer, const int32_t *experts, const float *weights,
                        int64_t n_rows, int64_t topk)
{
    struct work *w = arg;
    tri_routes_tap(&w->routes, layer, experts, weights, n_rows, topk);
}

/* The TOP largest, best first, ties to the lower id. */
static int find_top(const float *logits, int64_t vocab, int64_t top[TOP])
{
    int n = 0;
    for (int64_t v = 0; v < vocab; v++) {
        int at = n;
        while (at > 0 && logits[v] > logits[top[at - 1]])
            at--;
        if (at == TOP)
            continue;
        n += n < TOP;
        memmove(top + at + 1, top + at, (size_t)(n - 1 - at) * sizeof *top);
        top[at] = v;
    }
    return n;
}

static void print_position(int64_t pos, int32_t token, const float *logits, int64_t vocab,
                           const struct tri_routes *routes, int64_t row)
{
    int64_t top[TOP] = { 0 };
    int n = find_top(logits, vocab, top);
    double margin = n > 1 ? (double)logits[top[0]] - (double)logits[top[1]] : 0;
    printf("{\"pos\":%" PRId64 ",\"token\":%d,\"argmax\":%" PRId64 ",\"margin\":%.9g,\"top\":[",
           pos, token, top[0], margin);
    for (int i = 0; i < n; i++)
        printf("%s[%" PRId64 ",%.9g]", i ? "," : "", top[i], (double)logits[top[i]]);
    printf("]");
    if (routes)
        tri_routes_print(stdout, routes, row);
    printf("}\n");
}

static enum tri_status write_rows(FILE *f, const char *path, const float *rows, int64_t n,
                                  struct tri_error *err)
{
    if (!f || fwrite(rows, sizeof *rows, (size_t)n, f) == (size_t)n)
        return TRI_OK;
    return tri_fail_errno(err, TRI_IO, errno, "cannot write %s", path);
}

static enum tri_status run_chunks(struct work *w, const struct logits_args *a,
                                  struct tri_error *err)
{
    struct tri_model *model = w->opened.model;
    const struct tri_spec *spec = tri_model_spec(model);
    int64_t chunk = tri_model_chunk_tokens(model);
    struct tri_taps taps = { .residual = a->residual ? keep_residual : NULL,
                             .routes = a->routes ? keep_routes : NULL,
                             .arg = w };
    for (int64_t pos = 0; pos < w->ids.n; pos += chunk) {
        int64_t n = w->ids.n - pos < chunk ? w->ids.n - pos : chunk;
        struct tri_run run = { w->state, w->ids.id + pos, n, 0, w->logits, NULL };
        enum tri_status st = tri_model_forward(model, &run, 1, &taps, err);
        if (!st)
            st = write_rows(w->out.f, a->out, w->logits, n * spec->vocab, err);
        if (!st)
            st = write_rows(w->residual.f, a->residual, w->stream, n * spec->layers * spec->hidden,
                            err);
        if (st)
            return st;
        for (int64_t i = 0; i < n; i++)
            print_position(pos + i, w->ids.id[pos + i], w->logits + i * spec->vocab, spec->vocab,
                           a->routes ? &w->routes : NULL, i);
    }
    return TRI_OK;
}

static enum tri_status open_file(struct tri_out_file *out, const char *path, struct tri_error *err)
{
    return path ? tri_out_file_open(out, path, 0666, err) : TRI_OK;
}

/* Two names of one file: it would hold neither. Devices may be named twice. */
static bool one_file(FILE *a, FILE *b)
{
    struct stat x, y;
    return !fstat(fileno(a), &x) && !fstat(fileno(b), &y) && S_ISREG(x.st_mode) &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static enum tri_status commit_files(struct work *w, struct tri_error *err)
{
    enum tri_status st = w->out.f ? tri_out_file_commit(&w->out, err) : TRI_OK;
    return st || !w->residual.f ? st : tri_out_file_commit(&w->residual, err);
}

static enum tri_status open_work(struct work *w, const struct logits_args *a, struct tri_error *err)
{
    enum tri_status st = read_ids(&w->ids, a, err);
    if (!st)
        st = tri_flags_open(&w->opened, &a->flags, err);
    if (st)
        return st;
    const struct tri_spec *spec = tri_model_spec(w->opened.model);
    int64_t chunk = tri_model_chunk_tokens(w->opened.model);
    chunk = w->ids.n < chunk ? w->ids.n : chunk;
    w->logits = tri_calloc((size_t)(chunk * spec->vocab), sizeof *w->logits);
    if (a->residual)
        w->stream = tri_calloc((size_t)(chunk * spec->layers * spec->hidden), sizeof *w->stream);
    if (!w->logits || (a->residual && !w->stream))
        return tri_fail(err, TRI_NOMEM, "no memory for the outputs of a chunk; try --chunk 16");
    if (a->routes)
        st = tri_routes_open(&w->routes, spec, chunk, err);
    if (st)
        return st;
    st = tri_model_state(w->opened.model, w->ids.n, &w->state, err);
    if (!st)
        st = open_file(&w->out, a->out, err);
    if (!st)
        st = open_file(&w->residual, a->residual, err);
    if (!st && w->out.f && w->residual.f && one_file(w->out.f, w->residual.f))
        st = tri_fail(err, TRI_ARG, "--out and --residual name the same file, %s", a->out);
    return st;
}

static void close_work(struct work *w)
{
    tri_out_file_drop(&w->out);
    tri_out_file_drop(&w->residual);
    tri_free(w->ids.id);
    tri_free(w->logits);
    tri_free(w->stream);
    enum tri_status closed = tri_routes_close(&w->routes, NULL);
    TRI_ASSERT(closed == TRI_OK); /* no trace file is open here */
    tri_state_close(w->state);
    tri_flags_close(&w->opened);
}

int tri_cmd_logits(int argc, char **argv)
{
    struct logits_args a = { .flags.options.act = TRI_ACT_EXACT }; /* an instrument: no rounding */
    struct tri_error err = { 0 };
    struct work w = { 0 };
    tri_cli_parse(&logits_argp, argc, argv, TRI_EXIT_USAGE, &a);
    enum tri_status st = open_work(&w, &a, &err);
    if (!st)
        st = run_chunks(&w, &a, &err);
    if (!st)
        st = commit_files(&w, &err);
    close_work(&w);
    return st ? tri_cli_fail(&err) : TRI_EXIT_OK;
}
