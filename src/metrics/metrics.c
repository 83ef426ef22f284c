/* The registry: one lock, an array of metrics in the order they were added, a text writer. */
#include "metrics/metrics.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include "base/mem.h"

struct tri_metric {
    struct tri_metrics *owner;
    struct tri_metric_spec spec;
    char labels[TRI_METRIC_MAX_LABEL_BYTES];
    double value; /* histogram: sum */
    uint64_t count, bucket[TRI_METRIC_MAX_BUCKETS];
};

struct tri_metrics {
    pthread_mutex_t lock;
    struct tri_metric *metric[TRI_METRICS_MAX];
    size_t n;
};

enum tri_status tri_metrics_open(struct tri_metrics **out, struct tri_error *err)
{
    struct tri_metrics *m = tri_calloc(1, sizeof *m);
    if (!m)
        return tri_fail(err, TRI_NOMEM, "no memory for metrics");
    pthread_mutex_init(&m->lock, NULL);
    *out = m;
    return TRI_OK;
}

void tri_metrics_close(struct tri_metrics *metrics)
{
    if (!metrics)
        return;
    for (size_t i = 0; i < metrics->n; i++)
        tri_free(metrics->metric[i]);
    pthread_mutex_destroy(&metrics->lock);
    tri_free(metrics);
}

struct tri_metric *tri_metrics_add(struct tri_metrics *metrics, const struct tri_metric_spec *spec)
{
    size_t labels = spec->labels ? strlen(spec->labels) : 0;
    struct tri_metric *metric = tri_calloc(1, sizeof *metric);
    TRI_ASSERT(spec->n_buckets <= TRI_METRIC_MAX_BUCKETS);
    if (!metric || labels >= sizeof metric->labels || metrics->n == TRI_METRICS_MAX) {
        tri_free(metric);
        return NULL;
    }
    metric->owner = metrics;
    metric->spec = *spec;
    if (labels)
        memcpy(metric->labels, spec->labels, labels + 1);
    pthread_mutex_lock(&metrics->lock);
    metrics->metric[metrics->n++] = metric;
    pthread_mutex_unlock(&metrics->lock);
    return metric;
}

void tri_metric_add(struct tri_metric *metric, double value)
{
    if (!metric)
        return;
    pthread_mutex_lock(&metric->owner->lock);
    metric->value += value;
    pthread_mutex_unlock(&metric->owner->lock);
}

void tri_metric_set(struct tri_metric *metric, double value)
{
    if (!metric)
        return;
    pthread_mutex_lock(&metric->owner->lock);
    metric->value = value;
    pthread_mutex_unlock(&metric->owner->lock);
}

void tri_metric_observe(struct tri_metric *metric, double value)
{
    if (!metric)
        return;
    pthread_mutex_lock(&metric->owner->lock);
    metric->value += value;
    metric->count++;
    for (size_t i = 0; i < metric->spec.n_buckets; i++)
        if (value <= metric->spec.buckets[i]) {
            metric->bucket[i]++;
            break;
        }
    pthread_mutex_unlock(&metric->owner->lock);
}

void tri_metric_set_buckets(struct tri_metric *metric, const uint64_t *counts, double sum)
{
    if (!metric)
        return;
    pthread_mutex_lock(&metric->owner->lock);
    metric->count = 0;
    for (size_t i = 0; i <= metric->spec.n_buckets; i++) {
        metric->count += counts[i];
        if (i < metric->spec.n_buckets)
            metric->bucket[i] = counts[i];
    }
    metric->value = sum;
    pthread_mutex_unlock(&metric->owner->lock);
}

static void put_number(struct tri_buf *out, double v)
{
    if (isinf(v))
        tri_buf_puts(out, v > 0 ? "+Inf" : "-Inf");
    else if (v == floor(v) && fabs(v) < 1e15)
        tri_buf_printf(out, "%.0f", v);
    else
        tri_buf_printf(out, "%.9g", v);
}

static void put_line(struct tri_buf *out, const struct tri_metric *m, const char *suffix, double v)
{
    tri_buf_printf(out, m->labels[0] ? "%s%s{%s} " : "%s%s%s ", m->spec.name, suffix, m->labels);
    put_number(out, v);
    tri_buf_putc(out, '\n');
}

static void put_bucket(struct tri_buf *out, const struct tri_metric *m, double bound, uint64_t n)
{
    tri_buf_printf(out, "%s_bucket{%s%sle=\"", m->spec.name, m->labels, m->labels[0] ? "," : "");
    put_number(out, bound);
    tri_buf_printf(out, "\"} %llu\n", (unsigned long long)n);
}

static void put_histogram(struct tri_buf *out, const struct tri_metric *m)
{
    uint64_t upto = 0;
    for (size_t i = 0; i < m->spec.n_buckets; i++) {
        upto += m->bucket[i];
        put_bucket(out, m, m->spec.buckets[i], upto);
    }
    put_bucket(out, m, (double)INFINITY, m->count);
    put_line(out, m, "_sum", m->value);
    put_line(out, m, "_count", (double)m->count);
}

enum tri_status tri_metrics_write(struct tri_metrics *metrics, struct tri_buf *out)
{
    static const char *const kinds[] = { "counter", "gauge", "histogram" };
    const char *last = "";
    pthread_mutex_lock(&metrics->lock);
    for (size_t i = 0; i < metrics->n; i++) {
        const struct tri_metric *m = metrics->metric[i];
        if (strcmp(last, m->spec.name) != 0)
            tri_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", m->spec.name, m->spec.help,
                           m->spec.name, kinds[m->spec.kind]);
        last = m->spec.name;
        if (m->spec.kind == TRI_METRIC_HISTOGRAM)
            put_histogram(out, m);
        else
            put_line(out, m, "", m->value);
    }
    pthread_mutex_unlock(&metrics->lock);
    return out->failed;
}

enum tri_status tri_metrics_escape(struct tri_buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"')
            tri_buf_putc(out, '\\');
        if (*text == '\n')
            tri_buf_puts(out, "\\n");
        else
            tri_buf_putc(out, *text);
    }
    return out->failed;
}
