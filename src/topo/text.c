/*
 * Which reader takes a line, and which machine of a set its facts belong to. Order matters: a
 * reader that needs more evidence goes first.
 */
#include <ctype.h>
#include <string.h>
#include "os/tree.h"
#include "topo/topo.h"
#include "topo/topo_priv.h"

void tri_machines_fini(struct tri_machines *set)
{
    for (size_t i = 0; i < set->count; i++)
        tri_machine_close(set->list[i]);
    tri_tree_close(set->files);
    *set = (struct tri_machines){ 0 };
}

struct tri_machine *tri__topo_machine_new(struct tri_machines *set)
{
    if (set->count == TRI_MAX_MACHINES || tri_machine_open(&set->list[set->count], NULL)) {
        set->lost = true;
        return NULL;
    }
    return set->list[set->count++];
}

struct tri_machine *tri_machines_last(struct tri_machines *set)
{
    return set->count ? set->list[set->count - 1] : tri__topo_machine_new(set);
}

struct tri_machine *tri__topo_machine_for(struct tri_machines *set, size_t gpus)
{
    struct tri_machine *m = tri_machines_last(set);
    return m && (m->gpus == 0 || m->gpus == gpus) ? m : tri__topo_machine_new(set);
}

struct tri_source tri__topo_line(struct tri_machine *m, const struct tri__topo_text *t, size_t at)
{
    return (struct tri_source){ tri_machine_source(m, t->name), t->lines->line[at].number };
}

bool tri__topo_csv_field(const char **p, struct tri_word *out)
{
    if (!*p)
        return false;
    const char *at = *p + strspn(*p, " \t");
    bool quoted = *at == '"';
    at += quoted;
    const char *end = at + strcspn(at, quoted ? "\"" : ","), *comma = strchr(end, ',');
    *p = comma ? comma + 1 : NULL;
    while (!quoted && end > at && isspace((unsigned char)end[-1]))
        end--;
    *out = (struct tri_word){ at, (size_t)(end - at) };
    return true;
}

size_t tri__topo_csv_fields(const char *text)
{
    struct tri_word w;
    size_t n = 0;
    while (tri__topo_csv_field(&text, &w))
        n++;
    return n;
}

/* Words and first characters of each reader's lines, "" none. */
static const struct {
    size_t (*read)(struct tri__topo_text *t, size_t at);
    const char *starts, *words;
} readers[TRI_TOPO_READERS] = {
    { tri__topo_read_files, "/=", "" },
    { tri__topo_read_nvlink, "G", "" },
    { tri__topo_read_smi_query, "GP", "NVSMI LOG" },
    { tri__topo_read_smi_csv, "", TRI__SMI_CSV_WORDS },
    { tri__topo_read_smi_table, "|", "" },
    { tri__topo_read_accel, "|NG", "" },
    { tri__topo_read_amd, "G", "ROCm S" },
    { tri__topo_read_amd_csv, "", "gpu,bdf," },
    { tri__topo_read_lstopo, "", "(busid=" },
    { tri__topo_read_lspci_tree, "-+[", "" },
    { tri__topo_read_lspci, "0123456789abcdefABCDEF:.",
      "LnkCap|LnkSta|LnkCtl|ACSC|NUMA node:|ECAP_ACS|ACS is enabled|ACS enabled" },
    { tri__topo_read_matrix, "G0123456789abcdefABCDEF:", "" },
};

void tri_topo_words(struct tri_sieve *sieve, unsigned first)
{
    for (unsigned i = 0; i < TRI_TOPO_READERS; i++) {
        tri_sieve_starts(sieve, first + i, readers[i].starts);
        tri_sieve_words(sieve, first + i, readers[i].words);
    }
}

size_t tri_topo_read_at(struct tri_machines *set, const struct tri_topo_place *place,
                        enum tri_topo_kind *kind)
{
    struct tri__topo_text t = { .set = set, .name = place->name, .lines = place->lines };
    for (size_t i = 0; i < TRI_TOPO_READERS; i++) {
        size_t taken = place->hits >> i & 1 ? readers[i].read(&t, place->at) : 0;
        if (taken) {
            *kind = t.kind;
            return taken;
        }
    }
    *kind = TRI_TOPO_NONE;
    return 0;
}

void tri_topo_read_end(struct tri_machines *set)
{
    tri__topo_rocm_end(set, false);
}

void tri_topo_read_lines(struct tri_machines *set, const char *name, const struct tri_lines *lines)
{
    struct tri_topo_place place = { .name = name, .lines = lines, .hits = ~0ull };
    while (place.at < lines->count) {
        enum tri_topo_kind kind;
        size_t taken = tri_topo_read_at(set, &place, &kind);
        place.at += taken ? taken : 1;
    }
    tri_topo_read_end(set);
}
