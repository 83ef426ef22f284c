/* Inside of the limits room: the inner loops of each instruction set. */
#ifndef TRI_LIMITS_PRIV_H
#define TRI_LIMITS_PRIV_H

#include <stdbool.h>
#include "limits/limits.h"

struct tri__peak_loop {
    enum tri_peak_kind kind;
    const char *name;
    double ops; /* of one turn of the loop */
    bool (*can_run)(void);
    void (*run)(int64_t turns);
};

/* loops_x86.c, loops_arm.c: a list that ends with a NULL name; empty on other machines. */
extern const struct tri__peak_loop tri__peak_loops_x86[];
extern const struct tri__peak_loop tri__peak_loops_arm[];

/* Reads all of [data, data + bytes), a multiple of 4096, and returns something made of it. */
uint64_t tri__read_plain(const void *data, size_t bytes);
/* The same with the widest loads of this CPU; NULL when there is nothing better. */
uint64_t (*tri__read_wide(void))(const void *, size_t);

#endif
