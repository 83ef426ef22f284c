/* Whole text files, plain or gzipped, with the limit on what comes out (a small .gz may unpack to
 * anything). The one place that uses zlib. */
#include "spec/spec.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include "base/mem.h"

enum { FIRST_BYTES = 1 << 16, READ_MAX = 1 << 24 };

/* gzread passes plain text through; *out grows by doubling up to one byte over the limit. */
static enum tri_status unpack(gzFile gz, char **out, size_t *out_bytes, const char *path,
                              size_t max_bytes, struct tri_error *err)
{
    size_t cap = FIRST_BYTES, len = 0;
    char *data = tri_malloc(cap + 1);
    int got = 1;
    while (data && got > 0 && len <= max_bytes) {
        if (len == cap) {
            char *more = tri_realloc(data, cap * 2 + 1);
            if (!more)
                tri_free(data);
            data = more;
            cap *= 2;
            continue;
        }
        size_t want = cap - len < READ_MAX ? cap - len : READ_MAX;
        got = gzread(gz, data + len, (unsigned)want);
        len += got > 0 ? (size_t)got : 0;
    }
    if (!data)
        return tri_fail(err, TRI_NOMEM, "%s: no memory to read it", path);
    data[len] = 0;
    int code = Z_OK;
    const char *why = gzerror(gz, &code);
    if (got < 0 || code != Z_OK || len > max_bytes) {
        tri_free(data);
        if (got < 0 && code == Z_ERRNO)
            return tri_fail_errno(err, TRI_IO, errno, "%s", path);
        if (len > max_bytes)
            return tri_fail(err, TRI_LIMIT, "%s: more than %zu bytes of text", path, max_bytes);
        return tri_fail(err, TRI_FORMAT, "%s: damaged gzip: %s", path, why);
    }
    *out = data;
    *out_bytes = len;
    return TRI_OK;
}

enum tri_status tri_spec_read_text(char **out, size_t *out_bytes, const char *path,
                                   size_t max_bytes, struct tri_error *err)
{
    struct stat sb;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    if (fd < 0 || fstat(fd, &sb)) {
        enum tri_status st = tri_fail_errno(err, TRI_IO, errno, "%s", path);
        if (fd >= 0)
            close(fd);
        return st;
    }
    if (!S_ISREG(sb.st_mode)) {
        close(fd);
        return tri_fail(err, TRI_IO, "%s: not a regular file", path);
    }
    gzFile gz = gzdopen(fd, "rb");
    if (!gz) {
        close(fd);
        return tri_fail(err, TRI_NOMEM, "%s: no memory to read it", path);
    }
    enum tri_status st = unpack(gz, out, out_bytes, path, max_bytes, err);
    gzclose(gz);
    return st;
}
