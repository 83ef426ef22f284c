/*
 * From a body to something that can be started: at once when it is small, on a thread of its own
 * when it is not, so that a long prompt stalls nobody else's stream. One thread: prompts that come
 * together are prepared one after the other, as they will be computed.
 */
#include "api/api_priv.h"

#include <pthread.h>
#include <string.h>
#include "base/json.h"

/* 16 KiB are read, rendered and encoded in 1-3 ms (docs/findings/serving.md). */
enum { AT_ONCE_BYTES = 16 << 10 };
/* And so many steps of compiling a grammar: 1-2 ms at the 20 million of 0.1-0.5 s. */
enum { AT_ONCE_WORK = 100000 };

struct list {
    struct tri__exchange *first, *last;
};

struct tri__preparer {
    struct tri_api *api;
    pthread_t thread;
    bool has_thread, stopping;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    struct list waiting, done;
    int64_t waiting_bytes, waiting_count; /* and being prepared */
    uint64_t done_count;
};

static void push(struct list *list, struct tri__exchange *x)
{
    x->work_next = NULL;
    if (list->last)
        list->last->work_next = x;
    else
        list->first = x;
    list->last = x;
}

static struct tri__exchange *pop(struct list *list)
{
    struct tri__exchange *x = list->first;
    if (!x)
        return NULL;
    list->first = x->work_next;
    if (!list->first)
        list->last = NULL;
    x->work_next = NULL;
    return x;
}

/* --- any thread ------------------------------------------------------------------------------ */

static bool read_body(struct tri__exchange *x, struct tri__fault *fault)
{
    const char *text = x->text.data ? x->text.data : "";
    size_t bytes = x->text.len_bytes;
    struct tri_error err = { 0 };
    if (!tri__limits_check_json(x->api, text, bytes, fault))
        return false;
    if (tri_json_parse(&x->body, "body", text, bytes, bytes + 1, &err) != TRI_OK) {
        if (err.status == TRI_NOMEM)
            return tri__fault_from(fault, &err);
        const char *near = strstr(err.text, " near '"); /* what was sent is not told back */
        return tri__fault_bad(fault, NULL, "%.*s",
                              near ? (int)(near - err.text) : (int)sizeof err.text, err.text);
    }
    if (!json_is_object(x->body))
        return tri__fault_bad(fault, NULL, "the body must be a JSON object");
    return tri__limits_check_body(x->api, x->body, fault);
}

/* What the prompt was made of is large and has served; stop strings and echoes are still needed. */
static void drop_sources(struct tri__exchange *x)
{
    static const char *const names[] = { "messages", "prompt",  "input",
                                         "system",   "content", "tokens" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        json_object_del(x->body, names[i]);
    tri_buf_fini(&x->text);
}

bool tri__prepare_here(struct tri__exchange *x, uint64_t most_work)
{
    struct tri__fault *fault = &x->fault;
    bool answers = x->endpoint->answers;
    bool ok = x->prepared || (read_body(x, fault) && x->endpoint->prepare(x, fault) &&
                              (answers || tri__exchange_has_room(x, fault)));
    x->prepared = ok;
    if (ok && !answers)
        ok = tri__structured_prepare(x, most_work, fault);
    if (ok && x->out.failed != TRI_OK)
        tri__fault_is(fault, 500, "internal", "the answer is too large to write");
    if (ok)
        drop_sources(x);
    return ok || fault->status != 0;
}

/* --- the loop's thread ----------------------------------------------------------------------- */

static void proceed(struct tri__exchange *x)
{
    struct tri_http_request *q = x->request;
    const struct tri_http_watch none = { 0 };
    if (!q) { /* the client left meanwhile */
        tri__exchange_free(x);
        return;
    }
    tri_http_watch(q, &none);
    if (x->fault.status) {
        if (!x->endpoint->answers)
            tri__gauges_rejected(x->api->gauges, x->fault.code ? x->fault.code : "invalid");
        tri__exchange_refuse(x, &x->fault);
    } else if (x->endpoint->answers) {
        tri_http_reply(q, 200, "application/json", x->out.data, x->out.len_bytes);
        tri__exchange_free(x);
    } else {
        tri__exchange_start(x);
    }
}

static void on_gone(void *arg)
{
    struct tri__exchange *x = arg;
    x->request = NULL; /* freed when it comes back */
}

static void on_done(void *arg)
{
    struct tri__preparer *p = arg;
    for (;;) {
        pthread_mutex_lock(&p->lock);
        struct tri__exchange *x = pop(&p->done);
        pthread_mutex_unlock(&p->lock);
        if (!x)
            return;
        proceed(x);
    }
}

void tri__preparer_tick(struct tri__preparer *p)
{
    on_done(p);
}

int64_t tri__preparer_waiting(struct tri__preparer *p)
{
    pthread_mutex_lock(&p->lock);
    int64_t n = p->waiting_count;
    pthread_mutex_unlock(&p->lock);
    return n;
}

uint64_t tri__preparer_done(struct tri__preparer *p)
{
    pthread_mutex_lock(&p->lock);
    uint64_t n = p->done_count;
    pthread_mutex_unlock(&p->lock);
    return n;
}

void tri__prepare(struct tri__exchange *x)
{
    struct tri__preparer *p = x->api->preparer;
    const struct tri_http_watch watch = { on_gone, NULL, x };
    int64_t bytes = (int64_t)x->text.len_bytes;
    if (bytes <= AT_ONCE_BYTES && tri__prepare_here(x, AT_ONCE_WORK)) {
        proceed(x);
        return;
    }
    pthread_mutex_lock(&p->lock);
    bool fits = !p->waiting_count ||
                tri__limits_check(x->api, TRI_API_LIMIT_preparing_bytes, p->waiting_bytes + bytes);
    if (fits) {
        p->waiting_bytes += bytes;
        p->waiting_count++;
        tri_http_watch(x->request, &watch);
        push(&p->waiting, x);
        pthread_cond_signal(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    if (fits)
        return;
    tri__fault_is(&x->fault, 503, "overloaded", "other long requests are being read: try again");
    proceed(x);
}

/* --- the thread ------------------------------------------------------------------------------ */

static void *run(void *arg)
{
    struct tri__preparer *p = arg;
    pthread_mutex_lock(&p->lock);
    while (!p->stopping) {
        struct tri__exchange *x = pop(&p->waiting);
        if (!x) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        int64_t bytes = (int64_t)x->text.len_bytes;
        pthread_mutex_unlock(&p->lock);
        (void)tri__prepare_here(x, 0); /* without a bound it is never put off */
        pthread_mutex_lock(&p->lock);
        p->done_count++;
        p->waiting_bytes -= bytes;
        p->waiting_count--;
        push(&p->done, x);
        pthread_mutex_unlock(&p->lock);
        enum tri_status posted = tri_http_post(p->api->http, on_done, p);
        (void)posted; /* no memory: the next tick finds it */
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

enum tri_status tri__preparer_open(struct tri__preparer **out, struct tri_api *api,
                                   struct tri_error *err)
{
    struct tri__preparer *p = tri_calloc(1, sizeof *p);
    if (!p)
        return tri_fail(err, TRI_NOMEM, "no memory for the api");
    p->api = api;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->has_thread = pthread_create(&p->thread, NULL, run, p) == 0;
    if (!p->has_thread) {
        tri__preparer_close(p);
        return tri_fail(err, TRI_NOMEM, "no thread for the api");
    }
    *out = p;
    return TRI_OK;
}

static void empty(struct list *list)
{
    const struct tri_http_watch none = { 0 };
    for (struct tri__exchange *x = pop(list); x; x = pop(list)) {
        if (x->request)
            tri_http_watch(x->request, &none);
        tri__exchange_free(x);
    }
}

void tri__preparer_close(struct tri__preparer *p)
{
    if (!p)
        return;
    if (p->has_thread) {
        pthread_mutex_lock(&p->lock);
        p->stopping = true;
        pthread_cond_signal(&p->changed);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, NULL);
    }
    empty(&p->waiting);
    empty(&p->done);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    tri_free(p);
}
