/*
 * experts: whatever the number of slots, the policy, the engine and the order of arrivals, a round
 * hands out every expert once, with exactly the bytes of the checkpoint; a failing, stalled or
 * shortened drive is one error and the store goes on.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "experts/experts.h"
#include "shared.h"

enum { MOST = 64 };

static struct tri_spec spec;
static struct tri_checkpoint *ckpt;

static int open_checkpoint(void **state)
{
    (void)state;
    char path[4096];
    struct tri_error err = { 0 };
    snprintf(path, sizeof path, "%s/golden/b/config.json", TRI_TEST_SHARED);
    assert_int_equal(tri_spec_load(&spec, path, NULL, &err), TRI_OK);
    snprintf(path, sizeof path, "%s/golden/b", TRI_TEST_SHARED);
    if (tri_checkpoint_open(&ckpt, path, &spec, 1, NULL, &err))
        fail_msg("%s", err.text);
    return 0;
}

static int close_checkpoint(void **state)
{
    (void)state;
    tri_checkpoint_close(ckpt);
    return 0;
}

/* The published bytes of one tensor of an expert. */
static void read_part(void *out, int64_t layer, int32_t expert, const char *name, const char *kind,
                      uint64_t bytes)
{
    char full[160];
    snprintf(full, sizeof full, "model.layers.%ld.block_sparse_moe.experts.%d.%s.weight_%s",
             (long)layer, expert, name, kind);
    const struct tri_tensor *t = tri_checkpoint_find(ckpt, full);
    assert_non_null(t);
    assert_true(t->bytes == bytes);
    assert_int_equal(tri_checkpoint_read(ckpt, t, 0, out, bytes, NULL), TRI_OK);
}

/* What they are in tiles is told by the definition in fmt.h. */
static void turn_part(char *bytes, int64_t rows, int64_t row_bytes, int64_t unit)
{
    char was[8192];
    memcpy(was, bytes, (size_t)(rows * row_bytes));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t b = 0; b < row_bytes; b++)
            bytes[r / 16 * 16 * row_bytes + b / unit * 16 * unit + r % 16 * unit + b % unit] =
                was[r * row_bytes + b];
}

static void check_matrix(const struct tri_matrix *m, int64_t layer, int32_t expert,
                         const char *name)
{
    char data[8192], scales[8192];
    int64_t packed = m->rows * m->cols / 2;
    assert_true(packed <= (int64_t)sizeof data);
    read_part(data, layer, expert, name, "packed", (uint64_t)packed);
    read_part(scales, layer, expert, name, "scale", (uint64_t)packed / 16);
    if (m->tiled) {
        turn_part(data, m->rows, m->cols / 2, 4);
        turn_part(scales, m->rows, m->cols / 32, 1);
    }
    assert_memory_equal(m->data, data, (size_t)packed);
    assert_memory_equal(m->scales, scales, (size_t)packed / 16);
}

static bool tiles_seen; /* by check_view */

static void check_view(const struct tri_expert_view *v, int64_t layer, int32_t expert)
{
    check_matrix(&v->w1, layer, expert, "w1");
    check_matrix(&v->w2, layer, expert, "w2");
    check_matrix(&v->w3, layer, expert, "w3");
    tiles_seen = v->w1.tiled;
}

struct store {
    struct tri_budget *budget;
    struct tri_experts *experts;
};

static enum tri_status open_store(struct store *s, struct tri_experts_options o, uint64_t ram,
                                  struct tri_error *err)
{
    o.layers = spec.layers;
    o.experts = spec.experts;
    *s = (struct store){ 0 };
    assert_int_equal(tri_budget_open(&s->budget, ram, NULL), TRI_OK);
    enum tri_status st = tri_experts_open(&s->experts, ckpt, &spec, &o, s->budget, err);
    if (st)
        tri_budget_close(s->budget);
    return st;
}

static void close_store(struct store *s)
{
    tri_experts_close(s->experts);
    tri_budget_close(s->budget);
}

/* One round; every expert must come exactly once. */
static enum tri_status run_round(struct tri_experts *s, int64_t layer, const int32_t *ids,
                                 int64_t n, int64_t most, struct tri_error *err)
{
    struct tri_expert_view views[MOST];
    int32_t which[MOST];
    bool came[MOST] = { false };
    int64_t got = 1, sum = 0;
    enum tri_status st = tri_experts_begin(s, layer, ids, n, err);
    while (!st && got > 0) {
        st = tri_experts_next(s, most, which, views, &got, err);
        for (int64_t i = 0; i < got && !st; i++) {
            assert_false(came[which[i]]);
            came[which[i]] = true;
            check_view(&views[i], layer, ids[which[i]]);
        }
        sum += st ? 0 : got;
    }
    if (!st)
        assert_int_equal(sum, n);
    return st;
}

static uint32_t next_random(uint32_t *seed)
{
    return (*seed = *seed * 1664525u + 1013904223u) >> 8;
}

/* `tokens` tokens over all MoE layers with skewed random routing. */
static enum tri_status run_tokens(struct tri_experts *s, int tokens, uint32_t seed, int64_t most,
                                  struct tri_error *err)
{
    for (int t = 0; t < tokens; t++) {
        for (int64_t l = 0; l < spec.layers; l++) {
            int32_t ids[MOST], n = 0;
            if (spec.layer[l].ffn != TRI_FFN_MOE)
                continue;
            while (n < spec.topk) {
                uint32_t a = next_random(&seed) % 32, b = next_random(&seed) % 32;
                int32_t e = (int32_t)(a < b ? a : b), j = 0;
                while (j < n && ids[j] != e)
                    j++;
                if (j == n)
                    ids[n++] = e;
            }
            enum tri_status st = run_round(s, l, ids, n, most, err);
            if (st)
                return st;
        }
    }
    return TRI_OK;
}

static void any_size_engine_and_policy(void **state)
{
    (void)state;
    static const uint64_t rams[] = { 16 << 10, 40 << 10, 200 << 10, 400 << 10, 64 << 20 };
    for (int policy = TRI_EXPERTS_CYCLE; policy <= TRI_EXPERTS_LFU; policy++) {
        for (size_t r = 0; r < sizeof rams / sizeof rams[0]; r++) {
            for (int engine = TRI_AIO_AUTO; engine <= TRI_AIO_THREADS; engine++) {
                struct store s;
                struct tri_error err = { 0 };
                struct tri_experts_options o = { .policy = (enum tri_expert_policy)policy,
                                                 .engine = (enum tri_aio_engine)engine,
                                                 .tile = engine != TRI_AIO_AUTO };
                enum tri_status st = open_store(&s, o, rams[r], &err);
                if (st == TRI_UNSUPPORTED)
                    continue; /* io_uring is forbidden here */
                assert_int_equal(st, TRI_OK);
                assert_int_equal(run_tokens(s.experts, 4, 1 + (uint32_t)r, 1 + (int64_t)r, &err),
                                 0);
                struct tri_experts_stats stats;
                tri_experts_read_stats(s.experts, &stats);
                assert_int_equal(stats.wanted, stats.reuse_hits + stats.misses);
                assert_int_equal(stats.all_resident, r == 4);
                assert_int_equal(tiles_seen, stats.all_resident && o.tile);
                if (stats.all_resident)
                    assert_int_equal(stats.misses, 0);
                close_store(&s);
            }
        }
    }
}

/* Direct reads begin at blocks: the record is found inside, wherever it begins. */
static void direct_reads_are_the_same_bytes(void **state)
{
    (void)state;
    struct store s;
    struct tri_error err = { 0 };
    struct tri_experts_options o = { .io = TRI_EXPERTS_IO_DIRECT, .most_bytes = 1100000 };
    assert_int_equal(open_store(&s, o, 8 << 20, &err), TRI_OK);
    struct tri_experts_stats stats;
    tri_experts_read_stats(s.experts, &stats);
    assert_true(stats.direct && !stats.all_resident);
    assert_int_equal(run_tokens(s.experts, 6, 5, 3, &err), TRI_OK);
    close_store(&s);
}

static void frequent_experts_stay(void **state)
{
    (void)state;
    uint64_t hits[3];
    for (int policy = TRI_EXPERTS_CYCLE; policy <= TRI_EXPERTS_LFU; policy++) {
        struct store s;
        struct tri_error err = { 0 };
        struct tri_experts_stats stats;
        struct tri_experts_options o = { .policy = (enum tri_expert_policy)policy };
        /* 12 slots where a token wants 24: recency alone hits next to nothing. */
        assert_int_equal(open_store(&s, o, 12 * 6600, &err), TRI_OK);
        assert_int_equal(run_tokens(s.experts, 60, 99, MOST, &err), TRI_OK);
        tri_experts_read_stats(s.experts, &stats);
        assert_true(stats.slots == 12);
        hits[policy] = stats.reuse_hits * 1000 / stats.wanted;
        close_store(&s);
    }
    printf("hits of 1000: cycle %lu, lru %lu, lfu %lu\n", (unsigned long)hits[0],
           (unsigned long)hits[1], (unsigned long)hits[2]);
    assert_true(hits[TRI_EXPERTS_CYCLE] > 60 &&
                hits[TRI_EXPERTS_CYCLE] > 5 * hits[TRI_EXPERTS_LRU]);
}

/* What one run learnt is there for the next one; one process writes; damage is ignored. */
static void statistics_outlive_the_run(void **state)
{
    (void)state;
    char folder[] = "/tmp/trireme-keep-XXXXXX", path[64], file[96];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/.trireme", folder);
    snprintf(file, sizeof file, "%s/experts.heat", path);
    struct tri_experts_options o = { .keep_folder = folder };
    for (int run = 0; run < 4; run++) {
        struct store s, other;
        struct tri_experts_stats stats;
        if (run == 2) /* cut */
            assert_int_equal(truncate(file, 100), 0);
        assert_int_equal(open_store(&s, o, 12 * 6600, NULL), TRI_OK);
        tri_experts_read_stats(s.experts, &stats);
        assert_int_equal(stats.heats_found, run == 1 || run == 3);
        assert_int_equal(open_store(&other, o, 12 * 6600, NULL), TRI_OK); /* reads only */
        assert_int_equal(run_tokens(s.experts, 5, 3, MOST, NULL), TRI_OK);
        close_store(&other);
        if (run == 0)
            assert_int_not_equal(access(file, F_OK), 0);
        close_store(&s);
        assert_int_equal(access(file, F_OK), 0);
    }
    unlink(file);
    snprintf(file, sizeof file, "%s/lock", path);
    unlink(file);
    rmdir(path);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left behind */
}

static void take_note(void *arg, const char *text)
{
    char(*notes)[600] = arg;
    int n = notes[0][0] != 0;
    assert_int_equal(notes[1][0], 0);
    snprintf(notes[n], sizeof notes[n], "%s", text);
}

/* A place that cannot be written to is said once, with the file and why, and harms nothing. */
static void statistics_that_cannot_be_written(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        char folder[] = "/tmp/trireme-keep-XXXXXX", path[64], lock[96], heat[96], notes[2][600];
        struct store s;
        memset(notes, 0, sizeof notes);
        assert_non_null(mkdtemp(folder));
        snprintf(path, sizeof path, "%s/.trireme", folder);
        snprintf(lock, sizeof lock, "%s/lock", path);
        snprintf(heat, sizeof heat, "%s/experts.heat", path);
        struct tri_experts_options o = { .keep_folder = folder, .notes = { take_note, notes } };
        if (kind == 0) { /* a file where the folder would be */
            FILE *f = fopen(path, "w");
            assert_non_null(f);
            fclose(f);
        }
        assert_int_equal(open_store(&s, o, 12 * 6600, NULL), TRI_OK);
        if (kind == 1) /* a folder where the file would be */
            assert_int_equal(mkdir(heat, 0700), 0);
        assert_int_equal(notes[0][0] != 0, kind == 0);
        assert_int_equal(run_tokens(s.experts, 5, 3, MOST, NULL), TRI_OK);
        close_store(&s);
        assert_non_null(strstr(notes[0], kind == 0 ? lock : heat));
        assert_non_null(strstr(notes[0], strerror(kind == 0 ? ENOTDIR : EISDIR)));
        assert_int_equal(notes[1][0], 0);
        rmdir(heat);
        unlink(lock);
        if (kind == 0)
            unlink(path);
        else
            assert_int_equal(rmdir(path), 0);
        assert_int_equal(rmdir(folder), 0);
    }
}

static struct tri_aio *sim(struct tri_aio_sim plan)
{
    struct tri_aio *aio = NULL;
    assert_int_equal(tri_aio_open_sim(&aio, 4, &plan, NULL), TRI_OK);
    return aio;
}

static void a_failed_read_names_its_expert(void **state)
{
    (void)state;
    for (uint64_t at = 0; at < 40; at += 3) {
        struct store s;
        struct tri_error err = { 0 };
        struct tri_experts_options o = { .aio = sim((struct tri_aio_sim){ at, EIO, UINT64_MAX,
                                                                          1 + at, 1000 }) };
        assert_int_equal(open_store(&s, o, 100 << 10, &err), TRI_OK);
        assert_int_equal(run_tokens(s.experts, 3, 7, 2, &err), TRI_IO);
        assert_true(strstr(err.text, "layer") && strstr(err.text, "expert") &&
                    strstr(err.text, ".safetensors"));
        err = (struct tri_error){ 0 };
        if (run_tokens(s.experts, 3, 8, 2, &err)) /* and it goes on */
            fail_msg("%s", err.text);
        close_store(&s);
    }
}

static void a_stalled_drive_ends_the_round(void **state)
{
    (void)state;
    for (uint64_t at = 0; at < 12; at += 5) {
        struct store s;
        struct tri_error err = { 0 };
        struct tri_experts_options o = { .aio =
                                             sim((struct tri_aio_sim){ UINT64_MAX, 0, at, 3, 0 }),
                                         .timeout_ms = 50 };
        assert_int_equal(open_store(&s, o, 200 << 10, &err), TRI_OK);
        assert_int_equal(run_tokens(s.experts, 3, 7, 2, &err), TRI_TIMEOUT);
        close_store(&s);
    }
}

static void too_little_memory_is_refused(void **state)
{
    (void)state;
    struct store s;
    struct tri_error err = { 0 };
    struct tri_experts_options o = { 0 };
    assert_int_equal(open_store(&s, o, 13055, &err), TRI_BUDGET); /* two of 6,528 bytes */
    assert_non_null(strstr(err.text, "--ram"));
    err = (struct tri_error){ 0 };
    assert_int_equal(open_store(&s, o, 13056, &err), TRI_OK);
    close_store(&s);
}

int main(void)
{
    shared_or_skip("golden/b/config.json");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_size_engine_and_policy),
        cmocka_unit_test(direct_reads_are_the_same_bytes),
        cmocka_unit_test(frequent_experts_stay),
        cmocka_unit_test(statistics_outlive_the_run),
        cmocka_unit_test(statistics_that_cannot_be_written),
        cmocka_unit_test(a_failed_read_names_its_expert),
        cmocka_unit_test(a_stalled_drive_ends_the_round),
        cmocka_unit_test(too_little_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, open_checkpoint, close_checkpoint);
}
