/* The outside programs that the doctor asks, inside doctor: one list for live reading and capture.
 */
#ifndef TRI_DOCTOR_TOOLS_H
#define TRI_DOCTOR_TOOLS_H

#include <stdbool.h>
#include "base/buf.h"

enum { TRI__TOOLS = 8, TRI__TOOL_BYTES = 4 << 20 };

struct tri__tool_output {
    const char *name, *file; /* "nvidia-smi topo -m", "nvidia-smi-topo-m.txt" */
    struct tri_buf out;
    bool useful, timed_out; /* useful: it ran and printed something */
};

/* Runs all of them side by side; each out is released with tri_buf_fini. */
void tri__doctor_run_tools(struct tri__tool_output list[TRI__TOOLS], unsigned limit_ms);

#endif
