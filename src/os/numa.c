/*
 * NUMA: facts from /sys and /proc, the plan, and the two system calls that apply it. Weights are
 * read by all threads of all nodes, a piece by whoever comes free, so that no place is near for
 * all; in turn over the nodes every memory controller has its share. See numa.h.
 */
#include "os/numa.h"

#include <ctype.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TEXT_BYTES = 1 << 16 }; /* every second of 8192 CPUs in a list is 20 KiB */

static bool has(const uint64_t *bits, int i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

static void put(uint64_t *bits, int i)
{
    bits[i / 64] |= (uint64_t)1 << (i % 64);
}

/* "0-3,8" up to the line's end, each below `limit`; an empty list is one too. */
static bool parse_ids(const char *text, unsigned long limit, uint64_t *bits)
{
    while (*text && *text != '\n') {
        char *end = NULL;
        if (!isdigit((unsigned char)*text))
            return false;
        unsigned long first = strtoul(text, &end, 10), last = first;
        if (*end == '-' && isdigit((unsigned char)end[1]))
            last = strtoul(end + 1, &end, 10);
        if (first > last || last >= limit || (*end && *end != ',' && *end != '\n'))
            return false;
        for (unsigned long i = first; i <= last; i++)
            put(bits, (int)i);
        text = *end == ',' ? end + 1 : end;
    }
    return true;
}

static bool read_ids(struct tri_tree *tree, const char *path, unsigned long limit, uint64_t *bits)
{
    char text[TEXT_BYTES];
    return tri_tree_read(tree, path, text, sizeof text) && strlen(text) < sizeof text - 1 &&
           parse_ids(text, limit, bits);
}

/* The list after `key` in /proc/self/status; all where there is none. */
static bool read_allowed(struct tri_tree *tree, const char *key, unsigned long limit,
                         uint64_t *bits)
{
    char text[TEXT_BYTES];
    tri_tree_read(tree, "/proc/self/status", text, sizeof text);
    const char *at = strstr(text, key);
    if (!at) {
        memset(bits, 0xff, limit / 8);
        return true;
    }
    at += strlen(key);
    return parse_ids(at + strspn(at, " \t"), limit, bits);
}

/* Its memory and CPUs. */
static bool read_node(struct tri_numa_facts *out, struct tri_tree *tree, int node)
{
    char path[80], text[4096];
    uint64_t cpus[TRI_NUMA_MAX_CPUS / 64] = { 0 };
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", node);
    tri_tree_read(tree, path, text, sizeof text);
    const char *total = strstr(text, "MemTotal:"); /* "Node 0 MemTotal:  1024 kB" */
    if (total)
        out->node_bytes[node] = strtoull(total + strlen("MemTotal:"), NULL, 10) * 1024;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    if (!read_ids(tree, path, TRI_NUMA_MAX_CPUS, cpus))
        return false;
    for (int i = 0; i < TRI_NUMA_MAX_CPUS; i++)
        if (has(cpus, i))
            out->cpu_node[i] = (int16_t)node;
    return true;
}

void tri_numa_read(struct tri_numa_facts *out, struct tri_tree *tree)
{
    uint64_t online[TRI_NUMA_MAX_NODES / 64] = { 0 };
    int mode = MPOL_DEFAULT;
    memset(out, 0, sizeof *out);
    memset(out->cpu_node, -1, sizeof out->cpu_node);
    out->known = read_ids(tree, "/sys/devices/system/node/online", TRI_NUMA_MAX_NODES, online) &&
                 read_allowed(tree, "Mems_allowed_list:", TRI_NUMA_MAX_NODES, out->nodes) &&
                 read_allowed(tree, "Cpus_allowed_list:", TRI_NUMA_MAX_CPUS, out->cpus);
    for (int i = 0; i < TRI_NUMA_MAX_NODES && out->known; i++)
        if (has(online, i))
            out->known = read_node(out, tree, i);
    if (tri_tree_is_live(tree) && syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0) == 0)
        out->policy_set = mode != MPOL_DEFAULT;
}

/* One thread to each CPU, the nodes in turn while they have CPUs left. */
static void deal_threads(struct tri_numa_plan *out, int cpus[TRI_NUMA_MAX_NODES])
{
    int left = 0, node = TRI_NUMA_MAX_NODES - 1;
    for (int i = 0; i < TRI_NUMA_MAX_NODES; i++)
        left += cpus[i];
    for (int t = 0; t < TRI_POOL_MAX_THREADS && left > 0; t++, left--) {
        do
            node = (node + 1) % TRI_NUMA_MAX_NODES;
        while (cpus[node] == 0);
        cpus[node]--;
        out->thread_node[t] = (int16_t)node;
    }
}

/* Why a plan does nothing; NULL when it interleaves. */
static const char *reason_against(const struct tri_numa_plan *plan,
                                  const struct tri_numa_facts *facts, enum tri_numa mode)
{
    if (mode == TRI_NUMA_OFF)
        return "off, memory stays as the system places it";
    if (!facts->known)
        return "nothing to do, the system tells no nodes (or more than 1024, or CPUs past 8191)";
    if (plan->memory_nodes == 0)
        return "nothing to do, no node with memory may be used";
    if (mode == TRI_NUMA_INTERLEAVE)
        return NULL;
    if (facts->policy_set)
        return "nothing to do, a memory policy was set from outside (numactl?) and stays";
    return plan->memory_nodes == 1 ? "nothing to do, one node with memory and CPUs may be used"
                                   : NULL;
}

void tri_numa_plan(struct tri_numa_plan *out, const struct tri_numa_facts *facts,
                   enum tri_numa mode)
{
    int cpus[TRI_NUMA_MAX_NODES] = { 0 };
    bool has_cpu[TRI_NUMA_MAX_NODES] = { false };
    memset(out, 0, sizeof *out);
    memset(out->thread_node, -1, sizeof out->thread_node);
    memset(out->cpu_node, -1, sizeof out->cpu_node);
    for (int i = 0; i < TRI_NUMA_MAX_CPUS; i++) {
        int node = facts->cpu_node[i];
        if (node < 0)
            continue;
        has_cpu[node] = true;
        if (!has(facts->cpus, i))
            continue;
        out->cpu_node[i] = (int16_t)node;
        out->cpu_nodes += cpus[node]++ == 0;
    }
    for (int i = 0; i < TRI_NUMA_MAX_NODES; i++)
        if (facts->node_bytes[i] && has(facts->nodes, i) &&
            (has_cpu[i] || mode == TRI_NUMA_INTERLEAVE)) {
            put(out->nodes, i);
            out->memory_nodes++;
        }
    const char *against = reason_against(out, facts, mode);
    out->interleave = !against;
    out->bind = out->interleave && out->cpu_nodes > 1;
    if (out->bind)
        deal_threads(out, cpus);
    if (against)
        snprintf(out->why, sizeof out->why, "%s", against);
    else
        snprintf(out->why, sizeof out->why, "memory interleaved over %d node%s, threads %s",
                 out->memory_nodes, out->memory_nodes == 1 ? "" : "s",
                 out->bind ? "bound to the nodes in turn" : "free, their CPUs are of one node");
}

void tri_numa_here(struct tri_numa_plan *out, enum tri_numa mode)
{
    struct tri_numa_facts facts = { .known = false };
    struct tri_tree *tree = NULL;
    if (tri_tree_open_folder(&tree, "/", NULL) == TRI_OK)
        tri_numa_read(&facts, tree);
    tri_tree_close(tree);
    tri_numa_plan(out, &facts, mode);
}

/* The kernel takes one bit less than it is told. */
static long set_policy(int mode, const uint64_t *nodes)
{
    return syscall(SYS_set_mempolicy, mode, nodes, TRI_NUMA_MAX_NODES + 1);
}

enum tri_status tri_numa_apply(const struct tri_numa_plan *plan, struct tri_numa_before *before,
                               struct tri_error *err)
{
    *before = (struct tri_numa_before){ .mode = MPOL_DEFAULT };
    if (!plan->interleave)
        return TRI_OK;
    if (syscall(SYS_get_mempolicy, &before->mode, before->nodes, TRI_NUMA_MAX_NODES + 1, NULL, 0))
        return tri_fail_errno(err, TRI_IO, errno, "the memory policy cannot be read");
    if (set_policy(MPOL_INTERLEAVE, plan->nodes) != 0)
        return tri_fail_errno(err, TRI_IO, errno, "memory cannot be interleaved over nodes");
    before->changed = true;
    return TRI_OK;
}

void tri_numa_restore(struct tri_numa_before *before)
{
    if (before->changed)
        (void)set_policy(before->mode, before->nodes);
    before->changed = false;
}

enum tri_status tri_numa_bind(const struct tri_numa_plan *plan, struct tri_pool *pool,
                              struct tri_error *err)
{
    if (!plan || !plan->bind)
        return TRI_OK;
    for (int t = 1; t < tri_pool_threads(pool); t++) {
        uint64_t cpus[TRI_NUMA_MAX_CPUS / 64] = { 0 };
        if (plan->thread_node[t] < 0)
            return TRI_OK; /* so are all that follow */
        for (int i = 0; i < TRI_NUMA_MAX_CPUS; i++)
            if (plan->cpu_node[i] == plan->thread_node[t])
                put(cpus, i);
        enum tri_status st = tri_pool_bind(pool, t, cpus, sizeof cpus, err);
        if (st)
            return st;
    }
    return TRI_OK;
}
