/*
 * limits/drive_test: it really reads what it says (checked against the kernel's count of this
 * process's reads from storage), with both engines, several files and more or fewer reads than the
 * queue holds; files that are too small, absent, or more memory than the budget has are refused and
 * leave nothing behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "limits/limits.h"

enum { READ_BYTES = 64 << 10, FILE_BYTES = 4 << 20 };

static struct tri_budget *budget;
static char large[] = "trireme-drive-XXXXXX", small[] = "trireme-small-XXXXXX";

static void fill(char *path, size_t bytes)
{
    static char data[FILE_BYTES];
    int fd = mkstemp(path);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (char)(i * 7);
    assert_int_equal(write(fd, data, bytes), (ssize_t)bytes);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

static int make_files(void **state)
{
    (void)state;
    fill(large, FILE_BYTES);
    fill(small, READ_BYTES);
    return tri_budget_open(&budget, 16 << 20, NULL);
}

static int remove_files(void **state)
{
    (void)state;
    struct tri_budget_report now;
    tri_budget_read(budget, &now);
    unlink(large);
    unlink(small);
    tri_budget_close(budget);
    return now.used_bytes != 0;
}

/* What this process has read from storage; 0 when the kernel does not tell. */
static uint64_t storage_bytes(void)
{
    char line[128];
    unsigned long long bytes = 0;
    FILE *f = fopen("/proc/self/io", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "read_bytes: %llu", &bytes) == 1)
            break;
    if (f)
        fclose(f);
    return bytes;
}

static void it_reads_what_it_says(void **state)
{
    (void)state;
    static const enum tri_aio_engine engine[] = { TRI_AIO_AUTO, TRI_AIO_THREADS };
    static const int64_t reads[] = { 1, 3, 4, 5, 50 };
    for (int e = 0; e < 2; e++) {
        struct tri_drive_test_options o = { .file = { large, large },
                                            .files = 1 + e,
                                            .depth = 4,
                                            .engine = engine[e],
                                            .read_bytes = READ_BYTES - 100 };
        struct tri_drive_test *t = NULL;
        struct tri_error err = { 0 };
        if (tri_drive_test_open(&t, &o, budget, &err) != TRI_OK) {
            print_message("SKIP: %s\n", err.text); /* a file system without direct reads */
            return;
        }
        for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++) {
            double rate = 0, begin = tri_clock_s();
            uint64_t before = storage_bytes();
            assert_int_equal(tri_drive_test_run(t, reads[i], &rate, NULL), TRI_OK);
            double spent = tri_clock_s() - begin;
            /* The size was rounded up to blocks; the rate is that of all reads, in its own time. */
            double bytes = (double)reads[i] * READ_BYTES;
            assert_true(rate * spent >= bytes * 0.999);
            if (before && e == 1)
                assert_true((double)(storage_bytes() - before) >= bytes);
        }
        tri_drive_test_close(t);
    }
}

static void what_cannot_be_measured(void **state)
{
    (void)state;
    struct tri_drive_test_options o = {
        .file = { large }, .files = 1, .depth = 4, .read_bytes = READ_BYTES
    };
    struct tri_drive_test *t = NULL;
    struct tri_error err = { 0 };
    if (tri_drive_test_open(&t, &o, budget, NULL) != TRI_OK) {
        print_message("SKIP: this file system has no direct reads\n");
        return;
    }
    tri_drive_test_close(t);
    t = NULL;
    o.file[0] = small; /* a read would be all of it */
    assert_int_equal(tri_drive_test_open(&t, &o, budget, &err), TRI_ARG);
    assert_non_null(strstr(err.text, small));
    err = (struct tri_error){ 0 };
    o.file[0] = "trireme-no-such-file";
    assert_int_equal(tri_drive_test_open(&t, &o, budget, &err), TRI_IO);
    assert_non_null(strstr(err.text, "trireme-no-such-file"));
    o.file[0] = large;
    o.depth = 256; /* 256 reads of 64 KiB are 16 MiB, and they must begin at a block */
    assert_int_equal(tri_drive_test_open(&t, &o, budget, NULL), TRI_BUDGET);
    assert_null(t);
    tri_drive_test_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_reads_what_it_says),
        cmocka_unit_test(what_cannot_be_measured),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
