/*
 * PCI: spelling of bus ids, what a class code is, link rates, and the tree. The tree is what turns
 * single links into paths: the rate of a device is the minimum on its way to the root, and the
 * nearest common bridge of two devices is the word (PIX ... SYS) that nvidia-smi would print.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "topo/topo.h"
#include "topo/topo_priv.h"

/* Hex digits at p; returns how many, value in *out. */
static size_t hex_run(const char *p, const char *end, uint32_t *out)
{
    size_t n = 0;
    uint32_t v = 0;
    while (p + n < end && isxdigit((unsigned char)p[n]) && n < 9) {
        int c = tolower((unsigned char)p[n]);
        v = v * 16 + (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
        n++;
    }
    *out = v;
    return n;
}

static bool put_bdf(char out[16], uint32_t domain, uint32_t bus, uint32_t dev, uint32_t fn)
{
    if (domain > 0xffff || bus > 0xff || dev > 0x1f || fn > 7)
        return false;
    snprintf(out, 16, "%04x:%02x:%02x.%x", domain, bus, dev, fn);
    return true;
}

bool tri_bdf_normal(const char *text, size_t bytes, char out[16])
{
    const char *end = text + bytes;
    uint32_t part[3] = { 0 }, fn = 0;
    size_t parts = 0, digits = 0;
    const char *p = text;
    if (bytes > 2 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X'))
        p += 2;
    for (; parts < 3; p++) {
        size_t n = hex_run(p, end, &part[parts]);
        if (!n || n > 8)
            return false;
        digits = n;
        parts++;
        p += n;
        if (p >= end || *p != ':')
            break;
    }
    if (p < end && *p == '.') {
        size_t n = hex_run(p + 1, end, &fn);
        if (n != 1)
            return false;
        p += 2;
    }
    if (p != end)
        return false;
    if (parts == 3)
        return put_bdf(out, part[0], part[1], part[2], fn);
    if (parts == 2)
        return digits == 2 && put_bdf(out, 0, part[0], part[1], fn);
    /* NCCL's number: bus << 12 | device << 4 | function, in hex without leading zeros */
    return digits >= 4 && digits <= 8 &&
           put_bdf(out, part[0] >> 20, part[0] >> 12 & 0xff, part[0] >> 4 & 0xff, part[0] & 0xf);
}

enum tri_pci_role tri__topo_role(uint32_t class_code, uint16_t vendor)
{
    uint32_t base = class_code >> 16, sub = class_code >> 8 & 0xff;
    if (!class_code)
        return TRI_PCI_UNKNOWN;
    if (base == 0x03) { /* display: a server's management VGA and emulated cards are no GPUs */
        static const uint16_t no_gpu[] = { 0x1a03, 0x102b, 0x1234, 0x1013, 0x15ad,
                                           0x1af4, 0x1b36, 0x1414, 0x19e5, 0x18ca };
        for (size_t i = 0; i < sizeof no_gpu / sizeof no_gpu[0]; i++)
            if (vendor == no_gpu[i])
                return TRI_PCI_OTHER;
        return TRI_PCI_GPU;
    }
    if (base == 0x12)
        return TRI_PCI_GPU;
    if (base == 0x02 && (sub == 0x00 || sub == 0x07 || sub == 0x08 || sub == 0x80))
        return TRI_PCI_NIC;
    if (base == 0x06 && sub == 0x04)
        return TRI_PCI_BRIDGE;
    if (base == 0x01 && (sub == 0x08 || sub == 0x06 || sub == 0x07))
        return TRI_PCI_DRIVE;
    return TRI_PCI_OTHER;
}

enum tri_vendor tri__topo_vendor(uint16_t v)
{
    return v == 0x10de                  ? TRI_VENDOR_NVIDIA
           : v == 0x1002 || v == 0x1022 ? TRI_VENDOR_AMD
           : v == 0x8086                ? TRI_VENDOR_INTEL
           : v == 0x19e5                ? TRI_VENDOR_HUAWEI
                                        : TRI_VENDOR_UNKNOWN;
}

double tri__topo_gts(const char *text)
{
    char *end = NULL;
    double v = strtod(text, &end);
    if (end == text)
        return 0;
    while (*end == ' ')
        end++;
    static const double known[] = { 2.5, 5, 8, 16, 32, 64 };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (v == known[i] && tri_text_begins(end, "GT/s"))
            return v;
    return 0;
}

int tri_link_gen(double gts)
{
    return gts <= 0   ? 0
           : gts < 3  ? 1
           : gts < 6  ? 2
           : gts < 10 ? 3
           : gts < 20 ? 4
           : gts < 40 ? 5
                      : 6;
}

double tri_link_gbs(struct tri_link link)
{
    /* coding: 8b/10b to 5 GT/s, 128b/130b to 32, flits of 256 bytes with 242 of data at 64 */
    double code = link.gts < 6 ? 0.8 : link.gts < 40 ? 128.0 / 130 : 242.0 / 256;
    return link.gts > 0 && link.width > 0 ? link.gts * link.width * code / 8 : 0;
}

struct tri_link tri__topo_link_of(double gbs)
{
    static const double rates[] = { 64, 32, 16, 8, 5, 2.5 };
    static const int widths[] = { 16, 8, 4, 2, 1 };
    for (size_t w = 0; w < 5 && gbs > 0; w++)
        for (size_t r = 0; r < 6; r++) {
            struct tri_link l = { rates[r], widths[w] };
            double v = tri_link_gbs(l);
            if (gbs > v * 0.97 && gbs < v * 1.03)
                return l;
        }
    return (struct tri_link){ 0, 0 };
}

enum { PCI_SLOTS = 2 * TRI_MAX_PCI }; /* half of them stay free */

/* The slot that holds this bus id, or the free one where it would stand. */
static uint16_t *pci_slot(const struct tri_machine *m, const char normal[16])
{
    uint64_t h = 14695981039346656037u;
    for (const char *p = normal; *p; p++)
        h = (h ^ (unsigned char)*p) * 1099511628211u;
    for (h ^= h >> 29;; h++) {
        uint16_t *slot = &m->pci_slot[h % PCI_SLOTS];
        if (!*slot || !strcmp(m->pci[*slot - 1].bdf, normal))
            return slot;
    }
}

/* The latest device of that bus id. */
int tri_machine_find_pci(struct tri_machine *m, const char *bdf)
{
    char normal[16];
    if (!m->pcis || !tri_bdf_normal(bdf, strlen(bdf), normal))
        return -1;
    if (!m->pci_slot)
        m->pci_slot = tri_calloc(PCI_SLOTS, sizeof *m->pci_slot);
    if (!m->pci_slot)
        return -1;
    for (; m->pci_hashed < m->pcis; m->pci_hashed++)
        if (m->pci[m->pci_hashed].bdf[0])
            *pci_slot(m, m->pci[m->pci_hashed].bdf) = (uint16_t)(m->pci_hashed + 1);
    return (int)*pci_slot(m, normal) - 1;
}

int tri_machine_find_gpu(const struct tri_machine *m, const char *bdf)
{
    char normal[16];
    if (!tri_bdf_normal(bdf, strlen(bdf), normal))
        return -1;
    for (size_t i = 0; i < m->gpus; i++)
        if (!strcmp(m->gpu[i].bdf, normal))
            return (int)i;
    return -1;
}

void tri__topo_set_bdf(struct tri_pci *p, const char normal[16])
{
    unsigned domain = 0, bus = 0;
    memcpy(p->bdf, normal, sizeof p->bdf);
    if (sscanf(normal, "%x:%x", &domain, &bus) == 2) {
        p->domain = (int)domain;
        p->bus = (int)bus;
    }
}

struct tri_pci *tri__topo_pci_at(struct tri_machine *m, const char *bdf)
{
    char normal[16];
    if (!tri_bdf_normal(bdf, strlen(bdf), normal))
        return NULL;
    int at = tri_machine_find_pci(m, normal);
    if (at >= 0)
        return &m->pci[at];
    struct tri_pci *p = tri_machine_add_pci(m);
    if (p)
        tri__topo_set_bdf(p, normal);
    return p;
}

/* Bridges of one domain by bus: the nearest one above each. */
struct above {
    int domain;
    int bridge[256]; /* index, -1 none */
};

static int by_domain(const void *a, const void *b)
{
    const struct above *x = a, *y = b;
    return (x->domain > y->domain) - (x->domain < y->domain);
}

static struct above *domain_of(struct above *list, size_t count, int domain)
{
    struct above key = { .domain = domain };
    return bsearch(&key, list, count, sizeof *list, by_domain);
}

/* Every domain that has a bridge, once, with no bridge entered yet. */
static size_t list_domains(const struct tri_machine *m, struct above *list)
{
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < m->pcis; i++)
        if (m->pci[i].secondary >= 0 && m->pci[i].domain >= 0 &&
            (!n || list[n - 1].domain != m->pci[i].domain))
            list[n++].domain = m->pci[i].domain;
    qsort(list, n, sizeof *list, by_domain);
    for (size_t i = 0; i < n; i++)
        if (!kept || list[kept - 1].domain != list[i].domain)
            list[kept++] = list[i];
    for (size_t i = 0; i < kept; i++)
        memset(list[i].bridge, -1, sizeof list[i].bridge);
    return kept;
}

/* Parents from secondary bus numbers, where no reader knew them. The nearest bridge wins. */
static void find_parents(struct tri_machine *m)
{
    size_t bridges = 0;
    for (size_t i = 0; i < m->pcis; i++)
        bridges += m->pci[i].secondary >= 0;
    struct above *list = bridges ? tri_calloc(bridges, sizeof *list) : NULL;
    size_t domains = list ? list_domains(m, list) : 0;
    for (size_t i = 0; i < m->pcis && domains; i++) {
        const struct tri_pci *b = &m->pci[i];
        if (b->secondary < 0 || b->domain < 0)
            continue;
        int *bridge = domain_of(list, domains, b->domain)->bridge;
        /* a bridge lies on a lower bus than what is behind it: no cycles from damaged text */
        for (int bus = b->secondary > b->bus ? b->secondary : b->bus + 1;
             bus <= b->subordinate && bus < 256; bus++)
            if (bridge[bus] < 0 || m->pci[bridge[bus]].secondary < b->secondary)
                bridge[bus] = (int)i;
    }
    for (size_t i = 0; i < m->pcis && domains; i++) {
        struct tri_pci *p = &m->pci[i];
        struct above *d = domain_of(list, domains, p->domain);
        if (p->parent < 0 && !p->is_virtual && p->bus >= 0 && p->bus < 256 && d)
            p->parent = d->bridge[p->bus];
    }
    tri_free(list);
}

double tri_path_to_root_gbs(const struct tri_machine *m, int pci, int *slowest)
{
    double least = 0;
    for (int steps = 0; pci >= 0 && steps < 64; pci = m->pci[pci].parent, steps++) {
        double now = tri_link_gbs(m->pci[pci].sta);
        if (now > 0 && (least <= 0 || now < least)) {
            least = now;
            if (slowest)
                *slowest = pci;
        }
    }
    return least;
}

/* How many bridges lie between `pci` and its ancestor `top` (not counting it); -1: not below it. */
static int depth_below(const struct tri_machine *m, int pci, int top)
{
    int depth = 0;
    for (int steps = 0; pci >= 0 && steps < 64; steps++) {
        if (pci == top)
            return depth;
        pci = m->pci[pci].parent;
        depth++;
    }
    return -1;
}

/* The word for the way between two PCI devices, UNKNOWN when the tree does not prove one. */
static enum tri_path tree_path(const struct tri_machine *m, int a, int b)
{
    if (a < 0 || b < 0 || a == b)
        return TRI_PATH_UNKNOWN;
    int top = m->pci[a].parent;
    for (int steps = 0; top >= 0 && steps < 64; top = m->pci[top].parent, steps++) {
        int down = depth_below(m, b, top);
        if (down < 0)
            continue;
        int up = depth_below(m, a, top);
        /* endpoint - downstream port - upstream port: one switch, which NVIDIA calls PIX */
        return up <= 2 && down <= 2 ? TRI_PATH_PIX : TRI_PATH_PXB;
    }
    bool tree = m->pci[a].parent >= 0 && m->pci[b].parent >= 0;
    if (m->pci[a].numa >= 0 && m->pci[b].numa >= 0 && m->pci[a].numa != m->pci[b].numa)
        return TRI_PATH_SYS;
    return tree && m->pci[a].numa >= 0 && m->pci[a].numa == m->pci[b].numa ? TRI_PATH_NODE
                                                                           : TRI_PATH_UNKNOWN;
}

static void join_gpus(struct tri_machine *m)
{
    size_t found = 0;
    for (size_t i = 0; i < m->pcis; i++)
        found += m->pci[i].role == TRI_PCI_GPU;
    bool named = m->gpus > 0;
    if (!named) { /* only PCI knows the GPUs: bus order, as the drivers number them */
        for (size_t i = 0; i < m->pcis; i++) {
            const struct tri_pci *p = &m->pci[i];
            if (p->role != TRI_PCI_GPU || tri_machine_find_pci(m, p->bdf) != (int)i)
                continue;
            struct tri_gpu *g = tri_machine_add_gpu(m);
            if (!g)
                break;
            memcpy(g->bdf, p->bdf, sizeof g->bdf);
            tri__topo_copy(g->name, sizeof g->name, p->name, strlen(p->name));
            g->source = p->source;
        }
    }
    for (size_t i = 0, at = 0; i < m->gpus; i++) {
        struct tri_gpu *g = &m->gpu[i];
        if (!g->bdf[0] && found == m->gpus) { /* same number of each: PCI order is driver order */
            while (at < m->pcis && m->pci[at].role != TRI_PCI_GPU)
                at++;
            if (at < m->pcis)
                memcpy(g->bdf, m->pci[at++].bdf, sizeof g->bdf);
        }
        if (g->bdf[0])
            g->pci = tri_machine_find_pci(m, g->bdf);
        if (g->pci < 0)
            continue;
        struct tri_pci *p = &m->pci[g->pci];
        if (p->role == TRI_PCI_UNKNOWN)
            p->role = TRI_PCI_GPU;
        if (g->numa < 0)
            g->numa = p->numa;
        if (g->vendor == TRI_VENDOR_UNKNOWN)
            g->vendor = tri__topo_vendor(p->vendor);
    }
}

static void join_nics(struct tri_machine *m)
{
    for (size_t i = 0; i < m->nics; i++) {
        struct tri_nic *n = &m->nic[i];
        n->pci = n->bdf[0] ? tri_machine_find_pci(m, n->bdf) : -1;
        if (n->pci >= 0 && n->numa < 0)
            n->numa = m->pci[n->pci].numa;
    }
    for (size_t i = 0; i < m->drives; i++) {
        struct tri_drive *d = &m->drive[i];
        d->pci = d->bdf[0] ? tri_machine_find_pci(m, d->bdf) : -1;
        if (d->pci >= 0 && d->numa < 0)
            d->numa = m->pci[d->pci].numa;
    }
}

static void join_paths(struct tri_machine *m)
{
    static const struct tri_source derived = { -1, 0 };
    for (size_t a = 0; a < m->gpus; a++) {
        for (size_t b = a + 1; b < m->gpus; b++)
            if (tri_machine_pair(m, a, b)->path == TRI_PATH_UNKNOWN)
                tri__topo_set_path(m, a, b, tree_path(m, m->gpu[a].pci, m->gpu[b].pci), 0, derived);
        for (size_t n = 0; n < m->nics; n++) {
            enum tri_path *p = tri_machine_gpu_nic(m, a, n);
            if (*p == TRI_PATH_UNKNOWN)
                *p = tree_path(m, m->gpu[a].pci, m->nic[n].pci);
        }
    }
}

/* Nominal rate of every pair: NVLink by count and part, XGMI by part, PCIe by the slower end. */
static void join_rates(struct tri_machine *m)
{
    for (size_t a = 0; a < m->gpus; a++) {
        for (size_t b = 0; b < m->gpus; b++) {
            struct tri_pair *p = tri_machine_pair(m, a, b);
            if (a == b || p->link_gbs > 0)
                continue;
            const struct tri_gpu *g = &m->gpu[a];
            if (p->path == TRI_PATH_NVLINK) {
                double one = g->nvlink_gbs > 0 ? g->nvlink_gbs : tri_nvlink_gbs(p->links, g->name);
                p->link_gbs = one * p->links;
            } else if (p->path != TRI_PATH_UNKNOWN && p->path != TRI_PATH_XGMI) {
                double x = tri_path_to_root_gbs(m, g->pci, NULL);
                double y = tri_path_to_root_gbs(m, m->gpu[b].pci, NULL);
                p->link_gbs = x > 0 && y > 0 ? (x < y ? x : y) : 0;
            }
        }
    }
}

/* A device listed twice: somebody tried speeds, or looked again under load. */
static void find_full(struct tri_machine *m)
{
    for (int round = 0; round < 2; round++) /* told to the latest of its kind, and by it to all */
        for (size_t i = 0; i < m->pcis; i++) {
            struct tri_pci *p = &m->pci[i];
            int latest = p->bdf[0] ? tri_machine_find_pci(m, p->bdf) : -1;
            if (latest < 0)
                continue;
            if (!round && p->cap.gts > 0 && p->sta.gts >= p->cap.gts)
                m->pci[latest].seen_full = true;
            p->seen_full |= m->pci[latest].seen_full;
        }
}

void tri_machine_join(struct tri_machine *m)
{
    find_parents(m);
    find_full(m);
    for (size_t i = 0; i < m->pcis; i++) { /* a device without a NUMA node has its bridge's */
        struct tri_pci *p = &m->pci[i];
        for (int up = p->parent, steps = 0; p->numa < 0 && up >= 0 && steps < 64; steps++) {
            p->numa = m->pci[up].numa;
            up = m->pci[up].parent;
        }
    }
    join_gpus(m);
    join_nics(m);
    join_paths(m);
    join_rates(m);
}

double tri_nvlink_gbs(int links, const char *name)
{
    /* One direction of one link (planner.md 3.1). The bridge of the 3090 clocks lower; NVLink 5
     * doubles NVLink 4; without a name NV18 could be either, so the lower is told. */
    if (links <= 0)
        return 0;
    if (tri_text_find(name, "3090"))
        return 14.0625;
    static const char *const five[] = { "B100", "B200", "B300", "GB200", "GB300" };
    for (size_t i = 0; i < sizeof five / sizeof five[0]; i++)
        if (tri_text_find(name, five[i]))
            return 50;
    if (tri_text_find(name, "P100"))
        return 20;
    return 25;
}
