/*
 * lspci -t and -tv: the PCI tree as drawn by lines. A branch ('+' or '\') hangs below the column in
 * which an earlier line drew its '+'; behind a device "-[17-1b]" are the buses of a bridge. With -v
 * the name of a device follows two blanks. Links and classes are not printed: what a device is, is
 * told by its maker's name only, and without -v not at all.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "topo/topo.h"
#include "topo/topo_priv.h"

enum { MAX_COLUMNS = 512, ROOT = -1, HIDDEN = -2 };

struct level {       /* the bus that a column's branches are on */
    int domain, bus; /* or ROOT, the point above all buses */
    bool drawn;
};

struct tree {
    struct tri_machine *m;
    struct level column[MAX_COLUMNS];
    size_t devices, named;
};

static bool is_hex(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isxdigit((unsigned char)p[i]))
            return false;
    return true;
}

/* "[0000:16]" of a root bus. */
static bool root_bus(const char *p, struct level *to)
{
    unsigned domain = 0, bus = 0;
    int end = 0;
    if (sscanf(p, "[%8x:%2x]%n", &domain, &bus, &end) != 2 || end < 7)
        return false;
    /* domains above 16 bits are volume management's own: bus ids here have no room for them */
    *to = (struct level){ domain > 0xffff ? HIDDEN : (int)domain, (int)bus, true };
    return true;
}

/* "[17]" or "[17-1b]" behind a bridge. Its length, 0 when it is none. */
static int bridge_buses(const char *p, unsigned *second, unsigned *sub)
{
    int end = 0;
    if (sscanf(p, "[%2x-%2x]%n", second, sub, &end) == 2 && end)
        return end;
    end = 0;
    if (sscanf(p, "[%2x]%n", second, &end) == 1 && end) {
        *sub = *second;
        return end;
    }
    return 0;
}

/* What a device is by the words of its name. */
static void name_device(struct tri_pci *p, const char *name)
{
    static const struct {
        const char *maker;
        uint16_t vendor;
        uint32_t class_code;
    } makers[] = { { "NVIDIA", 0x10de, 0x030200 },
                   { "AMD/ATI", 0x1002, 0x038000 },
                   { "Mellanox", 0x15b3, 0x020700 } };
    static const char *const others[] = { "Audio",  "USB",    "UCSI",     "Switch",
                                          "Bridge", "bridge", "NVSwitch", "Port",
                                          "HDMI",   "Serial", "DMA",      "BlueField-3 SoC" };
    tri__topo_copy(p->name, sizeof p->name, name, strlen(name));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strstr(name, others[i])) {
            p->role = TRI_PCI_OTHER;
            return;
        }
    for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++)
        if (tri_text_find(name, makers[i].maker)) {
            p->vendor = makers[i].vendor;
            p->class_code = makers[i].class_code;
            p->role = tri__topo_role(p->class_code, p->vendor);
            return;
        }
    p->role = TRI_PCI_OTHER;
}

/* One device at `p` ("10.0-[1a]----00.0  NAME"), on the bus of `now`. Returns what follows. */
static const char *read_device(struct tree *t, struct level *now, const char *p,
                               struct tri_source here)
{
    char bdf[16];
    snprintf(bdf, sizeof bdf, "%04x:%02x:%.4s", (unsigned)now->domain & 0xffff,
             (unsigned)now->bus & 0xff, p);
    struct tri_pci *dev = now->domain == HIDDEN ? NULL : tri__topo_pci_at(t->m, bdf);
    p += 4;
    if (!dev) {
        const char *name = strstr(p, "  ");
        return name ? name + strlen(name) : p;
    }
    t->devices++;
    if (dev->source.file < 0)
        dev->source = here;
    if (*p == '-') {
        unsigned second = 0, sub = 0;
        int length = bridge_buses(p + 1, &second, &sub);
        if (length) {
            dev->secondary = (int)second;
            dev->subordinate = (int)sub;
            dev->role = TRI_PCI_BRIDGE;
            now->bus = (int)second;
            p += 1 + length;
        }
    } else if (p[0] == ' ' && p[1] == ' ' && p[2]) {
        t->named++;
        if (!dev->name[0])
            name_device(dev, p + 2);
        p += strlen(p);
    }
    return p;
}

/* One line; false when it is none of a tree. */
static bool read_line(struct tree *t, const char *text, struct tri_source here)
{
    struct level now = { ROOT, 0, false };
    const char *p = text;
    bool branched = false;
    size_t before = t->devices;
    while (*p) {
        size_t column = (size_t)(p - text);
        if (column >= MAX_COLUMNS)
            return false;
        if (*p == '+' || *p == '\\') {
            bool first = !branched && now.domain == ROOT;
            if (first && t->column[column].drawn)
                now = t->column[column];
            else if (first && strspn(text, " -|") < column)
                return false;
            t->column[column] = now;
            t->column[column].drawn = true;
            branched = true;
            p++;
        } else if (*p == '[') {
            if (!root_bus(p, &now))
                return false;
            branched = true;
            p += strcspn(p, "]");
            p += *p == ']';
        } else if (is_hex(p, 2) && p[2] == '.' && isdigit((unsigned char)p[3])) {
            if (now.domain == ROOT)
                return false;
            p = read_device(t, &now, p, here);
        } else if (*p == '-' || *p == ' ' || *p == '|') {
            p++;
        } else {
            return false;
        }
    }
    return branched || t->devices > before;
}

/* The first line of a tree: "-[0000:00]-+-00.0" or "-+-[0000:00]-+-00.0". */
static bool begins(const char *text)
{
    struct level root;
    const char *p = text + strspn(text, " ");
    p += *p == '-';
    p += strspn(p, "+-");
    return p > text && root_bus(p, &root) && strstr(p, "]-");
}

/* GPUs of the tree, in its order, when nothing else named any. */
static void add_gpus(struct tri_machine *m)
{
    if (m->gpus)
        return;
    for (size_t i = 0; i < m->pcis; i++) {
        const struct tri_pci *p = &m->pci[i];
        if (p->role != TRI_PCI_GPU)
            continue;
        struct tri_gpu *g = tri_machine_add_gpu(m);
        if (!g)
            return;
        memcpy(g->bdf, p->bdf, sizeof g->bdf);
        g->vendor = tri__topo_vendor(p->vendor);
        const char *name = strchr(p->name, '[');
        name = name ? name + 1 : p->name;
        tri__topo_copy(g->name, sizeof g->name, name, strcspn(name, "]"));
        g->source = p->source;
    }
}

size_t tri__topo_read_lspci_tree(struct tri__topo_text *t, size_t at)
{
    if (!begins(t->lines->line[at].body))
        return 0;
    struct tree tree = { .m = tri_machines_last(t->set) };
    size_t i = at;
    if (!tree.m)
        return 1;
    while (i < t->lines->count &&
           read_line(&tree, t->lines->line[i].body, tri__topo_line(tree.m, t, i)))
        i++;
    if (tree.devices)
        tree.m->drawn_tree = true;
    if (tree.named)
        add_gpus(tree.m);
    t->kind = TRI_TOPO_LSPCI_TREE;
    return i > at ? i - at : 1;
}
