/*
 * Jobs of the trunk carried out: read, converted and folded, each job by one thread. The few
 * tensors that are not used as stored (A_log, AttnRes weights, kv_b) are changed as their job's
 * last act.
 */
#include "model/model_trunk.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include "os/memory.h"

enum { TILES = 64 }; /* of a matrix turned in one piece */

/* One run over jobs: into the units' own blocks and the vectors, or one unit into a window. */
struct run {
    struct tri__trunk *t;
    int64_t first;
    char *window; /* NULL: own blocks; units without one are left out */
    bool packed;  /* matrices come from elsewhere: vectors only */
    const struct tri_progress *progress;
    uint64_t total_bytes;
    _Atomic uint64_t done_bytes;
    atomic_int failed; /* the first failed job's status; its thread wrote *err */
    struct tri_error *err;
};

/* The block that a job's matrix lies in, NULL when this run leaves the job out. */
static char *block_of(const struct run *r, const struct tri__job *j)
{
    if (j->unit < 0 || r->packed)
        return NULL;
    return r->window ? r->window : r->t->unit[j->unit].block;
}

/*
 * kv_b [H][nope + v][rank] becomes w_uk [H][rank][nope], so that the absorbed query is a plain
 * matrix product, and w_uv [H][v][rank]: row r of either as float32.
 */
static void kv_b_row(float *row, const struct tri_spec *s, const float *kv_b, bool uv, int64_t r)
{
    int64_t rank = s->kv_rank, unit = uv ? s->v_dim : rank;
    const float *head = kv_b + r / unit * (s->nope + s->v_dim) * rank;
    if (uv) {
        memcpy(row, head + (s->nope + r % unit) * rank, (size_t)rank * sizeof *row);
        return;
    }
    for (int64_t c = 0; c < s->nope; c++)
        row[c] = head[c * rank + r % unit];
}

static void encode_kv_b(const struct tri_matrix *out, const struct tri_spec *s, const float *kv_b,
                        bool uv, float *row)
{
    size_t data_bytes = tri_row_data_bytes(out->dtype, out->cols);
    size_t scale_bytes = tri_row_scale_bytes(out->dtype, out->cols);
    char *data = (char *)(uintptr_t)out->data, *scales = (char *)(uintptr_t)out->scales;
    for (int64_t r = 0; r < out->rows; r++) {
        kv_b_row(row, s, kv_b, uv, r);
        tri_row_encode(data + (size_t)r * data_bytes,
                       scales ? scales + (size_t)r * scale_bytes : NULL, out->dtype, row,
                       out->cols);
    }
}

static enum tri_status run_kv_b(const struct run *r, const struct tri__job *j, char *room,
                                struct tri_error *err)
{
    const struct tri__trunk *t = r->t;
    const struct tri_spec *s = &t->m->spec;
    int64_t widest = s->nope > s->kv_rank ? s->nope : s->kv_rank;
    float *kv_b = tri_malloc((size_t)(j->rect.rows * j->rect.cols) * sizeof *kv_b);
    float *row = tri_malloc((size_t)widest * sizeof *row);
    const struct tri_rows rows = { j->name, j->rect, TRI_DT_F32, kv_b, NULL, room };
    enum tri_status st = TRI_OK;
    if (!kv_b || !row)
        st = tri_fail(err, TRI_NOMEM, "no memory to load %s", j->name);
    if (!st)
        st = tri_load_rows(t->m->ckpt, &rows, err);
    if (!st) {
        char *block = block_of(r, j);
        struct tri_matrix *uk = j->matrix, *uv = j->matrix2;
        *uk = tri_matrix_in(block + j->at, uk->dtype, uk->rows, uk->cols);
        *uv = tri_matrix_in(block + j->at2, uv->dtype, uv->rows, uv->cols);
        encode_kv_b(uk, s, kv_b, false, row);
        encode_kv_b(uv, s, kv_b, true, row);
    }
    tri_free(kv_b);
    tri_free(row);
    return st;
}

/* Whether the products with this matrix want tiles. */
static bool wants_tiles(const struct tri__trunk *t, const struct tri__job *j)
{
    const struct tri_matrix *w = j->matrix;
    return t->m->act == TRI_ACT_INT8 && tri_kernels_tiles(t->m->kernels, w->dtype) &&
           j->kind == TRI__JOB_ROWS && tri_tile_fits(w->dtype, w->rows, w->cols);
}

/* Turns rows [row0, row1) into tiles, whole ones. */
static enum tri_status tile_rows(const struct tri_matrix *w, int64_t row0, int64_t row1)
{
    size_t data = tri_row_data_bytes(w->dtype, w->cols);
    size_t scales = tri_row_scale_bytes(w->dtype, w->cols);
    char *room = tri_malloc(tri_tile_room_bytes(w->dtype, w->cols));
    for (int64_t r = row0; r < row1 && room; r += TRI_TILE_ROWS)
        tri_tile_rows(w->dtype, (char *)(uintptr_t)w->data + (size_t)r * data,
                      (char *)(uintptr_t)w->scales + (size_t)r * scales, w->cols, room);
    tri_free(room);
    return room ? TRI_OK : TRI_NOMEM;
}

/* Rows [at2, at2 + rows) of the matrix, which are whole tiles if it is one of tiles. Its pointers
 * were set by run_jobs(). */
static enum tri_status run_rows(const struct run *r, const struct tri__job *j, char *room,
                                struct tri_error *err)
{
    const struct tri__trunk *t = r->t;
    const struct tri_matrix *m = j->matrix;
    char *data = (char *)(uintptr_t)m->data, *scales = (char *)(uintptr_t)m->scales;
    data += j->at2 * tri_row_data_bytes(m->dtype, m->cols);
    if (scales)
        scales += j->at2 * tri_row_scale_bytes(m->dtype, m->cols);
    const struct tri_rows rows = { j->name, j->rect, m->dtype, data, scales, room };
    enum tri_status st = tri_load_rows(t->m->ckpt, &rows, err);
    if (st || r->window || !wants_tiles(t, j))
        return st;
    if (tile_rows(m, (int64_t)j->at2, (int64_t)j->at2 + j->rect.rows))
        st = tri_fail(err, TRI_NOMEM, "no memory to load %s", j->name);
    return st;
}

static enum tri_status run_fold(const struct tri_model *m, const struct tri__job *j,
                                struct tri_error *err)
{
    float *w = tri_malloc((size_t)j->rect.rows * sizeof *w);
    if (!w)
        return tri_fail(err, TRI_NOMEM, "no memory to load %s", j->second);
    enum tri_status st = tri_load_vector(m->ckpt, j->name, 0, j->rect.rows, j->vector, err);
    if (!st)
        st = tri_load_vector(m->ckpt, j->second, 0, j->rect.rows, w, err);
    for (int64_t i = 0; i < j->rect.rows && !st; i++)
        j->vector[i] *= w[i];
    tri_free(w);
    return st;
}

static enum tri_status run_conv(const struct tri_model *m, const struct tri__job *j,
                                struct tri_error *err)
{
    int64_t taps = m->spec.conv_taps, channels = j->rect.rows / taps;
    float *w = tri_malloc((size_t)j->rect.rows * sizeof *w);
    if (!w)
        return tri_fail(err, TRI_NOMEM, "no memory to load %s", j->name);
    enum tri_status st = tri_load_vector(m->ckpt, j->name, j->rect.row0, j->rect.rows, w, err);
    for (int64_t i = 0; i < j->rect.rows && !st; i++)
        j->vector[i % taps * channels + i / taps] = w[i];
    tri_free(w);
    return st;
}

static enum tri_status run_vector(const struct tri_model *m, const struct tri__job *j,
                                  struct tri_error *err)
{
    enum tri_status st =
        tri_load_vector(m->ckpt, j->name, j->rect.row0, j->rect.rows, j->vector, err);
    for (int64_t i = 0; i < j->rect.rows && !st && j->kind == TRI__JOB_EXP; i++)
        j->vector[i] = expf(j->vector[i]);
    return st;
}

static bool wanted(const struct run *r, const struct tri__job *j)
{
    return j->unit < 0 ? r->window == NULL : block_of(r, j) != NULL;
}

static uint64_t disk_bytes(const struct run *r, const struct tri__job *j)
{
    const struct tri_tensor *tensor = tri_checkpoint_find(r->t->m->ckpt, j->name);
    if (!tensor || !wanted(r, j))
        return 0;
    return (uint64_t)(j->rect.rows * j->rect.cols) * tri_row_data_bytes(tensor->dtype, 1);
}

static enum tri_status run_job(const struct run *r, const struct tri__job *j, int thread,
                               struct tri_error *err)
{
    char *rooms = r->t->rooms, *room = rooms ? rooms + (size_t)thread * TRI_LOAD_ROOM_BYTES : NULL;
    if (!wanted(r, j))
        return TRI_OK;
    switch (j->kind) {
    case TRI__JOB_ROWS:
        return run_rows(r, j, room, err);
    case TRI__JOB_KV_B:
        return run_kv_b(r, j, room, err);
    case TRI__JOB_FOLD:
        return run_fold(r->t->m, j, err);
    case TRI__JOB_CONV:
        return run_conv(r->t->m, j, err);
    case TRI__JOB_VECTOR:
    case TRI__JOB_EXP:
        break;
    }
    return run_vector(r->t->m, j, err);
}

static void run_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    struct run *r = arg;
    for (int64_t i = r->first + begin; i < r->first + end && !atomic_load(&r->failed); i++) {
        const struct tri__job *j = &r->t->jobs[i];
        struct tri_error err = { 0 };
        enum tri_status st = run_job(r, j, thread, &err);
        uint64_t done = atomic_fetch_add(&r->done_bytes, disk_bytes(r, j));
        atomic_fetch_add(&r->t->pieces_done, 1);
        /* Only the caller's thread reports, so that ticks never come from two at once. */
        if (!st && thread == 0 && tri_tick(r->progress, "trunk", done, r->total_bytes))
            st = tri_fail(&err, TRI_CANCELLED, "loading was stopped");
        int none = TRI_OK;
        if (st && atomic_compare_exchange_strong(&r->failed, &none, st) && r->err &&
            r->err->status == TRI_OK)
            *r->err = err;
    }
}

static enum tri_status run_jobs(struct run *r, int64_t n, struct tri_pool *pool)
{
    for (int64_t i = r->first; i < r->first + n; i++) {
        const struct tri__job *j = &r->t->jobs[i];
        char *block = block_of(r, j);
        r->total_bytes += disk_bytes(r, j);
        /* Before threads fill parts of the same matrix: where it lies. */
        if (block && j->kind == TRI__JOB_ROWS)
            *j->matrix =
                tri_matrix_in(block + j->at, j->matrix->dtype, j->matrix->rows, j->matrix->cols);
    }
    tri_pool_for(pool, n, 1, run_piece, r);
    return (enum tri_status)r->failed;
}

/* A unit from the pack: its bytes are the block, only the matrices' places must be told. */
static enum tri_status load_packed(struct tri__trunk *t, int64_t unit, char *block,
                                   struct tri_pool *pool, struct tri_error *err)
{
    const struct tri__unit *u = &t->unit[unit];
    for (int64_t i = u->first_job; i < u->first_job + u->jobs; i++) {
        const struct tri__job *j = &t->jobs[i];
        struct tri_matrix *m = j->matrix, *m2 = j->matrix2;
        if (m)
            *m = tri_matrix_in(block + j->at, m->dtype, m->rows, m->cols);
        if (m2)
            *m2 = tri_matrix_in(block + j->at2, m2->dtype, m2->rows, m2->cols);
    }
    return tri__pack_read(&t->pack, unit, block, pool, err);
}

/* A matrix from a pack turned into tiles; items are tiles. */
struct tiling {
    const struct tri_matrix *w;
    atomic_int failed;
};

static void tile_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    struct tiling *l = arg;
    (void)thread;
    if (tile_rows(l->w, begin * TRI_TILE_ROWS, end * TRI_TILE_ROWS))
        atomic_store(&l->failed, 1);
}

/* What stays in RAM, but for w_uk and w_uv: their products take float32 activations. Rows from
 * shards were turned by their jobs. */
static enum tri_status tile_trunk(struct tri__trunk *t, struct tri_error *err)
{
    for (int64_t i = 0; i < t->n_jobs; i++) {
        struct tri__job *j = &t->jobs[i];
        struct tiling l = { .w = j->matrix };
        if (j->unit < 0 || !t->unit[j->unit].block || !wants_tiles(t, j) || j->matrix->tiled)
            continue;
        if (t->packed)
            tri_pool_for(t->m->pool, l.w->rows / TRI_TILE_ROWS, TILES, tile_piece, &l);
        if (l.failed)
            return tri_fail(err, TRI_NOMEM, "no memory to load %s", j->name);
        j->matrix->tiled = true;
    }
    return TRI_OK;
}

/*
 * Threads of their own while a trunk is loaded: those that wait for the drive leave the CPUs to
 * those that convert, and the drive has a queue.
 */
enum { MOST_WAITING = 16 };

/* The page cache gains from a copy of the trunk's files only where there is room for both. */
static bool room_for_files(const struct tri__trunk *t, uint64_t bytes)
{
    struct tri_memory_facts facts;
    struct tri_budget_report budget;
    tri_memory_read(&facts, "");
    tri_budget_read(t->m->budget, &budget);
    uint64_t room = tri_memory_room_bytes(&facts);
    return bytes <= room && budget.ceiling_bytes <= room - bytes;
}

enum tri_status tri__loader_open(struct tri__trunk *t, uint64_t bytes, struct tri_pool **out,
                                 struct tri_error *err)
{
    *out = NULL;
    if (bytes < TRI__LARGE_BYTES)
        return TRI_OK;
    int threads = tri_pool_threads(t->m->pool) + MOST_WAITING;
    threads = threads < TRI_POOL_MAX_THREADS ? threads : TRI_POOL_MAX_THREADS;
    enum tri_status st = tri_pool_open(out, threads, err);
    if (st)
        return st;
    void *rooms = NULL;
    t->rooms_bytes = (uint64_t)threads * TRI_LOAD_ROOM_BYTES;
    if (tri_budget_alloc(t->m->budget, TRI_MEM_SCRATCH, t->rooms_bytes, &rooms, NULL))
        rooms = NULL; /* every job takes its own, in small pages */
    t->rooms = rooms;
    if (t->windows || room_for_files(t, bytes))
        return st;
    t->read_once = true;
    tri_checkpoint_read_as(t->m->ckpt, TRI_READ_ONCE);
    return TRI_OK;
}

void tri__loader_close(struct tri__trunk *t, struct tri_pool *pool)
{
    if (t->read_once)
        tri_checkpoint_read_as(t->m->ckpt, TRI_READ_CACHED);
    t->read_once = false;
    tri_pool_close(pool);
    tri_budget_free(t->m->budget, TRI_MEM_SCRATCH, t->rooms, t->rooms_bytes);
    t->rooms = NULL;
}

static enum tri_status load_packs(struct tri__trunk *t, struct tri_pool *pool, uint64_t total,
                                  const struct tri_progress *progress, struct tri_error *err)
{
    enum tri_status st = TRI_OK;
    uint64_t done = 0;
    for (int64_t u = 0; u < t->n_units && !st; u++) {
        if (!t->unit[u].block)
            continue;
        st = load_packed(t, u, t->unit[u].block, pool, err);
        done += t->unit[u].bytes;
        if (!st && tri_tick(progress, "packed trunk", done, total))
            st = tri_fail(err, TRI_CANCELLED, "loading was stopped");
    }
    return st ? st : tile_trunk(t, err);
}

enum tri_status tri__trunk_load(struct tri__trunk *t, const struct tri_progress *progress,
                                struct tri_error *err)
{
    struct run r = { .t = t, .packed = t->packed, .progress = progress, .err = err };
    struct tri_pool *own = NULL;
    uint64_t bytes = 0, packed = 0;
    for (int64_t i = 0; i < t->n_jobs; i++)
        bytes += disk_bytes(&r, &t->jobs[i]);
    for (int64_t u = 0; u < t->n_units && t->packed; u++)
        packed += t->unit[u].block ? t->unit[u].bytes : 0;
    enum tri_status st = tri__loader_open(t, bytes + packed, &own, err);
    struct tri_pool *pool = own ? own : t->m->pool;
    if (!st)
        st = run_jobs(&r, t->n_jobs, pool);
    if (!st && t->packed)
        st = load_packs(t, pool, packed, progress, err);
    tri__loader_close(t, own);
    return st ? st : tile_trunk(t, err);
}

enum tri_status tri__trunk_load_unit(struct tri__trunk *t, int32_t unit, char *window,
                                     struct tri_pool *pool, struct tri_error *err)
{
    if (t->packed)
        return load_packed(t, unit, window, pool, err);
    struct run r = { .t = t, .first = t->unit[unit].first_job, .window = window, .err = err };
    return run_jobs(&r, t->unit[unit].jobs, pool);
}
