/*
 * hwloc's view as our machine struct: sockets, cores, NUMA nodes, the PCI tree and OS devices, and
 * NVLink/XGMI matrices when hwloc measured them. One translation for live discovery and for XML.
 */
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "topo/topo.h"
#include "topo/topo_priv.h"
#include "topo/hwloc_priv.h"

static const char *info(hwloc_obj_t obj, const char *name)
{
    const char *text = hwloc_obj_get_info_by_name(obj, name);
    return text ? text : "";
}

static void set(char *out, size_t out_bytes, const char *text)
{
    if (!out[0])
        tri__topo_copy(out, out_bytes, text, strlen(text));
}

static void read_cpu(struct tri_machine *m, hwloc_topology_t t, struct tri_source source)
{
    struct tri_cpu *c = &m->cpu;
    int sockets = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PACKAGE);
    int cores = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE);
    int threads = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PU);
    hwloc_obj_t root = hwloc_get_root_obj(t),
                package = hwloc_get_obj_by_type(t, HWLOC_OBJ_PACKAGE, 0);
    c->sockets = sockets > 0 ? sockets : 0;
    c->cores = cores > 0 ? cores : 0;
    c->threads = threads > 0 ? threads : 0;
    c->source = source;
    set(c->arch, sizeof c->arch, info(root, "Architecture"));
    if (package) {
        set(c->model, sizeof c->model, info(package, "CPUModel"));
        set(c->vendor, sizeof c->vendor, info(package, "CPUVendor"));
    }
    uint64_t llc = 0;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_L3CACHE, o));)
        llc += o->attr->cache.size;
    c->llc_bytes = llc;
}

static void read_numa(struct tri_machine *m, hwloc_topology_t t, struct tri_source source)
{
    uint64_t total = 0;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, o));) {
        struct tri_numa *n = tri_machine_add_numa(m);
        if (!n)
            break;
        n->id = o->os_index < TRI_MAX_NUMA ? (int)o->os_index : -1;
        n->memory_bytes = o->attr->numanode.local_memory;
        n->source = source;
        total += n->memory_bytes;
        if (o->cpuset) {
            hwloc_bitmap_list_snprintf(n->cpus, sizeof n->cpus, o->cpuset);
            int weight = hwloc_bitmap_weight(o->cpuset);
            n->cpu_count = weight > 0 ? weight : 0;
        }
        for (unsigned i = 0; i < o->attr->numanode.page_types_len; i++) {
            if (o->attr->numanode.page_types[i].size == 2 << 20)
                n->huge2m = o->attr->numanode.page_types[i].count;
            if (o->attr->numanode.page_types[i].size == 1 << 30)
                n->huge1g = o->attr->numanode.page_types[i].count;
        }
    }
    if (total) {
        m->memory.total_bytes = total;
        m->memory.source = source;
    }
}

/* NUMA node of the object an I/O device hangs under, -1 when it covers several. */
static int numa_of(hwloc_obj_t obj)
{
    while (obj && !obj->nodeset)
        obj = obj->parent;
    return obj && hwloc_bitmap_weight(obj->nodeset) == 1 ? hwloc_bitmap_first(obj->nodeset) : -1;
}

static void put_bdf(char out[16], const struct hwloc_pcidev_attr_s *p)
{
    snprintf(out, 16, "%04x:%02x:%02x.%x", p->domain & 0xffffu, p->bus, p->dev & 0x1fu,
             p->func & 7u);
}

static int nearest_pci(struct tri_machine *m, hwloc_obj_t obj)
{
    for (hwloc_obj_t up = obj->parent; up; up = up->parent) {
        char bdf[16];
        if (up->type == HWLOC_OBJ_PCI_DEVICE) {
            put_bdf(bdf, &up->attr->pcidev);
            return tri_machine_find_pci(m, bdf);
        }
        if (up->type == HWLOC_OBJ_BRIDGE &&
            up->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI) {
            put_bdf(bdf, &up->attr->bridge.upstream.pci);
            return tri_machine_find_pci(m, bdf);
        }
    }
    return -1;
}

static void read_pci(struct tri_machine *m, hwloc_obj_t obj, const struct hwloc_pcidev_attr_s *attr,
                     struct tri_source source)
{
    char bdf[16];
    put_bdf(bdf, attr);
    int parent = nearest_pci(m, obj);
    struct tri_pci *p = tri__topo_pci_at(m, bdf);
    if (!p)
        return;
    p->source = p->sta_source = source;
    p->class_code = (uint32_t)attr->class_id << 8;
    p->vendor = attr->vendor_id;
    p->device = attr->device_id;
    p->role = tri__topo_role(p->class_code, p->vendor);
    p->parent = parent >= 0 && &m->pci[parent] != p ? parent : p->parent;
    p->numa = numa_of(obj);
    p->sta = tri__topo_link_of((double)attr->linkspeed);
    set(p->name, sizeof p->name, info(obj, "PCIDevice"));
    if (obj->type == HWLOC_OBJ_BRIDGE) {
        p->secondary = obj->attr->bridge.downstream.pci.secondary_bus;
        p->subordinate = obj->attr->bridge.downstream.pci.subordinate_bus;
        p->root_port = parent < 0;
    }
}

static struct tri_gpu *gpu_at(struct tri_machine *m, const char *bdf)
{
    int at = tri_machine_find_gpu(m, bdf);
    struct tri_gpu *g = at >= 0 ? &m->gpu[at] : tri_machine_add_gpu(m);
    if (g && !g->bdf[0])
        memcpy(g->bdf, bdf, sizeof g->bdf);
    return g;
}

static void read_gpu(struct tri_machine *m, hwloc_obj_t obj, int pci, struct tri_source source)
{
    struct tri_gpu *g = pci >= 0 ? gpu_at(m, m->pci[pci].bdf) : NULL;
    if (!g)
        return;
    m->pci[pci].role = TRI_PCI_GPU;
    set(g->name, sizeof g->name, info(obj, "GPUModel"));
    g->source = source;
    g->numa = m->pci[pci].numa;
    g->vendor = tri__topo_vendor(m->pci[pci].vendor);
    const char *kib = info(obj, "CUDAGlobalMemorySize");
    if (!*kib)
        kib = info(obj, "RSMIVRAMSize");
    if (!g->memory_bytes && *kib)
        g->memory_bytes = strtoull(kib, NULL, 10) << 10;
}

static void read_net(struct tri_machine *m, hwloc_obj_t obj, int pci, struct tri_source source)
{
    bool fabric = obj->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
    struct tri_nic *n = NULL;
    for (size_t i = 0; i < m->nics && pci >= 0; i++) /* eth0 and mlx5_0 of one card are one NIC */
        if (!strcmp(m->nic[i].bdf, m->pci[pci].bdf))
            n = &m->nic[i];
    n = n ? n : tri_machine_add_nic(m);
    if (!n)
        return;
    if (fabric || !n->name[0])
        tri__topo_copy(n->name, sizeof n->name, obj->name, strlen(obj->name));
    if (fabric)
        n->kind = TRI_NIC_RDMA;
    else if (n->kind == TRI_NIC_UNKNOWN)
        n->kind = tri_text_begins(obj->name, "ib") ? TRI_NIC_INFINIBAND : TRI_NIC_ETHERNET;
    n->source = source;
    n->numa = numa_of(obj);
    if (pci >= 0)
        memcpy(n->bdf, m->pci[pci].bdf, sizeof n->bdf);
    m->nics_listed = true;
}

static void read_osdev(struct tri_machine *m, hwloc_obj_t obj, struct tri_source source)
{
    int pci = nearest_pci(m, obj);
    if (!obj->name)
        return;
    switch (obj->attr->osdev.type) {
    case HWLOC_OBJ_OSDEV_GPU:
    case HWLOC_OBJ_OSDEV_COPROC:
        if (pci >= 0 && m->pci[pci].role == TRI_PCI_GPU)
            read_gpu(m, obj, pci, source);
        break;
    case HWLOC_OBJ_OSDEV_NETWORK:
    case HWLOC_OBJ_OSDEV_OPENFABRICS:
        read_net(m, obj, pci, source);
        break;
    case HWLOC_OBJ_OSDEV_BLOCK: {
        struct tri_drive *d = tri_machine_add_drive(m);
        if (!d)
            break;
        set(d->name, sizeof d->name, obj->name);
        set(d->model, sizeof d->model, info(obj, "Model"));
        d->bytes = strtoull(info(obj, "Size"), NULL, 10) << 10;
        d->numa = numa_of(obj);
        d->source = source;
        if (pci >= 0)
            memcpy(d->bdf, m->pci[pci].bdf, sizeof d->bdf);
        break;
    }
    default:
        break;
    }
}

/* NVLink and XGMI rates between GPUs, in MB/s, as hwloc's NVML and RSMI backends leave them. */
static void read_distances(struct tri_machine *m, hwloc_topology_t t, const char *name,
                           struct tri_source source)
{
    struct hwloc_distances_s *d = NULL;
    unsigned count = 1;
    bool xgmi = name[0] == 'X';
    if (hwloc_distances_get_by_name(t, name, &count, &d, 0) || !count || !d)
        return;
    for (unsigned i = 0; i < d->nbobjs; i++) {
        for (unsigned j = i + 1; j < d->nbobjs; j++) {
            int x = d->objs[i] ? nearest_pci(m, d->objs[i]) : -1;
            int y = d->objs[j] ? nearest_pci(m, d->objs[j]) : -1;
            double gbs = (double)d->values[i * d->nbobjs + j] / 1000;
            int a = x >= 0 ? tri_machine_find_gpu(m, m->pci[x].bdf) : -1;
            int b = y >= 0 ? tri_machine_find_gpu(m, m->pci[y].bdf) : -1;
            if (a < 0 || b < 0 || a == b || gbs <= 0)
                continue;
            int links = xgmi ? 1 : (int)(gbs / tri_nvlink_gbs(1, m->gpu[a].name) + 0.5);
            tri__topo_set_path(m, (size_t)a, (size_t)b, xgmi ? TRI_PATH_XGMI : TRI_PATH_NVLINK,
                               links, source);
            tri_machine_pair(m, (size_t)a, (size_t)b)->link_gbs = gbs;
            tri_machine_pair(m, (size_t)b, (size_t)a)->link_gbs = gbs;
        }
    }
    hwloc_distances_release(t, d);
}

void tri__topo_from_hwloc(struct tri_machine *m, hwloc_topology_t t, struct tri_source source)
{
    read_cpu(m, t, source);
    read_numa(m, t, source);
    /* depth-first order by hwloc's lists: bridges first (they are parents), then devices */
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_bridge(t, o));)
        if (o->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI)
            read_pci(m, o, &o->attr->bridge.upstream.pci, source);
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_pcidev(t, o));)
        read_pci(m, o, &o->attr->pcidev, source);
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(t, o));)
        read_osdev(m, o, source);
    read_distances(m, t, "NVLinkBandwidth", source);
    read_distances(m, t, "XGMIBandwidth", source);
}
