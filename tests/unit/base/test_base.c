/* base: the error record keeps the first failure; the budget is a hard ceiling; buffers are
 * bounded. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"

static void first_failure_wins(void **state)
{
    (void)state;
    struct tri_error err = { 0 };
    assert_int_equal(tri_fail(&err, TRI_IO, "shard %d", 3), TRI_IO);
    assert_int_equal(tri_fail(&err, TRI_FORMAT, "later"), TRI_FORMAT);
    assert_int_equal(err.status, TRI_IO);
    assert_string_equal(err.text, "shard 3");
    assert_int_equal(tri_fail(NULL, TRI_ARG, "nobody listens"), TRI_ARG);
}

static void foreign_names_stay_on_one_line(void **state)
{
    (void)state;
    char out[16];
    assert_string_equal(tri_printable(out, sizeof out, "a\nb", 3), "a\\x0ab");
    tri_printable(out, sizeof out, "0123456789abcdefghij", 20);
    assert_true(strlen(out) < sizeof out && strstr(out, "..."));
}

/* A path may hold anything but NUL; the record is one line all the same. */
static void an_error_is_one_line(void **state)
{
    (void)state;
    struct tri_error err = { 0 };
    tri_fail(&err, TRI_FORMAT, "%s: bad", "a\nb\x1b[2J");
    assert_string_equal(err.text, "a\\x0ab\\x1b[2J: bad");
    err = (struct tri_error){ 0 };
    tri_fail_errno(&err, TRI_IO, ENOENT, "%s", "a\rb");
    assert_string_equal(err.text, "a\\x0db: No such file or directory");
    char tabs[600];
    memset(tabs, '\t', sizeof tabs);
    tabs[sizeof tabs - 1] = 0;
    err = (struct tri_error){ 0 };
    tri_fail(&err, TRI_IO, "%s", tabs); /* four times as long once escaped */
    assert_true(strlen(err.text) < sizeof err.text);
    assert_null(strchr(err.text, '\t'));
}

static void budget_holds_at_the_ceiling(void **state)
{
    (void)state;
    struct tri_budget *b = NULL;
    struct tri_error err = { 0 };
    void *p = NULL, *q = NULL;
    assert_int_equal(tri_budget_open(&b, 4096, &err), TRI_OK);
    assert_int_equal(tri_budget_alloc(b, TRI_MEM_TRUNK, 4096, &p, &err), TRI_OK);
    assert_int_equal((uintptr_t)p % 64, 0);
    assert_int_equal(tri_budget_alloc(b, TRI_MEM_KDA, 1, &q, &err), TRI_BUDGET);
    assert_null(q);
    assert_non_null(strstr(err.text, "kda"));
    tri_budget_free(b, TRI_MEM_TRUNK, p, 4096);
    struct tri_budget_report now;
    tri_budget_read(b, &now);
    assert_int_equal(now.used_bytes, 0);
    assert_int_equal(now.peak_bytes, 4096);
    tri_budget_close(b);
}

static void buffer_stops_at_its_maximum(void **state)
{
    (void)state;
    struct tri_buf buf;
    tri_buf_init(&buf, 5);
    assert_int_equal(tri_buf_puts(&buf, "12345"), TRI_OK);
    assert_int_equal(tri_buf_putc(&buf, '6'), TRI_LIMIT);
    assert_string_equal(buf.data, "12345");
    tri_buf_fini(&buf);
}

static void json_limits(void **state)
{
    (void)state;
    json_t *j = NULL;
    char deep[2 * (TRI_JSON_MAX_DEPTH + 1) + 1];
    for (int over = 0; over < 2; over++) {
        int n = TRI_JSON_MAX_DEPTH + over;
        memset(deep, '[', (size_t)n);
        memset(deep + n, ']', (size_t)n);
        struct tri_error err = { 0 };
        enum tri_status st = tri_json_parse(&j, "t", deep, (size_t)n * 2, sizeof deep, &err);
        assert_int_equal(st, over ? TRI_LIMIT : TRI_OK);
    }
    json_decref(j);
    static const char *const bad[] = { "", "{", "{\"a\":1,\"a\":2}", "[1] x", "\"\xff\"", "nul" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tri_error err = { 0 };
        assert_int_equal(tri_json_parse(&j, "t", bad[i], strlen(bad[i]), 100, &err), TRI_FORMAT);
        assert_null(strchr(err.text, '\n'));
    }
    assert_int_equal(tri_json_parse(&j, "t", "[]", 2, 1, NULL), TRI_LIMIT);
    const char *const large[] = { "[9223372036854775808]", "[-9223372036854775809]", "[1e400]" };
    for (size_t i = 0; i < 3; i++) {
        struct tri_error err = { 0 };
        assert_int_equal(tri_json_parse(&j, "t", large[i], strlen(large[i]), 100, &err),
                         TRI_FORMAT);
        assert_non_null(strstr(err.text, "too large"));
    }
}

/* jansson cuts strings that could not grow and reads past the cut: here it does not come to that.
 * Each allocation fails once; ASan looks for what is left behind or touched. */
static void json_without_memory(void **state)
{
    (void)state;
    static char text[20000];
    int n = snprintf(text, sizeof text,
                     "{\"a\":[1,2.5,true,null,{\"b\":[\"x\",\"\\u00e9\\n\"]}],\"long\":\"");
    memset(text + n, 'y', 9000);
    n += 9000;
    n += snprintf(text + n, sizeof text - (size_t)n, "\",\"last\":{\"k\":{},\"l\":[]}}");
    long failures = 0;
    for (long fail = 0;; fail++) {
        json_t *j = NULL;
        tri_mem_fail_after(fail);
        enum tri_status st = tri_json_parse(&j, "t", text, (size_t)n, sizeof text, NULL);
        tri_mem_fail_after(-1);
        if (st == TRI_OK) {
            assert_int_equal(json_string_length(json_object_get(j, "long")), 9000);
            assert_int_equal(json_object_size(j), 3);
            json_decref(j);
            break;
        }
        assert_int_equal(st, TRI_NOMEM);
        assert_null(j);
        failures++;
    }
    assert_true(failures > 40);
    /* A text that is wrong after much was taken: refused, and nothing is kept. */
    json_t *j = NULL;
    assert_int_equal(tri_json_parse(&j, "t", text, (size_t)n - 1, sizeof text, NULL), TRI_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_failure_wins),
        cmocka_unit_test(foreign_names_stay_on_one_line),
        cmocka_unit_test(an_error_is_one_line),
        cmocka_unit_test(budget_holds_at_the_ceiling),
        cmocka_unit_test(buffer_stops_at_its_maximum),
        cmocka_unit_test(json_limits),
        cmocka_unit_test(json_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
