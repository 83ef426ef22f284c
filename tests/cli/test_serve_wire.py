#!/usr/bin/env python3
"""ctest: slow. `trireme serve` on the wire: every limit at its edge and one past it with its
counter, keepalives, leaving in mid-prefill, long bodies beside short requests, TLS, key files,
draining, and what logs hold."""
import http.client
import json
import os
import pathlib
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serving import NANO, TRIREME, Server, Tocks, need_nano, wait_for  # noqa: E402

HI = [{"role": "user", "content": "Hi"}]
CHAT = "/v1/chat/completions"


def chat(**more):
    return dict({"messages": HI, "max_tokens": 1}, **more)


def hits(server, limit):
    return server.metric(f'trireme_limit_hits_total{{engine="0",model_name="nano",limit="{limit}"}}')


def tool(i):
    return {"type": "function", "function": {"name": f"f{i}"}}


def nested(levels):  # a body of this many levels
    return '{"messages":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


def get(fields=b"", path=b"/health"):
    return b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + fields + b"\r\n"


def padded(total):  # a whole head of so many bytes
    return get(b"X: " + b"a" * (total - len(get()) - 5) + b"\r\n")


class Limits(unittest.TestCase):
    """name, flags, at the limit, one past it, status there."""
    def check(self, limit, flags, fine, over, status, field=None):
        server = Server("--context", "512", *flags)
        try:
            before = hits(server, limit)
            for what in (fine, over):
                if isinstance(what, bytes):
                    got = int(server.raw(what)[9:12])
                    data = b""
                else:
                    got, data, _ = server.ask("POST", CHAT, what)
                if what is fine:
                    self.assertNotIn(got, (status,) if status != 400 else (400,), (limit, data))
                    self.assertEqual(hits(server, limit), before, limit)
            self.assertEqual(got, status, (limit, data))
            self.assertEqual(hits(server, limit), before + 1, limit)
            if field:
                self.assertEqual(json.loads(data)["error"]["param"], field)
        finally:
            self.assertEqual(server.close(), 0)

    def test_requests(self):
        tools = [tool(i) for i in range(3)]
        size = len(json.dumps(tools, separators=(",", ":")))
        schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}
        schema_size = len(json.dumps(schema, separators=(",", ":")))
        longer = json.loads(json.dumps(schema))
        longer["json_schema"]["name"] = "ab"
        for limit, n, fine, over, field in [
                ("stop", 3, chat(stop=["x"] * 3), chat(stop=["x"] * 4), "stop"),
                ("stop_bytes", 9, chat(stop="x" * 9), chat(stop="x" * 10), "stop"),
                ("stop_token_ids", 3, chat(stop_token_ids=[1, 2, 3]), chat(stop_token_ids=[1] * 4),
                 "stop_token_ids"),
                ("n", 2, chat(n=2), chat(n=3), "n"),
                ("top_logprobs", 2, chat(logprobs=True, top_logprobs=2),
                 chat(logprobs=True, top_logprobs=3), "top_logprobs"),
                ("logit_bias", 2, chat(logit_bias={"1": 1, "2": 1}),
                 chat(logit_bias={"1": 1, "2": 1, "3": 1}), "logit_bias"),
                ("messages", 2, chat(messages=HI * 2), chat(messages=HI * 3), "messages"),
                ("tools", 2, chat(tools=tools[:2]), chat(tools=tools), "tools"),
                ("tools_bytes", size, chat(tools=tools), chat(tools=tools[:2] + [tool(22)]), "tools"),
                ("schema_bytes", schema_size, chat(response_format=schema),
                 chat(response_format=longer), "response_format")]:
            with self.subTest(limit=limit):
                self.check(limit, ("--limit", f"{limit}={n}"), fine, over, 400, field)

    def test_json(self):
        body = json.dumps(chat())
        values = 1 + sum(body.count(c) for c in ",{[:")
        self.check("json_values", ("--limit", f"json_values={values}"), chat(), chat(top_k=1), 400)
        # deep, but no chat: the shape is judged first
        server = Server("--context", "256", "--limit", "json_depth=9")
        self.assertEqual(json.loads(server.ask("POST", CHAT, nested(9))[1])["error"]["param"],
                         "messages[0].role")
        self.assertEqual(hits(server, "json_depth"), 0)
        self.assertIn("deeper than 9", json.loads(server.ask("POST", CHAT, nested(10))[1])["error"]
                      ["message"])
        self.assertEqual(hits(server, "json_depth"), 1)
        self.assertEqual(server.close(), 0)

    def test_heads(self):
        line = b"GET /" + b"a" * 83 + b" HTTP/1.1"  # 97 bytes and CR LF
        fine, over = (b"GET /" + b"a" * n + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
                      for n in (86, 87))
        self.assertEqual(len(line), 97)
        self.check("line_bytes", ("--limit", "line_bytes=100"), fine, over, 414)
        self.check("head_bytes", ("--limit", "head_bytes=2000"), padded(2000 + 2), padded(2000 + 3), 431)
        self.check("head_fields", ("--limit", "head_fields=10"),
                   get(b"".join(b"X%d: a\r\n" % i for i in range(8))),
                   get(b"".join(b"X%d: a\r\n" % i for i in range(9))), 431)
        # and at the sizes that are built in
        self.check("line_bytes", (), b"GET /" + b"a" * (8192 - 15) + b" HTTP/1.1\r\nHost: localhost\r\n"
                   b"Connection: close\r\n\r\n", b"GET /" + b"a" * (8192 - 13) + b" HTTP/1.1\r\nHost: "
                   b"localhost\r\nConnection: close\r\n\r\n", 414)
        self.check("head_fields", (), get(b"".join(b"X%d: a\r\n" % i for i in range(98))),
                   get(b"".join(b"X%d: a\r\n" % i for i in range(99))), 431)

    def test_bodies(self):
        def body(n):
            text = json.dumps(chat())
            return text[:-1] + " " * (n - len(text)) + text[-1]
        self.check("body_bytes", ("--max-body", "70K"), body(70 << 10), body((70 << 10) + 1), 413)
        server = Server("--context", "256", "--max-body", "100K", "--max-bodies", "150K")
        held = socket.create_connection(("127.0.0.1", server.port))
        held.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n" +
                     b" " * 90000)
        time.sleep(0.3)
        self.assertEqual(server.ask("POST", CHAT, body(60000))[0], 200)
        status, data, headers = server.ask("POST", CHAT, body(70000))
        self.assertEqual((status, "Retry-After" in headers), (503, True), data)
        self.assertEqual(hits(server, "bodies_bytes"), 1)
        held.close()
        self.assertTrue(wait_for(lambda: server.ask("POST", CHAT, body(70000))[0] == 200))
        self.assertEqual(server.close(), 0)

    def test_long_bodies_together(self):
        server = Server("--context", "256", "--limit", "preparing_bytes=65536")
        long = json.dumps(chat(messages=[{"role": "user", "content": "The Fox, 12 été. " * 600000}]))
        more = json.dumps(chat(messages=[{"role": "user", "content": "x " * 20000}]))
        got = []
        post = threading.Thread(target=lambda: got.append(server.ask("POST", CHAT, long)[0]))
        post.start()
        self.assertTrue(wait_for(lambda: server.metric("trireme_requests_preparing") == 1))
        status, data, headers = server.ask("POST", CHAT, more)
        self.assertEqual((status, "Retry-After" in headers), (503, True), data)
        self.assertEqual(hits(server, "preparing_bytes"), 1)
        post.join()
        self.assertEqual(got, [400])  # the first is read whatever its size: too long for the context
        self.assertEqual(server.ask("POST", CHAT, more)[0], 400)
        self.assertEqual(server.close(), 0)

    def test_times(self):
        """A connection without requests, a body that drips, and a reader that stopped, side by side."""
        server = Server("--context", "16384", "--idle-timeout", "2", "--stall-timeout", "3",
                        "--max-output", "64K")
        idle = socket.create_connection(("127.0.0.1", server.port))
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertIn(b"200 OK", idle.recv(1000))
        idle.settimeout(60)
        begin = time.time()
        drip = socket.create_connection(("127.0.0.1", server.port))
        drip.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50000\r\n\r\n")
        stuck = stream_socket(server, small=True, max_tokens=16000, logprobs=True, top_logprobs=20)
        self.assertEqual(idle.recv(10), b"")
        self.assertEqual(hits(server, "body_rate"), 0)  # it was closed after its two seconds, not after ten
        self.assertTrue(wait_for(lambda: hits(server, "write_stall") == 1))
        self.assertTrue(wait_for(lambda: server.metric("vllm:num_requests_running") == 0))
        drip.settimeout(0.5)
        got = b""
        while time.time() - begin < 100 and not got:
            try:
                drip.sendall(b" ")
                got = drip.recv(1000)
            except socket.timeout:
                continue
        self.assertEqual(got[9:12], b"408")
        self.assertGreater(time.time() - begin, 9)  # ten seconds are everybody's
        self.assertEqual(hits(server, "body_rate"), 1)
        for s in (idle, drip, stuck):
            s.close()
        self.assertEqual(server.close(), 0)

    def test_connections(self):
        for limit, flag, status in (("connections", "--max-connections", 503),
                                    ("connections_per_peer", "--max-per-address", 429)):
            server = Server("--context", "256", flag, "5")
            held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
            self.assertEqual(server.ask("GET", "/health")[0], 200)  # the fifth
            held.append(socket.create_connection(("127.0.0.1", server.port)))
            time.sleep(0.2)
            self.assertEqual(server.ask("GET", "/health")[0], status)
            held.pop().close()
            self.assertTrue(wait_for(lambda: server.ask("GET", "/health")[0] == 200))
            self.assertGreaterEqual(hits(server, limit), 1)
            for s in held:
                s.close()
            self.assertEqual(server.close(), 0)

    def test_descriptors(self):
        """The soft limit is raised; what the hard one forbids is said at the start and answered with 503; and when no
        descriptor is left at all, the server rests instead of trying without end."""
        def limited(soft, hard, connections):
            server = Server("--context", "256", "--max-connections", str(connections), preexec=lambda:
                            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)))
            held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
            time.sleep(0.3)
            return server, held

        def end(server, held):
            for s in held:
                s.close()
            self.assertTrue(wait_for(lambda: server.ask("GET", "/health")[0] == 200))
            server.process.send_signal(signal.SIGTERM)
            _, said = server.process.communicate(timeout=30)
            self.assertEqual(server.process.returncode, 0)
            return said.decode()

        server, held = limited(30, 400, 120)
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        self.assertEqual(end(server, held), "")
        server, held = limited(30, 130, 120)
        self.assertEqual(server.ask("GET", "/health")[0], 503)
        self.assertRegex(end(server, held), r"\Anote: \d\d connections at once instead of 120[^\n]*ulimit -n\)\n\Z")
        server, held = limited(40, 40, 120)
        cpu_s = lambda: sum(map(int, pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().split()[13:15])) / 100
        begin, began = cpu_s(), time.monotonic()
        time.sleep(1)
        self.assertLess(cpu_s() - begin, 0.5 * (time.monotonic() - began))
        said = end(server, held)
        self.assertEqual(said.count("\n"), 1, said[:500])
        for limit in range(6, 26):  # it starts, or says in one line what it lacks
            try:
                server = Server("--context", "256", preexec=lambda n=limit:
                                resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
            except RuntimeError as e:
                self.assertRegex(str(e), r"trireme: [^\n]*Too many open files\n\Z")
                continue
            self.assertEqual(server.close(), 0)

    def test_bad_flags(self):
        for flags in (["--limit", "n=9"], ["--limit", "n"], ["--limit", "nothing=3"],
                      ["--limit", "json_depth=129"], ["--limit", "line_bytes=8193"],
                      ["--limit", "n=-1"], ["--limit", "=5"]):
            done = subprocess.run([TRIREME, "serve", str(NANO), "--port", "0", *flags],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, flags)
            self.assertRegex(done.stderr, r"\A[^\n]*--limit[^\n]*\n\Z")


def stream_socket(server, small=False, **more):
    s = socket.socket()
    s.settimeout(30)
    if small:  # the kernel shall not hold the answer of a client that does not read
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", server.port))
    body = json.dumps(dict({"messages": HI, "stream": True, "ignore_eos": True,
                            "max_tokens": 3000}, **more)).encode()
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
              % len(body) + body)
    return s


class Slow(unittest.TestCase):
    def test_keepalive_and_output(self):
        """One reader that does not read holds the only slot (it ranks before, else it would have to
        make room): its output is bounded and counted; the next stream waits in silence and gets a
        comment at once (0.7 to 1 s), the next one after 8 s, both by the server's own clock."""
        server = Server("--context", "16384", "--parallel", "1", "--max-output", "64K", "--idle-timeout", "2")
        idle = stream_socket(server, small=True, max_tokens=16000, logprobs=True, top_logprobs=20,
                             priority=-1)
        self.assertTrue(wait_for(lambda: hits(server, "output_bytes") >= 1))
        made = [0, -1]

        def stands():
            made[:] = [server.metric("vllm:generation_tokens_total"), made[0]]
            time.sleep(0.3)
            return made[0] == made[1]
        self.assertTrue(wait_for(stands))
        s = stream_socket(server, max_tokens=2)
        tocks, heard = Tocks(server), []
        while len(heard) < 2:
            self.assertTrue(tocks.until(s))
            piece = s.recv(65536)
            self.assertTrue(piece)
            heard += [tocks.count] * piece.count(b": keepalive")
        tocks.close()
        self.assertEqual(heard[0], 0)  # of two to three seconds each
        self.assertIn(heard[1], (1, 2, 3, 4))
        rest = b""
        self.assertEqual(server.metric("vllm:generation_tokens_total"), made[0])  # not computed for
        self.assertEqual(server.metric("vllm:num_requests_running"), 1)
        idle.close()
        while b"[DONE]" not in rest:
            piece = s.recv(65536)
            self.assertTrue(piece, rest)
            rest += piece
        s.close()
        self.assertEqual(server.close(), 0)

    def test_leaving_in_mid_prefill(self):
        server = Server("--context", "65536", "--parallel", "1", "--chunk", "256")
        s = stream_socket(server, messages=[{"role": "user", "content": "word and more " * 15000}])
        self.assertTrue(wait_for(lambda: server.metric("vllm:num_requests_running") == 1))
        computed = server.metric('trireme_computed_tokens_total{engine="0",model_name="nano",'
                                 'phase="prefill"}')
        s.close()
        self.assertTrue(wait_for(lambda: server.metric("vllm:num_requests_running") == 0))
        after = server.metric('trireme_computed_tokens_total{engine="0",model_name="nano",'
                              'phase="prefill"}')
        self.assertLess(after, 40000)  # of about 45,000: the rest was never computed
        self.assertGreaterEqual(after, computed)
        self.assertEqual(server.close(), 0)

    def test_long_bodies_hold_up_nobody(self):
        server = Server("--context", "512")
        body = json.dumps(chat(messages=[{"role": "user", "content": "The Fox, 12 and été. " * 400000}]))
        got = []
        post = threading.Thread(target=lambda: got.append(server.ask("POST", CHAT, body)[0]))
        post.start()
        waits = []
        while post.is_alive():
            begin = time.time()
            server.ask("GET", "/health")
            waits.append(time.time() - begin)
        self.assertEqual(got, [400])
        self.assertGreater(len(waits), 10)
        self.assertLess(max(waits), 0.5 * sum(waits))  # no single wait is most of the time
        self.assertEqual(server.close(), 0)

    def test_leaving_while_prepared(self):
        """Clients leave while their long prompt is read on the other thread, and at shutdown too."""
        server = Server("--context", "512")
        body = json.dumps(chat(messages=[{"role": "user", "content": "a b " * 300000}])).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        for _ in range(5):
            s = socket.create_connection(("127.0.0.1", server.port))
            s.sendall(head % len(body) + body)
            s.close()
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        self.assertTrue(wait_for(lambda: server.metric("trireme_requests_preparing") == 0))
        s = socket.create_connection(("127.0.0.1", server.port))
        s.sendall(head % len(body) + body)
        time.sleep(0.05)
        self.assertEqual(server.close(), 0)  # drains: it is answered first
        self.assertIn(b"HTTP/1.1 400", s.recv(100))
        s.close()


class Ending(unittest.TestCase):
    def test_drain(self):
        server = Server("--context", "4096", "--parallel", "1")
        running = stream_socket(server, max_tokens=1500)
        running.recv(100)
        waiting = stream_socket(server, max_tokens=3)
        self.assertTrue(wait_for(lambda: server.metric("vllm:num_requests_waiting") == 1))
        kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        kept.request("GET", "/health")
        kept.getresponse().read()
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        with self.assertRaises(OSError):  # nobody new
            socket.create_connection(("127.0.0.1", server.port), timeout=2).close()
        for s in (running, waiting):
            text = b""
            while b"[DONE]" not in text:
                piece = s.recv(65536)
                self.assertTrue(piece, "a request was lost")
                text += piece
            s.close()
        self.assertEqual(server.process.wait(20), 0)
        server.process.stdout.close()
        server.process.stderr.close()

    def cut(self, server, signals):
        """Ends a server in the middle of an answer that would go on for minutes; how long that took."""
        s = stream_socket(server, max_tokens=60000)
        text, begin = s.recv(100), time.time()
        for i in range(signals):
            if i:
                time.sleep(0.3)
                self.assertIsNone(server.process.poll())
            server.process.send_signal(signal.SIGTERM)
        while piece := s.recv(65536):
            text += piece
        took = time.time() - begin
        s.close()
        server.process.wait(60)  # close() sends another signal, which would end it in mid-closing
        self.assertEqual(server.close(), 0)
        self.assertFalse(b'"finish_reason":"length"' in text, "it was answered to its end")
        self.assertFalse(text.endswith(b"0\r\n\r\n"), "cut, but told as if it were whole")
        return took

    def test_second_signal_does_not_wait(self):
        self.cut(Server("--context", "65536", "--parallel", "1", "--drain-timeout", "86400"), 2)

    def test_drain_timeout(self):
        took = self.cut(Server("--context", "65536", "--parallel", "1", "--drain-timeout", "1"), 1)
        self.assertGreater(took, 1)


class Tls(unittest.TestCase):
    def test_tls(self):
        with tempfile.TemporaryDirectory() as tmp:
            cert, key = os.path.join(tmp, "cert.pem"), os.path.join(tmp, "key.pem")
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                            "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert,
                            "-days", "2", "-subj", "/CN=localhost", "-addext",
                            "subjectAltName=DNS:localhost,IP:127.0.0.1"],
                           check=True, capture_output=True)
            server = Server("--context", "2048", "--tls-cert", cert, "--tls-key", key)
            context = ssl.create_default_context(cafile=cert)
            c = http.client.HTTPSConnection("localhost", server.port, context=context, timeout=30)
            for _ in range(3):  # one connection, kept
                c.request("POST", CHAT, json.dumps(chat(max_tokens=5)))
                r = c.getresponse()
                self.assertEqual((r.status, r.version), (200, 11))
                self.assertEqual(json.loads(r.read())["usage"]["completion_tokens"], 5)
            c.request("POST", CHAT, json.dumps(chat(max_tokens=100, stream=True, ignore_eos=True)))
            text = c.getresponse().read()
            self.assertTrue(text.endswith(b"data: [DONE]\n\n"))
            long = json.dumps(chat(messages=[{"role": "user", "content": "x " * 200000}]))
            c.request("POST", CHAT, long)
            r = c.getresponse()
            self.assertEqual(r.status, 400)
            r.read()
            c.close()
            said = subprocess.run(["openssl", "s_client", "-connect", f"localhost:{server.port}",
                                   "-CAfile", cert, "-verify_return_error", "-brief", "-ign_eof"],
                                  input=b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
                                        b"Connection: close\r\n\r\n", capture_output=True, timeout=30)
            self.assertIn(b'{"status":"ok"}', said.stdout)
            self.assertIn(b"TLSv1.3", said.stderr)
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            old.load_verify_locations(cert)
            with self.assertRaises((ssl.SSLError, OSError, ValueError)):
                old.minimum_version = ssl.TLSVersion.TLSv1
                old.maximum_version = ssl.TLSVersion.TLSv1_1
                with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
                    old.wrap_socket(raw, server_hostname="localhost").close()
            plain = server.raw(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            self.assertNotIn(b"200 OK", plain)
            half = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
            for s in half:
                s.sendall(b"\x16\x03\x01")  # a handshake that never ends
            c = http.client.HTTPSConnection("localhost", server.port, context=context, timeout=30)
            c.request("GET", "/health")
            self.assertEqual(c.getresponse().status, 200)
            c.close()
            for s in half:
                s.close()
            self.assertEqual(server.close(), 0)

    def test_bad_files(self):
        with tempfile.TemporaryDirectory() as tmp:
            junk = os.path.join(tmp, "junk.pem")
            pathlib.Path(junk).write_text("no certificate\n")
            for flags in (["--tls-cert", junk, "--tls-key", junk], ["--tls-cert", junk],
                          ["--tls-cert", "/nowhere.pem", "--tls-key", "/nowhere.pem"]):
                done = subprocess.run([TRIREME, "serve", str(NANO), "--port", "0", "--ram", "1G", *flags],
                                      capture_output=True, text=True, timeout=60)
                self.assertNotEqual(done.returncode, 0)
                self.assertRegex(done.stderr, r"\Atrireme: [^\n]+\n\Z")


class Privacy(unittest.TestCase):
    def test_logs_hold_no_prompts_and_no_keys(self):
        """Everything the server ever prints, after requests of every kind with marked texts."""
        with tempfile.TemporaryDirectory() as tmp:
            keys = os.path.join(tmp, "keys")
            pathlib.Path(keys).write_text("sk-secret-7719-key\n")
            log, out = os.path.join(tmp, "log"), os.path.join(tmp, "out")
            with open(log, "wb") as err, open(out, "wb") as std:
                process = subprocess.Popen([TRIREME, "serve", str(NANO), "--port", "0", "--ram", "1G",
                                            "--threads", "1", "--context", "512", "--log-requests",
                                            "--api-keys", keys], stdout=std, stderr=err)
                self.assertTrue(wait_for(lambda: b":" in pathlib.Path(out).read_bytes()))
                server = Server.__new__(Server)
                server.process = process
                server.port = int(re.search(rb":(\d+) ", pathlib.Path(out).read_bytes()).group(1))
                key = {"Authorization": "Bearer sk-secret-7719-key"}
                marked = [{"role": "user", "content": "prompt-secret-7719"}]
                for path, body in ((CHAT, chat(messages=marked)), (CHAT, chat(messages=marked, n=99)),
                                   (CHAT, "{prompt-secret-7719"), (CHAT, chat(model="m-secret-7719")),
                                   ("/v1/messages", {"messages": marked, "max_tokens": 1}),
                                   ("/v1/responses", {"input": "prompt-secret-7719"}),
                                   ("/tokenize", {"prompt": "prompt-secret-7719"}),
                                   ("/v1/completions", {"prompt": "prompt-secret-7719", "user":
                                                        "user-secret-7719", "stop": "stop-secret-7719"})):
                    server.ask("POST", path, body, key)
                for bad in ("sk-wrong-secret-7719", ""):
                    server.ask("GET", "/v1/models", headers={"Authorization": "Bearer " + bad})
                server.ask("GET", "/v1/models?key=query-secret-7719", headers=key)
                server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: k-secret-7719\r\n"
                           b"Bad Field: x\r\n\r\n")
                process.send_signal(signal.SIGHUP)
                server.ask("GET", "/health")
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(20), 0)
            said = pathlib.Path(log).read_bytes()
            self.assertGreaterEqual(said.count(b"/v1/"), 9)  # it did log
            self.assertNotIn(b"secret-7719", said + pathlib.Path(out).read_bytes())
            self.assertLess(max(map(len, said.split(b"\n"))), 4096)

    def test_logged_paths_are_short_and_clean(self):
        with tempfile.TemporaryFile() as err:
            process = subprocess.Popen([TRIREME, "serve", str(NANO), "--port", "0", "--ram", "1G",
                                        "--context", "256", "--log-requests"],
                                       stdout=subprocess.PIPE, stderr=err)
            server = Server.__new__(Server)
            server.process = process
            server.port = int(re.search(rb":(\d+) ", process.stdout.readline()).group(1))
            server.raw(b"GET /" + b"a" * 8000 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            server.raw(b"GET /\xc3\xa9\x9b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            process.send_signal(signal.SIGTERM)
            process.wait(20)
            process.stdout.close()
            err.seek(0)
            for line in err.read().split(b"\n"):
                self.assertLess(len(line), 300)
                line.decode("utf-8")


class KeyFile(unittest.TestCase):
    def test_a_pipe_is_read_at_the_start_alone(self):
        """A pipe that nobody fills may not stop everybody else."""
        with tempfile.TemporaryDirectory() as tmp:
            path = os.path.join(tmp, "keys")
            pathlib.Path(path).write_text("k\n")
            server = Server("--context", "256", "--api-keys", path)
            os.unlink(path)
            os.mkfifo(path)
            server.process.send_signal(signal.SIGHUP)
            self.assertIn(b"not a regular file", server.process.stderr.readline())
            self.assertEqual(server.ask("GET", "/v1/models", headers={"x-api-key": "k"})[0], 200)
            self.assertEqual(server.close(), 0)

    def test_edges(self):
        with tempfile.TemporaryDirectory() as tmp:
            path = os.path.join(tmp, "keys")

            def start(text):
                pathlib.Path(path).write_bytes(text)
                return subprocess.run([TRIREME, "serve", str(NANO), "--port", "99999", "--api-keys", path],
                                      capture_output=True, text=True, timeout=60)
            pathlib.Path(path).write_text("k" * 256 + "\n" + "a\n" * 1023)
            server = Server("--context", "256", "--api-keys", path)
            self.assertEqual(server.ask("GET", "/v1/models", headers={"x-api-key": "k" * 256})[0], 200)
            for bad in ("k" * 255, "k" * 257, "k" * 5000):
                self.assertEqual(server.ask("GET", "/v1/models", headers={"x-api-key": bad})[0], 401)
            self.assertEqual(server.ask("GET", "/metrics")[0], 401)
            self.assertEqual(server.ask("GET", "/")[0], 200)  # the page asks for the key itself
            big = server.ask("POST", CHAT, b" " * (1 << 20))[0]
            self.assertEqual(big, 401)  # before the body is read
            for text in (b"", b"# nothing\n", b"k" * 257 + b"\n", b"a\n" * 1025):
                pathlib.Path(path).write_bytes(text)  # a bad file keeps the old keys
                server.process.send_signal(signal.SIGHUP)
                time.sleep(0.2)
                self.assertEqual(server.ask("GET", "/v1/models", headers={"x-api-key": "k" * 256})[0],
                                 200)
            self.assertEqual(server.close(), 0)
            server = None
            pathlib.Path(path).write_text("k\n")
            server = Server("--context", "256", "--api-keys", path, "--open-metrics")
            self.assertEqual(server.ask("GET", "/metrics")[0], 200)
            self.assertEqual(server.ask("GET", "/v1/models")[0], 401)
            self.assertEqual(server.close(), 0)


class Cors(unittest.TestCase):
    def test_an_allowed_page(self):
        server = Server("--context", "256", "--cors", "https://app.example", "--allow-host",
                        "box.example:8000")
        page = {"Origin": "https://app.example"}
        status, _, headers = server.ask("OPTIONS", CHAT, headers=dict(page, **{
            "Access-Control-Request-Method": "POST"}))
        self.assertEqual((status, headers["Access-Control-Allow-Origin"]),
                         (204, "https://app.example"))
        status, _, headers = server.ask("GET", "/health", headers=page)
        self.assertEqual((status, headers["Access-Control-Allow-Origin"], headers["Vary"]),
                         (200, "https://app.example", "Origin"))
        self.assertNotIn("Access-Control-Allow-Credentials", headers)
        for origin in ("https://evil.example", "http://app.example", "https://app.example.evil",
                       "https://app.example:444", "null"):
            self.assertEqual(server.ask("GET", "/health", headers={"Origin": origin})[0], 403, origin)
        self.assertEqual(server.ask("GET", "/health", headers={"Host": "box.example:8000"})[0], 200)
        self.assertEqual(server.ask("GET", "/health", headers={"Host": "box.example"})[0], 403)
        self.assertEqual(server.close(), 0)


if __name__ == "__main__":
    need_nano()
    unittest.main()
