#!/usr/bin/env python3
"""bench/peer/run.py and tools/accuracy.py refuse in one line, before they install, make or start anything."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("TRIREME_SOURCE", "."))
TRIREME = os.environ.get("TRIREME", "build/release/trireme")
MODEL = SOURCE / "models" / "nano"


def refusal(script, *args):
    with tempfile.TemporaryDirectory() as work:
        more = ("--work", f"{work}/peer") if script.name == "run.py" else ()
        done = subprocess.run([sys.executable, script, *map(str, args), *more], capture_output=True, text=True, timeout=60)
        assert not os.listdir(work), os.listdir(work)
    assert done.returncode == 1, (args, done.returncode, done.stderr)
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1, (args, done.stdout, done.stderr)
    return done.stderr


class Refusals(unittest.TestCase):
    def test_peer(self):
        for args, want in ((("--trireme", "/dev/null"), "is no program"), (("--trireme", "/"), "is no program"),
                           (("--model", "/dev/null"), "no config.json"), (("--pairs", "-1"), "--pairs -1: 0 or more"),
                           (("--threads", "0"), "--threads 0: 1 or more"), (("--decode", "0"), "--decode"),
                           (("--prefill", "0"), "--prefill"), (("--reps", "0"), "--reps"), (("--kl", "-3"), "--kl"),
                           (("--act", "x"), "--act"), (("--trunk", ""), "--trunk"), (("--threads", "nan"), "--threads"),
                           (("--prefill", "9" * 20), "--prefill"), (("--decode", "9" * 20), "--decode"), (("--nope",), "--nope"),
                           (("--json", "/dev/null/x"), "--json"), (("--json", "/"), "--json"),
                           (("--pairs", "0"), "nothing to do"), (("--kl", "4", "--reference", "/dev/null/x"), "no such file")):
            with self.subTest(args):
                self.assertIn(want, refusal(SOURCE / "bench" / "peer" / "run.py", "--trireme", TRIREME, *args))

    def test_accuracy(self):
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.assertIn("needs numpy", refusal(SOURCE / "tools" / "accuracy.py", MODEL, "x"))
            return
        text = SOURCE / "tests" / "data" / "nano" / "heldout.txt"
        for args, want in (((MODEL, text, "--only", "f64/exact/f32"), "no such row"), ((MODEL, text, "--window", "1"), "2 or more"),
                           ((MODEL, "/dev/null/x"), "no such file"), (("/dev/null", text), "no such file"),
                           ((MODEL, text, "--trireme", "/dev/null"), "is no program")):
            with self.subTest(args):
                self.assertIn(want, refusal(SOURCE / "tools" / "accuracy.py", "--trireme", TRIREME, *args))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
