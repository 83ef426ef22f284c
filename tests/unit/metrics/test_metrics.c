/* The text a registry writes, against the Prometheus exposition format written out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "metrics/metrics.h"

static void text(void **state)
{
    (void)state;
    static const double bounds[] = { 0.5, 1, 2.5 };
    struct tri_metrics *m = NULL;
    struct tri_buf out;
    assert_int_equal(tri_metrics_open(&m, NULL), TRI_OK);
    struct tri_metric *a = tri_metrics_add(m, &(struct tri_metric_spec){ .kind = TRI_METRIC_COUNTER,
                                                                         .name = "x_total",
                                                                         .help = "Things.",
                                                                         .labels = "k=\"a\"" });
    struct tri_metric *b = tri_metrics_add(m, &(struct tri_metric_spec){ .kind = TRI_METRIC_COUNTER,
                                                                         .name = "x_total",
                                                                         .help = "Things.",
                                                                         .labels = "k=\"b\"" });
    struct tri_metric *h =
        tri_metrics_add(m, &(struct tri_metric_spec){ .kind = TRI_METRIC_HISTOGRAM,
                                                      .name = "t_seconds",
                                                      .help = "Time.",
                                                      .buckets = bounds,
                                                      .n_buckets = 3 });
    tri_metric_add(a, 2);
    tri_metric_add(b, 0.25);
    tri_metric_observe(h, 0.5);
    tri_metric_observe(h, 2);
    tri_metric_observe(h, 100);
    tri_metric_add(NULL, 1);
    tri_buf_init(&out, 4096);
    assert_int_equal(tri_metrics_write(m, &out), TRI_OK);
    assert_string_equal(out.data, "# HELP x_total Things.\n# TYPE x_total counter\n"
                                  "x_total{k=\"a\"} 2\nx_total{k=\"b\"} 0.25\n"
                                  "# HELP t_seconds Time.\n# TYPE t_seconds histogram\n"
                                  "t_seconds_bucket{le=\"0.5\"} 1\nt_seconds_bucket{le=\"1\"} 1\n"
                                  "t_seconds_bucket{le=\"2.5\"} 2\n"
                                  "t_seconds_bucket{le=\"+Inf\"} 3\n"
                                  "t_seconds_sum 102.5\nt_seconds_count 3\n");
    tri_buf_clear(&out);
    tri_metric_set_buckets(h, (const uint64_t[]){ 1, 0, 4, 2 }, 33); /* kept elsewhere */
    tri_metric_set_buckets(NULL, NULL, 0);
    tri_metrics_write(m, &out);
    assert_non_null(strstr(out.data,
                           "t_seconds_bucket{le=\"0.5\"} 1\nt_seconds_bucket{le=\"1\"} 1\n"
                           "t_seconds_bucket{le=\"2.5\"} 5\n"
                           "t_seconds_bucket{le=\"+Inf\"} 7\n"
                           "t_seconds_sum 33\nt_seconds_count 7\n"));
    tri_buf_clear(&out);
    tri_metrics_escape(&out, "a\\b\"c\nd");
    assert_string_equal(out.data, "a\\\\b\\\"c\\nd");
    tri_buf_fini(&out);
    tri_metrics_close(m);
}

static void room(void **state)
{
    (void)state;
    struct tri_metrics *m = NULL;
    const struct tri_metric_spec spec = { .kind = TRI_METRIC_GAUGE, .name = "g", .help = "h" };
    assert_int_equal(tri_metrics_open(&m, NULL), TRI_OK);
    for (int i = 0; i < TRI_METRICS_MAX; i++)
        assert_non_null(tri_metrics_add(m, &spec));
    assert_null(tri_metrics_add(m, &spec));
    tri_metrics_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(text), cmocka_unit_test(room) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
