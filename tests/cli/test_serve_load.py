#!/usr/bin/env python3
# ctest: slow
"""Many streams together with clients that leave, half-close, or read slowly: every accepted request
ends exactly once, every text that was read whole equals its solo run, memory does not grow, and idle
connections cost nothing. TRIREME_LOAD_S (default 15) is how long it goes on."""
import json
import os
import pathlib
import random
import re
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serving import WithServer, need_nano, wait_for  # noqa: E402

SECONDS = float(os.environ.get("TRIREME_LOAD_S", "15"))
STREAMS = 64
ASKS = ["Tell me a story about a fox.", "Hi", "What is 2 + 3?", "Tell me about a cat.",
        "Write a list of three animals.", "Tell me a story about a horse called Max."]


class Load(WithServer):
    args = ("--context", "512", "--parallel", "8", "--queue", "200")

    def send(self, ask, n):
        s = socket.create_connection(("127.0.0.1", self.server.port), timeout=120)
        body = json.dumps({"messages": [{"role": "user", "content": ask}], "stream": True,
                           "temperature": 0, "max_tokens": n}).encode()
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                  b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return s

    @staticmethod
    def text_of(data):
        """Reasoning and content of a whole stream; None if it is not whole."""
        if b"data: [DONE]" not in data:
            return None
        pieces = re.findall(rb'data: (\{.*?\})\r?\n\n', data)
        deltas = [json.loads(p)["choices"][0]["delta"] for p in pieces]
        return "".join(d.get("reasoning", "") + d.get("content", "") for d in deltas)

    def whole(self, ask, n, slow=False):
        s = self.send(ask, n)
        data = b""
        while True:
            piece = s.recv(300 if slow else 65536)
            if not piece:
                break
            data += piece
            if slow:
                time.sleep(0.01)
        s.close()
        return self.text_of(data)

    def client(self, rng, end, done):
        while time.time() < end:
            ask, n = rng.choice(ASKS), 24
            kind = rng.choice(["whole", "whole", "whole", "slow", "leave", "half"])
            done["sent"] += 1
            if kind in ("whole", "slow"):
                text = self.whole(ask, n, kind == "slow")
                if text != self.solo[ask]:
                    done["wrong"].append((ask, text))
                continue
            s = self.send(ask, n)
            if rng.random() < 0.7:
                s.recv(rng.randrange(1, 2000))
            if kind == "half":
                s.shutdown(socket.SHUT_WR)
                time.sleep(0.01)
            s.close()

    def ended(self):
        return sum(self.server.metric(f'vllm:request_success_total{{engine="0",model_name="nano",'
                                      f'finished_reason="{r}"}}')
                   for r in ("stop", "length", "abort", "error"))

    def test_load(self):
        self.solo = {ask: self.whole(ask, 24) for ask in ASKS}
        self.assertTrue(all(self.solo.values()))
        idle = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(300)]
        before = self.ended()
        all_done, threads, end = [], [], time.time() + SECONDS
        rss = None
        for i in range(STREAMS):
            done = {"sent": 0, "wrong": []}
            all_done.append(done)
            threads.append(threading.Thread(target=self.client,
                                            args=(random.Random(i), end, done)))
        for t in threads:
            t.start()
        time.sleep(SECONDS / 3)
        rss = self.server.metric("process_resident_memory_bytes")
        for t in threads:
            t.join()
        for s in idle:
            s.close()
        sent = sum(d["sent"] for d in all_done)
        wrong = [w for d in all_done for w in d["wrong"]]
        self.assertEqual(wrong, [])
        self.assertTrue(wait_for(lambda: self.server.metric("vllm:num_requests_running") == 0))
        self.assertEqual(self.server.metric("vllm:num_requests_waiting"), 0)
        accepted = self.ended() - before
        # a client that left before its request was read was never accepted
        self.assertLessEqual(accepted, sent)
        self.assertGreater(accepted, sent / 2)
        self.assertLess(self.server.metric("process_resident_memory_bytes") - rss, 16 << 20)
        self.assertTrue(wait_for(lambda: self.server.metric("trireme_http_connections") <= 1))
        self.assertLess(self.server.metric("process_open_fds"), 40)
        print(f"{sent} requests sent, {int(accepted)} accepted and ended")


if __name__ == "__main__":
    need_nano()
    unittest.main()
