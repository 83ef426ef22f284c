/*
 * An open checkpoint: the files checked against the model, tensors found, bytes read. The files
 * themselves are in shards.c, the comparison in compare.c, conversion in load.c.
 */
#include "weights/weights_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "os/direct.h"

/* What opening has seen: kinds of differences are told once each, with a count and one example. */
struct verdict {
    const struct tri_checkpoint *c;
    const struct tri_notes *notes;
    struct tri_error *err;
    enum tri_status st;
    uint64_t extra, vision, dtype;
    char extra_name[TRI__WEIGHTS_SHOWN_BYTES], vision_name[TRI__WEIGHTS_SHOWN_BYTES];
    char dtype_name[TRI__WEIGHTS_SHOWN_BYTES], dtype_why[64];
};

static int judge(void *arg, enum tri__weights_difference kind,
                 const struct tri_tensor_spec *expected, const struct tri_tensor *found,
                 const char *why)
{
    struct verdict *v = arg;
    bool vision =
        expected && (expected->part == TRI_PART_VISION || expected->part == TRI_PART_PROJECTOR);
    if (kind == TRI__WEIGHTS_EXTRA) {
        if (v->extra++ == 0)
            tri__weights_shown(v->extra_name, found->name);
    } else if (vision) {
        if (v->vision++ == 0)
            tri__weights_shown(v->vision_name, expected->name);
    } else if (kind == TRI__WEIGHTS_DTYPE) {
        if (v->dtype++ == 0) {
            tri__weights_shown(v->dtype_name, expected->name);
            snprintf(v->dtype_why, sizeof v->dtype_why, "%s", why);
        }
    } else if (kind == TRI__WEIGHTS_MISSING) {
        v->st = tri_fail(v->err, TRI_FORMAT, "%s: tensor %s is missing from the checkpoint",
                         v->c->folder, expected->name);
    } else {
        v->st = tri_fail(v->err, TRI_FORMAT, "%s: tensor %s: %s",
                         tri_checkpoint_file(v->c, found->shard), expected->name, why);
    }
    return v->st != TRI_OK;
}

static void tell(const struct verdict *v)
{
    if (v->dtype)
        tri_note(v->notes, "%s: %llu tensors differ in dtype but can be read: %s is %s",
                 v->c->folder, (unsigned long long)v->dtype, v->dtype_name, v->dtype_why);
    if (v->vision)
        tri_note(v->notes, "%s: %llu vision tensors are absent or differ (not run): %s",
                 v->c->folder, (unsigned long long)v->vision, v->vision_name);
    if (v->extra)
        tri_note(v->notes, "%s: %llu tensors are not part of the model and are ignored: %s",
                 v->c->folder, (unsigned long long)v->extra, v->extra_name);
}

enum tri_status tri_checkpoint_open(struct tri_checkpoint **out, const char *folder,
                                    const struct tri_spec *spec, int threads,
                                    const struct tri_notes *notes, struct tri_error *err)
{
    return tri_checkpoint_open_spread(out, folder, NULL, spec, threads, notes, err);
}

enum tri_status tri_checkpoint_open_spread(struct tri_checkpoint **out, const char *folder,
                                           const struct tri_folders *more,
                                           const struct tri_spec *spec, int threads,
                                           const struct tri_notes *notes, struct tri_error *err)
{
    struct tri_checkpoint *c = NULL;
    enum tri_status st = tri__weights_open_files(&c, folder, more, threads, notes, err);
    if (st)
        return st;
    struct verdict v = { .c = c, .notes = notes, .err = err };
    const struct tri__weights_sink sink = { judge, &v };
    st = tri__weights_compare(&c->table, spec, &c->experts_packed, &sink, err);
    if (!st)
        st = v.st;
    if (st) {
        tri_checkpoint_close(c);
        return st;
    }
    tell(&v);
    *out = c;
    return TRI_OK;
}

void tri_checkpoint_close(struct tri_checkpoint *ckpt)
{
    if (!ckpt)
        return;
    for (size_t i = 0; i < ckpt->shard_count; i++) {
        if (ckpt->shards[i].fd >= 0)
            close(ckpt->shards[i].fd);
        if (ckpt->shards[i].direct_fd >= 0)
            close(ckpt->shards[i].direct_fd);
        tri__weights_header_fini(&ckpt->shards[i].header);
        tri_free(ckpt->shards[i].path);
    }
    tri__weights_table_fini(&ckpt->table);
    tri_free(ckpt->shards);
    tri__weights_folders_fini(ckpt);
    tri_free(ckpt);
}

void tri_checkpoint_read_as(struct tri_checkpoint *ckpt, enum tri_reading how)
{
    ckpt->reading = how;
    for (size_t i = 0; i < ckpt->shard_count; i++) {
        struct tri__weights_shard *s = &ckpt->shards[i];
        /* What is left to the page cache then is small and far apart: no use reading ahead. */
        (void)posix_fadvise(s->fd, 0, 0,
                            how == TRI_READ_CACHED ? POSIX_FADV_NORMAL : POSIX_FADV_RANDOM);
        if (s->direct_fd < 0 && how != TRI_READ_CACHED)
            s->direct_fd = tri_direct_open(s->path);
    }
}

void tri_checkpoint_convert_with(struct tri_checkpoint *ckpt, const struct tri_kernels *kernels)
{
    ckpt->kernels = kernels;
}

const char *tri_checkpoint_file(const struct tri_checkpoint *ckpt, int32_t shard)
{
    TRI_ASSERT(shard >= 0 && (size_t)shard < ckpt->shard_count);
    return ckpt->shards[shard].path;
}

uint64_t tri_checkpoint_memory_bytes(const struct tri_checkpoint *ckpt)
{
    const struct tri__weights_table *t = &ckpt->table;
    uint64_t sum = t->count * sizeof *t->tensors + (t->slot_mask + 1) * sizeof *t->slots;
    for (size_t i = 0; i < t->count; i++) /* names were cut: the prefix is still there */
        sum += strlen(t->tensors[i].name) + sizeof "language_model.";
    return sum;
}

uint64_t tri_checkpoint_bytes(const struct tri_checkpoint *ckpt)
{
    return ckpt->payload_bytes;
}

bool tri_checkpoint_packed(const struct tri_checkpoint *ckpt)
{
    return ckpt->experts_packed;
}

const struct tri_tensor *tri_checkpoint_find(const struct tri_checkpoint *ckpt, const char *name)
{
    return tri__weights_table_find(&ckpt->table, name);
}

/* Where bytes lie: a shard and a place in it. */
struct place {
    const struct tri__weights_shard *shard;
    uint64_t offset_bytes, bytes;
};

/* What a direct read came to. One that cannot be had (-EINVAL: this file system has blocks of
 * another kind, or none) does not come here. */
static enum tri_status judge_direct(const struct place *p, int64_t got, struct tri_error *err)
{
    if (got < 0)
        return tri_fail_errno(err, TRI_IO, (int)-got, "%s: reading at byte %llu", p->shard->path,
                              (unsigned long long)p->offset_bytes);
    if ((uint64_t)got < p->bytes)
        return tri_fail(err, TRI_IO, "%s: ends at byte %llu, before what its header promises",
                        p->shard->path, (unsigned long long)(p->offset_bytes + (uint64_t)got));
    return TRI_OK;
}

static enum tri_status read_place(const struct place *p, bool direct, void *dst,
                                  struct tri_error *err)
{
    int fd = direct ? p->shard->direct_fd : -1;
    int64_t got = fd < 0 ? -EINVAL : tri_direct_read(fd, p->offset_bytes, dst, p->bytes);
    if (got == -EINVAL)
        return tri__weights_pread(p->shard->fd, p->shard->path, p->offset_bytes, dst, p->bytes,
                                  err);
    return judge_direct(p, got, err);
}

/* Whole blocks around it, so that nothing is copied. */
static enum tri_status read_place_blocks(const struct place *p, bool direct, char *room, char **at,
                                         struct tri_error *err)
{
    enum { BLOCK = TRI_DIRECT_BLOCK_BYTES };
    uint64_t skip = p->offset_bytes % BLOCK, span = (skip + p->bytes + BLOCK - 1) / BLOCK * BLOCK;
    int fd = direct ? p->shard->direct_fd : -1;
    int64_t got = fd < 0 ? -EINVAL : tri_direct_read(fd, p->offset_bytes - skip, room, span);
    *at = room;
    if (got == -EINVAL)
        return tri__weights_pread(p->shard->fd, p->shard->path, p->offset_bytes, room, p->bytes,
                                  err);
    *at = room + skip;
    return judge_direct(p, got < (int64_t)skip ? (got < 0 ? got : 0) : got - (int64_t)skip, err);
}

enum tri_status tri_checkpoint_read_at(const struct tri_checkpoint *ckpt, int32_t shard,
                                       uint64_t offset_bytes, void *dst, uint64_t bytes,
                                       struct tri_error *err)
{
    TRI_ASSERT(shard >= 0 && (size_t)shard < ckpt->shard_count);
    const struct tri__weights_shard *s = &ckpt->shards[shard];
    if (offset_bytes > s->file_bytes || bytes > s->file_bytes - offset_bytes)
        return tri_fail(err, TRI_ARG, "%s: bytes %llu + %llu are past its end", s->path,
                        (unsigned long long)offset_bytes, (unsigned long long)bytes);
    const struct place p = { s, offset_bytes, bytes };
    return read_place(&p, ckpt->reading == TRI_READ_DIRECT, dst, err);
}

/* Below this a read is too small to be worth asking where it lies. */
static const uint64_t ONCE_FROM_BYTES = 256 << 10;

bool tri__weights_past_cache(const struct tri_checkpoint *ckpt, const struct tri_tensor *tensor,
                             uint64_t from, uint64_t bytes)
{
    const struct tri__weights_shard *s = &ckpt->shards[tensor->shard];
    if (ckpt->reading != TRI_READ_ONCE || bytes < ONCE_FROM_BYTES)
        return ckpt->reading == TRI_READ_DIRECT;
    return !tri_file_cached(s->fd, tensor->offset_bytes + from, bytes);
}

/* Puts the tensor's name behind what went wrong. */
static enum tri_status name_tensor(const struct tri_tensor *t, enum tri_status st,
                                   const struct tri_error *inner, struct tri_error *err)
{
    if (st && err && !err->status) {
        tri_fail(err, st, "%s (tensor %.160s)", inner->text, t->name);
        err->sys_errno = inner->sys_errno;
    }
    return st;
}

enum tri_status tri__weights_read(const struct tri_checkpoint *ckpt,
                                  const struct tri__weights_piece *piece, void *dst,
                                  struct tri_error *err)
{
    struct tri_error inner = { 0 };
    const struct tri_tensor *t = piece->tensor;
    const struct place p = { &ckpt->shards[t->shard], t->offset_bytes + piece->from, piece->bytes };
    return name_tensor(t, read_place(&p, piece->direct, dst, &inner), &inner, err);
}

enum tri_status tri__weights_read_blocks(const struct tri_checkpoint *ckpt,
                                         const struct tri__weights_piece *piece, char *room,
                                         char **at, struct tri_error *err)
{
    struct tri_error inner = { 0 };
    const struct tri_tensor *t = piece->tensor;
    const struct place p = { &ckpt->shards[t->shard], t->offset_bytes + piece->from, piece->bytes };
    return name_tensor(t, read_place_blocks(&p, piece->direct, room, at, &inner), &inner, err);
}

enum tri_status tri_checkpoint_read(const struct tri_checkpoint *ckpt,
                                    const struct tri_tensor *tensor, uint64_t from, void *dst,
                                    uint64_t bytes, struct tri_error *err)
{
    const char *path = tri_checkpoint_file(ckpt, tensor->shard);
    if (from > tensor->bytes || bytes > tensor->bytes - from)
        return tri_fail(err, TRI_ARG, "%s: tensor %s: bytes %llu + %llu are past its end", path,
                        tensor->name, (unsigned long long)from, (unsigned long long)bytes);
    const struct tri__weights_piece piece = { tensor, from, bytes,
                                              ckpt->reading == TRI_READ_DIRECT };
    return tri__weights_read(ckpt, &piece, dst, err);
}

/* The tensor of one matrix of an expert, or a failure that names it. */
static enum tri_status expert_part(const struct tri_checkpoint *ckpt, const int64_t at[2],
                                   const char *matrix, struct tri_extent *out,
                                   enum tri_dtype *dtype, struct tri_error *err)
{
    char name[160];
    snprintf(name, sizeof name, "model.layers.%lld.block_sparse_moe.experts.%lld.%s",
             (long long)at[0], (long long)at[1], matrix);
    const struct tri_tensor *t = tri_checkpoint_find(ckpt, name);
    if (!t)
        return tri_fail(err, TRI_ARG, "%s: no tensor %s", ckpt->folder, name);
    *out = (struct tri_extent){ t->shard, t->offset_bytes, t->bytes };
    *dtype = t->dtype;
    return TRI_OK;
}

enum tri_status tri_checkpoint_expert(const struct tri_checkpoint *ckpt, int64_t layer,
                                      int64_t expert, struct tri_expert_extent *out,
                                      struct tri_error *err)
{
    static const char *const packed[6] = { "w1.weight_packed", "w1.weight_scale",
                                           "w2.weight_packed", "w2.weight_scale",
                                           "w3.weight_packed", "w3.weight_scale" };
    static const char *const plain[6] = { "w1.weight", NULL, "w2.weight", NULL, "w3.weight", NULL };
    const char *const *matrix = ckpt->experts_packed ? packed : plain;
    const int64_t at[2] = { layer, expert };
    struct tri_expert_extent x = { .contiguous = true };
    const struct tri_extent *last = NULL;
    for (int i = 0; i < 6; i++) {
        enum tri_status st = TRI_OK;
        if (matrix[i])
            st = expert_part(ckpt, at, matrix[i], &x.part[i], &x.dtype, err);
        if (st)
            return st;
        if (!matrix[i])
            continue;
        if (last && (last->shard != x.part[i].shard ||
                     last->offset_bytes + last->bytes != x.part[i].offset_bytes))
            x.contiguous = false;
        x.record_bytes += x.part[i].bytes;
        last = &x.part[i];
    }
    if (ckpt->experts_packed)
        x.dtype = TRI_DT_MXFP4;
    *out = x;
    return TRI_OK;
}
