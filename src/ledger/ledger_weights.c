/*
 * The weight ledger: every item of an arch, divided or replicated, on the fullest rank of a stage.
 * Exact integers; what does not divide is padded and the padding is told.
 */
#include "ledger/ledger_priv.h"

#include <string.h>

/* Ways an item is divided in this layout. 1: every rank holds all of it. */
int64_t tri__ledger_ways(const struct tri_ledger_ask *ask, const struct tri_arch_item *item)
{
    const struct tri_layout *l = ask->layout;
    switch ((enum tri_cut)item->cut) {
    case TRI_CUT_EXPERTS:
        return tri_layout_expert_ranks(l);
    case TRI_CUT_KV_HEADS:
        return item->units < (uint32_t)l->tp ? (int64_t)item->units : l->tp;
    case TRI_CUT_HEADS:
    case TRI_CUT_INNER:
    case TRI_CUT_VOCAB:
        return l->tp;
    case TRI_CUT_NEVER:
        break;
    }
    return ask->shard_all && item->line != TRI_LINE_VISION ? l->tp : 1;
}

int tri__ledger_stage_of(const struct tri_layout *l, int layer)
{
    int stage = 0;
    for (int first = l->stage_layers[0]; layer >= first && stage + 1 < l->pp;)
        first += l->stage_layers[++stage];
    return stage;
}

bool tri__ledger_on_stage(const struct tri_ledger_ask *ask, const struct tri_arch_item *item,
                          int stage)
{
    const struct tri_layout *l = ask->layout;
    if (item->line == TRI_LINE_VISION)
        return ask->vision && stage == 0;
    if (item->line == TRI_LINE_DRAFT)
        return ask->draft && stage == l->pp - 1;
    if (item->line == TRI_LINE_EMBED)
        return stage == 0;
    if (item->layer < 0)
        return stage == l->pp - 1;
    return tri__ledger_stage_of(l, item->layer) == stage;
}

/* Bits a value takes as asked; 0 when the item is gone (scales of re-encoded parts). */
static uint32_t bits64_of(const struct tri_ledger_ask *ask, const struct tri_arch_item *item)
{
    int asked = item->line == TRI_LINE_EXPERTS ? ask->experts_number : ask->dense_number;
    if (asked < 0)
        return item->bits64;
    if (item->scale)
        return asked == TRI_NUM_FP8 ? item->bits64 : 0;
    if (!item->quantised || item->number == asked)
        return item->bits64;
    return tri_number_bits64((enum tri_number)asked);
}

/*
 * Trireme's formats (fmt.h): int8 with a bf16 scale per 64 columns, int4 with one per 32, rows on
 * their own; a trunk of f32 widens everything.
 */
static uint64_t held_bytes(const struct tri_ledger_ask *ask, const struct tri_arch_item *item,
                           uint64_t params)
{
    uint64_t stored = ask->stored_f32 ? 4 : 2, cols = item->cols ? item->cols : params;
    uint64_t rows = cols ? params / cols : 0;
    if (item->held == TRI_HELD_VECTOR)
        return params * 4;
    if (item->held == TRI_HELD_FOLDED)
        return params * 2;
    if (ask->dense_number == TRI_NUM_F32)
        return params * 4;
    if (item->held == TRI_HELD_STORED || ask->dense_number < 0)
        return params * stored;
    switch (ask->dense_number) {
    case TRI_NUM_INT8:
        return rows * (cols + (cols + 63) / 64 * 2);
    case TRI_NUM_INT4:
        return rows * ((cols + 1) / 2 + (cols + 31) / 32 * 2);
    default:
        return (params * tri_number_bits64((enum tri_number)ask->dense_number) + 511) / 512;
    }
}

static bool of_trunk(const struct tri_arch_item *item)
{
    return item->line != TRI_LINE_EXPERTS && item->line != TRI_LINE_VISION &&
           item->line != TRI_LINE_DRAFT;
}

uint64_t tri__ledger_bytes(const struct tri_ledger_ask *ask, const struct tri_arch_item *item,
                           uint64_t params)
{
    struct tri_arch_item part = *item;
    part.params = params;
    if (ask->trireme && of_trunk(item) && !item->scale)
        return held_bytes(ask, item, params);
    return tri_item_bytes(&part, bits64_of(ask, item));
}

uint64_t tri__ledger_tied_bytes(const struct tri_ledger_ask *ask, const struct tri_arch_item *item)
{
    struct tri_arch_item head = *item;
    if (item->line != TRI_LINE_EMBED || !ask->arch->tied)
        return 0;
    head.line = TRI_LINE_HEAD;
    head.held = TRI_HELD_MATRIX;
    return tri__ledger_bytes(ask, &head, head.params);
}

void tri_ledger_trunk(const struct tri_ledger_ask *ask, struct tri_trunk_bytes *out)
{
    struct tri_ledger_ask as = *ask;
    as.trireme = true;
    *out = (struct tri_trunk_bytes){ 0 };
    for (int i = 0; i < as.arch->item_count; i++) {
        const struct tri_arch_item *item = &as.arch->items[i];
        if (item->unloaded || !of_trunk(item))
            continue;
        uint64_t bytes = tri__ledger_bytes(&as, item, item->params);
        uint64_t head = tri__ledger_tied_bytes(&as, item);
        out->held_bytes += bytes + head;
        out->read_bytes += item->line == TRI_LINE_EMBED ? head : bytes;
    }
}

struct share {
    uint64_t bytes, padding;
};

/* The fullest rank's bytes of an item cut `ways` ways; units that do not divide are padded. */
static struct share share_of(const struct tri_ledger_ask *ask, const struct tri_arch_item *item,
                             int64_t ways)
{
    uint64_t all = tri__ledger_bytes(ask, item, item->params), units = item->units;
    uint64_t n = (uint64_t)ways;
    if (ways <= 1)
        return (struct share){ all, 0 };
    if (units == 1) /* an item without units, divided by an engine that shards everything */
        return (struct share){ (all + n - 1) / n, 0 };
    if (units % n == 0)
        return (struct share){ (all + n - 1) / n, 0 };
    uint64_t mine = (units + n - 1) / n;
    uint64_t bytes = tri__ledger_bytes(ask, item, item->params / units * mine);
    return (struct share){ bytes, bytes - all / n };
}

/* Slices of every expert (TP) divide evenly whatever the count; whole experts (EP) are padded. */
static struct share expert_share(const struct tri_ledger_ask *ask, const struct tri_arch_item *item)
{
    int64_t ways = tri__ledger_ways(ask, item);
    if (ask->layout->ep)
        return share_of(ask, item, ways);
    uint64_t all = tri__ledger_bytes(ask, item, item->params);
    return (struct share){ (all + (uint64_t)ways - 1) / (uint64_t)ways, 0 };
}

/* A tied head is held once more where the table is not, and by Trireme in its own format. */
static void add_tied_head(const struct tri_ledger_ask *ask, const struct tri_arch_item *item,
                          int stage, struct tri_rank_weights *out)
{
    const struct tri_layout *l = ask->layout;
    if (stage != l->pp - 1 || (l->pp == 1 && !ask->trireme))
        return;
    uint64_t tp = (uint64_t)l->tp;
    out->split_bytes[TRI_LINE_HEAD] += (tri__ledger_tied_bytes(ask, item) + tp - 1) / tp;
}

void tri_ledger_weights(const struct tri_ledger_ask *ask, int stage, struct tri_rank_weights *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < ask->arch->item_count; i++) {
        const struct tri_arch_item *item = &ask->arch->items[i];
        add_tied_head(ask, item, stage, out);
        if (item->unloaded || !tri__ledger_on_stage(ask, item, stage))
            continue;
        int64_t ways = tri__ledger_ways(ask, item);
        struct share s =
            item->cut == TRI_CUT_EXPERTS ? expert_share(ask, item) : share_of(ask, item, ways);
        if (item->cut == TRI_CUT_NEVER && ways == 1)
            out->replicated_bytes[item->line] += s.bytes;
        else
            out->split_bytes[item->line] += s.bytes;
        out->padding_bytes += s.padding;
    }
    for (int i = 0; i < TRI_LINES; i++) {
        out->split_total_bytes += out->split_bytes[i];
        out->replicated_total_bytes += out->replicated_bytes[i];
    }
    out->total_bytes = out->split_total_bytes + out->replicated_total_bytes;
}

/* ---- does it divide at all ------------------------------------------------------------------ */

static int64_t largest_divisor(int64_t units, int64_t at_most)
{
    for (int64_t d = at_most < units ? at_most : units; d > 1; d--)
        if (units % d == 0)
            return d;
    return 1;
}

static enum tri_status check_class(const struct tri_ledger_ask *ask, const struct tri_arch_class *c,
                                   struct tri_error *err)
{
    int32_t tp = ask->layout->tp;
    if (c->heads % tp)
        return tri_fail(err, TRI_ARG,
                        "TP%d does not divide the %d attention heads; the next that does is TP%lld",
                        tp, c->heads, (long long)largest_divisor(c->heads, tp));
    if (c->family == TRI_FAMILY_GQA && c->kv_heads % tp && tp % c->kv_heads)
        return tri_fail(err, TRI_ARG,
                        "TP%d neither divides nor is a multiple of the %d key/value heads", tp,
                        c->kv_heads);
    return TRI_OK;
}

enum tri_status tri_ledger_check(const struct tri_ledger_ask *ask, struct tri_error *err)
{
    const struct tri_arch *a = ask->arch;
    const struct tri_layout *l = ask->layout;
    for (int i = 0; i < a->class_count; i++) {
        enum tri_status status = check_class(ask, &a->classes[i], err);
        if (status)
            return status;
    }
    int32_t ranks = tri_layout_expert_ranks(l);
    if (l->ep && !a->experts)
        return tri_fail(err, TRI_ARG, "%s has no experts to spread (EP%d)", a->name, ranks);
    if (l->ep && ranks > a->experts)
        return tri_fail(err, TRI_ARG, "EP%d: %s has only %d experts a layer", ranks, a->name,
                        a->experts);
    if (a->experts && !l->ep && ranks > 1 && a->moe_inter % (32 * ranks))
        return tri_fail(err, TRI_ARG,
                        "an expert's inner width of %d does not cut %d ways in blocks of 32; "
                        "whole experts (EP) do",
                        a->moe_inter, ranks);
    if (l->dp > 1 && !a->experts)
        return tri_fail(err, TRI_ARG,
                        "DP%d shares nothing in a dense model: those are replicas (r%d)", l->dp,
                        l->dp);
    return TRI_OK;
}
