/*
 * Checkpoints: states at one token boundary, in RAM and as files, and which of them to let go.
 * First goes what is covered: everything seen so far went on from it in one way, so a deeper state
 * serves as well (turns of one chat that are past, steps along a long prompt); the end of a shared
 * head is never taken for that. Among equals, what was not used for longest.
 */
#include "sched/sched_priv.h"

#include <string.h>

static uint64_t ram_bytes(struct tri_sched *s, int64_t n_tokens)
{
    struct tri_state_bytes cost;
    tri_state_cost(tri_model_spec(s->model), tri_model_slice(s->model),
                   tri_model_state_form(s->model), &cost);
    return cost.kda_bytes + (uint64_t)n_tokens * cost.mla_bytes_per_token;
}

/* Forgets an entry that is in neither tier any more. */
static void forget_empty(struct tri_sched *s, struct tri__checkpoint *c)
{
    if (c->state || c->file_bytes || c->pins)
        return;
    tri_prefix_remove(s->tree, c->at);
    s->checkpoint_hint = (size_t)(c - s->checkpoint);
    *c = (struct tri__checkpoint){ 0 };
}

void tri__checkpoint_drop_ram(struct tri_sched *s, struct tri__checkpoint *c)
{
    if (!c->state)
        return;
    tri_state_close(c->state);
    s->stats.ram.bytes -= c->bytes;
    s->stats.ram.checkpoints--;
    c->state = NULL;
    c->bytes = 0;
    forget_empty(s, c);
}

void tri__checkpoint_set_file(struct tri_sched *s, struct tri__checkpoint *c, uint64_t bytes)
{
    s->stats.disk.bytes += bytes - c->file_bytes;
    s->stats.disk.checkpoints += (bytes > 0) - (c->file_bytes > 0);
    c->file_bytes = bytes;
    forget_empty(s, c);
}

void tri__checkpoint_unpin(struct tri_sched *s, struct tri__checkpoint *c)
{
    TRI_ASSERT(c->pins > 0);
    c->pins--;
    forget_empty(s, c);
}

void tri__checkpoint_use(struct tri_sched *s, struct tri__checkpoint *c)
{
    c->used = ++s->clock;
}

/* --- letting go ------------------------------------------------------------------------------ */

static bool goes_before(const struct tri__checkpoint *a, const struct tri__checkpoint *b)
{
    bool a_covered = a->why != TRI_KEEP_HEAD && tri_prefix_is_covered(a->at);
    bool b_covered = b->why != TRI_KEEP_HEAD && tri_prefix_is_covered(b->at);
    return a_covered != b_covered ? a_covered : a->used < b->used;
}

static struct tri__checkpoint *first_to_go(struct tri_sched *s, bool of_disk)
{
    struct tri__checkpoint *first = NULL;
    for (size_t i = 0; i < TRI_SCHED_MAX_CHECKPOINTS; i++) {
        struct tri__checkpoint *c = &s->checkpoint[i];
        if (!c->at || c->pins || (of_disk ? !c->file_bytes : !c->state))
            continue;
        if (!first || goes_before(c, first))
            first = c;
    }
    return first;
}

static bool make_ram(struct tri_sched *s, uint64_t bytes)
{
    if (bytes > s->options.cache_bytes)
        return false;
    while (s->stats.ram.bytes + bytes > s->options.cache_bytes) {
        struct tri__checkpoint *c = first_to_go(s, false);
        if (!c)
            return false;
        tri__checkpoint_drop_ram(s, c);
        s->stats.ram.evicted++;
    }
    return true;
}

bool tri__checkpoint_fits_folder(const struct tri_sched *s, uint64_t bytes)
{
    return s->stats.disk.bytes + bytes <= s->options.folder_bytes &&
           s->stats.disk.checkpoints + (bytes > 0) <= TRI_SCHED_MAX_FILES;
}

bool tri__checkpoint_evict_file(struct tri_sched *s, uint64_t bytes, struct tri_kept *kept)
{
    if (tri__checkpoint_fits_folder(s, bytes))
        return false;
    struct tri__checkpoint *c = first_to_go(s, true);
    int32_t *tokens = c ? tri__checkpoint_tokens(c) : NULL;
    if (!tokens)
        return false;
    *kept = (struct tri_kept){ c->salt, c->why, tokens, c->n_tokens };
    tri__checkpoint_set_file(s, c, 0);
    s->stats.disk.evicted++;
    return true;
}

int32_t *tri__checkpoint_tokens(const struct tri__checkpoint *c)
{
    int32_t *tokens = tri_calloc((size_t)c->n_tokens, sizeof *tokens);
    if (tokens)
        tri_prefix_tokens(c->at, tokens);
    return tokens;
}

/* --- keeping --------------------------------------------------------------------------------- */

static struct tri__checkpoint *unused(struct tri_sched *s)
{
    for (size_t i = 0; i < TRI_SCHED_MAX_CHECKPOINTS; i++) {
        size_t at = (s->checkpoint_hint + i) % TRI_SCHED_MAX_CHECKPOINTS;
        if (!s->checkpoint[at].at) {
            s->checkpoint_hint = at + 1;
            return &s->checkpoint[at];
        }
    }
    return NULL;
}

/* All places are taken: one that is only in RAM makes room (files are bounded by their bytes). */
static struct tri__checkpoint *place(struct tri_sched *s)
{
    struct tri__checkpoint *c = unused(s);
    for (size_t i = 0; !c && i < TRI_SCHED_MAX_CHECKPOINTS; i++) {
        struct tri__checkpoint *old = &s->checkpoint[i];
        if (old->pins || old->file_bytes || (c && !goes_before(old, c)))
            continue;
        c = old;
    }
    if (c && c->at) {
        tri__checkpoint_drop_ram(s, c);
        s->stats.ram.evicted++;
    }
    return c;
}

struct tri__checkpoint *tri__checkpoint_for(struct tri_sched *s, const struct tri_kept *kept)
{
    struct tri_prefix *at = tri_prefixes_find(s->tree, &kept->salt, kept->tokens, kept->n_tokens);
    struct tri__checkpoint *c = at ? tri_prefix_value(at) : place(s);
    if (!at && (!c || tri_prefixes_put(s->tree, &kept->salt, kept->tokens, kept->n_tokens, c, &at,
                                       NULL) != TRI_OK))
        return NULL;
    if (!c->at)
        *c = (struct tri__checkpoint){
            .at = at, .n_tokens = kept->n_tokens, .salt = kept->salt, .why = kept->why
        };
    tri__checkpoint_use(s, c);
    return c;
}

/* Copies the state into RAM; false when there is no room for it. */
static bool copy_to_ram(struct tri_sched *s, struct tri__checkpoint *c,
                        const struct tri_sequence *sequence)
{
    uint64_t bytes = ram_bytes(s, c->n_tokens);
    c->pins++; /* must not go for itself */
    bool ok = make_ram(s, bytes);
    c->pins--;
    if (!ok || tri_model_state(s->model, c->n_tokens, &c->state, NULL) != TRI_OK) {
        c->state = NULL; /* no room in the budget: no checkpoint, nothing worse */
        return false;
    }
    if (tri_sequence_snapshot(sequence, c->state, NULL) != TRI_OK) {
        tri_state_close(c->state);
        c->state = NULL;
        return false;
    }
    c->bytes = bytes;
    s->stats.ram.checkpoints++;
    s->stats.ram.taken++;
    s->stats.ram.bytes += bytes;
    return true;
}

struct tri__checkpoint *tri__keep(struct tri_sched *s, const struct tri_sequence *sequence,
                                  struct tri_salt salt, enum tri_keep why)
{
    int64_t all = 0, n = tri_sequence_computed(sequence);
    const struct tri_kept kept = { salt, why, tri_sequence_tokens(sequence, &all), n };
    if (n < 1 || s->options.cache_bytes == 0)
        return NULL;
    struct tri__checkpoint *c = tri__checkpoint_for(s, &kept);
    if (!c)
        return NULL;
    if (!c->state && !copy_to_ram(s, c, sequence)) {
        forget_empty(s, c);
        return NULL;
    }
    if (!c->file_bytes && why != TRI_KEEP_OUT)
        tri__keeper_write(s, c);
    return c;
}

void tri__checkpoints_close(struct tri_sched *s)
{
    for (size_t i = 0; i < TRI_SCHED_MAX_CHECKPOINTS; i++)
        tri_state_close(s->checkpoint[i].state);
    tri_prefixes_close(s->tree);
}
