/*
 * The head checker: reads a request head strictly, byte by byte. It is the only thing that decides
 * where a request ends, so it accepts nothing that two programs could read in two ways (RFC 9112
 * sections 2-7; classes of smuggling: RFC 9112 section 11).
 */
#include "http/http.h"

#include <string.h>
#include <strings.h>

static bool fault_is(struct tri_http_fault *fault, int status, const char *text)
{
    fault->status = status;
    fault->text = text;
    return false;
}

static int64_t no_head(struct tri_http_fault *fault, int status, const char *text)
{
    fault_is(fault, status, text);
    return -1;
}

/* RFC 9110 5.6.2 */
static bool is_token_byte(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_value_byte(unsigned char c)
{
    return c == '\t' || (c >= 0x20 && c != 0x7f);
}

/* --- the end --------------------------------------------------------------------------------- */

int64_t tri_http_head_find(const char *text, size_t bytes, size_t *seen,
                           struct tri_http_fault *fault)
{
    size_t line = *seen; /* always the start of a line */
    for (;;) {
        const char *lf = line < bytes ? memchr(text + line, '\n', bytes - line) : NULL;
        size_t end = lf ? (size_t)(lf - text) : bytes;
        if (line == 0 && end > TRI_HTTP_MAX_LINE_BYTES)
            return no_head(fault, 414, "the request line is too long");
        if (end > TRI_HTTP_MAX_HEAD_BYTES)
            return no_head(fault, 431, "the request head is too long");
        for (size_t i = line; i < end; i++) {
            unsigned char c = (unsigned char)text[i];
            bool last_cr = c == '\r' && i + 1 == end;
            if (!is_value_byte(c) && !last_cr)
                return no_head(fault, 400, "a control byte in the request head");
        }
        if (!lf)
            break;
        if (end == line || text[end - 1] != '\r')
            return no_head(fault, 400, "a line of the request head ends without CR");
        if (end - line == 1 && line > 0)
            return (int64_t)end + 1;
        if (end - line == 1)
            return no_head(fault, 400, "an empty line before the request");
        line = end + 1;
    }
    *seen = line;
    return 0;
}

/* --- request line ---------------------------------------------------------------------------- */

static bool read_method(struct tri_http_head *h, const char *at, size_t bytes,
                        struct tri_http_fault *fault)
{
    static const char *const known[] = {
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"
    };
    h->method = (struct tri_http_text){ at, bytes };
    for (size_t i = 0; i < bytes; i++)
        if (!is_token_byte((unsigned char)at[i]))
            return fault_is(fault, 400, "the method is no token");
    if (bytes == 0)
        return fault_is(fault, 400, "the request line has no method");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i]) == bytes && !memcmp(known[i], at, bytes))
            return true;
    return fault_is(fault, 501, "this method is not served");
}

static bool method_is(const struct tri_http_head *h, const char *name)
{
    return h->method.bytes == strlen(name) && !memcmp(h->method.at, name, h->method.bytes);
}

/* Splits the path from the query; `t` begins with '/'. */
static void split_target(struct tri_http_head *h, struct tri_http_text t)
{
    const char *mark = memchr(t.at, '?', t.bytes);
    h->path = t;
    h->query = (struct tri_http_text){ t.at + t.bytes, 0 };
    if (mark) {
        h->path.bytes = (size_t)(mark - t.at);
        h->query = (struct tri_http_text){ mark + 1, t.bytes - h->path.bytes - 1 };
    }
}

/* Origin form, absolute form (its authority is compared with Host later), or "*" for OPTIONS. */
static bool read_target(struct tri_http_head *h, struct tri_http_text t,
                        struct tri_http_text *authority, struct tri_http_fault *fault)
{
    h->target = t;
    *authority = (struct tri_http_text){ NULL, 0 };
    for (size_t i = 0; i < t.bytes; i++)
        if ((unsigned char)t.at[i] <= 0x20 || (unsigned char)t.at[i] >= 0x7f || t.at[i] == '#')
            return fault_is(fault, 400, "a byte in the target that must be percent-encoded");
    if (t.bytes && t.at[0] == '/') {
        split_target(h, t);
        return true;
    }
    if (t.bytes == 1 && t.at[0] == '*' && method_is(h, "OPTIONS")) {
        split_target(h, t);
        return true;
    }
    size_t scheme = t.bytes > 7 && !strncasecmp(t.at, "http://", 7)    ? 7
                    : t.bytes > 8 && !strncasecmp(t.at, "https://", 8) ? 8
                                                                       : 0;
    if (!scheme)
        return fault_is(fault, 400, "the target is neither a path nor an http URL");
    const char *slash = memchr(t.at + scheme, '/', t.bytes - scheme);
    if (!slash)
        return fault_is(fault, 400, "the target has no path");
    *authority = (struct tri_http_text){ t.at + scheme, (size_t)(slash - t.at) - scheme };
    split_target(h, (struct tri_http_text){ slash, t.bytes - (size_t)(slash - t.at) });
    return true;
}

static bool read_version(struct tri_http_head *h, const char *at, size_t bytes,
                         struct tri_http_fault *fault)
{
    if (bytes != 8 || memcmp(at, "HTTP/", 5) || at[6] != '.' || at[5] < '0' || at[5] > '9' ||
        at[7] < '0' || at[7] > '9')
        return fault_is(fault, 400, "the request line must end in HTTP/1.1");
    if (at[5] != '1' || at[7] > '1')
        return fault_is(fault, 505, "only HTTP/1.1 and HTTP/1.0 are served");
    h->minor = at[7] - '0';
    return true;
}

static bool read_request_line(struct tri_http_head *h, struct tri_http_text line,
                              struct tri_http_text *authority, struct tri_http_fault *fault)
{
    const char *first = memchr(line.at, ' ', line.bytes);
    if (!first)
        return fault_is(fault, 400, "the request line has no target");
    size_t method = (size_t)(first - line.at);
    const char *target = first + 1;
    size_t rest = line.bytes - method - 1;
    const char *second = memchr(target, ' ', rest);
    if (!second)
        return fault_is(fault, 400, "the request line has no version");
    size_t bytes = (size_t)(second - target);
    return read_method(h, line.at, method, fault) &&
           read_version(h, second + 1, rest - bytes - 1, fault) &&
           read_target(h, (struct tri_http_text){ target, bytes }, authority, fault);
}

/* --- fields ---------------------------------------------------------------------------------- */

static bool read_field(struct tri_http_head *h, struct tri_http_text line,
                       struct tri_http_fault *fault)
{
    if (line.at[0] == ' ' || line.at[0] == '\t')
        return fault_is(fault, 400, "a field is folded over lines");
    const char *colon = memchr(line.at, ':', line.bytes);
    if (!colon || colon == line.at)
        return fault_is(fault, 400, "a field has no name or no colon");
    size_t name = (size_t)(colon - line.at);
    for (size_t i = 0; i < name; i++)
        if (!is_token_byte((unsigned char)line.at[i]))
            return fault_is(fault, 400, "a field name holds a byte that is not allowed there");
    if (h->fields == TRI_HTTP_MAX_FIELDS)
        return fault_is(fault, 431, "too many fields");
    const char *value = colon + 1, *end = line.at + line.bytes;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    h->field[h->fields++] =
        (struct tri_http_field){ { line.at, name }, { value, (size_t)(end - value) } };
    return true;
}

static bool text_is(struct tri_http_text t, const char *want)
{
    return t.bytes == strlen(want) && !strncasecmp(t.at, want, t.bytes);
}

struct tri_http_text tri_http_head_field(const struct tri_http_head *head, const char *name)
{
    for (size_t i = 0; i < head->fields; i++)
        if (text_is(head->field[i].name, name))
            return head->field[i].value;
    return (struct tri_http_text){ NULL, 0 };
}

static size_t count_fields(const struct tri_http_head *h, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < h->fields; i++)
        n += text_is(h->field[i].name, name);
    return n;
}

/* --- what the fields mean together ----------------------------------------------------------- */

static bool read_host(struct tri_http_head *h, struct tri_http_text authority,
                      struct tri_http_fault *fault)
{
    size_t n = count_fields(h, "Host");
    if (n > 1)
        return fault_is(fault, 400, "several Host fields");
    if (n == 0)
        return h->minor == 0 ? true : fault_is(fault, 400, "no Host field");
    struct tri_http_text host = tri_http_head_field(h, "Host");
    for (size_t i = 0; i < host.bytes; i++)
        if (!host.at[i] ||
            (!is_token_byte((unsigned char)host.at[i]) && !strchr(":[]", host.at[i])))
            return fault_is(fault, 400, "the Host field is no host");
    if (authority.at &&
        (authority.bytes != host.bytes || strncasecmp(authority.at, host.at, host.bytes) != 0))
        return fault_is(fault, 400, "the target and the Host field name different hosts");
    return true;
}

static bool read_length(struct tri_http_head *h, struct tri_http_fault *fault)
{
    size_t n = count_fields(h, "Content-Length");
    h->content_length = -1;
    if (n == 0)
        return true;
    if (n > 1)
        return fault_is(fault, 400, "several Content-Length fields");
    struct tri_http_text v = tri_http_head_field(h, "Content-Length");
    int64_t length = 0;
    if (v.bytes == 0 || v.bytes > 18)
        return fault_is(fault, 400, "Content-Length is no length");
    for (size_t i = 0; i < v.bytes; i++) {
        if (v.at[i] < '0' || v.at[i] > '9')
            return fault_is(fault, 400, "Content-Length is no length");
        length = length * 10 + (v.at[i] - '0');
    }
    h->content_length = length;
    return true;
}

static bool read_coding(struct tri_http_head *h, struct tri_http_fault *fault)
{
    size_t n = count_fields(h, "Transfer-Encoding");
    struct tri_http_text content = tri_http_head_field(h, "Content-Encoding");
    if (content.at && !text_is(content, "identity"))
        return fault_is(fault, 415, "bodies with a Content-Encoding are not served");
    if (n == 0)
        return true;
    if (h->content_length >= 0)
        return fault_is(fault, 400, "both Content-Length and Transfer-Encoding");
    if (n > 1 || !text_is(tri_http_head_field(h, "Transfer-Encoding"), "chunked"))
        return fault_is(fault, 400, "a Transfer-Encoding other than chunked");
    if (h->minor == 0)
        return fault_is(fault, 400, "Transfer-Encoding in HTTP/1.0");
    h->chunked = true;
    return true;
}

/* True if the comma-separated list in any field of that name holds the word. */
static bool list_has(const struct tri_http_head *h, const char *name, const char *word)
{
    for (size_t i = 0; i < h->fields; i++) {
        if (!text_is(h->field[i].name, name))
            continue;
        const char *at = h->field[i].value.at, *end = at + h->field[i].value.bytes;
        while (at < end) {
            const char *comma = memchr(at, ',', (size_t)(end - at));
            const char *stop = comma ? comma : end;
            while (at < stop && (*at == ' ' || *at == '\t'))
                at++;
            size_t bytes = (size_t)(stop - at);
            while (bytes && (at[bytes - 1] == ' ' || at[bytes - 1] == '\t'))
                bytes--;
            if (text_is((struct tri_http_text){ at, bytes }, word))
                return true;
            at = stop + (comma != NULL);
        }
    }
    return false;
}

static bool read_expect(struct tri_http_head *h, struct tri_http_fault *fault)
{
    struct tri_http_text expect = tri_http_head_field(h, "Expect");
    if (!expect.at || h->minor == 0)
        return true;
    if (!text_is(expect, "100-continue"))
        return fault_is(fault, 417, "an expectation other than 100-continue");
    h->expects_continue = h->chunked || h->content_length > 0;
    return true;
}

bool tri_http_head_read(struct tri_http_head *out, const char *text, size_t bytes,
                        struct tri_http_fault *fault)
{
    struct tri_http_text authority = { NULL, 0 };
    const char *at = text, *end = text + bytes;
    *out = (struct tri_http_head){ .content_length = -1 };
    for (bool first = true; at < end; first = false) {
        const char *lf = memchr(at, '\n', (size_t)(end - at));
        if (!lf || lf == at || lf[-1] != '\r')
            return fault_is(fault, 400, "a line of the request head ends without CR");
        struct tri_http_text line = { at, (size_t)(lf - at) - 1 };
        at = lf + 1;
        if (line.bytes == 0)
            break;
        if (!(first ? read_request_line(out, line, &authority, fault)
                    : read_field(out, line, fault)))
            return false;
    }
    if (!out->method.at)
        return fault_is(fault, 400, "the request is empty");
    if (!read_host(out, authority, fault) || !read_length(out, fault) || !read_coding(out, fault) ||
        !read_expect(out, fault))
        return false;
    bool close = list_has(out, "Connection", "close");
    out->keep_alive = !close && (out->minor == 1 || list_has(out, "Connection", "keep-alive"));
    return true;
}
