/*
 * GPUs as the readers of nvidia-smi collect them, before it is known which machine they belong to:
 * -q and --query-gpu both may come after a topology, again under load, or for some GPUs only. A
 * later reading replaces what it knows and leaves the rest.
 */
#include <string.h>
#include "topo/topo.h"
#include "topo/topo_priv.h"

static void take(int *to, int from)
{
    *to = from >= 0 ? from : *to;
}

static void take_state(struct tri_gpu_state *to, const struct tri_gpu_state *from, int file)
{
    const struct {
        struct tri_source *to;
        struct tri_source from;
    } sources[] = {
        { &to->gen_source, from->gen_source },     { &to->width_source, from->width_source },
        { &to->slow_source, from->slow_source },   { &to->fabric_source, from->fabric_source },
        { &to->remap_source, from->remap_source }, { &to->replay_source, from->replay_source }
    };
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        if (sources[i].from.line)
            *sources[i].to = (struct tri_source){ file, sources[i].from.line };
    take(&to->gen_max, from->gen_max);
    take(&to->gen_now, from->gen_now);
    take(&to->gen_device, from->gen_device);
    take(&to->gen_host, from->gen_host);
    take(&to->width_max, from->width_max);
    take(&to->width_now, from->width_now);
    take(&to->idle, from->idle);
    take(&to->remap_failed, from->remap_failed);
    take(&to->remap_pending, from->remap_pending);
    take(&to->mig, from->mig);
    take(&to->passthrough, from->passthrough);
    if (from->idle >= 0 || from->slow)
        to->slow = from->slow;
    to->replays = from->replays >= 0 ? from->replays : to->replays;
    if (from->fabric[0]) {
        memcpy(to->fabric, from->fabric, sizeof to->fabric);
        to->fabric_degraded = from->fabric_degraded;
    }
}

static void take_gpu(struct tri_gpu *to, const struct tri_gpu *from, int file)
{
    if (from->name[0])
        memcpy(to->name, from->name, sizeof to->name);
    if (from->bdf[0])
        memcpy(to->bdf, from->bdf, sizeof to->bdf);
    to->vendor = from->vendor;
    to->memory_bytes = from->memory_bytes ? from->memory_bytes : to->memory_bytes;
    to->used_bytes = from->used_bytes ? from->used_bytes : to->used_bytes;
    take(&to->busy_percent, from->busy_percent);
    take(&to->pstate, from->pstate);
    to->source = (struct tri_source){ file, from->source.line };
    take_state(&to->state, &from->state, file);
}

void tri__topo_take_gpus(struct tri__topo_text *t, const struct tri_gpu *gpu, size_t gpus,
                         size_t at)
{
    struct tri_machine *m = tri_machines_last(t->set);
    bool same = m && gpus; /* an excerpt: a query of some GPUs of this machine */
    for (size_t i = 0; i < gpus && same; i++)
        same = gpu[i].bdf[0] && tri_machine_find_gpu(m, gpu[i].bdf) >= 0;
    m = same ? m : tri__topo_machine_for(t->set, gpus);
    if (!m) {
        t->set->lost |= gpus > 0;
        return;
    }
    int file = tri__topo_line(m, t, at).file;
    for (size_t i = 0; i < gpus; i++) {
        int old = gpu[i].bdf[0] ? tri_machine_find_gpu(m, gpu[i].bdf) : -1;
        struct tri_gpu *to = old >= 0 ? &m->gpu[old]
                             : i < m->gpus && (!m->gpu[i].bdf[0] || !gpu[i].bdf[0])
                                 ? &m->gpu[i]
                                 : tri_machine_add_gpu(m);
        if (!to)
            return;
        take_gpu(to, &gpu[i], file);
    }
}
