/* Compiling a request into a grammar, and the life of one. */
#include "grammar/grammar_priv.h"

#include <string.h>
#include "base/mem.h"

enum tri_status tri__grammar_count(const struct tri_grammar_vocab *vocab, uint64_t *counted,
                                   uint64_t now, struct tri_error *err)
{
    if (vocab->budget && now > *counted) {
        enum tri_status st = tri_budget_count(vocab->budget, TRI_MEM_GRAMMAR, now - *counted, err);
        if (st != TRI_OK)
            return st;
    } else if (vocab->budget) {
        tri_budget_uncount(vocab->budget, TRI_MEM_GRAMMAR, *counted - now);
    }
    *counted = now;
    return TRI_OK;
}

struct tri_grammar *tri_grammar_keep(struct tri_grammar *grammar)
{
    atomic_fetch_add(&grammar->references, 1);
    return grammar;
}

void tri_grammar_drop(struct tri_grammar *grammar)
{
    /* The last one out sees every write of the others: fetch_sub is sequentially consistent. */
    if (!grammar || atomic_fetch_sub(&grammar->references, 1) != 1)
        return;
    (void)tri__grammar_count(grammar->vocab, &grammar->counted_bytes, 0, NULL);
    tri__masks_fini(&grammar->masks);
    tri__net_fini(&grammar->net);
    pthread_mutex_destroy(&grammar->lock);
    tri_free(grammar);
}

void tri_grammar_read_stats(struct tri_grammar *grammar, struct tri_grammar_stats *out)
{
    pthread_mutex_lock(&grammar->lock);
    *out = grammar->stats;
    pthread_mutex_unlock(&grammar->lock);
    out->nodes = grammar->net.n_nodes;
}

static enum tri_status build(struct tri_grammar *g, const struct tri_grammar_request *request,
                             struct tri_error *err)
{
    struct tri__build b;
    if (tri__build_init(&b, &g->net, err) == TRI_OK) {
        b.vocab = g->vocab;
        if (request->most_work)
            b.most_work = request->most_work;
        g->net.start = tri__put_reply(&b, request);
        tri__net_finish(&b);
    }
    enum tri_status st = b.failed;
    tri__build_fini(&b);
    return st;
}

enum tri_status tri_grammar_compile(struct tri_grammar **out, struct tri_grammar_vocab *vocab,
                                    const struct tri_grammar_request *request,
                                    struct tri_error *err)
{
    if (request->start != TRI_CHANNEL_NONE && !vocab->has_chat)
        return tri_fail(err, TRI_UNSUPPORTED, "this vocabulary has no chat markers");
    struct tri_grammar *g = tri_calloc(1, sizeof *g);
    if (!g)
        return tri_fail(err, TRI_NOMEM, "no memory for a grammar");
    g->vocab = vocab;
    atomic_init(&g->references, 1);
    pthread_mutex_init(&g->lock, NULL);
    enum tri_status st = build(g, request, err);
    if (st == TRI_OK && tri__masks_init(&g->masks, vocab, &g->net) != TRI_OK)
        st = tri_fail(err, TRI_NOMEM, "no memory for a grammar");
    if (st == TRI_OK)
        st = tri__grammar_count(vocab, &g->counted_bytes,
                                tri__net_bytes(&g->net) + tri__masks_bytes(&g->masks, vocab), err);
    if (st == TRI_OK)
        *out = g;
    else
        tri_grammar_drop(g);
    return st;
}
