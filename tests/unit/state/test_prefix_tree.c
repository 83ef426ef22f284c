/*
 * The prefix tree against a list that is searched in full: random token lists with long shared
 * beginnings, put, found and removed in random order. And: no memory is kept, a failed put changes
 * nothing.
 */
#include "state/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { LISTS = 60, MAX_IDS = 40, ROUNDS = 20000 };

struct list {
    struct tri_salt salt;
    int32_t ids[MAX_IDS];
    int64_t n;
    struct tri_prefix *at;
};

static uint64_t seed = 9;

static int64_t below(int64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(seed >> 33) % n;
}

static bool begins(const struct list *a, const struct list *b)
{
    return a->salt.a == b->salt.a && a->salt.b == b->salt.b && a->n <= b->n &&
           !memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids);
}

/* Few different ids and two salts that differ in their last bit, so that most lists share a lot. */
static struct list random_list(void)
{
    struct list l = { .salt = { 7, (uint64_t)below(2) << 63 }, .n = 1 + below(MAX_IDS) };
    int64_t same = below(l.n + 1);
    for (int64_t i = 0; i < l.n; i++)
        l.ids[i] = i < same ? (int32_t)(i % 3) : (int32_t)below(2);
    return l;
}

static void check_longest(struct tri_prefixes *tree, struct list *held, const struct list *key)
{
    struct list *best = NULL;
    for (int i = 0; i < LISTS; i++)
        if (held[i].at && begins(&held[i], key) && (!best || held[i].n > best->n))
            best = &held[i];
    struct tri_prefix *got = tri_prefixes_longest(tree, &key->salt, key->ids, key->n, NULL, NULL);
    assert_ptr_equal(got, best ? best->at : NULL);
    if (!best)
        return;
    int32_t ids[MAX_IDS];
    assert_ptr_equal(tri_prefix_value(got), best);
    tri_prefix_tokens(got, ids);
    assert_memory_equal(ids, best->ids, (size_t)best->n * sizeof *ids);
}

static int held_same(const struct list *held, const struct list *key)
{
    for (int i = 0; i < LISTS; i++)
        if (held[i].at && held[i].n == key->n && begins(&held[i], key))
            return i;
    return -1;
}

static void as_a_plain_list(void **state)
{
    (void)state;
    static struct list held[LISTS];
    struct tri_budget *budget = NULL;
    struct tri_prefixes *tree = NULL;
    assert_int_equal(tri_budget_open(&budget, 1 << 20, NULL), TRI_OK);
    assert_int_equal(tri_prefixes_open(&tree, budget, NULL), TRI_OK);
    for (int round = 0; round < ROUNDS; round++) {
        struct list key = random_list();
        int64_t i = below(LISTS);
        int same = held_same(held, &key);
        assert_ptr_equal(tri_prefixes_find(tree, &key.salt, key.ids, key.n),
                         same < 0 ? NULL : held[same].at);
        check_longest(tree, held, &key);
        if (held[i].at) {
            tri_prefix_remove(tree, held[i].at);
            held[i].at = NULL;
        } else if (same < 0) {
            held[i] = key;
            assert_int_equal(
                tri_prefixes_put(tree, &key.salt, key.ids, key.n, &held[i], &held[i].at, NULL),
                TRI_OK);
        }
    }
    for (int i = 0; i < LISTS; i++)
        if (held[i].at)
            tri_prefix_remove(tree, held[i].at);
    struct tri_budget_report now;
    tri_budget_read(budget, &now);
    assert_int_equal(now.used_bytes, 0); /* an empty tree holds nothing */
    tri_prefixes_close(tree);
    tri_budget_close(budget);
}

static bool is_even(void *arg, void *value)
{
    (void)arg;
    return *(const int *)value % 2 == 0;
}

static void forks_and_conditions(void **state)
{
    (void)state;
    static const struct tri_salt salt;
    static const int32_t ids[] = { 1, 2, 3, 4, 5 }, other[] = { 1, 2, 9 };
    static int value[] = { 2, 3, 5 };
    struct tri_budget *budget = NULL;
    struct tri_prefixes *tree = NULL;
    struct tri_prefix *head, *deep, *fork;
    assert_int_equal(tri_budget_open(&budget, 1 << 20, NULL), TRI_OK);
    assert_int_equal(tri_prefixes_open(&tree, budget, NULL), TRI_OK);
    assert_int_equal(tri_prefixes_put(tree, &salt, ids, 2, &value[0], &head, NULL), TRI_OK);
    assert_false(tri_prefix_is_covered(head));
    assert_int_equal(tri_prefixes_put(tree, &salt, ids, 5, &value[1], &deep, NULL), TRI_OK);
    assert_true(tri_prefix_is_covered(head));
    assert_int_equal(tri_prefixes_put(tree, &salt, other, 3, &value[2], &fork, NULL), TRI_OK);
    assert_false(tri_prefix_is_covered(head)); /* two ways go on from here */
    assert_ptr_equal(tri_prefixes_longest(tree, &salt, ids, 5, is_even, NULL), head);
    tri_prefix_remove(tree, fork);
    assert_true(tri_prefix_is_covered(head));
    /* Without memory a put fails and the tree stays as it is. */
    for (long at = 0; at < 5; at++) {
        static const int32_t between[] = { 1, 2, 3, 7 };
        struct tri_prefix *out = NULL;
        tri_mem_fail_after(at);
        enum tri_status st = tri_prefixes_put(tree, &salt, between, 4, &value[2], &out, NULL);
        tri_mem_fail_after(-1);
        if (st == TRI_OK)
            tri_prefix_remove(tree, out);
        assert_ptr_equal(tri_prefixes_longest(tree, &salt, between, 4, NULL, NULL), head);
        assert_ptr_equal(tri_prefixes_find(tree, &salt, ids, 5), deep);
    }
    tri_prefixes_close(tree);
    tri_budget_close(budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(as_a_plain_list),
                                        cmocka_unit_test(forks_and_conditions) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
