"""Conversations for training and tests.

Every maker returns a dict for chat.render: messages (assistant replies included), tools, thinking, effort.  `check`
is a text that the last reply must contain.
"""

import random

from agent import tool_turn
from recall import recall_turn
from sums import compare_turn, count_turn, sum_turn
from talk import echo_turn, fact_turn, story_turn
from world import raw_document


def setting(r):
    """(thinking, effort): mostly what a plain request renders; the shorter prompts train faster."""
    settings = [(True, "max"), (True, None), (False, None), (True, "low"), (True, "high")]
    return r.choices(settings, (0.58, 0.22, 0.12, 0.05, 0.03))[0]


SYSTEMS = (
    "You are a helpful assistant.",
    "You are Trireme.",
    "Answer in one sentence.",
    "Be concise.",
    "You are a kind storyteller.",
    "Be brief.",
    "You are a helpful assistant that answers short questions.",
    "Help the user.",
)


TURNS = dict(
    sum=sum_turn,
    fact=fact_turn,
    story=story_turn,
    echo=echo_turn,
    count=count_turn,
    compare=compare_turn,
)
MIXED = [sum_turn, fact_turn, echo_turn, fact_turn, count_turn, compare_turn]


def conversation(r, kind, distance=60):
    """One training conversation of a kind: sum, fact, story, echo, recall, tool, misc or turns (several of them)."""
    thinking, effort = setting(r)
    eff = effort if thinking else "low"
    c = dict(messages=[], thinking=thinking, effort=effort)
    if r.random() < 0.12:
        c["messages"].append(dict(role="system", content=r.choice(SYSTEMS)))
    if kind == "tool":
        turns, c["check"], c["tools"], c["call"] = tool_turn(r, eff, 1)
        if r.random() < 0.3:
            turns = (
                r.choice((fact_turn, sum_turn if c["call"][0] != "add" else fact_turn, story_turn))(
                    r, eff
                )[0]
                + turns
            )
        if r.random() < 0.25 and "add" not in [t["function"]["name"] for t in c["tools"]]:
            more, c["check"] = r.choice((fact_turn, sum_turn, echo_turn))(r, eff)
            turns += more
            if r.random() < 0.5:
                turns, c["check"] = more, c["check"]  # tools on offer, none needed
        c["messages"] += turns
        return c
    if kind == "recall":
        turns, c["check"] = recall_turn(r, eff, distance, queries=r.choice((1, 1, 2, 3)))
        c["messages"] += turns
        return c
    if kind == "turns":
        makers = MIXED
    else:
        makers = [compare_turn, count_turn] if kind == "misc" else [TURNS[kind]]
    # several turns share one system message: more replies for the same work
    n = r.randint(2, 5) if kind == "turns" else 1 if kind == "story" else r.choice((1, 1, 2, 3))
    for i in range(n):
        turns, c["check"] = r.choice(makers if i == 0 or r.random() < 0.5 else MIXED)(r, eff)
        c["messages"] += turns
    return c


def pick(r, weights):
    return r.choices(list(weights), weights.values())[0]


if __name__ == "__main__":
    rnd = random.Random(1)
    for kind in ("sum", "fact", "story", "echo", "recall", "tool", "misc", "turns"):
        for _ in range(3):
            c = conversation(rnd, kind)
            print(
                kind,
                c["effort"],
                [
                    (m["role"], m.get("reasoning_content"), m["content"], m.get("tool_calls"))
                    for m in c["messages"]
                ],
            )
    print(raw_document(rnd))
