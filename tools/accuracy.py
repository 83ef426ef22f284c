#!/usr/bin/env python3
"""What number formats cost in quality: logits of a text under each --trunk, --act, --cache and --kda-state against
the float32 exact path (which tests hold against the float64 reference), optionally llama.cpp's too.

usage: accuracy.py MODEL TEXT [--window N] [--tokens N] [--peer DIR] [--only NAME;...] [--json FILE]

TEXT may be a file of token ids (.ids). The text is cut into windows of N tokens, each run from an empty state. Per position: Kullback-Leibler
divergence from the reference in nats, whether the largest logit is the same token; perplexity over all
next tokens. A bf16 KDA state is rounded when a step ends, so its rows say how many tokens a step has (--chunk); beside
each is the same with a float32 state. --peer: folder that bench/peer/install.py made. Needs numpy. A format that this build does not
have is told and left out.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    sys.exit("accuracy: needs numpy (build/peer/venv/bin/python has it)")

ROOT = pathlib.Path(__file__).resolve().parent.parent
REFERENCE = ("f32", "exact", "f32")
# trunk, activations, MLA cache: all of them; then KDA state and tokens a step, where a row is about them.
OURS = [*((trunk, act, cache) for cache in ("f32", "bf16", "fp8") for act in ("exact", "int8")
          for trunk in ("f32", "bf16", "int8", "int4")),
        *((*form, kda, chunk) for form in (REFERENCE, ("int8", "int8", "f32"))
          for chunk in ("1", "64") for kda in ("f32", "bf16"))]
# trunk, experts, without llama.cpp's repacked and AMX buffers
PEER = [("f32", "f32", False), ("q8_0", "mxfp4", False), ("q8_0", "mxfp4", True)]


def name_of(form):
    return "/".join(form[:3]) + (f", KDA state {form[3]}, {form[4]} a step" if form[3:] else "")


def peer_name(form):
    return f"llama.cpp {form[0]}/{form[1]}{' plain' if form[2] else ''}"


def fail(text):
    sys.exit(f"accuracy: {text}")


class Ours:
    def __init__(self, a, vocab):
        self.a, self.vocab = a, vocab
        done = subprocess.run([a.trireme, "logits", "--help"], capture_output=True, text=True)
        self.has_cache, self.has_kda = "--cache" in done.stdout, "--kda-state" in done.stdout

    def logits(self, ids, form):
        trunk, act, cache, kda, chunk = (*form, None, None)[:5]
        if not self.has_cache and cache != "f32":
            raise LookupError("this build has no --cache")
        if not self.has_kda and kda:
            raise LookupError("this build has no --kda-state")
        with tempfile.TemporaryDirectory(dir=self.a.scratch) as folder:
            tokens, out = pathlib.Path(folder) / "ids", pathlib.Path(folder) / "logits"
            tokens.write_text(" ".join(map(str, ids)))
            more = ["--cache", cache] if self.has_cache else []
            more += ["--kda-state", kda, "--chunk", chunk] if kda else []
            done = subprocess.run([self.a.trireme, "logits", self.a.model, "--tokens-file", tokens, "--out", out,
                                   "--trunk", trunk, "--act", act, *more], capture_output=True, text=True)
            if done.returncode:
                raise LookupError(done.stderr.strip().splitlines()[0])
            return np.fromfile(out, np.float32).reshape(-1, self.vocab)


class Peer:
    def __init__(self, a, vocab, form):
        sys.path.insert(0, str(ROOT / "bench" / "peer"))
        from install import install
        from run import Peer as Driver
        driver, python = install(a.peer)
        gguf = pathlib.Path(a.scratch or a.peer) / f"accuracy-{form[0]}-{form[1]}.gguf"
        subprocess.run([python, ROOT / "bench" / "peer" / "export_gguf.py", a.model, gguf, "--trunk", form[0],
                        "--experts", form[1]], check=True, stdout=subprocess.DEVNULL)
        self.driver, self.vocab, self.scratch = Driver(driver, gguf, os.cpu_count(), a.window + 8, form[2]), vocab, gguf.parent

    def logits(self, ids, _):
        tokens, out = self.scratch / "peer-ids", self.scratch / "peer-logits"
        tokens.write_text(" ".join(map(str, ids)))
        self.driver.ask("logits", tokens, out)
        got = np.fromfile(out, np.float32).reshape(-1, self.vocab)
        out.unlink()
        return got


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


class Score:
    def __init__(self):
        self.kl, self.same, self.loss = [], [], []

    def add(self, ids, reference, got):
        p, q = log_softmax(reference), log_softmax(got)
        self.kl.append((np.exp(p) * (p - q)).sum(axis=-1))
        self.same.append(p.argmax(axis=-1) == q.argmax(axis=-1))
        self.loss.append(-q[np.arange(len(ids) - 1), ids[1:]])

    def row(self, name):
        kl, loss = np.concatenate(self.kl), np.concatenate(self.loss)
        spread = loss.std() / len(loss) ** 0.5
        return {"name": name, "tokens": len(kl), "kl_mean": float(kl.mean()),
                "kl_error": float(kl.std() / len(kl) ** 0.5), "kl_median": float(np.median(kl)),
                "kl_p99": float(np.quantile(kl, 0.99)), "top1": float(np.concatenate(self.same).mean()),
                "perplexity": float(np.exp(loss.mean())), "perplexity_error": float(np.exp(loss.mean()) * spread)}


def measure(engine, form, windows, references, name):
    score = Score()
    for ids, reference in zip(windows, references):
        score.add(ids, reference, engine.logits(ids, form))
    row = score.row(name)
    print(f"| {name} | {row['kl_mean']:.2e} ({row['kl_error']:.0e}) | {row['kl_median']:.2e} | {row['kl_p99']:.2e} | "
          f"{100 * row['top1']:.2f} | {row['perplexity']:.4f} |", flush=True)
    return row


def read_windows(a):
    if a.text.endswith(".ids"):
        ids = [int(word) for word in pathlib.Path(a.text).read_text().split()]
    else:
        with open(a.text, "rb") as text:
            done = subprocess.run([a.trireme, "tokenize", "--json", a.model, "-"], stdin=text, capture_output=True)
        if done.returncode:
            fail(done.stderr.decode().strip())
        ids = json.loads(done.stdout)["ids"]
    ids = ids[:a.tokens]
    windows = [np.array(ids[i:i + a.window]) for i in range(0, len(ids), a.window)]
    return [w for w in windows if len(w) > 1]


def check(a):
    names = [name_of(form) for form in OURS] + [peer_name(form) for form in PEER]
    for name in (a.only.split(";") if a.only else []):
        if name not in names:
            fail(f"--only {name}: no such row; there are {'; '.join(names)}")
    if a.window < 2:
        fail(f"--window {a.window}: 2 or more")
    if not os.access(a.trireme, os.X_OK) or os.path.isdir(a.trireme):
        fail(f"{a.trireme} is no program: make it first, or name it with --trireme")
    for path in (pathlib.Path(a.model) / "config.json", pathlib.Path(a.text)):
        if not path.is_file():
            fail(f"{path}: no such file")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("model")
    p.add_argument("text")
    p.add_argument("--window", type=int, default=512)
    p.add_argument("--tokens", type=int, default=1 << 20, help="no more than these")
    p.add_argument("--peer", help="folder with llama.cpp (bench/peer/install.py)")
    p.add_argument("--only", help="names as in the table, apart by semicolons")
    p.add_argument("--scratch", help="folder for logits and exported weights")
    p.add_argument("--json", type=pathlib.Path)
    p.add_argument("--trireme", default=str(ROOT / "build" / "release" / "trireme"))
    a = p.parse_args()
    check(a)
    vocab = json.loads((pathlib.Path(a.model) / "config.json").read_text())["text_config"]["vocab_size"]
    windows = read_windows(a)
    if not windows:
        fail(f"{a.text}: not two tokens")
    ours, rows = Ours(a, vocab), []
    references = [ours.logits(ids, REFERENCE) for ids in windows]
    print(f"{sum(map(len, windows))} tokens in {len(windows)} windows of {a.window}\n")
    print("| trunk / activations / cache | mean KL (standard error) | median KL | 99 % | top-1 % | perplexity |\n|---|---:|---:|---:|---:|---:|")
    for form in OURS:
        name = name_of(form)
        if a.only and name not in a.only.split(";"):
            continue
        try:
            rows.append(measure(ours, form, windows, references, name))
        except LookupError as why:
            print(f"| {name} | left out: {why} |")
    for form in PEER if a.peer else []:
        name = peer_name(form)
        if not a.only or name in a.only.split(";"):
            rows.append(measure(Peer(a, vocab, form), form, windows, references, name))
    if a.json:
        a.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
