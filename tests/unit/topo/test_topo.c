/*
 * topo: machines from XML. Expected paths and rates are worked out by hand from the files (own data
 * in tests/machines) and from the PCI Express rates (GT/s x lanes x 128/130 / 8).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"
#include "topo/topo.h"

#define MACHINES TRI_TEST_SOURCE "/tests/machines/"

static void near(double a, double b)
{
    if (fabs(a - b) > 0.01 * fabs(b) + 1e-9)
        fail_msg("%g is not near %g", a, b);
}

static void bus_ids_in_every_spelling(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } good[] = {
        { "3b:00.0", "0000:3b:00.0" },      { "00000000:3B:00.0", "0000:3b:00.0" },
        { "0000:3b:00", "0000:3b:00.0" },   { "af000", "0000:af:00.0" },
        { "1000", "0000:01:00.0" },         { "201d0", "0000:20:1d.0" },
        { "000f:01:00", "000f:01:00.0" },   { "0x3b000", "0000:3b:00.0" },
        { "ffff:ff:01.0", "ffff:ff:01.0" },
    };
    static const char *const bad[] = { "",         "x",       "3b",           "0000:3b:00.9",
                                       "3b:00.0x", "1:2:3:4", "0000:3b:20.0", "123456789:00:00.0" };
    char out[16];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(tri_bdf_normal(good[i].in, strlen(good[i].in), out));
        assert_string_equal(out, good[i].out);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(tri_bdf_normal(bad[i], strlen(bad[i]), out));
}

static void link_rates(void **state)
{
    (void)state;
    near(tri_link_gbs((struct tri_link){ 2.5, 16 }), 4.0);
    near(tri_link_gbs((struct tri_link){ 8, 16 }), 15.75);
    near(tri_link_gbs((struct tri_link){ 16, 8 }), 15.75);
    near(tri_link_gbs((struct tri_link){ 32, 16 }), 63.0);
    near(tri_link_gbs((struct tri_link){ 64, 16 }), 121.0);
    assert_true(tri_link_gbs((struct tri_link){ 0, 16 }) == 0);
}

static void nccl_xml(void **state)
{
    (void)state;
    struct tri_machine *m = NULL;
    struct tri_error err = { 0 };
    if (tri_topo_load_xml(&m, MACHINES "nccl-topo-4gpu.xml", &err))
        fail_msg("%s", err.text);
    assert_int_equal(m->gpus, 4);
    assert_int_equal(m->nics, 1);
    assert_int_equal(m->numas, 2);
    assert_int_equal(m->numa[1].cpu_count, 16);
    assert_int_equal(m->gpu[2].numa, 1);
    assert_string_equal(m->gpu[3].bdf, "0000:c2:00.0");
    assert_int_equal(tri_machine_pair(m, 0, 1)->path, TRI_PATH_NVLINK);
    assert_int_equal(tri_machine_pair(m, 1, 0)->links, 12);
    near(tri_machine_pair(m, 0, 1)->link_gbs, 300);
    assert_int_equal(tri_machine_pair(m, 0, 2)->path, TRI_PATH_SYS);
    assert_int_equal(*tri_machine_gpu_nic(m, 1, 0), TRI_PATH_PIX);
    assert_int_equal(*tri_machine_gpu_nic(m, 2, 0), TRI_PATH_SYS);
    near(m->nic[0].rate_gbs, 25);
    assert_int_equal(m->nic[0].gdr, 1);
    int slow = -1;
    near(tri_path_to_root_gbs(m, m->gpu[2].pci, &slow), 15.75);
    assert_string_equal(m->pci[slow].bdf, "0000:c0:01.1");
    assert_int_equal(m->gpu[0].source.line, 5);
    assert_false(tri_machine_is_cut(m));
    tri_machine_close(m);
}

static void hwloc_xml(void **state)
{
    (void)state;
    struct tri_machine *m = NULL;
    struct tri_error err = { 0 };
    if (tri_topo_load_xml(&m, MACHINES "hwloc-2socket.xml", &err))
        fail_msg("%s", err.text);
    assert_int_equal(m->cpu.sockets, 2);
    assert_int_equal(m->cpu.cores, 8);
    assert_int_equal(m->numas, 2);
    assert_true(m->numa[0].memory_bytes == (uint64_t)64 << 30);
    assert_string_equal(m->numa[1].cpus, "4-7");
    assert_int_equal(m->gpus, 4);
    assert_string_equal(m->gpu[0].bdf, "0000:13:00.0");
    assert_string_equal(m->gpu[0].name, "GA102GL [A40]");
    assert_int_equal(m->gpu[3].numa, 1);
    assert_int_equal(tri_machine_pair(m, 0, 1)->path, TRI_PATH_PIX);
    assert_int_equal(tri_machine_pair(m, 1, 2)->path, TRI_PATH_SYS);
    assert_int_equal(m->nics, 1);
    assert_string_equal(m->nic[0].name, "mlx5_0");
    assert_int_equal(*tri_machine_gpu_nic(m, 0, 0), TRI_PATH_PIX);
    near(tri_path_to_root_gbs(m, m->gpu[3].pci, NULL), 15.75);
    near(tri_path_to_root_gbs(m, m->gpu[2].pci, NULL), 31.5);
    tri_machine_close(m);
}

/* Every prefix of both files: no crash; what is read is marked as cut or refused. */
static void cut_xml(void **state)
{
    (void)state;
    static const char *const files[] = { MACHINES "nccl-topo-4gpu.xml",
                                         MACHINES "hwloc-2socket.xml" };
    for (int f = 0; f < 2; f++) {
        char *text = NULL;
        size_t bytes = 0;
        assert_int_equal(tri_read_file(&text, &bytes, files[f], 1 << 20, NULL), TRI_OK);
        size_t last = bytes;
        while (text[last - 1] == '\n')
            last--;
        for (size_t cut = 0; cut < last; cut += f ? 97 : 13) {
            struct tri_machine *m = NULL;
            assert_int_equal(tri_machine_open(&m, NULL), TRI_OK);
            enum tri_status st = f ? tri_topo_read_hwloc_xml(m, "cut", text, cut, NULL)
                                   : tri_topo_read_nccl_xml(m, "cut", text, cut, NULL);
            tri_machine_join(m);
            assert_true(st == TRI_FORMAT || (st == TRI_OK && tri_machine_is_cut(m)));
            tri_machine_close(m);
        }
        tri_free(text);
    }
}

static void hostile_xml(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "<!DOCTYPE system [<!ENTITY a \"b\">]><system>&a;</system>",
        "<!DOCTYPE topology [<!ENTITY a \"b\">]><topology version=\"2.0\">&a;</topology>",
        "<html/>",
        "",
        "# only a comment",
        "<topology",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tri_machine *m = NULL;
        struct tri_error err = { 0 };
        assert_int_equal(tri_machine_open(&m, NULL), TRI_OK);
        assert_int_equal(tri_topo_read_nccl_xml(m, "t", bad[i], strlen(bad[i]), &err), TRI_FORMAT);
        assert_int_equal(tri_topo_read_hwloc_xml(m, "t", bad[i], strlen(bad[i]), NULL), TRI_FORMAT);
        assert_null(strchr(err.text, '\n'));
        tri_machine_close(m);
    }
}

static size_t cut_remarks(const char *text, size_t bytes)
{
    struct tri_machines set = { 0 };
    struct tri_lines lines = { 0 };
    size_t cut = 0;
    assert_int_equal(tri_lines_init(&lines, text, bytes, NULL), TRI_OK);
    tri_topo_read_lines(&set, "text", &lines);
    assert_int_equal(set.count, 1);
    for (size_t i = 0; i < set.list[0]->remarks; i++)
        cut += set.list[0]->remark[i].kind == TRI_REMARK_CUT;
    tri_machines_fini(&set);
    tri_lines_fini(&lines);
    return cut;
}

/* Whoever reads a whole text hears that its last line is missing. */
static void cut_text(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    assert_int_equal(tri_read_file(&text, &bytes, MACHINES "rocm-mesh.txt", 1 << 20, NULL), TRI_OK);
    assert_int_equal(cut_remarks(text, bytes), 0);
    const char *end = strstr(text, "End of ROCm SMI Log");
    assert_non_null(end);
    while (end[-1] != '\n')
        end--;
    assert_int_equal(cut_remarks(text, (size_t)(end - text)), 1);
    tri_free(text);
}

/* So many devices of xpu-smi; what does not fit is said to be lost. */
static bool loses_devices(size_t devices)
{
    struct tri_machines set = { 0 };
    struct tri_lines lines = { 0 };
    struct tri_buf text;
    tri_buf_init(&text, 1 << 20);
    for (size_t i = 0; i < devices; i++)
        tri_buf_printf(&text, "| %zu | Device Name: Intel(R) Data Center GPU Max 1550 |\n", i);
    assert_int_equal(tri_lines_init(&lines, text.data, text.len_bytes, NULL), TRI_OK);
    tri_topo_read_lines(&set, "text", &lines);
    assert_int_equal(set.list[0]->gpus, devices < TRI_MAX_GPUS ? devices : TRI_MAX_GPUS);
    bool lost = set.lost;
    tri_machines_fini(&set);
    tri_lines_fini(&lines);
    tri_buf_fini(&text);
    return lost;
}

static void limits(void **state)
{
    (void)state;
    assert_false(loses_devices(TRI_MAX_GPUS));
    assert_true(loses_devices(TRI_MAX_GPUS + 1));
    struct tri_machine *m = NULL;
    assert_int_equal(tri_machine_open(&m, NULL), TRI_OK);
    for (int i = 0; i < TRI_MAX_GPUS; i++)
        assert_non_null(tri_machine_add_gpu(m));
    assert_null(tri_machine_add_gpu(m));
    for (int i = 0; i < TRI_MAX_REMARKS + 1; i++)
        tri_machine_remark(m, TRI_REMARK_NOTE, (struct tri_source){ -1, 0 }, "%d", i);
    assert_int_equal(m->remarks, TRI_MAX_REMARKS);
    assert_int_equal(m->remarks_lost, 1);
    tri_machine_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bus_ids_in_every_spelling),
        cmocka_unit_test(link_rates),
        cmocka_unit_test(nccl_xml),
        cmocka_unit_test(hwloc_xml),
        cmocka_unit_test(cut_xml),
        cmocka_unit_test(hostile_xml),
        cmocka_unit_test(cut_text),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
