/*
 * The machine we run on, or a captured root: hwloc first (sockets, caches, NUMA, PCI tree), then
 * /sys and /proc for what hwloc does not keep (link capabilities, ACS, huge pages, rates).
 */
#include <hwloc.h>
#include <stdlib.h>
#include "base/mem.h"
#include "os/tree.h"
#include "topo/hwloc_priv.h"
#include "topo/topo_priv.h"

/*
 * hwloc can ask CUDA, OpenCL, an X server and their like about GPUs, and libpciaccess about
 * devices. They start drivers, take seconds or leak; what they know comes from sysfs (which hwloc
 * then reads for the PCI tree too) and from the vendors' own tools.
 */
static void leave_vendors_out(hwloc_topology_t t)
{
    static const char *const names[] = {
        "cuda", "nvml", "opencl", "gl", "rsmi", "levelzero", "pci"
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, names[i]);
}

/* hwloc takes another root only from the environment. */
static hwloc_topology_t discover(const char *root, bool live)
{
    hwloc_topology_t t = NULL;
    setenv("HWLOC_HIDE_ERRORS", "2", 0);
    if (!live) {
        setenv("HWLOC_FSROOT", root, 1);
        setenv("HWLOC_THISSYSTEM", "0", 1);
    }
    bool good = hwloc_topology_init(&t) == 0;
    if (good) {
        hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_ALL);
        leave_vendors_out(t);
        good = hwloc_topology_load(t) == 0;
    }
    if (!good && t)
        hwloc_topology_destroy(t);
    if (!live) {
        unsetenv("HWLOC_FSROOT");
        unsetenv("HWLOC_THISSYSTEM");
    }
    return good ? t : NULL;
}

enum tri_status tri_topo_live(struct tri_machine **out, struct tri_tree *tree, const char *root,
                              struct tri_error *err)
{
    struct tri_machine *m = NULL;
    enum tri_status status = tri_machine_open(&m, err);
    if (status)
        return status;
    bool live = tri_tree_is_live(tree);
    /* a copy may be a few files only: then there is nothing for hwloc to find */
    bool whole = live || tri_tree_exists(tree, "/sys/devices/system/cpu/online");
    hwloc_topology_t t = whole ? discover(root, live) : NULL;
    if (t) {
        tri__topo_from_hwloc(m, t, (struct tri_source){ tri_machine_source(m, "hwloc"), 0 });
        hwloc_topology_destroy(t);
    }
    tri_topo_read_tree(m, tree);
    tri_machine_join(m);
    *out = m;
    return TRI_OK;
}

enum tri_status tri_topo_export_xml(char **out, size_t *bytes, struct tri_error *err)
{
    char *xml = NULL;
    int n = 0;
    hwloc_topology_t t = discover("/", true);
    enum tri_status status = TRI_OK;
    if (!t || hwloc_topology_export_xmlbuffer(t, &xml, &n, 0) || n < 1)
        status = tri_fail(err, TRI_UNSUPPORTED, "hwloc cannot read this machine");
    else if (!(*out = tri_strndup(xml, (size_t)n - 1)))
        status = tri_fail(err, TRI_NOMEM, "no memory for the topology");
    else
        *bytes = (size_t)n - 1;
    if (xml)
        hwloc_free_xmlbuffer(t, xml);
    if (t)
        hwloc_topology_destroy(t);
    return status;
}
