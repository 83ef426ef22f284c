/*
 * Numbers as text. Integers within bounds digit by digit; numbers with a point within whole bounds,
 * by their whole part and whether anything follows it. No number is longer than
 * TRI_GRAMMAR_MAX_DIGITS on either side of its point, and exponents stay below a double's 308.
 */
#include <stdio.h>
#include <string.h>
#include "grammar/grammar_priv.h"

/* Digits from `at` on of numbers of `n` digits that lie between low and high (NULL: free). */
static uint32_t put_digits(struct tri__build *b, const char *low, const char *high, size_t n,
                           uint32_t next)
{
    if (n == 0)
        return next;
    if (!low && !high)
        return tri__put_loop(b, tri__put_byte(b, '0', '9', b->end), (uint32_t)n, (uint32_t)n, next);
    char lo = low ? *low : '0', hi = high ? *high : '9';
    if (lo == hi)
        return tri__put_byte(
            b, (uint8_t)lo, (uint8_t)lo,
            put_digits(b, low ? low + 1 : NULL, high ? high + 1 : NULL, n - 1, next));
    struct tri__range ranges[3];
    uint32_t m = 0;
    if (low)
        ranges[m++] = (struct tri__range){ (uint8_t)lo, (uint8_t)lo,
                                           put_digits(b, low + 1, NULL, n - 1, next) };
    if (high)
        ranges[m++] = (struct tri__range){ (uint8_t)hi, (uint8_t)hi,
                                           put_digits(b, NULL, high + 1, n - 1, next) };
    int from = lo + (low != NULL), to = hi - (high != NULL);
    if (from <= to)
        ranges[m++] = (struct tri__range){ (uint8_t)from, (uint8_t)to,
                                           put_digits(b, NULL, NULL, n - 1, next) };
    return tri__put_set(b, ranges, m);
}

/* A whole number lo..hi, both at least 0, without leading zeros; bounded false: no highest. */
static uint32_t put_whole(struct tri__build *b, uint64_t lo, uint64_t hi, bool bounded,
                          uint32_t next)
{
    char low[24], high[24];
    uint32_t start = TRI__NOWHERE;
    if (bounded && lo > hi)
        return TRI__NOWHERE;
    size_t n = (size_t)snprintf(low, sizeof low, "%llu", (unsigned long long)lo);
    size_t m = bounded ? (size_t)snprintf(high, sizeof high, "%llu", (unsigned long long)hi) : n;
    for (size_t digits = n; digits <= m; digits++) {
        bool first = digits == n, last = bounded && digits == m;
        /* "1" keeps longer numbers from starting with a zero */
        const char *from = first ? low : "10000000000000000000000";
        start = tri__put_fork(b, put_digits(b, from, last ? high : NULL, digits, next), start);
    }
    if (bounded)
        return start;
    uint32_t rest = tri__put_loop(b, tri__put_byte(b, '0', '9', b->end), (uint32_t)n,
                                  TRI_GRAMMAR_MAX_DIGITS - 1, next);
    return tri__put_fork(b, tri__put_byte(b, '1', '9', rest), start);
}

static uint64_t size_of(int64_t negative)
{
    return ~(uint64_t)negative + 1;
}

uint32_t tri__put_integer(struct tri__build *b, const struct tri__bounds *bounds, uint32_t next)
{
    struct tri__bounds k = *bounds;
    if (k.has_min && k.open_min) {
        if (k.min == INT64_MAX)
            return TRI__NOWHERE;
        k.min++;
    }
    if (k.has_max && k.open_max) {
        if (k.max == INT64_MIN)
            return TRI__NOWHERE;
        k.max--;
    }
    if (k.has_min && k.has_max && k.min > k.max)
        return TRI__NOWHERE;
    uint32_t start = TRI__NOWHERE;
    if (!k.has_max || k.max >= 0)
        start = put_whole(b, k.has_min && k.min > 0 ? (uint64_t)k.min : 0, (uint64_t)k.max,
                          k.has_max, next);
    if (!k.has_min || k.min < 0) {
        uint64_t lo = k.has_max && k.max < 0 ? size_of(k.max) : 1;
        uint32_t size = put_whole(b, lo, size_of(k.min), k.has_min, next);
        start = tri__put_fork(b, start, tri__put_byte(b, '-', '-', size));
    }
    return start;
}

static uint32_t put_some_digits(struct tri__build *b, uint32_t min, uint32_t next)
{
    return tri__put_loop(b, tri__put_byte(b, '0', '9', b->end), min, TRI_GRAMMAR_MAX_DIGITS, next);
}

static uint32_t put_fraction(struct tri__build *b, uint32_t next)
{
    return tri__put_byte(b, '.', '.', put_some_digits(b, 1, next));
}

/* e, a sign, 0 to 307. small: the sign is a minus and there is another digit than 0. */
static uint32_t put_exponent(struct tri__build *b, bool small, uint32_t next)
{
    static const char *const any = "[eE][+-]?([0-9]{1,2}|[12][0-9]{2}|30[0-7])";
    static const char *const minus = "[eE]-(0?[1-9]|[1-9][0-9]|[12][0-9]{2}|30[0-7])";
    struct tri__pattern p = { .text = small ? minus : any, .whole = true, .coding = TRI__RAW_TEXT };
    p.bytes = strlen(p.text);
    return tri__put_pattern(b, &p, next);
}

/* One digit, maybe a fraction, then an exponent; the digit from `first` on. */
static uint32_t put_scientific(struct tri__build *b, bool small, uint32_t next)
{
    uint32_t e = put_exponent(b, small, next);
    return tri__put_byte(b, small ? '1' : '0', '9', tri__put_fork(b, put_fraction(b, e), e));
}

/* Sizes from lo to hi; an open bound is not reached itself. */
struct sizes {
    uint64_t lo, hi;
    bool bounded, open_lo, open_hi;
};

/* lo itself with a fraction that is not zero. */
static uint32_t put_above(struct tri__build *b, uint64_t lo, uint32_t next)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%llu.", (unsigned long long)lo);
    uint32_t rest = put_some_digits(b, 0, next);
    uint32_t zeros = tri__put_loop(b, tri__put_byte(b, '0', '0', b->end), 0, TRI_GRAMMAR_MAX_DIGITS,
                                   tri__put_byte(b, '1', '9', rest));
    return tri__put_text(b, text, (size_t)n, zeros);
}

/* hi itself, with zeros behind its point at most. */
static uint32_t put_exactly(struct tri__build *b, uint64_t hi, uint32_t next)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%llu", (unsigned long long)hi);
    uint32_t zeros =
        tri__put_loop(b, tri__put_byte(b, '0', '0', b->end), 1, TRI_GRAMMAR_MAX_DIGITS, next);
    return tri__put_text(b, text, (size_t)n,
                         tri__put_fork(b, tri__put_byte(b, '.', '.', zeros), next));
}

static uint32_t put_size(struct tri__build *b, const struct sizes *s, uint32_t next)
{
    uint64_t from = s->lo + s->open_lo;
    uint32_t point = tri__put_fork(b, put_fraction(b, next), next), start = TRI__NOWHERE;
    if (s->bounded && s->hi < s->lo)
        return TRI__NOWHERE;
    if (!s->bounded || s->hi > s->lo) {
        if (!s->bounded || s->hi > from)
            start = put_whole(b, from, s->bounded ? s->hi - 1 : 0, s->bounded, point);
        if (s->open_lo)
            start = tri__put_fork(b, start, put_above(b, s->lo, next));
        if (s->lo == 0) /* 1e-05: below 1, above 0 */
            start = tri__put_fork(b, start, put_scientific(b, true, next));
    }
    if (s->bounded && !s->open_hi && (s->hi > s->lo || !s->open_lo))
        start = tri__put_fork(b, start, put_exactly(b, s->hi, next));
    return start;
}

uint32_t tri__put_number(struct tri__build *b, const struct tri__bounds *k, uint32_t next)
{
    uint32_t start = TRI__NOWHERE, minus = TRI__NOWHERE;
    if (!k->has_min && !k->has_max) {
        const struct tri__bounds none = { 0 };
        uint32_t point = tri__put_fork(b, put_fraction(b, next), next);
        start = tri__put_fork(b, put_whole(b, 0, 0, false, point), put_scientific(b, false, next));
        (void)none;
        return tri__put_fork(b, start, tri__put_byte(b, '-', '-', start));
    }
    if (!k->has_max || k->max > 0 || (k->max == 0 && !k->open_max)) {
        bool above = k->has_min && k->min >= 0;
        const struct sizes s = { .lo = above ? (uint64_t)k->min : 0,
                                 .hi = k->has_max ? (uint64_t)k->max : 0,
                                 .bounded = k->has_max,
                                 .open_lo = above && k->open_min,
                                 .open_hi = k->open_max };
        start = put_size(b, &s, next);
    }
    if (!k->has_min || k->min < 0) {
        bool below = k->has_max && k->max <= 0;
        const struct sizes s = { .lo = below ? size_of(k->max) : 0,
                                 .hi = k->has_min ? size_of(k->min) : 0,
                                 .bounded = k->has_min,
                                 .open_lo = below && k->open_max,
                                 .open_hi = k->open_min };
        minus = tri__put_byte(b, '-', '-', put_size(b, &s, next));
    }
    return tri__put_fork(b, start, minus);
}
