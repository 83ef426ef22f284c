/*
 * nvidia-smi -q: an indented tree of "Key : Value" lines under headings, one block a GPU. The
 * column of the colon, the wording and the depth changed over the drivers, so only the text of the
 * nearest heading and of the key count. Excerpts without the "GPU ..." heading are blocks too.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/mem.h"
#include "topo/topo.h"
#include "topo/topo_priv.h"

enum { KEY_BYTES = 64 };

struct query {
    struct tri__topo_text *text;
    struct tri__topo_found found;
    char section[KEY_BYTES];
};

/* "   Max : 4" -> key and value. A value may hold colons; the first " :" or ": " splits. */
static bool key_value(const char *text, char key[KEY_BYTES], const char **value)
{
    const char *colon = strstr(text, " : ");
    if (!colon) {
        colon = strchr(text, ':');
        if (!colon || (colon[1] != ' ' && colon[1]))
            return false;
    } else {
        colon++;
    }
    const char *start = text + strspn(text, " \t"), *end = colon;
    while (end > start && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (end == start || end - start >= KEY_BYTES)
        return false;
    tri__topo_copy(key, KEY_BYTES, start, (size_t)(end - start));
    *value = colon + 1 + strspn(colon + 1, " \t");
    return true;
}

/* "GPU 00000000:18:00.0" */
static bool gpu_heading(const char *text, char bdf[16])
{
    text += strspn(text, " \t");
    if (!tri_text_begins(text, "GPU "))
        return false;
    text += 4;
    size_t len = strcspn(text, " \t");
    return len >= 12 && strchr(text, ':') && tri_bdf_normal(text, len, bdf);
}

static bool is_heading(const char *text, const char *name)
{
    text += strspn(text, " \t");
    size_t len = strlen(text);
    while (len && text[len - 1] == ' ')
        len--;
    return len == strlen(name) && !memcmp(text, name, len);
}

static struct tri_gpu *new_gpu(struct query *q, size_t at)
{
    struct tri_gpu *g = tri__topo_found_gpu(&q->found);
    if (!g)
        return NULL;
    g->vendor = TRI_VENDOR_NVIDIA;
    g->source = (struct tri_source){ 0, q->text->lines->line[at].number };
    return g;
}

static int whole(const char *value)
{
    char *end = NULL;
    long v = strtol(value, &end, 10);
    return end == value || v < 0 || v > 1000000 ? -1 : (int)v;
}

static int yes(const char *value)
{
    static const char *const on[] = { "Yes", "Active", "Enabled" };
    static const char *const off[] = { "No", "Not Active", "Disabled", "None" };
    for (size_t i = 0; i < 3; i++)
        if (tri_text_begins(value, on[i]))
            return 1;
    for (size_t i = 0; i < 4; i++)
        if (tri_text_begins(value, off[i]))
            return 0;
    return -1;
}

static void read_link(struct tri_gpu *g, const char *section, const char *key, const char *value,
                      struct tri_source here)
{
    struct tri_gpu_state *s = &g->state;
    if (tri_text_find(section, "PCIe Generation")) {
        int *to = !strcmp(key, "Max")          ? &s->gen_max
                  : !strcmp(key, "Current")    ? &s->gen_now
                  : !strcmp(key, "Device Max") ? &s->gen_device
                  : !strcmp(key, "Host Max")   ? &s->gen_host
                                               : NULL;
        if (to)
            *to = whole(value);
        if (to == &s->gen_now)
            s->gen_source = here;
    } else if (tri_text_find(section, "Link Width")) {
        int *to = !strcmp(key, "Max")       ? &s->width_max
                  : !strcmp(key, "Current") ? &s->width_now
                                            : NULL;
        if (to)
            *to = whole(value);
        if (to == &s->width_now)
            s->width_source = here;
    }
}

static void read_reason(struct tri_gpu_state *s, const char *key, const char *value,
                        struct tri_source here)
{
    static const struct {
        const char *key;
        unsigned bit;
    } reasons[] = { { "SW Power Cap", TRI_SLOW_POWER_CAP },
                    { "HW Slowdown", TRI_SLOW_HW },
                    { "HW Thermal Slowdown", TRI_SLOW_HW_THERMAL },
                    { "HW Power Brake Slowdown", TRI_SLOW_HW_BRAKE },
                    { "SW Thermal Slowdown", TRI_SLOW_SW_THERMAL } };
    if (!strcmp(key, "Idle"))
        s->idle = yes(value);
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (!strcmp(key, reasons[i].key) && yes(value) == 1) {
            s->slow |= reasons[i].bit;
            s->slow_source = here;
        }
}

static void read_health(struct tri_gpu *g, const char *section, const char *key, const char *value,
                        struct tri_source here)
{
    struct tri_gpu_state *s = &g->state;
    if (!strcasecmp(key, "Replays Since Reset") && isdigit((unsigned char)*value)) {
        s->replays = whole(value);
        s->replay_source = here;
    } else if (tri_text_find(section, "Remapped Rows")) {
        if (!strcmp(key, "Pending"))
            s->remap_pending = yes(value);
        else if (!strcmp(key, "Remapping Failure Occurred"))
            s->remap_failed = yes(value);
        if (s->remap_pending == 1 || s->remap_failed == 1)
            s->remap_source = here;
    } else if (!strcmp(section, "Fabric") && !strcmp(key, "State")) {
        tri__topo_copy(s->fabric, sizeof s->fabric, value, strlen(value));
        s->fabric_source = here;
    } else if (!strcmp(section, "Health") && !strcmp(key, "Bandwidth")) { /* of the fabric, 550+ */
        s->fabric_degraded = tri_text_begins(value, "Degraded");
        if (s->fabric_degraded)
            s->fabric_source = here;
    } else if (!strcmp(section, "MIG Mode") && !strcmp(key, "Current")) {
        s->mig = yes(value);
    } else if (!strcmp(key, "Virtualization Mode")) {
        s->passthrough = tri_text_begins(value, "Pass-Through");
    }
}

static void read_pair(struct query *q, size_t at, const char *key, const char *value)
{
    struct tri_source here = { 0, q->text->lines->line[at].number };
    struct tri_gpu *g = q->found.gpus ? &q->found.gpu[q->found.gpus - 1] : NULL;
    char bdf[16];
    if (!strcmp(key, "Bus Id") && tri_bdf_normal(value, strcspn(value, " \t"), bdf)) {
        if (!g || (g->bdf[0] && strcmp(g->bdf, bdf)))
            g = new_gpu(q, at);
        if (g)
            memcpy(g->bdf, bdf, sizeof bdf);
        return;
    }
    if (!g)
        return;
    if (!strcmp(key, "Product Name") && !g->name[0])
        tri__topo_copy(g->name, sizeof g->name, value, strlen(value));
    else if (!strcmp(key, "Performance State") && value[0] == 'P')
        g->pstate = whole(value + 1);
    else if (tri_text_begins(q->section, "FB Memory") && !strcmp(key, "Total") && whole(value) > 0)
        g->memory_bytes = (uint64_t)whole(value) << 20;
    else if (tri_text_begins(q->section, "FB Memory") && !strcmp(key, "Used") && whole(value) >= 0)
        g->used_bytes = (uint64_t)whole(value) << 20;
    else if (!strcmp(q->section, "Utilization") && !strcasecmp(key, "Gpu"))
        g->busy_percent = whole(value);
    read_link(g, q->section, key, value, here);
    read_reason(&g->state, key, value, here);
    read_health(g, q->section, key, value, here);
}

/* Heading lines keep the tree going: words only, indented or known. */
static bool section_line(const char *text)
{
    const char *p = text + strspn(text, " \t");
    if (!*p || strchr(p, ':') || strlen(p) >= KEY_BYTES || !isalpha((unsigned char)*p))
        return false;
    return p != text || is_heading(text, "PCI") || is_heading(text, "Clocks") ||
           tri_text_find(p, "PCIe Generation") || tri_text_find(p, "Link Width") ||
           tri_text_find(p, "Clocks Event Reasons") ||
           tri_text_find(p, "Clocks Throttle Reasons") || tri_text_find(p, "GPU Link Info") ||
           tri_text_find(p, "Bridge Chip");
}

static bool starts(const struct tri_lines *lines, size_t at)
{
    const char *text = lines->line[at].body, *value;
    char key[KEY_BYTES], bdf[16];
    if (tri_text_find(text, "=NVSMI LOG="))
        return true;
    for (size_t i = at + 1; i < lines->count && i < at + 3; i++)
        if ((gpu_heading(text, bdf) || is_heading(text, "PCI") ||
             is_heading(text, "GPU Link Info") || is_heading(text, "PCIe Generation")) &&
            (key_value(lines->line[i].body, key, &value) || section_line(lines->line[i].body)))
            return true;
    return false;
}

/* Column 0 holds only the head of the output and the GPUs' headings. */
static bool is_outside(const char *text)
{
    static const char *const head[] = { "GPU ", "Timestamp", "Driver Version", "CUDA Version",
                                        "Attached GPUs" };
    for (size_t i = 0; i < sizeof head / sizeof head[0]; i++)
        if (tri_text_begins(text, head[i]))
            return false;
    return *text != ' ' && *text != '\t';
}

size_t tri__topo_read_smi_query(struct tri__topo_text *t, size_t at)
{
    if (!starts(t->lines, at))
        return 0;
    struct query q = { .text = t };
    size_t i = at, blank = 0;
    const char *first = t->lines->line[at].body;
    bool indented = *first == ' ' || *first == '\t' || tri_text_find(first, "NVSMI LOG") ||
                    tri_text_begins(first, "GPU ");
    for (; i < t->lines->count; i++) {
        const char *text = t->lines->line[i].body, *value;
        char key[KEY_BYTES], bdf[16];
        if (!text[strspn(text, " \t")]) {
            if (++blank > 2)
                break;
            continue;
        }
        if (tri_text_find(text, "NCCL ") || (indented && i > at && is_outside(text)))
            break; /* another output follows */
        if (gpu_heading(text, bdf)) {
            struct tri_gpu *g = new_gpu(&q, i);
            if (g)
                memcpy(g->bdf, bdf, sizeof bdf);
        } else if (key_value(text, key, &value)) {
            if (!q.found.gpus && strcmp(q.section, "") && i > at)
                new_gpu(&q, i); /* an excerpt without its heading and before its bus id */
            read_pair(&q, i, key, value);
        } else if (section_line(text)) {
            tri__topo_copy(q.section, sizeof q.section, text + strspn(text, " \t"),
                           strlen(text + strspn(text, " \t")));
        } else if (!tri_text_find(text, "NVSMI LOG") && i > at) {
            break;
        }
        blank = 0;
    }
    if (q.found.gpus)
        tri__topo_take_gpus(t, q.found.gpu, q.found.gpus, at);
    tri_free(q.found.gpu);
    t->kind = TRI_TOPO_SMI_QUERY;
    return i - at;
}
