#!/usr/bin/env python3
"""`trireme run` from outside, over a small random model with a vocabulary of single bytes: options,
pipes, determinism, limits, stop strings, and the chat through a pseudo-terminal. What a trained
model must say is in test_run_nano.py."""
import base64
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import make_tiny  # noqa: E402

TRIREME = os.path.abspath(os.environ.get("TRIREME", "build/release/trireme"))
SPECIALS = ["[BOS]", "[EOS]", "<|end_of_msg|>", "<|open|>", "<|close|>", "<|sep|>", "[UNK]", "[PAD]"]
EOS, END, OPEN, CLOSE, SEP = 257, 258, 259, 260, 261
VOCAB = 256 + len(SPECIALS)
CONTEXT = 2048


def make_model(folder, **options):
    """Random weights; token i < 256 is the byte i."""
    make_tiny.write(folder, vocab=VOCAB, context=CONTEXT, bos=256, eos=EOS, **options)
    with open(os.path.join(folder, "tiktoken.model"), "w") as f:
        for i in range(256):
            f.write(base64.b64encode(bytes([i])).decode() + f" {i}\n")
    added = {str(256 + i): {"content": s, "special": True} for i, s in enumerate(SPECIALS)}
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"added_tokens_decoder": added}, f)


class WithModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.dir = cls.tmp.name
        cls.model = os.path.join(cls.dir, "model")
        make_model(cls.model)

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()

    def run_it(self, *args, stdin=None, rc=0, env=None):
        done = subprocess.run([TRIREME, "run", self.model, *args], input=stdin, timeout=120,
                              stdin=subprocess.DEVNULL if stdin is None else None,
                              capture_output=True, env=dict(os.environ, **(env or {})))
        self.assertEqual(done.returncode, rc, (args, done.stderr))
        return done.stdout, done.stderr.decode()

    def object_of(self, *args, **more):
        return json.loads(self.run_it("--json", *args, **more)[0])


# Only lower-case letters: readable text, one byte a token, never a marker.
LETTERS = [x for i in list(range(97)) + list(range(123, 256)) + [EOS, END, OPEN, CLOSE, SEP]
           for x in ("--logit-bias", f"{i}=-inf")]


class Sampling(WithModel):
    def test_seed_decides(self):
        a, b = (self.object_of("--seed", "5", "--max-tokens", "40", *LETTERS, "hi") for _ in range(2))
        c = self.object_of("--seed", "6", "--max-tokens", "40", *LETTERS, "hi")
        self.assertEqual(a["tokens"], b["tokens"])
        self.assertNotEqual(a["tokens"], c["tokens"])
        self.assertEqual(a["seed"], 5)

    def test_a_random_seed_is_told_and_repeats(self):
        a = self.object_of("--max-tokens", "40", *LETTERS, "hi")
        b = self.object_of("--max-tokens", "40", *LETTERS, "--seed", str(a["seed"]), "hi")
        self.assertEqual(a["tokens"], b["tokens"])
        self.assertNotEqual(a["seed"], self.object_of("--max-tokens", "1", "hi")["seed"])

    def test_threads_and_chunks_change_nothing(self):
        want = self.object_of("--greedy", "--max-tokens", "60", *LETTERS, "--threads", "1", "hello")
        for more in (["--threads", "2"], ["--chunk", "1"], ["--chunk", "7"], ["--chunk", "64"]):
            got = self.object_of("--greedy", "--max-tokens", "60", *LETTERS, *more, "hello")
            self.assertEqual(got["tokens"], want["tokens"], more)

    def test_greedy_is_temperature_0_and_top_k_1(self):
        want = self.object_of("--greedy", "--max-tokens", "30", "x")["tokens"]
        for more in (["--temperature", "0"], ["--top-k", "1"], ["--top-p", "0"], ["--min-p", "1"]):
            self.assertEqual(self.object_of(*more, "--max-tokens", "30", "x")["tokens"], want, more)

    def test_greedy_is_the_argmax_of_logits(self):
        """The engine's choice against `trireme logits` over the same ids, markers among them."""
        got = self.object_of("--raw", "--greedy", "--max-tokens", "25", "abc")["tokens"]
        ids = [97, 98, 99] + got
        done = subprocess.run([TRIREME, "logits", self.model, "--tokens", ",".join(map(str, ids))],
                              capture_output=True, text=True, check=True)
        argmax = [json.loads(line)["argmax"] for line in done.stdout.splitlines()]
        for i, (want, token) in enumerate(zip(argmax[2:], got)):
            if want in (256, 262, 263):  # [BOS], [UNK], [PAD] may not be sampled
                self.assertNotEqual(token, want)
                break
            self.assertEqual(token, want, i)

    def test_bias_forces_and_bans(self):
        got = self.object_of("--raw", "--seed", "1", "--max-tokens", "20", "--logit-bias", "65=100",
                             "--temperature", "0.5", "a")
        self.assertEqual(got["text"], "A" * 20)
        got = self.object_of("--raw", "--seed", "1", "--max-tokens", "20", "--logit-bias", "65=100",
                             "--logit-bias", "66=100", "--logit-bias", "65=-inf", "a")
        self.assertEqual(got["text"], "B" * 20)

    def test_penalties(self):
        got = self.object_of("--raw", "--greedy", "--max-tokens", "24", *LETTERS,
                             "--presence-penalty", "100", "a")
        self.assertEqual(len(set(got["tokens"])), 24)  # no letter twice

    def test_reserved_tokens_never_come(self):
        for reserved in (256, 262, 263):
            got = self.object_of("--raw", "--seed", "2", "--max-tokens", "300", "--temperature", "3",
                                 "--top-p", "1", "--logit-bias", f"{reserved}=100",
                                 "--logit-bias", f"{END}=-inf", "--logit-bias", f"{EOS}=-inf", "a")
            self.assertEqual(got["usage"]["completion_tokens"], 300)
            self.assertFalse({256, 262, 263} & set(got["tokens"]))


class Ends(WithModel):
    def test_max_tokens(self):
        got = self.object_of("--raw", "--max-tokens", "7", *LETTERS, "a")
        self.assertEqual((got["finish"], len(got["text"])), ("length", 7))

    def test_the_context_is_a_limit_that_is_told(self):
        got = self.object_of("--raw", "--context", "30", *LETTERS, "a" * 20)
        self.assertEqual((got["finish"], got["note"]), ("length", "the context is full"))
        self.assertEqual(got["usage"]["completion_tokens"], 10)
        err = self.run_it("--raw", "--context", "30", *LETTERS, "a" * 20)[1]
        self.assertIn("the context is full", err)
        self.object_of("--raw", "--context", "30", *LETTERS, "a" * 29)
        out, err = self.run_it("--raw", "--context", "30", "a" * 30, rc=1)
        self.assertEqual(out, b"")
        self.assertIn("30 tokens", err)
        self.assertEqual(len(err.splitlines()), 1)
        self.assertIn("2048", self.run_it("--context", "3k", "a", rc=1)[1])

    def test_stop_strings(self):
        whole = self.object_of("--raw", "--seed", "4", "--max-tokens", "60", *LETTERS, "a")["text"]
        for stop in (whole[20:23], whole[0:2], whole[55:60]):
            got = self.object_of("--raw", "--seed", "4", "--max-tokens", "60", *LETTERS,
                                 "--stop", stop, "--stop", "#never#", "a")
            self.assertEqual(got["text"], whole[:whole.index(stop)])
            self.assertEqual((got["finish"], got["stop_string"]), ("stop", stop))
        got = self.object_of("--raw", "--seed", "4", "--max-tokens", "60", *LETTERS, "--stop",
                             whole[58:60] + "#", "a")  # begins to match at the very end
        self.assertEqual((got["text"], got["finish"]), (whole, "length"))

    def test_end_of_message_stops(self):
        got = self.object_of("--raw", "--greedy", "--logit-bias", f"{END}=100", "a")
        self.assertEqual((got["finish"], got["tokens"], got["text"]), ("stop", [END], ""))

    def test_logits_that_are_no_numbers(self):
        """A final norm of NaN: one clear line, and no token 0 for ever."""
        folder = os.path.join(self.dir, "nan")
        whole = make_tiny.tensors
        try:
            make_tiny.tensors = lambda o: [
                t._replace(data=b"\xc0\x7f" * (len(t.data) // 2)) if t.name.endswith("model.norm.weight")
                else t for t in whole(o)]
            make_model(folder)
        finally:
            make_tiny.tensors = whole
        done = subprocess.run([TRIREME, "run", folder, "hi"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"^trireme: the logits after token \d+ hold NaN or Inf\n$")

    def test_nothing_left_to_sample(self):
        ban = [x for i in range(VOCAB) for x in ("--logit-bias", f"{i}=-inf")]
        self.assertIn("bans every id", self.run_it("--raw", *ban, "a", rc=1)[1])


class Usage(WithModel):
    def test_bad_options(self):
        cases = [["--effort", "medium"], ["--effort", ""], ["--temperature", "-1"],
                 ["--temperature", "nan"], ["--top-p", "1.1"], ["--min-p", "x"], ["--top-k", "-1"],
                 ["--repetition-penalty", "0"], ["--presence-penalty", "1e9"], ["--seed", "-1"],
                 ["--seed", "x"], ["--logit-bias", "5"], ["--logit-bias", "-5=1"],
                 ["--logit-bias", "5=101"], ["--stop", ""], ["--stop", "x" * 257],
                 ["--max-tokens", "0"], ["--max-tokens", "1.5"], ["--context", "0"],
                 ["--context", "1q"], ["--ram", "much"], ["--trunk", "int3"], ["--threads", "0"],
                 ["--chunk", "0"], ["--layers", "0"], ["--layers", "9"], ["--nonsense"],
                 ["--raw", "--system", "x"], ["--raw", "--tools", "x"], ["a", "b"],
                 ["--logit-bias", "99999=1"], ["--prompt-file", "x", "y"]]
        for args in cases:
            with self.subTest(args=args):
                out, err = self.run_it(*args, *([] if "y" in args else ["hi"]), rc=2)
                self.assertEqual(out, b"")
                self.assertTrue(err.startswith("trireme"), err)
        self.assertIn("medium", self.run_it("--effort", "medium", "hi", rc=2)[1])
        self.run_it("--stop", "x" * 256, *sum((["--stop", str(i)] for i in range(15)), []),
                    "--max-tokens", "1", "hi")
        self.run_it(*sum((["--stop", str(i)] for i in range(17)), []), "hi", rc=2)

    def test_help(self):
        out = subprocess.run([TRIREME, "run", "--help"], capture_output=True, text=True, check=True)
        for word in ("--greedy", "--stop", "--effort", "--ram", "Examples:"):
            self.assertIn(word, out.stdout)

    def test_what_is_a_model(self):
        run = lambda *args, **more: subprocess.run(  # noqa: E731
            [TRIREME, "run", *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, **more)
        done = run("-m", self.model, "--max-tokens", "1", "model", cwd=self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)  # -m: a word is a prompt, folder or not
        done = run(self.dir, "hi")
        self.assertEqual((done.returncode, "config.json" in done.stderr), (2, True))
        done = run("nowhere", "hi")
        self.assertEqual((done.returncode, "nowhere" in done.stderr), (2, True))
        done = run("-m", "nowhere", "hi")
        self.assertEqual((done.returncode, "no model in nowhere" in done.stderr), (1, True))
        done = run("--max-tokens", "1", "hi", env=dict(os.environ, TRIREME_MODEL=self.model))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_memory_ceiling(self):
        out, err = self.run_it("--ram", "1M", "hi", rc=1)
        self.assertIn("budget of 1.0 MiB", err)
        self.assertEqual(len(err.splitlines()), 1)
        self.assertIn("can be had", self.run_it("--ram", "900T", "hi", rc=1)[1])
        peak = self.object_of("--ram", "900M", "--max-tokens", "1", "hi")["memory"]["peak_bytes"]
        tight = self.object_of("--ram", f"{(peak >> 20) + 2}M", "--max-tokens", "1", "hi")["memory"]
        self.assertLessEqual(tight["peak_bytes"], tight["ceiling_bytes"])
        # Less than the whole context fits: the rest is refused with the number that would fit.
        small = self.run_it("--ram", f"{(peak >> 20) + 1}M", "--context", "2k", "--chunk", "512",
                            "hi", rc=1)[1]
        self.assertRegex(small, r"\d+ would \(--context\)")


class Pipes(WithModel):
    def test_the_answer_alone_goes_to_stdout(self):
        args = ["--no-think", "--seed", "3", "--max-tokens", "20", *LETTERS]
        text = self.object_of(*args, "hi")["text"]
        self.assertRegex(text, r"^[a-z]{20}$")
        out, err = self.run_it(*args, "hi")
        self.assertEqual(out.decode(), text + "\n")
        self.assertRegex(err, r"^read \d+ tokens in [\d.]+ s, [\d.]+/s; wrote 20 in [\d.]+ s, "
                              r"[\d.]+/s; cut at --max-tokens\n$")
        self.assertEqual(self.run_it(*args, "-q", "hi")[1], "")
        self.assertEqual(self.run_it(*args, stdin=b"hi\n")[0], out)
        self.assertEqual(self.run_it(*args, "-", stdin=b"hi")[0], out)
        path = os.path.join(self.dir, "prompt.txt")
        pathlib.Path(path).write_text("hi\n")
        self.assertEqual(self.run_it(*args, "--prompt-file", path)[0], out)

    def test_thinking_is_left_out_unless_asked_for(self):
        args = ["--seed", "3", "--max-tokens", "20", *LETTERS, "hi"]
        got = self.object_of(*args)
        self.assertRegex(got["reasoning"], r"^[a-z]{20}$")
        self.assertEqual((got["text"], got["usage"]["reasoning_tokens"]), ("", 20))
        out, err = self.run_it(*args)
        self.assertEqual(out, b"")
        self.assertIn("while thinking", err)
        out = self.run_it("--show-thinking", *args)[0]
        self.assertEqual(out.decode(), f"<think>\n{got['reasoning']}\n</think>\n\n")

    def test_empty_and_binary_prompts(self):
        self.assertIn("empty", self.run_it(stdin=b"", rc=2)[1])
        self.assertIn("empty", self.run_it("", rc=2)[1])
        self.assertIn("NUL", self.run_it(stdin=b"a\0b", rc=1)[1])
        self.assertIn("UTF-8", self.run_it(stdin=b"a\xffb", rc=1)[1])
        self.assertIn("no-such-file", self.run_it("--prompt-file", "no-such-file", rc=1)[1])

    def test_tools_file(self):
        path = os.path.join(self.dir, "tools.json")
        pathlib.Path(path).write_text('[{"type":"function","function":{"name":"f","parameters":{}}}]')
        plain = self.object_of("--max-tokens", "1", "hi")["usage"]["prompt_tokens"]
        with_tools = self.object_of("--max-tokens", "1", "--tools", path, "hi")["usage"]["prompt_tokens"]
        self.assertGreater(with_tools, plain + 50)
        for text in ("{}", "[", ""):
            pathlib.Path(path).write_text(text)
            self.assertIn("tools.json", self.run_it("--tools", path, "hi", rc=1)[1])

    def test_a_request_is_the_same_prompt(self):
        path = os.path.join(self.dir, "request.json")
        pathlib.Path(path).write_text(json.dumps({"messages": [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]}))
        args = ["--seed", "3", "--max-tokens", "20", *LETTERS]
        want = self.object_of(*args, "--system", "Be brief.", "hi")
        got = self.object_of(*args, "--request", path)
        self.assertEqual((got["tokens"], got["usage"]), (want["tokens"], want["usage"]))
        pathlib.Path(path).write_text('{"messages":[{"role":"nobody","content":"x"}]}')
        self.assertIn("request.json: messages[0]", self.run_it("--request", path, rc=1)[1])
        self.run_it("--request", path, "hi", rc=2)
        self.run_it("--request", path, "--system", "x", rc=2)

    def test_a_closed_pipe_ends_it(self):
        p = subprocess.Popen([TRIREME, "run", self.model, "--raw", *LETTERS, "hi"],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        p.stdout.read(5)
        p.stdout.close()
        self.assertIn(p.wait(60), (-signal.SIGPIPE, 1))

    def test_ctrl_c_ends_an_answer(self):
        p = subprocess.Popen([TRIREME, "run", self.model, "--raw", *LETTERS, "hi"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdout.read(5)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"interrupted", err)

    def test_stats(self):
        err = self.run_it("--stats", "--max-tokens", "2", "hi")[1]
        for word in ("load", "time to first token", "prefill", "decode", "trunk", "mla", "seed"):
            self.assertIn(word, err)


class Terminal:
    """`trireme run` in a pseudo-terminal."""

    def __init__(self, *args):
        try:
            self.pid, self.fd = pty.fork()
        except OSError as why:  # a container without /dev/pts
            raise unittest.SkipTest(f"no pseudo-terminal here: {why}") from why
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(TRIREME, [TRIREME, "run", *args])
        self.text = ""

    def read_until(self, pattern, seconds=60):
        """Reads on until `pattern` is found in what came since the last call; returns that text."""
        end = time.time() + seconds
        while not re.search(pattern, self.text):
            left = end - time.time()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f"no {pattern!r} in {self.text!r}")
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            if not data:
                raise AssertionError(f"ended before {pattern!r}: {self.text!r}")
            self.text += data.decode(errors="replace")
        m = re.search(pattern, self.text)
        seen, self.text = self.text[:m.end()], self.text[m.end():]
        return seen

    def send(self, text):
        os.write(self.fd, text.encode())

    def say(self, text, until=r"wrote \d+.*\n"):
        """A line, and all that comes back, up to the next prompt."""
        self.send(text + "\n")
        seen = self.read_until(until)
        self.read_until(r"> $")
        return seen

    def end(self):
        """Exit code, after reading to the end; one that does not end is killed and told."""
        try:
            while select.select([self.fd], [], [], 60)[0] and os.read(self.fd, 65536):
                pass
        except OSError:
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Chat(WithModel):
    ARGS = ["--seed", "3", "--max-tokens", "20", *LETTERS]

    def chat(self, *more):
        t = Terminal(self.model, *self.ARGS, *more)
        t.read_until(r"Ctrl-D leaves\.\r\n")
        t.read_until(r"> $")
        return t

    def saved(self, t, name):
        path = os.path.join(self.dir, name)
        t.say("/save " + path, until=r"Saved to .*\n")
        return json.loads(pathlib.Path(path).read_text())

    def test_turns_keep_the_state(self):
        t = self.chat()
        first = t.say("hello")
        self.assertNotIn("kept", first)
        read = int(re.search(r"read (\d+) tokens", first)[1])
        second = t.say("and more")
        kept = int(re.search(r"\((\d+) kept\)", second)[1])
        self.assertEqual(kept, read + 19)  # all but the last sampled one, which nothing followed
        t.send("\x04")
        self.assertEqual(t.end(), 0)

    def test_kept_ids_are_what_rendering_gives(self):
        """Single bytes encode in one way only: the closed reply must equal the rendered one."""
        for more in ([], ["--no-think"]):
            t = self.chat(*more)
            t.say("hello")
            saved = self.saved(t, "ids")
            t.send("\x04")
            self.assertEqual(t.end(), 0)
            message = json.loads(saved["messages"][1]["message"])
            request = {"messages": [json.loads(m["message"]) for m in saved["messages"]],
                       "thinking": not more, "add_generation_prompt": False}
            path = os.path.join(self.dir, "request.json")
            pathlib.Path(path).write_text(json.dumps(request))
            done = subprocess.run([TRIREME, "tokenize", self.model, "--chat", path, "--json"],
                                  capture_output=True, text=True, check=True)
            ids = json.loads(done.stdout)["ids"]
            kept = saved["messages"][1]["ids"]
            self.assertEqual(len(message["content"] if more else message["reasoning_content"]), 20)
            self.assertEqual(ids[-len(kept):], kept)
            self.assertEqual(ids[-len(kept) - 1], END)

    def test_save_and_load_go_on_alike(self):
        t = self.chat()
        t.say("hello")
        path = os.path.join(self.dir, "talk")
        t.say("/save " + path, until=r"Saved to .*\n")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(path + ".state").st_mode & 0o777, 0o600)
        t.say("and now?")
        want = self.saved(t, "went-on")
        t.send("\x04")
        t.end()
        self.assertEqual(len(want["messages"]), 4)
        for harm in ("none", "no state", "cut state"):
            state = pathlib.Path(path + ".state")
            if harm == "no state":
                state.rename(path + ".away")
            if harm == "cut state":
                state.write_bytes(pathlib.Path(path + ".away").read_bytes()[:-5])
            t = Terminal(self.model, "--max-tokens", "20", *LETTERS)  # the seed comes with the file
            t.read_until(r"> $")
            loaded = t.say("/load " + path, until=r"Loaded 2 messages\.\r\n")
            again = t.say("and now?")
            self.assertEqual("kept" in again, harm == "none", again)
            self.assertEqual(self.saved(t, "loaded")["messages"], want["messages"], harm)
            t.send("\x04")
            self.assertEqual(t.end(), 0)

    def test_load_refuses_what_is_no_conversation(self):
        t = self.chat()
        t.say("hello")
        path = os.path.join(self.dir, "bad")
        for text in ("", "{}", "[]", '{"trireme_chat":1}', '{"trireme_chat":1,"effort":"max",'
                     '"messages":[{"message":"{}","ids":[-1]}]}'):
            pathlib.Path(path).write_text(text)
            self.assertIn("bad", t.say("/load " + path, until=r"trireme: .*\n"))
        t.say("/load " + path + "-absent", until=r"trireme: .*\n")
        self.assertEqual(len(self.saved(t, "still")["messages"]), 2)
        t.send("\x04")
        self.assertEqual(t.end(), 0)

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        t = Terminal(self.model, "--seed", "3", *LETTERS)
        t.read_until(r"> $")
        t.send("hello\n")
        t.read_until(r"[a-z]{40}")
        t.send("\x03")
        self.assertIn("interrupted", t.read_until(r"wrote .*\n"))
        t.read_until(r"> $")
        t.send("again\n")
        t.read_until(r"[a-z]{40}")
        t.send("\x03")
        self.assertIn("kept", t.read_until(r"wrote .*\n"))
        t.read_until(r"> $")
        t.send("half a line\x03")
        t.read_until(r"\^C\r\n.*> $")
        t.send("\x03")
        t.read_until(r"Ctrl-C again, or Ctrl-D, leaves\.\r\n.*> $")
        t.send("\x03")
        self.assertEqual(t.end(), 0)

    def test_commands(self):
        t = self.chat()
        self.assertIn("/save FILE", t.say("/help", until=r"goes on in the next one\.\r\n"))
        t.say("/nonsense", until=r"No such command.*\n")
        t.say("/effort medium", until=r"trireme: .*medium.*\n")
        t.say("/tool 5", until=r"No tool call waits.*\n")
        t.say("/stats", until=r"memory(.|\n)* of .*\n")
        t.say("hello")
        t.send("/system Be brief.\n")
        t.read_until(r"> $")
        t.send("/effort low\n")
        t.read_until(r"> $")
        self.assertNotIn("kept", t.say("more"))  # the past is another one now
        saved = self.saved(t, "commands")
        self.assertEqual(saved["effort"], "low")
        self.assertEqual([json.loads(m["message"])["role"] for m in saved["messages"]],
                         ["system", "user", "assistant", "user", "assistant"])
        t.send("/clear\n")
        t.read_until(r"> $")
        t.send("/think off\n")
        t.read_until(r"> $")
        t.say("anew")
        saved = self.saved(t, "commands")
        self.assertFalse(saved["thinking"])
        self.assertEqual(len(saved["messages"]), 3)
        t.send("/exit\n")
        self.assertEqual(t.end(), 0)

    def test_a_full_context_is_told_and_the_chat_goes_on(self):
        t = Terminal(self.model, "--seed", "3", "--max-tokens", "20", "--context", "420", *LETTERS)
        t.read_until(r"> $")
        self.assertIn("420", t.say("x" * 200, until=r"trireme: the prompt has .*\n"))
        t.say("short")
        self.assertEqual(len(self.saved(t, "full")["messages"]), 2)
        t.send("\x04")
        self.assertEqual(t.end(), 0)

    def test_lines_that_belong_together(self):
        t = self.chat()
        t.say("one \\\ntwo")
        t.send("three\nfour\n")  # a paste
        t.read_until(r"wrote .*\n")
        t.read_until(r"> $")
        saved = self.saved(t, "lines")
        said = [json.loads(m["message"])["content"] for m in saved["messages"][::2]]
        self.assertEqual(said, ["one \ntwo", "three\nfour"])
        t.send("\x04")
        self.assertEqual(t.end(), 0)

    def test_model_text_cannot_drive_the_terminal(self):
        """ESC, BEL, CR and C1 controls are shown, not obeyed; a pipe gets the bytes."""
        force = [x for i in range(256) if i not in (0x1b, 0x07, 0x0d) for x in
                 ("--logit-bias", f"{i}=-inf")] + LETTERS[-10:]
        t = Terminal(self.model, "--raw", "--seed", "1", "--max-tokens", "30", *force, "hi")
        seen = t.read_until(r"wrote .*\n")
        self.assertEqual(t.end(), 0)
        answer = seen.split("\r\n")[0].split("\x1b[2mread")[0]
        self.assertRegex(answer, r"^(\\x(1b|07|0d)){30}$")
        out = self.run_it("--raw", "--seed", "1", "--max-tokens", "30", *force, "hi")[0]
        self.assertEqual(len(out), 31)
        self.assertTrue(set(out[:30]) <= {0x1b, 7, 13})


if __name__ == "__main__":
    unittest.main()
