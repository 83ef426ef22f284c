/* Measurements that load the machine: only with --measure. Inside doctor. */
#ifndef TRI_DOCTOR_MEASURE_H
#define TRI_DOCTOR_MEASURE_H

#include "base/status.h"

/* Read bandwidth of memory: every processor sums its own buffer; median of slices. About 0.5 s. */
TRI_MUST_CHECK enum tri_status tri__doctor_measure_memory(uint64_t available_bytes, double *gbs,
                                                          unsigned *threads, struct tri_error *err);

/*
 * Direct reads of a file of 256 MiB made in `dir` (NULL: TMPDIR, else the current folder) and
 * removed at once: 1 MiB blocks in a row and 4 KiB blocks at random. About 1 s.
 */
TRI_MUST_CHECK enum tri_status tri__doctor_measure_drive(const char *dir, double *gbs,
                                                         double *iops_4k, struct tri_error *err);

/* Whether io_uring_setup succeeds here: 1 or 0. */
int tri__doctor_uring_allowed(void);

#endif
