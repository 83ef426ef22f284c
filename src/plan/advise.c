/*
 * When the answer is no, or not good enough: the changes that might turn it, each one tried with
 * the same search. Fewer tokens, another precision, an engine that shards everything, more cards.
 */
#include "plan/plan_priv.h"

#include <stdio.h>
#include <string.h>
#include "base/mem.h"

struct trial {
    struct tri__plan *plan;
    struct tri_candidate *found;
};

static bool good(const struct tri_candidate *c)
{
    return c->grade == TRI_GRADE_SERVES && c->goals_met;
}

static struct tri_advice *add(struct tri__plan *p)
{
    return p->pub.advices < TRI_PLAN_ADVICE ? &p->pub.advice[p->pub.advices++] : NULL;
}

static void describe(const struct tri_candidate *c, struct tri_advice *a)
{
    char name[120];
    int number = c->experts_number >= 0 ? c->experts_number : c->dense_number;
    tri_layout_name(&c->layout, name, sizeof name);
    if (number >= 0) {
        size_t at = strlen(name);
        snprintf(name + at, sizeof name - at, " in %s", tri_number_name((enum tri_number)number));
    }
    a->works = good(c);
    if (c->grade >= TRI_GRADE_GENERATES)
        snprintf(a->effect, sizeof a->effect, "%s with %s: TPOT %.4g ms, %.3g tokens/s",
                 tri_grade_name(c->grade), name, c->speed.tpot_ms, c->speed.tokens_per_s);
    else
        snprintf(a->effect, sizeof a->effect, "%s with %s: %.90s", tri_grade_name(c->grade), name,
                 c->reason);
}

/* Tries the plan as changed now; keeps the advice when it works, or when `always`. */
static bool try_change(struct trial *t, const struct tri_fleet *fleet, const char *change,
                       bool always)
{
    memset(t->found, 0, sizeof *t->found);
    if (tri__search(t->plan, fleet, false, t->found, NULL))
        return false;
    const struct tri_candidate *best = &t->plan->pub.best;
    bool faster = t->found->grade == best->grade && best->grade == TRI_GRADE_GENERATES &&
                  t->found->speed.tokens_per_s > best->speed.tokens_per_s * 1.3;
    bool better = t->found->grade > best->grade || (good(t->found) && !good(best)) || faster;
    if (!better && !always)
        return false;
    struct tri_advice *a = add(t->plan);
    if (a) {
        snprintf(a->change, sizeof a->change, "%s", change);
        describe(t->found, a);
    }
    return good(t->found);
}

static void fewer_tokens(struct trial *t)
{
    struct tri_plan_options *o = &t->plan->pub.options, saved = *o;
    const struct tri_candidate *best = &t->plan->pub.best;
    char change[120];
    if (best->grade != TRI_GRADE_GENERATES || best->speed.binding == TRI_BIND_DISK)
        return;
    if (best->served_concurrency >= 1 && best->served_concurrency < o->concurrency) {
        o->concurrency = best->served_concurrency;
        snprintf(change, sizeof change, "%lld requests at once instead of %lld",
                 (long long)o->concurrency, (long long)saved.concurrency);
        try_change(t, &t->plan->pub.fleet, change, false);
        *o = saved;
    }
    if (best->served_concurrency < 1) {
        for (int i = 0; i < 12 && o->context_tokens > 1024; i++) {
            o->context_tokens /= 2;
            o->input_tokens = o->input_tokens / 2 > 0 ? o->input_tokens / 2 : 1;
            o->output_tokens = o->output_tokens / 2 > 0 ? o->output_tokens / 2 : 1;
            snprintf(change, sizeof change, "a context of %lld tokens instead of %lld",
                     (long long)o->context_tokens, (long long)saved.context_tokens);
            if (try_change(t, &t->plan->pub.fleet, change, false))
                break;
        }
        *o = saved;
    }
}

/* Each part on its own: experts may be small already while the trunk is bf16. */
static void other_precision(struct trial *t)
{
    static const struct {
        int experts, dense;
    } trials[] = {
        { -1, TRI_NUM_FP8 },          { -1, TRI_NUM_INT8 },
        { TRI_NUM_FP8, TRI_NUM_FP8 }, { TRI_NUM_INT8, TRI_NUM_INT8 },
        { -1, TRI_NUM_INT4 },         { TRI_NUM_INT4, TRI_NUM_INT4 },
    };
    struct tri__plan *p = t->plan;
    const struct tri_arch *a = p->pub.arch;
    int experts = p->experts_number, dense = p->dense_number;
    double bits = (double)a->bytes * 8 / (double)a->params;
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
        char change[120];
        if (trials[i].experts >= 0 && !a->experts)
            continue; /* said once, for all weights */
        enum tri_number n = (enum tri_number)trials[i].dense;
        bool both = trials[i].experts >= 0;
        if ((n == TRI_NUM_FP8) != (p->pub.fleet.device.native_fp8 && n != TRI_NUM_INT4) &&
            n != TRI_NUM_INT4)
            continue;
        if (both && tri_number_bits64(n) / 64.0 > bits * 0.95)
            continue;
        p->experts_number = both && a->experts ? trials[i].experts : experts;
        p->dense_number = trials[i].dense;
        snprintf(change, sizeof change, "%s in %s (%s)",
                 both || !a->experts ? "weights" : "all but the experts", tri_number_name(n),
                 n == TRI_NUM_INT4 ? "a loss that must be measured" : "a small loss");
        bool works = try_change(t, &p->pub.fleet, change, false);
        p->experts_number = experts;
        p->dense_number = dense;
        if (works)
            break;
    }
}

static void sharding_engine(struct trial *t)
{
    struct tri_plan_options *o = &t->plan->pub.options;
    if (o->shard_all || t->plan->pub.fleet.device.kind != TRI_DEVICE_GPU)
        return;
    o->shard_all = true;
    try_change(t, &t->plan->pub.fleet,
               "an engine that divides what vLLM and SGLang replicate (--shard-all)", false);
    o->shard_all = false;
}

/* Steps in machines of the same kind: first the box is filled by doubling, then boxes are added. */
static bool next_size(const struct tri_plan *p, int step, struct tri_fleet *larger)
{
    static const int more[] = { 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32 };
    const struct tri_device *d = &p->fleet.device;
    int box = d->box > p->fleet.per_node && !p->fleet.pair ? d->box : p->fleet.per_node;
    int cards = p->fleet.per_node;
    *larger = p->fleet;
    for (; cards < box && step >= 0; step--)
        cards = cards * 2 < box ? cards * 2 : box;
    larger->per_node = cards;
    if (!p->fleet.pair)
        larger->domain = d->domain < cards || d->domain > d->box ? d->domain : cards;
    if (step >= (int)(sizeof more / sizeof more[0]))
        return false;
    int eighth = p->fleet.nodes < 8 ? 1 : p->fleet.nodes / 8;
    larger->nodes = p->fleet.nodes + (step < 0 ? 0 : more[step] * eighth);
    return tri_fleet_cards(larger) <= TRI_PLAN_MAX_CARDS;
}

/* The smallest number of them that serves. */
static void more_machines(struct trial *t)
{
    struct tri__plan *p = t->plan;
    struct tri_layout asked = p->asked;
    struct tri_fleet larger;
    struct tri_candidate *c = t->found;
    memset(&p->asked, 0, sizeof p->asked);
    for (int step = 0; next_size(&p->pub, step, &larger); step++) {
        memset(c, 0, sizeof *c);
        if (tri__search(p, &larger, false, c, NULL) || !good(c))
            continue;
        struct tri_advice *a = add(p);
        if (!a)
            break;
        int64_t cards = tri_fleet_cards(&larger), have = tri_fleet_cards(&p->pub.fleet);
        snprintf(a->change, sizeof a->change, "%lld %s instead of %lld (%dx%d)", (long long)cards,
                 larger.device.name, (long long)have, larger.nodes, larger.per_node);
        describe(c, a);
        a->usd_h = tri__usd_h(&p->pub.options, &larger.device, false) * (double)(cards - have);
        break;
    }
    p->asked = asked;
}

/* A mixture of experts can be streamed by Trireme from NVMe: slow, but the whole model. */
static void stream_it(struct trial *t)
{
    struct tri__plan *p = t->plan;
    const struct tri_device *d = NULL;
    struct tri_fleet fleet = { .nodes = 1,
                               .per_node = 1,
                               .domain = 1,
                               .inside = TRI_WIRE_ETHERNET,
                               .across = TRI_WIRE_ETHERNET };
    const struct tri_profile *profile = p->pub.profile, *own = NULL;
    struct tri_layout asked = p->asked;
    if (!p->pub.arch->experts || p->pub.best.grade > TRI_GRADE_LOADS ||
        p->pub.fleet.device.kind != TRI_DEVICE_GPU)
        return;
    if (tri_devices_find(&d, p->pub.devices, "NVMe-Workstation-256GB", NULL) ||
        tri__profiles_find(&own, p->profiles, "trireme", d, NULL))
        return;
    fleet.device = *d;
    p->pub.profile = own;
    memset(&p->asked, 0, sizeof p->asked);
    memset(t->found, 0, sizeof *t->found);
    if (!tri__search(p, &fleet, false, t->found, NULL) && t->found->grade >= TRI_GRADE_GENERATES) {
        struct tri_advice *a = add(p);
        if (a) {
            snprintf(a->change, sizeof a->change,
                     "Trireme on one %s, experts streamed from its drives", d->name);
            describe(t->found, a);
        }
    }
    p->pub.profile = profile;
    p->asked = asked;
}

/* A chosen layout that is not the best: say what the search would take. */
static void free_layout(struct trial *t)
{
    struct tri_layout asked = t->plan->asked;
    if (!asked.tp)
        return;
    memset(&t->plan->asked, 0, sizeof asked);
    try_change(t, &t->plan->pub.fleet, "let the planner choose the layout", false);
    t->plan->asked = asked;
}

void tri__advise(struct tri__plan *plan)
{
    struct trial t = { .plan = plan };
    if (good(&plan->pub.best))
        return;
    t.found = tri_malloc(sizeof *t.found);
    if (!t.found)
        return;
    free_layout(&t);
    fewer_tokens(&t);
    other_precision(&t);
    sharding_engine(&t);
    more_machines(&t);
    stream_it(&t);
    tri_free(t.found);
}
