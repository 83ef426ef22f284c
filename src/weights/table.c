/*
 * Tensor names to tensors: one array and an open-addressed table of numbers, 4 bytes a slot, at
 * most half full. Half a million names are found in well under a microsecond each.
 */
#include "weights/weights_priv.h"

#include <string.h>
#include "base/mem.h"

static const char prefix[] = "language_model.";

const char *tri__weights_bare(const char *name)
{
    return strncmp(name, prefix, sizeof prefix - 1) == 0 ? name + sizeof prefix - 1 : name;
}

/* FNV-1a, 64 bits, folded. Names come from files: a clash costs time, never correctness. */
static size_t hash(const char *name)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * UINT64_C(1099511628211);
    return (size_t)(h ^ (h >> 32));
}

/* The slot that holds `name`, or the empty one where it would go. */
static uint32_t *slot_of(const struct tri__weights_table *table, const char *name)
{
    size_t i = hash(name) & table->slot_mask;
    while (table->slots[i] && strcmp(table->tensors[table->slots[i] - 1].name, name) != 0)
        i = (i + 1) & table->slot_mask;
    return &table->slots[i];
}

/* Text names all have the prefix or none has; names of neither kind take no part. */
static enum tri_status cut_prefix(struct tri__weights_table *table,
                                  const char *(*where)(void *, int32_t), void *arg,
                                  struct tri_error *err)
{
    const char *with = NULL, *without = NULL;
    char a[TRI__WEIGHTS_SHOWN_BYTES], b[TRI__WEIGHTS_SHOWN_BYTES];
    for (size_t i = 0; i < table->count; i++) {
        struct tri_tensor *t = &table->tensors[i];
        const char *bare = tri__weights_bare(t->name);
        if (bare != t->name)
            with = t->name;
        else if (strncmp(bare, "model.", 6) == 0 || strncmp(bare, "lm_head.", 8) == 0)
            without = t->name;
        if (with && without)
            return tri_fail(err, TRI_FORMAT,
                            "%s: some names have the prefix \"%s\", others have not: %s, %s",
                            where(arg, t->shard), prefix, tri__weights_shown(a, with),
                            tri__weights_shown(b, without));
        t->name = bare;
    }
    return TRI_OK;
}

enum tri_status tri__weights_table_init(struct tri__weights_table *table,
                                        struct tri_tensor *tensors, size_t count,
                                        const char *(*where)(void *, int32_t shard), void *arg,
                                        struct tri_error *err)
{
    size_t slots = 16;
    table->tensors = tensors;
    table->count = count;
    if (count > TRI_SPEC_MAX_TENSORS)
        return tri_fail(err, TRI_LIMIT, "%s: %zu tensors, at most %d", where(arg, tensors[0].shard),
                        count, TRI_SPEC_MAX_TENSORS);
    while (slots < count * 2)
        slots *= 2;
    table->slots = tri_calloc(slots, sizeof table->slots[0]);
    table->slot_mask = slots - 1;
    if (!table->slots)
        return tri_fail(err, TRI_NOMEM, "no memory for a table of %zu names", count);
    enum tri_status st = cut_prefix(table, where, arg, err);
    for (size_t i = 0; i < count && !st; i++) {
        uint32_t *slot = slot_of(table, tensors[i].name);
        char shown[TRI__WEIGHTS_SHOWN_BYTES];
        if (*slot)
            st = tri_fail(err, TRI_FORMAT, "%s: tensor %s is also in %s",
                          where(arg, tensors[i].shard), tri__weights_shown(shown, tensors[i].name),
                          where(arg, tensors[*slot - 1].shard));
        else
            *slot = (uint32_t)i + 1;
    }
    return st;
}

void tri__weights_table_fini(struct tri__weights_table *table)
{
    tri_free(table->tensors);
    tri_free(table->slots);
    *table = (struct tri__weights_table){ 0 };
}

const struct tri_tensor *tri__weights_table_find(const struct tri__weights_table *table,
                                                 const char *name)
{
    uint32_t i = *slot_of(table, name);
    return i ? &table->tensors[i - 1] : NULL;
}
