/*
 * Watching: small snapshots of what a running job can change, and the difference of two in words.
 * A link that speeds up when work begins is good news and says that the slow reading was idling.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "doctor/doctor_priv.h"
#include "os/spawn.h"

struct watched_link {
    char bdf[16];
    enum tri_pci_role role;
    struct tri_link sta;
};

struct tri_snapshot {
    struct watched_link *link;
    size_t links;
    struct tri_gpu_state gpu[TRI_MAX_GPUS];
    int pstate[TRI_MAX_GPUS];
    size_t gpus;
    double swap_in, swap_out, major_faults; /* pages since boot, -1 unknown */
    double steal, busy;                     /* ticks since boot */
    double available_bytes;
};

static double field(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    while (at && at > text && at[-1] != '\n')
        at = strstr(at + 1, key);
    return at ? strtod(at + strlen(key), NULL) : -1;
}

static void read_counters(struct tri_snapshot *s, struct tri_tree *tree)
{
    char text[65536];
    s->swap_in = s->swap_out = s->major_faults = -1;
    if (tri_tree_read(tree, "/proc/vmstat", text, sizeof text)) {
        s->swap_in = field(text, "pswpin ");
        s->swap_out = field(text, "pswpout ");
        s->major_faults = field(text, "pgmajfault ");
    }
    if (tri_tree_read(tree, "/proc/stat", text, sizeof text) && tri_text_begins(text, "cpu ")) {
        char *p = text + 4;
        for (int i = 0; i < 8; i++) {
            double v = strtod(p, &p);
            s->busy += i == 3 || i == 4 ? 0 : v;
            s->steal = i == 7 ? v : s->steal;
        }
    }
}

/* nvidia-smi -q through the usual reader. */
static void read_gpus(struct tri_snapshot *s)
{
    static const char *const argv[] = { "nvidia-smi", "-q", "-d", "PERFORMANCE,PIDS", NULL };
    struct tri_spawn run = { .argv = argv, .max_bytes = 4 << 20 };
    struct tri_lines lines = { 0 };
    struct tri_machines set = { 0 };
    tri_spawn_all(&run, 1, 1500);
    if (run.out.len_bytes &&
        tri_lines_init(&lines, run.out.data, run.out.len_bytes, NULL) == TRI_OK)
        tri_topo_read_lines(&set, "nvidia-smi", &lines);
    if (set.count) {
        s->gpus = set.list[0]->gpus;
        for (size_t i = 0; i < s->gpus; i++) {
            s->gpu[i] = set.list[0]->gpu[i].state;
            s->pstate[i] = set.list[0]->gpu[i].pstate;
        }
    }
    tri_machines_fini(&set);
    tri_lines_fini(&lines);
    tri_buf_fini(&run.out);
}

enum tri_status tri_doctor_snapshot(struct tri_snapshot **out, const char *root,
                                    struct tri_error *err)
{
    struct tri_tree *tree = NULL;
    struct tri_machine *m = NULL;
    struct tri_snapshot *s = tri_calloc(1, sizeof *s);
    enum tri_status status = s ? TRI_OK : tri_fail(err, TRI_NOMEM, "no memory for a snapshot");
    if (status == TRI_OK)
        status = tri_tree_open_folder(&tree, root, err);
    if (status == TRI_OK)
        status = tri_machine_open(&m, err);
    if (status)
        goto out;
    tri_topo_read_tree(m, tree);
    tri_machine_join(m);
    s->link = tri_calloc(m->pcis + 1, sizeof *s->link);
    if (!s->link) {
        status = tri_fail(err, TRI_NOMEM, "no memory for a snapshot");
        goto out;
    }
    for (size_t i = 0; i < m->pcis; i++) {
        const struct tri_pci *p = &m->pci[i];
        if (p->role != TRI_PCI_GPU && p->role != TRI_PCI_NIC && p->role != TRI_PCI_DRIVE)
            continue;
        struct watched_link *l = &s->link[s->links++];
        memcpy(l->bdf, p->bdf, sizeof l->bdf);
        l->role = p->role;
        l->sta = p->sta;
    }
    s->available_bytes = (double)m->memory.available_bytes;
    read_counters(s, tree);
    if (tri_tree_is_live(tree))
        read_gpus(s);
out:
    tri_machine_close(m);
    tri_tree_close(tree);
    if (status)
        tri_doctor_snapshot_close(s);
    else
        *out = s;
    return status;
}

void tri_doctor_snapshot_close(struct tri_snapshot *s)
{
    if (!s)
        return;
    tri_free(s->link);
    tri_free(s);
}

struct changes {
    struct tri_buf *out;
    enum tri_severity worst;
};

static void say(struct changes *c, enum tri_severity severity, const char *text)
{
    tri_buf_printf(c->out, "%-4s  %s\n", tri_severity_word(severity), text);
    c->worst = severity > c->worst ? severity : c->worst;
}

/* A sleeping device says "Unknown" and 63 lanes or 255: no news. */
static bool is_told(const struct tri_link *l)
{
    return l->gts > 0 && l->width > 0 && l->width <= 32;
}

static void compare_links(struct changes *c, const struct tri_snapshot *a, struct tri_snapshot *b)
{
    char text[200];
    for (size_t i = 0; i < b->links; i++) {
        struct watched_link *now = &b->link[i];
        const struct watched_link *was = NULL;
        for (size_t k = 0; k < a->links; k++)
            if (!strcmp(a->link[k].bdf, now->bdf))
                was = &a->link[k];
        const char *what = now->role == TRI_PCI_GPU   ? "GPU"
                           : now->role == TRI_PCI_NIC ? "adapter"
                                                      : "drive";
        if (!was) {
            snprintf(text, sizeof text, "%s %s appeared", what, now->bdf);
            say(c, TRI_SEVERITY_INFO, text);
            continue;
        }
        if (!is_told(&now->sta))
            now->sta = was->sta;
        if (!is_told(&was->sta) ||
            (was->sta.gts == now->sta.gts && was->sta.width == now->sta.width))
            continue;
        bool narrower = now->sta.width < was->sta.width, slower = now->sta.gts < was->sta.gts;
        snprintf(text, sizeof text, "%s %s: %g GT/s x%d became %g GT/s x%d%s", what, now->bdf,
                 was->sta.gts, was->sta.width, now->sta.gts, now->sta.width,
                 narrower ? ": lanes were lost"
                 : slower ? ": it idles, or was slowed"
                          : ": it woke up, so the slow reading was idling");
        say(c, narrower ? TRI_SEVERITY_FAIL : slower ? TRI_SEVERITY_INFO : TRI_SEVERITY_OK, text);
    }
    for (size_t i = 0; i < a->links; i++) {
        bool there = false;
        for (size_t k = 0; k < b->links; k++)
            there |= !strcmp(a->link[i].bdf, b->link[k].bdf);
        if (!there) {
            snprintf(text, sizeof text, "device %s is gone", a->link[i].bdf);
            say(c, TRI_SEVERITY_FAIL, text);
        }
    }
}

static void compare_gpus(struct changes *c, const struct tri_snapshot *a,
                         const struct tri_snapshot *b)
{
    char text[200];
    const unsigned hard =
        TRI_SLOW_HW | TRI_SLOW_HW_THERMAL | TRI_SLOW_HW_BRAKE | TRI_SLOW_SW_THERMAL;
    for (size_t i = 0; i < a->gpus && i < b->gpus; i++) {
        unsigned fresh = b->gpu[i].slow & ~a->gpu[i].slow;
        if (fresh) {
            snprintf(text, sizeof text, "GPU%zu is now %s", i,
                     fresh & hard ? "throttled by heat or a power brake" : "at its power cap");
            say(c, fresh & hard ? TRI_SEVERITY_WARN : TRI_SEVERITY_INFO, text);
        }
        if (b->gpu[i].replays > a->gpu[i].replays && a->gpu[i].replays >= 0) {
            snprintf(text, sizeof text, "GPU%zu counted %ld PCIe replays more", i,
                     b->gpu[i].replays - a->gpu[i].replays);
            say(c, TRI_SEVERITY_WARN, text);
        }
    }
}

/* A counter's growth in events a second; told above `floor`. */
static void compare_counter(struct changes *c, double was, double now, double seconds, double floor,
                            const char *what, const char *meaning)
{
    char text[200];
    double rate = was >= 0 && now > was && seconds > 0 ? (now - was) / seconds : 0;
    if (rate < floor)
        return;
    snprintf(text, sizeof text, "%.0f %s/s: %s", rate, what, meaning);
    say(c, TRI_SEVERITY_WARN, text);
}

enum tri_severity tri_doctor_write_changes(const struct tri_snapshot *before,
                                           struct tri_snapshot *now, double seconds,
                                           struct tri_buf *out)
{
    struct changes c = { out, TRI_SEVERITY_OK };
    char text[200];
    compare_links(&c, before, now);
    compare_gpus(&c, before, now);
    compare_counter(&c, before->swap_out, now->swap_out, seconds, 1, "pages swapped out",
                    "memory is over-committed");
    compare_counter(&c, before->swap_in, now->swap_in, seconds, 1, "pages swapped in",
                    "the job waits for its own memory");
    compare_counter(&c, before->major_faults, now->major_faults, seconds, 200, "major page faults",
                    "mapped weights are read from the drive again");
    double busy = now->busy - before->busy, steal = now->steal - before->steal;
    if (busy > 0 && steal > busy * 0.1) {
        snprintf(text, sizeof text, "the hypervisor took %.0f %% of the busy time",
                 100 * steal / busy);
        say(&c, TRI_SEVERITY_WARN, text);
    }
    if (now->available_bytes > 0 && now->available_bytes < before->available_bytes * 0.5) {
        snprintf(text, sizeof text, "available memory fell from %.1f to %.1f GiB",
                 before->available_bytes / 1073741824, now->available_bytes / 1073741824);
        say(&c, TRI_SEVERITY_INFO, text);
    }
    return c.worst;
}
