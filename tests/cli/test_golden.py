#!/usr/bin/env python3
"""The forward pass against its oracles: tokens computed by the model authors' own code (k3/tiny) and
float64 logits, residual streams and routes of three random checkpoints (golden/a, b, c), each with
prefill in chunks of 1, 7, 64 and whole. Tolerances: relative L2 per position."""
import array
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TRIREME = os.environ.get("TRIREME", "build/release/trireme")
SHARED = pathlib.Path(os.environ.get("TRIREME_SHARED", "../shared"))
CHUNKS = (1, 7, 64, 512)
# Smallest top-1/top-2 margin over all positions, L2 eps inside (K3 spec appendix A).
MARGINS = {"short": 0.2908, "chunk": 0.0273, "long": 0.0253}
# golden set: (logits worst, residual median, residual worst)
TOLERANCES = {"a": (1e-4, 1e-5, 1e-4), "b": (1e-4, 1e-5, 1e-4), "c": (1e-3, 1e-5, 2e-3)}


def logits(folder, tokens, chunk, *more):
    """The lines of `trireme logits`, exact path, as objects."""
    done = subprocess.run(
        [TRIREME, "logits", str(folder), "--tokens", ",".join(map(str, tokens)), "--trunk", "f32",
         "--act", "exact", "--chunk", str(chunk), *more], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def floats(path):
    values = array.array("f")
    values.frombytes(pathlib.Path(path).read_bytes())
    return values


def relative_errors(got, want, width):
    """Relative L2 distance of each row of `width` values, ascending."""
    assert len(got) == len(want), (len(got), len(want))
    rows = []
    for i in range(0, len(want), width):
        a, b = got[i:i + width], want[i:i + width]
        rows.append(math.dist(a, b) / math.hypot(*b))
    return sorted(rows)


class Tiny(unittest.TestCase):
    def test_tokens_of_the_authors_code(self):
        folder = SHARED / "k3" / "tiny"
        cases = json.loads((folder / "ref.json").read_text())["cases"]
        self.assertEqual(set(cases), set(MARGINS))
        for name, case in cases.items():
            for chunk in CHUNKS:
                rows = logits(folder, case["prompt"] + case["new"], chunk)
                self.assertEqual([r["argmax"] for r in rows], case["argmax_per_position"], (name, chunk))
                margin = min(r["margin"] for r in rows)
                print(f"tiny {name} chunk {chunk}: smallest margin {margin:.6f}")
                self.assertAlmostEqual(margin, MARGINS[name], delta=0.00015)


class Golden(unittest.TestCase):
    def check(self, name):
        folder = SHARED / "golden" / name
        golden = json.loads((folder / "golden.json").read_text())
        worst_logits, median_residual, worst_residual = TOLERANCES[name]
        for chunk in CHUNKS:
            with tempfile.TemporaryDirectory() as out:
                rows = logits(folder, golden["tokens"], chunk, "--out", f"{out}/l", "--residual",
                              f"{out}/r", "--routes")
                l = relative_errors(floats(f"{out}/l"), floats(folder / "logits.f32"), golden["vocab"])
                r = relative_errors(floats(f"{out}/r"), floats(folder / "residual.f32"), golden["hidden"])
            print(f"golden {name} chunk {chunk}: logits worst {l[-1]:.1e}, residual median "
                  f"{r[len(r) // 2]:.1e} worst {r[-1]:.1e}")
            self.assertLess(l[-1], worst_logits)
            self.assertLess(r[len(r) // 2], median_residual)
            self.assertLess(r[-1], worst_residual)
            self.assertEqual([r["argmax"] for r in rows], golden["argmax"])
            self.check_routes(rows, golden["routes"])

    def check_routes(self, rows, routes):
        self.assertEqual(len(rows), len(routes))
        for row, want in zip(rows, routes):
            self.assertEqual([(x["layer"], x["experts"]) for x in row["routes"]],
                             [(x["layer"], x["experts"]) for x in want])
            for x, y in zip(row["routes"], want):
                for a, b in zip(x["weights"], y["weights"]):
                    self.assertAlmostEqual(a, b, delta=2e-4)

    def test_a(self):
        self.check("a")

    def test_b(self):
        self.check("b")

    def test_c(self):
        self.check("c")


if __name__ == "__main__":
    if not (SHARED / "golden" / "a" / "golden.json").exists():
        print(f"SKIP: {SHARED}/golden is absent (reference material is not part of the repository)")
        sys.exit(77)
    unittest.main()
