/* The server over real sockets: keep-alive, pipelining, limits, leaving clients, slow readers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/http.h"

struct rig {
    struct tri_http *http;
    pthread_t thread;
    struct tri_http_request *held;
    atomic_int handled, gone, drained, limits, admitted;
    char last_limit[32];
};

static void on_gone(void *arg)
{
    struct rig *rig = arg;
    rig->held = NULL;
    atomic_fetch_add(&rig->gone, 1);
}

static void on_drained(void *arg)
{
    struct rig *rig = arg;
    atomic_fetch_add(&rig->drained, 1);
    tri_http_end(rig->held);
}

static bool path_is(const struct tri_http_request *q, const char *path)
{
    struct tri_http_text p = tri_http_head(q)->path;
    return p.bytes == strlen(path) && !memcmp(p.at, path, p.bytes);
}

/* Everything but /no, which is refused by its head. */
static bool admit(void *arg, struct tri_http_request *q)
{
    struct rig *rig = arg;
    atomic_fetch_add(&rig->admitted, 1);
    if (!path_is(q, "/no"))
        return true;
    tri_http_reply(q, 404, "text/plain", "no", 2);
    return false;
}

/* /echo: the body. /take: its length, after it was taken. /hold: no answer. /big: more than the
 * output limit, ended when drained. */
static void handle(void *arg, struct tri_http_request *q)
{
    struct rig *rig = arg;
    size_t bytes = 0;
    const char *body = tri_http_body(q, &bytes);
    atomic_fetch_add(&rig->handled, 1);
    if (path_is(q, "/echo")) {
        tri_http_reply(q, 200, "text/plain", body, bytes);
    } else if (path_is(q, "/take")) {
        char text[32];
        struct tri_buf taken = tri_http_take_body(q);
        int n = snprintf(text, sizeof text, "%zu", taken.len_bytes);
        tri_http_body(q, &bytes);
        assert_int_equal(bytes, 0);
        tri_buf_fini(&taken);
        tri_http_reply(q, 200, "text/plain", text, (size_t)n);
    } else if (path_is(q, "/stream")) {
        tri_http_begin(q, 200, "text/plain");
        tri_http_write(q, "one", 3);
        tri_http_write(q, "two", 3);
        tri_http_end(q);
    } else {
        const struct tri_http_watch watch = { on_gone, on_drained, rig };
        rig->held = q;
        tri_http_watch(q, &watch);
        if (path_is(q, "/big")) {
            static char zeros[64 << 10];
            tri_http_begin(q, 200, "text/plain");
            while (!tri_http_write(q, zeros, sizeof zeros))
                ;
        }
    }
}

static void on_limit(void *arg, const char *limit)
{
    struct rig *rig = arg;
    snprintf(rig->last_limit, sizeof rig->last_limit, "%s", limit);
    atomic_fetch_add(&rig->limits, 1);
}

static void *loop(void *arg)
{
    struct rig *rig = arg;
    assert_int_equal(tri_http_run(rig->http, NULL), TRI_OK);
    return NULL;
}

static void rig_up(struct rig *rig, const struct tri_http_limits *limits)
{
    struct tri_http_options o = {
        .admit = admit, .handle = handle, .refused = on_limit, .arg = rig
    };
    struct tri_error err = { 0 };
    o.limits = limits ? *limits : tri_http_limits_default();
    memset(rig, 0, sizeof *rig);
    if (tri_http_open(&rig->http, &o, &err) != TRI_OK)
        fail_msg("%s", err.text);
    assert_int_equal(pthread_create(&rig->thread, NULL, loop, rig), 0);
}

static void drain(void *arg)
{
    tri_http_drain(arg);
}

static void stop(void *arg)
{
    tri_http_stop(arg);
}

static void rig_down(struct rig *rig)
{
    assert_int_equal(tri_http_post(rig->http, stop, rig->http), TRI_OK);
    pthread_join(rig->thread, NULL);
    tri_http_close(rig->http);
}

static int dial(const struct rig *rig)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)tri_http_port(rig->http)),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Reads until `until` has been seen (NULL: until the end), 5 s at most. */
static size_t hear(int fd, char *out, size_t room, const char *until)
{
    size_t n = 0;
    out[0] = 0;
    while (n + 1 < room && (!until || !strstr(out, until))) {
        struct pollfd p = { fd, POLLIN, 0 };
        if (poll(&p, 1, 5000) <= 0)
            break;
        ssize_t got = read(fd, out + n, room - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
        out[n] = 0;
    }
    return n;
}

static void wait_for(atomic_int *value, int want)
{
    for (int i = 0; i < 500 && atomic_load(value) < want; i++)
        usleep(10000);
    assert_int_equal(atomic_load(value), want);
}

static void keep_alive_and_pipelining(void **state)
{
    (void)state;
    struct rig rig;
    char text[4096];
    rig_up(&rig, NULL);
    int fd = dial(&rig);
    say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    hear(fd, text, sizeof text, "\r\n\r\nabc");
    assert_non_null(strstr(text, "HTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(text, "Content-Length: 3\r\n"));
    say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            "2\r\nde\r\n1\r\nf\r\n0\r\n\r\nGET /stream HTTP/1.1\r\nHost: a\r\n\r\n"
            "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    hear(fd, text, sizeof text, NULL);
    assert_non_null(strstr(text, "\r\n\r\ndefHTTP/1.1 200"));
    assert_non_null(strstr(text, "\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\nHTTP/1.1 200"));
    assert_non_null(strstr(text, "Connection: close\r\n"));
    assert_int_equal(atomic_load(&rig.handled), 4);
    close(fd);
    rig_down(&rig);
}

static void expect_fault(const struct rig *rig, const char *request, const char *status)
{
    char text[2048];
    int fd = dial(rig);
    say(fd, request);
    hear(fd, text, sizeof text, NULL); /* ends: the connection is closed */
    if (strncmp(text, status, strlen(status)) != 0 || !strstr(text, "{\"error\":{\"message\":"))
        fail_msg("%s\ngave %s", request, text);
    close(fd);
}

static void faults_answer_and_close(void **state)
{
    (void)state;
    struct rig rig;
    struct tri_http_limits l = tri_http_limits_default();
    l.body_bytes = 10;
    rig_up(&rig, &l);
    expect_fault(&rig, "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400");
    expect_fault(&rig, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n01234567890",
                 "HTTP/1.1 413");
    expect_fault(&rig,
                 "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n"
                 "01234567890\r\n0\r\n\r\n",
                 "HTTP/1.1 413");
    assert_string_equal(rig.last_limit, "body_bytes");
    assert_int_equal(atomic_load(&rig.handled), 0);
    /* at the limit */
    char text[1024];
    int fd = dial(&rig);
    say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789");
    hear(fd, text, sizeof text, "0123456789");
    assert_non_null(strstr(text, "200 OK"));
    close(fd);
    rig_down(&rig);
}

static void a_leaving_client_is_told(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, NULL);
    int fd = dial(&rig);
    say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&rig.handled, 1);
    close(fd);
    wait_for(&rig.gone, 1);
    rig_down(&rig);
    assert_int_equal(atomic_load(&rig.gone), 1);
}

static void closing_tells_the_requests_in_flight(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, NULL);
    int fd = dial(&rig);
    say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&rig.handled, 1);
    rig_down(&rig);
    assert_int_equal(atomic_load(&rig.gone), 1);
    close(fd);
}

static void a_slow_reader_is_bounded(void **state)
{
    (void)state;
    struct rig rig;
    static char text[16 << 20];
    rig_up(&rig, NULL);
    int fd = dial(&rig);
    say(fd, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&rig.handled, 1);
    usleep(100000);
    int before = atomic_load(&rig.drained);
    size_t n = hear(fd, text, sizeof text, "\r\n0\r\n\r\n");
    assert_true(n > (1 << 20) && n < (2 << 20));
    wait_for(&rig.drained, 1);
    assert_true(before == 0 || before == 1); /* socket buffers may have held it all */
    close(fd);
    rig_down(&rig);
}

static void slow_heads_time_out(void **state)
{
    (void)state;
    struct rig rig;
    struct tri_http_limits l = tri_http_limits_default();
    l.head_s = 0.5;
    l.idle_s = 0.5;
    rig_up(&rig, &l);
    expect_fault(&rig, "GET / HTT", "HTTP/1.1 408");
    char text[256];
    int fd = dial(&rig); /* says nothing: closed without a word */
    assert_int_equal(hear(fd, text, sizeof text, NULL), 0);
    close(fd);
    rig_down(&rig);
}

static void too_many_connections(void **state)
{
    (void)state;
    struct rig rig;
    struct tri_http_limits l = tri_http_limits_default();
    l.connections = 2;
    rig_up(&rig, &l);
    char text[1024];
    int a = dial(&rig), b = dial(&rig);
    say(b, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    hear(b, text, sizeof text, "\r\n\r\n");
    assert_non_null(strstr(text, "200 OK"));
    int c = dial(&rig);
    hear(c, text, sizeof text, NULL);
    assert_non_null(strstr(text, "HTTP/1.1 503"));
    close(a);
    close(b);
    close(c);
    rig_down(&rig);
    l.connections = 100;
    l.connections_per_peer = 1;
    l.loopback_too = true;
    rig_up(&rig, &l);
    a = dial(&rig);
    c = dial(&rig);
    hear(c, text, sizeof text, NULL);
    assert_non_null(strstr(text, "HTTP/1.1 429"));
    close(a);
    close(c);
    rig_down(&rig);
}

static void heads_are_judged_before_bodies(void **state)
{
    (void)state;
    struct rig rig;
    char text[1024];
    rig_up(&rig, NULL);
    /* a long body is refused before any of it is sent, and the connection closes */
    int fd = dial(&rig);
    say(fd, "POST /no HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    hear(fd, text, sizeof text, NULL);
    assert_non_null(strstr(text, "HTTP/1.1 404"));
    assert_non_null(strstr(text, "Connection: close"));
    close(fd);
    /* so is one that waits to be asked for */
    fd = dial(&rig);
    say(fd, "POST /no HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    hear(fd, text, sizeof text, NULL);
    assert_null(strstr(text, "100 Continue"));
    assert_non_null(strstr(text, "HTTP/1.1 404"));
    close(fd);
    /* a short one is read, and the connection goes on */
    fd = dial(&rig);
    say(fd, "POST /no HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
            "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    hear(fd, text, sizeof text, "\r\n\r\n4");
    assert_non_null(strstr(text, "Connection: keep-alive"));
    assert_non_null(strstr(text, "200 OK"));
    close(fd);
    assert_int_equal(atomic_load(&rig.admitted), 4); /* each once */
    assert_int_equal(atomic_load(&rig.handled), 1);
    rig_down(&rig);
}

static void bodies_together_are_bounded(void **state)
{
    (void)state;
    struct rig rig;
    struct tri_http_limits l = tri_http_limits_default();
    char text[1024];
    l.bodies_bytes = 10;
    rig_up(&rig, &l);
    int held = dial(&rig);
    say(held, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n123456");
    usleep(100000);
    int fd = dial(&rig);
    say(fd, "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    hear(fd, text, sizeof text, "\r\n\r\n4"); /* 10 together: the limit itself */
    assert_non_null(strstr(text, "200 OK"));
    say(fd, "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nbody5");
    hear(fd, text, sizeof text, NULL);
    assert_non_null(strstr(text, "HTTP/1.1 503"));
    assert_non_null(strstr(text, "Retry-After"));
    assert_string_equal(rig.last_limit, "bodies_bytes");
    close(fd);
    close(held);
    usleep(100000);
    fd = dial(&rig);
    say(fd, "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789");
    hear(fd, text, sizeof text, "\r\n\r\n10"); /* what was held is given back */
    assert_non_null(strstr(text, "200 OK"));
    close(fd);
    rig_down(&rig);
}

static void draining_ends_with_the_last_request(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, NULL);
    int idle = dial(&rig), busy = dial(&rig);
    char text[1024];
    say(busy, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&rig.handled, 1);
    assert_int_equal(tri_http_post(rig.http, drain, rig.http), TRI_OK);
    assert_int_equal(hear(idle, text, sizeof text, NULL), 0);
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)tri_http_port(rig.http)),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int late = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(late, (struct sockaddr *)&to, sizeof to), -1); /* refused, not kept */
    close(late);
    close(busy);
    pthread_join(rig.thread, NULL);
    tri_http_close(rig.http);
    close(idle);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keep_alive_and_pipelining),
        cmocka_unit_test(faults_answer_and_close),
        cmocka_unit_test(a_leaving_client_is_told),
        cmocka_unit_test(closing_tells_the_requests_in_flight),
        cmocka_unit_test(a_slow_reader_is_bounded),
        cmocka_unit_test(slow_heads_time_out),
        cmocka_unit_test(too_many_connections),
        cmocka_unit_test(heads_are_judged_before_bodies),
        cmocka_unit_test(bodies_together_are_bounded),
        cmocka_unit_test(draining_ends_with_the_last_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
