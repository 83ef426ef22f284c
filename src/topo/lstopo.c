/*
 * lstopo -v as text: bridges and PCI devices with their buses and links,
 *   PCIBridge L#6 (busid=0000:3c:04.0 id=10b5:9797 class=0604(PCIBridge) link=15.75GB/s
 *                  buses=0000:[3d-3f])
 * in the order of the tree. Sockets and caches have better sources and are not taken.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "topo/topo.h"
#include "topo/topo_priv.h"

static void read_line(struct tri_pci *p, const char *text)
{
    unsigned vendor = 0, device = 0, code = 0, domain = 0, second = 0, sub = 0;
    const char *id = strstr(text, "id="), *class = strstr(text, "class=");
    const char *link = strstr(text, "link="), *buses = strstr(text, "buses=");
    const char *own = strstr(text, " id="); /* "busid=" holds "id=" too */
    id = own ? own + 1 : id;
    if (id && sscanf(id, "id=%4x:%4x", &vendor, &device) == 2) {
        p->vendor = (uint16_t)vendor;
        p->device = (uint16_t)device;
    }
    if (class && sscanf(class, "class=%4x", &code) == 1)
        p->class_code = code << 8;
    p->role = tri__topo_role(p->class_code, p->vendor);
    if (link)
        p->sta = tri__topo_link_of(strtod(link + 5, NULL));
    if (buses && sscanf(buses, "buses=%x:[%x-%x]", &domain, &second, &sub) == 3 && second < 256 &&
        sub < 256) {
        p->secondary = (int)second;
        p->subordinate = (int)sub;
    }
}

size_t tri__topo_read_lstopo(struct tri__topo_text *t, size_t at)
{
    const char *text = t->lines->line[at].body, *bus = strstr(text, "(busid=");
    char bdf[16];
    if (!bus || !strstr(text, " class=") || !tri_bdf_normal(bus + 7, strcspn(bus + 7, " )"), bdf))
        return 0;
    struct tri_machine *m = tri_machines_last(t->set);
    struct tri_pci *p = m ? tri__topo_pci_at(m, bdf) : NULL;
    if (!p) {
        t->set->lost = true;
        return 1;
    }
    p->source = p->sta_source = tri__topo_line(m, t, at);
    read_line(p, text);
    m->described = true;
    t->kind = TRI_TOPO_LSTOPO;
    return 1;
}
