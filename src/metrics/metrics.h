/*
 * Counters, gauges and histograms, written as Prometheus text (exposition format 0.0.4). Floor 1.
 * Every call is safe from any thread. Metrics are made once, at opening; names, labels and help
 * texts are constants of the program: nothing a client sends may become a label.
 */
#ifndef TRI_METRICS_METRICS_H
#define TRI_METRICS_METRICS_H

#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/status.h"

enum { TRI_METRICS_MAX = 512, TRI_METRIC_MAX_BUCKETS = 32, TRI_METRIC_MAX_LABEL_BYTES = 512 };

enum tri_metric_kind { TRI_METRIC_COUNTER, TRI_METRIC_GAUGE, TRI_METRIC_HISTOGRAM };

struct tri_metrics;
struct tri_metric; /* lives as long as its registry */

struct tri_metric_spec {
    enum tri_metric_kind kind;
    const char *name, *help; /* kept, not copied */
    const char *labels;      /* `a="b",c="d"`, copied; NULL: none */
    const double *buckets;   /* histogram: ascending upper bounds, kept; +Inf is added */
    size_t n_buckets;
};

TRI_MUST_CHECK enum tri_status tri_metrics_open(struct tri_metrics **out, struct tri_error *err);
void tri_metrics_close(struct tri_metrics *metrics);

/*
 * Adds a metric; those of one name must follow each other and be of one kind. NULL when there is
 * no memory or no room; every call below takes NULL and then does nothing.
 */
struct tri_metric *tri_metrics_add(struct tri_metrics *metrics, const struct tri_metric_spec *spec);

void tri_metric_add(struct tri_metric *metric, double value); /* counter (value >= 0) or gauge */
void tri_metric_set(struct tri_metric *metric, double value); /* also a counter kept elsewhere */
void tri_metric_observe(struct tri_metric *metric, double value); /* histogram */
/* A histogram kept elsewhere: `counts` for each bucket and one for +Inf, not cumulative. */
void tri_metric_set_buckets(struct tri_metric *metric, const uint64_t *counts, double sum);

/* Appends the whole registry. Returns out->failed. */
enum tri_status tri_metrics_write(struct tri_metrics *metrics, struct tri_buf *out);

/* Appends `text` escaped as a label value. */
enum tri_status tri_metrics_escape(struct tri_buf *out, const char *text);

#endif
