/*
 * What this machine can do at best: how fast all threads together read memory, and how many
 * multiply-adds they do on registers alone. Measured, so that a speed can be given as a share of
 * what was possible in the same minute. Floor 2.
 *
 * The loops are plain inner loops without loads: no program reaches the peaks, a good matrix
 * product comes near them. Which loops exist depends on the CPU; each names its instructions.
 */
#ifndef TRI_LIMITS_LIMITS_H
#define TRI_LIMITS_LIMITS_H

#include <stddef.h>
#include "base/mem.h"
#include "os/aio.h"
#include "os/pool.h"

/* --- memory ---------------------------------------------------------------------------------- */

struct tri_read_test;

/* Takes `bytes` (rounded down to MiB, 1 at least; from 1 GiB on they say something about memory)
 * from the budget, account other, and fills them. */
TRI_MUST_CHECK enum tri_status tri_read_test_open(struct tri_read_test **out, uint64_t bytes,
                                                  struct tri_pool *pool, struct tri_budget *budget,
                                                  struct tri_error *err);
void tri_read_test_close(struct tri_read_test *test);
/* One pass over all of it by all threads of the pool: bytes per second. */
double tri_read_test_run(struct tri_read_test *test);

/* --- drives ---------------------------------------------------------------------------------- */

enum { TRI_DRIVE_TEST_FILES = 32 };

/* Reads of read_bytes (rounded up to blocks) at random blocks of the files, `depth` in flight. */
struct tri_drive_test_options {
    const char *file[TRI_DRIVE_TEST_FILES]; /* larger than a read */
    int files, depth;
    enum tri_aio_engine engine;
    uint64_t read_bytes;
};

struct tri_drive_test;

/* Buffers for a full queue come from the budget, account other. The page cache is bypassed. */
TRI_MUST_CHECK enum tri_status tri_drive_test_open(struct tri_drive_test **out,
                                                   const struct tri_drive_test_options *options,
                                                   struct tri_budget *budget,
                                                   struct tri_error *err);
void tri_drive_test_close(struct tri_drive_test *test);
TRI_MUST_CHECK enum tri_status tri_drive_test_run(struct tri_drive_test *test, int64_t reads,
                                                  double *bytes_per_s, struct tri_error *err);

/* --- arithmetic ------------------------------------------------------------------------------ */

enum tri_peak_kind { TRI_PEAK_INT8, TRI_PEAK_BF16, TRI_PEAK_F32, TRI_PEAK_KINDS };

const char *tri_peak_kind_name(enum tri_peak_kind kind);

struct tri_peak {
    enum tri_peak_kind kind;
    const char *loop; /* "avx512-vnni vpdpbusd zmm" */
    double ops_per_s; /* all threads; a multiply-add is two operations; best of several runs */
};

enum { TRI_PEAKS_MAX = 16 };

/* Measures every loop that this CPU and system can run, about 0.1 s each; returns how many. */
int tri_peaks_measure(struct tri_pool *pool, struct tri_peak out[TRI_PEAKS_MAX]);

/* The largest of a kind; NULL when there is none. */
const struct tri_peak *tri_peak_best(const struct tri_peak *peaks, int n, enum tri_peak_kind kind);

#endif
