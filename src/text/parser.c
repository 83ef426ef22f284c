/*
 * The output parser: which element a sampled id belongs to (spec 6.7). A small stack machine over
 * ids; tags are told by marker ids only, so text that spells a marker stays text. Whatever the
 * model does wrong is counted and repaired, never refused.
 */
#include "text/parser_priv.h"

#include <string.h>
#include "base/mem.h"

const char *tri_deviation_name(enum tri_deviation deviation)
{
    static const char *const names[] = {
#define NAME(name, text) text,
        TRI_DEVIATION_MAP(NAME)
#undef NAME
    };
    TRI_ASSERT(deviation < TRI_DEVIATIONS);
    return names[deviation];
}

const char *tri_finish_name(enum tri_finish finish)
{
    static const char *const names[] = { "stop", "tool_calls", "length" };
    return names[finish];
}

void tri__parser_count(struct tri_parser *p, enum tri_deviation deviation)
{
    p->deviations[deviation] += p->deviations[deviation] < UINT32_MAX;
}

void tri__parser_fail(struct tri_parser *p, enum tri_status status)
{
    if (!p->failed)
        p->failed = status;
}

void tri__parser_emit(struct tri_parser *p, enum tri_event_kind kind, const char *text,
                      size_t bytes)
{
    if (bytes > TRI_TURN_MAX_BYTES - p->kept_bytes) {
        tri__parser_fail(p, TRI_LIMIT);
        return;
    }
    p->kept_bytes += bytes;
    struct tri_event event = { kind, p->call_count, text, bytes };
    if (p->options.event && !p->failed)
        p->options.event(p->options.arg, &event);
}

/* ---- text ---- */

static void keep_and_emit(struct tri_parser *p, struct tri_buf *whole, enum tri_event_kind kind,
                          const char *text, size_t bytes)
{
    if (tri_buf_add(whole, text, bytes))
        tri__parser_fail(p, whole->failed);
    else
        tri__parser_emit(p, kind, text, bytes);
}

/* Thinking that was closed as the answer is the answer: nothing that follows says otherwise. */
static void settle_answer(struct tri_parser *p)
{
    if (!p->maybe_answer)
        return;
    p->maybe_answer = false;
    tri__parser_count(p, TRI_DEVIATION_ANSWER_IN_THINK);
    size_t bytes = p->reasoning.len_bytes - p->think_at;
    if (!bytes)
        return;
    keep_and_emit(p, &p->content, TRI_EVENT_CONTENT, p->reasoning.data + p->think_at, bytes);
    p->reasoning.len_bytes = p->think_at;
    p->reasoning.data[p->think_at] = 0;
    p->kept_bytes -= bytes;
}

/*
 * Text where no element is open. Blanks are layout; more is what the model had to say, so between
 * the elements of a message it is taken as the answer, and among tools it is dropped.
 */
static void stray_text(struct tri_parser *p, const char *text, size_t bytes)
{
    if (!p->stray && tri__text_is_blank(text, bytes))
        return;
    if (!p->stray)
        tri__parser_count(p, TRI_DEVIATION_STRAY_TEXT);
    p->stray = true;
    if (p->where != TRI__IN_MESSAGE)
        return;
    settle_answer(p);
    keep_and_emit(p, &p->content, TRI_EVENT_CONTENT, text, bytes);
}

/* Valid text for the element that is open. */
static void deliver(struct tri_parser *p, const char *text, size_t bytes)
{
    if (!bytes)
        return;
    switch (p->where) {
    case TRI__IN_THINK:
        keep_and_emit(p, &p->reasoning, TRI_EVENT_REASONING, text, bytes);
        return;
    case TRI__IN_RESPONSE:
        keep_and_emit(p, &p->content, TRI_EVENT_CONTENT, text, bytes);
        return;
    case TRI__IN_VALUE:
        tri__value_text(p, text, bytes);
        return;
    case TRI__IN_MESSAGE:
    case TRI__IN_TOOLS:
    case TRI__IN_CALL:
        stray_text(p, text, bytes);
        return;
    case TRI__AFTER:
        return;
    }
}

static void deliver_valid(struct tri_parser *p)
{
    if (p->valid.failed)
        tri__parser_fail(p, p->valid.failed);
    else if (p->valid.len_bytes)
        deliver(p, p->valid.data, p->valid.len_bytes);
    tri_buf_clear(&p->valid);
}

/* Before the open element changes: bytes that wait for the rest of their character. */
static void flush(struct tri_parser *p)
{
    tri_utf8_finish(&p->hold, &p->valid);
    deliver_valid(p);
    p->stray = false;
}

/* ---- elements ---- */

/* Closes the innermost open element. */
static void leave(struct tri_parser *p)
{
    flush(p);
    switch (p->where) {
    case TRI__IN_VALUE:
        tri__value_end(p);
        p->where = TRI__IN_CALL;
        return;
    case TRI__IN_CALL:
        tri__call_end(p);
        p->where = TRI__IN_TOOLS;
        return;
    case TRI__IN_TOOLS:
        p->tools_closed = true;
        p->where = TRI__IN_MESSAGE;
        return;
    case TRI__IN_RESPONSE:
        p->first_answer = false;
        p->where = TRI__IN_MESSAGE;
        return;
    case TRI__IN_THINK:
    case TRI__IN_MESSAGE:
    case TRI__AFTER:
        p->where = TRI__IN_MESSAGE;
        return;
    }
}

static bool is_among_tools(const struct tri_parser *p)
{
    return p->where == TRI__IN_TOOLS || p->where == TRI__IN_CALL || p->where == TRI__IN_VALUE;
}

/* Closes what the model left open inside `target`, which is open. */
static void unwind(struct tri_parser *p, enum tri__where target)
{
    if (p->where != target)
        tri__parser_count(p, TRI_DEVIATION_IMPLICIT_CLOSE);
    while (p->where != target)
        leave(p);
}

/* What the opened response held so far was thinking after all. */
static void answer_was_thinking(struct tri_parser *p)
{
    flush(p);
    tri__parser_count(p, TRI_DEVIATION_THINK_IN_RESPONSE);
    p->first_answer = false;
    p->where = TRI__IN_MESSAGE;
    struct tri_buf swap = p->reasoning; /* empty: nothing but this response was open yet */
    p->reasoning = p->content;
    p->content = swap;
}

static void open_response(struct tri_parser *p)
{
    if (p->maybe_answer) { /* an answer follows, so the thinking was thinking */
        p->maybe_answer = false;
        tri__parser_count(p, TRI_DEVIATION_STRAY_CLOSE);
    }
    if (p->where == TRI__IN_RESPONSE && p->first_answer)
        answer_was_thinking(p);
    else
        unwind(p, TRI__IN_MESSAGE);
    p->where = TRI__IN_RESPONSE;
}

static void open_tools(struct tri_parser *p)
{
    settle_answer(p);
    unwind(p, TRI__IN_MESSAGE);
    p->where = TRI__IN_TOOLS;
    p->tools_closed = false;
    if (!p->options.tools)
        tri__parser_count(p, TRI_DEVIATION_UNDECLARED_TOOLS);
}

static void open_call(struct tri_parser *p)
{
    if (is_among_tools(p)) {
        unwind(p, TRI__IN_TOOLS);
    } else {
        tri__parser_count(p, TRI_DEVIATION_IMPLICIT_OPEN);
        open_tools(p);
    }
    tri__call_begin(p, &p->tag_text, p->options.tools);
    p->where = TRI__IN_CALL;
}

static void open_tag(struct tri_parser *p)
{
    const struct tri_buf *tag = &p->tag_text;
    bool in_call = p->where == TRI__IN_CALL || p->where == TRI__IN_VALUE;
    flush(p);
    if (tri__tag_is(tag, "think")) {
        settle_answer(p);
        unwind(p, TRI__IN_MESSAGE);
        p->where = TRI__IN_THINK;
        p->think_at = p->reasoning.len_bytes;
    } else if (tri__tag_is(tag, "response")) {
        open_response(p);
    } else if (tri__tag_is(tag, "tools")) {
        open_tools(p);
    } else if (tri__tag_is(tag, "call")) {
        open_call(p);
    } else if (in_call && (tri__tag_is(tag, "argument") || tri__tag_is(tag, "json"))) {
        unwind(p, TRI__IN_CALL);
        tri__value_begin(p, tag);
        p->where = TRI__IN_VALUE;
    } else if (tri__tag_is(tag, "message")) {
        unwind(p, TRI__IN_MESSAGE);
    } else {
        tri__parser_count(p, TRI_DEVIATION_UNKNOWN_TAG);
    }
}

static void close_message(struct tri_parser *p)
{
    if (p->where == TRI__IN_THINK) {
        leave(p);
        p->maybe_answer = true;
    }
    unwind(p, TRI__IN_MESSAGE);
    settle_answer(p);
    p->where = TRI__AFTER;
}

static void close_tag(struct tri_parser *p)
{
    const struct tri_buf *tag = &p->tag_text;
    bool is_value = tri__tag_is(tag, "argument") || tri__tag_is(tag, "json");
    flush(p);
    if (tri__tag_is(tag, "message")) {
        close_message(p);
    } else if (p->where == TRI__IN_THINK && tri__tag_is(tag, "response")) {
        leave(p);
        p->maybe_answer = true;
    } else if (p->where == TRI__IN_RESPONSE && p->first_answer && tri__tag_is(tag, "think")) {
        answer_was_thinking(p);
    } else if ((p->where == TRI__IN_THINK && tri__tag_is(tag, "think")) ||
               (p->where == TRI__IN_RESPONSE && tri__tag_is(tag, "response")) ||
               (p->where == TRI__IN_VALUE && is_value)) {
        leave(p);
    } else if (is_among_tools(p) && tri__tag_is(tag, "tools")) {
        unwind(p, TRI__IN_TOOLS);
        leave(p);
    } else if (is_among_tools(p) && p->where != TRI__IN_TOOLS && tri__tag_is(tag, "call")) {
        unwind(p, TRI__IN_CALL);
        leave(p);
    } else {
        tri__parser_count(p, tri__tag_is(tag, "think") || tri__tag_is(tag, "response") ||
                                     tri__tag_is(tag, "tools") || tri__tag_is(tag, "call") ||
                                     is_value
                                 ? TRI_DEVIATION_STRAY_CLOSE
                                 : TRI_DEVIATION_UNKNOWN_TAG);
    }
}

/* ---- tags ---- */

static void begin_tag(struct tri_parser *p, bool opening)
{
    p->tag = opening ? TRI__OPENING : TRI__CLOSING;
    tri_buf_clear(&p->tag_text);
}

static void end_tag(struct tri_parser *p)
{
    bool opening = p->tag == TRI__OPENING;
    p->tag = TRI__NO_TAG;
    if (opening)
        open_tag(p);
    else
        close_tag(p);
}

/*
 * Is the tag whole, and is `text` what belongs behind it? Only asked when no sep came. Tags without
 * attributes end with their name; a small letter, digit or _ would make the name a longer one.
 */
static bool ends_before(const struct tri_parser *p, const char *text)
{
    static const char *const names[] = { "think", "response", "tools", "message",
                                         "call",  "argument", "json" };
    size_t bare = p->tag == TRI__CLOSING ? 7 : 3; /* opened, the last four take attributes */
    char c = *text;
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')
        return false;
    for (size_t i = 0; i < bare; i++)
        if (p->tag_text.len_bytes == strlen(names[i]) &&
            !memcmp(p->tag_text.data, names[i], p->tag_text.len_bytes))
            return true;
    return false;
}

static void take_text(struct tri_parser *p, const char *text, size_t bytes)
{
    if (p->tag != TRI__NO_TAG && ends_before(p, text)) {
        tri__parser_count(p, TRI_DEVIATION_MISSING_SEP);
        end_tag(p);
    }
    if (p->tag != TRI__NO_TAG) {
        enum tri_status st = tri_buf_add(&p->tag_text, text, bytes);
        if (st == TRI_LIMIT) {
            tri__parser_count(p, TRI_DEVIATION_LONG_TAG);
            p->tag = TRI__NO_TAG;
        } else if (st) {
            tri__parser_fail(p, st);
        }
        return;
    }
    tri_utf8_push(&p->hold, text, bytes, &p->valid);
    deliver_valid(p);
}

static void take_marker(struct tri_parser *p, int32_t id)
{
    if (id == p->ids.sep && p->tag == TRI__NO_TAG) {
        tri__parser_count(p, TRI_DEVIATION_STRAY_SEP);
        return;
    }
    if (id == p->ids.sep) {
        end_tag(p);
        return;
    }
    if (p->tag != TRI__NO_TAG) {
        tri__parser_count(p, TRI_DEVIATION_MISSING_SEP);
        end_tag(p);
    }
    if (id == p->ids.open || id == p->ids.close) {
        begin_tag(p, id == p->ids.open);
        return;
    }
    /* The message's end. */
    if (id == p->ids.eos)
        tri__parser_count(p, TRI_DEVIATION_EOS);
    p->ended = true;
    if (p->where == TRI__AFTER)
        return;
    if (p->where == TRI__IN_MESSAGE)
        tri__parser_count(p, TRI_DEVIATION_IMPLICIT_CLOSE);
    unwind(p, TRI__IN_MESSAGE);
    settle_answer(p);
    p->where = TRI__AFTER;
}

/* ---- the door ---- */

enum tri_status tri_parser_push(struct tri_parser *p, int32_t id, struct tri_error *err)
{
    size_t bytes = 0;
    const char *text = tri_token_bytes(p->tok, id, &bytes);
    bool is_end = id == p->ids.end_of_msg || id == p->ids.eos;
    bool is_marker = is_end || id == p->ids.open || id == p->ids.close || id == p->ids.sep;
    if (p->failed)
        return tri_fail(err, p->failed, "the reply could not be read: %s",
                        tri_status_text(p->failed));
    if (!text)
        return tri_fail(err, p->failed = TRI_FORMAT,
                        "sampled id %d is no token: this vocabulary has 0 to %d", id,
                        p->tok->tokens - 1);
    if (p->ended || (p->where == TRI__AFTER && p->tag == TRI__NO_TAG && !is_end)) {
        if (!p->deviations[TRI_DEVIATION_AFTER_END])
            tri__parser_count(p, TRI_DEVIATION_AFTER_END);
        p->ended = true;
        return TRI_OK;
    }
    if (is_marker)
        take_marker(p, id);
    else if (tri_token_is_added(p->tok, id))
        tri__parser_count(p, TRI_DEVIATION_STRAY_TOKEN);
    else
        take_text(p, text, bytes);
    if (p->failed)
        return tri_fail(err, p->failed, "the reply could not be read: %s (at most %d MiB)",
                        tri_status_text(p->failed), TRI_TURN_MAX_BYTES >> 20);
    return TRI_OK;
}

bool tri_parser_ended(const struct tri_parser *parser)
{
    return parser->ended;
}

enum tri_channel tri_parser_channel(const struct tri_parser *parser)
{
    return parser->where == TRI__IN_THINK      ? TRI_CHANNEL_THINK
           : parser->where == TRI__IN_RESPONSE ? TRI_CHANNEL_RESPONSE
                                               : TRI_CHANNEL_NONE;
}

/* Copies the names: options may be gone when the parser still runs. */
static enum tri_status copy_names(struct tri_parser *p, const struct tri_parser_options *options)
{
    if (!options->names)
        return TRI_OK;
    p->names = tri_calloc(options->name_count, sizeof *p->names);
    for (size_t i = 0; p->names && i < options->name_count; i++) {
        p->names[i] = tri_strdup(options->names[i]);
        if (!p->names[i])
            return TRI_NOMEM;
    }
    return p->names ? TRI_OK : TRI_NOMEM;
}

enum tri_status tri_parser_open(struct tri_parser **out, const struct tri_tokenizer *tok,
                                const struct tri_parser_options *options, struct tri_error *err)
{
    static const enum tri__where starts[] = { TRI__IN_MESSAGE, TRI__IN_THINK, TRI__IN_RESPONSE };
    struct tri_chat_ids ids;
    enum tri_status st = tri_chat_ids_find(&ids, tok, err);
    if (st)
        return st;
    struct tri_parser *p = tri_calloc(1, sizeof *p);
    if (!p)
        return tri_fail(err, TRI_NOMEM, "no memory for the output parser");
    p->tok = tok;
    p->ids = ids;
    p->options = *options;
    p->where = starts[options->start];
    p->first_answer = p->where == TRI__IN_RESPONSE;
    p->arena.max_bytes = (size_t)TRI_TURN_MAX_BYTES * 2;
    tri_buf_init(&p->tag_text, TRI_TAG_MAX_BYTES);
    struct tri_buf *const bufs[] = { &p->valid, &p->reasoning, &p->content,
                                     &p->held,  &p->scratch,   &p->key,
                                     &p->type,  &p->call.name, &p->call.arguments };
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        tri_buf_init(bufs[i], TRI_TURN_MAX_BYTES);
    if (copy_names(p, options)) {
        tri_parser_close(p);
        return tri_fail(err, TRI_NOMEM, "no memory for the output parser");
    }
    *out = p;
    return TRI_OK;
}

void tri_parser_close(struct tri_parser *p)
{
    if (!p)
        return;
    struct tri_buf *const bufs[] = { &p->tag_text, &p->valid,   &p->reasoning, &p->content,
                                     &p->held,     &p->scratch, &p->key,       &p->type };
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        tri_buf_fini(bufs[i]);
    for (size_t i = 0; p->names && i < p->options.name_count; i++)
        tri_free(p->names[i]);
    tri_free(p->names);
    tri__call_fini(p);
    tri__arena_fini(&p->arena);
    tri_free(p);
}

/* Ends what is open; a call only if the model itself ended the reply. */
static void end_reply(struct tri_parser *p, bool cut)
{
    p->tag = TRI__NO_TAG;
    flush(p);
    if (!cut)
        unwind(p, TRI__IN_MESSAGE);
    else if (p->call.live && is_among_tools(p))
        tri__parser_count(p, TRI_DEVIATION_CUT_CALL);
    settle_answer(p);
}

enum tri_status tri_parser_finish(struct tri_parser *p, bool cut, struct tri_turn *out,
                                  struct tri_error *err)
{
    if (p->tag != TRI__NO_TAG && ends_before(p, ""))
        end_tag(p);
    bool ended = p->ended || p->where == TRI__AFTER;
    bool whole = ended || !cut || (p->where == TRI__IN_MESSAGE && p->tools_closed && p->call_count);
    if (!ended)
        end_reply(p, cut);
    if (p->failed)
        return tri_fail(err, p->failed, "the reply could not be read: %s",
                        tri_status_text(p->failed));
    *out = (struct tri_turn){
        .reasoning = p->reasoning.data ? p->reasoning.data : "",
        .content = p->content.data ? p->content.data : "",
        .reasoning_bytes = p->reasoning.len_bytes,
        .content_bytes = p->content.len_bytes,
        .calls = p->calls,
        .call_count = p->call_count,
        .finish = !whole          ? TRI_FINISH_LENGTH
                  : p->call_count ? TRI_FINISH_TOOL_CALLS
                                  : TRI_FINISH_STOP,
    };
    memcpy(out->deviations, p->deviations, sizeof out->deviations);
    return TRI_OK;
}
