#!/usr/bin/env python3
"""Trireme and llama.cpp on the same weights, the same machine, in turns.

usage: run.py [--work DIR] [--model FOLDER] [--pairs N] [--threads N] [--kl TOKENS] [--reference FILE]

Makes the synthetic K3 of bench/mini.json unless a model is given, exports it to GGUF (Q8_0 trunk, MXFP4
experts), and measures decode and prefill of both engines, one after the other, in pairs: the ratio of a
pair has both in the same minute. --kl compares logits of N random ids: Kullback-Leibler divergence from a
float64 reference (--reference: a k3_reference.py with a class K3; slow), or, without one, from Trireme's
own float32 exact path, which is called a proxy then. Run it with any Python; it re-executes itself with
the one that has numpy.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))


# What `trireme speed` takes, where it has a say.
LIMITS = (("pairs", 0, 1000), ("reps", 1, 1000), ("threads", 1, 1024), ("decode", 1, 1 << 20), ("prefill", 1, 1 << 24),
          ("kl", 0, 1 << 20))
TRUNKS = ("auto", "disk", "f32", "bf16", "int8", "int4", "stream")


class OneLine(argparse.ArgumentParser):
    def error(self, message):
        raise SystemExit(f"run.py: {message}")


class Peer:
    """llama.cpp, loaded once and asked line by line."""

    def __init__(self, driver, gguf, threads, context, plain=False):
        self.child = subprocess.Popen([driver, gguf, str(threads), str(context), *["plain"] * plain], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        self.system = self.read()["system"]

    def read(self):
        line = self.child.stdout.readline()
        if not line:
            raise SystemExit(f"llama.cpp ended with code {self.child.wait()}")
        answer = json.loads(line)
        if answer.get("code"):
            raise SystemExit(f"llama.cpp: {answer}")
        return answer

    def ask(self, *words):
        self.child.stdin.write(" ".join(map(str, words)) + "\n")
        self.child.stdin.flush()
        return self.read()

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def ours(a, model):
    done = subprocess.run([a.trireme, "speed", model, "--trunk", a.trunk, "--act", a.act, "--threads", str(a.threads),
                           "--prefill", str(a.prefill), "--decode", str(a.decode), "--reps", str(a.reps), "--json"],
                          capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def pairs(a, model, peer):
    rows = []
    for what, n in (("decode", a.decode), ("prefill", a.prefill)):
        peer.ask(what, n)                                  # warm
    for i in range(a.pairs):
        row = {}

        def measure_ours():
            got = ours(a, model)
            row["read_gb_s"] = got["read_bytes_per_s"] / 1e9
            for r in got["rows"]:
                row[r["what"]] = r["tokens_per_s"]
                row[r["what"] + "_best"] = r["tokens_per_s_most"]
                row[r["what"] + "_limit_percent"] = r["limit_percent"]

        def measure_peer():
            for what, n in (("decode", a.decode), ("prefill", a.prefill)):
                rates = [peer.ask(what, n)["tokens_per_s"] for _ in range(a.reps)]
                row["peer_" + what], row["peer_" + what + "_best"] = statistics.median(rates), max(rates)
        for step in ((measure_ours, measure_peer) if i % 2 == 0 else (measure_peer, measure_ours)):
            step()
        for what in ("decode", "prefill"):
            row[what + "_ratio"] = row[what] / row["peer_" + what]
        rows.append(row)
        print(f"pair {i + 1}: decode {row['decode']:.1f} against {row['peer_decode']:.1f} ({row['decode_ratio']:.2f}x, "
              f"{row['decode_limit_percent']:.0f} % of the limit), prefill {row['prefill']:.0f} against "
              f"{row['peer_prefill']:.0f} ({row['prefill_ratio']:.2f}x); read {row['read_gb_s']:.1f} GB/s", flush=True)
    return rows


def log_softmax(np, x):
    x = x.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def divergence(np, reference, other):
    p, q = log_softmax(np, reference), log_softmax(np, other)
    kl = (np.exp(p) * (p - q)).sum(axis=-1)
    low, mid, high = np.quantile(kl, (0.25, 0.5, 0.75))
    return {"mean": float(kl.mean()), "median": float(mid), "quartiles": [float(low), float(high)],
            "top1_agreement": float((reference.argmax(-1) == other.argmax(-1)).mean())}


def our_logits(np, a, model, ids, vocab, trunk, act):
    out = a.work / "ours.f32"
    done = subprocess.run([a.trireme, "logits", model, "--tokens-file", ids, "--out", out, "--trunk", trunk, "--act", act,
                           "--threads", str(a.threads)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return np.fromfile(out, np.float32).reshape(-1, vocab)


def compare_logits(a, model, peer):
    import numpy as np
    vocab = json.loads((pathlib.Path(model) / "config.json").read_text())["text_config"]["vocab_size"]
    ids = np.random.default_rng(1).integers(0, vocab, a.kl).tolist()
    path = a.work / "ids.txt"
    path.write_text(" ".join(map(str, ids)))
    if a.reference:
        spec = importlib.util.spec_from_file_location("k3_reference", a.reference)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        reference, name = module.K3(str(model)).logits(ids), "float64 reference"
    else:
        reference, name = our_logits(np, a, model, path, vocab, "f32", "exact"), "our float32 exact path (proxy)"
    peer.ask("logits", path, a.work / "peer.f32")
    both = {"reference": name, "tokens": len(ids),
            "ours": divergence(np, reference, our_logits(np, a, model, path, vocab, a.trunk, a.act)),
            "peer": divergence(np, reference, np.fromfile(a.work / "peer.f32", np.float32).reshape(-1, vocab))}
    if a.reference:
        both["ours_f32_exact"] = divergence(np, reference, our_logits(np, a, model, path, vocab, "f32", "exact"))
    return both


def check(a):
    """Refuses before anything is installed, made or started."""
    for name, least, most in LIMITS:
        if getattr(a, name) < least:
            raise SystemExit(f"run.py: --{name} {getattr(a, name)}: {least} or more")
        if getattr(a, name) > most:
            raise SystemExit(f"run.py: --{name} {getattr(a, name)}: at most {most}")
    if not os.access(a.trireme, os.X_OK) or os.path.isdir(a.trireme):
        raise SystemExit(f"run.py: {a.trireme} is no program: make it first, or name it with --trireme")
    if a.model and not (a.model / "config.json").is_file():
        raise SystemExit(f"run.py: {a.model} is no checkpoint folder: it has no config.json")
    if a.reference and not os.path.isfile(a.reference):
        raise SystemExit(f"run.py: --reference {a.reference}: no such file")
    folder = a.json.absolute().parent if a.json else ROOT
    if a.json and (a.json.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK)):
        raise SystemExit(f"run.py: --json {a.json}: cannot be written there")
    if not a.pairs and not a.kl:
        raise SystemExit("run.py: nothing to do: --pairs and --kl are both 0")


def do(*command):
    """Runs a step whose own last line tells what failed."""
    done = subprocess.run([str(c) for c in command], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word of why"])[-1]
        raise SystemExit(f"run.py: {pathlib.Path(command[0]).name} failed: {last}")


def main():
    p = OneLine(description=__doc__.splitlines()[0])
    p.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "peer", help="venv, llama.cpp, weights")
    p.add_argument("--model", type=pathlib.Path, help="checkpoint folder (default: made from bench/mini.json)")
    p.add_argument("--trireme", default=str(ROOT / "build" / "release" / "trireme"))
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--reps", type=int, default=3, help="repetitions of each engine in a pair (median)")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--decode", type=int, default=64)
    p.add_argument("--prefill", type=int, default=512)
    p.add_argument("--trunk", default="int8", choices=TRUNKS)
    p.add_argument("--act", default="int8", choices=("exact", "int8"), help="our activations: exact or int8")
    p.add_argument("--kl", type=int, default=0, metavar="TOKENS")
    p.add_argument("--reference", help="path of k3_reference.py for --kl")
    p.add_argument("--plain", action="store_true", help="llama.cpp without repacked and AMX buffers")
    p.add_argument("--json", type=pathlib.Path, help="write all results here")
    a = p.parse_args()
    check(a)
    a.work = a.work.resolve()
    from install import install
    driver, python = install(a.work)
    if a.kl and importlib.util.find_spec("numpy") is None:
        os.execv(python, [str(python), *sys.argv])
    model = a.model or a.work / "mini"
    if not model.exists():
        do(a.trireme, "synth", model, "--config", HERE.parent / "mini.json")
    gguf = a.work / (model.name + "-q8.gguf")
    if not gguf.exists():
        do(python, HERE / "export_gguf.py", model, gguf)
    peer = Peer(driver, gguf, a.threads, max(a.prefill, a.decode, a.kl, 512), a.plain)
    print("llama.cpp:", peer.system)
    result = {"system": peer.system, "pairs": pairs(a, model, peer) if a.pairs else []}
    for what in ("decode", "prefill"):
        if a.pairs:
            ratios = [r[what + "_ratio"] for r in result["pairs"]]
            print(f"{what}: {statistics.median(ratios):.2f} times llama.cpp (median of {len(ratios)} pairs, "
                  f"{min(ratios):.2f} to {max(ratios):.2f})")
            best, peer_best = (max(r[k + what + "_best"] for r in result["pairs"]) for k in ("", "peer_"))
            print(f"{what}, best of all: {best:.1f} against {peer_best:.1f} ({best / peer_best:.2f}x)")
    if a.kl:
        result["kl"] = compare_logits(a, model, peer)
        print(json.dumps(result["kl"], indent=1))
    peer.close()
    if a.json:
        a.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
