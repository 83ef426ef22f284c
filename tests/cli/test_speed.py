#!/usr/bin/env python3
"""trireme speed: what its rows say is held against bytes and operations counted here from the
checkpoint's own headers and config, and against each other. (Speeds themselves prove nothing here.)"""
import json
import math
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from test_synth import CONFIG  # noqa: E402  the same small shape

TRIREME = os.environ.get("TRIREME", "build/release/trireme")
C = CONFIG["text_config"]
LINEAR = C["linear_attn_config"]
KDA_LAYERS, MLA_LAYERS, MOE_LAYERS = 3, 2, 4
KEPT = ("f_a_proj", "f_b_proj", "b_proj", "gate", "embed_tokens")   # never quantised


def run(*args, code=0):
    done = subprocess.run([TRIREME, *map(str, args)], capture_output=True, text=True)
    if done.returncode != code:
        raise AssertionError(f"{args}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def tensors(folder):
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with open(path, "rb") as f:
            head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        for name, t in head.items():
            yield name.removeprefix("language_model."), t["shape"]


def trunk_bytes(folder, trunk):
    """Norm weights and other vectors become float32; matrices follow --trunk but for a few."""
    total = 0
    for name, shape in tensors(folder):
        values, rows = math.prod(shape), shape[0]
        if ".experts." in name or "embed_tokens" in name:
            continue
        kept = name.split(".")[-2] in KEPT
        if len(shape) != 2 or rows == 1:
            count = LINEAR["num_heads"] if name.endswith("A_log") else values
            if name.endswith("_res_norm.weight"):
                continue               # folded into the projection
            total += 4 * count
        elif trunk == "f32":
            total += 4 * values
        elif trunk == "int8" and not kept:
            parts = [(rows, shape[1])]
            if "kv_b_proj" in name:    # kept as two: keys transposed for each head, values
                heads, nope, v, rank = C["num_attention_heads"], C["qk_nope_head_dim"], C["v_head_dim"], shape[1]
                parts = [(heads * rank, nope), (heads * v, rank)]
            total += sum(r * (c + 2 * math.ceil(c / 64)) for r, c in parts)
        else:
            total += 2 * values
    return total


def operations(folder, depth):
    """One decoded token: 2 per weight that it meets, 8 per element of KDA state, and attention."""
    total, used = 0, C["num_experts_per_token"] / C["num_experts"]
    for name, shape in tensors(folder):
        if "embed_tokens" in name or name.endswith("weight_scale"):
            continue
        values = math.prod(shape)
        if name.endswith("A_log"):
            values = LINEAR["num_heads"]
        total += 2 * (values * 2 * used if name.endswith("weight_packed") else values)
    dim = LINEAR["head_dim"]
    total += 8 * KDA_LAYERS * LINEAR["num_heads"] * dim * dim
    width = 2 * C["kv_lora_rank"] + C["qk_rope_head_dim"]
    return total + MLA_LAYERS * 2 * C["num_attention_heads"] * width * depth


class Speed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="trireme-speed-"))
        (cls.dir / "config.json").write_text(json.dumps(CONFIG))
        cls.model = cls.dir / "m"
        run("synth", cls.model, "--config", cls.dir / "config.json")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    def measure(self, *args):
        return json.loads(run("speed", self.model, "--json", "--read", "8M", "--reps", 2, *args).stdout)

    def test_bytes_and_operations(self):
        state = 2 * 4 * KDA_LAYERS * LINEAR["num_heads"] * (LINEAR["head_dim"] ** 2 + 9 * LINEAR["head_dim"])
        row = MLA_LAYERS * 4 * (C["kv_lora_rank"] + C["qk_rope_head_dim"])
        expert = 3 * 64 * 64 * 17 / 32
        for trunk in ("disk", "f32", "int8"):
            got = self.measure("--trunk", trunk, "--prefill", 0, "--decode", 2, "--depth", "0,9")
            cost, trunk_size = got["cost"], trunk_bytes(self.model, trunk)
            self.assertEqual(cost["trunk_bytes"], trunk_size, trunk)
            self.assertEqual((cost["expert_bytes"], cost["experts_per_token"]), (expert, 16))
            self.assertEqual((cost["state_bytes"], cost["mla_bytes_per_cached_token"]), (state, row))
            for r, depth in zip(got["rows"], (0, 9)):
                each = cost["trunk_bytes"] + 16 * expert + state
                self.assertAlmostEqual(r["bytes"], 2 * each + (2 * depth + 3) * row, delta=1)
                want = operations(self.model, depth) + operations(self.model, depth + 1)
                self.assertAlmostEqual(r["operations"], want, delta=0.01 * want)
                self.assertEqual(r["distinct_experts"], 16)

    def test_batch_shares_experts(self):
        got = self.measure("--prefill", 0, "--decode", 2, "--batch", "1,8")
        one, eight = got["rows"]
        self.assertGreater(eight["distinct_experts"], 16)
        self.assertLessEqual(eight["distinct_experts"], MOE_LAYERS * 16)
        self.assertAlmostEqual(eight["expected_distinct_experts"], 4 * 16 * (1 - (1 - 4 / 16) ** 8), places=6)
        self.assertLess(eight["bytes"], 8 * one["bytes"])

    def test_rows_agree_with_themselves(self):
        got = self.measure("--prefill", "5,70", "--chunk", 32, "--decode", 3, "--depth", "0,40", "--batch", "1,2")
        self.assertEqual([(r["what"], r["tokens"], r["batch"], r["depth"]) for r in got["rows"]],
                         [(w, n, b, d) for d in (0, 40) for w, n, b in (("prefill", 5, 1), ("prefill", 70, 1),
                                                                      ("decode", 3, 1), ("decode", 3, 2))])
        for r in got["rows"]:
            self.assertTrue(0 < r["tokens_per_s_least"] <= r["tokens_per_s"] <= r["tokens_per_s_most"])
            seconds = r["tokens"] * (r["batch"] if r["what"] == "decode" else 1) / r["tokens_per_s"]
            parts = sum(r["seconds_by_part"].values())      # a mean over repetitions; the other a median of two
            self.assertTrue(0.5 * seconds < parts < 1.5 * seconds, (r, parts))
            for part in ("KDA attention", "MLA attention", "routed experts", "router", "dense MLP", "lm_head"):
                self.assertGreater(r["seconds_by_part"][part], 0, part)
            peak = max(p["operations_per_s"] for p in got["peaks"] if p["kind"] == "int8")
            reading, computing = r["bytes"] / r["read_bytes_per_s"], r["operations"] / peak
            self.assertAlmostEqual(r["limit_percent"], 100 * max(reading, computing) / seconds, delta=0.01)
            self.assertEqual(r["limited_by"], "reading" if reading >= computing else "arithmetic")
        self.assertTrue(got["peaks"] and all(p["operations_per_s"] > 1e8 for p in got["peaks"]))
        self.assertGreater(got["read_bytes_per_s"], 1e8)

    def test_filled_depth(self):
        one, deep = self.measure("--prefill", 0, "--decode", 2, "--depth", "0,900", "--fill")["rows"]
        row = MLA_LAYERS * 4 * (C["kv_lora_rank"] + C["qk_rope_head_dim"])
        self.assertAlmostEqual(deep["bytes"] - one["bytes"], 2 * 900 * row, delta=1)

    def test_cache_formats(self):
        row = MLA_LAYERS * (C["kv_lora_rank"] + C["qk_rope_head_dim"])
        for cache, width in (("f32", 4), ("bf16", 2), ("fp8", 1)):
            got = self.measure("--prefill", 0, "--decode", 1, "--cache", cache)
            self.assertEqual(got["cost"]["mla_bytes_per_cached_token"], row * width)

    def test_kda_state_formats(self):
        layers, heads, dim, taps = len(LINEAR["kda_layers"]), LINEAR["num_heads"], LINEAR["head_dim"], \
            LINEAR["short_conv_kernel_size"]
        values, tails = heads * dim * dim, 3 * (taps - 1) * heads * dim
        for kept, width in (("f32", 4), ("bf16", 2)):
            got = self.measure("--prefill", 0, "--decode", 1, "--kda-state", kept)
            self.assertEqual(got["kda_state"], kept.upper())
            self.assertEqual(got["cost"]["state_bytes"], 2 * layers * (values * width + tails * 4))

    def test_text(self):
        out = run("speed", self.model, "--read", "4M", "--reps", 1, "--prefill", 8, "--decode", 1).stdout
        self.assertTrue(re.search(r"^prefill 8 .* % of ", out, re.M), out)
        self.assertTrue(re.search(r"^routed experts ", out, re.M))
        out = run("speed", self.model, "--no-limits", "--reps", 1, "--prefill", 8, "--decode", 0).stdout
        self.assertNotIn("% of reading", out)

    def test_numa(self):
        """One node is enough to interleave over, where the kernel has nodes and allows the call."""
        args = ("--prefill", 0, "--decode", 1)
        self.assertFalse(self.measure(*args, "--numa", "off")["numa"]["interleaved"])
        done = run("speed", self.model, "--json", "--no-limits", "--reps", 1, *args, "--numa", "interleave")
        got = json.loads(done.stdout)["numa"]
        if got["interleaved"]:
            self.assertIn("memory interleaved over ", got["why"])
        else:
            self.assertIn(got["why"], done.stderr)
        self.assertIn("--numa x: one of auto, interleave, off", run("speed", self.model, "--numa", "x", code=2).stderr)

    def test_refusals(self):
        for args, want in ((["--prefill", "0", "--decode", "0"], "nothing to measure"), (["--prefill", "x"], "--prefill x"),
                           (["--batch", "0,1"], "--batch"), (["--batch", "0"], "1 or more"),
                           (["--batch", "513"], "above --chunk 512"), (["--reps", "0"], "--reps"), (["--read", "1K"], "--read"),
                           (["--prefill", ",".join("1" * 17)], "at most 16"), (["--batch", "99", "--chunk", "64"], "--chunk")):
            self.assertIn(want, run("speed", self.model, *args, code=2).stderr)
        done = run("speed", self.model, "--read", "99999T", "--prefill", "4", "--decode", "0", code=1)
        self.assertIn("a smaller --read", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        run("speed", self.model, "--batch", "512", "--prefill", "0", "--decode", "1", "--reps", "1", "--no-limits")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
