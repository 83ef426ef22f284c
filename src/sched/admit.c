/*
 * Admission: which job gets which slot, with what of its prompt computed already, and who has to
 * make room for it. A job enters only with room for its longest possible end.
 */
#include "sched/sched_priv.h"

#include <string.h>
#include "base/clock.h"

/* --- slots and their room -------------------------------------------------------------------- */

static int64_t most_tokens(const struct tri_sched *s, const struct tri_job *job)
{
    int64_t context = s->options.context_tokens, more = job->request.how.max_tokens;
    int64_t left = context - job->request.n_tokens;
    return job->request.n_tokens + (more > 0 && more < left ? more : left);
}

static enum tri_status set_room(struct tri_sched *s, struct tri__sched_slot *slot, int64_t tokens,
                                struct tri_error *err)
{
    enum tri_status st = tri_sequence_make_room(slot->sequence, tokens, err);
    if (st != TRI_OK)
        return st;
    s->stats.room_used_bytes -= slot->room_bytes;
    slot->room_bytes = tri_sequence_room_bytes(slot->sequence, tokens);
    s->stats.room_used_bytes += slot->room_bytes;
    return TRI_OK;
}

/* Gives back what an idle slot does not hold; less is always possible. */
static void trim(struct tri_sched *s, struct tri__sched_slot *slot)
{
    (void)!set_room(s, slot, tri_sequence_computed(slot->sequence), NULL);
}

static bool is_idle(const struct tri__sched_slot *slot)
{
    return !slot->job && slot->use == TRI__SLOT_FREE;
}

/* Empties an idle slot; its state is kept if there is room for it. */
static void vacate(struct tri_sched *s, struct tri__sched_slot *slot)
{
    tri__keep(s, slot->sequence, slot->salt, TRI_KEEP_REPLY);
    tri_sequence_clear(slot->sequence);
    trim(s, slot);
}

/* The idle slot that was not used for longest, empty ones first; but `not`. */
static struct tri__sched_slot *oldest_idle(struct tri_sched *s, const struct tri__sched_slot * not,
                                           bool with_room)
{
    struct tri__sched_slot *old = NULL;
    for (int64_t i = 0; i < s->options.slots; i++) {
        struct tri__sched_slot *slot = &s->slot[i];
        if (slot == not || !is_idle(slot) || (with_room && slot->room_bytes == 0))
            continue;
        bool empty = slot->room_bytes == 0;
        if (!old || (empty != (old->room_bytes == 0) ? empty : slot->used < old->used))
            old = slot;
    }
    return old;
}

/* `need` bytes could be had if all idle slots, and busy ones with `given` bytes, gave theirs. */
static bool could_fit(const struct tri_sched *s, uint64_t need, uint64_t given)
{
    uint64_t busy = 0;
    for (int64_t i = 0; i < s->options.slots; i++)
        busy += is_idle(&s->slot[i]) ? 0 : s->slot[i].room_bytes;
    return busy - given + need <= s->stats.room_bytes;
}

/* Room for `tokens` in a slot, if need be from other idle ones. */
static bool find_room(struct tri_sched *s, struct tri__sched_slot *slot, int64_t tokens)
{
    uint64_t need = tri_sequence_room_bytes(slot->sequence, tokens);
    while (s->stats.room_used_bytes - slot->room_bytes + need > s->stats.room_bytes) {
        struct tri__sched_slot *other = oldest_idle(s, slot, true);
        if (!other)
            return false;
        vacate(s, other);
    }
    return set_room(s, slot, tokens, NULL) == TRI_OK;
}

/* --- beginning ------------------------------------------------------------------------------- */

static void count_hit(struct tri_sched *s, struct tri_job *job, enum tri_tier tier, int64_t tokens)
{
    if (job->facts.admitted_s > 0)
        return; /* it comes back after making room: counted when it first came */
    job->facts.cached_tokens = tokens;
    job->facts.admitted_s = tri_clock_s();
    s->stats.query_tokens += (uint64_t)job->request.n_tokens;
    s->stats.hit_tokens += (uint64_t)tokens;
    s->stats.hit_tokens_of[tier] += (uint64_t)tokens;
}

/* The slot's sequence holds what could be found: the rest is computed by steps. */
static enum tri_status begin(struct tri_sched *s, struct tri_job *job, enum tri_tier tier)
{
    struct tri__sched_slot *slot = job->slot;
    int64_t reused = 0;
    enum tri_status st =
        tri_sequence_prompt(slot->sequence, job->tokens, job->n_tokens, &reused, &job->error);
    if (st == TRI_OK)
        st = tri_sequence_resume(slot->sequence, &job->request.how, job->request.n_tokens,
                                 &job->error);
    if (st != TRI_OK)
        return st;
    count_hit(s, job, tier, reused);
    job->kept_s = tri_clock_s();
    job->next_border = 0;
    tri__sched_set_border(s, job);
    if (job->out) {
        struct tri__checkpoint *out = job->out;
        job->out = NULL;
        if (out->why == TRI_KEEP_OUT && !out->writing)
            tri__checkpoint_drop_ram(s, out); /* of use to nobody else */
        tri__checkpoint_unpin(s, out);
    }
    return TRI_OK;
}

static void take_slot(struct tri_sched *s, struct tri_job *job, struct tri__sched_slot *slot)
{
    job->slot = slot;
    slot->job = job;
    slot->salt = job->request.salt;
    slot->used = ++s->clock;
    if (s->stats.running++ == 0) /* idle time is no step's age */
        s->stats.last_step_s = tri_clock_s();
}

/* A sequence that nobody wants to go on. */
static void rest(struct tri_sched *s, struct tri__sched_slot *slot)
{
    tri_sequence_stop(slot->sequence);
    tri_sequence_pause(slot->sequence, false);
    tri_sequence_halt(slot->sequence, 0);
    trim(s, slot);
}

void tri__sched_leave_slot(struct tri_sched *s, struct tri_job *job)
{
    struct tri__sched_slot *slot = job->slot;
    if (slot->use == TRI__SLOT_FREE)
        rest(s, slot); /* otherwise when the keeper is finished with it */
    slot->job = NULL;
    slot->leaving = false;
    slot->used = ++s->clock;
    job->slot = NULL;
    s->stats.running--;
}

enum placing { PLACED, NO_SLOT, NO_ROOM, FAILED };

/* A hit in RAM or a file is pinned by the caller. */
static enum placing fill(struct tri_sched *s, struct tri_job *job, const struct tri__hit *hit)
{
    struct tri__sched_slot *slot = hit->slot ? hit->slot : oldest_idle(s, NULL, false);
    if (!slot)
        return NO_SLOT;
    if (!could_fit(s, tri_sequence_room_bytes(slot->sequence, most_tokens(s, job)), 0))
        return NO_ROOM;
    if (slot != hit->slot)
        vacate(s, slot);
    if (!find_room(s, slot, most_tokens(s, job)))
        return NO_ROOM;
    take_slot(s, job, slot);
    if (hit->tokens && hit->tier == TRI_TIER_DISK) {
        tri__keeper_load_slot(s, slot, hit->checkpoint);
        return PLACED;
    }
    if (hit->tokens && hit->tier == TRI_TIER_RAM) {
        struct tri__checkpoint *c = hit->checkpoint;
        TRI_ASSERT(c); /* that is what the tier says */
        int32_t *tokens = tri__checkpoint_tokens(c);
        if (!tokens || tri_sequence_restore(slot->sequence, c->state, tokens, c->n_tokens, NULL))
            tri_sequence_clear(slot->sequence);
        tri_free(tokens);
        tri__checkpoint_use(s, c);
        tri__keeper_touch(s, c);
    }
    if (begin(s, job, hit->tier) == TRI_OK)
        return PLACED;
    tri__sched_leave_slot(s, job);
    return FAILED;
}

static enum placing place(struct tri_sched *s, struct tri_job *job)
{
    struct tri__hit hit = tri__sched_hit(s, job);
    if (hit.checkpoint)
        hit.checkpoint->pins++; /* making room for the job must not drop what it needs */
    enum placing result = fill(s, job, &hit);
    if (hit.checkpoint)
        tri__checkpoint_unpin(s, hit.checkpoint);
    return result;
}

/* --- making room ------------------------------------------------------------------------------ */

static bool may_send_back(const struct tri_job *waiting, const struct tri_job *running, double now)
{
    if (running->stays || running->slot->leaving || running->slot->use != TRI__SLOT_FREE)
        return false;
    if (waiting->request.priority != running->request.priority)
        return waiting->request.priority < running->request.priority;
    bool patient = now - waiting->queued_s >= TRI_SCHED_PATIENCE_S;
    return patient && (running->paused || waiting->number < running->number);
}

/* The running job that ranks last of those which must make room for this one. */
static struct tri_job *last_of(struct tri_sched *s, const struct tri_job *waiting, uint64_t *bytes)
{
    struct tri_job *last = NULL;
    double now = tri_clock_s();
    *bytes = 0;
    for (int64_t i = 0; i < s->options.slots; i++) {
        struct tri_job *job = s->slot[i].job;
        if (!job || !may_send_back(waiting, job, now))
            continue;
        *bytes += s->slot[i].room_bytes;
        if (!last || (job->paused != last->paused ? job->paused : tri__job_ranks_before(last, job)))
            last = job;
    }
    return last;
}

/* What was sampled so far becomes part of the job's tokens, and the job waits again. */
static bool send_back(struct tri_sched *s, struct tri_job *job)
{
    int64_t n = 0;
    const int32_t *held = tri_sequence_tokens(job->slot->sequence, &n);
    int32_t *tokens = tri_calloc((size_t)n, sizeof *tokens);
    if (!tokens)
        return false;
    memcpy(tokens, held, (size_t)n * sizeof *tokens);
    tri_free(job->tokens);
    job->tokens = tokens;
    job->request.tokens = tokens;
    job->n_tokens = n;
    tri__sched_leave_slot(s, job);
    tri__job_enqueue(s, job);
    s->stats.preempted++;
    return true;
}

/* Its state goes to RAM at once, or to the folder while it pauses. False: it stays. */
static bool make_way(struct tri_sched *s, struct tri_job *job)
{
    struct tri__sched_slot *slot = job->slot;
    if (tri_sequence_computed(slot->sequence) == 0)
        return send_back(s, job);
    struct tri__checkpoint *c = tri__keep(s, slot->sequence, slot->salt, TRI_KEEP_OUT);
    if (c) {
        c->pins++;
        if (!send_back(s, job)) {
            tri__checkpoint_unpin(s, c);
            return false;
        }
        job->out = c;
        return true;
    }
    if (!tri__keeper_save_slot(s, slot, TRI_KEEP_OUT))
        return false;
    slot->leaving = true;
    tri_sequence_pause(slot->sequence, true);
    return true;
}

/* True: somebody makes room for this job, or soon will have. */
static bool ask_for_way(struct tri_sched *s, struct tri_job *waiting, enum placing why)
{
    uint64_t bytes = 0;
    struct tri_job *last = last_of(s, waiting, &bytes);
    if (!last)
        return false;
    uint64_t need = tri_sequence_room_bytes(s->slot[0].sequence, most_tokens(s, waiting));
    if (why == NO_ROOM && !could_fit(s, need, bytes))
        return false; /* it would not be enough */
    if (make_way(s, last))
        return true;
    last->stays = true;
    return false;
}

/* --- admission -------------------------------------------------------------------------------- */

static void dequeue(struct tri_sched *s, struct tri_job *job)
{
    struct tri_job **at = &s->queue;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    job->next = NULL;
    s->stats.waiting--;
}

static bool any_leaving(const struct tri_sched *s)
{
    for (int64_t i = 0; i < s->options.slots; i++)
        if (s->slot[i].leaving)
            return true;
    return false;
}

static bool all_idle(const struct tri_sched *s)
{
    for (int64_t i = 0; i < s->options.slots; i++)
        if (!is_idle(&s->slot[i]))
            return false;
    return true;
}

/* Places one job if it can be. False: nobody after it can either. */
static bool try_job(struct tri_sched *s, struct tri_job *job)
{
    enum placing result = place(s, job);
    while ((result == NO_SLOT || result == NO_ROOM) && !any_leaving(s) &&
           ask_for_way(s, job, result) && !any_leaving(s))
        result = place(s, job);
    if (result == NO_ROOM && all_idle(s)) {
        tri_fail(&job->error, TRI_BUDGET, "there is no memory for %lld tokens",
                 (long long)most_tokens(s, job));
        result = FAILED;
    }
    if (result == PLACED || result == FAILED)
        dequeue(s, job);
    if (result == FAILED)
        tri__job_end(job, TRI_JOB_ERROR);
    return result != NO_SLOT && !any_leaving(s);
}

void tri__sched_admit(struct tri_sched *s)
{
    /* Who needs little room may pass one who waits for much: that one's patience ends it. A job
     * whose reader is behind has nothing to compute for. */
    for (struct tri_job *job = s->queue, *next; job; job = next) {
        next = job->next;
        if (!job->paused && !try_job(s, job))
            break;
    }
}

/* --- what the keeper has finished --------------------------------------------------------------
 */

static void loaded(struct tri_sched *s, struct tri__sched_slot *slot)
{
    struct tri_job *job = slot->job;
    if (slot->checkpoint)
        tri__checkpoint_unpin(s, slot->checkpoint);
    slot->checkpoint = NULL;
    if (!slot->good)
        tri_sequence_clear(slot->sequence);
    if (!job) {
        rest(s, slot);
        return;
    }
    if (slot->good) {
        tri__keep(s, slot->sequence, slot->salt, TRI_KEEP_BORDER); /* next time from RAM */
        if (begin(s, job, TRI_TIER_DISK) == TRI_OK)
            return;
        tri__sched_leave_slot(s, job);
        tri__job_end(job, TRI_JOB_ERROR);
        return;
    }
    tri__sched_leave_slot(s, job);
    tri__job_enqueue(s, job); /* without that file */
}

static void saved(struct tri_sched *s, struct tri__sched_slot *slot)
{
    struct tri_job *job = slot->job;
    struct tri__checkpoint *c = slot->checkpoint;
    bool leaving = slot->leaving;
    slot->leaving = false;
    slot->checkpoint = NULL;
    if (!job)
        rest(s, slot);
    else if (leaving && slot->good && send_back(s, job))
        job->out = c;
    else
        job->stays |= leaving;
    if (c && !(job && job->out == c))
        tri__checkpoint_unpin(s, c);
}

void tri__sched_settle(struct tri_sched *s)
{
    for (int64_t i = 0; i < s->options.slots; i++) {
        struct tri__sched_slot *slot = &s->slot[i];
        enum tri__slot_use use = slot->use;
        if (use == TRI__SLOT_FREE || !slot->done)
            continue;
        slot->use = TRI__SLOT_FREE;
        if (use == TRI__SLOT_LOADING)
            loaded(s, slot);
        else
            saved(s, slot);
    }
}
