"""Make the test data of an exported model: held-out text, vectors, and tasks that it solves.

    python3 make_tests.py models/nano tests/data/nano [--reference FOLDER_OF_k3_reference.py]

vectors.json holds float64 results of this folder's own PyTorch model on the exported files; with --reference they are
compared with an independent NumPy implementation and the largest difference is printed and recorded.
"""

import argparse
import json
import os
import random
import sys

import torch

import chat
import data
from evaluate import cases, exact, generate, logits
from export import load_export
from say import bot, user
from world import raw_document

HELDOUT_SEED = 987654

STRINGS = [
    "",
    " ",
    "a",
    "Hello",
    "Hello, world!",
    "hello world",
    "  two  spaces  ",
    "line one\nline two\n\nline four",
    "\n",
    " \n \t\n",
    "Tell me a story about a fox.",
    "What is 12 + 34?",
    "12345678",
    "3.14159",
    "x=1;y=22;z=333",
    "It's Mia's lamp, isn't it?",
    "DON'T SHOUT",
    "camelCase and PascalCase",
    "tabs\tand\ttabs",
    "caf\u00e9 cafe\u0301",
    "na\u00efve \u00fcber \u00dfharp",
    "\u4f60\u597d\uff0c\u4e16\u754c",
    "\u041f\u0440\u0438\u0432\u0435\u0442",
    "\u0645\u0631\u062d\u0628\u0627",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\U0001f44b\U0001f3fd ok",
    "<|end_of_msg|>",
    "<|open|>think<|sep|>",
    "[BOS] and [EOS]",
    '{"a": [1, 2, {"b": null}]}',
    "a...b!!!c???",
    "e\u0301e\u0301 \u00bd \u2167 \u0663\u0664",
]


def save(path, value):
    with open(path, "w") as f:
        json.dump(value, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def heldout(tok, want=10000):
    r, parts, n = random.Random(HELDOUT_SEED), [], 0
    while n < want:
        parts.append(raw_document(r))
        n += len(tok.encode(parts[-1]))
    return "\n\n".join(parts) + "\n", n


def conversations():
    """Ten conversations for the renderer: the shapes of the format rather than what the model knows."""
    tool = dict(
        type="function",
        function=dict(
            name="get_weather",
            description="Current weather for a city.",
            parameters=dict(
                type="object",
                properties=dict(city=dict(type="string"), days=dict(type="integer")),
                required=["city"],
            ),
        ),
    )
    u, a = user, bot
    call = [
        dict(
            id="c1",
            type="function",
            function=dict(name="get_weather", arguments='{"city": "Oslo", "days": 3}'),
        )
    ]
    two = call + [
        dict(
            id="c2",
            type="function",
            function=dict(
                name="get_weather", arguments='{"city": "R\u00f6m \\"x\\"", "days": 1.5}'
            ),
        )
    ]
    res = lambda i, t: dict(role="tool", tool_call_id=i, content=t)
    return [
        dict(messages=[u("Hello.")], effort="max"),
        dict(messages=[u("Hello.")], thinking=False),
        dict(messages=[u("Hello.")]),
        dict(
            messages=[dict(role="system", content="Be concise."), u("What is 12 + 34?")],
            effort="low",
        ),
        dict(
            messages=[u("Hi"), a("A greeting.", "Hello! How can I help you?"), u("Who are you?")],
            effort="max",
        ),
        dict(messages=[u("Hi"), a("", "Hello!"), u("Bye", name='a "b" & c')], thinking=False),
        dict(messages=[u("Literal <|end_of_msg|> stays text.")], effort="high"),
        dict(messages=[u("Weather in Oslo?")], tools=[tool], effort="max"),
        dict(
            messages=[
                u("Weather in Oslo?"),
                a("I need the weather in Oslo.", "", tool_calls=call),
                res("c1", "sunny, 18 degrees"),
            ],
            tools=[tool],
            effort="max",
        ),
        dict(
            messages=[
                u("Both?"),
                a("", "", tool_calls=two),
                res("c2", "rain"),
                res("c1", '{"t": 3}'),
            ],
            tools=[tool],
            effort="max",
        ),
    ]


def vectors(net, tok, reference, folder):
    out = dict(
        about="Made by tools/nano/make_tests.py. strings: plain text and ids. conversations: input of the chat renderer and "
        "ids. forward: float64 results on the exported files: at every position the five largest logits' ids (best "
        "first) and the margin of the best over the second; all logits of the last position."
    )
    out["strings"] = [dict(text=s, ids=tok.encode(s)) for s in STRINGS]
    out["conversations"] = [
        dict(input=c, ids=tok.encode_segments(chat.render(**c))) for c in conversations()
    ]
    c = next(cases("tool", 1, 31))
    sequences = [
        tok.encode(heldout(tok, 50)[0])[:12],
        data.prompt_and_reply(next(cases("+", 1, 8)), tok),
        data.encode(c, tok)[0][:200],
    ]
    sequences[1] = (sequences[1][0] + sequences[1][1])[:60]
    ref = None
    if reference:
        sys.path.insert(0, reference)
        import k3_reference

        ref = k3_reference.K3(folder)
    out["forward"], worst = [], 0.0
    for ids in sequences:
        z = logits(net, ids).detach()
        if ref:
            worst = max(worst, float((z - torch.from_numpy(ref.logits(ids))).abs().max()))
        v, i = z.topk(5, -1)
        out["forward"].append(
            dict(
                ids=ids,
                top5=i.tolist(),
                margin=[round(x, 6) for x in (v[:, 0] - v[:, 1]).tolist()],
                last=[round(x, 6) for x in z[-1].tolist()],
            )
        )
    if ref:
        out["largest_difference_to_reference"] = float(f"{worst:.2g}")
        print("largest difference to the NumPy reference:", worst)
    return out


def candidates():
    """(name, conversation, check) in the order they are wanted; the last reply is what the model has to produce."""
    u = user
    plain = lambda q, *check, **kw: (
        dict(messages=[u(q)], effort="max", **kw),
        dict(contains=list(check)),
    )
    yield "who", *plain("Who are you?", "Trireme's nano model")
    yield "capital", *plain("What is the capital of France?", "Paris")
    yield "opposite", *plain("What is the opposite of hot?", "cold")
    yield "colour", *plain("What colour is grass?", "green")
    # several tries under one name: the first that is solved is kept
    for a, b in ((47, 38), (12, 34), (25, 31), (64, 23)):
        yield "sum", *plain(f"What is {a} + {b}?", f"{a} + {b} = {a + b}")
    for a, b in ((93, 57), (78, 35), (86, 42)):
        yield "difference", *plain(f"What is {a} - {b}?", f"{a} - {b} = {a - b}")
    yield "count", *plain("Count from 3 to 9.", "3, 4, 5, 6, 7, 8, 9")
    for words in ("green lamp 42 zorvik", "green lamp fox", "lamp"):
        yield "echo", *plain(f"Repeat: {words}", words)
    for name in ("Selma", "Otto", "Mia"):
        said = [u(f"My name is {name}."), bot("I remember it.", "Noted."), u("What is my name?")]
        yield "name", dict(messages=said, effort="max"), dict(contains=[name])
    yield "story", *plain("Tell me a story about a fox.", "fox")
    for d in (3000, 2048, 1024, 600, 256, 60):
        for c in cases("recall", 4, 4100 + d, distance=d):
            full = dict(c, messages=c["messages"])
            yield (
                f"recall_{d}",
                dict(full, messages=full["messages"][:-1]),
                dict(contains=[c["check"]]),
                full,
            )
    tool = dict(
        type="function",
        function=dict(
            name="get_weather",
            description="Get the weather of a city.",
            parameters=dict(
                type="object",
                properties=dict(city=dict(type="string", description="City name")),
                required=["city"],
            ),
        ),
    )
    add = dict(
        type="function",
        function=dict(
            name="add",
            description="Add two numbers.",
            parameters=dict(
                type="object",
                properties=dict(a=dict(type="integer"), b=dict(type="integer")),
                required=["a", "b"],
            ),
        ),
    )
    for city in ("Lisbon", "Paris", "Oslo", "Rome", "Tokyo"):
        yield (
            "tool_call",
            dict(messages=[u(f"What is the weather in {city}?")], tools=[tool], effort="max"),
            dict(tool_call=dict(name="get_weather", arguments=dict(city=city))),
        )
    made = dict(
        id="call_1",
        type="function",
        function=dict(name="get_weather", arguments='{"city": "Lisbon"}'),
    )
    for result in ("sunny, 21 degrees", '{"temperature": 21, "condition": "sunny"}'):
        yield (
            "agent_loop",
            dict(
                messages=[
                    u("What is the weather in Lisbon?"),
                    bot("I need the weather in Lisbon.", "", tool_calls=[made]),
                    dict(role="tool", tool_call_id="call_1", content=result),
                ],
                tools=[tool],
                effort="max",
            ),
            dict(contains=["Lisbon", "sunny", "21"]),
        )
    yield (
        "tool_call_numbers",
        dict(messages=[u("Use the tool to add 17 and 25.")], tools=[tool, add], effort="max"),
        dict(tool_call=dict(name="add", arguments=dict(a=17, b=25))),
    )
    yield (
        "no_thinking",
        dict(messages=[u("What is the capital of Japan?")], thinking=False),
        dict(contains=["Tokyo"]),
    )
    yield (
        "memory_over_turns",
        dict(
            messages=[
                u("My name is Selma."),
                bot("I remember it.", "Noted."),
                u("What is 2 + 3?"),
                bot("2 + 3. Ones: 2 + 3 = 5. Tens: 0 + 0 + 0 = 0. So 2 + 3 = 5.", "2 + 3 = 5."),
                u("What is my name?"),
            ],
            effort="max",
        ),
        dict(contains=["Selma"]),
    )


def main():
    a = argparse.ArgumentParser()
    a.add_argument("folder")
    a.add_argument("out")
    a.add_argument("--reference")
    a = a.parse_args()
    os.makedirs(a.out, exist_ok=True)
    net, tok = load_export(a.folder, torch.float64)
    text, n = heldout(tok)
    with open(os.path.join(a.out, "heldout.txt"), "w") as f:
        f.write(text)
    print("held-out text:", len(text), "bytes,", n, "tokens")
    save(os.path.join(a.out, "vectors.json"), vectors(net, tok, a.reference, a.folder))
    net, tok = load_export(a.folder)
    solved = {}
    far = 0
    for name, c, want, *known in candidates():
        # the longest distance that works, and a short one
        if name in solved or (name.startswith("recall") and name != "recall_60" and far):
            continue
        c.pop("check", None)
        prompt = tok.encode_segments(chat.render(**c))
        if known:
            # a long prompt is read in one pass: greedy decoding gives the known reply or it does not
            ids = data.prompt_and_reply(known[0], tok)[1]
            good = exact(net, [(prompt, ids)])[0]
            got = chat.parse(ids, tok)
            far += good and name != "recall_60"
        else:
            ids = generate(net, tok, prompt)
            got = chat.parse(ids, tok, c.get("thinking", True))
            good = got["ok"] and all(x in got["content"] for x in want.get("contains", []))
            if name in ("count", "echo"):
                good = good and got["content"].rstrip(".") == want["contains"][0]
            if "tool_call" in want:
                good = good and got["tool_calls"] == [want["tool_call"]]
        print("solved" if good else "FAILED", name, repr(got["content"])[:100], got["tool_calls"])
        if good:
            solved[name] = dict(
                name=name, **c, expect=want, prompt_tokens=len(prompt), reply_tokens=len(ids)
            )
    save(os.path.join(a.out, "tasks.json"), list(solved.values()))


if __name__ == "__main__":
    main()
