#!/usr/bin/env python3
"""ctest: slow. Two servers behind a real nginx with the shipped configuration: conversations stay with
the server that has their state, and a rolling restart of both loses no request."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serving import SOURCE, Server, need_nano, wait_for  # noqa: E402
from test_prometheus import free_port  # noqa: E402


class Replica(Server):
    def __init__(self, port):
        super().__init__("--context", "2048", "--port", str(port))


class Replicas(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.ports = [free_port(), free_port()]
        self.servers = [Replica(p) for p in self.ports]
        front = free_port()
        conf = (SOURCE / "ops" / "nginx.conf").read_text()
        for old, new in (("127.0.0.1:8001", f"127.0.0.1:{self.ports[0]}"),
                         ("127.0.0.1:8002", f"127.0.0.1:{self.ports[1]}"),
                         ("127.0.0.1:8080", f"127.0.0.1:{front}")):
            assert old in conf
            conf = conf.replace(old, new)
        temp = "".join(f"    {kind}_temp_path {self.tmp.name}/{kind};\n"
                       for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        path = pathlib.Path(self.tmp.name) / "nginx.conf"
        path.write_text(f"daemon off;\nmaster_process off;\npid {self.tmp.name}/pid;\n"
                        f"error_log {self.tmp.name}/error.log;\nevents {{}}\nhttp {{\n"
                        f"    access_log off;\n{temp}{conf}}}\n")
        self.log = open(f"{self.tmp.name}/out", "wb")
        self.nginx = subprocess.Popen(["nginx", "-p", self.tmp.name, "-c", str(path)],
                                      stdout=self.log, stderr=self.log)
        self.front = Server.__new__(Server)
        self.front.port = front

        def up():
            try:
                return self.front.ask("GET", "/health")[0] == 200
            except OSError:
                return False
        assert wait_for(up), pathlib.Path(f"{self.tmp.name}/out").read_text()

    def tearDown(self):
        self.nginx.terminate()
        self.nginx.wait(10)
        self.log.close()
        for s in self.servers:
            self.assertEqual(s.close(), 0)
        self.tmp.cleanup()

    def test_conversations_stay(self):
        used = set()
        for session in range(12):
            messages = [{"role": "user", "content": f"Session {session}: " + "the fox and the crow. " * 20}]
            before = [s.metric("vllm:prompt_tokens_total") for s in self.servers]
            for turn in range(3):
                got = self.front.post("/v1/chat/completions", {
                    "messages": messages, "max_tokens": 8, "temperature": 0},
                    headers={"X-Session-Id": f"s{session}"})
                cached = got["usage"]["prompt_tokens_details"]["cached_tokens"]
                if turn:
                    self.assertGreater(cached, 100)
                messages += [got["choices"][0]["message"], {"role": "user", "content": "And then?"}]
            after = [s.metric("vllm:prompt_tokens_total") for s in self.servers]
            grew = [i for i in (0, 1) if after[i] > before[i]]
            self.assertEqual(len(grew), 1, "a conversation moved")
            used.add(grew[0])
        self.assertEqual(used, {0, 1})  # and both have work

    def test_rolling_restart_loses_nothing(self):
        done, failed, stop = [0], [], threading.Event()
        lock = threading.Lock()

        def ask(n):
            i = 0
            while not stop.is_set():
                i += 1
                stream = i % 2 == 0
                body = {"messages": [{"role": "user", "content": f"Tell me about {n} and {i}."}],
                        "max_tokens": 40, "stream": stream, "ignore_eos": True}
                try:
                    status, data, _ = self.front.ask("POST", "/v1/chat/completions", body,
                                                     {"X-Session-Id": f"{n}-{i % 7}"})
                    if stream:
                        good = status == 200 and data.endswith(b"data: [DONE]\n\n")
                    else:
                        good = status == 200 and json.loads(data)["usage"]["completion_tokens"] == 40
                except Exception as e:  # noqa: BLE001: whatever it is, the request is lost
                    good, status, data = False, repr(e), b""
                with lock:
                    done[0] += 1
                    if not good:
                        failed.append((status, data[:200]))

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
        for t in threads:
            t.start()
        time.sleep(1)
        for _ in range(3):
            for k in (0, 1):
                self.assertEqual(self.servers[k].close(), 0)
                self.servers[k] = Replica(self.ports[k])
                time.sleep(0.5)
        for server in self.servers:  # both work again, once nginx has asked the later one again
            self.assertTrue(wait_for(lambda s=server: s.metric("vllm:generation_tokens_total") > 0, 60))
        stop.set()
        for t in threads:
            t.join()
        self.assertEqual(failed, [], f"{len(failed)} of {done[0]}")
        print(f"{done[0]} requests over six restarts, none lost")


if __name__ == "__main__":
    need_nano()
    if not shutil.which("nginx"):
        print("SKIP: nginx is absent (Debian: apt-get install nginx-light)")
        sys.exit(77)
    unittest.main()
