/*
 * The time model against published measurements (data/measured.json): predicted beside measured,
 * the median and the worst, and the same with each device's own points left out (leave_out.c). A
 * miss of more than 35 % must have its cause in the data file.
 */
#include "plan/plan_priv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"

void tri__point_options(struct tri_plan_options *o, const json_t *point)
{
    const char *role = tri__str(point, "role", "");
    tri_plan_options_init(o);
    o->model = tri__str(point, "model", NULL);
    o->hw = tri__str(point, "hw", NULL);
    o->engine = tri__str(point, "engine", NULL);
    o->layout = tri__str(point, "layout", NULL);
    o->experts = tri__str(point, "experts", NULL);
    o->dense = tri__str(point, "dense", NULL);
    o->spec = tri__str(point, "spec", NULL);
    o->acceptance = tri__num(point, "acceptance", 0);
    o->input_tokens = (int64_t)tri__num(point, "input", 8192);
    o->output_tokens = (int64_t)tri__num(point, "output", 1024);
    o->concurrency = (int64_t)tri__num(point, "concurrency", 1);
    o->spread = tri__num(point, "spread", 0);
    o->utilisation = tri__num(point, "util", 0);
    o->kv = tri__str(point, "kv", NULL);
    o->precision = tri__str(point, "precision", NULL);
    o->chunk_tokens = (int64_t)tri__num(point, "chunk", 0);
    o->role = !strcmp(role, "prefill")  ? TRI_ROLE_PREFILL
              : !strcmp(role, "decode") ? TRI_ROLE_DECODE
                                        : TRI_ROLE_BOTH;
}

double tri__point_figure(const struct tri_plan *p, const char *figure)
{
    const struct tri_speed *s = &p->best.speed;
    double cards = (double)p->best.cards, nodes = cards / p->fleet.per_node;
    double input = s->total_tokens_per_s - s->tokens_per_s;
    const struct {
        const char *name;
        double value;
    } figures[] = {
        { "ttft_ms", s->ttft_ms },
        { "tpot_ms", s->tpot_ms },
        { "tokens_per_s", s->tokens_per_s },
        { "total_tokens_per_s", s->total_tokens_per_s },
        { "total_per_card", s->total_tokens_per_s / cards },
        { "output_per_card", s->tokens_per_s / cards },
        { "output_per_node", s->tokens_per_s / nodes },
        { "prefill_per_card", input / cards },
        { "prefill_per_node", input / nodes },
    };
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        if (!strcmp(figures[i].name, figure))
            return figures[i].value;
    return 0;
}

double tri__band_for(const struct tri_profile *profile, const struct tri_device *device)
{
    const double unseen = 0.45; /* four in five of the figures of a device left out */
    json_t *json = NULL;
    bool measured = false;
    size_t i;
    json_t *point;
    if (tri__plan_data(&json, "measured", NULL))
        return profile->band;
    json_array_foreach(json_object_get(json, "points"), i, point)
    { /* a rate of prompts alone says nothing about decode */
        bool decoded = strcmp(tri__str(point, "role", ""), "prefill") != 0;
        measured |= decoded && !strcmp(tri__str(point, "device", ""), device->name);
    }
    json_decref(json);
    return measured || profile->band > unseen ? profile->band : unseen;
}

struct validation {
    json_t *json;
    struct tri__profiles *profiles; /* what the figures' profiles point into */
    struct tri_validation pub;
};

/* ---- running -------------------------------------------------------------------------------- */

static enum tri_status run_point(struct validation *all, const json_t *point, struct tri_error *err)
{
    struct tri_validation *v = &all->pub;
    const struct tri_profile *profile = NULL;
    struct tri_plan_options o;
    struct tri_plan *plan = NULL;
    const char *figure;
    json_t *value;
    tri__point_options(&o, point);
    enum tri_status status = tri__plan_point(&plan, &o, err);
    if (!status)
        status = tri__profiles_find(&profile, all->profiles, plan->options.engine,
                                    &plan->fleet.device, err);
    json_object_foreach(json_object_get(point, "measured"), figure, value)
    {
        if (status || v->count == TRI_VALIDATION_MAX)
            break;
        struct tri_measured *m = &v->figure[v->count++];
        m->id = tri__str(point, "id", "?");
        m->device = tri__str(point, "device", "?");
        m->figure = figure;
        m->cause = tri__str(point, "cause", NULL);
        m->source = tri__str(point, "source", "");
        m->measured = json_number_value(value);
        m->predicted = tri__point_figure(plan, figure);
        m->error = m->predicted / m->measured - 1;
        m->profile = *profile;
        m->point = point;
        m->blind_error = (double)NAN;
    }
    tri_plan_close(plan);
    return status;
}

static void summarise(struct tri_validation *v)
{
    double with[TRI_VALIDATION_MAX], blind[TRI_VALIDATION_MAX];
    int n = 0, b = 0;
    for (int i = 0; i < v->count; i++) {
        const struct tri_measured *m = &v->figure[i];
        double miss = fabs(m->error);
        if (miss > TRI_VALIDATION_MISS && m->cause)
            v->explained++;
        else if (miss > TRI_VALIDATION_MISS)
            v->unexplained++;
        with[n++] = miss;
        if (!isnan(m->blind_error))
            blind[b++] = fabs(m->blind_error);
    }
    v->median = n ? tri__middle(with, n) : 0;
    v->p80 = n ? with[n * 4 / 5] : 0;
    v->worst = n ? with[n - 1] : 0;
    v->blind_median = b ? tri__middle(blind, b) : 0;
    v->blind_p80 = b ? blind[b * 4 / 5] : 0;
}

enum tri_status tri_validation_run(struct tri_validation **out, struct tri_error *err)
{
    struct validation *v = tri_calloc(1, sizeof *v);
    if (!v)
        return tri_fail(err, TRI_NOMEM, "no memory for the validation");
    enum tri_status status = tri__plan_data(&v->json, "measured", err);
    if (!status)
        status = tri__profiles_open(&v->profiles, err);
    size_t i;
    json_t *point;
    json_array_foreach(json_object_get(v->json, "points"), i, point)
    {
        if (status)
            break;
        if (json_object_get(point, "skip"))
            v->pub.skipped[v->pub.skips++ % TRI_VALIDATION_MAX] =
                (struct tri_skipped){ tri__str(point, "id", "?"), tri__str(point, "skip", "") };
        else
            status = run_point(v, point, err);
    }
    if (!status)
        status = tri__leave_out(&v->pub, err);
    if (status) {
        tri_validation_close(&v->pub);
        return status;
    }
    summarise(&v->pub);
    *out = &v->pub;
    return TRI_OK;
}

void tri_validation_close(struct tri_validation *validation)
{
    if (!validation)
        return;
    struct validation *v =
        (struct validation *)((char *)validation - offsetof(struct validation, pub));
    json_decref(v->json);
    tri__profiles_close(v->profiles);
    tri_free(v);
}

enum tri_status tri_validation_text(const struct tri_validation *v, struct tri_buf *out)
{
    tri_buf_printf(out, "%-24s %-19s %10s %10s %7s %9s\n", "point", "figure", "measured",
                   "predicted", "error", "left out");
    for (int i = 0; i < v->count; i++) {
        const struct tri_measured *m = &v->figure[i];
        char blind[16] = "-";
        if (!isnan(m->blind_error))
            snprintf(blind, sizeof blind, "%+.0f %%", m->blind_error * 100);
        tri_buf_printf(out, "%-24s %-19s %10.5g %10.5g %+5.0f %% %9s%s%s\n", m->id, m->figure,
                       m->measured, m->predicted, m->error * 100, blind,
                       fabs(m->error) > TRI_VALIDATION_MISS ? "  cause: " : "",
                       fabs(m->error) > TRI_VALIDATION_MISS ? (m->cause ? m->cause : "NOT STATED")
                                                            : "");
    }
    tri_buf_printf(out,
                   "\n%d figures: median miss %.1f %%, four in five within %.1f %%, worst "
                   "%.0f %%; %d over %.0f %% with a stated cause, %d without\n",
                   v->count, v->median * 100, v->p80 * 100, v->worst * 100, v->explained,
                   TRI_VALIDATION_MISS * 100, v->unexplained);
    tri_buf_printf(
        out,
        "a device left out and its profile fitted again without it: median %.1f %%, four "
        "in five within %.0f %%\n",
        v->blind_median * 100, v->blind_p80 * 100);
    for (int i = 0; i < v->skips && i < TRI_VALIDATION_MAX; i++)
        tri_buf_printf(out, "not comparable: %s: %s\n", v->skipped[i].id, v->skipped[i].why);
    return out->failed;
}
