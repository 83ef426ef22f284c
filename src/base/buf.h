/*
 * A growing byte buffer that is born with its maximum (curl's dynbuf idea): it can never be made
 * to eat all memory by input. Plain data, owned by the caller; always NUL-terminated after the
 * first append, so that text can be read in place.
 */
#ifndef TRI_BASE_BUF_H
#define TRI_BASE_BUF_H

#include <stddef.h>
#include "base/status.h"

struct tri_buf {
    char *data;
    size_t len_bytes, cap_bytes, max_bytes;
    enum tri_status failed; /* sticky: TRI_LIMIT or TRI_NOMEM; later appends do nothing */
};

void tri_buf_init(struct tri_buf *buf, size_t max_bytes);
void tri_buf_fini(struct tri_buf *buf);
void tri_buf_clear(struct tri_buf *buf); /* keeps the memory, forgets content and failure */

/* Each returns buf->failed, so a run of appends may be checked once at its end. */
enum tri_status tri_buf_add(struct tri_buf *buf, const void *data, size_t bytes);
enum tri_status tri_buf_puts(struct tri_buf *buf, const char *text);
enum tri_status tri_buf_putc(struct tri_buf *buf, char c);
enum tri_status tri_buf_printf(struct tri_buf *buf, const char *format, ...) TRI_PRINTF(2, 3);

#endif
