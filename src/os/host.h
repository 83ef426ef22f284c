/*
 * Plain facts of this machine that decide what fits and what runs: CPU, memory, and the limit that
 * a container puts on it. Read from /proc and /sys; what cannot be read is 0 or "". Floor 1.
 */
#ifndef TRI_OS_HOST_H
#define TRI_OS_HOST_H

#include <stdint.h>

struct tri_host {
    char cpu[96], kernel[96];    /* model name of the first CPU; release of the kernel */
    int cpus, cpus_online;       /* allowed to this process; of the machine */
    uint64_t memory_bytes;       /* MemTotal */
    uint64_t memory_free_bytes;  /* MemAvailable */
    uint64_t cgroup_limit_bytes; /* smallest limit on the way to the root; 0: none */
    uint64_t cgroup_used_bytes;  /* in use under that limit, file cache not counted */
};

void tri_host_read(struct tri_host *out);

/* What a process may still take: free memory, or less where a container says so. */
uint64_t tri_host_room_bytes(const struct tri_host *host);

#endif
