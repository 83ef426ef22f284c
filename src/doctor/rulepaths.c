/*
 * Rules over the paths between GPUs, from tables that name them (topo -m) and, with less weight,
 * from PCI trees. A table tells the path, not the speed: WARN here asks for a measurement.
 */
#include <stdio.h>
#include <string.h>
#include "doctor/doctor_priv.h"

enum { LIST = 200 };

struct tally {
    size_t known, nv, switched, host, sys; /* pairs by path: NV, PIX or PXB, PHB or NODE, SYS */
    int most, least;                       /* NVLinks of a pair that has any */
    struct tri_source first_host, first_sys, first_nv, first_switched;
};

static struct tally count_pairs(const struct tri_machine *m)
{
    struct tally t = { .least = 1000,
                       .first_host.file = -1,
                       .first_sys.file = -1,
                       .first_nv.file = -1,
                       .first_switched.file = -1 };
    bool links = false; /* a description that names NVLinks names all of them */
    for (size_t i = 0; i < m->gpus * m->gpus; i++)
        links |= m->described && m->pair[i].path == TRI_PATH_NVLINK;
    for (size_t a = 0; a < m->gpus; a++) {
        for (size_t b = a + 1; b < m->gpus; b++) {
            const struct tri_pair *p = tri_machine_pair(m, a, b);
            if ((p->source.file < 0 && !links) || p->path == TRI_PATH_UNKNOWN)
                continue; /* worked out from the PCI tree, which does not show NVLink */
            t.known++;
            if (p->path == TRI_PATH_NVLINK) {
                t.nv++;
                t.most = p->links > t.most ? p->links : t.most;
                t.least = p->links < t.least ? p->links : t.least;
                t.first_nv = t.first_nv.file < 0 ? p->source : t.first_nv;
            } else if (p->path == TRI_PATH_PIX || p->path == TRI_PATH_PXB) {
                t.switched++;
                t.first_switched = t.first_switched.file < 0 ? p->source : t.first_switched;
            } else if (p->path == TRI_PATH_PHB || p->path == TRI_PATH_NODE) {
                t.host++;
                t.first_host = t.first_host.file < 0 ? p->source : t.first_host;
            } else if (p->path == TRI_PATH_SYS) {
                t.sys++;
                t.first_sys = t.first_sys.file < 0 ? p->source : t.first_sys;
            }
        }
    }
    return t;
}

/* Labels GPUs that are joined by paths no worse than `worst`; by NUMA node when `worst` is SYS. */
static size_t components(const struct tri_machine *m, enum tri_path worst, int label[TRI_MAX_GPUS])
{
    size_t n = 0;
    for (size_t i = 0; i < m->gpus; i++)
        label[i] = -1;
    for (size_t i = 0; i < m->gpus; i++) {
        if (label[i] >= 0)
            continue;
        label[i] = (int)n++;
        for (bool more = true; more;) {
            more = false;
            for (size_t a = 0; a < m->gpus; a++)
                for (size_t b = 0; b < m->gpus && label[a] == label[i]; b++) {
                    enum tri_path p = tri_machine_pair(m, a, b)->path;
                    bool join = worst == TRI_PATH_SYS
                                    ? m->gpu[a].numa >= 0 && m->gpu[a].numa == m->gpu[b].numa
                                    : p >= TRI_PATH_NVLINK && p <= worst;
                    if (label[b] < 0 && join) {
                        label[b] = label[i];
                        more = true;
                    }
                }
        }
    }
    return n;
}

/* "(0,1)(2,3)" */
static void list_groups(const struct tri_machine *m, const int *label, size_t groups, char *out,
                        size_t bytes)
{
    size_t used = 0;
    out[0] = 0;
    for (size_t g = 0; g < groups; g++) {
        const char *comma = "(";
        for (size_t i = 0; i < m->gpus; i++) {
            if (label[i] != (int)g || used + 12 >= bytes)
                continue;
            used += (size_t)snprintf(out + used, bytes - used, "%s%zu", comma, i);
            comma = ",";
        }
        if (*comma == ',' && used + 2 < bytes)
            used += (size_t)snprintf(out + used, bytes - used, ")");
    }
}

static const struct tri__part *part_of(const struct tri_machine *m)
{
    for (size_t i = 0; i < m->gpus; i++) {
        const struct tri__part *p = tri__doctor_part(m->gpu[i].name);
        if (p)
            return p;
    }
    return NULL;
}

/* Every known pair has NVLink. */
static void judge_mesh(struct tri_doctor *d, const struct tri_machine *m, const struct tally *t)
{
    struct tri_finding *f;
    bool fabric = t->most >= 12;
    if (t->most == t->least) {
        f = tri__doctor_find(d, "nvlink_mesh", TRI_SEVERITY_OK,
                             "NVLink joins every pair of %zu GPUs with %d links: any group will do",
                             m->gpus, t->most);
        tri__doctor_cite_fact(d, f, m, t->first_nv);
        const struct tri__part *part = part_of(m);
        bool reduced =
            part ? tri_text_find(part->word, "800") != NULL : m->gpus > 2 && t->most == 8;
        if (reduced) {
            f = tri__doctor_find(d, "nvlink_reduced", TRI_SEVERITY_INFO,
                                 "%d NVLinks a GPU: the A800 or H800 class of 400 GB/s", t->most);
            tri__doctor_cite_fact(d, f, m, t->first_nv);
            tri__doctor_why(f, "full parts have 12 (A100) or 18 links (H100): expect half to two "
                               "thirds of their collective bandwidth");
            tri__doctor_cost(d, f, 200, tri_text_find(m->gpu[0].name, "H800") ? 450 : 300);
        }
        return;
    }
    f = tri__doctor_find(d, "nvlink_uneven", fabric ? TRI_SEVERITY_FAIL : TRI_SEVERITY_INFO,
                         "pairs have between %d and %d NVLinks", t->least, t->most);
    for (size_t a = 0; a < m->gpus; a++)
        for (size_t b = a + 1; b < m->gpus; b++)
            if (tri_machine_pair(m, a, b)->links == t->least &&
                tri_machine_pair(m, a, b)->path == TRI_PATH_NVLINK)
                tri__doctor_cite_fact(d, f, m, tri_machine_pair(m, a, b)->source);
    if (fabric) {
        tri__doctor_why(f, "an NVSwitch gives every pair the same number: links are down");
        tri__doctor_cure(f, "nvidia-smi nvlink -s && nvidia-smi nvlink -e");
        tri__doctor_cure(f, "sudo systemctl restart nvidia-fabricmanager   # then reset the GPU");
    } else {
        tri__doctor_why(f, "a point-to-point mesh: put the heaviest pairs on the most links");
    }
    double one = tri_nvlink_gbs(1, m->gpu[0].name);
    tri__doctor_cost(d, f, one * t->least, one * t->most);
}

/* NVLink between some pairs only. */
static void judge_islands(struct tri_doctor *d, const struct tri_machine *m, const struct tally *t)
{
    int label[TRI_MAX_GPUS];
    char list[LIST];
    size_t groups = components(m, TRI_PATH_NVLINK, label), alone = 0, largest = 0;
    for (size_t g = 0; g < groups; g++) {
        size_t size = 0;
        for (size_t i = 0; i < m->gpus; i++)
            size += label[i] == (int)g;
        alone += size == 1;
        largest = size > largest ? size : largest;
    }
    list_groups(m, label, groups, list, sizeof list);
    size_t missing = t->known - t->nv;
    if (groups == 1 && (t->most >= 8 || missing * 4 <= m->gpus)) {
        /* a switch reaches everybody, and a full mesh lacks no pair by design (a hybrid cube lacks
         * twelve of 28) */
        struct tri_finding *f =
            tri__doctor_find(d, "nvlink_missing", TRI_SEVERITY_FAIL,
                             "%zu of %zu pairs have lost their NVLink", missing, t->known);
        for (size_t a = 0; a < m->gpus; a++)
            for (size_t b = a + 1; b < m->gpus; b++) {
                const struct tri_pair *p = tri_machine_pair(m, a, b);
                if (p->path > TRI_PATH_NVLINK && p->source.file >= 0)
                    tri__doctor_cite_fact(d, f, m, p->source);
            }
        tri__doctor_cost(d, f, 20, tri_nvlink_gbs(t->most, m->gpu[0].name));
        tri__doctor_cure(f, "nvidia-smi nvlink -s; nvidia-smi nvlink -e");
        tri__doctor_cure(f, "sudo systemctl restart nvidia-fabricmanager   # NVSwitch only");
        return;
    }
    if (groups == 1) {
        struct tri_finding *f =
            tri__doctor_find(d, "nvlink_uneven", TRI_SEVERITY_INFO,
                             "NVLink reaches every GPU, but not every pair directly (hybrid mesh)");
        tri__doctor_cite_fact(d, f, m, t->first_nv);
        tri__doctor_why(f,
                        "%zu of %zu pairs have NVLink: rings stay on NVLink, direct copies of the "
                        "other pairs do not",
                        t->nv, t->known);
        return;
    }
    if (alone && largest > 2 && t->most >= 6) { /* on a switch nobody stays outside */
        struct tri_finding *f = tri__doctor_find(d, "nvlink_missing", TRI_SEVERITY_FAIL,
                                                 "%zu of %zu GPUs have left the NVLink fabric: %s",
                                                 alone, m->gpus, list);
        tri__doctor_cite_fact(d, f, m, t->sys ? t->first_sys : t->first_host);
        tri__doctor_cure(f, "nvidia-smi -q | grep -A3 Fabric; nvidia-smi nvlink -s");
        tri__doctor_cure(f, "sudo systemctl restart nvidia-fabricmanager");
        return;
    }
    struct tri_finding *f =
        tri__doctor_find(d, "nvlink_islands", TRI_SEVERITY_WARN,
                         "NVLink joins only %s: a group over more falls to PCIe", list);
    tri__doctor_cite_fact(d, f, m, t->first_nv);
    tri__doctor_cite_fact(d, f, m, t->sys ? t->first_sys : t->first_host);
    tri__doctor_why(
        f, "the slowest link rules a ring: bandwidth falls as soon as a further GPU joins");
    double one = tri_nvlink_gbs(1, m->gpu[0].name);
    tri__doctor_cost(d, f, 20, one * t->most);
    tri__doctor_cure(f,
                     "# run --tensor-parallel-size %zu inside %s, replicas or pipeline stages "
                     "between them",
                     largest, list);
    tri__doctor_cure(f, "all_reduce_perf -b 8M -e 1G -f 2 -g %zu   # and again with %zu", largest,
                     m->gpus);
}

static bool all_granted(const struct tri_machine *m)
{
    for (size_t a = 0; a < m->gpus; a++)
        for (size_t b = 0; b < m->gpus; b++)
            if (a != b && tri_machine_pair(m, a, b)->p2p != TRI_P2P_OK)
                return false;
    return m->gpus > 1;
}

static void judge_sockets(struct tri_doctor *d, const struct tri_machine *m, const struct tally *t)
{
    int label[TRI_MAX_GPUS];
    char list[LIST];
    size_t groups = components(m, TRI_PATH_NODE, label);
    if (groups == m->gpus) /* all SYS: only the affinity columns tell the sockets apart */
        groups = components(m, TRI_PATH_SYS, label);
    list_groups(m, label, groups, list, sizeof list);
    bool one_node = groups == 1 && m->gpus > 1; /* by the affinity columns; SYS may occur inside */
    struct tri_finding *f =
        one_node
            ? tri__doctor_find(d, "path_sockets", TRI_SEVERITY_WARN,
                               "GPUs of one NUMA node meet only over SYS: check P2P")
            : tri__doctor_find(
                  d, "path_sockets", TRI_SEVERITY_WARN,
                  "GPUs sit on several sockets and have no NVLink: keep groups inside %s", list);
    tri__doctor_cite_fact(d, f, m, t->first_sys);
    if (one_node)
        tri__doctor_why(f, "far apart inside one processor: traffic passes its internal links");
    else
        tri__doctor_why(f,
                        "%zu of %zu pairs are SYS: their traffic crosses the link between the CPUs",
                        t->sys, t->known);
    tri__doctor_cost(d, f, 10, 24);
    tri__doctor_cure(f, "# tensor parallel inside a socket, pipeline stages between sockets");
    tri__doctor_cure(f,
                     "numactl --cpunodebind=N --membind=N ...   # N: the NUMA node of the group");
    tri__doctor_cure(f, "nvidia-smi topo -p2p r && p2pBandwidthLatencyTest");
}

/* No NVLink at all. */
static void judge_pcie(struct tri_doctor *d, const struct tri_machine *m, const struct tally *t)
{
    const struct tri__part *part = part_of(m);
    struct tri_finding *f;
    if (part && part->sxm && !m->nvlink_hidden && m->gpus > 1) {
        f = tri__doctor_find(d, "nvlink_missing", TRI_SEVERITY_FAIL,
                             "%s without a single NVLink: fabric manager, MIG or a virtual machine",
                             m->gpu[0].name);
        tri__doctor_cite_fact(d, f, m, t->sys ? t->first_sys : t->first_host);
        tri__doctor_cost(d, f, t->sys ? 10 : 24, part->nvlink_gbs);
        tri__doctor_cure(f,
                         "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric");
        tri__doctor_cure(f, "nvidia-smi mig -lgi   # MIG switches NVLink and P2P off");
    }
    if (t->sys) {
        judge_sockets(d, m, t);
    } else if (t->host) {
        bool granted = all_granted(m);
        int label[TRI_MAX_GPUS];
        char list[LIST];
        list_groups(m, label, components(m, TRI_PATH_PHB, label), list, sizeof list);
        f = tri__doctor_find(
            d, "path_host", granted ? TRI_SEVERITY_INFO : TRI_SEVERITY_WARN,
            "GPU pairs meet only in the host bridge%s: %s",
            granted ? ", and the driver grants P2P" : ": check that P2P is granted", list);
        tri__doctor_cite_fact(d, f, m, t->first_host);
        tri__doctor_why(f,
                        "%zu of %zu pairs are PHB or NODE; without P2P such traffic is staged in "
                        "host memory",
                        t->host, t->known);
        tri__doctor_cost(d, f, 10, 24);
        tri__doctor_cure(f, "nvidia-smi topo -p2p r   # then p2pBandwidthLatencyTest");
    } else if (t->switched) {
        f = tri__doctor_find(d, "path_switch", TRI_SEVERITY_OK,
                             "all %zu GPUs are below PCIe switches, no host bridge between them",
                             m->gpus);
        tri__doctor_cite_fact(d, f, m, t->first_switched);
        tri__doctor_why(f, "with P2P off this is the worst case: the pairs share one uplink");
    }
}

/* Nodes without any word about paths: what the affinity says is worth knowing. */
static void judge_numa(struct tri_doctor *d, const struct tri_machine *m)
{
    int label[TRI_MAX_GPUS];
    char list[LIST];
    int first = -1;
    bool spread = false;
    for (size_t i = 0; i < m->gpus; i++) {
        if (m->gpu[i].numa < 0)
            return;
        first = first < 0 ? m->gpu[i].numa : first;
        spread |= m->gpu[i].numa != first;
    }
    list_groups(m, label, components(m, TRI_PATH_SYS, label), list, sizeof list);
    struct tri_finding *f = tri__doctor_find(
        d, spread ? "numa_spread" : "topology_read", spread ? TRI_SEVERITY_INFO : TRI_SEVERITY_OK,
        spread ? "GPUs by NUMA node: %s" : "all GPUs on one NUMA node: %s", list);
    tri__doctor_cite_fact(d, f, m, m->gpu[0].source);
}

static void judge_described(struct tri_doctor *d, const struct tri_machine *m)
{
    size_t made_up = 0;
    for (size_t i = 0; i < m->pcis; i++)
        made_up += m->pci[i].is_virtual;
    struct tri_finding *f = tri__doctor_find(
        d, made_up ? "vm_topology" : "topology_read", TRI_SEVERITY_INFO,
        "a description of %zu GPUs, %zu NICs and %zu NUMA nodes%s", m->gpus, m->nics, m->numas,
        made_up ? " with virtual bridges: the guest's own PCI tree is flat" : "");
    for (size_t i = 0; i < m->pcis && !f->evidences; i++)
        if (!made_up || m->pci[i].is_virtual)
            tri__doctor_cite_fact(d, f, m, m->pci[i].source);
    if (made_up) {
        tri__doctor_why(f, "each virtual bridge says which GPU and NIC belong together");
        tri__doctor_cure(f, "export NCCL_TOPO_FILE=this.xml   # inside the guest");
    }
}

static bool has_amd_words(const struct tri_machine *m)
{
    for (size_t i = 0; i < m->gpus * m->gpus; i++)
        if (m->pair[i].path == TRI_PATH_XGMI || m->pair[i].path == TRI_PATH_PCIE ||
            m->pair[i].weight >= 0 || m->pair[i].hops >= 0)
            return true;
    return false;
}

void tri__doctor_rules_paths(struct tri_doctor *d, const struct tri_machine *m)
{
    struct tally t = count_pairs(m);
    if (m->described)
        judge_described(d, m);
    if (has_amd_words(m))
        return; /* ruleamd.c */
    if (t.known && t.nv == t.known)
        judge_mesh(d, m, &t);
    else if (t.nv)
        judge_islands(d, m, &t);
    else if (t.known)
        judge_pcie(d, m, &t);
    else if (m->gpus > 1 && !m->described && !d->live)
        judge_numa(d, m);
    else if (m->gpus == 1 && m->matrix && !m->described && !d->live) {
        struct tri_finding *f = tri__doctor_find(d, "topology_read", TRI_SEVERITY_OK,
                                                 "one GPU: there is no path to judge");
        tri__doctor_cite_fact(d, f, m, m->gpu[0].source);
    }
}
