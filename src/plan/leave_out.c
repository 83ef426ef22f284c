/*
 * How well a device is predicted that nobody measured: for each device its own figures are set
 * aside, the profile they used is fitted again to the figures of other devices, and only then are
 * they predicted. The fit starts from the middle of the other profiles, never from the numbers
 * that were set with the device in sight, and moves one number at a time as long as the mean miss
 * shrinks; a pull towards the start keeps numbers where they are that no figure speaks about. A
 * profile that no other device used stays the middle of the others.
 */
#include "plan/plan_priv.h"

#include <math.h>
#include <string.h>
#include "base/mem.h"

enum { FITTED = 10, MAX_PROFILES = 32, MAX_OPEN = TRI_VALIDATION_MAX, FIT_ROUNDS = 12 };
static const double pull =
    0.02; /* of a number's log distance from its start, against mean misses */

double tri__middle(double *values, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && values[j] < values[j - 1]; j--) {
            double t = values[j];
            values[j] = values[j - 1];
            values[j - 1] = t;
        }
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

struct number {
    size_t at;
    double least, most;
};

#define NUMBER(field, least, most)                                                                 \
    {                                                                                              \
        offsetof(struct tri_profile, field), least, most                                           \
    }
static const struct number fitted[FITTED] = {
    NUMBER(bw_eff, 0.2, 0.95),    NUMBER(expert_eff, 0.1, 0.95),   NUMBER(layer_us, 5, 400),
    NUMBER(moe_layer_us, 0, 400), NUMBER(compute_eff, 0.05, 0.95), NUMBER(attn_eff, 0.1, 0.95),
    NUMBER(int4_eff, 0.1, 1),     NUMBER(int4_layer_us, 0, 400),   NUMBER(nvfp4_layer_us, 0, 400),
    NUMBER(mx_eff, 0.1, 1),
};

static double *value_of(struct tri_profile *p, int i)
{
    return (double *)(void *)((char *)p + fitted[i].at);
}

/* One published point, open, so that another profile costs one search and no reading. */
struct open_point {
    struct tri_plan *plan;
    const struct tri_measured *first; /* its figures follow one another */
    int figures;
};

struct leave_out {
    struct tri_validation *v;
    struct open_point point[MAX_OPEN];
    int points;
};

static enum tri_status open_points(struct leave_out *l, struct tri_error *err)
{
    for (int i = 0; i < l->v->count; i++) {
        const struct tri_measured *m = &l->v->figure[i];
        struct open_point *last = l->points ? &l->point[l->points - 1] : NULL;
        if (last && last->first->point == m->point) {
            last->figures++;
            continue;
        }
        struct tri_plan_options o;
        struct open_point *next = &l->point[l->points];
        tri__point_options(&o, m->point);
        enum tri_status status = tri__plan_point(&next->plan, &o, err);
        if (status)
            return status;
        next->first = m;
        next->figures = 1;
        l->points++;
    }
    return TRI_OK;
}

/* Predicts a point with a profile; false when it has no answer. */
static bool predict(struct open_point *p, const struct tri_profile *profile)
{
    p->plan->profile = profile;
    return !tri__search((struct tri__plan *)p->plan, &p->plan->fleet, false, &p->plan->best, NULL);
}

static bool trains(const struct open_point *p, const char *device, const struct tri_profile *q)
{
    return strcmp(p->first->device, device) != 0 && !strcmp(p->first->profile.id, q->id) &&
           !p->first->cause;
}

/* Mean log miss over the figures of other devices, plus the pull. */
static double misses(struct leave_out *l, const char *device, struct tri_profile *q,
                     struct tri_profile *start)
{
    double sum = 0, tied = 0;
    int n = 0;
    for (int i = 0; i < l->points; i++) {
        struct open_point *p = &l->point[i];
        if (!trains(p, device, q) || !predict(p, q))
            continue;
        for (int k = 0; k < p->figures; k++, n++)
            sum += fabs(log(tri__point_figure(p->plan, p->first[k].figure) / p->first[k].measured));
    }
    for (int i = 0; i < FITTED; i++)
        tied += fabs(log((*value_of(q, i) + 1e-3) / (*value_of(start, i) + 1e-3)));
    return n ? sum / n + pull * tied : 0;
}

static bool move(struct tri_profile *q, int i, double factor)
{
    double *x = value_of(q, i), was = *x;
    double more = was > 0 ? was * factor : factor > 1 ? 10 : 0;
    *x = fmin(fmax(more, fitted[i].least), fitted[i].most);
    return fabs(*x - was) > 1e-9;
}

static void fit(struct leave_out *l, const char *device, struct tri_profile *q)
{
    static const double steps[] = { 1.4, 1 / 1.4, 1.1, 1 / 1.1 };
    struct tri_profile start = *q;
    double best = misses(l, device, q, &start);
    for (int round = 0; round < FIT_ROUNDS && best > 0; round++) {
        double before = best;
        for (int i = 0; i < FITTED; i++)
            for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
                struct tri_profile tried = *q;
                double now = move(&tried, i, steps[s]) ? misses(l, device, &tried, &start) : best;
                if (now < best) {
                    best = now;
                    *q = tried;
                }
            }
        if (best > before * 0.999)
            break;
    }
}

/* Each number: the middle over the profiles of other devices' figures, the own one apart. */
static bool start_from_others(const struct leave_out *l, const struct tri_measured *m,
                              struct tri_profile *out)
{
    const struct tri_profile *other[MAX_PROFILES];
    int n = 0;
    for (int i = 0; i < l->v->count; i++) {
        const struct tri_measured *x = &l->v->figure[i];
        bool seen = !strcmp(x->device, m->device) || !strcmp(x->profile.id, m->profile.id);
        for (int k = 0; k < n; k++)
            seen |= !strcmp(other[k]->id, x->profile.id);
        if (!seen && n < MAX_PROFILES)
            other[n++] = &x->profile;
    }
    *out = m->profile;
    for (int i = 0; i < FITTED && n; i++) {
        double values[MAX_PROFILES];
        for (int k = 0; k < n; k++) {
            struct tri_profile copy = *other[k];
            values[k] = *value_of(&copy, i);
        }
        *value_of(out, i) = tri__middle(values, n);
    }
    return n > 0;
}

enum tri_status tri__leave_out(struct tri_validation *v, struct tri_error *err)
{
    struct leave_out *l = tri_calloc(1, sizeof *l);
    if (!l)
        return tri_fail(err, TRI_NOMEM, "no memory for leaving devices out");
    l->v = v;
    enum tri_status status = open_points(l, err);
    for (int i = 0; !status && i < l->points; i++) {
        struct tri_measured *first = &v->figure[l->point[i].first - v->figure];
        struct tri_profile q;
        int same = 0; /* an earlier point of this device and profile: fitted already */
        while (strcmp(l->point[same].first->device, first->device) != 0 ||
               strcmp(l->point[same].first->profile.id, first->profile.id) != 0)
            same++;
        if (same < i)
            continue;
        if (!start_from_others(l, first, &q))
            continue;
        fit(l, first->device, &q);
        for (int j = i; j < l->points; j++) {
            struct open_point *p = &l->point[j];
            if (strcmp(p->first->device, first->device) != 0 ||
                strcmp(p->first->profile.id, first->profile.id) != 0 || !predict(p, &q))
                continue;
            for (int k = 0; k < p->figures; k++) {
                struct tri_measured *m = &v->figure[(p->first - v->figure) + k];
                m->blind_error = tri__point_figure(p->plan, m->figure) / m->measured - 1;
            }
        }
    }
    for (int i = 0; i < l->points; i++)
        tri_plan_close(l->point[i].plan);
    tri_free(l);
    return status;
}
