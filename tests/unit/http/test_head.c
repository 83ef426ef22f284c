/*
 * The head checker and the chunk decoder against a table of heads. What must be refused is from
 * RFC 9112 and from the list of leniencies found in servers (shared/serving.md 4.3).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "http/http.h"

static int status_of(const char *text, size_t bytes, struct tri_http_head *head)
{
    struct tri_http_fault fault = { 0 };
    size_t seen = 0;
    int64_t n = tri_http_head_find(text, bytes, &seen, &fault);
    if (n < 0)
        return fault.status;
    if (n == 0)
        return 0;
    assert_int_equal(n, bytes);
    return tri_http_head_read(head, text, bytes, &fault) ? 200 : fault.status;
}

struct head_case {
    int status;
    const char *text;
};

static const struct head_case cases[] = {
    { 200, "GET / HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 200, "GET /a?b=c&d HTTP/1.1\r\nHost: a:80\r\n\r\n" },
    { 200, "GET / HTTP/1.0\r\n\r\n" },
    { 200, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 200, "GET http://A/x HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 200, "POST / HTTP/1.1\r\nHost: [::1]:8000\r\nContent-Length: 0\r\n\r\n" },
    { 200, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n" },
    { 200, "GET / HTTP/1.1\r\nHost:\r\nX: \xe4\xb8\x80\r\n\r\n" },
    { 0, "GET / HTTP/1.1\r\nHost: a\r\n" },
    { 0, "GET / HTTP/1.1\r\nHost: a\r\n\r" },
    { 400, "GET / HTTP/1.1\nHost: a\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a\r\n\n" },
    { 400, "GET / HTTP/1.1\r\nHo\rst: a\r\n\r\n" },
    { 400, "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\n X: 1\r\nHost: a\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost : a\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a\r\nX(: 1\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n" },
    { 400, "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 400, "GET http://a HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 400, "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 400, "GET * HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 400, "GET a HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 400, "GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 400, "GET /#x HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 400, "GET /  HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 400, "GET /\tHTTP/1.1\r\nHost: a\r\n\r\n" },
    { 400, "GET / HTTP/1.1 \r\nHost: a\r\n\r\n" },
    { 400, "GET /\r\nHost: a\r\n\r\n" },
    { 400, "GET / http/1.1\r\nHost: a\r\n\r\n" },
    { 505, "GET / HTTP/2.0\r\nHost: a\r\n\r\n" },
    { 505, "GET / HTTP/1.2\r\nHost: a\r\n\r\n" },
    { 501, "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 501, "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 501, "get / HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 400, "G@T / HTTP/1.1\r\nHost: a\r\n\r\n" },
    { 400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n" },
    { 400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n" },
    { 400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n" },
    { 400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n" },
    { 400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\n" },
    { 400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n" },
    { 400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1234567890123456789\r\n\r\n" },
    { 400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: "
           "chunked\r\n\r\n" },
    { 400, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n" },
    { 400, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n" },
    { 400, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
           "chunked\r\n\r\n" },
    { 400, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n" },
    { 400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" },
    { 415, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Encoding: gzip\r\n\r\n" },
    { 417, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: magic\r\n\r\n" },
};

static void heads(void **state)
{
    (void)state;
    static struct tri_http_head head;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int got = status_of(cases[i].text, strlen(cases[i].text), &head);
        if (got != cases[i].status)
            fail_msg("case %zu: %d instead of %d: %s", i, got, cases[i].status, cases[i].text);
    }
    static const char nul[] = "GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n";
    assert_int_equal(status_of(nul, sizeof nul - 1, &head), 400);
}

/* Cut anywhere, found at the same place. */
static void a_head_may_come_in_pieces(void **state)
{
    (void)state;
    static const char text[] = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    struct tri_http_fault fault = { 0 };
    size_t seen = 0;
    for (size_t n = 0; n < sizeof text - 1 - 3; n++)
        assert_int_equal(tri_http_head_find(text, n, &seen, &fault), 0);
    assert_int_equal(tri_http_head_find(text, sizeof text - 1, &seen, &fault), sizeof text - 1 - 3);
}

static void what_a_head_says(void **state)
{
    (void)state;
    static struct tri_http_head h;
    static const char text[] = "POST /a/b?c=1?2 HTTP/1.1\r\nhost: a\r\nX-Key:  v w \t\r\n"
                               "Expect: 100-Continue\r\nContent-Length: 12\r\nConnection: x, "
                               "Close\r\n\r\n";
    assert_int_equal(status_of(text, sizeof text - 1, &h), 200);
    assert_memory_equal(h.path.at, "/a/b", h.path.bytes);
    assert_int_equal(h.path.bytes, 4);
    assert_int_equal(h.query.bytes, 5);
    assert_memory_equal(h.query.at, "c=1?2", 5);
    assert_int_equal(h.content_length, 12);
    assert_true(h.expects_continue);
    assert_false(h.keep_alive);
    struct tri_http_text v = tri_http_head_field(&h, "x-key");
    assert_int_equal(v.bytes, 3);
    assert_memory_equal(v.at, "v w", 3);
    assert_null(tri_http_head_field(&h, "absent").at);
    static const char old[] = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    assert_int_equal(status_of(old, sizeof old - 1, &h), 200);
    assert_true(h.keep_alive);
}

static char big[TRI_HTTP_MAX_HEAD_BYTES * 2];

static void limits(void **state)
{
    (void)state;
    static struct tri_http_head h;
    /* request line: method, target, version and CR LF */
    for (int over = 0; over <= 1; over++) {
        size_t n = 0;
        n += (size_t)sprintf(big, "GET /");
        size_t want = TRI_HTTP_MAX_LINE_BYTES - strlen(" HTTP/1.1\r") + (size_t)over;
        while (n < want)
            big[n++] = 'a';
        n += (size_t)sprintf(big + n, " HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_int_equal(status_of(big, n, &h), over ? 414 : 200);
    }
    for (int over = 0; over <= 1; over++) { /* the last LF is byte MAX + 1 */
        size_t n = (size_t)sprintf(big, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
        while (n < TRI_HTTP_MAX_HEAD_BYTES - 3 + (size_t)over)
            big[n++] = 'a';
        n += (size_t)sprintf(big + n, "\r\n\r\n");
        assert_int_equal(status_of(big, n, &h), over ? 431 : 200);
    }
    for (int over = 0; over <= 1; over++) {
        size_t n = (size_t)sprintf(big, "GET / HTTP/1.1\r\nHost: a\r\n");
        for (int i = 1; i < TRI_HTTP_MAX_FIELDS + over; i++)
            n += (size_t)sprintf(big + n, "X: a\r\n");
        n += (size_t)sprintf(big + n, "\r\n");
        assert_int_equal(status_of(big, n, &h), over ? 431 : 200);
    }
}

/* Decodes in pieces of `step`; returns the fault's status, 200 at the end, 0 when more is due. */
static int decode(const char *text, size_t step, struct tri_buf *body)
{
    struct tri_http_chunks c = { 0 };
    struct tri_http_fault fault = { 0 };
    size_t bytes = strlen(text);
    tri_buf_init(body, 64);
    for (size_t at = 0; at < bytes; at += step) {
        struct tri_http_text t = { text + at, bytes - at < step ? bytes - at : step };
        int r = tri_http_chunks_feed(&c, &t, body, &fault);
        if (r < 0)
            return fault.status;
        if (r > 0)
            return t.bytes == 0 && at + step >= bytes ? 200 : 1;
    }
    return 0;
}

static void chunks(void **state)
{
    (void)state;
    static const struct head_case bodies[] = {
        { 200, "3\r\nabc\r\n0\r\n\r\n" },
        { 200, "0\r\n\r\n" },
        { 200, "3;a=b\r\nabc\r\n00\r\nTrailer: x\r\n\r\n" },
        { 0, "3\r\nab" },
        { 400, "+3\r\nabc\r\n0\r\n\r\n" },
        { 400, " 3\r\nabc\r\n0\r\n\r\n" },
        { 400, "0x3\r\nabc\r\n0\r\n\r\n" },
        { 400, "-1\r\nabc\r\n0\r\n\r\n" },
        { 400, "3\nabc\r\n0\r\n\r\n" },
        { 400, "3\r\nabcd\r\n0\r\n\r\n" },
        { 400, "3\r\nabc\n0\r\n\r\n" },
        { 400, "3 \r\nabc\r\n0\r\n\r\n" },
        { 400, "\r\nabc\r\n0\r\n\r\n" },
        { 400, ";\r\n\r\n" },
        { 400, "fffffffffffffffff\r\nabc" },
        { 400, "3;\x01\r\nabc\r\n0\r\n\r\n" },
        { 413, "41\r\n01234567890123456789012345678901234567890123456789012345678901234\r\n" },
    };
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        for (size_t step = 1; step < 40; step += 6) {
            struct tri_buf body;
            int got = decode(bodies[i].text, step, &body);
            if (got != bodies[i].status)
                fail_msg("case %zu, step %zu: %d", i, step, got);
            if (got == 200 && bodies[i].text[0] == '3')
                assert_string_equal(body.data, "abc");
            tri_buf_fini(&body);
        }
}

static void chunk_line_limit(void **state)
{
    (void)state;
    for (int over = 0; over <= 1; over++) {
        char text[TRI_HTTP_MAX_CHUNK_LINE_BYTES + 64];
        size_t n = (size_t)sprintf(text, "1;");
        while (n < TRI_HTTP_MAX_CHUNK_LINE_BYTES - 2 + (size_t)over)
            text[n++] = 'x';
        sprintf(text + n, "\r\na\r\n0\r\n\r\n");
        struct tri_buf body;
        assert_int_equal(decode(text, 1000, &body), over ? 400 : 200);
        tri_buf_fini(&body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads),  cmocka_unit_test(a_head_may_come_in_pieces),
        cmocka_unit_test(limits), cmocka_unit_test(what_a_head_says),
        cmocka_unit_test(chunks), cmocka_unit_test(chunk_line_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
