/* The report for people: worst first, three lines a finding, then groups, picture and notes. */
#include <stdio.h>
#include <string.h>
#include "doctor/doctor_priv.h"

enum { CELL = 5 };

static void write_finding(const struct tri_finding *f, bool verbose, struct tri_buf *out)
{
    const struct tri_evidence *e = f->evidences ? &f->evidence[0] : NULL;
    tri_buf_printf(out, "%-4s  %s", tri_severity_word(f->severity), f->title);
    if (e && e->line)
        tri_buf_printf(out, "  [%s:%u]", e->file, e->line);
    else if (e)
        tri_buf_printf(out, "  [%s]", e->file);
    tri_buf_putc(out, '\n');
    if (f->severity == TRI_SEVERITY_OK && !verbose)
        return;
    if (f->cost.text[0])
        tri_buf_printf(out, "      costs: %s\n", f->cost.text);
    else if (f->why[0] && !verbose)
        tri_buf_printf(out, "      why:   %s\n", f->why);
    for (size_t i = 0; i < f->cures && (verbose || i < 1); i++)
        tri_buf_printf(out, "      %s %s\n", i ? "      " : "do:   ", f->cure[i]);
    if (!verbose)
        return;
    if (f->why[0])
        tri_buf_printf(out, "      why:   %s\n", f->why);
    tri_buf_printf(out, "      rule:  %s\n", f->rule);
    for (size_t i = 0; i < f->evidences; i++) {
        const struct tri_evidence *v = &f->evidence[i];
        if (v->line)
            tri_buf_printf(out, "      | %s:%u: %s\n", v->file, v->line, v->text);
        else
            tri_buf_printf(out, "      | %s: %s\n", v->file, v->text);
    }
    if (f->evidence_total > f->evidences)
        tri_buf_printf(out, "      | and %zu more lines\n", f->evidence_total - f->evidences);
}

static const char *cell_text(const struct tri_pair *p, char out[16])
{
    if (p->path == TRI_PATH_NVLINK)
        snprintf(out, 16, "NV%d", p->links);
    else if (p->path == TRI_PATH_UNKNOWN && p->weight > 0)
        snprintf(out, 16, "w%d", p->weight);
    else
        snprintf(out, 16, "%s", tri_path_name(p->path));
    return out;
}

/* The wiring as a small table, GPUs under their NUMA nodes. */
static void write_machine(const struct tri_machine *m, struct tri_buf *out)
{
    char text[16];
    if (m->gpus < 2 || m->gpus > 16)
        return;
    tri_buf_puts(out, "\nPaths between GPUs\n       ");
    for (size_t b = 0; b < m->gpus; b++)
        tri_buf_printf(out, "%*zu", CELL, b);
    tri_buf_puts(out, m->nics ? "   NUMA  near adapter\n" : "   NUMA\n");
    for (size_t a = 0; a < m->gpus; a++) {
        tri_buf_printf(out, "  GPU%-2zu", a);
        for (size_t b = 0; b < m->gpus; b++)
            tri_buf_printf(out, "%*s", CELL, cell_text(tri_machine_pair(m, a, b), text));
        const char *near = "";
        enum tri_path best = TRI_PATH_UNKNOWN;
        for (size_t n = 0; n < m->nics; n++) {
            enum tri_path p = *tri_machine_gpu_nic(m, a, n);
            if (p != TRI_PATH_UNKNOWN && (best == TRI_PATH_UNKNOWN || p < best)) {
                best = p;
                near = m->nic[n].name;
            }
        }
        if (m->gpu[a].numa >= 0)
            tri_buf_printf(out, "%7d", m->gpu[a].numa);
        else
            tri_buf_puts(out, "      ?");
        if (*near)
            tri_buf_printf(out, "  %s (%s)", near, tri_path_name(best));
        else if (m->nics)
            tri_buf_puts(out, "  -");
        if (m->gpu[a].name[0])
            tri_buf_printf(out, "  %s", m->gpu[a].name);
        tri_buf_putc(out, '\n');
    }
}

static void write_groups(const struct tri_doctor *d, struct tri_buf *out)
{
    for (size_t i = 0; i < d->groupings; i++) {
        const struct tri_grouping *g = &d->grouping[i];
        if (!i)
            tri_buf_puts(out, "\nGroups\n");
        tri_buf_printf(out, "  of %zu: ", g->k);
        for (size_t at = 0; at < g->groups * g->k; at++)
            tri_buf_printf(out, "%s%u%s", at % g->k ? "," : "(", g->member[at],
                           at % g->k == g->k - 1 ? ")" : "");
        tri_buf_printf(out, "  %s\n         %s\n", g->reason, g->env);
    }
}

void tri_doctor_write_text(const struct tri_doctor *d, bool verbose, struct tri_buf *out)
{
    size_t shown = 0, fine = 0;
    tri_buf_printf(out, "%s%s\n", tri_severity_word(tri_doctor_verdict(d)),
                   d->cut ? "  (incomplete: input was cut, repaired or not understood)" : "");
    for (size_t i = 0; i < d->findings; i++) {
        bool ok = d->finding[i]->severity == TRI_SEVERITY_OK;
        fine += ok;
        if (ok && !verbose && fine > 12)
            continue;
        write_finding(d->finding[i], verbose, out);
        shown++;
    }
    if (shown < d->findings)
        tri_buf_printf(out, "OK    and %zu more that are fine (--verbose)\n", d->findings - shown);
    if (!d->findings)
        tri_buf_puts(out, "nothing to judge was found\n");
    for (size_t i = 0; i < d->machines.count; i++)
        write_machine(d->machines.list[i], out);
    write_groups(d, out);
    if (d->cut)
        tri_buf_printf(out, "\nIncomplete: %s\n", d->cut_why);
    for (size_t i = 0; i < d->notes; i++)
        if (!d->cut || strcmp(d->note[i], d->cut_why))
            tri_buf_printf(out, "Note: %s\n", d->note[i]);
}
