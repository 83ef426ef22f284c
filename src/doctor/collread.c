/*
 * Reads nccl-tests and rccl-tests tables of every version: with or without redop and root columns,
 * with "error", "#wrong" or N/A, one placement or both, under launcher prefixes, with log lines in
 * between. What the header lost is worked out from the numbers: ranks from busbw/algbw or from
 * size/count. A row that contradicts itself (size / time != algbw) is damaged and not used.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "doctor/doctor_priv.h"

enum { WORDS = 24 };

struct row {
    double size, count, type_bytes;
    bool redop, root;
    double time[2], algbw[2], busbw[2], wrong[2];
    int halves;
    bool old_errors;
};

static double type_bytes(struct tri_word w)
{
    static const struct {
        const char *name;
        double bytes;
    } types[] = { { "int8", 1 },     { "uint8", 1 },  { "f8e4m3", 1 },   { "f8e5m2", 1 },
                  { "fp8_e4m3", 1 }, { "char", 1 },   { "fp8_e5m2", 1 }, { "half", 2 },
                  { "bfloat16", 2 }, { "float", 4 },  { "int32", 4 },    { "uint32", 4 },
                  { "int", 4 },      { "double", 8 }, { "int64", 8 },    { "uint64", 8 } };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (tri_word_is(w, types[i].name))
            return types[i].bytes;
    return 0;
}

static bool is_redop(struct tri_word w)
{
    static const char *const ops[] = { "sum", "prod", "max", "min", "avg", "mulsum", "none" };
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (tri_word_is(w, ops[i]))
            return true;
    return false;
}

/* time algbw busbw wrong, from word i on; wrong may be N/A (then -1). */
static bool read_half(struct row *r, int half, const struct tri_word *w)
{
    r->old_errors |= memchr(w[3].at, 'e', w[3].len) != NULL;
    return tri_word_number(w[0], &r->time[half]) && tri_word_number(w[1], &r->algbw[half]) &&
           tri_word_number(w[2], &r->busbw[half]) &&
           (tri_word_number(w[3], &r->wrong[half]) ||
            (tri_word_is(w[3], "N/A") && (r->wrong[half] = -1, true)));
}

/* 1 a row, 0 none, -1 something that begins as one and is not whole. */
static int parse(const char *text, struct row *r)
{
    struct tri_word w[WORDS];
    size_t n = tri_words(text, w, WORDS), at = 3;
    uint64_t size = 0, count = 0;
    *r = (struct row){ 0 };
    if (n < 3 || n > WORDS || !tri_word_unsigned(w[0], 10, &size) ||
        !tri_word_unsigned(w[1], 10, &count))
        return 0;
    r->type_bytes = type_bytes(w[2]);
    if (r->type_bytes <= 0)
        return 0;
    r->size = (double)size;
    r->count = (double)count;
    if (at < n && is_redop(w[at])) {
        r->redop = true;
        at++;
    }
    size_t left = n - at;
    if (left == 9 || left == 5) {
        double root = 0;
        if (!tri_word_number(w[at], &root) || root < -1 || root != floor(root))
            return -1;
        r->root = true;
        at++;
        left--;
    }
    if (left < 4 || !read_half(r, 0, w + at))
        return -1;
    r->halves = 1;
    if (left >= 8 && read_half(r, 1, w + at + 4))
        r->halves = 2;
    else if (left != 4)
        return -1;
    return 1;
}

struct tri__coll *tri__doctor_open_coll(struct tri_doctor *d, struct tri__spot at)
{
    if (!d->coll)
        d->coll = tri_calloc(TRI__COLLS, sizeof *d->coll);
    if (!d->coll || d->colls == TRI__COLLS)
        return NULL;
    struct tri__coll *c = &d->coll[d->colls++];
    c->first = c->best = c->header_spot = at;
    c->wrong_spot.text = -1;
    return c;
}

/* The open test, or a new one when `fresh` wants one and the last has rows already. */
static struct tri__coll *current(struct tri_doctor *d, struct tri__spot at, bool fresh)
{
    struct tri__coll *c = d->colls ? &d->coll[d->colls - 1] : NULL;
    bool other_text = c && (c->closed || c->first.text != at.text);
    return !c || other_text || (fresh && c->rows) ? tri__doctor_open_coll(d, at) : c;
}

/* Ranks from the numbers of the largest row (planner.md 3.2). 0 when they do not tell. */
static size_t ranks_of(const struct row *r, const char *op)
{
    double per = r->count * r->type_bytes;
    bool gathers = tri_text_find(op, "gather") || tri_text_find(op, "scatter") ||
                   tri_text_find(op, "alltoall");
    if (per > 0 && r->size / per > 1.5 && fmod(r->size, per) == 0)
        return (size_t)(r->size / per); /* all-gather and reduce-scatter count one rank's part */
    double f = r->algbw[0] > 0.5 ? r->busbw[0] / r->algbw[0] : 0, n = 0;
    if (f > 1.02 && f < 2)
        n = 2 / (2 - f);
    else if (f > 0.2 && f < 0.995)
        n = 1 / (1 - f);
    else if (f >= 0.98 && !gathers && r->redop)
        n = 2;
    double whole = floor(n + 0.5);
    return n >= 1.5 && n < 4096 && fabs(n - whole) < 0.02 * n + 0.05 ? (size_t)whole : 0;
}

static void use_row(struct tri__coll *c, const struct row *r, struct tri__spot at)
{
    /* algbw is size / time; old all-gathers counted one rank's part. Two printed decimals: only
     * rows with enough of them can be checked. */
    double whole = r->time[0] > 0 ? r->size / r->time[0] / 1000 : 0;
    double part = r->time[0] > 0 ? r->count * r->type_bytes / r->time[0] / 1000 : 0;
    bool fits = fabs(whole - r->algbw[0]) < 0.1 * r->algbw[0] ||
                fabs(part - r->algbw[0]) < 0.1 * r->algbw[0];
    if (r->algbw[0] > 2 && !fits) {
        c->damaged = true;
        return;
    }
    c->rows++;
    c->half |= r->halves < 2;
    c->old_errors |= r->old_errors;
    for (int h = 0; h < r->halves; h++)
        if (r->wrong[h] > 0.01) { /* old versions print a rounding error such as 2e-07 */
            c->wrong = true;
            c->wrong_spot = at;
        }
    if (r->size < c->size_bytes)
        return;
    int best = r->halves == 2 && r->busbw[1] > r->busbw[0];
    c->before_busbw = c->busbw;
    c->size_bytes = r->size;
    c->algbw = r->algbw[best];
    c->busbw = r->busbw[best];
    c->best = at;
    size_t ranks = ranks_of(r, c->op);
    if (!c->op[0])
        snprintf(c->op, sizeof c->op, "%s",
                 r->count * r->type_bytes * 1.5 < r->size && r->count > 0
                     ? (r->redop ? "reduce_scatter" : "all_gather")
                 : r->redop && r->busbw[0] > r->algbw[0] * 1.02 ? "all_reduce"
                                                                : "");
    if (!c->ranks_told && ranks && (ranks > c->ranks || !c->ranks))
        c->ranks = ranks;
}

/* The host of a "Rank" line; false when the line is none. */
static bool host_of(const char *text, char host[64])
{
    const char *on = tri_text_find(text, " on "), *device = tri_text_find(text, " device ");
    if (!on || !device || device < on)
        return false;
    on += 4 + strspn(on + 4, " ");
    snprintf(host, 64, "%.*s", (int)strcspn(on, " "), on);
    return true;
}

/* "#  Rank  0 Group 0 Pid 1 on HOST device 0 [0x16] NVIDIA GeForce RTX 4090" */
static bool read_device(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    char host[64], before[64] = "";
    text += strspn(text, "# \t");
    const char *device = tri_text_find(text, " device ");
    const char *bracket = device ? strchr(device, '[') : NULL;
    const char *close = bracket ? strchr(bracket, ']') : NULL;
    if (!tri_text_begins(text, "Rank ") || !close || !host_of(text, host))
        return false;
    struct tri__coll *c = current(d, at, true);
    if (!c)
        return true;
    long rank = strtol(text + 5, NULL, 10);
    close += 1 + strspn(close + 1, " ");
    if (!c->device[0])
        snprintf(c->device, sizeof c->device, "%s", close);
    if (rank == 0 && c->ranks_told)
        c->copies++; /* a program built without MPI: each process tests by itself */
    /* hosts are counted by their changes: ranks are printed in order of hosts */
    if (at.line)
        host_of(tri__doctor_line(d, (struct tri__spot){ at.text, at.line - 1 }), before);
    if (strcmp(host, before))
        c->hosts++;
    if (rank >= 0 && rank < 65536 && (size_t)rank + 1 > c->ranks)
        c->ranks = (size_t)rank + 1;
    c->ranks_told = true;
    return true;
}

static bool read_header(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    const char *p = text + strspn(text, "# \t"); /* markdown eats the '#' */
    const char *most = tri_text_find(p, "maxBytes "), *start = tri_text_find(p, "test starting:");
    bool sizes = tri_text_begins(p, "size") && tri_text_find(p, "busbw");
    sizes &= tri_text_find(p, "algbw") != NULL;
    bool more = (tri_text_begins(p, "nThread ") && most) ||
                tri_text_begins(p, "nccl-tests version") || start;
    if (read_device(d, at, text))
        return true;
    if (tri_text_begins(p, "Out of bounds values")) {
        struct tri__coll *c = d->colls ? &d->coll[d->colls - 1] : NULL;
        if (c && tri_text_find(p, "FAILED")) {
            c->wrong = true;
            c->wrong_spot = at;
        }
        return true;
    }
    if (!sizes && !more)
        return tri_text_begins(p, "Avg bus bandwidth") || tri_text_begins(p, "Using devices") ||
               (tri_text_find(p, "out-of-place") && tri_text_find(p, "in-place"));
    struct tri__coll *c = current(d, at, true);
    if (!c)
        return true;
    c->header |= sizes;
    c->header_spot = at;
    if (most)
        c->max_bytes = strtod(most + 9, NULL);
    const char *threads = tri_text_find(p, "nThread "), *gpus = tri_text_find(p, "nGpus ");
    if (threads && gpus && !c->ranks_told) { /* of one process; several are told by Rank lines */
        unsigned long n = strtoul(threads + 8, NULL, 10) * strtoul(gpus + 6, NULL, 10);
        c->ranks = n > 1 && n < 65536 ? (size_t)n : c->ranks;
    }
    if (start) {
        start += 14 + strspn(start + 14, " ");
        snprintf(c->op, sizeof c->op, "%.*s", (int)strcspn(start, " "), start);
        char *perf = strstr(c->op, "_perf");
        if (perf)
            *perf = 0;
    }
    return true;
}

void tri__doctor_words_coll(struct tri_sieve *sieve)
{
    tri_sieve_starts(sieve, TRI__HIT_COLL, "0123456789"); /* rows */
    tri_sieve_words(sieve, TRI__HIT_COLL,
                    "maxBytes|test starting:|busbw|nccl-tests version|Rank |Out of bounds values|"
                    "Avg bus bandwidth|Using devices|out-of-place");
}

size_t tri__doctor_read_coll(struct tri_doctor *d, struct tri__spot at)
{
    const char *text = tri__doctor_line(d, at);
    struct row r;
    if (!read_header(d, at, text)) {
        int got = parse(text, &r);
        if (!got)
            return 0;
        struct tri__coll *c = current(d, at, false);
        if (c && got > 0 && c->rows && r.size < c->size_bytes)
            c = tri__doctor_open_coll(d, at); /* sizes begin anew: its header was cut */
        if (c && got < 0)
            c->damaged = true;
        else if (c)
            use_row(c, &r, at);
    }
    d->kind_seen |= TRI__KIND_COLLECTIVE;
    return 1;
}
