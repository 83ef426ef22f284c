/* Bounded JSON over jansson, and whole-file reading. See json.h. */
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/json_priv.h"
#include "base/mem.h"

/*
 * Nesting depth of JSON text outside strings, before any parser recurses. The text may be
 * invalid: only an upper bound of the depth is needed here.
 */
static size_t nesting(const char *text, size_t bytes)
{
    size_t depth = 0, deepest = 0;
    int in_string = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = 0;
        } else if (c == '"') {
            in_string = 1;
        } else if (c == '{' || c == '[') {
            if (++depth > deepest)
                deepest = depth;
        } else if ((c == '}' || c == ']') && depth) {
            depth--;
        }
    }
    return deepest;
}

enum tri_status tri_json_parse(json_t **out, const char *name, const char *text, size_t bytes,
                               size_t max_bytes, struct tri_error *err)
{
    if (bytes > max_bytes)
        return tri_fail(err, TRI_LIMIT, "%s: JSON of %zu bytes, at most %zu are read", name, bytes,
                        max_bytes);
    if (nesting(text, bytes) > TRI_JSON_MAX_DEPTH)
        return tri_fail(err, TRI_LIMIT, "%s: JSON nested deeper than %d levels", name,
                        TRI_JSON_MAX_DEPTH);
    json_error_t why;
    json_t *json = NULL;
    if (!tri__json_load(&json, text, bytes, &why))
        return tri_fail(err, TRI_NOMEM, "%s: no memory for its JSON", name);
    if (!json) {
        char safe[200];
        if (json_error_code(&why) == json_error_numeric_overflow)
            return tri_fail(err, TRI_FORMAT,
                            "%s: JSON, line %d, column %d: the number there is too large (integers "
                            "have 64 bits with their sign, others stay below 1.8e308)",
                            name, why.line, why.column);
        return tri_fail(err, TRI_FORMAT, "%s: not valid JSON: line %d, column %d: %s", name,
                        why.line, why.column,
                        tri_printable(safe, sizeof safe, why.text, strlen(why.text)));
    }
    *out = json;
    return TRI_OK;
}

/* Reads until the end or until one byte over the limit is seen. */
static enum tri_status read_all(int fd, char **out, size_t *out_bytes, const char *path,
                                size_t max_bytes, struct tri_error *err)
{
    struct stat sb;
    if (fstat(fd, &sb))
        return tri_fail_errno(err, TRI_IO, errno, "%s", path);
    if (S_ISDIR(sb.st_mode))
        return tri_fail(err, TRI_IO, "%s: is a folder, a file is needed", path);
    size_t cap = S_ISREG(sb.st_mode) && sb.st_size > 0 ? (size_t)sb.st_size + 1 : 65536;
    if (S_ISREG(sb.st_mode) && (uint64_t)sb.st_size > max_bytes)
        return tri_fail(err, TRI_LIMIT, "%s: %lld bytes, at most %zu are read", path,
                        (long long)sb.st_size, max_bytes);
    char *data = tri_malloc(cap + 1);
    size_t len = 0;
    while (data) {
        ssize_t got = read(fd, data + len, cap - len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            tri_free(data);
            return tri_fail_errno(err, TRI_IO, errno, "%s", path);
        }
        if (got == 0)
            break;
        len += (size_t)got;
        if (len > max_bytes) {
            tri_free(data);
            return tri_fail(err, TRI_LIMIT, "%s: more than %zu bytes", path, max_bytes);
        }
        if (len == cap) {
            char *more = tri_realloc(data, cap * 2 + 1);
            if (!more)
                tri_free(data);
            data = more;
            cap *= 2;
        }
    }
    if (!data)
        return tri_fail(err, TRI_NOMEM, "%s: no memory to read it", path);
    data[len] = 0;
    *out = data;
    *out_bytes = len;
    return TRI_OK;
}

enum tri_status tri_read_file(char **out, size_t *out_bytes, const char *path, size_t max_bytes,
                              struct tri_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return tri_fail_errno(err, TRI_IO, errno, "%s", path);
    enum tri_status st = read_all(fd, out, out_bytes, path, max_bytes, err);
    close(fd);
    return st;
}

enum tri_status tri_open_plain(int *out, const char *path, struct tri_error *err)
{
    struct stat sb;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tri_fail_errno(err, TRI_IO, errno, "%s", path);
    enum tri_status st = TRI_OK;
    if (fstat(fd, &sb))
        st = tri_fail_errno(err, TRI_IO, errno, "%s", path);
    else if (S_ISDIR(sb.st_mode))
        st = tri_fail(err, TRI_IO, "%s: is a folder, a file is needed", path);
    else if (!S_ISREG(sb.st_mode))
        st = tri_fail(err, TRI_IO, "%s: not a regular file", path);
    if (st)
        close(fd);
    else
        *out = fd;
    return st;
}

enum tri_status tri_read_plain_file(char **out, size_t *out_bytes, const char *path,
                                    size_t max_bytes, struct tri_error *err)
{
    int fd = -1;
    enum tri_status st = tri_open_plain(&fd, path, err);
    if (st)
        return st;
    st = read_all(fd, out, out_bytes, path, max_bytes, err);
    close(fd);
    return st;
}

enum tri_status tri_json_load(json_t **out, const char *path, size_t max_bytes,
                              struct tri_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    enum tri_status st = tri_read_file(&text, &bytes, path, max_bytes, err);
    if (st)
        return st;
    st = tri_json_parse(out, path, text, bytes, max_bytes, err);
    tri_free(text);
    return st;
}

void tri_json_put_real(struct tri_buf *out, double v)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        double back = 0;
        if (sscanf(text, "%lf", &back) == 1 && !(back < v) && !(back > v))
            break;
    }
    tri_buf_puts(out, text);
    if (!strpbrk(text, ".en"))
        tri_buf_puts(out, ".0");
}
