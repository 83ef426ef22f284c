/*
 * Grammars for structured output: which tokens may come next so that a reply is what was promised,
 * a JSON value of a schema, a choice, a pattern, calls of declared tools. Floor 2.
 *
 * Three things, from shared to private:
 *   vocab    a tokenizer's tokens as tries of bytes; made once, never changes
 *   grammar  a compiled request: a network of nodes over bytes and marker ids, with its cache of
 *            token masks; counted references, any thread
 *   matcher  where one reply stands in its grammar; one thread at a time
 *
 * Structure is matched by id: a marker (<|open|>, <|close|>, <|sep|>, <|end_of_msg|>) is a symbol
 * of its own and never the bytes of its name, and the bytes of its name never are the marker. In a
 * chat the grammar starts inside the channel that the prompt opened (spec 6.7): thinking is free,
 * what follows is constrained. Text inside JSON and arguments is valid UTF-8, however tokens cut
 * it. Every byte is a token and every symbol leads on to an end, so a matcher never runs into a
 * wall; what could not end is never entered.
 *
 * Compiling is bounded by the limits below (TRI_LIMIT); what the subset does not know is refused
 * with TRI_UNSUPPORTED, naming the keyword and its path (docs/serving.md has the table). Nothing
 * here runs on behalf of a grammar that is not finished.
 */
#ifndef TRI_GRAMMAR_GRAMMAR_H
#define TRI_GRAMMAR_GRAMMAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/mem.h"
#include "base/status.h"
#include "text/text.h"

enum {
    TRI_GRAMMAR_MAX_SCHEMA_BYTES = 1 << 20, /* of the request's schemas together, as JSON text */
    TRI_GRAMMAR_MAX_SCHEMA_DEPTH = 512,     /* schemas within each other, through $ref too */
    TRI_GRAMMAR_MAX_NODES = 100000,         /* of the network */
    TRI_GRAMMAR_MAX_WORK = 20000000,        /* steps of compiling; about half a second */
    TRI_GRAMMAR_MAX_PATTERN_BYTES = 4096,   /* of one regular expression */
    TRI_GRAMMAR_MAX_REPEAT = 100000,        /* minItems, maxLength, {m,n}: the largest number */
    TRI_GRAMMAR_MAX_ENUM = 10000,           /* values of one enum or choice */
    TRI_GRAMMAR_MAX_DEPTH = 192, /* of open elements while matching: nesting of recursive values */
    TRI_GRAMMAR_MAX_INDENT = 64, /* blanks after a line break between JSON tokens */
    TRI_GRAMMAR_MAX_DIGITS = 64, /* of a number before its point, and after it */
    TRI_GRAMMAR_MAX_CALLS = 128, /* of one reply */
    TRI_GRAMMAR_MAX_WAYS = 256,  /* ways to read what was said that are followed at once */
    TRI_GRAMMAR_MAX_ANY_ORDER = 64 /* arguments of a tool that may come in any order */
};

/* ---- vocab ---------------------------------------------------------------------------------- */

struct tri_grammar_vocab;

/*
 * `tok` must outlive it. Takes about 60 MB for K3's vocabulary while it is made, 12 MB after.
 *
 * What it, its grammars and their matchers hold is counted on `budget`, account grammar (NULL: not
 * counted). Where that has no room, a grammar is not compiled (TRI_BUDGET), and masks are not kept
 * but computed again; a matcher that was opened always goes on.
 */
TRI_MUST_CHECK enum tri_status tri_grammar_vocab_open(struct tri_grammar_vocab **out,
                                                      const struct tri_tokenizer *tok,
                                                      struct tri_budget *budget,
                                                      struct tri_error *err);
void tri_grammar_vocab_close(struct tri_grammar_vocab *vocab); /* after all its grammars */

/* ---- grammar -------------------------------------------------------------------------------- */

enum tri_grammar_kind {
    TRI_GRAMMAR_TEXT,   /* anything */
    TRI_GRAMMAR_JSON,   /* an object */
    TRI_GRAMMAR_SCHEMA, /* a JSON value of `schema` */
    TRI_GRAMMAR_CHOICE, /* one of the strings in the list `schema`, as plain text */
    TRI_GRAMMAR_REGEX   /* plain text that the pattern (string `schema`) matches whole */
};

enum tri_grammar_calls { TRI_GRAMMAR_NO_CALLS, TRI_GRAMMAR_MAY_CALL, TRI_GRAMMAR_MUST_CALL };

struct tri_grammar_request {
    /* What the prompt opened; NONE: no chat, the value alone and then one of `end_ids`. */
    enum tri_channel start;
    enum tri_grammar_kind kind;
    const json_t *schema;
    const char *schema_name; /* how errors name it: "response_format.json_schema.schema" */
    enum tri_grammar_calls calls;
    /* Declarations of OpenAI's or Anthropic's form: {"function": {"name", "parameters"}}, or these
     * members without "function" around them; "input_schema" is another word for parameters. */
    const json_t *tools;
    const char *only_tool; /* a name: no other may be called */
    bool one_call;         /* at most one */
    uint64_t most_work;    /* steps of compiling, TRI_LIMIT beyond; 0: TRI_GRAMMAR_MAX_WORK */
    const int32_t *end_ids;
    size_t n_end_ids;
};

struct tri_grammar;

/*
 * A tool whose parameters are outside the subset is refused only if it says "strict": true;
 * otherwise its arguments may be anything. The request is not kept.
 */
TRI_MUST_CHECK enum tri_status tri_grammar_compile(struct tri_grammar **out,
                                                   struct tri_grammar_vocab *vocab,
                                                   const struct tri_grammar_request *request,
                                                   struct tri_error *err);
struct tri_grammar *tri_grammar_keep(struct tri_grammar *grammar); /* one reference more */
void tri_grammar_drop(struct tri_grammar *grammar);                /* one less; NULL is fine */

struct tri_grammar_stats {
    size_t nodes;                 /* of the network */
    uint64_t masks, mask_hits;    /* computed; found in the cache */
    uint64_t mask_ns, slowest_ns; /* of computing */
    uint64_t cache_bytes;
};
void tri_grammar_read_stats(struct tri_grammar *grammar, struct tri_grammar_stats *out);

/* ---- matcher -------------------------------------------------------------------------------- */

struct tri_matcher;

/* At the grammar's start; keeps a reference. */
TRI_MUST_CHECK enum tri_status tri_matcher_open(struct tri_matcher **out,
                                                struct tri_grammar *grammar, struct tri_error *err);
void tri_matcher_close(struct tri_matcher *matcher);
/*
 * Which ids may come next: bit i % 64 of word i / 64, tri_matcher_words() of them; valid until the
 * next call on the matcher. NULL after a failure (TRI_LIMIT: ambiguous beyond bounds; TRI_NOMEM).
 */
const uint64_t *tri_matcher_allowed(struct tri_matcher *matcher, struct tri_error *err);
size_t tri_matcher_words(const struct tri_matcher *matcher);
/* Takes a token. False: it was not allowed; the matcher is where it was. */
bool tri_matcher_take(struct tri_matcher *matcher, int32_t id);
/* The grammar's end was reached: nothing may follow. */
bool tri_matcher_done(const struct tri_matcher *matcher);

/* ---- compiled grammars that are kept -------------------------------------------------------- */

enum { TRI_GRAMMAR_KEPT = 16 }; /* least recently used go first */

struct tri_grammar_cache; /* any thread */
TRI_MUST_CHECK enum tri_status tri_grammar_cache_open(struct tri_grammar_cache **out,
                                                      struct tri_error *err);
void tri_grammar_cache_close(struct tri_grammar_cache *cache);
/* A new reference to the grammar kept under these bytes, or NULL. */
struct tri_grammar *tri_grammar_cache_find(struct tri_grammar_cache *cache, const char *key,
                                           size_t bytes);
/* Keeps a reference of its own; without memory it does not. */
void tri_grammar_cache_add(struct tri_grammar_cache *cache, const char *key, size_t bytes,
                           struct tri_grammar *grammar);
/* Lets go of all of them. */
void tri_grammar_cache_clear(struct tri_grammar_cache *cache);
struct tri_grammar_cache_stats {
    uint64_t hits, misses, added;
    size_t kept;
};
void tri_grammar_cache_read_stats(struct tri_grammar_cache *cache,
                                  struct tri_grammar_cache_stats *out);

#endif
