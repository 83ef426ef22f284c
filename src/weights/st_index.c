/*
 * model.safetensors.index.json: which file holds which tensor. File names become paths, so each
 * must be a plain name inside the folder.
 */
#include "weights/weights_priv.h"

#include <string.h>
#include "base/json.h"
#include "base/mem.h"

enum { MAX_FILE_NAME_BYTES = 255 };

/* A name that can only mean a file in this very folder. */
static bool plain_name(const char *name, size_t bytes)
{
    if (bytes == 0 || bytes > MAX_FILE_NAME_BYTES || name[0] == '.')
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (name[i] == '/' || name[i] == '\\' || (unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return false;
    return true;
}

/* Position of `file` in the sorted list, inserting it if new; -1 when the list is full. */
static int32_t intern_file(struct tri__weights_index *index, const char *file)
{
    size_t lo = 0, hi = index->file_count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): none below file_count is NULL */
        int order = strcmp(index->files[mid], file);
        if (order == 0)
            return (int32_t)mid;
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (index->file_count == TRI_WEIGHTS_MAX_SHARDS)
        return -1;
    memmove(&index->files[lo + 1], &index->files[lo],
            (index->file_count - lo) * sizeof index->files[0]);
    index->files[lo] = file;
    index->file_count++;
    return (int32_t)lo;
}

static enum tri_status check_entry(const char *name, const char *tensor, const json_t *value,
                                   struct tri_error *err)
{
    char shown[TRI__WEIGHTS_SHOWN_BYTES], file[TRI__WEIGHTS_SHOWN_BYTES];
    const char *text = json_string_value(value);
    tri__weights_shown(shown, tensor);
    if (!text)
        return tri_fail(err, TRI_FORMAT, "%s: weight_map of %s must be a file name", name, shown);
    if (!plain_name(text, json_string_length(value)))
        return tri_fail(err, TRI_FORMAT,
                        "%s: weight_map of %s names \"%s\", which is not a plain file name", name,
                        shown, tri_printable(file, sizeof file, text, json_string_length(value)));
    return TRI_OK;
}

/* Two passes: the files first, so that their numbers no longer move. */
static enum tri_status read_map(struct tri__weights_index *index, const char *name, json_t *map,
                                struct tri_error *err)
{
    const char *key = NULL, *last = NULL;
    json_t *value = NULL;
    size_t count = json_object_size(map);
    if (!json_is_object(map) || count == 0)
        return tri_fail(err, TRI_FORMAT, "%s: weight_map must be an object of file names", name);
    if (count > TRI_SPEC_MAX_TENSORS)
        return tri_fail(err, TRI_LIMIT, "%s: %zu tensors, at most %d", name, count,
                        TRI_SPEC_MAX_TENSORS);
    index->files = tri_calloc(TRI_WEIGHTS_MAX_SHARDS, sizeof index->files[0]);
    index->placed = tri_calloc(count, sizeof index->placed[0]);
    if (!index->files || !index->placed)
        return tri_fail(err, TRI_NOMEM, "%s: no memory for its %zu tensors", name, count);
    json_object_foreach(map, key, value)
    {
        enum tri_status st = check_entry(name, key, value, err);
        if (st)
            return st;
        const char *file = json_string_value(value);
        if (last && strcmp(last, file) == 0)
            continue;
        last = file;
        if (intern_file(index, file) < 0)
            return tri_fail(err, TRI_LIMIT, "%s: more than %d files", name, TRI_WEIGHTS_MAX_SHARDS);
    }
    json_object_foreach(map, key, value)
    {
        struct tri__weights_placed *p = &index->placed[index->count++];
        p->tensor = key;
        p->file = intern_file(index, json_string_value(value));
    }
    return TRI_OK;
}

static enum tri_status read_total(struct tri__weights_index *index, const char *name,
                                  const json_t *tree, struct tri_error *err)
{
    const json_t *metadata = json_object_get(tree, "metadata");
    const json_t *total = json_object_get(metadata, "total_size");
    if (metadata && !json_is_object(metadata))
        return tri_fail(err, TRI_FORMAT, "%s: metadata must be an object", name);
    if (total && (!json_is_number(total) || !(json_number_value(total) >= 0) ||
                  json_number_value(total) >= 0x1p63))
        return tri_fail(err, TRI_FORMAT, "%s: metadata.total_size must be a number of bytes", name);
    if (json_is_integer(total))
        index->total_bytes = (uint64_t)json_integer_value(total);
    else if (total) /* some writers divide by something and leave 1.0e9 */
        index->total_bytes = (uint64_t)json_real_value(total);
    return TRI_OK;
}

enum tri_status tri__weights_parse_index(struct tri__weights_index *out, const char *name,
                                         const char *text, size_t text_bytes, struct tri_error *err)
{
    struct tri__weights_index index = { 0 };
    json_t *tree = NULL;
    enum tri_status st =
        tri_json_parse(&tree, name, text, text_bytes, TRI_WEIGHTS_MAX_INDEX_BYTES, err);
    if (st)
        return st;
    index.tree = tree;
    if (!json_is_object(tree))
        st = tri_fail(err, TRI_FORMAT, "%s: not a JSON object", name);
    if (!st)
        st = read_total(&index, name, tree, err);
    if (!st)
        st = read_map(&index, name, json_object_get(tree, "weight_map"), err);
    if (st)
        tri__weights_index_fini(&index);
    else
        *out = index;
    return st;
}

void tri__weights_index_fini(struct tri__weights_index *index)
{
    json_decref(index->tree);
    tri_free(index->files);
    tri_free(index->placed);
    *index = (struct tri__weights_index){ 0 };
}
