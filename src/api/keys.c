/* API keys: a file with one key a line, compared in constant time. */
#include "api/api_priv.h"

#include <stdio.h>
#include <string.h>
#include "base/json.h"

struct tri__keys {
    size_t n;
    struct {
        unsigned char bytes[TRI_API_MAX_KEY_BYTES];
        size_t length;
    } key[TRI_API_MAX_KEYS];
};

static enum tri_status add_line(struct tri__keys *keys, const char *path, const char *line,
                                size_t bytes, struct tri_error *err)
{
    while (bytes && strchr(" \t\r", line[bytes - 1]))
        bytes--;
    if (bytes == 0 || *line == '#')
        return TRI_OK;
    if (bytes > TRI_API_MAX_KEY_BYTES)
        return tri_fail(err, TRI_LIMIT, "%s: a key of %zu bytes, at most %d", path, bytes,
                        TRI_API_MAX_KEY_BYTES);
    if (keys->n == TRI_API_MAX_KEYS)
        return tri_fail(err, TRI_LIMIT, "%s: more than %d keys", path, TRI_API_MAX_KEYS);
    memcpy(keys->key[keys->n].bytes, line, bytes);
    keys->key[keys->n++].length = bytes;
    return TRI_OK;
}

enum tri_status tri__keys_load(struct tri__keys **out, const char *path, bool again,
                               struct tri_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    size_t most = (size_t)TRI_API_MAX_KEYS * TRI_API_MAX_KEY_BYTES * 2;
    enum tri_status st = again ? tri_read_plain_file(&text, &bytes, path, most, err)
                               : tri_read_file(&text, &bytes, path, most, err);
    if (st != TRI_OK)
        return st;
    struct tri__keys *keys = tri_calloc(1, sizeof *keys);
    if (!keys)
        st = tri_fail(err, TRI_NOMEM, "no memory for keys");
    for (char *at = text; st == TRI_OK && at < text + bytes;) {
        char *end = memchr(at, '\n', (size_t)(text + bytes - at));
        size_t n = end ? (size_t)(end - at) : (size_t)(text + bytes - at);
        st = add_line(keys, path, at, n, err);
        at += n + 1;
    }
    if (st == TRI_OK && keys->n == 0)
        st = tri_fail(err, TRI_FORMAT, "%s: no key in it (one a line)", path);
    tri_free(text);
    if (st == TRI_OK)
        *out = keys;
    else
        tri__keys_free(keys);
    return st;
}

void tri__keys_free(struct tri__keys *keys)
{
    tri_free(keys);
}

/* Every byte of every key is looked at, whatever was sent: the time says only how many there are.
 */
bool tri__keys_have(const struct tri__keys *keys, struct tri_http_text key)
{
    unsigned char sent[TRI_API_MAX_KEY_BYTES] = { 0 };
    unsigned found = 0;
    size_t n = key.bytes < sizeof sent ? key.bytes : sizeof sent;
    if (n)
        memcpy(sent, key.at, n);
    for (size_t i = 0; i < keys->n; i++) {
        unsigned differ = keys->key[i].length != key.bytes;
        for (size_t j = 0; j < sizeof sent; j++)
            differ |= (unsigned)(sent[j] ^ keys->key[i].bytes[j]);
        found |= differ == 0;
    }
    return found != 0;
}
