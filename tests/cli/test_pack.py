#!/usr/bin/env python3
"""trireme pack: a packed trunk gives the same bits as the shards in every format, resident or
streamed; an interrupted pack goes on; a damaged, foreign or half pack is an error or is ignored with
a note, never silently wrong; a second packer is told to wait."""
import fcntl
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
TOKENS = ",".join(str(i * 13 % 90) for i in range(20))


def trireme(*args):
    done = subprocess.run([TRIREME, *map(str, args)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


class Pack(unittest.TestCase):
    def setUp(self):
        self.keep = tempfile.TemporaryDirectory()
        self.model = pathlib.Path(self.keep.name) / "model"
        make_tiny.write(self.model)

    def tearDown(self):
        self.keep.cleanup()

    def logits(self, *flags):
        return trireme("logits", self.model, "--tokens", TOKENS, *flags)

    def pack(self, fmt):
        code, out, err = trireme("pack", self.model, "--trunk", fmt)
        self.assertEqual((code, err), (0, ""), err)
        return self.model / f"trireme-pack-{fmt}"

    def test_same_bits(self):
        for fmt in ("disk", "f32", "bf16", "int8", "int4"):
            want = self.logits("--trunk", fmt)
            folder = self.pack(fmt)
            self.assertEqual(self.logits("--trunk", fmt)[1], want[1], fmt)
            # The shards' trunk is not read any more: a pack that differs must show.
            data = (folder / "head.bin").read_bytes()
            self.assertGreater(len(data), 1000)

    def test_streamed_from_the_pack(self):
        want = self.logits("--trunk", "int8", "--chunk", "4")
        self.pack("int8")
        streamed = 0
        for kib in range(3000, 1000, -40):
            code, out, err = self.logits("--trunk", "int8", "--chunk", "4", "--ram", f"{kib}K")
            if code == 0:
                self.assertEqual(out, want[1])
                streamed += "read from disk every step" in err
        self.assertGreater(streamed, 0)

    def test_damage_is_told(self):
        folder = self.pack("int8")
        for name in ("head.bin", "layer-0002.bin", "embed.bin"):
            path = folder / name
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 4
            path.write_bytes(data)
            code, out, err = self.logits("--trunk", "int8")
            self.assertEqual((code, out, err.count("\n")), (1, "", 1))
            self.assertIn(name, err)
            data[len(data) // 2] ^= 4
            path.write_bytes(data[:-1])
            code, out, err = self.logits("--trunk", "int8")
            self.assertEqual((code, err.count("\n")), (1, 1))
            path.write_bytes(data)
        (folder / "head.sum").write_bytes(b"short")
        self.assertEqual(self.logits("--trunk", "int8")[0], 1)

    def test_an_interrupted_pack_goes_on(self):
        want = self.logits("--trunk", "int4")[1]
        folder = self.pack("int4")
        for name in ("index.json", "layer-0001.sum", "head.bin"):
            (folder / name).unlink()
        self.assertEqual(self.logits("--trunk", "int4")[1], want)  # no index: not there yet
        code, out, _ = trireme("pack", self.model, "--trunk", "int4")
        self.assertEqual(code, 0)
        self.assertIn("were there already", out)
        self.assertEqual(self.logits("--trunk", "int4")[1], want)

    def test_packing_again_mends(self):
        """What has the right size and other bytes is written anew: damaged, or of other shards."""
        want = self.logits("--trunk", "int8")[1]
        folder = self.pack("int8")
        code, out, _ = trireme("pack", self.model, "--trunk", "int8")
        self.assertEqual(code, 0)
        all_kept = out.split("of which")[1]
        for name in ("layer-0001.bin", "layer-0001.sum"):
            data = bytearray((folder / name).read_bytes())
            data[len(data) // 2] ^= 1
            (folder / name).write_bytes(data)
            self.assertEqual(trireme("verify", self.model)[0], 1)
            code, out, err = trireme("pack", self.model, "--trunk", "int8")
            self.assertEqual((code, err), (0, ""))
            self.assertNotIn(all_kept, out)
            self.assertEqual(trireme("verify", self.model)[0], 0)
            self.assertEqual(self.logits("--trunk", "int8")[1], want)
        make_tiny.write(self.model, seed=7)  # as a newer download of the same shape
        for left in ("finished", "interrupted"):
            if left == "interrupted":
                (folder / "index.json").unlink(missing_ok=True)
            code, _, err = trireme("pack", self.model, "--trunk", "int8")
            self.assertEqual((code, err), (0, ""))
            got = self.logits("--trunk", "int8")[1]
            shutil.move(folder, folder.with_name("away"))
            self.assertEqual(got, self.logits("--trunk", "int8")[1], left)
            shutil.move(folder.with_name("away"), folder)
            make_tiny.write(self.model, seed=8)

    def test_a_pack_of_another_model_is_ignored_with_a_note(self):
        folder = self.pack("int8")
        other = pathlib.Path(self.keep.name) / "other"
        make_tiny.write(other, seed=7)
        want = trireme("logits", other, "--tokens", TOKENS, "--trunk", "int8")
        shutil.copytree(folder, other / folder.name)
        got = trireme("logits", other, "--tokens", TOKENS, "--trunk", "int8")
        self.assertEqual(got[:2], want[:2])
        self.assertIn("does not belong", got[2])

    def test_pipes_in_a_pack(self):
        """Nobody fills them: what reads a pack says so instead of waiting."""
        folder = self.pack("int8")
        want = self.logits("--trunk", "int8")[1]
        for name in ("head.bin", "head.sum", "index.json"):
            whole = (folder / name).read_bytes()
            (folder / name).unlink()
            os.mkfifo(folder / name)
            for flags in ((), ("--trunk", "int8")):
                what = "logits" if flags else "verify"
                args = (self.model, "--tokens", TOKENS, *flags) if flags else (self.model,)
                code, out, err = trireme(what, *args)
                if flags and name == "index.json":  # ignored with a note
                    self.assertEqual((code, out), (0, want), err)
                    continue
                self.assertEqual((code, err.count("\n")), (1, 1), err)
                self.assertIn(name, err)
            (folder / name).unlink()
            (folder / name).write_bytes(whole)
        self.assertEqual(self.logits("--trunk", "int8")[1], want)

    def test_one_packer_at_a_time_and_flags(self):
        folder = self.pack("int8")
        with open(folder / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            code, _, err = trireme("pack", self.model, "--trunk", "int8")
        self.assertEqual((code, err.count("\n")), (1, 1))
        self.assertIn("another process", err)
        self.assertEqual(trireme("pack", self.model)[0], 2)
        self.assertEqual(trireme("pack", self.model, "--trunk", "int8", "--layers", "1")[0], 2)


if __name__ == "__main__":
    unittest.main()
