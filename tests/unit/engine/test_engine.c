/* Sequences and steps over a stand-in model: what is fed, what comes out, and every way to end. */
#include "unit/engine/engine_rig.h"

static void any_chunk_gives_the_same(void **state)
{
    (void)state;
    static const int64_t chunks[] = { 1, 2, 7, 64, 100, 512 };
    for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
        struct rig rig;
        rig_up(&rig, chunks[c], 1);
        struct tri_sequence *s = sequence(&rig, 300);
        prompt(s, 200, 1);
        start(s, greedy(20));
        assert_int_equal(run(&rig, s), TRI_END_LENGTH);
        assert_greedy(s, 200);
        struct tri_engine_counters seen;
        tri_engine_count(rig.engine, &seen);
        assert_int_equal(seen.prefill_tokens, 200);
        assert_int_equal(seen.decode_tokens, 19);
        tri_sequence_close(s);
        rig_down(&rig);
    }
}

/* Steps that are always too long, or never: other cuts, the same tokens. */
static void any_pace_gives_the_same(void **state)
{
    (void)state;
    static const uint64_t targets[] = { 1, UINT64_MAX, 0 };
    for (size_t i = 0; i < 3; i++) {
        struct rig rig;
        rig_open(&rig, 512, (struct tri_engine_options){ .step_target_ns = targets[i] });
        struct tri_sequence *s = sequence(&rig, 2600);
        prompt(s, 2500, 1);
        start(s, greedy(5));
        assert_int_equal(run(&rig, s), TRI_END_LENGTH);
        assert_greedy(s, 2500);
        for (int64_t c = 0; c < rig.model.calls - 5; c++)
            assert_int_equal(rig.model.rows[c] % TRI_ENGINE_GRID_TOKENS, 0);
        if (targets[i] == UINT64_MAX)
            assert_int_equal(rig.model.calls, 5 + 4);
        if (targets[i] == 1)
            assert_int_equal(rig.model.rows[1], 256);
        tri_sequence_close(s);
        rig_down(&rig);
    }
}

/* 100 rows fit, yet every cut is at a multiple of 64; a prompt that goes on gets back to it. */
static void prefill_is_cut_on_the_grid(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 100, 1);
    struct tri_sequence *s = sequence(&rig, 400);
    prompt(s, 230, 1);
    start(s, greedy(1));
    run(&rig, s);
    int32_t longer[337];
    int64_t n = 0;
    memcpy(longer, tri_sequence_tokens(s, &n), 230 * sizeof *longer);
    for (int i = 230; i < 337; i++)
        longer[i] = i % 50;
    assert_int_equal(tri_sequence_prompt(s, longer, 337, NULL, NULL), TRI_OK);
    start(s, greedy(1));
    run(&rig, s);
    static const int64_t rows[] = { 64, 64, 64, 38, 90, 17 };
    assert_int_equal(rig.model.calls, 6);
    assert_memory_equal(rig.model.rows, rows, sizeof rows);
    tri_sequence_close(s);
    rig_down(&rig);
}

static void neighbours_change_nothing(void **state)
{
    (void)state;
    enum { MANY = 5 };
    struct rig rig;
    rig_up(&rig, 40, MANY);
    struct tri_sequence *s[MANY];
    struct tri_generate how = greedy(30);
    how.sampling = tri_sampling_default();
    how.sampling.seed = 5;
    int32_t alone[MANY][30];
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < MANY; i++) {
            s[i] = sequence(&rig, 200);
            prompt(s[i], 20 + 30 * i, i);
            start(s[i], how);
            if (pass == 0)
                run(&rig, s[i]);
        }
        run(&rig, NULL);
        for (int i = 0; i < MANY; i++) {
            int64_t n = 0;
            const int32_t *tokens = tri_sequence_tokens(s[i], &n);
            assert_int_equal(n, 20 + 30 * i + 30);
            if (pass == 0)
                memcpy(alone[i], tokens + n - 30, sizeof alone[i]);
            else
                assert_memory_equal(alone[i], tokens + n - 30, sizeof alone[i]);
            tri_sequence_close(s[i]);
        }
    }
    rig_down(&rig);
}

static void decoding_goes_before_prefill(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 16, 2);
    struct tri_sequence *talker = sequence(&rig, 200), *reader = sequence(&rig, 400);
    prompt(talker, 5, 1);
    start(talker, greedy(50));
    const struct tri_step_event *events = NULL;
    (void)step(&rig, &events);
    prompt(reader, 150, 2);
    start(reader, greedy(5));
    /* 15 rows a step are left for the reader, and cuts at 64 and 128: its 150 take 12 steps. */
    for (int i = 0; i < 12; i++) {
        assert_int_equal(step(&rig, &events), 2);
        assert_ptr_equal(events[0].sequence, talker);
        assert_true(events[0].token >= 0);
        assert_true(i == 11 ? events[1].token >= 0 : events[1].token == -1);
        assert_int_equal(rig.model.rows_last, i == 4 || i == 9 ? 5 : i == 11 ? 8 : 16);
    }
    run(&rig, NULL);
    assert_greedy(talker, 5);
    assert_greedy(reader, 150);
    tri_sequence_close(talker);
    tri_sequence_close(reader);
    rig_down(&rig);
}

static void ends(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 64, 1);
    struct tri_sequence *s = sequence(&rig, 50);
    prompt(s, 10, 1);
    start(s, greedy(0));
    assert_int_equal(run(&rig, s), TRI_END_CONTEXT);
    int64_t n = 0;
    const int32_t *tokens = tri_sequence_tokens(s, &n);
    assert_int_equal(n, 50);
    assert_greedy(s, 10);
    int32_t stop = tokens[20];
    int64_t first = 10;
    while (tokens[first] != stop)
        first++;
    prompt(s, 10, 1);
    struct tri_generate how = greedy(0);
    how.stop_ids = &stop;
    how.n_stop_ids = 1;
    start(s, how);
    assert_int_equal(run(&rig, s), TRI_END_STOP);
    tri_sequence_tokens(s, &n);
    assert_int_equal(n, first + 1);
    how.min_tokens = 40; /* the stop id may not come at all */
    prompt(s, 10, 1);
    start(s, how);
    assert_int_equal(run(&rig, s), TRI_END_CONTEXT);
    tokens = tri_sequence_tokens(s, &n);
    for (int64_t i = 10; i < n; i++)
        assert_int_not_equal(tokens[i], stop);
    tri_sequence_close(s);
    rig_down(&rig);
}

static void the_context_is_refused_not_cut(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 64, 1);
    struct tri_sequence *s = sequence(&rig, 8), *none = NULL;
    assert_int_equal(tri_sequence_open(&none, rig.engine, 8, NULL), TRI_BUSY);
    int32_t tokens[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    struct tri_error err = { 0 };
    assert_int_equal(tri_sequence_prompt(s, tokens, 9, NULL, &err), TRI_LIMIT);
    assert_non_null(strstr(err.text, "9 tokens"));
    struct tri_generate how = greedy(0);
    assert_int_equal(tri_sequence_start(s, &how, NULL), TRI_ARG); /* empty */
    assert_int_equal(tri_sequence_prompt(s, tokens, 8, NULL, NULL), TRI_OK);
    assert_int_equal(tri_sequence_start(s, &how, NULL), TRI_LIMIT); /* no room for one more */
    assert_int_equal(tri_sequence_prompt(s, tokens, 7, NULL, NULL), TRI_OK);
    start(s, how);
    assert_int_equal(run(&rig, s), TRI_END_CONTEXT);
    tokens[3] = FAKE_VOCAB;
    assert_int_equal(tri_sequence_prompt(s, tokens, 7, NULL, NULL), TRI_ARG);
    tri_sequence_close(s);
    rig_down(&rig);
}

/* The next turn of a chat: held tokens, sampled ones included, are not computed again. */
static void a_continued_prompt_is_reused(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 64, 1);
    struct tri_sequence *s = sequence(&rig, 400);
    prompt(s, 50, 1);
    start(s, greedy(10));
    run(&rig, s);
    int64_t n = 0, reused = 0;
    int32_t next[100];
    memcpy(next, tri_sequence_tokens(s, &n), 60 * sizeof *next);
    assert_int_equal(n, 60);
    assert_int_equal(tri_sequence_computed(s), 59); /* the last sampled one waits */
    for (int i = 60; i < 100; i++)
        next[i] = i % 13;
    assert_int_equal(tri_sequence_prompt(s, next, 100, &reused, NULL), TRI_OK);
    assert_int_equal(reused, 59);
    start(s, greedy(10));
    run(&rig, s);
    assert_greedy(s, 100);
    next[30]++; /* the past is another one: all over again */
    assert_int_equal(tri_sequence_prompt(s, next, 100, &reused, NULL), TRI_OK);
    assert_int_equal(reused, 0);
    start(s, greedy(10));
    run(&rig, s);
    assert_greedy(s, 100);
    tri_sequence_close(s);
    rig_down(&rig);
}

static void saved_and_loaded_goes_on_alike(void **state)
{
    (void)state;
    struct rig rig;
    char path[] = "/tmp/trireme-engine-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    rig_up(&rig, 64, 1);
    struct tri_sequence *s = sequence(&rig, 400);
    struct tri_generate how = greedy(40);
    how.sampling = tri_sampling_default();
    how.sampling.seed = 77;
    prompt(s, 30, 4);
    start(s, how);
    run(&rig, s);
    int32_t whole[70], half[50];
    int64_t n = 0, reused = 0;
    memcpy(whole, tri_sequence_tokens(s, &n), sizeof whole);
    prompt(s, 30, 4);
    how.max_tokens = 20;
    start(s, how);
    run(&rig, s);
    memcpy(half, tri_sequence_tokens(s, &n), sizeof half);
    assert_int_equal(n, 50);
    assert_int_equal(tri_sequence_save(s, path, NULL), TRI_OK);
    prompt(s, 9, 9);
    assert_int_equal(tri_sequence_load(s, path, NULL), TRI_OK);
    unlink(path);
    assert_int_equal(tri_sequence_prompt(s, half, 50, &reused, NULL), TRI_OK);
    assert_int_equal(reused, 49);
    start(s, how);
    run(&rig, s);
    assert_memory_equal(tri_sequence_tokens(s, &n), whole, sizeof whole);
    tri_sequence_close(s);
    rig_down(&rig);
}

/* Alone a prompt has the whole chunk; beside others prompts have shared_rows of it, together. */
static void others_make_steps_small(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 256, (struct tri_engine_options){ .max_sequences = 3, .shared_rows = 128 });
    struct tri_sequence *s[3];
    const struct tri_step_event *events;
    for (int i = 0; i < 3; i++)
        s[i] = sequence(&rig, 2000);
    prompt(s[0], 1000, 4);
    start(s[0], greedy(4));
    (void)step(&rig, &events);
    assert_int_equal(rig.model.rows_last, 256);
    prompt(s[1], 10, 5);
    start(s[1], greedy(4));
    for (int i = 0; i < 2; i++) { /* the older takes all, then nothing changes for it */
        (void)step(&rig, &events);
        assert_int_equal(rig.model.rows_last, 128);
    }
    tri_sequence_pause(s[0], true);
    (void)step(&rig, &events);
    assert_int_equal(rig.model.rows_last, 10);
    tri_sequence_pause(s[0], false);
    (void)step(&rig, &events);
    assert_int_equal(rig.model.rows_last, 129); /* one decodes */
    run(&rig, s[1]);
    run(&rig, s[0]);
    assert_greedy(s[0], 1000);
    assert_greedy(s[1], 10);
    for (int i = 0; i < 3; i++)
        tri_sequence_close(s[i]);
    rig_down(&rig);
}

/* Stopped in the middle and gone on elsewhere: penalties, draws and the count of new tokens are
 * those of one that was never stopped. */
static void resumed_is_as_never_stopped(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 64, 2);
    struct tri_sequence *s = sequence(&rig, 400), *t = sequence(&rig, 400);
    struct tri_generate how = greedy(60);
    how.sampling = tri_sampling_default();
    how.sampling.seed = 5;
    how.sampling.frequency_penalty = 0.7;
    how.sampling.repetition_penalty = 1.3;
    how.min_tokens = 55;
    prompt(s, 30, 4);
    start(s, how);
    run(&rig, s);
    int32_t whole[90], part[60];
    int64_t n = 0, reused = 0;
    memcpy(whole, tri_sequence_tokens(s, &n), sizeof whole);
    assert_int_equal(n, 90);
    prompt(s, 30, 4);
    start(s, how);
    const struct tri_step_event *events;
    do
        (void)step(&rig, &events);
    while (tri_sequence_computed(s) < 59);
    tri_sequence_stop(s);
    memcpy(part, tri_sequence_tokens(s, &n), sizeof part);
    assert_int_equal(n, 60);
    struct tri_state *copy = NULL;
    assert_int_equal(tri_model_state(&rig.model, 59, &copy, NULL), TRI_OK);
    assert_int_equal(tri_sequence_snapshot(s, copy, NULL), TRI_OK);
    assert_int_equal(tri_sequence_restore(t, copy, part, 59, NULL), TRI_OK);
    assert_int_equal(tri_sequence_prompt(t, part, 60, &reused, NULL), TRI_OK);
    assert_int_equal(reused, 59);
    assert_int_equal(tri_sequence_resume(t, &how, 30, NULL), TRI_OK);
    run(&rig, t);
    assert_memory_equal(tri_sequence_tokens(t, &n), whole, sizeof whole);
    assert_int_equal(n, 90);
    tri_state_close(copy);
    tri_sequence_close(s);
    tri_sequence_close(t);
    rig_down(&rig);
}

static void nan_ends_only_its_own_sequence(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 64, 2);
    struct tri_sequence *good = sequence(&rig, 100), *bad = sequence(&rig, 100);
    rig.model.poison = 95; /* never in a prompt but this one */
    int32_t last = 95;
    struct tri_generate how = greedy(30);
    const struct tri_logit_bias ban = { 95, -INFINITY };
    how.bias = &ban;
    how.n_bias = 1;
    prompt(good, 10, 1);
    start(good, how);
    assert_int_equal(tri_sequence_prompt(bad, &last, 1, NULL, NULL), TRI_OK);
    start(bad, how);
    const struct tri_step_event *events = NULL;
    assert_int_equal(step(&rig, &events), 2);
    assert_int_equal(events[1].end, TRI_END_ERROR);
    assert_int_equal(events[1].token, -1);
    assert_int_equal(events[1].error->status, TRI_NUMERIC);
    assert_false(tri_sequence_active(bad));
    run(&rig, good);
    int64_t held = 0;
    tri_sequence_tokens(good, &held);
    assert_int_equal(held, 40);
    struct tri_engine_counters seen;
    tri_engine_count(rig.engine, &seen);
    assert_int_equal(seen.numeric_failures, 1);
    rig.model.poison = -1; /* the slot is usable again */
    start(bad, greedy(3));
    assert_int_equal(run(&rig, bad), TRI_END_LENGTH);
    assert_greedy(bad, 1);
    tri_sequence_close(good);
    tri_sequence_close(bad);
    rig_down(&rig);
}

static void a_failed_step_is_told_and_can_be_repeated(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 64, 1);
    struct tri_sequence *s = sequence(&rig, 100);
    prompt(s, 10, 1);
    start(s, greedy(5));
    rig.model.fail = TRI_IO;
    const struct tri_step_event *events = NULL;
    int64_t n = 0;
    struct tri_error err = { 0 };
    assert_int_equal(tri_engine_step(rig.engine, &events, &n, &err), TRI_IO);
    assert_non_null(strstr(err.text, "shard 3"));
    assert_false(tri_sequence_active(s));
    start(s, greedy(5));
    run(&rig, s);
    assert_greedy(s, 10);
    tri_sequence_close(s);
    rig_down(&rig);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 64, 1);
    struct tri_sequence *s = sequence(&rig, 100);
    prompt(s, 10, 1);
    struct tri_generate how[12];
    for (int i = 0; i < 12; i++)
        how[i] = greedy(1);
    how[0].sampling.temperature = -1;
    how[1].sampling.temperature = (double)NAN;
    how[2].sampling.top_p = 1.5;
    how[3].sampling.min_p = -0.1;
    how[4].sampling.repetition_penalty = 0;
    how[5].sampling.presence_penalty = 101;
    how[6].sampling.frequency_penalty = (double)-INFINITY;
    const struct tri_logit_bias outside = { FAKE_VOCAB, 1 }, large = { 1, 100.5f },
                                nan = { 1, NAN };
    how[7].bias = &outside;
    how[8].bias = &large;
    how[9].bias = &nan;
    how[7].n_bias = how[8].n_bias = how[9].n_bias = 1;
    how[10].top_logprobs = TRI_ENGINE_MAX_TOP_LOGPROBS + 1;
    how[11].n_stop_ids = TRI_ENGINE_MAX_STOP_IDS + 1;
    for (int i = 0; i < 12; i++) {
        struct tri_error err = { 0 };
        enum tri_status st = tri_sequence_start(s, &how[i], &err);
        assert_true(st == TRI_ARG || st == TRI_LIMIT);
        assert_true(err.text[0] != 0);
        assert_false(tri_sequence_active(s));
    }
    tri_sequence_close(s);
    struct tri_engine *e = NULL;
    static const int32_t unsorted[] = { 95, 94 }, low[] = { 5 }, high[] = { FAKE_VOCAB };
    const struct tri_engine_options bad[] = {
        { .max_sequences = TRI_ENGINE_MAX_SEQUENCES + 1 },
        { .plain_ids = FAKE_VOCAB + 1 },
        { .plain_ids = 90, .specials = unsorted, .n_specials = 2 },
        { .plain_ids = 90, .specials = low, .n_specials = 1 },
        { .plain_ids = 90, .specials = high, .n_specials = 1 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_true(tri_engine_open(&e, &rig.model, &bad[i], rig.budget, NULL) != TRI_OK);
    rig_down(&rig);
}

static void penalties_count_the_output_only(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 64, 1);
    struct tri_sequence *s = sequence(&rig, 200);
    prompt(s, 90, 1); /* every id below 90 is in the prompt */
    struct tri_generate how = greedy(80);
    how.sampling.presence_penalty = 100; /* no id twice in the output, whatever the prompt */
    start(s, how);
    assert_int_equal(run(&rig, s), TRI_END_LENGTH);
    int64_t n = 0;
    const int32_t *tokens = tri_sequence_tokens(s, &n);
    int times[FAKE_VOCAB] = { 0 };
    int from_prompt = 0;
    for (int64_t i = 90; i < n; i++) {
        assert_int_equal(times[tokens[i]]++, 0);
        from_prompt += tokens[i] < 90;
    }
    assert_true(from_prompt > 60);
    tri_sequence_close(s);
    rig_down(&rig);
}

static void out_of_memory_leaves_nothing(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 64, 2);
    struct tri_budget *small = NULL;
    for (uint64_t bytes = 64; bytes < 8192; bytes += 64) {
        assert_int_equal(tri_budget_open(&small, bytes, NULL), TRI_OK);
        struct tri_engine *e = NULL;
        struct tri_sequence *s = NULL;
        if (tri_engine_open(&e, &rig.model, NULL, small, NULL) == TRI_OK) {
            if (tri_sequence_open(&s, e, 50, NULL) == TRI_OK)
                tri_sequence_close(s);
            tri_engine_close(e);
        }
        tri_budget_close(small); /* asserts that nothing is left */
    }
    rig_down(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_chunk_gives_the_same),
        cmocka_unit_test(any_pace_gives_the_same),
        cmocka_unit_test(prefill_is_cut_on_the_grid),
        cmocka_unit_test(neighbours_change_nothing),
        cmocka_unit_test(decoding_goes_before_prefill),
        cmocka_unit_test(ends),
        cmocka_unit_test(the_context_is_refused_not_cut),
        cmocka_unit_test(a_continued_prompt_is_reused),
        cmocka_unit_test(saved_and_loaded_goes_on_alike),
        cmocka_unit_test(others_make_steps_small),
        cmocka_unit_test(resumed_is_as_never_stopped),
        cmocka_unit_test(nan_ends_only_its_own_sequence),
        cmocka_unit_test(a_failed_step_is_told_and_can_be_repeated),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(penalties_count_the_output_only),
        cmocka_unit_test(out_of_memory_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
