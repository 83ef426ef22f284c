/*
 * Makes one answer. Text passes in this order: sampled id, output parser (or plain detokenizer),
 * stop strings (the answer only, never the thinking), screen.
 */
#include "cli/reply.h"

#include <errno.h>
#include <string.h>
#include "base/clock.h"
#include "cli/terminal.h"

/* What the parser's callback and the stop strings share while an answer is made. */
struct making {
    struct tri_reply *reply;
    struct tri_screen *screen;
    struct tri_stop *stop;
    struct tri_detok detok; /* raw text */
    struct tri_buf piece;
    int64_t found; /* stop string, or -1 */
};

/* --- screen --------------------------------------------------------------------------------- */

static void put(struct tri_screen *s, const char *text, size_t bytes)
{
    if (!s->out || bytes == 0)
        return;
    tri_write_text(s->out, text, bytes, s->terminal);
    s->line_open = text[bytes - 1] != '\n';
    s->any = true;
    if ((fflush(s->out) || ferror(s->out)) && !s->failed)
        s->failed = errno ? errno : EIO;
}

static void break_line(struct tri_screen *s)
{
    if (s->line_open)
        put(s, "\n", 1);
}

/* Thinking is dim on a terminal and between labels elsewhere. */
static void enter_thinking(struct tri_screen *s)
{
    if (!s->out || s->in_thinking)
        return;
    s->in_thinking = true;
    tri_dim(s->out, true, s->terminal);
    if (!s->terminal)
        put(s, "<think>\n", 8);
}

static void leave_thinking(struct tri_screen *s)
{
    if (!s->out || !s->in_thinking)
        return;
    s->in_thinking = false;
    break_line(s);
    tri_dim(s->out, false, s->terminal);
    if (s->terminal)
        put(s, "\n", 1);
    else
        put(s, "</think>\n\n", 10);
}

/* --- from ids to text ----------------------------------------------------------------------- */

static void emit(void *arg, const char *bytes, size_t n)
{
    struct making *m = arg;
    tri_buf_add(&m->reply->content, bytes, n);
    leave_thinking(m->screen);
    put(m->screen, bytes, n);
}

static void answer(struct making *m, const char *text, size_t bytes)
{
    if (m->found < 0)
        m->found = tri_stop_feed(m->stop, text, bytes, emit, m);
}

static void on_event(void *arg, const struct tri_event *event)
{
    struct making *m = arg;
    struct tri_screen *s = m->screen;
    switch (event->kind) {
    case TRI_EVENT_REASONING:
        if (!s->thinking)
            return;
        enter_thinking(s);
        put(s, event->text, event->bytes);
        return;
    case TRI_EVENT_CONTENT:
        answer(m, event->text, event->bytes);
        return;
    case TRI_EVENT_CALL_BEGIN:
        leave_thinking(s);
        break_line(s);
        put(s, "[tool call] ", 12);
        put(s, event->text, event->bytes);
        put(s, " ", 1);
        return;
    case TRI_EVENT_CALL_ARGUMENTS:
        put(s, event->text, event->bytes);
        return;
    case TRI_EVENT_CALL_END:
        break_line(s);
        return;
    }
}

static enum tri_status take_token(struct making *m, int32_t id, struct tri_error *err)
{
    struct tri_reply *r = m->reply;
    if (tri_ids_add(&r->sampled, id) != TRI_OK)
        return tri_fail(err, TRI_NOMEM, "no memory for the answer");
    if (r->parser) {
        bool thinks = tri_parser_channel(r->parser) == TRI_CHANNEL_THINK;
        enum tri_status st = tri_parser_push(r->parser, id, err);
        r->reasoning_tokens += thinks;
        return st;
    }
    tri_buf_clear(&m->piece);
    enum tri_status st = tri_detok_push(&m->detok, id, &m->piece, err);
    if (st == TRI_OK && m->piece.len_bytes)
        answer(m, m->piece.data, m->piece.len_bytes);
    return st;
}

/* --- the loop ------------------------------------------------------------------------------- */

static void prompt_progress(const struct tri_talk *t, const struct tri_screen *s, double spent_s)
{
    if (!s->progress || spent_s < 1)
        return;
    int64_t all = 0;
    tri_sequence_tokens(t->sequence, &all);
    fprintf(stderr, "\r\033[Kreading the prompt: %lld of %lld tokens",
            (long long)tri_sequence_computed(t->sequence), (long long)all);
    fflush(stderr);
}

static void tell_end(struct tri_reply *r, enum tri_end end)
{
    r->context_full = end == TRI_END_CONTEXT;
    r->finish = end == TRI_END_STOP ? "stop" : "length";
}

/* One token's worth of the loop: true while it goes on. */
static bool took_event(struct making *m, const struct tri_step_event *event, enum tri_status *st,
                       struct tri_error *err)
{
    if (event->end == TRI_END_ERROR) {
        m->reply->finish = "error";
        *st = tri_fail(err, event->error->status, "%s", event->error->text);
        return false;
    }
    if (event->token < 0)
        return true;
    *st = take_token(m, event->token, err);
    if (*st != TRI_OK || m->found >= 0)
        return false;
    if (event->end != TRI_END_NONE)
        tell_end(m->reply, event->end);
    return event->end == TRI_END_NONE;
}

static enum tri_status run_steps(struct making *m, struct tri_talk *t, double begin_s,
                                 struct tri_error *err)
{
    struct tri_reply *r = m->reply;
    enum tri_status st = TRI_OK;
    bool going = true;
    while (going && st == TRI_OK) {
        const struct tri_step_event *events = NULL;
        int64_t n = 0;
        if (tri_interrupted()) {
            r->finish = "interrupted";
            break;
        }
        struct tri_error failure = { 0 };
        st = tri_engine_step(t->engine, &events, &n, &failure);
        if (st == TRI_CANCELLED) {
            st = TRI_OK;
            r->finish = "interrupted";
            break;
        }
        if (st != TRI_OK && err && err->status == TRI_OK)
            *err = failure;
        if (st != TRI_OK || n == 0) {
            r->finish = "error";
            break;
        }
        double now = tri_clock_s();
        if (events[0].token >= 0 && r->first_token_s == 0) {
            if (m->screen->progress && now - begin_s >= 1)
                fputs("\r\033[K", stderr);
            r->first_token_s = r->prefill_s = now - begin_s;
        } else if (r->first_token_s == 0) {
            prompt_progress(t, m->screen, now - begin_s);
        }
        going = took_event(m, &events[0], &st, err);
        if (st == TRI_OK && m->screen->failed)
            st = tri_fail_errno(err, TRI_IO, m->screen->failed, "the answer cannot be written");
    }
    tri_sequence_stop(t->sequence);
    r->decode_s = r->first_token_s > 0 ? tri_clock_s() - begin_s - r->first_token_s : 0;
    return st;
}

/* Lets out what was held back, and says how it ended. */
static enum tri_status finish(struct making *m, enum tri_status st, struct tri_error *err)
{
    struct tri_reply *r = m->reply;
    if (m->found >= 0)
        r->finish = "stop";
    if (r->parser) {
        bool cut = strcmp(r->finish, "stop") != 0 || m->found >= 0;
        r->channel = tri_parser_channel(r->parser);
        r->ended = tri_parser_ended(r->parser);
        enum tri_status last = tri_parser_finish(r->parser, cut, &r->turn, st ? NULL : err);
        st = st ? st : last;
        if (last == TRI_OK && (!strcmp(r->finish, "stop") || !strcmp(r->finish, "length")))
            r->finish = m->found >= 0 ? "stop" : tri_finish_name(r->turn.finish);
    } else {
        tri_buf_clear(&m->piece);
        tri_detok_finish(&m->detok, &m->piece);
        if (m->piece.len_bytes)
            answer(m, m->piece.data, m->piece.len_bytes);
    }
    if (m->found < 0)
        tri_stop_flush(m->stop, emit, m);
    if (m->found >= 0 || !r->parser) {
        r->turn.content = r->content.data ? r->content.data : "";
        r->turn.content_bytes = r->content.len_bytes;
    }
    leave_thinking(m->screen);
    break_line(m->screen);
    return st;
}

static enum tri_status open_parser(struct making *m, struct tri_talk *t,
                                   const struct tri_reply_request *q, struct tri_error *err)
{
    size_t names = 0;
    if (!q->rendered) {
        tri_detok_init(&m->detok, t->tok, true);
        return TRI_OK;
    }
    struct tri_parser_options o = {
        .start = tri_prompt_start(q->rendered), .tools = q->tools, .event = on_event, .arg = m
    };
    o.names = tri_prompt_tools(q->rendered, &names);
    o.name_count = names;
    return tri_parser_open(&m->reply->parser, t->tok, &o, err);
}

static enum tri_status start(struct tri_reply *r, struct tri_talk *t,
                             const struct tri_run_options *o, const struct tri_ids *prompt,
                             struct tri_error *err)
{
    struct tri_generate how = { .sampling = o->sampling,
                                .max_tokens = o->max_tokens,
                                .stop_ids = t->stop_ids,
                                .n_stop_ids = t->n_stop_ids,
                                .bias = o->bias,
                                .n_bias = o->n_bias };
    r->prompt_tokens = (int64_t)prompt->count_tokens;
    if (r->prompt_tokens >= t->context_tokens)
        return tri_fail(err, TRI_LIMIT,
                        "the prompt has %lld tokens and the context holds %lld: shorten it, or "
                        "raise --context (this model: up to %lld)",
                        (long long)r->prompt_tokens, (long long)t->context_tokens,
                        (long long)tri_model_spec(t->opened.model)->context_tokens);
    enum tri_status st =
        tri_sequence_prompt(t->sequence, prompt->data, r->prompt_tokens, &r->reused_tokens, err);
    return st == TRI_OK ? tri_sequence_start(t->sequence, &how, err) : st;
}

enum tri_status tri_reply_make(struct tri_reply *reply, struct tri_talk *talk,
                               const struct tri_run_options *options,
                               const struct tri_reply_request *request, struct tri_screen *screen,
                               struct tri_error *err)
{
    struct making m = { .reply = reply, .screen = screen, .found = -1 };
    double begin_s = tri_clock_s();
    *reply = (struct tri_reply){ .finish = "error" };
    tri_buf_init(&reply->content, TRI_TURN_MAX_BYTES);
    tri_buf_init(&m.piece, TRI_TURN_MAX_BYTES);
    enum tri_status st = tri_stop_open(&m.stop, options->stop, options->n_stop, err);
    if (st == TRI_OK)
        st = open_parser(&m, talk, request, err);
    if (st == TRI_OK)
        st = start(reply, talk, options, request->prompt, err);
    if (st == TRI_OK) {
        st = run_steps(&m, talk, begin_s, err);
        st = finish(&m, st, err);
    }
    if (m.found >= 0)
        reply->stop_string = options->stop[m.found];
    tri_stop_close(m.stop);
    tri_buf_fini(&m.piece);
    return st;
}

void tri_reply_fini(struct tri_reply *reply)
{
    tri_parser_close(reply->parser);
    tri_buf_fini(&reply->content);
    tri_ids_fini(&reply->sampled);
    *reply = (struct tri_reply){ 0 };
}
