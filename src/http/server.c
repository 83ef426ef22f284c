/* The server: listening, the loop, what other threads post to it, timers, signals, draining. */
#include "http/http_priv.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum {
    BACKLOG = 512,
    SPARE_FILES = 8,        /* the loop, its signals, wake-ups and the socket take no more */
    ACCEPT_REST_US = 100000 /* after an accept that failed for want of descriptors or memory */
};

struct tri_http_limits tri_http_limits_default(void)
{
    return (struct tri_http_limits){ .line_bytes = TRI_HTTP_MAX_LINE_BYTES,
                                     .head_bytes = TRI_HTTP_MAX_HEAD_BYTES,
                                     .head_fields = TRI_HTTP_MAX_FIELDS,
                                     .body_bytes = 64 << 20,
                                     .bodies_bytes = 256 << 20,
                                     .output_bytes = 1 << 20,
                                     .connections = 4096,
                                     .connections_per_peer = 256,
                                     .head_s = 10,
                                     .idle_s = 65,
                                     .stall_s = 60,
                                     .body_bytes_s = 1024 };
}

/* --- posts ----------------------------------------------------------------------------------- */

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    struct tri_http *http = arg;
    uint64_t count = 0;
    (void)what;
    if (read((int)fd, &count, sizeof count) < 0)
        return;
    pthread_mutex_lock(&http->lock);
    struct tri__http_post *posts = http->posts;
    size_t n = http->n_posts;
    http->posts = NULL;
    http->n_posts = http->cap_posts = 0;
    pthread_mutex_unlock(&http->lock);
    for (size_t i = 0; i < n; i++)
        posts[i].fn(posts[i].arg);
    tri_free(posts);
}

enum tri_status tri_http_post(struct tri_http *http, void (*fn)(void *arg), void *arg)
{
    const uint64_t one = 1;
    pthread_mutex_lock(&http->lock);
    if (http->n_posts == http->cap_posts) {
        size_t cap = http->cap_posts ? http->cap_posts * 2 : 64;
        struct tri__http_post *more = tri_realloc(http->posts, cap * sizeof *more);
        if (!more) {
            pthread_mutex_unlock(&http->lock);
            return TRI_NOMEM;
        }
        http->posts = more;
        http->cap_posts = cap;
    }
    http->posts[http->n_posts++] = (struct tri__http_post){ fn, arg };
    pthread_mutex_unlock(&http->lock);
    ssize_t written = write(http->wake_fd, &one, sizeof one);
    (void)written; /* full means that a wake-up is already due */
    return TRI_OK;
}

/* --- hooks ----------------------------------------------------------------------------------- */

static void on_hook(evutil_socket_t fd, short what, void *arg)
{
    const struct tri__http_hook *hook = arg;
    (void)fd;
    (void)what;
    hook->fn(hook->arg);
}

static struct tri__http_hook *new_hook(struct tri_http *http, void (*fn)(void *arg), void *arg)
{
    struct tri__http_hook *hook = tri_calloc(1, sizeof *hook);
    if (!hook)
        return NULL;
    hook->fn = fn;
    hook->arg = arg;
    hook->next = http->hooks;
    http->hooks = hook;
    return hook;
}

enum tri_status tri_http_every(struct tri_http *http, double seconds, void (*fn)(void *arg),
                               void *arg)
{
    struct tri__http_hook *hook = new_hook(http, fn, arg);
    struct timeval period = { (time_t)seconds,
                              (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6) };
    if (!hook)
        return TRI_NOMEM;
    hook->event = event_new(http->base, -1, EV_PERSIST, on_hook, hook);
    return hook->event && event_add(hook->event, &period) == 0 ? TRI_OK : TRI_NOMEM;
}

enum tri_status tri_http_signal(struct tri_http *http, int signal_number, void (*fn)(void *arg),
                                void *arg)
{
    struct tri__http_hook *hook = new_hook(http, fn, arg);
    if (!hook)
        return TRI_NOMEM;
    hook->event = evsignal_new(http->base, signal_number, on_hook, hook);
    return hook->event && event_add(hook->event, NULL) == 0 ? TRI_OK : TRI_NOMEM;
}

/* --- opening --------------------------------------------------------------------------------- */

static void on_rested(evutil_socket_t fd, short what, void *arg)
{
    struct tri_http *http = arg;
    (void)fd;
    (void)what;
    if (http->listener)
        evconnlistener_enable(http->listener);
}

/*
 * No descriptor or no memory for who wants in: they wait in the kernel's queue, and the loop serves
 * who is in. Without a rest the socket would be ready, and fail, without end.
 */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
    struct tri_http *http = arg;
    const struct timeval rest = { 0, ACCEPT_REST_US };
    if (http->options.refused)
        http->options.refused(http->options.arg, "descriptors");
    if (event_add(http->rested, &rest) == 0)
        evconnlistener_disable(listener);
}

static void be_quiet(int severity, const char *text)
{
    (void)severity;
    (void)text;
}

/* The loop's library ends the process when it lacks descriptors: make sure before that it does not.
 */
static enum tri_status check_files(struct tri_error *err)
{
    int fd[SPARE_FILES], n = 0;
    while (n < SPARE_FILES) {
        fd[n] = eventfd(0, EFD_CLOEXEC);
        if (fd[n] < 0)
            break;
        n++;
    }
    int failed = n < SPARE_FILES ? errno : 0;
    while (n > 0)
        close(fd[--n]);
    if (failed)
        return tri_fail_errno(err, TRI_IO, failed,
                              "the server needs %d more descriptors (raise ulimit -n)",
                              SPARE_FILES);
    return TRI_OK;
}

static enum tri_status listen_on(struct tri_http *http, struct tri_error *err)
{
    const struct tri_http_options *o = &http->options;
    const char *address = o->address ? o->address : "127.0.0.1";
    struct addrinfo hints = { .ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM }, *list = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", o->port);
    int rc = getaddrinfo(address, port, &hints, &list);
    if (rc != 0)
        return tri_fail(err, TRI_ARG, "address %s: %s", address, gai_strerror(rc));
    http->listener = evconnlistener_new_bind(http->base, tri__http_accept, http,
                                             LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE, BACKLOG,
                                             list->ai_addr, (int)list->ai_addrlen);
    int failed = errno;
    freeaddrinfo(list);
    if (!http->listener)
        return tri_fail_errno(err, TRI_IO, failed, "cannot listen on %s port %d", address, o->port);
    evconnlistener_set_error_cb(http->listener, on_accept_error);
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at = { .v6 = { 0 } };
    socklen_t bytes = sizeof at;
    http->port = o->port;
    if (getsockname(evconnlistener_get_fd(http->listener), &at.any, &bytes) == 0)
        http->port = ntohs(at.any.sa_family == AF_INET6 ? at.v6.sin6_port : at.v4.sin_port);
    return TRI_OK;
}

static enum tri_status open_wake(struct tri_http *http, struct tri_error *err)
{
    http->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (http->wake_fd < 0)
        return tri_fail_errno(err, TRI_IO, errno, "no eventfd");
    http->wake = event_new(http->base, http->wake_fd, EV_READ | EV_PERSIST, on_wake, http);
    http->rested = event_new(http->base, -1, 0, on_rested, http);
    if (!http->rested || !http->wake || event_add(http->wake, NULL) != 0)
        return tri_fail(err, TRI_NOMEM, "no memory for the server");
    return TRI_OK;
}

enum tri_status tri_http_open(struct tri_http **out, const struct tri_http_options *options,
                              struct tri_error *err)
{
    struct tri_http *http = tri_calloc(1, sizeof *http);
    if (!http)
        return tri_fail(err, TRI_NOMEM, "no memory for the server");
    http->options = *options;
    http->wake_fd = -1;
    if (getrandom(&http->serial, sizeof http->serial, 0) != (ssize_t)sizeof http->serial)
        http->serial = (uint64_t)time(NULL);
    pthread_mutex_init(&http->lock, NULL);
    event_set_log_callback(be_quiet);
    enum tri_status st = check_files(err);
    http->base = st == TRI_OK ? event_base_new() : NULL;
    if (st == TRI_OK && !http->base)
        st = tri_fail(err, TRI_NOMEM, "no event loop");
    if (st == TRI_OK && !options->tls_cert != !options->tls_key)
        st = tri_fail(err, TRI_ARG, "TLS needs a certificate and a private key");
    if (st == TRI_OK && options->tls_cert)
        st = tri__http_tls_open(&http->tls, options->tls_cert, options->tls_key, err);
    if (st == TRI_OK)
        st = open_wake(http, err);
    if (st == TRI_OK)
        st = listen_on(http, err);
    if (st == TRI_OK)
        *out = http;
    else
        tri_http_close(http);
    return st;
}

void tri_http_close(struct tri_http *http)
{
    if (!http)
        return;
    http->draining = false;
    while (http->first)
        tri__http_conn_free(http->first);
    if (http->listener)
        evconnlistener_free(http->listener);
    while (http->hooks) {
        struct tri__http_hook *hook = http->hooks;
        http->hooks = hook->next;
        if (hook->event)
            event_free(hook->event);
        tri_free(hook);
    }
    if (http->rested)
        event_free(http->rested);
    if (http->wake)
        event_free(http->wake);
    if (http->base)
        event_base_free(http->base);
    if (http->wake_fd >= 0)
        close(http->wake_fd);
    tri__http_tls_close(http->tls);
    pthread_mutex_destroy(&http->lock);
    tri_free(http->posts);
    tri_free(http);
}

/* --- running --------------------------------------------------------------------------------- */

int tri_http_port(const struct tri_http *http)
{
    return http->port;
}

int64_t tri_http_connections(const struct tri_http *http)
{
    return http->connections;
}

enum tri_status tri_http_run(struct tri_http *http, struct tri_error *err)
{
    if (event_base_dispatch(http->base) < 0)
        return tri_fail(err, TRI_IO, "the event loop failed");
    return TRI_OK;
}

void tri_http_stop(struct tri_http *http)
{
    event_base_loopbreak(http->base);
}

/*
 * Whoever the kernel has accepted already is taken too (and told 503 by the owner); then the socket
 * is closed, so that newcomers are refused at once and turn to another server.
 */
static void stop_listening(struct tri_http *http)
{
    int fd = evconnlistener_get_fd(http->listener);
    for (int i = 0; i < BACKLOG; i++) {
        struct sockaddr_storage peer;
        socklen_t bytes = sizeof peer;
        int got = accept4(fd, (struct sockaddr *)&peer, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (got < 0)
            break;
        tri__http_accept(http->listener, got, (struct sockaddr *)&peer, (int)bytes, http);
    }
    evconnlistener_free(http->listener);
    http->listener = NULL;
}

void tri_http_drain(struct tri_http *http)
{
    if (http->draining)
        return;
    http->draining = true;
    stop_listening(http);
    tri__http_conn_check_drain(http);
}
