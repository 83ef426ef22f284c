#!/usr/bin/env python3
"""How fast a trunk is opened with a cold page cache, beside what the drive gives in the same minute.

Usage: load.py TRIREME MODEL [--reps N] [--formats disk,int8] [--packed]

One line a repetition: a sequential direct read of the model's largest shard (16 MiB a call, one in flight, then
four threads), then `trireme speed` opening the trunk (experts held to 400 MB, so that they are not read at the start).
Rates are of the bytes that the shards hold of the trunk (with --packed: of the pack's files). Needs root: the page
cache of the whole machine is dropped before each."""
import argparse
import json
import mmap
import os
import pathlib
import struct
import subprocess
import threading
import time


def drop():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")


def trunk_bytes(model):
    total = 0
    for shard in model.glob("*.safetensors"):
        with open(shard, "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        total += sum(t["data_offsets"][1] - t["data_offsets"][0] for name, t in header.items()
                     if name != "__metadata__" and ".experts." not in name and "vision" not in name)
    return total


def read_share(path, first, end, step=16 << 20):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buf = mmap.mmap(-1, step)
    for at in range(first, end, step):
        os.preadv(fd, [buf], at)
    os.close(fd)


def drive(path, threads):
    size = path.stat().st_size >> 24 << 24
    share = (size // threads) >> 24 << 24
    begin = time.monotonic()
    work = [threading.Thread(target=read_share, args=(path, i * share, (i + 1) * share)) for i in range(threads)]
    for t in work:
        t.start()
    for t in work:
        t.join()
    return share * threads / (time.monotonic() - begin)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("trireme")
    p.add_argument("model", type=pathlib.Path)
    p.add_argument("--reps", type=int, default=2)
    p.add_argument("--formats", default="disk,int8")
    p.add_argument("--packed", action="store_true")
    a = p.parse_args()
    large = max(a.model.glob("*.safetensors"), key=lambda f: f.stat().st_size)
    for fmt in a.formats.split(","):
        pack = a.model / f"trireme-pack-{fmt}"
        size = sum(f.stat().st_size for f in pack.glob("*.bin")) if a.packed else trunk_bytes(a.model)
        for _ in range(a.reps):
            drop()
            one, four = drive(large, 1), drive(large, 4)
            drop()
            done = subprocess.run([a.trireme, "speed", a.model, "--trunk", fmt, "--prefill", "0", "--decode", "1",
                                   "--reps", "1", "--no-limits", "--json", "--expert-ram", "400M", "--keep-nothing"],
                                  capture_output=True, text=True, check=True)
            load = json.loads(done.stdout)["load_s"]
            print(f"{a.model.name} {fmt}{' packed' if a.packed else ''}: {size / 1e9:.3f} GB in {load:.2f} s = "
                  f"{size / load / 1e9:.2f} GB/s; drive {one / 1e9:.2f} (1), {four / 1e9:.2f} (4 in flight); "
                  f"share {size / load / max(one, four) * 100:.0f} %", flush=True)


if __name__ == "__main__":
    main()
