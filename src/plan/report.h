/* Shared inside plan's reports: wording, bands and parts that several of them show. */
#ifndef TRI_PLAN_REPORT_H
#define TRI_PLAN_REPORT_H

#include "plan/plan_priv.h"

void tri__count(char out[32], double value); /* 3,249,215 */
void tri__ms(char out[32], double ms);       /* 8.51 ms, 3.54 s */
/* How the speed is known: ", measured", ", assumed", or not on this device. */
const char *tri__basis(const struct tri_plan *p);
const char *tri__grade_title(enum tri_grade grade);

/* Ends of the error band: a time of x (1 +- band), a rate of its inverse. */
double tri__low(const struct tri_speed *s, double value, bool time);
double tri__high(const struct tri_speed *s, double value, bool time);

void tri__ledger_text(const struct tri_plan *p, struct tri_buf *out);
void tri__layout_text(const struct tri_plan *p, struct tri_report_style s, struct tri_buf *out);
void tri__cost_text(const struct tri_plan *p, struct tri_buf *out);
void tri__assumptions_text(const struct tri_plan *p, struct tri_buf *out);

/* One line, "vllm serve ...", for an engine: "vllm", "sglang" or "trireme". */
/* Appends `json` as text and drops it; NULL is TRI_NOMEM. */
enum tri_status tri__json_out(json_t *json, struct tri_buf *out, struct tri_error *err);

json_t *tri__plan_json(const struct tri_plan *p); /* new reference; NULL without memory */

void tri__launch_line(const struct tri_plan *p, const char *engine, struct tri_buf *out);

#endif
