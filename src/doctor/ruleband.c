/*
 * Rules over measured copies. The same pair with P2P on and off is its own control: slower means
 * redirected, equal means not granted. Absolute numbers only where no wiring explains them: below
 * 8 GB/s one way a link has the lanes or the generation of a quarter slot.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "doctor/doctor_priv.h"

enum { MAX_CELLS = TRI__BAND_MAX * TRI__BAND_MAX };

/* Gen4 x4 and Gen3 x8 both carry 7.9 GB/s one way before protocol loss. */
static const double narrow_gbs = 8.0, nvlink_gbs = 60.0;

struct spread {
    size_t n;
    double least, most, median;
    size_t row, column; /* of the least */
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Numbers off the diagonal (all of them when the table is not square). */
static struct spread measure(const struct tri__table *t, bool diagonal)
{
    double v[MAX_CELLS];
    struct spread s = { .least = HUGE_VAL };
    for (size_t r = 0; r < t->rows; r++)
        for (size_t c = 0; c < t->columns; c++) {
            double x = t->cell[r * t->columns + c];
            if (isnan(x) || x <= 0 || (r == c && !diagonal) || s.n == MAX_CELLS)
                continue;
            if (x < s.least) {
                s.least = x;
                s.row = r;
                s.column = c;
            }
            s.most = x > s.most ? x : s.most;
            v[s.n++] = x;
        }
    qsort(v, s.n, sizeof *v, by_value);
    s.median = s.n ? v[s.n / 2] : 0;
    return s;
}

static const struct tri__table *table_of(const struct tri__band *b, enum tri__table_kind kind)
{
    for (size_t i = 0; i < b->tables; i++)
        if (b->table[i].kind == kind)
            return &b->table[i];
    return NULL;
}

static void cite_table(struct tri_doctor *d, struct tri_finding *f, const struct tri__table *t,
                       size_t row)
{
    if (!t)
        return;
    tri__doctor_cite(d, f, t->title);
    if (row < TRI__BAND_MAX)
        tri__doctor_cite(d, f, t->row_spot[row]);
}

/* Whether a pair may use P2P at all, as far as CAN / CANNOT lines say. */
static bool may(const struct tri__band *b, size_t r, size_t c)
{
    return r >= b->devices || c >= b->devices || b->can[r][c] >= 0;
}

/* The same pairs with P2P on and off: the median of on / off over the pairs that may use it (over
 * all of them when none may). 0 when nothing can be compared. */
static double gain(const struct tri__band *b, const struct tri__table *on,
                   const struct tri__table *off, bool denied)
{
    double v[MAX_CELLS];
    size_t n = 0;
    for (size_t r = 0; on && off && r < on->rows && r < off->rows; r++)
        for (size_t c = 0; c < on->columns && c < off->columns; c++) {
            double x = on->cell[r * on->columns + c], y = off->cell[r * off->columns + c];
            if (r != c && x > 0 && y > 0 && n < MAX_CELLS && (denied || may(b, r, c)))
                v[n++] = x / y;
        }
    qsort(v, n, sizeof *v, by_value);
    return n ? v[n / 2] : 0;
}

/* CAN and CANNOT lines. Returns 1 all can, 0 some, -1 none, 2 not said. */
static int access_of(const struct tri__band *b, bool *mixed_only, size_t *said)
{
    size_t can = 0, cannot = 0, mixed = 0, same = 0;
    for (size_t i = 0; i < b->devices; i++)
        for (size_t j = 0; j < b->devices; j++) {
            can += b->can[i][j] > 0;
            cannot += b->can[i][j] < 0;
            bool named = b->can[i][j] < 0 && b->name[i][0] && b->name[j][0];
            mixed += named && strcmp(b->name[i], b->name[j]);
            same += named && !strcmp(b->name[i], b->name[j]);
        }
    *mixed_only = mixed && !same;
    *said = can + cannot;
    return !*said ? 2 : !cannot ? 1 : can ? 0 : -1;
}

static void list_access(const struct tri__band *b, char *out, size_t bytes)
{
    bool used[TRI__BAND_MAX] = { false };
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < b->devices; i++) {
        bool open = false;
        for (size_t j = i; j < b->devices && n + 12 < bytes && !used[i]; j++) {
            if (j != i && (used[j] || b->can[i][j] <= 0))
                continue;
            n += (size_t)snprintf(out + n, bytes - n, "%s%zu", open ? "," : "(", j);
            open = true;
            used[j] = j != i || used[j];
        }
        if (open && n + 2 < bytes)
            n += (size_t)snprintf(out + n, bytes - n, ")");
    }
}

static void judge_access(struct tri_doctor *d, const struct tri__band *b)
{
    bool mixed = false;
    size_t said = 0;
    int access = access_of(b, &mixed, &said);
    char list[160];
    if (access == 1 || access == 2)
        return;
    list_access(b, list, sizeof list);
    struct tri_finding *f;
    if (mixed)
        f = tri__doctor_find(d, "p2p_partial", TRI_SEVERITY_INFO,
                             "peer access only between cards of one kind: plan groups inside %s",
                             list);
    else if (access == 0)
        f = tri__doctor_find(d, "p2p_partial", TRI_SEVERITY_WARN, "peer access only inside %s",
                             list);
    else
        f = tri__doctor_find(d, "p2p_denied", TRI_SEVERITY_FAIL,
                             "no device can access a peer: copies go through host memory");
    tri__doctor_cite(d, f, b->cannot);
    tri__doctor_cure(f,
                     "nvidia-smi topo -p2p r   # says why: GNS driver, CNS chipset, TNS topology");
}

/* P2P on against off. True when it was judged a fault. */
static bool judge_gain(struct tri_doctor *d, const struct tri__band *b, const struct tri__table *on,
                       const struct tri__table *off)
{
    bool mixed = false;
    size_t said = 0;
    int access = access_of(b, &mixed, &said);
    double ratio = gain(b, on, off, access < 0);
    if (ratio <= 0)
        return false;
    struct spread with = measure(on, false), without = measure(off, false);
    struct tri_finding *f;
    if (ratio < 0.85) {
        f = tri__doctor_find(d, "p2p_slower", TRI_SEVERITY_FAIL,
                             "P2P is slower than copies through the host: %.1f against %.1f GB/s",
                             with.median, without.median);
        tri__doctor_why(f,
                        "peer traffic is redirected to the root complex (ACS) or translated by an "
                        "IOMMU");
        tri__doctor_cure(f,
                         "sudo lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'   # ReqRedir+ on bridges");
        tri__doctor_cure(f,
                         "cat /proc/cmdline   # want iommu=pt, or amd_iommu=off / intel_iommu=off");
    } else if (ratio < 1.05 && with.median < nvlink_gbs && with.least >= narrow_gbs) {
        f = tri__doctor_find(d, "p2p_no_gain", access < 0 ? TRI_SEVERITY_FAIL : TRI_SEVERITY_WARN,
                             "P2P gains nothing: %.1f GB/s with it, %.1f without", with.median,
                             without.median);
        tri__doctor_why(f,
                        "equal numbers mean that peer access is not granted and copies are staged");
        tri__doctor_cure(f, "nvidia-smi topo -p2p r");
    } else {
        return false;
    }
    cite_table(d, f, on, with.row);
    cite_table(d, f, off, without.row);
    tri__doctor_cost(d, f, with.median, without.median > with.median ? without.median : 24);
    return true;
}

/* Which link carries so little. */
static const char *link_of(double gbs)
{
    return gbs > 4     ? "Gen4 x4 or Gen3 x8"
           : gbs > 2   ? "Gen4 x2 or Gen3 x4"
           : gbs > 1   ? "Gen4 x1 or Gen3 x2"
           : gbs > 0.5 ? "Gen3 x1"
                       : "Gen2 x1 or slower";
}

/* One table of copies between GPUs by itself. `ways` is 2 for tables that add both directions. */
static void judge_table(struct tri_doctor *d, const struct tri__table *t, int ways, bool quiet)
{
    struct spread s = measure(t, false);
    double least = s.least / ways;
    struct tri_finding *f;
    if (!s.n)
        return;
    if (least < narrow_gbs) {
        f = tri__doctor_find(d, "p2p_slow_link", TRI_SEVERITY_FAIL,
                             "%.1f GB/s one way from %zu to %zu: a link of %s", least, s.row,
                             s.column, link_of(least));
        cite_table(d, f, t, s.row);
        tri__doctor_cost(d, f, least, 24);
        tri__doctor_cure(f, "sudo lspci -vv | grep -E '^[0-9a-f].*(VGA|3D)|LnkCap:|LnkSta:'");
        return;
    }
    if (s.least < s.median * 0.6 && s.most < s.median * 2 && s.n > 2) {
        f = tri__doctor_find(d, "p2p_uneven", TRI_SEVERITY_WARN,
                             "%zu to %zu reaches %.1f GB/s where other pairs reach %.1f", s.row,
                             s.column, s.least, s.median);
        cite_table(d, f, t, s.row);
        tri__doctor_cost(d, f, least, s.median / ways);
        tri__doctor_cure(
            f, "nvidia-smi topo -m   # is that pair across sockets? then group around it");
        return;
    }
    if (s.most > nvlink_gbs * ways && s.least < s.most * 0.4) {
        f = tri__doctor_find(d, "nvlink_islands", TRI_SEVERITY_WARN,
                             "some pairs reach %.0f GB/s over NVLink, others %.1f over PCIe",
                             s.most, s.least);
        cite_table(d, f, t, s.row);
        tri__doctor_cost(d, f, least, s.most / ways);
        tri__doctor_cure(f, "# keep tensor-parallel groups inside the fast pairs");
        return;
    }
    if (quiet)
        return;
    f = tri__doctor_find(d, "p2p_bandwidth", TRI_SEVERITY_OK,
                         "%s between GPUs: %.0f to %.0f GB/s%s",
                         s.median > nvlink_gbs * ways ? "NVLink copies" : "copies", s.least, s.most,
                         ways == 2 ? " both ways together" : " one way");
    cite_table(d, f, t, 0);
}

static void judge_latency(struct tri_doctor *d, const struct tri__band *b)
{
    const struct tri__table *on = table_of(b, TRI__LATENCY_ON),
                            *off = table_of(b, TRI__LATENCY_OFF);
    struct spread with = on ? measure(on, false) : (struct spread){ 0 };
    struct spread without = off ? measure(off, false) : (struct spread){ 0 };
    bool hangs = with.n && with.median > 100;
    struct tri_finding *f;
    if (!with.n)
        return;
    if (!hangs && !(without.n && with.median > without.median * 2)) {
        f = tri__doctor_find(d, "p2p_latency", TRI_SEVERITY_OK, "peer latency is %.1f us with P2P",
                             with.median);
        cite_table(d, f, on, with.row);
        return;
    }
    f = tri__doctor_find(d, "p2p_latency", hangs ? TRI_SEVERITY_FAIL : TRI_SEVERITY_WARN,
                         "peer latency is %.1f us with P2P, %.1f without", with.median,
                         without.median);
    cite_table(d, f, on, with.row);
    tri__doctor_why(f, "an IOMMU that translates peer writes makes them wait or never arrive");
    tri__doctor_cure(f, "cat /proc/cmdline   # add iommu=pt, or switch the IOMMU off in the BIOS");
}

static void judge_p2p_test(struct tri_doctor *d, const struct tri__band *b)
{
    const struct tri__table *uni_on = table_of(b, TRI__UNI_ON),
                            *uni_off = table_of(b, TRI__UNI_OFF);
    const struct tri__table *bi_on = table_of(b, TRI__BI_ON), *bi_off = table_of(b, TRI__BI_OFF);
    judge_access(d, b);
    bool bad = judge_gain(d, b, uni_on, uni_off);
    if (!uni_on || !uni_off)
        bad |= judge_gain(d, b, bi_on, bi_off);
    judge_latency(d, b);
    /* copies through the host that are fast prove wide links: then slow peers are no narrow link */
    struct spread staged = uni_off ? measure(uni_off, false) : (struct spread){ 0 };
    bool wide = bad && staged.n && staged.least >= narrow_gbs;
    if (uni_on && !wide)
        judge_table(d, uni_on, 1, bad);
    else if (bi_on && !wide)
        judge_table(d, bi_on, 2, bad);
    else if (!wide && (uni_off || bi_off))
        judge_table(d, uni_off ? uni_off : bi_off, uni_off ? 1 : 2, false);
    /* the program prints its tables in a fixed order: a missing later one was cut off */
    bool preamble = b->devices && b->name[0][0];
    bool began = uni_off || uni_on;
    if ((preamble || began) && !b->answers_only && (!uni_on || !bi_on))
        tri__doctor_cut(d, "tables of the bandwidth test are missing");
    size_t said = 0;
    bool mixed = false;
    access_of(b, &mixed, &said);
    if (said && said < b->devices * (b->devices - 1))
        tri__doctor_cut(d, "peer access lines are missing");
}

/* Copies between the host and one GPU at a time. */
static void judge_host_copies(struct tri_doctor *d, const struct tri__table *t, struct spread s)
{
    struct tri_finding *f;
    if (s.least < narrow_gbs) {
        f = tri__doctor_find(d, "p2p_slow_link", TRI_SEVERITY_FAIL,
                             "host copies of device %zu reach %.1f GB/s: a link of %s", s.column,
                             s.least, link_of(s.least));
        cite_table(d, f, t, s.row);
        tri__doctor_cost(d, f, s.least, 24);
        tri__doctor_cure(f, "nvidia-smi -q | grep -A12 'GPU Link Info'   # under load");
    } else if (s.least < s.median * 0.6 && t->rows == 1 && s.n > 1) {
        f = tri__doctor_find(d, "p2p_uneven", TRI_SEVERITY_WARN,
                             "host copies of device %zu reach %.1f GB/s, of the others %.1f",
                             s.column, s.least, s.median);
        cite_table(d, f, t, s.row);
        tri__doctor_cost(d, f, s.least, s.median);
        tri__doctor_cure(f, "nvidia-smi -q | grep -A12 'GPU Link Info'   # under load");
    } else if (tri_text_begins(t->name, "host_to_device_memcpy")) {
        f = tri__doctor_find(d, "host_bandwidth", TRI_SEVERITY_OK,
                             "host to device: %.0f to %.0f GB/s%s", s.least, s.most,
                             s.median > 130 ? " (C2C)" : "");
        cite_table(d, f, t, 0);
    }
}

static void judge_nvbandwidth(struct tri_doctor *d, const struct tri__band *b)
{
    for (size_t i = 0; i < b->tables; i++) {
        const struct tri__table *t = &b->table[i];
        bool peers =
            tri_text_begins(t->name, "device_to_device") && !tri_text_find(t->name, "latency");
        struct spread s = measure(t, !peers);
        bool both = tri_text_find(t->name, "bidirectional") != NULL;
        bool host = tri_text_begins(t->name, "host_to_device_memcpy") ||
                    tri_text_begins(t->name, "device_to_host_memcpy");
        if (s.n && peers) /* in bidirectional tests each number is one way of the two */
            judge_table(d, t, 1, both);
        else if (s.n && host) /* all_to_host and bidirectional copies share the link: no verdict */
            judge_host_copies(d, t, s);
    }
    bool measured = false; /* one of these tests ran: the other was left out for its own reason */
    for (size_t i = 0; i < b->tables; i++)
        measured |= tri_text_begins(b->table[i].name, "device_to_device");
    if (!b->waived_peers || b->devices < 2 || measured)
        return;
    struct tri_finding *f = tri__doctor_find(
        d, "p2p_denied", TRI_SEVERITY_WARN,
        "copies between the %zu GPUs were not measured: no peer access", b->devices);
    tri__doctor_cite(d, f, b->waived);
    tri__doctor_why(f, "nvbandwidth waives these tests when no GPU can access another");
    tri__doctor_cure(f, "nvidia-smi topo -p2p r   # says why");
}

void tri__doctor_rules_band(struct tri_doctor *d)
{
    for (size_t i = 0; i < d->bands; i++) {
        const struct tri__band *b = &d->band[i];
        tri__doctor_cost_of(d, b->name[0], b->devices);
        for (size_t t = 0; t < b->tables; t++)
            if (b->table[t].cut && b->table[t].kind != TRI__CONNECTIVITY)
                tri__doctor_cut(d, "a bandwidth table is cut");
        if (b->nvbandwidth)
            judge_nvbandwidth(d, b);
        else
            judge_p2p_test(d, b);
    }
}
