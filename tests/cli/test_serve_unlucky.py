"""ctest: slow. What goes wrong around a server: files that vanish or change under it, storms of signals,
limits of the system, a clock that jumps, huge bodies, ports and folders that are taken."""
import http.client
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

from serving import NANO, TRIREME, Server, need_nano, wait_for
from shim import SANITIZED, build

need_nano()
STORY = "Tell me a story about a fox and an owl."


class Of(Server):
    """A server of a model that may be changed; `more` is the environment's."""

    def __init__(self, model, *args, preexec=None, **more):
        super().__init__(*args, model=model, preexec=preexec, env={**os.environ, **more})

    def end(self):
        """Its exit code and what it said."""
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate(timeout=30)[1].decode()
        return self.process.returncode, said


def refused(*args, preexec=None):
    """The one line of a server that does not start."""
    done = subprocess.run([TRIREME, "serve", str(NANO), "--threads", "1", *args], capture_output=True, text=True,
                          timeout=60, preexec_fn=preexec)
    assert done.returncode in (1, 2) and done.stdout == "", done
    assert done.stderr.startswith("trireme: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


class Vanishing(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.home = pathlib.Path(self.tmp.name)
        self.addCleanup(self.tmp.cleanup)

    def test_the_model(self):
        """Resident or streamed, a model that is removed is served on: its files are open."""
        for args in ((), ("--trunk", "stream")):
            model = self.home / "nano"
            shutil.copytree(NANO, model)
            server = Of(model, "--context", "1024", *args)
            want = server.chat(STORY)["choices"]
            shutil.rmtree(model)
            self.assertEqual(server.chat(STORY)["choices"], want)
            self.assertEqual(server.chat(STORY + " Yes.", cache_salt="x")["usage"]["completion_tokens"], 40)
            self.assertEqual(server.end()[0], 0)

    def test_a_model_that_is_cut(self):
        """Streamed weights that are no longer there: the request fails, not the server."""
        model = self.home / "nano"
        shutil.copytree(NANO, model)
        server = Of(model, "--context", "1024", "--trunk", "stream")
        server.chat(STORY)
        for f in model.glob("*.safetensors"):
            os.truncate(f, f.stat().st_size // 4)
        status, data, _ = server.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
        self.assertIn(status, (200, 500), data)
        if status == 500:
            self.assertIn("error", json.loads(data))
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        self.assertEqual(server.end()[0], 0)

    def test_the_keys(self):
        keys = self.home / "keys"
        keys.write_text("first\n")
        server = Of(NANO, "--context", "512", "--api-keys", str(keys))
        ask = lambda key: server.ask("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})[0]
        self.assertEqual((ask("first"), ask("second")), (200, 401))
        for spoil in (keys.unlink, lambda: keys.write_text(""), lambda: keys.write_text("x" * 300 + "\n")):
            spoil()
            server.process.send_signal(signal.SIGHUP)
            self.assertIn("the old keys stay", server.process.stderr.readline().decode())
            self.assertEqual((ask("first"), ask("second")), (200, 401))
        keys.write_text("second\n")
        server.process.send_signal(signal.SIGHUP)
        self.assertTrue(wait_for(lambda: (ask("first"), ask("second")) == (401, 200)))
        self.assertEqual(server.end(), (0, ""))

    def test_the_certificate(self):
        cert, key = self.home / "cert.pem", self.home / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        server = Of(NANO, "--context", "512", "--tls-cert", str(cert), "--tls-key", str(key))
        context = ssl.create_default_context(cafile=cert)
        cert.unlink()
        key.unlink()
        for _ in range(2):
            c = http.client.HTTPSConnection("localhost", server.port, context=context, timeout=30)
            c.request("GET", "/health")
            self.assertEqual(c.getresponse().status, 200)
            c.close()
            server.process.send_signal(signal.SIGHUP)  # there are no keys to read
        self.assertEqual(server.end(), (0, ""))

    def test_the_folder_of_states(self):
        """Gone while it is used, then a file where it was: answers stay right, failures are counted."""
        folder = self.home / "states"
        server = Of(NANO, "--context", "2048", "--cache-dir", str(folder))
        want = server.chat(STORY * 4)["choices"]
        while folder.exists():  # the server may just be writing a state into it
            shutil.rmtree(folder, ignore_errors=True)
        folder.write_text("")
        for i in range(3):
            self.assertEqual(server.chat(STORY * 4, cache_salt=str(i))["choices"], want)
        self.assertTrue(wait_for(lambda: server.metric("trireme_checkpoint_files_failed_total") > 0))
        self.assertEqual(server.end()[0], 0)


class Signals(unittest.TestCase):
    def test_a_storm_of_hangups(self):
        with tempfile.TemporaryDirectory() as tmp:
            keys = pathlib.Path(tmp) / "keys"
            keys.write_text("k\n")
            server = Of(NANO, "--context", "2048", "--api-keys", str(keys))
            body = {"messages": [{"role": "user", "content": STORY}], "temperature": 0, "max_tokens": 400, "ignore_eos": True}
            head = {"Authorization": "Bearer k"}
            want = server.post("/v1/chat/completions", body, headers=head)["choices"]
            got = []
            asking = [threading.Thread(target=lambda: got.append(
                server.post("/v1/chat/completions", body, headers=head)["choices"])) for _ in range(3)]
            for t in asking:
                t.start()
            sent = 0
            while sent < 500 or any(t.is_alive() for t in asking):
                server.process.send_signal(signal.SIGHUP)
                sent += 1
            for t in asking:
                t.join()
            self.assertEqual(got, [want] * 3)
            self.assertEqual(server.end(), (0, ""))

    def test_a_storm_of_ends(self):
        """The first drains, any later one ends what runs; it exits once, with 0, and the folder is in order."""
        with tempfile.TemporaryDirectory() as tmp:
            for seed in range(4):
                server = Of(NANO, "--context", "4096", "--cache-dir", tmp)
                body = {"messages": [{"role": "user", "content": STORY}], "max_tokens": 4000, "ignore_eos": True}
                asking = [threading.Thread(target=self.ask, args=(server, body)) for _ in range(4)]
                for t in asking:
                    t.start()
                wait_for(lambda: server.metric("vllm:generation_tokens_total") > 0)
                draw = random.Random(seed)
                while server.process.poll() is None:
                    server.process.send_signal(draw.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE]))
                    time.sleep(draw.random() * 0.002)
                for t in asking:
                    t.join()
                self.assertEqual(server.process.returncode, 0)
                self.assertEqual(server.process.communicate()[1].decode(), "")

    def ask(self, server, body):
        try:
            server.ask("POST", "/v1/chat/completions", body)
        except (OSError, http.client.HTTPException):
            pass


class Limits(unittest.TestCase):
    def test_little_address_space(self):
        """It starts and answers, or says in one line what it lacks; when requests want more than there is they are
        refused, and it serves on."""
        if SANITIZED:
            self.skipTest("a sanitizer takes the whole address space")
        served = 0
        for mib in (16, 48, 64, 96, 112, 128, 160, 192, 448):
            limit = lambda n=mib << 20: resource.setrlimit(resource.RLIMIT_AS, (n, n))
            try:
                server = Of(NANO, "--ram", "256M", "--context", "1024", "--cache-ram", "8M", preexec=limit)
            except RuntimeError as e:
                self.assertEqual(str(e).count("\n"), 1, (mib, str(e)))
                continue
            served += 1
            self.assertEqual(server.chat(STORY)["usage"]["completion_tokens"], 40)
            for _ in range(3):
                body = json.dumps({"messages": [{"role": "user", "content": "x " * (8 << 20)}]})
                try:
                    self.assertIn(server.ask("POST", "/v1/chat/completions", body)[0], (400, 413, 503))
                except OSError:
                    pass  # it may close when there is no memory for the answer either
            self.assertEqual(server.chat(STORY)["usage"]["completion_tokens"], 40)
            self.assertEqual(server.end()[0], 0)
        self.assertGreater(served, 2)

    def test_bodies_of_four_gigabytes(self):
        """Refused by their length before a byte of them is read; by their chunks when they pass the limit."""
        server = Of(NANO, "--context", "512")
        for n in (4 << 30, (4 << 30) + 2, 1 << 32, 1 << 63, 10 ** 30):
            got = server.raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n{}" % n)
            self.assertRegex(got, rb"\AHTTP/1.1 (413|400) ")
        s = socket.create_connection(("127.0.0.1", server.port))
        s.settimeout(60)
        piece, sent = b"100000\r\n" + b" " * 0x100000 + b"\r\n", 0
        try:
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            while sent < 4 << 30:
                s.sendall(piece)
                sent += 1 << 20
        except OSError:
            pass
        self.assertLess(sent, 128 << 20)  # 64 MiB are a body, 16 more are read so that the answer arrives
        try:
            self.assertIn(b" 413 ", s.recv(100))
        except OSError:
            pass  # closed with our bytes unread
        s.close()
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        self.assertLess(server.metric("process_resident_memory_bytes"), 400e6)
        self.assertEqual(server.end()[0], 0)

    def test_what_is_taken(self):
        with tempfile.TemporaryDirectory() as tmp:
            server = Of(NANO, "--context", "512", "--cache-dir", tmp)
            self.assertIn(str(server.port), refused("--ram", "1G", "--port", str(server.port)))
            self.assertIn(tmp, refused("--ram", "1G", "--port", "0", "--cache-dir", tmp))
            self.assertEqual(server.chat(STORY)["usage"]["completion_tokens"], 40)
            server.process.kill()
            server.process.communicate()
            self.assertEqual(Of(NANO, "--context", "512", "--cache-dir", tmp).end(), (0, ""))  # not taken by the dead

    def test_flags_that_cannot_be(self):
        for args, word in ((("--host", "nowhere.invalid", "--allow-anyone"), "nowhere.invalid"),
                           (("--host", "256.0.0.1", "--allow-anyone"), "256.0.0.1"),
                           (("--host", "0.0.0.0"), "--api-keys"), (("--context", "9999999"), "--context"),
                           (("--api-keys", "/nowhere"), "/nowhere"), (("--ram", "1M"), "RAM|ram|MiB"),
                           (("--parallel", "256", "--chunk", "64"), "--chunk")):
            self.assertRegex(refused("--port", "0", *(args if "--ram" in args else ("--ram", "1G", *args))), word)
        for args in (("--port", "65536"), ("--port", "-1"), ("--parallel", "0"), ("--parallel", "257"), ("--queue", "0"),
                     ("--cache-ram", "x"), ("--name", ""), ("--drain-timeout", "-1"), ("a", "b")):
            done = subprocess.run([TRIREME, "serve", *args], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), (args, done.stderr))


class Memory(unittest.TestCase):
    """An answer that finds no memory is told as a fault, never sent cut as if it were whole."""
    how = {"temperature": 0, "ignore_eos": True, "max_tokens": 300}
    turns = {**how, "messages": [{"role": "user", "content": STORY}]}
    asked = (("/v1/chat/completions", {**turns, "logprobs": True, "top_logprobs": 20}, "[DONE]"),
             ("/v1/completions", {**how, "prompt": STORY, "logprobs": 5}, "[DONE]"),
             ("/v1/messages", turns, "message_stop"),
             ("/v1/responses", {"input": STORY, "max_output_tokens": 300, "ignore_eos": True}, "response.completed"))

    def ask(self, path, body, last):
        """How many of a whole and a streamed answer were refused."""
        status, data, _ = self.server.ask("POST", path, body)
        self.assertIn(status, (200, 500, 503), data)
        self.assertEqual(status != 200, bool(json.loads(data).get("error")), data)
        streamed = self.server.ask("POST", path, {**body, "stream": True})[1].decode()
        end = streamed.rstrip().rsplit("\n\n", 1)[-1]
        lost = "memory for" in end
        self.assertEqual(last in end, not lost, end[-300:])
        return (status != 200) + lost

    def test_large_answers(self):
        with tempfile.TemporaryDirectory() as folder:
            fault, shim, refused = pathlib.Path(folder, "fault"), build("faulty_realloc.c", folder), {}
            for least in (600, 2100, 20000, 1000000):
                self.server = Of(NANO, "--context", "1024", LD_PRELOAD=shim, REALLOC_FAULT=str(fault),
                                 REALLOC_LEAST=str(least))
                fault.touch()
                refused[least] = [self.ask(*a) for a in self.asked]
                fault.unlink()
                for a in self.asked: # and afterwards all is well
                    self.assertEqual(self.ask(*a), 0)
                self.assertEqual(self.server.end()[0], 0)
            self.assertEqual(refused[600], [2] * 4)
            self.assertGreater(min(refused[2100][:2]), 0)
            self.assertGreater(refused[20000][0], 0)
            self.assertEqual(refused[1000000], [0] * 4)


class Clock(unittest.TestCase):
    def test_somebody_sets_it(self):
        """Patience, keepalives, time limits and the order of kept states do not hang on the time of day."""
        with tempfile.TemporaryDirectory() as tmp:
            server = Of(NANO, "--context", "16384", "--parallel", "1", "--max-output", "64K", "--cache-dir",
                        f"{tmp}/states", LD_PRELOAD=build("jumping_clock.c", tmp))
            dates = {server.ask("GET", "/health")[2]["Date"] for _ in range(5)}
            self.assertGreater(len(dates), 1, "the shim does nothing")
            slow = socket.socket()
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", server.port))
            body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3500, "ignore_eos": True,
                               "logprobs": True, "top_logprobs": 20, "stream": True}).encode()
            slow.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            self.assertTrue(wait_for(lambda: server.metric("vllm:num_requests_running") == 1))
            for i in range(3):  # the only slot is his until the others' patience ends
                self.assertEqual(server.chat(f"{i}" + STORY, max_tokens=5)["usage"]["completion_tokens"], 5)
            slow.close()
            self.assertTrue(wait_for(lambda: server.metric("vllm:num_requests_running") == 0))
            self.assertEqual(server.end(), (0, ""))


if __name__ == "__main__":
    unittest.main()
