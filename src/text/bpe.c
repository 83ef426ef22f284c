/*
 * Byte-pair merging of one pre-token: the adjacent pair of lowest rank is merged, the leftmost one
 * on ties, until no pair is a token. The candidates wait in a heap, so that n bytes take n log n
 * steps; entries that a merge has made stale are recognised when they come up.
 */
#include "text/text_priv.h"

#include "base/mem.h"

/*
 * A part is named by the byte it starts at. next[i]: where the part after it starts; prev[i]: where
 * the one before starts; id[i]: its token; pair[i]: rank of it joined with the next part, or NONE.
 */
enum { NONE = INT32_MAX };

void tri__bpe_work_fini(struct tri__bpe_work *work)
{
    tri_free(work->next);
    tri_free(work->prev);
    tri_free(work->id);
    tri_free(work->pair);
    tri_free(work->heap);
    *work = (struct tri__bpe_work){ 0 };
}

/* The arrays hold nothing worth keeping between calls: freed and taken anew when too short. */
static enum tri_status reserve(struct tri__bpe_work *work, size_t bytes)
{
    if (bytes <= work->cap_bytes)
        return TRI_OK;
    size_t cap = bytes < 256 ? 256 : bytes + bytes / 2;
    tri__bpe_work_fini(work);
    work->next = tri_malloc(cap * sizeof *work->next);
    work->prev = tri_malloc(cap * sizeof *work->prev);
    work->id = tri_malloc(cap * sizeof *work->id);
    work->pair = tri_malloc(cap * sizeof *work->pair);
    /* Each byte gives one entry at first; each of fewer merges takes one away and adds two. */
    work->heap = tri_malloc(cap * 2 * sizeof *work->heap);
    if (!work->next || !work->prev || !work->id || !work->pair || !work->heap) {
        tri__bpe_work_fini(work);
        return TRI_NOMEM;
    }
    work->cap_bytes = cap;
    return TRI_OK;
}

/* Heap order is (rank, position), so ties go to the leftmost pair. */
static void heap_push(struct tri__bpe_work *work, uint64_t entry)
{
    uint64_t *heap = work->heap;
    size_t i = work->heap_count++;
    while (i && heap[(i - 1) / 2] > entry) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = entry;
}

static uint64_t heap_pop(struct tri__bpe_work *work)
{
    uint64_t *heap = work->heap, least = heap[0], last = heap[--work->heap_count];
    size_t count = work->heap_count, i = 0;
    for (size_t child = 1; child < count; child = 2 * i + 1) {
        child += child + 1 < count && heap[child + 1] < heap[child];
        if (heap[child] >= last)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return least;
}

/* Sets pair[i] anew and offers it to the heap. */
static void offer(const struct tri_tokenizer *tok, struct tri__bpe_work *work, const char *text,
                  size_t bytes, uint32_t i)
{
    work->pair[i] = NONE;
    if (work->next[i] >= bytes)
        return;
    uint32_t length = work->next[work->next[i]] - i;
    if (length > tok->longest_rank_bytes)
        return;
    int32_t rank = tri__token_find(tok, &tok->by_bytes, text + i, length);
    if (rank < 0)
        return;
    work->pair[i] = rank;
    heap_push(work, (uint64_t)(uint32_t)rank << 32 | i);
}

static void merge(const struct tri_tokenizer *tok, struct tri__bpe_work *work, const char *text,
                  size_t bytes, uint32_t i)
{
    uint32_t gone = work->next[i], after = work->next[gone];
    work->id[i] = work->pair[i];
    work->pair[gone] = NONE;
    work->next[i] = after;
    if (after < bytes)
        work->prev[after] = i;
    offer(tok, work, text, bytes, i);
    if (i)
        offer(tok, work, text, bytes, work->prev[i]);
}

enum tri_status tri__bpe_encode(const struct tri_tokenizer *tok, struct tri__bpe_work *work,
                                const char *text, size_t bytes, struct tri_ids *ids)
{
    int32_t whole = bytes == 1 ? tok->byte_id[(unsigned char)*text] : -1;
    if (bytes > 1 && bytes <= tok->longest_rank_bytes)
        whole = tri__token_find(tok, &tok->by_bytes, text, bytes);
    if (whole >= 0)
        return tri_ids_add(ids, whole);
    if (reserve(work, bytes))
        return TRI_NOMEM;
    for (uint32_t i = 0; i < bytes; i++) {
        work->next[i] = i + 1;
        work->prev[i] = i - 1;
        work->id[i] = tok->byte_id[(unsigned char)text[i]];
    }
    work->heap_count = 0;
    for (uint32_t i = 0; i < bytes; i++)
        offer(tok, work, text, bytes, i);
    while (work->heap_count) {
        uint64_t entry = heap_pop(work);
        uint32_t i = (uint32_t)entry;
        if (work->pair[i] == (int32_t)(entry >> 32))
            merge(tok, work, text, bytes, i);
    }
    enum tri_status st = TRI_OK;
    for (uint32_t i = 0; i < bytes && !st; i = work->next[i])
        st = tri_ids_add(ids, work->id[i]);
    return st;
}
