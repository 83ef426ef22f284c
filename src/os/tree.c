/*
 * Folder trees go through one directory descriptor with openat2 and RESOLVE_IN_ROOT, which makes
 * absolute links of a captured copy stay inside it; where the kernel lacks it, links of a copy are
 * not followed at all. Memory trees are a sorted array of paths. See tree.h.
 */
#include "os/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/mem.h"

struct entry {
    char *path, *data, *origin;
    size_t bytes, order;
    uint32_t line;
    bool link;
};

struct tri_tree {
    int fd; /* -1: in memory */
    bool live, sorted;
    struct entry *entry;
    size_t entries, cap, bytes, order;
};

static enum tri_status new_tree(struct tri_tree **out, int fd, struct tri_error *err)
{
    struct tri_tree *t = tri_calloc(1, sizeof *t);
    if (!t)
        return tri_fail(err, TRI_NOMEM, "no memory for a tree of files");
    t->fd = fd;
    *out = t;
    return TRI_OK;
}

enum tri_status tri_tree_open_folder(struct tri_tree **out, const char *path, struct tri_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return tri_fail_errno(err, TRI_IO, errno, "%s: not a folder that can be read", path);
    enum tri_status status = new_tree(out, fd, err);
    if (status) {
        close(fd);
        return status;
    }
    (*out)->live = !strcmp(path, "/");
    return TRI_OK;
}

enum tri_status tri_tree_open_memory(struct tri_tree **out, struct tri_error *err)
{
    return new_tree(out, -1, err);
}

void tri_tree_close(struct tri_tree *t)
{
    if (!t)
        return;
    if (t->fd >= 0)
        close(t->fd);
    for (size_t i = 0; i < t->entries; i++) {
        tri_free(t->entry[i].path);
        tri_free(t->entry[i].data);
        tri_free(t->entry[i].origin);
    }
    tri_free(t->entry);
    tri_free(t);
}

bool tri_tree_is_live(const struct tri_tree *t)
{
    return t->live;
}

/* Opens below the root. Special files that could block (fifos) are opened without waiting. */
static int open_below(const struct tri_tree *t, const char *path, int flags)
{
    const char *relative = path + strspn(path, "/");
    if (!*relative)
        relative = ".";
    flags |= O_CLOEXEC;
    if (!(flags & O_PATH)) /* openat2 refuses them beside O_PATH */
        flags |= O_NONBLOCK | O_NOCTTY;
    struct open_how how = { .flags = (uint64_t)flags, .resolve = RESOLVE_IN_ROOT };
    if (t->live)
        return openat(t->fd, relative, flags);
    long fd = syscall(SYS_openat2, t->fd, relative, &how, sizeof how);
    if (fd < 0 && errno == ENOSYS && !strstr(relative, ".."))
        fd = openat(t->fd, relative, flags | O_NOFOLLOW);
    return (int)fd;
}

static int by_path(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int c = strcmp(x->path, y->path);
    return c ? c : (x->order < y->order) - (x->order > y->order); /* the latest first */
}

static void sort(struct tri_tree *t)
{
    if (!t->sorted && t->entries)
        qsort(t->entry, t->entries, sizeof *t->entry, by_path);
    t->sorted = true;
}

/* First entry whose path is not below `path`. */
static size_t lower(const struct tri_tree *t, const char *path)
{
    size_t lo = 0, hi = t->entries;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(t->entry[mid].path, path) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static const struct entry *find(struct tri_tree *t, const char *path)
{
    sort(t);
    size_t at = lower(t, path);
    return at < t->entries && !strcmp(t->entry[at].path, path) ? &t->entry[at] : NULL;
}

enum tri_status tri_tree_put(struct tri_tree *t, const struct tri_tree_file *file,
                             struct tri_error *err)
{
    TRI_ASSERT(t->fd < 0);
    if (t->entries == TRI_TREE_MAX_FILES || file->bytes > TRI_TREE_MAX_BYTES - t->bytes)
        return tri_fail(err, TRI_LIMIT, "more than %d captured files or %d bytes of them",
                        TRI_TREE_MAX_FILES, TRI_TREE_MAX_BYTES);
    if (t->entries == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 64;
        struct entry *more = tri_realloc(t->entry, cap * sizeof *more);
        if (!more)
            return tri_fail(err, TRI_NOMEM, "no memory for captured files");
        t->entry = more;
        t->cap = cap;
    }
    struct entry e = {
        .bytes = file->bytes, .line = file->line, .link = file->link, .order = t->order++
    };
    e.path = tri_strdup(file->path);
    e.data = tri_malloc(file->bytes + 1);
    if (e.data) {
        memcpy(e.data, file->data, file->bytes);
        e.data[file->bytes] = 0;
    }
    e.origin = tri_strdup(file->origin);
    if (!e.path || !e.data || !e.origin) {
        tri_free(e.path);
        tri_free(e.data);
        tri_free(e.origin);
        return tri_fail(err, TRI_NOMEM, "no memory for captured files");
    }
    t->entry[t->entries++] = e;
    t->bytes += file->bytes;
    t->sorted = false;
    return TRI_OK;
}

size_t tri_tree_bytes(struct tri_tree *t, const char *path, void *out, size_t out_bytes)
{
    size_t n = 0;
    if (t->fd < 0) {
        const struct entry *e = find(t, path);
        if (!e || e->link)
            return 0;
        n = e->bytes < out_bytes ? e->bytes : out_bytes;
        memcpy(out, e->data, n);
        return n;
    }
    int fd = open_below(t, path, O_RDONLY);
    if (fd < 0)
        return 0;
    ssize_t got = 0;
    while (n < out_bytes && (got = read(fd, (char *)out + n, out_bytes - n)) > 0)
        n += (size_t)got;
    close(fd);
    return n;
}

bool tri_tree_read(struct tri_tree *t, const char *path, char *out, size_t out_bytes)
{
    size_t n = tri_tree_bytes(t, path, out, out_bytes - 1);
    while (n && (out[n - 1] == '\n' || out[n - 1] == '\r'))
        n--;
    out[n] = 0;
    return n > 0 || tri_tree_exists(t, path);
}

bool tri_tree_exists(struct tri_tree *t, const char *path)
{
    if (t->fd < 0) {
        if (find(t, path))
            return true;
        size_t at = lower(t, path), len = strlen(path);
        for (; at < t->entries && !strncmp(t->entry[at].path, path, len); at++)
            if (t->entry[at].path[len] == '/')
                return true;
        return false;
    }
    int fd = open_below(t, path, O_PATH);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

bool tri_tree_link(struct tri_tree *t, const char *path, char *out, size_t out_bytes)
{
    out[0] = 0;
    if (t->fd < 0) {
        const struct entry *e = find(t, path);
        if (!e || !e->link || e->bytes >= out_bytes)
            return false;
        memcpy(out, e->data, e->bytes + 1);
        return true;
    }
    int fd = open_below(t, path, O_PATH | O_NOFOLLOW);
    if (fd < 0)
        return false;
    ssize_t n = readlinkat(fd, "", out, out_bytes - 1);
    close(fd);
    out[n > 0 ? n : 0] = 0;
    return n > 0 && (size_t)n < out_bytes - 1;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static size_t names_of_folder(const struct tri_tree *t, const char *path, char **list)
{
    size_t n = 0;
    int fd = open_below(t, path, O_RDONLY | O_DIRECTORY);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    for (struct dirent *e = readdir(dir); e && n < TRI_TREE_MAX_NAMES; e = readdir(dir))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
            (list[n] = tri_strdup(e->d_name)) != NULL)
            n++;
    closedir(dir);
    return n;
}

/* The part after "path/" of every entry below it; the same name may come several times. */
static size_t names_in_memory(struct tri_tree *t, const char *path, char **list)
{
    size_t n = 0, len = strlen(path);
    sort(t);
    for (size_t at = lower(t, path); at < t->entries && n < TRI_TREE_MAX_NAMES; at++) {
        const char *p = t->entry[at].path;
        if (strncmp(p, path, len))
            break;
        size_t take = p[len] == '/' ? strcspn(p + len + 1, "/") : 0;
        bool again = n && take == strlen(list[n - 1]) && !memcmp(list[n - 1], p + len + 1, take);
        if (take && !again && (list[n] = tri_strndup(p + len + 1, take)) != NULL)
            n++;
    }
    return n;
}

void tri_tree_list(struct tri_tree *t, const char *path, void (*name)(void *arg, const char *name),
                   void *arg)
{
    char **list = tri_calloc(TRI_TREE_MAX_NAMES, sizeof *list);
    if (!list)
        return;
    size_t n = t->fd >= 0 ? names_of_folder(t, path, list) : names_in_memory(t, path, list);
    if (n)
        qsort(list, n, sizeof *list, by_name);
    for (size_t i = 0; i < n; i++) {
        if (!i || strcmp(list[i], list[i - 1]))
            name(arg, list[i]);
    }
    for (size_t i = 0; i < n; i++)
        tri_free(list[i]);
    tri_free(list);
}

const char *tri_tree_origin(struct tri_tree *t, const char *path, uint32_t *line)
{
    const struct entry *e = t->fd < 0 ? find(t, path) : NULL;
    *line = e ? e->line : 0;
    return e ? e->origin : path;
}
