/* Whole or not there. See out_file.h. */
#include "cli/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Fills path (links followed, so that a link stays one) and part. */
static enum tri_status place(struct tri_out_file *out, const char *path, struct tri_error *err)
{
    struct stat sb;
    char real[PATH_MAX];
    if (!*path)
        return tri_fail(err, TRI_ARG, "the name of a file to write is empty");
    bool exists = stat(path, &sb) == 0;
    const char *name = exists && realpath(path, real) ? real : path;
    if (exists && S_ISDIR(sb.st_mode))
        return tri_fail(err, TRI_IO, "cannot write %s: it is a folder", path);
    if (strlen(name) >= sizeof out->path)
        return tri_fail(err, TRI_LIMIT, "a path of at most %zu bytes, please",
                        sizeof out->path - 1);
    memcpy(out->path, name, strlen(name) + 1);
    if (exists && !S_ISREG(sb.st_mode))
        return TRI_OK;
    int n = snprintf(out->part, sizeof out->part, "%s.%ld.part", name, (long)getpid());
    if (n >= (int)sizeof out->part)
        return tri_fail(err, TRI_LIMIT, "%.60s...: the path is too long", name);
    return TRI_OK;
}

enum tri_status tri_out_file_open(struct tri_out_file *out, const char *path, mode_t mode,
                                  struct tri_error *err)
{
    *out = (struct tri_out_file){ 0 };
    enum tri_status st = place(out, path, err);
    if (st)
        return st;
    const char *name = *out->part ? out->part : out->path;
    int fresh = *out->part ? O_CREAT | O_TRUNC | O_NOFOLLOW : 0;
    int fd = open(name, O_WRONLY | O_CLOEXEC | fresh, mode);
    out->f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (out->f)
        return TRI_OK;
    st = tri_fail_errno(err, TRI_IO, errno, "cannot create %s", path);
    if (fd >= 0)
        close(fd);
    return st;
}

enum tri_status tri_out_file_commit(struct tri_out_file *out, struct tri_error *err)
{
    bool regular = *out->part != 0;
    bool failed = ferror(out->f) || fflush(out->f) || (regular && fsync(fileno(out->f)));
    int why = errno;
    if (fclose(out->f) && !failed) {
        failed = true;
        why = errno;
    }
    out->f = NULL;
    if (!failed && regular && rename(out->part, out->path)) {
        failed = true;
        why = errno;
    }
    if (!failed)
        return TRI_OK;
    if (regular)
        unlink(out->part);
    return tri_fail_errno(err, TRI_IO, why, "cannot write %s", out->path);
}

void tri_out_file_drop(struct tri_out_file *out)
{
    if (!out->f)
        return;
    fclose(out->f);
    out->f = NULL;
    if (*out->part)
        unlink(out->part);
}
