/*
 * Reading past the page cache (O_DIRECT) any range of a file to any address. What is read once and
 * is larger than memory gains nothing from the cache and costs it: a copy of every byte, and pages
 * that others needed. Threads: every call is safe from any thread.
 */
#ifndef TRI_OS_DIRECT_H
#define TRI_OS_DIRECT_H

#include <stdbool.h>
#include "base/status.h"

/* 4096 suits every drive's logical block. */
enum { TRI_DIRECT_BLOCK_BYTES = 4096 };

/* A descriptor for tri_direct_read, or -1 where the file system cannot do it. */
int tri_direct_open(const char *path);

/*
 * Reads [offset, offset + bytes) to `dst`. Bytes in place, fewer only where the file ends, or
 * -errno. Without a copy when dst and offset are equal modulo TRI_DIRECT_BLOCK_BYTES, but for the
 * ragged ends; through a small buffer on the stack (512 KiB) when not.
 */
int64_t tri_direct_read(int fd, uint64_t offset_bytes, void *dst, uint64_t bytes);

/*
 * Whether nearly all of a range (of its first 8192 pages) lies in the page cache, so that reading
 * through it costs a copy and no drive. `fd` is not a direct one. False where the system does not
 * say: it tells only who may write to the file.
 */
bool tri_file_cached(int fd, uint64_t offset_bytes, uint64_t bytes);

#endif
