/*
 * A folder of saved states: names, lock, scanning, and never trusting what is found there. A file
 * belongs to a salt not only by its name: the salt is part of the fingerprint inside.
 */
#include "state/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include "base/hash.h"

/* "<salt: 32 hex>-<tokens: 16 hex>-<why>.state" */
enum { NAME_BYTES = 32 + 1 + 16 + 1 + 1 + 6, PATH_BYTES = 3500, MAX_FILES = 1 << 20 };
enum { FILE_BYTES = PATH_BYTES + NAME_BYTES + 2 };
enum { FULL_PERCENT = 95 };

struct tri_state_folder {
    const struct tri_state *shape;
    uint64_t fingerprint;
    int fd, lock_fd;
    int64_t last_used_ns; /* later uses get later times, whatever the clock does */
    char path[PATH_BYTES];
};

/* --- names ----------------------------------------------------------------------------------- */

static uint64_t fingerprint_of(const struct tri_state_folder *f, const struct tri_salt *salt)
{
    return tri_hash64(f->fingerprint, salt, sizeof *salt);
}

static uint64_t token_hash(const struct tri_kept *k)
{
    return tri_hash64((uint64_t)k->n_tokens, k->tokens, (size_t)k->n_tokens * sizeof *k->tokens);
}

static void name_of(char out[NAME_BYTES + 1], const struct tri_kept *k)
{
    snprintf(out, NAME_BYTES + 1, "%016" PRIx64 "%016" PRIx64 "-%016" PRIx64 "-%c.state", k->salt.a,
             k->salt.b, token_hash(k), (char)k->why);
}

static bool read_name(const char *name, struct tri_kept *out)
{
    static const char form[] = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-?.state";
    if (strlen(name) != NAME_BYTES)
        return false;
    for (size_t i = 0; i < NAME_BYTES; i++) {
        bool hex = (name[i] >= '0' && name[i] <= '9') || (name[i] >= 'a' && name[i] <= 'f');
        if (form[i] == 'x' ? !hex : form[i] != '?' && form[i] != name[i])
            return false;
    }
    char why = name[NAME_BYTES - 7];
    if (!strchr("hbrao", why))
        return false;
    *out = (struct tri_kept){ .why = (enum tri_keep)why };
    return sscanf(name, "%16" SCNx64 "%16" SCNx64, &out->salt.a, &out->salt.b) == 2;
}

/* What an interrupted tri_state_save leaves: one of our names, ".<pid>.tmp". */
static bool is_left_over(const char *name)
{
    char base[NAME_BYTES + 1];
    struct tri_kept ignored;
    size_t n = strlen(name);
    if (n < NAME_BYTES + 6 || name[NAME_BYTES] != '.' || strcmp(name + n - 4, ".tmp") != 0)
        return false;
    memcpy(base, name, NAME_BYTES);
    base[NAME_BYTES] = 0;
    return read_name(base, &ignored);
}

static void path_of(char out[FILE_BYTES], const struct tri_state_folder *f, const char *name)
{
    snprintf(out, FILE_BYTES, "%s/%s", f->path, name);
}

/* --- opening --------------------------------------------------------------------------------- */

static enum tri_status check_folder(const struct tri_state_folder *f, struct tri_error *err)
{
    struct stat sb;
    if (fstat(f->fd, &sb))
        return tri_fail_errno(err, TRI_IO, errno, "cannot read the cache folder %s", f->path);
    if (sb.st_uid != geteuid())
        return tri_fail(err, TRI_ARG,
                        "the cache folder %s belongs to another user: prompts are private, give a "
                        "folder of your own",
                        f->path);
    if (sb.st_mode & 077)
        return tri_fail(err, TRI_ARG,
                        "the cache folder %s is open to others (mode %03o): prompts are private; "
                        "chmod 700 it, or give a folder that does not exist yet",
                        f->path, (unsigned)sb.st_mode & 0777);
    return TRI_OK;
}

static enum tri_status take_lock(struct tri_state_folder *f, struct tri_error *err)
{
    char pid[32] = { 0 };
    f->lock_fd = openat(f->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->lock_fd < 0)
        return tri_fail_errno(err, TRI_IO, errno, "cannot write in the cache folder %s", f->path);
    if (flock(f->lock_fd, LOCK_EX | LOCK_NB)) {
        ssize_t n = read(f->lock_fd, pid, sizeof pid - 1);
        long holder = n > 0 ? strtol(pid, NULL, 10) : 0;
        return tri_fail(err, TRI_BUSY,
                        "the cache folder %s is in use by another process (pid %ld): stop it, or "
                        "give this one a folder of its own",
                        f->path, holder);
    }
    int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (ftruncate(f->lock_fd, 0) || write(f->lock_fd, pid, (size_t)n) != n)
        return TRI_OK; /* the lock is held; its text is only for people */
    return TRI_OK;
}

enum tri_status tri_state_folder_open(struct tri_state_folder **out, const char *path,
                                      const struct tri_state *shape, uint64_t fingerprint,
                                      struct tri_error *err)
{
    if (strlen(path) >= PATH_BYTES - NAME_BYTES - 32)
        return tri_fail(err, TRI_ARG, "the path of the cache folder is too long");
    if (mkdir(path, 0700) && errno != EEXIST)
        return tri_fail_errno(err, TRI_IO, errno, "cannot make the cache folder %s", path);
    struct tri_state_folder *f = tri_calloc(1, sizeof *f);
    if (!f)
        return tri_fail(err, TRI_NOMEM, "no memory for the cache folder");
    f->shape = shape;
    f->fingerprint = fingerprint;
    f->lock_fd = -1;
    snprintf(f->path, sizeof f->path, "%s", path);
    f->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum tri_status st =
        f->fd < 0 ? tri_fail_errno(err, TRI_IO, errno, "cannot open the cache folder %s", path)
                  : check_folder(f, err);
    if (st == TRI_OK)
        st = take_lock(f, err);
    if (st == TRI_OK)
        *out = f;
    else
        tri_state_folder_close(f);
    return st;
}

void tri_state_folder_close(struct tri_state_folder *folder)
{
    if (!folder)
        return;
    if (folder->lock_fd >= 0)
        close(folder->lock_fd); /* and so the lock is free */
    if (folder->fd >= 0)
        close(folder->fd);
    tri_free(folder);
}

/* --- the order of use ------------------------------------------------------------------------ */

static int64_t ns_of(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static void mark_used(struct tri_state_folder *f, const char *name)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t ns = ns_of(&now);
    f->last_used_ns = ns > f->last_used_ns ? ns : f->last_used_ns + 1;
    struct timespec t = { .tv_sec = (time_t)(f->last_used_ns / 1000000000),
                          .tv_nsec = (long)(f->last_used_ns % 1000000000) };
    const struct timespec both[2] = { t, t };
    (void)utimensat(f->fd, name, both, 0); /* the order of eviction, nothing worse */
}

void tri_state_folder_touch(struct tri_state_folder *folder, const struct tri_kept *kept)
{
    char name[NAME_BYTES + 1];
    name_of(name, kept);
    mark_used(folder, name);
}

void tri_state_folder_remove(struct tri_state_folder *folder, const struct tri_kept *kept)
{
    char name[NAME_BYTES + 1];
    name_of(name, kept);
    (void)unlinkat(folder->fd, name, 0);
}

/* --- scanning -------------------------------------------------------------------------------- */

struct file {
    char name[NAME_BYTES + 1];
    int64_t used_ns;
    uint64_t bytes;
};

static int by_use(const void *a, const void *b)
{
    const struct file *x = a, *y = b;
    return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

struct files {
    struct file *file;
    size_t n, room;
};

static enum tri_status add_file(struct files *to, const char *name, const struct stat *sb,
                                struct tri_error *err)
{
    if (to->n == MAX_FILES)
        return TRI_OK; /* far more than any cap holds; they stay where they are */
    if (to->n == to->room) {
        size_t room = to->room ? 2 * to->room : 64;
        struct file *more = tri_realloc(to->file, room * sizeof *more);
        if (!more)
            return tri_fail(err, TRI_NOMEM, "no memory to list the cache folder");
        to->file = more;
        to->room = room;
    }
    struct file *f = &to->file[to->n++];
    memcpy(f->name, name, sizeof f->name); /* a name that read_name took */
    f->used_ns = ns_of(&sb->st_mtim);
    f->bytes = (uint64_t)sb->st_size;
    return TRI_OK;
}

static enum tri_status list_files(struct tri_state_folder *f, struct files *to, uint64_t *removed,
                                  struct tri_error *err)
{
    int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    enum tri_status st = TRI_OK;
    if (!dir) {
        st = tri_fail_errno(err, TRI_IO, errno, "cannot read the cache folder %s", f->path);
        if (fd >= 0)
            close(fd);
        return st;
    }
    for (const struct dirent *e = readdir(dir); e && st == TRI_OK; e = readdir(dir)) {
        struct tri_kept ignored;
        struct stat sb;
        if (is_left_over(e->d_name)) {
            *removed += unlinkat(f->fd, e->d_name, 0) == 0;
            continue;
        }
        if (read_name(e->d_name, &ignored) &&
            fstatat(f->fd, e->d_name, &sb, AT_SYMLINK_NOFOLLOW) == 0)
            st = add_file(to, e->d_name, &sb, err);
    }
    closedir(dir);
    return st;
}

/* One file: told, or removed. */
static void look_at(struct tri_state_folder *f, const struct file *file,
                    bool (*found)(void *arg, const struct tri_state_found *found), void *arg,
                    uint64_t *removed)
{
    char path[FILE_BYTES], name[NAME_BYTES + 1];
    int32_t *tokens = NULL;
    struct tri_state_found out = { .file_bytes = file->bytes };
    path_of(path, f, file->name);
    bool good = read_name(file->name, &out.kept) &&
                tri_state_peek(f->shape, path, fingerprint_of(f, &out.kept.salt), &tokens,
                               &out.kept.n_tokens, NULL) == TRI_OK;
    if (good) {
        out.kept.tokens = tokens;
        name_of(name, &out.kept);
        good = out.kept.n_tokens > 0 && !strcmp(name, file->name);
    }
    if (!good) {
        (void)unlinkat(f->fd, file->name, 0);
        ++*removed;
    } else if (!found(arg, &out)) {
        (void)unlinkat(f->fd, file->name, 0);
    }
    if (file->used_ns > f->last_used_ns)
        f->last_used_ns = file->used_ns;
    tri_free(tokens);
}

enum tri_status tri_state_folder_scan(struct tri_state_folder *folder,
                                      bool (*found)(void *arg, const struct tri_state_found *found),
                                      void *arg, uint64_t *removed, struct tri_error *err)
{
    struct files files = { 0 };
    enum tri_status st = list_files(folder, &files, removed, err);
    if (st == TRI_OK && files.n > 1)
        qsort(files.file, files.n, sizeof *files.file, by_use);
    for (size_t i = 0; i < files.n && st == TRI_OK; i++)
        look_at(folder, &files.file[i], found, arg, removed);
    tri_free(files.file);
    return st;
}

/* --- reading and writing --------------------------------------------------------------------- */

/* A full drive hurts everybody on the machine: stop before it is. */
static enum tri_status check_drive(const struct tri_state_folder *f, uint64_t bytes,
                                   struct tri_error *err)
{
    struct statvfs v;
    if (fstatvfs(f->fd, &v) || v.f_blocks == 0)
        return TRI_OK;
    double all = (double)v.f_blocks * (double)v.f_frsize;
    double left = (double)v.f_bavail * (double)v.f_frsize - (double)bytes;
    if (left * 100 < all * (100 - FULL_PERCENT))
        return tri_fail(err, TRI_LIMIT, "the drive of %s would be more than %d %% full", f->path,
                        FULL_PERCENT);
    return TRI_OK;
}

enum tri_status tri_state_folder_save(struct tri_state_folder *folder, const struct tri_kept *kept,
                                      const struct tri_state *state, struct tri_error *err)
{
    char path[FILE_BYTES], name[NAME_BYTES + 1];
    name_of(name, kept);
    path_of(path, folder, name);
    enum tri_status st = check_drive(folder, tri_state_file_bytes(state), err);
    if (st == TRI_OK)
        st = tri_state_save(state, path, fingerprint_of(folder, &kept->salt), kept->tokens,
                            kept->n_tokens, err);
    if (st == TRI_OK)
        mark_used(folder, name);
    return st;
}

enum tri_status tri_state_folder_load(struct tri_state_folder *folder, const struct tri_kept *kept,
                                      struct tri_state *state, struct tri_error *err)
{
    char path[FILE_BYTES], name[NAME_BYTES + 1];
    int32_t *tokens = NULL;
    int64_t n = 0;
    name_of(name, kept);
    path_of(path, folder, name);
    enum tri_status st =
        tri_state_load(state, path, fingerprint_of(folder, &kept->salt), &tokens, &n, err);
    if (st == TRI_OK &&
        (n != kept->n_tokens || memcmp(tokens, kept->tokens, (size_t)n * sizeof *tokens) != 0)) {
        tri_state_clear(state);
        st = tri_fail(err, TRI_FORMAT, "%s: not the tokens it was kept for", path);
    }
    tri_free(tokens);
    if (st == TRI_OK)
        mark_used(folder, name);
    else
        (void)unlinkat(folder->fd, name, 0);
    return st;
}
