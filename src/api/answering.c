/*
 * One request being answered: its jobs, what they tell, through choice.c to the dialect's format,
 * and its end.
 */
#include "api/api_priv.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"

/* Clients must hear something within 1 s, then every 10 s; a tick may come 0.25 s late. */
static const double first_silence_s = 0.7, later_silence_s = 8;

/* --- making and unmaking --------------------------------------------------------------------- */

struct tri__exchange *tri__exchange_new(struct tri_api *api, struct tri_http_request *request,
                                        const struct tri__endpoint *endpoint)
{
    struct tri__exchange *x = tri_calloc(1, sizeof *x);
    char hex[25];
    if (!x) {
        struct tri__fault fault = { 0 };
        tri__fault_is(&fault, 503, "no_memory", "no memory for this request now");
        tri__fault_reply(request, &fault, endpoint->format->anthropic);
        return NULL;
    }
    x->api = api;
    x->request = request;
    x->endpoint = endpoint;
    x->format = endpoint->format;
    x->text = tri_http_take_body(request);
    x->profile = tri__profile_asked(tri_http_head(request));
    x->begin_s = x->last_write_s = tri_clock_s();
    x->created = (int64_t)time(NULL);
    x->p.salt = tri__salt_of_key(api, request);
    tri_buf_init(&x->out, TRI__API_MAX_OUT_BYTES);
    tri__random_hex(hex, 24);
    snprintf(x->id, sizeof x->id, "%s%s", endpoint->id_prefix, hex);
    return x;
}

void tri__exchange_free(struct tri__exchange *x)
{
    if (!x)
        return;
    for (int64_t i = 0; i < x->n_choices; i++)
        tri__choice_fini(&x->choice[i]);
    if (x->prev)
        x->prev->next = x->next;
    else if (x->api->first == x)
        x->api->first = x->next;
    if (x->next)
        x->next->prev = x->prev;
    tri_free(x->choice);
    tri_prompt_close(x->prompt);
    tri_grammar_drop(x->grammar);
    tri_ids_fini(&x->ids);
    tri__params_fini(&x->p);
    tri_buf_fini(&x->out);
    tri_buf_fini(&x->text);
    json_decref(x->body);
    tri_free(x);
}

void tri__exchange_refuse(struct tri__exchange *x, const struct tri__fault *fault)
{
    tri__fault_reply(x->request, fault, x->format->anthropic);
    tri__exchange_free(x);
}

/* Frees a finished exchange as soon as no wake-up for it is on its way. */
static void let_go(struct tri__exchange *x)
{
    for (int64_t i = 0; x->choice && i < x->n_choices; i++) {
        tri_job_release(x->choice[i].job); /* from here on nobody wakes this exchange */
        x->choice[i].job = NULL;
        x->choice[i].done = true;
    }
    x->left = 0;
    if (atomic_load(&x->posts) == 0)
        tri__exchange_free(x);
}

static void on_gone(void *arg)
{
    struct tri__exchange *x = arg;
    double now = tri_clock_s();
    x->request = NULL;
    for (int64_t i = 0; i < x->n_choices; i++)
        if (!x->choice[i].done)
            tri__gauges_request(x->api->gauges, &x->choice[i], "abort", now - x->begin_s);
    let_go(x);
}

/* --- writing --------------------------------------------------------------------------------- */

void tri__exchange_flush(struct tri__exchange *x)
{
    if (x->request && x->out.len_bytes) {
        tri_http_write(x->request, x->out.data, x->out.len_bytes);
        x->last_write_s = tri_clock_s();
        x->silent = false;
    }
    tri_buf_clear(&x->out);
}

static void end_stream(struct tri__exchange *x)
{
    struct tri_http_request *q = x->request;
    tri__exchange_flush(x);
    x->request = NULL;
    let_go(x);
    tri_http_end(q);
}

static void end_with_fault(struct tri__exchange *x, const struct tri__fault *fault)
{
    struct tri_http_request *q = x->request;
    const struct tri_http_watch none = { 0 };
    tri_http_watch(q, &none);
    if (x->began) {
        if (x->out.failed)
            tri_buf_clear(&x->out);
        x->format->error(x, fault);
        end_stream(x);
        return;
    }
    bool anthropic = x->format->anthropic;
    x->request = NULL;
    let_go(x);
    tri__fault_reply(q, fault, anthropic);
}

static void count_longest(const struct tri__exchange *x)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < x->n_choices; i++)
        if (x->choice[i].completion_tokens > longest)
            longest = x->choice[i].completion_tokens;
    tri__gauges_longest(x->api->gauges, longest);
}

/* What found no room in a buffer is told as a fault, never left out. */
static bool is_whole(const struct tri__exchange *x)
{
    for (int64_t i = 0; i < x->n_choices; i++)
        if (!tri__choice_is_whole(&x->choice[i]))
            return false;
    return !x->out.failed;
}

static void end_cut(struct tri__exchange *x)
{
    struct tri__fault fault = { 0 };
    tri__fault_is(&fault, 500, "internal",
                  "the answer is too large, or memory for it is lacking: ask for less at once");
    end_with_fault(x, &fault);
}

static void end_well(struct tri__exchange *x)
{
    struct tri_http_request *q = x->request;
    const struct tri_http_watch none = { 0 };
    struct tri_buf out;
    tri_http_watch(q, &none);
    count_longest(x);
    tri_buf_init(&out, TRI__API_MAX_OUT_BYTES);
    if (x->p.stream) {
        x->format->end(x);
    } else {
        x->format->whole(x, &out);
        tri_buf_putc(&out, '\n');
    }
    if (out.failed || !is_whole(x)) {
        end_cut(x);
    } else if (x->p.stream) {
        end_stream(x);
    } else {
        x->request = NULL;
        let_go(x);
        tri_http_reply(q, 200, "application/json", out.data, out.len_bytes);
    }
    tri_buf_fini(&out);
}

void tri__exchange_total(const struct tri__exchange *x, int64_t *completion, int64_t *reasoning)
{
    *completion = *reasoning = 0;
    for (int64_t i = 0; i < x->n_choices; i++) {
        *completion += x->choice[i].completion_tokens;
        *reasoning += x->choice[i].reasoning_tokens;
    }
}

/* The first choice tells: later ones may find what it has just computed. */
int64_t tri__exchange_cached(const struct tri__exchange *x)
{
    int64_t cached = 0;
    for (int64_t i = 0; i < x->n_choices; i += x->p.n) { /* the first of each prompt */
        struct tri_job_facts facts = { 0 };
        if (x->choice[i].job)
            tri_job_facts(x->choice[i].job, &facts);
        cached += facts.cached_tokens;
    }
    return cached;
}

void tri__call_id(char out[40], const struct tri__choice *c, size_t call)
{
    snprintf(out, 40, "call_%016llx%08zx", (unsigned long long)c->call_salt, call);
}

static bool is_end_id(const struct tri_api *api, int32_t id)
{
    for (size_t i = 0; i < api->options.n_stop_ids; i++)
        if (api->options.stop_ids[i] == id)
            return true;
    return false;
}

/* --- the end of a choice --------------------------------------------------------------------- */

static void finish_choice(struct tri__choice *c, enum tri_job_end end)
{
    struct tri__exchange *x = c->x;
    tri__choice_finish_text(c, end);
    if (c->parser && end == TRI_JOB_STOP && c->found < 0)
        tri__turns_keep(x->api->turns, c);
    c->done = true;
    x->left--;
    tri__gauges_request(x->api->gauges, c, strcmp(c->finish, "length") ? "stop" : "length",
                        tri_clock_s() - x->begin_s);
    if (x->p.stream)
        x->format->choice_end(c);
    if (x->left == 0)
        end_well(x);
}

/* TRI_LIMIT is the request's own doing: its biases and its form leave no token. */
static void fail_choice(struct tri__choice *c, const struct tri_error *err)
{
    struct tri__exchange *x = c->x;
    struct tri__fault fault = { 0 };
    int status = err->status == TRI_LIMIT ? 400 : err->status == TRI_CANCELLED ? 503 : 500;
    tri__fault_is(&fault, status, "generation_failed", "%s", err->text);
    tri__gauges_request(x->api->gauges, c, "error", tri_clock_s() - x->begin_s);
    end_with_fault(x, &fault);
}

static void lose_choice(struct tri__choice *c)
{
    struct tri__exchange *x = c->x;
    if (!c->done)
        tri__gauges_request(x->api->gauges, c, "error", tri_clock_s() - x->begin_s);
    end_cut(x);
}

static void tell_times(struct tri__choice *c)
{
    double now = tri_clock_s();
    if (c->completion_tokens == 0)
        tri__gauges_first_token(c->x->api->gauges, now - c->x->begin_s);
    else
        tri__gauges_token(c->x->api->gauges, now - c->last_token_s);
    c->last_token_s = now;
}

/* One event. False: the exchange is over (and may be freed). */
static bool take_event(struct tri__choice *c, const struct tri_job_event *e)
{
    struct tri_error err = { 0 };
    if (e->end == TRI_JOB_ERROR || e->end == TRI_JOB_CANCELLED) {
        if (e->end == TRI_JOB_CANCELLED)
            (void)tri_fail(&err, TRI_CANCELLED, "the server is closing");
        fail_choice(c, e->end == TRI_JOB_CANCELLED ? &err : tri_job_error(c->job));
        return false;
    }
    if (e->token >= 0) {
        bool ends = e->end == TRI_JOB_STOP && is_end_id(c->x->api, e->token);
        tell_times(c);
        if (c->x->p.logprobs && (!ends || !c->parser)) /* a chat's end is no part of its answer */
            c->x->format->logprob(c, e);
        if (!tri__choice_take(c, e->token, &err)) {
            err.status = TRI_FORMAT; /* what the model wrote is not the client's fault */
            fail_choice(c, &err);
            return false;
        }
    }
    bool over = e->end != TRI_JOB_RUNS || c->found >= 0 ||
                (c->parser && !c->x->p.ignore_eos && tri_parser_ended(c->parser) &&
                 c->completion_tokens >= c->x->p.min_tokens);
    if (!over)
        return true;
    bool last = c->x->left == 1;
    finish_choice(c, c->found >= 0 || e->end == TRI_JOB_RUNS ? TRI_JOB_STOP : e->end);
    return !last;
}

/* Takes what a choice's job has told, as far as the client's connection takes it. */
static void pump(struct tri__exchange *x)
{
    for (int64_t i = 0; i < x->n_choices; i++) {
        struct tri__choice *c = &x->choice[i];
        struct tri_job_event e;
        while (!c->done && x->request && !(x->p.stream && tri_http_is_full(x->request)) &&
               tri_job_read(c->job, &e)) {
            if (!take_event(c, &e))
                return;
            if (!is_whole(x)) {
                lose_choice(c);
                return;
            }
            tri__exchange_flush(x);
        }
    }
}

static void on_drained(void *arg)
{
    pump(arg);
}

static void on_news(void *arg)
{
    struct tri__exchange *x = arg;
    atomic_fetch_sub(&x->posts, 1);
    if (x->request)
        pump(x);
    else if (atomic_load(&x->posts) == 0)
        tri__exchange_free(x);
}

/* From the scheduler's thread. A lost post is made up for by the next tick. */
static void on_wake(void *arg)
{
    struct tri__exchange *x = arg;
    atomic_fetch_add(&x->posts, 1);
    if (tri_http_post(x->api->http, on_news, x) != TRI_OK)
        atomic_fetch_sub(&x->posts, 1);
}

static void tell_progress(struct tri__exchange *x)
{
    struct tri_job_facts facts;
    if (!x->began || !x->p.return_progress || !x->format->progress)
        return;
    tri_job_facts(x->choice[0].job, &facts);
    if (facts.first_token_s > 0 || facts.computed_tokens <= x->progress_tokens)
        return;
    x->progress_tokens = facts.computed_tokens;
    x->format->progress(x, &facts);
    tri__exchange_flush(x);
}

void tri__exchange_tick(struct tri_api *api)
{
    double now = tri_clock_s();
    for (struct tri__exchange *x = api->first, *next; x; x = next) {
        next = x->next;
        if (!x->request)
            continue;
        tell_progress(x);
        if (x->began && now - x->last_write_s >= (x->silent ? later_silence_s : first_silence_s)) {
            x->format->keepalive(x);
            tri__exchange_flush(x);
            x->silent = true;
        }
        pump(x); /* may free x, but never another one */
    }
}

/* --- starting -------------------------------------------------------------------------------- */

const int32_t *tri__exchange_prompt(const struct tri__exchange *x, size_t k, size_t *n_tokens)
{
    size_t from = k ? x->prompt_end[k - 1] : 0;
    *n_tokens = (x->n_prompts ? x->prompt_end[k] : x->ids.count_tokens) - from;
    return x->ids.data + from;
}

const int32_t *tri__choice_prompt(const struct tri__choice *c, size_t *n_tokens)
{
    return tri__exchange_prompt(c->x, (size_t)(c->index / c->x->p.n), n_tokens);
}

bool tri__exchange_has_room(const struct tri__exchange *x, struct tri__fault *fault)
{
    int64_t n = 0, room = tri_sched_context_tokens(x->api->options.sched);
    for (size_t k = 0; k < (x->n_prompts ? x->n_prompts : 1); k++) {
        size_t tokens = 0;
        (void)tri__exchange_prompt(x, k, &tokens);
        n = (int64_t)tokens > n ? (int64_t)tokens : n;
    }
    if (n < room)
        return true; /* max_tokens beyond it is cut to what is left */
    tri__fault_is(fault, 400, "context_length_exceeded",
                  "the prompt has %lld tokens and leaves no room in the context of %lld",
                  (long long)n, (long long)room);
    snprintf(fault->param, sizeof fault->param, "%s", x->prompt ? "messages" : "prompt");
    fault->n_prompt_tokens = n;
    fault->n_ctx = room;
    return false;
}

static bool submit(struct tri__exchange *x, struct tri__choice *c, struct tri_error *err)
{
    size_t n_tokens = 0;
    const int32_t *tokens = tri__choice_prompt(c, &n_tokens);
    struct tri_job_request r = { .tokens = tokens,
                                 .n_tokens = (int64_t)n_tokens,
                                 .priority = x->p.priority,
                                 .salt = x->p.salt,
                                 .profile = x->profile && c->index == 0,
                                 .wake = on_wake,
                                 .arg = x };
    r.how = (struct tri_generate){ .sampling = x->p.sampling,
                                   .max_tokens = x->p.max_tokens,
                                   .min_tokens = x->p.min_tokens,
                                   .stop_ids = x->p.stop_ids,
                                   .n_stop_ids = x->p.n_stop_ids,
                                   .bias = x->p.bias,
                                   .n_bias = x->p.n_bias,
                                   .logprobs = x->p.logprobs,
                                   .top_logprobs = x->p.top_logprobs,
                                   .prompt_only = x->p.prompt_only };
    r.score = tri__scores_wanted(c, &r.score_top);
    r.how.sampling.seed += (uint64_t)(c->index % x->p.n) * 0x9e3779b97f4a7c15u;
    if (x->prompt && c->index == 0)
        tri__exchange_borders(x, &r);
    if (x->grammar) {
        r.how.constraint = tri__constraint_open(x->grammar, err);
        r.drop_constraint = tri__constraint_drop;
        if (!r.how.constraint)
            return false;
    }
    bool ok = tri_job_submit(&c->job, x->api->options.sched, &r, err) == TRI_OK;
    if (!ok && x->grammar)
        tri__constraint_drop(r.how.constraint->arg);
    return ok;
}

void tri__exchange_start(struct tri__exchange *x)
{
    const struct tri_http_watch watch = { on_gone, on_drained, x };
    struct tri__fault fault = { 0 };
    struct tri_error err = { 0 };
    int64_t choices = x->p.n * (int64_t)(x->n_prompts ? x->n_prompts : 1);
    x->prompt_tokens = (int64_t)x->ids.count_tokens;
    x->choice = tri_calloc((size_t)choices, sizeof *x->choice);
    bool ok = x->choice != NULL;
    if (!ok)
        tri__fault_is(&fault, 503, "no_memory", "no memory");
    for (int64_t i = 0; ok && i < choices; i++) {
        struct tri__choice *c = &x->choice[i];
        x->n_choices = i + 1;
        c->index = i;
        ok = tri__choice_open(x, c, &err) && submit(x, c, &err);
        if (!ok)
            tri__fault_from(&fault, &err);
    }
    if (!ok) {
        tri__gauges_rejected(x->api->gauges, fault.code ? fault.code : "invalid");
        end_with_fault(x, &fault);
        return;
    }
    tri__gauges_asked(x->api->gauges, &x->p);
    x->left = x->n_choices;
    x->next = x->api->first;
    if (x->next)
        x->next->prev = x;
    x->api->first = x;
    tri_http_watch(x->request, &watch);
    if (x->p.stream) {
        tri_http_add_field(x->request, "Cache-Control", "no-cache");
        tri_http_add_field(x->request, "X-Accel-Buffering", "no");
        tri_http_begin(x->request, 200, "text/event-stream");
        x->began = true;
        x->format->begin(x);
        tri__exchange_flush(x);
    }
    pump(x);
}

void tri__serve(struct tri_api *api, struct tri_http_request *q,
                const struct tri__endpoint *endpoint)
{
    struct tri__exchange *x = tri__exchange_new(api, q, endpoint);
    if (x)
        tri__prepare(x);
}
