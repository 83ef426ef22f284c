/* Who runs when not all fit: ranks, room by the longest end, patience, and all of it at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/sched/sched_rig.h"

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
        rig.model.slow_us = 5000; /* the first is far from its end when the other one comes */
        assert_int_equal(submit(&rig, &low, &a, NULL), TRI_OK);
        wait_running(&rig, 1);
        usleep(20000);
        assert_int_equal(submit(&rig, &high, &b, NULL), TRI_OK);
        rig.model.slow_us = 0;
        assert_int_equal(finish(b, &high, &end), high.max_tokens);
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
        cmocka_unit_test(who_ranks_first_gets_room),
        cmocka_unit_test(room_is_for_the_longest_end),
        cmocka_unit_test(patience_ends),
        cmocka_unit_test(everything_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
