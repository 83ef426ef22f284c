#!/usr/bin/env python3
"""`trireme run` with the shipped nano model: answers that are true. The tasks of tests/data/nano were
solved by the training code's own forward pass; here each must be solved again, with the same number
of prompt and reply tokens."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from test_run import TRIREME, Terminal  # noqa: E402

SOURCE = pathlib.Path(os.environ.get("TRIREME_SOURCE", "."))
NANO = str(SOURCE / "models" / "nano")
TASKS = SOURCE / "tests" / "data" / "nano" / "tasks.json"


def run_nano(*args):
    done = subprocess.run([TRIREME, "run", "-m", NANO, *args], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=300)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


def answer(*args):
    return json.loads(run_nano("--greedy", "--json", *args))


class Tasks(unittest.TestCase):
    def test_every_task(self):
        tasks = json.loads(TASKS.read_text())
        self.assertGreater(len(tasks), 5)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "request.json")
            for task in tasks:
                with self.subTest(task=task["name"]):
                    self.one_task(task, path)

    def one_task(self, task, path):
        pathlib.Path(path).write_text(json.dumps(
            {k: task[k] for k in ("messages", "tools", "response_format") if k in task}))
        more = ["--effort", task["effort"]] if "effort" in task else []
        more += ["--no-think"] if task.get("thinking") is False else []
        got = answer("--request", path, *more)
        for words in task["expect"].get("contains", []):
            self.assertIn(words, got["text"])
        if "tool_call" in task["expect"]:
            calls = [{"name": c["name"], "arguments": json.loads(c["arguments"])}
                     for c in got["tool_calls"]]
            self.assertEqual(calls, [task["expect"]["tool_call"]])
            self.assertEqual(got["finish"], "tool_calls")
        else:
            self.assertEqual(got["finish"], "stop")
        self.assertEqual(got["deviations"], {})
        self.assertEqual(got["usage"]["prompt_tokens"], task["prompt_tokens"])
        self.assertEqual(got["usage"]["completion_tokens"], task["reply_tokens"])


class Story(unittest.TestCase):
    PROMPT = "Tell me a story about a fox."

    def test_streamed_text_is_the_whole_text(self):
        want = answer(self.PROMPT)
        self.assertIn("fox", want["text"])
        self.assertEqual(run_nano("--greedy", self.PROMPT), want["text"] + "\n")

    def test_greedy_whatever_chunk_and_threads(self):
        want = answer(self.PROMPT)["tokens"]
        for more in (["--chunk", "1"], ["--chunk", "7"], ["--chunk", "64"], ["--threads", "1"],
                     ["--threads", "2"]):
            self.assertEqual(answer(*more, self.PROMPT)["tokens"], want, more)

    def test_stop_string_across_tokens(self):
        text = answer(self.PROMPT)["text"]
        for at in (10, 23, 40):
            stop = text[at:at + 7]
            got = answer("--stop", stop, self.PROMPT)
            self.assertEqual((got["text"], got["finish"]), (text[:text.index(stop)], "stop"))
            self.assertEqual(run_nano("--greedy", "--stop", stop, self.PROMPT).rstrip("\n"),
                             text[:text.index(stop)].rstrip("\n"))

    def test_seed(self):
        a, b, c = (json.loads(run_nano("--json", "--seed", s, self.PROMPT))["tokens"] for s in "112")
        self.assertEqual(a, b)
        self.assertNotEqual(a, c)


class Chat(unittest.TestCase):
    def chat(self, *more):
        t = Terminal("-m", NANO, "--greedy", *more)
        t.read_until(r"> $")
        return t

    def leave(self, t):
        t.send("\x04")
        self.assertEqual(t.end(), 0)

    def test_it_remembers_and_reads_only_what_is_new(self):
        t = self.chat()
        t.say("My name is Selma.")
        seen = t.say("What is my name?")
        self.assertIn("Selma", seen)
        self.assertRegex(seen, r"\(\d+ kept\)")
        self.leave(t)

    def test_a_turn_is_the_same_as_the_whole_conversation(self):
        """The second answer from the kept state, and from the whole conversation read at once."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "talk")
            t = self.chat()
            t.say("My name is Selma.")
            t.say("What is my name?")
            t.say("/save " + path, until=r"Saved to .*\n")
            self.leave(t)
            messages = [json.loads(m["message"])
                        for m in json.loads(pathlib.Path(path).read_text())["messages"]]
            request = os.path.join(folder, "request.json")
            pathlib.Path(request).write_text(json.dumps({"messages": messages[:3]}))
            self.assertEqual(answer("--request", request)["text"], messages[3]["content"])

    def test_tool_call_and_result(self):
        """The call of the task that the model is known to solve, its result, and an answer."""
        task = next(t for t in json.loads(TASKS.read_text()) if t["name"] == "tool_call_numbers")
        call = task["expect"]["tool_call"]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tools.json")
            pathlib.Path(path).write_text(json.dumps(task["tools"]))
            t = self.chat("--tools", path)
            seen = t.say(task["messages"][0]["content"])
            shown = re.search(r"\[tool call\] (\w+) (\{.*\})", seen)
            self.assertIsNotNone(shown, seen)
            self.assertEqual((shown.group(1), json.loads(shown.group(2))),
                             (call["name"], call["arguments"]))
            self.assertNotIn("[tool call]", t.say("/tool 42"))
            t.say("/tool again", until=r"No tool call waits.*\n")
            self.leave(t)


if __name__ == "__main__":
    if not os.path.exists(os.path.join(NANO, "config.json")):
        print(f"SKIP: {NANO} is absent")
        sys.exit(77)
    unittest.main()
