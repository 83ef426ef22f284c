/* The bounded growing buffer. See buf.h. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"

void tri_buf_init(struct tri_buf *buf, size_t max_bytes)
{
    *buf = (struct tri_buf){ .max_bytes = max_bytes };
}

void tri_buf_fini(struct tri_buf *buf)
{
    tri_free(buf->data);
    *buf = (struct tri_buf){ .max_bytes = buf->max_bytes };
}

void tri_buf_clear(struct tri_buf *buf)
{
    buf->len_bytes = 0;
    buf->failed = TRI_OK;
    if (buf->data)
        buf->data[0] = 0;
}

/* Makes room for `more` bytes and the final NUL. */
static enum tri_status reserve(struct tri_buf *buf, size_t more)
{
    if (buf->failed)
        return buf->failed;
    if (more > buf->max_bytes - buf->len_bytes)
        return buf->failed = TRI_LIMIT;
    size_t need = buf->len_bytes + more + 1;
    if (need <= buf->cap_bytes)
        return TRI_OK;
    size_t cap = buf->cap_bytes ? buf->cap_bytes : 64;
    while (cap < need)
        cap *= 2;
    char *data = tri_realloc(buf->data, cap);
    if (!data)
        return buf->failed = TRI_NOMEM;
    buf->data = data;
    buf->cap_bytes = cap;
    return TRI_OK;
}

enum tri_status tri_buf_add(struct tri_buf *buf, const void *data, size_t bytes)
{
    if (reserve(buf, bytes))
        return buf->failed;
    if (bytes)
        memcpy(buf->data + buf->len_bytes, data, bytes);
    buf->len_bytes += bytes;
    buf->data[buf->len_bytes] = 0;
    return TRI_OK;
}

enum tri_status tri_buf_puts(struct tri_buf *buf, const char *text)
{
    return tri_buf_add(buf, text, strlen(text));
}

enum tri_status tri_buf_putc(struct tri_buf *buf, char c)
{
    return tri_buf_add(buf, &c, 1);
}

enum tri_status tri_buf_printf(struct tri_buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int need = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (need < 0 || reserve(buf, (size_t)need))
        return buf->failed;
    va_start(args, format);
    vsnprintf(buf->data + buf->len_bytes, (size_t)need + 1, format, args);
    va_end(args);
    buf->len_bytes += (size_t)need;
    return TRI_OK;
}
