/*
 * Tools of makers whose accelerators have no topology that is read here: npu-smi info (Huawei
 * Ascend) and xpu-smi discovery (Intel). What is sure is taken: which devices there are, their bus
 * ids and memory. Their tables of paths are recognised and said not to be read, so that nobody
 * takes silence for health. hl-smi (Gaudi) prints the frame of nvidia-smi; see smitable.c.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "topo/topo.h"
#include "topo/topo_priv.h"

/* The cell between the bars after the `n`-th one, without blanks around it. */
static struct tri_word cell(const char *text, size_t n)
{
    const char *p = strchr(text, '|'), *end = p ? strchr(p + 1, '|') : NULL;
    for (; end && n > 0; n--) {
        p = end;
        end = strchr(p + 1, '|');
    }
    if (!end)
        return (struct tri_word){ "", 0 };
    p++;
    p += strspn(p, " \t");
    while (end > p && isspace((unsigned char)end[-1]))
        end--;
    return (struct tri_word){ p, end > p ? (size_t)(end - p) : 0 };
}

/* "| 0     910B3   | OK   | 93.6   40   0 / 0 |": device number and name. */
static bool npu_row(const char *text, struct tri_word *name, struct tri_word *health)
{
    struct tri_word first = cell(text, 0);
    size_t digits = strspn(first.at, "0123456789");
    *health = cell(text, 1);
    if (*text != '|' || !first.len || !digits || digits >= first.len || first.at[digits] != ' ' ||
        !health->len || !isalpha((unsigned char)*health->at))
        return false;
    size_t blank = strspn(first.at + digits, " ");
    *name = (struct tri_word){ first.at + digits + blank, first.len - digits - blank };
    return name->len > 0 && !memchr(name->at, ' ', name->len);
}

/* "| 0  0 | 0000:C1:00.0 | 0   0 / 0   3153 / 65536 |" below it: bus id, the last pair is memory.
 */
static bool npu_detail(struct tri_gpu *g, const char *text)
{
    struct tri_word bus = cell(text, 1), last = cell(text, 2);
    if (*text != '|' || !tri_bdf_normal(bus.at, bus.len, g->bdf))
        return false;
    const char *slash = memrchr(last.at, '/', last.len);
    if (!slash)
        return true;
    const char *used = slash;
    while (used > last.at && used[-1] == ' ')
        used--;
    while (used > last.at && isdigit((unsigned char)used[-1]))
        used--;
    g->used_bytes = strtoull(used, NULL, 10) << 20;
    g->memory_bytes = strtoull(slash + 1, NULL, 10) << 20;
    return true;
}

/* The last machine if its devices are of that maker, else a new one. */
static struct tri_machine *machine_of(struct tri_machines *set, enum tri_vendor vendor)
{
    struct tri_machine *m = tri_machines_last(set);
    bool own = m && (!m->gpus || m->gpu[0].vendor == vendor);
    return own ? m : tri__topo_machine_new(set);
}

static size_t read_npu(struct tri__topo_text *t, size_t at)
{
    const struct tri_lines *l = t->lines;
    struct tri_word name, health;
    struct tri_gpu found = tri__topo_blank_gpu();
    if (at + 1 >= l->count || !npu_row(l->line[at].body, &name, &health) ||
        !npu_detail(&found, l->line[at + 1].body))
        return 0;
    struct tri_machine *m = machine_of(t->set, TRI_VENDOR_HUAWEI);
    struct tri_gpu *g = m ? tri_machine_add_gpu(m) : NULL;
    t->kind = TRI_TOPO_ACCEL;
    if (!g) {
        t->set->lost = true;
        return 2;
    }
    *g = found;
    g->vendor = TRI_VENDOR_HUAWEI;
    g->source = tri__topo_line(m, t, at);
    size_t used = (size_t)snprintf(g->name, sizeof g->name, "Ascend ");
    tri__topo_copy(g->name + used, sizeof g->name - used, name.at, name.len);
    if (!tri_word_is(health, "OK"))
        tri_machine_remark(m, TRI_REMARK_NOTE, g->source, "npu-smi calls NPU %zu %.*s", m->gpus - 1,
                           (int)health.len, health.at);
    return 2;
}

/* "|  0 | Device Name: Intel(R) Data Center GPU Max 1550 |", "|    | PCI BDF Address: 0000:29:00.0
 * |" */
static size_t read_xpu(struct tri__topo_text *t, size_t at)
{
    const char *text = t->lines->line[at].body;
    const char *name = strstr(text, "Device Name: "), *bus = strstr(text, "PCI BDF Address: ");
    if (*text != '|' || (!name && !bus))
        return 0;
    struct tri_machine *m = machine_of(t->set, TRI_VENDOR_INTEL);
    struct tri_gpu *g = m && name      ? tri_machine_add_gpu(m)
                        : m && m->gpus ? &m->gpu[m->gpus - 1]
                                       : NULL;
    t->kind = TRI_TOPO_ACCEL;
    t->set->lost |= name && !g;
    if (!g)
        return 1;
    if (name) {
        g->vendor = TRI_VENDOR_INTEL;
        g->source = tri__topo_line(m, t, at);
        tri__topo_copy(g->name, sizeof g->name, name + 13, strcspn(name + 13, "|"));
    } else if (!tri_bdf_normal(bus + 17, strcspn(bus + 17, " |"), g->bdf)) {
        g->bdf[0] = 0;
    }
    return 1;
}

/* Headers of tables of paths: "NPU0 NPU1 ... CPU Affinity" and "GPU 0/0|GPU 1/0|CPU Affinity". */
static size_t refuse_paths(struct tri__topo_text *t, size_t at)
{
    const char *text = t->lines->line[at].body, *first = text + strspn(text, " \t");
    bool npu = tri_text_begins(first, "NPU0") && strstr(first, "NPU1");
    bool xpu = tri_text_begins(first, "GPU 0/0") && strstr(first, "CPU Affinity");
    struct tri_machine *m = npu || xpu ? tri_machines_last(t->set) : NULL;
    if (!m)
        return 0;
    tri_machine_remark(m, TRI_REMARK_CUT, tri__topo_line(m, t, at),
                       "%s's table of paths is recognised, but not read",
                       npu ? "npu-smi" : "xpu-smi");
    t->kind = TRI_TOPO_ACCEL;
    return 1;
}

size_t tri__topo_read_accel(struct tri__topo_text *t, size_t at)
{
    size_t taken = refuse_paths(t, at);
    taken = taken ? taken : read_npu(t, at);
    return taken ? taken : read_xpu(t, at);
}
