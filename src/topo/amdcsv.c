/*
 * amd-smi topology --csv: one line a GPU under a line of names
 *   gpu,bdf,link_accessibility_gpu_0,...,weight_gpu_0,...,hops_gpu_0,...,link_type_gpu_0,...
 * as the tool's own code builds it (ROCm/amdsmi, amdsmi_commands.py topology and flatten_dict).
 * Which tables there are depends on the command's options.
 */
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "topo/topo.h"
#include "topo/topo_priv.h"

enum { MAX_FIELDS = 16 * TRI_MAX_GPUS };

enum what { OTHER, ACCESS, WEIGHT, HOPS, TYPE };

struct field {
    enum what what;
    size_t gpu;
};

struct table {
    struct field *field; /* [fields], after "gpu" and "bdf" */
    size_t fields, gpus;
};

/* "weight_gpu_3" */
static bool field_of(struct tri_word w, struct field *out)
{
    static const struct {
        const char *name;
        enum what what;
    } names[] = { { "link_accessibility", ACCESS },
                  { "weight", WEIGHT },
                  { "hops", HOPS },
                  { "link_type", TYPE } };
    const char *mark = memmem(w.at, w.len, "_gpu_", 5);
    uint64_t gpu = 0;
    if (!mark ||
        !tri_word_unsigned((struct tri_word){ mark + 5, w.len - (size_t)(mark + 5 - w.at) }, 10,
                           &gpu) ||
        gpu >= TRI_MAX_GPUS)
        return false;
    *out = (struct field){ OTHER, (size_t)gpu };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (tri_word_is((struct tri_word){ w.at, (size_t)(mark - w.at) }, names[i].name))
            out->what = names[i].what;
    return true;
}

static bool read_names(struct table *t, const char *text)
{
    struct tri_word w;
    const char *p = text + 8; /* "gpu,bdf," */
    t->field = tri_calloc(MAX_FIELDS, sizeof *t->field);
    while (t->field && tri__topo_csv_field(&p, &w)) {
        struct field *f = &t->field[t->fields];
        if (t->fields == MAX_FIELDS || !field_of(w, f))
            return false;
        t->gpus = f->gpu + 1 > t->gpus ? f->gpu + 1 : t->gpus;
        t->fields++;
    }
    return t->fields > 0;
}

static void take(struct tri_machine *m, size_t from, const struct field *f, struct tri_word w,
                 struct tri_source source)
{
    int links;
    uint64_t v = 0;
    if (f->gpu == from || f->gpu >= m->gpus)
        return;
    struct tri_pair *p = tri_machine_pair(m, from, f->gpu);
    if (f->what == TYPE) {
        tri__topo_set_path(m, from, f->gpu, tri__grid_path(w, &links), 0, source);
    } else if (f->what == ACCESS) {
        p->p2p = tri__grid_p2p(w);
        p->p2p_source = source;
    } else if (f->what != OTHER && tri_word_unsigned(w, 10, &v) && v && v < 100000) {
        *(f->what == WEIGHT ? &p->weight : &p->hops) = (int)v;
        p->source = p->source.file < 0 ? source : p->source;
    }
}

/* "0,0000:03:00.0,ENABLED,..." False when the line is no whole row. */
static bool read_row(struct tri_machine *m, const struct table *t, const char *text,
                     struct tri_source source)
{
    struct tri_word w;
    const char *p = text;
    uint64_t gpu = 0;
    if (tri__topo_csv_fields(text) != t->fields + 2 || !tri__topo_csv_field(&p, &w) ||
        !tri_word_unsigned(w, 10, &gpu) || gpu >= m->gpus || !tri__topo_csv_field(&p, &w) ||
        !tri_bdf_normal(w.at, w.len, m->gpu[gpu].bdf))
        return false;
    m->gpu[gpu].source = source;
    for (size_t i = 0; i < t->fields && tri__topo_csv_field(&p, &w); i++)
        take(m, (size_t)gpu, &t->field[i], w, source);
    return true;
}

size_t tri__topo_read_amd_csv(struct tri__topo_text *t, size_t at)
{
    const struct tri_lines *l = t->lines;
    struct table table = { 0 };
    size_t rows = 0;
    if (!tri_text_begins(l->line[at].body, "gpu,bdf,") || !read_names(&table, l->line[at].body)) {
        tri_free(table.field);
        return 0;
    }
    struct tri_machine *m = tri__topo_machine_for(t->set, table.gpus);
    if (m && !tri__topo_may_be_amd(m))
        m = tri__topo_machine_new(t->set);
    while (m && m->gpus < table.gpus && tri_machine_add_gpu(m))
        m->gpu[m->gpus - 1].vendor = TRI_VENDOR_AMD;
    t->kind = TRI_TOPO_AMD_SMI;
    while (m && m->gpus == table.gpus && at + 1 + rows < l->count &&
           read_row(m, &table, l->line[at + 1 + rows].body, tri__topo_line(m, t, at + 1 + rows)))
        rows++;
    if (m && rows < table.gpus)
        tri_machine_remark(m, TRI_REMARK_CUT, tri__topo_line(m, t, at),
                           "%zu of %zu GPUs have a row", rows, table.gpus);
    tri_free(table.field);
    return 1 + rows;
}
