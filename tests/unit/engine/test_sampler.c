/*
 * The sampler against an independent slow computation: probabilities in long double, every filter
 * by sorting, as engine.h words them; then the draw, the order of filters, and the edges.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/engine_priv.h"

enum { VOCAB = 4000, PLAIN = 3900 };
static const int32_t specials[] = { 3905, 3906, 3950, 3999 };
enum { SPECIALS = 4, N = PLAIN + SPECIALS };

static double adjusted[N];
static uint64_t keys[N], work[N];
static float logits[VOCAB];
static uint32_t marks[VOCAB];

static struct tri__engine_sampler sampler(void)
{
    return (struct tri__engine_sampler){
        .plain_ids = PLAIN,
        .n_specials = SPECIALS,
        .n = N,
        .specials = (int32_t *)(uintptr_t)specials,
        .logits = adjusted,
        .keys = keys,
        .work = work,
    };
}

/* A generator of the test's own (Marsaglia's xorshift64). */
static uint64_t noise = 88172645463325252u;
static double random_unit(void)
{
    noise ^= noise << 13;
    noise ^= noise >> 7;
    noise ^= noise << 17;
    return (double)(noise >> 11) / 9007199254740992.0;
}

static void random_row(double spread)
{
    for (int i = 0; i < VOCAB; i++) {
        logits[i] = (float)((random_unit() + random_unit() + random_unit() - 1.5) * spread);
        if (i % 7 == 3) /* ties on purpose */
            logits[i] = logits[i / 2];
        marks[i] = random_unit() < 0.05 ? (uint32_t)(random_unit() * 8) : 0;
    }
}

/* --- the slow way -------------------------------------------------------------------------- */

struct slow {
    int id;
    long double p;
};

static int likelier_first(const void *a, const void *b)
{
    const struct slow *x = a, *y = b;
    if (x->p != y->p)
        return x->p > y->p ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int lower_id_first(const void *a, const void *b)
{
    return ((const struct slow *)a)->id < ((const struct slow *)b)->id ? -1 : 1;
}

static int may_be_sampled(int id)
{
    for (int i = 0; i < SPECIALS; i++)
        if (specials[i] == id)
            return 1;
    return id < PLAIN;
}

static void normalise(struct slow *set, int n)
{
    long double sum = 0;
    for (int i = 0; i < n; i++)
        sum += set[i].p;
    for (int i = 0; i < n; i++)
        set[i].p /= sum;
}

/* The set that may be drawn, with probabilities, likeliest first. */
static int slow_set(const struct tri__engine_pick *pick, struct slow *set)
{
    const struct tri_sampling *how = pick->how;
    static long double l[VOCAB];
    long double max = -HUGE_VALL, penalty = (long double)how->repetition_penalty;
    long double temperature = (long double)how->temperature;
    for (int i = 0; i < VOCAB; i++) {
        l[i] = (long double)logits[i];
        for (int j = 0; j < pick->n_bias; j++)
            if (pick->bias[j].id == i)
                l[i] += (long double)pick->bias[j].bias;
        if (marks[i])
            l[i] = l[i] > 0 ? l[i] / penalty : l[i] * penalty;
        long times = marks[i] / 2;
        l[i] -= (long double)(how->frequency_penalty * times + (times ? how->presence_penalty : 0));
        if (may_be_sampled(i) && l[i] > max)
            max = l[i];
    }
    int n = 0;
    for (int i = 0; i < VOCAB; i++)
        if (may_be_sampled(i))
            set[n++] = (struct slow){ i, expl((l[i] - max) / temperature) };
    qsort(set, (size_t)n, sizeof *set, likelier_first);
    /* The sampler rounds weights to float: round here too, so that ties agree; then sort again. */
    for (int i = 0; i < n; i++)
        set[i].p = (long double)(float)set[i].p;
    qsort(set, (size_t)n, sizeof *set, likelier_first);
    while (n > 1 && (set[n - 1].p < (long double)how->min_p || set[n - 1].p == 0))
        n--;
    if (how->top_k > 0 && how->top_k < n)
        n = (int)how->top_k;
    normalise(set, n);
    long double sum = 0;
    int keep = 0;
    while (keep < n && (keep == 0 || sum < (long double)how->top_p))
        sum += set[keep++].p;
    if (how->top_p < 1)
        n = keep;
    normalise(set, n);
    return n;
}

/* Where a uniform number lands: in id order. *edge tells how near it was to a border. */
static int slow_draw(struct slow *set, int n, double uniform, long double *edge)
{
    qsort(set, (size_t)n, sizeof *set, lower_id_first);
    long double sum = 0;
    for (int i = 0; i < n; i++) {
        long double next = sum + set[i].p;
        if (next > (long double)uniform || i == n - 1) {
            long double a = (long double)uniform - sum, b = next - (long double)uniform;
            *edge = a < b ? a : b;
            return set[i].id;
        }
        sum = next;
    }
    return -1;
}

static struct tri_sampling random_options(int round)
{
    struct tri_sampling how = tri_sampling_default();
    how.seed = (uint64_t)round * 7919;
    how.temperature = 0.2 + random_unit() * 2;
    if (round & 1)
        how.top_p = random_unit();
    if (round & 2)
        how.top_k = 1 + (int64_t)(random_unit() * random_unit() * VOCAB * 1.2);
    if (round & 4)
        how.min_p = random_unit() * random_unit() * 0.5;
    if (round & 8) {
        how.repetition_penalty = 0.5 + random_unit() * 1.5;
        how.presence_penalty = random_unit() * 4 - 2;
        how.frequency_penalty = random_unit() * 4 - 2;
    }
    return how;
}

static void agrees_with_the_slow_way(void **state)
{
    (void)state;
    struct tri__engine_sampler s = sampler();
    static struct slow set[VOCAB];
    const struct tri_logit_bias bias[] = { { 17, 5 }, { 3905, 3 }, { 2000, -100 }, { 3901, 100 } };
    int near = 0;
    for (int round = 0; round < 300; round++) {
        random_row(1 + random_unit() * 12);
        struct tri_sampling how = random_options(round);
        struct tri__engine_pick pick = { .logits = logits,
                                         .how = &how,
                                         .marks = marks,
                                         .bias = bias,
                                         .n_bias = round & 16 ? 4 : 0,
                                         .position = (uint64_t)round };
        int n = slow_set(&pick, set);
        long double edge = 0;
        int want = slow_draw(set, n, tri__engine_uniform(how.seed, pick.position), &edge);
        int32_t got = -1;
        assert_int_equal(tri__engine_sample(&s, &pick, &got, NULL), TRI_OK);
        if (edge < 1e-10L) { /* rounding of the last bits may decide: not a fault */
            near++;
            continue;
        }
        assert_int_equal(got, want);
    }
    assert_true(near < 3);
}

static int32_t pick_one(const struct tri_sampling *how, const struct tri_logit_bias *bias, int n)
{
    struct tri__engine_sampler s = sampler();
    struct tri__engine_pick pick = {
        .logits = logits, .how = how, .marks = marks, .bias = bias, .n_bias = n
    };
    int32_t id = -1;
    assert_int_equal(tri__engine_sample(&s, &pick, &id, NULL), TRI_OK);
    return id;
}

static void greedy_is_the_largest_and_lowest(void **state)
{
    (void)state;
    random_row(4);
    memset(marks, 0, sizeof marks);
    logits[700] = logits[300] = 50;
    logits[3910] = 90; /* reserved: never */
    struct tri_sampling how = tri_sampling_default();
    how.temperature = 0;
    assert_int_equal(pick_one(&how, NULL, 0), 300);
    how.temperature = 1e-300; /* tiny: as good as greedy, and no NaN; ties may go to either */
    int32_t id = pick_one(&how, NULL, 0);
    assert_true(id == 300 || id == 700);
    how.top_k = 1;
    assert_int_equal(pick_one(&how, NULL, 0), 300);
    const struct tri_logit_bias up[] = { { 3906, 100 }, { 3910, 100 } };
    how.temperature = 0;
    assert_int_equal(pick_one(&how, up, 2), 3906);
}

static void edges_of_the_filters(void **state)
{
    (void)state;
    random_row(3);
    memset(marks, 0, sizeof marks);
    logits[1234] = 20;
    logits[99] = 19.5f;
    static const struct {
        double top_p, min_p;
        int64_t top_k;
        int only_the_best;
    } cases[] = {
        { 0, 0, 0, 1 },  { 1, 1, 0, 1 },      { 1, 0, 1, 1 },        { 0.5, 0, 0, 1 },
        { 1, 0, 2, 0 },  { 1, 0.5, 0, 0 },    { 0.99, 0, N + 5, 0 }, { 1, 0, INT64_MAX, 0 },
        { 1, 0, -1, 0 }, { 1e-300, 0, 0, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tri_sampling how = tri_sampling_default();
        how.top_p = cases[i].top_p;
        how.min_p = cases[i].min_p;
        how.top_k = cases[i].top_k;
        int second = 0;
        for (how.seed = 0; how.seed < 200; how.seed++) {
            int32_t id = pick_one(&how, NULL, 0);
            assert_true(id == 1234 || id == 99 || how.top_k > 2 || how.top_k < 0);
            second += id == 99;
        }
        assert_int_equal(second == 0, cases[i].only_the_best);
    }
}

static void all_banned_is_an_error(void **state)
{
    (void)state;
    struct tri__engine_sampler s = sampler();
    s.plain_ids = 2;
    s.n_specials = 0;
    s.n = 2;
    const struct tri_logit_bias bias[] = { { 0, -INFINITY }, { 1, -INFINITY } };
    struct tri_sampling how = tri_sampling_default();
    how.repetition_penalty = 1.5;
    how.frequency_penalty = -100;
    marks[0] = 9;
    for (int greedy = 0; greedy < 2; greedy++) {
        how.temperature = greedy ? 0 : 1;
        struct tri_error err = { 0 };
        struct tri__engine_pick pick = {
            .logits = logits, .how = &how, .marks = marks, .bias = bias, .n_bias = 2
        };
        int32_t id = -1;
        assert_int_equal(tri__engine_sample(&s, &pick, &id, &err), TRI_LIMIT);
        assert_int_equal(id, -1);
        pick.n_bias = 1;
        assert_int_equal(tri__engine_sample(&s, &pick, &id, &err), TRI_OK);
        assert_int_equal(id, 1);
    }
}

static void huge_logits_do_not_overflow(void **state)
{
    (void)state;
    random_row(1);
    logits[5] = 3e38f;
    logits[6] = -3e38f;
    struct tri_sampling how = tri_sampling_default();
    how.repetition_penalty = 0.01;
    for (int i = 0; i < VOCAB; i++)
        marks[i] = 3;
    assert_int_equal(pick_one(&how, NULL, 0), 5);
}

/* 40,000 draws of a six-way distribution: chi-square with 5 degrees of freedom is below 20.5
 * with probability 0.999; the seed is fixed, so this cannot flicker. */
static void draws_follow_the_distribution(void **state)
{
    (void)state;
    static const double p[6] = { 0.4, 0.25, 0.15, 0.1, 0.07, 0.03 };
    for (int i = 0; i < VOCAB; i++)
        logits[i] = -1000;
    memset(marks, 0, sizeof marks);
    for (int i = 0; i < 6; i++)
        logits[i * 650] = (float)log(p[i]);
    struct tri__engine_sampler s = sampler();
    struct tri_sampling how = tri_sampling_default();
    how.seed = 42;
    long seen[6] = { 0 };
    enum { DRAWS = 40000 };
    for (int i = 0; i < DRAWS; i++) {
        struct tri__engine_pick pick = {
            .logits = logits, .how = &how, .marks = marks, .position = (uint64_t)i
        };
        int32_t id = -1;
        assert_int_equal(tri__engine_sample(&s, &pick, &id, NULL), TRI_OK);
        assert_int_equal(id % 650, 0);
        seen[id / 650]++;
    }
    double chi = 0;
    for (int i = 0; i < 6; i++)
        chi += (seen[i] - p[i] * DRAWS) * (seen[i] - p[i] * DRAWS) / (p[i] * DRAWS);
    assert_true(chi < 20.5);
}

/* Neighbouring seeds and positions must not be related: means and correlations of the uniforms. */
static void uniforms_are_uniform(void **state)
{
    (void)state;
    enum { SIDE = 400 };
    double sum = 0, along = 0, across = 0;
    for (uint64_t seed = 0; seed < SIDE; seed++) {
        for (uint64_t at = 0; at < SIDE; at++) {
            double u = tri__engine_uniform(seed, at) - 0.5;
            assert_true(u >= -0.5 && u < 0.5);
            sum += u;
            along += u * (tri__engine_uniform(seed, at + 1) - 0.5);
            across += u * (tri__engine_uniform(seed + 1, at) - 0.5);
        }
    }
    double n = SIDE * SIDE; /* standard errors: sqrt(1/12/n) and 1/12/sqrt(n) */
    assert_true(fabs(sum / n) < 4 * sqrt(1 / 12.0 / n));
    assert_true(fabs(along / n) < 4 / 12.0 / sqrt(n));
    assert_true(fabs(across / n) < 4 / 12.0 / sqrt(n));
    /* One golden-ratio step of the seed must not be the same stream one token later. */
    assert_true(tri__engine_uniform(0x9e3779b97f4a7c15u, 3) != tri__engine_uniform(0, 4));
}

static void logprobs_are_log_softmax(void **state)
{
    (void)state;
    random_row(8);
    logits[11] = logits[7] = 14; /* a tie at the top */
    long double sum = 0;
    for (int i = 0; i < VOCAB; i++)
        sum += expl((long double)logits[i]);
    struct tri_logprob chosen, top[20];
    tri__engine_logprobs(logits, VOCAB, 123, &chosen, top, 20);
    assert_int_equal(chosen.id, 123);
    assert_true(fabsl((long double)chosen.logprob - ((long double)logits[123] - logl(sum))) <
                1e-6L);
    assert_int_equal(top[0].id, 7);
    assert_int_equal(top[1].id, 11);
    static struct slow all[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        all[i] = (struct slow){ i, (long double)logits[i] };
    qsort(all, VOCAB, sizeof *all, likelier_first);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(top[i].id, all[i].id);
        assert_true(fabsl((long double)top[i].logprob - (all[i].p - logl(sum))) < 1e-5L);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_slow_way),
        cmocka_unit_test(greedy_is_the_largest_and_lowest),
        cmocka_unit_test(edges_of_the_filters),
        cmocka_unit_test(all_banned_is_an_error),
        cmocka_unit_test(huge_logits_do_not_overflow),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(uniforms_are_uniform),
        cmocka_unit_test(logprobs_are_log_softmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
