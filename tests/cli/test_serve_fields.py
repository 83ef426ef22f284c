#!/usr/bin/env python3
"""Field by field: what each request field of every dialect does (docs/serving.md). Three tables:
values at the edge that are taken and one past it that are refused with the field's name; fields
without effect; and checks that an honoured field has the effect it promises."""
import json
import pathlib
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serving import NANO, SOURCE, TRIREME, Server, WithServer, need_nano, wait_for  # noqa: E402

HI = [{"role": "user", "content": "Hi"}]
STORY = [{"role": "user", "content": "Tell me a story about a fox."}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather",
          "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
CHAT, TEXT, MESSAGES, RESPONSES = ("/v1/chat/completions", "/v1/completions", "/v1/messages",
                                   "/v1/responses")
BASE = {CHAT: {"messages": HI, "max_tokens": 1}, TEXT: {"prompt": "Hi", "max_tokens": 1},
        MESSAGES: {"messages": HI, "max_tokens": 1},
        RESPONSES: {"input": "Hi", "max_output_tokens": 1}}
ALL = (CHAT, TEXT, MESSAGES, RESPONSES)
OPENAI = (CHAT, TEXT)
WRONG = {"text": 5, "object": [1], "bool": "yes", "list": "x"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}

# field, paths, values taken, values refused (with the field as `param`)
EDGES = [
    ("max_tokens", (CHAT, TEXT, MESSAGES), [1, 2 ** 31 - 1], [0, -1, 1.5, "5", True, 2 ** 31]),
    ("max_completion_tokens", (CHAT,), [1], [0, "5"]),
    ("max_output_tokens", (RESPONSES,), [1], [0, "5"]),
    ("temperature", ALL, [0, 1, 2, 0.5], [-0.1, 2.1, "1", True, [1]]),
    ("top_p", ALL, [1e-9, 0.5, 1], [0, 1.01, -1, "1"]),
    ("top_k", ALL, [-1, 0, 1, 2 ** 31 - 1], [-2, 1.5, "1", 2 ** 31]),
    ("min_p", ALL, [0, 1], [-0.1, 1.1, "0"]),
    ("presence_penalty", OPENAI, [-2, 2], [-2.1, 2.1, "0"]),
    ("frequency_penalty", OPENAI, [-2, 2], [-2.1, 2.1, "0"]),
    ("repetition_penalty", OPENAI, [0.01, 1, 100], [0, -1, 101, "1"]),
    ("logit_bias", OPENAI, [{}, {"5": 100}, {"5": -100}, {str(i): 1 for i in range(1024)}],
     [{"5": 101}, {"5": -101}, {"-1": 0}, {"x": 0}, {"": 0}, {"5": "1"}, [5], "x",
      {"163586": 1}, {str(i): 1 for i in range(1025)}]),
    ("seed", ALL, [0, -5, 2 ** 63 - 1, -2 ** 63], [1.5, "1"]),
    ("stop", OPENAI, ["x", [], ["x"] * 16, "x" * 256],
     ["", [""], ["x"] * 17, "x" * 257, ["x", 5], 5, {"a": 1}, "a\0b"]),
    ("stop_sequences", (MESSAGES,), [["x"] * 16], [["x"] * 17, ["x" * 257], 5]),
    ("stop_token_ids", OPENAI, [[], [1, 2], list(range(100))],
     [list(range(101)), [-1], ["1"], 5, [10 ** 7]]),
    ("ignore_eos", OPENAI, [True, False], ["x", 1]),
    ("min_tokens", OPENAI, [0, 1], [-1, "1"]),
    ("n", OPENAI, [1, 8], [0, 9, "1", 1.5, 2 ** 40]),
    ("best_of", OPENAI, [1], [2, 0, "1"]),
    ("logprobs", (CHAT,), [True, False], [1, "x"]),
    ("logprobs", (TEXT,), [0, 5], [-1, 6, "x"]),
    ("echo", (TEXT,), [True, False], ["x"]),
    ("stream", ALL, [False], ["x", 1]),
    ("priority", ALL, [-1000000, 1000000], [1000001, 1.5, "x"]),
    ("return_token_ids", OPENAI, [True, False], ["x"]),
    ("return_progress", (CHAT,), [True, False], ["x"]),
    ("timings_per_token", (CHAT,), [True, False], ["x"]),
    ("cache_salt", ALL, ["", "x"], [5, ["x"]]),
    ("model", ALL, ["anything", "x" * 127], ["x" * 128, 5, [1]]),
    ("reasoning_effort", (CHAT,), ["none", "minimal", "low", "high", "xhigh", "max"],
     ["medium", "", "MAX", 5]),
    ("tool_choice", (CHAT,), ["auto", "none"], ["required", "bogus", 5]),
    ("messages", (CHAT, MESSAGES), [], [5, "x", None, []]),
    ("prompt", (TEXT,), ["x", [1, 2], ["x"]], [5, "", [], [10 ** 9], [-1], [1.5], {"a": 1}, None]),
    ("input", (RESPONSES,), ["x", [{"role": "user", "content": "x"}]], [5, None, {"a": 1}]),
    ("tools", (CHAT, MESSAGES, RESPONSES), [[]], [5, {"a": 1}, "x"]),
    # without effect, but of their kind
    ("user", ALL, ["u"], [WRONG["text"]]),
    ("metadata", ALL, [{"a": "b"}], [WRONG["object"]]),
    ("store", ALL, [True, False], [WRONG["bool"]]),
    ("service_tier", ALL, ["auto"], [WRONG["text"]]),
    ("safety_identifier", ALL, ["s"], [WRONG["text"]]),
    ("prompt_cache_key", ALL, ["k"], [WRONG["text"]]),
    ("session_id", ALL, ["s"], [WRONG["text"]]),
    ("chat_template_kwargs", ALL, [{}], [WRONG["object"]]),
    ("include", (RESPONSES,), [[], ["reasoning.encrypted_content"]],
     ["x", ["message.output_text.logprobs"]]),
    ("truncation", (RESPONSES,), ["disabled"], [5]),
    ("previous_response_id", (RESPONSES,), [None], ["resp_1"]),
    ("prompt", (RESPONSES,), [None], [{"id": "p"}]),
    # what these dialects cannot give
    ("n", (MESSAGES, RESPONSES), [1, None], [2]),
    ("logprobs", (MESSAGES, RESPONSES), [False, None], [True]),
    ("top_logprobs", (MESSAGES, RESPONSES), [0, None], [3]),
    ("top_logprobs", (CHAT,), [0], [1, 21, -1]),
    ("modalities", (CHAT,), [["text"], None], [["audio"], ["text", "audio"], "text"]),
] + [(name, ALL, [None], [{"a": 1}, "x", [1]]) for name in (
    "kv_transfer_params", "lora", "audio", "prediction", "web_search_options", "functions",
    "function_call", "prompt_embeds", "images", "image_prompts", "mcp_servers", "container",
    "conversation")]

NESTED = [  # path, fields, the parameter that must be named
    (CHAT, {"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    (CHAT, {"messages": HI + [{"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]}]},
     "messages[1].content[1]"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
     "messages[0].content[0]"),
    (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
     "messages[0].content[0]"),
    (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
                "content": [{"type": "image"}]}]}]}, "messages[0].content[0].content[0]"),
    (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "document"}]}]},
     "messages[0].content[0]"),
    (MESSAGES, {"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
    (MESSAGES, {"system": [{"type": "image"}]}, "system[0]"),
    (MESSAGES, {"thinking": {"type": "x"}}, "thinking.type"),
    (MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 0}}, "budget_tokens"),
    (MESSAGES, {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0]"),
    (MESSAGES, {"tools": [{"description": "nameless"}]}, "tools[0]"),
    (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
     "input[0].content[0]"),
    (RESPONSES, {"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
    (RESPONSES, {"input": [{"type": "function_call", "name": "f"}]}, "input[0]"),
    (RESPONSES, {"input": [{"role": "robot", "content": "x"}]}, "input[0]"),
    (RESPONSES, {"tools": [{"type": "custom", "name": "free"}]}, "tools[0]"),
    (RESPONSES, {"reasoning": {"effort": "medium"}}, "reasoning.effort"),
    (CHAT, {"chat_template_kwargs": {"thinking": 5}}, "thinking"),
    (CHAT, {"stream_options": {"include_usage": True}}, "stream_options"),
    (CHAT, {"stream": True, "stream_options": {"include_usage": 5}}, "include_usage"),
]

TAKEN = [  # paths and fields that must pass as they are
    (MESSAGES, {"system": [{"type": "text", "text": "Be kind.",
                            "cache_control": {"type": "ephemeral"}}]}),
    (MESSAGES, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
    (MESSAGES, {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
    (MESSAGES, {"metadata": {"user_id": "u"}, "stop_sequences": ["x"]}),
    (RESPONSES, {"tools": [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}]}),
    (RESPONSES, {"input": [{"role": "user", "content": "a"}, {"type": "web_search_call"},
                           {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"},
                           {"type": "custom_tool_call_output", "call_id": "c", "output": "y"}]}),
    (RESPONSES, {"input": [{"role": "developer", "content": [{"type": "input_text", "text": "a"}]},
                           {"role": "user", "content": "b"}]}),
    (CHAT, {"messages": [{"role": "developer", "content": "a"}] + HI}),
    (CHAT, {"messages": [{"role": "system", "content": "a"}] + HI}),
]


class Fields(WithServer):
    args = ("--context", "1024")

    def test_edges(self):
        n = 0
        for field, paths, taken, refused in EDGES:
            for path in paths:
                for value in taken:
                    body = dict(BASE[path], **{field: value})
                    if field == "max_tokens" and path == CHAT:
                        body["stop"] = "e"  # else a whole context is computed
                    self.server.post(path, body)
                for value in refused:
                    error = self.server.post(path, dict(BASE[path], **{field: value}), 400)["error"]
                    if path == MESSAGES:
                        self.assertEqual(error["type"], "invalid_request_error")
                        self.assertIn(field.split("[")[0], error["message"], (field, value))
                    else:
                        self.assertEqual(error["param"], field, (path, field, str(value)[:80], error))
                    n += 1
        self.assertGreater(n, 250)

    def test_nested(self):
        for path, fields, param in NESTED:
            error = self.server.post(path, dict(BASE[path], **fields), 400)["error"]
            if path == MESSAGES:
                self.assertIn(param, error["message"])  # that dialect's errors have no parameter
                continue
            self.assertEqual(error["param"], param, (path, fields, error))

    def test_messages_name_what_is_wrong(self):
        for fields, param in (
                ({"stop_sequences": [1]}, "stop_sequences"), ({"stop_sequences": [""]}, "stop_sequences"),
                ({"system": [5]}, "system"), ({"messages": [5]}, "messages[0]"),
                ({"messages": HI + [{"role": "x", "content": "y"}]}, "messages[1]"),
                ({"structured_outputs": {"a": 1}}, "structured_outputs"), ({"modalities": "x"}, "modalities")):
            error = self.server.post(MESSAGES, dict(BASE[MESSAGES], **fields), 400)["error"]
            self.assertIn(param, error["message"], fields)
            self.assertEqual(error["message"].count(param), 1, fields)

    def test_numbers_that_json_may_have_and_we_do_not(self):
        """The text is valid JSON, and is not called something else."""
        for number in (str(2 ** 63), str(-2 ** 63 - 1), "18446744073709551615", "1e400", "9" * 400):
            for path in ALL:
                body = json.dumps(BASE[path])[:-1] + f', "metadata": {{"x": {number}}}}}'
                status, text = self.server.ask("POST", path, body.encode())[:2]
                self.assertEqual(status, 400)
                self.assertIn("too large", str(text))
                self.assertNotIn("not valid", str(text))

    def test_taken(self):
        for path, fields in TAKEN:
            self.server.post(path, dict(BASE[path], **fields))

    def test_unknown_is_ignored(self):
        for path in ALL:
            self.server.post(path, dict(BASE[path], not_a_field={"a": [1]}))


class Effects(WithServer):
    """An honoured field does what it says; expectations come from other runs or from arithmetic."""
    args = ("--context", "1024", "--parallel", "1")

    def ids(self, **more):
        body = dict({"messages": STORY, "temperature": 0, "max_tokens": 24,
                     "return_token_ids": True}, **more)
        return self.server.post(CHAT, body)["choices"][0]["token_ids"]

    def prompt(self, **more):
        body = dict({"messages": HI, "max_tokens": 1, "return_token_ids": True}, **more)
        return self.server.post(CHAT, body)["prompt_token_ids"]

    def test_sampling(self):
        greedy = self.ids()
        self.assertEqual(len(greedy), 24)
        for one in ({"top_k": 1}, {"min_p": 1}, {"top_p": 1e-9}):
            self.assertEqual(self.ids(temperature=2, **one), greedy, one)
        self.assertNotEqual(self.ids(temperature=2, seed=1), self.ids(temperature=2, seed=2))
        self.assertEqual(self.ids(temperature=2, seed=1), self.ids(temperature=2, seed=1))
        self.assertEqual(self.ids(logit_bias={"65": 100}, ignore_eos=True), [65] * 24)
        self.assertNotIn(greedy[0], self.ids(logit_bias={str(greedy[0]): -100}))
        self.assertNotEqual(self.ids(repetition_penalty=10), greedy)

    def test_penalties(self):
        """Where the likeliest token first changes is foretold from the log probabilities."""
        body = {"prompt": [65, 66, 65, 66], "temperature": 0, "max_tokens": 100, "logprobs": 5,
                "ignore_eos": True, "return_token_ids": True}
        plain = self.server.post(TEXT, body)["choices"][0]
        ids = {}
        for name, i in zip(plain["logprobs"]["tokens"], plain["token_ids"]):
            ids[name] = i
        for field in ("presence_penalty", "frequency_penalty"):
            got = self.server.post(TEXT, dict(body, **{field: 2}))["choices"][0]
            seen, at = {}, None
            for at, (name, top) in enumerate(zip(plain["logprobs"]["tokens"],
                                                 plain["logprobs"]["top_logprobs"])):
                cost = {t: 2 * min(seen.get(t, 0), 1 if field[0] == "p" else 1000) for t in top}
                best = max(top, key=lambda t: top[t] - cost[t])
                if best != name:
                    break
                seen[name] = seen.get(name, 0) + 1
            self.assertNotEqual(best, name, "this prompt shows nothing: choose another")
            self.assertEqual(got["logprobs"]["tokens"][:at + 1],
                             plain["logprobs"]["tokens"][:at] + [best], field)

    def test_lengths_and_ends(self):
        greedy = self.ids()
        got = self.server.post(CHAT, {"messages": HI, "max_tokens": 100, "max_completion_tokens": 3})
        self.assertEqual(got["usage"]["completion_tokens"], 3)
        self.assertEqual(got["choices"][0]["finish_reason"], "length")
        self.assertEqual(self.ids(stop_token_ids=[greedy[5]]), greedy[:greedy.index(greedy[5]) + 1])
        short = len(self.ids(messages=HI, max_tokens=200))
        self.assertLess(short, 100)
        self.assertEqual(len(self.ids(messages=HI, max_tokens=200, ignore_eos=True)), 200)
        self.assertGreaterEqual(len(self.ids(messages=HI, max_tokens=200, min_tokens=short + 20)),
                                short + 20)
        rest = self.server.post(CHAT, {"messages": HI, "temperature": 0, "ignore_eos": True})
        self.assertEqual(rest["usage"]["total_tokens"], 1024)  # the rest of the context

    def test_thinking(self):
        default = self.prompt()
        self.assertEqual(self.prompt(reasoning_effort="max"), default)
        self.assertEqual(self.prompt(reasoning_effort="xhigh"), default)
        low, high, off = (self.prompt(reasoning_effort=e) for e in ("low", "high", "none"))
        self.assertEqual(len({str(x) for x in (default, low, high, off)}), 4)
        self.assertEqual(self.prompt(reasoning_effort="minimal"), low)
        self.assertEqual(self.prompt(thinking={"type": "disabled"}), off)
        self.assertEqual(self.prompt(chat_template_kwargs={"thinking": False}), off)
        self.assertEqual(self.prompt(chat_template_kwargs={"enable_thinking": False}), off)
        self.assertEqual(self.prompt(chat_template_kwargs={"thinking_effort": "high"}), high)
        self.assertEqual(self.prompt(reasoning_effort="low",
                                     thinking={"type": "enabled", "effort": "high"}), high)
        self.assertEqual(self.prompt(thinking={"type": "enabled", "budget_tokens": 4096}), low)
        self.assertEqual(self.prompt(thinking={"type": "enabled", "budget_tokens": 16384}), high)
        self.assertEqual(self.prompt(thinking={"type": "enabled", "budget_tokens": 16385}), default)

    def test_past_thinking_is_read_under_both_names(self):
        def history(**reasoning):
            return HI + [dict({"role": "assistant", "content": "Hello."}, **reasoning)] + HI
        a = self.prompt(messages=history(reasoning_content="A greeting."))
        self.assertEqual(self.prompt(messages=history(reasoning="A greeting.")), a)
        self.assertNotEqual(self.prompt(messages=history()), a)

    def test_salt_and_usage(self):
        long = [{"role": "user", "content": "The fox went to the river. " * 30}]
        for salt, cached in (("a", 0), ("a", 1), ("b", 0)):
            body = {"messages": long, "max_tokens": 1, "cache_salt": salt}
            usage = self.server.post(CHAT, body)["usage"]
            self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"] > 0, bool(cached), salt)
            self.assertEqual(usage["total_tokens"],
                             usage["prompt_tokens"] + usage["completion_tokens"])

    def test_streamed_ids_progress_and_timings(self):
        body = {"messages": [{"role": "user", "content": "The crow said so. " * 120}],
                "temperature": 0, "max_tokens": 12, "return_token_ids": True}
        whole = self.server.post(CHAT, body)
        events = self.server.events(CHAT, dict(body, stream=True, timings_per_token=True,
                                               return_progress=True, cache_salt="fresh"))[:-1]
        self.assertEqual(events[0]["prompt_token_ids"], whole["prompt_token_ids"])
        self.assertEqual([i for e in events for i in e["choices"][0].get("token_ids", [])],
                         whole["choices"][0]["token_ids"])
        self.assertEqual(events[-1]["timings"]["predicted_n"], 12)
        self.assertEqual(events[-1]["timings"]["prompt_n"] + events[-1]["timings"]["cache_n"],
                         whole["usage"]["prompt_tokens"])
        self.assertGreater(sum("timings" in e for e in events), 2)
        text = {"prompt": "Once upon", "max_tokens": 6, "temperature": 0, "return_token_ids": True}
        whole = self.server.post(TEXT, text)["choices"][0]
        self.assertEqual(len(whole["token_ids"]), 6)
        self.assertEqual(whole["prompt_token_ids"],
                         self.server.post("/tokenize", {"prompt": "Once upon"})["tokens"])
        events = self.server.events(TEXT, dict(text, stream=True))[:-1]
        self.assertEqual([i for e in events for i in e["choices"][0].get("token_ids", [])],
                         whole["token_ids"])

    def test_a_cut_call_is_no_call(self):
        ask = {"messages": [{"role": "user", "content": "What is the weather in Paris?"}],
               "tools": TOOLS, "temperature": 0, "max_tokens": 300, "return_token_ids": True}
        whole = self.server.post(CHAT, ask)
        self.assertEqual(whole["choices"][0]["finish_reason"], "tool_calls")
        total = whole["usage"]["completion_tokens"]
        arguments = json.loads(whole["choices"][0]["message"]["tool_calls"][0]["function"]
                               ["arguments"])
        kinds = set()
        for n in range(2, total - 2, 2):
            got = self.server.post(CHAT, dict(ask, max_tokens=n))["choices"][0]
            calls = got["message"].get("tool_calls", [])
            kinds.add((got["finish_reason"], len(calls)))
            for call in calls:  # a call that is shown is a whole one
                self.assertEqual(json.loads(call["function"]["arguments"]), arguments)
        self.assertIn(("length", 0), kinds)
        self.assertNotIn(("tool_calls", 0), kinds)
        self.assertNotIn("stop", {reason for reason, _ in kinds})

    def test_request_ids(self):
        _, data, headers = self.server.ask("POST", MESSAGES, {"messages": HI})
        error = json.loads(data)
        self.assertEqual(headers["request-id"], error["request_id"])
        seen = {self.server.ask("GET", "/health")[2]["x-request-id"] for _ in range(20)}
        self.assertEqual(len(seen), 20)

    def test_reasoning_for_clients_that_keep_only_sealed_content(self):
        body = {"input": "Hi", "temperature": 0, "max_output_tokens": 60,
                "include": ["reasoning.encrypted_content"], "store": False}
        items = self.server.post(RESPONSES, body)["output"]
        self.assertEqual(items[0]["type"], "reasoning")
        more = [{"role": "user", "content": "Again."}]
        open_turn = [{"role": "user", "content": "Hi"}] + items + more
        sealed = dict(items[0])
        del sealed["content"]
        sealed_turn = [{"role": "user", "content": "Hi"}, sealed] + items[1:] + more
        bare_turn = [{"role": "user", "content": "Hi"}] + items[1:] + more
        n = [self.server.post(RESPONSES, dict(body, input=turn))["usage"]["input_tokens"]
             for turn in (open_turn, sealed_turn, bare_turn)]
        self.assertEqual(n[0], n[1])
        self.assertLess(n[2], n[0])


class Profile(WithServer):
    args = ("--context", "2048", "--parallel", "2")

    def ask(self, salt):
        return self.server.post(CHAT + "?x=1&profile=1", {
            "messages": STORY, "temperature": 0, "max_tokens": 60, "cache_salt": salt,
            "ignore_eos": True, "return_token_ids": True})

    def same_choices(self, a, b, layer):
        """Prompts that are cut into other steps round otherwise (1e-6): a near tie may flip."""
        both = set(a) & set(b)
        self.assertGreaterEqual(len(both), 14, layer)
        self.assertLessEqual(sum(abs(a[e] - b[e]) for e in both), 3, (layer, a, b))

    def test_profile(self):
        alone = self.ask("a")
        p, ids = alone["profile"], alone["choices"][0]["token_ids"]
        n = len(alone["prompt_token_ids"])
        self.assertEqual(p["rows"], n + len(ids) - 1)  # the last token is never computed
        self.assertEqual(p["rows"], p["rows_of_steps"])
        self.assertEqual(p["cache"]["prompt_tokens"], n)
        self.assertEqual(p["cache"]["cached_tokens"], 0)
        busy = sum(p["parts_ms"].values())
        self.assertGreater(busy, 0)
        self.assertLessEqual(busy, p["prefill_ms"] + p["decode_ms"] + 1)
        config = json.loads((SOURCE / "models" / "nano" / "config.json").read_text())
        config = config.get("text_config", config)
        self.assertEqual(len(p["experts"]["layers"]),
                         config["num_hidden_layers"] - config["first_k_dense_replace"])
        for layer in p["experts"]["layers"]:
            self.assertLessEqual(layer["distinct"], config["num_experts"])
            counts = [times for _, times in layer["chosen"]]
            self.assertEqual(counts, sorted(counts, reverse=True))
            self.assertLessEqual(max(counts), p["rows"])
        # what the program's own trace of the same ids says about the last layer's choices
        done = subprocess.run([TRIREME, "logits", str(NANO), "--ram", "1G", "--act", "int8", "--routes", "--tokens",
                               ",".join(map(str, alone["prompt_token_ids"] + ids[:-1]))],
                              capture_output=True, text=True, check=True)
        times = {}
        for line in done.stdout.strip().split("\n"):
            for route in json.loads(line).get("routes", []):
                for e in route["experts"]:
                    times[route["layer"], e] = times.get((route["layer"], e), 0) + 1
        for layer in p["experts"]["layers"]:
            want = {e: k for (at, e), k in times.items() if at == layer["layer"]}
            self.assertEqual(layer["distinct"], len(want))
            for e, k in layer["chosen"]:
                self.assertEqual(want[e], k, (layer["layer"], e))
        # beside another request: the same own rows and choices, but shared steps
        other = threading.Thread(target=self.server.post, args=(CHAT, {
            "messages": HI, "max_tokens": 1500, "ignore_eos": True}))
        other.start()
        wait_for(lambda: self.server.metric("vllm:num_requests_running") == 1)
        shared = self.ask("b")["profile"]
        other.join()
        self.assertEqual(shared["rows"], p["rows"])
        self.assertGreater(shared["rows_of_steps"], shared["rows"])
        for a, b in zip(shared["experts"]["layers"], p["experts"]["layers"]):
            self.same_choices(dict(map(tuple, a["chosen"])), dict(map(tuple, b["chosen"])), a["layer"])
        again = self.ask("a")["profile"]
        self.assertGreater(again["cache"]["cached_tokens"], 0)
        self.assertLess(again["rows"], p["rows"])
        self.assertNotIn("profile", self.server.post(CHAT, BASE[CHAT]))
        events = self.server.events(CHAT + "?profile=1", dict(BASE[CHAT], stream=True))
        self.assertIn("profile", events[-2])
        self.server.post(RESPONSES + "?profile=1", BASE[RESPONSES], 400)


class Strict(unittest.TestCase):
    def test_strict(self):
        server = Server("--context", "256", "--strict-params", "--map-medium")
        for path in ALL:
            self.assertEqual(server.post(path, dict(BASE[path], colour=1), 400)["error"].get(
                "param", "colour"), "colour")
            server.post(path, dict(BASE[path], model="other"), 404)
            server.post(path, dict(BASE[path], model="nano"))
        for field, paths, taken, _ in EDGES:  # every field of the table is known
            for path in paths:
                if taken and field not in ("model", "max_tokens"):
                    server.post(path, dict(BASE[path], **{field: taken[0]}))
        high = server.post("/tokenize", {"messages": HI, "reasoning_effort": "high"})["tokens"]
        self.assertEqual(server.post("/tokenize", {"messages": HI, "reasoning_effort": "medium"})
                         ["tokens"], high)
        self.assertEqual(server.close(), 0)


if __name__ == "__main__":
    need_nano()
    unittest.main()
