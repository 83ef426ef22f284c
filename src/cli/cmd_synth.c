/* trireme synth: a checkpoint of any shape with made-up weights. */
#include "cli/cli.h"

#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/clock.h"
#include "cli/human.h"
#include "cli/model_flags.h"
#include "cli/usage.h"
#include "os/pool.h"
#include "spec/spec.h"
#include "synth/synth.h"

enum {
    KEY_CONFIG = 0x300,
    KEY_LAYERS,
    KEY_PATTERN,
    KEY_VOCAB,
    KEY_EXPERTS,
    KEY_SET,
    KEY_SEED,
    KEY_SHARDS,
    KEY_SPARSE,
    KEY_TEXT_ONLY,
    KEY_THREADS,
    KEY_JSON
};

struct synth_args {
    struct tri_synth_options o;
    char made[2][64]; /* "vocab_size=N" and "num_experts=N" */
    bool json;
};

static const struct argp_option options[] = {
    { "config", KEY_CONFIG, "FILE", 0, "config.json of the shape, or a folder that holds one", 0 },
    { "layers", KEY_LAYERS, "N", 0, "This many layers; kinds repeat past the config's end", 0 },
    { "pattern", KEY_PATTERN, "KINDS", 0, "Layer kinds, repeated: k KDA, m MLA, e.g. kkkm", 0 },
    { "vocab", KEY_VOCAB, "N", 0, "Vocabulary rows", 0 },
    { "experts", KEY_EXPERTS, "N", 0, "Routed experts of each layer", 0 },
    { "set", KEY_SET, "KEY=VALUE", 0, "Another number of text_config (a dot enters an object)", 0 },
    { "text-only", KEY_TEXT_ONLY, 0, 0, "Without the vision tower and its projector", 0 },
    { "seed", KEY_SEED, "N", 0, "Other values (default 0)", 0 },
    { "shards", KEY_SHARDS, "N", 0, "Files (default: one for each layer, as published)", 0 },
    { "sparse", KEY_SPARSE, 0, 0,
      "Routed experts and tensors above 1 MiB are holes: shapes without disk space", 0 },
    { "threads", KEY_THREADS, "N", 0, "Worker threads (default: all CPUs allowed)", 0 },
    { "json", KEY_JSON, 0, 0, "Print the report as JSON", 0 },
    { 0 }
};

static void add_set(struct tri_synth_options *o, const char *pair, struct argp_state *state)
{
    if (o->sets == TRI_SYNTH_MAX_SETS)
        argp_error(state, "--set: at most %d of them", TRI_SYNTH_MAX_SETS);
    o->set[o->sets++] = pair;
}

static int64_t number(const char *flag, const char *arg, int64_t most, struct argp_state *state)
{
    int64_t n = 0;
    if (!tri_parse_int(arg, 1, most, &n))
        argp_error(state, "--%s %s: 1 to %" PRId64, flag, arg, most);
    return n;
}

static void shorthand(struct synth_args *a, int which, const char *key, int64_t n,
                      struct argp_state *state)
{
    snprintf(a->made[which], sizeof a->made[which], "%s=%" PRId64, key, n);
    add_set(&a->o, a->made[which], state);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct synth_args *a = state->input;
    int64_t n = 0;
    switch (key) {
    case KEY_CONFIG:
        a->o.config = arg;
        return 0;
    case KEY_LAYERS:
        a->o.layers = number("layers", arg, TRI_SPEC_MAX_LAYERS, state);
        return 0;
    case KEY_PATTERN:
        a->o.pattern = arg;
        return 0;
    case KEY_VOCAB:
        shorthand(a, 0, "vocab_size", number("vocab", arg, TRI_SPEC_MAX_VOCAB, state), state);
        return 0;
    case KEY_EXPERTS:
        shorthand(a, 1, "num_experts", number("experts", arg, TRI_SPEC_MAX_EXPERTS, state), state);
        return 0;
    case KEY_SET:
        add_set(&a->o, arg, state);
        return 0;
    case KEY_TEXT_ONLY:
        a->o.text_only = true;
        return 0;
    case KEY_SEED:
        if (!tri_parse_int(arg, 0, INT64_MAX, &n))
            argp_error(state, "--seed %s: a whole number, 0 or more", arg);
        a->o.seed = (uint64_t)n;
        return 0;
    case KEY_SHARDS:
        a->o.shards = (int)number("shards", arg, 1 << 20, state);
        return 0;
    case KEY_SPARSE:
        a->o.sparse = true;
        return 0;
    case KEY_THREADS:
        a->o.threads = (int)number("threads", arg, TRI_POOL_MAX_THREADS, state);
        return 0;
    case KEY_JSON:
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0)
            argp_error(state, "one folder to make, then options; '%s' is too many", arg);
        a->o.out = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->o.out || !a->o.config)
            argp_error(state, "give the folder to make and the shape, by --config");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp synth_argp = {
    options,
    parse,
    "OUT",
    "Makes a checkpoint with made-up weights in the published layout.\v"
    "The same config and seed give the same bytes on any number of threads. config.json is written "
    "last: a folder without it is an unfinished run.\n\n"
    "Examples:\n"
    "  trireme synth mini/ --config mini_config.json\n"
    "  trireme synth deep/ --config mini_config.json --layers 48 --seed 3\n"
    "  trireme synth shape/ --config k3/config.json --sparse\n"
    "  trireme synth one/ --config k3/config.json --text-only --layers 1 --pattern m \\\n"
    "    --experts 64 --vocab 4096 --set first_k_dense_replace=0",
    NULL,
    NULL,
    NULL
};

struct line {
    double begin_s, drawn_s;
    bool drawn;
};

static int draw_progress(void *arg, const char *what, uint64_t done, uint64_t total)
{
    struct line *l = arg;
    char a[32], b[32], c[32];
    double now = tri_clock_s();
    (void)what;
    if (now - l->drawn_s < 0.1)
        return 0;
    l->drawn_s = now;
    l->drawn = true;
    double rate = (double)done / (now - l->begin_s + 1e-9);
    fprintf(stderr, "\r\033[Kwriting: %s of %s, %s/s", tri_human_bytes(a, done),
            tri_human_bytes(b, total), tri_human_bytes(c, (uint64_t)rate));
    fflush(stderr);
    return 0;
}

static void print_report(const struct synth_args *a, const struct tri_synth_report *r, double s)
{
    char size[32], written[32], rate[32];
    if (a->json) {
        printf("{\"tensors\":%" PRIu64 ",\"parameters\":%" PRIu64 ",\"bytes\":%" PRIu64
               ",\"written_bytes\":%" PRIu64 ",\"files\":%d,\"seconds\":%.3f}\n",
               r->tensors, r->parameters, r->bytes, r->written_bytes, r->files, s);
        return;
    }
    printf("%s: %" PRIu64 " tensors, %.3f G parameters, %s in %d files\n", a->o.out, r->tensors,
           (double)r->parameters / 1e9, tri_human_bytes(size, r->bytes), r->files);
    printf("written %s in %.1f s, %s/s%s\n", tri_human_bytes(written, r->written_bytes), s,
           tri_human_bytes(rate, (uint64_t)((double)r->written_bytes / s)),
           a->o.sparse ? "; the rest are holes" : "");
}

int tri_cmd_synth(int argc, char **argv)
{
    struct synth_args a = { 0 };
    struct tri_error err = { 0 };
    struct tri_synth_report report = { 0 };
    struct line line = { .begin_s = tri_clock_s() };
    tri_cli_parse(&synth_argp, argc, argv, TRI_EXIT_USAGE, &a);
    if (isatty(STDERR_FILENO))
        a.o.progress = (struct tri_progress){ draw_progress, &line };
    enum tri_status st = tri_synth(&a.o, &report, &err);
    if (line.drawn)
        fprintf(stderr, "\r\033[K");
    if (st)
        return tri_cli_fail(&err);
    print_report(&a, &report, tri_clock_s() - line.begin_s);
    return TRI_EXIT_OK;
}
