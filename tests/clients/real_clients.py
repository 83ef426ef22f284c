#!/usr/bin/env python3
"""The real openai and anthropic clients against `trireme serve` with the nano model: chat, streams,
tools, an agent loop, responses, messages with thinking. Not part of `make test`: it needs
`pip install openai anthropic`. Run: TRIREME=build/release/trireme python3 tests/clients/real_clients.py"""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "cli"))
from serving import WithServer  # noqa: E402

import anthropic  # noqa: E402
import openai  # noqa: E402

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city",
                                         "parameters": WEATHER}}
ASK = [{"role": "user", "content": "What is the weather in Paris?"}]


class OpenAI(WithServer):
    def setUp(self):
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="x")

    def tearDown(self):
        self.client.close()

    def test_chat_and_stream(self):
        ask = [{"role": "user", "content": "Tell me a story about a fox."}]
        whole = self.client.chat.completions.create(model="nano", messages=ask, temperature=0,
                                                    max_tokens=60)
        text = "".join(c.choices[0].delta.content or "" for c in self.client.chat.completions.create(
            model="nano", messages=ask, temperature=0, max_tokens=60, stream=True))
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(self.client.models.list().data[0].id, "nano")

    def test_agent_loop(self):
        messages, calls = list(ASK), 0
        for _ in range(4):
            got = self.client.chat.completions.create(model="nano", messages=messages, tools=[TOOL],
                                                      temperature=0, max_tokens=300).choices[0]
            messages.append(got.message.model_dump(exclude_none=True))
            if not got.message.tool_calls:
                break
            for call in got.message.tool_calls:
                json.loads(call.function.arguments)
                calls += 1
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 C"})
        self.assertGreaterEqual(calls, 1)
        self.assertEqual(messages[-1]["role"], "assistant")

    def test_tool_stream(self):
        name, arguments = "", ""
        with self.client.chat.completions.stream(model="nano", messages=ASK, tools=[TOOL],
                                                 temperature=0, max_tokens=300) as stream:
            for event in stream:
                pass
            final = stream.get_final_completion().choices[0]
        name = final.message.tool_calls[0].function.name
        arguments = final.message.tool_calls[0].function.arguments
        self.assertEqual(name, "get_weather")
        self.assertIn("city", json.loads(arguments))

    def test_responses(self):
        whole = self.client.responses.create(model="nano", input="Hi", temperature=0,
                                             max_output_tokens=60, reasoning={"effort": "none"})
        self.assertTrue(whole.output_text)
        with self.client.responses.stream(model="nano", input="Hi", temperature=0,
                                          max_output_tokens=60,
                                          reasoning={"effort": "none"}) as stream:
            text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
            final = stream.get_final_response()
        self.assertEqual(text, whole.output_text)
        self.assertEqual(final.output_text, text)
        tool = {"type": "function", "name": "get_weather", "description": "Weather of a city",
                "parameters": WEATHER, "strict": False}
        call = self.client.responses.create(model="nano", input=ASK, tools=[tool], temperature=0,
                                            max_output_tokens=300).output[-1]
        self.assertEqual((call.type, call.name), ("function_call", "get_weather"))

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model="nano", messages=ASK, n=50)
        self.assertEqual(caught.exception.param, "n")
        with self.assertRaises(openai.NotFoundError):
            self.client.embeddings.create(model="nano", input="x")

    def test_completions(self):
        got = self.client.completions.create(model="nano", prompt="Once upon", max_tokens=8,
                                             temperature=0, logprobs=2)
        self.assertEqual(len(got.choices[0].logprobs.tokens), 8)


class Anthropic(WithServer):
    def setUp(self):
        self.client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{self.server.port}",
                                          api_key="x")

    def tearDown(self):
        self.client.close()

    def test_message_and_stream(self):
        ask = [{"role": "user", "content": "Hi"}]
        whole = self.client.messages.create(model="nano", max_tokens=60, messages=ask,
                                            extra_body={"temperature": 0})
        self.assertEqual(whole.stop_reason, "end_turn")
        with self.client.messages.stream(model="nano", max_tokens=60, messages=ask,
                                         extra_body={"temperature": 0}) as stream:
            text = "".join(stream.text_stream)
        self.assertEqual(text, whole.content[0].text)
        self.assertGreater(self.client.messages.count_tokens(model="nano", messages=ask).input_tokens,
                           5)

    def test_tools_and_thinking(self):
        tool = {"name": "get_weather", "description": "Weather of a city", "input_schema": WEATHER}
        more = {"model": "nano", "max_tokens": 2000, "tools": [tool],
                "thinking": {"type": "enabled", "budget_tokens": 1024}, "extra_body": {"top_k": 1}}
        with self.client.messages.stream(messages=ASK, **more) as stream:
            got = stream.get_final_message()
        self.assertEqual(got.content[0].type, "thinking")
        use = got.content[-1]
        self.assertEqual((use.type, use.name), ("tool_use", "get_weather"))
        again = self.client.messages.create(messages=ASK + [
            {"role": "assistant", "content": [b.model_dump() for b in got.content]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id,
                                          "content": "sunny, 21 C"}]}], **more)
        self.assertTrue(again.content)


if __name__ == "__main__":
    unittest.main()
