"""Scores of an exported model on text and tasks that were not trained on (other seeds of the same generator).

    python3 evaluate.py FOLDER [--count 100] [--far]

A reply counts as right when every token of the expected reply is the most likely one given the true prefix: exactly
then greedy decoding produces it.  Stories have no single right answer, so they are judged by format alone.
"""

import argparse
import math
import random

import torch
import torch.nn.functional as F

import chat
import data
import tasks
from agent import tool_turn
from decode import Decoder
from export import load_export
from recall import recall_turn
from sums import sum_turn
from world import raw_document

DISTANCES = (64, 256, 512, 1024, 2048, 3000)


@torch.no_grad()
def logits(net, ids, last=None):
    """Logits of one sequence, or of its last positions."""
    x = torch.tensor([ids + [0] * (-len(ids) % 16)])
    h = net(x)[0, : len(ids)]
    return net.lm_head(h[-last:] if last else h)


@torch.no_grad()
def exact(net, pairs):
    """For (prompt, reply) pairs of ids: is the reply what greedy decoding gives?"""
    out = [False] * len(pairs)
    order = sorted(range(len(pairs)), key=lambda i: sum(map(len, pairs[i])))
    while order:
        n = max(1, min(len(order), 16384 // (sum(map(len, pairs[order[-1]])) + 16)))
        group, order = order[-n:], order[:-n]
        T = -(-max(sum(map(len, pairs[i])) for i in group) // 16) * 16
        ids = torch.zeros(len(group), T, dtype=torch.long)
        for b, i in enumerate(group):
            s = pairs[i][0] + pairs[i][1]
            ids[b, : len(s)] = torch.tensor(s)
        h = net(ids)
        for b, i in enumerate(group):
            p, r = map(len, pairs[i])
            out[i] = bool(
                (net.lm_head(h[b, p - 1 : p + r - 1]).argmax(-1) == torch.tensor(pairs[i][1])).all()
            )
    return out


def generate(net, tok, prompt, limit=300, temperature=0.0, top_p=0.95):
    """Ids up to <|end_of_msg|>."""
    d, ids, stop = Decoder(net), [], tok.special["<|end_of_msg|>"]
    for t in prompt:
        z = d.step(t)
    while len(ids) < limit:
        if temperature:
            p, at = torch.softmax(z / temperature, -1).sort(descending=True)
            p[p.cumsum(0) - p > top_p] = 0
            t = int(at[torch.multinomial(p, 1)])
        else:
            t = int(z.argmax())
        ids.append(t)
        if t == stop:
            break
        z = d.step(t)
    return ids


def perplexity(net, tok, seed=12345, documents=60):
    r, nll, n = random.Random(seed), 0.0, 0
    for _ in range(documents):
        ids = tok.encode(raw_document(r))
        nll += float(
            F.cross_entropy(logits(net, ids)[:-1].float(), torch.tensor(ids[1:]), reduction="sum")
        )
        n += len(ids) - 1
    return math.exp(nll / n), n


def cases(kind, count, seed, **kw):
    """Conversations of a kind with the default settings: thinking, effort max."""
    r = random.Random(seed)
    for _ in range(count):
        c = dict(thinking=True, effort="max")
        if kind == "recall":
            c["messages"], c["check"] = recall_turn(r, "max", kw["distance"], 1, 4)
        elif kind == "tool":
            c["messages"], c["check"], c["tools"], c["call"] = tool_turn(r, "max", 1)
        elif kind in "+-*":
            c["messages"], c["check"] = sum_turn(r, "max", kind)
        else:
            c["messages"], c["check"] = tasks.TURNS[kind](r, "max")
        yield c


def main():
    a = argparse.ArgumentParser()
    a.add_argument("folder")
    a.add_argument("--count", type=int, default=100)
    a.add_argument("--far", action="store_true", help="also recall beyond the trained distances")
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--stories", type=float, nargs="*", default=[0.0, 1.0], metavar="TEMPERATURE")
    a = a.parse_args()
    torch.set_num_threads(a.threads)
    net, tok = load_export(a.folder)
    rate = lambda pairs: f"{sum(exact(net, pairs))}/{len(pairs)}"
    ppl, n = perplexity(net, tok)
    print(f"perplexity of held-out stories: {ppl:.3f} ({n} tokens)")
    for kind in ("+", "-", "*", "fact", "echo", "compare", "count"):
        print(
            f"{kind:10} {rate([data.prompt_and_reply(c, tok) for c in cases(kind, a.count, 99)])}"
        )
    tool = list(cases("tool", a.count, 99))
    print(
        f"tool call  {rate([data.prompt_and_reply(dict(c, messages=c['messages'][:-2]), tok) for c in tool])}"
    )
    print(f"tool reply {rate([data.prompt_and_reply(c, tok) for c in tool])}")
    for d in DISTANCES + ((6000, 12000) if a.far else ()):
        n = min(a.count, max(12, 24000 // d))
        print(
            f"recall {d:5} {rate([data.prompt_and_reply(c, tok) for c in cases('recall', n, 77, distance=d)])}"
        )
    torch.manual_seed(5)
    for t in a.stories:
        good = 0
        for c in cases("story", 10, 55):
            p, _ = data.prompt_and_reply(c, tok)
            got = chat.parse(generate(net, tok, p, temperature=t), tok)
            good += got["ok"] and c["check"].strip() in got["content"]
            if t:
                print("  ", c["messages"][0]["content"], "->", got["content"])
        print(f"story, temperature {t}: well formed and about the right hero {good}/10")


if __name__ == "__main__":
    main()
