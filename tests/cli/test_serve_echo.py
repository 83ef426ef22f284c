"""/v1/completions with echo and logprobs, as evaluation harnesses ask: the prompt's own tokens, each
with its log probability after those before it. The oracle is `trireme logits` of the same ids."""
import json
import math
import pathlib
import random
import socket
import subprocess
import tempfile
import threading
import unittest
from array import array

from serving import NANO, TRIREME, WithServer, need_nano, wait_for

need_nano()
PROMPTS = ["Once upon a time there was a fox", "The", "A deer saw two owls. It was late"]
VOCAB = 2048


def log_probabilities(ids):
    """Of every id after each of `ids`, by softmax in double over the raw logits."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "logits"
        subprocess.run([TRIREME, "logits", str(NANO), "--tokens", ",".join(map(str, ids)), "--act",
                        "int8", "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
        raw = array("f", out.read_bytes())
    assert len(raw) == len(ids) * VOCAB
    rows = []
    for at in range(0, len(raw), VOCAB):
        row = raw[at:at + VOCAB]
        most = max(row)
        total = most + math.log(math.fsum(math.exp(x - most) for x in row))
        rows.append([x - total for x in row])
    return rows


class Echo(WithServer):
    args = ("--context", "1024", "--parallel", "4", "--limit", "echo_tokens=600")

    def ask(self, status=200, **more):
        return self.server.post("/v1/completions", {"max_tokens": 1, "temperature": 0, "echo": True,
                                                    "logprobs": 1, **more}, status)

    def ids_of(self, prompt):
        return prompt if isinstance(prompt, list) else \
            self.server.post("/tokenize", {"prompt": prompt})["tokens"]

    def check(self, choice, ids, top):
        """`choice` tells `ids`, then perhaps tokens of its own."""
        got = choice["logprobs"]
        ids = ids + choice["token_ids"]
        lengths = {k: len(v) for k, v in got.items()}
        self.assertEqual(lengths, dict.fromkeys(lengths, len(ids)))
        self.assertIsNone(got["token_logprobs"][0])
        self.assertIsNone(got["top_logprobs"][0])
        for i, row in enumerate(log_probabilities(ids)[:-1], 1):
            likeliest = sorted(row, reverse=True)[:top]
            told = got["top_logprobs"][i]
            self.assertAlmostEqual(got["token_logprobs"][i], row[ids[i]], delta=2e-6)
            self.assertAlmostEqual(told[got["tokens"][i]], row[ids[i]], delta=2e-6)
            for a, b in zip(sorted(told.values(), reverse=True), likeliest):
                self.assertAlmostEqual(a, b, delta=2e-6)
            self.assertEqual(len(told), top + (row[ids[i]] < likeliest[-1]))
        return got

    def test_is_what_logits_say(self):
        for prompt in PROMPTS:
            for top in (1, 5):
                ids = self.ids_of(prompt)
                choice = self.ask(prompt=prompt, logprobs=top, return_token_ids=True)["choices"][0]
                got = self.check(choice, ids, top)
                self.assertEqual("".join(got["tokens"]), choice["text"])
                self.assertEqual(got["text_offset"],
                                 [len("".join(got["tokens"][:i])) for i in range(len(got["tokens"]))])
        none = self.ask(prompt=PROMPTS[0], logprobs=0)["choices"][0]["logprobs"]
        self.assertIsNone(none["top_logprobs"])
        self.assertEqual(none["token_logprobs"][1:],
                         self.ask(prompt=PROMPTS[0])["choices"][0]["logprobs"]["token_logprobs"][1:])

    def test_long_ids_over_several_steps(self):
        draw = random.Random(3)
        ids = [draw.randrange(256, 1500) for _ in range(597)]
        for n in (1, 2, 16, 17, 18, 65, 597):  # rows are shown by 16, steps end at multiples of 64
            choice = self.ask(prompt=ids[:n], max_tokens=0, return_token_ids=True)["choices"][0]
            self.assertEqual((choice["finish_reason"], choice["token_ids"]), ("length", []))
            self.check(choice, ids[:n], 1)

    def test_max_tokens_zero(self):
        got = self.ask(prompt=PROMPTS[0], max_tokens=0)
        self.assertEqual(got["choices"][0]["text"], PROMPTS[0])
        self.assertEqual(got["usage"]["completion_tokens"], 0)
        plain = self.ask(prompt=PROMPTS[0], max_tokens=0, logprobs=None)["choices"][0]
        self.assertEqual((plain["text"], plain["logprobs"]), (PROMPTS[0], None))
        self.assertEqual(self.ask(400, prompt="a", max_tokens=0, echo=False)["error"]["param"], "max_tokens")
        self.assertEqual(self.ask(400, prompt="a", max_tokens=-1)["error"]["param"], "max_tokens")

    def test_nothing_is_reused(self):
        for _ in range(2):  # the slot holds all of it the second time
            got = self.ask(prompt=PROMPTS[0] * 12, max_tokens=2)
            self.assertEqual(got["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        first, second = (self.ask(prompt=PROMPTS[0] * 12)["choices"][0]["logprobs"] for _ in range(2))
        self.assertEqual(first, second)
        again = self.ask(prompt=PROMPTS[0] * 12, echo=False, logprobs=None)["usage"]
        self.assertGreater(again["prompt_tokens_details"]["cached_tokens"], 0)

    def test_several_prompts_and_choices(self):
        solo = [self.ask(prompt=p)["choices"][0] for p in PROMPTS]
        for prompts in (PROMPTS, [self.ids_of(p) for p in PROMPTS]):
            got = self.ask(prompt=prompts, n=2)["choices"]
            self.assertEqual([c["index"] for c in got], list(range(6)))
            for i, c in enumerate(got):
                self.assertEqual(c["logprobs"], solo[i // 2]["logprobs"])

    def test_stream_is_the_whole(self):
        for n, text in ((0, PROMPTS), (5, PROMPTS), (5, PROMPTS[0])):
            whole = self.ask(prompt=text, max_tokens=n, logprobs=3)["choices"]
            told = [{"text": "", "tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
                    for _ in whole]
            for e in self.server.events("/v1/completions", {
                    "prompt": text, "max_tokens": n, "temperature": 0, "echo": True, "logprobs": 3,
                    "stream": True})[:-1]:
                for c in e["choices"]:
                    told[c["index"]]["text"] += c["text"]
                    for k, v in (c["logprobs"] or {}).items():
                        told[c["index"]][k] += v
            self.assertEqual(told, [{"text": c["text"], **c["logprobs"]} for c in whole])

    def test_the_end_has_one_too(self):
        """Harnesses cut the last one off as the answer's: it must be there even if it is the end."""
        for seed in range(40):
            c = self.ask(prompt="The end.", max_tokens=60, temperature=1, seed=seed,
                         return_token_ids=True)["choices"][0]
            n = len(self.ids_of("The end.")) + len(c["token_ids"])
            self.assertEqual(len(c["logprobs"]["tokens"]), n)
            if c["finish_reason"] == "stop":
                return
        self.skipTest("no answer ended")

    def test_limit(self):
        ids = [300] * 600
        self.ask(prompt=ids, max_tokens=0)
        self.ask(prompt=[ids[:300]] * 2, max_tokens=0)
        self.assertEqual(self.ask(400, prompt=ids + [300], max_tokens=0)["error"]["param"], "prompt")
        self.assertEqual(self.ask(400, prompt=[ids[:300], ids[:301]])["error"]["param"], "prompt")
        self.assertEqual(self.ask(400, prompt=ids[:301], n=2)["error"]["param"], "prompt")
        self.ask(prompt=ids + [300], logprobs=None)
        self.assertEqual(self.server.metric(
            'trireme_limit_hits_total{engine="0",model_name="nano",limit="echo_tokens"}'), 3)

    def test_beside_others(self):
        story = {"prompt": "Once upon", "max_tokens": 300, "temperature": 0, "ignore_eos": True}
        alone = self.server.post("/v1/completions", story)["choices"][0]["text"]
        scores = self.ask(prompt=PROMPTS[2] * 20)["choices"]
        texts = []
        others = [threading.Thread(target=lambda: texts.append(
            self.server.post("/v1/completions", story)["choices"][0]["text"])) for _ in range(2)]
        for t in others:
            t.start()
        for _ in range(5):
            self.assertEqual(self.ask(prompt=PROMPTS[2] * 20)["choices"], scores)
        for t in others:
            t.join()
        self.assertEqual(texts, [alone] * 2)

    # --- prompt_logprobs: vLLM's way of asking for the same ---

    def check_list(self, told, ids, top):
        self.assertEqual(len(told), len(ids))
        self.assertIsNone(told[0])
        for i, row in enumerate(log_probabilities(ids)[:-1], 1):
            order = sorted(range(VOCAB), key=lambda t: -row[t])
            self.assertEqual(next(iter(told[i])), str(ids[i]))
            self.assertEqual({int(t) for t in told[i]}, {ids[i], *order[:top]})
            for t, p in told[i].items():
                self.assertAlmostEqual(p["logprob"], row[int(t)], delta=2e-6)
                self.assertEqual(p["rank"], 1 + sum(x > row[int(t)] for x in row))
                self.assertEqual(p["decoded_token"],
                                 self.server.post("/detokenize", {"tokens": [int(t)]})["prompt"])

    def test_prompt_logprobs(self):
        plain = {"echo": False, "logprobs": None}
        for top in (0, 1, 7):
            got = self.ask(prompt=PROMPTS, prompt_logprobs=top, n=2, **plain)["choices"]
            self.assertEqual(len(got), 6)
            for c, prompt in zip(got[::2], PROMPTS):
                self.check_list(c["prompt_logprobs"], self.ids_of(prompt), top)
            self.assertEqual([c["prompt_logprobs"] for c in got[::2]],
                             [c["prompt_logprobs"] for c in got[1::2]])
        both = self.ask(prompt=PROMPTS[0], prompt_logprobs=7, logprobs=2)["choices"][0]
        self.assertEqual(both["prompt_logprobs"], got[0]["prompt_logprobs"])
        self.assertEqual(both["logprobs"], self.ask(prompt=PROMPTS[0], logprobs=2)["choices"][0]["logprobs"])
        self.assertNotIn("prompt_logprobs", self.ask(prompt=PROMPTS[0])["choices"][0])

    def test_prompt_logprobs_of_a_chat(self):
        got = self.server.chat("A fox met an owl.", prompt_logprobs=3, return_token_ids=True, n=2, max_tokens=4)
        self.check_list(got["prompt_logprobs"], got["prompt_token_ids"], 3)

    def test_prompt_logprobs_refused(self):
        chat = {"messages": [{"role": "user", "content": "a"}], "input": "a", "max_tokens": 1}
        for path, more in (("/v1/messages", {}), ("/v1/responses", {}),
                           ("/v1/chat/completions", {"stream": True}), ("/v1/chat/completions", {"prompt_logprobs": 21}),
                           ("/v1/chat/completions", {"prompt_logprobs": -1})):
            body = self.server.post(path, {"prompt_logprobs": 0, **chat, **more}, 400)
            self.assertIn("prompt_logprobs", json.dumps(body))
        self.server.post("/v1/chat/completions", {"prompt_logprobs": 20, **chat})
        self.ask(prompt=[300] * 600, prompt_logprobs=0, echo=False, logprobs=None, n=2)
        self.assertEqual(self.ask(400, prompt=[300] * 601, prompt_logprobs=0, echo=False, logprobs=None)
                         ["error"]["param"], "prompt")

    # --- ids of prompts in streams ---

    def test_prompt_ids_in_streams(self):
        events = self.server.events("/v1/completions", {
            "prompt": PROMPTS, "max_tokens": 3, "return_token_ids": True, "stream": True})[:-1]
        told = [[] for _ in PROMPTS]
        for c in (c for e in events for c in e["choices"]):
            told[c["index"]].append(c.get("prompt_token_ids"))
        self.assertEqual([t[0] for t in told], [self.ids_of(p) for p in PROMPTS])
        self.assertFalse(any(later for t in told for later in t[1:]))

    def test_cancel(self):
        ids = [300 + i % 900 for i in range(590)]
        for _ in range(5):
            body = json.dumps({"prompt": ids, "max_tokens": 1, "echo": True, "logprobs": 5})
            with socket.create_connection(("127.0.0.1", self.server.port)) as s:
                s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
                          f"\r\n\r\n{body}".encode())
                wait_for(lambda: self.server.metric("vllm:num_requests_running") > 0, 1)
        self.assertTrue(wait_for(lambda: self.server.metric("vllm:num_requests_running") == 0))
        self.assertEqual(len(self.ask(prompt=ids, max_tokens=0)["choices"][0]["logprobs"]["tokens"]), 590)


if __name__ == "__main__":
    unittest.main()
