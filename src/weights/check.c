/* For `trireme info`: every difference between a checkpoint, or its index alone, and the model. */
#include "weights/weights_priv.h"

#include "base/mem.h"

static int count_difference(void *arg, enum tri__weights_difference kind,
                            const struct tri_tensor_spec *expected, const struct tri_tensor *found,
                            const char *why)
{
    struct tri_check_report *report = arg;
    static const char *const kinds[] = { "missing", "mismatched", "extra" };
    if (kind == TRI__WEIGHTS_DTYPE)
        return 0; /* readable: no fault */
    if (kind == TRI__WEIGHTS_MISSING)
        report->missing++;
    else if (kind == TRI__WEIGHTS_EXTRA)
        report->extra++;
    else
        report->mismatched++;
    if (report->line)
        report->line(report->arg, kinds[kind], expected ? expected->name : found->name, why);
    return 0;
}

static const char *index_path_of(void *arg, int32_t shard)
{
    (void)shard;
    return arg;
}

/* A table of names only: rank -1 tells the comparison that nothing else is known. */
static enum tri_status table_of_index(struct tri__weights_table *table, const char *path,
                                      const struct tri__weights_index *index, struct tri_error *err)
{
    struct tri_tensor *tensors = tri_calloc(index->count, sizeof *tensors);
    if (!tensors)
        return tri_fail(err, TRI_NOMEM, "%s: no memory for %zu names", path, index->count);
    for (size_t i = 0; i < index->count; i++) {
        tensors[i].name = index->placed[i].tensor;
        tensors[i].rank = -1;
    }
    return tri__weights_table_init(table, tensors, index->count, index_path_of,
                                   (void *)(uintptr_t)path, err);
}

enum tri_status tri_check_index(const char *index_path, const struct tri_spec *spec,
                                struct tri_check_report *report, uint64_t *tensors, uint64_t *bytes,
                                struct tri_error *err)
{
    struct tri__weights_index index = { 0 };
    struct tri__weights_table table = { 0 };
    char *text = NULL;
    size_t text_bytes = 0;
    const struct tri__weights_sink sink = { count_difference, report };
    enum tri_status st =
        tri_spec_read_text(&text, &text_bytes, index_path, TRI_WEIGHTS_MAX_INDEX_BYTES, err);
    if (!st)
        st = tri__weights_parse_index(&index, index_path, text, text_bytes, err);
    tri_free(text);
    if (!st)
        st = table_of_index(&table, index_path, &index, err);
    if (!st)
        st = tri__weights_compare(&table, spec, &report->experts_packed, &sink, err);
    if (!st) {
        *tensors = index.count;
        *bytes = index.total_bytes;
    }
    tri__weights_table_fini(&table);
    tri__weights_index_fini(&index);
    return st;
}

enum tri_status tri_check_folder(const char *folder, const struct tri_spec *spec,
                                 struct tri_check_report *report, uint64_t *tensors,
                                 uint64_t *bytes, struct tri_error *err)
{
    struct tri_checkpoint *c = NULL;
    const struct tri__weights_sink sink = { count_difference, report };
    enum tri_status st = tri__weights_open_files(&c, folder, NULL, 0, NULL, err);
    if (!st)
        st = tri__weights_compare(&c->table, spec, &report->experts_packed, &sink, err);
    if (!st) {
        *tensors = c->table.count;
        *bytes = c->payload_bytes;
    }
    tri_checkpoint_close(c);
    return st;
}
