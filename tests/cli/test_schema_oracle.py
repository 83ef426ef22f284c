"""Random schemas against an independent validator (python3-jsonschema): whatever is drawn from a
grammar validates, every valid instance (made here by construction, printed four ways) is taken, and
what the validator refuses is refused. `trireme schema --lines` answers; it also takes each text
token by token and byte by byte, holding every step against the mask."""
import json
import os
import random
import re
import subprocess
import sys
import unittest

TRIREME = os.path.abspath(os.environ.get("TRIREME", "build/release/trireme"))
try:
    import jsonschema
except ImportError:
    print("SKIP: python3-jsonschema is not installed; test_schema has cases of its own")
    sys.exit(77)
SEED = int(os.environ.get("TRI_SEED", "1"))
SCHEMAS = int(os.environ.get("TRI_SCHEMAS", "250"))


class Asker:
    def __init__(self):
        self.process = subprocess.Popen([TRIREME, "schema", "--lines"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


class Pattern:
    """A random regular expression and a way to draw strings that it matches."""
    PLAIN = "abcXYZ019 _-/@éß漢🙂\"\\\n"

    def __init__(self, r):
        self.r = r
        body, self.draw_body = self.alternatives(2)
        self.begin, self.end = r.random() < .8, r.random() < .8
        if "|" in body and (self.begin or self.end):
            body = f"({body})"
        self.text = ("^" if self.begin else "") + body + ("$" if self.end else "")

    def draw(self):
        noise = lambda: "".join(self.r.choice("aß\"漢") for _ in range(self.r.randrange(3)))
        return ("" if self.begin else noise()) + self.draw_body() + ("" if self.end else noise())

    def alternatives(self, depth):
        parts = [self.sequence(depth) for _ in range(self.r.choice([1, 1, 1, 2, 3]))]
        return "|".join(t for t, _ in parts), lambda: self.r.choice(parts)[1]()

    def sequence(self, depth):
        parts = [self.repeated(depth) for _ in range(self.r.randrange(1, 4))]
        return "".join(t for t, _ in parts), lambda: "".join(d() for _, d in parts)

    def repeated(self, depth):
        text, draw = self.atom(depth)
        how = self.r.choice(["", "", "", "?", "*", "+", "{2}", "{1,3}", "{2,}"])
        if how.startswith("{") and re.fullmatch(text, ""):
            how = "*"
        low, high = {"": (1, 1), "?": (0, 1), "*": (0, 3), "+": (1, 3), "{2}": (2, 2),
                     "{1,3}": (1, 3), "{2,}": (2, 4)}[how]
        return text + how, lambda: "".join(draw() for _ in range(self.r.randint(low, high)))

    def atom(self, depth):
        kind = self.r.randrange(6)
        if kind == 0 and depth:
            text, draw = self.alternatives(depth - 1)
            return f"({self.r.choice(['', '?:'])}{text})", draw
        if kind == 1:
            chars = self.r.sample("abcdefgh0123é漢", 3)
            return "[" + "".join(chars) + "x-z]", lambda: self.r.choice(chars + ["y"])
        if kind == 2:
            return "[^a-z\"]", lambda: self.r.choice("ABC0é漢\\\t")
        if kind == 3:
            return self.r.choice([("\\d", "0123456789"), ("\\w", "aZ_5"), ("\\s", " \t\n"), (".", "a \"é🙂")]) \
                if False else self.named()
        c = self.r.choice(self.PLAIN)
        return re.escape(c) if c in "\\-/" or not c.isprintable() else c.replace("\"", "\""), lambda: c

    def named(self):
        text, chars = self.r.choice([("\\d", "0123456789"), ("\\w", "aZ_5"), ("\\s", " \t\n"),
                                     (".", "a \"é🙂\\")])
        return text, lambda: self.r.choice(chars)


class Maker:
    """Random schemas within the subset, each with a way to draw valid instances."""
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.defs = {}

    def string(self):
        n = self.r.randrange(14)
        return "".join(self.r.choice("ab \"\\/\n\té漢🙂\u0001\u2028xyz<|close|>") for _ in range(n))

    def anything(self, depth=2):
        kind = self.r.randrange(7 if depth else 5)
        if kind < 5:
            return [None, True, self.r.randrange(-99, 99), self.r.choice([.5, -1e-07, 1e22, 2.25]),
                    self.string()][kind]
        if kind == 5:
            return [self.anything(depth - 1) for _ in range(self.r.randrange(3))]
        return {self.string(): self.anything(depth - 1) for _ in range(self.r.randrange(3))}

    def make(self, depth):
        kinds = [self.null, self.boolean, self.integer, self.number, self.text, self.text, self.listed,
                 self.anything_at_all]
        if depth:
            kinds += [self.array, self.array, self.object, self.object, self.object, self.union,
                      self.several, self.reference]
        return self.r.choice(kinds)(depth - 1)

    def null(self, _):
        return {"type": "null"}, lambda: None

    def boolean(self, _):
        return {"type": "boolean"}, lambda: self.r.random() < .5

    def anything_at_all(self, _):
        return self.r.choice([{}, True, {"description": "x"}]), self.anything

    def bounds(self):
        low = self.r.choice([0, 1, -5, -120, 7, 99, 1000, -10 ** 12])
        return low, low + self.r.choice([0, 1, 2, 9, 10, 57, 1000, 10 ** 9])

    def integer(self, _):
        low, high = self.bounds()
        kind = self.r.randrange(5)
        if kind == 0:
            return {"type": "integer"}, lambda: self.r.randrange(-10 ** 20, 10 ** 20)
        if kind == 1:
            return {"type": "integer", "minimum": low}, lambda: low + self.r.randrange(10 ** 6)
        if kind == 2:
            return {"type": "integer", "maximum": high}, lambda: high - self.r.randrange(10 ** 6)
        if kind == 3:
            return ({"type": "integer", "exclusiveMinimum": low - 1, "exclusiveMaximum": high + 1},
                    lambda: self.r.randint(low, high))
        return ({"type": "integer", "minimum": low - .5 if self.r.random() < .3 else low,
                 "maximum": high}, lambda: self.r.randint(low, high))

    def number(self, _):
        low, high = self.bounds()
        if self.r.random() < .4:
            return {"type": "number"}, lambda: self.r.choice(
                [0, -1, .5, 1e22, -3e-09, 123456.789, 1e300, 12345678901234567890])
        schema = {"type": "number"}
        if self.r.random() < .8:
            schema[self.r.choice(["minimum", "exclusiveMinimum"])] = low
        if len(schema) == 1 or self.r.random() < .8:
            schema[self.r.choice(["maximum", "exclusiveMaximum"])] = high + 1

        def draw():
            a = low if len({"minimum", "exclusiveMinimum"} & set(schema)) else high - 100
            b = high + 1 if len({"maximum", "exclusiveMaximum"} & set(schema)) else low + 100
            v = self.r.choice([a + (b - a) * self.r.random(), self.r.uniform(a, b), float(a) + .125,
                               self.r.randint(a, b), a + 1e-5])
            return v if a < v < b and abs(v) < 1e15 else a + (b - a) * .5
        return schema, draw

    def text(self, _):
        kind = self.r.randrange(5)
        if kind == 0:
            return {"type": "string"}, self.string
        if kind == 1:
            low = self.r.randrange(4)
            high = low + self.r.choice([0, 1, 3, 40, 300])
            schema = {"type": "string", "minLength": low, "maxLength": high}
            return schema, lambda: "".join(self.r.choice("a\"é🙂\n") for _ in range(
                self.r.randint(low, min(high, low + 30))))
        if kind == 2:
            name, values = self.r.choice(list(FORMATS.items()))
            return {"type": "string", "format": name}, lambda: self.r.choice(values)
        p = Pattern(self.r)
        return {"type": "string", "pattern": p.text}, p.draw

    def listed(self, _):
        values = [self.anything(1) for _ in range(self.r.randrange(1, 6))]
        values = [v for v in values if not isinstance(v, (list, dict))] or ["only"]
        if self.r.random() < .2:
            return {"const": values[0]}, lambda: values[0]
        return {"enum": values}, lambda: self.r.choice(values)

    def array(self, depth):
        item, draw = self.make(depth)
        low = self.r.choice([0, 0, 1, 2])
        high = self.r.choice([None, low, low + 1, low + 4])
        schema = {"type": "array", "items": item}
        if low or self.r.random() < .3:
            schema["minItems"] = low
        if high is not None:
            schema["maxItems"] = high
        first = []
        if self.r.random() < .25:
            first = [self.make(depth) for _ in range(self.r.randrange(1, 3))]
            schema["prefixItems"] = [s for s, _ in first]
            if self.r.random() < .3:
                schema["items"] = False
                schema.pop("minItems", 0)
                schema.pop("maxItems", 0)
                return schema, lambda: [d() for _, d in first[:self.r.randrange(len(first) + 1)]]

        def make():
            n = self.r.randint(low, low + 3 if high is None else min(high, low + 3))
            return [(first[i][1] if i < len(first) else draw)() for i in range(n)]
        return schema, make

    def object(self, depth):
        names = self.r.sample(["a", "b", "ab", "na me", "ké\"y", "\\", "漢", "x" * 20, ""],
                              self.r.randrange(5))
        parts = {n: self.make(depth) for n in names}
        must = [n for n in names if self.r.random() < .6]
        schema = {"type": "object", "properties": {n: s for n, (s, _) in parts.items()},
                  "required": must}
        more, kind = None, self.r.randrange(4)
        if kind == 0:
            schema["additionalProperties"] = False
        elif kind == 1:
            schema["additionalProperties"] = True
            more = self.anything
        elif kind == 2:
            schema["additionalProperties"], more = self.make(depth)
        if not names and kind == 3:
            del schema["properties"]
            more = self.anything

        def draw():
            v = {n: d() for n, (_, d) in parts.items() if n in must or self.r.random() < .5}
            for _ in range(self.r.randrange(3) if more else 0):
                key = self.r.choice(["c", "abc", "aa", "é", "x" * 19, "k\u0002", "ké"])
                v.setdefault(key, more())
            return v
        return schema, draw

    def union(self, depth):
        parts = [self.make(depth) for _ in range(self.r.randrange(1, 4))]
        return ({self.r.choice(["anyOf", "oneOf"]): [s for s, _ in parts]},
                lambda: self.r.choice(parts)[1]())

    def several(self, _):
        parts = self.r.sample([self.null, self.boolean, self.integer, self.text], 2)
        made = [p(0) for p in parts]
        if any("type" not in s for s, _ in made):
            return made[0]
        schema = {"title": "t"}
        for s, _ in made:
            schema.update({k: v for k, v in s.items() if k != "type"})
        schema["type"] = [s["type"] for s, _ in made]
        return schema, lambda: self.r.choice(made)[1]()

    def reference(self, depth):
        name = self.r.choice(["one", "t/w~o", "tree"])
        if name == "tree":
            tree = {"type": "object", "required": ["v"], "additionalProperties": False, "properties": {
                "v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}
            self.defs[name] = tree, None

            def grow(n=3):
                v = {"v": self.r.randrange(9)}
                if n and self.r.random() < .6:
                    v["kids"] = [grow(n - 1) for _ in range(self.r.randrange(3))]
                return v
            return {"$ref": "#/$defs/tree"}, grow
        if name not in self.defs:
            self.defs[name] = self.make(0)
        escaped = name.replace("~", "~0").replace("/", "~1")
        return {"$ref": "#/$defs/" + escaped, "description": "d"}, self.defs[name][1]

    def whole(self):
        schema, draw = self.make(3)
        if self.defs and isinstance(schema, dict):
            schema = dict(schema)
            schema["$defs"] = {n: s for n, (s, _) in self.defs.items()}
        return schema, draw


FORMATS = {
    "date": ["2024-02-29", "1999-12-31", "2023-04-30"], "time": ["23:59:59Z", "00:00:00.123+05:30"],
    "date-time": ["2026-01-02T03:04:05Z", "0001-01-01T00:00:00-11:59"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"], "ipv4": ["255.255.255.255", "0.0.0.0"],
    "ipv6": ["::", "::1", "2001:db8::ff00:42:8329", "1:2:3:4:5:6:7:8", "1::", "1:2::8"],
    "email": ["a.b+c@example.org"], "hostname": ["a", "a-b.example.org"],
    "duration": ["P3D", "PT5M", "P1Y2M3DT4H5M6S", "P4W"], "uri": ["https://a.example/b?c=%20#d"],
}


def printed(v):
    return [json.dumps(v, ensure_ascii=False, separators=(",", ":")), json.dumps(v, ensure_ascii=False),
            json.dumps(v, ensure_ascii=False, indent=2), json.dumps(v, ensure_ascii=False, indent=4)]


def changed(r, text):
    """The text with a small accident."""
    at = r.randrange(len(text))
    return r.choice([text[:at] + text[at + 1:], text[:at] + r.choice("0\"x,]}1-.e \\") + text[at:],
                     text[:at] + r.choice("0\"x,]}1-.e") + text[at + 1:]])


class Oracle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.asker = Asker()

    @classmethod
    def tearDownClass(cls):
        cls.asker.close()

    def validates(self, check, text):
        def pairs(items):
            keys = [k for k, _ in items]
            if len(set(keys)) != len(keys):
                raise ValueError("a key twice")
            return dict(items)
        try:
            value = json.loads(text, object_pairs_hook=pairs, parse_constant=lambda c: 1 / 0)
        except (ValueError, ZeroDivisionError):
            return False
        return check.is_valid(value)

    def test_random_schemas(self):
        drawn = taken = refused = endless = one_of = vague = 0
        for n in range(SCHEMAS):
            maker = Maker(SEED * 100000 + n)
            schema, draw = maker.whole()
            check = jsonschema.Draft202012Validator(schema)
            valid = [draw() for _ in range(4)]
            texts = [t for v in valid for t in printed(v)]
            accidents = [changed(maker.r, maker.r.choice(texts)) for _ in range(12)]
            got = self.asker.ask(schema=schema, draw=6, seed=n, max_tokens=40, **{"try": texts + accidents})
            where = f"schema {n} of seed {SEED}: {json.dumps(schema, ensure_ascii=False)}"
            one_of += '"oneOf"' in where
            if "keyword 'oneOf'" in got.get("error", ""):
                vague += 1
                continue
            if "does not end" in got.get("error", ""):  # chance did not find a pattern's only way out
                endless += 1
                got = self.asker.ask(schema=schema, **{"try": texts + accidents})
            self.assertNotIn("error", got, f"{where}: {got.get('error')}")
            for text in got["drawn"]:
                value = json.loads(text)  # a repeated additional name: its last value counts
                self.assertTrue(check.is_valid(value), f"{where}: drew {text}")
                drawn += 1
            for text, fits in zip(texts, got["fits"]):
                self.assertTrue(fits, f"{where}: refused {text}")
                self.assertTrue(self.validates(check, text), f"{where}: the test made {text}")
                taken += 1
            for text, fits in zip(accidents, got["fits"][len(texts):]):
                if fits:
                    self.assertTrue(check.is_valid(json.loads(text)), f"{where}: took {text}")
                refused += not fits
        self.assertLess(endless, SCHEMAS / 20)
        self.assertGreater(one_of - vague, one_of / 4)
        self.assertGreater(vague, 0)
        self.assertGreater(drawn, SCHEMAS * 4)
        self.assertGreater(taken, SCHEMAS * 15)
        self.assertGreater(refused, SCHEMAS * 4)

    def test_random_tools(self):
        for n in range(SCHEMAS // 5):
            maker = Maker(SEED * 7000 + n)
            maker.reference = lambda depth: maker.make(depth)
            parts = []
            for i in range(3):
                schema, _ = maker.object(2)
                parts.append(schema)
            tools = [{"type": "function", "function": {"name": f"to&ol \"{i}\"", "strict": True,
                                                       "parameters": s}} for i, s in enumerate(parts)]
            got = self.asker.ask(request={"tools": tools}, draw=4, seed=n, max_tokens=60)
            where = f"tools {n} of seed {SEED}: {json.dumps(tools, ensure_ascii=False)}"
            if any(x in got.get("error", "") for x in ("does not end", "keyword 'oneOf'")):
                continue
            self.assertNotIn("error", got, f"{where}: {got.get('error')}")
            for message in got["drawn"]:
                self.assertTrue(message["tool_calls"], where)
                for call in message["tool_calls"]:
                    name, text = call["function"]["name"], call["function"]["arguments"]
                    check = jsonschema.Draft202012Validator(parts[int(re.search(r"\d", name).group())])
                    self.assertTrue(check.is_valid(json.loads(text)), f"{where}: {name} {text}")


if __name__ == "__main__":
    unittest.main()
