/* A job's life as its owner sees it: submit, read, cancel, release. */
#include "sched/sched_priv.h"

#include <string.h>
#include "base/clock.h"

void tri__job_free(struct tri_job *job)
{
    if (!job)
        return;
    if (job->submitted && job->request.drop_constraint)
        job->request.drop_constraint(job->request.how.constraint->arg);
    tri_free(job->tokens);
    tri_free(job->bias);
    tri_free(job->ring);
    tri_free(job->scores.chosen);
    tri_free(job->scores.top);
    tri_free(job->scores.rank);
    tri_free(job->chosen);
    tri_free(job);
}

static bool take_scores(struct tri_job *job)
{
    struct tri_scores *to = &job->scores;
    size_t n = (size_t)job->request.n_tokens;
    to->n_top = job->request.score_top;
    to->chosen = tri_calloc(n, sizeof *to->chosen);
    to->rank = tri_calloc(n, sizeof *to->rank);
    to->top = tri_calloc(n * (size_t)to->n_top + 1, sizeof *to->top);
    job->request.how.scores = to;
    return to->chosen && to->top && to->rank;
}

static enum tri_status copy_request(struct tri_job *job, const struct tri_job_request *r,
                                    struct tri_error *err)
{
    size_t n = (size_t)r->n_tokens;
    job->request = *r;
    job->tokens = tri_calloc(n, sizeof *job->tokens);
    job->ring = tri_calloc(TRI_SCHED_RING_EVENTS + 1, sizeof *job->ring);
    job->bias = tri_calloc((size_t)r->how.n_bias + 1, sizeof *job->bias);
    job->request.how.scores = NULL;
    if (!job->tokens || !job->ring || !job->bias || (r->score && !take_scores(job)))
        return tri_fail(err, TRI_NOMEM, "no memory for a request");
    memcpy(job->tokens, r->tokens, n * sizeof *job->tokens);
    job->n_tokens = r->n_tokens;
    for (int64_t i = 0; i < r->how.n_bias; i++)
        job->bias[i] = r->how.bias[i];
    for (int64_t i = 0; i < r->how.n_stop_ids; i++)
        job->stop_ids[i] = r->how.stop_ids[i];
    job->request.tokens = job->tokens;
    job->request.how.bias = job->bias;
    job->request.how.stop_ids = job->stop_ids;
    return TRI_OK;
}

static enum tri_status check_request(const struct tri_sched *s, const struct tri_job_request *r,
                                     struct tri_error *err)
{
    if (r->n_tokens < 1)
        return tri_fail(err, TRI_ARG, "the prompt has no tokens");
    if (r->n_tokens >= s->options.context_tokens)
        return tri_fail(err, TRI_LIMIT, "the prompt has %lld tokens, the context %lld",
                        (long long)r->n_tokens, (long long)s->options.context_tokens);
    if (r->how.n_stop_ids > TRI_ENGINE_MAX_STOP_IDS || r->how.n_bias > TRI_ENGINE_MAX_BIAS)
        return tri_fail(err, TRI_LIMIT, "too many stop ids or biases");
    if (r->how.top_logprobs < 0 || r->how.top_logprobs > TRI_ENGINE_MAX_TOP_LOGPROBS ||
        r->score_top < 0 || r->score_top > TRI_ENGINE_MAX_TOP_LOGPROBS)
        return tri_fail(err, TRI_LIMIT, "too many top log probabilities");
    TRI_ASSERT(r->n_borders <= TRI_SCHED_MAX_BORDERS);
    return TRI_OK;
}

/* Lower priority number, then who came first. */
bool tri__job_ranks_before(const struct tri_job *a, const struct tri_job *b)
{
    if (a->request.priority != b->request.priority)
        return a->request.priority < b->request.priority;
    return a->number < b->number;
}

void tri__job_enqueue(struct tri_sched *s, struct tri_job *job)
{
    struct tri_job **at = &s->queue;
    while (*at && tri__job_ranks_before(*at, job))
        at = &(*at)->next;
    job->next = *at;
    *at = job;
    job->queued_s = tri_clock_s();
    s->stats.waiting++;
}

enum tri_status tri_job_submit(struct tri_job **out, struct tri_sched *sched,
                               const struct tri_job_request *request, struct tri_error *err)
{
    struct tri_sched *s = sched;
    enum tri_status st = check_request(s, request, err);
    if (st != TRI_OK)
        return st;
    struct tri_job *job = tri_calloc(1, sizeof *job);
    if (!job)
        return tri_fail(err, TRI_NOMEM, "no memory for a request");
    job->sched = s;
    job->facts.prompt_tokens = request->n_tokens;
    job->facts.submitted_s = tri_clock_s();
    st = copy_request(job, request, err);
    if (st == TRI_OK) {
        pthread_mutex_lock(&s->lock);
        if (s->stopping)
            st = tri_fail(err, TRI_CANCELLED, "the server is closing");
        else if (s->stats.waiting >= s->options.queue)
            st = tri_fail(err, TRI_BUSY, "%lld requests are waiting already",
                          (long long)s->stats.waiting);
        if (st == TRI_OK) {
            job->number = s->stats.submitted++;
            s->owners++;
            job->armed = job->submitted = true;
            tri__job_enqueue(s, job);
            pthread_cond_signal(&s->changed);
        } else {
            s->stats.rejected++;
        }
        pthread_mutex_unlock(&s->lock);
    }
    if (st == TRI_OK)
        *out = job;
    else
        tri__job_free(job);
    return st;
}

void tri__job_tell(struct tri_job *job, const struct tri_job_event *event)
{
    TRI_ASSERT(!job->ended && job->count <= TRI_SCHED_RING_EVENTS);
    job->ring[(job->first + job->count++) % (TRI_SCHED_RING_EVENTS + 1)] = *event;
    if (event->token >= 0 && job->facts.first_token_s == 0)
        job->facts.first_token_s = tri_clock_s();
    if (event->end != TRI_JOB_RUNS) {
        job->ended = true;
        if (job->out)
            tri__checkpoint_unpin(job->sched, job->out);
        job->out = NULL;
        job->facts.ended_s = tri_clock_s();
        job->sched->stats.finished++;
        job->sched->stats.failed += event->end == TRI_JOB_ERROR;
    }
    if (job->released) {
        if (job->ended) {
            job->sched->owners--; /* not the last: its thread runs */
            tri__job_free(job);
        }
    } else if (job->armed) {
        job->armed = false;
        job->request.wake(job->request.arg);
    }
}

void tri__job_end(struct tri_job *job, enum tri_job_end end)
{
    const struct tri_job_event event = { .token = -1, .end = end };
    tri__job_tell(job, &event);
}

bool tri_job_read(struct tri_job *job, struct tri_job_event *out)
{
    struct tri_sched *s = job->sched;
    pthread_mutex_lock(&s->lock);
    bool any = job->count > 0;
    if (any) {
        *out = job->ring[job->first];
        job->first = (job->first + 1) % (TRI_SCHED_RING_EVENTS + 1);
        job->count--;
        if (job->paused && job->count <= TRI_SCHED_RING_EVENTS / 2) {
            job->paused = false;
            pthread_cond_signal(&s->changed);
        }
    } else {
        job->armed = true;
    }
    pthread_mutex_unlock(&s->lock);
    return any;
}

void tri_job_facts(struct tri_job *job, struct tri_job_facts *out)
{
    pthread_mutex_lock(&job->sched->lock);
    *out = job->facts;
    pthread_mutex_unlock(&job->sched->lock);
}

const struct tri_scores *tri_job_scores(const struct tri_job *job)
{
    return job->request.how.scores;
}

void tri_job_cancel(struct tri_job *job)
{
    pthread_mutex_lock(&job->sched->lock);
    job->cancelled = true;
    pthread_cond_signal(&job->sched->changed);
    pthread_mutex_unlock(&job->sched->lock);
}

const struct tri_error *tri_job_error(const struct tri_job *job)
{
    return &job->error;
}

void tri_job_release(struct tri_job *job)
{
    if (!job)
        return;
    struct tri_sched *s = job->sched;
    pthread_mutex_lock(&s->lock);
    bool ended = job->ended;
    job->released = !ended;
    job->cancelled = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (ended) {
        tri__job_free(job);
        tri__sched_drop(s);
    }
}
