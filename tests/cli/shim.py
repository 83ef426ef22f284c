"""Shared objects that a test preloads into trireme so that the system goes wrong: built from the C files beside this one."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from serving import TRIREME

HERE = pathlib.Path(__file__).resolve().parent
SANITIZED = any(x in pathlib.Path(TRIREME).read_bytes() for x in (b"__asan_init", b"__tsan_init"))


def build(source, folder):
    """The shared object made of `source`; skips the test where there can be none."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if SANITIZED or not compiler:
        why = "sanitizers do not go with preloading" if SANITIZED else "no C compiler"
        print(f"SKIP: {source}: {why}")
        raise unittest.SkipTest(why)
    shim = pathlib.Path(folder) / source.replace(".c", ".so")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", shim, HERE / source, "-ldl"], check=True)
    return str(shim)


class FaultyReads:
    """To be mixed into a TestCase. What runs with `env` reads shards as the file `fault` says, while it exists
    (faulty_pread.c)."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.fault = pathlib.Path(folder.name) / "fault"
        cls.env = {**os.environ, "LD_PRELOAD": build("faulty_pread.c", folder.name), "PREAD_FAULT": str(cls.fault)}

    def setUp(self):
        super().setUp()
        self.fault.unlink(missing_ok=True)
