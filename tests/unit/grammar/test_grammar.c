/*
 * Grammars over the chat frame: markers are ids and their names are text, what may be called and
 * how often, arguments in any order, characters cut by tokens, sharing and forgetting, no memory.
 * (What schemas let pass is held against an independent validator in tests/cli.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"
#include "grammar/grammar.h"
#include "../text/small_vocab.h"

static struct tri_tokenizer *tok;
static struct tri_grammar_vocab *vocab;
static int32_t end_id;

static json_t *read_json(const char *text)
{
    json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(json);
    return json;
}

static struct tri_grammar *compile(const struct tri_grammar_request *r)
{
    struct tri_grammar *g = NULL;
    struct tri_error err = { 0 };
    if (tri_grammar_compile(&g, vocab, r, &err))
        fail_msg("%s", err.text);
    return g;
}

/*
 * How many of the ids are taken in turn, each held against the mask before; *ended: nothing may
 * follow the last one.
 */
static size_t taken(struct tri_grammar *g, const struct tri_ids *ids, bool *ended)
{
    struct tri_matcher *m = NULL;
    size_t i = 0;
    assert_int_equal(tri_matcher_open(&m, g, NULL), TRI_OK);
    for (; i < ids->count_tokens; i++) {
        const uint64_t *mask = tri_matcher_allowed(m, NULL);
        assert_non_null(mask);
        int32_t id = ids->data[i];
        bool allowed = mask[id / 64] >> id % 64 & 1;
        assert_int_equal(allowed, tri_matcher_take(m, id));
        if (!allowed)
            break;
    }
    *ended = tri_matcher_done(m);
    tri_matcher_close(m);
    return i;
}

static bool fits(struct tri_grammar *g, const char *markup)
{
    struct tri_ids ids = small_ids(tok, markup);
    bool ended = false;
    size_t n = taken(g, &ids, &ended);
    bool all = n == ids.count_tokens && ended;
    tri_ids_fini(&ids);
    return all;
}

#define SHUT(tag)  "<|close|>" tag "<|sep|>"
#define OPEN(tag)  "<|open|>" tag "<|sep|>"
#define END        SHUT("message") "<|end_of_msg|>"
#define ANSWER     SHUT("think") OPEN("response")
#define CALLS      SHUT("response") OPEN("tools")
#define CALL(name) OPEN("call tool=\"" name "\" index=\"1\"")
#define ARG(key, type, value)                                                                      \
    OPEN("argument key=\"" key "\" type=\"" type "\"") value SHUT("argument")

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":{"
    "\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"type\":[\"integer\","
    "\"null\"]},\"o\":{\"type\":\"object\"}},\"required\":[\"n\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"a&\\\"b\"}}]";

static void test_tools(void **state)
{
    (void)state;
    json_t *tools = read_json(tools_text);
    struct tri_grammar_request r = { .start = TRI_CHANNEL_THINK,
                                     .calls = TRI_GRAMMAR_MAY_CALL,
                                     .tools = tools };
    struct tri_grammar *g = compile(&r);
    assert_true(fits(g, "hm" ANSWER "hello" SHUT("response") END));
    assert_true(fits(g, ANSWER "hi" CALLS CALL("f") ARG("n", "number", "5") SHUT("call")
                            SHUT("tools") END));
    /* any order, typed alternatives, each at most once, required ones at least */
    assert_true(fits(g, ANSWER CALLS CALL("f") ARG("o", "object", "{\"x\": [1]}")
                            ARG("s", "string", "a \"raw\" {text}\n") ARG("n", "null", "null")
                                SHUT("call") SHUT("tools") END));
    assert_false(
        fits(g, ANSWER CALLS CALL("f") ARG("s", "string", "x") SHUT("call") SHUT("tools") END));
    assert_false(fits(g, ANSWER CALLS CALL("f") ARG("n", "number", "1") ARG("n", "number", "1")
                             SHUT("call") SHUT("tools") END));
    assert_false(
        fits(g, ANSWER CALLS CALL("f") ARG("n", "string", "1") SHUT("call") SHUT("tools") END));
    assert_false(
        fits(g, ANSWER CALLS CALL("f") ARG("n", "number", "1.5") SHUT("call") SHUT("tools") END));
    /* names are declared ones, escaped as attributes are; no parameters, no arguments */
    assert_true(fits(g, ANSWER CALLS CALL("a&amp;&quot;b") SHUT("call") SHUT("tools") END));
    assert_false(fits(g, ANSWER CALLS CALL("ff") SHUT("call") SHUT("tools") END));
    assert_false(fits(g, ANSWER CALLS CALL("a&amp;&quot;b") ARG("n", "number", "1") SHUT("call")
                             SHUT("tools") END));
    assert_false(fits(g, ANSWER CALLS SHUT("tools") END));
    assert_false(fits(g, "hm" END));
    tri_grammar_drop(g);
    r.calls = TRI_GRAMMAR_MUST_CALL;
    r.only_tool = "a&\"b";
    r.one_call = true;
    g = compile(&r);
    assert_true(fits(g, "hm" ANSWER CALLS CALL("a&amp;&quot;b") SHUT("call") SHUT("tools") END));
    assert_false(fits(g, "hm" ANSWER CALLS CALL("f") ARG("n", "number", "5") SHUT("call")
                             SHUT("tools") END));
    assert_false(fits(g, ANSWER CALLS CALL("a&amp;&quot;b") SHUT("call") CALL("a&amp;&quot;b")
                             SHUT("call") SHUT("tools") END));
    assert_false(fits(g, "hm" ANSWER SHUT("response") END));
    tri_grammar_drop(g);
    r = (struct tri_grammar_request){ .start = TRI_CHANNEL_RESPONSE, .tools = tools };
    g = compile(&r);
    assert_true(fits(g, "hello" SHUT("response") END));
    assert_false(fits(g, "hello" CALLS));
    tri_grammar_drop(g);
    json_decref(tools);
}

static void test_markers_and_their_names(void **state)
{
    (void)state;
    json_t *schema = read_json("{\"type\":\"string\"}");
    struct tri_grammar_request r = { .start = TRI_CHANNEL_RESPONSE,
                                     .kind = TRI_GRAMMAR_SCHEMA,
                                     .schema = schema };
    struct tri_grammar *g = compile(&r);
    struct tri_ids ids = { 0 };
    bool ended = false;
    static const char text[] = "\"<|close|>response<|sep|><|end_of_msg|>";
    assert_int_equal(tri_encode(tok, text, strlen(text), TRI_PLAIN, &ids, NULL), TRI_OK);
    assert_int_equal(taken(g, &ids, &ended), ids.count_tokens); /* all of it is the string's text */
    assert_false(ended);
    assert_false(fits(g, text)); /* as markers they may not stand inside it */
    assert_true(fits(g, "\"x\"" SHUT("response") END));
    tri_ids_fini(&ids);
    tri_grammar_drop(g);
    json_decref(schema);
}

/* Tokens 0..255 of the fixture are the bytes: every cut of every character. */
static void test_characters_by_bytes(void **state)
{
    (void)state;
    json_t *schema = read_json("{\"type\":\"string\",\"maxLength\":2}");
    struct tri_grammar_request r = {
        .kind = TRI_GRAMMAR_SCHEMA, .schema = schema, .end_ids = &end_id, .n_end_ids = 1
    };
    struct tri_grammar *g = compile(&r);
    static const struct {
        const char *bytes;
        size_t taken;
    } cases[] = {
        { "\"\xf0\x9f\x99\x82\xc3\xa9\"", 8 }, /* two characters */
        { "\"\xf0\x9f\x99\x82\xc3\xa9x", 7 },  /* a third */
        { "\"\xc3\"", 2 },                     /* cut short */
        { "\"\x80", 1 },                       /* a tail alone */
        { "\"\xc0\xaf", 1 },                   /* overlong */
        { "\"\xe0\x9f\xbf", 2 },               /* overlong */
        { "\"\xed\xa0\x80", 2 },               /* a surrogate */
        { "\"\xf4\x90\x80\x80", 2 },           /* beyond U+10FFFF */
        { "\"\xf5", 1 },
        { "\"\xf4\x8f\xbf\xbf\"", 6 },
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct tri_ids ids = { 0 };
        bool ended = false;
        for (const char *p = cases[c].bytes; *p; p++)
            assert_int_equal(tri_ids_add(&ids, (unsigned char)*p), TRI_OK);
        assert_int_equal(taken(g, &ids, &ended), cases[c].taken);
        tri_ids_fini(&ids);
    }
    tri_grammar_drop(g);
    json_decref(schema);
}

static void repeat(struct tri_buf *out, const char *text, int times)
{
    for (int i = 0; i < times; i++)
        tri_buf_puts(out, text);
}

static void test_most_calls(void **state)
{
    (void)state;
    json_t *tools = read_json("[{\"function\":{\"name\":\"f\"}}]");
    struct tri_grammar_request r = { .start = TRI_CHANNEL_RESPONSE,
                                     .calls = TRI_GRAMMAR_MUST_CALL,
                                     .tools = tools };
    struct tri_grammar *g = compile(&r);
    for (int past = 0; past < 2; past++) {
        struct tri_buf text;
        tri_buf_init(&text, 1 << 20);
        tri_buf_puts(&text, CALLS);
        repeat(&text, CALL("f") SHUT("call"), TRI_GRAMMAR_MAX_CALLS + past);
        tri_buf_puts(&text, SHUT("tools") END);
        assert_int_equal(fits(g, text.data), !past);
        tri_buf_fini(&text);
    }
    tri_grammar_drop(g);
    json_decref(tools);
}

/* Up to 64 arguments in any order, more in the order of their declaration. */
static void test_any_order_has_an_end(void **state)
{
    (void)state;
    for (int n = TRI_GRAMMAR_MAX_ANY_ORDER; n <= TRI_GRAMMAR_MAX_ANY_ORDER + 1; n++) {
        json_t *properties = json_object();
        for (int i = 0; i < n; i++) {
            char name[16];
            snprintf(name, sizeof name, "p%d", i);
            json_object_set_new(properties, name, json_pack("{s:s}", "type", "null"));
        }
        json_t *tools = json_pack("[{s:s,s:{s:s,s:o}}]", "name", "f", "parameters", "type",
                                  "object", "properties", properties);
        struct tri_grammar_request r = { .start = TRI_CHANNEL_RESPONSE,
                                         .calls = TRI_GRAMMAR_MUST_CALL,
                                         .tools = tools };
        struct tri_grammar *g = compile(&r);
        bool any = n <= TRI_GRAMMAR_MAX_ANY_ORDER;
        assert_true(fits(g, CALLS CALL("f") ARG("p1", "null", "null") ARG("p63", "null", "null")
                                SHUT("call") SHUT("tools") END));
        assert_int_equal(fits(g, CALLS CALL("f") ARG("p63", "null", "null")
                                     ARG("p1", "null", "null") SHUT("call") SHUT("tools") END),
                         any);
        tri_grammar_drop(g);
        json_decref(tools);
    }
}

static void test_strict_and_lenient_tools(void **state)
{
    (void)state;
    static const char form[] = "[{\"function\":{\"name\":\"f\",\"strict\":%s,\"parameters\":{"
                               "\"type\":\"object\",\"properties\":{\"a\":{\"not\":{}}}}}}]";
    for (int strict = 0; strict < 2; strict++) {
        char text[256];
        struct tri_error err = { 0 };
        struct tri_grammar *g = NULL;
        snprintf(text, sizeof text, form, strict ? "true" : "false");
        json_t *tools = read_json(text);
        struct tri_grammar_request r = { .start = TRI_CHANNEL_RESPONSE,
                                         .calls = TRI_GRAMMAR_MUST_CALL,
                                         .tools = tools };
        enum tri_status st = tri_grammar_compile(&g, vocab, &r, &err);
        assert_int_equal(st, strict ? TRI_UNSUPPORTED : TRI_OK);
        if (strict)
            assert_string_equal(err.text, "tools[0].function.parameters: keyword 'not' at "
                                          "#/properties/a: is not supported");
        else
            assert_true(fits(g, CALLS CALL("f") ARG("zz", "array", "[1]") ARG("a", "string", "")
                                    SHUT("call") SHUT("tools") END));
        tri_grammar_drop(g);
        json_decref(tools);
    }
}

static void test_kept_grammars(void **state)
{
    (void)state;
    struct tri_grammar_cache *cache = NULL;
    struct tri_grammar_cache_stats stats;
    struct tri_grammar_request r = { .start = TRI_CHANNEL_RESPONSE, .kind = TRI_GRAMMAR_JSON };
    struct tri_grammar *first = compile(&r);
    char key[16];
    assert_int_equal(tri_grammar_cache_open(&cache, NULL), TRI_OK);
    tri_grammar_cache_add(cache, "first", 5, first);
    for (int i = 0; i < TRI_GRAMMAR_KEPT - 1; i++) {
        struct tri_grammar *g = compile(&r);
        snprintf(key, sizeof key, "%d", i);
        tri_grammar_cache_add(cache, key, strlen(key), g);
        tri_grammar_drop(g);
    }
    struct tri_grammar *found = tri_grammar_cache_find(cache, "first", 5); /* now the newest */
    assert_ptr_equal(found, first);
    tri_grammar_drop(found);
    tri_grammar_cache_add(cache, "more", 4, first); /* one too many: the oldest, "0", goes */
    assert_null(tri_grammar_cache_find(cache, "0", 1));
    found = tri_grammar_cache_find(cache, "1", 1);
    assert_non_null(found);
    tri_grammar_drop(found);
    tri_grammar_cache_read_stats(cache, &stats);
    assert_int_equal(stats.kept, TRI_GRAMMAR_KEPT);
    assert_int_equal(stats.hits, 2);
    assert_int_equal(stats.misses, 1);
    tri_grammar_cache_close(cache);
    assert_true(fits(first, "{\"a\":[]}" SHUT("response") END)); /* our own reference still holds */
    tri_grammar_drop(first);
}

/* Two matchers of one grammar, token by token in turns, as two sequences of a batch. */
static void test_matchers_do_not_mix(void **state)
{
    (void)state;
    struct tri_grammar_request r = { .start = TRI_CHANNEL_RESPONSE, .kind = TRI_GRAMMAR_JSON };
    struct tri_grammar *g = compile(&r);
    struct tri_ids ids[2] = { small_ids(tok, "{\"a\":[1,[2]]}" SHUT("response") END),
                              small_ids(tok, "{\"x\":{\"y\":\"z\"}}" SHUT("response") END) };
    struct tri_matcher *m[2] = { NULL, NULL };
    for (int k = 0; k < 2; k++)
        assert_int_equal(tri_matcher_open(&m[k], g, NULL), TRI_OK);
    for (size_t i = 0; i < ids[0].count_tokens || i < ids[1].count_tokens; i++)
        for (int k = 0; k < 2; k++)
            if (i < ids[k].count_tokens) {
                assert_non_null(tri_matcher_allowed(m[k], NULL));
                assert_true(tri_matcher_take(m[k], ids[k].data[i]));
            }
    for (int k = 0; k < 2; k++) {
        assert_true(tri_matcher_done(m[k]));
        tri_matcher_close(m[k]);
        tri_ids_fini(&ids[k]);
    }
    struct tri_grammar_stats stats;
    tri_grammar_read_stats(g, &stats);
    assert_true(stats.mask_hits > 0);
    tri_grammar_drop(g);
}

/* The fewest steps that compiling takes: one below, it is refused. */
static uint64_t least_work(struct tri_grammar_request r)
{
    uint64_t low = 1, high = TRI_GRAMMAR_MAX_WORK;
    while (low < high) {
        struct tri_grammar *g = NULL;
        r.most_work = low + (high - low) / 2;
        enum tri_status st = tri_grammar_compile(&g, vocab, &r, NULL);
        assert_true(st == TRI_OK || st == TRI_LIMIT);
        assert_int_equal(g != NULL, st == TRI_OK);
        if (st == TRI_OK)
            high = r.most_work;
        else
            low = r.most_work + 1;
        tri_grammar_drop(g);
    }
    return low;
}

static void test_most_work(void **state)
{
    (void)state;
    json_t *tools = read_json(tools_text);
    struct tri_grammar_request r = { .start = TRI_CHANNEL_THINK,
                                     .calls = TRI_GRAMMAR_MAY_CALL,
                                     .tools = tools };
    assert_in_range(least_work(r), 100, 100000);
    json_decref(tools);
}

/* Objects that differ in `z` alone, each with a list of so many required names. */
static json_t *one_of_objects(int objects, int names)
{
    json_t *list = json_array();
    for (int i = 0; i < objects; i++) {
        json_t *required = json_pack("[s]", "z");
        for (int k = 1; k < names; k++)
            json_array_append_new(required, json_string("a"));
        json_array_append_new(list, json_pack("{s:s,s:{s:{s:i},s:{s:s}},s:o,s:b}", "type", "object",
                                              "properties", "z", "const", i, "a", "type", "null",
                                              "required", required, "additionalProperties", 0));
    }
    return json_pack("{s:o}", "oneOf", list);
}

/* Telling the schemas of oneOf apart looks at every name for every pair, and counts that. */
static void test_work_of_pairs(void **state)
{
    (void)state;
    enum { OBJECTS = 20, NAMES = 100 };
    struct tri_grammar_request r = { .start = TRI_CHANNEL_RESPONSE,
                                     .kind = TRI_GRAMMAR_SCHEMA,
                                     .schema_name = "schema" };
    uint64_t work[2];
    for (int i = 0; i < 2; i++) {
        json_t *schema = one_of_objects(OBJECTS, i ? NAMES : 2);
        r.schema = schema;
        work[i] = least_work(r);
        json_decref(schema);
    }
    assert_true(work[1] - work[0] >= OBJECTS * (OBJECTS - 1) * (NAMES - 2));
}

static uint64_t used(const struct tri_budget *budget)
{
    struct tri_budget_report now;
    tri_budget_read(budget, &now);
    assert_int_equal(now.used_bytes, now.account_used_bytes[TRI_MEM_GRAMMAR]);
    return now.used_bytes;
}

/*
 * Everything is counted, and given back. Without room nothing more is compiled or opened, but what
 * was opened goes on, with the masks it would have had: none of them is kept.
 */
static void test_budget(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":[1,{\"b\":\"some text\"},[2]],\"c\":\"and \\u00e9\"}";
    struct tri_grammar_request r = { .start = TRI_CHANNEL_RESPONSE, .kind = TRI_GRAMMAR_JSON };
    struct tri_ids ids = small_ids(tok, text);
    struct tri_grammar *free_one = compile(&r), *none = NULL;
    for (int tight = 0; tight < 2; tight++) {
        struct tri_budget *budget = NULL;
        struct tri_grammar_vocab *v = NULL;
        struct tri_grammar *g = NULL;
        struct tri_matcher *m = NULL, *free_m = NULL;
        assert_int_equal(tri_budget_open(&budget, 64 << 20, NULL), TRI_OK);
        assert_int_equal(tri_grammar_vocab_open(&v, tok, budget, NULL), TRI_OK);
        uint64_t vocab_bytes = used(budget);
        assert_true(vocab_bytes > 0);
        assert_int_equal(tri_grammar_compile(&g, v, &r, NULL), TRI_OK);
        assert_true(used(budget) > vocab_bytes);
        assert_int_equal(tri_matcher_open(&m, g, NULL), TRI_OK);
        assert_int_equal(tri_matcher_open(&free_m, free_one, NULL), TRI_OK);
        uint64_t before = used(budget), rest = tight ? (64 << 20) - before : 0;
        assert_int_equal(tri_budget_count(budget, TRI_MEM_GRAMMAR, rest, NULL), TRI_OK);
        for (size_t i = 0; i < ids.count_tokens; i++) {
            const uint64_t *mask = tri_matcher_allowed(m, NULL);
            const uint64_t *free_mask = tri_matcher_allowed(free_m, NULL);
            assert_non_null(mask);
            assert_memory_equal(mask, free_mask, tri_matcher_words(m) * sizeof *mask);
            assert_true(tri_matcher_take(m, ids.data[i]));
            assert_true(tri_matcher_take(free_m, ids.data[i]));
        }
        struct tri_grammar_stats stats;
        tri_grammar_read_stats(g, &stats);
        if (tight) {
            assert_int_equal(stats.cache_bytes, 0);
            assert_int_equal(used(budget), 64 << 20);
            assert_int_equal(tri_grammar_compile(&none, v, &r, NULL), TRI_BUDGET);
            assert_int_equal(tri_matcher_open(&free_m, g, NULL), TRI_BUDGET);
        } else {
            assert_true(used(budget) >= before + stats.cache_bytes);
        }
        tri_budget_uncount(budget, TRI_MEM_GRAMMAR, rest);
        tri_matcher_close(m);
        tri_matcher_close(free_m);
        tri_grammar_drop(g);
        assert_int_equal(used(budget), vocab_bytes);
        tri_grammar_vocab_close(v);
        assert_int_equal(used(budget), 0);
        tri_budget_close(budget);
    }
    tri_grammar_drop(free_one);
    tri_ids_fini(&ids);
}

static void test_no_memory(void **state)
{
    (void)state;
    json_t *tools = read_json(tools_text);
    struct tri_grammar_request r = { .start = TRI_CHANNEL_THINK,
                                     .calls = TRI_GRAMMAR_MAY_CALL,
                                     .tools = tools };
    long failures = 0;
    for (long n = 0;; n++) {
        struct tri_grammar *g = NULL;
        struct tri_matcher *m = NULL;
        tri_mem_fail_after(n);
        enum tri_status st = tri_grammar_compile(&g, vocab, &r, NULL);
        if (st == TRI_OK)
            st = tri_matcher_open(&m, g, NULL);
        bool told = st == TRI_OK && tri_matcher_allowed(m, NULL) != NULL;
        tri_mem_fail_after(-1);
        assert_true(st == TRI_OK || st == TRI_NOMEM);
        tri_matcher_close(m);
        tri_grammar_drop(g);
        failures += st != TRI_OK;
        if (told)
            break;
    }
    assert_true(failures > 5);
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tools),
        cmocka_unit_test(test_markers_and_their_names),
        cmocka_unit_test(test_characters_by_bytes),
        cmocka_unit_test(test_most_calls),
        cmocka_unit_test(test_any_order_has_an_end),
        cmocka_unit_test(test_strict_and_lenient_tools),
        cmocka_unit_test(test_kept_grammars),
        cmocka_unit_test(test_matchers_do_not_mix),
        cmocka_unit_test(test_most_work),
        cmocka_unit_test(test_work_of_pairs),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_no_memory),
    };
    tok = small_open();
    end_id = tri_token_named(tok, "<|end_of_msg|>");
    if (tri_grammar_vocab_open(&vocab, tok, NULL, NULL) != TRI_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tri_grammar_vocab_close(vocab);
    tri_tokenizer_close(tok);
    return failed;
}
