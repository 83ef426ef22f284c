/* The parts of `trireme info`, each in a file of its own. */
#ifndef TRI_CLI_INFO_H
#define TRI_CLI_INFO_H

#include <jansson.h>
#include <stdbool.h>
#include "ledger/ledger.h"
#include "weights/weights.h"

/* Only so many names of each kind are listed; the counts are always whole. */
enum { TRI_INFO_MAX_NAMES = 100 };

/* What was asked for. Exactly one of folder and config is set when a model is told. */
struct tri_info_request {
    const char *folder, *config, *index;
    bool json, check;
};

/* A model: from its config, compared with its index or its files. Returns an exit code. */
int tri_info_model(const struct tri_info_request *request);

/* --trunk precisions, in the order of enum tri_trunk from TRI_TRUNK_DISK on. */
enum { TRI_INFO_PRECISIONS = 5 };
extern const char *const tri_info_precision[TRI_INFO_PRECISIONS];

/* --kda-state and --cache, the default first. */
enum { TRI_INFO_STATES = 2, TRI_INFO_CACHES = 3 };
extern const char *const tri_info_state[TRI_INFO_STATES], *const tri_info_cache[TRI_INFO_CACHES];

/* Memory that a run takes, by account; the state per sequence and per token of it. */
struct tri_info_needs {
    uint64_t checkpoint_bytes;
    uint64_t trunk_bytes[TRI_INFO_PRECISIONS];
    uint64_t experts_bytes;
    uint64_t kda_bytes[TRI_INFO_STATES], mla_bytes_per_token[TRI_INFO_CACHES];
};

TRI_MUST_CHECK enum tri_status tri_info_weigh(struct tri_info_needs *out,
                                              const struct tri_checkpoint *ckpt,
                                              const struct tri_spec *spec, struct tri_error *err);

/* The ledger's trunk of an open checkpoint; dense_number: enum tri_number, -1 as on disk. */
TRI_MUST_CHECK enum tri_status tri_trunk_weigh(struct tri_trunk_bytes *out,
                                               const struct tri_spec *spec,
                                               const struct tri_checkpoint *ckpt, int dense_number,
                                               struct tri_error *err);

/* A dry run over MODEL: would it open, and what memory would it take. Returns an exit code. */
int tri_info_check(const struct tri_info_request *request);

/* This build, this machine and its kernels. Returns an exit code. */
int tri_info_machine(const struct tri_info_request *request);

/* Prints the object on stdout, indented, and drops it. Returns an exit code. */
int tri_info_print_json(json_t *object);

/* Notes on stderr, "trireme: note: <text>". */
void tri_info_note(void *arg, const char *text);

#endif
