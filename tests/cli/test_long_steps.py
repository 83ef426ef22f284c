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
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import NANO, TRIREME, Server, need_nano, wait_for  # noqa: E402
from shim import FaultyReads  # noqa: E402

SLOW = ("--io", "threads", "--io-depth", "1", "--expert-ram", "40K", "--page-cache", "yes", "--keep-nothing")
LONG = "Tell me about rivers, ships, the sea, harbours, winds, oars and the people who row. " * 3
RUNNING = "vllm:num_requests_running"


LAYER = 32  # experts of the model's, each of which a long text reads


class LongSteps(FaultyReads, unittest.TestCase):
    """A step reads what LONG needs of each layer, one expert after the other: how soon it ended is told by how many it has
    still read, however slow the machine."""
    def setUp(self):
        super().setUp()
        self.counted = pathlib.Path(f"{self.fault}.reads")
        self.counted.unlink(missing_ok=True)

    def reads(self):
        return self.counted.stat().st_size if self.counted.exists() else 0

    def wait_long(self):
        """Until the step has taken more than the two seconds before which none is given up; it is far from its end."""
        self.assertTrue(wait_for(lambda: self.reads() >= 25))

    def assert_soon(self, asked):
        """The step ended in the layer it was in when it was asked to, or in the next."""
        self.assertLessEqual(self.reads() - asked, 2 * LAYER)
        self.assertLess(self.reads(), 5 * LAYER)  # the whole step, test_a_whole_step

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

    def run_of(self, tokens):
        return subprocess.Popen([TRIREME, "run", "-m", NANO, "--ram", "1G", "--threads", "1", *SLOW, "--greedy", "--json",
                                 "--max-tokens", tokens, LONG], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_a_whole_step(self):
        self.fault.write_text("count")
        _, err = self.run_of("1").communicate(timeout=60)
        self.assertEqual((self.reads(), err), (5 * LAYER, b""))

    def test_ctrl_c_of_run(self):
        self.fault.write_text("slow")
        p = self.run_of("4")
        self.assertTrue(wait_for(lambda: self.hears(p, signal.SIGINT)))
        self.wait_long()
        self.assertIsNone(p.poll())
        p.send_signal(signal.SIGINT)
        asked = self.reads()
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 1, err)
        report = json.loads(out)
        self.assertEqual((report["finish"], report["tokens"]), ("interrupted", []))
        self.assert_soon(asked)

    def test_a_client_goes_away(self):
        server = self.server()
        try:
            want = server.chat("Hi", max_tokens=8)["choices"][0]["message"]["content"]
            self.fault.write_text("slow")
            s = self.send(server, LONG)
            self.wait_long()
            self.assertEqual(server.metric(RUNNING), 1)
            s.close()
            asked = self.reads()
            self.assertTrue(wait_for(lambda: server.metric(RUNNING) == 0))
            self.assert_soon(asked)
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
            self.assertTrue(wait_for(lambda: server.metric(RUNNING) == 2))
            self.wait_long()
            s.close()
            asked = self.reads()
            self.assertTrue(wait_for(lambda: self.reads() >= asked + 20))
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
        self.wait_long()
        server.process.send_signal(signal.SIGTERM)
        asked = self.reads()
        server.process.wait(60)
        self.assert_soon(asked)
        self.assertEqual(server.close(), 0)
        s.close()


if __name__ == "__main__":
    need_nano()
    unittest.main()
