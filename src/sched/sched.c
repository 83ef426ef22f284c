/* The scheduler's thread: ends what was cancelled, admits what waits, steps, tells. */
#include "sched/sched_priv.h"

#include <string.h>

/* --- borders --------------------------------------------------------------------------------- */

static int64_t on_grid(int64_t position)
{
    return position / TRI_ENGINE_GRID_TOKENS * TRI_ENGINE_GRID_TOKENS;
}

/* The next position of this job's prompt at which prefill must halt for a checkpoint; 0: none. */
static int64_t next_border(struct tri_job *job)
{
    const struct tri_job_request *r = &job->request;
    int64_t at = tri_sequence_computed(job->slot->sequence);
    while (job->next_border < r->n_borders && on_grid(r->borders[job->next_border]) <= at)
        job->next_border++;
    int64_t border = job->next_border < r->n_borders ? on_grid(r->borders[job->next_border]) : 0;
    return border < r->n_tokens ? border : 0;
}

static void set_border(struct tri_sched *s, struct tri_job *job)
{
    tri_sequence_halt(job->slot->sequence, s->options.cache_bytes ? next_border(job) : 0);
}

/* After a step: a checkpoint if this is where one was wanted, and the next border. */
static void pass_border(struct tri_sched *s, struct tri_job *job)
{
    const struct tri_job_request *r = &job->request;
    int64_t at = tri_sequence_computed(job->slot->sequence);
    if (job->next_border < r->n_borders && at == on_grid(r->borders[job->next_border]))
        tri__store_take(s, job->slot->sequence, r->salt);
    set_border(s, job);
}

/* --- jobs on slots --------------------------------------------------------------------------- */

static void leave_slot(struct tri_sched *s, struct tri_job *job)
{
    struct tri__sched_slot *slot = job->slot;
    tri_sequence_stop(slot->sequence);
    tri_sequence_pause(slot->sequence, false);
    tri_sequence_halt(slot->sequence, 0);
    slot->job = NULL;
    slot->used = ++s->clock;
    job->slot = NULL;
    s->stats.running--;
}

static void dequeue(struct tri_sched *s, struct tri_job **at)
{
    struct tri_job *job = *at;
    *at = job->next;
    job->next = NULL;
    s->stats.waiting--;
}

static void end_cancelled(struct tri_sched *s)
{
    for (struct tri_job **at = &s->queue; *at;) {
        struct tri_job *job = *at;
        if (!job->cancelled && !s->stopping) {
            at = &job->next;
            continue;
        }
        dequeue(s, at);
        tri__job_end(job, TRI_JOB_CANCELLED);
    }
    for (int64_t i = 0; i < s->options.slots; i++) {
        struct tri_job *job = s->slot[i].job;
        if (!job || (!job->cancelled && !s->stopping))
            continue;
        leave_slot(s, job);
        tri__job_end(job, TRI_JOB_CANCELLED);
    }
}

static void admit(struct tri_sched *s)
{
    while (s->queue && s->stats.running < s->options.slots) {
        struct tri_job *job = s->queue;
        dequeue(s, &s->queue);
        if (tri__sched_place(s, job) == TRI_OK) {
            if (s->stats.running++ == 0) /* idle time is no step's age */
                s->stats.last_step_s = tri__sched_now_s();
            set_border(s, job);
            continue;
        }
        tri__job_end(job, TRI_JOB_ERROR);
    }
}

/* Jobs with something to compute; those whose reader is behind are left out. */
static int64_t ready(struct tri_sched *s)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->options.slots; i++) {
        struct tri_job *job = s->slot[i].job;
        if (!job)
            continue;
        if (job->count >= TRI_SCHED_RING_EVENTS)
            job->paused = true;
        tri_sequence_pause(s->slot[i].sequence, job->paused);
        n += !job->paused;
    }
    return n;
}

/* --- telling --------------------------------------------------------------------------------- */

static enum tri_job_end end_of(enum tri_end end)
{
    static const enum tri_job_end ends[] = { [TRI_END_NONE] = TRI_JOB_RUNS,
                                             [TRI_END_STOP] = TRI_JOB_STOP,
                                             [TRI_END_LENGTH] = TRI_JOB_LENGTH,
                                             [TRI_END_CONTEXT] = TRI_JOB_CONTEXT,
                                             [TRI_END_ERROR] = TRI_JOB_ERROR };
    return ends[end];
}

static struct tri_job *job_of(struct tri_sched *s, const struct tri_sequence *sequence)
{
    for (int64_t i = 0; i < s->options.slots; i++)
        if (s->slot[i].sequence == sequence)
            return s->slot[i].job;
    return NULL;
}

static void tell(struct tri_sched *s, const struct tri_step_event *e)
{
    struct tri_job *job = job_of(s, e->sequence);
    struct tri_job_event event = { .token = e->token, .end = end_of(e->end), .chosen = e->chosen };
    TRI_ASSERT(job);
    job->facts.computed_tokens = tri_sequence_computed(e->sequence);
    pass_border(s, job);
    if (e->end == TRI_END_ERROR)
        tri_fail(&job->error, e->error->status, "%s", e->error->text);
    if (e->token < 0 && e->end == TRI_END_NONE)
        return;
    s->stats.sampled_tokens += e->token >= 0;
    event.n_top = e->n_top;
    for (int64_t i = 0; i < e->n_top; i++)
        event.top[i] = e->top[i];
    if (event.end != TRI_JOB_RUNS)
        leave_slot(s, job);
    tri__job_tell(job, &event);
}

/* A step failed: whoever took part has ended and lost its state. */
static void tell_failure(struct tri_sched *s, const struct tri_error *failure)
{
    for (int64_t i = 0; i < s->options.slots; i++) {
        struct tri_job *job = s->slot[i].job;
        if (!job || tri_sequence_active(s->slot[i].sequence))
            continue;
        tri_fail(&job->error, failure->status, "%s", failure->text);
        leave_slot(s, job);
        tri__job_end(job, TRI_JOB_ERROR);
    }
}

/* --- the thread ------------------------------------------------------------------------------ */

/* One step more: how many rows it had. */
static void count_step(struct tri_sched *s, const struct tri_engine_counters *now)
{
    static const uint64_t bounds[] = TRI_SCHED_STEP_BOUNDS;
    const struct tri_engine_counters *before = &s->stats.engine;
    uint64_t rows =
        now->prefill_tokens + now->decode_tokens - before->prefill_tokens - before->decode_tokens;
    size_t i = 0;
    while (i < TRI_SCHED_STEP_BUCKETS && rows > bounds[i])
        i++;
    s->stats.step_tokens[i]++;
    s->stats.last_step_s = tri__sched_now_s();
}

static void count(struct tri_sched *s)
{
    struct tri_engine_counters now;
    s->stats.held_tokens = 0;
    for (int64_t i = 0; i < s->options.slots; i++)
        s->stats.held_tokens += tri_sequence_computed(s->slot[i].sequence);
    tri_engine_count(s->engine, &now);
    count_step(s, &now);
    s->stats.engine = now;
    tri_model_expert_stats(s->model, &s->stats.experts);
}

static void *run(void *arg)
{
    struct tri_sched *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        end_cancelled(s);
        admit(s);
        int64_t n = ready(s);
        if (n == 0 && s->stopping)
            break;
        if (n == 0) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        const struct tri_step_event *events = NULL;
        int64_t n_events = 0;
        struct tri_error failure = { 0 };
        enum tri_status st = tri_engine_step(s->engine, &events, &n_events, &failure);
        pthread_mutex_lock(&s->lock);
        if (st != TRI_OK)
            tell_failure(s, &failure);
        for (int64_t i = 0; st == TRI_OK && i < n_events; i++)
            tell(s, &events[i]);
        count(s);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- opening --------------------------------------------------------------------------------- */

static enum tri_status open_slots(struct tri_sched *s, struct tri_error *err)
{
    s->slot = tri_calloc((size_t)s->options.slots, sizeof *s->slot);
    if (!s->slot)
        return tri_fail(err, TRI_NOMEM, "no memory for slots");
    enum tri_status st = TRI_OK;
    for (int64_t i = 0; i < s->options.slots && st == TRI_OK; i++)
        st = tri_sequence_open(&s->slot[i].sequence, s->engine, s->options.context_tokens, err);
    return st;
}

enum tri_status tri_sched_open(struct tri_sched **out, struct tri_engine *engine,
                               struct tri_model *model, struct tri_budget *budget,
                               const struct tri_sched_options *options, struct tri_error *err)
{
    if (options->slots < 0 || options->slots > TRI_SCHED_MAX_SLOTS)
        return tri_fail(err, TRI_LIMIT, "%lld jobs together, at most %d", (long long)options->slots,
                        TRI_SCHED_MAX_SLOTS);
    if (options->queue < 0 || options->queue > TRI_SCHED_MAX_QUEUE)
        return tri_fail(err, TRI_LIMIT, "a queue of %lld, at most %d", (long long)options->queue,
                        TRI_SCHED_MAX_QUEUE);
    struct tri_sched *s = tri_calloc(1, sizeof *s);
    if (!s)
        return tri_fail(err, TRI_NOMEM, "no memory for the scheduler");
    s->engine = engine;
    s->model = model;
    s->budget = budget;
    s->options = *options;
    s->options.slots = options->slots ? options->slots : 4;
    s->options.queue = options->queue ? options->queue : 256;
    s->stats.slots = s->options.slots;
    s->stats.context_tokens = options->context_tokens;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    enum tri_status st = open_slots(s, err);
    if (st == TRI_OK && pthread_create(&s->thread, NULL, run, s) != 0)
        st = tri_fail(err, TRI_NOMEM, "no thread for the scheduler");
    else
        s->has_thread = st == TRI_OK;
    if (st == TRI_OK)
        *out = s;
    else
        tri_sched_close(s);
    return st;
}

void tri_sched_close(struct tri_sched *sched)
{
    if (!sched)
        return;
    struct tri_sched *s = sched;
    if (s->has_thread) {
        pthread_mutex_lock(&s->lock);
        s->stopping = true;
        pthread_cond_signal(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    for (int64_t i = 0; s->slot && i < s->options.slots; i++)
        tri_sequence_close(s->slot[i].sequence);
    tri__store_close(s);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    tri_free(s->slot);
    tri_free(s);
}

int64_t tri_sched_context_tokens(const struct tri_sched *sched)
{
    return sched->options.context_tokens;
}

void tri_sched_read_stats(struct tri_sched *sched, struct tri_sched_stats *out)
{
    pthread_mutex_lock(&sched->lock);
    *out = sched->stats;
    pthread_mutex_unlock(&sched->lock);
}
