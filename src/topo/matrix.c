/*
 * What the tables of devicegrid.c mean: nvidia-smi topo -m and -p2p, the tables of rocm-smi
 * --showtopo and of amd-smi topology. Facts go into the machine with their line; tables that do not
 * fit the last machine open a new one.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "topo/topo.h"
#include "topo/topo_priv.h"

enum meaning { TOPO, P2P, WEIGHT, HOPS, TYPE, OTHER };

/* Which columns are GPUs and NICs, as indices into the machine. */
struct place {
    int gpu[TRI__GRID_MAX_COLUMNS], nic[TRI__GRID_MAX_COLUMNS];
    size_t gpus, nics;
    bool bus_names;
};

static void place_columns(const struct tri__grid *g, struct place *p)
{
    *p = (struct place){ 0 };
    for (size_t i = 0; i < g->columns; i++) {
        struct tri_word w = g->column[i];
        bool bus = w.len && memchr(w.at, ':', w.len);
        bool gpu = bus || (w.len > 3 && !memcmp(w.at, "GPU", 3));
        p->bus_names |= bus;
        p->gpu[i] = p->nic[i] = -1;
        if (gpu)
            p->gpu[i] = (int)p->gpus++;
        else if (w.len)
            p->nic[i] = (int)p->nics++;
    }
}

/* The nearest title above line `at`: "=== Weight between two GPUs ===", "ACCESS TABLE:", a command.
 */
static const char *title_above(const struct tri__topo_text *t, size_t at)
{
    for (size_t i = at, seen = 0; i-- > 0 && seen < 3;) {
        const char *text = t->lines->line[i].body;
        if (!text[strspn(text, " \t")] || tri_text_begins(text, "# source") ||
            tri_text_begins(text, "# own"))
            continue; /* a comment is not what was typed */
        seen++;
        if (tri_text_find(text, "TABLE:") || tri_text_find(text, "between two GPUs") ||
            tri_text_find(text, "smi topo") || tri_text_find(text, "topo -p2p"))
            return text;
    }
    return "";
}

static enum meaning meaning_of(const struct tri__grid *g, const char *title)
{
    static const struct {
        const char *word;
        enum meaning meaning;
    } titles[] = { { "Weight", WEIGHT },       { "Hops", HOPS },     { "Link Type", TYPE },
                   { "Access", P2P },          { "NUMA BW", OTHER }, { "Bandwidth", OTHER },
                   { "CACHE", OTHER },         { "ATOMIC", OTHER },  { "DMA TABLE", OTHER },
                   { "BI-DIRECTIONAL", OTHER } };
    for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++)
        if (tri_text_find(title, titles[i].word) && !tri_text_find(title, "topo -p2p") &&
            !tri_text_find(title, "smi topo"))
            return titles[i].meaning;
    int links, topo = 0, p2p = 0, weight = 0;
    for (size_t i = 0; i < g->rows * g->columns; i++) {
        enum tri_path path = tri__grid_path(g->cell[i], &links);
        double v = 0;
        if (path != TRI_PATH_UNKNOWN && path != TRI_PATH_SELF)
            topo++;
        else if (tri__grid_p2p(g->cell[i]))
            p2p++;
        else if (tri_word_number(g->cell[i], &v) && v >= 15)
            weight++;
    }
    return topo > p2p ? TOPO : p2p ? P2P : weight ? WEIGHT : g->columns == 1 ? TOPO : OTHER;
}

/* Share of the cells that the machine knows and that say another thing, and how many it knows. */
static bool is_other_machine(const struct tri_machine *m, const struct tri__grid *g,
                             const struct place *p)
{
    size_t known = 0, other = 0;
    int links;
    for (size_t r = 0; r < g->rows; r++) {
        int a = p->gpu[g->row_column[r]];
        for (size_t c = 0; c < g->columns && a >= 0; c++) {
            int b = p->gpu[c];
            enum tri_path path = tri__grid_path(g->cell[r * g->columns + c], &links);
            if (b < 0 || a == b || path == TRI_PATH_UNKNOWN || (size_t)a >= m->gpus ||
                (size_t)b >= m->gpus)
                continue;
            const struct tri_pair *pair = tri_machine_pair(m, (size_t)a, (size_t)b);
            known += pair->path != TRI_PATH_UNKNOWN;
            other += pair->path != TRI_PATH_UNKNOWN &&
                     (pair->path != path || (path == TRI_PATH_NVLINK && pair->links != links));
        }
    }
    return other * 2 > known;
}

/* Gives the machine its GPUs and NICs when it has none, with the names of the columns. */
static bool make_devices(struct tri_machine *m, const struct tri__grid *g, const struct place *p,
                         struct tri_source source)
{
    bool fresh = m->gpus == 0, new_nics = m->nics == 0;
    for (size_t i = 0; i < g->columns; i++) {
        if (p->gpu[i] >= 0 && fresh) {
            struct tri_gpu *gpu = tri_machine_add_gpu(m);
            if (!gpu)
                return false;
            gpu->source = source;
        }
        if (p->gpu[i] >= 0 && p->bus_names && (size_t)p->gpu[i] < m->gpus &&
            !m->gpu[p->gpu[i]].bdf[0] &&
            !tri_bdf_normal(g->column[i].at, g->column[i].len, m->gpu[p->gpu[i]].bdf))
            m->gpu[p->gpu[i]].bdf[0] = 0;
        if (p->nic[i] >= 0 && new_nics) {
            struct tri_nic *nic = tri_machine_add_nic(m);
            if (!nic)
                return false;
            nic->source = source;
            tri__topo_copy(nic->name, sizeof nic->name, g->column[i].at, g->column[i].len);
        }
    }
    return m->gpus >= p->gpus && m->nics >= p->nics;
}

/* "0-23  0  N/A" after the last cell: CPU list, NUMA node. Either may be absent or N/A. */
static void read_affinity(struct tri_gpu *gpu, const struct tri__grid *g, const char *rest)
{
    struct tri_word w[8];
    size_t n = tri_words(rest, w, 8), at = 0;
    uint64_t node = 0;
    n = n < 8 ? n : 8;
    bool list = n && isdigit((unsigned char)w[0].at[0]) &&
                (memchr(w[0].at, '-', w[0].len) || memchr(w[0].at, ',', w[0].len) || n > 1);
    if (g->has_cpu && list && !gpu->cpus[0])
        tri__topo_copy(gpu->cpus, sizeof gpu->cpus, w[0].at, w[0].len);
    if (g->has_cpu && n && (list || tri_word_is(w[0], "N/A")))
        at = 1;
    if (g->has_numa && at < n && tri_word_unsigned(w[at], 10, &node) && node < TRI_MAX_NUMA)
        gpu->numa = (int)node;
}

static void apply_topo(struct tri_machine *m, struct tri__topo_text *t, const struct tri__grid *g,
                       const struct place *p)
{
    for (size_t r = 0; r < g->rows; r++) {
        size_t own = g->row_column[r];
        struct tri_source source = tri__topo_line(m, t, g->row_line[r]);
        for (size_t c = 0; c < g->columns; c++) {
            int links, a = p->gpu[own], b = p->gpu[c];
            enum tri_path path = tri__grid_path(g->cell[r * g->columns + c], &links);
            if (a >= 0 && b >= 0)
                tri__topo_set_path(m, (size_t)a, (size_t)b, path, links, source);
            else if (path != TRI_PATH_UNKNOWN && a >= 0 && p->nic[c] >= 0)
                *tri_machine_gpu_nic(m, (size_t)a, (size_t)p->nic[c]) = path;
            else if (path != TRI_PATH_UNKNOWN && b >= 0 && p->nic[own] >= 0 &&
                     *tri_machine_gpu_nic(m, (size_t)b, (size_t)p->nic[own]) == TRI_PATH_UNKNOWN)
                *tri_machine_gpu_nic(m, (size_t)b, (size_t)p->nic[own]) = path;
        }
        if (p->gpu[own] >= 0) {
            m->gpu[p->gpu[own]].source = source;
            read_affinity(&m->gpu[p->gpu[own]], g, g->row_rest[r]);
        }
    }
    m->nics_listed |= p->nics > 0;
}

static void apply_p2p(struct tri_machine *m, struct tri__topo_text *t, const struct tri__grid *g,
                      const struct place *p)
{
    for (size_t r = 0; r < g->rows; r++) {
        for (size_t c = 0; c < g->columns; c++) {
            int a = p->gpu[g->row_column[r]], b = p->gpu[c];
            enum tri_p2p said = tri__grid_p2p(g->cell[r * g->columns + c]);
            if (a < 0 || b < 0 || a == b || said == TRI_P2P_UNKNOWN)
                continue;
            struct tri_pair *pair = tri_machine_pair(m, (size_t)a, (size_t)b);
            if (pair->p2p == TRI_P2P_UNKNOWN || pair->p2p == TRI_P2P_OK) { /* the worst is kept */
                pair->p2p = said;
                pair->p2p_source = tri__topo_line(m, t, g->row_line[r]);
            }
        }
    }
}

/* Other capabilities: how many pairs have them. */
static void count_extra(struct tri_machine *m, struct tri__topo_text *t, const struct tri__grid *g,
                        const struct place *p, enum tri_p2p_extra what)
{
    struct tri_p2p_count *count = &m->p2p_extra[what];
    *count = (struct tri_p2p_count){ .source.file = -1 };
    for (size_t r = 0; r < g->rows; r++) {
        for (size_t c = 0; c < g->columns; c++) {
            int a = p->gpu[g->row_column[r]], b = p->gpu[c];
            enum tri_p2p said = tri__grid_p2p(g->cell[r * g->columns + c]);
            if (a < 0 || b < 0 || a == b || said == TRI_P2P_UNKNOWN)
                continue;
            bool first = said != TRI_P2P_OK && count->refusal == TRI_P2P_UNKNOWN;
            count->said++;
            count->ok += said == TRI_P2P_OK;
            count->refusal = first ? said : count->refusal;
            if (count->source.file < 0 || first)
                count->source = tri__topo_line(m, t, g->row_line[r]);
        }
    }
}

/* What a -p2p table asks by the letter of its command: r and w are the grants themselves. */
static void take_p2p(struct tri_machine *m, struct tri__topo_text *t, const struct tri__grid *g,
                     const struct place *p, const char *title)
{
    const char *option = tri_text_find(title, "-p2p");
    m->p2p_asked |= option != NULL;
    option = option ? option + 4 + strspn(option + 4, " \t=") : "r";
    if (*option == 'n')
        count_extra(m, t, g, p, TRI_P2P_NVLINK);
    else if (*option == 'a')
        count_extra(m, t, g, p, TRI_P2P_ATOMICS);
    else if (*option == 'p')
        count_extra(m, t, g, p, TRI_P2P_PCIE);
    else
        apply_p2p(m, t, g, p);
}

/* Weight, hops and link type of the AMD tools. */
static void apply_amd(struct tri_machine *m, struct tri__topo_text *t, const struct tri__grid *g,
                      const struct place *p, enum meaning what)
{
    for (size_t r = 0; r < g->rows; r++) {
        for (size_t c = 0; c < g->columns; c++) {
            int links, a = p->gpu[g->row_column[r]], b = p->gpu[c];
            struct tri_word cell = g->cell[r * g->columns + c];
            uint64_t v = 0;
            if (a < 0 || b < 0 || a == b)
                continue;
            struct tri_pair *pair = tri_machine_pair(m, (size_t)a, (size_t)b);
            struct tri_source source = tri__topo_line(m, t, g->row_line[r]);
            if (what == TYPE) {
                tri__topo_set_path(m, (size_t)a, (size_t)b, tri__grid_path(cell, &links), 0,
                                   source);
            } else if (tri_word_unsigned(cell, 10, &v) && v < 100000) {
                *(what == WEIGHT ? &pair->weight : &pair->hops) = (int)v;
                if (pair->source.file < 0)
                    pair->source = source;
            }
        }
    }
}

/* Devices of the header without a row: the table was cut. */
static void remark_gaps(struct tri_machine *m, struct tri__topo_text *t, const struct tri__grid *g,
                        const struct place *p, size_t at)
{
    size_t gpu_rows = 0, nic_rows = 0;
    for (size_t r = 0; r < g->rows; r++) {
        gpu_rows += p->gpu[g->row_column[r]] >= 0;
        nic_rows += p->nic[g->row_column[r]] >= 0;
    }
    if (g->headless)
        tri_machine_remark(m, TRI_REMARK_CUT, tri__topo_line(m, t, at),
                           "the header row is missing");
    if (g->repaired)
        tri_machine_remark(m, TRI_REMARK_REPAIRED, tri__topo_line(m, t, g->bad_line),
                           "glued columns were split");
    if (g->damaged)
        tri_machine_remark(m, TRI_REMARK_CUT, tri__topo_line(m, t, g->bad_line),
                           "a row has the wrong number of cells and was left out");
    if (gpu_rows < p->gpus || nic_rows < p->nics)
        tri_machine_remark(m, TRI_REMARK_CUT, tri__topo_line(m, t, at),
                           "rows are missing: %zu of %zu GPUs and %zu of %zu NICs have one",
                           gpu_rows, p->gpus, nic_rows, p->nics);
    for (size_t r = 0; r < g->rows; r++)
        for (size_t q = r + 1; q < g->rows; q++) {
            struct tri_word x = g->cell[r * g->columns + g->row_column[q]];
            struct tri_word y = g->cell[q * g->columns + g->row_column[r]];
            if (x.len == y.len && !memcmp(x.at, y.at, x.len))
                continue;
            tri_machine_remark(m, TRI_REMARK_CUT, tri__topo_line(m, t, g->row_line[q]),
                               "rows %.*s and %.*s disagree about each other",
                               (int)g->column[g->row_column[r]].len, g->column[g->row_column[r]].at,
                               (int)g->column[g->row_column[q]].len,
                               g->column[g->row_column[q]].at);
            return;
        }
}

/* "NIC0: mlx5_0" lines below the table give the columns their device names. */
static size_t read_legend(struct tri_machine *m, const struct tri_lines *lines, size_t at)
{
    size_t last = at;
    for (size_t i = at; i < lines->count && i < at + 400; i++) {
        const char *text = lines->line[i].body;
        text += strspn(text, " \t");
        if (!*text)
            continue;
        struct tri_word w[4];
        size_t n = tri_words(text, w, 4);
        bool nic = n == 2 && tri_text_begins(text, "NIC") && w[0].at[w[0].len - 1] == ':';
        if (nic) {
            size_t index = strtoul(text + 3, NULL, 10);
            if (isdigit((unsigned char)text[3]) && index < m->nics)
                tri__topo_copy(m->nic[index].name, sizeof m->nic[index].name, w[1].at, w[1].len);
        } else if (!tri_text_begins(text, "Legend:") && !tri_text_begins(text, "NIC Legend:") &&
                   !(n >= 3 && tri_word_is(w[1], "="))) {
            break;
        }
        last = i + 1;
    }
    return last - at;
}

/* Where the facts of this table belong: the last machine, or a new one if it is about others. */
static struct tri_machine *owner(struct tri__topo_text *t, const struct tri__grid *g,
                                 const struct place *p, enum meaning what)
{
    struct tri_machine *m = tri__topo_machine_for(t->set, p->gpus);
    if (m && (p->bus_names || (what != TOPO && what != P2P)) && m->gpus && !tri__topo_may_be_amd(m))
        return tri__topo_machine_new(t->set);
    bool by_bus = m && p->bus_names && m->gpus && m->gpu[0].bdf[0];
    char bdf[16];
    if (by_bus && tri_bdf_normal(g->column[0].at, g->column[0].len, bdf) &&
        strcmp(bdf, m->gpu[0].bdf))
        return tri__topo_machine_new(t->set);
    if (m && what == TOPO && m->gpus && is_other_machine(m, g, p))
        return tri__topo_machine_new(t->set);
    return m;
}

size_t tri__topo_read_matrix(struct tri__topo_text *t, size_t at)
{
    struct tri__grid g;
    struct place p;
    if (!tri__grid_read(&g, t->lines, at))
        return 0;
    place_columns(&g, &p);
    const char *title = title_above(t, at);
    enum meaning what = meaning_of(&g, title);
    bool amd_table = what == WEIGHT || what == HOPS || what == TYPE || what == OTHER;
    size_t taken = g.taken;
    struct tri_machine *m = owner(t, &g, &p, what);
    bool amd_access = tri_text_find(title, "Access") && !tri_text_find(title, "topo -p2p");
    t->kind = p.bus_names   ? TRI_TOPO_AMD_SMI
              : amd_table   ? TRI_TOPO_ROCM
              : what == P2P ? (amd_access ? TRI_TOPO_ROCM : TRI_TOPO_SMI_P2P)
                            : TRI_TOPO_SMI_TOPO;
    if (!m || !p.gpus || !make_devices(m, &g, &p, tri__topo_line(m, t, at))) {
        t->set->lost |= p.gpus > 0;
        goto out;
    }
    remark_gaps(m, t, &g, &p, at);
    if (t->kind == TRI_TOPO_ROCM && !t->set->rocm_open) {
        t->set->rocm_open = m;
        t->set->rocm_source = tri__topo_line(m, t, at);
    }
    for (size_t i = 0; i < m->gpus && (t->kind == TRI_TOPO_ROCM || p.bus_names); i++)
        m->gpu[i].vendor = TRI_VENDOR_AMD;
    if (what == TOPO) {
        m->matrix = true;
        m->nvlink_hidden |= tri_text_find(title, "topo -mp") != NULL;
        apply_topo(m, t, &g, &p);
        taken += read_legend(m, t->lines, at + taken);
    } else if (what == P2P) {
        take_p2p(m, t, &g, &p, title);
        taken += read_legend(m, t->lines, at + taken);
    } else if (what != OTHER) {
        apply_amd(m, t, &g, &p, what);
    }
out:
    tri__grid_fini(&g);
    return taken;
}
