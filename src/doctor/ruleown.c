/*
 * Own hardware: a server or workstation that runs Trireme itself. What it has, what was measured of
 * it, and what decode should reach. Without --measure rates are estimates or absent.
 */
#include <stdio.h>
#include <string.h>
#include "doctor/doctor_priv.h"

static const double gib = 1073741824.0;

static void judge_cpu(struct tri_doctor *d, const struct tri_machine *m)
{
    const struct tri_cpu *c = &m->cpu;
    if (!c->threads)
        return;
    struct tri_finding *f = tri__doctor_find(
        d, "host_cpu", TRI_SEVERITY_OK,
        "%s: %d sockets, %d cores, %d threads, %zu NUMA nodes, %.1f GiB of memory%s",
        c->model[0] ? c->model : "processor", c->sockets, c->cores, c->threads,
        m->numas ? m->numas : 1, (double)m->memory.total_bytes / gib,
        c->hypervisor ? ", in a virtual machine" : "");
    tri__doctor_cite_fact(d, f, m, c->source);
    if (c->hypervisor)
        tri__doctor_why(
            f, "a virtual machine: sockets, caches and memory modules are what it was told");
}

/* What the modules should give: channels x transfers x 8 bytes. 0 unknown. */
static double modules_gbs(const struct tri_machine *m)
{
    return m->memory.channels_used > 0 && m->memory.mts > 0 && !m->cpu.hypervisor
               ? m->memory.channels_used * m->memory.mts * 8 / 1000
               : 0;
}

static void judge_memory(struct tri_doctor *d, const struct tri_machine *m)
{
    double should = modules_gbs(m);
    struct tri_finding *f;
    if (m->memory.slots && !m->cpu.hypervisor && m->memory.channels_used * 2 < m->memory.slots) {
        f = tri__doctor_find(d, "host_memory", TRI_SEVERITY_WARN,
                             "only %d of %d memory slots are filled", m->memory.channels_used,
                             m->memory.slots);
        tri__doctor_cite_path(f, "/sys/firmware/dmi/tables/DMI", "SMBIOS type 17");
        tri__doctor_why(f, "decode speed is memory bandwidth: every channel should hold a module");
        tri__doctor_cure(f, "sudo dmidecode -t 17 | grep -E 'Locator|Size|Speed'");
    }
    if (d->memory_gbs <= 0)
        return;
    bool busy = d->load > 0.5 * m->cpu.threads + 0.5;
    bool low = should > 0 && d->memory_gbs < should * 0.6 && !busy;
    if (busy)
        tri__doctor_note(d,
                         "the machine was busy while measuring (load %.1f on %d processors): the "
                         "rates are lower bounds",
                         d->load, m->cpu.threads);
    char modules[64] = "";
    if (should > 0)
        snprintf(modules, sizeof modules, ", the modules give %.1f", should);
    f = tri__doctor_find(d, "host_memory", low ? TRI_SEVERITY_WARN : TRI_SEVERITY_OK,
                         "memory reads at %.1f GB/s with %u threads%s", d->memory_gbs,
                         d->memory_threads, modules);
    tri__doctor_cite_path(f, "measured",
                          "every processor sums its own 256 MiB, median of slices of 8 MiB");
    if (low) {
        tri__doctor_cost(d, f, d->memory_gbs, should);
        tri__doctor_cure(
            f, "numactl --interleave=all trireme doctor --measure   # all nodes at work?");
        tri__doctor_cure(f, "sudo dmidecode -t 17 | grep -E 'Locator|Size|Speed'");
    }
}

static void judge_drives(struct tri_doctor *d, const struct tri_machine *m)
{
    for (size_t i = 0; i < m->drives; i++) {
        const struct tri_drive *r = &m->drive[i];
        int slow = -1;
        double link = r->pci >= 0 ? tri_path_to_root_gbs(m, r->pci, &slow) : 0;
        struct tri_finding *f = tri__doctor_find(
            d, "host_drive",
            r->rotational == 1 && !m->cpu.hypervisor ? TRI_SEVERITY_INFO : TRI_SEVERITY_OK,
            "drive %s%s%s: %.0f GiB%s", r->name, r->model[0] ? " " : "", r->model,
            (double)r->bytes / gib, r->rotational == 1 ? ", said to rotate" : "");
        tri__doctor_cite_fact(d, f, m, r->source);
        if (link > 0)
            tri__doctor_cost(d, f, link, 0);
    }
    if (d->drive_gbs > 0) {
        struct tri_finding *f = tri__doctor_find(
            d, "host_drive", TRI_SEVERITY_OK,
            "the drive of the test file reads %.2f GB/s in a row and %.0f random 4 KiB blocks/s",
            d->drive_gbs, d->drive_4k_iops);
        tri__doctor_cite_path(f, "measured", "direct reads, 8 and 16 at a time");
    }
}

static void judge_uring(struct tri_doctor *d)
{
    if (d->uring < 0)
        return;
    struct tri_finding *f =
        d->uring ? tri__doctor_find(d, "host_uring", TRI_SEVERITY_OK, "io_uring may be used")
                 : tri__doctor_find(d, "host_uring", TRI_SEVERITY_INFO,
                                    "io_uring is refused: reads go through a thread pool");
    tri__doctor_cite_path(f, "io_uring_setup", d->uring ? "succeeded" : "refused");
    if (!d->uring)
        tri__doctor_cure(f,
                         "sudo sysctl kernel.io_uring_disabled=0   # docker: its seccomp profile");
}

static void judge_decode(struct tri_doctor *d, const struct tri_machine *m)
{
    if (d->memory_gbs <= 0)
        return;
    char how[200];
    double rate = tri__doctor_decode_rate(d->memory_gbs, d->drive_gbs,
                                          (double)m->memory.available_bytes, how, sizeof how);
    if (rate <= 0)
        return;
    struct tri_finding *f =
        tri__doctor_find(d, "host_decode", TRI_SEVERITY_OK,
                         "decode of Kimi K3 should reach %.3g tokens/s here", rate);
    tri__doctor_why(f, "%s", how);
    tri__doctor_cite_path(f, "measured", "memory and drive rates above");
}

void tri__doctor_rules_numa(struct tri_doctor *d, const struct tri_machine *m)
{
    uint64_t most = 0, least = UINT64_MAX;
    size_t with_cpus = 0;
    for (size_t i = 0; i < m->numas; i++) {
        const struct tri_numa *node = &m->numa[i];
        if (!node->cpu_count || (!node->memory_bytes && !node->empty))
            continue; /* memory without processors (CXL, a GPU's), or nothing said */
        most = node->memory_bytes > most ? node->memory_bytes : most;
        least = node->memory_bytes < least ? node->memory_bytes : least;
        with_cpus++;
    }
    if (with_cpus < 2)
        return;
    bool even = least >= most / 10 * 8;
    if (even && d->live)
        return; /* said with the processor */
    struct tri_finding *f = tri__doctor_find(
        d, "host_numa_memory", even ? TRI_SEVERITY_OK : TRI_SEVERITY_WARN,
        even    ? "%zu NUMA nodes with memory of their own, %.0f to %.0f GiB"
        : least ? "%zu NUMA nodes have unequal memory: %.0f to %.0f GiB"
                : "of %zu NUMA nodes with processors one has no memory (%.0f and %.0f GiB)",
        with_cpus, (double)least / gib, (double)most / gib);
    for (size_t i = 0; i < m->numas; i++)
        if (m->numa[i].memory_bytes == least && m->numa[i].cpu_count)
            tri__doctor_cite_fact(d, f, m, m->numa[i].source);
    if (even)
        return;
    tri__doctor_cost(d, f, 0, 0);
    tri__doctor_why(f,
                    "threads of the poor node read over the CPU link: a DIMM is missing or dead");
    tri__doctor_cure(f, "sudo dmidecode -t 17 | grep -E 'Locator|Size|Speed'");
}

void tri__doctor_rules_own(struct tri_doctor *d, struct tri_tree *tree)
{
    const struct tri_machine *m = d->live_machine ? d->machines.list[d->live_machine - 1] : NULL;
    if (!m || !tri_tree_exists(tree, "/proc/cpuinfo"))
        return;
    judge_cpu(d, m);
    judge_memory(d, m);
    judge_drives(d, m);
    judge_uring(d);
    judge_decode(d, m);
    if (d->live && !d->measured)
        tri__doctor_note(d,
                         "memory, drive and io rates were not measured: trireme doctor --measure");
}
