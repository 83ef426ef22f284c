/*
 * Which processes of an NCCL log belong together. A file, or several files, may hold the logs of
 * more than one job; judged as one, a job without P2P would hide behind a sound one. Processes that
 * joined the same communicator are one job (NCCL 2.17 and later print its id). Where ids are
 * missing, a process that speaks for a rank which is taken, in another file or after the others
 * have fallen silent, begins a new one. When in doubt processes stay together.
 */
#include <string.h>
#include "doctor/doctor_priv.h"

static bool shares_comm(const struct tri__process *a, const struct tri__process *b)
{
    for (size_t i = 0; i < a->comms; i++)
        for (size_t k = 0; k < b->comms; k++)
            if (a->comm[i] == b->comm[k])
                return true;
    return false;
}

static bool same_rank(const struct tri__process *a, const struct tri__process *b)
{
    for (size_t i = 0; i < TRI__RANK_WORDS; i++)
        if (a->rank[i] & b->rank[i])
            return true;
    return false;
}

/* Whether `b` speaks only after `a` did, or elsewhere. */
static bool apart(const struct tri__process *a, const struct tri__process *b)
{
    return a->first.text != b->first.text || a->last.line < b->first.line ||
           b->last.line < a->first.line;
}

static void merge(struct tri__nccl_log *log, int from, int to)
{
    for (size_t i = 0; i < log->processes; i++)
        if (log->process[i].job == from)
            log->process[i].job = to;
}

/* The latest job that the process can be of, by ranks; -1 when it must be another. */
static int job_by_rank(const struct tri__nccl_log *log, size_t at)
{
    const struct tri__process *p = &log->process[at];
    int job = at ? log->process[at - 1].job : -1;
    for (size_t i = 0; i < at; i++) {
        const struct tri__process *q = &log->process[i];
        bool ids = p->comms && q->comms; /* both say their communicators: those decide */
        if (q->job == job && (ids || (same_rank(q, p) && apart(q, p))))
            return -1;
    }
    return job;
}

int tri__doctor_nccl_jobs(struct tri__nccl_log *log)
{
    int jobs = 0;
    for (size_t i = 0; i < log->processes; i++) {
        struct tri__process *p = &log->process[i];
        p->job = -1;
        for (size_t k = 0; k < i; k++) {
            int other = log->process[k].job;
            if (!shares_comm(p, &log->process[k]) || other == p->job)
                continue;
            if (p->job < 0)
                p->job = other;
            else
                merge(log, other, p->job);
        }
        if (p->job < 0)
            p->job = job_by_rank(log, i);
        if (p->job < 0)
            p->job = jobs++;
    }
    int used = 0; /* numbers without gaps, which merging left */
    for (int j = 0; j < jobs; j++) {
        bool any = false;
        for (size_t i = 0; i < log->processes; i++)
            any |= log->process[i].job == j;
        if (any)
            merge(log, j, used++);
    }
    return used;
}

static void first_of(struct tri__spot *to, struct tri__spot from)
{
    if (to->text < 0)
        *to = from;
}

static void add(struct tri__nccl *to, const struct tri__nccl *from)
{
    for (int t = 0; t < TRI__VIA_COUNT; t++) {
        for (size_t i = 0; i < 3 && i < from->via[t]; i++)
            if (to->via[t] + i < 3)
                to->via_spot[t][to->via[t] + i] = from->via_spot[t][i];
        to->via[t] += from->via[t];
    }
    to->lines += from->lines;
    to->nranks = from->nranks > to->nranks ? from->nranks : to->nranks;
    to->nnodes = from->nnodes > to->nnodes ? from->nnodes : to->nnodes;
    to->local_ranks = from->local_ranks > to->local_ranks ? from->local_ranks : to->local_ranks;
    if (to->max_bw <= 0) {
        to->max_bw = from->max_bw;
        to->max_bw_spot = from->max_bw_spot;
    }
    first_of(&to->network_socket, from->network_socket);
    first_of(&to->network_ib, from->network_ib);
    first_of(&to->no_ib, from->no_ib);
    first_of(&to->p2p_off, from->p2p_off);
    first_of(&to->gdr_on, from->gdr_on);
    first_of(&to->gdr_off, from->gdr_off);
    first_of(&to->tcp_plugin, from->tcp_plugin);
}

void tri__doctor_nccl_join(const struct tri__nccl_log *log, int job, struct tri__nccl *out)
{
    static const struct tri__spot none = { -1, 0 };
    *out = (struct tri__nccl){ .nranks = -1, .nnodes = -1, .local_ranks = -1 };
    out->max_bw_spot = out->network_socket = out->no_ib = out->network_ib = out->p2p_off = none;
    out->gdr_on = out->gdr_off = out->tcp_plugin = none;
    for (size_t i = 0; i < log->processes; i++) {
        const struct tri__process *p = &log->process[i];
        if (p->job != job)
            continue;
        add(out, &p->said);
        bool seen = !p->host[0];
        for (size_t k = 0; k < i && !seen; k++)
            seen = log->process[k].job == job && !strcmp(log->process[k].host, p->host);
        out->hosts += !seen;
    }
    if (out->tcp_plugin.text >= 0) { /* what looks like RDMA is TCP below the plugin */
        if (!out->via[TRI__VIA_SOCKET])
            memcpy(out->via_spot[TRI__VIA_SOCKET], out->via_spot[TRI__VIA_NET],
                   sizeof out->via_spot[TRI__VIA_NET]);
        out->via[TRI__VIA_SOCKET] += out->via[TRI__VIA_NET];
        out->via[TRI__VIA_NET] = 0;
    }
}
