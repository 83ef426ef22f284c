/*
 * A screen's worth: the verdict and the number that decides it, the fullest card as a bar, speed
 * with its band and where a step goes, the layout over the machines, alternatives, cost, and what
 * to change when the answer is no.
 */
#include "plan/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *paint(struct tri_report_style s, const char *code)
{
    return s.color ? code : "";
}
#define BOLD  "\033[1m"
#define DIM   "\033[2m"
#define GREEN "\033[32m"
#define AMBER "\033[33m"
#define RED   "\033[31m"
#define PLAIN "\033[0m"

void tri__count(char out[32], double value)
{
    char digits[32];
    int n = snprintf(digits, sizeof digits, "%.0f", value), at = 0;
    for (int i = 0; i < n && at < 30; i++) {
        if (i && (n - i) % 3 == 0 && digits[i - 1] != '-')
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = 0;
}

void tri__ms(char out[32], double ms)
{
    if (ms >= 7200e3)
        snprintf(out, 32, "%.3g h", ms / 3600e3);
    else if (ms >= 99500)
        snprintf(out, 32, "%.0f s", ms / 1000);
    else if (ms >= 995)
        snprintf(out, 32, "%.3g s", ms / 1000);
    else
        snprintf(out, 32, "%.3g ms", ms);
}

double tri__low(const struct tri_speed *s, double value, bool time)
{
    return time ? value * (1 - s->band) : value / (1 + s->band);
}

double tri__high(const struct tri_speed *s, double value, bool time)
{
    return time ? value * (1 + s->band) : value / (1 - s->band);
}

static void verdict(const struct tri_plan *p, struct tri_report_style s, struct tri_buf *out)
{
    const struct tri_candidate *c = &p->best;
    char layout[96], cards[32];
    bool yes = c->grade == TRI_GRADE_SERVES && c->goals_met;
    const char *colour = yes ? GREEN : c->grade == TRI_GRADE_NO ? RED : AMBER;
    tri_layout_name(&c->layout, layout, sizeof layout);
    tri__count(cards, (double)tri_fleet_cards(&p->fleet));
    tri_buf_printf(out, "%s on %s (%s card%s, %.1f GiB each), engine %s\n\n", p->arch->name,
                   p->fleet.text, cards, tri_fleet_cards(&p->fleet) == 1 ? "" : "s",
                   p->fleet.device.mem_gib, p->options.engine);
    tri_buf_printf(out, "  %s%s%s%s", paint(s, BOLD), paint(s, colour),
                   yes || c->grade != TRI_GRADE_SERVES ? tri__grade_title(c->grade)
                                                       : "SERVES, MISSES THE GOAL",
                   paint(s, PLAIN));
    tri_buf_printf(out, "  with %s%s", layout,
                   c->experts_number >= 0 || c->dense_number >= 0 ? " in " : "");
    if (c->experts_number >= 0 || c->dense_number >= 0)
        tri_buf_puts(out, tri_number_name((enum tri_number)(
                              c->experts_number >= 0 ? c->experts_number : c->dense_number)));
    tri_buf_printf(out, "\n  %s\n", c->reason);
    if (c->grade == TRI_GRADE_LOADS || c->grade == TRI_GRADE_GENERATES)
        tri_buf_printf(out, "  (%s)\n",
                       c->grade == TRI_GRADE_LOADS
                           ? "the weights fit, nothing can be generated beside them"
                       : c->held > 0 ? "it answers, but not the load asked for as a service"
                                     : "answers one short request, not the load asked for");
    if (p->goal_count) {
        tri_buf_puts(out, "  goals:");
        for (int i = 0; i < p->goal_count; i++)
            tri_buf_printf(out, "%s %s %.4g", i ? "," : "", tri_goal_name(p->goals[i].what),
                           p->goals[i].value);
        tri_buf_printf(out, ": %s\n", yes ? "met" : "not met");
    }
}

static void bar(struct tri_buf *out, const double *parts, const char *marks, int n, double all,
                int width)
{
    double sum = 0;
    int at = 0;
    tri_buf_puts(out, "  [");
    for (int i = 0; i < n; i++) {
        sum += parts[i];
        int to = (int)lround(sum / all * width);
        for (; at < to && at < width; at++)
            tri_buf_putc(out, marks[i]);
    }
    for (; at < width; at++)
        tri_buf_putc(out, ' ');
    tri_buf_puts(out, sum > all * 1.0001 ? ">\n" : "]\n");
}

static void memory(const struct tri_plan *p, struct tri_report_style s, struct tri_buf *out)
{
    const struct tri_candidate *c = &p->best;
    const struct tri_stage_memory *m = &c->stage[c->full_stage];
    const struct tri_device *d = &p->fleet.device;
    double all = d->mem_gib * d->usable, held = (double)m->cache_bytes / TRI__GIB;
    double weights = (double)m->weights_bytes / TRI__GIB;
    double work = (double)m->workspace_bytes / TRI__GIB;
    double reserve = all - weights - work - held;
    double parts[] = { weights, work, held };
    char tokens[32];
    tri__count(tokens, (double)m->capacity_tokens);
    tri_buf_printf(out, "\n%sMemory of the card that decides%s", paint(s, BOLD), paint(s, PLAIN));
    if (c->layout.pp > 1)
        tri_buf_printf(out, " (stage %d of %d, %d layers)", c->full_stage + 1, c->layout.pp,
                       c->layout.stage_layers[c->full_stage]);
    tri_buf_printf(out, ", %.1f GiB\n", all);
    bar(out, parts, "#w=", 3, all, s.width - 6 > 72 ? 72 : s.width - 6);
    tri_buf_printf(out, "  # weights %.2f (split %.2f, replicated %.2f)   w workspace %.2f assumed",
                   weights, (double)m->weights.split_total_bytes / TRI__GIB,
                   (double)m->weights.replicated_total_bytes / TRI__GIB, work);
    if (c->workspace.attnres_bytes)
        tri_buf_printf(out, " (AttnRes %.2f)", (double)c->workspace.attnres_bytes / TRI__GIB);
    tri_buf_printf(out, "\n  = cache %.2f: %s tokens at %llu bytes", held, tokens,
                   (unsigned long long)m->state.bytes_per_token);
    if (m->state.kda_bytes)
        tri_buf_printf(out, " + %.1f MiB of state a sequence",
                       (double)(m->state.kda_bytes + m->state.conv_bytes) / 1048576);
    if (reserve > 0.05)
        tri_buf_printf(out, "   unused %.2f", reserve);
    tri_buf_putc(out, '\n');
    if (m->weights.padding_bytes)
        tri_buf_printf(out,
                       "  %.2f MiB of the weights are padding (vocabulary or experts that do "
                       "not divide)\n",
                       (double)m->weights.padding_bytes / 1048576);
}

static void figure(struct tri_buf *out, const char *name, double low, double value, double high,
                   bool time)
{
    char a[32], b[32], c[32];
    if (time) {
        tri__ms(a, low);
        tri__ms(b, value);
        tri__ms(c, high);
    } else {
        snprintf(a, sizeof a, "%.4g", low);
        snprintf(b, sizeof b, "%.4g", value);
        snprintf(c, sizeof c, "%.4g", high);
    }
    tri_buf_printf(out, "  %-10s %10s   (%s to %s)\n", name, b, a, c);
}

static void step_parts(const struct tri_step_time *t, struct tri_buf *out)
{
    const struct {
        const char *name;
        double ms;
    } parts[] = {
        { "shared weights", t->dense },  { "experts", t->experts },
        { "cache and state", t->cache }, { "compute", t->compute },
        { "layer overhead", t->layers }, { "links", t->link },
        { "draft", t->draft },           { "drive", t->disk },
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        int n = (int)lround(parts[i].ms / t->total * 40);
        if (parts[i].ms < t->total * 0.01)
            continue;
        tri_buf_printf(out, "    %-16s %7.2f ms ", parts[i].name, parts[i].ms);
        for (int k = 0; k < n; k++)
            tri_buf_putc(out, '-');
        tri_buf_putc(out, '\n');
    }
}

static void speed(const struct tri_plan *p, struct tri_report_style s, struct tri_buf *out)
{
    const struct tri_speed *v = &p->best.speed;
    const struct tri_plan_options *o = &p->options;
    char in[32], answer[32], step[32];
    if (p->best.grade < TRI_GRADE_GENERATES)
        return;
    tri__count(in, (double)o->input_tokens);
    tri__count(answer, (double)o->output_tokens);
    tri__ms(step, v->step_ms);
    tri_buf_printf(out,
                   "\n%sSpeed%s with %lld at once, %s tokens in, %s out (profile %s%s; band "
                   "%.0f %%)\n",
                   paint(s, BOLD), paint(s, PLAIN), (long long)o->concurrency, in, answer,
                   p->profile->id, tri__basis(p), v->band * 100);
    figure(out, "TTFT", tri__low(v, v->ttft_ms, true), v->ttft_ms, tri__high(v, v->ttft_ms, true),
           true);
    if (v->tpot_ms > 0)
        figure(out, "TPOT", tri__low(v, v->tpot_ms, true), v->tpot_ms,
               tri__high(v, v->tpot_ms, true), true);
    figure(out, "tokens/s", tri__low(v, v->tokens_per_s, false), v->tokens_per_s,
           tri__high(v, v->tokens_per_s, false), false);
    tri_buf_printf(out, "  One decode step of %.0f sequences, %s:\n",
                   v->running / p->best.layout.replicas, step);
    step_parts(&v->step, out);
    tri_buf_printf(out, "  Bound by %s", tri_binding_name(v->binding));
    if (v->prefill_share > 0.05)
        tri_buf_printf(out, "; prompts take %.0f %% of the time", v->prefill_share * 100);
    if (v->waiting > 0.5 && p->best.served_concurrency < o->concurrency)
        tri_buf_printf(out, "; %.0f requests wait for room in the cache", v->waiting);
    tri_buf_putc(out, '\n');
}

/* Chosen for fewer cards a request or published weights: say what the fastest would give. */
static void faster(const struct tri_plan *p, struct tri_buf *out)
{
    const struct tri_candidate *c = &p->best, *f = &p->fastest;
    char name[96];
    if (!f->cards || f->speed.tokens_per_s < c->speed.tokens_per_s * 1.1)
        return;
    int number = f->experts_number >= 0 ? f->experts_number : f->dense_number;
    tri_layout_name(&f->layout, name, sizeof name);
    tri_buf_printf(out,
                   "  Fastest: %s%s%s, %.3g times the tokens/s, TPOT %.3g ms, on %lld card%s a "
                   "request instead of %lld\n",
                   name, number >= 0 ? " in " : "",
                   number >= 0 ? tri_number_name((enum tri_number)number) : "",
                   f->speed.tokens_per_s / c->speed.tokens_per_s, f->speed.tpot_ms,
                   (long long)(f->cards / f->layout.replicas),
                   f->cards > f->layout.replicas ? "s" : "",
                   (long long)(c->cards / c->layout.replicas));
}

static void alternatives(const struct tri_plan *p, struct tri_report_style s, struct tri_buf *out)
{
    int n = p->others < 6 || s.all ? p->others : 6;
    if (p->others > 1) {
        tri_buf_printf(out, "\n%sAlternatives%s%34s %9s %9s %8s %8s %7s\n", paint(s, BOLD),
                       paint(s, PLAIN), "cards/request", "weights", "cache tok", "TPOT ms",
                       "tokens/s", "$/M out");
        for (int i = 0; i < n; i++) {
            const struct tri_candidate *c = &p->other[i];
            const struct tri_stage_memory *m = &c->stage[c->full_stage];
            char name[96], label[128], tokens[32];
            double usd =
                c->usd_per_million_own > 0 ? c->usd_per_million_own : c->usd_per_million_rent;
            int number = c->experts_number >= 0 ? c->experts_number : c->dense_number;
            tri_layout_name(&c->layout, name, sizeof name);
            snprintf(label, sizeof label, "%s%s%s", name, number >= 0 ? " " : "",
                     number >= 0 ? tri_number_name((enum tri_number)number) : "");
            tri__count(tokens, (double)m->capacity_tokens * c->layout.dp * c->layout.replicas);
            tri_buf_printf(out, "  %-30.30s %13lld %9.2f %9s %8.4g %8.4g %7.4g %s\n", label,
                           (long long)(c->cards / c->layout.replicas),
                           (double)m->weights_bytes / TRI__GIB, tokens, c->speed.tpot_ms,
                           c->speed.tokens_per_s, usd,
                           c->grade == TRI_GRADE_SERVES ? c->goals_met ? "" : "misses goal"
                                                        : "generates only");
        }
    }
    faster(p, out);
    if (p->rejected_count + p->rejected_more == 0)
        return;
    n = s.all ? p->rejected_count : p->rejected_count < 3 ? p->rejected_count : 3;
    tri_buf_printf(out, "\n%sRejected%s: %d layouts%s\n", paint(s, BOLD), paint(s, PLAIN),
                   p->rejected_count + p->rejected_more,
                   n < p->rejected_count ? " (--all lists them), among them" : "");
    for (int i = 0; i < n; i++) {
        int at = s.all ? i : i * (p->rejected_count - 1) / (n > 1 ? n - 1 : 1);
        char name[96];
        tri_layout_name(&p->rejected[at].layout, name, sizeof name);
        tri_buf_printf(out, "  %-22s %s\n", name, p->rejected[at].reason);
    }
}

static void advice(const struct tri_plan *p, struct tri_report_style s, struct tri_buf *out)
{
    if (!p->advices)
        return;
    tri_buf_printf(out, "\n%sWhat would change the answer%s\n", paint(s, BOLD), paint(s, PLAIN));
    for (int i = 0; i < p->advices; i++) {
        const struct tri_advice *a = &p->advice[i];
        tri_buf_printf(out, "  %s %s\n      %s", a->works ? "+" : "-", a->change, a->effect);
        if (a->usd_h > 0)
            tri_buf_printf(out, " (+$%.0f an hour at rent)", a->usd_h);
        tri_buf_putc(out, '\n');
    }
}

/* Words of a paragraph in lines of at most `width`, each after `indent` blanks. */
static void wrapped(struct tri_buf *out, const char *text, int indent, int width)
{
    int at = 0;
    while (*text) {
        int n = (int)strcspn(text, " \n");
        if (!at || at + 1 + n > width) {
            tri_buf_printf(out, "%s%*s", at ? "\n" : "", indent, "");
            at = indent;
        } else {
            tri_buf_putc(out, ' ');
            at++;
        }
        tri_buf_add(out, text, (size_t)n);
        at += n;
        text += n + strspn(text + n, " \n");
    }
    tri_buf_putc(out, '\n');
}

static void assumed(const struct tri_plan *p, struct tri_report_style s, struct tri_buf *out)
{
    struct tri_buf words;
    tri_buf_init(&words, 1 << 16);
    tri_buf_puts(&words, "Assumed: ");
    tri__assumptions_text(p, &words);
    tri_buf_putc(out, '\n');
    if (!words.failed)
        wrapped(out, words.data, 0, s.width);
    tri_buf_fini(&words);
}

static void cost(const struct tri_plan *p, struct tri_report_style s, struct tri_buf *out)
{
    struct tri_buf words;
    tri_buf_init(&words, 1 << 16);
    tri__cost_text(p, &words);
    if (words.len_bytes)
        tri_buf_putc(out, '\n');
    if (words.len_bytes && !words.failed)
        wrapped(out, words.data, 0, s.width);
    tri_buf_fini(&words);
}

static void launch(const struct tri_plan *p, struct tri_report_style s, struct tri_buf *out)
{
    struct tri_buf words;
    if (p->best.grade < TRI_GRADE_GENERATES)
        return;
    tri_buf_puts(out, "\nLaunch (--launch explains each flag, --guide brings it up in stages):\n");
    tri_buf_init(&words, 1 << 16);
    tri__launch_line(p, p->options.engine, &words);
    if (!words.failed)
        wrapped(out, words.data, 2, s.width);
    tri_buf_fini(&words);
}

enum tri_status tri_plan_text(const struct tri_plan *p, struct tri_report_style s,
                              struct tri_buf *out)
{
    verdict(p, s, out);
    memory(p, s, out);
    if (s.all)
        tri__ledger_text(p, out);
    speed(p, s, out);
    tri__layout_text(p, s, out);
    alternatives(p, s, out);
    cost(p, s, out);
    advice(p, s, out);
    assumed(p, s, out);
    launch(p, s, out);
    return out->failed;
}
