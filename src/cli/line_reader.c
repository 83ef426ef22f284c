/* Line editing over libedit; see line_reader.h. */
#include "cli/line_reader.h"

#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>
#include "base/mem.h"

enum { HISTORY_LINES = 500, PASTE_WAIT_MS = 20 };

struct tri_line_reader {
    EditLine *el;
    History *history;
    const char *prompt;
    FILE *echo;
    int continued;   /* reading the second or a later line of one text */
    int interrupted; /* Ctrl-C ended the line */
    int was_empty;   /* and nothing stood on it */
};

static char *prompt_of(EditLine *el)
{
    struct tri_line_reader *r = NULL;
    static const char more[] = "... ";
    el_get(el, EL_CLIENTDATA, &r);
    return (char *)(uintptr_t)(r->continued ? more : r->prompt); /* libedit only reads it */
}

/* Bound to Ctrl-C: the terminal does not send a signal while a line is edited. */
static unsigned char on_ctrl_c(EditLine *el, wint_t key)
{
    struct tri_line_reader *r = NULL;
    (void)key;
    el_get(el, EL_CLIENTDATA, &r);
    const LineInfo *line = el_line(el);
    r->interrupted = 1;
    r->was_empty = line->lastchar == line->buffer;
    return CC_NEWLINE;
}

/* Bound to Ctrl-Z, for the same reason. */
static unsigned char on_ctrl_z(EditLine *el, wint_t key)
{
    (void)key;
    el_set(el, EL_PREP_TERM, 0);
    raise(SIGTSTP);
    el_set(el, EL_PREP_TERM, 1);
    return CC_REDISPLAY;
}

/* libedit reads in the locale's encoding: anything but UTF-8 would break what people type. */
static void choose_locale(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

enum tri_status tri_line_reader_open(struct tri_line_reader **out, FILE *echo, const char *prompt,
                                     struct tri_error *err)
{
    HistEvent event;
    struct tri_line_reader *r = tri_calloc(1, sizeof *r);
    if (!r)
        return tri_fail(err, TRI_NOMEM, "no memory for the line editor");
    choose_locale();
    r->prompt = prompt;
    r->echo = echo;
    r->el = el_init("trireme", stdin, echo, stderr);
    r->history = history_init();
    if (!r->el || !r->history) {
        tri_line_reader_close(r);
        return tri_fail(err, TRI_IO, "this terminal cannot be used for a chat; give a prompt");
    }
    history(r->history, &event, H_SETSIZE, HISTORY_LINES);
    history(r->history, &event, H_SETUNIQUE, 1);
    el_set(r->el, EL_CLIENTDATA, r);
    el_set(r->el, EL_PROMPT, prompt_of);
    el_set(r->el, EL_EDITOR, "emacs");
    el_set(r->el, EL_HIST, history, r->history);
    /* The wide call keeps the names where they are; the narrow one leaks a copy. */
    el_wset(r->el, EL_ADDFN, L"chat-interrupt", L"Ends the line", on_ctrl_c);
    el_set(r->el, EL_SETTY, "-d", "-isig", NULL);
    el_wset(r->el, EL_ADDFN, L"chat-suspend", L"Stops the program for now", on_ctrl_z);
    el_set(r->el, EL_BIND, "^C", "chat-interrupt", NULL);
    el_set(r->el, EL_BIND, "^Z", "chat-suspend", NULL);
    el_set(r->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    *out = r;
    return TRI_OK;
}

void tri_line_reader_close(struct tri_line_reader *reader)
{
    if (!reader)
        return;
    if (reader->el)
        el_end(reader->el);
    if (reader->history)
        history_end(reader->history);
    tri_free(reader);
}

static int more_is_waiting(void)
{
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    return poll(&in, 1, PASTE_WAIT_MS) > 0;
}

static void remember(struct tri_line_reader *r, const struct tri_buf *text)
{
    HistEvent event;
    if (text->len_bytes && !strchr(text->data, '\n'))
        history(r->history, &event, H_ENTER, text->data);
}

enum tri_line tri_line_read(struct tri_line_reader *reader, struct tri_buf *text, int *was_empty)
{
    struct tri_line_reader *r = reader;
    tri_buf_clear(text);
    r->interrupted = 0;
    r->continued = 0;
    for (;;) {
        int bytes = 0;
        el_set(r->el, EL_PREP_TERM, 1); /* before the prompt: keys typed at it are for the editor */
        const char *line = el_gets(r->el, &bytes);
        if (r->interrupted) {
            fputs("^C\n", r->echo);
            fflush(r->echo);
            *was_empty = r->was_empty && !r->continued;
            return TRI_LINE_INTERRUPT;
        }
        if (!line || bytes <= 0)
            return r->continued ? TRI_LINE_TEXT : TRI_LINE_END;
        size_t n = (size_t)bytes;
        n -= line[n - 1] == '\n';
        int command = !r->continued && line[0] == '/';
        int goes_on = !command && n > 0 && line[n - 1] == '\\';
        tri_buf_add(text, r->continued ? "\n" : "", (size_t)r->continued);
        tri_buf_add(text, line, n - (size_t)goes_on);
        if (command || (!goes_on && !more_is_waiting()))
            break;
        r->continued = 1;
    }
    remember(r, text);
    return TRI_LINE_TEXT;
}
