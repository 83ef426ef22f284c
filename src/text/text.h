/*
 * Text: what stands between people's words and token ids. Four parts, in this order:
 *   tokenizer     byte-pair encoding in tiktoken's format, special tokens, decoding
 *   detokenizer   ids to valid UTF-8, one id at a time
 *   chat renderer a conversation (JSON) to a prompt made of segments, then to ids
 *   output parser sampled ids to reasoning, answer and tool calls, one id at a time
 * Nothing here knows the sizes of one vocabulary: ids of markers are looked up by their names.
 *
 * Errors name what is wrong and where (file and line, byte position, messages[3].content); a failed
 * call leaves its out-parameters as they were. Formats: the K3 release's tiktoken.model,
 * tokenizer_config.json and encoding_k3.py ("the reference" below).
 */
#ifndef TRI_TEXT_TEXT_H
#define TRI_TEXT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/status.h"

/* Limits. Each is checked before memory is taken; one past it is TRI_LIMIT. */
enum {
    TRI_VOCAB_MAX_BYTES = 64 << 20,         /* of a tiktoken.model file */
    TRI_VOCAB_MAX_TOKENS = 1 << 20,         /* ranks, and highest special id */
    TRI_TOKEN_MAX_BYTES = 512,              /* of one token */
    TRI_ENCODE_MAX_BYTES = 64 << 20,        /* of one text */
    TRI_CHAT_MAX_BYTES = 64 << 20,          /* of a request */
    TRI_CHAT_MAX_MEMORY_BYTES = 512 << 20,  /* while one is rendered */
    TRI_CHAT_MAX_SEGMENTS = 1 << 22,        /* of a prompt; each gives at least one id */
    TRI_CHAT_MAX_IMAGE_POSITIONS = 1 << 20, /* of all `images` of a request */
    TRI_CHAT_MAX_DEPTH = 128,               /* JSON nesting in a request or in tool arguments */
    TRI_CHAT_MAX_MESSAGES = 100000,
    TRI_CHAT_MAX_TOOLS = 1024,      /* declared in one list; and calls of one message */
    TRI_CHAT_MAX_INT_DIGITS = 4300, /* of one integer: Python's own limit */
    TRI_TURN_MAX_BYTES = 64 << 20,  /* reasoning, answer and arguments of one reply together */
    TRI_TURN_MAX_CALLS = 1024,      /* of one reply; later ones are swallowed and counted */
    TRI_TAG_MAX_BYTES = 4096,       /* between open/close and sep */
};

/* ---- tokenizer ------------------------------------------------------------------------------ */

/* A growing list of token ids. Zero-initialise; the owner frees it with tri_ids_fini. */
struct tri_ids {
    int32_t *data;
    size_t count_tokens, cap_tokens;
};

void tri_ids_fini(struct tri_ids *ids);
TRI_MUST_CHECK enum tri_status tri_ids_add(struct tri_ids *ids, int32_t id);

struct tri_tokenizer; /* never changes once open: share it between threads */

/*
 * Opens a vocabulary. `path` is a model folder (tiktoken.model in it) or the tiktoken.model file
 * itself; tokenizer_config.json beside it names the special tokens. Without that file a vocabulary
 * of K3's size (163,584 ranks) gets K3's names, any other has no special tokens.
 * Strict: lines of `base64 rank`, ranks 0..n-1 each once, no byte string twice, every single byte
 * present. close(NULL) is fine.
 */
TRI_MUST_CHECK enum tri_status tri_tokenizer_open(struct tri_tokenizer **out, const char *path,
                                                  struct tri_error *err);
/* The same from memory; `config` may be NULL. `name` is told in errors. Nothing is kept. */
struct tri_vocab_text {
    const char *name;
    const char *ranks, *config; /* tiktoken.model, tokenizer_config.json */
    size_t ranks_bytes, config_bytes;
};
TRI_MUST_CHECK enum tri_status tri_tokenizer_read(struct tri_tokenizer **out,
                                                  const struct tri_vocab_text *text,
                                                  struct tri_error *err);
void tri_tokenizer_close(struct tri_tokenizer *tok);

int32_t tri_tokenizer_ranks(const struct tri_tokenizer *tok);  /* ordinary tokens: 0..ranks-1 */
int32_t tri_tokenizer_tokens(const struct tri_tokenizer *tok); /* highest id + 1 */

/* The bytes of a token (a special token: its name). NULL for an id that means nothing. */
const char *tri_token_bytes(const struct tri_tokenizer *tok, int32_t id, size_t *bytes);
/* True for every token beside the ranks, marker or reserved. */
bool tri_token_is_added(const struct tri_tokenizer *tok, int32_t id);
/* The id of a special token by its name ("<|open|>"), -1 if there is none. */
int32_t tri_token_named(const struct tri_tokenizer *tok, const char *name);

/*
 * TRI_PLAIN: names of special tokens in the text are ordinary text (all that people and tools
 * write). TRI_MARKUP: they become their id wherever they stand, earliest first, longest at one
 * place.
 */
enum tri_encode_mode { TRI_PLAIN, TRI_MARKUP };

/*
 * Appends the ids of `bytes` of UTF-8 text. No BOS is added, nothing is normalised. Invalid UTF-8
 * is TRI_FORMAT with its byte position (the reference takes a str, which cannot hold it). Time is
 * n log n at worst, whatever the text. Any thread. On failure `ids` keeps what it had.
 */
TRI_MUST_CHECK enum tri_status tri_encode(const struct tri_tokenizer *tok, const char *text,
                                          size_t bytes, enum tri_encode_mode mode,
                                          struct tri_ids *ids, struct tri_error *err);

/* Ids of the chat markers, found by name; -1 for an optional one that the vocabulary lacks. */
struct tri_chat_ids {
    int32_t open, close, sep, end_of_msg;                     /* required */
    int32_t media_begin, media_content, media_end, media_pad; /* optional */
    int32_t bos, eos, pad;                                    /* optional; eos is not the stop */
};

/* TRI_UNSUPPORTED, naming what is absent, if this vocabulary does not speak K3's chat format. */
TRI_MUST_CHECK enum tri_status
tri_chat_ids_find(struct tri_chat_ids *out, const struct tri_tokenizer *tok, struct tri_error *err);

/* ---- detokenizer ---------------------------------------------------------------------------- */

/* Bytes of a character that is not finished yet. Zero-initialise. */
struct tri_utf8_hold {
    unsigned char data[4];
    unsigned bytes;
};

/*
 * Appends `bytes` to `out` so that it is valid UTF-8 at every moment: an unfinished character is
 * held back; bytes that can no longer become one turn into U+FFFD (one per maximal subpart, as
 * Unicode recommends and Python's errors="replace" does). finish: held bytes become U+FFFD.
 */
enum tri_status tri_utf8_push(struct tri_utf8_hold *hold, const char *data, size_t bytes,
                              struct tri_buf *out);
enum tri_status tri_utf8_finish(struct tri_utf8_hold *hold, struct tri_buf *out);
/* Length of the longest valid prefix: `bytes` itself when all of it is valid UTF-8. */
size_t tri_utf8_valid(const char *text, size_t bytes);

/* Ids to valid UTF-8, through tri_utf8_push. Plain data, owns nothing; one per stream. */
struct tri_detok {
    const struct tri_tokenizer *tok;
    bool skip_added; /* true: special tokens give no text; false: their names */
    struct tri_utf8_hold hold;
};

void tri_detok_init(struct tri_detok *detok, const struct tri_tokenizer *tok, bool skip_added);
/* Appends what is now certain to `out`. An id without a token: TRI_FORMAT, nothing changes. */
TRI_MUST_CHECK enum tri_status tri_detok_push(struct tri_detok *detok, int32_t id,
                                              struct tri_buf *out, struct tri_error *err);
/* End of the stream: held bytes become U+FFFD. The detokenizer may be used again. */
enum tri_status tri_detok_finish(struct tri_detok *detok, struct tri_buf *out);

/* ---- chat renderer -------------------------------------------------------------------------- */

/* Efforts that the reference accepts ("medium" stands in its prose but is refused). */
enum tri_effort { TRI_EFFORT_NONE, TRI_EFFORT_LOW, TRI_EFFORT_HIGH, TRI_EFFORT_MAX };
enum tri_tool_choice { TRI_TOOLS_AUTO, TRI_TOOLS_NONE, TRI_TOOLS_REQUIRED };

/* What a caller may decide instead of the request. TRI_CHAT_SETTINGS are the defaults. */
struct tri_chat_settings {
    bool thinking;
    enum tri_effort effort; /* NONE: no effort note; shown only when thinking */
    enum tri_tool_choice tool_choice;
    bool add_generation_prompt; /* end with an opened assistant message */
};
#define TRI_CHAT_SETTINGS                                                                          \
    ((struct tri_chat_settings){ true, TRI_EFFORT_NONE, TRI_TOOLS_AUTO, true })

TRI_MUST_CHECK enum tri_status tri_effort_parse(enum tri_effort *out, const char *text,
                                                struct tri_error *err);

/* One piece of a prompt. A marker is a special token (or an image prompt); all else is text. */
struct tri_segment {
    const char *text; /* not NUL-terminated; lives as long as the prompt */
    size_t bytes;
    bool is_marker;
};

/* Elements of a reply. NONE: the prompt opens no message. */
enum tri_channel { TRI_CHANNEL_NONE, TRI_CHANNEL_THINK, TRI_CHANNEL_RESPONSE };

struct tri_prompt;

/*
 * Renders a request as the reference does. `json` is one object with these keys; others are
 * ignored, and as in Python the last of two equal keys counts:
 *   messages             list; roles system, user, assistant, tool; content: string, null, or parts
 *                        (text; image, image_url). assistant: reasoning_content (or reasoning),
 *                        tool_calls. tool: tool_call_id, tool or name. system: tools (dynamic).
 *   tools                list of declarations
 *   response_format      {"type": "text" | "json_object" | "json_schema", "json_schema": ...}
 *   thinking (true), thinking_effort (none), tool_choice ("auto"), add_generation_prompt (true)
 *                        read only if `settings` is NULL
 *   image_prompts        list of ready image prompts; they also replace the literal placeholder in
 *                        text, as in the reference
 *   images               list of [width, height, positions] for image parts; text stays text
 * `name` is told in errors, before the path of the faulty value: "request: messages[3].content".
 * A server passes the body as it came (numbers keep their text) and its own `settings`.
 */
TRI_MUST_CHECK enum tri_status tri_chat_render(struct tri_prompt **out, const char *name,
                                               const char *json, size_t bytes,
                                               const struct tri_chat_settings *settings,
                                               struct tri_error *err);
void tri_prompt_close(struct tri_prompt *prompt);

const struct tri_segment *tri_prompt_segments(const struct tri_prompt *prompt, size_t *count);
/* What the generation prompt opened: where the parser must start. */
enum tri_channel tri_prompt_start(const struct tri_prompt *prompt);
/* Names of all declared tools (also dynamic ones), in order; they live as long as the prompt. */
const char *const *tri_prompt_tools(const struct tri_prompt *prompt, size_t *count);

/* Appends the ids: each segment is encoded alone, markers as markup, all else plain. */
TRI_MUST_CHECK enum tri_status tri_prompt_encode(const struct tri_prompt *prompt,
                                                 const struct tri_tokenizer *tok,
                                                 struct tri_ids *ids, struct tri_error *err);

/* ---- output parser -------------------------------------------------------------------------- */

/*
 * What the model did against its own format, each counted. None of them is an error: the text is
 * put where it belongs (comment), and the counts are for metrics and curiosity.
 */
#define TRI_DEVIATION_MAP(X)                                                                       \
    X(IMPLICIT_CLOSE, "implicit_close")   /* an element was left open: closed */                   \
    X(IMPLICIT_OPEN, "implicit_open")     /* a call without tools around it: accepted */           \
    X(MISSING_SEP, "missing_sep")         /* a tag ended by the next marker or by text */          \
    X(ANSWER_IN_THINK, "answer_in_think") /* response or message closed while thinking: answer */  \
    X(THINK_IN_RESPONSE, "think_in_response") /* the text before turned out to be reasoning */     \
    X(STRAY_CLOSE, "stray_close")             /* closes what is not open: dropped */               \
    X(STRAY_SEP, "stray_sep")                 /* outside a tag: dropped */                         \
    X(STRAY_TEXT, "stray_text")             /* between elements: answer, or dropped among tools */ \
    X(STRAY_TOKEN, "stray_token")           /* another special token: dropped */                   \
    X(UNKNOWN_TAG, "unknown_tag")           /* the tag is dropped, what follows kept */            \
    X(LONG_TAG, "long_tag")                 /* over TRI_TAG_MAX_BYTES: as an unknown tag */        \
    X(BAD_ATTRIBUTE, "bad_attribute")       /* a call without a name, an argument without a key */ \
    X(BAD_VALUE, "bad_value")               /* not JSON of its type: passed on as a string */      \
    X(DUPLICATE_KEY, "duplicate_key")       /* the last value wins */                              \
    X(UNDECLARED_TOOLS, "undeclared_tools") /* tools block, none declared: swallowed */            \
    X(UNKNOWN_TOOL, "unknown_tool")         /* name not declared: passed on, or swallowed */       \
    X(TOO_MANY_CALLS, "too_many_calls")     /* over TRI_TURN_MAX_CALLS: swallowed */               \
    X(CUT_CALL, "cut_call")                 /* the reply ended inside a call: not in the list */   \
    X(AFTER_END, "after_end")               /* tokens after the message's end: dropped */          \
    X(EOS, "eos")                           /* [EOS] instead of <|end_of_msg|> */

enum tri_deviation {
#define TRI_DEVIATION_ENUM(name, text) TRI_DEVIATION_##name,
    TRI_DEVIATION_MAP(TRI_DEVIATION_ENUM)
#undef TRI_DEVIATION_ENUM
        TRI_DEVIATIONS
};
const char *tri_deviation_name(enum tri_deviation deviation);

enum tri_finish { TRI_FINISH_STOP, TRI_FINISH_TOOL_CALLS, TRI_FINISH_LENGTH };
const char *tri_finish_name(enum tri_finish finish); /* "stop", "tool_calls", "length" */

/*
 * What a stream gets, in order. REASONING, CONTENT: text to append, valid UTF-8. CALL_BEGIN: `text`
 * is the whole tool name. CALL_ARGUMENTS: JSON text to append to that call's arguments. CALL_END:
 * the call is complete; one that is cut off never gets it. `call` counts the calls from 0.
 * When thinking turns out to be the answer, its text comes once more as CONTENT; content that turns
 * out to be thinking is not sent again. The whole reply has each text once, where it belongs, and
 * an argument whose key came twice once.
 */
enum tri_event_kind {
    TRI_EVENT_REASONING,
    TRI_EVENT_CONTENT,
    TRI_EVENT_CALL_BEGIN,
    TRI_EVENT_CALL_ARGUMENTS,
    TRI_EVENT_CALL_END,
};
struct tri_event {
    enum tri_event_kind kind;
    size_t call;
    const char *text; /* until the callback returns */
    size_t bytes;
};

struct tri_parser_options {
    enum tri_channel start;   /* what the prompt opened: tri_prompt_start(); never guessed */
    bool tools;               /* false: a tools block is swallowed */
    const char *const *names; /* declared names (copied); NULL: any name is fine */
    size_t name_count;
    bool strict_names; /* true: a call of an undeclared tool is swallowed, not passed on */
    void (*event)(void *arg, const struct tri_event *event); /* may be NULL */
    void *arg;
};

struct tri_call {
    const char *name, *arguments; /* JSON text of an object (or the raw text of a json element) */
    size_t name_bytes, arguments_bytes;
};

/* The whole reply. Strings are NUL-terminated (but may hold NUL) and live with the parser. */
struct tri_turn {
    const char *reasoning, *content;
    size_t reasoning_bytes, content_bytes;
    const struct tri_call *calls; /* complete ones only */
    size_t call_count;
    enum tri_finish finish;
    uint32_t deviations[TRI_DEVIATIONS];
};

struct tri_parser; /* one per reply, one thread at a time */

TRI_MUST_CHECK enum tri_status tri_parser_open(struct tri_parser **out,
                                               const struct tri_tokenizer *tok,
                                               const struct tri_parser_options *options,
                                               struct tri_error *err);
void tri_parser_close(struct tri_parser *parser);

/*
 * Takes the next sampled id; events are called before it returns. Structure is recognised by id
 * only: markers spelled as text stay text. Fails with TRI_FORMAT (an id without a token), TRI_LIMIT
 * (TRI_TURN_MAX_BYTES) or TRI_NOMEM, and then stays failed.
 */
TRI_MUST_CHECK enum tri_status tri_parser_push(struct tri_parser *parser, int32_t id,
                                               struct tri_error *err);
/* True once the message has ended: sampling more is useless. */
bool tri_parser_ended(const struct tri_parser *parser);
/* What is open now (NONE among tools and between elements): a grammar or a budget may ask. */
enum tri_channel tri_parser_channel(const struct tri_parser *parser);
/*
 * The reply is over: sends what is held back and fills *out. `cut` tells that something else than
 * the model ended it (a token limit); that becomes TRI_FINISH_LENGTH, and a call left open is not
 * complete, unless the message had ended or its tools were closed.
 */
TRI_MUST_CHECK enum tri_status tri_parser_finish(struct tri_parser *parser, bool cut,
                                                 struct tri_turn *out, struct tri_error *err);

/* ---- JSON for conversations ----------------------------------------------------------------- */

/* Appends `text` as a JSON string, in quotes, escaped as Python's ensure_ascii=False does. */
enum tri_status tri_json_quote(struct tri_buf *out, const char *text, size_t bytes);
/* Appends a reply as the assistant message that tri_chat_render reads; call ids "<prefix><n>". */
enum tri_status tri_turn_message(struct tri_buf *out, const struct tri_turn *turn,
                                 const char *call_id_prefix);

#endif
