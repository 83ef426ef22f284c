/*
 * NCCL's topology XML (NCCL_TOPO_DUMP_FILE, the topo files of clouds, RCCL's with <xgmi>), read
 * with expat as a stream, so that a cut file still gives what stood before the cut.
 * Shape: system > cpu(numaid, affinity) > pci(busid, class, link_speed, link_width) > pci ... >
 * gpu(dev, rank, gdr) > nvlink|xgmi(target, count, tclass);  nic > net(name, speed in Mb/s, gdr).
 */
#include <expat.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "topo/topo.h"
#include "topo/topo_priv.h"

enum { MAX_LINKS = 4096, MAX_ATTRIBUTE = 256 };

struct found_gpu {
    int pci, dev, gdr;
};

struct found_link { /* from a GPU to another, or to a switch or CPU (then `peer` is empty) */
    int gpu;
    char peer[16];
    uint32_t peer_class;
    int count;
    bool xgmi;
    uint32_t line;
};

struct nccl_xml {
    struct tri_machine *machine;
    XML_Parser parser;
    int source, depth;
    bool is_system, refused;
    int stack[TRI_XML_MAX_DEPTH]; /* PCI index of each open <pci>, else -1 */
    int numa;
    char arch[16], vendor[16];
    struct found_gpu gpu[TRI_MAX_GPUS];
    size_t gpus;
    struct found_link *link;
    size_t links;
};

static const char *attribute(const char **list, const char *name)
{
    for (size_t i = 0; list[i] && list[i + 1]; i += 2)
        if (!strcmp(list[i], name))
            return strlen(list[i + 1]) < MAX_ATTRIBUTE ? list[i + 1] : "";
    return "";
}

/* A whole number of an attribute, -1 when absent or out of 0..limit. */
static long number(const char **list, const char *name, int base, long limit)
{
    const char *text = attribute(list, name);
    char *end = NULL;
    long v = strtol(text, &end, base);
    return end == text || v < 0 || v > limit ? -1 : v;
}

static struct tri_source here(const struct nccl_xml *x)
{
    return (struct tri_source){ x->source, (uint32_t)XML_GetCurrentLineNumber(x->parser) };
}

/* Index of the nearest open <pci>, -1 when there is none. */
static int open_pci(const struct nccl_xml *x)
{
    for (int i = x->depth - 1; i >= 0; i--)
        if (x->stack[i] >= 0)
            return x->stack[i];
    return -1;
}

/* Counts the bits of "0000ffff,ffffffff". */
static int mask_bits(const char *text)
{
    int bits = 0;
    for (; *text; text++) {
        char one[2] = { *text, 0 };
        bits += __builtin_popcountl(strtoul(one, NULL, 16));
    }
    return bits;
}

static void on_cpu(struct nccl_xml *x, const char **list)
{
    struct tri_machine *m = x->machine;
    x->numa = (int)number(list, "numaid", 10, TRI_MAX_NUMA);
    const char *arch = attribute(list, "arch"), *vendor = attribute(list, "vendor");
    tri__topo_copy(m->cpu.arch, sizeof m->cpu.arch, arch, strlen(arch));
    tri__topo_copy(m->cpu.vendor, sizeof m->cpu.vendor, vendor, strlen(vendor));
    struct tri_numa *n = x->numa >= 0 ? tri_machine_add_numa(m) : NULL;
    if (!n)
        return;
    n->id = x->numa;
    n->cpu_count = mask_bits(attribute(list, "affinity"));
    n->source = here(x);
}

/* Devices of the "ffff:ff" bus do not exist: clouds write them to say what belongs together. */
static void on_pci(struct nccl_xml *x, const char **list)
{
    struct tri_machine *m = x->machine;
    const char *bdf = attribute(list, "busid");
    struct tri_pci *p = tri__topo_pci_at(m, bdf);
    if (!p)
        return;
    int parent = open_pci(x);
    long code = number(list, "class", 16, 0xffffff), vendor = number(list, "vendor", 16, 0xffff);
    long device = number(list, "device", 16, 0xffff), width = number(list, "link_width", 10, 64);
    int self = (int)(p - m->pci);
    p->source = p->sta_source = here(x);
    p->class_code = code > 0 ? (uint32_t)code : 0;
    p->vendor = vendor > 0 ? (uint16_t)vendor : 0;
    p->device = device > 0 ? (uint16_t)device : 0;
    p->role = tri__topo_role(p->class_code, p->vendor);
    p->is_virtual = tri_text_begins(bdf, "ffff:ff");
    p->parent = parent != self ? parent : -1;
    p->numa = x->numa;
    p->sta.gts = tri__topo_gts(attribute(list, "link_speed"));
    p->sta.width = width > 0 ? (int)width : 0;
    if (x->depth < TRI_XML_MAX_DEPTH)
        x->stack[x->depth] = self;
    if (p->role == TRI_PCI_GPU && x->gpus < TRI_MAX_GPUS)
        x->gpu[x->gpus++] = (struct found_gpu){ self, (int)x->gpus, -1 };
    else if (p->role == TRI_PCI_NIC) {
        struct tri_nic *n = tri_machine_add_nic(m);
        if (!n)
            return;
        memcpy(n->bdf, p->bdf, sizeof n->bdf);
        n->kind = (p->class_code >> 8) == 0x0207 ? TRI_NIC_INFINIBAND : TRI_NIC_ETHERNET;
        n->numa = x->numa;
        n->source = here(x);
        m->nics_listed = true;
    }
}

/* The GPU a <gpu>, <nvlink> or <xgmi> belongs to: the innermost open <pci> that is one. */
static struct found_gpu *open_gpu(struct nccl_xml *x)
{
    int pci = open_pci(x);
    for (size_t i = 0; i < x->gpus; i++)
        if (x->gpu[i].pci == pci)
            return &x->gpu[i];
    return NULL;
}

static void on_link(struct nccl_xml *x, const char **list, bool xgmi)
{
    struct found_gpu *g = open_gpu(x);
    if (!g || x->links == MAX_LINKS)
        return;
    struct found_link *l = &x->link[x->links++];
    const char *target = attribute(list, "target");
    long count = number(list, "count", 10, 64), tclass = number(list, "tclass", 16, 0xffffff);
    *l = (struct found_link){ .gpu = (int)(g - x->gpu),
                              .count = count > 0 ? (int)count : 0,
                              .peer_class = tclass > 0 ? (uint32_t)tclass : 0,
                              .xgmi = xgmi,
                              .line = here(x).line };
    if (!tri_bdf_normal(target, strlen(target), l->peer))
        l->peer[0] = 0;
}

static void on_net(struct nccl_xml *x, const char **list)
{
    struct tri_machine *m = x->machine;
    int pci = open_pci(x);
    for (size_t i = m->nics; i-- > 0 && pci >= 0;) {
        struct tri_nic *n = &m->nic[i];
        if (strcmp(n->bdf, m->pci[pci].bdf))
            continue;
        const char *name = attribute(list, "name");
        long mbps = number(list, "speed", 10, 100000000), gdr = number(list, "gdr", 10, 1);
        if (!n->name[0])
            tri__topo_copy(n->name, sizeof n->name, name, strlen(name));
        n->rate_gbs += mbps > 0 ? (double)mbps / 8000 : 0;
        n->gdr = (int)gdr;
        return;
    }
}

static void XMLCALL on_start(void *arg, const XML_Char *name, const XML_Char **list)
{
    struct nccl_xml *x = arg;
    if (x->depth == 0) {
        x->is_system = !strcmp(name, "system");
        x->refused = !x->is_system;
    }
    if (x->depth >= TRI_XML_MAX_DEPTH)
        x->refused = true;
    if (x->refused) {
        XML_StopParser(x->parser, XML_FALSE);
        return;
    }
    x->stack[x->depth] = -1;
    if (!strcmp(name, "cpu")) {
        on_cpu(x, list);
    } else if (!strcmp(name, "pci")) {
        on_pci(x, list);
    } else if (!strcmp(name, "gpu")) {
        struct found_gpu *g = open_gpu(x);
        if (g) {
            long dev = number(list, "dev", 10, TRI_MAX_GPUS - 1);
            g->dev = dev >= 0 ? (int)dev : g->dev;
            g->gdr = (int)number(list, "gdr", 10, 1);
        }
    } else if (!strcmp(name, "nvlink") || !strcmp(name, "xgmi")) {
        on_link(x, list, name[0] == 'x');
    } else if (!strcmp(name, "net")) {
        on_net(x, list);
    }
    x->depth++;
}

static void XMLCALL on_end(void *arg, const XML_Char *name)
{
    struct nccl_xml *x = arg;
    (void)name;
    x->depth--;
}

/* A document type could pull in entities: nothing here needs one. */
static void XMLCALL on_doctype(void *arg, const XML_Char *name, const XML_Char *system,
                               const XML_Char *public, int internal)
{
    struct nccl_xml *x = arg;
    (void)name, (void)system, (void)public, (void)internal;
    x->refused = true;
    XML_StopParser(x->parser, XML_FALSE);
}

/* Adds the GPUs in driver order, each with its links to peers and to switches. */
static void place_gpus(struct nccl_xml *x, size_t base)
{
    struct tri_machine *m = x->machine;
    int to_switch[TRI_MAX_GPUS] = { 0 }, at[TRI_MAX_GPUS];
    for (int dev = 0; dev < TRI_MAX_GPUS; dev++) {
        for (size_t i = 0; i < x->gpus; i++) {
            const struct tri_pci *p = &m->pci[x->gpu[i].pci];
            if (x->gpu[i].dev != dev || tri_machine_find_gpu(m, p->bdf) >= 0)
                continue;
            struct tri_gpu *g = tri_machine_add_gpu(m);
            if (!g)
                return;
            memcpy(g->bdf, p->bdf, sizeof g->bdf);
            g->numa = p->numa;
            g->source = p->source;
            g->vendor = tri__topo_vendor(p->vendor);
        }
    }
    for (size_t i = 0; i < x->gpus; i++)
        at[i] = tri_machine_find_gpu(m, m->pci[x->gpu[i].pci].bdf);
    for (size_t i = 0; i < x->links; i++) {
        const struct found_link *l = &x->link[i];
        int peer = l->peer[0] ? tri_machine_find_gpu(m, l->peer) : -1;
        struct tri_source source = { x->source, l->line };
        if (at[l->gpu] < 0)
            continue;
        if (peer >= 0)
            tri__topo_set_path(m, (size_t)at[l->gpu], (size_t)peer,
                               l->xgmi ? TRI_PATH_XGMI : TRI_PATH_NVLINK, l->xgmi ? 1 : l->count,
                               source);
        else if (l->peer_class >> 8 == 0x0680)
            to_switch[at[l->gpu]] += l->count;
    }
    for (size_t a = base; a < m->gpus; a++)
        for (size_t b = a + 1; b < m->gpus; b++)
            if (to_switch[a] && to_switch[b])
                tri__topo_set_path(m, a, b, TRI_PATH_NVLINK,
                                   to_switch[a] < to_switch[b] ? to_switch[a] : to_switch[b],
                                   m->gpu[a].source);
}

/* Offset of the first line that does not begin with '#', and how many lines stand before it. */
static size_t skip_comments(const char *text, size_t bytes, uint32_t *lines)
{
    size_t at = 0;
    while (at < bytes && text[at] == '#') {
        const char *nl = memchr(text + at, '\n', bytes - at);
        if (!nl)
            return bytes;
        at = (size_t)(nl - text) + 1;
        (*lines)++;
    }
    return at;
}

enum tri_status tri_topo_read_nccl_xml(struct tri_machine *m, const char *name, const char *text,
                                       size_t bytes, struct tri_error *err)
{
    if (bytes > TRI_XML_MAX_BYTES)
        return tri_fail(err, TRI_LIMIT, "%s: XML of %zu bytes, at most %d are read", name, bytes,
                        TRI_XML_MAX_BYTES);
    enum tri_status status = TRI_NOMEM;
    uint32_t skipped = 0;
    size_t at = skip_comments(text, bytes, &skipped), base = m->gpus;
    struct nccl_xml *x = tri_calloc(1, sizeof *x);
    XML_Parser parser = x ? XML_ParserCreate(NULL) : NULL;
    if (parser)
        x->link = tri_calloc(MAX_LINKS, sizeof *x->link);
    if (!parser || !x->link) {
        tri_fail(err, status, "%s: no memory to read XML", name);
        goto out;
    }
    x->machine = m;
    x->parser = parser;
    x->numa = -1;
    x->source = tri_machine_source(m, name);
    XML_SetUserData(parser, x);
    XML_SetElementHandler(parser, on_start, on_end);
    XML_SetStartDoctypeDeclHandler(parser, on_doctype);
    for (uint32_t i = 0; i < skipped; i++) /* keeps line numbers those of the file */
        XML_Parse(parser, "\n", 1, XML_FALSE);
    bool whole = XML_Parse(parser, text + at, (int)(bytes - at), XML_TRUE) == XML_STATUS_OK;
    if (!x->is_system || (x->refused && !m->pcis)) {
        status = tri_fail(err, TRI_FORMAT, "%s: no NCCL topology: the root is not <system>", name);
        goto out;
    }
    if (!whole)
        tri_machine_remark(m, TRI_REMARK_CUT, here(x), "XML ends early: %s",
                           XML_ErrorString(XML_GetErrorCode(parser)));
    place_gpus(x, base);
    m->described = true;
    status = TRI_OK;
out:
    if (parser)
        XML_ParserFree(parser);
    if (x)
        tri_free(x->link);
    tri_free(x);
    return status;
}
