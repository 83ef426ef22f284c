/*
 * Tables of devices against devices, the shape that nvidia-smi topo, rocm-smi and amd-smi share: a
 * header of device names, rows that start with one of them and have a cell a column. Survives lost
 * indents, tabs or blanks, glued names and cells, changed row order, missing rows and a missing
 * header. A row whose cells cannot be told for certain is rejected, never guessed.
 */
#include <ctype.h>
#include <string.h>
#include "base/mem.h"
#include "topo/topo.h"
#include "topo/topo_priv.h"

enum {
    MAX_ROWS = TRI__GRID_MAX_COLUMNS,
    MAX_WORDS = TRI__GRID_MAX_COLUMNS + 16,
    MAX_BAD = 16, /* rejected rows after one another: then it is no such table */
    MAX_FIRST = 4 /* the same before any good row */
};

static size_t digits(const char *p, size_t len)
{
    size_t n = 0;
    while (n < len && isdigit((unsigned char)p[n]))
        n++;
    return n;
}

/* "GPU12" and nothing after it. */
static bool is_gpu_name(struct tri_word w)
{
    return w.len > 3 && w.len < 8 && !memcmp(w.at, "GPU", 3) &&
           digits(w.at + 3, w.len - 3) == w.len - 3;
}

static bool is_bus_name(struct tri_word w)
{
    char out[16];
    return w.len >= 7 && w.len <= 16 && memchr(w.at, ':', w.len) &&
           tri_bdf_normal(w.at, w.len, out);
}

/* Length of the known link or status token that `p` begins with; NV takes what leaves a sane rest.
 */
static size_t token_length(const char *p, size_t len)
{
    static const char *const known[] = { "NODE", "SOC", "SYS", "PHB", "PXB", "PIX", "CNS",
                                         "GNS",  "TNS", "OK",  "NS",  "DR",  "X",   "U" };
    if (len > 2 && p[0] == 'N' && p[1] == 'V' && isdigit((unsigned char)p[2])) {
        size_t n = digits(p + 2, len - 2);
        for (size_t take = n < 2 ? n : 2; take; take--) {
            int links = take == 2 ? (p[2] - '0') * 10 + p[3] - '0' : p[2] - '0';
            size_t rest = 2 + take;
            bool sane = rest == len || isalnum((unsigned char)p[rest]);
            if (links >= 1 && links <= 36 && sane && (links <= 18 || rest == len))
                return rest;
        }
        return 0;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0] && len; i++) {
        size_t n = *known[i] == *p ? strlen(known[i]) : SIZE_MAX;
        if (len >= n && !memcmp(p, known[i], n))
            return n;
    }
    return 0;
}

enum tri_path tri__grid_path(struct tri_word w, int *links)
{
#define WORD(text, path)                                                                           \
    {                                                                                              \
        text, sizeof text - 1, TRI_PATH_##path                                                     \
    }
    static const struct {
        char text[5];
        uint8_t len;
        enum tri_path path;
    } words[] = { WORD("X", SELF),    WORD("PIX", PIX),   WORD("PXB", PXB),
                  WORD("PHB", PHB),   WORD("SYS", SYS),   WORD("SOC", SYS) /* drivers before 384 */,
                  WORD("NODE", NODE), WORD("XGMI", XGMI), WORD("PCIE", PCIE),
                  WORD("SELF", SELF) };
#undef WORD
    *links = 0;
    if (!w.len || !strchr("XPSN", *w.at))
        return TRI_PATH_UNKNOWN;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (w.len == words[i].len && !memcmp(w.at, words[i].text, w.len))
            return words[i].path;
    if (w.len > 2 && token_length(w.at, w.len) == w.len && w.at[0] == 'N' && w.at[1] == 'V') {
        for (size_t i = 2; i < w.len; i++)
            *links = *links * 10 + w.at[i] - '0';
        return TRI_PATH_NVLINK;
    }
    return TRI_PATH_UNKNOWN;
}

enum tri_p2p tri__grid_p2p(struct tri_word w)
{
    static const struct {
        const char *text;
        enum tri_p2p p2p;
    } words[] = { { "OK", TRI_P2P_OK },         { "CNS", TRI_P2P_CNS },
                  { "GNS", TRI_P2P_GNS },       { "TNS", TRI_P2P_TNS },
                  { "NS", TRI_P2P_NS },         { "DR", TRI_P2P_DR },
                  { "U", TRI_P2P_U },           { "ENABLED", TRI_P2P_OK },
                  { "True", TRI_P2P_OK },       { "DISABLED", TRI_P2P_DISABLED },
                  { "False", TRI_P2P_DISABLED } };
    if (!w.len || w.len > 8 || !strchr("OCGTNDUEF", *w.at))
        return TRI_P2P_UNKNOWN;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (*w.at == *words[i].text && tri_word_is(w, words[i].text))
            return words[i].p2p;
    return TRI_P2P_UNKNOWN;
}

/* Splits "NIC8NIC9" before each name that begins inside the word. Returns the parts. */
static size_t split_name(struct tri_word w, struct tri_word *out, size_t max)
{
    static const char *const starts[] = { "GPU", "NIC", "mlx", "CPU" };
    size_t n = 0, from = 0;
    for (size_t i = 1; i <= w.len; i++) {
        bool cut = i == w.len;
        for (size_t k = 0; k < sizeof starts / sizeof starts[0] && !cut; k++)
            cut = w.len - i >= 3 && !memcmp(w.at + i, starts[k], 3) &&
                  isdigit((unsigned char)w.at[i - 1]);
        if (cut && n < max)
            out[n++] = (struct tri_word){ w.at + from, i - from };
        if (cut)
            from = i;
    }
    return n;
}

/* The header's device names. False when the line is none. */
static bool read_header(struct tri__grid *g, const char *text)
{
    struct tri_word word[MAX_WORDS];
    size_t words = tri_words(text, word, MAX_WORDS);
    if (!words || words > MAX_WORDS)
        return false;
    for (size_t i = 0; i < words; i++) {
        struct tri_word part[8];
        size_t parts = split_name(word[i], part, 8);
        for (size_t k = 0; k < parts; k++) {
            if (tri_word_is(part[k], "CPU") || tri_word_is(part[k], "NUMA") ||
                tri_word_is(part[k], "GPU")) {
                g->has_cpu = tri_text_find(part[k].at, "CPU Aff") != NULL;
                g->has_numa = tri_text_find(part[k].at, "NUMA Aff") != NULL;
                return g->columns > 0;
            }
            int links;
            bool cell = tri__grid_path(part[k], &links) || tri__grid_p2p(part[k]);
            if (cell || g->columns == TRI__GRID_MAX_COLUMNS)
                return false;
            if (!g->columns && !is_gpu_name(part[k]) && !is_bus_name(part[k]))
                return false;
            if (isdigit((unsigned char)part[k].at[0]) && !is_bus_name(part[k]))
                return false;
            g->column[g->columns++] = part[k];
        }
        g->repaired |= parts > 1;
    }
    return g->columns > 0;
}

static int column_named(const struct tri__grid *g, struct tri_word w)
{
    for (size_t i = 0; i < g->columns; i++) /* few enough to look at all */
        if (g->column[i].len == w.len && !memcmp(g->column[i].at, w.at, w.len))
            return (int)i;
    return -1;
}

/* The row's own column; takes a glued cell off the name ("GPU0X"). -1: no row of this table. */
static int row_name(struct tri__grid *g, struct tri_word *first)
{
    int at = column_named(g, *first);
    for (size_t n = first->len; at < 0 && n > 3; n--) {
        at = column_named(g, (struct tri_word){ first->at, n });
        if (at >= 0) {
            size_t rest = first->len - n;
            if (!token_length(first->at + n, rest))
                return -1;
            *first = (struct tri_word){ first->at + n, rest };
            g->repaired = true;
            return at;
        }
    }
    first->len = at >= 0 ? 0 : first->len;
    return at;
}

/* Takes cells out of one word. Returns how many; *rest is what is no cell, NULL when nothing. */
static size_t split_cells(struct tri__grid *g, struct tri_word w, struct tri_word *out, size_t room,
                          const char **rest)
{
    size_t n = 0, from = 0;
    int links;
    *rest = NULL;
    if (tri__grid_path(w, &links) || tri__grid_p2p(w)) {
        out[0] = w;
        return 1;
    }
    while (from < w.len && n < room) {
        size_t take = token_length(w.at + from, w.len - from);
        if (!take)
            break;
        out[n++] = (struct tri_word){ w.at + from, take };
        from += take;
    }
    if (!n) { /* not of the known words: a whole cell of some other table */
        out[0] = w;
        return 1;
    }
    g->repaired = true;
    *rest = from < w.len ? w.at + from : NULL;
    return n;
}

/* The cells of one row. False when their number or the diagonal is wrong. */
static bool read_cells(struct tri__grid *g, size_t own, struct tri_word *word, size_t words)
{
    struct tri_word *cell = &g->cell[g->rows * g->columns];
    const char *rest = "";
    size_t n = 0, i = 0;
    for (; i < words && n < g->columns; i++) {
        const char *left = NULL;
        n += split_cells(g, word[i], cell + n, g->columns - n, &left);
        if (left && n < g->columns)
            return false;
        if (left) {
            g->row_rest[g->rows] = left;
            return true;
        }
    }
    if (n < g->columns)
        return false;
    int links;
    if (i < words && (tri__grid_path(word[i], &links) || tri__grid_p2p(word[i])))
        return false; /* more cells than columns: which one is too many cannot be told */
    if (i < words)
        rest = word[i].at;
    g->row_rest[g->rows] = rest;
    static const char *const self[] = { "X", "0", "SELF", "N/A", "ENABLED", "True", "-" };
    for (size_t k = 0; k < sizeof self / sizeof self[0]; k++)
        if (tri_word_is(cell[own], self[k]))
            return true;
    return false;
}

/* One line as a row. 1 taken, 0 not a row of this table, -1 a row that was rejected. */
static int read_row(struct tri__grid *g, const struct tri_lines *lines, size_t at)
{
    struct tri_word word[MAX_WORDS];
    size_t words = tri_words(lines->line[at].body, word, MAX_WORDS);
    if (!words || words > MAX_WORDS)
        return 0;
    bool before = g->repaired;
    int own = row_name(g, &word[0]);
    if (own < 0)
        return 0;
    for (size_t r = 0; r < g->rows; r++)
        if (g->row_column[r] == (size_t)own)
            return 0; /* a second table begins */
    size_t skip = word[0].len == 0;
    bool good = g->rows < MAX_ROWS && read_cells(g, (size_t)own, word + skip, words - skip);
    if (!before && (g->repaired || !good))
        g->bad_line = at;
    if (!good) {
        g->damaged = true;
        return -1;
    }
    g->row_column[g->rows] = (size_t)own;
    g->row_line[g->rows++] = at;
    return 1;
}

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t")] == 0;
}

static bool make_room(struct tri__grid *g)
{
    size_t rows = g->columns; /* each column has at most one row */
    g->cell = tri_calloc(rows * g->columns + 1, sizeof *g->cell);
    g->row_column = tri_calloc(rows + 1, sizeof *g->row_column);
    g->row_line = tri_calloc(rows + 1, sizeof *g->row_line);
    g->row_rest = tri_calloc(rows + 1, sizeof *g->row_rest);
    return g->cell && g->row_column && g->row_line && g->row_rest;
}

/*
 * Columns of a table whose header was cut: rows "GPU0 X NV4 ..." in which each row names itself by
 * its X. Only the columns that have a row are known; the others keep an empty name.
 */
static bool guess_columns(struct tri__grid *g, const struct tri_lines *lines, size_t at)
{
    struct tri_word word[MAX_WORDS];
    size_t cells = 0, words = tri_words(lines->line[at].body, word, MAX_WORDS);
    int links;
    if (words < 2 || words > MAX_WORDS || !is_gpu_name(word[0]))
        return false;
    while (cells + 1 < words &&
           (tri__grid_path(word[cells + 1], &links) || tri__grid_p2p(word[cells + 1])))
        cells++;
    if (!cells || cells > TRI__GRID_MAX_COLUMNS)
        return false;
    g->columns = cells;
    bool any = false;
    for (size_t i = at, idle = 0; i < lines->count && i < at + cells && idle < MAX_BAD; i++) {
        words = tri_words(lines->line[i].body, word, MAX_WORDS);
        if (words < cells + 1 || words > MAX_WORDS)
            continue;
        idle++; /* such a table has a new column with an X in each row */
        for (size_t c = 0; c < cells; c++)
            if (tri_word_is(word[c + 1], "X") && is_gpu_name(word[0]) && !g->column[c].len) {
                g->column[c] = word[0];
                any = true;
                idle = 0;
            }
    }
    g->headless = true;
    return any;
}

/* Reads rows from `first` on; `at` is where the table begins. */
static void read_rows(struct tri__grid *g, const struct tri_lines *lines, size_t at, size_t first)
{
    size_t last = at, gap = 0, bad = 0;
    g->bad_line = at;
    for (size_t i = first; i < lines->count && bad < (g->rows ? MAX_BAD : MAX_FIRST); i++) {
        int got = read_row(g, lines, i);
        if (got) {
            last = i;
            gap = 0;
            bad = got < 0 ? bad + 1 : 0;
        } else if (tri_text_find(lines->line[i].text, "NCCL INFO")) {
            continue;
        } else if (!is_blank(lines->line[i].body) || ++gap > 1) {
            break;
        }
    }
    g->taken = last - at + 1;
}

/* Whether a line can be a header or a row at all: both begin with a GPU or a bus id. */
static bool may_begin(const char *text)
{
    text += strspn(text, " \t");
    size_t len = strcspn(text, " \t");
    return !memcmp(text, "GPU", len < 3 ? len : 3) || memchr(text, ':', len);
}

bool tri__grid_read(struct tri__grid *g, const struct tri_lines *lines, size_t at)
{
    if (!may_begin(lines->line[at].body))
        return false;
    *g = (struct tri__grid){ 0 };
    for (int headless = 0; headless < 2; headless++) {
        size_t first = headless || at + 1 >= lines->count ? at : at + 1;
        bool whole = !headless && read_header(g, lines->line[at].body);
        if (!whole) {
            *g = (struct tri__grid){ 0 };
            /* a header of the wrong length is followed by rows that tell their own */
            if (!guess_columns(g, lines, headless ? at + 1 : at))
                return false;
            first = headless ? at + 1 : at;
        }
        if (!make_room(g))
            break;
        read_rows(g, lines, at, first);
        if (g->rows || (!g->damaged && headless))
            return g->rows > 0;
        bool again = whole && g->damaged && at + 1 < lines->count;
        tri__grid_fini(g);
        if (!again)
            return false;
    }
    tri__grid_fini(g);
    return false;
}

void tri__grid_fini(struct tri__grid *g)
{
    tri_free(g->cell);
    tri_free(g->row_column);
    tri_free(g->row_line);
    tri_free(g->row_rest);
    g->cell = NULL;
    g->row_column = g->row_line = NULL;
    g->row_rest = NULL;
}
