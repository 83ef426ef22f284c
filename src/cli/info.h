/* The parts of `trireme info`, each in a file of its own. */
#ifndef TRI_CLI_INFO_H
#define TRI_CLI_INFO_H

#include <jansson.h>
#include <stdbool.h>
#include "spec/spec.h"

/* Only so many names of each kind are listed; the counts are always whole. */
enum { TRI_INFO_MAX_NAMES = 100 };

/* What was asked for. Exactly one of folder and config is set when a model is told. */
struct tri_info_request {
    const char *folder, *config, *index;
    bool json, check;
};

/* A model: from its config, compared with its index or its files. Returns an exit code. */
int tri_info_model(const struct tri_info_request *request);

/* A dry run over MODEL: would it open, and what memory would it take. Returns an exit code. */
int tri_info_check(const struct tri_info_request *request);

/* This build, this machine and its kernels. Returns an exit code. */
int tri_info_machine(const struct tri_info_request *request);

/* Prints the object on stdout, indented, and drops it. Returns an exit code. */
int tri_info_print_json(json_t *object);

/* Notes on stderr, "trireme: note: <text>". */
void tri_info_note(void *arg, const char *text);

#endif
