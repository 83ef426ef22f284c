/* Log-probabilities of a prompt's own tokens, against softmax over the stand-in's function. */
#include "unit/engine/engine_rig.h"

struct scored {
    struct tri_scores to;
    struct tri_logprob chosen[FAKE_ROOM], top[FAKE_ROOM * 2];
};

static struct scored *new_scores(void)
{
    struct scored *s = tri_calloc(1, sizeof *s);
    s->to = (struct tri_scores){ .chosen = s->chosen, .top = s->top, .n_top = 2 };
    return s;
}

static void assert_near(float got, double want)
{
    assert_true(fabs((double)got - want) < 2e-6);
}

/* Every token of the prompt against softmax over the fake's function. */
static void assert_scores(const struct tri_sequence *s, const struct scored *got, int64_t n_prompt)
{
    int64_t n = 0;
    const int32_t *tokens = tri_sequence_tokens(s, &n);
    assert_int_equal(got->to.n_done, n_prompt - 1);
    for (int64_t at = 1; at < n_prompt; at++) {
        float logits[FAKE_VOCAB];
        double sum = 0, best = -1, next = -1;
        fake_logits(tokens, at, logits);
        for (int i = 0; i < FAKE_VOCAB; i++) {
            double l = (double)logits[i];
            sum += exp(l);
            next = l > best ? best : l > next ? l : next;
            best = l > best ? l : best;
        }
        assert_int_equal(got->chosen[at].id, tokens[at]);
        assert_near(got->chosen[at].logprob, (double)logits[tokens[at]] - log(sum));
        assert_near(got->top[2 * at].logprob, best - log(sum));
        assert_near(got->top[2 * at + 1].logprob, next - log(sum));
    }
}

static void prompts_are_scored(void **state)
{
    (void)state;
    static const int64_t chunks[] = { 1, 7, 64, 100, 512 }, prompts[] = { 1, 2, 16, 17, 18, 200 };
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        struct rig rig;
        rig_up(&rig, chunks[i], 2);
        struct tri_sequence *s = sequence(&rig, 300), *other = sequence(&rig, 300);
        for (size_t k = 0; k < sizeof prompts / sizeof prompts[0]; k++) {
            struct scored *got = new_scores();
            struct tri_generate how = greedy(4);
            how.scores = &got->to;
            prompt(s, prompts[k], (int)k);
            prompt(other, 50, 40 + (int)k);
            start(other, greedy(30));
            start(s, how);
            assert_int_equal(run(&rig, s), TRI_END_LENGTH);
            assert_scores(s, got, prompts[k]);
            assert_greedy(s, prompts[k]);
            assert_greedy(other, 50);
            tri_free(got);
        }
        tri_sequence_close(s);
        tri_sequence_close(other);
        rig_down(&rig);
    }
}

/* One sequence of 300 tokens whose prompt may be scored, in chunks of 64. */
struct scoring {
    struct rig rig;
    struct tri_sequence *s;
    struct scored *got;
    struct tri_generate how; /* one token */
};

static void scoring_up(struct scoring *t)
{
    rig_up(&t->rig, 64, 1);
    t->s = sequence(&t->rig, 300);
    t->got = new_scores();
    t->how = greedy(1);
}

static void scoring_down(struct scoring *t)
{
    tri_sequence_close(t->s);
    tri_free(t->got);
    rig_down(&t->rig);
}

/* A state that has seen some of the prompt unscored starts again; scored so far, it goes on. */
static void scoring_starts_where_it_stopped(void **state)
{
    (void)state;
    struct scoring t;
    scoring_up(&t);
    const struct tri_step_event *events = NULL;
    int64_t n = 0;
    t.how.prompt_only = true;
    prompt(t.s, 150, 1);
    start(t.s, t.how);
    assert_int_equal(run(&t.rig, t.s), TRI_END_LENGTH);
    assert_int_equal(tri_sequence_computed(t.s), 150);
    prompt(t.s, 200, 1);
    t.how.scores = &t.got->to;
    start(t.s, t.how);
    assert_int_equal(tri_sequence_computed(t.s), 0);
    (void)step(&t.rig, &events);
    assert_int_equal(t.got->to.n_done, 64);
    tri_sequence_stop(t.s);
    start(t.s, t.how);
    assert_int_equal(tri_sequence_computed(t.s), 64);
    assert_int_equal(run(&t.rig, t.s), TRI_END_LENGTH);
    assert_scores(t.s, t.got, 200);
    (void)tri_sequence_tokens(t.s, &n);
    assert_int_equal(n, 200); /* prompt_only: nothing was sampled */
    scoring_down(&t);
}

static void scoring_is_refused_or_fails(void **state)
{
    (void)state;
    struct scoring t;
    scoring_up(&t);
    t.how.scores = &t.got->to;
    prompt(t.s, 100, 1);
    t.got->to.n_top = TRI_ENGINE_MAX_TOP_LOGPROBS + 1;
    assert_int_equal(tri_sequence_start(t.s, &t.how, NULL), TRI_LIMIT);
    t.got->to.n_top = TRI_ENGINE_MAX_TOP_LOGPROBS;
    assert_int_equal(tri_sequence_start(t.s, &t.how, NULL), TRI_OK);
    tri_sequence_stop(t.s);
    t.got->to.n_top = 2;
    t.rig.model.poison = (int32_t)((80 * 31 + 7 + 3) % 90); /* the 81st token, not the last */
    const struct tri_step_event *events = NULL;
    start(t.s, t.how);
    (void)step(&t.rig, &events);
    assert_int_equal(step(&t.rig, &events), 1);
    assert_int_equal(events[0].end, TRI_END_ERROR);
    assert_non_null(strstr(events[0].error->text, "after token 80 "));
    assert_int_equal(tri_sequence_computed(t.s), 0);
    t.rig.model.poison = -1;
    t.got->to.n_done = 0;
    start(t.s, t.how); /* and it can be asked again */
    assert_int_equal(run(&t.rig, t.s), TRI_END_LENGTH);
    assert_scores(t.s, t.got, 100);
    tri_sequence_close(t.s);
    tri_engine_close(t.rig.engine);
    assert_int_equal(tri_engine_open(&t.rig.engine, &t.rig.model, NULL, t.rig.budget, NULL),
                     TRI_OK);
    t.s = sequence(&t.rig, 300);
    prompt(t.s, 100, 1);
    assert_int_equal(tri_sequence_start(t.s, &t.how, NULL), TRI_ARG);
    scoring_down(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_are_scored),
        cmocka_unit_test(scoring_starts_where_it_stopped),
        cmocka_unit_test(scoring_is_refused_or_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
