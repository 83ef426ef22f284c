/*
 * A routing trace played against a policy without reading a byte: the same policy code over the
 * same tables, so that what is measured here is what the store would do. And Belady's bound: the
 * best that any policy could have done with the future known.
 */
#include "experts/experts.h"

#include <string.h>
#include "experts/experts_priv.h"

/* A store without data: every slot exists, nothing is in them. */
static enum tri_status open_dry(struct tri_experts *s, const struct tri_expert_trace *trace,
                                int64_t slots, enum tri_expert_policy policy, struct tri_error *err)
{
    *s = (struct tri_experts){ .experts = trace->experts,
                               .rows = trace->rows,
                               .policy = policy,
                               .n_slots = slots,
                               .round.row = INT64_MAX };
    s->record = tri_calloc((size_t)(s->rows * s->experts), sizeof *s->record);
    s->slot = tri_calloc((size_t)slots, sizeof *s->slot);
    if (!s->record || !s->slot)
        return tri_fail(err, TRI_NOMEM, "no memory to replay with %lld slots", (long long)slots);
    for (int64_t i = 0; i < s->rows * s->experts; i++)
        s->record[i].slot = -1;
    tri__policy_init(s);
    return TRI_OK;
}

static void close_dry(struct tri_experts *s)
{
    tri_free(s->record);
    tri_free(s->slot);
}

/* One miss: a free slot, or the policy's victim; with every slot pinned it is read and forgotten.
 */
static void bring(struct tri_experts *s, int64_t record, int64_t *used)
{
    int64_t slot = *used < s->n_slots ? (*used)++ : tri__policy_victim(s);
    if (slot < 0)
        return;
    if (s->slot[slot].state == TRI__READY)
        s->record[s->slot[slot].record].slot = -1;
    s->slot[slot] = (struct tri__slot){ .record = record, .state = TRI__READY };
    s->record[record].slot = (int32_t)slot;
}

/* Like a round of the store: hits are those in RAM when it begins, and they stay until it ends;
 * what was read may go again as soon as it was used. Returns hits. */
static int64_t dry_round(struct tri_experts *s, int64_t row, const int32_t *ids, int64_t n,
                         int64_t *used)
{
    int64_t hits = 0, base = row * s->experts;
    if (row <= s->round.row)
        s->step++;
    s->round.row = row;
    s->round_no++;
    tri__policy_learn(s, row, ids, n);
    for (int64_t i = 0; i < n; i++) {
        struct tri__record *r = &s->record[base + ids[i]];
        tri__policy_touch(s, r);
        if (r->slot >= 0) {
            s->slot[r->slot].pinned = true;
            hits++;
        }
    }
    for (int64_t i = 0; i < n; i++)
        if (s->record[base + ids[i]].slot < 0)
            bring(s, base + ids[i], used);
    for (int64_t i = 0; i < n; i++)
        if (s->record[base + ids[i]].slot >= 0)
            s->slot[s->record[base + ids[i]].slot].pinned = false;
    return hits;
}

static enum tri_status check_trace(const struct tri_expert_trace *t, int64_t slots,
                                   struct tri_error *err)
{
    if (slots < 1 || t->tokens < 1 || t->rows < 1 || t->topk < 1)
        return tri_fail(err, TRI_ARG, "nothing to replay: %lld tokens, %lld slots",
                        (long long)t->tokens, (long long)slots);
    for (int64_t i = 0; i < t->tokens * t->rows * t->topk; i++)
        if (t->ids[i] < 0 || t->ids[i] >= t->experts)
            return tri_fail(err, TRI_FORMAT, "token %lld of the trace names expert %d of %lld",
                            (long long)(i / (t->rows * t->topk)), t->ids[i], (long long)t->experts);
    return TRI_OK;
}

enum tri_status tri_experts_replay(const struct tri_expert_trace *trace, int64_t slots,
                                   enum tri_expert_policy policy, int64_t from_token,
                                   struct tri_replay *out, struct tri_error *err)
{
    struct tri_experts s = { 0 };
    struct tri_replay sum = { 0 };
    int64_t used = 0;
    enum tri_status st = check_trace(trace, slots, err);
    if (!st)
        st = open_dry(&s, trace, slots, policy, err);
    for (int64_t t = 0; t < trace->tokens && !st; t++) {
        for (int64_t row = 0; row < trace->rows; row++) {
            const int32_t *ids = trace->ids + (t * trace->rows + row) * trace->topk;
            int64_t hits = dry_round(&s, row, ids, trace->topk, &used);
            if (t >= from_token) {
                sum.wanted += (uint64_t)trace->topk;
                sum.hits += (uint64_t)hits;
            }
        }
    }
    close_dry(&s);
    if (!st)
        *out = sum;
    return st;
}

/* Belady with bypass: of all that is in RAM or just read, what is needed last goes first. */
struct future {
    const struct tri_expert_trace *trace;
    int32_t *next;     /* [tokens * rows * topk] index of the next use of the same record, or -1 */
    int64_t *in_ram;   /* records held */
    int64_t *next_use; /* [records] when each is used next, in uses; INT64_MAX: never */
    bool *held;
    int64_t n_held;
};

static void look_ahead(struct future *f)
{
    const struct tri_expert_trace *t = f->trace;
    int64_t uses = t->tokens * t->rows * t->topk;
    for (int64_t i = 0; i < t->rows * t->experts; i++)
        f->next_use[i] = -1;
    for (int64_t i = uses - 1; i >= 0; i--) {
        int64_t record = i / t->topk % t->rows * t->experts + t->ids[i];
        f->next[i] = (int32_t)f->next_use[record];
        f->next_use[record] = i;
    }
}

static void drop_last_needed(struct future *f)
{
    int64_t worst = 0;
    for (int64_t i = 1; i < f->n_held; i++)
        if (f->next_use[f->in_ram[i]] > f->next_use[f->in_ram[worst]])
            worst = i;
    f->held[f->in_ram[worst]] = false;
    f->in_ram[worst] = f->in_ram[--f->n_held];
}

static void play_future(struct future *f, int64_t slots, int64_t from_token, struct tri_replay *sum)
{
    const struct tri_expert_trace *t = f->trace;
    int64_t round = t->topk, uses = t->tokens * t->rows * t->topk;
    for (int64_t first = 0; first < uses; first += round) {
        bool counts = first / (t->rows * round) >= from_token;
        for (int64_t i = first; i < first + round; i++) {
            int64_t record = first / round % t->rows * t->experts + t->ids[i];
            if (counts)
                sum->wanted++;
            if (f->held[record] && counts)
                sum->hits++;
            if (!f->held[record])
                f->in_ram[f->n_held++] = record;
            f->held[record] = true;
            f->next_use[record] = f->next[i] < 0 ? INT64_MAX : f->next[i];
        }
        while (f->n_held > slots)
            drop_last_needed(f);
    }
}

enum tri_status tri_experts_belady(const struct tri_expert_trace *trace, int64_t slots,
                                   int64_t from_token, struct tri_replay *out,
                                   struct tri_error *err)
{
    enum tri_status st = check_trace(trace, slots, err);
    if (st)
        return st;
    int64_t uses = trace->tokens * trace->rows * trace->topk;
    size_t records = (size_t)(trace->rows * trace->experts);
    struct tri_replay sum = { 0 };
    if (uses > INT32_MAX)
        return tri_fail(err, TRI_LIMIT, "a trace of %lld uses is too long to look ahead in",
                        (long long)uses);
    struct future f = { .trace = trace,
                        .next = tri_malloc((size_t)uses * sizeof(int32_t)),
                        .in_ram = tri_malloc((records + (size_t)trace->topk) * sizeof(int64_t)),
                        .next_use = tri_malloc(records * sizeof(int64_t)),
                        .held = tri_calloc(records, sizeof(bool)) };
    if (!f.next || !f.in_ram || !f.next_use || !f.held) {
        st = tri_fail(err, TRI_NOMEM, "no memory to look ahead in the trace");
    } else {
        look_ahead(&f);
        play_future(&f, slots, from_token, &sum);
        *out = sum;
    }
    tri_free(f.next);
    tri_free(f.in_ram);
    tri_free(f.next_use);
    tri_free(f.held);
    return st;
}
