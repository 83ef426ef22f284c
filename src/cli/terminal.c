/* Terminal output and Ctrl-C; see terminal.h. */
#include "cli/terminal.h"

#include <signal.h>
#include <termios.h>
#include <unistd.h>

bool tri_is_terminal(FILE *stream)
{
    return isatty(fileno(stream)) == 1;
}

/* How many bytes at `p` are one control character to be shown; 0 if it may pass. */
static size_t control_bytes(const unsigned char *p, size_t left)
{
    if (*p == 0x7f || (*p < 0x20 && *p != '\n' && *p != '\t'))
        return 1;
    return *p == 0xc2 && left > 1 && p[1] >= 0x80 && p[1] < 0xa0 ? 2 : 0;
}

void tri_write_text(FILE *out, const char *text, size_t bytes, bool safe)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t from = 0;
    for (size_t i = 0; safe && i < bytes;) {
        size_t n = control_bytes(p + i, bytes - i);
        if (n == 0) {
            i++;
            continue;
        }
        fwrite(text + from, 1, i - from, out);
        fprintf(out, "\\x%02x", p[i + n - 1]);
        i += n;
        from = i;
    }
    fwrite(text + from, 1, bytes - from, out);
}

void tri_dim(FILE *out, bool on, bool on_terminal)
{
    if (on_terminal)
        fputs(on ? "\033[2m" : "\033[0m", out);
}

/* The only mutable globals: a signal handler can reach nothing else. */
static volatile sig_atomic_t interrupts;
static struct termios at_start;

static void on_interrupt(int number)
{
    interrupts = interrupts + 1;
    if (interrupts < 3)
        return;
    signal(number, SIG_DFL);
    raise(number);
}

void tri_interrupt_catch(void)
{
    struct sigaction action = { .sa_handler = on_interrupt };
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool tri_interrupted(void)
{
    return interrupts > 0;
}

void tri_interrupt_clear(void)
{
    interrupts = 0;
}

/* The line editor turns echo and signals off; a shell that gets this terminal back needs both. */
static void on_end(int number)
{
    tcsetattr(STDIN_FILENO, TCSANOW, &at_start);
    raise(number); /* held back until this returns, and then as if it had not been caught */
}

void tri_terminal_keep(void)
{
    static const int ends[] = { SIGHUP, SIGQUIT, SIGTERM };
    struct sigaction action = { .sa_handler = on_end, .sa_flags = (int)SA_RESETHAND };
    if (tcgetattr(STDIN_FILENO, &at_start))
        return;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGTTOU); /* from the background, too */
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        sigaction(ends[i], &action, NULL);
}
