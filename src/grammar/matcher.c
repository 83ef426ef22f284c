/* Where one reply stands: its set of ways, with frames of its own. */
#include "grammar/grammar_priv.h"

#include <string.h>
#include "base/mem.h"

enum { TIDY_FRAMES = 4096 }; /* frames that nothing leads to any more are dropped beyond this */

struct tri_matcher {
    struct tri_grammar *grammar;
    struct tri__pool pool, spare;
    struct tri__set now, next, before;
    uint64_t *mask; /* [words] */
    uint64_t counted_bytes;
};

static enum tri_status count(struct tri_matcher *m, struct tri_error *err)
{
    const struct tri_grammar_vocab *vocab = m->grammar->vocab;
    return tri__grammar_count(vocab, &m->counted_bytes,
                              sizeof *m + vocab->words * sizeof *m->mask +
                                  tri__pool_bytes(&m->pool) + tri__pool_bytes(&m->spare),
                              err);
}

enum tri_status tri_matcher_open(struct tri_matcher **out, struct tri_grammar *grammar,
                                 struct tri_error *err)
{
    struct tri_matcher *m = tri_calloc(1, sizeof *m);
    if (!m)
        return tri_fail(err, TRI_NOMEM, "no memory for a grammar");
    m->grammar = tri_grammar_keep(grammar);
    m->mask = tri_calloc(grammar->vocab->words, sizeof *m->mask);
    if (!m->mask || tri__pool_init(&m->pool, &grammar->net) != TRI_OK ||
        tri__pool_init(&m->spare, &grammar->net) != TRI_OK) {
        tri_matcher_close(m);
        return tri_fail(err, TRI_NOMEM, "no memory for a grammar");
    }
    enum tri_status st = count(m, err);
    if (st != TRI_OK) {
        tri_matcher_close(m);
        return st;
    }
    tri__set_start(&m->pool, &m->now);
    *out = m;
    return TRI_OK;
}

void tri_matcher_close(struct tri_matcher *matcher)
{
    if (!matcher)
        return;
    (void)tri__grammar_count(matcher->grammar->vocab, &matcher->counted_bytes, 0, NULL);
    tri__pool_fini(&matcher->pool);
    tri__pool_fini(&matcher->spare);
    tri_free(matcher->mask);
    tri_grammar_drop(matcher->grammar);
    tri_free(matcher);
}

size_t tri_matcher_words(const struct tri_matcher *matcher)
{
    return matcher->grammar->vocab->words;
}

bool tri_matcher_done(const struct tri_matcher *matcher)
{
    return matcher->now.n == 0;
}

const uint64_t *tri_matcher_allowed(struct tri_matcher *matcher, struct tri_error *err)
{
    struct tri_matcher *m = matcher;
    if (m->pool.failed) {
        tri_fail(err, TRI_NOMEM, "no memory for a grammar");
        return NULL;
    }
    return tri__masks_get(m->grammar, &m->pool, &m->now, m->mask, err) == TRI_OK ? m->mask : NULL;
}

static uint32_t move_frame(struct tri_matcher *m, uint32_t frame)
{
    if (frame == 0)
        return 0;
    struct tri__frame f = m->pool.frame[frame];
    f.below = move_frame(m, f.below);
    return tri__pool_frame(&m->spare, &f);
}

static void tidy(struct tri_matcher *m)
{
    if (m->pool.n_frames < TIDY_FRAMES)
        return;
    tri__pool_clear(&m->spare);
    for (uint32_t i = 0; i < m->now.n; i++)
        m->now.way[i].frame = move_frame(m, m->now.way[i].frame);
    struct tri__pool swap = m->pool;
    m->pool = m->spare;
    m->spare = swap;
    (void)count(m, NULL); /* a few hundred KiB at most: it goes on all the same */
}

static void copy_set(struct tri__set *to, const struct tri__set *from)
{
    memcpy(to->way, from->way, from->n * sizeof *to->way);
    to->n = from->n;
    to->end = from->end;
}

bool tri_matcher_take(struct tri_matcher *matcher, int32_t id)
{
    struct tri_matcher *m = matcher;
    size_t bytes = 0;
    const char *text = tri_token_bytes(m->grammar->vocab->tok, id, &bytes);
    if (!text)
        return false;
    tidy(m);
    copy_set(&m->before, &m->now);
    if (id >= m->grammar->vocab->ranks) {
        tri__set_marker(&m->pool, m->before.way, m->before.n, id, &m->now);
    } else {
        for (size_t i = 0; i < bytes && m->now.n; i++) {
            tri__set_byte(&m->pool, m->now.way, m->now.n, (uint8_t)text[i], &m->next);
            copy_set(&m->now, &m->next);
        }
    }
    if (m->now.n || m->now.end)
        return true;
    copy_set(&m->now, &m->before);
    return false;
}
