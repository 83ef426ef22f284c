/*
 * The trunk as it lies in RAM, in files beside the shards, so that opening is reading: no
 * conversion, no search for tensors. A folder per format:
 *
 *   <model>/trireme-pack-int8/{layer-0000.bin, ..., head.bin, embed.bin}   units' blocks
 *                             {layer-0000.sum, ...}                        tri_hash64 of each piece
 *                             index.json                                   written last
 *
 * Experts are never copied. Every piece of 32 MiB has its checksum, which begins with the model's
 * fingerprint, and is checked when it is read; a damaged one is an error that names the file and
 * the byte, never a silent return to the shards.
 */
#include "model/model_trunk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"
#include "os/direct.h"

enum { VERSION = 2, MAX_INDEX_BYTES = 1 << 20 };
static const uint64_t PIECE_BYTES = 32 << 20;

static const char *format_name(enum tri_trunk format)
{
    static const char *const names[] = { [TRI_TRUNK_DISK] = "disk",
                                         [TRI_TRUNK_F32] = "f32",
                                         [TRI_TRUNK_BF16] = "bf16",
                                         [TRI_TRUNK_INT8] = "int8",
                                         [TRI_TRUNK_INT4] = "int4" };
    TRI_ASSERT(format > TRI_TRUNK_AUTO && format < TRI_TRUNK_STREAM);
    return names[format];
}

static void unit_path(char out[4096], const struct tri__pack *p, int64_t unit, const char *end)
{
    int64_t layers = p->t->n_units - 2;
    if (unit < layers)
        snprintf(out, 4096, "%s/layer-%04lld.%s", p->folder, (long long)unit, end);
    else
        snprintf(out, 4096, "%s/%s.%s", p->folder, unit == layers ? "head" : "embed", end);
}

static uint64_t pieces_of(uint64_t bytes)
{
    return (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
}

static uint64_t piece_bytes(uint64_t bytes, uint64_t piece)
{
    uint64_t left = bytes - piece * PIECE_BYTES;
    return left < PIECE_BYTES ? left : PIECE_BYTES;
}

static uint64_t sum_of(const struct tri__pack *p, const void *data, uint64_t bytes)
{
    return tri_hash64(p->t->m->whole_fingerprint, data, bytes);
}

/* Whole file of a known size, or TRI_FORMAT. */
static enum tri_status read_sums(const struct tri__pack *p, int64_t unit, uint64_t **out,
                                 struct tri_error *err)
{
    char path[4096], *data = NULL;
    size_t bytes = 0, want = (size_t)pieces_of(p->t->unit[unit].bytes) * sizeof **out;
    unit_path(path, p, unit, "sum");
    enum tri_status st = tri_read_plain_file(&data, &bytes, path, want, err);
    if (!st && bytes != want) {
        tri_free(data);
        return tri_fail(err, TRI_FORMAT, "%s: damaged; remove the folder and pack again", path);
    }
    if (!st)
        *out = (uint64_t *)(void *)data;
    return st;
}

/* ---- reading ---- */

struct reading {
    const struct tri__pack *p;
    int64_t unit;
    int fd;
    bool direct; /* a trunk that is read every step has no use for the page cache */
    char *block, path[4096];
    const uint64_t *sums;
    atomic_int failed;
    struct tri_error *err;
};

static enum tri_status read_piece(const struct reading *r, uint64_t piece, char *dst,
                                  struct tri_error *err)
{
    uint64_t bytes = piece_bytes(r->p->t->unit[r->unit].bytes, piece), at = piece * PIECE_BYTES;
    for (uint64_t got = 0; got < bytes;) {
        int64_t n = r->direct ? tri_direct_read(r->fd, at + got, dst + got, bytes - got)
                              : pread(r->fd, dst + got, bytes - got, (off_t)(at + got));
        int failed = n >= 0 ? 0 : r->direct ? (int)-n : errno;
        if (failed == EINTR)
            continue;
        if (failed)
            return tri_fail_errno(err, TRI_IO, failed, "%s at byte %" PRIu64, r->path, at + got);
        if (n == 0)
            return tri_fail(err, TRI_FORMAT, "%s: ends at byte %" PRIu64 ", it was cut", r->path,
                            at + got);
        got += (uint64_t)n;
    }
    if (sum_of(r->p, dst, bytes) != r->sums[piece])
        return tri_fail(err, TRI_FORMAT,
                        "%s: damaged at bytes %" PRIu64 " to %" PRIu64
                        "; remove the folder and pack again",
                        r->path, at, at + bytes);
    return TRI_OK;
}

static void read_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    struct reading *r = arg;
    (void)thread;
    for (int64_t i = begin; i < end && !atomic_load(&r->failed); i++) {
        struct tri_error err = { 0 };
        char *dst = r->block + (uint64_t)i * PIECE_BYTES;
        enum tri_status st = read_piece(r, (uint64_t)i, dst, &err);
        atomic_fetch_add(&r->p->t->pieces_done, 1);
        int none = TRI_OK;
        if (st && atomic_compare_exchange_strong(&r->failed, &none, st) && r->err &&
            r->err->status == TRI_OK)
            *r->err = err;
    }
}

/* Past the page cache if the unit is read every step, or once and is not in it already. */
static enum tri_status open_bin(int *fd, const struct tri__pack *p, int64_t unit, const char *path,
                                bool *direct, struct tri_error *err)
{
    int cached = -1, past = -1;
    enum tri_status st = tri_open_plain(&cached, path, err);
    if (st)
        return st;
    if (p->t->windows || (p->t->read_once && !tri_file_cached(cached, 0, p->t->unit[unit].bytes)))
        past = tri_direct_open(path);
    *direct = past >= 0;
    if (*direct)
        close(cached);
    *fd = *direct ? past : cached;
    return TRI_OK;
}

enum tri_status tri__pack_read(const struct tri__pack *p, int64_t unit, char *block,
                               struct tri_pool *pool, struct tri_error *err)
{
    struct reading r = { .p = p, .unit = unit, .block = block, .err = err };
    uint64_t *sums = NULL;
    enum tri_status st = read_sums(p, unit, &sums, err);
    if (st)
        return st;
    unit_path(r.path, p, unit, "bin");
    r.sums = sums;
    st = open_bin(&r.fd, p, unit, r.path, &r.direct, err);
    if (!st) {
        tri_pool_for(pool, (int64_t)pieces_of(p->t->unit[unit].bytes), 1, read_pieces, &r);
        st = (enum tri_status)r.failed;
        close(r.fd);
    }
    tri_free(sums);
    return st;
}

static bool pack_folder(struct tri__pack *p, const char *model, enum tri_trunk format)
{
    return snprintf(p->folder, sizeof p->folder, "%s/trireme-pack-%s", model, format_name(format)) <
           (int)sizeof p->folder;
}

/* NULL: this index is of this model, its shards, this format and this version; else why not. */
static const char *index_fault(const struct tri__pack *p)
{
    char path[4096];
    json_t *json = NULL;
    const struct tri__trunk *t = p->t;
    const char *format = NULL, *why = NULL;
    json_int_t version = 0, fingerprint = 0, units = 0, bytes = 0;
    uint64_t placed = 0;
    for (int64_t u = 0; u < t->n_units; u++)
        placed += t->unit[u].bytes;
    snprintf(path, sizeof path, "%s/index.json", p->folder);
    char *text = NULL;
    size_t text_bytes = 0;
    if (tri_read_plain_file(&text, &text_bytes, path, MAX_INDEX_BYTES, NULL) ||
        tri_json_parse(&json, path, text, text_bytes, MAX_INDEX_BYTES, NULL) ||
        json_unpack(json, "{s:I,s:s,s:I,s:I,s:I}", "trireme_pack", &version, "format", &format,
                    "fingerprint", &fingerprint, "units", &units, "bytes", &bytes))
        why = "damaged";
    else if (version != VERSION)
        why = "of another version";
    else if ((uint64_t)fingerprint != t->m->whole_fingerprint)
        why = "the pack of other shards or of another config.json";
    else if (strcmp(format, format_name(t->format)) || units != t->n_units ||
             (uint64_t)bytes != placed)
        why = "of another format or size";
    json_decref(json);
    tri_free(text);
    return why;
}

bool tri__pack_find(struct tri__pack *p, struct tri__trunk *t, const char *model,
                    const struct tri_notes *notes)
{
    char path[4096];
    *p = (struct tri__pack){ .t = t };
    if (!pack_folder(p, model, t->format) ||
        snprintf(path, sizeof path, "%s/index.json", p->folder) >= (int)sizeof path ||
        access(path, F_OK))
        return false;
    bool fits = index_fault(p) == NULL;
    if (!fits)
        tri_note(notes, "%s does not belong to this model or this version: ignored", p->folder);
    return fits;
}

/* ---- checking ---- */

struct checking {
    struct reading r;
    struct tri_error *piece; /* [pieces] */
};

static void check_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    struct checking *c = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        uint64_t bytes = piece_bytes(c->r.p->t->unit[c->r.unit].bytes, (uint64_t)i);
        char *dst = tri_malloc(bytes);
        if (!dst)
            tri_fail(&c->piece[i], TRI_NOMEM, "%s: no memory to check it", c->r.path);
        else
            (void)read_piece(&c->r, (uint64_t)i, dst, &c->piece[i]);
        tri_free(dst);
    }
}

static void tell_fault(struct tri_packs_report *to, const char *text)
{
    to->faults++;
    to->fault(to->arg, text);
}

/* A file of the pack that is there with this size; else a fault. */
static bool has_size(const char *path, uint64_t bytes, struct tri_packs_report *to)
{
    struct stat sb;
    struct tri_error err = { 0 };
    if (stat(path, &sb))
        (void)tri_fail_errno(&err, TRI_IO, errno, "%s", path);
    else if ((uint64_t)sb.st_size != bytes)
        (void)tri_fail(&err, TRI_FORMAT,
                       "%s: has %lld bytes instead of %" PRIu64 "; remove the folder and pack "
                       "again",
                       path, (long long)sb.st_size, bytes);
    if (err.status)
        tell_fault(to, err.text);
    return err.status == TRI_OK;
}

static enum tri_status check_unit(const struct tri__pack *p, int64_t unit,
                                  struct tri_packs_report *to, struct tri_error *err)
{
    struct checking c = { .r = { .p = p, .unit = unit, .fd = -1 } };
    uint64_t bytes = p->t->unit[unit].bytes, pieces = pieces_of(bytes), *sums = NULL;
    char path[4096];
    unit_path(path, p, unit, "sum");
    unit_path(c.r.path, p, unit, "bin");
    bool whole = has_size(path, pieces * sizeof *sums, to);
    whole &= has_size(c.r.path, bytes, to);
    if (!whole)
        return TRI_OK;
    c.piece = tri_calloc((size_t)pieces + 1, sizeof *c.piece);
    enum tri_status st =
        c.piece ? read_sums(p, unit, &sums, err) : tri_fail(err, TRI_NOMEM, "no memory to check");
    c.r.sums = sums;
    if (!st)
        st = tri_open_plain(&c.r.fd, c.r.path, err);
    if (!st)
        tri_pool_for(p->t->m->pool, (int64_t)pieces, 1, check_pieces, &c);
    for (uint64_t i = 0; i < pieces && !st; i++)
        if (c.piece[i].status)
            tell_fault(to, c.piece[i].text);
    if (c.r.fd >= 0)
        close(c.r.fd);
    to->records += (int64_t)pieces;
    to->bytes += bytes;
    tri_free(sums);
    tri_free(c.piece);
    return st;
}

bool tri__pack_exists(const char *model, enum tri_trunk format)
{
    struct tri__pack p = { 0 };
    return pack_folder(&p, model, format) && access(p.folder, F_OK) == 0;
}

enum tri_status tri__pack_check(struct tri__trunk *t, const char *model,
                                const struct tri_progress *progress, struct tri_packs_report *to,
                                struct tri_error *err)
{
    struct tri__pack p = { .t = t };
    char text[8192];
    uint64_t done = 0, total = 0;
    if (!pack_folder(&p, model, t->format))
        return tri_fail(err, TRI_ARG, "the model's path is too long");
    snprintf(text, sizeof text, "%s/index.json", p.folder);
    to->packs++;
    bool finished = access(text, F_OK) == 0;
    const char *why = finished ? index_fault(&p) : "missing: packing was not finished";
    if (why) {
        snprintf(text, sizeof text, "%s/index.json: %s; %s", p.folder, why,
                 finished ? "remove the folder and pack again" : "pack again, it goes on");
        tell_fault(to, text);
        return TRI_OK;
    }
    enum tri_status st = TRI_OK;
    for (int64_t u = 0; u < t->n_units; u++)
        total += t->unit[u].bytes;
    for (int64_t u = 0; u < t->n_units && !st; u++) {
        st = check_unit(&p, u, to, err);
        done += t->unit[u].bytes;
        if (!st && tri_tick(progress, "pack", done, total))
            st = tri_fail(err, TRI_CANCELLED, "checking was stopped");
    }
    return st;
}

/* ---- writing ---- */

static enum tri_status write_file(const char *path, const void *data, uint64_t bytes,
                                  struct tri_error *err)
{
    char temp[4200];
    const char *p = data;
    snprintf(temp, sizeof temp, "%s.new", path);
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return tri_fail_errno(err, TRI_IO, errno, "cannot create %s", temp);
    enum tri_status st = TRI_OK;
    while (bytes && !st) {
        ssize_t n = write(fd, p, bytes < PIECE_BYTES ? bytes : PIECE_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            st = tri_fail_errno(err, TRI_IO, n ? errno : ENOSPC, "cannot write %s", temp);
            break;
        }
        p += n;
        bytes -= (uint64_t)n;
    }
    if (!st && fsync(fd))
        st = tri_fail_errno(err, TRI_IO, errno, "cannot write %s", temp);
    if (close(fd) && !st)
        st = tri_fail_errno(err, TRI_IO, errno, "cannot write %s", temp);
    if (!st && rename(temp, path))
        st = tri_fail_errno(err, TRI_IO, errno, "cannot rename %s", temp);
    if (st)
        unlink(temp);
    return st;
}

/* Written by an earlier run, from these shards, and still whole: it is read to `block` to know. */
static bool already_there(const struct tri__pack *p, int64_t unit, char *block,
                          struct tri_pool *pool)
{
    char bin[4096];
    struct stat sb;
    struct tri_error why = { 0 };
    unit_path(bin, p, unit, "bin");
    return stat(bin, &sb) == 0 && (uint64_t)sb.st_size == p->t->unit[unit].bytes &&
           tri__pack_read(p, unit, block, pool, &why) == TRI_OK;
}

static enum tri_status write_unit(const struct tri__pack *p, int64_t unit, struct tri_pool *pool,
                                  uint64_t *kept_bytes, struct tri_error *err)
{
    struct tri__trunk *t = p->t;
    uint64_t bytes = t->unit[unit].bytes, pieces = pieces_of(bytes);
    char path[4096];
    void *block = NULL;
    uint64_t *sums = tri_calloc((size_t)pieces, sizeof *sums);
    enum tri_status st = sums ? TRI_OK : tri_fail(err, TRI_NOMEM, "no memory to pack");
    if (!st)
        st = tri_budget_alloc(t->m->budget, TRI_MEM_SCRATCH, bytes, &block, err);
    if (!st && already_there(p, unit, block, pool)) {
        *kept_bytes += bytes;
        goto out;
    }
    if (!st)
        st = tri__trunk_load_unit(t, (int32_t)unit, block, pool, err);
    for (uint64_t i = 0; i < pieces && !st; i++)
        sums[i] = sum_of(p, (char *)block + i * PIECE_BYTES, piece_bytes(bytes, i));
    if (!st) {
        unit_path(path, p, unit, "bin");
        st = write_file(path, block, bytes, err);
    }
    if (!st) {
        unit_path(path, p, unit, "sum");
        st = write_file(path, sums, pieces * sizeof *sums, err);
    }
out:
    tri_budget_free(t->m->budget, TRI_MEM_SCRATCH, block, bytes);
    tri_free(sums);
    return st;
}

static enum tri_status write_index(const struct tri__pack *p, uint64_t bytes, struct tri_error *err)
{
    char path[4096];
    struct tri_buf text;
    tri_buf_init(&text, MAX_INDEX_BYTES);
    tri_buf_printf(&text,
                   "{\"trireme_pack\":%d,\"format\":\"%s\",\"fingerprint\":%" PRId64
                   ",\"units\":%" PRId64 ",\"bytes\":%" PRIu64 "}\n",
                   VERSION, format_name(p->t->format), (int64_t)p->t->m->whole_fingerprint,
                   p->t->n_units, bytes);
    snprintf(path, sizeof path, "%s/index.json", p->folder);
    enum tri_status st = text.failed ? tri_fail(err, TRI_NOMEM, "no memory to pack")
                                     : write_file(path, text.data, text.len_bytes, err);
    tri_buf_fini(&text);
    return st;
}

static enum tri_status take_lock(const struct tri__pack *p, int *fd, struct tri_error *err)
{
    char path[4096];
    if (mkdir(p->folder, 0755) && errno != EEXIST)
        return tri_fail_errno(err, TRI_IO, errno, "cannot create %s", p->folder);
    snprintf(path, sizeof path, "%s/lock", p->folder);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (*fd < 0)
        return tri_fail_errno(err, TRI_IO, errno, "cannot create %s", path);
    if (flock(*fd, LOCK_EX | LOCK_NB))
        return tri_fail(err, TRI_BUSY, "%s: another process is packing here", p->folder);
    return TRI_OK;
}

enum tri_status tri__pack_write(struct tri__trunk *t, const char *model,
                                const struct tri_progress *progress, struct tri_pack_report *report,
                                struct tri_error *err)
{
    struct tri__pack p = { .t = t };
    int lock = -1;
    if (!pack_folder(&p, model, t->format))
        return tri_fail(err, TRI_ARG, "the model's path is too long");
    struct tri_pack_report r = { 0 };
    for (int64_t u = 0; u < t->n_units; u++)
        r.bytes += t->unit[u].bytes;
    struct tri_pool *own = NULL;
    enum tri_status st = take_lock(&p, &lock, err);
    if (!st)
        st = tri__loader_open(t, r.bytes, &own, err);
    uint64_t done = 0;
    for (int64_t u = 0; u < t->n_units && !st; u++) {
        st = write_unit(&p, u, own ? own : t->m->pool, &r.kept_bytes, err);
        done += t->unit[u].bytes;
        if (!st && tri_tick(progress, "trunk", done, r.bytes))
            st = tri_fail(err, TRI_CANCELLED, "stopped; the same command goes on from here");
    }
    if (!st)
        st = write_index(&p, r.bytes, err);
    tri__loader_close(t, own);
    if (lock >= 0)
        close(lock);
    if (!st) {
        snprintf(r.folder, sizeof r.folder, "%s", p.folder);
        *report = r;
    }
    return st;
}
