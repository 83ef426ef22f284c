/* /proc and /sys read as text. The container's limit is looked up at every level of its own path:
 * the tightest one counts. See host.h. */
#include "os/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "os/pool.h"

enum { TEXT_BYTES = 16384, PATH_BYTES = 4096 };

/* The start of a small text file, NUL-terminated; "" when it cannot be read. */
static void read_text(char *out, size_t out_bytes, const char *path)
{
    size_t len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && len + 1 < out_bytes) {
        ssize_t got = read(fd, out + len, out_bytes - 1 - len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        len += (size_t)got;
    }
    if (fd >= 0)
        close(fd);
    out[len] = 0;
}

/* What follows `key` at the start of a line, after blanks and colons; NULL if there is none. */
static const char *value_of(const char *text, const char *key)
{
    size_t bytes = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, bytes) == 0)
            return line + bytes + strspn(line + bytes, " \t:");
    }
    return NULL;
}

static void copy_line(char *out, size_t out_bytes, const char *text)
{
    snprintf(out, out_bytes, "%.*s", (int)strcspn(text, "\n"), text);
}

static uint64_t kib(const char *text)
{
    return text ? strtoull(text, NULL, 10) * 1024 : 0;
}

/* A cgroup file's number; 0 when absent or "max" or (v1's way to say none) absurdly large. */
static uint64_t cgroup_number(const char *folder, const char *file)
{
    char path[PATH_BYTES + 64], text[64];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    read_text(text, sizeof text, path);
    uint64_t n = strtoull(text, NULL, 10);
    return n < UINT64_C(1) << 60 ? n : 0;
}

/* Memory in use that is not just file cache, which the kernel gives back when asked. */
static uint64_t cgroup_used(const char *folder, const char *file)
{
    char path[PATH_BYTES + 64], text[TEXT_BYTES];
    uint64_t used = cgroup_number(folder, file), cache = 0;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    read_text(text, sizeof text, path);
    static const char *const keys[] = { "inactive_file ", "active_file " };
    for (int i = 0; i < 2; i++) {
        const char *n = value_of(text, keys[i]);
        cache += n ? strtoull(n, NULL, 10) : 0;
    }
    return used > cache ? used - cache : 0;
}

/* Walks from `folder` up to `root`, keeping the tightest limit seen. */
static void tightest(struct tri_host *h, char *folder, const char *root, const char *limit_file,
                     const char *used_file)
{
    for (;;) {
        uint64_t limit = cgroup_number(folder, limit_file);
        if (limit && (!h->cgroup_limit_bytes || limit < h->cgroup_limit_bytes)) {
            h->cgroup_limit_bytes = limit;
            h->cgroup_used_bytes = cgroup_used(folder, used_file);
        }
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= strlen(root) || !slash)
            return;
        *slash = 0;
    }
}

/* /proc/self/cgroup: "0::/path" is v2; "7:memory:/path" is v1's memory controller. */
static void read_cgroup(struct tri_host *h)
{
    char text[TEXT_BYTES], folder[PATH_BYTES];
    read_text(text, sizeof text, "/proc/self/cgroup");
    for (char *line = text; *line;) {
        char *end = line + strcspn(line, "\n"), *path = strchr(line, ':');
        if (*end)
            *end++ = 0;
        path = path ? strchr(path + 1, ':') : NULL;
        if (path && strncmp(line, "0::", 3) == 0) {
            snprintf(folder, sizeof folder, "/sys/fs/cgroup%s", path + 1);
            tightest(h, folder, "/sys/fs/cgroup", "memory.max", "memory.current");
        } else if (path && strstr(line, ":memory:")) {
            snprintf(folder, sizeof folder, "/sys/fs/cgroup/memory%s", path + 1);
            tightest(h, folder, "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                     "memory.usage_in_bytes");
        }
        line = end;
    }
}

void tri_host_read(struct tri_host *out)
{
    char text[TEXT_BYTES];
    struct utsname names;
    memset(out, 0, sizeof *out);
    read_text(text, sizeof text, "/proc/cpuinfo");
    const char *name = value_of(text, "model name");
    if (name)
        copy_line(out->cpu, sizeof out->cpu, name);
    if (uname(&names) == 0)
        snprintf(out->kernel, sizeof out->kernel, "%.40s %.40s", names.sysname, names.release);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    out->cpus = tri_cpu_count();
    out->cpus_online = online > 0 ? (int)online : out->cpus;
    read_text(text, sizeof text, "/proc/meminfo");
    out->memory_bytes = kib(value_of(text, "MemTotal"));
    out->memory_free_bytes = kib(value_of(text, "MemAvailable"));
    read_cgroup(out);
}

uint64_t tri_host_room_bytes(const struct tri_host *host)
{
    uint64_t room = host->memory_free_bytes;
    if (host->cgroup_limit_bytes) {
        uint64_t left = host->cgroup_limit_bytes > host->cgroup_used_bytes
                            ? host->cgroup_limit_bytes - host->cgroup_used_bytes
                            : 0;
        room = left < room || !room ? left : room;
    }
    return room;
}
