/*
 * The command line: the roof. The only room that prints and the only one that decides an exit code:
 * 0 fine, 1 refused or failed, 2 usage. Each command lives in cmd_<name>.c and parses its own
 * options with argp; commands.def lists them all.
 */
#ifndef TRI_CLI_CLI_H
#define TRI_CLI_CLI_H

#include "base/status.h"

enum tri_exit { TRI_EXIT_OK = 0, TRI_EXIT_FAILED = 1, TRI_EXIT_USAGE = 2 };

/* Runs `trireme COMMAND ...`; returns the exit code. */
int tri_cli_main(int argc, char **argv);

/* Prints "trireme: <text>" on stderr, one line, and returns TRI_EXIT_FAILED (USAGE for TRI_ARG). */
int tri_cli_fail(const struct tri_error *err);

/* One entry per command; argv[0] is the command's name for argp ("trireme run"). */
#define TRI_COMMAND(name, summary) int tri_cmd_##name(int argc, char **argv);
#include "cli/commands.def"
#undef TRI_COMMAND

#endif
