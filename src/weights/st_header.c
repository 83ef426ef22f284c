/*
 * The safetensors header of one file, taken as an opponent's: every number is checked against the
 * file's real size before it is used, and the tensors must tile the data exactly. Rules: the
 * format's README and reference implementation, collected in serving.md 4.4.
 */
#include "weights/weights_priv.h"

#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/mem.h"

enum { MAX_RANK = 16, SHAPE_DIMS = 4 };

/* Every dtype of the format, its width in bits, and how this program reads it, if it does. */
static const struct st_dtype {
    const char *name;
    uint8_t bits, dtype;
} dtypes[] = {
    { "F32", 32, TRI_DT_F32 },        { "BF16", 16, TRI_DT_BF16 }, { "F16", 16, TRI_DT_F16 },
    { "F64", 64, TRI_DT_F64 },        { "U8", 8, TRI_DT_U8 },      { "F8_E4M3", 8, TRI_DT_E4M3 },
    { "BOOL", 8, TRI_DTYPES },        { "I8", 8, TRI_DTYPES },     { "I16", 16, TRI_DTYPES },
    { "U16", 16, TRI_DTYPES },        { "I32", 32, TRI_DTYPES },   { "U32", 32, TRI_DTYPES },
    { "I64", 64, TRI_DTYPES },        { "U64", 64, TRI_DTYPES },   { "F8_E5M2", 8, TRI_DTYPES },
    { "F8_E8M0", 8, TRI_DTYPES },     { "F4", 4, TRI_DTYPES },     { "F6_E2M3", 6, TRI_DTYPES },
    { "F6_E3M2", 6, TRI_DTYPES },     { "C64", 64, TRI_DTYPES },   { "F8_E4M3FNUZ", 8, TRI_DTYPES },
    { "F8_E5M2FNUZ", 8, TRI_DTYPES },
};

struct parsing {
    const char *file, *tensor; /* the tensor being read, for messages */
    uint64_t data_start, data_bytes;
    struct tri_error *err;
};

const char *tri__weights_shown(char out[TRI__WEIGHTS_SHOWN_BYTES], const char *name)
{
    return tri_printable(out, TRI__WEIGHTS_SHOWN_BYTES, name, strlen(name));
}

static enum tri_status refuse(const struct parsing *p, const char *what)
{
    char shown[TRI__WEIGHTS_SHOWN_BYTES];
    return tri_fail(p->err, TRI_FORMAT, "%s: tensor %s: %s", p->file,
                    tri__weights_shown(shown, p->tensor), what);
}

static enum tri_status read_dtype(const struct parsing *p, const json_t *value,
                                  struct tri_tensor *t, unsigned *bits)
{
    const char *name = json_string_value(value);
    if (!name)
        return refuse(p, "dtype must be a string");
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            t->dtype = (enum tri_dtype)dtypes[i].dtype;
            *bits = dtypes[i].bits;
            return TRI_OK;
        }
    return refuse(p, "dtype is not one of the safetensors format");
}

/* The shape, and the number of values it stands for. */
static enum tri_status read_shape(const struct parsing *p, const json_t *value,
                                  struct tri_tensor *t, uint64_t *values)
{
    size_t rank = json_array_size(value);
    uint64_t product = 1;
    if (!json_is_array(value))
        return refuse(p, "shape must be a list");
    if (rank > MAX_RANK)
        return refuse(p, "more than 16 dimensions");
    t->rank = (int32_t)rank;
    for (size_t i = 0; i < SHAPE_DIMS; i++)
        t->shape[i] = 1;
    for (size_t i = 0; i < rank; i++) {
        const json_t *dim = json_array_get(value, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return refuse(p, "every dimension must be a whole number, 0 or more");
        if (__builtin_mul_overflow(product, (uint64_t)json_integer_value(dim), &product))
            return refuse(p, "the product of its dimensions overflows");
        if (i < SHAPE_DIMS)
            t->shape[i] = json_integer_value(dim);
    }
    *values = product;
    return TRI_OK;
}

static enum tri_status read_offsets(const struct parsing *p, const json_t *value,
                                    struct tri_tensor *t)
{
    const json_t *from = json_array_get(value, 0), *to = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_integer(from) || !json_is_integer(to))
        return refuse(p, "data_offsets must be two whole numbers");
    int64_t begin = json_integer_value(from), end = json_integer_value(to);
    if (begin < 0 || end < begin)
        return refuse(p, "data_offsets run backwards or are negative");
    if ((uint64_t)end > p->data_bytes)
        return refuse(p, "data_offsets pass the end of the file (truncated download?)");
    t->offset_bytes = p->data_start + (uint64_t)begin;
    t->bytes = (uint64_t)(end - begin);
    return TRI_OK;
}

static enum tri_status read_tensor(const struct parsing *p, const json_t *value,
                                   struct tri_tensor *t)
{
    unsigned bits = 0;
    uint64_t values = 0;
    const json_t *dtype = json_object_get(value, "dtype"), *shape = json_object_get(value, "shape"),
                 *offsets = json_object_get(value, "data_offsets");
    if (!json_is_object(value))
        return refuse(p, "must be described by an object");
    if (!dtype || !shape || !offsets)
        return refuse(p, "dtype, shape and data_offsets are all needed");
    if (json_object_size(value) != 3)
        return refuse(p, "has a field other than dtype, shape, data_offsets");
    enum tri_status st = read_dtype(p, dtype, t, &bits);
    if (!st)
        st = read_shape(p, shape, t, &values);
    if (!st)
        st = read_offsets(p, offsets, t);
    if (st)
        return st;
    uint64_t total_bits = 0;
    if (__builtin_mul_overflow(values, (uint64_t)bits, &total_bits))
        return refuse(p, "the size of its values overflows");
    if (total_bits % 8)
        return refuse(p, "its values do not fill whole bytes");
    if (total_bits / 8 != t->bytes)
        return refuse(p, "data_offsets do not match shape and dtype");
    return TRI_OK;
}

/* __metadata__ maps strings to strings, and says nothing we need. */
static enum tri_status check_metadata(const struct parsing *p, json_t *value)
{
    const char *key = NULL;
    json_t *item = NULL;
    if (!json_is_object(value))
        return tri_fail(p->err, TRI_FORMAT, "%s: __metadata__ must be an object", p->file);
    json_object_foreach(value, key, item)
    {
        if (!json_is_string(item))
            return tri_fail(p->err, TRI_FORMAT, "%s: __metadata__ may hold only strings", p->file);
    }
    return TRI_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct tri_tensor *x = a, *y = b;
    if (x->offset_bytes != y->offset_bytes)
        return x->offset_bytes < y->offset_bytes ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* an empty one goes first */
}

/* Sorted by offset the tensors must touch each other, from the first data byte to the last. */
static enum tri_status check_tiling(struct parsing *p, struct tri__weights_header *h)
{
    uint64_t at = p->data_start, end = p->data_start + p->data_bytes;
    if (h->count)
        qsort(h->tensors, h->count, sizeof h->tensors[0], by_offset);
    for (size_t i = 0; i < h->count; i++) {
        const struct tri_tensor *t = &h->tensors[i];
        p->tensor = t->name;
        if (t->offset_bytes < at)
            return refuse(p, "overlaps the tensor before it");
        if (t->offset_bytes > at)
            return refuse(p, "leaves a hole before it that belongs to no tensor");
        at += t->bytes;
    }
    if (at != end)
        return tri_fail(p->err, TRI_FORMAT, "%s: %llu bytes after the last tensor belong to none",
                        p->file, (unsigned long long)(end - at));
    return TRI_OK;
}

static size_t names_bytes(json_t *tree)
{
    const char *key = NULL;
    json_t *value = NULL;
    size_t bytes = 0;
    json_object_foreach(tree, key, value)
    {
        bytes += strlen(key) + 1;
    }
    return bytes;
}

static enum tri_status read_tree(struct parsing *p, json_t *tree, int32_t shard,
                                 struct tri__weights_header *h)
{
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(tree))
        return tri_fail(p->err, TRI_FORMAT, "%s: the header is not a JSON object", p->file);
    h->tensors = tri_calloc(json_object_size(tree), sizeof h->tensors[0]);
    h->names = tri_malloc(names_bytes(tree));
    if (!h->tensors || !h->names)
        return tri_fail(p->err, TRI_NOMEM, "%s: no memory for its %zu tensors", p->file,
                        json_object_size(tree));
    char *name = h->names;
    json_object_foreach(tree, key, value)
    {
        enum tri_status st = TRI_OK;
        if (strcmp(key, "__metadata__") == 0) {
            st = check_metadata(p, value);
        } else {
            struct tri_tensor *t = &h->tensors[h->count++];
            size_t bytes = strlen(key) + 1;
            p->tensor = t->name = memcpy(name, key, bytes);
            t->shard = shard;
            name += bytes;
            st = read_tensor(p, value, t);
        }
        if (st)
            return st;
    }
    h->payload_bytes = p->data_bytes;
    return check_tiling(p, h);
}

enum tri_status tri__weights_parse_header(struct tri__weights_header *out, const char *file,
                                          int32_t shard, const char *text, size_t text_bytes,
                                          uint64_t file_bytes, struct tri_error *err)
{
    struct tri__weights_header h = { 0 };
    json_t *tree = NULL;
    size_t end = text_bytes;
    if (text_bytes > TRI_WEIGHTS_MAX_HEADER_BYTES || file_bytes < 8 + (uint64_t)text_bytes)
        return tri_fail(err, TRI_FORMAT, "%s: a header of %zu bytes does not fit", file,
                        text_bytes);
    while (end && text[end - 1] == ' ') /* writers pad with spaces so that data is aligned */
        end--;
    if (end < 2 || text[0] != '{' || text[end - 1] != '}')
        return tri_fail(err, TRI_FORMAT, "%s: not a safetensors file: its header is not { ... }",
                        file);
    struct parsing p = { .file = file,
                         .data_start = 8 + (uint64_t)text_bytes,
                         .data_bytes = file_bytes - 8 - (uint64_t)text_bytes,
                         .err = err };
    enum tri_status st = tri_json_parse(&tree, file, text, end, TRI_WEIGHTS_MAX_HEADER_BYTES, err);
    if (st)
        return st;
    st = read_tree(&p, tree, shard, &h);
    json_decref(tree);
    if (st)
        tri__weights_header_fini(&h);
    else
        *out = h;
    return st;
}

void tri__weights_header_fini(struct tri__weights_header *header)
{
    tri_free(header->tensors);
    tri_free(header->names);
    *header = (struct tri__weights_header){ 0 };
}
