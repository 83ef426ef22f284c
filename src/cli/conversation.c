/* Messages, kept ids and the next prompt; see conversation.h. */
#include "cli/conversation.h"

#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/mem.h"

static void message_fini(struct tri_chat_message *m)
{
    tri_free(m->json);
    tri_ids_fini(&m->ids);
    *m = (struct tri_chat_message){ 0 };
}

void tri_conversation_fini(struct tri_conversation *c)
{
    for (size_t i = 0; i < c->n; i++)
        message_fini(&c->messages[i]);
    tri_free(c->messages);
    tri_free(c->tools);
    *c = (struct tri_conversation){ 0 };
}

void tri_conversation_clear(struct tri_conversation *c)
{
    size_t keep = c->n && c->messages[0].system;
    while (c->n > keep)
        message_fini(&c->messages[--c->n]);
}

void tri_conversation_drop(struct tri_conversation *c)
{
    if (c->n)
        message_fini(&c->messages[--c->n]);
}

static enum tri_status make_room(struct tri_conversation *c, struct tri_error *err)
{
    if (c->n < c->cap)
        return TRI_OK;
    if (c->n >= TRI_CHAT_MAX_MESSAGES)
        return tri_fail(err, TRI_LIMIT, "a conversation has at most %d messages",
                        TRI_CHAT_MAX_MESSAGES);
    size_t cap = c->cap ? c->cap * 2 : 16;
    struct tri_chat_message *more = tri_realloc(c->messages, cap * sizeof *more);
    if (!more)
        return tri_fail(err, TRI_NOMEM, "no memory for the conversation");
    c->messages = more;
    c->cap = cap;
    return TRI_OK;
}

enum tri_status tri_conversation_add(struct tri_conversation *c,
                                     const struct tri_chat_message *message, struct tri_error *err)
{
    enum tri_status st = make_room(c, err);
    if (st == TRI_OK)
        c->messages[c->n++] = *message;
    return st;
}

/* Takes what was written to `json` as the next message; fails if writing it failed. */
static enum tri_status append(struct tri_conversation *c, struct tri_buf *json,
                              struct tri_error *err)
{
    enum tri_status st = json->failed;
    if (st != TRI_OK)
        return tri_fail(err, st, "the message is too long (at most %d bytes)", TRI_CHAT_MAX_BYTES);
    struct tri_chat_message m = { .json = tri_strndup(json->data, json->len_bytes) };
    if (!m.json)
        return tri_fail(err, TRI_NOMEM, "no memory for a message");
    st = tri_conversation_add(c, &m, err);
    if (st != TRI_OK)
        tri_free(m.json);
    return st;
}

static enum tri_status append_role(struct tri_conversation *c, const char *role, const char *text,
                                   struct tri_error *err)
{
    struct tri_buf json;
    size_t bytes = strlen(text), good = tri_utf8_valid(text, bytes);
    if (good != bytes)
        return tri_fail(err, TRI_FORMAT,
                        "the %s message is no UTF-8 text: byte %zu is wrong (iconv converts)", role,
                        good);
    tri_buf_init(&json, TRI_CHAT_MAX_BYTES);
    tri_buf_printf(&json, "{\"role\":\"%s\",\"content\":", role);
    tri_json_quote(&json, text, strlen(text));
    tri_buf_puts(&json, "}");
    enum tri_status st = append(c, &json, err);
    tri_buf_fini(&json);
    return st;
}

enum tri_status tri_conversation_user(struct tri_conversation *c, const char *text,
                                      struct tri_error *err)
{
    return append_role(c, "user", text, err);
}

enum tri_status tri_conversation_system(struct tri_conversation *c, const char *text,
                                        struct tri_error *err)
{
    if (*text) {
        enum tri_status st = append_role(c, "system", text, err);
        if (st != TRI_OK)
            return st;
        struct tri_chat_message added = c->messages[c->n - 1];
        memmove(c->messages + 1, c->messages, (c->n - 1) * sizeof *c->messages);
        added.system = true;
        c->messages[0] = added;
    }
    size_t old = *text ? 1 : 0;
    if (c->n > old && c->messages[old].system) {
        message_fini(&c->messages[old]);
        c->n--;
        memmove(c->messages + old, c->messages + old + 1, (c->n - old) * sizeof *c->messages);
    }
    return TRI_OK;
}

enum tri_status tri_conversation_result(struct tri_conversation *c, const char *call_id,
                                        const char *text, struct tri_error *err)
{
    struct tri_buf json;
    tri_buf_init(&json, TRI_CHAT_MAX_BYTES);
    tri_buf_puts(&json, "{\"role\":\"tool\",\"tool_call_id\":");
    tri_json_quote(&json, call_id, strlen(call_id));
    tri_buf_puts(&json, ",\"content\":");
    tri_json_quote(&json, text, strlen(text));
    tri_buf_puts(&json, "}");
    enum tri_status st = append(c, &json, err);
    tri_buf_fini(&json);
    return st;
}

enum tri_status tri_conversation_reply(struct tri_conversation *c, const struct tri_turn *turn,
                                       struct tri_ids *ids, const char *prefix,
                                       struct tri_error *err)
{
    struct tri_buf json;
    tri_buf_init(&json, TRI_CHAT_MAX_BYTES);
    tri_turn_message(&json, turn, prefix);
    enum tri_status st = append(c, &json, err);
    tri_buf_fini(&json);
    if (st != TRI_OK)
        return st;
    c->messages[c->n - 1].ids = *ids;
    *ids = (struct tri_ids){ 0 };
    return TRI_OK;
}

static enum tri_status render(const struct tri_conversation *c, struct tri_prompt **out,
                              struct tri_error *err)
{
    struct tri_buf json;
    struct tri_chat_settings settings = TRI_CHAT_SETTINGS;
    settings.thinking = c->thinking;
    settings.effort = c->effort;
    tri_buf_init(&json, TRI_CHAT_MAX_BYTES);
    tri_buf_puts(&json, "{\"messages\":[");
    for (size_t i = 0; i < c->n; i++) {
        tri_buf_puts(&json, i ? "," : "");
        tri_buf_puts(&json, c->messages[i].json);
    }
    tri_buf_puts(&json, "]");
    if (c->tools) {
        tri_buf_puts(&json, ",\"tools\":");
        tri_buf_puts(&json, c->tools);
    }
    enum tri_status st = tri_buf_puts(&json, "}");
    if (st != TRI_OK)
        st = tri_fail(err, st, "the conversation is longer than %d bytes", TRI_CHAT_MAX_BYTES);
    else
        st = tri_chat_render(out, "chat", json.data, json.len_bytes, &settings, err);
    tri_buf_fini(&json);
    return st;
}

static bool ends_message(const struct tri_segment *s)
{
    static const char name[] = "<|end_of_msg|>";
    return s->is_marker && s->bytes == sizeof name - 1 && !memcmp(s->text, name, s->bytes);
}

/* Notes that stand before the conversation: K3 spec 6.2. */
static size_t notes_before(const struct tri_conversation *c)
{
    return (size_t)(c->tools != NULL) + (size_t)(c->thinking && c->effort != TRI_EFFORT_NONE);
}

static enum tri_status add_ids(struct tri_ids *to, const struct tri_ids *from)
{
    enum tri_status st = TRI_OK;
    for (size_t i = 0; i < from->count_tokens && st == TRI_OK; i++)
        st = tri_ids_add(to, from->data[i]);
    return st;
}

/* Encodes the segments of one message, or takes the ids that were kept for it. */
static enum tri_status encode_message(const struct tri_segment *s, size_t n,
                                      const struct tri_chat_message *message,
                                      const struct tri_tokenizer *tok, struct tri_ids *ids,
                                      struct tri_error *err)
{
    enum tri_status st = TRI_OK;
    if (message && message->ids.count_tokens)
        return add_ids(ids, &message->ids) == TRI_OK
                   ? TRI_OK
                   : tri_fail(err, TRI_NOMEM, "no memory for the prompt");
    for (size_t i = 0; i < n && st == TRI_OK; i++)
        st = tri_encode(tok, s[i].text, s[i].bytes, s[i].is_marker ? TRI_MARKUP : TRI_PLAIN, ids,
                        err);
    return st;
}

enum tri_status tri_conversation_prompt(const struct tri_conversation *c,
                                        const struct tri_tokenizer *tok, struct tri_ids *ids,
                                        size_t *stub, struct tri_prompt **prompt,
                                        struct tri_error *err)
{
    struct tri_prompt *rendered = NULL;
    enum tri_status st = render(c, &rendered, err);
    if (st != TRI_OK)
        return st;
    size_t count = 0, from = 0, message = 0, before = notes_before(c);
    const struct tri_segment *s = tri_prompt_segments(rendered, &count);
    for (size_t i = 0; i < count && st == TRI_OK; i++) {
        if (!ends_message(&s[i]))
            continue;
        bool own = message >= before && message - before < c->n;
        st = encode_message(s + from, i + 1 - from, own ? &c->messages[message - before] : NULL,
                            tok, ids, err);
        message++;
        from = i + 1;
    }
    if (st == TRI_OK && message != before + c->n)
        st =
            tri_fail(err, TRI_FORMAT,
                     "the conversation's %zu messages make %zu of the prompt's: a loaded file that "
                     "was edited? /clear begins anew",
                     c->n, message - before);
    *stub = ids->count_tokens;
    if (st == TRI_OK)
        st = encode_message(s + from, count - from, NULL, tok, ids, err);
    if (st == TRI_OK)
        *prompt = rendered;
    else
        tri_prompt_close(rendered);
    return st;
}

enum tri_status tri_close_ids(const struct tri_tokenizer *tok, enum tri_channel channel,
                              struct tri_ids *ids, struct tri_error *err)
{
    static const char think[] = "<|close|>think<|sep|><|open|>response<|sep|>";
    static const char rest[] = "<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>";
    enum tri_status st = TRI_OK;
    TRI_ASSERT(channel != TRI_CHANNEL_NONE);
    if (channel == TRI_CHANNEL_THINK)
        st = tri_encode(tok, think, sizeof think - 1, TRI_MARKUP, ids, err);
    return st == TRI_OK ? tri_encode(tok, rest, sizeof rest - 1, TRI_MARKUP, ids, err) : st;
}

enum tri_status tri_conversation_declare(struct tri_conversation *c, const char *name,
                                         const char *text, struct tri_error *err)
{
    json_t *json = NULL;
    char *kept = NULL;
    enum tri_status st = tri_json_parse(&json, name, text, strlen(text), TRI_CHAT_MAX_BYTES, err);
    bool none = json_array_size(json) == 0;
    if (st == TRI_OK && !json_is_array(json))
        st = tri_fail(err, TRI_FORMAT, "%s: a JSON list of tool declarations is needed", name);
    if (st == TRI_OK && !none) {
        kept = tri_strdup(text);
        st = kept ? TRI_OK : tri_fail(err, TRI_NOMEM, "no memory for the tools of %s", name);
    }
    json_decref(json);
    if (st != TRI_OK)
        return st;
    tri_free(c->tools);
    c->tools = kept; /* an empty list is rendered as no tools, so it is none */
    return TRI_OK;
}

enum tri_status tri_conversation_tools(struct tri_conversation *c, const char *path,
                                       struct tri_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    enum tri_status st = tri_read_file(&text, &bytes, path, TRI_CHAT_MAX_BYTES, err);
    if (st == TRI_OK && strlen(text) != bytes)
        st = tri_fail(err, TRI_FORMAT, "%s: holds a NUL byte, so it is no JSON", path);
    if (st == TRI_OK)
        st = tri_conversation_declare(c, path, text, err);
    tri_free(text);
    return st;
}
