#!/usr/bin/env python3
"""Options that the documents name exist, of that command where a line shows one; and each that --help lists is in them."""
import os
import pathlib
import re
import subprocess
import unittest

TRIREME = os.environ["TRIREME"]
SOURCE = pathlib.Path(os.environ["TRIREME_SOURCE"])
# Of programs beside trireme: what a flag of theirs is may stand in a document.
OTHERS = {"csv": "nvidia-smi", "format": "nvidia-smi", "query-gpu": "nvidia-smi", "showtopo": "rocm-smi",
          "membind": "numactl", "now": "systemctl", "retry": "curl", "retry-all-errors": "curl", "save-result": "vllm",
          "kl": "bench/peer/run.py", "pairs": "bench/peer/run.py", "plain": "bench/peer/run.py",
          "work": "bench/peer/run.py", "peer": "tools/accuracy.py"}
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]+)")
EVERYWHERE = {"help", "usage", "version"}


def says(*args):
    return subprocess.run([TRIREME, *args], capture_output=True, text=True, check=True).stdout


def commands():
    return [line.split()[0] for line in says("--help").split("\n") if re.match(r"  [a-z]", line)]


class Options(unittest.TestCase):
    def setUp(self):
        self.options = {name: {m[1] for line in says(name, "--help").split("\n")
                               if (m := re.match(r" {2,6}(?:-\w, )?--([a-z][a-z0-9-]+)", line))} for name in commands()}
        self.assertGreaterEqual(len(self.options), 10)
        self.assertGreater(min(map(len, self.options.values())), 1)
        self.texts = {p: p.read_text() for p in [SOURCE / "README.md", *sorted((SOURCE / "docs").glob("*.md"))]}

    def test_what_documents_name_exists(self):
        known = set.union(*self.options.values()) | EVERYWHERE
        unused = set(OTHERS)
        for path, text in self.texts.items():
            for name in FLAG.findall(text):
                unused.discard(name)
                with self.subTest(path.name, option=name):
                    self.assertTrue(name in known or OTHERS.get(name, "-\0") in text.lower(), "no command has it")
        self.assertEqual(unused, set())

    def test_of_the_command_shown(self):
        """`trireme run ... --x`, up to the end of the code or of the line that shows it."""
        shown = 0
        for path, text in self.texts.items():
            for m in re.finditer(r"trireme ([a-z]+)\b([^`\n|;]*)", text):
                for name in FLAG.findall(m[2]) if m[1] in self.options else ():
                    shown += 1
                    with self.subTest(path.name, command=m[0]):
                        self.assertIn(name, self.options[m[1]] | EVERYWHERE)
        self.assertGreater(shown, 50)

    def test_what_help_lists_is_documented(self):
        named = {name for text in self.texts.values() for name in FLAG.findall(text)}
        for command, options in self.options.items():
            self.assertEqual(options - named - EVERYWHERE, set(), command)


if __name__ == "__main__":
    unittest.main()
