/*
 * What talking costs in a group of ranks: latency of a small all-reduce and bus bandwidth of a
 * large one, by the slowest wire the group needs. Constants: data/engines.json "paths".
 */
#include "plan/plan_priv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double worst_in(const struct tri_fleet *f, const int *cards, int n, const int *more, int m)
{
    double worst = 1e9;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            const struct tri_fleet_pair *p = &f->pair[cards[i] * f->per_node + more[j]];
            double gbs = p->wire == TRI_WIRE_PCIE_HOST ? p->gbs * 0.3 : p->gbs;
            worst = gbs < worst ? gbs : worst;
        }
    return worst;
}

/*
 * Doubling: groups of one card are joined in pairs, best worst-link first, until they hold `ranks`
 * cards. Equal links are taken in card order. With ranks that are no power of two the rest stays
 * in card order.
 */
void tri__group_cards(const struct tri_fleet *fleet, int ranks, int *order)
{
    int n = fleet->per_node, size = 1;
    for (int i = 0; i < n; i++)
        order[i] = i;
    while (fleet->pair && size * 2 <= ranks && n % (size * 2) == 0) {
        int groups = n / size, next[TRI_MAX_GPUS], taken[TRI_MAX_GPUS] = { 0 }, at = 0;
        while (at < n) {
            double best = -1;
            int a = -1, b = -1;
            for (int i = 0; i < groups; i++)
                for (int j = i + 1; j < groups; j++) {
                    double gbs = taken[i] || taken[j] ? -1
                                                      : worst_in(fleet, order + i * size, size,
                                                                 order + j * size, size);
                    if (gbs > best) {
                        best = gbs;
                        a = i;
                        b = j;
                    }
                }
            if (a < 0)
                break;
            taken[a] = taken[b] = 1;
            memcpy(next + at, order + a * size, (size_t)size * sizeof *order);
            memcpy(next + at + size, order + b * size, (size_t)size * sizeof *order);
            at += 2 * size;
        }
        memcpy(order, next, (size_t)n * sizeof *order);
        size *= 2;
    }
}

/* The slowest pair inside the worst-placed group of a captured machine. */
static const struct tri_fleet_pair *slowest_pair(const struct tri_fleet *f, int ranks)
{
    int order[TRI_MAX_GPUS] = { 0 };
    const struct tri_fleet_pair *slowest = NULL;
    double worst = 1e9;
    tri__group_cards(f, ranks, order);
    for (int g = 0; g + ranks <= f->per_node; g += ranks)
        for (int i = 0; i < ranks; i++)
            for (int j = 0; j < ranks; j++) {
                const struct tri_fleet_pair *p =
                    &f->pair[order[g + i] * f->per_node + order[g + j]];
                double gbs = p->wire == TRI_WIRE_PCIE_HOST ? p->gbs * 0.3 : p->gbs;
                if (i != j && gbs < worst) {
                    worst = gbs;
                    slowest = p;
                }
            }
    return slowest;
}

static void set(struct tri__group *out, enum tri_wire wire, double pair, double bus,
                const struct tri__profiles *profiles, int64_t ranks)
{
    const struct tri_wire_cost *cost = tri__wire_cost(profiles, wire);
    out->wire = wire;
    out->reduce_us = cost->base_us + cost->per_rank_us * (double)(ranks < 16 ? ranks : 16);
    out->pair_gbs = pair;
    out->bus_gbs = bus > 0 ? bus : pair * cost->share;
    snprintf(out->path, sizeof out->path, "%s", tri_wire_name(wire));
}

/* A ring over PCIe shares host links: what was measured for 8 cards shrinks with their number. */
static double pcie_bus(const struct tri_device *d, const struct tri_wire_cost *cost, int64_t ranks)
{
    double pair = d->pcie_gbs > 0 ? d->pcie_gbs : d->link_gbs;
    double bus = pair * cost->share * 2 / (double)(ranks < 2 ? 2 : ranks);
    return d->bus_gbs > 0 && ranks >= 8 ? d->bus_gbs : bus;
}

void tri__group_cost(struct tri__group *out, const struct tri_fleet *fleet,
                     const struct tri__profiles *profiles, int64_t ranks)
{
    const struct tri_device *d = &fleet->device;
    memset(out, 0, sizeof *out);
    if (ranks <= 1) {
        snprintf(out->path, sizeof out->path, "self");
        out->bus_gbs = out->pair_gbs = 1e6;
        return;
    }
    if (ranks <= fleet->per_node && fleet->pair) {
        const struct tri_fleet_pair *p = slowest_pair(fleet, (int)ranks);
        const struct tri_wire_cost *cost = tri__wire_cost(profiles, p->wire);
        bool pcie = p->wire == TRI_WIRE_PCIE_P2P || p->wire == TRI_WIRE_PCIE_HOST;
        double bus = p->gbs * cost->share * (pcie ? 2.0 / (double)ranks : 1);
        set(out, p->wire, p->gbs, bus, profiles, ranks);
        if (!strcmp(p->path, "NV") || !strcmp(p->path, "XGMI"))
            snprintf(out->path, sizeof out->path, "%s", p->path);
        else
            snprintf(out->path, sizeof out->path, "%s%s", p->path,
                     p->wire == TRI_WIRE_PCIE_HOST ? ", no P2P" : "");
        return;
    }
    if (ranks <= fleet->domain) {
        const struct tri_wire_cost *cost = tri__wire_cost(profiles, fleet->inside);
        bool pcie = fleet->inside == TRI_WIRE_PCIE_P2P || fleet->inside == TRI_WIRE_PCIE_HOST;
        double mesh = d->pair_gbs < d->link_gbs && d->domain > 1
                          ? d->pair_gbs * (double)(ranks - 1)
                          : d->link_gbs; /* a mesh gives a pair one link, all of them seven */
        double bus =
            pcie ? pcie_bus(d, cost, ranks)
                 : (d->bus_gbs > 0 ? d->bus_gbs : d->link_gbs * cost->share) * (mesh / d->link_gbs);
        set(out, fleet->inside, d->pair_gbs, bus, profiles, ranks);
        return;
    }
    if (ranks <= fleet->per_node) {
        const struct tri_wire_cost *cost = tri__wire_cost(profiles, fleet->across);
        set(out, fleet->across, d->pcie_gbs, pcie_bus(d, cost, ranks), profiles, ranks);
        return;
    }
    enum tri_wire wire = d->kind == TRI_DEVICE_GPU ? TRI_WIRE_IB : TRI_WIRE_ETHERNET;
    double nic = d->nic_gbs > 0 ? d->nic_gbs : 12.5;
    set(out, wire, nic, 0, profiles, ranks);
    if (fleet->domain > 1 || fleet->pair) { /* inside first, then across: both latencies */
        struct tri__group inner;
        tri__group_cost(&inner, fleet, profiles, fleet->pair ? fleet->per_node : fleet->domain);
        out->reduce_us += inner.reduce_us;
        /* a hierarchical ring sends 1/inner of the bytes through each card's adapter */
        double local = (double)(fleet->pair ? fleet->per_node : fleet->domain);
        double both = 1 / (1 / inner.bus_gbs + 1 / (out->bus_gbs * local));
        out->bus_gbs = both;
    }
}
