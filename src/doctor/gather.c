/*
 * Capture: everything the doctor would read here, as a tar that another machine can read. Names,
 * serials and addresses are left out: text goes through anonymise.c, binary configuration space and
 * the SMBIOS table are rewritten without their serial numbers, and of the kernel command line and
 * log only the lines that matter are taken.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "doctor/anonymise.h"
#include "doctor/doctor_priv.h"
#include "doctor/tarfile.h"
#include "doctor/tools.h"
#include "os/memory.h"

enum { FILE_BYTES = 4 << 20, FOLDER = 512, PATH = 1024, NAME = PATH + 16, CONFIG_BYTES = 4096 };

struct gather {
    struct tri_tree *tree;
    struct tri__names names;
    struct tri_buf *tar;
    char *scratch; /* [FILE_BYTES] */
    const char *folder;
    enum tri_status status;
    struct tri_error *err;
};

static void add(struct gather *g, const char *name, const char *data, size_t bytes,
                const char *link)
{
    struct tri_tar_member m = { .data = data, .bytes = bytes };
    if (g->status || strlen(name) >= sizeof m.name)
        return;
    snprintf(m.name, sizeof m.name, "%s", name);
    snprintf(m.link, sizeof m.link, "%s", link ? link : "");
    g->status = tri_tar_add(g->tar, &m, g->err);
}

/* Cleaned text as a member. */
static void add_text(struct gather *g, const char *name, const char *text, size_t bytes)
{
    struct tri_buf clean;
    tri_buf_init(&clean, FILE_BYTES * 2);
    tri__doctor_anonymise(&g->names, text, bytes, &clean);
    if (clean.failed == TRI_OK && clean.len_bytes)
        add(g, name, clean.data, clean.len_bytes, NULL);
    tri_buf_fini(&clean);
}

/* A file below the root, when it is there. */
static void take(struct gather *g, const char *path)
{
    char name[NAME];
    size_t n = tri_tree_bytes(g->tree, path, g->scratch, FILE_BYTES);
    if (!n)
        return;
    snprintf(name, sizeof name, "root%s", path);
    add_text(g, name, g->scratch, n);
}

static void take_in(struct gather *g, const char *folder, const char *const *files, size_t count)
{
    char path[PATH];
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        take(g, path);
    }
}

/* Blanks the Device Serial Number (extended capability 3) of a configuration space. */
static void blank_serial(unsigned char *c, size_t n)
{
    for (unsigned at = 0x100, steps = 0; at >= 0x100 && at + 12 <= n && steps < 96; steps++) {
        unsigned id = c[at] | (unsigned)c[at + 1] << 8;
        if (id == 3)
            memset(c + at + 4, 0, 8);
        at = (c[at + 2] >> 4 | (unsigned)c[at + 3] << 4) & 0xffcu;
    }
}

/* Of a device's path only the last two bus ids are needed: the device and the bridge above it. */
static void take_link(struct gather *g, const char *path)
{
    char target[PATH], name[NAME], two[64] = "";
    const char *last[2] = { NULL, NULL };
    if (!tri_tree_link(g->tree, path, target, sizeof target))
        return;
    for (const char *p = target; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (strcspn(p, "/") == 12 && p[4] == ':' && p[7] == ':') {
            last[0] = last[1];
            last[1] = p;
        }
    }
    for (int i = 0; i < 2; i++)
        if (last[i])
            snprintf(two + strlen(two), sizeof two - strlen(two), "%s%.12s", two[0] ? "/" : "",
                     last[i]);
    snprintf(name, sizeof name, "links%s", path); /* apart: the same path is a folder below root/ */
    if (two[0])
        add(g, name, "", 0, two);
}

static void take_device(void *arg, const char *id)
{
    static const char *const files[] = { "class",
                                         "vendor",
                                         "device",
                                         "numa_node",
                                         "current_link_speed",
                                         "current_link_width",
                                         "max_link_speed",
                                         "max_link_width",
                                         "secondary_bus_number",
                                         "subordinate_bus_number" };
    struct gather *g = arg;
    char folder[FOLDER], path[PATH], name[NAME], link[PATH];
    unsigned char config[CONFIG_BYTES];
    snprintf(folder, sizeof folder, "/sys/bus/pci/devices/%s", id);
    take_in(g, folder, files, sizeof files / sizeof files[0]);
    take_link(g, folder);
    snprintf(path, sizeof path, "%s/config", folder);
    size_t n = tri_tree_bytes(g->tree, path, config, sizeof config);
    if (n > 64) {
        blank_serial(config, n);
        snprintf(name, sizeof name, "root%s", path);
        add(g, name, (const char *)config, n, NULL);
    }
    snprintf(path, sizeof path, "%s/iommu_group", folder);
    if (tri_tree_link(g->tree, path, link, sizeof link)) {
        const char *group = strrchr(link, '/');
        char target[64];
        snprintf(target, sizeof target, "%.40s", group ? group + 1 : link);
        snprintf(name, sizeof name, "links%s", path);
        add(g, name, "", 0, target);
        snprintf(path, sizeof path, "/sys/kernel/iommu_groups/%s/type", target);
        take(g, path);
    }
}

static void take_node(void *arg, const char *id)
{
    static const char *const files[] = { "cpulist",
                                         "meminfo",
                                         "hugepages/hugepages-2048kB/nr_hugepages",
                                         "hugepages/hugepages-2048kB/free_hugepages",
                                         "hugepages/hugepages-1048576kB/nr_hugepages",
                                         "hugepages/hugepages-1048576kB/free_hugepages" };
    char folder[FOLDER];
    if (!tri_text_begins(id, "node"))
        return;
    snprintf(folder, sizeof folder, "/sys/devices/system/node/%s", id);
    take_in(arg, folder, files, sizeof files / sizeof files[0]);
}

static void take_cpu(void *arg, const char *id)
{
    static const char *const files[] = { "cpufreq/scaling_governor", "cpufreq/scaling_driver" };
    char folder[FOLDER];
    if (!tri_text_begins(id, "cpu") || !isdigit((unsigned char)id[3]))
        return;
    snprintf(folder, sizeof folder, "/sys/devices/system/cpu/%s", id);
    take_in(arg, folder, files, 2);
}

static void take_net(void *arg, const char *id)
{
    static const char *const files[] = { "speed", "type" };
    char folder[FOLDER], link[PATH];
    snprintf(folder, sizeof folder, "/sys/class/net/%s", id);
    snprintf(link, sizeof link, "%s/device", folder);
    if (!tri_tree_exists(((struct gather *)arg)->tree, link))
        return;
    take_in(arg, folder, files, 2);
    take_link(arg, link);
}

static void take_rdma(void *arg, const char *id)
{
    static const char *const files[] = { "ports/1/rate", "ports/1/state", "ports/1/link_layer" };
    char folder[FOLDER], link[PATH];
    snprintf(folder, sizeof folder, "/sys/class/infiniband/%s", id);
    snprintf(link, sizeof link, "%s/device", folder);
    take_in(arg, folder, files, 3);
    take_link(arg, link);
}

static void take_block(void *arg, const char *id)
{
    static const char *const files[] = { "size", "queue/rotational", "device/model" };
    char folder[FOLDER];
    if (tri_text_begins(id, "loop") || tri_text_begins(id, "ram") || tri_text_begins(id, "zram"))
        return;
    snprintf(folder, sizeof folder, "/sys/block/%s", id);
    take_in(arg, folder, files, 3);
    take_link(arg, folder);
}

/* Of the kernel command line only the words that concern devices and memory. */
static void take_cmdline(struct gather *g)
{
    static const char *const keep[] = {
        "iommu",          "intel_iommu",      "amd_iommu",  "pci",        "pcie", "huge",
        "default_huge",   "transparent_huge", "isolcpus",   "nohz",       "numa", "nvidia",
        "mitigations",    "intel_pstate",     "amd_pstate", "processor.", "idle", "cgroup",
        "systemd.unified"
    };
    char line[8192], out[8192];
    size_t used = (size_t)snprintf(out, sizeof out, "BOOT_IMAGE=");
    if (!tri_tree_read(g->tree, "/proc/cmdline", line, sizeof line))
        return;
    struct tri_word w[512];
    size_t n = tri_words(line, w, 512);
    for (size_t i = 0; i < n && i < 512; i++)
        for (size_t k = 0; k < sizeof keep / sizeof keep[0]; k++)
            if (tri_text_begins(w[i].at, keep[k]) && used + w[i].len + 2 < sizeof out) {
                used += (size_t)snprintf(out + used, sizeof out - used, " %.*s", (int)w[i].len,
                                         w[i].at);
                break;
            }
    out[used++] = '\n';
    add_text(g, "root/proc/cmdline", out, used);
}

/* Lines of a text that hold one of the words. */
static void take_lines(struct gather *g, const char *name, const char *text, size_t bytes,
                       const char *const *words, size_t count)
{
    struct tri_buf out;
    char line[2048];
    tri_buf_init(&out, FILE_BYTES);
    for (const char *p = text, *end = text + bytes; p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((nl ? nl : end) - p);
        snprintf(line, sizeof line, "%.*s", (int)(len < sizeof line ? len : sizeof line - 1), p);
        for (size_t k = 0; k < count; k++)
            if (tri_text_find(line, words[k])) {
                tri_buf_puts(&out, line);
                tri_buf_putc(&out, '\n');
                break;
            }
        p += len + 1;
    }
    if (out.len_bytes && out.failed == TRI_OK)
        add_text(g, name, out.data, out.len_bytes);
    tri_buf_fini(&out);
}

/* Memory modules only, and of them only the numbers: strings hold serials. */
static void take_modules(struct gather *g)
{
    struct tri_buf out;
    const unsigned char *t = (const unsigned char *)g->scratch;
    size_t n = tri_tree_bytes(g->tree, "/sys/firmware/dmi/tables/DMI", g->scratch, FILE_BYTES);
    tri_buf_init(&out, FILE_BYTES);
    for (size_t at = 0; at + 4 <= n;) {
        size_t length = t[at + 1];
        if (length < 4 || at + length > n)
            break;
        if (t[at] == 17) {
            tri_buf_add(&out, t + at, length);
            tri_buf_add(&out, "\0\0", 2);
        }
        at += length;
        while (at + 1 < n && (t[at] || t[at + 1]))
            at++;
        at += 2;
    }
    if (out.len_bytes)
        add(g, "root/sys/firmware/dmi/tables/DMI", out.data, out.len_bytes, NULL);
    tri_buf_fini(&out);
}

/* The tightest limit of our control groups, without the group's name. */
static void take_limits(struct gather *g)
{
    struct tri_memory_facts facts;
    char text[64];
    tri_memory_read(&facts, tri_tree_is_live(g->tree) ? "" : g->folder);
    if (facts.cgroup_version != TRI_CGROUP_NONE && facts.limit_bytes != UINT64_MAX) {
        snprintf(text, sizeof text, "%llu\n", (unsigned long long)facts.limit_bytes);
        add(g, "root/sys/fs/cgroup/memory.max", text, strlen(text), NULL);
    }
    take(g, "/sys/fs/cgroup/cpu.max");
}

static void take_tree(struct gather *g)
{
    static const char *const files[] = { "/proc/cpuinfo",
                                         "/proc/meminfo",
                                         "/proc/loadavg",
                                         "/proc/self/limits",
                                         "/proc/sys/kernel/numa_balancing",
                                         "/proc/sys/kernel/io_uring_disabled",
                                         "/proc/sys/vm/zone_reclaim_mode",
                                         "/proc/sys/vm/overcommit_memory",
                                         "/sys/kernel/mm/transparent_hugepage/enabled",
                                         "/sys/devices/system/cpu/online" };
    static const char *const mounts[] = { " /dev/shm ", " hugetlbfs " }, *const stat[] = { "cpu " };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        take(g, files[i]);
    size_t n = tri_tree_bytes(g->tree, "/proc/mounts", g->scratch, FILE_BYTES);
    take_lines(g, "root/proc/mounts", g->scratch, n, mounts, 2);
    n = tri_tree_bytes(g->tree, "/proc/stat", g->scratch, FILE_BYTES);
    take_lines(g, "root/proc/stat", g->scratch, n, stat, 1);
    take_cmdline(g);
    take_modules(g);
    take_limits(g);
    tri_tree_list(g->tree, "/sys/bus/pci/devices", take_device, g);
    tri_tree_list(g->tree, "/sys/devices/system/node", take_node, g);
    tri_tree_list(g->tree, "/sys/devices/system/cpu", take_cpu, g);
    tri_tree_list(g->tree, "/sys/class/net", take_net, g);
    tri_tree_list(g->tree, "/sys/class/infiniband", take_rdma, g);
    tri_tree_list(g->tree, "/sys/block", take_block, g);
}

static void take_tools(struct gather *g)
{
    static const char *const kernel[] = { "available PCIe bandwidth",
                                          "NVRM: Xid",
                                          "AER:",
                                          "PCIe Bus Error",
                                          "DMAR",
                                          "AMD-Vi",
                                          "iommu",
                                          "Out of memory" };
    struct tri__tool_output tool[TRI__TOOLS];
    char name[PATH];
    tri__doctor_run_tools(tool, 20000);
    for (size_t i = 0; i < TRI__TOOLS; i++) {
        snprintf(name, sizeof name, "tools/%s", tool[i].file);
        if (tool[i].useful && !strcmp(tool[i].name, "dmesg"))
            take_lines(g, name, tool[i].out.data, tool[i].out.len_bytes, kernel, 8);
        else if (tool[i].useful)
            add_text(g, name, tool[i].out.data, tool[i].out.len_bytes);
        tri_buf_fini(&tool[i].out);
    }
}

/* First in the tar: what follows is added to the machine it opens. */
static void take_topology(struct gather *g)
{
    char *xml = NULL;
    size_t bytes = 0;
    if (tri_topo_export_xml(&xml, &bytes, NULL) == TRI_OK)
        add_text(g, "hwloc.xml", xml, bytes);
    tri_free(xml);
}

enum tri_status tri_doctor_gather(const char *root, struct tri_buf *out, struct tri_error *err)
{
    struct gather g = { .tar = out, .err = err, .folder = root };
    enum tri_status status = tri_tree_open_folder(&g.tree, root, err);
    if (status)
        return status;
    g.scratch = tri_malloc(FILE_BYTES);
    if (!g.scratch)
        g.status = tri_fail(err, TRI_NOMEM, "no memory to gather");
    else {
        tri__doctor_own_names(&g.names);
        if (tri_tree_is_live(g.tree)) {
            take_topology(&g);
            take_tools(&g);
        }
        take_tree(&g);
    }
    if (g.status == TRI_OK)
        g.status = tri_tar_end(out, err);
    tri_free(g.scratch);
    tri_tree_close(g.tree);
    return g.status;
}
