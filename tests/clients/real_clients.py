#!/usr/bin/env python3
"""The real openai and anthropic clients against `trireme serve` with the nano model: chat, streams,
tools, an agent loop, responses, messages with thinking. Not part of `make test`: it needs
`pip install openai anthropic`. Run: TRIREME=build/release/trireme python3 tests/clients/real_clients.py"""
import asyncio
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "cli"))
from serving import WithServer, wait_for  # noqa: E402

import anthropic  # noqa: E402
import openai  # noqa: E402
import pydantic  # noqa: E402 (comes with openai)

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

    def test_json_schema(self):
        person = {"type": "object", "additionalProperties": False, "required": ["name", "age"],
                  "properties": {"name": {"type": "string", "maxLength": 20},
                                 "age": {"type": "integer", "minimum": 0, "maximum": 120}}}
        form = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": person}}
        for temperature in (0, 1.5):
            got = self.client.chat.completions.create(model="nano", messages=ASK, max_tokens=600,
                                                      response_format=form, temperature=temperature)
            value = json.loads(got.choices[0].message.content)
            self.assertEqual(list(value), ["name", "age"])
            self.assertTrue(0 <= value["age"] <= 120 and len(value["name"]) <= 20)
        got = self.client.chat.completions.create(model="nano", messages=ASK, max_tokens=600,
                                                  response_format={"type": "json_object"}, temperature=0)
        if got.choices[0].finish_reason == "stop":
            self.assertIsInstance(json.loads(got.choices[0].message.content), dict)
        with self.assertRaises(openai.BadRequestError) as caught:
            form["json_schema"]["schema"] = {"not": {}}
            self.client.chat.completions.create(model="nano", messages=ASK, response_format=form)
        self.assertEqual(caught.exception.param, "response_format.json_schema.schema")
        got = self.client.responses.create(
            model="nano", input="Hi", max_output_tokens=600, reasoning={"effort": "none"},
            text={"format": {"type": "json_schema", "name": "person", "strict": True, "schema": person}})
        self.assertEqual(list(json.loads(got.output_text)), ["name", "age"])

    def test_parse_into_a_class(self):
        import pydantic

        class Step(pydantic.BaseModel):
            what: str = pydantic.Field(max_length=20)
            done: bool

        class Plan(pydantic.BaseModel):
            steps: list[Step] = pydantic.Field(min_length=1, max_length=3)
            note: str | None = pydantic.Field(max_length=9)

        got = self.client.chat.completions.parse(model="nano", messages=ASK, response_format=Plan, max_tokens=900,
                                                 temperature=1.2, reasoning_effort="none")
        self.assertIsInstance(got.choices[0].message.parsed, Plan)

    def test_tool_choice(self):
        other = {"type": "function", "function": {"name": "other", "strict": True, "parameters": {
            "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
            "additionalProperties": False}}}
        ask = dict(model="nano", messages=[{"role": "user", "content": "Tell me a story."}], tools=[TOOL, other],
                   max_tokens=600, temperature=1.2)
        got = self.client.chat.completions.create(tool_choice="required", **ask).choices[0]
        self.assertTrue(got.message.tool_calls)
        got = self.client.chat.completions.create(
            tool_choice={"type": "function", "function": {"name": "other"}}, parallel_tool_calls=False, **ask)
        call, = got.choices[0].message.tool_calls
        self.assertEqual(call.function.name, "other")
        self.assertIs(type(json.loads(call.function.arguments)["n"]), int)
        got = self.client.chat.completions.create(tool_choice="none", **ask).choices[0]
        self.assertFalse(got.message.tool_calls)

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model="nano", messages=ASK, n=50)
        self.assertEqual(caught.exception.param, "n")
        self.assertRegex(caught.exception.request_id, "^req_[0-9a-f]{16}$")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model="nano", messages=[{"role": "user", "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}])
        self.assertEqual(caught.exception.param, "messages[0].content[1]")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model="nano", messages=[
                {"role": "user", "content": "word " * 200000}])
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.responses.create(model="nano", input="Hi", previous_response_id="resp_1")
        self.assertEqual(caught.exception.param, "previous_response_id")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")
        with self.assertRaises(openai.NotFoundError):
            self.client.embeddings.create(model="nano", input="x")

    def test_usage_in_a_stream(self):
        last = None
        for chunk in self.client.chat.completions.create(
                model="nano", messages=ASK, temperature=0, max_tokens=40, stream=True,
                stream_options={"include_usage": True}):
            last = chunk
        self.assertEqual(last.choices, [])
        self.assertEqual(last.usage.completion_tokens, 40)
        self.assertGreater(last.usage.completion_tokens_details.reasoning_tokens, 0)
        self.assertGreaterEqual(last.usage.prompt_tokens_details.cached_tokens, 0)

    def test_choices_and_logprobs(self):
        got = self.client.chat.completions.create(
            model="nano", messages=ASK, max_tokens=10, n=3, seed=1, logprobs=True, top_logprobs=2)
        self.assertEqual([c.index for c in got.choices], [0, 1, 2])
        for c in got.choices:
            self.assertEqual(len(c.logprobs.content), 10)
            self.assertEqual(len(c.logprobs.content[0].top_logprobs), 2)

    def test_parsed_schema(self):
        """The SDK's own helper: a pydantic model becomes a strict schema and comes back filled."""
        class City(pydantic.BaseModel):
            name: str
            big: bool
        got = self.client.chat.completions.parse(
            model="nano", messages=[{"role": "user", "content": "Tell me about Paris as JSON."}],
            response_format=City, temperature=0, max_tokens=400, reasoning_effort="none")
        if got.choices[0].finish_reason == "stop":
            self.assertIsInstance(got.choices[0].message.parsed, City)
        else:  # a small model may write on and on inside a string: cut, but never wrong
            self.assertTrue(got.choices[0].message.content.lstrip().startswith("{"))

    def test_tool_choices(self):
        def calls(**more):
            return self.client.chat.completions.create(
                model="nano", messages=[{"role": "user", "content": "Hi"}], tools=[TOOL], temperature=0,
                max_tokens=300, **more).choices[0].message.tool_calls
        self.assertFalse(calls(tool_choice="none"))
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            got = calls(tool_choice=choice, parallel_tool_calls=False)
            self.assertEqual([c.function.name for c in got], ["get_weather"])

    def test_responses_agent_loop(self):
        """Stateless, as Codex does it: every item goes back, reasoning too."""
        tool = {"type": "function", "name": "get_weather", "description": "Weather of a city",
                "parameters": WEATHER, "strict": False}
        items, calls, kinds = list(ASK), 0, []
        for _ in range(4):
            with self.client.responses.stream(model="nano", input=items, tools=[tool], temperature=0,
                                              max_output_tokens=300, store=False,
                                              include=["reasoning.encrypted_content"]) as stream:
                kinds += [e.type for e in stream]
                final = stream.get_final_response()
            self.assertEqual(final.status, "completed")
            items += [i.model_dump(exclude_none=True) for i in final.output]
            asked = [i for i in final.output if i.type == "function_call"]
            if not asked:
                break
            for call in asked:
                self.assertEqual(call.name, "get_weather")
                json.loads(call.arguments)
                calls += 1
                items.append({"type": "function_call_output", "call_id": call.call_id,
                              "output": "sunny, 21 C"})
        self.assertGreaterEqual(calls, 1)
        self.assertIn("21", final.output_text)
        for kind in ("response.created", "response.output_item.added", "response.completed",
                     "response.reasoning_text.delta", "response.function_call_arguments.delta",
                     "response.function_call_arguments.done", "response.output_text.delta"):
            self.assertIn(kind, kinds)

    def test_leaving_a_stream(self):
        stream = self.client.chat.completions.create(
            model="nano", messages=ASK, max_tokens=20000, stream=True,
            extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.assertTrue(wait_for(lambda: self.server.metric("vllm:num_requests_running") == 0, 5))

    def test_async_many(self):
        async def go():
            client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="x")
            async with client:
                return await asyncio.gather(*(client.chat.completions.create(
                    model="nano", messages=[{"role": "user", "content": f"Tell me about {i} cats."}],
                    temperature=0, max_tokens=20) for i in range(24)))
        got = asyncio.run(go())
        self.assertEqual(len({g.id for g in got}), 24)
        self.assertTrue(all(g.usage.completion_tokens == 20 or g.choices[0].finish_reason == "stop"
                            for g in got))

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
                "thinking": {"type": "enabled", "budget_tokens": 20000}, "extra_body": {"top_k": 1}}
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

    def test_agent_loop(self):
        """Streams of text, thinking and tools, every block sent back as it came."""
        tool = {"name": "get_weather", "description": "Weather of a city", "input_schema": WEATHER}
        messages, calls, kinds = list(ASK), 0, []
        for _ in range(4):
            with self.client.messages.stream(
                    model="nano", max_tokens=2000, messages=messages, tools=[tool],
                    thinking={"type": "enabled", "budget_tokens": 20000},
                    system=[{"type": "text", "text": "Answer shortly.",
                             "cache_control": {"type": "ephemeral"}}],
                    extra_body={"top_k": 1}) as stream:
                kinds += [e.type for e in stream]
                got = stream.get_final_message()
            messages.append({"role": "assistant", "content": [b.model_dump() for b in got.content]})
            uses = [b for b in got.content if b.type == "tool_use"]
            self.assertEqual(got.stop_reason, "tool_use" if uses else "end_turn")
            if not uses:
                break
            calls += len(uses)
            messages.append({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": u.id, "content": [
                    {"type": "text", "text": "sunny, 21 C"}]} for u in uses]})
        self.assertGreaterEqual(calls, 1)
        self.assertIn("21", got.content[-1].text)
        self.assertGreater(got.usage.cache_read_input_tokens, 0)  # the loop's head was kept
        for kind in ("message_start", "thinking", "input_json", "text", "content_block_stop",
                     "message_delta", "message_stop"):
            self.assertIn(kind, kinds)

    def test_tool_choice_and_stops(self):
        tool = {"name": "get_weather", "description": "Weather of a city", "input_schema": WEATHER}
        got = self.client.messages.create(
            model="nano", max_tokens=300, messages=[{"role": "user", "content": "Hi"}], tools=[tool],
            tool_choice={"type": "tool", "name": "get_weather"}, extra_body={"temperature": 0})
        self.assertEqual((got.content[-1].type, got.stop_reason), ("tool_use", "tool_use"))
        fox = {"model": "nano", "max_tokens": 100, "extra_body": {"temperature": 0},
               "messages": [{"role": "user", "content": "Tell me a story about a fox."}]}
        text = self.client.messages.create(**fox).content[0].text
        word = text.split()[5]
        got = self.client.messages.create(stop_sequences=[word], **fox)
        self.assertEqual((got.stop_reason, got.stop_sequence), ("stop_sequence", word))
        self.assertEqual(got.content[0].text, text[:text.index(word)])
        got = self.client.messages.create(model="nano", max_tokens=2, messages=ASK)
        self.assertEqual(got.stop_reason, "max_tokens")

    def test_errors(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.client.messages.create(model="nano", max_tokens=5, messages=[
                {"role": "user", "content": [{"type": "image", "source": {
                    "type": "base64", "media_type": "image/png", "data": "AAAA"}}]}])
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        self.assertRegex(caught.exception.request_id, "^req_")
        with self.assertRaises(anthropic.NotFoundError):
            self.client.post("/v1/nowhere", body={}, cast_to=object)


class AnthropicForms(Anthropic):
    def test_message_and_stream(self):
        pass  # once is enough

    def test_tools_and_thinking(self):
        tool = {"name": "get_weather", "description": "Weather of a city", "input_schema": WEATHER}
        for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
            got = self.client.messages.create(model="nano", max_tokens=400, messages=[{"role": "user", "content": "Hi"}],
                                              tools=[tool], tool_choice={**choice, "disable_parallel_tool_use": True})
            self.assertEqual(got.stop_reason, "tool_use")
            self.assertIsInstance(got.content[-1].input["city"], str)


if __name__ == "__main__":
    unittest.main()
