/*
 * hwloc XML files (format 2, and the older 1), read with expat as a stream. hwloc's own importer is
 * not used on files: it trusts them (a missing cpuset attribute ends the program; see
 * docs/decisions/topo-xml.md), and it reads nothing of a file that was cut.
 * Shape: topology > object(type, os_index, cpuset, nodeset, ...) > info(name, value) | object ...;
 * distances2(name, nbobjs) > indexes, u64values. A device's node is that of the nearest object
 * above whose nodeset has one bit.
 */
#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "topo/topo.h"
#include "topo/topo_priv.h"

enum { MAX_DEPTH = 128, MAX_WORDS = TRI_MAX_CPUS / 32, MAX_KNOWN = 4096, MAX_TEXT = 1 << 20 };

enum object { OBJECT_OTHER, OBJECT_MACHINE, OBJECT_PACKAGE, OBJECT_NUMA, OBJECT_PCI, OBJECT_OSDEV };

struct open_object {
    enum object kind;
    int pci, numa, drive, nic, gpu, node; /* indices into the machine, -1 */
};

struct known { /* gp_index of a device, for distance matrices */
    unsigned long gp;
    int pci;
};

struct hwloc_xml {
    struct tri_machine *m;
    XML_Parser parser;
    int source, depth, objects;
    bool is_topology, refused;
    struct open_object open[MAX_DEPTH];
    struct known known[MAX_KNOWN];
    size_t knowns;
    char distance[32]; /* name of the open distances element */
    struct tri_buf index, value;
    struct tri_buf *text; /* where character data goes now, NULL nowhere */
};

static const char *attribute(const char **list, const char *name)
{
    for (size_t i = 0; list[i] && list[i + 1]; i += 2)
        if (!strcmp(list[i], name))
            return list[i + 1];
    return "";
}

static struct tri_source here(const struct hwloc_xml *x)
{
    return (struct tri_source){ x->source, (uint32_t)XML_GetCurrentLineNumber(x->parser) };
}

/* "0x0000000f,0xffffffff", most significant first. Returns the words; word[0] is the lowest. */
static size_t read_mask(const char *text, uint32_t word[MAX_WORDS])
{
    uint32_t in[MAX_WORDS];
    size_t n = 0;
    for (const char *p = text; *p && n < MAX_WORDS;) {
        char *end = NULL;
        unsigned long v = *p == ',' ? 0 : strtoul(p, &end, 16); /* "0x1,,0x3": an empty word is 0 */
        in[n++] = (uint32_t)v;
        p = end && end != p ? end : p;
        if (*p != ',')
            break;
        p++;
    }
    for (size_t i = 0; i < n; i++)
        word[i] = in[n - 1 - i];
    return n;
}

/* The only bit of a mask, -1 when there is none or several. */
static int only_bit(const char *text)
{
    uint32_t word[MAX_WORDS];
    size_t n = read_mask(text, word);
    int bit = -1;
    for (size_t i = 0; i < n; i++) {
        if (!word[i])
            continue;
        if (bit >= 0 || (word[i] & (word[i] - 1)))
            return -1;
        bit = (int)i * 32 + __builtin_ctz(word[i]);
    }
    return bit < TRI_MAX_NUMA ? bit : -1;
}

/* A mask as a list "0-3,8-11", with the number of bits. */
static int mask_list(const char *text, char *out, size_t bytes)
{
    uint32_t word[MAX_WORDS];
    size_t n = read_mask(text, word), used = 0;
    int count = 0;
    out[0] = 0;
    for (size_t i = 0; i < n * 32; i++) {
        size_t from = i;
        while (i < n * 32 && (word[i / 32] >> (i % 32) & 1))
            i++;
        if (i == from)
            continue;
        count += (int)(i - from);
        if (used + 24 < bytes)
            used += (size_t)(i - from > 1 ? snprintf(out + used, bytes - used, "%s%zu-%zu",
                                                     used ? "," : "", from, i - 1)
                                          : snprintf(out + used, bytes - used, "%s%zu",
                                                     used ? "," : "", from));
    }
    return count;
}

static void on_numa(struct hwloc_xml *x, struct open_object *o, const char **list)
{
    struct tri_numa *n = tri_machine_add_numa(x->m);
    if (!n)
        return;
    long id = strtol(attribute(list, "os_index"), NULL, 10);
    n->id = id >= 0 && id < TRI_MAX_NUMA ? (int)id : -1;
    n->memory_bytes = strtoull(attribute(list, "local_memory"), NULL, 10);
    n->cpu_count = mask_list(attribute(list, "cpuset"), n->cpus, sizeof n->cpus);
    n->source = here(x);
    x->m->memory.total_bytes += n->memory_bytes;
    x->m->memory.source = n->source;
    o->node = (int)x->m->numas - 1;
    o->kind = OBJECT_NUMA;
}

static void on_pci(struct hwloc_xml *x, struct open_object *o, const char **list, bool bridge)
{
    struct tri_pci *p = tri__topo_pci_at(x->m, attribute(list, "pci_busid"));
    unsigned code = 0, vendor = 0, device = 0, domain = 0, second = 0, sub = 0;
    int parent = o->pci;
    if (!p)
        return;
    sscanf(attribute(list, "pci_type"), "%4x [%4x:%4x]", &code, &vendor, &device);
    p->class_code = (code & 0xffff) << 8;
    p->vendor = (uint16_t)vendor;
    p->device = (uint16_t)device;
    p->role = tri__topo_role(p->class_code, p->vendor);
    p->source = p->sta_source = here(x);
    p->sta = tri__topo_link_of(strtod(attribute(list, "pci_link_speed"), NULL));
    o->pci = (int)(p - x->m->pci);
    p->parent = parent != o->pci ? parent : -1;
    p->numa = o->numa;
    o->kind = OBJECT_PCI;
    if (bridge &&
        sscanf(attribute(list, "bridge_pci"), "%x:[%x-%x]", &domain, &second, &sub) == 3 &&
        second < 256 && sub < 256) {
        p->secondary = (int)second;
        p->subordinate = (int)sub;
        p->root_port = parent < 0;
    }
    if (x->knowns < MAX_KNOWN)
        x->known[x->knowns++] =
            (struct known){ strtoul(attribute(list, "gp_index"), NULL, 10), o->pci };
}

static void on_nic(struct hwloc_xml *x, struct open_object *o, const char *name, bool rdma)
{
    struct tri_machine *m = x->m;
    const char *bdf = o->pci >= 0 ? m->pci[o->pci].bdf : "";
    struct tri_nic *n = NULL;
    for (size_t i = 0; i < m->nics && *bdf; i++) /* eth0 and mlx5_0 of one card are one NIC */
        if (!strcmp(m->nic[i].bdf, bdf))
            n = &m->nic[i];
    n = n ? n : tri_machine_add_nic(m);
    if (!n)
        return;
    if (rdma || !n->name[0])
        tri__topo_copy(n->name, sizeof n->name, name, strlen(name));
    if (rdma)
        n->kind = TRI_NIC_RDMA;
    else if (n->kind == TRI_NIC_UNKNOWN)
        n->kind = tri_text_begins(name, "ib") ? TRI_NIC_INFINIBAND : TRI_NIC_ETHERNET;
    snprintf(n->bdf, sizeof n->bdf, "%s", bdf);
    n->numa = o->numa;
    n->source = here(x);
    o->nic = (int)(n - m->nic);
    m->nics_listed = true;
}

/* osdev_type: 0 block, 1 GPU, 2 network, 3 OpenFabrics, 4 DMA, 5 co-processor */
static void on_osdev(struct hwloc_xml *x, struct open_object *o, const char **list)
{
    struct tri_machine *m = x->m;
    long type = strtol(attribute(list, "osdev_type"), NULL, 10);
    const char *name = attribute(list, "name");
    o->kind = OBJECT_OSDEV;
    if (x->knowns < MAX_KNOWN && o->pci >= 0)
        x->known[x->knowns++] =
            (struct known){ strtoul(attribute(list, "gp_index"), NULL, 10), o->pci };
    if (type == 0) {
        struct tri_drive *d = tri_machine_add_drive(m);
        if (!d)
            return;
        tri__topo_copy(d->name, sizeof d->name, name, strlen(name));
        snprintf(d->bdf, sizeof d->bdf, "%s", o->pci >= 0 ? m->pci[o->pci].bdf : "");
        d->numa = o->numa;
        d->source = here(x);
        o->drive = (int)m->drives - 1;
    } else if (type == 2 || type == 3) {
        on_nic(x, o, name, type == 3);
    } else if ((type == 1 || type == 5) && o->pci >= 0 && m->pci[o->pci].role == TRI_PCI_GPU) {
        int at = tri_machine_find_gpu(m, m->pci[o->pci].bdf);
        struct tri_gpu *g = at >= 0 ? &m->gpu[at] : tri_machine_add_gpu(m);
        if (!g)
            return;
        snprintf(g->bdf, sizeof g->bdf, "%s", m->pci[o->pci].bdf);
        g->numa = o->numa;
        g->vendor = tri__topo_vendor(m->pci[o->pci].vendor);
        g->source = here(x);
        o->gpu = (int)(g - m->gpu);
    }
}

static void on_object(struct hwloc_xml *x, const char **list)
{
    static const struct open_object none = { OBJECT_OTHER, -1, -1, -1, -1, -1, -1 };
    struct tri_machine *m = x->m;
    const char *type = attribute(list, "type");
    struct open_object *o = &x->open[x->objects];
    int node = only_bit(attribute(list, "nodeset"));
    *o = none;
    if (x->objects) { /* devices keep to the bridge and the node above them */
        o->pci = x->open[x->objects - 1].pci;
        o->numa = x->open[x->objects - 1].numa;
    }
    o->numa = node >= 0 ? node : o->numa;
    x->objects++;
    if (!strcmp(type, "Machine")) {
        o->kind = OBJECT_MACHINE;
    } else if (!strcmp(type, "Package") || !strcmp(type, "Socket")) {
        o->kind = OBJECT_PACKAGE;
        m->cpu.sockets++;
        m->cpu.source = here(x);
    } else if (!strcmp(type, "Core")) {
        m->cpu.cores++;
    } else if (!strcmp(type, "PU")) {
        m->cpu.threads++;
    } else if (!strcmp(type, "L3Cache") ||
               (!strcmp(type, "Cache") && !strcmp(attribute(list, "depth"), "3"))) {
        m->cpu.llc_bytes += strtoull(attribute(list, "cache_size"), NULL, 10);
    } else if (!strcmp(type, "NUMANode")) {
        on_numa(x, o, list);
    } else if (!strcmp(type, "PCIDev")) {
        on_pci(x, o, list, false);
    } else if (!strcmp(type, "Bridge") && attribute(list, "pci_busid")[0]) {
        on_pci(x, o, list, true);
    } else if (!strcmp(type, "OSDev")) {
        on_osdev(x, o, list);
    }
}

static void set(char *out, size_t bytes, const char *text)
{
    if (!out[0])
        tri__topo_copy(out, bytes, text, strlen(text));
}

static void on_info(struct hwloc_xml *x, const char **list)
{
    struct tri_machine *m = x->m;
    const char *name = attribute(list, "name"), *value = attribute(list, "value");
    if (!x->objects)
        return;
    struct open_object *o = &x->open[x->objects - 1];
    if (!strcmp(name, "CPUModel"))
        set(m->cpu.model, sizeof m->cpu.model, value);
    else if (!strcmp(name, "CPUVendor"))
        set(m->cpu.vendor, sizeof m->cpu.vendor, value);
    else if (!strcmp(name, "Architecture"))
        set(m->cpu.arch, sizeof m->cpu.arch, value);
    else if (o->kind == OBJECT_PCI && !strcmp(name, "PCIDevice"))
        set(m->pci[o->pci].name, sizeof m->pci[o->pci].name, value);
    else if (o->gpu >= 0 && !strcmp(name, "GPUModel"))
        set(m->gpu[o->gpu].name, sizeof m->gpu[o->gpu].name, value);
    else if (o->gpu >= 0 &&
             (!strcmp(name, "CUDAGlobalMemorySize") || !strcmp(name, "RSMIVRAMSize")))
        m->gpu[o->gpu].memory_bytes = strtoull(value, NULL, 10) << 10;
    else if (o->drive >= 0 && !strcmp(name, "Size"))
        m->drive[o->drive].bytes = strtoull(value, NULL, 10) << 10;
    else if (o->drive >= 0 && !strcmp(name, "Model"))
        set(m->drive[o->drive].model, sizeof m->drive[o->drive].model, value);
}

static void on_pages(struct hwloc_xml *x, const char **list)
{
    int node = x->objects ? x->open[x->objects - 1].node : -1;
    unsigned long long size = strtoull(attribute(list, "size"), NULL, 10);
    if (node < 0)
        return;
    if (size == 2 << 20)
        x->m->numa[node].huge2m = strtoull(attribute(list, "count"), NULL, 10);
    if (size == 1 << 30)
        x->m->numa[node].huge1g = strtoull(attribute(list, "count"), NULL, 10);
}

static void XMLCALL on_start(void *arg, const XML_Char *name, const XML_Char **list)
{
    struct hwloc_xml *x = arg;
    if (x->depth == 0)
        x->is_topology = !strcmp(name, "topology");
    x->refused |= !x->is_topology || x->depth >= MAX_DEPTH;
    if (x->refused) {
        XML_StopParser(x->parser, XML_FALSE);
        return;
    }
    x->depth++;
    if (!strcmp(name, "object"))
        on_object(x, list);
    else if (!strcmp(name, "info"))
        on_info(x, list);
    else if (!strcmp(name, "page_type"))
        on_pages(x, list);
    else if (tri_text_begins(name, "distances2"))
        snprintf(x->distance, sizeof x->distance, "%s", attribute(list, "name"));
    else if (x->distance[0] && !strcmp(name, "indexes"))
        x->text = &x->index;
    else if (x->distance[0] && !strcmp(name, "u64values"))
        x->text = &x->value;
}

/* Numbers apart by blanks; "OSDev:12" counts as 12. */
static size_t read_numbers(const char *text, unsigned long *out, size_t max)
{
    size_t n = 0;
    for (const char *p = text; *p && n < max;) {
        p += strspn(p, " \t\r\n");
        size_t len = strcspn(p, " \t\r\n");
        const char *colon = memchr(p, ':', len);
        if (len)
            out[n++] = strtoul(colon ? colon + 1 : p, NULL, 10);
        p += len;
    }
    return n;
}

static int gpu_of(const struct hwloc_xml *x, unsigned long gp)
{
    for (size_t i = 0; i < x->knowns; i++)
        if (x->known[i].gp == gp)
            return tri_machine_find_gpu(x->m, x->m->pci[x->known[i].pci].bdf);
    return -1;
}

/* NVLink and XGMI rates in MB/s, as hwloc's NVML and RSMI backends leave them. */
static void take_distances(struct hwloc_xml *x)
{
    static const size_t max = TRI_MAX_GPUS + 64;
    bool xgmi = !strcmp(x->distance, "XGMIBandwidth");
    if ((!xgmi && strcmp(x->distance, "NVLinkBandwidth")) || !x->index.data || !x->value.data)
        return;
    unsigned long *gp = tri_calloc(max, sizeof *gp), *mbs = tri_calloc(max * max, sizeof *mbs);
    size_t n = gp && mbs ? read_numbers(x->index.data, gp, max) : 0;
    size_t values = n ? read_numbers(x->value.data, mbs, max * max) : 0;
    for (size_t i = 0; i < n && values == n * n; i++) {
        for (size_t j = i + 1; j < n; j++) {
            int a = gpu_of(x, gp[i]), b = gpu_of(x, gp[j]);
            double gbs = (double)mbs[i * n + j] / 1000;
            if (a < 0 || b < 0 || a == b || gbs <= 0 || gbs > 1e5)
                continue;
            int links = xgmi ? 1 : (int)(gbs / tri_nvlink_gbs(1, x->m->gpu[a].name) + 0.5);
            tri__topo_set_path(x->m, (size_t)a, (size_t)b, xgmi ? TRI_PATH_XGMI : TRI_PATH_NVLINK,
                               links, here(x));
            tri_machine_pair(x->m, (size_t)a, (size_t)b)->link_gbs = gbs;
            tri_machine_pair(x->m, (size_t)b, (size_t)a)->link_gbs = gbs;
        }
    }
    tri_free(gp);
    tri_free(mbs);
}

static void XMLCALL on_end(void *arg, const XML_Char *name)
{
    struct hwloc_xml *x = arg;
    x->depth--;
    x->text = NULL;
    if (!strcmp(name, "object") && x->objects)
        x->objects--;
    if (tri_text_begins(name, "distances2")) {
        take_distances(x);
        x->distance[0] = 0;
        tri_buf_clear(&x->index);
        tri_buf_clear(&x->value);
    }
}

static void XMLCALL on_text(void *arg, const XML_Char *text, int bytes)
{
    struct hwloc_xml *x = arg;
    if (x->text && bytes > 0)
        tri_buf_add(x->text, text, (size_t)bytes);
}

static void XMLCALL on_entity(void *arg, const XML_Char *name, int parameter, const XML_Char *value,
                              int bytes, const XML_Char *base, const XML_Char *system,
                              const XML_Char *public, const XML_Char *notation)
{
    struct hwloc_xml *x = arg;
    (void)name, (void)parameter, (void)value, (void)bytes, (void)base, (void)system;
    (void)public, (void)notation;
    x->refused = true;
    XML_StopParser(x->parser, XML_FALSE);
}

/* Parses and remarks a cut. False when nothing of a topology was there. */
static bool parse(struct hwloc_xml *x, const char *text, size_t bytes, uint32_t skipped)
{
    XML_SetUserData(x->parser, x);
    XML_SetElementHandler(x->parser, on_start, on_end);
    XML_SetCharacterDataHandler(x->parser, on_text);
    XML_SetEntityDeclHandler(x->parser, on_entity);
    size_t space = 0; /* a declaration may only stand at the very start */
    while (space < bytes && strchr(" \t\r\n", text[space]) && text[space])
        space++;
    bool declared = bytes - space > 5 && !memcmp(text + space, "<?xml", 5);
    for (uint32_t i = 0; i < skipped && !declared; i++)
        XML_Parse(x->parser, "\n", 1, XML_FALSE);
    if (declared) {
        text += space;
        bytes -= space;
    }
    bool whole = XML_Parse(x->parser, text, (int)bytes, XML_TRUE) == XML_STATUS_OK;
    if (!x->is_topology || (!x->m->cpu.threads && !x->m->pcis && !x->m->numas))
        return false;
    if (!whole)
        tri_machine_remark(x->m, TRI_REMARK_CUT, here(x), "XML ends early: %s",
                           XML_ErrorString(XML_GetErrorCode(x->parser)));
    return true;
}

enum tri_status tri_topo_read_hwloc_xml(struct tri_machine *m, const char *name, const char *text,
                                        size_t bytes, struct tri_error *err)
{
    if (bytes > TRI_XML_MAX_BYTES)
        return tri_fail(err, TRI_LIMIT, "%s: XML of %zu bytes, at most %d are read", name, bytes,
                        TRI_XML_MAX_BYTES);
    uint32_t skipped = 0;
    while (bytes && text[0] == '#') { /* comment lines before the XML */
        const char *nl = memchr(text, '\n', bytes);
        size_t skip = nl ? (size_t)(nl - text) + 1 : bytes;
        text += skip;
        bytes -= skip;
        skipped++;
    }
    struct hwloc_xml *x = tri_calloc(1, sizeof *x);
    XML_Parser parser = x ? XML_ParserCreate(NULL) : NULL;
    if (!parser) {
        tri_free(x);
        return tri_fail(err, TRI_NOMEM, "%s: no memory to read XML", name);
    }
    enum tri_status status = TRI_OK;
    x->m = m;
    x->parser = parser;
    x->source = tri_machine_source(m, name);
    tri_buf_init(&x->index, MAX_TEXT);
    tri_buf_init(&x->value, MAX_TEXT);
    if (parse(x, text, bytes, skipped))
        m->described = true;
    else
        status = tri_fail(err, TRI_FORMAT, "%s: no hwloc topology: line %lu: %s", name,
                          (unsigned long)XML_GetCurrentLineNumber(parser),
                          x->refused ? "not <topology>, nested too deeply, or with entities"
                                     : XML_ErrorString(XML_GetErrorCode(parser)));
    tri_buf_fini(&x->index);
    tri_buf_fini(&x->value);
    XML_ParserFree(parser);
    tri_free(x);
    return status;
}

enum tri_status tri_topo_load_xml(struct tri_machine **out, const char *path, struct tri_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    struct tri_machine *m = NULL;
    enum tri_status status = tri_read_file(&text, &bytes, path, TRI_XML_MAX_BYTES, err);
    if (status == TRI_OK)
        status = tri_machine_open(&m, err);
    if (status == TRI_OK) {
        if (strstr(text, "<topology"))
            status = tri_topo_read_hwloc_xml(m, path, text, bytes, err);
        else
            status = tri_topo_read_nccl_xml(m, path, text, bytes, err);
    }
    tri_free(text);
    if (status) {
        tri_machine_close(m);
        return status;
    }
    tri_machine_join(m);
    *out = m;
    return TRI_OK;
}
