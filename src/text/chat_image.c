/*
 * Images in a prompt (spec 6.6): <|media_begin|>image WxH<|media_content|> pads <|media_end|>, one
 * markup segment. `image_prompts` are such texts ready made, and behave as in the reference;
 * `images` are sizes, only for image parts of user messages, so that a user who types the
 * placeholder's name can move no image.
 */
#include "text/chat_priv.h"

#include <string.h>
#include "base/mem.h"

static const char placeholder[] = "<|kimi_image_placeholder|>";

/* A whole number of 1..most, 0 if it is none. */
static size_t whole(const struct tri__json *v, size_t most)
{
    size_t n = 0;
    if (!v || v->type != TRI__JSON_INT || v->bytes > 9 || v->text[0] == '-')
        return 0;
    for (size_t i = 0; i < v->bytes; i++)
        n = n * 10 + (size_t)(v->text[i] - '0');
    return n <= most ? n : 0;
}

/* One [width, height, positions]; returns the positions. */
static size_t sized_image(struct tri__chat *c, const struct tri__json *v, size_t i, size_t left)
{
    const struct tri__json *w = v->type == TRI__JSON_ARRAY && v->count == 3 ? v->child : NULL;
    const struct tri__json *h = w ? w->next : NULL;
    size_t width = whole(w, 1 << 20), height = whole(h, 1 << 20);
    size_t positions = whole(h ? h->next : NULL, left);
    if (!width || !height || !positions) {
        tri__chat_refuse(c,
                         ".images[%zu]: must be [width, height, positions], all at least 1, at "
                         "most %d positions in all",
                         i, TRI_CHAT_MAX_IMAGE_POSITIONS);
        return 0;
    }
    tri_buf_printf(&c->buf, "<|media_begin|>image %zux%zu<|media_content|>", width, height);
    for (size_t k = 0; k < positions; k++)
        tri_buf_puts(&c->buf, "<|media_pad|>");
    tri_buf_puts(&c->buf, "<|media_end|>");
    c->images.list[i] = tri__prompt_keep_buf(c->prompt, &c->buf);
    return positions;
}

void tri__chat_images_read(struct tri__chat *c, const struct tri__json *root)
{
    const struct tri__json *ready = tri__chat_member(c, root, "image_prompts", TRI__JSON_ARRAY);
    const struct tri__json *sizes = tri__chat_member(c, root, "images", TRI__JSON_ARRAY);
    const struct tri__json *list = ready ? ready : sizes;
    if (ready && sizes)
        tri__chat_refuse(c, ".images: give either image_prompts or images");
    if (!list || c->prompt->failed)
        return;
    c->images.list = tri_calloc(list->count, sizeof *c->images.list);
    if (!c->images.list) {
        c->prompt->failed = tri_fail(c->prompt->err, TRI_NOMEM, "%s: no memory", c->where);
        return;
    }
    c->images.count = list->count;
    c->images.in_text = ready != NULL;
    size_t i = 0, left = TRI_CHAT_MAX_IMAGE_POSITIONS;
    for (const struct tri__json *v = list->child; v && !c->prompt->failed; v = v->next, i++) {
        if (!ready)
            left -= sized_image(c, v, i, left);
        else if (v->type == TRI__JSON_STRING)
            c->images.list[i] = (struct tri_segment){ v->text, v->bytes, true };
        else
            tri__chat_refuse(c, ".image_prompts[%zu]: must be a string", i);
    }
}

void tri__chat_images_end(struct tri__chat *c)
{
    tri__chat_at(c, c->images.in_text ? "image_prompts" : "images");
    if (c->images.used != c->images.count)
        tri__chat_refuse(c, ": %zu are given, the messages take %zu", c->images.count,
                         c->images.used);
}

void tri__chat_image(struct tri__chat *c, bool in_user)
{
    if (!in_user && !c->images.in_text) {
        tri__chat_refuse(c, ".content: only user messages may hold images");
        return;
    }
    if (c->images.used == c->images.count) {
        tri__chat_refuse(c,
                         ".content: image %zu of the messages, but %zu are given in "
                         "image_prompts or images",
                         c->images.used + 1, c->images.count);
        return;
    }
    const struct tri_segment *s = &c->images.list[c->images.used++];
    tri__prompt_marker(c->prompt, s->text, s->bytes);
}

void tri__chat_text(struct tri__chat *c, const char *text, size_t bytes)
{
    const char *end = text + bytes;
    while (c->images.in_text) {
        const char *found = memmem(text, (size_t)(end - text), placeholder, sizeof placeholder - 1);
        if (!found)
            break;
        tri__prompt_text(c->prompt, text, (size_t)(found - text));
        tri__chat_image(c, true);
        text = found + sizeof placeholder - 1;
    }
    tri__prompt_text(c->prompt, text, (size_t)(end - text));
}
