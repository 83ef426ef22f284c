/*
 * HTTP/1.1 server on libevent's bufferevents. Floor 5; knows nothing of models. One thread runs the
 * loop and every callback; the only call allowed from another thread is tri_http_post.
 *
 * A request reaches its handler only when its head has passed the strict checker below and its body
 * has arrived whole within the limits. Everything else is answered here with a small JSON body
 * ({"error":{"message","type","param","code"}}) and the connection is closed. Framing rules:
 * RFC 9112, without any of the leniencies it permits.
 */
#ifndef TRI_HTTP_HTTP_H
#define TRI_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/status.h"

enum {
    TRI_HTTP_MAX_LINE_BYTES = 8 << 10,   /* request line: 414 */
    TRI_HTTP_MAX_HEAD_BYTES = 32 << 10,  /* request line and fields: 431 */
    TRI_HTTP_MAX_FIELDS = 100,           /* 431 */
    TRI_HTTP_MAX_CHUNK_LINE_BYTES = 256, /* size and extensions of one chunk: 400 */
    TRI_HTTP_MAX_TRAILER_BYTES = 8 << 10 /* read and dropped; 431 */
};

/* --- the head checker ------------------------------------------------------------------------ */

struct tri_http_text {
    const char *at; /* not NUL-terminated */
    size_t bytes;
};

struct tri_http_field {
    struct tri_http_text name, value; /* value without the blanks around it */
};

struct tri_http_head {
    struct tri_http_text method, target; /* target as sent */
    struct tri_http_text path, query;    /* of an origin or absolute form; "*" is a path */
    struct tri_http_field field[TRI_HTTP_MAX_FIELDS];
    size_t fields;
    int minor;              /* HTTP/1.<minor>: 0 or 1 */
    int64_t content_length; /* -1: none */
    bool chunked, keep_alive, expects_continue;
};

/* Why a head or body is refused: the status to answer and one line for people. */
struct tri_http_fault {
    int status;
    const char *text;
};

/*
 * Looks for the end of the head in `bytes` of text. Returns its length with the empty line, 0 when
 * more is needed, -1 with *fault filled when no head can begin like this (bare LF or CR, control
 * bytes, limits). *seen (zero at first) remembers what was looked at, so that a head that comes
 * byte by byte costs linear time.
 */
int64_t tri_http_head_find(const char *text, size_t bytes, size_t *seen,
                           struct tri_http_fault *fault);

/* Reads a found head; *out points into `text`. False: *fault says why it is refused. */
bool tri_http_head_read(struct tri_http_head *out, const char *text, size_t bytes,
                        struct tri_http_fault *fault);

/* Value of the first field of that name (ASCII case ignored); at is NULL when there is none. */
struct tri_http_text tri_http_head_field(const struct tri_http_head *head, const char *name);

/* Chunked bodies, decoded as they come. Zero-initialise. */
struct tri_http_chunks {
    int state;
    uint64_t left_bytes;
    size_t line_bytes, trailer_bytes;
    int digits;
};

/*
 * Takes bytes from *text, moving it on, and appends the decoded ones to `body` (its maximum is the
 * limit: 413). Returns 1 at the end of the body, 0 when more is needed, -1 with *fault filled.
 */
int tri_http_chunks_feed(struct tri_http_chunks *c, struct tri_http_text *text,
                         struct tri_buf *body, struct tri_http_fault *fault);

const char *tri_http_reason(int status);

/* --- the server ------------------------------------------------------------------------------ */

struct tri_http;
struct tri_http_request; /* from its handler until it is finished or gone */

struct tri_http_limits {
    int64_t line_bytes, head_bytes, head_fields; /* at most the TRI_HTTP_MAX_ of each: 414, 431 */
    int64_t body_bytes;                          /* of one request: 413 */
    int64_t bodies_bytes;                        /* of all requests together: 503 */
    int64_t output_bytes;                        /* held for a slow reader; see tri_http_write */
    int64_t connections;                         /* 503 beyond */
    int64_t connections_per_peer; /* of one address, loopback exempt unless `loopback_too`; 429 */
    bool loopback_too;
    double head_s;        /* to send a head: 408 */
    double idle_s;        /* between requests: closed */
    double stall_s;       /* no progress in writing: closed */
    int64_t body_bytes_s; /* least rate of a body: 408 */
};

/* serving.md 4.2. */
struct tri_http_limits tri_http_limits_default(void);

struct tri_http_options {
    const char *address; /* numeric, or a name; NULL: 127.0.0.1 */
    int port;            /* 0: any free one */
    struct tri_http_limits limits;
    const char *tls_cert, *tls_key; /* PEM files; both or none */
    /* Once a head is read, and for a body of more than 64 KiB before it is: may answer at once
     * (a refusal) and return false; the request is then finished. NULL: all are admitted. */
    bool (*admit)(void *arg, struct tri_http_request *request);
    void (*handle)(void *arg, struct tri_http_request *request);
    /* Every answer, also those made here; for metrics. `path` is NULL when no head was read. */
    void (*answered)(void *arg, const struct tri_http_request *request, int status, double s);
    void (*refused)(void *arg, const char *limit); /* a limit was hit: its name */
    void *arg;
};

TRI_MUST_CHECK enum tri_status
tri_http_open(struct tri_http **out, const struct tri_http_options *options, struct tri_error *err);
/* Ends what is open: handlers hear `gone` for requests in flight. */
void tri_http_close(struct tri_http *http);

int tri_http_port(const struct tri_http *http);
int64_t tri_http_connections(const struct tri_http *http);

/* Runs the loop until tri_http_stop, or until a drain is complete. */
TRI_MUST_CHECK enum tri_status tri_http_run(struct tri_http *http, struct tri_error *err);
void tri_http_stop(struct tri_http *http);
/* Closes the listening socket, idle connections half a second later, and lets the loop end with the
 * last request. */
void tri_http_drain(struct tri_http *http);

/* Runs fn(arg) on the loop's thread, soon. From any thread. TRI_NOMEM when it cannot. */
TRI_MUST_CHECK enum tri_status tri_http_post(struct tri_http *http, void (*fn)(void *arg),
                                             void *arg);
/* Calls fn(arg) every `seconds` / at each of these signals, on the loop's thread. */
TRI_MUST_CHECK enum tri_status tri_http_every(struct tri_http *http, double seconds,
                                              void (*fn)(void *arg), void *arg);
TRI_MUST_CHECK enum tri_status tri_http_signal(struct tri_http *http, int signal_number,
                                               void (*fn)(void *arg), void *arg);

/* --- a request ------------------------------------------------------------------------------- */

const struct tri_http_head *tri_http_head(const struct tri_http_request *request);
const char *tri_http_body(const struct tri_http_request *request, size_t *bytes); /* NUL follows */
/* Moves the body out: the caller frees it (tri_buf_fini), the request has none any more. */
struct tri_buf tri_http_take_body(struct tri_http_request *request);
const char *tri_http_peer(const struct tri_http_request *request); /* numeric address */
bool tri_http_peer_is_loopback(const struct tri_http_request *request);
/* Unlike that of any other request of this server, and hard to guess. */
uint64_t tri_http_serial(const struct tri_http_request *request);

/*
 * What happens to a request after its handler has returned without finishing it. `gone`: the client
 * left (its end of the connection is closed, a write failed or stalled): the request must not be
 * used after this call. `drained`: output fell below half of the limit again.
 */
struct tri_http_watch {
    void (*gone)(void *arg);
    void (*drained)(void *arg);
    void *arg;
};
void tri_http_watch(struct tri_http_request *request, const struct tri_http_watch *watch);

/* A further field of the answer, e.g. "Retry-After". Before the answer begins. */
void tri_http_add_field(struct tri_http_request *request, const char *name, const char *value);

/* A whole answer; the request is finished. */
void tri_http_reply(struct tri_http_request *request, int status, const char *content_type,
                    const void *body, size_t bytes);

/*
 * An answer in pieces (chunked; to HTTP/1.0 until the connection closes): begin, writes, end.
 * A write is always taken whole; true asks the writer to wait for `drained` before the next one.
 */
void tri_http_begin(struct tri_http_request *request, int status, const char *content_type);
bool tri_http_write(struct tri_http_request *request, const void *data, size_t bytes);
bool tri_http_is_full(const struct tri_http_request *request);
void tri_http_end(struct tri_http_request *request);

#endif
