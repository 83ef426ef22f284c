/*
 * Reads NCCL and RCCL logs at INFO: which transport every channel took, between how many hosts,
 * over which network, what the environment set, what NCCL itself warned of. Lines may carry any
 * launcher's prefix; only what stands after "NCCL INFO" / "NCCL WARN" is judged.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "doctor/doctor_priv.h"

static void keep(struct tri__spot *list, size_t *count, struct tri__spot at)
{
    if (*count < TRI__EVENTS)
        list[(*count)++] = at;
}

static void once(struct tri__spot *to, struct tri__spot at)
{
    if (to->text < 0)
        *to = at;
}

static void blank_process(struct tri__process *p, const char *host, long pid)
{
    static const struct tri__spot none = { -1, 0 };
    snprintf(p->host, sizeof p->host, "%s", host);
    p->pid = pid;
    struct tri__nccl *n = &p->said;
    n->nranks = n->nnodes = n->local_ranks = -1;
    n->max_bw_spot = n->network_socket = n->no_ib = n->network_ib = n->p2p_off = none;
    n->gdr_on = n->gdr_off = n->tcp_plugin = none;
    p->first = none;
}

/* Its entry of the hash table: the process, or where it would stand. Half of the table is free. */
static uint16_t *slot_of(const struct tri__nccl_log *log, const char *host, long pid)
{
    uint64_t h = (uint64_t)pid * 0x9e3779b97f4a7c15u;
    for (const char *p = host; *p; p++)
        h = (h ^ (unsigned char)*p) * 1099511628211u;
    for (h ^= h >> 32;; h++) {
        uint16_t *slot = &log->slot[h % (2 * TRI__PROCESSES)];
        const struct tri__process *p = *slot ? &log->process[*slot - 1] : NULL;
        if (!p || (p->pid == pid && !strcmp(p->host, host)))
            return slot;
    }
}

static struct tri__process *open_process(struct tri__nccl_log *log, const char *host, long pid)
{
    if (!log->process) {
        log->process = tri_calloc(TRI__PROCESSES, sizeof *log->process);
        log->slot = tri_calloc(2 * TRI__PROCESSES, sizeof *log->slot);
    }
    if (!log->process || !log->slot)
        return NULL;
    uint16_t *slot = slot_of(log, host, pid);
    if (!*slot && log->processes == TRI__PROCESSES)
        return &log->process[TRI__PROCESSES - 1];
    if (!*slot) {
        blank_process(&log->process[log->processes], host, pid);
        *slot = (uint16_t)++log->processes;
    }
    return &log->process[*slot - 1];
}

/* "HOST:1936469:1936517": the length of HOST; 0 when the word is no such name. */
static size_t host_length(const char *word, const char *end)
{
    const char *colon = memchr(word, ':', (size_t)(end - word));
    if (!colon || colon == word || colon - word >= 64 || !isdigit((unsigned char)colon[1]))
        return 0;
    const char *p = colon + 1;
    while (p < end && isdigit((unsigned char)*p))
        p++;
    return p < end && *p == ':' && isdigit((unsigned char)p[1]) ? (size_t)(colon - word) : 0;
}

/*
 * "HOST:1936469:1936517 [4] NCCL INFO": the word before the bracket names host and process. A
 * warning has the place in NCCL's source between them ("HOST:1:2 [4] misc/ibvwrap.cc:63 NCCL
 * WARN").
 */
static struct tri__process *process_of(struct tri__nccl_log *log, const char *text,
                                       const char *mark)
{
    char host[64] = "";
    const char *end = mark;
    for (int words = 0; words < 4 && end > text; words++) {
        while (end > text && end[-1] == ' ')
            end--;
        const char *p = end;
        while (p > text && p[-1] != ' ' && p[-1] != ')' && p[-1] != '>')
            p--;
        size_t length = host_length(p, end);
        if (length) {
            memcpy(host, p, length);
            return open_process(log, host, strtol(p + length + 1, NULL, 10));
        }
        end = p;
    }
    return open_process(log, host, -1);
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

/* "Channel 00/0 : 0[1] -> 3[4] [receive] via": the rank whose process writes this line. */
static long rank_of_channel(const char *info, const char *arrow)
{
    const char *colon = strstr(info, " : ");
    const char *rank = strstr(arrow, "[receive]") ? arrow + 2 : colon ? colon + 3 : NULL;
    if (!rank || (rank < arrow && colon > arrow))
        return -1;
    rank += strspn(rank, " ");
    return isdigit((unsigned char)*rank) ? strtol(rank, NULL, 10) : -1;
}

static void add_rank(struct tri__process *p, long rank)
{
    if (rank >= 0 && rank < TRI__RANK_WORDS * 64)
        p->rank[rank / 64] |= 1ull << rank % 64;
}

static void read_channel(struct tri_doctor *d, struct tri__process *p, const char *info,
                         struct tri__spot at)
{
    struct tri__nccl *n = &p->said;
    const char *via = strstr(info, " via "), *arrow = strstr(info, "->");
    if (!via || !arrow)
        return;
    via += 5;
    enum tri__transport t = transport(via);
    if (t == TRI__VIA_COUNT) { /* "via P2" at the end of a cut file */
        if (strlen(via) < 4)
            once(&d->nccl.cut, at);
        return;
    }
    if (n->via[t] < 3)
        n->via_spot[t][n->via[t]] = at;
    n->via[t]++;
    add_rank(p, rank_of_channel(info, arrow));
}

static uint64_t hash_word(const char *text)
{
    uint64_t h = 1469598103934665603ull; /* FNV-1a */
    for (; isalnum((unsigned char)*text); text++)
        h = (h ^ (unsigned char)*text) * 1099511628211ull;
    return h;
}

/* "comm 0x.. rank 0 nranks 8 ... commId 0x.. - Init START", "nNodes 2 localRanks 8" */
static void read_counts(struct tri__process *p, const char *info)
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
        long *to = (long *)((char *)&p->said + keys[i].offset);
        if (v > *to && v < 1000000)
            *to = v;
    }
    const char *rank = strstr(info, " rank "), *comm = strstr(info, "commId ");
    if (rank && strstr(info, " nranks ") && isdigit((unsigned char)rank[6]))
        add_rank(p, strtol(rank + 6, NULL, 10));
    uint64_t id = comm ? hash_word(comm + 7) : 0;
    for (size_t i = 0; i < p->comms && id; i++)
        id = p->comm[i] == id ? 0 : id;
    if (id && p->comms < TRI__COMMS)
        p->comm[p->comms++] = id;
}

static void read_network(struct tri__nccl *n, const char *info, struct tri__spot at)
{
    const char *using = tri_text_find(info, "Using network ");
    if (using)
        once(tri_text_begins(using + 14, "Socket") ? &n->network_socket : &n->network_ib, at);
    if (tri_text_find(info, "NET/IB : No device found"))
        once(&n->no_ib, at);
    if (tri_text_find(info, "NET/IB : Using"))
        once(&n->network_ib, at);
    const char *provider = tri_text_find(info, "Selected Provider is ");
    if (provider &&
        (tri_text_begins(provider + 21, "tcp") || tri_text_begins(provider + 21, "sockets") ||
         tri_text_begins(provider + 21, "udp")))
        once(&n->tcp_plugin, at);
    if (tri_text_find(info, "GPU Direct RDMA Enabled") || tri_text_find(info, " GDR 1"))
        once(&n->gdr_on, at);
    if (tri_text_find(info, "GPU Direct RDMA Disabled") || tri_text_find(info, " GDR 0"))
        once(&n->gdr_off, at);
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

/* What stands once in a log. */
static void read_other(struct tri_doctor *d, struct tri__process *p, const char *info,
                       struct tri__spot at)
{
    read_network(&p->said, info, at);
    if (is_refusal(info))
        once(&p->said.p2p_off, at);
    if (tri_text_find(info, " set by environment to "))
        keep(d->nccl.env, &d->nccl.envs, at);
}

static bool is_variable(const char *text)
{
    static const char *const names[] = { "NCCL_", "RCCL_", "CUDA_VISIBLE_DEVICES",
                                         "HIP_VISIBLE_DEVICES", "HSA_" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (tri_text_begins(text, names[i]))
            return true;
    return false;
}

/* "docker run ... -e NCCL_X=1 ...", "mpirun -x NCCL_X=1 ...": a command; the rest of the line may
 * say more, so it is not taken. */
static bool in_command(const char *text)
{
    static const char *const flags[] = { " -e ", " -x ", " --env ", " --env=" };
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        for (const char *p = text; (p = strstr(p, flags[i])) != NULL; p++) {
            const char *name = p + strlen(flags[i]);
            name += strspn(name, "\"' ");
            if (is_variable(name) && strchr(name, '='))
                return true;
        }
    return false;
}

/* Lines "NCCL_X=1" of an environment listing, "export NCCL_X=1", YAML's "- name: NCCL_X". */
static size_t read_environment(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    static const char *const before[] = { "export ", "-e ", "-x ", "--env ", "- ", "ENV " };
    text += strspn(text, " \t");
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++)
        if (tri_text_begins(text, before[i]))
            text += strlen(before[i]);
    bool yaml = tri_text_begins(text, "name: ");
    text += yaml ? 6 + strspn(text + 6, " \"'") : 0;
    size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    bool value = text[len] == '=' || (text[len] == ':' && text[len + 1] == ' ');
    if (is_variable(text) && (value || yaml)) {
        keep(d->nccl.env, &d->nccl.envs, at);
        return 1;
    }
    if (in_command(text)) {
        keep(d->nccl.env, &d->nccl.envs, at);
        d->kinds++;
    }
    return 0;
}

void tri__doctor_words_nccl(struct tri_sieve *sieve)
{
    tri_sieve_words(sieve, TRI__HIT_NCCL, "NCCL|_VISIBLE_DEVICES|HSA_");
    tri_sieve_words(sieve, TRI__HIT_NCCL_CHANNEL, " via ");
    tri_sieve_words(sieve, TRI__HIT_NCCL_COUNTS, " nranks | nNodes | localRanks |commId ");
    tri_sieve_words(sieve, TRI__HIT_NCCL_OTHER,
                    "Using network|NET/IB :|Selected Provider is|GPU Direct RDMA| GDR |"
                    "=== System : max|P2P is disabled|Could not enable P2P|set by environment");
}

size_t tri__doctor_read_nccl(struct tri_doctor *d, struct tri__spot at)
{
    struct tri__nccl_log *log = &d->nccl;
    const char *text = tri__doctor_line(d, at);
    const char *info = strstr(text, "NCCL INFO"), *warn = strstr(text, "NCCL WARN");
    const char *mark = info ? info : warn;
    if (!mark)
        return read_environment(d, at, text);
    struct tri__process *p = process_of(log, text, mark);
    log->lines++;
    if (!p)
        return 1;
    mark += 9 + strspn(mark + 9, " ");
    once(&p->first, at);
    p->last = at;
    p->said.lines++;
    if (tri__doctor_hit(d, TRI__HIT_NCCL_CHANNEL))
        read_channel(d, p, mark, at);
    if (tri__doctor_hit(d, TRI__HIT_NCCL_COUNTS))
        read_counts(p, mark);
    if (tri__doctor_hit(d, TRI__HIT_NCCL_OTHER))
        read_other(d, p, mark, at);
    if (warn)
        keep(log->warn, &log->warns, at);
    d->kind_seen |= TRI__KIND_NCCL;
    return 1;
}
