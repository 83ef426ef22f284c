#!/usr/bin/env python3
"""No illegal instruction on an old x86-64: outside the files that cmake/Kernels.cmake compiles for an
instruction set, no object may hold anything newer than SSE2, and those files are reached through
kernels/dispatch.c alone. Then the program runs on an emulated Nehalem (qemu-user) and must say what the
scalar kernels say here. Needs objdump, nm and qemu-x86_64; what is absent is skipped aloud.
ctest: slow"""
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import unittest

TRIREME = os.environ["TRIREME"]
SOURCE = pathlib.Path(os.environ["TRIREME_SOURCE"])
BUILD = pathlib.Path(TRIREME).resolve().parent
# Assembly that asks the CPU first, loop by loop.
GUARDED = {"limits/loops_x86.c"}
WIDE = re.compile(r"%[yz]mm|%tmm|%k[0-7]\b")
LINE = re.compile(r"^\s+[0-9a-f]+:\t(?:\{\w+\}\s+|(?:lock|rep\w*|bnd|notrack|data16|cs) )*(\w+)\s*(.*)$")
# Of SSE3 to SSE4.2, POPCNT and BMI: what compilers choose by themselves, or hands write.
NEWER = re.compile(r"^(pshufb|palignr|pabs[bwd]|phadd\w+|pmaddubsw|pmulhrsw|psign[bwd]|popcnt|crc32\w?|ptest|"
                   r"pmulld|pm(?:in|ax)(?:s[bd]|u[wd])|pblend\w+|blend\w+|round[sp][sd]|pextr[bdq]|pinsr[bdq]|"
                   r"dpp[sd]|pcmp[ei]str\w|pcmpgtq|pcmpeqq|pack\wusdw|pmov[sz]x\w+|hadd\w+|movddup|movs[hl]dup|"
                   r"addsub\w+|lddqu|pext|pdep|mulx|rorx|s[ahr]lx|s[ah]rx|andn|bextr|bls\w+|aes\w+)$")


def isa_files():
    text = (SOURCE / "cmake" / "Kernels.cmake").read_text()
    return {f"kernels/{name}" for name in re.findall(r"^\s+tri_isa\((x86/\S+)", text, re.M)}


def objects():
    """Object files by the source they are made of, as room/file.c."""
    found = {}
    for path in BUILD.glob("CMakeFiles/tri_*.dir/src/**/*.c.o"):
        name = str(path).split(".dir/src/", 1)[1][:-2]
        if (SOURCE / "src" / name).exists():  # not what an earlier build left
            found[name] = path
    return found


def newer_instruction(mnemonic, operands):
    return bool(WIDE.search(operands) or (mnemonic.startswith("v") and "%xmm" in operands) or
                NEWER.match(mnemonic))


def first_newer(path):
    """The first instruction of an object that SSE2 has not, or None."""
    done = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True,
                          check=True)
    for line in done.stdout.splitlines():
        match = LINE.match(line)
        if match and newer_instruction(*match.groups()):
            return line.strip()
    return None


def symbols(path):
    """Defined and undefined names of an object."""
    done = subprocess.run(["nm", path], capture_output=True, text=True, check=True)
    names = [line.split()[-2:] for line in done.stdout.splitlines() if line.split()]
    return ({n for kind, n in names if kind == "T"}, {n for kind, n in names if kind == "U"})


class Baseline(unittest.TestCase):
    def setUp(self):
        for tool in ("objdump", "nm"):
            if not shutil.which(tool):
                self.skipTest(f"no {tool} on this machine (Debian: binutils)")
        self.objects = objects()
        self.assertGreater(len(self.objects), 100, f"no objects below {BUILD}")

    def test_the_check_itself_finds_them(self):
        """Every file of the list has such instructions: the pattern sees what it must not miss."""
        files = isa_files()
        self.assertGreater(len(files), 4)
        for name in sorted(files | GUARDED):
            self.assertIsNotNone(first_newer(self.objects[name]), name)

    def test_everything_else_is_sse2(self):
        files = isa_files() | GUARDED
        found = {name: first_newer(path) for name, path in self.objects.items() if name not in files}
        self.assertEqual({name: line for name, line in found.items() if line}, {})

    def test_only_dispatch_reaches_them(self):
        files = isa_files()
        wide = set().union(*(symbols(self.objects[name])[0] for name in files))
        self.assertGreater(len(wide), 20)
        callers = {name for name, path in self.objects.items() if symbols(path)[1] & wide}
        self.assertEqual(callers - files, {"kernels/dispatch.c"})


def lines(command, env):
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


class OldCpu(unittest.TestCase):
    def setUp(self):
        if not shutil.which("qemu-x86_64"):
            self.skipTest("no qemu-x86_64 on this machine (Debian: qemu-user)")
        cache = (BUILD / "CMakeCache.txt").read_text()
        if re.search(r"^TRI_SANITIZE:\w+=.+", cache, re.M):
            self.skipTest("sanitizers do not run under qemu")

    def test_nano_on_nehalem(self):
        tokens = ",".join(str(i * 7919 % 2000) for i in range(24))
        command = [TRIREME, "logits", str(SOURCE / "models" / "nano"), "--tokens", tokens, "--threads", "2"]
        here = lines(command, dict(os.environ, TRIREME_ISA="ref"))
        env = {k: v for k, v in os.environ.items() if k != "TRIREME_ISA"}
        old = lines(["qemu-x86_64", "-cpu", "Nehalem", *command], env)
        self.assertEqual(len(here), 24)
        self.assertEqual([row["argmax"] for row in old], [row["argmax"] for row in here])
        for row, want in zip(old, here):  # the C library's functions differ in the last bit
            self.assertAlmostEqual(row["margin"], want["margin"], delta=1e-3)


if __name__ == "__main__":
    if platform.machine() not in ("x86_64", "AMD64"):
        print("SKIP: not an x86-64 machine")
        sys.exit(77)
    result = unittest.main(exit=False).result
    for test, why in result.skipped:
        print(f"SKIP: {test}: {why}")
    sys.exit(0 if result.wasSuccessful() and not result.skipped else 77 if result.wasSuccessful() else 1)
