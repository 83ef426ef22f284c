/*
 * ctest: slow
 * Pathological text takes time that grows with its length, not with its square. Work with a square
 * in it takes minutes on a megabyte, and sixteen times a quarter's time; a busy machine that makes
 * one short run eight times slower than another does not reach SQUARE_SECONDS.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#include "base/buf.h"
#include "small_vocab.h"

#define SQUARE_SECONDS 4.0 /* linear work takes 0.01 to 0.1 s, under a sanitizer ten times that */

static struct tri_tokenizer *tok;

static int looks_square(double whole, double quarter)
{
    return whole > 8 * quarter && whole > SQUARE_SECONDS;
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The least time of two runs: a busy machine only ever adds. */
static double encode_seconds(const char *text, size_t bytes, enum tri_encode_mode mode)
{
    double least = 1e9;
    for (int i = 0; i < 2; i++) {
        struct tri_ids ids = { 0 };
        double start = cpu_seconds();
        assert_int_equal(tri_encode(tok, text, bytes, mode, &ids, NULL), TRI_OK);
        double took = cpu_seconds() - start;
        least = took < least ? took : least;
        tri_ids_fini(&ids);
    }
    return least;
}

static void pathological_text(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    static const char *const units[] = { " ",    "a",   "7",  "\xE4\xB8\xAD",     "\xCC\x81",
                                         "A",    "\n",  "<",  "\xF0\x9F\x91\x8B", "<|open|",
                                         "the ", "a'l", "he", "\xC2\xA0" };
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++)
        for (int mode = 0; mode < 2; mode++) {
            struct tri_buf text;
            size_t unit = strlen(units[u]);
            tri_buf_init(&text, BYTES);
            for (size_t i = 0; i < BYTES / unit; i++)
                tri_buf_add(&text, units[u], unit);
            double whole = encode_seconds(text.data, text.len_bytes, (enum tri_encode_mode)mode);
            double quarter = encode_seconds(text.data, text.len_bytes / unit / 4 * unit,
                                            (enum tri_encode_mode)mode);
            if (looks_square(whole, quarter))
                fail_msg("'%s' x %zu: %.3f s, a quarter of it %.3f s", units[u],
                         text.len_bytes / unit, whole, quarter);
            tri_buf_fini(&text);
        }
}

/* A request with this many arguments, each key twice; the least of three. */
static double render_seconds(int arguments)
{
    struct tri_buf json;
    double least = 1e9;
    tri_buf_init(&json, TRI_CHAT_MAX_BYTES);
    tri_buf_puts(&json, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\","
                        "\"arguments\":{");
    for (int i = 0; i < arguments; i++)
        tri_buf_printf(&json, "%s\"k%d\":1", i ? "," : "", i / 2);
    tri_buf_puts(&json, "}}]}]}");
    for (int i = 0; i < 3; i++) {
        struct tri_prompt *prompt = NULL;
        double start = cpu_seconds();
        assert_int_equal(tri_chat_render(&prompt, "r", json.data, json.len_bytes, NULL, NULL),
                         TRI_OK);
        double took = cpu_seconds() - start;
        least = took < least ? took : least;
        tri_prompt_close(prompt);
    }
    tri_buf_fini(&json);
    return least;
}

static void requests(void **state)
{
    (void)state;
    double quarter = render_seconds(40000), whole = render_seconds(160000);
    if (looks_square(whole, quarter))
        fail_msg("%.3f s, a quarter of it %.3f s", whole, quarter);
}

/* At the limit of one text. */
static void the_longest_text(void **state)
{
    (void)state;
    struct tri_buf text;
    struct tri_ids ids = { 0 };
    tri_buf_init(&text, TRI_ENCODE_MAX_BYTES);
    while (text.len_bytes < TRI_ENCODE_MAX_BYTES)
        tri_buf_add(&text, "the ship of th.\n", 16);
    assert_int_equal(tri_encode(tok, text.data, text.len_bytes, TRI_PLAIN, &ids, NULL), TRI_OK);
    assert_true(ids.count_tokens > TRI_ENCODE_MAX_BYTES / 16);
    tri_ids_fini(&ids);
    tri_buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pathological_text),
        cmocka_unit_test(requests),
        cmocka_unit_test(the_longest_text),
    };
    tok = small_open();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tri_tokenizer_close(tok);
    return failed;
}
