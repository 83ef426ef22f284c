/* Direct reads of ragged ranges: whole blocks straight to their place, the ends through a buffer.
 */
#include "os/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = TRI_DIRECT_BLOCK_BYTES, BOUNCE_BYTES = 512 << 10, CALL_BYTES = 1 << 30 };

int tri_direct_open(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC | O_DIRECT | O_NONBLOCK);
}

/* Offset, dst and bytes all in blocks. The end of the file may lie inside of the last one. */
static int64_t read_blocks(int fd, uint64_t offset, char *dst, uint64_t bytes)
{
    uint64_t got = 0;
    while (got < bytes) {
        size_t want = bytes - got < CALL_BYTES ? (size_t)(bytes - got) : CALL_BYTES;
        ssize_t n = pread(fd, dst + got, want, (off_t)(offset + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -(int64_t)errno;
        got += (uint64_t)n;
        if (n == 0 || n % BLOCK)
            break;
    }
    return (int64_t)got;
}

static int64_t read_through_buffer(int fd, uint64_t offset, char *dst, uint64_t bytes)
{
    _Alignas(BLOCK) char bounce[BOUNCE_BYTES];
    uint64_t got = 0;
    while (got < bytes) {
        uint64_t skip = (offset + got) % BLOCK, want = bytes - got;
        want = want < BOUNCE_BYTES - skip ? want : BOUNCE_BYTES - skip;
        int64_t n =
            read_blocks(fd, offset + got - skip, bounce, (skip + want + BLOCK - 1) / BLOCK * BLOCK);
        if (n < 0)
            return n;
        uint64_t came = (uint64_t)n > skip ? (uint64_t)n - skip : 0;
        came = came < want ? came : want;
        memcpy(dst + got, bounce + skip, came);
        got += came;
        if (came < want)
            break;
    }
    return (int64_t)got;
}

int64_t tri_direct_read(int fd, uint64_t offset_bytes, void *dst, uint64_t bytes)
{
    char *to = dst;
    uint64_t head = (BLOCK - offset_bytes % BLOCK) % BLOCK;
    if (((uintptr_t)to - offset_bytes) % BLOCK || bytes < head + BLOCK)
        return read_through_buffer(fd, offset_bytes, to, bytes);
    int64_t n = head ? read_through_buffer(fd, offset_bytes, to, head) : 0;
    if (n < (int64_t)head)
        return n;
    uint64_t body = (bytes - head) / BLOCK * BLOCK, at = head + body;
    n = read_blocks(fd, offset_bytes + head, to + head, body);
    if (n < (int64_t)body || at == bytes)
        return n < 0 ? n : (int64_t)head + n;
    n = read_through_buffer(fd, offset_bytes + at, to + at, bytes - at);
    return n < 0 ? n : (int64_t)at + n;
}

bool tri_file_cached(int fd, uint64_t offset_bytes, uint64_t bytes)
{
    enum { MOST_PAGES = 8192 };
    unsigned char there[MOST_PAGES];
    struct stat sb;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = offset_bytes / page;
    uint64_t pages = (offset_bytes + bytes + page - 1) / page - first, found = 0;
    pages = pages < MOST_PAGES ? pages : MOST_PAGES;
    /* mincore(2) says "all of it" of files that are not the caller's own. */
    if (bytes == 0 || fstat(fd, &sb) || (geteuid() && sb.st_uid != geteuid()))
        return false;
    void *map = mmap(NULL, pages * page, PROT_READ, MAP_SHARED, fd, (off_t)(first * page));
    if (map == MAP_FAILED)
        return false;
    int rc = mincore(map, pages * page, there);
    munmap(map, pages * page);
    for (uint64_t i = 0; i < pages && rc == 0; i++)
        found += there[i] & 1;
    return rc == 0 && found >= pages - pages / 16;
}
