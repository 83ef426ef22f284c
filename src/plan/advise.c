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
    char name[96];
    tri_layout_name(&c->layout, name, sizeof name);
    a->works = good(c);
    if (c->grade >= TRI_GRADE_GENERATES)
        snprintf(a->effect, sizeof a->effect, "%s with %s: TPOT %.1f ms, %.0f tokens/s",
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
    bool better = t->found->grade > t->plan->pub.best.grade ||
                  (good(t->found) && !good(&t->plan->pub.best));
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

static void other_precision(struct trial *t)
{
    static const enum tri_number numbers[] = { TRI_NUM_FP8, TRI_NUM_INT8, TRI_NUM_INT4 };
    struct tri__plan *p = t->plan;
    const struct tri_arch *a = p->pub.arch;
    int experts = p->experts_number, dense = p->dense_number;
    double bits = (double)a->bytes * 8 / (double)a->params;
    for (size_t i = 0; i < 3; i++) {
        char change[120];
        enum tri_number n = numbers[i];
        if (tri_number_bits64(n) / 64.0 > bits * 0.95 ||
            (n == TRI_NUM_FP8 && !p->pub.fleet.device.native_fp8))
            continue;
        p->experts_number = a->experts ? (int)n : -1;
        p->dense_number = (int)n;
        snprintf(change, sizeof change, "weights in %s (%s)", tri_number_name(n),
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

/* The smallest number of machines, of the same kind, that serves. */
static void more_machines(struct trial *t)
{
    static const int more[] = { 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32 };
    struct tri__plan *p = t->plan;
    struct tri_fleet larger = p->pub.fleet;
    int full = larger.device.box > larger.per_node && !larger.pair ? larger.device.box : 0;
    struct tri_layout asked = p->asked;
    double usd = tri__usd_h(&p->pub.options, &larger.device, false);
    memset(&p->asked, 0, sizeof p->asked);
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        char change[120];
        if (full && i == 0) { /* first fill the box */
            larger.per_node = full;
            larger.domain = larger.device.domain < full ? larger.device.domain : full;
        } else {
            larger.nodes = p->pub.fleet.nodes * more[full ? i - 1 : i];
        }
        int64_t cards = tri_fleet_cards(&larger);
        int64_t extra = cards - tri_fleet_cards(&p->pub.fleet);
        if (cards > TRI_PLAN_MAX_CARDS)
            break;
        snprintf(change, sizeof change, "%lld %s instead of %lld (%dx%d)", (long long)cards,
                 larger.device.name, (long long)tri_fleet_cards(&p->pub.fleet), larger.nodes,
                 larger.per_node);
        if (try_change(t, &larger, change, false) || i + 1 == sizeof more / sizeof more[0]) {
            if (p->pub.advices)
                p->pub.advice[p->pub.advices - 1].usd_h = usd * (double)extra;
            break;
        }
        if (p->pub.advices && !p->pub.advice[p->pub.advices - 1].works &&
            p->pub.advices > 4)
            p->pub.advices--; /* only the last step towards service is worth a line */
    }
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
    tri_free(t.found);
}
