/* The first lines of /proc/cpuinfo, and uname. See host.h. */
#include "os/host.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "os/pool.h"

enum { LINE_BYTES = 4096 }; /* the flags line of x86 is long; names are not */

/* x86 says "model name", POWER "cpu", s390 and some ARM kernels other things or nothing. */
static void read_cpu_name(char *out, size_t out_bytes)
{
    static const char *const keys[] = { "model name", "cpu\t", "Model" };
    char line[LINE_BYTES];
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && !out[0] && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        for (size_t i = 0; colon && i < sizeof keys / sizeof keys[0]; i++)
            if (strncmp(line, keys[i], strlen(keys[i])) == 0) {
                const char *value = colon + 1 + strspn(colon + 1, " \t");
                snprintf(out, out_bytes, "%.*s", (int)strcspn(value, "\n"), value);
            }
    }
    if (f)
        fclose(f);
}

void tri_host_read(struct tri_host *out)
{
    struct utsname names;
    memset(out, 0, sizeof *out);
    read_cpu_name(out->cpu, sizeof out->cpu);
    if (uname(&names) == 0)
        snprintf(out->kernel, sizeof out->kernel, "%.40s %.40s", names.sysname, names.release);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    out->cpus = tri_cpu_count();
    out->cpus_online = online > 0 ? (int)online : out->cpus;
}
