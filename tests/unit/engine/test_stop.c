/* Stop strings, against a search in the whole text: whatever the cuts, nothing of a match leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/engine.h"

struct out {
    char text[4096];
    size_t n;
};

static void collect(void *arg, const char *bytes, size_t n)
{
    struct out *out = arg;
    assert_true(out->n + n <= sizeof out->text);
    memcpy(out->text + out->n, bytes, n);
    out->n += n;
}

/* First byte at which any string ends; the longest of those counts. -1: none. */
static int64_t slow_find(const char *text, size_t n, const char *const *strings, int64_t count,
                         size_t *begin)
{
    for (size_t end = 1; end <= n; end++) {
        int64_t best = -1;
        for (int64_t i = 0; i < count; i++) {
            size_t len = strlen(strings[i]);
            if (len <= end && !memcmp(text + end - len, strings[i], len) &&
                (best < 0 || len > strlen(strings[best])))
                best = i;
        }
        if (best >= 0) {
            *begin = end - strlen(strings[best]);
            return best;
        }
    }
    *begin = n;
    return -1;
}

/* What may still become a match: the longest suffix that is a proper prefix of a string. */
static size_t slow_held(const char *text, size_t n, const char *const *strings, int64_t count)
{
    size_t held = 0;
    for (int64_t i = 0; i < count; i++)
        for (size_t len = 1; len < strlen(strings[i]) && len <= n; len++)
            if (len > held && !memcmp(text + n - len, strings[i], len))
                held = len;
    return held;
}

static void any_cut_gives_the_same(void **state)
{
    (void)state;
    static const char *const sets[][3] = {
        { "aab", "abab", "bbbb" },
        { "aaaa", "baaa", "ab" },
        { "abcabd", "c", "abcabcabd" },
    };
    srand(1);
    int matches = 0;
    for (int round = 0; round < 6000; round++) {
        const char *const *strings = sets[round % 3];
        int64_t count = 1 + round / 3 % 3;
        char text[40];
        size_t n = (size_t)(rand() % 40);
        for (size_t i = 0; i < n; i++)
            text[i] = (char)('a' + rand() % (round % 3 == 2 ? 4 : 2));
        size_t begin = 0;
        int64_t want = slow_find(text, n, strings, count, &begin), got = -1;
        struct tri_stop *stop = NULL;
        assert_int_equal(tri_stop_open(&stop, strings, count, NULL), TRI_OK);
        struct out out = { .n = 0 };
        for (size_t at = 0; at < n && got < 0;) {
            size_t piece = 1 + (size_t)(rand() % 6);
            piece = piece > n - at ? n - at : piece;
            got = tri_stop_feed(stop, text + at, piece, collect, &out);
            at += piece;
            if (got < 0) /* nothing more is held than must be, and nothing less */
                assert_int_equal(out.n, at - slow_held(text, at, strings, count));
        }
        if (got < 0)
            tri_stop_flush(stop, collect, &out);
        assert_int_equal(got, want);
        assert_int_equal(out.n, begin);
        assert_memory_equal(out.text, text, begin);
        matches += want >= 0;
        tri_stop_close(stop);
    }
    assert_true(matches > 1000 && matches < 5900);
}

static void limits(void **state)
{
    (void)state;
    char text[TRI_STOP_MAX_BYTES + 2];
    memset(text, 'x', sizeof text);
    text[TRI_STOP_MAX_BYTES + 1] = 0;
    const char *many[TRI_STOP_MAX_STRINGS + 1];
    for (int i = 0; i <= TRI_STOP_MAX_STRINGS; i++)
        many[i] = text + 1;
    struct tri_stop *stop = NULL;
    assert_int_equal(tri_stop_open(&stop, many, TRI_STOP_MAX_STRINGS + 1, NULL), TRI_LIMIT);
    assert_int_equal(tri_stop_open(&stop, many, TRI_STOP_MAX_STRINGS, NULL), TRI_OK);
    struct out out = { .n = 0 };
    assert_int_equal(tri_stop_feed(stop, text, TRI_STOP_MAX_BYTES, collect, &out), 0);
    assert_int_equal(out.n, 0);
    assert_int_equal(tri_stop_feed(stop, "later", 5, collect, &out), -1);
    assert_int_equal(out.n, 0);
    tri_stop_reset(stop);
    assert_int_equal(tri_stop_feed(stop, "later", 5, collect, &out), -1);
    assert_int_equal(out.n, 5);
    tri_stop_close(stop);
    const char *bad = text;
    assert_int_equal(tri_stop_open(&stop, &bad, 1, NULL), TRI_LIMIT);
    bad = "";
    assert_int_equal(tri_stop_open(&stop, &bad, 1, NULL), TRI_ARG);
    assert_int_equal(tri_stop_open(&stop, NULL, 0, NULL), TRI_OK);
    out.n = 0;
    assert_int_equal(tri_stop_feed(stop, "all", 3, collect, &out), -1);
    assert_int_equal(out.n, 3);
    tri_stop_close(stop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cut_gives_the_same),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
