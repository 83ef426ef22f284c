#!/usr/bin/env python3
"""The nano model's vocabulary: the strings and conversations of tests/data/nano/vectors.json, whose
ids were made by the Python tools that trained it."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ["TRIREME_SOURCE"])
VECTORS = SOURCE / "tests" / "data" / "nano" / "vectors.json"


def ids_of(*args, stdin):
    done = subprocess.run([os.environ["TRIREME"], "tokenize", str(SOURCE / "models" / "nano"), *args], input=stdin.encode(),
                          capture_output=True, text=False)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


class Nano(unittest.TestCase):
    vectors = json.loads(VECTORS.read_text()) if VECTORS.exists() else None

    def test_strings(self):
        self.assertGreater(len(self.vectors["strings"]), 20)
        for case in self.vectors["strings"]:
            with self.subTest(text=case["text"]):
                self.assertEqual(ids_of("-", stdin=case["text"]), case["ids"])

    def test_conversations(self):
        self.assertGreater(len(self.vectors["conversations"]), 3)
        for case in self.vectors["conversations"]:
            request = dict(case["input"])
            if "effort" in request:
                request["thinking_effort"] = request.pop("effort")
            with self.subTest(request=request):
                self.assertEqual(ids_of("--chat", "-", stdin=json.dumps(request)), case["ids"])


if __name__ == "__main__":
    if not VECTORS.exists():
        print(f"SKIP: {VECTORS} is absent")
        sys.exit(77)
    unittest.main()
