#!/usr/bin/env python3
"""What the lossy expert options cost on a text: Kullback-Leibler divergence from exact routing in nats, top-1
agreement, and how much less is read. One token at a time, as when decoding.

usage: lossy.py MODEL TEXT [--tokens N] [--expert-ram SIZE]"""
import argparse
import array
import json
import math
import os
import pathlib
import subprocess
import tempfile

TRIREME = os.environ.get("TRIREME", "build/release/trireme")


def logits(model, ids, ram, flags):
    with tempfile.TemporaryDirectory() as folder:
        tokens, out = pathlib.Path(folder) / "ids", pathlib.Path(folder) / "out"
        tokens.write_text(" ".join(map(str, ids)))
        subprocess.run([TRIREME, "logits", model, "--tokens-file", tokens, "--out", out, "--chunk", "1",
                        "--expert-ram", ram, "--keep-nothing", *flags], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        values = array.array("f", out.read_bytes())
    width = len(values) // len(ids)
    return [values[i * width:(i + 1) * width] for i in range(len(ids))]


def log_softmax(row):
    top = max(row)
    norm = top + math.log(sum(math.exp(x - top) for x in row))
    return [x - norm for x in row]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--expert-ram", default="300K")
    a = parser.parse_args()
    done = subprocess.run([TRIREME, "tokenize", "--json", a.model, "-"], input=pathlib.Path(a.text).read_text()[:8000],
                          capture_output=True, text=True)
    ids = json.loads(done.stdout)
    ids = (ids["ids"] if isinstance(ids, dict) else ids)[:a.tokens]
    exact = [log_softmax(r) for r in logits(a.model, ids, a.expert_ram, [])]
    print(f"{len(ids)} tokens, --expert-ram {a.expert_ram}")
    print(f"{'':28}{'KL mean':>9}{'KL p99':>9}{'top-1 %':>9}")
    for flags in (["--lookahead", "4"], ["--experts-per-token", "3"], ["--experts-per-token", "2"],
                  ["--experts-per-token", "1"], ["--prefer-cached", "5"], ["--prefer-cached", "10"],
                  ["--prefer-cached", "25"], ["--prefer-cached", "50"]):
        kls, same = [], 0
        for p, row in zip(exact, logits(a.model, ids, a.expert_ram, flags)):
            q = log_softmax(row)
            kls.append(sum(math.exp(x) * (x - y) for x, y in zip(p, q)))
            same += max(range(len(p)), key=p.__getitem__) == max(range(len(q)), key=q.__getitem__)
        kls.sort()
        print(f"{' '.join(flags):28}{sum(kls) / len(kls):9.4f}{kls[len(kls) * 99 // 100]:9.3f}"
              f"{100 * same / len(kls):9.1f}")


if __name__ == "__main__":
    main()
