// ctest: slow
/*
 * What is found computed has the bits of what is computed: random prompts and cut points over the
 * nano model. Logits after a prompt whose beginning came from RAM, from a file, or from a file of
 * an earlier process, and of a generation that was sent back, equal those of one computed in one
 * go.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "model/model.h"
#include "state/state.h"

enum { CONTEXT = 1200, ROUNDS = 24 };

struct rig {
    struct tri_budget *budget;
    struct tri_model *model;
    struct tri_state *whole, *part, *copy;
    float *want, *got;
    int64_t vocab;
    char folder[64];
};

static struct rig rig;
static uint64_t seed = 42;

static int64_t below(int64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(seed >> 33) % n;
}

static int up(void **state)
{
    struct tri_error err = { 0 };
    struct tri_model_options o = { .threads = 2, .chunk_tokens = 512, .keep_nothing = true };
    (void)state;
    if (access(TRI_TEST_SOURCE "/models/nano/config.json", R_OK)) {
        printf("SKIP: models/nano is absent\n");
        exit(77);
    }
    assert_int_equal(tri_budget_open(&rig.budget, 1u << 30, NULL), TRI_OK);
    if (tri_model_open(&rig.model, TRI_TEST_SOURCE "/models/nano", &o, rig.budget, &err))
        fail_msg("%s", err.text);
    rig.vocab = tri_model_spec(rig.model)->vocab;
    assert_int_equal(tri_model_state(rig.model, CONTEXT, &rig.whole, NULL), TRI_OK);
    assert_int_equal(tri_model_growing_state(rig.model, CONTEXT, &rig.part, NULL), TRI_OK);
    assert_int_equal(tri_state_make_room(rig.part, CONTEXT, NULL), TRI_OK);
    rig.want = tri_calloc((size_t)rig.vocab, sizeof *rig.want);
    rig.got = tri_calloc((size_t)rig.vocab, sizeof *rig.got);
    snprintf(rig.folder, sizeof rig.folder, "/tmp/trireme-bits-%ld", (long)getpid());
    return 0;
}

static int down(void **state)
{
    char command[128];
    (void)state;
    tri_state_close(rig.whole);
    tri_state_close(rig.part);
    tri_free(rig.want);
    tri_free(rig.got);
    tri_model_close(rig.model);
    tri_budget_close(rig.budget);
    snprintf(command, sizeof command, "rm -rf %s", rig.folder);
    return system(command);
}

/* Ids [from, to) in runs of at most `most` rows, cut where the engine may cut; the last one's
 * logits into out. */
static void feed(struct tri_state *s, const int32_t *ids, int64_t to, int64_t most, float *out)
{
    while (tri_state_tokens(s) < to) {
        int64_t at = tri_state_tokens(s), n = to - at;
        if (n > most) {
            int64_t unit = below(2) ? TRI_ENGINE_GRID_TOKENS : TRI_MODEL_TILE_TOKENS;
            n = (at + most) / unit * unit - at;
            n = n > 0 ? n : (at + most) / TRI_MODEL_TILE_TOKENS * TRI_MODEL_TILE_TOKENS - at;
        }
        bool last = at + n == to;
        struct tri_run run = { s, ids + at, n, last ? n - 1 : n, last ? out : NULL, NULL };
        assert_int_equal(tri_model_forward(rig.model, &run, 1, NULL, NULL), TRI_OK);
    }
}

static void through_a_file(const struct tri_kept *kept)
{
    struct tri_state_folder *folder = NULL;
    struct tri_error err = { 0 };
    uint64_t print = tri_model_state_fingerprint(rig.model);
    assert_int_equal(tri_state_folder_open(&folder, rig.folder, rig.part, print, NULL), TRI_OK);
    if (tri_state_folder_save(folder, kept, rig.part, &err))
        fail_msg("%s", err.text);
    tri_state_folder_close(folder);
    tri_state_clear(rig.part);
    assert_int_equal(tri_state_folder_open(&folder, rig.folder, rig.part, print, NULL), TRI_OK);
    assert_int_equal(tri_state_folder_load(folder, kept, rig.part, NULL), TRI_OK);
    tri_state_folder_close(folder);
}

static void through_ram(void)
{
    struct tri_state *copy = NULL;
    assert_int_equal(tri_model_state(rig.model, tri_state_tokens(rig.part), &copy, NULL), TRI_OK);
    assert_int_equal(tri_state_copy(copy, rig.part, NULL), TRI_OK);
    tri_state_clear(rig.part);
    assert_int_equal(tri_state_make_room(rig.part, 0, NULL), TRI_OK);
    assert_int_equal(tri_state_make_room(rig.part, CONTEXT, NULL), TRI_OK);
    assert_int_equal(tri_state_copy(rig.part, copy, NULL), TRI_OK);
    tri_state_close(copy);
}

static void cached_equals_uncached(void **state)
{
    (void)state;
    static int32_t ids[CONTEXT];
    for (int round = 0; round < ROUNDS; round++) {
        int64_t n = 66 + below(CONTEXT - 80), cut = (1 + below((n - 1) / 64)) * 64;
        n = round == 0 ? 65 : n; /* one token is left after the cut */
        cut = round == 0 ? 64 : cut;
        for (int64_t i = 0; i < n; i++)
            ids[i] = (int32_t)below(2000);
        tri_state_clear(rig.whole);
        tri_state_clear(rig.part);
        feed(rig.whole, ids, n, 512, rig.want);
        feed(rig.part, ids, cut, 16 + below(400), rig.got);
        const struct tri_kept kept = { { 1, 2 }, TRI_KEEP_BORDER, ids, cut };
        if (round % 2)
            through_a_file(&kept);
        else
            through_ram();
        feed(rig.part, ids, n, 16 + below(400), rig.got);
        assert_memory_equal(rig.got, rig.want, (size_t)rig.vocab * sizeof *rig.got);
        /* And what is generated after it: decode, one row at a time. */
        for (int64_t i = n; i < n + 8; i++)
            ids[i] = (int32_t)below(2000);
        for (int64_t i = n; i < n + 8; i++) {
            if (i == n + 4) {
                const struct tri_kept end = { { 1, 2 }, TRI_KEEP_REPLY, ids, i };
                through_a_file(&end);
            }
            feed(rig.whole, ids, i + 1, 1, rig.want);
            feed(rig.part, ids, i + 1, 1, rig.got);
            assert_memory_equal(rig.got, rig.want, (size_t)rig.vocab * sizeof *rig.got);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(cached_equals_uncached) };
    return cmocka_run_group_tests(tests, up, down);
}
