/*
 * jansson without memory. Its lexer does not look whether the text of a token could grow (2.14,
 * lex_save): the string is cut where memory ended, and its decoding then runs past the cut, over
 * whatever stands there. So while a text is parsed an allocation that fails leaves the parser at
 * once, and what the parser had taken until then is given back. Pointers are malloc's own: what
 * others get from jansson is freed as ever.
 */
#include "base/json_priv.h"

#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include "base/mem.h"

struct parse {
    jmp_buf out;
    /* Every pointer taken, and with the lowest bit set every one given back: each is still held
     * whose takings are more than its givings. Room is there for the giving back of all. */
    uintptr_t *event;
    size_t n_events, n_taken, cap;
    json_t *json;
};

/* jansson's hooks have no argument: the parse that this thread is in, or NULL. */
static _Thread_local struct parse *parsing;

static bool log_room(struct parse *p)
{
    if (2 * p->n_taken + 2 <= p->cap)
        return true;
    size_t cap = p->cap ? p->cap * 2 : 256;
    uintptr_t *more = tri_realloc(p->event, cap * sizeof *more);
    if (!more)
        return false;
    p->event = more;
    p->cap = cap;
    return true;
}

static void *take(size_t bytes)
{
    struct parse *p = parsing;
    if (!p)
        return tri_malloc(bytes);
    void *ptr = log_room(p) ? tri_malloc(bytes) : NULL;
    if (!ptr)
        longjmp(p->out, 1);
    p->n_taken++;
    p->event[p->n_events++] = (uintptr_t)ptr;
    return ptr;
}

static void give(void *ptr)
{
    if (parsing && ptr)
        parsing->event[parsing->n_events++] = (uintptr_t)ptr | 1;
    tri_free(ptr);
}

/* Before main: nothing may be taken by one function and given back by another. */
__attribute__((constructor)) static void set_hooks(void)
{
    json_set_alloc_funcs(take, give);
}

static int by_pointer(const void *a, const void *b)
{
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

static void give_all(struct parse *p)
{
    if (p->n_events)
        qsort(p->event, p->n_events, sizeof *p->event, by_pointer);
    for (size_t i = 0; i < p->n_events;) {
        uintptr_t ptr = p->event[i] & ~(uintptr_t)1;
        long held = 0;
        for (; i < p->n_events && (p->event[i] & ~(uintptr_t)1) == ptr; i++)
            held += p->event[i] & 1 ? -1 : 1;
        if (held > 0)
            tri_free((void *)ptr); /* NOLINT(performance-no-int-to-ptr) */
    }
}

/* The parse is the caller's, so that it is as it was left. */
static bool run(struct parse *p, const char *text, size_t bytes, json_error_t *why)
{
    parsing = p;
    bool done = setjmp(p->out) == 0;
    if (done)
        p->json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, why);
    parsing = NULL;
    return done;
}

bool tri__json_load(json_t **out, const char *text, size_t bytes, json_error_t *why)
{
    struct parse p = { .json = NULL };
    bool done = run(&p, text, bytes, why);
    if (!done)
        give_all(&p);
    tri_free(p.event);
    *out = done ? p.json : NULL;
    return done;
}
