#!/usr/bin/env python3
"""The chat renderer against a second one in Python, whose json module is the one that the format
prescribes: random conversations, numbers and strings of every kind; and what must be refused."""
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import unittest

import text_oracle

SMALL = pathlib.Path(os.environ["TRIREME_SOURCE"]) / "tests" / "data" / "text" / "small"
ORACLE = text_oracle.Tokenizer(SMALL)
STRINGS = ["", " ", "a", "Hello, \"world\"", "<|open|>message<|sep|>", "&amp;\"&quot;", "\u8239 \U0001f6a3", "line\nbreak\t\x01\x7f",
           "\u2028\\/", ".hidden", "'s", "\xa0", "\x1c\x85", "{\"a\":", "null", "<|kimi_image_placeholder|>"]


def chat(text, *flags):
    done = subprocess.run([os.environ["TRIREME"], "tokenize", str(SMALL), "--chat", "-", "--json", *flags],
                          input=text.encode("utf-8", "surrogatepass"), capture_output=True)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def encode(segments):
    return [i for text, is_marker in segments for i in ORACLE.encode(text, markup=is_marker)]


class Maker:
    """Random requests that the reference would render."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def string(self):
        return "".join(self.rng.choice(STRINGS) for _ in range(self.rng.randint(1, 3)))

    def number_text(self):
        r = self.rng
        return r.choice([
            lambda: str(r.randint(-10 ** r.randint(1, 60), 10 ** r.randint(1, 60))),
            lambda: repr(struct.unpack("<d", struct.pack("<Q", r.getrandbits(64)))[0]).replace("inf", "1e999").replace("nan", "NaN"),
            lambda: repr(r.choice([-1, 1]) * 2.0 ** r.randint(-1074, 1023)),
            lambda: f"{r.choice(['-', ''])}{r.randint(0, 99999)}.{r.randint(0, 10 ** r.randint(1, 30))}{r.choice(['', 'e5', 'E-7', 'e+20', 'e-400', 'E400'])}",
            lambda: r.choice(["-0", "0", "-0.0", "1e16", "1e15", "9999999999999998.0", "0.0001", "0.00001", "1E5", "2.50", "5e-324",
                              "1.7976931348623157e308", "NaN", "Infinity", "-Infinity", "123456789012345678901234567890"]),
        ])()

    def string_text(self):
        text = json.dumps(self.string(), ensure_ascii=self.rng.random() < 0.5)
        return text.replace("a", "\\u0061") if self.rng.random() < 0.2 and "\\" not in text else text

    def value_text(self, depth):
        r = self.rng
        kind = r.randint(0, 7 if depth else 4)
        if kind < 2:
            return self.number_text()
        if kind < 4:
            return self.string_text()
        if kind == 4:
            return r.choice(["true", "false", "null"])
        blank = lambda: r.choice(["", "", " ", "\n\t"])
        if kind == 5:
            return "[" + ",".join(blank() + self.value_text(depth - 1) + blank() for _ in range(r.randint(0, 3))) + "]"
        return self.object_text(depth, blank)

    def object_text(self, depth, blank=lambda: ""):
        keys = [self.string_text() for _ in range(self.rng.randint(0, 4))] + (['"k"', '"k"'] if self.rng.random() < 0.2 else [])
        return "{" + ",".join(f"{blank()}{k}{blank()}:{blank()}{self.value_text(depth - 1)}{blank()}" for k in keys) + "}"

    def arguments(self):
        r = self.rng
        return r.choice([
            lambda: json.dumps(self.object_text(3)), lambda: self.object_text(3), lambda: self.object_text(1),
            lambda: json.dumps(r.choice(["", " \n", "{\"z\":", "{'a': 1}", "01", "[1,]", "\ufeff{}", "{\"a\":1} x", "{\"a\":\"\t\"}"])),
            lambda: "null"])()

    def content(self):
        r = self.rng
        if r.random() < 0.6:
            return json.dumps(self.string())
        if r.random() < 0.2:
            return "null"
        return "[" + ",".join('{"type":"text","text":%s}' % json.dumps(self.string()) for _ in range(r.randint(0, 3))) + "]"

    def tools(self):
        return "[" + ",".join('{"type":"function","function":{"name":%s,"parameters":%s}}' %
                              (json.dumps(self.string()), self.object_text(3)) for _ in range(self.rng.randint(0, 2))) + "]"

    def message(self, calls):
        """One message as JSON text; `calls` holds the ids of the last assistant's calls."""
        r = self.rng
        named = ',"name":%s' % json.dumps(self.string()) if r.random() < 0.2 else ""
        kind = r.randint(0, 9)
        if kind < 3:
            return '{"role":"user","content":%s%s}' % (self.content(), named)
        if kind == 3:
            tools = ',"tools":' + self.tools() if r.random() < 0.4 else ""
            return '{"role":"system","content":%s%s%s}' % (self.content(), named, tools)
        if kind < 7 or not calls:
            calls[:] = [r.choice(["a", "b", "c", 7]) for _ in range(r.randint(0, 3))]
            listed = ",".join('{"id":%s,"function":{"name":%s,"arguments":%s}}' %
                              (json.dumps(c), json.dumps(self.string()), self.arguments()) for c in calls)
            thought = r.choice(["", ',"reasoning_content":%s', ',"reasoning":%s', ',"reasoning_content":null,"reasoning":%s'])
            return '{"role":"assistant","content":%s%s%s%s}' % (
                self.content(), thought % json.dumps(self.string()) if thought else "", named,
                ',"tool_calls":[%s]' % listed if listed or r.random() < 0.3 else "")
        key = r.choice(["tool", "name"])
        extra = ',"%s":%s' % (key, json.dumps(self.string()))
        return '{"role":"tool","content":%s,"tool_call_id":%s%s}' % (
            self.content(), json.dumps(r.choice(calls + ["other"] if r.random() < 0.2 else calls)), extra)

    def request(self):
        r = self.rng
        calls = []
        parts = ['"messages":[%s]' % ",".join(self.message(calls) for _ in range(r.randint(0, 8)))]
        if r.random() < 0.3:
            parts.append('"tools":' + self.tools())
        if r.random() < 0.5:
            parts.append('"thinking":' + r.choice(["true", "false"]))
        if r.random() < 0.3:
            parts.append('"thinking_effort":' + r.choice(['"low"', '"high"', '"max"', "null"]))
        if r.random() < 0.3:
            parts.append('"tool_choice":' + r.choice(['"auto"', '"none"', '"required"']))
        if r.random() < 0.3:
            schema = self.object_text(3).replace('"schema"', '"s"')
            parts.append('"response_format":' + r.choice(
                ['{"type":"text"}', '{"type":"json_object"}', '"json_object"', '{"type":"json_schema","json_schema":{"schema":%s}}' % schema,
                 '{"type":"json_schema","json_schema":%s}' % schema]))
        if r.random() < 0.2:
            parts.append('"add_generation_prompt":false')
        r.shuffle(parts)
        return "{" + ",".join(parts) + "}"


class Render(unittest.TestCase):
    def compare(self, text):
        request = json.loads(text)
        want = text_oracle.Renderer(request).render()
        code, out, err = chat(text)
        self.assertEqual(code, 0, err + text)
        got = json.loads(out)
        self.assertEqual(got["segments"], want, text)
        self.assertEqual(got["ids"], encode(want), text)

    def test_random_conversations(self):
        for seed in range(250):
            with self.subTest(seed=seed):
                self.compare(Maker(seed).request())

    def test_numbers_are_printed_as_python_does(self):
        maker = Maker(1)
        numbers = [maker.number_text() for _ in range(4000)] + ["9" * 4300, "-" + "9" * 4300, "2." + "5" * 5000]
        args = "{" + ",".join(f'"{i}":[{n}]' for i, n in enumerate(numbers)) + "}"
        self.compare('{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":%s}}]}]}' % args)

    def test_images(self):
        prompt = "<|media_begin|>image 2x3<|media_content|><|media_pad|><|media_end|>"
        self.compare(json.dumps({"messages": [
            {"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "a<|kimi_image_placeholder|>"}]},
            {"role": "assistant", "content": "<|kimi_image_placeholder|>b"}], "image_prompts": [prompt, prompt, prompt]}))
        code, out, err = chat(json.dumps({"messages": [{"role": "user", "content": [
            {"type": "image"}, {"type": "text", "text": "<|kimi_image_placeholder|>"}]}], "images": [[20, 30, 3]]}))
        segments = json.loads(out)["segments"]
        self.assertIn(["<|media_begin|>image 20x30<|media_content|>" + "<|media_pad|>" * 3 + "<|media_end|>", True], segments)
        self.assertIn(["<|kimi_image_placeholder|>", False], segments)   # a user's text moves no image


class Refused(unittest.TestCase):
    CASES = [
        ('[]', "must be a JSON object"),
        ('{}', "messages: is missing"),
        ('{"messages":{}}', "messages: must be a list"),
        ('{"messages":[5]}', "messages[0].role: must be"),
        ('{"messages":[{"role":"user"},{"role":"robot"}]}', "messages[1].role: must be"),
        ('{"messages":[{"role":"user","content":5}]}', "messages[0].content: must be a string"),
        ('{"messages":[{"role":"user","content":["x"]}]}', "messages[0].content[0]: must be an object with a type"),
        ('{"messages":[{"role":"user","content":[{"type":"audio"}]}]}', "messages[0].content[0]: a part of type 'audio'"),
        ('{"messages":[{"role":"user","content":[{"type":"image"}]}]}', "messages[0].content: image 1"),
        ('{"messages":[],"image_prompts":["x"]}', "image_prompts: 1 are given, the messages take 0"),
        ('{"messages":[{"role":"tool","content":[{"type":"image"}],"name":"f"}],"images":[[1,1,1]]}', "only user messages"),
        ('{"messages":[],"images":[[1,1]]}', "images[0]: must be [width, height, positions]"),
        ('{"messages":[],"images":[[1,1,0]]}', "images[0]: must be"),
        ('{"messages":[{"role":"user","name":5}]}', "messages[0].name: must be a string"),
        ('{"messages":[{"role":"assistant","tool_calls":{}}]}', "messages[0].tool_calls: must be a list"),
        ('{"messages":[{"role":"assistant","tool_calls":[{"function":{}}]}]}', "messages[0].tool_calls[0]: must be an object with a function"),
        ('{"messages":[{"role":"assistant","tool_calls":[{"name":"f"},{"name":"f","arguments":"[1]"}]}]}',
         "messages[0].tool_calls[1].arguments: must be a JSON object"),
        ('{"messages":[{"role":"assistant","tool_calls":[{"name":"f","arguments":7}]}]}', "messages[0].tool_calls[0].arguments: must be"),
        ('{"messages":[{"role":"assistant","tool_calls":[{"name":"f","arguments":"{\\"a\\":' + "9" * 4301 + '}"}]}]}', "4301 digits"),
        ('{"messages":[{"role":"user","content":"x"},{"role":"tool","content":"y"}]}', "messages[1]: a tool result needs the name"),
        ('{"messages":[{"role":"user","content":"\\ud800"}]}', "messages[0]: a lone surrogate"),
        ('{"messages":[],"tools":{}}', "tools: must be a list"),
        ('{"messages":[],"tools":[1]}', "tools[0]: must be an object"),
        ('{"messages":[{"role":"system","tools":[1]}]}', "messages[0].tools[0]: must be an object"),
        ('{"messages":[],"thinking":"yes"}', "thinking: must be true or false"),
        ('{"messages":[],"thinking_effort":"medium"}', "accepts low, high and max"),
        ('{"messages":[],"thinking_effort":3}', "thinking_effort: must be a string"),
        ('{"messages":[],"tool_choice":"any"}', "tool_choice: must be"),
        ('{"messages":[],"tool_choice":{"type":"function"}}', "tool_choice: must be"),
        ('{"messages":[],"response_format":{"type":"xml"}}', "response_format.type: must be"),
        ('{"messages":[],"response_format":{"type":"json_schema"}}', "response_format.json_schema: must hold a schema"),
        ('{"messages":[],"response_format":{"type":"json_schema","json_schema":{"schema":null}}}', "must hold a schema"),
        ('{"messages":[]', "not valid JSON: line 1, column 15"),
        ('{"messages":[]}}', "nothing may follow"),
        ('{"messages":[{"role":"user","content":"\n"}]}', "control character"),
        ('{"messages":[],"x":01}', "not valid JSON"),
        ('{"messages":[],"x":"\\x"}', "no such escape"),
    ]

    def test_one_line_that_names_the_place(self):
        for text, needle in self.CASES:
            with self.subTest(text=text[:100]):
                code, out, err = chat(text)
                self.assertEqual((code, out), (1, ""), err)
                self.assertIn("standard input: ", err)
                self.assertIn(needle, err)
                self.assertEqual(err.count("\n"), 1)

    def test_a_lone_surrogate_that_is_not_rendered_does_no_harm(self):
        text = '{"x":"\\ud800","messages":[{"role":"user","content":"\\ud83d\\ude80","content":"\\ud83d\\ude80!"}]}'
        code, out, err = chat(text)
        self.assertEqual(code, 0, err)
        self.assertIn(["\U0001f680!", False], json.loads(out)["segments"])


if __name__ == "__main__":
    assert math.isnan(float("nan"))
    unittest.main()
