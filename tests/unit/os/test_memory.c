/* Free memory and cgroup limits, from made-up /proc and /sys trees. */
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

#include "os/memory.h"

static char root[] = "/tmp/trireme-memory-XXXXXX";

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            mkdir(full, 0700);
            *p = '/';
        }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void clean(void)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'/*", root);
    assert_int_equal(system(command), 0);
}

static const char meminfo[] = "MemTotal:       1000000 kB\nMemFree:        100000 kB\n"
                              "MemAvailable:    600000 kB\n";

static struct tri_memory_facts ask(void)
{
    struct tri_memory_facts m;
    tri_memory_read(&m, root);
    return m;
}

static const uint64_t MIB = 1 << 20;

static void without_cgroups(void **state)
{
    (void)state;
    clean();
    assert_int_equal(ask().total_bytes, 0);
    put("/proc/meminfo", meminfo);
    struct tri_memory_facts m = ask();
    assert_int_equal(m.total_bytes, 1000000u * 1024);
    assert_int_equal(m.available_bytes, 600000u * 1024);
    assert_int_equal(m.cgroup_version, TRI_CGROUP_NONE);
    assert_int_equal(tri_memory_budget_bytes(&m), 600000u * 1024 - 256 * MIB);
    put("/proc/meminfo", "MemTotal: 1000 kB\nMemFree: 400 kB\n"); /* an old kernel */
    m = ask();
    assert_int_equal(m.available_bytes, 400u * 1024);
    assert_int_equal(tri_memory_budget_bytes(&m), 200u * 1024);
}

static void v2_limit_above_the_process(void **state)
{
    (void)state;
    clean();
    put("/proc/meminfo", meminfo);
    put("/proc/self/cgroup", "0::/slice/job/step\n");
    put("/sys/fs/cgroup/slice/job/step/memory.max", "max\n");
    put("/sys/fs/cgroup/slice/job/memory.max", "300000000\n");
    put("/sys/fs/cgroup/slice/job/memory.current", "120000000\n");
    put("/sys/fs/cgroup/slice/job/memory.stat", "anon 5\ninactive_file 20000000\nfile 7\n");
    struct tri_memory_facts m = ask();
    assert_int_equal(m.cgroup_version, TRI_CGROUP_V2);
    assert_int_equal(m.limit_bytes, 300000000);
    assert_int_equal(m.group_used_bytes, 100000000);
    put("/sys/fs/cgroup/slice/memory.max", "900000000\n"); /* wider, but with less left */
    put("/sys/fs/cgroup/slice/memory.current", "890000000\n");
    m = ask();
    assert_int_equal(m.limit_bytes - m.group_used_bytes, 10000000);
}

/* A container: its own path is not mounted, its limits sit at the top. */
static void v1_in_a_container(void **state)
{
    (void)state;
    clean();
    put("/proc/meminfo", meminfo);
    put("/proc/self/cgroup", "9:name=systemd:/docker/abc\n4:hugetlb,memory:/docker/abc\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "400000000\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "150000000\n");
    put("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 50000000\n");
    struct tri_memory_facts m = ask();
    assert_int_equal(m.cgroup_version, TRI_CGROUP_V1);
    assert_int_equal(m.limit_bytes, 400000000);
    assert_int_equal(m.group_used_bytes, 100000000);
}

static void no_limit_and_odd_files(void **state)
{
    (void)state;
    clean();
    put("/proc/meminfo", meminfo);
    put("/proc/self/cgroup", "4:memory:/a/b\nnonsense\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "what\n");
    assert_int_equal(ask().cgroup_version, TRI_CGROUP_NONE);
    put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "1000\n"); /* in use: unknown, then 0 */
    struct tri_memory_facts m = ask();
    assert_int_equal(m.limit_bytes - m.group_used_bytes, 1000);
    put("/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "5000\n"); /* over its limit already */
    m = ask();
    assert_true(m.group_used_bytes >= m.limit_bytes);
    assert_int_equal(tri_memory_budget_bytes(&m), 0);
}

static void this_machine(void **state)
{
    (void)state;
    struct tri_memory_facts m;
    tri_memory_read(&m, "");
    assert_true(m.total_bytes > 0 && m.available_bytes <= m.total_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_cgroups),   cmocka_unit_test(v2_limit_above_the_process),
        cmocka_unit_test(v1_in_a_container), cmocka_unit_test(no_limit_and_odd_files),
        cmocka_unit_test(this_machine),
    };
    if (!mkdtemp(root))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    clean();
    rmdir(root);
    return failed;
}
