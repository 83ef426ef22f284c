/*
 * Files below a root, so that everything that reads /proc and /sys can also read a captured copy:
 * a folder on disk ("/" for the live machine, `--root DIR` for a copy) or files kept in memory
 * (from a gathered tar or a pasted `head /sys/...`). A folder's links are never followed out of it.
 * Threads: a tree is read by one thread at a time.
 */
#ifndef TRI_OS_TREE_H
#define TRI_OS_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"

enum {
    TRI_TREE_MAX_FILES = 200000,   /* of a tree in memory */
    TRI_TREE_MAX_BYTES = 64 << 20, /* all of them together */
    TRI_TREE_MAX_NAMES = 16384     /* listed in one folder */
};

struct tri_tree;

/* Opens a folder as root. TRI_IO when it is absent. */
TRI_MUST_CHECK enum tri_status tri_tree_open_folder(struct tri_tree **out, const char *path,
                                                    struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri_tree_open_memory(struct tri_tree **out, struct tri_error *err);
void tri_tree_close(struct tri_tree *tree); /* NULL is fine */

bool tri_tree_is_live(const struct tri_tree *tree); /* the root is "/" itself */

/*
 * Adds a file (or a symbolic link, `link` true and data its target) to a tree in memory. `origin`
 * and `line` say where it was captured. The same path again replaces. TRI_LIMIT over a limit.
 */
struct tri_tree_file {
    const char *path, *data;
    size_t bytes;
    bool link;
    const char *origin;
    uint32_t line;
};
TRI_MUST_CHECK enum tri_status tri_tree_put(struct tri_tree *tree, const struct tri_tree_file *file,
                                            struct tri_error *err);

/*
 * Reads up to out_bytes - 1 bytes of a file, NUL-terminated, trailing line ends removed. `path`
 * begins with '/'. False when it is absent or unreadable (then out is "").
 */
bool tri_tree_read(struct tri_tree *tree, const char *path, char *out, size_t out_bytes);
/* The same for bytes: nothing is removed or added. Returns how many, 0 when absent. */
size_t tri_tree_bytes(struct tri_tree *tree, const char *path, void *out, size_t out_bytes);
bool tri_tree_exists(struct tri_tree *tree, const char *path); /* a file or folder */
/* The target of a symbolic link. */
bool tri_tree_link(struct tri_tree *tree, const char *path, char *out, size_t out_bytes);

/* Calls back with each name in a folder, sorted by bytes; fewer when over TRI_TREE_MAX_NAMES. */
void tri_tree_list(struct tri_tree *tree, const char *path,
                   void (*name)(void *arg, const char *name), void *arg);

/* Where a file was captured; for a folder tree the path itself and line 0. */
const char *tri_tree_origin(struct tri_tree *tree, const char *path, uint32_t *line);

#endif
