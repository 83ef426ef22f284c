/*
 * Rules over the ports of RDMA adapters. An InfiniBand port that is not active is a fault when
 * others are: its rail is lost. The second port of an Ethernet adapter is often left empty. Ports
 * of one machine should run at one rate.
 */
#include <stdio.h>
#include <string.h>
#include "doctor/doctor_priv.h"

static void judge_state(struct tri_doctor *d, const struct tri__port *p, size_t active)
{
    bool waits = tri_text_begins(p->state, "Init");
    enum tri_severity severity = !active       ? TRI_SEVERITY_FAIL
                                 : p->ethernet ? TRI_SEVERITY_INFO
                                               : TRI_SEVERITY_WARN;
    struct tri_finding *f =
        tri__doctor_find(d, "nic_port", severity, "port of %s is %s, %s", p->name, p->state,
                         active ? "others are active" : "and no other port is active");
    tri__doctor_cite(d, f, p->spot);
    tri__doctor_why(f, waits ? "the link is up and no subnet manager has configured it"
                             : "no cable, a dead transceiver or a switch port that is off");
    tri__doctor_cost(d, f, 0, p->gbit >= 100 ? p->gbit / 8 : 0);
    tri__doctor_cure(f,
                     waits ? "sudo systemctl status opensm   # or the fabric's own manager"
                           : "ibstat %s; sudo mlxlink -d %s   # cable, transceiver, switch port",
                     p->name, p->name);
}

static void judge_rates(struct tri_doctor *d)
{
    double most = 0;
    for (size_t i = 0; i < d->ports; i++)
        if (d->port[i].active == 1 && d->port[i].gbit > most)
            most = d->port[i].gbit;
    size_t fast = 0;
    for (size_t i = 0; i < d->ports; i++)
        fast += d->port[i].active == 1 && d->port[i].gbit >= most;
    for (size_t i = 0; i < d->ports && fast > 1; i++) {
        const struct tri__port *p = &d->port[i];
        /* storage and management ports are slower on purpose, and Ethernet */
        if (p->active != 1 || p->gbit <= 0 || p->gbit > most * 0.75 || p->ethernet)
            continue;
        struct tri_finding *f = tri__doctor_find(d, "nic_port", TRI_SEVERITY_WARN,
                                                 "port of %s runs at %.0f Gb/s, others at %.0f",
                                                 p->name, p->gbit, most);
        tri__doctor_cite(d, f, p->spot);
        tri__doctor_cost(d, f, p->gbit / 8, most / 8);
        tri__doctor_cure(
            f, "sudo mlxlink -d %s   # speed, lanes, errors; then cable and switch port", p->name);
    }
}

void tri__doctor_rules_ports(struct tri_doctor *d)
{
    size_t active = 0, said = 0, before = d->findings;
    for (size_t i = 0; i < d->ports; i++) {
        active += d->port[i].active == 1;
        said += d->port[i].active >= 0;
    }
    if (!said)
        return;
    for (size_t i = 0; i < d->ports; i++)
        if (d->port[i].active == 0)
            judge_state(d, &d->port[i], active);
    judge_rates(d);
    if (d->findings > before)
        return;
    struct tri_finding *f =
        tri__doctor_find(d, "nic_port", TRI_SEVERITY_OK, "%zu adapter ports are active", active);
    tri__doctor_cite(d, f, d->port[0].spot);
}
