/* Drawing from a grammar, and trying texts on it; see schema_draw.h. */
#include "cli/schema_draw.h"

#include <string.h>
#include "base/mem.h"

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13; /* Marsaglia's xorshift64 */
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static bool is_allowed(const uint64_t *mask, int32_t id)
{
    return mask[id / 64] >> id % 64 & 1;
}

/* The ids of single bytes: in any vocabulary each byte is a token. */
static void find_bytes(const struct tri_tokenizer *tok, int32_t out[256])
{
    int32_t ranks = tri_tokenizer_ranks(tok);
    for (int32_t id = 0; id < ranks; id++) {
        size_t bytes = 0;
        const char *text = tri_token_bytes(tok, id, &bytes);
        if (bytes == 1)
            out[(unsigned char)*text] = id;
    }
}

/* The n-th allowed id, n taken modulo their number; -1: none. */
static int32_t pick_any(const uint64_t *mask, size_t words, uint64_t n)
{
    uint64_t count = 0;
    for (size_t w = 0; w < words; w++)
        count += (uint64_t)__builtin_popcountll(mask[w]);
    if (!count)
        return -1;
    n %= count;
    for (size_t w = 0; w < words; w++) {
        uint64_t bits = mask[w], here = (uint64_t)__builtin_popcountll(bits);
        if (n >= here) {
            n -= here;
            continue;
        }
        while (n--)
            bits &= bits - 1;
        return (int32_t)(w * 64 + (size_t)__builtin_ctzll(bits));
    }
    return -1;
}

static int32_t pick_byte(const uint64_t *mask, const int32_t bytes[256], uint64_t n)
{
    for (int i = 0; i < 256; i++)
        if (is_allowed(mask, bytes[(n + (uint64_t)i * 7) % 256]))
            return bytes[(n + (uint64_t)i * 7) % 256];
    return -1;
}

/* What closes something, if that is allowed: a marker, or one of `"}]`. */
static int32_t pick_closing(const struct tri_schema_draw *how, const uint64_t *mask,
                            const int32_t bytes[256])
{
    static const char *const markers[] = { "<|end_of_msg|>", "<|close|>", "<|sep|>" };
    for (int i = 0; i < 3; i++) {
        int32_t id = tri_token_named(how->tok, markers[i]);
        if (id >= 0 && is_allowed(mask, id))
            return id;
    }
    for (const char *c = "\"}]"; *c; c++)
        if (is_allowed(mask, bytes[(unsigned char)*c]))
            return bytes[(unsigned char)*c];
    return -1;
}

static int32_t choose(const struct tri_schema_draw *how, const uint64_t *mask, size_t words,
                      const int32_t bytes[256], uint64_t *state, bool late)
{
    uint64_t n = next_random(state) >> 11, kind = next_random(state) >> 40;
    int32_t id = -1;
    if (late ? kind % 4 : kind % 8 == 0)
        id = pick_closing(how, mask, bytes);
    if (id < 0 && (late || kind % 8 < 4))
        id = pick_byte(mask, bytes, n);
    return id >= 0 ? id : pick_any(mask, words, n);
}

enum tri_status tri_schema_draw(const struct tri_schema_draw *how, struct tri_ids *ids,
                                struct tri_error *err)
{
    struct tri_matcher *m = NULL;
    uint64_t state = how->seed * 0x9e3779b97f4a7c15u + 1;
    int32_t bytes[256] = { 0 };
    find_bytes(how->tok, bytes);
    enum tri_status st = tri_matcher_open(&m, how->grammar, err);
    for (int64_t n = 0; st == TRI_OK && !tri_matcher_done(m); n++) {
        const uint64_t *mask = tri_matcher_allowed(m, err);
        if (!mask) {
            st = TRI_LIMIT;
            break;
        }
        int32_t id = choose(how, mask, tri_matcher_words(m), bytes, &state, n > how->max_tokens);
        if (id < 0 || !tri_matcher_take(m, id))
            st = tri_fail(err, TRI_FORMAT, "token %lld: the mask allows %d, the grammar does not",
                          (long long)n, (int)id);
        else if (tri_ids_add(ids, id))
            st = tri_fail(err, TRI_NOMEM, "no memory");
        else if (n > how->max_tokens + 20000)
            st = tri_fail(err, TRI_LIMIT, "a reply that does not end");
    }
    tri_matcher_close(m);
    return st;
}

/* Does a matcher take all ids, and may the reply end then? */
static enum tri_status take_all(const struct tri_schema_draw *how, const struct tri_ids *ids,
                                bool *fits, struct tri_error *err)
{
    struct tri_matcher *m = NULL;
    enum tri_status st = tri_matcher_open(&m, how->grammar, err);
    *fits = st == TRI_OK;
    for (size_t i = 0; st == TRI_OK && *fits && i <= ids->count_tokens; i++) {
        const uint64_t *mask = tri_matcher_allowed(m, err);
        int32_t end = tri_tokenizer_ranks(how->tok);
        if (!mask) {
            st = TRI_LIMIT;
        } else if (i == ids->count_tokens) {
            while (end < tri_tokenizer_tokens(how->tok) && !is_allowed(mask, end))
                end++;
            *fits = end < tri_tokenizer_tokens(how->tok);
        } else {
            bool allowed = is_allowed(mask, ids->data[i]);
            *fits = tri_matcher_take(m, ids->data[i]);
            if (*fits != allowed)
                st = tri_fail(err, TRI_FORMAT, "token %zu (%d): mask and grammar disagree", i,
                              (int)ids->data[i]);
        }
    }
    tri_matcher_close(m);
    return st;
}

enum tri_status tri_schema_try(const struct tri_schema_draw *how, const char *text, size_t bytes,
                               bool *fits, struct tri_error *err)
{
    struct tri_ids cut = { 0 }, single = { 0 };
    int32_t byte[256] = { 0 };
    bool by_cut = false, by_byte = false;
    find_bytes(how->tok, byte);
    enum tri_status st = tri_encode(how->tok, text, bytes, TRI_PLAIN, &cut, err);
    for (size_t i = 0; st == TRI_OK && i < bytes; i++)
        if (tri_ids_add(&single, byte[(unsigned char)text[i]]))
            st = tri_fail(err, TRI_NOMEM, "no memory");
    if (st == TRI_OK)
        st = take_all(how, &cut, &by_cut, err);
    if (st == TRI_OK)
        st = take_all(how, &single, &by_byte, err);
    if (st == TRI_OK && by_cut != by_byte)
        st = tri_fail(err, TRI_FORMAT, "the answer depends on how the text is cut into tokens");
    tri_ids_fini(&cut);
    tri_ids_fini(&single);
    if (st == TRI_OK)
        *fits = by_cut;
    return st;
}
