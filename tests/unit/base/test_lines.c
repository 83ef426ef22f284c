/* base/lines: what foreign text may carry is taken off; numbers of lines stay those of the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/lines.h"
#include "base/mem.h"

static void check(const char *in, size_t bytes, const char *const *want, size_t count)
{
    struct tri_lines l;
    assert_int_equal(tri_lines_init(&l, in, bytes, NULL), TRI_OK);
    assert_int_equal(l.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(l.line[i].text, want[i]);
        assert_int_equal(l.line[i].number, i + 1);
    }
    tri_lines_fini(&l);
}

static void cleaning(void **state)
{
    (void)state;
    static const char *const two[] = { "a b", "c" };
#define CHECK(text) check(text, sizeof(text) - 1, two, 2)
    CHECK("a b\nc");
    CHECK("a b\r\nc\r\n");
    CHECK("\xef\xbb\xbf"
          "a b\nc\n");
    CHECK("\x1b[1;32ma\x1b[0m b\nc\x1b]0;title\a\n");
    CHECK("a\xc2\xa0"
          "b\nc\n");
    CHECK("\xff\xfe"
          "a\0 \0b\0\n\0c\0\n\0");
    CHECK("\xfe\xff"
          "\0a\0 \0b\0\n\0c\0\n");
#undef CHECK
    static const char *const zero[] = { "a  b" };
    check("a\0\x01"
          "b",
          4, zero, 1);
    check("", 0, NULL, 0);
    check("\x1b", 1, (const char *const[]){ "" }, 0);
}

static void prefixes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *body;
    } lines[] = {
        { "[1,0]<stdout>:row", "row" },
        { "[1,12]<stderr>: row", " row" },
        { "0: # size", "# size" },
        { " 3: row", "row" },
        { "(RayWorker pid=75833) HOST:1 row", "HOST:1 row" },
        { "(RayWorker pid=7, ip=10.0.0.2) row", "row" },
        { "server-1  | row", "row" },
        { "2024-12-04T05:27:49.137Z GPU0  X", "GPU0  X" },
        { "2024-12-04T05:27:49+01:00 row", "row" },
        { "2024-12-04 row", "2024-12-04 row" },
        { "> row", "row" },
        { "[0] NCCL INFO x", "[0] NCCL INFO x" },
        { "00:01.0 PCI bridge", "00:01.0 PCI bridge" },
        { "| 0  NVIDIA | x |", "| 0  NVIDIA | x |" },
        { "(no worker) row", "(no worker) row" },
        { "NIC0: mlx5_0", "NIC0: mlx5_0" },
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct tri_lines l;
        assert_int_equal(tri_lines_init(&l, lines[i].text, strlen(lines[i].text), NULL), TRI_OK);
        assert_string_equal(l.line[0].body, lines[i].body);
        tri_lines_fini(&l);
    }
}

static void words_and_numbers(void **state)
{
    (void)state;
    struct tri_word w[2];
    double d = 0;
    uint64_t u = 0;
    assert_int_equal(tri_words("  one\ttwo  three ", w, 2), 3);
    assert_true(tri_word_is(w[1], "two"));
    static const char *const good[] = { "1", "-2.5", "0e+00", "2e-07", ".5" };
    static const char *const bad[] = { "", "1x", "nan", "inf", "0x10", "1.2.3", "--1" };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(tri_word_number((struct tri_word){ good[i], strlen(good[i]) }, &d));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(tri_word_number((struct tri_word){ bad[i], strlen(bad[i]) }, &d));
    assert_true(tri_word_unsigned((struct tri_word){ "ff", 2 }, 16, &u) && u == 255);
    assert_false(tri_word_unsigned((struct tri_word){ "-1", 2 }, 10, &u));
}

static void limits(void **state)
{
    (void)state;
    struct tri_lines l;
    size_t bytes = TRI_LINE_MAX_BYTES + 2;
    char *text = tri_malloc(bytes);
    memset(text, 'x', bytes);
    for (size_t n = TRI_LINE_MAX_BYTES; n <= TRI_LINE_MAX_BYTES + 1; n++) {
        assert_int_equal(tri_lines_init(&l, text, n, NULL), TRI_OK);
        assert_int_equal(strlen(l.line[0].text), TRI_LINE_MAX_BYTES);
        assert_int_equal(l.cut_lines, n - TRI_LINE_MAX_BYTES);
        tri_lines_fini(&l);
    }
    tri_free(text);
    char *many = tri_malloc((size_t)TRI_LINES_MAX + 1);
    memset(many, '\n', (size_t)TRI_LINES_MAX + 1);
    assert_int_equal(tri_lines_init(&l, many, TRI_LINES_MAX, NULL), TRI_OK);
    tri_lines_fini(&l);
    assert_int_equal(tri_lines_init(&l, many, (size_t)TRI_LINES_MAX + 1, NULL), TRI_LIMIT);
    tri_free(many);
    assert_int_equal(tri_lines_init(&l, "", (size_t)TRI_LINES_MAX_BYTES + 1, NULL), TRI_LIMIT);
    for (long n = 0; n < 3; n++) { /* each allocation failing once leaves nothing behind */
        tri_mem_fail_after(n);
        assert_int_equal(tri_lines_init(&l, "a\nb\n", 4, NULL), TRI_NOMEM);
    }
    tri_mem_fail_after(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cleaning),
        cmocka_unit_test(prefixes),
        cmocka_unit_test(words_and_numbers),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
