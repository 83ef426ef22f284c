/*
 * os/aio: every engine brings the same bytes, in any order, through short reads; the end of a file,
 * a failing and a stalled drive are errors of one read and leave the queue usable.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "os/aio.h"

enum { FILE_BYTES = 1 << 20, READS = 50, PIECE = 20000, NEVER = -1 };

static int fd = -1;
static unsigned char want[FILE_BYTES], got[READS][PIECE];

static int make_file(void **state)
{
    (void)state;
    char path[] = "/tmp/trireme-aio-XXXXXX";
    fd = mkstemp(path);
    unlink(path);
    for (int i = 0; i < FILE_BYTES; i++)
        want[i] = (unsigned char)(i * 2654435761u >> 13);
    return write(fd, want, FILE_BYTES) != FILE_BYTES;
}

/* Reads READS pieces at depth 8; returns how many failed, the first failure in *first. */
static int read_all(struct tri_aio *aio, struct tri_aio_done *first)
{
    int next = 0, done = 0, failed = 0;
    memset(got, 0, sizeof got);
    while (done < READS) {
        while (next < READS && tri_aio_in_flight(aio) < tri_aio_depth(aio)) {
            struct tri_aio_read r = { fd,    got[next], (uint64_t)next * 20001,
                                      PIECE, PIECE,     (uint64_t)next };
            assert_int_equal(tri_aio_submit(aio, &r, NULL), TRI_OK);
            next++;
        }
        struct tri_aio_done d[4];
        int n = 0;
        assert_int_equal(tri_aio_wait(aio, d, 4, 5000, &n, NULL), TRI_OK);
        for (int i = 0; i < n; i++, done++) {
            if (d[i].sys_errno && failed++ == 0)
                *first = d[i];
            if (!d[i].sys_errno)
                assert_memory_equal(got[d[i].tag], want + d[i].tag * 20001, PIECE);
        }
    }
    assert_int_equal(tri_aio_in_flight(aio), 0);
    return failed;
}

static void engines_bring_the_same_bytes(void **state)
{
    (void)state;
    static const enum tri_aio_engine engines[] = { TRI_AIO_AUTO, TRI_AIO_THREADS, TRI_AIO_URING };
    for (int i = 0; i < 3; i++) {
        struct tri_aio *aio = NULL;
        struct tri_error err = { 0 };
        struct tri_aio_done d;
        enum tri_status st = tri_aio_open(&aio, engines[i], 8, &err);
        if (st == TRI_UNSUPPORTED && engines[i] == TRI_AIO_URING) {
            printf("SKIP: %s\n", err.text);
            continue;
        }
        assert_int_equal(st, TRI_OK);
        for (int round = 0; round < 3; round++) {
            assert_int_equal(read_all(aio, &d), 0);
            tri_aio_register(aio, got, sizeof got, PIECE);
        }
        tri_aio_close(aio);
    }
}

static struct tri_aio *open_sim(struct tri_aio_sim plan)
{
    struct tri_aio *aio = NULL;
    assert_int_equal(tri_aio_open_sim(&aio, 8, &plan, NULL), TRI_OK);
    return aio;
}

static void short_reads_go_on(void **state)
{
    (void)state;
    struct tri_aio_done d;
    struct tri_aio *aio = open_sim((struct tri_aio_sim){ NEVER, 0, NEVER, 7, 4096 });
    assert_int_equal(read_all(aio, &d), 0);
    tri_aio_close(aio);
}

static void one_failed_read_is_one_error(void **state)
{
    (void)state;
    struct tri_aio_done d = { 0 };
    struct tri_aio *aio = open_sim((struct tri_aio_sim){ 11, ENODEV, NEVER, 3, 0 });
    assert_int_equal(read_all(aio, &d), 1);
    assert_int_equal(d.sys_errno, ENODEV);
    assert_int_equal(d.tag, 11);
    assert_int_equal(read_all(aio, &d), 0); /* the queue goes on */
    tri_aio_close(aio);
}

static void a_stalled_drive_times_out(void **state)
{
    (void)state;
    struct tri_aio *aio = open_sim((struct tri_aio_sim){ NEVER, 0, 0, 0, 0 });
    struct tri_aio_read r = { fd, got[0], 0, PIECE, PIECE, 0 };
    struct tri_aio_done d;
    struct tri_error err = { 0 };
    int n = 0;
    assert_int_equal(tri_aio_submit(aio, &r, NULL), TRI_OK);
    assert_int_equal(tri_aio_wait(aio, &d, 1, 100, &n, &err), TRI_TIMEOUT);
    assert_int_equal(n, 0);
    tri_aio_close(aio);
}

static void the_end_of_a_file_is_no_zeros(void **state)
{
    (void)state;
    static const enum tri_aio_engine engines[] = { TRI_AIO_AUTO, TRI_AIO_THREADS };
    for (int i = 0; i < 2; i++) {
        struct tri_aio *aio = NULL;
        struct tri_aio_done d;
        int n = 0;
        assert_int_equal(tri_aio_open(&aio, engines[i], 2, NULL), TRI_OK);
        struct tri_aio_read r = { fd, got[0], FILE_BYTES - 5000, PIECE, 5000, 1 };
        assert_int_equal(tri_aio_submit(aio, &r, NULL), TRI_OK);
        assert_int_equal(tri_aio_wait(aio, &d, 1, 5000, &n, NULL), TRI_OK);
        assert_int_equal(d.sys_errno, 0); /* all that is needed is there */
        r.need_bytes = 5001;
        assert_int_equal(tri_aio_submit(aio, &r, NULL), TRI_OK);
        assert_int_equal(tri_aio_wait(aio, &d, 1, 5000, &n, NULL), TRI_OK);
        assert_true(d.sys_errno == EIO && d.short_file);
        tri_aio_close(aio);
    }
}

static void limits(void **state)
{
    (void)state;
    struct tri_aio *aio = NULL;
    assert_int_equal(tri_aio_open(&aio, TRI_AIO_THREADS, 0, NULL), TRI_ARG);
    assert_int_equal(tri_aio_open(&aio, TRI_AIO_THREADS, TRI_AIO_MAX_DEPTH + 1, NULL), TRI_ARG);
    aio = open_sim((struct tri_aio_sim){ NEVER, 0, NEVER, 0, 0 });
    struct tri_aio_read r = { fd, got[0], 0, 1, 1, 0 };
    for (int i = 0; i < 8; i++)
        assert_int_equal(tri_aio_submit(aio, &r, NULL), TRI_OK);
    assert_int_equal(tri_aio_submit(aio, &r, NULL), TRI_BUSY);
    tri_aio_close(aio);
    tri_aio_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_bring_the_same_bytes),
        cmocka_unit_test(short_reads_go_on),
        cmocka_unit_test(one_failed_read_is_one_error),
        cmocka_unit_test(a_stalled_drive_times_out),
        cmocka_unit_test(the_end_of_a_file_is_no_zeros),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, make_file, NULL);
}
