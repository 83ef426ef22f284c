/*
 * The output parser: what models are reported to write, one row each. A row is named after its
 * report (serving.md 2.7, rows 1 to 18) or the rule of spec.md 6.7 that it shows. Each runs with
 * the tokens of the vocabulary and again with every byte of text as its own token: structure may
 * not depend on how text is cut.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "small_vocab.h"

static struct tri_tokenizer *tok;

/* Short names of the markers, so that a row fits its line. */
#define O                 "<|open|>"
#define C                 "<|close|>"
#define S                 "<|sep|>"
#define END               "<|end_of_msg|>"
#define OPEN(tag)         O tag S
#define CLOSE(tag)        C tag S
#define CALL(name)        OPEN("call tool=\"" name "\" index=\"1\"")
#define ARG(key, type, v) OPEN("argument key=\"" key "\" type=\"" type "\"") v CLOSE("argument")
#define DONE              CLOSE("message") END

struct row {
    const char *name;
    enum tri_channel start;
    const char *sampled;
    const char *turn;   /* think[..] answer[..] name{args}... finish deviation:n... */
    const char *stream; /* the events, adjacent ones joined; NULL: what follows from `turn` */
};

#define THINK    TRI_CHANNEL_THINK
#define RESPONSE TRI_CHANNEL_RESPONSE

static const struct row rows[] = {
    { "well formed", THINK, "Hm." CLOSE("think") OPEN("response") "Hi" CLOSE("response") DONE,
      "think[Hm.] answer[Hi] stop", NULL },
    { "well formed, not thinking", RESPONSE, "Hi" CLOSE("response") DONE, "think[] answer[Hi] stop",
      NULL },
    { "well formed, with a call", THINK,
      "Hm." CLOSE("think") OPEN("response") CLOSE("response") OPEN("tools") CALL("f")
          ARG("a", "string", "x") ARG("b", "number", "1.50") CLOSE("call") CLOSE("tools") DONE,
      "think[Hm.] answer[] f{\"a\":\"x\",\"b\":1.50} tool_calls",
      "r(Hm.) +f ({\"a\":\"x\",\"b\":1.50}) ." },
    { "every type", THINK,
      OPEN("tools") CALL("f") ARG("s", "string", "\"q\"\n\\") ARG("t", "boolean", "true")
          ARG("z", "null", "null") ARG("o", "object", "{\"k\": [1]}") ARG("l", "array", "[]")
              ARG("n", "integer", "7") CLOSE("call") CLOSE("tools") DONE,
      "think[] answer[] f{\"s\":\"\\\"q\\\"\\n\\\\\",\"t\":true,\"z\":null,\"o\":{\"k\": "
      "[1]},\"l\":[],"
      "\"n\":7} tool_calls implicit_close:1",
      NULL },
    { "two calls, one without arguments", RESPONSE,
      CLOSE("response") OPEN("tools") CALL("f") CLOSE("call") CALL("g") ARG("a", "string", "")
          CLOSE("call") CLOSE("tools") DONE,
      "think[] answer[] f{} g{\"a\":\"\"} tool_calls", "+f ({}) . +g ({\"a\":\"\"}) ." },

    { "row 1: close message in content", THINK, "a" CLOSE("think") OPEN("response") "b" DONE,
      "think[a] answer[b] stop implicit_close:1", NULL },
    { "row 2: blanks in tags do not leak", THINK,
      "a" C " think " S O "\nresponse " S "b" C " response" S DONE, "think[a] answer[b] stop",
      NULL },
    { "row 3: thinking straight to tools", THINK,
      "plan" OPEN("tools") CALL("f") ARG("a", "string", "b") CLOSE("call") CLOSE("tools") DONE,
      "think[plan] answer[] f{\"a\":\"b\"} tool_calls implicit_close:1", NULL },
    { "row 4: the same streams its call", THINK,
      "plan" OPEN("tools") CALL("f") ARG("a", "string", "b") CLOSE("call") CLOSE("tools") DONE,
      "think[plan] answer[] f{\"a\":\"b\"} tool_calls implicit_close:1",
      "r(plan) +f ({\"a\":\"b\"}) ." },
    { "row 5: truncated reasoning is reasoning", THINK, "I was thin",
      "think[I was thin] answer[] length", NULL },
    { "row 5: truncated answer is answer", THINK, "a" CLOSE("think") OPEN("response") "I answ",
      "think[a] answer[I answ] length", NULL },
    { "row 9: the end of thinking spans several tokens", THINK,
      "a" C "think" S "\n" OPEN("response") "b" CLOSE("response") DONE, "think[a] answer[b] stop",
      NULL },
    { "row 14: JSON mode, thinking not followed by response", THINK,
      "a" CLOSE("think") "{\"x\": 1}" DONE, "think[a] answer[{\"x\": 1}] stop stray_text:1", NULL },
    { "row 14: damage is never an error", RESPONSE, S CLOSE("call") C C O O END,
      "think[] answer[] stop implicit_close:1 missing_sep:4 "
      "stray_close:1 stray_sep:1 unknown_tag:4",
      NULL },
    { "row 15: arguments stream while the call is open", RESPONSE,
      CLOSE("response") OPEN("tools") CALL("f")
          OPEN("argument key=\"a\" type=\"string\"") "long te",
      "think[] answer[] length cut_call:1", "+f ({\"a\":\"long te)" },
    { "row 17: duplicate arguments, the last wins", RESPONSE,
      CLOSE("response") OPEN("tools") CALL("f") ARG("a", "string", "1") ARG("b", "null", "null")
          ARG("a", "number", "2") CLOSE("call") CLOSE("tools") DONE,
      "think[] answer[] f{\"a\":2,\"b\":null} tool_calls duplicate_key:1",
      "+f ({\"a\":\"1\",\"b\":null,\"a\":2}) ." },
    { "row 18: a name comes whole", RESPONSE,
      CLOSE("response") OPEN("tools") CALL("get_the_weather_of_the_ship") CLOSE("call")
          CLOSE("tools") DONE,
      "think[] answer[] get_the_weather_of_the_ship{} tool_calls",
      "+get_the_weather_of_the_ship ({}) ." },

    { "6.7: response opened without closing think", THINK,
      "a" OPEN("response") "b" CLOSE("response") DONE, "think[a] answer[b] stop implicit_close:1",
      NULL },
    { "6.7: close think without its sep", THINK,
      "a" C "think" OPEN("response") "b" CLOSE("response") DONE,
      "think[a] answer[b] stop missing_sep:1", NULL },
    { "6.7: no sep before text", THINK,
      "a" C "think" S O "response"
      "\nB" C "response" DONE,
      "think[a] answer[\nB] stop missing_sep:2", NULL },
    { "6.7: response closed while thinking is the answer", THINK, "It is 4." CLOSE("response") DONE,
      "think[] answer[It is 4.] stop answer_in_think:1", "r(It is 4.) c(It is 4.)" },
    { "6.7: message closed while thinking is the answer", THINK, "It is 4." DONE,
      "think[] answer[It is 4.] stop answer_in_think:1", "r(It is 4.) c(It is 4.)" },
    { "6.7: the same before tools", THINK,
      "Look." CLOSE("response") OPEN("tools") CALL("f") CLOSE("call") CLOSE("tools") DONE,
      "think[] answer[Look.] f{} tool_calls answer_in_think:1", "r(Look.) c(Look.) +f ({}) ." },
    { "6.7: but an answer that follows makes it thinking", THINK,
      "Hm." CLOSE("response") OPEN("response") "4" CLOSE("response") DONE,
      "think[Hm.] answer[4] stop stray_close:1", NULL },
    { "6.7: only the last thinking becomes the answer", THINK,
      "a" CLOSE("think") OPEN("think") "b" DONE, "think[a] answer[b] stop answer_in_think:1",
      "r(ab) c(b)" },
    { "6.7: thinking in a prompt that was not", RESPONSE,
      "36." CLOSE("think") OPEN("response") "It is 36." CLOSE("response") DONE,
      "think[36.] answer[It is 36.] stop think_in_response:1", "c(36.It is 36.)" },
    { "6.7: response opened in a prompt that had opened it", RESPONSE,
      "hm" OPEN("response") "x" CLOSE("response") DONE,
      "think[hm] answer[x] stop think_in_response:1", "c(hmx)" },
    { "6.7: a second answer is more answer", RESPONSE,
      "a" CLOSE("response") OPEN("response") "b" CLOSE("response") DONE, "think[] answer[ab] stop",
      NULL },
    { "6.7: tools closed and nothing more", RESPONSE,
      CLOSE("response") OPEN("tools") CALL("f") CLOSE("call") CLOSE("tools"),
      "think[] answer[] f{} tool_calls", NULL },
    { "6.7: message closed and nothing more", RESPONSE, "a" CLOSE("response") CLOSE("message"),
      "think[] answer[a] stop", NULL },
    { "2.5: message ended inside a call", RESPONSE,
      CLOSE("response") OPEN("tools") CALL("f") OPEN("argument key=\"a\" type=\"number\"") "5" END,
      "think[] answer[] f{\"a\":5} tool_calls implicit_close:1", NULL },
    { "2.5: calls and arguments left open", RESPONSE,
      CLOSE("response") OPEN("tools") CALL("f") OPEN("argument key=\"a\" type=\"string\"") "x" OPEN(
          "argument key=\"b\" type=\"string\"") "y" CALL("g") CLOSE("tools") DONE,
      "think[] answer[] f{\"a\":\"x\",\"b\":\"y\"} g{} tool_calls implicit_close:3", NULL },
    { "2.5: truncated in the second call", RESPONSE,
      CLOSE("response") OPEN("tools") CALL("f") CLOSE("call") CALL("g") ARG("a", "null", "null"),
      "think[] answer[] f{} length cut_call:1", "+f ({}) . +g ({\"a\":null)" },
    { "2.6.2: a tag nobody knows", RESPONSE,
      "a" OPEN("mood") "b" CLOSE("mood") "c" CLOSE("response") DONE,
      "think[] answer[abc] stop unknown_tag:2", NULL },
    { "2.6.2: a call without tools around it", RESPONSE,
      "a" CALL("f") CLOSE("call") CLOSE("response") DONE,
      "think[] answer[a] f{} tool_calls implicit_close:2 implicit_open:1 stray_close:1", NULL },
    { "2.6.4: values that are not of their type", RESPONSE,
      CLOSE("response") OPEN("tools") CALL("f") ARG("a", "number", "five")
          ARG("b", "boolean", "True") ARG("c", "object", "[1]") ARG("d", "number", "NaN")
              ARG("e", "mood", "7") CLOSE("call") CLOSE("tools") DONE,
      "think[] answer[] f{\"a\":\"five\",\"b\":\"True\",\"c\":[1],\"d\":\"NaN\",\"e\":7} "
      "tool_calls "
      "bad_value:4",
      NULL },
    { "2.6.4: the json element", RESPONSE,
      CLOSE("response") OPEN("tools") CALL("f")
          OPEN("json type=\"object\"") "{\"a\": "
                                       "1}" CLOSE("json") CLOSE("call") CALL("g")
                                           OPEN("json type=\"object\"") "{\"z\":" CLOSE("json")
                                               CLOSE("call") CLOSE("tools") DONE,
      "think[] answer[] f{\"a\": 1} g{\"z\": tool_calls bad_value:1", NULL },
    { "2.6.4: arguments beside a json element", RESPONSE,
      CLOSE("response") OPEN("tools") CALL("f") OPEN("json type=\"object\"") "{}" CLOSE("json")
          ARG("a", "string", "x") CLOSE("call") CALL("g") ARG("a", "string", "x")
              OPEN("json type=\"object\"") "{}" CLOSE("json") CLOSE("call") CLOSE("tools") DONE,
      "think[] answer[] f{} g{\"a\":\"x\"} tool_calls stray_text:2", NULL },
    { "2.6.4: attributes are unescaped, &quot; first", RESPONSE,
      CLOSE("response") OPEN("tools") OPEN("call tool=\"a&amp;quot;b\" index=\"1\"")
          ARG("&quot;&amp;&lt;", "string", "&quot;") CLOSE("call") CLOSE("tools") DONE,
      "think[] answer[] a&quot;b{\"\\\"&&lt;\":\"&quot;\"} tool_calls", NULL },
    { "2.6.4: no name, no key, no type", RESPONSE,
      CLOSE("response") OPEN("tools") OPEN("call index=\"1\"") ARG("a", "string", "x") CLOSE("call")
          CALL("g") OPEN("argument type=\"string\"") "x" CLOSE("argument")
              OPEN("argument key=\"k\"") "y" CLOSE("argument") CLOSE("call") CLOSE("tools") DONE,
      "think[] answer[] g{\"k\":\"y\"} tool_calls bad_attribute:3", NULL },
    { "2.6.6: [EOS] instead of the end marker", RESPONSE, "a[EOS]",
      "think[] answer[a] stop implicit_close:1 eos:1", NULL },
    { "2.6.6: thinking cut by the end marker stays thinking", THINK, "a" END,
      "think[a] answer[] stop implicit_close:1", NULL },
    { "other special tokens are dropped", RESPONSE, "a[BOS]b<|media_pad|>c" CLOSE("response") DONE,
      "think[] answer[abc] stop stray_token:2", NULL },
    { "tokens after the end", RESPONSE, "a" CLOSE("response") DONE "more" OPEN("tools"),
      "think[] answer[a] stop after_end:1", NULL },
    { "tokens after the closed message", RESPONSE, "a" CLOSE("response") CLOSE("message") "more" O,
      "think[] answer[a] stop after_end:1", NULL },
    { "text among tools is dropped, blanks are not counted", RESPONSE,
      CLOSE("response") "\n" OPEN("tools") "\n " CALL("f") " so " ARG(
          "a", "string", " x ") "\n" CLOSE("call") "\n" CLOSE("tools") "\n" DONE,
      "think[] answer[] f{\"a\":\" x \"} tool_calls stray_text:1", NULL },
    { "a new message header is no fault at the start", TRI_CHANNEL_NONE,
      OPEN("message role=\"assistant\"") OPEN("think") "a" CLOSE("think")
          OPEN("response") "b" CLOSE("response") DONE,
      "think[a] answer[b] stop", NULL },
    { "truncated inside a tag", RESPONSE, "a" C "respon", "think[] answer[a] length", NULL },
    { "truncated after a whole tag name", RESPONSE, "a" C "response" S C "message",
      "think[] answer[a] stop", NULL },
};

/* ---- running a row ---- */

struct log {
    struct tri_buf text;
    int last;
    size_t last_call;
};

static void note_event(void *arg, const struct tri_event *e)
{
    static const char *const open[] = { "r(", "c(", "+", "(", "." };
    struct log *log = arg;
    bool piece = e->kind == TRI_EVENT_REASONING || e->kind == TRI_EVENT_CONTENT ||
                 e->kind == TRI_EVENT_CALL_ARGUMENTS;
    if (log->last != (int)e->kind || !piece) {
        if (log->last == TRI_EVENT_REASONING || log->last == TRI_EVENT_CONTENT ||
            log->last == TRI_EVENT_CALL_ARGUMENTS)
            tri_buf_putc(&log->text, ')');
        tri_buf_puts(&log->text, log->text.len_bytes ? " " : "");
        tri_buf_puts(&log->text, open[e->kind]);
    }
    assert_int_equal(tri_utf8_valid(e->text, e->bytes), e->bytes);
    tri_buf_add(&log->text, e->text, e->bytes);
    log->last = (int)e->kind;
}

static void put_turn(struct tri_buf *out, const struct tri_turn *turn)
{
    tri_buf_printf(out, "think[%s] answer[%s]", turn->reasoning, turn->content);
    for (size_t i = 0; i < turn->call_count; i++)
        tri_buf_printf(out, " %s%s", turn->calls[i].name, turn->calls[i].arguments);
    tri_buf_printf(out, " %s", tri_finish_name(turn->finish));
    for (int i = 0; i < TRI_DEVIATIONS; i++)
        if (turn->deviations[i])
            tri_buf_printf(out, " %s:%u", tri_deviation_name((enum tri_deviation)i),
                           (unsigned)turn->deviations[i]);
}

/* What a stream shows when nothing had to be put right afterwards. */
static void put_plain_stream(struct tri_buf *out, const struct tri_turn *turn)
{
    if (turn->reasoning_bytes)
        tri_buf_printf(out, "r(%s)", turn->reasoning);
    if (turn->content_bytes)
        tri_buf_printf(out, "%sc(%s)", out->len_bytes ? " " : "", turn->content);
    for (size_t i = 0; i < turn->call_count; i++)
        tri_buf_printf(out, "%s+%s (%s) .", out->len_bytes ? " " : "", turn->calls[i].name,
                       turn->calls[i].arguments);
}

/* The same ids, but each byte of ordinary text as the token of that byte. */
static struct tri_ids byte_by_byte(const struct tri_ids *ids)
{
    struct tri_ids out = { 0 };
    for (size_t i = 0; i < ids->count_tokens; i++) {
        size_t bytes = 0;
        const char *text = tri_token_bytes(tok, ids->data[i], &bytes);
        if (tri_token_is_added(tok, ids->data[i]))
            assert_int_equal(tri_ids_add(&out, ids->data[i]), TRI_OK);
        else
            for (size_t k = 0; k < bytes; k++)
                assert_int_equal(tri_ids_add(&out, (unsigned char)text[k]), TRI_OK);
    }
    return out;
}

static void parse(const struct tri_ids *ids, const struct tri_parser_options *options,
                  struct tri_buf *turn_text, struct tri_buf *plain)
{
    struct tri_parser *p = NULL;
    struct tri_turn turn;
    assert_int_equal(tri_parser_open(&p, tok, options, NULL), TRI_OK);
    for (size_t i = 0; i < ids->count_tokens; i++)
        assert_int_equal(tri_parser_push(p, ids->data[i], NULL), TRI_OK);
    assert_int_equal(tri_parser_finish(p, true, &turn, NULL), TRI_OK);
    put_turn(turn_text, &turn);
    put_plain_stream(plain, &turn);
    tri_parser_close(p);
}

static void run_row(const struct row *row, const struct tri_ids *ids)
{
    struct tri_buf turn, plain;
    struct log log = { .last = -1 };
    tri_buf_init(&turn, 1 << 20);
    tri_buf_init(&plain, 1 << 20);
    tri_buf_init(&log.text, 1 << 20);
    struct tri_parser_options options = {
        .start = row->start, .tools = true, .event = note_event, .arg = &log
    };
    parse(ids, &options, &turn, &plain);
    if (log.last == TRI_EVENT_REASONING || log.last == TRI_EVENT_CONTENT ||
        log.last == TRI_EVENT_CALL_ARGUMENTS)
        tri_buf_putc(&log.text, ')');
    if (strcmp(turn.data, row->turn))
        fail_msg("%s:\n have %s\n want %s", row->name, turn.data, row->turn);
    const char *stream = row->stream ? row->stream : plain.data ? plain.data : "";
    if (strcmp(log.text.data ? log.text.data : "", stream))
        fail_msg("%s:\n stream %s\n want   %s", row->name, log.text.data, stream);
    tri_buf_fini(&turn);
    tri_buf_fini(&plain);
    tri_buf_fini(&log.text);
}

static void every_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tri_ids ids = small_ids(tok, rows[i].sampled), bytes = byte_by_byte(&ids);
        run_row(&rows[i], &ids);
        run_row(&rows[i], &bytes);
        tri_ids_fini(&ids);
        tri_ids_fini(&bytes);
    }
}

/* ---- what a row cannot say ---- */

static void expect(const struct tri_parser_options *options, const char *sampled, const char *want)
{
    struct tri_ids ids = small_ids(tok, sampled);
    struct tri_buf turn, plain;
    tri_buf_init(&turn, 1 << 20);
    tri_buf_init(&plain, 1 << 20);
    parse(&ids, options, &turn, &plain);
    assert_string_equal(turn.data, want);
    tri_buf_fini(&turn);
    tri_buf_fini(&plain);
    tri_ids_fini(&ids);
}

/* Row 8, and rule 2.6.8. */
static void undeclared_tools(void **state)
{
    (void)state;
    static const char sampled[] = "a" CLOSE("response") OPEN("tools") CALL("f")
        ARG("a", "string", "x") CLOSE("call") CLOSE("tools") DONE;
    static const char *const names[] = { "g", "h" };
    struct tri_parser_options o = { .start = TRI_CHANNEL_RESPONSE };
    expect(&o, sampled, "think[] answer[a] stop undeclared_tools:1");
    o.tools = true;
    o.names = names;
    o.name_count = 2;
    expect(&o, sampled, "think[] answer[a] f{\"a\":\"x\"} tool_calls unknown_tool:1");
    o.strict_names = true;
    expect(&o, sampled, "think[] answer[a] stop unknown_tool:1");
    static const char *const known[] = { "f" };
    o.names = known;
    o.name_count = 1;
    expect(&o, sampled, "think[] answer[a] f{\"a\":\"x\"} tool_calls");
}

/* Rule 2.6.5 and row 2: only ids are structure. The markers here are ordinary text tokens. */
static void markers_as_text_stay_text(void **state)
{
    (void)state;
    static const char spelled[] = "<|close|>argument<|sep|><|close|>call<|sep|><|end_of_msg|>";
    struct tri_parser *p = NULL;
    struct tri_turn turn;
    struct tri_parser_options o = { .start = TRI_CHANNEL_RESPONSE, .tools = true };
    struct tri_ids head = small_ids(tok, CLOSE("response") OPEN("tools") CALL("f")
                                             OPEN("argument key=\"a\" type=\"string\""));
    struct tri_ids tail = small_ids(tok, CLOSE("argument") CLOSE("call") CLOSE("tools") DONE);
    struct tri_ids body = { 0 };
    assert_int_equal(tri_encode(tok, spelled, sizeof spelled - 1, TRI_PLAIN, &body, NULL), TRI_OK);
    const struct tri_ids *const all[] = { &head, &body, &tail };
    assert_int_equal(tri_parser_open(&p, tok, &o, NULL), TRI_OK);
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < all[k]->count_tokens; i++)
            assert_int_equal(tri_parser_push(p, all[k]->data[i], NULL), TRI_OK);
    assert_true(tri_parser_ended(p));
    assert_int_equal(tri_parser_finish(p, false, &turn, NULL), TRI_OK);
    assert_int_equal(turn.call_count, 1);
    assert_string_equal(turn.calls[0].arguments,
                        "{\"a\":\"<|close|>argument<|sep|><|close|>call<|sep|><|end_of_msg|>\"}");
    for (int i = 0; i < TRI_DEVIATIONS; i++)
        assert_int_equal(turn.deviations[i], 0);
    tri_parser_close(p);
    tri_ids_fini(&head);
    tri_ids_fini(&body);
    tri_ids_fini(&tail);
}

static void unfinished_characters(void **state)
{
    (void)state;
    struct tri_parser_options o = { .start = TRI_CHANNEL_RESPONSE };
    struct tri_parser *p = NULL;
    struct tri_turn turn;
    assert_int_equal(tri_parser_open(&p, tok, &o, NULL), TRI_OK);
    struct tri_ids end = small_ids(tok, CLOSE("response") DONE);
    assert_int_equal(tri_parser_push(p, 'a', NULL), TRI_OK);
    assert_int_equal(tri_parser_push(p, 0xF0, NULL), TRI_OK);
    assert_int_equal(tri_parser_push(p, 0x9F, NULL), TRI_OK);
    for (size_t i = 0; i < end.count_tokens; i++)
        assert_int_equal(tri_parser_push(p, end.data[i], NULL), TRI_OK);
    assert_int_equal(tri_parser_finish(p, false, &turn, NULL), TRI_OK);
    assert_string_equal(turn.content, "a\xEF\xBF\xBD");
    tri_parser_close(p);
    tri_ids_fini(&end);
}

static void not_cut_means_the_model_ended(void **state)
{
    (void)state;
    struct tri_parser_options o = { .start = TRI_CHANNEL_RESPONSE, .tools = true };
    for (int cut = 0; cut < 2; cut++) {
        struct tri_ids ids = small_ids(tok, CLOSE("response") OPEN("tools") CALL("f"));
        struct tri_parser *p = NULL;
        struct tri_turn turn;
        assert_int_equal(tri_parser_open(&p, tok, &o, NULL), TRI_OK);
        assert_int_equal(tri_parser_channel(p), TRI_CHANNEL_RESPONSE);
        for (size_t i = 0; i < ids.count_tokens; i++)
            assert_int_equal(tri_parser_push(p, ids.data[i], NULL), TRI_OK);
        assert_int_equal(tri_parser_channel(p), TRI_CHANNEL_NONE);
        assert_false(tri_parser_ended(p));
        assert_int_equal(tri_parser_finish(p, cut, &turn, NULL), TRI_OK);
        assert_int_equal(turn.finish, cut ? TRI_FINISH_LENGTH : TRI_FINISH_TOOL_CALLS);
        assert_int_equal(turn.call_count, !cut);
        tri_parser_close(p);
        tri_ids_fini(&ids);
    }
}

/* serving.md 6.4: a reply that is rendered into the next prompt gives the sampled ids again. */
static void a_turn_renders_as_it_was_sampled(void **state)
{
    (void)state;
    static const char sampled[] =
        "Hm, \"so\"." CLOSE("think") OPEN("response") "Row!" CLOSE("response") OPEN("tools")
            OPEN("call tool=\"a&quot;b\" index=\"1\"") ARG("x", "string", "<&>\n")
                ARG("y", "object", "{\"k\": [1, 2.5, null]}") ARG("z", "boolean", "false")
                    CLOSE("call") OPEN("call tool=\"g\" index=\"2\"") CLOSE("call")
                        OPEN("call tool=\"h\" index=\"3\"")
                            OPEN("json type=\"object\"") "{\"z\":" CLOSE("json") CLOSE("call")
                                CLOSE("tools") DONE;
    struct tri_ids ids = small_ids(tok, sampled), head, again = { 0 };
    struct tri_parser_options o = { .start = TRI_CHANNEL_THINK, .tools = true };
    struct tri_parser *p = NULL;
    struct tri_turn turn;
    struct tri_buf json;
    struct tri_prompt *prompt = NULL;
    struct tri_error err = { 0 };
    assert_int_equal(tri_parser_open(&p, tok, &o, NULL), TRI_OK);
    for (size_t i = 0; i < ids.count_tokens; i++)
        assert_int_equal(tri_parser_push(p, ids.data[i], NULL), TRI_OK);
    assert_int_equal(tri_parser_finish(p, true, &turn, NULL), TRI_OK);
    tri_buf_init(&json, 1 << 16);
    tri_buf_puts(&json, "{\"add_generation_prompt\":false,\"messages\":[");
    tri_turn_message(&json, &turn, "call_");
    tri_buf_puts(&json, "]}");
    if (tri_chat_render(&prompt, "turn", json.data, json.len_bytes, NULL, &err))
        fail_msg("%s", err.text);
    assert_int_equal(tri_prompt_encode(prompt, tok, &again, NULL), TRI_OK);
    /* The prompt's own head comes first: <|open|>message role="assistant"<|sep|><|open|>think... */
    struct tri_prompt *stub = NULL;
    head = (struct tri_ids){ 0 };
    assert_int_equal(tri_chat_render(&stub, "stub", "{\"messages\":[]}", 15, NULL, NULL), TRI_OK);
    assert_int_equal(tri_prompt_encode(stub, tok, &head, NULL), TRI_OK);
    assert_int_equal(again.count_tokens, head.count_tokens + ids.count_tokens);
    assert_memory_equal(again.data, head.data, head.count_tokens * sizeof *head.data);
    assert_memory_equal(again.data + head.count_tokens, ids.data,
                        ids.count_tokens * sizeof *ids.data);
    tri_prompt_close(prompt);
    tri_prompt_close(stub);
    tri_parser_close(p);
    tri_buf_fini(&json);
    tri_ids_fini(&ids);
    tri_ids_fini(&head);
    tri_ids_fini(&again);
}

/* ---- limits ---- */

static void push_text(struct tri_parser *p, const char *text)
{
    struct tri_ids ids = small_ids(tok, text);
    for (size_t i = 0; i < ids.count_tokens; i++)
        assert_int_equal(tri_parser_push(p, ids.data[i], NULL), TRI_OK);
    tri_ids_fini(&ids);
}

static void tag_limit(void **state)
{
    (void)state;
    for (int over = 0; over < 2; over++) {
        struct tri_parser_options o = { .start = TRI_CHANNEL_RESPONSE };
        struct tri_parser *p = NULL;
        struct tri_turn turn;
        assert_int_equal(tri_parser_open(&p, tok, &o, NULL), TRI_OK);
        push_text(p, O);
        for (int i = 0; i < TRI_TAG_MAX_BYTES + over; i++)
            assert_int_equal(tri_parser_push(p, 'x', NULL), TRI_OK);
        push_text(p, S "a" CLOSE("response") DONE);
        assert_int_equal(tri_parser_finish(p, true, &turn, NULL), TRI_OK);
        assert_string_equal(turn.content, "a");
        assert_int_equal(turn.deviations[TRI_DEVIATION_LONG_TAG], over);
        assert_int_equal(turn.deviations[TRI_DEVIATION_UNKNOWN_TAG], !over);
        assert_int_equal(turn.deviations[TRI_DEVIATION_STRAY_SEP], over);
        tri_parser_close(p);
    }
}

static void call_limit(void **state)
{
    (void)state;
    struct tri_parser_options o = { .start = TRI_CHANNEL_RESPONSE, .tools = true };
    struct tri_parser *p = NULL;
    struct tri_turn turn;
    assert_int_equal(tri_parser_open(&p, tok, &o, NULL), TRI_OK);
    push_text(p, CLOSE("response") OPEN("tools"));
    for (int i = 0; i < TRI_TURN_MAX_CALLS + 1; i++)
        push_text(p, CALL("f") CLOSE("call"));
    push_text(p, CLOSE("tools") DONE);
    assert_int_equal(tri_parser_finish(p, true, &turn, NULL), TRI_OK);
    assert_int_equal(turn.call_count, TRI_TURN_MAX_CALLS);
    assert_int_equal(turn.deviations[TRI_DEVIATION_TOO_MANY_CALLS], 1);
    tri_parser_close(p);
}

static void reply_limit(void **state)
{
    (void)state;
    struct tri_parser_options o = { .start = TRI_CHANNEL_RESPONSE };
    struct tri_parser *p = NULL;
    struct tri_turn turn;
    struct tri_error err = { 0 };
    int32_t longest = 0;
    size_t most = 0;
    for (int32_t id = 0; id < SMALL_RANKS; id++) {
        size_t bytes = 0;
        const char *text = tri_token_bytes(tok, id, &bytes);
        if (bytes > most && tri_utf8_valid(text, bytes) == bytes) {
            most = bytes;
            longest = id;
        }
    }
    assert_int_equal(tri_parser_open(&p, tok, &o, NULL), TRI_OK);
    size_t sent = 0;
    for (; sent + most <= TRI_TURN_MAX_BYTES; sent += most)
        assert_int_equal(tri_parser_push(p, longest, NULL), TRI_OK);
    for (; sent < TRI_TURN_MAX_BYTES; sent++)
        assert_int_equal(tri_parser_push(p, 'x', NULL), TRI_OK);
    assert_int_equal(tri_parser_push(p, 'x', &err), TRI_LIMIT);
    assert_non_null(strstr(err.text, "64 MiB"));
    assert_int_equal(tri_parser_push(p, 'x', NULL), TRI_LIMIT);
    assert_int_equal(tri_parser_finish(p, true, &turn, NULL), TRI_LIMIT);
    tri_parser_close(p);
}

static void no_such_id(void **state)
{
    (void)state;
    struct tri_parser_options o = { .start = TRI_CHANNEL_THINK };
    struct tri_parser *p = NULL;
    struct tri_error err = { 0 };
    assert_int_equal(tri_parser_open(&p, tok, &o, NULL), TRI_OK);
    assert_int_equal(tri_parser_push(p, SMALL_TOKENS, &err), TRI_FORMAT);
    assert_non_null(strstr(err.text, "714"));
    tri_parser_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row),
        cmocka_unit_test(undeclared_tools),
        cmocka_unit_test(markers_as_text_stay_text),
        cmocka_unit_test(unfinished_characters),
        cmocka_unit_test(not_cut_means_the_model_ended),
        cmocka_unit_test(a_turn_renders_as_it_was_sampled),
        cmocka_unit_test(tag_limit),
        cmocka_unit_test(call_limit),
        cmocka_unit_test(reply_limit),
        cmocka_unit_test(no_such_id),
    };
    tok = small_open();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tri_tokenizer_close(tok);
    return failed;
}
