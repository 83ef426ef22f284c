/*
 * From a question to an answer: names become an arch, a fleet and an engine profile; defaults are
 * filled in; what contradicts itself is refused; then search, curve and advice.
 */
#include "plan/plan_priv.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"

void tri_plan_close(struct tri_plan *plan)
{
    struct tri__plan *p = (struct tri__plan *)plan;
    if (!p)
        return;
    tri_arch_close(p->pub.arch);
    tri_fleet_fini(&p->pub.fleet);
    tri__profiles_close(p->profiles);
    tri_devices_close(p->pub.devices);
    tri_free(p);
}

/* ---- machines and engine -------------------------------------------------------------------- */

static enum tri_status open_fleet(struct tri__plan *p, struct tri_error *err)
{
    const struct tri_plan_options *o = &p->pub.options;
    if (o->captured)
        return tri_fleet_from_machine(&p->pub.fleet, p->pub.devices, o->captured, NULL, o->machines,
                                      err);
    if (o->hw && !o->machine)
        return tri_fleet_parse(&p->pub.fleet, p->pub.devices, o->hw, err);
    if (!o->machine)
        return tri_fail(err, TRI_ARG,
                        "which machines? --hw 4x8xH20-96GB, or --machine FILE (hwloc or NCCL XML, "
                        "nvidia-smi topo -m, trireme doctor --json)");
    struct tri_machine *machine = NULL;
    const struct tri_device *device = NULL; /* with --machine, --hw only names the part */
    enum tri_status status = TRI_OK;
    if (o->hw && tri_devices_find(&device, p->pub.devices, o->hw, NULL))
        status = tri_fail(err, TRI_ARG,
                          "--hw %.60s: beside --machine it names the part only, like H100 "
                          "(--list devices)",
                          o->hw);
    if (!status)
        status = tri__capture_open(&machine, o->machine, err);
    if (!status)
        status = tri_fleet_from_machine(&p->pub.fleet, p->pub.devices, machine, device, o->machines,
                                        err);
    tri_machine_close(machine);
    return status;
}

const char *tri__default_engine(const struct tri_device *d)
{
    if (d->kind != TRI_DEVICE_GPU)
        return "trireme";
    bool small = !strncmp(d->arch, "Ada", 3) || !strncmp(d->arch, "Ampere", 6) ||
                 !strncmp(d->arch, "DaVinci", 7) || strstr(d->name, "RTX");
    return small ? "vllm" : "sglang";
}

/* What only the machines can refuse. */
static enum tri_status check_fleet(const struct tri__plan *p, struct tri_error *err)
{
    const struct tri_plan_options *o = &p->pub.options;
    const struct tri_device *d = &p->pub.fleet.device;
    if (o->cache_gib > d->mem_gib)
        return tri_fail(err, TRI_ARG, "--cache-gib %.4g is more than the %.1f GiB of a %s",
                        o->cache_gib, d->mem_gib, d->name);
    return TRI_OK;
}

static enum tri_status pick_engine(struct tri__plan *p, struct tri_error *err)
{
    struct tri_plan_options *o = &p->pub.options;
    const struct tri_device *d = &p->pub.fleet.device;
    if (!o->engine)
        o->engine = tri__default_engine(d);
    if (d->kind != TRI_DEVICE_GPU && strcmp(o->engine, "trireme"))
        return tri_fail(err, TRI_ARG, "%s does not run on %s; --engine trireme does", o->engine,
                        d->name);
    enum tri_status status = tri__profiles_find(&p->pub.profile, p->profiles, o->engine, d, err);
    if (!status && !o->chunk_tokens)
        o->chunk_tokens = p->pub.profile->chunk_tokens;
    if (!status)
        p->band = tri__band_for(p->pub.profile, d);
    return status;
}

/* ---- numbers -------------------------------------------------------------------------------- */

static bool has_family(const struct tri_arch *a, enum tri_attn_family family)
{
    for (int i = 0; i < a->class_count; i++)
        if (a->classes[i].family == family)
            return true;
    return false;
}

/* Other engines hold KDA states in f32; so does Trireme unless asked. */
static enum tri_status read_kda_state(struct tri__plan *p, struct tri_error *err)
{
    const struct tri_plan_options *o = &p->pub.options;
    char safe[40];
    p->kda_bf16 = o->kda_state && !strcmp(o->kda_state, "bf16");
    if (!o->kda_state)
        return TRI_OK;
    if (!p->kda_bf16 && strcmp(o->kda_state, "f32"))
        return tri_fail(err, TRI_ARG, "--kda-state %s: expected f32 or bf16",
                        tri_printable(safe, sizeof safe, o->kda_state, strnlen(o->kda_state, 100)));
    if (!has_family(p->pub.arch, TRI_FAMILY_KDA))
        return tri_fail(err, TRI_ARG, "--kda-state: %s has no KDA layers", p->pub.arch->name);
    if (p->kda_bf16 && (!p->pub.profile || strcmp(p->pub.profile->engine, "trireme")))
        return tri_fail(
            err, TRI_ARG,
            "--kda-state bf16: planned for a machine (--hw) with --engine trireme only");
    return TRI_OK;
}

static enum tri_status read_numbers(struct tri__plan *p, struct tri_error *err)
{
    static const char *const caches[] = { "bf16", "fp8", "fp8_ds_mla", "f32" };
    struct tri_plan_options *o = &p->pub.options;
    enum tri_status status = TRI_OK;
    enum tri_number number;
    if (o->precision && (o->experts || o->dense))
        return tri_fail(err, TRI_ARG, "--precision sets --experts and --dense: give it or them");
    if (o->precision) {
        o->dense = o->precision;
        o->experts = p->pub.arch->experts ? o->precision : NULL;
    }
    p->experts_number = p->dense_number = -1;
    if (o->experts && strcmp(o->experts, "as-published")) {
        status = tri_number_parse(&number, o->experts, err);
        p->experts_number = (int)number;
    }
    if (!status && o->experts && !p->pub.arch->experts)
        status = tri_fail(err, TRI_ARG, "--experts: %s has no routed experts", p->pub.arch->name);
    if (!status && o->dense && strcmp(o->dense, "as-published")) {
        status = tri_number_parse(&number, o->dense, err);
        p->dense_number = (int)number;
    }
    if (status)
        return status;
    /* K3's recipes all pass an fp8 cache; others serve in bf16 unless told */
    bool gpu = p->pub.fleet.device.kind == TRI_DEVICE_GPU;
    p->cache = has_family(p->pub.arch, TRI_FAMILY_KDA) && gpu ? TRI_CACHE_FP8 : TRI_CACHE_BF16;
    if (!o->kv)
        return TRI_OK;
    for (int i = 0; i < 4; i++)
        if (!strcmp(o->kv, caches[i])) {
            p->cache = (enum tri_cache_number)i;
            return TRI_OK;
        }
    char safe[40];
    return tri_fail(err, TRI_ARG, "--kv %s: expected bf16, fp8, fp8_ds_mla or f32",
                    tri_printable(safe, sizeof safe, o->kv, strnlen(o->kv, 100)));
}

/* "dspark7", "mtp1", "7": tokens drafted; what a step yields by the published acceptance. */
static enum tri_status read_speculation(struct tri__plan *p, struct tri_error *err)
{
    /* DSpark on short coding prompts, by drafted tokens (planner notes 1.5, row 15) */
    static const double golden[] = { 1, 1.84, 2.45, 2.87, 3.22, 3.44, 3.54, 3.78, 3.88 };
    const struct tri_plan_options *o = &p->pub.options;
    p->pub.acceptance = 1;
    if (!o->spec || !strcmp(o->spec, "none"))
        return TRI_OK;
    const char *digits = o->spec;
    while (isalpha((unsigned char)*digits))
        digits++;
    char *end = NULL;
    long k = isdigit((unsigned char)*digits) ? strtol(digits, &end, 10) : 0;
    if (k < 1 || k > 8 || *end) {
        char safe[40];
        return tri_fail(err, TRI_ARG, "--spec %s: expected dspark1 to dspark8, mtp1, or none",
                        tri_printable(safe, sizeof safe, o->spec, strnlen(o->spec, 100)));
    }
    p->pub.draft_tokens = (int)k;
    p->pub.acceptance = o->acceptance > 0 ? o->acceptance : golden[k];
    if (p->pub.acceptance < 1 || p->pub.acceptance > (double)k + 1)
        return tri_fail(err, TRI_ARG,
                        "--acceptance %.3g: a step of %ld drafted tokens yields 1 to %ld",
                        p->pub.acceptance, k, k + 1);
    return TRI_OK;
}

static enum tri_status read_stages(struct tri__plan *p, struct tri_error *err)
{
    const char *text = p->pub.options.stages;
    struct tri_layout *l = &p->asked;
    if (!text)
        return TRI_OK;
    int32_t sum = 0, n = 0;
    for (const char *at = text; *at && n < TRI_LAYOUT_MAX_STAGES; n++) {
        char *end = NULL;
        long layers = isdigit((unsigned char)*at) ? strtol(at, &end, 10) : 0;
        if (layers < 1 || layers > p->pub.arch->layers || (*end && *end != ','))
            break;
        l->stage_layers[n] = (int32_t)layers;
        sum += (int32_t)layers;
        at = *end ? end + 1 : end;
    }
    if (n == l->pp && sum == p->pub.arch->layers)
        return TRI_OK;
    return tri_fail(err, TRI_ARG,
                    "--stages %.80s: expected %d counts, one a pipeline stage of --layout, that "
                    "sum to %d layers",
                    text, l->pp > 0 ? l->pp : 1, p->pub.arch->layers);
}

/* ---- what contradicts itself ---------------------------------------------------------------- */

static enum tri_status check_tokens(struct tri__plan *p, struct tri_error *err)
{
    struct tri_plan_options *o = &p->pub.options;
    int64_t turn = o->input_tokens + o->output_tokens;
    if (o->context_tokens && o->context_tokens < turn)
        return tri_fail(err, TRI_ARG,
                        "--context %lld is less than input + output = %lld: raise it or ask for "
                        "fewer tokens",
                        (long long)o->context_tokens, (long long)turn);
    if (o->role == TRI_ROLE_PREFILL)
        turn = o->input_tokens + (o->output_tokens = 1);
    if (!o->context_tokens)
        o->context_tokens = turn;
    if (o->context_tokens > p->pub.arch->context_tokens)
        return tri_fail(err, TRI_ARG, "%s has %d positions; --context (or input + output) is %lld",
                        p->pub.arch->name, p->pub.arch->context_tokens,
                        (long long)o->context_tokens);
    return TRI_OK;
}

static enum tri_status check_goals(struct tri__plan *p, struct tri_error *err)
{
    struct tri_plan_options *o = &p->pub.options;
    if (!o->goal)
        return TRI_OK;
    enum tri_status status = tri_parse_goals(p->pub.goals, &p->pub.goal_count, o->goal, err);
    for (int i = 0; i < p->pub.goal_count && !status; i++) {
        const struct tri_goal *g = &p->pub.goals[i];
        if (g->what == TRI_GOAL_USERS && o->concurrency_given && g->value > (double)o->concurrency)
            return tri_fail(err, TRI_ARG,
                            "goal: users >= %.0f contradicts --concurrency %lld; give one of them",
                            g->value, (long long)o->concurrency);
        if (g->what == TRI_GOAL_USERS)
            o->concurrency = (int64_t)g->value < 1 ? 1 : (int64_t)g->value;
        if (g->what == TRI_GOAL_USERS && g->value > TRI_PLAN_MAX_CONCURRENCY)
            return tri_fail(err, TRI_ARG, "goal: users up to %d are planned for",
                            TRI_PLAN_MAX_CONCURRENCY);
    }
    return status;
}

static enum tri_status check_ranges(const struct tri_plan_options *o, struct tri_error *err)
{
    if (o->utilisation < 0 || o->utilisation > 1)
        return tri_fail(err, TRI_ARG, "--util %.3g: expected a share of memory from 0 to 1",
                        o->utilisation);
    if (o->spread < 0 || o->spread > 1)
        return tri_fail(err, TRI_ARG, "--spread %.3g: expected a share of the mean from 0 to 1",
                        o->spread);
    if (o->acceptance > 0 && !(o->spec && strcmp(o->spec, "none")))
        return tri_fail(err, TRI_ARG, "--acceptance says what --spec yields: give both");
    if (o->machines != 1 && !o->machine)
        return tri_fail(err, TRI_ARG,
                        "--machines multiplies --machine; with --hw write nodes x cards x device");
    if (o->stages && !o->layout)
        return tri_fail(err, TRI_ARG, "--stages divides the layers of a --layout: give both");
    if (o->machines < 1 || o->machines > 1024)
        return tri_fail(err, TRI_ARG, "--machines %d: expected 1 to 1024", o->machines);
    return TRI_OK;
}

/* ---- curve ---------------------------------------------------------------------------------- */

void tri__curve(struct tri__plan *plan)
{
    struct tri_plan *p = &plan->pub;
    const struct tri_candidate *c = &p->best;
    if (c->grade < TRI_GRADE_GENERATES)
        return;
    double usd = tri__usd_h(&p->options, &p->fleet.device, true);
    usd = usd > 0 ? usd : tri__usd_h(&p->options, &p->fleet.device, false);
    int64_t most = c->served_concurrency * 4 > p->options.concurrency * 4
                       ? c->served_concurrency * 2
                       : p->options.concurrency * 4;
    for (int64_t n = 1; n <= most && n <= 1024 && p->curve_points < TRI_PLAN_CURVE; n *= 2) {
        struct tri_speed s;
        tri__candidate_speed(plan, &p->fleet, c, n, &s);
        p->curve[p->curve_points++] = (struct tri_curve_point){
            .concurrency = (double)n,
            .ttft_ms = s.ttft_ms,
            .tpot_ms = s.tpot_ms,
            .tokens_per_s = s.tokens_per_s,
            .usd_per_million = tri__usd_per_million(usd, c->cards, s.tokens_per_s),
            .fits = n <= c->served_concurrency,
        };
    }
}

/* ---- all together --------------------------------------------------------------------------- */

/* Everything but the machines: model, formats, speculation, tokens, goals. */
static enum tri_status resolve_load(struct tri__plan *p, struct tri_error *err)
{
    const struct tri_plan_options *o = &p->pub.options;
    enum tri_status status = read_numbers(p, err);
    if (!status)
        status = read_kda_state(p, err);
    if (!status)
        status = read_speculation(p, err);
    if (!status && o->layout)
        status = tri_layout_parse(&p->asked, o->layout, p->pub.arch->layers, err);
    if (!status)
        status = read_stages(p, err);
    if (!status)
        status = check_tokens(p, err);
    if (!status)
        status = check_goals(p, err);
    p->no_latent = !has_family(p->pub.arch, TRI_FAMILY_MLA);
    return status;
}

static enum tri_status open_tables(struct tri__plan *p, const struct tri_notes *notes,
                                   struct tri_error *err)
{
    const struct tri_plan_options *o = &p->pub.options;
    enum tri_status status = check_ranges(o, err);
    if (!status && !o->model)
        status = tri_fail(err, TRI_ARG, "which model? --model kimi-k3, or a config.json");
    if (!status)
        status = tri_devices_open(&p->pub.devices, err);
    if (!status)
        status = tri__profiles_open(&p->profiles, err);
    if (!status)
        status = tri_arch_open(&p->pub.arch, o->model, o->lenient, notes, err);
    return status;
}

static enum tri_status resolve(struct tri__plan *p, const struct tri_notes *notes,
                               struct tri_error *err)
{
    enum tri_status status = open_tables(p, notes, err);
    if (!status)
        status = open_fleet(p, err);
    if (!status)
        status = check_fleet(p, err);
    if (!status)
        status = pick_engine(p, err);
    return status ? status : resolve_load(p, err);
}

enum tri_status tri__plan_for_any(struct tri__plan **out, const struct tri_plan_options *options,
                                  const struct tri_notes *notes, struct tri_error *err)
{
    struct tri__plan *p = tri_calloc(1, sizeof *p);
    if (!p)
        return tri_fail(err, TRI_NOMEM, "no memory for a plan");
    p->pub.options = *options;
    enum tri_status status = open_tables(p, notes, err);
    if (!status) {
        p->pub.fleet.device = *tri_devices_at(p->pub.devices, 0); /* formats default as on a card */
        status = resolve_load(p, err);
    }
    if (status) {
        tri_plan_close(&p->pub);
        return status;
    }
    *out = p;
    return TRI_OK;
}

enum tri_status tri__plan_point(struct tri_plan **out, const struct tri_plan_options *options,
                                struct tri_error *err)
{
    struct tri__plan *p = tri_calloc(1, sizeof *p);
    if (!p)
        return tri_fail(err, TRI_NOMEM, "no memory for a plan");
    p->pub.options = *options;
    enum tri_status status = resolve(p, NULL, err);
    if (!status)
        status = tri__search(p, &p->pub.fleet, false, &p->pub.best, err);
    if (status)
        tri_plan_close(&p->pub);
    else
        *out = &p->pub;
    return status;
}

enum tri_status tri_plan_make(struct tri_plan **out, const struct tri_plan_options *options,
                              const struct tri_notes *notes, struct tri_error *err)
{
    struct tri__plan *p = tri_calloc(1, sizeof *p);
    if (!p)
        return tri_fail(err, TRI_NOMEM, "no memory for a plan");
    p->pub.options = *options;
    enum tri_status status = resolve(p, notes, err);
    if (!status)
        status = tri__search(p, &p->pub.fleet, true, &p->pub.best, err);
    if (status) {
        tri_plan_close(&p->pub);
        return status;
    }
    tri__curve(p);
    tri__advise(p);
    *out = &p->pub;
    return TRI_OK;
}
