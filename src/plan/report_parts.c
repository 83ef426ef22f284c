/* Parts of the reports: the ledger line by line, the layout over the machines, cost, assumptions.
 */
#include "plan/report.h"

#include <stdio.h>
#include <string.h>

const char *tri__grade_title(enum tri_grade grade)
{
    static const char *const titles[] = { "DOES NOT LOAD", "LOADS", "GENERATES", "SERVES" };
    return titles[grade];
}

const char *tri__basis(const struct tri_plan *p)
{
    if (strcmp(p->profile->basis, "measured"))
        return ", assumed";
    return p->best.speed.band > p->profile->band ? ", not measured on this device" : ", measured";
}

static void ledger_row(struct tri_buf *out, const char *name, uint64_t bytes, const char *note)
{
    if (bytes)
        tri_buf_printf(out, "    %-28s %18llu  %9.3f GiB  %s\n", name, (unsigned long long)bytes,
                       (double)bytes / TRI__GIB, note);
}

static void stage_ledger(const struct tri_plan *p, int stage, struct tri_buf *out)
{
    const struct tri_candidate *c = &p->best;
    const struct tri_stage_memory *m = &c->stage[stage];
    const struct tri_rank_workspace *w = &c->workspace;
    tri_buf_printf(out, "\n  Stage %d, %d layers, bytes a rank\n", stage + 1,
                   c->layout.stage_layers[stage]);
    for (int i = 0; i < TRI_LINES; i++) {
        ledger_row(out, tri_arch_line_name((enum tri_arch_line)i), m->weights.split_bytes[i],
                   "split");
        ledger_row(out, tri_arch_line_name((enum tri_arch_line)i), m->weights.replicated_bytes[i],
                   "replicated");
    }
    ledger_row(out, "= weights", m->weights_bytes, "");
    ledger_row(out, "latents and KV of context",
               m->state_bytes_per_sequence - m->state.kda_bytes - m->state.conv_bytes,
               "a sequence");
    bool bf16 = p->options.kda_state && !strcmp(p->options.kda_state, "bf16");
    bool ours = !strcmp(p->profile->engine, "trireme");
    ledger_row(out, "KDA state", m->state.kda_bytes, bf16 ? "a sequence, bf16" : "a sequence, f32");
    ledger_row(out, "convolution tails", m->state.conv_bytes,
               ours ? "a sequence, f32" : "a sequence, bf16");
    ledger_row(out, "AttnRes bank", w->attnres_bytes, "one prefill chunk");
    ledger_row(out, "expert buffers", w->moe_bytes, "assumed: permuted in, out, inner");
    ledger_row(out, "activations and logits", w->activation_bytes, "assumed");
    ledger_row(out, "graphs", w->graph_bytes, "assumed");
    ledger_row(out, "runtime", w->runtime_bytes, "assumed");
    ledger_row(out, "collectives", w->collective_bytes, "assumed");
    ledger_row(out, "fragmentation", w->fragmentation_bytes, "assumed");
}

void tri__ledger_text(const struct tri_plan *p, struct tri_buf *out)
{
    for (int s = 0; s < p->best.layout.pp; s++)
        stage_ledger(p, s, out);
}

/* ---- layout over the machines --------------------------------------------------------------- */

static void group_line(const struct tri_plan *p, struct tri_buf *out)
{
    const struct tri_layout *l = &p->best.layout;
    const struct tri__plan *plan = (const struct tri__plan *)p;
    struct tri__group tp, ep;
    tri__group_cost(&tp, &p->fleet, plan->profiles, l->tp);
    tri__group_cost(&ep, &p->fleet, plan->profiles, tri_layout_expert_ranks(l));
    if (l->tp > 1)
        tri_buf_printf(out, "  TP over %s: all-reduce %.0f us small, %.0f GB/s large\n", tp.path,
                       tp.reduce_us, tp.bus_gbs);
    if (l->dp > 1)
        tri_buf_printf(out,
                       "  TP%d x DP%d: attention in %d groups of %d, experts over all %d ranks "
                       "(%s)\n",
                       l->tp, l->dp, l->dp, l->tp, tri_layout_expert_ranks(l), ep.path);
    else if (l->ep)
        tri_buf_printf(
            out, "  experts whole over %d ranks, %d a rank\n", tri_layout_expert_ranks(l),
            (p->arch->experts + tri_layout_expert_ranks(l) - 1) / tri_layout_expert_ranks(l));
}

/* Cards of one TP group: on a captured machine the ones that lie nearest, else in order. */
static void cards_of(const struct tri_plan *p, int64_t first, int32_t n, struct tri_buf *out)
{
    int order[TRI_MAX_GPUS];
    const struct tri_fleet *f = &p->fleet;
    int64_t node = first / f->per_node;
    if (f->pair)
        tri__group_cards(f, n, order);
    tri_buf_printf(out, "node %lld cards ", (long long)node);
    if (!f->pair && n > 2) {
        int64_t last = first + n - 1;
        if (last / f->per_node == node)
            tri_buf_printf(out, "%lld-%lld", (long long)(first % f->per_node),
                           (long long)(last % f->per_node));
        else
            tri_buf_printf(out, "all, to node %lld", (long long)(last / f->per_node));
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        int64_t at = (first + i) % f->per_node;
        tri_buf_printf(out, "%s%lld", i ? "," : "", f->pair ? (long long)order[at] : (long long)at);
    }
}

void tri__layout_text(const struct tri_plan *p, struct tri_report_style s, struct tri_buf *out)
{
    const struct tri_layout *l = &p->best.layout;
    int64_t card = 0, shown = 0, total = (int64_t)l->replicas * l->pp * l->dp;
    tri_buf_printf(out, "\n%sLayout%s over %d x %d %s\n", s.color ? "\033[1m" : "",
                   s.color ? "\033[0m" : "", p->fleet.nodes, p->fleet.per_node,
                   p->fleet.device.name);
    for (int r = 0; r < l->replicas; r++)
        for (int stage = 0, layer = 0; stage < l->pp; layer += l->stage_layers[stage++])
            for (int d = 0; d < l->dp; d++, card += l->tp) {
                if (++shown > 8 && !s.all)
                    continue;
                tri_buf_puts(out, "  ");
                if (l->replicas > 1)
                    tri_buf_printf(out, "replica %d  ", r + 1);
                if (l->pp > 1)
                    tri_buf_printf(out, "layers %2d-%-2d  ", layer,
                                   layer + l->stage_layers[stage] - 1);
                if (l->dp > 1)
                    tri_buf_printf(out, "group %d  ", d + 1);
                cards_of(p, card, l->tp, out);
                tri_buf_putc(out, '\n');
            }
    if (shown > 8 && !s.all)
        tri_buf_printf(out, "  ... and %lld more groups\n", (long long)(total - 8));
    group_line(p, out);
    if (tri_fleet_cards(&p->fleet) > p->best.cards)
        tri_buf_printf(out, "  %lld cards stay free\n",
                       (long long)(tri_fleet_cards(&p->fleet) - p->best.cards));
}

/* ---- cost and assumptions ------------------------------------------------------------------- */

void tri__cost_text(const struct tri_plan *p, struct tri_buf *out)
{
    const struct tri_candidate *c = &p->best;
    const struct tri_device *d = &p->fleet.device;
    double own = tri__usd_h(&p->options, d, true), rent = tri__usd_h(&p->options, d, false);
    if (c->grade < TRI_GRADE_GENERATES)
        return;
    if (own <= 0 && rent <= 0) {
        tri_buf_printf(out, "Cost: no price of %s is known here; --rent or --own gives one\n",
                       d->name);
        return;
    }
    tri_buf_puts(out, "Cost per million output tokens at this load:");
    if (own > 0)
        tri_buf_printf(out, " $%.3g owned ($%.3g a card and hour)", c->usd_per_million_own, own);
    if (rent > 0)
        tri_buf_printf(out, "%s $%.3g rented ($%.3g; seen %.3g to %.3g)", own > 0 ? "," : "",
                       c->usd_per_million_rent, rent, d->rent_low, d->rent_high);
    tri_buf_putc(out, '\n');
    if (tri_device_doubts(d, "price") || tri_device_doubts(d, "rent") ||
        tri_device_doubts(d, "own_usd_h"))
        tri_buf_printf(
            out, "Prices of %s are doubtful (sources differ): take them as a factor of two%s%s\n",
            d->name, strstr(d->notes, "price") ? "; " : "",
            strstr(d->notes, "price") ? d->notes : "");
}

void tri__assumptions_text(const struct tri_plan *p, struct tri_buf *out)
{
    const struct tri_profile *q = p->profile;
    const struct tri_device *d = &p->fleet.device;
    char shape[160] = "";
    static const char *const fields[] = { "mem_gib", "bw_gbs", "bf16_tflops", "link_gbs",
                                          "disk_gbs" };
    tri_buf_printf(out,
                   "util %.2f, chunk %lld, runtime %.1f + graphs %.1f + collectives %.1f "
                   "GiB (give or take 2), paging x%.4f.",
                   p->options.utilisation > 0 ? p->options.utilisation : q->util,
                   (long long)p->options.chunk_tokens, q->runtime_gib, q->graph_gib,
                   q->collective_gib, q->paging);
    if (p->draft_tokens)
        tri_buf_printf(out,
                       " Speculation yields %.2f tokens a step: short coding prompts; on long "
                       "agent traces 1.2 to 1.7 was seen.",
                       p->acceptance);
    if (d->kind != TRI_DEVICE_GPU)
        tri_buf_puts(out, " What Trireme reaches on this machine is assumed until measured.");
    if (d->kind != TRI_DEVICE_GPU && p->best.cards > p->best.layout.replicas)
        tri_buf_puts(out, " Trireme runs on one machine so far: layouts over several are for later "
                          "releases.");
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (tri_device_doubts(d, fields[i])) {
            size_t at = strlen(shape);
            snprintf(shape + at, sizeof shape - at, "%s%s", at ? ", " : "", fields[i]);
        }
    if (*shape)
        tri_buf_printf(out, " Doubtful in the device table: %s.", shape);
    tri_buf_putc(out, '\n');
}
