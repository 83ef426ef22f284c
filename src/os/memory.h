/*
 * How much memory this process may use: what the machine has free, and what its control groups
 * allow. Paths are read below `root` ("" for the live machine), so that captured or made-up trees
 * can be tested.
 */
#ifndef TRI_OS_MEMORY_H
#define TRI_OS_MEMORY_H

#include "base/status.h"

enum { TRI_CGROUP_NONE = 0, TRI_CGROUP_V1 = 1, TRI_CGROUP_V2 = 2 };

struct tri_memory_facts {
    uint64_t total_bytes;      /* MemTotal; 0 when /proc/meminfo cannot be read */
    uint64_t available_bytes;  /* MemAvailable, or MemFree on old kernels */
    int cgroup_version;        /* which kind of group limits us, TRI_CGROUP_NONE if none does */
    uint64_t limit_bytes;      /* the tightest limit on the way to the root; UINT64_MAX: none */
    uint64_t group_used_bytes; /* what that group uses already, reclaimable page cache left out */
};

void tri_memory_read(struct tri_memory_facts *out, const char *root);

/* What can be had at all: the smaller of available memory and what the group leaves. */
uint64_t tri_memory_room_bytes(const struct tri_memory_facts *facts);

/* What a budget takes unless told: that room, less a
 * reserve (a sixteenth, at least 256 MiB and at most 4 GiB) for everything that is not counted. */
uint64_t tri_memory_budget_bytes(const struct tri_memory_facts *facts);

#endif
