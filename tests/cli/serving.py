"""What the tests of `trireme serve` share: a server that runs, and a plain HTTP client."""
import http.client
import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import time
import unittest

TRIREME = os.path.abspath(os.environ.get("TRIREME", "build/release/trireme"))
SOURCE = pathlib.Path(os.environ.get("TRIREME_SOURCE", "."))
NANO = SOURCE / "models" / "nano"


def need_nano():
    if not (NANO / "config.json").exists():
        print(f"SKIP: {NANO} is absent")
        sys.exit(77)


class Server:
    def __init__(self, *args, model=NANO, env=None, preexec=None):
        self.process = subprocess.Popen(
            [TRIREME, "serve", str(model), "--port", "0", "--ram", "1G", "--threads", "1", *args],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, preexec_fn=preexec)
        line = self.process.stdout.readline().decode()
        found = re.search(r":(\d+) ", line)
        if not found:
            raise RuntimeError(self.process.communicate()[1].decode())
        self.port = int(found.group(1))

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def ask(self, method, path, body=None, headers=None, timeout=60):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        c.request(method, path, body, headers or {})
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, data, dict(r.getheaders())

    def post(self, path, body, status=200, headers=None):
        got, data, _ = self.ask("POST", path, body, headers)
        if got != status:
            raise AssertionError(f"{path} {str(body)[:300]}: {got} instead of {status}: {data[:500]}")
        return json.loads(data)

    def events(self, path, body):
        """Data of each server-sent event, and the comments."""
        got, data, headers = self.ask("POST", path, body)
        assert got == 200, (got, data)
        assert headers["Content-Type"] == "text/event-stream"
        text, events = data.decode(), []
        for block in text.split("\n\n"):
            for line in block.split("\n"):
                if line.startswith("data: "):
                    events.append(line[6:] if line[6:] == "[DONE]" else json.loads(line[6:]))
        return events

    def chat(self, text, **more):
        body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 40}
        body.update(more)
        return self.post("/v1/chat/completions", body)

    def metric(self, name):
        for line in self.ask("GET", "/metrics")[1].decode().split("\n"):
            if line.startswith(name):
                return float(line.rsplit(" ", 1)[1])
        raise KeyError(name)

    def raw(self, data, timeout=5):
        """Sends bytes, returns all that comes until the server closes."""
        s = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        s.sendall(data)
        out = b""
        try:
            while True:
                piece = s.recv(65536)
                if not piece:
                    break
                out += piece
        except OSError:
            pass
        s.close()
        return out


class WithServer(unittest.TestCase):
    args = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.args)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.close() == 0


class Tocks:
    """A clock that the server itself keeps: its --idle-timeout ends one connection after the other, `count` so far, none
    before its time. A test that compares with it fails for the server's sake only: a slow machine delays both."""

    def __init__(self, server):
        self.port, self.count = server.port, 0
        self.conn = self._open()

    def _open(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return s

    def until(self, s, seconds=120):
        """Waits until `s` has something to read, and counts the tocks before. False: the time is over."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            ready = select.select([s, self.conn], [], [], left)[0]
            if s in ready:
                return True
            if ready and not self.conn.recv(4096):
                self.conn.close()
                self.count += 1
                self.conn = self._open()
        return False

    def close(self):
        self.conn.close()


def wait_for(what, seconds=60):
    """The seconds are those after which nothing is hoped for any more, not what is measured."""
    end = time.time() + seconds
    while time.time() < end:
        if what():
            return True
        time.sleep(0.05)
    return False
