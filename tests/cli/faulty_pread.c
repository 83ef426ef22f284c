/*
 * Preloaded into trireme by tests: pread of files whose name ends in .safetensors goes wrong while
 * the file that PREAD_FAULT names exists; its first word says how: eio, short, zero; stall,
 * they never end; hang, they end when the file is gone; slow, each takes a tenth of a second;
 * count, nothing. The last four leave alone the first thread, which opens the model; the last two
 * add a byte to PREAD_FAULT.reads for each.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int is_shard(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    return n > 12 && !strcmp(path + n - 12, ".safetensors");
}

static int fault(char how[16])
{
    const char *name = getenv("PREAD_FAULT");
    FILE *f = name ? fopen(name, "r") : NULL;
    int found = f && fscanf(f, "%15s", how) == 1;
    if (f)
        fclose(f);
    return found;
}

static void count(void)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.reads", getenv("PREAD_FAULT"));
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0 || write(fd, "x", 1) != 1)
        abort();
    close(fd);
}

ssize_t pread(int fd, void *buf, size_t bytes, off_t offset)
{
    char how[16] = "";
    ssize_t (*real)(int, void *, size_t, off_t) =
        (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    if (!fault(how) || !is_shard(fd))
        return real(fd, buf, bytes, offset);
    if (!strcmp(how, "eio")) {
        errno = EIO;
        return -1;
    }
    if (!strcmp(how, "zero"))
        return 0;
    if (!strcmp(how, "stall")) {
        while (gettid() != getpid())
            pause();
        return real(fd, buf, bytes, offset);
    }
    if (!strcmp(how, "hang")) {
        while (gettid() != getpid() && fault(how))
            usleep(1000);
        return real(fd, buf, bytes, offset);
    }
    if (!strcmp(how, "slow") || !strcmp(how, "count")) {
        if (gettid() != getpid()) {
            count();
            usleep(!strcmp(how, "slow") ? 100000 : 0);
        }
        return real(fd, buf, bytes, offset);
    }
    return real(fd, buf, bytes > 512 ? bytes / 2 : bytes, offset);
}

ssize_t pread64(int fd, void *buf, size_t bytes, off_t offset)
{
    return pread(fd, buf, bytes, offset);
}
