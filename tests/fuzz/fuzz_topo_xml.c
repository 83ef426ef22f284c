/* Any bytes as NCCL topology XML and as hwloc XML. What is read must join without looping. */
#include <stdint.h>
#include <stdlib.h>

#include "topo/topo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    for (int hwloc = 0; hwloc < 2; hwloc++) {
        struct tri_machine *m = NULL;
        if (tri_machine_open(&m, NULL))
            return 0;
        enum tri_status st = hwloc
                                 ? tri_topo_read_hwloc_xml(m, "f", (const char *)data, bytes, NULL)
                                 : tri_topo_read_nccl_xml(m, "f", (const char *)data, bytes, NULL);
        tri_machine_join(m);
        for (size_t i = 0; i < m->pcis; i++)
            if (tri_path_to_root_gbs(m, (int)i, NULL) < 0 || m->pci[i].parent == (int)i)
                abort();
        if (st == TRI_OK && m->gpus > TRI_MAX_GPUS)
            abort();
        tri_machine_close(m);
    }
    return 0;
}
