/*
 * Makes a checkpoint: the spec's list of tensors is cut into shards, each shard is created whole
 * and filled by all threads, piece by piece. A piece is some small tensors or a part of a big one.
 */
#include "synth/synth.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/mem.h"
#include "os/pool.h"
#include "stfile/stfile.h"
#include "synth/synth_priv.h"

enum {
    PIECE_BYTES = 4 << 20,
    HEADER_GUESS_BYTES = 400, /* of one tensor in header and index, rather too much */
    MAX_THREADS = 256,
    MAX_PATH_BYTES = 3900
};

/* `count` whole tensors from `first`, or bytes [from, from + bytes) of that one. */
struct piece {
    size_t first, count;
    uint64_t from, bytes;
};

struct shard {
    struct tri_st_entry *entry;
    struct tri__synth_rule *rule;
    size_t count, cap;
    struct piece *piece;
    size_t pieces, piece_cap;
};

struct job {
    const struct tri_synth_options *o;
    struct tri_spec spec;
    struct tri_synth_report report;
    struct tri_pool *pool;
    struct tri_st_index *index;
    char *buffers; /* [threads][PIECE_BYTES] */
    float quantiles[TRI__SYNTH_QUANTILES];
    int64_t units;
    bool made_folder;

    struct shard shard; /* the one being gathered */
    int number;         /* of that shard, from 0; -1: none yet */
    int fd;
    char path[4096];

    atomic_uint_fast64_t done_bytes;
    atomic_int stop;
    pthread_mutex_t lock; /* guards err and the progress tick of the workers */
    struct tri_error *err;
    enum tri_status st;
};

static bool is_hole(const struct tri_synth_options *o, const struct tri_tensor_spec *t)
{
    return o->sparse && (t->part == TRI_PART_EXPERTS || t->bytes > TRI_SYNTH_HOLE_BYTES);
}

/* Layers first, then the ends, the projector and the vision tower: what a file holds alone. */
static int64_t unit_of(const struct job *j, const struct tri_tensor_spec *t)
{
    if (t->layer >= 0)
        return t->layer;
    return j->spec.layers + (t->part == TRI_PART_PROJECTOR) + 2 * (t->part == TRI_PART_VISION);
}

static void stop_with(struct job *j, enum tri_status st, const struct tri_error *err)
{
    pthread_mutex_lock(&j->lock);
    if (!j->st) {
        j->st = st;
        tri_fail(j->err, st, "%s", err->text);
    }
    pthread_mutex_unlock(&j->lock);
    atomic_store(&j->stop, 1);
}

static void tell_progress(struct job *j, uint64_t bytes)
{
    uint64_t done = atomic_fetch_add(&j->done_bytes, bytes) + bytes;
    if (pthread_mutex_trylock(&j->lock))
        return; /* another thread is telling */
    int leave = tri_tick(&j->o->progress, "checkpoint", done, j->report.written_bytes);
    pthread_mutex_unlock(&j->lock);
    if (leave) {
        struct tri_error err = { 0 };
        tri_fail(&err, TRI_CANCELLED, "stopped; %s is unfinished: remove it", j->o->out);
        stop_with(j, TRI_CANCELLED, &err);
    }
}

static void write_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    struct job *j = arg;
    char *buffer = j->buffers + (size_t)thread * PIECE_BYTES;
    for (int64_t i = begin; i < end && !atomic_load(&j->stop); i++) {
        const struct piece *p = &j->shard.piece[i];
        struct tri_error err = { 0 };
        uint64_t at = 0;
        for (size_t k = p->first; k < p->first + p->count; k++) {
            uint64_t n = p->count > 1 ? j->shard.entry[k].bytes : p->bytes;
            tri__synth_fill(&j->shard.rule[k], p->from, buffer + at, n);
            at += n;
        }
        uint64_t offset = j->shard.entry[p->first].offset_bytes + p->from;
        enum tri_status st = tri_st_write(j->fd, j->path, offset, buffer, p->bytes, &err);
        if (st)
            stop_with(j, st, &err);
        tell_progress(j, p->bytes);
    }
}

/* Makes room for one more item of an array that doubles. */
static bool grow(void **array, size_t count, size_t *cap, size_t item_bytes)
{
    if (*array && count < *cap)
        return true;
    size_t more = *cap ? *cap * 2 : 1024;
    void *p = tri_realloc(*array, more * item_bytes);
    if (!p)
        return false;
    *array = p;
    *cap = more;
    return true;
}

static bool add_piece(struct shard *s, size_t tensor, uint64_t from, uint64_t bytes)
{
    struct piece *last = s->pieces ? &s->piece[s->pieces - 1] : NULL;
    if (last && from == 0 && last->from == 0 && last->first + last->count == tensor &&
        last->bytes + bytes <= PIECE_BYTES) {
        last->count++;
        last->bytes += bytes;
        return true;
    }
    if (!grow((void **)&s->piece, s->pieces, &s->piece_cap, sizeof *s->piece))
        return false;
    s->piece[s->pieces++] = (struct piece){ tensor, 1, from, bytes };
    return true;
}

static bool cut_pieces(struct shard *s, size_t tensor, uint64_t bytes)
{
    for (uint64_t from = 0; from < bytes; from += PIECE_BYTES) {
        uint64_t n = bytes - from < PIECE_BYTES ? bytes - from : PIECE_BYTES;
        if (!add_piece(s, tensor, from, n))
            return false;
    }
    return true;
}

/* Writes the gathered shard under its temporary name and then gives it its own. */
static enum tri_status finish_shard(struct job *j)
{
    char name[64], path[4096];
    if (j->number < 0)
        return TRI_OK;
    snprintf(name, sizeof name, "model-%05d-of-%06d.safetensors", j->number + 1, j->report.files);
    snprintf(path, sizeof path, "%.*s/%s", MAX_PATH_BYTES, j->o->out, name);
    snprintf(j->path, sizeof j->path, "%.*s/%s.part", MAX_PATH_BYTES, j->o->out, name);
    j->st = tri_st_create(&j->fd, j->path, j->shard.entry, j->shard.count, j->err);
    if (j->st)
        return j->st;
    tri_pool_for(j->pool, (int64_t)j->shard.pieces, 1, write_pieces, j);
    if (close(j->fd) && !j->st)
        j->st = tri_fail_errno(j->err, TRI_IO, errno, "cannot write %s", j->path);
    if (!j->st && rename(j->path, path))
        j->st = tri_fail_errno(j->err, TRI_IO, errno, "cannot rename %s", j->path);
    for (size_t i = 0; i < j->shard.count; i++)
        tri_st_index_add(j->index, j->shard.entry[i].name, name);
    j->shard.count = j->shard.pieces = 0;
    return j->st;
}

static int gather(void *arg, const struct tri_tensor_spec *t)
{
    struct job *j = arg;
    struct shard *s = &j->shard;
    int number = (int)(unit_of(j, t) * j->report.files / j->units);
    if (number != j->number) {
        if (finish_shard(j))
            return 1;
        j->number = number;
    }
    size_t rule_cap = s->cap;
    if (!grow((void **)&s->entry, s->count, &s->cap, sizeof *s->entry) ||
        !grow((void **)&s->rule, s->count, &rule_cap, sizeof *s->rule)) {
        j->st = tri_fail(j->err, TRI_NOMEM, "no memory for the tensors of a shard");
        return 1;
    }
    struct tri_st_entry *e = &s->entry[s->count];
    bool vision = t->part == TRI_PART_VISION || t->part == TRI_PART_PROJECTOR;
    snprintf(e->name, sizeof e->name, "%s%s", vision ? "" : "language_model.", t->name);
    e->dtype = t->dtype;
    e->rank = t->rank;
    memcpy(e->shape, t->shape, sizeof e->shape);
    e->bytes = t->bytes;
    tri__synth_rule(&s->rule[s->count], &j->spec, t, j->o->seed, j->quantiles);
    s->count++;
    if (!is_hole(j->o, t) && !cut_pieces(s, s->count - 1, t->bytes)) {
        j->st = tri_fail(j->err, TRI_NOMEM, "no memory for the pieces of a shard");
        return 1;
    }
    return 0;
}

static int count_tensor(void *arg, const struct tri_tensor_spec *t)
{
    struct job *j = arg;
    j->report.tensors++;
    j->report.bytes += t->bytes;
    j->report.parameters += t->parameters;
    j->report.written_bytes += is_hole(j->o, t) ? 0 : t->bytes;
    return 0;
}

static enum tri_status check_space(struct job *j)
{
    struct statvfs fs;
    if (statvfs(j->o->out, &fs))
        return tri_fail_errno(j->err, TRI_IO, errno, "%s", j->o->out);
    uint64_t need = j->report.written_bytes + j->report.tensors * HEADER_GUESS_BYTES;
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (need > free_bytes)
        return tri_fail(j->err, TRI_LIMIT,
                        "%s: %.2f GB are to be written and %.2f GB are free there; fewer --layers, "
                        "or --sparse for shapes without data",
                        j->o->out, (double)need / 1e9, (double)free_bytes / 1e9);
    return TRI_OK;
}

static bool is_empty_folder(const char *path)
{
    DIR *dir = opendir(path);
    int others = 0;
    if (!dir)
        return false;
    for (const struct dirent *d = readdir(dir); d; d = readdir(dir))
        others += strcmp(d->d_name, ".") && strcmp(d->d_name, "..");
    closedir(dir);
    return others == 0;
}

static enum tri_status make_folder(struct job *j)
{
    const char *out = j->o->out;
    if (strlen(out) > MAX_PATH_BYTES)
        return tri_fail(j->err, TRI_ARG, "the folder's path is too long");
    j->made_folder = mkdir(out, 0777) == 0;
    if (j->made_folder || (errno == EEXIST && is_empty_folder(out)))
        return TRI_OK;
    if (errno != EEXIST)
        return tri_fail_errno(j->err, TRI_IO, errno, "cannot make %s", out);
    return tri_fail(j->err, TRI_ARG, "%s exists and is not an empty folder; nothing is overwritten",
                    out);
}

static enum tri_status plan_files(struct job *j)
{
    j->units = j->spec.layers + 1 + (j->spec.has_vision ? 2 : 0);
    j->report.files = j->o->shards ? j->o->shards : (int)j->units;
    if (j->report.files < 1 || j->report.files > j->units)
        return tri_fail(j->err, TRI_ARG,
                        "--shards %d: 1 to %" PRId64 " are possible, a layer is "
                        "never cut",
                        j->report.files, j->units);
    tri_spec_tensors(&j->spec, count_tensor, j);
    return TRI_OK;
}

static enum tri_status write_config(struct job *j, const char *text)
{
    char path[4096], part[4096];
    snprintf(path, sizeof path, "%.*s/config.json", MAX_PATH_BYTES, j->o->out);
    snprintf(part, sizeof part, "%.*s/config.json.part", MAX_PATH_BYTES, j->o->out);
    int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return tri_fail_errno(j->err, TRI_IO, errno, "cannot create %s", part);
    enum tri_status st = tri_st_write(fd, part, 0, text, strlen(text), j->err);
    if (close(fd) && !st)
        st = tri_fail_errno(j->err, TRI_IO, errno, "cannot write %s", part);
    if (!st && rename(part, path))
        st = tri_fail_errno(j->err, TRI_IO, errno, "cannot rename %s", part);
    return st;
}

static enum tri_status write_all(struct job *j, const char *config)
{
    char path[4096];
    snprintf(path, sizeof path, "%.*s/model.safetensors.index.json", MAX_PATH_BYTES, j->o->out);
    enum tri_status st = tri_pool_open(&j->pool, j->o->threads, j->err);
    if (st)
        return st;
    j->buffers = tri_malloc((size_t)tri_pool_threads(j->pool) * PIECE_BYTES);
    if (!j->buffers)
        return tri_fail(j->err, TRI_NOMEM, "no memory for the buffers");
    st = tri_st_index_open(&j->index, path, j->report.bytes, j->err);
    if (st)
        return st;
    tri__synth_quantiles(j->quantiles);
    tri_spec_tensors(&j->spec, gather, j);
    if (!j->st)
        finish_shard(j);
    if (j->st)
        return j->st;
    st = tri_st_index_close(j->index, j->err);
    j->index = NULL;
    return st ? st : write_config(j, config);
}

static enum tri_status check_pattern(const char *pattern, struct tri_error *err)
{
    if (pattern && (!*pattern || strspn(pattern, "km") != strlen(pattern)))
        return tri_fail(err, TRI_ARG, "--pattern %s: letters k (KDA) and m (MLA) only", pattern);
    return TRI_OK;
}

enum tri_status tri_synth(const struct tri_synth_options *options, struct tri_synth_report *report,
                          struct tri_error *err)
{
    char *config = NULL;
    enum tri_status st = check_pattern(options->pattern, err);
    struct job *j = tri_calloc(1, sizeof *j);
    if (!j)
        return tri_fail(err, TRI_NOMEM, "no memory for the job");
    j->o = options;
    j->err = err;
    j->number = -1;
    pthread_mutex_init(&j->lock, NULL);
    if (!st)
        st = tri__synth_config(&config, &j->spec, options, err);
    if (!st)
        st = plan_files(j);
    if (!st)
        st = make_folder(j);
    if (!st) {
        st = check_space(j);
        if (st && j->made_folder)
            rmdir(options->out);
    }
    if (!st)
        st = write_all(j, config);
    if (!st)
        *report = j->report;
    tri_st_index_drop(j->index);
    tri_pool_close(j->pool);
    tri_free(j->buffers);
    tri_free(j->shard.entry);
    tri_free(j->shard.rule);
    tri_free(j->shard.piece);
    tri_free(config);
    pthread_mutex_destroy(&j->lock);
    tri_free(j);
    return st;
}
