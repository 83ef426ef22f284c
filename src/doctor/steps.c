/*
 * Six steps from the wiring to the tokens: what each asks, what the readings already say, and what
 * to run when a reading is missing. The order matters: a later number means nothing while an
 * earlier step fails.
 */
#include <stdio.h>
#include <string.h>
#include "doctor/doctor_priv.h"

struct step {
    const char *title, *question, *run;
    unsigned kinds;        /* readings that answer it */
    const char *rules[12]; /* findings that belong to it */
};

static const struct step steps[] = {
    { "Topology",
      "which GPUs are near each other?",
      "nvidia-smi topo -m    # AMD: rocm-smi --showtopo",
      TRI__KIND_TOPOLOGY,
      { "nvlink_", "path_", "xgmi_", "numa_spread", "vm_topology", "topology_read",
        "contradiction" } },
    { "Lanes",
      "has every link the width and speed it should?",
      "sudo lspci -vvv > lspci.txt; nvidia-smi -q > smi.txt    # under load",
      TRI__KIND_LANES,
      { "pcie_", "acs_", "iommu", "gpu_fabric" } },
    { "P2P",
      "may the GPUs reach each other, and does it help?",
      "nvidia-smi topo -p2p r; p2pBandwidthLatencyTest",
      TRI__KIND_P2P | TRI__KIND_BANDWIDTH,
      { "p2p_", "host_bandwidth" } },
    { "Collectives",
      "do all GPUs together reach what the wiring gives?",
      "all_reduce_perf -b 8M -e 8G -f 2 -g N    # nccl-tests or rccl-tests",
      TRI__KIND_COLLECTIVE,
      { "busbw" } },
    { "Paths taken",
      "which transport does the engine really use?",
      "NCCL_DEBUG=INFO <your engine> 2>&1 | tee nccl.log",
      TRI__KIND_NCCL,
      { "nccl_", "nic_", "host_shm", "host_memlock", "host_sys" } },
    { "TP1 / TP2 / TP4",
      "does the engine gain from more GPUs?",
      "trireme bench ...    # with TP 1, 2, 4; write lines \"TP=1 123 tokens/s\" into a file",
      TRI__KIND_ENGINE,
      { "engine_", "expert_", "gpu_full_idle" } },
};

static bool belongs(const struct step *s, const struct tri_finding *f)
{
    for (size_t i = 0; i < sizeof s->rules / sizeof s->rules[0] && s->rules[i]; i++)
        if (tri_text_begins(f->rule, s->rules[i]))
            return true;
    return false;
}

void tri_doctor_write_steps(const struct tri_doctor *d, struct tri_buf *out)
{
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        const struct step *s = &steps[i];
        enum tri_severity worst = TRI_SEVERITY_OK;
        size_t found = 0;
        for (size_t k = 0; k < d->findings; k++)
            if (belongs(s, d->finding[k])) {
                worst = d->finding[k]->severity > worst ? d->finding[k]->severity : worst;
                found++;
            }
        bool read = found > 0 || (d->kind_seen & s->kinds);
        tri_buf_printf(out, "%zu. %s: %s  [%s]\n", i + 1, s->title, s->question,
                       read ? tri_severity_word(worst) : "not read");
        if (!read || (found == 0 && !(d->kind_seen & s->kinds))) {
            tri_buf_printf(out, "   run: %s\n", s->run);
            continue;
        }
        for (size_t k = 0; k < d->findings; k++) {
            const struct tri_finding *f = d->finding[k];
            if (!belongs(s, f))
                continue;
            tri_buf_printf(out, "   %-4s %s\n", tri_severity_word(f->severity), f->title);
            if (f->severity >= TRI_SEVERITY_WARN && f->cures)
                tri_buf_printf(out, "        do: %s\n", f->cure[0]);
        }
    }
    tri_buf_puts(out, "Then: trireme doctor FILE... with all outputs together.\n");
}
