/*
 * What kind of machine this is, for people: processor, kernel, CPUs. (Memory: os/memory.h; the
 * whole topology: topo.) What cannot be read is "" or 0.
 */
#ifndef TRI_OS_HOST_H
#define TRI_OS_HOST_H

struct tri_host {
    char cpu[96], kernel[96]; /* model name of the first CPU; name and release of the kernel */
    int cpus, cpus_online;    /* allowed to this process; of the machine */
};

void tri_host_read(struct tri_host *out);

#endif
