/* Hashes of files, by libcrypto. See sha.h. */
#include "base/sha.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>
#include "base/json.h"
#include "base/mem.h"

enum { BLOCK_BYTES = 1 << 20 };

static enum tri_status feed_file(EVP_MD_CTX *ctx, int fd, const char *path, char *block,
                                 int (*read_bytes)(void *, uint64_t), void *arg,
                                 struct tri_error *err)
{
    for (;;) {
        ssize_t n = read(fd, block, BLOCK_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tri_fail_errno(err, TRI_IO, errno, "%s", path);
        if (n == 0)
            return TRI_OK;
        if (EVP_DigestUpdate(ctx, block, (size_t)n) != 1)
            return tri_fail(err, TRI_UNSUPPORTED, "%s: libcrypto cannot hash", path);
        if (read_bytes && read_bytes(arg, (uint64_t)n))
            return tri_fail(err, TRI_CANCELLED, "%s: stopped", path);
    }
}

static void to_hex(char *out, const unsigned char *digest, unsigned bytes)
{
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < bytes; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[2 * bytes] = 0;
}

enum tri_status tri_sha_file(char out[TRI_SHA_HEX_BYTES], enum tri_sha kind, const char *path,
                             const void *prefix, size_t prefix_bytes,
                             int (*read_bytes)(void *arg, uint64_t bytes), void *arg,
                             struct tri_error *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned bytes = 0;
    int fd = -1;
    enum tri_status st = tri_open_plain(&fd, path, err);
    if (st)
        return st;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    char *block = tri_malloc(BLOCK_BYTES);
    if (!ctx || !block)
        st = tri_fail(err, TRI_NOMEM, "%s: no memory to hash it", path);
    if (!st && (EVP_DigestInit_ex(ctx, kind == TRI_SHA1 ? EVP_sha1() : EVP_sha256(), NULL) != 1 ||
                EVP_DigestUpdate(ctx, prefix ? prefix : "", prefix ? prefix_bytes : 0) != 1))
        st = tri_fail(err, TRI_UNSUPPORTED, "%s: libcrypto cannot hash", path);
    if (!st)
        st = feed_file(ctx, fd, path, block, read_bytes, arg, err);
    if (!st && EVP_DigestFinal_ex(ctx, digest, &bytes) != 1)
        st = tri_fail(err, TRI_UNSUPPORTED, "%s: libcrypto cannot hash", path);
    if (!st)
        to_hex(out, digest, bytes);
    EVP_MD_CTX_free(ctx);
    tri_free(block);
    close(fd);
    return st;
}

enum tri_status tri_sha256(unsigned char out[32], const void *data, size_t bytes,
                           struct tri_error *err)
{
    unsigned n = 0;
    if (EVP_Digest(data, bytes, out, &n, EVP_sha256(), NULL) != 1 || n != 32)
        return tri_fail(err, TRI_NOMEM, "SHA-256 is not to be had");
    return TRI_OK;
}
