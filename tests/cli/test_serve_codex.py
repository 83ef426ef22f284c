"""/v1/responses as the Codex CLI uses it: stateless, streamed, the whole input each turn, reasoning sent
back sealed and without ids, function calls answered by their call_id; the effort that it defaults to."""
import json
import unittest

from serving import WithServer, need_nano

need_nano()
TOOLS = [
    {"type": "function", "name": "get_weather", "description": "Weather of a city", "strict": False,
     "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
                    "additionalProperties": False}},
    {"type": "function", "name": "update_plan", "description": "Steps and where they stand", "strict": False,
     "parameters": {"type": "object", "properties": {"plan": {"type": "array", "items": {"type": "object", "properties": {
         "step": {"type": "string"}, "status": {"type": "string", "enum": ["pending", "done"]}},
         "required": ["step", "status"]}}}, "required": ["plan"]}},
    {"type": "web_search", "external_web_access": False},
]
QUIET = ("You are a helpful assistant.", "<permissions>read only</permissions>")


class Codex(WithServer):
    args = ("--context", "4096", "--map-medium")

    def body(self, items, **more):
        return {"model": "gpt-5-codex", "instructions": QUIET[0], "input": items, "tools": TOOLS[:1] + TOOLS[2:],
                "tool_choice": "auto", "parallel_tool_calls": False, "store": False, "stream": True,
                "reasoning": {"effort": "medium", "summary": "auto"}, "include": ["reasoning.encrypted_content"],
                "prompt_cache_key": "0199a213-81c0-7800-8aa1-bbab2a035a53", "text": {"verbosity": "medium"},
                "client_metadata": {"x-codex-installation-id": "1"}, "temperature": 0, "max_output_tokens": 400, **more}

    def turn(self, items, **more):
        """One request, its events checked; the items that it adds."""
        events = self.server.events("/v1/responses", self.body(items, **more))
        kinds = [e["type"] for e in events]
        self.assertEqual([e["sequence_number"] for e in events], list(range(len(events))))
        self.assertEqual(kinds[:2], ["response.created", "response.in_progress"])
        self.assertEqual(kinds[-1], "response.completed")
        done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
        self.assertEqual(done, events[-1]["response"]["output"])
        for item in done:  # deltas add up to what is done
            part = {"reasoning": "reasoning_text", "message": "output_text",
                    "function_call": "function_call_arguments"}[item["type"]]
            told = "".join(e["delta"] for e in events if e["type"] == f"response.{part}.delta")
            whole = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
            self.assertEqual(told, whole)
        return done, events[-1]["response"]["usage"]

    def as_sent_back(self, item):
        """Without ids and status; reasoning by its seal alone."""
        if item["type"] == "reasoning":
            return {"type": "reasoning", "summary": [], "content": None, "encrypted_content": item["encrypted_content"]}
        return {k: v for k, v in item.items() if k not in ("id", "status")}

    def test_loop_of_tool_calls(self):
        items = [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": QUIET[1]}]}]
        calls, reused = 0, []
        for city in ("Paris", "Rome", "Oslo"):
            items.append({"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": f"What is the weather in {city}?"}]})
            for _ in range(4):
                done, usage = self.turn(items)
                reused.append((usage["input_tokens_details"]["cached_tokens"], usage["input_tokens"]))
                items += [self.as_sent_back(i) for i in done]
                asked = [i for i in done if i["type"] == "function_call"]
                self.assertLessEqual(len(asked), 1)  # parallel_tool_calls: false
                if not asked:
                    break
                calls += 1
                self.assertEqual(set(json.loads(asked[0]["arguments"])), {"city"})
                items.append({"type": "function_call_output", "call_id": asked[0]["call_id"],
                              "output": json.dumps({"output": "sunny, 21 C\n", "metadata": {"exit_code": 0}})})
        self.assertGreaterEqual(calls, 1)
        for (cached, prompt), (_, before) in zip(reused[1:], reused):
            self.assertGreaterEqual(cached, before - 1)  # what was there before is not computed again
            self.assertLess(prompt - cached, 200)

    def test_all_its_tools_and_parts(self):
        got = self.server.post("/v1/responses", self.body(
            [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"},
                                                             {"type": "input_text", "text": " there"}]},
             {"type": "function_call", "name": "update_plan", "arguments": "{\"plan\":[]}", "call_id": "call_1"},
             {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "ok"}]},
             {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}}],
            tools=TOOLS, stream=False))
        self.assertEqual(got["status"], "completed")

    def test_refused_by_name(self):
        custom = {"type": "custom", "name": "apply_patch", "description": "d",
                  "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}}
        for more, param in (({"tools": [custom]}, "tools[0]"), ({"previous_response_id": "resp_1"}, "previous_response_id")):
            self.assertEqual(self.server.post("/v1/responses", self.body("Hi", **more), 400)["error"]["param"], param)


if __name__ == "__main__":
    unittest.main()
