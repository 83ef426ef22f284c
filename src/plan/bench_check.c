/*
 * A result beside the plan: what share of each figure was reached, whether the result agrees with
 * itself, and the likeliest cause of the gap.
 */
#include "plan/bench_priv.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CAUSES = 8, MAX_FIGURES = TRI__BENCH_MAX_ROWS };

struct figure {
    char name[48];
    double planned, measured;
    bool time; /* smaller is better */
};

struct check {
    const struct tri_plan *plan;
    const struct tri__bench *bench;
    struct figure figure[MAX_FIGURES];
    int figures;
    char cause[MAX_CAUSES][260];
    int causes;
    bool same_load;
};

static void say(struct check *c, const char *format, ...) TRI_PRINTF(2, 3);
static void say(struct check *c, const char *format, ...)
{
    va_list args;
    if (c->causes == MAX_CAUSES)
        return;
    va_start(args, format);
    vsnprintf(c->cause[c->causes++], sizeof c->cause[0], format, args);
    va_end(args);
}

static double share_of(const struct figure *f)
{
    return f->time ? f->planned / f->measured : f->measured / f->planned;
}

static void add(struct check *c, const char *name, double planned, double measured, bool time)
{
    if (measured <= 0 || planned <= 0 || c->figures == MAX_FIGURES)
        return;
    struct figure *f = &c->figure[c->figures++];
    *f = (struct figure){ .planned = planned, .measured = measured, .time = time };
    snprintf(f->name, sizeof f->name, "%s", name);
}

static bool differs(double a, double b, double share)
{
    return a > 0 && b > 0 && fabs(a / b - 1) > share;
}

/* ---- a server under load -------------------------------------------------------------------- */

/* Before anything is blamed: was the same load asked, and does the file agree with itself? */
static void check_load(struct check *c)
{
    const struct tri_plan_options *o = &c->plan->options;
    const struct tri__bench *r = c->bench;
    if (differs(r->input_tokens, (double)o->input_tokens, 0.15) ||
        differs(r->output_tokens, (double)o->output_tokens, 0.15)) {
        c->same_load = false;
        say(c,
            "another load: %.0f tokens in and %.0f out were measured, %lld and %lld planned; plan "
            "again with --input %.0f --output %.0f",
            r->input_tokens, r->output_tokens, (long long)o->input_tokens,
            (long long)o->output_tokens, fmax(1, round(r->input_tokens)),
            fmax(1, round(r->output_tokens)));
    }
    if (differs(r->concurrency, (double)o->concurrency, 0.01)) {
        c->same_load = false;
        say(c,
            "another load: %.0f at once were measured, %lld planned; plan again with "
            "--concurrency %.0f",
            r->concurrency, (long long)o->concurrency, r->concurrency);
    }
    if (differs(r->acceptance, c->plan->acceptance, 0.1))
        say(c, "speculation yielded %.2f tokens a step, %.2f planned; plan again with --acceptance",
            r->acceptance, c->plan->acceptance);
    if (r->failed > 0)
        say(c, "%.0f requests failed: the figures leave them out", r->failed);
    double latency_s = (r->ttft_ms + r->tpot_ms * (r->output_tokens - 1)) / 1000;
    double little = r->requests_per_s * latency_s;
    if (r->concurrency > 0 && little > 0 && little < r->concurrency * 0.85)
        say(c,
            "Little's law: rate x latency is %.1f of %.0f clients: the client or a warm-up held "
            "requests back, not the engine",
            little, r->concurrency);
    if (little > r->concurrency * 1.15 && r->concurrency > 0)
        say(c,
            "Little's law: rate x latency is %.1f of %.0f clients: the file contradicts itself "
            "(TPOT counted per chunk, or tokens counted twice)",
            little, r->concurrency);
    if (r->itl_ms > r->tpot_ms * 1.5 && r->tpot_ms > 0)
        say(c,
            "gaps between chunks (%.1f ms) are %.1f times TPOT: chunks carry several tokens "
            "(speculation or streaming intervals); judge TPOT",
            r->itl_ms, r->itl_ms / r->tpot_ms);
}

static void blame_server(struct check *c)
{
    const struct tri_plan *p = c->plan;
    const struct tri__bench *r = c->bench;
    const struct tri_speed *s = &p->best.speed;
    double decode = r->tpot_ms > 0 ? s->tpot_ms / r->tpot_ms : 1;
    double prompt = r->ttft_ms > 0 ? s->ttft_ms / r->ttft_ms : 1;
    double edge = 1 / (1 + s->band);
    if (decode < edge) {
        double extra_us = (r->tpot_ms * p->acceptance - s->step_ms) * 1000 / p->arch->layers;
        if (s->step.link > s->step.total * 0.25)
            say(c,
                "decode reaches %.0f %% and links take %.0f %% of a planned step: look at the "
                "paths first (trireme doctor): P2P off, a pair across sockets, NCCL on sockets",
                decode * 100, s->step.link / s->step.total * 100);
        say(c,
            "decode: a step takes %.0f us a layer more than planned: graphs not captured "
            "(eager), young kernels for this card, or speculation accepted less",
            extra_us);
    }
    if (prompt < edge && decode >= edge)
        say(c, "prompts: decode is as planned, the first token is not: a start burst, a smaller "
               "prefill chunk, a cold prefix cache, or time before the engine (tokenizer, proxy)");
    else if (prompt < edge)
        say(c,
            "prompts: %.0f %% of plan as well: bandwidth or clocks of the cards, or the links, "
            "rather than one kernel",
            prompt * 100);
    if (decode > 1 + s->band)
        say(c,
            "decode is faster than planned by more than the band: fewer tokens, a shared prefix, "
            "or synthetic acceptance; check what was counted");
}

/* ---- an engine without a server (trireme speed) --------------------------------------------- */

static void add_row(struct check *c, const struct tri__clock *clock,
                    const struct tri__bench_row *row)
{
    char name[48];
    double planned = 0;
    if (row->decode) {
        snprintf(name, sizeof name, "decode b%.0f depth %.0f", row->batch, row->depth);
        planned = row->batch / tri__decode_s(clock, row->batch, fmax(1, row->depth), NULL);
    } else {
        struct tri__prompt prompt = { row->tokens, row->depth, row->tokens, 1 };
        snprintf(name, sizeof name, "prefill %.0f depth %.0f", row->tokens, row->depth);
        planned = row->tokens / tri__prefill_s(clock, prompt, NULL);
    }
    add(c, name, planned, row->tokens_per_s, false);
}

static void blame_engine(struct check *c, const struct tri__clock *clock)
{
    const struct tri_device *d = &c->plan->fleet.device;
    const struct tri__bench *r = c->bench;
    double reads = clock->work[0].dense_bytes + clock->work[0].head_bytes, worst = 1;
    double expected = d->bw_gbs * c->plan->profile->bw_eff;
    bool slow_prefill = false, slow_decode = false;
    for (int i = 0; i < c->figures; i++) {
        double share = share_of(&c->figure[i]);
        bool slow = share < 1 / (1 + c->plan->best.speed.band);
        slow_decode |= slow && c->figure[i].name[0] == 'd';
        slow_prefill |= slow && c->figure[i].name[0] == 'p';
        worst = share < worst ? share : worst;
    }
    if (differs(r->trunk_bytes, reads, 0.03)) {
        c->same_load = false;
        say(c,
            "another model or format: a step reads %.1f MB of trunk there (--trunk %s), %.1f "
            "planned; plan again with that model and --dense",
            r->trunk_bytes / 1e6, r->trunk, reads / 1e6);
    }
    if (r->read_gbs > 0 && r->read_gbs < expected * 0.9)
        say(c,
            "memory: this machine reads %.0f GB/s, the plan counts on %.0f of %s's %.0f: modules "
            "missing or slow, one socket only, or a shared machine",
            r->read_gbs, expected, d->name, d->bw_gbs);
    if (!c->same_load)
        return;
    if (slow_decode && r->read_gbs >= expected * 0.9)
        say(c,
            "decode reaches %.0f %% with bandwidth as planned: threads off their nodes, short "
            "rows, or a batch the kernels do not like (trireme speed shows seconds by part)",
            worst * 100);
    if (slow_prefill)
        say(c, "prefill is bound by operations: fewer cores or lower clocks than planned, or "
               "kernels without this machine's matrix instructions (trireme info names them)");
}

/* ---- telling -------------------------------------------------------------------------------- */

static void tell(const struct check *c, struct tri_buf *out)
{
    const struct tri_plan *p = c->plan;
    tri_buf_printf(out, "%s on %s, %s result beside the plan (band %.0f %%)\n", p->arch->name,
                   p->fleet.text, c->bench->tool, p->best.speed.band * 100);
    for (int i = 0; i < c->figures; i++) {
        const struct figure *f = &c->figure[i];
        double share = share_of(f);
        tri_buf_printf(out, "  %-24s %10.4g planned %10.4g measured   %4.0f %% of plan ", f->name,
                       f->planned, f->measured, fmin(share * 100, 9999));
        for (int k = 0; k < (int)fmin(round(share * 20), 40); k++)
            tri_buf_putc(out, '=');
        tri_buf_putc(out, '\n');
    }
    tri_buf_puts(out, c->causes ? "Likeliest first:\n" : "Within the band: nothing to look for.\n");
    for (int i = 0; i < c->causes; i++)
        tri_buf_printf(out, "  %d. %s\n", i + 1, c->cause[i]);
}

static json_t *as_json(const struct check *c)
{
    json_t *figures = json_array(), *causes = json_array();
    const struct tri_speed *s = &c->plan->best.speed;
    for (int i = 0; i < c->figures; i++) {
        const struct figure *f = &c->figure[i];
        json_array_append_new(figures, json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "figure",
                                                 f->name, "planned", f->planned, "low",
                                                 tri__low(s, f->planned, f->time), "high",
                                                 tri__high(s, f->planned, f->time), "measured",
                                                 f->measured, "share_of_plan", share_of(f)));
    }
    for (int i = 0; i < c->causes; i++)
        json_array_append_new(causes, json_string(c->cause[i]));
    return json_pack("{s:s, s:s, s:s, s:b, s:f, s:o, s:o}", "model", c->plan->arch->name,
                     "machines", c->plan->fleet.text, "tool", c->bench->tool, "same_load",
                     (int)c->same_load, "error_band", s->band, "figures", figures, "causes",
                     causes);
}

static void judge(struct check *c)
{
    const struct tri_plan *p = c->plan;
    const struct tri_speed *s = &p->best.speed;
    const struct tri__bench *r = c->bench;
    if (r->rows) {
        struct tri__clock clock;
        tri__candidate_clock((const struct tri__plan *)p, &p->fleet, &p->best, &clock);
        for (int i = 0; i < r->rows; i++)
            add_row(c, &clock, &r->row[i]);
        blame_engine(c, &clock);
        return;
    }
    add(c, "TTFT ms", s->ttft_ms, r->ttft_ms, true);
    add(c, "TPOT ms", s->tpot_ms, r->tpot_ms, true);
    add(c, "tokens/s", s->tokens_per_s, r->tokens_per_s, false);
    check_load(c);
    if (c->same_load)
        blame_server(c);
}

enum tri_status tri_plan_check(const struct tri_plan *plan, const char *path, bool json,
                               struct tri_buf *out, struct tri_error *err)
{
    struct tri__bench bench;
    struct check c = { .plan = plan, .bench = &bench, .same_load = true };
    enum tri_status status = tri__bench_read(&bench, path, err);
    if (status)
        return status;
    if (plan->best.grade < TRI_GRADE_GENERATES)
        return tri_fail(err, TRI_ARG,
                        "the plan says %s %s: there is no speed to hold the result against",
                        plan->arch->name, tri_grade_name(plan->best.grade));
    judge(&c);
    if (json)
        return tri__json_out(as_json(&c), out, err);
    tell(&c, out);
    return out->failed;
}
