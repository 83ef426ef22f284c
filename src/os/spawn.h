/*
 * Runs programs side by side and keeps what they print, with one deadline for all: how the doctor
 * asks vendors' tools that may be absent, slow or hung.
 */
#ifndef TRI_OS_SPAWN_H
#define TRI_OS_SPAWN_H

#include <stdbool.h>
#include "base/buf.h"

enum { TRI_SPAWN_MAX = 32 };

struct tri_spawn {
    const char *const *argv; /* [..] NULL-terminated; argv[0] is looked up in PATH */
    size_t max_bytes;        /* of output kept; more is read and dropped */
    /* results */
    struct tri_buf out; /* standard output; tri_buf_fini by the caller, always */
    bool started, timed_out;
    int exit_code; /* -1: killed by a signal, by us at the deadline, or not started */
};

/*
 * Starts all (at most TRI_SPAWN_MAX), waits until they ended or `limit_ms` passed, ends what still
 * runs. Standard input is /dev/null, standard error is dropped. Programs that are absent are not
 * `started`.
 */
void tri_spawn_all(struct tri_spawn *list, size_t count, unsigned limit_ms);

#endif
