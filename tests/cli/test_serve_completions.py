"""/v1/completions: several prompts in one request, as texts and as ids, whole and streamed; each is
what it would be alone. Limits at their edge and one past."""
import unittest

from serving import WithServer, need_nano

need_nano()
PROMPTS = ["Once upon", "The fox", "A deer"]


class Completions(WithServer):
    args = ("--context", "256", "--parallel", "4")

    def ask(self, status=200, **more):
        return self.server.post("/v1/completions", {"max_tokens": 8, "temperature": 0, **more}, status)

    def test_lists_are_their_parts(self):
        alone = [self.ask(prompt=p)["choices"][0]["text"] for p in PROMPTS]
        together = self.ask(prompt=PROMPTS)
        self.assertEqual([c["text"] for c in together["choices"]], alone)
        self.assertEqual([c["index"] for c in together["choices"]], [0, 1, 2])
        ids = [self.server.post("/tokenize", {"prompt": p})["tokens"] for p in PROMPTS]
        by_id = self.ask(prompt=ids)
        self.assertEqual([c["text"] for c in by_id["choices"]], alone)
        self.assertEqual(by_id["usage"]["prompt_tokens"], sum(map(len, ids)))
        self.assertEqual(by_id["usage"]["completion_tokens"], 24)
        self.assertEqual(self.ask(prompt=[ids[0]])["choices"][0]["text"], alone[0])
        self.assertEqual(self.ask(prompt=ids[0])["choices"][0]["text"], alone[0])

    def test_n_and_echo(self):
        got = self.ask(prompt=PROMPTS, n=2, echo=True, return_token_ids=True, temperature=1, seed=5)["choices"]
        self.assertEqual([c["index"] for c in got], list(range(6)))
        for i, c in enumerate(got):
            self.assertTrue(c["text"].startswith(PROMPTS[i // 2]), c)
        solo = [c["text"] for p in PROMPTS for c in self.ask(prompt=p, n=2, echo=True, temperature=1, seed=5)["choices"]]
        self.assertEqual([c["text"] for c in got], solo)

    def test_stream(self):
        whole = [c["text"] for c in self.ask(prompt=PROMPTS, echo=True)["choices"]]
        text, ends = [""] * 3, []
        for e in self.server.events("/v1/completions", {"prompt": PROMPTS, "max_tokens": 8, "temperature": 0,
                                                        "stream": True, "echo": True})[:-1]:
            for c in e["choices"]:
                text[c["index"]] += c["text"]
                ends += [c["index"]] if c["finish_reason"] else []
        self.assertEqual(text, whole)
        self.assertEqual(sorted(ends), [0, 1, 2])

    def test_edges(self):
        self.assertEqual(len(self.ask(prompt=["a"] * 64, max_tokens=1)["choices"]), 64)
        self.assertEqual(self.ask(400, prompt=["a"] * 65)["error"]["param"], "prompt")
        for bad in ([], "", ["a", ""], [[1], []], [1, "a"], ["a", 1], [[10 ** 9]], [[1.5]], {"a": 1}, None, [None]):
            self.assertEqual(self.ask(400, prompt=bad)["error"]["param"], "prompt", bad)
        long = self.ask(400, prompt=["a", "word " * 300])["error"]
        self.assertEqual((long["code"], long["param"]), ("context_length_exceeded", "prompt"))
        self.assertEqual(self.ask(400, prompt="a", best_of=2)["error"]["param"], "best_of")
        self.ask(prompt="a", n=2, best_of=2)


if __name__ == "__main__":
    unittest.main()
