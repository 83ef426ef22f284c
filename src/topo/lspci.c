/*
 * lspci in every verbosity, whole or as grep left it, and ACS reports. A block begins with a bus id
 * in column 0; LnkCap, LnkSta and ACSCtl lines without a block become devices without a bus id, so
 * that their evidence is not lost and nothing is claimed about where they sit.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "topo/topo.h"
#include "topo/topo_priv.h"

/* Class by the words lspci prints, where -n numbers are absent. */
static uint32_t class_of(const char *text)
{
    static const struct {
        const char *words;
        uint32_t code;
    } classes[] = { { "VGA compatible controller", 0x030000 },
                    { "3D controller", 0x030200 },
                    { "Display controller", 0x038000 },
                    { "Processing accelerators", 0x120000 },
                    { "PCI bridge", 0x060400 },
                    { "Ethernet controller", 0x020000 },
                    { "Infiniband controller", 0x020700 },
                    { "Fabric controller", 0x020800 },
                    { "Network controller", 0x028000 },
                    { "Non-Volatile memory controller", 0x010802 },
                    { "SATA controller", 0x010601 },
                    { "RAID bus controller", 0x010400 },
                    { "Serial Attached SCSI", 0x010700 },
                    { "Host bridge", 0x060000 },
                    { "ISA bridge", 0x060100 },
                    { "Bridge", 0x068000 },
                    { "USB controller", 0x0c0330 },
                    { "Audio device", 0x040300 },
                    { "System peripheral", 0x088000 } };
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (tri_text_begins(text, classes[i].words))
            return classes[i].code;
    return strchr(text, ':') ? 0xff0000 : 0; /* some other class; 0: nothing said */
}

static uint16_t vendor_of(const char *text)
{
    static const struct {
        const char *word;
        uint16_t id;
    } vendors[] = { { "NVIDIA", 0x10de },       { "Advanced Micro Devices", 0x1002 },
                    { "AMD/ATI", 0x1002 },      { "Mellanox", 0x15b3 },
                    { "ASPEED", 0x1a03 },       { "Matrox", 0x102b },
                    { "Huawei", 0x19e5 },       { "Intel", 0x8086 },
                    { "Red Hat", 0x1af4 },      { "VMware", 0x15ad },
                    { "Cirrus Logic", 0x1013 }, { "Broadcom", 0x14e4 },
                    { "Amazon", 0x1d0f } };
    for (size_t i = 0; i < sizeof vendors / sizeof vendors[0]; i++)
        if (tri_text_find(text, vendors[i].word))
            return vendors[i].id;
    return 0;
}

/* A bus id with a function in column 0: the heading of a block. Its length, 0 when it is none. */
static size_t heading(const char *text, char bdf[16])
{
    size_t len = strspn(text, "0123456789abcdefABCDEF:.");
    bool ends = text[len] == 0 || text[len] == ' ' || text[len] == '\t';
    if (len < 7 || len > 16 || !ends || !memchr(text, ':', len) || text[len - 2] != '.')
        return 0;
    return tri_bdf_normal(text, len, bdf) ? len : 0;
}

/* "0302]: NVIDIA ... [10de:2330]" of lspci -nn. */
static void read_numbers(struct tri_pci *p, const char *text)
{
    const char *bracket = strchr(text, '[');
    unsigned a = 0, b = 0;
    int end = 0;
    if (bracket && sscanf(bracket, "[%4x]:%n", &a, &end) == 1 && end == 7)
        p->class_code = a << 8;
    for (; bracket; bracket = strchr(bracket + 1, '['))
        if (sscanf(bracket, "[%4x:%4x]%n", &a, &b, &end) == 2 && end == 11) {
            p->vendor = (uint16_t)a;
            p->device = (uint16_t)b;
        }
}

static void read_heading(struct tri_pci *p, const char *text)
{
    text += strspn(text, " \t");
    p->class_code = class_of(text);
    p->vendor = vendor_of(text);
    read_numbers(p, text);
    tri__topo_copy(p->name, sizeof p->name, text, strlen(text));
    p->role = tri__topo_role(p->class_code, p->vendor);
    /* Huawei makes accelerators and management VGAs; only the latter are no GPUs */
    if (p->class_code >> 16 == 0x12)
        p->role = TRI_PCI_GPU;
}

/* "Speed 16GT/s (ok), Width x16 (downgraded)" */
static struct tri_link read_link(const char *text, bool *slower, bool *narrower)
{
    struct tri_link l = { 0, 0 };
    const char *speed = tri_text_find(text, "Speed "), *width = tri_text_find(text, "Width x");
    const char *comma = speed ? strchr(speed, ',') : NULL;
    const char *word = speed ? strstr(speed, "(downgraded)") : NULL;
    if (speed)
        l.gts = tri__topo_gts(speed + 6);
    if (width)
        l.width = (int)strtol(width + 7, NULL, 10);
    if (l.width < 0 || l.width > 32)
        l.width = 0;
    *slower = word && comma && word < comma;
    *narrower = width && strstr(width, "(downgraded)") != NULL;
    return l;
}

/* "SrcValid+ TransBlk- ReqRedir+ ..." or "0x001d". -1: neither. */
static int read_acs(const char *text)
{
    static const char *const bits[] = { "SrcValid",    "TransBlk",   "ReqRedir",   "CmpltRedir",
                                        "UpstreamFwd", "EgressCtrl", "DirectTrans" };
    int acs = 0, known = 0;
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        const char *at = tri_text_find(text, bits[i]);
        char sign = at ? at[strlen(bits[i])] : 0;
        known += sign == '+' || sign == '-';
        acs |= sign == '+' ? 1 << i : 0;
    }
    if (known)
        return acs;
    text += strspn(text, " \t:=");
    char *end = NULL;
    unsigned long v = strtoul(text, &end, 16);
    return end != text && end - text <= 6 && v < 0x80 ? (int)v : -1;
}

static void read_bus(struct tri_pci *p, const char *text)
{
    unsigned second = 0, sub = 0;
    const char *s = tri_text_find(text, "secondary="), *u = tri_text_find(text, "subordinate=");
    if (s && u && sscanf(s + 10, "%x", &second) == 1 && sscanf(u + 12, "%x", &sub) == 1 &&
        second <= 255 && sub <= 255) {
        p->secondary = (int)second;
        p->subordinate = (int)sub;
        p->role = TRI_PCI_BRIDGE;
    }
}

/* One line of a block. False when it says nothing that is kept. */
static bool read_detail(struct tri_pci *p, const char *text, struct tri_source source)
{
    bool slower = false, narrower = false;
    const char *at;
    text += strspn(text, " \t");
    if ((at = tri_text_find(text, "LnkCap:")) != NULL) {
        p->cap = read_link(at, &slower, &narrower);
    } else if ((at = tri_text_find(text, "LnkSta:")) != NULL) {
        p->sta = read_link(at, &slower, &narrower);
        p->speed_down = slower;
        p->width_down = narrower;
        p->sta_source = source;
    } else if ((at = tri_text_find(text, "LnkCtl2:")) != NULL) {
        at = tri_text_find(at, "Target Link Speed:");
        p->target_gts = at ? tri__topo_gts(at + 18 + strspn(at + 18, " ")) : 0;
    } else if ((at = tri_text_find(text, "ACSCtl:")) != NULL) {
        p->acs = read_acs(at + 7);
        p->acs_source = source;
    } else if (tri_text_begins(text, "NUMA node:")) {
        long node = strtol(text + 10, NULL, 10);
        p->numa = node >= 0 && node < TRI_MAX_NUMA ? (int)node : -1;
    } else if (tri_text_begins(text, "Bus: primary=")) {
        read_bus(p, text);
    } else if (tri_text_find(text, "Express (v") || tri_text_find(text, "Express Root Port")) {
        p->root_port = tri_text_find(text, "Root Port") != NULL;
    } else {
        return false;
    }
    return true;
}

static bool is_detail(const char *text)
{
    static const char *const words[] = { "LnkCap:",  "LnkSta:", "LnkCtl2:", "ACSCtl:",   "ACSCap:",
                                         "LnkCap2:", "LnkCtl:", "LnkSta2:", "NUMA node:" };
    text += strspn(text, " \t");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (tri_text_begins(text, words[i]))
            return true;
    return false;
}

/* Lines that name no device: each LnkCap or ACSCtl that repeats opens another nameless device. */
static size_t read_nameless(struct tri__topo_text *t, size_t at)
{
    struct tri_machine *m = tri_machines_last(t->set);
    struct tri_pci *p = NULL;
    size_t i = at;
    for (; m && i < t->lines->count; i++) {
        const char *text = t->lines->line[i].body, *now = text + strspn(text, " \t");
        if (tri_text_begins(now, "--") && p) {
            p = NULL;
            continue;
        }
        if (!is_detail(text))
            break;
        struct tri_source here = tri__topo_line(m, t, i);
        bool again =
            p && ((tri_text_begins(now, "LnkCap:") && (p->cap.gts > 0 || p->sta.gts > 0)) ||
                  (tri_text_begins(now, "LnkSta:") && p->sta.gts > 0) ||
                  (tri_text_begins(now, "ACSCtl:") && p->acs >= 0));
        if (!p || again) {
            p = tri_machine_add_pci(m);
            if (!p)
                break;
            p->source = here;
        }
        read_detail(p, text, here);
    }
    t->kind = tri_text_find(t->lines->line[at].body, "ACSCtl") ? TRI_TOPO_ACS : TRI_TOPO_LSPCI;
    return i > at ? i - at : 1;
}

/* An earlier block of this bus id that the short `lspci` line may be completed by. */
static struct tri_pci *device(struct tri_machine *m, const char bdf[16])
{
    int at = tri_machine_find_pci(m, bdf);
    bool bare = at >= 0 && m->pci[at].cap.gts <= 0 && m->pci[at].sta.gts <= 0;
    struct tri_pci *p = bare ? &m->pci[at] : tri_machine_add_pci(m);
    if (p && !bare)
        tri__topo_set_bdf(p, bdf);
    return p;
}

static size_t read_block(struct tri__topo_text *t, size_t at, const char bdf[16], size_t len)
{
    struct tri_machine *m = tri_machines_last(t->set);
    struct tri_pci *p = m ? device(m, bdf) : NULL;
    size_t i = at + 1;
    if (!p) {
        t->set->lost = true;
        return 1;
    }
    p->source = tri__topo_line(m, t, at);
    read_heading(p, t->lines->line[at].body + len);
    for (; i < t->lines->count; i++) {
        const char *text = t->lines->line[i].body;
        bool inside = (*text == ' ' || *text == '\t') && text[strspn(text, " \t")];
        if (!inside && !is_detail(text))
            break;
        read_detail(p, text, tri__topo_line(m, t, i));
    }
    /* a Downstream Port's or the last block's link that ends after its capability was cut */
    if (i == t->lines->count && p->cap.gts > 0 && p->sta.gts <= 0)
        tri_machine_remark(m, TRI_REMARK_CUT, tri__topo_line(m, t, i - 1),
                           "the last lspci block is cut before its LnkSta");
    t->kind = TRI_TOPO_LSPCI;
    return i - at;
}

/* "0000:17:01.0 ... ACSCtl: 0x001d", "ACS is enabled on 17:01.0", "17:01.0 ECAP_ACS+6.w = 001d" */
static size_t read_report(struct tri__topo_text *t, size_t at)
{
    const char *text = t->lines->line[at].body;
    const char *acs = tri_text_find(text, "ACS");
    if (!acs || tri_text_find(text, "setpci -s \"$"))
        return 0;
    const char *value = tri_text_find(text, "ACSCtl");
    if (!value)
        value = tri_text_find(text, "ECAP_ACS");
    value = value ? value + strcspn(value, ":= ") : NULL;
    int bits = -1;
    if (value && !tri_text_find(text, ".w=0") && !tri_text_find(text, "setpci "))
        bits = read_acs(value);
    else if (tri_text_find(text, "ACS is enabled") || tri_text_find(text, "ACS enabled"))
        bits = TRI_ACS_SRC_VALID | TRI_ACS_REDIRECTS;
    if (bits < 0)
        return 0;
    struct tri_machine *m = tri_machines_last(t->set);
    struct tri_pci *p = m ? tri_machine_add_pci(m) : NULL;
    if (!p)
        return 0;
    struct tri_word w[32];
    size_t n = tri_words(text, w, 32);
    for (size_t i = 0; i < n && i < 32; i++) {
        char bdf[16];
        size_t len = w[i].len;
        while (len && strchr(",;:)", w[i].at[len - 1]))
            len--;
        if (len >= 7 && memchr(w[i].at, '.', len) && tri_bdf_normal(w[i].at, len, bdf)) {
            tri__topo_set_bdf(p, bdf);
            break;
        }
    }
    p->acs = bits;
    p->source = p->acs_source = tri__topo_line(m, t, at);
    t->kind = TRI_TOPO_ACS;
    return 1;
}

/* "nvidia-smi: pcie.link.gen.max = 3" and other prose are not taken. */
size_t tri__topo_read_lspci(struct tri__topo_text *t, size_t at)
{
    char bdf[16];
    const char *text = t->lines->line[at].body;
    size_t len = heading(text, bdf);
    /* a bare bus id is a heading only when a detail follows, else it is any number with a dot */
    const char *rest = text + len + strspn(text + len, " \t");
    bool named = len && class_of(rest);
    bool bare = len && at + 1 < t->lines->count && is_detail(t->lines->line[at + 1].body);
    if (named || bare)
        return read_block(t, at, bdf, len);
    if (is_detail(t->lines->line[at].body))
        return read_nameless(t, at);
    return read_report(t, at);
}
