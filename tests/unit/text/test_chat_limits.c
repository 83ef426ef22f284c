/* Every limit of a request, at it and one past it; and settings given by the caller. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "text/text.h"

static enum tri_status render(const struct tri_buf *json, struct tri_error *err)
{
    struct tri_prompt *prompt = NULL;
    *err = (struct tri_error){ 0 };
    enum tri_status st = tri_chat_render(&prompt, "r", json->data, json->len_bytes, NULL, err);
    assert_true(!st == (prompt != NULL));
    assert_null(strchr(err->text, '\n'));
    tri_prompt_close(prompt);
    return st;
}

static void repeat(struct tri_buf *out, const char *text, size_t count, const char *between)
{
    for (size_t i = 0; i < count; i++) {
        tri_buf_puts(out, i ? between : "");
        tri_buf_puts(out, text);
    }
}

/* `before`, then limit (or one more) times `unit`, then `after`. */
static void expect_limit(const char *before, const char *unit, const char *between,
                         const char *after, size_t limit)
{
    for (size_t over = 0; over < 2; over++) {
        struct tri_buf json;
        struct tri_error err;
        tri_buf_init(&json, TRI_CHAT_MAX_BYTES);
        tri_buf_puts(&json, before);
        repeat(&json, unit, limit + over, between);
        tri_buf_puts(&json, after);
        enum tri_status st = render(&json, &err);
        if (st != (over ? TRI_LIMIT : TRI_OK))
            fail_msg("%s... x %zu: %s", before, limit + over, err.text);
        tri_buf_fini(&json);
    }
}

static void counts(void **state)
{
    (void)state;
    expect_limit("{\"messages\":[", "{\"role\":\"user\"}", ",", "]}", TRI_CHAT_MAX_MESSAGES);
    expect_limit("{\"messages\":[],\"tools\":[", "{}", ",", "]}", TRI_CHAT_MAX_TOOLS);
    expect_limit("{\"messages\":[{\"role\":\"system\",\"tools\":[", "{}", ",", "]}]}",
                 TRI_CHAT_MAX_TOOLS);
    expect_limit("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[", "{\"name\":\"f\"}", ",",
                 "]}]}", TRI_CHAT_MAX_TOOLS);
    expect_limit("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\","
                 "\"arguments\":{\"a\":-",
                 "7", "", "}}]}]}", TRI_CHAT_MAX_INT_DIGITS);
}

static void nesting(void **state)
{
    (void)state;
    for (size_t over = 0; over < 2; over++) {
        struct tri_buf json;
        struct tri_error err;
        tri_buf_init(&json, 4096);
        tri_buf_puts(&json, "{\"messages\":[],\"x\":");
        repeat(&json, "[", TRI_CHAT_MAX_DEPTH - 1 + over, "");
        repeat(&json, "]", TRI_CHAT_MAX_DEPTH - 1 + over, "");
        tri_buf_puts(&json, "}");
        assert_int_equal(render(&json, &err), over ? TRI_LIMIT : TRI_OK);
        tri_buf_fini(&json);
    }
}

/*
 * 12 segments of a user who says "a", 37 of an assistant with one call, 15 for each number among
 * its arguments: 279,617 of those make TRI_CHAT_MAX_SEGMENTS. The user's "b" is one more.
 */
static void segments(void **state)
{
    (void)state;
    assert_int_equal(12 + 37 + 15 * 279617, TRI_CHAT_MAX_SEGMENTS);
    for (int over = 0; over < 2; over++) {
        struct tri_buf json;
        struct tri_error err;
        tri_buf_init(&json, TRI_CHAT_MAX_BYTES);
        tri_buf_printf(
            &json,
            "{\"add_generation_prompt\":false,\"thinking\":false,\"messages\":[{\"role\":"
            "\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}%s]},{\"role\":"
            "\"assistant\",\"tool_calls\":[{\"name\":\"f\",\"arguments\":{",
            over ? ",{\"type\":\"text\",\"text\":\"b\"}" : "");
        for (int i = 0; i < 279617; i++)
            tri_buf_printf(&json, "%s\"%d\":1", i ? "," : "", i);
        tri_buf_puts(&json, "}}]}]}");
        assert_int_equal(render(&json, &err), over ? TRI_LIMIT : TRI_OK);
        tri_buf_fini(&json);
    }
}

static void image_positions(void **state)
{
    (void)state;
    for (int over = 0; over < 2; over++) {
        struct tri_buf json;
        struct tri_error err;
        tri_buf_init(&json, 4096);
        tri_buf_printf(
            &json,
            "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"},{\"type\":"
            "\"image\"}]}],\"images\":[[1,1,1],[1,1,%d]]}",
            TRI_CHAT_MAX_IMAGE_POSITIONS - 1 + over);
        assert_int_equal(render(&json, &err), over ? TRI_FORMAT : TRI_OK);
        tri_buf_fini(&json);
    }
}

static void size_of_a_request(void **state)
{
    (void)state;
    struct tri_buf json;
    struct tri_error err;
    tri_buf_init(&json, TRI_CHAT_MAX_BYTES);
    tri_buf_puts(&json, "{\"messages\":[]}");
    while (json.len_bytes < TRI_CHAT_MAX_BYTES)
        tri_buf_putc(&json, ' ');
    assert_int_equal(render(&json, &err), TRI_OK);
    json.len_bytes++; /* the NUL behind it */
    assert_int_equal(render(&json, &err), TRI_LIMIT);
    tri_buf_fini(&json);
}

/* A request of many small values would need far more memory than bytes: refused, not tried. */
static void memory_of_a_request(void **state)
{
    (void)state;
    struct tri_buf json;
    struct tri_error err;
    tri_buf_init(&json, TRI_CHAT_MAX_BYTES);
    tri_buf_puts(&json, "{\"messages\":[],\"x\":[");
    repeat(&json, "1", 10 << 20, ",");
    tri_buf_puts(&json, "]}");
    assert_int_equal(render(&json, &err), TRI_LIMIT);
    assert_non_null(strstr(err.text, "512 MiB"));
    tri_buf_fini(&json);
}

static void settings_replace_the_request(void **state)
{
    (void)state;
    static const char json[] = "{\"messages\":[],\"thinking\":{\"type\":\"enabled\"},"
                               "\"thinking_effort\":\"medium\",\"tool_choice\":{}}";
    struct tri_chat_settings settings = TRI_CHAT_SETTINGS;
    struct tri_prompt *prompt = NULL;
    size_t count = 0;
    settings.thinking = false;
    settings.tool_choice = TRI_TOOLS_NONE;
    assert_int_equal(tri_chat_render(&prompt, "r", json, sizeof json - 1, &settings, NULL), TRI_OK);
    assert_int_equal(tri_prompt_start(prompt), TRI_CHANNEL_RESPONSE);
    const struct tri_segment *s = tri_prompt_segments(prompt, &count);
    bool found = false;
    for (size_t i = 0; i < count; i++)
        found = found || (s[i].bytes == 11 && !memcmp(s[i].text, "tool-choice", 11));
    assert_true(found);
    tri_prompt_close(prompt);
}

static void declared_names(void **state)
{
    (void)state;
    static const char json[] =
        "{\"tools\":[{\"function\":{\"name\":\"b\"}},{\"name\":\"a\"},{}],\"messages\":[{\"role\":"
        "\"system\",\"tools\":[{\"function\":{\"name\":\"c\"}}]}],\"add_generation_prompt\":false}";
    struct tri_prompt *prompt = NULL;
    size_t count = 0;
    assert_int_equal(tri_chat_render(&prompt, "r", json, sizeof json - 1, NULL, NULL), TRI_OK);
    const char *const *names = tri_prompt_tools(prompt, &count);
    assert_int_equal(count, 3);
    assert_string_equal(names[0], "b");
    assert_string_equal(names[1], "a");
    assert_string_equal(names[2], "c");
    assert_int_equal(tri_prompt_start(prompt), TRI_CHANNEL_NONE);
    tri_prompt_close(prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts),
        cmocka_unit_test(nesting),
        cmocka_unit_test(segments),
        cmocka_unit_test(image_positions),
        cmocka_unit_test(size_of_a_request),
        cmocka_unit_test(memory_of_a_request),
        cmocka_unit_test(settings_replace_the_request),
        cmocka_unit_test(declared_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
