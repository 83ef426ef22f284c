#!/usr/bin/env python3
"""Checkpoints that lie. Each case takes a small valid one, changes one thing, and asks
`trireme info FOLDER --check`: exit code 1 and exactly one line on stderr that names the file and the
tensor or key. Under the sanitizers this also shows that no lie is believed far enough to hurt."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_tiny

TRIREME = os.environ["TRIREME"]
INDEX = "model.safetensors.index.json"
A, B = "model-00001-of-000002.safetensors", "model-00002-of-000002.safetensors"
L = "language_model."
GATE = L + "model.layers.0.mlp.gate_proj.weight"
NORM = L + "model.layers.0.input_layernorm.weight"
PACKED = L + "model.layers.1.block_sparse_moe.experts.0.w1.weight_packed"
SCALE = L + "model.layers.1.block_sparse_moe.experts.0.w1.weight_scale"


def short(name):
    return name.removeprefix(L)


class Model:
    """One copy of the base checkpoint, open for damage."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def path(self, name):
        return self.folder / name

    def read(self, name):
        return self.path(name).read_bytes()

    def write(self, name, data):
        self.path(name).write_bytes(data if isinstance(data, bytes) else data.encode())

    def header(self, name=A):
        raw = self.read(name)
        n = struct.unpack("<Q", raw[:8])[0]
        return json.loads(raw[8:8 + n]), raw[8 + n:]

    def reframe(self, header, data, name=A):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        self.write(name, make_tiny.frame(text, data))

    def tensor(self, name, **fields):
        """Changes fields of one tensor's header entry; None removes a field."""
        for file in (A, B):
            header, data = self.header(file)
            if name in header:
                for key, value in fields.items():
                    if value is None:
                        del header[name][key]
                    else:
                        header[name][key] = value
                self.reframe(header, data, file)
                return
        raise KeyError(name)

    def rebuild(self, change):
        """Lets `change` edit the list of tensors of both files, then writes files and index anew."""
        o = make_tiny.options()
        files = dict(make_tiny.split(o, make_tiny.tensors(o)))
        files = change(files) or files
        where = {}
        for file, parts in files.items():
            self.write(file, make_tiny.shard(parts))
            where.update({t.name: file for t in parts})
        self.write(INDEX, json.dumps({"weight_map": where}))

    def retensor(self, name, **fields):
        """Replaces dtype, shape or data of one tensor, honestly declared."""
        def change(files):
            for file, parts in files.items():
                files[file] = [t._replace(**fields) if t.name == name else t for t in parts]
        self.rebuild(change)

    def index(self, change):
        tree = json.loads(self.read(INDEX))
        self.write(INDEX, json.dumps(change(tree) or tree))

    def place(self, name, file):
        def change(tree):
            tree["weight_map"][name] = file
        self.index(change)

    def config(self, key, value):
        """key "text.hidden_size", "linear.kda_layers", "quant.format", or an outer key."""
        tree = json.loads(self.read("config.json"))
        where, _, leaf = key.rpartition(".")
        text = tree["text_config"]
        at = {"": tree, "text": text, "linear": text.get("linear_attn_config"),
              "quant": text.get("quantization_config"), "vision": tree.setdefault("vision_config", {})
              if where == "vision" else None}[where]
        if value is ABSENT:
            del at[leaf]
        else:
            at[leaf] = value
        self.write("config.json", json.dumps(tree))


ABSENT = object()


def swapped(header, first, second):
    """A header text in which key `first` is spelled as `second`: how to write a duplicate."""
    return json.dumps(header).replace(json.dumps(first), json.dumps(second)).encode()


def shift(m, name, by):
    header, data = m.header(A)
    begin, end = header[name]["data_offsets"]
    m.tensor(name, data_offsets=[begin + by, end + by])


def raw_header(m, edit):
    """Rewrites the header text of A by `edit`, without padding it anew."""
    raw = m.read(A)
    n = struct.unpack("<Q", raw[:8])[0]
    text = edit(raw[8:8 + n])
    m.write(A, struct.pack("<Q", len(text)) + text + raw[8 + n:])


def length(m, n):
    m.write(A, struct.pack("<Q", n) + m.read(A)[8:])


def with_header(m, edit):
    header, data = m.header(A)
    m.reframe(edit(header) or header, data)


def set_key(key, value):
    def edit(header):
        header[key] = value
    return edit


def drop(m, name):
    m.rebuild(lambda files: {f: [t for t in parts if t.name != name] for f, parts in files.items()})


def rename(m, old, new):
    m.rebuild(lambda files: {f: [t._replace(name=new) if t.name == old else t for t in parts]
                             for f, parts in files.items()})


def twice(m):
    """The first tensor of A also stands in B."""
    o = make_tiny.options()
    (a, first), (b, second) = make_tiny.split(o, make_tiny.tensors(o))
    m.write(b, make_tiny.shard(second + [first[0]]))


def fifo(m, name):
    m.path(name).unlink()
    os.mkfifo(m.path(name))


def folder(m, name):
    m.path(name).unlink()
    m.path(name).mkdir()


def swap_files(m):
    m.path(A).rename(m.path("x"))
    m.path(B).rename(m.path(A))
    m.path("x").rename(m.path(B))


def unindexed(m, *names):
    """No index, and the two shards under other names (None: gone)."""
    m.path(INDEX).unlink()
    for old, new in zip((A, B), names):
        if new is None:
            m.path(old).unlink()
        else:
            m.path(old).rename(m.path(new))


# (what is wrong, how to make it so, words that the one line must hold)
FILES = [
    ("no shard", lambda m: m.path(B).unlink(), [B]),
    ("an empty shard", lambda m: m.write(A, b""), [A, "too short"]),
    ("a shard of seven bytes", lambda m: m.write(A, b"\0" * 7), [A, "too short"]),
    ("a shard cut inside its header", lambda m: m.write(A, m.read(A)[:100]), [A, "truncated"]),
    ("a shard cut by one byte", lambda m: m.write(A, m.read(A)[:-1]), [A, "tensor", "end of the file"]),
    ("a shard cut in half", lambda m: m.write(B, m.read(B)[:len(m.read(B)) // 2]), [B, "tensor"]),
    ("one byte after the data", lambda m: m.write(A, m.read(A) + b"\0"), [A, "1 bytes after"]),
    ("a folder for a shard", lambda m: folder(m, A), [A, "not a regular file"]),
    ("a fifo for a shard", lambda m: fifo(m, B), [B, "not a regular file"]),
    ("two shards changed places", swap_files, ["tensor", "missing"]),
    ("nothing but a config", lambda m: unindexed(m, None, None), ["no weights"]),
    ("no index, one of two files", lambda m: unindexed(m, A, None), [A, "complete set"]),
    ("no index, files of two sets", lambda m: unindexed(m, A, "model-00002-of-000003.safetensors"),
     ["complete set"]),
    ("no index, a set that starts at 0",
     lambda m: unindexed(m, "model-00000-of-000002.safetensors", "model-00001-of-000002.safetensors"),
     ["complete set"]),
    ("no config", lambda m: m.path("config.json").unlink(), ["config.json"]),
    ("a folder for a config", lambda m: folder(m, "config.json"), ["config.json", "regular"]),
]

HEADERS = [
    ("a header of 2^63 bytes", lambda m: length(m, 1 << 63), [A, "at most 100000000"]),
    ("a header one past the limit", lambda m: length(m, 100_000_001), [A, "at most 100000000"]),
    ("a header at the limit, past the file", lambda m: length(m, 100_000_000), [A, "truncated"]),
    ("a header of 0 bytes", lambda m: length(m, 0), [A, "not a safetensors"]),
    ("a header that swallows data", lambda m: length(m, len(m.read(A)) - 8), [A, "not a safetensors"]),
    ("a blank before the header", lambda m: raw_header(m, lambda t: b" " + t), [A, "not a safetensors"]),
    ("a list for a header", lambda m: raw_header(m, lambda t: b"[" + t.strip() + b"]"), [A]),
    ("a header padded with newlines", lambda m: raw_header(m, lambda t: t.strip() + b"\n\n"), [A]),
    ("a header padded with NUL", lambda m: raw_header(m, lambda t: t.strip() + b"\0"), [A]),
    ("words after the header", lambda m: raw_header(m, lambda t: t.strip() + b" {}"), [A, "JSON"]),
    ("a header cut by its own length", lambda m: raw_header(m, lambda t: t.strip()[:-9] + b"}"), [A, "JSON"]),
    ("a header that is not UTF-8", lambda m: raw_header(m, lambda t: t.replace(b"norm", b"n\xffrm", 1)),
     [A, "JSON"]),
    ("a name twice in one header",
     lambda m: with_header(m, lambda h: swapped(h, NORM, GATE)), [A, "duplicate"]),
    ("a name with NUL", lambda m: raw_header(m, lambda t: t.replace(b"input_", b"in\\u0000_", 1)), [A]),
    ("deep nesting", lambda m: with_header(m, set_key("x", json.loads("[" * 200 + "]" * 200))), [A, "nested"]),
    ("metadata that is a list", lambda m: with_header(m, set_key("__metadata__", [])), [A, "__metadata__"]),
    ("metadata that holds a number", lambda m: with_header(m, set_key("__metadata__", {"a": 1})),
     [A, "__metadata__"]),
    ("a tensor that is a list", lambda m: with_header(m, set_key(NORM, [])), [A, NORM, "object"]),
    ("no dtype", lambda m: m.tensor(NORM, dtype=None), [A, NORM, "dtype"]),
    ("no shape", lambda m: m.tensor(NORM, shape=None), [A, NORM, "shape"]),
    ("no offsets", lambda m: m.tensor(NORM, data_offsets=None), [A, NORM, "data_offsets"]),
    ("a field too many", lambda m: m.tensor(NORM, strides=[1]), [A, NORM, "field"]),
    ("an unknown dtype", lambda m: m.tensor(NORM, dtype="Q4_K"), [A, NORM, "dtype"]),
    ("a dtype in small letters", lambda m: m.tensor(NORM, dtype="bf16"), [A, NORM, "dtype"]),
    ("a dtype that is a number", lambda m: m.tensor(NORM, dtype=2), [A, NORM, "dtype"]),
    ("a shape that is a number", lambda m: m.tensor(NORM, shape=64), [A, NORM, "shape"]),
    ("a negative dimension", lambda m: m.tensor(NORM, shape=[-64]), [A, NORM, "dimension"]),
    ("two negative dimensions", lambda m: m.tensor(NORM, shape=[-8, -8]), [A, NORM, "dimension"]),
    ("a dimension of 64.0", lambda m: m.tensor(NORM, shape=[64.0]), [A, NORM, "dimension"]),
    ("a dimension of true", lambda m: m.tensor(NORM, shape=[True, 64]), [A, NORM, "dimension"]),
    ("a product of 2^64", lambda m: m.tensor(NORM, shape=[1 << 32, 1 << 32]), [A, NORM, "overflow"]),
    ("a product of 2^65 + 64", lambda m: m.tensor(NORM, shape=[(1 << 62) + 8, 8]), [A, NORM, "overflow"]),
    ("bits that overflow", lambda m: m.tensor(NORM, shape=[(1 << 60) + 64]), [A, NORM, "overflow"]),
    ("a dimension over 2^63", lambda m: m.tensor(NORM, shape=[1 << 64]), [A, "JSON"]),
    ("seventeen dimensions", lambda m: m.tensor(NORM, shape=[1] * 16 + [64]), [A, NORM, "dimensions"]),
    ("a dimension of 0 over real bytes", lambda m: m.tensor(NORM, shape=[0]), [A, NORM, "match"]),
    ("a shape one row short", lambda m: m.tensor(GATE, shape=[95, 64]), [A, GATE, "match"]),
    ("a shape one row long", lambda m: m.tensor(GATE, shape=[97, 64]), [A, GATE, "match"]),
    ("a dtype twice as wide", lambda m: m.tensor(GATE, dtype="F32"), [A, GATE, "match"]),
    ("values that end inside a byte", lambda m: m.tensor(NORM, dtype="F4", shape=[255]), [A, NORM, "whole bytes"]),
    ("one offset", lambda m: m.tensor(NORM, data_offsets=[0]), [A, NORM, "data_offsets"]),
    ("three offsets", lambda m: m.tensor(NORM, data_offsets=[0, 128, 256]), [A, NORM, "data_offsets"]),
    ("offsets in strings", lambda m: m.tensor(NORM, data_offsets=["0", "128"]), [A, NORM, "data_offsets"]),
    ("offsets with a point", lambda m: m.tensor(NORM, data_offsets=[0.0, 128.0]), [A, NORM, "data_offsets"]),
    ("a negative offset", lambda m: m.tensor(NORM, data_offsets=[-128, 0]), [A, NORM, "data_offsets"]),
    ("offsets backwards", lambda m: m.tensor(NORM, data_offsets=[128, 0]), [A, NORM, "data_offsets"]),
    ("offsets far past the end", lambda m: m.tensor(NORM, data_offsets=[1 << 62, (1 << 62) + 128]),
     [A, NORM, "end of the file"]),
    ("offsets over 2^63", lambda m: m.tensor(NORM, data_offsets=[1 << 64, (1 << 64) + 128]), [A, "JSON"]),
    ("two tensors on the same bytes", lambda m: m.tensor(
        short_second(m), data_offsets=m.header(A)[0][NORM]["data_offsets"]), [A, "tensor", "overlap"]),
    ("an overlap of one byte", lambda m: shift(m, GATE, -1), [A, "tensor", "overlap"]),
    ("a hole of one byte", lambda m: shift(m, GATE, 1), [A, "tensor", "hole"]),
    ("a hole at the front", lambda m: m.reframe(*front_hole(m)), [A, "tensor", "hole"]),
    ("no tensor at all", lambda m: no_tensors(m), ["no tensor"]),
]


def short_second(_):
    return L + "model.layers.0.post_attention_layernorm.weight"


def front_hole(m):
    header, data = m.header(A)
    for t in header.values():
        t["data_offsets"] = [x + 8 for x in t["data_offsets"]]
    return header, b"\0" * 8 + data


def no_tensors(m):
    m.path(INDEX).unlink()
    m.path(B).unlink()
    m.path(A).unlink()
    m.write("model.safetensors", make_tiny.frame(b'{"__metadata__": {}}', b""))


KDA0 = L + "model.layers.0.self_attn."
BINDING = [
    ("a missing norm", lambda m: drop(m, NORM), [short(NORM), "missing"]),
    ("a missing scale", lambda m: drop(m, SCALE), [short(SCALE), "missing"]),
    ("a missing head", lambda m: drop(m, L + "lm_head.weight"), ["lm_head.weight", "missing"]),
    ("a misspelt tensor", lambda m: rename(m, GATE, GATE.replace("gate", "gait")), [short(GATE), "missing"]),
    ("a transposed matrix", lambda m: m.retensor(GATE, shape=[64, 96]), [A, short(GATE), "[96, 64]"]),
    ("a flattened matrix", lambda m: m.retensor(GATE, shape=[96 * 64]), [A, short(GATE), "shape"]),
    ("a matrix cut in three", lambda m: m.retensor(GATE, shape=[96, 8, 8]), [A, short(GATE), "shape"]),
    ("five dimensions", lambda m: m.retensor(GATE, shape=[1, 1, 1, 96, 64]), [A, short(GATE), "shape"]),
    ("a norm of another width", lambda m: m.retensor(NORM, shape=[32], data=b"\0" * 64), [A, short(NORM), "[64]"]),
    ("fewer rows", lambda m: m.retensor(GATE, shape=[95, 64], data=b"\0" * 95 * 128), [A, short(GATE), "[95, 64]"]),
    ("an empty matrix", lambda m: m.retensor(GATE, shape=[0, 64], data=b""), [A, short(GATE), "[0, 64]"]),
    ("a scalar for a norm", lambda m: m.retensor(NORM, shape=[], data=b"\0\0"), [A, short(NORM), "shape"]),
    ("too few A_log", lambda m: m.retensor(KDA0 + "A_log", shape=[1], data=b"\0" * 4), [A, "A_log", "shape"]),
    ("an A_log of two rows", lambda m: m.retensor(KDA0 + "A_log", shape=[2, 8]), [A, "A_log", "shape"]),
    ("dt_bias transposed", lambda m: m.retensor(KDA0 + "dt_bias", shape=[16, 2]), [A, "dt_bias", "shape"]),
    ("taps before channels", lambda m: m.retensor(KDA0 + "q_conv1d.weight", shape=[4, 1, 32]),
     [A, "q_conv1d", "shape"]),
    ("a norm of integers", lambda m: m.retensor(NORM, dtype="I16"), [A, short(NORM), "dtype"]),
    ("a matrix of e4m3 without scales", lambda m: m.retensor(GATE, dtype="F8_E4M3", data=b"\0" * 96 * 64),
     [A, short(GATE), "dtype"]),
    ("packed experts as I8", lambda m: m.retensor(PACKED, dtype="I8"), [short(PACKED), "dtype"]),
    ("packed experts twice as wide", lambda m: m.retensor(PACKED, shape=[32, 32], data=b"\0" * 1024),
     [short(PACKED), "shape"]),
    ("scales of half a group", lambda m: m.retensor(SCALE, shape=[32, 2], data=b"\0" * 64), [short(SCALE), "shape"]),
    ("one expert plain among packed", lambda m: rename(
        m, PACKED.replace("experts.0", "experts.1"), PACKED.replace("experts.0", "experts.1")[:-7]),
     ["experts.1.w1.weight_packed", "missing"]),
    ("the same tensor in two files", twice, [B, "also in", A]),
    ("names with and without the prefix", lambda m: rename(m, NORM, short(NORM)), [A, "prefix"]),
    ("a tensor that the index does not know", lambda m: m.index(lambda t: t["weight_map"].pop(NORM) and None),
     [A, short(NORM), "not in"]),
    ("a tensor that only the index knows", lambda m: m.place(L + "model.ghost", A), [A, "ghost", "missing"]),
    ("a tensor in the other file", lambda m: m.place(NORM, B), [B, NORM, "missing"]),
]


def index_text(text):
    return lambda m: m.write(INDEX, text)


def index_map(value):
    return lambda m: m.index(lambda t: dict(t, weight_map=value))


def index_meta(value):
    return lambda m: m.index(lambda t: dict(t, metadata=value))


INDEXES = [
    ("an index that is no JSON", index_text("weights: yes"), [INDEX, "JSON"]),
    ("an empty index", index_text(""), [INDEX]),
    ("an index cut in half", lambda m: m.write(INDEX, m.read(INDEX)[:4000]), [INDEX, "JSON"]),
    ("an index that is a list", index_text("[]"), [INDEX, "object"]),
    ("an index without a map", index_text("{}"), [INDEX, "weight_map"]),
    ("a map that is a list", index_map([]), [INDEX, "weight_map"]),
    ("an empty map", index_map({}), [INDEX, "weight_map"]),
    ("a name twice in the index", lambda m: m.write(INDEX, m.read(INDEX).replace(
        NORM.encode(), GATE.encode(), 1)), [INDEX, "duplicate"]),
    ("a file above the folder", lambda m: m.place(NORM, "../" + A), [INDEX, NORM, "plain"]),
    ("an absolute file", lambda m: m.place(NORM, "/etc/passwd"), [INDEX, NORM, "plain"]),
    ("a file in a folder", lambda m: m.place(NORM, "a/" + A), [INDEX, NORM, "plain"]),
    ("a file behind a backslash", lambda m: m.place(NORM, "a\\" + A), [INDEX, NORM, "plain"]),
    ("a file named ..", lambda m: m.place(NORM, ".."), [INDEX, NORM, "plain"]),
    ("a hidden file", lambda m: m.place(NORM, ".model"), [INDEX, NORM, "plain"]),
    ("a file without a name", lambda m: m.place(NORM, ""), [INDEX, NORM, "plain"]),
    ("a file of two lines", lambda m: m.place(NORM, "a\nb"), [INDEX, NORM, "a\\x0ab"]),
    ("a file with NUL", lambda m: m.place(NORM, A + "\0.txt"), [INDEX, NORM, "plain"]),
    ("a file of 256 letters", lambda m: m.place(NORM, "x" * 256), [INDEX, NORM, "plain"]),
    ("a file that is a number", lambda m: m.place(NORM, 1), [INDEX, NORM, "file name"]),
    ("a file that is not there", lambda m: m.place(NORM, "model-9.safetensors"), ["model-9.safetensors"]),
    ("a file that is no shard", lambda m: m.place(NORM, "config.json"), ["config.json", "safetensors"]),
    ("metadata that is a list", index_meta([]), [INDEX, "metadata"]),
    ("a total size in words", index_meta({"total_size": "big"}), [INDEX, "total_size"]),
    ("a negative total size", index_meta({"total_size": -1}), [INDEX, "total_size"]),
    ("4097 files", lambda m: m.index(lambda t: dict(t, weight_map={str(i): f"f{i}" for i in range(4097)})),
     [INDEX, "4096"]),
    ("a folder for an index", lambda m: folder(m, INDEX), [INDEX, "regular"]),
]

CONFIG_TEXTS = [
    ("an empty config", b"", ["config.json", "JSON"]),
    ("a config in words", b"layers = 4", ["config.json", "JSON"]),
    ("a config that is a list", b"[]", ["config.json", "object"]),
    ("a key twice", b'{"model_type": "kimi_k3", "model_type": "kimi_k3"}', ["config.json", "duplicate"]),
    ("a config nested 200 deep", b"[" * 200 + b"]" * 200, ["config.json", "nested"]),
    ("a config that is not UTF-8", b'{"model_type": "\xff"}', ["config.json", "JSON"]),
    ("a damaged gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\0garbage", ["config.json", "gzip"]),
]

KEYS = [  # (key, value, words beside the key's name)
    ("model_type", "llama", ["kimi_k3"]), ("model_type", ABSENT, ["kimi_k3"]), ("model_type", 3, ["string"]),
    ("text.model_type", "kimi_vl", ["kimi_linear"]),
    ("text_config", None, ["object"]), ("text_config", [], ["object"]),
    ("text.num_hidden_layers", 0, ["1 to 1024"]), ("text.num_hidden_layers", -4, ["is -4"]),
    ("text.num_hidden_layers", 1025, ["is 1025", "1024"]), ("text.num_hidden_layers", 4.0, ["whole number"]),
    ("text.num_hidden_layers", "4", ["whole number"]), ("text.num_hidden_layers", True, ["whole number"]),
    ("text.num_hidden_layers", [4], ["a list"]), ("text.num_hidden_layers", {}, ["an object"]),
    ("text.hidden_size", -64, ["whole number"]), ("text.hidden_size", (1 << 20) + 1, ["1048576"]),
    ("text.hidden_size", 1 << 62, ["1048576"]),
    ("text.vocab_size", 0, ["whole number"]), ("text.vocab_size", (1 << 24) + 1, ["16777216"]),
    ("text.intermediate_size", 0, ["whole number"]),
    ("text.num_attention_heads", 0, ["whole number"]), ("text.num_attention_heads", (1 << 20) + 1, ["1048576"]),
    ("text.num_key_value_heads", 1, ["num_attention_heads"]), ("text.num_key_value_heads", "2", ["equal"]),
    ("text.q_lora_rank", 0, ["whole number"]), ("text.kv_lora_rank", None, ["MLA"]),
    ("text.qk_nope_head_dim", ABSENT, ["MLA"]), ("text.qk_rope_head_dim", -8, ["whole number"]),
    ("text.v_head_dim", None, ["MLA"]),
    ("text.mla_use_nope", False, ["true"]), ("text.mla_use_nope", ABSENT, ["true"]),
    ("text.mla_use_nope", 1, ["true or false"]), ("text.mla_use_output_gate", "yes", ["true or false"]),
    ("text.hidden_act", "gelu", ["situ", "silu"]), ("text.hidden_act", 1, ["string"]),
    ("text.activation_situ_beta", -1, ["number"]), ("text.activation_situ_linear_beta", "25", ["number"]),
    ("text.rms_norm_eps", 0, ["number"]), ("text.rms_norm_eps", 1, ["number"]), ("text.rms_norm_eps", [], ["a list"]),
    ("text.attn_res_block_size", -1, ["whole number"]), ("text.attn_res_block_size", 1025, ["1024"]),
    ("text.first_k_dense_replace", -1, ["whole number"]), ("text.moe_layer_freq", 0, ["whole number"]),
    ("text.num_experts", -1, ["whole number"]), ("text.num_experts", 65537, ["65536"]),
    ("text.num_experts_per_token", 0, ["whole number"]), ("text.num_experts_per_token", 5, ["num_experts"]),
    ("text.num_experts_per_token", ABSENT, ["experts needs it"]),
    ("text.moe_intermediate_size", None, ["experts needs it"]), ("text.moe_intermediate_size", 40, ["multiple of 32"]),
    ("text.num_shared_experts", 65536, ["at most"]), ("text.num_shared_experts", -1, ["whole number"]),
    ("text.routed_expert_hidden_size", 48, ["multiple of 32"]), ("text.routed_expert_hidden_size", 0, ["whole"]),
    ("text.latent_moe_use_norm", 0, ["true or false"]), ("text.moe_renormalize", "true", ["true or false"]),
    ("text.moe_router_activation_func", "softmax", ["sigmoid"]), ("text.topk_method", "greedy", ["noaux_tc"]),
    ("text.routed_scaling_factor", 0, ["number"]), ("text.routed_scaling_factor", "1", ["number"]),
    ("text.num_expert_group", 3, ["divide"]), ("text.num_expert_group", 4, ["two best"]),
    ("text.topk_group", 2, ["num_expert_group"]), ("text.num_nextn_predict_layers", -1, ["whole number"]),
    ("text.max_position_embeddings", 0, ["whole number"]),
    ("text.linear_attn_config", [], ["object"]),
    ("linear.kda_layers", "1", ["list"]), ("linear.kda_layers", ABSENT, ["list"]),
    ("linear.kda_layers", [0, 1], ["entry 0"]), ("linear.kda_layers", [1, 5], ["entry 1", "1 to 4"]),
    ("linear.kda_layers", [1, 2.0], ["entry 1"]), ("linear.kda_layers", [1, 1], ["twice"]),
    ("linear.full_attn_layers", [3], ["layer 3", "twice"]), ("linear.full_attn_layers", {}, ["list"]),
    ("linear.num_heads", 0, ["whole number"]), ("linear.head_dim", None, ["whole number"]),
    ("linear.num_heads", 1 << 20, ["at most"]), ("linear.short_conv_kernel_size", 65, ["1 to 64"]),
    ("linear.gate_lower_bound", 5, ["number"]), ("linear.use_full_rank_gate", 1, ["true or false"]),
    ("quantization_config", "mxfp4", ["object"]), ("text.quantization_config", [], ["object"]),
    ("quant.quant_method", "gptq", ["compressed-tensors"]), ("quant.format", "int-quantized", ["mxfp4"]),
    ("quant.kv_cache_scheme", {}, ["null"]),
    ("eos_token_id", 96, ["0 to 95"]), ("eos_token_id", -1, ["token id"]), ("bos_token_id", "1", ["token id"]),
    ("pad_token_id", [], ["token id"]), ("text.tie_word_embeddings", "no", ["true or false"]),
    ("vision_config", [], ["object"]), ("vision.patch_size", 0, ["whole number"]),
    ("vision.merge_kernel_size", [2], ["two whole numbers"]), ("vision.merge_kernel_size", 2, ["two whole numbers"]),
]


class Damaged(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        cls.base = os.path.join(cls.work.name, "base")
        make_tiny.write(cls.base)

    @classmethod
    def tearDownClass(cls):
        cls.work.cleanup()

    def run_check(self, damage):
        folder = os.path.join(self.work.name, "model")
        shutil.copytree(self.base, folder)
        try:
            damage(Model(folder))
            return subprocess.run([TRIREME, "info", folder, "--check"], capture_output=True, text=True, timeout=60)
        finally:
            shutil.rmtree(folder)

    def refused(self, damage, words):
        done = self.run_check(damage)
        lines = done.stderr.splitlines()
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(len(lines), 1, done.stderr)
        for word in words:
            self.assertIn(word, lines[0])

    def each(self, cases):
        for what, damage, words in cases:
            with self.subTest(what):
                self.refused(damage, words)

    def test_the_base_is_fine(self):
        done = self.run_check(lambda m: None)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_files(self):
        self.each(FILES)

    def test_headers(self):
        self.each(HEADERS)

    def test_binding(self):
        self.each(BINDING)

    def test_indexes(self):
        self.each(INDEXES)

    def test_config_texts(self):
        for what, text, words in CONFIG_TEXTS:
            with self.subTest(what):
                self.refused(lambda m: m.write("config.json", text), words)

    def test_config_keys(self):
        for key, value, words in KEYS:
            with self.subTest(f"{key} = {value if value is not ABSENT else 'absent'}"):
                self.refused(lambda m: m.config(key, value), ["config.json", key.rpartition(".")[2], *words])

    def test_expert_numbers_that_multiply_past_the_limits(self):
        def damage(m):
            m.config("text.num_experts", 65536)
            m.config("text.num_hidden_layers", 1024)
            m.config("linear.kda_layers", list(range(1, 1024)))
            m.config("linear.full_attn_layers", [1024])
        self.refused(damage, ["config.json", "num_experts", "at most 2733"])

    def test_heads_that_multiply_past_the_limits(self):
        def damage(m):
            m.config("text.num_attention_heads", 1 << 16)
            m.config("text.num_key_value_heads", 1 << 16)
        self.refused(damage, ["config.json", "num_attention_heads", "at most 1048576"])


if __name__ == "__main__":
    unittest.main()
