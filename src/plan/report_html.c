/*
 * The report as one page: data/report.html with Chart.js and the plan's JSON put in. The page
 * builds itself from the JSON with text nodes only, so that a model's name cannot be markup.
 */
#include "plan/report.h"

#include <string.h>

extern const unsigned char tri__data_page[], tri__data_chartjs[];
extern const size_t tri__data_page_bytes, tri__data_chartjs_bytes;

/* JSON inside a script element: '<' must not start a tag or a comment there. */
static void add_escaped(struct tri_buf *out, const char *json)
{
    for (const char *p = json; *p; p++) {
        size_t plain = strcspn(p, "<");
        tri_buf_add(out, p, plain);
        p += plain;
        if (!*p)
            break;
        tri_buf_puts(out, "\\u003c");
    }
}

/* Writes the page up to `mark`, leaves *at behind it. */
static bool copy_to(struct tri_buf *out, const char **at, const char *mark)
{
    const char *found = strstr(*at, mark);
    if (!found)
        return false;
    tri_buf_add(out, *at, (size_t)(found - *at));
    *at = found + strlen(mark);
    return true;
}

enum tri_status tri_plan_html(const struct tri_plan *plan, struct tri_buf *out,
                              struct tri_error *err)
{
    const char *at = (const char *)tri__data_page;
    struct tri_buf json;
    tri_buf_init(&json, TRI_PLAN_MAX_REPORT_BYTES);
    enum tri_status status = tri_plan_json(plan, &json, err);
    if (!status) {
        TRI_ASSERT(copy_to(out, &at, "/*CHARTJS*/"));
        tri_buf_add(out, tri__data_chartjs, tri__data_chartjs_bytes);
        TRI_ASSERT(copy_to(out, &at, "/*PLAN*/null"));
        add_escaped(out, json.data);
        tri_buf_puts(out, at);
        status = out->failed ? tri_fail(err, out->failed, "the page is over %d bytes",
                                        TRI_PLAN_MAX_REPORT_BYTES)
                             : TRI_OK;
    }
    tri_buf_fini(&json);
    return status;
}
