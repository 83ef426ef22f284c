#!/usr/bin/env python3
"""trireme tokenize: ids equal those of a second, slow tokenizer on random text; back to text; the
forms of input and output; errors are one line and name the place."""
import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import unicodedata
import unittest

import text_oracle

SOURCE = pathlib.Path(os.environ["TRIREME_SOURCE"])
SMALL = SOURCE / "tests" / "data" / "text" / "small"


def tokenize(*args, stdin=b"", env=None):
    done = subprocess.run([os.environ["TRIREME"], "tokenize", *map(str, args)], input=stdin, capture_output=True,
                          env=dict(os.environ, **(env or {})))
    return done.returncode, done.stdout, done.stderr.decode()


def ids_of(*args, stdin=b""):
    code, out, err = tokenize(*args, stdin=stdin)
    assert code == 0, err
    return [int(word) for word in out.split()]


class Encode(unittest.TestCase):
    oracle = text_oracle.Tokenizer(SMALL)

    def random_text(self, rng, letters):
        pool = (" \t\n\r\u00a0\u3000\u180e\u2028\x85\x1c'\u2019sStTrReEvVdDlLmM\u017f  aZb\u00e9\u01c5\u02b0\u05d0\u4e2d"
                "\u3007\u3005\u3001\u0301\u064b\u0928\u092e123\u0663\u00bd-_=/(){}<|>\"\u201c\U0001f44b\U0001f3fd\u200b\ufeff")
        words = ["<|open|>", "<|sep|>", "<|ope", "[BOS]", "<|reserved_token_706|>", "don't", "The ship", "\u8239\u6709\u4e09"]
        return "".join(rng.choice(words) if rng.random() < 0.1 else rng.choice(pool) if rng.random() < 0.8 else
                       rng.choice(letters) for _ in range(rng.randint(0, 400)))

    def test_random_text_equals_the_slow_tokenizer(self):
        rng = random.Random(20261129)
        # Letters of Unicode 3.2: every library classes them alike.
        letters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and
                   unicodedata.ucd_3_2_0.category(chr(c)) != "Cn"]
        for _ in range(150):
            text = self.random_text(rng, letters)
            for flags in ([], ["--markup"]):
                with self.subTest(text=text, flags=flags):
                    want = self.oracle.encode(text, markup=bool(flags))
                    self.assertEqual(ids_of(SMALL, "-", *flags, stdin=text.encode()), want)
                    self.assertEqual(tokenize(SMALL, "--ids", "-", stdin=" ".join(map(str, want)).encode())[1],
                                     text.encode() + b"\n")

    def test_giant_runs_are_cut_as_the_reference_cuts(self):
        # Each is cut inside "he" or "the", which is one token wherever no cut divides it.
        for text in ("x" + "he" * 12500, "xx" + "the " * 100000, " " * 25001, " " * 25000 + "x" + "he" * 25000):
            parts = list(text_oracle.slices(text))
            want = [i for part in parts for i in ids_of(SMALL, "-", stdin=part.encode())]
            self.assertTrue(ids_of(SMALL, "-", stdin=text.encode()) == want, len(text))
            if "e" in text:
                self.assertTrue(self.oracle.ranks[b"e"] in want)
                self.assertFalse(self.oracle.ranks[b"e"] in self.oracle.plain(text[:21]))

    def test_a_damaged_pattern_would_be_seen(self):
        """The oracle itself tells apart what the format's traps mix up."""
        plain = self.oracle.plain
        self.assertNotEqual(plain("<|open|>"), self.oracle.markup("<|open|>"))
        self.assertEqual([text_oracle.pre_token(t, 0) for t in ("\u3007\u4e2d", "1234", "a's", "A'S", "  x", "\n \nx")],
                         [2, 3, 3, 3, 1, 3])


class Forms(unittest.TestCase):
    def test_nul_and_newlines_of_standard_input_are_text(self):
        for text in (b"a\0b\n", b"\0", b"\n", b"", b"x\r\n"):
            ids = ids_of(SMALL, "-", stdin=text)
            self.assertEqual(Encode.oracle.decode(ids), text)

    def test_text_argument_and_vocab(self):
        want = Encode.oracle.encode("Row, row!")
        self.assertEqual(ids_of(SMALL, "Row, row!"), want)
        self.assertEqual(ids_of("--vocab", SMALL / "tiktoken.model", "Row, row!"), want)
        self.assertEqual(ids_of("--", SMALL, "-x"), Encode.oracle.encode("-x"))

    def test_json_pieces(self):
        code, out, _ = tokenize(SMALL, "--json", "--markup", "\U0001f680<|sep|>\"")
        got = json.loads(out)
        self.assertEqual(got["ids"], Encode.oracle.encode("\U0001f680<|sep|>\"", markup=True))
        self.assertEqual(len(got["pieces"]), len(got["ids"]))
        self.assertEqual(got["pieces"][-2:], ["<|sep|>", '"'])
        self.assertIn("<0x9A>", got["pieces"])   # 🚀 is f0 9f 9a 80, and the fixture has no such token

    def test_ids_apart_by_blanks_or_commas(self):
        ids = Encode.oracle.encode("The ship")
        joined = ",".join(map(str, ids))
        for args, stdin in (([*ids], b""), ([joined], b""), ([joined.replace(",", ", ")], b""), (["-"], joined.encode())):
            self.assertEqual(tokenize(SMALL, "--ids", *args, stdin=stdin), (0, b"The ship\n", ""))
        got = json.loads(tokenize(SMALL, "--ids", "--json", joined)[1])
        self.assertEqual((got["ids"], got["text"]), (ids, "The ship"))

    def test_bytes_that_are_no_text(self):
        half = [0xF0, 0x9F]
        self.assertEqual(tokenize(SMALL, "--ids", *half)[1].decode(), "\ufffd\n")
        self.assertEqual(tokenize(SMALL, "--ids", 0xFF, 65, 0xE2, 0x82, 66)[1].decode(), "\ufffdA\ufffdB\n")

    def test_the_model_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(SMALL, pathlib.Path(folder) / "m")
            code, out, err = tokenize("The ship", env={"TRIREME_MODEL": folder + "/m"})
            self.assertEqual((code, [int(i) for i in out.split()]), (0, Encode.oracle.encode("The ship")), err)


class Errors(unittest.TestCase):
    def check(self, want_code, needle, *args, stdin=b""):
        code, out, err = tokenize(*args, stdin=stdin)
        self.assertEqual((code, out), (want_code, b""), err)
        self.assertIn(needle, err)
        if want_code == 1:
            self.assertEqual(err.count("\n"), 1, err)

    def test_input(self):
        self.check(1, "standard input: not valid UTF-8 at byte 2 (0xff)", SMALL, "-", stdin=b"ab\xff")
        self.check(1, "not valid UTF-8 at byte 0", SMALL, "-", stdin=b"\xed\xa0\x80")
        self.check(1, "'x' is no token id", SMALL, "--ids", "-", stdin=b"1 x")
        self.check(1, "id 714 is no token", SMALL, "--ids", 714)
        self.check(1, "no-such-folder", "no-such-folder", "x")
        self.check(1, "not valid JSON: line 1, column 2", SMALL, "--chat", "-", stdin=b"{")

    def test_usage(self):
        self.check(2, "TEXT is missing", "--vocab", SMALL / "tiktoken.model")
        self.check(2, "quote it", SMALL, "two", "words")
        self.check(2, "name one vocabulary", SMALL, "x", "--vocab", SMALL / "tiktoken.model")
        self.check(2, "ids are missing", SMALL, "--ids")
        self.check(2, "--start is think or response", SMALL, "--parse", "--start", "call", "1")


if __name__ == "__main__":
    unittest.main()
