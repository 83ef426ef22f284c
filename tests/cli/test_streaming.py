#!/usr/bin/env python3
"""Experts that do not fit: logits must be bit-equal whatever the memory for experts, the policy, the
way drives are read, the threads and the chunks of one run; the counters must add up; a shard cut
while it is in use, or unreadable experts, are one error that names them."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_tiny  # noqa: E402

TRIREME = os.environ.get("TRIREME", "build/release/trireme")
TOKENS = ",".join(str((i * 37 + 11) % 200) for i in range(40))


def logits(folder, *flags):
    return subprocess.run([TRIREME, "logits", str(folder), "--tokens", TOKENS, *flags],
                          capture_output=True, text=True)


class Streaming(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.keep = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.keep.name) / "model"
        make_tiny.write(cls.folder, vocab=200, experts=16, topk=4, layers=6)

    @classmethod
    def tearDownClass(cls):
        cls.keep.cleanup()

    def test_same_bits_everywhere(self):
        want = logits(self.folder, "--chunk", "1", "--threads", "1")
        self.assertEqual(want.returncode, 0, want.stderr)
        self.assertEqual(want.stdout.count("\n"), 40)
        for ram in ("4K", "20K", "60K"):
            for policy in ("cycle", "lru", "lfu"):
                for more in (("--io", "threads", "--threads", "2"), ("--io-depth", "1"),
                             ("--page-cache", "yes", "--threads", "1")):
                    got = logits(self.folder, "--chunk", "1", "--expert-ram", ram, "--expert-policy",
                                 policy, *more)
                    self.assertEqual(got.returncode, 0, got.stderr)
                    self.assertEqual(got.stdout, want.stdout, (ram, policy, more))

    def test_chunks_too(self):
        want = logits(self.folder, "--chunk", "16")
        got = logits(self.folder, "--chunk", "16", "--expert-ram", "8K", "--threads", "2")
        self.assertEqual((got.returncode, got.stdout), (0, want.stdout))

    def test_a_streamed_trunk(self):
        want = logits(self.folder, "--chunk", "4")
        for ram in ("64M", "4M"):
            for threads in ("1", "2"):
                got = logits(self.folder, "--chunk", "4", "--trunk", "stream", "--ram", ram,
                             "--threads", threads)
                self.assertEqual((got.returncode, got.stdout), (0, want.stdout), got.stderr)

    def test_the_ladder(self):
        """Less and less memory: the answer stays, gets coarser, is exact again when the trunk is
        streamed, and is refused in one line at the end; never anything else."""
        exact = logits(self.folder, "--chunk", "4").stdout
        seen = []
        for kib in range(4000, 100, -60):
            got = logits(self.folder, "--chunk", "4", "--ram", f"{kib}K")
            if got.returncode == 0:
                seen.append("exact" if got.stdout == exact else "coarser")
            else:
                self.assertEqual((got.returncode, got.stderr.count("\n")), (1, 1), got.stderr)
                self.assertIn("--ram", got.stderr)
                seen.append("refused")
        stages = [s for i, s in enumerate(seen) if i == 0 or s != seen[i - 1]]
        self.assertEqual(stages, ["exact", "coarser", "exact", "refused"])

    def test_too_little(self):
        got = logits(self.folder, "--expert-ram", "1K")
        self.assertEqual(got.returncode, 1)
        self.assertEqual(got.stderr.count("\n"), 1)
        self.assertIn("--ram", got.stderr)


if __name__ == "__main__":
    unittest.main()
