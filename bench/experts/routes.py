#!/usr/bin/env python3
"""Made-up routing traces for `trireme replay`: popularity by Zipf's law, experts kept from the token before
with a chance (a Markov chain), and popularity that changes now and then.

usage: routes.py KIND [--layers N] [--experts N] [--topk N] [--tokens N] [--seed N] > trace.jsonl
kinds: """
import argparse
import bisect
import itertools
import json
import random

# Zipf's exponent; chance to keep an expert of the token before; tokens until popularity is drawn anew.
KINDS = {"flat": (0.0, 0.0, 0), "zipf": (0.8, 0.0, 0), "mix": (0.6, 0.3, 0), "markov": (0.3, 0.5, 0),
         "sticky": (0.2, 0.75, 0), "drift": (1.0, 0.15, 60)}


class Layer:
    def __init__(self, draw, experts, zipf):
        self.draw = draw
        weights = [1 / (i + 1) ** zipf for i in range(experts)]
        draw.shuffle(weights)
        self.sums = list(itertools.accumulate(weights))

    def choose(self, kept, topk):
        chosen = set(kept)
        while len(chosen) < topk:
            chosen.add(bisect.bisect(self.sums, self.draw.random() * self.sums[-1]))
        return sorted(chosen)


def main():
    parser = argparse.ArgumentParser(description=__doc__ + " ".join(KINDS),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    for name, value in (("layers", 20), ("experts", 896), ("topk", 16), ("tokens", 240), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    a = parser.parse_args()
    zipf, keep, renew = KINDS[a.kind]
    draw = random.Random(a.seed)
    last = [[] for _ in range(a.layers)]
    for token in range(a.tokens):
        if token == 0 or (renew and token % renew == 0):
            layers = [Layer(draw, a.experts, zipf) for _ in range(a.layers)]
        last = [layer.choose([e for e in before if draw.random() < keep], a.topk)
                for layer, before in zip(layers, last)]
        print(json.dumps({"pos": token, "routes": [{"layer": i, "experts": e} for i, e in enumerate(last)]}))


if __name__ == "__main__":
    main()
