/*
 * The planner's words and configs, as a stranger writes them: the first byte picks what the rest
 * is (hardware, layout, goals, token count, speculation and stages, a model's config). Any text
 * gives an answer or one clear line; never a crash, never a wait.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "plan/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void plan_with(struct tri_plan_options *o)
{
    struct tri_plan *plan = NULL;
    struct tri_error err = { 0 };
    if (tri_plan_make(&plan, o, NULL, &err) && (!err.text[0] || strchr(err.text, '\n')))
        __builtin_trap();
    tri_plan_close(plan);
}

static void config(const char *text, size_t bytes)
{
    struct tri_arch *arch = NULL;
    struct tri_error err = { 0 };
    if (tri_arch_parse(&arch, "fuzz", text, bytes, true, NULL, &err) && !err.text[0])
        __builtin_trap();
    tri_arch_close(arch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[4096];
    struct tri_plan_options o;
    struct tri_goal goals[TRI_PLAN_MAX_GOALS];
    struct tri_layout layout;
    int64_t tokens = 0;
    int n = 0;
    if (size < 1 || size >= sizeof text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    tri_plan_options_init(&o);
    o.model = "qwen3-8b";
    o.hw = "2xRTX-4090";
    o.layout = "tp2";
    switch (*data % 8) {
    case 0:
        o.hw = text;
        o.layout = "tp1";
        plan_with(&o);
        break;
    case 1:
        (void)!tri_layout_parse(&layout, text, 93, NULL);
        break;
    case 2:
        (void)!tri_parse_goals(goals, &n, text, NULL);
        break;
    case 3:
        (void)!tri_parse_tokens(&tokens, "--x", text, TRI_PLAN_MAX_TOKENS, NULL);
        break;
    case 4:
        o.spec = text;
        plan_with(&o);
        break;
    case 5:
        o.layout = "tp1pp2";
        o.stages = text;
        plan_with(&o);
        break;
    case 6:
        o.kv = text;
        o.precision = text;
        plan_with(&o);
        break;
    default:
        config(text, strlen(text));
    }
    return 0;
}
