"""K3's chat format: conversations -> segments -> token ids, and a parser for what the model answers.

A segment is (text, is_marker).  Every segment is encoded on its own, so a tokenizer never merges across a border.
`python3 chat.py VECTORS.json` compares the segments with published vectors, if you have them.
"""

import json
import sys

EFFORT = (
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
    "supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort=%s`."
)
TOOLS = "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n%s\n```"
MORE_TOOLS = (
    "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\n"
    "Here are the specs for the extended tools.\n\n```json\n%s\n```"
)
REQUIRED = (
    "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message."
)
NONE = "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message."
RAW_JSON = "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting."
JSON_OBJECT = "The system is invoked with `response_format=json_object`.\n" + RAW_JSON
JSON_SCHEMA = (
    "The system is invoked with `response_format=json_schema`.\n"
    + RAW_JSON
    + "\nThe JSON data must match the following schema:\n```json\n%s\n```"
)


def canonical(value):
    """Keys sorted recursively, no spaces, non-ASCII kept."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def open_tag(tag, *attrs):
    out = [("<|open|>", True), (tag, False)]
    for k, v in attrs:
        v = str(v).replace("&", "&amp;").replace('"', "&quot;")
        out += [(" " + k, False), ('="', False)] + ([(v, False)] if v else []) + [('"', False)]
    return out + [("<|sep|>", True)]


def close_tag(tag):
    return [("<|close|>", True), (tag, False), ("<|sep|>", True)]


def body(content):
    """Text, or a list of text parts that stay separate segments."""
    parts = [content] if isinstance(content, (str, type(None))) else [p["text"] for p in content]
    return [(p, False) for p in parts if p]


def message(attrs, inner):
    return open_tag("message", *attrs) + inner + close_tag("message") + [("<|end_of_msg|>", True)]


def argument(key, v):
    kind = (
        "string"
        if isinstance(v, str)
        else "boolean"
        if isinstance(v, bool)
        else "null"
        if v is None
        else "number"
        if isinstance(v, (int, float))
        else "object"
        if isinstance(v, dict)
        else "array"
    )
    return (
        open_tag("argument", ("key", key), ("type", kind))
        + body(v if kind == "string" else json.dumps(v, ensure_ascii=False))
        + close_tag("argument")
    )


def calls(tool_calls):
    out = open_tag("tools")
    for i, t in enumerate(tool_calls, 1):
        f = t["function"]
        out += open_tag("call", ("tool", f["name"]), ("index", i))
        args = f.get("arguments")
        if isinstance(args, str):
            try:
                args = json.loads(args) if args.strip() else {}
            except ValueError:
                out += (
                    open_tag("json", ("type", "object")) + body(f["arguments"]) + close_tag("json")
                )
                args = {}
        for k, v in (args or {}).items():
            out += argument(k, v)
        out += close_tag("call")
    return out + close_tag("tools")


def reply(m, thinking, part=None):
    """Body of an assistant message; part="after_stub" leaves out the tag that a generation prompt has opened."""
    think = m.get("reasoning_content") or m.get("reasoning") or ""
    out = []
    if thinking:
        out += open_tag("think") + body(think if think.strip() else "") + close_tag("think")
    out += open_tag("response") + body(m.get("content")) + close_tag("response")
    if m.get("tool_calls"):
        out += calls(m["tool_calls"])
    return out[3:] if part == "after_stub" else out


def tool_run(run, last):
    """A run of tool results in the order of the calls that they answer: [(name, message)]."""
    made = (last or {}).get("tool_calls") or []
    at = {t.get("id"): i for i, t in enumerate(made)}
    if made and all(m.get("tool_call_id") in at for m in run):
        run = sorted(run, key=lambda m: at[m["tool_call_id"]])
        return [(made[at[m["tool_call_id"]]]["function"]["name"], m) for m in run]
    return [
        (m.get("tool") or m.get("name") or made[i]["function"]["name"], m)
        for i, m in enumerate(run)
    ]


def render(
    messages,
    tools=None,
    thinking=True,
    effort=None,
    tool_choice=None,
    response_format=None,
    stub=True,
):
    """The whole prompt as segments, in the official order."""
    out = []
    system = lambda kind, text: message([("role", "system"), ("type", kind)], body(text.strip()))
    if tools:
        out += message(
            [("role", "system"), ("type", "tool-declare")], body(TOOLS % canonical(tools))
        )
    if thinking and effort:
        out += system("thinking-effort", EFFORT % effort)
    i, last = 0, None
    while i < len(messages):
        m = messages[i]
        role, name = m["role"], [("name", m["name"])] if m.get("name") else []
        if role == "tool":
            j = i
            while j < len(messages) and messages[j]["role"] == "tool":
                j += 1
            for k, (tool, t) in enumerate(tool_run(messages[i:j], last), 1):
                out += message([("role", "tool"), ("tool", tool), ("index", k)], body(t["content"]))
            i = j
            continue
        if role == "assistant":
            out += message([("role", role)] + name, reply(m, thinking))
            last = m
        elif role == "system" and m.get("tools"):
            out += message(
                [("role", role), ("type", "tool-declare")], body(MORE_TOOLS % canonical(m["tools"]))
            )
        else:
            out += message([("role", role)] + name, body(m["content"]))
        i += 1
    if tool_choice in ("required", "none"):
        out += system("tool-choice", REQUIRED if tool_choice == "required" else NONE)
    if response_format and response_format.get("type") == "json_object":
        out += system("response-format", JSON_OBJECT)
    elif response_format and response_format.get("type") == "json_schema":
        s = response_format["json_schema"]
        out += system(
            "response-format", JSON_SCHEMA % canonical(s.get("schema", s.get("json_schema", s)))
        )
    if stub:
        out += open_tag("message", ("role", "assistant")) + open_tag(
            "think" if thinking else "response"
        )
    return out


def parse(ids, tok, thinking=True):
    """Generated ids -> {reasoning, content, tool_calls, ok}; ok only if every element is where it belongs."""
    m = {k: tok.special[k] for k in ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")}
    got = dict(reasoning="", content="", tool_calls=[], ok=True)
    stack, text, i = [("think" if thinking else "response", {})], [], 0
    while i < len(ids):
        t = ids[i]
        if t == m["<|end_of_msg|>"]:
            got["ok"] &= stack == [] and i == len(ids) - 1
            return got
        if t in (m["<|open|>"], m["<|close|>"]):
            j = i + 1
            while j < len(ids) and ids[j] != m["<|sep|>"]:
                j += 1
            head = tok.decode(ids[i + 1 : j])
            tag, _, rest = head.partition(" ")
            if t == m["<|open|>"]:
                attrs = dict(p.split("=", 1) for p in rest.split('" ') if "=" in p)
                attrs = {
                    k: v.strip('"').replace("&quot;", '"').replace("&amp;", "&")
                    for k, v in attrs.items()
                }
                stack.append((tag, attrs))
                if tag == "call":
                    got["tool_calls"].append(dict(name=attrs.get("tool"), arguments={}))
            else:
                value = tok.decode(text)
                if tag == "message" and not stack:
                    pass
                elif not stack or stack[-1][0] != tag:
                    got["ok"] = False
                else:
                    attrs = stack.pop()[1]
                    if tag == "think":
                        got["reasoning"] = value
                    elif tag == "response":
                        got["content"] = value
                    elif tag == "argument" and got["tool_calls"]:
                        try:
                            v = value if attrs.get("type") == "string" else json.loads(value)
                            got["tool_calls"][-1]["arguments"][attrs.get("key")] = v
                        except ValueError:
                            got["ok"] = False
            text, i = [], j + 1
            continue
        text.append(t)
        i += 1
    got["ok"] = False  # ran out of tokens before the end of the message
    return got


if __name__ == "__main__":
    bad = 0
    cases = [c for c in json.load(open(sys.argv[1]))["cases"] if "image" not in c["name"]]
    for c in cases:
        a = dict(c["input"])
        a["stub"] = a.pop("add_generation_prompt", True)
        if "thinking_effort" in a:
            a["effort"] = a.pop("thinking_effort")
        got = [list(s) for s in render(**a)]
        if got != c["segments"]:
            bad += 1
            print("differs:", c["name"])
    print(f"{len(cases) - bad} of {len(cases)} conversations equal")
    sys.exit(bad != 0)
