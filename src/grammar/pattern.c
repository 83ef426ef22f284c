/*
 * Regular expressions: the regular part of ECMA 262's syntax (which JSON Schema names), without
 * lookaround, back-references and word borders. Read into a small tree, then put into the network
 * from behind. `.`, \D and \W are as in ECMA 262; \d and \w are ASCII; \s and \S hold in ECMA 262
 * and in Python.
 */
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "grammar/grammar_priv.h"

enum { MAX_GROUPS = 32, MAX_SPANS = 8192 };

enum kind { EMPTY, CLASS, BOTH, EITHER, REPEAT };

struct part {
    enum kind kind;
    uint32_t a, b;              /* parts; CLASS: first span and their number */
    uint32_t min, max;          /* REPEAT */
    uint32_t shortest, longest; /* characters */
};

struct reader {
    struct tri__build *b;
    const char *text;
    size_t n, at;
    struct part *part;
    uint32_t n_parts, cap_parts;
    struct tri__span *span;
    uint32_t n_spans;
    int groups;
    bool whole, failed;
};

static uint32_t bad(struct reader *r, const char *why)
{
    char safe[80];
    if (!r->failed)
        tri__build_fail(r->b, TRI_UNSUPPORTED, "%s: at byte %zu of the pattern '%s': %s",
                        r->b->root_name, r->at + 1, tri_printable(safe, sizeof safe, r->text, r->n),
                        why);
    r->failed = true;
    return 0;
}

/* ---- the tree ---- */

static uint32_t add_up(uint32_t a, uint32_t b)
{
    return a > TRI__MANY - 1 - b || b == TRI__MANY ? TRI__MANY : a + b;
}

static uint32_t times(uint32_t a, uint32_t n)
{
    uint64_t all = (uint64_t)a * n;
    if (a == 0 || n == 0)
        return 0;
    return a == TRI__MANY || n == TRI__MANY || all >= TRI__MANY ? TRI__MANY : (uint32_t)all;
}

static uint32_t add_part(struct reader *r, struct part p)
{
    if (r->n_parts == r->cap_parts)
        return bad(r, "too long");
    r->part[r->n_parts] = p;
    return r->n_parts++;
}

static uint32_t both(struct reader *r, uint32_t x, uint32_t y)
{
    const struct part *a = &r->part[x], *b = &r->part[y];
    if (a->kind == EMPTY)
        return y;
    if (b->kind == EMPTY)
        return x;
    return add_part(r, (struct part){ .kind = BOTH,
                                      .a = x,
                                      .b = y,
                                      .shortest = add_up(a->shortest, b->shortest),
                                      .longest = add_up(a->longest, b->longest) });
}

static uint32_t either(struct reader *r, uint32_t x, uint32_t y)
{
    const struct part *a = &r->part[x], *b = &r->part[y];
    return add_part(
        r, (struct part){ .kind = EITHER,
                          .a = x,
                          .b = y,
                          .shortest = a->shortest < b->shortest ? a->shortest : b->shortest,
                          .longest = a->longest > b->longest ? a->longest : b->longest });
}

static uint32_t repeat(struct reader *r, uint32_t x, uint32_t min, uint32_t max)
{
    const struct part *a = &r->part[x];
    if (min > max)
        return bad(r, "a repeat of more than its most");
    if (a->shortest == 0 && max > 1 && max != TRI__MANY)
        return bad(r, "a counted repeat of what may be empty is not supported");
    if (a->shortest == 0)
        min = 0;
    return add_part(r, (struct part){ .kind = REPEAT,
                                      .a = x,
                                      .min = min,
                                      .max = max,
                                      .shortest = times(a->shortest, min),
                                      .longest = times(a->longest, max) });
}

/* ---- classes ---- */

static void add_span(struct reader *r, uint32_t lo, uint32_t hi)
{
    if (r->n_spans == MAX_SPANS)
        bad(r, "too many character ranges");
    else
        r->span[r->n_spans++] = (struct tri__span){ lo, hi };
}

static int by_low(const void *a, const void *b)
{
    const struct tri__span *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

/* Sorts and joins spans from `first` on; turns them into all others if `negated`. */
static void settle(struct reader *r, uint32_t first, bool negated)
{
    struct tri__span *s = r->span + first;
    uint32_t n = r->n_spans - first, kept = 0, from = 0;
    qsort(s, n, sizeof *s, by_low);
    for (uint32_t i = 0; i < n; i++) {
        if (kept && s[i].lo <= s[kept - 1].hi + 1)
            s[kept - 1].hi = s[i].hi > s[kept - 1].hi ? s[i].hi : s[kept - 1].hi;
        else
            s[kept++] = s[i];
    }
    r->n_spans = first + kept;
    if (!negated)
        return;
    n = 0; /* each gap is written over the span before it, or the first before all */
    for (uint32_t i = 0; i < kept; i++) {
        struct tri__span now = s[i];
        if (now.lo > from)
            s[n++] = (struct tri__span){ from, now.lo - 1 };
        from = now.hi + 1;
    }
    r->n_spans = first + n;
    if (from <= 0x10ffff)
        add_span(r, from, 0x10ffff);
}

/*
 * \d \w \s and their opposites; false: another letter. What counts as a space differs between
 * ECMA 262 and others (Python's re): `wide` adds what either takes for one, for opposites.
 */
static bool add_named(struct reader *r, char name, bool wide)
{
    static const struct tri__span digit[] = { { '0', '9' } },
                                  word[] = { { '0', '9' },
                                             { 'A', 'Z' },
                                             { '_', '_' },
                                             { 'a', 'z' } },
                                  space[] = { { 9, 13 },          { 32, 32 },
                                              { 0xa0, 0xa0 },     { 0x1680, 0x1680 },
                                              { 0x2000, 0x200a }, { 0x2028, 0x2029 },
                                              { 0x202f, 0x202f }, { 0x205f, 0x205f },
                                              { 0x3000, 0x3000 }, { 0x1c, 0x1f },
                                              { 0x85, 0x85 },     { 0xfeff, 0xfeff } };
    static const struct {
        char name;
        const struct tri__span *span;
        size_t n, wide;
    } sets[] = { { 'd', digit, 1, 1 }, { 'w', word, 4, 4 }, { 's', space, 9, 12 } };
    for (size_t i = 0; i < 3; i++) {
        if ((name | 32) != sets[i].name)
            continue;
        uint32_t first = r->n_spans;
        bool opposite = name != sets[i].name;
        for (size_t k = 0; k < (wide != opposite ? sets[i].wide : sets[i].n); k++)
            add_span(r, sets[i].span[k].lo, sets[i].span[k].hi);
        settle(r, first, opposite);
        return true;
    }
    return false;
}

static bool hex(struct reader *r, int digits, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++, r->at++) {
        char c = r->at < r->n ? r->text[r->at] : 0;
        int v = c >= '0' && c <= '9'                 ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                     : -1;
        if (v < 0) {
            bad(r, "hexadecimal digits are missing");
            return false;
        }
        *out = *out << 4 | (uint32_t)v;
    }
    return true;
}

/* One character after a backslash that stands for itself or a control. */
static uint32_t escaped(struct reader *r)
{
    static const char letters[] = "tnvfr", codes[] = "\t\n\v\f\r";
    uint32_t c = 0;
    if (r->at == r->n)
        return bad(r, "ends in a backslash");
    char e = r->text[r->at++];
    const char *found = strchr(letters, e);
    if (e && found)
        return (uint32_t)codes[found - letters];
    if (e == 'x' || e == 'u')
        return hex(r, e == 'x' ? 2 : 4, &c) ? c : 0;
    if (e == '0' && (r->at == r->n || r->text[r->at] < '0' || r->text[r->at] > '9'))
        return 0;
    if ((e >= '0' && e <= '9') || ((e | 32) >= 'a' && (e | 32) <= 'z') || (unsigned char)e >= 0x80)
        return bad(r, "this escape is not supported");
    return (uint32_t)e;
}

static uint32_t plain(struct reader *r)
{
    unsigned char lead = (unsigned char)r->text[r->at];
    size_t bytes = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    uint32_t c = bytes == 1 ? lead : lead & (0xffu >> (bytes + 1));
    for (size_t i = 1; i < bytes; i++)
        c = c << 6 | ((unsigned char)r->text[r->at + i] & 0x3f);
    r->at += bytes;
    return c;
}

static bool next_is(struct reader *r, char c)
{
    return r->at < r->n && r->text[r->at] == c;
}

/* One end of a range inside [...]; *named: it was a whole class. */
static uint32_t class_atom(struct reader *r, bool negated, bool *named)
{
    *named = false;
    if (!next_is(r, '\\'))
        return plain(r);
    r->at++;
    if (r->at < r->n && add_named(r, r->text[r->at], negated)) {
        r->at++;
        *named = true;
        return 0;
    }
    if (next_is(r, 'b')) {
        r->at++;
        return '\b';
    }
    return escaped(r);
}

static uint32_t class_part(struct reader *r, uint32_t first)
{
    return add_part(
        r, (struct part){
               .kind = CLASS, .a = first, .b = r->n_spans - first, .shortest = 1, .longest = 1 });
}

static uint32_t bracket(struct reader *r)
{
    uint32_t first = r->n_spans;
    bool negated = next_is(r, '^'), named = false, named_too = false;
    r->at += negated;
    while (!r->failed && r->at < r->n && r->text[r->at] != ']') {
        uint32_t lo = class_atom(r, negated, &named), hi = lo;
        if (next_is(r, '-') && r->at + 1 < r->n && r->text[r->at + 1] != ']') {
            r->at++;
            hi = class_atom(r, negated, &named_too);
            if (named || named_too || hi < lo)
                return bad(r, "a range of characters that is none");
        }
        if (!named)
            add_span(r, lo, hi);
    }
    if (r->failed || r->at == r->n)
        return bad(r, "[ without ]");
    r->at++;
    settle(r, first, negated);
    return class_part(r, first);
}

/* ---- syntax ---- */

static uint32_t alternatives(struct reader *r);

static uint32_t group(struct reader *r)
{
    if (next_is(r, '?')) {
        if (r->at + 1 >= r->n || r->text[r->at + 1] != ':')
            return bad(r, "of (? only (?: is supported");
        r->at += 2;
    }
    if (++r->groups > MAX_GROUPS)
        return bad(r, "groups are nested too deep");
    uint32_t inner = alternatives(r);
    r->groups--;
    if (!next_is(r, ')'))
        return bad(r, "( without )");
    r->at++;
    return inner;
}

static uint32_t atom(struct reader *r)
{
    uint32_t first = r->n_spans, c = 0;
    switch (r->text[r->at]) {
    case '(':
        r->at++;
        return group(r);
    case '[':
        r->at++;
        return bracket(r);
    case '.':
        r->at++;
        add_span(r, '\n', '\n');
        add_span(r, '\r', '\r');
        add_span(r, 0x2028, 0x2029);
        settle(r, first, true);
        return class_part(r, first);
    case '^':
    case '$':
        return bad(r, "^ and $ are supported at the ends of the pattern only");
    case '*':
    case '+':
    case '?':
    case '{':
        return bad(r, "nothing to repeat");
    case '\\':
        r->at++;
        if (r->at < r->n && add_named(r, r->text[r->at], false)) {
            r->at++;
            return class_part(r, first);
        }
        c = escaped(r);
        break;
    default:
        c = plain(r);
    }
    add_span(r, c, c);
    return class_part(r, first);
}

static bool number(struct reader *r, uint32_t *out)
{
    uint64_t v = 0;
    size_t digits = 0;
    for (; r->at < r->n && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++, digits++)
        v = v > TRI_GRAMMAR_MAX_REPEAT ? v : v * 10 + (uint64_t)(r->text[r->at] - '0');
    if (digits && v > TRI_GRAMMAR_MAX_REPEAT)
        bad(r, "a repeat of more than 100000");
    *out = (uint32_t)v;
    return digits > 0;
}

static bool braces(struct reader *r, uint32_t *min, uint32_t *max)
{
    r->at++;
    if (!number(r, min))
        return bad(r, "{ without a number") != 0;
    *max = *min;
    if (next_is(r, ',')) {
        r->at++;
        if (!number(r, max))
            *max = TRI__MANY;
    }
    if (!next_is(r, '}'))
        return bad(r, "{ without }") != 0;
    r->at++;
    return true;
}

static uint32_t repeated(struct reader *r)
{
    uint32_t x = atom(r), min = 1, max = 1;
    if (r->failed || r->at == r->n || !strchr("*+?{", r->text[r->at]))
        return x;
    if (r->text[r->at] == '{') {
        if (!braces(r, &min, &max))
            return 0;
    } else {
        char c = r->text[r->at++];
        min = c == '+';
        max = c == '?' ? 1 : TRI__MANY;
    }
    if (next_is(r, '?'))
        r->at++; /* lazy: the same language */
    return r->failed ? 0 : repeat(r, x, min, max);
}

static uint32_t anything(struct reader *r)
{
    uint32_t first = r->n_spans;
    add_span(r, 0, 0x10ffff);
    return repeat(r, class_part(r, first), 0, TRI__MANY);
}

static uint32_t sequence(struct reader *r)
{
    uint32_t all = add_part(r, (struct part){ .kind = EMPTY });
    bool top = r->groups == 0, begins = top && next_is(r, '^'), ends = false;
    r->at += begins;
    while (!r->failed && r->at < r->n && !strchr("|)", r->text[r->at])) {
        if (top && r->text[r->at] == '$' && (r->at + 1 == r->n || r->text[r->at + 1] == '|')) {
            r->at++;
            ends = true;
            break;
        }
        all = both(r, all, repeated(r));
    }
    if (r->failed || !top || r->whole)
        return all;
    if (!begins)
        all = both(r, anything(r), all);
    return ends ? all : both(r, all, anything(r));
}

static uint32_t alternatives(struct reader *r)
{
    uint32_t all = sequence(r);
    while (!r->failed && next_is(r, '|')) {
        r->at++;
        all = either(r, all, sequence(r));
    }
    return all;
}

/* ---- into the network ---- */

static uint32_t emit(struct reader *r, uint32_t x, enum tri__coding coding, uint32_t next)
{
    struct tri__build *b = r->b;
    const struct part p = r->part[x];
    if (!tri__build_work(b, 1))
        return TRI__NOWHERE;
    switch (p.kind) {
    case EMPTY:
        break;
    case CLASS:
        return tri__put_character(b, r->span + p.a, p.b, coding, next);
    case BOTH:
        return emit(r, p.a, coding, emit(r, p.b, coding, next));
    case EITHER:
        return tri__put_fork(b, emit(r, p.a, coding, next), emit(r, p.b, coding, next));
    case REPEAT:
        if (p.max == 1)
            return p.min ? emit(r, p.a, coding, next)
                         : tri__put_fork(b, emit(r, p.a, coding, next), next);
        if (r->part[p.a].kind == CLASS)
            return tri__put_run(b, emit(r, p.a, coding, b->end), p.min, p.max, next);
        return tri__put_loop(b, emit(r, p.a, coding, b->end), p.min, p.max, next);
    }
    return next;
}

uint32_t tri__put_pattern(struct tri__build *b, struct tri__pattern *p, uint32_t next)
{
    struct reader r = { .b = b, .text = p->text, .n = p->bytes, .whole = p->whole };
    uint32_t start = TRI__NOWHERE;
    if (p->bytes > TRI_GRAMMAR_MAX_PATTERN_BYTES)
        return tri__build_fail(b, TRI_LIMIT, "%s: a pattern of %zu bytes, at most %d are read",
                               b->root_name, p->bytes, TRI_GRAMMAR_MAX_PATTERN_BYTES);
    r.cap_parts = (uint32_t)p->bytes * 4 + 64;
    r.part = tri_calloc(r.cap_parts, sizeof *r.part);
    r.span = tri_calloc(MAX_SPANS, sizeof *r.span);
    if (!r.part || !r.span) {
        tri__build_fail(b, TRI_NOMEM, "no memory for a grammar");
    } else {
        uint32_t all = alternatives(&r);
        if (!r.failed && r.at < r.n)
            bad(&r, ") without (");
        if (!r.failed) {
            start = emit(&r, all, p->coding, next);
            p->min = r.part[all].shortest;
            p->max = r.part[all].longest;
        }
    }
    tri_free(r.part);
    tri_free(r.span);
    return start;
}
