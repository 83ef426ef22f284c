/* Inside the grammar room: the network, how it is built, and sets of ways through it. */
#ifndef TRI_GRAMMAR_PRIV_H
#define TRI_GRAMMAR_PRIV_H

#include "grammar/grammar.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- vocab: token_trie.c ---- */

/*
 * Tokens in three classes by what their bytes may stand in without a look at them one by one:
 * inside any JSON string and what a pattern's `.` matches; inside any raw text; or neither (a piece
 * of a character).
 */
enum tri__class { TRI__PLAIN, TRI__RAW, TRI__PIECES, TRI__CLASSES };

/* Nodes in preorder; a node's subtree ends before `end`. */
struct tri__trie {
    uint32_t n, cap;
    uint8_t *byte;
    uint16_t *depth; /* from 1 */
    int32_t *id;     /* token that ends here, or -1 */
    uint32_t *end;
};

struct tri_grammar_vocab {
    const struct tri_tokenizer *tok;
    struct tri_budget *budget; /* or NULL */
    uint64_t counted_bytes;
    struct tri_chat_ids chat;
    bool has_chat;
    int32_t ranks;
    size_t words; /* of a mask over all ids */
    uint32_t longest_bytes;
    struct tri__trie trie[TRI__CLASSES];
    /* Tokens of PLAIN and RAW by their number of characters, and whole-class masks. */
    int32_t *by_chars[2];
    uint32_t *chars_end[2]; /* [longest_bytes + 1]: tokens of at most so many characters */
    uint64_t *all[2];       /* [words] */
    uint64_t *all_ranks;    /* [words] */
};

/* ---- the network: net.c ---- */

enum { TRI__NOWHERE = 0 }; /* node 0: a dead end */
enum { TRI__MANY = UINT32_MAX };

enum tri__op {
    TRI__OP_FAIL,
    TRI__OP_SET,    /* one byte: ranges [a, a + n) tell where to */
    TRI__OP_MARKER, /* the id a, then b */
    TRI__OP_FORK,   /* a or b */
    TRI__OP_CALL,   /* a up to its END, then b */
    TRI__OP_LOOP,   /* loops[a] */
    TRI__OP_PICK,   /* picks[a] */
    TRI__OP_TEXT,   /* any bytes, then a */
    TRI__OP_END     /* of what was called; of everything when nothing was */
};

struct tri__node {
    uint8_t op;
    uint8_t free;   /* SET: 0, or 1 + a class whose every token passes a run of this node */
    bool then_ends; /* and what follows the repeat takes no token of that class */
    uint16_t n;
    uint32_t a, b;
};

struct tri__range {
    uint8_t lo, hi;
    uint32_t next;
};

/* `body` (to its END) min to max times (MANY: no end), then `next`. run: of one character each. */
struct tri__loop {
    uint32_t body, next, min, max;
    bool run;
};

/*
 * Each of `way` (bodies to their END) at most once, those in `must` for certain, in any order, then
 * `next`. Once those in `must` were there, `extra`, if any, as often as one likes.
 */
struct tri__pick {
    uint32_t first, n, next, extra; /* ways: pick_ways[first...] */
    uint64_t must;
};

struct tri__net {
    struct tri__node *node;
    struct tri__range *range;
    struct tri__loop *loop;
    struct tri__pick *pick;
    uint32_t *way;
    uint16_t *need;  /* [n_nodes]: the fewest frames more that an end takes from here */
    uint16_t *least; /* [n_nodes]: at least so many bytes to it; a marker counts as many */
    uint32_t n_nodes, n_ranges, n_loops, n_picks, n_ways;
    uint32_t cap_nodes, cap_ranges, cap_loops, cap_picks, cap_ways;
    uint32_t start;
};

/* How a character is written. */
enum tri__coding {
    TRI__JSON_STRING, /* as Python's json.dumps(ensure_ascii=False) does */
    TRI__RAW_TEXT,
    TRI__ATTRIBUTE /* &amp; and &quot;, nothing else (spec 6.1) */
};

/* A rule for a $ref: the target under a coding and a set of types. */
struct tri__rule {
    const json_t *schema;
    unsigned types;
    bool raw;
    uint32_t start; /* a FORK to be filled in */
};

struct tri__build {
    struct tri__net *net;
    const struct tri_grammar_vocab *vocab;
    struct tri_error *err;
    enum tri_status failed; /* sticky */
    uint64_t work, most_work;
    const json_t *root;    /* of the schema that is read now, for $ref */
    const char *root_name; /* of it, for errors */
    struct tri_buf path;   /* below it */
    struct tri__rule *rule;
    uint32_t n_rules, cap_rules;
    uint32_t depth;
    bool loose;          /* oneOf is taken as anyOf */
    uint32_t any_value;  /* a shared rule, 0: not made yet */
    uint32_t end;        /* an END node */
    struct tri_buf text; /* literals being written */
};

void tri__net_fini(struct tri__net *net);
enum tri_status tri__build_init(struct tri__build *b, struct tri__net *net, struct tri_error *err);
void tri__build_fini(struct tri__build *b);
/* Fails the build (the first failure stays); returns TRI__NOWHERE. */
uint32_t tri__build_fail(struct tri__build *b, enum tri_status status, const char *format, ...)
    TRI_PRINTF(3, 4);
/* Counts steps of compiling; false: over the limit. */
bool tri__build_work(struct tri__build *b, uint64_t steps);

/* Each makes a part that goes on at `next` and returns where it starts; dead parts vanish. */
uint32_t tri__put_set(struct tri__build *b, const struct tri__range *ranges, uint32_t n);
uint32_t tri__put_byte(struct tri__build *b, uint8_t lo, uint8_t hi, uint32_t next);
uint32_t tri__put_text(struct tri__build *b, const char *bytes, size_t n, uint32_t next);
uint32_t tri__put_marker(struct tri__build *b, int32_t id, uint32_t next);
uint32_t tri__put_fork(struct tri__build *b, uint32_t x, uint32_t y);
uint32_t tri__put_call(struct tri__build *b, uint32_t rule, uint32_t next);
uint32_t tri__put_loop(struct tri__build *b, uint32_t body, uint32_t min, uint32_t max,
                       uint32_t next);
/* The same over a part that is one character. */
uint32_t tri__put_run(struct tri__build *b, uint32_t one, uint32_t min, uint32_t max,
                      uint32_t next);
uint32_t tri__put_free(struct tri__build *b, uint32_t next); /* any bytes */
uint32_t tri__put_pick(struct tri__build *b, const struct tri__pick *pick, const uint32_t *ways);
/* A start that is known before what it leads to; filled by tri__fill_hole. */
uint32_t tri__put_hole(struct tri__build *b);
void tri__fill_hole(struct tri__build *b, uint32_t hole, uint32_t start);
/* outlook.c: fills net->need and least; TRI_UNSUPPORTED when no end can be reached. */
enum tri_status tri__net_finish(struct tri__build *b);

/* ---- characters: characters.c ---- */

struct tri__span {
    uint32_t lo, hi; /* code points */
};
/* One character of `spans` (sorted, disjoint), written in `coding`. */
uint32_t tri__put_character(struct tri__build *b, const struct tri__span *spans, size_t n,
                            enum tri__coding coding, uint32_t next);
/* Any character, also by JSON's other escapes; a loop over it is known to be free. */
uint32_t tri__put_any_character(struct tri__build *b, enum tri__coding coding, uint32_t next);
/* Any number of them. */
uint32_t tri__put_any_string(struct tri__build *b, enum tri__coding coding, uint32_t min,
                             uint32_t max, uint32_t next);
/* `text` (valid UTF-8) in that coding, into `out`. */
void tri__write_coded(struct tri_buf *out, const char *text, size_t n, enum tri__coding coding);

/* Alternatives as one tree: `text` in bytes, then `next`. Sorts the list. */
struct tri__literal {
    const char *text;
    size_t bytes;
    uint32_t next;
};
uint32_t tri__put_literals(struct tri__build *b, struct tri__literal *list, size_t n);
/* A string in `coding` that is none of `names`. */
uint32_t tri__put_other_than(struct tri__build *b, const char *const *names, size_t n,
                             enum tri__coding coding, uint32_t next);

/* ---- patterns: pattern.c, formats.c ---- */

/*
 * Text that matches. whole: as if anchored; otherwise anywhere, unless ^ and $ say so. *min and
 * *max (MANY: no end), if not NULL, get the numbers of characters that it may have.
 */
struct tri__pattern {
    const char *text;
    size_t bytes;
    bool whole;
    enum tri__coding coding;
    uint32_t min, max; /* out: characters that a match may have */
};
uint32_t tri__put_pattern(struct tri__build *b, struct tri__pattern *p, uint32_t next);
/* The pattern of a "format", NULL if there is none. */
const char *tri__format_pattern(const char *name);

/* ---- numbers: numbers.c ---- */

struct tri__bounds {
    bool has_min, has_max, open_min, open_max; /* open: the bound itself is not in */
    int64_t min, max;
};
uint32_t tri__put_integer(struct tri__build *b, const struct tri__bounds *bounds, uint32_t next);
uint32_t tri__put_number(struct tri__build *b, const struct tri__bounds *bounds, uint32_t next);

/* ---- schemas: schema.c, schema_parts.c ---- */

enum {
    TRI__NULL = 1,
    TRI__BOOLEAN = 2,
    TRI__INTEGER = 4,
    TRI__NUMBER = 8, /* with a point */
    TRI__STRING = 16,
    TRI__ARRAY = 32,
    TRI__OBJECT = 64,
    TRI__ANY_TYPE = 127
};

/* A value of `schema` that has one of `types`. raw: a string without quotes (an argument). */
struct tri__value_of {
    const json_t *schema;
    unsigned types;
    bool raw;
};
uint32_t tri__put_value(struct tri__build *b, const struct tri__value_of *v, uint32_t next);
/* The argument elements of a call whose parameters are `schema`. */
uint32_t tri__put_arguments(struct tri__build *b, const json_t *schema, uint32_t next);
/* Arguments of any names and types. */
uint32_t tri__put_any_arguments(struct tri__build *b, uint32_t next);

uint32_t tri__put_space(struct tri__build *b, uint32_t next); /* between JSON tokens */
uint32_t tri__put_any_value(struct tri__build *b, unsigned types, bool raw, uint32_t next);
uint32_t tri__put_object(struct tri__build *b, const json_t *schema, uint32_t next);
uint32_t tri__put_array(struct tri__build *b, const json_t *schema, uint32_t next);
uint32_t tri__put_string(struct tri__build *b, const json_t *schema, bool raw, uint32_t next);

/* Where the reader is, for errors: steps down and back up. */
size_t tri__path_down(struct tri__build *b, const char *format, ...) TRI_PRINTF(2, 3);
void tri__path_up(struct tri__build *b, size_t was);
uint32_t tri__refuse(struct tri__build *b, const char *keyword, const char *why);
/* A count keyword: 0..MAX_REPEAT; absent: *out stays. */
bool tri__read_count(struct tri__build *b, const json_t *schema, const char *keyword,
                     uint32_t *out);
/* What a $ref leads to, or NULL. */
const json_t *tri__resolve(const json_t *root, const json_t *reference);
/* Types of the values that are made for a schema: as declared, else those its keywords are about.
 * Refuses what is no type. */
unsigned tri__types_made(struct tri__build *b, const json_t *schema);
unsigned tri__type_of(const json_t *value);
/* one_of.c: refuses a list of schemas of which two may hold for one value. */
void tri__check_one_of(struct tri__build *b, const json_t *list);
/* What additionalProperties says; no properties and no word: anything goes. */
const json_t *tri__additional(const json_t *schema);

/* ---- the chat frame: reply_frame.c ---- */

uint32_t tri__put_reply(struct tri__build *b, const struct tri_grammar_request *request);
uint32_t tri__put_open(struct tri__build *b, const char *tag, uint32_t next);
uint32_t tri__put_close(struct tri__build *b, const char *tag, uint32_t next);

/* ---- sets of ways: ways.c ---- */

/*
 * A frame: what was called returns to `node`. With TRI__AGAIN the node is a LOOP or a PICK whose
 * body ran, and what is left of it stands beside.
 */
#define TRI__AGAIN 0x80000000u
struct tri__frame {
    uint32_t below, node, depth;
    uint32_t x, y; /* LOOP: at least, at most so many more; PICK: taken, two halves */
};

struct tri__way {
    uint32_t node, frame;
};

struct tri__pool {
    const struct tri__net *net;
    struct tri__frame *frame; /* 0: the bottom */
    uint32_t n_frames, cap_frames;
    uint32_t *table; /* hash of frames */
    uint32_t table_mask;
    /* scratch of closing */
    struct tri__way *todo;
    uint64_t *seen; /* [SEEN] */
    uint32_t *seen_at;
    uint32_t stamp;
    uint64_t spent;         /* steps */
    enum tri_status failed; /* no memory */
};

struct tri__set {
    struct tri__way way[TRI_GRAMMAR_MAX_WAYS];
    uint32_t n;
    bool end; /* the grammar's end is reached */
};

enum tri_status tri__pool_init(struct tri__pool *pool, const struct tri__net *net);
void tri__pool_fini(struct tri__pool *pool);
void tri__pool_clear(struct tri__pool *pool);
void tri__pool_shrink(struct tri__pool *pool);
uint32_t tri__pool_frame(struct tri__pool *pool, const struct tri__frame *frame);
void tri__set_start(struct tri__pool *pool, struct tri__set *out);
void tri__set_byte(struct tri__pool *pool, const struct tri__way *in, uint32_t n, uint8_t byte,
                   struct tri__set *out);
void tri__set_marker(struct tri__pool *pool, const struct tri__way *in, uint32_t n, int32_t id,
                     struct tri__set *out);

/* ---- masks: mask.c ---- */

struct tri__state {
    uint32_t first, n; /* ways */
    uint64_t hash;
    uint32_t *row; /* [256]: 0 not known, 1 nowhere, else state + 2 */
    uint64_t *mask;
};

struct tri__masks {
    struct tri__pool pool;
    struct tri__way *way;
    uint32_t n_ways, cap_ways;
    struct tri__state *state;
    uint32_t n_states;
    uint32_t *table;
    uint32_t table_mask;
    uint32_t *depth_state; /* [longest token + 1] */
    uint64_t bytes;
    bool full;
    struct tri__set scratch;
};

struct tri_grammar {
    struct tri_grammar_vocab *vocab;
    struct tri__net net;
    atomic_int references;
    pthread_mutex_t lock; /* guards what follows */
    struct tri__masks masks;
    struct tri_grammar_stats stats;
    uint64_t counted_bytes;
};

/* Memory that is held on the budget: from *counted to `now` bytes; on failure *counted stays. */
enum tri_status tri__grammar_count(const struct tri_grammar_vocab *vocab, uint64_t *counted,
                                   uint64_t now, struct tri_error *err);
uint64_t tri__net_bytes(const struct tri__net *net);
uint64_t tri__pool_bytes(const struct tri__pool *pool);
uint64_t tri__masks_bytes(const struct tri__masks *m, const struct tri_grammar_vocab *vocab);

enum tri_status tri__masks_init(struct tri__masks *m, const struct tri_grammar_vocab *vocab,
                                const struct tri__net *net);
void tri__masks_fini(struct tri__masks *m);
/* Copies the mask of a set of `pool` to out[words]. */
enum tri_status tri__masks_get(struct tri_grammar *g, const struct tri__pool *pool,
                               const struct tri__set *set, uint64_t *out, struct tri_error *err);

#endif
