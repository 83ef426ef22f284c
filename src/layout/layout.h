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

/*
 * A whole ship as the planner sees it: degrees of parallelism on cards (grid.c). Ranks of one
 * replica = pp * dp * tp. The experts of a layer lie over all tp * dp ranks of its stage: as whole
 * experts (`ep`), else as slices of every expert's inner width. Attention, shared experts, dense
 * layers and vocabulary lie over tp only and repeat dp times. `cp` divides the cached latents of a
 * sequence among the tp ranks while decoding and adds no ranks.
 */
enum { TRI_LAYOUT_MAX_STAGES = 64, TRI_LAYOUT_MAX_DEGREE = 4096 };

struct tri_layout {
    int32_t replicas, dp, tp, pp, cp;
    bool ep;
    int32_t stage_layers[TRI_LAYOUT_MAX_STAGES]; /* layers of each stage, first to last */
};

/* One card: everything on it. */
void tri_layout_one(struct tri_layout *out, int32_t layers);

/*
 * Text like "tp8", "tp8pp4", "tp4 x dp4 x ep16", "dep16", "tep16", "tp8dcp8", "tp2r4" (r: replicas
 * that share nothing). Degrees not named are 1; stages are filled with layers_over_stages. TRI_ARG
 * with the reason when it contradicts itself: ep must be tp * dp, cp must divide tp.
 */
TRI_MUST_CHECK enum tri_status tri_layout_parse(struct tri_layout *out, const char *text,
                                                int32_t layers, struct tri_error *err);

/* Spreads `layers` over out->pp stages, the first ones taking one more. */
void tri_layout_stages(struct tri_layout *out, int32_t layers);

/* "TP8", "TP8 x PP4", "TP4 x DP4 (EP16)", "TP8 x DCP8"; replicas first: "2 x (TP2)". */
void tri_layout_name(const struct tri_layout *layout, char *out, size_t out_bytes);

static inline int32_t tri_layout_expert_ranks(const struct tri_layout *l)
{
    return l->tp * l->dp;
}

static inline int64_t tri_layout_cards(const struct tri_layout *l)
{
    return (int64_t)l->replicas * l->pp * l->dp * l->tp;
}

#endif
