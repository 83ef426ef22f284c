/*
 * ACS: bits that send peer-to-peer requests up to the root complex (PCI Express Base 7.7.8). Only a
 * bridge above two peers matters: GPUs, or a GPU and an RDMA adapter. A redirecting bridge with
 * nothing of the kind below (management switches) is no fault. Where the text does not show what
 * hangs below, the finding says so.
 */
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "doctor/doctor_priv.h"

static bool is_peer(const struct tri_pci *p)
{
    return p->role == TRI_PCI_GPU ||
           (p->role == TRI_PCI_NIC && (p->vendor == 0x15b3 || p->class_code >> 8 == 0x0207));
}

/* How many peers are below each device, by parents. tri_free. */
static uint16_t *count_peers(const struct tri_machine *m)
{
    uint16_t *below = tri_calloc(m->pcis + 1, sizeof *below);
    for (size_t i = 0; i < m->pcis && below; i++) {
        int up = m->pci[i].parent;
        for (int steps = 0; is_peer(&m->pci[i]) && up >= 0 && steps < 64; steps++) {
            below[up]++;
            up = m->pci[up].parent;
        }
    }
    return below;
}

static const char *bits_text(int acs, char out[64])
{
    snprintf(out, 64, "%s%s%s", acs & TRI_ACS_REQ_REDIR ? "ReqRedir " : "",
             acs & TRI_ACS_CMPLT_REDIR ? "CmpltRedir " : "",
             acs & TRI_ACS_UPSTREAM ? "UpstreamFwd" : "");
    return out;
}

struct acs_tally {
    size_t told, harmful, harmless, unknown, peers;
    struct tri_source first; /* reading of a port's bits */
};

/* Whether a redirecting port matters: 1 yes, 0 no, -1 the text does not show what hangs below. */
static int matters(const struct tri_machine *m, size_t i, size_t peers, size_t below)
{
    const struct tri_pci *p = &m->pci[i];
    if (!p->bdf[0] || p->role == TRI_PCI_UNKNOWN)
        return -1;
    if (p->role != TRI_PCI_BRIDGE)
        return 0;
    if (p->secondary < 0 && !below)
        return peers ? -1 : 0;
    if (!peers)
        return -1; /* a listing of bridges only */
    return peers >= 2 && below > 0;
}

static void tally(const struct tri_machine *m, const uint16_t *below, struct acs_tally *t)
{
    for (size_t i = 0; i < m->pcis; i++)
        t->peers += is_peer(&m->pci[i]);
    for (size_t i = 0; i < m->pcis; i++) {
        const struct tri_pci *p = &m->pci[i];
        if (p->acs < 0)
            continue;
        t->told++;
        t->first = t->first.file < 0 ? p->acs_source : t->first;
        if (!(p->acs & TRI_ACS_REDIRECTS))
            continue;
        int how = matters(m, i, t->peers, below[i]);
        t->harmless += how == 0;
        t->harmful += how > 0;
        t->unknown += how < 0;
    }
}

static void find_redirect(struct tri_doctor *d, const struct tri_machine *m, const uint16_t *below,
                          const struct acs_tally *t)
{
    bool known = t->harmful > 0;
    struct tri_finding *f = tri__doctor_find(
        d, "acs_redirect", TRI_SEVERITY_WARN,
        known ? "ACS sends peer traffic of GPUs up to the root complex (%zu ports)"
              : "ACS redirects on %zu ports: check whether GPUs or adapters are below",
        known ? t->harmful : t->unknown);
    char bits[64] = "";
    for (size_t i = 0; i < m->pcis; i++) {
        const struct tri_pci *p = &m->pci[i];
        if (p->acs < 0 || !(p->acs & TRI_ACS_REDIRECTS) ||
            (known && matters(m, i, t->peers, below[i]) <= 0))
            continue;
        bits_text(p->acs, bits);
        tri__doctor_cite_fact(d, f, m, p->acs_source);
        if (p->bdf[0])
            tri__doctor_cure(f, "sudo setpci -s %s ECAP_ACS+0x6.w=0000", p->bdf);
    }
    tri__doctor_why(f,
                    "%s: P2P gets slower than through the host, or all-reduce hangs. Guests of a "
                    "VM need ACS: there leave it and enable ATS on the adapter",
                    bits);
    tri__doctor_cost(d, f, 10, 24);
    if (!f->cures)
        tri__doctor_cure(f, "sudo lspci -vvv > lspci.txt && trireme doctor lspci.txt");
    tri__doctor_cure(f, "# or switch ACS off in the BIOS; the setting is lost at each boot");
}

void tri__doctor_rules_acs(struct tri_doctor *d, const struct tri_machine *m)
{
    struct acs_tally t = { .first.file = -1 };
    uint16_t *below = count_peers(m);
    if (below)
        tally(m, below, &t);
    if (t.told && !t.harmful && !t.unknown) {
        struct tri_finding *f = tri__doctor_find(
            d, "acs_off", TRI_SEVERITY_OK,
            t.harmless ? "ACS redirects only where no pair of GPUs or adapters is below"
                       : "ACS redirects nowhere");
        tri__doctor_cite_fact(d, f, m, t.first);
    } else if (t.told) {
        find_redirect(d, m, below, &t);
    }
    tri_free(below);
}
