/*
 * One answer: the loop of steps from a prompt's ids to the end, through the output parser and the
 * stop strings to a stream of text, with the times that people ask for.
 */
#ifndef TRI_CLI_REPLY_H
#define TRI_CLI_REPLY_H

#include <stdio.h>
#include "cli/run_options.h"
#include "cli/talk.h"

/* Where text goes as it is made. */
struct tri_screen {
    FILE *out;     /* NULL: nowhere, it is only collected */
    bool terminal; /* `out` is one: styles are used, control characters shown */
    bool thinking; /* show it */
    bool progress; /* tell on stderr how far a long prompt is */
    /* what stands there now */
    bool in_thinking, line_open, any;
    int failed; /* errno of a write that failed: the answer is of no use any more */
};

struct tri_reply {
    struct tri_parser *parser; /* owns what `turn` points to; NULL for raw text */
    struct tri_turn turn;      /* raw: the text is its content */
    struct tri_buf content;    /* the text let through by the stop strings */
    struct tri_ids sampled;
    const char *finish;       /* "stop", "length", "tool_calls", "interrupted" or "error" */
    const char *stop_string;  /* which one was found, or NULL */
    bool context_full;        /* finish "length": by the context, not by --max-tokens */
    bool ended;               /* by <|end_of_msg|> */
    enum tri_channel channel; /* that was open when it was cut */
    int64_t prompt_tokens, reused_tokens, reasoning_tokens;
    double first_token_s, prefill_s, decode_s; /* first token: from the call */
};

struct tri_reply_request {
    const struct tri_ids *prompt;
    const struct tri_prompt *rendered; /* NULL: raw text */
    bool tools;                        /* declared */
};

/*
 * Makes an answer. A prompt that does not fit, and logits that are no numbers, are failures; what
 * was made until then stays in *reply. tri_reply_fini in any case.
 */
TRI_MUST_CHECK enum tri_status tri_reply_make(struct tri_reply *reply, struct tri_talk *talk,
                                              const struct tri_run_options *options,
                                              const struct tri_reply_request *request,
                                              struct tri_screen *screen, struct tri_error *err);
void tri_reply_fini(struct tri_reply *reply);

/* The line after an answer: tokens, seconds, tokens per second; and why it ended, if cut. */
void tri_reply_line(FILE *out, const struct tri_reply *reply, bool terminal);

/* One JSON object and a newline: text, reasoning, tool calls, usage, timings. */
TRI_MUST_CHECK enum tri_status tri_reply_json(FILE *out, const struct tri_reply *reply,
                                              const struct tri_talk *talk,
                                              const struct tri_run_options *options,
                                              struct tri_error *err);
/* --stats: times and memory in a small table. */
void tri_reply_stats(FILE *out, const struct tri_reply *reply, const struct tri_talk *talk,
                     uint64_t seed);

#endif
