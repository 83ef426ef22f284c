/*
 * The machine struct: its growing arrays, the tables between devices, remarks and sources, and the
 * words for paths. Reading is elsewhere; joining is in pcitree.c.
 */
#include "topo/topo.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "topo/topo_priv.h"

const char *tri_path_name(enum tri_path path)
{
    switch (path) {
#define TRI_PATH_CASE(name, text)                                                                  \
    case TRI_PATH_##name:                                                                          \
        return text;
        TRI_PATH_MAP(TRI_PATH_CASE)
#undef TRI_PATH_CASE
    }
    return "?";
}

const char *tri_p2p_name(enum tri_p2p p2p)
{
    switch (p2p) {
#define TRI_P2P_CASE(name, text, meaning)                                                          \
    case TRI_P2P_##name:                                                                           \
        return text;
        TRI_P2P_MAP(TRI_P2P_CASE)
#undef TRI_P2P_CASE
    }
    return "?";
}

const char *tri_p2p_meaning(enum tri_p2p p2p)
{
    switch (p2p) {
#define TRI_P2P_CASE(name, text, meaning)                                                          \
    case TRI_P2P_##name:                                                                           \
        return meaning;
        TRI_P2P_MAP(TRI_P2P_CASE)
#undef TRI_P2P_CASE
    }
    return "?";
}

void tri__topo_copy(char *out, size_t out_bytes, const char *text, size_t text_bytes)
{
    size_t n = text_bytes < out_bytes ? text_bytes : out_bytes - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? ' ' : text[i];
    while (n && out[n - 1] == ' ')
        n--;
    out[n] = 0;
}

enum tri_status tri_machine_open(struct tri_machine **out, struct tri_error *err)
{
    struct tri_machine *m = tri_calloc(1, sizeof *m);
    if (!m)
        return tri_fail(err, TRI_NOMEM, "no memory for a machine");
    m->cpu.source.file = m->memory.source.file = -1;
    *out = m;
    return TRI_OK;
}

void tri_machine_close(struct tri_machine *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->sources; i++)
        tri_free(m->source[i]);
    tri_free(m->source);
    tri_free(m->gpu);
    tri_free(m->nic);
    tri_free(m->pci);
    tri_free(m->pci_slot);
    tri_free(m->numa);
    tri_free(m->drive);
    tri_free(m->pair);
    tri_free(m->gpu_nic);
    tri_free(m->remark);
    tri_free(m);
}

/* Room for one more element, in steps; NULL at the limit or without memory. */
static void *grow(void **array, size_t *count, size_t limit, size_t bytes)
{
    if (*count >= limit)
        return NULL;
    if ((*count & (*count - 1)) == 0) { /* full at powers of two */
        size_t cap = *count ? *count * 2 : 1;
        void *more = tri_realloc(*array, cap * bytes);
        if (!more)
            return NULL;
        *array = more;
    }
    void *item = (char *)*array + *count * bytes;
    memset(item, 0, bytes);
    (*count)++;
    return item;
}

int tri_machine_source(struct tri_machine *m, const char *name)
{
    if (m->sources && !strcmp(m->source[m->source_now], name))
        return (int)m->source_now;
    for (size_t i = 0; i < m->sources; i++)
        if (!strcmp(m->source[i], name)) {
            m->source_now = i;
            return (int)i;
        }
    char *copy = tri_strdup(name);
    char **slot =
        copy ? grow((void **)&m->source, &m->sources, TRI_MAX_SOURCES, sizeof *slot) : NULL;
    if (!slot) {
        tri_free(copy);
        return -1;
    }
    *slot = copy;
    return (int)m->sources - 1;
}

/* What a table had for another number of rows and columns, spread out for a larger one. */
static void spread(char *table, size_t bytes, const size_t from[2], const size_t to[2])
{
    for (size_t r = from[0]; r-- > 0;)
        memmove(table + r * to[1] * bytes, table + r * from[1] * bytes, from[1] * bytes);
    for (size_t r = 0; r < to[0]; r++) {
        size_t old = r < from[0] ? from[1] : 0;
        memset(table + (r * to[1] + old) * bytes, 0, (to[1] - old) * bytes);
    }
}

/* Room for `need` cells, in doublings. */
static bool room(void **table, size_t *cap, size_t need, size_t bytes)
{
    size_t more = *cap ? *cap : 16;
    while (more < need)
        more *= 2;
    void *now = more > *cap ? tri_realloc(*table, more * bytes) : *table;
    if (!now)
        return false;
    *table = now;
    *cap = more > *cap ? more : *cap;
    return true;
}

/* Both tables for more devices; the old cells keep their meaning. */
static bool retable(struct tri_machine *m, size_t gpus, size_t nics)
{
    size_t from[2] = { m->gpus, m->gpus }, to[2] = { gpus, gpus };
    if (!room((void **)&m->pair, &m->pair_cap, gpus * gpus, sizeof *m->pair) ||
        !room((void **)&m->gpu_nic, &m->gpu_nic_cap, gpus * nics, sizeof *m->gpu_nic))
        return false;
    if (gpus > m->gpus)
        spread((char *)m->pair, sizeof *m->pair, from, to);
    for (size_t a = 0; a < gpus && gpus > m->gpus; a++)
        for (size_t b = 0; b < gpus; b++)
            if (a >= m->gpus || b >= m->gpus)
                m->pair[a * gpus + b] =
                    (struct tri_pair){ .weight = -1,
                                       .hops = -1,
                                       .path = a == b ? TRI_PATH_SELF : TRI_PATH_UNKNOWN,
                                       .source.file = -1,
                                       .p2p_source.file = -1 };
    from[1] = m->nics;
    to[1] = nics;
    spread((char *)m->gpu_nic, sizeof *m->gpu_nic, from, to);
    return true;
}

/* Every field unknown. */
struct tri_gpu tri__topo_blank_gpu(void)
{
    struct tri_gpu gpu = { .numa = -1,
                           .busy_percent = -1,
                           .pstate = -1,
                           .pci = -1,
                           .nvlinks_up = -1,
                           .nvlinks_down = -1,
                           .nvlink_errors = -1,
                           .source.file = -1,
                           .link_source.file = -1 };
    gpu.state = (struct tri_gpu_state){ .gen_max = -1,
                                        .gen_now = -1,
                                        .gen_device = -1,
                                        .gen_host = -1,
                                        .width_max = -1,
                                        .width_now = -1,
                                        .idle = -1,
                                        .replays = -1,
                                        .mig = -1,
                                        .passthrough = -1,
                                        .remap_failed = -1,
                                        .remap_pending = -1 };
    return gpu;
}

struct tri_gpu *tri__topo_found_gpu(struct tri__topo_found *found)
{
    struct tri_gpu *gpu =
        grow((void **)&found->gpu, &found->gpus, TRI_MAX_GPUS, sizeof *found->gpu);
    if (gpu)
        *gpu = tri__topo_blank_gpu();
    return gpu;
}

struct tri_gpu *tri_machine_add_gpu(struct tri_machine *m)
{
    size_t count = m->gpus;
    struct tri_gpu *gpu = grow((void **)&m->gpu, &m->gpus, TRI_MAX_GPUS, sizeof *gpu);
    if (!gpu)
        return NULL;
    *gpu = tri__topo_blank_gpu();
    m->gpus = count;
    bool fits = retable(m, count + 1, m->nics);
    m->gpus = count + fits;
    return fits ? gpu : NULL;
}

struct tri_nic *tri_machine_add_nic(struct tri_machine *m)
{
    size_t count = m->nics;
    struct tri_nic *nic = grow((void **)&m->nic, &m->nics, TRI_MAX_NICS, sizeof *nic);
    m->nics = count;
    if (!nic || !retable(m, m->gpus, count + 1))
        return NULL;
    m->nics = count + 1;
    *nic = (struct tri_nic){ .numa = -1, .gdr = -1, .pci = -1, .source.file = -1 };
    return nic;
}

struct tri_pci *tri_machine_add_pci(struct tri_machine *m)
{
    struct tri_pci *p = grow((void **)&m->pci, &m->pcis, TRI_MAX_PCI, sizeof *p);
    if (p)
        *p = (struct tri_pci){ .parent = -1,
                               .secondary = -1,
                               .subordinate = -1,
                               .numa = -1,
                               .acs = -1,
                               .domain = -1,
                               .bus = -1,
                               .role = TRI_PCI_UNKNOWN,
                               .source.file = -1,
                               .sta_source.file = -1,
                               .acs_source.file = -1 };
    return p;
}

struct tri_numa *tri_machine_add_numa(struct tri_machine *m)
{
    struct tri_numa *n = grow((void **)&m->numa, &m->numas, TRI_MAX_NUMA, sizeof *n);
    if (n)
        *n = (struct tri_numa){ .id = -1, .source.file = -1 };
    return n;
}

struct tri_drive *tri_machine_add_drive(struct tri_machine *m)
{
    struct tri_drive *d = grow((void **)&m->drive, &m->drives, TRI_MAX_DRIVES, sizeof *d);
    if (d)
        *d = (struct tri_drive){ .rotational = -1, .numa = -1, .pci = -1, .source.file = -1 };
    return d;
}

void tri_machine_remark(struct tri_machine *m, enum tri_remark_kind kind, struct tri_source source,
                        const char *format, ...)
{
    struct tri_remark *r = grow((void **)&m->remark, &m->remarks, TRI_MAX_REMARKS, sizeof *r);
    if (!r) {
        m->remarks_lost++;
        return;
    }
    r->kind = kind;
    r->source = source;
    va_list args;
    va_start(args, format);
    vsnprintf(r->text, sizeof r->text, format, args);
    va_end(args);
}

bool tri_machine_is_cut(const struct tri_machine *m)
{
    for (size_t i = 0; i < m->remarks; i++)
        if (m->remark[i].kind == TRI_REMARK_CUT || m->remark[i].kind == TRI_REMARK_REPAIRED)
            return true;
    return m->remarks_lost > 0;
}

struct tri_pair *tri_machine_pair(const struct tri_machine *m, size_t a, size_t b)
{
    TRI_ASSERT(a < m->gpus && b < m->gpus);
    return &m->pair[a * m->gpus + b];
}

enum tri_path *tri_machine_gpu_nic(const struct tri_machine *m, size_t gpu, size_t nic)
{
    TRI_ASSERT(gpu < m->gpus && nic < m->nics);
    return &m->gpu_nic[gpu * m->nics + nic];
}

void tri__topo_set_path(struct tri_machine *m, size_t a, size_t b, enum tri_path path, int links,
                        struct tri_source source)
{
    if (a == b || path == TRI_PATH_UNKNOWN || path == TRI_PATH_SELF)
        return;
    for (int way = 0; way < 2; way++) {
        struct tri_pair *p = tri_machine_pair(m, way ? b : a, way ? a : b);
        bool vague = p->path == TRI_PATH_PCIE && path != TRI_PATH_XGMI && path != TRI_PATH_NVLINK;
        if (p->path == TRI_PATH_UNKNOWN || vague) {
            p->path = path;
            p->links = links;
            p->source = source;
        } else if (p->path != path && path != TRI_PATH_PCIE && !way) {
            tri_machine_remark(m, TRI_REMARK_CONTRADICTION, source,
                               "GPU%zu-GPU%zu is %s here and %s elsewhere", a, b,
                               tri_path_name(path), tri_path_name(p->path));
        } else if (p->path == path && path == TRI_PATH_NVLINK && p->links != links && !way) {
            tri_machine_remark(m, TRI_REMARK_CONTRADICTION, source,
                               "GPU%zu-GPU%zu has %d NVLinks here and %d elsewhere", a, b, links,
                               p->links);
        }
    }
}
