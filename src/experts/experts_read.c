/*
 * From the drive to a slot. A record that lies in one piece is one read, from the block it begins
 * in to the block it ends in; a scattered one is up to six, each with its own blocks in the slot.
 */
#include "experts/experts_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"

/* A read's tag: its slot, and above that its drive. */
enum { DRIVE_SHIFT = 32 };

/* Opened on first use; a file system without O_DIRECT gets the page cache instead. */
static enum tri_status file_of(struct tri_experts *s, int32_t shard, int *fd, struct tri_error *err)
{
    const char *path = tri_checkpoint_file(s->ckpt, shard);
    if (s->fd[shard] < 0 && s->direct)
        s->fd[shard] = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (s->fd[shard] < 0)
        s->fd[shard] = open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd[shard] < 0)
        return tri_fail_errno(err, TRI_IO, errno, "%s", path);
    *fd = s->fd[shard];
    return TRI_OK;
}

void tri__experts_close_files(struct tri_experts *s)
{
    for (int32_t i = 0; s->fd && i < s->shards; i++)
        if (s->fd[i] >= 0)
            close(s->fd[i]);
}

enum tri_status tri__experts_find_drives(struct tri_experts *s, struct tri_error *err)
{
    s->on = tri_malloc((size_t)s->shards * sizeof *s->on);
    if (!s->on)
        return tri_fail(err, TRI_NOMEM, "no memory for the expert store");
    for (int32_t i = 0; i < s->shards; i++) {
        const char *path = tri_checkpoint_file(s->ckpt, i);
        struct stat sb;
        if (stat(path, &sb))
            return tri_fail_errno(err, TRI_IO, errno, "%s", path);
        int d = 0;
        while (d < s->drives && s->drive[d].device != (uint64_t)sb.st_dev)
            d++;
        if (d == TRI_EXPERTS_MAX_DRIVES)
            d = 0; /* links can lead anywhere: counted with the first */
        if (d == s->drives) {
            s->drive[s->drives++].device = (uint64_t)sb.st_dev;
            s->stats.drive[d].file = path;
        }
        s->on[i] = (int8_t)d;
    }
    s->stats.drives = s->drives;
    return TRI_OK;
}

bool tri__experts_can_read(const struct tri_experts *s, int64_t record)
{
    int32_t shard = s->record[record].shard;
    if (shard < 0)
        return tri_aio_in_flight(s->aio) + TRI__PARTS <= tri_aio_depth(s->aio);
    return s->drive[s->on[shard]].in_flight < s->depth &&
           tri_aio_in_flight(s->aio) < tri_aio_depth(s->aio);
}

/* Starts one read of [offset, offset + bytes) to `at` in the slot; tells where its first byte will
 * be and how much room was used. */
static enum tri_status start_piece(struct tri_experts *s, const struct tri_extent *x, int64_t slot,
                                   uint64_t at, uint64_t *begins, uint64_t *used,
                                   struct tri_error *err)
{
    uint64_t block = s->direct ? TRI__BLOCK : 1, skip = x->offset_bytes % block;
    uint64_t need = skip + x->bytes, span = (need + block - 1) / block * block;
    struct tri_aio_read read = { .dst = s->slots_base + (uint64_t)slot * s->slot_bytes + at,
                                 .offset_bytes = x->offset_bytes - skip,
                                 .bytes = span,
                                 .need_bytes = need,
                                 .tag = (uint64_t)slot | (uint64_t)s->on[x->shard] << DRIVE_SHIFT };
    struct tri__drive *drive = &s->drive[s->on[x->shard]];
    TRI_ASSERT(at + span <= s->slot_bytes);
    enum tri_status st = file_of(s, x->shard, &read.fd, err);
    uint64_t begin = tri_clock_ns();
    if (!st)
        st = tri_aio_submit(s->aio, &read, err);
    if (st)
        return st;
    uint64_t now = tri_clock_ns();
    s->stats.wait_ns += now - begin; /* a system may do a part, or all, of a read right here */
    s->busy_since_ns = s->busy_since_ns ? s->busy_since_ns : begin;
    drive->busy_since_ns = drive->busy_since_ns ? drive->busy_since_ns : begin;
    drive->in_flight++;
    s->slot[slot].reads_left++;
    *begins = at + skip;
    *used = at + span;
    return TRI_OK;
}

static enum tri_status start_whole(struct tri_experts *s, const struct tri__record *r, int64_t slot,
                                   struct tri_error *err)
{
    struct tri_extent x = { r->shard, r->offset_bytes, s->record_bytes };
    uint64_t begins = 0, used = 0;
    enum tri_status st = start_piece(s, &x, slot, 0, &begins, &used, err);
    for (int i = 0; i < TRI__PARTS && !st; i++) {
        s->slot[slot].part_at[i] = begins;
        begins += s->part_bytes[i];
    }
    return st;
}

static enum tri_status start_parts(struct tri_experts *s, int64_t record, int64_t slot,
                                   struct tri_error *err)
{
    struct tri_expert_extent x;
    uint64_t at = 0;
    enum tri_status st = tri_checkpoint_expert(s->ckpt, s->layer_of_row[record / s->experts],
                                               s->first_expert + record % s->experts, &x, err);
    for (int i = 0; i < TRI__PARTS && !st; i++)
        if (x.part[i].bytes)
            st = start_piece(s, &x.part[i], slot, at, &s->slot[slot].part_at[i], &at, err);
    return st;
}

enum tri_status tri__experts_start_read(struct tri_experts *s, int64_t record, int64_t slot,
                                        struct tri_error *err)
{
    struct tri__record *r = &s->record[record];
    struct tri__slot *at = &s->slot[slot];
    *at = (struct tri__slot){ .record = record, .state = TRI__READING };
    r->slot = (int32_t)slot;
    enum tri_status st =
        r->shard >= 0 ? start_whole(s, r, slot, err) : start_parts(s, record, slot, err);
    if (st && at->reads_left == 0) { /* else its reads come back first */
        at->state = TRI__FREE;
        r->slot = -1;
        s->free_slot[s->n_free++] = (int32_t)slot;
    }
    return st;
}

static enum tri_status read_failed(struct tri_experts *s, int64_t record,
                                   const struct tri_aio_done *done, struct tri_error *err)
{
    long long layer = s->layer_of_row[record / s->experts];
    long long expert = s->first_expert + record % s->experts;
    struct tri_expert_extent x;
    struct tri_error ignored = { 0 };
    if (tri_checkpoint_expert(s->ckpt, layer, expert, &x, &ignored))
        return tri_fail(err, TRI_IO, "layer %lld, expert %lld: read failed", layer, expert);
    const char *file = tri_checkpoint_file(s->ckpt, x.part[0].shard);
    if (done->short_file)
        return tri_fail(err, TRI_IO,
                        "%s: layer %lld, expert %lld at byte %" PRIu64
                        ": the file ends before it; was it cut or replaced?",
                        file, layer, expert, x.part[0].offset_bytes);
    return tri_fail_errno(err, TRI_IO, done->sys_errno,
                          "%s: layer %lld, expert %lld at byte %" PRIu64, file, layer, expert,
                          x.part[0].offset_bytes);
}

static void count_arrival(struct tri_experts *s, const struct tri_aio_done *done)
{
    struct tri__drive *drive = &s->drive[done->tag >> DRIVE_SHIFT];
    struct tri_drive_stats *stats = &s->stats.drive[done->tag >> DRIVE_SHIFT];
    s->stats.read_bytes += done->bytes;
    stats->read_bytes += done->bytes;
    stats->reads++;
    if (--drive->in_flight == 0) {
        stats->busy_ns += tri_clock_ns() - drive->busy_since_ns;
        drive->busy_since_ns = 0;
    }
}

/* One read of a slot came back, well or badly. */
static enum tri_status arrive(struct tri_experts *s, const struct tri_aio_done *done,
                              struct tri_error *err)
{
    int32_t at = (int32_t)(done->tag & UINT32_MAX);
    struct tri__slot *slot = &s->slot[at];
    struct tri__record *r = &s->record[slot->record];
    enum tri_status st = TRI_OK;
    count_arrival(s, done);
    slot->reads_left--;
    if (done->sys_errno && r->slot == at) { /* else it was given up before */
        /* One that was only expected is nobody's error: who wants it reads it again. */
        if (!slot->ahead)
            st = read_failed(s, slot->record, done, err);
        r->slot = -1; /* whatever else arrives for it, the record is not there */
    }
    if (slot->reads_left > 0)
        return st;
    if (r->slot != at) {
        slot->state = TRI__FREE;
        slot->pinned = slot->ahead = false;
        s->free_slot[s->n_free++] = at;
        return st;
    }
    slot->state = TRI__READY;
    int64_t expert = slot->record % s->experts;
    if (s->round.ids && slot->record / s->experts == s->round.row && s->round.index_of[expert] >= 0)
        s->round.resident[s->round.n_resident++] = s->round.index_of[expert];
    else
        slot->pinned = false;
    return st;
}

enum tri_status tri__experts_collect(struct tri_experts *s, int timeout_ms, struct tri_error *err)
{
    struct tri_aio_done done[32];
    int n = 0;
    uint64_t begin = timeout_ms ? tri_clock_ns() : 0;
    enum tri_status st = tri_aio_wait(s->aio, done, 32, timeout_ms, &n, err);
    for (int i = 0; i < n; i++) {
        enum tri_status one = arrive(s, &done[i], err);
        st = st ? st : one;
    }
    uint64_t end = tri_clock_ns();
    if (timeout_ms)
        s->stats.wait_ns += end - begin;
    if (s->busy_since_ns && tri_aio_in_flight(s->aio) == 0) {
        s->stats.reading_ns += end - s->busy_since_ns;
        s->busy_since_ns = 0;
    }
    return st;
}
