/* The scheduler's thread: ends what was cancelled, admits what waits, steps, tells, keeps. */
#include "sched/sched_priv.h"

#include <string.h>
#include <time.h>
#include "base/clock.h"

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

static bool keeps(const struct tri_sched *s)
{
    return s->options.cache_bytes > 0 || s->keeper.folder;
}

void tri__sched_set_border(struct tri_sched *s, struct tri_job *job)
{
    tri_sequence_halt(job->slot->sequence, keeps(s) ? next_border(job) : 0);
}

/* Into RAM and from there to the folder; where RAM has no room, straight to the folder, and the
 * sequence waits meanwhile. */
static void keep(struct tri_sched *s, struct tri__sched_slot *slot, enum tri_keep why)
{
    if (!tri__keep(s, slot->sequence, slot->salt, why))
        (void)tri__keeper_save_slot(s, slot, why);
}

/* After a step: a checkpoint if this is where one is wanted, and the next border. */
static void pass_border(struct tri_sched *s, struct tri_job *job)
{
    const struct tri_job_request *r = &job->request;
    int64_t at = tri_sequence_computed(job->slot->sequence);
    if (at > r->n_tokens || !keeps(s))
        return;
    double now = tri_clock_s();
    bool border = job->next_border < r->n_borders && at == on_grid(r->borders[job->next_border]);
    bool along = at == on_grid(at) && now - job->kept_s >= s->options.along_s;
    if (border || along) {
        bool head = border && r->borders[job->next_border] <= r->head_tokens;
        keep(s, job->slot, head ? TRI_KEEP_HEAD : border ? TRI_KEEP_BORDER : TRI_KEEP_ALONG);
        job->kept_s = now;
    }
    tri__sched_set_border(s, job);
}

/* --- jobs on slots --------------------------------------------------------------------------- */

static void end_cancelled(struct tri_sched *s)
{
    for (struct tri_job **at = &s->queue; *at;) {
        struct tri_job *job = *at;
        if (!job->cancelled && !s->stopping) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        job->next = NULL;
        s->stats.waiting--;
        tri__job_end(job, TRI_JOB_CANCELLED);
    }
    for (int64_t i = 0; i < s->options.slots; i++) {
        struct tri_job *job = s->slot[i].job;
        if (!job || (!job->cancelled && !s->stopping))
            continue;
        tri__sched_leave_slot(s, job);
        tri__job_end(job, TRI_JOB_CANCELLED);
    }
}

/* Jobs with something to compute; those whose reader is behind are left out, and those whose state
 * the keeper has. */
static int64_t ready(struct tri_sched *s)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->options.slots; i++) {
        struct tri_job *job = s->slot[i].job;
        if (!job)
            continue;
        if (job->count >= TRI_SCHED_RING_EVENTS)
            job->paused = true;
        bool waits = job->paused || s->slot[i].use != TRI__SLOT_FREE;
        if (s->slot[i].use != TRI__SLOT_LOADING)
            tri_sequence_pause(s->slot[i].sequence, waits);
        n += !waits;
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
    if (event.end != TRI_JOB_RUNS) {
        struct tri__sched_slot *slot = job->slot;
        tri__sched_leave_slot(s, job);
        if (s->keeper.folder && event.end != TRI_JOB_ERROR)
            keep(s, slot, TRI_KEEP_REPLY); /* without a folder the slot keeps it */
    }
    tri__job_tell(job, &event);
}

/* A step failed: whoever took part has ended and lost its state. */
static void tell_failure(struct tri_sched *s, const struct tri_error *failure)
{
    for (int64_t i = 0; i < s->options.slots; i++) {
        struct tri_job *job = s->slot[i].job;
        if (!job || s->slot[i].use != TRI__SLOT_FREE || tri_sequence_active(s->slot[i].sequence))
            continue;
        tri_fail(&job->error, failure->status, "%s", failure->text);
        tri__sched_leave_slot(s, job);
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
    s->stats.last_step_s = tri_clock_s();
}

static void count(struct tri_sched *s)
{
    struct tri_engine_counters now;
    s->stats.held_tokens = 0;
    for (int64_t i = 0; i < s->options.slots; i++)
        if (s->slot[i].use != TRI__SLOT_LOADING)
            s->stats.held_tokens += tri_sequence_computed(s->slot[i].sequence);
    tri_engine_count(s->engine, &now);
    count_step(s, &now);
    s->stats.engine = now;
    tri_model_expert_stats(s->model, &s->stats.experts);
}

/* Nothing to compute: for news, or, when somebody waits, until his patience may have ended. */
static void sleep_until_news(struct tri_sched *s)
{
    struct timespec t;
    if (!s->queue) {
        pthread_cond_wait(&s->changed, &s->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += 100000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&s->changed, &s->lock, &t);
}

/*
 * After a layer: is the step still for somebody? A step of a streamed model takes many seconds;
 * when all who take part in it have gone it is given up, at the cost of their states. Where one of
 * several has gone it goes on: it costs the others little, and giving it up would cost them their
 * states. Short steps end by themselves, and so does one that lacks only the head.
 */
static int on_layer(void *arg, int64_t layer, int64_t layers)
{
    struct tri_sched *s = arg;
    bool wanted = false;
    if (layer + 1 == layers || tri_clock_s() - s->step_began_s < TRI_SCHED_LONG_STEP_S)
        return 0;
    pthread_mutex_lock(&s->lock);
    for (int64_t i = 0; i < s->options.slots && !s->stopping; i++) {
        const struct tri_job *job = s->slot[i].job;
        wanted |= job && !job->cancelled && tri_sequence_in_step(s->slot[i].sequence);
    }
    pthread_mutex_unlock(&s->lock);
    return !wanted;
}

static void *run(void *arg)
{
    struct tri_sched *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        tri__sched_settle(s);
        end_cancelled(s);
        tri__sched_admit(s);
        int64_t n = ready(s);
        if (n == 0 && s->stopping)
            break;
        if (n == 0) {
            sleep_until_news(s);
            continue;
        }
        tri__sched_profile_begin(s);
        s->step_began_s = tri_clock_s();
        pthread_mutex_unlock(&s->lock);
        const struct tri_step_event *events = NULL;
        int64_t n_events = 0;
        struct tri_error failure = { 0 };
        enum tri_status st = tri_engine_step(s->engine, &events, &n_events, &failure);
        pthread_mutex_lock(&s->lock);
        if (st != TRI_OK && st != TRI_CANCELLED) /* cancelled: end_cancelled tells it */
            tell_failure(s, &failure);
        tri__sched_profile_end(s, events, n_events);
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
    if (st != TRI_OK)
        return st;
    uint64_t whole = tri_sequence_room_bytes(s->slot[0].sequence, s->options.context_tokens);
    s->stats.room_bytes = s->options.room_bytes;
    if (s->stats.room_bytes == 0)
        s->stats.room_bytes = whole * (uint64_t)s->options.slots;
    if (s->stats.room_bytes < whole)
        return tri_fail(err, TRI_BUDGET,
                        "a context of %lld tokens takes %.1f MiB, but there is "
                        "room for %.1f MiB",
                        (long long)s->options.context_tokens, (double)whole / 1048576,
                        (double)s->stats.room_bytes / 1048576);
    return TRI_OK;
}

static enum tri_status check_options(const struct tri_sched_options *o,
                                     const struct tri_model *model, struct tri_error *err)
{
    int64_t chunk = tri_model_chunk_tokens(model), slots = o->slots ? o->slots : 4;
    if (o->slots < 0 || o->slots > TRI_SCHED_MAX_SLOTS)
        return tri_fail(err, TRI_LIMIT, "%lld jobs together, at most %d", (long long)o->slots,
                        TRI_SCHED_MAX_SLOTS);
    if (o->queue < 0 || o->queue > TRI_SCHED_MAX_QUEUE)
        return tri_fail(err, TRI_LIMIT, "a queue of %lld, at most %d", (long long)o->queue,
                        TRI_SCHED_MAX_QUEUE);
    if (chunk < slots + TRI_MODEL_TILE_TOKENS)
        return tri_fail(err, TRI_LIMIT,
                        "a step of %lld tokens (--chunk) is too small for %lld requests together: "
                        "at least %lld",
                        (long long)chunk, (long long)slots,
                        (long long)(slots + TRI_MODEL_TILE_TOKENS));
    return TRI_OK;
}

/* Waits by the clock that nobody sets. */
static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t how;
    pthread_condattr_init(&how);
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &how);
    pthread_condattr_destroy(&how);
}

enum tri_status tri_sched_open(struct tri_sched **out, struct tri_engine *engine,
                               struct tri_model *model, struct tri_budget *budget,
                               const struct tri_sched_options *options, struct tri_error *err)
{
    enum tri_status st = check_options(options, model, err);
    if (st != TRI_OK)
        return st;
    struct tri_sched *s = tri_calloc(1, sizeof *s);
    if (!s)
        return tri_fail(err, TRI_NOMEM, "no memory for the scheduler");
    s->engine = engine;
    s->model = model;
    s->budget = budget;
    s->options = *options;
    s->options.slots = options->slots ? options->slots : 4;
    s->options.queue = options->queue ? options->queue : 256;
    s->options.along_s = options->along_s > 0 ? options->along_s : 30;
    if (options->folder_bytes == 0)
        s->options.folder_bytes = TRI_SCHED_FOLDER_BYTES;
    s->stats.slots = s->options.slots;
    s->stats.context_tokens = options->context_tokens;
    s->owners = 1;
    pthread_mutex_init(&s->lock, NULL);
    init_condition(&s->changed);
    pthread_cond_init(&s->keeper.changed, NULL);
    s->taps = (struct tri_taps){ .layer = on_layer, .arg = s };
    tri_engine_watch(engine, &s->taps);
    st = tri_prefixes_open(&s->tree, budget, err);
    if (st == TRI_OK)
        st = open_slots(s, err);
    if (st == TRI_OK)
        st = tri__keeper_open(s, err);
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

/* What only slots hold goes to the folder, to be found by the next process. */
static void save_slots(struct tri_sched *s)
{
    pthread_mutex_lock(&s->lock);
    for (int64_t i = 0; s->has_thread && i < s->options.slots; i++)
        if (s->slot[i].use == TRI__SLOT_FREE)
            (void)tri__keeper_save_slot(s, &s->slot[i], TRI_KEEP_REPLY);
    pthread_mutex_unlock(&s->lock);
}

void tri__sched_drop(struct tri_sched *s)
{
    pthread_mutex_lock(&s->lock);
    int64_t left = --s->owners;
    pthread_mutex_unlock(&s->lock);
    if (left > 0)
        return;
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    tri_free(s);
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
    tri_engine_watch(s->engine, NULL);
    save_slots(s);
    tri__keeper_close(s);
    for (int64_t i = 0; s->slot && i < s->options.slots; i++)
        tri_sequence_close(s->slot[i].sequence);
    tri__checkpoints_close(s);
    tri__sched_profile_close(s);
    tri_free(s->slot);
    s->slot = NULL;
    tri__sched_drop(s);
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
