/* The safetensors writer: bytes of a header derived by hand, refusals, and what a failure leaves.
 */
#include "stfile/stfile.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/trireme-stfile-XXXXXX";
static char path[256];

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/a.safetensors", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(dir);
}

static void test_bytes_of_a_shard(void **state)
{
    static const char json[] =
        "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[12,16]}}";
    struct tri_st_entry e[2] = { { "a", "BF16", 2, { 2, 3 }, 12, 0 },
                                 { "b", "F32", 0, { 0 }, 4, 0 } };
    uint8_t got[512] = { 0 };
    int fd = -1;
    (void)state;
    size_t padded = (strlen(json) + 7) / 8 * 8;
    assert_int_equal(tri_st_create(&fd, path, e, 2, NULL), TRI_OK);
    assert_int_equal(e[0].offset_bytes, 8 + padded);
    assert_int_equal(e[1].offset_bytes, 8 + padded + 12);
    assert_int_equal(tri_st_header_bytes(e, 2), 8 + padded);
    assert_int_equal(tri_st_write(fd, path, e[1].offset_bytes, "wxyz", 4, NULL), TRI_OK);
    close(fd);
    fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, got, sizeof got), 8 + padded + 16);
    close(fd);
    assert_int_equal(got[0], padded);
    for (int i = 1; i < 8; i++)
        assert_int_equal(got[i], 0);
    assert_memory_equal(got + 8, json, strlen(json));
    for (size_t i = strlen(json); i < padded; i++)
        assert_int_equal(got[8 + i], ' ');
    assert_memory_equal(got + 8 + padded, "\0\0\0\0\0\0\0\0\0\0\0\0wxyz", 16);
    /* A file that is there is never replaced. */
    struct tri_error err = { 0 };
    assert_int_equal(tri_st_create(&fd, path, e, 2, &err), TRI_IO);
    assert_non_null(strstr(err.text, "a.safetensors"));
    assert_int_equal(access(path, R_OK), 0);
    unlink(path);
}

static void test_names_that_json_cannot_hold(void **state)
{
    static const char *const bad[] = { "a\"b", "a\\b", "a\nb", "a\x7f" };
    int fd = -1;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tri_st_entry e = { .dtype = "F32", .bytes = 4 };
        snprintf(e.name, sizeof e.name, "%s", bad[i]);
        assert_int_equal(tri_st_create(&fd, path, &e, 1, NULL), TRI_ARG);
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

static void test_header_limit(void **state)
{
    /* 190-letter names: about 250 bytes each, so 400,000 of them are over 100 MB. */
    size_t count = 420000;
    struct tri_st_entry *e = calloc(count, sizeof *e);
    int fd = -1;
    (void)state;
    for (size_t i = 0; i < count; i++) {
        memset(e[i].name, 'n', 190);
        e[i].dtype = "F32";
        e[i].rank = 1;
    }
    assert_int_equal(tri_st_create(&fd, path, e, count, NULL), TRI_LIMIT);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(tri_st_header_bytes(e, count), 0);
    free(e);
}

static void test_index(void **state)
{
    struct tri_st_index *x = NULL;
    char text[256] = { 0 }, part[300];
    (void)state;
    snprintf(part, sizeof part, "%s.part", path);
    assert_int_equal(tri_st_index_open(&x, path, 77, NULL), TRI_OK);
    tri_st_index_add(x, "a", "f1");
    tri_st_index_add(x, "b", "f2");
    assert_int_not_equal(access(path, F_OK), 0); /* not before it is whole */
    assert_int_equal(tri_st_index_close(x, NULL), TRI_OK);
    int fd = open(path, O_RDONLY);
    assert_true(read(fd, text, sizeof text - 1) > 0);
    close(fd);
    assert_string_equal(text, "{\"metadata\":{\"total_size\":77},\"weight_map\":{\n\"a\":\"f1\",\n"
                              "\"b\":\"f2\"\n}}\n");
    unlink(path);
    assert_int_equal(tri_st_index_open(&x, path, 1, NULL), TRI_OK);
    tri_st_index_drop(x);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_not_equal(access(part, F_OK), 0);
    tri_st_index_drop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_of_a_shard),
        cmocka_unit_test(test_names_that_json_cannot_hold),
        cmocka_unit_test(test_header_limit),
        cmocka_unit_test(test_index),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
