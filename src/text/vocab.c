/*
 * Reads a tiktoken.model: one line `base64(bytes) rank` for each ordinary token. Strict, because a
 * vocabulary that is nearly right gives wrong ids without any error.
 */
#include "text/text_priv.h"

#include <string.h>
#include "base/mem.h"

/* Where reading stands; for the errors, which name file and line. */
struct reader {
    struct tri_tokenizer *tok;
    const char *name;
    struct tri_error *err;
    size_t line;
    uint32_t blob_bytes;
};

/* What a base64 digit stands for, -1 for any other character. */
static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/*
 * Decodes `count` characters of padded base64 (RFC 4648, unused bits zero) to `out`, which has room
 * for count / 4 * 3. Returns the bytes written, 0 if it is not base64.
 */
static size_t base64_decode(const char *text, size_t count, char *out)
{
    if (count % 4)
        return 0;
    size_t bytes = 0, pad = 0;
    while (pad < 2 && pad < count && text[count - 1 - pad] == '=')
        pad++;
    uint32_t bits = 0;
    for (size_t i = 0; i < count - pad; i++) {
        int value = base64_value(text[i]);
        if (value < 0)
            return 0;
        bits = bits << 6 | (uint32_t)value;
        if (i % 4)
            out[bytes++] = (char)(bits >> (6 - 2 * (i % 4)));
    }
    /* The digit before the padding ends in 2 bits per missing digit that belong to no byte. */
    return bits & ((1u << (2 * pad)) - 1) ? 0 : bytes;
}

/* The rank that these digits spell; -1 if they are no number of at most seven digits. */
static int32_t read_rank(const char *digits, size_t count)
{
    int32_t rank = 0;
    if (count < 1 || count > 7)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return -1;
        rank = rank * 10 + (digits[i] - '0');
    }
    return rank;
}

/* One line without its newline: bytes to the end of the blob, then filed under the rank. */
static enum tri_status read_line(struct reader *r, const char *line, size_t count)
{
    struct tri_tokenizer *tok = r->tok;
    const char *blank = memchr(line, ' ', count);
    int32_t rank = blank ? read_rank(blank + 1, count - (size_t)(blank - line) - 1) : -1;
    if (rank < 0)
        return tri_fail(r->err, TRI_FORMAT, "%s:%zu: not a line of `base64 rank`", r->name,
                        r->line);
    if (rank >= tok->ranks)
        return tri_fail(r->err, TRI_FORMAT, "%s:%zu: rank %d, but %d lines give ranks 0 to %d",
                        r->name, r->line, rank, tok->ranks, tok->ranks - 1);
    if (tok->length[rank])
        return tri_fail(r->err, TRI_FORMAT, "%s:%zu: rank %d stands twice", r->name, r->line, rank);
    size_t bytes = base64_decode(line, (size_t)(blank - line), tok->blob + r->blob_bytes);
    if (!bytes)
        return tri_fail(r->err, TRI_FORMAT, "%s:%zu: the token is not base64 (with padding)",
                        r->name, r->line);
    if (bytes > TRI_TOKEN_MAX_BYTES)
        return tri_fail(r->err, TRI_LIMIT, "%s:%zu: a token of %zu bytes, at most %d are read",
                        r->name, r->line, bytes, TRI_TOKEN_MAX_BYTES);
    tok->start[rank] = r->blob_bytes;
    tok->length[rank] = (uint16_t)bytes;
    r->blob_bytes += (uint32_t)bytes;
    if (bytes > tok->longest_rank_bytes)
        tok->longest_rank_bytes = (uint32_t)bytes;
    int32_t same = tri__token_insert(tok, &tok->by_bytes, rank);
    if (same >= 0)
        return tri_fail(r->err, TRI_FORMAT, "%s:%zu: rank %d has the same bytes as rank %d",
                        r->name, r->line, rank, same);
    return TRI_OK;
}

static enum tri_status find_single_bytes(struct tri_tokenizer *tok, const char *name,
                                         struct tri_error *err)
{
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        tok->byte_id[b] = tri__token_find(tok, &tok->by_bytes, &c, 1);
        if (tok->byte_id[b] < 0)
            return tri_fail(err, TRI_FORMAT,
                            "%s: the single byte 0x%02x has no rank, so not every text can be "
                            "encoded",
                            name, (unsigned)b);
    }
    return TRI_OK;
}

enum tri_status tri__vocab_read(struct tri_tokenizer *tok, const char *name, const char *text,
                                size_t bytes, struct tri_error *err)
{
    if (bytes > TRI_VOCAB_MAX_BYTES)
        return tri_fail(err, TRI_LIMIT, "%s: %zu bytes, at most %d are read", name, bytes,
                        TRI_VOCAB_MAX_BYTES);
    size_t lines = bytes && text[bytes - 1] != '\n';
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    if (lines < 1 || lines > TRI_VOCAB_MAX_TOKENS)
        return tri_fail(err, lines ? TRI_LIMIT : TRI_FORMAT,
                        "%s: %zu lines, a vocabulary has 1 to %d", name, lines,
                        TRI_VOCAB_MAX_TOKENS);
    tok->ranks = tok->tokens = (int32_t)lines;
    tok->blob = tri_malloc(bytes);
    tok->start = tri_calloc(lines, sizeof *tok->start);
    tok->length = tri_calloc(lines, sizeof *tok->length);
    if (!tok->blob || !tok->start || !tok->length || tri__token_table_init(&tok->by_bytes, lines))
        return tri_fail(err, TRI_NOMEM, "%s: no memory for %zu tokens", name, lines);
    struct reader r = { .tok = tok, .name = name, .err = err };
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t count = end ? (size_t)(end - text) - at : bytes - at;
        r.line++;
        enum tri_status st = read_line(&r, text + at, count);
        if (st)
            return st;
        at += count + 1;
    }
    return find_single_bytes(tok, name, err);
}
