/* Room-internal: one rendering, shared by chat.c, chat_message.c and chat_image.c. */
#ifndef TRI_TEXT_CHAT_PRIV_H
#define TRI_TEXT_CHAT_PRIV_H

#include "text/prompt_priv.h"

/* Ready image prompts, taken one by one by image parts (and placeholders, if `in_text`). */
struct tri__chat_images {
    struct tri_segment *list;
    size_t count, used;
    bool in_text;
};

struct tri__chat {
    struct tri_prompt *prompt;
    const char *name; /* of the request, for errors */
    struct tri_chat_settings settings;
    bool given_settings;
    struct tri__chat_images images;
    struct tri_buf buf; /* for texts that are put together */
    char where[256];    /* "request: messages[3]" */
    /* The last assistant message: its calls, and how many results have followed. */
    const struct tri__json *calls;
    size_t results;
};

/* Says where rendering stands, and refuses there; `format` goes on after it: ".name: must be...".
 */
void tri__chat_at(struct tri__chat *c, const char *format, ...) TRI_PRINTF(2, 3);
void tri__chat_refuse(struct tri__chat *c, const char *format, ...) TRI_PRINTF(2, 3);
/* The member if it is there, not null and of this type (TRUE: a boolean); refuses another type. */
const struct tri__json *tri__chat_member(struct tri__chat *c, const struct tri__json *object,
                                         const char *key, enum tri__json_type type);

/* A tool-declare note with this heading. */
void tri__chat_declare(struct tri__chat *c, const struct tri__json *tools, const char *head);
void tri__chat_messages(struct tri__chat *c, const struct tri__json *messages);

/* Reads image_prompts or images; end: refuses if some were not used. */
void tri__chat_images_read(struct tri__chat *c, const struct tri__json *root);
void tri__chat_images_end(struct tri__chat *c);
/* Writes the next image prompt; refuses if there is none left. `in_user`: in a user message. */
void tri__chat_image(struct tri__chat *c, bool in_user);
/* Text, in which image prompts take the place of the reference's placeholder if it says so. */
void tri__chat_text(struct tri__chat *c, const char *text, size_t bytes);

#endif
