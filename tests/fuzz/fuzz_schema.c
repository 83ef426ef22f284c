/*
 * Any JSON as a schema (first byte 0-3 modulo 4), a choice, a pattern or a list of tools. What
 * compiles must lead somewhere: masks that are not empty, every allowed token taken, others not,
 * until the end or 300 tokens.
 */
#include <stdint.h>
#include <string.h>
#include "base/json.h"
#include "base/mem.h"
#include "grammar/grammar.h"

static struct tri_tokenizer *tok;
static struct tri_grammar_vocab *vocab;

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static bool is_allowed(const uint64_t *mask, int32_t id)
{
    return mask[id / 64] >> id % 64 & 1;
}

static void follow(struct tri_grammar *grammar, uint64_t state)
{
    struct tri_matcher *m = NULL;
    int32_t tokens = tri_tokenizer_tokens(tok);
    TRI_ASSERT(!tri_matcher_open(&m, grammar, NULL));
    for (int n = 0; n < 300 && !tri_matcher_done(m); n++) {
        const uint64_t *mask = tri_matcher_allowed(m, NULL);
        if (!mask) /* too ambiguous: said, not suffered */
            break;
        int32_t id = (int32_t)(next_random(&state) % (uint64_t)tokens), tries = 0;
        for (; !is_allowed(mask, id) && tries < tokens; tries++)
            id = (id + 1) % tokens;
        TRI_ASSERT(tries < tokens);
        int32_t other = (int32_t)(next_random(&state) % (uint64_t)tokens);
        if (!is_allowed(mask, other))
            TRI_ASSERT(!tri_matcher_take(m, other));
        TRI_ASSERT(tri_matcher_take(m, id));
    }
    tri_matcher_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tri_grammar *grammar = NULL;
    struct tri_error err = { 0 };
    json_t *json = NULL;
    if (!tok) {
        TRI_ASSERT(!tri_tokenizer_open(&tok, TRI_TEST_SOURCE "/tests/data/text/small", NULL));
        TRI_ASSERT(!tri_grammar_vocab_open(&vocab, tok, NULL, NULL));
    }
    if (bytes < 2 ||
        tri_json_parse(&json, "schema", (const char *)data + 1, bytes - 1, 1 << 20, NULL))
        return 0;
    int32_t end = tri_token_named(tok, "<|end_of_msg|>");
    struct tri_grammar_request r = { .schema = json, .end_ids = &end, .n_end_ids = 1 };
    if (data[0] % 4 == 3) {
        r.start = TRI_CHANNEL_RESPONSE;
        r.calls = TRI_GRAMMAR_MUST_CALL;
        r.tools = json;
        r.one_call = data[0] & 64;
    } else {
        r.kind = (enum tri_grammar_kind)(TRI_GRAMMAR_SCHEMA + data[0] % 4);
    }
    enum tri_status st = tri_grammar_compile(&grammar, vocab, &r, &err);
    TRI_ASSERT(st == TRI_OK || err.text[0]);
    if (st == TRI_OK)
        follow(grammar, 88172645463325252u + data[0]);
    tri_grammar_drop(grammar);
    json_decref(json);
    return 0;
}
