/*
 * Which readers a line may be for, told by one pass over it: every reader names words, one of which
 * stands in each line it could take, or the first characters such a line may have. A captured log
 * has a million lines that nobody wants; without this each is searched for every word of everybody.
 * The sieve only ever lets too much through: a reader still judges the line by itself.
 */
#ifndef TRI_BASE_SIEVE_H
#define TRI_BASE_SIEVE_H

#include <stddef.h>
#include <stdint.h>

enum {
    TRI_SIEVE_MAX_WORDS = 400,
    TRI_SIEVE_MIN_WORD = 4, /* bytes; what is looked up at every place of a line */
    TRI_SIEVE_READERS = 64
};

struct tri_sieve {
    uint64_t start[256]; /* readers by the first byte that is no blank */
    struct {
        const char *text; /* not owned, not terminated */
        uint16_t len, next;
        uint64_t readers;
    } word[TRI_SIEVE_MAX_WORDS + 1]; /* from 1; 0 ends a chain */
    uint16_t words, bucket[1024];
    uint64_t seen[1024]; /* bits: hashes of the words' first four letters */
};

/*
 * `words` are parted by '|', "" for none; case does not matter. They must outlive the sieve (string
 * literals). A word that is too short or one too many is a mistake of the program.
 */
void tri_sieve_words(struct tri_sieve *sieve, unsigned reader, const char *words);
/* A line that begins, after blanks, with one of these characters, as they stand. */
void tri_sieve_starts(struct tri_sieve *sieve, unsigned reader, const char *characters);

/* Bits of the readers that `text` may be for. */
uint64_t tri_sieve_line(const struct tri_sieve *sieve, const char *text);

#endif
