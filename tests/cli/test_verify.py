#!/usr/bin/env python3
"""trireme verify: checksums of SHA256SUMS and of the hub's metadata, structure without them; a
flipped byte, a cut or missing file is named; lists that point outside of the folder are refused."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_tiny  # noqa: E402

TRIREME = os.environ.get("TRIREME", "build/release/trireme")


def verify(folder, *flags):
    done = subprocess.run([TRIREME, "verify", str(folder), *map(str, flags)], capture_output=True, text=True)
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

    def test_pipes(self):
        """Nobody fills them, so nothing may wait for them: neither lists nor what they name."""
        os.mkfifo(self.folder / "SHA256SUMS")
        code, _, err = verify(self.folder)
        self.assertEqual((code, err.count("\n")), (1, 1), err)
        self.assertIn("SHA256SUMS: not a regular file", err)
        (self.folder / "SHA256SUMS").unlink()
        os.mkfifo(self.folder / "README.md")
        (self.folder / "SHA256SUMS").write_text("0" * 64 + "  README.md\n")
        code, _, err = verify(self.folder)
        self.assertEqual((code, err.count("\n")), (1, 1), err)
        self.assertIn("README.md", err)

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

    def test_shards_on_a_second_drive(self):
        other = self.folder / "second"
        other.mkdir()
        self.sums()
        moved = other / self.shard.name
        shutil.move(self.shard, moved)
        self.assertEqual(verify(self.folder)[0], 1)
        self.assertEqual(verify(self.folder, "--shard-dir", other)[0::2], (0, ""))
        self.flip(moved)
        code, _, err = verify(self.folder, "--shard-dir", other)
        self.assertEqual((code, err.count("\n")), (1, 1))
        self.assertIn(str(moved), err)
        shutil.copy(moved, self.shard)  # a damaged copy beside a whole one is named, too
        self.flip(self.shard)
        code, out, _ = verify(self.folder, "--shard-dir", other, "--json")
        faults = json.loads(out)["faults"]
        self.assertEqual((code, [f["file"] for f in faults]), (1, [str(moved)]))
        # A list of the second folder counts as well.
        shutil.move(self.folder / "SHA256SUMS", other / "SHA256SUMS")
        self.assertEqual(verify(self.folder, "--shard-dir", other)[0], 1)
        self.flip(moved)
        self.assertEqual(verify(self.folder, "--shard-dir", other)[0], 0)
        self.assertEqual(verify(self.folder, "--shard-dir", self.folder / "nowhere")[0], 1)
        code, _, err = verify(self.folder, "--shard-dir", "")
        self.assertEqual(code, 2)
        self.assertIn("--shard-dir: an empty name is no folder", err)

    def test_copies_without_checksums(self):
        other = self.folder / "second"
        other.mkdir()
        copy = other / self.shard.name
        shutil.copy(self.shard, copy)
        code, out, err = verify(self.folder, "--shard-dir", other)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("copies are equal", out)
        self.flip(copy)
        code, _, err = verify(self.folder, "--shard-dir", other)
        self.assertEqual((code, err.count("\n")), (1, 1), err)
        self.assertIn(f"{copy}: differs from {self.shard}", err)


class Packs(unittest.TestCase):
    """Damage of each kind in a pack: a record, a checksum, a size, a missing file, the index, other shards."""

    def setUp(self):
        self.keep = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.keep.name, "model")
        make_tiny.write(self.folder)
        for fmt in ("int8", "disk"):
            subprocess.run([TRIREME, "pack", self.folder, "--trunk", fmt], check=True, capture_output=True)
        self.pack = self.folder / "trireme-pack-int8"

    def tearDown(self):
        self.keep.cleanup()

    def named(self, *words):
        code, out, err = verify(self.folder)
        self.assertEqual((code, out, err.count("\n")), (1, "", 1), err)
        code, out, silent = verify(self.folder, "--json")
        report = json.loads(out)
        self.assertEqual((code, silent, report["ok"], report["packed"]["faults"]), (1, "", False, 1))
        for word in words:
            self.assertIn(word, err)
            self.assertIn(word, report["faults"][0]["why"])

    def test_whole(self):
        code, out, err = verify(self.folder, "--json")
        self.assertEqual((code, err), (0, ""))
        packed = json.loads(out)["packed"]
        files = [p for p in self.folder.glob("trireme-pack-*/*.bin")]
        self.assertEqual((packed["packs"], packed["faults"]), (2, 0))
        self.assertEqual(packed["bytes"], sum(f.stat().st_size for f in files))
        self.assertEqual(packed["records"], sum(f.stat().st_size > 0 for f in files))  # each below 32 MiB
        self.assertIn("2 packs", verify(self.folder)[1])

    def test_each_damage_is_named(self):
        record, sums = self.pack / "layer-0001.bin", self.pack / "head.sum"
        for path in (record, sums):
            whole = path.read_bytes()
            for at in (0, len(whole) // 2, len(whole) - 1):
                flipped = bytearray(whole)
                flipped[at] ^= 1
                path.write_bytes(flipped)
                self.named(str(path.with_suffix(".bin")), "damaged at bytes 0 to ")
            for wrong in (whole[:-1], whole + b"x"):
                path.write_bytes(wrong)
                self.named(str(path), f"has {len(wrong)} bytes instead of {len(whole)}")
            path.unlink()
            self.named(str(path), "No such file")
            path.write_bytes(whole)
        self.assertEqual(verify(self.folder)[0], 0)

    def test_the_index(self):
        index = self.pack / "index.json"
        whole = json.loads(index.read_text())
        for key, value, word in (("trireme_pack", 99, "another version"), ("fingerprint", 1, "other shards"),
                                 ("format", "int4", "another format"), ("units", 1, "another format or size"),
                                 ("bytes", 1, "another format or size")):
            index.write_text(json.dumps({**whole, key: value}))
            self.named(str(index), word)
        index.write_text("{")
        self.named(str(index), "damaged")
        index.unlink()
        self.named(str(index), "packing was not finished")

    def test_a_pack_of_other_shards(self):
        other = pathlib.Path(self.keep.name, "other")
        make_tiny.write(other, seed=7)
        shutil.rmtree(self.pack)
        subprocess.run([TRIREME, "pack", other, "--trunk", "int8"], check=True, capture_output=True)
        shutil.copytree(other / self.pack.name, self.pack)
        self.named(str(self.pack), "other shards")


if __name__ == "__main__":
    unittest.main()
