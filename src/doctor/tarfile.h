/*
 * A small tar (POSIX ustar) for gathered readings: regular files and symbolic links, sizes and
 * names bounded, nothing is ever written to disk by reading. Written and read by us and by any tar.
 */
#ifndef TRI_DOCTOR_TARFILE_H
#define TRI_DOCTOR_TARFILE_H

#include <stdbool.h>
#include "base/buf.h"

enum { TRI_TAR_MAX_BYTES = 32 << 20, TRI_TAR_MAX_MEMBERS = 100000, TRI_TAR_MAX_NAME = 320 };

struct tri_tar_member {
    char name[TRI_TAR_MAX_NAME],
        link[TRI_TAR_MAX_NAME]; /* link: target of a symbolic link, or "" */
    const char *data;
    size_t bytes;
};

bool tri_tar_is(const char *data, size_t bytes);

/*
 * Calls `member` for every file and link, in order, until one fails. *cut is set when the archive
 * ends inside a member or a header's checksum is wrong; what stood before has been given.
 */
TRI_MUST_CHECK enum tri_status
tri_tar_read(const char *name, const char *data, size_t bytes,
             enum tri_status (*member)(void *arg, const struct tri_tar_member *member,
                                       struct tri_error *err),
             void *arg, bool *cut, struct tri_error *err);

/* Appends a member; over-long names and a full buffer give TRI_LIMIT. */
TRI_MUST_CHECK enum tri_status tri_tar_add(struct tri_buf *out, const struct tri_tar_member *member,
                                           struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri_tar_end(struct tri_buf *out, struct tri_error *err);

#endif
