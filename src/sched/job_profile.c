/*
 * What the steps of a profiled job were busy with, and which experts its own rows chose. While no
 * such job runs nothing is measured. Steps are shared: times and drive counters are those of whole
 * steps, rows and experts those of the job alone.
 */
#include "sched/sched_priv.h"

#include <string.h>

struct tri__sched_profile {
    struct tri_profile time;
    struct tri_experts_stats before;
    int32_t *routes; /* [layers][chunk_tokens][topk] of the step that runs */
    bool *routed;    /* [layers] */
    int64_t layers, rows, topk, experts;
    bool on;
};

static void on_routes(void *arg, int64_t layer, const int32_t *experts, const float *weights,
                      int64_t n_rows, int64_t topk)
{
    const struct tri_sched *s = arg;
    struct tri__sched_profile *p = s->profile;
    (void)weights;
    if (layer >= p->layers || n_rows > p->rows || topk != p->topk)
        return;
    memcpy(p->routes + layer * p->rows * topk, experts, (size_t)(n_rows * topk) * sizeof *experts);
    p->routed[layer] = true;
}

static struct tri__sched_profile *open_profile(struct tri_sched *s)
{
    const struct tri_spec *spec = tri_model_spec(s->model);
    struct tri__sched_profile *p = tri_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->layers = spec->layers;
    p->rows = tri_model_chunk_tokens(s->model);
    p->topk = spec->topk;
    p->experts = spec->experts;
    p->routes = tri_calloc((size_t)(p->layers * p->rows * p->topk) + 1, sizeof *p->routes);
    p->routed = tri_calloc((size_t)p->layers + 1, sizeof *p->routed);
    s->profile = p;
    if (!p->routes || !p->routed) {
        tri__sched_profile_close(s);
        return NULL;
    }
    return p;
}

void tri__sched_profile_close(struct tri_sched *s)
{
    if (!s->profile)
        return;
    tri_free(s->profile->routes);
    tri_free(s->profile->routed);
    tri_free(s->profile);
    s->profile = NULL;
}

static bool wanted(const struct tri_sched *s)
{
    for (int64_t i = 0; i < s->options.slots; i++)
        if (s->slot[i].job && s->slot[i].job->request.profile)
            return true;
    return false;
}

void tri__sched_profile_begin(struct tri_sched *s)
{
    struct tri__sched_profile *p = s->profile;
    bool want = wanted(s);
    if (want && !p)
        p = open_profile(s); /* without memory for it the job simply has no profile */
    if (!p || (!want && !p->on))
        return;
    p->on = want;
    s->taps.routes = want ? on_routes : NULL;
    tri_model_profile(s->model, want ? &p->time : NULL);
    memset(&p->time, 0, sizeof p->time);
    memset(p->routed, 0, (size_t)p->layers * sizeof *p->routed);
    tri_model_expert_stats(s->model, &p->before);
}

static void add_experts(const struct tri__sched_profile *p, struct tri_job *job,
                        const struct tri_step_event *e)
{
    if (!job->chosen)
        job->chosen = tri_calloc((size_t)(p->layers * p->experts) + 1, sizeof *job->chosen);
    if (!job->chosen)
        return;
    for (int64_t layer = 0; layer < p->layers; layer++) {
        const int32_t *ids = p->routes + (layer * p->rows + e->first_row) * p->topk;
        for (int64_t i = 0; p->routed[layer] && i < e->n_rows * p->topk; i++)
            if (ids[i] >= 0 && ids[i] < p->experts)
                job->chosen[layer * p->experts + ids[i]]++;
    }
}

static void add_step(const struct tri__sched_profile *p, struct tri_job *job,
                     const struct tri_step_event *e, int64_t rows_of_step)
{
    struct tri_job_profile *to = &job->profile;
    struct tri_experts_stats now;
    tri_model_expert_stats(job->sched->model, &now);
    for (int i = 0; i < TRI_TIMES; i++)
        to->time.ns[i] += p->time.ns[i];
    to->time.steps++;
    to->rows += (uint64_t)e->n_rows;
    to->rows_of_steps += (uint64_t)rows_of_step;
    to->expert_hits +=
        now.reuse_hits + now.prefetch_hits - p->before.reuse_hits - p->before.prefetch_hits;
    to->expert_misses += now.misses - p->before.misses;
    to->read_bytes += now.read_bytes - p->before.read_bytes;
    to->wait_ns += now.wait_ns - p->before.wait_ns;
    to->layers = p->layers;
    to->experts = p->experts;
    add_experts(p, job, e);
    to->chosen = job->chosen;
}

void tri__sched_profile_end(struct tri_sched *s, const struct tri_step_event *events, int64_t n)
{
    const struct tri__sched_profile *p = s->profile;
    int64_t rows = 0;
    if (!p || !p->on)
        return;
    for (int64_t i = 0; i < n; i++)
        rows += events[i].n_rows;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < s->options.slots; k++) {
            struct tri_job *job = s->slot[k].job;
            if (job && job->request.profile && s->slot[k].sequence == events[i].sequence)
                add_step(p, job, &events[i], rows);
        }
}

void tri_job_profile(struct tri_job *job, struct tri_job_profile *out)
{
    pthread_mutex_lock(&job->sched->lock);
    *out = job->profile;
    pthread_mutex_unlock(&job->sched->lock);
}
