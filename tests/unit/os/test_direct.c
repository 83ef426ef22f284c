/*
 * os/direct: any range of a file to any address has the file's bytes and nothing beside them is
 * touched, at block borders and one byte off them; the end of the file cuts; errors are -errno.
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

#include "os/direct.h"

enum { BLOCK = TRI_DIRECT_BLOCK_BYTES, FILE_BYTES = 400 * BLOCK + 1234, MARGIN = 2 * BLOCK };

static int fd = -1;
static unsigned char want[FILE_BYTES];
static _Alignas(BLOCK) unsigned char room[MARGIN + FILE_BYTES + MARGIN + BLOCK];

/* In the build folder: file systems in memory may refuse direct reads. */
static int make_file(void **state)
{
    (void)state;
    char path[] = "trireme-direct-XXXXXX";
    int out = mkstemp(path);
    for (int i = 0; i < FILE_BYTES; i++)
        want[i] = (unsigned char)((uint32_t)i * 2654435761u >> 13);
    if (out < 0 || write(out, want, FILE_BYTES) != FILE_BYTES || fsync(out))
        return 1;
    close(out);
    fd = tri_direct_open(path);
    unlink(path);
    if (fd < 0)
        print_message("SKIP: this file system has no direct reads\n");
    return 0;
}

static int close_file(void **state)
{
    (void)state;
    if (fd >= 0)
        close(fd);
    return 0;
}

/* Bytes [offset, offset + bytes) to an address `skew` behind a block's start. */
static void check(uint64_t offset, uint64_t skew, uint64_t bytes)
{
    unsigned char *dst = room + MARGIN + skew;
    uint64_t expect = offset >= FILE_BYTES ? 0 : FILE_BYTES - offset;
    expect = expect < bytes ? expect : bytes;
    memset(dst - 64, 0xa5, bytes + 128);
    assert_int_equal(tri_direct_read(fd, offset, dst, bytes), (int64_t)expect);
    if (offset < FILE_BYTES)
        assert_memory_equal(dst, want + offset, expect);
    for (int i = 1; i <= 64; i++) {
        assert_int_equal(dst[-i], 0xa5);
        assert_int_equal(dst[bytes + (uint64_t)i - 1], 0xa5);
    }
}

static void every_kind_of_range(void **state)
{
    static const uint64_t at[] = { 0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 77 };
    static const uint64_t sizes[] = { 0,          1,         BLOCK - 1,     BLOCK,
                                      BLOCK + 1,  2 * BLOCK, 3 * BLOCK - 1, 130 * BLOCK + 5,
                                      300 * BLOCK };
    (void)state;
    for (size_t a = 0; fd >= 0 && a < sizeof at / sizeof at[0]; a++)
        for (size_t s = 0; s < sizeof at / sizeof at[0]; s++)
            for (size_t n = 0; n < sizeof sizes / sizeof sizes[0]; n++)
                check(at[a], at[s] % BLOCK, sizes[n]);
}

/* The last byte, past it, from past it; in place and through the buffer. */
static void the_end_cuts(void **state)
{
    (void)state;
    for (uint64_t back = 0; fd >= 0 && back < 2 * BLOCK; back += 617)
        for (uint64_t skew = 0; skew < 2; skew++) {
            uint64_t offset = FILE_BYTES - back, same = (offset + skew) % BLOCK;
            check(offset, same, back);
            check(offset, same, back + 1);
            check(offset, same, back + 3 * BLOCK);
        }
    if (fd >= 0)
        check(FILE_BYTES + 5, 0, 100);
}

/* Written just now: cached. Told to forget it: not, unless the file system lives in memory. */
static void what_the_page_cache_holds(void **state)
{
    (void)state;
    char path[] = "trireme-cached-XXXXXX";
    int plain = mkstemp(path);
    assert_true(plain >= 0);
    unlink(path);
    assert_int_equal(write(plain, want, FILE_BYTES), FILE_BYTES);
    assert_true(tri_file_cached(plain, 0, FILE_BYTES));
    assert_true(tri_file_cached(plain, 5 * BLOCK + 1, 1));
    assert_false(tri_file_cached(plain, 0, 0));
    assert_false(tri_file_cached(-1, 0, 1));
    assert_int_equal(fsync(plain), 0);
    (void)posix_fadvise(plain, 0, 0, POSIX_FADV_DONTNEED);
    if (fd >= 0)
        assert_false(tri_file_cached(plain, 0, FILE_BYTES));
    close(plain);
}

static void errors_are_told(void **state)
{
    (void)state;
    char byte;
    assert_int_equal(tri_direct_read(-1, 0, &byte, 1), -EBADF);
    assert_int_equal(tri_direct_read(-1, 0, room, 4 * BLOCK), -EBADF);
    assert_int_equal(tri_direct_open("trireme-no-such-file"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_range),
        cmocka_unit_test(the_end_cuts),
        cmocka_unit_test(errors_are_told),
        cmocka_unit_test(what_the_page_cache_holds),
    };
    int failed = cmocka_run_group_tests(tests, make_file, close_file);
    return failed ? failed : fd < 0 && close_file(NULL) == 0 ? 77 : 0;
}
