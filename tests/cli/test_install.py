#!/usr/bin/env python3
"""`make install` into DESTDIR: what lies where, that it runs from there, the service file, and the
man page, which must name every option of every command and be clean roff."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serving import TRIREME, need_nano  # noqa: E402

BUILD = pathlib.Path(TRIREME).parent


def run(*args, **more):
    return subprocess.run(args, capture_output=True, text=True, timeout=120, **more)


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        built = run("cmake", "--build", str(BUILD), "--target", "man")
        assert built.returncode == 0, built.stdout + built.stderr
        done = run("cmake", "--install", str(BUILD), "--prefix", "/opt/trireme",
                   env=dict(os.environ, DESTDIR=cls.tmp.name))
        assert done.returncode == 0, done.stdout + done.stderr
        cls.root = pathlib.Path(cls.tmp.name) / "opt" / "trireme"

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()

    def test_tree(self):
        files = {str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file()}
        for name in ("bin/trireme", "share/man/man1/trireme.1", "lib/systemd/system/trireme.service",
                     "share/trireme/models/nano/config.json", "share/trireme/ops/nginx.conf",
                     "share/trireme/ops/grafana-dashboard.json"):
            self.assertIn(name, files)
        self.assertEqual([f for f in files if f.split("/")[0] not in ("bin", "share", "lib")], [])

    def test_it_runs_from_there(self):
        done = run(str(self.root / "bin" / "trireme"), "info", "--json", cwd="/")
        self.assertEqual(done.returncode, 0, done.stderr)
        env = {k: v for k, v in os.environ.items() if k != "TRIREME_MODEL"}
        done = run(str(self.root / "bin" / "trireme"), "run", "-q", "--greedy", "--max-tokens", "3",
                   "Hi", "--ram", "1G", cwd="/", env=env)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_service(self):
        path = self.root / "lib" / "systemd" / "system" / "trireme.service"
        text = path.read_text()
        self.assertIn("ExecStart=/opt/trireme/bin/trireme serve --cache-dir ${CACHE_DIRECTORY} $TRIREME_ARGS", text)
        self.assertNotIn("@", re.sub(r"@(system-service|privileged|obsolete)", "", re.sub(
            r"(?m)^#.*$", "", text)))
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is absent")
        here = pathlib.Path(self.tmp.name) / "trireme.service"
        here.write_text(text.replace("/opt/trireme/bin", str(self.root / "bin"))
                        .replace("Documentation=man:trireme(1)\n", ""))
        done = run("systemd-analyze", "verify", str(here))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = run("systemd-analyze", "security", "--offline=yes", str(here))
        level = re.search(r"exposure level for trireme.service: ([0-9.]+)", done.stdout)
        self.assertLess(float(level.group(1)), 2.0)

    def test_man_page(self):
        path = self.root / "share" / "man" / "man1" / "trireme.1"
        text = path.read_text().replace("\\-", "-")
        overview = run(TRIREME, "--help").stdout
        names = re.findall(r"(?m)^  (\w+) ", overview)
        self.assertGreaterEqual(len(names), 12)
        for name in names:
            self.assertIn(f'.SS "{name}"', text)
            section = text.split(f'.SS "{name}"')[1].split("\n.S")[0]
            options = set(re.findall(r"(?m)^ {2,6}(?:-\w, )?(--[\w-]+)", run(TRIREME, name, "--help").stdout))
            self.assertGreater(len(options), 2, name)
            for option in options:
                self.assertIn(option, section, name)
        if not shutil.which("groff"):
            self.skipTest("groff is absent")
        done = run("groff", "-man", "-Tutf8", "-ww", "-z", str(path))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        if shutil.which("man"):
            done = run("man", "--warnings", "-l", str(path), env=dict(os.environ, MANPAGER="cat"))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("OpenAI", done.stdout)


if __name__ == "__main__":
    need_nano()
    unittest.main()
