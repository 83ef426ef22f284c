/*
 * How long one decode step and one prefill take on a layout: a roofline per part with few
 * efficiencies (data/engines.json), plus what a roofline forgets: the cost of every layer's
 * launches and syncs, collectives by real path, distinct experts, activation traffic of long
 * prompts. docs/planner.md derives each term and says which point fixed it.
 */
#include "plan/plan_priv.h"

#include <math.h>
#include <string.h>

/*
 * Share of the dense peak that kernels reach: compute_eff (attn_eff) at best, less where there are
 * more operations per byte of bandwidth to feed (flop/byte ridge). Large products: 0.62 of a B300
 * at bf16, 0.48 of an H100 at fp8, 0.81 of an H20 at fp8. Attention is fed less well: prefill 0.40
 * of a B300 and 0.68 of an H20, decode 0.50 of an H100 and 0.80 of an H20.
 */
#define PRODUCT_RIDGE 0.00165
#define PREFILL_RIDGE 0.0040
#define DECODE_RIDGE  0.0029

static double reached(double best, double cost, double peak, double bw)
{
    return 1 / (1 / best + cost * peak / bw);
}

static double product_eff(const struct tri__clock *c, double peak)
{
    return reached(c->profile->compute_eff, PRODUCT_RIDGE, peak, c->bw);
}

/* The format most of these lines are stored in. */
static int stored_number(const struct tri__clock *c, bool experts)
{
    double params[TRI_NUMBERS] = { 0 };
    int best = TRI_NUM_BF16;
    for (int i = 0; i < c->arch->item_count; i++) {
        const struct tri_arch_item *item = &c->arch->items[i];
        if ((item->line == TRI_LINE_EXPERTS) == experts && item->layer >= 0)
            params[item->number] += (double)item->params;
    }
    for (int i = 0; i < TRI_NUMBERS; i++)
        if (params[i] > params[best])
            best = i;
    return best;
}

/* Peak for products with weights of a format: 4-bit weights meet 8-bit or bf16 activations. */
static double peak_for(const struct tri_device *d, int number)
{
    double bf16 = d->bf16_tflops * 1e12;
    double fp8 = d->native_fp8 && d->fp8_tflops > 0 ? d->fp8_tflops * 1e12 : bf16;
    switch ((enum tri_number)number) {
    case TRI_NUM_FP8:
        return fp8;
    case TRI_NUM_MXFP4:
    case TRI_NUM_NVFP4:
        return d->native_fp4 ? fp8 : bf16;
    case TRI_NUM_INT8:
        return d->int8_tops > 0 ? d->int8_tops * 1e12 : bf16;
    case TRI_NUM_INT4:
    case TRI_NUM_BF16:
    case TRI_NUM_F32:
    case TRI_NUMBERS:
        break;
    }
    return bf16;
}

/* What 4-bit experts cost beyond their bytes where the device cannot multiply them as they are. */
static void set_unpacking(struct tri__clock *c, int experts)
{
    const struct tri_device *d = &c->fleet->device;
    bool floats = experts == TRI_NUM_MXFP4 || experts == TRI_NUM_NVFP4;
    c->expert_eff = 1;
    c->moe_layer_s = c->profile->moe_layer_us * 1e-6;
    if (d->kind != TRI_DEVICE_GPU)
        return;
    if (experts == TRI_NUM_INT4 || (floats && !d->native_fp4)) {
        c->expert_eff = floats ? c->profile->mx_eff : c->profile->int4_eff;
        c->moe_layer_s = fmax(c->moe_layer_s, c->profile->int4_layer_us * 1e-6);
    } else if (experts == TRI_NUM_NVFP4) {
        c->moe_layer_s += c->profile->nvfp4_layer_us * 1e-6;
    }
}

void tri__clock_set(struct tri__clock *c)
{
    const struct tri_layout *l = c->layout;
    const struct tri_device *d = &c->fleet->device;
    int dense = c->ask.dense_number, experts = c->ask.experts_number;
    for (int s = 0; s < l->pp; s++) {
        tri_ledger_work(&c->ask, s, &c->work[s]);
        tri_ledger_state(&c->ask, s, &c->state[s]);
        tri_ledger_traffic(&c->ask, s, 1, &c->one[s]);
    }
    tri__group_cost(&c->tp, c->fleet, c->profiles, l->tp);
    tri__group_cost(&c->ep, c->fleet, c->profiles, tri_layout_expert_ranks(l));
    /* a stage's neighbour is one group further: across domains when the group fills one */
    int64_t stage_ranks = (int64_t)l->tp * l->dp;
    tri__group_cost(&c->next, c->fleet, c->profiles, l->pp > 1 ? stage_ranks * 2 : 1);
    dense = dense >= 0 ? dense : stored_number(c, false);
    experts = experts >= 0 ? experts : stored_number(c, true);
    c->bw = d->bw_gbs * 1e9;
    c->attn_peak = d->bf16_tflops * 1e12;
    c->dense_peak = peak_for(d, dense);
    c->expert_peak = peak_for(d, experts);
    c->layer_s = c->profile->layer_us * 1e-6;
    set_unpacking(c, experts);
}

/*
 * Tokens of one sequence's speculative block choose alike: n of them touch as many experts as
 * n^0.75 independent ones. From replays of routing traces (peers' notes 3.4): 2, 4, 8 tokens
 * behave like 1.68, 2.84, 4.76.
 */
static double independent_tokens(double block)
{
    return pow(block, 0.75);
}

/* The fullest of `ranks` holders of whole experts, over the mean, when `mean` of them are hit. */
static double imbalance(const struct tri__clock *c, double mean)
{
    int ranks = tri_layout_expert_ranks(c->layout);
    if (!c->layout->ep || ranks < 2 || mean <= 0)
        return 1;
    double factor = 1 + sqrt(2 * log(ranks) / mean);
    double most = c->work[0].expert_slots / mean; /* no rank can be hit more often than it holds */
    return factor > most ? (most > 1 ? most : 1) : factor;
}

/* What of the shared weights does not fit in memory comes from the drive at every step. */
static double trunk_disk_s(const struct tri__clock *c, double bytes)
{
    double gbs = c->fleet->device.disk_gbs;
    return c->trunk_share < 1 && gbs > 0 ? bytes * (1 - c->trunk_share) / (gbs * 1e9 * 0.95) : 0;
}

static double expert_read_s(const struct tri__clock *c, double distinct, double each,
                            double *disk_s)
{
    const struct tri_device *d = &c->fleet->device;
    double bytes = distinct * each;
    if (c->resident_share < 1 && d->disk_gbs > 0)
        *disk_s += bytes * (1 - c->hit) / (d->disk_gbs * 1e9 * 0.95);
    return bytes / (c->bw * c->profile->expert_eff * c->expert_eff);
}

/* A wire's time for all messages of a step: latency each, then bytes over the bus. */
static double link_s(const struct tri__clock *c, int stage, double tokens, bool decoding)
{
    const struct tri_rank_traffic *t = &c->one[stage];
    const struct tri_layout *l = c->layout;
    double s = 0;
    if (t->reduce_messages) {
        double turn = 2.0 * (l->tp - 1) / l->tp; /* bus bandwidth to bytes */
        s += t->reduce_messages * c->tp.reduce_us * 1e-6 +
             t->reduce_bytes * tokens * turn / (c->tp.bus_gbs * 1e9);
    }
    if (t->context_messages && decoding)
        s += t->context_messages * c->tp.reduce_us * 1e-6 +
             t->context_bytes * tokens / (c->tp.pair_gbs * 0.7e9);
    if (t->send_messages)
        s += 10e-6 + t->send_bytes * tokens / (c->next.pair_gbs * 0.8e9);
    return s;
}

/* Copies of a token that leave a rank: one per node on a network, one per expert on a fabric. */
static double exchange_s(const struct tri__clock *c, int stage, double tokens)
{
    const struct tri_rank_traffic *t = &c->one[stage];
    if (!t->exchange_messages)
        return 0;
    double bytes = t->exchange_bytes * tokens, topk = c->arch->topk;
    int64_t ranks = tri_layout_expert_ranks(c->layout);
    bool network = c->ep.wire == TRI_WIRE_IB || c->ep.wire == TRI_WIRE_ETHERNET;
    double gbs = c->ep.pair_gbs * 0.8;
    if (network) {
        double nodes = ceil((double)ranks / c->fleet->per_node);
        double copies = nodes * (1 - pow(1 - 1 / nodes, topk)) * (nodes - 1) / nodes;
        bytes *= copies / topk;
        gbs = c->fleet->device.nic_gbs * 0.85;
    }
    return t->exchange_messages * 2 * c->ep.reduce_us * 1e-6 + bytes / (gbs * 1e9);
}

/*
 * One stage's part of a decode step for `group` sequences of an attention group, `all` of the
 * expert group, each with `block` tokens at `context`.
 */
static double stage_decode(const struct tri__clock *c, int stage, double group, double all,
                           double context, struct tri_step_time *sum)
{
    const struct tri_rank_work *w = &c->work[stage];
    double block = 1 + c->draft_tokens, tokens = group * block;
    double bw = c->bw * c->profile->bw_eff;
    struct tri_step_time t = { 0 };
    t.dense = (w->dense_bytes + w->head_bytes) / bw;
    t.disk = trunk_disk_s(c, w->dense_bytes + w->head_bytes);
    double flops_s = tokens * (w->dense_flops + w->head_flops + w->kda_flops_per_token) /
                     (c->dense_peak * product_eff(c, c->dense_peak));
    t.compute += flops_s > t.dense ? flops_s - t.dense : 0;
    double distinct =
        tri_distinct_experts(c->arch->experts, c->arch->topk, all * independent_tokens(block));
    double mean = distinct / tri_layout_expert_ranks(c->layout);
    if (w->moe_layers) {
        double uneven = imbalance(c, mean);
        t.experts = expert_read_s(c, distinct * uneven, w->expert_bytes_each, &t.disk);
        double expert_s = all * block * w->expert_flops * uneven /
                          (c->expert_peak * c->expert_eff * product_eff(c, c->expert_peak));
        t.compute += expert_s > t.experts ? expert_s - t.experts : 0;
    }
    double cached = (double)tri_state_cache_bytes(&c->state[stage], (uint64_t)context);
    t.cache = group * (cached + w->kda_state_bytes) / bw;
    double attn_eff = reached(c->profile->attn_eff, DECODE_RIDGE, c->attn_peak, c->bw);
    double attn_s = tokens * context * w->attn_decode_flops_per_token / (c->attn_peak * attn_eff);
    t.compute += attn_s > t.cache ? attn_s - t.cache : 0;
    t.layers = w->layers * c->layer_s + w->moe_layers * c->moe_layer_s;
    t.link = link_s(c, stage, tokens, true) + exchange_s(c, stage, tokens);
    /* streaming reads run beside the rest: only what sticks out is felt */
    double busy = t.dense + t.experts + t.cache + t.compute + t.layers;
    t.disk = t.disk > busy * 0.5 ? t.disk - busy * 0.5 : 0;
    sum->dense += t.dense;
    sum->experts += t.experts;
    sum->cache += t.cache;
    sum->compute += t.compute;
    sum->layers += t.layers;
    sum->link += t.link;
    sum->disk += t.disk;
    return busy + t.link + t.disk;
}

/* One forward pass of a small draft model: five layers of its own and its weights. */
static double draft_s(const struct tri__clock *c)
{
    if (!c->draft_tokens)
        return 0;
    return 5 * (c->layer_s + 2 * c->tp.reduce_us * 1e-6) + 300e-6 +
           c->draft_bytes / c->layout->tp / (c->bw * c->profile->bw_eff);
}

double tri__decode_s(const struct tri__clock *c, double sequences, double context,
                     struct tri_step_time *parts)
{
    const struct tri_layout *l = c->layout;
    struct tri_step_time sum = { 0 };
    double all = sequences / l->pp, total = 0; /* pp micro-batches are in flight */
    all = all < 1 ? 1 : all;
    double group = all / l->dp;
    group = group < 1 ? 1 : group;
    for (int s = 0; s < l->pp; s++)
        total += stage_decode(c, s, group, all, context, &sum);
    sum.draft = draft_s(c);
    total += sum.draft + c->profile->step_us * 1e-6;
    sum.layers += c->profile->step_us * 1e-6;
    sum.total = total;
    if (parts)
        *parts = sum;
    return total;
}

/*
 * Bytes of activations a token moves in one layer of a long prompt, where caches do not hold them:
 * about ten passes over the hidden vector, two over each banked AttnRes vector, four over every
 * routed copy, ten over this rank's attention width.
 */
static double activation_bytes(const struct tri__clock *c)
{
    const struct tri_arch *a = c->arch;
    double heads = 0;
    for (int i = 0; i < a->class_count; i++)
        heads += (double)a->classes[i].layers * a->classes[i].heads * a->classes[i].head_dim;
    double hidden = (10.0 + 2.0 * a->bank_vectors) * a->hidden * 2;
    double routed = a->experts ? 4.0 * a->topk * a->expert_width * 2 : 0;
    if (c->layout->ep || c->layout->dp > 1)
        routed /= c->layout->tp;
    return hidden + routed + 10.0 * heads / a->layers * 2 / c->layout->tp;
}

static double stage_prefill(const struct tri__clock *c, int stage, struct tri__prompt prompt,
                            struct tri_step_time *sum)
{
    const struct tri_rank_work *w = &c->work[stage];
    double tokens = prompt.tokens, all = tokens * prompt.groups;
    double bw = c->bw * c->profile->bw_eff;
    struct tri_step_time t = { 0 };
    double dense_s = tokens * (w->dense_flops + w->kda_flops_per_token) /
                     (c->dense_peak * product_eff(c, c->dense_peak));
    double seen = tokens < prompt.span ? tokens : prompt.span; /* prompts do not see each other */
    double pairs = tokens * (prompt.before + seen / 2);
    double attn_eff = reached(0.75, PREFILL_RIDGE, c->attn_peak, c->bw);
    dense_s += pairs * w->attn_flops_per_pair / (c->attn_peak * attn_eff);
    double read_s = w->dense_bytes / bw;
    t.disk = trunk_disk_s(c, w->dense_bytes);
    double expert_s = 0;
    if (w->moe_layers) {
        double distinct = tri_distinct_experts(c->arch->experts, c->arch->topk, all);
        double uneven = c->layout->ep ? 1.15 : 1;
        t.experts = expert_read_s(c, distinct, w->expert_bytes_each, &t.disk);
        expert_s = all * w->expert_flops * uneven /
                   (c->expert_peak * c->expert_eff * product_eff(c, c->expert_peak));
    }
    t.dense = read_s > dense_s ? read_s - dense_s : 0;
    t.experts = t.experts > expert_s ? t.experts - expert_s : 0;
    t.compute = dense_s + expert_s;
    t.cache = tokens * activation_bytes(c) * w->layers / bw;
    t.layers = w->layers * c->layer_s + w->moe_layers * c->moe_layer_s;
    t.link = link_s(c, stage, tokens, false);
    double busy = t.dense + t.experts + t.compute + t.cache + t.layers;
    /* the exchange of one half runs beside the products of the other: about half of it is seen */
    double exchange = exchange_s(c, stage, tokens);
    t.link += exchange * 0.5 > exchange - busy ? exchange * 0.5 : exchange - busy;
    t.disk = t.disk > busy ? t.disk - busy : 0;
    sum->dense += t.dense;
    sum->experts += t.experts;
    sum->compute += t.compute;
    sum->cache += t.cache;
    sum->layers += t.layers;
    sum->link += t.link;
    sum->disk += t.disk;
    return busy + t.link + t.disk;
}

/* Time a prompt occupies the slowest stage, chunk by chunk; pipelines overlap chunks. */
double tri__prefill_s(const struct tri__clock *c, struct tri__prompt prompt,
                      struct tri_prefill_time *out)
{
    const struct tri_layout *l = c->layout;
    double chunk = (double)c->chunk_tokens, occupied = 0, latency = 0, done = 0;
    struct tri_step_time sum = { 0 };
    while (done < prompt.tokens) {
        double left = prompt.tokens - done, n = left < chunk ? left : chunk;
        double times = left > 64 * chunk ? floor(left / chunk / 32) : 1; /* alike: timed as one */
        double middle = done + (times - 1) * chunk / 2;
        double slowest = 0, all = 0, before = middle < prompt.span ? prompt.before + middle : 0;
        struct tri__prompt part = { n, before, prompt.span, prompt.groups };
        for (int s = 0; s < l->pp; s++) {
            double stage_s = stage_prefill(c, s, part, &sum);
            slowest = stage_s > slowest ? stage_s : slowest;
            all += stage_s;
        }
        occupied += slowest * times;
        latency = all - slowest; /* the last chunk must still pass the other stages */
        done += chunk * times;
    }
    if (c->draft_tokens)
        occupied *= 1.03; /* the draft model reads the prompt too */
    if (out)
        *out = (struct tri_prefill_time){ occupied, occupied + latency, sum };
    return occupied;
}
