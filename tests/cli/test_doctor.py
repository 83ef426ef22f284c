"""trireme doctor on files: the verdict of every own sample (tests/machines/EXPECTED) and, when the
reference material is there, of every sample of shared/machines; what mutations may and may not do;
exit codes, JSON shape, time."""
import gzip
import io
import json
import lzma
import os
import random
import re
import resource
import subprocess
import tarfile
import tempfile
import unittest

TRIREME = os.environ["TRIREME"]
SOURCE = os.environ["TRIREME_SOURCE"]
SHARED = os.environ["TRIREME_SHARED"]
OWN = os.path.join(SOURCE, "tests", "machines")
REFERENCE = os.path.join(SHARED, "machines")
WORDS = ["OK", "INFO", "WARN", "FAIL"]
ROOT = "box/root"  # where a gathered tar keeps files
CODES = {"OK": 0, "INFO": 0, "WARN": 1, "FAIL": 2}


def doctor(*args, data=None):
    """Runs it; returns (exit code, parsed JSON, stderr)."""
    p = subprocess.run([TRIREME, "doctor", "--json", *args], input=data, capture_output=True, timeout=60)
    text = p.stdout.decode()
    return p.returncode, json.loads(text) if text else None, p.stderr.decode()


def judge(data):
    """The report on bytes given by standard input."""
    code, report, err = doctor("-", data=data)
    assert code in (0, 1, 2), (code, err)
    assert CODES[report["verdict"]] == code
    return report


def read(path):
    with open(path, "rb") as f:
        return f.read()


def expected():
    """[(file, verdict words, complete, a rule that must be among the findings)]"""
    rows = []
    with open(os.path.join(OWN, "EXPECTED")) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                name, words, complete, rule = line.split()
                rows.append((name, words.split("/"), complete == "whole", rule))
    return rows


class OwnSamples(unittest.TestCase):
    def test_verdicts(self):
        for name, words, whole, rule in expected():
            with self.subTest(name):
                code, report, err = doctor(os.path.join(OWN, name))
                self.assertIn(report["verdict"], words, report["findings"])
                self.assertEqual(code, CODES[report["verdict"]])
                self.assertEqual(report["complete"], whole, report.get("incomplete_because"))
                self.assertEqual(err, "")
                if rule != "-":
                    self.assertIn(rule, [f["rule"] for f in report["findings"]])

    def test_every_file_is_expected(self):
        files = {f for f in os.listdir(OWN) if f.endswith((".txt", ".xml"))}
        self.assertEqual(files, {row[0] for row in expected()})

    def test_shape(self):
        for name, *_ in expected():
            _, report, _ = doctor(os.path.join(OWN, name))
            worst = 0
            for f in report["findings"]:
                self.assertRegex(f["rule"], r"^[a-z0-9_]+$")
                worst = max(worst, WORDS.index(f["severity"]))
                self.assertTrue(f["title"])
                if f["rule"] != "nothing_judged":
                    self.assertTrue(f["evidence"], (name, f))
                if f["severity"] in ("WARN", "FAIL"):
                    self.assertTrue(f["cure"], (name, f))
                    self.assertTrue(f.get("cost", {}).get("text"), (name, f))
                for e in f["evidence"]:
                    self.assertTrue(e["file"].endswith(name))
                    self.assertTrue(e["text"].strip(), (name, f))
                    lines = read(os.path.join(OWN, name)).decode().split("\n")
                    self.assertIn(e["text"][:40], lines[e["line"] - 1].replace("\t", "\\x09"))
                    self.assertFalse(lines[e["line"] - 1].startswith("# own test data"))
            self.assertEqual(report["verdict"], WORDS[worst])
            order = [WORDS.index(f["severity"]) for f in report["findings"]]
            self.assertEqual(order, sorted(order, reverse=True))

    def test_groups(self):
        _, report, _ = doctor(os.path.join(OWN, "topo-bridges.txt"))
        pairs = [g for g in report["groups"] if g["k"] == 2][0]
        self.assertEqual(sorted(map(tuple, pairs["groups"])), [(0, 1), (2, 3)])
        self.assertEqual(pairs["weakest_path"], "NV")
        self.assertIn("CUDA_VISIBLE_DEVICES=0,1", pairs["settings"])
        self.assertIn("--cpunodebind=0", pairs["settings"])
        _, report, _ = doctor(os.path.join(OWN, "rocm-uneven.txt"))
        pairs = [g for g in report["groups"] if g["k"] == 2][0]
        self.assertEqual(sorted(map(tuple, pairs["groups"])), [(0, 1), (2, 3)])
        self.assertIn("HIP_VISIBLE_DEVICES", pairs["settings"])


class Reference(unittest.TestCase):
    def test_every_sample(self):
        index = os.path.join(REFERENCE, "INDEX.md")
        if not os.path.exists(index):
            print("SKIP: %s is absent" % index)
            self.skipTest("reference material is absent")
        rows = re.findall(r"^\| ([\w-]+) \| ([A-Z/]+) \|", read(index).decode(), re.M)
        self.assertGreater(len(rows), 60)
        for name, words in rows:
            with self.subTest(name):
                _, report, _ = doctor(os.path.join(REFERENCE, name + ".txt"))
                self.assertIn(report["verdict"], words.split("/"), report["findings"])


def samples():
    return [(n, w, read(os.path.join(OWN, n))) for n, w, whole, _ in expected() if whole]


class Mutations(unittest.TestCase):
    def test_line_ends_and_colours_change_nothing(self):
        for number, (name, _, data) in enumerate(samples()):
            before = judge(data)
            for how, text in (("crlf", data.replace(b"\n", b"\r\n")),
                              ("colour", re.sub(rb"(\S+)", b"\x1b[1;32m\\1\x1b[0m", data)),
                              ("bom", b"\xef\xbb\xbf" + data),
                              ("utf16", data.decode().encode("utf-16"))):
                if how != "crlf" and (name.endswith(".xml") or (number + len(how)) % 2):
                    continue
                with self.subTest(f"{name} {how}"):
                    after = judge(text)
                    self.assertEqual(after["verdict"], before["verdict"])
                    self.assertEqual([f["title"] for f in after["findings"]],
                                     [f["title"] for f in before["findings"]])
                    self.assertEqual(after["complete"], before["complete"])

    def test_lost_rows_are_noticed(self):
        """A topo, p2p, rocm or bandwidth table without some of its rows is incomplete, and a lost row
        makes no new fault."""
        tables = [s for s in samples() if re.match(r"(topo|p2p-(all|chip|part)|rocm-m|amd-m|band-h)", s[0])]
        self.assertGreater(len(tables), 10)
        for name, words, data in tables:
            lines = data.split(b"\n")
            rows = [i for i, l in enumerate(lines)
                    if re.match(rb"\s*(GPU\d|0000:|\d+ )\S*\s", l) and not re.match(rb"\s*GPU0\s+GPU1", l)
                    and b"UUID" not in l and not l.strip().startswith(b"0000:05:00.0 0000:26")]
            worst = max(WORDS.index(w) for w in words)
            for i in rows:
                with self.subTest(f"{name} line {i}"):
                    report = judge(b"\n".join(lines[:i] + lines[i + 1:]))
                    self.assertFalse(report["complete"])
                    self.assertLessEqual(WORDS.index(report["verdict"]), max(worst, 1))

    def test_any_cut(self):
        """Every file cut at 2 places: a report, and no fault that the whole file does not have."""
        for number, (name, words, data) in enumerate(samples()):
            worst = max(WORDS.index(w) for w in words)
            for k in (1 + number % 3, 4 + number % 2):
                report = judge(data[:len(data) * k // 6])
                with self.subTest(f"{name} {k}/6"):
                    self.assertLessEqual(WORDS.index(report["verdict"]), max(worst, 1), report)

    def test_glued_columns(self):
        for name, words, data in samples():
            if not name.startswith("topo-"):
                continue
            glued = re.sub(rb"(NV\d+|SYS|NODE|PHB|PXB|PIX)[\t ]+(NV\d+|SYS|NODE|PHB|PXB|PIX)\b",
                           rb"\1\2", data)
            with self.subTest(name):
                if glued == data:
                    continue
                report = judge(glued)
                self.assertFalse(report["complete"])
                self.assertIn(report["verdict"], words)

    def test_order_of_rows(self):
        rng = random.Random(7)
        for name, words, data in samples():
            if not name.startswith(("topo-n", "topo-t", "topo-l", "topo-b", "nccl-", "coll-h", "p2p-")):
                continue
            head, *lines = data.rstrip(b"\n").split(b"\n")
            block = [i for i, l in enumerate(lines) if re.match(rb"\s*(GPU\d\s+(X|\D)|NIC\d\s|node\d:)", l)
                     and b"GPU1\tGPU2" not in l and not re.match(rb"\s*GPU0\s+GPU1", l)]
            shuffled = block[:]
            rng.shuffle(shuffled)
            moved = lines[:]
            for i, j in zip(block, shuffled):
                moved[i] = lines[j]
            with self.subTest(name):
                self.assertIn(judge(b"\n".join([head] + moved))["verdict"], words)

    def test_two_files_joined(self):
        rng = random.Random(3)
        all_samples = [s for s in samples() if s[0].endswith(".txt")]
        for _ in range(30):
            (a, wa, da), (b, wb, db) = rng.sample(all_samples, 2)
            both = judge(da + b"\n" + db)
            need = max(min(map(WORDS.index, wa)), min(map(WORDS.index, wb)))
            with self.subTest(f"{a} + {b}"):
                self.assertGreaterEqual(WORDS.index(both["verdict"]), min(need, 2), both)

    def test_comments_are_no_evidence(self):
        data = read(os.path.join(OWN, "nccl-shm.txt"))
        report = judge(b"".join(b"# " + l + b"\n" for l in data.split(b"\n")))
        self.assertEqual(report["verdict"], "INFO")
        self.assertEqual([f["rule"] for f in report["findings"]], ["nothing_judged"])

    def test_noise(self):
        """Random bytes and shuffled words: a report, never a crash."""
        rng = random.Random(11)
        words = re.findall(rb"\S+", b" ".join(s[2] for s in samples()))
        for _ in range(15):
            judge(bytes(rng.randrange(256) for _ in range(rng.randrange(3000))))
            judge(b"".join(rng.choice(words) + rng.choice([b" ", b"\n", b"\t", b"  "])
                           for _ in range(rng.randrange(600))))


class Evidence(unittest.TestCase):
    def test_jobs_are_told_apart(self):
        """Both jobs of a log are reported, each with its own lines."""
        for name, sound in (("nccl-two-jobs.txt", "sound"), ("nccl-two-jobs-ids.txt", "box")):
            _, report, _ = doctor(os.path.join(OWN, name))
            by_rule = {f["rule"]: f for f in report["findings"]}
            self.assertEqual(by_rule["nccl_shm"]["severity"], "FAIL", name)
            self.assertEqual(by_rule["nccl_p2p"]["severity"], "OK", name)
            self.assertTrue(all("SHM" in e["text"] for e in by_rule["nccl_shm"]["evidence"]))
            self.assertTrue(all(e["text"].startswith(sound) for e in by_rule["nccl_p2p"]["evidence"]))

    def test_one_job_over_files(self):
        """A job's ranks in two files are one job: sockets between nodes are seen."""
        line = "{h}:{p}:{p} [0] NCCL INFO {t}\n"
        with tempfile.TemporaryDirectory() as tmp:
            files = []
            for rank, host in enumerate(("n1", "n2")):
                files.append(os.path.join(tmp, host))
                with open(files[-1], "w") as f:
                    for t in ("Using network Socket", f"comm 0x1 rank {rank} nranks 2 cudaDev 0 busId 1000 "
                              "commId 0x77 - Init START"):
                        f.write(line.format(h=host, p=10, t=t))
            _, report, _ = doctor(*files)
        self.assertIn("nccl_socket", [f["rule"] for f in report["findings"]])

    def test_prices(self):
        """What a slow path costs in tokens/s agrees with what `trireme plan` says of a sound machine, and
        is absent where the part is unknown."""
        _, report, _ = doctor(os.path.join(OWN, "coll-h200-pcie.txt"))
        cost = [f for f in report["findings"] if f["rule"] == "busbw_low"][0]["cost"]
        served = cost["tokens_per_s"]
        model, layout = served["model"].split(", ")
        self.assertLess(served["have"], served["should"])
        p = subprocess.run([TRIREME, "plan", "--json", "--model", model, "--hw", "8xH200", "--layout", layout,
                            "--input", "4096", "--output", "512", "--context", "4608", "--concurrency", "1"],
                           capture_output=True, text=True)
        sound = 1000 / json.loads(p.stdout)["tpot_ms"]["value"]
        self.assertAlmostEqual(served["should"] / sound, 1, delta=0.05)
        _, report, _ = doctor(os.path.join(OWN, "nccl-shm.txt"))
        self.assertFalse(any("tokens_per_s" in f.get("cost", {}) for f in report["findings"]))


def growing():
    """A megabyte each of what once cost the square of its length: minutes then, far below a second now."""
    header = b"\t".join(b"GPU%d" % i for i in range(8))
    yield b"\t" + header + b"\n" + (b"\t" + header + b"\n") * 26000      # headers without rows
    yield b"=== Weight between two GPUs ===\n  GPU0 GPU1\nGPU0 0 15\nGPU1 15 0\n" * 15000  # no end line
    yield b"0000:03:00.0 N/A          N/A\n" * 35000
    yield b"[\n" * 250000 + b"]\n" * 250000                              # nested, each its own start
    yield b'{"gpu": 0}\n' * 90000
    yield b"index, name\n" * 90000                                        # names without rows
    yield b"".join(b"%02x:%02x.0 VGA compatible controller: x\n" % (i // 32 % 256, i % 32) for i in range(27000))
    yield b"".join(b"n:%d:1 [0] NCCL INFO Ring 00 : 0 -> 1 via P2P/IPC\n" % (i % 3000) for i in range(18000))
    yield b"".join(b"-[0000:%02x]-+-00.0-[%02x]----00.0\n" % (i % 256, (i + 1) % 256) for i in range(30000))


class Words(unittest.TestCase):
    def test_adapters_are_adapters(self):
        """The column of near adapters is there when the input lists one, and holds nothing else."""
        seen = set()
        for name, *_ in expected():
            path = os.path.join(OWN, name)
            text = subprocess.run([TRIREME, "doctor", path], capture_output=True, text=True).stdout
            report = doctor(path)[1] if "Paths between GPUs" in text else {}
            if len(report.get("machines", [])) != 1:
                continue
            nics = {n["name"] for n in report["machines"][0].get("nics", [])}
            self.assertEqual("near adapter" in text, bool(nics), name)
            seen.add(bool(nics))
            for row in re.findall(r"^  GPU\d+ .*", text, re.M) if nics else ():
                cell = re.search(r" (?:\d+|\?)  (-|\S+) ?(?:$|\(|  )", row)
                self.assertTrue(cell and cell[1] in nics | {"-"}, (name, row))
        self.assertEqual(seen, {False, True})

    def test_preemptions(self):
        """Every line counts one, and a line that tells a larger number so far is believed, within reason."""
        line = "WARNING scheduler.py:1057] Sequence group 7 is preempted by PreemptionMode.RECOMPUTE mode"
        for tails, times in (([""], 1), (["", ""], 2), (["=1", "=51", "=101"], 101), (["=51", ""], 52), (["=0", "=-5"], 2),
                             (["=1000000000"], 1000000000), (["=1000000001"], 1), (["=" + "9" * 40], 1)):
            said = "\n".join(line + (" total_num_cumulative_preemption" + t if t else "") for t in tails)
            titles = [f["title"] for f in judge(said.encode())["findings"]]
            self.assertIn(f"requests were thrown out of the cache {times} times and computed again", titles)


class CommandLine(unittest.TestCase):
    def test_lost_output(self):
        """What cannot be printed is no verdict."""
        with open("/dev/full", "w") as full:
            for how in ([], ["--json"], ["--steps"]):
                p = subprocess.run([TRIREME, "doctor", *how, os.path.join(OWN, "topo-nvswitch.txt")],
                                   stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual(p.returncode, 3, how)
                self.assertIn("cannot be written", p.stderr)
            for how in (["--watch=0.1", "--count=2"], ["--watch=0.1"], ["--gather=/dev/null"]):
                p = subprocess.run([TRIREME, "doctor", *how], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual(p.returncode, 3, how)
                self.assertRegex(p.stderr, r"\Atrireme: standard output cannot be written[^\n]*\n\Z")

    def test_files_are_whole_or_absent(self):
        """A file that cannot be written to its end is not there; an older one stays; one line says why."""
        with tempfile.TemporaryDirectory() as tmp:
            for option, before in ((o, b) for o in ("--gather", "--html") for b in (None, b"older")):
                path = os.path.join(tmp, "out")
                if before:
                    with open(path, "wb") as f:
                        f.write(before)
                for size in (0, 700):
                    p = subprocess.run([TRIREME, "doctor", f"{option}={path}"], stdin=subprocess.DEVNULL, capture_output=True,
                                       preexec_fn=lambda n=size: resource.setrlimit(resource.RLIMIT_FSIZE, (n, n)), text=True)
                    self.assertEqual(p.returncode, 3)
                    self.assertRegex(p.stderr, r"\Atrireme: cannot write [^\n]*out: File too large\n\Z")
                    self.assertEqual(os.listdir(tmp), ["out"] if before else [])
                if before:
                    self.assertEqual(read(path), before)
                    os.remove(path)
            for path in ("", tmp, os.path.join(tmp, "no", "x"), "/dev/full"):
                for option in ("--gather", "--html"):
                    p = subprocess.run([TRIREME, "doctor", f"{option}={path}"], capture_output=True, text=True)
                    self.assertEqual((p.returncode, p.stderr.count("\n")), (3, 1), p.stderr)
                    self.assertEqual(os.listdir(tmp), [])

    def test_counts(self):
        """What is no count is refused, also what no number can hold."""
        for count in ("", "0", "-1", "1.5", "nan", "1000000001", "9" * 20, "9" * 400):
            p = subprocess.run([TRIREME, "doctor", "--watch=0.1", f"--count={count}"], capture_output=True, text=True, timeout=60)
            self.assertEqual(p.returncode, 3, count)
            self.assertRegex(p.stderr, r"\A[^\n]*--count takes a number from 1 to 1000000000\n\Z")

    def test_hostile_files(self):
        """Compressed, endless, huge and foreign inputs: one line and code 3, or a report; never a hang."""
        with tempfile.TemporaryDirectory() as tmp:
            def put(name, data):
                path = os.path.join(tmp, name)
                with open(path, "wb") as f:
                    f.write(data)
                return path
            sparse = put("sparse", b"")
            os.truncate(sparse, 1 << 30)
            os.symlink("loop", os.path.join(tmp, "loop"))
            refused = [put("a.gz", gzip.compress(b"GPU0")), put("b.xz", lzma.compress(b"GPU0")), sparse,
                       os.path.join(tmp, "loop"), tmp, "/dev/zero", "/proc/self/mem"]
            for path in refused:
                p = subprocess.run([TRIREME, "doctor", path], capture_output=True, text=True, timeout=30)
                self.assertEqual(p.returncode, 3, path)
                self.assertEqual(len(p.stderr.strip().split("\n")), 1, p.stderr)
            for data in (bytes(range(256)) * 4000, b"\0" * 100000, b"[" * 200000, b"{\n" * 20000,
                         b"GPU0 X NV12\n" * 20000, b"<system version=\"1\">" + b"<cpu>" * 50000,
                         *growing()):
                p = subprocess.run([TRIREME, "doctor", put("x", data)], capture_output=True, timeout=120)
                self.assertIn(p.returncode, (0, 1, 2), data[:20])

    def test_hostile_tars(self):
        """Names that climb, links in circles, sizes that lie, tars in tars: read as names, never followed."""
        def tar(*members):
            buf = io.BytesIO()
            with tarfile.open(fileobj=buf, mode="w") as t:
                for name, data, target in members:
                    info = tarfile.TarInfo(name)
                    info.type = tarfile.SYMTYPE if target else tarfile.REGTYPE
                    info.linkname, info.size = target, len(data)
                    t.addfile(info, io.BytesIO(data))
            return buf.getvalue()
        climbing = tar((ROOT + "/../../../etc/passwd", b"x", ""), ("/etc/shadow", b"x", ""),
                       (ROOT + "/proc/cmdline", b"BOOT_IMAGE=x root=/ intel_iommu=on\n", ""))
        circles = tar(("box/links/sys/a", b"", "b"), ("box/links/sys/b", b"", "a"),
                      (ROOT + "/proc/self", b"", "../../../../.."))
        lying = bytearray(climbing)
        lying[124:136] = b"77777777777\0"
        nested = b"x"
        for _ in range(40):
            nested = tar(("in.tar", nested, ""))
        deep = b""  # heads only, each the next one's content: as deep as bytes allow
        for _ in range(3000):
            info = tarfile.TarInfo("a.tar")
            info.size = len(deep)
            deep = info.tobuf(tarfile.USTAR_FORMAT) + deep
        for data in (climbing, circles, bytes(lying), nested, deep, climbing[:700]):
            with tempfile.NamedTemporaryFile(suffix=".tar") as f:
                f.write(data)
                f.flush()
                p = subprocess.run([TRIREME, "doctor", "--json", f.name], capture_output=True, timeout=30)
            self.assertIn(p.returncode, (0, 1, 2))
            self.assertNotIn(b"root:", p.stdout)

    def test_codes(self):
        run = lambda *a: subprocess.run([TRIREME, "doctor", *a], capture_output=True)
        self.assertEqual(run("--no-such-flag").returncode, 3)
        p = run("/no/such/file")
        self.assertEqual(p.returncode, 3)
        self.assertEqual(len(p.stderr.decode().strip().split("\n")), 1)
        self.assertIn("/no/such/file", p.stderr.decode())
        self.assertEqual(run("--help").returncode, 0)

    def test_three_lines(self):
        p = subprocess.run([TRIREME, "doctor", os.path.join(OWN, "lspci-riser.txt")], capture_output=True)
        text = p.stdout.decode()
        self.assertTrue(text.startswith("FAIL\n"))
        first = text.split("\n")[1:4]
        self.assertRegex(first[0], r"^FAIL  GPU 0000:43:00\.0 runs at x4 of x16  \[.*lspci-riser\.txt:\d+\]")
        self.assertIn("7.9 of 31.5 GB/s", first[1])
        self.assertIn("do:", first[2])

    def test_several_files(self):
        code, report, _ = doctor(os.path.join(OWN, "topo-nvswitch.txt"), os.path.join(OWN, "nccl-shm.txt"))
        self.assertEqual(report["verdict"], "FAIL")
        self.assertTrue(any(f["rule"] == "nvlink_mesh" for f in report["findings"]))

    def test_steps(self):
        p = subprocess.run([TRIREME, "doctor", "--steps", os.path.join(OWN, "topo-bridges.txt")],
                           capture_output=True, text=True)
        self.assertEqual(len(re.findall(r"^\d\. ", p.stdout, re.M)), 6)
        self.assertIn("1. Topology: which GPUs are near each other?  [WARN]", p.stdout)
        self.assertIn("all_reduce_perf", p.stdout)

    def test_time(self):
        """A 60 KB lspci takes about twice the time of a run without input, of the processor, whatever its speed."""
        def best(*args):
            least = 99
            for _ in range(5):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run([TRIREME, *args], capture_output=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                least = min(least, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
            return least
        block = read(os.path.join(OWN, "lspci-sound.txt")).split(b"\n", 1)[1]
        text = b""
        while len(text) < 60000:
            text += re.sub(rb"^(..):", lambda m: b"%02x:" % (int(m[1], 16) % 200), block, flags=re.M)
        with tempfile.NamedTemporaryFile(suffix=".txt") as f:
            f.write(text)
            f.flush()
            self.assertLess(best("doctor", f.name), 15 * best("--version"))


if __name__ == "__main__":
    unittest.main(verbosity=1)
