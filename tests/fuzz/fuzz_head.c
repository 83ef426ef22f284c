/*
 * A request head: whatever is accepted keeps the rules that make its end unambiguous; and a head
 * cut into pieces is found where the whole one is. Then the rest as a chunked body, cut anywhere.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "http/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_head(const struct tri_http_head *h, const char *text, size_t n)
{
    TRI_ASSERT(h->fields <= TRI_HTTP_MAX_FIELDS && n <= TRI_HTTP_MAX_HEAD_BYTES + 1);
    TRI_ASSERT(!(h->chunked && h->content_length >= 0));
    TRI_ASSERT(h->content_length >= -1 && (h->minor == 0 || h->minor == 1));
    TRI_ASSERT(h->path.bytes >= 1 && h->path.at > text && h->path.at + h->path.bytes < text + n);
    TRI_ASSERT(h->minor == 0 || tri_http_head_field(h, "Host").at);
    TRI_ASSERT(!memchr(text, 0, n));
    for (size_t i = 1; i < n; i++)
        TRI_ASSERT((text[i] == '\n') == (text[i - 1] == '\r'));
}

static int decode(const char *text, size_t bytes, size_t step, uint64_t *length)
{
    struct tri_http_chunks c = { 0 };
    struct tri_http_fault fault = { 0 };
    struct tri_buf body;
    int r = 0;
    tri_buf_init(&body, 4096);
    for (size_t at = 0; at < bytes && r == 0; at += step) {
        struct tri_http_text t = { text + at, bytes - at < step ? bytes - at : step };
        r = tri_http_chunks_feed(&c, &t, &body, &fault);
    }
    *length = body.len_bytes;
    tri_buf_fini(&body);
    return r < 0 ? fault.status : r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *text = (const char *)data;
    static struct tri_http_head head;
    struct tri_http_fault fault = { 0 };
    size_t seen = 0, start = 0;
    int64_t n = tri_http_head_find(text, bytes, &seen, &fault);
    if (n > 0 && tri_http_head_read(&head, text, (size_t)n, &fault))
        check_head(&head, text, (size_t)n);
    TRI_ASSERT(n >= 0 || fault.status >= 400);
    int64_t again = 0;
    seen = 0;
    for (size_t i = 0; i < bytes && i < 2048 && again == 0; i++)
        again = tri_http_head_find(text, i + 1, &seen, &fault);
    TRI_ASSERT(again == 0 || n < 0 || again == n);
    start = n > 0 ? (size_t)n : 0;
    uint64_t a = 0, b = 0;
    int whole = decode(text + start, bytes - start, bytes + 1, &a);
    int pieces = decode(text + start, bytes - start, 1, &b);
    TRI_ASSERT(whole == pieces && (whole == 413 || a == b));
    return 0;
}
