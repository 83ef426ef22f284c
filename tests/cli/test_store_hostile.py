#!/usr/bin/env python3
"""ctest: slow. The expert store and the pack among strangers: a synthetic model whose experts are read directly gives one
greedy text whatever the budget, engine, threads, lookahead and drives; drives that never answer, shards that are cut or
vanish while they are used; processes killed while they write; full disks; damaged statistics and packs; links; absurd
sizes."""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serving import NANO, TRIREME, Server, need_nano  # noqa: E402
from shim import FaultyReads  # noqa: E402
from test_store import PROMPT, other_drive  # noqa: E402

EXPERTS = 16
RECORD = 3 * 512 * 512 * 17 // 32  # bytes: 417,792, above what is read past the page cache


def trireme(*args, env=None, setup=None):
    words = ["bash", "-c", setup + ' exec "$@"', "x"] if setup else []
    done = subprocess.run([*words, TRIREME, *map(str, args)], capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL, env=env)
    return done.returncode, done.stdout, done.stderr


def copy_of_nano(home):
    model = pathlib.Path(home) / "model"
    shutil.copytree(NANO, model, ignore=shutil.ignore_patterns(".trireme", "trireme-pack-*"))
    return model


class Home(unittest.TestCase):
    def setUp(self):
        self.keep = tempfile.TemporaryDirectory()
        self.home = pathlib.Path(self.keep.name)

    def tearDown(self):
        self.keep.cleanup()

    def refused(self, done, *words):
        code, _, err = done
        self.assertIn(code, (1, 2), err)
        self.assertEqual(err.count("\n"), 1, err)
        for word in words:
            self.assertIn(word, err)


class Synthetic(Home):
    def setUp(self):
        super().setUp()
        self.model = self.home / "synth"
        code, _, err = trireme("synth", self.model, "--config", NANO, "--experts", EXPERTS, "--seed", "4", "--set",
                               "moe_intermediate_size=512", "--set", "routed_expert_hidden_size=512")
        self.assertEqual(code, 0, err)
        for file in NANO.iterdir():
            if not file.name.startswith(("model", "config.json", ".")) and file.is_file():
                shutil.copy(file, self.model)

    def answer(self, *flags):
        code, out, err = trireme("run", "-m", self.model, "--keep-nothing", "--json", *flags, "--raw", "--greedy",
                                 "--max-tokens", "12", "Once upon a time")
        self.assertEqual(code, 0, (flags, err))
        return json.loads(out)

    def test_one_text(self):
        want = self.answer("--threads", "1", "--expert-ram", "400M")
        self.assertTrue(want["experts"]["all_resident"])
        self.assertEqual(want["experts"]["expert_bytes"], RECORD)
        with tempfile.TemporaryDirectory(dir=other_drive()) as other:
            shard = sorted(self.model.glob("*.safetensors"))[2]
            for drives in ((), ("--shard-dir", other)):
                if drives:
                    shutil.move(shard, other)
                direct = set()
                for ram in (2 * (RECORD + 8192), 6 << 20, 20 << 20):
                    for io in ("uring", "threads", "auto"):
                        for more in (("--threads", "1"), ("--threads", "2", "--lookahead", "3"),
                                     ("--lookahead", "6", "--threads", "1", "--io-depth", "1")):
                            flags = (*drives, "--expert-ram", ram, "--io", io, *more)
                            try:
                                got = self.answer(*flags)
                            except AssertionError as why:
                                if io == "uring" and "not available" in str(why):
                                    continue
                                raise
                            self.assertEqual(got["tokens"], want["tokens"], flags)
                            self.assertGreater(got["experts"]["misses"], 0, flags)
                            direct.add(got["experts"]["direct"])
                self.assertIn(True, direct)  # two slots are too small a block for it


class Vanishing(Home):
    """A server whose shards change under it."""

    def setUp(self):
        super().setUp()
        self.model = copy_of_nano(self.home)
        self.server = Server("--expert-ram", "40K", "--keep-nothing", model=self.model)

    def tearDown(self):
        self.assertEqual(self.server.close(), 0)
        super().tearDown()

    def text(self):
        return self.server.chat("Hi", max_tokens=8)["choices"][0]["message"]["content"]

    def test_cut_and_whole_again(self):
        want = self.text()
        shards = sorted(self.model.glob("*.safetensors"))
        whole = [s.read_bytes() for s in shards]
        for s, data in zip(shards, whole):
            os.truncate(s, len(data) // 8)
        status, data, _ = self.server.ask("POST", "/v1/chat/completions",
                                          {"messages": [{"role": "user", "content": "Bye"}], "max_tokens": 8})
        self.assertGreaterEqual(status, 500, data)
        for word in (b"layer", b"expert", b".safetensors", b"ends before it"):
            self.assertIn(word, data)
        for s, data in zip(shards, whole):
            s.write_bytes(data)
        self.assertEqual(self.text(), want)

    def test_gone(self):
        """Files that are open go on being read; the next process is told what is missing."""
        want = self.text()
        gone = sorted(self.model.glob("*.safetensors"))[-1]
        gone.unlink()
        self.assertEqual(self.text(), want)
        self.refused(trireme("run", "-m", self.model, *PROMPT), gone.name)


class Stalled(FaultyReads, Home):
    def test_a_drive_that_never_answers(self):
        """An error that says so, and the process ends although its threads still wait."""
        self.fault.write_text("stall")
        self.refused(trireme("run", "--keep-nothing", "--io", "threads", "--io-timeout", "1", "--threads", "1",
                             "--expert-ram", "40K", "--page-cache", "yes", *PROMPT, env=self.env),
                     "no read finished in 1.0 s")

    def test_a_streamed_trunk(self):
        """The same where layers are read every step; a pack is no shard, and is read."""
        self.fault.write_text("stall")
        flags = ("run", "--keep-nothing", "--io-timeout", "1", "--threads", "1", "--trunk", "stream", *PROMPT)
        began = time.monotonic()
        code, _, err = trireme(*flags, env=self.env)
        self.assertEqual((code, err.count("\n")), (1, 2), err)  # a note that it is streamed, and
        self.assertIn(".safetensors: no read of the trunk finished in 1.0 s", err)
        self.assertGreater(time.monotonic() - began, 1.0)

    def test_a_server_goes_on_when_the_drive_does(self):
        """Requests end while the drive is silent, and are answered as before when it is not."""
        with tempfile.TemporaryDirectory() as home:
            server = Server("--trunk", "stream", "--io", "threads", "--io-timeout", "1", "--keep-nothing",
                            model=copy_of_nano(home), env=self.env)
            def text():
                return server.chat("Hi", max_tokens=4)["choices"][0]["message"]["content"]

            try:
                want = text()
                self.fault.write_text("hang")
                for _ in range(2):
                    status, data, _ = server.ask("POST", "/v1/chat/completions",
                                                 {"messages": [{"role": "user", "content": "Bye"}], "max_tokens": 8})
                    self.assertGreaterEqual(status, 500, data)
                    self.assertIn(b"no read of the trunk finished", data)
                self.fault.unlink()
                self.assertEqual(text(), want)
            finally:
                self.assertEqual(server.close(), 0)

    def test_usage(self):
        for bad in ("0", "-1", "3601", "x"):
            self.refused(trireme("run", "--io-timeout", bad, "hi"), "1 to 3600")


class Killed(Home):
    def kill_while(self, args, seconds):
        p = subprocess.Popen([TRIREME, *map(str, args)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             stdin=subprocess.DEVNULL)
        time.sleep(seconds)
        p.kill()
        p.wait()

    def test_packing(self):
        model = copy_of_nano(self.home)
        folder = model / "trireme-pack-int8"
        r = random.Random(5)
        flags = ("logits", model, "--tokens", "1,2,3,4", "--trunk", "int8")
        want = trireme(*flags)[1]
        for _ in range(8):
            self.kill_while(("pack", model, "--trunk", "int8"), r.uniform(0.0, 0.08))
            code, out, err = trireme(*flags)
            self.assertEqual((code, out), (0, want), err)
        code, _, err = trireme("pack", model, "--trunk", "int8")
        self.assertEqual(code, 0, err)
        self.assertEqual(list(folder.glob("*.new")), [])
        self.assertEqual(trireme("verify", model)[0], 0)
        self.assertEqual(trireme(*flags)[1], want)

    def test_keeping_statistics(self):
        model = copy_of_nano(self.home)
        flags = ("run", "-m", model, "--expert-ram", "60K", *PROMPT)
        code, want, err = trireme(*flags)
        self.assertEqual(code, 0, err)
        kept = (model / ".trireme" / "experts.heat").stat().st_size
        r = random.Random(6)
        for _ in range(12):
            self.kill_while(flags, r.uniform(0.05, 0.35))
            self.assertEqual((model / ".trireme" / "experts.heat").stat().st_size, kept)
        code, got, err = trireme(*flags)
        self.assertEqual((code, got), (0, want), err)
        self.assertEqual(sorted(os.listdir(model / ".trireme")), ["experts.heat", "lock"])


class Mounts(Home):
    """Real file systems that are full or read-only, in a mount namespace that ends with each script."""

    def script(self, text):
        if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode:
            print("SKIP: no mounts in a namespace of one's own here")
            self.skipTest("no mounts in a namespace of one's own here")
        done = subprocess.run(["unshare", "-rm", "bash", "-ec", text, "x", TRIREME, self.model, *PROMPT], text=True,
                              capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr

    def setUp(self):
        super().setUp()
        self.model = copy_of_nano(self.home)

    def test_a_full_disk(self):
        fill = 'mkdir -p "$D"; mount -t tmpfs -o size=1m tmpfs "$D"; T=$1; M=$2; shift 2; '
        code, out, err = self.script('D=$2/trireme-pack-int8; ' + fill + """
            ! "$T" pack "$M" --trunk int8
            ls "$D"
            "$T" run -m "$M" --trunk int8 --keep-nothing "$@" """)
        self.assertEqual(code, 0, err)
        self.assertIn("No space left on device", err)
        self.assertIn("layer-0000.sum", out)
        self.assertNotIn("index.json", out)
        self.assertNotIn(".new", out)
        code, out, err = self.script('D=$2/.trireme; ' + fill + """
            dd if=/dev/zero of="$D/fill" bs=64k count=99 2> /dev/null || true
            "$T" run -m "$M" --expert-ram 60K "$@"
            ls "$D" """)
        self.assertEqual(code, 0, err)
        self.assertIn("statistics of experts are not kept", err)
        self.assertEqual(out.split()[-2:], ["fill", "lock"])
        code, _, err = self.script('D=$2/full; ' + fill + """
            dd if=/dev/zero of="$D/fill" bs=64k count=99 2> /dev/null || true
            ! "$T" run -m "$M" --keep-nothing --trace "$D/trace" "$@" """)
        self.assertEqual(code, 0, err)
        self.assertRegex(err, "cannot write .*/trace: No space left on device")

    def test_a_read_only_mount(self):
        """What is there is used, nothing is written, and only what must write fails."""
        mount = 'T=$1; M=$2; shift 2; mount --bind "$M" "$M"; mount -o remount,ro,bind "$M"; '
        flags = ("run", "-m", self.model, "--expert-ram", "60K", "--trunk", "int4", *PROMPT)
        _, want, _ = trireme(*flags)
        self.assertEqual(trireme("pack", self.model, "--trunk", "int4")[0], 0)
        heat = (self.model / ".trireme" / "experts.heat").read_bytes()
        code, out, err = self.script(mount + '"$T" run -m "$M" --expert-ram 60K --trunk int4 "$@"')
        self.assertEqual((code, out), (0, want), err)
        self.assertIn("Read-only file system", err)
        for command in ('pack "$M" --trunk int8', 'pack "$M" --trunk int4',
                        'run -m "$M" --keep-nothing --trace "$M/trace" "$@"'):
            self.refused(self.script(mount + f'"$T" {command}'), "cannot create", "Read-only file system")
        self.assertEqual(self.script(mount + '"$T" verify "$M"')[0], 0)
        self.assertEqual((self.model / ".trireme" / "experts.heat").read_bytes(), heat)
        self.assertFalse((self.model / "trireme-pack-int8").exists())


class Disks(Home):
    def test_a_pack_over_the_file_limit(self):
        """As a disk that is full: one line, nothing that looks whole, and the same command goes on."""
        model = copy_of_nano(self.home)
        self.refused(trireme("pack", model, "--trunk", "int8", setup="ulimit -f 64;"), "cannot write")
        folder = model / "trireme-pack-int8"
        self.assertFalse((folder / "index.json").exists())
        self.assertEqual(list(folder.glob("*.new")), [])
        self.assertEqual(trireme("run", "-m", model, "--trunk", "int8", *PROMPT)[0], 0)
        self.assertEqual(trireme("pack", model, "--trunk", "int8")[0], 0)
        self.assertEqual(trireme("verify", model)[0], 0)

    def test_statistics_over_the_file_limit(self):
        model = copy_of_nano(self.home)
        code, out, err = trireme("run", "-m", model, "--expert-ram", "60K", *PROMPT, setup="ulimit -f 0;")
        self.assertEqual(code, 0, err)
        self.assertIn("statistics of experts are not kept", err)
        self.assertFalse((model / ".trireme" / "experts.heat").exists())
        self.assertFalse((model / ".trireme" / "experts.heat.new").exists())

    def test_damaged_statistics(self):
        model = copy_of_nano(self.home)
        flags = ("run", "-m", model, "--expert-ram", "60K", *PROMPT)
        _, want, _ = trireme(*flags)
        heat = model / ".trireme" / "experts.heat"
        data = heat.read_bytes()
        for bad in (b"", b"x", data[:-1], data + b"x", bytes(len(data)), data[:40] + b"\xff\xff\xff\x7f" + data[44:]):
            heat.write_bytes(bad)
            code, got, err = trireme(*flags)
            self.assertEqual((code, got), (0, want), err)
            self.assertEqual(len(heat.read_bytes()), len(data))  # written anew
        heat.unlink()
        heat.symlink_to("experts.heat")  # a link to itself
        self.assertEqual(trireme(*flags)[:2], (0, want))
        shutil.rmtree(model / ".trireme")
        (model / ".trireme").symlink_to(self.home / "nowhere")
        code, got, err = trireme(*flags)
        self.assertEqual((code, got), (0, want))
        self.assertIn("statistics of experts are not kept", err)

    def test_two_on_one_folder(self):
        model = copy_of_nano(self.home)
        flags = ["run", "-m", str(model), "--expert-ram", "60K", *PROMPT]
        both = [subprocess.Popen([TRIREME, *flags[:-3], "--max-tokens", "300", flags[-1]], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL) for _ in range(2)]
        ends = [p.communicate(timeout=120) for p in both]
        self.assertEqual([p.returncode for p in both], [0, 0], ends)
        self.assertEqual(ends[0][0], ends[1][0])
        self.assertTrue((model / ".trireme" / "experts.heat").exists())

    def test_links(self):
        """As in a hub's cache: each file a link into a folder of blobs; a pack behind a link."""
        model, blobs = self.home / "snapshot", self.home / "blobs"
        blobs.mkdir()
        model.mkdir()
        for i, file in enumerate(f for f in sorted(NANO.iterdir()) if f.is_file()):
            shutil.copy(file, blobs / str(i))
            (model / file.name).symlink_to(f"../blobs/{i}")
        (self.home / "elsewhere").mkdir()
        (model / "trireme-pack-int8").symlink_to(self.home / "elsewhere")
        want = trireme("run", "-m", NANO, "--keep-nothing", "--trunk", "int8", *PROMPT)[1]
        self.assertEqual(trireme("pack", model, "--trunk", "int8")[0], 0)
        self.assertTrue((self.home / "elsewhere" / "index.json").exists())
        self.assertEqual(trireme("verify", model)[0], 0)
        self.assertEqual(trireme("run", "-m", model, "--trunk", "int8", "--expert-ram", "60K", *PROMPT)[:2], (0, want))


class Sizes(Home):
    def test_absurd_ones(self):
        for size in ("1", "2K", "100K"):
            self.refused(trireme("run", "--ram", size, "hi"), "--ram")
        for size in ("1", "1K"):
            self.refused(trireme("run", "--expert-ram", size, "hi"), "must fit")
        for size in ("16E", "99999999T", "18446744073709551616", "1e30G"):
            code, _, err = trireme("run", "--ram", size, *PROMPT)
            self.assertIn(code, (1, 2), (size, err))
            self.assertEqual(err.count("\n"), 1, err)
        want = trireme("run", "--keep-nothing", *PROMPT)[1]
        self.assertEqual(trireme("run", "--keep-nothing", "--expert-ram", "900T", *PROMPT)[:2], (0, want))

    def test_shard_dirs(self):
        many = [str(self.home / str(i)) for i in range(17)]
        for m in many:
            os.mkdir(m)
        flags = [word for m in many for word in ("--shard-dir", m)]
        self.refused(trireme("run", *flags, "hi"), "at most 16")
        self.refused(trireme("run", "--shard-dir", "", "hi"))
        self.refused(trireme("run", "--shard-dir", "x" * 5000, "hi"))
        self.refused(trireme("run", "--shard-dir", many[0], "hi"), "no shard")


class Packs(Home):
    def test_a_mismatch_names_the_place(self):
        """Layer by its file, and the bytes that are damaged; a streamed one within the step."""
        model = copy_of_nano(self.home)
        self.assertEqual(trireme("pack", model, "--trunk", "int8")[0], 0)
        path = model / "trireme-pack-int8" / "layer-0003.bin"
        data = bytearray(path.read_bytes())
        data[1000] ^= 1
        path.write_bytes(data)
        for ram in ((), ("--ram", "6M", "--context", "64", "--chunk", "16")):
            done = trireme("run", "-m", model, "--keep-nothing", "--trunk", "int8", *ram, *PROMPT)
            self.assertEqual(done[0], 1)
            line = [l for l in done[2].splitlines() if "damaged" in l]
            self.assertEqual(len(line), 1, done[2])
            self.assertIn("layer-0003.bin: damaged at bytes 0 to", line[0])
            self.assertNotIn("Once", done[1])

    def test_pieces_of_other_packs(self):
        """Files swapped within a pack, sums and blocks that fit each other but not their place."""
        model = copy_of_nano(self.home)
        self.assertEqual(trireme("pack", model, "--trunk", "int8")[0], 0)
        folder = model / "trireme-pack-int8"
        a, b = folder / "layer-0001.bin", folder / "layer-0002.bin"
        self.assertEqual(a.stat().st_size, b.stat().st_size)
        whole = a.read_bytes()
        a.write_bytes(b.read_bytes())
        self.refused(trireme("run", "-m", model, "--trunk", "int8", *PROMPT), "layer-0001.bin", "damaged")
        a.write_bytes(whole)
        for name in ("index.json", "layer-0001.sum", "layer-0001.bin"):
            whole = (folder / name).read_bytes()
            (folder / name).unlink()
            (folder / name).mkdir()
            code, _, err = trireme("run", "-m", model, "--trunk", "int8", *PROMPT)
            self.assertIn(code, (0, 1), err)  # no index: no pack
            self.assertEqual(code == 1, name != "index.json", (name, err))
            (folder / name).rmdir()
            os.mkfifo(folder / name)
            code, _, err = trireme("run", "-m", model, "--trunk", "int8", *PROMPT)
            self.assertEqual(code == 1, name != "index.json", (name, err))
            (folder / name).unlink()
            (folder / name).write_bytes(whole)
        self.assertEqual(trireme("run", "-m", model, "--trunk", "int8", *PROMPT)[0], 0)


if __name__ == "__main__":
    need_nano()
    unittest.main()
