/* The planner's layouts: degrees, their text form, and layers over pipeline stages. */
#include "layout/layout.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

void tri_layout_one(struct tri_layout *out, int32_t layers)
{
    *out = (struct tri_layout){ .replicas = 1, .dp = 1, .tp = 1, .pp = 1, .cp = 1 };
    tri_layout_stages(out, layers);
}

void tri_layout_stages(struct tri_layout *out, int32_t layers)
{
    memset(out->stage_layers, 0, sizeof out->stage_layers);
    for (int32_t i = 0; i < out->pp && i < TRI_LAYOUT_MAX_STAGES; i++)
        out->stage_layers[i] = layers / out->pp + (i < layers % out->pp);
}

struct degrees {
    int32_t tp, dp, pp, ep, cp, replicas;
};

/* The degrees a word sets: "dep" is both dp and ep, "tep" tp and ep. False for no known word. */
static bool set_degree(struct degrees *d, const char *word, size_t letters, int32_t value)
{
    static const struct {
        const char *word;
        size_t first, second; /* offsets into struct degrees, first == second for one */
    } words[] = {
        { "tp", offsetof(struct degrees, tp), offsetof(struct degrees, tp) },
        { "dp", offsetof(struct degrees, dp), offsetof(struct degrees, dp) },
        { "pp", offsetof(struct degrees, pp), offsetof(struct degrees, pp) },
        { "ep", offsetof(struct degrees, ep), offsetof(struct degrees, ep) },
        { "cp", offsetof(struct degrees, cp), offsetof(struct degrees, cp) },
        { "dcp", offsetof(struct degrees, cp), offsetof(struct degrees, cp) },
        { "dep", offsetof(struct degrees, dp), offsetof(struct degrees, ep) },
        { "tep", offsetof(struct degrees, tp), offsetof(struct degrees, ep) },
        { "r", offsetof(struct degrees, replicas), offsetof(struct degrees, replicas) },
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strlen(words[i].word) != letters || strncmp(words[i].word, word, letters))
            continue;
        int32_t *first = (int32_t *)((char *)d + words[i].first);
        int32_t *second = (int32_t *)((char *)d + words[i].second);
        if (*first || *second)
            return false;
        *first = *second = value;
        return true;
    }
    return false;
}

static enum tri_status unreadable(const char *text, struct tri_error *err)
{
    char safe[80];
    return tri_fail(err, TRI_ARG,
                    "layout %s: expected degrees like tp8, tp8pp4, tp4dp4ep16, dep16, tp8dcp8, "
                    "tp2r4, each once, 1 to %d",
                    tri_printable(safe, sizeof safe, text, strnlen(text, 200)),
                    TRI_LAYOUT_MAX_DEGREE);
}

static enum tri_status read_degrees(struct degrees *d, const char *text, struct tri_error *err)
{
    char lower[64] = { 0 };
    size_t n = 0;
    for (const char *p = text; *p; p++) {
        if (*p == ' ' || *p == '-' || *p == '+' || *p == ',' || *p == '(' || *p == ')' ||
            ((*p == 'x' || *p == 'X') && (n == 0 || isdigit((unsigned char)lower[n - 1]))))
            continue;
        if (n + 1 >= sizeof lower)
            return unreadable(text, err);
        lower[n++] = (char)tolower((unsigned char)*p);
    }
    lower[n] = 0;
    const char *p = lower;
    while (*p) {
        size_t letters = 0;
        while (isalpha((unsigned char)p[letters]))
            letters++;
        long value = 0;
        const char *digits = p + letters;
        while (isdigit((unsigned char)*digits) && value <= TRI_LAYOUT_MAX_DEGREE)
            value = value * 10 + (*digits++ - '0');
        if (value < 1 || value > TRI_LAYOUT_MAX_DEGREE ||
            !set_degree(d, p, letters, (int32_t)value))
            return unreadable(text, err);
        p = digits;
    }
    return n ? TRI_OK : unreadable(text, err);
}

enum tri_status tri_layout_parse(struct tri_layout *out, const char *text, int32_t layers,
                                 struct tri_error *err)
{
    struct degrees d = { 0 };
    enum tri_status status = read_degrees(&d, text, err);
    if (status)
        return status;
    struct tri_layout l = { .replicas = d.replicas ? d.replicas : 1,
                            .dp = d.dp ? d.dp : 1,
                            .tp = d.tp ? d.tp : 1,
                            .pp = d.pp ? d.pp : 1,
                            .cp = d.cp ? d.cp : 1,
                            .ep = d.ep > 1 };
    if (d.ep > 1 && !d.tp && !d.dp)
        l.tp = d.ep;
    if (d.ep > 1 && d.ep != l.tp * l.dp)
        return tri_fail(err, TRI_ARG,
                        "layout %s: experts lie over tp x dp = %d ranks, so ep is %d or left out",
                        text, l.tp * l.dp, l.tp * l.dp);
    if (l.tp % l.cp)
        return tri_fail(err, TRI_ARG, "layout %s: dcp %d does not divide tp %d", text, l.cp, l.tp);
    if (l.pp > TRI_LAYOUT_MAX_STAGES || l.pp > layers)
        return tri_fail(err, TRI_ARG, "layout %s: %d stages for %d layers (at most %d stages)",
                        text, l.pp, layers, TRI_LAYOUT_MAX_STAGES);
    tri_layout_stages(&l, layers);
    *out = l;
    return TRI_OK;
}

void tri_layout_name(const struct tri_layout *l, char *out, size_t out_bytes)
{
    char inner[96];
    int n = snprintf(inner, sizeof inner, "TP%d", l->tp);
    size_t at = (size_t)n;
    if (l->dp > 1)
        at += (size_t)snprintf(inner + at, sizeof inner - at, " x DP%d", l->dp);
    if (l->pp > 1)
        at += (size_t)snprintf(inner + at, sizeof inner - at, " x PP%d", l->pp);
    if (l->cp > 1)
        at += (size_t)snprintf(inner + at, sizeof inner - at, " x DCP%d", l->cp);
    if (l->ep)
        snprintf(inner + at, sizeof inner - at, " (EP%d)", tri_layout_expert_ranks(l));
    if (l->replicas > 1)
        snprintf(out, out_bytes, "%d x (%s)", l->replicas, inner);
    else
        snprintf(out, out_bytes, "%s", inner);
}
