/*
 * The variants of another CPU against the reference, without cmocka, for an emulator
 * (tests/cli/test_arm_kernels.py): the cases of test_variants.c, fewer rounds.
 */
#include "kernels/kernels.h"
#include "kernels_cases.h"

enum { ROUNDS = 12 };

int main(void)
{
    const struct tri_kernel_variant *v;
    unsigned isas = 0;
    int failed = 0, passed = 0;
    if (tri_cpu_isas(&isas, NULL))
        return 1;
    for (int i = 0; (v = tri_kernels_variant(i)) != NULL; i++) {
        const struct kernel_case *c = find_case(v->name.operation);
        struct tri_kernels fast = *tri_kernels_ref();
        double worst = 0;
        if (!(isas >> v->isa & 1) || !c)
            continue;
        v->put(&fast);
        for (unsigned round = 0; round < ROUNDS; round++) {
            struct random r = { round * 7919u + 17u };
            struct outcome out = c->run(c, &fast, &r);
            worst = out.worst > worst || isnan(out.worst) ? out.worst : worst;
        }
        bool good = worst <= v->tolerance;
        printf("%s %s: %g units, %d allowed%s\n", v->name.operation, v->name.variant, worst,
               v->tolerance, good ? "" : " FAILED");
        failed += !good;
        passed += good;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
