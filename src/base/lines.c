/*
 * Cleaning and splitting of captured text. See lines.h. Everything is one pass over the bytes into
 * one allocation, so a 60 KB lspci costs a fraction of a millisecond.
 */
#include "base/lines.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/mem.h"

/* Length of the escape sequence at `p` (which is ESC): CSI, OSC, or two bytes. */
static size_t escape_length(const char *p, size_t left)
{
    if (left < 2)
        return left;
    size_t i = 2;
    if (p[1] == '[') {
        while (i < left && !(p[i] >= 0x40 && p[i] <= 0x7e) && p[i] != '\n')
            i++;
        return i < left && p[i] != '\n' ? i + 1 : i;
    }
    if (p[1] == ']') {
        while (i < left && p[i] != '\a' && p[i] != '\n' && p[i] != 0x1b)
            i++;
        return i < left && p[i] == '\a' ? i + 1 : i;
    }
    return p[1] == '\n' ? 1 : 2;
}

/* UTF-16 with a byte-order mark (a PowerShell capture) as one byte a character; 0 when it is not.
 */
static size_t narrow_utf16(const char *in, size_t bytes, char *out)
{
    if (bytes < 2 ||
        !((in[0] == '\xff' && in[1] == '\xfe') || (in[0] == '\xfe' && in[1] == '\xff')))
        return 0;
    size_t low = in[0] == '\xff' ? 0 : 1, n = 0;
    for (size_t i = 2; i + 1 < bytes; i += 2) {
        char c = in[i + low], high = in[i + 1 - low];
        out[n++] = high == 0 && c != 0 && (unsigned char)c < 0x80 ? c : ' ';
    }
    return n;
}

/* Copies `in` without escapes, CR and other control bytes. Returns the bytes written (<= bytes). */
static size_t clean(const char *in, size_t bytes, char *out)
{
    size_t n = 0, i = 0;
    if (bytes >= 3 && !memcmp(in, "\xef\xbb\xbf", 3))
        i = 3;
    while (i < bytes) {
        unsigned char c = (unsigned char)in[i];
        if (c >= 0x20 && c < 0x7f) {
            out[n++] = (char)c;
            i++;
        } else if (c == 0x1b) {
            i += escape_length(in + i, bytes - i);
        } else if (c == '\r') {
            size_t j = i + 1;
            while (j < bytes && in[j] == '\r')
                j++;
            if (j < bytes && in[j] != '\n')
                out[n++] = ' ';
            i = j;
        } else if (c == 0xc2 && i + 1 < bytes && in[i + 1] == '\xa0') { /* no-break space */
            out[n++] = ' ';
            i += 2;
        } else {
            out[n++] = c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7f) ? (char)c : ' ';
            i++;
        }
    }
    return n;
}

/* Skips "[1,0]<stdout>:" or "[1,0]<stderr> " (Open MPI), with or without the stream. */
static const char *skip_mpi(const char *p)
{
    if (*p != '[' || !isdigit((unsigned char)p[1]))
        return p;
    const char *q = p + 1;
    while (isdigit((unsigned char)*q) || *q == ',')
        q++;
    if (*q != ']' || !memchr(p, ',', (size_t)(q - p)))
        return p;
    q++;
    if (*q == '<') {
        const char *end = strchr(q, '>');
        if (!end || end - q > 16)
            return p;
        q = end + 1;
    } else if (*q != ':') {
        return p;
    }
    return *q == ':' ? q + 1 : q;
}

/* Skips "(RayWorker pid=75833) " and its like; the bracket must hold "pid=". */
static const char *skip_worker(const char *p)
{
    if (*p != '(')
        return p;
    const char *end = strchr(p, ')');
    const char *pid = strstr(p, "pid=");
    if (!end || end - p > 120 || !pid || pid > end)
        return p;
    end++;
    return *end == ' ' ? end + 1 : end;
}

/* Skips "0: " (srun --label) and "name-1  | " (docker compose). */
static const char *skip_label(const char *p)
{
    const char *q = p;
    while (*q == ' ')
        q++;
    const char *digits = q;
    while (isdigit((unsigned char)*q))
        q++;
    if (q > digits && q - digits < 6 && *q == ':' && (q[1] == ' ' || q[1] == '\t'))
        return q[1] == ' ' ? q + 2 : q + 1;
    const char *bar = strstr(p, " | ");
    if (bar && bar > p && bar - p < 40 && isalpha((unsigned char)*p)) {
        for (const char *c = p; c < bar; c++)
            if (!isalnum((unsigned char)*c) && !strchr("-_. ", *c))
                return p;
        return bar + 3;
    }
    return p;
}

/* Skips "2024-12-04T05:27:49.137Z " (container logs) and "> " (quoted mail). */
static const char *skip_stamp(const char *p)
{
    if (p[0] == '>' && p[1] == ' ')
        return p + 2;
    static const char shape[] = "dddd-dd-ddTdd:dd:dd";
    for (size_t i = 0; shape[i]; i++) {
        bool digit = isdigit((unsigned char)p[i]);
        if (shape[i] == 'd' ? !digit : p[i] != shape[i])
            return p;
    }
    const char *q = p + sizeof shape - 1;
    q += strspn(q, ".0123456789Z+-:");
    return *q == ' ' || *q == '\t' ? q + 1 : p;
}

static const char *skip_prefixes(const char *text)
{
    const char *p = text;
    for (int i = 0; i < 3; i++) {
        const char *q = skip_label(skip_worker(skip_mpi(skip_stamp(p))));
        if (q == p)
            break;
        p = q;
    }
    return p;
}

/* Cuts the cleaned text into lines in place. */
static enum tri_status split(struct tri_lines *lines, size_t bytes, struct tri_error *err)
{
    char *p = lines->text, *end = p + bytes;
    for (uint32_t number = 1; p < end; number++) {
        char *nl = memchr(p, '\n', (size_t)(end - p));
        char *stop = nl ? nl : end;
        if (lines->count == TRI_LINES_MAX)
            return tri_fail(err, TRI_LIMIT, "more than %d lines in one file", TRI_LINES_MAX);
        if (stop - p > TRI_LINE_MAX_BYTES) {
            p[TRI_LINE_MAX_BYTES] = 0;
            lines->cut_lines++;
        }
        *stop = 0;
        lines->line[lines->count++] = (struct tri_line){ p, skip_prefixes(p), number };
        lines->last_open = !nl;
        p = stop + 1;
    }
    return TRI_OK;
}

enum tri_status tri_lines_init(struct tri_lines *lines, const char *text, size_t bytes,
                               struct tri_error *err)
{
    if (bytes > TRI_LINES_MAX_BYTES)
        return tri_fail(err, TRI_LIMIT, "%zu bytes of text, at most %d are read", bytes,
                        TRI_LINES_MAX_BYTES);
    struct tri_lines made = { 0 };
    enum tri_status status = TRI_NOMEM;
    char *narrow = tri_malloc(bytes / 2 + 1);
    made.text = tri_malloc(bytes + 1);
    if (!narrow || !made.text)
        goto out;
    size_t n = bytes ? narrow_utf16(text, bytes, narrow) : 0;
    n = n ? clean(narrow, n, made.text) : clean(text, bytes, made.text);
    made.text[n] = 0;
    size_t count = 1;
    for (size_t i = 0; i < n; i++)
        count += made.text[i] == '\n';
    made.line = tri_calloc(count < TRI_LINES_MAX ? count : TRI_LINES_MAX, sizeof *made.line);
    if (made.line)
        status = split(&made, n, err);
out:
    tri_free(narrow);
    if (status == TRI_OK)
        *lines = made;
    else
        tri_lines_fini(&made);
    return status == TRI_NOMEM ? tri_fail(err, status, "no memory for %zu bytes of text", bytes)
                               : status;
}

void tri_lines_fini(struct tri_lines *lines)
{
    tri_free(lines->text);
    tri_free(lines->line);
    *lines = (struct tri_lines){ 0 };
}

size_t tri_words(const char *text, struct tri_word *out, size_t max)
{
    size_t n = 0;
    for (const char *p = text; *p;) {
        while (*p == ' ' || *p == '\t')
            p++;
        const char *start = p;
        while (*p && *p != ' ' && *p != '\t')
            p++;
        if (p == start)
            break;
        if (n < max)
            out[n] = (struct tri_word){ start, (size_t)(p - start) };
        n++;
    }
    return n;
}

bool tri_word_is(struct tri_word word, const char *text)
{
    return strlen(text) == word.len && !memcmp(word.at, text, word.len);
}

const char *tri_word_copy(struct tri_word word, char *out, size_t out_bytes)
{
    size_t n = word.len < out_bytes ? word.len : out_bytes - 1;
    memcpy(out, word.at, n);
    out[n] = 0;
    return out;
}

/* Digits with at most one dot, few enough that integer over power of ten is rounded correctly. */
static bool plain_number(struct tri_word word, double *out)
{
    static const double tens[] = { 1,   1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15 };
    uint64_t v = 0;
    size_t digits = 0, after = 0;
    bool dot = false;
    for (size_t i = 0; i < word.len; i++) {
        char c = word.at[i];
        if (c == '.' && !dot) {
            dot = true;
            continue;
        }
        if (!isdigit((unsigned char)c) || ++digits > 15)
            return false;
        v = v * 10 + (uint64_t)(c - '0');
        after += dot;
    }
    if (!digits)
        return false;
    *out = (double)v / tens[after];
    return true;
}

bool tri_word_number(struct tri_word word, double *out)
{
    char text[64], *end = NULL;
    if (!word.len || word.len >= sizeof text)
        return false;
    if (plain_number(word, out))
        return true;
    tri_word_copy(word, text, sizeof text);
    if (!isdigit((unsigned char)text[0]) && !strchr("-+.", text[0]))
        return false;
    if (strpbrk(text, "xXpPnN"))
        return false;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v))
        return false;
    *out = v;
    return true;
}

bool tri_word_unsigned(struct tri_word word, unsigned base, uint64_t *out)
{
    char text[32], *end = NULL;
    if (!word.len || word.len >= sizeof text)
        return false;
    tri_word_copy(word, text, sizeof text);
    if (!isxdigit((unsigned char)text[0]))
        return false;
    unsigned long long v = strtoull(text, &end, (int)base);
    if (*end || end == text)
        return false;
    *out = v;
    return true;
}

/* strcasestr of the C library prepares every search as if the text were long. */
const char *tri_text_find(const char *text, const char *part)
{
    char first[3] = { (char)tolower((unsigned char)*part), (char)toupper((unsigned char)*part), 0 };
    size_t len = strlen(part);
    if (!len)
        return text;
    while ((text = strpbrk(text, first)) != NULL && strncasecmp(text, part, len))
        text++;
    return text;
}

bool tri_text_begins(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}
