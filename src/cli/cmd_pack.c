/* trireme pack: the trunk in its RAM format beside the shards, so that opening is only reading. */
#include "cli/cli.h"

#include <argp.h>
#include <stdio.h>
#include "base/clock.h"
#include "cli/human.h"
#include "cli/model_flags.h"
#include "cli/usage.h"

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct tri_model_flags *f = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = f;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0)
            argp_error(state, "one model folder, then options; '%s' is too many", arg);
        f->model = arg;
        return 0;
    case ARGP_KEY_END:
        if (f->options.trunk == TRI_TRUNK_AUTO || f->options.trunk == TRI_TRUNK_STREAM)
            argp_error(state, "which format? --trunk int8, int4, bf16, f32 or disk");
        if (f->options.layers)
            argp_error(state, "a pack is of the whole model: --layers does not go with it");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &tri_model_flags_argp, 0, 0, 0 }, { 0 } };
static const struct argp pack_argp = {
    NULL,
    parse,
    "[MODEL]",
    "Writes every weight that is no routed expert to MODEL/trireme-pack-FORMAT, ready for RAM and "
    "with "
    "a checksum for every 32 MiB. Opening then takes it from there. Experts are not copied. An "
    "interrupted run goes on where it stopped.\v"
    "Example:\n  trireme pack kimi-k3/ --trunk int8\n  trireme run kimi-k3/ --trunk int8 \"Hello\"",
    children,
    NULL,
    NULL
};

int tri_cmd_pack(int argc, char **argv)
{
    struct tri_model_flags flags = { 0 };
    struct tri_error err = { 0 };
    struct tri_pack_report report;
    char size[32], kept[32];
    tri_cli_parse(&pack_argp, argc, argv, TRI_EXIT_USAGE, &flags);
    double begin = tri_clock_s();
    if (tri_flags_pack(&flags, &report, &err))
        return tri_cli_fail(&err);
    printf("%s: %s written in %.1f s", report.folder, tri_human_bytes(size, report.bytes),
           tri_clock_s() - begin);
    if (report.kept_bytes)
        printf(", of which %s were there already", tri_human_bytes(kept, report.kept_bytes));
    printf("\n");
    return TRI_EXIT_OK;
}
