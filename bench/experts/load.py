#!/usr/bin/env python3
"""How fast a trunk is opened with a cold page cache, beside what the drive gives in the same minute.

Usage: load.py TRIREME MODEL [--reps N] [--formats disk,int8] [--packed] [--touch GB] [FLAGS...]

One line a repetition: `trireme speed` opening the trunk (experts held to 400 MB, so that they are not read at the
start), between two direct reads of the very same bytes in order, 512 KiB a call by eight threads, each always to the
same huge page: "drive" is their mean. Rates are of the bytes that the shards hold of the trunk (with --packed: of the
pack's files). FLAGS go to `trireme speed`. Needs root: the page cache of the whole machine is dropped before each.

Virtual machines may give free memory back to their host; the first touch of each page is then many times dearer than
its clearing. With --touch so much memory is touched and freed right before each opening, so that it finds it there."""
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


def touch(gigabytes):
    """In a process of its own, so that all of it is freed."""
    subprocess.run(["python3", "-c", f"""
import mmap
for _ in range({gigabytes}):
    m = mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    m.madvise(mmap.MADV_HUGEPAGE)
    m.write(bytes(1 << 30))
    keep = globals().get("keep", []) + [m]
"""], check=True)


def trunk_ranges(model):
    """[file, begin, end] of what the shards hold of the trunk, neighbours joined."""
    ranges = []
    for shard in sorted(model.glob("*.safetensors")):
        with open(shard, "rb") as f:
            length = struct.unpack("<Q", f.read(8))[0]
            header = json.loads(f.read(length))
        for at, end in sorted(t["data_offsets"] for name, t in header.items() if name != "__metadata__"
                              and ".experts." not in name and "vision" not in name):
            if ranges and ranges[-1][0] == shard and ranges[-1][2] == 8 + length + at:
                ranges[-1][2] = 8 + length + end
            else:
                ranges.append([shard, 8 + length + at, 8 + length + end])
    return ranges


def drive(ranges, threads=8, step=512 << 10):
    """Bytes a second of these ranges, in whole steps, read directly and in order, to huge pages: with small ones every
    page is a piece of its request, and few requests of many pieces fit into the queue of a virtual drive."""
    blocks = [(f, at) for f, begin, end in ranges for at in range(begin // step * step, end // step * step, step)]
    fds = {f: os.open(f, os.O_RDONLY | os.O_DIRECT) for f, _, _ in ranges}
    queue = iter(blocks)

    def work():
        memory = mmap.mmap(-1, max(step, 2 << 20), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
        buf = memoryview(memory)[:step]
        for f, at in queue:
            os.preadv(fds[f], [buf], at)

    begin = time.monotonic()
    pool = [threading.Thread(target=work) for _ in range(threads)]
    for t in pool:
        t.start()
    for t in pool:
        t.join()
    spent = time.monotonic() - begin
    for fd in fds.values():
        os.close(fd)
    return len(blocks) * step / spent


def main():
    p = argparse.ArgumentParser()
    p.add_argument("trireme")
    p.add_argument("model", type=pathlib.Path)
    p.add_argument("--reps", type=int, default=2)
    p.add_argument("--formats", default="disk,int8")
    p.add_argument("--packed", action="store_true")
    p.add_argument("--touch", type=int, default=0)
    a, flags = p.parse_known_args()
    for fmt in a.formats.split(","):
        pack = a.model / f"trireme-pack-{fmt}"
        ranges = [[f, 0, f.stat().st_size] for f in sorted(pack.glob("*.bin"))] if a.packed else trunk_ranges(a.model)
        size = sum(end - begin for _, begin, end in ranges)
        for _ in range(a.reps):
            drop()
            before = drive(ranges)
            drop()
            touch(a.touch)
            done = subprocess.run([a.trireme, "speed", a.model, "--trunk", fmt, "--prefill", "0", "--decode", "1",
                                   "--reps", "1", "--no-limits", "--json", "--expert-ram", "400M", "--keep-nothing", *flags],
                                  capture_output=True, text=True, check=True)
            load = json.loads(done.stdout)["load_s"]
            after = drive(ranges)
            print(f"{a.model.name} {fmt}{' packed' if a.packed else ''}: {size / 1e9:.3f} GB in {load:.2f} s = "
                  f"{size / load / 1e9:.2f} GB/s; drive {before / 1e9:.2f} before, {after / 1e9:.2f} after; "
                  f"share {size / load / (before + after) * 200:.0f} %", flush=True)


if __name__ == "__main__":
    main()
