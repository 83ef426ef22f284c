#!/usr/bin/env python3
"""ctest: slow. A real Prometheus (Debian: prometheus) reads the live server: the rules are valid and
their own tests pass, the scrape is accepted, and every expression of the dashboard and of the alerts
is answered."""
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serving import Server, need_nano, wait_for  # noqa: E402
from test_operators import OPS, alert_expressions, dashboard_expressions  # noqa: E402


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Prometheus(unittest.TestCase):
    def test_rules(self):
        for args in (["check", "rules", str(OPS / "prometheus-alerts.yml")],
                     ["check", "config", str(OPS / "prometheus.yml")],
                     ["test", "rules", str(OPS / "prometheus-alerts-test.yml")]):
            done = subprocess.run(["promtool", *args], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_exposition(self):
        server = Server("--context", "512")
        server.chat("Hi")
        done = subprocess.run(["promtool", "check", "metrics"], input=server.ask("GET", "/metrics")[1],
                              capture_output=True)
        self.assertEqual(server.close(), 0)
        # promtool also dislikes vLLM's own naming, which we keep for its dashboards
        odd = [line for line in done.stderr.decode().split("\n") if line and "vllm:" not in line]
        self.assertEqual(odd, [])

    def test_scrape(self):
        server = Server("--context", "1024")
        with tempfile.TemporaryDirectory() as tmp:
            port = free_port()
            config = (OPS / "prometheus.yml").read_text()
            config = config.replace('"127.0.0.1:8000", "127.0.0.1:8001"', f'"127.0.0.1:{server.port}"')
            config = config.replace("10s", "1s")
            (pathlib.Path(tmp) / "prometheus.yml").write_text(config)
            shutil.copy(OPS / "prometheus-alerts.yml", tmp)
            with open(f"{tmp}/log", "wb") as log:
                process = subprocess.Popen(
                    ["prometheus", f"--config.file={tmp}/prometheus.yml", f"--storage.tsdb.path={tmp}/db",
                     f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
            try:
                self.look(server, port)
            finally:
                process.terminate()
                process.wait(30)
        self.assertEqual(server.close(), 0)

    def look(self, server, port):
        def api(path, **query):
            url = f"http://127.0.0.1:{port}/api/v1/{path}?" + urllib.parse.urlencode(query)
            with urllib.request.urlopen(url, timeout=10) as r:
                return json.load(r)["data"]

        def up():
            try:
                got = api("query", query="up")["result"]
                return got and got[0]["value"][1] == "1"
            except OSError:
                return False
        self.assertTrue(wait_for(up, 30), "Prometheus does not see the server")
        for i in range(4):
            server.chat(f"Tell me a story about {i} dogs.", max_tokens=30)
            time.sleep(1.1)
        empty = []
        for e in list(dashboard_expressions()) + list(alert_expressions()):
            if e.startswith("label_values"):
                name = re.search(r", (\w+)\)", e).group(1)
                self.assertTrue(api(f"label/{name}/values"), e)
                continue
            e = e.replace("$__rate_interval", "30s").replace("$model_name", ".*")
            e = e.replace("$instance", ".*")
            if not api("query", query=e)["result"]:
                empty.append(e)
        # what compares with a threshold is empty while all is well; the rest has values
        self.assertTrue(all(re.search(r" [<>=]=? ", e) for e in empty), empty)
        made = api("query", query="sum(vllm:generation_tokens_total)")["result"][0]["value"][1]
        self.assertEqual(int(float(made)), server.metric("vllm:generation_tokens_total"))
        rules = [r for g in api("rules")["groups"] for r in g["rules"]]
        self.assertGreaterEqual(len(rules), 13)
        self.assertEqual({r["health"] for r in rules}, {"ok"})
        self.assertEqual([r["name"] for r in rules if r["state"] == "firing"], [])


if __name__ == "__main__":
    need_nano()
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        print("SKIP: prometheus and promtool are absent (Debian: apt-get install prometheus)")
        sys.exit(77)
    unittest.main()
