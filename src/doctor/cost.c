/*
 * What a fault costs: GB/s reached against possible, and, when a planner is at hand, what that
 * means in tokens/s. This is the one place that knows of prices; the planner itself is on the same
 * floor and comes in through a function that cli lends (tri_doctor_price_with).
 */
#include <stdio.h>
#include <string.h>
#include "doctor/doctor_priv.h"

enum { MAX_PRICES = 12 }; /* questions of one report: each costs the planner some milliseconds */

void tri_doctor_price_with(struct tri_doctor *d, tri_doctor_pricer *pricer, void *arg)
{
    d->pricer = pricer;
    d->pricer_arg = arg;
}

void tri__doctor_cost_of(struct tri_doctor *d, const char *device, size_t gpus)
{
    d->cost_device = device;
    d->cost_gpus = gpus;
}

/* Rules that speak of peers without access: their traffic is staged in host memory. */
static bool is_staged(const char *rule)
{
    static const char *const rules[] = { "p2p_denied", "p2p_partial", "nccl_shm", "p2p_no_gain" };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (!strcmp(rule, rules[i]))
            return true;
    return false;
}

/* Paths between GPUs only: adapters, drives and memory are no wire of a tensor-parallel group. */
static bool is_between_gpus(const char *rule)
{
    static const char *const starts[] = { "nvlink_",   "path_",    "xgmi_",      "p2p_",
                                          "acs_",      "iommu",    "pcie_width", "pcie_speed",
                                          "pcie_host", "nccl_shm", "busbw" };
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        if (tri_text_begins(rule, starts[i]))
            return true;
    return false;
}

static void add_price(struct tri_doctor *d, struct tri_finding *f)
{
    struct tri_cost *c = &f->cost;
    struct tri_doctor_question q = { d->cost_device, d->cost_gpus, c->have_gbs, c->should_gbs,
                                     is_staged(f->rule) };
    struct tri_doctor_price p = { .model = "" };
    bool may = d->pricer && q.device && q.device[0] && q.gpus > 1 && d->priced < MAX_PRICES &&
               f->severity >= TRI_SEVERITY_WARN && is_between_gpus(f->rule);
    if (!may)
        return;
    d->priced++;
    if (!d->pricer(d->pricer_arg, &q, &p))
        return;
    c->have_tokens_per_s = p.have_tokens_per_s;
    c->should_tokens_per_s = p.should_tokens_per_s;
    snprintf(c->model, sizeof c->model, "%s", p.model);
    size_t used = strlen(c->text);
    snprintf(c->text + used, sizeof c->text - used,
             "; %s by the planner: %.3g of %.3g tokens/s, %.3g s instead of %.3g for %ld tokens of "
             "prompt",
             p.model, p.have_tokens_per_s, p.should_tokens_per_s, p.have_ttft_ms / 1000,
             p.should_ttft_ms / 1000, p.prompt_tokens);
}

void tri__doctor_cost(struct tri_doctor *d, struct tri_finding *f, double have_gbs,
                      double should_gbs)
{
    if ((have_gbs <= 0 && should_gbs <= 0) || f->cost.text[0])
        return;
    f->cost.have_gbs = have_gbs;
    f->cost.should_gbs = should_gbs;
    if (have_gbs > 0 && should_gbs > have_gbs)
        snprintf(f->cost.text, sizeof f->cost.text,
                 "%.1f of %.1f GB/s one way (%.0f %%): collectives over it take %.1f times as long",
                 have_gbs, should_gbs, 100 * have_gbs / should_gbs, should_gbs / have_gbs);
    else if (have_gbs > 0)
        snprintf(f->cost.text, sizeof f->cost.text, "%.1f GB/s one way", have_gbs);
    else
        snprintf(f->cost.text, sizeof f->cost.text, "up to %.1f GB/s one way are not used",
                 should_gbs);
    if (have_gbs > 0 && should_gbs > have_gbs)
        add_price(d, f);
}

/* Where no rate tells the cost, words do: what is lost while the fault lasts. */
void tri__doctor_cost_words(struct tri_finding *f)
{
    static const struct {
        const char *rule, *text;
    } words[] = {
        { "p2p_denied", "every byte between GPUs is copied twice through host memory" },
        { "p2p_latency", "each small all-reduce of decode waits that long, twice a layer" },
        { "p2p_partial", "groups over the refused pairs are staged in host memory" },
        { "busbw_wrong", "wrong sums: every token after them is wrong" },
        { "iommu", "peer copies are translated or lost: slower than through the host, or a hang" },
        { "gpu_xid", "the job on that GPU, until it is reset" },
        { "gpu_driver", "every GPU it concerns, until it is mended" },
        { "gpu_fabric", "all NVLink traffic of that GPU: groups with it fall to PCIe or fail" },
        { "gpu_slow", "clocks, and with them prompt speed, on every rank that waits for it" },
        { "gpu_remap", "the job whose data lies in the failed rows" },
        { "engine_allreduce", "some 20 us more for each all-reduce: two a layer, every token" },
        { "engine_kv", "requests that wait or are computed again" },
        { "engine_memory", "the start itself" },
        { "engine_load", "minutes at every start and restart" },
        { "engine_scaling", "the further cards: they would serve more as replicas" },
        { "expert_skew", "ranks with fewer chosen experts wait for the busiest" },
        { "host_shm", "the start, or a crash when buffers outgrow it" },
        { "host_memlock", "RDMA and io_uring: slower paths are taken, or the start fails" },
        { "host_numa_balancing", "stalls of milliseconds while pages move" },
        { "host_numa_memory", "up to half the memory bandwidth of the threads there" },
        { "host_swap", "each page that is missed costs a drive's latency" },
        { "host_overcommit", "the process that the kernel picks" },
        { "host_cgroup", "what lies above the limit" },
        { "host_governor", "clock: memory-bound decode loses little, prompts much" },
        { "host_steal", "the share of time that is stolen" },
        { "host_hugepages", "the memory that lies idle" },
        { "nic_port", "that rail: traffic of its GPUs takes the others" },
        { "nic_idle_hca", "the adapter's rate: sockets reach a tenth of it" },
        { "nic_shared", "GPUs that share an adapter get its half between nodes" },
        { "nccl_env", "the paths that it switches off" },
        { "nccl_warning", "the transfer that it names" },
        { "nvlink_errors", "retries now, a link later" },
        { "nvlink_missing", "NVLink for those GPUs: groups with them fall to PCIe" },
        { "pcie_speed", "half the rate of host copies for each generation" },
        { "pcie_host", "half the rate of host copies for each generation" },
        { "pcie_replays", "retries now, a narrower or lost link later" },
        { "pcie_errors", "retries now, a narrower or lost link later" },
        { "contradiction", "the certainty of what is said about them" },
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0] && !f->cost.text[0]; i++)
        if (!strcmp(f->rule, words[i].rule))
            snprintf(f->cost.text, sizeof f->cost.text, "%s", words[i].text);
}

/*
 * Bytes of Kimi K3 (spec.md): 1,560,860,324,864 in all, of which routed experts in MXFP4 are 92
 * layers x 896 experts x 3 x 3584 x 3072 weights x 17/32 byte. A token reads 16 experts a layer and
 * the rest of its 104,189,614,848 active weights in bf16.
 */
double tri__doctor_decode_rate(double memory_gbs, double drive_gbs, double memory_bytes, char *how,
                               size_t how_bytes)
{
    const double expert = 3.0 * 3584 * 3072, all_experts = expert * 92 * 896 * 17 / 32;
    const double trunk = 1560860324864.0 - all_experts;
    const double token_experts = expert * 92 * 16 * 17 / 32;
    const double token_trunk = (104189614848.0 - expert * 92 * 16) * 2;
    double spare = memory_bytes * 0.9 - trunk; /* a tenth for caches and the system */
    double held = spare <= 0 ? 0 : spare >= all_experts ? 1 : spare / all_experts;
    double seconds = (token_experts + token_trunk) / (memory_gbs * 1e9);
    if (held < 1) {
        double miss = token_experts * (1 - held);
        if (spare < 0) /* the trunk itself comes from the drive in part */
            miss += token_trunk * (memory_bytes * 0.9 < trunk ? 1 - memory_bytes * 0.9 / trunk : 0);
        if (drive_gbs <= 0)
            return 0;
        seconds += miss / (drive_gbs * 1e9);
        snprintf(
            how, how_bytes,
            "%.0f GB a token from memory at %.1f GB/s, of which %.0f GB are not in RAM and come "
            "from the drive at %.2f GB/s",
            (token_experts + token_trunk) / 1e9, memory_gbs, miss / 1e9, drive_gbs);
    } else {
        snprintf(how, how_bytes, "%.0f GB a token from memory at %.1f GB/s, everything in RAM",
                 (token_experts + token_trunk) / 1e9, memory_gbs);
    }
    return 1 / seconds;
}
