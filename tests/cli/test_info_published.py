#!/usr/bin/env python3
"""trireme info on the published K3 config and index: the numbers of K3 spec 2.4, and four times the time of the processor that
Python takes to read that index (2 s)."""
import gzip
import json
import os
import pathlib
import resource
import subprocess
import sys
import time
import unittest

SHARED = pathlib.Path(os.environ["TRIREME_SHARED"]) / "k3"


class Published(unittest.TestCase):
    def test_k3(self):
        done = subprocess.run([os.environ["TRIREME"], "info", "--config", SHARED / "config.json", "--index",
                               SHARED / "model.safetensors.index.json.gz", "--json"],
                              capture_output=True, text=True, timeout=120)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        got = json.loads(done.stdout)
        self.assertEqual(got["tensors"], 497220)
        self.assertEqual(got["bytes"], 1560860324864)
        self.assertEqual(got["parameters"], 2779931837184)
        self.assertEqual(got["active_parameters"], 104189614848)
        self.assertEqual((got["missing"], got["extra"], got["mismatched"]), (0, 0, 0))
        self.assertEqual(got["found"], {"tensors": 497220, "bytes": 1560860324864})
        program = pathlib.Path(os.environ["TRIREME"]).read_bytes()
        if b"__asan_init" not in program and b"__tsan_init" not in program:
            before = time.process_time()
            with gzip.open(SHARED / "model.safetensors.index.json.gz") as f:
                json.load(f)
            self.assertLess(used.ru_utime + used.ru_stime, 20 * (time.process_time() - before))


if __name__ == "__main__":
    if not (SHARED / "config.json").exists():
        print(f"SKIP: {SHARED} is absent (reference material is not part of the repository)")
        sys.exit(77)
    unittest.main()
