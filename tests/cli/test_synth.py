#!/usr/bin/env python3
"""trireme synth: the layout it writes is read here by an own safetensors parser; values depend on
config and seed alone; nothing is overwritten; an unfinished run is recognisable; the real shape."""
import hashlib
import json
import math
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

TRIREME = os.environ.get("TRIREME", "build/release/trireme")
SHARED = pathlib.Path(os.environ.get("TRIREME_SHARED", "../shared"))
CONFIG = {
    "model_type": "kimi_k3", "architectures": ["KimiK3ForConditionalGeneration"],
    "text_config": {
        "model_type": "kimi_linear", "vocab_size": 320, "hidden_size": 128, "num_hidden_layers": 5,
        "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 96,
        "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
        "mla_use_nope": True, "mla_use_output_gate": True, "hidden_act": "situ", "activation_situ_beta": 4.0,
        "activation_situ_linear_beta": 25.0, "rms_norm_eps": 1e-05, "first_k_dense_replace": 1,
        "moe_layer_freq": 1, "num_experts": 16, "num_experts_per_token": 4, "num_shared_experts": 2,
        "moe_intermediate_size": 64, "routed_expert_hidden_size": 64, "latent_moe_use_norm": True,
        "moe_renormalize": True, "moe_router_activation_func": "sigmoid", "routed_scaling_factor": 2.827,
        "num_expert_group": 1, "topk_group": 1, "use_grouped_topk": True, "attn_res_block_size": 3,
        "tie_word_embeddings": False, "linear_attn_config": {
            "num_heads": 4, "head_dim": 32, "short_conv_kernel_size": 4, "use_full_rank_gate": True,
            "gate_lower_bound": -5.0, "full_attn_layers": [4, 5], "kda_layers": [1, 2, 3]}},
    "quantization_config": {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"},
    "bos_token_id": 0, "eos_token_id": 1}
WIDTH = {"BF16": 2, "F32": 4, "U8": 1}
PARTS = ("w1.weight_packed", "w1.weight_scale", "w2.weight_packed", "w2.weight_scale", "w3.weight_packed",
         "w3.weight_scale")


def run(*args, code=0):
    done = subprocess.run([TRIREME, *map(str, args)], capture_output=True, text=True)
    if done.returncode != code:
        raise AssertionError(f"{args}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def header(path):
    with open(path, "rb") as f:
        length = struct.unpack("<Q", f.read(8))[0]
        return json.loads(f.read(length)), 8 + length


def digest(folder):
    total = hashlib.sha256()
    for path in sorted(pathlib.Path(folder).iterdir()):
        total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()


def bf16_values(path, name):
    head, start = header(path)
    begin, end = head[name]["data_offsets"]
    data = path.read_bytes()[start + begin:start + end]
    return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]


def spread(values):
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))


class Synth(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="trireme-synth-"))
        cls.config = cls.dir / "config.json"
        cls.config.write_text(json.dumps(CONFIG))
        run("synth", cls.dir / "a", "--config", cls.config, "--threads", 2)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    def test_layout(self):
        index = json.loads((self.dir / "a" / "model.safetensors.index.json").read_text())
        seen, total = {}, 0
        for path in sorted((self.dir / "a").glob("*.safetensors")):
            head, start = header(path)
            self.assertEqual(start % 8, 0)
            at = 0
            for name, t in head.items():      # in file order: back to back, sizes as the shapes say
                self.assertEqual(t["data_offsets"][0], at, name)
                at = t["data_offsets"][1]
                self.assertEqual(at - t["data_offsets"][0], math.prod(t["shape"]) * WIDTH[t["dtype"]], name)
                seen[name] = path.name
                layer = re.search(r"layers\.(\d+)\.", name)
                if layer:                     # shard L+1 holds layer L and nothing else
                    self.assertEqual(path.name, f"model-{int(layer[1]) + 1:05d}-of-000006.safetensors")
            names = list(head)
            for e in range(16):
                base = f"language_model.model.layers.3.block_sparse_moe.experts.{e}."
                if base + PARTS[0] in head:
                    i = names.index(base + PARTS[0])
                    self.assertEqual(names[i:i + 6], [base + p for p in PARTS])
            self.assertEqual(path.stat().st_size, start + at)
            total += at
        self.assertEqual(index["weight_map"], seen)
        self.assertEqual(index["metadata"]["total_size"], total)
        self.assertFalse(list((self.dir / "a").glob("*.part")))

    def test_opens_and_runs(self):
        run("info", self.dir / "a", "--check")
        lines = run("logits", self.dir / "a", "--tokens", "5,7,9,11,13").stdout.splitlines()
        self.assertEqual(len(lines), 5)
        for line in map(json.loads, lines):
            self.assertTrue(all(math.isfinite(v) and abs(v) < 100 for _, v in line["top"]), line)

    def test_values(self):
        first = self.dir / "a" / "model-00001-of-000006.safetensors"
        base = "language_model.model.layers.0."
        mean, dev = spread(bf16_values(first, base + "self_attn.q_proj.weight"))   # gain 1 over 128 inputs
        self.assertAlmostEqual(mean, 0, delta=0.003)
        self.assertAlmostEqual(dev, 1 / math.sqrt(128), delta=0.002)
        mean, dev = spread(bf16_values(first, base + "input_layernorm.weight"))
        self.assertAlmostEqual(mean, 1, delta=0.1)
        q = bf16_values(first, base + "self_attn.q_proj.weight")
        k = bf16_values(first, base + "self_attn.k_proj.weight")
        same = sum(a == b for a, b in zip(q, k)) / len(q)
        self.assertLess(same, 0.01)                                                # no stream twice
        head, start = header(first)
        data = first.read_bytes()
        at, end = (start + o for o in head[base + "self_attn.A_log"]["data_offsets"])
        log = struct.unpack(f"<{(end - at) // 4}f", data[at:end])
        self.assertTrue(all(-1 <= v < 1 and v for v in log[:4]) and not any(log[4:]), log)

    def test_same_for_any_threads(self):
        for threads in (1, 3):
            folder = self.dir / f"t{threads}"
            run("synth", folder, "--config", self.config, "--threads", threads)
            self.assertEqual(digest(folder), digest(self.dir / "a"), threads)
        run("synth", self.dir / "seed", "--config", self.config, "--seed", 1)
        self.assertNotEqual(digest(self.dir / "seed"), digest(self.dir / "a"))

    def test_shards_do_not_change_values(self):
        run("synth", self.dir / "two", "--config", self.config, "--shards", 2)
        self.assertEqual(len(list((self.dir / "two").glob("*.safetensors"))), 2)
        a, b = (run("logits", self.dir / d, "--tokens", "5,7").stdout for d in ("a", "two"))
        self.assertEqual(a, b)
        run("synth", self.dir / "none", "--config", self.config, "--shards", 7, code=2)

    def test_other_shapes(self):
        run("synth", self.dir / "deep", "--config", self.config, "--layers", 11, "--experts", 8,
            "--vocab", 64, "--set", "first_k_dense_replace=2")
        config = json.loads((self.dir / "deep" / "config.json").read_text())["text_config"]
        self.assertEqual(config["linear_attn_config"]["full_attn_layers"], [4, 5, 9, 10])
        self.assertEqual((config["num_experts"], config["vocab_size"]), (8, 64))
        run("logits", self.dir / "deep", "--tokens", "5,63")
        run("synth", self.dir / "mla", "--config", self.config, "--layers", 3, "--pattern", "km")
        config = json.loads((self.dir / "mla" / "config.json").read_text())["text_config"]
        self.assertEqual(config["linear_attn_config"]["kda_layers"], [1, 3])

    def test_refusals(self):
        before = digest(self.dir / "a")
        for args, want in ((["--config", self.config], "nothing is overwritten"),):
            self.assertIn(want, run("synth", self.dir / "a", *args, code=2).stderr)
        self.assertEqual(digest(self.dir / "a"), before)
        new = self.dir / "new"
        for args, want, code in ((["--set", "hiden_size=4"], "no such key", 2), (["--set", "hidden_size"], "KEY=VALUE", 2),
                                 (["--set", "hidden_size=\"x\""], "number", 2), (["--pattern", "kx"], "letters k", 2),
                                 (["--experts", "2"], "num_experts", 1), (["--layers", "0"], "--layers", 2)):
            done = run("synth", new, "--config", self.config, *args, code=code)
            self.assertIn(want, done.stderr)
            self.assertFalse(new.exists(), args)
        sets = [word for i in range(65) for word in ("--set", f"vocab_size={320 + i}")]
        self.assertIn("at most 64", run("synth", new, "--config", self.config, *sets, code=2).stderr)
        run("synth", new, "--config", self.config, *sets[:128])
        shutil.rmtree(new)
        huge = ["--layers", 1024, "--set", "intermediate_size=1048576", "--set", "first_k_dense_replace=1024",
                "--set", "hidden_size=65536"]
        self.assertIn("free there", run("synth", new, "--config", self.config, *huge, code=1).stderr)
        self.assertFalse(new.exists())

    def test_a_file_in_the_way(self):
        done = run("synth", pathlib.Path(self.config) / "deeper", "--config", self.config, code=1)
        self.assertIn("Not a directory", done.stderr)

    def test_a_disk_that_fills_up(self):
        """Writing fails half way, here by a limit of the process: one line, and no config.json."""
        folder = self.dir / "full"

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        done = subprocess.run([TRIREME, "synth", folder, "--config", self.config], capture_output=True, text=True,
                              preexec_fn=limit)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(str(folder), done.stderr)
        self.assertFalse((folder / "config.json").exists())
        shutil.rmtree(folder)

    def test_killed_run_is_recognisable(self):
        folder = self.dir / "killed"
        child = subprocess.Popen([TRIREME, "synth", folder, "--config", self.config, "--layers", "40",
                                  "--experts", "512"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.time() + 20
        while time.time() < deadline and not list(folder.glob("model-00002*")):
            time.sleep(0.002)
        child.send_signal(signal.SIGKILL)
        child.wait()
        self.assertFalse((folder / "config.json").exists(), "it ended before it could be killed")
        self.assertFalse((folder / "model.safetensors.index.json").exists())
        self.assertIn("config.json", run("logits", folder, "--tokens", "1", code=1).stderr)
        self.assertIn("not an empty folder", run("synth", folder, "--config", self.config, code=2).stderr)
        shutil.rmtree(folder)

    def test_sparse(self):
        run("synth", self.dir / "holes", "--config", self.config, "--sparse", "--experts", 4)
        head, start = header(self.dir / "holes" / "model-00002-of-000006.safetensors")
        data = (self.dir / "holes" / "model-00002-of-000006.safetensors").read_bytes()
        for name, t in head.items():
            begin, end = t["data_offsets"]
            self.assertEqual(any(data[start + begin:start + end]), "experts." not in name or "shared" in name, name)

    def test_real_shape(self):
        """497,220 tensors and 1,560,860,324,864 bytes: K3 spec 2.1."""
        config = SHARED / "k3" / "config.json"
        if not config.exists():
            print(f"SKIP: {config} is absent: the real shape is not made")
            self.skipTest("no shared material")
        try:
            with tempfile.NamedTemporaryFile(dir=self.dir) as probe:
                os.truncate(probe.name, 1 << 34)
                if os.stat(probe.name).st_blocks > 1000:
                    raise OSError("no holes")
        except OSError as why:
            print(f"SKIP: this file system cannot hold sparse files ({why}): the real shape is not made")
            self.skipTest("no sparse files")
        folder = self.dir / "real"
        made = json.loads(run("synth", folder, "--config", config, "--sparse", "--json").stdout)
        self.assertEqual((made["tensors"], made["bytes"], made["parameters"], made["files"]),
                         (497220, 1560860324864, 2779931837184, 96))
        apparent = sum(p.stat().st_size for p in folder.iterdir())
        real = sum(p.stat().st_blocks * 512 for p in folder.iterdir())
        self.assertGreater(apparent, 1560860324864)
        self.assertLess(real, 3 << 30)
        print(f"real shape: {apparent} bytes apparent, {real} on disk")
        shutil.rmtree(folder)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
