/*
 * Pasted contents of files: "==> /sys/... <==" blocks as head and tail print them, and "path:
 * value" lines as grep prints them. Everything under /sys and /proc goes into the set's tree, from
 * which the same code reads it as from a live machine (sysfs.c).
 */
#include <string.h>
#include "base/buf.h"
#include "os/tree.h"
#include "topo/topo.h"
#include "topo/topo_priv.h"

enum { MAX_VALUE = 1 << 16, MAX_PATH = 512 };

static bool put(struct tri__topo_text *t, const char *path, size_t path_len, const char *data,
                size_t bytes, size_t at)
{
    char copy[MAX_PATH];
    if (path_len >= sizeof copy)
        return false;
    memcpy(copy, path, path_len);
    copy[path_len] = 0;
    if (!t->set->files && tri_tree_open_memory(&t->set->files, NULL)) {
        t->set->lost = true;
        return false;
    }
    struct tri_tree_file file = { .path = copy,
                                  .data = data,
                                  .bytes = bytes,
                                  .origin = t->name,
                                  .line = t->lines->line[at].number };
    if (tri_tree_put(t->set->files, &file, NULL))
        t->set->lost = true;
    t->kind = TRI_TOPO_FILES;
    return true;
}

static bool is_system_path(const char *path)
{
    return tri_text_begins(path, "/sys/") || tri_text_begins(path, "/proc/");
}

/* "==> /path <==": the path's length, 0 when it is none. */
static size_t banner(const char *text, const char **path)
{
    if (!tri_text_begins(text, "==> /"))
        return 0;
    const char *end = strstr(text, " <==");
    *path = text + 4;
    return end ? (size_t)(end - *path) : 0;
}

static size_t read_banner(struct tri__topo_text *t, size_t at, const char *path, size_t len)
{
    struct tri_buf buf;
    const char *other;
    size_t i = at + 1;
    bool one_paragraph = tri_text_begins(path, "/sys/") || tri_text_begins(path, "/proc/cmdline");
    tri_buf_init(&buf, MAX_VALUE);
    for (; i < t->lines->count && !banner(t->lines->line[i].body, &other); i++) {
        const char *text = t->lines->line[i].body;
        bool blank = !*text, last = i + 1 == t->lines->count;
        if (blank && (last || banner(t->lines->line[i + 1].body, &other)))
            continue; /* the blank line that head puts between files */
        if (*text == '#' || (blank && one_paragraph))
            break; /* other text follows; only some files of /proc hold blank lines */
        if (i > at + 1)
            tri_buf_putc(&buf, '\n');
        tri_buf_puts(&buf, text);
    }
    /* evidence is the first line of the content, the banner when there is none */
    put(t, path, len, buf.data ? buf.data : "", buf.len_bytes, i > at + 1 ? at + 1 : at);
    tri_buf_fini(&buf);
    return i - at;
}

/* A bus id holds colons too: the value begins after the last path segment's own colon. */
static size_t read_inline(struct tri__topo_text *t, size_t at, const char *text)
{
    const char *slash = text;
    for (const char *p = text; *p && *p != ' ' && *p != '\t'; p++)
        if (*p == '/')
            slash = p;
    const char *colon = strpbrk(slash, ":=");
    if (!colon || strcspn(slash, " \t") < (size_t)(colon - slash))
        return 0;
    const char *value = colon + 1 + strspn(colon + 1, " \t");
    return put(t, text, (size_t)(colon - text), value, strlen(value), at);
}

size_t tri__topo_read_files(struct tri__topo_text *t, size_t at)
{
    const char *text = t->lines->line[at].body, *path = NULL;
    size_t len = banner(text, &path);
    if (len)
        return is_system_path(path) ? read_banner(t, at, path, len) : 0;
    text += strspn(text, " \t");
    return is_system_path(text) ? read_inline(t, at, text) : 0;
}
