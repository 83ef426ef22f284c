/*
 * Chunked request bodies, strictly: hex sizes of at most 15 digits, CRLF everywhere, short
 * extensions that are skipped, trailers that are dropped (RFC 9112 section 7.1).
 */
#include "http/http.h"

enum {
    SIZE,
    EXTENSION,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER,
    TRAILER_LINE,
    TRAILER_LF,
    END_LF
};

static int fail(struct tri_http_fault *fault, int status, const char *text)
{
    fault->status = status;
    fault->text = text;
    return -1;
}

static int hex(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int size_byte(struct tri_http_chunks *c, unsigned char b, struct tri_http_fault *fault)
{
    int digit = hex(b);
    if (digit >= 0 && c->digits < 15) {
        c->left_bytes = c->left_bytes * 16 + (uint64_t)digit;
        c->digits++;
        return 0;
    }
    if (c->digits == 0 || (b != ';' && b != '\r'))
        return fail(fault, 400, "a chunk size is no number");
    c->state = b == ';' ? EXTENSION : SIZE_LF;
    return 0;
}

static int extension_byte(struct tri_http_chunks *c, unsigned char b, struct tri_http_fault *fault)
{
    if (b == '\r')
        c->state = SIZE_LF;
    else if (b < 0x20 || b == 0x7f)
        return fail(fault, 400, "a control byte in a chunk extension");
    return 0;
}

/* Lines between chunks: everything but data. Returns 1 at the end. */
static int line_byte(struct tri_http_chunks *c, unsigned char b, struct tri_http_fault *fault)
{
    bool lf_due =
        c->state == SIZE_LF || c->state == DATA_LF || c->state == TRAILER_LF || c->state == END_LF;
    if (lf_due && b != '\n')
        return fail(fault, 400, "a chunk line ends without LF");
    if (++c->line_bytes > TRI_HTTP_MAX_CHUNK_LINE_BYTES && c->state <= SIZE_LF)
        return fail(fault, 400, "a chunk extension is too long");
    if (c->state >= TRAILER && ++c->trailer_bytes > TRI_HTTP_MAX_TRAILER_BYTES)
        return fail(fault, 431, "the trailers are too long");
    switch (c->state) {
    case SIZE:
        return size_byte(c, b, fault);
    case EXTENSION:
        return extension_byte(c, b, fault);
    case SIZE_LF:
        c->state = c->left_bytes ? DATA : TRAILER;
        return 0;
    case DATA_CR:
        if (b != '\r')
            return fail(fault, 400, "a chunk is longer than its size");
        c->state = DATA_LF;
        return 0;
    case DATA_LF:
        c->state = SIZE;
        c->digits = 0;
        c->line_bytes = 0;
        return 0;
    case TRAILER:
        c->state = b == '\r' ? END_LF : TRAILER_LINE;
        return b < 0x20 && b != '\r' ? fail(fault, 400, "a control byte in a trailer") : 0;
    case TRAILER_LINE:
        if (b == '\r')
            c->state = TRAILER_LF;
        return b < 0x20 && b != '\r' && b != '\t' ? fail(fault, 400, "a control byte in a trailer")
                                                  : 0;
    case TRAILER_LF:
        c->state = TRAILER;
        return 0;
    default:
        return 1;
    }
}

int tri_http_chunks_feed(struct tri_http_chunks *c, struct tri_http_text *text,
                         struct tri_buf *body, struct tri_http_fault *fault)
{
    while (text->bytes) {
        if (c->state == DATA) {
            size_t n = text->bytes < c->left_bytes ? text->bytes : (size_t)c->left_bytes;
            enum tri_status st = tri_buf_add(body, text->at, n);
            if (st != TRI_OK)
                return st == TRI_LIMIT ? fail(fault, 413, "the body is too large")
                                       : fail(fault, 503, "no memory for the body");
            text->at += n;
            text->bytes -= n;
            c->left_bytes -= n;
            if (c->left_bytes == 0)
                c->state = DATA_CR;
            continue;
        }
        int r = line_byte(c, (unsigned char)*text->at, fault);
        if (r < 0)
            return r;
        text->at++;
        text->bytes--;
        if (r > 0)
            return 1;
    }
    return 0;
}
