/* The sieve: what it must let through (compared with plain searching over random lines), and how
 * little of foreign text it does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "base/sieve.h"

static const char *const words[] = {
    "NCCL INFO", "nranks ", "GPU[", "tokens/s", " ==> ", "_size="
};
enum { WORDS = sizeof words / sizeof words[0] };

static struct tri_sieve *made(void)
{
    struct tri_sieve *s = tri_calloc(1, sizeof *s);
    assert_non_null(s);
    for (unsigned i = 0; i < WORDS; i++)
        tri_sieve_words(s, i, words[i]);
    tri_sieve_words(s, 40, "Alpha|beta, gamma|DELTA");
    tri_sieve_starts(s, 63, "{[");
    return s;
}

static void tells(void **state)
{
    (void)state;
    struct tri_sieve *s = made();
    static const struct {
        const char *line;
        uint64_t readers;
    } lines[] = { { "", 0 },
                  { "   ", 0 },
                  { "NCCL INF", 0 },
                  { "box:1:2 [0] NCCL INFO x", 1 },
                  { "nccl info", 1 },
                  { "nranks", 0 },
                  { "nranks 8", 2 },
                  { "GPU[0]", 4 },
                  { "GPU{0]", 0 },
                  { "1 tokens/s and tokens/s", 8 },
                  { "a ==> b", 16 },
                  { "tp_size=2 NCCL INFO", 32 | 1 },
                  { "alphabet", 1ull << 40 },
                  { "beta, gamma", 1ull << 40 },
                  { "beta,gamma", 0 },
                  { "delt", 0 },
                  { "\t {\"x\": 1}", 1ull << 63 },
                  { "x {", 0 } };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        assert_true(tri_sieve_line(s, lines[i].line) == lines[i].readers);
    tri_free(s);
}

/* Lines glued from pieces of the words: exactly the words that plain searching finds. */
static void agrees_with_searching(void **state)
{
    (void)state;
    struct tri_sieve *s = made();
    uint32_t seed = 12345;
    for (int round = 0; round < 20000; round++) {
        char line[200] = "";
        size_t used = 0;
        for (int piece = 0; piece < 8; piece++) {
            seed = seed * 1664525u + 1013904223u;
            const char *word = words[(seed >> 8) % WORDS];
            size_t len = strlen(word), from = (seed >> 16) % 2 ? 0 : (seed >> 20) % len;
            size_t take = (seed >> 24) % 3 ? len - from : (seed >> 28) % (len - from + 1);
            memcpy(line + used, word + from, take);
            used += take;
        }
        uint64_t plain = 0;
        for (unsigned i = 0; i < WORDS; i++)
            plain |= strcasestr(line, words[i]) ? 1ull << i : 0;
        assert_true((tri_sieve_line(s, line) & 63) == plain);
    }
    tri_free(s);
}

static void holds_as_many_as_it_says(void **state)
{
    (void)state;
    struct tri_sieve *s = tri_calloc(1, sizeof *s);
    char text[TRI_SIEVE_MAX_WORDS][8];
    for (unsigned i = 0; i < TRI_SIEVE_MAX_WORDS; i++) {
        snprintf(text[i], sizeof text[i], "w%05u", i);
        tri_sieve_words(s, i % 64, text[i]);
    }
    for (unsigned i = 0; i < TRI_SIEVE_MAX_WORDS; i++)
        assert_true(tri_sieve_line(s, text[i]) == 1ull << i % 64);
    tri_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells),
        cmocka_unit_test(agrees_with_searching),
        cmocka_unit_test(holds_as_many_as_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
