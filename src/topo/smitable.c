/*
 * The short forms of nvidia-smi: the framed table (names, memory, load), the list (-L), and
 * `nvidia-smi nvlink -s` / -c / -e with one line a link. hl-smi (Gaudi) prints the same frame.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "topo/topo.h"
#include "topo/topo_priv.h"

/* "| 30%  45C  P2  120W / 450W |  23000MiB / 24576MiB |   30%   Default |" */
static void read_load(struct tri_gpu *g, const char *text)
{
    const char *mib = strstr(text, "MiB /");
    for (const char *p = text; (p = strchr(p, 'P')) != NULL; p++)
        if (isdigit((unsigned char)p[1]) && (p == text || p[-1] == ' ')) {
            g->pstate = (int)strtol(p + 1, NULL, 10);
            break;
        }
    if (!mib)
        return;
    const char *used = mib;
    while (used > text && isdigit((unsigned char)used[-1]))
        used--;
    g->used_bytes = strtoull(used, NULL, 10) << 20;
    g->memory_bytes = strtoull(mib + 5, NULL, 10) << 20;
    const char *bar = strchr(mib, '|'), *percent = bar ? strchr(bar, '%') : NULL;
    if (percent)
        g->busy_percent = (int)strtol(bar + 1, NULL, 10);
}

/* "|   0  NVIDIA GeForce RTX 4090   Off | 00000000:01:00.0 Off | Off |" */
static bool name_row(const char *text, char name[64], char bdf[16])
{
    struct tri_word w[32];
    size_t n = tri_words(text, w, 32);
    size_t bar = 0;
    if (n < 6 || n > 32 || !tri_word_is(w[0], "|") || !isdigit((unsigned char)w[1].at[0]))
        return false;
    for (size_t i = 2; i < n && !bar; i++)
        if (tri_word_is(w[i], "|"))
            bar = i;
    if (bar < 4 || bar + 1 >= n || !tri_bdf_normal(w[bar + 1].at, w[bar + 1].len, bdf))
        return false;
    const char *end = w[bar - 2].at + w[bar - 2].len; /* before the persistence word */
    tri__topo_copy(name, 64, w[2].at, (size_t)(end - w[2].at));
    return true;
}

size_t tri__topo_read_smi_table(struct tri__topo_text *t, size_t at)
{
    const struct tri_lines *l = t->lines;
    char name[64], bdf[16];
    size_t gpus = 0, last = at;
    if (!name_row(l->line[at].body, name, bdf))
        return 0;
    for (size_t i = at; i < l->count && i < last + 5; i++)
        if (name_row(l->line[i].body, name, bdf)) {
            gpus++;
            last = i;
        }
    struct tri_machine *m = tri__topo_machine_for(t->set, gpus);
    for (size_t i = at, k = 0; m && i <= last; i++) {
        if (!name_row(l->line[i].body, name, bdf))
            continue;
        struct tri_gpu *g = k < m->gpus ? &m->gpu[k] : tri_machine_add_gpu(m);
        if (!g)
            break;
        k++;
        memcpy(g->bdf, bdf, sizeof bdf);
        memcpy(g->name, name, sizeof name);
        g->vendor = tri_text_begins(name, "HL-") ? TRI_VENDOR_INTEL : TRI_VENDOR_NVIDIA;
        g->source = tri__topo_line(m, t, i);
        if (i + 1 < l->count)
            read_load(g, l->line[i + 1].body);
    }
    t->kind = TRI_TOPO_SMI_TABLE;
    return last - at + (last + 1 < l->count ? 2 : 1);
}

/* "GPU 3: NVIDIA A100-SXM4-80GB (UUID: ...)" -> 3 and the name; -1 when it is none. */
static int list_row(const char *text, char name[64])
{
    text += strspn(text, " \t");
    if (!tri_text_begins(text, "GPU ") || !isdigit((unsigned char)text[4]))
        return -1;
    char *end = NULL;
    long index = strtol(text + 4, &end, 10);
    if (*end != ':' || end[1] != ' ' || index >= TRI_MAX_GPUS)
        return -1;
    const char *from = end + 1 + strspn(end + 1, " "), *to = strstr(from, " (UUID");
    if (!to || to == from)
        return -1;
    tri__topo_copy(name, 64, from, (size_t)(to - from));
    return (int)index;
}

/* One line of a GPU's links. False when it is none. */
static bool link_row(struct tri_gpu *g, const char *text, struct tri_source source)
{
    text += strspn(text, " \t");
    if (tri_text_find(text, "all links are inActive")) {
        g->nvlinks_up = 0;
        g->nvlinks_down = g->nvlinks_down > 0 ? g->nvlinks_down : 1;
        g->link_source = source;
        return true;
    }
    if (tri_text_begins(text, "MIG ") && tri_text_find(text, "Device")) {
        g->state.mig = 1;
        return true;
    }
    if (!tri_text_begins(text, "Link ") || !isdigit((unsigned char)text[5]))
        return false;
    const char *colon = strchr(text, ':'), *errors = tri_text_find(text, "rrors:");
    if (!colon)
        return true;
    if (errors) {
        long n = strtol(errors + 6, NULL, 10);
        g->nvlink_errors = (g->nvlink_errors > 0 ? g->nvlink_errors : 0) + (n > 0 ? n : 0);
        if (n > 0 || g->link_source.file < 0)
            g->link_source = source;
        return true;
    }
    double rate = strtod(colon + 1, NULL);
    bool up = strstr(colon, "GB/s") && rate > 0;
    if (up) {
        g->nvlinks_up = (g->nvlinks_up > 0 ? g->nvlinks_up : 0) + 1;
        g->nvlink_gbs = rate;
        if (g->link_source.file < 0)
            g->link_source = source;
    } else if (tri_text_find(colon, "inactive")) {
        g->nvlinks_down = (g->nvlinks_down > 0 ? g->nvlinks_down : 0) + 1;
        g->link_source = source;
    }
    return true;
}

/* The number of a status line ("Link 3: 25 GB/s"), -1 for others, which may repeat it. */
static long link_number(const char *text)
{
    text += strspn(text, " \t");
    bool status = tri_text_find(text, "GB/s") || tri_text_find(text, "inactive");
    return tri_text_begins(text, "Link ") && status ? strtol(text + 5, NULL, 10) : -1;
}

/* Links are printed without gaps, so a gap is lost text; and the last GPU may just be cut short. */
static void judge_numbering(struct tri_machine *m, struct tri__topo_text *t, size_t at, size_t last,
                            bool gap)
{
    int most = 0;
    for (size_t i = 0; i < m->gpus; i++)
        most = m->gpu[i].nvlinks_up > most ? m->gpu[i].nvlinks_up : most;
    const struct tri_gpu *g = &m->gpu[last];
    bool cut_short = g->nvlinks_up >= 0 && g->nvlinks_down <= 0 && g->nvlinks_up < most;
    if (gap)
        tri_machine_remark(m, TRI_REMARK_CUT, tri__topo_line(m, t, at),
                           "the numbering of the NVLinks has gaps: lines are missing");
    else if (cut_short)
        tri_machine_remark(m, TRI_REMARK_CUT, tri__topo_line(m, t, at),
                           "the NVLinks of the last GPU, %zu, are fewer: the list may be cut",
                           last);
    if (!gap && !cut_short)
        return;
    for (size_t i = 0; i < m->gpus; i++) /* counts are not to be trusted; "<inactive>" still is */
        if (gap || i == last)
            m->gpu[i].nvlinks_up = m->gpu[i].nvlinks_down > 0 ? m->gpu[i].nvlinks_up : -1;
}

/* A line that may stand inside the list without ending it. */
static bool belongs(const char *text)
{
    struct tri_gpu dummy = { 0 };
    char name[64];
    return list_row(text, name) >= 0 || link_row(&dummy, text, (struct tri_source){ -1, 0 });
}

size_t tri__topo_read_nvlink(struct tri__topo_text *t, size_t at)
{
    const struct tri_lines *l = t->lines;
    char name[64];
    int gpus = 0;
    size_t end = at;
    if (list_row(l->line[at].body, name) < 0)
        return 0;
    for (size_t i = at; i < l->count; i++) { /* -e puts blank lines between the links */
        const char *text = l->line[i].body;
        if (!text[strspn(text, " \t")])
            continue;
        if (!belongs(text))
            break;
        int index = list_row(text, name);
        gpus = index + 1 > gpus ? index + 1 : gpus;
        end = i + 1;
    }
    struct tri_machine *m = tri__topo_machine_for(t->set, (size_t)gpus);
    while (m && m->gpus < (size_t)gpus && tri_machine_add_gpu(m))
        m->gpu[m->gpus - 1].source = tri__topo_line(m, t, at);
    t->kind = TRI_TOPO_SMI_NVLINK;
    if (!m || m->gpus < (size_t)gpus)
        return end - at;
    char seen[TRI_MAX_GPUS] = { 0 };
    long next = 0;
    bool gap = false;
    size_t now = 0;
    for (size_t i = at; i < end; i++) {
        int index = list_row(l->line[i].body, name);
        if (index >= 0) {
            now = (size_t)index;
            seen[now] = 1;
            next = 0;
            memcpy(m->gpu[now].name, name, sizeof name);
            m->gpu[now].vendor = TRI_VENDOR_NVIDIA;
            bool status = i + 1 < end && (tri_text_find(l->line[i + 1].body, "GB/s") ||
                                          tri_text_find(l->line[i + 1].body, "inactive"));
            if (status) /* printed again: counts start anew */
                m->gpu[now].nvlinks_up = m->gpu[now].nvlinks_down = -1;
        } else {
            long number = link_number(l->line[i].body);
            gap |= number >= 0 && number != next;
            next = number >= 0 ? number + 1 : next;
            link_row(&m->gpu[now], l->line[i].body, tri__topo_line(m, t, i));
        }
    }
    judge_numbering(m, t, at, now, gap);
    for (int i = 0; i < gpus; i++)
        if (!seen[i]) {
            tri_machine_remark(m, TRI_REMARK_CUT, tri__topo_line(m, t, at), "GPU %d is missing", i);
            break;
        }
    return end - at;
}
