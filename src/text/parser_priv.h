/* Room-internal: the output parser's state, shared by parser.c, parser_call.c and parser_tag.c. */
#ifndef TRI_TEXT_PARSER_PRIV_H
#define TRI_TEXT_PARSER_PRIV_H

#include "text/text_priv.h"

/* The element that is open, innermost. AFTER: the message is closed, its end marker is due. */
enum tri__where {
    TRI__IN_MESSAGE,
    TRI__IN_THINK,
    TRI__IN_RESPONSE,
    TRI__IN_TOOLS,
    TRI__IN_CALL,
    TRI__IN_VALUE, /* an argument or a json element */
    TRI__AFTER,
};

/* How the text of the open value becomes arguments. */
enum tri__value {
    TRI__VALUE_DROPPED,
    TRI__VALUE_STRING, /* escaped and sent as it comes */
    TRI__VALUE_HELD,   /* checked when it ends */
    TRI__VALUE_RAW,    /* a json element: the whole arguments, sent as it comes */
};

/* Where an argument stands in the arguments so far: its key in quotes, its value. */
struct tri__argument {
    size_t key_at, key_bytes, value_at, value_bytes;
};

struct tri__call_state {
    bool live; /* false: swallowed */
    bool raw;  /* its arguments came as a json element */
    struct tri_buf name, arguments;
    struct tri__argument *list;
    size_t count, cap;
};

struct tri_parser {
    const struct tri_tokenizer *tok;
    struct tri_chat_ids ids;
    struct tri_parser_options options; /* its names are ours */
    char **names;

    enum tri__where where;
    bool ended;        /* the end marker came, or something after the message */
    bool first_answer; /* still in the response that the prompt opened */
    bool maybe_answer; /* thinking was closed as if it were the answer; decided by what follows */
    bool tools_closed;
    bool stray;      /* in a run of stray text that is already counted */
    size_t think_at; /* where the last thinking starts in `reasoning` */

    enum { TRI__NO_TAG, TRI__OPENING, TRI__CLOSING } tag;
    struct tri_buf tag_text;

    struct tri_utf8_hold hold; /* of the open element */
    struct tri_buf valid;      /* what the hold lets out */
    struct tri_buf reasoning, content, held, scratch, key;
    size_t kept_bytes; /* of reasoning, content and arguments; for TRI_TURN_MAX_BYTES */

    enum tri__value value;
    struct tri_buf type; /* attribute of the open value */
    struct tri__call_state call;
    struct tri_call *calls;
    size_t call_count, call_cap;
    struct tri__arena arena; /* strings of complete calls */

    uint32_t deviations[TRI_DEVIATIONS];
    enum tri_status failed;
};

/* parser.c */
void tri__parser_count(struct tri_parser *p, enum tri_deviation deviation);
void tri__parser_fail(struct tri_parser *p, enum tri_status status);
/* Counts `bytes` against the reply's limit, then calls back. */
void tri__parser_emit(struct tri_parser *p, enum tri_event_kind kind, const char *text,
                      size_t bytes);

/* parser_tag.c: "call tool=\"x\" index=\"1\"" */

/* The tag's name, without blanks around it. */
const char *tri__tag_name(const struct tri_buf *tag, size_t *bytes);
bool tri__tag_is(const struct tri_buf *tag, const char *name);
/* Appends the unescaped value of an attribute, as valid UTF-8. False: there is none. */
bool tri__tag_attr(const struct tri_buf *tag, const char *key, struct tri_buf *out);

/* parser_call.c; `tag` is what opened the element */
void tri__call_begin(struct tri_parser *p, const struct tri_buf *tag, bool live);
void tri__call_end(struct tri_parser *p);
void tri__value_begin(struct tri_parser *p, const struct tri_buf *tag);
void tri__value_text(struct tri_parser *p, const char *text, size_t bytes);
void tri__value_end(struct tri_parser *p);
void tri__call_fini(struct tri_parser *p);

#endif
