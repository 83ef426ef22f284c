#!/usr/bin/env python3
"""ctest: slow. A step that takes many seconds, as on a streamed model: a tenth of a second for each expert, one at a time. Ctrl-C
of `run`, a client of `serve` that goes away and SIGTERM end it after the layer that is computed; what others asked for
in the same step comes as it would have come."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import NANO, TRIREME, Server, need_nano, wait_for  # noqa: E402
from shim import FaultyReads  # noqa: E402

SLOW = ("--io", "threads", "--io-depth", "1", "--expert-ram", "40K", "--page-cache", "yes", "--keep-nothing")
LONG = "Tell me about rivers, ships, the sea, harbours, winds, oars and the people who row. " * 3
RUNNING = "vllm:num_requests_running"


class LongSteps(FaultyReads, unittest.TestCase):
    def server(self, *more):
        return Server(*SLOW, *more, env=self.env)

    def send(self, server, text):
        """A request whose answer nobody reads yet."""
        body = json.dumps({"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 4})
        s = socket.create_connection(("127.0.0.1", server.port))
        s.sendall((f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
                   f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
        return s

    @staticmethod
    def hears(process, number):
        for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return int(line.split()[1], 16) >> (number - 1) & 1
        return False

    def test_ctrl_c_of_run(self):
        self.fault.write_text("slow")
        begin = time.time()
        p = subprocess.Popen([TRIREME, "run", "-m", NANO, "--ram", "1G", "--threads", "1", *SLOW, "--greedy", "--json",
                              "--max-tokens", "4", LONG], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(wait_for(lambda: self.hears(p, signal.SIGINT)))
        time.sleep(2.5)
        self.assertIsNone(p.poll())
        asked = time.time()
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 1, err)
        report = json.loads(out)
        self.assertEqual((report["finish"], report["tokens"]), ("interrupted", []))
        self.assertLess(time.time() - asked, 5, time.time() - begin)

    def test_a_client_goes_away(self):
        server = self.server()
        try:
            want = server.chat("Hi", max_tokens=8)["choices"][0]["message"]["content"]
            self.fault.write_text("slow")
            s = self.send(server, LONG)
            self.assertTrue(wait_for(lambda: server.metric(RUNNING) == 1))
            time.sleep(1.5)
            self.assertEqual(server.metric(RUNNING), 1)
            begin = time.time()
            s.close()
            self.assertTrue(wait_for(lambda: server.metric(RUNNING) == 0))
            self.assertLess(time.time() - begin, 5)
            self.fault.unlink()
            self.assertEqual(server.chat("Hi", max_tokens=8)["choices"][0]["message"]["content"], want)
        finally:
            self.fault.unlink(missing_ok=True)
            self.assertEqual(server.close(), 0)

    def test_the_other_one_of_the_same_step_stays(self):
        server = self.server()
        got = []
        try:
            want = server.chat("Hello there", max_tokens=6)["choices"][0]["message"]["content"]
            server.chat("Bye", max_tokens=6)  # its slot's state is another
            self.fault.write_text("slow")
            s = self.send(server, LONG)
            other = threading.Thread(target=lambda: got.append(server.chat("Hello there", max_tokens=6)))
            other.start()
            self.assertTrue(wait_for(lambda: server.metric(RUNNING) == 2, 60))
            time.sleep(2)
            s.close()
            time.sleep(2)
            self.fault.unlink()
            other.join(60)
            self.assertEqual(got[0]["choices"][0]["message"]["content"], want)
        finally:
            self.fault.unlink(missing_ok=True)
            self.assertEqual(server.close(), 0)

    def test_sigterm(self):
        server = self.server("--drain-timeout", "0")
        self.fault.write_text("slow")
        s = self.send(server, LONG)
        self.assertTrue(wait_for(lambda: server.metric(RUNNING) == 1))
        time.sleep(1.5)
        begin = time.time()
        code = server.close()
        self.assertLess(time.time() - begin, 6)
        self.assertEqual(code, 0)
        s.close()


if __name__ == "__main__":
    need_nano()
    unittest.main()
