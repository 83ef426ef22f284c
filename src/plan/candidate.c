/*
 * One layout on one fleet: what each stage holds, how much cache is left, which grade that earns,
 * how fast it is and what it costs. The reason of the grade starts with the number that decides.
 */
#include "plan/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHORT_CONTEXT = 4096, SMALL_CHUNK = 2048 };
static const double slowest_serving_ms = 500; /* 2 tokens/s: below that nobody waits */

struct tri_ledger_ask tri__candidate_ask(const struct tri__plan *plan,
                                         const struct tri_candidate *c)
{
    const struct tri_plan_options *o = &plan->pub.options;
    return (struct tri_ledger_ask){ .arch = plan->pub.arch,
                                    .layout = &c->layout,
                                    .shard_all = o->shard_all,
                                    .trireme = !strcmp(plan->pub.profile->engine, "trireme"),
                                    .vision = o->vision,
                                    .draft = plan->pub.draft_tokens > 0,
                                    .experts_number = c->experts_number,
                                    .dense_number = c->dense_number,
                                    .cache = c->cache,
                                    .kda_bf16 = plan->kda_bf16,
                                    .draft_tokens = plan->pub.draft_tokens };
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Sequences of one attention group when the whole fleet has `concurrency`. */
static int64_t group_sequences(const struct tri_candidate *c, int64_t concurrency)
{
    return divide_up(divide_up(concurrency, c->layout.replicas), c->layout.dp);
}

static uint64_t gib(double value)
{
    return value > 0 ? (uint64_t)(value * TRI__GIB) : 0;
}

static struct tri_workspace_ask workspace_ask(const struct tri__plan *plan,
                                              const struct tri_candidate *c, bool small)
{
    const struct tri_profile *p = plan->pub.profile;
    const struct tri_plan_options *o = &plan->pub.options;
    int64_t sequences = group_sequences(c, o->concurrency);
    if (o->max_sequences)
        sequences = o->max_sequences;
    return (struct tri_workspace_ask){
        .chunk_tokens = small ? SMALL_CHUNK : o->chunk_tokens,
        .max_sequences = small ? 1 : sequences * (1 + plan->pub.draft_tokens),
        .graph_bytes = small ? 0 : gib(p->graph_gib),
        .runtime_bytes = gib(p->runtime_gib),
        .collective_bytes = gib(p->collective_gib),
        .fragmentation = p->frag,
    };
}

/* Draft weights beside the model: DSpark-like, 2.3 G parameters in bf16, cut by tp. */
static uint64_t draft_weights(const struct tri__plan *plan, const struct tri_candidate *c)
{
    bool outside = plan->pub.draft_tokens && !plan->pub.arch->draft_params;
    return outside ? (uint64_t)(4.6e9 / c->layout.tp) : 0;
}

static void stage_capacity(const struct tri__plan *plan, struct tri_stage_memory *m)
{
    const struct tri_plan_options *o = &plan->pub.options;
    double paging = plan->pub.profile->paging;
    double fixed = (double)(m->state.kda_bytes + m->state.conv_bytes);
    double each = (double)tri_state_cache_bytes(&m->state, (uint64_t)o->context_tokens) * paging;
    double mean =
        (double)tri_state_cache_bytes(&m->state, (uint64_t)(o->input_tokens + o->output_tokens)) *
        paging;
    double room = (double)m->cache_bytes;
    double per_token = (double)m->state.bytes_per_token * paging;
    if (plan->pub.draft_tokens)
        room *= 0.96; /* the draft model's own cache */
    m->capacity_tokens = per_token > 0 ? (int64_t)(room / per_token) : TRI_PLAN_MAX_TOKENS;
    m->capacity_sequences = mean + fixed > 0 ? (int64_t)(room / (mean + fixed)) : 1 << 20;
    if (room < each + fixed)
        m->capacity_sequences = 0; /* not even one of the full context */
}

static bool fuller(const struct tri_stage_memory *a, const struct tri_stage_memory *b)
{
    if (a->capacity_sequences != b->capacity_sequences)
        return a->capacity_sequences < b->capacity_sequences;
    return a->weights_bytes > b->weights_bytes;
}

/* Fills every stage; full_stage is the one with the least cache left for its own needs. */
static void fill_stages(const struct tri__plan *plan, const struct tri_fleet *fleet,
                        struct tri_candidate *c)
{
    const struct tri_plan_options *o = &plan->pub.options;
    const struct tri_device *d = &fleet->device;
    struct tri_ledger_ask ask = tri__candidate_ask(plan, c);
    struct tri_workspace_ask work = workspace_ask(plan, c, false);
    double util = o->utilisation > 0 ? o->utilisation : plan->pub.profile->util;
    tri_ledger_workspace(&ask, &work, &c->workspace);
    c->full_stage = 0;
    for (int s = 0; s < c->layout.pp; s++) {
        struct tri_stage_memory *m = &c->stage[s];
        tri_ledger_weights(&ask, s, &m->weights);
        tri_ledger_state(&ask, s, &m->state);
        m->weights_bytes = m->weights.total_bytes + draft_weights(plan, c);
        m->workspace_bytes = c->workspace.total_bytes;
        m->budget_bytes = gib(d->mem_gib * d->usable * util);
        uint64_t used = m->weights_bytes + m->workspace_bytes;
        m->cache_bytes = o->cache_gib > 0         ? gib(o->cache_gib)
                         : used < m->budget_bytes ? m->budget_bytes - used
                                                  : 0;
        m->state_bytes_per_sequence = tri_state_bytes(&m->state, (uint64_t)o->context_tokens);
        stage_capacity(plan, m);
        if (fuller(m, &c->stage[c->full_stage]))
            c->full_stage = s;
    }
}

/* ---- streaming machines --------------------------------------------------------------------- */

/* Trunk and experts of a stage that streams: what stays in memory, of what is read. */
struct resident {
    double trunk_share, expert_share;
};

static struct resident resident_of(const struct tri_stage_memory *m)
{
    double experts = (double)m->weights.split_bytes[TRI_LINE_EXPERTS];
    double trunk = (double)m->weights.total_bytes - experts;
    double room =
        (double)m->budget_bytes - (double)m->workspace_bytes - (double)m->state_bytes_per_sequence;
    struct resident r = { 1, 0 };
    if (room < trunk)
        r.trunk_share = room > 0 ? room / trunk : 0;
    else if (experts > 0)
        r.expert_share = (room - trunk) / experts > 1 ? 1 : (room - trunk) / experts;
    return r;
}

static bool streams(const struct tri__plan *plan, const struct tri_fleet *fleet,
                    const struct tri_candidate *c)
{
    const struct tri_stage_memory *m = &c->stage[c->full_stage];
    double share = (double)(c->layout.pp * tri_layout_expert_ranks(&c->layout));
    return plan->pub.arch->experts && fleet->device.disk_gbs > 0 &&
           m->weights_bytes + m->workspace_bytes + m->state_bytes_per_sequence > m->budget_bytes &&
           fleet->device.disk_gb * 1e9 >= (double)plan->pub.arch->bytes / share;
}

/*
 * Hit rate of an expert cache that holds `share` of the pool: replays of real K3 routing (peers'
 * notes 3.1, 3.2: LRU, one prompt), smoothed; below one token's working set nothing hits.
 */
static double hit_rate(double share)
{
    static const double at[][2] = { { 0, 0 },         { 0.018, 0.02 }, { 0.024, 0.17 },
                                    { 0.0475, 0.31 }, { 0.071, 0.47 }, { 0.095, 0.56 },
                                    { 0.2, 0.76 },    { 0.4, 0.89 },   { 0.56, 0.95 },
                                    { 1, 1 } };
    for (size_t i = 1; i < sizeof at / sizeof at[0]; i++)
        if (share <= at[i][0])
            return at[i - 1][1] +
                   (at[i][1] - at[i - 1][1]) * (share - at[i - 1][0]) / (at[i][0] - at[i - 1][0]);
    return 1;
}

/* ---- speed ---------------------------------------------------------------------------------- */

int64_t tri__candidate_clock(const struct tri__plan *plan, const struct tri_fleet *fleet,
                             const struct tri_candidate *c, struct tri__clock *clock)
{
    const struct tri_stage_memory *m = &c->stage[c->full_stage];
    *clock = (struct tri__clock){ .arch = plan->pub.arch,
                                  .fleet = fleet,
                                  .profile = plan->pub.profile,
                                  .profiles = plan->profiles,
                                  .layout = &c->layout,
                                  .ask = tri__candidate_ask(plan, c),
                                  .draft_tokens = plan->pub.draft_tokens,
                                  .acceptance = plan->pub.acceptance,
                                  .draft_bytes = plan->pub.draft_tokens ? 4.6e9 : 0,
                                  .chunk_tokens = plan->pub.options.chunk_tokens,
                                  .role = plan->pub.options.role,
                                  .resident_share = 1,
                                  .hit = 1,
                                  .trunk_share = 1 };
    int64_t held = m->capacity_sequences;
    if (streams(plan, fleet, c)) {
        struct resident r = resident_of(m);
        clock->trunk_share = r.trunk_share;
        clock->resident_share = r.expert_share;
        clock->hit = hit_rate(r.expert_share);
        held = 1;
    }
    tri__clock_set(clock);
    return held;
}

void tri__candidate_speed(const struct tri__plan *plan, const struct tri_fleet *fleet,
                          const struct tri_candidate *c, int64_t concurrency, struct tri_speed *out)
{
    const struct tri_plan_options *o = &plan->pub.options;
    struct tri__clock clock;
    int64_t held = tri__candidate_clock(plan, fleet, c, &clock);
    struct tri__load load = { .input_tokens = o->input_tokens,
                              .output_tokens = o->output_tokens,
                              .concurrency = divide_up(concurrency, c->layout.replicas),
                              .spread = o->spread,
                              .max_running = held > 0 ? held * c->layout.dp : 1 };
    if (o->max_sequences && o->max_sequences * c->layout.dp < load.max_running)
        load.max_running = o->max_sequences * c->layout.dp;
    tri__loop(&clock, &load, out);
    double replicas = (double)c->layout.replicas;
    double busy = (double)concurrency / (double)load.concurrency; /* replicas that have clients */
    replicas = busy < replicas ? busy : replicas;
    out->band = plan->band;
    out->tokens_per_s *= replicas;
    out->total_tokens_per_s *= replicas;
    out->running *= replicas;
    out->waiting *= replicas;
}

/* ---- cost ----------------------------------------------------------------------------------- */

double tri__usd_h(const struct tri_plan_options *o, const struct tri_device *d, bool own)
{
    if (!own)
        return o->rent_usd_h > 0   ? o->rent_usd_h
               : d->rent_high <= 0 ? 0
                                   : (d->rent_low + d->rent_high) / 2;
    if (o->own_usd_h > 0)
        return o->own_usd_h;
    if (d->own_usd_h > 0)
        return d->own_usd_h;
    if (d->price_high <= 0)
        return 0;
    /* four years, a third more for what stands round it, and power at the wall */
    double price = (d->price_low + d->price_high) / 2;
    double kw = d->kw > 0 ? d->kw : d->tdp_w * 1.5e-3;
    return price * 1.33 / (4 * 8760) + kw * o->power_usd_kwh;
}

double tri__usd_per_million(double usd_h, int64_t cards, double tokens_per_s)
{
    return tokens_per_s > 0 ? usd_h * (double)cards / (3.6e-3 * tokens_per_s) : 0;
}

/* ---- grade ---------------------------------------------------------------------------------- */

static bool goal_met(const struct tri_goal *g, const struct tri_candidate *c)
{
    const struct tri_speed *s = &c->speed;
    switch (g->what) {
    case TRI_GOAL_TTFT:
        return s->ttft_ms <= g->value;
    case TRI_GOAL_TPOT:
        return s->tpot_ms <= g->value;
    case TRI_GOAL_USERS:
        return (double)c->served_concurrency >= g->value;
    case TRI_GOAL_TOKENS_PER_S:
        return s->tokens_per_s >= g->value;
    case TRI_GOAL_COST: {
        double usd = c->usd_per_million_own > 0 ? c->usd_per_million_own : c->usd_per_million_rent;
        return usd > 0 && usd <= g->value;
    }
    }
    return true;
}

static void say_unmet(const struct tri__plan *plan, struct tri_candidate *c)
{
    for (int i = 0; i < plan->pub.goal_count; i++) {
        const struct tri_goal *g = &plan->pub.goals[i];
        if (goal_met(g, c))
            continue;
        c->goals_met = false;
        double got = g->what == TRI_GOAL_TTFT    ? c->speed.ttft_ms
                     : g->what == TRI_GOAL_TPOT  ? c->speed.tpot_ms
                     : g->what == TRI_GOAL_USERS ? (double)c->served_concurrency
                     : g->what == TRI_GOAL_COST  ? c->usd_per_million_own
                                                 : c->speed.tokens_per_s;
        snprintf(c->reason, sizeof c->reason, "%s would be %.4g, the goal is %.4g; bound by %s",
                 tri_goal_name(g->what), got, g->value, tri_binding_name(c->speed.binding));
        return;
    }
}

/* Can it answer one short question with everything spare turned off? */
static bool generates(const struct tri__plan *plan, const struct tri_fleet *fleet,
                      const struct tri_candidate *c)
{
    struct tri_ledger_ask ask = tri__candidate_ask(plan, c);
    struct tri_workspace_ask work = workspace_ask(plan, c, true);
    struct tri_rank_workspace small;
    const struct tri_stage_memory *m = &c->stage[c->full_stage];
    int64_t context = plan->pub.options.context_tokens;
    context = context < SHORT_CONTEXT ? context : SHORT_CONTEXT;
    tri_ledger_workspace(&ask, &work, &small);
    double most = fleet->device.mem_gib * fleet->device.usable * TRI__GIB;
    if (fleet->device.kind == TRI_DEVICE_GPU)
        most *= 0.97;
    return (double)(m->weights_bytes + small.total_bytes +
                    tri_state_bytes(&m->state, (uint64_t)context)) <= most;
}

static void grade_memory(const struct tri__plan *plan, const struct tri_fleet *fleet,
                         struct tri_candidate *c)
{
    const struct tri_plan_options *o = &plan->pub.options;
    const struct tri_stage_memory *m = &c->stage[c->full_stage];
    double all = fleet->device.mem_gib * fleet->device.usable;
    double weights = (double)m->weights_bytes / TRI__GIB;
    double bare = weights + plan->pub.profile->runtime_gib;
    int64_t need = group_sequences(c, o->concurrency);
    c->served_concurrency =
        m->capacity_sequences * (int64_t)c->layout.dp * (int64_t)c->layout.replicas;
    if (bare > all) {
        c->grade = TRI_GRADE_NO;
        snprintf(c->reason, sizeof c->reason,
                 "%.2f GiB of weights a card and %.1f GiB of runtime; it has %.1f", weights,
                 plan->pub.profile->runtime_gib, all);
    } else if (!generates(plan, fleet, c)) {
        c->grade = TRI_GRADE_LOADS;
        snprintf(c->reason, sizeof c->reason,
                 "%.2f of %.1f GiB are weights: no room for workspace and one short sequence",
                 weights, all);
    } else if (m->capacity_sequences < 1) {
        c->grade = TRI_GRADE_GENERATES;
        snprintf(c->reason, sizeof c->reason,
                 "cache for %lld tokens a card beside %.2f GiB of weights: not one sequence of "
                 "%lld",
                 (long long)m->capacity_tokens, weights, (long long)o->context_tokens);
    } else if (m->capacity_sequences < need) {
        c->grade = TRI_GRADE_GENERATES;
        snprintf(c->reason, sizeof c->reason,
                 "cache holds %lld sequences of %lld tokens at once, %lld are asked",
                 (long long)c->served_concurrency, (long long)(o->input_tokens + o->output_tokens),
                 (long long)o->concurrency);
    } else {
        c->grade = TRI_GRADE_SERVES;
        char have[32], asked[32];
        tri__count(have, (double)m->capacity_tokens * c->layout.dp * c->layout.replicas);
        tri__count(asked, (double)(o->concurrency * (o->input_tokens + o->output_tokens)));
        snprintf(c->reason, sizeof c->reason, "cache for %s tokens (%.1f GiB a card), %s asked",
                 have, (double)m->cache_bytes / TRI__GIB, asked);
    }
}

static void grade_streaming(const struct tri_fleet *fleet, struct tri_candidate *c)
{
    struct resident r = resident_of(&c->stage[c->full_stage]);
    c->grade = TRI_GRADE_GENERATES;
    c->served_concurrency = c->layout.replicas;
    snprintf(c->reason, sizeof c->reason,
             "streams from NVMe at %.1f GB/s: %.0f %% of the trunk and %.1f %% of the experts stay "
             "in memory (%.0f %% hits)",
             fleet->device.disk_gbs, r.trunk_share * 100, r.expert_share * 100,
             hit_rate(r.expert_share) * 100);
}

bool tri__candidate_memory(const struct tri__plan *plan, const struct tri_fleet *fleet,
                           struct tri_candidate *c)
{
    struct tri_ledger_ask ask = tri__candidate_ask(plan, c);
    struct tri_error err = { 0 };
    c->cards = tri_layout_cards(&c->layout);
    c->goals_met = true;
    if (tri_ledger_check(&ask, &err)) {
        snprintf(c->reason, sizeof c->reason, "%.*s", (int)sizeof c->reason - 1, err.text);
        return false;
    }
    fill_stages(plan, fleet, c);
    if (streams(plan, fleet, c))
        grade_streaming(fleet, c);
    else
        grade_memory(plan, fleet, c);
    int64_t asked = plan->pub.options.concurrency;
    c->held = c->served_concurrency < asked ? c->served_concurrency : asked;
    return true;
}

void tri__candidate_time(const struct tri__plan *plan, const struct tri_fleet *fleet,
                         struct tri_candidate *c)
{
    const struct tri_plan_options *o = &plan->pub.options;
    memset(&c->speed, 0, sizeof c->speed);
    if (c->grade < TRI_GRADE_GENERATES) {
        c->speed.binding = TRI_BIND_MEMORY;
        c->goals_met = !plan->pub.goal_count;
        return;
    }
    tri__candidate_speed(plan, fleet, c, o->concurrency, &c->speed);
    if (c->grade == TRI_GRADE_GENERATES && !streams(plan, fleet, c))
        c->speed.binding = TRI_BIND_MEMORY;
    c->usd_per_million_own =
        tri__usd_per_million(tri__usd_h(o, &fleet->device, true), c->cards, c->speed.tokens_per_s);
    c->usd_per_million_rent =
        tri__usd_per_million(tri__usd_h(o, &fleet->device, false), c->cards, c->speed.tokens_per_s);
    if (c->grade == TRI_GRADE_SERVES && c->speed.tpot_ms > slowest_serving_ms) {
        c->grade = TRI_GRADE_GENERATES;
        snprintf(c->reason, sizeof c->reason,
                 "%.2f tokens/s for each user (%.0f ms a token): under 2 a second is not service",
                 1000 / c->speed.tpot_ms, c->speed.tpot_ms);
    }
    say_unmet(plan, c);
}
