/*
 * Who makes room. CYCLE does not assume how a model routes, it counts: records are sorted into
 * cells by how long ago they were used and by how often lately, and each cell remembers how many of
 * its records the next turn of their layer wanted. So text that keeps to the experts of the token
 * before, a router with favourites, and one without either each get the rule that suits them.
 */
#include "experts/experts_priv.h"

#include <math.h>

enum {
    /* Tokens. Heat is the long memory; the short one is the age. Of 4, 8, 16, 32 and 64 on the
     * traces of docs/findings/061 none is best everywhere; 32 is never far off. */
    HALF_LIFE = 32,
    /* Turns of a layer after which half of what its cells counted is forgotten. */
    FORGET = 128,
    /* Rounds that want more than this share of a layer say nothing about single tokens. */
    LEARN_SHARE = 4
};

static const float PRIOR_WEIGHT = 8; /* samples that a cell's first guess is worth */

/* Turns to wait beyond the next one, for every cell: 1/p - 1 at a chance p per turn. */
static void guess_waits(struct tri_experts *s)
{
    for (int i = 0; i < TRI__AGES * TRI__HEATS; i++) {
        int octave = i % TRI__HEATS;
        float guess = octave < TRI__HEATS - 1 ? ldexpf(0.75F, -octave) : 0;
        double p =
            (double)((s->cell[i].wanted + PRIOR_WEIGHT * guess) / (s->cell[i].seen + PRIOR_WEIGHT));
        s->turns_to_wait[i] = 1 / (p < 1e-6 ? 1e-6 : p) - 1;
    }
}

void tri__policy_init(struct tri_experts *s)
{
    guess_waits(s);
    for (int i = 0; i < 256; i++)
        s->decay[i] = s->policy == TRI_EXPERTS_LFU ? 1 : exp2f(-(float)i / HALF_LIFE);
}

/* Uses counted with age: between 0 and 1 for the decayed kind, a plain count for LFU. */
float tri__policy_heat(const struct tri_experts *s, const struct tri__record *r)
{
    uint32_t age = s->step - r->heat_step;
    return r->heat * (age < 256 ? s->decay[age] : s->decay[255]);
}

/* Turns from the last use: 1, 2, 3, 4, then two steps an octave; the last cell means never. */
static int age_cell(const struct tri__record *r, uint32_t age)
{
    if (r->last_round == 0)
        return TRI__AGES - 1;
    if (age <= 4)
        return age ? (int)age - 1 : 0;
    int octave = 31 - __builtin_clz(age), half = (age >> (octave - 1)) & 1;
    int cell = 4 + 2 * (octave - 2) + half;
    return cell < TRI__AGES - 1 ? cell : TRI__AGES - 2;
}

/* Octaves of heat below 1. */
static int heat_cell(float heat)
{
    int octave = 0;
    if (heat <= 0)
        return TRI__HEATS - 1;
    frexpf(heat, &octave);
    int cell = octave > 0 ? 0 : -octave;
    return cell < TRI__HEATS - 1 ? cell : TRI__HEATS - 2;
}

/* The cell that a record of this row is in when its layer's next turn comes. */
static int64_t next_cell(const struct tri_experts *s, int64_t row, const struct tri__record *r)
{
    bool passed = row <= s->round.row; /* its turn in this step is over */
    return age_cell(r, s->step - r->heat_step + passed) * TRI__HEATS +
           heat_cell(tri__policy_heat(s, r));
}

static struct tri__cell *cell_now(struct tri_experts *s, const struct tri__record *r)
{
    return &s->cell[age_cell(r, s->step - r->heat_step) * TRI__HEATS +
                    heat_cell(tri__policy_heat(s, r))];
}

void tri__policy_learn(struct tri_experts *s, int64_t row, const int32_t *ids, int64_t n)
{
    static const float keep = 1 - 0.693f / FORGET;
    if (s->policy != TRI_EXPERTS_CYCLE || n * LEARN_SHARE > s->experts)
        return;
    for (int64_t e = 0; e < s->experts; e++)
        cell_now(s, &s->record[row * s->experts + e])->seen++;
    for (int64_t i = 0; i < n; i++)
        cell_now(s, &s->record[row * s->experts + ids[i] - s->first_expert])->wanted++;
    for (int i = 0; i < TRI__AGES * TRI__HEATS && row == 0; i++) {
        s->cell[i].seen *= keep;
        s->cell[i].wanted *= keep;
    }
    guess_waits(s);
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
    if (s->policy == TRI_EXPERTS_LRU)
        return -(double)r->last_round;
    if (s->policy == TRI_EXPERTS_LFU)
        return -(double)tri__policy_heat(s, r);
    int64_t row = record / s->experts, ahead = row - s->round.row;
    if (ahead <= 0)
        ahead += s->rows;
    double turns = s->turns_to_wait[next_cell(s, row, r)];
    if (s->expected.n && row == s->expected.row && r->slot >= 0 && s->slot[r->slot].ahead)
        turns = 0;
    return (double)ahead / (double)s->rows + turns;
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
