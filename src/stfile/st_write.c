/*
 * The safetensors writer. A shard gets its header and its full size first, so that its data may be
 * written in any order by any number of threads, or stay holes.
 */
#include "stfile/stfile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/mem.h"

enum { LENGTH_BYTES = 8, HEADER_ALIGN = 8 };

static bool plain_text(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == '"' || *text == '\\' || *text == 0x7f)
            return false;
    return true;
}

static void add_entry(struct tri_buf *buf, const struct tri_st_entry *e, uint64_t begin)
{
    tri_buf_printf(buf, "\"%s\":{\"dtype\":\"%s\",\"shape\":[", e->name, e->dtype);
    for (int i = 0; i < e->rank; i++)
        tri_buf_printf(buf, "%s%" PRId64, i ? "," : "", e->shape[i]);
    tri_buf_printf(buf, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, begin + e->bytes);
}

/* The whole head: length, JSON, blanks. */
static enum tri_status build_header(struct tri_buf *buf, const struct tri_st_entry *entries,
                                    size_t count)
{
    uint64_t at = 0;
    tri_buf_add(buf, "\0\0\0\0\0\0\0\0", LENGTH_BYTES);
    tri_buf_putc(buf, '{');
    for (size_t i = 0; i < count; i++) {
        if (i)
            tri_buf_putc(buf, ',');
        add_entry(buf, &entries[i], at);
        at += entries[i].bytes;
    }
    tri_buf_putc(buf, '}');
    while (!buf->failed && buf->len_bytes % HEADER_ALIGN)
        tri_buf_putc(buf, ' ');
    if (buf->failed)
        return buf->failed;
    uint64_t length = buf->len_bytes - LENGTH_BYTES;
    for (int i = 0; i < LENGTH_BYTES; i++)
        buf->data[i] = (char)(length >> (8 * i));
    return TRI_OK;
}

uint64_t tri_st_header_bytes(const struct tri_st_entry *entries, size_t count)
{
    struct tri_buf buf;
    tri_buf_init(&buf, TRI_ST_MAX_HEADER_BYTES);
    uint64_t bytes = build_header(&buf, entries, count) ? 0 : buf.len_bytes;
    tri_buf_fini(&buf);
    return bytes;
}

enum tri_status tri_st_write(int fd, const char *path, uint64_t offset_bytes, const void *data,
                             size_t bytes, struct tri_error *err)
{
    const char *from = data;
    while (bytes) {
        ssize_t n = pwrite(fd, from, bytes, (off_t)offset_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return tri_fail_errno(err, TRI_IO, n < 0 ? errno : EIO, "cannot write %s", path);
        from += n;
        offset_bytes += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return TRI_OK;
}

static enum tri_status check_names(const char *path, const struct tri_st_entry *entries,
                                   size_t count, struct tri_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (!plain_text(entries[i].name))
            return tri_fail(err, TRI_ARG,
                            "%s: tensor %zu has a name that JSON cannot hold as it is", path, i);
    return TRI_OK;
}

enum tri_status tri_st_create(int *fd, const char *path, struct tri_st_entry *entries, size_t count,
                              struct tri_error *err)
{
    struct tri_buf head;
    int file = -1;
    enum tri_status st = check_names(path, entries, count, err);
    if (st)
        return st;
    tri_buf_init(&head, TRI_ST_MAX_HEADER_BYTES);
    st = build_header(&head, entries, count);
    if (st) {
        tri_fail(err, st, "%s: the header of %zu tensors does not fit in %d bytes", path, count,
                 TRI_ST_MAX_HEADER_BYTES);
        goto out;
    }
    uint64_t at = head.len_bytes;
    for (size_t i = 0; i < count; i++) {
        entries[i].offset_bytes = at;
        at += entries[i].bytes;
    }
    file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) {
        st = tri_fail_errno(err, TRI_IO, errno, "cannot create %s", path);
        goto out;
    }
    if (ftruncate(file, (off_t)at))
        st = tri_fail_errno(err, TRI_IO, errno, "cannot make %s %" PRIu64 " bytes long", path, at);
    if (!st)
        st = tri_st_write(file, path, 0, head.data, head.len_bytes, err);
out:
    tri_buf_fini(&head);
    if (st && file >= 0) {
        close(file);
        unlink(path);
    } else if (!st) {
        *fd = file;
    }
    return st;
}

/* Text is gathered and written in pieces of about this size. */
enum { INDEX_PIECE_BYTES = 1 << 20 };

struct tri_st_index {
    int fd;
    bool any;
    struct tri_buf text;
    uint64_t written_bytes;
    struct tri_error err; /* the first failure */
    char path[4096], part[4096 + 8];
};

enum tri_status tri_st_index_open(struct tri_st_index **out, const char *path, uint64_t total_bytes,
                                  struct tri_error *err)
{
    struct tri_st_index *x = tri_calloc(1, sizeof *x);
    if (!x)
        return tri_fail(err, TRI_NOMEM, "no memory for %s", path);
    snprintf(x->path, sizeof x->path, "%s", path);
    snprintf(x->part, sizeof x->part, "%s.part", x->path);
    x->fd = open(x->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (x->fd < 0) {
        tri_free(x);
        return tri_fail_errno(err, TRI_IO, errno, "cannot create %s.part", path);
    }
    tri_buf_init(&x->text, 2 * INDEX_PIECE_BYTES);
    tri_buf_printf(&x->text, "{\"metadata\":{\"total_size\":%" PRIu64 "},\"weight_map\":{",
                   total_bytes);
    *out = x;
    return TRI_OK;
}

static void flush(struct tri_st_index *x)
{
    if (x->err.status)
        return;
    if (x->text.failed) {
        tri_fail(&x->err, x->text.failed, "no memory for %s", x->path);
        return;
    }
    if (!tri_st_write(x->fd, x->part, x->written_bytes, x->text.data, x->text.len_bytes, &x->err))
        x->written_bytes += x->text.len_bytes;
    tri_buf_clear(&x->text);
}

void tri_st_index_add(struct tri_st_index *index, const char *tensor, const char *file)
{
    tri_buf_printf(&index->text, "%s\n\"%s\":\"%s\"", index->any ? "," : "", tensor, file);
    index->any = true;
    if (index->text.failed || index->text.len_bytes >= INDEX_PIECE_BYTES)
        flush(index);
}

enum tri_status tri_st_index_close(struct tri_st_index *index, struct tri_error *err)
{
    tri_buf_puts(&index->text, "\n}}\n");
    flush(index);
    if (close(index->fd) && !index->err.status)
        tri_fail_errno(&index->err, TRI_IO, errno, "cannot write %s", index->part);
    index->fd = -1;
    if (!index->err.status && rename(index->part, index->path))
        tri_fail_errno(&index->err, TRI_IO, errno, "cannot rename %s", index->part);
    enum tri_status st = index->err.status;
    if (st)
        tri_fail(err, st, "%s", index->err.text);
    tri_st_index_drop(index);
    return st;
}

void tri_st_index_drop(struct tri_st_index *index)
{
    if (!index)
        return;
    if (index->fd >= 0)
        close(index->fd);
    unlink(index->part); /* absent after a good close */
    tri_buf_fini(&index->text);
    tri_free(index);
}
