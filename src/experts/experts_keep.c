/*
 * Statistics that outlive a run: how hot each expert was, in a small file beside the model, so that
 * the next run's policy knows what this one learnt. Little-endian:
 *
 *   magic 8 | rows 8 | experts 8 | heat float32 [rows][experts] | tri_hash64 of all before 8
 *
 * One process holds the folder for writing (an advisory lock); another one reads and is told so. A
 * damaged or foreign file is ignored, a folder that cannot be written to is a note, no failure.
 */
#include "experts/experts_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"

static const char MAGIC[8] = "TRIHEAT1";

struct heat_header {
    char magic[8];
    int64_t rows, experts;
};
_Static_assert(sizeof(struct heat_header) == 24, "heat file header");

static size_t file_bytes(const struct tri_experts *s)
{
    return sizeof(struct heat_header) + (size_t)(s->rows * s->experts) * sizeof(float) + 8;
}

static void path_in(char out[4096], const struct tri_experts *s, const char *name)
{
    snprintf(out, 4096, "%s/%s", s->keep_folder, name);
}

/* Takes the heats of an earlier run, if its file is whole and of this shape. */
static void read_heats(struct tri_experts *s)
{
    char path[4096], *data = NULL;
    size_t bytes = 0;
    struct heat_header h;
    uint64_t sum;
    path_in(path, s, "experts.heat");
    if (tri_read_plain_file(&data, &bytes, path, file_bytes(s), NULL))
        return;
    if (bytes == file_bytes(s)) {
        memcpy(&h, data, sizeof h);
        memcpy(&sum, data + bytes - 8, 8);
        if (!memcmp(h.magic, MAGIC, sizeof MAGIC) && h.rows == s->rows && h.experts == s->experts &&
            sum == tri_hash64(0, data, bytes - 8)) {
            for (int64_t i = 0; i < s->rows * s->experts; i++) {
                float heat;
                memcpy(&heat, data + sizeof h + (size_t)i * sizeof heat, sizeof heat);
                s->record[i].heat = heat >= 0 && heat <= 1 ? heat : 0;
            }
            s->stats.heats_found = true;
        }
    }
    tri_free(data);
}

static void tell_unwritten(const struct tri_experts *s, const char *path, int error)
{
    struct tri_error err = { 0 };
    (void)tri_fail_errno(&err, TRI_IO, error, "statistics of experts are not kept: %s", path);
    tri_note(&s->keep_notes, "%s", err.text);
}

void tri__keep_open(struct tri_experts *s, const char *folder, const struct tri_notes *notes)
{
    char path[4096];
    if (!folder || snprintf(s->keep_folder, sizeof s->keep_folder, "%s/.trireme", folder) >=
                       (int)sizeof s->keep_folder)
        return;
    s->keep_notes = *notes;
    read_heats(s);
    if (mkdir(s->keep_folder, 0700) && errno != EEXIST) {
        tell_unwritten(s, s->keep_folder, errno);
        return;
    }
    path_in(path, s, "lock");
    s->keep_lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->keep_lock < 0) {
        tell_unwritten(s, path, errno);
        return;
    }
    if (flock(s->keep_lock, LOCK_EX | LOCK_NB)) {
        close(s->keep_lock);
        s->keep_lock = -1;
        tri_note(notes, "another process keeps the statistics of %s; this one only reads them",
                 folder);
    }
}

/* All of it, flushed; 0 or the errno that stopped it. */
static int write_whole(const char *path, const void *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), error = 0;
    if (fd < 0)
        return errno;
    ssize_t n = write(fd, data, bytes);
    if (n != (ssize_t)bytes)
        error = n < 0 ? errno : ENOSPC;
    if (fsync(fd) && !error)
        error = errno;
    if (close(fd) && !error)
        error = errno;
    return error;
}

/* Temporary file, then rename: whoever is killed here leaves the old file or the new one. */
static void write_heats(const struct tri_experts *s)
{
    char path[4096], temp[4096];
    struct tri_buf buf;
    struct heat_header h = { .rows = s->rows, .experts = s->experts };
    memcpy(h.magic, MAGIC, sizeof h.magic);
    tri_buf_init(&buf, file_bytes(s));
    tri_buf_add(&buf, &h, sizeof h);
    for (int64_t i = 0; i < s->rows * s->experts; i++) {
        float heat = tri__policy_heat(s, &s->record[i]);
        tri_buf_add(&buf, &heat, sizeof heat);
    }
    uint64_t sum = buf.failed ? 0 : tri_hash64(0, buf.data, buf.len_bytes);
    path_in(path, s, "experts.heat");
    path_in(temp, s, "experts.heat.new");
    int error =
        tri_buf_add(&buf, &sum, sizeof sum) ? ENOMEM : write_whole(temp, buf.data, buf.len_bytes);
    if (!error && rename(temp, path))
        error = errno;
    if (error) {
        tell_unwritten(s, path, error);
        unlink(temp);
    }
    tri_buf_fini(&buf);
}

void tri__keep_close(struct tri_experts *s)
{
    if (s->keep_lock < 0)
        return;
    if (s->policy == TRI_EXPERTS_CYCLE && s->stats.rounds > 0 && !s->all_resident)
        write_heats(s);
    close(s->keep_lock);
}
