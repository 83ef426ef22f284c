/*
 * Ids of replies as they were sampled. Text has many tokenisations, and a sampled one is often not
 * the one that encoding the text gives: without this the next turn of a chat would differ from the
 * kept state somewhere inside the reply, and everything after it would be computed again. So
 * replies whose ids differ from their rendering are remembered, and put back where that rendering
 * appears.
 */
#include "api/api_priv.h"

#include <pthread.h>
#include <string.h>
#include "base/hash.h"

enum { MAX_TURNS = 1024, MAX_TURN_TOKENS = 8 << 20 }; /* replies; ids of all of them together */

struct turn {
    struct tri_ids rendered, sampled;
    struct tri_salt salt;
    uint64_t hash, used;
};

struct tri__turns {
    pthread_mutex_t lock; /* of all that follows */
    struct turn turn[MAX_TURNS];
    size_t n, tokens;
    uint64_t clock;
};

struct tri__turns *tri__turns_open(void)
{
    struct tri__turns *turns = tri_calloc(1, sizeof *turns);
    if (turns)
        pthread_mutex_init(&turns->lock, NULL);
    return turns;
}

static void drop(struct tri__turns *t, size_t i)
{
    t->tokens -= t->turn[i].rendered.count_tokens + t->turn[i].sampled.count_tokens;
    tri_ids_fini(&t->turn[i].rendered);
    tri_ids_fini(&t->turn[i].sampled);
    t->turn[i] = t->turn[--t->n];
}

void tri__turns_close(struct tri__turns *turns)
{
    if (!turns)
        return;
    while (turns->n)
        drop(turns, turns->n - 1);
    pthread_mutex_destroy(&turns->lock);
    tri_free(turns);
}

static uint64_t hash_of(const int32_t *ids, size_t n)
{
    return tri_hash64(0, ids, n * sizeof *ids);
}

static struct turn *find(struct tri__turns *t, const int32_t *ids, size_t n, struct tri_salt salt)
{
    uint64_t hash = t->n ? hash_of(ids, n) : 0;
    for (size_t i = 0; i < t->n; i++) {
        struct turn *turn = &t->turn[i];
        if (turn->hash == hash && turn->salt.a == salt.a && turn->salt.b == salt.b &&
            turn->rendered.count_tokens == n && !memcmp(turn->rendered.data, ids, n * sizeof *ids))
            return turn;
    }
    return NULL;
}

/* The ids from `start` on are one message, rendered: as it was sampled, if that is known. */
static enum tri_status put_back(struct tri__turns *t, struct tri_ids *ids, size_t start,
                                struct tri_salt salt)
{
    enum tri_status st = TRI_OK;
    pthread_mutex_lock(&t->lock);
    struct turn *turn = find(t, ids->data + start, ids->count_tokens - start, salt);
    if (turn) {
        turn->used = ++t->clock;
        ids->count_tokens = start;
        for (size_t i = 0; i < turn->sampled.count_tokens && st == TRI_OK; i++)
            st = tri_ids_add(ids, turn->sampled.data[i]);
    }
    pthread_mutex_unlock(&t->lock);
    return st;
}

enum tri_status tri__turns_encode(struct tri__turns *turns, const struct tri__exchange *x,
                                  struct tri_ids *ids, struct tri_error *err)
{
    size_t count = 0, start = 0;
    const struct tri_segment *s = tri_prompt_segments(x->prompt, &count);
    enum tri_status st = TRI_OK;
    for (size_t i = 0; i < count && st == TRI_OK; i++) {
        st = tri_encode(x->api->options.tok, s[i].text, s[i].bytes,
                        s[i].is_marker ? TRI_MARKUP : TRI_PLAIN, ids, err);
        if (st != TRI_OK || !s[i].is_marker || ids->count_tokens == 0 ||
            ids->data[ids->count_tokens - 1] != x->api->chat.end_of_msg)
            continue;
        if (put_back(turns, ids, start, x->p.salt) != TRI_OK)
            st = tri_fail(err, TRI_NOMEM, "no memory for the prompt");
        start = ids->count_tokens;
    }
    return st;
}

/* The reply as the next request will have it, rendered alone. */
static bool render(const struct tri__choice *c, struct tri_ids *ids)
{
    struct tri_chat_settings settings = c->x->p.chat;
    struct tri_prompt *prompt = NULL;
    struct tri_buf json;
    settings.effort = TRI_EFFORT_NONE;
    settings.tool_choice = TRI_TOOLS_AUTO;
    settings.add_generation_prompt = false;
    tri_buf_init(&json, TRI_CHAT_MAX_BYTES);
    tri_buf_puts(&json, "{\"messages\":[");
    tri_turn_message(&json, &c->turn, "call_");
    tri_buf_puts(&json, "]}");
    bool ok =
        json.failed == TRI_OK &&
        tri_chat_render(&prompt, "reply", json.data, json.len_bytes, &settings, NULL) == TRI_OK &&
        tri_prompt_encode(prompt, c->x->api->options.tok, ids, NULL) == TRI_OK;
    tri_prompt_close(prompt);
    tri_buf_fini(&json);
    return ok;
}

/* What the prompt opened, and what was sampled after it. */
static bool gather(const struct tri__choice *c, struct tri_ids *out)
{
    const struct tri_ids *ids = &c->x->ids;
    size_t start = ids->count_tokens;
    bool ok = true;
    while (start > 0 && ids->data[start - 1] != c->x->api->chat.end_of_msg)
        start--;
    for (size_t i = start; i < ids->count_tokens && ok; i++)
        ok = tri_ids_add(out, ids->data[i]) == TRI_OK;
    for (size_t i = 0; i < c->sampled.count_tokens && ok; i++)
        ok = tri_ids_add(out, c->sampled.data[i]) == TRI_OK;
    return ok;
}

static void make_room(struct tri__turns *t, size_t tokens)
{
    while (t->n && (t->n == MAX_TURNS || t->tokens + tokens > MAX_TURN_TOKENS)) {
        size_t old = 0;
        for (size_t i = 1; i < t->n; i++)
            if (t->turn[i].used < t->turn[old].used)
                old = i;
        drop(t, old);
    }
}

/* Takes the turn's ids over unless they are known or too many. */
static bool add(struct tri__turns *turns, struct turn *turn)
{
    size_t n = turn->rendered.count_tokens, tokens = n + turn->sampled.count_tokens;
    bool same = n == turn->sampled.count_tokens &&
                !memcmp(turn->rendered.data, turn->sampled.data, n * sizeof(int32_t));
    if (same || tokens > MAX_TURN_TOKENS / 4)
        return false;
    pthread_mutex_lock(&turns->lock);
    bool fresh = !find(turns, turn->rendered.data, n, turn->salt);
    if (fresh) {
        make_room(turns, tokens);
        turn->hash = hash_of(turn->rendered.data, n);
        turn->used = ++turns->clock;
        turns->tokens += tokens;
        turns->turn[turns->n++] = *turn;
    }
    pthread_mutex_unlock(&turns->lock);
    return fresh;
}

void tri__turns_keep(struct tri__turns *turns, const struct tri__choice *c)
{
    struct turn turn = { .salt = c->x->p.salt };
    size_t n = c->sampled.count_tokens;
    if (n > 0 && c->sampled.data[n - 1] == c->x->api->chat.end_of_msg &&
        render(c, &turn.rendered) && gather(c, &turn.sampled) && add(turns, &turn))
        return;
    tri_ids_fini(&turn.rendered);
    tri_ids_fini(&turn.sampled);
}
