/*
 * A conversation: its messages, and for each reply the very ids that were sampled. The prompt of
 * the next turn is the rendered conversation with those ids in the place of each such reply, so
 * that it begins with what the model's state has seen and only new tokens are computed. The kept
 * ids are the truth, even where rendering the reply again would give others.
 *
 * A reply that was cut (length, stop string, Ctrl-C) inside its thinking or its answer is closed
 * with the markup that is missing; one cut elsewhere keeps no ids and is rendered from its text.
 */
#ifndef TRI_CLI_CONVERSATION_H
#define TRI_CLI_CONVERSATION_H

#include <stdbool.h>
#include "text/text.h"

struct tri_chat_message {
    char *json;         /* as tri_chat_render reads it */
    bool system;        /* the one that /system sets */
    struct tri_ids ids; /* a reply's whole message, markup included; empty: rendered */
};

struct tri_conversation {
    struct tri_chat_message *messages;
    size_t n, cap;
    char *tools; /* JSON list, or NULL */
    bool thinking;
    enum tri_effort effort;
};

/* Zero-initialise, then set thinking and effort. */
void tri_conversation_fini(struct tri_conversation *c);
/* Forgets all but a system message, if there is one. */
void tri_conversation_clear(struct tri_conversation *c);

TRI_MUST_CHECK enum tri_status tri_conversation_user(struct tri_conversation *c, const char *text,
                                                     struct tri_error *err);
/* Sets the system message, in front; an empty text takes it away. */
TRI_MUST_CHECK enum tri_status tri_conversation_system(struct tri_conversation *c, const char *text,
                                                       struct tri_error *err);
/* A tool's result for the call with this id. */
TRI_MUST_CHECK enum tri_status tri_conversation_result(struct tri_conversation *c,
                                                       const char *call_id, const char *text,
                                                       struct tri_error *err);
/* A reply. `ids` (moved from; may be empty) is its whole message. Call ids are "<prefix><n>". */
TRI_MUST_CHECK enum tri_status tri_conversation_reply(struct tri_conversation *c,
                                                      const struct tri_turn *turn,
                                                      struct tri_ids *ids, const char *prefix,
                                                      struct tri_error *err);
/* Any message as it is; its memory moves into the conversation. */
TRI_MUST_CHECK enum tri_status tri_conversation_add(struct tri_conversation *c,
                                                    const struct tri_chat_message *message,
                                                    struct tri_error *err);
/* Takes back the last message. */
void tri_conversation_drop(struct tri_conversation *c);

/*
 * The next prompt's ids, appended. *stub is where the opened assistant message begins in `ids`:
 * a reply's ids start there. *prompt (to be closed) knows the declared tools and the start.
 */
TRI_MUST_CHECK enum tri_status tri_conversation_prompt(const struct tri_conversation *c,
                                                       const struct tri_tokenizer *tok,
                                                       struct tri_ids *ids, size_t *stub,
                                                       struct tri_prompt **prompt,
                                                       struct tri_error *err);

/* Appends what closes a message that was cut inside its thinking or its answer. */
TRI_MUST_CHECK enum tri_status tri_close_ids(const struct tri_tokenizer *tok,
                                             enum tri_channel channel, struct tri_ids *ids,
                                             struct tri_error *err);

/* Reads a tools file: a JSON list of declarations. */
TRI_MUST_CHECK enum tri_status tri_conversation_tools(struct tri_conversation *c, const char *path,
                                                      struct tri_error *err);
/* The same from a text; `name` is told in errors. An empty list takes the tools away. */
TRI_MUST_CHECK enum tri_status tri_conversation_declare(struct tri_conversation *c,
                                                        const char *name, const char *text,
                                                        struct tri_error *err);
#endif
