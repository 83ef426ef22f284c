/*
 * Rules over PCI Express links. Only links on the way to a GPU, an RDMA adapter or a drive matter;
 * management ports of a switch at x1 to x4 do not. Lanes that are missing are a fault under any
 * load; a low speed is none while the device idles.
 */
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "doctor/doctor_priv.h"

enum { MAX_WIDTH = 32 };

struct pcie {
    struct tri_doctor *d;
    const struct tri_machine *m;
    size_t sound, faults, idle; /* links of GPUs */
    const struct tri_pci
        *bridge[MAX_WIDTH + 1]; /* the first that can do so many lanes, NULL none */
};

static const char *label(const struct tri_pci *p)
{
    return p->bdf[0] ? p->bdf : "a device without a bus id";
}

/* Devices without a class are taken for what the person grepped: links as wide as a GPU's. */
static bool is_gpu_like(const struct tri_pci *p)
{
    if (p->role == TRI_PCI_GPU)
        return true;
    return p->role == TRI_PCI_UNKNOWN &&
           (p->cap.width >= 8 || p->sta.width >= 8 || p->width_down || p->cap.width == 0);
}

static bool is_rdma(const struct tri_pci *p)
{
    return p->role == TRI_PCI_NIC && (p->vendor == 0x15b3 || p->class_code >> 8 == 0x0207);
}

static double cap_gbs(const struct tri_pci *p, const struct tri_pci *above)
{
    struct tri_link l = p->cap;
    if (above && above->cap.gts > 0 && (l.gts <= 0 || above->cap.gts < l.gts))
        l.gts = above->cap.gts;
    return tri_link_gbs(l);
}

/* Lanes. True when something was found. */
static bool judge_width(struct pcie *x, const struct tri_pci *p, enum tri_severity severity,
                        const char *what)
{
    bool down =
        p->width_down || (p->cap.width > 0 && p->sta.width > 0 && p->sta.width < p->cap.width);
    if (!down)
        return false;
    const struct tri_pci *above = p->parent >= 0 ? &x->m->pci[p->parent] : NULL;
    const struct tri_pci *host = above;
    if (!host && p->sta.width <= MAX_WIDTH) /* a root port listed beside it */
        host = x->bridge[p->sta.width];
    bool platform = host && host->cap.width > 0 && host->cap.width <= p->sta.width;
    char of[24] = "";
    if (p->cap.width)
        snprintf(of, sizeof of, " of x%d", p->cap.width);
    struct tri_finding *f = tri__doctor_find(x->d, "pcie_width", severity, "%s %s runs at x%d%s",
                                             what, label(p), p->sta.width, of);
    tri__doctor_cite_fact(x->d, f, x->m, p->sta_source.file >= 0 ? p->sta_source : p->source);
    if (platform) {
        tri__doctor_cite_fact(x->d, f, x->m, host->source);
        tri__doctor_why(
            f, "the port above (%s) itself has only x%d: board, riser or BIOS, not the card",
            label(host), host->cap.width);
        tri__doctor_cure(f, "# BIOS: slot bifurcation x16; or move the card to the full slot");
    } else {
        tri__doctor_why(f, "missing lanes stay missing under load, unlike a low idle speed");
        tri__doctor_cure(f,
                         "# reseat the card and its riser; try another slot; clean the contacts");
    }
    if (p->bdf[0])
        tri__doctor_cure(f, "sudo lspci -vv -s %s | grep -E 'LnkCap:|LnkSta:'", p->bdf);
    struct tri_link now = { p->cap.gts > 0 ? p->cap.gts : p->sta.gts, p->sta.width };
    struct tri_link full = { now.gts, p->cap.width ? p->cap.width : 16 };
    tri__doctor_cost(x->d, f, tri_link_gbs(now), tri_link_gbs(full));
    return true;
}

/* A card of one generation in a host of an older one: usual one step below Gen5, else worth a look.
 */
static enum tri_severity host_gap(double device_gts, double host_gts)
{
    int device = tri_link_gen(device_gts), host = tri_link_gen(host_gts);
    return device >= 5 && host == device - 1 ? TRI_SEVERITY_INFO : TRI_SEVERITY_WARN;
}

static void find_idle(struct pcie *x, const struct tri_pci *p)
{
    struct tri_finding *f =
        tri__doctor_find(x->d, "pcie_idle", TRI_SEVERITY_INFO,
                         "%s reads 2.5 GT/s: usual while idle, read it again under load", label(p));
    tri__doctor_cite_fact(x->d, f, x->m, p->sta_source);
    tri__doctor_cure(
        f, "# start a load, then: sudo lspci -vv -s %s | grep LnkSta:", p->bdf[0] ? p->bdf : "BUS");
    x->idle++;
}

static void judge_speed(struct pcie *x, const struct tri_pci *p, const char *what)
{
    const struct tri_pci *above = p->parent >= 0 ? &x->m->pci[p->parent] : NULL;
    bool down = p->sta.gts > 0 && p->cap.gts > 0 ? p->sta.gts < p->cap.gts : p->speed_down;
    if (!down || p->seen_full) /* a lower speed was somebody's try, or its idle one */
        return;
    if (p->sta.gts <= 2.5) {
        find_idle(x, p);
        return;
    }
    bool host_known = above && above->cap.gts > 0;
    bool host_limits = host_known && above->cap.gts <= p->sta.gts;
    bool capped = p->target_gts > 0 && p->target_gts < p->cap.gts && p->target_gts <= p->sta.gts;
    const char *rule = "pcie_speed";
    enum tri_severity severity = TRI_SEVERITY_WARN;
    if (host_limits || (!host_known && host_gap(p->cap.gts, p->sta.gts) == TRI_SEVERITY_INFO)) {
        rule = "pcie_host";
        severity = host_gap(p->cap.gts, host_limits ? above->cap.gts : p->sta.gts);
    } else if (capped) {
        rule = "pcie_target";
    }
    struct tri_finding *f = tri__doctor_find(x->d, rule, severity, "%s %s runs at %g GT/s of %g",
                                             what, label(p), p->sta.gts, p->cap.gts);
    tri__doctor_cite_fact(x->d, f, x->m, p->sta_source);
    if (host_limits)
        tri__doctor_cite_fact(x->d, f, x->m, above->source);
    tri__doctor_why(f, host_limits ? "the port above it can do no more: an older host"
                       : capped    ? "its target speed is set that low (LnkCtl2)"
                       : host_known
                           ? "both ends could do more: signal quality, riser or BIOS setting"
                           : "the port above was not shown: an older host or a bad riser");
    if (capped && !host_limits && p->bdf[0])
        tri__doctor_cure(f, "# BIOS: PCIe link speed Auto; or sudo setpci -s %s CAP_EXP+30.w",
                         p->bdf);
    tri__doctor_cure(f, "sudo lspci -vv | grep -E '^[0-9a-f]|LnkCap:|LnkSta:'   # under load");
    tri__doctor_cost(x->d, f, tri_link_gbs(p->sta), cap_gbs(p, NULL));
}

/* Bridges above a GPU: a link slower than what the GPU itself has now decides. */
static void judge_bridges(struct pcie *x, size_t gpu)
{
    const struct tri_machine *m = x->m;
    const struct tri_pci *p = &m->pci[gpu];
    double own = tri_link_gbs(p->sta);
    int up = p->parent;
    for (int steps = 0; up >= 0 && steps < 64; up = m->pci[up].parent, steps++) {
        const struct tri_pci *b = &m->pci[up];
        double now = tri_link_gbs(b->sta);
        if (b->is_virtual || now <= 0 || own <= 0 || now >= own * 0.99)
            continue;
        if (judge_width(x, b, TRI_SEVERITY_FAIL, "the bridge above a GPU,"))
            x->faults++;
        else if (b->sta.gts > 2.5)
            judge_speed(x, b, "the bridge above a GPU,");
    }
}

static void judge_device(struct pcie *x, size_t i)
{
    const struct tri_pci *p = &x->m->pci[i];
    bool gpu = is_gpu_like(p), seen = p->sta.width > 0 || p->sta.gts > 0;
    if (!seen || p->is_virtual || x->m->described)
        return;
    if (gpu) {
        bool bad = judge_width(x, p, TRI_SEVERITY_FAIL, p->role == TRI_PCI_GPU ? "GPU" : "device");
        x->faults += bad;
        x->sound += !bad && p->sta.width > 0;
        judge_speed(x, p, p->role == TRI_PCI_GPU ? "GPU" : "device");
        if (p->role == TRI_PCI_GPU)
            judge_bridges(x, i);
    } else if (is_rdma(p)) {
        judge_width(x, p, TRI_SEVERITY_FAIL, "RDMA adapter");
        if (p->sta.gts > 2.5)
            judge_speed(x, p, "RDMA adapter");
    } else if (p->role == TRI_PCI_DRIVE && p->class_code >> 8 == 0x0108) {
        judge_width(x, p, TRI_SEVERITY_WARN, "NVMe drive");
    }
}

/* What a description file (XML) says of the way to each GPU. */
static void judge_described(struct pcie *x)
{
    for (size_t i = 0; i < x->m->gpus; i++) {
        int pci = x->m->gpu[i].pci, slow = -1;
        if (pci < 0 || x->m->pci[pci].sta.width == 0)
            continue;
        double own = tri_link_gbs(x->m->pci[pci].sta);
        double path = tri_path_to_root_gbs(x->m, pci, &slow);
        if (slow < 0 || slow == pci || x->m->pci[slow].sta.gts <= 2.5 || path > own * 0.6)
            continue;
        struct tri_finding *f = tri__doctor_find(x->d, "pcie_width", TRI_SEVERITY_WARN,
                                                 "the way to GPU%zu narrows to %.1f GB/s at %s", i,
                                                 path, x->m->pci[slow].bdf);
        tri__doctor_cite_fact(x->d, f, x->m, x->m->pci[slow].source);
        tri__doctor_cost(x->d, f, path, own);
        tri__doctor_cure(f, "sudo lspci -vv -s %s | grep -E 'LnkCap:|LnkSta:'",
                         x->m->pci[slow].bdf);
    }
}

/* `lspci` in its short form: which switches there are. */
static void judge_switches(struct pcie *x)
{
    static const char *const words[] = { "PLX",
                                         "PEX",
                                         "Switchtec",
                                         "PCIe Switch",
                                         "PCI Express Switch",
                                         "PM40",
                                         "PFX",
                                         "Gen 3 (8.0 GT/s) Switch" };
    size_t ports = 0, up = 0, links = 0;
    struct tri_finding *f = NULL;
    for (size_t i = 0; i < x->m->pcis; i++) {
        const struct tri_pci *p = &x->m->pci[i];
        links += p->sta.gts > 0 || p->cap.gts > 0;
        for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
            if (p->role == TRI_PCI_BRIDGE && tri_text_find(p->name, words[k])) {
                ports++;
                up += strstr(p->bdf, ":00.0") != NULL;
                break;
            }
    }
    if (!ports || links)
        return;
    f = tri__doctor_find(x->d, "pcie_switch", TRI_SEVERITY_INFO,
                         "%zu PCIe switches with %zu ports listed: GPUs below one share its uplink",
                         up ? up : 1, ports);
    for (size_t i = 0; i < x->m->pcis; i++)
        if (x->m->pci[i].role == TRI_PCI_BRIDGE)
            tri__doctor_cite_fact(x->d, f, x->m, x->m->pci[i].source);
    tri__doctor_cure(f,
                     "sudo lspci -vvv > lspci.txt; lspci -tv   # links, ACS and what hangs below");
}

/* nvidia-smi -q of one GPU. */
static void judge_query(struct pcie *x, size_t i)
{
    const struct tri_gpu_state *s = &x->m->gpu[i].state;
    struct tri_finding *f;
    static const double rates[] = { 0, 2.5, 5, 8, 16, 32, 64 };
    if (s->width_now > 0 && s->width_max > 0 && s->width_now < s->width_max) {
        f = tri__doctor_find(x->d, "pcie_width", TRI_SEVERITY_FAIL, "GPU%zu%s%s runs at x%d of x%d",
                             i, x->m->gpu[i].bdf[0] ? " " : "", x->m->gpu[i].bdf, s->width_now,
                             s->width_max);
        tri__doctor_cite_fact(x->d, f, x->m, s->width_source);
        tri__doctor_cure(f, "# reseat the card and its riser; check the slot's lanes in the BIOS");
        double gts = s->gen_max > 0 && s->gen_max < 7 ? rates[s->gen_max] : 16;
        tri__doctor_cost(x->d, f, tri_link_gbs((struct tri_link){ gts, s->width_now }),
                         tri_link_gbs((struct tri_link){ gts, s->width_max }));
        x->faults++;
    } else if (s->width_now > 0) {
        x->sound++;
    }
    bool at_host = s->gen_host > 0 && s->gen_now >= s->gen_host; /* said below */
    if (s->gen_now > 0 && s->gen_max > 0 && s->gen_now < s->gen_max && !at_host) {
        int pstate = x->m->gpu[i].pstate;
        bool works = s->idle == 0 || (s->idle < 0 && x->m->gpu[i].busy_percent >= 50);
        bool idle = s->idle == 1 || pstate >= 5,
             busy = works && pstate <= 2 && (pstate >= 0 || s->idle < 0);
        f = tri__doctor_find(x->d, busy ? "pcie_speed" : "pcie_idle",
                             busy   ? TRI_SEVERITY_WARN
                             : idle ? TRI_SEVERITY_OK
                                    : TRI_SEVERITY_INFO,
                             busy ? "GPU%zu runs PCIe generation %d of %d while it works"
                                  : "GPU%zu reads PCIe generation %d of %d while idle",
                             i, s->gen_now, s->gen_max);
        tri__doctor_cite_fact(x->d, f, x->m, s->gen_source);
        if (busy)
            tri__doctor_cure(
                f, "# BIOS: PCIe link speed Auto; check the riser; read again under load");
    }
    if (s->gen_device > 0 && s->gen_host > 0 && s->gen_host < s->gen_device && s->gen_device < 7) {
        f = tri__doctor_find(x->d, "pcie_host", host_gap(rates[s->gen_device], rates[s->gen_host]),
                             "GPU%zu could do PCIe generation %d, its host only %d", i,
                             s->gen_device, s->gen_host);
        tri__doctor_cite_fact(x->d, f, x->m, s->gen_source);
        struct tri_link link = { rates[s->gen_host], s->width_now > 0 ? s->width_now : 16 };
        struct tri_link full = { rates[s->gen_device], link.width };
        tri__doctor_cost(x->d, f, tri_link_gbs(link), tri_link_gbs(full));
        tri__doctor_cure(f,
                         "# BIOS: PCIe link speed Auto, another slot; else the board is the limit");
    }
    if (s->replays > 0) {
        f = tri__doctor_find(x->d, "pcie_replays",
                             s->replays > 100 ? TRI_SEVERITY_WARN : TRI_SEVERITY_INFO,
                             "GPU%zu counted %ld PCIe replays", i, s->replays);
        tri__doctor_cite_fact(x->d, f, x->m, s->replay_source);
        tri__doctor_cure(f, "# growing under load means a bad riser, cable or slot");
    }
}

/* How many GPUs and how many bridges are below each device: GPUs at any depth. */
static void count_below(const struct tri_machine *m, uint16_t *gpus, uint16_t *ports)
{
    for (size_t i = 0; i < m->pcis; i++) {
        int up = m->pci[i].parent;
        if (m->pci[i].role == TRI_PCI_BRIDGE && up >= 0)
            ports[up]++;
        for (int steps = 0; m->pci[i].role == TRI_PCI_GPU && up >= 0 && steps < 64; steps++) {
            gpus[up]++;
            up = m->pci[up].parent;
        }
    }
}

/* Drawn by lspci -t: what is below which switch. Nothing else about its links is known. */
static void judge_tree(struct pcie *x)
{
    const struct tri_machine *m = x->m;
    size_t gpus = 0, switches = 0;
    struct tri_finding *f = NULL;
    for (size_t i = 0; i < m->pcis; i++) {
        if (m->pci[i].cap.gts > 0 || m->pci[i].sta.gts > 0)
            return; /* better readings are there */
        gpus += m->pci[i].role == TRI_PCI_GPU;
    }
    uint16_t *below = tri_calloc(2 * m->pcis + 1, sizeof *below); /* GPUs, then bridges */
    if (below)
        count_below(m, below, below + m->pcis);
    for (size_t i = 0; i < m->pcis && below; i++) {
        size_t peers = below[i], ports = below[m->pcis + i];
        if (m->pci[i].role != TRI_PCI_BRIDGE || m->pci[i].parent < 0)
            continue;
        if (ports < 2 || (gpus && peers < 2))
            continue;
        switches++;
        f = gpus ? tri__doctor_find(x->d, "pcie_switch", TRI_SEVERITY_INFO,
                                    "%zu GPUs share the uplink of the switch at %s", peers,
                                    m->pci[i].bdf)
                 : tri__doctor_find(x->d, "pcie_switch", TRI_SEVERITY_INFO,
                                    "a PCIe switch with %zu ports at %s; what is below it has no "
                                    "name here",
                                    ports, m->pci[i].bdf);
        tri__doctor_cite_fact(x->d, f, m, m->pci[i].source);
        tri__doctor_cure(f, gpus ? "sudo lspci -vvv > lspci.txt   # links and ACS" : "lspci -tv");
    }
    tri_free(below);
    if (switches || !gpus)
        return;
    f = tri__doctor_find(x->d, "topology_read", TRI_SEVERITY_OK,
                         "%zu GPUs, no two below one PCIe switch", gpus);
    for (size_t i = 0; i < m->gpus; i++)
        tri__doctor_cite_fact(x->d, f, m, m->gpu[i].source);
}

void tri__doctor_rules_pcie(struct tri_doctor *d, const struct tri_machine *m)
{
    struct pcie x = { .d = d, .m = m };
    for (size_t i = m->pcis; i-- > 0;)
        if (m->pci[i].role == TRI_PCI_BRIDGE && m->pci[i].cap.width <= MAX_WIDTH)
            x.bridge[m->pci[i].cap.width] = &m->pci[i];
    for (size_t i = 0; i < m->pcis; i++)
        judge_device(&x, i);
    for (size_t i = 0; i < m->gpus; i++)
        judge_query(&x, i);
    if (m->described)
        judge_described(&x);
    judge_switches(&x);
    if (m->drawn_tree)
        judge_tree(&x);
    if (x.sound && !x.faults) {
        struct tri_finding *f = tri__doctor_find(d, "pcie_links", TRI_SEVERITY_OK,
                                                 "%zu GPU links at full width", x.sound);
        for (size_t i = 0; i < m->pcis; i++)
            if (is_gpu_like(&m->pci[i]) && m->pci[i].sta.width > 0)
                tri__doctor_cite_fact(d, f, m, m->pci[i].sta_source);
        for (size_t i = 0; i < m->gpus; i++)
            tri__doctor_cite_fact(d, f, m,
                                  m->gpu[i].state.width_now > 0 ? m->gpu[i].state.width_source
                                                                : (struct tri_source){ -1, 0 });
    }
}
