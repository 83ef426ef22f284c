/*
 * The options that every command which runs a model shares (--ram, --trunk, --threads, --chunk,
 * --layers, -m), as an argp child, and opening the model they describe with a progress line.
 */
#ifndef TRI_CLI_MODEL_FLAGS_H
#define TRI_CLI_MODEL_FLAGS_H

#include <argp.h>
#include <stdbool.h>
#include "base/mem.h"
#include "model/model.h"
#include "os/numa.h"

struct tri_model_flags {
    const char *model;  /* -m, or a positional the command chose; NULL: the nano model */
    uint64_t ram_bytes; /* 0: from free memory and cgroup */
    bool quiet;         /* no progress, no notes */
    enum tri_numa numa;
    struct tri_model_options options;
};

/* Child parser; its input is a struct tri_model_flags set to zero. */
extern const struct argp tri_model_flags_argp;

struct tri_opened {
    struct tri_budget *budget;
    struct tri_model *model;
    char folder[4096];
    struct tri_folders shard_dirs;
    double load_s;
    struct tri_numa_plan numa;
    struct tri_numa_before numa_before; /* put back by tri_flags_close */
};

/* Resolves the folder, opens budget and model; progress on a terminal's stderr. */
TRI_MUST_CHECK enum tri_status
tri_flags_open(struct tri_opened *out, const struct tri_model_flags *flags, struct tri_error *err);
void tri_flags_close(struct tri_opened *opened);

/* tri_model_pack() of the folder and format that the flags name, with progress. */
TRI_MUST_CHECK enum tri_status tri_flags_pack(const struct tri_model_flags *flags,
                                              struct tri_pack_report *report,
                                              struct tri_error *err);

/* One more --shard-dir; a usage error of the parser's when it is empty or one too many. */
void tri_take_shard_dir(struct argp_state *state, const char *arg, struct tri_folders *to);

/* "20G", "512M", "1.5T", "4096": binary units, whole bytes. False when it is no size or overflows.
 */
bool tri_parse_size(const char *text, uint64_t *bytes);
/* A whole decimal number within [least, most]. */
bool tri_parse_int(const char *text, int64_t least, int64_t most, int64_t *out);

#endif
