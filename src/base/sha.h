/* SHA-1 and SHA-256 of files, by libcrypto: what download checks are made of. */
#ifndef TRI_BASE_SHA_H
#define TRI_BASE_SHA_H

#include <stddef.h>
#include "base/status.h"

enum tri_sha { TRI_SHA1, TRI_SHA256 };
enum { TRI_SHA_HEX_BYTES = 65 }; /* hex digits and NUL of the longer one */

/*
 * Hash of `prefix` (git puts "blob <size>" and a NUL there; may be NULL) followed by the whole
 * file, as lower-case hex. `read_bytes` is told after each block; non-zero stops with
 * TRI_CANCELLED.
 */
TRI_MUST_CHECK enum tri_status tri_sha_file(char out[TRI_SHA_HEX_BYTES], enum tri_sha kind,
                                            const char *path, const void *prefix,
                                            size_t prefix_bytes,
                                            int (*read_bytes)(void *arg, uint64_t bytes), void *arg,
                                            struct tri_error *err);

/* SHA-256 of bytes in memory. */
TRI_MUST_CHECK enum tri_status tri_sha256(unsigned char out[32], const void *data, size_t bytes,
                                          struct tri_error *err);

#endif
