/*
 * Sets of ways through a network: each way is a node that waits for a symbol, and the frames of
 * what was called to get there. Frames are kept once each, so equal ways are equal numbers. A step
 * takes a symbol and follows everything that needs none (closing); ways that could not end within
 * TRI_GRAMMAR_MAX_DEPTH frames are not entered, and past TRI_GRAMMAR_MAX_WAYS the latest are
 * forgotten: what is left is still right, if not all that is right.
 */
#include "grammar/grammar_priv.h"

#include <string.h>
#include "base/mem.h"

enum {
    SEEN = 4096,          /* slots for pairs already followed in one closing */
    MAX_TODO = 2048,      /* of one closing */
    MAX_FRAMES = 1 << 20, /* in one pool */
    FIRST_TABLE = 256
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    return x;
}

static uint64_t hash_frame(const struct tri__frame *f)
{
    return mix(mix((uint64_t)f->below << 32 | f->node) + ((uint64_t)f->x << 32 | f->y));
}

enum tri_status tri__pool_init(struct tri__pool *pool, const struct tri__net *net)
{
    *pool = (struct tri__pool){ .net = net, .table_mask = FIRST_TABLE - 1 };
    pool->cap_frames = FIRST_TABLE / 2;
    pool->frame = tri_calloc(pool->cap_frames, sizeof *pool->frame);
    pool->table = tri_calloc(FIRST_TABLE, sizeof *pool->table);
    pool->todo = tri_calloc(MAX_TODO, sizeof *pool->todo);
    pool->seen = tri_calloc(SEEN, sizeof *pool->seen);
    pool->seen_at = tri_calloc(SEEN, sizeof *pool->seen_at);
    pool->n_frames = 1;
    if (pool->frame && pool->table && pool->todo && pool->seen && pool->seen_at)
        return TRI_OK;
    tri__pool_fini(pool);
    return TRI_NOMEM;
}

void tri__pool_fini(struct tri__pool *pool)
{
    tri_free(pool->frame);
    tri_free(pool->table);
    tri_free(pool->todo);
    tri_free(pool->seen);
    tri_free(pool->seen_at);
    *pool = (struct tri__pool){ 0 };
}

uint64_t tri__pool_bytes(const struct tri__pool *pool)
{
    return pool->cap_frames * sizeof *pool->frame + (pool->table_mask + 1u) * sizeof *pool->table +
           MAX_TODO * sizeof *pool->todo + SEEN * (sizeof *pool->seen + sizeof *pool->seen_at);
}

void tri__pool_clear(struct tri__pool *pool)
{
    memset(pool->table, 0, (pool->table_mask + 1u) * sizeof *pool->table);
    pool->n_frames = 1;
}

/* Cleared, and as small as at first; without memory for that it stays as large as it is. */
void tri__pool_shrink(struct tri__pool *pool)
{
    struct tri__frame *frame = tri_calloc(FIRST_TABLE / 2, sizeof *frame);
    uint32_t *table = tri_calloc(FIRST_TABLE, sizeof *table);
    tri__pool_clear(pool);
    if (!frame || !table) {
        tri_free(frame);
        tri_free(table);
        return;
    }
    tri_free(pool->frame);
    tri_free(pool->table);
    pool->frame = frame;
    pool->cap_frames = FIRST_TABLE / 2;
    pool->table = table;
    pool->table_mask = FIRST_TABLE - 1;
}

static bool grow(struct tri__pool *pool)
{
    uint32_t cap = pool->cap_frames * 2, slots = cap * 2;
    if (cap > MAX_FRAMES)
        return false;
    struct tri__frame *more = tri_realloc(pool->frame, cap * sizeof *more);
    if (!more)
        return false;
    pool->frame = more;
    pool->cap_frames = cap;
    uint32_t *table = tri_calloc(slots, sizeof *table);
    if (!table)
        return false;
    for (uint32_t i = 1; i < pool->n_frames; i++) {
        uint32_t at = (uint32_t)hash_frame(&pool->frame[i]) & (slots - 1);
        while (table[at])
            at = (at + 1) & (slots - 1);
        table[at] = i;
    }
    tri_free(pool->table);
    pool->table = table;
    pool->table_mask = slots - 1;
    return true;
}

uint32_t tri__pool_frame(struct tri__pool *pool, const struct tri__frame *f)
{
    if (pool->n_frames == pool->cap_frames && !grow(pool)) {
        pool->failed = TRI_NOMEM;
        return 0;
    }
    uint32_t at = (uint32_t)hash_frame(f) & pool->table_mask;
    for (; pool->table[at]; at = (at + 1) & pool->table_mask) {
        const struct tri__frame *g = &pool->frame[pool->table[at]];
        if (g->below == f->below && g->node == f->node && g->x == f->x && g->y == f->y)
            return pool->table[at];
    }
    pool->table[at] = pool->n_frames;
    pool->frame[pool->n_frames] = *f;
    pool->frame[pool->n_frames].depth = pool->frame[f->below].depth + 1;
    return pool->n_frames++;
}

/* One closing: what is still to be followed. */
struct closing {
    struct tri__pool *pool;
    struct tri__set *out;
    uint32_t n;
};

static void follow(struct closing *c, uint32_t node, uint32_t frame)
{
    struct tri__pool *pool = c->pool;
    uint64_t pair = (uint64_t)frame << 32 | node;
    if (pool->frame[frame].depth + pool->net->need[node] > TRI_GRAMMAR_MAX_DEPTH)
        return;
    uint32_t at = (uint32_t)mix(pair) % SEEN;
    for (int tries = 0; tries < SEEN; tries++, at = (at + 1) % SEEN) {
        if (pool->seen_at[at] != pool->stamp)
            break;
        if (pool->seen[at] == pair)
            return;
    }
    if (pool->seen_at[at] == pool->stamp || c->n == MAX_TODO)
        return;
    pool->seen[at] = pair;
    pool->seen_at[at] = pool->stamp;
    c->pool->todo[c->n++] = (struct tri__way){ node, frame };
}

static void enter(struct closing *c, uint32_t node, const struct tri__frame *frame)
{
    uint32_t f = tri__pool_frame(c->pool, frame);
    if (f)
        follow(c, node, f);
}

/* At a loop that must run x and may run y times more. */
static void turn(struct closing *c, uint32_t node, uint32_t below, const uint32_t rest[2])
{
    const struct tri__loop *l = &c->pool->net->loop[c->pool->net->node[node].a];
    if (rest[1] > 0) {
        const struct tri__frame frame = { .below = below,
                                          .node = node | TRI__AGAIN,
                                          .x = rest[0] ? rest[0] - 1 : 0,
                                          .y = rest[1] == TRI__MANY ? TRI__MANY : rest[1] - 1 };
        enter(c, l->body, &frame);
    }
    if (rest[0] == 0)
        follow(c, l->next, below);
}

static void choose(struct closing *c, uint32_t node, uint32_t below, uint64_t taken)
{
    const struct tri__net *net = c->pool->net;
    const struct tri__pick *p = &net->pick[net->node[node].a];
    struct tri__frame frame = { .below = below, .node = node | TRI__AGAIN };
    for (uint32_t i = 0; i < p->n; i++) {
        uint64_t now = taken | 1ull << i;
        if (now == taken || net->way[p->first + i] == TRI__NOWHERE)
            continue;
        frame.x = (uint32_t)now;
        frame.y = (uint32_t)(now >> 32);
        enter(c, net->way[p->first + i], &frame);
    }
    frame.x = (uint32_t)taken;
    frame.y = (uint32_t)(taken >> 32);
    if ((p->must & ~taken) != 0)
        return;
    if (p->extra != TRI__NOWHERE)
        enter(c, p->extra, &frame);
    follow(c, p->next, below);
}

static void leave(struct closing *c, uint32_t frame)
{
    const struct tri__frame f = c->pool->frame[frame];
    if (frame == 0) {
        c->out->end = true;
        return;
    }
    uint32_t node = f.node & ~TRI__AGAIN;
    if (node == f.node)
        follow(c, node, f.below);
    else if (c->pool->net->node[node].op == TRI__OP_LOOP)
        turn(c, node, f.below, (const uint32_t[]){ f.x, f.y });
    else
        choose(c, node, f.below, (uint64_t)f.y << 32 | f.x);
}

static void keep(struct closing *c, struct tri__way way)
{
    if (c->out->n < TRI_GRAMMAR_MAX_WAYS)
        c->out->way[c->out->n++] = way;
}

static void pass(struct closing *c, struct tri__way way)
{
    const struct tri__net *net = c->pool->net;
    const struct tri__node *node = &net->node[way.node];
    switch ((enum tri__op)node->op) {
    case TRI__OP_SET:
    case TRI__OP_MARKER:
        keep(c, way);
        return;
    case TRI__OP_TEXT:
        keep(c, way);
        follow(c, node->a, way.frame);
        return;
    case TRI__OP_FORK:
        follow(c, node->b, way.frame);
        follow(c, node->a, way.frame);
        return;
    case TRI__OP_CALL: {
        const struct tri__frame frame = { .below = way.frame, .node = node->b };
        enter(c, node->a, &frame);
        return;
    }
    case TRI__OP_LOOP: {
        const struct tri__loop *l = &net->loop[node->a];
        turn(c, way.node, way.frame, (const uint32_t[]){ l->min, l->max });
        return;
    }
    case TRI__OP_PICK:
        choose(c, way.node, way.frame, 0);
        return;
    case TRI__OP_END:
        leave(c, way.frame);
        return;
    case TRI__OP_FAIL:
        return;
    }
}

static void close_all(struct closing *c)
{
    while (c->n > 0) {
        c->pool->spent++;
        pass(c, c->pool->todo[--c->n]);
    }
}

static struct closing closing(struct tri__pool *pool, struct tri__set *out)
{
    if (++pool->stamp == 0) { /* after 2^32 closings */
        memset(pool->seen_at, 0, SEEN * sizeof *pool->seen_at);
        pool->stamp = 1;
    }
    out->n = 0;
    out->end = false;
    return (struct closing){ pool, out, 0 };
}

void tri__set_start(struct tri__pool *pool, struct tri__set *out)
{
    struct closing c = closing(pool, out);
    follow(&c, pool->net->start, 0);
    close_all(&c);
}

void tri__set_byte(struct tri__pool *pool, const struct tri__way *in, uint32_t n, uint8_t byte,
                   struct tri__set *out)
{
    const struct tri__net *net = pool->net;
    struct closing c = closing(pool, out);
    for (uint32_t i = 0; i < n; i++) {
        const struct tri__node *node = &net->node[in[i].node];
        pool->spent++;
        if (node->op == TRI__OP_TEXT)
            follow(&c, in[i].node, in[i].frame);
        for (uint32_t r = 0; node->op == TRI__OP_SET && r < node->n; r++) {
            const struct tri__range *range = &net->range[node->a + r];
            if (byte >= range->lo && byte <= range->hi)
                follow(&c, range->next, in[i].frame);
        }
        close_all(&c);
    }
}

void tri__set_marker(struct tri__pool *pool, const struct tri__way *in, uint32_t n, int32_t id,
                     struct tri__set *out)
{
    struct closing c = closing(pool, out);
    for (uint32_t i = 0; i < n; i++) {
        const struct tri__node *node = &pool->net->node[in[i].node];
        if (node->op == TRI__OP_MARKER && node->a == (uint32_t)id)
            follow(&c, node->b, in[i].frame);
        close_all(&c);
    }
}
