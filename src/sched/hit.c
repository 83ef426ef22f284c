/*
 * How much of a job's tokens is already computed, and where: the longest state that begins them, in
 * idle slots, in RAM and in the folder. The only code that decides this.
 */
#include "sched/sched_priv.h"

#include <string.h>

/* One token at least is left to compute. Of a prompt that is scored every token is wanted: only
 * what has been scored before the job made room is of use. */
static int64_t most_tokens(const struct tri_job *job)
{
    const struct tri_scores *scores = job->request.how.scores;
    bool whole = !scores || scores->n_done >= job->request.n_tokens - 1;
    return whole ? job->n_tokens - 1 : scores->n_done;
}

/* Tokens of `slot`'s state when all of them begin the job's. */
static int64_t slot_hit(const struct tri__sched_slot *slot, const struct tri_job *job)
{
    int64_t all = 0, n = tri_sequence_computed(slot->sequence);
    const int32_t *tokens = tri_sequence_tokens(slot->sequence, &all);
    if (!tri__same_salt(slot->salt, job->request.salt) || n > most_tokens(job) ||
        memcmp(tokens, job->tokens, (size_t)n * sizeof *tokens) != 0)
        return 0;
    return n;
}

static bool is_there(void *arg, void *value)
{
    const struct tri__checkpoint *c = value;
    (void)arg;
    return c->state || c->file_bytes;
}

struct tri__hit tri__sched_hit(struct tri_sched *s, const struct tri_job *job)
{
    struct tri__hit hit = { 0 };
    for (int64_t i = 0; i < s->options.slots; i++) {
        struct tri__sched_slot *slot = &s->slot[i];
        int64_t n = slot->job || slot->use != TRI__SLOT_FREE ? 0 : slot_hit(slot, job);
        if (n > hit.tokens)
            hit = (struct tri__hit){ .tier = TRI_TIER_SLOT, .tokens = n, .slot = slot };
    }
    struct tri_prefix *at = tri_prefixes_longest(s->tree, &job->request.salt, job->tokens,
                                                 most_tokens(job), is_there, NULL);
    struct tri__checkpoint *c = at ? tri_prefix_value(at) : NULL;
    if (!c || c->n_tokens <= hit.tokens)
        return hit;
    return (struct tri__hit){ .tier = c->state ? TRI_TIER_RAM : TRI_TIER_DISK,
                              .tokens = c->n_tokens,
                              .checkpoint = c };
}
