/* What stands between <|open|> or <|close|> and <|sep|>: a name, and attributes. */
#include "text/parser_priv.h"

#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

const char *tri__tag_name(const struct tri_buf *tag, size_t *bytes)
{
    const char *at = tag->data ? tag->data : "", *end = at + tag->len_bytes;
    while (at < end && is_blank(*at))
        at++;
    const char *stop = at;
    while (stop < end && !is_blank(*stop))
        stop++;
    *bytes = (size_t)(stop - at);
    return at;
}

bool tri__tag_is(const struct tri_buf *tag, const char *name)
{
    size_t bytes = 0;
    const char *have = tri__tag_name(tag, &bytes);
    return bytes == strlen(name) && !memcmp(have, name, bytes);
}

/* Undoes the escaping of attributes: &quot; and &amp;, nothing else (spec 6.1). */
static void unescape(const char *text, size_t bytes, struct tri_buf *out)
{
    struct tri_utf8_hold hold = { 0 };
    for (size_t i = 0; i < bytes;) {
        bool quote = bytes - i >= 6 && !memcmp(text + i, "&quot;", 6);
        bool amp = bytes - i >= 5 && !memcmp(text + i, "&amp;", 5);
        tri_utf8_push(&hold, quote ? "\"" : amp ? "&" : text + i, 1, out);
        i += quote ? 6 : amp ? 5 : 1;
    }
    tri_utf8_finish(&hold, out);
}

bool tri__tag_attr(const struct tri_buf *tag, const char *key, struct tri_buf *out)
{
    size_t name_bytes = 0;
    const char *at = tri__tag_name(tag, &name_bytes) + name_bytes;
    const char *end = tag->data + tag->len_bytes;
    for (;;) {
        while (at < end && is_blank(*at))
            at++;
        const char *equals = memchr(at, '=', (size_t)(end - at));
        if (!equals || end - equals < 2 || equals[1] != '"')
            return false;
        const char *close = memchr(equals + 2, '"', (size_t)(end - equals) - 2);
        if (!close)
            return false;
        if ((size_t)(equals - at) == strlen(key) && !memcmp(at, key, strlen(key))) {
            unescape(equals + 2, (size_t)(close - equals) - 2, out);
            return true;
        }
        at = close + 1;
    }
}
