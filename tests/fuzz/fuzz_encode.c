/*
 * Any bytes as text, plain and markup: refused if they are not UTF-8, else ids that give exactly
 * the text back, whether it streams by id or not.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "base/buf.h"
#include "text/text.h"

static struct tri_tokenizer *tok;

static void round_trip(const char *text, size_t bytes, enum tri_encode_mode mode)
{
    struct tri_ids ids = { 0 };
    struct tri_error err = { 0 };
    struct tri_buf out;
    struct tri_detok detok;
    enum tri_status st = tri_encode(tok, text, bytes, mode, &ids, &err);
    TRI_ASSERT((st == TRI_OK) == (tri_utf8_valid(text, bytes) == bytes));
    TRI_ASSERT(ids.count_tokens <= bytes);
    tri_buf_init(&out, bytes + 16);
    tri_detok_init(&detok, tok, false);
    for (size_t i = 0; i < ids.count_tokens; i++) {
        TRI_ASSERT(!tri_detok_push(&detok, ids.data[i], &out, NULL));
        TRI_ASSERT(mode == TRI_MARKUP || !tri_token_is_added(tok, ids.data[i]));
    }
    TRI_ASSERT(!tri_detok_finish(&detok, &out));
    if (!st)
        TRI_ASSERT(out.len_bytes == bytes && (!bytes || !memcmp(out.data, text, bytes)));
    tri_buf_fini(&out);
    tri_ids_fini(&ids);
}

/* The hold must turn any bytes into valid text, however they are cut. */
static void repair(const char *data, size_t bytes)
{
    struct tri_buf whole, cut;
    struct tri_utf8_hold a = { 0 }, b = { 0 };
    tri_buf_init(&whole, bytes * 3 + 3);
    tri_buf_init(&cut, bytes * 3 + 3);
    tri_utf8_push(&a, data, bytes, &whole);
    tri_utf8_finish(&a, &whole);
    for (size_t i = 0; i < bytes; i++)
        tri_utf8_push(&b, data + i, 1, &cut);
    tri_utf8_finish(&b, &cut);
    TRI_ASSERT(!whole.failed && !cut.failed && whole.len_bytes == cut.len_bytes);
    if (whole.len_bytes) {
        TRI_ASSERT(!memcmp(whole.data, cut.data, whole.len_bytes));
        TRI_ASSERT(tri_utf8_valid(whole.data, whole.len_bytes) == whole.len_bytes);
    }
    tri_buf_fini(&whole);
    tri_buf_fini(&cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (!tok)
        TRI_ASSERT(!tri_tokenizer_open(&tok, TRI_TEST_SOURCE "/tests/data/text/small", NULL));
    round_trip((const char *)data, bytes, TRI_PLAIN);
    round_trip((const char *)data, bytes, TRI_MARKUP);
    repair((const char *)data, bytes);
    return 0;
}
