#!/usr/bin/env python3
# ctest: slow
"""Checkpoints in files, from outside: found again after a restart and after kill -9 at any moment,
never wrong, private, one process at a time; a drive that is full harms no request; a chat of 40 turns
computes only what is new. TRIREME_KILLS (default 15) is how often the server is killed."""
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serving import NANO, TRIREME, Server, need_nano, wait_for  # noqa: E402

KILLS = int(os.environ.get("TRIREME_KILLS", "15"))
STORY = "The fox and the crow went down to the river and sat there. " * 12


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def kill(server):
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(30)
    server.process.stdout.close()
    server.process.stderr.close()


class Folder(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.mkdtemp(prefix="trireme-cache-")
        self.folder = os.path.join(self.home, "states")

    def tearDown(self):
        shutil.rmtree(self.home, ignore_errors=True)

    def serve(self, *more):
        return Server("--context", "2048", "--cache-dir", self.folder, *more)

    def files(self):
        return sorted(f for f in os.listdir(self.folder) if f.endswith(".state"))


class Kept(Folder):
    def test_found_after_a_restart(self):
        """With both tiers and with files alone; and it is private, and of one process."""
        for more in ((), ("--cache-ram", "0")):
            server = self.serve(*more)
            fresh = server.chat(STORY)
            self.assertEqual(cached(fresh), 0)
            second = subprocess.run([TRIREME, "serve", str(NANO), "--port", "0", "--ram", "1G",
                                     "--cache-dir", self.folder], capture_output=True, text=True)
            self.assertEqual(second.returncode, 1)
            self.assertRegex(second.stderr, rf"\A[^\n]*in use by[^\n]*{server.process.pid}[^\n]*\n\Z")
            self.assertEqual(server.close(), 0)
            self.assertEqual(os.stat(self.folder).st_mode & 0o777, 0o700)
            for name in os.listdir(self.folder):
                self.assertEqual(os.stat(os.path.join(self.folder, name)).st_mode & 0o777, 0o600)
            server = self.serve(*more)
            again = server.chat(STORY)
            self.assertGreater(cached(again), again["usage"]["prompt_tokens"] - 70)
            self.assertEqual(again["choices"], fresh["choices"])
            self.assertGreater(server.metric('trireme_cache_hit_tokens_total{engine="0",'
                                             'model_name="nano",tier="disk"}'), 0)
            self.assertEqual(server.metric("trireme_checkpoint_files_damaged_total"), 0)
            self.assertEqual(server.close(), 0)
            shutil.rmtree(self.folder)

    def test_other_precision_other_states(self):
        server = self.serve()
        server.chat(STORY)
        self.assertEqual(server.close(), 0)
        self.assertTrue(self.files())
        for other in (("--cache", "bf16"), ("--kda-state", "bf16")):   # each finds the files of the one before
            server = self.serve(*other)
            self.assertGreater(server.metric("trireme_checkpoint_files_damaged_total"), 0)
            self.assertEqual(cached(server.chat(STORY)), 0)
            self.assertEqual(server.close(), 0)
            self.assertTrue(self.files())
        server = self.serve("--kda-state", "bf16")
        self.assertGreater(cached(server.chat(STORY)), 0)
        self.assertEqual(server.close(), 0)

    def test_keys_never_share(self):
        keys = os.path.join(self.home, "keys")
        pathlib.Path(keys).write_text("first-key\nsecond-key\n")

        def ask(server, key, salt=None):
            body = {"messages": [{"role": "user", "content": STORY}], "temperature": 0,
                    "max_tokens": 4}
            if salt:
                body["cache_salt"] = salt
            return cached(server.post("/v1/chat/completions", body,
                                      headers={"Authorization": f"Bearer {key}"}))
        server = self.serve("--api-keys", keys)
        self.assertEqual(ask(server, "first-key"), 0)
        self.assertGreater(ask(server, "first-key"), 0)
        self.assertEqual(ask(server, "second-key"), 0)
        self.assertEqual(ask(server, "second-key", "first-key"), 0)
        self.assertEqual(ask(server, "first-key", "a"), 0)
        self.assertGreater(ask(server, "first-key", "a"), 0)
        self.assertEqual(server.close(), 0)
        names = "".join(os.listdir(self.folder))
        self.assertNotIn("first-key", names)
        server = self.serve("--api-keys", keys)
        self.assertGreater(ask(server, "second-key"), 0)
        self.assertEqual(ask(server, "second-key", "b"), 0)
        self.assertEqual(server.close(), 0)

    def test_size_and_order(self):
        """The folder stays below its cap, and what was used last is what a later start finds."""
        server = self.serve("--cache-dir-size", "3M", "--cache-ram", "0")
        for i in range(8):
            server.chat(f"{i} " + STORY, max_tokens=2)
            size = sum(os.path.getsize(os.path.join(self.folder, f)) for f in self.files())
            self.assertLessEqual(size, 3 << 20)
        self.assertGreater(server.metric("trireme_checkpoint_files_evicted_total"), 0)
        self.assertEqual(server.close(), 0)
        server = self.serve("--cache-dir-size", "3M", "--cache-ram", "0")
        self.assertGreater(cached(server.chat("7 " + STORY, max_tokens=2)), 64)
        self.assertEqual(cached(server.chat("0 " + STORY, max_tokens=2)) // 64 * 64,
                         cached(server.chat("9 " + STORY, max_tokens=2)) // 64 * 64)
        self.assertEqual(server.close(), 0)

    def test_no_room_on_the_drive(self):
        """Writes that fail (here: no file may be larger than 64 KiB) are counted; answers are right."""
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        args = [TRIREME, "serve", str(NANO), "--port", "0", "--ram", "1G", "--threads", "1",
                "--context", "2048", "--cache-dir", self.folder]
        server = Server.__new__(Server)
        server.process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                          preexec_fn=limit, restore_signals=False)
        line = server.process.stdout.readline().decode()
        server.port = int(line.split(":")[-1].split()[0])
        first = server.chat(STORY)
        self.assertTrue(wait_for(
            lambda: server.metric("trireme_checkpoint_files_failed_total") > 0))
        self.assertEqual(server.chat(STORY)["choices"], first["choices"])
        self.assertEqual(self.files(), [])
        self.assertEqual([f for f in os.listdir(self.folder) if f != "lock"], [])
        self.assertEqual(server.close(), 0)

    def test_a_folder_that_cannot_be(self):
        for folder in (os.path.join(self.home, "a", "b"), "/dev/null"):
            done = subprocess.run([TRIREME, "serve", str(NANO), "--port", "0", "--ram", "1G",
                                   "--cache-dir", folder], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, rf"\A[^\n]*{folder}[^\n]*\n\Z")


class Chat(Folder):
    def test_40_turns(self):
        """Each turn finds all of the one before but what was sampled last: computed are that token,
        the new message and what opens the reply. Also after a restart in the middle, by files."""
        server = self.serve("--context", "8192")
        messages, total, new = [], 0, []
        for turn in range(40):
            if turn == 20:
                self.assertEqual(server.close(), 0)
                server = self.serve("--context", "8192")
            messages.append({"role": "user", "content": f"Turn {turn}: tell me about a bird."})
            got = server.post("/v1/chat/completions", {"messages": messages, "temperature": 0,
                                                       "max_tokens": 200, "reasoning_effort": "low"})
            self.assertEqual(got["choices"][0]["finish_reason"], "stop")
            self.assertEqual(cached(got), total - 1 if turn else 0, turn)
            new.append(got["usage"]["prompt_tokens"] - cached(got))
            total = got["usage"]["total_tokens"]
            messages.append(got["choices"][0]["message"])
        self.assertLess(max(new[1:]), 40)
        self.assertEqual(server.close(), 0)
        print(f"40 turns, {total} tokens at the end; computed per turn: {new}")


class Room(unittest.TestCase):
    def test_slots_share_room(self):
        """A context that fits once but not for every slot: short requests run together, those without
        max_tokens, which may become that long, one after the other; nobody is stopped."""
        whole = 60000 * 2 * (64 + 16) * 4  # nano: two MLA layers, rank and rope, float32
        server = Server("--ram", "110M", "--cache-ram", "8M", "--context", "60000")
        self.assertGreaterEqual(server.metric("trireme_state_room_bytes"), whole)
        self.assertLess(server.metric("trireme_state_room_bytes"), 4 * whole)
        want = server.chat("Hi")["choices"]
        got, most = [], 0

        def ask(**more):
            got.append(server.post("/v1/chat/completions", dict(
                {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0}, **more)))
        for more in ({"max_tokens": 40}, {}):
            threads = [threading.Thread(target=ask, kwargs=more) for _ in range(4)]
            for t in threads:
                t.start()
            while any(t.is_alive() for t in threads):
                most = max(most, server.metric("trireme_state_room_used_bytes"))
            for t in threads:
                t.join()
        self.assertEqual([g["choices"] for g in got[:4]], [want] * 4)
        self.assertEqual(len(got), 8)
        self.assertLessEqual(most, server.metric("trireme_state_room_bytes"))
        self.assertGreaterEqual(most, whole)
        self.assertEqual(server.metric("vllm:num_preemptions_total"), 0)
        self.assertEqual(server.close(), 0)


class Way(Folder):
    def complete(self, server, text, n, **more):
        return server.post("/v1/completions", dict({"prompt": text, "temperature": 0,
                           "max_tokens": n, "ignore_eos": True, "logprobs": 1}, **more))["choices"]

    def test_who_is_sent_back_goes_on_with_the_same_bits(self):
        """One slot, a long answer, and a request that ranks before it: both as when alone, to the
        last log probability; its state waits in RAM, or in a file."""
        plain = Server("--context", "2048")
        want = [self.complete(plain, STORY, 400), self.complete(plain, "Hi", 50)]
        plain.close()
        for more in ((), ("--cache-ram", "0", "--cache-dir", self.folder)):
            server, got = Server("--context", "2048", "--parallel", "1", *more), []
            low = threading.Thread(
                target=lambda s=server, g=got: g.append(self.complete(s, STORY, 400, priority=5)))
            low.start()
            for _ in range(3):
                self.assertTrue(wait_for(
                    lambda: server.metric("vllm:num_requests_running") == 1, 20))
                self.assertEqual(self.complete(server, "Hi", 50), want[1])
            low.join()
            self.assertEqual(got, [want[0]])
            self.assertGreater(server.metric("vllm:num_preemptions_total"), 0)
            self.assertEqual(server.close(), 0)

    def test_who_is_sent_back_keeps_the_form(self):
        """A schema, a tool call and a choice of a regular expression go on where they were: the same answers as when
        alone, and valid ones, however often others come first."""
        form = {"type": "object", "additionalProperties": False, "required": ["name", "n"], "properties": {
            "name": {"type": "string", "pattern": "^[a-z]{100,150}$"},
            "n": {"type": "array", "items": {"type": "integer"}, "minItems": 40, "maxItems": 50}}}
        bodies = [dict(more, messages=[{"role": "user", "content": "Give JSON"}], seed=seed, priority=5)
                  for seed in range(2) for more in (
                      {"response_format": {"type": "json_schema", "json_schema": {"name": "f", "schema": form}},
                       "reasoning_effort": "none"},
                      {"tools": [{"type": "function", "function": {"name": "f", "parameters": form}}],
                       "tool_choice": "required"},
                      {"structured_outputs": {"regex": "([a-z]{5}-){30,40}"}, "reasoning_effort": "none"})]
        server, got = Server("--context", "4096", "--parallel", "1"), {}

        def ask(i):
            got[i] = server.post("/v1/chat/completions", bodies[i])["choices"][0]
        for i in range(len(bodies)):
            ask(i)
        want, got = got, {}
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            self.complete(server, "Hi", 3, priority=-1)
        self.assertGreaterEqual(server.metric("vllm:num_preemptions_total"), len(bodies))
        for i, one in got.items():
            message, alone = one["message"], want[i]["message"]
            for call in message.get("tool_calls", []) + alone.get("tool_calls", []):
                self.assertEqual(len(json.loads(call["function"]["arguments"])["name"]) // 100, 1)
                del call["id"]
            self.assertEqual(message, alone)
            if i % 3 == 0:
                self.assertIn(len(json.loads(message["content"])["n"]), range(40, 51))
            if i % 3 == 2:
                self.assertRegex(message["content"], r"\A([a-z]{5}-){30,40}\Z")
        self.assertEqual(server.close(), 0)

    def test_who_does_not_read_makes_room(self):
        """The only slot belongs to a client that stopped reading; after 2 s the next one has it. When
        the first reads again, it gets all of its answer."""
        server = Server("--context", "16384", "--parallel", "1", "--max-output", "64K")
        body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0,
                "max_tokens": 3500, "ignore_eos": True, "logprobs": True, "top_logprobs": 20}
        text = json.dumps(dict(body, stream=True)).encode()
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(60)
        s.connect(("127.0.0.1", server.port))
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                  b"Content-Length: %d\r\n\r\n" % len(text) + text)
        made = [0, -1]

        def stands():
            made[:] = [server.metric("vllm:generation_tokens_total"), made[0]]
            time.sleep(0.3)
            return 0 < made[0] == made[1]
        self.assertTrue(wait_for(stands, 60))
        self.assertEqual(self.complete(server, "Hello", 5)[0]["finish_reason"], "length")
        self.assertEqual(server.metric("vllm:num_preemptions_total"), 1)
        data = b""
        while True:
            piece = s.recv(1 << 20)
            if not piece:
                break
            data += piece
        s.close()
        self.assertIn(b"[DONE]", data)
        got, whole = [], server.post("/v1/chat/completions", body)["choices"][0]
        for line in data.split(b"\n"):
            if line.startswith(b"data: {"):
                got += (json.loads(line[6:])["choices"][0].get("logprobs") or {}).get("content", [])
        self.assertEqual(len(got), 3500)
        self.assertEqual(got, whole["logprobs"]["content"])
        self.assertEqual(server.close(), 0)


class Killed(Folder):
    def ask_until_dead(self, server, rng, wrong):
        while True:
            n = rng.randrange(1, 6)
            try:
                got = server.chat(f"{n} " + STORY[:59 * n], max_tokens=6)
            except (OSError, AssertionError, ValueError, Exception):
                return
            if got["choices"][0]["message"] != self.solo[n]:
                wrong.append(n)

    def test_kill_at_any_moment(self):
        plain = Server("--context", "2048")
        self.solo = {n: plain.chat(f"{n} " + STORY[:59 * n], max_tokens=6)["choices"][0]["message"]
                     for n in range(1, 6)}
        plain.close()
        rng, wrong = random.Random(7), []
        seen = {"found": 0, "removed": 0, "left over": 0}
        for round in range(KILLS):
            server = self.serve("--parallel", "4", *(("--cache-ram", "0") if round % 2 else ()))
            seen["found"] += server.metric("trireme_checkpoint_files{")
            seen["removed"] += server.metric("trireme_checkpoint_files_damaged_total")
            self.assertEqual([f for f in os.listdir(self.folder) if f.endswith(".tmp")], [])
            threads = [threading.Thread(target=self.ask_until_dead,
                                        args=(server, random.Random(round * 10 + i), wrong))
                       for i in range(3)]
            for t in threads:
                t.start()
            if round % 3:  # as soon as a file is being written, or at any moment
                end = time.time() + 2
                while time.time() < end and not any(f.endswith(".tmp")
                                                    for f in os.listdir(self.folder)):
                    pass
                time.sleep(rng.random() * 0.001)
            else:
                wait_for(lambda: server.metric("trireme_checkpoint_files_written_total") > 0, 5)
                time.sleep(rng.random() * 0.15)
            kill(server)
            for t in threads:
                t.join()
            seen["left over"] += sum(f.endswith(".tmp") for f in os.listdir(self.folder))
            if rng.random() < 0.5:  # so that there is always something to write
                for f in rng.sample(self.files(), len(self.files()) * 2 // 3):
                    os.unlink(os.path.join(self.folder, f))
        server = self.serve()
        for n in range(1, 6):
            got = server.chat(f"{n} " + STORY[:59 * n], max_tokens=6)
            self.assertEqual(got["choices"][0]["message"], self.solo[n])
        self.assertEqual(server.close(), 0)
        self.assertEqual(wrong, [])
        self.assertGreater(seen["found"], KILLS)
        print(f"{KILLS} kills: {seen}")


if __name__ == "__main__":
    need_nano()
    unittest.main()
