/*
 * The store that holds every expert: one slab per MoE layer, records back to back. What the
 * streaming store of a machine with less memory will do behind the same door.
 */
#include "experts/experts.h"

#include <stdatomic.h>
#include <string.h>

/* Records start on a cache line. */
enum { RECORD_ALIGN = 64 };

struct slab {
    int64_t layer; /* model layer */
    char *data;    /* [experts] records, `stride_bytes` apart */
    uint64_t bytes, stride_bytes;
    struct tri_expert_extent shape; /* part sizes, the same for all experts of the layer */
};

struct tri_experts {
    const struct tri_checkpoint *ckpt;
    struct tri_budget *budget;
    int64_t first_expert, experts, width, inter;
    int64_t n_slabs;
    struct slab *slabs;
    int64_t slab_of_layer[TRI_SPEC_MAX_LAYERS]; /* -1: no MoE layer of ours */

    /* The round; ids is NULL between rounds. */
    const struct slab *slab;
    const int32_t *ids;
    int64_t wanted, given;
};

static uint64_t record_stride(const struct tri_expert_extent *e)
{
    return (e->record_bytes + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
}

/* Every expert of a layer must have the same part sizes: the slab is indexed by them. */
static enum tri_status slab_shape(struct slab *slab, const struct tri_checkpoint *ckpt,
                                  const struct tri_experts_options *o, struct tri_error *err)
{
    for (int64_t e = o->first_expert; e < o->first_expert + o->experts; e++) {
        struct tri_expert_extent x;
        enum tri_status st = tri_checkpoint_expert(ckpt, slab->layer, e, &x, err);
        if (st)
            return st;
        if (e == o->first_expert)
            slab->shape = x;
        for (int i = 0; i < 6; i++)
            if (x.part[i].bytes != slab->shape.part[i].bytes || x.dtype != slab->shape.dtype)
                return tri_fail(err, TRI_FORMAT,
                                "layer %lld: expert %lld is stored in another format than expert "
                                "%lld",
                                (long long)slab->layer, (long long)e, (long long)o->first_expert);
    }
    slab->stride_bytes = record_stride(&slab->shape);
    slab->bytes = slab->stride_bytes * (uint64_t)o->experts;
    return TRI_OK;
}

enum tri_status tri_experts_cost(const struct tri_checkpoint *ckpt, const struct tri_spec *spec,
                                 const struct tri_experts_options *options, uint64_t *bytes,
                                 struct tri_error *err)
{
    uint64_t sum = 0;
    for (int64_t l = options->first_layer; l < options->first_layer + options->layers; l++) {
        struct slab slab = { .layer = l };
        if (spec->layer[l].ffn != TRI_FFN_MOE)
            continue;
        enum tri_status st = slab_shape(&slab, ckpt, options, err);
        if (st)
            return st;
        sum += slab.bytes;
    }
    *bytes = sum;
    return TRI_OK;
}

/* One loading loop over all records; the first error stops it. */
struct loading {
    struct tri_experts *store;
    const struct tri_progress *progress;
    uint64_t total_bytes;
    _Atomic uint64_t done_bytes;
    atomic_int status; /* the first failure, whose thread wrote `err` */
    struct tri_error *err;
};

static enum tri_status read_record(const struct tri_experts *s, const struct slab *slab,
                                   int64_t expert, struct tri_error *err)
{
    struct tri_expert_extent x;
    char *at = slab->data + (uint64_t)(expert - s->first_expert) * slab->stride_bytes;
    enum tri_status st = tri_checkpoint_expert(s->ckpt, slab->layer, expert, &x, err);
    if (st)
        return st;
    if (x.contiguous)
        return tri_checkpoint_read_at(s->ckpt, x.part[0].shard, x.part[0].offset_bytes, at,
                                      x.record_bytes, err);
    for (int i = 0; i < 6 && !st; i++) {
        if (x.part[i].bytes)
            st = tri_checkpoint_read_at(s->ckpt, x.part[i].shard, x.part[i].offset_bytes, at,
                                        x.part[i].bytes, err);
        at += x.part[i].bytes;
    }
    return st;
}

static void load_records(void *arg, int64_t begin, int64_t end, int thread)
{
    struct loading *load = arg;
    struct tri_experts *s = load->store;
    for (int64_t i = begin; i < end && !atomic_load(&load->status); i++) {
        const struct slab *slab = &s->slabs[i / s->experts];
        struct tri_error err = { 0 };
        enum tri_status st = read_record(s, slab, s->first_expert + i % s->experts, &err);
        uint64_t done = atomic_fetch_add(&load->done_bytes, slab->shape.record_bytes);
        /* Only the caller's thread reports, so that ticks never come from two at once. */
        if (!st && thread == 0 && tri_tick(load->progress, "experts", done, load->total_bytes))
            st = tri_fail(&err, TRI_CANCELLED, "loading was stopped");
        int none = TRI_OK;
        if (st && atomic_compare_exchange_strong(&load->status, &none, st) && load->err &&
            load->err->status == TRI_OK)
            *load->err = err;
    }
}

static enum tri_status open_slabs(struct tri_experts *s, const struct tri_spec *spec,
                                  const struct tri_experts_options *o, struct tri_error *err)
{
    for (int64_t l = o->first_layer; l < o->first_layer + o->layers; l++) {
        if (spec->layer[l].ffn != TRI_FFN_MOE)
            continue;
        struct slab *slab = &s->slabs[s->n_slabs];
        slab->layer = l;
        enum tri_status st = slab_shape(slab, s->ckpt, o, err);
        if (st)
            return st;
        void *p = NULL;
        st = tri_budget_alloc(s->budget, TRI_MEM_EXPERTS, slab->bytes, &p, err);
        if (st)
            return st;
        slab->data = p;
        s->slab_of_layer[l] = s->n_slabs++;
    }
    return TRI_OK;
}

enum tri_status tri_experts_open(struct tri_experts **out, const struct tri_checkpoint *ckpt,
                                 const struct tri_spec *spec,
                                 const struct tri_experts_options *options, struct tri_pool *pool,
                                 struct tri_budget *budget, struct tri_error *err)
{
    struct tri_experts *s = tri_calloc(1, sizeof *s);
    struct slab *slabs = tri_calloc((size_t)options->layers, sizeof *slabs);
    if (!s || !slabs) {
        tri_free(s);
        tri_free(slabs);
        return tri_fail(err, TRI_NOMEM, "no memory for the expert store");
    }
    *s = (struct tri_experts){ .ckpt = ckpt,
                               .budget = budget,
                               .slabs = slabs,
                               .first_expert = options->first_expert,
                               .experts = options->experts,
                               .width = tri_spec_expert_width(spec),
                               .inter = spec->moe_inter };
    for (int i = 0; i < TRI_SPEC_MAX_LAYERS; i++)
        s->slab_of_layer[i] = -1;
    enum tri_status st = open_slabs(s, spec, options, err);
    if (!st) {
        struct loading load = { .store = s, .progress = &options->progress, .err = err };
        for (int64_t i = 0; i < s->n_slabs; i++)
            load.total_bytes += slabs[i].shape.record_bytes * (uint64_t)s->experts;
        tri_pool_for(pool, s->n_slabs * s->experts, 4, load_records, &load);
        st = (enum tri_status)load.status;
    }
    if (st)
        tri_experts_close(s);
    else
        *out = s;
    return st;
}

void tri_experts_close(struct tri_experts *store)
{
    if (!store)
        return;
    for (int64_t i = 0; i < store->n_slabs; i++)
        tri_budget_free(store->budget, TRI_MEM_EXPERTS, store->slabs[i].data,
                        store->slabs[i].bytes);
    tri_free(store->slabs);
    tri_free(store);
}

/* Views into one record: parts follow each other as in tri_expert_extent. */
static void view_record(const struct tri_experts *s, const struct slab *slab, const char *record,
                        struct tri_expert_view *v)
{
    const char *part[6];
    for (int i = 0; i < 6; i++) {
        part[i] = record;
        record += slab->shape.part[i].bytes;
    }
    int packed = slab->shape.dtype == TRI_DT_MXFP4;
    struct tri_matrix *m[3] = { &v->w1, &v->w2, &v->w3 };
    for (int i = 0; i < 3; i++)
        *m[i] = (struct tri_matrix){ .dtype = slab->shape.dtype,
                                     .rows = i == 1 ? s->width : s->inter,
                                     .cols = i == 1 ? s->inter : s->width,
                                     .data = part[2 * i],
                                     .scales = packed ? part[2 * i + 1] : NULL };
}

enum tri_status tri_experts_begin(struct tri_experts *store, int64_t layer, const int32_t *ids,
                                  int64_t n, struct tri_error *err)
{
    (void)err; /* everything is resident: a round cannot fail here */
    TRI_ASSERT(!store->ids && layer >= 0 && layer < TRI_SPEC_MAX_LAYERS);
    TRI_ASSERT(store->slab_of_layer[layer] >= 0);
    store->slab = &store->slabs[store->slab_of_layer[layer]];
    store->ids = ids;
    store->wanted = n;
    store->given = 0;
    return TRI_OK;
}

enum tri_status tri_experts_next(struct tri_experts *store, int64_t most, int32_t *which,
                                 struct tri_expert_view *views, int64_t *n, struct tri_error *err)
{
    (void)err;
    int64_t count = 0;
    for (; count < most && store->given < store->wanted; count++, store->given++) {
        int64_t at = store->ids[store->given] - store->first_expert;
        TRI_ASSERT(at >= 0 && at < store->experts);
        view_record(store, store->slab,
                    store->slab->data + (uint64_t)at * store->slab->stride_bytes, &views[count]);
        which[count] = (int32_t)store->given;
    }
    if (count == 0)
        store->ids = NULL;
    *n = count;
    return TRI_OK;
}
