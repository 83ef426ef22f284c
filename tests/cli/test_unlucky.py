#!/usr/bin/env python3
"""What goes wrong around a program: closed streams, full disks, limits, pipes where files should be,
names with newlines, signals, files that someone edited. Each time: the documented exit code, one
line that says what, and nothing half-made under a name that looks whole."""
import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import termios
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import test_run  # noqa: E402
from test_run import TRIREME, Terminal, WithModel  # noqa: E402

TOKENS = ",".join(["1"] * 64)
LOGITS_BYTES = 64 * test_run.VOCAB * 4


class Unlucky(WithModel):
    def sh(self, setup, *args, rc):
        """The program after `setup` in a shell: redirections and limits."""
        done = subprocess.run(["bash", "-c", setup + ' exec "$@"', "x", TRIREME, *args],
                              capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, rc, (setup, args, done.stderr))
        return done.stderr.decode()

    def one_line(self, text, *words):
        self.assertEqual(text.count("\n"), 1, text)
        for word in words:
            self.assertIn(word, text)

    def copy(self, name):
        folder = os.path.join(self.dir, name)
        shutil.copytree(self.model, folder)
        return folder


class Streams(Unlucky):
    def commands(self):
        trace = os.path.join(self.dir, "trace")
        with open(trace, "wb") as f:
            subprocess.run([TRIREME, "logits", self.model, "--tokens", "1,2,3", "--routes"],
                           stdout=f, check=True)
        return [["info", self.model], ["info", self.model, "--json"], ["info"],
                ["info", self.model, "--check"], ["verify", self.model],
                ["logits", self.model, "--tokens", "1"], ["tokenize", self.model, "hi"],
                ["replay", trace], ["--help"], ["--version"], ["run", "--help"],
                ["serve", "--usage"], ["doctor", "--help"],
                ["run", self.model, "-q", "--raw", "--greedy", "--max-tokens", "2", "hi"]]

    def test_lost_output_is_a_failure(self):
        for args in self.commands():
            for setup in ("exec >/dev/full;", "exec >&-;"):
                with self.subTest(args=args, setup=setup):
                    self.one_line(self.sh(setup, *args, rc=1), "trireme: ")

    def test_usage_errors_are_one_line(self):
        overview = subprocess.run([TRIREME, "--help"], capture_output=True, text=True, check=True)
        names = [line.split()[0] for line in overview.stdout.split("\n")
                 if line.startswith("  ")]
        self.assertGreaterEqual(len(names), 10)
        for name in names:
            for args in (["--nonsense"], ["--nonsense=3", "x"]):
                with self.subTest(name=name, args=args):
                    done = subprocess.run([TRIREME, name, *args], capture_output=True, text=True)
                    self.assertEqual(done.returncode, 3 if name == "doctor" else 2)
                    self.assertEqual(done.stdout, "")
                    self.assertRegex(done.stderr, rf"\Atrireme {name}: [^\n]*--nonsense[^\n]*\n\Z")
        done = subprocess.run([TRIREME, "nonsense"], capture_output=True, text=True)
        self.assertRegex(done.stderr, r"\Atrireme: [^\n]*nonsense[^\n]*\n\Z")

    def test_an_answer_nobody_gets_is_not_made(self):
        args = ["run", self.model, "-q", "--raw", "--max-tokens", "2000", *test_run.LETTERS, "hi"]
        begin = time.monotonic()
        self.sh("exec >/dev/full;", *args, rc=1)
        lost = time.monotonic() - begin
        begin = time.monotonic()
        self.sh("exec >/dev/null;", *args, rc=0)
        self.assertLess(lost, time.monotonic() - begin)

    def test_closed_streams_do_not_reach_files(self):
        """With 0, 1 and 2 closed the first files opened would be given these numbers."""
        out = os.path.join(self.dir, "closed.f32")
        self.sh("exec <&- >&- 2>&-;", "logits", self.model, "--tokens", TOKENS, "--out", out, rc=1)
        self.sh("exec <&- 2>&-;", "logits", self.model, "--tokens", TOKENS, "--out", out, rc=0)
        self.assertEqual(os.path.getsize(out), LOGITS_BYTES)
        made = os.path.join(self.dir, "closed")
        config = os.path.join(self.model, "config.json")
        self.sh("exec <&- 2>&-;", "synth", made, "--config", config, rc=0)
        self.sh("", "verify", made, rc=0)


class Whole(Unlucky):
    """No file under its name unless it is all there."""

    def left(self, name):
        return [f for f in os.listdir(self.dir) if f.startswith(name)]

    def test_file_size_limit(self):
        out = os.path.join(self.dir, "limit.f32")
        text = self.sh("ulimit -f 8;", "logits", self.model, "--tokens", TOKENS, "--out", out, rc=1)
        self.one_line(text, "limit.f32", "too large")
        self.assertEqual(self.left("limit.f32"), [])

    def test_an_older_file_stays(self):
        out = pathlib.Path(self.dir, "old.f32")
        out.write_text("older")
        self.sh("ulimit -f 8;", "logits", self.model, "--tokens", TOKENS, "--out", str(out), rc=1)
        self.sh("", "logits", self.model, "--tokens", "1,999999", "--out", str(out), rc=2)
        self.assertEqual(out.read_text(), "older")
        self.sh("", "logits", self.model, "--tokens", TOKENS, "--out", str(out), rc=0)
        self.assertEqual(out.stat().st_size, LOGITS_BYTES)
        self.assertEqual(self.left("old.f32"), ["old.f32"])

    def test_a_link_stays_one(self):
        real, link = pathlib.Path(self.dir, "real.f32"), pathlib.Path(self.dir, "link.f32")
        real.write_text("")
        link.symlink_to("real.f32")
        self.sh("", "logits", self.model, "--tokens", TOKENS, "--out", str(link), rc=0)
        self.assertTrue(link.is_symlink())
        self.assertEqual(real.stat().st_size, LOGITS_BYTES)

    def test_devices_and_folders(self):
        self.sh("", "logits", self.model, "--tokens", "1", "--out", "/dev/null", rc=0)
        self.one_line(self.sh("", "logits", self.model, "--tokens", "1", "--out", "/dev/full", rc=1),
                      "/dev/full")
        self.one_line(self.sh("", "logits", self.model, "--tokens", "1", "--out", self.dir, rc=1),
                      "folder")

    def test_one_file_for_two_outputs(self):
        """Refused by any two names of it, before work; devices take both."""
        a, link = (pathlib.Path(self.dir, n) for n in ("two", "two-link"))
        for made in (False, True):
            if made:
                a.write_text("older")
                link.symlink_to("two")
            for second in (str(a), f"{self.dir}/./two", *([str(link)] if made else [])):
                text = self.sh("", "logits", self.model, "--tokens", TOKENS, "--out", str(a),
                               "--residual", second, rc=2)
                self.one_line(text, "same file")
                self.assertEqual(sorted(self.left("two")), ["two", "two-link"] if made else [])
        self.assertEqual(a.read_text(), "older")
        self.sh("", "logits", self.model, "--tokens", "1", "--out", "/dev/null", "--residual",
                "/dev/null", rc=0)
        for option in ("--out", "--residual"):
            self.one_line(self.sh("", "logits", self.model, "--tokens", "1", option, "", rc=2),
                          "empty")

    def test_synth_over_a_limit(self):
        made = os.path.join(self.dir, "made")
        text = self.sh("ulimit -f 8;", "synth", made, "--config",
                       os.path.join(self.model, "config.json"), rc=1)
        self.one_line(text, "model-00001", "too large")
        self.assertFalse([f for f in os.listdir(made) if not f.endswith(".part")])
        self.assertNotEqual(subprocess.run([TRIREME, "info", made], capture_output=True).returncode, 0)


class Folders(Unlucky):
    def test_pipes_for_tokenizer_files(self):
        for file in ("tiktoken.model", "tokenizer_config.json"):
            folder = self.copy("pipe-" + file)
            os.unlink(os.path.join(folder, file))
            os.mkfifo(os.path.join(folder, file))
            for args in (["run", folder, "hi"], ["tokenize", folder, "hi"]):
                self.one_line(self.sh("", *args, rc=1), file, "regular")

    def test_a_named_vocabulary_may_be_a_pipe(self):
        self.sh("", "tokenize", "--vocab", "/dev/stdin", "hi", rc=1)  # /dev/null: empty, but read
        done = subprocess.run(["bash", "-c", 'exec "$0" tokenize --vocab <(cat "$1") hi', TRIREME,
                               os.path.join(self.model, "tiktoken.model")], capture_output=True)
        self.assertEqual((done.returncode, done.stdout), (0, b"104 105\n"), done.stderr)

    def test_a_link_to_nothing_is_damage(self):
        folder = self.copy("dangling")
        os.unlink(os.path.join(folder, "tokenizer_config.json"))
        os.symlink("../blobs/gone", os.path.join(folder, "tokenizer_config.json"))
        self.one_line(self.sh("", "tokenize", folder, "hi", rc=1), "tokenizer_config.json")

    def test_names_with_control_characters(self):
        folder = self.copy("two\nlines\x1b[31m")
        os.unlink(os.path.join(folder, "config.json"))
        self.one_line(self.sh("", "info", folder, rc=1), "two\\x0alines\\x1b[31m/config.json")

    def test_prompts_that_are_no_text(self):
        for prompt, words in ((b"ab\xff", "byte 2 is wrong"), (b"\xed\xa0\x80", "byte 0 is wrong"),
                              (b"a\0b", "NUL")):
            self.one_line(self.run_it("-q", stdin=prompt, rc=1)[1], words)
        self.one_line(self.run_it("--system", b"\xc3", "hi", rc=1)[1], "system message", "byte 0")

    def test_no_tools_at_all(self):
        """An empty list declares nothing, and the prompt is the one without tools."""
        path = os.path.join(self.dir, "none.json")
        with open(path, "w") as f:
            f.write("[]")
        args = ["--greedy", "--max-tokens", "4", "hi"]
        self.assertEqual(self.object_of("--tools", path, *args)["tokens"],
                         self.object_of(*args)["tokens"])


class Chat(Unlucky):
    def chat(self):
        t = Terminal(self.model, "--seed", "3", "--max-tokens", "4", *test_run.LETTERS)
        t.read_until(r"> $")
        return t

    def test_the_terminal_comes_back(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            try:
                main, side = pty.openpty()
            except OSError as why:  # a container without /dev/pts
                self.skipTest(f"no pseudo-terminal here: {why}")
            before = termios.tcgetattr(side)
            p = subprocess.Popen([TRIREME, "run", self.model], stdin=side, stdout=side, stderr=side)
            seen = b""
            while b"> " not in seen:
                seen += os.read(main, 4096)
            self.assertNotEqual(termios.tcgetattr(side)[3], before[3], "not editing yet")
            p.send_signal(number)
            self.assertEqual(p.wait(60), -number)
            self.assertEqual(termios.tcgetattr(side)[:4], before[:4])
            os.close(main)
            os.close(side)

    def test_save_spares_what_it_did_not_make(self):
        mine = pathlib.Path(self.dir, "mine.txt")
        mine.write_text("a text of mine\n")
        beside = pathlib.Path(self.dir, "fresh.state")
        beside.write_text("mine as well\n")
        t = self.chat()
        t.say(f"/save {mine}", until=r"not made by /save.*\n")
        t.say(f"/save {self.dir}/fresh", until=r"not made by /save.*\n")
        t.say("/save /dev/null", until=r"no regular file.*\n")
        t.say(f"/save {self.dir}/again", until=r"Saved to .*\n")
        t.say(f"/save {self.dir}/again", until=r"Saved to .*\n")
        self.assertEqual(mine.read_text(), "a text of mine\n")
        self.assertEqual(beside.read_text(), "mine as well\n")
        self.assertFalse(os.path.exists(os.path.join(self.dir, "fresh")))

    def test_an_edited_conversation_is_refused(self):
        t = self.chat()
        t.say(f"/save {self.dir}/good", until=r"Saved to .*\n")
        good = json.loads(pathlib.Path(self.dir, "good").read_text())
        two = '{"role":"user","content":"a"},{"role":"user","content":"b"}'
        bad = [dict(good, messages=[{"message": m, "ids": []}])
               for m in (two, "", "5", "]", '{"role":"user","content":"a"}],"tools":[{')]
        bad += [dict(good, tools=x) for x in ("]", "{}", "null", '[],"messages":[]')]
        path = os.path.join(self.dir, "bad")
        for tree in bad:
            pathlib.Path(path).write_text(json.dumps(tree))
            t.say("/load " + path, until=r"trireme: .*bad: .*\n")
        pathlib.Path(path).write_text(json.dumps(dict(good, tools="[]")))
        t.say("/load " + path, until=r"Loaded 0 messages.*\n")
        t.say("hi")


if __name__ == "__main__":
    unittest.main()
