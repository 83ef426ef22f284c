/* Rules over engines' start-up logs, the kernel log and expert routing traces. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "doctor/doctor_priv.h"

static void judge_cache(struct tri_doctor *d)
{
    const struct tri__engine *e = &d->engine;
    struct tri_finding *f;
    if (e->concurrency > 0) {
        bool low = e->concurrency < 1;
        f = tri__doctor_find(d, "engine_kv", low ? TRI_SEVERITY_WARN : TRI_SEVERITY_OK,
                             "the cache holds %.2f requests of %.0f tokens", e->concurrency,
                             e->concurrency_tokens);
        if (e->concurrency < 2)
            tri__doctor_why(f, "requests of the full length are served one after another");
        tri__doctor_cite(d, f, e->concurrency_spot);
        tri__doctor_cite(d, f, e->kv_spot);
        if (low)
            tri__doctor_cure(f, "--max-model-len %.0f --kv-cache-dtype fp8   # or more cards",
                             e->concurrency_tokens * e->concurrency);
    } else if (e->kv_spot.text >= 0) {
        char size[40] = "", tokens[48] = "";
        if (e->kv_gib > 0)
            snprintf(size, sizeof size, " of %.1f GiB", e->kv_gib);
        if (e->kv_tokens > 0)
            snprintf(tokens, sizeof tokens, " for %.0f tokens", e->kv_tokens);
        f = tri__doctor_find(d, "engine_kv", TRI_SEVERITY_OK, "a cache%s%s", size, tokens);
        tri__doctor_cite(d, f, e->kv_spot);
    }
    if (e->preempted.text >= 0) {
        f = tri__doctor_find(d, "engine_kv", TRI_SEVERITY_WARN,
                             "requests were thrown out of the cache %zu times and computed again",
                             e->preemptions);
        tri__doctor_cite(d, f, e->preempted);
        tri__doctor_why(f, "more requests run at once than the cache holds");
        tri__doctor_cure(f, "--max-num-seqs N --kv-cache-dtype fp8   # or shorter --max-model-len");
    }
    if (e->no_memory.text >= 0) {
        f = tri__doctor_find(d, "engine_memory", TRI_SEVERITY_FAIL,
                             "the engine ran out of GPU memory");
        tri__doctor_cite(d, f, e->no_memory);
        tri__doctor_cure(f,
                         "trireme plan ...   # which layout fits; then --gpu-memory-utilization");
    }
    if (e->too_long.text >= 0) {
        f = tri__doctor_find(d, "engine_memory", TRI_SEVERITY_FAIL,
                             "the cache is too small for one request of the full length");
        tri__doctor_cite(d, f, e->too_long);
        tri__doctor_cure(f,
                         "--max-model-len N --kv-cache-dtype fp8 --decode-context-parallel-size 8");
    }
}

static void judge_engine_paths(struct tri_doctor *d)
{
    const struct tri__engine *e = &d->engine;
    if (e->no_allreduce.text >= 0) {
        struct tri_finding *f = tri__doctor_find(
            d, "engine_allreduce", TRI_SEVERITY_WARN,
            "the engine turned its custom all-reduce off: %s",
            e->allreduce_no_p2p ? "no P2P between the GPUs" : "more than two PCIe-only GPUs");
        tri__doctor_cite(d, f, e->no_allreduce);
        tri__doctor_why(f, "small all-reduces of decode go through NCCL: some 20 us more a layer");
        tri__doctor_cure(f, "nvidia-smi topo -p2p r; nvidia-smi topo -m");
    }
    if (e->load_gib > 0 && e->load_seconds > 0) {
        double gbs = e->load_gib * 1.073741824 / e->load_seconds;
        bool slow = gbs < 0.3 && e->load_seconds > 120;
        struct tri_finding *f = tri__doctor_find(
            d, "engine_load", slow ? TRI_SEVERITY_WARN : TRI_SEVERITY_OK,
            "weights: %.1f GiB a GPU in %.0f s, %.2f GB/s", e->load_gib, e->load_seconds, gbs);
        tri__doctor_cite(d, f, e->load_spot);
        if (slow)
            tri__doctor_cure(f, "# NFS or a cold disk: copy the model to a local NVMe; "
                                "--load-format fastsafetensors");
    }
}

static void judge_tp(struct tri_doctor *d)
{
    const struct tri__engine *e = &d->engine;
    for (int i = 0; i < 3; i++) {
        int j = i + 1;
        while (j < 4 && e->tp_rate[j] <= 0)
            j++;
        if (e->tp_rate[i] <= 0 || j == 4)
            continue;
        double gain = e->tp_rate[j] / e->tp_rate[i];
        int from = 1 << i, to = 1 << j;
        bool bad = gain < 1.15;
        struct tri_finding *f = tri__doctor_find(
            d, "engine_scaling", gain < 1 || bad ? TRI_SEVERITY_WARN : TRI_SEVERITY_OK,
            "TP%d gives %.2f times the speed of TP%d", to, gain, from);
        tri__doctor_cite(d, f, e->tp_spot[i]);
        tri__doctor_cite(d, f, e->tp_spot[j]);
        if (bad)
            tri__doctor_cure(
                f, "# communication eats the gain: replicas of TP%d, or pipeline stages", from);
    }
}

void tri__doctor_rules_engine(struct tri_doctor *d)
{
    judge_cache(d);
    judge_engine_paths(d);
    judge_tp(d);
    const struct tri__experts *e = &d->experts;
    uint64_t all = 0, most = 0;
    size_t idle = 0;
    for (size_t i = 0; e->count && i < e->experts; i++) {
        all += e->count[i];
        most = e->count[i] > most ? e->count[i] : most;
        idle += e->count[i] == 0;
    }
    if (!all)
        return;
    double skew = (double)most * (double)e->experts / (double)all;
    /* few tokens leave experts unused by chance: 64 choices an expert are asked for before judging
     */
    bool enough = all > 64 * (uint64_t)e->experts;
    struct tri_finding *f = tri__doctor_find(
        d, "expert_skew", enough && skew > 4 ? TRI_SEVERITY_WARN : TRI_SEVERITY_INFO,
        "the busiest of %zu experts is chosen %.1f times as often as the mean, %zu never%s",
        e->experts, skew, idle, enough ? "" : " (too few tokens to judge)");
    tri__doctor_cite(d, f, e->first);
    tri__doctor_why(f,
                    "with expert parallelism the busiest rank sets the pace; with an expert cache "
                    "skew helps");
    if (enough && skew > 4)
        tri__doctor_cure(f, "# spread hot experts: --enable-eplb, or redundant experts");
}

/* "126.016 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x16 link at BDF (capable of
 * 252.048 Gb/s with 16.0 GT/s PCIe x16 link)" */
static void judge_limited(struct tri_doctor *d, struct tri__spot spot)
{
    const char *line = tri__doctor_line(d, spot), *by = tri_text_find(line, "limited by ");
    const char *capable = tri_text_find(line, "capable of "), *with = capable;
    double now_gts = 0, full_gts = 0, now = 0, full = 0;
    int now_width = 0, full_width = 0;
    char port[24] = "";
    const char *number = tri_text_find(line, " Gb/s available");
    while (number && number > line && (isdigit((unsigned char)number[-1]) || number[-1] == '.'))
        number--;
    now = number ? strtod(number, NULL) / 8 : 0;
    if (!by ||
        sscanf(by, "limited by %lf GT/s PCIe x%d link at %23s", &now_gts, &now_width, port) < 2) {
        if (!by ||
            sscanf(by, "limited by %lf GT/s x%d link at %23s", &now_gts, &now_width, port) < 2)
            return;
    }
    if (with)
        full = strtod(with + 11, NULL) / 8;
    with = with ? tri_text_find(with, "with ") : NULL;
    if (with && sscanf(with, "with %lf GT/s PCIe x%d link", &full_gts, &full_width) < 2)
        sscanf(with, "with %lf GT/s x%d link", &full_gts, &full_width);
    bool drive = tri_text_find(line, " nvme ") != NULL;
    bool narrow = full_width > now_width;
    /* a chip made for so few lanes is no GPU, no RDMA adapter and no drive */
    bool small = full_width > 0 && full_width < 4;
    struct tri_finding *f = tri__doctor_find(
        d, "pcie_kernel",
        small || !full_width ? TRI_SEVERITY_INFO /* without its end the line tells no loss */
        : narrow && !drive   ? TRI_SEVERITY_FAIL
                             : TRI_SEVERITY_WARN,
        "the kernel says %s limits a device to %g GT/s x%d (it could do %g GT/s x%d)", port,
        now_gts, now_width, full_gts, full_width);
    tri__doctor_cite(d, f, spot);
    tri__doctor_why(
        f, narrow ? "lanes are missing on that port"
                  : "that port runs an older PCIe generation: board, slot or BIOS setting");
    tri__doctor_cost(d, f, now, full);
    tri__doctor_cure(f, "sudo lspci -vv -s %s | grep -E 'LnkCap:|LnkSta:|LnkCtl2:'", port);
    tri__doctor_cure(
        f, "# BIOS: PCIe link speed of the slot; a riser that is made for the generation");
    if (!full_width)
        tri__doctor_cut(d, "a kernel line about PCIe bandwidth is cut");
}

static void judge_xid(struct tri_doctor *d, struct tri__spot spot)
{
    const char *line = tri__doctor_line(d, spot), *p = strstr(line, "): ");
    long xid = tri_text_find(line, "NVRM: fallen off") ? 79 : p ? strtol(p + 3, NULL, 10) : 0;
    static const struct {
        long xid;
        enum tri_severity severity;
        const char *text;
    } known[] = { { 79, TRI_SEVERITY_FAIL, "the GPU fell off the bus" },
                  { 74, TRI_SEVERITY_FAIL, "NVLink error" },
                  { 48, TRI_SEVERITY_FAIL, "double-bit memory error" },
                  { 63, TRI_SEVERITY_WARN, "memory rows are being remapped" },
                  { 64, TRI_SEVERITY_FAIL, "memory rows could not be remapped" },
                  { 94, TRI_SEVERITY_WARN, "contained memory error" },
                  { 95, TRI_SEVERITY_FAIL, "uncontained memory error" },
                  { 119, TRI_SEVERITY_FAIL, "the GPU's system processor does not answer" },
                  { 120, TRI_SEVERITY_FAIL, "error in the GPU's system processor" },
                  { 13, TRI_SEVERITY_WARN, "a program made an illegal access" },
                  { 31, TRI_SEVERITY_WARN, "a program made a page fault" },
                  { 43, TRI_SEVERITY_INFO, "a program stopped" },
                  { 45, TRI_SEVERITY_INFO, "a program was ended" } };
    bool fabric = tri_text_find(line, "SXid") != NULL; /* of an NVSwitch, numbered apart */
    enum tri_severity severity = TRI_SEVERITY_WARN;
    const char *text = fabric ? "an NVSwitch reports an error" : "see NVIDIA's list of Xid errors";
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].xid == xid && !fabric) {
            severity = known[i].severity;
            text = known[i].text;
        }
    if (fabric && tri_text_find(line, "Fatal") && !tri_text_find(line, "Non-fatal")) {
        severity = TRI_SEVERITY_FAIL;
        text = "an NVSwitch reports a fatal error";
    }
    struct tri_finding *f = tri__doctor_find(d, "gpu_xid", severity, "driver error %s %ld: %s",
                                             fabric ? "SXid" : "Xid", xid, text);
    tri__doctor_cite(d, f, spot);
    tri__doctor_cure(f, "nvidia-bug-report.sh; nvidia-smi -q | grep -A8 'Remapped Rows'");
}

/* A device reached for memory that the IOMMU did not give it: peer copies through a translating
 * IOMMU fail that way. */
static void judge_iommu_fault(struct tri_doctor *d, struct tri__spot spot)
{
    static const char *const drivers[] = { "nvidia", "amdgpu", "mlx5" };
    const char *line = tri__doctor_line(d, spot);
    bool peer = false;
    for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++)
        peer |= tri_text_find(line, drivers[i]) != NULL;
    struct tri_finding *f =
        tri__doctor_find(d, "iommu", peer ? TRI_SEVERITY_FAIL : TRI_SEVERITY_WARN,
                         peer ? "the IOMMU blocks accesses of a GPU or adapter"
                              : "the IOMMU blocks accesses of a device: look whether it is a GPU");
    tri__doctor_cite(d, f, spot);
    tri__doctor_why(f,
                    "peer copies that an IOMMU translates are lost: all-reduce hangs or is wrong");
    tri__doctor_cure(f, "# iommu=pt on the kernel command line, or the IOMMU off in the BIOS");
}

void tri__doctor_rules_kernel(struct tri_doctor *d)
{
    const struct tri__kernel *k = &d->kernel;
    for (size_t i = 0; i < k->drivers; i++) {
        const struct tri__complaint *c = tri__doctor_complaint(tri__doctor_line(d, k->driver[i]));
        struct tri_finding *f =
            c ? tri__doctor_find(d, c->rule, TRI_SEVERITY_FAIL, "%s", c->text) : NULL;
        if (f) {
            tri__doctor_cite(d, f, k->driver[i]);
            tri__doctor_cure(f, "%s", c->cure);
        }
    }
    for (size_t i = 0; i < k->iommus; i++)
        judge_iommu_fault(d, k->iommu[i]);
    if (k->full.text >= 0 && !k->limiteds) {
        struct tri_finding *f = tri__doctor_find(d, "pcie_kernel", TRI_SEVERITY_OK,
                                                 "the kernel names no port that limits a device");
        tri__doctor_cite(d, f, k->full);
    }
    for (size_t i = 0; i < k->limiteds; i++)
        judge_limited(d, k->limited[i]);
    for (size_t i = 0; i < k->xids; i++)
        judge_xid(d, k->xid[i]);
    for (size_t i = 0; i < k->aers; i++) {
        bool fatal = tri_text_find(tri__doctor_line(d, k->aer[i]), "Uncorrect") != NULL;
        struct tri_finding *f =
            tri__doctor_find(d, "pcie_errors", fatal ? TRI_SEVERITY_FAIL : TRI_SEVERITY_WARN,
                             fatal ? "uncorrected PCIe errors in the kernel log"
                                   : "corrected PCIe errors in the kernel log");
        tri__doctor_cite(d, f, k->aer[i]);
        tri__doctor_cure(f, "# riser, cable or slot: lower the speed by one generation to confirm");
    }
    for (size_t i = 0; i < k->ooms; i++) {
        struct tri_finding *f = tri__doctor_find(d, "host_overcommit", TRI_SEVERITY_WARN,
                                                 "the kernel killed a process for lack of memory");
        tri__doctor_cite(d, f, k->oom[i]);
        tri__doctor_cure(f,
                         "# raise the container's memory limit, or the engine's own budget lower");
    }
}
