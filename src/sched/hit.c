/*
 * Places a job on a slot: finds the longest state that begins its prompt, in idle slots and in the
 * store, and starts the sequence after it. The only code that decides how much is already computed.
 */
#include "sched/sched_priv.h"

#include <string.h>

/* Tokens of `slot`'s state when all of them begin the prompt and leave at least one to compute. */
static int64_t slot_hit(const struct tri__sched_slot *slot, const struct tri_job *job)
{
    int64_t all = 0, n = tri_sequence_computed(slot->sequence);
    const int32_t *tokens = tri_sequence_tokens(slot->sequence, &all);
    if (slot->salt != job->request.salt || n >= job->request.n_tokens ||
        memcmp(tokens, job->tokens, (size_t)n * sizeof *tokens) != 0)
        return 0;
    return n;
}

struct placed {
    struct tri__sched_slot *slot;
    int64_t hit;
};

/* The idle slot with the longest hit; without one the idle slot that was not used for longest. */
static struct placed best_slot(struct tri_sched *s, const struct tri_job *job)
{
    struct placed best = { NULL, 0 };
    for (int64_t i = 0; i < s->options.slots; i++) {
        struct tri__sched_slot *slot = &s->slot[i];
        if (slot->job)
            continue;
        int64_t hit = slot_hit(slot, job);
        if (!best.slot || hit > best.hit ||
            (hit == best.hit && best.hit == 0 && slot->used < best.slot->used))
            best = (struct placed){ slot, hit };
    }
    return best;
}

/* The oldest idle slot, its state saved if it is worth it. */
static struct tri__sched_slot *vacate(struct tri_sched *s, struct tri__sched_slot *hit_slot)
{
    struct tri__sched_slot *old = NULL;
    for (int64_t i = 0; i < s->options.slots; i++)
        if (!s->slot[i].job && (!old || s->slot[i].used < old->used))
            old = &s->slot[i];
    if (!old)
        old = hit_slot;
    tri__store_take(s, old->sequence, old->salt);
    return old;
}

static enum tri_status begin(struct tri_sched *s, struct tri_job *job, struct tri__sched_slot *slot)
{
    int64_t reused = 0;
    enum tri_status st = tri_sequence_prompt(slot->sequence, job->tokens, job->request.n_tokens,
                                             &reused, &job->error);
    if (st == TRI_OK)
        st = tri_sequence_start(slot->sequence, &job->request.how, &job->error);
    if (st != TRI_OK)
        return st;
    job->slot = slot;
    job->facts.cached_tokens = reused;
    job->facts.admitted_s = tri__sched_now_s();
    slot->job = job;
    slot->salt = job->request.salt;
    slot->used = ++s->clock;
    s->stats.query_tokens += (uint64_t)job->request.n_tokens;
    s->stats.hit_tokens += (uint64_t)reused;
    return TRI_OK;
}

enum tri_status tri__sched_place(struct tri_sched *s, struct tri_job *job)
{
    struct placed at = best_slot(s, job);
    TRI_ASSERT(at.slot);
    struct tri__sched_checkpoint *c = tri__store_find(s, job, at.hit);
    if (c) {
        c->used = ++s->clock;
        at.slot = vacate(s, at.slot);
        /* Making room for the vacated state may have dropped the very checkpoint. */
        c = tri__store_find(s, job, 0);
        if (c && tri_sequence_restore(at.slot->sequence, c->state, c->tokens, c->n_tokens, NULL) !=
                     TRI_OK)
            c = NULL;
        if (!c && slot_hit(at.slot, job) == 0)
            tri_sequence_clear(at.slot->sequence);
    } else if (at.hit == 0) {
        tri__store_take(s, at.slot->sequence, at.slot->salt);
        tri_sequence_clear(at.slot->sequence);
    }
    if (c)
        at.slot->salt = job->request.salt;
    return begin(s, job, at.slot);
}
