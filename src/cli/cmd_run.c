/*
 * trireme run: one answer, or a chat. Decides which, gets the prompt, and reports; the work is in
 * talk.c (what is open), exchange.c and reply.c (an answer), chat_loop.c (the chat).
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "base/mem.h"
#include "cli/chat_loop.h"
#include "cli/exchange.h"
#include "cli/terminal.h"

struct run {
    struct tri_run_options options;
    struct tri_talk talk;
    struct tri_conversation conversation;
    struct tri_buf prompt;
    bool chat;
};

static enum tri_status read_stream(struct tri_buf *out, FILE *in, const char *name,
                                   struct tri_error *err)
{
    char piece[65536];
    for (;;) {
        size_t n = fread(piece, 1, sizeof piece, in);
        if (n == 0)
            break;
        if (tri_buf_add(out, piece, n) != TRI_OK)
            return tri_fail(err, out->failed, "%s: a prompt of at most %d bytes, please", name,
                            TRI_ENCODE_MAX_BYTES);
    }
    return ferror(in) ? tri_fail(err, TRI_IO, "%s cannot be read", name) : TRI_OK;
}

static enum tri_status read_file(struct tri_buf *out, const char *path, struct tri_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    enum tri_status st = tri_read_file(&text, &bytes, path, TRI_ENCODE_MAX_BYTES, err);
    if (st == TRI_OK && tri_buf_add(out, text, bytes) != TRI_OK)
        st = tri_fail(err, out->failed, "no memory for %s", path);
    tri_free(text);
    return st;
}

/* From the command line, a file, or a pipe; none of them: a chat. One final newline of a file or a
 * pipe is no part of the prompt. */
static enum tri_status find_prompt(struct run *r, struct tri_error *err)
{
    const struct tri_run_options *o = &r->options;
    struct tri_buf *p = &r->prompt;
    enum tri_status st = TRI_OK;
    if (o->prompt)
        st = tri_buf_puts(p, o->prompt);
    else if (o->prompt_file && strcmp(o->prompt_file, "-") != 0)
        st = read_file(p, o->prompt_file, err);
    else if (o->prompt_file || !tri_is_terminal(stdin))
        st = read_stream(p, stdin, "standard input", err);
    else
        r->chat = true;
    if (!o->prompt && p->len_bytes && p->data[p->len_bytes - 1] == '\n')
        p->data[--p->len_bytes] = 0;
    if (r->chat && (o->raw || o->json))
        return tri_fail(err, TRI_ARG, "--raw and --json need a prompt");
    if (st == TRI_OK && !r->chat && p->len_bytes == 0)
        return tri_fail(err, TRI_ARG, "the prompt is empty");
    return st;
}

static enum tri_status prepare(struct run *r, struct tri_error *err)
{
    const struct tri_run_options *o = &r->options;
    r->conversation.thinking = o->thinking;
    r->conversation.effort = o->effort;
    enum tri_status st =
        o->request_file ? read_file(&r->prompt, o->request_file, err) : find_prompt(r, err);
    if (st == TRI_OK && o->tools_file)
        st = tri_conversation_tools(&r->conversation, o->tools_file, err);
    if (st == TRI_OK && o->system)
        st = tri_conversation_system(&r->conversation, o->system, err);
    return st;
}

/* Text is continued as it is. */
static enum tri_status continue_text(struct run *r, struct tri_screen *screen,
                                     struct tri_reply *reply, struct tri_error *err)
{
    struct tri_ids ids = { 0 };
    enum tri_status st =
        tri_encode(r->talk.tok, r->prompt.data, r->prompt.len_bytes, TRI_PLAIN, &ids, err);
    if (st == TRI_OK) {
        struct tri_reply_request request = { .prompt = &ids };
        st = tri_reply_make(reply, &r->talk, &r->options, &request, screen, err);
    }
    tri_ids_fini(&ids);
    return st;
}

/* A request file is rendered as it is; thinking and effort come from the command line. */
static enum tri_status answer_request(struct run *r, struct tri_screen *screen,
                                      struct tri_reply *reply, struct tri_error *err)
{
    const struct tri_run_options *o = &r->options;
    struct tri_chat_settings settings = TRI_CHAT_SETTINGS;
    struct tri_prompt *rendered = NULL;
    struct tri_ids ids = { 0 };
    size_t tools = 0;
    settings.thinking = o->thinking;
    settings.effort = o->effort;
    enum tri_status st = tri_chat_render(&rendered, o->request_file, r->prompt.data,
                                         r->prompt.len_bytes, &settings, err);
    if (st == TRI_OK)
        st = tri_prompt_encode(rendered, r->talk.tok, &ids, err);
    if (st == TRI_OK) {
        tri_prompt_tools(rendered, &tools);
        struct tri_reply_request request = { .prompt = &ids,
                                             .rendered = rendered,
                                             .tools = tools > 0 };
        st = tri_reply_make(reply, &r->talk, o, &request, screen, err);
    }
    tri_prompt_close(rendered);
    tri_ids_fini(&ids);
    return st;
}

static enum tri_status answer_message(struct run *r, struct tri_screen *screen,
                                      struct tri_reply *reply, struct tri_error *err)
{
    if (memchr(r->prompt.data, 0, r->prompt.len_bytes))
        return tri_fail(err, TRI_FORMAT, "the prompt holds a NUL byte: is it a text?");
    enum tri_status st = tri_conversation_user(&r->conversation, r->prompt.data, err);
    if (st == TRI_OK)
        st = tri_exchange(&r->conversation, &r->talk, &r->options, screen, reply, err);
    return st;
}

static enum tri_status report(const struct run *r, const struct tri_reply *reply,
                              struct tri_error *err)
{
    const struct tri_run_options *o = &r->options;
    enum tri_status st = TRI_OK;
    if (o->json)
        st = tri_reply_json(stdout, reply, &r->talk, o, err);
    else if (!o->flags.quiet)
        tri_reply_line(stderr, reply, tri_is_terminal(stderr));
    if (o->stats)
        tri_reply_stats(stderr, reply, &r->talk, o->sampling.seed);
    if (st == TRI_OK && (fflush(stdout) != 0 || ferror(stdout)))
        st = tri_fail(err, TRI_IO, "the answer cannot be written");
    return st;
}

static enum tri_status one_answer(struct run *r, struct tri_error *err)
{
    const struct tri_run_options *o = &r->options;
    bool terminal = tri_is_terminal(stdout);
    struct tri_reply reply = { .finish = "error" };
    struct tri_screen screen = { .out = o->json ? NULL : stdout,
                                 .terminal = terminal,
                                 .thinking = o->show_thinking == TRI_SHOW_YES ||
                                             (o->show_thinking == TRI_SHOW_AUTO && terminal),
                                 .progress = !o->flags.quiet && tri_is_terminal(stderr) };
    enum tri_status st = o->raw            ? continue_text(r, &screen, &reply, err)
                         : o->request_file ? answer_request(r, &screen, &reply, err)
                                           : answer_message(r, &screen, &reply, err);
    if (st == TRI_OK)
        st = report(r, &reply, err);
    if (st == TRI_OK && !strcmp(reply.finish, "interrupted"))
        st = tri_fail(err, TRI_CANCELLED, "interrupted");
    tri_reply_fini(&reply);
    return st;
}

static enum tri_status run(struct run *r, struct tri_error *err)
{
    enum tri_status st = prepare(r, err);
    if (st == TRI_OK)
        st = tri_talk_open(&r->talk, &r->options.flags, r->options.context_tokens, r->options.trace,
                           err);
    if (st != TRI_OK)
        return st;
    if (!r->options.raw && !r->talk.speaks_chat)
        return tri_fail(err, TRI_UNSUPPORTED,
                        "%s: its vocabulary lacks the chat markers; --raw continues plain text",
                        r->talk.opened.folder);
    tri_interrupt_catch();
    return r->chat ? tri_chat_loop(&r->conversation, &r->talk, &r->options, err)
                   : one_answer(r, err);
}

int tri_cmd_run(int argc, char **argv)
{
    struct tri_error err = { 0 };
    struct run *r = tri_calloc(1, sizeof *r);
    if (!r) {
        tri_fail(&err, TRI_NOMEM, "no memory");
        return tri_cli_fail(&err);
    }
    tri_run_options_parse(&r->options, argc, argv);
    tri_buf_init(&r->prompt, TRI_ENCODE_MAX_BYTES);
    enum tri_status st = run(r, &err);
    enum tri_status closed = tri_talk_close(&r->talk, &err);
    st = st ? st : closed;
    tri_conversation_fini(&r->conversation);
    tri_buf_fini(&r->prompt);
    tri_free(r);
    return st == TRI_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
