/*
 * Arithmetic peaks: every loop the machine can run, on all threads. Runs are a millisecond short
 * and many, and the best counts: a busy neighbour then spoils runs, not the measurement.
 */
#include "limits/limits_priv.h"

#include "base/clock.h"

enum { RUNS = 100, PIECES_PER_THREAD = 2 };
static const double PIECE_S = 0.0005;

const char *tri_peak_kind_name(enum tri_peak_kind kind)
{
    static const char *const name[] = { "int8", "bf16", "f32" };
    TRI_ASSERT((unsigned)kind < TRI_PEAK_KINDS);
    return name[kind];
}

static bool always(void)
{
    return true;
}

/* For machines without a loop of their own: what the compiler makes of plain C. */
static void run_plain(int64_t turns)
{
    typedef float lanes __attribute__((vector_size(16)));
    lanes a[8] = { { 0 } }, x = { 1, 1, 1, 1 }, y = { 0.5f, 0.5f, 0.5f, 0.5f };
    for (int64_t i = 0; i < turns; i++) {
        for (int k = 0; k < 8; k++)
            a[k] = a[k] * y + x;
        __asm__ volatile("" ::: "memory");
    }
    for (int k = 1; k < 8; k++)
        a[0] += a[k];
    __asm__ volatile("" ::"r"(&a) : "memory");
}

static const struct tri__peak_loop plain_loops[] = {
    { TRI_PEAK_F32, "plain C", 8 * 4 * 2, always, run_plain },
    { 0 },
};

struct work {
    const struct tri__peak_loop *loop;
    int64_t turns;
};

static void run_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        w->loop->run(w->turns);
}

static double measure(struct tri_pool *pool, const struct tri__peak_loop *loop)
{
    struct work w = { loop, 1000 };
    double spent = 0, best = 0;
    int64_t pieces = (int64_t)tri_pool_threads(pool) * PIECES_PER_THREAD;
    for (;;) { /* as many turns as one piece should have */
        double begin = tri_clock_s();
        loop->run(w.turns);
        spent = tri_clock_s() - begin;
        if (spent >= PIECE_S || w.turns > INT64_C(1) << 40)
            break;
        w.turns *= 2;
    }
    for (int i = 0; i < RUNS; i++) {
        double begin = tri_clock_s();
        tri_pool_for(pool, pieces, 1, run_piece, &w);
        double rate = (double)pieces * (double)w.turns * loop->ops / (tri_clock_s() - begin);
        best = rate > best ? rate : best;
    }
    return best;
}

int tri_peaks_measure(struct tri_pool *pool, struct tri_peak out[TRI_PEAKS_MAX])
{
    const struct tri__peak_loop *const lists[] = { tri__peak_loops_x86, tri__peak_loops_arm,
                                                   plain_loops };
    int n = 0;
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++)
        for (const struct tri__peak_loop *p = lists[l]; p->name && n < TRI_PEAKS_MAX; p++)
            if (p->can_run() && (lists[l] != plain_loops || !tri_peak_best(out, n, p->kind)))
                out[n++] = (struct tri_peak){ p->kind, p->name, measure(pool, p) };
    return n;
}

const struct tri_peak *tri_peak_best(const struct tri_peak *peaks, int n, enum tri_peak_kind kind)
{
    const struct tri_peak *best = NULL;
    for (int i = 0; i < n; i++)
        if (peaks[i].kind == kind && (!best || peaks[i].ops_per_s > best->ops_per_s))
            best = &peaks[i];
    return best;
}
