/*
 * Who may share kept states: requests with the same key and the same cache_salt. Whether a prompt
 * is answered faster tells that it was asked before, so tenants must not see each other's. SHA-256,
 * because one tenant chooses his salt and must not be able to reach another's.
 */
#include "api/api_priv.h"

#include <string.h>
#include <strings.h>
#include "base/sha.h"

static void take(struct tri_salt *salt, const void *data, size_t bytes)
{
    unsigned char hash[32];
    /* Without a hash nothing may be shared: a salt that nobody has. */
    if (tri_sha256(hash, data, bytes, NULL) != TRI_OK)
        tri__random_hex((char *)hash, sizeof hash - 1);
    memcpy(salt, hash, sizeof *salt);
}

struct tri_salt tri__salt_of_key(const struct tri_api *api, const struct tri_http_request *request)
{
    const struct tri_http_head *head = tri_http_head(request);
    struct tri_http_text key = tri_http_head_field(head, "Authorization");
    struct tri_salt salt = { 0 };
    if (!api->keys)
        return salt; /* everybody is one */
    if (key.at && key.bytes > 7 && !strncasecmp(key.at, "Bearer ", 7)) {
        key.at += 7;
        key.bytes -= 7;
    } else {
        key = tri_http_head_field(head, "x-api-key");
    }
    take(&salt, key.at ? key.at : "", key.at ? key.bytes : 0);
    return salt;
}

void tri__salt_add(struct tri_salt *salt, const char *text, size_t bytes)
{
    struct tri_salt both[2] = { *salt };
    take(&both[1], text, bytes);
    take(salt, both, sizeof both);
}
