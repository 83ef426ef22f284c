/* Inside the scheduler: slots, jobs, the checkpoint store. `lock` guards all of it but the engine
 * and its sequences, which belong to the scheduler's thread. */
#ifndef TRI_SCHED_PRIV_H
#define TRI_SCHED_PRIV_H

#include "sched/sched.h"

#include <pthread.h>

struct tri__sched_slot {
    struct tri_sequence *sequence;
    struct tri_job *job; /* NULL: idle, its state is kept */
    uint64_t salt, used; /* used: age of the last job here */
};

struct tri__sched_checkpoint {
    struct tri_state *state;
    int32_t *tokens;
    int64_t n_tokens;
    uint64_t bytes, salt, used;
};

struct tri_job {
    struct tri_sched *sched;
    struct tri_job *next; /* in the queue */
    struct tri_job_request request;
    int32_t *tokens;
    int32_t stop_ids[TRI_ENGINE_MAX_STOP_IDS];
    struct tri_logit_bias *bias;
    struct tri_job_event *ring; /* [TRI_SCHED_RING_EVENTS + 1]: the end always fits */
    size_t first, count;
    uint64_t number;
    size_t next_border;
    struct tri_job_facts facts;
    struct tri__sched_slot *slot;
    bool submitted, cancelled, ended, released, armed, paused;
    struct tri_error error;
};

struct tri_sched {
    struct tri_engine *engine;
    struct tri_model *model;
    struct tri_budget *budget;
    struct tri_sched_options options;
    pthread_t thread;
    bool has_thread, stopping;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct tri__sched_slot *slot; /* [options.slots] */
    struct tri_job *queue;        /* best first */
    struct tri__sched_checkpoint checkpoint[TRI_SCHED_MAX_CHECKPOINTS];
    uint64_t clock; /* counts uses, for eviction */
    struct tri_sched_stats stats;
};

double tri__sched_now_s(void);

/* job.c; with the lock held. An end frees the job if its owner has released it. */
void tri__job_tell(struct tri_job *job, const struct tri_job_event *event);
void tri__job_end(struct tri_job *job, enum tri_job_end end);
void tri__job_free(struct tri_job *job);

/* hit.c; with the lock held, on the scheduler's thread */
enum tri_status tri__sched_place(struct tri_sched *s, struct tri_job *job);

/* store.c; with the lock held, on the scheduler's thread */
struct tri__sched_checkpoint *tri__store_find(struct tri_sched *s, const struct tri_job *job,
                                              int64_t longer_than);
void tri__store_take(struct tri_sched *s, const struct tri_sequence *sequence, uint64_t salt);
void tri__store_close(struct tri_sched *s);

#endif
