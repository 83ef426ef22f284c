/*
 * Every allocation of the text room fails once: the call must say TRI_NOMEM, leave nothing behind
 * (ASan looks), and the next try must work.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"
#include "small_vocab.h"

static struct tri_tokenizer *tok;
static char *ranks, *config;
static size_t ranks_bytes, config_bytes;

/* Runs `work` with the n-th allocation failing, for each n, until it gets through. */
static void try_all(enum tri_status (*work)(void), long at_least)
{
    for (long n = 0;; n++) {
        tri_mem_fail_after(n);
        enum tri_status st = work();
        tri_mem_fail_after(-1);
        if (!st) {
            if (n < at_least)
                fail_msg("only %ld allocations", n);
            return;
        }
        if (st != TRI_NOMEM)
            fail_msg("allocation %ld: status %d", n, (int)st);
    }
}

/*
 * Splitting falls back to PCRE2's interpreter when its code generator gets no memory, so opening
 * may succeed although an allocation failed: it is repeated until none is left to fail.
 */
static void open_vocabulary(void **state)
{
    (void)state;
    long failures = 0;
    for (long n = 0; n < 40; n++) {
        struct tri_vocab_text text = { "v", ranks, config, ranks_bytes, config_bytes };
        struct tri_tokenizer *t = NULL;
        tri_mem_fail_after(n);
        enum tri_status st = tri_tokenizer_read(&t, &text, NULL);
        tri_mem_fail_after(-1);
        assert_true(st == TRI_OK || st == TRI_NOMEM);
        assert_true(!st == (t != NULL));
        failures += st != TRI_OK;
        if (t) {
            struct tri_ids ids = small_ids(t, "The ship<|open|>");
            assert_true(ids.count_tokens > 1);
            tri_ids_fini(&ids);
        }
        tri_tokenizer_close(t);
    }
    if (failures < 12)
        fail_msg("only %ld failures", failures);
}

static enum tri_status encode(void)
{
    struct tri_ids ids = { 0 };
    static const char text[] = "The ship<|open|> has three banks of oars: ooooooooooooooooooo";
    enum tri_status st = tri_encode(tok, text, sizeof text - 1, TRI_MARKUP, &ids, NULL);
    assert_true(!st || !ids.count_tokens);
    tri_ids_fini(&ids);
    return st;
}

static enum tri_status render(void)
{
    static const char json[] =
        "{\"messages\":[{\"role\":\"system\",\"tools\":[{\"name\":\"f\",\"b\":1,\"a\":2}]},"
        "{\"role\":\"user\",\"name\":\"a\\\"&\",\"content\":[{\"type\":\"image\"},{\"type\":"
        "\"text\","
        "\"text\":\"x\"}]},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"function\":{"
        "\"name\":"
        "\"f\",\"arguments\":\"{\\\"a\\\":1.5,\\\"a\\\":[2e7]}\"}}]},{\"role\":\"tool\","
        "\"tool_call_id\":\"1\",\"content\":\"y\"}],\"images\":[[2,3,4]],\"thinking_effort\":"
        "\"low\","
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{}}}}";
    struct tri_prompt *prompt = NULL;
    struct tri_ids ids = { 0 };
    enum tri_status st = tri_chat_render(&prompt, "r", json, sizeof json - 1, NULL, NULL);
    if (!st)
        st = tri_prompt_encode(prompt, tok, &ids, NULL);
    tri_ids_fini(&ids);
    tri_prompt_close(prompt);
    return st;
}

static struct tri_ids sampled;

static enum tri_status parse(void)
{
    static const char *const names[] = { "f", "g" };
    struct tri_parser_options o = {
        .start = TRI_CHANNEL_THINK, .tools = true, .names = names, .name_count = 2
    };
    struct tri_parser *p = NULL;
    struct tri_turn turn;
    enum tri_status st = tri_parser_open(&p, tok, &o, NULL);
    for (size_t i = 0; i < sampled.count_tokens && !st; i++)
        st = tri_parser_push(p, sampled.data[i], NULL);
    if (!st)
        st = tri_parser_finish(p, true, &turn, NULL);
    tri_parser_close(p);
    return st;
}

static void use_it(void **state)
{
    (void)state;
    sampled =
        small_ids(tok, "Hm<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"f\" "
                       "index=\"1\"<|sep|><|open|>argument key=\"a\" type=\"string\"<|sep|>x"
                       "<|close|>argument<|sep|><|open|>argument key=\"a\" type=\"number\"<|sep|>"
                       "[<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
                       "<|close|>message<|sep|><|end_of_msg|>");
    try_all(encode, 6);
    try_all(render, 8);
    try_all(parse, 8);
    tri_ids_fini(&sampled);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_vocabulary),
        cmocka_unit_test(use_it),
    };
    tok = small_open();
    if (tri_read_file(&ranks, &ranks_bytes, SMALL_FOLDER "/tiktoken.model", 1 << 20, NULL) ||
        tri_read_file(&config, &config_bytes, SMALL_FOLDER "/tokenizer_config.json", 1 << 20, NULL))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tri_free(ranks);
    tri_free(config);
    tri_tokenizer_close(tok);
    return failed;
}
