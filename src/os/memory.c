/*
 * /proc/meminfo and cgroup limits. Version 2: memory.max and memory.current of our group and every
 * group above it. Version 1: memory.limit_in_bytes of the memory controller's group.
 */
#include "os/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 16384 };

static const uint64_t MIB = 1 << 20;

/* Reads a small file; an empty text when it is not there. */
static void read_text(char text[TEXT_BYTES], const char *root, const char *path)
{
    char full[4096];
    text[0] = 0;
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full)
        return;
    int fd = open(full, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = read(fd, text, TEXT_BYTES - 1);
    text[n > 0 ? n : 0] = 0;
    close(fd);
}

/* The number after `key` in lines of "key value"; `none` when absent. */
static uint64_t number_after(const char *text, const char *key, uint64_t none)
{
    size_t n = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, key, n)) {
            char *end = NULL;
            errno = 0;
            unsigned long long v = strtoull(line + n, &end, 10);
            return end != line + n && errno == 0 ? v : none;
        }
    }
    return none;
}

static uint64_t read_number(const char *root, const char *folder, const char *file)
{
    char path[2048], text[TEXT_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path)
        return UINT64_MAX;
    read_text(text, root, path);
    return number_after(text, "", UINT64_MAX); /* "max" is no number: no limit */
}

/* Takes this group's limit if it leaves less room than what was found before. */
static void consider(struct tri_memory_facts *out, const char *root, const char *folder,
                     int version)
{
    int v2 = version == TRI_CGROUP_V2;
    uint64_t limit = read_number(root, folder, v2 ? "memory.max" : "memory.limit_in_bytes");
    uint64_t used = read_number(root, folder, v2 ? "memory.current" : "memory.usage_in_bytes");
    /* Version 1 says "no limit" with a number near 2^63. */
    if (limit >= (uint64_t)1 << 60)
        return;
    char path[2048], text[TEXT_BYTES];
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    read_text(text, root, path);
    uint64_t cache = number_after(text, v2 ? "inactive_file " : "total_inactive_file ", 0);
    used = used == UINT64_MAX ? 0 : used > cache ? used - cache : 0;
    uint64_t room = limit > used ? limit - used : 0;
    uint64_t best =
        out->limit_bytes > out->group_used_bytes ? out->limit_bytes - out->group_used_bytes : 0;
    if (out->cgroup_version == TRI_CGROUP_NONE || room < best) {
        out->cgroup_version = version;
        out->limit_bytes = limit;
        out->group_used_bytes = used;
    }
}

/* `group` as in /proc/self/cgroup, under `mount`: itself and every group above. */
static void walk_up(struct tri_memory_facts *out, const char *root, const char *mount,
                    const char *group, int version)
{
    char folder[1024];
    if (snprintf(folder, sizeof folder, "%s%s", mount, group) >= (int)sizeof folder)
        return;
    size_t least = strlen(mount);
    for (;;) {
        size_t n = strlen(folder);
        while (n > least && folder[n - 1] == '/')
            folder[--n] = 0;
        consider(out, root, folder, version);
        char *slash = strrchr(folder, '/');
        if (n <= least || !slash)
            return;
        *slash = 0;
    }
}

static void read_groups(struct tri_memory_facts *out, const char *root)
{
    char text[TEXT_BYTES];
    read_text(text, root, "/proc/self/cgroup");
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        if (!strncmp(line, "0:", 2) && controllers[1] == 0)
            walk_up(out, root, "/sys/fs/cgroup", group, TRI_CGROUP_V2);
        else if (strstr(controllers, "memory"))
            walk_up(out, root, "/sys/fs/cgroup/memory", group, TRI_CGROUP_V1);
    }
    /* In a container the group's own path is often not mounted, but its limits sit at the top. */
    if (out->cgroup_version == TRI_CGROUP_NONE)
        consider(out, root, "/sys/fs/cgroup", TRI_CGROUP_V2);
    if (out->cgroup_version == TRI_CGROUP_NONE)
        consider(out, root, "/sys/fs/cgroup/memory", TRI_CGROUP_V1);
}

void tri_memory_read(struct tri_memory_facts *out, const char *root)
{
    char text[TEXT_BYTES];
    *out = (struct tri_memory_facts){ .limit_bytes = UINT64_MAX };
    read_text(text, root, "/proc/meminfo");
    out->total_bytes = number_after(text, "MemTotal:", 0) * 1024;
    uint64_t free_kib = number_after(text, "MemFree:", 0);
    out->available_bytes = number_after(text, "MemAvailable:", free_kib) * 1024;
    read_groups(out, root);
}

uint64_t tri_memory_room_bytes(const struct tri_memory_facts *facts)
{
    uint64_t room = facts->available_bytes;
    if (facts->cgroup_version != TRI_CGROUP_NONE) {
        uint64_t left = facts->limit_bytes > facts->group_used_bytes
                            ? facts->limit_bytes - facts->group_used_bytes
                            : 0;
        room = left < room ? left : room;
    }
    return room;
}

uint64_t tri_memory_budget_bytes(const struct tri_memory_facts *facts)
{
    uint64_t room = tri_memory_room_bytes(facts);
    uint64_t reserve = room / 16;
    reserve = reserve < 256 * MIB ? 256 * MIB : reserve;
    reserve = reserve > 4096 * MIB ? 4096 * MIB : reserve;
    return room > reserve ? room - reserve : room / 2;
}
