/* Rules over what the driver grants between GPUs (topo -p2p, amd-smi access), and GPU health. */
#include <stdio.h>
#include <string.h>
#include "doctor/doctor_priv.h"

struct grants {
    size_t said, ok, unknown, mixed; /* mixed: refused pairs of differently named GPUs */
    enum tri_p2p first;
    struct tri_source refused, granted;
};

static struct grants count_grants(const struct tri_machine *m)
{
    struct grants g = { .refused.file = -1, .granted.file = -1 };
    for (size_t a = 0; a < m->gpus; a++) {
        for (size_t b = 0; b < m->gpus; b++) {
            const struct tri_pair *p = tri_machine_pair(m, a, b);
            if (a == b || p->p2p == TRI_P2P_UNKNOWN)
                continue;
            g.said++;
            if (p->p2p == TRI_P2P_OK) {
                g.ok++;
                g.granted = g.granted.file < 0 ? p->p2p_source : g.granted;
                continue;
            }
            g.unknown += p->p2p == TRI_P2P_U;
            g.mixed +=
                m->gpu[a].name[0] && m->gpu[b].name[0] && strcmp(m->gpu[a].name, m->gpu[b].name);
            if (g.refused.file < 0) {
                g.refused = p->p2p_source;
                g.first = p->p2p;
            }
        }
    }
    return g;
}

static void add_cures(struct tri_finding *f, const struct tri_machine *m, enum tri_p2p why)
{
    bool amd = m->gpu[0].vendor == TRI_VENDOR_AMD;
    if (why == TRI_P2P_GNS)
        tri__doctor_cure(f, "# GeForce: the stock driver refuses P2P; only a patched kernel module "
                            "changes that");
    else if (why == TRI_P2P_DR)
        tri__doctor_cure(f,
                         "grep -r NVreg_ /etc/modprobe.d   # remove the key that switches P2P off");
    else if (amd)
        tri__doctor_cure(f, "# enable large BAR / Above 4G decoding in the BIOS; iommu=pt on the "
                            "kernel command line");
    else
        tri__doctor_cure(f,
                         "sudo lspci -vvv | grep -i acsctl; cat /proc/cmdline   # ACS and IOMMU");
    tri__doctor_cure(f, "# until then: pipeline parallel, or tensor parallel over 2 at most");
}

/* topo -p2p n, a, p, when the grants themselves (r, w) were not asked. */
static void judge_extra(struct tri_doctor *d, const struct tri_machine *m, enum tri_p2p_extra what)
{
    static const char *const names[] = { [TRI_P2P_NVLINK] = "NVLink peer access",
                                         [TRI_P2P_ATOMICS] = "atomics between the GPUs",
                                         [TRI_P2P_PCIE] = "peer access over PCIe" };
    const struct tri_p2p_count *c = &m->p2p_extra[what];
    if (!c->said)
        return;
    bool all = c->ok == c->said, nvlink = false;
    for (size_t i = 0; i < m->gpus * m->gpus; i++)
        nvlink |= m->pair[i].path == TRI_PATH_NVLINK;
    bool fault = what == TRI_P2P_PCIE && !all && !nvlink && !c->ok;
    struct tri_finding *f =
        all     ? tri__doctor_find(d, "p2p_granted", TRI_SEVERITY_OK, "%s: every pair", names[what])
        : fault ? tri__doctor_find(d, "p2p_denied",
                                   c->refusal == TRI_P2P_NS ? TRI_SEVERITY_WARN : TRI_SEVERITY_FAIL,
                                   "no %s: %s (%s)", names[what], tri_p2p_name(c->refusal),
                                   tri_p2p_meaning(c->refusal))
                : tri__doctor_find(d, "p2p_partial", TRI_SEVERITY_INFO, "%s: %zu of %zu pairs (%s)",
                                   names[what], c->ok, c->said, tri_p2p_name(c->refusal));
    tri__doctor_cite_fact(d, f, m, c->source);
    if (!all)
        tri__doctor_cure(f, "nvidia-smi topo -p2p r   # the grant itself");
}

void tri__doctor_rules_p2p(struct tri_doctor *d, const struct tri_machine *m)
{
    struct grants g = count_grants(m);
    if (!g.said) {
        for (int what = 0; what < TRI_P2P_EXTRAS; what++)
            judge_extra(d, m, (enum tri_p2p_extra)what);
        return;
    }
    if (g.ok == g.said) {
        struct tri_finding *f =
            tri__doctor_find(d, "p2p_granted", TRI_SEVERITY_OK,
                             "peer access is granted between all %zu GPUs", m->gpus);
        tri__doctor_cite_fact(d, f, m, g.granted);
        tri__doctor_why(f, "a grant is no proof of correct data: all_reduce_perf -c 1 is");
        return;
    }
    struct tri_finding *f;
    if (g.ok)
        f = tri__doctor_find(d, "p2p_partial",
                             g.mixed && g.mixed == g.said - g.ok ? TRI_SEVERITY_INFO
                                                                 : TRI_SEVERITY_WARN,
                             "peer access for %zu of %zu pairs only: %s (%s)", g.ok, g.said,
                             tri_p2p_name(g.first), tri_p2p_meaning(g.first));
    else
        f = tri__doctor_find(d, "p2p_denied",
                             g.unknown == g.said || (g.first == TRI_P2P_NS && !m->p2p_asked)
                                 ? TRI_SEVERITY_WARN /* NS is also what atomics get over PCIe */
                                 : TRI_SEVERITY_FAIL,
                             "no peer access between the GPUs: %s (%s)", tri_p2p_name(g.first),
                             tri_p2p_meaning(g.first));
    tri__doctor_cite_fact(d, f, m, g.refused);
    tri__doctor_why(f, "NCCL and RCCL then copy through host memory (SHM)");
    tri__doctor_cost(d, f, 5, 24);
    add_cures(f, m, g.first);
}

/*
 * Cards with a connector for a bridge and none (or a dead one) on it say that every link is
 * inactive. On one card that is as bought; with several somebody should look.
 */
static bool judge_unbridged(struct tri_doctor *d, const struct tri_machine *m)
{
    size_t all_down = 0, others = 0;
    double gbs = 0;
    for (size_t i = 0; i < m->gpus; i++) {
        const struct tri__part *part = tri__doctor_part(m->gpu[i].name);
        bool bridged = part && !part->sxm && part->nvlink_gbs > 0;
        gbs = bridged ? part->nvlink_gbs : gbs;
        all_down += bridged && m->gpu[i].nvlinks_up <= 0 && m->gpu[i].nvlinks_down > 0;
        others += m->gpu[i].nvlinks_up > 0 || (m->gpu[i].nvlinks_down > 0 && !bridged);
    }
    if (!all_down || others)
        return false;
    struct tri_finding *f =
        tri__doctor_find(d, "nvlink_inactive", m->gpus > 1 ? TRI_SEVERITY_WARN : TRI_SEVERITY_INFO,
                         "no NVLink of %s is in use: no bridge is fitted, or it is not recognised",
                         m->gpus > 1 ? "any card" : "the card");
    tri__doctor_cite_fact(d, f, m, m->gpu[0].link_source);
    tri__doctor_cost(d, f, 0, m->gpus > 1 ? gbs : 0);
    tri__doctor_cure(f,
                     "# fit a bridge between two cards, or reseat it; then nvidia-smi nvlink -s");
    return true;
}

static void judge_links(struct tri_doctor *d, const struct tri_machine *m)
{
    if (judge_unbridged(d, m))
        return;
    size_t clean = 0;
    for (size_t i = 0; i < m->gpus; i++)
        clean += m->gpu[i].nvlink_errors == 0;
    if (clean && clean == m->gpus) {
        struct tri_finding *f = tri__doctor_find(d, "nvlink_errors", TRI_SEVERITY_OK,
                                                 "the NVLinks of %zu GPUs counted no error", clean);
        tri__doctor_cite_fact(d, f, m, m->gpu[0].link_source);
    }
    int most = 0, told = 0;
    for (size_t i = 0; i < m->gpus; i++) {
        most = m->gpu[i].nvlinks_up > most ? m->gpu[i].nvlinks_up : most;
        told += m->gpu[i].nvlinks_up >= 0 || m->gpu[i].nvlinks_down > 0;
    }
    if (!told)
        return;
    size_t bad = 0;
    for (size_t i = 0; i < m->gpus; i++) {
        const struct tri_gpu *g = &m->gpu[i];
        bool fewer = g->nvlinks_up >= 0 && g->nvlinks_up < most;
        if (g->nvlinks_down <= 0 && !fewer)
            continue;
        bad++;
        struct tri_finding *f = tri__doctor_find(
            d, "nvlink_inactive", g->nvlinks_down > 0 ? TRI_SEVERITY_FAIL : TRI_SEVERITY_WARN,
            "GPU%zu has %d NVLinks up%s", i, g->nvlinks_up > 0 ? g->nvlinks_up : 0,
            g->nvlinks_down > 0 ? " and inactive ones" : ", fewer than the others");
        tri__doctor_cite_fact(d, f, m, g->link_source);
        tri__doctor_cost(d, f, g->nvlink_gbs * g->nvlinks_up,
                         g->nvlink_gbs * (most > g->nvlinks_up + g->nvlinks_down
                                              ? most
                                              : g->nvlinks_up + g->nvlinks_down));
        tri__doctor_cure(
            f, "nvidia-smi nvlink -e -i %zu   # errors; then reseat the bridge or reset", i);
        tri__doctor_cure(f, "sudo systemctl restart nvidia-fabricmanager");
    }
    if (!bad) {
        struct tri_finding *f = tri__doctor_find(d, "nvlink_mesh", TRI_SEVERITY_OK,
                                                 "all %d NVLinks of %d GPUs are up, %.4g GB/s each",
                                                 most, told, m->gpu[0].nvlink_gbs);
        tri__doctor_cite_fact(d, f, m, m->gpu[0].link_source);
    }
}

static void judge_health(struct tri_doctor *d, const struct tri_machine *m, size_t i)
{
    const struct tri_gpu *g = &m->gpu[i];
    const struct tri_gpu_state *s = &g->state;
    struct tri_finding *f;
    if (g->nvlink_errors > 0) {
        f = tri__doctor_find(d, "nvlink_errors", TRI_SEVERITY_WARN,
                             "GPU%zu counted %ld NVLink errors", i, g->nvlink_errors);
        tri__doctor_cite_fact(d, f, m, g->link_source);
        tri__doctor_cure(f, "nvidia-smi nvlink -e -i %zu   # again after a run: do they grow?", i);
    }
    if (s->remap_failed == 1 || s->remap_pending == 1) {
        f = tri__doctor_find(d, "gpu_remap",
                             s->remap_failed == 1 ? TRI_SEVERITY_FAIL : TRI_SEVERITY_WARN,
                             s->remap_failed == 1 ? "GPU%zu could not replace failed memory rows"
                                                  : "GPU%zu has memory rows to be replaced",
                             i);
        tri__doctor_cite_fact(d, f, m, s->remap_source);
        tri__doctor_cure(f,
                         s->remap_failed == 1 ? "# replace the card"
                                              : "# reset the GPU or reboot: nvidia-smi -r -i %zu",
                         i);
    }
    if (s->fabric_degraded) {
        f = tri__doctor_find(d, "gpu_fabric", TRI_SEVERITY_FAIL,
                             "the NVLink fabric of GPU%zu is up with degraded bandwidth", i);
        tri__doctor_cite_fact(d, f, m, s->fabric_source);
        tri__doctor_cure(f, "nvidia-smi nvlink -s -i %zu; nvidia-smi nvlink -e -i %zu", i, i);
    }
    bool fabric = s->fabric[0] && !tri_text_begins(s->fabric, "N/A") &&
                  !tri_text_begins(s->fabric, "Completed");
    if (fabric) {
        f = tri__doctor_find(d, "gpu_fabric", TRI_SEVERITY_FAIL,
                             "the NVLink fabric of GPU%zu is \"%s\", not \"Completed\"", i,
                             s->fabric);
        tri__doctor_cite_fact(d, f, m, s->fabric_source);
        tri__doctor_cure(f,
                         "sudo systemctl restart nvidia-fabricmanager && nvidia-smi -q | grep -A3 "
                         "Fabric");
    }
    unsigned hard = TRI_SLOW_HW | TRI_SLOW_HW_THERMAL | TRI_SLOW_HW_BRAKE | TRI_SLOW_SW_THERMAL;
    if (s->slow) {
        f = tri__doctor_find(d, "gpu_slow", s->slow & hard ? TRI_SEVERITY_WARN : TRI_SEVERITY_INFO,
                             s->slow & hard ? "GPU%zu is throttled by heat or a power brake"
                                            : "GPU%zu runs at its power cap",
                             i);
        tri__doctor_cite_fact(d, f, m, s->slow_source);
        tri__doctor_cure(f, "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i %zu", i);
    }
    if (s->mig == 1) {
        f = tri__doctor_find(d, "gpu_mig", TRI_SEVERITY_INFO,
                             "GPU%zu is in MIG mode: its slices have no P2P and no NVLink", i);
        tri__doctor_cite_fact(d, f, m, g->source);
        tri__doctor_cure(f, "sudo nvidia-smi -i %zu -mig 0", i);
    }
}

void tri__doctor_rules_gpu(struct tri_doctor *d, const struct tri_machine *m)
{
    size_t full = 0, lazy = 0;
    judge_links(d, m);
    for (size_t i = 0; i < m->gpus; i++) {
        const struct tri_gpu *g = &m->gpu[i];
        judge_health(d, m, i);
        bool is_full = g->memory_bytes && g->used_bytes > g->memory_bytes / 10 * 9;
        full += is_full;
        lazy += is_full && g->busy_percent >= 0 && g->busy_percent < 60;
    }
    if (lazy && lazy == full && m->gpus > 1) {
        struct tri_finding *f = tri__doctor_find(
            d, "gpu_full_idle", TRI_SEVERITY_INFO,
            "%zu GPUs hold full memory and do little: they wait for each other or for the host",
            lazy);
        tri__doctor_cite_fact(d, f, m, m->gpu[0].source);
        tri__doctor_cure(f, "NCCL_DEBUG=INFO ...   # look for via SHM or NET/Socket");
        tri__doctor_cure(f, "trireme doctor --steps");
    }
}
