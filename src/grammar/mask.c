/*
 * Token masks. A set of ways becomes a state; states know where each byte leads once it was asked,
 * and their mask once it was computed. Counts far from their ends are cut to the longest token's
 * length first: no token can tell them apart, so a string of at most 500 characters has one mask
 * for nearly all of its length. The cache belongs to the grammar, is bounded, and when full is
 * forgotten as a whole: matchers hold their own ways and only look masks up here.
 */
#include "grammar/grammar_priv.h"

#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"

enum {
    FIRST_WAYS = 4096,
    MAX_STATES = 6144,        /* each has a row of 1 KiB once it is walked from */
    MAX_WAYS_HELD = 1 << 20,  /* of all states */
    MAX_MASK_BYTES = 4 << 20, /* of all masks */
    MAX_SPENT = 6000000,      /* steps for one mask: under half a second */
    STATE_TABLE = 16384
};

enum { NOT_KNOWN = 0, NOWHERE = 1, FIRST_STATE = 2 };

enum tri_status tri__masks_init(struct tri__masks *m, const struct tri_grammar_vocab *vocab,
                                const struct tri__net *net)
{
    *m = (struct tri__masks){ .table_mask = STATE_TABLE - 1 };
    m->cap_ways = FIRST_WAYS;
    m->way = tri_malloc(m->cap_ways * sizeof *m->way);
    m->state = tri_calloc(MAX_STATES, sizeof *m->state);
    m->table = tri_calloc(STATE_TABLE, sizeof *m->table);
    m->depth_state = tri_calloc(vocab->longest_bytes + 1u, sizeof *m->depth_state);
    if (m->way && m->state && m->table && m->depth_state && tri__pool_init(&m->pool, net) == TRI_OK)
        return TRI_OK;
    tri__masks_fini(m);
    return TRI_NOMEM;
}

uint64_t tri__masks_bytes(const struct tri__masks *m, const struct tri_grammar_vocab *vocab)
{
    return m->cap_ways * sizeof *m->way + MAX_STATES * sizeof *m->state +
           STATE_TABLE * sizeof *m->table + (vocab->longest_bytes + 1u) * sizeof *m->depth_state +
           tri__pool_bytes(&m->pool) + m->bytes;
}

static void forget(struct tri__masks *m)
{
    for (uint32_t i = 0; i < m->n_states; i++) {
        tri_free(m->state[i].row);
        tri_free(m->state[i].mask);
    }
    m->n_states = m->n_ways = 0;
    m->bytes = 0;
    m->full = false;
    if (m->table)
        memset(m->table, 0, STATE_TABLE * sizeof *m->table);
    if (m->pool.table)
        tri__pool_shrink(&m->pool);
    struct tri__way *way = tri_realloc(m->way, FIRST_WAYS * sizeof *way);
    if (way) {
        m->way = way;
        m->cap_ways = FIRST_WAYS;
    }
}

void tri__masks_fini(struct tri__masks *m)
{
    forget(m);
    tri__pool_fini(&m->pool);
    tri_free(m->way);
    tri_free(m->state);
    tri_free(m->table);
    tri_free(m->depth_state);
    *m = (struct tri__masks){ 0 };
}

static int by_place(const void *a, const void *b)
{
    const struct tri__way *x = a, *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return (x->frame > y->frame) - (x->frame < y->frame);
}

static uint64_t hash_ways(const struct tri__way *way, uint32_t n)
{
    uint64_t h = n;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ ((uint64_t)way[i].frame << 32 | way[i].node)) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h;
}

static bool ways_room(struct tri__masks *m, uint32_t n)
{
    if (m->n_ways + n <= m->cap_ways)
        return true;
    uint32_t cap = m->cap_ways * 2;
    struct tri__way *more = cap > MAX_WAYS_HELD ? NULL : tri_realloc(m->way, cap * sizeof *more);
    if (!more)
        return false;
    m->way = more;
    m->cap_ways = cap;
    return m->n_ways + n <= cap;
}

/* The state of m->scratch, made if there is none; NOWHERE - FIRST_STATE wraps: no room. */
static bool find_state(struct tri__masks *m, uint32_t *out)
{
    struct tri__set *set = &m->scratch;
    qsort(set->way, set->n, sizeof *set->way, by_place);
    uint64_t hash = hash_ways(set->way, set->n);
    uint32_t at = (uint32_t)hash & m->table_mask;
    for (; m->table[at]; at = (at + 1) & m->table_mask) {
        const struct tri__state *s = &m->state[m->table[at] - 1];
        if (s->hash == hash && s->n == set->n &&
            !memcmp(&m->way[s->first], set->way, s->n * sizeof *set->way)) {
            *out = m->table[at] - 1;
            return true;
        }
    }
    if (m->n_states == MAX_STATES || m->pool.failed || !ways_room(m, set->n)) {
        m->full = true;
        return false;
    }
    memcpy(&m->way[m->n_ways], set->way, set->n * sizeof *set->way);
    m->state[m->n_states] = (struct tri__state){ .first = m->n_ways, .n = set->n, .hash = hash };
    m->n_ways += set->n;
    m->table[at] = ++m->n_states;
    *out = m->n_states - 1;
    return true;
}

/* Where `byte` leads from a state: a state + FIRST_STATE, or NOWHERE. */
static uint32_t step(struct tri__masks *m, uint32_t state, uint8_t byte)
{
    uint32_t *row = m->state[state].row, to = 0;
    if (!row) {
        row = tri_calloc(256, sizeof *row);
        if (!row) {
            m->full = true;
            return NOWHERE;
        }
        m->state[state].row = row;
        m->bytes += 256 * sizeof *row;
    }
    if (row[byte] != NOT_KNOWN)
        return row[byte];
    const struct tri__state *s = &m->state[state];
    tri__set_byte(&m->pool, &m->way[s->first], s->n, byte, &m->scratch);
    if (m->scratch.n == 0 && !m->scratch.end)
        return row[byte] = NOWHERE;
    if (!find_state(m, &to))
        return NOWHERE;
    return row[byte] = to + FIRST_STATE;
}

static void walk(struct tri__masks *m, const struct tri__trie *t, uint32_t state, uint64_t *mask)
{
    m->depth_state[0] = state;
    for (uint32_t i = 0; i < t->n && m->pool.spent < MAX_SPENT;) {
        uint32_t to = step(m, m->depth_state[t->depth[i] - 1], t->byte[i]);
        if (to == NOWHERE) {
            i = t->end[i];
            continue;
        }
        m->depth_state[t->depth[i]] = to - FIRST_STATE;
        if (t->id[i] >= 0)
            mask[t->id[i] / 64] |= 1ull << t->id[i] % 64;
        i++;
    }
}

/* How many characters may pass by repeating this way's node; 0: it is none of that kind. */
static uint32_t free_characters(const struct tri__masks *m, struct tri__way way,
                                enum tri__class class)
{
    const struct tri__net *net = m->pool.net;
    const struct tri__frame *f = &m->pool.frame[way.frame];
    if (net->node[way.node].free < 1 + class || !way.frame || !(f->node & TRI__AGAIN))
        return 0;
    const struct tri__node *again = &net->node[f->node & ~TRI__AGAIN];
    if (again->op != TRI__OP_LOOP || !net->loop[again->a].run ||
        net->loop[again->a].body != way.node)
        return 0;
    return f->y == TRI__MANY ? TRI__MANY : f->y + 1;
}

/* Could this way take a token of the class other than freely? Judged by first bytes alone. */
static bool takes_otherwise(const struct tri__net *net, struct tri__way way, enum tri__class class)
{
    const struct tri__node *node = &net->node[way.node];
    for (uint32_t r = 0; node->op == TRI__OP_SET && r < node->n; r++) {
        const struct tri__range *range = &net->range[node->a + r];
        bool only = range->lo == range->hi && (range->hi == '"' || range->hi == '\\');
        if (class == TRI__RAW || (range->hi >= 0x20 && !only))
            return true;
    }
    return false;
}

static void grant(const struct tri_grammar_vocab *v, enum tri__class class, uint32_t chars,
                  uint64_t *mask)
{
    if (chars >= v->longest_bytes) {
        for (size_t w = 0; w < v->words; w++)
            mask[w] |= v->all[class][w];
        return;
    }
    for (uint32_t i = 0; i < v->chars_end[class][chars]; i++) {
        int32_t id = v->by_chars[class][i];
        mask[id / 64] |= 1ull << id % 64;
    }
}

/* One class of tokens: granted where ways are free, walked where they are not. */
static void fill_class(struct tri__masks *m, const struct tri_grammar_vocab *v, uint32_t state,
                       enum tri__class class, uint64_t *mask)
{
    const struct tri__state s = m->state[state];
    uint32_t chars = 0;
    bool others = class == TRI__PIECES;
    for (uint32_t i = 0; i < s.n && class != TRI__PIECES; i++) {
        uint32_t more = free_characters(m, m->way[s.first + i], class);
        chars = more > chars ? more : chars;
        if (more == 0)
            others |= takes_otherwise(m->pool.net, m->way[s.first + i], class);
        else if (!m->pool.net->node[m->way[s.first + i].node].then_ends)
            others = true;
    }
    if (chars)
        grant(v, class, chars, mask);
    if (others && chars < v->longest_bytes)
        walk(m, &v->trie[class], state, mask);
}

static void fill(struct tri__masks *m, const struct tri_grammar_vocab *v, uint32_t state,
                 uint64_t *mask)
{
    const struct tri__net *net = m->pool.net;
    const struct tri__state s = m->state[state];
    bool text = false;
    for (uint32_t i = 0; i < s.n; i++) {
        const struct tri__node *node = &net->node[m->way[s.first + i].node];
        if (node->op == TRI__OP_MARKER)
            mask[node->a / 64] |= 1ull << node->a % 64;
        text |= node->op == TRI__OP_TEXT;
    }
    if (text) {
        for (size_t w = 0; w < v->words; w++)
            mask[w] |= v->all_ranks[w];
        return;
    }
    for (int class = 0; class < TRI__CLASSES; class ++)
        fill_class(m, v, state, (enum tri__class) class, mask);
}

/* The frame in the cache's pool, counts cut to what a token can tell apart. */
static uint32_t bring_frame(struct tri__masks *m, const struct tri__pool *from, uint32_t frame,
                            uint32_t longest)
{
    if (frame == 0)
        return 0;
    struct tri__frame f = from->frame[frame];
    f.below = bring_frame(m, from, f.below, longest);
    const struct tri__node *node = &m->pool.net->node[f.node & ~TRI__AGAIN];
    if ((f.node & TRI__AGAIN) && node->op == TRI__OP_LOOP) {
        /* A token ends what runs now, passes so many whole turns, and begins another. */
        uint16_t turn = m->pool.net->least[m->pool.net->loop[node->a].body];
        uint32_t most = longest / (turn ? turn : 1u) + 2;
        f.x = f.x < most ? f.x : most;
        f.y = f.y == TRI__MANY || f.y < most ? f.y : most;
    }
    return tri__pool_frame(&m->pool, &f);
}

/* The mask of m->scratch; NULL after a failure. */
static const uint64_t *find_mask(struct tri_grammar *g, struct tri_error *err)
{
    struct tri__masks *m = &g->masks;
    uint32_t state = 0;
    if (!find_state(m, &state)) {
        tri_fail(err, TRI_NOMEM, "no memory for a grammar's masks");
        return NULL;
    }
    g->stats.mask_hits += m->state[state].mask != NULL;
    if (m->state[state].mask)
        return m->state[state].mask;
    uint64_t *mask = tri_calloc(g->vocab->words, sizeof *mask);
    if (!mask) {
        tri_fail(err, TRI_NOMEM, "no memory for a grammar's masks");
        return NULL;
    }
    uint64_t begin = tri_clock_ns();
    m->state[state].mask = mask;
    m->bytes += g->vocab->words * sizeof *mask;
    m->pool.spent = 0;
    fill(m, g->vocab, state, mask);
    uint64_t ns = tri_clock_ns() - begin;
    g->stats.masks++;
    g->stats.mask_ns += ns;
    g->stats.slowest_ns = ns > g->stats.slowest_ns ? ns : g->stats.slowest_ns;
    if (m->pool.spent >= MAX_SPENT) {
        m->full = true;
        tri_fail(err, TRI_LIMIT, "the grammar is too ambiguous here: a token takes too many steps");
        return NULL;
    }
    return mask;
}

/* Counts what this mask has added; where the budget has no room, none are kept. */
static void keep_within_budget(struct tri_grammar *g)
{
    uint64_t fixed = tri__net_bytes(&g->net);
    for (int tries = 0; tries < 2; tries++) {
        uint64_t now = fixed + tri__masks_bytes(&g->masks, g->vocab);
        if (tri__grammar_count(g->vocab, &g->counted_bytes, now, NULL) == TRI_OK)
            return;
        forget(&g->masks);
    }
}

enum tri_status tri__masks_get(struct tri_grammar *g, const struct tri__pool *pool,
                               const struct tri__set *set, uint64_t *out, struct tri_error *err)
{
    struct tri__masks *m = &g->masks;
    pthread_mutex_lock(&g->lock);
    if (m->full || m->n_states > MAX_STATES / 4 * 3 || m->bytes > MAX_MASK_BYTES)
        forget(m);
    m->pool.failed = TRI_OK;
    m->scratch.n = set->n;
    m->scratch.end = set->end;
    for (uint32_t i = 0; i < set->n; i++) {
        m->scratch.way[i].node = set->way[i].node;
        m->scratch.way[i].frame = bring_frame(m, pool, set->way[i].frame, g->vocab->longest_bytes);
    }
    const uint64_t *mask = find_mask(g, err);
    if (mask)
        memcpy(out, mask, g->vocab->words * sizeof *out);
    keep_within_budget(g);
    g->stats.cache_bytes = m->bytes;
    pthread_mutex_unlock(&g->lock);
    return mask ? TRI_OK : TRI_LIMIT;
}
