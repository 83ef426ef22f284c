/*
 * What `trireme run` was asked to do: its options, read strictly, and which positional is the
 * model and which the prompt.
 */
#ifndef TRI_CLI_RUN_OPTIONS_H
#define TRI_CLI_RUN_OPTIONS_H

#include <stdbool.h>
#include "cli/model_flags.h"
#include "engine/engine.h"
#include "text/text.h"

enum tri_show { TRI_SHOW_AUTO, TRI_SHOW_YES, TRI_SHOW_NO };

struct tri_run_options {
    struct tri_model_flags flags;
    const char *word[2]; /* positionals as typed; sorted out by tri_run_options_parse */
    int words;
    const char *prompt; /* NULL: prompt_file, standard input, or chat */
    const char *prompt_file, *request_file, *system, *tools_file, *trace;
    bool raw, json, stats, thinking, seed_given, greedy;
    enum tri_effort effort;
    enum tri_show show_thinking;
    struct tri_sampling sampling;
    int64_t max_tokens, context_tokens; /* 0: no limit but the context; what fits */
    const char *stop[TRI_STOP_MAX_STRINGS];
    int64_t n_stop;
    struct tri_logit_bias bias[TRI_ENGINE_MAX_BIAS];
    int64_t n_bias;
};

/* Reads the command line; a mistake prints one line and exits with 2, --help with 0. */
void tri_run_options_parse(struct tri_run_options *options, int argc, char **argv);

#endif
