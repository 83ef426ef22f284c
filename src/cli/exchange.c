/* Prompt, answer, and what of it the conversation keeps; see exchange.h. */
#include "cli/exchange.h"

#include <stdio.h>
#include <string.h>

/* Cut between an open or close marker and its sep? Then nothing can simply be appended. */
static bool cut_in_a_tag(const struct tri_ids *ids, const struct tri_chat_ids *chat)
{
    for (size_t i = ids->count_tokens; i > 0; i--) {
        int32_t id = ids->data[i - 1];
        if (id == chat->sep)
            return false;
        if (id == chat->open || id == chat->close)
            return true;
    }
    return false;
}

/* The reply's whole message in ids: opened by the prompt, sampled, closed if it was cut. */
static enum tri_status whole_message(struct tri_ids *out, const struct tri_ids *prompt, size_t stub,
                                     const struct tri_reply *reply, const struct tri_talk *talk,
                                     struct tri_error *err)
{
    const struct tri_ids *sampled = &reply->sampled;
    int32_t last = sampled->data[sampled->count_tokens - 1];
    bool ended = last == talk->chat.end_of_msg;
    bool odd_end = !ended && (reply->ended || last == talk->chat.eos);
    if (odd_end ||
        (!ended && (reply->channel == TRI_CHANNEL_NONE || cut_in_a_tag(sampled, &talk->chat))))
        return TRI_OK; /* no ids: it will be rendered from its text */
    enum tri_status st = TRI_OK;
    for (size_t i = stub; i < prompt->count_tokens && st == TRI_OK; i++)
        st = tri_ids_add(out, prompt->data[i]);
    for (size_t i = 0; i < sampled->count_tokens && st == TRI_OK; i++)
        st = tri_ids_add(out, sampled->data[i]);
    if (st != TRI_OK)
        return tri_fail(err, st, "no memory for the answer");
    return ended ? TRI_OK : tri_close_ids(talk->tok, reply->channel, out, err);
}

static enum tri_status keep(struct tri_conversation *c, const struct tri_ids *prompt, size_t stub,
                            const struct tri_reply *reply, const struct tri_talk *talk,
                            struct tri_error *err)
{
    struct tri_ids message = { 0 };
    char prefix[32];
    snprintf(prefix, sizeof prefix, "call_%zu_", c->n);
    enum tri_status st = whole_message(&message, prompt, stub, reply, talk, err);
    if (st == TRI_OK)
        st = tri_conversation_reply(c, &reply->turn, &message, prefix, err);
    tri_ids_fini(&message);
    return st;
}

enum tri_status tri_exchange(struct tri_conversation *c, struct tri_talk *talk,
                             const struct tri_run_options *options, struct tri_screen *screen,
                             struct tri_reply *reply, struct tri_error *err)
{
    struct tri_ids prompt = { 0 };
    struct tri_prompt *rendered = NULL;
    size_t stub = 0;
    *reply = (struct tri_reply){ .finish = "error" };
    enum tri_status st = tri_conversation_prompt(c, talk->tok, &prompt, &stub, &rendered, err);
    if (st == TRI_OK) {
        struct tri_reply_request request = { .prompt = &prompt,
                                             .rendered = rendered,
                                             .tools = c->tools != NULL };
        st = tri_reply_make(reply, talk, options, &request, screen, err);
    }
    if (st == TRI_OK && reply->sampled.count_tokens)
        st = keep(c, &prompt, stub, reply, talk, err);
    tri_prompt_close(rendered);
    tri_ids_fini(&prompt);
    return st;
}
