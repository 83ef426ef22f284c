/*
 * What a fault costs. Today in the units of the wiring: GB/s reached against possible, and the time
 * that one GB of collective traffic takes in both. When the planner is there, this is the one place
 * that asks its ledger for tokens/s instead.
 */
#include <stdio.h>
#include "doctor/doctor_priv.h"

void tri__doctor_cost(struct tri_doctor *d, struct tri_finding *f, double have_gbs,
                      double should_gbs)
{
    (void)d;
    if (have_gbs <= 0 && should_gbs <= 0)
        return;
    f->cost.have_gbs = have_gbs;
    f->cost.should_gbs = should_gbs;
    if (have_gbs > 0 && should_gbs > have_gbs)
        snprintf(f->cost.text, sizeof f->cost.text,
                 "%.1f of %.1f GB/s one way (%.0f %%): collectives over it take %.1f times as long",
                 have_gbs, should_gbs, 100 * have_gbs / should_gbs, should_gbs / have_gbs);
    else if (have_gbs > 0)
        snprintf(f->cost.text, sizeof f->cost.text, "%.1f GB/s one way", have_gbs);
    else
        snprintf(f->cost.text, sizeof f->cost.text, "up to %.1f GB/s one way are not used",
                 should_gbs);
}

/*
 * Bytes of Kimi K3 (spec.md): 1,560,860,324,864 in all, of which routed experts in MXFP4 are 92
 * layers x 896 experts x 3 x 3584 x 3072 weights x 17/32 byte. A token reads 16 experts a layer and
 * the rest of its 104,189,614,848 active weights in bf16.
 */
double tri__doctor_decode_rate(double memory_gbs, double drive_gbs, double memory_bytes, char *how,
                               size_t how_bytes)
{
    const double expert = 3.0 * 3584 * 3072, all_experts = expert * 92 * 896 * 17 / 32;
    const double trunk = 1560860324864.0 - all_experts;
    const double token_experts = expert * 92 * 16 * 17 / 32;
    const double token_trunk = (104189614848.0 - expert * 92 * 16) * 2;
    double spare = memory_bytes * 0.9 - trunk; /* a tenth for caches and the system */
    double held = spare <= 0 ? 0 : spare >= all_experts ? 1 : spare / all_experts;
    double seconds = (token_experts + token_trunk) / (memory_gbs * 1e9);
    if (held < 1) {
        double miss = token_experts * (1 - held);
        if (spare < 0) /* the trunk itself comes from the drive in part */
            miss += token_trunk * (memory_bytes * 0.9 < trunk ? 1 - memory_bytes * 0.9 / trunk : 0);
        if (drive_gbs <= 0)
            return 0;
        seconds += miss / (drive_gbs * 1e9);
        snprintf(
            how, how_bytes,
            "%.0f GB a token from memory at %.1f GB/s, of which %.0f GB are not in RAM and come "
            "from the drive at %.2f GB/s",
            (token_experts + token_trunk) / 1e9, memory_gbs, miss / 1e9, drive_gbs);
    } else {
        snprintf(how, how_bytes, "%.0f GB a token from memory at %.1f GB/s, everything in RAM",
                 (token_experts + token_trunk) / 1e9, memory_gbs);
    }
    return 1 / seconds;
}
