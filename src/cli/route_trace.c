/* Routes kept and written. See route_trace.h. */
#include "cli/route_trace.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include "base/mem.h"

enum tri_status tri_routes_open(struct tri_routes *out, const struct tri_spec *spec, int64_t rows,
                                struct tri_error *err)
{
    struct tri_routes r = { .layers = spec->layers, .topk = spec->topk, .rows = rows };
    size_t n = (size_t)(rows * spec->layers * (spec->topk ? spec->topk : 1));
    r.experts = tri_calloc(n, sizeof *r.experts);
    r.weights = tri_calloc(n, sizeof *r.weights);
    r.routed = tri_calloc((size_t)spec->layers, sizeof *r.routed);
    r.last_layer = -1;
    *out = r;
    if (r.experts && r.weights && r.routed)
        return TRI_OK;
    return tri_fail(err, TRI_NOMEM, "no memory to keep routes; try a smaller --chunk");
}

enum tri_status tri_routes_trace(struct tri_routes *r, const char *path, struct tri_error *err)
{
    r->path = path;
    r->file = fopen(path, "w");
    return r->file ? TRI_OK : tri_fail_errno(err, TRI_IO, errno, "cannot create %s", path);
}

static void write_held(struct tri_routes *r)
{
    for (int64_t row = 0; r->file && row < r->held_rows; row++) {
        fprintf(r->file, "{\"pos\":%" PRId64, r->pos++);
        tri_routes_print(r->file, r, row);
        fprintf(r->file, "}\n");
    }
    r->held_rows = 0;
}

enum tri_status tri_routes_close(struct tri_routes *r, struct tri_error *err)
{
    enum tri_status st = TRI_OK;
    write_held(r);
    if (r->file) {
        bool failed = ferror(r->file) != 0;
        if (fclose(r->file) || failed)
            st = tri_fail_errno(err, TRI_IO, errno, "cannot write %s", r->path);
    }
    tri_free(r->experts);
    tri_free(r->weights);
    tri_free(r->routed);
    *r = (struct tri_routes){ 0 };
    return st;
}

void tri_routes_tap(void *arg, int64_t layer, const int32_t *experts, const float *weights,
                    int64_t n_rows, int64_t topk)
{
    struct tri_routes *r = arg;
    if (layer <= r->last_layer)
        write_held(r);
    r->last_layer = layer;
    r->held_rows = n_rows;
    r->routed[layer] = true;
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t at = (i * r->layers + layer) * topk;
        memcpy(r->experts + at, experts + i * topk, (size_t)topk * sizeof *experts);
        memcpy(r->weights + at, weights + i * topk, (size_t)topk * sizeof *weights);
    }
}

void tri_routes_print(FILE *out, const struct tri_routes *r, int64_t row)
{
    const char *comma = "";
    fprintf(out, ",\"routes\":[");
    for (int64_t l = 0; l < r->layers; l++) {
        int64_t at = (row * r->layers + l) * r->topk;
        if (!r->routed[l])
            continue;
        fprintf(out, "%s{\"layer\":%" PRId64 ",\"experts\":[", comma, l);
        for (int64_t i = 0; i < r->topk; i++)
            fprintf(out, "%s%d", i ? "," : "", r->experts[at + i]);
        fprintf(out, "],\"weights\":[");
        for (int64_t i = 0; i < r->topk; i++)
            fprintf(out, "%s%.9g", i ? "," : "", (double)r->weights[at + i]);
        fprintf(out, "]}");
        comma = ",";
    }
    fprintf(out, "]");
}
