/*
 * The cut of top-k and top-p without sorting: a radix selection over 64-bit keys, one byte at a
 * time from the top. Each pass measures 256 buckets, walks them from the highest until the target
 * falls into one, and goes on inside that bucket alone. Linear for any input, and the order is
 * total, so that ties cannot make the result depend on anything but the keys.
 */
#include "engine/engine_priv.h"

struct buckets {
    double measure[256];
    int64_t count[256];
};

static void fill(struct buckets *b, const uint64_t *keys, int64_t n, int shift, bool by_mass)
{
    for (int i = 0; i < 256; i++) {
        b->measure[i] = 0;
        b->count[i] = 0;
    }
    for (int64_t i = 0; i < n; i++) {
        unsigned digit = (unsigned)(keys[i] >> shift) & 255;
        b->count[digit]++;
        b->measure[digit] += by_mass ? (double)tri__engine_key_weight(keys[i]) : 1.0;
    }
}

/* The bucket in which `*target` is reached, counted from the top; *target becomes what is still
 * missing on entering it. Rounding may leave the last bit unreached: then the lowest one used. */
static int walk(const struct buckets *b, double *target)
{
    int last = -1;
    double above = 0, before_last = 0;
    for (int i = 255; i >= 0; i--) {
        if (!b->count[i])
            continue;
        last = i;
        before_last = above;
        above += b->measure[i];
        if (above >= *target)
            break;
    }
    *target -= before_last;
    return last;
}

uint64_t tri__engine_threshold(const uint64_t *keys, int64_t n, bool by_mass, double target,
                               uint64_t *work)
{
    TRI_ASSERT(n > 0);
    struct buckets b;
    const uint64_t *from = keys;
    for (int shift = 56; shift >= 0 && n > 1; shift -= 8) {
        fill(&b, from, n, shift, by_mass);
        unsigned digit = (unsigned)walk(&b, &target);
        int64_t kept = 0;
        for (int64_t i = 0; i < n; i++)
            if (((unsigned)(from[i] >> shift) & 255) == digit)
                work[kept++] = from[i];
        from = work;
        n = kept;
    }
    return from[0];
}
