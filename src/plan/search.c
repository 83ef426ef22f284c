/*
 * Search over TP x PP x DP x EP, context parallelism and precision. What cannot be is kept with its
 * reason; what can is compared by grade, goals, cards used, then speed weighed by what it takes.
 */
#include "plan/plan_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"

struct hunt {
    struct tri__plan *plan;
    const struct tri_fleet *fleet;
    struct tri_candidate *best, *work;
    bool keep, any;
};

/* Share of the fleet a layout leaves idle. */
static bool leaves_idle(const struct tri_candidate *c, int64_t fleet_cards)
{
    return c->cards * 10 < fleet_cards * 9;
}

static int64_t cards_of_request(const struct tri_candidate *c)
{
    return c->cards / c->layout.replicas;
}

/*
 * Speed as compared. A request that needs twice the cards must be worth 2^0.35 = 1.27 times the
 * speed, so that a model that fits one card becomes replicas unless the links pay; re-encoded
 * weights must be worth 1.4 times; stages that fill the fastest domain count a quarter more, so
 * that tensor parallelism is used inside it and pipelines across; a replica that shares a box
 * unevenly with its neighbour counts a fifth less. One number, so that the order has no circles.
 */
static double score_of(const struct tri_candidate *c, const struct tri_fleet *f)
{
    int64_t domain = f->domain > 1 ? f->domain : f->per_node, cards = cards_of_request(c);
    int64_t fill = cards < domain ? cards : domain;
    bool even = cards < f->per_node ? f->per_node % cards == 0 : cards % f->per_node == 0;
    bool published = c->experts_number < 0 && c->dense_number < 0;
    double score = c->speed.tokens_per_s * pow((double)cards, -0.35);
    score *= c->layout.tp * c->layout.dp >= fill ? 1.25 : 1;
    return score * (even ? 1 : 0.8) * (published ? 1 : 1 / 1.4);
}

/* Of what only generates: who holds more of the load, else who is nearest to holding any. */
static int holds_more(const struct tri_candidate *a, const struct tri_candidate *b)
{
    if (a->held != b->held)
        return a->held > b->held ? 1 : -1;
    uint64_t x = a->stage[a->full_stage].weights_bytes, y = b->stage[b->full_stage].weights_bytes;
    return a->held > 0 || x == y ? 0 : x < y ? 1 : -1;
}

bool tri__better(const struct tri_candidate *a, const struct tri_candidate *b,
                 const struct tri_fleet *fleet)
{
    if (a->grade != b->grade)
        return a->grade > b->grade;
    if (a->grade < TRI_GRADE_GENERATES) {
        const struct tri_stage_memory *x = &a->stage[a->full_stage], *y = &b->stage[b->full_stage];
        return x->weights_bytes < y->weights_bytes;
    }
    int holds = a->grade == TRI_GRADE_GENERATES ? holds_more(a, b) : 0;
    if (holds)
        return holds > 0;
    if (a->goals_met != b->goals_met)
        return a->goals_met;
    bool idle_a = leaves_idle(a, tri_fleet_cards(fleet));
    bool idle_b = leaves_idle(b, tri_fleet_cards(fleet));
    if (idle_a != idle_b)
        return !idle_a;
    double sa = score_of(a, fleet), sb = score_of(b, fleet);
    if (sa > sb * 1.005 || sb > sa * 1.005)
        return sa > sb;
    if (a->layout.pp != b->layout.pp)
        return a->layout.pp < b->layout.pp;
    return a->layout.cp + a->layout.ep < b->layout.cp + b->layout.ep;
}

static void reject(struct hunt *h, const struct tri_candidate *c)
{
    struct tri_plan *p = &h->plan->pub;
    if (!h->keep)
        return;
    if (p->rejected_count == TRI_PLAN_MAX_REJECTED) {
        p->rejected_more++;
        return;
    }
    struct tri_rejected *r = &p->rejected[p->rejected_count++];
    r->layout = c->layout;
    r->experts_number = c->experts_number;
    r->dense_number = c->dense_number;
    r->grade = c->grade;
    r->weights_bytes = c->stage[c->full_stage].weights_bytes;
    snprintf(r->reason, sizeof r->reason, "%s", c->reason);
}

/* It works, only others work better. */
static void reject_slower(struct hunt *h, struct tri_candidate *c)
{
    snprintf(c->reason, sizeof c->reason,
             "%s, but others do better: %.0f tokens/s at TPOT %.1f ms with %lld cards a request",
             tri_grade_name(c->grade), c->speed.tokens_per_s, c->speed.tpot_ms,
             (long long)cards_of_request(c));
    reject(h, c);
}

/* Keeps the alternatives sorted, best first; what falls off the end is rejected as slower. */
static void keep_other(struct hunt *h, struct tri_candidate *c)
{
    struct tri_plan *p = &h->plan->pub;
    int at = p->others;
    while (at > 0 && tri__better(c, &p->other[at - 1], h->fleet))
        at--;
    if (at == TRI_PLAN_MAX_KEPT) {
        reject_slower(h, c);
        return;
    }
    if (p->others == TRI_PLAN_MAX_KEPT)
        reject_slower(h, &p->other[--p->others]);
    memmove(&p->other[at + 1], &p->other[at], (size_t)(p->others - at) * sizeof *c);
    p->other[at] = *c;
    p->others++;
}

/* No speed can lift a layout over the best one's grade, or let it hold more of the load. */
static bool worth_timing(const struct hunt *h, const struct tri_candidate *c)
{
    if (!h->any || c->grade > h->best->grade)
        return true;
    if (c->grade < h->best->grade)
        return false;
    return c->grade != TRI_GRADE_GENERATES || holds_more(c, h->best) >= 0;
}

static void consider(struct hunt *h, const struct tri_layout *layout, int experts, int dense)
{
    struct tri_candidate *c = h->work;
    memset(c, 0, sizeof *c);
    c->layout = *layout;
    c->experts_number = experts;
    c->dense_number = dense;
    c->cache = h->plan->cache;
    if (!tri__candidate_memory(h->plan, h->fleet, c) || !worth_timing(h, c)) {
        reject(h, c);
        return;
    }
    tri__candidate_time(h->plan, h->fleet, c);
    if (!h->any || tri__better(c, h->best, h->fleet))
        *h->best = *c;
    h->any = true;
    if (h->keep && c->grade == TRI_GRADE_SERVES && c->goals_met &&
        c->speed.tokens_per_s > h->plan->pub.fastest.speed.tokens_per_s)
        h->plan->pub.fastest = *c;
    if (h->keep && c->grade >= TRI_GRADE_GENERATES)
        keep_other(h, c);
    else
        reject(h, c);
}

/* Fills the fleet with replicas of a layout of `cards` cards. */
static void consider_filled(struct hunt *h, struct tri_layout *l, int experts, int dense)
{
    int64_t cards = (int64_t)l->tp * l->dp * l->pp, have = tri_fleet_cards(h->fleet);
    if (cards > have)
        return;
    l->replicas = (int32_t)(have / cards);
    tri_layout_stages(l, h->plan->pub.arch->layers);
    consider(h, l, experts, dense);
}

/* A TP group must lie within a box or fill whole boxes: half of a second one is never faster. */
static bool tp_lies_well(const struct tri_fleet *f, int tp)
{
    return tp <= f->per_node ? f->per_node % tp == 0 : tp % f->per_node == 0;
}

static void try_degrees(struct hunt *h, int tp, int pp, int experts, int dense)
{
    const struct tri_arch *a = h->plan->pub.arch;
    const struct tri_device *d = &h->fleet->device;
    int64_t have = tri_fleet_cards(h->fleet);
    bool gpu = d->kind == TRI_DEVICE_GPU;
    for (int dp = 1; (int64_t)dp * tp * pp <= have && dp <= 512; dp *= 2) {
        if (dp > 1 && (!a->experts || !gpu))
            break;
        for (int ep = 0; ep <= (a->experts && tp * dp > 1); ep++)
            for (int cp = 1; cp <= tp; cp = cp < tp ? tp : tp + 1) {
                if (cp > 1 && (!gpu || dp > 1 || pp > 1 || h->plan->no_latent))
                    continue;
                struct tri_layout l = {
                    .replicas = 1, .tp = tp, .dp = dp, .pp = pp, .cp = cp, .ep = ep
                };
                consider_filled(h, &l, experts, dense);
            }
    }
}

static void try_all(struct hunt *h, int experts, int dense)
{
    static const int degrees[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96 };
    const int n = (int)(sizeof degrees / sizeof degrees[0]);
    int64_t have = tri_fleet_cards(h->fleet);
    const struct tri_arch *a = h->plan->pub.arch;
    for (int i = 0; i < n && degrees[i] <= have; i++)
        for (int j = 0; j < n && (int64_t)degrees[i] * degrees[j] <= have; j++) {
            if (degrees[j] > 16 || degrees[j] > a->layers || !tp_lies_well(h->fleet, degrees[i]))
                continue;
            try_degrees(h, degrees[i], degrees[j], experts, dense);
        }
}

/*
 * Precisions worth trying when none is asked: as published; 8 bits for weights published in more
 * (fp8 where the device has it, else int8): half the bytes at almost no loss.
 */
static int eight_bits(const struct hunt *h)
{
    const struct tri_arch *a = h->plan->pub.arch;
    double wide = 0, all = 0;
    for (int i = 0; i < a->item_count; i++) {
        const struct tri_arch_item *item = &a->items[i];
        all += (double)item->params;
        if (item->quantised && item->number == TRI_NUM_BF16)
            wide += (double)item->params;
    }
    if (wide < 0.5 * all)
        return -1;
    return h->fleet->device.native_fp8 ? TRI_NUM_FP8 : TRI_NUM_INT8;
}

static int nearer(const void *a, const void *b)
{
    const struct tri_rejected *x = a, *y = b;
    if (x->grade != y->grade)
        return x->grade > y->grade ? -1 : 1;
    if (!x->weights_bytes != !y->weights_bytes)
        return x->weights_bytes ? -1 : 1;
    return (x->weights_bytes > y->weights_bytes) - (x->weights_bytes < y->weights_bytes);
}

/* Beside layouts that serve, those that only generate are no alternatives. */
static void drop_lesser(struct hunt *h)
{
    struct tri_plan *p = &h->plan->pub;
    int kept = 0;
    for (int i = 0; i < p->others; i++)
        if (p->other[i].grade == h->best->grade)
            p->other[kept++] = p->other[i];
        else
            reject(h, &p->other[i]);
    p->others = kept;
}

static enum tri_status fixed_layout(struct hunt *h, struct tri_error *err)
{
    struct tri_layout l = h->plan->asked;
    if (tri_layout_cards(&l) > tri_fleet_cards(h->fleet)) {
        char name[96];
        tri_layout_name(&l, name, sizeof name);
        return tri_fail(err, TRI_ARG, "layout %s needs %lld cards, there are %lld", name,
                        (long long)tri_layout_cards(&l), (long long)tri_fleet_cards(h->fleet));
    }
    struct tri_ledger_ask ask = { .arch = h->plan->pub.arch, .layout = &l };
    enum tri_status status = tri_ledger_check(&ask, err);
    if (!status)
        consider(h, &l, h->plan->experts_number, h->plan->dense_number);
    return status;
}

enum tri_status tri__search(struct tri__plan *plan, const struct tri_fleet *fleet, bool keep,
                            struct tri_candidate *best, struct tri_error *err)
{
    struct hunt h = { .plan = plan, .fleet = fleet, .best = best, .keep = keep };
    enum tri_status status = TRI_OK;
    h.work = tri_malloc(sizeof *h.work);
    if (!h.work)
        return tri_fail(err, TRI_NOMEM, "no memory for the search");
    if (plan->asked.tp) {
        status = fixed_layout(&h, err);
    } else {
        int eight = eight_bits(&h);
        try_all(&h, plan->experts_number, plan->dense_number);
        if (plan->experts_number < 0 && plan->dense_number < 0 && eight >= 0)
            try_all(&h, eight, eight);
        if (!h.any)
            status = tri_fail(err, TRI_ARG, "no layout of %s can be cut for %lld cards",
                              plan->pub.arch->name, (long long)tri_fleet_cards(fleet));
    }
    if (keep && !status)
        drop_lesser(&h);
    if (keep)
        qsort(plan->pub.rejected, (size_t)plan->pub.rejected_count, sizeof plan->pub.rejected[0],
              nearer);
    tri_free(h.work);
    return status;
}
