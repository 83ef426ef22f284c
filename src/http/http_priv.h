/* Inside the HTTP room: the server and its connections. */
#ifndef TRI_HTTP_PRIV_H
#define TRI_HTTP_PRIV_H

#include "http/http.h"

#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <pthread.h>
#include <sys/socket.h>
#include "base/mem.h"

typedef struct ssl_ctx_st SSL_CTX;

enum { TRI__HTTP_MAX_EXTRA_BYTES = 2048, TRI__HTTP_PEER_BYTES = 64 };

enum tri__http_phase {
    TRI__HTTP_HEAD,   /* waiting for a head, or in one */
    TRI__HTTP_BODY,   /* a body is coming */
    TRI__HTTP_ANSWER, /* the handler has it */
    TRI__HTTP_LINGER, /* answered, closing: what still comes is dropped */
};

struct tri_http_request {
    struct tri_http *http;
    struct tri_http_request *next, *prev; /* the connection list */
    struct bufferevent *bev;
    struct event *tick;
    char peer[TRI__HTTP_PEER_BYTES];
    bool loopback;
    enum tri__http_phase phase;
    /* the request */
    struct tri_buf head_text, body;
    struct tri_http_head head;
    struct tri_http_chunks chunks;
    bool head_read;
    uint64_t serial;
    size_t seen_bytes;                               /* of the head, already looked at */
    double idle_since_s, head_begin_s, body_begin_s; /* head_begin_s 0: no byte of it yet */
    int64_t got_bytes;                               /* of the body, as sent */
    /* the answer */
    struct tri_http_watch watch;
    char extra[TRI__HTTP_MAX_EXTRA_BYTES];
    size_t extra_bytes;
    int status;
    bool began, chunked_out, ended, close_after, full, in_handler, peer_closed, admitted;
    size_t tick_output; /* bytes waiting at the last tick */
    double stalled_since_s, linger_until_s;
    int64_t linger_bytes; /* read and thrown away since the answer */
};

struct tri__http_post {
    void (*fn)(void *arg);
    void *arg;
};

struct tri__http_hook { /* a timer or signal of the owner */
    struct tri__http_hook *next;
    struct event *event;
    void (*fn)(void *arg);
    void *arg;
};

struct tri_http {
    struct tri_http_options options;
    struct event_base *base;
    struct evconnlistener *listener;
    SSL_CTX *tls;
    int port;
    struct tri_http_request *first;
    uint64_t serial;                   /* of the last request */
    int64_t connections, bodies_bytes; /* bodies_bytes: held by all connections */
    bool draining;
    struct tri__http_hook *hooks;
    struct event *wake, *rested; /* rested: listen again after a failed accept */
    int wake_fd;
    pthread_mutex_t lock; /* of the posts */
    struct tri__http_post *posts;
    size_t n_posts, cap_posts;
};

/* conn.c */
void tri__http_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *peer,
                      int peer_bytes, void *arg);
void tri__http_conn_free(struct tri_http_request *c);
/* The answer is complete: next request, or close. */
void tri__http_conn_done(struct tri_http_request *c);
/* Answers a fault and closes. */
void tri__http_conn_fault(struct tri_http_request *c, struct tri_http_fault fault);
void tri__http_conn_check_drain(struct tri_http *http);

/* Tells the owner that a limit was hit. */
void tri__http_refuse_limit(struct tri_http_request *c, const char *limit);

/* tls.c */
enum tri_status tri__http_tls_open(SSL_CTX **out, const char *cert, const char *key,
                                   struct tri_error *err);
void tri__http_tls_close(SSL_CTX *tls);
struct bufferevent *tri__http_tls_bufferevent(struct tri_http *http, evutil_socket_t fd);

#endif
