/* Picks the command and prints the overview. */
#include "cli/cli.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "cli/streams.h"

struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
#define TRI_COMMAND(name, summary) { #name, summary, tri_cmd_##name },
#include "cli/commands.def"
#undef TRI_COMMAND
};

static void overview(FILE *out)
{
    fprintf(out, "usage: trireme COMMAND [OPTIONS]\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n`trireme COMMAND --help` tells the options of one command.\n");
}

int tri_cli_fail(const struct tri_error *err)
{
    fflush(stdout);
    const char *text = err->text[0] ? err->text : tri_status_text(err->status);
    bool advise = err->status == TRI_BUDGET && !strstr(text, "--ram");
    fprintf(stderr, "trireme: %s%s\n", text, advise ? "; give more memory (--ram)" : "");
    return err->status == TRI_ARG ? TRI_EXIT_USAGE : TRI_EXIT_FAILED;
}

static int choose(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
        printf("trireme %s\n", TRI_VERSION);
        return TRI_EXIT_OK;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        overview(stdout);
        return TRI_EXIT_OK;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(name, commands[i].name))
            continue;
        char title[64];
        snprintf(title, sizeof title, "trireme %s", name);
        argv[1] = title;
        return commands[i].run(argc - 1, argv + 1);
    }
    if (*name)
        fprintf(stderr, "trireme: no command '%.100s' (`trireme --help` lists them)\n", name);
    else
        overview(stderr);
    return TRI_EXIT_USAGE;
}

int tri_cli_main(int argc, char **argv)
{
    struct tri_error err = { 0 };
    tri_streams_guard();
    int code = choose(argc, argv);
    if (code != TRI_EXIT_OK || tri_streams_written(&err) == TRI_OK)
        return code;
    return tri_cli_fail(&err);
}
