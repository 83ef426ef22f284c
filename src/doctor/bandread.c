/*
 * Reads p2pBandwidthLatencyTest (its matrices, CAN/CANNOT lines and device list) and nvbandwidth.
 * Both print tables of numbers under a header of device numbers; a row that has fewer numbers than
 * the header is cut and only its whole numbers are taken.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "doctor/doctor_priv.h"

enum { WORDS = TRI__BAND_MAX + 8 };

struct tri__band *tri__doctor_open_band(struct tri_doctor *d, struct tri__spot at, bool nvbandwidth)
{
    if (d->bands == TRI__BANDS)
        return NULL;
    if (!d->band)
        d->band = tri_calloc(TRI__BANDS, sizeof *d->band);
    if (!d->band)
        return NULL;
    struct tri__band *b = &d->band[d->bands++];
    b->banner = at;
    b->cannot.text = b->waived.text = -1;
    b->nvbandwidth = nvbandwidth;
    return b;
}

static struct tri__band *last_band(struct tri_doctor *d, struct tri__spot at, bool nvbandwidth)
{
    struct tri__band *b = d->bands ? &d->band[d->bands - 1] : NULL;
    return b && b->nvbandwidth == nvbandwidth ? b : tri__doctor_open_band(d, at, nvbandwidth);
}

static const char *line_at(const struct tri_doctor *d, struct tri__spot at, size_t offset)
{
    at.line += (uint32_t)offset;
    return tri__doctor_line(d, at);
}

static bool has_line(const struct tri_doctor *d, struct tri__spot at, size_t offset)
{
    return at.line + offset < d->text[at.text].lines.count;
}

/* "D\D 0 1 2", "GPU 0 1", "0 1 2": how many columns the header has; 0 when it is none. */
static size_t header_columns(const char *text)
{
    struct tri_word w[WORDS];
    size_t n = tri_words(text, w, WORDS), from = 0;
    uint64_t v = 0;
    if (!n || n > WORDS)
        return 0;
    if (tri_word_is(w[0], "D\\D") || tri_word_is(w[0], "GPU") || tri_word_is(w[0], "CPU"))
        from = 1;
    for (size_t i = from; i < n; i++)
        if (!tri_word_unsigned(w[i], 10, &v) || v != i - from)
            return 0;
    return n - from <= TRI__BAND_MAX ? n - from : 0;
}

/* One row into the table. False when the line is no row of it. */
static bool read_row(struct tri_doctor *d, struct tri__table *t, struct tri__spot at)
{
    struct tri_word w[WORDS];
    size_t n = tri_words(tri__doctor_line(d, at), w, WORDS);
    uint64_t index = 0;
    if (n < 2 || n > WORDS || !tri_word_unsigned(w[0], 10, &index) || index >= TRI__BAND_MAX)
        return false;
    for (size_t i = 1; i < n; i++) { /* all of them before the first is stored */
        double v = 0;
        bool last = i + 1 == n;
        if (!tri_word_number(w[i], &v) && !tri_word_is(w[i], "N/A") && !last)
            return false;
    }
    if (index >= t->rows)
        t->rows = (size_t)index + 1;
    t->row_spot[index] = at;
    t->cut |= n - 1 != t->columns;
    for (size_t i = 1; i < n && i <= t->columns; i++) {
        double v = 0;
        const char *dot = memchr(w[i].at, '.', w[i].len);
        /* the last number of a line may have lost digits: all are printed with two decimals */
        bool whole =
            i + 1 < n || t->kind == TRI__CONNECTIVITY || (dot && w[i].at + w[i].len - dot == 3);
        t->cut |= !whole && dot;
        if (tri_word_number(w[i], &v) && whole)
            t->cell[index * t->columns + i - 1] = v;
    }
    return true;
}

struct tri__table *tri__doctor_add_table(struct tri__band *b, enum tri__table_kind kind,
                                         size_t columns)
{
    if (!b->table)
        b->table = tri_calloc(TRI__TABLES, sizeof *b->table);
    if (!b->table || b->tables == TRI__TABLES)
        return NULL;
    struct tri__table *t = &b->table[b->tables];
    size_t cells = TRI__BAND_MAX * (columns ? columns : 1);
    t->cell = tri_calloc(cells, sizeof *t->cell);
    t->row_spot = tri_calloc(TRI__BAND_MAX, sizeof *t->row_spot);
    if (!t->cell || !t->row_spot) {
        tri_free(t->cell);
        tri_free(t->row_spot);
        *t = (struct tri__table){ 0 };
        return NULL;
    }
    for (size_t i = 0; i < cells; i++)
        t->cell[i] = (double)NAN;
    for (size_t i = 0; i < TRI__BAND_MAX; i++)
        t->row_spot[i].text = -1;
    t->kind = kind;
    t->columns = columns;
    b->tables++;
    return t;
}

/* Header and rows below a title at `at`. Returns the lines taken, the title included. */
static size_t read_table(struct tri_doctor *d, struct tri__band *b, struct tri__spot at,
                         enum tri__table_kind kind, const char *name)
{
    size_t skip = 1;
    while (has_line(d, at, skip) && skip < 3 && !header_columns(line_at(d, at, skip)))
        skip++;
    size_t columns = has_line(d, at, skip) ? header_columns(line_at(d, at, skip)) : 0;
    if (!columns) {
        tri__doctor_cut(d, "a bandwidth table has a title and no columns");
        return 1;
    }
    struct tri__table *t = tri__doctor_add_table(b, kind, columns);
    if (!t)
        return 1;
    snprintf(t->name, sizeof t->name, "%s", name);
    t->title = at;
    size_t i = skip + 1;
    for (; has_line(d, at, i); i++) {
        struct tri__spot row = { at.text, at.line + (uint32_t)i };
        if (!read_row(d, t, row))
            break;
    }
    if (columns > b->devices && kind != TRI__NVBANDWIDTH)
        b->devices = columns;
    bool square = kind != TRI__NVBANDWIDTH || tri_text_find(name, "device_to_device");
    bool holes = false;
    for (size_t r = 0; r < t->rows; r++)
        holes |= t->row_spot[r].text < 0;
    t->cut |= holes || !t->rows || (square && t->rows < columns);
    return i;
}

/* Which matrix of p2pBandwidthLatencyTest a title announces; -1 none. */
static int title_kind(const char *text)
{
    bool bi = tri_text_find(text, "Bidirectional P2P=") != NULL;
    bool uni = tri_text_find(text, "Unidirectional P2P=") != NULL;
    bool latency = tri_text_find(text, "Latency") && tri_text_find(text, "Matrix (us)");
    bool on = tri_text_find(text, "P2P=Enabled") != NULL;
    if (tri_text_find(text, "P2P Connectivity Matrix"))
        return TRI__CONNECTIVITY;
    if (latency && tri_text_find(text, "P2P="))
        return on ? TRI__LATENCY_ON : TRI__LATENCY_OFF;
    if (!tri_text_find(text, "Matrix (GB/s)"))
        return -1;
    if (bi)
        return on ? TRI__BI_ON : TRI__BI_OFF;
    if (uni && on)
        return tri_text_find(text, "P2P Reads") ? TRI__READ_ON : TRI__UNI_ON;
    return uni ? TRI__UNI_OFF : -1;
}

static bool has_kind(const struct tri__band *b, enum tri__table_kind kind)
{
    for (size_t i = 0; i < b->tables; i++)
        if (b->table[i].kind == kind)
            return true;
    return false;
}

/* "Device: 0, NVIDIA GeForce RTX 4090, pciBusID: 2, ..." */
static bool read_device(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    char *end = NULL;
    if (!tri_text_begins(text, "Device: ") || !isdigit((unsigned char)text[8]))
        return false;
    long index = strtol(text + 8, &end, 10);
    const char *stop = tri_text_find(end, ", pciBusID");
    if (*end != ',' || index < 0 || index >= TRI__BAND_MAX || !stop)
        return false;
    struct tri__band *b = last_band(d, at, false);
    if (!b)
        return true;
    end += 1 + strspn(end + 1, " ");
    snprintf(b->name[index], sizeof b->name[index], "%.*s", (int)(stop > end ? stop - end : 0),
             end);
    if ((size_t)index >= b->devices)
        b->devices = (size_t)index + 1;
    return true;
}

/* "Device=0 CAN Access Peer Device=1" */
static bool read_access(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    unsigned a = 0, b = 0;
    char word[8];
    if (sscanf(text, "Device=%3u %7s Access Peer Device=%3u", &a, word, &b) != 3)
        return false;
    struct tri__band *band = last_band(d, at, false);
    bool can = !strcmp(word, "CAN");
    if (!band || a >= TRI__BAND_MAX || b >= TRI__BAND_MAX || (!can && strcmp(word, "CANNOT")))
        return true;
    band->can[a][b] = can ? 1 : -1;
    if (!can && band->cannot.text < 0)
        band->cannot = at;
    if (a >= band->devices || b >= band->devices)
        band->devices = (a > b ? a : b) + 1;
    return true;
}

/* "> Peer access from NVIDIA GeForce RTX 4090 (GPU0) -> NVIDIA ... (GPU1) : Yes" of simpleP2P */
static bool read_simple(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    const char *from = tri_text_find(text, "Peer access from "), *arrow = strstr(text, ") -> ");
    const char *answer = strstr(text, ") : ");
    unsigned a = 0, b = 0;
    if (!from || !arrow || !answer || answer < arrow)
        return false;
    const char *left = arrow, *right = answer;
    while (left > from && *left != '(')
        left--;
    while (right > arrow && *right != '(')
        right--;
    if (sscanf(left, "(GPU%3u)", &a) != 1 || sscanf(right, "(GPU%3u)", &b) != 1 ||
        a >= TRI__BAND_MAX || b >= TRI__BAND_MAX)
        return false;
    struct tri__band *band = last_band(d, at, false);
    if (!band)
        return true;
    bool can = tri_text_begins(answer + 4, "Yes");
    band->answers_only = !band->tables;
    band->can[a][b] = can ? 1 : -1;
    if (!can && band->cannot.text < 0)
        band->cannot = at;
    snprintf(band->name[a], sizeof band->name[a], "%.*s",
             (int)(left - from > 18 ? left - from - 18 : 0), from + 17);
    if (a >= band->devices || b >= band->devices)
        band->devices = (a > b ? a : b) + 1;
    return true;
}

/* "Device 0: NVIDIA H100 80GB HBM3 (00000000:1b:00)" of nvbandwidth */
static bool read_listed(struct tri_doctor *d, const char *text)
{
    struct tri__band *b = d->bands ? &d->band[d->bands - 1] : NULL;
    char *end = NULL;
    if (!b || !b->nvbandwidth || !tri_text_begins(text, "Device ") ||
        !isdigit((unsigned char)text[7]))
        return false;
    unsigned long index = strtoul(text + 7, &end, 10);
    const char *bus = strrchr(text, '(');
    if (end[0] != ':' || end[1] != ' ' || index >= TRI__BAND_MAX || !bus || bus < end + 3)
        return false;
    snprintf(b->name[index], sizeof b->name[index], "%.*s", (int)(bus - end - 3), end + 2);
    if (index >= b->devices)
        b->devices = index + 1;
    return true;
}

/* nvbandwidth: "Running NAME." then a title line, the header, rows. */
static size_t read_nvbandwidth(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    if (tri_text_begins(text, "nvbandwidth Version")) {
        tri__doctor_open_band(d, at, true);
        return 1;
    }
    if (read_listed(d, text))
        return 1;
    if (!tri_text_begins(text, "Running ") || !tri_text_find(text, "memcpy"))
        return tri_text_begins(text, "SUM ") && tri_text_find(text, "memcpy") ? 1 : 0;
    struct tri__band *b = last_band(d, at, true);
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text + 8, ". \t"), text + 8);
    if (!b || !has_line(d, at, 1))
        return 1;
    if (!tri_text_find(line_at(d, at, 1), "bandwidth")) { /* no table follows */
        if (tri_text_begins(name, "device_to_device") &&
            tri_text_begins(line_at(d, at, 1), "Waived")) {
            b->waived_peers = true;
            b->waived = at;
        }
        return 1;
    }
    struct tri__spot title = { at.text, at.line + 1 };
    return 1 + read_table(d, b, title, TRI__NVBANDWIDTH, name);
}

void tri__doctor_words_band(struct tri_sieve *sieve)
{
    tri_sieve_words(sieve, TRI__HIT_BAND,
                    "Matrix|[P2P (Peer-to-Peer)|Device: |Device=|Peer access from|"
                    "nvbandwidth Version|Device |Running |SUM ");
}

size_t tri__doctor_read_band(struct tri_doctor *d, struct tri__spot at)
{
    const char *text = tri__doctor_line(d, at);
    size_t taken = 0;
    int kind = title_kind(text);
    text += strspn(text, " \t");
    if (tri_text_begins(text, "[P2P (Peer-to-Peer) GPU Bandwidth")) {
        tri__doctor_open_band(d, at, false);
        taken = 1;
    } else if (read_device(d, at, text) || read_access(d, at, text) || read_simple(d, at, text)) {
        taken = 1;
    } else if (kind >= 0) {
        struct tri__band *b = last_band(d, at, false);
        if (b && has_kind(b, (enum tri__table_kind)kind)) /* the same table again: another run */
            b = tri__doctor_open_band(d, at, false);
        taken = b ? read_table(d, b, at, (enum tri__table_kind)kind, "") : 1;
    } else {
        taken = read_nvbandwidth(d, at, text);
    }
    d->kind_seen |= taken ? TRI__KIND_BANDWIDTH : 0;
    return taken;
}
