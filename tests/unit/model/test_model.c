/*
 * model: two sequences in one step do not see each other; a copied state continues like its origin;
 * a saved one too; a full context and bad ids are refused before anything changes. Logits are held
 * against the golden vectors of the reference.
 */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/json.h"
#include "model/model.h"
#include "shared.h"

enum { VOCAB = 320, TOKENS = 24 };

struct golden {
    struct tri_budget *budget;
    struct tri_model *model;
    int32_t tokens[TOKENS];
    float want[TOKENS][VOCAB];
};

static struct golden g;

static int open_golden(void **state)
{
    (void)state;
    char path[4096];
    json_t *json = NULL, *item;
    size_t i, bytes;
    char *raw = NULL;
    struct tri_error err = { 0 };
    struct tri_model_options options = {
        .trunk = TRI_TRUNK_F32, .threads = 2, .chunk_tokens = 64, .act = TRI_ACT_EXACT
    };
    snprintf(path, sizeof path, "%s/golden/a/golden.json", TRI_TEST_SHARED);
    assert_int_equal(tri_json_load(&json, path, 1 << 20, &err), TRI_OK);
    json_array_foreach(json_object_get(json, "tokens"), i, item) g.tokens[i] =
        (int32_t)json_integer_value(item);
    assert_int_equal(i, TOKENS);
    json_decref(json);
    snprintf(path, sizeof path, "%s/golden/a/logits.f32", TRI_TEST_SHARED);
    assert_int_equal(tri_read_file(&raw, &bytes, path, 1 << 20, &err), TRI_OK);
    assert_int_equal(bytes, sizeof g.want);
    memcpy(g.want, raw, bytes);
    tri_free(raw);
    snprintf(path, sizeof path, "%s/golden/a", TRI_TEST_SHARED);
    assert_int_equal(tri_budget_open(&g.budget, (uint64_t)1 << 30, &err), TRI_OK);
    if (tri_model_open(&g.model, path, &options, g.budget, &err))
        fail_msg("%s", err.text);
    return 0;
}

static int close_golden(void **state)
{
    (void)state;
    tri_model_close(g.model);
    tri_budget_close(g.budget); /* asserts that every byte was given back */
    return 0;
}

static void check_rows(float (*got)[VOCAB], int64_t first, int64_t n)
{
    for (int64_t t = 0; t < n; t++) {
        double distance = 0, size = 0;
        for (int v = 0; v < VOCAB; v++) {
            double want = (double)g.want[first + t][v], d = (double)got[t][v] - want;
            distance += d * d;
            size += want * want;
        }
        if (!(sqrt(distance / size) < 1e-4))
            fail_msg("position %ld: relative error %g", (long)(first + t), sqrt(distance / size));
    }
}

static struct tri_state *new_state(int64_t max_tokens)
{
    struct tri_state *s = NULL;
    assert_int_equal(tri_model_state(g.model, max_tokens, &s, NULL), TRI_OK);
    return s;
}

static void feed(struct tri_state *s, int64_t n)
{
    int64_t at = tri_state_tokens(s);
    static float rows[TOKENS][VOCAB];
    struct tri_run run = { s, g.tokens + at, n, 0, rows[0], NULL };
    assert_int_equal(tri_model_forward(g.model, &run, 1, NULL, NULL), TRI_OK);
    check_rows(rows, at, n);
}

/* The same text in two sequences, cut differently, always in one step together. */
static void interleaved_sequences(void **state)
{
    (void)state;
    static float one[TOKENS][VOCAB], two[TOKENS][VOCAB];
    static const int64_t cuts[][2] = { { 7, 1 }, { 1, 5 }, { 8, 1 }, { 1, 10 }, { 7, 7 } };
    struct tri_state *a = new_state(TOKENS), *b = new_state(TOKENS);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        int64_t at[2] = { tri_state_tokens(a), tri_state_tokens(b) };
        struct tri_run runs[2] = { { a, g.tokens + at[0], cuts[i][0], 0, one[0], NULL },
                                   { b, g.tokens + at[1], cuts[i][1], 0, two[0], NULL } };
        assert_int_equal(tri_model_forward(g.model, runs, 2, NULL, NULL), TRI_OK);
        check_rows(one, at[0], cuts[i][0]);
        check_rows(two, at[1], cuts[i][1]);
    }
    assert_int_equal(tri_state_tokens(a), TOKENS);
    assert_int_equal(tri_state_tokens(b), TOKENS);
    tri_state_close(a);
    tri_state_close(b);
}

static void copies_and_clears(void **state)
{
    (void)state;
    struct tri_state *a = new_state(TOKENS), *b = new_state(TOKENS + 9), *small = new_state(9);
    struct tri_error err = { 0 };
    feed(a, 10);
    assert_int_equal(tri_state_copy(b, a, NULL), TRI_OK);
    assert_int_equal(tri_state_copy(small, a, &err), TRI_LIMIT);
    feed(b, 14);
    feed(a, 14); /* the copy did not disturb its origin */
    tri_state_clear(a);
    feed(a, TOKENS);
    tri_state_close(a);
    tri_state_close(b);
    tri_state_close(small);
}

static void saved_state_continues(void **state)
{
    (void)state;
    struct tri_state *a = new_state(TOKENS), *b = new_state(TOKENS);
    uint64_t name = tri_model_fingerprint(g.model);
    char path[] = "/tmp/trireme-state-XXXXXX";
    int32_t *ids = NULL;
    int64_t n = 0;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    feed(a, 13);
    assert_int_equal(tri_state_save(a, path, name, g.tokens, 13, NULL), TRI_OK);
    assert_int_equal(tri_state_load(b, path, name, &ids, &n, NULL), TRI_OK);
    assert_int_equal(n, 13);
    assert_memory_equal(ids, g.tokens, 13 * sizeof *ids);
    tri_free(ids);
    feed(b, 11);

    /* Another model's name, and every kind of damage, are refused; the state is empty then. */
    struct tri_error err = { 0 };
    assert_int_equal(tri_state_load(b, path, name + 1, &ids, &n, &err), TRI_FORMAT);
    assert_int_equal(tri_state_tokens(b), 0);
    fd = open(path, O_RDWR);
    off_t bytes = lseek(fd, 0, SEEK_END);
    assert_true(bytes > 1000);
    for (off_t at = 0; at < bytes; at += bytes / 37) {
        unsigned char c;
        assert_int_equal(pread(fd, &c, 1, at), 1);
        c ^= 0x10;
        assert_int_equal(pwrite(fd, &c, 1, at), 1);
        assert_int_not_equal(tri_state_load(b, path, name, &ids, &n, NULL), TRI_OK);
        c ^= 0x10;
        assert_int_equal(pwrite(fd, &c, 1, at), 1);
    }
    assert_int_equal(ftruncate(fd, bytes - 1), 0);
    assert_int_equal(tri_state_load(b, path, name, &ids, &n, NULL), TRI_FORMAT);
    close(fd);
    unlink(path);
    assert_int_equal(tri_state_save(a, "/nonexistent/x", name, g.tokens, 13, NULL), TRI_IO);
    tri_state_close(a);
    tri_state_close(b);
}

static void refusals_change_nothing(void **state)
{
    (void)state;
    struct tri_state *a = new_state(TOKENS);
    static float rows[TOKENS][VOCAB];
    int32_t bad[2] = { 5, VOCAB };
    struct tri_error err = { 0 };
    feed(a, 20);
    struct tri_run run = { a, g.tokens, 5, 0, rows[0], NULL };
    assert_int_equal(tri_model_forward(g.model, &run, 1, NULL, &err), TRI_LIMIT);
    assert_non_null(strstr(err.text, "context full"));
    run = (struct tri_run){ a, bad, 2, 0, rows[0], NULL };
    assert_int_equal(tri_model_forward(g.model, &run, 1, NULL, NULL), TRI_ARG);
    assert_int_equal(tri_state_tokens(a), 20);
    feed(a, 4); /* exactly to the limit */
    tri_state_close(a);

    struct tri_state *too_long = NULL;
    int64_t most = tri_model_spec(g.model)->context_tokens;
    assert_int_equal(tri_model_state(g.model, most, &too_long, NULL), TRI_OK);
    tri_state_close(too_long);
    assert_int_equal(tri_model_state(g.model, most + 1, &too_long, NULL), TRI_LIMIT);
}

static void a_tight_budget_is_refused_and_leaves_nothing(void **state)
{
    (void)state;
    char path[4096];
    struct tri_model_options options = { .threads = 1 };
    snprintf(path, sizeof path, "%s/golden/a", TRI_TEST_SHARED);
    for (uint64_t ram = 1 << 12; ram < 1 << 23; ram *= 4) {
        struct tri_budget *budget = NULL;
        struct tri_model *model = NULL;
        struct tri_error err = { 0 };
        assert_int_equal(tri_budget_open(&budget, ram, NULL), TRI_OK);
        assert_int_equal(tri_model_open(&model, path, &options, budget, &err), TRI_BUDGET);
        assert_non_null(strstr(err.text, "budget"));
        tri_budget_close(budget);
    }
}

/* Every allocation that can fail does, once: the right status, nothing leaked, and a later try
 * works. */
static void survives_any_failed_allocation(void **state)
{
    (void)state;
    char path[4096];
    struct tri_model_options options = { .threads = 1, .layers = 2, .chunk_tokens = 4 };
    enum tri_status st = TRI_NOMEM;
    long n = 0;
    snprintf(path, sizeof path, "%s/golden/b", TRI_TEST_SHARED);
    for (; st; n += 1 + n / 50) {
        struct tri_budget *budget = NULL;
        struct tri_model *model = NULL;
        struct tri_error err = { 0 };
        assert_int_equal(tri_budget_open(&budget, (uint64_t)1 << 30, NULL), TRI_OK);
        tri_mem_fail_after(n);
        st = tri_model_open(&model, path, &options, budget, &err);
        tri_mem_fail_after(-1);
        if (st)
            assert_int_equal(st, TRI_NOMEM);
        tri_model_close(model);
        tri_budget_close(budget);
    }
    assert_true(n > 25);
}

/* Levels that turn the trunk into tiles and those that do not: the same bits, for one token, for
 * few and for many. */
static void int8_trunk_on_every_level(void **state)
{
    (void)state;
    static const char *const levels[] = { "avx2", "vnni", "amx" };
    static const int64_t cuts[] = { 1, 2, 1, 5, 15 };
    static float rows[3][TOKENS][VOCAB];
    char path[4096];
    struct tri_model_options options = {
        .trunk = TRI_TRUNK_INT8, .threads = 2, .chunk_tokens = 64, .act = TRI_ACT_INT8
    };
    snprintf(path, sizeof path, "%s/golden/a", TRI_TEST_SHARED);
    for (int i = 0; i < 3; i++) {
        struct tri_model *model = NULL;
        struct tri_state *s = NULL;
        setenv("TRIREME_ISA", levels[i], 1);
        assert_int_equal(tri_model_open(&model, path, &options, g.budget, NULL), TRI_OK);
        unsetenv("TRIREME_ISA");
        assert_int_equal(tri_model_state(model, TOKENS, &s, NULL), TRI_OK);
        for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
            int64_t at = tri_state_tokens(s);
            struct tri_run run = { s, g.tokens + at, cuts[c], 0, rows[i][at], NULL };
            assert_int_equal(tri_model_forward(model, &run, 1, NULL, NULL), TRI_OK);
        }
        assert_int_equal(tri_state_tokens(s), TOKENS);
        tri_state_close(s);
        tri_model_close(model);
        assert_memory_equal(rows[i], rows[0], sizeof rows[0]);
    }
}

int main(void)
{
    shared_or_skip("golden/a/golden.json");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interleaved_sequences),
        cmocka_unit_test(copies_and_clears),
        cmocka_unit_test(saved_state_continues),
        cmocka_unit_test(refusals_change_nothing),
        cmocka_unit_test(int8_trunk_on_every_level),
        cmocka_unit_test(a_tight_budget_is_refused_and_leaves_nothing),
        cmocka_unit_test(survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}
