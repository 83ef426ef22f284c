/* A round: residents first, then misses as the drive brings them. See experts.h. */
#include "experts/experts_priv.h"

static int64_t record_of(const struct tri_experts *s, int64_t index)
{
    return s->round.row * s->experts + s->round.ids[index] - s->first_expert;
}

/* A free slot, or one whose expert makes room; -1 when all are needed right now. */
static int64_t take_slot(struct tri_experts *s)
{
    if (s->n_free > 0)
        return s->free_slot[--s->n_free];
    int64_t slot = tri__policy_victim(s);
    if (slot >= 0) {
        s->record[s->slot[slot].record].slot = -1;
        s->stats.evictions++;
        s->stats.wasted_prefetches += s->slot[slot].ahead;
    }
    return slot;
}

/* Among the misses not yet asked for, the first whose drive has room comes to the front. */
static bool find_miss(struct tri_experts *s)
{
    struct tri__round *r = &s->round;
    for (int64_t i = r->next_missing; i < r->n_missing; i++) {
        if (!tri__experts_can_read(s, record_of(s, r->missing[i])))
            continue;
        int32_t index = r->missing[i];
        r->missing[i] = r->missing[r->next_missing];
        r->missing[r->next_missing] = index;
        return true;
    }
    return false;
}

/* Drives that would idle read what the next round probably wants. Room is made for it only where
 * there is a free slot, or one that no layer needs sooner. */
static enum tri_status read_ahead(struct tri_experts *s, struct tri_error *err)
{
    struct tri__expected *e = &s->expected;
    while (e->next < e->n) {
        int64_t record = e->row * s->experts + e->id[e->next] - s->first_expert;
        if (s->record[record].slot < 0) {
            if (!tri__experts_can_read(s, record))
                return TRI_OK;
            int64_t slot = take_slot(s);
            if (slot < 0)
                return TRI_OK;
            enum tri_status st = tri__experts_start_read(s, record, slot, err);
            if (st)
                return st;
            s->slot[slot].ahead = true;
            s->stats.prefetches++;
        }
        e->next++;
    }
    return TRI_OK;
}

/* Keeps the drives busy: starts reads of misses while there are slots and room in the queue. */
static enum tri_status read_misses(struct tri_experts *s, struct tri_error *err)
{
    struct tri__round *r = &s->round;
    while (r->next_missing < r->n_missing && find_miss(s)) {
        int64_t slot = take_slot(s);
        if (slot < 0)
            return TRI_OK;
        int64_t record = record_of(s, r->missing[r->next_missing]);
        enum tri_status st = tri__experts_start_read(s, record, slot, err);
        if (st)
            return st;
        s->slot[slot].pinned = true;
        r->next_missing++;
    }
    return r->next_missing == r->n_missing ? read_ahead(s, err) : TRI_OK;
}

void tri_experts_expect(struct tri_experts *store, int64_t layer, const int32_t *ids, int64_t n)
{
    struct tri__expected *e = &store->expected;
    TRI_ASSERT(layer >= 0 && layer < TRI_SPEC_MAX_LAYERS && store->row_of_layer[layer] >= 0);
    *e = (struct tri__expected){ .row = store->row_of_layer[layer] };
    for (int64_t i = 0; i < n && e->n < TRI_EXPERTS_MAX_AHEAD && !store->all_resident; i++)
        e->id[e->n++] = ids[i];
}

bool tri_experts_resident(const struct tri_experts *store, int64_t layer, int32_t expert)
{
    int64_t row = store->row_of_layer[layer];
    int32_t slot = store->record[row * store->experts + expert - store->first_expert].slot;
    return slot >= 0 && store->slot[slot].state == TRI__READY;
}

static void release_leases(struct tri_experts *s)
{
    for (int64_t i = 0; i < s->round.n_leased; i++)
        s->slot[s->round.leased[i]].pinned = false;
    s->round.n_leased = 0;
}

/* Ends the round on any path. */
static void end_round(struct tri_experts *s)
{
    struct tri__round *r = &s->round;
    release_leases(s);
    for (int64_t i = 0; i < r->n_resident; i++) {
        int32_t slot = s->record[record_of(s, r->resident[i])].slot;
        if (slot >= 0)
            s->slot[slot].pinned = false;
    }
    for (int64_t i = 0; i < r->n; i++)
        r->index_of[r->ids[i] - s->first_expert] = -1;
    r->ids = NULL;
    r->n_resident = r->n_missing = r->next_missing = 0;
}

/* After an error: what is still being read belongs to nobody, so that its own failure, which may
 * come in a later round, is not that round's. */
static void fail_round(struct tri_experts *s)
{
    for (int64_t i = 0; i < s->n_slots; i++)
        if (s->slot[i].state == TRI__READING)
            s->record[s->slot[i].record].slot = -1;
    end_round(s);
}

static void sort_out(struct tri_experts *s, int64_t index)
{
    struct tri__round *r = &s->round;
    struct tri__record *record = &s->record[record_of(s, index)];
    tri__policy_touch(s, record);
    if (record->slot < 0) {
        r->missing[r->n_missing++] = (int32_t)index;
        s->stats.misses++;
        return;
    }
    struct tri__slot *slot = &s->slot[record->slot];
    slot->pinned = true;
    if (slot->state == TRI__READY)
        r->resident[r->n_resident++] = (int32_t)index;
    if (slot->ahead)
        s->stats.prefetch_hits++;
    else if (slot->state == TRI__READY)
        s->stats.reuse_hits++;
    else
        s->stats.misses++; /* on its way since an earlier, failed round */
    slot->ahead = false;
}

enum tri_status tri_experts_begin(struct tri_experts *store, int64_t layer, const int32_t *ids,
                                  int64_t n, struct tri_error *err)
{
    struct tri__round *r = &store->round;
    TRI_ASSERT(!r->ids && layer >= 0 && layer < TRI_SPEC_MAX_LAYERS);
    int64_t row = store->row_of_layer[layer];
    TRI_ASSERT(row >= 0 && n <= store->experts);
    if (row <= r->row) {
        store->step++;
        store->stats.steps++;
    }
    if (row == store->expected.row)
        store->expected.n = store->expected.next = 0; /* now it is known */
    r->row = row;
    r->layer = layer;
    r->ids = ids;
    r->n = n;
    r->given = 0;
    store->round_no++;
    store->stats.rounds++;
    store->stats.wanted += (uint64_t)n;
    for (int64_t i = 0; i < n; i++) {
        int64_t expert = ids[i] - store->first_expert;
        TRI_ASSERT(expert >= 0 && expert < store->experts && r->index_of[expert] < 0);
        r->index_of[expert] = (int32_t)i;
    }
    tri__policy_learn(store, row, ids, n);
    for (int64_t i = 0; i < n; i++)
        sort_out(store, i);
    enum tri_status st = read_misses(store, err);
    if (st)
        fail_round(store);
    return st;
}

static void view_slot(const struct tri_experts *s, int32_t slot, struct tri_expert_view *v)
{
    const char *base = s->slots_base + (uint64_t)slot * s->slot_bytes;
    const uint64_t *at = s->slot[slot].part_at;
    struct tri_matrix *m[3] = { &v->w1, &v->w2, &v->w3 };
    for (int i = 0; i < 3; i++)
        *m[i] =
            (struct tri_matrix){ .dtype = s->dtype,
                                 .rows = i == 1 ? s->width : s->inter,
                                 .cols = i == 1 ? s->inter : s->width,
                                 .data = base + at[2 * i],
                                 .scales = s->dtype == TRI_DT_MXFP4 ? base + at[2 * i + 1] : NULL,
                                 .tiled = s->tiled };
}

static int64_t hand_out(struct tri_experts *s, int64_t most, int32_t *which,
                        struct tri_expert_view *views)
{
    struct tri__round *r = &s->round;
    int64_t n = 0;
    while (n < most && r->n_resident > 0) {
        int32_t index = r->resident[--r->n_resident];
        int32_t slot = s->record[record_of(s, index)].slot;
        view_slot(s, slot, &views[n]);
        which[n++] = index;
        r->leased[r->n_leased++] = slot;
    }
    r->given += n;
    return n;
}

enum tri_status tri_experts_next(struct tri_experts *store, int64_t most, int32_t *which,
                                 struct tri_expert_view *views, int64_t *n, struct tri_error *err)
{
    struct tri__round *r = &store->round;
    TRI_ASSERT(r->ids && most > 0);
    release_leases(store);
    *n = 0;
    if (r->given == r->n) {
        end_round(store);
        return TRI_OK;
    }
    enum tri_status st = TRI_OK;
    if (!store->all_resident)
        st = tri__experts_collect(store, 0, err); /* arrivals free slots for the next misses */
    while (!st) {
        st = read_misses(store, err);
        if (st || r->n_resident > 0)
            break;
        TRI_ASSERT(tri_aio_in_flight(store->aio) > 0);
        st = tri__experts_collect(store, store->timeout_ms, err);
    }
    if (st) {
        fail_round(store);
        return st;
    }
    *n = hand_out(store, most, which, views);
    return TRI_OK;
}

uint64_t tri_experts_wait_ns(const struct tri_experts *store)
{
    return store->stats.wait_ns;
}

void tri_experts_read_stats(const struct tri_experts *store, struct tri_experts_stats *out)
{
    *out = store->stats;
    out->slots = (uint64_t)store->n_slots;
    out->slot_bytes = store->slot_bytes;
    out->record_bytes = store->record_bytes;
    out->records = (uint64_t)(store->rows * store->experts);
    out->engine = tri_aio_name(store->aio);
    out->direct = store->direct;
    out->all_resident = store->all_resident;
}
