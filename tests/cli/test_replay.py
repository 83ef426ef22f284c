#!/usr/bin/env python3
"""trireme replay: against a plain simulation of LRU and of Belady's rule, on a skewed random trace;
bounds that must hold for any trace; damaged traces are one line. And `run --trace` writes what
`logits --routes` tells of the same tokens."""
import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

TRIREME = os.environ.get("TRIREME", "build/release/trireme")
SOURCE = pathlib.Path(os.environ.get("TRIREME_SOURCE", "."))
LAYERS, EXPERTS, TOPK, TOKENS = 5, 24, 3, 60


def make_trace(path):
    rng = random.Random(5)
    tokens = []
    for pos in range(TOKENS):
        rows = []
        for layer in range(LAYERS):
            ids = []
            while len(ids) < TOPK:
                e = min(rng.randrange(EXPERTS), rng.randrange(EXPERTS))
                if e not in ids:
                    ids.append(e)
            rows.append(ids)
        tokens.append(rows)
    with open(path, "w") as f:
        for pos, rows in enumerate(tokens):
            f.write(json.dumps({"pos": pos, "routes": [{"layer": l, "experts": e}
                                                      for l, e in enumerate(rows)]}) + "\n")
    return tokens


def rounds(tokens):
    return [(t, [(l, e) for e in ids]) for t, rows in enumerate(tokens) for l, ids in enumerate(rows)]


def lru(tokens, slots, skip):
    """Hits are what is in RAM when a round begins; a round's own experts are its most recent."""
    used, hits, wanted = {}, 0, 0
    for number, (t, want) in enumerate(rounds(tokens)):
        found = [r for r in want if r in used]
        if t >= skip:
            hits, wanted = hits + len(found), wanted + len(want)
        for r in want:
            used[r] = number
        while len(used) > slots:
            del used[min(used, key=lambda r: used[r])]
    return hits / wanted


def belady(tokens, slots, skip):
    order, held, hits, wanted = rounds(tokens), set(), 0, 0
    for number, (t, want) in enumerate(order):
        if t >= skip:
            hits, wanted = hits + len(held & set(want)), wanted + len(want)
        held |= set(want)
        while len(held) > slots:
            def next_use(r):
                return next((n for n in range(number + 1, len(order)) if r in order[n][1]), 10**9)
            held.remove(max(held, key=next_use))
    return hits / wanted


def replay(*args):
    done = subprocess.run([TRIREME, "replay", *map(str, args)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


class Replay(unittest.TestCase):
    def setUp(self):
        self.keep = tempfile.TemporaryDirectory()
        self.trace = pathlib.Path(self.keep.name) / "trace"
        self.tokens = make_trace(self.trace)

    def tearDown(self):
        self.keep.cleanup()

    def test_against_a_plain_simulation(self):
        code, out, err = replay(self.trace, "--json", "--experts", EXPERTS, "--skip", 20, "--sizes",
                                "1,5,12,20,40,100")
        self.assertEqual((code, err), (0, ""))
        sizes = json.loads(out)["sizes"]
        self.assertEqual(len(sizes), 6)
        for s in sizes:
            self.assertAlmostEqual(s["belady"], belady(self.tokens, s["slots"], 20), delta=0.006)
            self.assertAlmostEqual(s["lru"], lru(self.tokens, s["slots"], 20), delta=0.04)  # ties within a round
            if s["slots"] <= (LAYERS - 1) * TOPK:
                self.assertEqual(s["lru"], 0)  # the other layers' experts fill it
            for policy in ("lru", "lfu", "cycle"):
                self.assertLessEqual(s[policy], s["belady"] + 1e-9)
        self.assertGreater(sizes[1]["cycle"], 0)
        self.assertEqual(len({round(sizes[-1][p], 6) for p in ("lru", "lfu", "cycle", "belady")}), 1)

    def test_damaged_traces(self):
        good = self.trace.read_text().splitlines()
        cases = ["", "{}", "nonsense", good[0] + "\n" + good[1].replace("[", "[7,", 2),
                 good[0].replace('"experts": [', '"experts": [-1, '), '{"routes": []}',
                 good[0] + "\n" + '{"routes": [{"layer": 0, "experts": [1, 2, 3]}]}']
        for text in cases:
            self.trace.write_text(text)
            code, out, err = replay(self.trace)
            self.assertEqual((code, out, err.count("\n")), (1, "", 1), text[:60])
        self.assertEqual(replay(self.trace, "--sizes", "0")[0], 2)
        self.assertEqual(replay(self.trace, "--sizes", "101")[0], 2)
        for sizes in ("", ",", "1,", ",1", "1,,2"):
            self.assertEqual(replay(self.trace, "--sizes", sizes)[0], 2, sizes)

    def test_an_expert_twice_in_a_layer(self):
        for experts in ([1, 1], [0, 5, 0], [65535, 7, 65535]):
            line = json.dumps({"routes": [{"layer": 0, "experts": experts}]}) + "\n"
            self.trace.write_text(line * 3)
            code, out, err = replay(self.trace)
            self.assertEqual((code, out, err.count("\n")), (1, "", 1), err)
            self.assertIn(f"line 1: a layer has expert {experts[-1]} twice", err)
        self.assertEqual(replay()[0], 2)

    def test_a_trace_of_run_is_what_logits_tells(self):
        model = SOURCE / "models" / "nano"
        run = subprocess.run([TRIREME, "run", str(model), "--greedy", "--json", "--max-tokens", "12", "--raw",
                              "--trace", str(self.trace), "The ship"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        got = [json.loads(line)["routes"] for line in self.trace.read_text().splitlines()]
        prompt = subprocess.run([TRIREME, "tokenize", str(model), "The ship"], capture_output=True,
                                text=True).stdout.split()
        ids = prompt + [str(i) for i in json.loads(run.stdout)["tokens"]]
        logits = subprocess.run([TRIREME, "logits", str(model), "--tokens", ",".join(ids[:len(got)]),
                                 "--routes", "--chunk", "1", "--act", "int8"], capture_output=True, text=True)
        want = [json.loads(line)["routes"] for line in logits.stdout.splitlines()]
        self.assertGreater(len(got), 10)
        for a, b in zip(got, want):
            self.assertEqual([(x["layer"], x["experts"]) for x in a], [(x["layer"], x["experts"]) for x in b])


class Policy(unittest.TestCase):
    """The default policy on made-up routers of every kind: it may not assume one of them. LRU is best when
    tokens keep experts, LFU when there are favourites, nothing helps when routing is flat."""

    def rates(self, kind, percent):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "trace"
            made = subprocess.run(["python3", SOURCE / "bench" / "experts" / "routes.py", kind, "--layers", "8",
                                   "--experts", "448", "--topk", "8", "--tokens", "160"], capture_output=True)
            self.assertEqual(made.returncode, 0, made.stderr)
            trace.write_bytes(made.stdout)
            done = subprocess.run([TRIREME, "replay", trace, "--experts", "448", "--sizes", percent, "--json"],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)["sizes"][0]

    def test_never_far_from_the_better_of_both(self):
        for kind in ("flat", "zipf", "mix", "markov", "sticky", "drift"):
            for percent in ("1", "2", "5", "20"):
                r = self.rates(kind, percent)
                self.assertGreater(r["cycle"], max(r["lru"], r["lfu"]) - 0.025, (kind, percent, r))
                self.assertLessEqual(r["cycle"], r["belady"])

    def test_below_one_token_it_beats_both(self):
        for kind in ("mix", "markov", "sticky", "drift"):
            r = self.rates(kind, "1")
            self.assertEqual(r["lru"], 0)
            self.assertGreater(r["cycle"], 1.4 * r["lfu"], (kind, r))



if __name__ == "__main__":
    unittest.main()
