#!/usr/bin/env python3
"""The expert store from outside: shards over several folders; one greedy text whatever the memory,
the engine, the threads, the lookahead and the drives; counters that add up; drives that fail while a
server runs, which then goes on; what is lossy says so."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serving import NANO, TRIREME, Server, need_nano  # noqa: E402
from shim import FaultyReads  # noqa: E402

PROMPT = ["--raw", "--greedy", "--max-tokens", "24", "Once upon a time"]


def run(*args, code=0, **more):
    done = subprocess.run([TRIREME, "run", "--keep-nothing", *map(str, args)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, **more)
    if done.returncode != code:
        raise AssertionError((args, done.returncode, done.stderr))
    return done


def answer(*args):
    return json.loads(run("--json", *args, *PROMPT).stdout)


class OneText(unittest.TestCase):
    def test_whatever_the_memory_engine_threads_lookahead_and_drives(self):
        with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory(dir=other_drive()) as other:
            main = split(home, other)
            want = answer("-m", NANO, "--threads", "1")
            for model, more in ((NANO, ()), (main, ("--shard-dir", other))):
                for ram in ("20K", "60K", "400K", "100M"):
                    for flags in (("--io", "threads", "--threads", "2"), ("--io-depth", "2", "--lookahead", "3"),
                                  ("--lookahead", "6", "--threads", "1", "--expert-policy", "lru")):
                        got = answer("-m", model, *more, "--expert-ram", ram, *flags)
                        self.assertEqual(got["tokens"], want["tokens"], (model, ram, flags))
                        self.check_counters(got["experts"], bool(more))

    def check_counters(self, e, spread):
        if e["all_resident"]:
            self.assertEqual(e["misses"], 0)
            return
        self.assertEqual(e["wanted"], e["reuse_hits"] + e["prefetch_hits"] + e["misses"])
        self.assertLessEqual(e["prefetch_hits"] + e["wasted_prefetches"], e["prefetches"])
        # Each miss and each prefetch is one read of one expert, plus alignment.
        self.assertGreaterEqual(e["read_bytes"], (e["misses"] + e["prefetch_hits"]) * e["expert_bytes"])
        self.assertEqual(e["read_bytes"], sum(d["read_bytes"] for d in e["drives"]))
        if spread and os.stat(other_drive() or "/tmp").st_dev != os.stat(tempfile.gettempdir()).st_dev:
            self.assertEqual(len(e["drives"]), 2)
            self.assertTrue(all(d["reads"] > 0 for d in e["drives"]))


def other_drive():
    """A folder on another device, if this machine has one that can be written to."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def split(home, other, copy=()):
    """The nano model with its second shard in another folder; `copy`: shards that are in both."""
    main = pathlib.Path(home) / "model"
    shutil.copytree(NANO, main)
    for shard in sorted(main.glob("*.safetensors"))[1:]:
        shutil.copy(shard, other)
        if shard.name not in copy:
            shard.unlink()
    return main


class Folders(unittest.TestCase):
    def setUp(self):
        self.keep = [tempfile.TemporaryDirectory() for _ in range(3)]
        self.home, self.other, self.empty = (k.name for k in self.keep)
        self.second = sorted(NANO.glob("*.safetensors"))[1].name

    def tearDown(self):
        for k in self.keep:
            k.cleanup()

    def refused(self, *args):
        done = subprocess.run([TRIREME, "run", *map(str, args), *PROMPT], capture_output=True, text=True)
        self.assertIn(done.returncode, (1, 2), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def test_missing_shard(self):
        main = split(self.home, self.other)
        self.assertIn(self.second, self.refused("-m", main))
        pathlib.Path(self.other, self.second).rename(pathlib.Path(self.other, "x"))
        shutil.copy(NANO / "config.json", self.other)
        self.assertIn(f"{self.second} is missing", self.refused("-m", main, "--shard-dir", self.other))

    def test_wrong_folders(self):
        main = split(self.home, self.other)
        self.assertIn("no shard", self.refused("-m", main, "--shard-dir", self.other, "--shard-dir", self.empty))
        self.assertIn("nowhere", self.refused("-m", main, "--shard-dir", "/nowhere"))
        self.assertIn("not a folder", self.refused("-m", main, "--shard-dir", NANO / "config.json"))

    def test_given_twice(self):
        main = split(self.home, self.other)
        done = run("-m", main, "--shard-dir", self.other, "--shard-dir", self.other + "/.", *PROMPT)
        self.assertIn("counted once", done.stderr)

    def test_a_shard_in_both(self):
        main = split(self.home, self.other, copy=[self.second])
        want = run("-m", NANO, *PROMPT).stdout
        self.assertEqual(run("-m", main, "--shard-dir", self.other, *PROMPT).stdout, want)
        with open(pathlib.Path(self.other, self.second), "ab") as f:
            f.write(b"x")
        self.assertIn("differ in size", self.refused("-m", main, "--shard-dir", self.other))

    def test_a_damaged_one(self):
        main = split(self.home, self.other)
        path = pathlib.Path(self.other, self.second)
        os.truncate(path, path.stat().st_size // 2)
        err = self.refused("-m", main, "--shard-dir", self.other)
        self.assertIn(str(path), err)


class Lossy(unittest.TestCase):
    def test_it_is_said(self):
        done = run("--experts-per-token", "2", *PROMPT)
        self.assertIn("lossy: 2 instead of", done.stderr)
        done = run("--prefer-cached", "30", "--expert-ram", "60K", *PROMPT)
        self.assertIn("lossy", done.stderr)
        self.assertIn("1 to", run("--experts-per-token", "999", *PROMPT, code=2).stderr)

    def test_it_reads_less(self):
        exact = answer("--expert-ram", "300K")["experts"]
        few = answer("--expert-ram", "300K", "--experts-per-token", "2")["experts"]
        lean = answer("--expert-ram", "300K", "--prefer-cached", "60")["experts"]
        self.assertLess(few["wanted"], exact["wanted"])
        self.assertLess(lean["misses"] / lean["wanted"], exact["misses"] / exact["wanted"])


class Faults(FaultyReads, unittest.TestCase):
    def test_a_server_lives_through_it(self):
        server = Server("--io", "threads", "--expert-ram", "40K", "--page-cache", "yes", "--keep-nothing", env=self.env)
        try:
            want = server.chat("Hi")["choices"][0]["message"]["content"]
            for how, word in (("eio", "Input/output error"), ("zero", "the file ends before it")):
                self.fault.write_text(how)
                status, body, _ = server.ask("POST", "/v1/chat/completions",
                                             {"messages": [{"role": "user", "content": f"Bye {how}"}],
                                              "temperature": 0, "max_tokens": 8})
                self.assertGreaterEqual(status, 500)
                text = body.decode()
                for part in ("layer", "expert", ".safetensors", word):
                    self.assertIn(part, text)
                self.fault.unlink()
                self.assertEqual(server.chat("Hi")["choices"][0]["message"]["content"], want)
            self.fault.write_text("short")  # goes on where it stopped
            self.assertEqual(server.chat("Hi")["choices"][0]["message"]["content"], want)
            self.fault.unlink()
        finally:
            self.assertEqual(server.close(), 0)


class Budgets(unittest.TestCase):
    def test_bad_sizes(self):
        for bad in ("0", "-1G", "1X", "G", "1e400", "nan", "", "1K1"):
            done = subprocess.run([TRIREME, "run", "--ram", bad, "hi"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, (bad, done.stderr))
        self.assertIn("budget", run("--ram", "1K", "hi", code=1).stderr)

    def test_a_read_only_model_folder(self):
        with tempfile.TemporaryDirectory() as home:
            model = pathlib.Path(home) / "model"
            shutil.copytree(NANO, model, ignore=shutil.ignore_patterns(".trireme"))
            (model / ".trireme").write_text("a file where the folder of statistics would be")
            done = subprocess.run([TRIREME, "run", "-m", model, "--expert-ram", "60K", *PROMPT],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_pipes_among_the_statistics(self):
        """Nobody fills them, and nobody waits for them: the answer is the same."""
        with tempfile.TemporaryDirectory() as home:
            model = pathlib.Path(home) / "model"
            shutil.copytree(NANO, model, ignore=shutil.ignore_patterns(".trireme"))
            (model / ".trireme").mkdir()
            for name in ("experts.heat", "lock"):
                (model / ".trireme" / name).unlink(missing_ok=True)
                os.mkfifo(model / ".trireme" / name)
                done = subprocess.run([TRIREME, "run", "-m", model, "-q", "--expert-ram", "60K", *PROMPT],
                                      capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stdout), (0, run("-q", *PROMPT).stdout), done.stderr)


if __name__ == "__main__":
    need_nano()
    unittest.main()
