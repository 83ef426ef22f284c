/*
 * The lines of rocm-smi and amd-smi that are no tables: NUMA nodes and product names.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "topo/topo.h"
#include "topo/topo_priv.h"

/* "GPU[3]\t\t: (Topology) Numa Node: 0" -> 3, and the text after the first colon. -1: no such line.
 */
static long gpu_line(const char *text, const char **value)
{
    text += strspn(text, " \t");
    if (!tri_text_begins(text, "GPU[") || !isdigit((unsigned char)text[4]))
        return -1;
    char *end = NULL;
    long index = strtol(text + 4, &end, 10);
    if (*end != ']' || index < 0 || index >= TRI_MAX_GPUS)
        return -1;
    const char *colon = strchr(end, ':');
    if (!colon)
        return -1;
    *value = colon + 1 + strspn(colon + 1, " \t");
    return index;
}

static const char *after(const char *text, const char *key)
{
    const char *at = tri_text_find(text, key);
    if (!at)
        return NULL;
    at += strlen(key);
    return at + strspn(at, " \t:");
}

static void read_value(struct tri_machine *m, struct tri_gpu *g, const char *value,
                       struct tri_source source)
{
    const char *text = after(value, "Numa Node:");
    if (text) {
        char *end = NULL;
        long node = strtol(text, &end, 10);
        g->numa = end != text && node >= 0 && node < TRI_MAX_NUMA ? (int)node : -1;
        g->source = source;
        return;
    }
    text = after(value, "Card Series");
    if (!text)
        text = after(value, "Card series");
    if (text && !g->name[0])
        tri__topo_copy(g->name, sizeof g->name, text, strlen(text));
    text = after(value, "PCI Bus:");
    if (text)
        tri_bdf_normal(text, strcspn(text, " \t"), g->bdf);
    (void)m;
}

/* How many GPUs the block of GPU[n] lines from `at` on tells of, and its length. */
static size_t block(const struct tri_lines *lines, size_t at, size_t *gpus)
{
    size_t i = at;
    const char *value;
    for (; i < lines->count; i++) {
        long index = gpu_line(lines->line[i].body, &value);
        if (index < 0)
            break;
        if ((size_t)index + 1 > *gpus)
            *gpus = (size_t)index + 1;
    }
    return i - at;
}

bool tri__topo_may_be_amd(const struct tri_machine *m)
{
    bool other = m->gpus && m->gpu[0].vendor == TRI_VENDOR_NVIDIA;
    for (size_t i = 0; i < m->gpus * m->gpus; i++)
        other |= m->pair[i].source.file >= 0 && m->pair[i].path >= TRI_PATH_NVLINK &&
                 m->pair[i].path != TRI_PATH_XGMI && m->pair[i].path != TRI_PATH_PCIE;
    return !other;
}

static size_t read_block(struct tri__topo_text *t, size_t at)
{
    size_t gpus = 0, taken = block(t->lines, at, &gpus);
    const char *value = NULL;
    if (!taken)
        return 0;
    struct tri_machine *m = tri__topo_machine_for(t->set, gpus);
    if (m && !tri__topo_may_be_amd(m))
        m = tri__topo_machine_new(t->set);
    if (!m)
        return taken;
    while (m->gpus < gpus) {
        struct tri_gpu *g = tri_machine_add_gpu(m);
        if (!g)
            return taken;
        g->vendor = TRI_VENDOR_AMD;
        g->source = tri__topo_line(m, t, at);
    }
    for (size_t i = at; i < at + taken; i++) {
        long index = gpu_line(t->lines->line[i].body, &value);
        if (index >= 0)
            read_value(m, &m->gpu[index], value, tri__topo_line(m, t, i));
    }
    t->kind = TRI_TOPO_ROCM;
    return taken;
}

void tri__topo_rocm_end(struct tri_machines *set, bool closed)
{
    if (set->rocm_open && !closed)
        tri_machine_remark(set->rocm_open, TRI_REMARK_CUT, set->rocm_source,
                           "the end of the rocm-smi output is missing");
    set->rocm_open = NULL;
}

size_t tri__topo_read_amd(struct tri__topo_text *t, size_t at)
{
    const char *text = t->lines->line[at].body;
    bool end = tri_text_find(text, "End of ROCm SMI Log");
    if (end || tri_text_find(text, "ROCm System Management Interface")) { /* or another begins */
        tri__topo_rocm_end(t->set, end);
        t->kind = TRI_TOPO_ROCM;
        return end;
    }
    return read_block(t, at);
}
