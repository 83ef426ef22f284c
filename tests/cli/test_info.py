#!/usr/bin/env python3
"""trireme info: totals against sums made here from the tensors themselves, differences told without
failing, and the forms of checkpoint that are not faults."""
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_tiny

TRIREME = os.environ["TRIREME"]
INDEX = "model.safetensors.index.json"
L = "language_model."


def info(*args):
    return subprocess.run([TRIREME, "info", *map(str, args)], capture_output=True, text=True, timeout=60)


def write_parts(folder, parts, o):
    """A checkpoint of these tensors in one file without an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(make_tiny.config(o)))
    (folder / "model.safetensors").write_bytes(make_tiny.shard(parts))


class Case(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)
        self.folder = pathlib.Path(self.work.name) / "m"

    def json(self, *args):
        done = info(*args, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def bent(self, change, **given):
        """Writes the tensors that change(list) leaves."""
        o = make_tiny.options(**given)
        parts = make_tiny.tensors(o)
        write_parts(self.folder, change(parts) or parts, o)

    def replace(self, name, **fields):
        return lambda parts: [t._replace(**fields) if t.name == L + name else t for t in parts]


class Totals(Case):
    VARIANTS = [
        {}, dict(experts=0, shared=0), dict(layers=9, experts=6, topk=3, block=3, dense=2),
        dict(q_rank=None, mla_gate=False), dict(full_gate=False, gate_bound=None, act="silu"),
        dict(latent=None), dict(latent_norm=False), dict(shared=0), dict(block=0), dict(tied=True),
        dict(expert_dtype="BF16"), dict(mla_layers=[]), dict(mla_layers=[1, 2, 3, 4]),
        dict(outer=False, prefix=False), dict(kda_heads=5, kda_dim=4),
    ]

    def test_sums(self):
        for given in self.VARIANTS:
            with self.subTest(given):
                o = make_tiny.write(self.folder, **given)
                parts = make_tiny.tensors(o)
                got = self.json(self.folder)
                self.assertEqual(got["tensors"], len(parts))
                self.assertEqual(got["bytes"], sum(len(t.data) for t in parts))
                values = sum(len(t.data) * 2 if "_packed" in t.name else 0 if "_scale" in t.name
                             else len(t.data) // make_tiny.VALUE_BYTES[t.dtype] for t in parts)
                self.assertEqual(got["parameters"], values)
                self.assertEqual((got["missing"], got["extra"], got["mismatched"]), (0, 0, 0))
                self.assertEqual(sum(p["bytes"] for p in got["parts"]), got["bytes"])
                self.assertEqual(sum(p["parameters"] for p in got["parts"]), values)
                for f in self.folder.iterdir():
                    f.unlink()

    def test_active_parameters(self):
        o = make_tiny.write(self.folder)
        got = self.json(self.folder)
        expert = 3 * o["moe_inter"] * o["latent"]
        idle = (o["layers"] - o["dense"]) * (o["experts"] - o["topk"]) * expert
        self.assertEqual(got["active_parameters"], got["parameters"] - idle - o["vocab"] * o["hidden"])

    def test_config_alone_compares_nothing(self):
        make_tiny.write(self.folder)
        got = self.json("--config", self.folder / "config.json")
        self.assertEqual((got["missing"], got["extra"], got["mismatched"], got["found"]), (None,) * 4)

    def test_gzipped_config_and_index(self):
        make_tiny.write(self.folder)
        for name in ("config.json", INDEX):
            (self.folder / (name + ".gz")).write_bytes(gzip.compress((self.folder / name).read_bytes()))
        plain = self.json("--config", self.folder / "config.json", "--index", self.folder / INDEX)
        packed = self.json("--config", self.folder / "config.json.gz", "--index", self.folder / (INDEX + ".gz"))
        self.assertEqual(plain, packed)
        self.assertEqual(plain["missing"], 0)
        self.assertEqual(plain["found"]["tensors"], plain["tensors"])


class Differences(Case):
    def test_of_a_folder(self):
        norm, gate = "model.norm.weight", "model.layers.0.mlp.gate_proj.weight"

        def change(parts):
            parts = [t._replace(shape=[64, 96]) if t.name == L + gate else t for t in parts if t.name != L + norm]
            return parts + [make_tiny.Tensor("rotary.inv_freq", "F32", [2], b"\0" * 8)]
        self.bent(change)
        got = self.json(self.folder)
        self.assertEqual((got["missing"], got["extra"], got["mismatched"]), (1, 1, 1))
        self.assertEqual(got["missing_names"], [norm])
        self.assertEqual(got["extra_names"], ["rotary.inv_freq"])
        self.assertIn(gate, got["mismatched_names"][0])
        self.assertIn("[64, 96]", got["mismatched_names"][0])
        table = info(self.folder).stdout
        for word in (norm, gate, "rotary.inv_freq", "1 missing, 1 extra, 1 mismatched"):
            self.assertIn(word, table)

    def test_of_an_index_and_the_cap_on_names(self):
        make_tiny.write(self.folder, experts=8)
        path = self.folder / INDEX
        tree = json.loads(path.read_text())
        gone = [n for n in tree["weight_map"] if ".experts." in n]
        for n in gone:
            del tree["weight_map"][n]
        path.write_text(json.dumps(tree))
        got = self.json("--config", self.folder / "config.json", "--index", path)
        self.assertEqual(got["missing"], len(gone))
        self.assertEqual(len(gone), 3 * 8 * 6)
        self.assertEqual(len(got["missing_names"]), 100)
        self.assertIn("and 44 more", info("--config", self.folder / "config.json", "--index", path).stdout)


class NotFaults(Case):
    """Each of these opens; the notes, if any, come on stderr, one line a kind."""

    def opens(self, *notes):
        done = info(self.folder, "--check")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), len(notes), done.stderr)
        for word, line in zip(notes, lines):
            self.assertTrue(line.startswith("trireme: note: "), line)
            self.assertIn(word, line)

    def test_shapes_with_and_without_ones(self):
        for name, shape in (("model.layers.0.self_attn.dt_bias", [2, 16]),
                            ("model.layers.0.self_attn.q_conv1d.weight", [32, 4]),
                            ("model.layers.0.self_attn.A_log", [1, 1, 16, 1]),
                            ("model.layers.0.mlp_res_proj.weight", [64]),
                            ("model.norm.weight", [1, 64])):
            with self.subTest(name):
                self.bent(self.replace(name, shape=shape))
                self.opens()

    def test_a_log_of_just_the_heads_and_longer(self):
        for n in (2, 7, 200):
            self.bent(self.replace("model.layers.0.self_attn.A_log", shape=[n], data=b"\0" * 4 * n))
            self.opens()

    def test_trunk_of_other_floats(self):
        for dtype in ("F32", "F16"):
            make_tiny.write(self.folder, trunk=dtype)
            self.opens(f"is {dtype} on disk, BF16 as published")

    def test_plain_experts_of_any_float(self):
        for dtype in ("BF16", "F16", "F32"):
            make_tiny.write(self.folder, expert_dtype=dtype)
            self.opens(*() if dtype == "BF16" else [dtype])

    def test_packed_experts_that_the_config_does_not_tell(self):
        make_tiny.write(self.folder, quantized=False)
        self.opens()

    def test_file_layouts(self):
        for given in (dict(shards=1, index=False), dict(shards=7), dict(digits=(5, 5)), dict(shuffle=True, shards=3),
                      dict(prefix=False), dict(outer=False)):
            with self.subTest(given):
                make_tiny.write(self.folder, **given)
                self.opens()
                for f in self.folder.iterdir():
                    f.unlink()

    def test_a_whole_set_without_an_index(self):
        make_tiny.write(self.folder, index=False, shards=3)
        self.opens("all 3 numbered files")

    def test_extra_tensors_of_any_legal_kind(self):
        extra = [make_tiny.Tensor("x.scalar", "I64", [], b"\0" * 8), make_tiny.Tensor("x.empty", "BOOL", [3, 0], b""),
                 make_tiny.Tensor("x.half_bytes", "F4", [2, 3], b"\0" * 3),
                 make_tiny.Tensor("x.deep", "C64", [1] * 16, b"\0" * 8)]
        self.bent(lambda parts: extra[:2] + parts + extra[2:])
        self.opens("4 tensors are not part of the model")

    def test_metadata_and_a_wrong_total(self):
        make_tiny.write(self.folder)
        tree = json.loads((self.folder / INDEX).read_text())
        tree["metadata"] = {"total_size": 1, "other": [1]}
        (self.folder / INDEX).write_text(json.dumps(tree))
        self.opens("says 1 bytes")

    def test_vision_announced_but_absent(self):
        make_tiny.write(self.folder)
        tree = json.loads((self.folder / "config.json").read_text())
        tree["vision_config"] = {}
        (self.folder / "config.json").write_text(json.dumps(tree))
        self.opens("vision tensors are absent")
        got = self.json(self.folder)
        self.assertEqual(got["missing"], 165 + 3)  # of K3's tower and projector

    def test_next_token_layers(self):
        make_tiny.write(self.folder)
        tree = json.loads((self.folder / "config.json").read_text())
        tree["text_config"]["num_nextn_predict_layers"] = 1
        (self.folder / "config.json").write_text(json.dumps(tree))
        self.opens("1 next-token-prediction layers are not run")


class Check(Case):
    def test_memory(self):
        o = make_tiny.write(self.folder)
        got = self.json(self.folder, "--check")
        self.assertTrue(got["ok"])
        experts = sum(len(t.data) for t in make_tiny.tensors(o) if ".experts." in t.name)
        memory = got["memory"]
        self.assertEqual(memory["experts_bytes"], experts)
        # one MLA layer of float32 rows; 3 KDA layers: state, and 3 tails of taps - 1 rows
        self.assertEqual(memory["mla_bytes_per_token"],
                         {name: (32 + 8) * width for name, width in (("f32", 4), ("bf16", 2), ("fp8", 1))})
        self.assertEqual(memory["kda_bytes_per_sequence"],
                         {name: 3 * (2 * 16 * 16 * width + 3 * 3 * 2 * 16 * 4) for name, width in (("f32", 4), ("bf16", 2))})
        sizes = memory["trunk_bytes"]
        self.assertGreater(sizes["f32"], sizes["bf16"])
        self.assertGreater(sizes["bf16"], sizes["int8"])
        self.assertGreater(sizes["int8"], sizes["int4"])
        self.assertEqual((got["tokenizer_tokens"], got["chat"]), (0, False))

    def test_a_broken_vocabulary_is_refused(self):
        make_tiny.write(self.folder)
        (self.folder / "tiktoken.model").write_text("no vocabulary\n")
        done = info(self.folder, "--check")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn("tiktoken.model", done.stderr)


class Machine(Case):
    def test_facts(self):
        got = self.json()
        self.assertEqual(got["machine"]["cpus"], len(os.sched_getaffinity(0)))
        with open("/proc/meminfo") as f:
            self.assertEqual(got["machine"]["memory_bytes"], int(f.readline().split()[1]) * 1024)
        self.assertTrue(any(k["operation"].startswith("matmul") for k in got["kernels"]))
        self.assertIn(got["version"], info().stdout)

    def test_numa(self):
        got = self.json()["machine"]["numa"]
        self.assertIn("numa      auto: " + got["why"], info().stdout)
        nodes = pathlib.Path("/sys/devices/system/node")
        if not (nodes / "online").exists():
            self.assertFalse(got["interleave"])
            return
        with open("/proc/self/status") as f:
            allowed = next(line.split()[1] for line in f if line.startswith("Mems_allowed_list"))
        if allowed.isdigit():
            self.assertEqual(got["memory_nodes"], [int(allowed)])
            self.assertFalse(got["interleave"] or got["bind"])

    def test_usage(self):
        for args in (["--index", "x"], ["--check"], ["a", "b"], ["a", "--config", "b"], ["--nonsense"]):
            done = info(*args)
            self.assertEqual(done.returncode, 2, args)
            self.assertEqual(done.stdout, "")
        self.assertEqual(info("--help").returncode, 0)


if __name__ == "__main__":
    unittest.main()
