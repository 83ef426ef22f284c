/* Options of a command: argp, with one-line errors and checked output. See usage.c. */
#ifndef TRI_CLI_USAGE_H
#define TRI_CLI_USAGE_H

struct argp;

/* Parses or does not return: exit(0) after --help, exit(usage_code) after one line on stderr. */
void tri_cli_parse(const struct argp *argp, int argc, char **argv, int usage_code, void *input);

#endif
