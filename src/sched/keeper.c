/*
 * The keeper: a thread that reads and writes the folder of checkpoints, so that steps never wait
 * for a drive. It works on states that nobody changes meanwhile: pinned checkpoints in RAM, and
 * slots that are marked as in use by it. A failure costs a checkpoint and is counted, nothing more.
 */
#include "sched/sched_priv.h"

#include <string.h>

static bool push(struct tri_sched *s, struct tri__task task)
{
    struct tri__keeper *k = &s->keeper;
    if (!k->has_thread || k->closing || k->count == TRI__SCHED_TASKS)
        return false;
    k->task[(k->first + k->count++) % TRI__SCHED_TASKS] = task;
    pthread_cond_signal(&k->changed);
    return true;
}

void tri__keeper_write(struct tri_sched *s, struct tri__checkpoint *c)
{
    struct tri__keeper *k = &s->keeper;
    if (!k->folder || c->writing)
        return;
    if (k->writes >= TRI_SCHED_MAX_WRITES || !push(s, (struct tri__task){ .checkpoint = c })) {
        s->stats.disk_left_out++;
        return;
    }
    k->writes++;
    c->writing = true;
    c->pins++;
}

void tri__keeper_touch(struct tri_sched *s, struct tri__checkpoint *c)
{
    if (c->file_bytes && push(s, (struct tri__task){ .checkpoint = c, .touch = true }))
        c->pins++;
}

bool tri__keeper_save_slot(struct tri_sched *s, struct tri__sched_slot *slot, enum tri_keep why)
{
    TRI_ASSERT(slot->use == TRI__SLOT_FREE);
    if (!s->keeper.folder || tri_sequence_computed(slot->sequence) < 1 ||
        !push(s, (struct tri__task){ .slot = slot }))
        return false;
    slot->use = TRI__SLOT_SAVING;
    slot->why = why;
    slot->checkpoint = NULL;
    slot->done = slot->good = false;
    return true;
}

void tri__keeper_load_slot(struct tri_sched *s, struct tri__sched_slot *slot,
                           struct tri__checkpoint *c)
{
    TRI_ASSERT(slot->use == TRI__SLOT_FREE);
    slot->use = TRI__SLOT_LOADING;
    slot->checkpoint = c;
    slot->done = slot->good = false;
    c->pins++;
    if (!push(s, (struct tri__task){ .slot = slot }))
        slot->done = true; /* settled as a load that failed */
}

/* --- the work -------------------------------------------------------------------------------- */

/* Files go until `bytes` more fit. False: they cannot. */
static bool make_folder_room(struct tri_sched *s, uint64_t bytes)
{
    struct tri_kept old;
    while (tri__checkpoint_evict_file(s, bytes, &old)) {
        pthread_mutex_unlock(&s->lock);
        tri_state_folder_remove(s->keeper.folder, &old);
        tri_free((void *)(uintptr_t)old.tokens);
        pthread_mutex_lock(&s->lock);
    }
    return tri__checkpoint_fits_folder(s, bytes);
}

/* Writes one file; the lock is free meanwhile. The checkpoint is pinned. */
static bool write_file(struct tri_sched *s, struct tri__checkpoint *c, const struct tri_kept *kept,
                       const struct tri_state *state)
{
    uint64_t bytes = tri_state_file_bytes(state);
    if (!make_folder_room(s, bytes)) {
        s->stats.disk_failures++;
        return false;
    }
    pthread_mutex_unlock(&s->lock);
    enum tri_status st = tri_state_folder_save(s->keeper.folder, kept, state, NULL);
    pthread_mutex_lock(&s->lock);
    if (st != TRI_OK) {
        s->stats.disk_failures++;
        return false;
    }
    tri__checkpoint_set_file(s, c, bytes);
    s->stats.disk.taken++;
    s->stats.disk_written_bytes += bytes;
    return true;
}

static void save_checkpoint(struct tri_sched *s, struct tri__checkpoint *c)
{
    int32_t *tokens = tri__checkpoint_tokens(c);
    const struct tri_kept kept = { c->salt, c->why, tokens, c->n_tokens };
    if (!tokens || !write_file(s, c, &kept, c->state))
        s->stats.disk_failures += !tokens;
    tri_free(tokens);
    c->writing = false;
    s->keeper.writes--;
    tri__checkpoint_unpin(s, c);
}

static void save_slot(struct tri_sched *s, struct tri__sched_slot *slot)
{
    int64_t all = 0, n = tri_sequence_computed(slot->sequence);
    const struct tri_kept kept = { slot->salt, slot->why, tri_sequence_tokens(slot->sequence, &all),
                                   n };
    struct tri__checkpoint *c = tri__checkpoint_for(s, &kept);
    if (!c)
        return;
    c->pins++;
    slot->good = c->file_bytes || write_file(s, c, &kept, tri_sequence_state(slot->sequence));
    if (slot->good)
        slot->checkpoint = c;
    else
        tri__checkpoint_unpin(s, c);
}

static void touch(struct tri_sched *s, struct tri__checkpoint *c)
{
    int32_t *tokens = tri__checkpoint_tokens(c);
    const struct tri_kept kept = { c->salt, c->why, tokens, c->n_tokens };
    if (tokens) {
        pthread_mutex_unlock(&s->lock);
        tri_state_folder_touch(s->keeper.folder, &kept);
        pthread_mutex_lock(&s->lock);
    }
    tri_free(tokens);
    tri__checkpoint_unpin(s, c);
}

static void load_slot(struct tri_sched *s, struct tri__sched_slot *slot)
{
    struct tri__checkpoint *c = slot->checkpoint;
    int32_t *tokens = tri__checkpoint_tokens(c);
    const struct tri_kept kept = { c->salt, c->why, tokens, c->n_tokens };
    uint64_t bytes = c->file_bytes;
    bool good = false;
    if (tokens && bytes) {
        pthread_mutex_unlock(&s->lock);
        good = tri_state_folder_load(s->keeper.folder, &kept, tri_sequence_state(slot->sequence),
                                     NULL) == TRI_OK;
        if (good)
            tri_sequence_adopt(slot->sequence, tokens, kept.n_tokens);
        pthread_mutex_lock(&s->lock);
        s->stats.disk_damaged += !good;
        s->stats.disk_read_bytes += good ? bytes : 0;
        if (!good)
            tri__checkpoint_set_file(s, c, 0);
    }
    slot->good = good;
    tri_free(tokens);
}

static void *run(void *arg)
{
    struct tri_sched *s = arg;
    struct tri__keeper *k = &s->keeper;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        if (k->count == 0 && k->closing)
            break;
        if (k->count == 0) {
            pthread_cond_wait(&k->changed, &s->lock);
            continue;
        }
        struct tri__task task = k->task[k->first];
        k->first = (k->first + 1) % TRI__SCHED_TASKS;
        k->count--;
        if (task.touch)
            touch(s, task.checkpoint);
        else if (task.checkpoint)
            save_checkpoint(s, task.checkpoint);
        else if (task.slot->use == TRI__SLOT_LOADING)
            load_slot(s, task.slot);
        else
            save_slot(s, task.slot);
        if (task.slot) {
            task.slot->done = true;
            pthread_cond_signal(&s->changed);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- opening --------------------------------------------------------------------------------- */

static bool found(void *arg, const struct tri_state_found *file)
{
    struct tri_sched *s = arg;
    struct tri__checkpoint *c = tri__checkpoint_for(s, &file->kept);
    if (c)
        tri__checkpoint_set_file(s, c, file->file_bytes);
    return c != NULL;
}

enum tri_status tri__keeper_open(struct tri_sched *s, struct tri_error *err)
{
    struct tri__keeper *k = &s->keeper;
    if (!s->options.folder)
        return TRI_OK;
    enum tri_status st = tri_model_state(s->model, 1, &s->shape, err);
    if (st == TRI_OK)
        st = tri_state_folder_open(&k->folder, s->options.folder, s->shape,
                                   tri_model_state_fingerprint(s->model), err);
    if (st == TRI_OK)
        st = tri_state_folder_scan(k->folder, found, s, &s->stats.disk_damaged, err);
    if (st == TRI_OK) {
        pthread_mutex_lock(&s->lock);
        (void)make_folder_room(s, 0); /* the cap may be lower than last time */
        pthread_mutex_unlock(&s->lock);
    }
    if (st == TRI_OK && pthread_create(&k->thread, NULL, run, s) != 0)
        st = tri_fail(err, TRI_NOMEM, "no thread for checkpoints");
    k->has_thread = st == TRI_OK;
    return st;
}

void tri__keeper_close(struct tri_sched *s)
{
    struct tri__keeper *k = &s->keeper;
    if (k->has_thread) {
        pthread_mutex_lock(&s->lock);
        k->closing = true;
        pthread_cond_signal(&k->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(k->thread, NULL);
    }
    tri_state_folder_close(k->folder);
    tri_state_close(s->shape);
    pthread_cond_destroy(&k->changed);
}
