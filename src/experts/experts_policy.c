/* Who makes room. See enum tri_expert_policy. */
#include "experts/experts_priv.h"

#include <math.h>

void tri__policy_init(struct tri_experts *s)
{
    for (int i = 0; i < 256; i++)
        s->decay[i] = s->policy == TRI_EXPERTS_LFU ? 1 : exp2f(-(float)i / TRI_EXPERTS_HALF_LIFE);
}

/* Uses counted with age: between 0 and 1 for the decayed kind, a plain count for LFU. */
float tri__policy_heat(const struct tri_experts *s, const struct tri__record *r)
{
    uint32_t age = s->step - r->heat_step;
    return r->heat * (age < 256 ? s->decay[age] : s->decay[255]);
}

void tri__policy_touch(struct tri_experts *s, struct tri__record *r)
{
    float gain = s->policy == TRI_EXPERTS_LFU ? 1 : 1 - s->decay[1];
    r->heat = tri__policy_heat(s, r) + gain;
    r->heat_step = s->step;
    r->last_round = s->round_no;
}

/*
 * How long until this record is likely used again; larger goes first. CYCLE, in tokens: the way
 * round the layer cycle to its layer, plus 1/p - 1 further turns at a chance p per token.
 */
static double keep_away(const struct tri_experts *s, int64_t record)
{
    const struct tri__record *r = &s->record[record];
    double heat = (double)tri__policy_heat(s, r);
    if (s->policy == TRI_EXPERTS_LRU)
        return -(double)r->last_round;
    if (s->policy == TRI_EXPERTS_LFU)
        return -heat;
    int64_t row = record / s->experts, ahead = row - s->round.row;
    if (ahead <= 0)
        ahead += s->rows;
    double p = heat < 1e-6 ? 1e-6 : heat > 1 ? 1 : heat;
    if (s->expected.n && row == s->expected.row && r->slot >= 0 && s->slot[r->slot].ahead)
        p = 1;
    return (double)ahead / (double)s->rows + 1 / p - 1;
}

int64_t tri__policy_victim(const struct tri_experts *s)
{
    int64_t victim = -1;
    double furthest = 0;
    for (int64_t i = 0; i < s->n_slots; i++) {
        const struct tri__slot *slot = &s->slot[i];
        if (slot->state != TRI__READY || slot->pinned)
            continue;
        double away = keep_away(s, slot->record);
        if (victim < 0 || away > furthest) {
            victim = i;
            furthest = away;
        }
    }
    return victim;
}
