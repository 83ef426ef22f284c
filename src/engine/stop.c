/*
 * Stop strings: Knuth-Morris-Pratt over each string at once. What may still become a match is the
 * longest prefix any of them has reached; exactly that many bytes are held back.
 */
#include "engine/engine.h"

#include <string.h>

struct pattern {
    unsigned char text[TRI_STOP_MAX_BYTES];
    int len, at;                      /* at: bytes matched so far */
    int fallback[TRI_STOP_MAX_BYTES]; /* [i]: longest border of text[0..i] */
};

struct tri_stop {
    int64_t n;
    bool found;
    int held; /* bytes in `hold`, never more than the longest string */
    char hold[TRI_STOP_MAX_BYTES];
    struct pattern pattern[];
};

static int advance(const struct pattern *p, int at, unsigned char c)
{
    while (at > 0 && p->text[at] != c)
        at = p->fallback[at - 1];
    return p->text[at] == c ? at + 1 : 0;
}

static void learn(struct pattern *p, const char *text, size_t len)
{
    memcpy(p->text, text, len);
    p->len = (int)len;
    for (int i = 1; i < p->len; i++)
        p->fallback[i] = advance(p, p->fallback[i - 1], p->text[i]);
}

enum tri_status tri_stop_open(struct tri_stop **out, const char *const *strings, int64_t n,
                              struct tri_error *err)
{
    if (n > TRI_STOP_MAX_STRINGS)
        return tri_fail(err, TRI_LIMIT, "%lld stop strings, at most %d", (long long)n,
                        TRI_STOP_MAX_STRINGS);
    for (int64_t i = 0; i < n; i++) {
        size_t len = strlen(strings[i]);
        if (len == 0)
            return tri_fail(err, TRI_ARG, "a stop string is empty");
        if (len > TRI_STOP_MAX_BYTES)
            return tri_fail(err, TRI_LIMIT, "a stop string of %zu bytes, at most %d", len,
                            TRI_STOP_MAX_BYTES);
    }
    struct tri_stop *stop = tri_calloc(1, sizeof *stop + (size_t)n * sizeof stop->pattern[0]);
    if (!stop)
        return tri_fail(err, TRI_NOMEM, "no memory for stop strings");
    stop->n = n;
    for (int64_t i = 0; i < n; i++)
        learn(&stop->pattern[i], strings[i], strlen(strings[i]));
    *out = stop;
    return TRI_OK;
}

void tri_stop_close(struct tri_stop *stop)
{
    tri_free(stop);
}

void tri_stop_reset(struct tri_stop *stop)
{
    stop->found = false;
    stop->held = 0;
    for (int64_t i = 0; i < stop->n; i++)
        stop->pattern[i].at = 0;
}

/* One byte through every pattern. Returns the longest that is complete, or -1; *reach is the
 * longest unfinished prefix. */
static int64_t step(struct tri_stop *stop, unsigned char c, int *reach)
{
    int64_t found = -1;
    *reach = 0;
    for (int64_t i = 0; i < stop->n; i++) {
        struct pattern *p = &stop->pattern[i];
        p->at = advance(p, p->at, c);
        if (p->at == p->len) {
            if (found < 0 || p->len > stop->pattern[found].len)
                found = i;
            continue;
        }
        if (p->at > *reach)
            *reach = p->at;
    }
    return found;
}

/* Emits the first `n` bytes of what is held back followed by `bytes`. */
static void let_out(const struct tri_stop *stop, const char *bytes, size_t n, tri_stop_emit emit,
                    void *arg)
{
    size_t held = (size_t)stop->held;
    size_t first = n < held ? n : held;
    if (first)
        emit(arg, stop->hold, first);
    if (n > first)
        emit(arg, bytes, n - first);
}

int64_t tri_stop_feed(struct tri_stop *stop, const char *bytes, size_t n, tri_stop_emit emit,
                      void *arg)
{
    if (stop->found)
        return -1;
    int reach = stop->held;
    for (size_t i = 0; i < n; i++) {
        int64_t found = step(stop, (unsigned char)bytes[i], &reach);
        if (found < 0)
            continue;
        size_t whole = (size_t)stop->held + i + 1;
        let_out(stop, bytes, whole - (size_t)stop->pattern[found].len, emit, arg);
        stop->found = true;
        stop->held = 0;
        return found;
    }
    /* The last `reach` bytes of (held + fed) stay; they may begin in what was held already. */
    size_t whole = (size_t)stop->held + n, keep = (size_t)reach;
    let_out(stop, bytes, whole - keep, emit, arg);
    if (keep <= n) {
        memcpy(stop->hold, bytes + n - keep, keep);
    } else {
        size_t old = keep - n;
        memmove(stop->hold, stop->hold + stop->held - old, old);
        memcpy(stop->hold + old, bytes, n);
    }
    stop->held = reach;
    return -1;
}

void tri_stop_flush(struct tri_stop *stop, tri_stop_emit emit, void *arg)
{
    if (stop->held)
        emit(arg, stop->hold, (size_t)stop->held);
    tri_stop_reset(stop);
}
