/* A prompt: the list of segments that rendering writes, and its way to ids. */
#include "text/prompt_priv.h"

#include <string.h>
#include "base/mem.h"

/* Keeps the first failure of a run of appends; the caller asks once, at the end. */
static void fail_full(struct tri_prompt *p, enum tri_status st)
{
    if (st == TRI_LIMIT)
        tri_fail(p->err, st, "%s: the prompt is over a limit (%d segments, %d MiB)", p->where,
                 TRI_CHAT_MAX_SEGMENTS, TRI_CHAT_MAX_MEMORY_BYTES >> 20);
    else
        tri_fail(p->err, st, "%s: no memory for the prompt", p->where);
    p->failed = st;
}

static void add(struct tri_prompt *p, const char *text, size_t bytes, bool is_marker)
{
    if (p->failed || !bytes)
        return; /* empty text makes no segment */
    if (p->count == TRI_CHAT_MAX_SEGMENTS) {
        fail_full(p, TRI_LIMIT);
        return;
    }
    if (p->count == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 64;
        struct tri_segment *more = tri_realloc(p->segments, cap * sizeof *more);
        if (!more) {
            fail_full(p, TRI_NOMEM);
            return;
        }
        p->segments = more;
        p->cap = cap;
    }
    p->segments[p->count++] = (struct tri_segment){ text, bytes, is_marker };
}

char *tri__prompt_keep(struct tri_prompt *p, const char *text, size_t bytes)
{
    char *copy = tri__arena_alloc(&p->arena, bytes + 1);
    if (!copy) {
        if (!p->failed)
            fail_full(p, p->arena.failed);
        return NULL;
    }
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    return copy;
}

struct tri_segment tri__prompt_keep_buf(struct tri_prompt *p, struct tri_buf *buf)
{
    struct tri_segment kept = { .text = "" };
    if (buf->failed && !p->failed)
        fail_full(p, buf->failed);
    const char *copy =
        p->failed || !buf->len_bytes ? NULL : tri__prompt_keep(p, buf->data, buf->len_bytes);
    if (copy)
        kept = (struct tri_segment){ .text = copy, .bytes = buf->len_bytes };
    tri_buf_clear(buf);
    return kept;
}

void tri__prompt_marker(struct tri_prompt *p, const char *text, size_t bytes)
{
    add(p, text, bytes, true);
}

void tri__prompt_text(struct tri_prompt *p, const char *text, size_t bytes)
{
    size_t valid = p->failed ? bytes : tri_utf8_valid(text, bytes);
    if (valid < bytes) /* JSON was valid UTF-8: only a \u escape can have made this */
        p->failed =
            tri_fail(p->err, TRI_FORMAT,
                     "%s: a lone surrogate (\\ud800 to \\udfff) cannot be encoded", p->where);
    add(p, text, bytes, false);
}

void tri__prompt_text_buf(struct tri_prompt *p, struct tri_buf *buf)
{
    struct tri_segment kept = tri__prompt_keep_buf(p, buf);
    tri__prompt_text(p, kept.text, kept.bytes);
}

void tri__prompt_puts(struct tri_prompt *p, const char *text)
{
    tri__prompt_text(p, text, strlen(text));
}

/* Escapes & and ", nothing else (spec 6.1). */
static void escaped(struct tri_prompt *p, const char *text, size_t bytes)
{
    if (!memchr(text, '&', bytes) && !memchr(text, '"', bytes)) {
        tri__prompt_text(p, text, bytes);
        return;
    }
    struct tri_buf out;
    tri_buf_init(&out, TRI_CHAT_MAX_MEMORY_BYTES);
    for (size_t i = 0; i < bytes; i++)
        if (text[i] == '&')
            tri_buf_puts(&out, "&amp;");
        else if (text[i] == '"')
            tri_buf_puts(&out, "&quot;");
        else
            tri_buf_putc(&out, text[i]);
    tri__prompt_text_buf(p, &out);
    tri_buf_fini(&out);
}

void tri__prompt_open(struct tri_prompt *p, const char *tag)
{
    tri__prompt_marker(p, "<|open|>", 8);
    tri__prompt_puts(p, tag);
}

void tri__prompt_attr(struct tri_prompt *p, const char *space_key, const char *value, size_t bytes)
{
    tri__prompt_puts(p, space_key);
    tri__prompt_puts(p, "=\"");
    escaped(p, value, bytes);
    tri__prompt_puts(p, "\"");
}

void tri__prompt_sep(struct tri_prompt *p)
{
    tri__prompt_marker(p, "<|sep|>", 7);
}

void tri__prompt_shut(struct tri_prompt *p, const char *tag)
{
    tri__prompt_marker(p, "<|close|>", 9);
    tri__prompt_puts(p, tag);
    tri__prompt_sep(p);
}

void tri__prompt_end_message(struct tri_prompt *p)
{
    tri__prompt_shut(p, "message");
    tri__prompt_marker(p, "<|end_of_msg|>", 14);
}

void tri_prompt_close(struct tri_prompt *prompt)
{
    if (!prompt)
        return;
    tri__arena_fini(&prompt->arena);
    tri_free(prompt->segments);
    tri_free(prompt->tools);
    tri_free(prompt);
}

const struct tri_segment *tri_prompt_segments(const struct tri_prompt *prompt, size_t *count)
{
    *count = prompt->count;
    return prompt->segments;
}

enum tri_channel tri_prompt_start(const struct tri_prompt *prompt)
{
    return prompt->start;
}

const char *const *tri_prompt_tools(const struct tri_prompt *prompt, size_t *count)
{
    *count = prompt->tool_count;
    return prompt->tools;
}

enum tri_status tri_prompt_encode(const struct tri_prompt *prompt, const struct tri_tokenizer *tok,
                                  struct tri_ids *ids, struct tri_error *err)
{
    struct tri_chat_ids known;
    struct tri__encoder encoder;
    enum tri_status st = tri_chat_ids_find(&known, tok, err);
    if (!st)
        st = tri__encoder_init(&encoder, tok, err);
    if (st)
        return st;
    size_t had = ids->count_tokens;
    for (size_t i = 0; i < prompt->count && !st; i++) {
        const struct tri_segment *s = &prompt->segments[i];
        st = tri__encode(&encoder, s->text, s->bytes, s->is_marker ? TRI_MARKUP : TRI_PLAIN, ids,
                         err);
    }
    if (st)
        ids->count_tokens = had;
    tri__encoder_fini(&encoder);
    return st;
}
