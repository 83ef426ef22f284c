"""A second tokenizer and chat renderer, slow and simple, in the standard library only: what the text
room is compared with. Written from the description of the format, not from src/text."""
import base64
import json
import pathlib
import unicodedata

# Script=Han, Unicode 14 (Scripts.txt)
HAN = [(0x2E80, 0x2E99), (0x2E9B, 0x2EF3), (0x2F00, 0x2FD5), (0x3005, 0x3005), (0x3007, 0x3007),
       (0x3021, 0x3029), (0x3038, 0x303B), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFA6D),
       (0xFA70, 0xFAD9), (0x16FE2, 0x16FE3), (0x16FF0, 0x16FF1), (0x20000, 0x2A6DF),
       (0x2A700, 0x2B738), (0x2B740, 0x2B81D), (0x2B820, 0x2CEA1), (0x2CEB0, 0x2EBE0),
       (0x2F800, 0x2FA1D), (0x30000, 0x3134A)]
SPACE = set("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {chr(c) for c in range(0x2000, 0x200B)}
CONTRACTIONS = ["s", "t", "re", "ve", "m", "ll", "d"]


def is_han(c):
    return any(a <= ord(c) <= b for a, b in HAN)


def is_letter(c):
    return unicodedata.category(c)[0] == "L"


def is_number(c):
    return unicodedata.category(c)[0] == "N"


def is_upper(c):
    return (unicodedata.category(c) in ("Lu", "Lt", "Lm", "Lo") or unicodedata.category(c)[0] == "M") and not is_han(c)


def is_lower(c):
    return (unicodedata.category(c) in ("Ll", "Lm", "Lo") or unicodedata.category(c)[0] == "M") and not is_han(c)


def is_symbol(c):
    return c not in SPACE and not is_letter(c) and not is_number(c)


def run(text, at, test, most=None):
    """Where the run of characters that pass `test` ends."""
    end = at
    while end < len(text) and test(text[end]) and (most is None or end - at < most):
        end += 1
    return end


def contraction(text, at):
    if text[at:at + 1] != "'":
        return at
    for tail in CONTRACTIONS:
        have = text[at + 1:at + 1 + len(tail)].replace("\u017f", "s").lower()
        if have == tail:
            return at + 1 + len(tail)
    return at


def word(text, at, lower_needed):
    """The second and third alternative: a lead, capitals, small letters, a contraction."""
    leads = [at]
    if at < len(text) and text[at] not in "\r\n" and not is_letter(text[at]) and not is_number(text[at]):
        leads.insert(0, at + 1)
    for start in leads:
        capitals = run(text, start, is_upper)
        if lower_needed:
            for middle in range(capitals, start - 1, -1):
                end = run(text, middle, is_lower)
                if end > middle:
                    return contraction(text, end)
        elif capitals > start:
            return contraction(text, run(text, capitals, is_lower))
    return None


def pre_token(text, at):
    end = run(text, at, is_han)
    if end > at:
        return end
    for lower_needed in (True, False):
        end = word(text, at, lower_needed)
        if end is not None:
            return end
    end = run(text, at, is_number, 3)
    if end > at:
        return end
    start = at + 1 if text[at] == " " else at
    end = run(text, start, is_symbol)
    if end > start:
        return run(text, end, lambda c: c in "\r\n")
    end = run(text, at, lambda c: c in SPACE)
    newline = max(text.rfind("\n", at, end), text.rfind("\r", at, end))
    if newline >= 0:
        return newline + 1
    return end if end == len(text) or end - at == 1 else end - 1


def slices(text, slice_chars=400000, run_chars=25000):
    for at in range(0, len(text), slice_chars):
        part = text[at:at + slice_chars]
        start, count, kind = 0, 0, None
        for i, c in enumerate(part):
            if c.isspace() != kind:
                kind, count = c.isspace(), 1
            elif count == run_chars:
                yield part[start:i]
                start, count = i, 1
            else:
                count += 1
        yield part[start:]


class Tokenizer:
    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.ranks, self.bytes = {}, {}
        for line in (folder / "tiktoken.model").read_text().splitlines():
            token, rank = line.split()
            self.ranks[base64.b64decode(token)] = int(rank)
        self.added = {}
        config = folder / "tokenizer_config.json"
        if config.exists():
            table = json.loads(config.read_text())["added_tokens_decoder"]
            self.added = {entry["content"]: int(key) for key, entry in table.items()}
            for i in range(len(self.ranks), max(self.added.values()) + 1):
                if i not in self.added.values():
                    self.added[f"<|reserved_token_{i}|>"] = i
        self.bytes = {i: t for t, i in self.ranks.items()}
        self.bytes.update({i: t.encode() for t, i in self.added.items()})

    def merge(self, data):
        if data in self.ranks:
            return [self.ranks[data]]
        parts = [data[i:i + 1] for i in range(len(data))]
        while True:
            pairs = [(self.ranks[a + b], i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if a + b in self.ranks]
            if not pairs:
                return [self.ranks[p] for p in parts]
            _, i = min(pairs)
            parts[i:i + 2] = [parts[i] + parts[i + 1]]

    def plain(self, text):
        ids, at = [], 0
        while at < len(text):
            end = pre_token(text, at)
            ids += self.merge(text[at:end].encode())
            at = end
        return ids

    def markup(self, text):
        ids, done, at = [], 0, 0
        names = sorted(self.added, key=len, reverse=True)
        while at < len(text):
            name = next((n for n in names if text.startswith(n, at)), None)
            if name is None:
                at += 1
                continue
            ids += self.plain(text[done:at]) + [self.added[name]]
            at = done = at + len(name)
        return ids + self.plain(text[done:])

    def encode(self, text, markup=False):
        return [i for part in slices(text) for i in (self.markup(part) if markup else self.plain(part))]

    def decode(self, ids):
        return b"".join(self.bytes[i] for i in ids)


# ---- chat ----

EFFORT = ("`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
          "supported values include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with `thinking_effort=%s`.")
CHOICE = {"required": "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message.",
          "none": "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message."}
FORMAT = ("The system is invoked with `response_format=%s`.\nYour response must be raw JSON data without markdown code "
          "blocks (```json) or any additional formatting.")
TOOLS = "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n%s\n```"
NEW_TOOLS = ("## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\nYou have access to all "
             "existing and extended tools.\nHere are the specs for the extended tools.\n\n```json\n%s\n```")
KINDS = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null", dict: "object", list: "array"}


def compact(value):
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


class Renderer:
    """One request to [text, is_marker] segments; `request` is what json.loads gives."""

    def __init__(self, request):
        self.request, self.out = request, []
        self.images = list(request.get("image_prompts") or [])
        self.in_text = "image_prompts" in request

    def mark(self, name):
        self.out.append([f"<|{name}|>", True])

    def put(self, *texts):
        self.out += [[t, False] for t in texts if t]

    def rich(self, text):
        parts = text.split("<|kimi_image_placeholder|>") if self.in_text else [text]
        for i, part in enumerate(parts):
            if i:
                self.out.append([self.images.pop(0), True])
            self.put(part)

    def begin(self, tag, **attrs):
        self.mark("open")
        self.put(tag)
        for key, value in attrs.items():
            self.put(" " + key, '="', str(value).replace("&", "&amp;").replace('"', "&quot;"), '"')
        self.mark("sep")

    def end(self, tag):
        self.mark("close")
        self.put(tag)
        self.mark("sep")

    def end_message(self):
        self.end("message")
        self.mark("end_of_msg")

    def note(self, kind, body):
        self.begin("message", role="system", type=kind)
        self.put(body)
        self.end_message()

    def content(self, value):
        for part in [{"type": "text", "text": value}] if isinstance(value, str) else value or []:
            if part["type"].startswith("image"):
                self.out.append([self.images.pop(0), True])
            else:
                self.rich(part["text"])

    def call(self, call, index):
        function = call.get("function", call)
        self.begin("call", tool=function["name"], index=index)
        args = function.get("arguments") or {}
        if isinstance(args, str) and not args.strip():
            args = {}
        if isinstance(args, str):
            try:
                args = json.loads(args)
            except json.JSONDecodeError:
                self.begin("json", type="object")
                self.rich(args)
                self.end("json")
                args = {}
        for key, value in args.items():
            self.begin("argument", key=key, type=KINDS[type(value)])
            self.rich(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
            self.end("argument")
        self.end("call")

    def assistant(self, message, thinking, named):
        self.begin("message", role="assistant", **named)
        if thinking:
            self.begin("think")
            text = message.get("reasoning_content") or message.get("reasoning") or ""
            self.rich(text if text.strip() else "")
            self.end("think")
        self.begin("response")
        self.content(message.get("content"))
        self.end("response")
        if message.get("tool_calls"):
            self.begin("tools")
            for i, call in enumerate(message["tool_calls"], 1):
                self.call(call, i)
            self.end("tools")
        self.end_message()

    @staticmethod
    def sort_results(messages):
        """Runs of tool results that all answer the assistant before them, in the order of its calls."""
        out, calls, i = [], [], 0
        while i < len(messages):
            if messages[i]["role"] == "assistant":
                calls = messages[i].get("tool_calls") or []
            if messages[i]["role"] != "tool":
                out.append(messages[i])
                i += 1
                continue
            end = i
            while end < len(messages) and messages[end]["role"] == "tool":
                end += 1
            ids = [str(c["id"]) for c in calls if c.get("id") is not None]
            wanted = [m.get("tool_call_id", m.get("id")) for m in messages[i:end]]
            if all(w is not None and str(w) in ids for w in wanted):
                first = [next(k for k, c in enumerate(calls) if str(c.get("id")) == str(w)) for w in wanted]
                run_of = sorted(zip(first, range(i, end)))
                out += [dict(messages[m], tool=calls[k].get("function", calls[k])["name"]) for k, m in run_of]
            else:
                out += messages[i:end]
            i = end
        return out

    def conversation(self, thinking):
        calls, count = [], 0
        for m in self.sort_results(self.request["messages"]):
            named = {"name": m["name"]} if m.get("name") else {}
            if m["role"] == "assistant":
                calls, count = m.get("tool_calls") or [], 0
                self.assistant(m, thinking, named)
            elif m["role"] == "tool":
                count += 1
                name = m["tool"] if "tool" in m else m.get("name")
                if name is None:
                    name = calls[count - 1].get("function", calls[count - 1])["name"]
                self.begin("message", role="tool", tool=name, index=count)
                self.content(m.get("content"))
                self.end_message()
            elif m["role"] == "system" and m.get("tools"):
                self.note("tool-declare", NEW_TOOLS % compact(m["tools"]))
            else:
                self.begin("message", role=m["role"], **named)
                self.content(m.get("content"))
                self.end_message()

    def render(self):
        r = self.request
        thinking = r.get("thinking", True)
        if r.get("tools"):
            self.note("tool-declare", TOOLS % compact(r["tools"]))
        if thinking and r.get("thinking_effort"):
            self.note("thinking-effort", EFFORT % r["thinking_effort"])
        self.conversation(thinking)
        if r.get("tool_choice") in CHOICE:
            self.note("tool-choice", CHOICE[r["tool_choice"]])
        form = r.get("response_format")
        kind = form.get("type") if isinstance(form, dict) else form
        if kind == "json_object":
            self.note("response-format", FORMAT % kind)
        if kind == "json_schema":
            outer = form["json_schema"]
            schema = outer.get("schema", outer.get("json_schema", outer))
            self.note("response-format", FORMAT % kind +
                      f"\nThe JSON data must match the following schema:\n```json\n{compact(schema)}\n```")
        if r.get("add_generation_prompt", True):
            self.begin("message", role="assistant")
            self.begin("think" if thinking else "response")
        return self.out
