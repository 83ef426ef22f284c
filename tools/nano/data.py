"""From conversations to padded batches of token ids with a loss weight per token."""

import math
import random

import chat
import tasks
from recall import drill, recall_turn
from talk import fact
from world import raw_document

PROMPT, ASSISTANT = 0.1, 1.0
RESERVED = 32  # ids kept for special tokens
VOCAB = 2048
LONGEST = 4352  # tokens of the longest sample

# share of samples; a long recall costs as many tokens as twenty sums, so it is rare
MIX = dict(
    sum=0.25,
    fact=0.15,
    story=0.08,
    echo=0.06,
    recall=0.19,
    tool=0.19,
    misc=0.05,
    turns=0.02,
    raw=0.01,
)


def encode(c, tok):
    """(ids, weights) of a conversation: every assistant reply counts fully, its prompt a little."""
    ids, weights = [], []

    def add(segments, w):
        new = tok.encode_segments(segments)
        ids.extend(new)
        weights.extend([w] * len(new))

    kw = dict(thinking=c["thinking"], stub=False)
    add(chat.render([], tools=c.get("tools"), effort=c["effort"], **kw), 0.02)
    done = []
    for m in c["messages"]:
        before = len(chat.render(done, **kw))
        done.append(m)
        if m["role"] == "assistant":
            stub = chat.render([], thinking=c["thinking"])
            add(stub, 0.02)
            add(
                chat.reply(m, c["thinking"], "after_stub")
                + chat.close_tag("message")
                + [("<|end_of_msg|>", True)],
                ASSISTANT,
            )
        else:
            add(chat.render(done, **kw)[before:], PROMPT)
    return ids, weights


def prompt_and_reply(c, tok):
    """Ids up to the last reply's generation stub, and the ids of that reply."""
    m = c["messages"]
    p = chat.render(m[:-1], c.get("tools"), c["thinking"], c["effort"])
    r = (
        chat.reply(m[-1], c["thinking"], "after_stub")
        + chat.close_tag("message")
        + [("<|end_of_msg|>", True)]
    )
    return tok.encode_segments(p), tok.encode_segments(r)


def sample(r, tok, reach, mix=MIX):
    """One training sample; `reach` is the longest recall distance of the moment."""
    kind = tasks.pick(r, mix)
    if kind == "raw":
        ids = tok.encode(
            raw_document(r) if r.random() < 0.8 else " ".join(fact(r)[2] for _ in range(8))
        ) + [tok.special["[EOS]"]]
        return ids, [ASSISTANT] * len(ids)
    if kind == "drill":
        parts = [(tok.encode(t), ASSISTANT if answer else 0.02) for t, answer in drill(r)]
        return [i for ids, _ in parts for i in ids], [w for ids, w in parts for _ in ids]
    distance = int(math.exp(r.uniform(math.log(8), math.log(max(9, min(reach, 160))))))
    return encode(tasks.conversation(r, kind, distance), tok)


def long_sample(r, tok, reach):
    """A recall over 160..reach tokens with several questions."""
    c = dict(messages=[], thinking=True, effort="max")
    if r.random() < 0.2:
        c["thinking"], c["effort"] = tasks.setting(r)
    d = int(math.exp(r.uniform(math.log(160), math.log(reach))))
    c["messages"], c["check"] = recall_turn(
        r,
        "max" if c["thinking"] and c["effort"] != "low" else "low",
        d,
        queries=r.randint(2, 6),
        distractors=r.randint(2, 8),
    )
    return encode(c, tok)


def batches(seed, tok, tokens, plan, mix=MIX):
    """Endless [(ids, weights), ...] with count * longest <= tokens; plan() gives (reach, share of long samples)."""
    r = random.Random(seed)
    while True:
        reach, share = plan()
        pool = [
            long_sample(r, tok, reach)
            if reach > 200 and r.random() < share
            else sample(r, tok, reach, mix)
            for _ in range(512)
        ]
        # a long sample may be a batch of its own
        pool = sorted((s for s in pool if len(s[0]) <= LONGEST), key=lambda s: len(s[0]))
        cut, group = [], []
        for s in pool:
            if group and (len(group) + 1) * (-(-len(s[0]) // 16) * 16) > tokens:
                cut.append(group)
                group = []
            group.append(s)
        cut.append(group)
        r.shuffle(cut)
        yield from cut


def corpus(seed, n):
    """Texts to train the tokenizer on."""
    r = random.Random(seed)
    out = []
    for _ in range(n):
        kind = tasks.pick(r, MIX)
        if kind in ("raw", "drill"):
            out.append(raw_document(r))
        else:
            c = tasks.conversation(r, kind, 60)
            out += [
                t
                for t, marker in chat.render(
                    c["messages"], c.get("tools"), c["thinking"], c["effort"]
                )
                if not marker
            ]
    return out
