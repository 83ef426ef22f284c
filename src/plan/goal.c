/* Words of the question: token counts, goals, defaults; and the names of grades and bindings. */
#include "plan/plan_priv.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void tri_plan_options_init(struct tri_plan_options *out)
{
    *out = (struct tri_plan_options){ .input_tokens = 2048,
                                      .output_tokens = 512,
                                      .concurrency = 8,
                                      .machines = 1,
                                      .power_usd_kwh = 0.12 };
}

enum tri_status tri_parse_tokens(int64_t *out, const char *what, const char *text, int64_t max,
                                 struct tri_error *err)
{
    char safe[40];
    size_t whole = strspn(text, "0123456789"), point = text[whole] == '.';
    size_t all = whole + point + (point ? strspn(text + whole + 1, "0123456789") : 0);
    double value = whole ? strtod(text, NULL) : -1;
    const char *unit = text + all;
    if (*unit == 'k' || *unit == 'K')
        value *= 1024;
    else if (*unit == 'm' || *unit == 'M')
        value *= 1048576;
    bool spare = (point && all == whole + 1) || (*unit && (!strchr("kKmM", *unit) || unit[1]));
    if (spare || !(value >= 1) || value > (double)max || value > floor(value) || all > 18)
        return tri_fail(err, TRI_ARG, "%s %s: expected a count from 1 to %lld, like 8192, 32k, 1M",
                        what, tri_printable(safe, sizeof safe, text, strnlen(text, 100)),
                        (long long)max);
    *out = (int64_t)value;
    return TRI_OK;
}

static const struct {
    const char *name, *plain;
    bool at_most, time;
} goals[] = {
    [TRI_GOAL_TTFT] = { "TTFT (ms)", "ttft", true, true },
    [TRI_GOAL_TPOT] = { "TPOT (ms)", "tpot", true, true },
    [TRI_GOAL_USERS] = { "users at once", "users", false, false },
    [TRI_GOAL_TOKENS_PER_S] = { "tokens/s", "tps", false, false },
    [TRI_GOAL_COST] = { "$ per million output tokens", "cost", true, false },
};

const char *tri_goal_name(enum tri_goal_what what)
{
    return goals[what].name;
}

static enum tri_status bad_goal(const char *text, struct tri_error *err)
{
    char safe[100];
    return tri_fail(err, TRI_ARG,
                    "goal %s: expected like \"ttft<5s,tpot<80ms,users>=32,tps>500,cost<4\"",
                    tri_printable(safe, sizeof safe, text, strnlen(text, 200)));
}

/* One "name<value[unit]"; times and cost are bounded from above, the others from below. */
static bool read_goal(struct tri_goal *out, const char *text, size_t bytes)
{
    char word[64];
    size_t n = 0;
    for (size_t i = 0; i < bytes && n + 1 < sizeof word; i++)
        if (!isspace((unsigned char)text[i]))
            word[n++] = (char)tolower((unsigned char)text[i]);
    word[n] = 0;
    size_t name = strcspn(word, "<>=");
    for (size_t i = 0; i < sizeof goals / sizeof goals[0]; i++) {
        if (strlen(goals[i].plain) != name || strncmp(word, goals[i].plain, name))
            continue;
        const char *p = word + name;
        bool below = *p == '<';
        if (*p != '<' && *p != '>')
            return false;
        p += p[1] == '=' ? 2 : 1;
        char *end = NULL;
        double value = isdigit((unsigned char)*p) ? strtod(p, &end) : -1;
        if (!end || !(value > 0) || !isfinite(value) || below != goals[i].at_most)
            return false;
        if (goals[i].time && !strcmp(end, "s"))
            value *= 1000;
        else if (*end && !(goals[i].time && !strcmp(end, "ms")))
            return false;
        *out = (struct tri_goal){ (enum tri_goal_what)i, value };
        return true;
    }
    return false;
}

enum tri_status tri_parse_goals(struct tri_goal *out, int *count, const char *text,
                                struct tri_error *err)
{
    int n = 0;
    for (const char *p = text; *p;) {
        size_t bytes = strcspn(p, ",");
        if (n == TRI_PLAN_MAX_GOALS || !read_goal(&out[n], p, bytes))
            return bad_goal(text, err);
        for (int i = 0; i < n; i++)
            if (out[i].what == out[n].what)
                return tri_fail(err, TRI_ARG, "goal %.100s: %s is asked twice", text,
                                tri_goal_name(out[i].what));
        n++;
        p += bytes;
        if (*p == ',' && !*++p)
            return bad_goal(text, err);
    }
    if (!n)
        return bad_goal(text, err);
    *count = n;
    return TRI_OK;
}

const char *tri_grade_name(enum tri_grade grade)
{
    static const char *const names[] = { "does not load", "loads", "generates", "serves" };
    return names[grade];
}

const char *tri_binding_name(enum tri_binding binding)
{
    static const char *const names[TRI_BINDINGS] = {
        [TRI_BIND_NONE] = "nothing",
        [TRI_BIND_MEMORY] = "memory capacity",
        [TRI_BIND_DENSE] = "memory bandwidth: shared weights",
        [TRI_BIND_EXPERTS] = "memory bandwidth: distinct experts",
        [TRI_BIND_CACHE] = "memory bandwidth: cache and state",
        [TRI_BIND_COMPUTE] = "compute",
        [TRI_BIND_LAYERS] = "launch and sync of every layer",
        [TRI_BIND_LINK] = "links between cards",
        [TRI_BIND_PREFILL] = "prefill of other prompts",
        [TRI_BIND_DISK] = "drive bandwidth",
    };
    return names[binding];
}
