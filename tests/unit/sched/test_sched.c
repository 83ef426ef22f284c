/* Jobs over slots: many of them, reuse of states, ends, readers who are behind, limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "unit/sched/sched_rig.h"

static void many_jobs_over_few_slots(void **state)
{
    (void)state;
    struct rig rig;
    static struct ask ask[40];
    struct tri_job *job[40];
    enum tri_job_end end = TRI_JOB_RUNS;
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
    enum tri_job_end end = TRI_JOB_RUNS;
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
    enum tri_job_end end = TRI_JOB_RUNS;
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
    enum tri_job_end end = TRI_JOB_RUNS;
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
    enum tri_job_end end = TRI_JOB_RUNS;
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

/* A step of 40 layers takes 6 s here or more: given up when it is for nobody, once it has lasted
 * long enough; finished when it is not. */
static void a_long_step_for_nobody_is_given_up(void **state)
{
    (void)state;
    struct rig rig;
    struct ask a = make_ask(40, 1, 5), b = make_ask(30, 2, 1);
    struct tri_job *job, *other;
    enum tri_job_end end = TRI_JOB_RUNS;
    rig_up(&rig, (struct tri_sched_options){ .slots = 2 });
    rig.model.slow_layer_us = 150000;
    double before_s = tri_clock_s();
    assert_int_equal(submit(&rig, &a, &job, NULL), TRI_OK);
    wait_for_layers(&rig, 1);
    tri_job_cancel(job);
    assert_int_equal(finish(job, &a, &end), 0);
    assert_int_equal(end, TRI_JOB_CANCELLED);
    assert_true(tri_clock_s() - before_s >= TRI_SCHED_LONG_STEP_S);
    assert_true(rig.model.layers_done < FAKE_LAYERS);
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
    enum tri_job_end end = TRI_JOB_RUNS;
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

/* Whoever closes first, job or scheduler: a job's end can still be read, and all is freed. */
static void jobs_may_outlive_the_scheduler(void **state)
{
    (void)state;
    for (int early = 0; early <= 3; early++) {
        struct rig rig;
        static struct ask ask[3];
        struct tri_job *job[3];
        struct tri_job_facts f;
        enum tri_job_end end = TRI_JOB_RUNS;
        rig_up(&rig, (struct tri_sched_options){ .slots = 1 });
        rig.model.slow_us = 1000;
        for (int i = 0; i < 3; i++) {
            ask[i] = make_ask(20, i, 900);
            assert_int_equal(submit(&rig, &ask[i], &job[i], NULL), TRI_OK);
        }
        for (int i = 0; i < early; i++)
            tri_job_release(job[i]); /* while it runs or waits */
        rig_down(&rig);
        for (int i = 2; i >= early; i--) {
            tri_job_cancel(job[i]);
            finish(job[i], &ask[i], &end);
            assert_int_equal(end, TRI_JOB_CANCELLED);
            tri_job_facts(job[i], &f);
            assert_int_equal(f.prompt_tokens, 20);
            tri_job_release(job[i]);
        }
    }
}

static void limits_and_failures(void **state)
{
    (void)state;
    struct rig rig;
    static struct ask ask[8];
    struct tri_job *job[8] = { 0 }, *none = NULL;
    struct tri_error err = { 0 };
    enum tri_job_end end = TRI_JOB_RUNS;
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
    enum tri_job_end end = TRI_JOB_RUNS;
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
        cmocka_unit_test(jobs_may_outlive_the_scheduler),
        cmocka_unit_test(limits_and_failures),
        cmocka_unit_test(limits_of_opening),
        cmocka_unit_test(priority_goes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
