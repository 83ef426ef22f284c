#!/usr/bin/env python3
"""A K3 checkpoint folder as one GGUF file (arch kimi-k3), so that llama.cpp runs the same weights.

usage: export_gguf.py MODEL OUT.gguf [--trunk q8_0|f32] [--experts mxfp4|f32]

MXFP4 experts keep their codes and scales: only the order of nibbles inside a block changes. The trunk
becomes Q8_0 (32 values, one f16 scale) or float32; with Q8_0 the two per-head halves of kv_b stay BF16, because
llama.cpp (ggml 0.25.3) on a CPU with AMX takes Q8_0 and F16 matrices into a buffer whose only product does not
know the permuted queries of attn_k_b, and aborts when it makes the graph. Tensors are made one at a time; memory stays small.
The tokenizer inside is a dummy with the right number of ids: runs are by token ids.
"""
import argparse
import json
import mmap
import pathlib
import struct

import numpy as np

F32, Q8_0, BF16, MXFP4 = 0, 8, 30, 39      # ggml's numbers of formats
BLOCK, ALIGN = 32, 32
NEVER_QUANTISED = ("router", "conv", "vector")
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6], np.float32)


class Checkpoint:
    """Shards mapped; a tensor is a view until it is converted."""

    def __init__(self, folder):
        self.at = {}
        for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
            with open(path, "rb") as f:
                size = struct.unpack("<Q", f.read(8))[0]
                head = json.loads(f.read(size))
                data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            for name, t in head.items():
                if name != "__metadata__":
                    self.at[name.removeprefix("language_model.")] = (data, 8 + size + t["data_offsets"][0], t)

    def __contains__(self, name):
        return name in self.at

    def raw(self, name):
        data, offset, t = self.at[name]
        kind = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "U8": "u1"}[t["dtype"]]
        count = int(np.prod(t["shape"], dtype=np.int64))
        return np.frombuffer(data, kind, count, offset).reshape(t["shape"]), t["dtype"]

    def f32(self, name):
        values, dtype = self.raw(name)
        if dtype == "BF16":
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32)


def to_q8_0(a):
    blocks = np.ascontiguousarray(a, np.float32).reshape(-1, BLOCK)
    scale = np.abs(blocks).max(axis=1) / 127
    codes = np.rint(blocks / np.where(scale > 0, scale, 1)[:, None]).astype(np.int8)
    out = np.empty((len(blocks), 2 + BLOCK), np.uint8)
    out[:, :2] = scale.astype("<f2").view(np.uint8).reshape(-1, 2)
    out[:, 2:] = codes.view(np.uint8)
    return out.tobytes()


def to_bf16(a):
    """Exact for what was BF16 in the checkpoint."""
    return (np.ascontiguousarray(a, np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()


def unpack(packed):
    """Codes [rows][cols]: the low nibble is the even column."""
    codes = np.empty((packed.shape[0], packed.shape[1] * 2), np.uint8)
    codes[:, 0::2], codes[:, 1::2] = packed & 15, packed >> 4
    return codes


def to_mxfp4(packed, scale):
    """ggml's block: the scale, then 16 bytes with values 0..15 low and 16..31 high."""
    codes = unpack(packed).reshape(packed.shape[0], -1, BLOCK)
    out = np.empty((*codes.shape[:2], 17), np.uint8)
    out[..., 0] = scale
    out[..., 1:] = codes[..., :16] | codes[..., 16:] << 4
    return out.tobytes()


def decode_mxfp4(packed, scale):
    factor = np.exp2(scale.astype(np.float32) - 127)
    return E2M1[unpack(packed)] * np.repeat(factor, BLOCK, axis=1)


class Exporter:
    def __init__(self, folder, trunk, experts):
        config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        self.c = config.get("text_config", config)
        self.linear = self.c["linear_attn_config"]
        self.ckpt = Checkpoint(folder)
        self.trunk, self.experts = trunk, experts
        self.items = []                 # (name, dims innermost first, format, bytes, maker)

    def add(self, name, shape, make, kind="matrix"):
        dims = list(shape)[::-1]
        values = int(np.prod(dims))
        if self.trunk == "q8_0" and kind == "per head":
            self.items.append((name, dims, BF16, values * 2, lambda: to_bf16(make())))
            return
        if self.trunk == "q8_0" and kind not in NEVER_QUANTISED and len(dims) > 1 and dims[0] % BLOCK == 0:
            self.items.append((name, dims, Q8_0, values // BLOCK * 34, lambda: to_q8_0(make())))
        else:
            self.items.append((name, dims, F32, values * 4,
                               lambda: np.ascontiguousarray(make(), "<f4").tobytes()))

    def copy(self, name, source, kind="matrix"):
        shape = [n for n in self.ckpt.at[source][2]["shape"]]
        if kind == "vector":
            shape = [int(np.prod(shape))]
        self.add(name, shape, lambda: self.ckpt.f32(source).reshape(shape), kind)

    def score(self, name, prefix):
        """AttnRes: norm weight times projection weight."""
        self.add(name, [self.c["hidden_size"]], lambda: self.ckpt.f32(prefix + "_norm.weight").ravel()
                 * self.ckpt.f32(prefix + "_proj.weight").ravel(), "vector")

    def kda(self, out, src):
        for ch in "qkv":
            self.copy(f"{out}attn_{ch}.weight", f"{src}{ch}_proj.weight")
            source = f"{src}{ch}_conv1d.weight"
            shape = self.ckpt.at[source][2]["shape"]
            self.add(f"{out}ssm_conv1d_{ch}.weight", (1, shape[0], 1, shape[-1]),
                     lambda s=source: self.ckpt.f32(s), "conv")
        for gguf, name in (("ssm_f_a", "f_a_proj"), ("ssm_f_b", "f_b_proj"), ("ssm_beta", "b_proj"),
                           ("ssm_g", "g_proj"), ("attn_output", "o_proj")):
            self.copy(f"{out}{gguf}.weight", f"{src}{name}.weight")
        self.copy(f"{out}ssm_norm.weight", f"{src}o_norm.weight", "vector")
        self.copy(f"{out}ssm_dt.bias", f"{src}dt_bias", "vector")
        heads = self.linear["num_heads"]
        self.add(f"{out}ssm_a", [heads], lambda: -np.exp(self.ckpt.f32(f"{src}A_log").ravel()[:heads]), "vector")

    def mla(self, out, src):
        c = self.c
        for gguf, name in (("attn_q_a", "q_a_proj"), ("attn_q_b", "q_b_proj"), ("attn_kv_a_mqa", "kv_a_proj_with_mqa"),
                           ("attn_gate", "g_proj"), ("attn_output", "o_proj")):
            self.copy(f"{out}{gguf}.weight", f"{src}{name}.weight")
        self.copy(f"{out}attn_q_a_norm.weight", f"{src}q_a_layernorm.weight", "vector")
        self.copy(f"{out}attn_kv_a_norm.weight", f"{src}kv_a_layernorm.weight", "vector")
        heads, nope, v, rank = c["num_attention_heads"], c["qk_nope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]

        def both():
            return self.ckpt.f32(f"{src}kv_b_proj.weight").reshape(heads, nope + v, rank)
        self.add(f"{out}attn_k_b.weight", (heads, rank, nope), lambda: both()[:, :nope].transpose(0, 2, 1), "per head")
        self.add(f"{out}attn_v_b.weight", (heads, v, rank), lambda: both()[:, nope:], "per head")

    def routed(self, out, src):
        c = self.c
        for gguf, which in (("gate", "w1"), ("down", "w2"), ("up", "w3")):
            names = [f"{src}experts.{e}.{which}.weight" for e in range(c["num_experts"])]
            packed = names[0] + "_packed" in self.ckpt
            rows, cols = self.ckpt.at[names[0] + ("_packed" if packed else "")][2]["shape"]
            dims = [cols * 2 if packed else cols, rows, len(names)]

            def one(name, convert):
                return convert(self.ckpt.raw(name + "_packed")[0], self.ckpt.raw(name + "_scale")[0])
            if packed and self.experts == "mxfp4":
                self.items.append((f"{out}ffn_{gguf}_exps.weight", dims, MXFP4, int(np.prod(dims)) // BLOCK * 17,
                                   lambda n=names: b"".join(one(x, to_mxfp4) for x in n)))
            else:
                self.items.append((f"{out}ffn_{gguf}_exps.weight", dims, F32, int(np.prod(dims)) * 4, lambda n=names:
                                   b"".join((one(x, decode_mxfp4) if packed else self.ckpt.f32(x)).tobytes() for x in n)))

    def ffn(self, out, src, dense):
        if dense:
            for part in ("gate", "up", "down"):
                self.copy(f"{out}ffn_{part}.weight", f"{src}mlp.{part}_proj.weight")
            return
        src += "block_sparse_moe."
        self.copy(f"{out}ffn_gate_inp.weight", f"{src}gate.weight", "router")
        self.copy(f"{out}exp_probs_b.bias", f"{src}gate.e_score_correction_bias", "vector")
        self.copy(f"{out}ffn_routed_down.weight", f"{src}routed_expert_down_proj.weight")
        self.copy(f"{out}ffn_routed_up.weight", f"{src}routed_expert_up_proj.weight")
        self.copy(f"{out}ffn_routed_norm.weight", f"{src}routed_expert_norm.weight", "vector")
        for part in ("gate", "up", "down"):
            self.copy(f"{out}ffn_{part}_shexp.weight", f"{src}shared_experts.{part}_proj.weight")
        self.routed(out, src)

    def collect(self):
        self.copy("token_embd.weight", "model.embed_tokens.weight")
        self.copy("output_norm.weight", "model.norm.weight", "vector")
        tied = "lm_head.weight" not in self.ckpt
        self.copy("output.weight", "model.embed_tokens.weight" if tied else "lm_head.weight")
        self.score("output_res_score.weight", "model.output_attn_res")
        for i in range(self.c["num_hidden_layers"]):
            src, out = f"model.layers.{i}.", f"blk.{i}."
            self.copy(out + "attn_norm.weight", src + "input_layernorm.weight", "vector")
            self.copy(out + "ffn_norm.weight", src + "post_attention_layernorm.weight", "vector")
            self.score(out + "attn_res_score.weight", src + "self_attention_res")
            self.score(out + "ffn_res_score.weight", src + "mlp_res")
            mixer = self.kda if i + 1 in self.linear["kda_layers"] else self.mla
            mixer(out, src + "self_attn.")
            self.ffn(out, src, i < self.c.get("first_k_dense_replace", 0))

    def metadata(self):
        c, la, layers = self.c, self.linear, self.c["num_hidden_layers"]
        full = [int(i + 1 not in la["kda_layers"]) for i in range(layers)]
        arch = {
            "vocab_size": c["vocab_size"], "context_length": c.get("max_position_embeddings", 131072),
            "embedding_length": c["hidden_size"], "block_count": layers, "feed_forward_length": c["intermediate_size"],
            "attention.head_count": c["num_attention_heads"], "attention.head_count_kv": full,
            "attention.layer_norm_rms_epsilon": float(c["rms_norm_eps"]),
            "attention.q_lora_rank": c["q_lora_rank"], "attention.kv_lora_rank": c["kv_lora_rank"],
            "attention.key_length": c["kv_lora_rank"] + c["qk_rope_head_dim"], "attention.value_length": c["kv_lora_rank"],
            "attention.key_length_mla": c["qk_nope_head_dim"] + c["qk_rope_head_dim"],
            "attention.value_length_mla": c["v_head_dim"], "rope.dimension_count": c["qk_rope_head_dim"],
            "ssm.conv_kernel": la["short_conv_kernel_size"], "kda.head_dim": la["head_dim"],
            "kda.gate_lower_bound": float(la["gate_lower_bound"]),
            "expert_count": c["num_experts"], "expert_used_count": c["num_experts_per_token"],
            "expert_feed_forward_length": c["moe_intermediate_size"], "expert_shared_count": c["num_shared_experts"],
            "leading_dense_block_count": c.get("first_k_dense_replace", 0),
            "expert_weights_scale": float(c.get("routed_scaling_factor", 1)),
            "expert_weights_norm": bool(c.get("moe_renormalize", True)), "expert_gating_func": 2,
            "expert_latent_length": c["routed_expert_hidden_size"],
            "activation.situ_beta": float(c["activation_situ_beta"]),
            "activation.situ_linear_beta": float(c["activation_situ_linear_beta"]),
            "attn_res.block_size": c["attn_res_block_size"]}
        data = {"general.architecture": "kimi-k3", "general.name": "peer"}
        data |= {"kimi-k3." + k: v for k, v in arch.items()}
        # A byte-level vocabulary llama.cpp accepts: 256 printable stand-ins for bytes, then filler.
        printable = [b for b in range(256) if 33 <= b < 127 or 161 <= b < 173 or 174 <= b]
        rest = iter(range(256, 512))
        tokens = [chr(b) if b in printable else chr(next(rest)) for b in range(256)]
        tokens += [f"<filler{i}>" for i in range(256, c["vocab_size"])]
        data |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
                 "tokenizer.ggml.token_type": [1] * 256 + [3] * (c["vocab_size"] - 256),
                 "tokenizer.ggml.merges": ["a b"], "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1}
        return data


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def metadata_value(value):
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)


def write(path, exporter):
    exporter.collect()
    meta = exporter.metadata()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(exporter.items), len(meta))
    head += b"".join(text(k) + metadata_value(v) for k, v in meta.items())
    at = 0
    for name, dims, kind, size, _ in exporter.items:
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, at)
        at += -(-size // ALIGN) * ALIGN
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGN))
        for name, _, _, size, make in exporter.items:
            data = make()
            if len(data) != size:
                raise SystemExit(f"export_gguf: {name}: {len(data)} bytes, {size} expected")
            f.write(data + b"\0" * (-size % ALIGN))
    return at


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("model")
    p.add_argument("out")
    p.add_argument("--trunk", choices=("q8_0", "f32"), default="q8_0")
    p.add_argument("--experts", choices=("mxfp4", "f32"), default="mxfp4")
    a = p.parse_args()
    size = write(a.out, Exporter(a.model, a.trunk, a.experts))
    print(f"{a.out}: {size / 1e6:.1f} MB, trunk {a.trunk}, experts {a.experts}")


if __name__ == "__main__":
    main()
