#!/usr/bin/env python3
"""What is shipped for operators belongs to this server: every metric that the dashboard and the
alerts name is in /metrics, and the files are whole. (Against a real Prometheus: test_prometheus.)"""
import json
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serving import SOURCE, Server, need_nano  # noqa: E402

OPS = SOURCE / "ops"
WORDS = set("""sum avg min max count by without on ignoring group_left group_right and or unless bool
    offset rate increase irate changes histogram_quantile min_over_time max_over_time avg_over_time
    label_values vector abs clamp_min clamp_max time up le""".split())


def metrics_of(expression):
    """Names of metrics in PromQL: identifiers that are no function, keyword or label."""
    text = re.sub(r'"(\\.|[^"\\])*"', '""', expression)
    text = re.sub(r"\{[^}]*\}", "", text)
    text = re.sub(r"\[[^\]]*\]", "", text)
    text = re.sub(r"\b(by|without|on|ignoring)\s*\([^)]*\)", "", text)
    text = re.sub(r"label_values\(([^,]*),[^)]*\)", r"\1", text)
    return {w for w in re.findall(r"[A-Za-z_:][A-Za-z0-9_:]*", text)} - WORDS


def dashboard_expressions():
    board = json.loads((OPS / "grafana-dashboard.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]
    for note in board["annotations"]["list"]:
        yield note["expr"]


def alert_expressions():
    """The `expr` of every rule: one line, or a block that is indented deeper."""
    lines = (OPS / "prometheus-alerts.yml").read_text().split("\n")
    for i, line in enumerate(lines):
        found = re.match(r"( *)expr: (.*)", line)
        if not found:
            continue
        text, indent = found.group(2), len(found.group(1))
        if text == "|":
            text = ""
            for more in lines[i + 1:]:
                if more.strip() and len(more) - len(more.lstrip()) <= indent:
                    break
                text += more + "\n"
        yield text


class Operators(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = Server("--context", "256")
        text = server.ask("GET", "/metrics")[1].decode()
        cls.names = {re.match(r"[^{ ]+", line).group(0) for line in text.split("\n")
                     if line and line[0] != "#"}
        cls.families = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)
        cls.text = text
        assert server.close() == 0

    def test_the_parser_sees_names(self):
        self.assertEqual(metrics_of('sum by (a) (rate(x:y_total{b="c d"}[5m])) / on (i) z > 0'),
                         {"x:y_total", "z"})

    def test_dashboard(self):
        expressions = list(dashboard_expressions())
        self.assertGreater(len(expressions), 40)
        for e in expressions:
            self.assertTrue(metrics_of(e), e)
            self.assertLessEqual(metrics_of(e), self.names, e)

    def test_alerts(self):
        expressions = list(alert_expressions())
        self.assertGreaterEqual(len(expressions), 13)
        for e in expressions:
            self.assertLessEqual(metrics_of(e), self.names, e)
        text = (OPS / "prometheus-alerts.yml").read_text()
        tests = (OPS / "prometheus-alerts-test.yml").read_text()
        for name in re.findall(r"alert: (\w+)", text):
            self.assertIn(name, tests)
            self.assertIn(name, (SOURCE / "docs" / "operating.md").read_text())

    def test_exposition(self):
        """Each family once, histograms cumulative with +Inf equal to the count."""
        names = [n for n, _ in self.families]
        self.assertEqual(len(names), len(set(names)))
        for name, kind in self.families:
            if kind != "histogram":
                self.assertRegex(self.text, rf"(?m)^{name}(\{{[^\n]*\}})? [0-9.e+-]+$")
                continue
            counts = [int(v) for v in re.findall(rf'(?m)^{name}_bucket\{{[^\n]*\}} (\d+)$', self.text)]
            self.assertEqual(counts, sorted(counts), name)
            total = re.search(rf"(?m)^{name}_count\{{[^\n]*\}} (\d+)$", self.text).group(1)
            self.assertEqual(counts[-1], int(total), name)

    def test_vllm_names(self):
        for name in """num_requests_running num_requests_waiting kv_cache_usage_perc
                gpu_cache_usage_perc cache_config_info num_preemptions_total prompt_tokens_total
                generation_tokens_total request_success_total prefix_cache_queries_total
                prefix_cache_hits_total corrupted_requests_total admission_rejections_total
                time_to_first_token_seconds inter_token_latency_seconds
                time_per_output_token_seconds request_time_per_output_token_seconds
                e2e_request_latency_seconds request_queue_time_seconds
                request_prefill_time_seconds request_decode_time_seconds
                request_inference_time_seconds request_prompt_tokens request_generation_tokens
                request_params_n request_params_max_tokens request_max_num_generation_tokens
                iteration_tokens_total spec_decode_num_drafts_total""".split():
            self.assertIn("vllm:" + name, dict(self.families), name)


if __name__ == "__main__":
    need_nano()
    unittest.main()
