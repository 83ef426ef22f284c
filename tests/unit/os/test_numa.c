/* Plans for made-up machines, facts from made-up trees, and the calls themselves on this one. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "os/numa.h"

static bool has(const uint64_t *bits, int i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

/* A machine of nodes with so much memory and so many CPUs each, numbered on; all of it allowed. */
struct node {
    uint64_t bytes;
    int cpus;
};

static struct tri_numa_facts facts; /* 25 KiB */
static struct tri_numa_plan plan;

static void machine(int nodes, const struct node *node)
{
    int cpu = 0;
    memset(&facts, 0, sizeof facts);
    memset(facts.cpu_node, -1, sizeof facts.cpu_node);
    memset(facts.nodes, 0xff, sizeof facts.nodes);
    memset(facts.cpus, 0xff, sizeof facts.cpus);
    facts.known = true;
    for (int n = 0; n < nodes; n++) {
        facts.node_bytes[n] = node[n].bytes;
        for (int i = 0; i < node[n].cpus; i++)
            facts.cpu_node[cpu++] = (int16_t)n;
    }
}

/* Plans, and checks what must hold for every plan. */
static void make_plan(enum tri_numa mode)
{
    int cpus[TRI_NUMA_MAX_NODES] = { 0 }, threads[TRI_NUMA_MAX_NODES] = { 0 };
    tri_numa_plan(&plan, &facts, mode);
    assert_true(plan.why[0] && !strchr(plan.why, '\n'));
    for (int i = 0; i < TRI_NUMA_MAX_CPUS; i++) {
        if (!has(facts.cpus, i))
            assert_int_equal(plan.cpu_node[i], -1);
        if (plan.cpu_node[i] >= 0)
            cpus[plan.cpu_node[i]]++;
    }
    for (int t = 0; t < TRI_POOL_MAX_THREADS; t++) {
        if (plan.thread_node[t] < 0)
            continue;
        assert_true(plan.bind);
        threads[plan.thread_node[t]]++;
    }
    for (int n = 0; n < TRI_NUMA_MAX_NODES; n++) {
        assert_true(threads[n] <= cpus[n]);
        if (has(plan.nodes, n))
            assert_true(has(facts.nodes, n) && facts.node_bytes[n]);
    }
}

/* The first threads go to these nodes, the next one nowhere. */
static void assert_dealt(int threads, const int *node)
{
    for (int t = 0; t < threads; t++)
        assert_int_equal(plan.thread_node[t], node[t]);
    assert_int_equal(plan.thread_node[threads], -1);
}

static void one_node(void **state)
{
    (void)state;
    machine(1, (struct node[]){ { 1000, 2 } });
    make_plan(TRI_NUMA_AUTO);
    assert_false(plan.interleave || plan.bind);
    make_plan(TRI_NUMA_INTERLEAVE);
    assert_true(plan.interleave && !plan.bind);
    assert_int_equal(plan.nodes[0], 1);
    make_plan(TRI_NUMA_OFF);
    assert_false(plan.interleave || plan.bind);
}

static void two_nodes(void **state)
{
    (void)state;
    machine(2, (struct node[]){ { 1000, 3 }, { 1000, 3 } });
    make_plan(TRI_NUMA_AUTO);
    assert_true(plan.interleave && plan.bind);
    assert_int_equal(plan.nodes[0], 3);
    assert_dealt(6, (int[]){ 0, 1, 0, 1, 0, 1 });
    make_plan(TRI_NUMA_OFF);
    assert_false(plan.interleave || plan.bind);
    facts.policy_set = true; /* under numactl */
    make_plan(TRI_NUMA_AUTO);
    assert_false(plan.interleave || plan.bind);
    make_plan(TRI_NUMA_INTERLEAVE);
    assert_true(plan.interleave && plan.bind);
    facts.known = false;
    make_plan(TRI_NUMA_INTERLEAVE);
    assert_false(plan.interleave || plan.bind);
}

/* CPUs of unequal number, and a node that is memory alone: only taken when asked for. */
static void four_nodes(void **state)
{
    (void)state;
    machine(4, (struct node[]){ { 1000, 1 }, { 1000, 3 }, { 500, 0 }, { 1000, 2 } });
    make_plan(TRI_NUMA_AUTO);
    assert_int_equal(plan.nodes[0], 0xb);
    assert_int_equal(plan.memory_nodes, 3);
    assert_int_equal(plan.cpu_nodes, 3);
    assert_dealt(6, (int[]){ 0, 1, 3, 1, 3, 1 });
    make_plan(TRI_NUMA_INTERLEAVE);
    assert_int_equal(plan.nodes[0], 0xf);
    assert_dealt(6, (int[]){ 0, 1, 3, 1, 3, 1 });
    machine(2, (struct node[]){ { 1000, 4 }, { 500, 0 } }); /* a CXL expander */
    make_plan(TRI_NUMA_AUTO);
    assert_false(plan.interleave);
    make_plan(TRI_NUMA_INTERLEAVE);
    assert_true(plan.interleave && !plan.bind);
    assert_int_equal(plan.nodes[0], 3);
}

static void nodes_without_memory(void **state)
{
    (void)state;
    machine(2, (struct node[]){ { 0, 2 }, { 1000, 2 } }); /* one socket's slots are empty */
    make_plan(TRI_NUMA_AUTO);
    assert_false(plan.interleave || plan.bind);
    make_plan(TRI_NUMA_INTERLEAVE);
    assert_int_equal(plan.nodes[0], 2);
    assert_dealt(4, (int[]){ 0, 1, 0, 1 });
    machine(3, (struct node[]){ { 1000, 1 }, { 0, 1 }, { 1000, 1 } });
    make_plan(TRI_NUMA_AUTO);
    assert_int_equal(plan.nodes[0], 5);
    assert_dealt(3, (int[]){ 0, 1, 2 });
    machine(1, (struct node[]){ { 0, 1 } });
    make_plan(TRI_NUMA_INTERLEAVE);
    assert_false(plan.interleave);
}

static void cpusets_of_eight_nodes(void **state)
{
    (void)state;
    struct node n[8];
    for (int i = 0; i < 8; i++)
        n[i] = (struct node){ 1000, 16 };
    machine(8, n);
    make_plan(TRI_NUMA_AUTO);
    assert_int_equal(plan.nodes[0], 0xff);
    for (int t = 0; t < 128; t++)
        assert_int_equal(plan.thread_node[t], t % 8);
    assert_int_equal(plan.thread_node[128], -1);
    memset(facts.nodes, 0, sizeof facts.nodes);
    memset(facts.cpus, 0, sizeof facts.cpus);
    facts.nodes[0] = 1u << 1 | 1u << 6;
    facts.cpus[1] = (uint64_t)1 << 63 | (uint64_t)3 << 46; /* 127; 110 and 111: nodes 7 and 6 */
    make_plan(TRI_NUMA_AUTO);
    assert_int_equal(plan.nodes[0], 1u << 1 | 1u << 6);
    assert_dealt(3, (int[]){ 6, 7, 6 });
    facts.nodes[0] = 1u << 6;
    make_plan(TRI_NUMA_AUTO);
    assert_false(plan.interleave);
    facts.nodes[0] = 3;
    facts.cpus[1] = (uint64_t)1 << 63; /* one CPU: a worker more has none of its own */
    make_plan(TRI_NUMA_AUTO);
    assert_true(plan.interleave && !plan.bind);
    /* More CPUs than a pool has threads. */
    machine(2, (struct node[]){ { 1, TRI_POOL_MAX_THREADS }, { 1, TRI_POOL_MAX_THREADS } });
    make_plan(TRI_NUMA_AUTO);
    assert_int_equal(plan.thread_node[TRI_POOL_MAX_THREADS - 1], 1);
}

static struct tri_tree *tree;

static void put(const char *path, const char *text)
{
    struct tri_tree_file f = {
        .path = path, .data = text, .bytes = strlen(text), .origin = "made up"
    };
    assert_int_equal(tri_tree_put(tree, &f, NULL), TRI_OK);
}

#define NODE "/sys/devices/system/node/"

static void put_node(int node, const char *meminfo, const char *cpus)
{
    char path[64], text[96];
    snprintf(path, sizeof path, NODE "node%d/meminfo", node);
    snprintf(text, sizeof text, "Node %d MemTotal: %s", node, meminfo);
    put(path, text);
    snprintf(path, sizeof path, NODE "node%d/cpulist", node);
    put(path, cpus);
}

static void captured_files(void **state)
{
    (void)state;
    assert_int_equal(tri_tree_open_memory(&tree, NULL), TRI_OK);
    tri_numa_read(&facts, tree);
    assert_false(facts.known); /* a kernel without NUMA */
    put(NODE "online", "0,2-3\n");
    put_node(0, "      16384 kB\nNode 0 MemFree:  1 kB\n", "0-1,4\n");
    put_node(2, "      0 kB\n", "2-3\n");
    put_node(3, "      8 kB\n", "\n");
    tri_numa_read(&facts, tree);
    assert_true(facts.known && !facts.policy_set);
    assert_int_equal(facts.node_bytes[0], 16 << 20);
    assert_int_equal(facts.node_bytes[2], 0);
    assert_int_equal(facts.node_bytes[3], 8192);
    static const int16_t want[] = { 0, 0, 2, 2, 0, -1 };
    assert_memory_equal(facts.cpu_node, want, sizeof want);
    assert_true(has(facts.nodes, TRI_NUMA_MAX_NODES - 1) && has(facts.cpus, 5)); /* none is said */
    put("/proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t1,3-4\n"
                             "Mems_allowed:\t9\nMems_allowed_list:\t0,3\nvoluntary:\t1\n");
    tri_numa_read(&facts, tree);
    assert_true(facts.known);
    assert_int_equal(facts.cpus[0], 0x1a);
    assert_int_equal(facts.nodes[0], 9);
    make_plan(TRI_NUMA_INTERLEAVE);
    assert_int_equal(plan.nodes[0], 9);
    assert_dealt(3, (int[]){ 0, 2, 0 });
    static const char *const damaged[] = { "x", "0-", "3-2", "0 1", "-1", "99999999999999999999" };
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        put(NODE "node3/cpulist", damaged[i]);
        tri_numa_read(&facts, tree);
        assert_false(facts.known);
    }
    tri_tree_close(tree);
}

/* The last node and CPU there can be, and one past each. */
static void limits(void **state)
{
    (void)state;
    assert_int_equal(tri_tree_open_memory(&tree, NULL), TRI_OK);
    put(NODE "online", "0,1023");
    put_node(0, "1 kB", "0");
    put_node(1023, "1 kB", "1-8191");
    tri_numa_read(&facts, tree);
    assert_true(facts.known);
    make_plan(TRI_NUMA_AUTO);
    assert_true(has(plan.nodes, 1023));
    assert_int_equal(plan.cpu_node[8191], 1023);
    put(NODE "node1023/cpulist", "1-8192");
    tri_numa_read(&facts, tree);
    assert_false(facts.known);
    put(NODE "node1023/cpulist", "1-8191");
    put(NODE "online", "0,1024");
    tri_numa_read(&facts, tree);
    assert_false(facts.known);
    tri_tree_close(tree);
}

/* The policy the kernel tells of the mapping around `at`; false when it tells none. */
static bool policy_of(const void *at, char policy[64])
{
    char line[4096], word[64];
    unsigned long begin = 0;
    bool found = false;
    FILE *f = fopen("/proc/self/numa_maps", "re");
    while (f && fgets(line, sizeof line, f)) /* by address: the last that begins before it */
        if (sscanf(line, "%lx %63s", &begin, word) == 2 && begin <= (uintptr_t)at) {
            memcpy(policy, word, sizeof word);
            found = true;
        }
    if (f)
        fclose(f);
    return found;
}

/* One node is enough for the kernel to interleave over. */
static void policy_of_this_process(void **state)
{
    (void)state;
    enum { BYTES = 4 << 20 };
    struct tri_numa_before before;
    char policy[64];
    tri_numa_here(&plan, TRI_NUMA_INTERLEAVE);
    char *p = tri_map(BYTES);
    assert_non_null(p);
    assert_int_equal(tri_map_commit(p, 0, BYTES, NULL), TRI_OK);
    if (!plan.interleave || !policy_of(p, policy) || tri_numa_apply(&plan, &before, NULL)) {
        fprintf(stderr, "SKIP: this kernel shows or allows no memory policy\n");
        tri_unmap(p, BYTES);
        skip();
    }
    memset(p, 1, BYTES);
    assert_true(policy_of(p, policy));
    assert_int_equal(strncmp(policy, "interleave:", 11), 0);
    if (plan.memory_nodes == 1 && has(plan.nodes, 0))
        assert_string_equal(policy, "interleave:0");
    tri_numa_restore(&before);
    assert_true(policy_of(p, policy));
    assert_string_equal(policy, "default");
    tri_unmap(p, BYTES);
}

struct meeting {
    atomic_int here;
    cpu_set_t cpus[2];
};

/* Both pieces wait for each other, so that each is on a thread of its own. */
static void meet(void *arg, int64_t begin, int64_t end, int thread)
{
    struct meeting *m = arg;
    (void)begin;
    (void)end;
    sched_getaffinity(0, sizeof m->cpus[thread], &m->cpus[thread]);
    atomic_fetch_add(&m->here, 1);
    while (atomic_load(&m->here) < 2)
        sched_yield();
}

/* This machine's CPUs as those of two nodes by turns: the worker is on the second, its caller free.
 */
static void binding(void **state)
{
    (void)state;
    cpu_set_t all, second;
    struct meeting m = { 0 };
    struct tri_pool *pool = NULL;
    int n = 0;
    machine(2, (struct node[]){ { 1, 0 }, { 1, 0 } });
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&second);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all)) {
            facts.cpu_node[i] = (int16_t)(n++ % 2);
            if (facts.cpu_node[i] == 1)
                CPU_SET(i, &second);
        }
    if (n < 2) {
        fprintf(stderr, "SKIP: one CPU\n");
        skip();
    }
    make_plan(TRI_NUMA_AUTO);
    assert_int_equal(tri_pool_open(&pool, 2, NULL), TRI_OK);
    assert_int_equal(tri_numa_bind(&plan, pool, NULL), TRI_OK);
    tri_pool_for(pool, 2, 1, meet, &m);
    assert_true(CPU_EQUAL(&m.cpus[0], &all));
    assert_true(CPU_EQUAL(&m.cpus[1], &second));
    /* No such CPU: refused, told, and the worker stays where it was. */
    uint64_t none[1] = { 0 };
    struct tri_error err = { 0 };
    assert_int_equal(tri_pool_bind(pool, 1, none, sizeof none, &err), TRI_IO);
    assert_non_null(strstr(err.text, "worker thread 1"));
    assert_int_equal(tri_numa_bind(NULL, pool, NULL), TRI_OK);
    tri_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_node),
        cmocka_unit_test(two_nodes),
        cmocka_unit_test(four_nodes),
        cmocka_unit_test(nodes_without_memory),
        cmocka_unit_test(cpusets_of_eight_nodes),
        cmocka_unit_test(captured_files),
        cmocka_unit_test(limits),
        cmocka_unit_test(policy_of_this_process),
        cmocka_unit_test(binding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
