/*
 * Rules over what rocm-smi and amd-smi say: weight 15 a hop of XGMI, 20 a segment of PCIe (40 in
 * one socket, 52 to 72 across). Some releases print all weights as 0 or all hops as 1: a column
 * that is the same nonsense everywhere is not used.
 */
#include <stdio.h>
#include <string.h>
#include "doctor/doctor_priv.h"

struct amd_tally {
    size_t known, xgmi, pcie, across;
    int least, most; /* weights of XGMI pairs that have one */
    struct tri_source source, worst_source;
};

/* The path of a pair by its link type, else by its weight. */
static enum tri_path amd_path(const struct tri_pair *p)
{
    if (p->path == TRI_PATH_XGMI || p->path == TRI_PATH_PCIE)
        return p->path;
    if (p->weight <= 0)
        return p->path;
    return p->weight % 15 == 0 && p->weight < 60 ? TRI_PATH_XGMI : TRI_PATH_PCIE;
}

static struct amd_tally count_amd(const struct tri_machine *m)
{
    struct amd_tally t = { .least = 1000, .source.file = -1, .worst_source.file = -1 };
    for (size_t a = 0; a < m->gpus; a++) {
        for (size_t b = 0; b < m->gpus; b++) {
            const struct tri_pair *p = tri_machine_pair(m, a, b);
            enum tri_path path = amd_path(p);
            if (a == b || path == TRI_PATH_UNKNOWN)
                continue;
            t.known++;
            t.xgmi += path == TRI_PATH_XGMI;
            t.pcie += path != TRI_PATH_XGMI;
            t.across += path != TRI_PATH_XGMI && p->weight > 40;
            if (t.source.file < 0)
                t.source = p->source;
            if (path != TRI_PATH_XGMI && t.worst_source.file < 0)
                t.worst_source = p->source;
            if (path == TRI_PATH_XGMI && p->weight > 0) {
                if (p->weight > t.most)
                    t.worst_source = p->source;
                t.most = p->weight > t.most ? p->weight : t.most;
                t.least = p->weight < t.least ? p->weight : t.least;
            }
        }
    }
    return t;
}

/* Pairs one XGMI hop apart, each GPU once: "(0,1)(2,3)". */
static void near_pairs(const struct tri_machine *m, int least, char *out, size_t bytes)
{
    bool used[TRI_MAX_GPUS] = { false };
    size_t n = 0;
    out[0] = 0;
    for (size_t a = 0; a < m->gpus; a++)
        for (size_t b = a + 1; b < m->gpus && !used[a]; b++)
            if (!used[b] && tri_machine_pair(m, a, b)->weight == least && n + 12 < bytes) {
                n += (size_t)snprintf(out + n, bytes - n, "(%zu,%zu)", a, b);
                used[a] = used[b] = true;
            }
}

static void judge_xgmi(struct tri_doctor *d, const struct tri_machine *m, const struct amd_tally *t)
{
    if (t->most <= t->least) {
        struct tri_finding *f = tri__doctor_find(
            d, "xgmi_mesh", TRI_SEVERITY_OK,
            "XGMI joins every pair of %zu GPUs: any group will do, whole groups are fastest",
            m->gpus);
        tri__doctor_cite_fact(d, f, m, t->source);
        tri__doctor_why(f, "a pair has one link, all-to-all has all of them: TP2 gets one seventh");
        return;
    }
    char list[160];
    near_pairs(m, t->least, list, sizeof list);
    struct tri_finding *f = tri__doctor_find(
        d, "xgmi_uneven", TRI_SEVERITY_INFO,
        "XGMI pairs are %d to %d hops apart (weights %d to %d): pair the near ones %s",
        t->least / 15, t->most / 15, t->least, t->most, list);
    tri__doctor_cite_fact(d, f, m, t->worst_source);
    tri__doctor_cure(f, "export HIP_VISIBLE_DEVICES=...   # in the order of %s", list);
}

static void judge_amd_pcie(struct tri_doctor *d, const struct tri_machine *m,
                           const struct amd_tally *t)
{
    struct tri_finding *f =
        t->xgmi ? tri__doctor_find(d, "xgmi_missing", TRI_SEVERITY_WARN,
                                   "XGMI joins only some of %zu GPUs: larger groups fall to PCIe",
                                   m->gpus)
                : tri__doctor_find(d, "xgmi_missing", TRI_SEVERITY_WARN,
                                   "%zu AMD GPUs joined by PCIe only%s: no XGMI", m->gpus,
                                   t->across ? ", some across sockets" : "");
    tri__doctor_cite_fact(d, f, m, t->worst_source);
    tri__doctor_cost(d, f, 20, 64);
    tri__doctor_cure(
        f, "# prefer pipeline stages or replicas; measure with rccl-tests all_reduce_perf");
}

void tri__doctor_rules_amd(struct tri_doctor *d, const struct tri_machine *m)
{
    struct amd_tally t = count_amd(m);
    bool words = false;
    for (size_t i = 0; i < m->gpus * m->gpus; i++)
        words |= m->pair[i].path == TRI_PATH_XGMI || m->pair[i].path == TRI_PATH_PCIE ||
                 m->pair[i].weight >= 0;
    if (words && t.known && t.pcie)
        judge_amd_pcie(d, m, &t);
    else if (words && t.known)
        judge_xgmi(d, m, &t);
    for (size_t i = 0; i < m->gpus * m->gpus && !t.known; i++)
        if (m->pair[i].hops > 0) {
            struct tri_finding *f = tri__doctor_find(
                d, "topology_read", TRI_SEVERITY_INFO,
                "only hops between %zu GPUs were printed, which some releases get wrong", m->gpus);
            tri__doctor_cite_fact(d, f, m, m->pair[i].source);
            tri__doctor_cure(f, "rocm-smi --showtopo   # weight and link type are needed");
            return;
        }
}
