/*
 * Which GPUs to put together: for groups of 2, 4 and 8 the division whose weakest inner path is
 * best. Up to 10 GPUs every division is tried; above that groups grow one by one from the lowest
 * free GPU. Where P2P is refused, the order of paths changes: a pair below one switch shares its
 * uplink for copies through the host and is slower than a pair across switches (nccl#1086).
 */
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "doctor/doctor_priv.h"

enum { EXHAUSTIVE = 10, MAX_GROUPINGS = 3 * TRI_MAX_MACHINES };

/* What a path is worth in GB/s, for comparing only. */
static double worth(const struct tri_machine *m, size_t a, size_t b)
{
    const struct tri_pair *p = tri_machine_pair(m, a, b);
    bool refused = p->p2p != TRI_P2P_UNKNOWN && p->p2p != TRI_P2P_OK;
    if (p->seen_gbs > 0)
        return p->seen_gbs;
    switch (p->path) {
    case TRI_PATH_NVLINK:
        return p->link_gbs > 0 ? p->link_gbs : 25.0 * (p->links ? p->links : 1);
    case TRI_PATH_XGMI:
        return p->weight > 15 ? 64.0 * 15 / p->weight : 64;
    case TRI_PATH_PIX:
        return refused ? 6 : 24;
    case TRI_PATH_PXB:
        return refused ? 6.5 : 22;
    case TRI_PATH_PHB:
        return refused ? 8.6 : 20;
    case TRI_PATH_NODE:
        return refused ? 8.5 : 16;
    case TRI_PATH_PCIE:
        return p->weight > 40 ? 10 : 16;
    case TRI_PATH_SYS: /* inside one NUMA node it cannot cross sockets */
        return m->gpu[a].numa >= 0 && m->gpu[a].numa == m->gpu[b].numa ? 14 : refused ? 7 : 10;
    default:
        return p->weight > 0 ? 64.0 * 15 / p->weight : 0;
    }
}

struct search {
    const struct tri_machine *m;
    size_t k, groups;
    double value[TRI_MAX_GPUS][TRI_MAX_GPUS];
    uint8_t now[TRI_GROUP_MAX], best[TRI_GROUP_MAX];
    double best_least, best_sum;
};

/* Weakest pair of the groups placed so far, and the sum over all of their pairs. */
static void score(const struct search *s, size_t placed, double *least, double *sum)
{
    *least = 1e9;
    *sum = 0;
    for (size_t g = 0; g < placed; g += s->k)
        for (size_t i = g; i < g + s->k; i++)
            for (size_t j = i + 1; j < g + s->k; j++) {
                double v = s->value[s->now[i]][s->now[j]];
                *least = v < *least ? v : *least;
                *sum += v;
            }
}

static void keep_best(struct search *s)
{
    double least, sum;
    score(s, s->groups * s->k, &least, &sum);
    if (least > s->best_least || (least == s->best_least && sum > s->best_sum)) {
        s->best_least = least;
        s->best_sum = sum;
        memcpy(s->best, s->now, sizeof s->best);
    }
}

/* Every division: a group begins with the lowest free GPU, members ascend. Depth is at most 10. */
static void try_all(struct search *s, size_t at, unsigned used)
{
    if (at == s->groups * s->k) {
        keep_best(s);
        return;
    }
    bool begins = at % s->k == 0;
    size_t from = begins ? 0 : s->now[at - 1] + 1u;
    for (size_t i = from; i < s->m->gpus; i++) {
        if (used >> i & 1)
            continue;
        s->now[at] = (uint8_t)i;
        try_all(s, at + 1, used | 1u << i);
        if (begins && s->groups * s->k == s->m->gpus)
            break; /* nobody may be left out, so the lowest must begin */
    }
}

static void grow(struct search *s)
{
    bool used[TRI_MAX_GPUS] = { false };
    for (size_t at = 0; at < s->groups * s->k; at++) {
        size_t start = at / s->k * s->k, pick = s->m->gpus;
        double pick_value = -1;
        for (size_t i = 0; i < s->m->gpus; i++) {
            double least = 1e9;
            for (size_t j = start; j < at; j++)
                least = s->value[i][s->now[j]] < least ? s->value[i][s->now[j]] : least;
            if (!used[i] && least > pick_value) {
                pick = i;
                pick_value = least;
            }
        }
        s->now[at] = (uint8_t)pick;
        used[pick] = true;
    }
    keep_best(s);
}

static void list_members(const uint8_t *member, size_t k, char *out, size_t bytes)
{
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < k && n + 6 < bytes; i++)
        n += (size_t)snprintf(out + n, bytes - n, "%s%u", i ? "," : "", member[i]);
}

static size_t nics_of(const struct tri_machine *m, const uint8_t *member, size_t k,
                      bool chosen[TRI_MAX_NICS])
{
    size_t n = 0;
    memset(chosen, 0, TRI_MAX_NICS * sizeof *chosen);
    for (size_t i = 0; i < k; i++) {
        enum tri_path best = TRI_PATH_SYS;
        for (size_t c = 0; c < m->nics; c++) {
            enum tri_path p = *tri_machine_gpu_nic(m, member[i], c);
            best = p >= TRI_PATH_PIX && p < best ? p : best;
        }
        for (size_t c = 0; c < m->nics && best < TRI_PATH_SYS; c++) {
            bool near = *tri_machine_gpu_nic(m, member[i], c) == best;
            n += near && !chosen[c];
            chosen[c] |= near;
        }
    }
    return n;
}

size_t tri__doctor_group_nics(const struct tri_doctor *d, const struct tri_grouping *g,
                              size_t group, bool chosen[TRI_MAX_NICS])
{
    return nics_of(d->machines.list[g->machine], g->member + group * g->k, g->k, chosen);
}

/*
 * " NCCL_IB_HCA==mlx5_0,mlx5_1": '=' asks for whole names, else mlx5_1 is mlx5_10 too. Not when
 * every adapter is as near, nor with names the kernel does not know ("NIC0" without its legend).
 */
static void add_hca(struct tri_grouping *g, const struct tri_machine *m)
{
    bool chosen[TRI_MAX_NICS];
    char list[160] = "";
    size_t n = nics_of(m, g->member, g->k, chosen), used = 0;
    if (!n || n == m->nics)
        return;
    for (size_t c = 0; c < m->nics; c++) {
        const struct tri_nic *nic = &m->nic[c];
        bool rdma = nic->kind != TRI_NIC_ETHERNET && !tri_text_begins(nic->name, "NIC");
        if (!chosen[c])
            continue;
        if (!rdma || !nic->name[0] || used + strlen(nic->name) + 2 > sizeof list)
            return;
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? "," : "", nic->name);
    }
    used = strlen(g->env);
    snprintf(g->env + used, sizeof g->env - used, " NCCL_IB_HCA==%s", list);
}

static void explain(struct tri_grouping *g, const struct tri_machine *m, double whole)
{
    char first[120];
    int numa = m->gpu[g->member[0]].numa;
    for (size_t i = 1; i < g->k; i++)
        numa = m->gpu[g->member[i]].numa == numa ? numa : -1;
    bool amd = m->gpu[0].vendor == TRI_VENDOR_AMD || g->worst == TRI_PATH_XGMI ||
               g->worst == TRI_PATH_PCIE;
    list_members(g->member, g->k, first, sizeof first);
    snprintf(g->reason, sizeof g->reason, "weakest path inside a group is %s, about %.3g GB/s%s",
             tri_path_name(g->worst), g->worst_gbs,
             whole > 0 && g->worst_gbs > whole * 1.2 ? "; dividing otherwise would meet slower ones"
                                                     : "; any division is as good");
    snprintf(g->env, sizeof g->env, "%s=%s%s", amd ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES",
             first, g->worst == TRI_PATH_SYS ? " NCCL_P2P_LEVEL=SYS" : "");
    add_hca(g, m);
    size_t used = strlen(g->env); /* last: what follows numactl is the command */
    if (numa >= 0 && m->numas + m->gpus > 1)
        snprintf(g->env + used, sizeof g->env - used, " numactl --cpunodebind=%d --membind=%d",
                 numa, numa);
}

static void add(struct tri_doctor *d, size_t machine, struct search *s)
{
    const struct tri_machine *m = s->m;
    double whole = 1e9;
    if (!d->grouping)
        d->grouping = tri_calloc(MAX_GROUPINGS, sizeof *d->grouping);
    if (!d->grouping || d->groupings == MAX_GROUPINGS)
        return;
    struct tri_grouping *g = &d->grouping[d->groupings++];
    g->machine = machine;
    g->k = s->k;
    g->groups = s->groups;
    g->worst = TRI_PATH_UNKNOWN;
    g->worst_gbs = 1e9;
    memcpy(g->member, s->best, sizeof g->member);
    for (size_t a = 0; a < m->gpus; a++)
        for (size_t b = a + 1; b < m->gpus; b++)
            whole = s->value[a][b] < whole ? s->value[a][b] : whole;
    for (size_t at = 0; at < g->groups * g->k; at += g->k)
        for (size_t i = at; i < at + g->k; i++)
            for (size_t j = i + 1; j < at + g->k; j++)
                if (s->value[g->member[i]][g->member[j]] < g->worst_gbs) {
                    g->worst_gbs = s->value[g->member[i]][g->member[j]];
                    g->worst = tri_machine_pair(m, g->member[i], g->member[j])->path;
                }
    explain(g, m, whole);
}

/* Whoever takes GPUs by number, as launchers do, gets pairs (0,1)(2,3)...: are those the near ones?
 */
static void judge_order(struct tri_doctor *d, const struct search *s, const struct tri_grouping *g)
{
    const struct tri_machine *m = s->m;
    double naive = 1e9;
    size_t worst = 0, used = 0;
    char list[160] = "";
    for (size_t a = 0; a + 1 < m->gpus; a += 2)
        if (s->value[a][a + 1] < naive) {
            naive = s->value[a][a + 1];
            worst = a;
        }
    if (g->k != 2 || m->gpus < 4 || naive <= 0 || naive > g->worst_gbs * 0.8)
        return;
    for (size_t at = 0; at + 1 < g->groups * 2 && used + 12 < sizeof list; at += 2)
        used += (size_t)snprintf(list + used, sizeof list - used, "(%u,%u)", g->member[at],
                                 g->member[at + 1]);
    struct tri_finding *f = tri__doctor_find(
        d, "gpu_order", TRI_SEVERITY_INFO,
        "GPU numbers do not follow the wiring: (%zu,%zu) are far apart, near are %s", worst,
        worst + 1, list);
    tri__doctor_cite_fact(d, f, m, tri_machine_pair(m, worst, worst + 1)->source);
    tri__doctor_cite_fact(d, f, m, m->gpu[worst].source);
    tri__doctor_cost_of(d, m->gpu[0].name, 2);
    tri__doctor_cost(d, f, naive, g->worst_gbs);
    tri__doctor_cure(f, "%s COMMAND   # the first pair", g->env);
}

/* Groups need paths that some reading named (or the PCI tree proved) for most pairs. */
void tri__doctor_group(struct tri_doctor *d, size_t machine)
{
    const struct tri_machine *m = d->machines.list[machine];
    struct search *s = tri_calloc(1, sizeof *s);
    size_t known = 0;
    for (size_t a = 0; s && a < m->gpus; a++)
        for (size_t b = 0; b < m->gpus; b++)
            if (a != b) {
                s->value[a][b] = worth(m, a, b);
                known += s->value[a][b] > 0;
            }
    if (!s || m->gpus < 2 || known * 2 < m->gpus * (m->gpus - 1)) {
        tri_free(s);
        return;
    }
    s->m = m;
    for (size_t k = 2; k <= 8 && k <= m->gpus; k *= 2) {
        s->k = k;
        s->groups = m->gpus / k;
        s->best_least = s->best_sum = -1;
        if (m->gpus <= EXHAUSTIVE)
            try_all(s, 0, 0);
        else
            grow(s);
        add(d, machine, s);
        if (k == 2 && d->groupings)
            judge_order(d, s, &d->grouping[d->groupings - 1]);
    }
    tri_free(s);
}
