/* From a chat request to ids, and where in them later prompts are likely to branch off. */
#include "api/api_priv.h"

#include <string.h>

static bool segment_is(const struct tri_segment *s, const char *text)
{
    return s->bytes == strlen(text) && !memcmp(s->text, text, s->bytes);
}

bool tri__exchange_render(struct tri__exchange *x, const char *json, size_t bytes,
                          struct tri__fault *fault)
{
    struct tri_error err = { 0 };
    if (!x->api->speaks_chat)
        return tri__fault_bad(fault, NULL,
                              "this model's vocabulary has no chat markers: use "
                              "/v1/completions");
    if (tri_chat_render(&x->prompt, "request", json, bytes, &x->p.chat, &err) != TRI_OK ||
        tri__turns_encode(x->api->turns, x, &x->ids, &err) != TRI_OK)
        return tri__fault_from(fault, &err);
    return true;
}

bool tri__exchange_turn(struct tri__exchange *x, struct tri__fault *fault)
{
    struct tri_buf chat;
    tri_buf_init(&chat, TRI_CHAT_MAX_BYTES);
    bool ok = tri__params_read(&x->p, x->api, x->endpoint->dialect, x->body, fault) &&
              x->endpoint->turn(&chat, x->body, fault) &&
              tri__exchange_render(x, chat.data, chat.len_bytes, fault);
    tri_buf_fini(&chat);
    return ok;
}

/*
 * After the shared head (what stands before the first user message), before the newest message, and
 * after it (a reply is sampled anew).
 */
void tri__exchange_borders(const struct tri__exchange *x, struct tri_job_request *r)
{
    size_t count = 0, ends = 0, head_ends = 0;
    const struct tri_segment *s = tri_prompt_segments(x->prompt, &count);
    bool user = false, in_head = false;
    for (size_t i = 0; i < count; i++) {
        in_head |= s[i].is_marker && segment_is(&s[i], "<|open|>");
        if (s[i].is_marker && segment_is(&s[i], "<|sep|>"))
            in_head = false;
        user |= in_head && !s[i].is_marker && segment_is(&s[i], "user");
        if (s[i].is_marker && segment_is(&s[i], "<|end_of_msg|>")) {
            ends++;
            head_ends += !user;
        }
    }
    size_t seen = 0;
    for (size_t i = 0; i < x->ids.count_tokens; i++) {
        if (x->ids.data[i] != x->api->chat.end_of_msg)
            continue;
        seen++;
        if ((seen == head_ends || seen + 1 == ends || seen == ends) &&
            r->n_borders < TRI_SCHED_MAX_BORDERS)
            r->borders[r->n_borders++] = (int64_t)i + 1;
        if (seen == head_ends)
            r->head_tokens = (int64_t)i + 1;
    }
}
