/*
 * Machines: what a person writes after --hw, or what a captured topology says, as nodes of cards
 * with the wire between them. Sets of ranks are placed so that the tightest group lies on the
 * fastest wire; on a captured machine by real distance, never by index.
 */
#include "plan/plan_priv.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"

static enum tri_wire inside_wire(const struct tri_device *d)
{
    if (d->kind != TRI_DEVICE_GPU)
        return TRI_WIRE_ETHERNET;
    if (strstr(d->link, "NVLink") == d->link)
        return TRI_WIRE_NVLINK;
    if (strstr(d->link, "XGMI") == d->link)
        return TRI_WIRE_XGMI;
    if (strstr(d->link, "UB") == d->link || strstr(d->link, "HCCS") == d->link)
        return TRI_WIRE_UB;
    return d->p2p ? TRI_WIRE_PCIE_P2P : TRI_WIRE_PCIE_HOST;
}

static enum tri_wire across_wire(const struct tri_device *d, bool same_box)
{
    if (same_box && d->kind == TRI_DEVICE_GPU)
        return d->p2p ? TRI_WIRE_PCIE_P2P : TRI_WIRE_PCIE_HOST;
    return d->kind == TRI_DEVICE_GPU ? TRI_WIRE_IB : TRI_WIRE_ETHERNET;
}

/* Reads "12x" at *text; 1 and no advance when there is none. 0 when the count is out of range. */
static int64_t leading_count(const char **text)
{
    const char *p = *text;
    int64_t value = 0;
    while (isdigit((unsigned char)*p) && value <= TRI_PLAN_MAX_CARDS)
        value = value * 10 + (*p++ - '0');
    while (isdigit((unsigned char)*p))
        p++;
    if (p == *text || (*p != 'x' && *p != 'X' && *p != '*'))
        return 1;
    *text = p + 1;
    return value >= 1 && value <= TRI_PLAN_MAX_CARDS ? value : 0;
}

static enum tri_status bad_hw(const char *text, struct tri_error *err)
{
    char safe[80];
    return tri_fail(err, TRI_ARG,
                    "hardware %s: expected [NODES x] [CARDS x] DEVICE, like 4x8xH20-96GB, 8xB300, "
                    "1xNVMe-PC-64GB; 1 to %d cards",
                    tri_printable(safe, sizeof safe, text, strnlen(text, 200)), TRI_PLAN_MAX_CARDS);
}

enum tri_status tri_fleet_parse(struct tri_fleet *out, const struct tri_devices *devices,
                                const char *text, struct tri_error *err)
{
    const char *p = text;
    struct tri_fleet f = { 0 };
    const struct tri_device *device = NULL;
    int64_t first = leading_count(&p);
    const char *before = p;
    int64_t second = leading_count(&p);
    bool nested = p != before;
    if (!first || !second || first * second > TRI_PLAN_MAX_CARDS || strlen(text) > 100)
        return bad_hw(text, err);
    enum tri_status status = tri_devices_find(&device, devices, p, err);
    if (status)
        return status;
    f.device = *device;
    int box = device->box > 0 ? device->box : 1;
    if (nested) {
        f.nodes = (int)first;
        f.per_node = (int)second;
    } else if (first > box && first % box) {
        return tri_fail(err, TRI_ARG,
                        "%lld cards do not fill boxes of %d: write nodes x cards, like %lldx%dx%s",
                        (long long)first, box, (long long)((first + box - 1) / box), box,
                        device->name);
    } else {
        f.per_node = first < box ? (int)first : box;
        f.nodes = (int)(first / f.per_node);
    }
    f.domain = device->domain < 1 ? 1 : device->domain;
    if (f.domain > f.per_node && device->domain <= box)
        f.domain = f.per_node;
    f.inside = inside_wire(device);
    f.across = across_wire(device, f.domain < f.per_node);
    snprintf(f.text, sizeof f.text, "%s", text);
    *out = f;
    return TRI_OK;
}

void tri_fleet_fini(struct tri_fleet *fleet)
{
    tri_free(fleet->pair);
    fleet->pair = NULL;
}

/* ---- from a captured machine ---------------------------------------------------------------- */

/* Whether whole neighbouring words of a name, joined, are `wanted`: "RTX A4000" is no A40. */
static bool has_words(const char *name, const char *wanted)
{
    for (const char *start = name; *start; start++) {
        char joined[96];
        size_t n = 0;
        if (!isalnum((unsigned char)*start) || (start > name && isalnum((unsigned char)start[-1])))
            continue;
        for (const char *p = start; n + 1 < sizeof joined; p++) {
            bool word = isalnum((unsigned char)*p) != 0;
            if (!word && n) {
                joined[n] = 0;
                if (!strcmp(joined, wanted))
                    return true;
            }
            if (!*p)
                break;
            if (word)
                joined[n++] = (char)tolower((unsigned char)*p);
        }
    }
    return false;
}

/* "NVIDIA H100 80GB HBM3" -> H100; of one name with several memories, the nearest. */
static const struct tri_device *device_by_gpu_name(const struct tri_devices *devices,
                                                   const struct tri_gpu *gpu)
{
    const struct tri_device *best = NULL;
    size_t longest = 0;
    double gib = (double)gpu->memory_bytes / TRI__GIB;
    for (int i = 0; i < tri_devices_count(devices); i++) {
        const struct tri_device *d = tri_devices_at(devices, i);
        char trimmed[96], plain[96];
        snprintf(trimmed, sizeof trimmed, "%s", d->name);
        char *dash = strrchr(trimmed, '-'); /* our "H20-96GB" is sold as "H20" */
        if (dash && isdigit((unsigned char)dash[1]) && strstr(dash, "GB"))
            *dash = 0;
        tri__plain(plain, sizeof plain, trimmed);
        size_t length = strlen(plain);
        if (d->kind != TRI_DEVICE_GPU || length < longest || !has_words(gpu->name, plain))
            continue;
        bool nearer = best && gib > 0 && fabs(d->mem_gib - gib) < fabs(best->mem_gib - gib);
        if (length > longest || nearer) {
            best = d;
            longest = length;
        }
    }
    return best;
}

static enum tri_wire pair_wire(const struct tri_pair *p, const struct tri_device *d)
{
    if (p->path == TRI_PATH_NVLINK)
        return TRI_WIRE_NVLINK;
    if (p->path == TRI_PATH_XGMI)
        return TRI_WIRE_XGMI;
    bool denied = p->p2p != TRI_P2P_OK && (p->p2p != TRI_P2P_UNKNOWN || !d->p2p);
    return denied ? TRI_WIRE_PCIE_HOST : TRI_WIRE_PCIE_P2P;
}

/* GB/s one way: what was measured or named, else the nominal rate shrunk by each hop. */
static double pair_gbs(const struct tri_pair *p, const struct tri_device *d, enum tri_wire wire)
{
    static const double far[] = {
        [TRI_PATH_PIX] = 1.0,   [TRI_PATH_PXB] = 0.95, [TRI_PATH_PHB] = 0.85,
        [TRI_PATH_NODE] = 0.75, [TRI_PATH_SYS] = 0.55, [TRI_PATH_PCIE] = 0.8
    };
    /* through host memory: two cards below one switch share its uplink (nccl#1086: 6.1 of 8.6) */
    static const double staged[] = {
        [TRI_PATH_PIX] = 0.6,    [TRI_PATH_PXB] = 0.65, [TRI_PATH_PHB] = 0.85,
        [TRI_PATH_NODE] = 0.845, [TRI_PATH_SYS] = 0.7,  [TRI_PATH_PCIE] = 0.8
    };
    if (p->seen_gbs > 0)
        return p->seen_gbs;
    if (wire == TRI_WIRE_NVLINK) {
        double nominal = tri_nvlink_gbs(p->links, d->name) * p->links;
        return p->link_gbs > 0 ? p->link_gbs : nominal > 0 ? nominal : d->pair_gbs;
    }
    if (wire == TRI_WIRE_XGMI)
        return d->pair_gbs;
    double pcie = p->link_gbs > 0 ? p->link_gbs : d->pcie_gbs > 0 ? d->pcie_gbs : 25;
    const double *by_path = wire == TRI_WIRE_PCIE_HOST ? staged : far;
    double shrink = (size_t)p->path < sizeof far / sizeof far[0] ? by_path[p->path] : 0;
    return pcie * (shrink > 0 ? shrink : 0.6);
}

static enum tri_status fill_pairs(struct tri_fleet *f, const struct tri_machine *m,
                                  struct tri_error *err)
{
    size_t n = m->gpus;
    f->pair = tri_calloc(n * n, sizeof *f->pair);
    if (!f->pair)
        return tri_fail(err, TRI_NOMEM, "no memory for %zu GPUs", n);
    for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n; b++) {
            struct tri_fleet_pair *to = &f->pair[a * n + b];
            const struct tri_pair *p = tri_machine_pair(m, a, b);
            to->wire = a == b ? TRI_WIRE_SELF : pair_wire(p, &f->device);
            to->gbs = a == b ? 1e6 : pair_gbs(p, &f->device, to->wire);
            to->path = tri_path_name(p->path);
        }
    return TRI_OK;
}

static enum tri_status cpu_machine(struct tri_fleet *f, const struct tri_machine *m,
                                   const struct tri_devices *devices, struct tri_error *err)
{
    const struct tri_device *base = NULL;
    if (!m->memory.total_bytes)
        return tri_fail(err, TRI_ARG,
                        "the captured machine names neither GPUs nor its memory; use --hw");
    enum tri_status status = tri_devices_find(&base, devices, "EPYC-9654-2S", err);
    if (status)
        return status;
    f->device = *base;
    f->device.name = "captured CPU server";
    f->device.notes = "memory from the capture; bandwidth and peak assumed from a 2 x EPYC 9654";
    f->device.mem_gib = (double)m->memory.total_bytes / TRI__GIB;
    f->device.doubt = NULL;
    if (m->memory.mts > 0 && m->memory.channels_used > 0)
        f->device.bw_gbs = m->memory.mts * 8e-3 * m->memory.channels_used;
    f->measured_memory = true;
    return TRI_OK;
}

enum tri_status tri_fleet_from_machine(struct tri_fleet *out, const struct tri_devices *devices,
                                       const struct tri_machine *machine,
                                       const struct tri_device *device, int nodes,
                                       struct tri_error *err)
{
    struct tri_fleet f = { .nodes = nodes < 1 ? 1 : nodes, .per_node = 1, .domain = 1 };
    enum tri_status status = TRI_OK;
    if (!machine->gpus) {
        status = cpu_machine(&f, machine, devices, err);
    } else {
        const struct tri_gpu *gpu = &machine->gpu[0];
        const struct tri_device *d = device ? device : device_by_gpu_name(devices, gpu);
        char safe[80];
        if (!d && !*gpu->name)
            return tri_fail(err, TRI_ARG, "the capture does not name its GPUs: add --hw DEVICE");
        if (!d)
            return tri_fail(
                err, TRI_ARG,
                "the capture names its GPUs '%s', no device known here: add --hw DEVICE",
                tri_printable(safe, sizeof safe, gpu->name, strlen(gpu->name)));
        f.device = *d;
        f.per_node = f.domain = (int)machine->gpus;
        if (gpu->memory_bytes) {
            f.device.mem_gib = (double)gpu->memory_bytes / TRI__GIB;
            f.measured_memory = true;
        }
        status = fill_pairs(&f, machine, err);
    }
    if (status)
        return status;
    f.inside = inside_wire(&f.device);
    f.across = across_wire(&f.device, false);
    snprintf(f.text, sizeof f.text, "%dx%d %s (captured)", f.nodes, f.per_node, f.device.name);
    *out = f;
    return TRI_OK;
}
