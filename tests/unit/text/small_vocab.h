/* The fixture of tools/make_text_fixture.py, and short ways to use it in tests. */
#ifndef TRI_TESTS_SMALL_VOCAB_H
#define TRI_TESTS_SMALL_VOCAB_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "text/text.h"

#define SMALL_FOLDER TRI_TEST_SOURCE "/tests/data/text/small"
enum { SMALL_RANKS = 700, SMALL_TOKENS = 714 };

static inline struct tri_tokenizer *small_open(void)
{
    struct tri_tokenizer *tok = NULL;
    struct tri_error err = { 0 };
    if (tri_tokenizer_open(&tok, SMALL_FOLDER, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return tok;
}

/* Ids of text in which marker names are markers. */
static inline struct tri_ids small_ids(const struct tri_tokenizer *tok, const char *text)
{
    struct tri_ids ids = { 0 };
    struct tri_error err = { 0 };
    if (tri_encode(tok, text, strlen(text), TRI_MARKUP, &ids, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return ids;
}

#endif
