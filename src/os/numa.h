/*
 * Machines with several memory nodes: where the memory of a run goes, and which threads may run on
 * which CPUs. Reading the machine, planning (a pure function) and applying are apart, so that
 * made-up machines can be planned for. A policy is of the calling thread and of those it starts
 * later: apply it before anything large is allocated and any thread started.
 */
#ifndef TRI_OS_NUMA_H
#define TRI_OS_NUMA_H

#include <stdbool.h>
#include "base/status.h"
#include "os/pool.h"
#include "os/tree.h"

/* As far as Linux can be configured (MAX_NUMNODES, NR_CPUS on x86-64). */
enum { TRI_NUMA_MAX_NODES = 1024, TRI_NUMA_MAX_CPUS = 8192 };

enum tri_numa { TRI_NUMA_AUTO, TRI_NUMA_OFF, TRI_NUMA_INTERLEAVE };

/* Bit n % 64 of word n / 64 stands for node or CPU n. */
struct tri_numa_facts {
    bool known;                              /* false: not to be read, or above the limits */
    bool policy_set;                         /* this process was started with one (numactl) */
    uint64_t node_bytes[TRI_NUMA_MAX_NODES]; /* 0: no memory, or no such node */
    int16_t cpu_node[TRI_NUMA_MAX_CPUS];     /* -1: no such CPU, or not online */
    uint64_t nodes[TRI_NUMA_MAX_NODES / 64]; /* this process may have memory of */
    uint64_t cpus[TRI_NUMA_MAX_CPUS / 64];   /* this process may run on */
};

/*
 * Nodes, their CPUs and MemTotal from /sys/devices/system/node, what is allowed from
 * /proc/self/status (all, where a kernel does not say). The present policy is only asked of the
 * live tree. Nothing fails: `known` tells.
 */
void tri_numa_read(struct tri_numa_facts *out, struct tri_tree *tree);

struct tri_numa_plan {
    bool interleave;             /* memory page by page in turn over `nodes` */
    bool bind;                   /* threads to nodes as thread_node says */
    int memory_nodes, cpu_nodes; /* in `nodes`; with CPUs that may be used */
    uint64_t nodes[TRI_NUMA_MAX_NODES / 64];
    int16_t thread_node[TRI_POOL_MAX_THREADS]; /* -1: bound to none */
    int16_t cpu_node[TRI_NUMA_MAX_CPUS];       /* of the CPUs that may be used, else -1 */
    char why[200];                             /* one sentence for people */
};

/*
 * AUTO interleaves when more than one node has memory that may be used, unless a policy was set
 * from outside; INTERLEAVE always does. Nodes with memory but no CPU at all (CXL, a GPU's) are
 * slower than the others: only INTERLEAVE takes them. With interleaving, and CPUs of more than one
 * node, threads are dealt to nodes in turn, at most one to a CPU (further ones are left free), and
 * may run on any CPU of their node: which of a hybrid CPU's cores is the scheduler's business.
 */
void tri_numa_plan(struct tri_numa_plan *out, const struct tri_numa_facts *facts,
                   enum tri_numa mode);
/* Read from the live machine and planned. */
void tri_numa_here(struct tri_numa_plan *out, enum tri_numa mode);

/* What was in force before, to be put back. Zeroed: nothing to put back. */
struct tri_numa_before {
    bool changed;
    int mode;
    uint64_t nodes[TRI_NUMA_MAX_NODES / 64];
};

/* Sets the plan's policy, if it has one. TRI_IO when the system refuses (containers do): then
 * nothing is changed, and a run is as right as before, only slower. */
TRI_MUST_CHECK enum tri_status tri_numa_apply(const struct tri_numa_plan *plan,
                                              struct tri_numa_before *before,
                                              struct tri_error *err);
void tri_numa_restore(struct tri_numa_before *before);

/* Binds the pool's workers as the plan says; NULL plans and plans without binding do nothing. The
 * caller's own thread (0) stays free, so that threads it starts later do. TRI_IO as above: workers
 * after the refused one are free. */
TRI_MUST_CHECK enum tri_status tri_numa_bind(const struct tri_numa_plan *plan,
                                             struct tri_pool *pool, struct tri_error *err);

#endif
