/*
 * Memory modules from the SMBIOS table (DSP0134, structure type 17). Readable by root only; a
 * virtual machine usually lies here, so callers treat the numbers as a hint.
 */
#include <string.h>
#include "base/mem.h"
#include "os/tree.h"
#include "topo/topo.h"
#include "topo/topo_priv.h"

enum { TABLE_MAX = 1 << 20, MEMORY_DEVICE = 17, END_OF_TABLE = 127 };

static unsigned word(const unsigned char *p)
{
    return p[0] | (unsigned)p[1] << 8;
}

void tri__topo_read_dmi(struct tri_machine *m, struct tri_tree *tree)
{
    static const char path[] = "/sys/firmware/dmi/tables/DMI";
    unsigned char *t = tri_malloc(TABLE_MAX);
    size_t n = t ? tri_tree_bytes(tree, path, t, TABLE_MAX) : 0;
    int used = 0, slots = 0;
    double mts = 0;
    for (size_t at = 0; at + 4 <= n && t[at] != END_OF_TABLE;) {
        size_t length = t[at + 1];
        if (length < 4 || at + length > n)
            break;
        if (t[at] == MEMORY_DEVICE && length > 0x16) {
            unsigned size = word(t + at + 0x0c), speed = word(t + at + 0x15);
            if (length > 0x21 && word(t + at + 0x20))
                speed = word(t + at + 0x20); /* configured, not rated */
            slots++;
            used += size != 0;
            if (size && speed && speed != 0xffff)
                mts = speed;
        }
        at += length; /* then strings, ended by two NULs */
        while (at + 1 < n && (t[at] || t[at + 1]))
            at++;
        at += 2;
    }
    if (slots) {
        m->memory.channels_used = used;
        m->memory.slots = slots;
        m->memory.mts = mts;
    }
    tri_free(t);
}
