/*
 * kernels: every variant that this CPU can run against the scalar reference, on random shapes, with
 * guard bytes behind every array that it reads or writes. A variant may differ by its tolerance
 * (variants.def) in units of 2^-24 of the magnitudes that went into the value. `--bench` times them
 * instead.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "kernels/kernels.h"
#include "kernels_cases.h"

enum { ROUNDS = 60 };

static const struct tri_kernel_variant *variant;
static unsigned isas;

static void equals_reference(void **state)
{
    (void)state;
    const char *op = variant->name.operation;
    const struct kernel_case *c = find_case(op);
    struct tri_kernels fast = *tri_kernels_ref();
    variant->put(&fast);
    double worst = 0;
    if (!c)
        fail_msg("no test for operation %s", op);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct random r = { round * 7919u + 17u };
        struct outcome out = c->run(c, &fast, &r);
        if (!(out.worst <= variant->tolerance))
            fail_msg("%s %s, round %u (%s): value %lld is %g, reference %g: %g units, %d allowed",
                     op, variant->name.variant, round, out.shape, (long long)out.index, out.got,
                     out.want, out.worst, variant->tolerance);
        worst = out.worst > worst ? out.worst : worst;
    }
    printf("%s %s: %.1f units at most, %d allowed\n", op, variant->name.variant, worst,
           variant->tolerance);
}

/* The reference's own form of BF16 states, which no variant is held against. */
static void reference_half_states(void **state)
{
    (void)state;
    for (int chunk = 0; chunk < 2; chunk++) {
        const struct kernel_case *c = find_case(chunk ? "kda_chunk" : "kda_step");
        for (unsigned round = 0; round < ROUNDS; round++) {
            struct random r = { round * 7919u + 17u };
            struct outcome out = c->run(c, tri_kernels_ref(), &r);
            assert_true(out.worst == 0);
        }
    }
}

/* The cap by name: at `base` nothing above it may be chosen, and nonsense is refused. */
static void cap_by_name(void **state)
{
    (void)state;
    unsigned capped = 0;
    setenv("TRIREME_ISA", "base", 1);
    assert_int_equal(tri_cpu_isas(&capped, NULL), TRI_OK);
    assert_int_equal(capped, 1u << TRI_ISA_REF | 1u << TRI_ISA_BASE);
    for (int i = 0; tri_kernels_list(i); i++)
        assert_true(!strcmp(tri_kernels_list(i)->variant, "base") ||
                    !strcmp(tri_kernels_list(i)->variant, "ref"));
    setenv("TRIREME_ISA", "sse9", 1);
    assert_int_equal(tri_cpu_isas(&capped, NULL), TRI_ARG);
    unsetenv("TRIREME_ISA");
}

int main(int argc, char **argv)
{
    int rc = 0, skipped = 0;
    if (tri_cpu_isas(&isas, NULL))
        return 1;
    if (argc > 1 && !strcmp(argv[1], "--bench"))
        return bench_cases(isas, argc > 2 ? argv[2] : "");
    for (int i = 0; (variant = tri_kernels_variant(i)) != NULL; i++) {
        char name[64];
        if (!(isas >> variant->isa & 1)) {
            skipped++;
            continue;
        }
        snprintf(name, sizeof name, "%s %s", variant->name.operation, variant->name.variant);
        const struct CMUnitTest test[] = { { name, equals_reference, NULL, NULL, NULL } };
        rc += cmocka_run_group_tests_name(name, test, NULL, NULL);
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(reference_half_states),
                                        cmocka_unit_test(cap_by_name) };
    rc += cmocka_run_group_tests(tests, NULL, NULL);
    printf("%d variants skipped: this CPU has not their instructions\n", skipped);
    return rc;
}
