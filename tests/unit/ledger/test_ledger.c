/* The four ledgers against published figures: AMD's Day-0 table, ATOM, the TP table, H20 layouts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include "ledger/ledger.h"

#define GIB 1073741824.0

static struct tri_arch *k3;

static int open_k3(void **state)
{
    struct tri_error err = { 0 };
    (void)state;
    return tri_arch_open(&k3, "kimi-k3", false, NULL, &err);
}

static int close_k3(void **state)
{
    (void)state;
    tri_arch_close(k3);
    return 0;
}

static struct tri_layout layout_of(const char *text, const struct tri_arch *arch)
{
    struct tri_layout l;
    struct tri_error err = { 0 };
    if (tri_layout_parse(&l, text, arch->layers, &err))
        fail_msg("%s", err.text);
    return l;
}

static struct tri_ledger_ask ask_of(const struct tri_arch *arch, const struct tri_layout *l)
{
    return (struct tri_ledger_ask){
        .arch = arch, .layout = l, .experts_number = -1, .dense_number = -1, .cache = TRI_CACHE_FP8
    };
}

/* K3 spec 9.3, line by line, to the byte. */
static void test_amd_table(void **state)
{
    (void)state;
    struct tri_layout l = layout_of("tp8", k3);
    struct tri_ledger_ask ask = ask_of(k3, &l);
    struct tri_rank_weights w;
    tri_ledger_weights(&ask, 0, &w);
    static const struct {
        enum tri_arch_line line;
        uint64_t split, replicated;
    } rows[] = {
        { TRI_LINE_EXPERTS, 180807008256, 0 }, { TRI_LINE_SHARED, 3038773248, 0 },
        { TRI_LINE_DENSE, 181665792, 0 },      { TRI_LINE_LATENT, 0, 9454620672 },
        { TRI_LINE_ROUTER, 0, 1182074880 },    { TRI_LINE_NORMS, 0, 8042496 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(w.split_bytes[rows[i].line], rows[i].split);
        assert_int_equal(w.replicated_bytes[rows[i].line], rows[i].replicated);
    }
    assert_int_equal(w.split_bytes[TRI_LINE_LINEAR] + w.replicated_bytes[TRI_LINE_LINEAR],
                     7762550784);
    assert_int_equal(w.split_bytes[TRI_LINE_MLA] + w.replicated_bytes[TRI_LINE_MLA], 2029092864);
    assert_int_equal(
        w.split_bytes[TRI_LINE_LINEAR_SMALL] + w.replicated_bytes[TRI_LINE_LINEAR_SMALL], 5549808);
    assert_int_equal(w.split_bytes[TRI_LINE_EMBED] + w.split_bytes[TRI_LINE_HEAD], 587202560);
    assert_int_equal(w.total_bytes, 205056581360);
    assert_int_equal(w.split_total_bytes + w.replicated_total_bytes, w.total_bytes);
}

static void test_amd_state(void **state)
{
    (void)state;
    struct tri_layout l = layout_of("tp8", k3);
    struct tri_ledger_ask ask = ask_of(k3, &l);
    struct tri_rank_state s;
    struct tri_rank_workspace ws;
    struct tri_workspace_ask work = { .chunk_tokens = 8192 };
    tri_ledger_state(&ask, 0, &s);
    tri_ledger_workspace(&ask, &work, &ws);
    assert_int_equal(s.bytes_per_token, 13824);
    assert_int_equal(s.kda_bytes, 54263808);
    assert_int_equal(s.conv_bytes, 1907712);
    assert_int_equal(ws.attnres_bytes, 939524096);
    assert_int_equal(tri_state_bytes(&s, 1048576) + ws.attnres_bytes, 15491210240);
    ask.draft_tokens = 2; /* ATOM: 54.782 MiB a request and rank, conv columns 3 + 2 */
    tri_ledger_state(&ask, 0, &s);
    assert_true(fabs((double)(s.kda_bytes + s.conv_bytes) / 1048576 - 54.782) < 0.0005);
    ask.cache = TRI_CACHE_BF16;
    tri_ledger_state(&ask, 0, &s);
    assert_int_equal(s.bytes_per_token * 1048576, 28991029248);
    ask.cache = TRI_CACHE_FP8_DS_MLA;
    tri_ledger_state(&ask, 0, &s);
    assert_int_equal(s.bytes_per_token, 15744);
}

/*
 * As Trireme holds it: int8 is 66 bytes for 64 values (33/32), int4 18 for 32; f_a, f_b, b, the
 * router and the table stay bf16; vectors are f32. K3 spec 2.2's shapes, by hand.
 */
static void test_trireme_trunk(void **state)
{
    (void)state;
    struct tri_layout l = layout_of("tp1", k3);
    struct tri_ledger_ask ask = ask_of(k3, &l);
    struct tri_rank_weights w;
    struct tri_trunk_bytes trunk;
    const uint64_t wide = 12288, hidden = 7168, kda = 69;
    const uint64_t small = kda * 2 * (wide * 128 + 96 * hidden + 128 * hidden);
    ask.trireme = true;
    ask.dense_number = TRI_NUM_INT8;
    tri_ledger_weights(&ask, 0, &w);
    assert_int_equal(w.split_bytes[TRI_LINE_LINEAR] + w.replicated_bytes[TRI_LINE_LINEAR],
                     kda * 5 * wide * hidden / 32 * 33 + small);
    assert_int_equal(w.split_bytes[TRI_LINE_HEAD], 163840 * hidden / 32 * 33);
    assert_int_equal(w.split_bytes[TRI_LINE_EMBED], 163840 * hidden * 2);
    assert_int_equal(w.replicated_bytes[TRI_LINE_ROUTER], UINT64_C(92) * 896 * (hidden * 2 + 4));
    /* two norms and two folded mixes a layer, the final norm and mix */
    assert_int_equal(w.replicated_bytes[TRI_LINE_NORMS], (93 * 4 + 2) * hidden * 4);
    tri_ledger_trunk(&ask, &trunk);
    assert_int_equal(trunk.held_bytes, w.total_bytes - w.split_bytes[TRI_LINE_EXPERTS]);
    assert_int_equal(trunk.held_bytes - trunk.read_bytes, w.split_bytes[TRI_LINE_EMBED]);
    ask.dense_number = TRI_NUM_INT4;
    tri_ledger_weights(&ask, 0, &w);
    assert_int_equal(w.split_bytes[TRI_LINE_LINEAR] + w.replicated_bytes[TRI_LINE_LINEAR],
                     kda * 5 * wide * hidden / 32 * 18 + small);
}

/* As state.c keeps it: 69 layers of 96 heads of 128 x 128, three tails of 3 x 12288 in f32. */
static void test_own_state(void **state)
{
    (void)state;
    struct tri_layout l = layout_of("tp1", k3);
    struct tri_ledger_ask ask = ask_of(k3, &l);
    struct tri_rank_state s;
    struct tri_rank_work w;
    const uint64_t values = 69ull * 96 * 128 * 128, tails = 69ull * 3 * 3 * 12288 * 4;
    ask.kda_bf16 = true; /* of another engine: nothing changes */
    tri_ledger_state(&ask, 0, &s);
    assert_int_equal(s.kda_bytes, values * 4);
    ask.trireme = true;
    tri_ledger_state(&ask, 0, &s);
    tri_ledger_work(&ask, 0, &w);
    assert_int_equal(s.kda_bytes, values * 2);
    assert_int_equal(s.conv_bytes, tails);
    assert_true(fabs(w.kda_state_bytes - 2.0 * 2 * (double)values) < 1);
    ask.kda_bf16 = false;
    tri_ledger_state(&ask, 0, &s);
    tri_ledger_work(&ask, 0, &w);
    assert_int_equal(s.kda_bytes, values * 4);
    assert_int_equal(s.conv_bytes, tails);
    assert_true(fabs(w.kda_state_bytes - 2.0 * 4 * (double)values) < 1);
}

/* Tied: the table is read as the head in every step, and a last stage of its own holds a copy. */
static void test_tied_head(void **state)
{
    (void)state;
    struct tri_arch *arch = NULL;
    struct tri_rank_weights first, last;
    struct tri_rank_work work;
    assert_int_equal(tri_arch_open(&arch, "qwen3-4b", false, NULL, NULL), TRI_OK);
    struct tri_layout one = layout_of("tp1", arch), two = layout_of("pp2", arch);
    struct tri_ledger_ask ask = ask_of(arch, &one);
    tri_ledger_work(&ask, 0, &work);
    assert_true(fabs(work.head_bytes - 151936.0 * 2560 * 2) < 1);
    tri_ledger_weights(&ask, 0, &first);
    assert_int_equal(first.total_bytes, arch->bytes);
    ask.layout = &two;
    tri_ledger_weights(&ask, 0, &first);
    tri_ledger_weights(&ask, 1, &last);
    assert_int_equal(first.total_bytes + last.total_bytes, arch->bytes + 151936 * 2560 * 2);
    tri_arch_close(arch);
}

/* Planner notes 1.2 and the issue: GiB on the fullest rank, to the printed digits. */
static void test_layout_table(void **state)
{
    static const struct {
        const char *layout;
        int stage, experts;
        bool shard_all, vision;
        double gib;
    } rows[] = {
        { "tp8", 0, -1, false, false, 190.974 },
        { "tp8", 0, -1, false, true, 191.807 },
        { "tp16", 0, -1, false, false, 100.84 },
        { "tp24", 0, -1, false, false, 70.80 },
        { "tp32", 0, -1, false, false, 55.775 },
        { "tp32ep32", 0, -1, false, false, 55.775 },
        { "tp16", 0, -1, true, false, 90.80 },
        { "tp32", 0, TRI_NUM_INT4, false, false, 58.25 },
        { "tp32", 0, TRI_NUM_FP8, false, false, 92.92 },
        { "tp8pp4", 0, -1, false, false, 48.09 },
        { "tp8pp4", 1, -1, false, false, 47.56 },
        { "tp8pp4", 2, -1, false, false, 47.54 },
        { "tp8pp4", 3, -1, false, false, 47.79 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tri_layout l = layout_of(rows[i].layout, k3);
        struct tri_ledger_ask ask = ask_of(k3, &l);
        struct tri_rank_weights w;
        ask.experts_number = rows[i].experts;
        ask.shard_all = rows[i].shard_all;
        ask.vision = rows[i].vision;
        tri_ledger_weights(&ask, rows[i].stage, &w);
        double off = (double)w.total_bytes / GIB - rows[i].gib;
        if (fabs(off) > 0.0055)
            fail_msg("%s stage %d: %.3f GiB, expected %.3f", rows[i].layout, rows[i].stage,
                     (double)w.total_bytes / GIB, rows[i].gib);
    }
}

/* Attention in DP groups: experts over tp * dp ranks, the rest over tp only. */
static void test_experts_lie_over_tp_times_dp(void **state)
{
    (void)state;
    struct tri_layout wide = layout_of("tp16", k3), grouped = layout_of("tp4dp4ep16", k3),
                      narrow = layout_of("tp4", k3);
    struct tri_rank_weights a, b, c;
    struct tri_ledger_ask ask = ask_of(k3, &wide);
    tri_ledger_weights(&ask, 0, &a);
    ask.layout = &grouped;
    tri_ledger_weights(&ask, 0, &b);
    ask.layout = &narrow;
    tri_ledger_weights(&ask, 0, &c);
    assert_int_equal(a.split_bytes[TRI_LINE_EXPERTS], b.split_bytes[TRI_LINE_EXPERTS]);
    assert_int_equal(b.split_bytes[TRI_LINE_LINEAR], c.split_bytes[TRI_LINE_LINEAR]);
    assert_int_equal(b.split_bytes[TRI_LINE_SHARED], c.split_bytes[TRI_LINE_SHARED]);
}

/* Summed over all ranks of a layout that divides, an engine that shards all holds the checkpoint.
 */
static void test_sums_to_checkpoint(void **state)
{
    static const char *const layouts[] = { "tp1", "tp8", "tp16", "tp32", "tp8pp4", "tp2pp3" };
    (void)state;
    uint64_t loaded = 0;
    for (int i = 0; i < k3->item_count; i++)
        if (!k3->items[i].unloaded && k3->items[i].line != TRI_LINE_VISION)
            loaded += tri_item_bytes(&k3->items[i], k3->items[i].bits64);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        struct tri_layout l = layout_of(layouts[i], k3);
        struct tri_ledger_ask ask = ask_of(k3, &l);
        uint64_t sum = 0;
        ask.shard_all = true;
        for (int stage = 0; stage < l.pp; stage++) {
            struct tri_rank_weights w;
            tri_ledger_weights(&ask, stage, &w);
            sum += w.total_bytes * (uint64_t)l.tp;
        }
        double off = (double)sum / (double)loaded - 1; /* rounding up of odd shares only */
        assert_true(off >= 0 && off < 1e-6);
    }
}

static void test_checks(void **state)
{
    static const struct {
        const char *layout, *word;
    } bad[] = {
        { "tp7", "TP6" },
        { "tp64", "heads" },
        { "dp1024ep1024", "896 experts" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tri_layout l = layout_of(bad[i].layout, k3);
        struct tri_ledger_ask ask = ask_of(k3, &l);
        struct tri_error err = { 0 };
        assert_int_equal(tri_ledger_check(&ask, &err), TRI_ARG);
        if (!strstr(err.text, bad[i].word))
            fail_msg("%s: %s", bad[i].layout, err.text);
    }
}

/*
 * State of other families, from their published shapes: Llama-3.1-8B keeps 131,072 bytes a token in
 * bf16; DeepSeek-V3 576 x 61 x 2 = 70,272; Mistral's window stops growing at 4,096.
 */
static void test_other_families(void **state)
{
    static const struct {
        const char *model;
        uint64_t per_token, at_32k;
    } rows[] = {
        { "llama-3.1-8b", 131072, 131072ull * 32768 },
        { "deepseek-v3", 70272, 70272ull * 32768 },
        { "mistral-7b", 0, 131072ull * 4096 },
        { "qwen3-32b", 64 * 2 * 8 * 128 * 2, 64ull * 2 * 8 * 128 * 2 * 32768 },
        { "kimi-linear-48b", 7 * 576 * 2,
          7ull * 576 * 2 * 32768 + 20ull * 32 * 128 * 128 * 4 + 20ull * 3 * 4096 * 3 * 2 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tri_arch *arch = NULL;
        assert_int_equal(tri_arch_open(&arch, rows[i].model, false, NULL, NULL), TRI_OK);
        struct tri_layout l = layout_of("tp1", arch);
        struct tri_ledger_ask ask = ask_of(arch, &l);
        struct tri_rank_state s;
        ask.cache = TRI_CACHE_BF16;
        tri_ledger_state(&ask, 0, &s);
        assert_int_equal(s.bytes_per_token, rows[i].per_token);
        assert_int_equal(tri_state_bytes(&s, 32768), rows[i].at_32k);
        tri_arch_close(arch);
    }
}

static void test_work_and_traffic(void **state)
{
    (void)state;
    struct tri_layout l = layout_of("tp8", k3);
    struct tri_ledger_ask ask = ask_of(k3, &l);
    struct tri_rank_work w;
    struct tri_rank_traffic t;
    tri_ledger_work(&ask, 0, &w);
    /* one distinct expert, all 92 layers, an eighth: 17,547,264 x 92 / 8 */
    assert_true(fabs(w.expert_bytes_each - 17547264.0 * 92 / 8) < 1);
    l = layout_of("tp1", k3);
    tri_ledger_work(&ask, 0, &w);
    double active = (w.dense_flops + w.expert_flops + w.head_flops) / 2;
    assert_true(fabs(active - (104189614848.0 - 69 * 32)) < 1);
    l = layout_of("tp8", k3);
    tri_ledger_traffic(&ask, 0, 1, &t);
    assert_int_equal(t.reduce_messages, 2 * 93);
    assert_true(fabs(t.reduce_bytes - (2.0 * 93 * 7168 * 2 + 92.0 * 3584 * 2)) < 1);
    assert_int_equal(t.send_messages, 0);
    l = layout_of("tp8pp4", k3);
    tri_ledger_traffic(&ask, 0, 1, &t);
    assert_int_equal(t.send_messages, 1);
    assert_true(fabs(t.send_bytes - 9 * 7168 * 2.0) < 1); /* hidden and 8 banked vectors */
    l = layout_of("dep16", k3);
    tri_ledger_traffic(&ask, 0, 1, &t);
    assert_int_equal(t.reduce_messages, 0);
    assert_true(fabs(t.exchange_bytes - 92.0 * 16 * 3584 * 3) < 1);
}

static void test_distinct(void **state)
{
    (void)state;
    assert_true(fabs(tri_distinct_experts(896, 16, 1) - 16) < 1e-9);
    assert_true(tri_distinct_experts(896, 16, 64) > 600 && tri_distinct_experts(896, 16, 64) < 625);
    assert_true(tri_distinct_experts(896, 16, 1e6) <= 896);
    assert_true(tri_distinct_experts(0, 0, 5) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_amd_table),
        cmocka_unit_test(test_amd_state),
        cmocka_unit_test(test_own_state),
        cmocka_unit_test(test_trireme_trunk),
        cmocka_unit_test(test_tied_head),
        cmocka_unit_test(test_layout_table),
        cmocka_unit_test(test_experts_lie_over_tp_times_dp),
        cmocka_unit_test(test_sums_to_checkpoint),
        cmocka_unit_test(test_checks),
        cmocka_unit_test(test_other_families),
        cmocka_unit_test(test_work_and_traffic),
        cmocka_unit_test(test_distinct),
    };
    return cmocka_run_group_tests(tests, open_k3, close_k3);
}
