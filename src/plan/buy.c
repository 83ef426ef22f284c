/*
 * What would do it, cheapest first: every device of the table in growing numbers until the goal is
 * met, then sorted by what an hour costs.
 */
#include "plan/report.h"

#include <stdio.h>
#include <string.h>
#include "base/mem.h"

static double hourly(const struct tri_plan_options *o, const struct tri_device *d, double *price)
{
    double own = tri__usd_h(o, d, true);
    *price = d->price_high > 0 ? (d->price_low + d->price_high) / 2 : 0;
    return own > 0 ? own : tri__usd_h(o, d, false);
}

/* Sizes to try: within a box by doubling, then whole boxes, within one fast domain first. */
static bool size_of(const struct tri_device *d, int step, struct tri_fleet *f)
{
    static const int boxes[] = { 2, 3, 4, 6, 8, 12, 16 };
    int inside = 0;
    for (int n = 1; n < d->box; n *= 2)
        inside++;
    int n = step < inside ? 1 << step : d->box;
    int nodes = step <= inside ? 1 : 0;
    if (step > inside) {
        int at = step - inside - 1;
        if (at >= (int)(sizeof boxes / sizeof boxes[0]))
            return false;
        nodes = boxes[at];
    }
    *f = (struct tri_fleet){ .device = *d, .nodes = nodes, .per_node = n };
    return true;
}

static void wires(struct tri_fleet *f, const struct tri_devices *devices)
{
    struct tri_fleet whole;
    char text[128];
    snprintf(text, sizeof text, "%dx%dx%s", f->nodes, f->per_node, f->device.name);
    if (!tri_fleet_parse(&whole, devices, text, NULL))
        *f = whole;
}

static bool suits(const struct tri_candidate *c)
{
    return c->grade == TRI_GRADE_SERVES && c->goals_met;
}

/* The smallest number of this device that does it; false when none tried does. */
static bool smallest(struct tri__plan *p, const struct tri_device *d, struct tri_offer *out,
                     struct tri_candidate *c)
{
    struct tri_fleet f;
    for (int step = 0; size_of(d, step, &f); step++) {
        wires(&f, p->pub.devices);
        /* no use searching where even an even share of the bytes does not fit */
        double room = d->mem_gib * d->usable * (double)tri_fleet_cards(&f) * TRI__GIB;
        bool streams = d->disk_gbs > 0 && p->pub.arch->experts;
        if (room < (double)p->pub.arch->bytes * 0.45 && !streams)
            continue;
        memset(c, 0, sizeof *c);
        if (tri__search(p, &f, false, c, NULL) || !suits(c))
            continue;
        out->fleet = f;
        out->layout = c->layout;
        out->experts_number = c->experts_number;
        out->dense_number = c->dense_number;
        out->speed = c->speed;
        out->usd_h = hourly(&p->pub.options, d, &out->price_usd) * (double)tri_fleet_cards(&f);
        out->price_usd *= (double)tri_fleet_cards(&f);
        out->served_concurrency = c->served_concurrency;
        return true;
    }
    return false;
}

static enum tri_status try_device(struct tri__plan *p, const struct tri_device *d,
                                  struct tri_offers *out, struct tri_candidate *c)
{
    struct tri_plan_options saved = p->pub.options;
    const char *engine = saved.engine ? saved.engine : tri__default_engine(d);
    struct tri_offer offer = { .device = d };
    if (d->kind != TRI_DEVICE_GPU)
        engine = "trireme";
    if (tri__profiles_find(&p->pub.profile, p->profiles, engine, d, NULL))
        return TRI_OK;
    p->pub.options.chunk_tokens =
        saved.chunk_tokens ? saved.chunk_tokens : p->pub.profile->chunk_tokens;
    p->pub.fleet.device = *d;
    p->band = tri__band_for(p->pub.profile, d);
    offer.basis = p->band > p->pub.profile->band ? "assumed" : p->pub.profile->basis;
    bool found = smallest(p, d, &offer, c);
    p->pub.options = saved;
    if (!found) {
        if (out->unsuited < TRI_BUY_MAX)
            out->not_enough[out->unsuited++] = d;
        return TRI_OK;
    }
    int at = out->count;
    /* unknown prices last */
    while (at > 0 && offer.usd_h > 0 &&
           (out->offer[at - 1].usd_h <= 0 || out->offer[at - 1].usd_h > offer.usd_h))
        at--;
    if (out->count == TRI_BUY_MAX)
        return TRI_OK;
    memmove(&out->offer[at + 1], &out->offer[at], (size_t)(out->count - at) * sizeof offer);
    out->offer[at] = offer;
    out->count++;
    return TRI_OK;
}

enum tri_status tri_buy_run(struct tri_offers **out, const struct tri_plan_options *options,
                            const struct tri_notes *notes, struct tri_error *err)
{
    struct tri_offers *offers = tri_calloc(1, sizeof *offers);
    struct tri_candidate *c = tri_calloc(1, sizeof *c);
    struct tri__plan *p = NULL;
    enum tri_status status = TRI_OK;
    if (!offers || !c)
        status = tri_fail(err, TRI_NOMEM, "no memory for offers");
    if (!status && (options->hw || options->machine))
        status =
            tri_fail(err, TRI_ARG, "--buy looks for the machines: leave --hw and --machine out");
    if (!status && options->layout)
        status = tri_fail(err, TRI_ARG, "--buy looks for the layout too: leave --layout out");
    if (!status)
        status = tri__plan_for_any(&p, options, notes, err);
    for (int i = 0; !status && i < tri_devices_count(p->pub.devices); i++)
        status = try_device(p, tri_devices_at(p->pub.devices, i), offers, c);
    tri_free(c);
    if (status) {
        tri_plan_close(p ? &p->pub : NULL);
        tri_free(offers);
        return status;
    }
    offers->plan = &p->pub;
    *out = offers;
    return TRI_OK;
}

void tri_buy_close(struct tri_offers *offers)
{
    if (!offers)
        return;
    tri_plan_close(offers->plan);
    tri_free(offers);
}

static void offer_row(const struct tri_offer *o, struct tri_buf *out)
{
    char name[96], what[64], price[32] = "?", hour[32] = "?";
    tri_layout_name(&o->layout, name, sizeof name);
    if (o->fleet.nodes > 1)
        snprintf(what, sizeof what, "%d x %d %s", o->fleet.nodes, o->fleet.per_node,
                 o->device->name);
    else
        snprintf(what, sizeof what, "%d %s", o->fleet.per_node, o->device->name);
    if (o->price_usd > 0)
        tri__count(price, o->price_usd);
    if (o->usd_h > 0)
        snprintf(hour, sizeof hour, "%.2f", o->usd_h);
    tri_buf_printf(out, "  %-28s %-22.22s %9s %9s %9.1f %9.4g %9.4g  %s\n", what, name, hour, price,
                   o->speed.tpot_ms, o->speed.tokens_per_s,
                   tri__usd_per_million(o->usd_h, 1, o->speed.tokens_per_s), o->basis);
}

enum tri_status tri_buy_text(const struct tri_offers *offers, bool all, struct tri_buf *out)
{
    const struct tri_plan *p = offers->plan;
    const struct tri_plan_options *o = &p->options;
    tri_buf_printf(out, "What would serve %s: %lld at once, %lld tokens in, %lld out",
                   p->arch->name, (long long)o->concurrency, (long long)o->input_tokens,
                   (long long)o->output_tokens);
    for (int i = 0; i < p->goal_count; i++)
        tri_buf_printf(out, "; %s %.4g", tri_goal_name(p->goals[i].what), p->goals[i].value);
    tri_buf_puts(out,
                 "\nCheapest first, by what an hour costs (owning over four years where a price "
                 "is known, else rent)\n\n");
    tri_buf_printf(out, "  %-28s %-22s %9s %9s %9s %9s %9s  %s\n", "machines", "layout",
                   "$ an hour", "$ price", "TPOT ms", "tokens/s", "$/M out", "speed is");
    int n = all || offers->count < 12 ? offers->count : 12;
    for (int i = 0; i < n; i++)
        offer_row(&offers->offer[i], out);
    if (n < offers->count)
        tri_buf_printf(out, "  and %d dearer ones (--all)\n", offers->count - n);
    if (!offers->count)
        tri_buf_puts(out,
                     "  nothing in the device table does it in up to 16 boxes: ask for less\n");
    if (offers->unsuited) {
        tri_buf_puts(out, "\nNot even in 16 boxes:");
        for (int i = 0; i < offers->unsuited; i++)
            tri_buf_printf(out, "%s %s", i ? "," : "", offers->not_enough[i]->name);
        tri_buf_puts(out, "\n");
    }
    tri_buf_puts(out, "\nPrices are dated and disagree between sources (data/devices.json); take "
                      "them as a factor of two.\nThen: trireme plan --hw ... --checklist for the "
                      "vendor.\n");
    return out->failed;
}

enum tri_status tri_buy_json(const struct tri_offers *offers, struct tri_buf *out,
                             struct tri_error *err)
{
    json_t *list = json_array();
    for (int i = 0; i < offers->count; i++) {
        const struct tri_offer *o = &offers->offer[i];
        char name[96];
        tri_layout_name(&o->layout, name, sizeof name);
        json_array_append_new(list,
                              json_pack("{s:s, s:i, s:i, s:s, s:f, s:f, s:f, s:f, s:f, s:I, s:s}",
                                        "device", o->device->name, "nodes", o->fleet.nodes,
                                        "cards_per_node", o->fleet.per_node, "layout", name,
                                        "usd_per_hour", o->usd_h, "price_usd", o->price_usd,
                                        "ttft_ms", o->speed.ttft_ms, "tpot_ms", o->speed.tpot_ms,
                                        "tokens_per_s", o->speed.tokens_per_s, "served_concurrency",
                                        (json_int_t)o->served_concurrency, "basis", o->basis));
    }
    return tri__json_out(json_pack("{s:s, s:o}", "model", offers->plan->arch->name, "offers", list),
                         out, err);
}
