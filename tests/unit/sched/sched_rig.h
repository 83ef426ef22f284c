/*
 * What the scheduler's tests share: a scheduler over the engine's stand-in model, whose next token
 * depends on every token it was fed. A wrong state, a token twice or never, or a neighbour's
 * influence changes what comes out. Included after cmocka.h.
 */
#ifndef TRI_TESTS_SCHED_RIG_H
#define TRI_TESTS_SCHED_RIG_H

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include "sched/sched.h"
#include "unit/engine/fake_model.h"

/* What the engine's own tests do not need of a model. */
const struct tri_slice *tri_model_slice(const struct tri_model *model)
{
    (void)model;
    return NULL;
}

void tri_model_expert_stats(const struct tri_model *model, struct tri_experts_stats *out)
{
    (void)model;
    memset(out, 0, sizeof *out);
}

void tri_state_cost(const struct tri_spec *spec, const struct tri_slice *slice,
                    struct tri_state_form form, struct tri_state_bytes *out)
{
    (void)spec;
    (void)slice;
    (void)form;
    *out = (struct tri_state_bytes){ 1000, 10 };
}

uint64_t tri_model_state_fingerprint(const struct tri_model *model)
{
    return tri_model_fingerprint(model) + 1;
}

struct rig {
    struct tri_model model;
    struct tri_budget *budget;
    struct tri_engine *engine;
    struct tri_sched *sched;
    atomic_int wakes;
};

static inline void rig_up(struct rig *rig, struct tri_sched_options o)
{
    rig->model = fake_model(96);
    rig->wakes = 0;
    assert_int_equal(tri_budget_open(&rig->budget, 256 << 20, NULL), TRI_OK);
    struct tri_engine_options e = { .max_sequences = o.slots,
                                    .short_first = true,
                                    .growing = true };
    assert_int_equal(tri_engine_open(&rig->engine, &rig->model, &e, rig->budget, NULL), TRI_OK);
    o.context_tokens = o.context_tokens ? o.context_tokens : 1024;
    assert_int_equal(tri_sched_open(&rig->sched, rig->engine, &rig->model, rig->budget, &o, NULL),
                     TRI_OK);
}

static inline void rig_down(struct rig *rig)
{
    tri_sched_close(rig->sched);
    tri_engine_close(rig->engine);
    struct tri_budget_report now;
    tri_budget_read(rig->budget, &now);
    assert_int_equal(now.used_bytes, 0);
    tri_budget_close(rig->budget);
}

static inline void wake(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

struct ask {
    int32_t tokens[4096];
    int64_t n, max_tokens;
    int64_t borders[3];
    size_t n_borders;
    uint64_t salt;
    int64_t priority, head;
};

static inline struct ask make_ask(int64_t n, int salt, int64_t max_tokens)
{
    struct ask a = { .n = n, .max_tokens = max_tokens };
    for (int64_t i = 0; i < n; i++)
        a.tokens[i] = (int32_t)((i * 31 + salt * 7 + 3) % 90);
    return a;
}

static inline enum tri_status submit(struct rig *rig, const struct ask *a, struct tri_job **job,
                                     struct tri_error *err)
{
    struct tri_job_request r = { .tokens = a->tokens,
                                 .n_tokens = a->n,
                                 .salt = { a->salt, 0 },
                                 .head_tokens = a->head,
                                 .priority = a->priority,
                                 .n_borders = a->n_borders,
                                 .wake = wake,
                                 .arg = &rig->wakes };
    r.how.sampling = tri_sampling_default();
    r.how.sampling.temperature = 0;
    r.how.max_tokens = a->max_tokens;
    for (size_t i = 0; i < a->n_borders; i++)
        r.borders[i] = a->borders[i];
    return tri_job_submit(job, rig->sched, &r, err);
}

/* Reads to the end; checks every token against the fake's function. Returns how many came. */
static inline int64_t finish(struct tri_job *job, struct ask *a, enum tri_job_end *end)
{
    struct tri_job_event e;
    int64_t made = 0;
    for (int idle = 0; idle < 100000;) {
        if (!tri_job_read(job, &e)) {
            usleep(50);
            idle++;
            continue;
        }
        if (e.token >= 0) {
            float logits[FAKE_VOCAB];
            int best = 0;
            fake_logits(a->tokens, a->n + made, logits);
            for (int i = 1; i < FAKE_VOCAB; i++)
                if (logits[i] > logits[best])
                    best = i;
            assert_int_equal(e.token, best);
            a->tokens[a->n + made++] = e.token;
        }
        if (e.end != TRI_JOB_RUNS) {
            *end = e.end;
            assert_false(tri_job_read(job, &e)); /* the end is the last thing told */
            return made;
        }
    }
    fail_msg("the job never ended");
    return -1;
}

static inline int64_t cached(struct tri_job *job)
{
    struct tri_job_facts f;
    tri_job_facts(job, &f);
    return f.cached_tokens;
}

static inline void drop_folder(const char *path)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", path);
    assert_int_equal(system(command), 0);
}

static inline void new_folder(char *path)
{
    snprintf(path, 64, "/tmp/trireme-sched-%ld", (long)getpid());
    drop_folder(path);
}

static inline int64_t ask_all(struct rig *rig, struct ask *a, int64_t want)
{
    struct tri_job *job = NULL;
    enum tri_job_end end;
    assert_int_equal(submit(rig, a, &job, NULL), TRI_OK);
    assert_int_equal(finish(job, a, &end), want);
    int64_t n = cached(job);
    tri_job_release(job);
    return n;
}

static inline struct tri_sched_stats stats_of(struct rig *rig)
{
    struct tri_sched_stats s;
    tri_sched_read_stats(rig->sched, &s);
    return s;
}

static inline void wait_running(struct rig *rig, int64_t n)
{
    for (int i = 0; i < 5000 && stats_of(rig).running < n; i++)
        usleep(200);
    assert_int_equal(stats_of(rig).running, n);
}

#endif
