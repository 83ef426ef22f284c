/*
 * Rules over collective tests: the largest size is judged, never the average. What the wiring
 * should give comes from the device names; without names from the number of ranks, with wide bands
 * and the words "check what hardware this is". Sizes below 8 MiB tell latency, not bandwidth.
 */
#include <stdio.h>
#include <string.h>
#include "doctor/doctor_priv.h"

static const double usable_bytes = 8 << 20;

static const char *op_name(const struct tri__coll *c)
{
    return c->op[0] ? c->op : "collective";
}

static void describe(const struct tri__coll *c, char out[120])
{
    char ranks[32] = "an unknown number of";
    if (c->ranks)
        snprintf(ranks, sizeof ranks, "%zu", c->ranks);
    bool large = c->size_bytes >= 1073741824;
    snprintf(out, 120, "%s over %s ranks: %.1f GB/s busbw at %.4g %s", op_name(c), ranks, c->busbw,
             c->size_bytes / (large ? 1073741824 : 1048576), large ? "GiB" : "MiB");
}

/* The device's name: the test's own header, else the machine's when it has as many GPUs. */
static const struct tri__part *part_of(const struct tri_doctor *d, const struct tri__coll *c)
{
    const struct tri__part *p = tri__doctor_part(c->device);
    for (size_t i = 0; i < d->machines.count && !p; i++) {
        const struct tri_machine *m = d->machines.list[i];
        if (m->gpus && m->gpus == c->ranks)
            p = tri__doctor_part(m->gpu[0].name);
    }
    return p;
}

static void add_cures(struct tri_finding *f, bool nodes)
{
    tri__doctor_cure(f,
                     "NCCL_DEBUG=INFO ... 2>&1 | grep -E 'via|Using network'   # which transport?");
    tri__doctor_cure(f, nodes
                            ? "ibstat; ib_write_bw --use_cuda=0 ...   # the adapters by themselves"
                            : "nvidia-smi topo -m; nvidia-smi topo -p2p r");
}

/*
 * Whether the largest size shows what the wiring can do: large, or no faster than the size before.
 * A test that was cut while its rates still rose says nothing about the ceiling.
 */
static bool is_saturated(const struct tri__coll *c)
{
    return c->size_bytes >= 512 << 20 || (c->rows > 1 && c->busbw < c->before_busbw * 1.2);
}

static void find_unusable(struct tri_doctor *d, const struct tri__coll *c, const char *why)
{
    bool large = c->size_bytes >= 1048576;
    struct tri_finding *f =
        tri__doctor_find(d, "busbw_unusable", TRI_SEVERITY_INFO,
                         "no size in this %s test tells bandwidth: %s %.4g %s", op_name(c), why,
                         c->size_bytes / (large ? 1048576 : 1024), large ? "MiB" : "KiB");
    tri__doctor_cite(d, f, c->rows ? c->best : c->header_spot);
    tri__doctor_cure(f, "all_reduce_perf -b 8M -e 8G -f 2 -g %zu", c->ranks ? c->ranks : 8);
}

/* Reached against what was expected; below `warn` of it WARN, below `fail` FAIL. */
static void judge_against(struct tri_doctor *d, const struct tri__coll *c, double expect,
                          double warn, double fail, const char *what)
{
    char text[120];
    describe(c, text);
    double share = c->busbw / expect;
    if (share < warn && !is_saturated(c)) {
        find_unusable(d, c, "rates still rise at the largest,");
        return;
    }
    struct tri_finding *f =
        share >= warn
            ? tri__doctor_find(d, "busbw", TRI_SEVERITY_OK, "%s, %.0f %% of %s", text, 100 * share,
                               what)
            : tri__doctor_find(d, "busbw_low", share < fail ? TRI_SEVERITY_FAIL : TRI_SEVERITY_WARN,
                               "%s, only %.0f %% of %s", text, 100 * share, what);
    tri__doctor_cite(d, f, c->best);
    if (share >= warn)
        return;
    tri__doctor_cost(d, f, c->busbw, expect);
    add_cures(f, c->hosts > 1);
}

/* No names: what do so few GB/s over so many ranks mean? */
static void judge_unnamed(struct tri_doctor *d, const struct tri__coll *c,
                          const struct tri__part *p)
{
    bool sxm = p && p->sxm;
    bool fast = sxm && p->nvlink_gbs >= 450 && c->hosts && c->ranks / c->hosts >= 8;
    char text[120];
    const char *why = NULL;
    enum tri_severity severity = TRI_SEVERITY_OK;
    bool nodes = !c->copies && (c->hosts > 1 || c->ranks > 8);
    describe(c, text);
    if (nodes && c->busbw < 12) {
        /* a node full of SXM parts has several 100 Gb adapters or more */
        bool full = sxm && c->hosts && c->ranks / c->hosts >= 4;
        severity = c->busbw < (full ? 6 : 3) ? TRI_SEVERITY_FAIL : TRI_SEVERITY_WARN;
        why = "less than one 100 Gb adapter carries: sockets, or RDMA without GPUDirect";
    } else if (!nodes && c->busbw < 3) {
        severity = TRI_SEVERITY_FAIL;
        why = "staged through host memory, or a single narrow link";
    } else if (!nodes && c->ranks > 4 && c->busbw < 40) {
        severity = TRI_SEVERITY_WARN;
        why = "eight GPUs at the rate of PCIe, not of NVLink: NVLink is missing or not used";
    } else if (!nodes && c->ranks == 2 && c->busbw > 15 && c->busbw < 22.5 && c->old_errors) {
        /* The error column dates the test: before 2022 two GPUs above the 13 GB/s of PCIe Gen3 had
         * NVLink, and its bridges have two to four links. Today a Gen4 or Gen5 slot gives the same.
         */
        severity = TRI_SEVERITY_WARN;
        why = "about one NVLink's worth: with a bridge of two or more links half is missing";
    } else if (!nodes && c->busbw < 6) {
        severity = TRI_SEVERITY_WARN;
        why = "below PCIe Gen3 x16: copies are staged through host memory";
    } else if (nodes && fast && c->busbw < 260) {
        why = "bound by the network: fits 200 Gb/s a GPU; with 400 Gb/s expect about twice as much";
    } else {
        why = nodes           ? "bound by the network, as it should be"
              : c->busbw < 30 ? "flat at the rate of PCIe: sound for cards without NVLink"
                              : "NVLink class";
    }
    bool low = severity != TRI_SEVERITY_OK;
    struct tri_finding *f = tri__doctor_find(d, low ? "busbw_low" : "busbw", severity, "%s", text);
    tri__doctor_cite(d, f, c->best);
    tri__doctor_why(f, "%s%s", why, low && !p ? " (no device names: check which)" : "");
    if (low) {
        tri__doctor_cost(d, f, c->busbw, nodes ? 24 : c->ranks > 4 ? 230 : 45);
        add_cures(f, nodes);
    }
}

static void judge_named(struct tri_doctor *d, const struct tri__coll *c, const struct tri__part *p)
{
    char what[80];
    bool nodes = !c->copies && (c->hosts > 1 || (!c->hosts && c->ranks > 16));
    if (nodes) {
        judge_unnamed(d, c, p);
    } else if (p->nvlink_gbs > 0 &&
               (p->sxm || tri_text_begins(p->word, "MI") || c->busbw > p->pcie_gbs * 0.8)) {
        double all = p->nvlink_gbs;
        if (tri_text_begins(p->word, "MI3") && c->ranks && c->ranks < 8)
            all *= (double)(c->ranks - 1) / 7; /* a mesh: one link to each other rank */
        snprintf(what, sizeof what, "the %.0f GB/s its links carry one way (%s)", all, p->word);
        judge_against(d, c, all, 0.6, 0.25, what);
    } else {
        /* a ring over PCIe loses about half to both directions sharing a root complex */
        snprintf(what, sizeof what, "what PCIe gives %s with P2P", p->word);
        judge_against(d, c, p->pcie_gbs * 0.75, 0.42, 0.13, what);
    }
}

static void judge_one(struct tri_doctor *d, const struct tri__coll *c)
{
    char text[120];
    struct tri_finding *f;
    describe(c, text);
    if (c->wrong) {
        f = tri__doctor_find(d, "busbw_wrong", TRI_SEVERITY_FAIL,
                             "the collective test returned wrong data (%s)", op_name(c));
        tri__doctor_cite(d, f, c->wrong_spot);
        tri__doctor_why(f, "a patched driver, ACS or an IOMMU can corrupt peer writes");
        tri__doctor_cure(f, "NCCL_P2P_DISABLE=1 all_reduce_perf -c 1 ...   # is P2P the cause?");
    }
    if (c->damaged || !c->header || (c->max_bytes > 0 && c->size_bytes < c->max_bytes) ||
        (c->half && c->rows == 1))
        tri__doctor_cut(d, "a collective test is cut");
    if (!c->rows && !c->header)
        return;
    if (c->size_bytes < usable_bytes || (c->busbw <= 0 && c->ranks != 1)) {
        find_unusable(d, c, "the largest is");
        return;
    }
    const struct tri__part *p = part_of(d, c);
    if (c->copies) {
        struct tri_finding *g =
            tri__doctor_find(d, "busbw_unusable", TRI_SEVERITY_INFO,
                             "%zu tests of %zu ranks ran side by side instead of one over all",
                             c->copies + 1, c->ranks);
        tri__doctor_cite(d, g, c->header_spot);
        tri__doctor_why(g, "the program was built without MPI: nothing crossed between processes");
        tri__doctor_cure(g, "make MPI=1 MPI_HOME=... && mpirun -np N build/all_reduce_perf ...");
    }
    if (c->ranks_told && c->ranks == 1)
        find_unusable(d, c, "one rank talks to nobody (built without MPI?); largest");
    else if (p)
        judge_named(d, c, p);
    else
        judge_unnamed(d, c, NULL);
}

/* The same collective over 2, 4, 8 ranks side by side. */
static void judge_scaling(struct tri_doctor *d)
{
    for (size_t i = 0; i < d->colls; i++) {
        for (size_t j = 0; j < d->colls; j++) {
            const struct tri__coll *a = &d->coll[i], *b = &d->coll[j];
            if (!a->ranks || a->ranks >= b->ranks || a->size_bytes < usable_bytes ||
                b->size_bytes < usable_bytes || b->hosts > 1 || !is_saturated(b) ||
                (a->op[0] && b->op[0] && strcmp(a->op, b->op)) || b->busbw > a->busbw * 0.4)
                continue;
            struct tri_finding *f =
                tri__doctor_find(d, "busbw_scaling", TRI_SEVERITY_WARN,
                                 "%s falls from %.1f GB/s over %zu ranks to %.1f over %zu",
                                 op_name(a), a->busbw, a->ranks, b->busbw, b->ranks);
            tri__doctor_cite(d, f, a->best);
            tri__doctor_cite(d, f, b->best);
            tri__doctor_why(f, "the ring has reached a slower link: a bridge pair was left, or a "
                               "socket crossed");
            tri__doctor_cost(d, f, b->busbw, a->busbw);
            tri__doctor_cure(f, "# keep tensor-parallel groups at %zu; replicas or stages above",
                             a->ranks);
        }
    }
}

void tri__doctor_rules_coll(struct tri_doctor *d)
{
    for (size_t i = 0; i < d->colls; i++) {
        tri__doctor_cost_of(d, d->coll[i].device, d->coll[i].ranks);
        judge_one(d, &d->coll[i]);
    }
    tri__doctor_cost_of(d, d->colls ? d->coll[d->colls - 1].device : NULL,
                        d->colls ? d->coll[d->colls - 1].ranks : 0);
    judge_scaling(d);
}
