/*
 * The sieve in front of the readers holds nothing back and keeps foreign text away: every own
 * sample gives the same report without it, and a long log that nobody wants costs no reader a call.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <string.h>
#include "base/mem.h"
#include "doctor/doctor_priv.h"

static struct tri_doctor *opened(bool unsieved)
{
    struct tri_doctor *d = NULL;
    assert_int_equal(tri_doctor_open(&d, NULL), TRI_OK);
    d->unsieved = unsieved;
    return d;
}

static void report(const char *path, bool unsieved, struct tri_buf *out)
{
    struct tri_doctor *d = opened(unsieved);
    assert_int_equal(tri_doctor_read_file(d, path, NULL), TRI_OK);
    assert_int_equal(tri_doctor_judge(d, NULL), TRI_OK);
    tri_buf_init(out, TRI_DOCTOR_MAX_REPORT_BYTES);
    tri_doctor_write_json(d, out);
    assert_int_equal(out->failed, TRI_OK);
    tri_doctor_close(d);
}

static void samples_read_the_same(void **state)
{
    (void)state;
    DIR *dir = opendir(TRI_TEST_SOURCE "/tests/machines");
    size_t files = 0;
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        char path[1024];
        struct tri_buf with, without;
        if (!strstr(e->d_name, ".txt") && !strstr(e->d_name, ".xml"))
            continue;
        snprintf(path, sizeof path, "%s/tests/machines/%s", TRI_TEST_SOURCE, e->d_name);
        report(path, false, &with);
        report(path, true, &without);
        if (with.len_bytes != without.len_bytes || memcmp(with.data, without.data, with.len_bytes))
            fail_msg("%s: the sieve changes the report", e->d_name);
        tri_buf_fini(&with);
        tri_buf_fini(&without);
        files++;
    }
    closedir(dir);
    assert_true(files > 100);
}

/* Calls of readers over `text`, repeated. */
static size_t calls(const char *text, size_t times)
{
    struct tri_doctor *d = opened(false);
    struct tri_buf buf;
    tri_buf_init(&buf, 16 << 20);
    for (size_t i = 0; i < times; i++)
        assert_int_equal(tri_buf_puts(&buf, text), TRI_OK);
    assert_int_equal(tri_doctor_read_bytes(d, "text", buf.data, buf.len_bytes, NULL), TRI_OK);
    size_t n = d->reader_calls;
    tri_buf_fini(&buf);
    tri_doctor_close(d);
    return n;
}

static void foreign_text_costs_nothing(void **state)
{
    (void)state;
    static const char *const foreign[] = {
        "INFO: worker started, listening at localhost\n",
        "the quick brown fox jumps over the lazy dog\n",
        "    return something;\n",
        "\n",
        "# a comment about nothing\n",
        "(EngineCore pid=7) INFO metrics.py: prefix cache in use, nobody waits\n"
    };
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        assert_int_equal(calls(foreign[i], 1000), 0);
    /* a line of a log that is read goes to its reader alone */
    assert_int_equal(calls("box:1:2 [0] NCCL INFO Trees are built\n", 1000), 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_read_the_same),
        cmocka_unit_test(foreign_text_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
