"""Write a trained checkpoint in the published Hugging Face layout.

    python3 export.py RUN OUT [--raw]     RUN: the folder train.py wrote; OUT: e.g. models/nano

Routed experts become MXFP4 (the rounding they were trained with), the small recurrent tensors F32, the rest BF16.
The averaged weights are taken unless --raw is given.
"""

import argparse
import json
import os
import shutil
import struct

import torch

import model as M
from tokenizer import Tokenizer

F32 = ("conv1d.weight", "A_log", "dt_bias", "o_norm.weight", "e_score_correction_bias")


def mxfp4_pack(w):
    """[rows, cols] -> (packed U8 [rows, cols/2] low nibble first, E8M0 scales [rows, cols/32])."""
    b = w.double().reshape(w.shape[0], -1, 32)
    amax = b.abs().amax(-1).clamp_min(1e-30)
    e = (torch.frexp(amax)[1] - 3).clamp(-127, 127)
    x = (b / torch.ldexp(torch.ones_like(amax), e)[..., None]).clamp(-6, 6)
    a = x.abs()
    step = torch.where(a < 2, 0.5, torch.where(a < 4, 1.0, 2.0))
    q = (x / step).round().abs() * step  # the same rounding as model.mxfp4_round
    code = torch.bucketize(q, torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=q.dtype))
    code = (code + 8 * ((x < 0) & (q > 0))).to(torch.uint8).reshape(w.shape)
    return code[:, 0::2] | (code[:, 1::2] << 4), (e + 127).to(torch.uint8)


def tensors(net):
    """(name, dtype, shape, bytes) in file order."""
    pad = net.c["linear_attn_config"]["head_dim"]
    values = dict(net.named_parameters()) | dict(net.named_buffers())
    for name, p in values.items():
        name, p = "language_model." + name, p.detach()
        if name.rsplit(".", 1)[-1] in ("w1", "w2", "w3"):
            continue
        if name.endswith("A_log"):
            p = torch.nn.functional.pad(p, (0, max(0, pad - p.numel())))
        if name.endswith(F32):
            yield name, "F32", list(p.shape), p.float().contiguous().numpy().tobytes()
        else:
            yield (
                name,
                "BF16",
                list(p.shape),
                p.bfloat16().contiguous().view(torch.int16).numpy().tobytes(),
            )
    for i, layer in enumerate(net.model.layers):
        if not hasattr(layer, "block_sparse_moe"):
            continue
        m = layer.block_sparse_moe
        for e in range(m.E):
            for which in ("w1", "w2", "w3"):
                n = f"language_model.model.layers.{i}.block_sparse_moe.experts.{e}.{which}.weight_"
                packed, scale = mxfp4_pack(getattr(m, which)[e].detach())
                for kind, t in (("packed", packed), ("scale", scale)):
                    yield n + kind, "U8", list(t.shape), t.contiguous().numpy().tobytes()


def write_shard(path, part):
    head, at = {}, 0
    for name, dtype, shape, raw in part:
        head[name] = dict(dtype=dtype, shape=shape, data_offsets=[at, at + len(raw)])
        at += len(raw)
    h = json.dumps(head, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + b"".join(raw for *_, raw in part))
    return at


def write_json(path, value, indent=1):
    with open(path, "w") as f:
        json.dump(value, f, indent=indent)
        f.write("\n")


def checkpoint(net, out):
    """Two shards: layers 0..2, then the rest with the model level tensors."""
    parts = ([], [])
    for t in tensors(net):
        layer = t[0].split("layers.")[1].split(".")[0] if "layers." in t[0] else None
        parts[0 if layer is not None and int(layer) < len(net.model.layers) // 2 else 1].append(t)
    where, total = {}, 0
    for i, part in enumerate(parts, 1):
        file = f"model-{i:05d}-of-{len(parts):06d}.safetensors"
        # layer by layer, an expert's six tensors back to back
        part.sort(
            key=lambda t: (
                int(t[0].split("layers.")[1].split(".")[0]) if "layers." in t[0] else 1 << 20
            )
        )
        total += write_shard(os.path.join(out, file), part)
        where |= {t[0]: file for t in part}
    write_json(
        os.path.join(out, "model.safetensors.index.json"),
        dict(metadata=dict(total_size=total), weight_map=where),
        None,
    )


def configuration(net, tok):
    s = tok.special
    ids = dict(bos_token_id=s["[BOS]"], eos_token_id=s["<|end_of_msg|>"], pad_token_id=s["[PAD]"])
    quant = dict(
        quant_method="compressed-tensors",
        format="mxfp4-pack-quantized",
        quantization_status="compressed",
        kv_cache_scheme=None,
        global_compression_ratio=None,
        ignore=[
            "re:.*self_attn.*",
            "re:.*shared_experts.*",
            "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
            "re:.*lm_head.*",
        ],
        config_groups=dict(
            group_0=dict(
                targets=["Linear"],
                input_activations=None,
                output_activations=None,
                format="mxfp4-pack-quantized",
                weights=dict(
                    num_bits=4,
                    type="float",
                    strategy="group",
                    group_size=32,
                    symmetric=True,
                    dynamic=False,
                    scale_dtype="torch.uint8",
                    observer="minmax",
                    observer_kwargs={},
                    actorder=None,
                    block_structure=None,
                    zp_dtype=None,
                ),
            )
        ),
    )
    text = dict(model_type="kimi_linear", architectures=["KimiLinearForCausalLM"]) | net.c | ids
    return dict(
        architectures=["KimiK3ForConditionalGeneration"],
        model_type="kimi_k3",
        dtype="bfloat16",
        **ids,
        tie_word_embeddings=False,
        text_config=text | dict(quantization_config=quant),
    )


def load_run(run, raw=False):
    """(net, tokenizer) of a training folder."""
    tok = Tokenizer.load(run)
    net = M.K3(M.config(vocab_size=tok.size))
    s = torch.load(os.path.join(run, "checkpoint.pt"), weights_only=True)
    net.load_state_dict(s["model"])
    if not raw:
        with torch.no_grad():
            for n, p in net.named_parameters():
                p.copy_(s["average"][n])
    return net, tok


def load_export(folder, dtype=torch.float32):
    """(net, tokenizer) of an exported folder: the weights as any engine reads them."""
    tok = Tokenizer.load(folder)
    cfg = json.load(open(os.path.join(folder, "config.json")))["text_config"]
    net = M.K3({k: cfg[k] for k in M.config()}).to(dtype)
    values = {}
    for file in sorted(
        set(
            json.load(open(os.path.join(folder, "model.safetensors.index.json")))[
                "weight_map"
            ].values()
        )
    ):
        with open(os.path.join(folder, file), "rb") as f:
            n = struct.unpack("<Q", f.read(8))[0]
            head, data = json.loads(f.read(n)), f.read()
        for name, t in head.items():
            kind = dict(F32=torch.float32, BF16=torch.bfloat16, U8=torch.uint8)[t["dtype"]]
            lo, hi = t["data_offsets"]
            values[name.removeprefix("language_model.")] = torch.frombuffer(
                bytearray(data[lo:hi]), dtype=kind
            ).view(t["shape"])
    table = torch.tensor(
        [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64
    )
    with torch.no_grad():
        for name, p in (dict(net.named_parameters()) | dict(net.named_buffers())).items():
            if name in values:
                p.copy_(
                    values[name].reshape(-1)[: p.numel()].reshape(p.shape)
                )  # A_log loses its padding here
                continue
            base, which = name.rsplit(".", 1)
            for e in range(p.shape[0]):
                q = values[f"{base}.experts.{e}.{which}.weight_packed"].long()
                v = table[torch.stack([q & 15, q >> 4], -1)].reshape(p.shape[1:])
                s = values[f"{base}.experts.{e}.{which}.weight_scale"].double() - 127
                p[e].copy_(v * torch.exp2(s).repeat_interleave(32, 1))
    return net.eval(), tok


def main():
    a = argparse.ArgumentParser()
    a.add_argument("run")
    a.add_argument("out")
    a.add_argument("--raw", action="store_true")
    a = a.parse_args()
    net, tok = load_run(a.run, a.raw)
    os.makedirs(a.out, exist_ok=True)
    for f in ("tiktoken.model", "tokenizer_config.json"):
        shutil.copyfile(os.path.join(a.run, f), os.path.join(a.out, f))
    checkpoint(net, a.out)
    write_json(os.path.join(a.out, "config.json"), configuration(net, tok))
    print(
        M.counts(net),
        sum(os.path.getsize(os.path.join(a.out, f)) for f in os.listdir(a.out)),
        "bytes",
    )


if __name__ == "__main__":
    main()
