/*
 * Growing states and folders of them: room is counted and given back; what was saved is found again
 * in the order of use; whatever else lies in the folder is a miss and goes, or is not ours and
 * stays; one process at a time.
 */
#include "state/state.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "unit/state/small_state.h"

static void room_comes_and_goes(void **state)
{
    struct small *m = *state;
    struct tri_state *s = NULL;
    struct tri_budget_report now;
    struct tri_error err = { 0 };
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(tri_state_open_growing(&s, &m->spec, &m->slice, (struct tri_state_form){ 0 },
                                            SMALL_CONTEXT, m->budget, NULL),
                     TRI_OK);
    tri_budget_read(m->budget, &now);
    uint64_t empty = now.used_bytes, other = now.account_used_bytes[TRI_MEM_MLA];
    assert_int_equal(other, (uint64_t)SMALL_CONTEXT * SMALL_ROW * 4 * SMALL_MLA); /* m->state */
    assert_int_equal(tri_state_room_bytes(s, 1), page * SMALL_MLA);
    for (int64_t tokens = 0; tokens <= SMALL_CONTEXT; tokens += 37) {
        assert_int_equal(tri_state_make_room(s, tokens, NULL), TRI_OK);
        tri_budget_read(m->budget, &now);
        uint64_t rows = (uint64_t)tokens * SMALL_ROW * 4;
        assert_int_equal(now.account_used_bytes[TRI_MEM_MLA] - other,
                         (rows + page - 1) / page * page * SMALL_MLA);
        assert_int_equal(tri_state_room_bytes(s, tokens),
                         now.account_used_bytes[TRI_MEM_MLA] - other);
        assert_int_equal(tri_state_room_tokens(s), tokens);
    }
    /* Content stays while room changes around it, up to the last row. */
    float row[SMALL_ROW];
    assert_int_equal(tri_state_fill(s, SMALL_CONTEXT - 5, 3, &err), TRI_LIMIT); /* no room yet */
    assert_int_equal(tri_state_make_room(s, SMALL_CONTEXT - 5, NULL), TRI_OK);
    small_fill(s, SMALL_CONTEXT - 5, 3);
    for (int c = 0; c < SMALL_ROW; c++)
        row[c] = (float)c;
    assert_int_equal(tri_state_make_room(s, SMALL_CONTEXT, NULL), TRI_OK);
    tri_state_put_mla(s, SMALL_MLA - 1, SMALL_CONTEXT - 1, row, 1);
    err = (struct tri_error){ 0 };
    assert_int_equal(tri_state_make_room(s, SMALL_CONTEXT + 1, &err), TRI_LIMIT);
    assert_int_equal(tri_state_make_room(s, SMALL_CONTEXT - 5, NULL), TRI_OK);
    small_check(s, SMALL_CONTEXT - 5, 3);
    tri_state_clear(s);
    assert_int_equal(tri_state_make_room(s, 0, NULL), TRI_OK);
    tri_budget_read(m->budget, &now);
    assert_int_equal(now.used_bytes, empty);
    tri_state_close(s);
}

static void no_room_changes_nothing(void **state)
{
    struct small *m = *state;
    struct tri_budget *budget = NULL;
    struct tri_state *s = NULL;
    struct tri_error err = { 0 };
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), fixed = small_fixed_bytes();
    assert_int_equal(tri_budget_open(&budget, fixed + 2 * page * SMALL_MLA, NULL), TRI_OK);
    assert_int_equal(tri_state_open_growing(&s, &m->spec, &m->slice, (struct tri_state_form){ 0 },
                                            SMALL_CONTEXT, budget, NULL),
                     TRI_OK);
    int64_t most = (int64_t)(2 * page / (SMALL_ROW * 4));
    assert_int_equal(tri_state_make_room(s, most, NULL), TRI_OK);
    small_fill(s, most, 8);
    assert_int_equal(tri_state_make_room(s, most + 1, &err), TRI_BUDGET);
    assert_int_equal(tri_state_room_tokens(s), most);
    small_check(s, most, 8);
    tri_state_close(s);
    tri_budget_close(budget);
}

/* --- folders --------------------------------------------------------------------------------- */

struct seen {
    int n;
    int32_t first[16];
    int64_t tokens[16];
    char why[16];
    struct tri_salt salt[16];
    bool refuse;
};

static bool note(void *arg, const struct tri_state_found *found)
{
    struct seen *seen = arg;
    assert_true(seen->n < 16);
    seen->first[seen->n] = found->kept.tokens[0];
    seen->tokens[seen->n] = found->kept.n_tokens;
    seen->salt[seen->n] = found->kept.salt;
    seen->why[seen->n++] = (char)found->kept.why;
    return !seen->refuse;
}

static void scan(struct tri_state_folder *folder, struct seen *seen, uint64_t *removed)
{
    *removed = 0;
    *seen = (struct seen){ 0 };
    assert_int_equal(tri_state_folder_scan(folder, note, seen, removed, NULL), TRI_OK);
}

static struct tri_kept kept_of(int32_t first, int64_t n, uint64_t salt)
{
    static int32_t ids[16][SMALL_CONTEXT];
    int32_t *list = ids[first % 16];
    for (int64_t i = 0; i < n; i++)
        list[i] = first + (int32_t)i;
    return (struct tri_kept){ { salt, 1 }, TRI_KEEP_BORDER, list, n };
}

static void found_again_in_order(void **state)
{
    struct small *m = *state;
    struct tri_state_folder *folder = NULL;
    struct seen seen;
    uint64_t removed;
    struct stat sb;
    struct tri_error err = { 0 };
    assert_int_equal(tri_state_folder_open(&folder, m->folder, m->state, 5, NULL), TRI_OK);
    assert_int_equal(stat(m->folder, &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0700);
    for (int i = 0; i < 4; i++) {
        struct tri_kept k = kept_of(i, 10 + i, (uint64_t)i % 2);
        small_fill(m->state, k.n_tokens, i);
        assert_int_equal(tri_state_folder_save(folder, &k, m->state, NULL), TRI_OK);
    }
    struct tri_kept second = kept_of(1, 11, 1), none = kept_of(1, 11, 0);
    assert_int_equal(tri_state_folder_load(folder, &second, m->state, NULL), TRI_OK);
    small_check(m->state, 11, 1);
    assert_int_equal(tri_state_folder_load(folder, &none, m->state, &err), TRI_IO); /* its salt */
    struct tri_kept first = kept_of(0, 10, 0);
    tri_state_folder_touch(folder, &first);
    tri_state_folder_close(folder);

    assert_int_equal(tri_state_folder_open(&folder, m->folder, m->state, 5, NULL), TRI_OK);
    scan(folder, &seen, &removed);
    static const int32_t order[] = { 2, 3, 1, 0 };
    assert_int_equal(removed, 0);
    assert_int_equal(seen.n, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(seen.first[i], order[i]);
        assert_int_equal(seen.tokens[i], 10 + order[i]);
        assert_int_equal(seen.salt[i].a, order[i] % 2);
        assert_int_equal(seen.why[i], TRI_KEEP_BORDER);
    }
    tri_state_folder_remove(folder, &first);
    scan(folder, &seen, &removed);
    assert_int_equal(seen.n, 3);
    tri_state_folder_close(folder);
    /* Another model (or precision, or format of the cache): all of it goes. */
    assert_int_equal(tri_state_folder_open(&folder, m->folder, m->state, 6, NULL), TRI_OK);
    scan(folder, &seen, &removed);
    assert_int_equal(seen.n, 0);
    assert_int_equal(removed, 3);
    tri_state_folder_close(folder);
}

static void damage(const char *folder, int what)
{
    char command[512];
    static const char *const how[] = {
        /* a flipped byte in the ids, a cut file, a file of zero bytes, a longer one, another
         * version, another name, a link */
        "f=$(ls *.state); printf X | dd of=$f bs=1 seek=84 conv=notrunc status=none",
        "f=$(ls *.state); truncate -s -9 $f",
        "f=$(ls *.state); : > $f",
        "f=$(ls *.state); echo >> $f",
        "f=$(ls *.state); printf 1 | dd of=$f bs=1 seek=7 conv=notrunc status=none",
        "f=$(ls *.state); mv $f $(echo $f | tr 0123456789 1234567890)",
        "f=$(ls *.state); mv $f a; ln -s /dev/zero $f; rm a",
    };
    snprintf(command, sizeof command, "cd %s; %s", folder, how[what]);
    assert_int_equal(system(command), 0);
}

static void damaged_files_go(void **state)
{
    struct small *m = *state;
    struct tri_kept k = kept_of(3, 20, 4);
    for (int what = 0; what < 7; what++) {
        struct tri_state_folder *folder = NULL;
        struct seen seen;
        uint64_t removed;
        assert_int_equal(tri_state_folder_open(&folder, m->folder, m->state, 5, NULL), TRI_OK);
        small_fill(m->state, 20, 1);
        assert_int_equal(tri_state_folder_save(folder, &k, m->state, NULL), TRI_OK);
        damage(m->folder, what);
        scan(folder, &seen, &removed);
        assert_int_equal(seen.n, 0);
        assert_int_equal(removed, 1);
        scan(folder, &seen, &removed);
        assert_int_equal(removed, 0); /* it is gone */
        tri_state_folder_close(folder);
    }
}

/* Every byte of the part that scanning does not read is covered when loading does. */
static void damage_deeper_down(void **state)
{
    struct small *m = *state;
    struct tri_state_folder *folder = NULL;
    struct tri_kept k = kept_of(3, 20, 4);
    char command[512], path[256];
    assert_int_equal(tri_state_folder_open(&folder, m->folder, m->state, 5, NULL), TRI_OK);
    small_fill(m->state, 20, 1);
    uint64_t bytes = tri_state_file_bytes(m->state);
    for (uint64_t at = 200; at < bytes; at += 131) {
        struct seen seen;
        uint64_t removed;
        small_fill(m->state, 20, 1);
        assert_int_equal(tri_state_folder_save(folder, &k, m->state, NULL), TRI_OK);
        snprintf(command, sizeof command, "ls %s/*.state", m->folder);
        FILE *list = popen(command, "r");
        assert_non_null(fgets(path, sizeof path, list));
        pclose(list);
        path[strcspn(path, "\n")] = 0;
        int fd = open(path, O_RDWR);
        unsigned char c;
        assert_int_equal(pread(fd, &c, 1, (off_t)at), 1);
        c ^= 1;
        assert_int_equal(pwrite(fd, &c, 1, (off_t)at), 1);
        close(fd);
        assert_int_equal(tri_state_folder_load(folder, &k, m->state, NULL), TRI_FORMAT);
        assert_int_equal(tri_state_tokens(m->state), 0);
        scan(folder, &seen, &removed);
        assert_int_equal(seen.n + (int)removed, 0); /* removed at once */
    }
    tri_state_folder_close(folder);
}

static void leftovers_go_and_strangers_stay(void **state)
{
    struct small *m = *state;
    struct tri_state_folder *folder = NULL;
    struct seen seen;
    uint64_t removed;
    char command[900];
    snprintf(command, sizeof command,
             "cd %s && touch notes.txt x.state "
             "0000000000000004000000000000000G-0123456789abcdef-b.state "
             "00000000000000040000000000000001-0123456789abcdef-b.state.77.tmp "
             "00000000000000040000000000000001-0123456789abcdef-z.state",
             m->folder);
    assert_int_equal(tri_state_folder_open(&folder, m->folder, m->state, 5, NULL), TRI_OK);
    assert_int_equal(system(command), 0);
    scan(folder, &seen, &removed);
    assert_int_equal(seen.n, 0);
    assert_int_equal(removed, 1);
    snprintf(command, sizeof command, "test $(ls %s | wc -l) = 5", m->folder); /* and the lock */
    assert_int_equal(system(command), 0);
    tri_state_folder_close(folder);
}

static void one_at_a_time_and_private(void **state)
{
    struct small *m = *state;
    struct tri_state_folder *folder = NULL, *second = NULL;
    struct tri_error err = { 0 };
    char pid[32];
    assert_int_equal(tri_state_folder_open(&folder, m->folder, m->state, 5, NULL), TRI_OK);
    assert_int_equal(tri_state_folder_open(&second, m->folder, m->state, 5, &err), TRI_BUSY);
    snprintf(pid, sizeof pid, "pid %ld", (long)getpid());
    assert_non_null(strstr(err.text, pid));
    tri_state_folder_close(folder);
    assert_int_equal(chmod(m->folder, 0750), 0);
    err = (struct tri_error){ 0 };
    assert_int_equal(tri_state_folder_open(&second, m->folder, m->state, 5, &err), TRI_ARG);
    assert_non_null(strstr(err.text, "chmod 700"));
    assert_int_equal(chmod(m->folder, 0700), 0);
    assert_int_equal(tri_state_folder_open(&second, "/nonexistent/x/y", m->state, 5, NULL), TRI_IO);
    assert_int_equal(tri_state_folder_open(&second, "/dev/null", m->state, 5, NULL), TRI_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(room_comes_and_goes, small_up, small_down),
        cmocka_unit_test_setup_teardown(no_room_changes_nothing, small_up, small_down),
        cmocka_unit_test_setup_teardown(found_again_in_order, small_up, small_down),
        cmocka_unit_test_setup_teardown(damaged_files_go, small_up, small_down),
        cmocka_unit_test_setup_teardown(damage_deeper_down, small_up, small_down),
        cmocka_unit_test_setup_teardown(leftovers_go_and_strangers_stay, small_up, small_down),
        cmocka_unit_test_setup_teardown(one_at_a_time_and_private, small_up, small_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
