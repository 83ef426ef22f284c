/*
 * The bring-up guide of a plan: stages in the order that finds a fault at the least cost, what
 * each must show, what each failure means and the next step; and what is left when nothing fits.
 */
#include "plan/report.h"

#include <string.h>

static double gib(uint64_t bytes)
{
    return (double)bytes / TRI__GIB;
}

static void stage(struct tri_buf *out, int n, const char *title)
{
    tri_buf_printf(out, "\n%d. %s\n", n, title);
}

static void paths_and_architecture(const struct tri_plan *p, struct tri_buf *out)
{
    const struct tri_layout *l = &p->best.layout;
    struct tri__group tp;
    tri__group_cost(&tp, &p->fleet, ((const struct tri__plan *)p)->profiles, l->tp);
    stage(out, 1, "The machine, before any engine");
    if (p->fleet.device.kind == TRI_DEVICE_GPU) {
        tri_buf_printf(out, "   trireme doctor           no FAIL; every card shows %.1f GiB\n",
                       p->fleet.device.mem_gib);
        if (l->tp > 1)
            tri_buf_printf(out,
                           "   all_reduce_perf -b 8 -e 1G over %d cards: about %.0f GB/s bus "
                           "bandwidth at 1 GiB, %.0f us at 8 bytes\n",
                           l->tp, tp.bus_gbs, tp.reduce_us);
        tri_buf_puts(out, "   Far below: P2P off, ACS, a wrong slot or a down link. Nothing later "
                          "mends it: stop here.\n");
    } else {
        tri_buf_puts(out, "   trireme doctor           no FAIL; memory on all channels, NUMA "
                          "balanced\n");
        if (p->fleet.device.disk_gbs > 0)
            tri_buf_printf(out,
                           "   fio, 16 MiB direct reads, 8 jobs: %.1f GB/s. Half of it means "
                           "a slot with half the lanes.\n",
                           p->fleet.device.disk_gbs);
    }
    stage(out, 2, "The architecture, without weights");
    tri_buf_puts(
        out, "   Start with dummy weights and 2 layers (vLLM, SGLang: --load-format dummy with\n"
             "   num_hidden_layers overridden; Trireme: trireme info, then --layers 2).\n"
             "   Must show: the model class is known, a token comes out.\n"
             "   'Unknown architecture', 'unexpected key': the engine is older than the model.\n"
             "   A shape that does not divide: the layout, not the weights.\n");
}

static void weights_and_short(const struct tri_plan *p, struct tri_buf *out)
{
    const struct tri_candidate *c = &p->best;
    int heaviest = 0;
    for (int i = 1; i < c->layout.pp; i++)
        if (c->stage[i].weights_bytes > c->stage[heaviest].weights_bytes)
            heaviest = i;
    const struct tri_stage_memory *m = &c->stage[heaviest];
    stage(out, 3, "The weights, smallest context");
    tri_buf_printf(out,
                   "   Context 4096, one sequence, graphs off (--enforce-eager, "
                   "--disable-cuda-graph).\n"
                   "   Must show: %.2f GiB of weights on the fullest card",
                   gib(m->weights_bytes));
    if (c->layout.pp > 1)
        tri_buf_printf(out, " (stage %d)", heaviest + 1);
    tri_buf_puts(out, "; more by GiBs means parts\n   are replicated that the plan divides, or a "
                      "wider precision.\n"
                      "   Missing tensor: an incomplete download; check sizes and hashes first, "
                      "then the engine's\n   version. Never let it fill the gap with zeros.\n"
                      "   Out of memory while loading: another process holds the card, or a loader "
                      "that keeps two\n   copies (try one shard at a time).\n"
                      "   Hours instead of minutes: the store, not the cards.\n");
    stage(out, 4, "A short answer");
    tri_buf_puts(out, "   Ten tokens, greedy, the same twice. Must show: the same sensible text.\n"
                      "   Garbage: a wrong layout of a fused matrix or a wrong scale; try TP1 or "
                      "fewer layers against\n   a reference (trireme logits).\n"
                      "   Right first token, then garbage: cache or state, not weights.\n");
}

static void longer_and_load(const struct tri_plan *p, struct tri_buf *out)
{
    const struct tri_candidate *c = &p->best;
    const struct tri_stage_memory *m = &c->stage[c->full_stage];
    char tokens[32];
    tri__count(tokens, (double)m->capacity_tokens);
    stage(out, 5, "Longer context");
    tri_buf_printf(out,
                   "   Double up to %lld. Must show: the log's cache near %s tokens a card "
                   "(give or take\n   2 GiB of workspace).\n"
                   "   Out of memory: first the context, then the reserve (utilisation down by "
                   "0.02), then the\n   prefill chunk (%lld now), then graphs off. In that order: "
                   "each costs more speed.\n",
                   (long long)p->options.context_tokens, tokens,
                   (long long)p->options.chunk_tokens);
    stage(out, 6, "One user, then load");
    if (p->curve_points)
        tri_buf_printf(out,
                       "   One at a time: TPOT about %.3g ms; then 2, 4, 8 up to %lld: about "
                       "%.3g ms, %.0f tokens/s.\n",
                       p->curve[0].tpot_ms, (long long)p->options.concurrency, c->speed.tpot_ms,
                       c->speed.tokens_per_s);
    tri_buf_puts(out, "   Hold it beside this plan: trireme plan ... --check result.json.\n"
                      "   Slow with memory free: paths first (stage 1 again, under load), then "
                      "graphs, then the engine's\n   kernels for this card. Slow only under load: "
                      "prompts interrupt decode; smaller chunks or\n   separate prefill. A cliff: "
                      "the cache is full and requests wait.\n");
}

static void nothing_fits(const struct tri_plan *p, struct tri_buf *out)
{
    tri_buf_puts(out, "\nWhen nothing of this fits, honest alternatives\n");
    if (p->advices) {
        for (int i = 0; i < p->advices; i++)
            tri_buf_printf(out, "   %s %s: %s\n", p->advice[i].works ? "+" : "-",
                           p->advice[i].change, p->advice[i].effect);
    }
    tri_buf_puts(out,
                 "   - a smaller or distilled model of the same line: often the better answer\n"
                 "   - fewer tokens: retrieval of the right pages instead of all of them in the "
                 "context\n"
                 "   - offline batches with weights in host memory or on drives: throughput, not "
                 "conversation\n"
                 "   - rented cards for the hours that need them\n");
}

enum tri_status tri_plan_guide(const struct tri_plan *p, struct tri_buf *out)
{
    char name[96];
    tri_layout_name(&p->best.layout, name, sizeof name);
    tri_buf_printf(out, "Bringing up %s on %s as %s\n", p->arch->name, p->fleet.text, name);
    tri_buf_printf(out, "Plan: %s; %s\n", tri_grade_name(p->best.grade), p->best.reason);
    if (p->best.grade == TRI_GRADE_NO) {
        tri_buf_puts(out, "This does not load: there is nothing to bring up here.\n");
        nothing_fits(p, out);
        return out->failed;
    }
    tri_buf_puts(out, "Each stage must pass before the next; a failure there is cheaper to find "
                      "there.\n");
    paths_and_architecture(p, out);
    weights_and_short(p, out);
    longer_and_load(p, out);
    nothing_fits(p, out);
    return out->failed;
}
