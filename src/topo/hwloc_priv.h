/* Loading an hwloc topology, inside topo: the one header of the room that shows hwloc's types. */
#ifndef TRI_TOPO_HWLOC_PRIV_H
#define TRI_TOPO_HWLOC_PRIV_H

#include <hwloc.h>
#include "topo/topo.h"

/* Adds what hwloc knows to the machine, each fact with `source`. */
void tri__topo_from_hwloc(struct tri_machine *machine, hwloc_topology_t topology,
                          struct tri_source source);

#endif
