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

size_t tri__doctor_read_limits(struct tri_doctor *d, struct tri__spot at)
{
    const char *text = tri__doctor_line(d, at);
    text += strspn(text, " \t");
    bool taken = read_sysctl(d, at, text) || read_memlock(d, at, text) || read_shm(d, at, text);
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
