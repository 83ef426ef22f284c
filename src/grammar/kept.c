/* Compiled grammars by the bytes of what was asked, so that equal requests share one. */
#include <pthread.h>
#include <string.h>
#include "base/mem.h"
#include "grammar/grammar_priv.h"

struct entry {
    char *key;
    size_t bytes;
    struct tri_grammar *grammar;
    uint64_t used;
};

struct tri_grammar_cache {
    pthread_mutex_t lock;
    struct entry entry[TRI_GRAMMAR_KEPT];
    uint64_t clock;
    struct tri_grammar_cache_stats stats;
};

enum tri_status tri_grammar_cache_open(struct tri_grammar_cache **out, struct tri_error *err)
{
    struct tri_grammar_cache *c = tri_calloc(1, sizeof *c);
    if (!c)
        return tri_fail(err, TRI_NOMEM, "no memory for kept grammars");
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return TRI_OK;
}

static void clear(struct entry *e)
{
    tri_free(e->key);
    tri_grammar_drop(e->grammar);
    *e = (struct entry){ 0 };
}

void tri_grammar_cache_clear(struct tri_grammar_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    for (int i = 0; i < TRI_GRAMMAR_KEPT; i++)
        clear(&cache->entry[i]);
    cache->stats.kept = 0;
    pthread_mutex_unlock(&cache->lock);
}

void tri_grammar_cache_close(struct tri_grammar_cache *cache)
{
    if (!cache)
        return;
    for (int i = 0; i < TRI_GRAMMAR_KEPT; i++)
        clear(&cache->entry[i]);
    pthread_mutex_destroy(&cache->lock);
    tri_free(cache);
}

static struct entry *look(struct tri_grammar_cache *c, const char *key, size_t bytes)
{
    for (int i = 0; i < TRI_GRAMMAR_KEPT; i++) {
        struct entry *e = &c->entry[i];
        if (e->grammar && e->bytes == bytes && !memcmp(e->key, key, bytes))
            return e;
    }
    return NULL;
}

struct tri_grammar *tri_grammar_cache_find(struct tri_grammar_cache *cache, const char *key,
                                           size_t bytes)
{
    struct tri_grammar *found = NULL;
    pthread_mutex_lock(&cache->lock);
    struct entry *e = look(cache, key, bytes);
    if (e) {
        e->used = ++cache->clock;
        found = tri_grammar_keep(e->grammar);
        cache->stats.hits++;
    } else {
        cache->stats.misses++;
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}

void tri_grammar_cache_add(struct tri_grammar_cache *cache, const char *key, size_t bytes,
                           struct tri_grammar *grammar)
{
    char *copy = tri_malloc(bytes + 1);
    if (!copy)
        return;
    memcpy(copy, key, bytes);
    pthread_mutex_lock(&cache->lock);
    struct entry *e = look(cache, key, bytes), *oldest = &cache->entry[0];
    for (int i = 1; i < TRI_GRAMMAR_KEPT; i++)
        if (cache->entry[i].used < oldest->used)
            oldest = &cache->entry[i];
    if (!e)
        e = oldest;
    cache->stats.kept += e->grammar == NULL;
    cache->stats.added++;
    clear(e);
    *e = (struct entry){ copy, bytes, tri_grammar_keep(grammar), ++cache->clock };
    pthread_mutex_unlock(&cache->lock);
}

void tri_grammar_cache_read_stats(struct tri_grammar_cache *cache,
                                  struct tri_grammar_cache_stats *out)
{
    pthread_mutex_lock(&cache->lock);
    *out = cache->stats;
    pthread_mutex_unlock(&cache->lock);
}
