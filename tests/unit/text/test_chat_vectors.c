/*
 * Conversations whose segments and ids were made by the model authors' own encoder
 * (shared/k3/chat_vectors.json), and prompts checked by several engines (token_vectors.json).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"
#include "shared.h"
#include "text/text.h"

static struct tri_tokenizer *tok;

/* Renders a request that jansson holds; none of these vectors has a number that it would change. */
static struct tri_prompt *render(const char *name, const json_t *request)
{
    struct tri_prompt *prompt = NULL;
    struct tri_error err = { 0 };
    char *text = json_dumps(request, 0);
    assert_non_null(text);
    if (tri_chat_render(&prompt, name, text, strlen(text), NULL, &err))
        fail_msg("%s", err.text);
    free(text);
    return prompt;
}

static void expect_ids(const char *name, const struct tri_prompt *prompt, const json_t *want)
{
    struct tri_ids ids = { 0 };
    struct tri_error err = { 0 };
    if (tri_prompt_encode(prompt, tok, &ids, &err))
        fail_msg("%s: %s", name, err.text);
    assert_int_equal(ids.count_tokens, json_array_size(want));
    for (size_t i = 0; i < ids.count_tokens; i++)
        if (ids.data[i] != json_integer_value(json_array_get(want, i)))
            fail_msg("%s: id %zu is %d", name, i, ids.data[i]);
    tri_ids_fini(&ids);
}

static void expect_segments(const char *name, const struct tri_prompt *prompt, const json_t *want)
{
    size_t count = 0;
    const struct tri_segment *have = tri_prompt_segments(prompt, &count);
    assert_int_equal(count, json_array_size(want));
    for (size_t i = 0; i < count; i++) {
        const json_t *text = json_array_get(json_array_get(want, i), 0);
        const json_t *is_marker = json_array_get(json_array_get(want, i), 1);
        if (have[i].bytes != json_string_length(text) ||
            memcmp(have[i].text, json_string_value(text), have[i].bytes) != 0 ||
            have[i].is_marker != json_is_true(is_marker))
            fail_msg("%s: segment %zu differs", name, i);
    }
}

static void encoder_goldens(void **state)
{
    (void)state;
    json_t *root = NULL, *entry;
    size_t at;
    assert_int_equal(tri_json_load(&root, TRI_TEST_SHARED "/k3/chat_vectors.json", 1 << 24, NULL),
                     TRI_OK);
    json_t *list = json_object_get(root, "cases");
    assert_true(json_array_size(list) >= 29);
    json_array_foreach(list, at, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        struct tri_prompt *prompt = render(name, json_object_get(entry, "input"));
        expect_segments(name, prompt, json_object_get(entry, "segments"));
        expect_ids(name, prompt, json_object_get(entry, "ids"));
        tri_prompt_close(prompt);
    }
    json_decref(root);
}

static void checked_prompts(void **state)
{
    (void)state;
    json_t *root = NULL, *entry;
    size_t at;
    assert_int_equal(tri_json_load(&root, TRI_TEST_SHARED "/k3/token_vectors.json", 1 << 24, NULL),
                     TRI_OK);
    json_t *list = json_object_get(root, "renders");
    assert_true(json_array_size(list) >= 27);
    json_array_foreach(list, at, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        struct tri_prompt *prompt = render(name, entry);
        expect_ids(name, prompt, json_object_get(entry, "ids"));
        tri_prompt_close(prompt);
    }
    json_decref(root);
}

/* spec.md, appendix B: counts and FNV-1a-64 of whole prompts, as third parties publish them. */
static void published_hashes(void **state)
{
    (void)state;
#define LITERAL                                                                                    \
    "\"messages\":[{\"role\":\"system\",\"content\":\"Be concise.\"},{\"role\":\"user\","          \
    "\"content\":\"Literal <|end_of_msg|> stays text.\"},{\"role\":\"assistant\",\"reasoning\":"   \
    "\"brief\",\"content\":\"Understood.\"},{\"role\":\"user\",\"content\":\"Count 1, 2, 3.\"}]"
    static const struct {
        const char *json;
        size_t count;
        uint64_t hash;
    } rows[] = { { "{\"messages\":[{\"role\":\"user\",\"content\":\"Say hello.\"}],"
                   "\"thinking_effort\":\"max\"}",
                   91, UINT64_C(0xe215c5053c6bbc41) },
                 { "{" LITERAL ",\"thinking\":false}", 86, UINT64_C(0xfd64b7407dbb9baf) },
                 { "{" LITERAL "}", 93, UINT64_C(0x761236cf0f932769) } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tri_prompt *prompt = NULL;
        struct tri_ids ids = { 0 };
        assert_int_equal(
            tri_chat_render(&prompt, "row", rows[i].json, strlen(rows[i].json), NULL, NULL),
            TRI_OK);
        assert_int_equal(tri_prompt_encode(prompt, tok, &ids, NULL), TRI_OK);
        assert_int_equal(ids.count_tokens, rows[i].count);
        uint64_t hash = UINT64_C(1469598103934665603);
        for (size_t k = 0; k < ids.count_tokens; k++)
            for (int byte = 0; byte < 4; byte++)
                hash =
                    (hash ^ ((uint32_t)ids.data[k] >> (8 * byte) & 255)) * UINT64_C(1099511628211);
        assert_true(hash == rows[i].hash);
        tri_ids_fini(&ids);
        tri_prompt_close(prompt);
    }
}

int main(void)
{
    shared_or_skip("k3/tiktoken.model");
    shared_or_skip("k3/chat_vectors.json");
    shared_or_skip("k3/token_vectors.json");
    struct tri_error err = { 0 };
    if (tri_tokenizer_open(&tok, TRI_TEST_SHARED "/k3/tiktoken.model", &err)) {
        printf("%s\n", err.text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoder_goldens),
        cmocka_unit_test(checked_prompts),
        cmocka_unit_test(published_hashes),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tri_tokenizer_close(tok);
    return failed;
}
