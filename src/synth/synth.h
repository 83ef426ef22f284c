/*
 * Made-up checkpoints: any K3-family config and layer count in the published layout (K3 spec 2.1,
 * 2.2), for measuring and for testing at true shapes without the real weights. Floor 2.
 *
 * The bytes depend on config and seed alone, never on threads: every value comes from a counter
 * (a splitmix64 step per 8 bytes), keyed by seed and tensor name. Magnitudes keep activations
 * finite through any number of layers; routing spreads over the experts.
 */
#ifndef TRI_SYNTH_SYNTH_H
#define TRI_SYNTH_SYNTH_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

enum { TRI_SYNTH_MAX_SETS = 64, TRI_SYNTH_HOLE_BYTES = 1 << 20 };

struct tri_synth_options {
    const char *out;    /* folder to make; must not exist, or be empty */
    const char *config; /* config.json (.gz too), or a folder that holds one */
    int64_t layers;     /* 0: as in the config; layer kinds repeat past its end */
    /* One letter a layer, repeated: k KDA, m MLA. NULL: the config's own lists. */
    const char *pattern;
    /* "key=value" replacing numbers and booleans of text_config (vocab_size=8192). */
    const char *set[TRI_SYNTH_MAX_SETS];
    int sets;
    bool text_only; /* no vision tower and projector */
    uint64_t seed;
    int shards;  /* files; 0: as published, one per layer and up to three for the ends */
    bool sparse; /* routed experts and tensors over TRI_SYNTH_HOLE_BYTES stay holes: zeros */
    int threads; /* 0: all CPUs */
    struct tri_notes notes;
    struct tri_progress progress; /* bytes written */
};

struct tri_synth_report {
    uint64_t tensors, bytes;            /* payload of all shards */
    uint64_t written_bytes, parameters; /* what is no hole; values that weights stand for */
    int files;
};

/*
 * Makes the checkpoint. Checked before anything is written: the config, the shapes, the free space.
 * A shard is called *.part until it is whole, the index comes after all shards and config.json
 * last: a folder without config.json is an unfinished run. TRI_CANCELLED when progress says so.
 */
TRI_MUST_CHECK enum tri_status tri_synth(const struct tri_synth_options *options,
                                         struct tri_synth_report *report, struct tri_error *err);

#endif
