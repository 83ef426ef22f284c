/*
 * The planner lends the doctor its prices: a machine of so many GPUs of a kind whose pairs reach a
 * rate is made, and the largest known model that runs on it in one tensor-parallel group is planned
 * twice, with the rate that is had and the one that should be. Nothing is read from disk; a plan
 * takes milliseconds.
 */
#include "cli/doctor_price.h"

#include <stdio.h>
#include <string.h>
#include "plan/plan.h"

enum { PROMPT_TOKENS = 4096, OUTPUT_TOKENS = 512 };

/* Above this a pair of GPUs is joined by more than PCIe. */
static const double pcie_most_gbs = 64;

/* Machine of `gpus` equal cards in which every pair reaches `gbs`. NULL when memory ends. */
static struct tri_machine *make_machine(const struct tri_doctor_question *q, double gbs,
                                        bool staged)
{
    struct tri_machine *m = NULL;
    if (tri_machine_open(&m, NULL))
        return NULL;
    for (size_t i = 0; i < q->gpus; i++) {
        struct tri_gpu *g = tri_machine_add_gpu(m);
        if (!g) {
            tri_machine_close(m);
            return NULL;
        }
        snprintf(g->name, sizeof g->name, "%s", q->device);
    }
    bool amd = strstr(q->device, "MI") != NULL;
    for (size_t a = 0; a < m->gpus; a++)
        for (size_t b = 0; b < m->gpus; b++) {
            struct tri_pair *p = tri_machine_pair(m, a, b);
            if (a == b)
                continue;
            p->path = gbs <= pcie_most_gbs ? TRI_PATH_PIX : amd ? TRI_PATH_XGMI : TRI_PATH_NVLINK;
            p->p2p = staged ? TRI_P2P_GNS : TRI_P2P_OK;
            p->seen_gbs = gbs;
        }
    return m;
}

struct speed {
    double tokens_per_s, ttft_ms;
};

/* One request at a time on the machine, in one tensor-parallel group. False: it does not run. */
static bool plan(const struct tri_machine *m, const char *model, struct speed *out)
{
    struct tri_plan_options o;
    struct tri_plan *p = NULL;
    struct tri_error err = { 0 };
    char layout[16];
    tri_plan_options_init(&o);
    snprintf(layout, sizeof layout, "tp%zu", m->gpus);
    o.model = model;
    o.captured = m;
    o.layout = layout;
    o.input_tokens = PROMPT_TOKENS;
    o.output_tokens = OUTPUT_TOKENS;
    o.context_tokens = PROMPT_TOKENS + OUTPUT_TOKENS;
    o.concurrency = 1;
    if (tri_plan_make(&p, &o, NULL, &err))
        return false;
    bool runs = p->best.grade >= TRI_GRADE_GENERATES && p->best.speed.tpot_ms > 0;
    out->tokens_per_s = runs ? 1000 / p->best.speed.tpot_ms : 0;
    out->ttft_ms = p->best.speed.ttft_ms;
    tri_plan_close(p);
    return runs;
}

/* The largest model that runs there; NULL when none does or the planner does not know the part. */
static const char *largest_model(const struct tri_machine *m)
{
    static const char *const models[] = { "kimi-k3",         "deepseek-v3",   "llama-3.1-405b",
                                          "qwen3-235b-a22b", "llama-3.1-70b", "qwen3-32b",
                                          "qwen3-14b",       "qwen3-4b" };
    struct speed speed;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (plan(m, models[i], &speed))
            return models[i];
    return NULL;
}

static bool same(const struct tri_doctor_question *a, const struct tri_doctor_question *b)
{
    double have = a->have_gbs - b->have_gbs, should = a->should_gbs - b->should_gbs;
    return a->gpus == b->gpus && a->staged == b->staged && have * have < 1e-12 &&
           should * should < 1e-12;
}

static bool price(const struct tri_pricing *t, const struct tri_doctor_question *q,
                  const struct tri_machine *sound, struct tri_doctor_price *out)
{
    struct tri_machine *sick = make_machine(q, q->have_gbs, q->staged);
    struct speed have = { 0 }, should = { 0 };
    bool known = sick && plan(sick, t->model, &have) && plan(sound, t->model, &should) &&
                 have.tokens_per_s < should.tokens_per_s;
    tri_machine_close(sick);
    if (!known)
        return false;
    snprintf(out->model, sizeof out->model, "%s, TP%zu", t->model, q->gpus);
    out->have_tokens_per_s = have.tokens_per_s;
    out->should_tokens_per_s = should.tokens_per_s;
    out->have_ttft_ms = have.ttft_ms;
    out->should_ttft_ms = should.ttft_ms;
    out->prompt_tokens = PROMPT_TOKENS;
    return true;
}

bool tri_doctor_price(void *arg, const struct tri_doctor_question *q, struct tri_doctor_price *out)
{
    struct tri_pricing *t = arg;
    bool power = q->gpus > 1 && q->gpus <= 8 && (q->gpus & (q->gpus - 1)) == 0;
    if (!power) /* tensor-parallel groups that engines make */
        return false;
    bool other = strncmp(t->device, q->device, sizeof t->device - 1) || t->gpus != q->gpus;
    for (size_t i = 0; i < t->knowns && !other; i++)
        if (same(&t->known[i].question, q)) {
            *out = t->known[i].price;
            return out->model[0] != 0;
        }
    struct tri_machine *sound = make_machine(q, q->should_gbs, false);
    if (!sound)
        return false;
    if (other) {
        snprintf(t->device, sizeof t->device, "%s", q->device);
        t->gpus = q->gpus;
        t->knowns = 0;
        t->model = largest_model(sound);
    }
    bool priced = t->model && price(t, q, sound, out);
    tri_machine_close(sound);
    if (t->knowns < sizeof t->known / sizeof t->known[0]) {
        t->known[t->knowns].question = *q;
        t->known[t->knowns].price = priced ? *out : (struct tri_doctor_price){ .model = "" };
        t->knowns++;
    }
    return priced;
}
