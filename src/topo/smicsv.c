/*
 * nvidia-smi --query-gpu=... --format=csv: one line a GPU under a line of field names. The names
 * are those of the command, with a unit in brackets; with `noheader` they are taken from the
 * command line above when it was pasted too. Without either nothing is known about the columns.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/mem.h"
#include "topo/topo.h"
#include "topo/topo_priv.h"

enum { MAX_FIELDS = 64 };

enum field {
    OTHER,
    INDEX,
    NAME,
    BUS,
    PSTATE,
    BUSY,
    USED,
    TOTAL,
    GEN_NOW,
    GEN_MAX,
    GEN_DEVICE,
    GEN_HOST,
    WIDTH_NOW,
    WIDTH_MAX,
    IDLE,
    POWER_CAP,
    HW_SLOW,
    HW_THERMAL,
    HW_BRAKE,
    SW_THERMAL,
    MIG,
    FABRIC
};

/* Names of `nvidia-smi --help-query-gpu`; the reasons are named after "clocks_*_reasons.". */
static const struct {
    const char *name;
    enum field field;
} names[] = { { "index", INDEX },
              { "name", NAME },
              { "gpu_name", NAME },
              { "pci.bus_id", BUS },
              { "gpu_bus_id", BUS },
              { "pstate", PSTATE },
              { "utilization.gpu", BUSY },
              { "memory.used", USED },
              { "memory.total", TOTAL },
              { "pcie.link.gen.current", GEN_NOW },
              { "pcie.link.gen.gpucurrent", GEN_NOW },
              { "pcie.link.gen.max", GEN_MAX },
              { "pcie.link.gen.gpumax", GEN_DEVICE },
              { "pcie.link.gen.hostmax", GEN_HOST },
              { "pcie.link.width.current", WIDTH_NOW },
              { "pcie.link.width.max", WIDTH_MAX },
              { "gpu_idle", IDLE },
              { "sw_power_cap", POWER_CAP },
              { "hw_slowdown", HW_SLOW },
              { "hw_thermal_slowdown", HW_THERMAL },
              { "hw_power_brake_slowdown", HW_BRAKE },
              { "sw_thermal_slowdown", SW_THERMAL },
              { "mig.mode.current", MIG },
              { "fabric.state", FABRIC } };

struct table {
    enum field field[MAX_FIELDS];
    size_t fields, known;
    bool has_unit_or_dot; /* "pcie.link...", "memory.used [MiB]": no other CSV has such names */
};

static enum field field_of(struct tri_word w)
{
    static const char *const reasons[] = { "clocks_throttle_reasons.", "clocks_event_reasons." };
    const char *unit = memchr(w.at, '[', w.len);
    if (unit) {
        w.len = (size_t)(unit - w.at);
        while (w.len && w.at[w.len - 1] == ' ')
            w.len--;
    }
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        size_t n = strlen(reasons[i]);
        if (w.len > n && !strncasecmp(w.at, reasons[i], n))
            w = (struct tri_word){ w.at + n, w.len - n };
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i].name) == w.len && !strncasecmp(names[i].name, w.at, w.len))
            return names[i].field;
    return OTHER;
}

/* Field names: a whole line of them, or the list of a command. False when it is neither. */
static bool read_names(const char *text, struct table *t)
{
    struct tri_word w;
    *t = (struct table){ .fields = 0 };
    while (tri__topo_csv_field(&text, &w)) {
        if (t->fields == MAX_FIELDS || !w.len || !isalpha((unsigned char)*w.at))
            return false;
        t->field[t->fields] = field_of(w);
        t->known += t->field[t->fields++] != OTHER;
        t->has_unit_or_dot |=
            memchr(w.at, '.', w.len) || memchr(w.at, '[', w.len) || memchr(w.at, '_', w.len);
    }
    return t->fields > 1 && t->known && (t->has_unit_or_dot || t->known > 2);
}

/* "... --query-gpu=index,name --format=csv,noheader": the names of the command itself. */
static bool read_command(const char *text, struct table *t)
{
    const char *list = tri_text_find(text, "--query-gpu=");
    char fields[1024];
    if (!list || !tri_text_find(text, "noheader"))
        return false;
    list += 12;
    list += *list == '"' || *list == '\'';
    size_t len = strcspn(list, " \t\"'");
    tri__topo_copy(fields, sizeof fields, list, len);
    return len < sizeof fields && read_names(fields, t);
}

static int whole(struct tri_word w)
{
    char text[24];
    tri_word_copy(w, text, sizeof text);
    char *end = NULL;
    long v = strtol(text, &end, 10);
    return end == text || v < 0 || v > 100000000 ? -1 : (int)v;
}

static int active(struct tri_word w)
{
    return tri_word_is(w, "Active") || tri_word_is(w, "Enabled")        ? 1
           : tri_word_is(w, "Not Active") || tri_word_is(w, "Disabled") ? 0
                                                                        : -1;
}

static void take_reason(struct tri_gpu_state *s, unsigned bit, struct tri_word w,
                        struct tri_source here)
{
    if (active(w) != 1)
        return;
    s->slow |= bit;
    s->slow_source = here;
}

static void take_mib(uint64_t *to, struct tri_word w)
{
    int mib = whole(w);
    if (mib >= 0)
        *to = (uint64_t)mib << 20;
}

static void take_link(struct tri_gpu_state *s, enum field f, struct tri_word w,
                      struct tri_source here)
{
    int *to = f == GEN_NOW      ? &s->gen_now
              : f == GEN_MAX    ? &s->gen_max
              : f == GEN_DEVICE ? &s->gen_device
              : f == GEN_HOST   ? &s->gen_host
              : f == WIDTH_NOW  ? &s->width_now
                                : &s->width_max;
    *to = whole(w);
    if (f == GEN_NOW)
        s->gen_source = here;
    if (f == WIDTH_NOW)
        s->width_source = here;
}

static void take_field(struct tri_gpu *g, enum field f, struct tri_word w, struct tri_source here)
{
    static const unsigned bits[] = { [POWER_CAP] = TRI_SLOW_POWER_CAP,
                                     [HW_SLOW] = TRI_SLOW_HW,
                                     [HW_THERMAL] = TRI_SLOW_HW_THERMAL,
                                     [HW_BRAKE] = TRI_SLOW_HW_BRAKE,
                                     [SW_THERMAL] = TRI_SLOW_SW_THERMAL };
    struct tri_gpu_state *s = &g->state;
    if (f == NAME)
        tri__topo_copy(g->name, sizeof g->name, w.at, w.len);
    else if (f == BUS && !tri_bdf_normal(w.at, w.len, g->bdf))
        g->bdf[0] = 0;
    else if (f == PSTATE && w.len > 1 && *w.at == 'P')
        g->pstate = whole((struct tri_word){ w.at + 1, w.len - 1 });
    else if (f == BUSY)
        g->busy_percent = whole(w);
    else if (f == USED || f == TOTAL)
        take_mib(f == USED ? &g->used_bytes : &g->memory_bytes, w);
    else if (f >= GEN_NOW && f <= WIDTH_MAX)
        take_link(s, f, w, here);
    else if (f == IDLE)
        s->idle = active(w);
    else if (f >= POWER_CAP && f <= SW_THERMAL)
        take_reason(s, bits[f], w, here);
    else if (f == MIG)
        s->mig = active(w);
    else if (f == FABRIC) {
        tri__topo_copy(s->fabric, sizeof s->fabric, w.at, w.len);
        s->fabric_source = here;
    }
}

/* One row into the GPU it names (by index, else the next one). False when it is none. */
static bool read_row(const struct table *t, const char *text, uint32_t line,
                     struct tri__topo_found *found)
{
    struct tri_gpu g = tri__topo_blank_gpu();
    struct tri_source here = { 0, line };
    struct tri_word w;
    const char *p = text;
    size_t at = found->gpus;
    if (tri__topo_csv_fields(text) != t->fields)
        return false;
    for (size_t i = 0; i < t->fields && tri__topo_csv_field(&p, &w); i++) {
        int index = t->field[i] == INDEX ? whole(w) : -1;
        at = index >= 0 ? (size_t)index : at;
        take_field(&g, t->field[i], w, here);
    }
    if (at >= TRI_MAX_GPUS)
        return false;
    g.vendor = TRI_VENDOR_NVIDIA;
    g.source = here;
    while (found->gpus <= at) /* a query of some GPUs only: the others stay unknown */
        if (!tri__topo_found_gpu(found))
            return false;
    found->gpu[at] = g;
    return true;
}

size_t tri__topo_read_smi_csv(struct tri__topo_text *t, size_t at)
{
    const struct tri_lines *l = t->lines;
    struct table table;
    const char *text = l->line[at].body;
    if (!strchr(text, ',') || (!read_command(text, &table) && !read_names(text, &table)))
        return 0;
    struct tri__topo_found found = { 0 };
    size_t i = at + 1;
    while (i < l->count && read_row(&table, l->line[i].body, l->line[i].number, &found))
        i++;
    bool cut = i < l->count && strchr(l->line[i].body, ',') && found.gpus &&
               isdigit((unsigned char)*l->line[i].body) &&
               tri__topo_csv_fields(l->line[i].body) < table.fields;
    if (found.gpus)
        tri__topo_take_gpus(t, found.gpu, found.gpus, at);
    struct tri_machine *m = tri_machines_last(t->set);
    if (m && (cut || !found.gpus))
        tri_machine_remark(m, TRI_REMARK_CUT, tri__topo_line(m, t, cut ? i : at),
                           cut ? "a row has fewer fields than the first line names"
                               : "field names without a row");
    tri_free(found.gpu);
    t->kind = TRI_TOPO_SMI_CSV;
    return i - at + cut;
}
