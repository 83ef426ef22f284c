/* Opening the store: what is on disk, how many slots fit, and reading everything if all fits. */
#include "experts/experts.h"

#include <string.h>
#include "experts/experts_priv.h"

/* Below this a read is too small to be worth bypassing the page cache. */
static const uint64_t DIRECT_FROM_BYTES = 256 << 10;

/* Every record must have the same part sizes: slots are of one size. */
static enum tri_status note_record(struct tri_experts *s, int64_t row, int64_t expert, bool first,
                                   struct tri_error *err)
{
    struct tri_expert_extent x;
    enum tri_status st =
        tri_checkpoint_expert(s->ckpt, s->layer_of_row[row], s->first_expert + expert, &x, err);
    if (st)
        return st;
    for (int i = 0; i < TRI__PARTS; i++) {
        if (first)
            s->part_bytes[i] = x.part[i].bytes;
        if (x.part[i].bytes != s->part_bytes[i] || (!first && x.dtype != s->dtype))
            return tri_fail(err, TRI_UNSUPPORTED,
                            "layer %lld, expert %lld is stored in another format than the first "
                            "expert",
                            (long long)s->layer_of_row[row], (long long)(s->first_expert + expert));
    }
    s->dtype = x.dtype;
    s->record_bytes = x.record_bytes;
    s->any_scattered |= !x.contiguous;
    s->record[row * s->experts + expert] = (struct tri__record){
        .offset_bytes = x.part[0].offset_bytes,
        .shard = x.contiguous ? x.part[0].shard : -1,
        .slot = -1,
    };
    for (int i = 0; i < TRI__PARTS; i++)
        if (x.part[i].bytes && x.part[i].shard >= s->shards)
            s->shards = x.part[i].shard + 1;
    return TRI_OK;
}

static enum tri_status note_records(struct tri_experts *s, const struct tri_spec *spec,
                                    const struct tri_experts_options *o, struct tri_error *err)
{
    for (int64_t l = 0; l < TRI_SPEC_MAX_LAYERS; l++)
        s->row_of_layer[l] = -1;
    s->layer_of_row = tri_calloc((size_t)o->layers, sizeof *s->layer_of_row);
    if (!s->layer_of_row)
        return tri_fail(err, TRI_NOMEM, "no memory for the expert store");
    for (int64_t l = o->first_layer; l < o->first_layer + o->layers; l++) {
        if (spec->layer[l].ffn != TRI_FFN_MOE)
            continue;
        s->layer_of_row[s->rows] = l;
        s->row_of_layer[l] = s->rows++;
    }
    s->record = tri_calloc((size_t)(s->rows * s->experts), sizeof *s->record);
    if (!s->record)
        return tri_fail(err, TRI_NOMEM, "no memory for the table of experts");
    enum tri_status st = TRI_OK;
    for (int64_t row = 0; row < s->rows && !st; row++)
        for (int64_t e = 0; e < s->experts && !st; e++)
            st = note_record(s, row, e, row == 0 && e == 0, err);
    s->fd = st ? NULL : tri_malloc((size_t)s->shards * sizeof *s->fd);
    if (!st && !s->fd)
        return tri_fail(err, TRI_NOMEM, "no memory for the expert store");
    for (int32_t i = 0; i < s->shards && !st; i++)
        s->fd[i] = -1;
    return st;
}

/* Bytes of a slot: direct reads begin and end at blocks, once per piece. */
static uint64_t slot_size(const struct tri_experts *s)
{
    if (!s->direct)
        return (s->record_bytes + 63) / 64 * 64;
    uint64_t pieces = s->any_scattered ? TRI__PARTS : 1;
    return (s->record_bytes + pieces * 2 * TRI__BLOCK) / TRI__BLOCK * TRI__BLOCK;
}

static enum tri_status size_slots(struct tri_experts *s, const struct tri_experts_options *o,
                                  struct tri_error *err)
{
    struct tri_budget_report now;
    tri_budget_read(s->budget, &now);
    uint64_t room = now.ceiling_bytes - now.used_bytes, records = (uint64_t)(s->rows * s->experts);
    if (o->most_bytes && o->most_bytes < room)
        room = o->most_bytes;
    s->direct = false;
    s->slot_bytes = slot_size(s);
    s->all_resident = records <= room / s->slot_bytes;
    if (o->io == TRI_EXPERTS_IO_DIRECT || (o->io == TRI_EXPERTS_IO_AUTO && !s->all_resident &&
                                           s->record_bytes >= DIRECT_FROM_BYTES)) {
        s->direct = true;
        s->slot_bytes = slot_size(s);
        s->all_resident = records <= room / s->slot_bytes;
    }
    uint64_t slots = s->all_resident ? records : room / s->slot_bytes;
    if (slots < TRI_EXPERTS_MIN_SLOTS)
        return tri_fail(err, TRI_BUDGET,
                        "%.1f KiB are left for experts, but one takes %.1f KiB and at least %d "
                        "must fit; give more memory (--ram, --expert-ram) or a smaller --trunk",
                        (double)room / 1024, (double)s->slot_bytes / 1024, TRI_EXPERTS_MIN_SLOTS);
    s->n_slots = (int64_t)slots;
    return TRI_OK;
}

static enum tri_status open_slots(struct tri_experts *s, struct tri_error *err)
{
    struct tri__round *r = &s->round;
    void *p = NULL;
    s->slot = tri_calloc((size_t)s->n_slots, sizeof *s->slot);
    s->free_slot = tri_calloc((size_t)s->n_slots, sizeof *s->free_slot);
    r->resident = tri_calloc((size_t)s->experts, sizeof *r->resident);
    r->missing = tri_calloc((size_t)s->experts, sizeof *r->missing);
    r->leased = tri_calloc((size_t)s->experts, sizeof *r->leased);
    r->index_of = tri_calloc((size_t)s->experts, sizeof *r->index_of);
    if (!s->slot || !s->free_slot || !r->resident || !r->missing || !r->leased || !r->index_of)
        return tri_fail(err, TRI_NOMEM, "no memory for %lld expert slots", (long long)s->n_slots);
    for (int64_t e = 0; e < s->experts; e++)
        r->index_of[e] = -1;
    for (int64_t i = s->n_slots; i > 0; i--)
        s->free_slot[s->n_free++] = (int32_t)(i - 1);
    s->slots_bytes = (uint64_t)s->n_slots * s->slot_bytes;
    enum tri_status st = tri_budget_alloc(s->budget, TRI_MEM_EXPERTS, s->slots_bytes, &p, err);
    s->slots_base = p;
    /* Direct reads need pages: only the budget's large blocks begin on one. */
    if (!st && (uintptr_t)p % TRI__BLOCK)
        s->direct = false;
    return st;
}

static void tile_matrix(const struct tri_matrix *w, void *room)
{
    char *data = (char *)(uintptr_t)w->data, *scales = (char *)(uintptr_t)w->scales; /* of a slot */
    size_t row = tri_row_data_bytes(w->dtype, w->cols);
    size_t scale = tri_row_scale_bytes(w->dtype, w->cols);
    for (int64_t r = 0; r < w->rows; r += TRI_TILE_ROWS)
        tri_tile_rows(w->dtype, data + (size_t)r * row, scales + (size_t)r * scale, w->cols, room);
}

/* In the slots, while the drives bring the next ones. */
static void tile_views(const struct tri_expert_view *views, int64_t n, void *room)
{
    for (int64_t i = 0; i < n; i++) {
        tile_matrix(&views[i].w1, room);
        tile_matrix(&views[i].w2, room);
        tile_matrix(&views[i].w3, room);
    }
}

static bool can_tile(const struct tri_experts *s)
{
    return s->all_resident && s->dtype == TRI_DT_MXFP4 &&
           tri_tile_fits(s->dtype, s->inter, s->width) &&
           tri_tile_fits(s->dtype, s->width, s->inter);
}

/* All fit: read layer after layer through ordinary rounds. */
static enum tri_status preload(struct tri_experts *s, const struct tri_progress *progress,
                               struct tri_error *err)
{
    enum { BATCH = 64 };
    struct tri_expert_view views[BATCH];
    int32_t which[BATCH];
    uint64_t total = (uint64_t)(s->rows * s->experts) * s->record_bytes, done = 0;
    int64_t widest = s->width > s->inter ? s->width : s->inter;
    int32_t *ids = tri_malloc((size_t)s->experts * sizeof *ids);
    void *room = tri_malloc(tri_tile_room_bytes(s->dtype, widest));
    enum tri_status st =
        ids && room ? TRI_OK : tri_fail(err, TRI_NOMEM, "no memory to load experts");
    for (int64_t e = 0; e < s->experts && !st; e++)
        ids[e] = (int32_t)(s->first_expert + e);
    for (int64_t row = 0; row < s->rows && !st; row++) {
        int64_t n = 1;
        st = tri_experts_begin(s, s->layer_of_row[row], ids, s->experts, err);
        while (!st && n > 0) {
            st = tri_experts_next(s, BATCH, which, views, &n, err);
            done += (uint64_t)n * s->record_bytes;
            if (!st && s->tiled)
                tile_views(views, n, room);
            if (!st && n > 0 && tri_tick(progress, "experts", done, total)) {
                st = tri_fail(err, TRI_CANCELLED, "loading was stopped");
                s->round.ids = NULL; /* the store is closed next */
            }
        }
    }
    tri_free(ids);
    tri_free(room);
    for (int64_t i = 0; i < s->rows * s->experts; i++)
        s->record[i].heat = 0;
    s->step = 0;
    struct tri_experts_stats fresh = { .drives = s->stats.drives };
    for (int i = 0; i < s->drives; i++)
        fresh.drive[i].file = s->stats.drive[i].file;
    s->stats = fresh;
    return st;
}

static enum tri_status open_parts(struct tri_experts *s, const struct tri_spec *spec,
                                  const struct tri_experts_options *o, struct tri_error *err)
{
    enum tri_status st = note_records(s, spec, o, err);
    if (!st)
        st = tri__experts_find_drives(s, err);
    if (!st)
        st = size_slots(s, o, err);
    s->tiled = !st && o->tile && can_tile(s);
    if (!st)
        st = open_slots(s, err);
    s->depth = o->depth ? o->depth : TRI_EXPERTS_DEPTH;
    int least = s->any_scattered ? TRI__PARTS : 1; /* one record's reads must fit in the queue */
    int depth = s->depth * (s->drives ? s->drives : 1);
    depth = depth < least ? least : depth > TRI_AIO_MAX_DEPTH ? TRI_AIO_MAX_DEPTH : depth;
    if (!st && !s->aio)
        st = tri_aio_open(&s->aio, o->engine, depth, err);
    if (st)
        return st;
    TRI_ASSERT(tri_aio_depth(s->aio) >= least);
    if (!s->all_resident)
        tri_aio_register(s->aio, s->slots_base, s->slots_bytes, s->slot_bytes);
    tri__policy_init(s);
    if (s->all_resident)
        return preload(s, &o->progress, err);
    if (s->policy == TRI_EXPERTS_CYCLE)
        tri__keep_open(s, o->keep_folder, &o->notes);
    return TRI_OK;
}

enum tri_status tri_experts_open(struct tri_experts **out, const struct tri_checkpoint *ckpt,
                                 const struct tri_spec *spec,
                                 const struct tri_experts_options *options,
                                 struct tri_budget *budget, struct tri_error *err)
{
    struct tri_experts *s = tri_calloc(1, sizeof *s);
    if (!s) {
        (void)tri_aio_close(options->aio);
        return tri_fail(err, TRI_NOMEM, "no memory for the expert store");
    }
    *s = (struct tri_experts){ .ckpt = ckpt,
                               .budget = budget,
                               .aio = options->aio,
                               .first_expert = options->first_expert,
                               .experts = options->experts,
                               .width = tri_spec_expert_width(spec),
                               .inter = spec->moe_inter,
                               .policy = options->policy,
                               .keep_lock = -1,
                               .timeout_ms = options->timeout_ms ? options->timeout_ms
                                                                 : TRI_EXPERTS_TIMEOUT_MS,
                               .round.row = INT64_MAX };
    enum tri_status st = open_parts(s, spec, options, err);
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
    tri__keep_close(store);
    /* Before the slots: a drive may still be writing to them, and keeps them if it never ends. */
    if (tri_aio_close(store->aio))
        tri_budget_free(store->budget, TRI_MEM_EXPERTS, store->slots_base, store->slots_bytes);
    else
        tri_budget_uncount(store->budget, TRI_MEM_EXPERTS, store->slots_bytes);
    tri__experts_close_files(store);
    tri_free(store->fd);
    tri_free(store->on);
    tri_free(store->layer_of_row);
    tri_free(store->record);
    tri_free(store->slot);
    tri_free(store->free_slot);
    tri_free(store->round.resident);
    tri_free(store->round.missing);
    tri_free(store->round.leased);
    tri_free(store->round.index_of);
    tri_free(store);
}
