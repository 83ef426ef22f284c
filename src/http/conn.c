/*
 * One connection: reads heads and bodies within their limits, hands complete requests over, notices
 * a client that left, is slow, or does not read, and closes in a way that lets a client read the
 * answer that explains why (it lingers: RFC 9112 section 9.6).
 */
#include "http/http_priv.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"

enum { READ_HIGH_BYTES = 256 << 10, EARLY_ADMIT_BYTES = 64 << 10 };
static const int64_t linger_most_bytes = 16 << 20;
static const double linger_s = 2, body_grace_s = 10;
/* While draining: a request that is on its way on a kept connection is still answered (503). */
static const double drain_idle_s = 0.5;

static void process(struct tri_http_request *c);

static size_t waiting(const struct tri_http_request *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->bev));
}

/* --- ending ---------------------------------------------------------------------------------- */

static void tell_gone(struct tri_http_request *c)
{
    struct tri_http_watch watch = c->watch;
    c->watch = (struct tri_http_watch){ 0 };
    if (c->phase == TRI__HTTP_ANSWER && watch.gone)
        watch.gone(watch.arg);
}

void tri__http_conn_free(struct tri_http_request *c)
{
    struct tri_http *http = c->http;
    tell_gone(c);
    if (c->prev)
        c->prev->next = c->next;
    else
        http->first = c->next;
    if (c->next)
        c->next->prev = c->prev;
    http->connections--;
    event_free(c->tick);
    bufferevent_free(c->bev);
    tri_buf_fini(&c->head_text);
    http->bodies_bytes -= (int64_t)c->body.len_bytes;
    tri_buf_fini(&c->body);
    tri_free(c);
    tri__http_conn_check_drain(http);
}

void tri__http_conn_check_drain(struct tri_http *http)
{
    if (http->draining && !http->first)
        event_base_loopbreak(http->base);
}

static void half_close_when_flushed(struct tri_http_request *c)
{
    if (waiting(c) == 0 && !c->http->tls)
        shutdown(bufferevent_getfd(c->bev), SHUT_WR);
}

static void begin_linger(struct tri_http_request *c)
{
    c->phase = TRI__HTTP_LINGER;
    c->linger_until_s = tri_clock_s() + linger_s;
    c->linger_bytes = 0;
    struct evbuffer *in = bufferevent_get_input(c->bev);
    evbuffer_drain(in, evbuffer_get_length(in));
    half_close_when_flushed(c);
}

static void reset_request(struct tri_http_request *c)
{
    c->http->bodies_bytes -= (int64_t)c->body.len_bytes;
    tri_buf_fini(&c->body);
    tri_buf_clear(&c->head_text);
    tri_buf_init(&c->body, (size_t)c->http->options.limits.body_bytes);
    c->phase = TRI__HTTP_HEAD;
    c->chunks = (struct tri_http_chunks){ 0 };
    c->watch = (struct tri_http_watch){ 0 };
    c->head_read = c->began = c->chunked_out = c->ended = c->full = c->admitted = false;
    c->extra_bytes = c->seen_bytes = 0;
    c->got_bytes = 0;
    c->status = 0;
    c->head_begin_s = 0;
    c->idle_since_s = tri_clock_s();
}

void tri__http_conn_done(struct tri_http_request *c)
{
    const struct tri_http_options *o = &c->http->options;
    if (o->answered)
        o->answered(o->arg, c, c->status, tri_clock_s() - c->head_begin_s);
    if (c->close_after || c->http->draining) {
        begin_linger(c);
        return;
    }
    reset_request(c);
    if (!c->in_handler) /* else the loop that called the handler goes on */
        process(c);
}

static const char *type_of(int status)
{
    return status == 413   ? "request_too_large"
           : status == 429 ? "rate_limit_error"
           : status == 503 ? "overloaded_error"
           : status == 408 ? "timeout_error"
                           : "invalid_request_error";
}

void tri__http_conn_fault(struct tri_http_request *c, struct tri_http_fault fault)
{
    char body[256];
    int n = snprintf(body, sizeof body,
                     "{\"error\":{\"message\":\"%s\",\"type\":\"%s\","
                     "\"param\":null,\"code\":\"http_%d\"}}\n",
                     fault.text, type_of(fault.status), fault.status);
    c->close_after = true;
    c->phase = TRI__HTTP_ANSWER;
    c->watch = (struct tri_http_watch){ 0 };
    tri_http_reply(c, fault.status, "application/json", body, (size_t)n);
}

void tri__http_refuse_limit(struct tri_http_request *c, const char *limit)
{
    const struct tri_http_options *o = &c->http->options;
    if (o->refused)
        o->refused(o->arg, limit);
}

/* --- reading --------------------------------------------------------------------------------- */

static void fault_here(struct tri_http_request *c, int status, const char *text)
{
    if (status == 413)
        tri__http_refuse_limit(c, "body_bytes");
    else if (status == 414)
        tri__http_refuse_limit(c, "line_bytes");
    else if (status == 431)
        tri__http_refuse_limit(c, strstr(text, "fields") ? "head_fields" : "head_bytes");
    else if (status == 408)
        tri__http_refuse_limit(c, c->phase == TRI__HTTP_BODY ? "body_rate" : "head_time");
    tri__http_conn_fault(c, (struct tri_http_fault){ status, text });
}

/* Asks the owner once whether this request is wanted. False: it has been answered. */
static bool admit(struct tri_http_request *c, bool body_is_left)
{
    const struct tri_http_options *o = &c->http->options;
    bool close_after = c->close_after;
    if (c->admitted || !o->admit)
        return true;
    c->phase = TRI__HTTP_ANSWER;
    c->close_after |= body_is_left; /* what is left of it cannot be told from a request */
    c->in_handler = true;
    c->admitted = o->admit(o->arg, c);
    c->in_handler = false;
    if (c->admitted)
        c->close_after = close_after;
    return c->admitted;
}

static void hand_over(struct tri_http_request *c)
{
    const struct tri_http_options *o = &c->http->options;
    if (!admit(c, false))
        return;
    c->phase = TRI__HTTP_ANSWER;
    c->in_handler = true;
    o->handle(o->arg, c);
    c->in_handler = false;
}

/* The limits that were set lower than what the checker itself refuses. */
static bool check_head(struct tri_http_request *c, size_t bytes)
{
    const struct tri_http_limits *l = &c->http->options.limits;
    const struct tri_http_head *h = &c->head;
    if ((int64_t)(h->method.bytes + h->target.bytes + sizeof " HTTP/1.1") > l->line_bytes)
        fault_here(c, 414, "the request line is too long");
    else if ((int64_t)bytes > l->head_bytes + 2)
        fault_here(c, 431, "the request head is too long");
    else if ((int64_t)h->fields > l->head_fields)
        fault_here(c, 431, "the request head has too many fields");
    else
        return true;
    return false;
}

/* True when a whole head was taken; false: more is needed, or it was refused. */
static bool take_head(struct tri_http_request *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    struct tri_http_fault fault = { 0 };
    size_t have = evbuffer_get_length(in);
    size_t look = have < TRI_HTTP_MAX_HEAD_BYTES + 2 ? have : TRI_HTTP_MAX_HEAD_BYTES + 2;
    if (have == 0)
        return false;
    if (c->head_begin_s == 0)
        c->head_begin_s = tri_clock_s();
    const char *text = (const char *)evbuffer_pullup(in, (ev_ssize_t)look);
    int64_t bytes = text ? tri_http_head_find(text, look, &c->seen_bytes, &fault) : -1;
    if (bytes == 0) {
        if ((int64_t)have > c->http->options.limits.head_bytes + 2)
            fault_here(c, 431, "the request head is too long");
        return false;
    }
    if (bytes < 0 || tri_buf_add(&c->head_text, text, (size_t)bytes) != TRI_OK) {
        fault_here(c, fault.status ? fault.status : 503, fault.text ? fault.text : "no memory");
        return false;
    }
    evbuffer_drain(in, (size_t)bytes);
    if (!tri_http_head_read(&c->head, c->head_text.data, (size_t)bytes, &fault)) {
        fault_here(c, fault.status, fault.text);
        return false;
    }
    c->head_read = true;
    c->http->serial += 0x9e3779b97f4a7c15u; /* odd: 2^64 different ones (Weyl's sequence) */
    c->serial = c->http->serial;
    c->close_after = !c->head.keep_alive;
    return check_head(c, (size_t)bytes);
}

/* Decides on the body by the head alone, before any of it is read. */
static bool begin_body(struct tri_http_request *c)
{
    if (c->head.content_length > c->http->options.limits.body_bytes) {
        fault_here(c, 413, "the body is too large");
        return false;
    }
    bool large = c->head.chunked || c->head.content_length > EARLY_ADMIT_BYTES;
    if ((large || c->head.expects_continue) && !admit(c, true))
        return false;
    c->phase = TRI__HTTP_BODY;
    c->body_begin_s = tri_clock_s();
    if (c->head.expects_continue)
        evbuffer_add_printf(bufferevent_get_output(c->bev), "HTTP/1.1 100 Continue\r\n\r\n");
    return true;
}

/* All bodies together are bounded too: a few hundred large ones would fill any machine. */
static bool count_body(struct tri_http_request *c, size_t before)
{
    struct tri_http *http = c->http;
    http->bodies_bytes += (int64_t)(c->body.len_bytes - before);
    if (http->bodies_bytes <= http->options.limits.bodies_bytes)
        return true;
    tri__http_refuse_limit(c, "bodies_bytes");
    tri_http_add_field(c, "Retry-After", "2");
    fault_here(c, 503, "the bodies of other requests leave no memory for this one now");
    return false;
}

/* True when the body is complete. */
static bool take_body(struct tri_http_request *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    struct tri_http_fault fault = { 0 };
    int64_t left = c->head.content_length - (int64_t)c->body.len_bytes;
    if (!c->head.chunked && left <= 0)
        return true;
    for (;;) {
        size_t have = evbuffer_get_contiguous_space(in);
        size_t before = c->body.len_bytes;
        struct tri_http_text t = { (const char *)evbuffer_pullup(in, (ev_ssize_t)have), have };
        if (have == 0 || !t.at)
            return false;
        int r = 0;
        if (c->head.chunked) {
            r = tri_http_chunks_feed(&c->chunks, &t, &c->body, &fault);
        } else {
            left = c->head.content_length - (int64_t)c->body.len_bytes;
            size_t n = (int64_t)have < left ? have : (size_t)left;
            if (tri_buf_add(&c->body, t.at, n) != TRI_OK) {
                fault = (struct tri_http_fault){ 503, "no memory for the body" };
                r = -1;
            } else {
                t.bytes -= n;
                r = (int64_t)c->body.len_bytes == c->head.content_length;
            }
        }
        c->got_bytes += (int64_t)(have - t.bytes);
        evbuffer_drain(in, have - t.bytes);
        if (!count_body(c, before))
            return false;
        if (r < 0)
            fault_here(c, fault.status, fault.text);
        if (r)
            return r > 0;
    }
}

/* Takes requests from what has been read, one after the other, as long as each is answered. */
static void process(struct tri_http_request *c)
{
    for (;;) {
        if (c->phase == TRI__HTTP_HEAD && (!take_head(c) || !begin_body(c)))
            return;
        if (c->phase != TRI__HTTP_BODY || !take_body(c))
            return;
        hand_over(c);
        if (c->phase != TRI__HTTP_HEAD)
            return;
    }
}

/* --- events ---------------------------------------------------------------------------------- */

static void on_read(struct bufferevent *bev, void *arg)
{
    struct tri_http_request *c = arg;
    if (c->phase == TRI__HTTP_LINGER) {
        struct evbuffer *in = bufferevent_get_input(bev);
        c->linger_bytes += (int64_t)evbuffer_get_length(in);
        evbuffer_drain(in, evbuffer_get_length(in));
        if (waiting(c) == 0 && c->linger_bytes > linger_most_bytes)
            tri__http_conn_free(c); /* whoever sends on and on has had the time to read */
        return;
    }
    process(c);
}

static void on_write(struct bufferevent *bev, void *arg)
{
    struct tri_http_request *c = arg;
    (void)bev;
    if (c->phase == TRI__HTTP_LINGER && waiting(c) == 0) {
        if (c->http->tls || c->peer_closed)
            tri__http_conn_free(c);
        else
            half_close_when_flushed(c);
        return;
    }
    if (c->full && (int64_t)waiting(c) <= c->http->options.limits.output_bytes / 2) {
        c->full = false;
        if (c->watch.drained)
            c->watch.drained(c->watch.arg);
    }
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct tri_http_request *c = arg;
    (void)bev;
    if (what & BEV_EVENT_CONNECTED) /* the TLS handshake is complete */
        return;
    c->peer_closed = true;
    bool may_still_read = (what & BEV_EVENT_EOF) && c->phase == TRI__HTTP_LINGER && waiting(c) > 0;
    if (!may_still_read)
        tri__http_conn_free(c);
}

/* Output that does not get less for `stall_s` has no reader. */
static bool stalled(struct tri_http_request *c, double now)
{
    size_t left = waiting(c);
    if (left == 0 || left < c->tick_output || c->stalled_since_s == 0)
        c->stalled_since_s = now;
    c->tick_output = left;
    if (now - c->stalled_since_s < c->http->options.limits.stall_s)
        return false;
    tri__http_refuse_limit(c, "write_stall");
    return true;
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct tri_http_request *c = arg;
    const struct tri_http_limits *l = &c->http->options.limits;
    double now = tri_clock_s();
    (void)fd;
    (void)what;
    switch (c->phase) {
    case TRI__HTTP_HEAD:
        if (c->head_begin_s == 0 &&
            now - c->idle_since_s > (c->http->draining ? drain_idle_s : l->idle_s))
            tri__http_conn_free(c);
        else if (c->head_begin_s > 0 && now - c->head_begin_s > l->head_s)
            fault_here(c, 408, "the request head came too slowly");
        return;
    case TRI__HTTP_BODY: {
        double spent = now - c->body_begin_s;
        if (spent > body_grace_s && (double)c->got_bytes < (double)l->body_bytes_s * spent)
            fault_here(c, 408, "the body came too slowly");
        return;
    }
    case TRI__HTTP_ANSWER:
        if (stalled(c, now))
            tri__http_conn_free(c);
        return;
    case TRI__HTTP_LINGER:
        if (waiting(c) == 0 ? now > c->linger_until_s : stalled(c, now))
            tri__http_conn_free(c);
        return;
    }
}

/* --- accepting ------------------------------------------------------------------------------- */

static void name_peer(struct tri_http_request *c, const struct sockaddr *peer, socklen_t bytes)
{
    if (getnameinfo(peer, bytes, c->peer, sizeof c->peer, NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(c->peer, sizeof c->peer, "?");
    c->loopback = !strncmp(c->peer, "127.", 4) || !strcmp(c->peer, "::1") ||
                  !strncmp(c->peer, "::ffff:127.", 11);
}

static int64_t connections_of(const struct tri_http *http, const char *peer)
{
    int64_t n = 0;
    for (const struct tri_http_request *c = http->first; c; c = c->next)
        n += !strcmp(c->peer, peer);
    return n;
}

/* Owns fd, also when it fails. */
static struct tri_http_request *open_connection(struct tri_http *http, evutil_socket_t fd)
{
    const struct timeval second = { 1, 0 };
    struct tri_http_request *c = tri_calloc(1, sizeof *c);
    if (!c) {
        evutil_closesocket(fd);
        return NULL;
    }
    c->http = http;
    c->bev = http->tls ? tri__http_tls_bufferevent(http, fd)
                       : bufferevent_socket_new(http->base, fd, BEV_OPT_CLOSE_ON_FREE);
    c->tick = event_new(http->base, -1, EV_PERSIST, on_tick, c);
    if (!c->bev || !c->tick || event_add(c->tick, &second) != 0) {
        if (c->tick)
            event_free(c->tick);
        if (c->bev)
            bufferevent_free(c->bev); /* closes fd */
        else
            evutil_closesocket(fd);
        tri_free(c);
        return NULL;
    }
    tri_buf_init(&c->head_text, TRI_HTTP_MAX_HEAD_BYTES + 2);
    reset_request(c);
    c->next = http->first;
    if (http->first)
        http->first->prev = c;
    http->first = c;
    http->connections++;
    return c;
}

void tri__http_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *peer,
                      int peer_bytes, void *arg)
{
    struct tri_http *http = arg;
    const struct tri_http_limits *l = &http->options.limits;
    int one = 1;
    (void)listener;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct tri_http_request *c = open_connection(http, fd);
    if (!c)
        return;
    name_peer(c, peer, (socklen_t)peer_bytes);
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, READ_HIGH_BYTES);
    bufferevent_setwatermark(c->bev, EV_WRITE, (size_t)l->output_bytes / 2, 0);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    if (http->connections > l->connections) {
        tri__http_refuse_limit(c, "connections");
        tri__http_conn_fault(c, (struct tri_http_fault){ 503, "too many connections" });
    } else if ((!c->loopback || l->loopback_too) &&
               connections_of(http, c->peer) > l->connections_per_peer) {
        tri__http_refuse_limit(c, "connections_per_peer");
        tri__http_conn_fault(c, (struct tri_http_fault){ 429, "too many connections from one "
                                                              "address" });
    }
}
