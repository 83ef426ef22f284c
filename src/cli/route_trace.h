/*
 * Routed experts of a step, kept as the model tells them (tri_taps.routes) and written as JSON:
 * "routes":[{"layer","experts","weights"}]. Used by `trireme logits --routes`, and as a trace file
 * of one line per token by `trireme run --trace`.
 */
#ifndef TRI_CLI_ROUTE_TRACE_H
#define TRI_CLI_ROUTE_TRACE_H

#include <stdbool.h>
#include <stdio.h>
#include "model/model.h"

struct tri_routes {
    int64_t layers, topk, rows; /* rows: most of one step */
    int32_t *experts;           /* [rows][layers][topk] */
    float *weights;
    bool *routed; /* [layers] */

    /* A trace: rows of the last step are written when the next one begins. */
    FILE *file;
    const char *path;
    int64_t held_rows, last_layer, pos;
};

TRI_MUST_CHECK enum tri_status tri_routes_open(struct tri_routes *out, const struct tri_spec *spec,
                                               int64_t rows, struct tri_error *err);
/* Starts a trace file for the routes; --trace. */
TRI_MUST_CHECK enum tri_status tri_routes_trace(struct tri_routes *r, const char *path,
                                                struct tri_error *err);
/* Writes what is held and closes the file; TRI_IO if anything of it could not be written. */
TRI_MUST_CHECK enum tri_status tri_routes_close(struct tri_routes *r, struct tri_error *err);

/* The tap: arg is the struct tri_routes. */
void tri_routes_tap(void *arg, int64_t layer, const int32_t *experts, const float *weights,
                    int64_t n_rows, int64_t topk);
/* ,"routes":[...] of one row of the last step. */
void tri_routes_print(FILE *out, const struct tri_routes *r, int64_t row);

#endif
