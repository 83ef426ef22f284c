/* `trireme info` without a model: this build, this machine, which kernels run. */
#include "cli/info.h"

#include <stdio.h>
#include <string.h>
#include "cli/cli.h"
#include "cli/human.h"
#include "kernels/kernels.h"
#include "os/host.h"
#include "os/memory.h"
#include "os/numa.h"

static const char *compiler(void)
{
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "unknown";
#endif
}

/* What --numa auto does here. */
static json_t *numa_json(const struct tri_numa_plan *plan)
{
    json_t *nodes = json_array();
    for (int i = 0; i < TRI_NUMA_MAX_NODES; i++)
        if (plan->nodes[i / 64] >> (i % 64) & 1)
            json_array_append_new(nodes, json_integer(i));
    return json_pack("{s:o, s:i, s:b, s:b, s:s}", "memory_nodes", nodes, "cpu_nodes",
                     plan->cpu_nodes, "interleave", plan->interleave, "bind", plan->bind, "why",
                     plan->why);
}

static int machine_json(const struct tri_host *h, const struct tri_memory_facts *m,
                        const struct tri_numa_plan *numa)
{
    json_t *kernels = json_array();
    const struct tri_kernel_name *k = NULL;
    for (int i = 0; (k = tri_kernels_list(i)) != NULL; i++)
        json_array_append_new(
            kernels, json_pack("{s:s, s:s}", "operation", k->operation, "variant", k->variant));
    json_t *machine =
        json_pack("{s:s, s:s, s:i, s:i, s:I, s:I, s:I}", "cpu", h->cpu, "kernel", h->kernel, "cpus",
                  h->cpus, "cpus_online", h->cpus_online, "memory_bytes",
                  (json_int_t)m->total_bytes, "memory_free_bytes", (json_int_t)m->available_bytes,
                  "budget_bytes", (json_int_t)tri_memory_budget_bytes(m));
    bool limited = m->limit_bytes != UINT64_MAX;
    json_object_set_new(machine, "cgroup_limit_bytes",
                        limited ? json_integer((json_int_t)m->limit_bytes) : json_null());
    json_object_set_new(machine, "cgroup_used_bytes",
                        limited ? json_integer((json_int_t)m->group_used_bytes) : json_null());
    json_object_set_new(machine, "numa", numa_json(numa));
    return tri_info_print_json(json_pack("{s:s, s:s, s:o, s:o}", "version", TRI_VERSION, "compiler",
                                         compiler(), "machine", machine, "kernels", kernels));
}

int tri_info_machine(const struct tri_info_request *request)
{
    struct tri_host h;
    struct tri_memory_facts m;
    struct tri_numa_plan numa;
    char a[TRI_HUMAN_BYTES], b[TRI_HUMAN_BYTES];
    tri_host_read(&h);
    tri_memory_read(&m, "");
    tri_numa_here(&numa, TRI_NUMA_AUTO);
    if (request->json)
        return machine_json(&h, &m, &numa);
    printf("trireme   %s, built with %s\n", TRI_VERSION, compiler());
    printf("cpu       %s, %d of %d CPUs usable here\n", h.cpu[0] ? h.cpu : "unknown", h.cpus,
           h.cpus_online);
    printf("memory    %s, %s free", tri_human_bytes(a, m.total_bytes),
           tri_human_bytes(b, m.available_bytes));
    printf("; a run takes up to %s\n", tri_human_bytes(a, tri_memory_budget_bytes(&m)));
    if (m.limit_bytes != UINT64_MAX)
        printf("container at most %s, %s in use (cgroup v%d)\n", tri_human_bytes(a, m.limit_bytes),
               tri_human_bytes(b, m.group_used_bytes), m.cgroup_version);
    printf("numa      auto: %s\n", numa.why);
    printf("system    %s\n", h.kernel);
    printf("kernels  ");
    for (int i = 0;; i++) {
        const struct tri_kernel_name *k = tri_kernels_list(i);
        if (!k)
            break;
        printf(" %s=%s", k->operation, k->variant);
    }
    printf("\n");
    return TRI_EXIT_OK;
}
