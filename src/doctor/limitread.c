/*
 * Host facts as people paste them: sysctl lines, limits, df of /dev/shm, a kernel command line.
 * They become files of the captured tree, so that one set of rules judges pasted and live machines.
 * Also the expert ids of `trireme logits --routes`.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "doctor/doctor_priv.h"

enum { MAX_EXPERTS = 65536, PATH = 256 };

static void put(struct tri_doctor *d, struct tri__spot at, const char *path, const char *value)
{
    struct tri_machines *set = &d->machines;
    if (!set->files && tri_tree_open_memory(&set->files, NULL)) {
        set->lost = true;
        return;
    }
    const struct tri__text *t = &d->text[at.text];
    struct tri_tree_file file = { .path = path,
                                  .data = value,
                                  .bytes = strlen(value),
                                  .origin = t->name,
                                  .line = t->lines.line[at.line].number };
    if (tri_tree_put(set->files, &file, NULL))
        set->lost = true;
}

/* "kernel.numa_balancing = 1" */
static bool read_sysctl(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    static const char *const heads[] = { "kernel.", "vm.", "net.core.", "fs." };
    char path[PATH] = "/proc/sys/";
    bool head = false;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        head |= tri_text_begins(text, heads[i]);
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz_.0123456789"), used = strlen(path);
    const char *value = text + len + strspn(text + len, " ");
    if (!head || *value != '=' || used + len >= sizeof path)
        return false;
    for (size_t i = 0; i < len; i++)
        path[used + i] = text[i] == '.' ? '/' : text[i];
    path[used + len] = 0;
    put(d, at, path, value + 1 + strspn(value + 1, " "));
    return true;
}

/* "Max locked memory 65536 65536 bytes" or "max locked memory (kbytes, -l) 64" */
static bool read_memlock(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    char value[128];
    if (!tri_text_find(text, "max locked memory"))
        return false;
    const char *kib = strstr(text, "-l)");
    if (kib) {
        const char *p = kib + 3 + strspn(kib + 3, " \t");
        if (tri_text_begins(p, "unlimited"))
            snprintf(value, sizeof value, "Max locked memory unlimited unlimited bytes");
        else
            snprintf(value, sizeof value, "Max locked memory %llu %llu bytes",
                     strtoull(p, NULL, 10) << 10, strtoull(p, NULL, 10) << 10);
        put(d, at, "/proc/self/limits", value);
    } else {
        put(d, at, "/proc/self/limits", text);
    }
    return true;
}

/* "shm  64M  0  64M  0% /dev/shm": size in df's units (1K blocks when plain) */
static bool read_shm(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    struct tri_word w[8];
    size_t n = tri_words(text, w, 8);
    if (n < 6 || n > 8 || !tri_word_is(w[n - 1], "/dev/shm") || !isdigit((unsigned char)w[1].at[0]))
        return false;
    char *end = NULL, value[64];
    double size = strtod(w[1].at, &end);
    int shift = *end == 'M' ? 20 : *end == 'G' ? 30 : *end == 'T' ? 40 : 10;
    snprintf(value, sizeof value, "tmpfs /dev/shm tmpfs rw,size=%.0fk 0 0",
             size * (double)(1ull << shift) / 1024);
    put(d, at, "/proc/mounts", value);
    return true;
}

/* "64m", "16g", "67108864": how docker writes sizes. */
static double docker_bytes(const char *text)
{
    char *end = NULL;
    double v = strtod(text, &end);
    int c = tolower((unsigned char)*end);
    return v * (c == 'k' ? 1024.0 : c == 'm' ? 1048576.0 : c == 'g' ? 1073741824.0 : 1.0);
}

/* "docker run --shm-size=64m ..." and docker inspect's "ShmSize": 67108864 */
static bool read_docker(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    static const char *const keys[] = { "--shm-size", "\"ShmSize\":", "shm_size:" };
    char value[96];
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *p = strstr(text, keys[i]);
        if (!p)
            continue;
        p += strlen(keys[i]);
        p += strspn(p, " =\"'");
        if (!isdigit((unsigned char)*p))
            continue;
        snprintf(value, sizeof value, "tmpfs /dev/shm tmpfs rw,size=%.0fk 0 0",
                 docker_bytes(p) / 1024);
        put(d, at, "/proc/mounts", value);
        return true;
    }
    return false;
}

/* "Swap:  8.0Gi  7.9Gi  100Mi" of free: as much of /proc/meminfo as it tells. */
static bool read_free(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    static char const units[] = "BKMGTP"; /* free -h; plain numbers are KiB */
    struct tri_word w[8];
    double kib[3] = { 0 };
    if (!tri_text_begins(text, "Mem:") && !tri_text_begins(text, "Swap:"))
        return false;
    size_t n = tri_words(text, w, 8);
    bool swap = tri_text_begins(text, "Swap:");
    for (size_t i = 0; i < 3; i++) {
        char *end = NULL;
        if (i + 1 >= n || !isdigit((unsigned char)*w[i + 1].at))
            return false;
        kib[i] = strtod(w[i + 1].at, &end);
        const char *unit = *end > ' ' ? strchr(units, *end) : NULL;
        for (const char *u = units; unit && u < unit; u++)
            kib[i] *= 1024;
        kib[i] /= unit ? 1024 : 1;
    }
    if (!swap) {
        d->free_total_kib = kib[0];
        return true;
    }
    char value[160];
    snprintf(value, sizeof value, "MemTotal: %.0f kB\nSwapTotal: %.0f kB\nSwapFree: %.0f kB",
             d->free_total_kib, kib[0], kib[2]);
    put(d, at, "/proc/meminfo", value);
    return true;
}

/* "node 1 cpus: 8 9 10" and "node 1 size: 64000 MB" of numactl -H */
static bool read_numactl(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    unsigned id = 0;
    int end = 0;
    if (sscanf(text, "node %4u %n", &id, &end) != 1 || !end || id >= TRI_MAX_NUMA)
        return false;
    const char *cpus = tri_text_begins(text + end, "cpus:") ? text + end + 5 : NULL;
    const char *size = tri_text_begins(text + end, "size:") ? text + end + 5 : NULL;
    if (!cpus && !size)
        return tri_text_begins(text + end, "free:");
    struct tri_machine *m = tri_machines_last(&d->machines);
    struct tri_numa *node = NULL;
    for (size_t i = 0; m && i < m->numas && !node; i++)
        node = m->numa[i].id == (int)id ? &m->numa[i] : NULL;
    node = m && !node ? tri_machine_add_numa(m) : node;
    if (!node)
        return true;
    node->id = (int)id;
    if (cpus) {
        struct tri_word w[1];
        snprintf(node->cpus, sizeof node->cpus, "%s", cpus + strspn(cpus, " "));
        node->cpu_count = (int)tri_words(cpus, w, 1);
    } else {
        node->memory_bytes = strtoull(size, NULL, 10) << 20;
        node->empty = !node->memory_bytes;
        node->source = (struct tri_source){ tri_machine_source(m, d->text[at.text].name),
                                            d->text[at.text].lines.line[at.line].number };
    }
    return true;
}

void tri__doctor_words_limits(struct tri_sieve *sieve)
{
    tri_sieve_starts(sieve, TRI__HIT_LIMITS, "kvnf"); /* sysctl names, "node 1 cpus:" */
    tri_sieve_words(sieve, TRI__HIT_LIMITS,
                    "max locked memory|/dev/shm|shm-size|ShmSize|shm_size|Mem:|Swap:|BOOT_IMAGE=|"
                    "iommu=");
}

size_t tri__doctor_read_limits(struct tri_doctor *d, struct tri__spot at)
{
    const char *text = tri__doctor_line(d, at);
    text += strspn(text, " \t");
    bool taken = read_sysctl(d, at, text) || read_memlock(d, at, text) || read_shm(d, at, text) ||
                 read_docker(d, at, text) || read_free(d, at, text) || read_numactl(d, at, text);
    if (!taken && (tri_text_begins(text, "BOOT_IMAGE=") ||
                   (tri_text_find(text, " root=") && tri_text_find(text, "iommu=")))) {
        const struct tri_lines *l = &d->text[at.text].lines;
        if (l->last_open && at.line + 1u == l->count)
            tri__doctor_cut(d, "the kernel command line has no line end: it may go on");
        else
            put(d, at, "/proc/cmdline", text);
        taken = true;
    }
    d->kind_seen |= taken ? TRI__KIND_HOST : 0;
    return taken;
}

/* {"pos":0,...,"routes":[{"layer":1,"experts":[3,17],...},...]} */
size_t tri__doctor_read_routes(struct tri_doctor *d, struct tri__spot at)
{
    struct tri__experts *e = &d->experts;
    const char *p = tri__doctor_line(d, at);
    if (*p != '{' || !strstr(p, "\"routes\":["))
        return 0;
    if (!e->count) {
        e->count = tri_calloc(MAX_EXPERTS, sizeof *e->count);
        e->first = at;
    }
    if (!e->count)
        return 1;
    e->tokens++;
    while ((p = strstr(p, "\"experts\":[")) != NULL) {
        for (p += 11; isdigit((unsigned char)*p);) {
            char *end = NULL;
            unsigned long id = strtoul(p, &end, 10);
            if (id < MAX_EXPERTS) {
                e->count[id]++;
                e->experts = id + 1 > e->experts ? id + 1 : e->experts;
            }
            p = *end == ',' ? end + 1 : end;
        }
    }
    return 1;
}
