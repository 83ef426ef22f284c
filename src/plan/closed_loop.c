/*
 * What clients see: a closed loop of N clients on one replica, each sending its next request when
 * the last is answered, run step by step (in jumps where nothing changes). Queues, prompts that
 * interrupt decode, the cache running full and the synchronised bursts of benchmark clients come
 * out of it, and Little's law closes by construction, which a test checks.
 *
 * Two policies: prompts first (SGLang: decode waits for every waiting prompt) and mixed (vLLM:
 * decode goes on, one token per chunk of a prompt).
 */
#include "plan/plan_priv.h"

#include <math.h>
#include <string.h>

enum { LOOP_MAX_CLIENTS = 256, LOOP_ROUNDS = 4, LOOP_ROUNDS_SPREAD = 10, LOOP_MAX_BATCHES = 4096 };

struct client {
    double sent_s, first_s;
    double prompt, answer; /* tokens of this request */
    double prompt_left, output_left;
    int answers;
};

struct loop {
    const struct tri__clock *clock;
    const struct tri__load *load;
    struct client client[LOOP_MAX_CLIENTS];
    int clients;
    double weight;                       /* real clients behind one simulated */
    int queue[LOOP_MAX_CLIENTS], queued; /* waiting or in prefill, in order of arrival */
    int running[LOOP_MAX_CLIENTS], run;
    double max_run;
    double stride; /* prefill batches taken as one, so that huge loads end in time */
    double now_s, ttft_sum, tpot_sum, latency_sum, prefill_s, queue_area;
    double decode_s, decode_area; /* pure decode steps: seconds, and times sequences */
    int answered, firsts, sent;
    double answer_sum;
};

/* A request's length over the mean: even steps of the golden ratio fill the spread. */
static double stretch(struct loop *l)
{
    double at = fmod(0.5 + 0.6180339887498949 * l->sent++, 1);
    return 1 + l->load->spread * (at - 0.5);
}

static void send_request(struct loop *l, int c)
{
    struct client *x = &l->client[c];
    x->sent_s = l->now_s;
    x->prompt = fmax(1, round((double)l->load->input_tokens * stretch(l)));
    x->answer = fmax(1, round((double)l->load->output_tokens * stretch(l)));
    x->prompt_left = x->prompt;
    x->output_left = x->answer;
    l->queue[l->queued++] = c;
}

static void first_token(struct loop *l, int c, double when_s)
{
    struct client *x = &l->client[c];
    x->first_s = when_s;
    x->output_left -= 1;
    l->ttft_sum += when_s - x->sent_s;
    l->firsts++;
    l->running[l->run++] = c;
}

/* Those that are done leave, are counted and send again. */
static void finish(struct loop *l)
{
    int kept = 0;
    for (int i = 0; i < l->run; i++) {
        int c = l->running[i];
        struct client *x = &l->client[c];
        if (x->output_left > 1e-9) {
            l->running[kept++] = c;
            continue;
        }
        if (x->answer > 1)
            l->tpot_sum += (l->now_s - x->first_s) / (x->answer - 1);
        l->answer_sum += x->answer;
        l->latency_sum += l->now_s - x->sent_s;
        l->answered++;
        if (++x->answers < (l->load->spread > 0 ? LOOP_ROUNDS_SPREAD : LOOP_ROUNDS))
            send_request(l, c);
    }
    l->run = kept;
}

static void pass(struct loop *l, double seconds)
{
    l->queue_area += seconds * l->queued;
    l->now_s += seconds;
}

static double mean_context(const struct loop *l)
{
    double sum = 0;
    for (int i = 0; i < l->run; i++)
        sum += l->client[l->running[i]].answer - l->client[l->running[i]].output_left +
               l->client[l->running[i]].prompt;
    return l->run ? sum / l->run : (double)l->load->input_tokens;
}

/* Steps that all running sequences can take before one of them ends. */
static double steps_to_next_end(const struct loop *l)
{
    double least = 1e18;
    for (int i = 0; i < l->run; i++)
        if (l->client[l->running[i]].output_left < least)
            least = l->client[l->running[i]].output_left;
    return ceil(least / l->clock->acceptance);
}

static void decode(struct loop *l, double steps, double step_s)
{
    pass(l, steps * step_s);
    l->decode_s += steps * step_s;
    l->decode_area += steps * step_s * l->run;
    for (int i = 0; i < l->run; i++)
        l->client[l->running[i]].output_left -= steps * l->clock->acceptance;
    finish(l);
}

static double step_now(const struct loop *l, double steps)
{
    double context = mean_context(l) + steps * l->clock->acceptance / 2;
    return tri__decode_s(l->clock, l->run * l->weight, context, NULL);
}

/*
 * One prefill batch: up to a chunk of prompt tokens per attention group, taken in order of arrival
 * while the cache has room. Returns seconds of the engine; prompts that end give a first token.
 */
static double prefill_batch(struct loop *l, double budget, int *ended, int *ended_count,
                            double *latency_s)
{
    const struct tri__clock *c = l->clock;
    double room = l->max_run - l->run, tokens = 0, before = 0, touched = 0;
    int taken = 0;
    *ended_count = 0;
    while (taken < l->queued && tokens + 1e-9 < budget && taken < (room < 1 ? 1 : room)) {
        struct client *x = &l->client[l->queue[taken]];
        double all = x->prompt_left * l->weight, part = all;
        if (tokens + part > budget)
            part = budget - tokens;
        before += (x->prompt - x->prompt_left) * l->weight;
        tokens += part;
        touched += l->weight;
        x->prompt_left -= part / l->weight;
        if (x->prompt_left > 1e-6)
            break; /* first come, first served: the next waits for this one's rest */
        ended[(*ended_count)++] = l->queue[taken++];
    }
    memmove(l->queue, l->queue + taken, (size_t)(l->queued - taken) * sizeof *l->queue);
    l->queued -= taken;
    double groups = touched < c->layout->dp ? touched : c->layout->dp;
    groups = groups < 1 ? 1 : groups;
    struct tri_prefill_time time;
    double each = tokens / groups;
    struct tri__prompt prompt = { each, before / (touched > 1 ? touched : 1),
                                  (double)l->load->input_tokens, groups };
    tri__prefill_s(c, prompt, &time);
    if (c->role == TRI_ROLE_DECODE) /* done elsewhere */
        time.occupied_s = time.latency_s = 1e-9;
    *latency_s = time.latency_s - time.occupied_s;
    return time.occupied_s;
}

static void run_prefill(struct loop *l)
{
    const struct tri__clock *c = l->clock;
    int ended[LOOP_MAX_CLIENTS], count;
    double late_s, budget = (double)c->chunk_tokens * c->layout->dp;
    bool mixed = !c->profile->prefill_first && l->run > 0;
    if (mixed) {
        double decoding = l->run * l->weight * (1 + c->draft_tokens);
        budget = budget > 2 * decoding ? budget - decoding : budget / 2;
    }
    double seconds = prefill_batch(l, budget * l->stride, ended, &count, &late_s);
    l->prefill_s += seconds;
    if (mixed) { /* the chunk's pass carries one step of the running sequences */
        struct tri_step_time parts;
        tri__decode_s(c, l->run * l->weight, mean_context(l), &parts);
        seconds += (parts.cache + parts.draft) * l->stride;
        for (int i = 0; i < l->run; i++)
            l->client[l->running[i]].output_left -= c->acceptance * l->stride;
    }
    pass(l, seconds);
    double when_s = l->now_s + late_s;
    if (mixed)
        finish(l);
    for (int i = 0; i < count; i++)
        first_token(l, ended[i], when_s);
    if (!mixed)
        finish(l); /* answers of one token */
}

static void start(struct loop *l, const struct tri__clock *clock, const struct tri__load *load)
{
    memset(l, 0, sizeof *l);
    l->clock = clock;
    l->load = load;
    l->clients = load->concurrency < LOOP_MAX_CLIENTS ? (int)load->concurrency : LOOP_MAX_CLIENTS;
    l->weight = (double)load->concurrency / l->clients;
    l->max_run = (double)load->max_running / l->weight;
    l->max_run = l->max_run < 1 ? 1 : l->max_run;
    double batches = LOOP_ROUNDS * (double)load->concurrency * (double)load->input_tokens /
                     ((double)clock->chunk_tokens * clock->layout->dp);
    l->stride = batches > LOOP_MAX_BATCHES ? ceil(batches / LOOP_MAX_BATCHES) : 1;
    for (int c = 0; c < l->clients; c++)
        send_request(l, c);
}

static enum tri_binding binding_of(const struct tri_speed *s)
{
    const struct {
        double ms;
        enum tri_binding is;
    } parts[] = {
        { s->step.dense, TRI_BIND_DENSE },   { s->step.experts, TRI_BIND_EXPERTS },
        { s->step.cache, TRI_BIND_CACHE },   { s->step.compute, TRI_BIND_COMPUTE },
        { s->step.layers, TRI_BIND_LAYERS }, { s->step.link, TRI_BIND_LINK },
        { s->step.disk, TRI_BIND_DISK },
    };
    if (s->prefill_share > 0.5)
        return TRI_BIND_PREFILL;
    enum tri_binding best = TRI_BIND_NONE;
    double most = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].ms > most) {
            most = parts[i].ms;
            best = parts[i].is;
        }
    return best;
}

static void scale_ms(struct tri_step_time *t)
{
    double *values[] = { &t->dense, &t->experts, &t->cache, &t->compute, &t->layers,
                         &t->link,  &t->draft,   &t->disk,  &t->total };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        *values[i] *= 1e3;
}

static void summarise(struct loop *l, struct tri_speed *out)
{
    const struct tri__clock *c = l->clock;
    struct tri_prefill_time alone;
    double answered = l->answered > 0 ? l->answered : 1;
    double rate = l->answered * l->weight / l->now_s; /* requests per second */
    memset(out, 0, sizeof *out);
    out->ttft_ms = l->ttft_sum / (l->firsts > 0 ? l->firsts : 1) * 1e3;
    out->tpot_ms = l->tpot_sum / answered * 1e3;
    double answer = l->answer_sum / answered;
    out->tokens_per_s = rate * answer;
    out->total_tokens_per_s = rate * (answer + (double)l->load->input_tokens);
    double busy = l->decode_s > 0 ? l->decode_area / l->decode_s * l->weight : 1;
    out->running = busy;
    out->waiting = l->queue_area / l->now_s * l->weight;
    out->little = rate * (l->latency_sum / answered) / (double)l->load->concurrency;
    out->prefill_share = l->prefill_s / l->now_s;
    double input = (double)l->load->input_tokens;
    tri__prefill_s(c, (struct tri__prompt){ input, 0, input, 1 }, &alone);
    out->prefill_ms = alone.latency_s * 1e3;
    double context = (double)l->load->input_tokens + (double)l->load->output_tokens / 2;
    out->step_ms = tri__decode_s(c, busy < 1 ? 1 : busy, context, &out->step) * 1e3;
    scale_ms(&out->step);
    out->binding = binding_of(out);
}

void tri__loop(const struct tri__clock *clock, const struct tri__load *load, struct tri_speed *out)
{
    struct loop l;
    start(&l, clock, load);
    while (l.queued || l.run) {
        bool room = l.run == 0 || l.run + 1 <= l.max_run + 1e-9;
        if (l.queued && room) {
            run_prefill(&l);
            continue;
        }
        double steps = steps_to_next_end(&l);
        decode(&l, steps, step_now(&l, steps));
    }
    summarise(&l, out);
}
