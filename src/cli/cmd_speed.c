/* trireme speed: the local engine without HTTP, against what this machine can do. */
#include "cli/cli.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/speed.h"
#include "cli/usage.h"

enum {
    KEY_PREFILL = 0x400,
    KEY_DECODE,
    KEY_BATCH,
    KEY_DEPTH,
    KEY_FILL,
    KEY_REPS,
    KEY_READ,
    KEY_NO_LIMITS,
    KEY_JSON
};

static const struct argp_option options[] = {
    { "prefill", KEY_PREFILL, "LIST", 0, "Prompt lengths (default 128,512); 0 for none", 0 },
    { "decode", KEY_DECODE, "N", 0, "Tokens to decode in a repetition (default 32); 0 for none",
      0 },
    { "batch", KEY_BATCH, "LIST", 0, "Sequences decoded together (default 1)", 0 },
    { "depth", KEY_DEPTH, "LIST", 0, "Tokens a sequence holds already (default 0)", 0 },
    { "fill", KEY_FILL, 0, 0, "Depths are filled with random numbers instead of a prefill", 0 },
    { "reps", KEY_REPS, "N", 0, "Counted repetitions of each row (default 5)", 0 },
    { "read", KEY_READ, "SIZE", 0, "Bytes of the read test (default 1G)", 0 },
    { "no-limits", KEY_NO_LIMITS, 0, 0, "Do not measure the machine beside the model", 0 },
    { "json", KEY_JSON, 0, 0, "Print one JSON object", 0 },
    { 0 }
};

/* "128,512,2048": whole numbers from `least`. A lone 0 empties the list when `least` is 1. */
static void parse_list(struct speed_list *list, const char *flag, const char *arg, int64_t least,
                       struct argp_state *state)
{
    char copy[256], *at = copy, *word;
    list->n = 0;
    if (least > 0 && !strcmp(arg, "0"))
        return;
    if (snprintf(copy, sizeof copy, "%s", arg) >= (int)sizeof copy)
        argp_error(state, "--%s: too long", flag);
    while ((word = strsep(&at, ",")) != NULL) {
        if (list->n == SPEED_MAX_LIST)
            argp_error(state, "--%s: at most %d numbers", flag, SPEED_MAX_LIST);
        if (!tri_parse_int(word, least, 1 << 24, &list->v[list->n]))
            argp_error(state, "--%s %s: whole numbers from %d to %d, apart by commas", flag, arg,
                       (int)least, 1 << 24);
        list->n++;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct speed_args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->flags;
        return 0;
    case KEY_PREFILL:
        parse_list(&a->prefill, "prefill", arg, 1, state);
        return 0;
    case KEY_DECODE:
        if (!tri_parse_int(arg, 0, 1 << 20, &a->decode_tokens))
            argp_error(state, "--decode %s: 0 to %d", arg, 1 << 20);
        return 0;
    case KEY_BATCH:
        parse_list(&a->batch, "batch", arg, 1, state);
        if (!a->batch.n)
            argp_error(state, "--batch %s: 1 or more; --decode 0 measures no decode", arg);
        return 0;
    case KEY_DEPTH:
        parse_list(&a->depth, "depth", arg, 0, state);
        return 0;
    case KEY_FILL:
        a->fill = true;
        return 0;
    case KEY_REPS:
        if (!tri_parse_int(arg, 1, SPEED_MAX_REPS, &a->reps))
            argp_error(state, "--reps %s: 1 to %d", arg, SPEED_MAX_REPS);
        return 0;
    case KEY_READ:
        if (!tri_parse_size(arg, &a->read_bytes) || a->read_bytes < 1 << 20)
            argp_error(state, "--read %s: a size of 1M or more, such as 1G", arg);
        return 0;
    case KEY_NO_LIMITS:
        a->no_limits = true;
        return 0;
    case KEY_JSON:
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0)
            argp_error(state, "one model folder, then options; '%s' is too many", arg);
        a->flags.model = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->prefill.n && !(a->decode_tokens && a->batch.n))
            argp_error(state, "nothing to measure: --prefill and --decode are both empty");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &tri_model_flags_argp, 0, "Model:", 10 }, { 0 } };
static const struct argp speed_argp = {
    options,
    parse,
    "[MODEL]",
    "Measures prefill and decode in tokens/s beside what this machine can do.\v"
    "Each row: median, least and most of its repetitions, the bytes and operations it needs by the "
    "ledger, and the share of its limit: the longer of reading those bytes at the measured "
    "bandwidth (best pass of the read test between the repetitions) and doing those operations at "
    "the measured int8 peak. Tokens are random: their routing spreads over the experts.\n\n"
    "Examples:\n"
    "  trireme speed                                   the nano model\n"
    "  trireme speed mini/ --trunk int8 --prefill 128,512,2048 --batch 1,4,16\n"
    "  trireme speed mini/ --prefill 0 --depth 0,4096 --json",
    children,
    NULL,
    NULL
};

/* What would else be refused only after loading, or by what it lets no room for. */
static enum tri_status check_batch(const struct speed_args *a, struct tri_error *err)
{
    int64_t asked = a->flags.options.chunk_tokens, batch = speed_most_batch(a);
    int64_t chunk = asked ? asked : TRI_MODEL_CHUNK_TOKENS;
    if (batch <= chunk)
        return TRI_OK;
    return tri_fail(err, TRI_ARG, "--batch %lld is above --chunk %lld", (long long)batch,
                    (long long)chunk);
}

int tri_cmd_speed(int argc, char **argv)
{
    struct speed_args a = { .prefill = { { 128, 512 }, 2 },
                            .batch = { { 1 }, 1 },
                            .depth = { { 0 }, 1 },
                            .decode_tokens = 32,
                            .reps = 5,
                            .read_bytes = 1 << 30 };
    struct tri_error err = { 0 };
    struct tri_opened opened = { 0 };
    tri_cli_parse(&speed_argp, argc, argv, TRI_EXIT_USAGE, &a);
    a.flags.options.keep_nothing = true; /* random tokens say nothing about later runs */
    a.flags.options.context_tokens = speed_capacity(&a);
    a.flags.options.sequences = speed_most_batch(&a) + 1;
    struct speed_report *report = tri_calloc(1, sizeof *report);
    enum tri_status st = report ? TRI_OK : tri_fail(&err, TRI_NOMEM, "no memory for the report");
    if (!st)
        st = check_batch(&a, &err);
    if (!st)
        st = tri_flags_open(&opened, &a.flags, &err);
    if (!st)
        st = speed_run(report, &a, &opened, &err);
    if (!st && a.json)
        speed_print_json(report, &a, &opened);
    else if (!st)
        speed_print(report, &a, &opened);
    tri_flags_close(&opened);
    tri_free(report);
    if (!st && (fflush(stdout) || ferror(stdout)))
        st = tri_fail_errno(&err, TRI_IO, errno, "cannot write to standard output");
    return st ? tri_cli_fail(&err) : TRI_EXIT_OK;
}
