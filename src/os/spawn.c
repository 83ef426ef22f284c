/* Side-by-side programs with a deadline. See spawn.h. */
#include "os/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"

struct child {
    pid_t pid; /* 0: none */
    int fd;    /* -1: closed */
};

static void start(struct tri_spawn *s, struct child *c)
{
    int ends[2];
    posix_spawn_file_actions_t actions;
    extern char **environ;
    tri_buf_init(&s->out, s->max_bytes);
    s->started = s->timed_out = false;
    s->exit_code = -1;
    *c = (struct child){ 0, -1 };
    if (pipe2(ends, O_CLOEXEC))
        return;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    /* posix_spawnp promises not to change the strings; its type predates const */
    char *const *argv = (char *const *)(uintptr_t)s->argv;
    s->started = posix_spawnp(&c->pid, s->argv[0], &actions, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (s->started) {
        c->fd = ends[0];
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
    } else {
        c->pid = 0;
        close(ends[0]);
    }
}

/* Takes what is there. Closes at the end of the output. */
static void drain(struct tri_spawn *s, struct child *c)
{
    char block[16384];
    for (;;) {
        ssize_t n = read(c->fd, block, sizeof block);
        if (n > 0) {
            size_t room = s->out.max_bytes - s->out.len_bytes;
            tri_buf_add(&s->out, block, (size_t)n < room ? (size_t)n : room);
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        close(c->fd);
        c->fd = -1;
        return;
    }
}

/* Waits for the child; at the deadline it is ended first. */
static void finish(struct tri_spawn *s, struct child *c, bool late)
{
    int code = 0;
    if (!c->pid)
        return;
    if (late && c->fd >= 0) {
        s->timed_out = true;
        kill(c->pid, SIGKILL);
    }
    if (c->fd >= 0)
        close(c->fd);
    while (waitpid(c->pid, &code, 0) < 0 && errno == EINTR)
        ;
    s->exit_code = !s->timed_out && WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

void tri_spawn_all(struct tri_spawn *list, size_t count, unsigned limit_ms)
{
    struct child child[TRI_SPAWN_MAX];
    struct pollfd wait[TRI_SPAWN_MAX];
    size_t owner[TRI_SPAWN_MAX];
    TRI_ASSERT(count <= TRI_SPAWN_MAX);
    long end = (long)(tri_clock_ns() / 1000000) + (long)limit_ms;
    for (size_t i = 0; i < count; i++)
        start(&list[i], &child[i]);
    for (;;) {
        size_t open = 0;
        for (size_t i = 0; i < count; i++)
            if (child[i].fd >= 0) {
                wait[open] = (struct pollfd){ child[i].fd, POLLIN, 0 };
                owner[open++] = i;
            }
        long left = end - (long)(tri_clock_ns() / 1000000);
        if (!open || left <= 0 || (poll(wait, open, (int)left) < 0 && errno != EINTR))
            break;
        for (size_t i = 0; i < open; i++)
            if (wait[i].revents)
                drain(&list[owner[i]], &child[owner[i]]);
    }
    for (size_t i = 0; i < count; i++)
        finish(&list[i], &child[i], true);
}
