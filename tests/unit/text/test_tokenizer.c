/*
 * The tokenizer with our own small vocabulary: strict loading, special tokens, limits, and text
 * that streams. That ids are right is shown by tests/cli/test_tokenize.py and test_token_vectors.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <cmocka.h>

#include "base/buf.h"
#include "small_vocab.h"

static struct tri_tokenizer *tok;

/* ---- loading ---- */

static void put_base64(struct tri_buf *out, const char *data, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < bytes; i += 3) {
        uint32_t v = 0;
        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (i + k < bytes ? (unsigned char)data[i + k] : 0u);
        for (size_t k = 0; k < 4; k++)
            tri_buf_putc(out, k > bytes - i ? '=' : digits[v >> (18 - 6 * k) & 63]);
    }
}

/* The 256 single bytes as ranks 0..255. */
static void put_bytes(struct tri_buf *out)
{
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        put_base64(out, &c, 1);
        tri_buf_printf(out, " %d\n", b);
    }
}

static enum tri_status load(const struct tri_buf *ranks, const char *config, struct tri_error *err)
{
    struct tri_tokenizer *t = NULL;
    struct tri_vocab_text text = { "v", ranks->data, config, ranks->len_bytes,
                                   config ? strlen(config) : 0 };
    *err = (struct tri_error){ 0 };
    enum tri_status st = tri_tokenizer_read(&t, &text, err);
    assert_true(!st == (t != NULL));
    tri_tokenizer_close(t);
    return st;
}

/* The 256 bytes and then `more`, with this special-token table. */
static void expect_load(const char *more, const char *config, enum tri_status want,
                        const char *says)
{
    struct tri_buf ranks;
    struct tri_error err;
    tri_buf_init(&ranks, 1 << 20);
    put_bytes(&ranks);
    tri_buf_puts(&ranks, more);
    assert_int_equal(load(&ranks, config, &err), want);
    if (says && !strstr(err.text, says))
        fail_msg("'%s' does not say '%s'", err.text, says);
    assert_null(strchr(err.text, '\n'));
    tri_buf_fini(&ranks);
}

static void damaged_vocabularies(void **state)
{
    (void)state;
    expect_load("", NULL, TRI_OK, NULL);
    expect_load("YWI= 256\n", NULL, TRI_OK, NULL);
    expect_load("YWI= 256", NULL, TRI_OK, NULL); /* the last line may lack its newline */
    expect_load("YWI= 257\n", NULL, TRI_FORMAT, "v:257: rank 257, but 257 lines");
    expect_load("YWI= 255\n", NULL, TRI_FORMAT, "v:257: rank 255 stands twice");
    expect_load("YQ== 256\n", NULL, TRI_FORMAT, "v:257: rank 256 has the same bytes as rank 97");
    expect_load("\n", NULL, TRI_FORMAT, "v:257: not a line");
    expect_load("YWI=\n", NULL, TRI_FORMAT, "v:257: not a line");
    expect_load("YWI= \n", NULL, TRI_FORMAT, "v:257: not a line");
    expect_load("YWI= 2x6\n", NULL, TRI_FORMAT, "v:257: not a line");
    expect_load("YWI= -1\n", NULL, TRI_FORMAT, "v:257: not a line");
    expect_load("YWI= 256\r\n", NULL, TRI_FORMAT, "v:257: not a line");
    expect_load("YWI= 99999999999999999999\n", NULL, TRI_FORMAT, "v:257: not a line");
    expect_load(" 256\n", NULL, TRI_FORMAT, "v:257: the token is not base64");
    expect_load("YWI 256\n", NULL, TRI_FORMAT, "v:257: the token is not base64");
    expect_load("YWJ= 256\n", NULL, TRI_FORMAT, "v:257: the token is not base64");
    expect_load("Y=I= 256\n", NULL, TRI_FORMAT, "v:257: the token is not base64");
    expect_load("Y*I= 256\n", NULL, TRI_FORMAT, "v:257: the token is not base64");
    struct tri_buf one;
    struct tri_error err;
    tri_buf_init(&one, 64);
    tri_buf_puts(&one, "YQ== 0\n");
    assert_int_equal(load(&one, NULL, &err), TRI_FORMAT);
    assert_non_null(strstr(err.text, "the single byte 0x00 has no rank"));
    tri_buf_clear(&one);
    one.len_bytes = 0;
    assert_int_equal(load(&one, NULL, &err), TRI_FORMAT);
    tri_buf_fini(&one);
}

static void damaged_special_tokens(void **state)
{
    (void)state;
#define TABLE(entries) "{\"added_tokens_decoder\": {" entries "}}"
    expect_load("", "{}", TRI_OK, NULL);
    expect_load("", TABLE("\"256\": {\"content\": \"<x>\"}"), TRI_OK, NULL);
    expect_load("", "[]", TRI_FORMAT, "must be an object");
    expect_load("", "{", TRI_FORMAT, "not valid JSON");
    expect_load("", TABLE("\"x\": {\"content\": \"<x>\"}"), TRI_FORMAT, "added_tokens_decoder.x");
    expect_load("", TABLE("\"\": {\"content\": \"<x>\"}"), TRI_FORMAT, "not an id");
    expect_load("", TABLE("\"256\": \"<x>\""), TRI_FORMAT, "not an id with a \"content\"");
    expect_load("", TABLE("\"255\": {\"content\": \"<x>\"}"), TRI_FORMAT, "are 256 to");
    expect_load("", TABLE("\"1048575\": {\"content\": \"<x>\"}"), TRI_OK, NULL);
    expect_load("", TABLE("\"1048576\": {\"content\": \"<x>\"}"), TRI_LIMIT, "1048575");
    expect_load("", TABLE("\"256\": {\"content\": \"\"}"), TRI_FORMAT, "content of 0 bytes");
    expect_load("", TABLE("\"256\": {\"content\": \"a\"}, \"0256\": {\"content\": \"b\"}"),
                TRI_FORMAT, "stands twice");
    expect_load("", TABLE("\"256\": {\"content\": \"a\"}, \"257\": {\"content\": \"a\"}"),
                TRI_FORMAT, "256 and 257 have the same name");
    expect_load("", TABLE("\"257\": {\"content\": \"<|reserved_token_256|>\"}"), TRI_FORMAT,
                "have the same name");
}

static void token_length_limit(void **state)
{
    (void)state;
    for (int over = 0; over < 2; over++) {
        struct tri_buf ranks;
        char data[TRI_TOKEN_MAX_BYTES + 1];
        struct tri_error err;
        tri_buf_init(&ranks, 1 << 20);
        put_bytes(&ranks);
        memset(data, 'x', sizeof data);
        put_base64(&ranks, data, TRI_TOKEN_MAX_BYTES + (size_t)over);
        tri_buf_puts(&ranks, " 256\n");
        assert_int_equal(load(&ranks, NULL, &err), over ? TRI_LIMIT : TRI_OK);
        char config[TRI_TOKEN_MAX_BYTES + 100];
        snprintf(config, sizeof config, TABLE("\"257\": {\"content\": \"%.*s\"}"),
                 TRI_TOKEN_MAX_BYTES + over, data);
        tri_buf_clear(&ranks);
        put_bytes(&ranks);
        assert_int_equal(load(&ranks, config, &err), over ? TRI_LIMIT : TRI_OK);
        tri_buf_fini(&ranks);
    }
}

static void vocabulary_size_limits(void **state)
{
    (void)state;
    struct tri_tokenizer *t = NULL;
    struct tri_vocab_text text = { "v", "", NULL, (size_t)TRI_VOCAB_MAX_BYTES + 1, 0 };
    assert_int_equal(tri_tokenizer_read(&t, &text, NULL), TRI_LIMIT);
    /* TRI_VOCAB_MAX_TOKENS ranks: bytes, then three-byte tokens over a wide alphabet. */
    struct tri_buf ranks;
    struct tri_error err;
    tri_buf_init(&ranks, TRI_VOCAB_MAX_BYTES);
    put_bytes(&ranks);
    for (int i = 256; i < TRI_VOCAB_MAX_TOKENS; i++) {
        char data[3] = { (char)(i >> 16), (char)(i >> 8), (char)i };
        put_base64(&ranks, data, 3);
        tri_buf_printf(&ranks, " %d\n", i);
    }
    assert_int_equal(load(&ranks, NULL, &err), TRI_OK);
    tri_buf_printf(&ranks, "%s %d\n", "////", TRI_VOCAB_MAX_TOKENS);
    assert_int_equal(load(&ranks, NULL, &err), TRI_LIMIT);
    assert_non_null(strstr(err.text, "1048577 lines"));
    tri_buf_fini(&ranks);
}

/* ---- names ---- */

static void names_and_reserved_slots(void **state)
{
    (void)state;
    size_t bytes = 0;
    assert_int_equal(tri_tokenizer_ranks(tok), SMALL_RANKS);
    assert_int_equal(tri_tokenizer_tokens(tok), SMALL_TOKENS);
    assert_int_equal(tri_token_named(tok, "[BOS]"), 700);
    assert_int_equal(tri_token_named(tok, "<|sep|>"), 705);
    assert_int_equal(tri_token_named(tok, "<|reserved_token_706|>"), 706);
    assert_int_equal(tri_token_named(tok, "<|reserved_token_707|>"), -1);
    assert_int_equal(tri_token_named(tok, "he"), -1);
    assert_memory_equal(tri_token_bytes(tok, 705, &bytes), "<|sep|>", 7);
    assert_int_equal(bytes, 7);
    assert_true(tri_token_is_added(tok, 700) && tri_token_is_added(tok, 713));
    assert_false(tri_token_is_added(tok, 699) || tri_token_is_added(tok, 714));
    assert_null(tri_token_bytes(tok, 714, &bytes));
    assert_null(tri_token_bytes(tok, -1, &bytes));
}

static void not_the_chat_format(void **state)
{
    (void)state;
    struct tri_chat_ids ids;
    struct tri_error err = { 0 };
    assert_int_equal(tri_chat_ids_find(&ids, tok, &err), TRI_OK);
    assert_int_equal(ids.end_of_msg, 702);
    assert_int_equal(ids.media_pad, 711);
    struct tri_buf ranks;
    struct tri_tokenizer *other = NULL;
    tri_buf_init(&ranks, 1 << 16);
    put_bytes(&ranks);
    /* The names of an older model of the family. */
    static const char config[] = TABLE("\"256\": {\"content\": \"<|im_end|>\"}, "
                                       "\"257\": {\"content\": \"<|open|>\"}");
    struct tri_vocab_text text = { "v", ranks.data, config, ranks.len_bytes, sizeof config - 1 };
    assert_int_equal(tri_tokenizer_read(&other, &text, NULL), TRI_OK);
    assert_int_equal(tri_chat_ids_find(&ids, other, &err), TRI_UNSUPPORTED);
    assert_non_null(strstr(err.text, "<|close|>"));
    tri_tokenizer_close(other);
    tri_buf_fini(&ranks);
}

static void longest_name_wins(void **state)
{
    (void)state;
    struct tri_buf ranks;
    struct tri_tokenizer *t = NULL;
    tri_buf_init(&ranks, 1 << 16);
    put_bytes(&ranks);
    static const char config[] = TABLE("\"256\": {\"content\": \"<a>\"}, \"257\": {\"content\": "
                                       "\"<a>b\"}, \"258\": {\"content\": \"\xC3\xA9\"}");
    struct tri_vocab_text text = { "v", ranks.data, config, ranks.len_bytes, sizeof config - 1 };
    assert_int_equal(tri_tokenizer_read(&t, &text, NULL), TRI_OK);
    struct tri_ids ids = small_ids(t, "<a>b<a><<a>\xC3\xA9<a");
    static const int32_t want[] = { 257, 256, '<', 256, 258, '<', 'a' };
    assert_int_equal(ids.count_tokens, sizeof want / sizeof *want);
    assert_memory_equal(ids.data, want, sizeof want);
    tri_ids_fini(&ids);
    tri_tokenizer_close(t);
    tri_buf_fini(&ranks);
}

/* ---- text that is refused, text that streams ---- */

static void invalid_utf8_is_refused_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t bytes, at;
    } bad[] = {
        { "\x80", 1, 0 },           { "a\xC3", 2, 1 },        { "\xC0\xAF", 2, 0 },
        { "ab\xE0\x80\x80", 5, 2 }, { "\xED\xA0\x80", 3, 0 }, { "\xF4\x90\x80\x80", 4, 0 },
        { "\xF5", 1, 0 },           { "12345678\xFF", 9, 8 }, { "\xE2\x82\xAC\xE2\x82", 5, 3 }
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tri_ids ids = { 0 };
        struct tri_error err = { 0 };
        char want[40];
        assert_int_equal(tri_ids_add(&ids, 7), TRI_OK);
        assert_int_equal(tri_encode(tok, bad[i].text, bad[i].bytes, TRI_PLAIN, &ids, &err),
                         TRI_FORMAT);
        snprintf(want, sizeof want, "at byte %zu (", bad[i].at);
        assert_non_null(strstr(err.text, want));
        assert_int_equal(ids.count_tokens, 1); /* what was there stays */
        tri_ids_fini(&ids);
    }
    struct tri_ids none = { 0 };
    assert_int_equal(tri_encode(tok, "", (size_t)TRI_ENCODE_MAX_BYTES + 1, TRI_PLAIN, &none, NULL),
                     TRI_LIMIT);
}

/* Unicode 15, section 3.9, table 3-8 and its neighbours: one U+FFFD per maximal subpart. */
static void broken_characters_become_replacements(void **state)
{
    (void)state;
#define R "\xEF\xBF\xBD"
    static const struct {
        const char *in, *out;
    } cases[] = { { "a\xF1\x80\x80\xE1\x80\xC2"
                    "b\x80"
                    "c\x80\xBF"
                    "d",
                    "a" R R R "b" R "c" R R "d" },
                  { "\xE2\x82\xAC", "\xE2\x82\xAC" },
                  { "\xE2\x82", R },
                  { "\xF0\x9F\x9A", R },
                  { "\xC0\xAF", R R },
                  { "\xED\xA0\x80", R R R },
                  { "\xE0\x80\x80", R R R },
                  { "\xF4\x90\x80\x80", R R R R },
                  { "\xF0\x80\x80\x80", R R R R },
                  { "\xE2\xE2\x82\xAC", R "\xE2\x82\xAC" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t step = 1; step < 5; step++) {
            struct tri_utf8_hold hold = { 0 };
            struct tri_buf out;
            size_t bytes = strlen(cases[i].in);
            tri_buf_init(&out, 100);
            for (size_t at = 0; at < bytes; at += step) {
                size_t count = bytes - at < step ? bytes - at : step;
                assert_int_equal(tri_utf8_push(&hold, cases[i].in + at, count, &out), TRI_OK);
                assert_int_equal(tri_utf8_valid(out.data ? out.data : "", out.len_bytes),
                                 out.len_bytes);
            }
            assert_int_equal(tri_utf8_finish(&hold, &out), TRI_OK);
            assert_string_equal(out.data, cases[i].out);
            tri_buf_fini(&out);
        }
}

static void special_tokens_shown_or_skipped(void **state)
{
    (void)state;
    for (int skip = 0; skip < 2; skip++) {
        struct tri_detok detok;
        struct tri_buf out;
        struct tri_ids ids = small_ids(tok, "a<|open|>b<|end_of_msg|>");
        tri_detok_init(&detok, tok, skip);
        tri_buf_init(&out, 100);
        for (size_t i = 0; i < ids.count_tokens; i++)
            assert_int_equal(tri_detok_push(&detok, ids.data[i], &out, NULL), TRI_OK);
        assert_string_equal(out.data, skip ? "ab" : "a<|open|>b<|end_of_msg|>");
        struct tri_error err = { 0 };
        assert_int_equal(tri_detok_push(&detok, SMALL_TOKENS, &out, &err), TRI_FORMAT);
        assert_non_null(strstr(err.text, "id 714 is no token: this vocabulary has 0 to 713"));
        tri_buf_fini(&out);
        tri_ids_fini(&ids);
    }
}

/* One vocabulary, four threads; `make tsan` looks for races. */
static void *encode_often(void *arg)
{
    struct tri_ids *out = arg;
    for (int i = 0; i < 200; i++) {
        out->count_tokens = 0;
        if (tri_encode(tok, "The ship has three banks of oars.<|open|>", 41, TRI_MARKUP, out, NULL))
            return NULL;
    }
    return out;
}

static void threads_share_a_vocabulary(void **state)
{
    (void)state;
    pthread_t thread[4];
    struct tri_ids ids[4] = { 0 };
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, encode_often, &ids[i]), 0);
    for (int i = 0; i < 4; i++) {
        void *done = NULL;
        pthread_join(thread[i], &done);
        assert_ptr_equal(done, &ids[i]);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ids[i].count_tokens, ids[0].count_tokens);
        assert_memory_equal(ids[i].data, ids[0].data, ids[0].count_tokens * sizeof *ids[0].data);
    }
    for (int i = 0; i < 4; i++)
        tri_ids_fini(&ids[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_vocabularies),
        cmocka_unit_test(damaged_special_tokens),
        cmocka_unit_test(token_length_limit),
        cmocka_unit_test(vocabulary_size_limits),
        cmocka_unit_test(names_and_reserved_slots),
        cmocka_unit_test(not_the_chat_format),
        cmocka_unit_test(longest_name_wins),
        cmocka_unit_test(invalid_utf8_is_refused_with_its_place),
        cmocka_unit_test(broken_characters_become_replacements),
        cmocka_unit_test(special_tokens_shown_or_skipped),
        cmocka_unit_test(threads_share_a_vocabulary),
    };
    tok = small_open();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tri_tokenizer_close(tok);
    return failed;
}
