/* The limit of open descriptors. See descriptors.h. */
#include "os/descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>

enum { HIGHEST_ASKED = 65536 };

int64_t tri_descriptors_raise(int64_t want)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return want;
    if (limit.rlim_cur < (rlim_t)want && limit.rlim_cur < limit.rlim_max) {
        struct rlimit more = limit;
        more.rlim_cur = (rlim_t)want < limit.rlim_max ? (rlim_t)want : limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &more) == 0)
            limit = more;
    }
    return limit.rlim_cur > INT64_MAX ? INT64_MAX : (int64_t)limit.rlim_cur;
}

int64_t tri_descriptors_open(void)
{
    int64_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (dir) {
        while (readdir(dir))
            n++;
        closedir(dir);
        return n - 3; /* ".", ".." and the folder itself */
    }
    for (int fd = 0; fd < HIGHEST_ASKED; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            n = fd + 1;
    return n;
}
