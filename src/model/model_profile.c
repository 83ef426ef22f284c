/*
 * Where the time of steps goes. Each call says what the step does from here on; the time since the
 * last call belongs to what it did before. Nothing is measured unless somebody asked.
 */
#include "model/model_priv.h"

#include "base/clock.h"

const char *tri_time_name(enum tri_time part)
{
    static const char *const name[] = {
#define TRI_TIME_TEXT(id, text) text,
        TRI_TIME_MAP(TRI_TIME_TEXT)
#undef TRI_TIME_TEXT
    };
    TRI_ASSERT((unsigned)part < TRI_TIMES);
    return name[part];
}

void tri_model_profile(struct tri_model *model, struct tri_profile *profile)
{
    model->profile = profile;
}

void tri__time(struct tri_model *m, enum tri_time part)
{
    struct tri_profile *p = m->profile;
    if (!p)
        return;
    uint64_t now = tri_clock_ns();
    if (m->timing_since_ns)
        p->ns[m->timing] += now - m->timing_since_ns;
    m->timing = part;
    m->timing_since_ns = now;
}

void tri__time_was(struct tri_model *m, enum tri_time part, uint64_t ns)
{
    struct tri_profile *p = m->profile;
    if (!p)
        return;
    /* What the step does now has not been added up yet: it is charged less later. */
    m->timing_since_ns += ns;
    p->ns[part] += ns;
}

void tri__time_end(struct tri_model *m)
{
    if (!m->profile)
        return;
    tri__time(m, TRI_TIME_OTHER);
    m->timing_since_ns = 0;
    m->profile->steps++;
}
