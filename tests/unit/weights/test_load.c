/*
 * weights: matrices and vectors brought to RAM from a file this test writes, against the same
 * values converted row by row; failures of files, memory and arguments.
 */
#include <fcntl.h>
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

#include "base/buf.h"
#include "os/direct.h"
#include "weights/weights_priv.h"

/* Whole numbers that every plain dtype holds exactly. */
static float value(int64_t i)
{
    return (float)(i * 7 % 97 - 48);
}

static const struct {
    const char *name, *shape;
    enum tri_dtype dtype;
    int64_t rows, cols;
} tensors[] = {
    { "bf16", "[5,70]", TRI_DT_BF16, 5, 70 },      { "f32", "[5,70]", TRI_DT_F32, 5, 70 },
    { "f16", "[5,70]", TRI_DT_F16, 5, 70 },        { "conv", "[12,1,4]", TRI_DT_F32, 12, 4 },
    { "row", "[130]", TRI_DT_BF16, 1, 130 },       { "big", "[700,1024]", TRI_DT_BF16, 700, 1024 },
    { "cube", "[2,3,4]", TRI_DT_F32, 6, 4 },       { "bytes", "[3]", TRI_DT_U8, 3, 1 },
    { "vector", "[40000]", TRI_DT_F32, 1, 40000 },
};
/* One value more than a row may have; all of it a hole in the file. */
enum { WIDE = (8 << 20) + 1 };
enum { TENSORS = sizeof tensors / sizeof tensors[0] };

static char folder[64];
static struct tri_checkpoint *ckpt;
static struct tri_budget *budget;

static void write_file(void)
{
    struct tri_buf head, data;
    char path[128];
    tri_buf_init(&head, 1 << 16);
    tri_buf_init(&data, 1 << 24);
    tri_buf_puts(&head, "{");
    for (size_t i = 0; i < TENSORS; i++) {
        size_t from = data.len_bytes;
        for (int64_t v = 0; v < tensors[i].rows * tensors[i].cols; v++) {
            float f = value(v);
            char raw[4] = { (char)v };
            if (tensors[i].dtype != TRI_DT_U8)
                tri_row_encode(raw, NULL, tensors[i].dtype, &f, 1);
            tri_buf_add(&data, raw, tri_row_data_bytes(tensors[i].dtype, 1));
        }
        tri_buf_printf(&head, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                       i ? "," : "", tensors[i].name, tri_dtype_name(tensors[i].dtype),
                       tensors[i].shape, from, data.len_bytes);
    }
    tri_buf_printf(&head,
                   ",\"wide\":{\"dtype\":\"BF16\",\"shape\":[%d],\"data_offsets\":[%zu,%zu]}}",
                   WIDE, data.len_bytes, data.len_bytes + 2 * (size_t)WIDE);
    assert_int_equal(head.failed, TRI_OK);
    assert_int_equal(data.failed, TRI_OK);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *f = fopen(path, "wb");
    uint64_t n = head.len_bytes;
    assert_non_null(f);
    assert_int_equal(fwrite(&n, 8, 1, f), 1);
    assert_int_equal(fwrite(head.data, 1, head.len_bytes, f), head.len_bytes);
    assert_int_equal(fwrite(data.data, 1, data.len_bytes, f), data.len_bytes);
    assert_int_equal(fflush(f), 0);
    assert_int_equal(ftruncate(fileno(f), (off_t)(8 + head.len_bytes + data.len_bytes + 2 * WIDE)),
                     0);
    fclose(f);
    tri_buf_fini(&head);
    tri_buf_fini(&data);
}

static int set_up(void **state)
{
    (void)state;
    struct tri_error err = { 0 };
    snprintf(folder, sizeof folder, "/tmp/trireme-test-load-XXXXXX");
    assert_non_null(mkdtemp(folder));
    write_file();
    assert_int_equal(tri_budget_open(&budget, 16 << 20, &err), TRI_OK);
    if (tri__weights_open_files(&ckpt, folder, NULL, 1, NULL, &err))
        fail_msg("%s", err.text);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char path[128];
    tri_checkpoint_close(ckpt);
    tri_budget_close(budget);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    unlink(path);
    rmdir(folder);
    return 0;
}

static char *lent; /* room that load() lends; NULL: none */

/* As tri_load_matrix does, with room of the caller's. */
static enum tri_status load(const char *name, struct tri_rect r, enum tri_dtype dtype,
                            struct tri_matrix *m, struct tri_error *err)
{
    void *memory = NULL;
    uint64_t bytes = tri_matrix_bytes(dtype, r.rows, r.cols);
    if (!lent)
        return tri_load_matrix(ckpt, name, r, dtype, budget, TRI_MEM_TRUNK, m, err);
    assert_int_equal(tri_budget_alloc(budget, TRI_MEM_TRUNK, bytes, &memory, err), TRI_OK);
    *m = tri_matrix_in(memory, dtype, r.rows, r.cols);
    const struct tri_rows rows = { name, r, dtype, memory, (void *)(uintptr_t)m->scales, lent };
    return tri_load_rows(ckpt, &rows, err);
}

/* Loads a rectangle and compares every row with the same row encoded on its own. */
static void check_rect(size_t which, struct tri_rect r, enum tri_dtype dtype)
{
    struct tri_matrix m;
    struct tri_error err = { 0 };
    if (load(tensors[which].name, r, dtype, &m, &err))
        fail_msg("%s", err.text);
    size_t data_bytes = tri_row_data_bytes(dtype, r.cols);
    size_t scale_bytes = tri_row_scale_bytes(dtype, r.cols);
    assert_true(m.rows == r.rows && m.cols == r.cols && m.dtype == dtype);
    assert_true((m.scales != NULL) == (tri_row_scale_bytes(dtype, 1) != 0));
    float *line = malloc((size_t)r.cols * 4 + 4);
    char *data = malloc(data_bytes + 1), *scales = malloc(scale_bytes + 1);
    for (int64_t row = 0; row < r.rows; row++) {
        for (int64_t c = 0; c < r.cols; c++)
            line[c] = value((r.row0 + row) * tensors[which].cols + r.col0 + c);
        tri_row_encode(data, scales, dtype, line, r.cols);
        assert_memory_equal((const char *)m.data + (size_t)row * data_bytes, data, data_bytes);
        if (scale_bytes)
            assert_memory_equal((const char *)m.scales + (size_t)row * scale_bytes, scales,
                                scale_bytes);
    }
    free(line);
    free(data);
    free(scales);
    tri_matrix_free(budget, TRI_MEM_TRUNK, &m);
    assert_null(m.data);
}

static void matrices_of_every_format(void **state)
{
    (void)state;
    static const enum tri_dtype to[] = { TRI_DT_F32, TRI_DT_BF16, TRI_DT_I8G64, TRI_DT_I4G32 };
    for (size_t d = 0; d < 4; d++) {
        for (size_t t = 0; t < 3; t++) {
            check_rect(t, (struct tri_rect){ 0, 5, 0, 70 }, to[d]);
            check_rect(t, (struct tri_rect){ 1, 3, 64, 6 }, to[d]);
            check_rect(t, (struct tri_rect){ 4, 1, 0, 64 }, to[d]);
            check_rect(t, (struct tri_rect){ 5, 0, 70, 0 }, to[d]);
        }
        check_rect(3, (struct tri_rect){ 2, 10, 0, 4 }, to[d]);
        check_rect(4, (struct tri_rect){ 0, 1, 30, 100 }, to[d]);
        check_rect(5, (struct tri_rect){ 0, 700, 0, 1024 }, to[d]); /* more than one block */
        check_rect(5, (struct tri_rect){ 3, 690, 512, 512 }, to[d]);
    }
}

static void vectors(void **state)
{
    (void)state;
    static float out[40000];
    struct tri_error err = { 0 };
    assert_int_equal(tri_load_vector(ckpt, "vector", 0, 40000, out, &err), TRI_OK);
    for (int i = 0; i < 40000; i++)
        assert_true(out[i] == value(i));
    assert_int_equal(tri_load_vector(ckpt, "row", 100, 30, out, &err), TRI_OK);
    assert_true(out[0] == value(100) && out[29] == value(129));
    assert_int_equal(tri_load_vector(ckpt, "conv", 5, 2, out, &err), TRI_OK);
    assert_true(out[0] == value(5));
    assert_int_equal(tri_load_vector(ckpt, "row", 130, 0, out, &err), TRI_OK);
}

/* Room of the caller's is used up to its end and not past it, and left alone by a row that is
 * longer. */
static void with_room_of_the_caller(void **state)
{
    enum { BLOCK = TRI_DIRECT_BLOCK_BYTES, ROOM = TRI_LOAD_ROOM_BYTES };
    char *memory = malloc(ROOM + 2 * BLOCK);
    assert_non_null(memory);
    lent = memory + (BLOCK - (uintptr_t)memory % BLOCK);
    memset(lent, 0x5a, ROOM + BLOCK / 2);
    for (int direct = 0; direct < 2; direct++) {
        tri_checkpoint_read_as(ckpt, direct ? TRI_READ_DIRECT : TRI_READ_CACHED);
        struct tri_matrix m;
        const struct tri_rect long_row = { 0, 1, 0, 1 << 20 };
        assert_int_equal(load("wide", long_row, TRI_DT_I8G64, &m, NULL), TRI_OK);
        tri_matrix_free(budget, TRI_MEM_TRUNK, &m);
        assert_true(direct || lent[0] == 0x5a);
        matrices_of_every_format(state);
        assert_true(lent[0] != 0x5a);
        for (int i = 0; i < BLOCK / 2; i++)
            assert_int_equal(lent[ROOM + i], 0x5a);
    }
    tri_checkpoint_read_as(ckpt, TRI_READ_CACHED);
    free(memory);
    lent = NULL;
}

/* Through the page cache or past it, cold or warm, by any kernels: the same bytes. */
static void the_same_however_read(void **state)
{
    static const enum tri_reading how[] = { TRI_READ_ONCE, TRI_READ_DIRECT, TRI_READ_CACHED };
    struct tri_kernels best;
    unsigned isas = 0;
    char path[128];
    assert_int_equal(tri_cpu_isas(&isas, NULL), TRI_OK);
    tri_kernels_fill(&best, isas);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    int fd = open(path, O_RDONLY);
    for (int warm = 0; warm < 2; warm++)
        for (int i = 0; i < 3; i++) {
            tri_checkpoint_read_as(ckpt, how[i]);
            tri_checkpoint_convert_with(ckpt, i % 2 ? NULL : &best);
            if (!warm && fsync(fd) == 0)
                (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            matrices_of_every_format(state);
            vectors(state);
        }
    close(fd);
    tri_checkpoint_convert_with(ckpt, NULL);
}

static void longest_row_and_one_past(void **state)
{
    (void)state;
    struct tri_matrix m;
    struct tri_error err = { 0 };
    struct tri_rect r = { 0, 1, 1, WIDE - 1 };
    assert_int_equal(
        tri_load_matrix(ckpt, "wide", r, TRI_DT_I4G32, budget, TRI_MEM_TRUNK, &m, &err), TRI_OK);
    tri_matrix_free(budget, TRI_MEM_TRUNK, &m);
    r = (struct tri_rect){ 0, 1, 0, WIDE };
    assert_int_equal(
        tri_load_matrix(ckpt, "wide", r, TRI_DT_I4G32, budget, TRI_MEM_TRUNK, &m, &err), TRI_LIMIT);
    assert_non_null(strstr(err.text, "tensor wide"));
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct tri_rect rect;
        enum tri_status status;
        const char *word;
    } bad[] = {
        { "bf16", { 0, 6, 0, 70 }, TRI_ARG, "outside" },
        { "bf16", { 0, 5, 1, 70 }, TRI_ARG, "outside" },
        { "bf16", { -1, 1, 0, 70 }, TRI_ARG, "outside" },
        { "bf16", { 0, INT64_MAX, 0, 70 }, TRI_ARG, "outside" },
        { "bf16", { 6, 0, 0, 70 }, TRI_ARG, "outside" },
        { "cube", { 0, 1, 0, 1 }, TRI_ARG, "not a matrix" },
        { "none", { 0, 1, 0, 1 }, TRI_ARG, "no tensor none" },
        { "bytes", { 0, 1, 0, 1 }, TRI_UNSUPPORTED, "tensor bytes" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tri_matrix m = { .rows = 77 };
        struct tri_error err = { 0 };
        assert_int_equal(tri_load_matrix(ckpt, bad[i].name, bad[i].rect, TRI_DT_F32, budget,
                                         TRI_MEM_TRUNK, &m, &err),
                         bad[i].status);
        assert_non_null(strstr(err.text, bad[i].word));
        assert_int_equal(m.rows, 77);
    }
    float out[1];
    assert_int_equal(tri_load_vector(ckpt, "row", 130, 1, out, NULL), TRI_ARG);
    assert_int_equal(tri_load_vector(ckpt, "row", -1, 1, out, NULL), TRI_ARG);
    const struct tri_tensor *t = tri_checkpoint_find(ckpt, "bytes");
    assert_int_equal(tri_checkpoint_read(ckpt, t, 2, out, 2, NULL), TRI_ARG);
    assert_int_equal(tri_checkpoint_read_at(ckpt, 0, UINT64_MAX, out, 1, NULL), TRI_ARG);
}

static void memory_runs_out(void **state)
{
    (void)state;
    struct tri_budget *small = NULL;
    struct tri_matrix m;
    struct tri_error err = { 0 };
    const struct tri_rect whole = { 0, 5, 0, 70 };
    uint64_t need = tri_matrix_bytes(TRI_DT_I8G64, 5, 70);
    assert_int_equal(need, 384 + 5 * 4);
    assert_int_equal(tri_budget_open(&small, need - 1, NULL), TRI_OK);
    assert_int_equal(
        tri_load_matrix(ckpt, "bf16", whole, TRI_DT_I8G64, small, TRI_MEM_TRUNK, &m, &err),
        TRI_BUDGET);
    assert_non_null(strstr(err.text, "tensor bf16"));
    tri_budget_close(small);
    assert_int_equal(tri_budget_open(&small, need, NULL), TRI_OK);
    /* plain allocations: the matrix itself, then the block */
    for (int n = 0; n < 2; n++) {
        tri_mem_fail_after(n);
        assert_int_equal(
            tri_load_matrix(ckpt, "bf16", whole, TRI_DT_I8G64, small, TRI_MEM_TRUNK, &m, NULL),
            TRI_NOMEM);
    }
    tri_mem_fail_after(-1);
    assert_int_equal(
        tri_load_matrix(ckpt, "bf16", whole, TRI_DT_I8G64, small, TRI_MEM_TRUNK, &m, NULL), TRI_OK);
    tri_matrix_free(small, TRI_MEM_TRUNK, &m);
    tri_budget_close(small);
}

/* Each allocation of opening fails once: always TRI_NOMEM, never a leak (seen by ASan). */
static void opening_without_memory(void **state)
{
    (void)state;
    enum tri_status st = TRI_NOMEM;
    int n = 0;
    for (; st == TRI_NOMEM && n < 1000; n++) {
        struct tri_checkpoint *c = NULL;
        tri_mem_fail_after(n);
        st = tri__weights_open_files(&c, folder, NULL, 1, NULL, NULL);
        tri_mem_fail_after(-1);
        tri_checkpoint_close(c);
    }
    assert_int_equal(st, TRI_OK);
    assert_true(n > 8);
}

/* The file shrinks while it is open: an error that names file and tensor, no signal, no zeros. */
static void file_cut_under_us(void **state)
{
    (void)state;
    char path[128];
    struct tri_matrix m;
    struct tri_error err = { 0 };
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    const struct tri_tensor *t = tri_checkpoint_find(ckpt, "big");
    assert_int_equal(truncate(path, (off_t)(t->offset_bytes + t->bytes - 1)), 0);
    assert_int_equal(tri_load_matrix(ckpt, "big", (struct tri_rect){ 0, 700, 0, 1024 }, TRI_DT_F32,
                                     budget, TRI_MEM_TRUNK, &m, &err),
                     TRI_IO);
    assert_non_null(strstr(err.text, "model.safetensors"));
    assert_non_null(strstr(err.text, "tensor big"));
    struct tri_budget_report now;
    tri_budget_read(budget, &now);
    assert_int_equal(now.used_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_of_every_format), cmocka_unit_test(vectors),
        cmocka_unit_test(the_same_however_read),    cmocka_unit_test(with_room_of_the_caller),
        cmocka_unit_test(longest_row_and_one_past), cmocka_unit_test(refusals),
        cmocka_unit_test(memory_runs_out),          cmocka_unit_test(opening_without_memory),
        cmocka_unit_test(file_cut_under_us),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
