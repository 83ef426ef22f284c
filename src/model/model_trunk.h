/*
 * Inside of the model room: the trunk as a list of jobs, grouped in units that are loaded together.
 * A unit is a layer, the head, or the embedding table. Vectors are small and always in RAM;
 * matrices of a unit lie back to back in one block, which is the unit's own or, when the trunk does
 * not fit, a window that units share in turn.
 */
#ifndef TRI_MODEL_TRUNK_H
#define TRI_MODEL_TRUNK_H

#include <stdatomic.h>
#include "model/model_priv.h"

enum tri__job_kind {
    TRI__JOB_ROWS, /* rows of a matrix in the trunk format */
    TRI__JOB_KV_B, /* split into w_uk (transposed per head) and w_uv */
    TRI__JOB_VECTOR,
    TRI__JOB_EXP,  /* a vector, exponentiated: A_log */
    TRI__JOB_CONV, /* a vector [channels][taps], turned to [taps][channels] */
    TRI__JOB_FOLD  /* norm weight times projection weight: name and `second` */
};

struct tri__job {
    enum tri__job_kind kind;
    int32_t unit; /* -1: vectors */
    char name[160], second[160];
    struct tri_rect rect; /* vectors: row0 and rows */
    bool small;           /* kept as stored: too small or too sensitive to quantise */
    struct tri_matrix *matrix, *matrix2; /* KV_B: w_uk and w_uv */
    uint64_t at, at2;                    /* where they begin in the unit's block */
    float *vector;
};

/* Less is loaded in no time: not worth threads of its own. */
enum { TRI__LARGE_BYTES = 64 << 20 };

/* A matrix is cut into jobs of about so many bytes on disk, so that threads share large ones. */
enum { TRI__JOB_BYTES = 8 << 20 };

struct tri__unit {
    int64_t first_job, jobs;
    uint64_t bytes;      /* of its block in the chosen formats */
    uint64_t disk_bytes; /* read when it is loaded */
    char *block;         /* its own memory; NULL: it is brought to a window */
};

struct tri__window {
    char *memory;
    int32_t unit; /* loaded or being loaded; -1: none */
    bool ready;
};

/* A block of vectors: few large allocations instead of thousands of small ones. */
struct tri__block {
    struct tri__block *next;
    uint64_t bytes, used;
    char *data;
};

/* A folder that holds units' blocks ready for RAM (model_pack.c). */
struct tri__pack {
    struct tri__trunk *t;
    char folder[4000];
};

struct tri__trunk {
    struct tri_model *m;
    enum tri_trunk format; /* decided: never AUTO or STREAM */
    struct tri__job *jobs;
    int64_t n_jobs, cap_jobs;
    struct tri__unit *unit; /* layers, then head, then embed */
    int64_t n_units;
    int32_t unit_now; /* that new jobs belong to */
    struct tri__block *blocks;
    enum tri_status status; /* of building the list */
    struct tri_error *err;

    /* Streaming: units without a block, brought in the order a step uses them. */
    struct tri__window window[2];
    int windows;
    uint64_t window_bytes, streamed_bytes; /* of one window; streamed in one step */
    struct tri__stream *stream;            /* NULL when everything is resident */
    struct tri__rows *rows;                /* of the embedding table, then */
    int timeout_ms;                        /* of a silent drive, then */
    _Atomic uint64_t pieces_done; /* read by any thread; only that it goes on is of interest */
    struct tri__pack pack;
    bool packed; /* units come from the pack instead of from the shards */
    /* Matrices lie at the same place within a block as in their file, so that direct reads need no
     * copy. Only for what is kept or streamed as stored. */
    bool in_place;
    bool read_once; /* while loading, like rooms: see tri__loader_open */
    char *rooms;    /* TRI_LOAD_ROOM_BYTES a thread of its pool */
    uint64_t rooms_bytes;
};

/* model_jobs.c */
void tri__trunk_list(struct tri__trunk *t);
enum tri_dtype tri__job_dtype(const struct tri__trunk *t, const struct tri__job *j);
/* Places every matrix in its unit's block and sums units[].bytes, for t->format. */
void tri__trunk_place(struct tri__trunk *t);

/*
 * model_load.c. A pool for loading or packing so many bytes, with threads to wait for the drive, or
 * *out NULL where the model's own will do; from then until close what is read will not be read
 * again, so that it need not displace other things from the page cache unless there is room.
 */
TRI_MUST_CHECK enum tri_status tri__loader_open(struct tri__trunk *t, uint64_t bytes,
                                                struct tri_pool **out, struct tri_error *err);
void tri__loader_close(struct tri__trunk *t, struct tri_pool *pool);

/* model_load.c: everything that is to stay in RAM; or one unit's matrices to a window. */
TRI_MUST_CHECK enum tri_status
tri__trunk_load(struct tri__trunk *t, const struct tri_progress *progress, struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri__trunk_load_unit(struct tri__trunk *t, int32_t unit,
                                                    char *window, struct tri_pool *pool,
                                                    struct tri_error *err);

/* model_pack.c. find: a whole pack of this model in t->format. read: one unit, checked. */
bool tri__pack_find(struct tri__pack *p, struct tri__trunk *t, const char *model,
                    const struct tri_notes *notes);
TRI_MUST_CHECK enum tri_status tri__pack_read(const struct tri__pack *p, int64_t unit, char *block,
                                              struct tri_pool *pool, struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri__pack_write(struct tri__trunk *t, const char *model,
                                               const struct tri_progress *progress,
                                               struct tri_pack_report *report,
                                               struct tri_error *err);

/* Faults of a pack in t->format go to the report; a failure is one of checking itself. */
bool tri__pack_exists(const char *model, enum tri_trunk format);
TRI_MUST_CHECK enum tri_status tri__pack_check(struct tri__trunk *t, const char *model,
                                               const struct tri_progress *progress,
                                               struct tri_packs_report *to, struct tri_error *err);

/* model_stream.c: the thread that brings units to the windows. */
TRI_MUST_CHECK enum tri_status tri__stream_open(struct tri__trunk *t, struct tri_error *err);
/* False: the drive still owes a read, and a thread that uses all of the model waits for it. */
bool tri__stream_close(struct tri__trunk *t);

/* model_embed.c: reads rows of the embedding table, for tri__rows_read. */
TRI_MUST_CHECK enum tri_status tri__rows_open(struct tri__rows **out, const struct tri_model *m,
                                              enum tri_aio_engine engine, int timeout_ms,
                                              struct tri_error *err);
void tri__rows_close(struct tri__rows *rows);

#endif
