/* Replies drawn at random from a grammar, and texts tried on it: what the schema command does. */
#ifndef TRI_CLI_SCHEMA_DRAW_H
#define TRI_CLI_SCHEMA_DRAW_H

#include <stdbool.h>
#include "base/buf.h"
#include "base/status.h"
#include "grammar/grammar.h"
#include "text/text.h"

struct tri_schema_draw {
    const struct tri_tokenizer *tok;
    struct tri_grammar *grammar;
    uint64_t seed;
    int64_t max_tokens; /* after so many, what closes is preferred */
};

/* Appends the ids of one reply, each chosen at random among those allowed. */
TRI_MUST_CHECK enum tri_status tri_schema_draw(const struct tri_schema_draw *how,
                                               struct tri_ids *ids, struct tri_error *err);
/*
 * Is the text a whole reply (without its end marker)? Tried in the tokenizer's cut and byte by
 * byte, each token against the mask: when these disagree it fails, since that is our own fault.
 */
TRI_MUST_CHECK enum tri_status tri_schema_try(const struct tri_schema_draw *how, const char *text,
                                              size_t bytes, bool *fits, struct tri_error *err);

#endif
