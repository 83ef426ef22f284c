/*
 * Reads NCCL and RCCL logs at INFO: which transport every channel took, between how many hosts,
 * over which network, what the environment set, what NCCL itself warned of. Lines may carry any
 * launcher's prefix; only what stands after "NCCL INFO" / "NCCL WARN" is judged.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "doctor/doctor_priv.h"

static void keep(struct tri__spot *list, size_t *count, struct tri__spot at)
{
    if (*count < TRI__EVENTS)
        list[(*count)++] = at;
}

/* "HOST:1936469:1936517 [4] NCCL INFO": the word before the bracket names the host. */
static void read_host(struct tri__nccl *n, const char *text, const char *mark)
{
    const char *p = mark;
    while (p > text && (p[-1] == ' ' || p[-1] == ']' || isdigit((unsigned char)p[-1])))
        p--;
    if (p > text && p[-1] == '[')
        p--;
    while (p > text && p[-1] == ' ')
        p--;
    const char *end = p;
    while (p > text && p[-1] != ' ' && p[-1] != ')' && p[-1] != '>')
        p--;
    const char *colon = memchr(p, ':', (size_t)(end - p));
    if (!colon || colon == p || !isdigit((unsigned char)colon[1]) || colon - p >= 64)
        return;
    for (size_t i = 0; i < n->hosts; i++)
        if (!strncmp(n->host[i], p, (size_t)(colon - p)) && !n->host[i][colon - p])
            return;
    if (n->hosts < TRI__HOSTS) {
        memcpy(n->host[n->hosts], p, (size_t)(colon - p));
        n->host[n->hosts++][colon - p] = 0;
    }
}

static enum tri__transport transport(const char *via)
{
    if (tri_text_begins(via, "P2P/indirect"))
        return TRI__VIA_INDIRECT;
    if (tri_text_begins(via, "P2P") || tri_text_begins(via, "direct pointer"))
        return TRI__VIA_P2P;
    if (tri_text_begins(via, "SHM") || tri_text_begins(via, "direct shared memory"))
        return TRI__VIA_SHM;
    if (tri_text_begins(via, "NVLS") || tri_text_begins(via, "MNNVL"))
        return TRI__VIA_NVLS;
    if (tri_text_begins(via, "NET/Socket"))
        return TRI__VIA_SOCKET;
    if (tri_text_begins(via, "NET") || tri_text_begins(via, "COLLNET") ||
        tri_text_begins(via, "COLL"))
        return tri_text_find(via, "GDRDMA") || tri_text_find(via, "TCPX") ||
                       tri_text_find(via, "FasTrak")
                   ? TRI__VIA_NET_GDR
                   : TRI__VIA_NET;
    return TRI__VIA_COUNT;
}

static void read_channel(struct tri_doctor *d, const char *info, struct tri__spot at)
{
    struct tri__nccl *n = &d->nccl;
    const char *via = strstr(info, " via ");
    if (!via || !strstr(info, "->"))
        return;
    via += 5;
    enum tri__transport t = transport(via);
    if (t == TRI__VIA_COUNT) { /* "via P2" at the end of a cut file */
        if (strlen(via) < 4 && n->cut.text < 0)
            n->cut = at;
        return;
    }
    if (n->via[t] < 3)
        n->via_spot[t][n->via[t]] = at;
    n->via[t]++;
}

static void read_counts(struct tri__nccl *n, const char *info)
{
    static const struct {
        const char *key;
        size_t offset;
    } keys[] = { { " nranks ", offsetof(struct tri__nccl, nranks) },
                 { " nNodes ", offsetof(struct tri__nccl, nnodes) },
                 { " localRanks ", offsetof(struct tri__nccl, local_ranks) } };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *at = tri_text_find(info, keys[i].key);
        long v = at ? strtol(at + strlen(keys[i].key), NULL, 10) : -1;
        long *to = (long *)((char *)n + keys[i].offset);
        if (v > *to && v < 1000000)
            *to = v;
    }
}

static void read_network(struct tri__nccl *n, const char *info, struct tri__spot at)
{
    const char *using = tri_text_find(info, "Using network ");
    if (using && tri_text_begins(using + 14, "Socket") && n->network_socket.text < 0)
        n->network_socket = at;
    if (using && !tri_text_begins(using + 14, "Socket") && n->network_ib.text < 0)
        n->network_ib = at;
    if (tri_text_find(info, "NET/IB : No device found") && n->no_ib.text < 0)
        n->no_ib = at;
    if (tri_text_find(info, "NET/IB : Using") && n->network_ib.text < 0)
        n->network_ib = at;
    bool on = tri_text_find(info, "GPU Direct RDMA Enabled") || tri_text_find(info, " GDR 1");
    bool off = tri_text_find(info, "GPU Direct RDMA Disabled") || tri_text_find(info, " GDR 0");
    if (on && n->gdr_on.text < 0)
        n->gdr_on = at;
    if (off && n->gdr_off.text < 0)
        n->gdr_off = at;
    const char *system = tri_text_find(info, "=== System : max");
    const char *number = system ? strpbrk(system, "0123456789") : NULL;
    if (number && n->max_bw <= 0) { /* maxBw; before NCCL 2.14 maxWidth */
        n->max_bw = strtod(number, NULL);
        n->max_bw_spot = at;
    }
}

static bool is_refusal(const char *info)
{
    return tri_text_find(info, "P2P is disabled between") ||
           tri_text_find(info, "Could not enable P2P between");
}

/* Lines "NCCL_X=1" of an environment listing, and "export NCCL_X=1". */
static size_t read_environment(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    static const char *const names[] = { "NCCL_", "RCCL_", "CUDA_VISIBLE_DEVICES",
                                         "HIP_VISIBLE_DEVICES", "HSA_" };
    text += strspn(text, " \t");
    static const char *const before[] = { "export ", "-e ", "-x ", "--env ", "- ", "ENV " };
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++)
        if (tri_text_begins(text, before[i]))
            text += strlen(before[i]);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
        bool value = text[len] == '=' || (text[len] == ':' && text[len + 1] == ' '); /* YAML */
        if (tri_text_begins(text, names[i]) && value) {
            keep(d->nccl.env, &d->nccl.envs, at);
            return 1;
        }
    }
    return 0;
}

size_t tri__doctor_read_nccl(struct tri_doctor *d, struct tri__spot at)
{
    struct tri__nccl *n = &d->nccl;
    const char *text = tri__doctor_line(d, at);
    const char *info = strstr(text, "NCCL INFO"), *warn = strstr(text, "NCCL WARN");
    const char *mark = info ? info : warn;
    if (!mark)
        return read_environment(d, at, text);
    n->lines++;
    read_host(n, text, mark);
    mark += 9 + strspn(mark + 9, " ");
    read_channel(d, mark, at);
    read_counts(n, mark);
    read_network(n, mark, at);
    if (is_refusal(mark) && n->p2p_off.text < 0)
        n->p2p_off = at;
    if (tri_text_find(mark, " set by environment to "))
        keep(n->env, &n->envs, at);
    if (warn)
        keep(n->warn, &n->warns, at);
    d->kind_seen |= TRI__KIND_NCCL;
    return 1;
}
