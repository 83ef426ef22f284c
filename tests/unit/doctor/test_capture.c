/* doctor: the tar survives a round trip and damage; names, addresses and serials are taken out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "doctor/anonymise.h"
#include "doctor/doctor.h"
#include "doctor/tarfile.h"

struct seen {
    char text[1024];
    size_t members;
};

static enum tri_status on_member(void *arg, const struct tri_tar_member *m, struct tri_error *err)
{
    struct seen *s = arg;
    (void)err;
    size_t used = strlen(s->text);
    snprintf(s->text + used, sizeof s->text - used, "%s=%.*s>%s;", m->name, (int)m->bytes, m->data,
             m->link);
    s->members++;
    return TRI_OK;
}

static void tar_round_trip(void **state)
{
    (void)state;
    struct tri_buf tar;
    struct seen s = { "", 0 };
    bool cut = true;
    char deep[150];
    memset(deep, 'd', sizeof deep);
    deep[90] = '/';
    deep[149] = 0;
    tri_buf_init(&tar, 1 << 20);
    struct tri_tar_member m = { .name = "a/b.txt", .data = "hello", .bytes = 5 };
    assert_int_equal(tri_tar_add(&tar, &m, NULL), TRI_OK);
    struct tri_tar_member link = { .name = "l", .link = "a/b.txt" };
    assert_int_equal(tri_tar_add(&tar, &link, NULL), TRI_OK);
    struct tri_tar_member far = { .data = "x", .bytes = 1 };
    memcpy(far.name, deep, sizeof deep);
    assert_int_equal(tri_tar_add(&tar, &far, NULL), TRI_OK);
    struct tri_tar_member bad = { .data = "x", .bytes = 1 };
    memset(bad.name, 'n', 101); /* no slash to split at */
    assert_int_equal(tri_tar_add(&tar, &bad, NULL), TRI_LIMIT);
    assert_int_equal(tri_tar_end(&tar, NULL), TRI_OK);
    assert_int_equal(tar.len_bytes % 512, 0);
    assert_true(tri_tar_is(tar.data, tar.len_bytes));
    assert_int_equal(tri_tar_read("t", tar.data, tar.len_bytes, on_member, &s, &cut, NULL), TRI_OK);
    assert_false(cut);
    assert_int_equal(s.members, 3);
    assert_true(strstr(s.text, "a/b.txt=hello>;l=>a/b.txt;dddd") == s.text);
    for (size_t n = 512; n < tar.len_bytes - 1024; n += 200) { /* every cut is noticed */
        s.members = 0;
        s.text[0] = 0;
        assert_int_equal(tri_tar_read("t", tar.data, n, on_member, &s, &cut, NULL), TRI_OK);
        assert_true(cut);
    }
    tar.data[512 * 2 + 3] ^= 1; /* a damaged header ends the reading */
    s.members = 0;
    assert_int_equal(tri_tar_read("t", tar.data, tar.len_bytes, on_member, &s, &cut, NULL), TRI_OK);
    assert_true(cut && s.members == 1);
    tri_buf_fini(&tar);
}

static void names_are_taken_out(void **state)
{
    (void)state;
    static const struct tri__names names = { "gpubox17", "ada" };
    static const struct {
        const char *in, *out;
    } cases[] = {
        { "gpubox17:123:456 [0] NCCL INFO", "HOST:123:456 [0] NCCL INFO" },
        { "GPUBOX17.example", "HOST.example" },
        { "gpubox171 stays", "gpubox171 stays" },
        { "NET/Socket : Using [0]eth0:192.168.10.7<0>", "NET/Socket : Using [0]eth0:0.0.0.0<0>" },
        { "Driver Version: 550.54.15", "Driver Version: 550.54.15" },
        { "0000:3b:00.0 stays, 16.0 GT/s too", "0000:3b:00.0 stays, 16.0 GT/s too" },
        { "link/ether 02:fc:0a:00:00:01 brd", "link/ether 00:00:00:00:00:00 brd" },
        { "GPU 0: H100 (UUID: GPU-01234567-89ab-cdef-0123-456789abcdef)",
          "GPU 0: H100 (UUID: GPU-00000000-0000-0000-0000-000000000000)" },
        { "inet6 fe80::1ff:fe23:4567:890a/64", "inet6 ::0/64" },
        { "/home/grace/models/k3", "/home/USER/models/k3" },
        { "owner ada, adamant stays", "owner USER, adamant stays" },
        { "    Serial Number                     : 1652922012345",
          "    Serial Number                     : REMOVED" },
        { "node_guid: 506b:4b03:00aa:bbcc", "node_guid: REMOVED" },
        { "<info name=\"DMIProductSerial\" value=\"ABC\"/>", "" },
        { "<net name=\"mlx5_0\" guid=\"0x506b4b0300aabbcc\" gdr=\"1\"/>",
          "<net name=\"mlx5_0\" guid=\"\" gdr=\"1\"/>" },
        { "one\ntwo", "one\ntwo" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tri_buf out;
        tri_buf_init(&out, 4096);
        tri__doctor_anonymise(&names, cases[i].in, strlen(cases[i].in), &out);
        assert_string_equal(out.data ? out.data : "", cases[i].out);
        tri_buf_fini(&out);
    }
}

/* More findings than are kept: the report says that it is incomplete. */
static void findings_are_bounded(void **state)
{
    (void)state;
    struct tri_doctor *d = NULL;
    struct tri_buf text;
    tri_buf_init(&text, 4 << 20);
    for (int i = 0; i < TRI_DOCTOR_MAX_FINDINGS + 1; i++)
        tri_buf_printf(&text,
                       "%02x:%02x.0 3D controller: NVIDIA Corporation X\n"
                       "\tLnkCap:\tPort #0, Speed 16GT/s, Width x16\n"
                       "\tLnkSta:\tSpeed 16GT/s, Width x8 (downgraded)\n",
                       i >> 5, i & 31);
    assert_int_equal(tri_doctor_open(&d, NULL), TRI_OK);
    assert_int_equal(tri_doctor_read_bytes(d, "t", text.data, text.len_bytes, NULL), TRI_OK);
    assert_int_equal(tri_doctor_judge(d, NULL), TRI_OK);
    assert_int_equal(tri_doctor_findings(d), TRI_DOCTOR_MAX_FINDINGS);
    assert_false(tri_doctor_is_complete(d));
    assert_int_equal(tri_doctor_verdict(d), TRI_SEVERITY_FAIL);
    tri_doctor_close(d);
    tri_doctor_close(NULL);
    tri_buf_fini(&text);
}

/* Every allocation failing once: a status or a report, never a crash, nothing left behind. */
static void memory_may_end(void **state)
{
    (void)state;
    static const char input[] = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\t X \tNV4\tPIX\t0-7\n"
                                "GPU1\tNV4\t X \tSYS\t0-7\nNIC0\tPIX\tSYS\t X \t\n\n"
                                "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct\n"
                                "==> /sys/bus/pci/devices/0000:01:00.0/current_link_width <==\n8\n";
    for (long n = 0; n < 400; n++) {
        struct tri_doctor *d = NULL;
        struct tri_buf out;
        tri_buf_init(&out, 1 << 20);
        tri_mem_fail_after(n);
        if (tri_doctor_open(&d, NULL) == TRI_OK &&
            tri_doctor_read_bytes(d, "t", input, sizeof input - 1, NULL) == TRI_OK &&
            tri_doctor_judge(d, NULL) == TRI_OK)
            tri_doctor_write_text(d, true, &out);
        tri_mem_fail_after(-1);
        tri_doctor_close(d);
        tri_buf_fini(&out);
    }
}

/* It is called what it is: not a limit, nor another fault of the input. */
static void a_lack_of_memory_is_told(void **state)
{
    (void)state;
    static const char input[] = "<system version=\"1\">\n<cpu numaid=\"0\"/>\n</system>\n";
    long failures = 0;
    for (long n = 0; n < 100; n++) {
        struct tri_doctor *d = NULL;
        struct tri_error err = { 0 };
        assert_int_equal(tri_doctor_open(&d, NULL), TRI_OK);
        tri_mem_fail_after(n);
        enum tri_status st = tri_doctor_read_bytes(d, "t", input, sizeof input - 1, &err);
        tri_mem_fail_after(-1);
        tri_doctor_close(d);
        failures += st != TRI_OK;
        assert_true(st == TRI_OK || st == TRI_NOMEM);
        assert_int_equal(st, err.status);
    }
    assert_true(failures > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tar_round_trip),           cmocka_unit_test(names_are_taken_out),
        cmocka_unit_test(findings_are_bounded),     cmocka_unit_test(memory_may_end),
        cmocka_unit_test(a_lack_of_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
