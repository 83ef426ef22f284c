/*
 * Experts that come from drives, beside what these drives give: a pass of random reads of an
 * expert's size between every two repetitions, and the store's own counters over each.
 */
#include <stdlib.h>
#include "cli/speed.h"

enum { PASS_READS = 48 };

enum tri_status speed_drive_open(struct speed_drive *d, const struct tri_opened *o,
                                 const struct speed_args *a, struct tri_error *err)
{
    struct tri_experts_stats s;
    tri_model_expert_stats(o->model, &s);
    *d = (struct speed_drive){ .model = o->model };
    if (a->no_limits || s.records == 0 || s.all_resident || !s.direct)
        return TRI_OK;
    struct tri_drive_test_options test = { .engine = a->flags.options.engine,
                                           .read_bytes = s.record_bytes };
    int depth = a->flags.options.queue_depth ? a->flags.options.queue_depth : TRI_EXPERTS_DEPTH;
    for (; test.files < s.drives && test.files < TRI_DRIVE_TEST_FILES; test.files++)
        test.file[test.files] = s.drive[test.files].file;
    test.depth = depth * s.drives < TRI_AIO_MAX_DEPTH ? depth * s.drives : TRI_AIO_MAX_DEPTH;
    enum tri_status st =
        tri_budget_open(&d->budget, (uint64_t)(test.depth + 1) * (s.record_bytes + 4096), err);
    return st ? st : tri_drive_test_open(&d->test, &test, d->budget, err);
}

void speed_drive_close(struct speed_drive *d)
{
    tri_drive_test_close(d->test);
    tri_budget_close(d->budget);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum tri_status speed_drive_pass(struct speed_drive *d, struct speed_row *row,
                                 struct tri_error *err)
{
    if (!d->test || d->passes == SPEED_MAX_PASSES)
        return TRI_OK;
    enum tri_status st = tri_drive_test_run(d->test, PASS_READS, &d->pass[d->passes], err);
    if (st)
        return st;
    d->passes++;
    qsort(d->pass, (size_t)d->passes, sizeof d->pass[0], by_size);
    row->drive_bytes_per_s = (d->pass[(d->passes - 1) / 2] + d->pass[d->passes / 2]) / 2;
    return TRI_OK;
}

void speed_drive_begin(struct speed_drive *d)
{
    tri_model_expert_stats(d->model, &d->before);
}

void speed_drive_end(struct speed_drive *d, struct speed_row *row)
{
    struct tri_experts_stats now;
    tri_model_expert_stats(d->model, &now);
    row->store.wanted += now.wanted - d->before.wanted;
    row->store.reuse_hits += now.reuse_hits - d->before.reuse_hits;
    row->store.prefetch_hits += now.prefetch_hits - d->before.prefetch_hits;
    row->store.wasted_prefetches += now.wasted_prefetches - d->before.wasted_prefetches;
    row->store.read_bytes += now.read_bytes - d->before.read_bytes;
    row->store.wait_ns += now.wait_ns - d->before.wait_ns;
    row->store.reading_ns += now.reading_ns - d->before.reading_ns;
}
