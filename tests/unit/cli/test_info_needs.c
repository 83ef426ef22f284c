/*
 * cli: the memory that `trireme info --check` announces is what opening the model really takes from
 * its budget. Beyond the weights themselves model takes vectors in blocks of 1 MiB: that much
 * may lie between.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "cli/info.h"
#include "model/model.h"
#include "shared.h"

static void announced_is_taken(void **state)
{
    (void)state;
    static const char *const name[] = { "golden/a", "golden/c", "k3/tiny" };
    for (int g = 0; g < 3; g++) {
        char folder[4096];
        struct tri_spec spec;
        struct tri_checkpoint *ckpt = NULL;
        struct tri_info_needs needs;
        struct tri_error err = { 0 };
        snprintf(folder, sizeof folder, "%s/%s", TRI_TEST_SHARED, name[g]);
        if (tri_spec_load(&spec, folder, NULL, &err) ||
            tri_checkpoint_open(&ckpt, folder, &spec, 1, NULL, &err))
            fail_msg("%s", err.text);
        assert_int_equal(tri_info_weigh(&needs, ckpt, &spec, &err), TRI_OK);
        tri_checkpoint_close(ckpt);
        for (int trunk = 0; trunk < TRI_INFO_PRECISIONS; trunk++) {
            struct tri_budget *budget = NULL;
            struct tri_budget_report used;
            struct tri_model *model = NULL;
            const struct tri_model_options options = { .trunk =
                                                           (enum tri_trunk)(TRI_TRUNK_DISK + trunk),
                                                       .threads = 1 };
            assert_int_equal(tri_budget_open(&budget, 256 << 20, &err), TRI_OK);
            if (tri_model_open(&model, folder, &options, budget, &err))
                fail_msg("%s", err.text);
            tri_budget_read(budget, &used);
            uint64_t took = used.account_used_bytes[TRI_MEM_TRUNK];
            assert_in_range(took, needs.trunk_bytes[trunk], needs.trunk_bytes[trunk] + (1 << 20));
            assert_in_range(used.account_used_bytes[TRI_MEM_EXPERTS], needs.experts_bytes,
                            needs.experts_bytes + needs.experts_bytes / 8);
            tri_model_close(model);
            tri_budget_close(budget);
        }
    }
}

int main(void)
{
    shared_or_skip("golden/c/config.json");
    const struct CMUnitTest tests[] = { cmocka_unit_test(announced_is_taken) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
