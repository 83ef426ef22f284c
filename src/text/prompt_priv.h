/*
 * Room-internal: how the renderer writes a prompt. All calls append segments; the first failure
 * sticks in `failed` and later calls do nothing, so a run of them is checked once.
 */
#ifndef TRI_TEXT_PROMPT_PRIV_H
#define TRI_TEXT_PROMPT_PRIV_H

#include "text/text_priv.h"

struct tri_prompt {
    struct tri__arena arena; /* the request's values and every text made from them */
    struct tri_segment *segments;
    size_t count, cap;
    const char **tools;
    size_t tool_count;
    enum tri_channel start;
    enum tri_status failed;
    const char *where;     /* told in errors: what is rendered now, "request: messages[3]" */
    struct tri_error *err; /* both belong to the call that renders; not used after it */
};

/* Text must outlive the prompt: literals, values of the arena, or a kept copy. */
void tri__prompt_text(struct tri_prompt *p, const char *text, size_t bytes);
void tri__prompt_puts(struct tri_prompt *p, const char *text);
void tri__prompt_marker(struct tri_prompt *p, const char *text, size_t bytes);
/* A NUL-terminated copy in the arena; NULL after a failure. */
char *tri__prompt_keep(struct tri_prompt *p, const char *text, size_t bytes);
/* The same of a buffer, which is cleared; no bytes after a failure (also the buffer's own). */
struct tri_segment tri__prompt_keep_buf(struct tri_prompt *p, struct tri_buf *buf);
void tri__prompt_text_buf(struct tri_prompt *p, struct tri_buf *buf);

/* Elements (spec 6.1): open, then attributes (` key` with its blank), then sep; shut. */
void tri__prompt_open(struct tri_prompt *p, const char *tag);
void tri__prompt_attr(struct tri_prompt *p, const char *space_key, const char *value, size_t bytes);
void tri__prompt_sep(struct tri_prompt *p);
void tri__prompt_shut(struct tri_prompt *p, const char *tag);
/* Closes the message element and ends the message. */
void tri__prompt_end_message(struct tri_prompt *p);

#endif
