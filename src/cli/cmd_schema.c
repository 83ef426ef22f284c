/*
 * trireme schema: does a schema fit the subset that serve enforces, what would it let pass? Also
 * the way in for the tests that hold the grammar against an independent validator.
 */
#include "cli/cli.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/model_path.h"
#include "cli/schema_draw.h"
#include "cli/usage.h"

enum { LINE_MAX_BYTES = 64 << 20 };

struct options {
    const char *vocab, *file;
    int64_t draw;
    uint64_t seed;
    bool lines;
};

enum { KEY_VOCAB = 256, KEY_DRAW, KEY_SEED, KEY_LINES };

static const struct argp_option option_list[] = {
    { "vocab", KEY_VOCAB, "MODEL", 0, "whose vocabulary is used (the nano model's)", 0 },
    { "draw", KEY_DRAW, "N", 0, "print N examples, chosen at random (3)", 0 },
    { "seed", KEY_SEED, "N", 0, "another seed, other examples", 0 },
    { "lines", KEY_LINES, 0, 0, "many questions: one JSON object a line of standard input", 1 },
    { 0 },
};

static const char help[] =
    "Check a JSON Schema against what `trireme serve` enforces.\v"
    "FILE holds a schema; - is standard input. What is outside the subset is named with its path, "
    "and the exit code is 1. docs/serving.md has the table.\n"
    "\n"
    "  trireme schema answer.json\n"
    "  trireme schema --draw 20 --seed 7 answer.json\n"
    "\n"
    "--lines reads objects with `schema` (or `choice`, `regex`; or `request`, a chat request with "
    "tools), `draw`, `seed`, `max_tokens` and `try` (a list of texts), and answers each with a "
    "line: {\"error\"} or {\"drawn\", \"fits\", \"nodes\", \"compile_ms\", \"masks\", "
    "\"mask_hits\", \"mask_ms\", \"slowest_ms\"}.";

static error_t take_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    char *end = NULL;
    switch (key) {
    case KEY_VOCAB:
        o->vocab = arg;
        return 0;
    case KEY_DRAW:
        o->draw = strtoll(arg, &end, 10);
        if (*end || o->draw < 0 || o->draw > 1000000)
            argp_error(state, "--draw is a number up to 1000000, not '%s'", arg);
        return 0;
    case KEY_SEED:
        o->seed = strtoull(arg, &end, 10);
        if (*end)
            argp_error(state, "--seed is a number, not '%s'", arg);
        return 0;
    case KEY_LINES:
        o->lines = true;
        return 0;
    case ARGP_KEY_ARG:
        if (o->file)
            argp_error(state, "one FILE, not '%s' too", arg);
        o->file = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

struct work {
    struct tri_tokenizer *tok;
    struct tri_grammar_vocab *vocab;
    int32_t end_id;
};

/* The question's grammar. A request's reply starts thinking, as in a chat. */
static enum tri_status compile(const struct work *w, const json_t *q, struct tri_grammar **out,
                               struct tri_error *err)
{
    static const struct {
        const char *name;
        enum tri_grammar_kind kind;
    } kinds[] = { { "schema", TRI_GRAMMAR_SCHEMA },
                  { "choice", TRI_GRAMMAR_CHOICE },
                  { "regex", TRI_GRAMMAR_REGEX } };
    const json_t *request = json_object_get(q, "request");
    struct tri_grammar_request r = { .end_ids = &w->end_id, .n_end_ids = 1 };
    for (size_t i = 0; i < 3 && !r.schema; i++) {
        r.schema = json_object_get(q, kinds[i].name);
        r.schema_name = kinds[i].name;
        r.kind = r.schema ? kinds[i].kind : TRI_GRAMMAR_TEXT;
    }
    if (request) {
        r.start = TRI_CHANNEL_THINK;
        r.calls = TRI_GRAMMAR_MUST_CALL;
        r.tools = json_object_get(request, "tools");
        r.only_tool = json_string_value(json_object_get(request, "only_tool"));
        r.one_call = json_is_false(json_object_get(request, "parallel_tool_calls"));
    } else if (!r.schema) {
        return tri_fail(err, TRI_FORMAT, "no schema, choice, regex or request is given");
    }
    return tri_grammar_compile(out, w->vocab, &r, err);
}

/* A drawn reply as text, or as the message that a client would get. */
static enum tri_status put_reply(const struct work *w, const struct tri_ids *ids, bool chat,
                                 struct tri_buf *out, struct tri_error *err)
{
    struct tri_parser_options o = { .start = TRI_CHANNEL_THINK, .tools = true };
    struct tri_parser *parser = NULL;
    struct tri_turn turn;
    struct tri_detok detok;
    struct tri_buf text;
    enum tri_status st = TRI_OK;
    tri_buf_init(&text, LINE_MAX_BYTES);
    if (chat) {
        st = tri_parser_open(&parser, w->tok, &o, err);
        for (size_t i = 0; i < ids->count_tokens && !st; i++)
            st = tri_parser_push(parser, ids->data[i], err);
        if (!st)
            st = tri_parser_finish(parser, false, &turn, err);
        if (!st)
            tri_turn_message(out, &turn, "call");
    } else {
        tri_detok_init(&detok, w->tok, true);
        for (size_t i = 0; i < ids->count_tokens && !st; i++)
            st = tri_detok_push(&detok, ids->data[i], &text, err);
        tri_detok_finish(&detok, &text);
        tri_json_quote(out, text.data ? text.data : "", text.len_bytes);
    }
    tri_parser_close(parser);
    tri_buf_fini(&text);
    return st;
}

static int64_t number_of(const json_t *q, const char *name, int64_t otherwise)
{
    const json_t *v = json_object_get(q, name);
    return json_is_integer(v) ? (int64_t)json_integer_value(v) : otherwise;
}

static enum tri_status put_answers(const struct work *w, const json_t *q,
                                   struct tri_schema_draw *how, struct tri_buf *out,
                                   struct tri_error *err)
{
    const json_t *tries = json_object_get(q, "try");
    bool chat = json_object_get(q, "request") != NULL, fits = false;
    enum tri_status st = TRI_OK;
    int64_t n = number_of(q, "draw", 0);
    tri_buf_puts(out, "{\"drawn\":[");
    for (int64_t i = 0; i < n && !st; i++) {
        struct tri_ids ids = { 0 };
        tri_buf_puts(out, i ? "," : "");
        how->seed = (uint64_t)number_of(q, "seed", 1) + (uint64_t)i;
        st = tri_schema_draw(how, &ids, err);
        if (!st)
            st = put_reply(w, &ids, chat, out, err);
        tri_ids_fini(&ids);
    }
    tri_buf_puts(out, "],\"fits\":[");
    for (size_t i = 0; i < json_array_size(tries) && !st; i++) {
        const json_t *text = json_array_get(tries, i);
        st = tri_schema_try(how, json_string_value(text), json_string_length(text), &fits, err);
        tri_buf_printf(out, "%s%s", i ? "," : "", fits ? "true" : "false");
    }
    return st;
}

/* One question's line. */
static void answer(const struct work *w, const json_t *q, struct tri_buf *out)
{
    struct tri_schema_draw how = { .tok = w->tok, .max_tokens = number_of(q, "max_tokens", 100) };
    struct tri_grammar_stats stats;
    struct tri_error err = { 0 };
    double begin = tri_clock_s() * 1e3;
    enum tri_status st = compile(w, q, &how.grammar, &err);
    double ms = tri_clock_s() * 1e3 - begin;
    tri_buf_clear(out);
    if (!st)
        st = put_answers(w, q, &how, out, &err);
    if (st) {
        tri_buf_clear(out);
        tri_buf_printf(out, "{\"status\":%d,\"error\":", (int)st);
        tri_json_quote(out, err.text, strlen(err.text));
        tri_buf_puts(out, "}");
    } else {
        tri_grammar_read_stats(how.grammar, &stats);
        tri_buf_printf(out,
                       "],\"nodes\":%zu,\"compile_ms\":%.3f,\"masks\":%llu,\"mask_hits\":%llu,"
                       "\"mask_ms\":%.3f,\"slowest_ms\":%.3f}",
                       stats.nodes, ms, (unsigned long long)stats.masks,
                       (unsigned long long)stats.mask_hits, (double)stats.mask_ns * 1e-6,
                       (double)stats.slowest_ns * 1e-6);
    }
    tri_grammar_drop(how.grammar);
}

static enum tri_status answer_lines(const struct work *w, struct tri_error *err)
{
    struct tri_buf out;
    char *line = NULL;
    size_t room = 0;
    enum tri_status st = TRI_OK;
    tri_buf_init(&out, 4u * LINE_MAX_BYTES);
    for (ssize_t n; !st && (n = getline(&line, &room, stdin)) > 0;) {
        json_t *q = NULL;
        st = tri_json_parse(&q, "standard input", line, (size_t)n, LINE_MAX_BYTES, err);
        if (st)
            break;
        answer(w, q, &out);
        json_decref(q);
        printf("%s\n", out.data);
        fflush(stdout);
    }
    tri_free(line);
    tri_buf_fini(&out);
    return st;
}

static enum tri_status check_file(const struct work *w, const struct options *o,
                                  struct tri_error *err)
{
    struct tri_schema_draw how = { .tok = w->tok, .max_tokens = 60, .seed = o->seed };
    struct tri_grammar_stats stats;
    struct tri_buf text;
    json_t *schema = NULL, *q = NULL;
    const char *path = strcmp(o->file, "-") ? o->file : "/dev/stdin";
    enum tri_status st = tri_json_load(&schema, path, TRI_GRAMMAR_MAX_SCHEMA_BYTES, err);
    tri_buf_init(&text, LINE_MAX_BYTES);
    if (!st) {
        q = json_pack("{s:O}", "schema", schema);
        st = compile(w, q, &how.grammar, err);
    }
    for (int64_t i = 0; i < o->draw && !st; i++, how.seed++) {
        struct tri_ids ids = { 0 };
        struct tri_detok detok;
        tri_buf_clear(&text);
        tri_detok_init(&detok, w->tok, true);
        st = tri_schema_draw(&how, &ids, err);
        for (size_t k = 0; k < ids.count_tokens && !st; k++)
            st = tri_detok_push(&detok, ids.data[k], &text, err);
        if (!st)
            printf("%s\n", text.data ? text.data : "");
        tri_ids_fini(&ids);
    }
    if (!st) {
        tri_grammar_read_stats(how.grammar, &stats);
        fprintf(stderr, "%s: fits (%zu states)\n", o->file, stats.nodes);
    }
    tri_grammar_drop(how.grammar);
    json_decref(schema);
    json_decref(q);
    tri_buf_fini(&text);
    return st;
}

int tri_cmd_schema(int argc, char **argv)
{
    static const struct argp argp = { option_list, take_option, "FILE", help, NULL, NULL, NULL };
    struct options o = { .draw = 3, .seed = 1 };
    struct tri_error err = { 0 };
    struct work w = { 0 };
    char path[TRI_MODEL_PATH_MAX_BYTES];
    tri_cli_parse(&argp, argc, argv, TRI_EXIT_USAGE, &o);
    enum tri_status st = o.lines || o.file ? TRI_OK : tri_fail(&err, TRI_ARG, "FILE is missing");
    if (!st)
        st = tri_model_path(path, o.vocab, &err);
    if (!st)
        st = tri_tokenizer_open(&w.tok, path, &err);
    if (!st)
        st = tri_grammar_vocab_open(&w.vocab, w.tok, NULL, &err);
    if (!st)
        w.end_id = tri_token_named(w.tok, "<|end_of_msg|>");
    if (!st)
        st = o.lines ? answer_lines(&w, &err) : check_file(&w, &o, &err);
    tri_grammar_vocab_close(w.vocab);
    tri_tokenizer_close(w.tok);
    return st ? tri_cli_fail(&err) : TRI_EXIT_OK;
}
