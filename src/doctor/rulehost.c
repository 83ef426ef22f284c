/*
 * Rules over the operating system's settings, live, under --root, or as pasted files: kernel
 * command line and IOMMU, NUMA balancing, /dev/shm, locked memory, control-group limits, governor,
 * steal time, huge pages, swap, over-commit. A file that is absent says nothing.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "doctor/doctor_priv.h"

enum { TEXT = 65536, PATH = 512 };

struct host {
    struct tri_doctor *d;
    struct tri_tree *tree;
    const struct tri_machine *m; /* the machine the tree describes, never NULL */
    bool partial;                /* pasted files: what is absent was not pasted */
    char text[TEXT];
};

/* Reads a file into h->text; false when absent or empty. */
static bool get(struct host *h, const char *path)
{
    return tri_tree_read(h->tree, path, h->text, sizeof h->text) && h->text[0];
}

/* The line of h->text that holds `word` as evidence of the file. */
static void cite(struct host *h, struct tri_finding *f, const char *path, const char *word)
{
    char line[200];
    uint32_t number = 0;
    const char *at = word ? strstr(h->text, word) : h->text;
    at = at ? at : h->text;
    while (at > h->text && at[-1] != '\n')
        at--;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    const char *origin = tri_tree_origin(h->tree, path, &number);
    for (int i = 0; i < (int)h->d->texts && number; i++)
        if (!strcmp(h->d->text[i].name, origin) && number <= h->d->text[i].lines.count) {
            tri__doctor_cite(h->d, f, (struct tri__spot){ i, number - 1 });
            return;
        }
    tri__doctor_cite_path(f, origin, line);
}

static double number(const char *text)
{
    return strtod(text, NULL);
}

/* The number after "Key:" in h->text, -1 when absent. */
static double field(const struct host *h, const char *key)
{
    const char *at = strstr(h->text, key);
    return at ? number(at + strlen(key) + strspn(at + strlen(key), ": \t")) : -1;
}

static bool concerns_gpus(const struct host *h)
{
    return h->partial || h->m->gpus > 0;
}

static void rule_iommu(struct host *h)
{
    static const char path[] = "/proc/cmdline";
    if (!get(h, path) || !concerns_gpus(h))
        return;
    bool on = strstr(h->text, "intel_iommu=on") || strstr(h->text, "amd_iommu=on") ||
              strstr(h->text, "iommu=force") || strstr(h->text, "iommu.passthrough=0");
    bool pass = strstr(h->text, "iommu=pt") || strstr(h->text, "iommu.passthrough=1") ||
                strstr(h->text, "iommu=off");
    if (on && !pass) {
        struct tri_finding *f = tri__doctor_find(h->d, "iommu", TRI_SEVERITY_WARN,
                                                 "the IOMMU translates device traffic");
        cite(h, f, path, "iommu");
        tri__doctor_why(f, "peer-to-peer copies then go up to the root complex and are translated");
        tri__doctor_cost(h->d, f, 10, 24);
        tri__doctor_cure(f, "# add iommu=pt to GRUB_CMDLINE_LINUX, then update-grub and reboot");
    } else if (pass) {
        struct tri_finding *f = tri__doctor_find(h->d, "iommu", TRI_SEVERITY_OK,
                                                 "the IOMMU passes device traffic through");
        cite(h, f, path, "iommu");
    }
}

/* The kernel's own word for a GPU's group: "DMA" translates, "identity" passes through. */
static void rule_iommu_groups(struct host *h)
{
    for (size_t i = 0; i < h->m->gpus && h->m->gpus > 1; i++) {
        char path[PATH], link[PATH];
        if (!h->m->gpu[i].bdf[0])
            continue;
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/iommu_group", h->m->gpu[i].bdf);
        if (!tri_tree_link(h->tree, path, link, sizeof link))
            continue;
        const char *group = strrchr(link, '/');
        snprintf(path, sizeof path, "/sys/kernel/iommu_groups/%.64s/type",
                 group ? group + 1 : link);
        if (!get(h, path) || strncmp(h->text, "DMA", 3))
            continue;
        struct tri_finding *f = tri__doctor_find(h->d, "iommu", TRI_SEVERITY_WARN,
                                                 "the IOMMU translates traffic of the GPUs");
        cite(h, f, path, NULL);
        tri__doctor_cure(f, "# add iommu=pt to the kernel command line and reboot");
    }
}

static void rule_numa(struct host *h)
{
    static const char path[] = "/proc/sys/kernel/numa_balancing";
    bool several = h->m->numas > 1 || h->partial;
    if (get(h, path) && number(h->text) > 0 && several) {
        struct tri_finding *f = tri__doctor_find(h->d, "host_numa_balancing", TRI_SEVERITY_WARN,
                                                 "automatic NUMA balancing is on");
        cite(h, f, path, NULL);
        tri__doctor_why(f, "pages wander between nodes under the feet of pinned threads and GPUs");
        tri__doctor_cure(f, "sudo sysctl kernel.numa_balancing=0");
    }
    if (get(h, "/proc/sys/vm/zone_reclaim_mode") && number(h->text) > 0 && several) {
        struct tri_finding *f =
            tri__doctor_find(h->d, "host_numa_memory", TRI_SEVERITY_WARN,
                             "zone reclaim drops cached weights of a full node");
        cite(h, f, "/proc/sys/vm/zone_reclaim_mode", NULL);
        tri__doctor_cure(f, "sudo sysctl vm.zone_reclaim_mode=0");
    }
}

static void rule_shm(struct host *h)
{
    static const char path[] = "/proc/mounts";
    const char *at = get(h, path) ? strstr(h->text, " /dev/shm ") : NULL;
    const char *size = at ? strstr(at, "size=") : NULL;
    if (!size || size > at + strcspn(at, "\n") || !concerns_gpus(h))
        return;
    char *end = NULL;
    double bytes = strtod(size + 5, &end);
    bytes *= *end == 'k' ? 1024.0 : *end == 'm' ? 1048576.0 : *end == 'g' ? 1073741824.0 : 1.0;
    if (bytes >= 1073741824.0)
        return;
    struct tri_finding *f = tri__doctor_find(h->d, "host_shm", TRI_SEVERITY_WARN,
                                             "/dev/shm holds only %.0f MiB", bytes / 1048576);
    cite(h, f, path, " /dev/shm ");
    tri__doctor_why(
        f, "NCCL and the workers of an engine share buffers there and fail when it is full");
    tri__doctor_cure(f, "docker run --shm-size=16g ...   # or --ipc=host");
}

static void rule_memlock(struct host *h)
{
    static const char path[] = "/proc/self/limits";
    bool rdma = h->partial;
    for (size_t i = 0; i < h->m->nics; i++)
        rdma |= h->m->nic[i].kind == TRI_NIC_RDMA || h->m->nic[i].kind == TRI_NIC_INFINIBAND;
    const char *at = get(h, path) ? tri_text_find(h->text, "Max locked memory") : NULL;
    if (!at || !rdma)
        return;
    at += 17 + strspn(at + 17, " \t");
    if (!isdigit((unsigned char)*at) || number(at) >= 1073741824.0)
        return;
    struct tri_finding *f =
        tri__doctor_find(h->d, "host_memlock", TRI_SEVERITY_WARN,
                         "only %.0f KiB of memory may be locked", number(at) / 1024);
    cite(h, f, path, "ocked memory");
    tri__doctor_why(f, "RDMA and io_uring register buffers, which must be locked");
    tri__doctor_cure(f, "docker run --ulimit memlock=-1 ...   # or /etc/security/limits.conf");
}

/* The control group's folder of a v1 controller, or of v2 when `controller` is "". */
static void group_path(struct host *h, const char *controller, char out[PATH])
{
    char key[64];
    out[0] = 0;
    snprintf(key, sizeof key, ":%s:", controller);
    if (!get(h, "/proc/self/cgroup"))
        return;
    for (const char *line = h->text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *at = strstr(line, key);
        size_t len = strcspn(line, "\n");
        if (at && at < line + len && (controller[0] || tri_text_begins(line, "0::")))
            snprintf(out, PATH, "%.*s", (int)(line + len - at - (long)strlen(key)),
                     at + strlen(key));
    }
    if (!strcmp(out, "/"))
        out[0] = 0;
}

/* Looks for a limit from the process's group up to the root; the least counts. */
static double least_limit(struct host *h, const char *mount, const char *controller,
                          const char *name, char where[PATH])
{
    char group[PATH], path[PATH * 2];
    double least = -1;
    group_path(h, controller, group);
    for (;;) {
        snprintf(path, sizeof path, "%s%s/%s", mount, group, name);
        if (get(h, path) && isdigit((unsigned char)h->text[0]) &&
            (least < 0 || number(h->text) < least)) {
            least = number(h->text);
            snprintf(where, PATH, "%.*s", PATH - 1, path);
        }
        char *slash = strrchr(group, '/');
        if (!slash)
            break;
        *slash = 0;
    }
    return least;
}

static void rule_cgroup_memory(struct host *h)
{
    char where[PATH] = "", other[PATH] = "";
    double limit = least_limit(h, "/sys/fs/cgroup", "", "memory.max", where);
    double v1 = least_limit(h, "/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", other);
    double total = (double)h->m->memory.total_bytes;
    if (v1 >= 0 && (limit < 0 || v1 < limit)) {
        limit = v1;
        memcpy(where, other, sizeof where);
    }
    if (limit < 0 || (total > 0 && limit > total * 0.98) || limit > 1e15)
        return;
    bool tight = total <= 0 || limit < total / 2;
    struct tri_finding *f =
        tri__doctor_find(h->d, "host_cgroup", tight ? TRI_SEVERITY_WARN : TRI_SEVERITY_INFO,
                         "the control group allows %.1f GiB of memory (the machine has %.1f)",
                         limit / 1073741824, total / 1073741824);
    get(h, where);
    cite(h, f, where, NULL);
    tri__doctor_why(
        f, "page cache of the weights counts too: the kernel drops it or kills at the limit");
    tri__doctor_cure(f, "docker run --memory=0 ...   # or raise the pod's memory limit");
}

static void rule_cgroup_cpu(struct host *h)
{
    double quota = -1, period = 100000;
    char where[PATH] = "", group[PATH], path[PATH * 2];
    group_path(h, "", group);
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
    if (!get(h, path)) {
        snprintf(path, sizeof path, "/sys/fs/cgroup/cpu.max");
        get(h, path);
    }
    if (isdigit((unsigned char)h->text[0])) {
        char *end = NULL;
        quota = strtod(h->text, &end);
        period = strtod(end, NULL);
        snprintf(where, sizeof where, "%.*s", PATH - 1, path);
    } else {
        quota = least_limit(h, "/sys/fs/cgroup/cpu", "cpu", "cpu.cfs_quota_us", where);
    }
    double cpus = period > 0 ? quota / period : 0;
    if (quota <= 0 || h->m->cpu.threads <= 0 || cpus >= h->m->cpu.threads)
        return;
    struct tri_finding *f =
        tri__doctor_find(h->d, "host_cgroup", TRI_SEVERITY_WARN,
                         "the control group allows %.1f of %d processors", cpus, h->m->cpu.threads);
    get(h, where);
    cite(h, f, where, NULL);
    tri__doctor_why(f, "threads are stopped for the rest of each period: tokens come in bursts");
    tri__doctor_cure(f, "docker run --cpus=0 ...   # or as many threads as the quota allows");
}

struct governors {
    struct host *h;
    char first[64], path[PATH];
    size_t slow, all;
};

static void count_governor(void *arg, const char *name)
{
    struct governors *g = arg;
    char path[PATH];
    if (strncmp(name, "cpu", 3) || !isdigit((unsigned char)name[3]))
        return;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/%s/cpufreq/scaling_governor", name);
    if (!get(g->h, path))
        return;
    g->all++;
    if (!strcmp(g->h->text, "performance") || !strcmp(g->h->text, "schedutil"))
        return;
    if (!g->slow++) {
        snprintf(g->first, sizeof g->first, "%.63s", g->h->text);
        memcpy(g->path, path, sizeof path);
    }
}

static void rule_governor(struct host *h)
{
    struct governors g = { .h = h };
    tri_tree_list(h->tree, "/sys/devices/system/cpu", count_governor, &g);
    if (!g.slow)
        return;
    /* intel_pstate's "powersave" scales with load; elsewhere the word means the lowest clock */
    bool driver = get(h, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver");
    bool pstate = driver && (strstr(h->text, "pstate") || strstr(h->text, "amd-pstate"));
    bool slow = !strcmp(g.first, "powersave") && !pstate;
    struct tri_finding *f =
        tri__doctor_find(h->d, "host_governor", slow ? TRI_SEVERITY_WARN : TRI_SEVERITY_INFO,
                         "%zu of %zu processors use the governor \"%s\"", g.slow, g.all, g.first);
    get(h, g.path);
    cite(h, f, g.path, NULL);
    tri__doctor_cure(f, "sudo cpupower frequency-set -g performance");
}

static void rule_steal(struct host *h)
{
    double v[8] = { 0 }, all = 0;
    if (!get(h, "/proc/stat") || !tri_text_begins(h->text, "cpu "))
        return;
    char *p = h->text + 4;
    for (int i = 0; i < 8; i++) {
        v[i] = strtod(p, &p);
        all += v[i];
    }
    double busy = all - v[3] - v[4]; /* idle and iowait */
    if (busy <= 0 || v[7] < busy * 0.02)
        return;
    struct tri_finding *f = tri__doctor_find(
        h->d, "host_steal", v[7] > busy * 0.1 ? TRI_SEVERITY_WARN : TRI_SEVERITY_INFO,
        "the hypervisor took %.1f %% of the busy time since boot", 100 * v[7] / busy);
    cite(h, f, "/proc/stat", "cpu ");
    tri__doctor_why(f, "another guest shares the cores: results will vary");
    tri__doctor_cure(f, "# dedicated cores, or another host");
}

static void rule_pages(struct host *h)
{
    static const char thp[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    if (get(h, thp) && strstr(h->text, "[never]")) {
        struct tri_finding *f = tri__doctor_find(h->d, "host_hugepages", TRI_SEVERITY_INFO,
                                                 "transparent huge pages are off");
        cite(h, f, thp, NULL);
        tri__doctor_why(f, "large weights then cost a page-table walk every 4 KiB");
        tri__doctor_cure(f, "echo madvise | sudo tee %s", thp);
    }
    if (!get(h, "/proc/meminfo"))
        return;
    double total = field(h, "MemTotal"), size = field(h, "Hugepagesize");
    double idle = field(h, "HugePages_Free") - field(h, "HugePages_Rsvd");
    if (total > 0 && size > 0 && idle * size > total * 0.2) {
        struct tri_finding *f =
            tri__doctor_find(h->d, "host_hugepages", TRI_SEVERITY_WARN,
                             "%.1f GiB of memory are set aside as huge pages that nobody uses",
                             idle * size / 1048576);
        cite(h, f, "/proc/meminfo", "HugePages_Free");
        tri__doctor_cure(f, "sudo sysctl vm.nr_hugepages=0");
    }
}

static void rule_swap(struct host *h)
{
    struct tri_finding *f;
    if (get(h, "/proc/meminfo")) {
        double total = field(h, "MemTotal"), used = field(h, "SwapTotal") - field(h, "SwapFree");
        if (total > 0 && used > total * 0.01) {
            f = tri__doctor_find(h->d, "host_swap",
                                 used > total * 0.1 ? TRI_SEVERITY_WARN : TRI_SEVERITY_INFO,
                                 "%.1f GiB are swapped out", used / 1048576);
            cite(h, f, "/proc/meminfo", "SwapFree");
            tri__doctor_cure(f,
                             "vmstat 1   # si/so must be 0 while serving; lower the memory budget");
        }
    }
    if (get(h, "/proc/sys/vm/overcommit_memory") && number(h->text) == 2) {
        f = tri__doctor_find(h->d, "host_overcommit", TRI_SEVERITY_WARN,
                             "the kernel refuses memory beyond a fixed limit (overcommit 2)");
        cite(h, f, "/proc/sys/vm/overcommit_memory", NULL);
        tri__doctor_cure(f, "sudo sysctl vm.overcommit_memory=0");
    }
}

static void rule_sys(struct host *h)
{
    if (h->partial || tri_tree_exists(h->tree, "/sys/bus/pci/devices") ||
        !tri_tree_exists(h->tree, "/proc/self") || !h->d->live)
        return;
    struct tri_finding *f =
        tri__doctor_find(h->d, "host_sys", TRI_SEVERITY_WARN, "/sys/bus/pci is not visible");
    tri__doctor_cite_path(f, "/sys/bus/pci/devices", "absent");
    tri__doctor_cure(f, "docker run -v /sys:/sys:ro ...");
}

void tri__doctor_rules_host(struct tri_doctor *d, struct tri_tree *tree)
{
    static const struct tri_machine none; /* all zero: a tree that describes no machine */
    struct host h = { .d = d, .tree = tree, .m = &none };
    if (d->live_machine)
        h.m = d->machines.list[d->live_machine - 1];
    h.partial = !d->root && !tri_tree_exists(tree, "/proc/cpuinfo");
    rule_iommu(&h);
    rule_iommu_groups(&h);
    rule_numa(&h);
    rule_shm(&h);
    rule_memlock(&h);
    rule_cgroup_memory(&h);
    rule_cgroup_cpu(&h);
    rule_governor(&h);
    rule_steal(&h);
    rule_pages(&h);
    rule_swap(&h);
    rule_sys(&h);
}
