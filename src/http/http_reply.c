/* Answers: status line and fields, whole bodies, chunked streams with a bound on what waits. */
#include "http/http_priv.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

const char *tri_http_reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {
        { 200, "OK" },
        { 204, "No Content" },
        { 304, "Not Modified" },
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 403, "Forbidden" },
        { 404, "Not Found" },
        { 405, "Method Not Allowed" },
        { 408, "Request Timeout" },
        { 409, "Conflict" },
        { 413, "Content Too Large" },
        { 414, "URI Too Long" },
        { 415, "Unsupported Media Type" },
        { 417, "Expectation Failed" },
        { 421, "Misdirected Request" },
        { 429, "Too Many Requests" },
        { 431, "Request Header Fields Too Large" },
        { 500, "Internal Server Error" },
        { 501, "Not Implemented" },
        { 503, "Service Unavailable" },
        { 505, "HTTP Version Not Supported" },
    };
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Status";
}

const struct tri_http_head *tri_http_head(const struct tri_http_request *request)
{
    return request->head_read ? &request->head : NULL;
}

const char *tri_http_body(const struct tri_http_request *request, size_t *bytes)
{
    *bytes = request->body.len_bytes;
    return request->body.data ? request->body.data : "";
}

struct tri_buf tri_http_take_body(struct tri_http_request *request)
{
    struct tri_buf body = request->body;
    request->http->bodies_bytes -= (int64_t)body.len_bytes;
    tri_buf_init(&request->body, body.max_bytes);
    return body;
}

const char *tri_http_peer(const struct tri_http_request *request)
{
    return request->peer;
}

bool tri_http_peer_is_loopback(const struct tri_http_request *request)
{
    return request->loopback;
}

uint64_t tri_http_serial(const struct tri_http_request *request)
{
    return request->serial;
}

void tri_http_watch(struct tri_http_request *request, const struct tri_http_watch *watch)
{
    request->watch = *watch;
}

void tri_http_add_field(struct tri_http_request *request, const char *name, const char *value)
{
    struct tri_http_request *c = request;
    TRI_ASSERT(!c->began && !strpbrk(name, "\r\n:") && !strpbrk(value, "\r\n"));
    size_t room = sizeof c->extra - c->extra_bytes;
    int n = snprintf(c->extra + c->extra_bytes, room, "%s: %s\r\n", name, value);
    TRI_ASSERT(n > 0 && (size_t)n < room);
    c->extra_bytes += (size_t)n;
}

static bool is_head(const struct tri_http_request *c)
{
    return c->head_read && c->head.method.bytes == 4 && !memcmp(c->head.method.at, "HEAD", 4);
}

static void put_head(struct tri_http_request *c, int status, const char *content_type)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);
    char date[40];
    time_t now = time(NULL);
    struct tm tm;
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &tm));
    c->began = true;
    c->status = status;
    if (c->http->draining)
        c->close_after = true;
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nConnection: %s\r\n", status,
                        tri_http_reason(status), date, c->close_after ? "close" : "keep-alive");
    if (content_type)
        evbuffer_add_printf(out, "Content-Type: %s\r\nX-Content-Type-Options: nosniff\r\n",
                            content_type);
    evbuffer_add(out, c->extra, c->extra_bytes);
}

void tri_http_reply(struct tri_http_request *request, int status, const char *content_type,
                    const void *body, size_t bytes)
{
    struct tri_http_request *c = request;
    struct evbuffer *out = bufferevent_get_output(c->bev);
    TRI_ASSERT(!c->began && c->phase == TRI__HTTP_ANSWER);
    put_head(c, status, content_type);
    if (status == 204 || status == 304)
        evbuffer_add(out, "\r\n", 2);
    else
        evbuffer_add_printf(out, "Content-Length: %zu\r\n\r\n", bytes);
    if (bytes && !is_head(c) && status != 204 && status != 304)
        evbuffer_add(out, body, bytes);
    c->ended = true;
    tri__http_conn_done(c);
}

void tri_http_begin(struct tri_http_request *request, int status, const char *content_type)
{
    struct tri_http_request *c = request;
    TRI_ASSERT(!c->began && c->phase == TRI__HTTP_ANSWER);
    c->chunked_out = c->head.minor == 1;
    if (!c->chunked_out)
        c->close_after = true;
    put_head(c, status, content_type);
    evbuffer_add_printf(bufferevent_get_output(c->bev), "%s\r\n",
                        c->chunked_out ? "Transfer-Encoding: chunked\r\n" : "");
}

bool tri_http_write(struct tri_http_request *request, const void *data, size_t bytes)
{
    struct tri_http_request *c = request;
    struct evbuffer *out = bufferevent_get_output(c->bev);
    TRI_ASSERT(c->began && !c->ended);
    if (bytes == 0 || is_head(c))
        return tri_http_is_full(c);
    if (c->chunked_out)
        evbuffer_add_printf(out, "%zx\r\n", bytes);
    evbuffer_add(out, data, bytes);
    if (c->chunked_out)
        evbuffer_add(out, "\r\n", 2);
    if (!c->full && (int64_t)evbuffer_get_length(out) >= c->http->options.limits.output_bytes) {
        c->full = true;
        tri__http_refuse_limit(c, "output_bytes");
    }
    return c->full;
}

bool tri_http_is_full(const struct tri_http_request *request)
{
    return request->full;
}

void tri_http_end(struct tri_http_request *request)
{
    struct tri_http_request *c = request;
    TRI_ASSERT(c->began && !c->ended);
    if (c->chunked_out && !is_head(c))
        evbuffer_add(bufferevent_get_output(c->bev), "0\r\n\r\n", 5);
    c->ended = true;
    tri__http_conn_done(c);
}
