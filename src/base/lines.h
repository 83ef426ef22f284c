/*
 * Text printed by foreign tools, as lines that can be judged: colours, carriage returns and
 * byte-order marks removed, UTF-16 narrowed, the number of each line in its file kept. Used by
 * every reader of captured output (topo, doctor, bench).
 */
#ifndef TRI_BASE_LINES_H
#define TRI_BASE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"

enum {
    TRI_LINES_MAX_BYTES = 32 << 20, /* of one file */
    TRI_LINES_MAX = 2 << 20,        /* lines of one file */
    TRI_LINE_MAX_BYTES = 1 << 20 /* a longer line is cut there and tri_lines.cut_lines counts it */
};

struct tri_line {
    const char *text; /* NUL-terminated, no line end; launcher prefix still on it */
    const char
        *body; /* the same after launcher prefixes ("[1,0]<stdout>:", "0: ", "(Worker pid=1)") */
    uint32_t number; /* from 1 */
};

struct tri_lines {
    char *text; /* the cleaned copy; lines point into it */
    struct tri_line *line;
    size_t count;
    unsigned cut_lines; /* lines over TRI_LINE_MAX_BYTES */
    bool last_open;     /* the last line has no line end */
};

/*
 * Cleans and splits `bytes` of text. Over a limit: TRI_LIMIT. Any bytes are accepted; control bytes
 * become blanks. `lines` is filled only on success and is released with fini.
 */
TRI_MUST_CHECK enum tri_status tri_lines_init(struct tri_lines *lines, const char *text,
                                              size_t bytes, struct tri_error *err);
void tri_lines_fini(struct tri_lines *lines);

/* A run of bytes inside a line. */
struct tri_word {
    const char *at;
    size_t len;
};

/* Splits at blanks and tabs; at most `max` words are stored, the number present is returned. */
size_t tri_words(const char *text, struct tri_word *out, size_t max);

bool tri_word_is(struct tri_word word, const char *text);
/* Copies a word, cut to fit and NUL-terminated. Returns out. */
const char *tri_word_copy(struct tri_word word, char *out, size_t out_bytes);
/* The whole word as a finite decimal number / unsigned integer of the base; false when it is not.
 */
bool tri_word_number(struct tri_word word, double *out);
bool tri_word_unsigned(struct tri_word word, unsigned base, uint64_t *out);

/* Case-insensitive search, and "does text begin with". Returns NULL / false when not. */
const char *tri_text_find(const char *text, const char *part);
bool tri_text_begins(const char *text, const char *start);

#endif
