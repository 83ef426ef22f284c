/* See tools.h. Absent tools cost nothing; a hung one is ended at the deadline. */
#include "doctor/tools.h"

#include "os/spawn.h"

static const struct {
    const char *name, *file, *argv[6];
} tools[TRI__TOOLS] = {
    { "nvidia-smi topo -m", "nvidia-smi-topo-m.txt", { "nvidia-smi", "topo", "-m" } },
    { "nvidia-smi -q", "nvidia-smi-q.txt", { "nvidia-smi", "-q" } },
    { "nvidia-smi topo -p2p r", "nvidia-smi-p2p.txt", { "nvidia-smi", "topo", "-p2p", "r" } },
    { "nvidia-smi nvlink -s", "nvidia-smi-nvlink.txt", { "nvidia-smi", "nvlink", "-s" } },
    { "rocm-smi --showtopo", "rocm-smi.txt", { "rocm-smi", "--showtopo" } },
    { "amd-smi topology", "amd-smi.txt", { "amd-smi", "topology" } },
    { "lspci", "lspci.txt", { "lspci", "-nn" } },
    { "dmesg", "dmesg.txt", { "dmesg" } },
};

void tri__doctor_run_tools(struct tri__tool_output list[TRI__TOOLS], unsigned limit_ms)
{
    struct tri_spawn s[TRI__TOOLS];
    for (size_t i = 0; i < TRI__TOOLS; i++)
        s[i] = (struct tri_spawn){ .argv = tools[i].argv, .max_bytes = TRI__TOOL_BYTES };
    tri_spawn_all(s, TRI__TOOLS, limit_ms);
    for (size_t i = 0; i < TRI__TOOLS; i++) {
        bool ended = s[i].exit_code == 0 || s[i].timed_out;
        list[i] =
            (struct tri__tool_output){ .name = tools[i].name,
                                       .file = tools[i].file,
                                       .out = s[i].out,
                                       .timed_out = s[i].timed_out,
                                       .useful = s[i].started && ended && s[i].out.len_bytes };
    }
}
