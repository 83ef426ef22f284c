/*
 * What every node learns about its way out when a network is finished: how many frames it takes, so
 * that matching never enters what it could not leave; and how many bytes at least, so that counts
 * which no single token can run through are told apart only near their ends. Both are least fixed
 * points; parts mostly follow what they lead to, so one pass upwards settles nearly all.
 */
#include "grammar/grammar_priv.h"

#include <string.h>
#include "base/mem.h"

enum { DEAD = UINT16_MAX };
enum { MARKER_BYTES = 4096 }; /* no token passes a marker: longer than any */

static uint16_t more(uint16_t a, uint16_t b)
{
    return a > b ? a : b;
}

static uint16_t less(uint16_t a, uint16_t b)
{
    return a < b ? a : b;
}

static uint16_t sum(uint16_t a, uint16_t b)
{
    uint32_t both = (uint32_t)a + b;
    return a == DEAD || b == DEAD ? DEAD : both < DEAD - 1 ? (uint16_t)both : DEAD - 1;
}

static uint16_t one_frame(uint16_t need)
{
    return need >= TRI_GRAMMAR_MAX_DEPTH ? DEAD : (uint16_t)(need + 1);
}

/* A node's two numbers from those of the nodes it leads to. */
struct outlook {
    uint16_t need, least;
};

static struct outlook at(const struct tri__net *net, uint32_t i)
{
    return (struct outlook){ net->need[i], net->least[i] };
}

static struct outlook of_set(const struct tri__net *net, const struct tri__node *node)
{
    struct outlook o = { DEAD, DEAD };
    for (uint32_t r = 0; r < node->n; r++) {
        uint32_t next = net->range[node->a + r].next;
        o.need = less(o.need, net->need[next]);
        o.least = less(o.least, sum(1, net->least[next]));
    }
    return o;
}

static struct outlook of_loop(const struct tri__net *net, const struct tri__loop *l)
{
    struct outlook out = at(net, l->next);
    if (l->min) {
        out.need = more(out.need, one_frame(net->need[l->body]));
        out.least = sum(out.least, net->least[l->body]); /* once is enough for a lower bound */
    }
    return out;
}

static struct outlook of_pick(const struct tri__net *net, const struct tri__pick *p)
{
    struct outlook out = at(net, p->next);
    for (uint32_t i = 0; i < p->n; i++) {
        if (!(p->must >> i & 1))
            continue;
        out.need = more(out.need, one_frame(net->need[net->way[p->first + i]]));
        out.least = sum(out.least, net->least[net->way[p->first + i]]);
    }
    return out;
}

static struct outlook outlook_of(const struct tri__net *net, uint32_t i)
{
    const struct tri__node *node = &net->node[i];
    struct outlook a, b;
    switch ((enum tri__op)node->op) {
    case TRI__OP_SET:
        return of_set(net, node);
    case TRI__OP_MARKER:
        b = at(net, node->b);
        return (struct outlook){ b.need, sum(MARKER_BYTES, b.least) };
    case TRI__OP_FORK:
        a = at(net, node->a);
        b = at(net, node->b);
        return (struct outlook){ less(a.need, b.need), less(a.least, b.least) };
    case TRI__OP_CALL:
        a = at(net, node->a);
        b = at(net, node->b);
        return (struct outlook){ more(one_frame(a.need), b.need), sum(a.least, b.least) };
    case TRI__OP_LOOP:
        return of_loop(net, &net->loop[node->a]);
    case TRI__OP_PICK:
        return of_pick(net, &net->pick[node->a]);
    case TRI__OP_TEXT:
        return at(net, node->a);
    case TRI__OP_END:
        return (struct outlook){ 0, 0 };
    case TRI__OP_FAIL:
        break;
    }
    return (struct outlook){ DEAD, DEAD };
}

enum tri_status tri__net_finish(struct tri__build *b)
{
    struct tri__net *net = b->net;
    if (b->failed)
        return b->failed;
    net->need = tri_malloc(net->n_nodes * sizeof *net->need);
    net->least = tri_malloc(net->n_nodes * sizeof *net->least);
    if (!net->need || !net->least) {
        tri__build_fail(b, TRI_NOMEM, "no memory for a grammar");
        return b->failed;
    }
    memset(net->need, 0xff, net->n_nodes * sizeof *net->need);
    memset(net->least, 0xff, net->n_nodes * sizeof *net->least);
    for (bool again = true; again && tri__build_work(b, net->n_nodes);) {
        again = false;
        for (uint32_t i = 0; i < net->n_nodes; i++) {
            struct outlook o = outlook_of(net, i);
            again |= o.need < net->need[i] || o.least < net->least[i];
            net->need[i] = less(o.need, net->need[i]);
            net->least[i] = less(o.least, net->least[i]);
        }
    }
    if (!b->failed && net->need[net->start] == DEAD)
        tri__build_fail(b, TRI_UNSUPPORTED,
                        "%s: no value can satisfy this schema (or only one nested deeper than %d)",
                        b->root_name, TRI_GRAMMAR_MAX_DEPTH);
    return b->failed;
}
