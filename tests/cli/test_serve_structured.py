"""Structured output over HTTP with the nano model, which would say anything: whatever the sampling,
answers are of the promised form. Every dialect, streams equal to whole answers, batches equal to
solo runs, lengths that cut, n, log probabilities, refusals by name."""
import concurrent.futures
import json
import re
import unittest

from serving import WithServer, need_nano, wait_for

need_nano()

PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age", "tags"], "properties": {
    "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 1, "maxItems": 3}}}
WEATHER = {"type": "object", "required": ["city", "unit"], "properties": {
    "city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]}, "days": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}},
         {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "properties": {}}}}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}


def is_person(v):
    return (list(v) == ["name", "age", "tags"] and isinstance(v["name"], str) and len(v["name"]) <= 12 and
            type(v["age"]) is int and 0 <= v["age"] <= 120 and 1 <= len(v["tags"]) <= 3 and
            set(v["tags"]) <= {"red", "green"})


def is_weather(v):
    return ({"city", "unit"} <= set(v) <= {"city", "unit", "days"} and len(v["city"]) <= 20 and
            v["unit"] in ("C", "F") and type(v.get("days", 0)) is int)


class Structured(WithServer):
    args = ("--context", "1024", "--parallel", "4")

    def chat(self, status=200, **more):
        body = {"messages": [{"role": "user", "content": "Tell me a story about a fox."}], "max_tokens": 300,
                "reasoning_effort": "none", "seed": 1}
        return self.server.post("/v1/chat/completions", {**body, **more}, status)

    def choice(self, **more):
        return self.chat(**more)["choices"][0]

    def test_schema_whatever_the_sampling(self):
        for seed in range(6):
            for temperature in (0, 1, 2):
                got = self.choice(response_format=SCHEMA, seed=seed, temperature=temperature, top_p=1)
                self.assertEqual(got["finish_reason"], "stop", got)
                self.assertTrue(is_person(json.loads(got["message"]["content"])), got)

    def test_thinking_stays_free(self):
        got = self.choice(response_format=SCHEMA, reasoning_effort="high", max_tokens=600)
        self.assertTrue(got["message"]["reasoning_content"])
        self.assertTrue(is_person(json.loads(got["message"]["content"])))

    def test_json_object(self):
        for seed in range(8):
            got = self.choice(response_format={"type": "json_object"}, seed=seed, max_tokens=500)
            if got["finish_reason"] == "stop":
                self.assertIsInstance(json.loads(got["message"]["content"]), dict)
            else:
                self.assertTrue(got["message"]["content"].startswith("{"))

    def test_length_cuts(self):
        got = self.choice(response_format=SCHEMA, max_tokens=5)
        self.assertEqual(got["finish_reason"], "length")
        got = self.choice(tools=TOOLS, tool_choice="required", max_tokens=12)
        self.assertEqual(got["finish_reason"], "length")
        self.assertFalse(got["message"].get("tool_calls"))

    def test_min_tokens_and_ignore_eos_do_not_break_the_form(self):
        for more in ({"min_tokens": 290}, {"ignore_eos": True}):
            got = self.choice(response_format=SCHEMA, temperature=0, **more)
            self.assertTrue(is_person(json.loads(got["message"]["content"])), got)
            self.assertEqual(got["finish_reason"], "stop")

    def test_stream_is_the_whole(self):
        whole = self.choice(response_format=SCHEMA)["message"]["content"]
        events = self.server.events("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Tell me a story about a fox."}], "max_tokens": 300,
            "reasoning_effort": "none", "seed": 1, "response_format": SCHEMA, "stream": True})
        text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e != "[DONE]")
        self.assertEqual(text, whole)

    def test_n_and_batches_are_solo_runs(self):
        several = self.chat(response_format=SCHEMA, n=3)["choices"]
        self.assertEqual(len({c["message"]["content"] for c in several}), 3)
        for c in several:
            self.assertTrue(is_person(json.loads(c["message"]["content"])))
        ask = [dict(response_format=SCHEMA, seed=s) for s in range(4)] + [dict(tools=TOOLS, tool_choice="required",
                                                                             parallel_tool_calls=False)]
        strip = lambda c: (c["message"]["content"], [t["function"] for t in c["message"].get("tool_calls", [])])
        solo = [strip(self.choice(**a)) for a in ask]
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            beside = [strip(c) for c in pool.map(lambda a: self.choice(**a), ask)]
        self.assertEqual(solo, beside)

    def test_cancelled_streams_leave_nothing(self):
        import http.client
        for _ in range(5):
            c = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
            c.request("POST", "/v1/chat/completions", json.dumps({
                "messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 900,
                "response_format": {"type": "json_object"}}))
            c.getresponse().read(30)
            c.close()
        self.assertTrue(wait_for(lambda: self.server.metric("vllm:num_requests_running{") == 0))
        self.assertTrue(is_person(json.loads(self.choice(response_format=SCHEMA)["message"]["content"])))

    def test_required_and_named_tools(self):
        for seed in range(4):
            for effort in ("none", "high"):
                got = self.choice(tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=seed,
                                  reasoning_effort=effort, temperature=1.5, max_tokens=900)
                self.assertEqual(got["finish_reason"], "tool_calls", got)
                call, = got["message"]["tool_calls"]
                self.assertIn(call["function"]["name"], ("get_weather", "stop"))
                arguments = json.loads(call["function"]["arguments"])
                self.assertTrue(is_weather(arguments) if call["function"]["name"] == "get_weather" else arguments == {})
        for name in ("get_weather", "stop"):
            got = self.choice(tools=TOOLS, tool_choice={"type": "function", "function": {"name": name}},
                              parallel_tool_calls=False, temperature=1.5)
            self.assertEqual([c["function"]["name"] for c in got["message"]["tool_calls"]], [name])

    def test_auto_and_none(self):
        got = self.choice(tools=TOOLS, tool_choice="none", temperature=0)
        self.assertFalse(got["message"].get("tool_calls"))
        got = self.choice(tools=TOOLS, temperature=0,
                          messages=[{"role": "user", "content": "What is the weather in Paris?"}])
        for call in got["message"].get("tool_calls") or []:
            self.assertTrue(is_weather(json.loads(call["function"]["arguments"])), call)

    def test_schema_and_tools_together(self):
        for seed in range(4):
            got = self.choice(tools=TOOLS, response_format=SCHEMA, parallel_tool_calls=False, seed=seed)
            if got["finish_reason"] == "stop":
                self.assertTrue(is_person(json.loads(got["message"]["content"])))
            else:
                self.assertEqual(got["finish_reason"], "tool_calls")

    def test_extras(self):
        got = self.choice(structured_outputs={"choice": ["yes", "no"]})["message"]["content"]
        self.assertIn(got, ("yes", "no"))
        got = self.choice(guided_regex="[A-Z]{2}-\\d{3}")["message"]["content"]
        self.assertTrue(re.fullmatch("[A-Z]{2}-\\d{3}", got), got)
        got = self.server.post("/v1/completions", {"prompt": "Once", "max_tokens": 200, "seed": 2,
                                                   "structured_outputs": {"json": PERSON}})["choices"][0]
        self.assertTrue(is_person(json.loads(got["text"])), got)
        self.assertEqual(got["finish_reason"], "stop")

    def test_log_probabilities_are_the_models_own(self):
        got = self.choice(response_format=SCHEMA, logprobs=True, top_logprobs=3, temperature=0)
        content = got["logprobs"]["content"]
        # before the grammar: what was chosen need not be among the model's likeliest
        self.assertTrue(any(c["token"] not in [t["token"] for t in c["top_logprobs"]] for c in content))

    def test_responses(self):
        form = {"type": "json_schema", "name": "person", "strict": True, "schema": PERSON}
        got = self.server.post("/v1/responses", {"input": "Hi", "reasoning": {"effort": "none"}, "max_output_tokens": 300,
                                                 "text": {"format": form}})
        self.assertTrue(is_person(json.loads(got["output"][-1]["content"][0]["text"])))
        self.assertEqual(got["text"]["format"]["name"], "person")
        got = self.server.post("/v1/responses", {
            "input": "Hi", "reasoning": {"effort": "none"}, "max_output_tokens": 300, "parallel_tool_calls": False,
            "tools": [{"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": True}],
            "tool_choice": {"type": "function", "name": "get_weather"}})
        self.assertEqual((got["output"][-1]["type"], got["output"][-1]["name"]), ("function_call", "get_weather"))
        self.assertTrue(is_weather(json.loads(got["output"][-1]["arguments"])))

    def test_messages(self):
        ask = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 300}
        tools = [{"name": "get_weather", "input_schema": WEATHER}, {"name": "other", "input_schema": {"type": "object"}}]
        got = self.server.post("/v1/messages", {**ask, "tools": tools, "tool_choice": {
            "type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}})
        use, = [b for b in got["content"] if b["type"] == "tool_use"]
        self.assertTrue(use["name"] == "get_weather" and is_weather(use["input"]), use)
        self.assertEqual(got["stop_reason"], "tool_use")
        got = self.server.post("/v1/messages", {**ask, "tools": tools[:1], "tool_choice": {
            "type": "any", "disable_parallel_tool_use": True}})
        self.assertEqual(got["stop_reason"], "tool_use")
        got = self.server.post("/v1/messages", {**ask, "output_config": {"format": {
            "type": "json_schema", "schema": PERSON}}})
        self.assertTrue(is_person(json.loads(got["content"][-1]["text"])), got)

    def test_biases_that_leave_nothing(self):
        """The client's own contradiction is a 400 and no fault of the server."""
        ban = {str(byte): -100 for byte in range(97, 123)}
        for form in ({"regex": "a"}, {"choice": ["a", "b"]}, {"regex": "1[a-z]"}):
            error = self.chat(400, structured_outputs=form, logit_bias=ban)["error"]
            self.assertEqual(error["type"], "invalid_request_error")
            self.assertIn("logit bias", error["message"])
        self.assertEqual(self.choice(structured_outputs={"regex": "1"}, logit_bias=ban)["message"]["content"], "1")

    def test_what_takes_long_to_compile_is_compiled_apart(self):
        """The loop's thread compiles as much as a millisecond or two allow, whatever the body's size."""
        apart = lambda: self.server.metric("trireme_requests_prepared_apart_total")
        compiled = lambda: self.server.metric("trireme_grammars_compiled_total")
        number = {"type": "number", "minimum": -123456789, "maximum": 987654321}
        for n, where in ((1, 0), (90, 1)):
            names = [f"d{i}" for i in range(n)]
            heavy = {"$ref": "#/$defs/d0", "$defs": {name: {"type": "object", "properties": {
                "a": {"$ref": f"#/$defs/{name}"}, "b": number, "c": {"$ref": f"#/$defs/d{(i + 1) % n}"}}}
                for i, name in enumerate(names)}}
            self.assertLess(len(json.dumps(heavy)), 16000)
            was, before = apart(), compiled()
            self.assertTrue(self.choice(guided_json=heavy, max_tokens=4)["message"]["content"].startswith("{"))
            self.assertEqual((apart() - was, compiled() - before), (where, 1))
            self.choice(guided_json=heavy, max_tokens=4)  # kept: nothing to compile
            self.assertEqual((apart() - was, compiled() - before), (where, 1))
        was = apart()  # one that is refused in the end
        many = {"anyOf": [{"type": "string", "pattern": f"^([^a-f]x?){{1,50}}[^\\w]*\\D+{i}$"} for i in range(180)]}
        self.assertIn("states", self.chat(400, guided_json=many)["error"]["message"])
        self.assertEqual(apart() - was, 1)
        self.assertGreater(self.server.metric('trireme_memory_bytes{engine="0",model_name="nano",account="grammar"}'), 0)
        self.assertGreater(self.server.metric("trireme_grammar_cache_hits_total"), 1)
        self.assertGreater(self.server.metric("trireme_grammars_kept"), 1)

    def test_refused(self):
        bad = {"type": "object", "properties": {"a": {"not": {}}}}
        form = lambda schema, **more: {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **more}}
        got = self.chat(400, response_format=form(bad))["error"]
        self.assertEqual(got["param"], "response_format.json_schema.schema")
        self.assertIn("keyword 'not' at #/properties/a", got["message"])
        self.assertEqual(self.choice(response_format=form(bad, strict=False), max_tokens=10)["message"]["content"][0], "{")
        tool = lambda **more: [{"type": "function", "function": {"name": "f", "parameters": bad, **more}}]
        got = self.chat(400, tools=tool(strict=True))["error"]
        self.assertEqual(got["param"], "tools[0].function.parameters")
        self.choice(tools=tool(), max_tokens=10)
        for more, param in (({"structured_outputs": {"grammar": "root ::= x"}}, "structured_outputs"),
                            ({"structured_outputs": {"json": 5}}, "structured_outputs.json"),
                            ({"guided_regex": "(?=a)"}, "guided_regex"), ({"guided_choice": []}, "guided_choice"),
                            ({"guided_json": "{", }, "guided_json"),
                            ({"guided_json": {}, "response_format": SCHEMA}, "guided_json"),
                            ({"response_format": {"type": "xml"}}, None),
                            ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "no"}}},
                             "tool_choice"),
                            ({"response_format": form({"enum": []})}, "response_format.json_schema.schema")):
            got = self.chat(400, **more)["error"]
            if param:
                self.assertEqual(got["param"], param, got)
        at = {"const": "x" * ((1 << 20) - 200)}
        self.assertIn("states", self.chat(400, guided_json=at)["error"]["message"])
        past = {"const": "x" * (1 << 20)}
        self.assertIn("1048576", self.chat(400, guided_json=past)["error"]["message"])


if __name__ == "__main__":
    unittest.main()
