#!/usr/bin/env python3
"""trireme verify: checksums of SHA256SUMS and of the hub's metadata, structure without them; a
flipped byte, a cut or missing file is named; lists that point outside of the folder are refused."""
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_tiny  # noqa: E402

TRIREME = os.environ.get("TRIREME", "build/release/trireme")


def verify(folder, *flags):
    done = subprocess.run([TRIREME, "verify", str(folder), *flags], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


class Verify(unittest.TestCase):
    def setUp(self):
        self.keep = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.keep.name) / "model"
        make_tiny.write(self.folder)
        self.shard = sorted(self.folder.glob("*.safetensors"))[0]

    def tearDown(self):
        self.keep.cleanup()

    def sums(self):
        lines = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n"
                 for p in sorted(self.folder.iterdir()) if p.is_file()]
        (self.folder / "SHA256SUMS").write_text("".join(lines))
        return len(lines)

    def hub(self):
        folder = self.folder / ".cache" / "huggingface" / "download"
        folder.mkdir(parents=True)
        for p in self.folder.glob("*"):
            if p.is_file():
                data = p.read_bytes()
                tag = (hashlib.sha256(data).hexdigest() if p.suffix == ".safetensors" else
                       hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest())
                (folder / f"{p.name}.metadata").write_text(f"{'0' * 40}\n{tag}\n1764428400.0\n")

    def flip(self, path, at=-5):
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    def test_whole(self):
        self.assertEqual(verify(self.folder)[0], 0)
        n = self.sums()
        code, out, err = verify(self.folder, "--json")
        self.assertEqual((code, err), (0, ""))
        report = json.loads(out)
        self.assertEqual((report["ok"], report["files"], report["checksums"]), (True, n, "SHA256SUMS"))

    def test_a_flipped_byte_is_named_either_way(self):
        for make in (self.hub, self.sums):
            make()
            self.assertEqual(verify(self.folder)[0], 0, make)
            self.flip(self.shard)
            code, out, err = verify(self.folder)
            self.assertEqual((code, out, err.count("\n")), (1, "", 1), make)
            self.assertIn(self.shard.name, err)
            self.assertIn("download it again", err)
            self.assertEqual(json.loads(verify(self.folder, "--json")[1])["damaged"], 1)
            self.flip(self.shard)

    def test_missing_and_cut_files(self):
        self.sums()
        data = self.shard.read_bytes()
        self.shard.write_bytes(data[:-1])
        code, _, err = verify(self.folder)
        self.assertEqual(code, 1)
        self.assertEqual(err.count(self.shard.name), 2)  # its checksum, and its structure
        self.shard.unlink()
        code, _, err = verify(self.folder)
        self.assertEqual(code, 1)
        self.assertIn("is missing", err)

    def test_structure_alone_finds_a_cut(self):
        self.shard.write_bytes(self.shard.read_bytes()[:-1])
        code, _, err = verify(self.folder)
        self.assertEqual((code, err.count("\n")), (1, 1))
        self.assertIn(self.shard.name, err)

    def test_bad_lists(self):
        for line in ("abc  x", "0" * 64 + "  ../config.json", "0" * 64 + "  /etc/passwd", "0" * 64 + "x"):
            (self.folder / "SHA256SUMS").write_text(line + "\n")
            code, _, err = verify(self.folder)
            self.assertEqual((code, err.count("\n")), (1, 1), line)
            self.assertIn("line 1", err)
        self.assertEqual(verify(self.folder, "another")[0], 2)
        self.assertEqual(verify(self.folder / "nothing")[0], 1)


if __name__ == "__main__":
    unittest.main()
