/* Checkpoints in files: found by the next process, damaged, too large, on a drive that fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/sched/sched_rig.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drive_that_stands),       cmocka_unit_test(checkpoints_are_so_many),
        cmocka_unit_test(the_next_process_finds_it), cmocka_unit_test(a_damaged_file_is_a_miss),
        cmocka_unit_test(files_keep_their_size),     cmocka_unit_test(a_folder_that_vanishes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
