/* A bounded arena: what a request is read into, freed as a whole. */
#include "text/text_priv.h"

#include <stdalign.h>
#include "base/mem.h"

enum { BLOCK_BYTES = 16 << 10 };

struct tri__arena_block {
    struct tri__arena_block *before;
    size_t used_bytes, cap_bytes;
    alignas(max_align_t) char data[];
};

void tri__arena_fini(struct tri__arena *arena)
{
    while (arena->last) {
        struct tri__arena_block *before = arena->last->before;
        tri_free(arena->last);
        arena->last = before;
    }
    arena->used_bytes = 0;
}

void *tri__arena_alloc(struct tri__arena *arena, size_t bytes)
{
    const size_t align = alignof(max_align_t);
    if (!arena->failed &&
        (bytes > arena->max_bytes || arena->used_bytes > arena->max_bytes - bytes))
        arena->failed = TRI_LIMIT;
    if (arena->failed)
        return NULL;
    bytes = (bytes + align - 1) / align * align;
    struct tri__arena_block *block = arena->last;
    if (!block || bytes > block->cap_bytes - block->used_bytes) {
        size_t cap = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        block = tri_malloc(sizeof *block + cap);
        if (!block) {
            arena->failed = TRI_NOMEM;
            return NULL;
        }
        *block = (struct tri__arena_block){ .before = arena->last, .cap_bytes = cap };
        arena->last = block;
        arena->used_bytes += cap;
    }
    void *data = block->data + block->used_bytes;
    block->used_bytes += bytes;
    return data;
}
