/* The simulated drive: real bytes, made-up behaviour. Attempts are made at once and kept until they
 * are reaped. */
#include "os/aio.h"

#include "base/mem.h"
#include "os/aio_priv.h"

struct sim {
    struct tri_aio *aio;
    struct tri_aio_sim plan;
    uint64_t started[TRI_AIO_MAX_DEPTH]; /* number of the read in each slot */
    uint64_t reads, random;
    struct tri__aio_attempt waiting[TRI_AIO_MAX_DEPTH];
    int n_waiting;
};

static enum tri_status sim_start(void *self, int slot, struct tri_error *err)
{
    struct sim *s = self;
    struct tri__aio_slot *q = &s->aio->slot[slot];
    (void)err;
    if (q->got == 0 && q->last_end == UINT64_MAX)
        s->started[slot] = s->reads++;
    if (s->started[slot] == s->plan.stall_at)
        return TRI_OK;
    struct tri__aio_attempt a = { slot, -s->plan.fail_errno };
    if (s->started[slot] != s->plan.fail_at) {
        uint64_t bytes = q->read.bytes - q->got;
        if (s->plan.most_bytes && bytes > s->plan.most_bytes)
            bytes = s->plan.most_bytes;
        a.result = tri__aio_pread(q->read.fd, (char *)q->read.dst + q->got, bytes,
                                  q->read.offset_bytes + q->got);
    }
    s->waiting[s->n_waiting++] = a;
    return TRI_OK;
}

static enum tri_status sim_reap(void *self, struct tri__aio_attempt *out, int most, int timeout_ms,
                                int *n, struct tri_error *err)
{
    struct sim *s = self;
    (void)timeout_ms; /* time is simulated too: nothing waiting means it has passed */
    (void)err;
    *n = 0;
    while (*n < most && s->n_waiting) {
        int pick = 0;
        if (s->plan.shuffle) {
            s->random = s->random * 6364136223846793005u + 1442695040888963407u;
            pick = (int)((s->random >> 33) % (uint64_t)s->n_waiting);
        }
        out[(*n)++] = s->waiting[pick];
        s->waiting[pick] = s->waiting[--s->n_waiting];
    }
    return TRI_OK;
}

static bool sim_close(void *self, bool owing)
{
    (void)owing; /* what is stalled here never started */
    tri_free(self);
    return true;
}

enum tri_status tri_aio_open_sim(struct tri_aio **out, int depth, const struct tri_aio_sim *plan,
                                 struct tri_error *err)
{
    static const struct tri__aio_ops ops = { "simulated", sim_start, sim_reap, NULL, sim_close };
    struct tri_aio *aio = NULL;
    enum tri_status st = tri__aio_new(&aio, depth, err);
    if (st)
        return st;
    struct sim *s = tri_calloc(1, sizeof *s);
    if (!s) {
        tri_free(aio);
        return tri_fail(err, TRI_NOMEM, "no memory for a simulated drive");
    }
    s->aio = aio;
    s->plan = *plan;
    s->random = plan->shuffle;
    aio->ops = &ops;
    aio->self = s;
    *out = aio;
    return TRI_OK;
}
