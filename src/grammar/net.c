/*
 * The network that a grammar is: built from its end to its start, each part knowing what follows
 * it. Dead parts (an empty enum, a required property that is false) collapse to node 0 as they are
 * made.
 */
#include "grammar/grammar_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"

void tri__net_fini(struct tri__net *net)
{
    tri_free(net->node);
    tri_free(net->range);
    tri_free(net->loop);
    tri_free(net->pick);
    tri_free(net->way);
    tri_free(net->need);
    tri_free(net->least);
    *net = (struct tri__net){ 0 };
}

uint64_t tri__net_bytes(const struct tri__net *net)
{
    return net->cap_nodes * sizeof *net->node + net->cap_ranges * sizeof *net->range +
           net->cap_loops * sizeof *net->loop + net->cap_picks * sizeof *net->pick +
           net->cap_ways * sizeof *net->way +
           net->n_nodes * (sizeof *net->need + sizeof *net->least);
}

uint32_t tri__build_fail(struct tri__build *b, enum tri_status status, const char *format, ...)
{
    char text[400];
    va_list args;
    if (b->failed)
        return TRI__NOWHERE;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    b->failed = tri_fail(b->err, status, "%s", text);
    return TRI__NOWHERE;
}

bool tri__build_work(struct tri__build *b, uint64_t steps)
{
    b->work += steps;
    if (b->work > b->most_work)
        tri__build_fail(b, TRI_LIMIT, "%s: takes more than %lld steps to compile", b->root_name,
                        (long long)b->most_work);
    return !b->failed;
}

/* Room for `more` beside n things of `size` bytes in *list. */
static bool room(struct tri__build *b, void *list, uint32_t *cap, uint32_t n, size_t size)
{
    if (b->failed)
        return false;
    if (n < *cap)
        return true;
    uint32_t want = *cap ? *cap * 2 : 256;
    void *more = tri_realloc(*(void **)list, want * size);
    if (!more) {
        tri__build_fail(b, TRI_NOMEM, "no memory for a grammar");
        return false;
    }
    *(void **)list = more;
    *cap = want;
    return true;
}

static uint32_t put(struct tri__build *b, const struct tri__node *node)
{
    struct tri__net *net = b->net;
    if (!tri__build_work(b, 1))
        return TRI__NOWHERE;
    if (net->n_nodes >= TRI_GRAMMAR_MAX_NODES)
        return tri__build_fail(b, TRI_LIMIT, "%s: makes more than %d states", b->root_name,
                               TRI_GRAMMAR_MAX_NODES);
    if (!room(b, &net->node, &net->cap_nodes, net->n_nodes, sizeof *net->node))
        return TRI__NOWHERE;
    net->node[net->n_nodes] = *node;
    return net->n_nodes++;
}

enum tri_status tri__build_init(struct tri__build *b, struct tri__net *net, struct tri_error *err)
{
    *b = (struct tri__build){
        .net = net, .err = err, .most_work = TRI_GRAMMAR_MAX_WORK, .root_name = "request"
    };
    tri_buf_init(&b->path, 64 << 10);
    tri_buf_init(&b->text, 8u * TRI_GRAMMAR_MAX_SCHEMA_BYTES);
    put(b, &(struct tri__node){ .op = TRI__OP_FAIL });
    b->end = put(b, &(struct tri__node){ .op = TRI__OP_END });
    return b->failed;
}

void tri__build_fini(struct tri__build *b)
{
    tri_buf_fini(&b->path);
    tri_buf_fini(&b->text);
    tri_free(b->rule);
}

uint32_t tri__put_set(struct tri__build *b, const struct tri__range *ranges, uint32_t n)
{
    struct tri__net *net = b->net;
    uint32_t first = net->n_ranges, kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (ranges[i].next == TRI__NOWHERE)
            continue;
        if (!tri__build_work(b, 1) ||
            !room(b, &net->range, &net->cap_ranges, net->n_ranges, sizeof *net->range))
            return TRI__NOWHERE;
        net->range[net->n_ranges++] = ranges[i];
        kept++;
    }
    if (!kept)
        return TRI__NOWHERE;
    return put(b, &(struct tri__node){ .op = TRI__OP_SET, .n = (uint16_t)kept, .a = first });
}

uint32_t tri__put_byte(struct tri__build *b, uint8_t lo, uint8_t hi, uint32_t next)
{
    return tri__put_set(b, &(struct tri__range){ lo, hi, next }, 1);
}

uint32_t tri__put_text(struct tri__build *b, const char *bytes, size_t n, uint32_t next)
{
    while (n-- > 0 && next != TRI__NOWHERE)
        next = tri__put_byte(b, (uint8_t)bytes[n], (uint8_t)bytes[n], next);
    return next;
}

uint32_t tri__put_marker(struct tri__build *b, int32_t id, uint32_t next)
{
    if (next == TRI__NOWHERE || id < 0)
        return TRI__NOWHERE;
    return put(b, &(struct tri__node){ .op = TRI__OP_MARKER, .a = (uint32_t)id, .b = next });
}

uint32_t tri__put_fork(struct tri__build *b, uint32_t x, uint32_t y)
{
    if (x == TRI__NOWHERE || x == y)
        return y;
    if (y == TRI__NOWHERE)
        return x;
    return put(b, &(struct tri__node){ .op = TRI__OP_FORK, .a = x, .b = y });
}

uint32_t tri__put_call(struct tri__build *b, uint32_t rule, uint32_t next)
{
    if (rule == TRI__NOWHERE || next == TRI__NOWHERE)
        return TRI__NOWHERE;
    return put(b, &(struct tri__node){ .op = TRI__OP_CALL, .a = rule, .b = next });
}

uint32_t tri__put_loop(struct tri__build *b, uint32_t body, uint32_t min, uint32_t max,
                       uint32_t next)
{
    struct tri__net *net = b->net;
    if (next == TRI__NOWHERE || min > max || (min > 0 && body == TRI__NOWHERE))
        return TRI__NOWHERE;
    if (max == 0 || body == TRI__NOWHERE)
        return next;
    if (!room(b, &net->loop, &net->cap_loops, net->n_loops, sizeof *net->loop))
        return TRI__NOWHERE;
    net->loop[net->n_loops] = (struct tri__loop){ body, next, min, max, false };
    return put(b, &(struct tri__node){ .op = TRI__OP_LOOP, .a = net->n_loops++ });
}

uint32_t tri__put_run(struct tri__build *b, uint32_t one, uint32_t min, uint32_t max, uint32_t next)
{
    uint32_t start = tri__put_loop(b, one, min, max, next);
    if (start != TRI__NOWHERE && b->net->node[start].op == TRI__OP_LOOP && start != next)
        b->net->loop[b->net->node[start].a].run = true;
    return start;
}

uint32_t tri__put_free(struct tri__build *b, uint32_t next)
{
    if (next == TRI__NOWHERE)
        return TRI__NOWHERE;
    return put(b, &(struct tri__node){ .op = TRI__OP_TEXT, .a = next });
}

uint32_t tri__put_pick(struct tri__build *b, const struct tri__pick *pick, const uint32_t *ways)
{
    struct tri__net *net = b->net;
    if (pick->next == TRI__NOWHERE)
        return TRI__NOWHERE;
    for (uint32_t i = 0; i < pick->n; i++)
        if (ways[i] == TRI__NOWHERE && (pick->must >> i & 1))
            return TRI__NOWHERE;
    if (!room(b, &net->pick, &net->cap_picks, net->n_picks, sizeof *net->pick))
        return TRI__NOWHERE;
    net->pick[net->n_picks] = *pick;
    net->pick[net->n_picks].first = net->n_ways;
    for (uint32_t i = 0; i < pick->n; i++) {
        if (!room(b, &net->way, &net->cap_ways, net->n_ways, sizeof *net->way))
            return TRI__NOWHERE;
        net->way[net->n_ways++] = ways[i];
    }
    return put(b, &(struct tri__node){ .op = TRI__OP_PICK, .a = net->n_picks++ });
}

uint32_t tri__put_hole(struct tri__build *b)
{
    return put(b, &(struct tri__node){ .op = TRI__OP_FORK });
}

void tri__fill_hole(struct tri__build *b, uint32_t hole, uint32_t start)
{
    if (!b->failed)
        b->net->node[hole].a = b->net->node[hole].b = start;
}
