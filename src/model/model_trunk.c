/*
 * Where the trunk lives: the best precision that fits in RAM, or, when not even int4 does, as
 * stored with as many units resident as fit and the others streamed through windows, step after
 * step.
 */
#include "model/model_trunk.h"

#include <stdio.h>
#include <string.h>

static const char *const format_names[] = { "auto", "as on disk", "f32",     "bf16",
                                            "int8", "int4",       "streamed" };

/* Bytes of all units in the format that was placed last. The embedding table counts: only a
 * streamed trunk leaves it on disk. */
static uint64_t placed_bytes(const struct tri__trunk *t)
{
    uint64_t sum = 0;
    for (int64_t u = 0; u < t->n_units; u++)
        sum += t->unit[u].bytes;
    return sum;
}

/* What the budget still has for matrices when sequences and the least of experts are kept free. */
static uint64_t room_for_trunk(const struct tri__trunk *t, uint64_t keep_bytes)
{
    struct tri_budget_report now;
    tri_budget_read(t->m->budget, &now);
    uint64_t left = now.ceiling_bytes - now.used_bytes;
    return left > keep_bytes ? left - keep_bytes : 0;
}

static bool try_format(struct tri__trunk *t, enum tri_trunk format, uint64_t room)
{
    t->format = format;
    tri__trunk_place(t);
    return placed_bytes(t) <= room;
}

/* A unit that never streams does not count: the embedding table is read row by row instead. */
static int64_t streamable_units(const struct tri__trunk *t)
{
    return t->n_units - 1;
}

/*
 * Streamed bytes of one step if windows have `window` bytes: larger units must be resident, and
 * what room is left holds units in order. UINT64_MAX when that does not fit.
 */
static uint64_t streamed_with(const struct tri__trunk *t, uint64_t window, int windows,
                              uint64_t room, bool *resident)
{
    uint64_t used = window * (uint64_t)windows, streamed = 0;
    for (int64_t u = 0; u < streamable_units(t); u++) {
        resident[u] = t->unit[u].bytes > window;
        used += resident[u] ? t->unit[u].bytes : 0;
    }
    if (used > room)
        return UINT64_MAX;
    for (int64_t u = 0; u < streamable_units(t); u++) {
        if (!resident[u] && used + t->unit[u].bytes <= room) {
            resident[u] = true;
            used += t->unit[u].bytes;
        }
        streamed += resident[u] ? 0 : t->unit[u].disk_bytes;
    }
    return streamed;
}

/* Chooses the windows that leave the least to stream; two, so that reading and computing overlap,
 * or one. */
static enum tri_status plan_stream(struct tri__trunk *t, uint64_t room, bool force, bool *resident,
                                   struct tri_error *err)
{
    uint64_t best = UINT64_MAX, smallest = UINT64_MAX;
    for (int windows = 2; windows >= 1 && best == UINT64_MAX; windows--) {
        for (int64_t u = 0; u < streamable_units(t); u++) {
            uint64_t window = t->unit[u].bytes;
            uint64_t streamed =
                streamed_with(t, window, windows, force ? window * 2 : room, resident);
            smallest = window < smallest ? window : smallest;
            if (streamed < best) {
                best = streamed;
                t->window_bytes = window;
                t->windows = windows;
            }
        }
    }
    if (best == UINT64_MAX)
        return tri_fail(err, TRI_BUDGET,
                        "not even one layer of the trunk fits: the budget has %.1f MiB left for "
                        "it, the smallest layer takes %.1f MiB; give more memory (--ram), a "
                        "smaller --context or --chunk",
                        (double)room / 1048576, (double)smallest / 1048576);
    t->streamed_bytes =
        streamed_with(t, t->window_bytes, t->windows, force ? t->window_bytes * 2 : room, resident);
    return TRI_OK;
}

static enum tri_status take_block(struct tri__trunk *t, uint64_t bytes, char **out,
                                  struct tri_error *err)
{
    void *p = NULL;
    enum tri_status st = tri_budget_alloc(t->m->budget, TRI_MEM_TRUNK, bytes, &p, err);
    *out = p;
    return st;
}

static enum tri_status take_memory(struct tri__trunk *t, const bool *resident,
                                   struct tri_error *err)
{
    enum tri_status st = TRI_OK;
    for (int64_t u = 0; u < t->n_units && !st; u++)
        if (!resident || (u < streamable_units(t) && resident[u]))
            st = take_block(t, t->unit[u].bytes, &t->unit[u].block, err);
    for (int i = 0; i < t->windows && !st; i++) {
        t->window[i].unit = -1;
        st = take_block(t, t->window_bytes, &t->window[i].memory, err);
    }
    return st;
}

/* As stored, or as packed, with as many units resident as fit. */
static enum tri_status settle_streamed(struct tri__trunk *t, const struct tri_model_options *o,
                                       uint64_t room, struct tri_error *err)
{
    bool *resident = tri_calloc((size_t)t->n_units, sizeof *resident);
    if (!resident)
        return tri_fail(err, TRI_NOMEM, "no memory for the trunk");
    enum tri_status st = plan_stream(t, room, o->trunk == TRI_TRUNK_STREAM, resident, err);
    if (!st)
        st = take_memory(t, resident, err);
    if (!st)
        tri_note(&o->notes, "the trunk does not fit: %.1f GiB of it are read from disk every step",
                 (double)t->streamed_bytes / 1073741824);
    tri_free(resident);
    return st;
}

/* Where it fits and is large enough to be read past the page cache: places that need no copy. */
static void try_in_place(struct tri__trunk *t, uint64_t room)
{
    if (t->packed || t->format != TRI_TRUNK_DISK || placed_bytes(t) < TRI__LARGE_BYTES)
        return;
    t->in_place = true;
    tri__trunk_place(t);
    if (placed_bytes(t) <= room)
        return;
    t->in_place = false;
    tri__trunk_place(t);
}

/* A format that was asked for: resident, or streamed if a pack makes that mere reading. */
static enum tri_status settle_asked(struct tri__trunk *t, const char *folder,
                                    const struct tri_model_options *o, uint64_t room,
                                    struct tri_error *err)
{
    bool fits = try_format(t, o->trunk, room);
    t->packed = tri__pack_find(&t->pack, t, folder, &o->notes);
    if (fits) {
        try_in_place(t, room);
        return take_memory(t, NULL, err);
    }
    if (t->packed)
        return settle_streamed(t, o, room, err);
    return tri_fail(err, TRI_BUDGET,
                    "the trunk takes %.1f MiB as %s, the budget has %.1f MiB for it; give more "
                    "memory (--ram), a smaller --trunk, or leave --trunk out to stream what does "
                    "not fit",
                    (double)placed_bytes(t) / 1048576, format_names[o->trunk],
                    (double)room / 1048576);
}

/* Decides the format and residency, and takes the memory. */
static enum tri_status settle(struct tri__trunk *t, const char *folder,
                              const struct tri_model_options *o, uint64_t keep_bytes,
                              struct tri_error *err)
{
    static const enum tri_trunk ladder[] = { TRI_TRUNK_DISK, TRI_TRUNK_INT8, TRI_TRUNK_INT4 };
    uint64_t room = room_for_trunk(t, keep_bytes);
    if (o->trunk != TRI_TRUNK_AUTO && o->trunk != TRI_TRUNK_STREAM)
        return settle_asked(t, folder, o, room, err);
    for (size_t i = 0; i < 3 && o->trunk == TRI_TRUNK_AUTO; i++) {
        if (!try_format(t, ladder[i], room))
            continue;
        if (i > 0)
            tri_note(&o->notes, "the trunk is kept as %s (%.1f GiB): as stored it does not fit",
                     format_names[ladder[i]], (double)placed_bytes(t) / 1073741824);
        t->packed = tri__pack_find(&t->pack, t, folder, &o->notes);
        try_in_place(t, room);
        return take_memory(t, NULL, err);
    }
    t->format = TRI_TRUNK_DISK;
    tri__trunk_place(t);
    t->packed = tri__pack_find(&t->pack, t, folder, &o->notes);
    if (!t->packed) {
        t->in_place = true;
        tri__trunk_place(t);
        tri_checkpoint_read_as(t->m->ckpt, TRI_READ_DIRECT);
    }
    return settle_streamed(t, o, room, err);
}

/* The list of jobs; no memory for matrices yet. */
static enum tri_status open_list(struct tri_model *m, struct tri_error *err)
{
    struct tri__trunk *t = tri_calloc(1, sizeof *t);
    if (!t)
        return tri_fail(err, TRI_NOMEM, "no memory for weights");
    m->trunk = t;
    t->m = m;
    t->err = err;
    t->n_units = m->spec.layers + 2;
    t->unit = tri_calloc((size_t)t->n_units, sizeof *t->unit);
    if (!t->unit)
        return tri_fail(err, TRI_NOMEM, "no memory for weights");
    tri__trunk_list(t);
    return t->status;
}

enum tri_status tri__trunk_open(struct tri_model *m, const char *folder,
                                const struct tri_model_options *options, uint64_t keep_bytes,
                                struct tri_error *err)
{
    enum tri_status st = open_list(m, err);
    if (!st)
        st = settle(m->trunk, folder, options, keep_bytes, err);
    if (!st)
        st = tri__trunk_load(m->trunk, &options->progress, err);
    if (st || !m->trunk->windows)
        return st;
    m->trunk->timeout_ms = options->io_timeout_ms ? options->io_timeout_ms : TRI_EXPERTS_TIMEOUT_MS;
    st = tri__rows_open(&m->trunk->rows, m, options->engine, m->trunk->timeout_ms, err);
    if (!st)
        st = tri__stream_open(m->trunk, err);
    return st;
}

enum tri_status tri__trunk_pack(struct tri_model *m, const char *folder,
                                const struct tri_model_options *options,
                                struct tri_pack_report *report, struct tri_error *err)
{
    if (options->trunk == TRI_TRUNK_AUTO || options->trunk == TRI_TRUNK_STREAM)
        return tri_fail(err, TRI_ARG, "which format? --trunk int8, int4, bf16, f32 or disk");
    enum tri_status st = open_list(m, err);
    if (st)
        return st;
    m->trunk->format = options->trunk;
    tri__trunk_place(m->trunk);
    return tri__pack_write(m->trunk, folder, &options->progress, report, err);
}

enum tri_status tri__trunk_check_packs(struct tri_model *m, const char *folder,
                                       const struct tri_progress *progress,
                                       struct tri_packs_report *report, struct tri_error *err)
{
    enum tri_status st = open_list(m, err);
    for (int f = TRI_TRUNK_DISK; f < TRI_TRUNK_STREAM && !st; f++) {
        if (!tri__pack_exists(folder, (enum tri_trunk)f))
            continue;
        m->trunk->format = (enum tri_trunk)f;
        tri__trunk_place(m->trunk);
        st = tri__pack_check(m->trunk, folder, progress, report, err);
    }
    return st;
}

enum tri_trunk tri_model_trunk(const struct tri_model *model)
{
    return model->trunk->windows ? TRI_TRUNK_STREAM : model->trunk->format;
}

/* Memory that a thread may still write to stays, but nobody pays for it any more. */
static void give_back(struct tri_model *m, void *p, uint64_t bytes, bool idle)
{
    if (idle)
        tri_budget_free(m->budget, TRI_MEM_TRUNK, p, bytes);
    else if (p)
        tri_budget_uncount(m->budget, TRI_MEM_TRUNK, bytes);
}

bool tri__trunk_close(struct tri_model *m)
{
    struct tri__trunk *t = m->trunk;
    if (!t)
        return true;
    tri__rows_close(t->rows);
    bool idle = tri__stream_close(t);
    for (int64_t u = 0; t->unit && u < t->n_units; u++)
        give_back(m, t->unit[u].block, t->unit[u].bytes, idle);
    for (int i = 0; i < t->windows; i++)
        give_back(m, t->window[i].memory, t->window_bytes, idle);
    for (struct tri__block *b = t->blocks, *next; b; b = next) {
        next = b->next;
        give_back(m, b->data, b->bytes, idle);
        if (idle)
            tri_free(b);
    }
    if (!idle)
        return false;
    tri_free(t->jobs);
    tri_free(t->unit);
    tri_free(t);
    m->trunk = NULL;
    return true;
}
