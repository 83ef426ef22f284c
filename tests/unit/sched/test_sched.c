/*
 * The scheduler over the engine's stand-in model, whose next token depends on every token it was
 * fed: a wrong state, a token twice or never, or a neighbour's influence changes what comes out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "sched/sched.h"
#include "unit/engine/fake_model.h"

/* What the engine's own tests do not need of a model. */
const struct tri_slice *tri_model_slice(const struct tri_model *model)
{
    (void)model;
    return NULL;
}

void tri_model_expert_stats(const struct tri_model *model, struct tri_experts_stats *out)
{
    (void)model;
    memset(out, 0, sizeof *out);
}

void tri_state_cost(const struct tri_spec *spec, const struct tri_slice *slice,
                    struct tri_state_form form, struct tri_state_bytes *out)
{
    (void)spec;
    (void)slice;
    (void)form;
    *out = (struct tri_state_bytes){ 1000, 10 };
}

uint64_t tri_model_state_fingerprint(const struct tri_model *model)
{
    return tri_model_fingerprint(model) + 1;
}

struct rig {
    struct tri_model model;
    struct tri_budget *budget;
    struct tri_engine *engine;
    struct tri_sched *sched;
    atomic_int wakes;
};

static void rig_up(struct rig *rig, struct tri_sched_options o)
{
    rig->model = fake_model(96);
    rig->wakes = 0;
    assert_int_equal(tri_budget_open(&rig->budget, 256 << 20, NULL), TRI_OK);
    struct tri_engine_options e = { .max_sequences = o.slots,
                                    .short_first = true,
                                    .growing = true };
    assert_int_equal(tri_engine_open(&rig->engine, &rig->model, &e, rig->budget, NULL), TRI_OK);
    o.context_tokens = o.context_tokens ? o.context_tokens : 1024;
    assert_int_equal(tri_sched_open(&rig->sched, rig->engine, &rig->model, rig->budget, &o, NULL),
                     TRI_OK);
}

static void rig_down(struct rig *rig)
{
    tri_sched_close(rig->sched);
    tri_engine_close(rig->engine);
    struct tri_budget_report now;
    tri_budget_read(rig->budget, &now);
    assert_int_equal(now.used_bytes, 0);
    tri_budget_close(rig->budget);
}

static void wake(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

struct ask {
    int32_t tokens[4096];
    int64_t n, max_tokens;
    int64_t borders[3];
    size_t n_borders;
    uint64_t salt;
    int64_t priority, head;
};

static struct ask make_ask(int64_t n, int salt, int64_t max_tokens)
{
    struct ask a = { .n = n, .max_tokens = max_tokens };
    for (int64_t i = 0; i < n; i++)
        a.tokens[i] = (int32_t)((i * 31 + salt * 7 + 3) % 90);
    return a;
}

static enum tri_status submit(struct rig *rig, const struct ask *a, struct tri_job **job,
                              struct tri_error *err)
{
    struct tri_job_request r = { .tokens = a->tokens,
                                 .n_tokens = a->n,
                                 .salt = { a->salt, 0 },
                                 .head_tokens = a->head,
                                 .priority = a->priority,
                                 .n_borders = a->n_borders,
                                 .wake = wake,
                                 .arg = &rig->wakes };
    r.how.sampling = tri_sampling_default();
    r.how.sampling.temperature = 0;
    r.how.max_tokens = a->max_tokens;
    for (size_t i = 0; i < a->n_borders; i++)
        r.borders[i] = a->borders[i];
    return tri_job_submit(job, rig->sched, &r, err);
}

/* Reads to the end; checks every token against the fake's function. Returns how many came. */
static int64_t finish(struct tri_job *job, struct ask *a, enum tri_job_end *end)
{
    struct tri_job_event e;
    int64_t made = 0;
    for (int idle = 0; idle < 100000;) {
        if (!tri_job_read(job, &e)) {
            usleep(50);
            idle++;
            continue;
        }
        if (e.token >= 0) {
            float logits[FAKE_VOCAB];
            int best = 0;
            fake_logits(a->tokens, a->n + made, logits);
            for (int i = 1; i < FAKE_VOCAB; i++)
                if (logits[i] > logits[best])
                    best = i;
            assert_int_equal(e.token, best);
            a->tokens[a->n + made++] = e.token;
        }
        if (e.end != TRI_JOB_RUNS) {
            *end = e.end;
            assert_false(tri_job_read(job, &e)); /* the end is the last thing told */
            return made;
        }
    }
    fail_msg("the job never ended");
    return -1;
}

static int64_t cached(struct tri_job *job)
{
    struct tri_job_facts f;
    tri_job_facts(job, &f);
    return f.cached_tokens;
}

static void many_jobs_over_few_slots(void **state)
{
    (void)state;
    struct rig rig;
    static struct ask ask[40];
    struct tri_job *job[40];
    enum tri_job_end end;
    rig_up(&rig, (struct tri_sched_options){ .slots = 3, .cache_bytes = 1 << 20 });
    for (int i = 0; i < 40; i++) {
        ask[i] = make_ask(10 + (i * 53) % 400, i % 7, 1 + i % 30);
        ask[i].n_borders = 2;
        ask[i].borders[0] = ask[i].n / 2;
        ask[i].borders[1] = ask[i].n - 3;
        assert_int_equal(submit(&rig, &ask[i], &job[i], NULL), TRI_OK);
    }
    for (int i = 0; i < 40; i++) {
        assert_int_equal(finish(job[i], &ask[i], &end), ask[i].max_tokens);
        assert_int_equal(end, TRI_JOB_LENGTH);
        tri_job_release(job[i]);
    }
    struct tri_sched_stats s;
    tri_sched_read_stats(rig.sched, &s);
    assert_int_equal(s.finished, 40);
    assert_int_equal(s.running, 0);
    assert_true(s.hit_tokens > 0);
    assert_true(atomic_load(&rig.wakes) > 0);
    rig_down(&rig);
}

static void the_next_turn_goes_on(void **state)
{
    (void)state;
    struct rig rig;
    struct ask a = make_ask(150, 1, 20);
    struct tri_job *job;
    enum tri_job_end end;
    rig_up(&rig, (struct tri_sched_options){ .slots = 2 });
    assert_int_equal(submit(&rig, &a, &job, NULL), TRI_OK);
    assert_int_equal(finish(job, &a, &end), 20);
    assert_int_equal(cached(job), 0);
    tri_job_release(job);
    a.n += 20;
    for (int i = 0; i < 5; i++)
        a.tokens[a.n++] = 60 + i;
    assert_int_equal(submit(&rig, &a, &job, NULL), TRI_OK);
    assert_int_equal(finish(job, &a, &end), 20);
    assert_int_equal(cached(job), 169); /* the last sampled token was not computed */
    tri_job_release(job);
    a.salt = 1; /* another tenant sees nothing of it */
    assert_int_equal(submit(&rig, &a, &job, NULL), TRI_OK);
    assert_int_equal(finish(job, &a, &end), 20);
    assert_int_equal(cached(job), 0);
    tri_job_release(job);
    rig_down(&rig);
}

static void branches_start_at_borders(void **state)
{
    (void)state;
    struct rig rig;
    struct ask a = make_ask(300, 1, 5);
    struct tri_job *job;
    enum tri_job_end end;
    rig_up(&rig, (struct tri_sched_options){ .slots = 1, .cache_bytes = 1 << 20 });
    a.n_borders = 2;
    a.borders[0] = 140; /* on the grid: 128 */
    a.borders[1] = 260; /* 256 */
    assert_int_equal(submit(&rig, &a, &job, NULL), TRI_OK);
    assert_int_equal(finish(job, &a, &end), 5);
    tri_job_release(job);
    for (int i = 0; i < 3; i++) {
        static const int64_t change_at[] = { 270, 200, 100 }, want[] = { 256, 128, 0 };
        struct ask b = make_ask(300, 1, 5);
        b.tokens[change_at[i]] = 91;
        assert_int_equal(submit(&rig, &b, &job, NULL), TRI_OK);
        assert_int_equal(finish(job, &b, &end), 5);
        assert_int_equal(cached(job), want[i]);
        tri_job_release(job);
    }
    rig_down(&rig);
}

static void the_store_keeps_its_size(void **state)
{
    (void)state;
    struct rig rig;
    struct tri_sched_stats s;
    enum tri_job_end end;
    /* One checkpoint of 64 tokens costs 1000 + 64 * 10 bytes: two fit, not three. */
    rig_up(&rig, (struct tri_sched_options){ .slots = 1, .cache_bytes = 2 * 1640 + 100 });
    for (int i = 0; i < 6; i++) {
        struct ask a = make_ask(80, i, 3);
        struct tri_job *job;
        a.n_borders = 1;
        a.borders[0] = 64;
        assert_int_equal(submit(&rig, &a, &job, NULL), TRI_OK);
        assert_int_equal(finish(job, &a, &end), 3);
        tri_job_release(job);
        tri_sched_read_stats(rig.sched, &s);
        assert_true(s.ram.bytes <= 2 * 1640 + 100);
        assert_true(s.ram.checkpoints <= 2);
    }
    assert_true(s.ram.evicted > 0);
    rig_down(&rig);
}

static void cancelled_jobs_end_once(void **state)
{
    (void)state;
    struct rig rig;
    static struct ask ask[30];
    struct tri_job *job[30];
    enum tri_job_end end;
    rig_up(&rig, (struct tri_sched_options){ .slots = 2 });
    for (int i = 0; i < 30; i++) {
        ask[i] = make_ask(20, i, 400);
        assert_int_equal(submit(&rig, &ask[i], &job[i], NULL), TRI_OK);
    }
    for (int i = 29; i >= 0; i--) {
        if (i % 3 == 0) { /* released while it waits or runs: nobody reads its end */
            tri_job_release(job[i]);
            continue;
        }
        tri_job_cancel(job[i]);
        finish(job[i], &ask[i], &end);
        assert_true(end == TRI_JOB_CANCELLED || end == TRI_JOB_LENGTH);
        tri_job_release(job[i]);
    }
    struct tri_sched_stats s = { 0 };
    for (int i = 0; i < 2000 && s.finished < 30; i++) {
        usleep(1000);
        tri_sched_read_stats(rig.sched, &s);
    }
    assert_int_equal(s.finished, 30);
    assert_int_equal(s.running + s.waiting, 0);
    rig_down(&rig);
}

static void wait_for_layers(const struct rig *rig, int n)
{
    for (int i = 0; i < 5000 && rig->model.layers_done < n; i++)
        usleep(1000);
    assert_true(rig->model.layers_done >= n);
}

/* A step of 40 layers takes 6 s here: given up when it is for nobody, finished when it is not. */
static void a_long_step_for_nobody_is_given_up(void **state)
{
    (void)state;
    struct rig rig;
    struct ask a = make_ask(40, 1, 5), b = make_ask(30, 2, 1);
    struct tri_job *job, *other;
    enum tri_job_end end;
    rig_up(&rig, (struct tri_sched_options){ .slots = 2 });
    rig.model.slow_layer_us = 150000;
    assert_int_equal(submit(&rig, &a, &job, NULL), TRI_OK);
    wait_for_layers(&rig, 1);
    tri_job_cancel(job);
    assert_int_equal(finish(job, &a, &end), 0);
    assert_int_equal(end, TRI_JOB_CANCELLED);
    assert_in_range(rig.model.layers_done, 6, 15); /* one second, and not much more */
    tri_job_release(job);
    rig.model.slow_layer_us = 0;
    assert_int_equal(submit(&rig, &a, &job, NULL), TRI_OK); /* the slot is usable, its state gone */
    assert_int_equal(finish(job, &a, &end), 5);
    assert_int_equal(cached(job), 0);
    tri_job_release(job);

    /* Two together: one goes, the other gets the tokens it would have got. */
    a = make_ask(40, 3, 5);
    rig.model.slow_us = 200000; /* both are there when the next step is planned */
    assert_int_equal(submit(&rig, &a, &job, NULL), TRI_OK);
    assert_int_equal(submit(&rig, &b, &other, NULL), TRI_OK);
    usleep(100000);
    rig.model.slow_us = 0;
    rig.model.layers_done = 0;
    rig.model.slow_layer_us = 40000;
    wait_for_layers(&rig, 30);
    rig.model.slow_layer_us = 1000;
    tri_job_release(job);
    assert_int_equal(finish(other, &b, &end), 1);
    assert_int_equal(end, TRI_JOB_LENGTH);
    tri_job_release(other);
    rig_down(&rig);
}

static void a_reader_who_is_behind_stops_only_himself(void **state)
{
    (void)state;
    struct rig rig;
    static struct ask slow, quick;
    struct tri_job *a, *b;
    enum tri_job_end end;
    slow = make_ask(10, 1, 3000);
    quick = make_ask(10, 2, 50);
    rig_up(&rig, (struct tri_sched_options){ .slots = 2, .context_tokens = 4000 });
    assert_int_equal(submit(&rig, &slow, &a, NULL), TRI_OK);
    struct tri_job_facts f = { 0 };
    for (int i = 0; i < 3000 && f.computed_tokens < 10 + TRI_SCHED_RING_EVENTS - 1; i++) {
        usleep(1000);
        tri_job_facts(a, &f);
    }
    usleep(20000);
    tri_job_facts(a, &f);
    assert_int_equal(f.computed_tokens, 10 + TRI_SCHED_RING_EVENTS - 1); /* and it waits there */
    assert_int_equal(submit(&rig, &quick, &b, NULL), TRI_OK);
    assert_int_equal(finish(b, &quick, &end), 50);
    tri_job_release(b);
    struct tri_job_event e;
    int64_t made = 0;
    for (int idle = 0; idle < 5000 && made < 3000;) {
        if (tri_job_read(a, &e)) {
            made++;
            assert_int_equal(e.end, made == 3000 ? TRI_JOB_LENGTH : TRI_JOB_RUNS);
        } else {
            usleep(1000);
            idle++;
        }
    }
    assert_int_equal(made, 3000);
    tri_job_release(a);
    rig_down(&rig);
}

static void limits_and_failures(void **state)
{
    (void)state;
    struct rig rig;
    static struct ask ask[8];
    struct tri_job *job[8] = { 0 }, *none = NULL;
    struct tri_error err = { 0 };
    enum tri_job_end end;
    rig_up(&rig, (struct tri_sched_options){ .slots = 1, .queue = 2, .context_tokens = 1024 });
    struct ask full = make_ask(1024, 1, 1);
    assert_int_equal(submit(&rig, &full, &none, &err), TRI_LIMIT);
    full.n = 1023;
    assert_int_equal(submit(&rig, &full, &none, NULL), TRI_OK);
    assert_int_equal(finish(none, &full, &end), 1);
    tri_job_release(none);
    int accepted = 0, busy = 0;
    for (int i = 0; i < 8; i++) {
        ask[i] = make_ask(5, i, 900);
        enum tri_status st = submit(&rig, &ask[i], &job[i], NULL);
        assert_true(st == TRI_OK || st == TRI_BUSY);
        accepted += st == TRI_OK;
        busy += st == TRI_BUSY;
    }
    assert_true(accepted >= 2 && busy >= 1);
    for (int i = 0; i < 8; i++)
        tri_job_release(job[i]);
    rig_down(&rig);
    /* A failing model ends the job with its text; the next one is fine. */
    rig_up(&rig, (struct tri_sched_options){ .slots = 1 });
    rig.model.poison = 77;
    ask[0] = make_ask(5, 0, 3);
    ask[0].tokens[4] = 77;
    assert_int_equal(submit(&rig, &ask[0], &job[0], NULL), TRI_OK);
    assert_int_equal(finish(job[0], &ask[0], &end), 0);
    assert_int_equal(end, TRI_JOB_ERROR);
    assert_non_null(strstr(tri_job_error(job[0])->text, "NaN"));
    tri_job_release(job[0]);
    ask[1] = make_ask(5, 0, 3);
    assert_int_equal(submit(&rig, &ask[1], &job[1], NULL), TRI_OK);
    assert_int_equal(finish(job[1], &ask[1], &end), 3);
    tri_job_release(job[1]);
    rig_down(&rig);
}

/* Opening at each limit and one past it. The model's chunk is 96. */
static void limits_of_opening(void **state)
{
    (void)state;
    static const struct {
        struct tri_sched_options o;
        int64_t chunk;
        enum tri_status want;
    } cases[] = {
        { { .slots = TRI_SCHED_MAX_SLOTS }, 300, TRI_OK },
        { { .slots = TRI_SCHED_MAX_SLOTS + 1 }, 300, TRI_LIMIT },
        { { .queue = TRI_SCHED_MAX_QUEUE }, 96, TRI_OK },
        { { .queue = TRI_SCHED_MAX_QUEUE + 1 }, 96, TRI_LIMIT },
        { { .slots = 96 - TRI_MODEL_TILE_TOKENS }, 96, TRI_OK },
        { { .slots = 96 - TRI_MODEL_TILE_TOKENS + 1 }, 96, TRI_LIMIT },
        { { .room_bytes = 500 * 10 }, 96, TRI_OK },
        { { .room_bytes = 500 * 10 - 1 }, 96, TRI_BUDGET },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rig rig = { .model = fake_model(cases[i].chunk) };
        struct tri_engine_options e = { .max_sequences = TRI_SCHED_MAX_SLOTS, .growing = true };
        struct tri_sched_options o = cases[i].o;
        struct tri_error err = { 0 };
        o.context_tokens = 500;
        assert_int_equal(tri_budget_open(&rig.budget, 256 << 20, NULL), TRI_OK);
        assert_int_equal(tri_engine_open(&rig.engine, &rig.model, &e, rig.budget, NULL), TRI_OK);
        assert_int_equal(tri_sched_open(&rig.sched, rig.engine, &rig.model, rig.budget, &o, &err),
                         cases[i].want);
        rig_down(&rig);
    }
}

static void priority_goes_first(void **state)
{
    (void)state;
    struct rig rig;
    static struct ask ask[4];
    struct tri_job *job[4];
    struct tri_job_facts f[4];
    enum tri_job_end end;
    rig_up(&rig, (struct tri_sched_options){ .slots = 1 });
    for (int i = 0; i < 4; i++) {
        ask[i] = make_ask(5, i, i ? 5 : 800);
        ask[i].priority = i == 3 ? -1 : 0;
        assert_int_equal(submit(&rig, &ask[i], &job[i], NULL), TRI_OK);
    }
    for (int i = 0; i < 4; i++) {
        finish(job[i], &ask[i], &end);
        tri_job_facts(job[i], &f[i]);
        tri_job_release(job[i]);
    }
    assert_true(f[3].admitted_s <= f[1].admitted_s && f[1].admitted_s <= f[2].admitted_s);
    rig_down(&rig);
}

/* --- files ----------------------------------------------------------------------------------- */

static void drop_folder(const char *path)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", path);
    assert_int_equal(system(command), 0);
}

static void new_folder(char *path)
{
    snprintf(path, 64, "/tmp/trireme-sched-%ld", (long)getpid());
    drop_folder(path);
}

static int64_t ask_all(struct rig *rig, struct ask *a, int64_t want)
{
    struct tri_job *job = NULL;
    enum tri_job_end end;
    assert_int_equal(submit(rig, a, &job, NULL), TRI_OK);
    assert_int_equal(finish(job, a, &end), want);
    int64_t n = cached(job);
    tri_job_release(job);
    return n;
}

static struct tri_sched_stats stats_of(struct rig *rig)
{
    struct tri_sched_stats s;
    tri_sched_read_stats(rig->sched, &s);
    return s;
}

/* With RAM beside it and without: what one process computed the next one finds, as deep as it was.
 */
static void the_next_process_finds_it(void **state)
{
    (void)state;
    static const uint64_t ram[] = { 1 << 20, 0, 1200 }; /* the last: too little for these states */
    for (int i = 0; i < 3; i++) {
        char folder[64];
        struct rig rig;
        new_folder(folder);
        struct tri_sched_options o = { .slots = 2, .cache_bytes = ram[i], .folder = folder };
        struct ask a = make_ask(300, 1, 5), next, branch = make_ask(300, 1, 5);
        a.n_borders = 2;
        a.borders[0] = a.head = 140;
        a.borders[1] = 260;
        rig_up(&rig, o);
        assert_int_equal(ask_all(&rig, &a, 5), 0);
        next = a;
        next.n += 5;
        next.tokens[next.n++] = 4;
        rig_down(&rig);

        rig_up(&rig, o);
        struct tri_sched_stats s = stats_of(&rig);
        assert_int_equal(s.disk.checkpoints, 3); /* 128, 256, and the reply's end */
        branch.tokens[270] = 91;
        assert_int_equal(ask_all(&rig, &branch, 5), 256);
        assert_int_equal(ask_all(&rig, &next, 5), 304);
        s = stats_of(&rig);
        assert_int_equal(s.hit_tokens_of[TRI_TIER_DISK], 256 + 304);
        assert_int_equal(s.disk_damaged + s.disk_failures, 0);
        branch = make_ask(300, 1, 5);
        branch.salt = 9; /* another key's prompt, token for token */
        assert_int_equal(ask_all(&rig, &branch, 5), 0);
        rig_down(&rig);
        drop_folder(folder);
    }
}

static void a_damaged_file_is_a_miss(void **state)
{
    (void)state;
    char folder[64], command[256];
    struct rig rig;
    new_folder(folder);
    struct tri_sched_options o = { .slots = 1, .folder = folder };
    struct ask a = make_ask(200, 1, 5), b;
    a.n_borders = 2;
    a.borders[0] = 64;
    a.borders[1] = 128;
    rig_up(&rig, o);
    ask_all(&rig, &a, 5);
    rig_down(&rig);
    rig_up(&rig, o); /* found whole; then somebody cuts all files that hold more than 64 tokens */
    snprintf(command, sizeof command,
             "cd %s && for f in *.state; do test $(stat -c %%s $f) -gt 300 && truncate -s 100 $f; "
             "done; true",
             folder);
    assert_int_equal(system(command), 0);
    b = make_ask(200, 1, 5);
    assert_int_equal(ask_all(&rig, &b, 5), 64); /* the longest that is still whole */
    struct tri_sched_stats s = stats_of(&rig);
    assert_int_equal(s.disk_damaged, 1);
    assert_int_equal(s.finished, 1);
    rig_down(&rig);
    drop_folder(folder);
}

static void files_keep_their_size(void **state)
{
    (void)state;
    char folder[64];
    struct rig rig;
    new_folder(folder);
    /* A file of 64 tokens: 16 + 256 bytes; of 66 (the reply): 280. */
    struct tri_sched_options o = { .slots = 1, .cache_bytes = 1 << 20, .folder = folder };
    o.folder_bytes = 3 * 280;
    rig_up(&rig, o);
    for (int i = 0; i < 6; i++) {
        struct ask a = make_ask(65, i, 2);
        ask_all(&rig, &a, 2);
    }
    struct tri_sched_stats s = { 0 };
    for (int i = 0; i < 2000 && s.disk.taken < 6; i++) {
        usleep(1000);
        s = stats_of(&rig);
    }
    assert_int_equal(s.disk.taken, 6);
    assert_int_equal(s.disk.evicted, 3);
    assert_int_equal(s.disk.checkpoints, 3);
    assert_int_equal(s.disk.bytes, 3 * 280);
    rig_down(&rig);
    /* The latest are there; with a lower cap fewer are. */
    o.folder_bytes = 2 * 280 + 100;
    rig_up(&rig, o);
    s = stats_of(&rig);
    assert_int_equal(s.disk.checkpoints, 2);
    struct ask gone = make_ask(65, 3, 2), there = make_ask(65, 4, 2);
    gone.tokens[gone.n++] = there.tokens[there.n++] = 0;
    rig_down(&rig);
    drop_folder(folder);
}

/* No drive to write on: requests are served, the failures are counted. */
static void a_folder_that_vanishes(void **state)
{
    (void)state;
    char folder[64], command[128];
    struct rig rig;
    new_folder(folder);
    struct tri_sched_options o = { .slots = 1, .cache_bytes = 1 << 20, .folder = folder };
    rig_up(&rig, o);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
    struct ask a = make_ask(100, 1, 5);
    ask_all(&rig, &a, 5);
    struct tri_sched_stats s = { 0 };
    for (int i = 0; i < 2000 && s.disk_failures < 1; i++) {
        usleep(1000);
        s = stats_of(&rig);
    }
    assert_true(s.disk_failures >= 1);
    assert_int_equal(s.failed, 0);
    rig_down(&rig);
}

/* Eight files may wait to be written; the ninth is left out, and nobody waits for it. */
static void a_drive_that_stands(void **state)
{
    (void)state;
    for (int jobs = TRI_SCHED_MAX_WRITES; jobs <= TRI_SCHED_MAX_WRITES + 1; jobs++) {
        char folder[64];
        struct rig rig;
        new_folder(folder);
        rig_up(&rig,
               (struct tri_sched_options){ .slots = 2, .cache_bytes = 1 << 20, .folder = folder });
        fake_drive_stands = true;
        for (int i = 0; i < jobs; i++) {
            struct ask a = make_ask(65, i, 2);
            ask_all(&rig, &a, 2);
        }
        assert_int_equal(stats_of(&rig).disk_left_out, jobs - TRI_SCHED_MAX_WRITES);
        fake_drive_stands = false;
        rig_down(&rig);
        drop_folder(folder);
    }
}

/* As many checkpoints as there may be, and one more: the oldest goes. */
static void checkpoints_are_so_many(void **state)
{
    (void)state;
    struct rig rig;
    struct ask a = make_ask(3, 0, 1);
    rig_up(&rig, (struct tri_sched_options){ .slots = 1, .cache_bytes = 100 << 20 });
    /* The last job's state is in the slot. */
    for (int i = 0; i < TRI_SCHED_MAX_CHECKPOINTS + 1; i++) {
        a = make_ask(3, 0, 1);
        a.tokens[0] = i % 90;
        a.tokens[1] = i / 90 % 90;
        a.tokens[2] = i / 8100;
        ask_all(&rig, &a, 1);
    }
    struct tri_sched_stats s = stats_of(&rig);
    assert_int_equal(s.ram.checkpoints, TRI_SCHED_MAX_CHECKPOINTS);
    assert_int_equal(s.ram.evicted, 0);
    a = make_ask(3, 5, 1);
    ask_all(&rig, &a, 1);
    s = stats_of(&rig);
    assert_int_equal(s.ram.checkpoints, TRI_SCHED_MAX_CHECKPOINTS);
    assert_int_equal(s.ram.evicted, 1);
    rig_down(&rig);
}

/* --- making room ----------------------------------------------------------------------------- */

static void wait_running(struct rig *rig, int64_t n)
{
    for (int i = 0; i < 5000 && stats_of(rig).running < n; i++)
        usleep(200);
    assert_int_equal(stats_of(rig).running, n);
}

/* A slot, then memory, is needed by one who ranks before; RAM, then only files, to put the other
 * to. Each token of both is the fake's function of all tokens before: nothing is lost or repeated.
 */
static void who_ranks_first_gets_room(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        char folder[64];
        struct rig rig;
        static struct ask low, high;
        struct tri_job *a = NULL, *b = NULL;
        struct tri_job_facts fa, fb;
        enum tri_job_end end;
        new_folder(folder);
        struct tri_sched_options o = { .slots = i < 2 ? 1 : 3, .context_tokens = 3500 };
        if (i % 2)
            o.folder = folder;
        else
            o.cache_bytes = 1 << 20;
        o.room_bytes = 35000;
        low = make_ask(100, 1, 1000 * (i < 2 ? 1 : 3));
        high = make_ask(200, 2, 400);
        if (i >= 2)
            high.max_tokens = 900;
        high.priority = -1;
        rig_up(&rig, o);
        rig.model.slow_us = 200;
        assert_int_equal(submit(&rig, &low, &a, NULL), TRI_OK);
        wait_running(&rig, 1);
        usleep(20000);
        assert_int_equal(submit(&rig, &high, &b, NULL), TRI_OK);
        assert_int_equal(finish(b, &high, &end), high.max_tokens);
        tri_job_facts(a, &fa);
        assert_true(fa.ended_s == 0); /* it waits, or goes on now */
        rig.model.slow_us = 0;
        assert_int_equal(finish(a, &low, &end), low.max_tokens);
        assert_int_equal(end, TRI_JOB_LENGTH);
        tri_job_facts(b, &fb);
        tri_job_facts(a, &fa);
        assert_true(fb.ended_s < fa.ended_s);
        assert_int_equal(stats_of(&rig).preempted, 1);
        assert_int_equal(stats_of(&rig).failed, 0);
        tri_job_release(a);
        tri_job_release(b);
        rig_down(&rig);
        drop_folder(folder);
    }
}

/* Equal ranks: first come, first served; nobody is sent back. Room is by the longest possible end:
 * of 1000 tokens two of 400 run together, the third waits; one that needs more than all is refused
 * at opening, one that needs all runs alone. */
static void room_is_for_the_longest_end(void **state)
{
    (void)state;
    struct rig rig;
    static struct ask ask[4];
    struct tri_job *job[4];
    struct tri_job_facts f[4];
    enum tri_job_end end;
    rig_up(&rig,
           (struct tri_sched_options){ .slots = 4, .context_tokens = 1000, .room_bytes = 10000 });
    rig.model.slow_us = 100;
    for (int i = 0; i < 4; i++) {
        ask[i] = make_ask(100, i, i == 3 ? 900 : 300);
        assert_int_equal(submit(&rig, &ask[i], &job[i], NULL), TRI_OK);
    }
    wait_running(&rig, 2);
    assert_int_equal(stats_of(&rig).room_used_bytes, 8000);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(finish(job[i], &ask[i], &end), ask[i].max_tokens);
        tri_job_facts(job[i], &f[i]);
        tri_job_release(job[i]);
    }
    assert_true(f[2].admitted_s >= (f[0].ended_s < f[1].ended_s ? f[0].ended_s : f[1].ended_s));
    assert_true(f[3].admitted_s >= f[2].ended_s);
    assert_int_equal(stats_of(&rig).preempted, 0);
    rig_down(&rig);
}

/* A short one passes a long one that waits for room; when that one's patience ends, it goes first.
 */
static void patience_ends(void **state)
{
    (void)state;
    struct rig rig;
    static struct ask first, large, small;
    struct tri_job *a, *b, *c;
    struct tri_job_facts fb, fc;
    enum tri_job_end end;
    rig_up(&rig,
           (struct tri_sched_options){
               .slots = 3, .context_tokens = 4000, .room_bytes = 40000, .cache_bytes = 1 << 20 });
    rig.model.slow_us = 3000;
    first = make_ask(100, 1, 100);
    large = make_ask(100, 2, 3900);
    large.priority = 0;
    small = make_ask(100, 3, 1100);
    assert_int_equal(submit(&rig, &first, &a, NULL), TRI_OK);
    wait_running(&rig, 1);
    assert_int_equal(submit(&rig, &large, &b, NULL), TRI_OK);
    assert_int_equal(submit(&rig, &small, &c, NULL), TRI_OK);
    wait_running(&rig, 2);
    assert_int_equal(finish(a, &first, &end), 100);
    for (int i = 0; i < 5000 && stats_of(&rig).preempted == 0; i++)
        usleep(1000);
    rig.model.slow_us = 0;
    assert_int_equal(finish(b, &large, &end), 3900);
    assert_int_equal(finish(c, &small, &end), 1100);
    tri_job_facts(b, &fb);
    tri_job_facts(c, &fc);
    assert_true(fc.admitted_s < fb.admitted_s && fb.ended_s < fc.ended_s);
    assert_true(fb.admitted_s - fb.submitted_s >= TRI_SCHED_PATIENCE_S);
    assert_int_equal(stats_of(&rig).preempted, 1);
    tri_job_release(a);
    tri_job_release(b);
    tri_job_release(c);
    rig_down(&rig);
}

/* Much of all of it at once: few slots, little room, little RAM, files, priorities, cancelling. */
static void everything_at_once(void **state)
{
    (void)state;
    char folder[64];
    struct rig rig;
    static struct ask ask[120];
    struct tri_job *job[120];
    enum tri_job_end end;
    new_folder(folder);
    rig_up(&rig, (struct tri_sched_options){ .slots = 3,
                                             .context_tokens = 1000,
                                             .room_bytes = 15000,
                                             .cache_bytes = 9000,
                                             .folder = folder,
                                             .folder_bytes = 40000,
                                             .along_s = 0.001 });
    rig.model.slow_us = 30;
    for (int i = 0; i < 120; i++) {
        ask[i] = make_ask(10 + (i * 53) % 500, i % 5, 1 + (i * 29) % 200);
        ask[i].priority = (i * 7) % 3;
        ask[i].n_borders = 1;
        ask[i].borders[0] = ask[i].n - 3;
        assert_int_equal(submit(&rig, &ask[i], &job[i], NULL), TRI_OK);
    }
    for (int i = 0; i < 120; i++) {
        if (i % 11 == 5)
            tri_job_cancel(job[i]);
        int64_t made = finish(job[i], &ask[i], &end);
        if (i % 11 != 5)
            assert_int_equal(made, ask[i].max_tokens);
        tri_job_release(job[i]);
    }
    struct tri_sched_stats s = stats_of(&rig);
    assert_int_equal(s.finished, 120);
    assert_int_equal(s.running + s.waiting + (int64_t)s.failed, 0);
    assert_true(s.ram.bytes <= 9000 && s.disk.bytes <= 40000 && s.room_used_bytes <= 15000);
    rig_down(&rig);
    drop_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_jobs_over_few_slots),
        cmocka_unit_test(the_next_turn_goes_on),
        cmocka_unit_test(branches_start_at_borders),
        cmocka_unit_test(the_store_keeps_its_size),
        cmocka_unit_test(cancelled_jobs_end_once),
        cmocka_unit_test(a_long_step_for_nobody_is_given_up),
        cmocka_unit_test(a_reader_who_is_behind_stops_only_himself),
        cmocka_unit_test(limits_and_failures),
        cmocka_unit_test(limits_of_opening),
        cmocka_unit_test(priority_goes_first),
        cmocka_unit_test(a_drive_that_stands),
        cmocka_unit_test(checkpoints_are_so_many),
        cmocka_unit_test(the_next_process_finds_it),
        cmocka_unit_test(a_damaged_file_is_a_miss),
        cmocka_unit_test(files_keep_their_size),
        cmocka_unit_test(a_folder_that_vanishes),
        cmocka_unit_test(who_ranks_first_gets_room),
        cmocka_unit_test(room_is_for_the_longest_end),
        cmocka_unit_test(patience_ends),
        cmocka_unit_test(everything_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
