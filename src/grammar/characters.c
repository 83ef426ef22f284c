/*
 * Characters as bytes: sets of code points become UTF-8 byte ranges (the split is that of Unicode's
 * table 3-7, well-formed byte sequences), written as JSON, an attribute or raw text demands.
 */
#include "grammar/grammar_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"

enum { MAX_RANGES = 4096 };

/* The byte ranges of one character; tails of full continuations are shared. */
struct chars {
    struct tri__build *b;
    uint32_t next;
    uint32_t tail[4]; /* [k]: k continuation bytes of any value */
    struct tri__range *range;
    uint32_t n;
};

static void add_range(struct chars *c, uint32_t lo, uint32_t hi, uint32_t next)
{
    if (c->n < MAX_RANGES && next != TRI__NOWHERE)
        c->range[c->n++] = (struct tri__range){ (uint8_t)lo, (uint8_t)hi, next };
    else if (next != TRI__NOWHERE)
        tri__build_fail(c->b, TRI_LIMIT, "%s: a character class of over %d parts", c->b->root_name,
                        MAX_RANGES);
}

static uint32_t tail(struct chars *c, int bytes)
{
    if (bytes == 0)
        return c->next;
    if (c->tail[bytes] == TRI__NOWHERE)
        c->tail[bytes] = tri__put_byte(c->b, 0x80, 0xbf, tail(c, bytes - 1));
    return c->tail[bytes];
}

static int length_of(uint32_t c)
{
    return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

/* Byte `at` of a code point that has `length` bytes. */
static uint32_t byte_of(uint32_t c, int length, int at)
{
    static const uint32_t lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    uint32_t bits = c >> 6 * (length - 1 - at);
    return at ? 0x80 | (bits & 0x3f) : length == 1 ? c : lead[length] | bits;
}

/*
 * Bytes from `at` on of every code point lo..hi, which share all bytes before. Into the head's
 * ranges for at 0, else as a node of its own.
 */
static void split(struct chars *c, uint32_t lo, uint32_t hi, int length, int at);

static uint32_t part(struct chars *c, uint32_t lo, uint32_t hi, int length, int at)
{
    struct tri__range mine[192];
    struct chars inner = { .b = c->b, .next = c->next, .range = mine };
    memcpy(inner.tail, c->tail, sizeof inner.tail);
    split(&inner, lo, hi, length, at);
    memcpy(c->tail, inner.tail, sizeof inner.tail);
    return tri__put_set(c->b, mine, inner.n);
}

static void split(struct chars *c, uint32_t lo, uint32_t hi, int length, int at)
{
    int rest = length - 1 - at;
    uint32_t low_bits = (1u << 6 * rest) - 1;
    if (rest == 0) {
        add_range(c, byte_of(lo, length, at), byte_of(hi, length, at), c->next);
        return;
    }
    if ((lo & ~low_bits) == (hi & ~low_bits) && ((lo & low_bits) || (~hi & low_bits))) {
        uint32_t lead = byte_of(lo, length, at);
        add_range(c, lead, lead, part(c, lo, hi, length, at + 1));
        return;
    }
    if (lo & low_bits) {
        uint32_t end = lo | low_bits, lead = byte_of(lo, length, at);
        add_range(c, lead, lead, part(c, lo, end, length, at + 1));
        lo = end + 1;
    }
    uint32_t whole_end = (~hi & low_bits) ? (hi & ~low_bits) : hi + 1;
    if (lo < whole_end)
        add_range(c, byte_of(lo, length, at), byte_of(whole_end - 1, length, at), tail(c, rest));
    if (~hi & low_bits) {
        uint32_t lead = byte_of(hi, length, at);
        add_range(c, lead, lead, part(c, hi & ~low_bits, hi, length, at + 1));
    }
}

/* lo..hi as UTF-8 without surrogates. */
static void add_span(struct chars *c, uint32_t lo, uint32_t hi)
{
    static const struct tri__span lengths[] = {
        { 0, 0x7f }, { 0x80, 0x7ff }, { 0x800, 0xd7ff }, { 0xe000, 0xffff }, { 0x10000, 0x10ffff }
    };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        uint32_t from = lo > lengths[i].lo ? lo : lengths[i].lo;
        uint32_t to = hi < lengths[i].hi ? hi : lengths[i].hi;
        if (from <= to)
            split(c, from, to, length_of(from), 0);
    }
}

static bool is_special(uint32_t c, enum tri__coding coding)
{
    if (coding == TRI__RAW_TEXT)
        return false;
    return coding == TRI__ATTRIBUTE ? c == '"' || c == '&' : c < 0x20 || c == '"' || c == '\\';
}

/* How `c`, which is_special, is written. Returns the length. */
static size_t write_special(char out[8], uint32_t c, enum tri__coding coding)
{
    static const char shorts[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    if (coding == TRI__ATTRIBUTE)
        return (size_t)snprintf(out, 8, "%s", c == '"' ? "&quot;" : "&amp;");
    const char *found = c ? strchr(shorts, (int)c) : NULL;
    if (found)
        return (size_t)snprintf(out, 8, "\\%c", names[found - shorts]);
    return (size_t)snprintf(out, 8, "\\u%04x", c);
}

static bool covers(const struct tri__span *spans, size_t n, uint32_t lo, uint32_t hi)
{
    for (size_t i = 0; i < n; i++)
        if (spans[i].lo <= lo && spans[i].hi >= hi)
            return true;
    return false;
}

/* For tri__node.free: 1 + the class of tokens whose every character is among the spans. */
static uint8_t free_class(const struct tri__span *spans, size_t n, enum tri__coding coding)
{
    if (coding == TRI__RAW_TEXT && covers(spans, n, 0, 0x10ffff))
        return 1 + TRI__RAW;
    bool plain = covers(spans, n, 0x20, 0x2027) && covers(spans, n, 0x202a, 0x10ffff);
    return plain ? 1 + TRI__PLAIN : 0;
}

uint32_t tri__put_character(struct tri__build *b, const struct tri__span *spans, size_t n,
                            enum tri__coding coding, uint32_t next)
{
    if (next == TRI__NOWHERE || b->failed)
        return TRI__NOWHERE;
    struct chars c = { .b = b, .next = next };
    c.range = tri_malloc(MAX_RANGES * sizeof *c.range);
    if (!c.range)
        return tri__build_fail(b, TRI_NOMEM, "no memory for a grammar");
    uint32_t escapes = TRI__NOWHERE;
    for (size_t i = 0; i < n; i++) {
        uint32_t lo = spans[i].lo, hi = spans[i].hi;
        for (uint32_t at = lo; at <= hi && at < 0x80; at++) {
            char text[8];
            if (!is_special(at, coding))
                continue;
            if (at > lo)
                add_span(&c, lo, at - 1);
            lo = at + 1;
            size_t bytes = write_special(text, at, coding);
            escapes = tri__put_fork(b, tri__put_text(b, text + 1, bytes - 1, next), escapes);
        }
        if (lo <= hi)
            add_span(&c, lo, hi);
    }
    char escape = coding == TRI__ATTRIBUTE ? '&' : '\\';
    add_range(&c, (uint8_t)escape, (uint8_t)escape, escapes);
    uint32_t start = tri__put_set(b, c.range, c.n);
    if (start != TRI__NOWHERE && coding != TRI__ATTRIBUTE)
        b->net->node[start].free = free_class(spans, n, coding);
    tri_free(c.range);
    return start;
}

/* What may stand after a backslash in JSON; surrogates only as a pair (RFC 8259, 7). */
static uint32_t any_escape(struct tri__build *b, uint32_t next)
{
    struct tri__range hex[3];
    uint32_t after[4] = { next };
    for (int i = 1; i < 4; i++) {
        const struct tri__range all[] = { { '0', '9', after[i - 1] },
                                          { 'A', 'F', after[i - 1] },
                                          { 'a', 'f', after[i - 1] } };
        memcpy(hex, all, sizeof hex);
        after[i] = tri__put_set(b, hex, 3);
    }
    const struct tri__range low[] = { { 'C', 'F', after[2] }, { 'c', 'f', after[2] } };
    const struct tri__range low_d[] = { { 'D', 'D', tri__put_set(b, low, 2) },
                                        { 'd', 'd', tri__put_set(b, low, 2) } };
    uint32_t second = tri__put_text(b, "\\u", 2, tri__put_set(b, low_d, 2));
    for (int i = 0; i < 2; i++) {
        const struct tri__range all[] = { { '0', '9', second },
                                          { 'A', 'F', second },
                                          { 'a', 'f', second } };
        second = tri__put_set(b, all, 3);
    }
    const struct tri__range high[] = {
        { '0', '7', after[2] }, { '8', '9', second }, { 'A', 'B', second }, { 'a', 'b', second }
    };
    uint32_t d = tri__put_set(b, high, 4);
    const struct tri__range four[] = { { '0', '9', after[3] }, { 'A', 'C', after[3] },
                                       { 'D', 'D', d },        { 'E', 'F', after[3] },
                                       { 'a', 'c', after[3] }, { 'd', 'd', d },
                                       { 'e', 'f', after[3] } };
    uint32_t u = tri__put_set(b, four, 7);
    const struct tri__range kinds[] = { { '"', '"', next },   { '/', '/', next },
                                        { '\\', '\\', next }, { 'b', 'b', next },
                                        { 'f', 'f', next },   { 'n', 'n', next },
                                        { 'r', 'r', next },   { 't', 't', next },
                                        { 'u', 'u', u } };
    return tri__put_set(b, kinds, 9);
}

uint32_t tri__put_any_character(struct tri__build *b, enum tri__coding coding, uint32_t next)
{
    static const struct tri__span all = { 0, 0x10ffff };
    struct tri__range ranges[64];
    if (coding == TRI__ATTRIBUTE)
        return tri__put_character(b, &all, 1, coding, next);
    struct chars c = { .b = b, .next = next, .range = ranges };
    bool json = coding == TRI__JSON_STRING;
    if (json) {
        add_span(&c, 0x20, 0x21);
        add_span(&c, 0x23, 0x5b);
        add_span(&c, 0x5d, 0x10ffff);
        add_range(&c, '\\', '\\', any_escape(b, next));
    } else {
        add_span(&c, 0, 0x10ffff);
    }
    uint32_t start = tri__put_set(b, ranges, c.n);
    if (start != TRI__NOWHERE)
        b->net->node[start].free = json ? 1 + TRI__PLAIN : 1 + TRI__RAW;
    return start;
}

uint32_t tri__put_any_string(struct tri__build *b, enum tri__coding coding, uint32_t min,
                             uint32_t max, uint32_t next)
{
    uint32_t one = tri__put_any_character(b, coding, b->end);
    if (one != TRI__NOWHERE)
        b->net->node[one].then_ends = true; /* a quote or a marker, in every caller */
    return tri__put_run(b, one, min, max, next);
}

void tri__write_coded(struct tri_buf *out, const char *text, size_t n, enum tri__coding coding)
{
    char special[8];
    for (size_t i = 0; i < n; i++)
        if (is_special((unsigned char)text[i], coding))
            tri_buf_add(out, special, write_special(special, (unsigned char)text[i], coding));
        else
            tri_buf_putc(out, text[i]);
}

/* ---- literals ---- */

static int by_text(const void *a, const void *b)
{
    const struct tri__literal *x = a, *y = b;
    size_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->text, y->text, n);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* list[0..n) is sorted and shares the first `at` bytes. */
static uint32_t literal_tree(struct tri__build *b, const struct tri__literal *list, size_t n,
                             size_t at)
{
    size_t shared = at;
    uint32_t ended = TRI__NOWHERE, m = 0;
    if (!tri__build_work(b, n))
        return TRI__NOWHERE;
    while (list[0].bytes > shared && list[n - 1].bytes > shared &&
           list[0].text[shared] == list[n - 1].text[shared])
        shared++;
    struct tri__range ranges[256];
    size_t i = 0;
    for (; i < n && list[i].bytes == shared; i++)
        ended = tri__put_fork(b, ended, list[i].next);
    while (i < n) {
        size_t j = i;
        while (j < n && list[j].text[shared] == list[i].text[shared])
            j++;
        uint8_t byte = (uint8_t)list[i].text[shared];
        ranges[m++] =
            (struct tri__range){ byte, byte, literal_tree(b, list + i, j - i, shared + 1) };
        i = j;
    }
    uint32_t start = tri__put_fork(b, ended, tri__put_set(b, ranges, m));
    return tri__put_text(b, list[0].text + at, shared - at, start);
}

uint32_t tri__put_literals(struct tri__build *b, struct tri__literal *list, size_t n)
{
    if (n == 0 || b->failed)
        return TRI__NOWHERE;
    qsort(list, n, sizeof *list, by_text);
    return literal_tree(b, list, n, 0);
}

/* ---- any string but some ---- */

static size_t next_character(const char *text, size_t n, uint32_t *out)
{
    unsigned char lead = (unsigned char)text[0];
    size_t bytes = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    uint32_t c = bytes == 1 ? lead : lead & (0xffu >> (bytes + 1));
    if (bytes > n)
        bytes = n;
    for (size_t i = 1; i < bytes; i++)
        c = c << 6 | ((unsigned char)text[i] & 0x3f);
    *out = c;
    return bytes;
}

struct others {
    struct tri__build *b;
    enum tri__coding coding;
    uint32_t rest, next; /* anything after a difference; the end */
};

/* names[0..n) are sorted and share the first `at` bytes. */
static uint32_t other_tree(const struct others *o, const struct tri__literal *names, size_t n,
                           size_t at)
{
    struct tri__build *b = o->b;
    uint32_t start = TRI__NOWHERE, from = 0;
    size_t i = 0;
    if (!tri__build_work(b, n))
        return TRI__NOWHERE;
    while (i < n && names[i].bytes == at)
        i++;
    if (i == 0)
        start = o->next; /* none of them ends here */
    struct tri__span *gap = tri_calloc(n + 1, sizeof *gap);
    size_t gaps = 0;
    if (!gap)
        return tri__build_fail(b, TRI_NOMEM, "no memory for a grammar");
    while (i < n) {
        uint32_t c = 0, same = 0;
        size_t bytes = next_character(names[i].text + at, names[i].bytes - at, &c), j = i;
        while (j < n && names[j].bytes > at &&
               (next_character(names[j].text + at, names[j].bytes - at, &same), same == c))
            j++;
        uint32_t child = other_tree(o, names + i, j - i, at + bytes);
        start = tri__put_fork(
            b, tri__put_character(b, &(struct tri__span){ c, c }, 1, o->coding, child), start);
        if (c > from)
            gap[gaps++] = (struct tri__span){ from, c - 1 };
        from = c + 1;
        i = j;
    }
    gap[gaps++] = (struct tri__span){ from, 0x10ffff };
    start = tri__put_fork(b, tri__put_character(b, gap, gaps, o->coding, o->rest), start);
    tri_free(gap);
    return start;
}

uint32_t tri__put_other_than(struct tri__build *b, const char *const *names, size_t n,
                             enum tri__coding coding, uint32_t next)
{
    static const struct tri__span all = { 0, 0x10ffff };
    struct tri__literal *list = tri_calloc(n + 1, sizeof *list);
    if (!list)
        return tri__build_fail(b, TRI_NOMEM, "no memory for a grammar");
    for (size_t i = 0; i < n; i++)
        list[i] = (struct tri__literal){ names[i], strlen(names[i]), 0 };
    qsort(list, n, sizeof *list, by_text);
    uint32_t body = tri__put_character(b, &all, 1, coding, b->end);
    const struct others o = { b, coding, tri__put_run(b, body, 0, TRI__MANY, next), next };
    uint32_t start = other_tree(&o, list, n, 0);
    tri_free(list);
    return start;
}
