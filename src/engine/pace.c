/*
 * How many rows a step of prompts gets: fewer where a step would keep others waiting for longer
 * than the target, but only as long as rows do not become much dearer by it. A step that reads most
 * experts, or a streamed trunk, costs nearly the same with half the rows: there it stays long.
 *
 * Sizes are the chunk, a half, a quarter of it and so on, whole grids all: results do not change.
 */
#include "engine/engine_priv.h"

/* A row may cost so much more than in the cheapest larger size. */
static const double MOST_LOSS = 1.125;

/* Steps after which smaller sizes are tried again: one of them may have met a bad moment. */
enum { TRY_AGAIN = 32 };

int64_t tri__pace_rows(const struct tri__pace *p, int level)
{
    int64_t rows = (p->most_rows >> level) / TRI_ENGINE_GRID_TOKENS * TRI_ENGINE_GRID_TOKENS;
    return level == 0 || rows == 0 ? p->most_rows : rows;
}

static bool has_level(const struct tri__pace *p, int level)
{
    return level < TRI__PACE_LEVELS && p->most_rows >> level >= TRI_ENGINE_GRID_TOKENS;
}

/* Whether rows at `level` are not much dearer than in any larger size; unknown ones may be tried.
 */
static bool pays(const struct tri__pace *p, int level)
{
    for (int l = 0; l < level; l++)
        if (p->row_ns[l] > 0 && p->row_ns[level] > MOST_LOSS * p->row_ns[l])
            return false;
    return true;
}

/* What makes rows dearer or cheaper for a while, a longer context say, does so in every size: what
 * is remembered of the others moves along. */
static void note(struct tri__pace *p, double row_ns)
{
    double before = p->row_ns[p->level];
    for (int l = 0; l < TRI__PACE_LEVELS && before > 0; l++)
        p->row_ns[l] *= row_ns / before;
    p->row_ns[p->level] = row_ns;
    for (int l = p->level + 1; l < TRI__PACE_LEVELS && p->steps % TRY_AGAIN == 0; l++)
        p->row_ns[l] = 0;
    p->steps++;
}

void tri__pace_took(struct tri__pace *p, int64_t rows, uint64_t ns)
{
    int now = p->level;
    if (p->target_ns == 0 || rows <= tri__pace_rows(p, now) - TRI_ENGINE_GRID_TOKENS)
        return;
    note(p, (double)ns / (double)rows);
    double step_ns = (double)ns, target = (double)p->target_ns;
    if (!pays(p, now) || (now > 0 && 2 * step_ns <= target))
        p->level--;
    else if (step_ns > target && has_level(p, now + 1) && pays(p, now + 1))
        p->level++;
}
