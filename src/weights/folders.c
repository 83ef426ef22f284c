/*
 * A checkpoint over several folders, usually one a drive: which folder a shard is taken from. A
 * shard that is in more than one is read from the drive that has the least to hold so far.
 */
#include "weights/weights_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/mem.h"

static enum tri_status add_folder(struct tri_checkpoint *c, const char *path,
                                  const struct tri_notes *notes, struct tri_error *err)
{
    struct stat sb;
    if (stat(path, &sb))
        return tri_fail_errno(err, TRI_IO, errno, "%s", path);
    if (!S_ISDIR(sb.st_mode))
        return tri_fail(err, TRI_ARG, "%s: not a folder", path);
    for (int i = 0; i < c->folder_count; i++)
        if (c->folders[i].device == (uint64_t)sb.st_dev &&
            c->folders[i].inode == (uint64_t)sb.st_ino) {
            tri_note(notes, "%s is the same folder as %s: counted once", path, c->folders[i].path);
            return TRI_OK;
        }
    struct tri__weights_folder *f = &c->folders[c->folder_count];
    *f = (struct tri__weights_folder){ .path = tri_strdup(path),
                                       .device = (uint64_t)sb.st_dev,
                                       .inode = (uint64_t)sb.st_ino };
    if (!f->path)
        return tri_fail(err, TRI_NOMEM, "%s: no memory to open it", path);
    c->folder_count++;
    return TRI_OK;
}

enum tri_status tri__weights_folders_init(struct tri_checkpoint *c, const char *folder,
                                          const struct tri_folders *more,
                                          const struct tri_notes *notes, struct tri_error *err)
{
    c->folders[0].path = tri_strdup(folder);
    if (!c->folders[0].path)
        return tri_fail(err, TRI_NOMEM, "%s: no memory to open it", folder);
    struct stat sb;
    if (stat(folder, &sb) == 0) { /* else what is looked for in it tells */
        c->folders[0].device = (uint64_t)sb.st_dev;
        c->folders[0].inode = (uint64_t)sb.st_ino;
    }
    c->folder_count = 1;
    enum tri_status st = TRI_OK;
    for (int i = 0; more && i < more->n && !st; i++)
        st = add_folder(c, more->name[i], notes, err);
    return st;
}

void tri__weights_folders_fini(struct tri_checkpoint *c)
{
    for (int i = 0; i < c->folder_count; i++)
        tri_free(c->folders[i].path);
    c->folder_count = 0;
}

static uint64_t bytes_on_drive(const struct tri_checkpoint *c, uint64_t device)
{
    uint64_t sum = 0;
    for (int i = 0; i < c->folder_count; i++)
        sum += c->folders[i].device == device ? c->folders[i].bytes : 0;
    return sum;
}

enum tri_status tri__weights_locate(struct tri_checkpoint *c, const char *name,
                                    char path[TRI__WEIGHTS_PATH_BYTES], struct tri_error *err)
{
    int best = -1;
    uint64_t least = 0, bytes = 0;
    for (int i = 0; i < c->folder_count; i++) {
        struct stat sb;
        if (snprintf(path, TRI__WEIGHTS_PATH_BYTES, "%s/%s", c->folders[i].path, name) >=
            TRI__WEIGHTS_PATH_BYTES)
            return tri_fail(err, TRI_ARG, "a path in the model's folder is longer than %d bytes",
                            TRI__WEIGHTS_PATH_BYTES);
        if (stat(path, &sb))
            continue;
        c->folders[i].has_shards = true;
        if (best >= 0 && (uint64_t)sb.st_size != bytes)
            return tri_fail(err, TRI_FORMAT,
                            "%s is in %s and in %s, but the two differ in size: remove the wrong "
                            "one",
                            name, c->folders[best].path, c->folders[i].path);
        uint64_t load = bytes_on_drive(c, c->folders[i].device);
        bytes = (uint64_t)sb.st_size;
        if (best < 0 || load < least) {
            best = i;
            least = load;
        }
    }
    if (best < 0 && c->folder_count > 1)
        return tri_fail(err, TRI_IO, "%s is missing: it is in none of the %d folders, %s first",
                        name, c->folder_count, c->folders[0].path);
    best = best < 0 ? 0 : best; /* one folder: opening the file tells what is wrong */
    c->folders[best].bytes += bytes;
    snprintf(path, TRI__WEIGHTS_PATH_BYTES, "%s/%s", c->folders[best].path, name);
    return TRI_OK;
}

enum tri_status tri__weights_folders_used(const struct tri_checkpoint *c, struct tri_error *err)
{
    for (int i = 1; i < c->folder_count; i++)
        if (!c->folders[i].has_shards)
            return tri_fail(err, TRI_ARG, "%s: no shard of %s is here; is it the right folder?",
                            c->folders[i].path, c->folders[0].path);
    return TRI_OK;
}
