#!/usr/bin/env python3
"""A small checkpoint with random weights in the K3 layout, made with the standard library alone.

    make_tiny.py OUT [key=value ...]        keys of DEFAULTS; None, true and false are understood

As a module: write(folder, **options); or tensors(options) / config(options) / shard(tensors) for
tests that want to bend one of them. Options are merged over DEFAULTS by options(). Same seed, same
bytes. Weights are scaled so that activations stay near 1.
"""
import json
import os
import random
import struct
import sys
from typing import NamedTuple

DEFAULTS = dict(
    seed=1, vocab=96, hidden=64, layers=4, inter=96, dense=1,
    heads=2, q_rank=32, kv_rank=32, nope=16, rope=8, v_dim=16, mla_gate=True, mla_layers=None,
    kda_heads=2, kda_dim=16, conv=4, full_gate=True, gate_bound=-5.0,
    experts=4, topk=2, moe_inter=32, latent=32, latent_norm=True, shared=1, groups=1, topk_groups=1,
    scale=1.5, renormalize=True, block=2, act="situ", tied=False, context=4096, bos=0, eos=1,
    trunk="BF16",        # dtype of trunk weights: BF16, F32, F16
    expert_dtype="MXFP4",  # or BF16, F32, F16: plain experts
    prefix=True,         # "language_model." before text names
    outer=True,          # kimi_k3 with text_config; False: a bare kimi_linear config
    quantized=True,      # quantization_config present (only with MXFP4 experts)
    shards=2, digits=(5, 6), index=True, shuffle=False,  # shuffle: tensors in random order
)


class Tensor(NamedTuple):
    name: str
    dtype: str
    shape: list
    data: bytes


VALUE_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "U8": 1}


def options(**given):
    unknown = set(given) - set(DEFAULTS)
    if unknown:
        raise TypeError(f"make_tiny: unknown option {sorted(unknown)[0]}")
    o = dict(DEFAULTS, **given)
    if o["mla_layers"] is None:  # 1-based, as in the config: every fourth and the last
        o["mla_layers"] = [n for n in range(1, o["layers"] + 1) if n % 4 == 0 or n == o["layers"]]
    return o


def pack(values, dtype):
    """float values as little-endian bytes of a dtype; BF16 rounds to nearest even."""
    if dtype == "F32":
        return struct.pack(f"<{len(values)}f", *values)
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    bits = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return struct.pack(f"<{len(values)}H", *((b + 0x7FFF + ((b >> 16) & 1)) >> 16 for b in bits))


class Builder:
    """Collects tensors; a table of Gaussian values is drawn from, which is much faster than gauss."""

    def __init__(self, o):
        self.o, self.r, self.out = o, random.Random(o["seed"]), []
        self.table = [self.r.gauss(0, 1) for _ in range(4096)]

    def add(self, name, shape, values, dtype=None):
        dtype = dtype or self.o["trunk"]
        prefix = "language_model." if self.o["prefix"] else ""
        self.out.append(Tensor(prefix + name, dtype, list(shape), pack(values, dtype)))

    def normal(self, n, gain=1.0, mean=0.0):
        return [mean + gain * v for v in self.r.choices(self.table, k=n)]

    def linear(self, name, rows, cols, gain=1.0, dtype=None):
        self.add(name, [rows, cols], self.normal(rows * cols, gain / cols ** 0.5), dtype)

    def norm(self, name, n, dtype=None):
        self.add(name, [n], self.normal(n, 0.2, 1.0), dtype)

    def packed(self, name, rows, cols, gain):
        """MXFP4: random nibbles and one exponent that gives them about the wanted spread."""
        prefix = "language_model." if self.o["prefix"] else ""
        exponent = 127
        while 2.7 * 2.0 ** (exponent - 127) > gain / cols ** 0.5:  # 2.7: spread of random codes
            exponent -= 1
        self.out.append(Tensor(prefix + name + "_packed", "U8", [rows, cols // 2],
                               self.r.randbytes(rows * cols // 2)))
        self.out.append(Tensor(prefix + name + "_scale", "U8", [rows, cols // 32],
                               bytes(self.r.choices([exponent, exponent + 1], k=rows * cols // 32))))

    def glu(self, name, inter, width):
        self.linear(name + "gate_proj.weight", inter, width, 2)
        self.linear(name + "up_proj.weight", inter, width, 2)
        self.linear(name + "down_proj.weight", width, inter)

    def kda(self, a):
        o, hidden, p = self.o, self.o["hidden"], self.o["kda_heads"] * self.o["kda_dim"]
        for x in "qkv":
            self.linear(a + f"{x}_proj.weight", p, hidden)
            self.add(a + f"{x}_conv1d.weight", [p, 1, o["conv"]], self.normal(p * o["conv"], 0.6), "F32")
        self.linear(a + "f_a_proj.weight", o["kda_dim"], hidden)
        self.linear(a + "f_b_proj.weight", p, o["kda_dim"])
        self.linear(a + "b_proj.weight", o["kda_heads"], hidden)
        if o["full_gate"]:
            self.linear(a + "g_proj.weight", p, hidden)
        else:
            self.linear(a + "g_a_proj.weight", o["kda_dim"], hidden)
            self.linear(a + "g_b_proj.weight", p, o["kda_dim"])
        padding = max(0, o["kda_dim"] - o["kda_heads"])
        a_log = [self.r.uniform(-1, 1) for _ in range(o["kda_heads"])] + [0.0] * padding
        self.add(a + "A_log", [len(a_log)], a_log, "F32")
        self.add(a + "dt_bias", [p], self.normal(p, 1, -1.5), "F32")
        self.norm(a + "o_norm.weight", o["kda_dim"], "F32")
        self.linear(a + "o_proj.weight", hidden, p)

    def mla(self, a):
        o, hidden, query = self.o, self.o["hidden"], self.o["heads"] * (self.o["nope"] + self.o["rope"])
        if o["q_rank"]:
            self.linear(a + "q_a_proj.weight", o["q_rank"], hidden)
            self.norm(a + "q_a_layernorm.weight", o["q_rank"])
            self.linear(a + "q_b_proj.weight", query, o["q_rank"], 2)
        else:
            self.linear(a + "q_proj.weight", query, hidden, 2)
        self.linear(a + "kv_a_proj_with_mqa.weight", o["kv_rank"] + o["rope"], hidden)
        self.norm(a + "kv_a_layernorm.weight", o["kv_rank"])
        self.linear(a + "kv_b_proj.weight", o["heads"] * (o["nope"] + o["v_dim"]), o["kv_rank"], 1.5)
        if o["mla_gate"]:
            self.linear(a + "g_proj.weight", o["heads"] * o["v_dim"], hidden)
        self.linear(a + "o_proj.weight", hidden, o["heads"] * o["v_dim"])

    def moe(self, m):
        o, hidden = self.o, self.o["hidden"]
        width = o["latent"] or hidden
        self.linear(m + "gate.weight", o["experts"], hidden, 2)
        self.add(m + "gate.e_score_correction_bias", [o["experts"]], self.normal(o["experts"], 0.1), "F32")
        if o["latent"]:
            self.linear(m + "routed_expert_down_proj.weight", o["latent"], hidden)
            if o["latent_norm"]:
                self.norm(m + "routed_expert_norm.weight", o["latent"])
            self.linear(m + "routed_expert_up_proj.weight", hidden, o["latent"])
        if o["shared"]:
            self.glu(m + "shared_experts.", o["moe_inter"] * o["shared"], hidden)
        for e in range(o["experts"]):
            for w, rows, cols in (("w1", o["moe_inter"], width), ("w2", width, o["moe_inter"]),
                                  ("w3", o["moe_inter"], width)):
                name, gain = m + f"experts.{e}.{w}.weight", 1.0 if w == "w2" else 2.0
                if o["expert_dtype"] == "MXFP4":
                    self.packed(name, rows, cols, gain)
                else:
                    self.linear(name, rows, cols, gain, o["expert_dtype"])

    def layer(self, i):
        o, n = self.o, f"model.layers.{i}."
        self.norm(n + "input_layernorm.weight", o["hidden"])
        self.norm(n + "post_attention_layernorm.weight", o["hidden"])
        for s in ("self_attention_res", "mlp_res") if o["block"] else ():
            self.norm(n + s + "_norm.weight", o["hidden"])
            self.linear(n + s + "_proj.weight", 1, o["hidden"], 2)
        (self.mla if i + 1 in o["mla_layers"] else self.kda)(n + "self_attn.")
        if i < o["dense"] or not o["experts"]:
            self.glu(n + "mlp.", o["inter"], o["hidden"])
        else:
            self.moe(n + "block_sparse_moe.")

    def ends(self):
        o = self.o
        self.add("model.embed_tokens.weight", [o["vocab"], o["hidden"]], self.normal(o["vocab"] * o["hidden"]))
        self.norm("model.norm.weight", o["hidden"])
        if o["block"]:
            self.norm("model.output_attn_res_norm.weight", o["hidden"])
            self.linear("model.output_attn_res_proj.weight", 1, o["hidden"], 2)
        if not o["tied"]:
            self.linear("lm_head.weight", o["vocab"], o["hidden"], 3)


def tensors(o):
    """Every tensor, layer by layer and then the model's ends, as the release's shards hold them."""
    b = Builder(o)
    for i in range(o["layers"]):
        b.layer(i)
    b.ends()
    if o["shuffle"]:
        b.r.shuffle(b.out)
    return b.out


def config(o):
    kda = [n for n in range(1, o["layers"] + 1) if n not in o["mla_layers"]]
    text = dict(
        model_type="kimi_linear", vocab_size=o["vocab"], hidden_size=o["hidden"],
        num_hidden_layers=o["layers"], intermediate_size=o["inter"], num_attention_heads=o["heads"],
        num_key_value_heads=o["heads"], q_lora_rank=o["q_rank"], kv_lora_rank=o["kv_rank"],
        qk_nope_head_dim=o["nope"], qk_rope_head_dim=o["rope"], v_head_dim=o["v_dim"],
        mla_use_nope=True, mla_use_output_gate=o["mla_gate"], hidden_act=o["act"],
        activation_situ_beta=4.0, activation_situ_linear_beta=25.0, rms_norm_eps=1e-5,
        first_k_dense_replace=o["dense"], moe_layer_freq=1, num_experts=o["experts"],
        num_experts_per_token=o["topk"], num_shared_experts=o["shared"],
        moe_intermediate_size=o["moe_inter"], routed_expert_hidden_size=o["latent"],
        latent_moe_use_norm=o["latent_norm"], moe_renormalize=o["renormalize"],
        moe_router_activation_func="sigmoid", routed_scaling_factor=o["scale"],
        use_grouped_topk=True, num_expert_group=o["groups"], topk_group=o["topk_groups"],
        attn_res_block_size=o["block"], tie_word_embeddings=o["tied"],
        max_position_embeddings=o["context"],
        linear_attn_config=dict(num_heads=o["kda_heads"], head_dim=o["kda_dim"],
                                short_conv_kernel_size=o["conv"], use_full_rank_gate=o["full_gate"],
                                gate_lower_bound=o["gate_bound"], full_attn_layers=o["mla_layers"],
                                kda_layers=kda))
    quant = dict(quant_method="compressed-tensors", format="mxfp4-pack-quantized")
    if o["expert_dtype"] == "MXFP4" and o["quantized"]:
        text["quantization_config"] = quant
    ids = dict(bos_token_id=o["bos"], eos_token_id=o["eos"])
    return dict(model_type="kimi_k3", text_config=text, **ids) if o["outer"] else dict(text, **ids)


def header(parts):
    """The header object of a shard that holds these tensors one after the other."""
    out, at = {}, 0
    for t in parts:
        out[t.name] = dict(dtype=t.dtype, shape=t.shape, data_offsets=[at, at + len(t.data)])
        at += len(t.data)
    return out


def frame(text, data):
    """A safetensors file: length, header text padded with spaces to 8 bytes, data."""
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def shard(parts):
    return frame(json.dumps(header(parts)).encode(), b"".join(t.data for t in parts))


def shard_names(o):
    if o["shards"] == 1 and not o["index"]:
        return ["model.safetensors"]
    a, b = o["digits"]
    return [f"model-{i + 1:0{a}d}-of-{o['shards']:0{b}d}.safetensors" for i in range(o["shards"])]


def split(o, parts):
    """[(file name, its tensors)]: about equal counts, so that an expert may be cut between files."""
    names, per = shard_names(o), -(-len(parts) // o["shards"])
    return [(name, parts[i * per:(i + 1) * per]) for i, name in enumerate(names)]


def write(folder, **given):
    """Writes config.json, the shards and their index to `folder`; returns the merged options."""
    o = options(**given)
    os.makedirs(folder, exist_ok=True)
    where, total = {}, 0
    for name, parts in split(o, tensors(o)):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(shard(parts))
        where.update({t.name: name for t in parts})
        total += sum(len(t.data) for t in parts)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config(o), f, indent=1)
    if o["index"]:
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
            json.dump(dict(metadata=dict(total_size=total), weight_map=where), f, indent=1)
    return o


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    literal = {"None": None, "true": True, "false": False}
    given = {}
    for arg in sys.argv[2:]:
        key, _, value = arg.partition("=")
        kind = type(DEFAULTS.get(key))
        given[key] = literal[value] if value in literal else value if kind is str else json.loads(value)
    write(sys.argv[1], **given)


if __name__ == "__main__":
    main()
