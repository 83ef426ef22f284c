/* The three standard streams, guarded. See streams.h. */
#include "cli/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

void tri_streams_guard(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            continue;
        /* The wrong way round on purpose: using a closed stream stays an error. The lowest free
         * number is the one that is missing. */
        int got = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        if (got != fd)
            _exit(1); /* no place is left to say so */
    }
    signal(SIGXFSZ, SIG_IGN);
}

enum tri_status tri_streams_written(struct tri_error *err)
{
    int failed_before = ferror(stdout);
    if (fflush(stdout))
        return tri_fail_errno(err, TRI_IO, errno, "standard output cannot be written");
    if (failed_before)
        return tri_fail(err, TRI_IO, "standard output cannot be written: something of it is lost");
    return TRI_OK;
}
