/*
 * A tokenizer's ordinary tokens as tries of bytes in preorder: a walk visits shared prefixes once
 * and skips a subtree by one jump. Split in three by what a token may stand in as a whole, so that
 * inside a string, where nearly all tokens fit, only the few that may not are looked at.
 */
#include "grammar/grammar_priv.h"

#include <stdlib.h>
#include <string.h>
#include "base/mem.h"

struct entry {
    const char *text;
    size_t bytes;
    int32_t id;
    uint32_t chars;
};

static int by_bytes(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    size_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->text, y->text, n);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static enum tri__class class_of(struct entry *e)
{
    if (tri_utf8_valid(e->text, e->bytes) != e->bytes)
        return TRI__PIECES;
    enum tri__class class = TRI__PLAIN;
    e->chars = 0;
    for (size_t i = 0; i < e->bytes; i++) {
        unsigned char c = (unsigned char)e->text[i];
        bool line = c == 0xe2 && (unsigned char)e->text[i + 1] == 0x80 &&
                    ((unsigned char)e->text[i + 2] | 1) == 0xa9; /* U+2028, U+2029 */
        if (c < 0x20 || c == '"' || c == '\\' || line)
            class = TRI__RAW;
        e->chars += (c & 0xc0) != 0x80;
    }
    return class;
}

static bool trie_room(struct tri__trie *t, uint32_t nodes)
{
    t->cap = nodes;
    t->byte = tri_malloc(nodes + 1u);
    t->depth = tri_malloc((nodes + 1u) * sizeof *t->depth);
    t->id = tri_malloc((nodes + 1u) * sizeof *t->id);
    t->end = tri_malloc((nodes + 1u) * sizeof *t->end);
    return t->byte && t->depth && t->id && t->end;
}

static size_t shared_bytes(const struct entry *a, const struct entry *b)
{
    size_t n = a->bytes < b->bytes ? a->bytes : b->bytes, i = 0;
    while (i < n && a->text[i] == b->text[i])
        i++;
    return i;
}

/* list is sorted. */
static bool trie_fill(struct tri__trie *t, const struct entry *list, size_t n)
{
    uint32_t nodes = 0;
    for (size_t i = 0; i < n; i++)
        nodes += (uint32_t)(list[i].bytes - (i ? shared_bytes(&list[i - 1], &list[i]) : 0));
    if (!trie_room(t, nodes))
        return false;
    for (size_t i = 0; i < n; i++) {
        size_t at = i ? shared_bytes(&list[i - 1], &list[i]) : 0;
        for (; at < list[i].bytes; at++) {
            t->byte[t->n] = (uint8_t)list[i].text[at];
            t->depth[t->n] = (uint16_t)(at + 1);
            t->id[t->n] = at + 1 == list[i].bytes ? list[i].id : -1;
            t->n++;
        }
    }
    for (uint32_t i = t->n; i-- > 0;) {
        uint32_t end = i + 1; /* over whole subtrees to the next node that is no deeper */
        while (end < t->n && t->depth[end] > t->depth[i])
            end = t->end[end];
        t->end[i] = end;
    }
    return true;
}

/* Tokens of a whole class by characters, and their mask. */
static bool fill_class(struct tri_grammar_vocab *v, enum tri__class class, const struct entry *list,
                       size_t n)
{
    uint32_t *end = tri_calloc(v->longest_bytes + 2u, sizeof *end);
    int32_t *ids = tri_malloc((n + 1) * sizeof *ids);
    uint64_t *mask = tri_calloc(v->words, sizeof *mask);
    v->chars_end[class] = end;
    v->by_chars[class] = ids;
    v->all[class] = mask;
    if (!end || !ids || !mask)
        return false;
    for (size_t i = 0; i < n; i++)
        end[list[i].chars + 1]++;
    for (uint32_t c = 1; c <= v->longest_bytes + 1; c++)
        end[c] += end[c - 1];
    /* end[c] is where c's run starts; filling moves it to where it ends */
    for (size_t i = 0; i < n; i++) {
        ids[end[list[i].chars]++] = list[i].id;
        mask[list[i].id / 64] |= 1ull << list[i].id % 64;
    }
    return true;
}

static bool fill(struct tri_grammar_vocab *v, struct entry *list, uint8_t *class, size_t n)
{
    struct entry *some = tri_malloc((n + 1) * sizeof *some);
    bool ok = some != NULL;
    for (int c = 0; c < TRI__CLASSES && ok; c++) {
        size_t m = 0;
        for (size_t i = 0; i < n; i++)
            if (class[list[i].id] == c)
                some[m++] = list[i];
        ok = trie_fill(&v->trie[c], some, m) &&
             (c == TRI__PIECES || fill_class(v, (enum tri__class)c, some, m));
    }
    tri_free(some);
    return ok;
}

static bool read_tokens(struct tri_grammar_vocab *v)
{
    struct entry *list = tri_calloc((size_t)v->ranks + 1, sizeof *list);
    uint8_t *class = tri_calloc((size_t)v->ranks + 1, 1);
    v->all_ranks = tri_calloc(v->words, sizeof *v->all_ranks);
    bool ok = list && class && v->all_ranks;
    for (int32_t id = 0; id < v->ranks && ok; id++) {
        struct entry *e = &list[id];
        e->id = id;
        e->text = tri_token_bytes(v->tok, id, &e->bytes);
        class[id] = (uint8_t)class_of(e);
        v->all_ranks[id / 64] |= 1ull << id % 64;
        if (e->bytes > v->longest_bytes)
            v->longest_bytes = (uint32_t)e->bytes;
    }
    if (ok) {
        qsort(list, (size_t)v->ranks, sizeof *list, by_bytes);
        ok = fill(v, list, class, (size_t)v->ranks);
    }
    tri_free(list);
    tri_free(class);
    return ok;
}

static uint64_t held_bytes(const struct tri_grammar_vocab *v)
{
    uint64_t bytes = 3 * v->words * sizeof *v->all_ranks + (uint64_t)v->ranks * sizeof(int32_t);
    for (int c = 0; c < TRI__CLASSES; c++) {
        const struct tri__trie *t = &v->trie[c];
        bytes +=
            (t->cap + 1u) * (sizeof *t->byte + sizeof *t->depth + sizeof *t->id + sizeof *t->end);
    }
    return bytes;
}

enum tri_status tri_grammar_vocab_open(struct tri_grammar_vocab **out,
                                       const struct tri_tokenizer *tok, struct tri_budget *budget,
                                       struct tri_error *err)
{
    struct tri_grammar_vocab *v = tri_calloc(1, sizeof *v);
    if (!v)
        return tri_fail(err, TRI_NOMEM, "no memory for the vocabulary of grammars");
    v->tok = tok;
    v->budget = budget;
    v->ranks = tri_tokenizer_ranks(tok);
    v->words = ((size_t)tri_tokenizer_tokens(tok) + 63) / 64;
    v->has_chat = tri_chat_ids_find(&v->chat, tok, NULL) == TRI_OK;
    if (!read_tokens(v)) {
        tri_grammar_vocab_close(v);
        return tri_fail(err, TRI_NOMEM, "no memory for the vocabulary of grammars");
    }
    enum tri_status st = tri__grammar_count(v, &v->counted_bytes, held_bytes(v), err);
    if (st == TRI_OK)
        *out = v;
    else
        tri_grammar_vocab_close(v);
    return st;
}

void tri_grammar_vocab_close(struct tri_grammar_vocab *vocab)
{
    if (!vocab)
        return;
    (void)tri__grammar_count(vocab, &vocab->counted_bytes, 0, NULL);
    for (int c = 0; c < TRI__CLASSES; c++) {
        struct tri__trie *t = &vocab->trie[c];
        tri_free(t->byte);
        tri_free(t->depth);
        tri_free(t->id);
        tri_free(t->end);
        if (c == TRI__PIECES)
            continue;
        tri_free(vocab->by_chars[c]);
        tri_free(vocab->chars_end[c]);
        tri_free(vocab->all[c]);
    }
    tri_free(vocab->all_ranks);
    tri_free(vocab);
}
