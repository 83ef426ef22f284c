/* Inside the scheduler: slots, jobs, checkpoints. `lock` guards all of it but the engine and its
 * sequences, which belong to the scheduler's thread, and the state of a busy slot, which belongs to
 * the keeper's. */
#ifndef TRI_SCHED_PRIV_H
#define TRI_SCHED_PRIV_H

#include "sched/sched.h"

#include <pthread.h>

/* What the keeper does with a slot's state, and what came of it (settled by the scheduler's
 * thread).
 */
enum tri__slot_use { TRI__SLOT_FREE, TRI__SLOT_LOADING, TRI__SLOT_SAVING };

struct tri__sched_slot {
    struct tri_sequence *sequence;
    struct tri_job *job; /* NULL: idle, its state is kept */
    struct tri_salt salt;
    uint64_t used; /* age of the last job here */
    uint64_t room_bytes;
    enum tri__slot_use use;
    enum tri_keep why;                  /* SAVING */
    struct tri__checkpoint *checkpoint; /* LOADING: what; SAVING and good: as what; pinned */
    bool done, good, leaving; /* done: the keeper is finished; leaving: the job makes room */
};

/* A state at one token boundary, in RAM, in a file, or both. Unused: at is NULL. */
struct tri__checkpoint {
    struct tri_prefix *at;
    int64_t n_tokens;
    struct tri_salt salt;
    enum tri_keep why;
    uint64_t used;
    int pins; /* being read or written, or owed to a job that made room: not evicted */
    struct tri_state *state;
    uint64_t bytes;      /* of RAM */
    uint64_t file_bytes; /* 0: no file */
    bool writing;
};

struct tri_job {
    struct tri_sched *sched;
    struct tri_job *next; /* in the queue */
    struct tri_job_request request;
    int32_t *tokens; /* [n_tokens]: the prompt, and what was sampled before the job made room */
    int64_t n_tokens;
    int32_t stop_ids[TRI_ENGINE_MAX_STOP_IDS];
    struct tri_logit_bias *bias;
    struct tri_scores scores;
    struct tri_job_event *ring; /* [TRI_SCHED_RING_EVENTS + 1]: the end always fits */
    size_t first, count;
    uint64_t number;
    size_t next_border;
    double kept_s; /* when a checkpoint of it was taken last, or it began */
    double queued_s;
    struct tri_job_facts facts;
    struct tri__sched_slot *slot;
    struct tri__checkpoint *out; /* its state since it made room; pinned */
    struct tri_job_profile profile;
    uint32_t *chosen; /* see tri_job_profile */
    bool submitted, cancelled, ended, released, armed, paused;
    bool stays; /* making room failed once */
    struct tri_error error;
};

struct tri__task {
    struct tri__sched_slot *slot;       /* its state is loaded or saved; or */
    struct tri__checkpoint *checkpoint; /* its state in RAM is saved, or */
    bool touch;                         /* only the order of use */
};

enum { TRI__SCHED_TASKS = TRI_SCHED_MAX_SLOTS + TRI_SCHED_MAX_WRITES };

struct tri__keeper {
    struct tri_state_folder *folder; /* NULL: no folder, no thread */
    pthread_t thread;
    bool has_thread, closing;
    pthread_cond_t changed;
    struct tri__task task[TRI__SCHED_TASKS];
    size_t first, count, writes; /* writes: checkpoints among them, and the one in hand */
};

struct tri_sched {
    struct tri_engine *engine;
    struct tri_model *model;
    struct tri_budget *budget;
    struct tri_sched_options options;
    pthread_t thread;
    bool has_thread, stopping;
    int64_t owners; /* whoever opened it, and every job; the last one out frees it */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct tri__sched_slot *slot; /* [options.slots] */
    struct tri_job *queue;        /* best first */
    struct tri_prefixes *tree;    /* of checkpoints */
    struct tri__checkpoint checkpoint[TRI_SCHED_MAX_CHECKPOINTS];
    size_t checkpoint_hint; /* an unused one is likely from here on */
    uint64_t clock;         /* counts uses, for eviction */
    struct tri__keeper keeper;
    struct tri_state *shape; /* an empty state, for the folder to look at */
    struct tri_sched_stats stats;
    struct tri_taps taps; /* of every step; routes only while a job is profiled */
    double step_began_s;
    struct tri__sched_profile *profile; /* NULL until a job asks for one */
};

static inline bool tri__same_salt(struct tri_salt x, struct tri_salt y)
{
    return x.a == y.a && x.b == y.b;
}

/* sched.c; without the lock: one owner less. */
void tri__sched_drop(struct tri_sched *s);

/* job.c; with the lock held. An end frees the job if its owner has released it; the scheduler
 * outlives that, its opener being an owner as long as its thread runs. */
void tri__job_tell(struct tri_job *job, const struct tri_job_event *event);
void tri__job_end(struct tri_job *job, enum tri_job_end end);
void tri__job_free(struct tri_job *job);
bool tri__job_ranks_before(const struct tri_job *a, const struct tri_job *b);
void tri__job_enqueue(struct tri_sched *s, struct tri_job *job);

/* job_profile.c; with the lock held, on the scheduler's thread, around a step */
void tri__sched_profile_begin(struct tri_sched *s);
void tri__sched_profile_end(struct tri_sched *s, const struct tri_step_event *events, int64_t n);
void tri__sched_profile_close(struct tri_sched *s);

/* hit.c; on the scheduler's thread, with the lock held */
struct tri__hit {
    enum tri_tier tier;
    int64_t tokens; /* 0: nothing is there */
    struct tri__sched_slot *slot;
    struct tri__checkpoint *checkpoint;
};
struct tri__hit tri__sched_hit(struct tri_sched *s, const struct tri_job *job);

/* sched.c: where the job's prefill must halt next */
void tri__sched_set_border(struct tri_sched *s, struct tri_job *job);

/* admit.c; on the scheduler's thread, with the lock held */
void tri__sched_admit(struct tri_sched *s);
void tri__sched_settle(struct tri_sched *s); /* slots that the keeper is finished with */
void tri__sched_leave_slot(struct tri_sched *s, struct tri_job *job);

/* checkpoints.c; on any thread, with the lock held */
/* The sequence's state into RAM, and from there to the folder. NULL: it did not fit, or nothing is
 * to be kept. */
struct tri__checkpoint *tri__keep(struct tri_sched *s, const struct tri_sequence *sequence,
                                  struct tri_salt salt, enum tri_keep why);
/* What a file now holds, or will: an entry of both tiers. NULL: no memory. */
struct tri__checkpoint *tri__checkpoint_for(struct tri_sched *s, const struct tri_kept *kept);
void tri__checkpoint_use(struct tri_sched *s, struct tri__checkpoint *c);
void tri__checkpoint_unpin(struct tri_sched *s, struct tri__checkpoint *c);
void tri__checkpoint_drop_ram(struct tri_sched *s, struct tri__checkpoint *c);
void tri__checkpoint_set_file(struct tri_sched *s, struct tri__checkpoint *c, uint64_t bytes);
bool tri__checkpoint_fits_folder(const struct tri_sched *s, uint64_t bytes);
/* A file to remove before `bytes` more are written, already forgotten here; *kept with its tokens
 * (tri_free). False: there is room. */
bool tri__checkpoint_evict_file(struct tri_sched *s, uint64_t bytes, struct tri_kept *kept);
int32_t *tri__checkpoint_tokens(const struct tri__checkpoint *c); /* NULL: no memory */
void tri__checkpoints_close(struct tri_sched *s);

/* keeper.c; tasks with the lock held */
enum tri_status tri__keeper_open(struct tri_sched *s, struct tri_error *err);
/* Waits for what is to be written, then ends the thread; without the lock. */
void tri__keeper_close(struct tri_sched *s);
void tri__keeper_write(struct tri_sched *s, struct tri__checkpoint *c); /* may leave it out */
void tri__keeper_touch(struct tri_sched *s, struct tri__checkpoint *c); /* its file was used */
bool tri__keeper_save_slot(struct tri_sched *s, struct tri__sched_slot *slot, enum tri_keep why);
void tri__keeper_load_slot(struct tri_sched *s, struct tri__sched_slot *slot,
                           struct tri__checkpoint *c);

#endif
