/*
 * Trunk weights to RAM: rectangles of matrices converted row block by row block, so that loading
 * needs little more memory than the result. Same-format copies go straight to their place.
 */
#include "weights/weights_priv.h"

#include <string.h>
#include "base/mem.h"
#include "os/direct.h"

enum {
    BLOCK_BYTES = 512 << 10,  /* raw rows read at once: fits in cache beside the result */
    MAX_ROW_VALUES = 8 << 20, /* one row of anything sane */
    VECTOR_BLOCK = 16384      /* bytes of a vector read at once */
};

/* Scales begin at a cache line of their own. */
static uint64_t data_part(enum tri_dtype dtype, int64_t rows, int64_t cols)
{
    return ((uint64_t)rows * tri_row_data_bytes(dtype, cols) + 63) & ~UINT64_C(63);
}

uint64_t tri_matrix_bytes(enum tri_dtype dtype, int64_t rows, int64_t cols)
{
    return data_part(dtype, rows, cols) + (uint64_t)rows * tri_row_scale_bytes(dtype, cols);
}

struct tri_matrix tri_matrix_in(void *memory, enum tri_dtype dtype, int64_t rows, int64_t cols)
{
    bool grouped = tri_row_scale_bytes(dtype, 1) != 0;
    return (struct tri_matrix){
        .dtype = dtype,
        .rows = rows,
        .cols = cols,
        .data = memory,
        .scales = grouped ? (char *)memory + data_part(dtype, rows, cols) : NULL,
    };
}

void tri_matrix_free(struct tri_budget *budget, enum tri_account account, struct tri_matrix *m)
{
    if (m->data)
        tri_budget_free(budget, account, (void *)(uintptr_t)m->data,
                        tri_matrix_bytes(m->dtype, m->rows, m->cols));
    *m = (struct tri_matrix){ 0 };
}

/* A tensor seen as [rows][cols]: a vector is one row; inner dimensions of 1 are dropped. */
static bool as_matrix(const struct tri_tensor *t, int64_t *rows, int64_t *cols)
{
    if (t->rank < 1 || t->rank > 4)
        return false;
    *rows = t->rank == 1 ? 1 : t->shape[0];
    *cols = t->shape[t->rank - 1];
    for (int i = 1; i < t->rank - 1; i++)
        if (t->shape[i] != 1)
            return false;
    return true;
}

static bool plain_number(enum tri_dtype dtype)
{
    return dtype == TRI_DT_F32 || dtype == TRI_DT_BF16 || dtype == TRI_DT_F16 ||
           dtype == TRI_DT_F64 || dtype == TRI_DT_E4M3;
}

static enum tri_status find(const struct tri_checkpoint *ckpt, const char *name,
                            const struct tri_tensor **out, struct tri_error *err)
{
    const struct tri_tensor *t = tri_checkpoint_find(ckpt, name);
    if (!t)
        return tri_fail(err, TRI_ARG, "%s: no tensor %s", ckpt->folder, name);
    if (!plain_number(t->dtype))
        return tri_fail(err, TRI_UNSUPPORTED, "%s: tensor %s holds no plain numbers",
                        tri_checkpoint_file(ckpt, t->shard), name);
    *out = t;
    return TRI_OK;
}

/* One load: where it comes from, which part, and where it goes. */
struct load {
    const struct tri_checkpoint *ckpt;
    const struct tri_tensor *t;
    struct tri_rect rect;
    int64_t cols;         /* of the whole tensor */
    enum tri_dtype dtype; /* wanted */
    char *data, *scales;
    bool direct;
    char *room; /* the caller's, or for BLOCK_BYTES or one row, and two blocks of the drive */
    int64_t block_rows;
};

/* Rows [row, row + n) of the rectangle if they are whole ones, else the first of them. */
static struct tri__weights_piece piece_of(const struct load *l, int64_t row, int64_t n)
{
    uint64_t value = tri_row_data_bytes(l->t->dtype, 1);
    uint64_t line = (uint64_t)l->cols * value, bytes = (uint64_t)l->rect.cols * value;
    return (struct tri__weights_piece){
        .tensor = l->t,
        .from = (uint64_t)(l->rect.row0 + row) * line + (uint64_t)l->rect.col0 * value,
        .bytes = l->rect.cols == l->cols ? bytes * (uint64_t)n : bytes,
        .direct = l->direct,
    };
}

/* Reads rows [row, row + n) of the rectangle into dst, packed. */
static enum tri_status read_rows(const struct load *l, int64_t row, int64_t n, char *dst,
                                 struct tri_error *err)
{
    for (int64_t i = 0; i < n;) {
        const struct tri__weights_piece piece = piece_of(l, row + i, n - i);
        enum tri_status st = tri__weights_read(l->ckpt, &piece, dst, err);
        if (st)
            return st;
        dst += piece.bytes;
        i = l->rect.cols == l->cols ? n : i + 1;
    }
    return TRI_OK;
}

/* The same into l->room; *at: where the first row begins. */
static enum tri_status read_block(const struct load *l, int64_t row, int64_t n, char **at,
                                  struct tri_error *err)
{
    uint64_t bytes = tri_row_data_bytes(l->t->dtype, l->rect.cols) * (uint64_t)n;
    const struct tri__weights_piece piece = piece_of(l, row, n);
    if (piece.bytes == bytes)
        return tri__weights_read_blocks(l->ckpt, &piece, l->room, at, err);
    *at = l->room;
    return read_rows(l, row, n, l->room, err);
}

static enum tri_status convert_rows(const struct load *l, struct tri_error *err)
{
    const struct tri_kernels *k = l->ckpt->kernels ? l->ckpt->kernels : tri_kernels_ref();
    size_t out = tri_row_data_bytes(l->dtype, l->rect.cols);
    size_t scale = tri_row_scale_bytes(l->dtype, l->rect.cols);
    for (int64_t row = 0; row < l->rect.rows; row += l->block_rows) {
        int64_t n = l->rect.rows - row < l->block_rows ? l->rect.rows - row : l->block_rows;
        struct tri_encode_args a = { .from_dtype = l->t->dtype,
                                     .to = l->dtype,
                                     .cols = l->rect.cols,
                                     .data = l->data + (size_t)row * out,
                                     .scales = scale ? l->scales + (size_t)row * scale : NULL };
        char *at = NULL;
        enum tri_status st = read_block(l, row, n, &at, err);
        if (st)
            return st;
        a.from = at;
        k->encode(&a, 0, n);
    }
    return TRI_OK;
}

static enum tri_status fill(struct load *l, struct tri_error *err)
{
    size_t row_bytes = tri_row_data_bytes(l->t->dtype, l->rect.cols);
    if (l->rect.rows == 0 || l->rect.cols == 0)
        return TRI_OK;
    l->direct = tri__weights_past_cache(l->ckpt, l->t, piece_of(l, 0, 1).from,
                                        row_bytes * (size_t)l->rect.rows);
    if (l->t->dtype == l->dtype)
        return read_rows(l, 0, l->rect.rows, l->data, err);
    l->block_rows = row_bytes < BLOCK_BYTES ? (int64_t)(BLOCK_BYTES / row_bytes) : 1;
    if (l->block_rows > l->rect.rows)
        l->block_rows = l->rect.rows;
    enum { BLOCK = TRI_DIRECT_BLOCK_BYTES };
    size_t want = row_bytes * (size_t)l->block_rows + 2 * (size_t)BLOCK;
    if (l->room && want <= TRI_LOAD_ROOM_BYTES)
        return convert_rows(l, err);
    char *memory = tri_malloc(want + BLOCK);
    if (!memory)
        return tri_fail(err, TRI_NOMEM, "no memory to convert tensor %s", l->t->name);
    l->room = memory + (BLOCK - (uintptr_t)memory % BLOCK) % BLOCK;
    enum tri_status st = convert_rows(l, err);
    tri_free(memory);
    return st;
}

/* The tensor is a matrix, and the rectangle lies in it. */
static enum tri_status check_rect(struct load *l, struct tri_error *err)
{
    const char *file = tri_checkpoint_file(l->ckpt, l->t->shard);
    const struct tri_rect *r = &l->rect;
    int64_t rows = 0;
    if (!as_matrix(l->t, &rows, &l->cols))
        return tri_fail(err, TRI_ARG, "%s: tensor %s is not a matrix", file, l->t->name);
    if (r->row0 < 0 || r->rows < 0 || r->col0 < 0 || r->cols < 0 || r->row0 > rows ||
        r->rows > rows - r->row0 || r->col0 > l->cols || r->cols > l->cols - r->col0)
        return tri_fail(err, TRI_ARG,
                        "%s: tensor %s: rows %lld + %lld, columns %lld + %lld are outside of it",
                        file, l->t->name, (long long)r->row0, (long long)r->rows,
                        (long long)r->col0, (long long)r->cols);
    if (r->cols > MAX_ROW_VALUES)
        return tri_fail(err, TRI_LIMIT, "%s: tensor %s: rows of %lld values, at most %d", file,
                        l->t->name, (long long)r->cols, MAX_ROW_VALUES);
    return TRI_OK;
}

enum tri_status tri_load_rows(const struct tri_checkpoint *ckpt, const struct tri_rows *rows,
                              struct tri_error *err)
{
    enum tri_dtype dtype = rows->dtype;
    struct load l = { .ckpt = ckpt,
                      .rect = rows->rect,
                      .dtype = dtype,
                      .data = rows->data,
                      .scales = rows->scales,
                      .room = rows->room };
    TRI_ASSERT(dtype == TRI_DT_F32 || dtype == TRI_DT_BF16 || dtype == TRI_DT_I8G64 ||
               dtype == TRI_DT_I4G32);
    enum tri_status st = find(ckpt, rows->name, &l.t, err);
    if (!st)
        st = check_rect(&l, err);
    return st ? st : fill(&l, err);
}

enum tri_status tri_load_matrix(const struct tri_checkpoint *ckpt, const char *name,
                                struct tri_rect rect, enum tri_dtype dtype,
                                struct tri_budget *budget, enum tri_account account,
                                struct tri_matrix *out, struct tri_error *err)
{
    /* Checked before memory is taken: a rectangle that lies outside may be of any size. */
    struct load l = { .ckpt = ckpt, .rect = rect };
    enum tri_status st = find(ckpt, name, &l.t, err);
    if (!st)
        st = check_rect(&l, err);
    if (st)
        return st;
    uint64_t bytes = tri_matrix_bytes(dtype, rect.rows, rect.cols);
    void *memory = NULL;
    struct tri_error inner = { 0 };
    st = tri_budget_alloc(budget, account, bytes, &memory, &inner);
    if (st)
        return tri_fail(err, st, "tensor %s: %s", name, inner.text);
    struct tri_matrix m = tri_matrix_in(memory, dtype, rect.rows, rect.cols);
    const struct tri_rows rows = { name, rect, dtype, memory, (void *)(uintptr_t)m.scales, NULL };
    st = tri_load_rows(ckpt, &rows, err);
    if (st)
        tri_budget_free(budget, account, memory, bytes);
    else
        *out = m;
    return st;
}

enum tri_status tri_load_vector(const struct tri_checkpoint *ckpt, const char *name, int64_t first,
                                int64_t count, float *out, struct tri_error *err)
{
    const struct tri_tensor *t = NULL;
    enum tri_status st = find(ckpt, name, &t, err);
    if (st)
        return st;
    uint64_t value = tri_row_data_bytes(t->dtype, 1), total = t->bytes / value;
    if (first < 0 || count < 0 || (uint64_t)first > total ||
        (uint64_t)count > total - (uint64_t)first)
        return tri_fail(err, TRI_ARG, "%s: tensor %s has %llu values; %lld + %lld were asked for",
                        tri_checkpoint_file(ckpt, t->shard), name, (unsigned long long)total,
                        (long long)first, (long long)count);
    char raw[VECTOR_BLOCK];
    for (int64_t at = 0; at < count && !st;) {
        int64_t n = count - at, fit = (int64_t)(sizeof raw / value);
        n = n < fit ? n : fit;
        st = tri_checkpoint_read(ckpt, t, (uint64_t)(first + at) * value, raw, (uint64_t)n * value,
                                 err);
        if (!st)
            tri_row_decode(out + at, t->dtype, raw, NULL, n);
        at += n;
    }
    return st;
}
