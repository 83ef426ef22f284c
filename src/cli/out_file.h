/*
 * A file that a command makes: whole under its name, or not there. It grows as PATH.PID.part beside
 * its place and gets its name when it is complete, so an older file stays until then, and whoever
 * finds a .part knows what it is. A device or a pipe is written directly.
 */
#ifndef TRI_CLI_OUT_FILE_H
#define TRI_CLI_OUT_FILE_H

#include <stdio.h>
#include <sys/types.h>
#include "base/status.h"

enum { TRI_OUT_PATH_MAX_BYTES = 4096 };

struct tri_out_file {
    FILE *f;                                                         /* NULL: not open */
    char path[TRI_OUT_PATH_MAX_BYTES], part[TRI_OUT_PATH_MAX_BYTES]; /* part "": direct */
};

/* Permissions `mode` (less the umask) for the new file. Failure leaves nothing. */
TRI_MUST_CHECK enum tri_status tri_out_file_open(struct tri_out_file *out, const char *path,
                                                 mode_t mode, struct tri_error *err);

/* Closes; after TRI_OK the whole file is on the disk under its name, else it is dropped. */
TRI_MUST_CHECK enum tri_status tri_out_file_commit(struct tri_out_file *out, struct tri_error *err);

/* Closes and removes what was written; fine if nothing is open. */
void tri_out_file_drop(struct tri_out_file *out);

#endif
