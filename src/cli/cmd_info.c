/* trireme info: what a model is, whether its files are whole, what this machine is. */
#include "cli/cli.h"

#include <argp.h>
#include <stdio.h>
#include "cli/info.h"
#include "cli/usage.h"

enum { KEY_CONFIG = 256, KEY_INDEX, KEY_JSON, KEY_CHECK };

static const struct argp_option options[] = {
    { "config", KEY_CONFIG, "FILE", 0, "Tell about this config.json alone (.gz too)", 0 },
    { "index", KEY_INDEX, "FILE", 0,
      "Compare the config with this model.safetensors.index.json (.gz too)", 0 },
    { "check", KEY_CHECK, 0, 0,
      "Dry run: check every file and the memory a run would take, without reading weights", 0 },
    { "json", KEY_JSON, 0, 0, "Print one JSON object", 0 },
    { 0 }
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct tri_info_request *r = state->input;
    switch (key) {
    case KEY_CONFIG:
        r->config = arg;
        return 0;
    case KEY_INDEX:
        r->index = arg;
        return 0;
    case KEY_JSON:
        r->json = true;
        return 0;
    case KEY_CHECK:
        r->check = true;
        return 0;
    case ARGP_KEY_ARG:
        if (r->folder)
            argp_error(state, "one MODEL at a time");
        r->folder = arg;
        return 0;
    case ARGP_KEY_END:
        if (r->folder && (r->config || r->index))
            argp_error(state, "give either a MODEL folder or --config (and --index)");
        if (r->index && !r->config)
            argp_error(state, "--index needs --config");
        if (r->check && !r->folder)
            argp_error(state, "--check needs a MODEL folder");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const char doc[] =
    "Tells what a model is: its parts, parameters and bytes, and how its files differ from what "
    "config.json promises. Without a model: this build, this machine, which kernels run."
    "\vExamples:\n"
    "  trireme info                          this build and machine\n"
    "  trireme info models/k3                parts of a model, and what its files lack\n"
    "  trireme info models/k3 --check        would it open, and in how much memory\n"
    "  trireme info --config config.json --index model.safetensors.index.json.gz --json\n";

int tri_cmd_info(int argc, char **argv)
{
    struct tri_info_request request = { 0 };
    static const struct argp argp = { options, parse, "[MODEL]", doc, 0, 0, 0 };
    tri_cli_parse(&argp, argc, argv, TRI_EXIT_USAGE, &request);
    if (request.check)
        return tri_info_check(&request);
    if (request.folder || request.config)
        return tri_info_model(&request);
    return tri_info_machine(&request);
}
