/* The chat: reads a line, does what it says, answers. See chat_loop.h. */
#include "cli/chat_loop.h"

#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/mem.h"
#include "cli/chat_file.h"
#include "cli/exchange.h"
#include "cli/line_reader.h"
#include "cli/terminal.h"

struct chat {
    struct tri_conversation *c;
    struct tri_talk *talk;
    struct tri_run_options *options;
    struct tri_reply last; /* what /stats tells about */
    bool answered, leave;
};

static const char help[] =
    "/help             this list\n"
    "/clear            forget the conversation (a system message stays)\n"
    "/system TEXT      set the system message; without TEXT take it away\n"
    "/think on|off     think before answering, or not\n"
    "/effort LEVEL     how much to think: low, high or max\n"
    "/tool TEXT        the result of the next open tool call\n"
    "/save FILE        keep conversation and model state (FILE and FILE.state)\n"
    "/load FILE        go on with a saved one\n"
    "/stats            times and memory\n"
    "/exit             leave (also Ctrl-D, or Ctrl-C twice at an empty line)\n"
    "Ctrl-C stops an answer. A line that ends in \\ goes on in the next one.\n";

static void tell(const struct tri_error *err)
{
    fflush(stdout);
    fprintf(stderr, "trireme: %s\n", err->text[0] ? err->text : tri_status_text(err->status));
}

static struct tri_screen screen_of(const struct tri_run_options *o)
{
    bool terminal = tri_is_terminal(stdout);
    return (struct tri_screen){ .out = stdout,
                                .terminal = terminal,
                                .thinking = o->show_thinking == TRI_SHOW_YES ||
                                            (o->show_thinking == TRI_SHOW_AUTO && terminal),
                                .progress = !o->flags.quiet && tri_is_terminal(stderr) };
}

/* Answers the last message; if that fails or nothing was made, it is taken back. */
static void answer(struct chat *chat)
{
    struct tri_error err = { 0 };
    struct tri_screen screen = screen_of(chat->options);
    size_t before = chat->c->n;
    tri_interrupt_clear();
    tri_reply_fini(&chat->last);
    enum tri_status st =
        tri_exchange(chat->c, chat->talk, chat->options, &screen, &chat->last, &err);
    tri_interrupt_clear();
    chat->answered = true;
    if (st != TRI_OK)
        tell(&err);
    else if (!chat->options->flags.quiet)
        tri_reply_line(stderr, &chat->last, tri_is_terminal(stderr));
    if (chat->c->n == before)
        tri_conversation_drop(chat->c);
}

/* The id of the first call of the last reply that has no result yet; NULL if there is none. */
static json_t *open_call(const struct tri_conversation *c, json_t **reply)
{
    size_t results = 0, at = c->n;
    for (; at > 0; at--, results++) {
        struct tri_error err = { 0 };
        const char *text = c->messages[at - 1].json;
        if (tri_json_parse(reply, "message", text, strlen(text), TRI_CHAT_MAX_BYTES, &err))
            return NULL;
        const char *role = json_string_value(json_object_get(*reply, "role"));
        if (role && strcmp(role, "tool") != 0)
            break;
        json_decref(*reply);
        *reply = NULL;
    }
    json_t *call = json_array_get(json_object_get(*reply, "tool_calls"), results);
    return json_object_get(call, "id");
}

static void do_tool(struct chat *chat, const char *text)
{
    json_t *reply = NULL, *next = NULL;
    json_t *id = open_call(chat->c, &reply);
    struct tri_error err = { 0 };
    if (!json_is_string(id)) {
        fprintf(stderr, "No tool call waits for a result.\n");
    } else if (tri_conversation_result(chat->c, json_string_value(id), text, &err) != TRI_OK) {
        tell(&err);
    } else if (json_is_string(open_call(chat->c, &next))) {
        fprintf(stderr, "Taken. Another call waits for its result.\n");
    } else {
        answer(chat);
    }
    json_decref(reply);
    json_decref(next);
}

static void do_clear(struct chat *chat, const char *text)
{
    (void)text;
    tri_conversation_clear(chat->c);
}

static void do_system(struct chat *chat, const char *text)
{
    struct tri_error err = { 0 };
    if (tri_conversation_system(chat->c, text, &err) != TRI_OK)
        tell(&err);
}

static void do_think(struct chat *chat, const char *text)
{
    if (!strcmp(text, "on") || !strcmp(text, "off"))
        chat->c->thinking = !strcmp(text, "on");
    else
        fprintf(stderr, "/think on or /think off; it is %s now.\n",
                chat->c->thinking ? "on" : "off");
}

static void do_effort(struct chat *chat, const char *text)
{
    struct tri_error err = { 0 };
    if (tri_effort_parse(&chat->c->effort, text, &err) != TRI_OK)
        tell(&err);
}

static void do_save(struct chat *chat, const char *text)
{
    struct tri_error err = { 0 };
    if (!*text)
        fprintf(stderr, "/save FILE\n");
    else if (tri_chat_save(text, chat->c, chat->talk, chat->options->sampling.seed, &err) != TRI_OK)
        tell(&err);
    else
        fprintf(stderr, "Saved to %s and %s.state.\n", text, text);
}

static void do_load(struct chat *chat, const char *text)
{
    struct tri_error err = { 0 }, note = { 0 };
    if (!*text) {
        fprintf(stderr, "/load FILE\n");
        return;
    }
    uint64_t *seed = &chat->options->sampling.seed;
    if (tri_chat_load(text, chat->c, chat->talk, seed, &note, &err) != TRI_OK) {
        tell(&err);
        return;
    }
    fprintf(stderr, "Loaded %zu messages.\n", chat->c->n);
    if (note.status != TRI_OK)
        fprintf(stderr, "The state is computed again with the next answer: %s\n", note.text);
}

static void do_stats(struct chat *chat, const char *text)
{
    (void)text;
    tri_reply_stats(stderr, chat->answered ? &chat->last : NULL, chat->talk,
                    chat->options->sampling.seed);
}

static void do_help(struct chat *chat, const char *text)
{
    (void)chat;
    (void)text;
    fputs(help, stderr);
}

static void do_exit(struct chat *chat, const char *text)
{
    (void)text;
    chat->leave = true;
}

/* "/name rest" */
static void do_command(struct chat *chat, const char *line)
{
    static const struct {
        const char *name;
        void (*run)(struct chat *chat, const char *text);
    } commands[] = {
        { "help", do_help },   { "clear", do_clear },   { "system", do_system },
        { "think", do_think }, { "effort", do_effort }, { "tool", do_tool },
        { "save", do_save },   { "load", do_load },     { "stats", do_stats },
        { "exit", do_exit },   { "quit", do_exit },
    };
    size_t n = strcspn(line + 1, " \t");
    const char *rest = line + 1 + n;
    rest += strspn(rest, " \t");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strlen(commands[i].name) != n || strncmp(line + 1, commands[i].name, n) != 0)
            continue;
        commands[i].run(chat, rest);
        return;
    }
    fprintf(stderr, "No such command; /help lists them.\n");
}

static void say(struct chat *chat, const char *text)
{
    struct tri_error err = { 0 };
    if (!*text)
        return;
    if (*text == '/')
        do_command(chat, text);
    else if (tri_conversation_user(chat->c, text, &err) != TRI_OK)
        tell(&err);
    else
        answer(chat);
}

static void talk_until_end(struct chat *chat, struct tri_line_reader *reader, struct tri_buf *text)
{
    int interrupts = 0;
    while (!chat->leave) {
        int was_empty = 0;
        enum tri_line kind = tri_line_read(reader, text, &was_empty);
        if (kind == TRI_LINE_END)
            break;
        if (kind == TRI_LINE_TEXT) {
            interrupts = 0;
            if (text->failed)
                fprintf(stderr, "trireme: the text is too long\n");
            else
                say(chat, text->data ? text->data : "");
            continue;
        }
        interrupts = was_empty ? interrupts + 1 : 0;
        if (interrupts == 2)
            break;
        fputs(was_empty ? "Ctrl-C again, or Ctrl-D, leaves.\n" : "", stderr);
    }
}

enum tri_status tri_chat_loop(struct tri_conversation *c, struct tri_talk *talk,
                              struct tri_run_options *options, struct tri_error *err)
{
    struct chat chat = { .c = c, .talk = talk, .options = options };
    struct tri_line_reader *reader = NULL;
    struct tri_buf text;
    tri_terminal_keep();
    enum tri_status st =
        tri_line_reader_open(&reader, tri_is_terminal(stdout) ? stdout : stderr, "> ", err);
    if (st != TRI_OK)
        return st;
    tri_buf_init(&text, TRI_ENCODE_MAX_BYTES);
    if (!options->flags.quiet)
        fprintf(stderr, "%s, context %lld tokens. /help tells the commands, Ctrl-D leaves.\n",
                talk->opened.folder, (long long)talk->context_tokens);
    talk_until_end(&chat, reader, &text);
    tri_reply_fini(&chat.last);
    tri_buf_fini(&text);
    tri_line_reader_close(reader);
    return TRI_OK;
}
