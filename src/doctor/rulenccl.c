/*
 * Rules over an NCCL log: the transport of every channel, the network, what the environment
 * switched off, and NCCL's own warnings. Socket transport is a fault only between nodes: inside one
 * box "No device found" and "Using network Socket" are what every log says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "doctor/doctor_priv.h"

/* One job of the log. `label` ends titles when there are several: " (host node7)". */
struct job {
    struct tri_doctor *d;
    struct tri__nccl n;
    char label[80];
};

static void cite_via(struct job *j, struct tri_finding *f, enum tri__transport t)
{
    for (size_t i = 0; i < j->n.via[t] && i < 3; i++)
        tri__doctor_cite(j->d, f, j->n.via_spot[t][i]);
}

static bool several_nodes(const struct tri__nccl *n)
{
    size_t net = n->via[TRI__VIA_NET] + n->via[TRI__VIA_NET_GDR] + n->via[TRI__VIA_SOCKET];
    return n->nnodes > 1 || n->hosts > 1 || net > 0 ||
           (n->nranks > 0 && n->local_ranks > 0 && n->nranks > n->local_ranks);
}

/* Every rank is in this box, as far as the log shows all of it. */
static bool one_node(const struct tri__nccl *n)
{
    size_t inside = n->via[TRI__VIA_P2P] + n->via[TRI__VIA_INDIRECT] + n->via[TRI__VIA_SHM];
    return n->nnodes == 1 || n->nranks == 1 || (n->nranks > 0 && n->nranks == n->local_ranks) ||
           (n->hosts == 1 && inside > 1);
}

static void judge_shm(struct job *j)
{
    struct tri_doctor *d = j->d;
    const struct tri__nccl *n = &j->n;
    size_t shm = n->via[TRI__VIA_SHM], p2p = n->via[TRI__VIA_P2P] + n->via[TRI__VIA_INDIRECT];
    if (shm) {
        struct tri_finding *f =
            p2p ? tri__doctor_find(d, "nccl_shm", TRI_SEVERITY_WARN,
                                   "%zu channels go through host memory, %zu over P2P%s", shm, p2p,
                                   j->label)
                : tri__doctor_find(
                      d, "nccl_shm", TRI_SEVERITY_FAIL,
                      "all %zu channels between GPUs go through host memory (SHM): no P2P%s", shm,
                      j->label);
        cite_via(j, f, TRI__VIA_SHM);
        tri__doctor_cite(d, f, n->p2p_off);
        tri__doctor_why(f, "expect 2 to 4 GB/s busbw over 8 GPUs, about 10 over 2");
        tri__doctor_cost(d, f, 4, n->max_bw > 0 ? n->max_bw : 24);
        tri__doctor_cure(f,
                         "nvidia-smi topo -p2p r   # GNS: driver; OK: look at NCCL_P2P_* and ACS");
        tri__doctor_cure(f, "# tensor parallel inside a socket at most; pipeline parallel across");
    } else if (p2p) {
        struct tri_finding *f = tri__doctor_find(
            d, "nccl_p2p", n->via[TRI__VIA_INDIRECT] ? TRI_SEVERITY_INFO : TRI_SEVERITY_OK,
            "%zu channels between GPUs use P2P%s%s", p2p,
            n->via[TRI__VIA_INDIRECT] ? ", some by way of a third GPU" : "", j->label);
        cite_via(j, f, n->via[TRI__VIA_INDIRECT] ? TRI__VIA_INDIRECT : TRI__VIA_P2P);
    }
    if (n->p2p_off.text >= 0 && !shm) {
        struct tri_finding *f =
            tri__doctor_find(d, "p2p_denied", TRI_SEVERITY_FAIL,
                             "NCCL found P2P switched off between its GPUs%s", j->label);
        tri__doctor_cite(d, f, n->p2p_off);
        tri__doctor_cure(f, "nvidia-smi topo -p2p r; cat /proc/cmdline");
    }
}

static bool has_rdma(const struct tri_doctor *d, char name[32])
{
    for (size_t i = 0; i < d->machines.count; i++)
        for (size_t n = 0; n < d->machines.list[i]->nics; n++) {
            const struct tri_nic *nic = &d->machines.list[i]->nic[n];
            if (nic->kind == TRI_NIC_RDMA || nic->kind == TRI_NIC_INFINIBAND ||
                tri_text_begins(nic->name, "mlx5")) {
                memcpy(name, nic->name, 32);
                return true;
            }
        }
    for (size_t i = 0; i < d->ports; i++)
        if (d->port[i].active == 1) {
            memcpy(name, d->port[i].name, 32);
            return true;
        }
    return false;
}

static void judge_socket(struct job *j)
{
    struct tri_doctor *d = j->d;
    const struct tri__nccl *n = &j->n;
    bool socket =
        n->via[TRI__VIA_SOCKET] || (n->network_socket.text >= 0 && n->network_ib.text < 0);
    char name[32] = "";
    if (!socket)
        return;
    if (!several_nodes(n) && !one_node(n) && n->nranks > 8) {
        struct tri_finding *f =
            tri__doctor_find(d, "nccl_socket", TRI_SEVERITY_WARN,
                             "NCCL has only sockets as network for %ld ranks, more than one box "
                             "usually holds%s",
                             n->nranks, j->label);
        tri__doctor_cite(d, f, n->network_socket);
        tri__doctor_cite(d, f, n->no_ib);
        tri__doctor_cost(d, f, 1.2, 25);
        tri__doctor_cure(f, "# the log shows one host: read those of all hosts together");
        tri__doctor_cure(f, "ls /sys/class/infiniband; ibstat");
        return;
    }
    if (!several_nodes(n)) {
        bool inside = one_node(n);
        struct tri_finding *f = tri__doctor_find(
            d, "nccl_log", inside ? TRI_SEVERITY_OK : TRI_SEVERITY_INFO,
            inside ? "NCCL has only sockets as network, which one box does not need%s"
                   : "NCCL has only sockets as network: slow as soon as there are two nodes%s",
            j->label);
        tri__doctor_cite(d, f, n->network_socket);
        return;
    }
    struct tri_finding *f =
        tri__doctor_find(d, "nccl_socket", TRI_SEVERITY_FAIL,
                         "NCCL talks between nodes over TCP sockets%s", j->label);
    cite_via(j, f, TRI__VIA_SOCKET);
    tri__doctor_cite(d, f, n->tcp_plugin);
    tri__doctor_cite(d, f, n->no_ib);
    tri__doctor_cite(d, f, n->network_socket);
    tri__doctor_why(f, "pipeline stages may cross such a network, tensor parallel never");
    tri__doctor_cost(d, f, 1.2, 25);
    tri__doctor_cure(f,
                     "ls /sys/class/infiniband; ibstat   # is there an adapter, are its ports up?");
    tri__doctor_cure(f, "docker run --device=/dev/infiniband --ulimit memlock=-1 ...");
    if (has_rdma(d, name)) {
        f = tri__doctor_find(d, "nic_idle_hca", TRI_SEVERITY_FAIL,
                             "an RDMA adapter (%s) is present and NCCL does not use it", name);
        tri__doctor_cite(d, f, n->network_socket);
        tri__doctor_cure(f, "unset NCCL_IB_DISABLE; export NCCL_IB_HCA=%s", name);
    }
}

static void judge_rdma(struct job *j)
{
    struct tri_doctor *d = j->d;
    const struct tri__nccl *n = &j->n;
    size_t with = n->via[TRI__VIA_NET_GDR], without = n->via[TRI__VIA_NET];
    if (without) {
        struct tri_finding *f =
            tri__doctor_find(d, "nccl_no_gdr", TRI_SEVERITY_WARN,
                             "%zu channels between nodes use RDMA without GPUDirect%s%s", without,
                             with ? ", others with it" : "", j->label);
        cite_via(j, f, TRI__VIA_NET);
        tri__doctor_why(f, "every byte is staged in host memory on both sides");
        tri__doctor_cost(d, f, 12, 25);
        tri__doctor_cure(f, "lsmod | grep nvidia_peermem || sudo modprobe nvidia-peermem");
        tri__doctor_cure(f, "nvidia-smi topo -m   # GPUDirect needs PIX or PXB to the adapter");
        tri__doctor_cure(f, "export NCCL_NET_GDR_LEVEL=PHB   # when the adapter is farther");
    } else if (with) {
        struct tri_finding *f = tri__doctor_find(
            d, "nccl_gdr", TRI_SEVERITY_OK,
            "%zu channels between nodes move data straight from GPU to network%s", with, j->label);
        cite_via(j, f, TRI__VIA_NET_GDR);
    }
}

struct poison {
    const char *name, *value; /* value NULL: any but 0 */
    enum tri_severity severity;
    const char *text;
};

/* The value after '=' or "set by environment to "; of YAML's "- name: X" on the line below. */
static bool value_of(const char *line, const char *below, const char *name, char out[64])
{
    const char *at = strstr(line, name);
    size_t len = strlen(name);
    if (!at || (at > line && (at[-1] == '_' || (at[-1] >= 'A' && at[-1] <= 'Z'))))
        return false;
    const char *by = strstr(at, "set by environment to ");
    bool yaml = at[len] == ':' && at[len + 1] == ' ';
    const char *value = by ? by + 22 : at[len] == '=' || yaml ? at + len + 1 : NULL;
    if (!value && strstr(line, "name: ") && (!at[len] || strchr("\"' ", at[len]))) {
        below += strspn(below, " \t");
        value = tri_text_begins(below, "value:") ? below + 6 : NULL;
    }
    if (!value || (by && at[len] != ' '))
        return false;
    value += strspn(value, " \"'");
    size_t n = strcspn(value, " \"'");
    if (n && value[n - 1] == '.')
        n--;
    snprintf(out, 64, "%.*s", (int)(n < 63 ? n : 63), value);
    return true;
}

static const struct poison poisons[] = {
    { "NCCL_P2P_DISABLE", NULL, TRI_SEVERITY_WARN, "switches P2P off: all traffic is staged" },
    { "NCCL_P2P_LEVEL", "LOC", TRI_SEVERITY_WARN, "allows P2P on no path" },
    { "NCCL_IB_DISABLE", NULL, TRI_SEVERITY_WARN, "switches RDMA off: sockets between nodes" },
    { "NCCL_NET_GDR_LEVEL", "LOC", TRI_SEVERITY_WARN, "allows GPUDirect RDMA on no path" },
    { "NCCL_NET_GDR_LEVEL", "0", TRI_SEVERITY_WARN, "allows GPUDirect RDMA on no path" },
    { "NCCL_NET_GDR_DISABLE", NULL, TRI_SEVERITY_WARN, "switches GPUDirect RDMA off" },
    { "NCCL_SOCKET_IFNAME", "lo", TRI_SEVERITY_WARN,
      "binds to the loopback: other nodes are lost" },
    { "NCCL_SHM_DISABLE", NULL, TRI_SEVERITY_WARN,
      "without P2P even ranks of one box use the network" },
    { "NCCL_NET", "Socket", TRI_SEVERITY_WARN, "forces TCP sockets" },
    { "NCCL_MAX_NCHANNELS", "1", TRI_SEVERITY_WARN, "one channel cannot fill NVLink" },
    { "NCCL_MAX_CTAS", "1", TRI_SEVERITY_WARN, "one channel cannot fill NVLink" },
    { "NCCL_NVLS_ENABLE", "0", TRI_SEVERITY_INFO, "gives up NVLink SHARP" },
    { "NCCL_ALGO", "", TRI_SEVERITY_INFO, "takes the choice of algorithm from NCCL" },
    { "NCCL_PROTO", "", TRI_SEVERITY_INFO, "takes the choice of protocol from NCCL" },
};

static bool is_poison(const struct poison *p, const char *value)
{
    if (!p->value)
        return strcmp(value, "0") && value[0];
    return p->value[0] ? !strcasecmp(value, p->value) : value[0] != 0;
}

static void judge_environment(struct tri_doctor *d)
{
    char value[64];
    size_t hits = 0;
    for (size_t i = 0; i < d->nccl.envs; i++) {
        struct tri__spot next = { d->nccl.env[i].text, d->nccl.env[i].line + 1 };
        const char *line = tri__doctor_line(d, d->nccl.env[i]);
        for (size_t k = 0; k < sizeof poisons / sizeof poisons[0]; k++) {
            const struct poison *p = &poisons[k];
            if (!value_of(line, tri__doctor_line(d, next), p->name, value) || !is_poison(p, value))
                continue;
            hits++;
            struct tri_finding *f =
                tri__doctor_find(d, "nccl_env", p->severity, "%s=%s %s", p->name, value, p->text);
            tri__doctor_cite(d, f, d->nccl.env[i]);
            tri__doctor_cure(f, "unset %s", p->name);
        }
    }
    if (!d->nccl.envs || hits)
        return;
    struct tri_finding *f = tri__doctor_find(d, "nccl_env", TRI_SEVERITY_OK,
                                             "no variable of the environment switches a path off");
    tri__doctor_cite(d, f, d->nccl.env[0]);
}

struct complaint {
    const char *words;
    enum tri_severity severity;
    const char *text, *cure;
};

static const struct complaint complaints[] = {
    { "iommu=pt", TRI_SEVERITY_WARN, "the kernel lacks iommu=pt",
      "# add iommu=pt to the kernel command line" },
    { "NUMA auto balancing", TRI_SEVERITY_WARN, "NUMA balancing is on",
      "sudo sysctl kernel.numa_balancing=0" },
    { "No space left on device", TRI_SEVERITY_FAIL, "/dev/shm is full",
      "docker run --shm-size=16g ...   # or --ipc=host" },
    { "nccl-", TRI_SEVERITY_FAIL, "shared memory could not be made", "df -h /dev/shm" },
    { "ibv_reg_mr", TRI_SEVERITY_FAIL, "memory could not be registered for RDMA",
      "ulimit -l unlimited   # docker: --ulimit memlock=-1" },
    { "Could not find real path", TRI_SEVERITY_WARN, "/sys is hidden: NCCL cannot see the topology",
      "# mount /sys into the container" },
    { "Connection refused", TRI_SEVERITY_FAIL, "another rank cannot be reached",
      "# NCCL_SOCKET_IFNAME: an interface that all nodes share; firewall" },
    { "Connection closed", TRI_SEVERITY_FAIL, "another rank went away",
      "# look at its own log first" },
    { "Got completion", TRI_SEVERITY_FAIL, "an RDMA transfer failed",
      "# RoCE: NCCL_IB_GID_INDEX=3, same MTU and PFC on the switch; ibstat, ibqueryerrors" },
    { "libibverbs", TRI_SEVERITY_INFO, "no RDMA library: without effect inside one box",
      "apt-get install libibverbs1   # needed between nodes" },
    { "Cuda failure", TRI_SEVERITY_FAIL, "a CUDA call failed inside NCCL", "dmesg | grep -i xid" },
};

static void judge_warnings(struct tri_doctor *d)
{
    for (size_t i = 0; i < d->nccl.warns; i++) {
        const char *line = strstr(tri__doctor_line(d, d->nccl.warn[i]), "NCCL WARN");
        const struct complaint *c = NULL;
        for (size_t k = 0; k < sizeof complaints / sizeof complaints[0] && line && !c; k++)
            if (tri_text_find(line, complaints[k].words))
                c = &complaints[k];
        if (!line)
            continue;
        struct tri_finding *f =
            c ? tri__doctor_find(d, "nccl_warning", c->severity, "NCCL says: %s", c->text)
              : tri__doctor_find(d, "nccl_warning", TRI_SEVERITY_WARN, "NCCL warns");
        tri__doctor_cite(d, f, d->nccl.warn[i]);
        if (c)
            tri__doctor_cure(f, "%s", c->cure);
    }
}

/* Told apart by the hosts: the first one of the job. */
static void name_job(struct job *j, int number)
{
    const struct tri__nccl_log *log = &j->d->nccl;
    for (size_t i = 0; i < log->processes; i++) {
        const struct tri__process *p = &log->process[i];
        if (p->job != number)
            continue;
        snprintf(j->label, sizeof j->label, " (job of %s:%ld)", p->host, p->pid);
        return;
    }
}

void tri__doctor_rules_nccl(struct tri_doctor *d)
{
    judge_environment(d);
    if (!d->nccl.lines)
        return;
    int jobs = tri__doctor_nccl_jobs(&d->nccl);
    for (int i = 0; i < jobs; i++) {
        struct job j = { .d = d };
        tri__doctor_nccl_join(&d->nccl, i, &j.n);
        if (jobs > 1)
            name_job(&j, i);
        judge_shm(&j);
        judge_socket(&j);
        judge_rdma(&j);
        if (!d->findings && j.n.network_ib.text >= 0) {
            struct tri_finding *f =
                tri__doctor_find(d, "nccl_log", TRI_SEVERITY_OK,
                                 "NCCL found an RDMA network; no channel was logged");
            tri__doctor_cite(d, f, j.n.network_ib);
        }
    }
    judge_warnings(d);
    if (d->nccl.cut.text >= 0)
        tri__doctor_cut(d, "an NCCL channel line is cut");
}
