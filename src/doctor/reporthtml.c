/*
 * The report as one HTML file: no scripts, no outside resources, the wiring drawn as SVG. GPUs
 * stand on a circle in NUMA order; a line's colour and width tell the path, so islands and
 * crossings are seen at once.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "doctor/doctor_priv.h"

static const char style[] =
    "body{font:15px/1.45 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;"
    "color:#1c2430;background:#fff}"
    "h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}"
    "article{border-left:6px solid #999;padding:.4rem .9rem;margin:.8rem 0;background:#f6f7f9}"
    ".FAIL{border-color:#b3261e}.WARN{border-color:#c77700}.INFO{border-color:#2b6cb0}"
    ".OK{border-color:#2e7d32}b.w{display:inline-block;min-width:3.2rem}"
    "pre{background:#eceff3;padding:.5rem;overflow:auto;margin:.3rem 0}"
    "summary{cursor:pointer;color:#555}table{border-collapse:collapse}"
    "td,th{border:1px solid #ccd;padding:.2rem .5rem;text-align:center}"
    "@media(prefers-color-scheme:dark){body{background:#12161c;color:#dde3ea}"
    "article{background:#1b212a}pre{background:#242c37}td,th{border-color:#3a4452}}";

static void put_text(struct tri_buf *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&':
            tri_buf_puts(out, "&amp;");
            break;
        case '<':
            tri_buf_puts(out, "&lt;");
            break;
        case '>':
            tri_buf_puts(out, "&gt;");
            break;
        case '"':
            tri_buf_puts(out, "&quot;");
            break;
        default:
            tri_buf_putc(out, *text);
        }
    }
}

static void put_finding(struct tri_buf *out, const struct tri_finding *f)
{
    const char *word = tri_severity_word(f->severity);
    tri_buf_printf(out, "<article class=\"%s\"><b class=\"w\">%s</b> ", word, word);
    put_text(out, f->title);
    if (f->cost.text[0]) {
        tri_buf_puts(out, "<br>Costs: ");
        put_text(out, f->cost.text);
    }
    if (f->why[0]) {
        tri_buf_puts(out, "<br>");
        put_text(out, f->why);
    }
    if (f->cures) {
        tri_buf_puts(out, "<pre>");
        for (size_t i = 0; i < f->cures; i++) {
            put_text(out, f->cure[i]);
            tri_buf_putc(out, '\n');
        }
        tri_buf_puts(out, "</pre>");
    }
    if (f->evidences) {
        tri_buf_printf(out, "<details><summary>evidence (rule %s)</summary><pre>", f->rule);
        for (size_t i = 0; i < f->evidences; i++) {
            const struct tri_evidence *e = &f->evidence[i];
            put_text(out, e->file);
            if (e->line)
                tri_buf_printf(out, ":%u", e->line);
            tri_buf_puts(out, ": ");
            put_text(out, e->text);
            tri_buf_putc(out, '\n');
        }
        tri_buf_puts(out, "</pre></details>");
    }
    tri_buf_puts(out, "</article>\n");
}

struct stroke {
    const char *colour;
    double width;
};

static struct stroke stroke_of(const struct tri_pair *p)
{
    switch (p->path) {
    case TRI_PATH_NVLINK:
        return (struct stroke){ "#2e7d32", 1 + (p->links > 12 ? 12 : p->links) / 4.0 };
    case TRI_PATH_XGMI:
        return (struct stroke){ "#2e7d32", p->weight > 15 ? 1.2 : 2.6 };
    case TRI_PATH_PIX:
    case TRI_PATH_PXB:
        return (struct stroke){ "#2b6cb0", 2 };
    case TRI_PATH_PHB:
    case TRI_PATH_NODE:
    case TRI_PATH_PCIE:
        return (struct stroke){ "#c77700", 1.4 };
    case TRI_PATH_SYS:
        return (struct stroke){ "#b3261e", 0.8 };
    default:
        return (struct stroke){ NULL, 0 };
    }
}

/* Order on the circle: by NUMA node, then by number. */
static size_t by_node(const struct tri_machine *m, size_t order[TRI_MAX_GPUS])
{
    for (size_t i = 0; i < m->gpus; i++) {
        size_t at = i;
        while (at && m->gpu[order[at - 1]].numa > m->gpu[i].numa) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    return m->gpus;
}

static void put_drawing(struct tri_buf *out, const struct tri_machine *m)
{
    size_t order[TRI_MAX_GPUS], n = by_node(m, order);
    double x[TRI_MAX_GPUS], y[TRI_MAX_GPUS];
    for (size_t k = 0; k < n; k++) {
        double angle = 2 * M_PI * ((double)k + 0.5) / (double)n - M_PI / 2;
        x[order[k]] = 220 + 160 * cos(angle);
        y[order[k]] = 220 + 160 * sin(angle);
    }
    tri_buf_puts(out, "<svg viewBox=\"0 0 440 440\" width=\"440\" role=\"img\" "
                      "aria-label=\"paths between GPUs\" font-family=\"sans-serif\" "
                      "font-size=\"12\" text-anchor=\"middle\">\n");
    for (size_t a = 0; a < n; a++)
        for (size_t b = a + 1; b < n; b++) {
            const struct tri_pair *p = tri_machine_pair(m, a, b);
            struct stroke s = stroke_of(p);
            if (!s.colour)
                continue;
            tri_buf_printf(out,
                           "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                           "stroke-width=\"%.1f\"><title>GPU%zu-GPU%zu %s",
                           x[a], y[a], x[b], y[b], s.colour, s.width, a, b, tri_path_name(p->path));
            if (p->links)
                tri_buf_printf(out, "%d", p->links);
            tri_buf_puts(out, "</title></line>\n");
        }
    for (size_t a = 0; a < n; a++) {
        static const char *const fill[] = { "#dbe9f7", "#f7e8d0", "#e0f0dd", "#f3dfe8" };
        int numa = m->gpu[a].numa < 0 ? 0 : m->gpu[a].numa;
        tri_buf_printf(out,
                       "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"20\" fill=\"%s\" stroke=\"#444\"/>"
                       "<text x=\"%.1f\" y=\"%.1f\" fill=\"#111\">%zu</text>\n",
                       x[a], y[a], fill[numa % 4], x[a], y[a] + 4, a);
        if (m->gpu[a].numa >= 0)
            tri_buf_printf(out,
                           "<text x=\"%.1f\" y=\"%.1f\" fill=\"#888\" font-size=\"9\">node "
                           "%d</text>\n",
                           x[a], y[a] + 31, m->gpu[a].numa);
    }
    tri_buf_puts(out,
                 "</svg>\n<p>Green NVLink or XGMI (wider: more links), blue below one PCIe switch, "
                 "amber through a host bridge, red across sockets. Fill: NUMA node.</p>\n");
}

static void put_groups(struct tri_buf *out, const struct tri_doctor *d)
{
    if (!d->groupings)
        return;
    tri_buf_puts(out, "<h2>Groups</h2><table><tr><th>of</th><th>GPUs</th><th>why</th>"
                      "<th>settings of the first</th></tr>\n");
    for (size_t i = 0; i < d->groupings; i++) {
        const struct tri_grouping *g = &d->grouping[i];
        tri_buf_printf(out, "<tr><td>%zu</td><td>", g->k);
        for (size_t at = 0; at < g->groups * g->k; at++)
            tri_buf_printf(out, "%s%u%s", at % g->k ? "," : "(", g->member[at],
                           at % g->k == g->k - 1 ? ") " : "");
        tri_buf_puts(out, "</td><td>");
        put_text(out, g->reason);
        tri_buf_puts(out, "</td><td><code>");
        put_text(out, g->env);
        tri_buf_puts(out, "</code></td></tr>\n");
    }
    tri_buf_puts(out, "</table>\n");
}

void tri_doctor_write_html(const struct tri_doctor *d, struct tri_buf *out)
{
    const char *word = tri_severity_word(tri_doctor_verdict(d));
    tri_buf_printf(out,
                   "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                   "<meta name=\"viewport\" content=\"width=device-width\">"
                   "<title>trireme doctor: %s</title><style>%s</style></head><body>\n"
                   "<h1>trireme doctor: %s</h1>\n",
                   word, style, word);
    if (d->cut) {
        tri_buf_puts(out, "<p>Incomplete: ");
        put_text(out, d->cut_why);
        tri_buf_puts(out, "</p>\n");
    }
    for (size_t i = 0; i < d->findings; i++)
        put_finding(out, d->finding[i]);
    for (size_t i = 0; i < d->machines.count; i++)
        if (d->machines.list[i]->gpus > 1) {
            tri_buf_puts(out, "<h2>Wiring</h2>\n");
            put_drawing(out, d->machines.list[i]);
        }
    put_groups(out, d);
    for (size_t i = 0; i < d->notes; i++) {
        tri_buf_puts(out, "<p>Note: ");
        put_text(out, d->note[i]);
        tri_buf_puts(out, "</p>\n");
    }
    tri_buf_puts(out, "</body></html>\n");
}
