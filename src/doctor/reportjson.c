/* The report for scripts. Rates are GB/s one way; unknown values are left out, never 0. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "doctor/doctor_priv.h"

static json_t *text(const char *value)
{
    json_t *s = json_string(value);
    if (!s) { /* not UTF-8: keep what is printable */
        char safe[512];
        s = json_string(tri_printable(safe, sizeof safe, value, strlen(value)));
    }
    return s ? s : json_string("?");
}

static void put(json_t *o, const char *key, json_t *value)
{
    json_object_set_new(o, key, value);
}

static json_t *finding(const struct tri_finding *f)
{
    json_t *o = json_object(), *lines = json_array(), *cures = json_array();
    put(o, "rule", text(f->rule));
    put(o, "severity", text(tri_severity_word(f->severity)));
    put(o, "title", text(f->title));
    if (f->why[0])
        put(o, "why", text(f->why));
    if (f->cost.text[0]) {
        json_t *cost = json_object();
        if (f->cost.have_gbs > 0)
            put(cost, "have_gbs", json_real(f->cost.have_gbs));
        if (f->cost.should_gbs > 0)
            put(cost, "should_gbs", json_real(f->cost.should_gbs));
        if (f->cost.should_tokens_per_s > 0) {
            json_t *served = json_object();
            put(served, "model", text(f->cost.model));
            put(served, "have", json_real(f->cost.have_tokens_per_s));
            put(served, "should", json_real(f->cost.should_tokens_per_s));
            put(cost, "tokens_per_s", served);
        }
        put(cost, "text", text(f->cost.text));
        put(o, "cost", cost);
    }
    for (size_t i = 0; i < f->evidences; i++) {
        json_t *e = json_object();
        put(e, "file", text(f->evidence[i].file));
        if (f->evidence[i].line)
            put(e, "line", json_integer(f->evidence[i].line));
        put(e, "text", text(f->evidence[i].text));
        json_array_append_new(lines, e);
    }
    for (size_t i = 0; i < f->cures; i++)
        json_array_append_new(cures, text(f->cure[i]));
    put(o, "evidence", lines);
    put(o, "cure", cures);
    return o;
}

static json_t *gpu(const struct tri_machine *m, size_t i)
{
    const struct tri_gpu *g = &m->gpu[i];
    json_t *o = json_object(), *pairs = json_array();
    put(o, "index", json_integer((json_int_t)i));
    if (g->name[0])
        put(o, "name", text(g->name));
    if (g->bdf[0])
        put(o, "bus_id", text(g->bdf));
    if (g->numa >= 0)
        put(o, "numa", json_integer(g->numa));
    if (g->memory_bytes)
        put(o, "memory_bytes", json_integer((json_int_t)g->memory_bytes));
    for (size_t b = 0; b < m->gpus; b++) {
        const struct tri_pair *p = tri_machine_pair(m, i, b);
        json_t *q = json_object();
        if (b == i || (p->path == TRI_PATH_UNKNOWN && p->p2p == TRI_P2P_UNKNOWN && p->weight < 0)) {
            json_decref(q);
            continue;
        }
        put(q, "to", json_integer((json_int_t)b));
        put(q, "path", text(tri_path_name(p->path)));
        if (p->links)
            put(q, "links", json_integer(p->links));
        if (p->weight >= 0)
            put(q, "weight", json_integer(p->weight));
        if (p->p2p != TRI_P2P_UNKNOWN)
            put(q, "p2p", text(tri_p2p_name(p->p2p)));
        if (p->link_gbs > 0)
            put(q, "gbs", json_real(p->link_gbs));
        json_array_append_new(pairs, q);
    }
    put(o, "paths", pairs);
    return o;
}

static json_t *machine(const struct tri_machine *m)
{
    json_t *o = json_object(), *gpus = json_array(), *nics = json_array(), *nodes = json_array();
    for (size_t i = 0; i < m->gpus; i++)
        json_array_append_new(gpus, gpu(m, i));
    for (size_t i = 0; i < m->nics; i++) {
        json_t *n = json_object();
        put(n, "name", text(m->nic[i].name));
        if (m->nic[i].rate_gbs > 0)
            put(n, "gbs", json_real(m->nic[i].rate_gbs));
        json_array_append_new(nics, n);
    }
    for (size_t i = 0; i < m->numas; i++) {
        json_t *n = json_object();
        put(n, "id", json_integer(m->numa[i].id));
        put(n, "cpus", text(m->numa[i].cpus));
        put(n, "memory_bytes", json_integer((json_int_t)m->numa[i].memory_bytes));
        json_array_append_new(nodes, n);
    }
    if (m->cpu.threads) {
        json_t *c = json_object();
        put(c, "model", text(m->cpu.model));
        put(c, "sockets", json_integer(m->cpu.sockets));
        put(c, "cores", json_integer(m->cpu.cores));
        put(c, "threads", json_integer(m->cpu.threads));
        put(o, "cpu", c);
    }
    if (m->memory.total_bytes)
        put(o, "memory_bytes", json_integer((json_int_t)m->memory.total_bytes));
    put(o, "gpus", gpus);
    put(o, "nics", nics);
    put(o, "numa", nodes);
    return o;
}

/* The adapters of each group, by name; empty when no group has a near one. */
static json_t *group_nics(const struct tri_doctor *d, const struct tri_grouping *g)
{
    const struct tri_machine *m = d->machines.list[g->machine];
    json_t *all = json_array();
    bool chosen[TRI_MAX_NICS];
    size_t total = 0;
    for (size_t i = 0; i < g->groups; i++) {
        json_t *one = json_array();
        total += tri__doctor_group_nics(d, g, i, chosen);
        for (size_t c = 0; c < m->nics; c++)
            if (chosen[c])
                json_array_append_new(one, text(m->nic[c].name));
        json_array_append_new(all, one);
    }
    if (!total)
        json_array_clear(all);
    return all;
}

static json_t *groups(const struct tri_doctor *d)
{
    json_t *list = json_array();
    for (size_t i = 0; i < d->groupings; i++) {
        const struct tri_grouping *g = &d->grouping[i];
        json_t *o = json_object(), *all = json_array();
        for (size_t at = 0; at < g->groups * g->k; at += g->k) {
            json_t *one = json_array();
            for (size_t j = at; j < at + g->k; j++)
                json_array_append_new(one, json_integer(g->member[j]));
            json_array_append_new(all, one);
        }
        json_t *nics = group_nics(d, g);
        if (json_array_size(nics))
            put(o, "nics", nics);
        else
            json_decref(nics);
        put(o, "machine", json_integer((json_int_t)g->machine));
        put(o, "k", json_integer((json_int_t)g->k));
        put(o, "groups", all);
        put(o, "weakest_path", text(tri_path_name(g->worst)));
        put(o, "weakest_gbs", json_real(g->worst_gbs));
        put(o, "reason", text(g->reason));
        put(o, "settings", text(g->env));
        json_array_append_new(list, o);
    }
    return list;
}

static int to_buf(const char *bytes, size_t count, void *arg)
{
    return tri_buf_add(arg, bytes, count) ? -1 : 0;
}

void tri_doctor_write_json(const struct tri_doctor *d, struct tri_buf *out)
{
    json_t *o = json_object(), *findings = json_array(), *machines = json_array();
    json_t *notes = json_array();
    put(o, "verdict", text(tri_severity_word(tri_doctor_verdict(d))));
    put(o, "complete", json_boolean(!d->cut));
    if (d->cut)
        put(o, "incomplete_because", text(d->cut_why));
    for (size_t i = 0; i < d->findings; i++)
        json_array_append_new(findings, finding(d->finding[i]));
    for (size_t i = 0; i < d->machines.count; i++)
        json_array_append_new(machines, machine(d->machines.list[i]));
    for (size_t i = 0; i < d->notes; i++)
        json_array_append_new(notes, text(d->note[i]));
    put(o, "findings", findings);
    put(o, "groups", groups(d));
    put(o, "machines", machines);
    put(o, "notes", notes);
    if (json_dump_callback(o, to_buf, out, JSON_INDENT(2)) || tri_buf_putc(out, '\n'))
        out->failed = out->failed ? out->failed : TRI_NOMEM;
    json_decref(o);
}
