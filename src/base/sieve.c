/*
 * Four letters at a time, folded to lower case, are hashed into a table of bits that fits the first
 * cache; the few places that hit are compared with the words themselves. See sieve.h.
 */
#include "base/sieve.h"

#include <string.h>
#include <strings.h>
#include "base/mem.h"

enum { SEEN_BITS = 16, BUCKET_BITS = 10 };

/* Folding by one bit also maps a few signs onto others: more is let through, nothing is lost. */
static uint32_t fold(uint32_t last, char c)
{
    return last << 8 | (unsigned char)(c | 0x20);
}

static uint32_t hash(uint32_t four)
{
    return four * 2654435769u;
}

static void add_word(struct tri_sieve *s, unsigned reader, const char *text, size_t len)
{
    TRI_ASSERT(len >= TRI_SIEVE_MIN_WORD && s->words < TRI_SIEVE_MAX_WORDS);
    uint32_t four = 0;
    for (size_t i = 0; i < TRI_SIEVE_MIN_WORD; i++)
        four = fold(four, text[i]);
    uint32_t h = hash(four), bit = h >> (32 - SEEN_BITS);
    uint16_t *bucket = &s->bucket[h >> (32 - BUCKET_BITS)];
    s->word[++s->words].text = text;
    s->word[s->words].len = (uint16_t)len;
    s->word[s->words].readers = 1ull << reader;
    s->word[s->words].next = *bucket;
    *bucket = s->words;
    s->seen[bit / 64] |= 1ull << bit % 64;
}

void tri_sieve_words(struct tri_sieve *s, unsigned reader, const char *words)
{
    TRI_ASSERT(reader < TRI_SIEVE_READERS);
    while (*words) {
        size_t len = strcspn(words, "|");
        add_word(s, reader, words, len);
        words += len + (words[len] == '|');
    }
}

void tri_sieve_starts(struct tri_sieve *s, unsigned reader, const char *characters)
{
    TRI_ASSERT(reader < TRI_SIEVE_READERS);
    for (; *characters; characters++)
        s->start[(unsigned char)*characters] |= 1ull << reader;
}

/* The readers whose words stand at `at`, of those with this hash. */
static uint64_t compare(const struct tri_sieve *s, uint32_t h, const char *at)
{
    uint64_t readers = 0;
    for (uint16_t i = s->bucket[h >> (32 - BUCKET_BITS)]; i; i = s->word[i].next)
        if (!strncasecmp(at, s->word[i].text, s->word[i].len))
            readers |= s->word[i].readers;
    return readers;
}

uint64_t tri_sieve_line(const struct tri_sieve *s, const char *text)
{
    uint64_t readers = s->start[(unsigned char)text[strspn(text, " \t")]];
    uint32_t four = 0;
    for (const char *p = text; *p; p++) {
        four = fold(four, *p);
        uint32_t h = hash(four), bit = h >> (32 - SEEN_BITS);
        if (s->seen[bit / 64] >> bit % 64 & 1 && p - text >= TRI_SIEVE_MIN_WORD - 1)
            readers |= compare(s, h, p - (TRI_SIEVE_MIN_WORD - 1));
    }
    return readers;
}
