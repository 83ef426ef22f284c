/* Slices of a model for one rank. See layout.h. */
#include "layout/layout.h"

struct tri_range tri_split(int64_t total, int64_t rank, int64_t size)
{
    int64_t each = total / size, more = total % size;
    struct tri_range r;
    r.first = rank * each + (rank < more ? rank : more);
    r.count = each + (rank < more ? 1 : 0);
    return r;
}

static enum tri_status check_degree(const char *what, int64_t rank, int64_t size, int64_t most,
                                    const char *of, struct tri_error *err)
{
    if (size < 1 || rank < 0 || rank >= size)
        return tri_fail(err, TRI_ARG, "%s rank %lld of %lld", what, (long long)rank,
                        (long long)size);
    if (size > most)
        return tri_fail(err, TRI_ARG, "%s of %lld is more than the model's %lld %s", what,
                        (long long)size, (long long)most, of);
    return TRI_OK;
}

/* The smallest count of heads among the attention kinds the model has. */
static int64_t fewest_heads(const struct tri_spec *spec)
{
    int64_t n = INT64_MAX;
    if (spec->kda_layers && spec->kda_heads < n)
        n = spec->kda_heads;
    if (spec->mla_layers && spec->heads < n)
        n = spec->heads;
    return n;
}

enum tri_status tri_slice_of(struct tri_slice *out, const struct tri_spec *spec,
                             struct tri_place at, struct tri_error *err)
{
    enum tri_status st = check_degree("tensor parallelism", at.tp_rank, at.tp_size,
                                      fewest_heads(spec), "heads", err);
    if (!st)
        st = check_degree("pipeline parallelism", at.pp_rank, at.pp_size, spec->layers, "layers",
                          err);
    if (!st)
        st = check_degree("expert parallelism", at.ep_rank, at.ep_size,
                          spec->experts ? spec->experts / at.tp_size : 1, "experts per tensor rank",
                          err);
    if (st)
        return st;
    struct tri_slice s = { .place = at };
    s.layers = tri_split(spec->layers, at.pp_rank, at.pp_size);
    s.kda_heads = tri_split(spec->kda_heads, at.tp_rank, at.tp_size);
    s.mla_heads = tri_split(spec->heads, at.tp_rank, at.tp_size);
    s.dense_inter = tri_split(spec->inter, at.tp_rank, at.tp_size);
    s.shared_inter = tri_split(spec->moe_inter * spec->shared_experts, at.tp_rank, at.tp_size);
    s.experts =
        tri_split(spec->experts, at.ep_rank * at.tp_size + at.tp_rank, at.tp_size * at.ep_size);
    s.vocab = tri_split(spec->vocab, at.tp_rank, at.tp_size);
    s.embeds = at.pp_rank == 0;
    s.heads = at.pp_rank == at.pp_size - 1;
    *out = s;
    return TRI_OK;
}

void tri_slice_whole(struct tri_slice *out, const struct tri_spec *spec)
{
    struct tri_place alone = { .tp_size = 1, .pp_size = 1, .ep_size = 1 };
    enum tri_status st = tri_slice_of(out, spec, alone, NULL);
    TRI_ASSERT(st == TRI_OK);
}
