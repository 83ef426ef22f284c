/* os: trees of files in a folder and in memory answer alike; links stay inside; programs end. */
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

#include "os/spawn.h"
#include "os/tree.h"

static void put_file(const char *dir, const char *path, const char *text)
{
    char full[4096];
    snprintf(full, sizeof full, "%s%s", dir, path);
    for (char *p = full + strlen(dir) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0755);
        *p = '/';
    }
    FILE *f = fopen(full, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void collect(void *arg, const char *name)
{
    strcat(arg, name);
    strcat(arg, " ");
}

/* The same questions to both kinds. */
static void ask(struct tri_tree *t)
{
    char text[64], names[256] = "";
    assert_true(tri_tree_read(t, "/a/b/c", text, sizeof text));
    assert_string_equal(text, "hello");
    assert_true(tri_tree_read(t, "/a/b/c", text, 4)); /* cut to fit */
    assert_string_equal(text, "hel");
    assert_int_equal(tri_tree_bytes(t, "/a/b/c", text, sizeof text), 6);
    assert_false(tri_tree_read(t, "/a/none", text, sizeof text));
    assert_string_equal(text, "");
    assert_true(tri_tree_exists(t, "/a/b"));
    assert_true(tri_tree_exists(t, "/a/b/c"));
    assert_false(tri_tree_exists(t, "/a/b/cc"));
    assert_true(tri_tree_link(t, "/a/l", text, sizeof text));
    assert_string_equal(text, "b/c");
    assert_false(tri_tree_link(t, "/a/b/c", text, sizeof text));
    tri_tree_list(t, "/a", collect, names);
    assert_string_equal(names, "b b-x l ");
    names[0] = 0;
    tri_tree_list(t, "/none", collect, names);
    assert_string_equal(names, "");
}

static void both_kinds(void **state)
{
    (void)state;
    char dir[] = "tree-XXXXXX", path[64], command[64];
    struct tri_tree *t = NULL;
    assert_non_null(mkdtemp(dir));
    put_file(dir, "/a/b/c", "hello\n");
    put_file(dir, "/a/b-x", "");
    snprintf(path, sizeof path, "%s/a/l", dir);
    assert_int_equal(symlink("b/c", path), 0);
    snprintf(path, sizeof path, "%s/out", dir);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    snprintf(path, sizeof path, "%s/up", dir);
    assert_int_equal(symlink("../../../../../../etc/passwd", path), 0);
    assert_int_equal(tri_tree_open_folder(&t, dir, NULL), TRI_OK);
    ask(t);
    assert_false(tri_tree_is_live(t));
    char text[64];
    assert_false(tri_tree_read(t, "/out", text, sizeof text)); /* not the real one */
    assert_false(tri_tree_read(t, "/up", text, sizeof text));
    assert_true(tri_tree_read(t, "/a/l", text, sizeof text)); /* links inside are followed */
    tri_tree_close(t);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);

    static const struct tri_tree_file files[] = {
        { "/a/b/c", "old\n", 4, false, "x", 1 },
        { "/a/l", "b/c", 3, true, "x", 2 },
        { "/a/b-x", "", 0, false, "x", 3 },
        { "/a/b/c", "hello\n", 6, false, "y", 4 },
    };
    assert_int_equal(tri_tree_open_memory(&t, NULL), TRI_OK);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        assert_int_equal(tri_tree_put(t, &files[i], NULL), TRI_OK);
    ask(t);
    uint32_t line = 0;
    assert_string_equal(tri_tree_origin(t, "/a/b/c", &line), "y");
    assert_int_equal(line, 4);
    static const struct tri_tree_file huge = { "/h", "", TRI_TREE_MAX_BYTES, false, "x", 0 };
    assert_int_equal(tri_tree_put(t, &huge, NULL), TRI_LIMIT);
    tri_tree_close(t);
    tri_tree_close(NULL);
    assert_int_equal(tri_tree_open_folder(&t, "no-such-folder", NULL), TRI_IO);
}

static void programs(void **state)
{
    (void)state;
    static const char *const say[] = { "sh", "-c", "echo one; echo two; exit 3", NULL };
    static const char *const flood[] = { "sh", "-c",
                                         "i=0; while [ $i -lt 9000 ]; do echo 0123456789; "
                                         "i=$((i+1)); done",
                                         NULL };
    static const char *const hang[] = { "sh", "-c", "echo early; sleep 30", NULL };
    static const char *const absent[] = { "no-such-program-here", NULL };
    struct tri_spawn s[] = { { .argv = say, .max_bytes = 100 },
                             { .argv = flood, .max_bytes = 50000 },
                             { .argv = absent, .max_bytes = 100 } };
    tri_spawn_all(s, 3, 20000);
    assert_string_equal(s[0].out.data, "one\ntwo\n");
    assert_int_equal(s[0].exit_code, 3);
    assert_int_equal(s[1].out.len_bytes, 50000); /* the rest was read and dropped */
    assert_int_equal(s[1].exit_code, 0);
    assert_false(s[2].started);
    for (int i = 0; i < 3; i++)
        tri_buf_fini(&s[i].out);
    struct tri_spawn slow = { .argv = hang, .max_bytes = 100 };
    tri_spawn_all(&slow, 1, 400);
    assert_true(slow.timed_out);
    assert_int_equal(slow.exit_code, -1);
    assert_string_equal(slow.out.data, "early\n");
    tri_buf_fini(&slow.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(both_kinds), cmocka_unit_test(programs) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
