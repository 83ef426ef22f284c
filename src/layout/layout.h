/*
 * Who holds what: which layers, heads, experts and rows one rank of a ship holds under tensor,
 * pipeline and expert parallelism. Pure arithmetic on a tri_spec; searching for a good layout is
 * plan's work. Floor 2. One rank alone holds the whole: tri_slice_whole().
 */
#ifndef TRI_LAYOUT_LAYOUT_H
#define TRI_LAYOUT_LAYOUT_H

#include "spec/spec.h"

struct tri_range {
    int64_t first, count;
};

/* Part `rank` of `total` items over `size` ranks; the first total % size ranks hold one more. */
struct tri_range tri_split(int64_t total, int64_t rank, int64_t size);

/* Degrees and this rank's place in each. Experts are spread over all tp * ep ranks of a stage. */
struct tri_place {
    int64_t tp_rank, tp_size; /* tensor: heads, dense and shared inner width, vocabulary rows */
    int64_t pp_rank, pp_size; /* pipeline: layers */
    int64_t ep_rank, ep_size; /* expert groups beyond tensor */
};

/* What one rank holds. Replicated parts (norms, latent projections, router) are not listed. */
struct tri_slice {
    struct tri_place place;
    struct tri_range layers;
    struct tri_range kda_heads, mla_heads;
    struct tri_range dense_inter, shared_inter;
    struct tri_range experts;
    struct tri_range vocab;
    bool embeds, heads; /* first and last pipeline stage */
};

/* TRI_ARG with the reason when a degree does not fit the model (more ranks than heads, ...). */
TRI_MUST_CHECK enum tri_status tri_slice_of(struct tri_slice *out, const struct tri_spec *spec,
                                            struct tri_place place, struct tri_error *err);
void tri_slice_whole(struct tri_slice *out, const struct tri_spec *spec);

#endif
