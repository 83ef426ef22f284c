/*
 * Rules over the way from GPUs to network adapters: a GPU whose every adapter is across the socket
 * sends its traffic between nodes over the CPU link; a GPU without a near adapter shares one.
 */
#include <stdio.h>
#include <string.h>
#include "doctor/doctor_priv.h"

struct reach {
    enum tri_path best[TRI_MAX_GPUS]; /* UNKNOWN: its row was cut */
    size_t nearest[TRI_MAX_GPUS];
    size_t told, near, middle, far; /* GPUs by PIX or PXB, PHB or NODE, SYS */
};

/* Plain Ethernet that a tree lists (management ports) carries no collectives. */
static bool counts(const struct tri_machine *m, size_t n)
{
    return m->nic[n].kind != TRI_NIC_ETHERNET;
}

static struct reach measure(const struct tri_machine *m)
{
    struct reach r = { .told = 0 };
    for (size_t g = 0; g < m->gpus; g++) {
        bool unknown = false;
        for (size_t n = 0; n < m->nics; n++) {
            enum tri_path p = *tri_machine_gpu_nic(m, g, n);
            unknown |= counts(m, n) && p == TRI_PATH_UNKNOWN;
            if (!counts(m, n) || p == TRI_PATH_UNKNOWN ||
                (r.best[g] != TRI_PATH_UNKNOWN && p >= r.best[g]))
                continue;
            r.best[g] = p;
            r.nearest[g] = n;
        }
        /* with distances missing (its row was cut) only a near adapter is certain */
        if (unknown && r.best[g] != TRI_PATH_PIX && r.best[g] != TRI_PATH_PXB)
            r.best[g] = TRI_PATH_UNKNOWN;
        r.told += r.best[g] != TRI_PATH_UNKNOWN;
        r.near += r.best[g] == TRI_PATH_PIX || r.best[g] == TRI_PATH_PXB;
        r.middle += r.best[g] == TRI_PATH_PHB || r.best[g] == TRI_PATH_NODE;
        r.far += r.best[g] == TRI_PATH_SYS;
    }
    return r;
}

static void list_gpus(const struct tri_machine *m, const struct reach *r, bool far, char *out,
                      size_t bytes)
{
    size_t used = 0;
    out[0] = 0;
    for (size_t g = 0; g < m->gpus && used + 10 < bytes; g++) {
        bool is_far = r->best[g] == TRI_PATH_SYS;
        bool is_middle = r->best[g] == TRI_PATH_PHB || r->best[g] == TRI_PATH_NODE;
        if (far ? is_far : is_middle)
            used += (size_t)snprintf(out + used, bytes - used, "%sGPU%zu", used ? " " : "", g);
    }
}

static void judge_order(struct tri_doctor *d, const struct tri_machine *m, const struct reach *r)
{
    char map[200] = "";
    bool follows = true;
    size_t used = 0, last = 0;
    for (size_t g = 0; g < m->gpus; g++) {
        if (r->best[g] != TRI_PATH_PIX && r->best[g] != TRI_PATH_PXB)
            continue;
        follows &= r->nearest[g] >= last;
        last = r->nearest[g];
        if (used + 40 < sizeof map)
            used += (size_t)snprintf(map + used, sizeof map - used, "%sGPU%zu:%s", used ? " " : "",
                                     g, m->nic[r->nearest[g]].name);
    }
    struct tri_finding *f = tri__doctor_find(
        d, "nic_rails", TRI_SEVERITY_OK,
        "every GPU has an adapter below its own switch, so GPUDirect RDMA can be expected");
    tri__doctor_cite_fact(d, f, m, m->gpu[0].source);
    if (follows)
        return;
    f = tri__doctor_find(d, "nic_order", TRI_SEVERITY_INFO,
                         "adapter numbers do not follow GPU numbers: map by distance, %s", map);
    tri__doctor_cite_fact(d, f, m, m->gpu[0].source);
    tri__doctor_cure(f,
                     "# never pair GPUn with NICn by number; let NCCL choose (unset NCCL_IB_HCA)");
}

void tri__doctor_rules_nic(struct tri_doctor *d, const struct tri_machine *m)
{
    if (!m->nics_listed || !m->gpus)
        return;
    struct reach r = measure(m);
    char list[160];
    /* a cut description may have lost the very adapter that is missed */
    if (!r.told || (m->described && tri_machine_is_cut(m)))
        return;
    if (r.far) {
        list_gpus(m, &r, true, list, sizeof list);
        bool all = r.far == r.told;
        struct tri_finding *f = tri__doctor_find(
            d, "nic_far", TRI_SEVERITY_WARN,
            all ? "every network adapter is across the socket from %s"
                : "%s have no network adapter nearer than across the socket, others have",
            list);
        for (size_t g = 0; g < m->gpus; g++)
            if (r.best[g] == TRI_PATH_SYS)
                tri__doctor_cite_fact(d, f, m, m->gpu[g].source);
        tri__doctor_why(f, "traffic between nodes crosses the CPU link; GPUDirect RDMA stays off "
                           "over SYS");
        tri__doctor_cost(d, f, 10, 25);
        tri__doctor_cure(f,
                         all ? "# give the container or VM the adapters of this socket"
                             : "# run the node-to-node ranks on the GPUs that have a near adapter");
    } else if (r.near && r.middle) {
        list_gpus(m, &r, false, list, sizeof list);
        struct tri_finding *f = tri__doctor_find(
            d, "nic_shared", TRI_SEVERITY_WARN,
            "%s have no adapter below their switch while others have: uneven rails", list);
        for (size_t g = 0; g < m->gpus; g++)
            if (r.best[g] == TRI_PATH_PHB || r.best[g] == TRI_PATH_NODE)
                tri__doctor_cite_fact(d, f, m, m->gpu[g].source);
        tri__doctor_why(f,
                        "these GPUs share the adapters of their neighbours and pay a host bridge");
        tri__doctor_cure(f, "export NCCL_CROSS_NIC=2   # and leave PXN on: NCCL_PXN_DISABLE=0");
    } else if (r.near == r.told) {
        judge_order(d, m, &r);
    }
}
