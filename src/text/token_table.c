/*
 * The hash table from byte strings to token ids. Merging asks it for every adjacent pair, and most
 * answers are "no such token", so the hash is stored in the slot and the bytes are seldom read.
 */
#include "text/text_priv.h"

#include <string.h>
#include "base/mem.h"

/* Multiply and fold, eight bytes a step; the vocabulary is the only thing ever inserted. */
static uint32_t hash_bytes(const char *bytes, size_t count)
{
    const uint64_t k = UINT64_C(0x9E3779B97F4A7C15);
    uint64_t h = k ^ count;
    for (; count >= 8; bytes += 8, count -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        h = (h ^ word) * k;
        h ^= h >> 32;
    }
    uint64_t tail = 0;
    for (size_t i = 0; i < count; i++)
        tail = tail << 8 | (unsigned char)bytes[i];
    h = (h ^ tail) * k;
    h ^= h >> 29;
    h *= k;
    return (uint32_t)(h >> 32);
}

enum tri_status tri__token_table_init(struct tri__token_table *table, size_t entries)
{
    size_t slots = 64;
    while (slots < entries * 2)
        slots *= 2;
    table->slots = tri_malloc(slots * sizeof *table->slots);
    if (!table->slots)
        return TRI_NOMEM;
    for (size_t i = 0; i < slots; i++)
        table->slots[i] = (struct tri__token_slot){ .id = -1 };
    table->mask = (uint32_t)slots - 1;
    return TRI_OK;
}

void tri__token_table_fini(struct tri__token_table *table)
{
    tri_free(table->slots);
    *table = (struct tri__token_table){ 0 };
}

/* The slot that holds these bytes, or the free one where they would go. */
static struct tri__token_slot *slot_of(const struct tri_tokenizer *tok,
                                       const struct tri__token_table *table, const char *bytes,
                                       size_t count, uint32_t hash)
{
    for (uint32_t i = hash & table->mask;; i = (i + 1) & table->mask) {
        struct tri__token_slot *slot = &table->slots[i];
        if (slot->id < 0)
            return slot;
        if (slot->hash == hash && tok->length[slot->id] == count &&
            !memcmp(tok->blob + tok->start[slot->id], bytes, count))
            return slot;
    }
}

int32_t tri__token_find(const struct tri_tokenizer *tok, const struct tri__token_table *table,
                        const char *bytes, size_t count)
{
    if (!table->slots)
        return -1;
    return slot_of(tok, table, bytes, count, hash_bytes(bytes, count))->id;
}

int32_t tri__token_insert(const struct tri_tokenizer *tok, struct tri__token_table *table,
                          int32_t id)
{
    const char *bytes = tok->blob + tok->start[id];
    uint32_t hash = hash_bytes(bytes, tok->length[id]);
    struct tri__token_slot *slot = slot_of(tok, table, bytes, tok->length[id], hash);
    if (slot->id >= 0)
        return slot->id;
    *slot = (struct tri__token_slot){ .hash = hash, .id = id };
    return -1;
}
