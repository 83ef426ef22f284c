"""`trireme schema`: what each keyword lets pass and refuses, worked out by hand from JSON Schema
2020-12; what is outside the subset is named with its path; limits at their edge and one past."""
import json
import os
import subprocess
import tempfile
import unittest

TRIREME = os.path.abspath(os.environ.get("TRIREME", "build/release/trireme"))


def obj(more=None, **properties):
    return {"type": "object", "properties": properties, **(more or {})}


S, I, N = {"type": "string"}, {"type": "integer"}, {"type": "number"}
# schema, texts that fit, texts that do not
CASES = [
    (True, ["1", "-0.5", '"a"', "null", '{"a":[1,{}]}', "[]", "1e-07", "true"],
     ["", "01", "+1", ".5", "1.", "nul", "{'a':1}", '{"a":1,}', "[1,]", "[,]", '{"a"}', "NaN", "Infinity",
      "1e999", '"\n"', '"a', "1 2", '{"a":1 "b":2}']),
    (S, ['""', '"a\\"b\\\\c\\/\\b\\f\\n\\r\\t\\u00e9"', '"é漢🙂"', '"\\ud83d\\ude42"', '"<|close|>"'],
     ['"\\x"', '"\\u12"', '"\\ud83d"', '"\\ud83dx"', '"\\ude42"', '"\t"', "a", "'a'"]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"é漢🙂"', '"\\ud83d\\ude42a"', '"\\n\\n"'],
     ['"a"', '"abcd"', '"\\ud83d\\ude42"', '""']),
    ({"type": "string", "pattern": "^a[bc]*$"}, ['"a"', '"abcb"'], ['"ad"', '""', '"aa"']),
    ({"type": "string", "pattern": "b"}, ['"b"', '"abc"', '"\\"b"'], ['"a"', '""']),
    ({"type": "string", "pattern": "^[\"\\\\\\n]+$"}, ['"\\"\\\\\\n"'], ['"n"', '""']),
    ({"type": "string", "pattern": "^(ab){2}$|^c"}, ['"abab"', '"cx"'], ['"ab"', '"xc"', '"ababab"']),
    # a repeat that begins with any character is no run of any characters
    ({"type": "string", "pattern": "^(./{2}){2,}[^a-z\"]"}, ['"x//y//1"', '"x//y//z//1"'], ['"xyz"', '"x//"', '"x//yz//1"']),
    ({"type": "string", "format": "date"}, ['"2024-02-29"', '"2023-12-31"', '"2000-02-29"'],
     ['"2023-02-29"', '"1900-02-29"', '"2023-04-31"', '"2023-13-01"', '"23-01-01"']),
    ({"type": "string", "format": "time"}, ['"23:59:59Z"', '"00:00:00.5-11:30"'], ['"24:00:00Z"', '"00:00:00"']),
    ({"type": "string", "format": "ipv4"}, ['"0.10.255.9"'], ['"256.0.0.0"', '"1.2.3"', '"01.2.3.4"']),
    ({"type": "string", "format": "ipv6"}, ['"::"', '"1::8"', '"1:2:3:4:5:6:7:8"', '"::ffff:1"'],
     ['"1::2::3"', '"1:2:3:4:5:6:7"', '"12345::"', '":1"']),
    ({"type": "string", "format": "uuid"}, ['"123e4567-E89b-12d3-a456-426614174000"'], ['"123e4567"']),
    ({"type": "string", "format": "email"}, ['"a.b@c.de"'], ['"a@b"', '"@c.de"', '"a b@c.de"']),
    ({"type": "string", "format": "duration"}, ['"P1DT2H"', '"P3W"', '"PT1S"'], ['"P"', '"PT"', '"1D"']),
    (I, ["0", "-1", "12345678901234567890123"], ["1.0", "1e3", "-0", "00", "-", "1" * 65]),
    ({"type": "integer", "minimum": -5, "maximum": 12}, [str(i) for i in range(-5, 13)],
     ["-6", "13", "99", "-10", "100"]),
    ({"type": "integer", "exclusiveMinimum": 99, "exclusiveMaximum": 102}, ["100", "101"], ["99", "102"]),
    ({"type": "integer", "minimum": 1.5, "maximum": 3.5}, ["2", "3"], ["1", "4"]),
    ({"type": "integer", "minimum": 995}, ["995", "1000", "99999"], ["994", "99", "-995"]),
    ({"type": "integer", "maximum": -7}, ["-7", "-10", "-8000"], ["-6", "7", "0"]),
    ({"type": "integer", "minimum": 3, "exclusiveMinimum": 5}, ["6"], ["5", "3"]),
    (N, ["0.5", "-1e+22", "1.5e-9", "0", "-0.0", "1e307"], ["1e308", "0x1", "1.e5", "--1"]),
    ({"type": "number", "minimum": 0, "maximum": 1}, ["0", "1", "0.25", "1.0", "1e-05", "0.0"],
     ["1.01", "-0.1", "2", "1e-0", "10"]),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, ["0.01", "2.5e-07"], ["0", "0.0", "1", "1.0"]),
    ({"type": "number", "minimum": -3, "exclusiveMaximum": -1}, ["-3", "-1.5", "-2", "-3.0"], ["-1", "-3.1", "1", "-1.0"]),
    ({"type": ["integer", "null"]}, ["1", "null"], ["1.5", '"1"']),
    ({"enum": ["a", "ab", 3, 2.5, None, [1, "x"], {"k": 1}]},
     ['"a"', '"ab"', "3", "2.5", "null", '[1,"x"]', '{"k":1}'], ['"b"', '"abc"', "35", "true", "[1]"]),
    ({"enum": ["a", 3], "type": "string"}, ['"a"'], ["3"]),
    ({"const": {"a": [True]}}, ['{"a":[true]}'], ["{}"]),
    ({"type": "array", "items": I, "minItems": 1, "maxItems": 3}, ["[1]", "[1, 2, 3]", "[\n  1,\n  2\n]"],
     ["[]", "[1,2,3,4]", '["a"]', "[1,2,]"]),
    ({"type": "array", "maxItems": 0}, ["[]"], ["[1]"]),
    ({"type": "array", "prefixItems": [S, I], "items": False}, ["[]", '["a"]', '["a",1]'], ["[1]", '["a",1,2]']),
    ({"type": "array", "prefixItems": [S], "items": I, "minItems": 2}, ['["a",1]', '["a",1,2]'], ['["a"]', "[1,1]"]),
    ({"items": I}, ["[1]"], ['["x"]']),
    (obj({"required": ["a"]}, a=I, b=S), ['{"a":1}', '{"a": 1, "b": "x"}'],
     ["{}", '{"b":"x"}', '{"b":"x","a":1}', '{"a":1,"c":2}', '{"a":1,"a":2}']),
    (obj({"additionalProperties": I}, a=S), ["{}", '{"a":"x","aa":1,"":2,"\\n":3}', '{"b":1}'],
     ['{"a":1}', '{"b":"x"}', '{"b":1,"a":"x"}', '{"\\u0061":1}']),
    (obj({"additionalProperties": True}, a=S), ['{"a":"x","b":[{}]}'], ['{"a":1}']),
    ({"type": "object"}, ["{}", '{"x":{"y":[]}}', "{\n}"], ["[]", '{"x"}']),
    ({"type": "object", "required": ["k"]}, ['{"k":1}', '{"k":{},"z":0}'], ["{}", '{"z":0}']),
    ({"type": "object", "properties": {"x": False}}, ["{}"], ['{"x":1}']),
    ({"anyOf": [I, obj(a=I)]}, ["1", '{"a":1}'], ['"1"']),
    ({"oneOf": [{"const": 1}, {"const": 12}]}, ["1", "12"], ["2", "121"]),
    ({"oneOf": [obj({"required": ["kind"]}, kind={"const": "x"}, a=I), obj({"required": ["kind"]}, kind={"const": "y"}, a=I)]},
     ['{"kind":"x","a":1}', '{"kind":"y"}'], ['{"kind":"z"}', '{"a":1}']),
    ({"oneOf": [{"$ref": "#/$defs/x"}, {"type": "null"}], "$defs": {"x": obj({"additionalProperties": False}, a=I)}},
     ["null", "{}"], ["1"]),
    ({"oneOf": [obj({"required": ["a"], "additionalProperties": False}, a=I),
                obj({"required": ["b"], "additionalProperties": False}, b=I)]}, ['{"a":1}', '{"b":1}'], ['{"a":1,"b":1}', "{}"]),
    ({"oneOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "exclusiveMinimum": 3}]}, ["3", "4"], []),
    ({"oneOf": [{"type": "string"}, {"type": ["number", "null"]}, {"type": "array", "items": S}]},
     ['"a"', "1.5", "null", '["a"]'], ["true"]),
    ({"allOf": [I]}, ["1"], ["1.5"]),
    ({"type": "integer", "anyOf": [I, S]}, ["1"], ['"1"']),
    ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": I}}, ["1"], ['"1"']),
    ({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]},
     ['{"next":null}', '{"next":{"next":{"next":null}}}'], ["{}", '{"next":1}']),
    ({"type": "string", "title": "t", "description": "d", "default": 1, "examples": [1], "deprecated": True,
      "x-mine": {"not": 1}, "$comment": "c"}, ['"a"'], ["1"]),
]
# schema, keyword, where
REFUSED = [
    ({"not": S}, "not", "#:"),
    (obj(a=obj(b={"type": "array", "items": {"if": {}}})), "if", "#/properties/a/properties/b/items:"),
    ({"anyOf": [I, {"multipleOf": 2}]}, "multipleOf", "#/anyOf/1:"),
    (obj({"patternProperties": {}}), "patternProperties", "#:"), (obj({"minProperties": 1}), "minProperties", "#:"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems", "#:"), ({"type": "array", "contains": I}, "contains", "#:"),
    ({"type": "array", "items": [I]}, "items", "#:"), ({"type": "string", "format": "regex"}, "format", "#:"),
    ({"type": "string", "format": "date", "pattern": "a"}, "format", "#:"),
    ({"type": "string", "pattern": "^a+$", "maxLength": 3}, "maxLength", "#:"),
    ({"type": "string", "pattern": "^a*$", "minLength": 1}, "minLength", "#:"),
    ({"type": "number", "minimum": .5}, "minimum", "#:"), ({"type": "float"}, "type", "#:"),
    ({"enum": [1], "minimum": 0}, "minimum", "#:"), ({"$ref": "#/nowhere"}, "$ref", "#:"),
    ({"$ref": "http://x/"}, "$ref", "#:"), ({"$ref": "#", "type": "object"}, "type", "#:"),
    ({"allOf": [I, I]}, "allOf", "#:"), (obj({"required": ["b"]}, a=I), "required", "#:"),
    ({"type": "string", "minLength": -1}, "minLength", "#:"),
    ({"oneOf": [I, {"type": "number"}]}, "oneOf", "#:"), ({"oneOf": [{"const": 1}, {"enum": [2, 1.0]}]}, "oneOf", "#:"),
    ({"oneOf": [{"const": {"a": 1}}, {"const": {"a": 1.0}}]}, "oneOf", "#:"),
    (obj(u={"oneOf": [obj(a=I), obj(a=I, b=I)]}), "oneOf", "#/properties/u:"),
    ({"oneOf": [obj({"required": ["a"]}, a=I), obj({"required": ["a", "b"]}, a=I, b=I)]}, "oneOf", "#:"),
    ({"oneOf": [obj({"required": ["kind"]}, kind=S), obj({"required": ["kind"]}, kind={"const": "y"})]}, "oneOf", "#:"),
    ({"oneOf": [S, {"anyOf": [I, {"const": "x"}]}]}, "oneOf", "#:"), ({"oneOf": [S, {"minimum": 3}]}, "oneOf", "#:"),
    ({"oneOf": [I, {"minLength": 3}]}, "oneOf", "#:"),
    ({"oneOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "minimum": 3}]}, "oneOf", "#:"),
    ({"oneOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/n"}], "$defs": {"n": I}}, "oneOf", "#:"),
]
PATTERNS = ["(?=a)", "(?<!a)b", "(a)\\1", "\\bx", "\\p{L}", "(?i)a", "a^b", "(", "[a", "a{2,1}", "*", "[z-a]",
            "(a*){2,3}", "\\", "a)", "x{100001}", "(?P<n>a)", "\\cA"]


class Schema(unittest.TestCase):
    def lines(self, *questions):
        got = subprocess.run([TRIREME, "schema", "--lines"], check=True, stdout=subprocess.PIPE,
                             input="".join(json.dumps(q) + "\n" for q in questions).encode())
        return [json.loads(line) for line in got.stdout.splitlines()]

    def one(self, **question):
        return self.lines(question)[0]

    def test_keywords(self):
        got = self.lines(*({"schema": s, "try": good + bad, "draw": 2} for s, good, bad in CASES))
        for (schema, good, bad), answer in zip(CASES, got):
            self.assertNotIn("error", answer, (schema, answer))
            for text, fits in zip(good + bad, answer["fits"]):
                self.assertEqual(fits, text in good, (schema, text))

    def test_refused_by_keyword_and_path(self):
        for (schema, keyword, path), answer in zip(REFUSED, self.lines(*({"schema": s} for s, _, _ in REFUSED))):
            self.assertIn(f"schema: keyword '{keyword}' at {path}", answer.get("error", ""), schema)
        for pattern in PATTERNS:
            self.assertIn("error", self.one(schema={"type": "string", "pattern": pattern}), pattern)
            self.assertIn("error", self.one(regex=pattern), pattern)

    def test_nothing_fits(self):
        endless = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
        for schema in (False, {"enum": []}, {"type": "integer", "minimum": 2, "maximum": 1}, endless, {"$ref": "#"},
                       {"type": "array", "minItems": 3, "maxItems": 2}, obj({"required": ["a"]}, a=False),
                       {"type": "number", "exclusiveMinimum": 1, "maximum": 1}):
            self.assertIn("no value can satisfy", self.one(schema=schema).get("error", ""), schema)

    def test_limits(self):
        def nested(n):
            return {"type": "array", "items": nested(n - 1)} if n else I
        at = [{"type": "string", "maxLength": 100000}, {"enum": list(range(10000))},
              {"type": "string", "pattern": "a" * 4096}]
        past = [{"type": "string", "maxLength": 100001}, {"enum": list(range(10001))},
                {"type": "string", "pattern": "a" * 4097}]
        for schema in at:
            self.assertNotIn("error", self.one(schema=schema), str(schema)[:80])
        for schema in past:
            answer = self.one(schema=schema)
            self.assertEqual(answer.get("status"), -11, (str(schema)[:80], answer))
        # nodes: a literal of n bytes takes n of them, a quote on each side, the end and two fixed ones
        self.assertEqual(self.one(schema={"const": "a" * 99995})["nodes"], 100000)
        self.assertIn("more than 100000 states", self.one(schema={"const": "a" * 99996})["error"])
        # work: every element of this list is looked at for each other one
        self.assertIn("steps to compile", self.one(schema=obj(
            {"required": [f"p{i}" for i in range(6000)]}, **{f"p{i}": False for i in range(6000)}))["error"])

    def test_schemas_within_each_other(self):
        """512 of them; each of these types counts twice, as the one referred to and the one that refers. References
        alone count too, so that no chain of them is deeper than the stack."""
        def types(n):
            defs = {f"t{i}": obj(x={"$ref": f"#/$defs/t{i + 1}"}) for i in range(n)}
            return {"$defs": {**defs, f"t{n}": I}, "$ref": "#/$defs/t0"}
        def chain(n):
            defs = {f"t{i}": {"$ref": f"#/$defs/t{i + 1}"} for i in range(n)}
            return {"$defs": {**defs, f"t{n}": I}, "$ref": "#/$defs/t0"}
        at = types(255)
        self.assertNotIn("error", self.one(schema=at))
        defs = at.pop("$defs")
        past = self.one(schema={"$defs": defs, "anyOf": [at]})
        self.assertEqual(past.get("status"), -11, past)
        self.assertIn("more than 512 deep", past["error"])
        for n in (511, 3000, 20000):
            self.assertIn("more than 512 deep", self.one(schema=chain(n)).get("error", ""), n)

    def test_nesting_while_matching(self):
        deep = lambda n: "[" * n + "]" * n
        fits = self.one(schema=True, **{"try": [deep(40), deep(200)]})["fits"]
        self.assertEqual(fits, [True, False])
        for seed in range(5):  # what is drawn closes what it opened, however deep
            json.loads(self.one(schema={"type": "array", "items": {"$ref": "#"}}, draw=1, seed=seed)["drawn"][0])

    def test_choice_and_regex(self):
        got = self.one(choice=["yes", "no", "yes!"], draw=20, **{"try": ["yes", "no", "yes!", "y", "yes?", ""]})
        self.assertEqual(got["fits"], [True, True, True, False, False, False])
        self.assertLessEqual(set(got["drawn"]), {"yes", "no", "yes!"})
        got = self.one(regex="[a-c]{2}\\d", **{"try": ["ab1", "abc1", "ab", "xab1"]})
        self.assertEqual(got["fits"], [True, False, False, False])

    def test_command(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(obj(a=I), f)
            f.flush()
            run = lambda *a: subprocess.run([TRIREME, "schema", *a], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual(run(f.name).returncode, 0)
            self.assertEqual(run("--draw", "4", f.name).stdout, run("--draw", "4", f.name).stdout)
            self.assertEqual(run().returncode, 2)
            self.assertEqual(run("--draw", "-1", f.name).returncode, 2)
            f.seek(0)
            json.dump({"not": {}}, f)
            f.truncate()
            f.flush()
            bad = run(f.name)
            self.assertEqual(bad.returncode, 1)
            self.assertIn(b"'not'", bad.stderr)


if __name__ == "__main__":
    unittest.main()
