/* The planner's layouts: text in, names out, contradictions refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "layout/layout.h"

static struct tri_layout parse(const char *text)
{
    struct tri_layout l;
    struct tri_error err = { 0 };
    if (tri_layout_parse(&l, text, 93, &err))
        fail_msg("%s: %s", text, err.text);
    return l;
}

static void test_names(void **state)
{
    static const struct {
        const char *text, *name;
        int cards, experts;
    } cases[] = {
        { "tp8", "TP8", 8, 8 },
        { "TP8 x PP4", "TP8 x PP4", 32, 8 },
        { "tp8xpp4", "TP8 x PP4", 32, 8 },
        { "tp4dp4", "TP4 x DP4", 16, 16 },
        { "tp4 dp4 ep16", "TP4 x DP4 (EP16)", 16, 16 },
        { "dep16", "TP1 x DP16 (EP16)", 16, 16 },
        { "tep16", "TP16 (EP16)", 16, 16 },
        { "tp8dcp8", "TP8 x DCP8", 8, 8 },
        { "tp2r2", "2 x (TP2)", 4, 2 },
        { "ep32", "TP32 (EP32)", 32, 32 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[96];
        struct tri_layout l = parse(cases[i].text);
        tri_layout_name(&l, name, sizeof name);
        assert_string_equal(name, cases[i].name);
        assert_int_equal(tri_layout_cards(&l), cases[i].cards);
        assert_int_equal(tri_layout_expert_ranks(&l), cases[i].experts);
    }
}

static void test_stages(void **state)
{
    (void)state;
    struct tri_layout l = parse("tp8pp4");
    static const int expect[] = { 24, 23, 23, 23 };
    for (int i = 0; i < 4; i++)
        assert_int_equal(l.stage_layers[i], expect[i]);
}

static void test_refusals(void **state)
{
    static const char *const bad[] = { "",
                                       "8",
                                       "tp",
                                       "tp0",
                                       "tp8tp8",
                                       "tq8",
                                       "tp8pp",
                                       "tp4097",
                                       "tp8ep4",
                                       "tp8dcp3",
                                       "pp94",
                                       "pp65",
                                       "tp99999999999999999999",
                                       "tp8;rm",
                                       "\x01" };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tri_layout l;
        struct tri_error err = { 0 };
        if (tri_layout_parse(&l, bad[i], 93, &err) != TRI_ARG)
            fail_msg("'%s' was taken", bad[i]);
        assert_non_null(strstr(err.text, "layout"));
    }
    struct tri_layout l;
    assert_int_equal(tri_layout_parse(&l, "pp64", 93, NULL), TRI_OK);
    assert_int_equal(tri_layout_parse(&l, "tp4096", 93, NULL), TRI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
