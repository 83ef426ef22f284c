/*
 * The plan as JSON, for scripts. Keys are stable; sizes in bytes, times in ms, [low, high] where a
 * figure has an error band. `ranks` has one entry a pipeline stage: its fullest rank.
 */
#include "plan/report.h"

#include <string.h>

static json_t *band_of(const struct tri_speed *s, double value, bool time)
{
    return json_pack("{s:f, s:f, s:f}", "value", value, "low", tri__low(s, value, time), "high",
                     tri__high(s, value, time));
}

static json_t *layout_json(const struct tri_layout *l)
{
    char name[96];
    json_t *stages = json_array();
    tri_layout_name(l, name, sizeof name);
    for (int i = 0; i < l->pp; i++)
        json_array_append_new(stages, json_integer(l->stage_layers[i]));
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:I, s:o}", "name", name, "replicas",
                     l->replicas, "tp", l->tp, "pp", l->pp, "dp", l->dp, "dcp", l->cp,
                     "expert_ranks", tri_layout_expert_ranks(l), "whole_experts", (int)l->ep,
                     "cards", (json_int_t)tri_layout_cards(l), "stage_layers", stages);
}

static json_t *big(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *weights_json(const struct tri_rank_weights *w)
{
    json_t *lines = json_array();
    for (int i = 0; i < TRI_LINES; i++)
        if (w->split_bytes[i] || w->replicated_bytes[i])
            json_array_append_new(lines, json_pack("{s:s, s:o, s:o}", "part",
                                                   tri_arch_line_name((enum tri_arch_line)i),
                                                   "split", big(w->split_bytes[i]), "replicated",
                                                   big(w->replicated_bytes[i])));
    return json_pack("{s:o, s:o, s:o, s:o}", "split", big(w->split_total_bytes), "replicated",
                     big(w->replicated_total_bytes), "padding", big(w->padding_bytes), "lines",
                     lines);
}

static json_t *workspace_json(const struct tri_rank_workspace *w)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "attnres", big(w->attnres_bytes),
                     "experts", big(w->moe_bytes), "activations", big(w->activation_bytes),
                     "graphs", big(w->graph_bytes), "runtime", big(w->runtime_bytes), "collectives",
                     big(w->collective_bytes), "fragmentation", big(w->fragmentation_bytes));
}

static json_t *rank_json(const struct tri_candidate *c, int stage)
{
    const struct tri_stage_memory *m = &c->stage[stage];
    uint64_t grown = m->state_bytes_per_sequence - m->state.kda_bytes - m->state.conv_bytes;
    json_t *state = json_pack("{s:o, s:o, s:o}", "mla", big(grown), "kda", big(m->state.kda_bytes),
                              "conv", big(m->state.conv_bytes));
    return json_pack("{s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I}",
                     "stage", stage, "layers", c->layout.stage_layers[stage], "ranks_alike",
                     c->layout.replicas * c->layout.dp * c->layout.tp, "weights_bytes",
                     big(m->weights_bytes), "weights_parts", weights_json(&m->weights),
                     "state_bytes_per_sequence", big(m->state_bytes_per_sequence), "state_parts",
                     state, "bytes_per_token", big(m->state.bytes_per_token), "workspace_bytes",
                     big(m->workspace_bytes), "workspace_parts", workspace_json(&c->workspace),
                     "attnres_bytes", big(c->workspace.attnres_bytes), "cache_bytes",
                     big(m->cache_bytes), "budget_bytes", big(m->budget_bytes), "capacity_tokens",
                     (json_int_t)m->capacity_tokens, "capacity_sequences",
                     (json_int_t)m->capacity_sequences);
}

static json_t *step_json(const struct tri_step_time *t)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "total", t->total,
                     "shared_weights", t->dense, "experts", t->experts, "cache", t->cache,
                     "compute", t->compute, "layers", t->layers, "links", t->link, "draft",
                     t->draft, "drive", t->disk);
}

static void add_speed(json_t *to, const struct tri_plan *p, const struct tri_candidate *c)
{
    const struct tri_speed *s = &c->speed;
    bool known = c->grade >= TRI_GRADE_GENERATES;
    json_object_set_new(to, "ttft_ms", known ? band_of(s, s->ttft_ms, true) : json_null());
    json_object_set_new(to, "tpot_ms", known ? band_of(s, s->tpot_ms, true) : json_null());
    json_object_set_new(to, "tokens_per_s",
                        known ? band_of(s, s->tokens_per_s, false) : json_null());
    json_object_set_new(to, "total_tokens_per_s",
                        known ? band_of(s, s->total_tokens_per_s, false) : json_null());
    json_object_set_new(to, "binding", json_string(tri_binding_name(s->binding)));
    if (!known)
        return;
    json_object_set_new(to, "step_ms", step_json(&s->step));
    json_object_set_new(to, "prefill_ms", json_real(s->prefill_ms));
    json_object_set_new(to, "running", json_real(s->running));
    json_object_set_new(to, "waiting", json_real(s->waiting));
    json_object_set_new(to, "little", json_real(s->little));
    json_object_set_new(to, "error_band", json_real(s->band));
    json_object_set_new(to, "profile",
                        json_pack("{s:s, s:s}", "id", p->profile->id, "basis", tri__basis(p) + 2));
}

static json_t *cost_json(const struct tri_plan *p, const struct tri_candidate *c)
{
    const struct tri_device *d = &p->fleet.device;
    double own = tri__usd_h(&p->options, d, true), rent = tri__usd_h(&p->options, d, false);
    bool known = c->grade >= TRI_GRADE_GENERATES;
    return json_pack("{s:o, s:o, s:o, s:o}", "own_usd_per_card_hour",
                     own > 0 ? json_real(own) : json_null(), "rent_usd_per_card_hour",
                     rent > 0 ? json_real(rent) : json_null(), "own_usd_per_million_tokens",
                     known && own > 0 ? json_real(c->usd_per_million_own) : json_null(),
                     "rent_usd_per_million_tokens",
                     known && rent > 0 ? json_real(c->usd_per_million_rent) : json_null());
}

static json_t *number_json(int number)
{
    return number < 0 ? json_string("as published")
                      : json_string(tri_number_name((enum tri_number)number));
}

static json_t *candidate_json(const struct tri_plan *p, const struct tri_candidate *c)
{
    const struct tri_stage_memory *m = &c->stage[c->full_stage];
    json_t *j = json_pack(
        "{s:o, s:s, s:b, s:s, s:o, s:o, s:o, s:I}", "layout", layout_json(&c->layout), "verdict",
        tri_grade_name(c->grade), "goals_met", (int)c->goals_met, "reason", c->reason, "experts",
        number_json(c->experts_number), "dense", number_json(c->dense_number), "weights_bytes",
        big(m->weights_bytes), "served_concurrency", (json_int_t)c->served_concurrency);
    add_speed(j, p, c);
    json_object_set_new(j, "cost", cost_json(p, c));
    return j;
}

static json_t *lists(const struct tri_plan *p, json_t *j)
{
    json_t *others = json_array(), *rejected = json_array(), *advice = json_array();
    json_t *curve = json_array();
    for (int i = 0; i < p->others; i++)
        json_array_append_new(others, candidate_json(p, &p->other[i]));
    for (int i = 0; i < p->rejected_count; i++)
        json_array_append_new(rejected, json_pack("{s:o, s:o, s:o, s:s}", "layout",
                                                  layout_json(&p->rejected[i].layout), "experts",
                                                  number_json(p->rejected[i].experts_number),
                                                  "dense", number_json(p->rejected[i].dense_number),
                                                  "reason", p->rejected[i].reason));
    for (int i = 0; i < p->advices; i++)
        json_array_append_new(advice, json_pack("{s:s, s:s, s:b, s:f}", "change",
                                                p->advice[i].change, "effect", p->advice[i].effect,
                                                "works", (int)p->advice[i].works,
                                                "extra_usd_per_hour", p->advice[i].usd_h));
    for (int i = 0; i < p->curve_points; i++) {
        const struct tri_curve_point *c = &p->curve[i];
        json_array_append_new(curve, json_pack("{s:f, s:f, s:f, s:f, s:f, s:b}", "concurrency",
                                               c->concurrency, "ttft_ms", c->ttft_ms, "tpot_ms",
                                               c->tpot_ms, "tokens_per_s", c->tokens_per_s,
                                               "usd_per_million", c->usd_per_million, "fits",
                                               (int)c->fits));
    }
    json_object_set_new(j, "alternatives", others);
    json_object_set_new(j, "rejected", rejected);
    json_object_set_new(j, "rejected_not_listed", json_integer(p->rejected_more));
    json_object_set_new(j, "advice", advice);
    json_object_set_new(j, "curve", curve);
    return j;
}

static json_t *question(const struct tri_plan *p)
{
    const struct tri_plan_options *o = &p->options;
    const struct tri_fleet *f = &p->fleet;
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:s, s:I, s:I, s:I, s:I, s:I, s:i, s:f}",
                     "model", p->arch->name, "family", p->arch->family, "device", f->device.name,
                     "nodes", f->nodes, "cards_per_node", f->per_node, "card_gib",
                     f->device.mem_gib, "engine", o->engine, "context_tokens",
                     (json_int_t)o->context_tokens, "input_tokens", (json_int_t)o->input_tokens,
                     "output_tokens", (json_int_t)o->output_tokens, "concurrency",
                     (json_int_t)o->concurrency, "chunk_tokens", (json_int_t)o->chunk_tokens,
                     "draft_tokens", p->draft_tokens, "acceptance", p->acceptance);
}

static json_t *launch_json(const struct tri_plan *p)
{
    static const char *const engines[] = { "vllm", "sglang", "trireme" };
    bool gpu = p->fleet.device.kind == TRI_DEVICE_GPU;
    json_t *j = json_object();
    for (size_t i = 0; i < 3; i++) {
        struct tri_buf line;
        if (gpu == (i == 2))
            continue;
        tri_buf_init(&line, 1 << 16);
        tri__launch_line(p, engines[i], &line);
        json_object_set_new(j, engines[i], json_string(line.data));
        tri_buf_fini(&line);
    }
    return j;
}

json_t *tri__plan_json(const struct tri_plan *p)
{
    json_t *j = candidate_json(p, &p->best), *ranks = json_array();
    json_object_set_new(j, "asked", question(p));
    for (int s = 0; s < p->best.layout.pp; s++)
        json_array_append_new(ranks, rank_json(&p->best, s));
    json_object_set_new(j, "ranks", ranks);
    json_object_set_new(j, "fastest",
                        p->fastest.cards ? candidate_json(p, &p->fastest) : json_null());
    json_object_set_new(j, "binding_constraint",
                        json_string(tri_binding_name(p->best.speed.binding)));
    json_object_set_new(j, "launch", launch_json(p));
    struct tri_buf words;
    tri_buf_init(&words, 1 << 16);
    tri__assumptions_text(p, &words);
    json_object_set_new(j, "assumed", json_string(words.data ? words.data : ""));
    tri_buf_fini(&words);
    return lists(p, j);
}

enum tri_status tri__json_out(json_t *json, struct tri_buf *out, struct tri_error *err)
{
    char *text = json ? json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(7)) : NULL;
    json_decref(json);
    if (!text)
        return tri_fail(err, TRI_NOMEM, "no memory for the JSON report");
    tri_buf_puts(out, text);
    tri_buf_putc(out, '\n');
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(text);
    return out->failed ? tri_fail(err, out->failed, "the JSON report is over %d bytes",
                                  TRI_PLAN_MAX_REPORT_BYTES)
                       : TRI_OK;
}

enum tri_status tri_plan_json(const struct tri_plan *plan, struct tri_buf *out,
                              struct tri_error *err)
{
    return tri__json_out(tri__plan_json(plan), out, err);
}
