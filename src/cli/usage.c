/*
 * argp as we want it: a usage error is one line on stderr (argp adds a second one that advises
 * --help), and --help into a full disk is a failure like any other lost output.
 */
#include "cli/usage.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/cli.h"
#include "cli/streams.h"

struct wrapped {
    const struct argp *argp;
    void *input;
    FILE *errors;
};

/* argp's errors, without the advice at their end (it may be wrapped over lines). */
static ssize_t write_error(void *cookie, const char *text, size_t bytes)
{
    static const char advice[] = "Try `";
    const char *end = text + bytes;
    (void)cookie;
    for (const char *at = text; at < end;) {
        const char *lf = memchr(at, '\n', (size_t)(end - at));
        size_t n = lf ? (size_t)(lf - at) + 1 : (size_t)(end - at);
        if (n >= sizeof advice - 1 && !memcmp(at, advice, sizeof advice - 1))
            break;
        fwrite(at, 1, n, stderr);
        at += n;
    }
    return (ssize_t)bytes;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct wrapped *w = state->input;
    if (key == ARGP_KEY_INIT && w->errors)
        state->err_stream = w->errors;
    if (!w->argp->parser)
        return ARGP_ERR_UNKNOWN;
    state->input = w->input;
    error_t result = w->argp->parser(key, arg, state);
    state->input = w;
    return result;
}

/* --help and --usage leave through exit(0), past the check of tri_cli_main. */
static void check_help(int status, void *arg)
{
    struct tri_error err = { 0 };
    (void)arg;
    if (status == TRI_EXIT_OK && tri_streams_written(&err) != TRI_OK)
        _exit(tri_cli_fail(&err));
}

void tri_cli_parse(const struct argp *argp, int argc, char **argv, int usage_code, void *input)
{
    struct wrapped w = { argp, input, NULL };
    const cookie_io_functions_t io = { .write = write_error };
    struct argp root = *argp;
    char buffer[4096]; /* an error is written whole, so that its lines can be told apart */
    w.errors = fopencookie(NULL, "w", io);
    if (w.errors)
        setvbuf(w.errors, buffer, _IOFBF, sizeof buffer);
    root.parser = parse;
    argp_err_exit_status = usage_code;
    on_exit(check_help, NULL);
    error_t failed = argp_parse(&root, argc, argv, 0, NULL, &w);
    if (w.errors)
        fclose(w.errors);
    if (failed)
        exit(usage_code);
}
