/* Inside of the store: records (what is on disk), slots (what is in RAM), the round, the policy. */
#ifndef TRI_EXPERTS_PRIV_H
#define TRI_EXPERTS_PRIV_H

#include "experts/experts.h"

enum { TRI__PARTS = 6, TRI__BLOCK = 4096 };

/* One expert on disk. 82,432 of them for K3: kept small. */
struct tri__record {
    uint64_t offset_bytes;
    int32_t shard; /* -1: scattered, its extents are looked up when it is read */
    int32_t slot;  /* -1: not in RAM */
    float heat;    /* decayed uses at `heat_step` */
    uint32_t heat_step;
    uint64_t last_round;
};

enum tri__slot_state { TRI__FREE, TRI__READING, TRI__READY };

struct tri__slot {
    int64_t record;
    enum tri__slot_state state;
    bool pinned;                  /* wanted by the round, or handed out */
    bool ahead;                   /* read because it was expected, not used yet */
    int reads_left;               /* while READING */
    uint64_t part_at[TRI__PARTS]; /* where each part begins, from the slot's first byte */
};

struct tri__round {
    const int32_t *ids; /* NULL between rounds */
    int64_t n, given;
    int64_t layer, row; /* model layer; its row in the record table */
    int32_t *resident;  /* [experts] indices into ids that can be handed out */
    int64_t n_resident;
    int32_t *missing; /* [experts] indices not yet asked of the drive, from `next_missing` */
    int64_t n_missing, next_missing;
    int32_t *leased; /* [experts] slots handed out by the last call */
    int64_t n_leased;
    int32_t *index_of; /* [experts] expert - first_expert -> index into ids, -1: not wanted */
};

/* How many records of a kind there were when their layer's turn came, and how many it wanted. */
enum { TRI__AGES = 16, TRI__HEATS = 12 };
struct tri__cell {
    float seen, wanted;
};

/* What the next round probably wants; see tri_experts_expect. */
struct tri__expected {
    int64_t row, n, next; /* next: not asked of a drive yet */
    int32_t id[TRI_EXPERTS_MAX_AHEAD];
};

/* Reads in flight on one drive: kept to `depth` each, so that a slow one does not starve others. */
struct tri__drive {
    uint64_t device;
    int in_flight;
    uint64_t busy_since_ns; /* a read is in flight since; 0: none */
};

struct tri_experts {
    const struct tri_checkpoint *ckpt;
    struct tri_budget *budget;
    struct tri_aio *aio;
    int64_t first_expert, experts, width, inter;
    int64_t rows; /* MoE layers held */
    int64_t row_of_layer[TRI_SPEC_MAX_LAYERS];
    int64_t *layer_of_row;
    struct tri__record *record; /* [rows][experts] */

    enum tri_dtype dtype;
    uint64_t part_bytes[TRI__PARTS];
    uint64_t record_bytes, slot_bytes;
    bool any_scattered, direct, all_resident, tiled; /* tiled: all views are */
    int timeout_ms;
    int *fd;    /* per shard, -1 until used */
    int8_t *on; /* per shard: its drive; -1 until used */
    int32_t shards;
    struct tri__drive drive[TRI_EXPERTS_MAX_DRIVES];
    int drives, depth; /* depth: of each drive */

    char *slots_base;
    uint64_t slots_bytes;
    struct tri__slot *slot;
    int64_t n_slots;
    int32_t *free_slot; /* stack */
    int64_t n_free;

    struct tri__round round;
    struct tri__expected expected;
    enum tri_expert_policy policy;
    uint32_t step; /* tokens, or chunks: counted when the layers start over */
    uint64_t round_no;
    float decay[256];                              /* heat left after so many steps */
    struct tri__cell cell[TRI__AGES * TRI__HEATS]; /* by turns since the last use, and heat */
    double turns_to_wait[TRI__AGES * TRI__HEATS];
    struct tri_experts_stats stats;
    uint64_t busy_since_ns; /* a read is in flight since; 0: none */
    char keep_folder[4000]; /* <model>/.trireme */
    int keep_lock;          /* held for writing; -1: nothing is kept */
    struct tri_notes keep_notes;
};

/* experts_policy.c */
void tri__policy_init(struct tri_experts *s);
/* Before the round's records are touched: what became of the chances given to them. */
void tri__policy_learn(struct tri_experts *s, int64_t row, const int32_t *ids, int64_t n);
/* Notes that the round wants this record. */
void tri__policy_touch(struct tri_experts *s, struct tri__record *r);
/* Decayed uses as of now. */
float tri__policy_heat(const struct tri_experts *s, const struct tri__record *r);
/* The slot to give up, or -1 when all are pinned or being read. */
int64_t tri__policy_victim(const struct tri_experts *s);

/* experts_keep.c: statistics of earlier runs, and for later ones. */
void tri__keep_open(struct tri_experts *s, const char *folder, const struct tri_notes *notes);
void tri__keep_close(struct tri_experts *s);

/* experts_read.c: starts reading a record into a slot; collects what has arrived. */
TRI_MUST_CHECK enum tri_status tri__experts_start_read(struct tri_experts *s, int64_t record,
                                                       int64_t slot, struct tri_error *err);
/* Room for one more record's reads in the queue and on its drive. */
bool tri__experts_can_read(const struct tri_experts *s, int64_t record);
/* Which drive each shard is on, and the queue's depth for all of them. */
TRI_MUST_CHECK enum tri_status tri__experts_find_drives(struct tri_experts *s,
                                                        struct tri_error *err);
/*
 * Waits for arrivals (timeout_ms 0: only looks). Slots whose last read came become READY and those
 * that the round wants are put on its resident list. A failed read is told after its slot is free.
 */
TRI_MUST_CHECK enum tri_status tri__experts_collect(struct tri_experts *s, int timeout_ms,
                                                    struct tri_error *err);
void tri__experts_close_files(struct tri_experts *s);

#endif
