/*
 * The planner's promises: the time model stays as good as it says, queues obey Little's law, more
 * memory never turns yes into no, the order and names of cards change nothing, groups follow the
 * wires of a captured machine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "plan/plan.h"
#include "plan/plan_priv.h"

static struct tri_plan *make(const struct tri_plan_options *o)
{
    struct tri_plan *plan = NULL;
    struct tri_error err = { 0 };
    if (tri_plan_make(&plan, o, NULL, &err))
        fail_msg("%s on %s: %s", o->model, o->hw ? o->hw : o->machine, err.text);
    return plan;
}

/*
 * The bar: median at most 15 %, none over 35 % without its cause. And each profile's
 * printed band must be as wide as four in five of its own misses.
 */
static void test_validation(void **state)
{
    struct tri_validation *v = NULL;
    struct tri_error err = { 0 };
    (void)state;
    if (tri_validation_run(&v, &err))
        fail_msg("%s", err.text);
    assert_true(v->count > 80);
    assert_int_equal(v->unexplained, 0);
    assert_true(v->median <= 0.15);
    assert_true(v->blind_median <= 0.20);
    for (int i = 0; i < v->count; i++) /* every device is left out once, none keeps its own fit */
        assert_false(isnan(v->figure[i].blind_error));
    printf("median %.1f %%, p80 %.1f %%; device left out: median %.1f %%, p80 %.0f %%\n",
           v->median * 100, v->p80 * 100, v->blind_median * 100, v->blind_p80 * 100);
    for (int i = 0; i < v->count; i++) {
        int all = 0, inside = 0;
        for (int k = 0; k < v->count; k++)
            if (!strcmp(v->figure[k].profile.id, v->figure[i].profile.id) && !v->figure[k].cause) {
                all++;
                inside += fabs(v->figure[k].error) <= v->figure[i].profile.band;
            }
        if (inside * 5 < all * 4)
            fail_msg("profile %s: band %.2f holds %d of %d figures", v->figure[i].profile.id,
                     v->figure[i].profile.band, inside, all);
        assert_string_equal(v->figure[i].profile.basis, "measured");
    }
    tri_validation_close(v);
}

/* Published K3 points: lambda x latency = concurrency (planner notes 1.6). Ours must close too. */
static void test_little(void **state)
{
    static const int64_t loads[] = { 1, 3, 16, 64, 300 };
    static const char *const engines[] = { "sglang", "vllm" };
    (void)state;
    for (size_t e = 0; e < 2; e++)
        for (size_t i = 0; i < sizeof loads / sizeof loads[0]; i++) {
            struct tri_plan_options o;
            tri_plan_options_init(&o);
            o.model = "kimi-k3";
            o.hw = "8xB300";
            o.layout = "tp8";
            o.engine = engines[e];
            o.concurrency = loads[i];
            struct tri_plan *plan = make(&o);
            double little = plan->best.speed.little;
            if (fabs(little - 1) > 0.05)
                fail_msg("%s at %lld: %.3f", engines[e], (long long)loads[i], little);
            tri_plan_close(plan);
        }
}

static int rank_of(const struct tri_candidate *c)
{
    return (int)c->grade * 2 + c->goals_met;
}

/* Growing the memory of a card, step by step: the verdict never gets worse. */
static void test_more_memory_never_hurts(void **state)
{
    static const struct {
        const char *model, *hw, *layout;
    } cases[] = {
        { "kimi-k3", "8xB300", "tp8" },      { "kimi-k3", "4x8xH20-96GB", "tp8pp4" },
        { "kimi-k3", "16xGB200", "dep16" },  { "qwen3-32b", "4xRTX-4090", NULL },
        { "llama-3.1-70b", "8xH100", NULL },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int before = -1;
        for (double gib = 4; gib < 400; gib *= 1.3) {
            struct tri_plan_options o;
            tri_plan_options_init(&o);
            o.model = cases[i].model;
            o.hw = cases[i].hw;
            o.layout = cases[i].layout;
            struct tri_plan *plan = make(&o);
            plan->fleet.device.mem_gib = gib;
            struct tri_candidate *best = calloc(1, sizeof *best);
            assert_int_equal(tri__search((struct tri__plan *)plan, &plan->fleet, false, best, NULL),
                             TRI_OK);
            if (rank_of(best) < before)
                fail_msg("%s on %s: %s at %.1f GiB, better with less", cases[i].model, cases[i].hw,
                         tri_grade_name(best->grade), gib);
            before = rank_of(best);
            free(best);
            tri_plan_close(plan);
        }
        assert_int_equal(before, TRI_GRADE_SERVES * 2 + 1);
    }
}

/* A longer context, more requests or a larger chunk never leave more cache. */
static void test_monotone_ledgers(void **state)
{
    (void)state;
    uint64_t before = UINT64_MAX;
    for (int64_t chunk = 1024; chunk <= 65536; chunk *= 2) {
        struct tri_plan_options o;
        tri_plan_options_init(&o);
        o.model = "kimi-k3";
        o.hw = "8xB300";
        o.layout = "tp8";
        o.chunk_tokens = chunk;
        struct tri_plan *plan = make(&o);
        assert_true(plan->best.stage[0].cache_bytes < before);
        before = plan->best.stage[0].cache_bytes;
        tri_plan_close(plan);
    }
}

/* ---- captured machines ---------------------------------------------------------------------- */

/* A box of `n` cards where cards a and b are joined by NVLink when partner[a] == b. */
static void wire_up(struct tri_fleet *f, const int *partner)
{
    int n = f->per_node;
    f->pair = calloc((size_t)(n * n), sizeof *f->pair);
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) {
            bool linked = partner[a] == b;
            f->pair[a * n + b] = (struct tri_fleet_pair){ a == b   ? TRI_WIRE_SELF
                                                          : linked ? TRI_WIRE_NVLINK
                                                                   : TRI_WIRE_PCIE_HOST,
                                                          a == b   ? 1e6
                                                          : linked ? 56
                                                                   : 12,
                                                          a == b   ? "X"
                                                          : linked ? "NV"
                                                                   : "SYS" };
        }
}

/* Bridges between cards far apart in number: TP2 must take the bridged pairs, whatever the order.
 */
static void test_groups_follow_wires(void **state)
{
    static const int wirings[][4] = { { 1, 0, 3, 2 }, { 2, 3, 0, 1 }, { 3, 2, 1, 0 } };
    double tpot = 0;
    (void)state;
    for (size_t w = 0; w < 3; w++) {
        struct tri_plan_options o;
        int order[TRI_MAX_GPUS];
        tri_plan_options_init(&o);
        o.model = "qwen3-32b";
        o.hw = "4xRTX-3090";
        o.precision = "int8";
        struct tri_plan *plan = make(&o);
        wire_up(&plan->fleet, wirings[w]);
        tri__group_cards(&plan->fleet, 2, order);
        assert_int_equal(wirings[w][order[0]], order[1]);
        assert_int_equal(wirings[w][order[2]], order[3]);
        struct tri_candidate *best = calloc(1, sizeof *best);
        assert_int_equal(tri__search((struct tri__plan *)plan, &plan->fleet, false, best, NULL),
                         TRI_OK);
        assert_int_equal(best->layout.tp, 2);
        assert_int_equal(best->layout.replicas, 2);
        if (w) /* renumbering the cards changes nothing */
            assert_true(fabs(best->speed.tpot_ms - tpot) < 1e-9);
        tpot = best->speed.tpot_ms;
        free(best);
        free(plan->fleet.pair);
        plan->fleet.pair = NULL;
        tri_plan_close(plan);
    }
}

static const char nccl_xml[] =
    "<system version=\"1\">\n"
    "  <cpu numaid=\"0\" affinity=\"ffff\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" "
    "modelid=\"85\">\n"
    "    <pci busid=\"0000:17:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" "
    "link_width=\"16\">\n"
    "      <gpu dev=\"0\" sm=\"86\" rank=\"0\" gdr=\"0\">\n"
    "        <nvlink target=\"0000:65:00.0\" count=\"4\" tclass=\"0x030200\"/>\n      </gpu>\n"
    "    </pci>\n"
    "    <pci busid=\"0000:65:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" "
    "link_width=\"16\">\n"
    "      <gpu dev=\"1\" sm=\"86\" rank=\"1\" gdr=\"0\">\n"
    "        <nvlink target=\"0000:17:00.0\" count=\"4\" tclass=\"0x030200\"/>\n      </gpu>\n"
    "    </pci>\n  </cpu>\n</system>\n";

/* NCCL's file names no part: the person must, and is told so; with --hw the pairs are taken. */
static void test_machine_without_names(void **state)
{
    struct tri_machine *m = NULL;
    struct tri_devices *devices = NULL;
    struct tri_error err = { 0 };
    struct tri_fleet fleet = { 0 };
    (void)state;
    assert_int_equal(tri_machine_open(&m, &err), TRI_OK);
    assert_int_equal(tri_topo_read_nccl_xml(m, "x.xml", nccl_xml, sizeof nccl_xml - 1, &err),
                     TRI_OK);
    tri_machine_join(m);
    assert_int_equal(tri_devices_open(&devices, &err), TRI_OK);
    assert_int_equal(tri_fleet_from_machine(&fleet, devices, m, NULL, 1, &err), TRI_ARG);
    assert_non_null(strstr(err.text, "--hw"));
    const struct tri_device *d = NULL;
    assert_int_equal(tri_devices_find(&d, devices, "RTX-3090", NULL), TRI_OK);
    assert_int_equal(tri_fleet_from_machine(&fleet, devices, m, d, 1, NULL), TRI_OK);
    assert_int_equal(fleet.per_node, 2);
    assert_int_equal(fleet.pair[1].wire, TRI_WIRE_NVLINK);
    tri_fleet_fini(&fleet);
    tri_devices_close(devices);
    tri_machine_close(m);
}

/* Parts as the tools print them. */
static void test_names_in_captures(void **state)
{
    static const struct {
        const char *printed;
        double gib;
        const char *is; /* NULL: unknown */
    } rows[] = {
        { "NVIDIA H100 80GB HBM3", 79.6, "H100" },
        { "NVIDIA H20", 95.6, "H20-96GB" },
        { "NVIDIA H20", 140, "H20-141GB" },
        { "NVIDIA A100-SXM4-80GB", 80, "A100-80GB" },
        { "NVIDIA A100-SXM4-40GB", 40, "A100-40GB" },
        { "NVIDIA GeForce RTX 4090", 24, "RTX-4090" },
        { "AMD Instinct MI300X", 192, "MI300X" },
        { "GA102GL [A40]", 0, "A40" },
        { "NVIDIA RTX A4000", 16, NULL },
        { "NVIDIA RTX PRO 6000 Blackwell Server Edition", 95.6, "RTX-PRO-6000" },
        { "", 0, NULL },
        { "Tesla V100-SXM2-32GB", 32, "V100-32GB" },
    };
    struct tri_devices *devices = NULL;
    (void)state;
    assert_int_equal(tri_devices_open(&devices, NULL), TRI_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tri_machine *m = NULL;
        struct tri_fleet fleet = { 0 };
        assert_int_equal(tri_machine_open(&m, NULL), TRI_OK);
        struct tri_gpu *gpu = tri_machine_add_gpu(m);
        snprintf(gpu->name, sizeof gpu->name, "%s", rows[i].printed);
        gpu->memory_bytes = (uint64_t)(rows[i].gib * 1073741824.0);
        tri_machine_join(m);
        enum tri_status status = tri_fleet_from_machine(&fleet, devices, m, NULL, 1, NULL);
        assert_int_equal(status, rows[i].is ? TRI_OK : TRI_ARG);
        if (rows[i].is)
            assert_string_equal(fleet.device.name, rows[i].is);
        tri_fleet_fini(&fleet);
        tri_machine_close(m);
    }
    tri_devices_close(devices);
}

/* ---- words ---------------------------------------------------------------------------------- */

static void test_device_names(void **state)
{
    static const char *const same[] = { "H20-96GB", "h20-96", "h20_96gb", "H20 96GB" };
    struct tri_devices *devices = NULL;
    const struct tri_device *d = NULL, *first = NULL;
    struct tri_error err = { 0 };
    (void)state;
    assert_int_equal(tri_devices_open(&devices, &err), TRI_OK);
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        assert_int_equal(tri_devices_find(&d, devices, same[i], &err), TRI_OK);
        first = first ? first : d;
        assert_ptr_equal(first, d);
    }
    assert_int_equal(tri_devices_find(&d, devices, "H20", &err), TRI_ARG);
    assert_non_null(strstr(err.text, "H20-141GB"));
    for (int i = 0; i < tri_devices_count(devices); i++) {
        const struct tri_device *row = tri_devices_at(devices, i);
        assert_true(row->mem_gib > 0 && row->bw_gbs > 0 && row->bf16_tflops > 0);
        assert_true(*row->sources != 0 && row->box >= 1 && row->domain >= 1);
        assert_true(row->usable > 0 && row->usable <= 1);
        assert_int_equal(tri_devices_find(&d, devices, row->name, NULL), TRI_OK);
        assert_ptr_equal(d, row);
    }
    tri_devices_close(devices);
}

static void test_token_counts(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        { "1", 1 }, { "8k", 8192 }, { "32K", 32768 }, { "1M", 1048576 }, { "1.5k", 1536 }
    };
    static const char *const bad[] = { "",    "0",   "-1",  "k",  "8kk",  "1e99",
                                       "nan", "inf", "8 k", "9g", "1e3",  "0x8",
                                       "1.5", "+5",  ".5k", "5.", "1.1k", "\xd9\xa3" };
    int64_t n = 0;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(tri_parse_tokens(&n, "--x", good[i].text, 1 << 30, NULL), TRI_OK);
        assert_int_equal(n, good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (tri_parse_tokens(&n, "--x", bad[i], 1 << 30, NULL) != TRI_ARG)
            fail_msg("'%s' was taken", bad[i]);
    assert_int_equal(tri_parse_tokens(&n, "--x", "1000", 1000, NULL), TRI_OK);
    assert_int_equal(tri_parse_tokens(&n, "--x", "1001", 1000, NULL), TRI_ARG);
}

static void test_goals(void **state)
{
    struct tri_goal goals[TRI_PLAN_MAX_GOALS];
    int n = 0;
    (void)state;
    assert_int_equal(tri_parse_goals(goals, &n, "ttft<5s, tpot<=80ms,users>=32,tps>500,cost<4", 0),
                     TRI_OK);
    assert_int_equal(n, 5);
    assert_true(fabs(goals[0].value - 5000) < 1e-9 && fabs(goals[1].value - 80) < 1e-9);
    static const char *const bad[] = { "",       ",",       "tpot",     "tpot<",
                                       "tpot<0", "tpot>5",  "users<3",  "tpot<5m",
                                       "zap<3",  "tpot<5,", "tpot<nan", "tpot==3" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (tri_parse_goals(goals, &n, bad[i], NULL) != TRI_ARG)
            fail_msg("'%s' was taken", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_validation),
        cmocka_unit_test(test_little),
        cmocka_unit_test(test_more_memory_never_hurts),
        cmocka_unit_test(test_monotone_ledgers),
        cmocka_unit_test(test_groups_follow_wires),
        cmocka_unit_test(test_machine_without_names),
        cmocka_unit_test(test_names_in_captures),
        cmocka_unit_test(test_device_names),
        cmocka_unit_test(test_token_counts),
        cmocka_unit_test(test_goals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
