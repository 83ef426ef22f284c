/*
 * weights: the header and index parsers in memory, at their limits, and the table of names.
 * (Lies told by whole files: tests/cli/test_damaged.py.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "weights/weights_priv.h"

static enum tri_status parse(struct tri__weights_header *h, const char *text, uint64_t data,
                             struct tri_error *err)
{
    return tri__weights_parse_header(h, "f", 5, text, strlen(text), 8 + strlen(text) + data, err);
}

static void tensors_sorted_and_placed(void **state)
{
    (void)state;
    struct tri__weights_header h;
    struct tri_error err = { 0 };
    const char *text = "{\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[2,26]},"
                       "\"__metadata__\":{\"k\":\"v\"},"
                       "\"e\":{\"dtype\":\"U8\",\"shape\":[0,9],\"data_offsets\":[26,26]},"
                       "\"a\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,2]}}    ";
    assert_int_equal(parse(&h, text, 26, &err), TRI_OK);
    assert_int_equal(h.count, 3);
    assert_int_equal(h.payload_bytes, 26);
    const struct tri_tensor *t = h.tensors;
    assert_string_equal(t[0].name, "a");
    assert_true(t[0].rank == 0 && t[0].bytes == 2 && t[0].dtype == TRI_DT_BF16 && t[0].shard == 5);
    assert_int_equal(t[0].offset_bytes, 8 + strlen(text));
    assert_string_equal(t[1].name, "b");
    assert_true(t[1].shape[0] == 2 && t[1].shape[1] == 3 && t[1].shape[2] == 1);
    assert_true(t[1].offset_bytes == t[0].offset_bytes + 2 && t[1].bytes == 24);
    assert_string_equal(t[2].name, "e");
    tri__weights_header_fini(&h);
}

static void empty_tensors_need_no_room(void **state)
{
    (void)state;
    struct tri__weights_header h;
    const char *text = "{\"a\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[0,0]},"
                       "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                       "\"c\":{\"dtype\":\"I32\",\"shape\":[4,0,4],\"data_offsets\":[0,0]}}";
    assert_int_equal(parse(&h, text, 1, NULL), TRI_OK);
    assert_int_equal(h.count, 3);
    tri__weights_header_fini(&h);
    /* but inside another tensor's bytes there is no place for one */
    text = "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
           "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}";
    struct tri_error err = { 0 };
    assert_int_equal(parse(&h, text, 2, &err), TRI_FORMAT);
    assert_non_null(strstr(err.text, "tensor b: overlaps"));
}

static void every_dtype_has_its_width(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int bits, readable;
    } dtype[] = { { "F64", 64, 1 },    { "F32", 32, 1 },    { "F16", 16, 1 },
                  { "BF16", 16, 1 },   { "F8_E4M3", 8, 1 }, { "U8", 8, 1 },
                  { "BOOL", 8, 0 },    { "I8", 8, 0 },      { "I16", 16, 0 },
                  { "U16", 16, 0 },    { "I32", 32, 0 },    { "U32", 32, 0 },
                  { "I64", 64, 0 },    { "U64", 64, 0 },    { "F8_E5M2", 8, 0 },
                  { "F8_E8M0", 8, 0 }, { "F4", 4, 0 },      { "F6_E2M3", 6, 0 },
                  { "F6_E3M2", 6, 0 }, { "C64", 64, 0 } };
    for (size_t i = 0; i < sizeof dtype / sizeof dtype[0]; i++) {
        char text[160];
        struct tri__weights_header h;
        struct tri_error err = { 0 };
        snprintf(text, sizeof text,
                 "{\"a\":{\"dtype\":\"%s\",\"shape\":[4],\"data_offsets\":[0,%d]}}", dtype[i].name,
                 dtype[i].bits / 2);
        if (parse(&h, text, (uint64_t)dtype[i].bits / 2, &err))
            fail_msg("%s", err.text);
        assert_int_equal(h.tensors[0].dtype < TRI_DTYPES, dtype[i].readable);
        tri__weights_header_fini(&h);
    }
}

/* A header of exactly the format's limit is read; one byte more is not even looked at. */
static void header_bytes_limit(void **state)
{
    (void)state;
    size_t bytes = TRI_WEIGHTS_MAX_HEADER_BYTES + 1;
    char *text = malloc(bytes);
    struct tri__weights_header h;
    memset(text, ' ', bytes);
    memcpy(text, "{}", 2);
    assert_int_equal(tri__weights_parse_header(&h, "f", 0, text, bytes - 1, bytes + 7, NULL),
                     TRI_OK);
    tri__weights_header_fini(&h);
    assert_int_equal(tri__weights_parse_header(&h, "f", 0, text, bytes, bytes + 8, NULL),
                     TRI_FORMAT);
    free(text);
}

static void index_interns_files(void **state)
{
    (void)state;
    struct tri__weights_index index;
    const char *text = "{\"metadata\":{\"total_size\":12.0},\"weight_map\":"
                       "{\"x\":\"b.st\",\"y\":\"a.st\",\"z\":\"b.st\"}}";
    assert_int_equal(tri__weights_parse_index(&index, "i", text, strlen(text), NULL), TRI_OK);
    assert_int_equal(index.file_count, 2);
    assert_string_equal(index.files[0], "a.st");
    assert_int_equal(index.count, 3);
    assert_int_equal(index.total_bytes, 12);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(index.placed[i].file, index.placed[i].tensor[0] == 'y' ? 0 : 1);
    tri__weights_index_fini(&index);
}

static void index_file_limit(void **state)
{
    (void)state;
    for (int over = 0; over < 2; over++) {
        struct tri_buf text;
        struct tri__weights_index index = { 0 };
        tri_buf_init(&text, 1 << 20);
        tri_buf_puts(&text, "{\"weight_map\":{");
        for (int i = 0; i < TRI_WEIGHTS_MAX_SHARDS + over; i++)
            tri_buf_printf(&text, "%s\"%d\":\"f%d\"", i ? "," : "", i, i);
        tri_buf_puts(&text, "}}");
        assert_int_equal(tri__weights_parse_index(&index, "i", text.data, text.len_bytes, NULL),
                         over ? TRI_LIMIT : TRI_OK);
        if (!over)
            tri__weights_index_fini(&index);
        tri_buf_fini(&text);
    }
}

static void index_names_and_bytes_limits(void **state)
{
    (void)state;
    char text[400];
    struct tri__weights_index index;
    for (int bytes = 255; bytes <= 256; bytes++) {
        snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"%0*d\"}}", bytes, 7);
        enum tri_status st = tri__weights_parse_index(&index, "i", text, strlen(text), NULL);
        assert_int_equal(st, bytes == 255 ? TRI_OK : TRI_FORMAT);
        if (!st)
            tri__weights_index_fini(&index);
    }
    /* the size is judged before a byte of it is looked at */
    assert_int_equal(
        tri__weights_parse_index(&index, "i", text, (size_t)TRI_WEIGHTS_MAX_INDEX_BYTES + 1, NULL),
        TRI_LIMIT);
}

static const char *nowhere(void *arg, int32_t shard)
{
    (void)arg;
    return shard ? "one" : "zero";
}

static void table_finds_every_name_and_no_other(void **state)
{
    (void)state;
    enum { N = 20000 };
    char(*name)[48] = malloc(sizeof *name * N);
    struct tri_tensor *t = tri_calloc(N, sizeof *t);
    struct tri__weights_table table = { 0 };
    for (int i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "language_model.model.layers.%d.x%d", i % 93, i);
        t[i].name = name[i];
    }
    assert_int_equal(tri__weights_table_init(&table, t, N, nowhere, NULL, NULL), TRI_OK);
    for (int i = 0; i < N; i++)
        assert_ptr_equal(tri__weights_table_find(&table, tri__weights_bare(name[i])), &t[i]);
    assert_null(tri__weights_table_find(&table, name[0])); /* the prefix is gone */
    assert_null(tri__weights_table_find(&table, "model.layers.0.x1"));
    assert_null(tri__weights_table_find(&table, ""));
    tri__weights_table_fini(&table);
    free(name);
}

static void table_count_limit(void **state)
{
    (void)state;
    struct tri__weights_table table = { 0 };
    struct tri_tensor *one = tri_calloc(1, sizeof *one); /* the count is judged first */
    assert_int_equal(
        tri__weights_table_init(&table, one, (size_t)TRI_SPEC_MAX_TENSORS + 1, nowhere, NULL, NULL),
        TRI_LIMIT);
    tri__weights_table_fini(&table);
}

static void table_refuses_twins_and_mixtures(void **state)
{
    (void)state;
    static const char *const pair[][3] = { { "a", "a", "tensor a is also in zero" },
                                           { "language_model.model.a", "model.b", "prefix" },
                                           { "lm_head.weight", "language_model.x", "prefix" } };
    for (size_t i = 0; i < 3; i++) {
        struct tri_tensor *t = tri_calloc(2, sizeof *t);
        struct tri__weights_table table = { 0 };
        struct tri_error err = { 0 };
        t[0].name = pair[i][0];
        t[1].name = pair[i][1];
        t[1].shard = 1;
        assert_int_equal(tri__weights_table_init(&table, t, 2, nowhere, NULL, &err), TRI_FORMAT);
        assert_non_null(strstr(err.text, pair[i][2]));
        tri__weights_table_fini(&table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_sorted_and_placed),
        cmocka_unit_test(empty_tensors_need_no_room),
        cmocka_unit_test(every_dtype_has_its_width),
        cmocka_unit_test(header_bytes_limit),
        cmocka_unit_test(index_interns_files),
        cmocka_unit_test(index_file_limit),
        cmocka_unit_test(table_finds_every_name_and_no_other),
        cmocka_unit_test(index_names_and_bytes_limits),
        cmocka_unit_test(table_count_limit),
        cmocka_unit_test(table_refuses_twins_and_mixtures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
