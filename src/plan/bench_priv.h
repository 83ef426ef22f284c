/* Shared by the readers of result files (bench_read.c) and the judgement (bench_check.c). */
#ifndef TRI_PLAN_BENCH_PRIV_H
#define TRI_PLAN_BENCH_PRIV_H

#include "plan/report.h"

enum { TRI__BENCH_MAX_BYTES = 64 << 20, TRI__BENCH_MAX_ROWS = 256 };

/* One line of trireme speed: prompts of `tokens`, or steps of `batch` sequences that hold `depth`.
 */
struct tri__bench_row {
    bool decode;
    double tokens, batch, depth, tokens_per_s;
};

/* A server under load, or (rows > 0) an engine without one. 0: the file does not say. */
struct tri__bench {
    const char *tool;
    double ttft_ms, tpot_ms, itl_ms, tokens_per_s, requests_per_s;
    double input_tokens, output_tokens, concurrency, failed, acceptance;
    struct tri__bench_row row[TRI__BENCH_MAX_ROWS];
    int rows;
    double read_gbs, trunk_bytes; /* of the machine and of a step, as speed measured them */
    char trunk[24];
};

TRI_MUST_CHECK enum tri_status tri__bench_read(struct tri__bench *out, const char *path,
                                               struct tri_error *err);

#endif
