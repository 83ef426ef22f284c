/*
 * /sys and /proc as a machine, live or captured: the PCI tree with its links and ACS control words,
 * NUMA nodes with huge pages, processors, NICs, drives. One attribute is one file, so every fact's
 * source is the path it came from (or the line of the paste that held it).
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "os/tree.h"
#include "topo/topo.h"
#include "topo/topo_priv.h"

enum { FOLDER = 512, PATH = 1024, SMALL = 256 };

struct walk {
    struct tri_machine *m;
    struct tri_tree *tree;
};

static bool text_at(struct walk *w, char out[SMALL], const char *folder, const char *name)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return tri_tree_read(w->tree, path, out, SMALL);
}

/* A whole number in a file, `none` when absent or not one. */
static long number_at(struct walk *w, const char *folder, const char *name, int base, long none)
{
    char text[SMALL], *end = NULL;
    if (!text_at(w, text, folder, name))
        return none;
    long v = strtol(text, &end, base);
    return end == text ? none : v;
}

static struct tri_source source_at(struct walk *w, const char *folder, const char *name)
{
    char path[PATH];
    uint32_t line = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const char *origin = tri_tree_origin(w->tree, path, &line);
    return (struct tri_source){ tri_machine_source(w->m, origin), line };
}

/* The last two bus ids of a device path: the device and the bridge above it. */
static void path_ids(const char *path, char own[16], char above[16])
{
    own[0] = above[0] = 0;
    for (const char *p = path; p; p = strchr(p, '/')) {
        p += *p == '/';
        size_t len = strcspn(p, "/");
        char bdf[16];
        if (len == 12 && p[4] == ':' && p[7] == ':' && p[10] == '.' &&
            tri_bdf_normal(p, len, bdf)) {
            memcpy(above, own, 16);
            memcpy(own, bdf, 16);
        }
    }
}

/*
 * Config space (PCI Express Base 7.5.3, 7.7.8): the Express capability (id 0x10) has the port type
 * in bits 4..7 of its flags and the target speed at +0x30; ACS is extended capability 0x0d with its
 * control word at +6. Only root may read beyond the first 64 bytes.
 */
static void read_config(struct walk *w, struct tri_pci *p, const char *folder)
{
    unsigned char c[4096];
    char path[PATH];
    snprintf(path, sizeof path, "%s/config", folder);
    size_t n = tri_tree_bytes(w->tree, path, c, sizeof c);
    if (n < 256)
        return;
    for (unsigned at = c[0x34] & 0xfcu, steps = 0; at >= 0x40 && at + 0x32 < n && steps < 48;
         steps++) {
        if (c[at] == 0x10) {
            static const double rates[] = { 0, 2.5, 5, 8, 16, 32, 64 };
            unsigned type = c[at + 2] >> 4 & 0xfu, target = c[at + 0x30] & 0xfu;
            p->root_port = type == 4;
            p->target_gts = target < 7 ? rates[target] : 0;
        }
        at = c[at + 1] & 0xfcu;
    }
    for (unsigned at = 0x100, steps = 0; at >= 0x100 && at + 8 <= n && steps < 96; steps++) {
        unsigned id = c[at] | (unsigned)c[at + 1] << 8;
        if (id == 0x0d) {
            p->acs = (c[at + 6] | c[at + 7] << 8) & 0x7f;
            p->acs_source = source_at(w, folder, "config");
        }
        at = (c[at + 2] >> 4 | (unsigned)c[at + 3] << 4) & 0xffcu;
    }
}

static void read_device(void *arg, const char *name)
{
    struct walk *w = arg;
    char folder[FOLDER], text[SMALL], link[PATH], own[16], above[16];
    struct tri_pci *p = tri__topo_pci_at(w->m, name);
    if (!p)
        return;
    snprintf(folder, sizeof folder, "/sys/bus/pci/devices/%s", name);
    long code = number_at(w, folder, "class", 16, 0);
    long vendor = number_at(w, folder, "vendor", 16, 0),
         device = number_at(w, folder, "device", 16, 0);
    long numa = number_at(w, folder, "numa_node", 10, -1);
    long sec = number_at(w, folder, "secondary_bus_number", 10, -1);
    long sub = number_at(w, folder, "subordinate_bus_number", 10, -1);
    long width = number_at(w, folder, "current_link_width", 10, 0);
    long most = number_at(w, folder, "max_link_width", 10, 0);
    if (code > 0)
        p->class_code = (uint32_t)code & 0xffffff;
    p->vendor = vendor > 0 ? (uint16_t)vendor : p->vendor;
    p->device = device > 0 ? (uint16_t)device : p->device;
    if (p->class_code)
        p->role = tri__topo_role(p->class_code, p->vendor);
    p->numa = numa >= 0 && numa < TRI_MAX_NUMA ? (int)numa : p->numa;
    p->secondary = sec > 0 && sec < 256 ? (int)sec : p->secondary;
    p->subordinate = sub > 0 && sub < 256 ? (int)sub : p->subordinate;
    if (text_at(w, text, folder, "current_link_speed"))
        p->sta.gts = tri__topo_gts(text);
    if (text_at(w, text, folder, "max_link_speed"))
        p->cap.gts = tri__topo_gts(text);
    p->sta.width = width > 0 && width <= 32 ? (int)width : p->sta.width;
    p->cap.width = most > 0 && most <= 32 ? (int)most : p->cap.width;
    if (width > 0)
        p->sta_source = source_at(w, folder, "current_link_width");
    p->source = source_at(w, folder, width > 0 ? "current_link_width" : "class");
    read_config(w, p, folder);
    if (p->parent < 0 && tri_tree_link(w->tree, folder, link, sizeof link)) {
        path_ids(link, own, above);
        struct tri_pci *bridge = above[0] ? tri__topo_pci_at(w->m, above) : NULL;
        int at = tri_machine_find_pci(w->m, name); /* the array may have moved */
        if (bridge && at >= 0)
            w->m->pci[at].parent = (int)(bridge - w->m->pci);
    }
}

/* "MemTotal:  123 kB" in a block of such lines; 0 when absent. */
static uint64_t kib_line(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at ? strtoull(at + strlen(key) + strspn(at + strlen(key), ": \t"), NULL, 10) << 10 : 0;
}

static int list_count(const char *list)
{
    int count = 0;
    for (const char *p = list; isdigit((unsigned char)*p);) {
        char *end = NULL;
        long a = strtol(p, &end, 10), b = a;
        if (*end == '-')
            b = strtol(end + 1, &end, 10);
        count += b >= a && b - a < TRI_MAX_CPUS ? (int)(b - a) + 1 : 0;
        p = *end == ',' ? end + 1 : "";
    }
    return count;
}

static void read_node(void *arg, const char *name)
{
    struct walk *w = arg;
    char folder[FOLDER], text[4096], path[PATH], list[SMALL];
    if (!tri_text_begins(name, "node") || !isdigit((unsigned char)name[4]))
        return;
    int id = (int)strtol(name + 4, NULL, 10);
    struct tri_numa *n = NULL;
    for (size_t i = 0; i < w->m->numas; i++)
        if (w->m->numa[i].id == id)
            n = &w->m->numa[i];
    n = n ? n : tri_machine_add_numa(w->m);
    if (!n)
        return;
    snprintf(folder, sizeof folder, "/sys/devices/system/node/%s", name);
    n->id = id;
    n->source = source_at(w, folder, "cpulist");
    if (text_at(w, list, folder, "cpulist")) {
        tri__topo_copy(n->cpus, sizeof n->cpus, list, strlen(list));
        n->cpu_count = list_count(list);
    }
    snprintf(path, sizeof path, "%s/meminfo", folder);
    if (tri_tree_read(w->tree, path, text, sizeof text)) {
        uint64_t total = kib_line(text, "MemTotal");
        n->memory_bytes = total ? total : n->memory_bytes;
        n->free_bytes = kib_line(text, "MemFree");
    }
    struct {
        const char *file;
        uint64_t *to;
    } pages[] = { { "hugepages/hugepages-2048kB/nr_hugepages", &n->huge2m },
                  { "hugepages/hugepages-2048kB/free_hugepages", &n->huge2m_free },
                  { "hugepages/hugepages-1048576kB/nr_hugepages", &n->huge1g },
                  { "hugepages/hugepages-1048576kB/free_hugepages", &n->huge1g_free } };
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        long v = number_at(w, folder, pages[i].file, 10, 0);
        *pages[i].to = v > 0 ? (uint64_t)v : 0;
    }
}

/* "key : value" of /proc/cpuinfo into out, when it is empty. */
static void cpu_field(char *out, size_t bytes, const char *text, const char *key)
{
    const char *at = strstr(text, key), *colon = at ? strchr(at, ':') : NULL;
    if (out[0] || !colon || colon - at > 24)
        return;
    colon += 1 + strspn(colon + 1, " ");
    tri__topo_copy(out, bytes, colon, strcspn(colon, "\n"));
}

static void read_cpuinfo(struct walk *w)
{
    struct tri_cpu *c = &w->m->cpu;
    size_t max = 4 << 20;
    char *text = tri_malloc(max);
    if (text && tri_tree_read(w->tree, "/proc/cpuinfo", text, max) && *text) {
        unsigned char socket[256] = { 0 };
        int threads = 0, sockets = 0;
        cpu_field(c->model, sizeof c->model, text, "model name");
        cpu_field(c->vendor, sizeof c->vendor, text, "vendor_id");
        c->hypervisor |= strstr(text, " hypervisor") != NULL;
        for (const char *p = text; (p = strstr(p, "processor\t")) != NULL; p++)
            threads++;
        for (const char *p = text; (p = strstr(p, "physical id")) != NULL; p++) {
            const char *colon = strchr(p, ':');
            long id = colon ? strtol(colon + 1, NULL, 10) : -1;
            if (id >= 0 && id < 256 && !socket[id]++)
                sockets++;
        }
        c->threads = c->threads ? c->threads : threads;
        c->sockets = c->sockets ? c->sockets : sockets;
        const char *cores = strstr(text, "cpu cores");
        cores = cores ? strchr(cores, ':') : NULL;
        if (!c->cores && cores)
            c->cores = (int)strtol(cores + 1, NULL, 10) * (sockets ? sockets : 1);
        if (c->source.file < 0)
            c->source = source_at(w, "/proc", "cpuinfo");
    }
    tri_free(text);
    char info[4096];
    if (tri_tree_read(w->tree, "/proc/meminfo", info, sizeof info)) {
        uint64_t total = kib_line(info, "MemTotal");
        w->m->memory.total_bytes = total ? total : w->m->memory.total_bytes;
        w->m->memory.available_bytes = kib_line(info, "MemAvailable");
        w->m->memory.source = source_at(w, "/proc", "meminfo");
    }
}

/* The bus id a /sys/class device links to. */
static void device_id(struct walk *w, const char *link, char bdf[16])
{
    char target[PATH], above[16];
    bdf[0] = 0;
    if (tri_tree_link(w->tree, link, target, sizeof target))
        path_ids(target, bdf, above);
}

static struct tri_nic *nic_at(struct walk *w, const char *bdf, const char *name)
{
    for (size_t i = 0; i < w->m->nics; i++)
        if ((bdf[0] && !strcmp(w->m->nic[i].bdf, bdf)) || !strcmp(w->m->nic[i].name, name))
            return &w->m->nic[i];
    struct tri_nic *n = tri_machine_add_nic(w->m);
    if (n) {
        tri__topo_copy(n->name, sizeof n->name, name, strlen(name));
        memcpy(n->bdf, bdf, sizeof n->bdf);
    }
    return n;
}

static void read_net(void *arg, const char *name)
{
    struct walk *w = arg;
    char path[PATH], bdf[16], folder[FOLDER];
    snprintf(path, sizeof path, "/sys/class/net/%s/device", name);
    if (!tri_tree_exists(w->tree, path))
        return; /* loopback, bridges, tunnels */
    device_id(w, path, bdf);
    struct tri_nic *n = nic_at(w, bdf, name);
    if (!n)
        return;
    snprintf(folder, sizeof folder, "/sys/class/net/%s", name);
    long mbps = number_at(w, folder, "speed", 10, -1);
    if (mbps > 0 && n->rate_gbs <= 0)
        n->rate_gbs = (double)mbps / 8000;
    if (n->kind == TRI_NIC_UNKNOWN)
        n->kind = number_at(w, folder, "type", 10, 1) == 32 ? TRI_NIC_INFINIBAND : TRI_NIC_ETHERNET;
    n->source = source_at(w, folder, "speed");
    w->m->nics_listed = true;
}

static void read_rdma(void *arg, const char *name)
{
    struct walk *w = arg;
    char path[PATH], bdf[16], folder[FOLDER], text[SMALL];
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/device", name);
    device_id(w, path, bdf);
    struct tri_nic *n = nic_at(w, bdf, name);
    if (!n)
        return;
    tri__topo_copy(n->name, sizeof n->name, name, strlen(name));
    n->kind = TRI_NIC_RDMA;
    snprintf(folder, sizeof folder, "/sys/class/infiniband/%s/ports/1", name);
    if (text_at(w, text, folder, "rate"))
        n->rate_gbs = strtod(text, NULL) / 8; /* "400 Gb/sec (4X NDR)" */
    n->source = source_at(w, folder, "rate");
    w->m->nics_listed = true;
}

static void read_block(void *arg, const char *name)
{
    static const char *const skip[] = { "loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd" };
    struct walk *w = arg;
    char path[PATH], folder[FOLDER], text[SMALL];
    for (size_t i = 0; i < sizeof skip / sizeof skip[0]; i++)
        if (tri_text_begins(name, skip[i]))
            return;
    struct tri_drive *d = NULL;
    for (size_t i = 0; i < w->m->drives; i++)
        if (!strcmp(w->m->drive[i].name, name))
            d = &w->m->drive[i];
    d = d ? d : tri_machine_add_drive(w->m);
    if (!d)
        return;
    snprintf(folder, sizeof folder, "/sys/block/%s", name);
    tri__topo_copy(d->name, sizeof d->name, name, strlen(name));
    long sectors = number_at(w, folder, "size", 10, 0);
    d->bytes = sectors > 0 ? (uint64_t)sectors * 512 : d->bytes;
    d->rotational = (int)number_at(w, folder, "queue/rotational", 10, -1);
    if (text_at(w, text, folder, "device/model") && !d->model[0])
        tri__topo_copy(d->model, sizeof d->model, text, strlen(text));
    d->source = source_at(w, folder, "size");
    snprintf(path, sizeof path, "/sys/block/%s", name);
    if (!d->bdf[0])
        device_id(w, path, d->bdf);
}

void tri_topo_read_tree(struct tri_machine *m, struct tri_tree *tree)
{
    struct walk w = { m, tree };
    tri_tree_list(tree, "/sys/bus/pci/devices", read_device, &w);
    tri_tree_list(tree, "/sys/devices/system/node", read_node, &w);
    read_cpuinfo(&w);
    tri_tree_list(tree, "/sys/class/infiniband", read_rdma, &w);
    tri_tree_list(tree, "/sys/class/net", read_net, &w);
    tri_tree_list(tree, "/sys/block", read_block, &w);
    tri__topo_read_dmi(m, tree);
}
