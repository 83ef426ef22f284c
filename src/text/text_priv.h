/* What the files of this room share. The door is text.h. */
#ifndef TRI_TEXT_TEXT_PRIV_H
#define TRI_TEXT_TEXT_PRIV_H

#include "text/text.h"

/* ---- utf8.c: valid UTF-8 only ---- */

/* The code point at *at, which moves past it. */
uint32_t tri__text_utf8_next(const char **at);
/* Python's str.isspace for one code point. */
bool tri__text_is_space(uint32_t c);
/* True if there is nothing but such characters (also for no text at all). */
bool tri__text_is_blank(const char *text, size_t bytes);

/* ---- token_table.c: byte strings to ids ---- */

/* Open addressing, at most half full; the hash is kept beside the id to spare most comparisons. */
struct tri__token_slot {
    uint32_t hash;
    int32_t id; /* -1: free */
};
struct tri__token_table {
    struct tri__token_slot *slots;
    uint32_t mask;
};

struct tri_tokenizer {
    int32_t ranks, tokens;
    char *blob;       /* the bytes of all tokens */
    uint32_t *start;  /* [tokens] where in blob */
    uint16_t *length; /* [tokens] bytes; 0: no such token */
    int32_t byte_id[256];
    uint32_t longest_rank_bytes;
    struct tri__token_table by_bytes; /* ranks */
    struct tri__token_table by_name;  /* added tokens */
    uint16_t *name_lengths;           /* distinct lengths of added tokens, longest first */
    uint32_t name_length_count;
    bool starts_name[256]; /* first bytes of added tokens */
    struct tri__splitter *splitter;
};

enum tri_status tri__token_table_init(struct tri__token_table *table, size_t entries);
void tri__token_table_fini(struct tri__token_table *table);
/* The id of these bytes, -1 if there is none. */
int32_t tri__token_find(const struct tri_tokenizer *tok, const struct tri__token_table *table,
                        const char *bytes, size_t count);
/* Adds token `id` (its bytes must be in place). Returns -1, or the id that has these bytes. */
int32_t tri__token_insert(const struct tri_tokenizer *tok, struct tri__token_table *table,
                          int32_t id);

/* ---- vocab.c, added.c: loading ---- */

TRI_MUST_CHECK enum tri_status tri__vocab_read(struct tri_tokenizer *tok, const char *name,
                                               const char *text, size_t bytes,
                                               struct tri_error *err);
/* `config` NULL: K3's names if the number of ranks is K3's, else none. */
TRI_MUST_CHECK enum tri_status tri__added_read(struct tri_tokenizer *tok, const char *name,
                                               const char *config, size_t bytes,
                                               struct tri_error *err);

/* ---- split.c: text to pieces ---- */

struct tri__splitter; /* the compiled pattern; shared by threads */
TRI_MUST_CHECK enum tri_status tri__splitter_open(struct tri__splitter **out,
                                                  struct tri_error *err);
void tri__splitter_close(struct tri__splitter *splitter);

struct tri__split_work; /* match data and stack of one thread */
TRI_MUST_CHECK enum tri_status tri__split_work_open(struct tri__split_work **out,
                                                    const struct tri__splitter *splitter,
                                                    struct tri_error *err);
void tri__split_work_close(struct tri__split_work *work);
/* Bytes of the first pre-token of `text` (bytes > 0, valid UTF-8). */
TRI_MUST_CHECK enum tri_status tri__split_next(struct tri__split_work *work, const char *text,
                                               size_t bytes, size_t *token_bytes,
                                               struct tri_error *err);

/* The cuts that the reference makes before its pattern. Zero-initialise; see split.c. */
struct tri__slicer {
    size_t slice_left, run;
    bool in_space;
};
/* Bytes of the next slice of `text` (bytes > 0, valid UTF-8). */
size_t tri__slice_next(struct tri__slicer *slicer, const char *text, size_t bytes);

/* ---- bpe.c: merging ---- */

/* Arrays as long as the longest pre-token so far. Zero-initialise. */
struct tri__bpe_work {
    uint32_t *next, *prev;
    int32_t *id, *pair;
    uint64_t *heap;
    size_t heap_count, cap_bytes;
};
void tri__bpe_work_fini(struct tri__bpe_work *work);
/* Appends the ids of one pre-token (bytes > 0). TRI_NOMEM at worst. */
TRI_MUST_CHECK enum tri_status tri__bpe_encode(const struct tri_tokenizer *tok,
                                               struct tri__bpe_work *work, const char *text,
                                               size_t bytes, struct tri_ids *ids);

/* ---- encode.c ---- */

/* What encoding needs beside the vocabulary; reused over the segments of one prompt. */
struct tri__encoder {
    const struct tri_tokenizer *tok;
    struct tri__split_work *split;
    struct tri__bpe_work bpe;
};
TRI_MUST_CHECK enum tri_status tri__encoder_init(struct tri__encoder *encoder,
                                                 const struct tri_tokenizer *tok,
                                                 struct tri_error *err);
void tri__encoder_fini(struct tri__encoder *encoder);
TRI_MUST_CHECK enum tri_status tri__encode(struct tri__encoder *encoder, const char *text,
                                           size_t bytes, enum tri_encode_mode mode,
                                           struct tri_ids *ids, struct tri_error *err);

/* ---- arena.c: memory that is given back all at once ---- */

struct tri__arena_block;
/* Zero-initialise but for max_bytes. */
struct tri__arena {
    struct tri__arena_block *last;
    size_t max_bytes, used_bytes;
    enum tri_status failed; /* sticky: TRI_LIMIT or TRI_NOMEM */
};
void tri__arena_fini(struct tri__arena *arena);
/* Aligned for anything; NULL after a failure. */
void *tri__arena_alloc(struct tri__arena *arena, size_t bytes);

/* ---- py_json.c, py_number.c: JSON as Python's json module reads and prints it ---- */

enum tri__json_type {
    TRI__JSON_NULL,
    TRI__JSON_FALSE,
    TRI__JSON_TRUE,
    TRI__JSON_INT,
    TRI__JSON_FLOAT,
    TRI__JSON_STRING,
    TRI__JSON_ARRAY,
    TRI__JSON_OBJECT,
};

/*
 * A value. Numbers keep their source text. A string is decoded; a lone surrogate stands in it as
 * the three bytes that no valid UTF-8 has. Members are in source order; of equal keys the first
 * place and the last value remain.
 */
struct tri__json {
    enum tri__json_type type;
    size_t bytes;                   /* of text */
    const char *text;               /* numbers, strings */
    size_t key_bytes;               /* of key */
    const char *key;                /* of a member */
    size_t count;                   /* of children */
    struct tri__json *child, *next; /* the first child; the next sibling */
};

enum tri__json_dialect {
    TRI__JSON_PYTHON, /* NaN, Infinity and -Infinity are values */
    TRI__JSON_STRICT,
};

/*
 * Reads one value, which lives as long as the arena and `text`. TRI_FORMAT: not JSON ("line 1,
 * column 5: ..."); TRI_LIMIT: nesting, digits of an integer (which Python refuses too), memory.
 */
TRI_MUST_CHECK enum tri_status tri__json_read(struct tri__json **out, struct tri__arena *arena,
                                              const char *text, size_t bytes,
                                              enum tri__json_dialect dialect,
                                              struct tri_error *err);
/* The member of this name, NULL if there is none or `object` is no object. */
const struct tri__json *tri__json_get(const struct tri__json *object, const char *key);
bool tri__json_is(const struct tri__json *value, const char *text); /* is that string */

enum tri__json_style {
    TRI__JSON_SPACED, /* json.dumps(v, ensure_ascii=False): ", " and ": ", order kept */
    TRI__JSON_SORTED, /* keys sorted deeply by code point, "," and ":" */
};
enum tri_status tri__json_write(struct tri_buf *out, const struct tri__json *value,
                                enum tri__json_style style);
/* The inside of tri_json_quote. */
enum tri_status tri__json_escape(struct tri_buf *out, const char *text, size_t bytes);
/* The number as Python prints it: int(text) or repr(float(text)). */
enum tri_status tri__json_put_number(struct tri_buf *out, const struct tri__json *value);

#endif
